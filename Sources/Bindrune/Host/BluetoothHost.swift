import BindruneATT
import BindruneTransport
import BindruneWire
import DequeModule
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import Logging
import NIOCore
import NIOPosix

/// A Bluetooth LE host on one adapter: central and peripheral at once.
///
///     let host = try await BluetoothHost.open("tcp:127.0.0.1:9000")
///     for try await advertisement in host.scan() { print(advertisement) }
///
/// The actor runs on its transport's event loop, so a packet reaches the layers without a hop. The loop reads packets
/// when no call waits: a task that asks the host again and again without a pause keeps it from its controller, so wait
/// for an event or for the end of a call.
///
/// Every wait ends exactly once: with its answer, with an error, or with its task's cancellation. End a host with
/// `close`: a host released without it only closes its transport, and its peers see the links time out.
public actor BluetoothHost {
  public nonisolated let transport: any HCITransport
  public nonisolated var unownedExecutor: UnownedSerialExecutor {
    unsafe transport.eventLoop.executor.asUnownedSerialExecutor()
  }
  let logger: Logger
  /// nil: the transport does not record calls.
  let calls: CallTrace?
  /// Holds the core.
  private let receiver: HostReceiver
  @inline(__always) var core: HostCore {
    _read { yield unsafe receiver.core }
    _modify { yield unsafe &receiver.core }
  }
  /// The current state. `states` reports its changes.
  public private(set) var state = HostState.stopped { didSet { reportState() } }
  var stateReaders: [Mailbox<HostState>] = []
  @inline(__always) var packet: PacketBuffer {
    _read { yield unsafe receiver.packet }
    _modify { yield unsafe &receiver.packet }
  }
  // Release builds do not check that no two accesses to these overlap (150 instructions for each value of a slow link):
  // each access is a load or a store.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
  /// The transport may still buffer packets that were sent.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe var isUnflushed = false
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var isPumping = false
  /// `pump` or `pumpLater` was called while `pump` ran.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var isPumpAsked = false
  /// `pump` will be called, in a later turn of the event loop.
  private var isPumpDue = false
  /// Events to deliver to the observer before the core's next ones.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe var unreportedEvents = Deque<HostEvent>()

  // Waiting tasks, by what they wait for.
  let starting = Waiters()
  var advertising: [AdvertisingSetID: AdvertisingState] = [:]
  var advertisingTurn = 0
  let closing = Waiters()
  var lastRequest: UInt64 = 0
  var requests: [RequestID: Requester] = [:]
  /// Requests that ended with their link, not yet reported.
  var orphans: [RequestID] = []
  var scans: [ScanID: Scan] = [:]
  var linkStates = LinkMap<LinkState>()
  /// Why the last links ended, the oldest first: a request that comes too late ends with it.
  var endedLinks = Deque<(link: LinkID, error: BluetoothError)>()
  let readers = ReaderCount()
  /// How ports signal that they have values, and the links of the ports that did.
  var doorbell: Doorbell?
  var ringing = Deque<LinkID>()
  var incoming: [Mailbox<ServerEvent>] = []
  /// The services that accept channels.
  var listening: [SPSM: Listening] = [:]
  /// Writes of one group, until the last of them arrives.
  var gathered: [ServerWriteRequest.Write] = []

  /// Receives every event, in order, on the event loop: see `HostObserver`. One set after `start` misses earlier
  /// events. The host holds it weakly.
  public weak var observer: (any HostObserver)?

  let agent: any PairingAgent
  let bondStore: (any BondStore)?
  /// The pending writes to it, in their order.
  var savingBonds: Task<BluetoothError?, Never>?
  nonisolated let databaseCache: any DatabaseCache
  /// The pending writes to the cache.
  var remembering: Task<Void, Never>?

  /// A host on `transport`; call `start` to bring it up. `agent` answers for the user when a device pairs, and decides
  /// on `configuration.pairing.ioCapability`. `bondStore` keeps bonds for the next start; nil: they end with the host.
  /// `databaseCache` stores the databases it discovers. `observer` receives every event from the beginning, see
  /// `HostObserver`; the host holds it weakly.
  public init(
    _ transport: any HCITransport, configuration: HostConfiguration = HostConfiguration(),
    database: Database = Database(), agent: any PairingAgent = JustWorksAgent(), bondStore: (any BondStore)? = nil,
    databaseCache: any DatabaseCache = MemoryDatabaseCache(), observer: (any HostObserver)? = nil,
    logger: Logger = .silent
  ) {
    self.transport = transport
    self.logger = logger
    calls = transport.recordsCalls ? CallTrace() : nil
    self.agent = agent
    self.bondStore = bondStore
    self.databaseCache = databaseCache
    self.observer = observer
    var chance = SystemRandomNumberGenerator(), configuration = configuration
    configuration.pairing.ioCapability = agent.ioCapability
    if !agent.permitsPairing {
      configuration.pairing.acceptsPairing = false
      configuration.pairsOnDemand = false
    }
    receiver = HostReceiver(
      HostCore(configuration: configuration, database: database, chance: &chance), on: transport.eventLoop)
  }

  /// Opens the controller that `spec` names (`hci0`, `serial:PATH,BAUD`, `tcp:HOST:PORT`, `unix:PATH`, or `sim`: alone
  /// on a radio of its own) and starts a host on it. If that fails, or the task is cancelled, nothing stays open.
  ///
  /// `takesDown`: takes down an adapter that is up, and brings it up again when the host is closed; see
  /// `TransportSpec.open`. An error's `transportError` says as a value why the controller did not open. `trace`: the
  /// path of a btsnoop file that records every packet; `tracesCalls`: with a line of text before each packet that a
  /// call caused, which names the call.
  ///
  /// `agent` answers for the user when a device pairs; `bondStore` keeps what then has to be kept.
  ///
  /// `eventLoop`: where the host runs; nil: on the radio's, or one that NIO chooses. `radio`: the radio for `sim`, on
  /// that same loop. `observer` receives every event, see `HostObserver`; possibly also the failure of the start.
  public static func open(
    _ spec: String, on eventLoop: (any EventLoop)? = nil, radio: SimulatedRadio? = nil, takesDown: Bool = false,
    configuration: HostConfiguration = HostConfiguration(), database: Database = Database(),
    agent: any PairingAgent = JustWorksAgent(), bondStore: (any BondStore)? = nil,
    databaseCache: any DatabaseCache = MemoryDatabaseCache(), observer: (any HostObserver)? = nil, trace: String? = nil,
    tracesCalls: Bool = false, logger: Logger = .silent
  ) async throws(BluetoothError) -> BluetoothHost {
    let operation = "open \(spec)"
    let transport: any HCITransport
    do throws(TransportError) {
      let spec = try TransportSpec(spec)
      let loop = eventLoop ?? radio?.eventLoop ?? EventLoops.next()
      let radio = radio ?? (spec == .sim ? SimulatedRadio(on: loop) : nil)
      transport = try await spec.open(
        on: loop, radio: radio, takesDown: takesDown, trace: trace, tracesCalls: tracesCalls,
        logger: logger)
    } catch {
      throw (Task.isCancelled ? .cancelled : BluetoothError(error)).during(operation)
    }
    let host = BluetoothHost(
      transport, configuration: configuration, database: database, agent: agent, bondStore: bondStore,
      databaseCache: databaseCache, observer: observer, logger: logger)
    do throws(BluetoothError) {
      try await host.start()
    } catch {
      await host.close()
      throw error.during(operation)
    }
    return host
  }

  deinit {
    if case .closed = state { return }
    // No caller waits on the host itself: that would retain it. All other waits end with the error.
    let (error, transport) = (BluetoothError.closed, transport)
    for link in linkStates.values { link.end(error) }
    for mailbox in incoming { mailbox.finish(error) }
    for service in listening.values { service.end(error) }
    for mailbox in stateReaders { mailbox.report(.closed(error)) }
    timer?.scheduled.cancel()
    transport.eventLoop.execute { transport.close() }
  }

  // MARK: Start and close

  /// Starts the transport and the controller; a second caller waits for the same start. Cancelling the task ends the
  /// wait but not the start: call `start` again to wait for it, or `close`.
  public func start() async throws(BluetoothError) {
    do throws(BluetoothError) {
      switch state {
      case .running: return
      case .closing: throw .closed
      case .closed(let error): throw error
      case .stopped, .starting: break
      }
      try await starting.wait {
        guard case .stopped = state else { return nil }
        state = .starting
        receiver.host = self
        transport.start(receiver)
        // Discards packets from before the reset, up to the answer to HCI_Reset.
        transport.resynchronise()
        perform(as: "start()") { core, now in core.start(now: now) }
        return nil
      }
    } catch {
      throw error.during("start the controller")
    }
  }
  func started() {
    guard let bondStore else { return run(with: []) }
    let adapter = core.identityAddress
    Task {
      do throws(BluetoothError) {
        run(with: try await bondStore.bonds(of: adapter))
      } catch {
        logger.error("\(error)")
        run(with: [])
      }
    }
  }
  private func run(with bonds: [Bond]) {
    guard case .starting = state else { return }
    add(bonds)
    state = .running
    starting.resume()
    reportLater(.running)
  }

  /// Ends scans, advertising and links, so that peers see a disconnection and no timeout, resets the controller, and
  /// closes the transport. Every wait ends with `.notStarted`. Takes at most one second, also in a cancelled task, plus
  /// the time that the kernel needs to bring up an adapter that was taken down. A second caller waits for the same
  /// close.
  ///
  /// Afterwards the controller can be opened again at once.
  public func close() async {
    await end()
    _ = await savingBonds?.value
    // `fail` has logged its error.
    try? await transport.closeFuture.get()
  }
  private func end() async {
    switch state {
    case .closed: return
    case .stopped, .starting: return fail(.closed)
    case .closing: break
    case .running:
      state = .closing
      let scans = scans.keys
      endScans(.closed)
      let ended = endRequests(.closed)
      perform(as: "close()") { core, now in
        if let calls { calls.closing = calls.current }
        for request in ended { core.cancel(request, now: now) }
        for scan in scans { core.stopScan(id: scan, now: now) }
        for id in advertising.keys { core.stopAdvertising(id, now: now) }
        for link in linkStates.keys { core.disconnect(link, now: now) }
      }
      transport.eventLoop.scheduleTask(in: .seconds(1)) { [weak self] in
        self?.assumeIsolated { $0.fail(.closed) }
      }
    }
    // An unstructured task: the links must end even if the caller's task is cancelled.
    let closing = closing
    await Task {
      try? await closing.wait {
        if case .closed = state { .success(()) } else { nil }
      }
    }.value
  }
  func closeIfQuiet() {
    // A command that the controller has not answered leaves no credit for another. Vol 4, Part E, §4.4.
    guard case .closing = state, linkStates.isEmpty, !core.awaitsController else { return }
    let reset: [UInt8] = [0x01, 0x03, 0x0C, 0x00]  // HCI_Reset, without waiting for its answer
    if let calls { transport.willSend(becauseOf: calls.text(of: calls.closing)) }
    transport.send(reset.span)
    fail(.closed)
  }

  /// Closes the host for good: every wait ends with `error`.
  func fail(_ error: BluetoothError) {
    if case .closed = state { return }
    state = .closed(error)
    timer?.scheduled.cancel()
    timer = nil
    transport.close()
    transport.closeFuture.whenFailure { [logger] in logger.warning("not left as it was found: \($0)") }
    endEverything(error)
  }

  /// Throws unless the controller is running, and the caller's task too.
  func check() throws(BluetoothError) {
    try checkRunning()
    if Task.isCancelled { throw .cancelled }
  }
  /// Throws unless the controller is running.
  func checkRunning() throws(BluetoothError) {
    switch state {
    case .running: return
    case .closed(let error): throw error
    case .closing: throw .closed
    case .stopped, .starting: throw BluetoothError(.notStarted, "The host has not been started: call start first.")
    }
  }

  /// What the controller has reported of itself, such as its buffers; nil until it has started.
  public var controller: ControllerInfo? { core.controller }
  /// The address that peers see: with `HostConfiguration.addressPolicy` a private one, which changes.
  public var ownAddress: PeerAddress { core.ownAddress }
  /// The address by which a peer that has this host's IRK identifies it.
  public var identityAddress: PeerAddress { core.identityAddress }

  /// From now on the host identifies this device by its identity address, whatever private address it uses: in
  /// discoveries, in links, and for `connect`. `irk` is the key that the device has distributed when it was paired, by
  /// another host: for its own bonds this host does it by itself. The host uses the controller's resolving list if
  /// there is one, and resolves the address itself otherwise.
  public func addIdentity(_ identity: PeerAddress, irk: IdentityResolvingKey) throws(BluetoothError) {
    try changeIdentities("add the identity \(identity)", "addIdentity(_:irk:)") { (core, now) throws(IdentityError) in
      try core.addPeerIdentity(identity, irk, now: now)
    }
  }
  /// The same for the peer of `link`, which has distributed its identity: `Link.peer` stays, its address changes.
  public func identify(
    _ link: LinkID, as identity: PeerAddress, irk: IdentityResolvingKey
  ) throws(BluetoothError) {
    try changeIdentities("identify \(peerText(link)) as \(identity)", "identify(_:as:irk:)") {
      (core, now) throws(IdentityError) in
      try core.identify(link, as: identity, irk, now: now)
    }
  }
  func changeIdentities(
    _ operation: @autoclosure () -> String, _ call: StaticString? = nil,
    _ change: (inout HostCore, Instant) throws(IdentityError) -> Void
  ) throws(BluetoothError) {
    let error: IdentityError? = perform(as: call) { core, now in
      do throws(IdentityError) {
        try change(&core, now)
        return nil
      } catch {
        return error
      }
    }
    if let error { throw BluetoothError(error).during(operation()) }
  }
  public func removeIdentity(_ identity: PeerAddress) {
    perform(as: "removeIdentity(_:)") { core, now in core.removePeerIdentity(identity, now: now) }
  }

  /// The peer with this address: an identity address, a private one that a known key resolves, or any other.
  public func peer(at address: PeerAddress) -> PeerID { core.peer(at: address) }
  /// The peer's identity address, if known; else the address by which it was first seen.
  public func address(of peer: PeerID) -> PeerAddress { core.address(of: peer) }

  // MARK: Driving the core

  var now: Instant { receiver.now }

  /// Applies `change` to the core, then pumps: with an observer in a later turn, so that the host never calls it back
  /// from within the observer's own call. `call`: its name in a trace; nil: it is a part of another call, or of none.
  func perform<Result>(as call: StaticString? = nil, _ change: (inout HostCore, Instant) -> Result) -> Result {
    receiver.arrival = nil
    let result: Result
    if let calls {
      let isOutermost = call.map { calls.enter($0) } ?? false
      result = core.withCause(calls.current) { change(&$0, now) }
      calls.leave(isOutermost)
    } else {
      result = change(&core, now)
    }
    if observer == nil { pump() } else { pumpLater() }
    return result
  }
  func pumpLater() {
    if isPumping {
      isPumpAsked = true
      return
    }
    if isPumpDue { return }
    isPumpDue = true
    // Retains the host: it must deliver its last events even if nothing else retains it.
    transport.eventLoop.execute {
      self.assumeIsolated { host in
        host.isPumpDue = false
        host.pump()
      }
    }
  }
  /// Sends the core's packets, reports its effects, and arms the timer. `onlyValues`: since the last call the core has
  /// received only values. These cause no packet and change no deadline, unless the observer acts on them.
  func pump(onlyValues: Bool = false) {
    // Handling an effect may call this again; the outer call continues.
    if isPumping {
      isPumpAsked = true
      return
    }
    isPumping = true
    defer { isPumping = false }
    // What follows from an event is not of the call during which it is reported.
    let interrupted = calls?.interrupt()
    defer { if let interrupted { calls?.resume(interrupted) } }
    receiver.arrival = nil
    if onlyValues, unreportedEvents.isEmpty {
      isPumpAsked = false
      _ = reportEffects()
      if !isPumpAsked { return }
    }
    var isQuiet: Bool
    repeat {
      isQuiet = true
      if sendPackets() { isUnflushed = true }
      if isUnflushed {
        isUnflushed = false
        isQuiet = false
        transport.flush()
      }
      if reportEvents() || reportEffects() { isQuiet = false }
      if isQuiet {
        closeIfQuiet()
        isQuiet = unreportedEvents.isEmpty
      }
    } while !isQuiet
    armTimer()
  }
  /// Sends what the transport accepts now; false if nothing.
  private func sendPackets() -> Bool {
    guard let calls else { return Self.sendPackets(of: &core, in: &packet, to: transport, now: now) }
    var isAny = false
    while transport.isWritable, packet.fill({ core.nextPacket(into: &$0, now: now) }) {
      send(calls, over: transport)
      isAny = true
    }
    return isAny
  }
  /// The same with one access to the core and to the packet for all.
  private static func sendPackets(
    of core: inout HostCore, in packet: inout PacketBuffer, to transport: any HCITransport, now: Instant
  ) -> Bool {
    var isAny = false
    while transport.isWritable, packet.fill({ core.nextPacket(into: &$0, now: now) }) {
      packet.withBytes { transport.send($0) }
      packet.removeAll()
      isAny = true
    }
    return isAny
  }
  /// Reports all effects of the core; false if there were none.
  private func reportEffects() -> Bool {
    if !core.hasEffect { return false }
    let observer = observer ?? NoObserver.only
    while unsafe core.takeBatch(&receiver.batch) { unsafe report(&receiver.batch, to: observer) }
    observer.hostReportedBatch(self)
    return true
  }
  private func report(_ batch: inout HostBatch, to observer: any HostObserver) {
    while !batch.isEmpty {
      deliverValues(of: &batch, to: observer)
      if let effect = batch.nextEffect(), !isClosed { handle(effect, in: batch) }
    }
  }
  var isClosed: Bool { if case .closed = state { true } else { false } }

  /// Arms the only timer. It may fire too early, which costs less than a new one for every packet.
  private func armTimer() {
    guard let deadline = core.nextDeadline() else { return }
    if case .closed = state { return }
    if let timer {
      if timer.deadline <= deadline { return }
      timer.scheduled.cancel()
    }
    let scheduled = transport.eventLoop.scheduleTask(deadline: .uptimeNanoseconds(deadline.nanoseconds)) {
      [weak self] in
      guard let self else { return }
      self.assumeIsolated { host in
        host.timer = nil
        host.core.expire(now: host.now)
        host.pump()
      }
    }
    timer = (deadline, scheduled)
  }

  /// Runs `body` on the host from anywhere, later.
  nonisolated func onEventLoop(_ body: @escaping @Sendable (isolated BluetoothHost) -> Void) {
    transport.eventLoop.execute { [weak self] in
      self?.assumeIsolated { body($0) }
    }
  }
}

/// The transport's end of the host. It holds the core, so that a packet reaches the layers without touching the host:
/// loading a weak reference, and retaining an object that has some, cost as much as the layers do.
final class HostReceiver: HCIReceiver, @unchecked Sendable {
  // Sendable: the transport and the host use it on their event loop only.
  // Release builds skip the exclusivity checks of these properties: 100 instructions for each packet, and more for a
  // batch. Accesses cannot overlap: the core makes no callbacks, a transport never calls back from inside a call, and
  // only `BluetoothHost.pump` reports effects.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var core: HostCore
  /// The packet that is being sent. Empty between two of them.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var packet = PacketBuffer(capacity: 1100)
  /// The batch being reported; between two batches, memory for the next.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var batch = HostBatch()
  /// Arrival time of the packets being received: the clock is read once for all that come together.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe var arrival: Instant?
  /// A packet other than a value has arrived since the last `pump`.
  private var hasChanged = false
  // The host owns the transport, which owns this.
  weak var host: BluetoothHost?
  private let eventLoop: any EventLoop

  init(_ core: consuming HostCore, on eventLoop: any EventLoop) {
    unsafe self.core = core
    self.eventLoop = eventLoop
  }
  var now: Instant { Instant(nanoseconds: eventLoop.now.uptimeNanoseconds) }

  func received(_ packet: Span<UInt8>) {
    assert(eventLoop.inEventLoop)
    let now = arrival ?? now
    arrival = now
    if unsafe core.receive(packet, now: now) { hasChanged = true }
  }
  func receivedAll() {
    guard let host else { return }
    precondition(eventLoop.inEventLoop, "a transport calls on its event loop")
    let onlyValues = !hasChanged
    hasChanged = false
    // Does the same as `assumeIsolated`, without repeating the check above and without allocating a closure.
    let pump = unsafe unsafeBitCast(
      { (host: isolated BluetoothHost, onlyValues: Bool) in host.pump(onlyValues: onlyValues) }
        as (isolated BluetoothHost, Bool) -> Void,
      to: ((BluetoothHost, Bool) -> Void).self)
    pump(host, onlyValues)
  }
  func writable() { host?.assumeIsolated { $0.pump() } }
  func failed(_ error: TransportError) {
    host?.assumeIsolated { $0.fail(BluetoothError(error)) }
  }
}
