import BindruneWire

/// One of the 14 PDUs. Vol 3, Part H, §3.5 and §3.6. Its `fields` are the parameters; the code precedes them.
public protocol SMPMessage: WireRecord {
  static var code: SMPCode { get }
  /// The Specification's name.
  static var name: StaticString { get }
  /// Where the Specification defines it: `Vol 3, Part H, §3.5.1`.
  static var section: StaticString { get }
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
  public static var code: SMPCode { .pairingRequest }
  public var features = PairingFeatures()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try features.fields(&visit)
  }
}
/// Pairing Response. Vol 3, Part H, §3.5.2.
public struct PairingResponse: SMPMessage {
  public static var name: StaticString { "Pairing Response" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.2" }
  public static var code: SMPCode { .pairingResponse }
  public var features = PairingFeatures()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try features.fields(&visit)
  }
}
/// Pairing Confirm. Vol 3, Part H, §3.5.3.
public struct PairingConfirm: SMPMessage {
  public static var name: StaticString { "Pairing Confirm" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.3" }
  public static var code: SMPCode { .pairingConfirm }
  public var confirmValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Confirm Value", &confirmValue, .exactly(16))
  }
}
/// Pairing Random. Vol 3, Part H, §3.5.4.
public struct PairingRandom: SMPMessage {
  public static var name: StaticString { "Pairing Random" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.4" }
  public static var code: SMPCode { .pairingRandom }
  public var randomValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Random Value", &randomValue, .exactly(16))
  }
}
/// Pairing Failed. Vol 3, Part H, §3.5.5.
public struct PairingFailed: SMPMessage {
  public static var name: StaticString { "Pairing Failed" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.5" }
  public static var code: SMPCode { .pairingFailed }
  public var reason = PairingFailure()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Reason", &reason)
  }
}
/// Encryption Information. Vol 3, Part H, §3.6.2.
public struct EncryptionInformation: SMPMessage {
  public static var name: StaticString { "Encryption Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.2" }
  public static var code: SMPCode { .encryptionInformation }
  public var longTermKey = SecretOctets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Long Term Key", &longTermKey, .exactly(16))
  }
}
/// Central Identification. Vol 3, Part H, §3.6.3.
public struct CentralIdentification: SMPMessage {
  public static var name: StaticString { "Central Identification" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.3" }
  public static var code: SMPCode { .centralIdentification }
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
  public static var code: SMPCode { .identityInformation }
  public var identityResolvingKey = SecretOctets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Identity Resolving Key", &identityResolvingKey, .exactly(16))
  }
}
/// Identity Address Information. Vol 3, Part H, §3.6.5.
public struct IdentityAddressInformation: SMPMessage {
  public static var name: StaticString { "Identity Address Information" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.5" }
  public static var code: SMPCode { .identityAddressInformation }
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
  public static var code: SMPCode { .signingInformation }
  public var signatureKey = SecretOctets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Signature Key", &signatureKey, .exactly(16))
  }
}
/// Security Request. Vol 3, Part H, §3.6.7.
public struct SecurityRequest: SMPMessage {
  public static var name: StaticString { "Security Request" }
  public static var section: StaticString { "Vol 3, Part H, §3.6.7" }
  public static var code: SMPCode { .securityRequest }
  public var authReq = AuthReq()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AuthReq", &authReq)
  }
}
/// Pairing Public Key. Vol 3, Part H, §3.5.6.
public struct PairingPublicKey: SMPMessage {
  public static var name: StaticString { "Pairing Public Key" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.6" }
  public static var code: SMPCode { .pairingPublicKey }
  public var publicKeyX = Octets()
  public var publicKeyY = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Public Key X", &publicKeyX, .exactly(32))
    try visit.octets("Public Key Y", &publicKeyY, .exactly(32))
  }
}
/// Pairing DHKey Check. Vol 3, Part H, §3.5.7.
public struct PairingDHKeyCheck: SMPMessage {
  public static var name: StaticString { "Pairing DHKey Check" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.7" }
  public static var code: SMPCode { .pairingDHKeyCheck }
  public var dhKeyCheck = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("DHKey Check", &dhKeyCheck, .exactly(16))
  }
}
/// Pairing Keypress Notification. Vol 3, Part H, §3.5.8.
public struct PairingKeypressNotification: SMPMessage {
  public static var name: StaticString { "Pairing Keypress Notification" }
  public static var section: StaticString { "Vol 3, Part H, §3.5.8" }
  public static var code: SMPCode { .pairingKeypressNotification }
  public var notificationType = KeypressNotificationType()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Notification Type", &notificationType)
  }
}

/// Any of the 14 PDUs, with the only switches over codes.
public enum SMPPDU: BitwiseCopyable, Sendable {
  case pairingRequest(PairingRequest)
  case pairingResponse(PairingResponse)
  case pairingConfirm(PairingConfirm)
  case pairingRandom(PairingRandom)
  case pairingFailed(PairingFailed)
  case encryptionInformation(EncryptionInformation)
  case centralIdentification(CentralIdentification)
  case identityInformation(IdentityInformation)
  case identityAddressInformation(IdentityAddressInformation)
  case signingInformation(SigningInformation)
  case securityRequest(SecurityRequest)
  case pairingPublicKey(PairingPublicKey)
  case pairingDHKeyCheck(PairingDHKeyCheck)
  case pairingKeypressNotification(PairingKeypressNotification)

  /// The PDU in `packet`, code first. Ranges in it refer to `packet`.
  public init(_ packet: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(packet) }
    if packet.isEmpty { throw .truncated("Code", needed: 1, available: 0) }
    var decoder = try unsafe WireDecoder(packet)
    var code = SMPCode()
    try decoder.value("Code", &code)
    try self.init(code, &decoder)
  }

  /// The PDU of `code` with the parameters from `reader`; a reserved code is a `WireError`.
  public init(_ code: SMPCode, _ reader: inout some SMPMessageReader) throws(WireError) {
    switch code.rawValue {
    case 0x01: self = .pairingRequest(try reader.read())
    case 0x02: self = .pairingResponse(try reader.read())
    case 0x03: self = .pairingConfirm(try reader.read())
    case 0x04: self = .pairingRandom(try reader.read())
    case 0x05: self = .pairingFailed(try reader.read())
    case 0x06: self = .encryptionInformation(try reader.read())
    case 0x07: self = .centralIdentification(try reader.read())
    case 0x08: self = .identityInformation(try reader.read())
    case 0x09: self = .identityAddressInformation(try reader.read())
    case 0x0A: self = .signingInformation(try reader.read())
    case 0x0B: self = .securityRequest(try reader.read())
    case 0x0C: self = .pairingPublicKey(try reader.read())
    case 0x0D: self = .pairingDHKeyCheck(try reader.read())
    case 0x0E: self = .pairingKeypressNotification(try reader.read())
    default: throw .unknown("Code", Int(code.rawValue))
    }
  }

  /// Passes the message and its type to `visitor`.
  public func visit(_ visitor: inout some SMPMessageVisitor) throws(WireError) {
    switch self {
    case .pairingRequest(let m): try visitor.visit(m)
    case .pairingResponse(let m): try visitor.visit(m)
    case .pairingConfirm(let m): try visitor.visit(m)
    case .pairingRandom(let m): try visitor.visit(m)
    case .pairingFailed(let m): try visitor.visit(m)
    case .encryptionInformation(let m): try visitor.visit(m)
    case .centralIdentification(let m): try visitor.visit(m)
    case .identityInformation(let m): try visitor.visit(m)
    case .identityAddressInformation(let m): try visitor.visit(m)
    case .signingInformation(let m): try visitor.visit(m)
    case .securityRequest(let m): try visitor.visit(m)
    case .pairingPublicKey(let m): try visitor.visit(m)
    case .pairingDHKeyCheck(let m): try visitor.visit(m)
    case .pairingKeypressNotification(let m): try visitor.visit(m)
    }
  }
}

/// A source of a message's parameters.
public protocol SMPMessageReader { mutating func read<M: SMPMessage>() throws(WireError) -> M }
extension WireDecoder: SMPMessageReader {
  public mutating func read<M: SMPMessage>() throws(WireError) -> M { try message(M.self) }
}
extension WireArbitrary: SMPMessageReader {
  public mutating func read<M: SMPMessage>() throws(WireError) -> M { try message(M.self) }
}

/// Receives one message and its type.
public protocol SMPMessageVisitor { mutating func visit<M: SMPMessage>(_ message: M) throws(WireError) }
extension WireEncoder: SMPMessageVisitor {
  public mutating func visit<M: SMPMessage>(_ message: M) throws(WireError) {
    var code = M.code
    try value("Code", &code)
    try self.message(message)
  }
}
extension WireDescriber: SMPMessageVisitor {
  public mutating func visit<M: SMPMessage>(_ message: M) throws(WireError) {
    var message = message
    try message.fields(&self)
  }
}
extension WireLayout: SMPMessageVisitor {
  public mutating func visit<M: SMPMessage>(_: M) throws(WireError) {
    var code = M.code
    value("Code", &code)
    record(M.self)
  }
}
private struct CodeAndName: SMPMessageVisitor {
  var code = SMPCode()
  var name: StaticString = ""
  mutating func visit<M: SMPMessage>(_: M) {
    code = M.code
    name = M.name
  }
}

extension SMPPDU {
  /// Appends the PDU, code first; ranges are copied from `source`. `output` is unchanged when this throws.
  public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe WireEncoder(&output, source)
    try visit(&encoder)
    unsafe encoder.commit(&output)
  }
  private var codeAndName: CodeAndName {
    var visitor = CodeAndName()
    do throws(WireError) { try visit(&visitor) } catch {}
    return visitor
  }
  public var code: SMPCode { codeAndName.code }
  /// The Specification's name: `Pairing Request`.
  public var name: StaticString { codeAndName.name }
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
