import ATT
import BindruneWire
import GATT
import HCI
import L2CAP

// GAP's procedures, and what HCI's events say about them. Vol 3, Part C, §9.
extension HostCore {
  // MARK: From above

  /// Ends with `.scanStarted` or `.scanFailed`; `.advertisement`s follow. Scanning already: the parameters change.
  public mutating func startScan(_ parameters: ScanParameters = ScanParameters(), now: Instant) {
    guard phase == .running else { return emit(.scanFailed(.commandDisallowed)) }
    scanner.want(parameters, hci: &hci, now: now)
  }
  /// Ends with `.scanStopped` if it was on.
  public mutating func stopScan(now: Instant) {
    guard phase == .running else { return }
    scanner.want(nil, hci: &hci, now: now)
  }

  /// Ends with `.advertisingStarted` or `.advertisingFailed`.
  public mutating func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(), now: Instant
  ) throws(AdvertisingDataError) {
    let payloads = try data.legacyPayloads()
    guard phase == .running else { return emit(.advertisingFailed(.commandDisallowed)) }
    advertiser.want(
      parameters, advertising: payloads.advertising, scanResponse: payloads.scanResponse, hci: &hci, now: now)
  }
  /// Ends with `.advertisingStopped`.
  public mutating func stopAdvertising(now: Instant) {
    if phase != .running || advertiser.stop(hci: &hci, now: now) { emit(.advertisingStopped) }
  }

  /// Ends with `.completed(id, …)`, after `.linkUp` when it succeeds. Never times out by itself.
  public mutating func connect(
    to peer: PeerAddress, _ parameters: ConnectionParameters = .balanced, id: RequestID, now: Instant
  ) {
    guard phase == .running else { return emit(.completed(id, .failed(.notStarted))) }
    if upper.contains(peer: peer) { return emit(.completed(id, .failed(.busy))) }
    let request = Connections.Request(id: id, peer: peer, parameters: parameters)
    if !connections.connect(request, hci: &hci, now: now) { emit(.completed(id, .failed(.busy))) }
  }

  /// Takes a link down; the peer sees `reason`. Ends with `.linkDown`, then `.completed(id, .disconnected)`.
  public mutating func disconnect(
    _ link: LinkID, reason: HCIStatus = .remoteUserTerminatedConnection, id: RequestID? = nil, now: Instant
  ) {
    guard let index = upper.index(of: link) else {
      if let id { emit(.completed(id, .failed(.noSuchLink))) }
      return
    }
    if let id { upper.links[index].disconnectRequests.append(id) }
    sendDisconnect(upper.links[index].handle, reason, now)
  }

  /// Asks for other connection parameters: the central changes them, a peripheral asks the central over L2CAP
  /// (Vol 3, Part A, §4.20). `.parametersChanged` follows if it comes to that.
  public mutating func updateParameters(_ link: LinkID, _ parameters: ConnectionParameters, now: Instant) {
    guard let index = upper.index(of: link) else { return }
    let handle = upper.links[index].handle
    if upper.links[index].role == .central {
      sendUpdate(handle, parameters.request, now)
    } else {
      l2cap.requestParameterUpdate(handle, parameters.request, now: now)
    }
  }

  /// Ends the request if it has not ended yet: exactly one completion in any case.
  public mutating func cancel(_ id: RequestID, now: Instant) {
    if connections.cancel(id, hci: &hci, now: now) { return emit(.completed(id, .failed(.cancelled))) }
    for index in 0..<upper.links.count {
      if let place = upper.links[index].disconnectRequests.firstIndex(of: id) {
        upper.links[index].disconnectRequests.remove(at: place)
        return emit(.completed(id, .failed(.cancelled)))
      }
      upper.links[index].client.cancel(id)
      collect(at: index)
    }
  }

  mutating func sendDisconnect(_ handle: ConnectionHandle, _ reason: HCIStatus, _ now: Instant) {
    var command = Disconnect()
    command.connectionHandle = handle
    command.reason = reason
    hci.send(command, tag: Tag.disconnect | UInt32(handle.rawValue), now: now)
  }
  private mutating func sendUpdate(
    _ handle: ConnectionHandle, _ request: ConnectionParameterUpdateRequest, _ now: Instant
  ) {
    var command = LEConnectionUpdate()
    command.connectionHandle = handle
    command.connectionIntervalMin = ConnectionInterval(rawValue: request.intervalMin)
    command.connectionIntervalMax = ConnectionInterval(rawValue: request.intervalMax)
    command.maxLatency = request.latency
    command.supervisionTimeout = SupervisionTimeout(rawValue: request.timeout)
    hci.send(command, tag: Tag.update | UInt32(handle.rawValue), now: now)
  }

  // MARK: From the controller

  mutating func handle(_ event: HCIEvent, in packet: Span<UInt8>, _ now: Instant) {
    switch event {
    case .leAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) { emit(report, in: packet) }
    case .leExtendedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) { emit(report, in: packet) }
    case .leConnectionComplete(let event):
      let parameters = ConnectionParameters(
        interval: event.connectionInterval, latency: event.peripheralLatency,
        supervisionTimeout: event.supervisionTimeout)
      connected(
        event.status, event.connectionHandle, event.role, PeerAddress(event.peerAddress, event.peerAddressType),
        parameters, now)
    case .leEnhancedConnectionComplete(let event):
      let parameters = ConnectionParameters(
        interval: event.connectionInterval, latency: event.peripheralLatency,
        supervisionTimeout: event.supervisionTimeout)
      connected(
        event.status, event.connectionHandle, event.role, PeerAddress(event.peerAddress, event.peerAddressType),
        parameters, now)
    case .disconnectionComplete(let event) where event.status == .success:
      linkDown(event.connectionHandle, event.reason, now)
    case .leConnectionUpdateComplete(let event) where event.status == .success:
      guard let index = upper.index(of: event.connectionHandle) else { return }
      let parameters = ConnectionParameters(
        interval: event.connectionInterval, latency: event.peripheralLatency,
        supervisionTimeout: event.supervisionTimeout)
      upper.links[index].parameters = parameters
      emit(.parametersChanged(upper.links[index].id, parameters))
    case .leLongTermKeyRequest(let event):
      // Until there is pairing there are no keys. Vol 4, Part E, §7.8.26.
      var command = LELongTermKeyRequestNegativeReply()
      command.connectionHandle = event.connectionHandle
      hci.send(command, tag: Tag.unanswered, now: now)
    case .leRemoteConnectionParameterRequest(let event): answer(event, now)
    case .hardwareError(let event):
      // The controller's state is unknown: Vol 4, Part E, §7.7.16 leaves only a reset.
      dropEverything(now)
      emit(.controllerFailed(.hardwareFailure))
      emit(.violation(nil, .hardwareError(event.hardwareCode)))
    default: break
    }
  }

  private mutating func emit(_ report: LEAdvertisingReport.Report, in packet: Span<UInt8>) {
    let data = keep(report.data, of: packet)
    emit(
      .advertisement(
        AdvertisementReport(
          peer: PeerAddress(report.address, report.addressType),
          isConnectable: report.eventType == .connectableScannableUndirected
            || report.eventType == .connectableDirected,
          isScannable: report.eventType == .connectableScannableUndirected || report.eventType == .scannableUndirected,
          isScanResponse: report.eventType == .scanResponse, isDirected: report.eventType == .connectableDirected,
          isLegacy: true, isTruncated: false, rssi: report.rssi == 127 ? nil : report.rssi, data: data)))
  }
  private mutating func emit(_ report: LEExtendedAdvertisingReport.Report, in packet: Span<UInt8>) {
    let data = keep(report.data, of: packet)
    emit(
      .advertisement(
        AdvertisementReport(
          peer: PeerAddress(report.address, report.addressType), isConnectable: report.connectable,
          isScannable: report.scannable, isScanResponse: report.scanResponse, isDirected: report.directed,
          isLegacy: report.legacy, isTruncated: report.dataStatus != 0, rssi: report.rssi == 127 ? nil : report.rssi,
          data: data)))
  }

  private mutating func connected(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: PeerAddress,
    _ parameters: ConnectionParameters, _ now: Instant
  ) {
    if status == .success && role == .peripheral, advertiser.connected(hci: &hci, now: now) {
      emit(.advertisingStopped)
    }
    switch connections.completed(status, role: role, hci: &hci, now: now) {
    case .nothing: break
    case .failed(let id, let failure): emit(.completed(id, .failed(failure)))
    case .unwanted: sendDisconnect(handle, .remoteUserTerminatedConnection, now)
    case .linkUp(let request):
      // A handle that is still in use here: the controller forgot to say that the old link went down.
      linkDown(handle, .unspecifiedError, now)
      lastLink += 1
      let id = LinkID(rawValue: lastLink), bearer = BearerID(rawValue: handle.rawValue)
      var configuration = BearerConfiguration()
      configuration.preferredMTU = self.configuration.preferredMTU
      configuration.queueCapacity = self.configuration.queueCapacity
      upper.links.append(
        Link(
          id: id, handle: handle, role: role, peer: peer, parameters: parameters,
          bearer: Bearer(bearer, configuration: configuration), client: Client()))
      upper.server.open(bearer)
      l2cap.open(handle, role: role, now: now)
      // Either side may ask; the central does, as soon as it can (Vol 3, Part F, §3.4.2.1).
      if role == .central { upper.links[upper.links.count - 1].bearer.exchangeMTU() }
      if let controller, controller.maximumTxOctets > 27, hci.supports(LESetDataLength.opcode) {
        var command = LESetDataLength()
        command.connectionHandle = handle
        command.txOctets = controller.maximumTxOctets
        command.txTime = controller.maximumTxTime
        hci.send(command, tag: Tag.unanswered, now: now)
      }
      emit(.linkUp(id, peer, role, parameters))
      if let request { emit(.completed(request, .connected(id))) }
    }
  }

  /// Everything that waits on the link ends, in order: values received, requests, the link itself.
  mutating func linkDown(_ handle: ConnectionHandle, _ reason: HCIStatus, _ now: Instant) {
    l2cap.close(handle)
    guard let index = upper.index(of: handle) else { return }
    upper.links[index].close()
    upper.server.close(BearerID(rawValue: handle.rawValue))
    collect(at: index)
    let link = upper.links.remove(at: index)
    emit(.linkDown(link.id, reason: reason))
    for id in link.disconnectRequests { emit(.completed(id, .disconnected)) }
    advertiser.disconnected(hci: &hci, now: now)
  }

  /// The peer's controller asks for other parameters: what is in range is accepted. Vol 4, Part E, §7.8.31, §7.8.32.
  private mutating func answer(_ event: LERemoteConnectionParameterRequest, _ now: Instant) {
    let request = ConnectionParameterUpdateRequest(
      intervalMin: event.intervalMin.rawValue, intervalMax: event.intervalMax.rawValue, latency: event.maxLatency,
      timeout: event.timeout.rawValue)
    guard request.isValid else {
      var command = LERemoteConnectionParameterRequestNegativeReply()
      command.connectionHandle = event.connectionHandle
      return hci.send(command, tag: Tag.unanswered, now: now)
    }
    var command = LERemoteConnectionParameterRequestReply()
    command.connectionHandle = event.connectionHandle
    command.intervalMin = event.intervalMin
    command.intervalMax = event.intervalMax
    command.maxLatency = event.maxLatency
    command.timeout = event.timeout
    hci.send(command, tag: Tag.unanswered, now: now)
  }

  // MARK: What L2CAP says

  mutating func handle(_ effect: L2CAPEffect, _ now: Instant) {
    switch effect {
    case .parameterUpdateRequested(let handle, let identifier, let request):
      // Out-of-range requests have been refused by L2CAP; the rest is granted. Vol 3, Part A, §4.20.
      l2cap.respondToParameterUpdate(handle, identifier: identifier, accepted: true)
      sendUpdate(handle, request, now)
    case .parameterUpdateEnded(let handle, let outcome):
      if outcome != .accepted, let index = upper.index(of: handle) {
        emit(.violation(upper.links[index].id, .parametersRejected))
      }
    case .violation(let handle, let violation):
      emit(.violation(upper.index(of: handle).map { upper.links[$0].id }, .l2cap(violation)))
    }
  }
}
