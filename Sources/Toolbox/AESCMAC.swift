import CryptoExtras

/// AES-CMAC with a key of 128 bits: a fingerprint of any number of octets. RFC 4493; Vol 3, Part H, §2.2.5.
///
/// Key and code are numbers, as the Specification writes them: their most significant octet comes first in the
/// algorithm.
///
///     var code = AESCMAC(key: 0)
///     code.update(octets.span)
///     let hash = code.finalize()
public struct AESCMAC: ~Copyable {
  private var code: AES.CMAC

  public init(key: UInt128) { self.init(key: SecurityKey(key)) }
  public init(key: SecurityKey) {
    do {
      code = try AES.CMAC(key: key.key)
    } catch {
      preconditionFailure("AES has keys of 128 bits: \(error)")
    }
  }
  /// Appends `octets` to the message.
  public mutating func update(_ octets: Span<UInt8>) {
    // The octets are read while they are lent.
    unsafe octets.withUnsafeBytes { unsafe code.update(bufferPointer: $0) }
  }
  /// Appends the `count` least significant octets of `number`, at most 16, the most significant of them first.
  mutating func update(_ number: UInt128, octets count: Int = 16) {
    var octets = (number << (8 * (16 - count))).bigEndian
    unsafe withUnsafeBytes(of: &octets) { unsafe code.update(bufferPointer: .init(rebasing: $0[..<count])) }
  }
  mutating func update(_ number: UInt256) {
    update(number.high)
    update(number.low)
  }
  mutating func update(_ secret: DHKey) {
    unsafe secret.key.withUnsafeBytes { unsafe code.update(bufferPointer: $0) }
  }
  /// The code of the whole message.
  public consuming func finalize() -> UInt128 {
    // A code of the default size has 16 octets.
    unsafe code.finalize().withUnsafeBytes { unsafe UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) }
  }
}
