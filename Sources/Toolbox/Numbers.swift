/// A number of 256 bits: a coordinate of a point on P-256.
public struct UInt256: BitwiseCopyable, Sendable, Hashable {
  public var high: UInt128
  public var low: UInt128
  public init(high: UInt128 = 0, low: UInt128) {
    self.high = high
    self.low = low
  }
}

// # The order of octets
//
// Everything in the Toolbox is a number, as the Specification writes it. Inside an algorithm its most significant octet
// comes first (Vol 3, Part H, §2.2); in PDUs and in HCI its least significant octet does (§3.3; Vol 4, Part E, §5.2).
// A caller converts with `init(leastSignificantFirst:)` when a packet arrives and with `leastSignificantFirst` when it
// leaves, and reverses nothing itself.

extension UInt128 {
  /// The number of 16 octets (traps otherwise) as they are in a packet.
  public init(leastSignificantFirst octets: Span<UInt8>) {
    precondition(octets.count == 16)
    self = 0
    for index in octets.indices { self |= UInt128(octets[index]) << (8 * index) }
  }
  /// The octets as they are in a packet.
  public var leastSignificantFirst: InlineArray<16, UInt8> {
    InlineArray { index in UInt8(truncatingIfNeeded: self >> (8 * index)) }
  }
  /// A random number of 128 bits.
  public static func random(using chance: inout some RandomNumberGenerator) -> UInt128 {
    UInt128(chance.next() as UInt64) << 64 | UInt128(chance.next() as UInt64)
  }
}
extension UInt256 {
  /// The number of 32 octets (traps otherwise) as they are in a packet.
  public init(leastSignificantFirst octets: Span<UInt8>) {
    precondition(octets.count == 32)
    low = UInt128(leastSignificantFirst: octets.extracting(0..<16))
    high = UInt128(leastSignificantFirst: octets.extracting(16..<32))
  }
  /// The octets as they are in a packet.
  public var leastSignificantFirst: InlineArray<32, UInt8> {
    InlineArray { index in UInt8(truncatingIfNeeded: index < 16 ? low >> (8 * index) : high >> (8 * (index - 16))) }
  }
}

/// Most significant octet first.
func octets(of number: UInt128) -> [UInt8] { (0..<16).map { UInt8(truncatingIfNeeded: number >> (120 - 8 * $0)) } }
func octets(of number: UInt256) -> [UInt8] { octets(of: number.high) + octets(of: number.low) }
