import BindruneWire
import Foundation
import NIOCore

@testable import BindruneBroker

/// The text of a message: `scan: Services: [1 6157;], Solicited Services: [], Allows Duplicates: 0`. It follows the
/// declaration and no name of Swift.
struct MessageText: MessageVisitor {
  private(set) var text = ""
  private var isFirst = true

  static func of(_ message: some DeclaredMessage) throws -> String {
    var message = message, text = MessageText()
    try message.fields(&text)
    return text.text
  }
  mutating func begin(_ number: UInt8) {}
  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) throws(FrameError) {
    text += (isFirst ? "" : ", ") + "\(name): "
    isFirst = false
    try value.visit(&self)
  }
  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) {
    text += (text.last?.isNumber == true ? " " : "") + "\(value)"
  }
  mutating func text(_ value: inout String) { text += value.debugDescription }
  private mutating func hex(_ octets: some Sequence<UInt8>) {
    text += "<" + octets.map { String(format: "%02X", $0) }.joined(separator: " ") + ">"
  }
  mutating func octets(_ value: inout Data) { hex(value) }
  mutating func octets(_ value: inout ByteBuffer) { hex(value.readableBytesView) }
  mutating func values(_ value: inout BrokerValues) { for value in value { hex(value) } }
  mutating func uuid(_ value: inout UUID) { text += "\(value)" }
  mutating func list<Element: MessageField>(_ value: inout [Element]) throws(FrameError) {
    text += "["
    for var element in value {
      try element.visit(&self)
      text += ";"
    }
    text += "]"
  }
  mutating func optional<Wrapped: MessageField>(_ value: inout Wrapped?) throws(FrameError) {
    if value == nil { text += "none" } else { try value?.visit(&self) }
  }
  mutating func record<Record: MessageRecord>(_ value: inout Record) throws(FrameError) {
    text += "{"
    isFirst = true
    try value.fields(&self)
    text += "}"
    isFirst = false
  }
}

/// The names and types of the fields, for the page.
struct MessageLayout: MessageVisitor {
  private(set) var fields: [String] = []
  private(set) var number: UInt8?

  init(of message: some DeclaredMessage) throws(FrameError) {
    var message = message
    try message.fields(&self)
  }
  init(of record: some MessageRecord) {
    var record = record
    // An empty one need not be valid.
    try? record.fields(&self)
  }
  mutating func begin(_ number: UInt8) { self.number = number }
  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) {
    fields.append("\(name): \(Value.layout)")
  }
  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) {}
  mutating func text(_ value: inout String) {}
  mutating func octets(_ value: inout Data) {}
  mutating func octets(_ value: inout ByteBuffer) {}
  mutating func values(_ value: inout BrokerValues) {}
  mutating func uuid(_ value: inout UUID) {}
  mutating func list<Element: MessageField>(_ value: inout [Element]) {}
  mutating func optional<Wrapped: MessageField>(_ value: inout Wrapped?) {}
  mutating func record<Record: MessageRecord>(_ value: inout Record) {}
}

/// Writes a frame as a later version may: behind the fields of the message, and of each record in it, stand more.
struct LaterWriter: MessageVisitor {
  private var buffer = ByteBuffer()

  static func frame(_ message: some DeclaredMessage) throws(FrameError) -> [UInt8] {
    var message = message, writer = LaterWriter()
    try message.fields(&writer)
    writer.buffer.writeBytes([0xDE, 0xAD, 0xBE])
    var frame = ByteBuffer()
    frame.writeInteger(UInt32(writer.buffer.readableBytes), endianness: .little)
    frame.writeImmutableBuffer(writer.buffer)
    return Array(frame.readableBytesView)
  }
  /// Its octets by the present writer.
  private mutating func present(_ write: (inout MessageWriter) throws(FrameError) -> Void) throws(FrameError) {
    var writer = MessageWriter()
    try write(&writer)
    buffer.writeImmutableBuffer(writer.buffer)
  }
  mutating func begin(_ number: UInt8) { buffer.writeInteger(number) }
  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) throws(FrameError) {
    try value.visit(&self)
  }
  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) {
    buffer.writeInteger(value, endianness: .little)
  }
  mutating func text(_ value: inout String) throws(FrameError) {
    try present { writer throws(FrameError) in try writer.text(&value) }
  }
  mutating func octets(_ value: inout Data) throws(FrameError) {
    try present { writer throws(FrameError) in try writer.octets(&value) }
  }
  mutating func octets(_ value: inout ByteBuffer) throws(FrameError) {
    try present { writer throws(FrameError) in try writer.octets(&value) }
  }
  mutating func values(_ value: inout BrokerValues) throws(FrameError) {
    try present { writer throws(FrameError) in try writer.values(&value) }
  }
  mutating func uuid(_ value: inout UUID) throws(FrameError) {
    try present { writer throws(FrameError) in try writer.uuid(&value) }
  }
  mutating func list<Element: MessageField>(_ value: inout [Element]) throws(FrameError) {
    buffer.writeInteger(UInt32(value.count), endianness: .little)
    for var element in value { try element.visit(&self) }
  }
  mutating func optional<Wrapped: MessageField>(_ value: inout Wrapped?) throws(FrameError) {
    buffer.writeInteger(value == nil ? 0 : 1, as: UInt8.self)
    try value?.visit(&self)
  }
  mutating func record<Record: MessageRecord>(_ value: inout Record) throws(FrameError) {
    let place = buffer.writerIndex
    buffer.writeInteger(0, as: UInt32.self)
    try value.fields(&self)
    buffer.writeBytes([0xFF, 0xFF])
    buffer.setInteger(UInt32(buffer.writerIndex - place - 4), at: place, endianness: .little)
  }
}
