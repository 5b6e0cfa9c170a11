import BindruneWire

/// # SendDepth
/// **Overview**: how many values may wait in a port for notifications, so that the newest leaves soon: 700 short values
/// fit 16 KiB, and on a link that carries 70 a second the last of them would be ten seconds old when it leaves.
///
/// **Function**: counts the values that leave the port in at least `delay`. If a producer waited for room meanwhile,
/// they left as fast as the link can send them, and `limit` becomes the number that leaves in `delay`. A window this
/// long contains several bursts of a connection event, or of the link's queue.
///
/// **Phases**: idle → counting, at the first value that leaves after a refusal → counting anew after each `delay` →
/// idle, after a window without a refusal, or when the producer has paused.
struct SendDepth: BitwiseCopyable, Sendable {
  /// How long a value should wait in its port at most. What waits below the port is bounded as well: 528 octets in the
  /// link's queue (`HostConfiguration.queueCapacity`), and the controller's buffers.
  static var delay: Duration { .milliseconds(250) }
  /// With fewer values the link would idle while the producer, woken at half, offers the next.
  static var least: Int { 8 }

  /// How many values may wait: 32 until the first measurement.
  private(set) var limit = 32
  private enum Phase: BitwiseCopyable {
    case idle
    /// `values` have left since `since`, the last one at `last`. `isRefused`: a producer waited for room meanwhile.
    case counting(since: Instant, values: Int, last: Instant, isRefused: Bool)
  }
  private var phase = Phase.idle

  /// A value leaves at `now`. `isRefused`: a producer waits for room. `isFirst`: the port was empty before it was
  /// offered.
  mutating func valueSent(now: Instant, isRefused: Bool, isFirst: Bool) {
    if case .counting(let since, let values, let last, let wasRefused) = phase,
      !(isFirst && now - last > SendDepth.delay)
    {
      let isLimited = wasRefused || isRefused, elapsed = now - since
      if elapsed < SendDepth.delay {
        phase = .counting(since: since, values: values + 1, last: now, isRefused: isLimited)
        return
      }
      if isLimited { limit = max(SendDepth.least, Int(Double(values) * (SendDepth.delay / elapsed))) }
    }
    phase = isRefused ? .counting(since: now, values: 1, last: now, isRefused: true) : .idle
  }
}
