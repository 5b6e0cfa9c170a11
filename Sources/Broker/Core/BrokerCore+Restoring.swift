import BindruneWire

/// # Preserved managers
/// **Overview**: a manager with a restoration identifier outlives the process of its app: its session stays, with
/// everything that it has begun, and the next session of the same identity takes its place. Rows S39 … S72 of the
/// seeds; Decision 0052.
///
/// **Function**: `end` preserves or removes the sessions of an app; `restore` gives a preserved one to a new process.
/// In between the session's links, connection requests, scan, services and advertisement go on, and an event that
/// completes one of these tasks asks for a relaunch. When the adapter stops working, the session's `plan` keeps what
/// was to be done, and the core does it again when the adapter works again.
///
/// **Phases**: live → kept ⇄ planned → live.
enum Preservation: Equatable {
  /// What it has begun goes on. The next process learns of every device of the end of the process before, also of those
  /// whose links have ended meanwhile: their events follow (S66).
  case kept([PreservedManager.Peer])
  /// The adapter does not work. The plan is carried out when it does.
  case planned(PreservedManager)
}

/// What a manager had begun, for the time when nothing of it exists on the adapter: in a file, or while the adapter is
/// off.
struct PreservedManager: Equatable, Sendable {
  struct Peer: Equatable, Sendable {
    var identifier: UUID
    var options: ConnectOptions
    /// The last that was heard.
    var name: String?
  }
  struct Service: Equatable, Sendable {
    /// Where it was published: the services that include it name it by this.
    var handle: AttributeHandle
    var description: ServiceDescription
  }
  var identity: ManagerIdentity
  var scan: RestoredState.Scan?
  var peers: [Peer] = []
  var services: [Service] = []
  var advertisement: RestoredState.Advertisement?

  /// S62: there is nothing to do for it.
  var isIdle: Bool { scan == nil && peers.isEmpty && services.isEmpty && advertisement == nil }
}

extension BrokerCore {
  /// The process of the app has ended: managers with an identifier that had begun something are preserved, the others
  /// are removed. Returns the sessions that remain.
  mutating func end(_ app: AppID, now: Instant) -> [SessionID] {
    self.now = now
    for session in sessions.ids where sessions[session]?.app == app && sessions[session]?.preservation == nil {
      if isWorthKeeping(session) { preserve(session) } else { remove(session, now: now) }
    }
    let kept = preserved(of: app)
    // It is registered again before its next session.
    if kept.isEmpty { apps[app] = nil }
    return kept
  }
  func preserved(of app: AppID) -> [SessionID] {
    sessions.ids.filter { sessions[$0]?.app == app && sessions[$0]?.preservation != nil }
  }
  /// The preserved session of that manager.
  func preserved(_ identity: ManagerIdentity, of app: AppID) -> SessionID? {
    preserved(of: app).first { sessions[$0]?.identity == identity }
  }
  private func isWorthKeeping(_ session: SessionID) -> Bool {
    sessions[session]?.identity?.restoreIdentifier != nil && plan(of: session)?.isIdle == false
  }

  /// An earlier run of the driver has preserved this manager. `add` has made the session.
  mutating func plan(_ manager: PreservedManager, for session: SessionID, now: Instant) {
    self.now = now
    sessions[session]?.preservation = .planned(manager)
    carryOutPlans()
  }
  /// What the session has begun, or is to begin; nil: there is no such session, or it belongs to no manager.
  func plan(of session: SessionID) -> PreservedManager? {
    guard let known = sessions[session], let identity = known.identity else { return nil }
    if case .planned(let plan) = known.preservation { return plan }
    var plan = PreservedManager(identity: identity)
    plan.scan = known.scanned
    plan.peers = known.interests.sorted { $0.key.rawValue < $1.key.rawValue }.compactMap { peer, interest in
      interest.options.map {
        PreservedManager.Peer(
          identifier: identifier(of: peer, for: session), options: $0, name: central.names[peer])
      }
    }
    plan.services = serving.services(of: session).compactMap { handle in
      serving.services[handle].map { PreservedManager.Service(handle: handle, description: $0.description) }
    }
    plan.advertisement = serving.advertising[session].map { RestoredState.Advertisement($0.data) }
    return plan
  }

  // MARK: Preserving

  private mutating func preserve(_ session: SessionID) {
    guard case .running = phase, let plan = plan(of: session) else {
      // Nothing of it is on the adapter.
      if let plan = self.plan(of: session) { sessions[session]?.preservation = .planned(plan) }
      return
    }
    sessions[session]?.preservation = .kept(plan.peers)
    // Nobody waits for the answers any more, and nobody answers.
    for link in central.links.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
      abandonOperations(on: link, of: session)
      abandonChannels(on: link, of: session)
    }
    // Channels are the process's, and no next process could take them.
    endPublications(of: session)
    serving.advertising[session]?.operation = nil
    endRequests(for: session)
    sessions[session]?.ports = []
    put(.takePorts(session))
    log(.info, "manager \(plan.identity.restoreIdentifier ?? "") is preserved")
  }
  /// Called when the adapter stops working, before everything on it ends.
  mutating func planPreserved() {
    for session in sessions.ids {
      guard case .kept = sessions[session]?.preservation else { continue }
      if let plan = plan(of: session) { sessions[session]?.preservation = .planned(plan) }
    }
  }
  /// Called when the adapter works.
  mutating func carryOutPlans() {
    guard case .running = phase else { return }
    for session in sessions.ids {
      guard case .planned(let plan) = sessions[session]?.preservation else { continue }
      sessions[session]?.preservation = .kept(plan.peers)
      carryOut(plan, for: session)
    }
  }
  private mutating func carryOut(_ plan: PreservedManager, for session: SessionID) {
    var handles: [AttributeHandle: AttributeHandle] = [:]
    for service in plan.services {
      // While the adapter is switched off, its services stay.
      if serving.services[service.handle]?.session == session {
        handles[service.handle] = service.handle
        continue
      }
      var description = service.description
      // Included services were published first.
      description.includes = description.includes.compactMap { handles[$0] }
      switch publish(description, of: session) {
      case .success(.published(let published)): handles[service.handle] = published.handle
      case .success: break
      case .failure(let error): log(.error, "a preserved service is not published again: \(error)")
      }
    }
    if let scan = plan.scan {
      sessions[session]?.scanned = scan
      arrangeScans()
    }
    if let advertisement = plan.advertisement, serving.advertising[session] == nil {
      serving.advertisers.append(session)
      serving.advertising[session] = Serving.Advertising(
        data: AdvertisingData(localName: advertisement.localName, serviceUUIDs: advertisement.services))
      arrangeAdvertising()
    }
    for peer in plan.peers {
      if let name = peer.name, let device = self.peer(peer.identifier), central.names[device] == nil {
        _ = central.names.set(name, of: device)
      }
      var options = peer.options
      // It has waited already.
      options.startDelay = 0
      connect(peer.identifier, options, for: session)
    }
  }

  // MARK: Restoring

  /// A new process of the app has the manager. It gets what was preserved, then the adapter's state; the driver
  /// delivers the events that have waited after that (S43, S64): `waiting`. What is restored is the state before them.
  mutating func restore(_ session: SessionID, before waiting: [BrokerEvent] = [], now: Instant) {
    self.now = now
    guard let known = sessions[session], known.preservation != nil else { return }
    let state = restoredState(of: session, before: waiting)
    sessions[session]?.preservation = nil
    sessions[session]?.completed = nil
    if isHeld(session) { put(.hold(session, true)) }
    for (peer, interest) in known.interests.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      guard case .connected = interest, let link = central.reaches[peer]?.link else { continue }
      put(.lendPort(PortName(session: session, kind: .command, peer: identifier(of: peer, for: session)), on: link))
    }
    // The keeper of its events had those that have begun meanwhile.
    sessions[session]?.ports = []
    for (link, client) in serving.clients.sorted(by: { $0.key.rawValue < $1.key.rawValue })
    where client.subscriptions.contains(where: { serving.values[$0]?.session == session }) {
      lendNotificationPort(of: client.peer, on: link, to: session)
    }
    // S65: without anything to restore the state is the first event.
    if !state.isEmpty { deliver(to: session, .restored(state)) }
    deliver(to: session, .adapter(self.state))
    if !links.all.isEmpty { deliver(to: session, linkedPeers(for: session)) }
  }
  private func restoredState(of session: SessionID, before waiting: [BrokerEvent]) -> RestoredState {
    let news = News(waiting)
    var state = RestoredState()
    guard let plan = plan(of: session) else { return state }
    state.scan = plan.scan
    state.advertisement = plan.advertisement
    var peers = plan.peers
    if case .kept(let before) = sessions[session]?.preservation { peers = before }
    state.peers = peers.map {
      restored($0.identifier, isConnecting: news.connections[$0.identifier] == true, for: session)
    }
    state.services = plan.services.compactMap { service in
      // While the adapter does not work nothing is published.
      guard let published = serving.services[service.handle]?.published else { return nil }
      return RestoredState.Published(
        description: service.description, published: published,
        subscriptions: subscriptions(to: published, before: news))
    }
    return state
  }
  private func subscriptions(to service: PublishedService, before news: News) -> [RestoredState.Subscription] {
    service.characteristics.flatMap { characteristic in
      let now = serving.clients.sorted { $0.key.rawValue < $1.key.rawValue }.compactMap { link, client in
        client.subscriptions.contains(characteristic.value)
          ? RestoredState.Subscription(
            central: client.peer, handle: characteristic.value, longestUpdate: longestUpdate(link)) : nil
      }
      let ended = news.subscriptions.filter { !$0.value && $0.key.handle == characteristic.value }.map(\.key.central)
        .filter { central in !now.contains { $0.central == central } }.sorted { $0.uuidString < $1.uuidString }
      return now.filter { news.subscriptions[.init(central: $0.central, handle: $0.handle)] != true }
        + ended.map { .init(central: $0, handle: characteristic.value, longestUpdate: 20) }
    }
  }
  /// What the events that wait for a process tell first of each link and each subscription. True: it begins, so that it
  /// is not of the state before them.
  private struct News {
    struct Subscription: Hashable {
      let central: UUID, handle: AttributeHandle
    }
    private(set) var connections: [UUID: Bool] = [:]
    private(set) var subscriptions: [Subscription: Bool] = [:]
    init(_ events: [BrokerEvent]) {
      for event in events {
        switch event {
        case .connected(let peer, _, _): connections[peer] = connections[peer] ?? true
        case .disconnected(let peer, _, _, _): connections[peer] = connections[peer] ?? false
        case .subscribed(let central, let handle, _): add(central, handle, true)
        case .unsubscribed(let central, let handle): add(central, handle, false)
        default: break
        }
      }
    }
    private mutating func add(_ central: UUID, _ handle: AttributeHandle, _ begins: Bool) {
      let key = Subscription(central: central, handle: handle)
      subscriptions[key] = subscriptions[key] ?? begins
    }
  }
  private func restored(
    _ identifier: UUID, isConnecting: Bool, for session: SessionID
  ) -> RestoredState.Peer {
    var restored = RestoredState.Peer(peer: identifier, name: nil, isConnected: false, longestWrite: 20)
    guard let peer = self.peer(identifier) else { return restored }
    restored.name = central.names[peer]
    guard !isConnecting, case .connected = sessions[session]?.interests[peer],
      let link = central.reaches[peer]?.link, let known = central.links[link]
    else { return restored }
    restored.isConnected = true
    restored.longestWrite = Self.longestWrite(links[link]?.mtu ?? 23)
    if let found = known.found[session] { restored.services = found.tree(in: known, for: session) }
    return restored
  }
}

/// What a session has discovered on a link: the handles of declarations and values.
struct FoundAttributes {
  var services: Set<AttributeHandle> = []
  var includedServices: Set<AttributeHandle> = []
  /// By service. Present: the includes were discovered.
  var includes: [AttributeHandle: Set<AttributeHandle>] = [:]
  /// By service.
  var characteristics: [AttributeHandle: Set<AttributeHandle>] = [:]
  /// Characteristics whose descriptors were discovered.
  var described: Set<AttributeHandle> = []

  func hasFound(service: AttributeHandle) -> Bool { services.contains(service) || includedServices.contains(service) }
  mutating func add(_ answer: BrokerAnswer, to question: PeerOperation.Question) {
    switch (question, answer) {
    case (.services, .services(let found)): services.formUnion(found.map(\.handle))
    case (.includedServices(let service, _), .includedServices(let found)):
      includes[service, default: []].formUnion(found.map(\.handle))
      includedServices.formUnion(found.map(\.handle))
    case (.characteristics(let service, _), .characteristics(let found)):
      characteristics[service, default: []].formUnion(found.map(\.handle))
    case (.descriptors(let characteristic), .descriptors): described.insert(characteristic)
    default: break
    }
  }
  mutating func remove(_ range: HandleRange) {
    services = services.filter { !range.contains($0) }
    includedServices = includedServices.filter { !range.contains($0) }
    includes = includes.filter { !range.contains($0.key) }
    characteristics = characteristics.filter { !range.contains($0.key) }
    described = described.filter { !range.contains($0) }
  }

  fileprivate func tree(in link: CentralLink, for session: SessionID) -> [RestoredState.Service] {
    link.database.services.filter { services.union(includedServices).contains($0.handle) }.map { service in
      RestoredState.Service(
        service: FoundService(service), isDiscovered: services.contains(service.handle),
        includes: includes[service.handle].map { known in
          link.database.includes(of: service).compactMap { FoundService($0, in: link.database) }
            .filter { known.contains($0.handle) }
        },
        characteristics: characteristics[service.handle].map { known in
          link.database.characteristics(of: service).filter { known.contains($0.valueHandle) }.map {
            characteristic($0, link, session)
          }
        })
    }
  }
  private func characteristic(
    _ known: RemoteCharacteristic, _ link: CentralLink, _ session: SessionID
  ) -> RestoredState.Characteristic {
    let isNotifying = link.subscriptions[known.valueHandle]?.readers.contains { $0.session == session } ?? false
    return RestoredState.Characteristic(
      characteristic: FoundCharacteristic(
        handle: known.valueHandle, uuid: known.uuid, properties: known.properties),
      isNotifying: isNotifying,
      descriptors: described.contains(known.valueHandle) ? Array(link.database.descriptors(of: known)) : nil)
  }
}

extension RestoredState.Advertisement {
  fileprivate init(_ data: AdvertisingData) {
    self.init(localName: data.localName, services: data.serviceUUIDs)
  }
}
