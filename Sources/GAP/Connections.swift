import BindruneWire
import DequeModule
import GATT
import HCI

/// # Connections
/// **Overview**: serves all connection requests with the controller's single attempt to connect.
///
/// **Function**: a request names one or more peers; the first that is reached answers it. It waits without limit unless
/// it has a deadline, and `cancel` ends it at any time.
///
/// - One peer: the controller gets its address. Vol 4, Part E, §7.8.12, §7.8.66.
/// - Several: all of them go on the Filter Accept List, and one initiation uses it (§7.8.14 – §7.8.17), so that an
///   absent peer delays no other. The list changes only while nothing initiates; no other machine uses it.
/// - More than the list holds, or several without a list: they take turns, as many at a time as possible, `turn` each.
///   A turn exceeds the longest interval of legacy advertising (10.24 s: Vol 4, Part E, §7.8.5; and up to 10 ms: Vol 6,
///   Part B, §4.4.2.2.1), so that every peer in range advertises at least once during its turn.
///
/// An attempt with the list that fails names no peer. One that an event ends is repeated once: the failure may be that
/// of a moment, such as 0x3E. After a second one, or a refused command, each of its peers gets an attempt alone, for a
/// turn each; then the list is used again. A list whose contents are unknown is cleared first (§7.8.15).
///
/// One initiation has one set of parameters: the first peer's. The verdict of a link reports a request with others.
///
/// A link that comes up answers its request if that still waits, whatever else was cancelled; otherwise the host
/// disconnects it. While suspended, requests wait and no attempt is made.
///
/// **Phases**: idle → listing (a change of the list, repeated) → creating (command sent) → initiating → idle. After a
/// change of targets: initiating → cancelling → idle, with a Connection Complete event, or after a time-out: a
/// controller that never reports the end of a cancelled attempt (Bumble's does not) must not block the next one. It may
/// even continue the old attempt and refuse the next one (0x0C), which is then repeated. The controller has no room for
/// more links: creating → blocked, until a link goes down, another request arrives, or a time has passed.
struct Connections {
  struct Request {
    var id: RequestID
    var peers: [PeerAddress]
    /// The address on the air of each peer.
    var onAir: [PeerAddress]
    var parameters: ConnectionParameters
    /// nil: none.
    var deadline: Instant?
    /// `HCILayer.cause` of the call.
    var cause: UInt64
    /// The controller has accepted an attempt that includes it.
    fileprivate var hasBeenTried = false

    init(
      id: RequestID, peers: [PeerAddress], onAir: [PeerAddress], parameters: ConnectionParameters,
      deadline: Instant? = nil, cause: UInt64 = 0
    ) {
      self.id = id
      self.peers = peers
      self.onAir = onAir
      self.parameters = parameters
      self.deadline = deadline
      self.cause = cause
    }
  }
  /// A peer to connect to, its request, and its address on the air: its own, unless `use(_:for:)` has set another.
  private struct Target: BitwiseCopyable {
    var request: RequestID, peer: PeerAddress, air: PeerAddress
  }
  private struct Attempt: Equatable {
    var peers: [PeerAddress], usesList: Bool, parameters: ConnectionParameters
  }
  enum Change: BitwiseCopyable { case clear, add(PeerAddress), remove(PeerAddress) }
  enum Phase: BitwiseCopyable {
    case idle
    case listing(Change)
    case creating
    case initiating(since: Instant)
    case cancelling(deadline: Instant)
    case blocked(until: Instant)
  }
  /// The result of a connection that came up.
  enum Verdict: BitwiseCopyable {
    /// A central connected to us, or our request succeeded. `parameters`: those requested, if the link has others.
    case linkUp(RequestID?, parameters: ConnectionParameters? = nil)
    /// No request wants it.
    case unwanted
    /// There is no link.
    case nothing
  }
  /// Peers in requests at once: far more than any list holds, so that no caller needs turns of its own.
  static var capacity: Int { 1024 }
  static var cancelTimeout: Duration { .seconds(2) }
  static var turn: Duration { .seconds(11) }

  private(set) var phase = Phase.idle
  /// In order of arrival.
  private var requests: [Request] = [] {
    didSet { requestDeadline = requests.reduce(nil) { .earliest($0, $1.deadline) } }
  }
  /// The earliest of the requests: `deadline` is asked for after every packet.
  private var requestDeadline: Instant?
  /// In the order of their turns.
  private var targets = Deque<Target>()
  /// The peers of `targets`, each in one, for reports of scans. Advances `revision` with each change.
  private var wanted: Set<PeerAddress> = [] { didSet { revision &+= 1 } }
  /// Another number than before if other peers are wanted.
  private(set) var revision: UInt64 = 0
  /// The controller's attempt; nil also in `creating`, if it ended before the command was answered.
  private var attempt: Attempt?
  /// The peers on the Filter Accept List.
  private var listed: [PeerAddress] = []
  /// The controller has refused a change of the list, or has not answered.
  private var isListUnknown = false
  /// Until then attempts have one peer each.
  private var listPause: Instant?
  /// An event has ended the last attempt with the list without a link.
  private var hasListFailed = false
  /// Requests that have ended without a link, for `nextFailure`.
  private var failures = Deque<(RequestID, HostFailure)>()
  private(set) var isSuspended = false
  /// Commands without an answer yet.
  private var commands = 0
  /// The controller has not reported the end of a cancelled attempt.
  private var isEndPending = false
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public
  /// Usable entries of the Filter Accept List; below 2 it is not used.
  var acceptListSize = 0

  init(tag: UInt32) { self.tag = tag }

  // MARK: From above

  /// The controller has been reset: returns the requests that fail.
  mutating func reset() -> [RequestID] {
    let orphans = requests.map { $0.id }
    let revision = revision
    self = Connections(tag: tag)
    self.revision = revision &+ 1
    return orphans
  }

  /// False when there are too many peers, or another request has one of them already.
  mutating func connect(_ request: Request, hci: inout HCILayer, now: Instant) -> Bool {
    guard targets.count + request.peers.count <= Self.capacity,
      !request.peers.contains(where: wanted.contains)
    else { return false }
    requests.append(request)
    wanted.formUnion(request.peers)
    for (peer, air) in zip(request.peers, request.onAir) {
      targets.append(Target(request: request.id, peer: peer, air: air))
    }
    unblock(&hci, now)
    return true
  }

  /// True when `id` was waiting or in progress: it has ended, and the caller reports its one completion.
  mutating func cancel(_ id: RequestID, hci: inout HCILayer, now: Instant) -> Bool {
    guard take(id) != nil else { return false }
    step(&hci, now)
    return true
  }

  /// There is a link with this peer: requests to connect to it end with `.busy`.
  mutating func failRequests(for peer: PeerAddress, hci: inout HCILayer, now: Instant) {
    fail(.busy) { $0.peers.contains(peer) }
    step(&hci, now)
  }

  var wantsAnybody: Bool { !wanted.isEmpty }
  func wants(_ peer: PeerAddress) -> Bool { wanted.contains(peer) }
  /// From now on attempts for `peer` use another address: a private one that resolves to it.
  mutating func use(_ air: PeerAddress, for peer: PeerAddress, hci: inout HCILayer, now: Instant) {
    guard wanted.contains(peer) else { return }
    for index in targets.indices where targets[index].peer == peer { targets[index].air = air }
    step(&hci, now)
  }

  /// Stops initiating until `resume`; requests wait. `isQuiet` is true once it has stopped.
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    step(&hci, now)
  }
  mutating func resume(hci: inout HCILayer, now: Instant) {
    isSuspended = false
    unblock(&hci, now)
  }
  /// Nothing initiates, and no command is in flight.
  var isQuiet: Bool {
    switch phase {
    case .idle, .blocked: commands == 0
    case .listing, .creating, .initiating, .cancelling: false
    }
  }

  /// A link has gone down: there may be room for another.
  mutating func disconnected(hci: inout HCILayer, now: Instant) { unblock(&hci, now) }

  /// Requests that ended without a link, one at a time. Call it after every other call.
  mutating func nextFailure() -> (RequestID, HostFailure)? { failures.popFirst() }

  // MARK: Planning

  /// The attempt to make next; nil: none.
  private var plan: Attempt? {
    guard !isSuspended, let first = targets.first, let request = requests.first(where: { $0.id == first.request })
    else {
      return nil
    }
    let usesList = targets.count > 1 && acceptListSize > 1 && listPause == nil
    let peers = targets.prefix(usesList ? acceptListSize : 1).map { $0.air }
    return Attempt(peers: peers, usesList: usesList, parameters: request.parameters)
  }
  private mutating func unblock(_ hci: inout HCILayer, _ now: Instant) {
    if case .blocked = phase { phase = .idle }
    step(&hci, now)
  }
  /// Sends the next command, in a phase that awaits neither an answer nor an event.
  private mutating func step(_ hci: inout HCILayer, _ now: Instant) {
    switch phase {
    case .idle:
      guard let plan else { return }
      let cause = hci.cause
      hci.cause = requests.first { $0.id == targets.first?.request }?.cause ?? 0
      defer { hci.cause = cause }
      if plan.usesList, let change = change(to: plan.peers) {
        send(change, &hci, now)
        phase = .listing(change)
      } else {
        create(plan, &hci, now)
        attempt = plan
        phase = .creating
      }
    case .initiating where attempt == nil || attempt != plan: sendCancel(&hci, now)
    case .blocked where targets.isEmpty: phase = .idle
    case .listing, .creating, .initiating, .cancelling, .blocked: break
    }
  }
  /// The next change of the list on the way to `peers`.
  private func change(to peers: [PeerAddress]) -> Change? {
    if isListUnknown { return .clear }
    if let peer = listed.first(where: { !peers.contains($0) }) { return .remove(peer) }
    return peers.first { !listed.contains($0) }.map { .add($0) }
  }

  /// Removes a request and its targets.
  private mutating func take(_ id: RequestID) -> Request? {
    guard let index = requests.firstIndex(where: { $0.id == id }) else { return nil }
    // Another request may want the peers of attempts that have failed.
    for target in targets where target.request == id { wanted.remove(target.peer) }
    targets.removeAll { $0.request == id }
    return requests.remove(at: index)
  }
  private mutating func fail(_ failure: HostFailure, where condition: (Request) -> Bool) {
    for request in requests where condition(request) {
      _ = take(request.id)
      failures.append((request.id, failure))
    }
  }

  // MARK: From the controller

  /// A command with our tag has ended.
  mutating func answered(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) {
    commands = max(0, commands - 1)
    switch (phase, outcome.opcode) {
    // The event of the attempt decides, or its absence: even a refusal (0x0C) can mean that a link is about to come up.
    case (_, LECreateConnectionCancel.opcode): return
    case (.listing(let change), _):
      phase = .idle
      learn(change, outcome.status, now)
    case (.creating, _): created(outcome, &hci, now)
    case (.idle, _), (.initiating, _), (.cancelling, _), (.blocked, _): return
    }
    step(&hci, now)
  }
  private mutating func learn(_ change: Change, _ status: HCIStatus, _ now: Instant) {
    switch change {
    case .clear where status == .success:
      listed = []
      isListUnknown = false
    case .add(let peer) where status == .success: listed.append(peer)
    case .remove(let peer) where status == .success: listed.removeAll { $0 == peer }
    // The list holds fewer entries than reported.
    case .add where status == .memoryCapacityExceeded: acceptListSize = listed.count
    case .clear, .add, .remove:
      isListUnknown = true
      pauseList(for: min(targets.count, acceptListSize), now)
    }
  }
  /// Attempts have one peer each until the next `count` peers have had their turns.
  private mutating func pauseList(for count: Int, _ now: Instant) {
    listPause = now + Self.turn * max(count, 1)
    hasListFailed = false
  }
  private mutating func created(_ outcome: CommandOutcome, _ hci: inout HCILayer, _ now: Instant) {
    if outcome.status == .success {
      for target in targets where attempt?.peers.contains(target.air) == true {
        for index in requests.indices where requests[index].id == target.request { requests[index].hasBeenTried = true }
      }
      phase = .initiating(since: now)
    } else if outcome.status == .commandDisallowed, isEndPending {
      // The controller continues the cancelled attempt. Repeat later, or when that one ends.
      phase = .cancelling(deadline: now + Self.cancelTimeout)
    } else {
      phase = .idle
      hasListFailed = true
      failed(outcome.status, outcome.failure(of: .connect), now)
      // The controller may have received it nevertheless.
      if outcome.timedOut { sendCancel(&hci, now) }
    }
  }
  /// The attempt has failed: fails the requests that it concerns.
  private mutating func failed(_ status: HCIStatus, _ failure: HostFailure, _ now: Instant) {
    guard let attempt else { return }
    self.attempt = nil
    if status == .connectionLimitExceeded || status == .limitedResources {
      // Requests made since the last attempt fail instead of waiting for a link to go down; the others wait.
      fail(.connectionLimitReached) { !$0.hasBeenTried }
      if !targets.isEmpty, case .idle = phase { phase = .blocked(until: now + Self.turn) }
    } else if attempt.usesList {
      if hasListFailed { pauseList(for: attempt.peers.count, now) } else { hasListFailed = true }
    } else if let index = targets.firstIndex(where: { attempt.peers.contains($0.air) }) {
      let target = targets.remove(at: index), request = target.request
      wanted.remove(target.peer)
      if targets.contains(where: { $0.request == request }) { return }
      fail(status == .connectionAlreadyExists ? .busy : failure) { $0.id == request }
    }
  }

  /// A Connection Complete event of any kind.
  mutating func completed(
    _ status: HCIStatus, _ role: LinkRole, _ peer: PeerAddress, hci: inout HCILayer, now: Instant
  ) -> Verdict {
    if status == .success { return role == .peripheral ? .linkUp(nil) : linkUp(peer, &hci, now) }
    // Legacy directed advertising has ended: Vol 4, Part E, §7.7.65.1. Not this machine's concern.
    if status == .advertisingTimeout { return .nothing }
    isEndPending = false
    // The end of a cancelled attempt: this one, or the late event of an earlier one.
    let isCancelled = status == .unknownConnectionIdentifier
    switch phase {
    case .cancelling: phase = .idle
    case .creating where !isCancelled: failed(status, .refused(.connect, status), now)
    case .initiating where !isCancelled:
      phase = .idle
      failed(status, .refused(.connect, status), now)
    case .idle, .listing, .creating, .initiating, .blocked: break
    }
    step(&hci, now)
    return .nothing
  }
  private mutating func linkUp(_ peer: PeerAddress, _ hci: inout HCILayer, _ now: Instant) -> Verdict {
    isEndPending = false
    hasListFailed = false
    let attempted = attempt
    let target = targets.first { $0.air.isSame(as: peer) || $0.peer.isSame(as: peer) }
    let isAttempted = attempted?.peers.contains { $0.isSame(as: peer) || $0 == target?.air } ?? false
    switch phase {
    case .cancelling: phase = .idle
    case .initiating where isAttempted: phase = .idle
    // It may come from an earlier attempt: the answer to the command decides.
    case .creating where isAttempted: attempt = nil
    case .idle, .listing, .creating, .initiating, .blocked: break
    }
    let request = target.flatMap { take($0.request) }
    step(&hci, now)
    guard let request else { return .unwanted }
    return .linkUp(request.id, parameters: attempted?.parameters == request.parameters ? nil : request.parameters)
  }
  // MARK: Time

  /// When the turn ends.
  private var turnEnd: Instant? {
    guard case .initiating(let since) = phase, let attempt, targets.count > attempt.peers.count else { return nil }
    return since + Self.turn
  }
  var deadline: Instant? {
    let earliest = Instant?.earliest(.earliest(turnEnd, listPause), requestDeadline)
    switch phase {
    case .cancelling(let deadline), .blocked(let deadline): return .earliest(earliest, deadline)
    case .idle, .listing, .creating, .initiating: return earliest
    }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    fail(.timedOut) { $0.deadline.map { $0 <= now } ?? false }
    if let pause = listPause, pause <= now { listPause = nil }
    switch phase {
    case .cancelling(let deadline) where deadline <= now:
      phase = .idle
      isEndPending = true
    case .blocked(let deadline) where deadline <= now: phase = .idle
    case .idle, .listing, .creating, .initiating, .cancelling, .blocked: break
    }
    if let turnEnd, turnEnd <= now, let attempt {
      let first = targets.prefix(attempt.peers.count)
      targets.removeFirst(first.count)
      targets.append(contentsOf: first)
    }
    step(&hci, now)
  }

  // MARK: Commands

  private mutating func send(_ command: some HCICommand, _ hci: inout HCILayer, _ now: Instant) {
    commands += 1
    hci.send(command, tag: tag, mayBeRefused: false, now: now)
  }
  private mutating func send(_ change: Change, _ hci: inout HCILayer, _ now: Instant) {
    switch change {
    case .clear: send(LEClearFilterAcceptList(), &hci, now)
    case .add(let peer):
      let command = LEAddDeviceToFilterAcceptList.with { ($0.addressType, $0.address) = (peer.type, peer.address) }
      send(command, &hci, now)
    case .remove(let peer):
      let command = LERemoveDeviceFromFilterAcceptList.with { ($0.addressType, $0.address) = (peer.type, peer.address) }
      send(command, &hci, now)
    }
  }
  private mutating func sendCancel(_ hci: inout HCILayer, _ now: Instant) {
    send(LECreateConnectionCancel(), &hci, now)
    phase = .cancelling(deadline: now + Self.cancelTimeout)
  }
  private mutating func create(_ attempt: Attempt, _ hci: inout HCILayer, _ now: Instant) {
    // A controller that uses the list ignores this; one that ignores the list instead still gets a peer.
    let peer = attempt.peers[0]
    let policy: InitiatorFilterPolicy = attempt.usesList ? .acceptList : .peer
    if usesExtendedCommands {
      let command = LEExtendedCreateConnection.with {
        $0.initiatorFilterPolicy = policy
        $0.peerAddressType = peer.type
        $0.peerAddress = peer.address
        $0.ownAddressType = ownAddressType
        $0.le1M.scanInterval = ScanInterval(.milliseconds(60))
        $0.le1M.scanWindow = ScanInterval(.milliseconds(60))
        $0.le1M.connectionIntervalMin = attempt.parameters.interval
        $0.le1M.connectionIntervalMax = attempt.parameters.interval
        $0.le1M.maxLatency = attempt.parameters.latency
        $0.le1M.supervisionTimeout = attempt.parameters.supervisionTimeout
      }
      send(command, &hci, now)
    } else {
      let command = LECreateConnection.with {
        $0.initiatorFilterPolicy = policy
        $0.leScanInterval = ScanInterval(.milliseconds(60))
        $0.leScanWindow = ScanInterval(.milliseconds(60))
        $0.peerAddressType = peer.type
        $0.peerAddress = peer.address
        $0.ownAddressType = ownAddressType
        $0.connectionIntervalMin = attempt.parameters.interval
        $0.connectionIntervalMax = attempt.parameters.interval
        $0.maxLatency = attempt.parameters.latency
        $0.supervisionTimeout = attempt.parameters.supervisionTimeout
      }
      send(command, &hci, now)
    }
  }
}

extension PeerAddress {
  /// The same device, whether or not the controller has resolved an address to it.
  fileprivate func isSame(as other: PeerAddress) -> Bool { address == other.address && isRandom == other.isRandom }
}
