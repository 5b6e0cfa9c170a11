import Foundation
import NIOCore

/// How far a link is that some session wants, or that is there anyway. A device that nobody wants, and that is not linked, has
/// none.
enum Reach {
  /// The host seeks as many as it can: see `Central.waiting`.
  case queued
  case connecting(RequestID)
  /// Nobody wants it any more, or others have their turn; the host has not said yet that it has stopped.
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

  func connect(_ peer: UUID, _ options: ConnectOptions, for session: AdapterSession, _ host: isolated Host) {
    guard let address = PeerAddress(peer) else {
      return session.tell(
        .connectionFailed(
          peer, BluetoothError(.invalidArgument, "The identifier \(peer) names no device: scan for it first.")))
    }
    switch session.interests[address] {
    case .connected:
      session.interests[address] = .connected(options)
      return tellConnected(address, to: session, host)
    case .connecting(_, let isReconnecting):
      session.interests[address] = .connecting(options, isReconnecting: isReconnecting)
      return
    case .disconnecting:
      session.interests[address] = .disconnecting(next: options)
      return
    case .delayed(_, let timer): timer.cancel()
    case nil: break
    }
    if options.startDelay > 0 {
      // A year is for ever.
      let delay = TimeAmount.nanoseconds(Int64(min(options.startDelay, 31_536_000) * 1e9))
      let timer = schedule(after: delay) { adapter in
        adapter.withHost { host in
          guard case .delayed(let options, _) = session.interests[address] else { return }
          session.interests[address] = .connecting(options, isReconnecting: false)
          adapter.settle(address, host)
        }
      }
      session.interests[address] = .delayed(options, timer)
    } else {
      session.interests[address] = .connecting(options, isReconnecting: false)
      settle(address, host)
    }
  }

  func cancelConnection(_ peer: UUID, for session: AdapterSession, _ host: isolated Host) {
    guard let address = PeerAddress(peer), let interest = session.interests[address] else { return }
    switch interest {
    case .disconnecting(let next):
      session.interests[address] = .disconnecting(next: nil)
      if next != nil { tellDisconnected(address, nil, to: session) }
    case .delayed, .connecting:
      interest.timer?.cancel()
      session.interests[address] = nil
      tellDisconnected(address, nil, to: session)
      settle(address, host)
    case .connected:
      session.setPort(nil, .command, of: peer)
      let link = central.reaches[address]?.link
      if let link { release(link, by: session, host) }
      session.interests[address] = nil
      // Whoever hears that it is disconnected may end the program: so not before it is.
      if let link, !isWanted(address), links[link]?.role == .central {
        session.interests[address] = .disconnecting(next: nil)
      } else {
        tellDisconnected(address, nil, to: session)
      }
      settle(address, host)
    }
  }
  private func isWanted(_ peer: PeerAddress) -> Bool { sessions.contains { $0.interests[peer]?.wantsLink == true } }

  /// Brings the link to where the sessions want it, as far as it can be brought now.
  func settle(_ peer: PeerAddress, _ host: isolated Host) {
    let isWanted = self.isWanted(peer)
    switch central.reaches[peer] {
    case nil: if isWanted { seek(peer, host) }
    case .queued:
      if isWanted { return }
      central.waiting.removeAll { $0 == peer }
      central.reaches[peer] = nil
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
          session?.tell(.readyToWrite(UUID(peer)))
        }
        session.setPort(port, .command, of: UUID(peer))
        tellConnected(peer, to: session, host)
      }
      goOn(link, host)
    case .cancelling, .disconnecting: break
    }
  }
  private func seek(_ peer: PeerAddress, _ host: isolated Host) {
    guard central.connects.count < Central.capacity else {
      central.waiting.append(peer)
      central.reaches[peer] = .queued
      return takeTurns()
    }
    let id = host.begin(.connect(peer, .balanced))
    central.connects[id] = peer
    central.reaches[peer] = .connecting(id)
  }
  private func drop(_ link: LinkID, _ peer: PeerAddress, _ host: isolated Host) {
    central.reaches[peer] = .disconnecting(link)
    central.disconnects[host.begin(.disconnect(link))] = link
  }
  private func rest(_ peer: PeerAddress, _ time: TimeAmount) {
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
  private func retryLater(_ peer: PeerAddress) {
    let attempts = central.unheard[peer, default: 0] + 1
    central.unheard[peer] = attempts
    rest(peer, patience.wait(afterUnheard: attempts))
  }

  // MARK: Room

  /// While devices wait for room, the one that has been sought for longest makes some.
  private func takeTurns() {
    guard central.turn == nil else { return }
    central.turn = schedule(after: patience.turn) { adapter in
      adapter.withHost { host in
        adapter.central.turn = nil
        guard !adapter.central.waiting.isEmpty else { return }
        let sought = adapter.central.connects.keys.sorted { $0.rawValue < $1.rawValue }
        for id in sought {
          guard let peer = adapter.central.connects[id], case .connecting(id) = adapter.central.reaches[peer] else {
            continue
          }
          adapter.central.reaches[peer] = .cancelling(id)
          host.cancel(id)
          break
        }
        adapter.takeTurns()
      }
    }
  }
  private func fillRoom(_ host: isolated Host) {
    while central.connects.count < Central.capacity, !central.waiting.isEmpty {
      let peer = central.waiting.removeFirst()
      central.reaches[peer] = nil
      settle(peer, host)
    }
  }

  // MARK: What the host says

  func connectEnded(
    _ id: RequestID, _ peer: PeerAddress, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host
  ) {
    // Others come first: a device whose turn is over waits behind them.
    defer { settle(peer, host) }
    fillRoom(host)
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
  private func connectionFailed(_ peer: PeerAddress, _ error: BluetoothError) {
    for session in sessions {
      guard case .connecting(_, false) = session.interests[peer] else { continue }
      session.interests[peer] = nil
      session.tell(.connectionFailed(UUID(peer), error))
    }
    if isWanted(peer) { rest(peer, patience.seeking) }
  }
  /// The controller does not take the link down: for the sessions it has ended all the same.
  func disconnectEnded(_ link: LinkID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host) {
    guard case .failure = result, let peer = links[link]?.peer else { return }
    central.reaches[peer] = .linked(link)
    finishCancelling(peer, host)
  }
  private func finishCancelling(_ peer: PeerAddress, _ host: isolated Host) {
    for session in sessions {
      guard case .disconnecting(let next) = session.interests[peer] else { continue }
      session.interests[peer] = nil
      tellDisconnected(peer, nil, to: session)
      if let next { connect(UUID(peer), next, for: session, host) }
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
    case .queued: central.waiting.removeAll { $0 == peer }
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
      session.tell(.longestWriteChanged(UUID(peer), Self.longestWrite(mtu)))
    }
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
      session.setPort(nil, .command, of: UUID(peer))
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

  private func tellConnected(_ peer: PeerAddress, to session: AdapterSession, _ host: isolated Host) {
    let mtu = central.reaches[peer]?.link.flatMap { host.mtu(of: $0) } ?? 23
    session.tell(.connected(UUID(peer), name: central.names[peer], longestWrite: Self.longestWrite(mtu)))
  }
  private func tellDisconnected(
    _ peer: PeerAddress, _ error: BluetoothError?, isReconnecting: Bool = false, to session: AdapterSession
  ) {
    session.tell(
      .disconnected(
        UUID(peer), error, isReconnecting: isReconnecting, seconds: Date().timeIntervalSinceReferenceDate))
  }
  /// All links, to all sessions.
  func tellLinks() {
    let event = linkedPeers
    for session in sessions { session.tell(event) }
  }
  func tellLinks(to session: AdapterSession) {
    if !links.all.isEmpty { session.tell(linkedPeers) }
  }
  private var linkedPeers: BrokerEvent {
    .linkedPeers(
      links.all.map {
        LinkedPeer(
          peer: UUID($0.peer), name: central.names[$0.peer], services: central.links[$0.id]?.services ?? [])
      })
  }
}
