import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI

// The only continuations of the stack: what the core completes, by what waits for it.

/// How a request ended, with its octets copied out of the core.
enum RequestOutcome: Sendable {
  case linked(LinkID)
  case done
  case parameters(ConnectionParameters)
  case rssi(Int8?)
  case phys(LinkPHYs)
  case value([UInt8])
  case databaseHash(DatabaseHash?)
  case failed(BluetoothError)
}

extension Host {
  // MARK: Requests

  /// Starts something that ends with `.completed(id, …)` and waits for that; a cancelled task cancels the request.
  func request(
    _ start: @Sendable (inout HostCore, RequestID, Instant) -> Void
  ) async throws(BluetoothError) -> RequestOutcome {
    try check()
    let id = newRequest()
    let outcome = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        requests[id] = continuation
        perform { core, now in start(&core, id, now) }
      }
    } onCancel: {
      onEventLoop { host in host.perform { core, now in core.cancel(id, now: now) } }
    }
    if case .failed(let error) = outcome { throw error }
    return outcome
  }

  func newRequest() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }
  private func complete(_ id: RequestID, _ outcome: RequestOutcome) {
    requests.removeValue(forKey: id)?.resume(returning: outcome)
  }

  // MARK: What the core says

  func handle(_ effect: HostEffect) {
    switch effect {
    case .started: started()
    case .startFailed(let failure): fail(BluetoothError(failure))
    case .controllerFailed(let status):
      fail(BluetoothError(.controller, "The controller failed, \(status): open it again."))

    case .scanStarted, .scanStopped: break
    case .scanFailed(let id, let status): scanFailed(id, .refused(to: "scan", status))
    case .discovered(let id, let discovery): deliver(discovery, to: id)

    case .advertisingStarted(let id): advertising[id]?.waiters.resume()
    case .advertisingFailed(let id, let status):
      advertising.removeValue(forKey: id)?.waiters.resume(.failure(.refused(to: "advertise", status)))
    case .advertisingStopped(let id, let reason):
      advertising.removeValue(forKey: id)?.waiters.resume(
        .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
      tell(.advertisingStopped(id, reason))

    case .linkUp(let id, let peer, let role, let parameters):
      links[id] = LinkState(peer: peer)
      if case .closing = phase { perform { core, now in core.disconnect(id, now: now) } }
      tell(.connected(Link(id: id, peer: peer, role: role, host: self)))
      logger.debug("\(id) up: \(peer), \(role), \(parameters)")
    case .linkDown(let id, let reason):
      let error = BluetoothError.linkWentDown(reason)
      for request in orphans { complete(request, .failed(error)) }
      orphans = []
      links.removeValue(forKey: id)?.end(error)
      tell(.disconnected(id, reason))
      logger.debug("\(id) down: \(reason)")
    case .parametersChanged(let id, let parameters): logger.debug("\(id): \(parameters)")
    case .dataLengthChanged(let id, let length): logger.debug("\(id): \(length)")
    case .physChanged(let id, let phys): logger.debug("\(id): \(phys)")
    case .mtuChanged(let id, let mtu):
      links[id]?.mtuChanged(mtu)
      logger.debug("\(id): ATT_MTU \(mtu)")

    // The reason is told next, with the link's end.
    case .completed(let id, .gatt(.failed(.bearerClosed(.disconnected)))): orphans.append(id)
    case .completed(let id, let result): complete(id, outcome(of: result))
    // In `pump`: many come at once.
    case .value: break
    case .servicesChanged(let id, let range): servicesChanged(range, on: id)
    case .rediscovered(let id, _, let error): rediscovered(error, on: id)

    case .subscriptionChanged(let id, let handle, let configuration):
      tell(.subscriptionChanged(id, handle, configuration))
    case .written(let id, let handle, let range, let offset):
      tell(.written(id, handle, core.bytes(of: range), offset: offset))
    case .readRequested(let request, let id, let handle, let offset):
      ask(.readRequested(ReadRequest(id: request, link: id, handle: handle, offset: offset, host: self)), request)
    case .writeRequested(let request, let id, let handle, let range, let offset, let following):
      gathered.append(WriteRequest.Write(handle: handle, offset: offset, value: core.bytes(of: range)))
      if following > 0 { return }
      let writes = gathered
      gathered = []
      ask(.writeRequested(WriteRequest(id: request, link: id, writes: writes, host: self)), request)
    // Why is told by what comes with it: the end of the link, or `.applicationTooSlow`.
    case .requestCancelled: break
    // Nobody is bonded yet.
    case .storeClient: break
    case .readyToSend(let id): sendFromPorts(of: id)
    case .indicationConfirmed(let id, _): links[id]?.confirmation.resume()
    case .violation(let link?, .applicationTooSlow(let handle)):
      tell(.requestUnanswered(link, handle))
      logger.warning("\(link): a request about attribute \(handle.text) was not answered within 25 s")
    case .violation(let link, let violation):
      logger.notice("\(link.map { "\($0): " } ?? "")\(violation.text)")
    }
  }

  private func outcome(of result: HostResult) -> RequestOutcome {
    switch result {
    case .connected(let link): .linked(link)
    case .disconnected, .done: .done
    case .parameters(let parameters): .parameters(parameters)
    case .rssi(let rssi): .rssi(rssi)
    case .phys(let phys): .phys(phys)
    case .failed(let failure): .failed(BluetoothError(failure))
    case .gatt(.done), .gatt(.discovered): .done
    case .gatt(.value(let range)), .gatt(.values(let range)): .value(core.bytes(of: range))
    case .gatt(.databaseHash(let hash)): .databaseHash(hash)
    case .gatt(.failed(let error)): .failed(BluetoothError(error))
    }
  }

  /// Ends all requests for their callers, and tells which they were.
  func endRequests(_ error: BluetoothError) -> [RequestID] {
    let ended = requests
    requests = [:]
    for continuation in ended.values { continuation.resume(returning: .failed(error)) }
    return Array(ended.keys)
  }

  /// Called once, when the phase has become `.closed`.
  func endEverything(_ error: BluetoothError) {
    starting.resume(.failure(error))
    for state in advertising.values { state.waiters.resume(.failure(error)) }
    advertising = [:]
    _ = endRequests(error)
    endScans(error)
    for link in links.values { link.end(error) }
    links = [:]
    for mailbox in incoming { mailbox.finish(error) }
    incoming = []
    closing.resume()
  }
}
