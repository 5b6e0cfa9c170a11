import ATT
import BindruneWire

/// Builds a `Database`, service by service, in handle order.
///
///     var builder = DatabaseBuilder()
///     builder.genericAccess(name: "Bindrune")
///     let measurement = builder.service("180D") { service in
///       service.characteristic("2A38", .read, value: [2])
///       return service.characteristic("2A37", .notify)
///     }
///     var server = Server(database: try builder.build())
///     // measurement.value and measurement.configuration are its handles
///
/// Handles are given out in ascending order; `at:` chooses one, `end:` and `reserve` keep some free. Nothing is added
/// that is not asked for, except the Client Characteristic Configuration descriptor behind the value of a characteristic
/// that notifies or indicates (Vol 3, Part G, §3.3.3.3).
public struct DatabaseBuilder: Sendable {
  var services: [PendingService] = []
  var next = 1

  public init() {}

  /// Adds a service and, through `contents`, what it includes and has. Returns what `contents` returns.
  ///
  /// `at` is the handle of the declaration, `end` the last handle of the group, if it shall be higher than needed.
  @discardableResult
  public mutating func service<Result>(
    _ uuid: BluetoothUUID, _ kind: ServiceKind = .primary, at handle: AttributeHandle? = nil,
    end: AttributeHandle? = nil, _ contents: (inout ServiceBuilder) -> Result
  ) -> Result {
    var builder = ServiceBuilder(next: next)
    let declaration: BluetoothUUID = kind == .primary ? .primaryService : .secondaryService
    builder.add(declaration, .bytes(uuid.wireForm), .readable, isFixed: true, at: handle)
    let result = contents(&builder)
    let last = max(builder.next - 1, end.map { Int($0.rawValue) } ?? 0)
    services.append(PendingService(uuid: uuid, attributes: builder.attributes, last: last, end: end))
    next = last + 1
    return result
  }
  /// Leaves `count` handles free before the next service.
  public mutating func reserve(_ count: Int) { next += count }

  /// The Generic Access service: Device Name and Appearance. Vol 3, Part C, §12. Returns the handle of the name's value.
  @discardableResult
  public mutating func genericAccess(name: String, appearance: UInt16 = 0) -> AttributeHandle {
    service(.genericAccess) { service in
      let name = service.characteristic(.deviceName, .read, value: .text(name))
      service.characteristic(.appearance, .read, value: .fixed([UInt8(appearance & 0xFF), UInt8(appearance >> 8)]))
      return name.value
    }
  }
  /// The Generic Attribute service with Service Changed. Vol 3, Part G, §7.
  @discardableResult
  public mutating func genericAttribute() -> CharacteristicHandles {
    service(.genericAttribute) { $0.characteristic(.serviceChanged, .indicate, value: .fixed([1, 0, 0xFF, 0xFF])) }
  }
}

public enum ServiceKind: Sendable, Hashable {
  case primary
  /// Found only through the services that include it. Vol 3, Part G, §2.6.2.
  case secondary
}

/// An attribute's value, to begin with.
public struct AttributeValue: Sendable, ExpressibleByArrayLiteral {
  enum Source: Sendable { case bytes([UInt8]), dynamic }
  var source: Source
  var isFixed = false
  var maximum = AttributeValue.longest

  /// Vol 3, Part F, §3.2.9: no attribute value is longer.
  public static var longest: Int { 512 }
  /// Kept by the server; clients that may write may also change its length, up to `maximum` octets.
  public static func stored(_ bytes: [UInt8] = [], upTo maximum: Int = longest) -> Self {
    Self(source: .bytes(bytes), maximum: maximum)
  }
  /// Kept by the server; always as long as `bytes`.
  public static func fixed(_ bytes: [UInt8]) -> Self {
    Self(source: .bytes(bytes), isFixed: true, maximum: bytes.count)
  }
  /// UTF-8, without a terminator.
  public static func text(_ text: String) -> Self { .stored(Array(text.utf8)) }
  /// The application is asked for each read and decides each write.
  public static var dynamic: Self { Self(source: .dynamic) }

  public init(arrayLiteral bytes: UInt8...) { self = .stored(bytes) }
  init(source: Source, isFixed: Bool = false, maximum: Int = longest) {
    self.source = source
    self.isFixed = isFixed
    self.maximum = maximum
  }
}

/// Where a characteristic came to stand.
public struct CharacteristicHandles: Sendable, Equatable {
  public let declaration: AttributeHandle
  public let value: AttributeHandle
  /// The Client Characteristic Configuration descriptor; only where the properties say notify or indicate.
  public let configuration: AttributeHandle?
}

/// The contents of one service: includes first, then characteristics, each followed by its descriptors.
public struct ServiceBuilder: Sendable {
  var attributes: [PendingAttribute] = []
  var next: Int

  init(next: Int) { self.next = next }

  /// The handle of the service's declaration: what `include` in another service takes.
  public var handle: AttributeHandle { attributes[0].handle }

  /// An Include declaration of the service that is declared at `service`, built already or later.
  @discardableResult
  public mutating func include(_ service: AttributeHandle, at handle: AttributeHandle? = nil) -> AttributeHandle {
    add(.include, .include(service), .readable, isFixed: true, at: handle)
  }

  /// A characteristic: its declaration, its value and, if it notifies or indicates, its configuration.
  ///
  /// Without `permissions` the value is open to what `properties` promise. `configuring` is what a client needs to
  /// write the configuration. Not `configured`: without that descriptor, whatever the properties promise, unless
  /// `configuration` adds it; a database that a test describes may well be wrong.
  @discardableResult
  public mutating func characteristic(
    _ uuid: BluetoothUUID, _ properties: CharacteristicProperties, value: AttributeValue = .stored(),
    permissions: AttributePermissions? = nil, configuring: AttributePermissions.Access = .open,
    configured: Bool = true, at handle: AttributeHandle? = nil, valueAt: AttributeHandle? = nil,
    configurationAt: AttributeHandle? = nil
  ) -> CharacteristicHandles {
    let declaration = add(.characteristic, .characteristic(properties, uuid), .readable, isFixed: true, at: handle)
    let permissions =
      permissions
      ?? AttributePermissions(
        read: properties.contains(.read) ? .open : .none,
        write: properties.isDisjoint(with: [.write, .writeWithoutResponse, .authenticatedSignedWrites]) ? .none : .open)
    let valueHandle = add(uuid, value, permissions, at: valueAt)
    var configuration: AttributeHandle?
    if configured, !properties.isDisjoint(with: [.notify, .indicate]) {
      configuration = self.configuration(configuring, at: configurationAt)
    }
    return CharacteristicHandles(declaration: declaration, value: valueHandle, configuration: configuration)
  }

  /// The Client Characteristic Configuration descriptor of the characteristic added last: where it shall not stand right
  /// behind the value. A client may set the bits that the characteristic's properties allow. Vol 3, Part G, §3.3.3.3.
  @discardableResult
  public mutating func configuration(
    _ configuring: AttributePermissions.Access = .open, at handle: AttributeHandle? = nil
  ) -> AttributeHandle {
    var supported = ClientCharacteristicConfiguration(), valueHandle = AttributeHandle()
    for (index, attribute) in attributes.enumerated() {
      guard case .characteristic(let properties, _) = attribute.content else { continue }
      valueHandle = attributes[index + 1].handle
      supported = []
      if properties.contains(.notify) { supported.insert(.notification) }
      if properties.contains(.indicate) { supported.insert(.indication) }
    }
    return add(
      .clientCharacteristicConfiguration, .configuration(valueHandle, supported),
      AttributePermissions(read: .open, write: configuring), isFixed: true, at: handle)
  }

  /// A descriptor of the characteristic added last.
  @discardableResult
  public mutating func descriptor(
    _ uuid: BluetoothUUID, value: AttributeValue, permissions: AttributePermissions = .readable,
    at handle: AttributeHandle? = nil
  ) -> AttributeHandle {
    add(uuid, value, permissions, at: handle)
  }
  /// Characteristic User Description. Vol 3, Part G, §3.3.3.2.
  @discardableResult
  public mutating func userDescription(_ text: String) -> AttributeHandle {
    descriptor(.characteristicUserDescription, value: .text(text))
  }
  /// Characteristic Presentation Format. Vol 3, Part G, §3.3.3.5.
  @discardableResult
  public mutating func presentationFormat(_ format: CharacteristicPresentationFormat) -> AttributeHandle {
    descriptor(.characteristicPresentationFormat, value: .fixed(format.bytes))
  }
  /// Leaves `count` handles free; they belong to the service.
  public mutating func reserve(_ count: Int) { next += count }

  @discardableResult
  private mutating func add(
    _ type: BluetoothUUID, _ value: AttributeValue, _ permissions: AttributePermissions, at handle: AttributeHandle?
  ) -> AttributeHandle {
    let content: PendingAttribute.Content =
      switch value.source {
      case .bytes(let bytes): .bytes(bytes)
      case .dynamic: .dynamic
      }
    return add(type, content, permissions, isFixed: value.isFixed, maximum: value.maximum, at: handle)
  }
  @discardableResult
  mutating func add(
    _ type: BluetoothUUID, _ content: PendingAttribute.Content, _ permissions: AttributePermissions, isFixed: Bool,
    maximum: Int = AttributeValue.longest, at handle: AttributeHandle?
  ) -> AttributeHandle {
    let raw = handle.map { Int($0.rawValue) } ?? next
    attributes.append(
      PendingAttribute(
        raw: raw, type: type, content: content, permissions: permissions, isFixed: isFixed, maximum: maximum))
    next = raw + 1
    return attributes[attributes.count - 1].handle
  }
}

struct PendingService: Sendable {
  var uuid: BluetoothUUID
  var attributes: [PendingAttribute]
  var last: Int
  var end: AttributeHandle?
}

struct PendingAttribute: Sendable {
  enum Content: Sendable {
    case bytes([UInt8])
    case dynamic
    case include(AttributeHandle)
    case characteristic(CharacteristicProperties, BluetoothUUID)
    case configuration(AttributeHandle, ClientCharacteristicConfiguration)
  }
  /// More than 0xFFFF when the handles are used up: `build` says so.
  var raw: Int
  var type: BluetoothUUID
  var content: Content
  var permissions: AttributePermissions
  var isFixed: Bool
  var maximum: Int

  var handle: AttributeHandle { AttributeHandle(rawValue: UInt16(truncatingIfNeeded: raw)) }
}

/// Why a database cannot be built. Databases may come from files, so this is an error, not a trap.
public enum DatabaseError: Error, Equatable, Sendable {
  /// More than 65,535 handles, or handle 0x0000.
  case handleOutOfRange(Int)
  /// An explicit handle is not above the one before it, or two services overlap.
  case handleNotAscending(AttributeHandle)
  /// `end` is below the service's last attribute.
  case groupEndTooLow(AttributeHandle)
  /// More than 512 octets, or more than the value's own maximum.
  case valueTooLong(AttributeHandle)
  /// No service is declared at the handle that this Include declaration names.
  case includeOfNothing(AttributeHandle)
}

// MARK: - Building

extension DatabaseBuilder {
  /// The database. Services may have been added in any order of their explicit handles.
  public func build() throws(DatabaseError) -> Database {
    var database = Database()
    var previous = 0
    for service in services.sorted(by: { $0.attributes[0].raw < $1.attributes[0].raw }) {
      for attribute in service.attributes {
        guard attribute.raw > 0, attribute.raw <= 0xFFFF else { throw .handleOutOfRange(attribute.raw) }
        guard attribute.raw > previous else { throw .handleNotAscending(attribute.handle) }
        previous = attribute.raw
      }
      if let end = service.end, Int(end.rawValue) < previous { throw .groupEndTooLow(end) }
      guard service.last <= 0xFFFF else { throw .handleOutOfRange(service.last) }
      previous = service.last
      let groups = service.groupEnds
      for (attribute, end) in zip(service.attributes, groups) {
        try database.add(attribute, groupEnd: end, value: try bytes(of: attribute, in: service))
      }
    }
    database.index()
    return database
  }

  /// The octets that `attribute` begins with.
  private func bytes(of attribute: PendingAttribute, in service: PendingService) throws(DatabaseError) -> [UInt8] {
    switch attribute.content {
    case .bytes(let bytes): return bytes
    case .dynamic, .configuration: return []
    case .characteristic(let properties, let uuid):
      var declaration = CharacteristicDeclaration()
      declaration.characteristicProperties = properties
      if let at = service.attributes.firstIndex(where: { $0.raw == attribute.raw }), at + 1 < service.attributes.count {
        declaration.characteristicValueHandle = service.attributes[at + 1].handle
      }
      declaration.characteristicUUID = uuid.shortest
      return declaration.bytes
    case .include(let handle):
      guard let included = services.first(where: { $0.attributes[0].handle == handle }) else {
        throw .includeOfNothing(attribute.handle)
      }
      var declaration = IncludeDeclaration()
      declaration.includedServiceAttributeHandle = handle
      declaration.endGroupHandle = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: included.last))
      // Vol 3, Part G, §3.2: the UUID is present only if it has 16 bits.
      return declaration.bytes + (included.uuid.shortest.count == 2 ? included.uuid.wireForm : [])
    }
  }
}

extension PendingService {
  /// For each attribute the end of the group that it opens, or its own handle. A characteristic's group ends before
  /// the next characteristic, the last one's with the service: Vol 3, Part G, §2.5.3.
  var groupEnds: [AttributeHandle] {
    var ends = attributes.map(\.handle)
    var end = last
    for i in attributes.indices.reversed() where attributes[i].type.shortest == .characteristic {
      ends[i] = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: end))
      end = attributes[i].raw - 1
    }
    ends[0] = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: last))
    return ends
  }
}

extension Database {
  mutating func add(_ pending: PendingAttribute, groupEnd: AttributeHandle, value: [UInt8]) throws(DatabaseError) {
    let maximum = pending.isFixed ? value.count : min(pending.maximum, AttributeValue.longest)
    guard value.count <= min(maximum, AttributeValue.longest) else { throw .valueTooLong(pending.handle) }
    var attribute = Attribute(
      handle: pending.handle, groupEnd: groupEnd, type: UInt16(truncatingIfNeeded: intern(pending.type)), kind: .stored,
      isFixed: pending.isFixed, permissions: pending.permissions, start: UInt32(values.count),
      count: UInt16(value.count), room: UInt16(value.count), maximum: UInt16(maximum))
    switch pending.content {
    case .dynamic: attribute.kind = .dynamic
    case .configuration(let valueHandle, let supported):
      attribute.kind = .configuration
      attribute.count = 2
      attribute.maximum = 2
      attribute.slot = UInt16(configurations.count)
      if let owner = attributes.lastIndex(where: { $0.handle == valueHandle }) {
        attributes[owner].slot = attribute.slot
      }
      configurations.append(Configuration(descriptor: pending.handle, value: valueHandle, supported: supported))
    default: break
    }
    values += value
    attributes.append(attribute)
  }
  private mutating func intern(_ uuid: BluetoothUUID) -> Int {
    if 2 * uuids.count >= hashed.count { rehash(to: max(16, 4 * uuids.count)) }
    if let index = index(of: uuid) { return index }
    uuids.append(UUIDEntry(uuid))
    enter(uuids.count - 1)
    return uuids.count - 1
  }
  private mutating func rehash(to count: Int) {
    var size = 16
    while size < count { size *= 2 }
    hashed = Array(repeating: 0, count: size)
    for index in uuids.indices { enter(index) }
  }
  private mutating func enter(_ index: Int) {
    var probe = Self.hash(uuids[index].low, uuids[index].high) & (hashed.count - 1)
    while hashed[probe] != 0 { probe = (probe + 1) & (hashed.count - 1) }
    hashed[probe] = UInt32(index + 1)
  }

  /// Makes the indexes from `attributes`.
  mutating func index() {
    positions = []
    positions.reserveCapacity(Int(lastHandle.rawValue) + 1)
    for (position, attribute) in attributes.enumerated() {
      while positions.count <= Int(attribute.handle.rawValue) { positions.append(UInt16(position)) }
    }
    var types: [[UInt16]] = Array(repeating: [], count: uuids.count)
    var services: [[UInt16]] = types
    for (position, attribute) in attributes.enumerated() {
      types[Int(attribute.type)].append(UInt16(position))
      guard isService(attribute), let uuid = BluetoothUUID(wireForm: values[attribute.range]) else { continue }
      let index = intern(uuid)
      while services.count < uuids.count { services.append([]) }
      services[index].append(UInt16(position))
    }
    byType = []
    byService = []
    for index in uuids.indices {
      if index < types.count {
        uuids[index].types = byType.count..<(byType.count + types[index].count)
        byType += types[index]
      }
      uuids[index].services = byService.count..<(byService.count + services[index].count)
      byService += services[index]
    }
  }
  private func isService(_ attribute: Attribute) -> Bool {
    let type = uuids[Int(attribute.type)].uuid
    return attribute.kind == .stored && (type == .primaryService || type == .secondaryService)
  }
}

extension WireRecord {
  /// The octets of a declaration that refers to no others.
  var bytes: [UInt8] {
    do throws(WireError) { return try encoded(from: Span<UInt8>()) } catch { return [] }
  }
}

extension BluetoothUUID {
  /// Two or sixteen octets, least significant first.
  var wireForm: [UInt8] {
    var declaration = ServiceDeclaration()
    declaration.serviceUUID = shortest
    return declaration.bytes
  }
  init?(wireForm bytes: ArraySlice<UInt8>) {
    let bytes = Array(bytes)
    do throws(WireError) { self = try Decoder.decode(ServiceDeclaration.self, bytes.span).serviceUUID } catch {
      return nil
    }
  }
}
