import ATT
import BindruneTransport
import BindruneWire
import DequeModule
import GAP
import GATT
import HCI
import Logging
import NIOCore
import NIOPosix

/// A Bluetooth LE host on one adapter: central and peripheral at once.
///
///     let host = try await BluetoothHost.open("tcp:127.0.0.1:9000")
///     for try await advertisement in host.scan() { print(advertisement) }
///
/// The actor runs on its transport's event loop, so a packet reaches the layers without a hop. Everything that waits ends
/// exactly once: with its answer, with an error, or cancelled with its task. `close` ends a host well; one that is let go
/// without it closes its transport, and its peers see the links time out.
public actor BluetoothHost {
  public nonisolated let transport: any HCITransport
  public nonisolated var unownedExecutor: UnownedSerialExecutor {
    unsafe transport.eventLoop.executor.asUnownedSerialExecutor()
  }
  let logger: Logger
  /// It holds the core.
  private let receiver: HostReceiver
  @inline(__always) var core: HostCore {
    _read { yield unsafe receiver.core }
    _modify { yield unsafe &receiver.core }
  }
  /// Where the host is in its life. `states` reports its changes.
  public private(set) var state = HostState.stopped { didSet { reportState() } }
  var stateReaders: [Mailbox<HostState>] = []
  @inline(__always) var packet: PacketBuffer {
    _read { yield unsafe receiver.packet }
    _modify { yield unsafe &receiver.packet }
  }
  /// Packets were sent whose octets the transport may still hold.
  var isUnflushed = false
  private var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
  private var isPumping = false
  /// `pump` or `pumpLater` was called while `pump` ran.
  private var isPumpAsked = false
  /// `pump` will be called, in a later turn of the event loop.
  private var isPumpDue = false

  // What waits, by what it waits for.
  let starting = Waiters()
  var advertising: [AdvertisingSetID: AdvertisingState] = [:]
  var advertisingTurn = 0
  let closing = Waiters()
  var lastRequest: UInt64 = 0
  var requests: [RequestID: Requester] = [:]
  /// Requests that ended with their link, which has not been told yet.
  var orphans: [RequestID] = []
  var scans: [ScanID: Scan] = [:]
  var linkStates = LinkMap<LinkState>()
  let readers = ReaderCount()
  /// How ports ask to be emptied, and the links of those that have.
  var doorbell: Doorbell?
  var ringing = Deque<LinkID>()
  var incoming: [Mailbox<ServerEvent>] = []
  /// Writes that belong together, until the last of them is told.
  var gathered: [ServerWriteRequest.Write] = []

  /// Is told everything, in order, on the event loop: see `HostObserver`. Whoever is set after `start` has missed what was
  /// before. Not kept alive.
  public weak var observer: (any HostObserver)?
  /// Events that the observer gets before anything that the core reports next.
  var untold = Deque<HostEvent>()

  nonisolated let databaseCache: any DatabaseCache
  /// What is being put into the cache.
  var remembering: Task<Void, Never>?

  /// A host on `transport`; `start` brings it up. `databaseCache`: where it keeps what it discovers of its peers.
  /// `observer`: whom it tells everything from the beginning, see `HostObserver`; it is not kept alive.
  public init(
    _ transport: any HCITransport, configuration: HostConfiguration = HostConfiguration(),
    database: Database = Database(), databaseCache: any DatabaseCache = MemoryDatabaseCache(),
    observer: (any HostObserver)? = nil, logger: Logger = .silent
  ) {
    self.transport = transport
    self.logger = logger
    self.databaseCache = databaseCache
    self.observer = observer
    var chance = SystemRandomNumberGenerator()
    receiver = HostReceiver(
      HostCore(configuration: configuration, database: database, chance: &chance), on: transport.eventLoop)
  }

  /// Opens the controller that `spec` names (`hci0`, `serial:PATH,BAUD`, `tcp:HOST:PORT`, `unix:PATH`, or `sim`: alone on a
  /// radio of its own) and starts a host on it. Where that fails, or the task is cancelled, nothing is left open.
  ///
  /// `takesDown`: an adapter that is up is taken down first, and is up again when the host is closed; see
  /// `TransportSpec.open`. `trace`: the path of a btsnoop file for every packet.
  ///
  /// `eventLoop`: where it runs; nil: on the radio's, or one that NIO chooses. `radio`: the one that `sim` is on, which must
  /// be on that loop. `observer`: whom it tells everything, see `HostObserver`; where the start fails it may hear of that too.
  public static func open(
    _ spec: String, on eventLoop: (any EventLoop)? = nil, radio: SimulatedRadio? = nil, takesDown: Bool = false,
    configuration: HostConfiguration = HostConfiguration(), database: Database = Database(),
    databaseCache: any DatabaseCache = MemoryDatabaseCache(), observer: (any HostObserver)? = nil, trace: String? = nil,
    logger: Logger = .silent
  ) async throws(BluetoothError) -> BluetoothHost {
    let transport: any HCITransport
    do throws(TransportError) {
      let spec = try TransportSpec(spec)
      let loop = eventLoop ?? radio?.eventLoop ?? MultiThreadedEventLoopGroup.singleton.next()
      let radio = radio ?? (spec == .sim ? SimulatedRadio(on: loop) : nil)
      transport = try await spec.open(on: loop, radio: radio, takesDown: takesDown, trace: trace, logger: logger)
    } catch {
      throw Task.isCancelled ? .cancelled : BluetoothError(error)
    }
    let host = BluetoothHost(
      transport, configuration: configuration, database: database, databaseCache: databaseCache, observer: observer,
      logger: logger)
    do throws(BluetoothError) {
      try await host.start()
    } catch {
      await host.close()
      throw error
    }
    return host
  }

  deinit {
    if case .closed = state { return }
    // No caller waits on the host itself, or it would live; what else has waited for its word hears that there is none.
    let (error, transport) = (BluetoothError.closed, transport)
    for link in linkStates.values { link.end(error) }
    for mailbox in incoming { mailbox.finish(error) }
    for mailbox in stateReaders { mailbox.report(.closed(error)) }
    timer?.scheduled.cancel()
    transport.eventLoop.execute { transport.close() }
  }

  // MARK: Beginning and end

  /// Starts the transport and the controller; a second caller waits for the same start. A cancelled task stops waiting, and
  /// the start goes on: call `start` again to wait for it, or `close`.
  public func start() async throws(BluetoothError) {
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
      // Whatever the controller still says of an earlier life is dropped, up to the answer to Reset.
      transport.resynchronise()
      perform { core, now in core.start(now: now) }
      return nil
    }
  }
  func started() {
    guard case .starting = state else { return }
    state = .running
    starting.resume()
  }

  /// Ends scans, advertising and links, so that peers see a disconnection and not a silence, leaves the controller reset,
  /// and closes the transport; what waits ends with `.notStarted`. Takes one second at most, also in a cancelled task, and
  /// the time that the kernel needs to bring up an adapter that was taken down. A second caller waits for the same end.
  ///
  /// Afterwards the controller is free: the same one can be opened again at once.
  public func close() async {
    await end()
    // What it could not put right has been told in `fail`.
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
      perform { core, now in
        for request in ended { core.cancel(request, now: now) }
        for scan in scans { core.stopScan(id: scan, now: now) }
        for id in advertising.keys { core.stopAdvertising(id, now: now) }
        for link in linkStates.keys { core.disconnect(link, now: now) }
      }
      transport.eventLoop.scheduleTask(in: .seconds(1)) { [weak self] in
        self?.assumeIsolated { $0.fail(.closed) }
      }
    }
    // A task of its own: the caller's may be cancelled, and then the links must end all the same.
    let closing = closing
    await Task {
      try? await closing.wait {
        if case .closed = state { .success(()) } else { nil }
      }
    }.value
  }
  func closeIfQuiet() {
    guard case .closing = state, linkStates.isEmpty else { return }
    let reset: [UInt8] = [0x01, 0x03, 0x0C, 0x00]  // HCI_Reset; nobody waits for its answer
    transport.send(reset.span)
    fail(.closed)
  }

  /// The host is of no more use: everything that waits ends with `error`.
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

  /// What the controller has told of itself, its buffers for one; nil until it has started.
  public var controller: ControllerInfo? { core.controller }
  /// The address that peers see: with `HostConfiguration.addressPolicy` a private one, which changes.
  public var ownAddress: PeerAddress { core.ownAddress }
  /// The address by which a peer that has our IRK knows us.
  public var identityAddress: PeerAddress { core.identityAddress }

  /// From now on this device is known by its identity address, whatever private address it uses: in discoveries, in
  /// links, and for `connect`. `irk` is what the device has given, when it was paired; until there is pairing here, the
  /// caller knows it. The controller helps where it has a resolving list; the host knows the device on any controller.
  public func addIdentity(_ identity: PeerAddress, irk: IdentityResolvingKey) throws(BluetoothError) {
    try changeIdentities("add the identity \(identity)") { (core, now) throws(IdentityError) in
      try core.addPeerIdentity(identity, irk, now: now)
    }
  }
  /// The same, as the peer of `link` has told it: it stays the peer that it is, by `Link.peer`, while its address becomes another.
  public func identify(
    _ link: LinkID, as identity: PeerAddress, irk: IdentityResolvingKey
  ) throws(BluetoothError) {
    try changeIdentities("identify \(peerText(link)) as \(identity)") { (core, now) throws(IdentityError) in
      try core.identify(link, as: identity, irk, now: now)
    }
  }
  private func changeIdentities(
    _ operation: @autoclosure () -> String, _ change: (inout HostCore, Instant) throws(IdentityError) -> Void
  ) throws(BluetoothError) {
    let error: IdentityError? = perform { core, now in
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
    perform { core, now in core.removePeerIdentity(identity, now: now) }
  }

  /// The peer with this address: an identity address, a private one that a known key resolves, or any other.
  public func peer(at address: PeerAddress) -> PeerID { core.peer(at: address) }
  /// The peer's identity address, where it is known; else the address by which it became known.
  public func address(of peer: PeerID) -> PeerAddress { core.address(of: peer) }

  // MARK: Driving the core

  var now: Instant { receiver.now }

  /// Does `change` to the core, then everything that follows from it: with an observer in a later turn, so that it is never
  /// called back from within a call of its own.
  func perform<Result>(_ change: (inout HostCore, Instant) -> Result) -> Result {
    receiver.arrival = nil
    let result = change(&core, now)
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
    // Keeps the host: the last words must be told even if nobody else holds it.
    transport.eventLoop.execute {
      self.assumeIsolated { host in
        host.isPumpDue = false
        host.pump()
      }
    }
  }
  /// Sends the core's packets, reports its effects, and arms the timer. `onlyValues`: since the last call the core has received values
  /// and nothing else. They leave nothing to send and change no deadline, unless the observer does something with them.
  func pump(onlyValues: Bool = false) {
    // An effect may lead back here; the outer call goes on.
    if isPumping {
      isPumpAsked = true
      return
    }
    isPumping = true
    defer { isPumping = false }
    receiver.arrival = nil
    if onlyValues, untold.isEmpty {
      isPumpAsked = false
      _ = tellEffects()
      if !isPumpAsked { return }
    }
    var isQuiet: Bool
    repeat {
      isQuiet = true
      if Self.sendPackets(of: &core, in: &packet, to: transport, now: now) { isUnflushed = true }
      if isUnflushed {
        isUnflushed = false
        isQuiet = false
        transport.flush()
      }
      if tellUntold() || tellEffects() { isQuiet = false }
      if isQuiet {
        closeIfQuiet()
        isQuiet = untold.isEmpty
      }
    } while !isQuiet
    armTimer()
  }
  /// Sends what the transport takes now, with one access to the core and to the packet for all; false when that was nothing.
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
  /// Tells all that the core has to say; false when that was nothing.
  private func tellEffects() -> Bool {
    if !core.hasEffect { return false }
    let observer = observer ?? NoObserver.only
    while unsafe core.takeBatch(&receiver.told) { unsafe tell(&receiver.told, to: observer) }
    observer.hostToldAll(self)
    return true
  }
  private func tell(_ batch: inout HostBatch, to observer: any HostObserver) {
    while !batch.isEmpty {
      tellValues(of: &batch, to: observer)
      if let effect = batch.nextEffect(), !isClosed { handle(effect, in: batch) }
    }
  }
  var isClosed: Bool { if case .closed = state { true } else { false } }

  /// One timer. It may go off too early, which costs less than a new one for every packet.
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

/// The transport's end of the host. It holds the core, so that a packet reaches the layers without a look at the host:
/// to load a weak reference and to count one of an object that has weak references cost as much as the layers do.
final class HostReceiver: HCIReceiver, @unchecked Sendable {
  // Sendable: the transport and the host use it on their event loop only.
  // Release builds do not check that no two accesses to one of these overlap, which would cost 100 instructions for each packet
  // and more for a batch: the core calls nobody, a transport never calls from inside a call that it gets, and only `BluetoothHost.pump`
  // tells.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var core: HostCore
  /// The packet that is being sent. Empty between two of them.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var packet = PacketBuffer(capacity: 1100)
  /// What is being told; between two batches, memory for the next.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @unsafe var told = HostBatch()
  /// When the packets came that are being received: one look at the clock for all that come together.
  var arrival: Instant?
  /// Packets other than values have come since the host looked last.
  private var hasChanged = false
  // The host owns the transport, and the transport this.
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
    // What `assumeIsolated` does, without its check, which has just been made, and without the closure that it allocates.
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
