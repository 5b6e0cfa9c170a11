import BindruneWire

public struct ATTOpcode: OpenNumber, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
public struct ATTError: OpenNumber {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
public struct UUID16: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
public struct AttributeHandle: OpenNumber, WireRecord {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &self)
  }
}
public enum InformationFormat: UInt8, ClosedNumber, BitwiseCopyable, Sendable { case short = 1, long = 2 }
