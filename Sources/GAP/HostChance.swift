import BindruneToolbox
import BindruneWire

/// The core's random numbers, for keys and addresses: AES-128, seeded by the driver's generator. The key changes with
/// each number, so that memory that leaks later reveals none that was drawn before.
struct HostChance: RandomNumberGenerator {
  private var key: AES128
  init(seed: UInt128) { key = AES128(key: seed) }
  init(_ chance: inout some RandomNumberGenerator) {
    self.init(seed: UInt128(chance.next()) << 64 | UInt128(chance.next()))
  }
  mutating func next() -> UInt64 {
    let number = key.encrypt(0)
    key = AES128(key: key.encrypt(1))
    return UInt64(truncatingIfNeeded: number)
  }
}
