import BindruneWire
import BindruneHCI

/// # Fragmenter
/// **Overview**: cuts the frames of one link into ACL packets of the length that the controller accepts (Vol 3, Part A,
/// §7.2.1), one packet a call.
///
/// **Function**: the payload is written once, directly into the first packet, after room for the headers. `seal` fills
/// the headers in, removes what exceeds this packet and keeps it for `writeNext`. So a frame that fits, as most do, is
/// never copied here.
///
/// **Phases**: empty → pending (fragments of one frame wait) → empty. While fragments wait, nothing else of the link
/// may be sent: frames are not interleaved.
@safe public struct Fragmenter: ~Copyable {
  /// Octets before the payload in a frame's first packet: packet type 1, ACL header 4, L2CAP header 4.
  @inlinable public static var headerCount: Int { 9 }

  /// The waiting fragments: the octets `sent ..< count` of `pending`.
  @usableFromInline var pending: UnsafeMutableRawPointer
  @usableFromInline var capacity: Int
  @usableFromInline var count = 0, sent = 0

  /// Allocates memory for frames of `longestPayload` octets; a longer one makes it grow once.
  public init(longestPayload: Int) {
    capacity = L2CAPFrame.headerCount + max(longestPayload, 0)
    unsafe pending = .allocate(byteCount: capacity, alignment: 8)
  }
  @inlinable deinit { unsafe pending.deallocate() }

  /// No fragment waits.
  @inlinable @inline(__always) public var isEmpty: Bool { sent == count }

  /// Reserves room for the headers, which `seal` fills in. The payload follows.
  @inlinable @inline(__always) public static func begin(_ output: inout OutputRawSpan) {
    precondition(output.freeCapacity >= headerCount)
    unsafe output.withUnsafeMutableBytes { _, count in count &+= headerCount }
  }

  /// Turns the octets of `output` from `start` on, where `begin` was called, into the first packet of a frame.
  @inlinable @inline(__always)
  public mutating func seal(
    from start: Int, on channel: ChannelID, of link: ConnectionHandle, aclLength: Int, _ output: inout OutputRawSpan
  ) {
    let payload = output.byteCount &- start &- Fragmenter.headerCount
    let frame = payload &+ L2CAPFrame.headerCount
    precondition(payload >= 0 && payload <= 0xFFFF && aclLength > 0)
    // A host marks a first fragment with 0b00: Vol 4, Part E, §5.4.2.
    let headers =
      UInt64(link.rawValue & 0x0FFF) | UInt64(min(frame, aclLength)) &<< 16 | UInt64(payload) &<< 32
      | UInt64(channel.rawValue) &<< 48
    unsafe output.withUnsafeMutableBytes { bytes, _ in
      let first = unsafe bytes.baseAddress.unsafelyUnwrapped + start
      unsafe first.storeBytes(of: 0x02, as: UInt8.self)
      unsafe first.storeBytes(of: headers.littleEndian, toByteOffset: 1, as: UInt64.self)
    }
    if frame > aclLength { keepPending(frame &- aclLength, &output) }
  }
  /// Moves the last `count` octets of `output` to `pending`.
  @inlinable @inline(__always) mutating func keepPending(_ count: Int, _ output: inout OutputRawSpan) {
    precondition(isEmpty, "a frame is finished before the next begins")
    if count > capacity { grow(to: count) }
    unsafe output.withUnsafeMutableBytes { bytes, written in
      written &-= count
      unsafe pending.copyMemory(from: bytes.baseAddress.unsafelyUnwrapped + written, byteCount: count)
    }
    self.count = count
    sent = 0
  }
  @usableFromInline mutating func grow(to count: Int) {
    unsafe pending.deallocate()
    unsafe pending = .allocate(byteCount: count, alignment: 8)
    capacity = count
  }

  /// Appends the packet that carries the next fragment; false when none waits.
  @inlinable @inline(__always) public mutating func writeNext(
    of link: ConnectionHandle, aclLength: Int, into output: inout OutputRawSpan
  ) -> Bool {
    guard !isEmpty else { return false }
    let length = min(count &- sent, aclLength)
    precondition(aclLength > 0 && output.freeCapacity >= length &+ ACLPacket.headerCount)
    let header = UInt32(link.rawValue & 0x0FFF | 0b01 &<< 12) | UInt32(truncatingIfNeeded: length) &<< 16
    unsafe output.withUnsafeMutableBytes { bytes, written in
      let packet = unsafe bytes.baseAddress.unsafelyUnwrapped + written
      unsafe packet.storeBytes(of: 0x02, as: UInt8.self)
      unsafe packet.storeBytes(of: header.littleEndian, toByteOffset: 1, as: UInt32.self)
      unsafe (packet + ACLPacket.headerCount).copyMemory(from: pending + sent, byteCount: length)
      written &+= length &+ ACLPacket.headerCount
    }
    sent &+= length
    return true
  }
}
