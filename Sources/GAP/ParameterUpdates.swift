import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

/// An update of a link's connection parameters that we have started, or accepted, and that has not ended: a procedure
/// of the link.
struct ParameterUpdate: BitwiseCopyable {
  enum Way: BitwiseCopyable {
    /// The controller has the command; its event ends the update.
    case linkLayer
    /// The central's host has our request.
    case l2cap
    /// The central has agreed: the next change is its answer.
    case granted
    /// The peer has asked for it over the link layer, and we have accepted.
    case peers
  }
  /// nil: no request awaits it, or not any more.
  var id: RequestID?
  var wanted: ConnectionParameterUpdateRequest
  var way: Way

  /// Another request of the peer does not disturb it, because it is the central's answer to this one.
  func permits(_ request: ConnectionParameterUpdateRequest) -> Bool {
    switch way {
    case .linkLayer, .peers: false
    case .l2cap, .granted:
      wanted.intervalMin <= request.intervalMax && request.intervalMin <= wanted.intervalMax
        && request.latency == wanted.latency && request.timeout == wanted.timeout
    }
  }
}

// Connection parameter updates, requested by us and by peers. Vol 3, Part C, §9.3.9.
extension HostCore {
  /// Asks for other connection parameters. Ends with `.completed(id, …)`: `.parameters` holds those in force, which may
  /// differ from the request, after a `.parametersChanged` if they are new; `.parametersRejected` gives the reason.
  /// Without an id a refusal is a violation. One update at a time on a link, the peer's included, else
  /// `.busy`.
  ///
  /// A central changes them itself. A peripheral asks the central's controller, if both have the Connection Parameters
  /// Request procedure (Vol 6, Part B, §5.1.7), else its host, over L2CAP, which every central supports (Vol 3, Part A,
  /// §4.20).
  public mutating func updateParameters(
    _ link: LinkID, _ wanted: ConnectionParameterRange, id: RequestID? = nil, now: Instant
  ) {
    guard let index = upper.index(of: link) else {
      if let id { emit(.completed(id, .failed(.noSuchLink))) }
      return
    }
    guard wanted.isValid else { return refuse(id, link, .invalidParameters, .unsupportedFeatureOrParameterValue) }
    let (role, asksOverL2CAP, isUpdating) = self.link(at: index) {
      ($0.role, $0.asksOverL2CAP, $0.procedures.parameterUpdate != nil)
    }
    if isUpdating { return refuse(id, link, .busy, .commandDisallowed) }
    if role == .peripheral, asksOverL2CAP || !hasParametersRequest {
      updateOverL2CAP(at: index, id, wanted.request, now)
    } else {
      updateOverLinkLayer(at: index, id, wanted.request, now)
    }
    drain(now)
  }
  public mutating func updateParameters(
    _ link: LinkID, _ parameters: ConnectionParameters, id: RequestID? = nil, now: Instant
  ) {
    updateParameters(link, ConnectionParameterRange(parameters), id: id, now: now)
  }
  private mutating func refuse(_ id: RequestID?, _ link: LinkID, _ failure: HostFailure, _ status: HCIStatus) {
    if let id { emit(.completed(id, .failed(failure))) } else { emit(.violation(link, .parametersRejected(status))) }
  }
  private var hasParametersRequest: Bool {
    controller?.features.contains(.connectionParametersRequestProcedure) == true
      && hci.supports(LEConnectionUpdate.opcode)
  }

  mutating func updateOverLinkLayer(
    at index: Int, _ id: RequestID?, _ wanted: ConnectionParameterUpdateRequest, _ now: Instant
  ) {
    let handle = begin(.parameterUpdate(ParameterUpdate(id: id, wanted: wanted, way: .linkLayer)), at: index, now)
    let command = LEConnectionUpdate.with {
      $0.connectionHandle = handle
      $0.connectionIntervalMin = wanted.intervalMin
      $0.connectionIntervalMax = wanted.intervalMax
      $0.maxLatency = wanted.latency
      $0.supervisionTimeout = wanted.timeout
    }
    hci.send(command, tag: Sender.update.tag(handle), mayBeRefused: false, now: now)
  }
  private mutating func updateOverL2CAP(
    at index: Int, _ id: RequestID?, _ wanted: ConnectionParameterUpdateRequest, _ now: Instant
  ) {
    let isSent = l2cap.requestParameterUpdate(upper.links[index].handle, wanted, now: now)
    begin(.parameterUpdate(ParameterUpdate(id: id, wanted: wanted, way: .l2cap)), at: index, now)
    if !isSent { updateEnded(at: index, .commandDisallowed) }
  }

  // MARK: Ends

  private mutating func updateEnded(at index: Int, _ status: HCIStatus) {
    if let update = withLink(at: index, { $0.procedures.endParameterUpdate() }) { ended(update, status, at: index) }
  }
  /// Answers the request that has awaited the update.
  mutating func ended(_ update: ParameterUpdate, _ status: HCIStatus, at index: Int) {
    let (link, parameters) = link(at: index) { ($0.id, $0.parameters) }
    if status != .success {
      refuse(update.id, link, .parametersRejected(status), status)
    } else if let id = update.id {
      emit(.completed(id, .parameters(parameters)))
    }
  }
  /// The controller has refused our answer to the peer's request.
  mutating func peersUpdateEnded(_ handle: ConnectionHandle) {
    guard let index = upper.index(of: handle), upper.links[index].procedures.parameterUpdate?.way == .peers else {
      return
    }
    procedureEnded(.parameterUpdate, handle)
  }

  // MARK: From the controller

  /// The controller refused LE Connection Update. A peripheral's controller may lack it, or not permit it to
  /// peripherals.
  mutating func updateRefused(_ handle: ConnectionHandle, _ status: HCIStatus, _ now: Instant) {
    guard let index = upper.index(of: handle), let update = withLink(at: index, { $0.updateRefused() }) else { return }
    if !update.continues { return updateEnded(at: index, status) }
    updateOverL2CAP(at: index, update.id, update.wanted, now)
  }
  /// LE Connection Update Complete: Vol 4, Part E, §7.7.65.3.
  mutating func updateComplete(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ parameters: ConnectionParameters, _ now: Instant
  ) {
    guard let index = upper.index(of: handle) else { return }
    let way = upper.links[index].procedures.parameterUpdate?.way
    if way == .peers { procedureEnded(.parameterUpdate, handle) }
    guard status == .success else {
      // The central's controller or host lacks the procedure.
      if status == .unsupportedRemoteFeature { return updateRefused(handle, status, now) }
      return way == .linkLayer ? updateEnded(at: index, status) : ()
    }
    emit(.parametersChanged(withLink(at: index) { $0.use(parameters) }, parameters))
    // A change before the central has agreed is the central's own.
    if way == .linkLayer || way == .granted { updateEnded(at: index, .success) }
  }

  /// The peer asks for other parameters over the link layer. Vol 4, Part E, §7.7.65.6, §7.8.31, §7.8.32.
  ///
  /// One event ends every update, and does not say which (§7.7.65.3). So the host refuses while another one is in
  /// progress, and begins none before the accepted one has ended.
  mutating func answer(_ event: LERemoteConnectionParameterRequest, _ now: Instant) {
    let request = ConnectionParameterUpdateRequest(
      intervalMin: event.intervalMin, intervalMax: event.intervalMax, latency: event.maxLatency, timeout: event.timeout)
    guard let index = upper.index(of: event.connectionHandle), configuration.parameterPolicy.accepts(request),
      upper.links[index].permits(request)
    else {
      let command = LERemoteConnectionParameterRequestNegativeReply.with {
        $0.connectionHandle = event.connectionHandle
      }
      return hci.send(command, tag: Sender.unanswered.tag, mayBeRefused: false, now: now)
    }
    let command = LERemoteConnectionParameterRequestReply.with {
      $0.connectionHandle = event.connectionHandle
      $0.intervalMin = event.intervalMin
      $0.intervalMax = event.intervalMax
      $0.maxLatency = event.maxLatency
      $0.timeout = event.timeout
    }
    withLink(at: index) { $0.accept(request, now: now) }
    let tag = Sender.parametersReply.tag(event.connectionHandle)
    hci.send(command, tag: tag, mayBeRefused: false, now: now)
  }
  // MARK: From L2CAP

  /// The peripheral asks for other parameters. L2CAP has refused out-of-range requests already. Vol 3, Part A, §4.21.
  mutating func answer(
    _ request: ConnectionParameterUpdateRequest, _ handle: ConnectionHandle, identifier: UInt8, _ now: Instant
  ) {
    guard let index = upper.index(of: handle) else { return }
    let isAccepted = configuration.parameterPolicy.accepts(request) && upper.links[index].permitsRequestOverL2CAP
    l2cap.respondToParameterUpdate(handle, identifier: identifier, accepted: isAccepted)
    note(at: index)
    if isAccepted { updateOverLinkLayer(at: index, nil, request, now) }
    drain(now)
  }
  /// The answer of the central's host to our request.
  mutating func updateAnswered(_ handle: ConnectionHandle, _ outcome: ParameterUpdateOutcome, _ now: Instant) {
    guard let index = upper.index(of: handle), upper.links[index].procedures.parameterUpdate?.way == .l2cap else {
      return
    }
    switch outcome {
    case .accepted: if withLink(at: index, { $0.updateGranted(now: now) }) { updateEnded(at: index, .success) }
    case .rejected: updateEnded(at: index, .unacceptableConnectionParameters)
    case .notUnderstood: updateEnded(at: index, .unsupportedRemoteFeature)
    case .timedOut: updateEnded(at: index, .lmpOrLLResponseTimeout)
    case .linkClosed: break
    }
  }
}
