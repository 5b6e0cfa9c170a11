/// A message is invalid: the field, and the reason.
public struct WireError: Error, BitwiseCopyable, Sendable, CustomStringConvertible {
  /// Numbers of octets are at most 65,535.
  public enum Reason: BitwiseCopyable, Sendable, Equatable {
    /// The packet ends before the field does; with a list, within an entry.
    case truncated(needed: UInt16, available: UInt16)
    /// The field has a value that the Specification forbids. No field that refuses values is wider than 32 bits.
    case invalid(UInt32)
    /// A field's octets, or a list's entries, have a forbidden length.
    case wrongLength(UInt16, expected: UInt16)
    /// Octets are left after the last field, or after the length that the field gives.
    case trailing(UInt16)
    /// A number that identifies no message.
    case unknown(UInt32)
    /// Encoding only: the output has no room for the field.
    case noRoom(needed: UInt16, available: UInt16)
    /// Encoding only: the field has no default, and no value has been set.
    case unset
    /// A count or a length that exceeds its field.
    case tooLarge(UInt32)
    /// Encoding only: the field's range ends at `end`, beyond the `count` octets of the source.
    case outsideSource(end: UInt16, count: UInt16)
  }
  /// The Specification's name of the field. For `trailing` it is the field with the length; empty if the message ends
  /// with its last field.
  public let field: StaticString
  public let reason: Reason

  // Every field of every message calls these: code outside of the call sites stays out of the hot paths.

  @inline(never) public static func truncated(_ field: StaticString, needed: Int, available: Int) -> WireError {
    WireError(
      field: field, reason: .truncated(needed: UInt16(clamping: needed), available: UInt16(clamping: available)))
  }
  @inline(never) public static func invalid(_ field: StaticString, _ value: UInt64) -> WireError {
    WireError(field: field, reason: .invalid(UInt32(clamping: value)))
  }
  @inline(never) public static func wrongLength(_ field: StaticString, _ count: Int, expected: Int) -> WireError {
    WireError(field: field, reason: .wrongLength(UInt16(clamping: count), expected: UInt16(clamping: expected)))
  }
  @inline(never) public static func trailing(_ field: StaticString, _ count: Int) -> WireError {
    WireError(field: field, reason: .trailing(UInt16(clamping: count)))
  }
  @inline(never) public static func unknown(_ field: StaticString, _ number: Int) -> WireError {
    WireError(field: field, reason: .unknown(UInt32(clamping: number)))
  }
  @inline(never) public static func noRoom(_ field: StaticString, needed: Int, available: Int) -> WireError {
    WireError(field: field, reason: .noRoom(needed: UInt16(clamping: needed), available: UInt16(clamping: available)))
  }
  @inline(never) public static func unset(_ field: StaticString) -> WireError {
    WireError(field: field, reason: .unset)
  }
  @inline(never) public static func tooLarge(_ field: StaticString, _ number: Int) -> WireError {
    WireError(field: field, reason: .tooLarge(UInt32(clamping: number)))
  }
  @inline(never) public static func outsideSource(_ field: StaticString, end: Int, count: Int) -> WireError {
    WireError(field: field, reason: .outsideSource(end: UInt16(clamping: end), count: UInt16(clamping: count)))
  }

  /// `truncated "Value Offset": needed 2, available 1`; `invalid "Format": 0x03`.
  public var description: String {
    switch reason {
    case .truncated(let needed, let available):
      "truncated \"\(field)\": needed \(needed), available \(available)"
    case .invalid(let value): "invalid \"\(field)\": 0x\(hexDigits(UInt64(value), 2))"
    case .wrongLength(let count, let expected): "wrong length \"\(field)\": \(count), expected \(expected)"
    case .trailing(let count) where field.utf8CodeUnitCount == 0: "trailing: \(count) octets after the last field"
    case .trailing(let count): "trailing \"\(field)\": \(count) octets more than it says"
    case .unknown(let number): "unknown \"\(field)\": 0x\(hexDigits(UInt64(number), 2))"
    case .noRoom(let needed, let available): "no room \"\(field)\": needed \(needed), available \(available)"
    case .unset: "unset \"\(field)\""
    case .tooLarge(let number): "too large \"\(field)\": \(number)"
    case .outsideSource(let end, let count): "outside the source \"\(field)\": ends at \(end) of \(count)"
    }
  }
}
