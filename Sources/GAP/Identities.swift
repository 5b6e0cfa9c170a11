import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI

// Identities: peers' private addresses, and ours. Vol 3, Part C, §10.7.
extension HostCore {
  // MARK: From above

  /// From now on this peer is known by its identity address, a public or a random static one, whatever private address
  /// it uses: in discoveries, in links, and for `connect`. Replaces the peer's earlier key. Links that are up are
  /// unaffected: see `identify`. There is no limit; the cost is one AES block for each peer and each private address
  /// when it is first heard.
  public mutating func addPeerIdentity(
    _ identity: PeerAddress, _ irk: IdentityResolvingKey, now: Instant
  ) throws(IdentityError) {
    try checkIdentity(identity)
    try privacy.add(identity, irk, isApplications: true)
    privacy.cause = hci.cause
    drain(now)
  }
  /// The peer of `link` has revealed its identity, as a peer does when it pairs (Vol 3, Part H, §3.6.5): from now on it
  /// is known by its identity address, as after `addPeerIdentity`, and keeps the `PeerID` with which the link came up.
  /// Another `PeerID` that led to that address leads to this peer from now on. Emits `.peerIdentified`; requests to
  /// connect to the peer end with `.busy`, since there is a link with it. Does nothing if there is no such link.
  public mutating func identify(
    _ link: LinkID, as identity: PeerAddress, _ irk: IdentityResolvingKey, now: Instant
  ) throws(IdentityError) {
    try identify(link, as: identity, irk, isApplications: true, now: now)
  }
  /// The same. An identity that is not the application's is forgotten with the peer's bond and links: see
  /// `forgetUnneeded`.
  mutating func identify(
    _ link: LinkID, as identity: PeerAddress, _ irk: IdentityResolvingKey, isApplications: Bool, now: Instant
  ) throws(IdentityError) {
    guard let index = upper.index(of: link) else { return }
    try checkIdentity(identity)
    try privacy.add(identity, irk, isApplications: isApplications)
    privacy.cause = hci.cause
    let earlier = withLink(at: index) { $0.identify(as: identity) }
    peers.identify(earlier.peer, as: identity)
    if earlier.address != identity { forgetUnneeded(earlier.peer, at: earlier.address) }
    emit(.peerIdentified(link, identity))
    connections.failRequests(for: identity, hci: &hci, now: now)
    reportFailedConnections()
    drain(now)
  }
  /// Forgets that `peer` has this address, unless a bond, a link or a request needs that, or the application has added
  /// its identity. Whatever ends a need calls it, so that a remote device that pairs under one identity after another
  /// leaves no more in the tables than its bonds.
  ///
  /// The `PeerID` is not given to another device: it is made from the address by which the peer became known, and names
  /// that address from now on. Decision 0033.
  mutating func forgetUnneeded(_ peer: PeerID, at address: PeerAddress) {
    if bonds.has(address) || upper.contains(address: address) || privacy.identities.isApplications(address) { return }
    // A link that it leads to has the `PeerID` that the request has named.
    if connections.wants(address) { return peers.awaitRequest(for: address) }
    privacy.remove(address)
    if peers.id(of: address) == peer { peers.remove(address) }
  }
  /// Before the controller has started, this host's own address may be unknown.
  func checkIdentity(_ identity: PeerAddress) throws(IdentityError) {
    guard identity.isIdentity else { throw .notAnIdentityAddress(identity) }
    if controller != nil, identity == identityAddress { throw .ownAddress(identity) }
  }
  public mutating func removePeerIdentity(_ identity: PeerAddress, now: Instant) {
    privacy.remove(identity)
    privacy.cause = hci.cause
    peers.remove(identity)
    drain(now)
  }
  /// In the order in which they were added.
  public var peerIdentities: [PeerAddress] { privacy.identities.peers.map { $0.identity } }

  /// The peer with this address: an identity address, a private one that a known key resolves, or any other.
  public mutating func peer(at address: PeerAddress) -> PeerID {
    peers.id(of: privacy.identities.resolve(address) ?? address)
  }
  /// The peer's identity address, if it is known; else the address by which it became known.
  public func address(of peer: PeerID) -> PeerAddress { peers.address(of: peer) }

  /// The addresses on the air when the link came up, ours and the peer's; the peer's is its identity address if the
  /// controller has resolved it without reporting the other.
  public func addressesOnAir(of link: LinkID) -> (own: PeerAddress, peer: PeerAddress)? {
    self.link(link) { ($0.ownOnAir, $0.peerOnAir) }
  }

  // MARK: Addresses

  /// The identity address of a device that has been heard, if it is known, and its address on the air.
  mutating func identify(
    _ address: DeviceAddress, _ type: AddressType, _ now: Instant
  ) -> (address: PeerAddress, onAir: PeerAddress) {
    switch type {
    // The controller has resolved it.
    case .publicIdentity: return (PeerAddress(address, .public), PeerAddress(address, .public))
    case .randomIdentity: return (PeerAddress(address, .random), PeerAddress(address, .random))
    default:
      let heard = PeerAddress(address, type)
      guard let found = privacy.identities.hear(heard) else { return (heard, heard) }
      if found.isNew, !privacy.isListed(found.identity) {
        connections.use(heard, for: found.identity, hci: &hci, now: now)
      }
      return (found.identity, heard)
    }
  }
  /// The address to connect to: the identity if the controller resolves it, else the last address heard.
  func addressToConnect(to peer: PeerAddress) -> PeerAddress {
    privacy.isListed(peer) ? peer : privacy.identities.air(of: peer) ?? peer
  }

  // MARK: Changes that need all address users off

  /// Sets our address.
  mutating func use(_ address: PeerAddress) {
    ownAddress = address
    let type: OwnAddressType = address.isRandom ? .random : .public
    scanner.ownAddressType = type
    advertiser.ownAddress = address
    connections.ownAddressType = type
  }
  /// Returns true after any change; there may be more.
  mutating func changePrivacy(_ now: Instant) -> Bool {
    guard phase == .running else { return false }
    seek(now)
    switch privacy.phase {
    case .changing: return false
    case .idle:
      if privacy.next() == nil { return false }
      privacy.phase = .quieting
      hci.withCause(privacy.cause) { hci in
        scanner.suspend(hci: &hci, now: now)
        advertiser.suspend(hci: &hci, now: now)
        connections.suspend(hci: &hci, now: now)
      }
      return true
    case .quieting:
      guard scanner.isQuiet, advertiser.isQuiet, connections.isQuiet else { return false }
      if let change = privacy.next() {
        privacy.send(change, &hci, now)
        return true
      }
      privacy.phase = .idle
      for peer in privacy.identities.peers {
        connections.use(addressToConnect(to: peer.identity), for: peer.identity, hci: &hci, now: now)
      }
      scanner.resume(hci: &hci, now: now)
      advertiser.resume(hci: &hci, now: now)
      connections.resume(hci: &hci, now: now)
      return true
    }
  }
  mutating func privacyChanged(_ outcome: CommandOutcome) {
    switch privacy.completed(outcome) {
    case .inUse(let address): use(PeerAddress(address, .random))
    case .refused(let status): emit(.violation(nil, .privateAddressRefused(status)))
    case nil: break
    }
  }
  /// Scans for targets whose private addresses only the host can resolve.
  private mutating func seek(_ now: Instant) {
    let isNeeded = isSeekNeeded()
    switch privacy.seeking {
    case .off where isNeeded: privacy.seeking = .scanning
    case .pausing(let until) where isNeeded && until <= now: privacy.seeking = .scanning
    case .scanning where !isNeeded, .pausing where !isNeeded: privacy.seeking = .off
    case .off, .scanning, .pausing: return
    }
    wantScan(now)
  }
  /// Forgets the peers that only requests needed which have ended.
  private mutating func forgetUnrequested() {
    for address in peers.requested where !connections.wants(address) {
      peers.requestEnded(for: address)
      forgetUnneeded(peers.id(of: address), at: address)
    }
  }
  /// Whether a request wants a peer whose private addresses only the host can resolve. Every drain asks, also after
  /// each report of a scan: the answer is computed again only when peers, the controller's list or requests have
  /// changed.
  private mutating func isSeekNeeded() -> Bool {
    let revisions = (privacy.revision, connections.revision)
    if let known = privacy.seekNeed, (known.privacy, known.connections) == revisions { return known.isNeeded }
    forgetUnrequested()
    let isNeeded =
      connections.wantsAnybody
      && privacy.identities.peers.contains { connections.wants($0.identity) && !privacy.isListed($0.identity) }
    privacy.seekNeed = (revisions.0, revisions.1, isNeeded)
    return isNeeded
  }
  /// The controller has refused a scan. Requests for peers that only a scan can find wait, so the host scans again
  /// later.
  mutating func pauseSeeking(_ status: HCIStatus, _ now: Instant) {
    guard case .scanning = privacy.seeking else { return }
    privacy.seeking = .pausing(until: now + Privacy.seekPause)
    emit(.violation(nil, .seekRefused(status)))
  }
}
