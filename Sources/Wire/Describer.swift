/// Writes a message as text: `Attribute Handle: 0x0003, Value Offset: 22`.
@safe public struct Describer: FieldVisitor {
  public private(set) var text = ""
  let packet: UnsafeBufferPointer<UInt8>
  init(_ packet: UnsafeBufferPointer<UInt8>) { unsafe self.packet = packet }

  mutating func label(_ label: StaticString) {
    if !text.isEmpty, text.utf8.last != UInt8(ascii: "{") { text += ", " }
    unsafe text += String(
      decoding: UnsafeBufferPointer(start: label.utf8Start, count: label.utf8CodeUnitCount), as: UTF8.self)
    text += ": "
  }
  mutating func hex(_ v: UInt64, digits: Int) { text += hexDigits(v, digits) }
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) {
    self.label(label)
    text += value.text
  }
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) {
    self.label(label)
    text += value.text
  }
  mutating func bytes(_ o: Octets) {
    let packet = unsafe packet.span
    if Int(o.offset) + Int(o.count) > packet.count {
      text += "(not in this packet)"
      return
    }
    for i in 0..<Int(o.count) {
      if i > 0 { text += " " }
      hex(UInt64(packet[Int(o.offset) + i]), digits: 2)
    }
  }
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: Extent) {
    self.label(label)
    bytes(value.octets)
  }
  public mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    self.label(countLabel)
    text += "\(value.count)"
    self.label(label)
    bytes(value)
  }
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) {
    self.label(label)
    if case .short = value.uuid { text += "0x" }
    text += value.uuid.description
  }
  mutating func entries<E>(_ label: StaticString, _ list: List<E>) {
    self.label(label)
    text += "["
    var cursor = list.cursor, first = true
    let whole = unsafe packet.span
    while var entry = cursor.next(in: whole) {
      text += first ? "{" : ", {"
      first = false
      do throws(WireError) { try entry.fields(&self) } catch {}
      text += "}"
    }
    text += "]"
  }
  public mutating func list<E>(_ label: StaticString, _ value: inout List<E>, _ shape: ListShape) {
    entries(label, value)
  }
  public mutating func list<E>(_ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>) {
    self.label(lengthLabel)
    text += "\(value.stride)"
    entries(label, value)
  }
  public mutating func list<E>(_ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>) {
    self.label(countLabel)
    text += "\(value.count)"
    entries(label, value)
  }
}
extension WireRecord {
  public func description(in packet: Span<UInt8>) -> String {
    unsafe packet.withUnsafeBufferPointer { bytes in
      var describer = unsafe Describer(bytes), record = self
      do throws(WireError) { try record.fields(&describer) } catch {}
      return describer.text
    }
  }
}
