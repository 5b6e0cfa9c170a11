import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

// Links: how they come up, and how they go down.
extension HostCore {
  // MARK: From above

  /// Disconnects a link; the peer sees `reason`. Ends with `.linkDown`, then `.completed(id, .disconnected)`; or with
  /// `.completed(id, .failed(…))` if the controller refuses.
  public mutating func disconnect(
    _ link: LinkID, reason: HCIStatus = .remoteUserTerminatedConnection, id: RequestID? = nil, now: Instant
  ) {
    guard let index = upper.index(of: link) else {
      if let id { emit(.completed(id, .failed(.noSuchLink))) }
      return
    }
    disconnect(at: index, reason, id: id, now)
    drain(now)
  }

  // MARK: Up

  /// LE Connection Complete and LE Enhanced Connection Complete: Vol 4, Part E, §7.7.65.1, §7.7.65.10.
  mutating func connectionComplete(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: PeerAddress,
    onAir: PeerAddress, _ parameters: ConnectionParameters, _ now: Instant
  ) {
    // This ends directed advertising, not an attempt of ours: §7.8.9.
    if status == .advertisingTimeout {
      advertiser.timedOut(hci: &hci, now: now)
      return reportAdvertising()
    }
    switch connections.completed(status, role, peer, hci: &hci, now: now) {
    case .nothing: break
    case .unwanted: sendDisconnect(handle, .remoteUserTerminatedConnection, now)
    case .linkUp(let request, let wanted):
      let id = linkUp(handle, role, peer, onAir, parameters, now)
      if let request { emit(.completed(request, .connected(id))) }
      if let wanted, wanted != parameters { updateParameters(id, wanted, now: now) }
      if role == .peripheral {
        advertiser.connected(hci: &hci, now: now)
        reportAdvertising()
      }
    }
    reportFailedConnections()
  }
  private mutating func linkUp(
    _ handle: ConnectionHandle, _ role: LinkRole, _ address: PeerAddress, _ peerOnAir: PeerAddress,
    _ parameters: ConnectionParameters, _ now: Instant
  ) -> LinkID {
    lastLink &+= 1
    let id = LinkID(rawValue: lastLink), bearer = upper.freeBearer
    let peer = peers.id(of: address), own = role == .peripheral ? advertiser.addressOfNextLink : ownAddress
    var link = Link(
      id: id, handle: handle, role: role, peer: peer, address: address, peerOnAir: peerOnAir, ownOnAir: own,
      parameters: parameters,
      bearers: LinkBearers(Bearer(bearer, configuration: configuration.bearer)),
      protection: makeProtection(of: peer, role, own: own, peers: peerOnAir))
    if configuration.enhancedBearers > 0 { link.client.features.insert(.enhancedATTBearer) }
    link.client.open(bearer)
    // Either side may start the exchange; the central does, as soon as it can (Vol 3, Part F, §3.4.2.1).
    link.exchangesMTU = configuration.exchangesMTU
    if role == .central, link.exchangesMTU { link.exchangeMTU() }
    upper.append(link)
    upper.server.open(bearer)
    l2cap.open(handle, role: role, channels: Link.channels, now: now)
    protect(at: upper.links.count - 1, now)
    note(at: upper.links.count - 1)
    if let controller, controller.maximumTxOctets > 27, hci.supports(LESetDataLength.opcode) {
      let command = LESetDataLength.with {
        $0.connectionHandle = handle
        $0.txOctets = controller.maximumTxOctets
        $0.txTime = controller.maximumTxTime
      }
      begin(.dataLengthUpdate, at: upper.links.count - 1, now)
      hci.send(command, tag: Sender.dataLength.tag(handle), mayBeRefused: false, now: now)
    }
    emit(.linkUp(id, peer, role, parameters))
    return id
  }
  /// LE Advertising Set Terminated names the set that has led to a link, and so our address on that link's air, which
  /// pairing computes with: Vol 3, Part H, §2.2.3, §2.2.7; Vol 4, Part E, §7.7.65.18.
  ///
  /// The set still has the address of the connection: a change of private addresses, or of the set's own, first
  /// disables the set, and the answer to that command follows this event.
  mutating func linkUp(_ handle: ConnectionHandle, from advertisingHandle: UInt8) {
    guard let index = upper.index(of: handle), let own = advertiser.address(of: advertisingHandle) else { return }
    withLink(at: index) { $0.cameUp(from: own) }
  }

  // MARK: Down

  /// Ends everything on the link, in order: received values, requests, subscriptions, the link itself.
  mutating func linkDown(_ handle: ConnectionHandle, _ reason: HCIStatus, _ now: Instant) {
    // Has no effect where the event itself has closed it.
    hci.credits.close(handle)
    l2cap.close(handle)
    if let index = upper.index(of: handle) {
      withLink(at: index) { $0.close() }
      unprotect(at: index, reason, now)
      for id in withLink(at: index, { $0.takeRequests() }) { emit(.completed(id, .failed(.noSuchLink))) }
      collect(at: index)
      upper.closeServer(at: index)
      collectServer()
      let link = upper.remove(at: index)
      // What L2CAP says of the link concerns nobody any more.
      while let effect = l2cap.nextEffect() { self.handle(effect, now) }
      link.streams.forEach { emit(.channelClosed(link.id, $0, .linkClosed)) }
      forgetUnneeded(link.peer, at: link.address)
      // The local host has ended it, for this reason. Controllers report 0x16, or repeat the reason of the command.
      let isOurs = reason == .connectionTerminatedByLocalHost || reason == .authenticationFailure
      emit(.linkDown(link.id, reason: (isOurs ? link.protection.failure : nil) ?? reason))
      for id in link.disconnectRequests { emit(.completed(id, .disconnected)) }
    }
    advertiser.disconnected(hci: &hci, now: now)
    reportAdvertising()
    connections.disconnected(hci: &hci, now: now)
  }
  /// Sends the command once for each link, because the controller would refuse a second one.
  mutating func disconnect(at index: Int, _ reason: HCIStatus, id: RequestID? = nil, _ now: Instant) {
    guard let handle = withLink(at: index, { $0.beginDisconnecting(for: id) }) else { return }
    // Nothing follows the command: the peer may not get it, and nobody waits for what comes of it.
    hci.credits.stop(handle)
    sendDisconnect(handle, reason, now)
  }
  private mutating func sendDisconnect(_ handle: ConnectionHandle, _ reason: HCIStatus, _ now: Instant) {
    let command = Disconnect.with {
      $0.connectionHandle = handle
      $0.reason = reason
    }
    hci.send(command, tag: Sender.disconnect.tag(handle), mayBeRefused: false, now: now)
  }
  /// Vol 4, Part E, §7.1.6.
  mutating func disconnectRefused(_ handle: ConnectionHandle, _ outcome: CommandOutcome, _ now: Instant) {
    let status = outcome.status
    // The controller has no such link: it went down without an event, or the event has already arrived.
    if status == .unknownConnectionIdentifier { return linkDown(handle, .connectionTerminatedByLocalHost, now) }
    guard let index = upper.index(of: handle) else { return emit(.violation(nil, .disconnectRefused(status))) }
    hci.credits.resume(handle)
    let (link, requests) = withLink(at: index) { ($0.id, $0.resume()) }
    emit(.violation(link, .disconnectRefused(status)))
    for id in requests { emit(.completed(id, .failed(outcome.failure(of: .disconnect)))) }
  }
}
