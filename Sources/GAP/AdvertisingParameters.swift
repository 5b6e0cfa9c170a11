import BindruneWire
import BindruneHCI

/// One of several advertisements of a host; the caller assigns the number. In the controller it is an advertising set:
/// Vol 4, Part E, §7.8.53.
public struct AdvertisingSetID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }
  /// For callers with only one.
  public static var first: AdvertisingSetID { AdvertisingSetID(rawValue: 0) }
  public var description: String { "advertising set \(rawValue)" }
}

/// How to advertise. Vol 3, Part C, §9.3; Vol 4, Part E, §7.8.5, §7.8.53, §7.8.56.
public struct AdvertisingParameters: BitwiseCopyable, Sendable, Hashable {
  public enum Kind: BitwiseCopyable, Sendable, Hashable {
    /// Any central may connect; with legacy PDUs (ADV_IND) any scanner may request the scan response.
    case connectable
    /// Any scanner may request the scan response; with legacy PDUs ADV_SCAN_IND.
    case scannable
    /// A beacon; with legacy PDUs ADV_NONCONN_IND.
    case nonconnectable
    /// Only this device may connect. Carries no data: ADV_DIRECT_IND is a legacy PDU without data.
    case directed(PeerAddress)
    /// The same every 3.75 ms or sooner, for at most 1.28 s (Vol 6, Part B, §4.4.2.4.3); ignores the interval.
    case directedHighDutyCycle(PeerAddress)
  }
  /// The time between two advertising events: a range in which the controller chooses, plus up to 10 ms of random delay
  /// for each event (Vol 6, Part B, §4.4.2.2.1). The intents are the Specification's recommendations: Vol 3, Part C,
  /// §9.3.11 and Appendix A.
  public enum Interval: BitwiseCopyable, Sendable, Hashable {
    /// For fast discovery while a user waits: 30 ms to 60 ms, TGAP(adv_fast_interval1); if not connectable 100 ms to
    /// 150 ms, TGAP(adv_fast_interval2). Recommended for about 30 s.
    case fast
    /// 100 ms to 150 ms, TGAP(adv_fast_interval2).
    case balanced
    /// For slow discovery at little cost: 1 s to 1.2 s, TGAP(adv_slow_interval).
    case background
    /// 20 ms … 10.24 s, with the extended commands … 10,485.759375 s; in steps of 0.625 ms.
    case between(Duration, Duration)

    /// A single interval.
    public static func every(_ duration: Duration) -> Interval { .between(duration, duration) }
  }
  public var kind: Kind
  /// Which data are sent, and where; by default all of them.
  public var policy: AdvertisingPacker.Policy
  /// Whether the application is in the background; relevant to `AdvertisingPacker.Policy.coreBluetooth` only.
  public var isInBackground = false
  public var interval: Interval
  /// The time from the first start on, restarts included; nil: until it is stopped. The controller's clock ends it if
  /// it can, up to 655.35 s; else the host's.
  public var duration: Duration?
  /// The number of advertising events from one start to its end, 1 … 255; nil: unlimited. Extended commands only.
  public var maximumEvents: UInt8?
  /// Whether to restart advertising after a connection has ended it, as soon as the controller permits.
  public var restartsAfterConnection: Bool
  /// The maximum power, −127 … 20 dBm; nil: the controller chooses. Extended commands only.
  public var txPower: Int8?
  /// A random address for this set alone; nil: the host's own. Extended commands only.
  public var address: DeviceAddress?

  /// Balanced and connectable by default, until stopped.
  public init(
    kind: Kind = .connectable, policy: AdvertisingPacker.Policy = .everything, interval: Interval = .balanced,
    duration: Duration? = nil,
    maximumEvents: UInt8? = nil, restartsAfterConnection: Bool = true, txPower: Int8? = nil,
    address: DeviceAddress? = nil
  ) {
    self.kind = kind
    self.policy = policy
    self.interval = interval
    self.duration = duration
    self.maximumEvents = maximumEvents
    self.restartsAfterConnection = restartsAfterConnection
    self.txPower = txPower
    self.address = address
  }

  func source(of data: AdvertisingData) -> AdvertisingPacker.Source {
    AdvertisingPacker.Source(data, isInBackground: isInBackground)
  }
  /// Vol 6, Part B, §4.4.2.4.3.
  static var highDutyCycleLimit: Duration { .milliseconds(1280) }
}

extension AdvertisingParameters.Interval {
  /// Vol 4, Part E, §7.8.5 and §7.8.53.
  static func allowed(_ usesExtendedCommands: Bool) -> ClosedRange<Duration> {
    .milliseconds(20) ... .microseconds((usesExtendedCommands ? 0xFF_FFFF : 0x4000) * 625)
  }
  /// The range of `.between`, in ascending order.
  func range(_ kind: AdvertisingParameters.Kind) -> ClosedRange<Duration> {
    switch self {
    case .fast where kind == .scannable || kind == .nonconnectable: Self.balanced.range(kind)
    case .fast: .milliseconds(30) ... .milliseconds(60)
    case .balanced: .milliseconds(100) ... .milliseconds(150)
    case .background: .milliseconds(1000) ... .milliseconds(1200)
    case .between(let shortest, let longest): min(shortest, longest)...max(shortest, longest)
    }
  }
}

extension AdvertisingParameters {
  /// Throws for parameters that no controller of this kind supports.
  func check(usesExtendedCommands: Bool) throws(AdvertisingError) {
    if case .between(let shortest, let longest) = interval, !kind.isHighDutyCycle {
      let allowed = Interval.allowed(usesExtendedCommands)
      guard shortest <= longest, allowed.contains(shortest), allowed.contains(longest) else {
        throw .interval(shortest, longest, allowed: allowed)
      }
    }
    if let duration, duration <= .zero { throw .duration(duration) }
    if maximumEvents == 0 { throw .noEvents }
    if let txPower, !(-127...20).contains(txPower) { throw .txPower(txPower) }
    if let address, !address.isValidRandom { throw .address(address) }
    if kind.peer != nil, policy == .extended { throw .directedExtended }
    guard usesExtendedCommands || (maximumEvents == nil && txPower == nil && address == nil) else {
      throw .data(.extendedUnavailable)
    }
  }
}
/// Why advertising ended.
public enum AdvertisingEnd: BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// The caller stopped it, or the controller was stopped.
  case stopped
  /// A central connected, and the parameters ask for no restart.
  case connected
  /// `AdvertisingParameters.duration` has elapsed.
  case durationOver
  /// `AdvertisingParameters.maximumEvents` have been sent.
  case eventsSent
  /// The controller ended it for another reason, or does not begin it again.
  case terminated(HCIStatus)

  public var description: String {
    switch self {
    case .stopped: "stopped"
    case .connected: "a central connected"
    case .durationOver: "the time is over"
    case .eventsSent: "all events have been sent"
    case .terminated(let status): "the controller ended it: \(status)"
    }
  }
}

/// Why advertising was refused.
public enum AdvertisingError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The data cannot be sent as the parameters ask.
  case data(AdvertisingDataError)
  /// All sets of the controller are in use; with the legacy commands there is one.
  case tooManySets(available: Int)
  /// There is no advertising with this number, so its data cannot change.
  case notAdvertising(AdvertisingSetID)
  case interval(Duration, Duration, allowed: ClosedRange<Duration>)
  case duration(Duration)
  case noEvents
  case txPower(Int8)
  case address(DeviceAddress)
  /// Directed advertising exists with legacy PDUs only.
  case directedExtended

  public var description: String {
    switch self {
    case .data(let error): "\(error)"
    case .tooManySets(let available):
      available == 1
        ? "this controller has one advertising set; stop its advertising first"
        : "all \(available) advertising sets of this controller are in use; stop one first"
    case .notAdvertising(let id): "nothing is advertised as \(id); advertise it first"
    case .interval(let shortest, let longest, let allowed):
      shortest > longest
        ? "the interval's minimum, \(shortest), exceeds its maximum, \(longest)"
        : "the interval, \(shortest) to \(longest), must be between \(allowed.lowerBound) and \(allowed.upperBound)"
    case .duration(let duration): "the duration, \(duration), must be greater than 0"
    case .noEvents: "the number of events must be 1 to 255"
    case .txPower(let power): "the power, \(power) dBm, must be between -127 dBm and 20 dBm"
    case .address(let address):
      "\(address.text) is not a random address: its two upper bits are 10, or the others are equal"
    case .directedExtended: "directed advertising uses legacy PDUs only"
    }
  }
}
