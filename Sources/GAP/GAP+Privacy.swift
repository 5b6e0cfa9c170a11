import BindruneWire
import GATT
import HCI

// Who is who: peers' private addresses, and ours. Vol 3, Part C, §10.7.
extension HostCore {
  /// A host that needs no chance: the address policy is `.identity` (traps otherwise).
  public init(configuration: HostConfiguration = HostConfiguration(), database: consuming Database) {
    precondition(configuration.addressPolicy == .identity, "private addresses need chance")
    var none = AddressChance(seed: 0)
    self.init(configuration: configuration, database: database, chance: &none)
  }

  // MARK: From above

  /// From now on this peer is known by its identity address, a public or a random static one, whatever private address it
  /// uses: in what is discovered, in links, and for `connect`. A key that it had before is replaced. A link that is up
  /// keeps the name that it came up with. Any number of peers: the cost is one AES block for each of them and each private
  /// address that is heard for the first time.
  public mutating func addPeerIdentity(
    _ identity: PeerAddress, _ irk: IdentityResolvingKey, now: Instant
  ) throws(IdentityError) {
    try privacy.add(identity, irk)
    settle(now)
  }
  public mutating func removePeerIdentity(_ identity: PeerAddress, now: Instant) {
    privacy.identities.remove(identity)
    settle(now)
  }
  /// In the order in which they were added.
  public var peerIdentities: [PeerAddress] { privacy.identities.peers.map(\.identity) }

  /// The addresses that our peer and we used when the link came up; the peer's is its name where the controller has
  /// resolved it and does not tell.
  public func addressesOnAir(of link: LinkID) -> (own: PeerAddress, peer: PeerAddress)? {
    upper.index(of: link).map { (upper.links[$0].ownOnAir, upper.links[$0].peerOnAir) }
  }

  // MARK: Names

  /// Who has been heard: by the name we know him by, and by the address on the air.
  mutating func identify(
    _ address: DeviceAddress, _ type: AddressType, _ now: Instant
  ) -> (peer: PeerAddress, onAir: PeerAddress) {
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
  /// Where a peer is to be looked for: the controller knows it by its name, or it was heard last by this.
  func addressToConnect(to peer: PeerAddress) -> PeerAddress {
    privacy.isListed(peer) ? peer : privacy.identities.air(of: peer) ?? peer
  }

  // MARK: What may only be changed while nothing uses an address

  /// From now on we are called so.
  mutating func use(_ address: PeerAddress) {
    ownAddress = address
    let type: OwnAddressType = address.isRandom ? .random : .public
    scanner.ownAddressType = type
    advertiser.ownAddress = address
    connections.ownAddressType = type
  }
  /// True: something has been done, and there may be more.
  mutating func changePrivacy(_ now: Instant) -> Bool {
    guard phase == .running else { return false }
    seek(now)
    switch privacy.phase {
    case .changing: return false
    case .settled:
      if privacy.next == nil { return false }
      privacy.phase = .quieting
      scanner.suspend(hci: &hci, now: now)
      advertiser.suspend(hci: &hci, now: now)
      connections.suspend(hci: &hci, now: now)
      return true
    case .quieting:
      guard scanner.isQuiet, advertiser.isQuiet, connections.isQuiet else { return false }
      if let change = privacy.next {
        privacy.send(change, &hci, now)
        return true
      }
      privacy.phase = .settled
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
  /// Scans for wanted peers whose private addresses only the host can resolve.
  private mutating func seek(_ now: Instant) {
    let isNeeded = privacy.identities.peers.contains {
      !privacy.isListed($0.identity) && connections.wants($0.identity)
    }
    switch privacy.seeking {
    case .off where isNeeded: privacy.seeking = .scanning
    case .pausing(let until) where isNeeded && until <= now: privacy.seeking = .scanning
    case .scanning where !isNeeded, .pausing where !isNeeded: privacy.seeking = .off
    case .off, .scanning, .pausing: return
    }
    wantScan(now)
  }
  /// The controller has refused a scan. The requests for the peers that it was to find wait on, so it is asked again.
  mutating func pauseSeeking(_ status: HCIStatus, _ now: Instant) {
    guard case .scanning = privacy.seeking else { return }
    privacy.seeking = .pausing(until: now + Privacy.seekPause)
    emit(.violation(nil, .seekRefused(status)))
  }
}
