import BindruneWire

/// A command's number: Opcode Group Field, then Opcode Command Field. Vol 4, Part E, §5.4.1.
public struct HCIOpcode: OpenNumber, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(_ group: Group, _ command: UInt16) {
    rawValue = group.rawValue << 10 | command & 0x03FF
  }
  public var group: UInt16 { rawValue >> 10 }
  public var command: UInt16 { rawValue & 0x03FF }
  /// No command: an event with it only reports how many commands the host may send. Vol 4, Part E, §4.4.
  public static var none: HCIOpcode { HCIOpcode() }
  public enum Group: UInt16, Sendable {
    case linkControl = 1, controllerAndBaseband = 3, informational = 4, statusParameters = 5, le = 8, vendor = 0x3F
  }
}

/// A link of this controller: 12 bits, 0x0000 … 0x0EFF. Vol 4, Part E, §5.3.1.
///
/// No link is the default: a message whose handle nobody has set cannot be encoded.
public struct ConnectionHandle: OpenNumber, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = .max }
  @inlinable @inline(__always) public var isUnset: Bool { rawValue == .max }
  /// The upper four bits of the two octets are reserved: ignored when received.
  @inlinable @inline(__always) public init?(wire: UInt64) { rawValue = UInt16(truncatingIfNeeded: wire) & 0x0FFF }
}

/// An advertising set of this controller: 0x00 … 0xEF, the host's choice. Vol 4, Part E, §7.8.53.
///
/// No set is the default, as with ``ConnectionHandle``.
public struct AdvertisingHandle: WireValue, Hashable {
  /// 0x100 if unset: every number of an octet may arrive.
  @usableFromInline var stored: UInt16
  @inlinable @inline(__always) public init(_ number: UInt8) { stored = UInt16(number) }
  @inlinable @inline(__always) public init() { stored = 0x0100 }
  @inlinable @inline(__always) public var isUnset: Bool { stored == 0x0100 }
  @inlinable @inline(__always) public var number: UInt8 { UInt8(truncatingIfNeeded: stored) }

  @inlinable @inline(__always) public static var width: Int { 1 }
  @inlinable @inline(__always) public static var isClosed: Bool { false }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(UInt8(truncatingIfNeeded: wire)) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(number) }
}

/// The type of an address. Vol 4, Part E, §7.7.65.1, §7.7.65.13, §7.8.12.
public struct AddressType: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var `public`: AddressType { AddressType(rawValue: 0) }
  public static var random: AddressType { AddressType(rawValue: 1) }
  /// The controller has resolved a private address to it.
  public static var publicIdentity: AddressType { AddressType(rawValue: 2) }
  public static var randomIdentity: AddressType { AddressType(rawValue: 3) }
  /// The target of directed advertising: a random address that the controller cannot resolve. Vol 4, Part E,
  /// §7.7.65.13.
  public static var unresolved: AddressType { AddressType(rawValue: 0xFE) }
  /// No address was sent.
  public static var anonymous: AddressType { AddressType(rawValue: 0xFF) }
  public var text: String {
    switch rawValue {
    case 0: "public"
    case 1: "random"
    case 2: "public identity"
    case 3: "random identity"
    case 0xFE: "unresolved"
    case 0xFF: "anonymous"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// The own address that the controller uses. Vol 4, Part E, §7.8.5.
public struct OwnAddressType: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var `public`: OwnAddressType { OwnAddressType(rawValue: 0) }
  public static var random: OwnAddressType { OwnAddressType(rawValue: 1) }
  /// A resolvable private address, else the public one.
  public static var resolvableOrPublic: OwnAddressType { OwnAddressType(rawValue: 2) }
  /// A resolvable private address, else the random one.
  public static var resolvableOrRandom: OwnAddressType { OwnAddressType(rawValue: 3) }
  public var text: String {
    switch rawValue {
    case 0: "public"
    case 1: "random"
    case 2: "resolvable or public"
    case 3: "resolvable or random"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// Vol 4, Part E, §7.7.65.1.
public enum LinkRole: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case central = 0, peripheral = 1
  public var text: String { self == .central ? "Central" : "Peripheral" }
}

/// The legacy advertising PDU. Vol 4, Part E, §7.8.5.
public enum AdvertisingType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  /// ADV_IND
  case connectableScannableUndirected = 0
  /// ADV_DIRECT_IND, ends after 1.28 s.
  case connectableDirectedHighDutyCycle = 1
  /// ADV_SCAN_IND
  case scannableUndirected = 2
  /// ADV_NONCONN_IND
  case nonConnectableUndirected = 3
  case connectableDirectedLowDutyCycle = 4
  public var text: String {
    switch self {
    case .connectableScannableUndirected: "ADV_IND"
    case .connectableDirectedHighDutyCycle: "ADV_DIRECT_IND, high duty cycle"
    case .scannableUndirected: "ADV_SCAN_IND"
    case .nonConnectableUndirected: "ADV_NONCONN_IND"
    case .connectableDirectedLowDutyCycle: "ADV_DIRECT_IND, low duty cycle"
    }
  }
}
/// What a legacy scanner received. Vol 4, Part E, §7.7.65.2.
public struct AdvertisingEventType: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var connectableScannableUndirected: AdvertisingEventType { AdvertisingEventType(rawValue: 0) }
  public static var connectableDirected: AdvertisingEventType { AdvertisingEventType(rawValue: 1) }
  public static var scannableUndirected: AdvertisingEventType { AdvertisingEventType(rawValue: 2) }
  public static var nonConnectableUndirected: AdvertisingEventType { AdvertisingEventType(rawValue: 3) }
  public static var scanResponse: AdvertisingEventType { AdvertisingEventType(rawValue: 4) }
  public var text: String {
    switch rawValue {
    case 0: "ADV_IND"
    case 1: "ADV_DIRECT_IND"
    case 2: "ADV_SCAN_IND"
    case 3: "ADV_NONCONN_IND"
    case 4: "SCAN_RSP"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// Whether a report has all of an advertisement's data. Two bits. Vol 4, Part E, §7.7.65.13.
public struct AdvertisingDataStatus: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var complete: AdvertisingDataStatus { AdvertisingDataStatus(rawValue: 0) }
  /// Other reports follow.
  public static var incomplete: AdvertisingDataStatus { AdvertisingDataStatus(rawValue: 1) }
  /// The rest of the data is lost.
  public static var truncated: AdvertisingDataStatus { AdvertisingDataStatus(rawValue: 2) }
  public var text: String {
    switch rawValue {
    case 0: "complete"
    case 1: "incomplete"
    case 2: "truncated"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// The devices that an advertiser answers: bit 0, scan requests only from the Filter Accept List; bit 1, connections
/// too.
/// Vol 4, Part E, §7.8.5.
public struct AdvertisingFilterPolicy: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
}
/// 0 … 31 significant octets in the 31 of legacy advertising data. Vol 4, Part E, §7.8.7.
public struct AdvertisingDataLength: WireValue {
  public let rawValue: UInt8
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable @inline(__always) public static var width: Int { 1 }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard wire <= 31 else { return nil }
    rawValue = UInt8(truncatingIfNeeded: wire)
  }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(rawValue) }
}

/// Which part of the data a command carries. Vol 4, Part E, §7.8.54, §7.8.55.
public struct AdvertisingDataOperation: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var intermediate: AdvertisingDataOperation { AdvertisingDataOperation(rawValue: 0) }
  /// Discards the previous data.
  public static var first: AdvertisingDataOperation { AdvertisingDataOperation(rawValue: 1) }
  public static var last: AdvertisingDataOperation { AdvertisingDataOperation(rawValue: 2) }
  /// All data; discards the previous data.
  public static var complete: AdvertisingDataOperation { AdvertisingDataOperation(rawValue: 3) }
  /// No data: the previous data count as new, with another Advertising DID.
  public static var unchanged: AdvertisingDataOperation { AdvertisingDataOperation(rawValue: 4) }
  public var text: String {
    switch rawValue {
    case 0: "intermediate"
    case 1: "first"
    case 2: "last"
    case 3: "complete"
    case 4: "unchanged"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// A hint: 0 permits several PDUs for the data, 1 asks for as few as possible. Vol 4, Part E, §7.8.54.
public struct FragmentPreference: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
}

/// Vol 4, Part E, §7.8.10.
public enum ScanType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case passive = 0
  /// Asks for scan responses.
  case active = 1
  public var text: String { self == .active ? "active" : "passive" }
}
/// Which advertisements are reported: 0 all, 1 those of the Filter Accept List; bit 1 adds unresolved directed ones.
/// Vol 4, Part E, §7.8.10.
public struct ScanningFilterPolicy: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var basicUnfiltered: ScanningFilterPolicy { ScanningFilterPolicy(rawValue: 0) }
  public static var basicFiltered: ScanningFilterPolicy { ScanningFilterPolicy(rawValue: 1) }
  public static var extendedUnfiltered: ScanningFilterPolicy { ScanningFilterPolicy(rawValue: 2) }
  public static var extendedFiltered: ScanningFilterPolicy { ScanningFilterPolicy(rawValue: 3) }
}
/// 0 the named peer, 1 any of the Filter Accept List. Vol 4, Part E, §7.8.12.
public struct InitiatorFilterPolicy: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var peer: InitiatorFilterPolicy { InitiatorFilterPolicy(rawValue: 0) }
  public static var acceptList: InitiatorFilterPolicy { InitiatorFilterPolicy(rawValue: 1) }
}
/// Vol 4, Part E, §7.8.65.
public struct FilterDuplicates: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var disabled: FilterDuplicates { FilterDuplicates(rawValue: 0) }
  public static var enabled: FilterDuplicates { FilterDuplicates(rawValue: 1) }
  /// Enabled, and reset for each scan period.
  public static var enabledPerPeriod: FilterDuplicates { FilterDuplicates(rawValue: 2) }
}

/// The addresses that the controller accepts from a peer whose IRK it has. Vol 4, Part E, §7.8.77; Vol 6, Part B, §4.7.
public struct PrivacyMode: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  /// Only private addresses; the mode of every new entry of the resolving list.
  public static var network: PrivacyMode { PrivacyMode(rawValue: 0) }
  /// The identity address as well.
  public static var device: PrivacyMode { PrivacyMode(rawValue: 1) }
  public var text: String {
    switch rawValue {
    case 0: "network"
    case 1: "device"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}

/// A modulation. Vol 4, Part E, §7.7.65.13.
public struct PHY: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static var le1M: PHY { PHY(rawValue: 1) }
  public static var le2M: PHY { PHY(rawValue: 2) }
  public static var leCoded: PHY { PHY(rawValue: 3) }
  public var text: String {
    switch rawValue {
    case 0: "none"
    case 1: "LE 1M"
    case 2: "LE 2M"
    case 3: "LE Coded"
    default: "0x" + hexDigits(wire, 2)
    }
  }
}
/// Several modulations. Vol 4, Part E, §7.8.64, §7.8.66.
public struct PHYSet: OpenNumber, OptionSet {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable public static var le1M: PHYSet { PHYSet(rawValue: 1) }
  @inlinable public static var le2M: PHYSet { PHYSet(rawValue: 2) }
  @inlinable public static var leCoded: PHYSet { PHYSet(rawValue: 4) }
}

/// A duration that is encoded as a number of units.
public protocol TimeUnits: OpenNumber, Hashable, Comparable {
  /// Microseconds per unit.
  static var unit: Int64 { get }
}
extension TimeUnits {
  public var duration: Duration { .microseconds(Int64(wire) * Self.unit) }
  /// The nearest whole number of units, clamped to the field's width; each command's range is narrower.
  public init(_ duration: Duration) {
    let nearest = (duration.nanoseconds + Self.unit * 500) / (Self.unit * 1_000), greatest = 1 << (8 * Self.width) - 1
    guard let units = RawValue(wire: UInt64(min(max(nearest, 0), Int64(greatest)))) else {
      preconditionFailure("an integer takes every number of its width")
    }
    self.init(rawValue: units)
  }
  public static func < (a: Self, b: Self) -> Bool { a.wire < b.wire }
  /// `24 (30 ms)`, `7 (8.75 ms)`.
  public var text: String {
    let hundredths = Int64(wire) * Self.unit / 10, fraction = hundredths % 100
    var text = "\(wire) (\(hundredths / 100)"
    if fraction != 0 {
      text += fraction % 10 == 0 ? ".\(fraction / 10)" : "." + (fraction < 10 ? "0" : "") + "\(fraction)"
    }
    return text + " ms)"
  }
}
/// Units of 1.25 ms: 6 … 3,200 is 7.5 ms … 4 s. Vol 4, Part E, §7.8.12.
public struct ConnectionInterval: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 1_250 }
}
/// Units of 10 ms: 10 … 3,200 is 100 ms … 32 s. Vol 4, Part E, §7.8.12.
public struct SupervisionTimeout: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 10_000 }
}
/// Units of 10 ms: 1 … 65,535 is 10 ms … 655.35 s. Vol 4, Part E, §7.3.94.
public struct AuthenticatedPayloadTimeout: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 10_000 }
  /// The value of a new link: 30 s.
  public static var standard: AuthenticatedPayloadTimeout { AuthenticatedPayloadTimeout(rawValue: 3000) }
}
/// A scan interval or window. Units of 0.625 ms: 4 … 0x4000 is 2.5 ms … 10.24 s. Vol 4, Part E, §7.8.10.
public struct ScanInterval: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 625 }
}
/// Units of 0.625 ms: 0x20 … 0x4000 is 20 ms … 10.24 s. Vol 4, Part E, §7.8.5.
public struct AdvertisingInterval: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 625 }
}
/// Units of 0.625 ms: 0x20 … 0xFFFFFF is 20 ms … 10,485.76 s. Vol 4, Part E, §7.8.53.
public struct PrimaryAdvertisingInterval: TimeUnits {
  public var rawValue: UInt24
  @inlinable @inline(__always) public init(rawValue: UInt24 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 625 }
}
/// Units of 1.25 ms: 6 … 0xFFFF is 7.5 ms … 81.91875 s; 0: there is no periodic advertising. Vol 4, Part E, §7.7.65.13.
public struct PeriodicAdvertisingInterval: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 1_250 }
}
/// How long to scan, in each period if there are periods. Units of 10 ms; 0: until scanning is disabled.
/// Vol 4, Part E, §7.8.65.
public struct ScanDuration: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 10_000 }
}
/// The time between the starts of two scan durations. Units of 1.28 s; 0: there is only one. Vol 4, Part E, §7.8.65.
public struct ScanPeriod: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 1_280_000 }
}
/// CE_Length: the desired length of a connection event. Units of 0.625 ms. Vol 4, Part E, §7.8.12.
public struct ConnectionEventLength: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 625 }
}
/// How long to advertise. Units of 10 ms: 1 … 65,535 is 10 ms … 655.35 s. Vol 4, Part E, §7.8.56.
public struct AdvertisingDuration: TimeUnits {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  public static var unit: Int64 { 10_000 }
}

/// The edition that a controller implements: Assigned Numbers, §2.1.
public struct CoreVersion: OpenNumber, Hashable, Comparable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  public static func < (a: CoreVersion, b: CoreVersion) -> Bool { a.rawValue < b.rawValue }
  /// `5.4`; nil for a number assigned later.
  public var edition: StaticString? {
    switch rawValue {
    case 6: "4.0"
    case 7: "4.1"
    case 8: "4.2"
    case 9: "5.0"
    case 10: "5.1"
    case 11: "5.2"
    case 12: "5.3"
    case 13: "5.4"
    case 14: "6.0"
    default: nil
    }
  }
  public var text: String { "0x" + hexDigits(wire, 2) + (edition.map { " (\($0))" } ?? "") }
}
/// Assigned Numbers, §7.1.
public struct CompanyIdentifier: OpenNumber, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
}
/// Part of the central's key request, together with EDIV. Vol 4, Part E, §7.7.65.5.
public struct LongTermKeyRand: OpenNumber, Hashable {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64 = 0) { self.rawValue = rawValue }
}

extension LESetAdvertisingData {
  /// Puts `data`, at most 31 octets (traps otherwise), into `arena`, from which the command is encoded.
  public init(_ data: some Collection<UInt8>, in arena: inout [UInt8]) {
    (advertisingDataLength, advertisingData) = paddedAdvertisingData(data, in: &arena)
  }
}
extension LESetScanResponseData {
  /// Puts `data`, at most 31 octets (traps otherwise), into `arena`, from which the command is encoded.
  public init(_ data: some Collection<UInt8>, in arena: inout [UInt8]) {
    (scanResponseDataLength, scanResponseData) = paddedAdvertisingData(data, in: &arena)
  }
}
private func paddedAdvertisingData(
  _ data: some Collection<UInt8>, in arena: inout [UInt8]
) -> (AdvertisingDataLength, Octets) {
  guard let length = AdvertisingDataLength(wire: UInt64(data.count)) else {
    preconditionFailure("legacy advertising data have at most 31 octets")
  }
  let start = arena.count
  arena += data
  arena += repeatElement(0, count: 31 - data.count)
  return (length, Octets(start, 31))
}
