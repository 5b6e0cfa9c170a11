import Glibc

/// Whether the durations of one group tend to be longer than those of another: the test of Mann and Whitney (On a Test
/// of Whether one of Two Random Variables is Stochastically Larger than the Other, 1947), with the normal
/// approximation, a correction for ties and one for continuity. Durations in the same bucket of a ``Histogram``, 3 %
/// wide, are ties.
public struct RankTest: Sendable, Equatable {
  /// Samples of each group below which the approximation is not used and nothing is claimed.
  public static var leastSamples: Int { 20 }
  /// The probability below which a difference counts as significant.
  public static var significance: Double { 0.01 }

  /// Samples of the two groups.
  public let first: Int, second: Int
  /// The probability of groups at least as different as these if both were drawn from one distribution: two-sided.
  public let p: Double
  /// How likely it is that a duration of the second group is longer than one of the first, ties counted half: 0 … 1.
  public let share: Double
  public var isSignificant: Bool { p < Self.significance }

  /// nil: there are too few samples.
  public init?(_ one: Histogram, _ other: Histogram) {
    guard one.count >= Self.leastSamples, other.count >= Self.leastSamples else { return nil }
    (first, second) = (one.count, other.count)
    let (n, m) = (Double(first), Double(second)), all = n + m
    // U of the second group: pairs in which its duration is the longer one.
    var below = 0.0, u = 0.0, ties = 0.0
    for (a, b) in Histogram.common(one, other) {
      let (a, b) = (Double(a), Double(b)), both = a + b
      u += b * (below + a / 2)
      below += a
      ties += both * both * both - both
    }
    share = u / (n * m)
    let variance = n * m / 12 * (all + 1 - ties / (all * (all - 1)))
    guard variance > 0 else {
      p = 1
      return
    }
    let distance = max(0, abs(u - n * m / 2) - 0.5)
    p = erfc(distance / variance.squareRoot() / 2.0.squareRoot())
  }
}
