import CryptoExtras

/// AES-128 of one block: the security function e. FIPS 197; Vol 3, Part H, §2.2.1.
///
/// Key, plaintext and ciphertext are numbers, as the Specification writes them: their most significant octet comes
/// first in the algorithm.
public struct AES128: Sendable {
  private let key: SymmetricKey

  public init(key: UInt128) { self.init(key: SecurityKey(key)) }
  public init(key: SecurityKey) { self.key = key.key }

  public func encrypt(_ block: UInt128) -> UInt128 {
    var block = octets(of: block)
    do {
      try AES.permute(&block, key: key)
    } catch {
      preconditionFailure("key and block have 128 bits: \(error)")
    }
    return block.reduce(0) { $0 << 8 | UInt128($1) }
  }
}

/// The random address function: 24 bits that, together with `prand`, identify the address's device to holders of the
/// key, and to no one else. Vol 3, Part H, §2.2.2.
///
/// `key` is the IRK; `prand` has 24 bits (traps otherwise).
public func ah(_ key: AES128, _ prand: UInt32) -> UInt32 {
  precondition(prand < 1 << 24)
  return UInt32(truncatingIfNeeded: key.encrypt(UInt128(prand)) & 0xFF_FFFF)
}
