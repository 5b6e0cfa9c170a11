import BindruneWire

/// A 16-bit UUID where the Specification has no room for another: Find By Type Value. Vol 3, Part F, §3.4.3.3.
public struct UUID16: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
/// Where an attribute stands in its server's database: 0x0001…0xFFFF; 0x0000 is reserved. Vol 3, Part F, §3.2.2.
///
/// It is a record too, so that a list of handles needs no other.
public struct AttributeHandle: OpenNumber, WireRecord, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &self)
  }
}
/// Which UUIDs a Find Information Response holds: all have 16 bits or all have 128. Vol 3, Part F, §3.4.3.2.
public enum InformationFormat: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case short = 1
  case long = 2
}
