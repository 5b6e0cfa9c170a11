import BindruneATT
import BindruneWire
import TestSupport
import Testing

@Suite struct NotificationQueueTests {
  /// The queue, a plain list as its model, and the octets from both.
  final class Pair {
    var queue: NotificationQueue
    var model: [[UInt8]] = []
    var buffer = PacketBuffer(capacity: 600)
    init(capacity: Int) { queue = NotificationQueue(capacity: capacity) }

    var capacity: Int { queue.capacity }
    var used: Int { model.reduce(0) { $0 + 8 + ($1.count - 3 + 7) / 8 * 8 } }
    func offer(_ opcode: UInt8, _ value: [UInt8], limit: Int) -> SendAnswer {
      queue.offer(ATTOpcode(rawValue: opcode), AttributeHandle(rawValue: 0x1234), value.span, limit: limit)
    }
    func pull() -> [UInt8]? { buffer.fill { output in queue.pull(into: &output) } ? buffer.bytes : nil }
    func takeReadyEdge(_ limit: Int) -> Bool { queue.takeReadyEdge(limit: limit) }
    func removeAll() { queue.removeAll() }
    var isEmpty: Bool { queue.isEmpty }
  }

  /// First in, first out, whole, within the capacity, at every place of the ring where a value can wrap.
  @Test(arguments: [528, 536, 600, 1000, 4096]) func likeAList(_ capacity: Int) {
    for seed in UInt64(0)..<20 {
      var chance = SplitMix64(seed: seed), isRefused = false
      let pair = Pair(capacity: capacity), limit = Int.random(in: 20...514, using: &chance)
      #expect(pair.capacity >= capacity && pair.capacity < capacity + 8)
      for step in 0..<2000 {
        if Bool.random(using: &chance) {
          let value = (0..<Int.random(in: 0...600, using: &chance)).map { UInt8(($0 + step) & 0xFF) }
          let opcode: UInt8 = Bool.random(using: &chance) ? 0x1B : 0x52
          let kept = Array(value.prefix(limit))
          let fits = pair.used + 8 + (kept.count + 7) / 8 * 8 <= pair.capacity
          let answer = pair.offer(opcode, value, limit: limit)
          #expect(answer == (!fits ? .full : kept.count < value.count ? .cut(to: limit) : .queued))
          #expect(answer.isAccepted == fits)
          if fits { pair.model.append([opcode, 0x34, 0x12] + kept) } else { isRefused = true }
        } else {
          #expect(pair.pull() == pair.model.first)
          if !pair.model.isEmpty { pair.model.removeFirst() }
          let hasRoom = pair.used + 8 + (limit + 7) / 8 * 8 <= pair.capacity
          #expect(pair.takeReadyEdge(limit) == (isRefused && hasRoom))
          if hasRoom { isRefused = false }
          #expect(!pair.takeReadyEdge(limit), "one edge")
        }
        #expect(pair.isEmpty == pair.model.isEmpty)
      }
    }
  }

  /// 517 octets of ATT_MTU, without the opcode and the first handle: a Multiple Handle Value Notification.
  @Test func holdsAtLeastOneLongestEntry() {
    let pair = Pair(capacity: 0), longest = [UInt8](repeating: 7, count: 514)
    #expect(pair.capacity == 528)
    for _ in 0..<3 {
      #expect(pair.offer(0x23, longest, limit: 514) == .queued && pair.offer(0x1B, [], limit: 514) == .full)
      #expect(!pair.takeReadyEdge(514))
      #expect(pair.pull() == [0x23, 0x34, 0x12] + longest && pair.takeReadyEdge(514))
    }
    #expect(pair.offer(0x23, longest, limit: 514) == .queued && pair.offer(0x1B, [], limit: 514) == .full)
    pair.removeAll()
    #expect(pair.isEmpty && pair.pull() == nil && !pair.takeReadyEdge(514), "what is closed is never ready")
  }

  /// The longest Multiple Handle Value Notification of MTU 517, two octets longer than the longest value, is refused;
  /// with any capacity, the edge comes as soon as it would be accepted, and not before.
  @Test(arguments: [0, 520, 528, 1024, 4096]) func readyForTheLongestPDU(capacity: Int) {
    let station = Station(queueCapacity: capacity)
    station.receive("02 05 02")
    _ = station.sent()
    _ = station.events()
    let first = octets("03 00 00 01") + [UInt8](repeating: 7, count: 256)
    let tuples = first + octets("05 00 FC 00") + [UInt8](repeating: 8, count: 252)
    #expect(tuples.count == 516)
    while station.notify([]).isAccepted {}
    #expect(station.bearer.offer(multiple: tuples.span) == .full)
    var pulled = 0
    while station.effects() == [] {
      guard station.nextPDU() != nil else {
        Issue.record("no edge")
        return
      }
      pulled += 1
    }
    #expect(pulled == 528 / 8, "528 octets are free, and the edge came with the last of them")
    #expect(station.bearer.offer(multiple: tuples.span) == .queued)
    #expect(station.sent().last == "23 " + hex(tuples))
  }

  /// Through the bearer: one edge for any number of refusals, when there is room for a PDU of the MTU and not before.
  @Test func oneReadyEdge() {
    let station = Station(queueCapacity: 1024)
    station.receive("02 05 02")
    _ = station.sent()
    _ = station.events()
    var accepted = 0
    while station.notify([UInt8](repeating: 1, count: 24)).isAccepted { accepted += 1 }
    #expect(accepted == 1024 / 32)
    for _ in 0..<5 { #expect(station.write([1, 2, 3, 4, 5, 6, 7, 8, 9]) == .full) }
    var pulled = 0
    while station.effects() == [] {
      #expect(station.nextPDU() != nil)
      pulled += 1
    }
    #expect(pulled == 528 / 32 + 1)
    #expect(station.notify([UInt8](repeating: 1, count: 600)) == .cut(to: 512))
    #expect(station.sent().count == accepted - pulled + 1 && station.effects() == [])
  }

  @Test func valuesAreCutTo512() {
    let station = Station()
    station.receive("02 05 02")
    _ = station.sent()
    #expect(station.notify([UInt8](repeating: 1, count: 514)) == .cut(to: 512) && station.nextPDU()?.count == 515)
    #expect(station.write([UInt8](repeating: 1, count: 513)) == .cut(to: 512) && station.nextPDU()?.count == 515)
    #expect(station.indicate([UInt8](repeating: 1, count: 513)) == .cut(to: 512) && station.nextPDU()?.count == 515)
    #expect(station.notify([UInt8](repeating: 1, count: 512)) == .queued && station.nextPDU()?.count == 515)
  }
}
