/// A number on the wire: one to eight octets, least significant first.
public protocol WireValue: BitwiseCopyable, Sendable, Equatable {
  /// Octets, 1…8.
  static var width: Int { get }
  /// Whether some numbers of that width are refused (`init(wire:)` is nil), as a ``WireError``.
  static var isClosed: Bool { get }
  init?(wire: UInt64)
  var wire: UInt64 { get }
  /// No value has been set, and the field has no default: it cannot be encoded (``WireError/Reason/unset``).
  var isUnset: Bool { get }
  /// The text that ``WireDescriber`` writes.
  var text: String { get }
}
extension WireValue {
  /// The safe default: decoding a list then checks every entry.
  @inlinable @inline(__always) public static var isClosed: Bool { true }
  @inlinable @inline(__always) public var isUnset: Bool { false }
  public var text: String { String(wire) }
}

// MARK: Integers

extension WireValue where Self: FixedWidthInteger {
  @inlinable @inline(__always) public static var width: Int { MemoryLayout<Self>.size }
  @inlinable @inline(__always) public static var isClosed: Bool { false }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(truncatingIfNeeded: wire) }
  public var text: String { description }
}
extension WireValue where Self: FixedWidthInteger & UnsignedInteger {
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(truncatingIfNeeded: self) }
}
extension UInt8: WireValue {}
extension UInt16: WireValue {}
extension UInt32: WireValue {}
extension UInt64: WireValue {}
/// Two's complement.
extension Int8: WireValue {
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(UInt8(bitPattern: self)) }
}
extension Int16: WireValue {
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(UInt16(bitPattern: self)) }
}

/// 0 or 1; any other number is a ``WireError``.
extension Bool: WireValue {
  @inlinable @inline(__always) public static var width: Int { 1 }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    if wire > 1 { return nil }
    self = wire != 0
  }
  @inlinable @inline(__always) public var wire: UInt64 { self ? 1 : 0 }
  public var text: String { description }
}

/// Three octets.
public struct UInt24: WireValue, Hashable, ExpressibleByIntegerLiteral {
  /// At most 0xFFFFFF; encoding takes the lower 24 bits.
  public var value: UInt32
  @inlinable @inline(__always) public init(integerLiteral value: UInt32) { self.value = value }
  @inlinable @inline(__always) public init(_ value: UInt32) { self.value = value }
  @inlinable @inline(__always) public static var width: Int { 3 }
  @inlinable @inline(__always) public static var isClosed: Bool { false }
  @inlinable @inline(__always) public init?(wire: UInt64) { value = UInt32(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(value) }
}

// MARK: Numbers of 16 and 32 octets

/// A number of two or four words of 64 bits, least significant first: a key, a random value, a coordinate.
public protocol WireWideValue: BitwiseCopyable, Sendable {
  init()
  static var words: Int { get }
  /// A word, from 0, the least significant one.
  subscript(word index: Int) -> UInt64 { get set }
  /// Whether texts show the number of the octets only: a key must not reach a log.
  static var isSecret: Bool { get }
}
extension WireWideValue {
  @inlinable @inline(__always) public static var isSecret: Bool { false }
  /// Octets, 16 or 32.
  @inlinable @inline(__always) public static var width: Int { 8 &* words }
}
extension UInt128: WireWideValue {
  @inlinable @inline(__always) public static var words: Int { 2 }
  @inlinable @inline(__always) public subscript(word index: Int) -> UInt64 {
    get { UInt64(truncatingIfNeeded: self >> (64 * index)) }
    set {
      self &= ~(UInt128(UInt64.max) << (64 * index))
      self |= UInt128(newValue) << (64 * index)
    }
  }
}
/// A key of 128 bits: texts do not show it.
public struct SecretNumber: WireWideValue, Equatable {
  public var number: UInt128
  @inlinable public init() { number = 0 }
  @inlinable public init(_ number: UInt128) { self.number = number }
  @inlinable @inline(__always) public static var words: Int { 2 }
  @inlinable @inline(__always) public static var isSecret: Bool { true }
  @inlinable @inline(__always) public subscript(word index: Int) -> UInt64 {
    get { number[word: index] }
    set { number[word: index] = newValue }
  }
}

// MARK: Numbers with names

/// An assigned number of a set that grows: any value is legal and is preserved.
public protocol OpenNumber: WireValue, RawRepresentable where RawValue: WireValue { init(rawValue: RawValue) }
extension OpenNumber {
  @inlinable @inline(__always) public static var width: Int { RawValue.width }
  @inlinable @inline(__always) public static var isClosed: Bool { RawValue.isClosed }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard let raw = RawValue(wire: wire) else { return nil }
    self.init(rawValue: raw)
  }
  @inlinable @inline(__always) public var wire: UInt64 { rawValue.wire }
  /// `0x0003`: hex, two digits per octet.
  public var text: String { "0x" + hexDigits(wire, 2 * Self.width) }
}

/// A number of a set that the Specification closes: one outside it is a ``WireError``.
public protocol ClosedNumber: WireValue, RawRepresentable where RawValue: WireValue {}
extension ClosedNumber {
  @inlinable @inline(__always) public static var width: Int { RawValue.width }
  @inlinable @inline(__always) public static var isClosed: Bool { true }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard let raw = RawValue(wire: wire) else { return nil }
    self.init(rawValue: raw)
  }
  @inlinable @inline(__always) public var wire: UInt64 { rawValue.wire }
}

/// `value` in upper-case hex, at least `digits` digits.
public func hexDigits(_ value: UInt64, _ digits: Int) -> String {
  let count = max(digits, (64 - value.leadingZeroBitCount + 3) / 4, 1)
  // A trace has millions of them: without the standard library's general conversion they cost a tenth.
  return unsafe String(unsafeUninitializedCapacity: count) { text in
    for place in 0..<count {
      let shift = 4 * (count - 1 - place)
      unsafe text.initializeElement(at: place, to: hexDigit(shift < 64 ? UInt8(value >> UInt64(shift) & 0xF) : 0))
    }
    return count
  }
}
/// The octets in upper-case hex, with spaces between them.
package func hexText(_ bytes: Span<UInt8>) -> String {
  guard !bytes.isEmpty else { return "" }
  return unsafe String(unsafeUninitializedCapacity: 3 * bytes.count - 1) { text in
    var place = 0
    for index in bytes.indices {
      if index > 0 {
        unsafe text.initializeElement(at: place, to: UInt8(ascii: " "))
        place += 1
      }
      unsafe text.initializeElement(at: place, to: hexDigit(bytes[index] >> 4))
      unsafe text.initializeElement(at: place + 1, to: hexDigit(bytes[index] & 0xF))
      place += 2
    }
    return place
  }
}
@inline(__always) private func hexDigit(_ value: UInt8) -> UInt8 {
  value < 10 ? UInt8(ascii: "0") &+ value : UInt8(ascii: "A") &+ value &- 10
}
