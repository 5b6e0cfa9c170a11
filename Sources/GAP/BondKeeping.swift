import BindruneATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP

// The bonds: those that the application brings, those that pairings make, and what clients leave in them. Vol 3, Part
// C, §9.4, §10; Decisions 0048, 0060.
extension HostCore {
  // MARK: From above

  /// A bond that was stored: call this before the start. It replaces another one with the same peer.
  public mutating func add(_ bond: Bond, now: Instant) throws(IdentityError) {
    if let identity = bond.peers.identityAddress.map({ PeerAddress($0) }) { try checkIdentity(identity) }
    if let irk = bond.peers.irk, !irk.isZero {
      try checkIdentity(bond.address)
      try privacy.add(bond.address, IdentityResolvingKey(irk.number), isApplications: false)
    }
    peers.identify(bond.peer, as: bond.address)
    put(bond)
    drain(now)
  }
  /// Adds the bond; of one that it replaces, nothing else may need the address.
  private mutating func put(_ bond: Bond) {
    let replaced = bonds[bond.peer]
    bonds.put(bond)
    if let replaced { forgetUnneeded(replaced.peer, at: replaced.address) }
    noteRoom()
  }
  /// Forgets a bond; a link that it encrypts stays encrypted. False if there is none; else `.bondRemoved` follows.
  @discardableResult public mutating func removeBond(with peer: PeerID, now: Instant) -> Bool {
    guard forget(peer) else { return false }
    // What has awaited the bond's encryption does so no more.
    for index in upper.indices(where: { $0.peer == peer }) { collect(at: index) }
    drain(now)
    return true
  }
  private mutating func forget(_ peer: PeerID) -> Bool {
    guard let bond = bonds.remove(peer) else { return false }
    // The key is the bond's; a link keeps its peer's address.
    if !privacy.identities.isApplications(bond.address), !bonds.has(bond.address) { privacy.remove(bond.address) }
    forgetUnneeded(peer, at: bond.address)
    for index in upper.indices(where: { $0.peer == peer }) {
      withLink(at: index) { $0.protection.security.isBonded = false }
      securityChanged(at: index)
      verifySignatures(at: index)
    }
    noteRoom()
    emit(.bondRemoved(peer))
    return true
  }
  /// The longest unused first.
  public var allBonds: [Bond] { bonds.all }
  public func bond(with peer: PeerID) -> Bond? { bonds[peer] }

  // MARK: What a pairing has made

  /// Keeps what the pairing has made. False: nothing, because it would take a place that nobody lets it take.
  mutating func paired(_ result: PairingResult, at index: Int, _ now: Instant) -> Bool {
    let (facts, isBonded) = self.link(at: index) { ($0.facts, $0.protection.security.isBonded) }
    let link = facts.id, peer = facts.peer
    let identity = result.peers.identityAddress.map { PeerAddress($0) }
    let address = identity ?? facts.address
    let claims = identity.map { self.claims(of: $0, result.peers.irk, at: index) } ?? []
    let replaced = claims + [replacedBond(at: index)].compactMap { result.isBonding || !claims.isEmpty ? $0 : nil }
    // Another link may have made a bond since the questions.
    for bond in replaced {
      if let strength = bond.strength, result.strength.isWeaker(than: strength) {
        emit(.violation(link, .weakerThanBond))
        return false
      }
      if !upper.links[index].protection.isConsented(bond, to: result) { return false }
    }
    for bond in replaced where bond.peer != peer {
      if bond.strength != nil {
        _ = forget(bond.peer)
      } else if bond.address != identity {
        privacy.remove(bond.address)
        peers.remove(bond.address)
      }
    }
    if let identity, let irk = result.peers.irk, !irk.isZero {
      do throws(IdentityError) {
        try identify(link, as: identity, IdentityResolvingKey(irk.number), isApplications: false, now: now)
      } catch {
        // The Security Manager has refused all that this refuses; if not, the keys of such a peer are not kept.
        emit(.violation(link, .identityRefused(error)))
        return false
      }
    }
    guard result.isBonding, hasRoom(for: result.strength, of: peer) else {
      if configuration.pairing.isBonding, !hasRoom(for: result.strength, of: peer) {
        emit(.violation(link, .noRoomForBond))
      }
      return true
    }
    let bond = Bond(
      peer: peer, address: address, strength: result.strength, ours: result.ours, peers: result.peers)
    while bonds.all.count >= configuration.maximumBonds, bonds[peer] == nil,
      let other = Bond.firstToForget(bonds.all, for: result.strength)
    {
      _ = forget(other.peer)
      if !result.isAuthenticated { countAttempt(now) }
    }
    put(bond)
    upper.bond(at: index, as: BondID(rawValue: peer.rawValue))
    verifySignatures(at: index)
    emit(.bondChanged(peer))
    if !isBonded {
      withLink(at: index) { $0.protection.security.isBonded = true }
      securityChanged(at: index)
    }
    return true
  }

  // MARK: What the peer proves

  /// The peer has the bond's key, so it is the peer.
  mutating func proveBond(at index: Int) {
    guard let bond = bondOfPeer(at: index) else { return }
    let peer = bond.peer
    bonds.use(peer)
    emit(.bondChanged(peer))
    let (link, client) = withLink(at: index) { ($0.id, $0.restoreClientOnce()) }
    guard let bearer = client else { return }
    let id = BondID(rawValue: peer.rawValue)
    do throws(WireError) {
      guard !bond.client.isEmpty else { return upper.server.bond(bearer, as: id) }
      try upper.server.restore(bond.client.span, of: id, on: bearer)
    } catch {
      // The client begins anew.
      emit(.violation(link, .clientRecord(error)))
      upper.server.bond(bearer, as: id)
    }
  }
  /// GATT's record of a bonded client has changed.
  mutating func store(_ record: Octets, of peer: PeerID) {
    let octets = upper.server.bytes(of: record)
    // A reconnection restores the record, which the server then reports unchanged.
    guard let bond = bonds[peer], bond.client != octets else { return }
    bonds.change(peer) { $0.client = octets }
    emit(.bondChanged(peer))
  }
}
