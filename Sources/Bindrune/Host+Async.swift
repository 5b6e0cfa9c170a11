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
  case value([UInt8])
  case failed(BluetoothError)
}

extension Host {
  // MARK: Starting

  /// Opens the transport and starts the controller.
  public func start() async throws(BluetoothError) {
    switch phase {
    case .running: return
    case .closed(let error): throw error
    case .stopped:
      phase = .starting
      transport.start(HostReceiver(self))
      // Whatever the controller still says of an earlier life is dropped, up to the answer to Reset.
      transport.resynchronise()
      perform { core, now in core.start(now: now) }
    case .starting: break
    }
    let error = await withCheckedContinuation { continuation in
      switch phase {
      case .starting: starting.append(continuation)
      case .closed(let error): continuation.resume(returning: error)
      case .running, .stopped: continuation.resume(returning: nil)
      }
    }
    if let error { throw error }
  }

  // MARK: Requests

  /// Starts something that ends with `.completed(id, …)` and waits for that; a cancelled task cancels the request.
  func request(
    _ start: @Sendable (inout HostCore, RequestID, Instant) -> Void
  ) async throws(BluetoothError) -> RequestOutcome {
    switch phase {
    case .closed(let error): throw error
    case .stopped, .starting: throw BluetoothError(.notStarted, "the host has not been started; call start() first")
    case .running: break
    }
    lastRequest += 1
    let id = RequestID(rawValue: lastRequest)
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

  /// Runs `body` on the host from anywhere, later.
  nonisolated func onEventLoop(_ body: @escaping @Sendable (isolated Host) -> Void) {
    transport.eventLoop.execute { [weak self] in
      self?.assumeIsolated { body($0) }
    }
  }

  private func complete(_ id: RequestID, _ outcome: RequestOutcome) {
    requests.removeValue(forKey: id)?.resume(returning: outcome)
  }

  // MARK: What the core says

  func handle(_ effect: HostEffect) {
    switch effect {
    case .started:
      phase = .running
      resume(&starting, nil)
    case .startFailed(let failure):
      fail(BluetoothError(.controller, failure.description))
    case .controllerFailed(let status):
      fail(BluetoothError(.controller, "the controller failed (\(status)); open it again"))

    case .scanStarted, .scanStopped: break
    case .scanFailed(let status):
      endScans(BluetoothError(.controller, "the controller refused to scan: \(status)"))
    case .advertisement(let report): deliver(report)

    case .advertisingStarted: resume(&advertising, nil)
    case .advertisingFailed(let status):
      resume(&advertising, BluetoothError(.controller, "the controller refused to advertise: \(status)"))
    case .advertisingStopped:
      resume(&advertising, BluetoothError(.cancelled, "advertising was stopped before it began"))
      tell(.advertisingStopped)

    case .linkUp(let id, let peer, let role, let parameters):
      links[id] = LinkState()
      tell(.connected(Link(id: id, peer: peer, role: role, host: self)))
      logger.debug("\(id) up: \(peer), \(role), \(parameters)")
    case .linkDown(let id, let reason):
      let error = BluetoothError(.disconnected, "the link is down: \(reason)")
      links.removeValue(forKey: id)?.end(error)
      tell(.disconnected(id, reason))
      logger.debug("\(id) down: \(reason)")
    case .parametersChanged(let id, let parameters): logger.debug("\(id): \(parameters)")
    case .mtuChanged(let id, let mtu):
      links[id]?.mtuChanged(mtu)
      logger.debug("\(id): ATT_MTU \(mtu)")

    case .completed(let id, let result): complete(id, outcome(of: result))
    case .value(let id, let handle, let range, let isIndication):
      guard let mailboxes = links[id]?.values[handle] else { return }
      let value = ReceivedValue(handle: handle, value: core.bytes(of: range), isIndication: isIndication)
      for mailbox in mailboxes { mailbox.put(value) }

    case .subscriptionChanged(let id, let handle, let configuration):
      tell(.subscriptionChanged(id, handle, configuration))
    case .written(let id, let handle, let range, let offset):
      tell(.written(id, handle, core.bytes(of: range), offset: offset))
    case .readRequested(let request, let id, let handle, let offset):
      ask(.readRequested(ReadRequest(id: request, link: id, handle: handle, offset: offset, host: self)), request)
    case .writeRequested(let request, let id, let handle, let range, let offset):
      let value = core.bytes(of: range)
      ask(
        .writeRequested(WriteRequest(id: request, link: id, handle: handle, offset: offset, value: value, host: self)),
        request)
    case .requestCancelled(let request, _):
      logger.warning("a client's request \(request.rawValue) was not answered in time")
    case .readyToSend(let id): drainPorts(of: id)
    case .indicationConfirmed(let id, let handle): links[id]?.confirmed(handle)
    case .violation(let link, let violation):
      logger.warning("\(link.map { "\($0): " } ?? "")\(violation)")
    }
  }

  private func outcome(of result: HostResult) -> RequestOutcome {
    switch result {
    case .connected(let link): .linked(link)
    case .disconnected: .done
    case .failed(let failure): .failed(BluetoothError(failure))
    case .gatt(.done), .gatt(.discovered): .done
    case .gatt(.value(let range)), .gatt(.values(let range)): .value(core.bytes(of: range))
    case .gatt(.failed(let error)): .failed(BluetoothError(error))
    }
  }

  func resume(_ waiting: inout [CheckedContinuation<BluetoothError?, Never>], _ error: BluetoothError?) {
    let all = waiting
    waiting = []
    for continuation in all { continuation.resume(returning: error) }
  }

  /// Called once, when the phase has become `.closed`.
  func endEverything(_ error: BluetoothError) {
    resume(&starting, error)
    resume(&advertising, error)
    let waiting = requests
    requests = [:]
    for continuation in waiting.values { continuation.resume(returning: .failed(error)) }
    endScans(error)
    let open = links
    links = [:]
    for link in open.values { link.end(error) }
    for mailbox in incoming { mailbox.finish(error) }
    incoming = []
  }
}
