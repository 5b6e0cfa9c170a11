import BasicContainers
import BindruneWire
import HCI

/// # Fragmenter
/// **Overview**: cuts the frames of one link into ACL packets of the length that the controller takes (Vol 3, Part A,
/// §7.2.1), one packet a call.
///
/// **Function**: the payload is written once, straight into the first packet, behind room for the headers. `seal` fills
/// the headers in, takes back what is too long for this packet and keeps it for `writeNext`. So a frame that fits, and
/// most do, is never copied here.
///
/// **Phases**: empty → rest (fragments of one frame wait) → empty. While there is a rest, nothing else of the link may be
/// sent: frames are not interleaved.
public struct Fragmenter: ~Copyable {
  /// Octets before the payload in a frame's first packet: packet type 1, ACL header 4, L2CAP header 4.
  @inlinable public static var headerCount: Int { 9 }

  @usableFromInline var rest: UniqueArray<UInt8>
  /// Octets of `rest` that have been sent.
  @usableFromInline var sent = 0

  /// Keeps the memory for frames of `longestPayload` octets from the start.
  public init(longestPayload: Int = 517) {
    rest = UniqueArray(minimumCapacity: L2CAPFrame.headerCount + max(longestPayload, 0))
  }

  /// No fragment waits.
  @inlinable @inline(__always) public var isEmpty: Bool { sent == rest.count }

  /// Leaves room for the headers. The payload goes behind it.
  @inlinable @inline(__always) public static func begin(_ output: inout OutputRawSpan) {
    unsafe output.append(0, as: UInt64.self)
    output.append(0)
  }

  /// Makes the octets of `output` from `start` on, where `begin` was called, the first packet of a frame.
  @inlinable @inline(__always)
  public mutating func seal(
    from start: Int, on channel: ChannelID, of link: ConnectionHandle, aclLength: Int, _ output: inout OutputRawSpan
  ) {
    let payload = output.byteCount &- start &- Fragmenter.headerCount
    let frame = payload &+ L2CAPFrame.headerCount
    precondition(payload >= 0 && payload <= 0xFFFF && aclLength > 0 && isEmpty)
    // The host marks a first fragment 0b00: Vol 4, Part E, §5.4.2.
    let headers =
      UInt64(link.rawValue & 0x0FFF) | UInt64(min(frame, aclLength)) &<< 16 | UInt64(payload) &<< 32
      | UInt64(channel.rawValue) &<< 48
    unsafe output.withUnsafeMutableBytes { bytes, _ in
      let first = unsafe bytes.baseAddress.unsafelyUnwrapped + start
      unsafe first.storeBytes(of: 0x02, as: UInt8.self)
      unsafe first.storeBytes(of: headers.littleEndian, toByteOffset: 1, as: UInt64.self)
    }
    if frame > aclLength { keepRest(from: start &+ 5 &+ aclLength, &output) }
  }
  @usableFromInline mutating func keepRest(from offset: Int, _ output: inout OutputRawSpan) {
    rest.removeAll(keepingCapacity: true)
    sent = 0
    unsafe output.withUnsafeMutableBytes { bytes, count in
      unsafe rest.append(
        copying: UnsafeBufferPointer(rebasing: bytes.assumingMemoryBound(to: UInt8.self)[offset..<count]))
    }
    output.truncate(to: offset)
  }

  /// Appends the packet that carries the next fragment; false when none waits.
  @inlinable public mutating func writeNext(
    of link: ConnectionHandle, aclLength: Int, into output: inout OutputRawSpan
  ) -> Bool {
    guard !isEmpty else { return false }
    precondition(aclLength > 0)
    let count = min(rest.count &- sent, aclLength)
    ACLPacket.writeHeader(link, .continuing, count: count, into: &output)
    output.append(contentsOf: rest.span.extracting(sent..<sent &+ count))
    sent &+= count
    return true
  }
}
