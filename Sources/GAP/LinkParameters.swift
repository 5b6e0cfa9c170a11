import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// Parameters for a link, as a range from which the central chooses. Vol 3, Part C, §12.3; Vol 4, Part E, §7.8.18.
public struct ConnectionParameterRange: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// Time between connection events, 7.5 ms … 4 s.
  public var intervalMin: ConnectionInterval
  public var intervalMax: ConnectionInterval
  /// Connection events that the peripheral may sleep through, 0 … 499.
  public var latency: UInt16
  /// The time after which a silent link ends: 100 ms … 32 s, and more than (1 + latency) × intervalMax × 2.
  public var supervisionTimeout: SupervisionTimeout

  public init(
    intervalMin: ConnectionInterval, intervalMax: ConnectionInterval, latency: UInt16 = 0,
    supervisionTimeout: SupervisionTimeout
  ) {
    self.intervalMin = intervalMin
    self.intervalMax = intervalMax
    self.latency = latency
    self.supervisionTimeout = supervisionTimeout
  }
  /// Exactly these parameters.
  public init(_ parameters: ConnectionParameters) {
    self.init(
      intervalMin: parameters.interval, intervalMax: parameters.interval, latency: parameters.latency,
      supervisionTimeout: parameters.supervisionTimeout)
  }
  /// See `ConnectionLatency`.
  public init(_ latency: ConnectionLatency) {
    let (least, most, events, timeout) =
      switch latency {
      case .low: (15, 15, 0, 4)
      case .medium: (60, 90, 2, 5)
      case .high: (300, 450, 3, 6)
      }
    self.init(
      intervalMin: ConnectionInterval(.milliseconds(least)), intervalMax: ConnectionInterval(.milliseconds(most)),
      latency: UInt16(events), supervisionTimeout: SupervisionTimeout(.seconds(timeout)))
  }

  /// Whether every number is in its range, and they are consistent.
  public var isValid: Bool { request.isValid }
  /// Whether a link with `parameters` needs no update.
  public func contains(_ parameters: ConnectionParameters) -> Bool {
    intervalMin <= parameters.interval && parameters.interval <= intervalMax && parameters.latency == latency
      && parameters.supervisionTimeout == supervisionTimeout
  }
  var request: ConnectionParameterUpdateRequest {
    ConnectionParameterUpdateRequest(
      intervalMin: intervalMin, intervalMax: intervalMax, latency: latency, timeout: supervisionTimeout)
  }
  public var description: String {
    "interval \(intervalMin.text) to \(intervalMax.text), latency \(latency), "
      + "supervision time-out \(supervisionTimeout.text)"
  }
}

/// How fast a link should respond, against the power that this costs. The link's parameters may differ: the central
/// decides; without a request it has chosen alone.
///
/// The three names are Core Bluetooth's, whose numbers are not published. These are ours:
///
/// | name | interval | latency | supervision time-out | longest silence |
/// |---|---|---|---|---|
/// | low | 15 ms | 0 | 4 s | 15 ms |
/// | medium | 60 … 90 ms | 2 | 5 s | 270 ms |
/// | high | 300 … 450 ms | 3 | 6 s | 1.8 s |
///
/// Each stays within Apple's guidelines for accessories, so that such a central need not refuse them: intervals are
/// multiples of 15 ms, and the longest is 15 ms above the shortest or both are 15 ms; latency is at most 30, the
/// supervision time-out 2 … 6 s, the longest silence, intervalMax × (latency + 1), at most 2 s and less than a third of
/// the time-out. The Specification's own rule is weaker: less than half of it (Vol 4, Part E, §7.8.18).
public enum ConnectionLatency: Int, CaseIterable, BitwiseCopyable, Sendable {
  /// Rapid communication, at the cost of power.
  case low = 0
  /// A balance of both.
  case medium = 1
  /// Battery life before speed.
  case high = 2
}

/// How to answer a peer that asks for other connection parameters, over L2CAP (Vol 3, Part A, §4.20) or over the link
/// layer (Vol 6, Part B, §5.1.7). Inconsistent parameters are refused in any case, and so are requests during an
/// update.
public enum ParameterPolicy: BitwiseCopyable, Sendable, Hashable {
  /// Accept everything in the Specification's ranges.
  case accept
  /// Accept intervals within these, and neither latency nor supervision time-out above these.
  case acceptWithin(ConnectionParameterRange)
  case refuse

  func accepts(_ request: ConnectionParameterUpdateRequest) -> Bool {
    guard request.isValid else { return false }
    switch self {
    case .accept: return true
    case .refuse: return false
    case .acceptWithin(let limits):
      return request.intervalMin >= limits.intervalMin && request.intervalMax <= limits.intervalMax
        && request.latency <= limits.latency && request.timeout <= limits.supervisionTimeout
    }
  }
}

/// Octets in one packet on the air, and its duration in µs, in both directions. Vol 6, Part B, §4.5.10; Vol 4, Part E,
/// §7.7.65.7.
public struct LinkDataLength: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// 27 … 251 octets, 328 … 17,040 µs.
  public var transmitOctets: UInt16 = 27, transmitTime: UInt16 = 328
  public var receiveOctets: UInt16 = 27, receiveTime: UInt16 = 328
  /// The initial values of every link.
  public init() {}
  public var description: String { "\(transmitOctets) octets out, \(receiveOctets) in" }
}

/// The modulations of a link. Vol 4, Part E, §7.8.47.
public struct LinkPHYs: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var transmit: PHY, receive: PHY
  public init(transmit: PHY = .le1M, receive: PHY = .le1M) {
    self.transmit = transmit
    self.receive = receive
  }
  public var description: String { "\(transmit.text) out, \(receive.text) in" }
}

/// The modulations that a link should use: the two controllers choose one that both sides accept. Vol 4, Part E,
/// §7.8.49.
public struct PHYPreferences: BitwiseCopyable, Sendable, Equatable {
  /// nil: any.
  public var transmit: PHYSet?, receive: PHYSet?
  public var coding: PHYOptions
  public init(transmit: PHYSet? = nil, receive: PHYSet? = nil, coding: PHYOptions = PHYOptions()) {
    self.transmit = transmit
    self.receive = receive
    self.coding = coding
  }
  /// No set is empty: an empty one would permit no modulation.
  var isValid: Bool { transmit?.isEmpty != true && receive?.isEmpty != true }
  var indifference: PHYIndifference {
    var indifference: PHYIndifference = []
    if transmit == nil { indifference.insert(.transmitter) }
    if receive == nil { indifference.insert(.receiver) }
    return indifference
  }
}
