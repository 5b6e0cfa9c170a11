/// Bytes that are not the message they should be: which field, and what was wrong with it.
public struct WireError: Error, BitwiseCopyable, Sendable, CustomStringConvertible {
  public enum Reason: UInt8, BitwiseCopyable, Sendable {
    /// The packet ends before the field does; with a list, within an entry.
    case truncated
    /// The field has a value that the Specification does not allow there.
    case invalid
    /// Octets are left after the last field, or after the length that a field gives.
    case trailing
    /// Encoding only: the output has no room for the field.
    case noRoom
    /// A number that names no message; `available` is that number.
    case unknown
  }
  /// The Specification's name of the field. For `trailing` it is the field that says the length; empty where the message
  /// ends with its last field.
  public let field: StaticString
  /// Octets that the field wants, at most 65,535.
  public let needed: UInt16
  /// Octets that are there, at most 65,535.
  public let available: UInt16
  public let reason: Reason

  @inline(never) public init(_ reason: Reason, _ field: StaticString, needed: Int, available: Int) {
    self.field = field
    self.reason = reason
    self.needed = UInt16(clamping: needed)
    self.available = UInt16(clamping: available)
  }
  /// `truncated "Value Offset": needed 2, available 1`.
  public var description: String {
    switch reason {
    case .trailing where field.utf8CodeUnitCount == 0: "trailing: \(available) octets after the last field"
    case .unknown: "unknown \"\(field)\": 0x\(hexDigits(UInt64(available), 2))"
    case .truncated, .invalid, .trailing, .noRoom: "\(reason) \"\(field)\": needed \(needed), available \(available)"
    }
  }
}
