// The sets of numbers, with Apple's raw values. Apple may add to them, and code written for Apple's says what then
// (`@unknown default`): `nonexhaustive` keeps that from being called superfluous here.

/// The state of a manager.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBManagerState: Int, Sendable {
  /// Nothing is known yet; an update is imminent.
  case unknown = 0
  /// The connection with the adapter was lost for a moment; an update is imminent.
  case resetting = 1
  /// There is no Bluetooth Low Energy here.
  case unsupported = 2
  /// The app may not use Bluetooth.
  case unauthorized = 3
  case poweredOff = 4
  case poweredOn = 5
}
/// Replaced by `CBManagerState`, with the same numbers.
@available(*, deprecated, message: "use CBManagerState")
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBCentralManagerState: Int, Sendable {
  case unknown = 0
  case resetting = 1
  case unsupported = 2
  case unauthorized = 3
  case poweredOff = 4
  case poweredOn = 5
}
/// Replaced by `CBManagerState`, with the same numbers.
@available(*, deprecated, message: "use CBManagerState")
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBPeripheralManagerState: Int, Sendable {
  case unknown = 0
  case resetting = 1
  case unsupported = 2
  case unauthorized = 3
  case poweredOff = 4
  case poweredOn = 5
}

/// Whether the app may use Bluetooth.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBManagerAuthorization: Int, Sendable {
  case notDetermined = 0
  case restricted = 1
  case denied = 2
  case allowedAlways = 3
}
@available(*, deprecated, renamed: "CBManagerAuthorization")
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBPeripheralManagerAuthorizationStatus: Int, Sendable {
  case notDetermined = 0
  case restricted = 1
  case denied = 2
  case authorized = 3
}

/// The state of a peripheral's link.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBPeripheralState: Int, Sendable {
  case disconnected = 0
  case connecting = 1
  case connected = 2
  case disconnecting = 3
}

#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBCharacteristicWriteType: Int, Sendable {
  /// The peripheral answers whether it has written the value.
  case withResponse = 0
  /// Best effort, without a result.
  case withoutResponse = 1
}

/// How quickly a link answers, and how much it lets the devices sleep.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBPeripheralManagerConnectionLatency: Int, Sendable {
  case low = 0
  case medium = 1
  case high = 2
}

/// Of iOS alone: `CBCentralManager.registerForConnectionEvents`.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum CBConnectionEvent: Int, Sendable {
  case peerDisconnected = 0
  case peerConnected = 1
}

/// The operations that a characteristic's value supports. Core Specification, Vol 3, Part G, §3.3.1.1; the last two are
/// Apple's own.
public struct CBCharacteristicProperties: OptionSet, Sendable {
  public let rawValue: UInt
  public init(rawValue: UInt) { self.rawValue = rawValue }
  public static let broadcast = Self(rawValue: 0x01)
  public static let read = Self(rawValue: 0x02)
  public static let writeWithoutResponse = Self(rawValue: 0x04)
  public static let write = Self(rawValue: 0x08)
  public static let notify = Self(rawValue: 0x10)
  public static let indicate = Self(rawValue: 0x20)
  public static let authenticatedSignedWrites = Self(rawValue: 0x40)
  public static let extendedProperties = Self(rawValue: 0x80)
  public static let notifyEncryptionRequired = Self(rawValue: 0x100)
  public static let indicateEncryptionRequired = Self(rawValue: 0x200)
}

/// What a central may do with a published value.
public struct CBAttributePermissions: OptionSet, Sendable {
  public let rawValue: UInt
  public init(rawValue: UInt) { self.rawValue = rawValue }
  public static let readable = Self(rawValue: 0x01)
  public static let writeable = Self(rawValue: 0x02)
  public static let readEncryptionRequired = Self(rawValue: 0x04)
  public static let writeEncryptionRequired = Self(rawValue: 0x08)
}

/// Keys for `CBCentralManager.registerForConnectionEvents`.
public struct CBConnectionEventMatchingOption: RawRepresentable, Hashable, Sendable {
  public let rawValue: String
  public init(rawValue: String) { self.rawValue = rawValue }
  /// `[CBUUID]`: devices that have one of these services.
  public static let serviceUUIDs = Self(rawValue: "kCBConnectionEventMatchingOptionServiceUUIDs")
  /// `[UUID]`: these devices.
  public static let peripheralUUIDs = Self(rawValue: "kCBConnectionEventMatchingOptionPeripheralUUIDs")
}

/// Names a listener for L2CAP channels. Core Specification, Vol 3, Part A, §4.22.
public typealias CBL2CAPPSM = UInt16
