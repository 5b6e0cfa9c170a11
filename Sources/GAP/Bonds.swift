import BindruneWire
import BindruneSMP

/// The bonds of a host, the longest unused first, and the pairings that peers have failed.
struct Bonds {
  private(set) var all: [Bond] = []
  /// Peers that must wait before they may pair again; bounded, because each address is a peer.
  private var attempts: [PeerID: PairingAttempts] = [:]
  private static var mostAttempts: Int { 256 }
  /// Failures of all peers, and new bonds that have pushed others out: five cost nothing.
  var allAttempts = PairingAttempts(allowance: 5)
  /// Of our signed writes to bonded peers: the next counter, and the one from which counters must be reserved first.
  private var signCounters: [PeerID: (next: UInt32, reserved: UInt32)] = [:]
  /// Counters that one storing of the bond reserves: a crash leaves at most as many unused.
  private static var reservation: UInt32 { 64 }

  subscript(peer: PeerID) -> Bond? { all.first { $0.peer == peer } }
  /// The bond of the device with this address under another `PeerID` than `peer`.
  func other(than peer: PeerID, at address: PeerAddress) -> Bond? {
    all.first { $0.address == address && $0.peer != peer }
  }
  /// A bond's peer has this address.
  func has(_ address: PeerAddress) -> Bool { all.contains { $0.address == address } }
  /// Adds a bond, stored or new, or replaces the one with the same peer, as the one used last.
  mutating func put(_ bond: Bond) {
    remove(bond.peer)
    all.append(bond)
    signCounters[bond.peer] = (bond.ourSignCounter, bond.ourSignCounter)
  }
  /// Makes a bond the one used last.
  mutating func use(_ peer: PeerID) {
    if let index = all.firstIndex(where: { $0.peer == peer }) { all.append(all.remove(at: index)) }
  }
  @discardableResult mutating func remove(_ peer: PeerID) -> Bond? {
    signCounters[peer] = nil
    return all.firstIndex { $0.peer == peer }.map { all.remove(at: $0) }
  }
  /// Changes a bond, if there is one, in its place.
  mutating func change(_ peer: PeerID, _ body: (inout Bond) -> Void) {
    if let index = all.firstIndex(where: { $0.peer == peer }) { body(&all[index]) }
  }

  // MARK: Sign counters

  /// The counter for the next signed write, which `signed` takes; nil: some must be reserved first.
  func signCounter(for peer: PeerID) -> UInt32? {
    signCounters[peer].flatMap { $0.next < $0.reserved ? $0.next : nil }
  }
  mutating func signed(for peer: PeerID) { signCounters[peer]?.next += 1 }
  /// Has the bond reserve more counters, which count once the bond is stored. False: there are none, or no bond.
  mutating func reserveSignCounters(for peer: PeerID) -> Bool {
    guard let reserved = signCounters[peer]?.reserved, reserved < .max else { return false }
    let (sum, isTooMuch) = reserved.addingReportingOverflow(Self.reservation)
    change(peer) { $0.ourSignCounter = isTooMuch ? .max : sum }
    return true
  }
  /// This bond is in the store.
  mutating func stored(_ bond: Bond) {
    // Not that of an earlier pairing, which had another key.
    guard self[bond.peer]?.ours == bond.ours, let reserved = signCounters[bond.peer]?.reserved else { return }
    signCounters[bond.peer]?.reserved = max(reserved, bond.ourSignCounter)
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
