import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneSMP

/// All that two devices keep of each other after they have paired. Vol 3, Part C, §9.4.4, §14.1.
///
/// The core has the bonds in memory, and reports each change (`HostEffect.bondChanged`); the driver stores them as
/// ``octets`` and adds them before the next start. They contain keys: a description has none.
public struct Bond: Sendable, Equatable {
  /// The peer, by the number with which it became known to us.
  public let peer: PeerID
  /// The peer's identity address; if it has revealed none, the address with which it paired.
  public var address: PeerAddress
  /// Of the key that encrypts links.
  public var strength: KeyStrength
  /// Keys that we have given the peer: as Peripheral, we encrypt with them.
  public var ours: DistributedKeys
  /// Keys that the peer has given us: as Central, we encrypt with them.
  public var peers: DistributedKeys
  /// The counter of our next signed write, and the least one that we accept from the peer. Vol 3, Part H, §2.4.5.
  public var ourSignCounter: UInt32 = 0
  public var peersSignCounter: UInt32 = 0
  /// What GATT's server remembers of this client: the octets of a `ClientRecord`; none at first.
  public var client: [UInt8] = []

  public init(
    peer: PeerID, address: PeerAddress, strength: KeyStrength, ours: DistributedKeys, peers: DistributedKeys
  ) {
    self.peer = peer
    self.address = address
    self.strength = strength
    self.ours = ours
    self.peers = peers
  }
}

extension Bond: CustomStringConvertible {
  /// `F0:F1:F2:F3:F4:F5/random, Secure Connections, authenticated, 16 octets`.
  public var description: String { "\(address), \(strength)" }
}
