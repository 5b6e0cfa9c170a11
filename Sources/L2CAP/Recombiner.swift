import BasicContainers
import BindruneWire
import BindruneHCI

/// The result of one ACL packet. Both can occur: a first fragment ends an incomplete frame, and may itself be whole.
public struct Recombined: Sendable {
  public var frame: Frame?
  public var violation: L2CAPViolation?

  @inlinable init(frame: Frame? = nil, violation: L2CAPViolation? = nil) {
    self.frame = frame
    self.violation = violation
  }

  /// A complete frame.
  public struct Frame: BitwiseCopyable, Sendable {
    public var channel: ChannelID
    /// Octets of the payload, according to the header.
    public var length: Int
    /// The payload's range: in the packet just received, or in the recombiner's `bytes`. It is shorter than `length`
    /// when the frame exceeds the recombiner's capacity: only the beginning is there.
    public var payload: Octets
    public var isInPacket: Bool
    @inlinable init(channel: ChannelID, length: Int, payload: Octets, isInPacket: Bool) {
      self.channel = channel
      self.length = length
      self.payload = payload
      self.isInPacket = isInPacket
    }
  }
}

/// # Recombiner
/// **Overview**: joins the frames of one link from the fragments in its ACL packets (Vol 3, Part A, §7.2.2). A
/// controller may cut anywhere, even within the header.
///
/// **Function**: a frame that lies whole in one packet, as most do, is not copied. Of a longer one the first `capacity`
/// octets are kept and the others only counted, so a length that a peer claims costs no memory.
///
/// **Phases**: idle → collecting (the octets received so far) → idle. Frames of different channels are never
/// interleaved on a link, so there is one frame at a time.
public struct Recombiner: ~Copyable {
  @usableFromInline enum Phase: BitwiseCopyable {
    case idle
    case collecting(received: Int)
  }
  @usableFromInline var phase = Phase.idle
  /// The beginning of the frame in progress, header first; afterwards the frame collected last.
  public private(set) var bytes: UniqueArray<UInt8>
  /// The most octets that are kept, header included.
  public private(set) var capacity: Int

  /// Keeps the header and at most `longestPayload` octets.
  public init(longestPayload: Int) {
    capacity = L2CAPFrame.headerCount + max(longestPayload, 0)
    bytes = UniqueArray(minimumCapacity: capacity)
  }

  /// Keeps at least the header and `longestPayload` octets from the next frame on.
  mutating func reserve(longestPayload: Int) { capacity = max(capacity, L2CAPFrame.headerCount + longestPayload) }

  /// Processes one ACL packet; ranges in `acl` refer to `packet`.
  @inlinable @inline(__always)
  public mutating func receive(_ acl: ACLPacket, in packet: Span<UInt8>) -> Recombined {
    if let frame = whole(acl, in: packet) { return Recombined(frame: frame) }
    return keeps(acl, in: packet) ? Recombined() : collect(acl, in: packet)
  }

  /// The frame that lies whole in this packet, as most do; nil if it is none.
  @inlinable @inline(__always) func whole(_ acl: ACLPacket, in packet: Span<UInt8>) -> Recombined.Frame? {
    let offset = Int(acl.data.offset), count = Int(acl.data.count)
    guard acl.packetBoundaryFlag == .first, acl.broadcastFlag == 0, case .idle = phase, count >= L2CAPFrame.headerCount,
      count &- L2CAPFrame.headerCount == Int(packet[offset]) | Int(packet[offset &+ 1]) &<< 8
    else { return nil }
    let channel = ChannelID(rawValue: UInt16(packet[offset &+ 2]) | UInt16(packet[offset &+ 3]) &<< 8)
    let length = count &- L2CAPFrame.headerCount
    return Recombined.Frame(
      channel: channel, length: length, payload: Octets(offset &+ L2CAPFrame.headerCount, length), isInPacket: true)
  }
  /// Keeps a fragment from the middle of a frame, as most others are; false if it is another one.
  @usableFromInline mutating func keeps(_ acl: ACLPacket, in packet: Span<UInt8>) -> Bool {
    guard case .collecting(let before) = phase, before == bytes.count, acl.packetBoundaryFlag == .continuing,
      acl.broadcastFlag == 0
    else { return false }
    let received = before &+ Int(acl.data.count)
    guard let expected = expected(before), received < expected, received <= capacity else { return false }
    bytes.append(copying: packet.extracting(acl.data.range))
    phase = .collecting(received: received)
    return true
  }
  @usableFromInline mutating func collect(_ acl: ACLPacket, in packet: Span<UInt8>) -> Recombined {
    let data = packet.extracting(Int(acl.data.offset)..<Int(acl.data.offset) + Int(acl.data.count))
    guard acl.broadcastFlag == 0 else { return Recombined(violation: .illegalFlags) }
    var interrupted: L2CAPViolation?
    var received = 0
    switch acl.packetBoundaryFlag {
    case .continuing:
      guard case .collecting(let before) = phase else {
        return Recombined(violation: .orphanFragment(count: data.count))
      }
      received = before
    case .first, .firstNonFlushable:
      // The second is the host's flag; a controller that uses it means the same. A first fragment without octets begins
      // nothing: Vol 3, Part A, §1.4.
      if case .collecting(let before) = phase, before > 0 {
        interrupted = .incompleteFrame(received: before, expected: expected(before))
      }
      bytes.removeAll(keepingCapacity: true)
    case .complete:
      return Recombined(violation: .illegalFlags)
    }
    // Behind octets that were dropped, no others are kept, though `capacity` may have grown.
    if bytes.count == received { bytes.append(copying: data.extracting(first: capacity - bytes.count)) }
    received += data.count
    phase = .collecting(received: received)
    guard let expected = expected(received), received >= expected else { return Recombined(violation: interrupted) }
    phase = .idle
    guard received == expected else {
      return Recombined(violation: interrupted ?? .overlongFragment(received: received, expected: expected))
    }
    let channel = ChannelID(rawValue: UInt16(bytes[2]) | UInt16(bytes[3]) << 8)
    let payload = Octets(L2CAPFrame.headerCount, bytes.count - L2CAPFrame.headerCount)
    return Recombined(
      frame: Recombined.Frame(
        channel: channel, length: expected - L2CAPFrame.headerCount, payload: payload, isInPacket: false),
      violation: interrupted)
  }

  /// Octets of the frame in progress, header included, once its length has arrived.
  private func expected(_ received: Int) -> Int? {
    received < 2 ? nil : L2CAPFrame.headerCount + (Int(bytes[0]) | Int(bytes[1]) << 8)
  }
}
