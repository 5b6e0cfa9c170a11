import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// What ``TraceStatistics`` counts of one connection.
public struct ConnectionStatistics: Sendable {
  /// Kinds of PDU, and changes, that are kept; further ones are only counted.
  public static var mostKinds: Int { 256 }
  public static var mostChanges: Int { 256 }

  public var adapter: UInt16
  /// The connection handle; in a link-layer capture the access address.
  public var connection: UInt32
  /// nil: the trace does not show the beginning.
  public var peer: DeviceAddress?
  public var peerType: AddressType?
  public var role: LinkRole?
  /// The records and times of the first and the last packet, in nanoseconds since 1970.
  public var firstRecord: Int, lastRecord: Int
  public var firstTime: Int64, lastTime: Int64
  /// The reason of the Disconnection Complete event; nil: the trace does not show the end.
  public var ending: HCIStatus?

  /// ACL packets, or data packets of the link layer.
  public internal(set) var packets = Amounts(Amount())
  /// L2CAP frames, and the octets after their headers.
  public internal(set) var frames = Amounts(Amount())
  /// Those octets over time.
  public internal(set) var throughput = Sides(TraceSeries())
  public internal(set) var kinds: [Kind: Amount] = [:]
  /// PDUs of kinds beyond ``mostKinds``.
  public internal(set) var otherKinds = 0
  /// From requests to responses, from indications to confirmations.
  public internal(set) var roundTrips: [RoundTrip: Histogram] = [:]
  public internal(set) var changes: [Change] = []
  public internal(set) var changeCount = 0
  public internal(set) var attMTU = 23
  /// The credit-based channels that the trace shows the beginning of, in the order in which they were opened.
  public var channels: [ChannelStatistics] { book.channels }
  /// Channels beyond 128.
  public var uncountedChannels: Int { book.uncounted }
  public internal(set) var hints = Hints()

  /// Of the host, of the peer; what has no direction in the capture counts for `unknown`.
  public struct Sides<Value: Sendable>: Sendable {
    public var fromHost: Value, toHost: Value, unknown: Value
    init(_ value: Value) { (fromHost, toHost, unknown) = (value, value, value) }
    subscript(direction: HCIDirection?) -> Value {
      get {
        switch direction {
        case .fromHost: fromHost
        case .fromController: toHost
        case nil: unknown
        }
      }
      set {
        switch direction {
        case .fromHost: fromHost = newValue
        case .fromController: toHost = newValue
        case nil: unknown = newValue
        }
      }
    }
  }
  public struct Amount: Sendable, Equatable {
    public var count = 0, octets = 0
    mutating func add(_ octets: Int) {
      count += 1
      self.octets += octets
    }
  }
  public typealias Amounts = Sides<Amount>

  /// A kind of PDU in one direction.
  public struct Kind: Hashable, Sendable {
    public var layer: TraceLayer
    /// The opcode; for `l2cap`, whose contents are not known, the channel.
    public var number: UInt16
    public var direction: HCIDirection?
    /// The Specification's name: `ATT_READ_REQ`.
    public var name: String {
      switch layer {
      case .att: ATTOpcode(rawValue: UInt8(truncatingIfNeeded: number)).name.map { "\($0)" } ?? unknown("ATT PDU")
      case .smp: SMPCode(rawValue: UInt8(truncatingIfNeeded: number)).description
      case .sig: SignalCode(rawValue: UInt8(truncatingIfNeeded: number)).name ?? unknown("Signaling command")
      default: ChannelID(rawValue: number).name ?? "channel 0x" + hexDigits(UInt64(number), 4)
      }
    }
    private func unknown(_ what: String) -> String { what + " 0x" + hexDigits(UInt64(number), 2) }
  }
  /// What is answered, and who asks.
  public struct RoundTrip: Hashable, Sendable {
    public var isIndication: Bool
    public var asker: HCIDirection?
    public init(isIndication: Bool, asker: HCIDirection?) {
      self.isIndication = isIndication
      self.asker = asker
    }
  }
  /// A property of the link from some record on.
  public struct Change: Sendable {
    public enum Value: Sendable, Equatable {
      case mtu(Int)
      case parameters(interval: Duration, latency: UInt16, timeout: Duration)
      case dataLength(tx: UInt16, rx: UInt16)
      case phy(tx: PHY, rx: PHY)
      case encryption(Bool)
    }
    public var number: Int
    public var time: Int64
    public var value: Value
  }
  /// What suggests retransmissions. An HCI trace does not show the air: a packet that the controller completes late was
  /// repeated, or waited for a peer that did not listen.
  public struct Hints: Sendable {
    /// Link-layer captures: data packets with the sequence number of the one before. Vol 6, Part B, §4.5.9.
    public internal(set) var repeated = Sides(0)
    /// From a packet that the host sent, or the completion before it, to its Number Of Completed Packets event.
    public internal(set) var completion = Histogram()
    /// Completions that took more than three times as long as the peer may stay silent: a packet waits for the peer,
    /// the acknowledgement may come one time later, and the controller may report another time later.
    public internal(set) var late = 0
    /// Fragments that did not make a frame.
    public internal(set) var violations = 0
    /// Requests and indications that the trace shows no answer to.
    public internal(set) var unanswered = 0
  }

  // MARK: What the collector remembers

  var book = ChannelBook()
  /// Times of what waits for an answer.
  var asked: [Question: Int64] = [:]
  /// On its bearer: each has a request of its own.
  struct Question: Hashable {
    var trip: RoundTrip
    var bearer: ChannelID?
  }
  /// Times of packets that the controller has not completed: the oldest first.
  var sent: [Int64] = []
  var sentDropped = 0
  static var mostSent: Int { 1_024 }
  var lastCompletion: Int64?
  var clientMTU: Int?
  var interval: Duration?
  var latency = 0
  /// The sequence number of each side's last data packet.
  var sequence = Sides<Bool?>(nil)

  init(adapter: UInt16, connection: UInt32, number: Int, time: Int64) {
    (self.adapter, self.connection) = (adapter, connection)
    (firstRecord, lastRecord, firstTime, lastTime) = (number, number, time, time)
  }

  mutating func saw(_ number: Int, _ time: Int64) {
    lastRecord = number
    lastTime = max(lastTime, time)
  }
  func elapsed(_ time: Int64) -> Int64 {
    let (difference, overflow) = time.subtractingReportingOverflow(firstTime)
    return overflow ? 0 : difference
  }
  mutating func change(_ value: Change.Value, _ number: Int, _ time: Int64) {
    changeCount += 1
    if changes.count < Self.mostChanges { changes.append(Change(number: number, time: time, value: value)) }
    if case .parameters(let interval, let latency, _) = value {
      self.interval = interval
      self.latency = Int(latency)
    }
  }
  mutating func count(_ kind: Kind, _ octets: Int) {
    guard kinds.count < Self.mostKinds || kinds[kind] != nil else {
      otherKinds += 1
      return
    }
    kinds[kind, default: Amount()].add(octets)
  }

  // MARK: Round trips

  mutating func ask(_ trip: RoundTrip, on bearer: ChannelID?, _ time: Int64) {
    // A second request while the first waits is a breach of the protocol: the first has no answer then.
    if asked.updateValue(time, forKey: Question(trip: trip, bearer: bearer)) != nil { hints.unanswered += 1 }
  }
  mutating func answer(_ trip: RoundTrip, on bearer: ChannelID?, _ time: Int64) {
    guard let asked = asked.removeValue(forKey: Question(trip: trip, bearer: bearer)) else { return }
    let (nanoseconds, overflow) = time.subtractingReportingOverflow(asked)
    // The clock was set back in between: no duration is known.
    guard !overflow, nanoseconds >= 0 else { return }
    roundTrips[trip, default: Histogram()].add(.nanoseconds(nanoseconds))
  }

  // MARK: Completions

  mutating func send(_ time: Int64) {
    if sent.count < Self.mostSent { sent.append(time) } else { sentDropped += 1 }
  }
  mutating func complete(_ count: Int, _ time: Int64) {
    let known = min(count, sent.count)
    for index in 0..<known {
      let begin = max(sent[index], lastCompletion ?? .min)
      let (nanoseconds, overflow) = time.subtractingReportingOverflow(begin)
      guard !overflow, nanoseconds >= 0 else { continue }
      // Packets of one event share its time: the first of them has waited.
      if index == 0 {
        let duration = Duration.nanoseconds(nanoseconds)
        hints.completion.add(duration)
        if let interval, duration > interval * (3 * (1 + latency)) { hints.late += 1 }
      }
    }
    sent.removeFirst(known)
    sentDropped = max(0, sentDropped - (count - known))
    lastCompletion = time
  }
}

extension ConnectionStatistics {
  public var duration: Duration { .nanoseconds(max(0, elapsed(lastTime))) }
  /// The kinds in the order of their layers and numbers.
  public var sortedKinds: [(kind: Kind, amount: Amount)] {
    func order(_ kind: Kind) -> (Int, UInt16, Int) {
      let layers: [TraceLayer] = [.att, .smp, .sig, .l2cap]
      return (
        layers.firstIndex(of: kind.layer) ?? layers.count, kind.number,
        kind.direction == .fromHost ? 0 : kind.direction == nil ? 2 : 1
      )
    }
    return kinds.map { (kind: $0.key, amount: $0.value) }.sorted { order($0.kind) < order($1.kind) }
  }
}
