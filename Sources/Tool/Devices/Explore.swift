import BindruneATT
import ArgumentParser
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

struct Explore: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Connect to a device, discover all of its GATT database, and read what is readable.",
    discussion: """
      A value that cannot be read is shown with the device's error. When the device changes its services meanwhile, \
      explore says so and begins again: what it printed before no longer holds. Status 0 when discovery completed.
      """)

  @OptionGroup var device: DeviceOptions
  @Flag(help: "Print one JSON object per service, include, characteristic and descriptor.")
  var json = false

  func run() async throws {
    let progress = Progress(isShown: !json)
    try await device.withLink(progress) { link, peer in
      var printer = DatabasePrinter(json: json), lost: BluetoothError?, changes = 0
      while true {
        progress("discovering the services of \(peer)")
        printer = DatabasePrinter(json: json)
        do throws(BluetoothError) {
          try await show(link, &printer, progress, &lost)
          break
        } catch {
          // A device that never stops changing them is no reason to go on for ever.
          guard error.code == .servicesChanged, changes < Self.mostChanges else { throw error }
        }
        changes += 1
        progress(nil)
        printer.changed()
      }
      progress(nil)
      if let lost { Console.warn(lost.diagnostics) }
      printer.done(peer: peer, mtu: await link.mtu)
      progress("disconnecting")
    }
  }
  private static var mostChanges: Int { 8 }

  /// Discovers and prints everything. Throws `.servicesChanged` as soon as the server's database is no longer the one
  /// that was discovered: its handles may have another meaning, Vol 3, Part G, §2.5.2.
  private func show(
    _ link: Link, _ printer: inout DatabasePrinter, _ progress: Progress, _ lost: inout BluetoothError?
  ) async throws(BluetoothError) {
    let database = try await link.discoverAll()
    for service in database.services {
      printer.show(service)
      for include in database.includes(of: service) { printer.show(include) }
      for characteristic in database.characteristics(of: service) {
        let isReadable = characteristic.properties.contains(.read)
        let value = isReadable ? try await read(link, characteristic.valueHandle, progress, &lost) : nil
        try await check(database, of: link)
        printer.show(characteristic, value)
        for descriptor in database.descriptors(of: characteristic) {
          let value = try await read(link, descriptor.handle, progress, &lost)
          try await check(database, of: link)
          printer.show(descriptor, value)
        }
      }
    }
    try await check(database, of: link)
  }
  private func check(_ database: RemoteDatabase, of link: Link) async throws(BluetoothError) {
    // Without a link the next request says so.
    guard let current = await link.host.remoteDatabase(of: link.id) else { return }
    guard current.isComplete, current.services == database.services, current.includes == database.includes,
      current.characteristics == database.characteristics, current.descriptors == database.descriptors
    else { throw .servicesChanged }
  }
  /// The value, or the error of this attribute. An error of the link ends the exploration. `lost`: becomes the
  /// first error of a device that no longer has the key of its bond.
  private func read(
    _ link: Link, _ handle: AttributeHandle, _ progress: Progress, _ lost: inout BluetoothError?
  ) async throws(BluetoothError) -> ReadValue {
    progress("reading attribute \(handle.text)")
    do throws(BluetoothError) {
      return .value(try await link.read(handle))
    } catch {
      guard error.code == .att || error.code == .protocolViolation else { throw error }
      if error.status == .pinOrKeyMissing, lost == nil { lost = error }
      return .unreadable(error)
    }
  }
}

/// The result of reading an attribute.
enum ReadValue {
  case value([UInt8])
  case unreadable(BluetoothError)
}

/// Prints a database as a tree, or as one JSON object per line.
struct DatabasePrinter {
  let json: Bool
  private var counts = (services: 0, characteristics: 0, descriptors: 0)
  init(json: Bool) { self.json = json }

  private func named(_ uuid: BluetoothUUID?) -> String {
    guard let uuid else { return "(unknown)" }
    return uuid.assignedName.map { "\(Console.styled($0, .bold)) \(uuid)" } ?? Console.styled(uuid.description, .bold)
  }
  private func handle(_ handle: AttributeHandle) -> String { Console.styled(hexDigits(handle.wire, 4), .dim) }

  func changed() {
    if json { return Console.line(JSONLine(event: "services_changed")) }
    Console.line("The device has changed its services: exploring it again.")
  }
  mutating func show(_ service: RemoteService) {
    counts.services += 1
    if json {
      var line = JSONLine(event: "service")
      line.add("uuid", service.uuid.description)
      line.add("name", service.uuid.assignedName)
      line.add("start", Int(service.handle.rawValue))
      line.add("end", Int(service.endHandle.rawValue))
      line.add("primary", service.isPrimary)
      return Console.line(line)
    }
    Console.line("\(handle(service.handle)) \(service.isPrimary ? "" : "(secondary) ")\(named(service.uuid))")
  }
  mutating func show(_ include: RemoteInclude) {
    if json {
      var line = JSONLine(event: "include")
      line.add("handle", Int(include.handle.rawValue))
      line.add("uuid", include.uuid?.description)
      line.add("start", Int(include.serviceHandle.rawValue))
      line.add("end", Int(include.endHandle.rawValue))
      return Console.line(line)
    }
    Console.line("\(handle(include.handle)) ├ includes \(handle(include.serviceHandle)) \(named(include.uuid))")
  }
  mutating func show(_ characteristic: RemoteCharacteristic, _ value: ReadValue?) {
    counts.characteristics += 1
    if json {
      var line = JSONLine(event: "characteristic")
      line.add("uuid", characteristic.uuid.description)
      line.add("name", characteristic.uuid.assignedName)
      line.add("declaration", Int(characteristic.handle.rawValue))
      line.add("value_handle", Int(characteristic.valueHandle.rawValue))
      line.add("properties", characteristic.properties.names)
      line.add(value, characteristic.uuid)
      return Console.line(line)
    }
    let properties = characteristic.properties.names.joined(separator: ", ")
    Console.line(
      "\(handle(characteristic.handle)) ├ \(named(characteristic.uuid)) [\(properties)]\(text(of: value, characteristic.uuid))"
    )
  }
  mutating func show(_ descriptor: RemoteDescriptor, _ value: ReadValue?) {
    counts.descriptors += 1
    if json {
      var line = JSONLine(event: "descriptor")
      line.add("uuid", descriptor.uuid.description)
      line.add("name", descriptor.uuid.assignedName)
      line.add("handle", Int(descriptor.handle.rawValue))
      line.add(value, descriptor.uuid)
      return Console.line(line)
    }
    Console.line("\(handle(descriptor.handle)) │ └ \(named(descriptor.uuid))\(text(of: value, descriptor.uuid))")
  }
  func done(peer: PeerAddress, mtu: Int) {
    if json {
      var line = JSONLine(event: "done")
      line.add("address", peer.address.text)
      line.add("mtu", mtu)
      line.add("services", counts.services)
      line.add("characteristics", counts.characteristics)
      line.add("descriptors", counts.descriptors)
      return Console.line(line)
    }
    Console.line(
      """
      \(counted(counts.services, "service")), \(counted(counts.characteristics, "characteristic")), \
      \(counted(counts.descriptors, "descriptor")); ATT_MTU \(mtu)
      """
    )
  }
  private func text(of value: ReadValue?, _ uuid: BluetoothUUID) -> String {
    switch value {
    case nil: ""
    case .value(let bytes)?: " = " + (uuid.text(of: bytes.span).map { "\($0) (\(readable(bytes)))" } ?? readable(bytes))
    case .unreadable(let error)?: " " + Console.styled(error.attError?.description ?? error.description, .yellow)
    }
  }
}

extension JSONLine {
  mutating func add(_ value: ReadValue?, _ uuid: BluetoothUUID) {
    switch value {
    case nil: break
    case .value(let bytes)?:
      add("value", hexText(bytes))
      if let text = uuid.text(of: bytes.span) { add("text", text) }
    case .unreadable(let error)?:
      var object = JSONLine()
      object.add("code", error.attError.map { "0x" + hexDigits($0.wire, 2) })
      object.add("name", error.attError.map { attError in attError.name.map { "\($0)" } } ?? error.description)
      add("error", object)
    }
  }
}

extension CharacteristicProperties {
  /// In the order of the bits. Vol 3, Part G, §3.3.1.1.
  var names: [String] {
    let all: [(CharacteristicProperties, String)] = [
      (.broadcast, "broadcast"), (.read, "read"), (.writeWithoutResponse, "write-without-response"), (.write, "write"),
      (.notify, "notify"), (.indicate, "indicate"), (.authenticatedSignedWrites, "authenticated-signed-writes"),
      (.extendedProperties, "extended-properties"),
    ]
    return all.filter { contains($0.0) }.map(\.1)
  }
}
