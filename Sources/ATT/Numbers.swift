import BindruneWire

/// A 16-bit UUID where the Specification allows no other: Find By Type Value. Vol 3, Part F, §3.4.3.3.
public struct UUID16: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
/// An attribute's number in its server's database: 0x0001…0xFFFF; 0x0000 is reserved. Vol 3, Part F, §3.2.2.
///
/// Also a record, for lists of handles.
public struct AttributeHandle: OpenNumber, WireRecord, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &self)
  }
}
/// The size of the UUIDs in a Find Information Response: all 16 bits or all 128. Vol 3, Part F, §3.4.3.2.
public enum InformationFormat: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case short = 1
  case long = 2
}
