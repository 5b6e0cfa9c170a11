import BindruneWire

/// Why a server refused a request. Vol 3, Part F, §3.4.1.1, Table 3.4.
///
/// Any number is legal: 0x80…0x9F are the application's own, 0xE0…0xFF the profiles' common ones.
public struct ATTError: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }

  /// The attribute handle is not valid on this server.
  @inlinable public static var invalidHandle: ATTError { ATTError(rawValue: 0x01) }
  /// The attribute cannot be read.
  @inlinable public static var readNotPermitted: ATTError { ATTError(rawValue: 0x02) }
  /// The attribute cannot be written.
  @inlinable public static var writeNotPermitted: ATTError { ATTError(rawValue: 0x03) }
  /// The PDU is invalid: wrong length, or contradictory parameters.
  @inlinable public static var invalidPDU: ATTError { ATTError(rawValue: 0x04) }
  /// Pairing with more protection is needed first.
  @inlinable public static var insufficientAuthentication: ATTError { ATTError(rawValue: 0x05) }
  /// The server does not support this request; also the answer to an opcode it does not know.
  @inlinable public static var requestNotSupported: ATTError { ATTError(rawValue: 0x06) }
  /// The offset is past the end of the value.
  @inlinable public static var invalidOffset: ATTError { ATTError(rawValue: 0x07) }
  /// The user of the server must allow it first.
  @inlinable public static var insufficientAuthorization: ATTError { ATTError(rawValue: 0x08) }
  /// Too many prepared writes are queued already.
  @inlinable public static var prepareQueueFull: ATTError { ATTError(rawValue: 0x09) }
  /// The handle range has no such attribute; the end of every discovery.
  @inlinable public static var attributeNotFound: ATTError { ATTError(rawValue: 0x0A) }
  /// The value fits a plain Read; Read Blob is unnecessary.
  @inlinable public static var attributeNotLong: ATTError { ATTError(rawValue: 0x0B) }
  /// The link is encrypted, with too short a key.
  @inlinable public static var encryptionKeySizeTooShort: ATTError { ATTError(rawValue: 0x0C) }
  /// A value of this length cannot be written here.
  @inlinable public static var invalidAttributeValueLength: ATTError { ATTError(rawValue: 0x0D) }
  /// An error without a code of its own.
  @inlinable public static var unlikelyError: ATTError { ATTError(rawValue: 0x0E) }
  /// The link must be encrypted first.
  @inlinable public static var insufficientEncryption: ATTError { ATTError(rawValue: 0x0F) }
  /// The attribute type does not group others.
  @inlinable public static var unsupportedGroupType: ATTError { ATTError(rawValue: 0x10) }
  /// The server has no room for this now.
  @inlinable public static var insufficientResources: ATTError { ATTError(rawValue: 0x11) }
  /// The database has changed: the client must discover it again.
  @inlinable public static var databaseOutOfSync: ATTError { ATTError(rawValue: 0x12) }
  /// The attribute does not accept this value.
  @inlinable public static var valueNotAllowed: ATTError { ATTError(rawValue: 0x13) }

  // MARK: Common profile and service error codes (Core Specification Supplement, Part B, §1.2)

  /// The server understood the write and refuses it.
  @inlinable public static var writeRequestRejected: ATTError { ATTError(rawValue: 0xFC) }
  /// The procedure needs a subscription, which is missing.
  @inlinable public static var clientCharacteristicConfigurationImproperlyConfigured: ATTError {
    ATTError(rawValue: 0xFD)
  }
  /// The previous procedure has not ended.
  @inlinable public static var procedureAlreadyInProgress: ATTError { ATTError(rawValue: 0xFE) }
  /// The value is outside what the profile allows.
  @inlinable public static var outOfRange: ATTError { ATTError(rawValue: 0xFF) }

  /// 0x80…0x9F: the service that sent it defines the meaning.
  @inlinable public var isApplicationError: Bool { 0x80...0x9F ~= rawValue }
  /// 0xE0…0xFF.
  @inlinable public var isCommonProfileError: Bool { rawValue >= 0xE0 }
  /// The Specification's name; `nil` for a code without one.
  public var name: StaticString? {
    switch rawValue {
    case 0x01: "Invalid Handle"
    case 0x02: "Read Not Permitted"
    case 0x03: "Write Not Permitted"
    case 0x04: "Invalid PDU"
    case 0x05: "Insufficient Authentication"
    case 0x06: "Request Not Supported"
    case 0x07: "Invalid Offset"
    case 0x08: "Insufficient Authorization"
    case 0x09: "Prepare Queue Full"
    case 0x0A: "Attribute Not Found"
    case 0x0B: "Attribute Not Long"
    case 0x0C: "Encryption Key Size Too Short"
    case 0x0D: "Invalid Attribute Value Length"
    case 0x0E: "Unlikely Error"
    case 0x0F: "Insufficient Encryption"
    case 0x10: "Unsupported Group Type"
    case 0x11: "Insufficient Resources"
    case 0x12: "Database Out Of Sync"
    case 0x13: "Value Not Allowed"
    case 0xFC: "Write Request Rejected"
    case 0xFD: "Client Characteristic Configuration Descriptor Improperly Configured"
    case 0xFE: "Procedure Already in Progress"
    case 0xFF: "Out of Range"
    default: nil
    }
  }
}

extension ATTError: CustomStringConvertible {
  /// `Read Not Permitted (0x02)`; `Application Error (0x80)`.
  public var description: String {
    let code = "(0x" + hexDigits(UInt64(rawValue), 2) + ")"
    if let name { return "\(name) \(code)" }
    if isApplicationError { return "Application Error \(code)" }
    return (isCommonProfileError ? "Common Profile Error " : "Reserved for Future Use ") + code
  }
  public var text: String { description }
}
