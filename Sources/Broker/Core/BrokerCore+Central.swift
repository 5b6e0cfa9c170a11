import BindruneWire

/// The state of the central's half.
struct Central {
  /// Devices that a session wants, or that are linked.
  var reaches: [PeerID: Reach] = [:]
  /// Peers of the host's pending connect requests.
  var connects: [RequestID: PeerID] = [:]
  /// For each wanted device, how many connection requests in a row it has not received.
  var unheard: [PeerID: Int] = [:]
  var disconnects: [RequestID: LinkID] = [:]
  var links: [LinkID: CentralLink] = [:]
  /// By the number of their first request.
  var operations: [RequestID: PeerOperation] = [:]
  /// From each pending request to the first request of its operation.
  var parts: [RequestID: RequestID] = [:]
  /// Subscriptions that begin or end.
  var configurations: [RequestID: (link: LinkID, handle: AttributeHandle)] = [:]
  var scans: [ScanID: SessionID] = [:]
  var names = PeerNames()
  /// Former identifiers of devices that have been identified since.
  var aliases = PeerAliases()
}

/// What is known of a link in the role of the server's client.
struct CentralLink {
  let peer: PeerID
  var subscriptions: [AttributeHandle: NotifyState] = [:]
  /// The adapter's own next request, for times without requests of sessions.
  var errand = Errand.serviceChanged
  var errandRequest: RequestID?
  /// The primary services that sessions have discovered.
  var services: [BluetoothUUID] = []
  /// Everything that has been discovered.
  var database = RemoteDatabase()
  /// By session.
  var found: [SessionID: FoundAttributes] = [:]
  /// The device has lost the key of the bond, or does not encrypt in time: the reason for the end of the link.
  var encryptionError: BluetoothError?

  init(_ peer: PeerID) { self.peer = peer }

  /// The session has found the characteristic's value or the descriptor by its own discovery.
  func hasFound(_ handle: AttributeHandle, by session: SessionID) -> Bool {
    guard let found = found[session] else { return false }
    if found.characteristics.values.contains(where: { $0.contains(handle) }) { return true }
    return found.described.contains {
      database.characteristic(valueHandle: $0)?.descriptorRange?.contains(handle) == true
    } && database.descriptor(at: handle) != nil
  }
}

/// Former identifiers of devices. Bounded, because devices that reveal one identity after another would add to them for
/// ever: an app that has kept the oldest identifier does not reach its device by it any more.
struct PeerAliases {
  private var peers: [PeerID: PeerID] = [:]
  private var order: [PeerID] = []
  static var capacity: Int { 1024 }
  var count: Int { peers.count }

  subscript(_ alias: PeerID) -> PeerID? { peers[alias] }
  /// `other` and its aliases lead to `peer` from now on. Of too many aliases the oldest of a device that nobody needs
  /// goes.
  mutating func merge(_ other: PeerID, into peer: PeerID, isNeeded: (PeerID) -> Bool) {
    for (alias, known) in peers where known == other { peers[alias] = peer }
    remove(peer)
    if peers.updateValue(peer, forKey: other) == nil { order.append(other) }
    if peers.count <= Self.capacity { return }
    remove(order.first { alias in peers[alias].map { !isNeeded($0) } ?? true } ?? order[0])
  }
  /// The host has named this peer, so that it is no alias: its former device is forgotten, or has another identity.
  mutating func remove(_ alias: PeerID) {
    if peers.removeValue(forKey: alias) != nil { order.removeAll { $0 == alias } }
  }
}

/// Names of devices: those in advertisements, and those of their GAP services.
struct PeerNames {
  private var names: [PeerID: String] = [:]
  /// Those whose name is that of the GAP service: an advertisement's, which may be shortened, does not replace it.
  private var read: Set<PeerID> = []
  private var order: [PeerID] = []
  private static var capacity: Int { 1024 }

  subscript(_ peer: PeerID) -> String? { names[peer] }
  /// A name of the GAP service. True if the name has changed.
  mutating func setRead(_ name: String, of peer: PeerID) -> Bool {
    defer { read.insert(peer) }
    return change(name, of: peer)
  }
  /// A name of an advertisement. True if the name has changed.
  mutating func set(_ name: String, of peer: PeerID) -> Bool {
    !read.contains(peer) && change(name, of: peer)
  }
  /// What is known of `other` is known of `peer`, unless more is.
  mutating func merge(_ other: PeerID, into peer: PeerID) {
    guard let name = names[other], names[peer] == nil || read.contains(other) && !read.contains(peer) else { return }
    _ = read.contains(other) ? setRead(name, of: peer) : set(name, of: peer)
  }
  private mutating func change(_ name: String, of peer: PeerID) -> Bool {
    guard let before = names.updateValue(name, forKey: peer) else {
      order.append(peer)
      if order.count > Self.capacity {
        let oldest = order.removeFirst()
        names[oldest] = nil
        read.remove(oldest)
      }
      return true
    }
    return before != name
  }
}

extension BrokerCore {
  mutating func perform(_ request: BrokerRequest.Central, of session: SessionID) {
    switch request {
    case .scan(let services, let solicited, let allowsDuplicates):
      scan(services, solicited, allowsDuplicates: allowsDuplicates, for: session)
    case .stopScan: stopScan(of: session)
    case .connect(let peer, let options): connect(peer, options, for: session)
    case .cancelConnection(let peer): cancelConnection(peer, for: session)
    case .readRSSI(let id, let peer): ask(.rssi, id, peer, session) { [.readRSSI($0)] }
    case .discoverServices(let id, let peer, let wanted): discoverServices(wanted, id, peer, session)
    case .discoverIncludedServices(let id, let peer, let service, let wanted):
      discover(in: service, .includedServices(service, wanted), id, peer, session) {
        .discoverIncludedServices($0, $1.range)
      }
    case .discoverCharacteristics(let id, let peer, let service, let wanted):
      discover(in: service, .characteristics(service, wanted), id, peer, session) {
        .discoverCharacteristics($0, $1.range)
      }
    case .discoverDescriptors(let id, let peer, let characteristic):
      discoverDescriptors(of: characteristic, id, peer, session)
    case .read(let id, let peer, let handle):
      guard link(with: handle, of: peer, for: session, id) != nil else { return }
      ask(.read, id, peer, session) { [.read($0, handle)] }
    case .write(let id, let peer, let handle, let value):
      guard let link = link(with: handle, of: peer, for: session, id) else { return }
      if let shared = central.links[link]?.shared(at: handle) {
        return complete(id, of: session, .failure(.sharedConfiguration(shared)))
      }
      ask(.write, id, peer, session) { [.write($0, handle, [UInt8](value))] }
    case .setNotifying(let id, let peer, let handle, let isOn):
      guard link(with: handle, of: peer, for: session, id) != nil else { return }
      setNotifying(isOn, handle, id, peer, session)
    case .openChannel(let id, let peer, let psm): openChannel(SPSM(rawValue: psm), id, peer, session)
    }
  }
  /// The adapter is not powered on, so every request fails.
  mutating func refuse(_ request: BrokerRequest.Central, of session: SessionID) {
    switch request {
    case .scan: deliver(to: session, .scanFailed(notReady))
    case .connect(let peer, _): deliver(to: session, .connectionFailed(peer, notReady))
    case .readRSSI(let id, _), .discoverServices(let id, _, _), .discoverIncludedServices(let id, _, _, _),
      .discoverCharacteristics(let id, _, _, _), .discoverDescriptors(let id, _, _), .read(let id, _, _),
      .write(let id, _, _, _), .setNotifying(let id, _, _, _), .openChannel(let id, _, _):
      complete(id, of: session, .failure(notReady))
    case .stopScan, .cancelConnection: break
    }
  }

  /// The session has been closed: everything ends that no other session uses.
  mutating func endCentral(of session: SessionID) {
    stopScan(of: session)
    let peers = (sessions[session]?.interests ?? [:]).keys
    for peer in peers.sorted(by: { $0.rawValue < $1.rawValue }) {
      cancelConnection(identifier(of: peer, for: session), for: session)
    }
  }
  /// The host is gone, with all links, scans and requests.
  mutating func forgetCentral() {
    timers.cancelAll {
      switch $0 {
      case .retry, .establish, .delay: true
      case .steady, .reopen: false
      }
    }
    for session in sessions.ids {
      sessions[session]?.interests = [:]
      sessions[session]?.scanned = nil
      sessions[session]?.scans = []
      sessions[session]?.scanParameters = nil
    }
    let names = central.names
    central = Central()
    central.names = names
  }

  mutating func completed(_ id: RequestID, _ result: Result<HostAnswer, BluetoothError>) {
    if let peer = central.connects.removeValue(forKey: id) {
      connectEnded(id, peer, result)
    } else if let link = central.disconnects.removeValue(forKey: id) {
      disconnectEnded(link, result)
    } else if let (link, handle) = central.configurations.removeValue(forKey: id) {
      configured(handle, on: link, result)
      continueErrand(link)
    } else if let operation = central.parts.removeValue(forKey: id) {
      answered(operation, result)
    } else if let link = serving.updates.removeValue(forKey: id) {
      updateCompleted(link, result)
    } else if !channelOpened(id, result) {
      errandEnded(id, result)
    }
  }

  // MARK: Scans

  private mutating func scan(
    _ services: [BluetoothUUID], _ solicited: [BluetoothUUID], allowsDuplicates: Bool, for session: SessionID
  ) {
    endScans(of: session)
    sessions[session]?.scanned = RestoredState.Scan(
      services: services, solicitedServices: solicited, allowsDuplicates: allowsDuplicates)
    arrangeScans()
  }
  mutating func stopScan(of session: SessionID) {
    sessions[session]?.scanned = nil
    endScans(of: session)
    arrangeScans()
  }
  mutating func scanFailed(_ id: ScanID, _ error: BluetoothError) {
    guard let session = central.scans[id] else { return }
    stopScan(of: session)
    deliver(to: session, .scanFailed(error))
  }
  /// Makes the host scan as the sessions want and the lives of their apps allow.
  mutating func arrangeScans() {
    guard case .running = phase else { return }
    let isForeground = sessions.ids.contains { sessions[$0]?.scanned != nil && permission(.central, of: $0) == .full }
    for session in sessions.ids {
      let parameters = scanParameters(of: session, isForeground: isForeground)
      guard let known = sessions[session], known.scanParameters != parameters else { continue }
      endScans(of: session)
      if let parameters, let wish = known.scanned { begin(wish, parameters, for: session) }
    }
  }
  /// Nil: the session does not scan now. `isForeground`: an app in the foreground scans.
  private func scanParameters(of session: SessionID, isForeground: Bool) -> ScanParameters? {
    guard let wish = sessions[session]?.scanned else { return nil }
    switch permission(.central, of: session) {
    case .full: return ScanParameters(coalescesDuplicates: !wish.allowsDuplicates)
    // For named services only, each device once (S25, S26), and rarely if nobody in the foreground scans (S27).
    case .inBackground:
      if wish.services.isEmpty { return nil }
      return ScanParameters(intent: isForeground ? .fast : .background, coalescesDuplicates: true)
    case .none: return nil
    }
  }
  /// One scan of the host, which filters and coalesces. Two for services and solicited services, because a filter of
  /// the host requires all of its criteria.
  private mutating func begin(_ wish: RestoredState.Scan, _ parameters: ScanParameters, for session: SessionID) {
    var filters = [ScanFilter(services: wish.services)]
    if !wish.services.isEmpty, !wish.solicitedServices.isEmpty {
      filters.append(ScanFilter(solicitedServices: wish.solicitedServices))
    }
    sessions[session]?.scanParameters = parameters
    for filter in filters {
      let id = ScanID(rawValue: newNumber())
      sessions[session]?.scans.append(id)
      central.scans[id] = session
      command(.beginScan(id, parameters, filter))
    }
  }
  private mutating func endScans(of session: SessionID) {
    for id in sessions[session]?.scans ?? [] {
      central.scans[id] = nil
      command(.endScan(id))
    }
    sessions[session]?.scans = []
    sessions[session]?.scanParameters = nil
  }
  mutating func discovered(_ found: DiscoveredPeer, _ peer: PeerID, by id: ScanID) {
    guard let session = central.scans[id], let scanning = sessions[session] else { return }
    central.aliases.remove(peer)
    // The first scan reports these.
    if id != scanning.scans.first,
      !found.overflowServices.isEmpty
        || found.services.contains(where: { scanning.scanned?.services.contains($0) == true })
    {
      return
    }
    if let name = found.localName, !name.isEmpty { _ = central.names.set(name, of: peer) }
    var found = found
    found.peer = identifier(of: peer, for: session)
    found.name = central.names[peer]
    deliver(to: session, .discovered(found))
  }
}
