import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneSMP

extension Bond {
  /// A bond with random keys, addresses and counters; any key may be absent.
  public static func random(using chance: inout SplitMix64) -> Bond {
    func address() -> PeerAddress {
      PeerAddress(
        DeviceAddress(.random(in: 0..<(1 << 48), using: &chance)), Bool.random(using: &chance) ? .random : .public)
    }
    func maybe<Value>(_ value: (inout SplitMix64) -> Value) -> Value? {
      Bool.random(using: &chance) ? value(&chance) : nil
    }
    func keys() -> DistributedKeys {
      var keys = DistributedKeys()
      keys.longTermKey = maybe {
        LongTermKey(
          key: .random(using: &$0), ediv: .random(in: 0 ... .max, using: &$0), rand: .random(in: 0 ... .max, using: &$0)
        )
      }
      keys.irk = maybe { .random(using: &$0) }
      keys.identityAddress = maybe {
        PairingAddress(
          DeviceAddress(.random(in: 0..<(1 << 48), using: &$0)), isRandom: .random(using: &$0))
      }
      keys.csrk = maybe { .random(using: &$0) }
      return keys
    }
    let size = EncryptionKeySize(.random(in: 7...16, using: &chance)) ?? .longest
    var bond = Bond(
      peer: PeerID(address()), address: address(),
      strength: KeyStrength(
        isAuthenticated: .random(using: &chance), isSecureConnections: .random(using: &chance), size: size),
      ours: keys(), peers: keys())
    bond.ourSignCounter = .random(in: 0 ... .max, using: &chance)
    bond.peersSignCounter = .random(in: 0 ... .max, using: &chance)
    let count = Int.random(in: 0...600, using: &chance)
    bond.client = (0..<count).map { _ in .random(in: 0 ... .max, using: &chance) }
    return bond
  }
}
