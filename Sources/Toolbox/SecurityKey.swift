import CryptoExtras

/// A key of 128 bits: a temporary, short term or long term key, an IRK, a CSRK.
///
/// Its octets are wiped when the last copy goes, compared in constant time, and shown by no description, dump or error.
/// Both guarantees are swift-crypto's `SymmetricKey`. They end where a caller takes ``number`` or
/// ``leastSignificantFirst``: such a copy is the caller's.
public struct SecurityKey: Sendable, Equatable {
  let key: SymmetricKey

  public init(_ number: UInt128) {
    var number = number.bigEndian
    key = unsafe withUnsafeBytes(of: &number) { unsafe SymmetricKey(data: $0) }
    number = 0
  }
  /// The key of 16 octets (traps otherwise) as they are in a packet.
  public init(leastSignificantFirst octets: Span<UInt8>) { self.init(UInt128(leastSignificantFirst: octets)) }
  public static func random(using chance: inout some RandomNumberGenerator) -> SecurityKey {
    SecurityKey(.random(using: &chance))
  }

  /// The secret itself.
  public var number: UInt128 {
    // The key has 16 octets.
    unsafe key.withUnsafeBytes { unsafe UInt128(bigEndian: $0.loadUnaligned(as: UInt128.self)) }
  }
  /// The secret's octets as they are in a packet.
  public var leastSignificantFirst: InlineArray<16, UInt8> { number.leastSignificantFirst }
  /// A key of zeros, which the Specification sends for "none". Vol 3, Part H, §3.6.4.
  public var isZero: Bool { self == SecurityKey(0) }

  /// The key with only its `count` least significant octets, 7 … 16 (traps otherwise). Vol 3, Part H, §2.3.4.
  public func reduced(to count: Int) -> SecurityKey {
    precondition((7...16).contains(count))
    return count == 16 ? self : SecurityKey(number & ((1 << (8 * count)) - 1))
  }
}

extension SecurityKey: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  public var description: String { "(secret)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
