import BindruneWire
import RealModule

/// A decimal number of a medical device: mantissa × 10^exponent. ISO/IEEE 11073-20601, FLOAT-Type and SFLOAT-Type.
///
/// Five mantissas are not numbers: NaN, not at this resolution, reserved, and the infinities.
public protocol MedicalFloat: OpenNumber, Hashable where RawValue: FixedWidthInteger & UnsignedInteger {
  /// Bits of the mantissa; the exponent has the rest.
  static var mantissaBits: Int { get }
}

/// `medfloat16`, SFLOAT: 4 bits of exponent, −8 … 7; 12 bits of mantissa, −2045 … 2045. Blood pressure, pulse rate.
public struct MedicalFloat16: MedicalFloat {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var mantissaBits: Int { 12 }
  public var text: String { description }
}

/// `medfloat32`, FLOAT: 8 bits of exponent, −128 … 127; 24 bits of mantissa, −8,388,605 … 8,388,605. Temperature.
public struct MedicalFloat32: MedicalFloat {
  public var rawValue: UInt32
  @inlinable @inline(__always) public init(rawValue: UInt32) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var mantissaBits: Int { 24 }
  public var text: String { description }
}

extension MedicalFloat {
  /// The mantissa as an integer: the lower bits, two's complement.
  public var mantissa: Int {
    let bits = Int(rawValue) & (1 << Self.mantissaBits - 1)
    return bits >= 1 << (Self.mantissaBits - 1) ? bits - 1 << Self.mantissaBits : bits
  }
  public var exponent: Int {
    let exponentBits = RawValue.bitWidth - Self.mantissaBits, bits = Int(rawValue) >> Self.mantissaBits
    return bits >= 1 << (exponentBits - 1) ? bits - 1 << exponentBits : bits
  }
  /// The greatest mantissa that is a number; the least is its negative.
  public static var greatestMantissa: Int { 1 << (mantissaBits - 1) - 3 }

  /// Exponents range from its negative up to, but excluding, itself.
  private static var exponentLimit: Int { 1 << (RawValue.bitWidth - mantissaBits - 1) }

  /// `nil` unless both fit.
  public init?(mantissa: Int, exponent: Int) {
    guard -Self.greatestMantissa...Self.greatestMantissa ~= mantissa,
      -Self.exponentLimit..<Self.exponentLimit ~= exponent
    else { return nil }
    let mask = 1 << Self.mantissaBits - 1
    self.init(rawValue: RawValue(truncatingIfNeeded: exponent << Self.mantissaBits | mantissa & mask))
  }
  /// `value`, rounded to `digits` decimals, such as 36.6 with one: mantissa 366, exponent −1. `nil` when that does not
  /// fit.
  public init?(_ value: Double, digits: Int) {
    if value.isNaN {
      self = .nan
    } else if value.isInfinite {
      self = value < 0 ? .negativeInfinity : .infinity
    } else {
      guard 1 - Self.exponentLimit...Self.exponentLimit ~= digits,
        let mantissa = Int(exactly: value.scaled(byTenTo: digits).rounded())
      else { return nil }
      self.init(mantissa: mantissa, exponent: -digits)
    }
  }

  /// Not a number.
  public static var nan: Self { special(1 << (mantissaBits - 1) - 1) }
  /// A number below the device's resolution.
  public static var notAtThisResolution: Self { special(1 << (mantissaBits - 1)) }
  public static var infinity: Self { special(1 << (mantissaBits - 1) - 2) }
  public static var negativeInfinity: Self { special(1 << (mantissaBits - 1) + 2) }
  private static func special(_ mantissa: Int) -> Self { Self(rawValue: RawValue(truncatingIfNeeded: mantissa)) }

  /// False for the five mantissas that are not numbers.
  public var isNumber: Bool { -Self.greatestMantissa...Self.greatestMantissa ~= mantissa }
  /// The nearest `Double` if the exponent is −22 … 22, as in every SFLOAT, and one within a unit in the last place
  /// otherwise. ±∞ for the infinities, and NaN for the other three.
  public var value: Double {
    if isNumber { return Double(mantissa).scaled(byTenTo: exponent) }
    if mantissa == Self.infinity.mantissa { return Double.infinity }
    return mantissa == Self.negativeInfinity.mantissa ? -Double.infinity : Double.nan
  }
  /// All the digits that were sent: `36.60`, `120`, `5e10`; `NaN`, `NRes`, `+INF`, `-INF`, `reserved`.
  public var description: String {
    guard isNumber else {
      let names: [(Self, String)] = [
        (.nan, "NaN"), (.notAtThisResolution, "NRes"), (.infinity, "+INF"), (.negativeInfinity, "-INF"),
      ]
      return names.first { $0.0.mantissa == mantissa }?.1 ?? "reserved"
    }
    if exponent > 0 { return "\(mantissa)e\(exponent)" }
    let digits = String(abs(mantissa)), decimals = -exponent
    if decimals == 0 { return "\(mantissa)" }
    if decimals > 10 { return "\(mantissa)e\(exponent)" }
    let padded = String(repeating: "0", count: max(0, decimals + 1 - digits.utf8.count)) + digits
    return (mantissa < 0 ? "-" : "") + padded.dropLast(decimals) + "." + padded.suffix(decimals)
  }
}
extension Double {
  /// `self` × 10^power. Powers of ten are exact from 10⁰ to 10²²: with those the result is rounded once.
  fileprivate func scaled(byTenTo power: Int) -> Double {
    -22..<0 ~= power ? self / .pow(10, -power) : self * .pow(10, power)
  }
}
extension MedicalFloat16: CustomStringConvertible {}
extension MedicalFloat32: CustomStringConvertible {}
