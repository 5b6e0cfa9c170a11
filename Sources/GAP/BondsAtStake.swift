import BasicContainers
import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneSMP

/// A bond whose place a pairing would take. Who consents accepts the peer as that device from now on: a stranger can
/// use a bonded device's address, and distribute its identity. Decision 0060.
public struct ReplacedBond: BitwiseCopyable, Sendable, Hashable {
  /// Why the pairing would replace the bond.
  public enum Ground: BitwiseCopyable, Sendable, Hashable {
    /// The peer has the bond's key, which encrypts the link: it is the bonded device.
    case key
    /// The peer uses the bonded device's address, which anybody can.
    case address
    /// The peer has distributed the bonded device's identity address or IRK as its own. Vol 3, Part H, §3.6.4, §3.6.5.
    case identity
  }
  public let peer: PeerID
  /// The identity address of the device that has the bond; if it has revealed none, the address with which it paired.
  public let address: PeerAddress
  /// Of the bond's key; nil: there is no bond, but the application has added this identity.
  public let strength: KeyStrength?
  public let ground: Ground

  public init(peer: PeerID, address: PeerAddress, strength: KeyStrength?, ground: Ground) {
    self.peer = peer
    self.address = address
    self.strength = strength
    self.ground = ground
  }
  init(_ bond: Bond, _ ground: Ground) {
    self.init(peer: bond.peer, address: bond.address, strength: bond.strength, ground: ground)
  }
  /// The peer has proven to be the device that has the bond.
  public var isProven: Bool { ground == .key }
}

extension ReplacedBond: CustomStringConvertible {
  /// `F0:F1:F2:F3:F4:F5/random (legacy, unauthenticated, 16 octets)`.
  public var description: String { "\(address) (\(strength.map { "\($0)" } ?? "an identity without a bond"))" }
}

extension Bond {
  /// The bond that goes when there is no room for `new` beside `bonds`, the longest unused first: of those without
  /// authentication the first; if there is none, the first of all, but only for a bond with authentication. Nil: `new`
  /// is not kept.
  public static func firstToForget(_ bonds: [Bond], for new: KeyStrength) -> Bond? {
    bonds.first { !$0.strength.isAuthenticated } ?? (new.isAuthenticated ? bonds.first : nil)
  }
}

// Bonds that pairings would replace, and room for new ones.
extension HostCore {
  /// The bond with the link's peer.
  func bondOfPeer(at index: Int) -> Bond? { bonds[upper.links[index].peer] }
  /// The bond of the device that the link's peer is by its address.
  func bond(at index: Int) -> Bond? {
    let link = upper.links[index].facts
    return bonds[link.peer] ?? bonds.other(than: link.peer, at: link.address)
  }
  /// The bond that a pairing on the link would replace, as far as phase 1 shows.
  func replacedBond(at index: Int) -> ReplacedBond? {
    guard let bond = bond(at: index) else { return nil }
    return ReplacedBond(bond, upper.links[index].hasProven(bond) ? .key : .address)
  }
  /// What else the link's peer would take the place of with this identity: bonds of other peers, and identities that
  /// the application has added with another key or address.
  func claims(of identity: PeerAddress, _ irk: SecurityKey?, at index: Int) -> [ReplacedBond] {
    let peer = upper.links[index].peer
    var claims: [ReplacedBond] = []
    for bond in bonds.all where bond.peer != peer {
      if bond.address == identity || irk != nil && bond.peers.irk == irk {
        claims.append(ReplacedBond(bond, .identity))
      }
    }
    for known in privacy.identities.peers where known.isApplications && !bonds.has(known.identity) {
      if (known.identity == identity) == (known.irk.value == irk?.number) { continue }
      claims.append(
        ReplacedBond(peer: peers.id(of: known.identity), address: known.identity, strength: nil, ground: .identity))
    }
    return claims
  }

  /// The peer distributes its identity. Nothing is stored, and no application learns of it, before the user has
  /// consented to what it would replace.
  mutating func considerIdentity(at index: Int, _ now: Instant) {
    let (link, distributed) = link(at: index) { ($0.id, $0.protection.manager.openIdentity) }
    guard let (identity, method) = distributed else { return }
    let claims = claims(of: PeerAddress(identity.address), identity.irk.isZero ? nil : identity.irk, at: index)
    switch withLink(at: index, { $0.protection.judge(claims, now: now, using: &$1) }) {
    case .accepted: break
    case .ask(let claim): emit(.pairingAsked(link, .consent(method, replaces: claim)))
    case .refused: emit(.violation(link, .weakerThanBond))
    }
  }

  // MARK: Links that end because of a claim

  /// The link ends as soon as the peer has our Pairing Failed, or after a second.
  mutating func leave(at index: Int, _ now: Instant) {
    withLink(at: index) { $0.protection.leaving = LinkProtection.Leaving(deadline: now.adding(seconds: 1)) }
    upper.awaitsDelivery = true
    continueLeaving(at: index, now)
  }
  mutating func continueLeaving(at index: Int, _ now: Instant) {
    let handle = upper.links[index].handle
    let completed = hci.credits.completed(handle), outstanding = hci.credits.outstanding(handle)
    let leaves = withLink(at: index) {
      $0.protection.leaves(completed: completed, outstanding: outstanding, now: now)
    }
    if leaves { disconnect(at: index, .authenticationFailure, now) }
  }

  // MARK: Room

  /// Whether there is, or can be made, room for a bond of this strength with `peer`.
  func hasRoom(for strength: KeyStrength, of peer: PeerID?) -> Bool {
    if bonds.all.count < configuration.maximumBonds || peer.map({ bonds[$0] != nil }) ?? false { return true }
    return Bond.firstToForget(bonds.all, for: strength) != nil
  }
  /// Bonds have come or gone: whether the next pairing of a link may make one without authentication.
  mutating func noteRoom() {
    for index in 0..<upper.links.count {
      let bondsUnauthenticated = bondsUnauthenticated(at: index)
      withLink(at: index) { $0.protection.manager.settings.bondsUnauthenticated = bondsUnauthenticated }
    }
  }
  func bondsUnauthenticated(at index: Int) -> Bool {
    let weakest = KeyStrength(isAuthenticated: false, isSecureConnections: false, size: .shortest)
    return hasRoom(for: weakest, of: bond(at: index)?.peer)
  }

  // MARK: Attempts of all peers together

  /// A pairing has failed, or a stranger's bond has pushed another out. Vol 3, Part H, §2.3.6.
  mutating func countAttempt(_ now: Instant) {
    guard configuration.limitsPairings else { return }
    bonds.allAttempts.recordFailure(now: now)
    for index in 0..<upper.links.count { limit(at: index, now) }
  }
  mutating func limit(at index: Int, _ now: Instant) {
    let busyUntil = bonds.allAttempts.nextAttempt(now: now)
    withLink(at: index) { $0.protection.manager.busyUntil = busyUntil }
  }
}
