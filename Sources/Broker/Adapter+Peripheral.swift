// The peripheral's half of the adapter: one database for the services of all sessions, and each session hears what clients do
// with its own.
//
// - A read or write goes to the session that has published the value, and waits for its answer: it is answered exactly once,
//   by the session, by the server after 25 s, or, when the session closes, with Unlikely Error (0x0E).
// - A queue of prepared writes (Vol 3, Part F, §3.4.6) is written whole or not at all, which no session can promise for
//   another: one that has values of several sessions is refused with 0x0E, and none of them hears of it.
// - What the properties do not offer is refused, whatever the permissions allow. Vol 3, Part G, §3.3.1.1.

extension Adapter {
  /// What the next host begins with.
  var databaseToServe: Database { serving.database }

  func perform(_ request: BrokerRequest.Peripheral, of session: AdapterSession, _ host: isolated Host) {
    switch request {
    case .addService(let operation, let description):
      session.complete(operation, publish(description, of: session, host))
    case .removeService(let handle):
      if serving.services[handle]?.session === session { remove(handle, host) }
    case .removeAllServices: for handle in serving.services(of: session) { remove(handle, host) }
    case .setValue(let handle, let value):
      guard serving.services.values.contains(where: { $0.session === session && $0.contains(handle) }) else { return }
      host.setValue(Array(value), of: handle)
    case .respond(let request, _, let value):
      answer(request, of: session) { (waiting) throws(BluetoothError) in
        switch waiting {
        case .read(let read): try host.respond(to: read, withRest: Array(value ?? Data()), after: place)
        case .write(let write): try host.accept(write, after: place)
        }
      }
    case .reject(let request, _, let error):
      answer(request, of: session) { (waiting) throws(BluetoothError) in
        switch waiting {
        case .read(let read): try host.reject(read, error, after: place)
        case .write(let write): try host.reject(write, error, after: place)
        }
      }
    case .startAdvertising(let operation, let localName, let services):
      startAdvertising(operation, localName, services, of: session, host)
    case .stopAdvertising: stopAdvertising(of: session, host)
    case .setDesiredLatency(let peer, let latency):
      if let link = link(of: peer) { update(link, latency, host) }
    }
  }
  /// The same while there is no host that runs: there is nothing to publish in, and nobody to advertise to.
  func refuse(_ request: BrokerRequest.Peripheral, of session: AdapterSession) {
    switch request {
    case .addService(let operation, _), .startAdvertising(let operation, _, _):
      session.complete(operation, .failure(notReady))
    case .removeService(let handle):
      if serving.services[handle]?.session === session { remove(handle, nil) }
    case .removeAllServices: for handle in serving.services(of: session) { remove(handle, nil) }
    case .setValue, .respond, .reject, .stopAdvertising, .setDesiredLatency: break
    }
  }
  /// The session has been closed.
  func endServing(of session: AdapterSession, _ host: Host?) {
    host?.assumeIsolated { host in
      stopAdvertising(of: session, host)
      for (id, waiting) in serving.requests where waiting.session === session {
        guard let central = serving.clients[waiting.link]?.peer else { continue }
        perform(.reject(id, central: central, .unlikelyError), of: session, host)
      }
    }
    for handle in serving.services(of: session) { remove(handle, host) }
    for link in serving.clients.keys { serving.clients[link]?.sessions.removeAll { $0 === session } }
  }

  /// Before the sessions are told. Unless it is `.poweredOn` there are no clients and no advertising, which the sessions know
  /// from the state; below `.poweredOff` what was published is gone.
  func stateChanged(to state: AdapterState) {
    switch state {
    case .poweredOn: return
    case .poweredOff: break
    case .unknown, .resetting, .unsupported, .unauthorized: serving.forgetServices()
    }
    serving.forgetClients()
    endAdvertising(notReady)
  }

  // MARK: Services

  private func publish(
    _ description: ServiceDescription, of session: AdapterSession, _ host: isolated Host
  ) -> Result<BrokerAnswer, BluetoothError> {
    do throws(BluetoothError) {
      try description.check()
      for include in description.includes where serving.services[include]?.session !== session {
        throw BluetoothError(
          .invalidArgument,
          "Service \(description.uuid) includes attribute \(include.text), where this session has published no service: "
            + "publish that one first.")
      }
      var builder = DatabaseBuilder(after: host.database, for: description.handleCount)
      let published = description.publish(in: &builder)
      try host.insert(builder)
      serving.add(published, description, of: session)
      return .success(.published(published))
    } catch {
      return .failure(error)
    }
  }
  /// Whoever has subscribed to it has so no more; services that include it go on without.
  private func remove(_ handle: AttributeHandle, _ host: Host?) {
    guard let service = serving.remove(handle) else { return }
    let values = service.published.characteristics.map(\.value)
    for (link, client) in serving.clients {
      for value in client.subscriptions where values.contains(value) {
        service.session.tell(.unsubscribed(client.peer, value))
      }
      serving.clients[link]?.subscriptions.removeAll { values.contains($0) }
    }
    do {
      if let host {
        try host.assumeIsolated { try $0.remove(service: handle, andIncludes: true) }
      } else {
        try serving.database.remove(service: handle, andIncludes: true)
      }
    } catch {
      logger.error("service \(handle.text) is not removed: \(error)")
    }
  }

  // MARK: What the host says

  func serve(_ event: HostEvent, _ host: isolated Host) {
    switch event {
    case .server(let event): serve(event, host)
    case .mtuChanged(let link, _):
      guard let client = serving.clients[link] else { return }
      let longest = longestUpdate(link, host)
      for session in client.sessions { session.tell(.longestUpdateChanged(client.peer, longest)) }
    case .advertisingStarted(let set): advertisingStarted(set)
    case .advertisingFailed(let set, let error): advertisingEnded(set, error)
    case .completed(let request, let result): updateCompleted(request, result, host)
    case .failed: serving.database = host.database
    default: break
    }
  }
  private func serve(_ event: ServerEvent, _ host: isolated Host) {
    switch event {
    case .connected(let link): serving.clients[link.id] = Serving.Client(peer: UUID(link.peer))
    case .disconnected(let link, _): clientIsGone(link)
    case .subscriptionChanged(let link, let handle, let configuration):
      subscriptionChanged(link, handle, configuration, host)
    case .readRequested(let request): pass(request, host)
    case .writeRequested(let request): pass(request, host)
    case .written(let link, let handle, let value, let offset):
      // Kept values cannot be written: it is a dynamic one, by a write without response.
      guard let client = serving.clients[link], let owner = serving.values[handle],
        owner.properties.contains(.writeWithoutResponse)
      else { return }
      heard(link, by: owner.session)
      owner.session.tell(
        .writeRequested(
          serving.newRequest().ofCommand, central: client.peer,
          [ServerWrite(handle: handle, offset: offset, value: Data(value))], longestUpdate: longestUpdate(link, host)))
    case .requestUnanswered(let link, _): endRequest(of: link)
    case .advertisingStopped(let set, let end):
      advertisingEnded(set, BluetoothError(.controller, "Advertising has ended by itself: \(end)."))
    }
  }
  /// Octets of one notification: min(ATT_MTU − 3, 512).
  private func longestUpdate(_ link: LinkID, _ host: isolated Host) -> Int { min((host.mtu(of: link) ?? 23) - 3, 512) }
  /// The session knows this client from now on.
  private func heard(_ link: LinkID, by session: AdapterSession) {
    if serving.clients[link]?.sessions.contains(where: { $0 === session }) == false {
      serving.clients[link]?.sessions.append(session)
    }
  }
  private func clientIsGone(_ link: LinkID) {
    endRequest(of: link)
    guard let client = serving.clients.removeValue(forKey: link) else { return }
    for handle in client.subscriptions {
      serving.values[handle]?.session.tell(.unsubscribed(client.peer, handle))
    }
    for session in client.sessions { session.setPort(nil, .notification, of: client.peer) }
    serving.updates = serving.updates.filter { $0.value != link }
  }

  // MARK: Subscriptions

  private func subscriptionChanged(
    _ link: LinkID, _ handle: AttributeHandle, _ configuration: ClientCharacteristicConfiguration,
    _ host: isolated Host
  ) {
    guard let session = serving.values[handle]?.session, let client = serving.clients[link] else { return }
    let known = client.subscriptions.firstIndex(of: handle)
    switch (known, configuration.isEmpty) {
    case (let index?, true):
      serving.clients[link]?.subscriptions.remove(at: index)
      session.tell(.unsubscribed(client.peer, handle))
    case (nil, false):
      serving.clients[link]?.subscriptions.append(handle)
      heard(link, by: session)
      lendPort(client.peer, link, to: session, host)
      session.tell(.subscribed(client.peer, handle, longestUpdate: longestUpdate(link, host)))
    // Notifications instead of indications, or the reverse: the application is not concerned.
    default: break
    }
  }
  /// One port for each session and client: so what the session sends to one client arrives in the order of its calls.
  private func lendPort(_ peer: UUID, _ link: LinkID, to session: AdapterSession, _ host: isolated Host) {
    guard session.port(.notification, of: peer) == nil else { return }
    do throws(BluetoothError) {
      let port = try host.sendPort(.notification, on: link, capacity: 16 * 1024) { [weak session] in
        session?.tell(.readyToUpdate(peer))
      }
      session.setPort(port, .notification, of: peer)
    } catch {
      // The link is down, and that is told next.
    }
  }

  // MARK: Requests

  private func pass(_ request: ReadRequest, _ host: isolated Host) {
    guard let client = serving.clients[request.link], let session = serving.values[request.handle]?.session else {
      return refuse { () throws(BluetoothError) in try host.reject(request, .unlikelyError) }
    }
    let id = wait(.read(request), request.link, session)
    session.tell(
      .readRequested(
        id, central: client.peer, request.handle, offset: request.offset,
        longestUpdate: longestUpdate(request.link, host)))
  }
  private func pass(_ request: WriteRequest, _ host: isolated Host) {
    let owners = request.writes.map { serving.values[$0.handle] }
    guard let client = serving.clients[request.link], let session = owners[0]?.session,
      owners.allSatisfy({ $0?.session === session })
    else {
      return refuse { () throws(BluetoothError) in try host.reject(request, .unlikelyError) }
    }
    if let forbidden = owners.firstIndex(where: { $0?.properties.contains(.write) != true }) {
      return refuse { () throws(BluetoothError) in
        try host.reject(request, .writeNotPermitted, about: request.writes[forbidden].handle)
      }
    }
    let id = wait(.write(request), request.link, session)
    let writes = request.writes.map { ServerWrite(handle: $0.handle, offset: $0.offset, value: Data($0.value)) }
    session.tell(
      .writeRequested(id, central: client.peer, writes, longestUpdate: longestUpdate(request.link, host)))
  }
  private func refuse(_ body: () throws(BluetoothError) -> Void) {
    do throws(BluetoothError) { try body() } catch { logger.debug("\(error)") }
  }
  private func wait(_ kind: Serving.Waiting.Kind, _ link: LinkID, _ session: AdapterSession) -> ServerRequest {
    heard(link, by: session)
    let id = serving.newRequest()
    serving.requests[id] = Serving.Waiting(session: session, link: link, kind: kind)
    serving.clients[link]?.request = id
    return id
  }
  /// The session answers. Each request is answered once: what comes after that is for nobody, and so is an answer to a request
  /// of another session.
  private func answer(
    _ id: ServerRequest, of session: AdapterSession, _ body: (Serving.Waiting.Kind) throws(BluetoothError) -> Void
  ) {
    if id.isCommand { return }
    guard let waiting = serving.requests[id], waiting.session === session else {
      return logger.warning(
        "an answer is for nobody: the request has been answered, its client has disconnected, or 25 s were over")
    }
    // Before the answer, which may bring the next request of this link.
    serving.requests[id] = nil
    serving.clients[waiting.link]?.request = nil
    do throws(BluetoothError) { try body(waiting.kind) } catch { logger.warning("\(error)") }
  }
  /// Nobody waits for the session's answer any more.
  private func endRequest(of link: LinkID) {
    guard let id = serving.clients[link]?.request, let waiting = serving.requests.removeValue(forKey: id) else {
      return
    }
    serving.clients[link]?.request = nil
    waiting.session.tell(.requestEnded(id))
  }

  // MARK: Connection parameters

  /// One wish at a time on a link; of those that come meanwhile the last counts.
  private func update(_ link: LinkID, _ latency: ConnectionLatency, _ host: isolated Host) {
    if serving.updates.values.contains(link) {
      serving.clients[link]?.latency = latency
    } else {
      serving.updates[host.begin(.updateParameters(link, ConnectionParameterRange(latency)))] = link
    }
  }
  private func updateCompleted(
    _ request: RequestID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host
  ) {
    guard let link = serving.updates.removeValue(forKey: request) else { return }
    // The central decides, and need not say yes.
    if case .failure(let error) = result { logger.info("\(link): \(error)") }
    if let latency = serving.clients[link]?.latency.take() { update(link, latency, host) }
  }
}
