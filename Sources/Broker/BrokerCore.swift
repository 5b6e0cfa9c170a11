import DequeModule
import Logging

/// # BrokerCore
/// **Overview**: one controller for many sessions, each of which believes that it has it to itself. A value without clock, thread or
/// host: `Adapter` drives it in this process.
///
/// **Function**: four verbs. A session asks (`add`, `request`, `remove`), the host tells (`receive`), the driver does what
/// `nextEffect` says, until it says nothing, and calls `expire` at `deadline`.
///
///     session ─ request ─▶ ┌────────────┐ ─ .tell, .lendPort ─▶ session
///                          │ BrokerCore │
///     host ──── receive ─▶ └────────────┘ ─ .host(…), .open ──▶ host
///               expire(now:) at `deadline`
///
/// What sessions want is kept apart from what there is: a session has an `Interest` in a device, the core a `Reach` to it, and
/// `settle` brings the one to the other. The same for subscriptions, `NotifyState`.
///
/// **Phases**: those of the host, `Phase`.
struct BrokerCore {
  let patience: AdapterPatience
  var sessions = SessionTable()
  /// See `BrokerCore+Life`.
  var phase = Phase.idle
  var state = AdapterState.unknown
  /// Attempts to open, and hosts, that have failed since it last worked for a while.
  var failures = 0
  /// It has worked, and the last end was no wish of ours.
  var isRestarting = false

  var links = LinkTable()
  var central = Central()
  /// The peripheral's half: see `BrokerCore+Peripheral`.
  var serving = Serving()
  var timers = Timers<Timer>()
  /// When the call came that is being carried out.
  private(set) var now = Instant.zero
  private var effects = Deque<BrokerEffect>()
  private var lastRequest: UInt64 = 0

  enum Timer: Hashable {
    /// The controller has worked for long enough to forget its failures.
    case steady
    /// The next attempt to open it.
    case reopen
    /// The host can do something for the device again.
    case rest(PeerID)
    /// The link would be down by now if the device had not heard of it.
    case establish(LinkID)
    /// The session's connection is to be sought.
    case delay(SessionID, PeerID)
  }

  init(patience: AdapterPatience = AdapterPatience()) { self.patience = patience }

  // MARK: Sessions

  mutating func add(_ session: SessionID, now: Instant) {
    self.now = now
    sessions.add(session)
    if case .idle = phase { open() }
    tell(session, .adapter(state))
    if !links.all.isEmpty { tell(session, linkedPeers(for: session)) }
  }
  /// The session has been closed: nothing of it goes on that others do not use.
  mutating func remove(_ session: SessionID, now: Instant) {
    self.now = now
    guard sessions[session] != nil else { return }
    if case .running = phase { endCentral(of: session) }
    endServing(of: session)
    sessions.remove(session)
    if sessions.ids.isEmpty { closeHost() }
  }
  mutating func request(_ request: BrokerRequest, of session: SessionID, now: Instant) {
    self.now = now
    guard sessions[session] != nil else { return }
    switch (phase, request) {
    case (.running, .central(let request)): perform(request, of: session)
    case (.running, .peripheral(let request)): perform(request, of: session)
    case (_, .central(let request)): refuse(request, of: session)
    case (_, .peripheral(let request)): refuse(request, of: session)
    }
  }

  // MARK: The host

  mutating func receive(_ event: BrokerHostEvent, now: Instant) {
    self.now = now
    switch (phase, event) {
    case (.opening(let early), .opened(let failure)): opened(failure, early)
    case (.opening, .failed(let error)): phase = .opening(error)
    case (.closing, .closed): closed()
    case (.running, _): receive(event)
    // An event that comes late from a host that is being closed, or has been.
    case (.opening, _), (.closing, _), (.idle, _), (.resting, _), (.hopeless, _): break
    }
  }
  private mutating func receive(_ event: BrokerHostEvent) {
    switch event {
    case .opened, .closed: break
    case .failed(let error): failed(error)
    case .linkUp(let link, let peer, let role, let mtu):
      connected(BrokerLink(id: link, peer: peer, role: role, mtu: mtu))
      serving.clients[link] = Serving.Client(peer: UUID(peer))
      updateLink(peer)
    case .linkDown(let link, let reason):
      clientIsGone(link)
      disconnected(link, reason)
    case .mtuChanged(let link, let mtu):
      mtuChanged(link, mtu)
      tellLongestUpdate(link)
    case .peerIdentified(let link, let address): identified(link, as: address)
    case .discovered(let scan, let peer, let found): discovered(found, peer, by: scan)
    case .scanFailed(let scan, let error): scanFailed(scan, error)
    case .completed(let request, let result): completed(request, result)
    case .servicesChanged(let link, let range, let database): servicesChanged(range, on: link, database)
    case .rediscovered(let link, let database): central.links[link]?.database = database
    case .advertisingStarted(let set): advertisingStarted(set)
    case .advertisingEnded(let set, let error): advertisingEnded(set, error)
    case .subscriptionChanged(let link, let handle, let configuration):
      subscriptionChanged(link, handle, configuration)
    case .written(let link, let write): written(write, on: link)
    case .readRequested(let id, let link, let handle, let offset): pass(id, link, handle, offset: offset)
    case .writeRequested(let id, let link, let writes): pass(id, link, writes)
    case .requestUnanswered(let link): endRequest(of: link)
    }
  }

  /// Who gets the values of `handle`, and how each calls the peer. The driver hands them on by itself: a value changes nothing
  /// here.
  func readers(of handle: AttributeHandle, on link: LinkID) -> [NotifyState.Reader] {
    central.links[link]?.subscriptions[handle]?.readers ?? []
  }

  // MARK: Effects and time

  /// What is to be done next; to be asked after every call until there is nothing.
  mutating func nextEffect() -> BrokerEffect? { effects.popFirst() }
  var deadline: Instant? { timers.earliest }
  mutating func expire(now: Instant) {
    self.now = now
    while let timer = timers.popDue(now: now) {
      switch timer {
      case .steady: failures = 0
      case .reopen: open()
      case .rest(let peer): rested(peer)
      case .establish(let link): established(link)
      case .delay(let session, let peer): delayIsOver(peer, for: session)
      }
    }
  }

  mutating func put(_ effect: BrokerEffect) { effects.append(effect) }
  mutating func tell(_ session: SessionID, _ event: BrokerEvent) { put(.tell(session, event)) }
  mutating func complete(
    _ operation: OperationID, of session: SessionID, _ result: Result<BrokerAnswer, BluetoothError>
  ) {
    tell(session, .completed(operation, result))
  }
  mutating func log(_ level: Logger.Level, _ text: String) { put(.log(level, text)) }
  /// Nothing where no host runs.
  mutating func command(_ command: HostCommand) {
    if case .running = phase { put(.host(command)) }
  }
  mutating func begin(_ operation: HostOperation, isPlaced: Bool = true) -> RequestID {
    let id = RequestID(rawValue: newNumber())
    command(.begin(id, operation, isPlaced: isPlaced))
    return id
  }
  /// Out of the half of all numbers that a host leaves to its observer.
  mutating func newNumber() -> UInt64 {
    lastRequest += 1
    return BluetoothHost.firstNumberOfObserver + lastRequest
  }

  // MARK: Links

  /// The link to a peer, in whichever role.
  func link(of identifier: UUID) -> LinkID? { peer(identifier).flatMap { links[$0]?.id } }
  /// The peer that a session calls so; nil: the identifier comes from elsewhere, and names none.
  func peer(_ identifier: UUID) -> PeerID? { PeerID(identifier).map { central.aliases[$0] ?? $0 } }
  /// What the session calls the peer.
  func identifier(of peer: PeerID, for session: SessionID) -> UUID {
    sessions[session]?.identifiers[peer] ?? UUID(peer)
  }
}

/// What the core knows of its sessions, in the order in which they came.
struct SessionTable {
  private(set) var ids: [SessionID] = []
  private var all: [SessionID: Session] = [:]

  struct Session {
    var scans: [ScanID] = []
    /// What is scanned for beside those who solicit: these devices are told by the other scan.
    var scannedServices: [BluetoothUUID] = []
    var interests: [PeerID: Interest] = [:]
    /// Peers that this session has met under another identifier, before they told who they are.
    var identifiers: [PeerID: UUID] = [:]
    /// For notifications, by central.
    var ports: Set<UUID> = []
  }
  /// Setting one that is not there does nothing.
  subscript(id: SessionID) -> Session? {
    get { all[id] }
    _modify { yield &all[id] }
  }
  mutating func add(_ id: SessionID) {
    if all.updateValue(Session(), forKey: id) == nil { ids.append(id) }
  }
  mutating func remove(_ id: SessionID) {
    all[id] = nil
    ids.removeAll { $0 == id }
  }
}

struct BrokerLink: Sendable {
  let id: LinkID
  let peer: PeerID
  let role: LinkRole
  /// ATT_MTU in force.
  var mtu: Int
}

/// The links of the adapter, in either role, from before anybody is told that they are up until all have been told that they
/// are down.
struct LinkTable {
  private(set) var all: [BrokerLink] = []
  subscript(_ id: LinkID) -> BrokerLink? { all.first { $0.id == id } }
  subscript(_ peer: PeerID) -> BrokerLink? { all.first { $0.peer == peer } }
  mutating func add(_ link: BrokerLink) { all.append(link) }
  mutating func remove(_ id: LinkID) { all.removeAll { $0.id == id } }
  mutating func setMTU(_ mtu: Int, of id: LinkID) {
    for index in all.indices where all[index].id == id { all[index].mtu = mtu }
  }
}
