extension OutputRawSpan {
  /// Appends `bytes`; the caller has checked that `freeCapacity` suffices (traps otherwise).
  @inlinable @inline(__always) public mutating func append(contentsOf bytes: Span<UInt8>) {
    precondition(bytes.count <= freeCapacity)
    // An empty copy may have no destination: an empty span need not have an address.
    if bytes.isEmpty { return }
    unsafe withUnsafeMutableBytes { room, count in
      unsafe bytes.withUnsafeBytes { from in
        let to = unsafe room.baseAddress.unsafelyUnwrapped + count
        unsafe to.copyMemory(from: from.baseAddress.unsafelyUnwrapped, byteCount: from.count)
      }
      count &+= bytes.count
    }
  }
  /// Appends a number, least significant octet first, at any offset; traps without room.
  ///
  /// As octets, because `append(_:as:)` needs memory aligned for the type. Each case is still a single store.
  @inlinable @inline(__always) public mutating func append(littleEndian value: UInt16) {
    unsafe append(unsafeBitCast(value.littleEndian, to: [2 of UInt8].self), as: [2 of UInt8].self)
  }
  @inlinable @inline(__always) public mutating func append(littleEndian value: UInt32) {
    unsafe append(unsafeBitCast(value.littleEndian, to: [4 of UInt8].self), as: [4 of UInt8].self)
  }
  @inlinable @inline(__always) public mutating func append(littleEndian value: UInt64) {
    unsafe append(unsafeBitCast(value.littleEndian, to: [8 of UInt8].self), as: [8 of UInt8].self)
  }
  /// Overwrites two octets written earlier, for a length that is known only later.
  @inlinable @inline(__always) public mutating func patch(_ value: UInt16, at offset: Int) {
    precondition(offset &+ 2 <= byteCount)
    unsafe withUnsafeMutableBytes { room, _ in
      unsafe room.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt16.self)
    }
  }
  /// An octet written earlier; traps beyond the last.
  @inlinable @inline(__always) public func octet(at offset: Int) -> UInt8 {
    unsafe bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
  }
  /// Removes everything after the first `count` octets.
  @inlinable @inline(__always) public mutating func truncate(to count: Int) {
    precondition(count <= byteCount)
    removeLast(byteCount &- count)
  }
  /// Appends what `write` appends, or nothing if it throws. `start` is the offset at which that begins.
  @inlinable @inline(__always)
  public mutating func appendAll<Failure: Error>(
    _ write: (_ output: inout OutputRawSpan, _ start: Int) throws(Failure) -> Void
  ) throws(Failure) {
    let start = byteCount
    do throws(Failure) { try write(&self, start) } catch {
      truncate(to: start)
      throw error
    }
  }
}

/// Reusable room for one packet: a driver, a test or a simulator passes it to `nextPacket(into:)`.
///
///     var packet = PacketBuffer(capacity: 1024)
///     while packet.fill({ host.nextPacket(into: &$0, now: now) }) { send(packet.bytes) }
@safe public struct PacketBuffer: ~Copyable {
  @usableFromInline let room: UnsafeMutableRawBufferPointer
  /// Octets of the packet last written.
  public var count: Int { written }
  @usableFromInline var written = 0

  /// `capacity` octets; 1,100 hold any packet this stack sends.
  public init(capacity: Int = 1100) { unsafe room = .allocate(byteCount: capacity, alignment: 16) }
  deinit { unsafe room.deallocate() }

  /// Empties the buffer and lets `write` fill it. Returns the result of `write`.
  @inlinable @inline(__always)
  public mutating func fill<Failure: Error>(
    _ write: (inout OutputRawSpan) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    written = 0
    var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
    let wrote = try write(&output)
    written = unsafe output.finalize(for: room)
    return wrote
  }
  /// Empties the buffer.
  public mutating func removeAll() { written = 0 }
  /// Lends the packet.
  @inlinable @inline(__always)
  public borrowing func withBytes<Result, Failure: Error>(
    _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let bytes = unsafe UnsafeBufferPointer(start: room.baseAddress?.assumingMemoryBound(to: UInt8.self), count: written)
    return try unsafe body(bytes.span)
  }
  /// A copy of the packet.
  public var bytes: [UInt8] { unsafe Array(room[..<written]) }
}
