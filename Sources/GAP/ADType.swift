import BindruneWire

/// The type of an AD structure. Assigned Numbers, §2.3; formats in the Core Specification Supplement, Part A.
public struct ADType: OpenNumber, Hashable, ExpressibleByIntegerLiteral, CustomStringConvertible {
  public var rawValue: UInt8
  @inlinable public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable public init(integerLiteral value: UInt8) { rawValue = value }

  public static var flags: ADType { 0x01 }
  public static var incompleteServiceUUIDs16: ADType { 0x02 }
  public static var completeServiceUUIDs16: ADType { 0x03 }
  public static var incompleteServiceUUIDs32: ADType { 0x04 }
  public static var completeServiceUUIDs32: ADType { 0x05 }
  public static var incompleteServiceUUIDs128: ADType { 0x06 }
  public static var completeServiceUUIDs128: ADType { 0x07 }
  public static var shortenedLocalName: ADType { 0x08 }
  public static var completeLocalName: ADType { 0x09 }
  public static var txPowerLevel: ADType { 0x0A }
  public static var classOfDevice: ADType { 0x0D }
  public static var simplePairingHashC192: ADType { 0x0E }
  public static var simplePairingRandomizerR192: ADType { 0x0F }
  /// Its meaning in the out-of-band data of an LE device; in an Extended Inquiry Response it is the Device ID.
  public static var securityManagerTKValue: ADType { 0x10 }
  public static var securityManagerOutOfBandFlags: ADType { 0x11 }
  public static var peripheralConnectionIntervalRange: ADType { 0x12 }
  public static var solicitationUUIDs16: ADType { 0x14 }
  public static var solicitationUUIDs128: ADType { 0x15 }
  public static var serviceData16: ADType { 0x16 }
  public static var publicTargetAddress: ADType { 0x17 }
  public static var randomTargetAddress: ADType { 0x18 }
  public static var appearance: ADType { 0x19 }
  public static var advertisingInterval: ADType { 0x1A }
  public static var leBluetoothDeviceAddress: ADType { 0x1B }
  public static var leRole: ADType { 0x1C }
  public static var simplePairingHashC256: ADType { 0x1D }
  public static var simplePairingRandomizerR256: ADType { 0x1E }
  public static var solicitationUUIDs32: ADType { 0x1F }
  public static var serviceData32: ADType { 0x20 }
  public static var serviceData128: ADType { 0x21 }
  public static var leSecureConnectionsConfirmationValue: ADType { 0x22 }
  public static var leSecureConnectionsRandomValue: ADType { 0x23 }
  public static var uri: ADType { 0x24 }
  public static var indoorPositioning: ADType { 0x25 }
  public static var transportDiscoveryData: ADType { 0x26 }
  public static var leSupportedFeatures: ADType { 0x27 }
  public static var channelMapUpdateIndication: ADType { 0x28 }
  public static var pbADV: ADType { 0x29 }
  public static var meshMessage: ADType { 0x2A }
  public static var meshBeacon: ADType { 0x2B }
  public static var bigInfo: ADType { 0x2C }
  public static var broadcastCode: ADType { 0x2D }
  public static var resolvableSetIdentifier: ADType { 0x2E }
  public static var advertisingIntervalLong: ADType { 0x2F }
  public static var broadcastName: ADType { 0x30 }
  public static var encryptedAdvertisingData: ADType { 0x31 }
  public static var periodicAdvertisingResponseTimingInformation: ADType { 0x32 }
  public static var electronicShelfLabel: ADType { 0x34 }
  public static var threeDInformationData: ADType { 0x3D }
  public static var manufacturerData: ADType { 0xFF }

  /// The name in Assigned Numbers: `Complete Local Name`. Nil for an unassigned number.
  public var name: String? { row.map { "\($0.name)" } }
  public var description: String { name ?? "AD type \(text)" }
  /// False when data of this type cannot have this many octets. An unassigned type allows any number.
  public func accepts(octets count: Int) -> Bool { row?.length.accepts(count) ?? true }

  /// The octets of a type's data, without the length and the type.
  private enum Length {
    case any
    case exactly(Int)
    case atLeast(Int)
    case between(Int, Int)
    /// Entries of this many octets each.
    case entries(Int)
    func accepts(_ count: Int) -> Bool {
      switch self {
      case .any: true
      case .exactly(let octets): count == octets
      case .atLeast(let octets): count >= octets
      case .between(let least, let most): count >= least && count <= most
      case .entries(let octets): count % octets == 0
      }
    }
  }
  /// The table of all assigned types. A format that another specification defines allows any length.
  private var row: (name: StaticString, length: Length)? {
    switch rawValue {
    case 0x01: ("Flags", .any)
    case 0x02: ("Incomplete List of 16-bit Service Class UUIDs", .entries(2))
    case 0x03: ("Complete List of 16-bit Service Class UUIDs", .entries(2))
    case 0x04: ("Incomplete List of 32-bit Service Class UUIDs", .entries(4))
    case 0x05: ("Complete List of 32-bit Service Class UUIDs", .entries(4))
    case 0x06: ("Incomplete List of 128-bit Service Class UUIDs", .entries(16))
    case 0x07: ("Complete List of 128-bit Service Class UUIDs", .entries(16))
    case 0x08: ("Shortened Local Name", .any)
    case 0x09: ("Complete Local Name", .any)
    case 0x0A: ("Tx Power Level", .exactly(1))
    case 0x0D: ("Class of Device", .exactly(3))
    case 0x0E: ("Simple Pairing Hash C-192", .exactly(16))
    case 0x0F: ("Simple Pairing Randomizer R-192", .exactly(16))
    case 0x10: ("Security Manager TK Value", .any)
    case 0x11: ("Security Manager Out of Band Flags", .exactly(1))
    case 0x12: ("Peripheral Connection Interval Range", .exactly(4))
    case 0x14: ("List of 16-bit Service Solicitation UUIDs", .entries(2))
    case 0x15: ("List of 128-bit Service Solicitation UUIDs", .entries(16))
    case 0x16: ("Service Data - 16-bit UUID", .atLeast(2))
    case 0x17: ("Public Target Address", .entries(6))
    case 0x18: ("Random Target Address", .entries(6))
    case 0x19: ("Appearance", .exactly(2))
    case 0x1A: ("Advertising Interval", .exactly(2))
    case 0x1B: ("LE Bluetooth Device Address", .exactly(7))
    case 0x1C: ("LE Role", .exactly(1))
    case 0x1D: ("Simple Pairing Hash C-256", .exactly(16))
    case 0x1E: ("Simple Pairing Randomizer R-256", .exactly(16))
    case 0x1F: ("List of 32-bit Service Solicitation UUIDs", .entries(4))
    case 0x20: ("Service Data - 32-bit UUID", .atLeast(4))
    case 0x21: ("Service Data - 128-bit UUID", .atLeast(16))
    case 0x22: ("LE Secure Connections Confirmation Value", .exactly(16))
    case 0x23: ("LE Secure Connections Random Value", .exactly(16))
    case 0x24: ("URI", .atLeast(1))
    case 0x25: ("Indoor Positioning", .any)
    case 0x26: ("Transport Discovery Data", .any)
    case 0x27: ("LE Supported Features", .any)
    case 0x28: ("Channel Map Update Indication", .exactly(7))
    case 0x29: ("PB-ADV", .any)
    case 0x2A: ("Mesh Message", .any)
    case 0x2B: ("Mesh Beacon", .any)
    case 0x2C: ("BIGInfo", .any)
    case 0x2D: ("Broadcast_Code", .any)
    case 0x2E: ("Resolvable Set Identifier", .exactly(6))
    case 0x2F: ("Advertising Interval - long", .between(3, 4))
    case 0x30: ("Broadcast_Name", .any)
    case 0x31: ("Encrypted Advertising Data", .atLeast(9))
    case 0x32: ("Periodic Advertising Response Timing Information", .exactly(8))
    case 0x34: ("Electronic Shelf Label", .any)
    case 0x3D: ("3D Information Data", .any)
    case 0xFF: ("Manufacturer Specific Data", .atLeast(2))
    default: nil
    }
  }
}
