/// A UUID in the form it had on the wire: 16 or 128 bits. Vol 3, Part B, §2.5.1.
///
/// Two forms of one UUID are equal and hash alike: `0000180D-0000-1000-8000-00805F9B34FB` is `180D`.
public enum BluetoothUUID: BitwiseCopyable, Sendable {
  case short(UInt16)
  case long(low: UInt64, high: UInt64)

  @inlinable public init() { self = .short(0) }
  /// A 32-bit UUID; ATT has only 16 and 128 bits on the wire, so it is kept as 128 bits.
  @inlinable public init(_ value: UInt32) {
    self = value <= 0xFFFF ? .short(UInt16(value)) : .long(low: Self.baseLow, high: Self.baseHigh | UInt64(value) << 32)
  }
  /// The Bluetooth Base UUID, 00000000-0000-1000-8000-00805F9B34FB.
  @inlinable public static var baseLow: UInt64 { 0x8000_0080_5F9B_34FB }
  @inlinable public static var baseHigh: UInt64 { 0x0000_0000_0000_1000 }

  /// The lower 64 bits of the 128-bit form.
  @inlinable public var low: UInt64 {
    switch self {
    case .short: Self.baseLow
    case .long(let low, _): low
    }
  }
  /// The upper 64 bits of the 128-bit form.
  @inlinable public var high: UInt64 {
    switch self {
    case .short(let value): Self.baseHigh | UInt64(value) << 32
    case .long(_, let high): high
    }
  }
  /// The 16-bit form if the UUID has one, else itself: GATT declarations may carry either.
  @inlinable public var shortest: BluetoothUUID {
    if case .long(let low, let high) = self, low == Self.baseLow, high & 0xFFFF_0000_FFFF_FFFF == Self.baseHigh {
      return .short(UInt16(truncatingIfNeeded: high >> 32))
    }
    return self
  }
  /// The number of a UUID with a form of 16 or 32 bits: it replaces the upper 32 bits of the Base UUID.
  @inlinable public var shortValue: UInt32? {
    low == Self.baseLow && high & 0xFFFF_FFFF == Self.baseHigh ? UInt32(truncatingIfNeeded: high >> 32) : nil
  }
  /// Octets in ATT: 2 or 16.
  @inlinable public var count: Int { if case .short = self { 2 } else { 16 } }
}

extension BluetoothUUID: Hashable {
  @inlinable public static func == (a: BluetoothUUID, b: BluetoothUUID) -> Bool { a.low == b.low && a.high == b.high }
  @inlinable public func hash(into hasher: inout Hasher) {
    hasher.combine(low)
    hasher.combine(high)
  }
}

extension BluetoothUUID: LosslessStringConvertible, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  /// `180D`, `12345678`, or `A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00`; case does not matter. `nil` for anything else.
  public init?(_ text: String) {
    let utf8 = Array(text.utf8)
    var digits: [UInt8] = []
    if utf8.count == 36 {
      for (index, byte) in utf8.enumerated() {
        if index == 8 || index == 13 || index == 18 || index == 23 {
          guard byte == UInt8(ascii: "-") else { return nil }
        } else {
          digits.append(byte)
        }
      }
    } else {
      digits = utf8
    }
    var value: (high: UInt64, low: UInt64) = (0, 0)
    for digit in digits {
      guard let nibble = Character(UnicodeScalar(digit)).hexDigitValue else { return nil }
      value.high = value.high << 4 | value.low >> 60
      value.low = value.low << 4 | UInt64(nibble)
    }
    switch digits.count {
    case 4: self = .short(UInt16(value.low))
    case 8: self.init(UInt32(value.low))
    case 32: self = .long(low: value.low, high: value.high)
    default: return nil
    }
  }
  /// Traps for a literal that is not a UUID.
  public init(stringLiteral text: String) {
    guard let uuid = BluetoothUUID(text) else { preconditionFailure("\"\(text)\" is not a Bluetooth UUID") }
    self = uuid
  }
  public init(integerLiteral value: UInt16) { self = .short(value) }

  /// Upper case, in the shortest form: `180D`.
  public var description: String {
    switch shortest {
    case .short(let value): hexDigits(UInt64(value), 4)
    case .long(Self.baseLow, let high) where high & 0xFFFF_FFFF == Self.baseHigh: hexDigits(high >> 32, 8)
    case .long(let low, let high):
      hexDigits(high >> 32, 8) + "-" + hexDigits(high >> 16 & 0xFFFF, 4) + "-" + hexDigits(high & 0xFFFF, 4) + "-"
        + hexDigits(low >> 48, 4) + "-" + hexDigits(low & 0xFFFF_FFFF_FFFF, 12)
    }
  }
}
