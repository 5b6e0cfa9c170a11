/// The length of a record, as its fields declare it. All of it folds to constants, so that the decoder knows a list's
/// entries at compile time as far as possible.
public struct WireMeasure: FieldVisitor {
  /// The least number of octets.
  public var shortest = 0
  /// A field takes the rest: the length comes from outside.
  public var isOpen = false
  /// A field carries its own length.
  public var isCounted = false
  /// A field refuses some of the numbers that its width allows.
  public var isClosed = false
  /// A field is a UUID, which fills the rest with 2 or 16 octets.
  public var hasUUID = false
  @usableFromInline var bit = 0
  @inlinable @inline(__always) init() {}

  @inlinable @inline(__always) public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) {
    shortest &+= V.width
    if V.isClosed { isClosed = true }
  }
  @inlinable @inline(__always) public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) {
    shortest &+= V.width
  }
  @inlinable @inline(__always)
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) {
    bit &+= width
    shortest &+= bit &>> 3
    bit &= 7
    if V.isClosed { isClosed = true }
  }
  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent) {
    if case .exactly(let count) = extent { shortest &+= count } else { isOpen = true }
  }
  @inlinable @inline(__always)
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    shortest &+= C.width
    isCounted = true
  }
  @inlinable @inline(__always) public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) {
    shortest &+= 2
    isOpen = true
    hasUUID = true
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape) {
    isOpen = true
    isClosed = true
  }
  @inlinable @inline(__always)
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    shortest &+= 1
    isOpen = true
    isClosed = true
  }
  @inlinable @inline(__always)
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    shortest &+= 1
    isCounted = true
  }
}

extension WireRecord {
  /// The measure of this record's fields.
  @inlinable @inline(__always) public static var measure: WireMeasure {
    var measure = WireMeasure()
    var record = Self()
    do throws(WireError) { try record.fields(&measure) } catch {}
    return measure
  }
}
