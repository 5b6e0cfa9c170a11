import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI

// The only continuations of the stack: what the core completes, by what waits for it.

/// How a request ended, with its octets copied out of the core.
typealias RequestResult = Result<HostOutcome, BluetoothError>

/// Who hears how a request ended.
enum Requester {
  case task(CheckedContinuation<RequestResult, Never>)
  /// It has begun this.
  case observer(HostOperation)
}

extension BluetoothHost {
  // MARK: Requests

  /// Starts something that ends with `.completed(id, …)` and waits for that; a cancelled task cancels the request.
  func request(
    _ start: @Sendable (inout HostCore, RequestID, Instant) -> Void
  ) async throws(BluetoothError) -> HostOutcome {
    try await request { host, id in host.perform { core, now in start(&core, id, now) } }
  }
  /// The same for a request to the link's client, in its place: see `ask`.
  func request(
    of link: LinkID, _ body: @Sendable (inout Client, RequestID) -> Void
  ) async throws(BluetoothError) -> HostOutcome {
    try await request { host, id in
      host.ask(id, of: link, at: host.places(among: .command, on: link)) { body(&$0, id) }
    }
  }
  private func request(
    _ begin: (isolated BluetoothHost, RequestID) -> Void
  ) async throws(BluetoothError) -> HostOutcome {
    try check()
    let id = newRequest()
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        requests[id] = .task(continuation)
        begin(self, id)
      }
    } onCancel: {
      onEventLoop { host in host.perform { core, now in core.cancel(id, now: now) } }
    }
    return try result.get()
  }

  func newRequest() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }
  private func complete(_ id: RequestID, _ result: RequestResult) {
    switch requests.removeValue(forKey: id) {
    case .task(let continuation)?: continuation.resume(returning: result)
    case .observer?: tell(.completed(id, result))
    case nil: break
    }
  }
  /// What a link's end completes: before it is told itself.
  private func completeRequests(of link: LinkID, _ error: BluetoothError) {
    for request in orphans { complete(request, .failure(error)) }
    orphans = []
    for (id, operation) in begun where operation.link == link {
      if case .disconnect = operation { complete(id, .success(.done)) } else { complete(id, .failure(error)) }
    }
  }
  /// What the observer has begun, in that order.
  private var begun: [(RequestID, HostOperation)] {
    var begun: [(RequestID, HostOperation)] = []
    for case (let id, .observer(let operation)) in requests { begun.append((id, operation)) }
    return begun.sorted { $0.0.rawValue < $1.0.rawValue }
  }

  // MARK: What the core says

  /// Ranges in the effect lie in `batch`.
  func handle(_ effect: HostEffect, in batch: borrowing HostBatch) {
    switch effect {
    case .started: started()
    case .startFailed(let failure): fail(BluetoothError(failure))
    case .controllerFailed(let status):
      fail(BluetoothError(.controller, "The controller failed, \(status): open it again."))

    case .scanStarted, .scanStopped: break
    case .scanFailed(let id, let status): scanFailed(id, .refused(to: "scan", status))
    case .discovered(let id, let discovery): deliver(discovery, in: batch, to: id)

    case .advertisingStarted(let id):
      advertising[id]?.waiters.resume()
      tell(.advertisingStarted(id))
    case .advertisingFailed(let id, let status):
      let error = BluetoothError.refused(to: "advertise", status)
      advertising.removeValue(forKey: id)?.waiters.resume(.failure(error))
      tell(.advertisingFailed(id, error))
    case .advertisingStopped(let id, let reason):
      advertising.removeValue(forKey: id)?.waiters.resume(
        .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
      tell(.advertisingStopped(id, reason))

    case .linkUp(let id, let peer, let role, let parameters):
      linkStates[id] = LinkState(peer: peer, role: role, isObserved: observer != nil, readers: readers)
      if case .closing = state { perform { core, now in core.disconnect(id, now: now) } }
      if let link = link(id) { tell(.connected(link)) }
      logger.debug("\(id) up: \(peer), \(role), \(parameters)")
    case .peerIdentified(let id, let address):
      linkStates[id]?.tell(.peerIdentified(address))
      tell(.peerIdentified(id, address))
      logger.debug("\(id): the peer is \(address)")
      remember(core.remoteDatabase(of: id), of: id)
    case .linkDown(let id, let reason):
      let error = BluetoothError.linkWentDown(reason)
      completeRequests(of: id, error)
      linkStates.removeValue(forKey: id)?.end(error)
      tell(.disconnected(id, reason))
      logger.debug("\(id) down: \(reason)")
    case .parametersChanged(let id, let parameters): logger.debug("\(id): \(parameters)")
    case .dataLengthChanged(let id, let length): logger.debug("\(id): \(length)")
    case .physChanged(let id, let phys): logger.debug("\(id): \(phys)")
    case .mtuChanged(let id, let mtu):
      linkStates[id]?.mtuChanged(mtu)
      tell(.mtuChanged(id, mtu))
      logger.debug("\(id): ATT_MTU \(mtu)")

    // The event of the link's end follows, with the reason.
    case .completed(let id, .gatt(.failed(.bearerClosed(.disconnected)))): orphans.append(id)
    case .completed(let id, let result): complete(id, outcome(of: result, in: batch, for: requests[id]))
    // In `pump`: many come at once.
    case .value: break
    case .servicesChanged(let id, let range): servicesChanged(range, on: id)
    case .rediscovered(let id, _, let error): rediscovered(error, on: id)

    case .subscriptionChanged(let id, let handle, let configuration):
      tell(.subscriptionChanged(id, handle, configuration))
    case .written(let id, let handle, let range, let offset):
      tell(.written(id, handle, batch.bytes(of: range), offset: offset))
    case .readRequested(let request, let id, let handle, let offset):
      ask(.readRequested(ReadRequest(id: request, link: id, handle: handle, offset: offset, host: self)), request)
    case .writeRequested(let request, let id, let handle, let range, let offset, let following):
      gathered.append(WriteRequest.Write(handle: handle, offset: offset, value: batch.bytes(of: range)))
      if following > 0 { return }
      let writes = gathered
      gathered = []
      ask(.writeRequested(WriteRequest(id: request, link: id, writes: writes, host: self)), request)
    // Why is told by what comes with it: the end of the link, or `.applicationTooSlow`.
    case .requestCancelled: break
    // Nobody is bonded yet.
    case .storeClient: break
    case .readyToSend(let id): sendFromPorts(of: id)
    case .indicationConfirmed(let id, let handle):
      linkStates[id]?.confirmation.resume()
      tell(.indicationConfirmed(id, handle))
      sendFromPorts(of: id)
    case .violation(let link?, .applicationTooSlow(let handle)):
      tell(.requestUnanswered(link, handle))
      logger.warning("\(link): a request about attribute \(handle.text) was not answered within 25 s")
    case .violation(let link, let violation):
      logger.notice("\(link.map { "\($0): " } ?? "")\(violation.text)")
    }
  }

  private func outcome(of result: HostResult, in batch: borrowing HostBatch, for requester: Requester?) -> RequestResult
  {
    switch result {
    // It has been told already that the link is up, and not yet that it is down.
    case .connected(let id):
      link(id).map { .success(.linked($0)) } ?? .failure(.linkIsDown)
    case .disconnected, .done, .gatt(.done): .success(.done)
    case .parameters(let parameters): .success(.parameters(parameters))
    case .rssi(let rssi): .success(.rssi(rssi))
    case .phys(let phys): .success(.phys(phys))
    case .failed(let failure): .failure(BluetoothError(failure))
    case .gatt(.discovered):
      if case .observer(let operation)? = requester,
        let database = operation.link.flatMap({ core.remoteDatabase(of: $0) })
      {
        .success(.database(database))
      } else {
        .success(.done)
      }
    case .gatt(.value(let range)), .gatt(.values(let range)): .success(.value(batch.bytes(of: range)))
    case .gatt(.databaseHash(let hash)): .success(.databaseHash(hash))
    case .gatt(.failed(let error)): .failure(BluetoothError(error))
    }
  }

  /// Ends all requests for their callers, and tells which they were.
  func endRequests(_ error: BluetoothError) -> [RequestID] {
    let ended = requests
    for (id, _) in begun { tellLater(.completed(id, .failure(error))) }
    requests = [:]
    for case .task(let continuation) in ended.values { continuation.resume(returning: .failure(error)) }
    return Array(ended.keys)
  }

  /// Called once, when the state has become `.closed`.
  func endEverything(_ error: BluetoothError) {
    starting.resume(.failure(error))
    for state in advertising.values { state.waiters.resume(.failure(error)) }
    advertising = [:]
    _ = endRequests(error)
    endScans(error)
    for link in linkStates.values { link.end(error) }
    linkStates = LinkMap()
    for mailbox in incoming { mailbox.finish(error) }
    incoming = []
    tellLater(.failed(error))
    closing.resume()
  }
}
