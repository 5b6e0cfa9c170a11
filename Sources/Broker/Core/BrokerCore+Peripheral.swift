import BindruneWire
import BindruneGATT

// The peripheral's half of the broker: one database for the services of all sessions. Each session gets the requests of
// clients for its own services.
//
// - A read or write goes to the session that has published the value, and waits for its answer: it is answered exactly
//   once, by the session, by the server after 25 s, or, when the session closes, with Unlikely Error (0x0E).
// - A queue of prepared writes (Vol 3, Part F, §3.4.6) is written whole or not at all, which no session can promise for
//   another: one that has values of several sessions is refused with 0x0E, and no session gets it.
// - An operation that the properties do not offer is refused, whatever the permissions allow. Vol 3, Part G, §3.3.1.1.

extension BrokerCore {
  mutating func perform(_ request: BrokerRequest.Peripheral, of session: SessionID) {
    switch request {
    case .addService(let operation, let description):
      let answer = publish(description, of: session)
      complete(operation, of: session, answer)
    case .removeService(let handle): remove(handle, of: session)
    case .removeAllServices: for handle in serving.services(of: session) { remove(handle, of: session) }
    case .setValue(let handle, let value):
      guard serving.services.values.contains(where: { $0.session == session && $0.contains(handle) }) else { return }
      _ = serving.database.setValue(handle, to: [UInt8](value).span)
      command(.setValue(handle, value))
    case .respond(let request, _, let value):
      answer(request, of: session) { $0.isRead ? .value(value ?? Data()) : .written }
    case .reject(let request, _, let error): answer(request, of: session) { _ in .rejected(error) }
    case .startAdvertising(let operation, let localName, let services):
      startAdvertising(operation, localName, services, of: session)
    case .stopAdvertising: stopAdvertising(of: session)
    case .setDesiredLatency(let peer, let latency):
      // A client of another session's services is that session's affair.
      guard let link = link(of: peer), serving.clients[link]?.sessions.contains(session) == true else { return }
      update(link, latency)
    case .publishChannel(let operation, let isEncrypted):
      publishChannel(isEncrypted: isEncrypted, operation, of: session)
    case .unpublishChannel(let operation, let psm): unpublishChannel(psm, operation, of: session)
    }
  }
  /// The same while no host runs: publishing and advertising fail.
  mutating func refuse(_ request: BrokerRequest.Peripheral, of session: SessionID) {
    switch request {
    case .addService(let operation, _), .startAdvertising(let operation, _, _), .publishChannel(let operation, _),
      .unpublishChannel(let operation, _):
      complete(operation, of: session, .failure(notReady))
    case .removeService(let handle): remove(handle, of: session)
    case .removeAllServices: for handle in serving.services(of: session) { remove(handle, of: session) }
    case .setValue, .respond, .reject, .stopAdvertising, .setDesiredLatency: break
    }
  }
  /// The session has been closed.
  mutating func endServing(of session: SessionID) {
    if case .running = phase {
      stopAdvertising(of: session)
      let waiting = serving.requests.filter { $0.value.session == session }.keys
      for id in waiting.sorted(by: { $0.rawValue < $1.rawValue }) {
        answer(id, of: session) { _ in .rejected(.unlikelyError) }
      }
    }
    for handle in serving.services(of: session) { remove(handle, of: session) }
    for link in serving.clients.keys { serving.clients[link]?.sessions.removeAll { $0 == session } }
  }

  /// Called before the sessions learn of the state. Unless it is `.poweredOn` there are no clients and no advertising,
  /// as the sessions know from the state; below `.poweredOff` the published services are gone.
  mutating func stateChanged(to state: AdapterState) {
    switch state {
    case .poweredOn: return
    case .poweredOff: break
    case .unknown, .resetting, .unsupported, .unauthorized: serving.forgetServices()
    }
    serving.forgetClients()
    forgetChannels()
    endAdvertising(notReady)
  }

  // MARK: Services

  mutating func publish(
    _ description: ServiceDescription, of session: SessionID
  ) -> Result<BrokerAnswer, BluetoothError> {
    do throws(BluetoothError) {
      try description.check()
      for include in description.includes where serving.services[include]?.session != session {
        throw BluetoothError(
          .invalidArgument,
          "Service \(description.uuid) includes attribute \(include.text), where this session has published no service: "
            + "publish that one first.")
      }
      var builder = DatabaseBuilder(after: serving.database, for: description.handleCount)
      let published = description.publish(in: &builder)
      do throws(DatabaseError) { try serving.database.insert(builder) } catch { throw BluetoothError(error) }
      command(.insert(builder))
      serving.add(published, description, of: session)
      arrangeServices()
      return .success(.published(published))
    } catch {
      return .failure(error)
    }
  }
  /// Subscriptions to its characteristics end, and it is removed from the services that include it.
  private mutating func remove(_ handle: AttributeHandle, of session: SessionID) {
    guard serving.services[handle]?.session == session, let service = serving.remove(handle) else { return }
    let values = service.published.characteristics.map(\.value)
    for link in serving.clients.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
      guard let client = serving.clients[link] else { continue }
      for value in client.subscriptions where values.contains(value) {
        deliver(to: service.session, .unsubscribed(client.peer, value))
      }
      serving.clients[link]?.subscriptions.removeAll { values.contains($0) }
    }
    do throws(DatabaseError) {
      try serving.database.remove(service: handle, andIncludes: true)
      command(.remove(service: handle))
    } catch {
      log(.error, "service \(handle.text) is not removed: \(error)")
    }
  }

  /// Enables or disables the contents of the services as the lives of their apps demand: S11, S131.
  mutating func arrangeServices() {
    for handle in serving.services.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
      guard let service = serving.services[handle] else { continue }
      let isEnabled = permission(.peripheral, of: service.session) != .none
      if service.isEnabled == isEnabled { continue }
      serving.services[handle]?.isEnabled = isEnabled
      serving.database.setEnabled(isEnabled, service: handle)
      command(.setEnabled(isEnabled, service: handle))
      if !isEnabled { endRequests(for: service.session) }
    }
  }
  /// Answers the requests that wait for the session, which cannot answer them now.
  mutating func endRequests(for session: SessionID) {
    let waiting = serving.requests.filter { $0.value.session == session }.keys
    for id in waiting.sorted(by: { $0.rawValue < $1.rawValue }) {
      answer(id, of: session) { _ in .rejected(.unlikelyError) }
      deliver(to: session, .requestEnded(id))
    }
  }

  // MARK: Events of the host

  mutating func reportLongestUpdate(_ link: LinkID) {
    guard let client = serving.clients[link] else { return }
    let longest = longestUpdate(link)
    for session in client.sessions { deliver(to: session, .longestUpdateChanged(client.peer, longest)) }
  }
  mutating func written(_ write: ServerWrite, on link: LinkID) {
    // A write without response to a dynamic value: values that the database keeps cannot be written.
    guard let client = serving.clients[link], let owner = serving.values[write.handle],
      owner.properties.contains(.writeWithoutResponse)
    else { return }
    introduce(link, to: owner.session)
    let id = serving.newRequest().ofCommand
    deliver(to: owner.session, .writeRequested(id, central: client.peer, [write], longestUpdate: longestUpdate(link)))
  }
  /// Octets of one notification: min(ATT_MTU − 3, 512).
  func longestUpdate(_ link: LinkID) -> Int { min((links[link]?.mtu ?? 23) - 3, 512) }
  /// The session knows this client from now on.
  mutating func introduce(_ link: LinkID, to session: SessionID) {
    if serving.clients[link]?.sessions.contains(session) == false { serving.clients[link]?.sessions.append(session) }
  }
  mutating func clientDisconnected(_ link: LinkID) {
    endRequest(of: link)
    guard let client = serving.clients.removeValue(forKey: link) else { return }
    for handle in client.subscriptions {
      if let session = serving.values[handle]?.session { deliver(to: session, .unsubscribed(client.peer, handle)) }
    }
    for session in client.sessions { takeNotificationPort(of: client.peer, from: session) }
    serving.updates = serving.updates.filter { $0.value != link }
  }

  // MARK: Subscriptions

  mutating func subscriptionChanged(
    _ link: LinkID, _ handle: AttributeHandle, _ configuration: ClientCharacteristicConfiguration
  ) {
    guard let session = serving.values[handle]?.session, let client = serving.clients[link] else { return }
    let known = client.subscriptions.firstIndex(of: handle)
    switch (known, configuration.isEmpty) {
    case (let index?, true):
      serving.clients[link]?.subscriptions.remove(at: index)
      deliver(to: session, .unsubscribed(client.peer, handle))
    case (nil, false):
      serving.clients[link]?.subscriptions.append(handle)
      introduce(link, to: session)
      lendNotificationPort(of: client.peer, on: link, to: session)
      deliver(to: session, .subscribed(client.peer, handle, longestUpdate: longestUpdate(link)))
    // Notifications instead of indications, or the reverse, do not concern the application.
    case (_?, false), (nil, true): break
    }
  }
  /// One port for each session and client, so that values of a session reach a client in the order of its calls.
  mutating func lendNotificationPort(of peer: UUID, on link: LinkID, to session: SessionID) {
    guard sessions[session]?.ports.insert(peer).inserted == true else { return }
    put(.lendPort(PortName(session: session, kind: .notification, peer: peer), on: link))
  }
  mutating func takeNotificationPort(of peer: UUID, from session: SessionID) {
    guard sessions[session]?.ports.remove(peer) != nil else { return }
    put(.takePort(PortName(session: session, kind: .notification, peer: peer)))
  }

  // MARK: Requests

  mutating func pass(_ request: ServerRequestID, _ link: LinkID, _ handle: AttributeHandle, offset: Int) {
    guard let client = serving.clients[link], let session = serving.values[handle]?.session else {
      return command(.answer(request, link, .rejected(.unlikelyError)))
    }
    let id = wait(Serving.Waiting(session: session, link: link, request: request, isRead: true))
    deliver(
      to: session,
      .readRequested(id, central: client.peer, handle, offset: offset, longestUpdate: longestUpdate(link)))
  }
  mutating func pass(_ request: ServerRequestID, _ link: LinkID, _ writes: [ServerWrite]) {
    let owners = writes.map { serving.values[$0.handle] }
    guard let client = serving.clients[link], let session = owners.first??.session,
      owners.allSatisfy({ $0?.session == session })
    else { return command(.answer(request, link, .rejected(.unlikelyError))) }
    if let forbidden = owners.firstIndex(where: { $0?.properties.contains(.write) != true }) {
      return command(.answer(request, link, .rejected(.writeNotPermitted, about: writes[forbidden].handle)))
    }
    let id = wait(Serving.Waiting(session: session, link: link, request: request, isRead: false))
    deliver(to: session, .writeRequested(id, central: client.peer, writes, longestUpdate: longestUpdate(link)))
  }
  private mutating func wait(_ waiting: Serving.Waiting) -> ServerRequest {
    introduce(waiting.link, to: waiting.session)
    let id = serving.newRequest()
    serving.requests[id] = waiting
    serving.clients[waiting.link]?.request = id
    return id
  }
  /// The session's answer to a request. A second answer, and one to a request of another session, are dropped and
  /// logged.
  private mutating func answer(
    _ id: ServerRequest, of session: SessionID, _ answer: (Serving.Waiting) -> ServerAnswer
  ) {
    if id.isCommand { return }
    guard let waiting = serving.requests[id], waiting.session == session else {
      return log(
        .warning,
        "an answer is dropped: its request has been answered, its client has disconnected, or 25 s have passed")
    }
    // Before the answer, after which the link's next request may come.
    serving.requests[id] = nil
    serving.clients[waiting.link]?.request = nil
    command(.answer(waiting.request, waiting.link, answer(waiting)))
  }
  /// The link's request needs no answer of the session any more.
  mutating func endRequest(of link: LinkID) {
    guard let id = serving.clients[link]?.request, let waiting = serving.requests.removeValue(forKey: id) else {
      return
    }
    serving.clients[link]?.request = nil
    deliver(to: waiting.session, .requestEnded(id))
  }

  // MARK: Connection parameters

  /// One parameter request at a time on a link; of the wishes that come meanwhile only the last is kept.
  private mutating func update(_ link: LinkID, _ latency: ConnectionLatency) {
    if serving.updates.values.contains(link) {
      serving.clients[link]?.latency = latency
    } else {
      let id = begin(.updateParameters(link, ConnectionParameterRange(latency)))
      serving.updates[id] = link
    }
  }
  mutating func updateCompleted(_ link: LinkID, _ result: Result<HostAnswer, BluetoothError>) {
    // The central decides, and may refuse.
    if case .failure(let error) = result { log(.info, "\(link): \(error)") }
    if let latency = serving.clients[link]?.latency.take() { update(link, latency) }
  }
}
