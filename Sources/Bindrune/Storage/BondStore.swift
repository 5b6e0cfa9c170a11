import BindruneGAP
import Synchronization

/// Stores the bonds of adapters, so that devices that have paired need not pair again after a restart.
///
/// A bond belongs to the adapter that paired, which every call names by its own identity address: one store serves
/// several adapters. A store keeps each adapter's bonds in the order of their use; when an adapter has more than the
/// store's capacity, the store forgets the longest unused of those without authentication. If all others have it, a new
/// one without is not kept, and one with it takes the place of the longest unused (`Bond.firstToForget`).
///
/// A host awaits each call before it makes the next one, so that a later bond of a peer never loses to an earlier one.
/// A call may take long, and blocks no event loop. The errors have the code `.storage`, and name the place.
public protocol BondStore: Sendable {
  /// The bonds of `adapter`, the longest unused first.
  func bonds(of adapter: PeerAddress) async throws(BluetoothError) -> [Bond]
  /// Stores `bond`, in place of any bond with the same peer, as the most recently used. Returns the peers whose bonds
  /// the store has forgotten, for want of room: perhaps the peer of `bond` itself.
  @discardableResult
  func save(_ bond: Bond, of adapter: PeerAddress) async throws(BluetoothError) -> [PeerID]
  /// Removes the bond with `peer`, if there is one.
  func remove(_ peer: PeerID, of adapter: PeerAddress) async throws(BluetoothError)
}

/// Stores bonds in memory: they end with the process.
public final class MemoryBondStore: BondStore {
  private let capacity: Int
  private let list = Mutex(BondList())
  /// `capacity`: bonds of each adapter, at least 1.
  public init(capacity: Int = 128) {
    precondition(capacity > 0)
    self.capacity = capacity
  }

  public func bonds(of adapter: PeerAddress) async -> [Bond] { list.withLock { $0.bonds(of: adapter) } }
  @discardableResult public func save(_ bond: Bond, of adapter: PeerAddress) async -> [PeerID] {
    list.withLock { $0.change(BondChange(adapter, bond), capacity: capacity) }
  }
  public func remove(_ peer: PeerID, of adapter: PeerAddress) async {
    list.withLock { list in _ = list.change(BondChange(adapter, removing: peer), capacity: capacity) }
  }
}

/// The bonds of all adapters, the longest unused first.
package struct BondList: Sendable, Equatable {
  package struct Entry: Sendable, Equatable {
    package var adapter: PeerAddress
    package var bond: Bond
  }
  package private(set) var entries: [Entry] = []

  func bonds(of adapter: PeerAddress) -> [Bond] { entries.filter { $0.adapter == adapter }.map(\.bond) }
  /// Returns the peers that are forgotten.
  mutating func change(_ change: BondChange, capacity: Int) -> [PeerID] {
    entries.removeAll { $0.adapter == change.adapter && $0.bond.peer == change.peer }
    guard let bond = change.bond else { return [] }
    entries.append(Entry(adapter: change.adapter, bond: bond))
    var forgotten: [PeerID] = []
    var kept = bonds(of: change.adapter)
    while kept.count > capacity {
      let goes = Bond.firstToForget(Array(kept.dropLast()), for: bond.strength) ?? bond
      kept.removeAll { $0.peer == goes.peer }
      entries.removeAll { $0.adapter == change.adapter && $0.bond.peer == goes.peer }
      forgotten.append(goes.peer)
    }
    return forgotten
  }
  /// Appends a stored entry. False if there is one with its peer.
  mutating func append(_ entry: Entry) -> Bool {
    if entries.contains(where: { $0.adapter == entry.adapter && $0.bond.peer == entry.bond.peer }) { return false }
    entries.append(entry)
    return true
  }
}

/// A bond to store, or to remove.
struct BondChange: Sendable {
  let adapter: PeerAddress
  let peer: PeerID
  /// nil: removed.
  let bond: Bond?
  init(_ adapter: PeerAddress, _ bond: Bond) { (self.adapter, peer, self.bond) = (adapter, bond.peer, bond) }
  init(_ adapter: PeerAddress, removing peer: PeerID) { (self.adapter, self.peer, bond) = (adapter, peer, nil) }
}
