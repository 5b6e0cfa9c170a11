/// A pending operation of a session on a device's server.
struct PeerOperation {
  let id: OperationID
  let session: SessionID
  let link: LinkID
  let question: Question
  /// How many of its requests the host has not completed.
  var outstanding: Int
  /// It has been answered, or the session does not want the answer any more.
  var isOver = false

  enum Question {
    case rssi
    case services([BluetoothUUID]?)
    /// Of the service that is declared at the handle.
    case includedServices(AttributeHandle, [BluetoothUUID]?)
    case characteristics(AttributeHandle, [BluetoothUUID]?)
    /// Of the characteristic whose value has the handle.
    case descriptors(AttributeHandle)
    case read
    case write
  }

  init(_ id: OperationID, _ session: SessionID, _ link: LinkID, _ question: Question, outstanding: Int) {
    self.id = id
    self.session = session
    self.link = link
    self.question = question
    self.outstanding = outstanding
  }
}

extension BrokerCore {
  /// The link to a peer that is connected for the session; without one the operation is over.
  mutating func link(of peer: UUID, for session: SessionID, _ id: OperationID) -> LinkID? {
    if let peer = self.peer(peer), case .connected = sessions[session]?.interests[peer],
      case .linked(let link) = central.reaches[peer]
    {
      return link
    }
    complete(
      id, of: session, .failure(BluetoothError(.disconnected, "The device is not connected: connect to it first.")))
    return nil
  }

  /// Begins all requests that the question takes at once, so that operations are answered in their order.
  mutating func ask(
    _ question: PeerOperation.Question, _ id: OperationID, _ peer: UUID, _ session: SessionID,
    _ requests: (LinkID) -> [HostOperation]
  ) {
    guard let link = link(of: peer, for: session, id) else { return }
    let requests = requests(link).map { begin($0) }
    central.operations[requests[0]] = PeerOperation(id, session, link, question, outstanding: requests.count)
    for request in requests { central.parts[request] = requests[0] }
  }

  /// Up to three services are discovered by their UUIDs: Vol 3, Part G, §4.4.2. For more, discovering all takes fewer
  /// requests: §4.4.1.
  mutating func discoverServices(
    _ wanted: [BluetoothUUID]?, _ id: OperationID, _ peer: UUID, _ session: SessionID
  ) {
    let wanted = wanted.flatMap { $0.isEmpty ? nil : $0 }
    ask(.services(wanted), id, peer, session) { link in
      guard let wanted, wanted.count <= 3 else { return [.discoverServices(link, nil)] }
      return wanted.map { .discoverServices(link, $0) }
    }
  }
  mutating func discover(
    in service: AttributeHandle, _ question: PeerOperation.Question, _ id: OperationID, _ peer: UUID,
    _ session: SessionID, _ request: (LinkID, RemoteService) -> HostOperation
  ) {
    guard let link = link(of: peer, for: session, id) else { return }
    guard let known = central.links[link]?.database.service(at: service),
      sessions[session]?.app == .own || central.links[link]?.found[session]?.hasFound(service: service) == true
    else {
      return complete(id, of: session, .failure(.unknownAttribute(service)))
    }
    ask(question, id, peer, session) { [request($0, known)] }
  }
  mutating func discoverDescriptors(
    of characteristic: AttributeHandle, _ id: OperationID, _ peer: UUID, _ session: SessionID
  ) {
    guard let link = link(with: characteristic, of: peer, for: session, id) else { return }
    guard let known = central.links[link]?.database.characteristic(valueHandle: characteristic) else {
      return complete(id, of: session, .failure(.unknownAttribute(characteristic)))
    }
    guard let range = known.descriptorRange else { return complete(id, of: session, .success(.descriptors([]))) }
    ask(.descriptors(characteristic), id, peer, session) { [.discoverDescriptors($0, range)] }
  }

  /// One of an operation's requests has ended.
  mutating func answered(_ number: RequestID, _ result: Result<HostAnswer, BluetoothError>) {
    guard var operation = central.operations[number] else { return }
    operation.outstanding -= 1
    // After its last request it is removed, and the next errand may begin.
    central.operations[number] = operation.outstanding > 0 ? operation : nil
    defer { continueErrand(operation.link) }
    if operation.isOver { return }
    switch result {
    case .success(let outcome):
      if case .database(let database) = outcome { learn(database, on: operation.link) }
      if operation.outstanding > 0 { return }
      let answer = answer(to: operation.question, outcome)
      if case .success(let answer) = answer {
        central.links[operation.link]?.found[operation.session, default: FoundAttributes()]
          .add(answer, to: operation.question)
      }
      complete(operation.id, of: operation.session, answer)
    case .failure(let error):
      central.operations[number]?.isOver = true
      // The link's end follows, and ends all pending operations.
      if !error.isEndOfLink { complete(operation.id, of: operation.session, .failure(error)) }
    }
  }
  private func answer(to question: PeerOperation.Question, _ outcome: HostAnswer) -> Result<
    BrokerAnswer, BluetoothError
  > {
    switch (question, outcome) {
    case (.rssi, .rssi(let rssi)): return .success(.rssi(rssi.map(Int.init)))
    case (.read, .value(let value)): return .success(.value(Data(value)))
    case (.services(let wanted), .database(let database)):
      let found = database.services.filter { $0.isPrimary && wanted?.contains($0.uuid) ?? true }
      return .success(.services(found.map { FoundService($0) }))
    case (.includedServices(let handle, let wanted), .database(let database)):
      guard let service = database.service(at: handle) else { return .failure(.unknownAttribute(handle)) }
      let found = database.includes(of: service).compactMap { FoundService($0, in: database) }
      return .success(.includedServices(found.filter { wanted?.contains($0.uuid) ?? true }))
    case (.characteristics(let handle, let wanted), .database(let database)):
      guard let service = database.service(at: handle) else { return .failure(.unknownAttribute(handle)) }
      let found = database.characteristics(of: service).filter { wanted?.contains($0.uuid) ?? true }
      return .success(
        .characteristics(
          found.map { FoundCharacteristic(handle: $0.valueHandle, uuid: $0.uuid, properties: $0.properties) }))
    case (.descriptors(let handle), .database(let database)):
      guard let characteristic = database.characteristic(valueHandle: handle) else {
        return .failure(.unknownAttribute(handle))
      }
      return .success(.descriptors(Array(database.descriptors(of: characteristic))))
    case (.write, _), (.rssi, _), (.read, _), (.services, _), (.includedServices, _), (.characteristics, _),
      (.descriptors, _):
      return .success(.done)
    }
  }

  /// The session does not use the link any more; other sessions may.
  mutating func release(_ link: LinkID, by session: SessionID) {
    abandonOperations(on: link, of: session)
    abandonChannels(on: link, of: session)
    central.links[link]?.found[session] = nil
    releaseSubscriptions(on: link, by: session)
  }
  /// Nobody waits for the answers any more.
  mutating func abandonOperations(on link: LinkID, of session: SessionID) {
    for (id, first) in central.parts.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      guard let operation = central.operations[first], operation.link == link, operation.session == session else {
        continue
      }
      central.operations[first]?.isOver = true
      command(.cancel(id))
    }
    for handle in (central.links[link]?.subscriptions ?? [:]).keys {
      central.links[link]?.subscriptions[handle]?.waiting.removeAll { $0.session == session }
    }
  }

  mutating func servicesChanged(_ range: HandleRange, on link: LinkID, _ database: RemoteDatabase) {
    guard var state = central.links[link] else { return }
    // Subscriptions in these services have ended; those that begin or end now are answered.
    for (handle, subscription) in state.subscriptions where range.contains(handle) {
      if case .on = subscription.phase { state.subscriptions[handle] = nil }
    }
    for session in state.found.keys { state.found[session]?.remove(range) }
    // The errand begins anew; the result of its pending step is not needed.
    if let request = state.errandRequest { command(.cancel(request)) }
    state.errandRequest = nil
    state.errand = .serviceChanged
    central.links[link] = state
    for session in sessions.ids {
      guard case .connected = sessions[session]?.interests[state.peer] else { continue }
      deliver(to: session, .servicesChanged(identifier(of: state.peer, for: session), range))
    }
    learn(database, on: link)
    continueErrand(link)
  }
  private mutating func learn(_ database: RemoteDatabase, on link: LinkID) {
    central.links[link]?.database = database
    let services = database.services.filter(\.isPrimary).map(\.uuid)
    guard let known = central.links[link]?.services, known != services else { return }
    central.links[link]?.services = services
    reportLinks()
  }
}

// MARK: Errands

/// The adapter's own requests to a server, one at a time and only while no session waits for an answer: to receive
/// Service Changed (Vol 3, Part G, §7.1), and to read the device's name (Vol 3, Part C, §12.1).
enum Errand {
  case serviceChanged
  case serviceChangedCharacteristics(HandleRange)
  case follow
  case name
  case nameCharacteristics(HandleRange)
  case nameValue(AttributeHandle)
  case done
}

extension BrokerCore {
  /// Begins the next step of the link's errand, if no session waits for an answer.
  mutating func continueErrand(_ link: LinkID) {
    guard let state = central.links[link], state.errandRequest == nil,
      case .linked(link) = central.reaches[state.peer],
      sessions.ids.contains(where: {
        if case .connected = sessions[$0]?.interests[state.peer] { true } else { false }
      }),
      !central.operations.values.contains(where: { $0.link == link }),
      !central.configurations.values.contains(where: { $0.link == link })
    else { return }
    let request: HostOperation
    switch state.errand {
    case .serviceChanged: request = .discoverServices(link, .genericAttribute)
    case .serviceChangedCharacteristics(let range), .nameCharacteristics(let range):
      request = .discoverCharacteristics(link, range)
    case .follow: request = .followChanges(link)
    case .name: request = .discoverServices(link, .genericAccess)
    case .nameValue(let handle): request = .read(link, handle)
    case .done: return
    }
    // Without a place: behind the places of requests that sessions have not handed over yet it would never be sent.
    let id = begin(request, isPlaced: false)
    central.links[link]?.errandRequest = id
  }
  /// A step of a link's errand has ended. A step that the server refuses is skipped.
  mutating func errandEnded(_ id: RequestID, _ result: Result<HostAnswer, BluetoothError>) {
    guard let link = central.links.first(where: { $0.value.errandRequest == id })?.key,
      let state = central.links[link]
    else { return }
    central.links[link]?.errandRequest = nil
    var database = RemoteDatabase()
    if case .success(.database(let found)) = result { database = found }
    switch state.errand {
    case .serviceChanged:
      let service = database.service(.genericAttribute)
      central.links[link]?.errand = service.map { .serviceChangedCharacteristics($0.range) } ?? .name
    case .serviceChangedCharacteristics: central.links[link]?.errand = .follow
    case .follow: central.links[link]?.errand = .name
    case .name:
      let service = database.service(.genericAccess)
      central.links[link]?.errand = service.map { .nameCharacteristics($0.range) } ?? .done
    case .nameCharacteristics:
      let name = database.characteristic(.deviceName, in: .genericAccess)
      central.links[link]?.errand = name.map { .nameValue($0.valueHandle) } ?? .done
    case .nameValue:
      central.links[link]?.errand = .done
      if case .success(.value(let octets)) = result { learnName(octets, of: state.peer) }
    case .done: break
    }
    if !database.services.isEmpty { learn(database, on: link) }
    continueErrand(link)
  }
  private mutating func learnName(_ octets: [UInt8], of peer: PeerID) {
    let name = String(decoding: octets, as: UTF8.self)
    guard !name.isEmpty, central.names.setRead(name, of: peer) else { return }
    for session in sessions.ids {
      guard case .connected = sessions[session]?.interests[peer] else { continue }
      deliver(to: session, .nameChanged(identifier(of: peer, for: session), name))
    }
    reportLinks()
  }
}

extension BluetoothError {
  /// The request ended with its link, whose end has its own event.
  var isEndOfLink: Bool {
    code == .disconnected || code == .connectionTimedOut || status == .connectionFailedToBeEstablished
  }

  static func unknownAttribute(_ handle: AttributeHandle) -> BluetoothError {
    BluetoothError(
      .invalidArgument,
      "Nothing has been discovered at attribute \(handle.rawValue), or it has changed: discover first.")
  }
}

extension FoundService {
  init(_ service: RemoteService) {
    self.init(
      handle: service.handle, endHandle: service.endHandle, uuid: service.uuid, isPrimary: service.isPrimary)
  }
  /// Nil: the UUID of the included service is not known.
  init?(_ include: RemoteInclude, in database: RemoteDatabase) {
    let service = database.service(at: include.serviceHandle)
    guard let uuid = include.uuid ?? service?.uuid else { return nil }
    self.init(
      handle: include.serviceHandle, endHandle: include.endHandle, uuid: uuid, isPrimary: service?.isPrimary ?? false)
  }
}
