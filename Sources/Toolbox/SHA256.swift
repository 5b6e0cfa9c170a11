import Crypto

/// SHA-256: 32 octets. FIPS 180-4.
public func sha256(_ octets: Span<UInt8>) -> [UInt8] {
  var hash = SHA256()
  // The octets are read while they are lent.
  unsafe octets.withUnsafeBytes { unsafe hash.update(bufferPointer: $0) }
  return Array(hash.finalize())
}
