import BindruneATT
import BindruneWire

/// Builds a `Database`, or services to be inserted into one, service by service.
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
/// Handles ascend; `at:` chooses one, `end:` and `reserve` keep some free. The builder adds nothing unasked except the
/// Client Characteristic Configuration descriptor after the value of a characteristic that notifies or indicates (Vol
/// 3, Part G, §3.3.3.3).
public struct DatabaseBuilder: Sendable {
  var services: [PendingService] = []
  var next = 1

  public init() {}
  /// For services to insert into `database`: their handles follow all that it has ever assigned, unless `at:` puts them
  /// into a gap.
  public init(after database: borrowing Database) { next = database.lastReserved + 1 }
  /// The same for one service of `count` attributes. When the handles after all others are used up, the service gets
  /// handles of removed services; Service Changed informs connected clients. Vol 3, Part G, §2.5.2.
  public init(after database: borrowing Database, for count: Int) {
    self.init(after: database)
    if next + count - 1 > 0xFFFF, let gap = database.gap(of: count) { next = gap }
  }

  /// Adds a service and, through `contents`, its includes and characteristics. Returns what `contents` returns.
  ///
  /// `at` is the handle of the declaration, `end` the last handle of the group, if it must be higher than needed.
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

  /// The Generic Access service. Vol 3, Part C, §12. Returns the handle of the name's value.
  ///
  /// `preferredParameters`: the connection parameters that the peripheral prefers. `resolvesCentralAddresses`: a
  /// directed advertisement may contain this central's resolvable private address.
  @discardableResult
  public mutating func genericAccess(
    name: String, appearance: UInt16 = 0, preferredParameters: PreferredConnectionParameters? = nil,
    resolvesCentralAddresses: Bool? = nil
  ) -> AttributeHandle {
    service(.genericAccess) { service in
      let name = service.characteristic(.deviceName, .read, value: .text(name))
      service.characteristic(.appearance, .read, value: .fixed([UInt8(appearance & 0xFF), UInt8(appearance >> 8)]))
      if let preferredParameters {
        service.characteristic(
          .peripheralPreferredConnectionParameters, .read, value: .fixed(preferredParameters.bytes))
      }
      if let resolvesCentralAddresses {
        service.characteristic(.centralAddressResolution, .read, value: .fixed([resolvesCentralAddresses ? 1 : 0]))
      }
      return name.value
    }
  }
  /// The Generic Attribute service. Vol 3, Part G, §7. Returns the handles of Service Changed.
  ///
  /// With `robustCaching`, also Client Supported Features and Database Hash: clients may keep what they have
  /// discovered, and learn when it changes. `serverFeatures` are the octets of Server Supported Features; nil omits the
  /// characteristic, which means that the server has none of the features.
  @discardableResult
  public mutating func genericAttribute(
    robustCaching: Bool = true, serverFeatures: [UInt8]? = nil
  ) -> CharacteristicHandles {
    service(.genericAttribute) { service in
      let changed = service.characteristic(.serviceChanged, .indicate, value: .fixed([1, 0, 0xFF, 0xFF]))
      if robustCaching {
        service.characteristic(.clientSupportedFeatures, [.read, .write], value: .clientSupportedFeatures)
        service.characteristic(.databaseHash, .read, value: .databaseHash)
      }
      if let serverFeatures {
        service.characteristic(.serverSupportedFeatures, .read, value: .fixed(serverFeatures))
      }
      return changed
    }
  }
}

public enum ServiceKind: Sendable, Hashable {
  case primary
  /// Found only through the services that include it. Vol 3, Part G, §2.6.2.
  case secondary
}

/// An attribute's initial value.
public struct AttributeValue: Sendable, ExpressibleByArrayLiteral {
  enum Source: Sendable { case bytes([UInt8]), dynamic, databaseHash, clientSupportedFeatures }
  var source: Source
  var isFixed = false
  var maximum = AttributeValue.longest

  /// Vol 3, Part F, §3.2.9: no attribute value is longer.
  public static var longest: Int { 512 }
  /// Stored by the server; clients with write permission may also change its length, up to `maximum` octets.
  public static func stored(_ bytes: [UInt8] = [], upTo maximum: Int = longest) -> Self {
    Self(source: .bytes(bytes), maximum: maximum)
  }
  /// Stored by the server; always as long as `bytes`.
  public static func fixed(_ bytes: [UInt8]) -> Self {
    Self(source: .bytes(bytes), isFixed: true, maximum: bytes.count)
  }
  /// UTF-8, without a terminator.
  public static func text(_ text: String) -> Self { .stored(Array(text.utf8)) }
  /// The application answers each read and decides each write.
  public static var dynamic: Self { Self(source: .dynamic) }
  /// The Database Hash, which the server computes whenever services change. Vol 3, Part G, §7.3.
  public static var databaseHash: Self { Self(source: .databaseHash) }
  /// The Client Supported Features: each client has its own, and cannot clear a bit that it has set. Vol 3, Part G,
  /// §7.2.
  public static var clientSupportedFeatures: Self { Self(source: .clientSupportedFeatures) }

  public init(arrayLiteral bytes: UInt8...) { self = .stored(bytes) }
  init(source: Source, isFixed: Bool = false, maximum: Int = longest) {
    self.source = source
    self.isFixed = isFixed
    self.maximum = maximum
  }
}

/// The handles that a characteristic was given.
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

  /// The handle of the service's declaration, for `include` in another service.
  public var handle: AttributeHandle { attributes[0].handle }

  /// An Include declaration of the service declared at `service`, which may be built before or after.
  @discardableResult
  public mutating func include(_ service: AttributeHandle, at handle: AttributeHandle? = nil) -> AttributeHandle {
    add(.include, .include(service), .readable, isFixed: true, at: handle)
  }

  /// A characteristic: its declaration, its value and, if it notifies or indicates, its configuration.
  ///
  /// Without `permissions` the value allows what `properties` announce. `configuring` is the access needed to write the
  /// configuration; by default the access needed to read the value, so that a client is asked to pair when it
  /// subscribes instead of waiting in vain (Vol 3, Part C, §10.3.1.1). `configured: false` omits that descriptor
  /// whatever the properties announce, unless `configuration` adds it: a conformance test may describe an incorrect
  /// database.
  @discardableResult
  public mutating func characteristic(
    _ uuid: BluetoothUUID, _ properties: CharacteristicProperties, value: AttributeValue = .stored(),
    permissions: AttributePermissions? = nil, configuring: AttributePermissions.Access? = nil,
    configured: Bool = true, at handle: AttributeHandle? = nil, valueAt: AttributeHandle? = nil,
    configurationAt: AttributeHandle? = nil
  ) -> CharacteristicHandles {
    let declaration = add(.characteristic, .characteristic(properties, uuid), .readable, isFixed: true, at: handle)
    let permissions =
      permissions
      ?? AttributePermissions(
        read: properties.contains(.read) ? .open : .none,
        write: properties.writeAccess)
    let valueHandle = add(uuid, value, permissions, at: valueAt)
    var configuration: AttributeHandle?
    if configured, !properties.isDisjoint(with: [.notify, .indicate]) {
      configuration = self.configuration(configuring, at: configurationAt)
    }
    return CharacteristicHandles(declaration: declaration, value: valueHandle, configuration: configuration)
  }

  /// The Client Characteristic Configuration descriptor of the characteristic added last, for a place other than
  /// directly after the value. A client may set the bits that the characteristic's properties allow. Vol 3, Part G,
  /// §3.3.3.3.
  @discardableResult
  public mutating func configuration(
    _ configuring: AttributePermissions.Access? = nil, at handle: AttributeHandle? = nil
  ) -> AttributeHandle {
    var supported = ClientCharacteristicConfiguration(), valueHandle = AttributeHandle(), reading = configuring
    for (index, attribute) in attributes.enumerated() {
      guard case .characteristic(let properties, _) = attribute.content else { continue }
      valueHandle = attributes[index + 1].handle
      reading = attributes[index + 1].permissions.read
      supported = []
      if properties.contains(.notify) { supported.insert(.notification) }
      if properties.contains(.indicate) { supported.insert(.indication) }
    }
    return add(
      .clientCharacteristicConfiguration, .configuration(valueHandle, supported),
      AttributePermissions(read: .open, write: configuring ?? reading.flatMap { $0.isPermitted ? $0 : nil } ?? .open),
      isFixed: true, at: handle)
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
  /// Leaves `count` handles of the service free.
  public mutating func reserve(_ count: Int) { next += count }

  @discardableResult
  private mutating func add(
    _ type: BluetoothUUID, _ value: AttributeValue, _ permissions: AttributePermissions, at handle: AttributeHandle?
  ) -> AttributeHandle {
    let content: PendingAttribute.Content =
      switch value.source {
      case .bytes(let bytes): .bytes(bytes)
      case .dynamic: .dynamic
      case .databaseHash: .databaseHash
      case .clientSupportedFeatures: .clientSupportedFeatures
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
    case databaseHash
    case clientSupportedFeatures
    case include(AttributeHandle)
    case characteristic(CharacteristicProperties, BluetoothUUID)
    case configuration(AttributeHandle, ClientCharacteristicConfiguration)
  }
  /// May exceed 0xFFFF when the handles are used up: `build` reports it.
  var raw: Int
  var type: BluetoothUUID
  var content: Content
  var permissions: AttributePermissions
  var isFixed: Bool
  var maximum: Int

  var handle: AttributeHandle { AttributeHandle(rawValue: UInt16(truncatingIfNeeded: raw)) }
}

/// Why a database cannot be built. An error, not a trap, because databases may come from files.
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
  /// No service is declared at this handle.
  case noSuchService(AttributeHandle)
  /// The service cannot be removed: this Include declaration names it.
  case includedBy(AttributeHandle)
  /// The service cannot be removed: clients depend on the handles of its values. Vol 3, Part G, §7.1, §7.2.
  case permanentService(AttributeHandle)
}

extension DatabaseError: CustomStringConvertible {
  /// The cause, and the cure after a semicolon where there is one. Half a sentence, without a full stop.
  public var description: String {
    switch self {
    case .handleOutOfRange(let handle) where handle > 0xFFFF: "all 65,535 handles are in use; remove services"
    case .handleOutOfRange(let handle): "\(handle) is no handle; choose one from 1 to 65,535"
    case .handleNotAscending(let handle):
      "handle \(handle.text) is not above the one before it; declare attributes in the order of their handles"
    case .groupEndTooLow(let handle):
      "the service ends at \(handle.text), below its last attribute; give it a higher end"
    case .valueTooLong(let handle):
      "the value of attribute \(handle.text) is longer than its maximum or than 512 octets; shorten it"
    case .includeOfNothing(let handle):
      "the included service \(handle.text) does not exist; declare it first"
    case .noSuchService(let handle): "there is no service at \(handle.text)"
    case .includedBy(let handle):
      "the service is included by the declaration at \(handle.text); remove that service first, or its includes too"
    case .permanentService(let handle):
      "the service at \(handle.text) is permanent, because clients remember its handles"
    }
  }
}
