import BindruneHCI
import BindruneWire

/// # ConnectionMatching
/// **Overview**: which connection of one trace stands for which of another.
///
/// **Function**: connections of the same role are compared by samples of their packets: the share that both have. Of
/// the pairs that agree, the most alike are taken first, as long as a device of one trace stays one device of the
/// other. It is done twice, with and without the devices' addresses, since two runs may use other devices; the matching
/// that agrees in more is kept. What is left is matched in order. Bounded by ``mostPairs``: with more connections only
/// those at close places are compared.
struct ConnectionMatching {
  /// Ordinal numbers of the two traces.
  private(set) var pairs: [(Int, Int)] = []

  /// Hashes in the sample of a connection: the smallest ones, of which two samples share as many as the whole.
  private static var sampleSize: Int { 128 }
  private static var mostPairs: Int { 200_000 }
  /// Places between two connections that are compared, if there are too many.
  private static var farthest: Int { 32 }

  private struct Candidate {
    var first: Int, second: Int
    var likeness: Double
  }

  init(_ one: TraceOutline, _ other: TraceOutline) {
    // A bound handle is the connection's name.
    guard one.free.contains(.handles) else {
      let common = Set(one.streams.keys.map(\.link)).intersection(other.streams.keys.map(\.link)).subtracting([0])
      pairs = common.sorted().map { ($0, $0) }
      return
    }
    let a = one.connections, b = other.connections, samples = (Self.samples(of: one), Self.samples(of: other))
    let areMany = a.count * b.count > Self.mostPairs
    var candidates: [Candidate] = []
    for first in a.indices {
      let range = areMany ? max(0, first - Self.farthest)..<max(0, min(b.count, first + Self.farthest)) : b.indices
      for second in range where Self.mayMatch(a[first], b[second], one.free) {
        let likeness = Self.likeness(samples.0[a[first].ordinal] ?? [], samples.1[b[second].ordinal] ?? [])
        if likeness > 0 { candidates.append(Candidate(first: first, second: second, likeness: likeness)) }
      }
    }
    candidates.sort { ($1.likeness, $0.first, $0.second) < ($0.likeness, $1.first, $1.second) }
    let byAddress = Self.match(a, b, candidates, one.free) { a[$0.first].peer == b[$0.second].peer }
    let byDeed = Self.match(a, b, candidates, one.free) { _ in true }
    let best = byDeed.total > byAddress.total ? byDeed : byAddress
    pairs = best.pairs.map { (a[$0.0].ordinal, b[$0.1].ordinal) }.sorted { $0 < $1 }
  }

  private static func mayMatch(
    _ one: TraceOutline.Connection, _ other: TraceOutline.Connection, _ free: Set<TraceFreedom>
  ) -> Bool {
    if let a = one.role, let b = other.role, a != b { return false }
    if !free.contains(.addresses), let a = one.peer, let b = other.peer, a != b { return false }
    return true
  }

  /// Pairs by place, and the likeness of all.
  private static func match(
    _ a: [TraceOutline.Connection], _ b: [TraceOutline.Connection], _ candidates: [Candidate],
    _ free: Set<TraceFreedom>, preferring isPreferred: (Candidate) -> Bool
  ) -> (pairs: [(Int, Int)], total: Double) {
    var result: (pairs: [(Int, Int)], total: Double) = ([], 0)
    var partners: [Int: Int] = [:], taken: Set<Int> = [], forward: [Int: Int] = [:], backward: [Int: Int] = [:]
    func take(_ first: Int, _ second: Int, _ likeness: Double) {
      guard partners[first] == nil, !taken.contains(second) else { return }
      if let one = a[first].address, let other = b[second].address {
        guard forward[one] == nil ? backward[other] == nil : forward[one] == other else { return }
        (forward[one], backward[other]) = (other, one)
      }
      partners[first] = second
      taken.insert(second)
      result.pairs.append((first, second))
      result.total += likeness
    }
    for candidate in candidates where isPreferred(candidate) {
      take(candidate.first, candidate.second, candidate.likeness)
    }
    for candidate in candidates { take(candidate.first, candidate.second, candidate.likeness) }
    // What has nothing in common, in order.
    var next = 0
    for first in a.indices where partners[first] == nil {
      while next < b.count, taken.contains(next) { next += 1 }
      if next < b.count, mayMatch(a[first], b[next], free) { take(first, next, 0) }
    }
    return result
  }

  // MARK: Samples

  private static func samples(of outline: TraceOutline) -> [Int: [UInt64]] {
    var all: [Int: [UInt64]] = [:]
    for (stream, packets) in outline.streams where stream.link > 0 {
      // The same octets in another stream are another packet.
      let name = stream.name.utf8.reduce(UInt64(0xCBF2_9CE4_8422_2325)) { ($0 ^ UInt64($1)) &* 0x0000_0100_0000_01B3 }
      var hashes = Set(packets.lazy.map { mix($0.hash ^ name) }).sorted()
      hashes = Array(hashes.prefix(sampleSize))
      all[stream.link, default: []] += hashes
    }
    return all.mapValues { Array($0.sorted().prefix(sampleSize)) }
  }
  /// Spreads the octets' sum over all bits: the finaliser of SplitMix64.
  private static func mix(_ value: UInt64) -> UInt64 {
    var z = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
  /// The share of the smallest hashes of both that both have: an estimate of what the connections share.
  private static func likeness(_ one: [UInt64], _ other: [UInt64]) -> Double {
    var a = 0, b = 0, shared = 0, seen = 0
    while seen < sampleSize, a < one.count || b < other.count {
      seen += 1
      if a < one.count, b < other.count, one[a] == other[b] {
        shared += 1
        a += 1
        b += 1
      } else if b >= other.count || (a < one.count && one[a] < other[b]) {
        a += 1
      } else {
        b += 1
      }
    }
    return seen == 0 ? 0 : Double(shared) / Double(seen)
  }
}
