/// Writes a message into reserved space. Octets and lists are copied from `source`, the bytes their ranges refer to.
@safe public struct Encoder: FieldVisitor {
  @usableFromInline let out: UnsafeMutableRawPointer
  @usableFromInline var at: Int
  @usableFromInline let capacity: Int
  @usableFromInline let source: UnsafeRawPointer?
  @usableFromInline let sourceCount: Int
  @usableFromInline var bit = 0, pending: UInt64 = 0
  @inlinable @inline(__always) func need(_ n: Int, _ label: StaticString) throws(WireError) {
    if capacity &- at < n { throw WireError(.noRoom, label, needed: n, available: capacity &- at) }
  }
  @inlinable @inline(__always) mutating func store<I: FixedWidthInteger & BitwiseCopyable>(_ v: I) {
    unsafe out.storeBytes(of: v.littleEndian, toByteOffset: at, as: I.self)
    at &+= MemoryLayout<I>.size
  }
  @inlinable @inline(__always) mutating func number(_ v: UInt64, _ width: Int) {
    switch width {
    case 1: store(UInt8(truncatingIfNeeded: v))
    case 2: store(UInt16(truncatingIfNeeded: v))
    case 3:
      store(UInt16(truncatingIfNeeded: v))
      store(UInt8(truncatingIfNeeded: v &>> 16))
    case 4: store(UInt32(truncatingIfNeeded: v))
    case 6:
      store(UInt32(truncatingIfNeeded: v))
      store(UInt16(truncatingIfNeeded: v &>> 32))
    default: store(v)
    }
  }
  @inlinable @inline(__always) mutating func copy(_ offset: Int, _ n: Int, _ label: StaticString) throws(WireError) {
    try need(n, label)
    if offset &+ n > sourceCount { throw WireError(.invalid, label, needed: offset &+ n, available: sourceCount) }
    if n > 0 { unsafe out.advanced(by: at).copyMemory(from: source.unsafelyUnwrapped + offset, byteCount: n) }
    at &+= n
  }
  @inlinable @inline(__always)
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    number(value.wire, V.width)
  }
  @inlinable @inline(__always)
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError) {
    pending |= (value.wire & ((1 &<< UInt64(truncatingIfNeeded: width)) &- 1)) &<< UInt64(truncatingIfNeeded: bit)
    bit &+= width
    while bit >= 8 {
      try need(1, label)
      store(UInt8(truncatingIfNeeded: pending))
      pending &>>= 8
      bit &-= 8
    }
  }
  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: Extent)
    throws(WireError)
  {
    if case .exactly(let n) = extent, n != Int(value.octets.count) {
      throw WireError(.invalid, label, needed: n, available: Int(value.octets.count))
    }
    try copy(Int(value.octets.offset), Int(value.octets.count), label)
  }
  @inlinable @inline(__always)
  public mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets
  ) throws(WireError) {
    try need(C.width, countLabel)
    number(UInt64(value.count), C.width)
    try copy(Int(value.offset), Int(value.count), label)
  }
  @inlinable @inline(__always)
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError) {
    switch value.uuid {
    case .short(let v):
      try need(2, label)
      store(v)
    case .long(let low, let high):
      try need(16, label)
      store(low)
      store(high)
    }
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout List<E>, _ shape: ListShape) throws(WireError) {
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>)
    throws(WireError)
  {
    try need(1, lengthLabel)
    store(UInt8(truncatingIfNeeded: value.stride))
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>)
    throws(WireError)
  {
    try need(1, countLabel)
    store(UInt8(truncatingIfNeeded: value.count))
    try copy(Int(value.offset), Int(value.byteCount), label)
  }
  @inlinable @inline(__always)
  public mutating func message<M: WireRecord>(_ message: M) throws(WireError) {
    var message = message
    try message.fields(&self)
  }
  /// An encoder over the free part of `output`. It must not outlive either span; `commit` makes what it wrote part of `output`.
  @unsafe @inlinable @inline(__always) public init(_ output: inout OutputRawSpan, _ source: Span<UInt8>) {
    let free = unsafe output.withUnsafeMutableBytes { bytes, count in
      unsafe (bytes.baseAddress.unsafelyUnwrapped + count, bytes.count &- count)
    }
    unsafe self.out = free.0
    at = 0
    unsafe capacity = free.1
    let from = unsafe source.withUnsafeBytes { unsafe $0 }
    unsafe self.source = from.baseAddress
    sourceCount = from.count
  }
  @unsafe @inlinable @inline(__always) public func commit(_ output: inout OutputRawSpan) {
    unsafe output.withUnsafeMutableBytes { $1 &+= at }
  }
}

extension WireRecord {
  /// Appends the message to `output`; its ranges are copied from `source`. `output` is unchanged when this throws.
  @inlinable public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe Encoder(&output, source)
    try encoder.message(self)
    unsafe encoder.commit(&output)
  }
  /// For tests and for messages that are not hot: allocates.
  public func encoded(from source: Span<UInt8>) throws(WireError) -> [UInt8] {
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 &+ source.count, alignment: 8)
    defer { unsafe room.deallocate() }
    var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
    var encoder = unsafe Encoder(&output, source)
    try encoder.message(self)
    unsafe encoder.commit(&output)
    let n = unsafe output.finalize(for: room)
    return unsafe Array(room[..<n])
  }
}
extension Octets {
  /// Puts `bytes` at the end of `arena`, the bytes a message will be encoded from.
  public init(_ bytes: some Collection<UInt8>, in arena: inout [UInt8]) {
    self.init(arena.count, bytes.count)
    arena += bytes
  }
}
extension List {
  /// Puts `entries` at the end of `arena`, the bytes a message will be encoded from.
  public init(_ entries: some Sequence<Element>, in arena: inout [UInt8]) throws(WireError) {
    var bytes: [UInt8] = [], count = 0, last = 0
    for entry in entries {
      let e = try entry.encoded(from: arena.span)
      bytes += e
      count += 1
      precondition(count == 1 || e.count == last || Element.measure.isCounted, "entries of one list are equally long")
      last = e.count
    }
    self.init(arena.count, bytes.count, stride: Element.measure.isCounted ? 0 : last, count: count)
    arena += bytes
  }
}
