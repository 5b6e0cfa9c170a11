/// Names, offsets and widths of a message's fields, in bits: packet diagrams.
public struct Layout: FieldVisitor {
  public struct Field: Sendable {
    public let label: String, bit: Int?, width: Int?
    public let entry: [Field]
  }
  public private(set) var fields: [Field] = []
  var bit: Int? = 0
  mutating func add(_ label: StaticString, _ width: Int?, _ entry: [Field] = []) {
    fields.append(Field(label: "\(label)", bit: bit, width: width, entry: entry))
    bit = if let bit, let width { bit + width } else { nil }
  }
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) { add(label, 8 * V.width) }
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) { add(label, width) }
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: Extent) {
    if case .exactly(let n) = extent { add(label, 8 * n) } else { add(label, nil) }
  }
  public mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    add(countLabel, 8 * C.width)
    add(label, nil)
  }
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) { add(label, nil) }
  public mutating func list<E>(_ label: StaticString, _ value: inout List<E>, _ shape: ListShape) {
    add(label, nil, E.layout)
  }
  public mutating func list<E>(_ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>) {
    add(lengthLabel, 8)
    add(label, nil, E.layout)
  }
  public mutating func list<E>(_ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>) {
    add(countLabel, 8)
    add(label, nil, E.layout)
  }
}
extension WireRecord {
  public static var layout: [Layout.Field] {
    var layout = Layout(), record = Self()
    do throws(WireError) { try record.fields(&layout) } catch {}
    return layout.fields
  }
}
