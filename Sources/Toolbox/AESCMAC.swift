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

  public init(key: UInt128) {
    do {
      code = try AES.CMAC(key: SymmetricKey(data: octets(of: key)))
    } catch {
      preconditionFailure("AES has keys of 128 bits: \(error)")
    }
  }
  /// Appends `octets` to the message.
  public mutating func update(_ octets: Span<UInt8>) {
    // The octets are read while they are lent.
    unsafe octets.withUnsafeBytes { unsafe code.update(bufferPointer: $0) }
  }
  /// The code of the whole message.
  public consuming func finalize() -> UInt128 {
    // A code of the default size has 16 octets.
    unsafe code.finalize().withUnsafeBytes { unsafe UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) }
  }
}
