import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI

/// An HCI packet of a trace, kept: a replay looks ahead.
public struct ReplayPacket: Sendable, Equatable {
  /// The record's place in its trace, from 1.
  public var number: Int
  /// Nanoseconds since 1970.
  public var time: Int64
  public var direction: HCIDirection
  public var adapter: UInt16
  /// The H4 packet type octet first. Vol 4, Part A, §2.
  public var octets: [UInt8]

  public init(number: Int, time: Int64 = 0, direction: HCIDirection, adapter: UInt16 = 0, octets: [UInt8]) {
    self.number = number
    self.time = time
    self.direction = direction
    self.adapter = adapter
    self.octets = octets
  }
  /// The same as a record of a capture; its octets are all of `octets`.
  public var record: CaptureRecord {
    CaptureRecord(
      number: number, time: time, direction: direction, adapter: adapter, octets: Octets(0, octets.count))
  }
}

/// Why a trace cannot be replayed.
public enum ReplayError: Error, Sendable, Equatable, CustomStringConvertible {
  /// It holds no HCI packet with a known direction.
  case noPackets
  /// It holds packets from the air: no host can be put in the place of one side.
  case linkLayer
  /// It holds no frame of ATT, SMP or LE signaling.
  case noFrames
  /// Its packets have more octets than a replay keeps.
  case tooLarge(limit: Int)
  /// The recorder kept only the beginning of this packet.
  case cut(number: Int)

  public var description: String {
    switch self {
    case .noPackets: "The trace has no HCI packet with a direction, so there is no host to replace; record HCI traffic."
    case .linkLayer:
      "The trace was recorded on the air; a replay needs the HCI traffic of one of the two devices: btsnoop or PacketLogger."
    case .noFrames:
      """
      The trace has no ATT or SMP PDU and no LE signal that is not about a channel, so nothing can be compared; record a \
      connection.
      """
    case .tooLarge(let limit): "The trace has more than \(limit / 1_048_576) MiB of packets; cut it with trace convert."
    case .cut(let number):
      "The recorder kept only the beginning of record \(number); record whole packets (Android: full HCI snoop log)."
    }
  }
}

/// Collects the packets of a trace for ``Replay``:
///
///     var collector = ReplayCollector()
///     var file = try TraceFile(path: "capture.btsnoop")
///     try file.read(into: &collector)
///     let result = try Replay(collector).run()
public struct ReplayCollector: CaptureSink, Sendable {
  /// Octets of all packets together.
  public static var limit: Int { 64 << 20 }
  public private(set) var packets: [ReplayPacket] = []
  private(set) var failure: ReplayError?
  /// The record before which packets are missing: those from there on are not part of the replay.
  public private(set) var gap: Int?
  /// Records from there on.
  public private(set) var recordsBehindGap = 0
  private var count = 0
  private var isFromAir = false
  private var directions = ACLDirections()
  public init() {}

  public var wantsMore: Bool { failure == nil }
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if record.missingBefore > 0, !packets.isEmpty, gap == nil { gap = record.number }
    if gap != nil { recordsBehindGap += 1 }
    guard failure == nil, gap == nil else { return }
    switch record.content {
    case .linkLayer: isFromAir = true
    case .packet:
      guard let direction = record.direction ?? directions.infer(bytes, adapter: record.adapter) else { return }
      if record.isCut, failure == nil, bytes.count > 0, bytes[0] == HCIPacketType.acl.rawValue {
        failure = .cut(number: record.number)
      }
      count += bytes.count + 64
      guard count <= Self.limit else {
        failure = .tooLarge(limit: Self.limit)
        return
      }
      packets.append(
        ReplayPacket(
          number: record.number, time: record.time, direction: direction, adapter: record.adapter,
          octets: bytes.array))
    case .monitor, .note: break
    }
  }
  /// Why the trace cannot be replayed; nil if it may be.
  var problem: ReplayError? { failure ?? (packets.isEmpty ? (isFromAir ? .linkLayer : .noPackets) : nil) }
}

/// The directions of ACL packets in a format that has none: over LE the host begins a frame with another flag than the
/// controller, and a continuing fragment belongs to the host's frame as long as that is incomplete. Vol 4, Part E,
/// §5.4.2.
private struct ACLDirections {
  /// Octets that the host's frame still lacks, by adapter and handle.
  private var missing: [UInt32: Int] = [:]

  /// nil: no ACL packet.
  mutating func infer(_ bytes: Span<UInt8>, adapter: UInt16) -> HCIDirection? {
    guard bytes.count > 0, bytes[0] == HCIPacketType.acl.rawValue, let header = ACLHeader(bytes) else { return nil }
    let key = UInt32(adapter) << 16 | UInt32(header.handle.rawValue), count = bytes.count - ACLPacket.headerCount
    switch header.packetBoundaryFlag {
    case .firstNonFlushable:
      let isWhole = count >= 2 && Int(bytes.array.little16(5)) + 4 <= count
      missing[key] = isWhole ? nil : count >= 2 ? Int(bytes.array.little16(5)) + 4 - count : .max
      return .fromHost
    case .continuing:
      guard let left = missing[key] else { return .fromController }
      missing[key] = left > count ? left - count : nil
      return .fromHost
    default: return .fromController
    }
  }
}

extension Span<UInt8> {
  var array: [UInt8] { unsafe withUnsafeBufferPointer { unsafe Array($0) } }
}
extension [UInt8] {
  /// The two octets at `at`, the less significant first; 0 where there are none.
  func little16(_ at: Int) -> UInt16 { at + 1 < count ? UInt16(self[at]) | UInt16(self[at + 1]) << 8 : 0 }
}
extension UInt16 {
  var littleOctets: [UInt8] { [UInt8(truncatingIfNeeded: self), UInt8(truncatingIfNeeded: self >> 8)] }
}
