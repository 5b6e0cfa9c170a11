/// A device address: six octets; its text begins with the most significant one. Vol 6, Part B, §1.3.
public struct DeviceAddress: WireValue, Hashable {
  /// The lower 48 bits.
  public var value: UInt64
  @inlinable @inline(__always) public init(_ value: UInt64 = 0) { self.value = value }
  @inlinable @inline(__always) public static var width: Int { 6 }
  @inlinable @inline(__always) public static var isClosed: Bool { false }
  @inlinable @inline(__always) public init?(wire: UInt64) { value = wire }
  @inlinable @inline(__always) public var wire: UInt64 { value }
  /// `AA:BB:CC:DD:EE:FF`.
  public var text: String {
    (0..<6).reversed().map { hexDigits(value >> (8 * UInt64($0)) & 0xFF, 2) }.joined(separator: ":")
  }
}

/// The kind of a random address, from its two most significant bits. Vol 6, Part B, §1.3.2.
public enum RandomAddressKind: UInt8, BitwiseCopyable, Sendable {
  /// Changes often, and reveals its device to no one.
  case nonResolvablePrivate = 0b00
  /// Changes often, and reveals its device to holders of its IRK.
  case resolvablePrivate = 0b01
  case reserved = 0b10
  /// Stays the same at least as long as the device has power.
  case `static` = 0b11
}

// Random addresses: their rules (Vol 6, Part B, §1.3.2), and how to make them.
extension DeviceAddress {
  /// The kind of a random address; the bits of a public one have no meaning.
  public var randomKind: RandomAddressKind { RandomAddressKind(rawValue: UInt8(value >> 46 & 0b11)) ?? .reserved }

  /// Whether the random part of a random address is valid: neither all zeros nor all ones. In a resolvable private
  /// address that is the random part of prand. Always false for the reserved kind.
  public var isValidRandom: Bool {
    switch randomKind {
    case .static, .nonResolvablePrivate: Self.isMixed(value, bits: 46)
    case .resolvablePrivate: Self.isMixed(UInt64(prand), bits: 22)
    case .reserved: false
    }
  }
  /// Whether the octets can be a public address: zeros and ones stand for a device without one.
  public var isValidPublic: Bool { Self.isMixed(value, bits: 48) }
  /// Whether a device can have this as its identity address: a valid public or random static address, which it keeps.
  /// The one rule for what a peer distributes, a controller resolves, a file stores and an application passes. Vol 3,
  /// Part H, §3.6.5; Vol 3, Part C, §10.8.2.3; Vol 6, Part B, §1.3.
  public func isIdentity(isRandom: Bool) -> Bool {
    isRandom ? randomKind == .static && isValidRandom : isValidPublic
  }
  private static func isMixed(_ value: UInt64, bits: UInt64) -> Bool {
    let all: UInt64 = 1 << bits - 1
    return value & all != 0 && value & all != all
  }

  /// A new random static address. Vol 6, Part B, §1.3.2.1.
  public static func randomStatic(using chance: inout some RandomNumberGenerator) -> DeviceAddress {
    DeviceAddress(0b11 << 46 | .random(in: 1..<(1 << 46 - 1), using: &chance))
  }
  /// A new non-resolvable private address, different from the device's public address. Vol 6, Part B, §1.3.2.2.
  public static func nonResolvablePrivate(
    not publicAddress: DeviceAddress, using chance: inout some RandomNumberGenerator
  ) -> DeviceAddress {
    var address = publicAddress
    while address == publicAddress { address.value = .random(in: 1..<(1 << 46 - 1), using: &chance) }
    return address
  }

  /// The two halves of a resolvable private address: 24 random bits with the bits of its kind, and ah(IRK, prand).
  /// Vol 6, Part B, §1.3.2.2.
  public init(prand: UInt32, hash: UInt32) { value = UInt64(prand) << 24 | UInt64(hash) }
  public var prand: UInt32 { UInt32(truncatingIfNeeded: value >> 24 & 0xFF_FFFF) }
  public var hash: UInt32 { UInt32(truncatingIfNeeded: value & 0xFF_FFFF) }
  /// A new prand, the kind's two bits included.
  public static func prand(using chance: inout some RandomNumberGenerator) -> UInt32 {
    0b01 << 22 | .random(in: 1..<(1 << 22 - 1), using: &chance)
  }
}
