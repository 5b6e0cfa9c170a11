import ArgumentParser
import Bindrune
import BindruneWire
import BindruneGAP

struct ScanCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "scan", abstract: "Show the devices that advertise.",
    discussion: """
      On a terminal, shows a table and keeps it up to date, near devices first. In a pipe, prints a line for each \
      device when it is first heard, and again when its data change; with --duplicates, for each of its \
      advertisements. Shows an advertisement and its scan response together. A device must match every kind of filter \
      that is given.
      """)

  @OptionGroup var options: HostOptions
  @Option(
    help: ArgumentHelp(
      "Only devices that list this service or may have it in their overflow area; if repeated, one of them is enough.",
      valueName: "uuid"), transform: BluetoothUUID.init(argument:))
  var service: [BluetoothUUID] = []
  @Option(help: "Only devices with this name, or with this beginning of a name if it ends with *.")
  var name: String?
  @Option(
    parsing: .unconditional,
    help: ArgumentHelp("Only devices heard with at least this strength, for example -70.", valueName: "dBm"))
  var rssi: Int8?
  @Option(
    help: ArgumentHelp("Only devices with manufacturer data of this company, as 0x004C or 76.", valueName: "company"))
  var manufacturer: Number16?
  @Flag(help: "Show every advertisement, not only what is new.")
  var duplicates = false
  @Flag(help: "Only listen: request no scan responses.")
  var passive = false
  @Option(help: ArgumentHelp("How long to scan; by default until interrupted.", valueName: "seconds"))
  var duration: Seconds?
  @Flag(help: "Print one JSON object per line.")
  var json = false

  private var filter: ScanFilter {
    ScanFilter(
      services: service,
      name: name.map { ScanFilter.Name(argument: $0) }, minimumRSSI: rssi,
      manufacturer: manufacturer.map { ScanFilter.Manufacturer(companyIdentifier: $0.value) })
  }

  func run() async throws {
    let parameters = ScanParameters(isActive: !passive), filter = filter
    if json || !Screen.isPossible {
      let lines = DeviceLines(json: json, showsDuplicates: duplicates)
      Interruption.watchOutput()
      try await BluetoothHost.using(options) { host in
        try await untilInterrupted(duration) {
          for try await advertisement in host.scan(parameters, filter: filter) {
            await lines.show(advertisement)
          }
        }
      }
      return await lines.end()
    }
    let table = LiveTable(title: "scanning \(try options.choice().spec)".printable())
    do {
      try await BluetoothHost.using(options) { host in
        try await untilInterrupted(duration) {
          try await table.live(on: host.scan(parameters, filter: filter))
        }
      }
    } catch {
      await table.end()
      throw error
    }
    await table.end()
  }
}

/// Prints what a scan finds into a pipe: one line per device, and another when its data change.
private actor DeviceLines {
  private var devices: [PeerAddress: AdvertisingData] = [:]
  private let json: Bool
  private let showsDuplicates: Bool
  init(json: Bool, showsDuplicates: Bool) {
    self.json = json
    self.showsDuplicates = showsDuplicates
  }

  func show(_ advertisement: Advertisement) {
    let isNew = devices[advertisement.address] != advertisement.data
    if devices.count < DeviceTable.capacity || devices[advertisement.address] != nil {
      devices[advertisement.address] = advertisement.data
    }
    guard isNew || showsDuplicates else { return }
    if json { Console.line(advertisement.json) } else { Console.line(advertisement.line) }
  }
  func end() {
    if !json { Console.line(DeviceTable.devices(devices.count)) }
  }
}

/// Shows what a scan finds on a terminal: a picture, drawn four times a second; the table remains at the end.
private actor LiveTable {
  private var table = DeviceTable()
  private let title: String
  private let start = ContinuousClock().now
  private var now: Duration { ContinuousClock().now - start }
  init(title: String) { self.title = title }

  nonisolated func live(on scan: AdvertisementSequence) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { for try await advertisement in scan { await self.heard(advertisement) } }
      group.addTask {
        while true {
          await self.draw()
          try await Task.sleep(for: .milliseconds(250))
        }
      }
      defer { group.cancelAll() }
      try await group.next()
    }
  }
  private func heard(_ advertisement: Advertisement) {
    table.heard(
      advertisement.address, advertisement.data, rssi: advertisement.rssi.map(Int.init),
      overflow: advertisement.matchedOverflow,
      at: now
    )
  }
  private func draw() {
    let size = Screen.size
    Screen.draw(table.picture(title: title, in: size, at: now, hasColour: Console.hasColour), in: size)
  }
  /// Prints the whole table, which the user can scroll.
  func end() {
    Screen.close()
    let size = Screen.Size(columns: Screen.size.columns, rows: table.count + 1)
    for line in table.table(in: size, at: now, hasColour: Console.hasColour) { Console.line(line) }
    Console.line(DeviceTable.devices(table.count))
  }
}

extension Advertisement {
  var line: String {
    let strength = rssi.map { "\($0) dBm" } ?? "? dBm"
    var parts = [Console.styled(peer.description, .cyan), strength.padded(8)]
    parts.append(Console.styled(name?.printable() ?? "(no name)", name == nil ? .dim : .bold))
    let found = DeviceTable.names(data.serviceUUIDs, overflow: matchedOverflow)
    if !found.isEmpty { parts.append(found.joined(separator: ", ")) }
    for manufacturer in data.manufacturerDataList {
      parts.append(
        "manufacturer " + hexText(manufacturer.prefix(2).reversed()) + ": " + hexText(manufacturer.dropFirst(2)))
    }
    for entry in data.serviceData { parts.append("\(entry.uuid): \(hexText(entry.data))") }
    if let fault = data.fault { parts.append(Console.styled("(\(fault))", .yellow)) }
    return parts.joined(separator: "  ")
  }
  var json: JSONLine {
    var line = JSONLine(event: "advertisement")
    line.add("address", address.address.text)
    line.add("address_type", address.isRandom ? "random" : "public")
    line.add("rssi", rssi.map(Int.init))
    line.add("connectable", isConnectable)
    line.add("scan_response", hasScanResponse)
    if isTruncated { line.add("truncated", true) }
    line.add("name", name)
    line.add("services", data.serviceUUIDs.map(\.description))
    line.add("overflow", matchedOverflow.map(\.description))
    if let flags = data.flags { line.add("flags", Int(flags)) }
    if let power = data.txPowerLevel { line.add("tx_power", Int(power)) }
    // Core Specification Supplement, Part A, §1.4 and §1.11: there may be several. These two keys have the first, or
    // the first of each UUID; an object names no member twice.
    if let manufacturer = data.manufacturerData { line.add("manufacturer_data", hexText(manufacturer)) }
    if data.manufacturerDataList.count > 1 {
      line.add("manufacturer_data_all", data.manufacturerDataList.map { hexText($0) })
    }
    if !data.serviceData.isEmpty {
      var entries = JSONLine(), seen: Set<String> = []
      for entry in data.serviceData where seen.insert(entry.uuid.description).inserted {
        entries.add(entry.uuid.description, hexText(entry.data))
      }
      line.add("service_data", entries)
      if seen.count < data.serviceData.count {
        line.add(
          "service_data_all",
          data.serviceData.map { entry in
            var object = JSONLine()
            object.add("uuid", entry.uuid.description)
            object.add("data", hexText(entry.data))
            return object
          })
      }
    }
    if let fault = data.fault { line.add("malformed", "\(fault)") }
    return line
  }
}
