/// Visits the fields of a message: ``WireDecoder`` reads them, ``WireEncoder`` writes them, ``WireDescriber`` prints
/// them, ``WireArbitrary`` generates them, ``WireLayout`` measures their places.
///
/// Every requirement is generic, even for a single type: a requirement that is not generic stays a call through the
/// witness table in other modules, and costs more than the whole message (measured: 504 instructions per PDU instead of
/// 117).
///
/// The labels are the Specification's own spelling, byte for byte.
public protocol FieldVisitor {
  /// A number of fixed width.
  mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError)
  /// A number of 16 or 32 octets.
  mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) throws(WireError)
  /// `width` bits of an octet or word, least significant bit first. The widths of a run add up to whole octets.
  mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError)
  /// Octets whose number is not in the message.
  mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent) throws(WireError)
  /// Octets preceded by their length.
  mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets)
    throws(WireError)
  /// A UUID that fills the rest: 2 or 16 octets.
  mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError)
  /// Entries up to the end.
  mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape) throws(WireError)
  /// Entries up to the end, after one octet with the length of each.
  mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  /// Entries preceded by their number in one octet.
  mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
}

extension FieldVisitor {
  /// Octets up to the end.
  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O) throws(WireError) {
    try octets(label, &value, .rest)
  }
  /// One entry or more up to the end.
  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>) throws(WireError) {
    try list(label, &value, .each())
  }
}

/// The length of a field whose length is not in the message.
public enum WireExtent: Sendable {
  /// Everything up to the end.
  case rest
  case exactly(Int)
  /// Everything up to the end except this many octets, which another field takes.
  case allBut(Int)
  /// Everything up to the end: the incomplete last entry of a list. Usually empty, and then omitted from the text.
  case cut
}

/// The entries of a list whose number is not in the message.
public struct WireListShape: Sendable {
  /// Octets per entry; 0 if the entry's own fields determine it.
  public var stride: Int
  /// The least number of entries.
  public var minimum: Int
  /// The last entry may be incomplete; the list excludes it and the next field takes it (``WireExtent/cut``).
  public var mayBeCut: Bool
  @inlinable @inline(__always)
  public static func each(_ stride: Int = 0, minimum: Int = 1, mayBeCut: Bool = false) -> WireListShape {
    WireListShape(stride: stride, minimum: minimum, mayBeCut: mayBeCut)
  }
  @inlinable @inline(__always) init(stride: Int, minimum: Int, mayBeCut: Bool) {
    self.stride = stride
    self.minimum = minimum
    self.mayBeCut = mayBeCut
  }
}

/// A message, or an entry of a list: a plain value whose fields are declared once, in wire order.
///
///     /// ATT_READ_BLOB_REQ. Vol 3, Part F, §3.4.4.5.
///     public struct ReadBlobRequest: WireRecord {
///       public var attributeHandle = AttributeHandle()
///       public var valueOffset: UInt16 = 0
///       @inlinable public init() {}
///       @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
///         try visit.value("Attribute Handle", &attributeHandle)
///         try visit.value("Value Offset", &valueOffset)
///       }
///     }
///
/// Both attributes matter to frequent messages: without them encoding takes twice, decoding 1.4 times as many
/// instructions, because the visitor is not specialised across modules.
public protocol WireRecord: BitwiseCopyable, Sendable {
  /// The value before decoding; its fields have the Specification's defaults, if any.
  init()
  /// Passes each field to `visit`, in wire order. A later field may depend on the value of an earlier one.
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError)
}
extension WireRecord {
  /// The record with the fields that `set` gives it: `ReadRSSI.with { $0.handle = handle }`.
  @inlinable @inline(__always) public static func with(_ set: (inout Self) -> Void) -> Self {
    var record = Self()
    set(&record)
    return record
  }
}
