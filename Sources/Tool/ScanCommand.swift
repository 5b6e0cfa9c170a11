import ArgumentParser
import Bindrune
import BindruneWire
import GAP

struct ScanCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "scan", abstract: "Show the devices that advertise.",
    discussion: "One line for each device when it is first heard, and again when it says something new.")

  @OptionGroup var options: HostOptions
  @Option(help: ArgumentHelp("How long to scan; without it until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @Option(
    help: ArgumentHelp(
      "Only devices that name this service, 180D or a 128-bit UUID; several times for one of several.",
      valueName: "uuid"))
  var service: [BluetoothUUID] = []
  @Flag(help: "Print one JSON object per report.")
  var json = false

  func run() async throws {
    let services = service, table = DeviceTable(json: json)
    try await Host.using(options) { host in
      try await untilInterrupted(duration) {
        await table.begin()
        for try await advertisement in host.scan(services: services) { await table.show(advertisement) }
      }
    }
    await table.end()
  }
}

/// What a scan has found: a line a device, told again when it changes.
actor DeviceTable {
  private var devices: [PeerAddress: AdvertisingData] = [:]
  private let json: Bool
  init(json: Bool) { self.json = json }
  private var count: String { devices.count == 1 ? "1 device" : "\(devices.count) devices" }

  func begin() { if !json { Console.status("scanning … \(count)") } }
  func show(_ advertisement: Advertisement) {
    if json { return Console.line("\(advertisement.json)") }
    guard devices[advertisement.peer] != advertisement.data else { return }
    if devices.count < 4096 || devices[advertisement.peer] != nil {
      devices[advertisement.peer] = advertisement.data
    }
    Console.line(advertisement.line)
    Console.status("scanning … \(count)")
  }
  func end() {
    Console.status(nil)
    if !json { Console.line(count) }
  }
}

extension Advertisement {
  var line: String {
    let strength = rssi.map { "\($0) dBm" } ?? "? dBm"
    var parts = [Console.styled(peer.description, .cyan), strength.padded(8)]
    parts.append(Console.styled(name.map(printable) ?? "(no name)", name == nil ? .dim : .bold))
    if !data.serviceUUIDs.isEmpty {
      parts.append(data.serviceUUIDs.map { $0.assignedName ?? $0.description }.joined(separator: ", "))
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
    if isTruncated { line.add("truncated", true) }
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
