import BindruneWire
import HCI

/// Who a peer is, whatever address it uses: made from the address by which it became known, and kept when the peer changes that
/// address, or when a link learns in its middle who is at its other end. Programs keep what they know of a peer by it.
///
/// A device that keeps its address (public or random static: Vol 6, Part B, §1.3) has the same `PeerID` in every run. One with
/// private addresses and without a known identity is another peer with each of them.
public struct PeerID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// The address in the lower 48 bits; bit 48 is set of a random one.
  public let rawValue: UInt64

  /// `restoreClient` gave GATT the number of a `PeerID`; this makes one of it again.
  init(rawValue: UInt64) { self.rawValue = rawValue }

  /// The peer that became known by this address. If the peer at this address has revealed its
  /// identity it may have another `PeerID`: `HostCore.peer(at:)` finds it.
  public init(_ address: PeerAddress) {
    rawValue = address.address.value | (address.isRandom ? 1 << 48 : 0)
  }
  /// The address by which it became known. `HostCore.address(of:)` is its address now.
  public var firstAddress: PeerAddress {
    PeerAddress(DeviceAddress(rawValue & 0xFFFF_FFFF_FFFF), rawValue >> 48 == 0 ? .public : .random)
  }
  /// `F0:F1:F2:F3:F4:F5/random`.
  public var description: String { firstAddress.description }
}

/// # Peers
/// **Overview**: one table between addresses and peers. Links, the broker, the cache of databases and applications know a peer
/// by its `PeerID`; what talks to the controller knows it by an address.
///
/// **Function**: an entry for each peer whose identity address (Vol 3, Part C, §10.8.2.3) is not the one that its `PeerID` was
/// made from. It is written when a link learns who its peer is and removed when that identity is: there are no more of them
/// than of identities. All other peers need none.
struct Peers {
  private var ids: [PeerAddress: PeerID] = [:]
  private var identities: [PeerID: PeerAddress] = [:]

  /// The peer with this address, which is its identity address where it has one.
  func id(of address: PeerAddress) -> PeerID { ids[address] ?? PeerID(address) }
  /// Its identity address, or else the address by which it became known.
  func address(of peer: PeerID) -> PeerAddress { identities[peer] ?? peer.firstAddress }

  /// `peer` is the device with this identity address, and no other `PeerID` leads to it any more.
  mutating func identify(_ peer: PeerID, as identity: PeerAddress) {
    remove(identity)
    guard PeerID(identity) != peer else { return }
    ids[identity] = peer
    identities[peer] = identity
  }
  mutating func remove(_ identity: PeerAddress) {
    if let peer = ids.removeValue(forKey: identity) { identities[peer] = nil }
  }
}
