import BindruneWire
import BindruneHCI

/// A peer's identity in this host: made from the address by which it became known, and kept when the peer changes that
/// address, or when a link learns its peer's identity later. Programs index what they keep of a peer by it.
///
/// A device that keeps its address (public or random static: Vol 6, Part B, §1.3) has the same `PeerID` in every run. A
/// device with private addresses and no known identity has another `PeerID` with each of them.
public struct PeerID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// The address in the lower 48 bits; bit 48 is set for a random one.
  public let rawValue: UInt64

  /// A `PeerID` from the number that GATT's server has as `BondID`, or that was stored with a bond.
  init(rawValue: UInt64) { self.rawValue = rawValue }

  /// The peer that became known by this address. A peer at this address that has revealed its identity may have another
  /// `PeerID`: `HostCore.peer(at:)` finds it.
  public init(_ address: PeerAddress) {
    rawValue = address.address.value | (address.isRandom ? 1 << 48 : 0)
  }
  /// The address by which it became known. `HostCore.address(of:)` returns its current address.
  public var firstAddress: PeerAddress {
    PeerAddress(DeviceAddress(rawValue & 0xFFFF_FFFF_FFFF), rawValue >> 48 == 0 ? .public : .random)
  }
  /// `F0:F1:F2:F3:F4:F5/random`.
  public var description: String { firstAddress.description }
}

/// # Peers
/// **Overview**: the one table between addresses and peers. Links, the broker, the cache of databases and applications
/// refer to a peer by its `PeerID`; code that talks to the controller refers to it by an address.
///
/// **Function**: an entry for each peer whose identity address (Vol 3, Part C, §10.8.2.3) is not the one that its
/// `PeerID` was made from. A link that learns its peer's identity, or a stored bond, adds it; `HostCore` removes it
/// when the peer has no bond, no link and no request any more, and the application has not added its identity. A peer
/// has one identity address: a new one replaces it. All other peers need no entry.
struct Peers {
  private var ids: [PeerAddress: PeerID] = [:]
  private var identities: [PeerID: PeerAddress] = [:]
  /// Identity addresses that only requests to connect need.
  private(set) var requested: Set<PeerAddress> = []
  var count: Int { ids.count }

  /// The peer with this address: its identity address if it has one.
  func id(of address: PeerAddress) -> PeerID { ids[address] ?? PeerID(address) }
  /// Its identity address, or else the address by which it became known.
  func address(of peer: PeerID) -> PeerAddress { identities[peer] ?? peer.firstAddress }

  /// Makes `peer` the device with this identity address; no other `PeerID` leads to it any more, and no other address
  /// leads to `peer`.
  mutating func identify(_ peer: PeerID, as identity: PeerAddress) {
    remove(identity)
    if let earlier = identities[peer] { remove(earlier) }
    guard PeerID(identity) != peer else { return }
    ids[identity] = peer
    identities[peer] = identity
  }
  /// Only a request needs this identity address.
  mutating func awaitRequest(for identity: PeerAddress) { requested.insert(identity) }
  mutating func requestEnded(for identity: PeerAddress) { requested.remove(identity) }
  mutating func remove(_ identity: PeerAddress) {
    requested.remove(identity)
    if let peer = ids.removeValue(forKey: identity) { identities[peer] = nil }
  }
}
