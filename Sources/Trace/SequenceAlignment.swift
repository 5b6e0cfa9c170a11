/// # SequenceAlignment
/// **Overview**: which elements of two sequences stand for each other, so that an insertion is one difference and not
/// everything after it.
///
/// **Function**: equal beginnings and ends are matched first. What is between them is compared by Myers' algorithm,
/// which finds the fewest insertions and removals in a time of length times differences: E. W. Myers, An O(ND)
/// Difference Algorithm and Its Variations, Algorithmica 1 (1986). Long parts are first cut at elements that each side
/// has once, in the longest order that both share ("patience"). Time and memory are bounded: a part with more than
/// ``mostDifferences`` differences and nothing to cut at is left as one difference, and ``isCoarse`` says so.
struct SequenceAlignment {
  /// Consecutive elements that are equal.
  struct Run: Equatable {
    var first: Int, second: Int
    var count: Int
  }
  /// In the order of both sequences.
  private(set) var runs: [Run] = []
  private(set) var isCoarse = false

  /// Insertions and removals that Myers' algorithm searches for in a part.
  static var mostDifferences: Int { 1_024 }
  /// Elements of both sides up to which a part is not cut first.
  private static var shortPart: Int { 4_096 }
  /// Steps of Myers' algorithm in a part.
  private static var mostSteps: Int { 20_000_000 }

  private enum Work {
    case part(Range<Int>, Range<Int>)
    case run(Run)
  }

  init(_ first: [UInt64], _ second: [UInt64]) {
    var stack = [Work.part(first.indices, second.indices)]
    while let work = stack.popLast() {
      switch work {
      case .run(let run): add(run)
      case .part(var a, var b):
        let beginning = zip(first[a], second[b]).prefix { $0 == $1 }.count
        add(Run(first: a.lowerBound, second: b.lowerBound, count: beginning))
        a = a.lowerBound + beginning..<a.upperBound
        b = b.lowerBound + beginning..<b.upperBound
        let end = zip(first[a].reversed(), second[b].reversed()).prefix { $0 == $1 }.count
        a = a.lowerBound..<a.upperBound - end
        b = b.lowerBound..<b.upperBound - end
        stack.append(.run(Run(first: a.upperBound, second: b.upperBound, count: end)))
        if a.isEmpty || b.isEmpty { continue }
        let isShort = a.count + b.count <= Self.shortPart
        if isShort, let found = Self.fewest(first[a], second[b]) {
          found.forEach { add($0) }
          continue
        }
        let anchors = Self.anchors(first[a], second[b])
        guard anchors.isEmpty else {
          Self.cut(a, b, at: anchors, &stack)
          continue
        }
        if !isShort, let found = Self.fewest(first[a], second[b]) { found.forEach { add($0) } } else { isCoarse = true }
      }
    }
  }
  private mutating func add(_ run: Run) {
    if run.count == 0 { return }
    if let last = runs.last, last.first + last.count == run.first, last.second + last.count == run.second {
      runs[runs.count - 1].count += run.count
    } else {
      runs.append(run)
    }
  }

  // MARK: Patience

  /// The parts between the anchors, the last one first.
  private static func cut(_ a: Range<Int>, _ b: Range<Int>, at anchors: [(Int, Int)], _ stack: inout [Work]) {
    var (endOfA, endOfB) = (a.upperBound, b.upperBound)
    for (one, other) in anchors.reversed() {
      stack.append(.part(one + 1..<endOfA, other + 1..<endOfB))
      stack.append(.run(Run(first: one, second: other, count: 1)))
      (endOfA, endOfB) = (one, other)
    }
    stack.append(.part(a.lowerBound..<endOfA, b.lowerBound..<endOfB))
  }
  /// Places of elements that each part has once, in the longest order that both share.
  private static func anchors(_ a: ArraySlice<UInt64>, _ b: ArraySlice<UInt64>) -> [(Int, Int)] {
    let (ones, others) = (single(a), single(b))
    var pairs: [(Int, Int)] = []
    for index in a.indices where ones[a[index]] == index {
      if let other = others[a[index]], other >= 0 { pairs.append((index, other)) }
    }
    // The longest ascending sequence of the second places: the top of each pile, and what lies under it.
    var tops: [Int] = [], below = [Int](repeating: -1, count: pairs.count)
    for (index, pair) in pairs.enumerated() {
      var low = 0, high = tops.count
      while low < high {
        let middle = (low + high) / 2
        if pairs[tops[middle]].1 < pair.1 { low = middle + 1 } else { high = middle }
      }
      if low > 0 { below[index] = tops[low - 1] }
      if low < tops.count { tops[low] = index } else { tops.append(index) }
    }
    var result: [(Int, Int)] = [], next = tops.last ?? -1
    while next >= 0 {
      result.append(pairs[next])
      next = below[next]
    }
    return result.reversed()
  }

  /// The places of the elements; -1: it has several.
  private static func single(_ part: ArraySlice<UInt64>) -> [UInt64: Int] {
    var places: [UInt64: Int] = [:]
    for index in part.indices {
      let known = places[part[index]]
      places[part[index]] = known == nil ? index : -1
    }
    return places
  }

  // MARK: Myers

  /// The runs of an alignment with the fewest differences; nil: there are too many.
  private static func fewest(_ a: ArraySlice<UInt64>, _ b: ArraySlice<UInt64>) -> [Run]? {
    let n = a.count, m = b.count, most = min(n + m, mostDifferences)
    let startOfA = a.startIndex, startOfB = b.startIndex
    /// By diagonal, from -most - 1 on: the farthest place in `a`.
    var farthest = [Int32](repeating: 0, count: 2 * most + 3), history: [[Int32]] = [], steps = 0
    let zero = most + 1
    for d in 0...most {
      history.append(Array(farthest[zero - d - 1...zero + d + 1]))
      var k = -d
      while k <= d {
        let isDown = k == -d || (k != d && farthest[zero + k - 1] < farthest[zero + k + 1])
        var x = isDown ? Int(farthest[zero + k + 1]) : Int(farthest[zero + k - 1]) + 1, y = x - k
        while x < n, y < m, a[startOfA + x] == b[startOfB + y] {
          x += 1
          y += 1
          steps += 1
        }
        farthest[zero + k] = Int32(truncatingIfNeeded: x)
        steps += 1
        if x >= n, y >= m { return path(history, d, n, m, startOfA, startOfB) }
        k += 2
      }
      if steps > mostSteps { return nil }
    }
    return nil
  }
  /// Goes back from the ends: `history[d]` holds the places before round `d`, for the diagonals -d - 1 … d + 1.
  private static func path(
    _ history: [[Int32]], _ rounds: Int, _ n: Int, _ m: Int, _ startOfA: Int, _ startOfB: Int
  ) -> [Run] {
    var runs: [Run] = [], x = n, y = m
    for d in stride(from: rounds, through: 0, by: -1) {
      let k = x - y
      func before(_ diagonal: Int) -> Int { Int(history[d][diagonal + d + 1]) }
      var (fromX, fromY) = (0, 0)
      if d > 0 {
        let isDown = k == -d || (k != d && before(k - 1) < before(k + 1))
        let diagonal = isDown ? k + 1 : k - 1
        fromX = before(diagonal)
        fromY = fromX - diagonal
        let count = min(x - (isDown ? fromX : fromX + 1), y - (isDown ? fromY + 1 : fromY))
        if count > 0 { runs.append(Run(first: startOfA + x - count, second: startOfB + y - count, count: count)) }
      } else if x > 0 {
        runs.append(Run(first: startOfA, second: startOfB, count: x))
      }
      (x, y) = (fromX, fromY)
    }
    return runs.reversed()
  }
}
