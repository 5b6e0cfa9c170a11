/// Whoever visits a message's fields decides what happens to them.
public protocol FieldVisitor {
  /// A number of fixed width.
  mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError)
  /// Part of an octet or word, least significant bit first. The widths of a run add up to whole octets.
  mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError)
  /// Octets up to the end, or exactly `count`, or all but the last `leaving`.
  mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: Extent) throws(WireError)
  /// Octets after their own length.
  mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets) throws(WireError)
  /// A UUID that fills the rest: 2 or 16 octets.
  mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError)
  /// Entries up to the end.
  mutating func list<E>(_ label: StaticString, _ value: inout List<E>, _ shape: ListShape) throws(WireError)
  /// Entries up to the end, after one octet that says how long each is.
  mutating func list<E>(_ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>) throws(WireError)
  /// Entries after their number.
  mutating func list<E>(_ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>)
    throws(WireError)
}

extension FieldVisitor {
  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O) throws(WireError) {
    try octets(label, &value, .rest)
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout List<E>) throws(WireError) {
    try list(label, &value, .each())
  }
}

public enum Extent: Sendable { case rest, exactly(Int), allBut(Int) }
/// At least `minimum` entries, each of `stride` octets (0: what the entry's own fields say).
public struct ListShape: Sendable {
  public var stride: Int, minimum: Int
  @inlinable @inline(__always) public static func each(_ stride: Int = 0, minimum: Int = 1) -> ListShape {
    ListShape(stride: stride, minimum: minimum)
  }
  @inlinable @inline(__always) init(stride: Int, minimum: Int) {
    self.stride = stride
    self.minimum = minimum
  }
}

/// A message, or an entry of a list: its fields in wire order.
public protocol WireRecord: BitwiseCopyable, Sendable {
  init()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError)
}
