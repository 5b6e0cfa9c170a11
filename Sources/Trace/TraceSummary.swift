import BindruneATT
import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// # TraceSummary
/// **Overview**: what two versions of a device are compared by, as a ``TraceSink``: the GATT databases that a trace
/// shows, errors, findings of the ``Checker``, and ``TraceStatistics``.
///
///     var one = DissectingSink(TraceSummary()), other = DissectingSink(TraceSummary())
///     try first.read(into: &one)
///     try second.read(into: &other)
///     let test = RankTest(one.sink.roundTrips(of: trip), other.sink.roundTrips(of: trip))
///
/// **Function**: memory is bounded by ``mostServers``, ``mostErrors`` and the bounds of its parts.
public struct TraceSummary: TraceSink {
  /// Servers whose databases are kept; kinds of errors that are told apart.
  public static var mostServers: Int { 256 }
  public static var mostErrors: Int { 1_024 }

  /// Whose database it is: the host's own, or that of a peer; nil: the trace does not show its address.
  public enum Server: Hashable, Sendable {
    case host
    case peer(DeviceAddress?)
  }
  /// An Error Response: who sent it, to which request, with which code.
  public struct Failure: Hashable, Sendable {
    public var isHosts: Bool
    public var request: ATTOpcode
    public var error: ATTError
  }

  private var sinks = PairedSink(TraceStatistics(), Checker())
  public var statistics: TraceStatistics { sinks.first }
  public private(set) var databases: [Server: ShownDatabase] = [:]
  public private(set) var failures: [Failure: Int] = [:]
  /// How often each rule is broken.
  public private(set) var findings: [CheckRule: Int] = [:]
  private struct Link: Hashable {
    var adapter: UInt16, connection: UInt32
    var bearer: ChannelID?
    var isHosts = false
  }
  private var peers: [Link: DeviceAddress] = [:]
  /// Requests that wait for a response.
  private var asked: [Link: [UInt8]] = [:]
  private static var mostLinks: Int { 4_096 }

  public init() {}

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    sinks.record(record, bytes)
    if sinks.second.findings.count >= 1_000 { take() }
    guard case .packet = record.content, bytes.count > 0, bytes[0] == HCIPacketType.event.rawValue else { return }
    switch try? HCIEvent(bytes) {
    case .leConnectionComplete(let event) where event.status == .success:
      open(record, event.connectionHandle, event.peerAddress)
    case .leEnhancedConnectionComplete(let event) where event.status == .success:
      open(record, event.connectionHandle, event.peerAddress)
    default: break
    }
  }
  private mutating func open(_ record: CaptureRecord, _ handle: ConnectionHandle, _ peer: DeviceAddress) {
    let link = Link(adapter: record.adapter, connection: UInt32(handle.rawValue))
    if peers.count < Self.mostLinks || peers[link] != nil { peers[link] = peer }
    asked = asked.filter { $0.key.adapter != link.adapter || $0.key.connection != link.connection }
  }
  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    sinks.frame(frame, payload, of: record)
    if frame.channel == .attribute { attribute(frame, payload) }
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    sinks.enhancedPDU(frame, pdu, of: record)
    attribute(frame, pdu)
  }
  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    sinks.violation(violation, handle, direction, of: record)
  }
  public mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) { sinks.lost(handle, of: record) }
  public mutating func pause() {
    sinks.pause()
    take()
  }
  private mutating func take() {
    for finding in sinks.second.takeFindings() { findings[finding.rule, default: 0] += 1 }
  }

  /// `frame.direction` is nil in a capture without directions: its questions and answers are one side's.
  private mutating func attribute(_ frame: TraceFrame, _ pdu: Span<UInt8>) {
    guard pdu.count > 0, frame.isWhole else { return }
    let opcode = ATTOpcode(rawValue: pdu[0]), isHosts = frame.direction == .fromHost
    var link = Link(adapter: frame.adapter, connection: frame.connection, bearer: frame.bearer, isHosts: isHosts)
    switch opcode.kind {
    case .request:
      // What a discovery asks: opcode, range, type and a UUID have no more octets.
      guard asked.count < Self.mostLinks || asked[link] != nil else { return }
      asked[link] = (0..<min(pdu.count, 23)).map { pdu[$0] }
    case .response:
      if frame.direction != nil { link.isHosts = !isHosts }
      guard let request = asked.removeValue(forKey: link) else { return }
      if opcode == ErrorResponse.opcode, pdu.count == 5 {
        let failure = Failure(
          isHosts: isHosts, request: ATTOpcode(rawValue: pdu[1]), error: ATTError(rawValue: pdu[4]))
        // The end of a search is no failure. Vol 3, Part F, §3.4.1.1.
        let isEnd = failure.error == .attributeNotFound && Self.searches.contains(failure.request)
        if isEnd { return learn(frame, isHosts) { $0.learnEnd(of: request) } }
        if failures.count < Self.mostErrors || failures[failure] != nil { failures[failure, default: 0] += 1 }
        return
      }
      learn(frame, isHosts) { $0.learn(request, pdu) }
    case .command, .notification, .indication, .confirmation, nil: break
    }
  }
  private mutating func learn(_ frame: TraceFrame, _ isHosts: Bool, _ body: (inout ShownDatabase) -> Void) {
    let link = Link(adapter: frame.adapter, connection: frame.connection)
    let server: Server = isHosts ? .host : .peer(peers[link])
    guard databases.count < Self.mostServers || databases[server] != nil else { return }
    body(&databases[server, default: ShownDatabase()])
  }
  private static let searches: Set<ATTOpcode> = [
    FindInformationRequest.opcode, FindByTypeValueRequest.opcode, ReadByTypeRequest.opcode,
    ReadByGroupTypeRequest.opcode,
  ]

  // MARK: Of all connections

  /// Round trips of all connections.
  public func roundTrips(of trip: ConnectionStatistics.RoundTrip) -> Histogram {
    var sum = Histogram()
    for connection in statistics.connections { connection.roundTrips[trip].map { sum.add($0) } }
    return sum
  }
  /// Octets of frames in a direction, and how long the connections lasted.
  public func traffic(_ direction: HCIDirection?) -> (octets: Int, duration: Duration) {
    statistics.connections.reduce((0, .zero)) {
      ($0.0 + $1.frames[direction].octets, $0.1 + $1.duration)
    }
  }
  /// Databases with an attribute, the host's own first.
  public var servers: [Server] {
    databases.filter { !$0.value.attributes.isEmpty }.keys.sorted { Self.order($0) < Self.order($1) }
  }
  private static func order(_ server: Server) -> (Int, UInt64) {
    switch server {
    case .host: (0, 0)
    case .peer(let address): (1, address?.value ?? 0)
    }
  }
  /// Servers of another address that are compared with one.
  private static var mostGuesses: Int { 16 }
  /// Servers of two traces that stand for each other: the hosts, those with the same address, and the others by how many
  /// attributes they share.
  public static func pairs(_ one: TraceSummary, _ other: TraceSummary) -> [(Server?, Server?)] {
    var left = one.servers, right = other.servers, result: [(Server?, Server?)] = []
    for server in left where right.contains(server) {
      result.append((server, server))
      left.removeAll { $0 == server }
      right.removeAll { $0 == server }
    }
    for server in left {
      let own = one.databases[server] ?? ShownDatabase()
      let best = right.filter { ($0 == .host) == (server == .host) }.prefix(Self.mostGuesses).max {
        ShownDatabase.changes(own, other.databases[$0] ?? ShownDatabase()).alike
          < ShownDatabase.changes(own, other.databases[$1] ?? ShownDatabase()).alike
      }
      result.append((server, best))
      right.removeAll { $0 == best }
    }
    return result + right.map { (nil, $0) }
  }
}
