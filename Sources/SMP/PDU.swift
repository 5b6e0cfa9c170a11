import BindruneToolbox
import BindruneWire

/// One of the 14 PDUs. Vol 3, Part H, §3.5 and §3.6. Its `fields` are the parameters; the code precedes them.
///
/// `Scripts/messages` writes the list of all from these declarations: `PDUList.swift`.
public protocol SMPMessage: WireMessage { static var code: SMPCode { get } }
extension SMPMessage {
  public static var messageNumber: UInt16 { UInt16(code.rawValue) }
  @inlinable @inline(__always) public static func identify(_ visit: inout some FieldVisitor) throws(WireError) {
    var code = code
    try visit.value("Code", &code)
  }
}

/// The parameters of Pairing Request and Pairing Response, which have the same. Vol 3, Part H, §3.5.1 and §3.5.2.
public struct PairingFeatures: WireRecord, Equatable {
  public var ioCapability = IOCapability.noInputNoOutput
  public var oobDataFlag = OOBDataFlag.notPresent
  public var authReq = AuthReq()
  public var maximumEncryptionKeySize = EncryptionKeySize.longest
  /// Keys from the initiator; in a request those that it offers, in a response those of them that are wanted.
  public var initiatorKeyDistribution = KeyDistribution()
  /// Keys from the responder; in a request those that are wanted, in a response those of them that it sends.
  public var responderKeyDistribution = KeyDistribution()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("IO Capability", &ioCapability)
    try visit.value("OOB Data Flag", &oobDataFlag)
    try visit.value("AuthReq", &authReq)
    try visit.value("Maximum Encryption Key Size", &maximumEncryptionKeySize)
    try visit.value("Initiator Key Distribution", &initiatorKeyDistribution)
    try visit.value("Responder Key Distribution", &responderKeyDistribution)
  }
}
/// Pairing Request. Vol 3, Part H, §3.5.1.
public struct PairingRequest: SMPMessage {
  public static var name: StaticString { "Pairing Request" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.1" }
  public static var code: SMPCode { 0x01 }
  public var features = PairingFeatures()
  @inlinable public init() {}
  @inlinable public init(_ features: PairingFeatures) { self.features = features }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try features.fields(&visit)
  }
}
/// Pairing Response. Vol 3, Part H, §3.5.2.
public struct PairingResponse: SMPMessage {
  public static var name: StaticString { "Pairing Response" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.2" }
  public static var code: SMPCode { 0x02 }
  public var features = PairingFeatures()
  @inlinable public init() {}
  @inlinable public init(_ features: PairingFeatures) { self.features = features }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try features.fields(&visit)
  }
}
/// Pairing Confirm. Vol 3, Part H, §3.5.3.
public struct PairingConfirm: SMPMessage {
  public static var name: StaticString { "Pairing Confirm" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.3" }
  public static var code: SMPCode { 0x03 }
  public var confirmValue = UInt128()
  @inlinable public init() {}
  @inlinable public init(_ confirmValue: UInt128) { self.confirmValue = confirmValue }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Confirm Value", &confirmValue)
  }
}
/// Pairing Random. Vol 3, Part H, §3.5.4.
public struct PairingRandom: SMPMessage {
  public static var name: StaticString { "Pairing Random" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.4" }
  public static var code: SMPCode { 0x04 }
  public var randomValue = UInt128()
  @inlinable public init() {}
  @inlinable public init(_ randomValue: UInt128) { self.randomValue = randomValue }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Random Value", &randomValue)
  }
}
/// Pairing Failed. Vol 3, Part H, §3.5.5.
public struct PairingFailed: SMPMessage {
  public static var name: StaticString { "Pairing Failed" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.5" }
  public static var code: SMPCode { 0x05 }
  public var reason = PairingFailure()
  @inlinable public init() {}
  @inlinable public init(_ reason: PairingFailure) { self.reason = reason }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Reason", &reason)
  }
}
/// Encryption Information. Vol 3, Part H, §3.6.2.
public struct EncryptionInformation: SMPMessage {
  public static var name: StaticString { "Encryption Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.2" }
  public static var code: SMPCode { 0x06 }
  public var longTermKey = SecretNumber()
  @inlinable public init() {}
  init(_ key: SecurityKey) { longTermKey = SecretNumber(key.number) }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Long Term Key", &longTermKey)
  }
}
/// Central Identification. Vol 3, Part H, §3.6.3.
public struct CentralIdentification: SMPMessage {
  public static var name: StaticString { "Central Identification" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.3" }
  public static var code: SMPCode { 0x07 }
  public var ediv: UInt16 = 0
  public var rand: UInt64 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("EDIV", &ediv)
    try visit.value("Rand", &rand)
  }
}
/// Identity Information. Vol 3, Part H, §3.6.4.
public struct IdentityInformation: SMPMessage {
  public static var name: StaticString { "Identity Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.4" }
  public static var code: SMPCode { 0x08 }
  public var identityResolvingKey = SecretNumber()
  @inlinable public init() {}
  init(_ key: SecurityKey) { identityResolvingKey = SecretNumber(key.number) }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Identity Resolving Key", &identityResolvingKey)
  }
}
/// Identity Address Information. Vol 3, Part H, §3.6.5.
public struct IdentityAddressInformation: SMPMessage {
  public static var name: StaticString { "Identity Address Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.5" }
  public static var code: SMPCode { 0x09 }
  public var addrType = IdentityAddressType.public
  public var bdADDR = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AddrType", &addrType)
    try visit.value("BD_ADDR", &bdADDR)
  }
}
/// Signing Information. Vol 3, Part H, §3.6.6.
public struct SigningInformation: SMPMessage {
  public static var name: StaticString { "Signing Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.6" }
  public static var code: SMPCode { 0x0A }
  public var signatureKey = SecretNumber()
  @inlinable public init() {}
  init(_ key: SecurityKey) { signatureKey = SecretNumber(key.number) }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Signature Key", &signatureKey)
  }
}
/// Security Request. Vol 3, Part H, §3.6.7.
public struct SecurityRequest: SMPMessage {
  public static var name: StaticString { "Security Request" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.7" }
  public static var code: SMPCode { 0x0B }
  public var authReq = AuthReq()
  @inlinable public init() {}
  @inlinable public init(_ authReq: AuthReq) { self.authReq = authReq }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AuthReq", &authReq)
  }
}
/// Pairing Public Key. Vol 3, Part H, §3.5.6.
public struct PairingPublicKey: SMPMessage {
  public static var name: StaticString { "Pairing Public Key" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.6" }
  public static var code: SMPCode { 0x0C }
  public var publicKeyX = UInt256()
  public var publicKeyY = UInt256()
  @inlinable public init() {}
  init(_ key: P256PublicKey) { (publicKeyX, publicKeyY) = (key.x, key.y) }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Public Key X", &publicKeyX)
    try visit.value("Public Key Y", &publicKeyY)
  }
}
/// Pairing DHKey Check. Vol 3, Part H, §3.5.7.
public struct PairingDHKeyCheck: SMPMessage {
  public static var name: StaticString { "Pairing DHKey Check" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.7" }
  public static var code: SMPCode { 0x0D }
  public var dhKeyCheck = UInt128()
  @inlinable public init() {}
  @inlinable public init(_ dhKeyCheck: UInt128) { self.dhKeyCheck = dhKeyCheck }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("DHKey Check", &dhKeyCheck)
  }
}
/// Pairing Keypress Notification. Vol 3, Part H, §3.5.8.
public struct PairingKeypressNotification: SMPMessage {
  public static var name: StaticString { "Pairing Keypress Notification" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.8" }
  public static var code: SMPCode { 0x0E }
  public var notificationType = KeypressNotificationType()
  @inlinable public init() {}
  @inlinable public init(_ notificationType: KeypressNotificationType) { self.notificationType = notificationType }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Notification Type", &notificationType)
  }
}

extension UInt256: WireWideValue {
  @inlinable public init() { self.init(low: 0) }
  @inlinable public static var words: Int { 4 }
  @inlinable public subscript(word index: Int) -> UInt64 {
    get { index < 2 ? low[word: index] : high[word: index - 2] }
    set { if index < 2 { low[word: index] = newValue } else { high[word: index - 2] = newValue } }
  }
}

extension SMPPDU {
  /// The PDU in `packet`, code first. Ranges in it refer to `packet`.
  public init(_ packet: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(packet) }
    if packet.isEmpty { throw .truncated("Code", needed: 1, available: 0) }
    var decoder = try unsafe WireDecoder(packet)
    var code = SMPCode()
    try decoder.value("Code", &code)
    try self.init(code, &decoder)
  }
  /// Appends the PDU, code first; ranges are copied from `source`. `output` is unchanged when this throws.
  public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe WireEncoder(&output, source)
    try visit(&encoder)
    unsafe encoder.commit(&output)
  }
  private var facts: WireFacts {
    var facts = WireFacts()
    do throws(WireError) { try visit(&facts) } catch {}
    return facts
  }
  public var code: SMPCode { SMPCode(rawValue: UInt8(truncatingIfNeeded: facts.number)) }
  /// The Specification's name: `Pairing Request`.
  public var name: StaticString { facts.name }
  /// The fields, the code first.
  public var layout: [WireLayout.Field] {
    var layout = WireLayout()
    do throws(WireError) { try visit(&layout) } catch {}
    return layout.fields
  }
  /// The parameters as text, without the octets of keys.
  public func describe(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    var describer = unsafe WireDescriber(packet)
    do throws(WireError) { try visit(&describer) } catch {}
    return describer.text
  }
}
