import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneTrace
import BindruneWire

/// What ``AirMonitor`` knows, and beside it the credit-based channels of its links.
struct WatchedAir: TraceSink {
  private(set) var monitor: AirMonitor
  private var statistics = TraceStatistics()
  private let keepsChanges: Bool
  private var changes: [AirChannel] = []
  private struct Change: Hashable { var record: Int, host: UInt16, isClosed: Bool }
  private var noted: Set<Change> = []

  init(keepsChanges: Bool = false) {
    self.keepsChanges = keepsChanges
    monitor = AirMonitor(keepsChanges: keepsChanges)
  }

  mutating func advance(to elapsed: Int64) { monitor.advance(to: elapsed) }
  mutating func takeChanges() -> [AirChange] { monitor.takeChanges() }
  /// Channels that have opened or closed since the last call.
  mutating func takeChannels() -> [AirChannel] {
    defer { changes.removeAll(keepingCapacity: true) }
    return changes
  }
  /// Those of the links that exist, or have ended since then.
  func channels(since time: Int64 = .max) -> [AirChannel] {
    monitor.links.filter { $0.ended ?? .max >= time }.flatMap { channels($0.adapter, $0.connection) }
  }
  private func channels(_ adapter: UInt16, _ connection: UInt32) -> [AirChannel] {
    let last = statistics.connections.last { $0.adapter == adapter && $0.connection == connection }
    return last?.channels.map { AirChannel(adapter: adapter, connection: connection, statistics: $0) } ?? []
  }

  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    monitor.record(record, bytes)
    statistics.record(record, bytes)
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    monitor.frame(frame, payload, of: record)
    // The fixed channels have nothing of these. Vol 3, Part A, §2.1.
    guard frame.channel == .leSignaling || frame.channel.rawValue >= 0x0040 else { return }
    statistics.frame(frame, payload, of: record)
    guard keepsChanges, frame.channel == .leSignaling else { return }
    for channel in channels(frame.adapter, frame.connection) {
      let statistics = channel.statistics
      let change = Change(
        record: statistics.openedRecord, host: statistics.host, isClosed: statistics.isClosed)
      if noted.insert(change).inserted { changes.append(channel) }
    }
  }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    monitor.violation(violation, handle, direction, of: record)
  }
}

/// A credit-based channel of a link.
struct AirChannel {
  let adapter: UInt16, connection: UInt32
  let statistics: ChannelStatistics
}
