import BindruneWire
import SMP

/// The bonds of a host, the longest unused first, and the pairings that peers have failed.
struct Bonds {
  private(set) var all: [Bond] = []
  /// Peers that must wait before they may pair again; bounded, because each address is a peer.
  private var attempts: [PeerID: PairingAttempts] = [:]
  private static var mostAttempts: Int { 256 }

  subscript(peer: PeerID) -> Bond? { all.first { $0.peer == peer } }
  /// The bond of the device with this address under another `PeerID` than `peer`.
  func other(than peer: PeerID, at address: PeerAddress) -> Bond? {
    all.first { $0.address == address && $0.peer != peer }
  }
  /// Adds a bond, or replaces the one with the same peer, as the one used last.
  mutating func put(_ bond: Bond) {
    remove(bond.peer)
    all.append(bond)
  }
  @discardableResult mutating func remove(_ peer: PeerID) -> Bond? {
    all.firstIndex { $0.peer == peer }.map { all.remove(at: $0) }
  }
  /// Changes a bond, if there is one, in its place.
  mutating func change(_ peer: PeerID, _ body: (inout Bond) -> Void) {
    if let index = all.firstIndex(where: { $0.peer == peer }) { body(&all[index]) }
  }

  func attempts(of peer: PeerID) -> PairingAttempts { attempts[peer] ?? PairingAttempts() }
  /// Keeps a peer's failures for its next link. Vol 3, Part H, §2.3.6.
  mutating func keep(_ failures: PairingAttempts, of peer: PeerID) {
    attempts[peer] = failures == PairingAttempts() ? nil : failures
    if attempts.count > Self.mostAttempts, let other = attempts.keys.first(where: { $0 != peer }) {
      attempts[other] = nil
    }
  }
}
