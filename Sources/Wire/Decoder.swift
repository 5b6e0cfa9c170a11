/// Reads a message out of a packet. The only file that reads through an unsafe pointer: it lives inside `decode`'s closure.
@safe public struct Decoder: FieldVisitor {
  @usableFromInline let base: UnsafeRawPointer
  @usableFromInline var at: Int
  @usableFromInline let end: Int
  @usableFromInline var bit = 0
  @inlinable @inline(__always) init(_ base: UnsafeRawPointer, _ at: Int, _ end: Int) {
    unsafe self.base = base
    self.at = at
    self.end = end
  }
  @inlinable @inline(__always) func load<I: FixedWidthInteger & BitwiseCopyable>(_ offset: Int, _: I.Type) -> UInt64 {
    UInt64(truncatingIfNeeded: I(littleEndian: unsafe base.loadUnaligned(fromByteOffset: offset, as: I.self)))
  }
  @inlinable @inline(__always) func number(_ offset: Int, _ width: Int) -> UInt64 {
    switch width {
    case 1: load(offset, UInt8.self)
    case 2: load(offset, UInt16.self)
    case 3: load(offset, UInt16.self) | load(offset &+ 2, UInt8.self) &<< 16
    case 4: load(offset, UInt32.self)
    case 6: load(offset, UInt32.self) | load(offset &+ 4, UInt16.self) &<< 32
    default: load(offset, UInt64.self)
    }
  }
  @inlinable @inline(__always) func need(_ n: Int, _ label: StaticString) throws(WireError) {
    if end &- at < n { throw WireError(.truncated, label, needed: n, available: end &- at) }
  }
  @inlinable @inline(__always)
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    guard let v = V(wire: number(at, V.width)) else {
      throw WireError(.invalid, label, needed: V.width, available: end &- at)
    }
    value = v
    at &+= V.width
  }
  @inlinable @inline(__always)
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError) {
    let octets = (bit &+ width &+ 7) &>> 3
    try need(octets, label)
    var raw: UInt64 = 0
    for i in 0..<octets { raw |= load(at &+ i, UInt8.self) &<< UInt64(truncatingIfNeeded: 8 &* i) }
    guard let v = V(wire: (raw &>> UInt64(truncatingIfNeeded: bit)) & ((1 &<< UInt64(truncatingIfNeeded: width)) &- 1))
    else {
      throw WireError(.invalid, label, needed: octets, available: end &- at)
    }
    value = v
    bit &+= width
    at &+= bit &>> 3
    bit &= 7
  }
  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: Extent)
    throws(WireError)
  {
    let n: Int
    switch extent {
    case .rest: n = end &- at
    case .exactly(let count):
      try need(count, label)
      n = count
    case .allBut(let count): n = max(0, end &- at &- count)
    }
    value.octets = Octets(at, n)
    at &+= n
  }
  @inlinable @inline(__always)
  public mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets
  ) throws(WireError) {
    try need(C.width, countLabel)
    let n = Int(truncatingIfNeeded: number(at, C.width))
    at &+= C.width
    try need(n, label)
    value = Octets(at, n)
    at &+= n
  }
  @inlinable @inline(__always)
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError) {
    switch end &- at {
    case 2: value.uuid = .short(UInt16(truncatingIfNeeded: load(at, UInt16.self)))
    case 16: value.uuid = .long(low: load(at, UInt64.self), high: load(at &+ 8, UInt64.self))
    case let n: throw WireError(n < 2 ? .truncated : .invalid, label, needed: n < 2 ? 2 : 16, available: n)
    }
    at = end
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout List<E>, _ shape: ListShape) throws(WireError) {
    let n = end &- at, measure = E.measure
    if measure.isCounted && !measure.isOpen {
      try need(measure.shortest &* shape.minimum, label)
      value = List(at, n, stride: 0)
      while at < end {
        var entry = E()
        try entry.fields(&self)
      }
    } else {
      let stride = shape.stride == 0 ? measure.shortest : shape.stride
      try need(stride &* shape.minimum, label)
      try whole(n, stride, label)
      value = List(at, n, stride: stride)
    }
    at = end
  }
  @inlinable @inline(__always) func whole(_ n: Int, _ stride: Int, _ label: StaticString) throws(WireError) {
    let left = UInt32(truncatingIfNeeded: n) % UInt32(truncatingIfNeeded: stride)
    if left != 0 { throw WireError(.truncated, label, needed: stride, available: Int(left)) }
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>)
    throws(WireError)
  {
    try need(1, lengthLabel)
    let stride = Int(load(at, UInt8.self))
    if stride < E.measure.shortest {
      throw WireError(.invalid, lengthLabel, needed: E.measure.shortest, available: stride)
    }
    at &+= 1
    try need(stride, label)
    try whole(end &- at, stride, label)
    value = List(at, end &- at, stride: stride)
    at = end
  }
  @inlinable @inline(__always)
  public mutating func list<E>(_ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>)
    throws(WireError)
  {
    try need(1, countLabel)
    let n = Int(load(at, UInt8.self))
    at &+= 1
    let start = at
    let measure = E.measure
    if measure.isCounted {
      for _ in 0..<n {
        var entry = E()
        try entry.fields(&self)
      }
    } else {
      try need(n &* measure.shortest, label)
      at &+= n &* measure.shortest
    }
    value = List(start, at &- start, stride: 0, count: n)
  }
  @inlinable @inline(__always) func finish() throws(WireError) {
    if at != end { throw WireError(.trailing, "", needed: 0, available: end &- at) }
  }
  @inlinable @inline(__always)
  public mutating func message<M: WireRecord>(_: M.Type) throws(WireError) -> M {
    var message = M()
    try message.fields(&self)
    try finish()
    return message
  }
  @unsafe @inlinable @inline(__always) init(_ packet: Span<UInt8>, _ at: Int, _ end: Int) {
    // An empty span has no address; nothing is read through this one, because `end` is 0.
    let base = unsafe packet.withUnsafeBytes { $0.baseAddress }
    unsafe self.init(base ?? UnsafeRawPointer(bitPattern: 8)!, at, end)
  }
  /// Decodes one message that fills `packet` from `start` to `end`. Ranges in the message refer to the whole `packet`.
  ///
  /// `start...end` must lie within the packet (traps otherwise): it is the caller's own arithmetic, not the peer's.
  @inlinable @inline(__always) public static func decode<M: WireRecord>(
    _: M.Type = M.self, _ packet: Span<UInt8>, from start: Int = 0, to end: Int? = nil
  ) throws(WireError) -> M {
    let end = end ?? packet.count
    precondition(0 <= start && start <= end && end <= packet.count)
    defer { extendLifetime(packet) }
    var decoder = unsafe Decoder(packet, start, end)
    return try decoder.message(M.self)
  }
  /// A decoder of `packet`. It must not outlive the span.
  @unsafe @inlinable @inline(__always) public init(_ packet: Span<UInt8>) throws(WireError) {
    if packet.isEmpty { throw WireError(.truncated, "Opcode", needed: 1, available: 0) }
    unsafe self.init(packet, 0, packet.count)
  }
}

/// What a record's fields say about its length.
public struct Measure: FieldVisitor {
  /// The least number of octets.
  public var shortest = 0
  /// A field takes whatever is left: the length comes from outside.
  public var isOpen = false
  /// A field says its own length.
  public var isCounted = false
  @usableFromInline var bit = 0
  @inlinable @inline(__always) init() {}
  @inlinable @inline(__always) public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) {
    shortest &+= V.width
  }
  @inlinable @inline(__always) public mutating func bits<V: WireValue>(
    _ label: StaticString, _ value: inout V, _ width: Int
  ) {
    bit &+= width
    shortest &+= bit &>> 3
    bit &= 7
  }
  @inlinable @inline(__always) public mutating func octets<O: OctetsField>(
    _ label: StaticString, _ value: inout O, _ extent: Extent
  ) {
    switch extent {
    case .rest: isOpen = true
    case .exactly(let n): shortest &+= n
    case .allBut: isOpen = true
    }
  }
  @inlinable @inline(__always) public mutating func octets<C: WireValue>(
    _ countLabel: StaticString, _ count: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    shortest &+= C.width
    isCounted = true
  }
  @inlinable @inline(__always) public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) {
    shortest &+= 2
    isOpen = true
  }
  @inlinable @inline(__always) public mutating func list<E>(
    _ label: StaticString, _ value: inout List<E>, _ shape: ListShape
  ) { isOpen = true }
  @inlinable @inline(__always) public mutating func list<E>(
    _ lengthLabel: StaticString, _ label: StaticString, _ value: inout List<E>
  ) {
    shortest &+= 1
    isOpen = true
  }
  @inlinable @inline(__always) public mutating func list<E>(
    _ countLabel: StaticString, _ label: StaticString, counted value: inout List<E>
  ) {
    shortest &+= 1
    isCounted = true
  }
}
extension WireRecord {
  @inlinable @inline(__always) public static var measure: Measure {
    var measure = Measure(), record = Self()
    do throws(WireError) { try record.fields(&measure) } catch {}
    return measure
  }
}
