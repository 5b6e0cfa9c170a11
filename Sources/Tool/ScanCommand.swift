import ArgumentParser
import Bindrune
import BindruneWire
import GAP

struct ScanCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "scan", abstract: "Show the devices that advertise.",
    discussion:
      "One line for each device when it is first heard and when it says something new; on a terminal a live table.")

  @OptionGroup var options: HostOptions
  @Option(help: "Seconds to scan; without it until interrupted.")
  var duration: Double?
  @Option(help: "Only devices that name this service: 180D or a 128-bit UUID. May be repeated.")
  var service: [BluetoothUUID] = []
  @Flag(help: "Print one JSON object per report.")
  var json = false

  func validate() throws {
    if let duration, !(duration > 0 && duration <= 86_400) {
      throw ValidationError("--duration is a number of seconds from 0 to 86400.")
    }
  }

  func run() async throws {
    var configuration = HostConfiguration()
    configuration.prefersExtendedCommands = true
    let services = service, json = json
    let seen = try await Host.using(options, configuration: configuration) { host in
      let table = DeviceTable(json: json)
      let limit = duration.map { Duration.milliseconds(Int64($0 * 1000)) } ?? .seconds(86_400 * 365)
      _ = try await withLimit(limit) {
        for try await advertisement in host.scan(services: services) { await table.show(advertisement) }
      }
      return await table.count
    }
    if !json && !Console.isTerminal { Console.line("\(seen) device\(seen == 1 ? "" : "s")") }
    if !json && Console.isTerminal { Console.line() }
  }
}

/// What a scan has found: a line a device, told again when it changes.
actor DeviceTable {
  private var devices: [PeerAddress: Advertisement] = [:]
  private let json: Bool
  init(json: Bool) { self.json = json }
  var count: Int { devices.count }

  func show(_ advertisement: Advertisement) {
    let known = devices[advertisement.peer]
    if devices.count < 4096 || known != nil { devices[advertisement.peer] = advertisement }
    if json { return Console.line(advertisement.json.description) }
    if known?.data != advertisement.data {
      Console.status("")
      Console.line(advertisement.line)
    }
    Console.status("scanning … \(devices.count) device\(devices.count == 1 ? "" : "s")")
  }
}

extension Advertisement {
  var line: String {
    let strength = rssi.map { "\($0) dBm" } ?? "? dBm"
    var parts = [Console.styled(peer.description, .cyan), strength.padded(8)]
    parts.append(Console.styled(name.map(printable) ?? "(no name)", name == nil ? .dim : .bold))
    if !data.serviceUUIDs.isEmpty {
      parts.append(data.serviceUUIDs.map { assignedName($0) ?? $0.description }.joined(separator: ", "))
    }
    if let manufacturer = data.manufacturerData {
      parts.append(
        "manufacturer " + hexText(manufacturer.prefix(2).reversed()) + ": " + hexText(manufacturer.dropFirst(2)))
    }
    for entry in data.serviceData { parts.append("\(entry.uuid): \(hexText(entry.data))") }
    if let fault = data.fault { parts.append(Console.styled("(\(fault))", .yellow)) }
    return parts.joined(separator: "  ")
  }
  var json: JSONLine {
    var line = JSONLine(event: "advertisement")
    line.add("address", peer.address.text)
    line.add("address_type", peer.isRandom ? "random" : "public")
    line.add("rssi", rssi)
    line.add("connectable", isConnectable)
    line.add("scan_response", isScanResponse)
    line.add("name", name)
    line.add("services", data.serviceUUIDs.map(\.description))
    if let flags = data.flags { line.add("flags", Int(flags)) }
    if let power = data.txPowerLevel { line.add("tx_power", Int(power)) }
    if let manufacturer = data.manufacturerData { line.add("manufacturer_data", hexText(manufacturer)) }
    if !data.serviceData.isEmpty {
      var entries = JSONLine()
      for entry in data.serviceData { entries.add(entry.uuid.description, hexText(entry.data)) }
      line.add("service_data", entries)
    }
    return line
  }
}

extension String {
  func padded(_ width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}

extension BluetoothUUID: ExpressibleByArgument {
  public init?(argument: String) { self.init(argument) }
}
