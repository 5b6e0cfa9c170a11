/// Where two traces part.
///
/// The connections of the two are matched by peer and by what they do, and the streams of a pair are aligned, so that a
/// packet or a connection that only one trace has is one difference. Packets that stand for each other must also name
/// the same connections and devices: a free address stands for one device throughout.
public struct TraceDifference: Sendable {
  /// Packets that follow each other in one trace and that the other does not have.
  public struct Run: Sendable, Equatable {
    /// Records.
    public var first: Int, last: Int
    public var count: Int
  }
  /// Where a stream differs: what only the first trace has there, and what only the second; nil: nothing.
  public struct Hunk: Sendable, Equatable {
    public var first: Run?, second: Run?
  }
  /// A stream that differs.
  public struct Place: Sendable {
    public var stream: TraceOutline.Stream
    /// Its connections, if it has one: ordinal numbers of the two traces.
    public var connections: (Int, Int)?
    /// Up to ``TraceDifference/mostHunks``.
    public var hunks: [Hunk]
    public var hunkCount: Int
    /// Packets of the stream that are equal before the first difference, and in all.
    public var equal: Int, equalInAll: Int
    /// Packets that only the first, or only the second trace has.
    public var onlyFirst: Int, onlySecond: Int
    /// No equal packet follows the first difference.
    public var isAtEnd: Bool { equal == equalInAll }
    /// It differs in so much that it was not aligned to its end.
    public var isCoarse: Bool
    /// The record of the first difference in each trace; nil: nothing stands there.
    public var first: Int? { hunks.first?.first?.first }
    public var second: Int? { hunks.first?.second?.first }
  }
  /// A connection that only one of the traces has.
  public struct Unmatched: Sendable {
    public var isOfFirst: Bool
    public var connection: TraceOutline.Connection
    /// Packets of all its streams.
    public var packets: Int
  }
  public static var mostHunks: Int { 1_000 }

  /// A place for each stream that differs, in the order of the traces.
  public let places: [Place]
  public let unmatched: [Unmatched]
  /// Pairs of connections, by ordinal numbers.
  public let matched: [(Int, Int)]
  /// Packets that stand for each other, and packets of the longer of each two parts.
  public let equal: Int, compared: Int
  public let ignored: (Int, Int)
  /// Why equal packets do not make equal traces, in sentences: contents that are not known, or were not kept.
  public let unknowns: [String]
  /// Nothing differs, as far as it was compared.
  public var isEqual: Bool { places.isEmpty && unmatched.isEmpty }
  /// Why an absence of differences says nothing, in a sentence; nil: the traces are equal, or differ.
  public var insufficiency: String? {
    if !isEqual { return nil }
    if compared == 0 {
      return "Nothing was compared: neither trace has a packet that this comparison looks at; compare traces of HCI."
    }
    return unknowns.isEmpty ? nil : unknowns.joined(separator: " ")
  }

  public init(_ one: TraceOutline, _ other: TraceOutline) {
    let matching = ConnectionMatching(one, other)
    matched = matching.pairs
    var names = Names(matching.pairs, one, other), comparison = Comparison(one, other)
    var partners: [Int: Int] = [:], back: [Int: Int] = [:]
    for (first, second) in matching.pairs { (partners[first], back[second]) = (second, first) }
    let adapters = Dictionary(other.streams.keys.map { ($0.link, $0.adapter) }) { $1 }
    var lonely: [Bool: [Int: Int]] = [true: [:], false: [:]], seen: Set<TraceOutline.Stream> = []
    for stream in one.streams.keys {
      var counterpart = stream
      if stream.link > 0 {
        guard let partner = partners[stream.link] else {
          lonely[true]?[stream.link, default: 0] += one.streams[stream]?.count ?? 0
          continue
        }
        counterpart.link = partner
        if one.free.contains(.handles) { counterpart.adapter = adapters[partner] ?? stream.adapter }
      }
      seen.insert(counterpart)
      comparison.align(stream, counterpart, names)
    }
    for stream in other.streams.keys where !seen.contains(stream) {
      if stream.link > 0, back[stream.link] == nil {
        lonely[false]?[stream.link, default: 0] += other.streams[stream]?.count ?? 0
      } else {
        // In the numbers of the first trace, where its connection has one.
        var own = stream
        own.link = back[stream.link] ?? 0
        comparison.align(own, stream, names)
      }
    }
    comparison.unify(&names)
    let found = comparison.places(partners)
    places = found.places
    var alone: [Unmatched] = []
    for (isFirst, outline) in [(true, one), (false, other)] {
      for connection in outline.connections {
        guard let packets = lonely[isFirst]?[connection.ordinal] else { continue }
        alone.append(Unmatched(isOfFirst: isFirst, connection: connection, packets: packets))
      }
    }
    unmatched = alone
    let packets = alone.reduce(0) { $0 + $1.packets }
    (equal, compared, ignored) = (found.equal, found.compared + packets, (one.ignored, other.ignored))
    unknowns = Self.unknowns(one, other)
  }

  private static func unknowns(_ one: TraceOutline, _ other: TraceOutline) -> [String] {
    func sentence(_ count: (TraceOutline) -> Int, _ words: String) -> String? {
      count(one) + count(other) == 0 ? nil : "\(count(one)) and \(count(other)) \(words)"
    }
    return [
      sentence(\.encrypted, "packets are encrypted, so their contents cannot be compared; decrypt the captures first."),
      sentence(
        \.cut, "packets were cut by their recorder, so what they ended with is not known; record whole packets."),
      sentence(\.broken, "fragments make no whole frame, so their contents are not known."),
      sentence(\.missing, "records are missing, so what they said is not known; record without loss."),
      sentence(
        \.notKept,
        "packets came after the first \(TraceOutline.mostPackets), which are all that is compared; cut the traces."),
    ].compactMap { $0 }
  }
}

/// What stands for what: the connections and devices of two traces.
private struct Names {
  private var forward: [TraceOutline.Reference: TraceOutline.Reference] = [:]
  private var backward: [TraceOutline.Reference: TraceOutline.Reference] = [:]

  init(_ pairs: [(Int, Int)], _ one: TraceOutline, _ other: TraceOutline) {
    func addresses(_ outline: TraceOutline) -> [Int: Int] {
      Dictionary(outline.connections.compactMap { link in link.address.map { (link.ordinal, $0) } }) { $1 }
    }
    let (ones, others) = (addresses(one), addresses(other))
    for (first, second) in pairs {
      _ = unify(.init(kind: .connection, ordinal: first), .init(kind: .connection, ordinal: second))
      if let a = ones[first], let b = others[second] {
        _ = unify(.init(kind: .address, ordinal: a), .init(kind: .address, ordinal: b))
      }
    }
  }
  /// What known names add to the hash of a packet of the first trace, or of the second one: a packet that names a matched
  /// connection or its device is aligned only with one that names the same.
  func mark(_ names: [TraceOutline.Reference], isOfFirst: Bool) -> UInt64 {
    names.reduce(0) { sum, name in
      let known = isOfFirst ? (forward[name] == nil ? nil : name) : backward[name]
      let number = known.map { UInt64($0.ordinal) << 1 | ($0.kind == .address ? 1 : 0) } ?? 0
      return (sum &+ number &+ 1) &* 0x9E37_79B9_7F4A_7C15
    }
  }
  /// False if one of the two stands for another already.
  mutating func unify(_ one: TraceOutline.Reference, _ other: TraceOutline.Reference) -> Bool {
    if one.kind != other.kind { return false }
    guard forward[one] != nil || backward[other] != nil else {
      (forward[one], backward[other]) = (other, one)
      return true
    }
    return forward[one] == other
  }
  mutating func unify(_ ones: [TraceOutline.Reference], _ others: [TraceOutline.Reference]) -> Bool {
    guard ones.count == others.count else { return false }
    var isSame = true
    for (one, other) in zip(ones, others) where !unify(one, other) { isSame = false }
    return isSame
  }
}

/// The aligned streams.
private struct Comparison {
  private struct Pair {
    var stream: TraceOutline.Stream, other: TraceOutline.Stream
    var alignment: SequenceAlignment
    /// Places in the first stream whose packets name something else than those that they are aligned with.
    var inconsistent: [Int: Int] = [:]
  }
  private let one: TraceOutline, two: TraceOutline
  private var pairs: [Pair] = []

  init(_ one: TraceOutline, _ other: TraceOutline) { (self.one, two) = (one, other) }

  mutating func align(_ stream: TraceOutline.Stream, _ counterpart: TraceOutline.Stream, _ names: Names) {
    func hashes(_ outline: TraceOutline, _ stream: TraceOutline.Stream, isOfFirst: Bool) -> [UInt64] {
      (outline.streams[stream] ?? []).map {
        $0.names == 0 ? $0.hash : $0.hash ^ names.mark(outline.references[Int($0.names)], isOfFirst: isOfFirst)
      }
    }
    let alignment = SequenceAlignment(
      hashes(one, stream, isOfFirst: true), hashes(two, counterpart, isOfFirst: false))
    pairs.append(Pair(stream: stream, other: counterpart, alignment: alignment))
  }
  /// Packets that name connections or devices are looked at in the order of the first trace.
  mutating func unify(_ names: inout Names) {
    struct Naming {
      var number: UInt32
      var pair: Int, first: Int, second: Int
    }
    var list: [Naming] = []
    for (place, pair) in pairs.enumerated() {
      guard let a = one.streams[pair.stream], let b = two.streams[pair.other] else { continue }
      for run in pair.alignment.runs {
        for index in 0..<run.count where a[run.first + index].names > 0 || b[run.second + index].names > 0 {
          list.append(
            Naming(
              number: a[run.first + index].number, pair: place, first: run.first + index, second: run.second + index))
        }
      }
    }
    for naming in list.sorted(by: { ($0.number, $0.pair) < ($1.number, $1.pair) }) {
      guard let a = one.streams[pairs[naming.pair].stream], let b = two.streams[pairs[naming.pair].other] else {
        continue
      }
      let ones = one.references[Int(a[naming.first].names)], others = two.references[Int(b[naming.second].names)]
      if !names.unify(ones, others) { pairs[naming.pair].inconsistent[naming.first] = naming.second }
    }
  }

  func places(_ partners: [Int: Int]) -> (places: [TraceDifference.Place], equal: Int, compared: Int) {
    var places: [TraceDifference.Place] = [], equal = 0, compared = 0
    for pair in pairs {
      let place = place(pair, partners)
      equal += place.equalInAll
      compared += place.equalInAll + place.longer
      if place.place.hunkCount > 0 { places.append(place.place) }
    }
    func order(_ place: TraceDifference.Place) -> (Int, String) {
      (min(place.first ?? .max, place.second ?? .max), place.stream.description)
    }
    return (places.sorted { order($0) < order($1) }, equal, compared)
  }
  private func place(
    _ pair: Pair, _ partners: [Int: Int]
  ) -> (place: TraceDifference.Place, equalInAll: Int, longer: Int) {
    let a = one.streams[pair.stream] ?? [], b = two.streams[pair.other] ?? []
    var place = TraceDifference.Place(
      stream: pair.stream, connections: partners[pair.stream.link].map { (pair.stream.link, $0) }, hunks: [],
      hunkCount: 0, equal: 0, equalInAll: 0, onlyFirst: 0, onlySecond: 0, isCoarse: pair.alignment.isCoarse)
    var longer = 0
    func run(_ packets: [TraceOutline.Packet], _ range: Range<Int>) -> TraceDifference.Run? {
      range.isEmpty
        ? nil
        : TraceDifference.Run(
          first: Int(packets[range.lowerBound].number), last: Int(packets[range.upperBound - 1].number),
          count: range.count)
    }
    func add(_ first: Range<Int>, _ second: Range<Int>) {
      if first.isEmpty, second.isEmpty { return }
      if place.hunkCount == 0 { place.equal = place.equalInAll }
      place.hunkCount += 1
      place.onlyFirst += first.count
      place.onlySecond += second.count
      longer += max(first.count, second.count)
      if place.hunks.count < TraceDifference.mostHunks {
        place.hunks.append(TraceDifference.Hunk(first: run(a, first), second: run(b, second)))
      }
    }
    // Where the next difference would begin on each side.
    var (nextOfA, nextOfB) = (0, 0)
    for aligned in pair.alignment.runs {
      add(nextOfA..<aligned.first, nextOfB..<aligned.second)
      for index in 0..<aligned.count {
        let (first, second) = (aligned.first + index, aligned.second + index)
        if pair.inconsistent[first] == nil {
          place.equalInAll += 1
        } else {
          add(first..<first + 1, second..<second + 1)
        }
      }
      (nextOfA, nextOfB) = (aligned.first + aligned.count, aligned.second + aligned.count)
    }
    add(nextOfA..<a.count, nextOfB..<b.count)
    if place.hunkCount == 0 { place.equal = place.equalInAll }
    return (place, place.equalInAll, longer)
  }
}
