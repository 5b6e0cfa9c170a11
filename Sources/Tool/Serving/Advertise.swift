import ArgumentParser
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

struct Advertise: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    abstract: "Advertise a name and services, and report connections.",
    discussion: """
      --policy selects which data is sent, and where. coreBluetooth packs as an iPhone does: flags, 28 octets of \
      services and name, the remaining services as bits of the overflow area (see bindrune overflow), nothing else. \
      standard fills the 31 octets of the advertising data and of the scan response with any data; extended uses the \
      longer advertisements of Bluetooth 5. Both send what fits and list the rest. everything refuses data that does \
      not fit.

      --dry-run shows what would be sent, and needs no controller. A central that connects can read the name; \
      advertising continues during the connection.
      """)

  @Option(
    help: ArgumentHelp(
      """
      The controller: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim or sim:NAME. Default: BINDRUNE_HCI, the \
      configuration file, or hci0.
      """, valueName: "spec"), transform: TransportSpec.init(argument:))
  var hci: TransportSpec?
  @Flag(help: "Take the adapter down if it is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @OptionGroup var common: CommonOptions

  @Option(help: "The name to advertise, at most 248 octets of UTF-8; without it no name is sent.")
  var name: String?
  @Option(
    help: ArgumentHelp(
      "A service to advertise, 180D or a 128-bit UUID; repeatable, the most important first.",
      valueName: "uuid"), transform: BluetoothUUID.init(argument:))
  var service: [BluetoothUUID] = []
  @Option(
    help: ArgumentHelp(
      "Manufacturer data: a company identifier, least significant octet first, then the data.", valueName: "hex"))
  var manufacturer: HexOctets?
  @Option(
    help: ArgumentHelp("Data of a service, for example 180F=64; repeatable.", valueName: "uuid=hex"),
    transform: AdvertisingData.ServiceData.init(argument:))
  var serviceData: [AdvertisingData.ServiceData] = []
  @Option(
    help: ArgumentHelp("A service to solicit from centrals; repeatable.", valueName: "uuid"),
    transform: BluetoothUUID.init(argument:))
  var solicit: [BluetoothUUID] = []
  @Option(help: ArgumentHelp("The kind of device, an appearance value such as 0x0341 or 833.", valueName: "number"))
  var appearance: Number16?
  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("The power to advertise, -127 … 127 dBm; does not change the power.", valueName: "dBm"))
  var txPower: Int8?

  @Option(help: ArgumentHelp("Which data is sent, and where.", valueName: "policy"))
  var policy = AdvertisingPacker.Policy.coreBluetooth
  @Flag(
    help: "Advertise as an app in the background does: no name, all services in the overflow area (coreBluetooth only)."
  )
  var background = false
  @Option(
    help: ArgumentHelp(
      "The interval: fast (30 to 60 ms), balanced (100 to 150 ms), background (1 to 1.2 s), or milliseconds.",
      valueName: "interval"), transform: AdvertisingParameters.Interval.init(argument:))
  var interval = AdvertisingParameters.Interval.balanced
  @Option(help: ArgumentHelp("How long to advertise; by default until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @Flag(help: "Show what would be sent, and send nothing.")
  var dryRun = false
  @Flag(help: "Print one JSON object per event; with --dry-run, one object.")
  var json = false

  func validate() throws {
    if let name, name.isEmpty { throw ValidationError("--name is empty: leave it out to advertise no name.") }
    // Vol 3, Part C, §12.1. A dry run may show how a longer name is shortened.
    if let name, name.utf8.count > 248, !dryRun {
      throw ValidationError("--name has \(name.utf8.count) octets and a device's name has at most 248: shorten it.")
    }
    if let manufacturer, manufacturer.octets.count < 2 {
      throw ValidationError("--manufacturer begins with a company identifier of two octets: FFFF is for tests.")
    }
    if background, policy != .coreBluetooth {
      throw ValidationError("--background requires --policy coreBluetooth: leave one of them out.")
    }
  }

  func run() async throws {
    var data = AdvertisingData(localName: name, serviceUUIDs: service)
    data.solicitedServiceUUIDs = solicit
    data.serviceData = serviceData
    data.manufacturerData = manufacturer?.octets
    data.appearance = appearance?.value
    data.txPowerLevel = txPower
    let report = AdvertisingReport(json: json)
    guard !dryRun else {
      // The most that a Bluetooth 5 controller accepts: Vol 4, Part E, §7.8.57.
      let packer = AdvertisingPacker(policy, longestExtended: 1650)
      return report.show(packer.pack(data, isInBackground: background), of: data)
    }
    var parameters = AdvertisingParameters(policy: policy, interval: interval, duration: duration?.duration)
    parameters.isInBackground = background
    try await advertise(data, parameters, HostOptions(hci: hci, takeDown: takeDown, common: common), report)
  }

  private func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters, _ options: HostOptions, _ report: AdvertisingReport
  ) async throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: name ?? "Bindrune", appearance: appearance?.value ?? 0)
    builder.genericAttribute()
    try await BluetoothHost.using(options, database: try builder.build()) { [duration] host in
      try await untilInterrupted(nil) {
        let events = await host.events
        let packed = try await host.advertise(data, parameters)
        report.began(packed, of: data, as: await host.ownAddress, for: duration)
        var peers: [LinkID: PeerAddress] = [:]
        for try await event in events {
          switch event {
          case .connected(let link):
            peers[link.id] = link.peer.firstAddress
            report.connected(link.peer.firstAddress)
          case .disconnected(let link, let reason):
            if let peer = peers.removeValue(forKey: link) { report.disconnected(peer, reason) }
          case .advertisingStopped(_, let end): return report.ended(end)
          case .subscriptionChanged, .written, .readRequested, .writeRequested, .requestUnanswered: break
          }
        }
      }
    }
  }
}

// MARK: The command line

extension AdvertisingPacker.Policy: ExpressibleByArgument {}

/// Octets from the command line, two hexadecimal digits each.
struct HexOctets: ExpressibleByArgument {
  let octets: [UInt8]
  init?(argument: String) {
    let digits = argument.filter { !$0.isWhitespace && $0 != ":" }.map { $0.isASCII ? $0.hexDigitValue : nil }
    guard digits.count % 2 == 0, !digits.contains(nil) else { return nil }
    octets = stride(from: 0, to: digits.count, by: 2).map { UInt8((digits[$0] ?? 0) << 4 | (digits[$0 + 1] ?? 0)) }
  }
}

/// A 16-bit number, decimal, or hexadecimal after 0x.
struct Number16: ExpressibleByArgument {
  let value: UInt16
  init?(argument: String) {
    let digits = argument.lowercased().hasPrefix("0x") ? (argument.dropFirst(2), 16) : (argument[...], 10)
    guard digits.0.first?.isASCII == true, digits.0.first != "+", let value = UInt16(digits.0, radix: digits.1) else {
      return nil
    }
    self.value = value
  }
}

extension AdvertisingData.ServiceData {
  fileprivate init(argument: String) throws {
    let parts = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
    guard parts.count == 2, let data = HexOctets(argument: String(parts[1])) else {
      throw ValidationError("write the service, = and two hexadecimal digits for each octet, as 180F=64.")
    }
    self.init(uuid: try BluetoothUUID(argument: String(parts[0])), data: data.octets)
  }
}

extension AdvertisingParameters.Interval {
  fileprivate init(argument: String) throws {
    switch argument {
    case "fast": self = .fast
    case "balanced": self = .balanced
    case "background": self = .background
    default:
      // The host reports an interval that exceeds the controller's limits.
      guard let milliseconds = Double(argument), milliseconds > 0, milliseconds < 1e9 else {
        throw ValidationError("write fast, balanced, background or a number of milliseconds, 20 or more.")
      }
      self = .every(.milliseconds(milliseconds))
    }
  }
}

// MARK: The report

/// Prints what is advertised, and the events meanwhile, for people or for programs.
private struct AdvertisingReport {
  let json: Bool

  /// The output of a dry run.
  func show(_ packed: PackedAdvertisement, of data: AdvertisingData) {
    if !json { return describe(packed, of: data) }
    var line = JSONLine()
    line.add("advertising", hexText(packed.payloads.advertising).lowercased())
    line.add("scanResponse", hexText(packed.payloads.scanResponse).lowercased())
    line.add("overflow", packed.overflow.map(\.description))
    line.add("shortened", packed.isNameShortened ? "name" : nil)
    line.add("leftOut", packed.leftOut.map(\.description))
    Console.line(line)
  }

  func began(_ packed: PackedAdvertisement, of data: AdvertisingData, as address: PeerAddress, for duration: Seconds?) {
    let pdus = packed.usesLegacyPDUs ? "legacy" : "extended"
    if !json {
      describe(packed, of: data)
      let end = duration.map { "for \($0)" } ?? "until interrupted"
      return Console.line("advertising as \(address) with \(pdus) PDUs \(end)")
    }
    var line = line("advertising", address), payloads = packed.payloads
    line.add("pdus", pdus)
    line.add("advertising_data", hexText(payloads.advertising))
    line.add("scan_response", hexText(payloads.scanResponse))
    var said = AdvertisingData(decoding: payloads.advertising.span)
    said.merge(payloads.scanResponse.span)
    line.add("name", said.localName)
    line.add("name_is_shortened", said.isNameShortened)
    line.add("services", said.serviceUUIDs.map(\.description))
    line.add("overflow", packed.overflow.map(\.description))
    line.add("left_out", packed.leftOut.map(\.description))
    Console.line(line)
  }

  /// Prints every octet, and the data that did not fit.
  private func describe(_ packed: PackedAdvertisement, of data: AdvertisingData) {
    let limit = packed.usesLegacyPDUs ? " of 31" : ""
    for (title, structures) in [("advertising data", packed.advertising), ("scan response", packed.scanResponse)] {
      let count = structures.reduce(0) { $0 + $1.count }
      if structures.isEmpty {
        if packed.usesLegacyPDUs { Console.line(Console.styled(title, .bold) + ", empty") }
        continue
      }
      Console.line(Console.styled(title, .bold) + ", \(count)\(limit) octets")
      for structure in structures {
        Console.line("  " + structure.text(overflow: packed.overflow))
        let octets = structure.octets
        for start in stride(from: 0, to: octets.count, by: 16) {
          Console.line("    " + hexText(octets[start..<min(start + 16, octets.count)], separator: " "))
        }
      }
    }
    if !packed.overflow.isEmpty {
      let named = packed.overflow.map { "\($0) (bit \(OverflowArea.bit(of: $0)))" }
      Console.line(Console.styled("overflow", .bold) + ": " + named.joined(separator: ", "))
    }
    if packed.isNameShortened, let name = data.localName {
      Console.line(Console.styled("shortened", .bold) + ": the name, which has \(name.utf8.count) octets")
    }
    for entry in packed.leftOut { Console.line(Console.styled("left out", .yellow) + ": \(entry)".printable()) }
  }
  func connected(_ peer: PeerAddress) {
    if json { Console.line(line("connected", peer)) } else { Console.line("connected: \(peer)") }
  }
  func disconnected(_ peer: PeerAddress, _ reason: HCIStatus) {
    if !json { return Console.line("disconnected: \(peer): \(reason)") }
    var line = line("disconnected", peer)
    line.add("reason", "\(reason)")
    Console.line(line)
  }
  func ended(_ end: AdvertisingEnd) {
    if !json { return Console.line("advertising has ended: \(end)") }
    var line = JSONLine(event: "ended")
    line.add("reason", "\(end)")
    Console.line(line)
  }
  private func line(_ event: String, _ address: PeerAddress) -> JSONLine {
    var line = JSONLine(event: event)
    line.add("address", address.address.text)
    line.add("address_type", address.isRandom ? "random" : "public")
    return line
  }
}

extension AdvertisingData.Structure {
  /// Its content in words. `overflow`: the services that an overflow area stands for.
  fileprivate func text(overflow: [BluetoothUUID]) -> String {
    let said = AdvertisingData(decoding: octets.span)
    func list(_ uuids: [BluetoothUUID]) -> String {
      uuids.map { uuid in uuid.assignedName.map { "\($0) (\(uuid))" } ?? "\(uuid)" }.joined(separator: ", ")
    }
    switch type {
    case .flags: return "flags: " + Self.flagNames(said.flags ?? 0)
    case .completeLocalName, .shortenedLocalName:
      return (said.isNameShortened ? "shortened name: " : "name: ") + "\"\((said.localName ?? "").printable())\""
    case .completeServiceUUIDs16, .completeServiceUUIDs32, .completeServiceUUIDs128:
      return "services: " + list(said.serviceUUIDs)
    case .incompleteServiceUUIDs16, .incompleteServiceUUIDs32, .incompleteServiceUUIDs128:
      return "services, not all: " + list(said.serviceUUIDs)
    case .solicitationUUIDs16, .solicitationUUIDs32, .solicitationUUIDs128:
      return "solicited services: " + list(said.solicitedServiceUUIDs)
    case .serviceData16, .serviceData32, .serviceData128:
      return said.serviceData.map { "data of \(list([$0.uuid])): \(hexText($0.data))" }.joined()
    case .txPowerLevel: return "TX power: \(said.txPowerLevel.map { "\($0)" } ?? "?") dBm"
    case .appearance: return "appearance: 0x" + hexDigits(UInt64(said.appearance ?? 0), 4)
    case .manufacturerData where said.overflowArea != nil && !overflow.isEmpty:
      return "overflow area: " + overflow.map(\.description).joined(separator: ", ")
    case .manufacturerData: return "manufacturer \(hexText(data.prefix(2).reversed())): \(hexText(data.dropFirst(2)))"
    default: return "\(type): \(hexText(data))"
    }
  }
  /// Core Specification Supplement, Part A, §1.3.
  private static func flagNames(_ flags: UInt8) -> String {
    let names = [
      "limited discoverable", "general discoverable", "BR/EDR not supported", "LE and BR/EDR at once (controller)",
      "LE and BR/EDR at once (host)",
    ]
    let set = names.enumerated().filter { flags >> $0.offset & 1 == 1 }.map(\.element)
    return set.isEmpty ? "none" : set.joined(separator: ", ")
  }
}

extension AdvertisingEnd {
  /// Throws if a server can no longer be found, although nobody has stopped it: the verb ends, and who supervises it
  /// sees that.
  func check() throws(Failure) {
    guard case .terminated(let status) = self else { return }
    throw Failure("The controller advertises no more, \(status): start again.")
  }
}
