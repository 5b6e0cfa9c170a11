import BindruneControl
import BindruneTransport
import BindruneWire
import NIOCore

/// Visits the fields of a message, in their order on the socket: the reader, the writer and the table on the protocol's
/// page do. So each message is declared once. Decision 0066.
protocol MessageVisitor {
  mutating func begin(_ number: UInt8)
  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) throws(FrameError)

  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) throws(FrameError)
  mutating func text(_ value: inout String) throws(FrameError)
  mutating func octets(_ value: inout Data) throws(FrameError)
  mutating func octets(_ value: inout ByteBuffer) throws(FrameError)
  mutating func values(_ value: inout BrokerValues) throws(FrameError)
  mutating func uuid(_ value: inout UUID) throws(FrameError)
  mutating func list<Element: MessageField>(_ value: inout [Element]) throws(FrameError)
  mutating func optional<Wrapped: MessageField>(_ value: inout Wrapped?) throws(FrameError)
  mutating func record<Record: MessageRecord>(_ value: inout Record) throws(FrameError)
}

/// What a field may hold. It has one octet at least.
protocol MessageField {
  /// From what a reader begins.
  static var empty: Self { get }
  /// For the page.
  static var layout: String { get }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError)
}

/// Fields that stand together, after their length: a later version may append more, which an earlier one ignores.
protocol MessageRecord: MessageField {
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError)
}
extension MessageRecord {
  static var layout: String { "`\(Self.name)`" }
  static var name: String { String(reflecting: Self.self).split(separator: ".").dropFirst().joined(separator: ".") }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.record(&self) }
}

/// The messages of one direction.
protocol DeclaredMessage {
  associatedtype Number: RawRepresentable, CaseIterable where Number.RawValue == UInt8
  /// A message of this number, from which a reader begins.
  static func empty(_ number: Number) -> Self
  /// The number, and the fields behind it.
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError)
}
extension DeclaredMessage {
  /// Nil: a later version has this message.
  init?(_ frame: Frame) throws(FrameError) {
    guard let number = Number(rawValue: frame.number) else { return nil }
    self = .empty(number)
    var contents = frame.contents
    try fields(&contents)
  }
}

/// Reads fields from the octets of one frame. It trusts nothing: what it makes is at most some ten times as long as
/// they are.
struct MessageReader: MessageVisitor {
  private let buffer: ByteBuffer
  private var place: Int
  private var end: Int
  private let number: UInt8
  private var name: StaticString = ""

  /// `contents`: the readable octets.
  init(_ contents: ByteBuffer, of number: UInt8 = 0) {
    (buffer, place, end) = (contents, contents.readerIndex, contents.writerIndex)
    self.number = number
  }
  private var cut: FrameError { FrameError("a message \(number) that ends before or within \"\(name)\"") }

  mutating func begin(_ number: UInt8) {}
  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) throws(FrameError) {
    self.name = name
    try value.visit(&self)
  }
  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) throws(FrameError) {
    let count = MemoryLayout<Value>.size
    guard end - place >= count, let read = buffer.getInteger(at: place, endianness: .little, as: Value.self) else {
      throw cut
    }
    value = read
    place += count
  }
  /// The length, or the number, of what follows: at most as many as there are octets.
  private mutating func length() throws(FrameError) -> Int {
    var length: UInt32 = 0
    try integer(&length)
    guard Int(length) <= end - place else { throw cut }
    return Int(length)
  }
  mutating func text(_ value: inout String) throws(FrameError) {
    let count = try length()
    guard let read = buffer.getString(at: place, length: count) else { throw cut }
    value = read
    place += count
  }
  mutating func octets(_ value: inout Data) throws(FrameError) {
    let count = try length(), start = place - buffer.readerIndex
    value = unsafe buffer.withUnsafeReadableBytes { octets in
      guard count > 0, let first = octets.baseAddress else { return Data() }
      return unsafe Data(bytes: first + start, count: count)
    }
    place += count
  }
  mutating func octets(_ value: inout ByteBuffer) throws(FrameError) {
    let count = try length()
    guard let read = buffer.getSlice(at: place, length: count) else { throw cut }
    value = read
    place += count
  }
  mutating func values(_ value: inout BrokerValues) throws(FrameError) {
    let count = try length()
    guard let octets = buffer.getBytes(at: place, length: count), let read = BrokerValues(octets: octets) else {
      throw FrameError("values of \(count) octets, whose lengths do not add up")
    }
    value = read
    place += count
  }
  mutating func uuid(_ value: inout UUID) throws(FrameError) {
    guard end - place >= 16 else { throw cut }
    // `UUID()` would be a random one, which costs three system calls.
    var octets: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    let start = place - buffer.readerIndex
    unsafe buffer.withUnsafeReadableBytes { from in
      unsafe withUnsafeMutableBytes(of: &octets) {
        unsafe $0.copyMemory(from: .init(rebasing: from[start..<start + 16]))
      }
    }
    value = UUID(uuid: octets)
    place += 16
  }
  mutating func list<Element: MessageField>(_ value: inout [Element]) throws(FrameError) {
    let count = try length()
    value.removeAll()
    for _ in 0..<count {
      var element = Element.empty
      try element.visit(&self)
      value.append(element)
    }
  }
  mutating func optional<Wrapped: MessageField>(_ value: inout Wrapped?) throws(FrameError) {
    var isThere: UInt8 = 0
    try integer(&isThere)
    if isThere == 0 {
      value = nil
    } else {
      var wrapped = Wrapped.empty
      try wrapped.visit(&self)
      value = wrapped
    }
  }
  mutating func record<Record: MessageRecord>(_ value: inout Record) throws(FrameError) {
    let outer = end, count = try length()
    end = place + count
    try value.fields(&self)
    // What a later version has appended.
    (place, end) = (end, outer)
  }
}

/// Writes frames, one behind the other, into memory that it keeps.
struct MessageWriter: MessageVisitor {
  private(set) var buffer = ByteBuffer()
  private var start = 0
  var isEmpty: Bool { buffer.readableBytes == 0 }

  mutating func write(_ message: some DeclaredMessage) {
    var message = message
    // A writer refuses nothing.
    try? message.fields(&self)
    finish()
  }
  mutating func begin(_ number: UInt8) {
    start = buffer.writerIndex
    buffer.writeInteger(0, as: UInt32.self)
    buffer.writeInteger(number)
  }
  mutating func finish() {
    buffer.setInteger(UInt32(buffer.writerIndex - start - 4), at: start, endianness: .little)
  }
  /// `AppMessage.value`, of a value that is lent.
  mutating func writeValue(_ port: UInt32, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    begin(AppMessage.Number.value.rawValue)
    buffer.writeInteger(port, endianness: .little)
    buffer.writeInteger(handle.rawValue, endianness: .little)
    write(value)
    finish()
  }
  /// `sdu` of either side: `number` is the message's.
  mutating func writeSDU(_ number: UInt8, _ channel: UInt32, _ sdu: Span<UInt8>) {
    begin(number)
    buffer.writeInteger(channel, endianness: .little)
    write(sdu)
    finish()
  }
  private mutating func write(_ octets: Span<UInt8>) {
    buffer.writeInteger(UInt32(octets.count), endianness: .little)
    unsafe octets.withUnsafeBytes { _ = unsafe buffer.writeBytes($0) }
  }
  /// UTF-8 to the end of the frame: of a `DaemonFrameKind`, or of version 1.
  mutating func writeText(_ number: UInt8, _ text: String) {
    begin(number)
    buffer.writeString(text)
    finish()
  }
  /// Of a file.
  mutating func writeHeader(_ letters: String, _ format: UInt16) {
    buffer.writeString(letters)
    buffer.writeInteger(format, endianness: .little)
  }
  /// Forgets what has been written. While the channel still holds that, the next frames get other memory.
  mutating func clear() {
    if buffer.capacity > 1 << 16 { buffer = ByteBuffer() } else { buffer.clear() }
  }

  mutating func field<Value: MessageField>(_ name: StaticString, _ value: inout Value) throws(FrameError) {
    try value.visit(&self)
  }
  mutating func integer<Value: FixedWidthInteger>(_ value: inout Value) throws(FrameError) {
    buffer.writeInteger(value, endianness: .little)
  }
  mutating func text(_ value: inout String) throws(FrameError) {
    buffer.writeInteger(UInt32(value.utf8.count), endianness: .little)
    buffer.writeString(value)
  }
  mutating func octets(_ value: inout Data) throws(FrameError) {
    buffer.writeInteger(UInt32(value.count), endianness: .little)
    unsafe value.withUnsafeBytes { _ = unsafe buffer.writeBytes($0) }
  }
  mutating func octets(_ value: inout ByteBuffer) throws(FrameError) {
    buffer.writeInteger(UInt32(value.readableBytes), endianness: .little)
    buffer.writeImmutableBuffer(value)
  }
  mutating func values(_ value: inout BrokerValues) throws(FrameError) {
    buffer.writeInteger(UInt32(value.octets.count), endianness: .little)
    buffer.writeBytes(value.octets)
  }
  mutating func uuid(_ value: inout UUID) throws(FrameError) {
    _ = unsafe withUnsafeBytes(of: value.uuid) { unsafe buffer.writeBytes($0) }
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
    buffer.setInteger(UInt32(buffer.writerIndex - place - 4), at: place, endianness: .little)
  }
}
