import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI

// Requests to connect. Vol 3, Part C, §9.3.
extension HostCore {
  // MARK: From above

  /// Ends with `.completed(id, …)`, after `.linkUp` if it succeeds. Any number of requests may wait, for 1,024 peers at
  /// most; an absent peer delays no other. Without `timeout` it waits without limit. `.busy`: there is a link with this
  /// peer already, or a request for one, or too many peers are wanted.
  public mutating func connect(
    to peer: PeerAddress, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    connect(to: [peer], parameters, timeout: timeout, id: id, now: now)
  }
  /// Connects to a peer by its identity address, or by the address by which it became known.
  public mutating func connect(
    to peer: PeerID, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    connect(to: [peers.address(of: peer)], parameters, timeout: timeout, id: id, now: now)
  }
  /// Connects to the first of `peers` that is reached, and to no other.
  public mutating func connect(
    to peers: [PeerAddress], _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    guard phase == .running else { return emit(.completed(id, .failed(.notStarted))) }
    guard !peers.isEmpty, parameters.isValid else {
      return emit(.completed(id, .failed(.invalidParameters)))
    }
    if !privacy.permitsConnections {
      return emit(.completed(id, .failed(.refused(.connect, .commandDisallowed))))
    }
    var different: [PeerAddress] = []
    for address in peers {
      let peer = privacy.identities.resolve(address) ?? address
      if upper.contains(address: peer) { return emit(.completed(id, .failed(.busy))) }
      if !different.contains(peer) { different.append(peer) }
    }
    let request = Connections.Request(
      id: id, peers: different, onAir: different.map { addressToConnect(to: $0) }, parameters: parameters,
      deadline: timeout.map { now + $0 }, cause: hci.cause)
    if !connections.connect(request, hci: &hci, now: now) { emit(.completed(id, .failed(.busy))) }
    drain(now)
  }
  /// Ends the request if it has not ended yet: exactly one completion in any case. The host disconnects a link that
  /// still comes up, without an effect.
  public mutating func cancel(_ id: RequestID, now: Instant) {
    if applicationCommands.cancel(id) { return emit(.completed(id, .failed(.cancelled))) }
    if connections.cancel(id, hci: &hci, now: now) {
      emit(.completed(id, .failed(.cancelled)))
      return drain(now)
    }
    if cancelChannel(id, now) { return emit(.completed(id, .failed(.cancelled))) }
    for index in 0..<upper.links.count {
      if withLink(at: index, { $0.cancel(id) }) { return emit(.completed(id, .failed(.cancelled))) }
      collect(at: index)
    }
  }

  // MARK: Outcomes

  mutating func reportFailedConnections() {
    while let (id, failure) = connections.nextFailure() { emit(.completed(id, .failed(failure))) }
  }
}
