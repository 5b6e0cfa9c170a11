import Foundation
import NIOCore

/// What the adapter keeps for the central's half.
struct Central {
  /// Devices that a session wants, or that are linked.
  var reaches: [PeerID: Reach] = [:]
  /// What the host has been asked to connect to.
  var connects: [RequestID: PeerID] = [:]
  /// How often devices that are wanted did not hear the link, since they last did.
  var unheard: [PeerID: Int] = [:]
  var disconnects: [RequestID: LinkID] = [:]
  var links: [LinkID: CentralLink] = [:]
  var operations: [RequestID: PeerOperation] = [:]
  /// Subscriptions that begin or end.
  var configurations: [RequestID: (link: LinkID, handle: AttributeHandle)] = [:]
  var scans: [ScanID: AdapterSession] = [:]
  var names = PeerNames()
  /// What else devices have been called, that have been identified since.
  var aliases: [PeerID: PeerID] = [:]
}

/// What is known of a link as its server's client.
struct CentralLink {
  let peer: PeerID
  var subscriptions: [AttributeHandle: NotifyState] = [:]
  /// What the adapter asks on its own account when nobody else asks anything.
  var errand = Errand.serviceChanged
  var errandRequest: RequestID?
  /// Primary services, as far as anybody has discovered them.
  var services: [BluetoothUUID] = []

  init(_ peer: PeerID) { self.peer = peer }
}

/// What devices are called: their names in advertisements, and those that they tell when they are asked.
struct PeerNames {
  private var names: [PeerID: String] = [:]
  private var order: [PeerID] = []
  private static var capacity: Int { 1024 }

  subscript(_ peer: PeerID) -> String? { names[peer] }
  /// True when it is another.
  mutating func set(_ name: String, of peer: PeerID) -> Bool {
    guard let before = names.updateValue(name, forKey: peer) else {
      order.append(peer)
      if order.count > Self.capacity { names[order.removeFirst()] = nil }
      return true
    }
    return before != name
  }
}

extension Adapter {
  func perform(_ request: BrokerRequest.Central, of session: AdapterSession, _ host: isolated Host) {
    switch request {
    case .scan(let services, let solicited, let allowsDuplicates):
      scan(services, solicited, allowsDuplicates: allowsDuplicates, for: session, host)
    case .stopScan: stopScan(of: session, host)
    case .connect(let peer, let options): connect(peer, options, for: session, host)
    case .cancelConnection(let peer): cancelConnection(peer, for: session, host)
    case .readRSSI(let id, let peer): ask(.rssi, id, peer, session, host) { [.readRSSI($0)] }
    case .discoverServices(let id, let peer, let wanted): discoverServices(wanted, id, peer, session, host)
    case .discoverIncludedServices(let id, let peer, let service, let wanted):
      discover(in: service, .includedServices(service, wanted), id, peer, session, host) {
        .discoverIncludedServices($0, $1.range)
      }
    case .discoverCharacteristics(let id, let peer, let service, let wanted):
      discover(in: service, .characteristics(service, wanted), id, peer, session, host) {
        .discoverCharacteristics($0, $1.range)
      }
    case .discoverDescriptors(let id, let peer, let characteristic):
      discoverDescriptors(of: characteristic, id, peer, session, host)
    case .read(let id, let peer, let handle): ask(.read, id, peer, session, host) { [.read($0, handle)] }
    case .write(let id, let peer, let handle, let value):
      ask(.write, id, peer, session, host) { [.write($0, handle, [UInt8](value))] }
    case .setNotifying(let id, let peer, let handle, let isOn):
      setNotifying(isOn, handle, id, peer, session, host)
    }
  }
  /// The adapter is not powered on: nothing is connected, and nothing can be.
  func refuse(_ request: BrokerRequest.Central, of session: AdapterSession) {
    switch request {
    case .scan: session.tell(.scanFailed(notReady))
    case .connect(let peer, _): session.tell(.connectionFailed(peer, notReady))
    case .readRSSI(let id, _), .discoverServices(let id, _, _), .discoverIncludedServices(let id, _, _, _),
      .discoverCharacteristics(let id, _, _, _), .discoverDescriptors(let id, _, _), .read(let id, _, _),
      .write(let id, _, _, _), .setNotifying(let id, _, _, _):
      session.complete(id, .failure(notReady))
    case .stopScan, .cancelConnection: break
    }
  }

  /// The session has been closed: nothing of it goes on that others do not use.
  func endCentral(of session: AdapterSession, _ host: isolated Host) {
    stopScan(of: session, host)
    for peer in session.interests.keys { cancelConnection(session.identifier(of: peer), for: session, host) }
  }
  /// The host is gone, and all that it did with it.
  func forgetCentral() {
    for reach in central.reaches.values { reach.timer?.cancel() }
    for session in sessions {
      for interest in session.interests.values { interest.timer?.cancel() }
      session.interests = [:]
      session.scans = []
    }
    let names = central.names
    central = Central()
    central.names = names
  }

  /// True when it was begun here.
  func completed(_ id: RequestID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host) -> Bool {
    if let peer = central.connects.removeValue(forKey: id) {
      connectEnded(id, peer, result, host)
    } else if let link = central.disconnects.removeValue(forKey: id) {
      disconnectEnded(link, result, host)
    } else if let (link, handle) = central.configurations.removeValue(forKey: id) {
      configured(handle, on: link, result, host)
      goOn(link, host)
    } else if let operation = central.operations.removeValue(forKey: id) {
      answered(operation, result, host)
      goOn(operation.link, host)
    } else {
      return errandEnded(id, result, host)
    }
    return true
  }

  // MARK: Scans

  /// One scan of the host for each session, which it filters and coalesces; two, where devices are also wanted that solicit
  /// services: the host's filter wants all that is asked of it.
  private func scan(
    _ services: [BluetoothUUID], _ solicited: [BluetoothUUID], allowsDuplicates: Bool, for session: AdapterSession,
    _ host: isolated Host
  ) {
    stopScan(of: session, host)
    let parameters = ScanParameters(coalescesDuplicates: !allowsDuplicates)
    var filters = [ScanFilter(services: services)]
    if !services.isEmpty, !solicited.isEmpty { filters.append(ScanFilter(solicitedServices: solicited)) }
    session.scannedServices = services
    for filter in filters {
      do throws(BluetoothError) {
        let id = try host.beginScan(parameters, filter)
        session.scans.append(id)
        central.scans[id] = session
      } catch {
        stopScan(of: session, host)
        return session.tell(.scanFailed(error))
      }
    }
  }
  private func stopScan(of session: AdapterSession, _ host: isolated Host) {
    for id in session.scans {
      central.scans[id] = nil
      host.endScan(id)
    }
    session.scans = []
  }
  func scanFailed(_ id: ScanID, _ error: BluetoothError, _ host: isolated Host) {
    guard let session = central.scans[id] else { return }
    stopScan(of: session, host)
    session.tell(.scanFailed(error))
  }
  func discovered(_ advertisement: Advertisement, by id: ScanID) {
    guard let session = central.scans[id] else { return }
    let data = advertisement.data
    // The first scan tells of these.
    if id != session.scans.first,
      !advertisement.matchedOverflow.isEmpty || data.serviceUUIDs.contains(where: session.scannedServices.contains)
    {
      return
    }
    if let name = data.localName, !name.isEmpty { _ = central.names.set(name, of: advertisement.peer) }
    session.tell(
      .discovered(
        DiscoveredPeer(
          peer: session.identifier(of: advertisement.peer), name: central.names[advertisement.peer],
          rssi: advertisement.rssi,
          isConnectable: advertisement.isConnectable, localName: data.localName,
          manufacturerData: data.manufacturerData.map { Data($0) }, services: data.serviceUUIDs,
          overflowServices: advertisement.matchedOverflow, solicitedServices: data.solicitedServiceUUIDs,
          serviceData: Dictionary(data.serviceData.map { ($0.uuid, Data($0.data)) }) { first, _ in first },
          txPower: data.txPowerLevel.map(Int.init), seconds: Date().timeIntervalSinceReferenceDate)))
  }
}
