import ATT
import BasicContainers
import BindruneWire
import DequeModule

/// What a client keeps for one of its bearers: the active request, and those that wait for it.
///
/// ## Phases
///
///     idle ── request ──▶ asking ── nextRequest ──▶ awaiting ── response ──▶ asking, or idle
///     idle, asking or awaiting ──▶ blocked ──▶ asking       while another bearer has `Client.exclusive`
///
/// Cancelling while a request is in flight completes the caller at once; the queue stays in `awaiting` until the response
/// has come and gone. While the first of those that wait has no place yet (`place`), the queue is idle.
///
/// `procedure` serves the active request and is finished without one; while it is `discovering`, the client's `discovery`
/// asks and takes the responses.
@usableFromInline struct RequestQueue: ~Copyable {
  @usableFromInline enum Phase: BitwiseCopyable {
    case idle
    /// The first that waits needs what the procedure of another bearer has. Nothing is active.
    case blocked
    /// The active request has something to ask.
    case asking(Active)
    case awaiting(Active)
    var isIdle: Bool { if case .idle = self { true } else { false } }
  }
  /// How the active request stands with what is beside it.
  @usableFromInline struct Active: BitwiseCopyable {
    /// Its place: so many commands of the bearer leave before it.
    @usableFromInline let place: UInt64
    /// What is asked for after it may follow: it has left, or its caller has gone.
    @usableFromInline var hasLeft = false
    var synchrony: Synchrony
    init(place: UInt64, synchrony: Synchrony) {
      self.place = place
      self.synchrony = synchrony
    }
  }
  /// Whether the server has answered a request with Database Out Of Sync (0x12).
  enum Synchrony: BitwiseCopyable {
    case inSync
    /// It has. The hash is read, and decides whether the procedure goes on.
    case readingHash
    /// It has, and the hash has been read. A second 0x12 is the caller's.
    case resumed
  }
  /// A request that waits for those before it.
  struct Waiting {
    var procedure: Procedure
    /// Nil: not known yet, and the request waits for it.
    var place: UInt64? = 0
    /// Of a request that has been active before.
    var synchrony = Synchrony.inSync
    var isExclusive: Bool { procedure.isExclusive || synchrony == .readingHash }
  }

  @usableFromInline let bearer: BearerID
  @usableFromInline fileprivate(set) var phase = Phase.idle
  var procedure = Procedure()
  var waiting: Deque<Waiting> = []

  init(_ bearer: BearerID) { self.bearer = bearer }

  var holdsCommands: Bool {
    switch phase {
    case .asking(let active), .awaiting(let active): !active.hasLeft || hasNext
    case .blocked: true
    case .idle: false
    }
  }
  /// A request waits for the active one only.
  private var hasNext: Bool { waiting.first?.place != nil }
  /// Of the active request, which has something to ask.
  var synchrony: Synchrony {
    get { if case .asking(let active) = phase { active.synchrony } else { .inSync } }
    set {
      guard case .asking(var active) = phase else { return }
      active.synchrony = newValue
      phase = .asking(active)
    }
  }
  var isAwaiting: Bool { if case .awaiting = phase { true } else { false } }
  /// From `asking` to `awaiting`, or back.
  mutating func turn(to phase: Phase) { self.phase = phase }
  /// The place in `waiting` of the request that `id` names.
  func index(of id: RequestID) -> Int? { waiting.firstIndex { $0.procedure.caller == .request(id) } }
}

/// # The bearers of a client
/// **Overview**: on each bearer of its link a client has one request in flight (Vol 3, Part F, §3.3.2), and others that wait
/// for it. What it knows of the server, and what the server keeps for it, it has once, whatever bearers there are:
///
/// | of the client | |
/// |---|---|
/// | `remote`, the Database Hash, changes of services | Vol 3, Part G, §2.5.2 |
/// | subscriptions | Vol 3, Part G, §3.3.3.3 |
/// | the server's queue of prepared writes | Vol 3, Part F, §3.4.6 |
///
/// **Function**: a procedure that uses one of these is exclusive: one bearer at a time runs such a procedure, from its
/// beginning to its end. One on another bearer waits in its order, and so do those behind it. When the exclusive procedure ends,
/// the other bearers that wait come before the next of its own bearer.
///
/// A bearer that closes ends the requests that have been made on it. What the client asks for itself goes on on another bearer.
extension Client {
  /// The client has one more bearer. One that is open already starts afresh.
  public mutating func open(_ bearer: BearerID) {
    close(.disconnected, on: bearer)
    if bearers.isEmpty { makeRequests(on: bearer, after: 0) }
    bearers.append(RequestQueue(bearer))
  }

  public mutating func close(_ reason: BearerClosure, on bearer: BearerID) {
    emptyArena()
    guard let index = index(of: bearer) else { return }
    var queue = bearers.remove(at: index)
    closure = reason
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
  /// Ends a procedure with its bearer. Returns what the client has to ask on another one.
  private mutating func end(_ procedure: Procedure, isAwaiting: Bool) -> Procedure? {
    if !bearers.isEmpty, procedure.caller == .client { return Procedure(.client, procedure.kind) }
    complete(procedure, .failed(.bearerClosed(closure)))
    guard !bearers.isEmpty, isAwaiting, case .writing = procedure.phase,
      case .subscribe(let valueHandle, let configuration?) = procedure.kind
    else { return nil }
    return subscribed(valueHandle, configuration, by: .none)
  }

  /// Requests are made on `bearer` from now on, each with its place: so many commands of the bearer leave before it. Nil: its
  /// caller has made commands that have not reached the bearer; the request waits until `place`. Before the first call: the
  /// bearer that was opened first, and 0.
  public mutating func makeRequests(on bearer: BearerID, after commands: UInt64?) { target = (bearer, commands) }
  /// Gives a request that waits for it its place on `bearer`: after so many commands. Nothing where it has ended already.
  public mutating func place(_ id: RequestID, on bearer: BearerID, after commands: UInt64) {
    emptyArena()
    guard let index = index(of: bearer), let request = bearers[index].index(of: id) else { return }
    bearers[index].waiting[request].place = commands
    beginIfIdle(at: index)
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
    case .asking, .awaiting: break
    }
  }
  mutating func beginAll() { for index in bearers.indices { beginIfIdle(at: index) } }

  /// Begins the requests that wait on a bearer, up to one that has something to ask, no place yet, or to wait for another bearer.
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
  /// Every change of a phase but those between `asking` and `awaiting`.
  private mutating func enter(_ phase: RequestQueue.Phase, at index: Int) {
    busyCount += (phase.isIdle ? 0 : 1) - (bearers[index].phase.isIdle ? 0 : 1)
    bearers[index].phase = phase
  }
  /// Nothing is active on the bearer.
  private mutating func stop(_ phase: RequestQueue.Phase, at index: Int) {
    enter(phase, at: index)
    bearers[index].procedure = Procedure()
  }
  /// The active request becomes the first of those that wait.
  mutating func block(at index: Int) {
    guard case .asking(let active) = bearers[index].phase else { return }
    bearers[index].waiting.prepend(
      RequestQueue.Waiting(procedure: bearers[index].procedure, place: active.place, synchrony: active.synchrony))
    stop(.blocked, at: index)
  }

  /// The bearer's procedure is the exclusive one, until it ends. False: another bearer's is.
  mutating func acquire(at index: Int) -> Bool {
    if let exclusive { return exclusive == bearers[index].bearer }
    exclusive = bearers[index].bearer
    return true
  }
  /// The bearer's procedure has ended. If it was the exclusive one, the bearers that wait for that go on, the next in the list first.
  private mutating func release(at index: Int) {
    guard exclusive == bearers[index].bearer else { return }
    exclusive = nil
    for distance in 1..<bearers.count {
      let other = (index + distance) % bearers.count
      if case .blocked = bearers[other].phase { next(at: other) }
    }
  }

  /// Begins the procedure of a bearer. Returns how it ends where nothing has to be asked.
  private mutating func begin(at index: Int) -> ClientResult? {
    switch bearers[index].procedure.kind {
    case .discover(let goal): discover(goal, at: index)
    case .rediscover(let range): beginRediscovery(range, at: index)
    case .followChanges: return beginFollowing(at: index)
    case .subscribe(let valueHandle, let wanted): return beginSubscribing(valueHandle, wanted, at: index)
    case .unsubscribe(let valueHandle): return beginUnsubscribing(valueHandle, at: index)
    case .values, .databaseHash: break
    }
    return nil
  }

  mutating func discover(_ goal: Discovery.Goal, at index: Int) {
    bearers[index].procedure.discover()
    discovery.start(goal, knowing: remote)
  }

  /// Ends the active request of a bearer for its caller, and for the client, unless the server's queue must be emptied first.
  mutating func end(_ result: ClientResult, at index: Int) {
    guard case .asking(var active) = bearers[index].phase else { return }
    complete(bearers[index].procedure, result)
    bearers[index].procedure.abandon()
    if bearers[index].procedure.rollBack() {
      // Only that is asked now, and not for the hash.
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

  /// Ends a request early: `.failed(.cancelled)` follows at once. Nothing happens when it has completed already. Parts of
  /// a value that the server has queued are taken back, and so is a subscription; a write whose request is on its way may
  /// still take effect.
  public mutating func cancel(_ id: RequestID) {
    emptyArena()
    for index in bearers.indices {
      if let request = bearers[index].index(of: id) {
        bearers[index].waiting.remove(at: request)
        complete(id, .failed(.cancelled))
        return beginIfIdle(at: index)
      }
      guard bearers[index].procedure.caller == .request(id) else { continue }
      guard case .awaiting(var active) = bearers[index].phase else { return end(.failed(.cancelled), at: index) }
      complete(id, .failed(.cancelled))
      bearers[index].procedure.abandon()
      active.hasLeft = true
      return enter(.awaiting(active), at: index)
    }
  }
}
