import BindruneWire

/// Counts durations in buckets that each reach 3 % further than the one before: durations in, percentiles and rows out.
/// Its size is bounded: 15 kB.
///
/// The bucket of a duration is the position of its first binary digit, in nanoseconds, and the five digits after it.
public struct Histogram: Sendable {
  private static var digits: Int { 5 }
  /// Buckets per doubling.
  private static var fineness: Int { 1 << digits }
  /// For the 63 binary digits of a duration; empty until there is one.
  private var buckets: [Int] = []
  public private(set) var count = 0
  public private(set) var shortest = Duration.zero
  public private(set) var longest = Duration.zero

  public init() {}

  public mutating func add(_ duration: Duration) {
    shortest = count == 0 ? duration : min(shortest, duration)
    longest = max(longest, duration)
    count += 1
    if buckets.isEmpty { buckets = [Int](repeating: 0, count: (63 - Self.digits + 1) * Self.fineness) }
    buckets[Self.bucket(of: UInt64(clamping: duration.nanoseconds))] += 1
  }

  /// Adds the durations that another one has counted.
  public mutating func add(_ other: Histogram) {
    guard other.count > 0 else { return }
    shortest = count == 0 ? other.shortest : min(shortest, other.shortest)
    longest = max(longest, other.longest)
    count += other.count
    if buckets.isEmpty {
      buckets = other.buckets
    } else {
      for index in buckets.indices { buckets[index] += other.buckets[index] }
    }
  }
  /// The buckets of two, from the shortest duration on, without those that both leave empty.
  static func common(_ one: Histogram, _ other: Histogram) -> [(Int, Int)] {
    (0..<max(one.buckets.count, other.buckets.count)).compactMap { index in
      let a = index < one.buckets.count ? one.buckets[index] : 0,
        b = index < other.buckets.count ? other.buckets[index] : 0
      return a + b > 0 ? (a, b) : nil
    }
  }
  /// The shapes of several on one scale, whose columns are of equal ratio, and what the scale begins and ends with; nil:
  /// all are empty.
  public static func shapes(
    _ all: [Histogram], columns: Int
  ) -> (shapes: [[Int]], from: Duration, to: Duration)? {
    let firsts = all.compactMap { $0.buckets.firstIndex { $0 > 0 } }
    let lasts = all.compactMap { $0.buckets.lastIndex { $0 > 0 } }
    guard let first = firsts.min(), let last = lasts.max(), columns > 0 else { return nil }
    let shapes = all.map { histogram in
      var shape = [Int](repeating: 0, count: columns)
      for bucket in first...last where bucket < histogram.buckets.count {
        shape[(bucket - first) * columns / (last - first + 1)] += histogram.buckets[bucket]
      }
      return shape
    }
    return (
      shapes, .nanoseconds(Int64(clamping: floor(of: first))), .nanoseconds(Int64(clamping: floor(of: last + 1)))
    )
  }

  private static func bucket(of nanoseconds: UInt64) -> Int {
    let shift = max(0, 63 - nanoseconds.leadingZeroBitCount - digits)
    return shift * fineness + Int(nanoseconds >> UInt64(shift))
  }
  /// The least duration of a bucket.
  private static func floor(of bucket: Int) -> UInt64 {
    let shift = max(0, bucket / fineness - 1)
    return UInt64(bucket - shift * fineness) << UInt64(shift)
  }

  /// The duration that `share`, 0 … 1, of all did not exceed; at most 3 % too long. nil: the histogram is empty.
  public func percentile(_ share: Double) -> Duration? {
    if count == 0 { return nil }
    let rank = max(1, Int((share * Double(count)).rounded(.up)))
    var sum = 0
    for (bucket, count) in buckets.enumerated() {
      sum += count
      if sum >= rank { return min(longest, .nanoseconds(Int64(clamping: Self.floor(of: bucket + 1) - 1))) }
    }
    return longest
  }

  /// Durations from `lower`, less than `upper`.
  public struct Row: Equatable, Sendable {
    public var lower: Duration, upper: Duration
    public var count: Int
  }
  /// All durations, and the gaps between them, in at most `limit` rows of equal ratio.
  public func rows(atMost limit: Int) -> [Row] {
    guard let first = buckets.firstIndex(where: { $0 > 0 }), let last = buckets.lastIndex(where: { $0 > 0 }) else {
      return []
    }
    var width = 1
    while last / width - first / width >= limit { width *= 2 }
    return (first / width...last / width).map { row in
      let range = row * width..<min((row + 1) * width, buckets.count)
      return Row(
        lower: .nanoseconds(Int64(clamping: Self.floor(of: range.lowerBound))),
        upper: .nanoseconds(Int64(clamping: Self.floor(of: range.upperBound))),
        count: buckets[range].reduce(0, +))
    }
  }
}
