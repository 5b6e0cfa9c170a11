/// Prints a message, in the only text form of the project: `Attribute Handle: 0x0003, Value Offset: 22`.
///
/// Numbers in the text of their type, octets as hex or `(empty)`, lists as `[{…}, {…}]`. Counts and lengths are printed
/// too, as the Specification has them, although the message does not store them.
@safe public struct WireDescriber: FieldVisitor {
  public private(set) var text = ""
  private let packet: UnsafeBufferPointer<UInt8>

  /// A describer of messages whose ranges refer to `packet`. It must not outlive the span.
  @unsafe public init(_ packet: Span<UInt8>) { unsafe self.packet = packet.withUnsafeBufferPointer { unsafe $0 } }

  private mutating func write(_ label: StaticString, _ value: String) {
    if !text.isEmpty, text.utf8.last != UInt8(ascii: "{") { text += ", " }
    unsafe text += String(
      decoding: UnsafeBufferPointer(start: label.utf8Start, count: label.utf8CodeUnitCount), as: UTF8.self)
    text += ": " + value
  }
  private func hex(_ octets: Octets) -> String {
    guard unsafe octets.range.upperBound <= packet.count else { return "(not in this packet)" }
    if octets.isEmpty { return "(empty)" }
    return unsafe hexText(packet.span.extracting(octets.range))
  }
  private mutating func entries<E>(_ label: StaticString, _ list: WireList<E>) {
    guard unsafe list.octets.range.upperBound <= packet.count else { return write(label, "(not in this packet)") }
    write(label, "[")
    var cursor = list.cursor
    var separator = ""
    while var entry = unsafe cursor.next(in: packet.span) {
      text += separator + "{"
      separator = ", "
      do throws(WireError) { try entry.fields(&self) } catch {}
      text += "}"
    }
    text += "]"
  }

  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) { write(label, value.text) }
  public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) {
    if V.isSecret { return write(label, "(secret, \(V.width) octets)") }
    let octets = (0..<V.width).map { UInt8(truncatingIfNeeded: value[word: $0 / 8] >> UInt64($0 % 8 * 8)) }
    write(label, hexText(octets.span))
  }
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) {
    write(label, value.text)
  }
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent) {
    if case .cut = extent, value.octets.isEmpty { return }
    write(label, hex(value.octets))
  }
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    write(lengthLabel, String(value.count))
    write(label, hex(value))
  }
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) {
    if case .short = value.uuid { write(label, "0x\(value.uuid)") } else { write(label, "\(value.uuid)") }
  }
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape) {
    entries(label, value)
  }
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    write(strideLabel, String(value.stride))
    entries(label, value)
  }
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>) {
    write(countLabel, String(value.count))
    entries(label, value)
  }
}

extension WireRecord {
  /// The fields as text; ranges are looked up in `packet`.
  public func description(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    var describer = unsafe WireDescriber(packet)
    var record = self
    do throws(WireError) { try record.fields(&describer) } catch {}
    return describer.text
  }
}
