/// A number on the wire: at most eight octets, least significant first.
public protocol WireValue: BitwiseCopyable, Sendable, Equatable {
  static var width: Int { get }
  init?(wire: UInt64)
  var wire: UInt64 { get }
  /// As the Describer writes it.
  var text: String { get }
}
extension WireValue { public var text: String { String(wire) } }
extension UInt8: WireValue {
  @inlinable @inline(__always) public static var width: Int { 1 }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(self) }
}
extension UInt16: WireValue {
  @inlinable @inline(__always) public static var width: Int { 2 }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(self) }
}
extension UInt32: WireValue {
  @inlinable @inline(__always) public static var width: Int { 4 }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(self) }
}
extension UInt64: WireValue {
  @inlinable @inline(__always) public static var width: Int { 8 }
  @inlinable @inline(__always) public init?(wire: UInt64) { self = wire }
  @inlinable @inline(__always) public var wire: UInt64 { self }
}
extension Int8: WireValue {
  @inlinable @inline(__always) public static var width: Int { 1 }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(UInt8(bitPattern: self)) }
  public var text: String { description }
}
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
public struct UInt24: WireValue, ExpressibleByIntegerLiteral {
  public var value: UInt32
  @inlinable @inline(__always) public init(integerLiteral value: UInt32) { self.value = value }
  @inlinable @inline(__always) public static var width: Int { 3 }
  @inlinable @inline(__always) public init?(wire: UInt64) { value = UInt32(truncatingIfNeeded: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { UInt64(value) }
}
/// Six octets, `AA:BB:CC:DD:EE:FF`.
public struct DeviceAddress: WireValue {
  public var value: UInt64
  @inlinable @inline(__always) public init(_ value: UInt64 = 0) { self.value = value }
  @inlinable @inline(__always) public static var width: Int { 6 }
  @inlinable @inline(__always) public init?(wire: UInt64) { value = wire }
  @inlinable @inline(__always) public var wire: UInt64 { value }
  public var text: String {
    (0..<6).reversed().map { hexDigits(value >> (8 * UInt64($0)) & 0xFF, 2) }.joined(separator: ":")
  }
}
/// `value` in upper-case hex, at least `digits` digits.
public func hexDigits(_ v: UInt64, _ digits: Int) -> String {
  let s = String(v, radix: 16, uppercase: true)
  return String(repeating: "0", count: max(0, digits - s.utf8.count)) + s
}
/// An open number: any value is legal and survives a round trip.
public protocol OpenNumber: WireValue, RawRepresentable where RawValue: WireValue { init(rawValue: RawValue) }
extension OpenNumber {
  @inlinable @inline(__always) public static var width: Int { RawValue.width }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard let raw = RawValue(wire: wire) else { return nil }
    self.init(rawValue: raw)
  }
  @inlinable @inline(__always) public var wire: UInt64 { rawValue.wire }
  public var text: String { "0x" + hexDigits(wire, 2 * Self.width) }
}
/// A closed set: a number outside it is a `WireError`.
public protocol ClosedNumber: WireValue, RawRepresentable where RawValue: WireValue {}
extension ClosedNumber {
  @inlinable @inline(__always) public static var width: Int { RawValue.width }
  @inlinable @inline(__always) public init?(wire: UInt64) {
    guard let raw = RawValue(wire: wire) else { return nil }
    self.init(rawValue: raw)
  }
  @inlinable @inline(__always) public var wire: UInt64 { rawValue.wire }
}

/// A range of the packet that a message was decoded from (or will be encoded from).
public struct Octets: BitwiseCopyable, Sendable, Equatable {
  public var offset: UInt32, count: UInt32
  @inlinable @inline(__always) public init() {
    offset = 0
    count = 0
  }
  @inlinable @inline(__always) public init(_ offset: Int, _ count: Int) {
    self.offset = UInt32(truncatingIfNeeded: offset)
    self.count = UInt32(truncatingIfNeeded: count)
  }
  /// Traps when `packet` is not the packet this range belongs to and is too short for it.
  @inlinable @inline(__always) public func byte(_ i: Int, in packet: Span<UInt8>) -> UInt8 {
    precondition(i < Int(count))
    return packet[Int(offset) &+ i]
  }
  @inlinable @inline(__always) public var isEmpty: Bool { count == 0 }
}
public protocol UUIDField { var uuid: BluetoothUUID { get set } }
extension BluetoothUUID: UUIDField {
  @inlinable @inline(__always) public var uuid: BluetoothUUID {
    get { self }
    set { self = newValue }
  }
}
public protocol OctetsField { var octets: Octets { get set } }
extension Octets: OctetsField {
  @inlinable @inline(__always) public var octets: Octets {
    get { self }
    set { self = newValue }
  }
}
