/// The octets of `hex`: pairs of hex digits, with any white space between them. Anything else traps.
public func octets(_ hex: String) -> [UInt8] {
  let digits = hex.filter { !$0.isWhitespace }.map { digit in
    guard let value = digit.hexDigitValue else { preconditionFailure("\"\(digit)\" is not a hex digit") }
    return UInt8(value)
  }
  precondition(digits.count.isMultiple(of: 2), "half an octet at the end of \"\(hex)\"")
  return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
}

/// `0C 03 00`: the notation for packets throughout this project.
public func hex(_ octets: some Sequence<UInt8>) -> String {
  octets.map { String($0 >> 4, radix: 16, uppercase: true) + String($0 & 0xF, radix: 16, uppercase: true) }
    .joined(separator: " ")
}

/// A seeded generator: the same numbers on every machine. Sebastiano Vigna's SplitMix64.
public struct SplitMix64: RandomNumberGenerator, Sendable {
  var state: UInt64
  public init(seed: UInt64) { state = seed }
  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
