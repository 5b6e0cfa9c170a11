import BindruneWire

/// Packets, first in, first out, in one block of memory, without allocation once warm.
///
/// A packet may be held back until an instant, which models latency. A later packet never overtakes.
///
/// Each packet is a header of 16 octets and its contents, padded to a multiple of eight, in contiguous memory. The
/// memory is raw: with safe arrays a packet in and out costs four times as much, and it is most of a packet's cost
/// here.
@safe struct PacketQueue: ~Copyable {
  private var room: UnsafeMutableRawPointer
  private var capacity = 0
  /// The waiting packets are in `start ..< end`.
  private var start = 0, end = 0
  /// Number of packets.
  private(set) var count = 0
  /// Octets waiting, without headers.
  private(set) var octets = 0
  /// When the last packet may leave.
  private var lastRelease = Instant.zero

  private static var headerCount: Int { 16 }

  /// Allocates memory with the first packet.
  init() { unsafe room = .allocate(byteCount: 0, alignment: 8) }
  deinit { unsafe room.deallocate() }

  var isEmpty: Bool { count == 0 }
  /// When the first packet may leave.
  var release: Instant? {
    isEmpty ? nil : Instant(nanoseconds: unsafe room.load(fromByteOffset: start, as: UInt64.self))
  }
  /// Octets of the first packet; zero when there is none.
  var frontCount: Int { isEmpty ? 0 : Int(unsafe room.load(fromByteOffset: start + 8, as: UInt32.self)) }
  /// The tag of the first packet.
  var tag: UInt8 { isEmpty ? 0 : unsafe room.load(fromByteOffset: start + 12, as: UInt8.self) }
  /// Lends the first packet; no octets when there is none.
  borrowing func withFront<Result>(_ body: (Span<UInt8>) -> Result) -> Result {
    let first = unsafe (room + min(start + Self.headerCount, capacity)).assumingMemoryBound(to: UInt8.self)
    return unsafe body(UnsafeBufferPointer(start: first, count: frontCount).span)
  }

  /// Appends a packet made of two parts.
  mutating func append(_ head: Span<UInt8>, _ body: Span<UInt8>, tag: UInt8 = 0, release: Instant = .zero) {
    let length = head.count + body.count
    let space = Self.headerCount + (length + 7) & ~7
    if space > capacity - end { makeRoom(for: space) }
    lastRelease = isEmpty ? release : max(release, lastRelease)
    let header = unsafe room + end
    unsafe header.storeBytes(of: lastRelease.nanoseconds, as: UInt64.self)
    unsafe header.storeBytes(of: UInt32(length), toByteOffset: 8, as: UInt32.self)
    unsafe header.storeBytes(of: tag, toByteOffset: 12, as: UInt8.self)
    unsafe Self.copy(head, to: header + Self.headerCount)
    unsafe Self.copy(body, to: header + Self.headerCount + head.count)
    end += space
    count += 1
    octets += length
  }
  private static func copy(_ bytes: Span<UInt8>, to place: UnsafeMutableRawPointer) {
    unsafe bytes.withUnsafeBytes { from in
      if let base = from.baseAddress { unsafe place.copyMemory(from: base, byteCount: from.count) }
    }
  }
  /// Moves waiting packets to the front, or into twice the memory if that would gain little.
  private mutating func makeRoom(for space: Int) {
    let waiting = end - start
    if waiting + space <= capacity / 2 {
      unsafe room.copyMemory(from: room + start, byteCount: waiting)
    } else {
      capacity = max(2 * capacity, waiting + space, 1024)
      let larger = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 8)
      unsafe larger.copyMemory(from: room + start, byteCount: waiting)
      unsafe room.deallocate()
      unsafe room = larger
    }
    start = 0
    end = waiting
  }

  mutating func removeFirst() {
    if isEmpty { return }
    let length = frontCount
    start += Self.headerCount + (length + 7) & ~7
    count -= 1
    octets -= length
    if isEmpty { (start, end) = (0, 0) }
  }
  /// Drops all packets, and keeps the memory.
  mutating func removeAll() { (start, end, count, octets) = (0, 0, 0, 0) }
}
