import BindruneATT
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

// The only continuations of the stack. The host resumes each when the core completes its request.

/// How a request ended, with its octets copied out of the core.
typealias RequestResult = Result<HostOutcome, BluetoothError>

/// Who receives the result of a request.
struct Requester {
  /// nil: a command of `send`, which adds its own name to the error.
  let operation: HostOperation?
  /// nil: the observer, which began the request.
  let continuation: CheckedContinuation<RequestResult, Never>?
  /// The call that made the request, for a trace.
  var call: CallTrace.Call = 0
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
      onEventLoop { host in host.perform(as: "Task.cancel()") { core, now in core.cancel(id, now: now) } }
    }
    return try result.get()
  }
  /// The same, with a typed answer: `answer` extracts it from the one kind of outcome that the operation has.
  func request<Answer: Sendable>(
    _ operation: HostOperation, _ answer: @Sendable (HostOutcome) -> Answer?
  ) async throws(BluetoothError) -> Answer {
    let outcome = try await request(operation)
    guard let answer = answer(outcome) else { preconditionFailure("\(operation) ended with \(outcome)") }
    return answer
  }

  /// Sends an HCI command and returns the controller's answer: for what this interface lacks, such as vendor commands,
  /// statistics or test modes. `import HCI` has the commands. Vol 4, Part E, §7.
  ///
  ///     import HCI
  ///     let number = try await host.send(LERand()).randomNumber
  ///
  /// Returns at Command Status if the controller does not answer with Command Complete. The host does not notice what
  /// the command changes: do not send commands that it uses itself, for advertising, scanning and connecting. HCI_Reset
  /// is refused. Throws `.controller` with the controller's status, and `.invalidArgument` if a handle is unset or
  /// ranges in the command, which refer to `source`, exceed it.
  public func send<Command: HCICommand>(
    _ command: Command, from source: [UInt8] = []
  ) async throws(BluetoothError) -> Command.Return {
    try await send(command, from: source) { answer, _ in answer }
  }
  /// The same for an answer with octets: `read` receives it with the return parameters, to which its ranges refer.
  public func send<Command: HCICommand, Answer: Sendable>(
    _ command: Command, from source: [UInt8] = [], _ read: @Sendable (Command.Return, Span<UInt8>) -> Answer
  ) async throws(BluetoothError) -> Answer {
    do throws(BluetoothError) {
      try check()
      if Command.opcode == Reset.opcode {
        throw BluetoothError(.invalidArgument, "The host resets its controller: close it, and open it again.")
      }
      let outcome = try await request(nil) { host, id in
        host.perform(as: "send(_:from:)") { core, now in
          do throws(WireError) { try core.send(command, from: source.span, id: id, now: now) } catch {
            let cure = "set its handles, and pass the octets of its ranges"
            host.complete(
              id, .failure(BluetoothError(.invalidArgument, "The command is not complete, \(error): \(cure).")))
          }
        }
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
      report(.completed(id, result))
    }
  }
  private static var rememberedLinks: Int { 64 }
  /// The error of what comes after the link's end: why it ended, as far as the host remembers.
  func linkIsDown(_ link: LinkID?) -> BluetoothError {
    endedLinks.last { $0.link == link }?.error ?? .linkIsDown
  }
  /// Completes the requests of a link that went down, before the host reports the link's end.
  private func completeRequests(of link: LinkID, _ error: BluetoothError) {
    for request in orphans { complete(request, .failure(error)) }
    orphans = []
    for (id, operation) in begun where operation.link == link {
      if case .disconnect = operation { complete(id, .success(.done)) } else { complete(id, .failure(error)) }
    }
  }
  /// The observer's requests, in the order in which it began them.
  private var begun: [(RequestID, HostOperation)] {
    var begun: [(RequestID, HostOperation)] = []
    for (id, requester) in requests where requester.continuation == nil {
      if let operation = requester.operation { begun.append((id, operation)) }
    }
    return begun.sorted { $0.0.rawValue < $1.0.rawValue }
  }

  // MARK: Effects of the core

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
      report(.advertisingStarted(id))
    case .advertisingFailed(let id, let status):
      let error = BluetoothError.refused(to: "advertise", status).during("advertise")
      advertising.removeValue(forKey: id)?.waiters.resume(.failure(error))
      report(.advertisingFailed(id, error))
      // For a set that was on the air: readers of `events` have nobody who waits.
      tell(.advertisingStopped(id, .terminated(status)))
    case .advertisingStopped(let id, let reason):
      advertising.removeValue(forKey: id)?.waiters.resume(
        .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
      report(.advertisingStopped(id, reason))

    case .linkUp(let id, let peer, let role, let parameters):
      linkStates[id] = LinkState(peer: peer, role: role, isObserved: observer != nil, readers: readers)
      if case .closing = state { perform(as: "close()") { core, now in core.disconnect(id, now: now) } }
      if let link = link(id) { report(.connected(link)) }
      logger.debug("\(id) up: \(peer), \(role), \(parameters)")
    case .peerIdentified(let id, let address):
      linkStates[id]?.tell(.peerIdentified(address))
      report(.peerIdentified(id, address))
      logger.debug("\(id): the peer is \(address)")
      remember(core.remoteDatabase(of: id), of: id)
    case .linkDown(let id, let reason):
      let error = BluetoothError.linkWentDown(reason)
      completeRequests(of: id, error)
      rememberLearned(of: id)
      calls?.linkDown(id)
      let peer = peerText(id)
      linkStates.removeValue(forKey: id)?.end(error.during("keep the link to \(peer)"))
      if endedLinks.count == Self.rememberedLinks { endedLinks.removeFirst() }
      endedLinks.append((id, error))
      report(.disconnected(id, reason))
      logger.debug("\(id) down: \(reason)")
    case .parametersChanged(let id, let parameters):
      linkStates[id]?.tell(.parametersChanged(parameters))
      report(.parametersChanged(id, parameters))
      logger.debug("\(id): \(parameters)")
    case .dataLengthChanged(let id, let length):
      linkStates[id]?.tell(.dataLengthChanged(length))
      report(.dataLengthChanged(id, length))
      logger.debug("\(id): \(length)")
    case .physChanged(let id, let phys):
      linkStates[id]?.tell(.physChanged(phys))
      report(.physChanged(id, phys))
      logger.debug("\(id): \(phys)")
    case .mtuChanged(let id, let mtu):
      linkStates[id]?.mtuChanged(mtu)
      linkStates[id]?.tell(.mtuChanged(mtu))
      report(.mtuChanged(id, mtu))
      logger.debug("\(id): ATT_MTU \(mtu)")
    case .bearersChanged(let id, let count):
      linkStates[id]?.tell(.bearersChanged(enhanced: count))
      report(.bearersChanged(id, enhanced: count))
      logger.debug("\(id): enhanced bearers: \(count)")

    case .securityChanged(let id, let security):
      if security.isEncrypted { linkStates[id]?.bondIsRejected = false }
      linkStates[id]?.tell(.securityChanged(security))
      report(.securityChanged(id, security))
      logger.debug("\(id): \(security)")
    case .pairingAsked(let id, let question): ask(question, of: id)
    case .pairingEnded(let id, let error): pairingEnded(on: id, error)
    case .bondChanged(let peer), .bondRemoved(let peer): storeBond(peer)
    case .encryptionFailed(let id, let status):
      report(.encryptionFailed(id, status))
      guard status == .pinOrKeyMissing else {
        logger.notice("\(id): \(peerText(id)) could not encrypt the link: \(status)")
        break
      }
      // Each request that needs the key tries to encrypt again, and reports it too.
      guard linkStates[id]?.bondIsRejected == false else { break }
      linkStates[id]?.bondIsRejected = true
      logger.notice("\(id): \(peerText(id)) no longer has the key of its bond: remove the bond, and pair again")

    // The effect of the link's end follows, with the reason.
    case .completed(let id, .gatt(.failed(.bearerClosed(.disconnected)))): orphans.append(id)
    case .completed(let id, .failed(.noSuchLink)) where requests[id]?.operation?.link.flatMap { linkStates[$0] } != nil:
      orphans.append(id)
    case .completed(let id, let result):
      let operation = requests[id]?.operation
      if let operation { learn(from: operation) }
      complete(id, outcome(of: result, in: batch, for: operation))
    // `pump` takes values in batches.
    case .value: break
    case .servicesChanged(let id, let range): servicesChanged(range, on: id)
    case .rediscovered(let id, _, let error): rediscovered(error, on: id)

    case .subscriptionChanged(let id, let handle, let configuration):
      report(.subscriptionChanged(id, handle, configuration))
    case .written(let id, let handle, let range, let offset):
      report(.written(id, handle, batch.bytes(of: range), offset: offset))
    case .readRequested(let request, let id, let handle, let offset):
      ask(.readRequested(ServerReadRequest(id: request, link: id, handle: handle, offset: offset, host: self)), request)
    case .writeRequested(let request, let id, let handle, let range, let offset, let following):
      gathered.append(ServerWriteRequest.Write(handle: handle, offset: offset, value: batch.bytes(of: range)))
      if following > 0 { return }
      let writes = gathered
      gathered = []
      ask(.writeRequested(ServerWriteRequest(id: request, link: id, writes: writes, host: self)), request)
    // The effect beside it gives the reason: the end of the link, or `.applicationTooSlow`.
    case .requestCancelled: break
    case .readyToSend(let id): sendFromPorts(of: id)
    case .indicationConfirmed(let id, let handle):
      linkStates[id]?.confirmation.resume()
      report(.indicationConfirmed(id, handle))
      sendFromPorts(of: id)
    case .channelOpened(let id, let channel, let opened): channelOpened(channel, opened, on: id)
    case .channelReceived(let id, let channel, let range): channelReceived(batch.bytes(of: range), on: channel, of: id)
    case .channelReady(let id, let channel): channelReady(channel, of: id)
    case .channelClosed(let id, let channel, let end): channelClosed(channel, of: id, end)
    case .violation(let link?, .applicationTooSlow(let handle)):
      report(.requestUnanswered(link, handle))
      logger.warning("\(link): a request about attribute \(handle.text) was not answered within 25 s")
    case .violation(let link, let violation):
      logger.notice("\(link.map { "\($0): " } ?? "")\(violation.text)")
    }
  }

  private func outcome(of result: HostResult, in batch: borrowing HostBatch, for operation: HostOperation?)
    -> RequestResult
  {
    switch result {
    // The effect of the link's begin came before this one, and that of its end comes later.
    case .connected(let id):
      link(id).map { .success(.linked($0)) } ?? .failure(linkIsDown(id))
    case .disconnected, .done, .gatt(.done): .success(.done)
    case .parameters(let parameters): .success(.parameters(parameters))
    case .rssi(let rssi): .success(.rssi(rssi))
    case .phys(let phys): .success(.phys(phys))
    case .features(let range): .success(.features(RemoteFeatures(batch.bytes(of: range))))
    case .secured(let security): .success(.security(security))
    case .channel(let id, let channel): made(id, channel, for: operation)
    case .returned(let range): .success(.value(batch.bytes(of: range)))
    case .failed(.noSuchLink): .failure(linkIsDown(operation?.link))
    case .failed(let failure): .failure(BluetoothError(failure, of: operation))
    case .gatt(.discovered):
      operation?.link.flatMap { core.remoteDatabase(of: $0) }.map { .success(.database($0)) }
        ?? .failure(linkIsDown(operation?.link))
    case .gatt(.value(let range)): .success(.value(batch.bytes(of: range)))
    case .gatt(.values(let range)): .success(.values(ReadAttributeValue.list(batch.bytes(of: range))))
    case .gatt(.databaseHash(let hash)): .success(.databaseHash(hash))
    case .gatt(.failed(let error)):
      .failure(
        BluetoothError(error, bondIsRejected: operation?.link.flatMap { linkStates[$0]?.bondIsRejected } ?? false))
    }
  }

  /// Completes all requests with `error` and returns them.
  func endRequests(_ error: BluetoothError) -> [RequestID] {
    let ended = requests
    for (id, operation) in begun { reportLater(.completed(id, .failure(failure(error, of: operation)))) }
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
    for service in listening.values { service.end(error) }
    listening = [:]
    reportLater(.failed(error))
    closing.resume()
  }
}
