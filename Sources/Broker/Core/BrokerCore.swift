import BindruneWire
import DequeModule
import Logging

/// # BrokerCore
/// **Overview**: shares one controller among many sessions, each of which behaves as if it were the only one. A value
/// without clock, thread or host: `Adapter` drives it in this process.
///
/// **Function**: sessions call `add`, `request` and `remove`, the host calls `receive`; after each call the driver
/// performs all of `nextEffect`, and it calls `expire` at `deadline`.
///
///     session ─ request ─▶ ┌────────────┐ ─ .deliver, .lendPort ─▶ session
///                          │ BrokerCore │
///     host ──── receive ─▶ └────────────┘ ─ .host(…), .open ──▶ host
///               expire(now:) at `deadline`
///
/// What sessions want is kept apart from the present state: a session has an `Interest` in a device, the core a `Reach`
/// to it, and `updateLink` reconciles them. Subscriptions work alike: `NotifyState`, `reconcile`.
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
  /// It has worked, and ended without being closed.
  var isRestarting = false

  /// See `BrokerCore+Apps`.
  var apps: [AppID: App] = [:]
  var links = LinkTable()
  var central = Central()
  /// The peripheral's half: see `BrokerCore+Peripheral`.
  var serving = Serving()
  /// See `BrokerCore+Channels`.
  var channels = Channels()
  var timers = Timers<Timer>()
  /// The time of the call that is being carried out.
  var now = Instant.zero
  private var effects = Deque<BrokerEffect>()
  private var lastRequest: UInt64 = 0

  enum Timer: Hashable {
    /// The controller has worked for long enough to forget its failures.
    case steady
    /// The next attempt to open it.
    case reopen
    /// The next attempt to connect to the device.
    case retry(PeerID)
    /// The link would be down by now if the device had not received the connection request.
    case establish(LinkID)
    /// The session's delay before connecting is over.
    case delay(SessionID, PeerID)
  }

  init(patience: AdapterPatience = AdapterPatience()) { self.patience = patience }

  // MARK: Sessions

  /// `identity` nil: the session belongs to no manager in particular, and lasts as long as its process.
  mutating func add(
    _ session: SessionID, of app: AppID = .own, as identity: ManagerIdentity? = nil, now: Instant
  ) {
    self.now = now
    if apps[app] == nil { apps[app] = App() }
    sessions.add(session, of: app, as: identity)
    if isHeld(session) { put(.hold(session, true)) }
    if case .idle = phase { open() }
    deliver(to: session, .adapter(state))
    if !links.all.isEmpty { deliver(to: session, linkedPeers(for: session)) }
  }
  /// The session has been closed: everything ends that no other session uses.
  mutating func remove(_ session: SessionID, now: Instant) {
    self.now = now
    guard sessions[session] != nil else { return }
    if case .running = phase { endCentral(of: session) }
    endServing(of: session)
    endPublications(of: session)
    sessions.remove(session)
    if sessions.ids.isEmpty { closeHost() }
  }
  func isKnown(_ session: SessionID) -> Bool { sessions[session] != nil }
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
    case (.opening(let early), .opened(let sets)): opened(advertisingSets: sets, early)
    case (.opening, .openingFailed(let failure)): openingFailed(failure)
    case (.opening, .failed(let error)): phase = .opening(error)
    case (.closing, .closed): closed()
    case (.running, _): receive(event)
    // A late event of a host that is being closed, or is closed.
    case (.opening, _), (.closing, _), (.idle, _), (.awaitingRetry, _), (.hopeless, _): break
    }
  }
  private mutating func receive(_ event: BrokerHostEvent) {
    switch event {
    case .opened, .openingFailed, .closed: break
    case .failed(let error): failed(error)
    case .linkUp(let link, let peer, let role, let mtu):
      connected(BrokerLink(id: link, peer: peer, role: role, mtu: mtu))
      serving.clients[link] = Serving.Client(peer: UUID(peer))
      updateLink(peer)
    case .linkDown(let link, let reason):
      clientDisconnected(link)
      disconnected(link, reason)
    case .mtuChanged(let link, let mtu):
      mtuChanged(link, mtu)
      reportLongestUpdate(link)
    case .peerIdentified(let link, let address): identified(link, as: address)
    case .encryptionFailed(let link, let status): encryptionFailed(link, status)
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
    case .listening(let request, let result): listens(request, result)
    case .channelAccepted(let channel, let psm, let link): channelAccepted(channel, psm, on: link)
    }
  }

  /// The readers of the values of `handle`. The driver delivers values by itself, for a value changes nothing here.
  func readers(of handle: AttributeHandle, on link: LinkID) -> [NotifyState.Reader] {
    central.links[link]?.subscriptions[handle]?.readers ?? []
  }

  // MARK: Effects and time

  /// The next effect to perform. Call it after every other call, until it returns nil.
  mutating func nextEffect() -> BrokerEffect? { effects.popFirst() }
  var deadline: Instant? { timers.earliest }
  mutating func expire(now: Instant) {
    self.now = now
    while let timer = timers.popDue(now: now) {
      switch timer {
      case .steady: failures = 0
      case .reopen: open()
      case .retry(let peer): retryIsDue(peer)
      case .establish(let link): established(link)
      case .delay(let session, let peer): startDelayEnded(peer, for: session)
      }
    }
  }

  mutating func put(_ effect: BrokerEffect) { effects.append(effect) }
  mutating func deliver(to session: SessionID, _ event: BrokerEvent) {
    put(.deliver(session, event))
    consider(event, for: session)
  }
  mutating func complete(
    _ operation: OperationID, of session: SessionID, _ result: Result<BrokerAnswer, BluetoothError>
  ) {
    deliver(to: session, .completed(operation, result))
  }
  mutating func log(_ level: Logger.Level, _ text: String) { put(.log(level, text)) }
  /// Has no effect while no host runs.
  mutating func command(_ command: HostCommand) {
    if case .running = phase { put(.host(command)) }
  }
  mutating func begin(_ operation: HostOperation, isPlaced: Bool = true) -> RequestID {
    let id = RequestID(rawValue: newNumber())
    command(.begin(id, operation, isPlaced: isPlaced))
    return id
  }
  /// From the half of all numbers that a host leaves to its observer.
  mutating func newNumber() -> UInt64 {
    lastRequest += 1
    return BluetoothHost.firstNumberOfObserver + lastRequest
  }

  // MARK: Links

  /// The link to a peer, in whichever role.
  func link(of identifier: UUID) -> LinkID? { peer(identifier).flatMap { links[$0]?.id } }
  /// The peer with this identifier; nil: the identifier is not one of this machine's.
  func peer(_ identifier: UUID) -> PeerID? { PeerID(identifier).map { central.aliases[$0] ?? $0 } }
  /// The identifier that the session uses for the peer.
  func identifier(of peer: PeerID, for session: SessionID) -> UUID {
    sessions[session]?.identifiers[peer] ?? UUID(peer)
  }
}

/// The core's sessions, in the order of `add`.
struct SessionTable {
  private(set) var ids: [SessionID] = []
  private var all: [SessionID: Session] = [:]

  struct Session {
    let app: AppID
    let identity: ManagerIdentity?
    /// Nil: its process lives.
    var preservation: Preservation?
    /// The first event that completed one of its tasks when its process had ended and its app was not known to be
    /// terminated.
    var completed: BrokerEvent?
    /// What it scans for; nil: it does not scan.
    var scanned: RestoredState.Scan?
    /// The host's scans for that. None while the life of the app forbids it.
    var scans: [ScanID] = []
    /// Those of the host's scans.
    var scanParameters: ScanParameters?
    var interests: [PeerID: Interest] = [:]
    /// The identifiers of peers that this session knew before their identity was known.
    var identifiers: [PeerID: UUID] = [:]
    /// For notifications, by central.
    var ports: Set<UUID> = []
  }
  /// Setting an unknown session has no effect.
  subscript(id: SessionID) -> Session? {
    get { all[id] }
    _modify { yield &all[id] }
  }
  mutating func add(_ id: SessionID, of app: AppID, as identity: ManagerIdentity?) {
    if all.updateValue(Session(app: app, identity: identity), forKey: id) == nil { ids.append(id) }
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

/// The links of the adapter, in either role: from before the first session learns that they are up, until all sessions
/// have learned that they are down.
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
