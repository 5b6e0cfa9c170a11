import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// A plain model of `DataCredits`: its rules over a list of links, counted anew each time.
private struct PlainCredits {
  struct Link {
    var handle: UInt16
    var held = 0, wants = false
  }
  let total: Int
  /// In the order of opening.
  var links: [Link] = []
  /// The link to consider first: the one after the link served last.
  var turn = 0

  var free: Int { links.reduce(total) { $0 - $1.held } }
  var next: UInt16? {
    let waiting = links.filter(\.wants).count, withData = links.filter { $0.wants || $0.held > 0 }.count
    let others = links.count - 1
    guard free > 0, waiting > 0 else { return nil }
    // A lone link leaves a buffer for each other link, but at most half of them.
    let limit = waiting > 1 ? max(1, total / withData) : others == 0 ? total : max(1, total / 2, total - others)
    let first = turn < links.count ? turn : 0
    var best: Link?
    for link in links[first...] + links[..<first] where link.wants && link.held < limit {
      if best.map({ link.held < $0.held }) ?? true { best = link }
    }
    return best?.handle
  }
  func place(_ handle: UInt16) -> Int? { links.firstIndex { $0.handle == handle } }
  mutating func took(_ handle: UInt16) {
    guard let place = place(handle) else { return }
    links[place].held += 1
    turn = (place + 1) % links.count
  }
  mutating func close(_ handle: UInt16) {
    guard let place = place(handle) else { return }
    links.remove(at: place)
    if turn > place { turn -= 1 }
  }
}

@Suite struct DataCreditsPlainTests {
  /// Links open, close, request and receive buffers: the same link is next, and the same buffers are free.
  @Test func sameTurns() {
    print("DataCredits against the plain way: \(Fuzz.pdus) steps, seed \(Fuzz.seed)")
    for number in 0..<(Fuzz.pdus - 1) / 500 + 1 {
      let seed = Fuzz.seed &* 1_000_003 &+ UInt64(number)
      if let wrong = Self.compare(seed: seed) {
        Issue.record("seed \(seed), \(wrong)")
        return
      }
    }
  }

  private static func compare(seed: UInt64) -> String? {
    var chance = SplitMix64(seed: seed)
    let total = UInt8.random(in: 1...12, using: &chance), handles = UInt16(0)...UInt16.random(in: 0...6, using: &chance)
    var bench = DataCreditsTests.bench(total: total), plain = PlainCredits(total: Int(total))
    for step in 0..<500 {
      let handle = UInt16.random(in: handles, using: &chance), link = ConnectionHandle(rawValue: handle)
      switch Int.random(in: 0..<18, using: &chance) {
      case 0:
        bench.receive(disconnected(handle))
        plain.close(handle)
      case 1, 2:
        bench.receive(connected(handle))
        if plain.place(handle) == nil { plain.links.append(PlainCredits.Link(handle: handle)) }
      case 3...7:
        let wants = Int.random(in: 0..<3, using: &chance) > 0
        bench.layer.credits.setWants(link, wants)
        if let place = plain.place(handle) { plain.links[place].wants = wants }
      case 8...10:
        let count = UInt16.random(in: 0...3, using: &chance)
        bench.receive(completed([(handle, count)]))
        if let place = plain.place(handle) { plain.links[place].held = max(0, plain.links[place].held - Int(count)) }
      case 11, 12:
        // As if the link requested one buffer, and no other did.
        var wishful = plain
        if let place = plain.place(handle) { wishful.links[place].wants = true }
        let isGranted = !plain.links.contains(where: \.wants) && wishful.next == handle
        if bench.layer.credits.takeAtOnce(link) != isGranted { return "step \(step): at once, not \(isGranted)" }
        if isGranted { plain.took(handle) }
      default:
        guard let granted = bench.layer.credits.next() else { break }
        bench.layer.credits.took(granted)
        plain.took(granted.rawValue)
      }
      let next = bench.layer.credits.next()?.rawValue, free = bench.layer.credits.free
      if next != plain.next || free != plain.free {
        let said = "\(free) free and \(next.map { "\($0)" } ?? "none") next"
        return "step \(step): \(said), not \(plain.free) and \(plain.next.map { "\($0)" } ?? "none")"
      }
    }
    return nil
  }
}
