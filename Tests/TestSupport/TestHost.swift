import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP

/// A `HostCore` in a `World`, which records all its effects for the test.
public struct TestHost: ~Copyable, HCIHost {
  public var core: HostCore
  public private(set) var isStarted = false
  public private(set) var startFailure: StartFailure?
  /// How often the controller failed.
  public private(set) var failures = 0
  public private(set) var advertisements: [Heard] = []
  public private(set) var links: [LinkID] = []
  /// Every link there ever was, with its peer and role.
  public private(set) var ups: [(link: LinkID, peer: PeerID, role: LinkRole)] = []
  /// Every identity that a peer distributed, by link.
  public private(set) var identified: [(link: LinkID, address: PeerAddress)] = []
  public private(set) var downs: [(link: LinkID, reason: HCIStatus)] = []
  /// Every completion of every request: one each, if the core is correct.
  public private(set) var completions: [RequestID: [Ending]] = [:]
  public private(set) var values: [(link: LinkID, handle: AttributeHandle, value: [UInt8], isIndication: Bool)] = []
  /// Changed services, and what the core then discovered.
  public private(set) var changes: [(link: LinkID, range: HandleRange, isRediscovered: Bool)] = []
  public private(set) var written: [(handle: AttributeHandle, value: [UInt8])] = []
  public private(set) var questions: [(id: ServerRequestID, handle: AttributeHandle, value: [UInt8]?)] = []
  public private(set) var subscriptions: [(link: LinkID, handle: AttributeHandle, ClientCharacteristicConfiguration)] =
    []
  /// Questions of pairings, and what each link is protected by.
  public private(set) var asked: [(link: LinkID, question: PairingQuestion)] = []
  /// How many of them the test has answered.
  public var answered = 0
  /// Which consents its user refuses.
  public var refusal = Refusal.none
  public enum Refusal: Sendable { case none, replacements, all }
  public private(set) var pairings: [(link: LinkID, error: PairingError?)] = []
  public private(set) var securities: [LinkID: LinkSecurity] = [:]
  /// What a driver would have stored.
  public private(set) var bonds: [PeerID: Bond] = [:]
  public private(set) var failedEncryptions: [(link: LinkID, status: HCIStatus)] = []
  public private(set) var mtus: [LinkID: Int] = [:]
  /// Enhanced bearers of each link.
  public private(set) var bearers: [LinkID: Int] = [:]
  public private(set) var readyEdges = 0
  /// The same by link.
  public private(set) var edges: [LinkID: Int] = [:]
  /// Links whose queue refused an offer, and that have not reported room since.
  public private(set) var full: Set<LinkID> = []
  /// Edges without a refused offer before them: there must be none.
  public private(set) var needlessEdges = 0
  public private(set) var confirmations = 0
  /// Indications sent and not confirmed, by link.
  public private(set) var indicating: [LinkID: AttributeHandle] = [:]
  public private(set) var violations: [String] = []
  /// Its active scans.
  public private(set) var scans: Set<ScanID> = []
  /// The sets that are on, as the core reported.
  public private(set) var advertisingSets: Set<AdvertisingSetID> = []
  public var isAdvertising: Bool { !advertisingSets.isEmpty }
  /// All reports for each set, in order.
  public private(set) var advertisingReports: [AdvertisingSetID: [AdvertisingWord]] = [:]
  /// The reason for each end of the first set.
  public var advertisingEnds: [AdvertisingEnd] {
    (advertisingReports[.first] ?? []).compactMap { if case .stopped(let end) = $0 { end } else { nil } }
  }
  public private(set) var lastRequest: UInt64 = 0
  /// Time of the last call to the core.
  private var now = Instant.zero
  /// Every packet in both directions, for tests that replay them; nil: not kept.
  public var trace: [(isFromHost: Bool, at: Instant, octets: [UInt8])]?

  public struct Heard: Sendable {
    public var at: Instant
    public var peer: PeerAddress
    /// The scan that reported it.
    public var scan: ScanID
    public var rssi: Int8?
    public var isConnectable: Bool
    public var hasScanResponse: Bool
    public var isLegacy: Bool
    public var isTruncated: Bool
    public var data: AdvertisingData
  }
  public enum AdvertisingWord: Sendable, Equatable {
    case started
    case stopped(AdvertisingEnd)
    case failed(HCIStatus)
  }
  public enum Ending: Sendable, Equatable {
    case linked(LinkID)
    case done
    case value([UInt8])
    case parameters(ConnectionParameters)
    case rssi(Int8?)
    case phys(LinkPHYs)
    case secured(LinkSecurity)
    case failed(String)
    public var isSuccess: Bool { if case .failed = self { false } else { true } }
  }

  /// `seed` determines its private addresses.
  public init(
    _ database: Database = Database(), seed: UInt64 = 0, _ configure: (inout HostConfiguration) -> Void = { _ in }
  ) {
    var configuration = HostConfiguration(), chance = SplitMix64(seed: seed)
    configure(&configuration)
    core = HostCore(configuration: configuration, database: database, chance: &chance)
  }

  /// A number for a request.
  public mutating func newID() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }
  /// Requests with a number that have not ended.
  public var unfinished: [RequestID] {
    (0..<lastRequest).map { RequestID(rawValue: $0 + 1) }.filter { completions[$0] == nil }
  }
  /// Requests that have ended more than once: there must be none.
  public var overfinished: [RequestID] { completions.filter { $0.value.count > 1 }.map(\.key) }
  /// Offers a notification, and records a refusal.
  public mutating func notify(_ value: [UInt8], of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    account(core.notify(value.span, of: handle, on: link), link)
  }
  /// Offers several values at once, and records refusals.
  public mutating func notify(
    _ values: [(handle: AttributeHandle, value: [UInt8])], on link: LinkID
  ) -> SendAnswer {
    let answer = core.notify(values, on: link)
    if answer == .full { full.insert(link) }
    return answer
  }
  /// Offers a Write Command, and records a refusal.
  public mutating func write(command value: [UInt8], to handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    account(core.write(command: value.span, to: handle, on: link), link)
  }
  private mutating func account(_ answer: SendAnswer?, _ link: LinkID) -> SendAnswer? {
    if answer == .full { full.insert(link) }
    return answer
  }
  public mutating func indicate(_ value: [UInt8], of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    let answer = core.indicate(value.span, of: handle, on: link)
    if answer?.isAccepted == true { indicating[link] = handle }
    return answer
  }
  /// Answers a client's question to the application; nil refuses.
  public mutating func answer(_ id: ServerRequestID, _ value: [UInt8]?, now: Instant) {
    guard let index = questions.firstIndex(where: { $0.id == id }) else { return }
    let isRead = questions.remove(at: index).value == nil
    switch value {
    case let value? where isRead: core.answerRead(id, value, now: now)
    case nil: core.refuse(id, ATTError(rawValue: 0x80), now: now)
    default: core.answerWrite(id, now: now)
    }
  }
  /// How the request ended; nil while it runs.
  public func ending(_ id: RequestID) -> Ending? { completions[id]?.first }

  public mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    self.now = now
    trace?.append((false, now, packet.indices.map { packet[$0] }))
    core.receive(packet, now: now)
    drain()
  }
  public mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    let start = output.byteCount, wrote = core.nextPacket(into: &output, now: now)
    if wrote, trace != nil {
      var octets: [UInt8] = []
      for place in start..<output.byteCount { octets.append(output.octet(at: place)) }
      trace?.append((true, now, octets))
    }
    drain()
    return wrote
  }
  public var deadline: Instant? { core.deadline }
  public mutating func expire(now: Instant) {
    self.now = now
    core.expire(now: now)
    drain()
  }
  /// Takes the core's effects. Call it after calling the core directly.
  public mutating func drain() {
    while let effect = core.nextEffect() { take(effect) }
  }

  private mutating func take(_ effect: HostEffect) {
    switch effect {
    case .started: isStarted = true
    case .startFailed(let failure): startFailure = failure
    case .controllerFailed:
      isStarted = false
      failures += 1
    case .scanStarted(let scan): scans.insert(scan)
    case .scanStopped(let scan): scans.remove(scan)
    case .scanFailed(let scan, let status):
      scans.remove(scan)
      violations.append("scan: \(status)")
    case .discovered(let scan, let discovery):
      var data = core.withBytes(of: discovery.advertising) { AdvertisingData(decoding: $0) }
      if let response = discovery.scanResponse {
        data.join(core.withBytes(of: response) { AdvertisingData(decoding: $0) })
      }
      advertisements.append(
        Heard(
          at: now, peer: discovery.address, scan: scan, rssi: discovery.rssi, isConnectable: discovery.isConnectable,
          hasScanResponse: discovery.scanResponse != nil, isLegacy: discovery.isLegacy,
          isTruncated: discovery.isTruncated, data: data))
    case .advertisingStarted(let id):
      advertisingSets.insert(id)
      advertisingReports[id, default: []].append(.started)
    case .advertisingStopped(let id, let reason):
      advertisingSets.remove(id)
      advertisingReports[id, default: []].append(.stopped(reason))
    case .advertisingFailed(let id, let status):
      advertisingSets.remove(id)
      advertisingReports[id, default: []].append(.failed(status))
      violations.append("advertising: \(status)")
    case .linkUp(let link, let peer, let role, _):
      links.append(link)
      ups.append((link, peer, role))
    case .linkDown(let link, let reason):
      links.removeAll { $0 == link }
      full.remove(link)
      indicating[link] = nil
      downs.append((link, reason))
    case .peerIdentified(let link, let address): identified.append((link, address))
    case .parametersChanged, .dataLengthChanged, .physChanged: break
    case .mtuChanged(let link, let mtu): mtus[link] = mtu
    case .bearersChanged(let link, let count): bearers[link] = count
    case .completed(let id, let result): completions[id, default: []].append(ending(of: result))
    case .value(let link, let handle, let range, let isIndication):
      values.append((link, handle, core.bytes(of: range), isIndication))
    case .servicesChanged(let link, let range): changes.append((link, range, false))
    case .rediscovered(let link, let range, let error):
      if let error, error != .bearerClosed(.disconnected) { violations.append("rediscovery: \(error)") }
      changes.append((link, range, true))
    case .subscriptionChanged(let link, let handle, let configuration):
      subscriptions.append((link, handle, configuration))
    case .written(_, let handle, let range, _): written.append((handle, core.bytes(of: range)))
    case .readRequested(let id, _, let handle, _): questions.append((id, handle, nil))
    case .writeRequested(let id, _, let handle, let range, _, let following):
      if following == 0 { questions.append((id, handle, core.bytes(of: range))) }
    case .requestCancelled(let id, _): questions.removeAll { $0.id == id }
    case .securityChanged(let link, let security): securities[link] = security
    case .pairingAsked(let link, let question): asked.append((link, question))
    case .pairingEnded(let link, let error): pairings.append((link, error))
    case .bondChanged(let peer): bonds[peer] = core.bond(with: peer)
    case .bondRemoved(let peer): bonds[peer] = nil
    case .encryptionFailed(let link, let status): failedEncryptions.append((link, status))
    case .readyToSend(let link):
      readyEdges += 1
      edges[link, default: 0] += 1
      if full.remove(link) == nil { needlessEdges += 1 }
    case .indicationConfirmed(let link, let handle):
      confirmations += 1
      if indicating[link] == handle { indicating[link] = nil }
    case .channelOpened, .channelReceived, .channelReady, .channelClosed: break
    // Three that are also outcomes, by name: their text is for people.
    case .violation(_, .parametersRejected(let status)): violations.append("parametersRejected: \(status)")
    case .violation(_, .applicationTooSlow(let handle)): violations.append("applicationTooSlow: \(handle.text)")
    case .violation(_, .transactionTimedOut): violations.append("transactionTimedOut")
    case .violation(_, let violation): violations.append("\(violation)")
    }
  }
  private func ending(of result: HostResult) -> Ending {
    switch result {
    case .connected(let link): .linked(link)
    case .parameters(let parameters): .parameters(parameters)
    case .rssi(let rssi): .rssi(rssi)
    case .phys(let phys): .phys(phys)
    case .secured(let security): .secured(security)
    case .disconnected, .done, .gatt(.done), .gatt(.discovered): .done
    case .gatt(.databaseHash(let hash)): .value(hash?.octets ?? [])
    case .gatt(.value(let range)), .gatt(.values(let range)), .returned(let range), .features(let range):
      .value(core.bytes(of: range))
    case .channel: .done
    case .gatt(.failed(let error)): .failed("\(error)")
    case .failed(let failure): .failed("\(failure)")
    }
  }
}
