/// Stands for ATT's: a number that SendPort keeps.
public struct AttributeHandle: Sendable, Hashable {
  public let rawValue: UInt16
  public init(rawValue: UInt16) { self.rawValue = rawValue }
}
