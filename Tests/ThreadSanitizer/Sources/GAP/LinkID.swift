/// Stands for GAP's: a number that SendPort keeps.
public struct LinkID: Sendable, Hashable {
  public let rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }
}
