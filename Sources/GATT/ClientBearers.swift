import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// What a client keeps for one of its bearers: the active request, and the waiting ones.
///
/// ## Phases
///
///     idle ── request ──▶ asking ── nextRequest ──▶ awaiting ── response ──▶ asking, or idle
///     idle, asking or awaiting ──▶ blocked ──▶ asking       while another bearer has `Client.exclusive`
///     awaiting ── refusal for lack of security ──▶ securing ── securityEnded ──▶ asking, or idle
///     idle ── nextRequest ──▶ searching ── response ──▶ idle      for the discovery of another bearer
///
/// Cancelling while a request is in flight completes it for the caller at once; the queue stays in `awaiting` until the
/// response has arrived. While the first waiting request has no place yet (`place`), the queue is idle.
///
/// `procedure` serves the active request and is finished without one; while it is `discovering`, the client's
/// `discovery` writes the requests and reads the responses.
@usableFromInline struct RequestQueue: ~Copyable {
  @usableFromInline enum Phase: BitwiseCopyable {
    case idle
    /// The first waiting request needs what the procedure of another bearer holds. Nothing is active.
    case blocked
    /// The active request has a PDU to send.
    case asking(Active)
    case awaiting(Active)
    /// The link is being secured, because the server has refused the active request.
    case securing(Active, ErrorResponse)
    /// Awaits the response to a request of the exclusive discovery, which is another bearer's.
    case searching
    var isIdle: Bool { if case .idle = self { true } else { false } }
  }
  /// The active request's place among the bearer's other traffic.
  @usableFromInline struct Active: BitwiseCopyable {
    /// The number of the bearer's commands that leave before it.
    @usableFromInline let place: UInt64
    /// Later traffic may follow: the request has left, or its caller has cancelled.
    @usableFromInline var hasLeft = false
    var synchrony: Synchrony
    /// The link has been secured for it once.
    var isSecured = false
    init(place: UInt64, synchrony: Synchrony) {
      self.place = place
      self.synchrony = synchrony
    }
  }
  /// Whether the server has answered a request with Database Out Of Sync (0x12).
  enum Synchrony: BitwiseCopyable {
    case inSync
    /// It has. The client reads the hash, which decides whether the procedure resumes.
    case readingHash
    /// It has, and the client has read the hash. The caller gets a second 0x12.
    case resumed
  }
  /// A request that waits for those before it.
  struct Waiting {
    var procedure: Procedure
    /// Nil while it is not known; the request waits for it.
    var place: UInt64? = 0
    /// Synchrony of a request that has been active before.
    var synchrony = Synchrony.inSync
    var isExclusive: Bool { procedure.isExclusive || synchrony == .readingHash }
  }

  @usableFromInline let bearer: BearerID
  @usableFromInline fileprivate(set) var phase = Phase.idle
  var procedure = Procedure()
  var waiting: Deque<Waiting> = []
  /// What the discovery's request in flight searches.
  var ticket = Discovery.Ticket()

  init(_ bearer: BearerID) { self.bearer = bearer }

  var holdsCommands: Bool {
    switch phase {
    case .asking(let active), .awaiting(let active): !active.hasLeft || hasNext
    // The repeated request precedes later commands.
    case .blocked, .securing: true
    case .idle, .searching: false
    }
  }
  /// True when a request waits for nothing but the active one.
  private var hasNext: Bool { waiting.first?.place != nil }
  /// Synchrony of the active request, which has a PDU to send.
  var synchrony: Synchrony {
    get { if case .asking(let active) = phase { active.synchrony } else { .inSync } }
    set {
      guard case .asking(var active) = phase else { return }
      active.synchrony = newValue
      phase = .asking(active)
    }
  }
  var isAwaiting: Bool { if case .awaiting = phase { true } else { false } }
  /// The active request is a discovery, which has parts.
  var isSearching: Bool { procedure.phase == .discovering && synchrony != .readingHash }
  /// Between `asking`, `awaiting` and `securing`.
  mutating func turn(to phase: Phase) { self.phase = phase }
  /// The index in `waiting` of the request with `id`.
  func index(of id: RequestID) -> Int? { waiting.firstIndex { $0.procedure.caller == .request(id) } }
}

/// # The bearers of a client
/// **Overview**: on each bearer of its link a client has one request in flight (Vol 3, Part F, §3.3.2) and others that
/// wait for it. The following exist once for the client, however many bearers it has:
///
/// | of the client | |
/// |---|---|
/// | `remote`, the Database Hash, changes of services | Vol 3, Part G, §2.5.2 |
/// | subscriptions | Vol 3, Part G, §3.3.3.3 |
/// | the server's queue of prepared writes | Vol 3, Part F, §3.4.6 |
///
/// **Function**: a procedure that uses one of these is exclusive: one bearer at a time runs such a procedure, from its
/// beginning to its end. On another bearer it waits in its order, and so do the requests behind it. When the exclusive
/// procedure ends, waiting bearers take precedence over the next procedure of the same bearer.
///
/// **Several requests at once**: requests are made on one bearer, in the order of the calls (Decision 0032). Reads
/// change nothing, so they may be answered in any order. When that bearer is busy, the read that is next leaves on any
/// bearer that is idle when it can send; and of a discovery each idle bearer asks for a part (`Discovery`). What was
/// made after a write, a subscription or a command still leaves after it. Decision 0079.
///
/// A bearer that closes ends the requests made on it. The client's own requests resume on another bearer.
extension Client {
  /// Adds a bearer to the client. A bearer that is open already is reset.
  public mutating func open(_ bearer: BearerID) {
    close(.disconnected, on: bearer)
    if bearers.isEmpty { makeRequests(on: bearer, after: 0) }
    bearers.append(RequestQueue(bearer))
    discovery.width = bearers.count
  }

  public mutating func close(_ reason: BearerClosure, on bearer: BearerID) {
    emptyArena()
    guard let index = index(of: bearer) else { return }
    var queue = bearers.remove(at: index)
    closure = reason
    discovery.width = bearers.count
    if case .searching = queue.phase { discovery.giveBack(queue.ticket) }
    if exclusive == bearer { discovery.stop() }
    if !queue.phase.isIdle { busyCount -= 1 }
    if exclusive == bearer { exclusive = nil }
    if bearers.isEmpty { subscriptions.removeAll() }
    mustEmptyQueue = !bearers.isEmpty && (mustEmptyQueue || queue.procedure.usesQueue)
    var own: [Procedure] = []
    if let rest = end(queue.procedure, isAwaiting: queue.isAwaiting) { own.append(rest) }
    while let orphan = queue.waiting.popFirst() {
      if let rest = end(orphan.procedure, isAwaiting: false) { own.append(rest) }
    }
    for procedure in own.reversed() { bearers[0].waiting.prepend(RequestQueue.Waiting(procedure: procedure)) }
    beginAll()
  }
  /// Ends a procedure with its bearer. Returns what the client must resume on another one.
  private mutating func end(_ procedure: Procedure, isAwaiting: Bool) -> Procedure? {
    if !bearers.isEmpty, procedure.caller == .client { return Procedure(.client, procedure.kind) }
    complete(procedure, .failed(.bearerClosed(closure)))
    guard !bearers.isEmpty, isAwaiting, case .writing = procedure.phase,
      case .subscribe(let valueHandle, let configuration?) = procedure.kind
    else { return nil }
    return subscribed(valueHandle, configuration, by: .none)
  }

  /// New requests go to `bearer`, each after `commands` of the bearer's commands. Nil: the caller has made commands
  /// that have not reached the bearer yet; the request waits until `place`. Before the first call the client uses the
  /// bearer that was opened first, and 0.
  public mutating func makeRequests(on bearer: BearerID, after commands: UInt64?) { target = (bearer, commands) }
  /// Gives a request that waits for it its place on `bearer`: after this many commands. Does nothing if the request has
  /// ended.
  public mutating func place(_ id: RequestID, on bearer: BearerID, after commands: UInt64) {
    emptyArena()
    guard let index = index(of: bearer), let request = bearers[index].index(of: id) else { return }
    bearers[index].waiting[request].place = commands
    beginIfIdle(at: index)
  }

  /// The request that awaits a response on `bearer`; nil: none, or one that no caller waits for.
  public func requestInFlight(on bearer: BearerID) -> RequestID? {
    guard let index = index(of: bearer), bearers[index].isAwaiting,
      case .request(let id) = bearers[index].procedure.caller
    else { return nil }
    return id
  }

  @inline(__always) func index(of bearer: BearerID) -> Int? { Client.index(of: bearer, among: bearers) }
  @inline(__always)
  static func index(of bearer: BearerID, among bearers: borrowing UniqueArray<RequestQueue>) -> Int? {
    for index in bearers.indices where bearers[index].bearer == bearer { return index }
    return nil
  }

  // MARK: Requests and their ends

  mutating func submit(_ procedure: Procedure) {
    emptyArena()
    guard let index = index(of: target.bearer) else { return complete(procedure, .failed(.bearerClosed(closure))) }
    if let refusal = procedure.refusal {
      complete(procedure, .failed(refusal))
    } else if bearers[index].waiting.count < configuration.maximumWaiting {
      bearers[index].waiting.append(RequestQueue.Waiting(procedure: procedure, place: target.place))
      beginIfIdle(at: index)
    } else {
      complete(procedure, .failed(.busy))
    }
  }

  private mutating func beginIfIdle(at index: Int) {
    switch bearers[index].phase {
    case .idle, .blocked: next(at: index)
    case .asking, .awaiting, .securing, .searching: break
    }
  }
  mutating func beginAll() { for index in bearers.indices { beginIfIdle(at: index) } }

  /// Begins the requests that wait on a bearer, until one has a PDU to send, has no place yet, or must wait for another
  /// bearer.
  private mutating func next(at index: Int) {
    while let first = bearers[index].waiting.first, let place = first.place {
      if first.isExclusive, !acquire(at: index) { return stop(.blocked, at: index) }
      bearers[index].waiting.removeFirst()
      bearers[index].procedure = first.procedure
      enter(.asking(RequestQueue.Active(place: place, synchrony: first.synchrony)), at: index)
      guard let result = begin(at: index) else { return }
      complete(bearers[index].procedure, result)
      release(at: index)
    }
    stop(.idle, at: index)
  }
  /// Makes every change of phase except those between `asking`, `awaiting` and `securing`.
  private mutating func enter(_ phase: RequestQueue.Phase, at index: Int) {
    busyCount += (phase.isIdle ? 0 : 1) - (bearers[index].phase.isIdle ? 0 : 1)
    bearers[index].phase = phase
  }
  /// Leaves the bearer without an active request.
  private mutating func stop(_ phase: RequestQueue.Phase, at index: Int) {
    enter(phase, at: index)
    bearers[index].procedure = Procedure()
  }
  /// Moves the active request back to the head of `waiting`.
  mutating func block(at index: Int) {
    guard case .asking(let active) = bearers[index].phase else { return }
    bearers[index].waiting.prepend(
      RequestQueue.Waiting(procedure: bearers[index].procedure, place: active.place, synchrony: active.synchrony))
    stop(.blocked, at: index)
  }

  /// Makes the bearer's procedure the exclusive one until it ends. False when another bearer's is.
  mutating func acquire(at index: Int) -> Bool {
    if let exclusive { return exclusive == bearers[index].bearer }
    exclusive = bearers[index].bearer
    return true
  }
  /// Ends the bearer's procedure. If it was the exclusive one, the bearers that wait for that resume, the next in the
  /// list first.
  private mutating func release(at index: Int) {
    guard exclusive == bearers[index].bearer else { return }
    exclusive = nil
    for distance in 1..<bearers.count {
      let other = (index + distance) % bearers.count
      if case .blocked = bearers[other].phase { next(at: other) }
    }
  }

  /// Begins the procedure of a bearer. Returns its result if it needs no request.
  private mutating func begin(at index: Int) -> ClientResult? {
    switch bearers[index].procedure.kind {
    case .discover(let goal):
      if case .everything(_, let infers) = goal { infersDescriptors = infers }
      discover(goal, at: index)
    case .rediscover(let range): beginRediscovery(range, at: index)
    case .followChanges: return beginFollowing(at: index)
    case .subscribe(let valueHandle, let wanted): return beginSubscribing(valueHandle, wanted, at: index)
    case .unsubscribe(let valueHandle): return beginUnsubscribing(valueHandle, at: index)
    case .values, .databaseHash: break
    }
    return nil
  }

  /// The client's own discovery, or one that begins anew.
  mutating func discoverEverything(in range: HandleRange, at index: Int) {
    discover(.everything(range, infersDescriptors: infersDescriptors), at: index)
  }
  mutating func discover(_ goal: Discovery.Goal, at index: Int) {
    bearers[index].procedure.discover()
    isDiscoveryShared = true
    discoveryFailure = nil
    discovery.start(goal, knowing: remote)
  }

  /// Ends the active request of a bearer for its caller, and for the client too unless the server's queue must be
  /// emptied first.
  mutating func end(_ result: ClientResult, at index: Int) {
    guard case .asking(var active) = bearers[index].phase else { return }
    if bearers[index].isSearching { discovery.stop() }
    complete(bearers[index].procedure, result)
    bearers[index].procedure.abandon()
    if bearers[index].procedure.rollBack() {
      // The procedure now only empties the queue, and never asks for the hash.
      active.hasLeft = true
      active.synchrony = .resumed
      enter(.asking(active), at: index)
    } else {
      stop(.idle, at: index)
      release(at: index)
      next(at: index)
    }
  }

  mutating func complete(_ procedure: Procedure, _ result: ClientResult) {
    if case .rediscover(let range) = procedure.kind {
      if case .failed(let error) = result { effects.append(.rediscovered(range, error)) }
      if case .discovered = result { effects.append(.rediscovered(range, nil)) }
    } else if case .request(let id) = procedure.caller {
      complete(id, result)
    }
  }
  mutating func complete(_ id: RequestID, _ result: ClientResult) { effects.append(.completed(id, result)) }

  /// Ends a request early: `.failed(.cancelled)` follows at once. Does nothing if it has completed. The client takes
  /// back parts of a value that the server has queued, and a subscription; a write whose request is in flight may still
  /// take effect.
  public mutating func cancel(_ id: RequestID) {
    emptyArena()
    for index in bearers.indices {
      if let request = bearers[index].index(of: id) {
        bearers[index].waiting.remove(at: request)
        complete(id, .failed(.cancelled))
        return beginIfIdle(at: index)
      }
      guard bearers[index].procedure.caller == .request(id) else { continue }
      if case .securing(let active, _) = bearers[index].phase { bearers[index].turn(to: .asking(active)) }
      guard case .awaiting(var active) = bearers[index].phase else { return end(.failed(.cancelled), at: index) }
      complete(id, .failed(.cancelled))
      bearers[index].procedure.abandon()
      active.hasLeft = true
      return enter(.awaiting(active), at: index)
    }
  }

  // MARK: Several bearers

  /// A read waits that may leave on the idle bearer at `index`: the first bearer is busy with something that it need not
  /// follow.
  static func hasShare(
    for index: Int, among bearers: borrowing UniqueArray<RequestQueue>, after commands: UInt64
  ) -> Bool {
    guard index > 0, let first = bearers[0].waiting.first, let place = first.place, place <= commands,
      first.procedure.isRead, !first.isExclusive
    else { return false }
    switch bearers[0].phase {
    case .asking(let active), .awaiting(let active): return active.hasLeft || bearers[0].procedure.isRead
    case .searching: return true
    case .idle, .blocked, .securing: return false
    }
  }
  /// Makes that read the active request of the bearer. False if there is none.
  mutating func takeShare(at index: Int) -> Bool {
    guard Client.hasShare(for: index, among: bearers, after: commandsSent) else { return false }
    let first = bearers[0].waiting.removeFirst()
    bearers[index].procedure = first.procedure
    enter(.asking(RequestQueue.Active(place: 0, synchrony: first.synchrony)), at: index)
    return true
  }
  /// Writes a request of the discovery that is the exclusive procedure of another bearer. False if it has none to share.
  mutating func search(at index: Int, into request: inout OutputRawSpan) -> Bool {
    guard isDiscoveryShared, writeSearch(at: index, into: &request) else { return false }
    enter(.searching, at: index)
    return true
  }
  mutating func writeSearch(at index: Int, into request: inout OutputRawSpan) -> Bool {
    guard let ticket = discovery.take() else { return false }
    bearers[index].ticket = ticket
    var source: [UInt8] = []
    let pdu = discovery.request(source: &source)
    return (try? pdu.encode(into: &request, from: source.span)) != nil
  }
  /// The server has refused what the request may have later: the discovery asks again.
  mutating func repeatSearch(at index: Int) {
    if bearers[index].procedure.phase == .discovering { discovery.giveBack(bearers[index].ticket) }
  }
  mutating func receive(found response: ATTPDU, in packet: Span<UInt8>, at index: Int) -> Discovery.Outcome {
    let outcome = discovery.receive(response, in: packet, to: bearers[index].ticket)
    if let ignored = discovery.ignored {
      effects.append(.ignored(ignored))
      discovery.ignored = nil
    }
    return outcome
  }
  /// A bearer has got the response for the discovery of another one.
  mutating func found(_ response: ATTPDU, in packet: Span<UInt8>, at index: Int) {
    enter(.idle, at: index)
    if case .errorResponse(let error) = response, error.errorCode != .attributeNotFound {
      // The bearer whose procedure it is asks again, and reports what the server says then.
      isDiscoveryShared = false
      discovery.giveBack(bearers[index].ticket)
    } else {
      let outcome = receive(found: response, in: packet, at: index)
      let owner = exclusive.flatMap { self.index(of: $0) }
      switch outcome {
      case .again, .stale: break
      case .finished: if let owner { discovered(at: owner) }
      case .failed(let error):
        discoveryFailure = error
        if let owner { end(.failed(error), at: owner) }
      }
    }
    beginIfIdle(at: index)
  }

  // MARK: Security

  /// True if the active request waits for a more secure link, because the server has refused it for lack of security.
  /// Vol 3, Part C, §10.3.2.
  mutating func secures(_ active: RequestQueue.Active, refusedWith error: ErrorResponse, at index: Int) -> Bool {
    guard configuration.repeatsWhenSecured, !active.isSecured, bearers[index].procedure.isWanted else { return false }
    switch error.errorCode {
    case .insufficientAuthentication, .insufficientEncryption, .encryptionKeySizeTooShort: break
    default: return false
    }
    bearers[index].turn(to: .securing(active, error))
    repeatSearch(at: index)
    effects.append(.securityNeeded(error.errorCode))
    return true
  }
  /// The attempt to secure the link has ended, after `.securityNeeded`. If it is more secure now, the client repeats
  /// the refused requests, each once; else they fail with the server's reason.
  public mutating func securityEnded(isSecured: Bool) {
    emptyArena()
    for index in bearers.indices {
      guard case .securing(var active, let refusal) = bearers[index].phase else { continue }
      active.isSecured = true
      if isSecured {
        bearers[index].turn(to: .asking(active))
      } else {
        bearers[index].turn(to: .awaiting(active))
        advance(by: .errorResponse(refusal), in: Span(), at: index, active, mtu: Bearer.defaultMTU)
      }
    }
  }
}
