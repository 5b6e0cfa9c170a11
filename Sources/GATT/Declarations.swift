import BindruneATT
import BindruneWire

/// What can be done with a characteristic's value. Vol 3, Part G, §3.3.1.1.
///
/// It announces to the client what it may try; `AttributePermissions` decides the server's answer.
public struct CharacteristicProperties: OptionSet, OpenNumber {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Broadcast in advertising, if the Server Characteristic Configuration says so.
  @inlinable public static var broadcast: Self { Self(rawValue: 0x01) }
  @inlinable public static var read: Self { Self(rawValue: 0x02) }
  @inlinable public static var writeWithoutResponse: Self { Self(rawValue: 0x04) }
  @inlinable public static var write: Self { Self(rawValue: 0x08) }
  /// Needs a Client Characteristic Configuration descriptor.
  @inlinable public static var notify: Self { Self(rawValue: 0x10) }
  /// Needs a Client Characteristic Configuration descriptor.
  @inlinable public static var indicate: Self { Self(rawValue: 0x20) }
  @inlinable public static var authenticatedSignedWrites: Self { Self(rawValue: 0x40) }
  /// Needs a Characteristic Extended Properties descriptor.
  @inlinable public static var extendedProperties: Self { Self(rawValue: 0x80) }

  /// The permission to write a value that has these properties and no permissions of its own.
  public var writeAccess: AttributePermissions.Access {
    if !isDisjoint(with: [.write, .writeWithoutResponse]) { return .open }
    return contains(.authenticatedSignedWrites) ? .open.orSigned : .none
  }
}

/// Value of the Characteristic Extended Properties descriptor (0x2900). Vol 3, Part G, §3.3.3.1.
public struct CharacteristicExtendedProperties: OptionSet, OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }

  @inlinable public static var reliableWrite: Self { Self(rawValue: 0x0001) }
  @inlinable public static var writableAuxiliaries: Self { Self(rawValue: 0x0002) }
}

/// Value of the Client Characteristic Configuration descriptor (0x2902), one per client. Vol 3, Part G, §3.3.3.3.
public struct ClientCharacteristicConfiguration: OptionSet, OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }

  @inlinable public static var notification: Self { Self(rawValue: 0x0001) }
  @inlinable public static var indication: Self { Self(rawValue: 0x0002) }
}

/// Value of the Server Characteristic Configuration descriptor (0x2903), one for all clients. Vol 3, Part G, §3.3.3.4.
public struct ServerCharacteristicConfiguration: OptionSet, OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }

  @inlinable public static var broadcast: Self { Self(rawValue: 0x0001) }
}

/// Value of a Primary Service (0x2800) or Secondary Service (0x2801) declaration. Vol 3, Part G, §3.1.
public struct ServiceDeclaration: WireRecord {
  public var serviceUUID = BluetoothUUID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.uuid("Service UUID", &serviceUUID)
  }
}

/// Value of an Include declaration (0x2802). Vol 3, Part G, §3.2.
///
/// It carries the UUID only if that has 16 bits; a client reads any other from the included service's own declaration.
public struct IncludeDeclaration: WireRecord {
  public var includedServiceAttributeHandle = AttributeHandle()
  public var endGroupHandle = AttributeHandle()
  /// Two octets or none.
  public var serviceUUID = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Included Service Attribute Handle", &includedServiceAttributeHandle)
    try visit.value("End Group Handle", &endGroupHandle)
    try visit.octets("Service UUID", &serviceUUID)
  }
  /// The UUID where the declaration carries one; `nil` also for a length that the Specification does not know.
  @inlinable public func uuid(in packet: Span<UInt8>) -> BluetoothUUID? {
    guard serviceUUID.count == 2 else { return nil }
    return .short(UInt16(serviceUUID.byte(0, in: packet)) | UInt16(serviceUUID.byte(1, in: packet)) << 8)
  }
}

/// Value of a Characteristic declaration (0x2803). Vol 3, Part G, §3.3.1.
public struct CharacteristicDeclaration: WireRecord {
  public var characteristicProperties = CharacteristicProperties()
  public var characteristicValueHandle = AttributeHandle()
  public var characteristicUUID = BluetoothUUID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Characteristic Properties", &characteristicProperties)
    try visit.value("Characteristic Value Handle", &characteristicValueHandle)
    try visit.uuid("Characteristic UUID", &characteristicUUID)
  }
}

/// Value of a Characteristic Presentation Format descriptor (0x2904). Vol 3, Part G, §3.3.3.5.
public struct CharacteristicPresentationFormat: WireRecord {
  /// Assigned Numbers, §2.4.1: 0x04 is an unsigned 8-bit integer, 0x19 a UTF-8 string.
  public var format: UInt8 = 0
  /// The value is the number × 10^exponent.
  public var exponent: Int8 = 0
  public var unit = UUID16()
  public var nameSpace: UInt8 = 0
  public var description = UUID16()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Format", &format)
    try visit.value("Exponent", &exponent)
    try visit.value("Unit", &unit)
    try visit.value("Name Space", &nameSpace)
    try visit.value("Description", &description)
  }
}

/// Value of the Peripheral Preferred Connection Parameters. Vol 3, Part C, §12.3.
public struct PreferredConnectionParameters: WireRecord {
  /// Units of 1.25 ms, 6 … 3,200; 0xFFFF: no preference.
  public var minimumConnectionInterval: UInt16 = 0xFFFF
  public var maximumConnectionInterval: UInt16 = 0xFFFF
  /// Connection events that the peripheral may sleep through, 0 … 499.
  public var peripheralLatency: UInt16 = 0
  /// Units of 10 ms, 10 … 3,200; 0xFFFF: no preference.
  public var connectionSupervisionTimeoutMultiplier: UInt16 = 0xFFFF
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Minimum Connection Interval", &minimumConnectionInterval)
    try visit.value("Maximum Connection Interval", &maximumConnectionInterval)
    try visit.value("Peripheral Latency", &peripheralLatency)
    try visit.value("Connection Supervision Timeout Multiplier", &connectionSupervisionTimeoutMultiplier)
  }
}

/// What GATT itself names. Assigned Numbers, §3.4 … §3.8; Vol 3, Part G, §3.
extension BluetoothUUID {
  @inlinable public static var genericAccess: Self { .short(0x1800) }
  @inlinable public static var genericAttribute: Self { .short(0x1801) }

  @inlinable public static var primaryService: Self { .short(0x2800) }
  @inlinable public static var secondaryService: Self { .short(0x2801) }
  @inlinable public static var include: Self { .short(0x2802) }
  @inlinable public static var characteristic: Self { .short(0x2803) }

  @inlinable public static var characteristicExtendedProperties: Self { .short(0x2900) }
  @inlinable public static var characteristicUserDescription: Self { .short(0x2901) }
  @inlinable public static var clientCharacteristicConfiguration: Self { .short(0x2902) }
  @inlinable public static var serverCharacteristicConfiguration: Self { .short(0x2903) }
  @inlinable public static var characteristicPresentationFormat: Self { .short(0x2904) }
  @inlinable public static var characteristicAggregateFormat: Self { .short(0x2905) }

  @inlinable public static var deviceName: Self { .short(0x2A00) }
  @inlinable public static var appearance: Self { .short(0x2A01) }
  @inlinable public static var peripheralPreferredConnectionParameters: Self { .short(0x2A04) }
  @inlinable public static var serviceChanged: Self { .short(0x2A05) }
  @inlinable public static var centralAddressResolution: Self { .short(0x2AA6) }
  @inlinable public static var clientSupportedFeatures: Self { .short(0x2B29) }
  @inlinable public static var databaseHash: Self { .short(0x2B2A) }
  @inlinable public static var serverSupportedFeatures: Self { .short(0x2B3A) }
}
