import BindruneWire

/// SplitMix64, a repeatable generator. The same seed gives the same radio, on every machine.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
  var state: UInt64
  public init(seed: UInt64) { state = seed }
  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z &>> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z &>> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z &>> 31)
  }
  /// True with this probability. 0 and 1 consume no random number, so that a perfect radio keeps its sequence.
  mutating func chance(_ probability: Double) -> Bool {
    if probability <= 0 { return false }
    if probability >= 1 { return true }
    return Double(next() &>> 11) * 0x1p-53 < probability
  }
  /// A random duration from zero to `longest`, both included.
  mutating func duration(upTo longest: Duration) -> Duration {
    let nanoseconds = longest.nanoseconds
    if nanoseconds <= 0 { return .zero }
    return .nanoseconds(Int64(next() % (UInt64(nanoseconds) + 1)))
  }
}
