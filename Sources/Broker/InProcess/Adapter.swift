import BindruneWire
import FoundationEssentials
import Logging
import NIOCore

/// One controller, and all sessions of this process that use it: the driver of a `BrokerCore` on an event loop, on
/// which the host runs too. It owns the `BluetoothHost`, observes it, and performs the core's effects; sessions get
/// events in the order in which they happened on the air. Events pass through no task; tasks only open and close the
/// host.
///
/// `AdapterRegistry` keeps it until the last session is closed and the host is closed after it.
final class Adapter: HostObserver, @unchecked Sendable {
  // Sendable: everything is on the event loop.

  let eventLoop: any EventLoop
  /// Opens the controller, for each attempt.
  private let open: @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport
  private let logger: Logger
  /// Answers for the user when a device pairs.
  private let agent: any PairingAgent
  /// Nil: bonds end with the host.
  private let bondStore: (any BondStore)?
  /// The registry that keeps it; nil: its creator keeps it.
  let registration: AdapterRegistry.Registration?
  /// Called, on the event loop, with what apps need that do not run.
  private var need: @Sendable (AppID, AppNeed) -> Void = { _, _ in }

  private(set) var core: BrokerCore
  // As for `gathered`.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var sessions: [SessionID: AdapterSession] = [:]
  /// The running host.
  private(set) var host: BluetoothHost?
  private var timer: (deadline: Instant, scheduled: Scheduled<Void>)?
  private var isDraining = false
  /// Calls to make when the host is closed.
  private var whenClosed: [@Sendable () -> Void] = []
  /// Channels that the core has not given to a session yet.
  private var arrived: [ArrivedChannel: SessionChannel] = [:]
  private var lastArrived: UInt64 = 0
  /// Where the request that is being carried out stands among its session's values.
  private var place: SendPort.Fence?

  /// Values of one characteristic that have come one after another, and who gets them.
  private struct Gathered {
    /// Nil: the next value is looked up.
    private(set) var link: LinkID?
    private var handle = AttributeHandle()
    /// One session may have two names for the peer.
    private var readers: [(session: AdapterSession, peer: UUID)] = []
    private var values = BrokerValues()

    /// False: the value is of another characteristic.
    mutating func append(_ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID) -> Bool {
      guard self.link == link, self.handle == handle else { return false }
      if !readers.isEmpty { values.append(value) }
      return true
    }
    mutating func begin(_ handle: AttributeHandle, on link: LinkID, _ readers: [(AdapterSession, UUID)]) {
      handOver()
      (self.link, self.handle, self.readers) = (link, handle, readers)
    }
    mutating func handOver() {
      if values.isEmpty { return }
      for (session, peer) in readers { session.deliver(values, of: handle, from: peer) }
      values = BrokerValues(asLongAs: values)
    }
    mutating func end() {
      handOver()
      link = nil
      readers = []
    }
  }
  // Release builds do not check that no two accesses to it overlap (120 instructions for each value): all are on the
  // event loop, and none calls anything but sessions, which call nobody.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var gathered = Gathered()

  init(
    on eventLoop: any EventLoop, patience: AdapterPatience = AdapterPatience(), logger: Logger = .adapter,
    agent: any PairingAgent = JustWorksAgent(), bondStore: (any BondStore)? = nil,
    registration: AdapterRegistry.Registration? = nil,
    open: @escaping @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport
  ) {
    self.eventLoop = eventLoop
    self.logger = logger
    self.agent = agent
    self.bondStore = bondStore
    self.registration = registration
    self.open = open
    core = BrokerCore(patience: patience)
  }

  // MARK: Sessions

  /// From any thread.
  func add(_ session: AdapterSession, of app: AppID = .own, as identity: ManagerIdentity? = nil) {
    eventLoop.execute { [self] in
      if let identity, let id = core.preserved(identity, of: app) { return restore(id, as: session) }
      sessions[session.id] = session
      core.add(session.id, of: app, as: identity, now: now)
      drain()
    }
  }
  /// The session takes the place of a preserved one, and gets the events that have waited there.
  private func restore(_ id: SessionID, as session: AdapterSession) {
    let waiting = (sessions[id]?.takeRemaining() ?? []).filter(\.outlivesProcess)
    registration?.leave()
    session.replace(id)
    sessions[id] = session
    core.restore(id, before: waiting, now: now)
    drain()
    for event in waiting { session.deliver(event) }
  }
  /// The process of the app has ended. Calls `done` with whether a manager was preserved. From any thread.
  func end(_ app: AppID, _ done: @escaping @Sendable (Bool) -> Void = { _ in }) {
    eventLoop.execute { [self] in
      let kept = core.end(app, now: now)
      for (id, session) in sessions where !core.isKnown(id) {
        _ = session.close()
        session.endChannels()
        sessions[id] = nil
        registration?.leave()
      }
      for id in kept { keepEvents(of: id) }
      drain()
      done(!kept.isEmpty)
    }
  }
  /// Events of a preserved session wait for the next process.
  private func keepEvents(of id: SessionID) {
    let keeper = AdapterSession(on: eventLoop, events: EventQueue())
    keeper.replace(id)
    keeper.hold(true)
    // They are the process's.
    sessions[id]?.endChannels()
    let left = sessions[id]?.takeRemaining() ?? []
    for event in left { keeper.deliver(event) }
    core.consider(left: left, for: id)
    sessions[id] = keeper
  }
  /// What is preserved for the app: for its record. From any thread.
  func preserved(of app: AppID) -> EventLoopFuture<[PreservedManager]> {
    eventLoop.submit { [self] in core.preserved(of: app).compactMap { core.plan(of: $0) } }
  }
  /// A manager that an earlier run of the daemon has preserved. `register` has named the app. From any thread.
  func plan(_ manager: PreservedManager, of app: AppID) {
    eventLoop.execute { [self] in
      let session = AdapterSession(on: eventLoop, events: EventQueue())
      session.hold(true)
      sessions[session.id] = session
      core.add(session.id, of: app, as: manager.identity, now: now)
      core.plan(manager, for: session.id, now: now)
      drain()
    }
  }
  /// What is preserved of the manager ends. From any thread.
  func drop(_ identity: ManagerIdentity, of app: AppID) {
    eventLoop.execute { [self] in
      guard let id = core.preserved(identity, of: app) else { return }
      _ = sessions[id]?.close()
      sessions[id] = nil
      registration?.leave()
      core.remove(id, now: now)
      drain()
    }
  }
  /// For counters. From any thread.
  var counts: EventLoopFuture<AdapterCounts> {
    eventLoop.submit { [self] in
      AdapterCounts(isOn: core.state == .poweredOn, sessions: sessions.count, links: core.links.all.count)
    }
  }
  /// From any thread.
  func whenAppNeeds(_ need: @escaping @Sendable (AppID, AppNeed) -> Void) { eventLoop.execute { self.need = need } }
  /// Before the first session of the app. From any thread.
  func register(_ app: AppID, _ modes: Set<BackgroundMode>, _ life: AppLife = .foreground) {
    eventLoop.execute {
      self.core.register(app, modes, life, now: self.now)
      self.drain()
    }
  }
  /// The app's life has changed. From any thread.
  func move(_ app: AppID, to life: AppLife) {
    eventLoop.execute {
      self.core.move(app, to: life, now: self.now)
      self.drain()
    }
  }
  /// What the session has asked for since the last time.
  func drain(_ session: AdapterSession) {
    // Not those of a process that has ended.
    guard sessions[session.id] === session else { return }
    for placed in session.takeRequests() {
      place = placed.place
      let host = host, isOutermost = host?.assumeIsolated { $0.beginCall(placed.request.call) }
      core.request(placed.request, of: session.id, now: now)
      drain()
      if let isOutermost { host?.assumeIsolated { $0.endCall(isOutermost) } }
      place = nil
    }
  }
  func closed(_ session: AdapterSession) {
    guard sessions[session.id] === session else { return }
    sessions[session.id] = nil
    session.endChannels()
    registration?.leave()
    core.remove(session.id, now: now)
    drain()
  }

  /// Closes all sessions because the process ends: no event reaches an application after that. Then calls `done`. From
  /// any thread.
  func silence(_ done: @escaping @Sendable () -> Void) {
    eventLoop.execute { [self] in
      for session in sessions.values { _ = session.close() }
      done()
    }
  }
  /// Ends all sessions without events, and calls `done` when the host is closed. From any thread.
  func shutDown(_ done: @escaping @Sendable () -> Void) {
    eventLoop.execute { [self] in
      for session in sessions.values {
        _ = session.close()
        closed(session)
      }
      guard case .closing = core.phase else { return done() }
      whenClosed.append(done)
    }
  }

  // MARK: Driving the core

  private var now: Instant { Instant(nanoseconds: eventLoop.now.uptimeNanoseconds) }

  /// Performs the core's effects, also those that follow from performing one.
  private func drain() {
    // Who gets values may change.
    if gathered.link != nil { gathered.end() }
    guard !isDraining else { return }
    isDraining = true
    while let effect = core.nextEffect() { perform(effect) }
    isDraining = false
    // The core has no use for those that are left: they close.
    arrived = [:]
    armTimer()
  }
  private func receive(_ event: BrokerHostEvent) {
    core.receive(event, now: now)
    drain()
  }
  /// One timer. It may fire too early, which costs less than a new timer for every event.
  private func armTimer() {
    guard let deadline = core.deadline else { return }
    if let timer {
      if timer.deadline <= deadline { return }
      timer.scheduled.cancel()
    }
    let scheduled = eventLoop.scheduleTask(deadline: .uptimeNanoseconds(deadline.nanoseconds)) { [weak self] in
      guard let self else { return }
      timer = nil
      core.expire(now: now)
      drain()
    }
    timer = (deadline, scheduled)
  }

  private func perform(_ effect: BrokerEffect) {
    switch effect {
    case .open(let database): openHost(database)
    case .close: closeHost()
    case .retire: registration?.end()
    case .host(let command): host?.assumeIsolated { perform(command, $0) }
    case .deliver(let id, let event): sessions[id]?.deliver(event.dated(Date().timeIntervalSinceReferenceDate))
    case .lendPort(let name, let link): host?.assumeIsolated { lendPort(name, link, $0) }
    case .takePort(let name): sessions[name.session]?.setPort(nil, name.kind, of: name.peer)
    case .takePorts(let id): sessions[id]?.removePorts()
    case .lendChannel(let number, let id, let use): lend(number, to: id, use)
    case .dropChannel(let number): arrived[number] = nil
    case .endChannels(let id, let peer): sessions[id]?.endChannels(with: peer)
    // An event that woke the app and was not taken until it stopped again wakes it once more.
    case .hold(let id, let isHeld): core.consider(left: sessions[id]?.hold(isHeld) ?? [], for: id)
    case .wake(let app, let why): need(app, .run(why))
    case .alert(let app, let alert): need(app, .alert(alert))
    case .log(let level, let text): logger.log(level: level, "\(text)")
    }
  }
  private func perform(_ command: HostCommand, _ host: isolated BluetoothHost) {
    switch command {
    case .begin(let id, let operation, let isPlaced): host.begin(operation, as: id, after: isPlaced ? place : nil)
    case .cancel(let id): host.cancel(id)
    case .beginScan(let id, let parameters, let filter):
      do throws(BluetoothError) { try host.beginScan(parameters, filter, as: id) } catch {
        receive(.scanFailed(id, error))
      }
    case .endScan(let id): host.endScan(id)
    case .advertise(let set, let sources, let parameters):
      do throws(BluetoothError) {
        let packed = try host.beginAdvertising(sources, parameters, as: set)
        logger.debug(
          "advertises \(packed.advertising.count) structures, and \(packed.scanResponse.count) in scan responses")
      } catch {
        receive(.advertisingEnded(set, error))
      }
    case .stopAdvertising(let set): host.stopAdvertising(set)
    case .insert(let services): attempt(.error) { () throws(BluetoothError) in try host.insert(services) }
    case .remove(let service):
      attempt(.error) { () throws(BluetoothError) in try host.remove(service: service, andIncludes: true) }
    case .setValue(let handle, let value): host.setValue(Array(value), of: handle)
    case .setEnabled(let isEnabled, let service): host.setEnabled(isEnabled, service: service)
    case .listen(let id, let isEncrypted):
      let result: Result<UInt16, BluetoothError>
      do throws(BluetoothError) {
        let psm = try host.beginListening(
          security: isEncrypted ? .encrypted : .none, mtu: BrokerCore.longestSDU, capacity: BrokerCore.octetsToSend
        ) { [weak self] channel in
          guard let self else { return }
          receive(.channelAccepted(keep(channel), psm: channel.psm.rawValue, channel.link.id))
        }
        result = .success(psm.rawValue)
      } catch { result = .failure(error) }
      receive(.listening(id, result))
    case .stopListening(let psm): host.endListening(SPSM(rawValue: psm))
    case .answer(let id, let link, .value(let value)):
      attempt(.warning) { () throws(BluetoothError) in
        try host.respond(to: id, on: link, withRest: Array(value), after: place)
      }
    case .answer(let id, let link, .written):
      attempt(.warning) { () throws(BluetoothError) in try host.accept(id, on: link, after: place) }
    case .answer(let id, let link, .rejected(let error, let handle)):
      attempt(.debug) { () throws(BluetoothError) in
        try host.reject(id, on: link, error, about: handle, after: place)
      }
    }
  }
  private func attempt(_ level: Logger.Level, _ body: () throws(BluetoothError) -> Void) {
    do throws(BluetoothError) { try body() } catch { logger.log(level: level, "\(error)") }
  }
  /// Until the core gives it to a session, at the end of this turn at the latest.
  private func keep(_ channel: LinkChannel) -> ArrivedChannel {
    lastArrived += 1
    let number = ArrivedChannel(rawValue: lastArrived)
    arrived[number] = SessionChannel(channel, on: eventLoop)
    return number
  }
  private func lend(_ number: ArrivedChannel, to id: SessionID, _ use: ChannelUse) {
    guard let channel = arrived.removeValue(forKey: number), let session = sessions[id] else { return }
    let event: BrokerEvent
    switch use {
    case .opened(let operation, let peer):
      session.add(channel, with: peer)
      event = .completed(operation, .success(.channel(channel)))
    case .accepted(let central, let longestUpdate):
      session.add(channel, with: central)
      event = .channelAccepted(channel, central: central, longestUpdate: longestUpdate)
    }
    session.deliver(event)
    core.consider(event, for: id)
  }
  private func lendPort(_ name: PortName, _ link: LinkID, _ host: isolated BluetoothHost) {
    guard let session = sessions[name.session] else { return }
    let peer = name.peer
    // Nil if the link is down; the event of its end follows.
    let call: StaticString =
      name.kind == .command ? "writeValue(_:for:type:)" : "updateValue(_:for:onSubscribedCentrals:)"
    // Programs complete a write, or send the next, when the port is ready, also after writes that were accepted. For
    // values of a peripheral they rely on the edge after a refusal alone.
    let port = try? host.sendPort(
      name.kind, on: link, capacity: 16 * 1024, call: call, tellsDrained: name.kind == .command
    ) { [weak session] in
      session?.deliver(name.kind == .command ? .readyToWrite(peer) : .readyToUpdate(peer))
    }
    session.setPort(port, name.kind, of: peer)
  }

  // MARK: Opening and closing the host

  private func openHost(_ database: Database) {
    Task { [eventLoop] in
      let result: Result<BluetoothHost, OpeningFailure>
      do throws(OpeningFailure) {
        result = .success(try await makeHost(database))
      } catch {
        result = .failure(error)
      }
      eventLoop.execute {
        switch result {
        case .success(let host):
          self.host = host
          self.receive(.opened(advertisingSets: host.assumeIsolated { $0.maximumAdvertisingSets }))
        case .failure(let failure): self.receive(.openingFailed(failure))
        }
      }
    }
  }
  private func makeHost(_ database: Database) async throws(OpeningFailure) -> BluetoothHost {
    let transport: any HCITransport
    do throws(TransportError) { transport = try await open(eventLoop) } catch { throw OpeningFailure(error) }
    guard transport.eventLoop === eventLoop else {
      transport.eventLoop.execute { transport.close() }
      let why = "The controller that was provided is on another event loop: open it on the one that is given."
      throw OpeningFailure(state: .unsupported(why), isFinal: true)
    }
    let host = BluetoothHost(
      transport, database: database, agent: agent, bondStore: bondStore, observer: self, logger: logger)
    do throws(BluetoothError) {
      try await host.start()
      return host
    } catch {
      await host.close()
      throw OpeningFailure(state: .unsupported(error.diagnostics))
    }
  }
  private func closeHost() {
    guard let host else { return }
    self.host = nil
    Task { [eventLoop] in
      await host.close()
      eventLoop.execute {
        let whenClosed = self.whenClosed
        self.whenClosed = []
        for done in whenClosed { done() }
        self.receive(.closed)
      }
    }
  }

  // MARK: What the host tells

  func host(_ host: isolated BluetoothHost, did event: HostEvent) {
    // Before it is known to run, only its failure matters; of one that is being closed nothing does.
    guard host === self.host else {
      if case .opening = core.phase, case .failed(let error) = event { receive(.failed(error)) }
      return
    }
    if case .completed(let id, .success(.channel(let channel))) = event {
      return receive(.completed(id, .success(.channel(keep(channel)))))
    }
    if let event = BrokerHostEvent(event, host) { receive(event) }
  }
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {
    if gathered.append(value, of: handle, on: link) { return }
    let readers = core.readers(of: handle, on: link).compactMap { reader in
      sessions[reader.session].map { ($0, reader.peer) }
    }
    gathered.begin(handle, on: link, readers)
    _ = gathered.append(value, of: handle, on: link)
  }
  func hostReportedBatch(_ host: isolated BluetoothHost) {
    gathered.handOver()
    for session in sessions.values {
      session.handOver()
      let held = session.takeHeldValues()
      if held.isEmpty { continue }
      for (peer, count) in held { core.considerValues(count, from: peer, for: session.id, now: now) }
      drain()
    }
  }
}

/// What an app needs that does not run.
enum AppNeed: Equatable, Sendable {
  /// To run, for this event.
  case run(String)
  case alert(AppAlert)
}

extension BrokerEvent {
  /// It concerns the manager, and not something that an ended process has asked.
  var outlivesProcess: Bool {
    switch self {
    case .adapter, .restored, .linkedPeers, .completed, .readyToWrite, .readyToUpdate, .requestEnded, .scanFailed,
      .channelAccepted:
      false
    default: true
    }
  }
  /// The core, which has no clock, leaves the time of day to its driver.
  fileprivate func dated(_ seconds: @autoclosure () -> Double) -> BrokerEvent {
    guard case .disconnected(let peer, let error, let isReconnecting, _) = self else { return self }
    return .disconnected(peer, error, isReconnecting: isReconnecting, seconds: seconds())
  }
}

extension BrokerHostEvent {
  /// Nil: nothing that concerns the core.
  fileprivate init?(_ event: HostEvent, _ host: isolated BluetoothHost) {
    switch event {
    case .server(let event): self.init(event, host)
    case .servicesChanged(let link, let range):
      self = .servicesChanged(link, range, host.remoteDatabase(of: link) ?? RemoteDatabase())
    case .rediscovered(let link, let database): self = .rediscovered(link, database)
    case .peerIdentified(let link, let address): self = .peerIdentified(link, address)
    case .mtuChanged(let link, let mtu): self = .mtuChanged(link, mtu)
    case .discovered(let scan, let advertisement):
      let seconds = Date().timeIntervalSinceReferenceDate
      self = .discovered(scan, advertisement.peer, DiscoveredPeer(advertisement, seconds: seconds))
    case .scanFailed(let scan, let error): self = .scanFailed(scan, error)
    case .advertisingStarted(let set): self = .advertisingStarted(set)
    case .advertisingFailed(let set, let error): self = .advertisingEnded(set, error)
    case .completed(let id, let result): self = .completed(id, result.map { HostAnswer($0) })
    case .running, .indicationConfirmed, .parametersChanged, .dataLengthChanged, .physChanged, .bearersChanged,
      .securityChanged, .pairingAsked, .pairingEnded:
      return nil
    case .encryptionFailed(let link, let status):
      // A new key that the controller has refused to use: the link is encrypted as before.
      if host.security(of: link).isEncrypted { return nil }
      self = .encryptionFailed(link, status)
    case .failed(let error): self = .failed(error)
    }
  }
  private init?(_ event: ServerEvent, _ host: isolated BluetoothHost) {
    switch event {
    case .connected(let link):
      self = .linkUp(link.id, link.peer, link.role, mtu: host.mtu(of: link.id) ?? 23)
    case .disconnected(let link, let reason): self = .linkDown(link, reason)
    case .subscriptionChanged(let link, let handle, let configuration):
      self = .subscriptionChanged(link, handle, configuration)
    case .written(let link, let handle, let value, let offset):
      self = .written(link, ServerWrite(handle: handle, offset: offset, value: Data(value)))
    case .readRequested(let request):
      self = .readRequested(request.id, request.link, request.handle, offset: request.offset)
    case .writeRequested(let request):
      let writes = request.writes.map { ServerWrite(handle: $0.handle, offset: $0.offset, value: Data($0.value)) }
      self = .writeRequested(request.id, request.link, writes)
    case .requestUnanswered(let link, _): self = .requestUnanswered(link)
    case .advertisingStopped(let set, let end):
      self = .advertisingEnded(set, BluetoothError(.controller, "Advertising has ended by itself: \(end)."))
    }
  }
}
extension HostAnswer {
  fileprivate init(_ outcome: HostOutcome) {
    switch outcome {
    case .linked(let link): self = .linked(link.peer)
    case .rssi(let rssi): self = .rssi(rssi)
    case .value(let value): self = .value(value)
    case .database(let database): self = .database(database)
    // The core asks for none of these values; the adapter keeps channels.
    case .done, .parameters, .phys, .features, .security, .databaseHash, .values, .channel: self = .done
    }
  }
}
extension DiscoveredPeer {
  fileprivate init(_ advertisement: Advertisement, seconds: Double) {
    let data = advertisement.data
    self.init(
      peer: UUID(advertisement.peer), rssi: advertisement.rssi.map(Int.init),
      isConnectable: advertisement.isConnectable,
      localName: data.localName, manufacturerData: data.manufacturerData.map { Data($0) },
      services: data.serviceUUIDs, overflowServices: advertisement.matchedOverflow,
      solicitedServices: data.solicitedServiceUUIDs,
      serviceData: Dictionary(data.serviceData.map { ($0.uuid, Data($0.data)) }) { first, _ in first },
      txPower: data.txPowerLevel.map(Int.init), seconds: seconds)
  }
}

/// What an adapter does now.
struct AdapterCounts: Sendable {
  var isOn: Bool
  var sessions: Int
  var links: Int
}
