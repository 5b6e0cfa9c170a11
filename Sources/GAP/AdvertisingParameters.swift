import BindruneWire
import HCI

/// One of several things that a host advertises at once, as whoever advertises numbers them. In the controller it is an
/// advertising set: Vol 4, Part E, §7.8.53.
public struct AdvertisingSetID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }
  /// Where there is only one.
  public static var first: AdvertisingSetID { AdvertisingSetID(rawValue: 0) }
  public var description: String { "advertising set \(rawValue)" }
}

/// How to advertise. Vol 3, Part C, §9.3; Vol 4, Part E, §7.8.5, §7.8.53, §7.8.56.
public struct AdvertisingParameters: BitwiseCopyable, Sendable, Hashable {
  public enum Kind: BitwiseCopyable, Sendable, Hashable {
    /// Anybody may connect; with legacy PDUs (ADV_IND) also ask for the scan response.
    case connectable
    /// Anybody may ask for the scan response; with legacy PDUs ADV_SCAN_IND.
    case scannable
    /// A beacon; with legacy PDUs ADV_NONCONN_IND.
    case nonconnectable
    /// Only this device may connect. No data: ADV_DIRECT_IND, a legacy PDU, has none.
    case directed(PeerAddress)
    /// The same every 3.75 ms or sooner, for 1.28 s at most (Vol 6, Part B, §4.4.2.4.3); the interval does not count.
    case directedHighDutyCycle(PeerAddress)
  }
  /// From one advertising event to the next, a range in which the controller chooses; up to 10 ms of chance come on top of
  /// each (Vol 6, Part B, §4.4.2.2.1). The intents are the Specification's recommendations: Vol 3, Part C, §9.3.11 and
  /// Appendix A.
  public enum Interval: BitwiseCopyable, Sendable, Hashable {
    /// To be found at once, while somebody waits for it: 30 ms to 60 ms, TGAP(adv_fast_interval1); where nobody may connect
    /// 100 ms to 150 ms, TGAP(adv_fast_interval2). Recommended for 30 s or so.
    case fast
    /// 100 ms to 150 ms, TGAP(adv_fast_interval2).
    case balanced
    /// To be found some time, at little cost: 1 s to 1.2 s, TGAP(adv_slow_interval).
    case background
    /// 20 ms … 10.24 s, with the extended commands … 10,485.759375 s; in steps of 0.625 ms.
    case between(Duration, Duration)

    /// One interval and no other.
    public static func every(_ duration: Duration) -> Interval { .between(duration, duration) }
  }
  public var kind: Kind
  /// What of the data is sent, and where: all of it, unless this says otherwise.
  public var policy: AdvertisingPacker.Policy
  /// The application is in the background, which `AdvertisingPacker.Policy.coreBluetooth` cares about.
  public var isInBackground = false
  public var interval: Interval
  /// How long, from the first start on and over restarts; nil: until it is stopped. The controller's clock ends it, where it
  /// has one for this, up to 655.35 s; else the host's.
  public var duration: Duration?
  /// Advertising events from one start to its end, 1 … 255; nil: any number. Only with the extended commands.
  public var maximumEvents: UInt8?
  /// A connection ends advertising; true starts it again as soon as the controller permits.
  public var restartsAfterConnection: Bool
  /// The most power to send with, −127 … 20 dBm; nil: what the controller chooses. Only with the extended commands.
  public var txPower: Int8?
  /// The random address of this set alone; nil: the host's own. Only with the extended commands.
  public var address: DeviceAddress?

  /// Balanced, connectable, until it is stopped.
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

  /// Vol 6, Part B, §4.4.2.4.3.
  static var highDutyCycleLimit: Duration { .milliseconds(1280) }
}

extension AdvertisingParameters.Interval {
  /// Vol 4, Part E, §7.8.5 and §7.8.53.
  static func allowed(_ usesExtendedCommands: Bool) -> ClosedRange<Duration> {
    .milliseconds(20) ... .microseconds((usesExtendedCommands ? 0xFF_FFFF : 0x4000) * 625)
  }
  /// Of `.between` as it stands, from the lesser to the greater.
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
  /// What no controller of this kind could do.
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
/// Why advertising is over.
public enum AdvertisingEnd: BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// It was stopped, or the controller was.
  case stopped
  /// A central connected, and it was not to start again.
  case connected
  /// `AdvertisingParameters.duration` is over.
  case durationOver
  /// `AdvertisingParameters.maximumEvents` have been sent.
  case eventsSent
  /// The controller ended it for a reason of its own.
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

/// Why something cannot be advertised.
public enum AdvertisingError: Error, Sendable, Hashable, CustomStringConvertible {
  /// What is to be said cannot be said like this.
  case data(AdvertisingDataError)
  /// All sets of the controller are in use; by the legacy commands there is one.
  case tooManySets(available: Int)
  /// Nothing is advertised under this number, whose data could be changed.
  case notAdvertising(AdvertisingSetID)
  case interval(Duration, Duration, allowed: ClosedRange<Duration>)
  case duration(Duration)
  case noEvents
  case txPower(Int8)
  case address(DeviceAddress)
  /// Directed advertising has legacy PDUs.
  case directedExtended

  public var description: String {
    switch self {
    case .data(let error): "\(error)"
    case .tooManySets(let available):
      available == 1
        ? "this controller advertises one thing at a time; stop the other first"
        : "all \(available) advertising sets of this controller are in use; stop one first"
    case .notAdvertising(let id): "nothing is advertised as \(id); advertise it first"
    case .interval(let shortest, let longest, let allowed):
      shortest > longest
        ? "the interval's shortest value, \(shortest), is more than its longest, \(longest)"
        : "the interval, \(shortest) to \(longest), has to lie between \(allowed.lowerBound) and \(allowed.upperBound)"
    case .duration(let duration): "the duration, \(duration), has to be more than 0"
    case .noEvents: "the number of events has to be 1 to 255"
    case .txPower(let power): "the power, \(power) dBm, has to lie between -127 dBm and 20 dBm"
    case .address(let address): "\(address.text) is no random address: its two highest bits are 10, or all others alike"
    case .directedExtended: "directed advertising has legacy PDUs"
    }
  }
}
