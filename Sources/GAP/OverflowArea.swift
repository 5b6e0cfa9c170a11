import BindruneWire

/// The service UUIDs that an iOS device advertises in its "overflow area": those that do not fit the advertisement, and
/// all of them while its app is in the background.
///
/// On the air it is manufacturer data of Apple (company identifier 0x004C), type 0x01 without a length, and a mask of
/// 128 bits: each UUID sets one bit, so that a scanner that looks for a UUID sees that it *may* be there. With only 128
/// bits some UUIDs share one and cannot be distinguished: 1001 and 3333 do. A scanner that looks for no UUID learns
/// nothing.
///
/// ## What is known
/// No public document describes the mapping. The one here was fitted to a public table (D. Young's, 128 UUIDs), and it
/// holds without exception for all other public observations found: 156 16-bit UUIDs, four 128-bit ones of different
/// apps, and two captured masks of 33 and 20 UUIDs; see `Fixtures/Vectors/overflow.txt`. Unknown:
/// - whether it holds for today's iOS: the captures are of 2014 to 2020, the newest report that fits is of iOS 16;
/// - whether a scanning iPhone accepts the overflow area of a device that is not Apple's. Nothing in the format forbids
///   it.
public struct OverflowArea: BitwiseCopyable, Sendable, Hashable {
  /// Bit n of the mask is bit n of this number.
  private var bits: UInt128 = 0

  /// No UUID.
  public init() {}
  public init(_ uuids: some Sequence<BluetoothUUID>) {
    for uuid in uuids { insert(uuid) }
  }
  /// The 16 octets of the mask, in wire order; nil for any other number of octets.
  public init?(mask: [UInt8]) {
    guard mask.count == 16 else { return nil }
    bits = mask.reversed().reduce(0) { $0 << 8 | UInt128($1) }
  }
  /// The data of a Manufacturer Specific Data AD structure; nil when it is not an overflow area: 4C 00, 01, 16 octets.
  public init?(manufacturerData: [UInt8]) {
    guard manufacturerData.starts(with: Self.header) else { return nil }
    self.init(mask: Array(manufacturerData.dropFirst(Self.header.count)))
  }
  /// Apple's company identifier, least significant octet first, and the type.
  private static var header: [UInt8] { [0x4C, 0x00, 0x01] }

  /// The bit that represents `uuid`, 0 … 127: octet `bit >> 3` of the mask, its bit `bit & 7`, the least significant
  /// being 0.
  ///
  /// The lower seven bits of a CRC-8 with the polynomial x⁸ + x³ + 1, from zero, over the 128-bit form, most
  /// significant octet first.
  public static func bit(of uuid: BluetoothUUID) -> Int {
    var remainder: UInt8 = 0
    for word in [uuid.high, uuid.low] {
      for shift in stride(from: 56, through: 0, by: -8) {
        remainder ^= UInt8(truncatingIfNeeded: word >> UInt64(shift))
        for _ in 0..<8 { remainder = remainder << 1 ^ (remainder & 0x80 == 0 ? 0 : 0x09) }
      }
    }
    return Int(remainder & 0x7F)
  }

  public mutating func insert(_ uuid: BluetoothUUID) { bits |= 1 << UInt128(Self.bit(of: uuid)) }
  /// True when the bit of `uuid` is set: the device advertises it, or another UUID that shares the bit.
  public func contains(_ uuid: BluetoothUUID) -> Bool { bits >> UInt128(Self.bit(of: uuid)) & 1 == 1 }
  /// The mask has no UUID.
  public var isEmpty: Bool { bits == 0 }

  /// The 16 octets of the mask, in wire order.
  public var mask: [UInt8] { (0..<16).map { UInt8(truncatingIfNeeded: bits >> UInt128(8 * $0)) } }
  /// The data of its Manufacturer Specific Data AD structure, 19 octets.
  public var manufacturerData: [UInt8] { Self.header + mask }
}
