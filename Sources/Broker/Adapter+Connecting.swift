import Foundation
import NIOCore

/// How far a link is that some session wants, or that is there anyway. A device that nobody wants, and that is not linked, has
/// none.
enum Reach {
  case connecting(RequestID)
  /// Nobody wants it any more; the host has not said yet that it has stopped.
  case cancelling(RequestID)
  /// The host can do nothing for it now.
  case resting(Scheduled<Void>)
  /// The link is up, and the device may not have heard of it: Vol 6, Part B, §4.5.2.
  case establishing(LinkID, Scheduled<Void>)
  case linked(LinkID)
  case disconnecting(LinkID)

  var timer: Scheduled<Void>? {
    switch self {
    case .resting(let timer), .establishing(_, let timer): timer
    default: nil
    }
  }
  var link: LinkID? {
    switch self {
    case .establishing(let link, _), .linked(let link), .disconnecting(let link): link
    default: nil
    }
  }
}

/// What a device is to a session. One that is nothing to it has none.
enum Interest {
  case delayed(ConnectOptions, Scheduled<Void>)
  case connecting(ConnectOptions, isReconnecting: Bool)
  case connected(ConnectOptions)
  /// The session has cancelled, and waits for the end of the link; then it may want it again.
  case disconnecting(next: ConnectOptions?)

  var wantsLink: Bool {
    switch self {
    case .connecting, .connected: true
    case .delayed, .disconnecting: false
    }
  }
  var timer: Scheduled<Void>? { if case .delayed(_, let timer) = self { timer } else { nil } }
}

extension Adapter {
  // MARK: What sessions want

  func connect(_ identifier: UUID, _ options: ConnectOptions, for session: AdapterSession, _ host: isolated Host) {
    guard let peer = self.peer(identifier) else {
      return session.tell(
        .connectionFailed(
          identifier,
          BluetoothError(.invalidArgument, "The identifier \(identifier) names no device: scan for it first.")))
    }
    guard session.interests[peer] == nil || session.identifier(of: peer) == identifier else {
      return session.tell(.connectionFailed(identifier, .known(as: session.identifier(of: peer))))
    }
    session.identify(peer, as: identifier)
    switch session.interests[peer] {
    case .connected:
      session.interests[peer] = .connected(options)
      return tellConnected(peer, to: session, host)
    case .connecting(_, let isReconnecting):
      session.interests[peer] = .connecting(options, isReconnecting: isReconnecting)
      return
    case .disconnecting:
      session.interests[peer] = .disconnecting(next: options)
      return
    case .delayed(_, let timer): timer.cancel()
    case nil: break
    }
    if options.startDelay > 0 {
      // A year is for ever.
      let delay = TimeAmount.nanoseconds(Int64(min(options.startDelay, 31_536_000) * 1e9))
      let timer = schedule(after: delay) { adapter in
        adapter.withHost { host in
          guard case .delayed(let options, _) = session.interests[peer] else { return }
          session.interests[peer] = .connecting(options, isReconnecting: false)
          adapter.settle(peer, host)
        }
      }
      session.interests[peer] = .delayed(options, timer)
    } else {
      session.interests[peer] = .connecting(options, isReconnecting: false)
      settle(peer, host)
    }
  }

  func cancelConnection(_ identifier: UUID, for session: AdapterSession, _ host: isolated Host) {
    guard let peer = self.peer(identifier), let interest = session.interests[peer] else { return }
    switch interest {
    case .disconnecting(let next):
      session.interests[peer] = .disconnecting(next: nil)
      if next != nil { tellDisconnected(peer, nil, to: session) }
    case .delayed, .connecting:
      interest.timer?.cancel()
      session.interests[peer] = nil
      tellDisconnected(peer, nil, to: session)
      settle(peer, host)
    case .connected:
      session.setPort(nil, .command, of: identifier)
      let link = central.reaches[peer]?.link
      if let link { release(link, by: session, host) }
      session.interests[peer] = nil
      // Whoever hears that it is disconnected may end the program: so not before it is.
      if let link, !isWanted(peer), links[link]?.role == .central {
        session.interests[peer] = .disconnecting(next: nil)
      } else {
        tellDisconnected(peer, nil, to: session)
      }
      settle(peer, host)
    }
  }
  private func isWanted(_ peer: PeerID) -> Bool { sessions.contains { $0.interests[peer]?.wantsLink == true } }

  /// Brings the link to where the sessions want it, as far as it can be brought now.
  func settle(_ peer: PeerID, _ host: isolated Host) {
    let isWanted = self.isWanted(peer)
    switch central.reaches[peer] {
    case nil: if isWanted { seek(peer, host) }
    case .connecting(let id):
      if isWanted { return }
      central.reaches[peer] = .cancelling(id)
      central.unheard[peer] = nil
      host.cancel(id)
    case .resting(let timer):
      if isWanted { return }
      timer.cancel()
      central.reaches[peer] = nil
      central.unheard[peer] = nil
    case .establishing(let link, let timer):
      if isWanted { return }
      timer.cancel()
      drop(link, peer, host)
    case .linked(let link):
      if !isWanted, links[link]?.role == .central { return drop(link, peer, host) }
      for session in sessions {
        guard case .connecting(let options, _) = session.interests[peer] else { continue }
        session.interests[peer] = .connected(options)
        let port = try? host.sendPort(.command, on: link, capacity: 16 * 1024) { [weak session] in
          session.map { $0.tell(.readyToWrite($0.identifier(of: peer))) }
        }
        session.setPort(port, .command, of: session.identifier(of: peer))
        tellConnected(peer, to: session, host)
      }
      goOn(link, host)
    case .cancelling, .disconnecting: break
    }
  }
  private func seek(_ peer: PeerID, _ host: isolated Host) {
    let id = host.begin(.connect(peer, .balanced))
    central.connects[id] = peer
    central.reaches[peer] = .connecting(id)
  }
  private func drop(_ link: LinkID, _ peer: PeerID, _ host: isolated Host) {
    central.reaches[peer] = .disconnecting(link)
    central.disconnects[host.begin(.disconnect(link))] = link
  }
  private func rest(_ peer: PeerID, _ time: TimeAmount) {
    central.reaches[peer] = .resting(
      schedule(after: time) { adapter in
        adapter.withHost { host in
          guard case .resting = adapter.central.reaches[peer] else { return }
          adapter.central.reaches[peer] = nil
          adapter.settle(peer, host)
        }
      })
  }

  /// The device has not heard that the link is up, as happens now and then (0x3E: Vol 1, Part F, §2.58): a controller that says
  /// so each time must not be kept busy with it.
  private func retryLater(_ peer: PeerID) {
    let attempts = central.unheard[peer, default: 0] + 1
    central.unheard[peer] = attempts
    rest(peer, patience.wait(afterUnheard: attempts))
  }

  // MARK: What the host says

  func connectEnded(
    _ id: RequestID, _ peer: PeerID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host
  ) {
    defer { settle(peer, host) }
    if case .success(.linked(let link)) = result, link.peer != peer {
      // The address that was asked for has turned out to be another peer's.
      central.reaches[peer] = nil
      merge(peer, into: link.peer, host)
    }
    guard case .failure(let error) = result else { return }
    switch central.reaches[peer] {
    case .cancelling(id): central.reaches[peer] = nil
    case .connecting(id):
      central.reaches[peer] = nil
      switch error.code {
      case .busy: rest(peer, patience.seeking)
      case .cancelled: break
      case _ where error.status == .connectionFailedToBeEstablished: retryLater(peer)
      default: connectionFailed(peer, error)
      }
    // Its link has come from the other side.
    default: break
    }
  }
  /// The sessions that wait for the link hear of it, unless they have had it before and want it back.
  private func connectionFailed(_ peer: PeerID, _ error: BluetoothError) {
    for session in sessions {
      guard case .connecting(_, false) = session.interests[peer] else { continue }
      session.interests[peer] = nil
      session.tell(.connectionFailed(session.identifier(of: peer), error))
    }
    if isWanted(peer) { rest(peer, patience.seeking) }
  }
  /// The controller does not take the link down: for the sessions it has ended all the same.
  func disconnectEnded(_ link: LinkID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host) {
    guard case .failure = result, let peer = links[link]?.peer else { return }
    central.reaches[peer] = .linked(link)
    finishCancelling(peer, host)
  }
  private func finishCancelling(_ peer: PeerID, _ host: isolated Host) {
    for session in sessions {
      guard case .disconnecting(let next) = session.interests[peer] else { continue }
      session.interests[peer] = nil
      tellDisconnected(peer, nil, to: session)
      if let next { connect(session.identifier(of: peer), next, for: session, host) }
    }
  }

  /// A link is up, in either role.
  func connected(_ link: Link, _ host: isolated Host) {
    let peer = link.peer
    links.add(link)
    central.links[link.id] = CentralLink(peer)
    switch central.reaches[peer] {
    // The other side was quicker: the request ends by itself, and is nobody's.
    case .connecting(let id) where link.role == .peripheral, .cancelling(let id) where link.role == .peripheral:
      host.cancel(id)
    case .resting(let timer): timer.cancel()
    case .establishing, .linked, .disconnecting: return tellLinks()
    case .connecting, .cancelling, nil: break
    }
    if link.role == .central, host.mtu(of: link.id) ?? 23 == 23 {
      let timer = schedule(after: patience.establishing) { adapter in
        adapter.withHost { adapter.established(link.id, $0) }
      }
      central.reaches[peer] = .establishing(link.id, timer)
    } else {
      central.reaches[peer] = .linked(link.id)
      central.unheard[peer] = nil
    }
    tellLinks()
  }
  /// Everybody knows of the link.
  func isUp(_ link: LinkID, _ host: isolated Host) {
    if let peer = links[link]?.peer { settle(peer, host) }
  }
  /// The device has answered, or would be gone by now.
  private func established(_ link: LinkID, _ host: isolated Host) {
    guard let peer = links[link]?.peer, case .establishing(link, let timer) = central.reaches[peer] else { return }
    timer.cancel()
    central.reaches[peer] = .linked(link)
    central.unheard[peer] = nil
    settle(peer, host)
  }
  func mtuChanged(_ link: LinkID, _ mtu: Int, _ host: isolated Host) {
    guard let peer = links[link]?.peer else { return }
    if case .establishing(link, _) = central.reaches[peer] { return established(link, host) }
    for session in sessions {
      guard case .connected = session.interests[peer], central.reaches[peer]?.link == link else { continue }
      session.tell(.longestWriteChanged(session.identifier(of: peer), Self.longestWrite(mtu)))
    }
  }

  /// The link's peer has told its identity address: what has been known by that address is this peer.
  func identified(_ link: LinkID, as address: PeerAddress, _ host: isolated Host) {
    let other = PeerID(address)
    guard let peer = links[link]?.peer, peer != other, central.reaches[other]?.link == nil else { return }
    merge(other, into: peer, host)
  }
  /// Two peers are one device. It goes on as `peer`; a session that has asked for it as `other` goes on hearing of that one.
  private func merge(_ other: PeerID, into peer: PeerID, _ host: isolated Host) {
    for (alias, known) in central.aliases where known == other { central.aliases[alias] = peer }
    central.aliases[other] = peer
    central.aliases[peer] = nil
    if central.names[peer] == nil, let name = central.names[other] { _ = central.names.set(name, of: peer) }
    for session in sessions {
      guard let interest = session.interests.removeValue(forKey: other) else { continue }
      interest.timer?.cancel()
      let identifier = session.identifier(of: other)
      if session.interests[peer] != nil {
        session.tell(.connectionFailed(identifier, .known(as: session.identifier(of: peer))))
        continue
      }
      session.identify(peer, as: identifier)
      if case .delayed(let options, _) = interest {
        session.interests[peer] = .connecting(options, isReconnecting: false)
      } else {
        session.interests[peer] = interest
      }
    }
    settle(other, host)
    settle(peer, host)
  }

  func disconnected(_ id: LinkID, _ reason: HCIStatus, _ host: isolated Host) {
    guard let peer = links[id]?.peer else { return }
    links.remove(id)
    central.links[id] = nil
    central.operations = central.operations.filter { $0.value.link != id }
    central.configurations = central.configurations.filter { $0.value.link != id }
    let reach = central.reaches[peer]
    guard reach?.link == id else { return tellLinks() }
    reach?.timer?.cancel()
    // There may be another one, which it has made.
    central.reaches[peer] = links[peer].map { Reach.linked($0.id) }
    let error = BluetoothError.linkWentDown(reason)
    for session in sessions {
      session.setPort(nil, .command, of: session.identifier(of: peer))
      session.setPort(nil, .notification, of: UUID(peer))
      guard case .connected(let options) = session.interests[peer] else { continue }
      session.interests[peer] = options.reconnects ? .connecting(options, isReconnecting: true) : nil
      tellDisconnected(peer, error, isReconnecting: options.reconnects, to: session)
    }
    tellLinks()
    if case .establishing = reach {
      if reason != .connectionFailedToBeEstablished {
        connectionFailed(peer, error)
      } else if central.reaches[peer] == nil, isWanted(peer) {
        retryLater(peer)
      }
    }
    finishCancelling(peer, host)
    settle(peer, host)
  }

  // MARK: Telling

  static func longestWrite(_ mtu: Int) -> Int { mtu - 3 }

  private func tellConnected(_ peer: PeerID, to session: AdapterSession, _ host: isolated Host) {
    let mtu = central.reaches[peer]?.link.flatMap { host.mtu(of: $0) } ?? 23
    session.tell(
      .connected(session.identifier(of: peer), name: central.names[peer], longestWrite: Self.longestWrite(mtu)))
  }
  private func tellDisconnected(
    _ peer: PeerID, _ error: BluetoothError?, isReconnecting: Bool = false, to session: AdapterSession
  ) {
    session.tell(
      .disconnected(
        session.identifier(of: peer), error, isReconnecting: isReconnecting,
        seconds: Date().timeIntervalSinceReferenceDate))
  }
  /// All links, to all sessions.
  func tellLinks() {
    for session in sessions { session.tell(linkedPeers(for: session)) }
  }
  func tellLinks(to session: AdapterSession) {
    if !links.all.isEmpty { session.tell(linkedPeers(for: session)) }
  }
  private func linkedPeers(for session: AdapterSession) -> BrokerEvent {
    .linkedPeers(
      links.all.map {
        LinkedPeer(
          peer: session.identifier(of: $0.peer), name: central.names[$0.peer],
          services: central.links[$0.id]?.services ?? [])
      })
  }
}

extension BluetoothError {
  /// The session has asked for this device under another identifier.
  fileprivate static func known(as identifier: UUID) -> BluetoothError {
    BluetoothError(.busy, "This device is in use as \(identifier), which it was known by before: use that identifier.")
  }
}
