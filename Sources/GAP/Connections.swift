import BindruneWire
import DequeModule
import BindruneGATT
import BindruneHCI

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
/// An attempt with the list that fails names no peer. After a second failure, or a refused command, each of its peers
/// gets an attempt alone, for a turn each; then the list is used again.
///
/// One initiation has one set of parameters: the first peer's. The verdict of a link reports a request with others.
///
/// A link that comes up answers its request if that still waits, whatever else was cancelled; otherwise the host
/// disconnects it. While suspended, requests wait and no attempt is made.
///
/// **Phases**: `move` has all transitions. A cancelled attempt ends with a Connection Complete event, or after a
/// time-out: a controller that never reports it (Bumble's does not) must not block the next attempt. It may even
/// continue the old attempt and refuse the next one (0x0C), which is then repeated. A controller without room for more
/// links gets no command until a link goes down, another request arrives, or a time has passed.
struct Connections: Suspendable {
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
  struct Attempt: Equatable {
    var peers: [PeerAddress], usesList: Bool, parameters: ConnectionParameters
  }
  typealias Change = AcceptList.Change
  enum Phase {
    case idle
    /// The controller changes its list.
    case listing(Change)
    /// The command has no answer yet. `isOver`: an event has already ended the attempt, or an earlier one.
    case creating(Attempt, isOver: Bool = false)
    case initiating(Attempt, since: Instant)
    case cancelling(Attempt, deadline: Instant)
    /// The controller has no room for another link.
    case blocked(until: Instant)

    /// nil: there is none, or it is over.
    var attempt: Attempt? {
      switch self {
      case .creating(let attempt, isOver: false), .initiating(let attempt, _), .cancelling(let attempt, _): attempt
      case .idle, .listing, .creating, .blocked: nil
      }
    }
  }
  enum Event {
    /// The list needs this change before the next attempt.
    case needsChange(Change)
    case needs(Attempt)
    /// Requests have changed, or a turn has ended: the next attempt is another one, or there is none.
    case superseded
    /// No request is left.
    case needsNothing
    /// The answer to the command in flight.
    case accepted
    case refused(Refusal)
    /// A link has come up. `isAttempted`: with a peer of the attempt.
    case linkUp(isAttempted: Bool)
    /// An event has ended the attempt without a link.
    case failed(hasNoRoom: Bool)
    /// The end of a cancelled attempt: this one, or the late event of an earlier one.
    case cancelled
    /// There may be room for a link: one has gone down, or another request has come.
    case chance
    case timeOver
  }
  enum Refusal: BitwiseCopyable {
    case final
    /// The controller continues the attempt that was cancelled before.
    case isBusy
    case hasNoRoom
    /// The controller may have received the command nevertheless.
    case noAnswer
  }
  enum Command { case change(Change), create(Attempt), cancel }
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
  var list = AcceptList()
  /// Requests that have ended without a link, for `nextFailure`.
  private var failures = Deque<(RequestID, HostFailure)>()
  var isSuspended = false
  var cause: UInt64 = 0
  /// Commands without an answer yet.
  private var commands = 0
  /// A cancelled attempt whose end the controller has not reported in time.
  private var overdue: Attempt?
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

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
    seize(&hci, now)
    return true
  }

  /// True when `id` was waiting or in progress: it has ended, and the caller reports its one completion.
  mutating func cancel(_ id: RequestID, hci: inout HCILayer, now: Instant) -> Bool {
    guard take(id) != nil else { return false }
    go(&hci, now)
    return true
  }

  /// There is a link with this peer: requests to connect to it end with `.busy`.
  mutating func failRequests(for peer: PeerAddress, hci: inout HCILayer, now: Instant) {
    fail(.busy) { $0.peers.contains(peer) }
    go(&hci, now)
  }

  var wantsAnybody: Bool { !wanted.isEmpty }
  func wants(_ peer: PeerAddress) -> Bool { wanted.contains(peer) }
  /// From now on attempts for `peer` use another address: a private one that resolves to it.
  mutating func use(_ air: PeerAddress, for peer: PeerAddress, hci: inout HCILayer, now: Instant) {
    guard wanted.contains(peer) else { return }
    for index in targets.indices where targets[index].peer == peer { targets[index].air = air }
    go(&hci, now)
  }

  mutating func suspensionChanged(hci: inout HCILayer, now: Instant) -> Never? {
    if isSuspended { go(&hci, now) } else { seize(&hci, now) }
    return nil
  }
  var isQuiet: Bool {
    switch phase {
    case .idle, .blocked: commands == 0
    case .listing, .creating, .initiating, .cancelling: false
    }
  }

  /// A link has gone down: there may be room for another.
  mutating func disconnected(hci: inout HCILayer, now: Instant) { seize(&hci, now) }

  /// Requests that ended without a link, one at a time. Call it after every other call.
  mutating func nextFailure() -> (RequestID, HostFailure)? { failures.popFirst() }

  // MARK: Transitions

  /// Every transition; nil: the event leaves the phase as it is. After a move without a command the machine goes on.
  static func move(from phase: Phase, on event: Event, now: Instant) -> Move<Phase, Command>? {
    switch (phase, event) {
    case (.idle, .needsChange(let change)): Move(.listing(change), .change(change))
    case (.listing, .accepted), (.listing, .refused): Move(.idle)
    case (.idle, .needs(let attempt)): Move(.creating(attempt), .create(attempt))

    case (.creating(let attempt, isOver: false), .accepted): Move(.initiating(attempt, since: now))
    case (.creating(let attempt, isOver: true), .accepted), (.creating(let attempt, _), .refused(.noAnswer)):
      Move(.cancelling(attempt, deadline: now + cancelTimeout), .cancel)
    // The attempt is repeated later, or when the other one ends.
    case (.creating(let attempt, _), .refused(.isBusy)): Move(.cancelling(attempt, deadline: now + cancelTimeout))
    case (.creating, .refused(.hasNoRoom)): Move(.blocked(until: now + turn))
    case (.creating, .refused(.final)): Move(.idle)
    // It may come from an earlier attempt: the answer to the command decides.
    case (.creating(let attempt, _), .linkUp(isAttempted: true)), (.creating(let attempt, _), .failed):
      Move(.creating(attempt, isOver: true))

    case (.initiating, .linkUp(isAttempted: true)), (.initiating, .failed(hasNoRoom: false)): Move(.idle)
    case (.initiating, .failed(hasNoRoom: true)): Move(.blocked(until: now + turn))
    case (.initiating(let attempt, _), .superseded):
      Move(.cancelling(attempt, deadline: now + cancelTimeout), .cancel)

    case (.cancelling, .linkUp), (.cancelling, .failed), (.cancelling, .cancelled), (.cancelling, .timeOver):
      Move(.idle)
    case (.blocked, .chance), (.blocked, .needsNothing), (.blocked, .timeOver): Move(.idle)

    case (.idle, _), (.listing, _), (.creating, _), (.initiating, _), (.cancelling, _), (.blocked, _): nil
    }
  }
  private mutating func take(_ event: Event, _ hci: inout HCILayer, _ now: Instant) {
    guard let move = Self.move(from: phase, on: event, now: now) else { return }
    phase = move.phase
    switch move.command {
    case .change(let change): send(change, &hci, now)
    case .create(let attempt): create(attempt, &hci, now)
    case .cancel: send(LECreateConnectionCancel(), &hci, now)
    case nil: break
    }
  }

  // MARK: Planning

  /// The attempt to make next; nil: none.
  private var plan: Attempt? {
    guard !isSuspended, let first = targets.first, let request = requests.first(where: { $0.id == first.request })
    else {
      return nil
    }
    let places = targets.count > 1 ? list.places : nil
    let peers = targets.prefix(places ?? 1).map { $0.air }
    return Attempt(peers: peers, usesList: places != nil, parameters: request.parameters)
  }
  /// Goes on, also if the controller had no room.
  private mutating func seize(_ hci: inout HCILayer, _ now: Instant) {
    take(.chance, &hci, now)
    go(&hci, now)
  }
  /// Sends the next command, in a phase that awaits neither an answer nor an event.
  private mutating func go(_ hci: inout HCILayer, _ now: Instant) {
    switch phase {
    case .idle:
      guard let plan else { return }
      hci.withCause(requests.first { $0.id == targets.first?.request }?.cause ?? 0) { hci in
        if plan.usesList, let change = list.change(to: plan.peers) {
          take(.needsChange(change), &hci, now)
        } else {
          take(.needs(plan), &hci, now)
        }
      }
    case .initiating(let attempt, _): if plan != attempt { take(.superseded, &hci, now) }
    case .blocked: if targets.isEmpty { take(.needsNothing, &hci, now) }
    case .listing, .creating, .cancelling: break
    }
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
    // The event of the attempt decides, or its absence: even a refusal (0x0C) can mean that a link is about to come up.
    if outcome.opcode == LECreateConnectionCancel.opcode { return }
    switch phase {
    case .listing(let change):
      if !list.learn(change, outcome.status) { pauseList(for: min(targets.count, list.size), now) }
      take(outcome.status == .success ? .accepted : .refused(.final), &hci, now)
    case .creating(let attempt, let isOver): created(isOver ? nil : attempt, outcome, &hci, now)
    case .idle, .initiating, .cancelling, .blocked: return
    }
    go(&hci, now)
  }
  /// Attempts have one peer each until the next `count` peers have had their turns.
  private mutating func pauseList(for count: Int, _ now: Instant) {
    list.pause(until: now + Self.turn * max(count, 1))
  }
  /// `attempt`: nil if an event has ended it.
  private mutating func created(
    _ attempt: Attempt?, _ outcome: CommandOutcome, _ hci: inout HCILayer, _ now: Instant
  ) {
    if outcome.status == .success {
      for target in targets where attempt?.peers.contains(target.air) == true {
        for index in requests.indices where requests[index].id == target.request { requests[index].hasBeenTried = true }
      }
      return take(.accepted, &hci, now)
    }
    if outcome.status == .commandDisallowed, overdue != nil { return take(.refused(.isBusy), &hci, now) }
    _ = list.failed()
    var hasNoRoom = false
    if let attempt { hasNoRoom = failed(attempt, outcome.status, outcome.failure(of: .connect), now) }
    take(.refused(outcome.timedOut ? .noAnswer : hasNoRoom ? .hasNoRoom : .final), &hci, now)
  }
  /// The attempt has failed: fails the requests that it concerns. Returns whether the others wait because the
  /// controller has no room for a link.
  private mutating func failed(
    _ attempt: Attempt, _ status: HCIStatus, _ failure: HostFailure, _ now: Instant
  ) -> Bool {
    if status == .connectionLimitExceeded || status == .limitedResources {
      // Requests made since the last attempt fail instead of waiting for a link to go down.
      fail(.connectionLimitReached) { !$0.hasBeenTried }
      return !targets.isEmpty
    }
    if attempt.usesList {
      if list.failed() { pauseList(for: attempt.peers.count, now) }
    } else if let index = targets.firstIndex(where: { attempt.peers.contains($0.air) }) {
      let target = targets.remove(at: index), request = target.request
      wanted.remove(target.peer)
      if targets.contains(where: { $0.request == request }) { return false }
      fail(status == .connectionAlreadyExists ? .busy : failure) { $0.id == request }
    }
    return false
  }

  /// A Connection Complete event of any kind.
  mutating func completed(
    _ status: HCIStatus, _ role: LinkRole, _ peer: PeerAddress, hci: inout HCILayer, now: Instant
  ) -> Verdict {
    if status == .success { return role == .peripheral ? .linkUp(nil) : linkUp(peer, &hci, now) }
    // Legacy directed advertising has ended: Vol 4, Part E, §7.7.65.1. Not this machine's concern.
    if status == .advertisingTimeout { return .nothing }
    overdue = nil
    if status == .unknownConnectionIdentifier {
      take(.cancelled, &hci, now)
    } else {
      var hasNoRoom = false
      switch phase {
      case .creating(let attempt, isOver: false), .initiating(let attempt, _):
        hasNoRoom = failed(attempt, status, .refused(.connect, status), now)
      case .idle, .listing, .creating, .cancelling, .blocked: break
      }
      take(.failed(hasNoRoom: hasNoRoom), &hci, now)
    }
    go(&hci, now)
    return .nothing
  }
  private mutating func linkUp(_ peer: PeerAddress, _ hci: inout HCILayer, _ now: Instant) -> Verdict {
    let attempted = phase.attempt ?? overdue
    overdue = nil
    list.succeeded()
    let target = targets.first { $0.air.isSame(as: peer) || $0.peer.isSame(as: peer) }
    let isAttempted = attempted?.peers.contains { $0.isSame(as: peer) || $0 == target?.air } ?? false
    take(.linkUp(isAttempted: isAttempted), &hci, now)
    let request = target.flatMap { take($0.request) }
    go(&hci, now)
    guard let request else { return .unwanted }
    return .linkUp(request.id, parameters: attempted?.parameters == request.parameters ? nil : request.parameters)
  }
  // MARK: Time

  /// When the turn ends.
  private var turnEnd: Instant? {
    guard case .initiating(let attempt, let since) = phase, targets.count > attempt.peers.count else { return nil }
    return since + Self.turn
  }
  var deadline: Instant? {
    let earliest = Instant?.earliest(.earliest(turnEnd, list.pause), requestDeadline)
    switch phase {
    case .cancelling(_, let deadline), .blocked(let deadline): return .earliest(earliest, deadline)
    case .idle, .listing, .creating, .initiating: return earliest
    }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    fail(.timedOut) { $0.deadline.map { $0 <= now } ?? false }
    list.expire(now: now)
    switch phase {
    case .cancelling(let attempt, let deadline) where deadline <= now:
      overdue = attempt
      take(.timeOver, &hci, now)
    case .blocked(let deadline) where deadline <= now: take(.timeOver, &hci, now)
    case .initiating(let attempt, _):
      guard let turnEnd, turnEnd <= now else { break }
      let first = targets.prefix(attempt.peers.count)
      targets.removeFirst(first.count)
      targets.append(contentsOf: first)
    case .idle, .listing, .creating, .cancelling, .blocked: break
    }
    go(&hci, now)
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
