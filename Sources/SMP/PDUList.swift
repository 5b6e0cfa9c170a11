// Written by Scripts/messages from the declarations of the messages: do not edit.

import BindruneWire

/// One SMP PDU. Vol 3, Part H, §3.3.
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

  /// The PDU of `code` with the parameters from `reader`; a reserved code is a `WireError`.
  public init(_ code: SMPCode, _ reader: inout some WireMessageReader) throws(WireError) {
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
  public func visit(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    switch self {
    case .pairingRequest(let message): try visitor.visit(message)
    case .pairingResponse(let message): try visitor.visit(message)
    case .pairingConfirm(let message): try visitor.visit(message)
    case .pairingRandom(let message): try visitor.visit(message)
    case .pairingFailed(let message): try visitor.visit(message)
    case .encryptionInformation(let message): try visitor.visit(message)
    case .centralIdentification(let message): try visitor.visit(message)
    case .identityInformation(let message): try visitor.visit(message)
    case .identityAddressInformation(let message): try visitor.visit(message)
    case .signingInformation(let message): try visitor.visit(message)
    case .securityRequest(let message): try visitor.visit(message)
    case .pairingPublicKey(let message): try visitor.visit(message)
    case .pairingDHKeyCheck(let message): try visitor.visit(message)
    case .pairingKeypressNotification(let message): try visitor.visit(message)
    }
  }
}

extension SMPCode {
  @inlinable public static var pairingRequest: SMPCode { 0x01 }
  @inlinable public static var pairingResponse: SMPCode { 0x02 }
  @inlinable public static var pairingConfirm: SMPCode { 0x03 }
  @inlinable public static var pairingRandom: SMPCode { 0x04 }
  @inlinable public static var pairingFailed: SMPCode { 0x05 }
  @inlinable public static var encryptionInformation: SMPCode { 0x06 }
  @inlinable public static var centralIdentification: SMPCode { 0x07 }
  @inlinable public static var identityInformation: SMPCode { 0x08 }
  @inlinable public static var identityAddressInformation: SMPCode { 0x09 }
  @inlinable public static var signingInformation: SMPCode { 0x0A }
  @inlinable public static var securityRequest: SMPCode { 0x0B }
  @inlinable public static var pairingPublicKey: SMPCode { 0x0C }
  @inlinable public static var pairingDHKeyCheck: SMPCode { 0x0D }
  @inlinable public static var pairingKeypressNotification: SMPCode { 0x0E }
}

extension SMPCode {
  /// The 14 codes of the Specification; all others are reserved, and their PDUs ignored (§3.3).
  public static var all: [SMPCode] {
    [
      .pairingRequest,
      .pairingResponse,
      .pairingConfirm,
      .pairingRandom,
      .pairingFailed,
      .encryptionInformation,
      .centralIdentification,
      .identityInformation,
      .identityAddressInformation,
      .signingInformation,
      .securityRequest,
      .pairingPublicKey,
      .pairingDHKeyCheck,
      .pairingKeypressNotification,
    ]
  }
  public var isKnown: Bool {
    switch rawValue {
    case 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E: true
    default: false
    }
  }
}
