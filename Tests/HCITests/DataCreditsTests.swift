import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@Suite struct DataCreditsTests {
  static let a = ConnectionHandle(rawValue: 0x40), b = ConnectionHandle(rawValue: 0x41),
    c = ConnectionHandle(rawValue: 0x42)

  /// A running layer with links, whose controller has `total` buffers.
  static func bench(total: UInt8, _ links: ConnectionHandle...) -> Bench {
    var bench = Bench(), controller = PaperController()
    controller.leBuffers = [27, 0, total]
    _ = bench.start(controller)
    for link in links { bench.receive(connected(link.rawValue)) }
    return bench
  }

  @Test func aLoneLinkLeavesOneBufferForEachOther() {
    var bench = Self.bench(total: 8, Self.a, Self.b)
    bench.layer.credits.setWants(Self.a, true)
    while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
    expect(bench.layer.credits.outstanding(Self.a) == 7 && bench.layer.credits.free == 1)
    bench.layer.credits.setWants(Self.b, true)
    expect(bench.layer.credits.next() == Self.b)
    bench.layer.credits.took(Self.b)
    expect(bench.layer.credits.next() == nil)
    // The first link's freed buffer goes to the link with fewer packets.
    bench.receive(completed([(0x40, 2)]))
    expect(bench.layer.credits.next() == Self.b)
  }

  /// Many idle links leave it half of the buffers.
  @Test func aLoneLinkAmongManyGetsHalf() {
    var bench = Self.bench(total: 8)
    for handle in UInt16(1)...20 { bench.receive(connected(handle)) }
    bench.layer.credits.setWants(ConnectionHandle(rawValue: 7), true)
    while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
    expect(bench.layer.credits.outstanding(ConnectionHandle(rawValue: 7)) == 4 && bench.layer.credits.free == 4)
  }

  @Test func aLinkAloneGetsEveryBuffer() {
    var bench = Self.bench(total: 4, Self.a)
    bench.layer.credits.setWants(Self.a, true)
    while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
    expect(bench.layer.credits.outstanding(Self.a) == 4 && bench.layer.credits.free == 0)
  }

  @Test func equalLinksTakeTurns() {
    var bench = Self.bench(total: 6, Self.a, Self.b, Self.c)
    for link in [Self.a, Self.b, Self.c] { bench.layer.credits.setWants(link, true) }
    var order: [ConnectionHandle] = []
    while let link = bench.layer.credits.next() {
      bench.layer.credits.took(link)
      order.append(link)
    }
    #expect(order == [Self.a, Self.b, Self.c, Self.a, Self.b, Self.c])
  }

  @Test func fewerBuffersThanLinks() {
    var bench = Self.bench(total: 2, Self.a, Self.b, Self.c)
    for link in [Self.a, Self.b, Self.c] { bench.layer.credits.setWants(link, true) }
    expect(bench.layer.credits.next() == Self.a)
    bench.layer.credits.took(Self.a)
    expect(bench.layer.credits.next() == Self.b)
    bench.layer.credits.took(Self.b)
    expect(bench.layer.credits.next() == nil)
    bench.receive(completed([(0x40, 1)]))
    expect(bench.layer.credits.next() == Self.c)
  }

  @Test func aDisconnectGivesTheBuffersBack() {
    var bench = Self.bench(total: 4, Self.a, Self.b)
    bench.layer.credits.setWants(Self.a, true)
    while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
    // A disconnect that failed changes nothing.
    #expect(bench.receive(disconnected(0x40, .commandDisallowed)).event != nil)
    expect(bench.layer.credits.free == 1)
    #expect(bench.receive(disconnected(0x40)).event != nil)
    expect(bench.layer.credits.free == 4 && !bench.layer.credits.isOpen(Self.a))
    // The controller must not report them again; if it does, the layer reports that and counts nothing.
    guard case .completedPacketsOfUnknownLink(Self.a)? = bench.receive(completed([(0x40, 3)])).violation else {
      Issue.record("a violation")
      return
    }
    expect(bench.layer.credits.free == 4)
  }

  @Test func excessCompletedPacketsDoNotCount() {
    var bench = Self.bench(total: 4, Self.a, Self.b)
    bench.layer.credits.setWants(Self.b, true)
    bench.layer.credits.took(bench.layer.credits.next() ?? Self.a)
    guard case .tooManyCompletedPackets(Self.a, 2)? = bench.receive(completed([(0x40, 2), (0x41, 1)])).violation else {
      Issue.record("a violation")
      return
    }
    // The right entry of the same event counts.
    expect(bench.layer.credits.free == 4 && bench.layer.credits.outstanding(Self.b) == 0)
  }

  /// The number of buffers is constant, no link exceeds the cap while another waits, and every link that may send gets
  /// a buffer.
  @Test(arguments: 0..<200) func invariants(seed: UInt64) throws {
    var chance = SplitMix64(seed: seed)
    let total = Int.random(in: 1...12, using: &chance)
    var bench = Self.bench(total: UInt8(total)), held: [UInt16: Int] = [:], wants: Set<UInt16> = []
    for _ in 0..<500 {
      let handle = UInt16.random(in: 1...6, using: &chance), link = ConnectionHandle(rawValue: handle)
      switch Int.random(in: 0...9, using: &chance) {
      case 0:
        #expect((bench.receive(connected(handle)).event == nil) == (held[handle] != nil))
        if held[handle] == nil { held[handle] = 0 }
      case 1:
        bench.receive(disconnected(handle))
        held[handle] = nil
        wants.remove(handle)
      case 2, 3:
        let does = Bool.random(using: &chance)
        bench.layer.credits.setWants(link, does)
        if does, held[handle] != nil { wants.insert(handle) } else { wants.remove(handle) }
      case 4, 5:
        let count = Int.random(in: 0...3, using: &chance), before = held[handle]
        let violation = bench.receive(completed([(handle, UInt16(count))])).violation
        #expect((violation == nil) == (before.map { $0 >= count } ?? false))
        if let before { held[handle] = max(0, before - count) }
      default:
        let next = bench.layer.credits.next()
        let free = total - held.values.reduce(0, +)
        let data = Set(held.filter { $0.value > 0 }.keys).union(wants).count
        let cap = wants.count > 1 ? max(1, total / data) : max(1, total / 2, total - (held.count - 1))
        let mayTake = wants.filter { held[$0, default: 0] < cap }
        #expect((next != nil) == (free > 0 && !mayTake.isEmpty))
        guard let next else { break }
        let fewest = mayTake.map { held[$0, default: 0] }.min()
        #expect(mayTake.contains(next.rawValue) && held[next.rawValue] == fewest)
        bench.layer.credits.took(next)
        held[next.rawValue, default: 0] += 1
      }
      expect(bench.layer.credits.free == total - held.values.reduce(0, +) && bench.layer.credits.free >= 0)
    }
  }

  /// Two links, n buffers; in a tick the air carries up to four packets to each peer that receives.
  static func packetsOfB(total: UInt8, aIsSilent: Bool, ticks: Int = 1_000) -> Int {
    var bench = bench(total: total, a, b), sent = 0
    bench.layer.credits.setWants(a, true)
    for tick in 0..<ticks {
      // The other link opens after the first has taken all the buffers that it may.
      if tick == 10 { bench.layer.credits.setWants(b, true) }
      while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
      let ofA = aIsSilent ? 0 : min(4, bench.layer.credits.outstanding(a))
      let ofB = min(4, bench.layer.credits.outstanding(b))
      if ofA > 0 { bench.receive(completed([(a.rawValue, UInt16(ofA))])) }
      if ofB > 0 { bench.receive(completed([(b.rawValue, UInt16(ofB))])) }
      sent += ofB
    }
    return sent
  }

  @Test func aSilentPeerCostsTheOthersWhatItHolds() {
    // The peer went silent before the other link had packets, and its link holds all but one buffer.
    #expect(Self.packetsOfB(total: 8, aIsSilent: true) == 990)
    #expect(Self.packetsOfB(total: 8, aIsSilent: false) == 3_960)
  }

  /// The peer goes silent while both links send.
  @Test(arguments: [4, 8, 12] as [UInt8]) func aPeerThatGoesSilentCostsLittle(total: UInt8) {
    var bench = Self.bench(total: total, Self.a, Self.b), sent = 0
    for link in [Self.a, Self.b] { bench.layer.credits.setWants(link, true) }
    let perTick = Int(total) / 2
    for tick in 0..<1_000 {
      while let link = bench.layer.credits.next() { bench.layer.credits.took(link) }
      if tick < 10 { bench.receive(completed([(0x40, UInt16(perTick))])) }
      let ofB = bench.layer.credits.outstanding(Self.b)
      bench.receive(completed([(0x41, UInt16(ofB))]))
      sent += ofB
    }
    #expect(sent >= 1_000 * perTick * 95 / 100, "\(sent)")
  }
}
