/// Encodes a message into reserved space. Octets and lists are copied from `source`, the bytes their ranges refer to.
///
/// A check against `capacity` precedes every store; nothing becomes part of the output before ``commit(_:)``.
@safe public struct WireEncoder: FieldVisitor {
  /// The beginning of the output; an output without room has no address.
  @usableFromInline let base: UnsafeMutableRawPointer?
  /// The offset of the free part.
  @usableFromInline let start: Int
  /// Octets written, and the capacity of the free part.
  @usableFromInline var at: Int
  @usableFromInline let capacity: Int
  @usableFromInline let source: UnsafeRawPointer?
  @usableFromInline let sourceCount: Int
  @usableFromInline var bit = 0
  @usableFromInline var pending: UInt64 = 0

  /// An encoder for the free part of `output`. It must not outlive either span; `commit` adds what it wrote to
  /// `output`.
  @unsafe @inlinable @inline(__always) public init(_ output: inout OutputRawSpan, _ source: Span<UInt8>) {
    let room = unsafe output.withUnsafeMutableBytes { bytes, _ in bytes.baseAddress }
    unsafe base = room
    start = output.byteCount
    at = 0
    capacity = output.freeCapacity
    let from = unsafe source.withUnsafeBytes { unsafe $0 }
    unsafe self.source = from.baseAddress
    sourceCount = from.count
  }
  @unsafe @inlinable @inline(__always) public func commit(_ output: inout OutputRawSpan) {
    unsafe output.withUnsafeMutableBytes { $1 &+= at }
  }
  @inlinable @inline(__always)
  public mutating func message<M: WireRecord>(_ message: M) throws(WireError) {
    var message = message
    try message.fields(&self)
  }

  // MARK: Writing

  @inlinable @inline(__always) func need(_ count: Int, _ label: StaticString) throws(WireError) {
    if capacity &- at < count { throw .noRoom(label, needed: count, available: capacity &- at) }
  }
  /// The address of the next octet. The caller guarantees room for one, so there is an address.
  @unsafe @inlinable @inline(__always) var next: UnsafeMutableRawPointer {
    unsafe base.unsafelyUnwrapped + start + at
  }
  @inlinable @inline(__always) mutating func store<I: FixedWidthInteger & BitwiseCopyable>(_ value: I) {
    unsafe next.storeBytes(of: value.littleEndian, as: I.self)
    at &+= MemoryLayout<I>.size
  }
  /// Writes the lower `width` octets of `value`; the width is a constant at every call.
  @inlinable @inline(__always) mutating func number(_ value: UInt64, _ width: Int) {
    switch width {
    case 1: store(UInt8(truncatingIfNeeded: value))
    case 2: store(UInt16(truncatingIfNeeded: value))
    case 3:
      store(UInt16(truncatingIfNeeded: value))
      store(UInt8(truncatingIfNeeded: value &>> 16))
    case 4: store(UInt32(truncatingIfNeeded: value))
    case 5:
      store(UInt32(truncatingIfNeeded: value))
      store(UInt8(truncatingIfNeeded: value &>> 32))
    case 6:
      store(UInt32(truncatingIfNeeded: value))
      store(UInt16(truncatingIfNeeded: value &>> 32))
    case 7:
      store(UInt32(truncatingIfNeeded: value))
      store(UInt16(truncatingIfNeeded: value &>> 32))
      store(UInt8(truncatingIfNeeded: value &>> 48))
    default: store(value)
    }
  }
  @inlinable @inline(__always)
  mutating func copy(_ offset: Int, _ count: Int, _ label: StaticString) throws(WireError) {
    try need(count, label)
    if offset &+ count > sourceCount { throw .outsideSource(label, end: offset &+ count, count: sourceCount) }
    if count > 0 { unsafe next.copyMemory(from: source.unsafelyUnwrapped + offset, byteCount: count) }
    at &+= count
  }
  /// A count or length that exceeds its field is an error, never truncated.
  @inlinable @inline(__always)
  mutating func count(_ value: Int, _ width: Int, _ label: StaticString) throws(WireError) {
    try need(width, label)
    if width < 4, value &>> (8 &* width) != 0 { throw .tooLarge(label, value) }
    number(UInt64(truncatingIfNeeded: value), width)
  }

  // MARK: Fields

  @inlinable @inline(__always)
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    if value.isUnset { throw .unset(label) }
    try need(V.width, label)
    number(value.wire, V.width)
  }

  @inlinable @inline(__always)
  public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    for index in 0..<V.words { store(value[word: index]) }
  }

  @inlinable @inline(__always)
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError) {
    let mask: UInt64 = (1 &<< UInt64(truncatingIfNeeded: width)) &- 1
    pending |= (value.wire & mask) &<< UInt64(truncatingIfNeeded: bit)
    bit &+= width
    while bit >= 8 {
      try need(1, label)
      store(UInt8(truncatingIfNeeded: pending))
      pending &>>= 8
      bit &-= 8
    }
  }

  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent)
    throws(WireError)
  {
    if case .exactly(let count) = extent, count != Int(value.octets.count) {
      throw .wrongLength(label, Int(value.octets.count), expected: count)
    }
    try copy(Int(value.octets.offset), Int(value.octets.count), label)
  }

  @inlinable @inline(__always)
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) throws(WireError) {
    try self.count(Int(value.count), C.width, lengthLabel)
    try copy(Int(value.offset), Int(value.count), label)
  }

  @inlinable @inline(__always)
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError) {
    switch value.uuid {
    case .short(let short):
      try need(2, label)
      store(short)
    case .long(let low, let high):
      try need(16, label)
      store(low)
      store(high)
    }
  }

  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape)
    throws(WireError)
  {
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
  @inlinable @inline(__always)
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try count(Int(value.stride), 1, strideLabel)
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
  @inlinable @inline(__always)
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try count(Int(value.count), 1, countLabel)
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
}

extension WireRecord {
  /// Appends the message to `output`; its ranges are copied from `source`. `output` is unchanged when this throws.
  @inlinable public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe WireEncoder(&output, source)
    try encoder.message(self)
    unsafe encoder.commit(&output)
  }
  /// For tests and for rare messages: allocates.
  public func encoded(from source: Span<UInt8>) throws(WireError) -> [UInt8] {
    var capacity = 64 &+ source.count
    while true {
      do throws(WireError) { return try encoded(from: source, capacity: capacity) } catch {
        // A message of many fields, or one that copies a range twice; none exceeds 64 KiB.
        guard case .noRoom = error.reason, capacity < 1 << 17 else { throw error }
        capacity *= 2
      }
    }
  }
  private func encoded(from source: Span<UInt8>, capacity: Int) throws(WireError) -> [UInt8] {
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: capacity, alignment: 8)
    defer { unsafe room.deallocate() }
    var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
    try encode(into: &output, from: source)
    let count = unsafe output.finalize(for: room)
    return unsafe Array(room[..<count])
  }
}

extension WireList {
  /// Appends `entries` to `arena`, from which a message will be encoded. Allocates.
  ///
  /// Entries without a length of their own must all have the same length (traps otherwise: it is the caller's list).
  public init(_ entries: some Sequence<Element>, in arena: inout [UInt8]) throws(WireError) {
    let saysItsLength = Element.measure.isCounted
    var bytes: [UInt8] = []
    var count = 0
    var stride = 0
    for entry in entries {
      let encoded = try entry.encoded(from: arena.span)
      precondition(count == 0 || encoded.count == stride || saysItsLength, "entries of one list are equally long")
      bytes += encoded
      count += 1
      stride = encoded.count
    }
    try self.init(arena.count, bytes.count, stride: saysItsLength ? 0 : stride, count: count, "")
    arena += bytes
  }
}
