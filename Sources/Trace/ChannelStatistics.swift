import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// What ``TraceStatistics`` counts of one credit-based channel, from the response that opened it. Vol 3, Part A, §10.1.
public struct ChannelStatistics: Sendable {
  public var spsm: UInt16
  /// Of an enhanced request.
  public var isEnhanced: Bool
  /// Who asked for it.
  public var asker: HCIDirection
  /// The channel's numbers at the host and at the peer.
  public var host: UInt16, peer: UInt16
  /// The record and time of the response that opened it.
  public var openedRecord: Int, openedTime: Int64
  /// Those of its last frame, credit or end.
  public internal(set) var lastRecord: Int, lastTime: Int64
  /// The trace shows its disconnection.
  public internal(set) var isClosed = false
  /// From the host, and from the peer.
  public internal(set) var sent: Stream, received: Stream

  /// One direction of a channel.
  public struct Stream: Sendable {
    /// The longest SDU and K-frame that the receiver accepts.
    public internal(set) var mtu: Int, mps: Int
    /// K-frames that the sender may still send.
    public internal(set) var credits: Int
    public internal(set) var frames = 0
    public internal(set) var sdus = 0
    /// Octets of SDUs, without their lengths.
    public internal(set) var octets = 0
    /// Flow Control Credit packets of the receiver.
    public internal(set) var creditPackets = 0
    /// How often, how long in all and how long at most there was no credit, from the K-frame that used the last one to
    /// the packet that gave more. Whether the sender had more to send, a trace does not show.
    public internal(set) var waits = 0, waited = Duration.zero, longestWait = Duration.zero
    /// Octets of the SDU in progress that are to come.
    private var remaining = 0
    private var emptySince: Int64?

    init(_ terms: ChannelEvent.Terms) {
      (mtu, mps, credits) = (Int(terms.mtu), Int(terms.mps), Int(terms.credits))
    }
    /// `length`: of the K-frame's payload, of which the recorder may have kept less.
    mutating func frame(_ payload: Span<UInt8>, _ length: Int, _ time: Int64) {
      frames += 1
      credits = max(0, credits - 1)
      if credits == 0 { emptySince = time }
      var count = length
      if remaining == 0 {
        guard payload.count >= CreditFrame.lengthCount else { return }
        sdus += 1
        count -= CreditFrame.lengthCount
        remaining = Int(payload.little16(0))
      }
      octets += count
      remaining = max(0, remaining - count)
    }
    mutating func give(_ more: UInt16, _ time: Int64) {
      creditPackets += 1
      // A sender has no more: Vol 3, Part A, §4.24.
      credits = min(65_535, credits + Int(more))
      guard more > 0, let since = emptySince.take() else { return }
      let (wait, overflow) = time.subtractingReportingOverflow(since)
      // The clock was set back in between: no duration is known.
      guard !overflow, wait >= 0 else { return }
      waits += 1
      waited += .nanoseconds(wait)
      longestWait = max(longestWait, .nanoseconds(wait))
    }
  }

  public var duration: Duration {
    let (difference, overflow) = lastTime.subtractingReportingOverflow(openedTime)
    return overflow || difference < 0 ? .zero : .nanoseconds(difference)
  }
}

/// The channels of one connection, for ``TraceStatistics`` and the report.
package struct ChannelBook: Sendable {
  /// Channels that are counted.
  static var most: Int { 128 }

  package private(set) var channels: [ChannelStatistics] = []
  private(set) var uncounted = 0
  private var requests = ChannelRequests()

  package init() {}

  /// One signaling command. Returns the places of the channels that it opened or closed.
  @discardableResult
  package mutating func signal(
    _ command: Span<UInt8>, _ direction: HCIDirection, _ record: CaptureRecord
  ) -> [Int] {
    var changed: [Int] = []
    for event in requests.receive(command, direction) {
      switch event {
      case .opened(let opening): if let place = open(opening, record) { changed.append(place) }
      case .reconfigured(let number, let owner, let mtu, let mps):
        change(number, of: owner, record) { stream in
          stream.mtu = Int(mtu)
          stream.mps = Int(mps)
        }
      case .credited(let number, let owner, let credits):
        change(number, of: owner, record) { $0.give(credits, record.time) }
      case .closed(let number, let owner):
        guard let place = place(number.rawValue, of: owner) else { continue }
        channels[place].isClosed = true
        saw(place, record)
        changed.append(place)
      }
    }
    return changed
  }
  /// A frame on a channel of the receiver.
  package mutating func frame(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ direction: HCIDirection, _ record: CaptureRecord
  ) {
    change(frame.channel, of: direction.opposite, record) { $0.frame(payload, frame.length, record.time) }
  }

  /// Each device receives by its own terms. nil: there are too many.
  private mutating func open(_ opening: ChannelEvent.Opening, _ record: CaptureRecord) -> Int? {
    guard channels.count < Self.most else {
      uncounted += 1
      return nil
    }
    channels.append(
      ChannelStatistics(
        spsm: opening.spsm.rawValue, isEnhanced: opening.isEnhanced, asker: opening.asker,
        host: opening.host.rawValue, peer: opening.peer.rawValue,
        openedRecord: record.number, openedTime: record.time, lastRecord: record.number, lastTime: record.time,
        sent: ChannelStatistics.Stream(opening.peerTerms), received: ChannelStatistics.Stream(opening.hostTerms)))
    return channels.count - 1
  }
  /// The open channel that has this number at the host (`.fromHost`) or at the peer.
  private func place(_ number: UInt16, of owner: HCIDirection) -> Int? {
    channels.lastIndex { !$0.isClosed && (owner == .fromHost ? $0.host : $0.peer) == number }
  }
  private mutating func saw(_ place: Int, _ record: CaptureRecord) {
    channels[place].lastRecord = record.number
    channels[place].lastTime = max(channels[place].lastTime, record.time)
  }
  /// Changes what `owner` receives on the channel that has this number there.
  private mutating func change(
    _ number: ChannelID, of owner: HCIDirection, _ record: CaptureRecord,
    _ body: (inout ChannelStatistics.Stream) -> Void
  ) {
    guard let place = place(number.rawValue, of: owner) else { return }
    saw(place, record)
    if owner == .fromHost { body(&channels[place].received) } else { body(&channels[place].sent) }
  }
}
