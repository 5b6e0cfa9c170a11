public struct WireError: Error, BitwiseCopyable, Sendable, CustomStringConvertible {
  public enum Reason: UInt8, BitwiseCopyable, Sendable { case truncated, invalid, trailing, noRoom, unknown }
  public let field: StaticString
  public let needed: UInt16
  public let available: UInt16
  public let reason: Reason
  @inline(never) public init(_ reason: Reason, _ field: StaticString, needed: Int, available: Int) {
    self.field = field
    self.reason = reason
    self.needed = UInt16(clamping: needed)
    self.available = UInt16(clamping: available)
  }
  public var description: String { "\(reason) \"\(field)\": needed \(needed), available \(available)" }
}
