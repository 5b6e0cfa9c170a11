import BindruneWire

/// The first octet of every PDU: six bits of method and two flags. Vol 3, Part F, §3.3.1.
public struct ATTOpcode: OpenNumber, Hashable, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }

  /// All opcodes of the Specification, in its order.
  public static var all: [ATTOpcode] { (0...0xFF).map { ATTOpcode(rawValue: $0) }.filter { $0.isKnown } }

  // MARK: Properties of an opcode's PDU

  /// The method, bits 0…5.
  @inlinable public var method: UInt8 { rawValue & 0x3F }
  /// The Command Flag, bit 6: there is no response, and a server ignores an unknown command.
  @inlinable public var isCommand: Bool { rawValue & 0x40 != 0 }
  /// The Authentication Signature Flag, bit 7: the last 12 octets are a signature.
  @inlinable public var hasSignature: Bool { rawValue & 0x80 != 0 }

  /// The six types of PDU. Vol 3, Part F, §3.3.
  public enum Kind: BitwiseCopyable, Sendable {
    case command, request, response, notification, indication, confirmation
  }
  /// The opcode that answers a request, apart from an error; `nil` for any other PDU. Vol 3, Part F, §3.4.9.
  @inlinable public var response: ATTOpcode? { kind == .request ? next : nil }
  /// True if it answers `request`, which is a request.
  @inlinable @inline(__always) func answers(_ request: ATTOpcode) -> Bool { self == request.next }
  /// The opcode of a response is its request's plus one.
  @inlinable @inline(__always) var next: ATTOpcode { ATTOpcode(rawValue: rawValue &+ 1) }

  /// The Specification's name, `ATT_READ_REQ`; `nil` for an undefined opcode.
  public var name: StaticString? {
    do throws(WireError) {
      var defaults = WireDefaults()
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
