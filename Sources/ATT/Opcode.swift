import BindruneWire

/// The first octet of every PDU: six bits of method and two flags. Vol 3, Part F, §3.3.1.
public struct ATTOpcode: OpenNumber, Hashable, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }

  // MARK: The 31 opcodes (Vol 3, Part F, §3.4.8)

  @inlinable public static var errorResponse: ATTOpcode { 0x01 }
  @inlinable public static var exchangeMTURequest: ATTOpcode { 0x02 }
  @inlinable public static var exchangeMTUResponse: ATTOpcode { 0x03 }
  @inlinable public static var findInformationRequest: ATTOpcode { 0x04 }
  @inlinable public static var findInformationResponse: ATTOpcode { 0x05 }
  @inlinable public static var findByTypeValueRequest: ATTOpcode { 0x06 }
  @inlinable public static var findByTypeValueResponse: ATTOpcode { 0x07 }
  @inlinable public static var readByTypeRequest: ATTOpcode { 0x08 }
  @inlinable public static var readByTypeResponse: ATTOpcode { 0x09 }
  @inlinable public static var readRequest: ATTOpcode { 0x0A }
  @inlinable public static var readResponse: ATTOpcode { 0x0B }
  @inlinable public static var readBlobRequest: ATTOpcode { 0x0C }
  @inlinable public static var readBlobResponse: ATTOpcode { 0x0D }
  @inlinable public static var readMultipleRequest: ATTOpcode { 0x0E }
  @inlinable public static var readMultipleResponse: ATTOpcode { 0x0F }
  @inlinable public static var readByGroupTypeRequest: ATTOpcode { 0x10 }
  @inlinable public static var readByGroupTypeResponse: ATTOpcode { 0x11 }
  @inlinable public static var writeRequest: ATTOpcode { 0x12 }
  @inlinable public static var writeResponse: ATTOpcode { 0x13 }
  @inlinable public static var prepareWriteRequest: ATTOpcode { 0x16 }
  @inlinable public static var prepareWriteResponse: ATTOpcode { 0x17 }
  @inlinable public static var executeWriteRequest: ATTOpcode { 0x18 }
  @inlinable public static var executeWriteResponse: ATTOpcode { 0x19 }
  @inlinable public static var handleValueNotification: ATTOpcode { 0x1B }
  @inlinable public static var handleValueIndication: ATTOpcode { 0x1D }
  @inlinable public static var handleValueConfirmation: ATTOpcode { 0x1E }
  @inlinable public static var readMultipleVariableRequest: ATTOpcode { 0x20 }
  @inlinable public static var readMultipleVariableResponse: ATTOpcode { 0x21 }
  @inlinable public static var multipleHandleValueNotification: ATTOpcode { 0x23 }
  @inlinable public static var writeCommand: ATTOpcode { 0x52 }
  @inlinable public static var signedWriteCommand: ATTOpcode { 0xD2 }

  /// All opcodes of the Specification, in its order.
  public static var all: [ATTOpcode] { (0...0xFF).map { ATTOpcode(rawValue: $0) }.filter { $0.isKnown } }

  // MARK: Properties of an opcode's PDU

  /// The method, bits 0…5.
  @inlinable public var method: UInt8 { rawValue & 0x3F }
  /// The Command Flag, bit 6: there is no response, and a server ignores an unknown command.
  @inlinable public var isCommand: Bool { rawValue & 0x40 != 0 }
  /// A command or a notification: no PDU answers or confirms it. Vol 3, Part F, §3.3.
  @inlinable @inline(__always) public var isUnanswered: Bool { isCommand || rawValue == 0x1B || rawValue == 0x23 }
  /// The Authentication Signature Flag, bit 7: the last 12 octets are a signature.
  @inlinable public var hasSignature: Bool { rawValue & 0x80 != 0 }

  /// The six types of PDU. Vol 3, Part F, §3.3.
  public enum Kind: BitwiseCopyable, Sendable {
    case command, request, response, notification, indication, confirmation
  }
  /// The type of PDU; `nil` for an undefined opcode. One without the Command Flag is answered with Request Not
  /// Supported (§3.3), so every undefined opcode counts as a command or a request.
  @inlinable public var kind: Kind? {
    switch rawValue {
    case _ where isCommand: .command
    case 0x1B, 0x23: .notification
    case 0x1D: .indication
    case 0x1E: .confirmation
    case 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20: .request
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x17, 0x19, 0x21: .response
    default: nil
    }
  }
  /// True for the 31 opcodes of the Specification.
  @inlinable public var isKnown: Bool { isCommand ? rawValue == 0x52 || rawValue == 0xD2 : kind != nil }
  /// The opcode that answers a request, apart from an error; `nil` for any other PDU. Vol 3, Part F, §3.4.9.
  @inlinable public var response: ATTOpcode? { kind == .request ? next : nil }
  /// True if it answers `request`, which is a request.
  @inlinable @inline(__always) func answers(_ request: ATTOpcode) -> Bool { self == request.next }
  /// The opcode of a response is its request's plus one.
  @inlinable @inline(__always) var next: ATTOpcode { ATTOpcode(rawValue: rawValue &+ 1) }

  /// The Specification's name, `ATT_READ_REQ`; `nil` for an undefined opcode.
  public var name: StaticString? {
    do throws(WireError) {
      var defaults = Defaults()
      return try ATTPDU(self, &defaults).name
    } catch {
      return nil
    }
  }
}

extension ATTOpcode: CustomStringConvertible {
  /// `ATT_READ_REQ (0x0A)`; `Unknown PDU (0x14)`, `Unknown Command (0x60)`.
  public var description: String {
    let code = "(0x" + hexDigits(UInt64(rawValue), 2) + ")"
    if let name { return "\(name) \(code)" }
    return (isCommand ? "Unknown Command " : "Unknown PDU ") + code
  }
  public var text: String { description }
}

/// The default parameters.
private struct Defaults: ATTMessageReader {
  func read<M: ATTMessage>() -> M { M() }
}
