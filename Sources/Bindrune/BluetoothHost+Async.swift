import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI

// The only continuations of the stack: what the core completes, by what waits for it.

/// How a request ended, with its octets copied out of the core.
typealias RequestResult = Result<HostOutcome, BluetoothError>

/// Who gets the end of a request.
struct Requester {
  /// nil: a command of `send`, which names itself.
  let operation: HostOperation?
  /// nil: the observer, which has begun it.
  let continuation: CheckedContinuation<RequestResult, Never>?
}

extension BluetoothHost {
  // MARK: Requests

  /// Starts the operation and waits for its end; a cancelled task cancels it.
  @discardableResult
  func request(_ operation: HostOperation) async throws(BluetoothError) -> HostOutcome {
    do throws(BluetoothError) { try check() } catch { throw failure(error, of: operation) }
    return try await request(operation) { host, id in host.start(operation, id, at: nil) }
  }
  private func request(
    _ operation: HostOperation?, _ start: (isolated BluetoothHost, RequestID) -> Void
  ) async throws(BluetoothError) -> HostOutcome {
    let id = newRequest()
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        requests[id] = Requester(operation: operation, continuation: continuation)
        start(self, id)
      }
    } onCancel: {
      onEventLoop { host in host.perform { core, now in core.cancel(id, now: now) } }
    }
    return try result.get()
  }
  /// The same with the answer as what it is. `answer` gives it for the one kind of outcome that the operation has.
  func request<Answer: Sendable>(
    _ operation: HostOperation, _ answer: @Sendable (HostOutcome) -> Answer?
  ) async throws(BluetoothError) -> Answer {
    let outcome = try await request(operation)
    guard let answer = answer(outcome) else { preconditionFailure("\(operation) ended with \(outcome)") }
    return answer
  }

  /// Sends an HCI command and returns the controller's answer to it: for what this interface does not have, as a maker's own
  /// commands, statistics or test modes. `import HCI` has the commands. Vol 4, Part E, §7.
  ///
  ///     import HCI
  ///     let number = try await host.send(LERand()).randomNumber
  ///
  /// Returns at Command Status where the controller does not answer with Command Complete. The host does not learn what the
  /// command changes: do not send those that it uses itself, for advertising, scanning and connecting. HCI_Reset is refused.
  /// Throws `.controller` with the controller's status. Ranges in the command refer to `source`.
  public func send<Command: HCICommand>(
    _ command: Command, from source: [UInt8] = []
  ) async throws(BluetoothError) -> Command.Return {
    try await send(command, from: source) { answer, _ in answer }
  }
  /// The same for an answer with octets: `read` gets it with the return parameters, to which its ranges refer.
  public func send<Command: HCICommand, Answer: Sendable>(
    _ command: Command, from source: [UInt8] = [], _ read: @Sendable (Command.Return, Span<UInt8>) -> Answer
  ) async throws(BluetoothError) -> Answer {
    do throws(BluetoothError) {
      try check()
      if Command.opcode == Reset.opcode {
        throw BluetoothError(.invalidArgument, "The host resets its controller: close it, and open it again.")
      }
      let outcome = try await request(nil) { host, id in
        host.perform { core, now in core.send(command, from: source.span, id: id, now: now) }
      }
      var answer = Command.Return()
      guard let octets = outcome.value, !octets.isEmpty else { return read(answer, Span()) }
      do throws(WireError) { answer = try Command.decodeReturn(Octets(0, octets.count), in: octets.span) } catch {
        throw BluetoothError(.controller, "The controller's answer is malformed, \(error): open the controller again.")
      }
      return read(answer, octets.span)
    } catch {
      throw error.during("send \(Command.name)")
    }
  }

  func newRequest() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }
  private func complete(_ id: RequestID, _ result: RequestResult) {
    guard let requester = requests.removeValue(forKey: id) else { return }
    let result = result.mapError { failure($0, of: requester.operation) }
    if let continuation = requester.continuation {
      continuation.resume(returning: result)
    } else {
      tell(.completed(id, result))
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
    for (id, requester) in requests where requester.continuation == nil {
      if let operation = requester.operation { begun.append((id, operation)) }
    }
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
      let error = BluetoothError.refused(to: "advertise", status).during("advertise")
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
      let peer = peerText(id)
      linkStates.removeValue(forKey: id)?.end(error.during("keep the link to \(peer)"))
      tell(.disconnected(id, reason))
      logger.debug("\(id) down: \(reason)")
    case .parametersChanged(let id, let parameters):
      linkStates[id]?.tell(.parametersChanged(parameters))
      tell(.parametersChanged(id, parameters))
      logger.debug("\(id): \(parameters)")
    case .dataLengthChanged(let id, let length):
      linkStates[id]?.tell(.dataLengthChanged(length))
      tell(.dataLengthChanged(id, length))
      logger.debug("\(id): \(length)")
    case .physChanged(let id, let phys):
      linkStates[id]?.tell(.physChanged(phys))
      tell(.physChanged(id, phys))
      logger.debug("\(id): \(phys)")
    case .mtuChanged(let id, let mtu):
      linkStates[id]?.mtuChanged(mtu)
      linkStates[id]?.tell(.mtuChanged(mtu))
      tell(.mtuChanged(id, mtu))
      logger.debug("\(id): ATT_MTU \(mtu)")

    // The event of the link's end follows, with the reason.
    case .completed(let id, .gatt(.failed(.bearerClosed(.disconnected)))): orphans.append(id)
    case .completed(let id, let result): complete(id, outcome(of: result, in: batch, for: requests[id]?.operation))
    // In `pump`: many come at once.
    case .value: break
    case .servicesChanged(let id, let range): servicesChanged(range, on: id)
    case .rediscovered(let id, _, let error): rediscovered(error, on: id)

    case .subscriptionChanged(let id, let handle, let configuration):
      tell(.subscriptionChanged(id, handle, configuration))
    case .written(let id, let handle, let range, let offset):
      tell(.written(id, handle, batch.bytes(of: range), offset: offset))
    case .readRequested(let request, let id, let handle, let offset):
      ask(.readRequested(ServerReadRequest(id: request, link: id, handle: handle, offset: offset, host: self)), request)
    case .writeRequested(let request, let id, let handle, let range, let offset, let following):
      gathered.append(ServerWriteRequest.Write(handle: handle, offset: offset, value: batch.bytes(of: range)))
      if following > 0 { return }
      let writes = gathered
      gathered = []
      ask(.writeRequested(ServerWriteRequest(id: request, link: id, writes: writes, host: self)), request)
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

  private func outcome(of result: HostResult, in batch: borrowing HostBatch, for operation: HostOperation?)
    -> RequestResult
  {
    switch result {
    // It has been told already that the link is up, and not yet that it is down.
    case .connected(let id):
      link(id).map { .success(.linked($0)) } ?? .failure(.linkIsDown)
    case .disconnected, .done, .gatt(.done): .success(.done)
    case .parameters(let parameters): .success(.parameters(parameters))
    case .rssi(let rssi): .success(.rssi(rssi))
    case .phys(let phys): .success(.phys(phys))
    case .returned(let range): .success(.value(batch.bytes(of: range)))
    case .failed(let failure): .failure(BluetoothError(failure))
    case .gatt(.discovered):
      operation?.link.flatMap { core.remoteDatabase(of: $0) }.map { .success(.database($0)) } ?? .failure(.linkIsDown)
    case .gatt(.value(let range)): .success(.value(batch.bytes(of: range)))
    case .gatt(.values(let range)): .success(.values(ReadAttributeValue.list(batch.bytes(of: range))))
    case .gatt(.databaseHash(let hash)): .success(.databaseHash(hash))
    case .gatt(.failed(let error)): .failure(BluetoothError(error))
    }
  }

  /// Ends all requests for their callers, and tells which they were.
  func endRequests(_ error: BluetoothError) -> [RequestID] {
    let ended = requests
    for (id, operation) in begun { tellLater(.completed(id, .failure(failure(error, of: operation)))) }
    requests = [:]
    for requester in ended.values {
      requester.continuation?.resume(returning: .failure(failure(error, of: requester.operation)))
    }
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
