import BindruneWire
import DequeModule
import GATT
import HCI

/// # Connections
/// **Overview**: brings the controller's one attempt to connect to all the requests there are, whatever is asked meanwhile.
///
/// **Function**: a request names one or more peers; the first that can be reached answers it, and the others are wanted no
/// more. It waits for as long as it takes, unless it has a deadline, and `cancel` ends it at any moment.
///
/// - One peer wanted: the controller is told its address. Vol 4, Part E, §7.8.12, §7.8.66.
/// - Several: all of them are put on the Filter Accept List, and one initiation goes by it (§7.8.14 – §7.8.17), so that an
///   absent peer keeps nobody waiting. The list is changed only while nothing initiates; no other machine goes by it.
/// - More than the list holds, or several and no list: they take turns, as many at a time as go, `turn` each. A turn is
///   longer than the longest interval of legacy advertising (10.24 s: Vol 4, Part E, §7.8.5; and up to 10 ms: Vol 6, Part B,
///   §4.4.2.2.1), so that every peer that is there sends at least once in its own.
///
/// One initiation has one set of parameters: the first peer's. A link for a request with others says so in its verdict.
///
/// A link that comes up is its request's, if that still waits, whatever has been cancelled in between; else it is nobody's
/// and is taken down again. While suspended, requests are kept and nothing is attempted.
///
/// **Phases**: idle → listing (a change of the list, as often as it takes) → creating (command sent) → initiating → idle.
/// What is wanted has changed: initiating → cancelling → idle, with a Connection Complete event, or when its time is up: a
/// controller that never tells of the end of a cancelled attempt (Bumble's does not) must not stop the next one. It may even
/// go on with it and refuse the next one (0x0C), which is then tried again.
/// The controller has no room for more links: creating → blocked, until a link goes down, somebody else asks, or time passes.
struct Connections {
  struct Request {
    var id: RequestID
    var peers: [PeerAddress]
    /// Each one's address on the air.
    var onAir: [PeerAddress]
    var parameters: ConnectionParameters
    /// nil: never.
    var deadline: Instant?
    /// The controller has accepted an attempt for it.
    fileprivate var hasBeenTried = false

    init(
      id: RequestID, peers: [PeerAddress], onAir: [PeerAddress], parameters: ConnectionParameters,
      deadline: Instant? = nil
    ) {
      self.id = id
      self.peers = peers
      self.onAir = onAir
      self.parameters = parameters
      self.deadline = deadline
    }
  }
  /// A peer that is wanted, by whom, and its address on the air: its own, unless `use(_:for:)` knows another.
  private struct Wish: BitwiseCopyable {
    var request: RequestID, peer: PeerAddress, air: PeerAddress
  }
  private struct Attempt: Equatable {
    var peers: [PeerAddress], usesList: Bool, parameters: ConnectionParameters
  }
  enum Change: BitwiseCopyable { case add(PeerAddress), remove(PeerAddress) }
  enum Phase: BitwiseCopyable {
    case idle
    case listing(Change)
    case creating
    case initiating(since: Instant)
    case cancelling(deadline: Instant)
    case blocked(until: Instant)
  }
  /// What became of a connection that came up.
  enum Verdict: BitwiseCopyable {
    /// A central connected to us, or a request of ours succeeded. `parameters`: the link does not have those asked for.
    case linkUp(RequestID?, parameters: ConnectionParameters? = nil)
    /// Nobody wants it.
    case unwanted
    /// There is no link.
    case nothing
  }
  /// Peers that may be wanted at once: far more than any list holds, so that nobody above needs turns of their own.
  static var capacity: Int { 1024 }
  static var cancelTimeout: Duration { .seconds(2) }
  static var turn: Duration { .seconds(11) }

  private(set) var phase = Phase.idle
  /// In the order in which they came.
  private var requests: [Request] = []
  /// In the order in which they have their turns.
  private var wishes = Deque<Wish>()
  /// What the controller is at; nil also in `creating`, when it is over before the command has been answered.
  private var attempt: Attempt?
  /// What is on the Filter Accept List.
  private var listed: [PeerAddress] = []
  /// Requests that have ended without a link, for `nextFailure`.
  private var failures = Deque<(RequestID, HostFailure)>()
  private(set) var isSuspended = false
  /// Commands without an answer.
  private var commands = 0
  /// The controller has not told of the end of an attempt that was cancelled.
  private var owesEnd = false
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public
  /// Entries of the Filter Accept List that can be used; less than 2: it is not used.
  var acceptListSize = 0

  init(tag: UInt32) { self.tag = tag }

  // MARK: From above

  /// The controller has forgotten everything: hands out the requests that fail with it.
  mutating func reset() -> [RequestID] {
    let orphans = requests.map(\.id)
    self = Connections(tag: tag)
    return orphans
  }

  /// False when too many peers are wanted, or one of them by somebody else already.
  mutating func connect(_ request: Request, hci: inout HCILayer, now: Instant) -> Bool {
    guard wishes.count + request.peers.count <= Self.capacity,
      !wishes.contains(where: { request.peers.contains($0.peer) })
    else { return false }
    requests.append(request)
    for (peer, air) in zip(request.peers, request.onAir) {
      wishes.append(Wish(request: request.id, peer: peer, air: air))
    }
    unblock(&hci, now)
    return true
  }

  /// True when `id` was waiting or under way: it has ended, and this is the caller's one completion.
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

  func wants(_ peer: PeerAddress) -> Bool { wishes.contains { $0.peer == peer } }
  /// From now on `peer` is looked for under another address: a private one that is known to be its.
  mutating func use(_ air: PeerAddress, for peer: PeerAddress, hci: inout HCILayer, now: Instant) {
    for index in wishes.indices where wishes[index].peer == peer { wishes[index].air = air }
    step(&hci, now)
  }

  /// Stops initiating until `resume`; requests wait. It has stopped when `isQuiet` is true.
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    step(&hci, now)
  }
  mutating func resume(hci: inout HCILayer, now: Instant) {
    isSuspended = false
    unblock(&hci, now)
  }
  /// Nothing initiates, and no command is under way.
  var isQuiet: Bool {
    switch phase {
    case .idle, .blocked: commands == 0
    case .listing, .creating, .initiating, .cancelling: false
    }
  }

  /// A link has gone down: there may be room for another.
  mutating func disconnected(hci: inout HCILayer, now: Instant) { unblock(&hci, now) }

  /// Requests that have ended without a link, one at a time. To be asked after every call.
  mutating func nextFailure() -> (RequestID, HostFailure)? { failures.popFirst() }

  // MARK: What is to be done

  /// What the controller is to initiate; nil: nothing.
  private var plan: Attempt? {
    guard !isSuspended, let first = wishes.first, let request = requests.first(where: { $0.id == first.request }) else {
      return nil
    }
    let usesList = wishes.count > 1 && acceptListSize > 1
    let peers = wishes.prefix(usesList ? acceptListSize : 1).map(\.air)
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
      if plan.usesList, let change = change(to: plan.peers) {
        send(change, &hci, now)
        phase = .listing(change)
      } else {
        create(plan, &hci, now)
        attempt = plan
        phase = .creating
      }
    case .initiating where attempt == nil || attempt != plan: sendCancel(&hci, now)
    case .blocked where wishes.isEmpty: phase = .idle
    case .listing, .creating, .initiating, .cancelling, .blocked: break
    }
  }
  /// The next change of the list on the way to `peers`.
  private func change(to peers: [PeerAddress]) -> Change? {
    if let peer = listed.first(where: { !peers.contains($0) }) { return .remove(peer) }
    return peers.first { !listed.contains($0) }.map { .add($0) }
  }

  /// Removes a request and what it wants.
  private mutating func take(_ id: RequestID) -> Request? {
    guard let index = requests.firstIndex(where: { $0.id == id }) else { return nil }
    wishes.removeAll { $0.request == id }
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
    // What came of cancelling, the event says or its absence: even a refusal (0x0C) can mean that a link is on its way.
    case (_, LECreateConnectionCancel.opcode): return
    case (.listing(let change), _):
      phase = .idle
      learn(change, outcome.status)
    case (.creating, _): created(outcome, &hci, now)
    case (.idle, _), (.initiating, _), (.cancelling, _), (.blocked, _): return
    }
    step(&hci, now)
  }
  private mutating func learn(_ change: Change, _ status: HCIStatus) {
    switch change {
    case .add(let peer) where status == .success: listed.append(peer)
    case .remove(let peer) where status == .success: listed.removeAll { $0 == peer }
    // It holds fewer than it said.
    case .add where status == .memoryCapacityExceeded: acceptListSize = listed.count
    // What is on it now is not known.
    case .add, .remove: acceptListSize = 0
    }
  }
  private mutating func created(_ outcome: CommandOutcome, _ hci: inout HCILayer, _ now: Instant) {
    if outcome.status == .success {
      for wish in wishes where attempt?.peers.contains(wish.air) == true {
        for index in requests.indices where requests[index].id == wish.request { requests[index].hasBeenTried = true }
      }
      phase = .initiating(since: now)
    } else if outcome.status == .commandDisallowed, owesEnd {
      // It is still at the attempt that was cancelled. Again later, or when that one ends.
      phase = .cancelling(deadline: now + Self.cancelTimeout)
    } else {
      phase = .idle
      failed(outcome.status, now)
      // The controller may have heard it all the same.
      if outcome.timedOut { sendCancel(&hci, now) }
    }
  }
  /// The attempt has failed: who fails with it?
  private mutating func failed(_ status: HCIStatus, _ now: Instant) {
    guard let attempt else { return }
    self.attempt = nil
    if status == .connectionLimitExceeded || status == .limitedResources {
      // Whoever has asked since the last attempt is told, and does not wait for a link to go down; the others do.
      fail(.connectionLimitReached) { !$0.hasBeenTried }
      if !wishes.isEmpty, case .idle = phase { phase = .blocked(until: now + Self.turn) }
    } else if attempt.usesList {
      // Whom it was about does not show: each by itself from now on.
      acceptListSize = 0
    } else if let index = wishes.firstIndex(where: { attempt.peers.contains($0.air) }) {
      let request = wishes.remove(at: index).request
      if wishes.contains(where: { $0.request == request }) { return }
      fail(status == .connectionAlreadyExists ? .busy : .refused(.connect, status)) { $0.id == request }
    }
  }

  /// A Connection Complete event of any kind.
  mutating func completed(
    _ status: HCIStatus, _ role: LinkRole, _ peer: PeerAddress, hci: inout HCILayer, now: Instant
  ) -> Verdict {
    if status == .success { return role == .peripheral ? .linkUp(nil) : linkUp(peer, &hci, now) }
    // Legacy directed advertising is over: Vol 4, Part E, §7.7.65.1. Not our business.
    if status == .advertisingTimeout { return .nothing }
    owesEnd = false
    // The end of an attempt that was cancelled: this one, or late news of one before it.
    let isCancelled = status == .unknownConnectionIdentifier
    switch phase {
    case .cancelling: phase = .idle
    case .creating where !isCancelled: failed(status, now)
    case .initiating where !isCancelled:
      phase = .idle
      failed(status, now)
    case .idle, .listing, .creating, .initiating, .blocked: break
    }
    step(&hci, now)
    return .nothing
  }
  private mutating func linkUp(_ peer: PeerAddress, _ hci: inout HCILayer, _ now: Instant) -> Verdict {
    owesEnd = false
    let attempted = attempt
    let wish = wishes.first { $0.air.isSame(as: peer) || $0.peer.isSame(as: peer) }
    let isAttempted = attempted?.peers.contains { $0.isSame(as: peer) || $0 == wish?.air } ?? false
    switch phase {
    case .cancelling: phase = .idle
    case .initiating where isAttempted: phase = .idle
    // It may come from an attempt before this one: the answer to the command will say.
    case .creating where isAttempted: attempt = nil
    case .idle, .listing, .creating, .initiating, .blocked: break
    }
    let request = wish.flatMap { take($0.request) }
    step(&hci, now)
    guard let request else { return .unwanted }
    return .linkUp(request.id, parameters: attempted?.parameters == request.parameters ? nil : request.parameters)
  }
  // MARK: Time

  /// When others have their turn.
  private var turnEnd: Instant? {
    guard case .initiating(let since) = phase, let attempt, wishes.count > attempt.peers.count else { return nil }
    return since + Self.turn
  }
  var deadline: Instant? {
    var earliest = turnEnd
    for request in requests { earliest = .earliest(earliest, request.deadline) }
    switch phase {
    case .cancelling(let deadline), .blocked(let deadline): return .earliest(earliest, deadline)
    case .idle, .listing, .creating, .initiating: return earliest
    }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    fail(.timedOut) { $0.deadline.map { $0 <= now } ?? false }
    switch phase {
    case .cancelling(let deadline) where deadline <= now:
      phase = .idle
      owesEnd = true
    case .blocked(let deadline) where deadline <= now: phase = .idle
    case .idle, .listing, .creating, .initiating, .cancelling, .blocked: break
    }
    if let turnEnd, turnEnd <= now, let attempt {
      let first = wishes.prefix(attempt.peers.count)
      wishes.removeFirst(first.count)
      wishes.append(contentsOf: first)
    }
    step(&hci, now)
  }

  // MARK: Commands

  private mutating func send(_ command: some HCICommand, _ hci: inout HCILayer, _ now: Instant) {
    commands += 1
    hci.send(command, tag: tag, now: now)
  }
  private mutating func send(_ change: Change, _ hci: inout HCILayer, _ now: Instant) {
    switch change {
    case .add(let peer):
      var command = LEAddDeviceToFilterAcceptList()
      (command.addressType, command.address) = (peer.type, peer.address)
      send(command, &hci, now)
    case .remove(let peer):
      var command = LERemoveDeviceFromFilterAcceptList()
      (command.addressType, command.address) = (peer.type, peer.address)
      send(command, &hci, now)
    }
  }
  private mutating func sendCancel(_ hci: inout HCILayer, _ now: Instant) {
    send(LECreateConnectionCancel(), &hci, now)
    phase = .cancelling(deadline: now + Self.cancelTimeout)
  }
  private mutating func create(_ attempt: Attempt, _ hci: inout HCILayer, _ now: Instant) {
    // Where the list is used, the controller is to ignore this; one that ignores the list instead has somebody to look for.
    let peer = attempt.peers[0]
    let policy: InitiatorFilterPolicy = attempt.usesList ? .acceptList : .peer
    if usesExtendedCommands {
      var command = LEExtendedCreateConnection()
      command.initiatorFilterPolicy = policy
      command.peerAddressType = peer.type
      command.peerAddress = peer.address
      command.ownAddressType = ownAddressType
      command.le1M.scanInterval = ScanInterval(.milliseconds(60))
      command.le1M.scanWindow = ScanInterval(.milliseconds(60))
      command.le1M.connectionIntervalMin = attempt.parameters.interval
      command.le1M.connectionIntervalMax = attempt.parameters.interval
      command.le1M.maxLatency = attempt.parameters.latency
      command.le1M.supervisionTimeout = attempt.parameters.supervisionTimeout
      send(command, &hci, now)
    } else {
      var command = LECreateConnection()
      command.initiatorFilterPolicy = policy
      command.leScanInterval = ScanInterval(.milliseconds(60))
      command.leScanWindow = ScanInterval(.milliseconds(60))
      command.peerAddressType = peer.type
      command.peerAddress = peer.address
      command.ownAddressType = ownAddressType
      command.connectionIntervalMin = attempt.parameters.interval
      command.connectionIntervalMax = attempt.parameters.interval
      command.maxLatency = attempt.parameters.latency
      command.supervisionTimeout = attempt.parameters.supervisionTimeout
      send(command, &hci, now)
    }
  }
}

extension PeerAddress {
  /// The same device, whether or not the controller has resolved an address to it.
  fileprivate func isSame(as other: PeerAddress) -> Bool { address == other.address && isRandom == other.isRandom }
}
