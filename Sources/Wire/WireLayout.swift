/// Names, offsets and widths of a message's fields, for packet diagrams and for tests of truncated messages.
public struct WireLayout: FieldVisitor {
  public struct Field: Sendable {
    public let label: String
    /// Offset in bits from the beginning of the message; `nil` after a field of variable length.
    public let bit: Int?
    /// Width in bits; `nil` if it is variable.
    public let width: Int?
    /// The fields of a list's entry, with offsets from its beginning; empty for other fields.
    public let entry: [Field]
  }
  public private(set) var fields: [Field] = []
  private var bit: Int? = 0

  public init() {}

  private mutating func add(_ label: StaticString, _ width: Int?, _ entry: [Field] = []) {
    fields.append(Field(label: "\(label)", bit: bit, width: width, entry: entry))
    bit = if let bit, let width { bit + width } else { nil }
  }
  /// Appends the fields of a record.
  public mutating func record<M: WireRecord>(_: M.Type) {
    var record = M()
    do throws(WireError) { try record.fields(&self) } catch {}
  }

  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) { add(label, 8 * V.width) }
  public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) { add(label, 8 * V.width) }
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) { add(label, width) }
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent) {
    if case .exactly(let count) = extent { add(label, 8 * count) } else { add(label, nil) }
  }
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    add(lengthLabel, 8 * C.width)
    add(label, nil)
  }
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) { add(label, nil) }
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape) {
    add(label, nil, E.layout)
  }
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    add(strideLabel, 8)
    add(label, nil, E.layout)
  }
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    add(countLabel, 8)
    add(label, nil, E.layout)
  }
}

extension WireRecord {
  /// The fields of this message, in wire order.
  public static var layout: [WireLayout.Field] {
    var layout = WireLayout()
    layout.record(Self.self)
    return layout.fields
  }
}
