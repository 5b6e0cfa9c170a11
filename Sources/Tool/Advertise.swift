import ArgumentParser
import Bindrune
import BindruneWire
import GAP
import GATT
import HCI

struct Advertise: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Advertise a name and services, and tell who connects.",
    discussion: """
      What does not fit the advertising data goes into the scan response, and a name that is too long for both is shortened. \
      More than that takes the extended advertising of Bluetooth 5, where the controller has it. Whoever connects can read \
      the name; advertising goes on beside the link.
      """)

  @OptionGroup var options: HostOptions
  @Option(help: "The name to advertise, at most 248 octets of UTF-8.")
  var name: String
  @Option(
    help: ArgumentHelp(
      "A service to advertise, 180D or a 128-bit UUID; several times for several.", valueName: "uuid"),
    transform: BluetoothUUID.init(argument:))
  var service: [BluetoothUUID] = []
  @Option(
    help: ArgumentHelp(
      "Manufacturer data: a company identifier, least significant octet first, and what follows it.", valueName: "hex"))
  var manufacturer: HexOctets?
  @Option(help: ArgumentHelp("How long to advertise; without it until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @Flag(help: "Print one JSON object per event.")
  var json = false

  func validate() throws {
    if name.isEmpty { throw ValidationError("--name is empty: give the device a name.") }
    if name.utf8.count > 248 {  // Vol 3, Part C, §12.1
      throw ValidationError("--name has \(name.utf8.count) octets and a device's name has at most 248: shorten it.")
    }
    if let manufacturer, manufacturer.octets.count < 2 {
      throw ValidationError("--manufacturer begins with a company identifier of two octets: FFFF is nobody's.")
    }
  }

  func run() async throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: name)
    builder.genericAttribute()
    var data = AdvertisingData(localName: name, serviceUUIDs: service)
    data.manufacturerData = manufacturer?.octets
    let parameters = AdvertisingParameters(duration: duration?.duration), report = AdvertisingReport(json: json)
    try await Host.using(options, database: try builder.build()) { [data, duration] host in
      try await untilInterrupted(nil) {
        let events = await host.events
        let payloads = try await host.pack(data, parameters).payloads
        try await host.advertise(data, parameters)
        report.began(payloads, as: await host.ownAddress, for: duration)
        var peers: [LinkID: PeerAddress] = [:]
        for try await event in events {
          switch event {
          case .connected(let link):
            peers[link.id] = link.peer
            report.connected(link.peer)
          case .disconnected(let link, let reason):
            if let peer = peers.removeValue(forKey: link) { report.disconnected(peer, reason) }
          case .advertisingStopped(let end): return report.ended(end)
          case .subscriptionChanged, .written, .readRequested, .writeRequested, .requestUnanswered: break
          }
        }
      }
    }
  }
}

/// Octets from the command line, two hexadecimal digits each.
struct HexOctets: ExpressibleByArgument {
  let octets: [UInt8]
  init?(argument: String) {
    let digits = argument.filter { $0 != " " && $0 != ":" }.map { $0.isASCII ? $0.hexDigitValue : nil }
    guard digits.count % 2 == 0, !digits.contains(nil) else { return nil }
    octets = stride(from: 0, to: digits.count, by: 2).map { UInt8((digits[$0] ?? 0) << 4 | (digits[$0 + 1] ?? 0)) }
  }
}

/// What happens while advertising, for people or for programs.
private struct AdvertisingReport {
  let json: Bool

  func began(_ payloads: AdvertisingPayloads, as address: PeerAddress, for duration: Seconds?) {
    let pdus = payloads.usesLegacyPDUs ? "legacy" : "extended"
    if json {
      var line = line("advertising", address)
      line.add("pdus", pdus)
      line.add("advertising_data", hexText(payloads.advertising))
      line.add("scan_response", hexText(payloads.scanResponse))
      var said = AdvertisingData(decoding: payloads.advertising.span)
      said.merge(payloads.scanResponse.span)
      line.add("name", said.localName)
      line.add("name_is_shortened", said.isNameShortened)
      line.add("services", said.serviceUUIDs.map(\.description))
      return Console.line("\(line)")
    }
    show(payloads.advertising, "advertising data", payloads.usesLegacyPDUs)
    show(payloads.scanResponse, "scan response", payloads.usesLegacyPDUs)
    let end = duration.map { "for \($0)" } ?? "until interrupted"
    Console.line("advertising as \(address) with \(pdus) PDUs \(end)")
  }
  private func show(_ octets: [UInt8], _ title: String, _ isLegacy: Bool) {
    if octets.isEmpty { return }
    Console.line(Console.styled(title, .bold) + ", \(octets.count)\(isLegacy ? " of 31" : "") octets")
    var cursor = ADCursor(Octets(0, octets.count))
    while let structure = cursor.next(in: octets.span) {
      let whole = Array(octets[(Int(structure.data.offset) - 2)..<structure.data.range.upperBound])
      Console.line("  " + AdvertisingData(decoding: whole.span).text)
      for start in stride(from: 0, to: whole.count, by: 16) {
        Console.line("    " + hexText(whole[start..<min(start + 16, whole.count)], separator: " "))
      }
    }
  }
  func connected(_ peer: PeerAddress) {
    Console.line(json ? "\(line("connected", peer))" : "connected: \(peer)")
  }
  func disconnected(_ peer: PeerAddress, _ reason: HCIStatus) {
    if !json { return Console.line("disconnected: \(peer): \(reason)") }
    var line = line("disconnected", peer)
    line.add("reason", "\(reason)")
    Console.line("\(line)")
  }
  func ended(_ end: AdvertisingEnd) {
    if !json { return Console.line("advertising has ended: \(end)") }
    var line = JSONLine(event: "ended")
    line.add("reason", "\(end)")
    Console.line("\(line)")
  }
  private func line(_ event: String, _ address: PeerAddress) -> JSONLine {
    var line = JSONLine(event: event)
    line.add("address", address.address.text)
    line.add("address_type", address.isRandom ? "random" : "public")
    return line
  }
}

extension AdvertisingData {
  /// What one AD structure says.
  fileprivate var text: String {
    if let flags { return "flags: " + Self.flagNames(flags) }
    if let localName { return (isNameShortened ? "shortened name: " : "name: ") + "\"\(printable(localName))\"" }
    if !serviceUUIDs.isEmpty {
      return "services: "
        + serviceUUIDs.map { uuid in uuid.assignedName.map { "\($0) (\(uuid))" } ?? "\(uuid)" }.joined(separator: ", ")
    }
    if let manufacturerData {
      return "manufacturer \(hexText(manufacturerData.prefix(2).reversed())): \(hexText(manufacturerData.dropFirst(2)))"
    }
    return "other data"
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
