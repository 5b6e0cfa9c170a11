/// Decodes a message from a packet.
///
/// The only place that reads through an unsafe pointer: a check against `end` precedes every read. The stack holds the
/// pointer instead of the span, because a switch inside a span's closure is not inlined (measured: 44 instructions per
/// PDU); the creator of a decoder keeps the span alive while it is in use.
@safe public struct WireDecoder: FieldVisitor {
  @usableFromInline let base: UnsafeRawPointer
  @usableFromInline var at: Int
  @usableFromInline let end: Int
  @usableFromInline var bit = 0

  @inlinable @inline(__always) init(_ base: UnsafeRawPointer, _ at: Int, _ end: Int) {
    unsafe self.base = base
    self.at = at
    self.end = end
  }
  @unsafe @inlinable @inline(__always) init(_ packet: Span<UInt8>, _ at: Int, _ end: Int) {
    // An empty span has no address; `end` is 0, so nothing is read through it.
    let base = unsafe packet.withUnsafeBytes { $0.baseAddress }
    unsafe self.init(base ?? UnsafeRawPointer(bitPattern: 8).unsafelyUnwrapped, at, end)
  }
  /// A decoder of `packet`. It must not outlive the span: `defer { extendLifetime(packet) }`.
  @unsafe @inlinable @inline(__always) public init(_ packet: Span<UInt8>) throws(WireError) {
    if packet.isEmpty { throw .truncated("Opcode", needed: 1, available: 0) }
    unsafe self.init(packet, 0, packet.count)
  }

  /// Decodes one message that fills `packet` from `start` to `end`. Ranges in the message refer to the whole `packet`.
  ///
  /// `start...end` must lie within the packet (traps otherwise): the caller computes it, not the peer.
  @inlinable @inline(__always) public static func decode<M: WireRecord>(
    _: M.Type = M.self, _ packet: Span<UInt8>, from start: Int = 0, to end: Int? = nil
  ) throws(WireError) -> M {
    let end = end ?? packet.count
    precondition(0 <= start && start <= end && end <= packet.count)
    defer { extendLifetime(packet) }
    var decoder = unsafe WireDecoder(packet, start, end)
    return try decoder.message(M.self)
  }
  /// Decodes the message that fills the rest of the packet.
  @inlinable @inline(__always)
  public mutating func message<M: WireRecord>(_: M.Type) throws(WireError) -> M {
    var message = M()
    try message.fields(&self)
    try finish()
    return message
  }
  @inlinable @inline(__always) func finish() throws(WireError) {
    if at != end { throw .trailing("", end &- at) }
  }

  // MARK: Reading

  @inlinable @inline(__always) func load<I: FixedWidthInteger & BitwiseCopyable>(_ offset: Int, _: I.Type) -> UInt64 {
    UInt64(truncatingIfNeeded: I(littleEndian: unsafe base.loadUnaligned(fromByteOffset: offset, as: I.self)))
  }
  /// `width` octets at `offset`; the width is a constant at every call, so one case remains.
  @inlinable @inline(__always) func number(_ offset: Int, _ width: Int) -> UInt64 {
    switch width {
    case 1: load(offset, UInt8.self)
    case 2: load(offset, UInt16.self)
    case 3: load(offset, UInt16.self) | load(offset &+ 2, UInt8.self) &<< 16
    case 4: load(offset, UInt32.self)
    case 5: load(offset, UInt32.self) | load(offset &+ 4, UInt8.self) &<< 32
    case 6: load(offset, UInt32.self) | load(offset &+ 4, UInt16.self) &<< 32
    case 7: load(offset, UInt32.self) | load(offset &+ 4, UInt16.self) &<< 32 | load(offset &+ 6, UInt8.self) &<< 48
    default: load(offset, UInt64.self)
    }
  }
  @inlinable @inline(__always) func need(_ count: Int, _ label: StaticString) throws(WireError) {
    if end &- at < count { throw .truncated(label, needed: count, available: end &- at) }
  }

  // MARK: Fields

  @inlinable @inline(__always)
  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    let raw = number(at, V.width)
    guard let found = V(wire: raw) else { throw .invalid(label, raw) }
    value = found
    at &+= V.width
  }

  @inlinable @inline(__always)
  public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    for index in 0..<V.words {
      value[word: index] = load(at, UInt64.self)
      at &+= 8
    }
  }

  @inlinable @inline(__always)
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError) {
    let octets = (bit &+ width &+ 7) &>> 3
    try need(octets, label)
    var raw: UInt64 = 0
    for i in 0..<octets { raw |= load(at &+ i, UInt8.self) &<< UInt64(truncatingIfNeeded: 8 &* i) }
    let mask: UInt64 = (1 &<< UInt64(truncatingIfNeeded: width)) &- 1
    raw = (raw &>> UInt64(truncatingIfNeeded: bit)) & mask
    guard let found = V(wire: raw) else { throw .invalid(label, raw) }
    value = found
    bit &+= width
    at &+= bit &>> 3
    bit &= 7
  }

  @inlinable @inline(__always)
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent)
    throws(WireError)
  {
    let count: Int
    switch extent {
    case .rest, .cut: count = end &- at
    case .exactly(let exact):
      try need(exact, label)
      count = exact
    case .allBut(let left): count = max(0, end &- at &- left)
    }
    value.octets = Octets(at, count)
    at &+= count
  }

  @inlinable @inline(__always)
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) throws(WireError) {
    try need(C.width, lengthLabel)
    let count = Int(truncatingIfNeeded: number(at, C.width))
    at &+= C.width
    try need(count, label)
    value = Octets(at, count)
    at &+= count
  }

  @inlinable @inline(__always)
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError) {
    switch end &- at {
    case 2: value.uuid = .short(UInt16(truncatingIfNeeded: load(at, UInt16.self)))
    case 16: value.uuid = .long(low: load(at, UInt64.self), high: load(at &+ 8, UInt64.self))
    case let left where left < 2: throw .truncated(label, needed: 2, available: left)
    case let left: throw .wrongLength(label, left, expected: 16)
    }
    at = end
  }

  // MARK: Lists

  // Decoding checks only a list's shape: the cursor decodes each entry again. If an entry could still be invalid then
  // (it has its own length, or a field that refuses numbers), all entries are decoded here too and discarded, so that a
  // peer's bytes never reach the cursor's trap. `WireMeasure` folds to constants: entries of fixed length, which are
  // nearly all, pay nothing for the check.

  @inlinable @inline(__always)
  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape)
    throws(WireError)
  {
    let count = end &- at
    let measure = E.measure
    let start = at
    if measure.isCounted && !measure.isOpen {
      try need(measure.shortest &* shape.minimum, label)
      while at < end {
        let entryStart = at
        var entry = E()
        do throws(WireError) { try entry.fields(&self) } catch {
          guard shape.mayBeCut, case .truncated = error.reason else { throw error }
          at = entryStart
          break
        }
      }
      value = try WireList(start, at &- start, stride: 0, label)
    } else {
      let stride = shape.stride == 0 ? measure.shortest : shape.stride
      try need(stride &* shape.minimum, label)
      try whole(count, stride, label)
      if measure.isCounted || measure.isClosed { try check(E.self, stride) }
      value = try WireList(start, count, stride: stride, label)
      at = end
    }
  }

  @inlinable @inline(__always)
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try need(1, strideLabel)
    let measure = E.measure
    let stride = Int(load(at, UInt8.self))
    // Entries of fixed length have that length; others have at least one octet, or the list would be endless.
    let least = max(measure.shortest, 1)
    if stride < least || (!measure.isOpen && stride != least) {
      throw .wrongLength(strideLabel, stride, expected: least)
    }
    at &+= 1
    try need(stride, label)
    try whole(end &- at, stride, label)
    if measure.isCounted || measure.isClosed || measure.hasUUID { try check(E.self, stride) }
    value = try WireList(at, end &- at, stride: stride, label)
    at = end
  }

  @inlinable @inline(__always)
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try need(1, countLabel)
    let count = Int(load(at, UInt8.self))
    at &+= 1
    let start = at
    let measure = E.measure
    if measure.isCounted || measure.isClosed || measure.isOpen {
      for _ in 0..<count {
        var entry = E()
        try entry.fields(&self)
      }
    } else {
      try need(count &* measure.shortest, label)
      at &+= count &* measure.shortest
    }
    value = try WireList(start, at &- start, stride: 0, count: count, label)
  }

  @inlinable @inline(__always) func whole(_ count: Int, _ stride: Int, _ label: StaticString) throws(WireError) {
    let left = UInt32(truncatingIfNeeded: count) % UInt32(truncatingIfNeeded: stride)
    if left != 0 { throw .truncated(label, needed: stride, available: Int(left)) }
  }
  /// Decodes every entry of `stride` octets up to the end, only to find errors. `at` is unchanged.
  @inlinable func check<E: WireRecord>(_: E.Type, _ stride: Int) throws(WireError) {
    var start = at
    while start < end {
      var entry = unsafe WireDecoder(base, start, start &+ stride)
      _ = try entry.message(E.self)
      start &+= stride
    }
  }
}
