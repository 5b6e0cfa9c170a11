/// Amounts over time in at most ``mostBins`` bins of equal width. A bin doubles its width when the time needs more of
/// them, so memory is bounded and nothing has to be known beforehand.
public struct TraceSeries: Sendable {
  public static var mostBins: Int { 64 }
  /// The width of a bin, in nanoseconds; at first 10 ms.
  public private(set) var width: Int64 = 10_000_000
  public private(set) var bins: [Int] = []

  public init() {}

  /// `elapsed`: nanoseconds since the beginning; negative, after a clock was set back, it counts as the beginning.
  public mutating func add(_ amount: Int, at elapsed: Int64) {
    let elapsed = max(0, elapsed)
    while elapsed / width >= Int64(Self.mostBins) {
      bins = stride(from: 0, to: bins.count, by: 2).map { bins[$0] + ($0 + 1 < bins.count ? bins[$0 + 1] : 0) }
      width *= 2
    }
    let bin = Int(elapsed / width)
    while bins.count <= bin { bins.append(0) }
    bins[bin] += amount
  }
  /// The greatest amount of a bin, in units a second.
  public var peakPerSecond: Double { Double(bins.max() ?? 0) * 1e9 / Double(width) }
}
