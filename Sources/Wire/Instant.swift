/// A point in time: nanoseconds since the driver's own zero. Callers pass the time to layers, which never read a clock.
public struct Instant: BitwiseCopyable, Sendable, Hashable, Comparable, CustomStringConvertible {
  public var nanoseconds: UInt64
  @inlinable @inline(__always) public init(nanoseconds: UInt64 = 0) { self.nanoseconds = nanoseconds }
  /// The driver's zero.
  public static var zero: Instant { Instant() }
  @inlinable @inline(__always) public static func < (a: Instant, b: Instant) -> Bool { a.nanoseconds < b.nanoseconds }
  /// Negative durations and overflow saturate: a deadline in the far future is a deadline that never comes.
  public static func + (instant: Instant, duration: Duration) -> Instant {
    let nanoseconds = duration.nanoseconds
    if nanoseconds < 0 {
      let back = UInt64(-nanoseconds)
      return Instant(nanoseconds: instant.nanoseconds > back ? instant.nanoseconds - back : 0)
    }
    let (sum, overflow) = instant.nanoseconds.addingReportingOverflow(UInt64(nanoseconds))
    return Instant(nanoseconds: overflow ? .max : sum)
  }
  /// The same for a constant whole number of seconds: decomposing a `Duration` costs 130 instructions.
  @inlinable @inline(__always) public func adding(seconds: UInt64) -> Instant {
    let (sum, overflow) = nanoseconds.addingReportingOverflow(seconds &* 1_000_000_000)
    return Instant(nanoseconds: overflow ? .max : sum)
  }
  /// The time from `earlier` to `later`; negative when `later` comes first.
  public static func - (later: Instant, earlier: Instant) -> Duration {
    later >= earlier
      ? .nanoseconds(Int64(clamping: later.nanoseconds - earlier.nanoseconds))
      : .nanoseconds(-Int64(clamping: earlier.nanoseconds - later.nanoseconds))
  }
  public static func += (instant: inout Instant, duration: Duration) { instant = instant + duration }
  /// Seconds with six decimals: `1.250000`.
  public var description: String {
    let micro = String(nanoseconds / 1_000 % 1_000_000)
    return "\(nanoseconds / 1_000_000_000)." + String(repeating: "0", count: 6 - micro.utf8.count) + micro
  }
}

extension Duration {
  /// Whole nanoseconds, clamped to what fits (± 292 years).
  public var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    if overflow { return seconds < 0 ? .min + 1 : .max }
    let (sum, carried) = product.addingReportingOverflow(attoseconds / 1_000_000_000)
    return carried ? (seconds < 0 ? .min + 1 : .max) : max(sum, .min + 1)
  }
}

extension Optional<Instant> {
  /// The earlier of two deadlines; `nil` means never.
  @inlinable @inline(__always) public static func earliest(_ a: Instant?, _ b: Instant?) -> Instant? {
    guard let a else { return b }
    guard let b else { return a }
    return min(a, b)
  }
}
