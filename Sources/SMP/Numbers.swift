import BindruneWire

/// The code of a PDU. Vol 3, Part H, §3.3, Table 3.3.
public struct SMPCode: OpenNumber, Hashable, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}

/// What a device can show its user, and ask. Vol 3, Part H, §3.5.1, Table 3.4; §2.3.2.
public struct IOCapability: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// Shows six digits.
  @inlinable public static var displayOnly: IOCapability { IOCapability(rawValue: 0x00) }
  /// Shows six digits, and asks yes or no.
  @inlinable public static var displayYesNo: IOCapability { IOCapability(rawValue: 0x01) }
  /// Asks for digits, and yes or no; shows none.
  @inlinable public static var keyboardOnly: IOCapability { IOCapability(rawValue: 0x02) }
  @inlinable public static var noInputNoOutput: IOCapability { IOCapability(rawValue: 0x03) }
  /// Shows digits, and asks for them, and yes or no.
  @inlinable public static var keyboardDisplay: IOCapability { IOCapability(rawValue: 0x04) }
  /// In the order of their numbers.
  public static var all: [IOCapability] {
    [.displayOnly, .displayYesNo, .keyboardOnly, .noInputNoOutput, .keyboardDisplay]
  }
  public var name: StaticString? {
    switch rawValue {
    case 0x00: "DisplayOnly"
    case 0x01: "DisplayYesNo"
    case 0x02: "KeyboardOnly"
    case 0x03: "NoInputNoOutput"
    case 0x04: "KeyboardDisplay"
    default: nil
    }
  }
}

/// Whether the sender holds out of band data of the receiver. Vol 3, Part H, §3.5.1, Table 3.5.
public enum OOBDataFlag: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case notPresent = 0x00
  case present = 0x01
  public var text: String { self == .present ? "present (0x01)" : "not present (0x00)" }
}

/// What a device demands of a pairing. Vol 3, Part H, §3.5.1.
public struct AuthReq: OpenNumber, Hashable, OptionSet {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// Keep the keys. Bits 0 and 1 are one field, of which 0b10 and 0b11 are reserved: read ``isBonding``.
  @inlinable public static var bonding: AuthReq { AuthReq(rawValue: 0x01) }
  /// Protection against a man in the middle.
  @inlinable public static var mitm: AuthReq { AuthReq(rawValue: 0x04) }
  /// LE Secure Connections.
  @inlinable public static var sc: AuthReq { AuthReq(rawValue: 0x08) }
  /// Keypress notifications while a passkey is entered.
  @inlinable public static var keypress: AuthReq { AuthReq(rawValue: 0x10) }
  /// h7 for keys of the other transport.
  @inlinable public static var ct2: AuthReq { AuthReq(rawValue: 0x20) }
  @inlinable public var isBonding: Bool { rawValue & 0x03 == 0x01 }
}

/// Keys that a device distributes after the link is encrypted. Vol 3, Part H, §3.6.1.
public struct KeyDistribution: OpenNumber, Hashable, OptionSet {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// LTK, EDIV and Rand of LE legacy pairing; ignored with LE Secure Connections.
  @inlinable public static var encKey: KeyDistribution { KeyDistribution(rawValue: 0x01) }
  /// IRK and identity address.
  @inlinable public static var idKey: KeyDistribution { KeyDistribution(rawValue: 0x02) }
  /// CSRK.
  @inlinable public static var signKey: KeyDistribution { KeyDistribution(rawValue: 0x04) }
  /// A BR/EDR link key, derived and never sent: ignored here.
  @inlinable public static var linkKey: KeyDistribution { KeyDistribution(rawValue: 0x08) }
  /// All but the reserved bits, which a receiver ignores.
  @inlinable public static var known: KeyDistribution { KeyDistribution(rawValue: 0x0F) }
}

/// Octets of an encryption key. Vol 3, Part H, §2.3.4.
public struct EncryptionKeySize: WireValue, Hashable, Comparable {
  /// 7 … 16.
  public let octets: UInt8
  /// nil outside of 7 … 16.
  @inlinable public init?(_ octets: Int) { self.init(wire: UInt64(clamping: octets)) }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard (7...16).contains(wire) else { return nil }
    octets = UInt8(truncatingIfNeeded: wire)
  }
  @inlinable init(valid octets: UInt8) { self.octets = octets }
  @inlinable public var count: Int { Int(octets) }
  @inlinable public static var width: Int { 1 }
  @inlinable public static var isClosed: Bool { true }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(octets) }
  @inlinable public static var shortest: EncryptionKeySize { EncryptionKeySize(valid: 7) }
  @inlinable public static var longest: EncryptionKeySize { EncryptionKeySize(valid: 16) }
  @inlinable public static func < (a: EncryptionKeySize, b: EncryptionKeySize) -> Bool { a.octets < b.octets }
}

/// Why a pairing failed, as its sender reports it. Vol 3, Part H, §3.5.5, Table 3.7.
public struct PairingFailure: OpenNumber, Hashable, Error {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// The user did not enter the passkey.
  @inlinable public static var passkeyEntryFailed: PairingFailure { PairingFailure(rawValue: 0x01) }
  /// The out of band data that the pairing needs is missing.
  @inlinable public static var oobNotAvailable: PairingFailure { PairingFailure(rawValue: 0x02) }
  /// The IO capabilities, or LE Secure Connections missing, do not permit what the sender demands.
  @inlinable public static var authenticationRequirements: PairingFailure { PairingFailure(rawValue: 0x03) }
  /// A confirm value is not that of the random number.
  @inlinable public static var confirmValueFailed: PairingFailure { PairingFailure(rawValue: 0x04) }
  /// The sender does not pair, or not now.
  @inlinable public static var pairingNotSupported: PairingFailure { PairingFailure(rawValue: 0x05) }
  /// The key would be shorter than the sender permits.
  @inlinable public static var encryptionKeySize: PairingFailure { PairingFailure(rawValue: 0x06) }
  /// The sender does not support the command.
  @inlinable public static var commandNotSupported: PairingFailure { PairingFailure(rawValue: 0x07) }
  @inlinable public static var unspecifiedReason: PairingFailure { PairingFailure(rawValue: 0x08) }
  /// Too little time since the last failure.
  @inlinable public static var repeatedAttempts: PairingFailure { PairingFailure(rawValue: 0x09) }
  /// A command has the wrong length, or a parameter is out of its range.
  @inlinable public static var invalidParameters: PairingFailure { PairingFailure(rawValue: 0x0A) }
  /// The DHKey Check, or the public key, is invalid.
  @inlinable public static var dhKeyCheckFailed: PairingFailure { PairingFailure(rawValue: 0x0B) }
  /// The user did not confirm that the numbers are equal.
  @inlinable public static var numericComparisonFailed: PairingFailure { PairingFailure(rawValue: 0x0C) }
  /// A pairing over BR/EDR is in progress. This stack is LE only.
  @inlinable public static var brEDRPairingInProgress: PairingFailure { PairingFailure(rawValue: 0x0D) }
  /// A key of the other transport cannot be derived. This stack is LE only.
  @inlinable public static var crossTransportKeyDerivationNotAllowed: PairingFailure { PairingFailure(rawValue: 0x0E) }
  /// The sender refuses a distributed key.
  @inlinable public static var keyRejected: PairingFailure { PairingFailure(rawValue: 0x0F) }
  /// The sender cannot pair now.
  @inlinable public static var busy: PairingFailure { PairingFailure(rawValue: 0x10) }

  /// The Specification's name; `nil` for a reserved number.
  public var name: StaticString? {
    switch rawValue {
    case 0x01: "Passkey Entry Failed"
    case 0x02: "OOB Not Available"
    case 0x03: "Authentication Requirements"
    case 0x04: "Confirm Value Failed"
    case 0x05: "Pairing Not Supported"
    case 0x06: "Encryption Key Size"
    case 0x07: "Command Not Supported"
    case 0x08: "Unspecified Reason"
    case 0x09: "Repeated Attempts"
    case 0x0A: "Invalid Parameters"
    case 0x0B: "DHKey Check Failed"
    case 0x0C: "Numeric Comparison Failed"
    case 0x0D: "BR/EDR Pairing In Progress"
    case 0x0E: "Cross-transport Key Derivation/Generation Not Allowed"
    case 0x0F: "Key Rejected"
    case 0x10: "Busy"
    default: nil
    }
  }
}

/// What happens on the keyboard while a passkey is entered. Vol 3, Part H, §3.5.8, Table 3.8.
public struct KeypressNotificationType: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var entryStarted: KeypressNotificationType { .init(rawValue: 0) }
  @inlinable public static var digitEntered: KeypressNotificationType { .init(rawValue: 1) }
  @inlinable public static var digitErased: KeypressNotificationType { .init(rawValue: 2) }
  @inlinable public static var cleared: KeypressNotificationType { .init(rawValue: 3) }
  @inlinable public static var entryCompleted: KeypressNotificationType { .init(rawValue: 4) }
  public var name: StaticString? {
    switch rawValue {
    case 0: "Passkey entry started"
    case 1: "Passkey digit entered"
    case 2: "Passkey digit erased"
    case 3: "Passkey cleared"
    case 4: "Passkey entry completed"
    default: nil
    }
  }
}

/// The kind of an identity address. Vol 3, Part H, §3.6.5.
public enum IdentityAddressType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case `public` = 0x00
  case randomStatic = 0x01
  public var text: String { self == .public ? "public (0x00)" : "static random (0x01)" }
}

// MARK: Text

extension SMPCode: CustomStringConvertible {
  /// `Pairing Confirm (0x03)`.
  public var description: String { named(name, self) }
  public var text: String { description }
  /// The Specification's name; `nil` for a reserved code.
  public var name: StaticString? {
    var defaults = WireDefaults()
    do throws(WireError) { return try SMPPDU(self, &defaults).name } catch { return nil }
  }
}
extension IOCapability: CustomStringConvertible {
  public var description: String { named(name, self) }
  public var text: String { description }
}
extension AuthReq: CustomStringConvertible {
  /// `Bonding, MITM, SC (0x0D)`.
  public var description: String {
    let bonding: StaticString = isBonding ? "Bonding" : rawValue & 0x03 == 0 ? "No Bonding" : "Reserved Bonding"
    let flags: [(AuthReq, StaticString)] = [(.mitm, "MITM"), (.sc, "SC"), (.keypress, "Keypress"), (.ct2, "CT2")]
    return listed([bonding] + flags.filter { contains($0.0) }.map { $0.1 }, self)
  }
  public var text: String { description }
}
extension KeyDistribution: CustomStringConvertible {
  /// `EncKey, IdKey (0x03)`.
  public var description: String {
    let keys: [(KeyDistribution, StaticString)] = [
      (.encKey, "EncKey"), (.idKey, "IdKey"), (.signKey, "SignKey"), (.linkKey, "LinkKey"),
    ]
    return listed(keys.filter { contains($0.0) }.map { $0.1 }, self)
  }
  public var text: String { description }
}
extension PairingFailure: CustomStringConvertible {
  /// `Confirm Value Failed (0x04)`.
  public var description: String { named(name, self) }
  public var text: String { description }
}
extension KeypressNotificationType: CustomStringConvertible {
  public var description: String { named(name, self) }
  public var text: String { description }
}
extension EncryptionKeySize: CustomStringConvertible { public var description: String { String(octets) } }

private func named(_ name: StaticString?, _ number: some OpenNumber) -> String {
  let code = "0x" + hexDigits(number.wire, 2)
  return name.map { "\($0) (\(code))" } ?? "Reserved for Future Use (\(code))"
}
private func listed(_ names: [StaticString], _ number: some OpenNumber) -> String {
  let code = "0x" + hexDigits(number.wire, 2)
  return names.isEmpty ? code : names.map { "\($0)" }.joined(separator: ", ") + " (\(code))"
}
