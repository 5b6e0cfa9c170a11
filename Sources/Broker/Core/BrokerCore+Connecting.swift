import BindruneWire

/// The state of the link to a device that a session wants or that is linked. Other devices have none.
enum Reach: Equatable {
  case connecting(RequestID)
  /// No session wants it any more; the host has not confirmed the cancellation yet.
  case cancelling(RequestID)
  /// The next attempt is due at `Timer.retry`.
  case awaitingRetry
  /// The link is up, but the device may not have received the connection request, until `Timer.establish`: Vol 6, Part
  /// B, §4.5.2.
  case establishing(LinkID)
  case linked(LinkID)
  case disconnecting(LinkID)

  var link: LinkID? {
    switch self {
    case .establishing(let link), .linked(let link), .disconnecting(let link): link
    case .connecting, .cancelling, .awaitingRetry: nil
    }
  }
}

/// What a session wants of a device. Without an interest it wants nothing.
enum Interest {
  /// Until `Timer.delay`.
  case delayed(ConnectOptions)
  case connecting(ConnectOptions, isReconnecting: Bool)
  case connected(ConnectOptions)
  /// The session has cancelled, and waits for the end of the link. `next`: it wants to connect again after that.
  case disconnecting(next: ConnectOptions?)

  /// Nil: the session has cancelled.
  var options: ConnectOptions? {
    switch self {
    case .delayed(let options), .connecting(let options, _), .connected(let options): options
    case .disconnecting(let next): next
    }
  }
  var wantsLink: Bool {
    switch self {
    case .connecting, .connected: true
    case .delayed, .disconnecting: false
    }
  }
}

extension BrokerCore {
  // MARK: What sessions want

  mutating func connect(_ identifier: UUID, _ options: ConnectOptions, for session: SessionID) {
    guard let peer = self.peer(identifier) else {
      return deliver(
        to: session,
        .connectionFailed(
          identifier,
          BluetoothError(.invalidArgument, "The identifier \(identifier) names no device: scan for it first.")))
    }
    let interest = sessions[session]?.interests[peer]
    guard interest == nil || self.identifier(of: peer, for: session) == identifier else {
      return deliver(
        to: session, .connectionFailed(identifier, .known(as: self.identifier(of: peer, for: session))))
    }
    identify(peer, as: identifier, for: session)
    switch interest {
    case .connected:
      sessions[session]?.interests[peer] = .connected(options)
      return reportConnected(peer, to: session)
    case .connecting(_, let isReconnecting):
      sessions[session]?.interests[peer] = .connecting(options, isReconnecting: isReconnecting)
      return
    case .disconnecting:
      sessions[session]?.interests[peer] = .disconnecting(next: options)
      return
    case .delayed: timers.cancel(.delay(session, peer))
    case nil: break
    }
    if options.startDelay > 0 {
      // At most a year.
      timers.set(.delay(session, peer), at: now + .seconds(min(options.startDelay, 31_536_000)))
      sessions[session]?.interests[peer] = .delayed(options)
    } else {
      sessions[session]?.interests[peer] = .connecting(options, isReconnecting: false)
      updateLink(peer)
    }
  }
  /// The session uses this identifier for the peer from now on.
  private mutating func identify(_ peer: PeerID, as identifier: UUID, for session: SessionID) {
    sessions[session]?.identifiers[peer] = identifier == UUID(peer) ? nil : identifier
  }
  mutating func startDelayEnded(_ peer: PeerID, for session: SessionID) {
    guard case .delayed(let options) = sessions[session]?.interests[peer] else { return }
    sessions[session]?.interests[peer] = .connecting(options, isReconnecting: false)
    updateLink(peer)
  }

  mutating func cancelConnection(_ identifier: UUID, for session: SessionID) {
    guard let peer = self.peer(identifier), let interest = sessions[session]?.interests[peer] else { return }
    switch interest {
    case .disconnecting(let next):
      sessions[session]?.interests[peer] = .disconnecting(next: nil)
      if next != nil { reportDisconnected(peer, nil, to: session) }
    case .delayed, .connecting:
      timers.cancel(.delay(session, peer))
      sessions[session]?.interests[peer] = nil
      reportDisconnected(peer, nil, to: session)
      updateLink(peer)
    case .connected:
      put(.takePort(PortName(session: session, kind: .command, peer: identifier)))
      let link = central.reaches[peer]?.link
      if let link { release(link, by: session) }
      sessions[session]?.interests[peer] = nil
      // The link ends first, because an application may end the process when it gets `.disconnected`.
      if let link, !isWanted(peer), links[link]?.role == .central {
        sessions[session]?.interests[peer] = .disconnecting(next: nil)
      } else {
        reportDisconnected(peer, nil, to: session)
      }
      updateLink(peer)
    }
  }
  private func isWanted(_ peer: PeerID) -> Bool {
    sessions.ids.contains { sessions[$0]?.interests[peer]?.wantsLink == true }
  }

  /// Makes or ends the link as the sessions want it, as far as that is possible now.
  mutating func updateLink(_ peer: PeerID) {
    let isWanted = self.isWanted(peer)
    switch central.reaches[peer] {
    case nil: if isWanted { seek(peer) } else { central.unheard[peer] = nil }
    case .connecting(let id):
      if isWanted { return }
      central.reaches[peer] = .cancelling(id)
      command(.cancel(id))
    case .awaitingRetry:
      if isWanted { return }
      timers.cancel(.retry(peer))
      central.reaches[peer] = nil
      central.unheard[peer] = nil
    case .establishing(let link):
      if isWanted { return }
      timers.cancel(.establish(link))
      drop(link, peer)
    case .linked(let link):
      if !isWanted, links[link]?.role == .central { return drop(link, peer) }
      for session in sessions.ids {
        guard case .connecting(let options, _) = sessions[session]?.interests[peer] else { continue }
        sessions[session]?.interests[peer] = .connected(options)
        let port = PortName(session: session, kind: .command, peer: identifier(of: peer, for: session))
        put(.lendPort(port, on: link))
        reportConnected(peer, to: session)
        alert(.connection, of: peer, options, session)
      }
      continueErrand(link)
    case .cancelling, .disconnecting: break
    }
  }
  private mutating func seek(_ peer: PeerID) {
    let id = begin(.connect(peer, .balanced))
    central.connects[id] = peer
    central.reaches[peer] = .connecting(id)
  }
  private mutating func drop(_ link: LinkID, _ peer: PeerID) {
    central.reaches[peer] = .disconnecting(link)
    let id = begin(.disconnect(link))
    central.disconnects[id] = link
  }
  private mutating func retry(_ peer: PeerID, after time: Duration) {
    central.reaches[peer] = .awaitingRetry
    timers.set(.retry(peer), at: now + time)
  }
  mutating func retryIsDue(_ peer: PeerID) {
    guard case .awaitingRetry = central.reaches[peer] else { return }
    central.reaches[peer] = nil
    updateLink(peer)
  }

  /// The device has not received the connection request, as happens now and then (0x3E: Vol 1, Part F, §2.58). The
  /// delay grows, so that a controller that reports this every time is not kept busy.
  private mutating func retryLater(_ peer: PeerID) {
    let attempts = central.unheard[peer, default: 0] + 1
    central.unheard[peer] = attempts
    retry(peer, after: patience.wait(afterUnheard: attempts))
  }

  // MARK: Events of the host

  mutating func connectEnded(_ id: RequestID, _ peer: PeerID, _ result: Result<HostAnswer, BluetoothError>) {
    if case .success(.linked(let other)) = result, other != peer {
      // The requested address belongs to another peer.
      central.reaches[peer] = nil
      merge(peer, into: other)
    }
    if case .failure(let error) = result { connectFailed(id, peer, error) }
    updateLink(peer)
  }
  private mutating func connectFailed(_ id: RequestID, _ peer: PeerID, _ error: BluetoothError) {
    switch central.reaches[peer] {
    case .cancelling(id): central.reaches[peer] = nil
    case .connecting(id):
      central.reaches[peer] = nil
      switch error.code {
      case .busy: retry(peer, after: patience.seeking)
      case .cancelled: break
      case _ where error.status == .connectionFailedToBeEstablished: retryLater(peer)
      default: connectionFailed(peer, error)
      }
    // The other side has made the link.
    case nil, .connecting, .cancelling, .awaitingRetry, .establishing, .linked, .disconnecting: break
    }
  }
  /// Reports the failure to the sessions that wait for the link, except to those that reconnect.
  private mutating func connectionFailed(_ peer: PeerID, _ error: BluetoothError) {
    for session in sessions.ids {
      guard case .connecting(_, false) = sessions[session]?.interests[peer] else { continue }
      sessions[session]?.interests[peer] = nil
      deliver(to: session, .connectionFailed(identifier(of: peer, for: session), error))
    }
    if isWanted(peer) { retry(peer, after: patience.seeking) }
  }
  /// The controller has refused to take the link down. For the sessions the connection has ended all the same.
  mutating func disconnectEnded(_ link: LinkID, _ result: Result<HostAnswer, BluetoothError>) {
    guard case .failure = result, let peer = links[link]?.peer else { return }
    central.reaches[peer] = .linked(link)
    finishCancelling(peer)
    // Sessions that want it again meanwhile are connected at once.
    if isWanted(peer) { updateLink(peer) }
  }
  private mutating func finishCancelling(_ peer: PeerID) {
    for session in sessions.ids {
      guard case .disconnecting(let next) = sessions[session]?.interests[peer] else { continue }
      sessions[session]?.interests[peer] = nil
      reportDisconnected(peer, nil, to: session)
      if let next { connect(identifier(of: peer, for: session), next, for: session) }
    }
  }

  /// A link is up, in either role.
  mutating func connected(_ link: BrokerLink) {
    let peer = link.peer
    central.aliases.remove(peer)
    links.add(link)
    central.links[link.id] = CentralLink(peer)
    switch central.reaches[peer] {
    // The other side has connected first: our request is not needed any more.
    case .connecting(let id) where link.role == .peripheral, .cancelling(let id) where link.role == .peripheral:
      command(.cancel(id))
    case .awaitingRetry: timers.cancel(.retry(peer))
    case .establishing, .linked, .disconnecting: return reportLinks()
    case .connecting, .cancelling, nil: break
    }
    if link.role == .central, link.mtu == 23 {
      timers.set(.establish(link.id), at: now + patience.establishing)
      central.reaches[peer] = .establishing(link.id)
    } else {
      central.reaches[peer] = .linked(link.id)
      central.unheard[peer] = nil
    }
    reportLinks()
  }
  /// The device has answered, or has kept the link for long enough.
  mutating func established(_ link: LinkID) {
    guard let peer = links[link]?.peer, central.reaches[peer] == .establishing(link) else { return }
    timers.cancel(.establish(link))
    central.reaches[peer] = .linked(link)
    central.unheard[peer] = nil
    updateLink(peer)
  }
  mutating func mtuChanged(_ link: LinkID, _ mtu: Int) {
    links.setMTU(mtu, of: link)
    guard let peer = links[link]?.peer else { return }
    if central.reaches[peer] == .establishing(link) { return established(link) }
    for session in sessions.ids {
      guard case .connected = sessions[session]?.interests[peer], central.reaches[peer]?.link == link else { continue }
      deliver(to: session, .longestWriteChanged(identifier(of: peer, for: session), Self.longestWrite(mtu)))
    }
  }

  /// The link's peer has this identity address: what is known under that address belongs to this peer.
  mutating func identified(_ link: LinkID, as address: PeerAddress) {
    let other = PeerID(address)
    guard let peer = links[link]?.peer, peer != other, central.reaches[other]?.link == nil else { return }
    merge(other, into: peer)
  }
  /// Two peers are one device, which is `peer` from now on. A session that knows it as `other` keeps that identifier.
  private mutating func merge(_ other: PeerID, into peer: PeerID) {
    var needed = Set(central.reaches.keys)
    for session in sessions.ids { needed.formUnion((sessions[session]?.interests ?? [:]).keys) }
    central.aliases.merge(other, into: peer) { needed.contains($0) }
    central.names.merge(other, into: peer)
    for session in sessions.ids {
      guard let interest = sessions[session]?.interests.removeValue(forKey: other) else { continue }
      timers.cancel(.delay(session, other))
      let identifier = identifier(of: other, for: session)
      if sessions[session]?.interests[peer] != nil {
        deliver(to: session, .connectionFailed(identifier, .known(as: self.identifier(of: peer, for: session))))
        continue
      }
      identify(peer, as: identifier, for: session)
      if case .delayed(let options) = interest {
        sessions[session]?.interests[peer] = .connecting(options, isReconnecting: false)
      } else {
        sessions[session]?.interests[peer] = interest
      }
    }
    updateLink(other)
    updateLink(peer)
  }

  mutating func disconnected(_ id: LinkID, _ reason: HCIStatus) {
    guard let peer = links[id]?.peer else { return }
    let encryptionError = central.links[id]?.encryptionError
    let hasLostKey = encryptionError?.status == .pinOrKeyMissing
    links.remove(id)
    central.links[id] = nil
    central.operations = central.operations.filter { $0.value.link != id }
    central.parts = central.parts.filter { central.operations[$0.value] != nil }
    central.configurations = central.configurations.filter { $0.value.link != id }
    let reach = central.reaches[peer]
    guard reach?.link == id else { return reportLinks() }
    timers.cancel(.establish(id))
    // The peer may have made another link.
    central.reaches[peer] = links[peer].map { Reach.linked($0.id) }
    let error = encryptionError ?? BluetoothError.linkWentDown(reason)
    for session in sessions.ids {
      put(.takePort(PortName(session: session, kind: .command, peer: identifier(of: peer, for: session))))
      takeNotificationPort(of: UUID(peer), from: session)
      guard case .connected(let options) = sessions[session]?.interests[peer] else { continue }
      // A device without the key would be lost again at once.
      let reconnects = options.reconnects && !hasLostKey
      sessions[session]?.interests[peer] = reconnects ? .connecting(options, isReconnecting: true) : nil
      reportDisconnected(peer, error, isReconnecting: reconnects, to: session)
      alert(.disconnection, of: peer, options, session)
    }
    reportLinks()
    if hasLostKey {
      connectionFailed(peer, error)
    } else if case .establishing = reach {
      if reason != .connectionFailedToBeEstablished {
        connectionFailed(peer, error)
      } else if central.reaches[peer] == nil, isWanted(peer) {
        retryLater(peer)
      }
    }
    finishCancelling(peer)
    updateLink(peer)
  }

  /// The link ends, and is not encrypted: sessions would take it for a protected one. The host ends it too; the
  /// sessions get this error.
  mutating func encryptionFailed(_ id: LinkID, _ status: HCIStatus) {
    let error: BluetoothError
    switch status {
    case .pinOrKeyMissing: error = .keyIsLost
    case .lmpOrLLResponseTimeout: error = .encryptionTimedOut
    default: error = .notEncrypted(status)
    }
    guard let link = links[id] else { return }
    switch central.reaches[link.peer] {
    case .establishing(id): timers.cancel(.establish(id))
    case .linked(id): break
    default: return
    }
    central.links[id]?.encryptionError = error
    drop(id, link.peer)
  }

  // MARK: Events for sessions

  static func longestWrite(_ mtu: Int) -> Int { mtu - 3 }

  private mutating func reportConnected(_ peer: PeerID, to session: SessionID) {
    let mtu = central.reaches[peer]?.link.flatMap { links[$0]?.mtu } ?? 23
    deliver(
      to: session,
      .connected(
        identifier(of: peer, for: session), name: central.names[peer], longestWrite: Self.longestWrite(mtu)))
  }
  private mutating func reportDisconnected(
    _ peer: PeerID, _ error: BluetoothError?, isReconnecting: Bool = false, to session: SessionID
  ) {
    deliver(
      to: session,
      .disconnected(identifier(of: peer, for: session), error, isReconnecting: isReconnecting, seconds: 0))
  }
  /// All links, to all sessions.
  mutating func reportLinks() {
    for session in sessions.ids { deliver(to: session, linkedPeers(for: session)) }
  }
  func linkedPeers(for session: SessionID) -> BrokerEvent {
    .linkedPeers(
      links.all.map {
        LinkedPeer(
          peer: identifier(of: $0.peer, for: session), name: central.names[$0.peer],
          services: central.links[$0.id]?.services ?? [])
      })
  }
}

extension BluetoothError {
  fileprivate static var keyIsLost: BluetoothError {
    BluetoothError(
      .pairing,
      "The device no longer has the key of the bond: remove the bond with \"bindrune bonds\", and pair again.",
      status: .pinOrKeyMissing)
  }
  fileprivate static var encryptionTimedOut: BluetoothError {
    BluetoothError(
      .pairing, "The device did not answer when the link was to be encrypted: connect again.",
      status: .lmpOrLLResponseTimeout)
  }
  fileprivate static func notEncrypted(_ status: HCIStatus) -> BluetoothError {
    BluetoothError(
      .pairing, "The link to this bonded device could not be encrypted, \(status): connect again.", status: status)
  }
  /// The session has asked for this device under another identifier.
  fileprivate static func known(as identifier: UUID) -> BluetoothError {
    BluetoothError(.busy, "This device is in use as \(identifier), which it was known by before: use that identifier.")
  }
}
