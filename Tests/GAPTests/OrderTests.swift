import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@testable import BindruneGAP

/// Traffic of the layers above on one link leaves in the order of their calls, for any behaviour of the peer, the
/// controller and the MTU: commands and requests in one role, notifications, indications and answers in the other.
@Suite struct OrderTests {
  @Test(arguments: 0..<8) func commandsAndRequests(_ shard: Int) throws {
    for seed in Fuzz.seed..<Fuzz.seed + 25 {
      var caller = try Caller(seed: seed * 8 + UInt64(shard))
      try caller.run(calls: 120)
    }
  }
  @Test(arguments: 0..<8) func valuesAndAnswers(_ shard: Int) throws {
    for seed in Fuzz.seed..<Fuzz.seed + 25 {
      var server = try Application(seed: seed * 8 + UInt64(shard))
      try server.run(calls: 120)
    }
  }

  /// A held request lets earlier commands through until its release, and later ones wait, even if it is cancelled.
  @Test func held() throws {
    var bench = Bench.started()
    let link = try bench.linkUp()
    bench.receive(data(0x40, [0x02, 23, 0]))
    _ = bench.pdus()
    let attribute = { (number: Int) in AttributeHandle(rawValue: UInt16(number)) }
    let write = { (core: inout HostCore, number: Int) in
      core.write(command: [UInt8(number)].span, to: attribute(number), on: link)
    }
    bench.perform { core, _ in
      let first = RequestID(rawValue: 1), second = RequestID(rawValue: 2), third = RequestID(rawValue: 3)
      core.withClient(of: link, id: first, isHeld: true) { $0.read(first, attribute(0x10)) }
      core.withClient(of: link, id: second, isHeld: true) { $0.read(second, attribute(0x20)) }
      core.withClient(of: link, id: third) { $0.read(third, attribute(0x30)) }
      expect(write(&core, 1) == .queued)
      core.cancel(first, now: Instant.zero)
      core.release(first, on: link)
      expect(write(&core, 2) == .queued)
      core.release(second, on: link)
      expect(write(&core, 3) == .full)
    }
    same(bench.pdus(), ["52 01 00 01", "52 02 00 02", "0A 20 00"])
    bench.receive(data(0x40, [0x0B, 7]))
    expect(bench.effects.contains { if case .readyToSend(link) = $0 { true } else { false } })
    same(bench.pdus(), ["0A 30 00"])
    bench.perform { core, _ in expect(write(&core, 4) == .queued) }
    same(bench.pdus(), ["52 04 00 04"])
  }

  /// A kept answer is sent after its time-out, before the values that it was kept for: the peer waits for 30 s only.
  @Test func keptTooLong() throws {
    var application = try Application(seed: 0)
    let link = application.link
    application.bench.receive(data(0x40, [0x0A] + little(application.dynamic.rawValue)))
    guard case .readRequested(let id, _, _, _)? = application.bench.effects.last else { throw CancellationError() }
    application.bench.perform { core, now in expect(core.answerRead(id, [9], isKept: true, now: now) == nil) }
    // A second request, out of turn, waits for the first: Vol 3, Part F, §3.3.2.
    application.bench.receive(data(0x40, [0x0A] + little(application.stored.rawValue)))
    application.bench.wait(.seconds(24))
    same(application.bench.pdus(), [])
    application.bench.wait(.seconds(2))
    application.bench.receive(completedPackets(0x40, 1))
    same(application.bench.pdus(), ["0B 09", "0B 07"])
    application.bench.perform { core, now in core.releaseAnswer(on: link, now: now) }
    same(application.bench.pdus(), [])
  }
}

extension Bench {
  /// A link to a peer that is central.
  fileprivate mutating func linkUp() throws -> LinkID {
    receive(connectionComplete(0x40, .peripheral))
    answerAll()
    guard case .linkUp(let link, _, _, _)? = effects.first(where: { if case .linkUp = $0 { true } else { false } })
    else { throw CancellationError() }
    forget()
    return link
  }
  /// The PDUs sent since the last check, or their first fragments.
  fileprivate mutating func pdus() -> [String] {
    defer { forget() }
    return sent.filter { $0.hasPrefix("02 40 00 ") }.map { String($0.dropFirst(27)) }
  }
}

/// Common to both roles: the calls in order, each with the positions of its PDUs among all PDUs.
private struct Order {
  struct Call {
    /// A call takes effect with its last PDU, not with its first.
    var isWriting: Bool
    var first: Int?, last: Int?
  }
  private(set) var calls: [Int: Call] = [:]
  private(set) var numbers: [Int] = []
  private var pdus = 0

  mutating func made(_ number: Int, isWriting: Bool = true) {
    numbers.append(number)
    calls[number] = Call(isWriting: isWriting)
  }
  mutating func left(_ number: Int) {
    pdus += 1
    if calls[number]?.first == nil { calls[number]?.first = pdus }
    calls[number]?.last = pdus
  }
  /// Two calls of which the later overtook the earlier, or one that never left.
  var fault: String? {
    for (earlier, later) in zip(numbers, numbers.dropFirst()) {
      guard let before = calls[earlier], let after = calls[later], let first = after.first,
        let place = before.isWriting ? before.last : before.first
      else { return "\(earlier) or \(later) has never left" }
      if first < place { return "\(later) has overtaken \(earlier)" }
    }
    return nil
  }
}

/// A client that makes commands and requests at random, each to an attribute of its own; its peer answers at random
/// times.
private struct Caller: ~Copyable {
  private let seed: UInt64
  private var bench: Bench, chance: SplitMix64, order = Order()
  private let link: LinkID
  private var buffers = 0, isRefused = false, edges = 0, refusals = 0, completed = 0, requests = 0
  /// The peer's state: its unanswered request and its ATT_MTU.
  private var unanswered: [UInt8]?, mtu = 23, prepared = 0

  init(seed: UInt64) throws {
    self.seed = seed
    chance = SplitMix64(seed: seed)
    var controller = PaperController()
    controller.buffers = [27, 0, UInt8.random(in: 1...6, using: &chance)]
    let capacity = Int.random(in: 520...2000, using: &chance)
    var bench = Bench.started(Database(), controller: controller) { $0.queueCapacity = capacity }
    link = try bench.linkUp()
    self.bench = bench
  }
  private mutating func random(_ range: Range<Int>) -> Int { Int.random(in: range, using: &chance) }

  mutating func run(calls: Int) throws {
    var made = 0
    for _ in 0..<100_000 where made < calls || buffers > 0 || unanswered != nil {
      switch random(0..<10) {
      case 0..<5 where made < calls && !isRefused:
        made += 1
        call(made)
      case 5, 6: if buffers > 0 { complete(random(1..<buffers + 1)) }
      case 7, 8: answer()
      case 9 where mtu == 23 && random(0..<50) == 0:
        mtu = 64
        bench.receive(data(0x40, [0x02, 64, 0]))
      default: break
      }
      takeOutputs()
    }
    if let fault = order.fault { Issue.record("seed \(seed): \(fault)") }
    let requests = requests, completed = completed, edges = edges, refusals = refusals
    #expect(completed == requests && edges == refusals && !isRefused, "seed \(seed)")
  }

  private mutating func call(_ number: Int) {
    let link = link, attribute = AttributeHandle(rawValue: UInt16(number))
    let kind = random(0..<8), count = random(kind == 7 ? 30..<200 : 0..<18)
    let value = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: count)
    if kind < 4 {
      var answer = SendAnswer.closed
      bench.perform { core, _ in answer = core.write(command: value.span, to: attribute, on: link) }
      if answer.isAccepted { return order.made(number) }
      #expect(answer == .full)
      isRefused = true
      refusals += 1
      return
    }
    let id = RequestID(rawValue: UInt64(number)), isReading = kind < 6
    requests += 1
    order.made(number, isWriting: !isReading)
    bench.perform { core, _ in
      core.withClient(of: link, id: id) {
        if isReading { $0.readLong(id, attribute) } else { $0.write(id, attribute, value.span) }
      }
    }
  }
  private mutating func complete(_ count: Int) {
    buffers -= count
    bench.receive(completedPackets(0x40, UInt16(count)))
  }
  private mutating func answer() {
    guard let request = unanswered else { return }
    unanswered = nil
    let value = [UInt8](repeating: 0, count: random(0..<3) == 0 ? mtu - 1 : random(0..<mtu - 1))
    let response: [UInt8] =
      switch request[0] {
      case 0x0A, 0x0C: [request[0] + 1] + value
      case 0x16: [0x17] + request.dropFirst()
      default: [request[0] + 1]
      }
    bench.receive(data(0x40, response))
  }
  /// Records the PDUs sent and the effects.
  private mutating func takeOutputs() {
    for effect in bench.effects {
      switch effect {
      case .readyToSend:
        edges += 1
        isRefused = false
      case .completed: completed += 1
      default: break
      }
    }
    for packet in bench.sent where packet.hasPrefix("02 40") {
      buffers += 1
      let octets = octets(packet)
      // A request of several fragments: the peer answers with those received so far.
      if octets[2] == 0x10 { unanswered? += octets[5...] } else { left(Array(octets[9...])) }
    }
    bench.forget()
  }
  private mutating func left(_ pdu: [UInt8]) {
    switch pdu[0] {
    case 0x03: return
    case 0x18: order.left(prepared)
    default: order.left(Int(pdu[1]) | Int(pdu[2]) << 8)
    }
    if pdu[0] == 0x16 { prepared = Int(pdu[1]) | Int(pdu[2]) << 8 }
    if pdu[0] & 0x40 == 0 { unanswered = pdu }
  }
}

/// A server's application that notifies, indicates and answers at random; its values contain the number of its call.
private struct Application: ~Copyable {
  let seed: UInt64
  var bench: Bench
  let link: LinkID, notifying: AttributeHandle, dynamic: AttributeHandle, stored: AttributeHandle
  private var chance: SplitMix64, order = Order()
  private var buffers = 0, isRefused = false, edges = 0, refusals = 0, asked: ServerRequestID?
  /// The client's state: its unanswered request and its unconfirmed indication.
  private var isAsking = false, owesConfirmation = false

  init(seed: UInt64) throws {
    self.seed = seed
    chance = SplitMix64(seed: seed)
    var controller = PaperController(), builder = DatabaseBuilder()
    (notifying, dynamic, stored) = builder.service("180D") {
      (
        $0.characteristic("2A37", [.notify, .indicate]).value,
        $0.characteristic("2A39", .read, value: .dynamic).value,
        $0.characteristic("2A38", .read, value: [7]).value
      )
    }
    controller.buffers = [27, 0, UInt8.random(in: 1...6, using: &chance)]
    let capacity = Int.random(in: 520...2000, using: &chance)
    var bench = Bench.started(try builder.build(), controller: controller) { $0.queueCapacity = capacity }
    link = try bench.linkUp()
    // Client Characteristic Configuration: both. Vol 3, Part G, §3.3.3.3.
    bench.receive(data(0x40, [0x12] + little(notifying.rawValue + 1) + [3, 0]))
    bench.receive(completedPackets(0x40, 1))
    bench.forget()
    self.bench = bench
  }
  private mutating func random(_ range: Range<Int>) -> Int { Int.random(in: range, using: &chance) }

  mutating func run(calls: Int) throws {
    var made = 0
    for _ in 0..<100_000 where made < calls || buffers > 0 || asked != nil || owesConfirmation {
      switch random(0..<12) {
      case 0..<5 where made < calls && !isRefused:
        made += 1
        call(made)
      case 5, 6: if buffers > 0 { complete(random(1..<buffers + 1)) }
      case 7 where !isAsking && made < calls:
        isAsking = true
        let handle = random(0..<4) == 0 ? stored : dynamic
        bench.receive(data(0x40, [0x0A] + little(handle.rawValue)))
      case 8, 9: if let id = asked { answer(id, &made) }
      case 10 where owesConfirmation:
        owesConfirmation = false
        bench.receive(data(0x40, [0x1E]))
      default: break
      }
      takeOutputs()
    }
    if let fault = order.fault { Issue.record("seed \(seed): \(fault)") }
    let edges = edges, refusals = refusals, isAsking = isAsking
    #expect(edges == refusals && !isAsking, "seed \(seed)")
  }

  private mutating func call(_ number: Int) {
    let link = link, notifying = notifying, isIndication = random(0..<5) == 0
    let value = little(UInt16(number)) + [UInt8](repeating: 0, count: random(0..<18))
    var answer: SendAnswer?
    bench.perform { core, _ in
      answer =
        isIndication
        ? core.indicate(value.span, of: notifying, on: link) : core.notify(value.span, of: notifying, on: link)
    }
    if answer == .full, isIndication { return }
    if answer == .full {
      isRefused = true
      refusals += 1
      return
    }
    #expect(answer == .queued)
    order.made(number)
  }
  private mutating func answer(_ id: ServerRequestID, _ made: inout Int) {
    asked = nil
    made += 1
    let value = little(UInt16(made))
    order.made(made)
    bench.perform { core, now in expect(core.answerRead(id, value, now: now) == nil) }
  }
  private mutating func complete(_ count: Int) {
    buffers -= count
    bench.receive(completedPackets(0x40, UInt16(count)))
  }
  private mutating func takeOutputs() {
    for effect in bench.effects {
      switch effect {
      case .readyToSend:
        edges += 1
        isRefused = false
      case .readRequested(let id, _, _, _): asked = id
      default: break
      }
    }
    for packet in bench.sent where packet.hasPrefix("02 40") {
      buffers += 1
      let pdu = octets(packet).dropFirst(9)
      switch pdu.first {
      case 0x0B:
        isAsking = false
        // The server's own answer has one octet, and no number.
        if pdu.count == 3 { order.left(Int(pdu[10]) | Int(pdu[11]) << 8) }
      case 0x1D:
        owesConfirmation = true
        fallthrough
      default: order.left(Int(pdu[12]) | Int(pdu[13]) << 8)
      }
    }
    bench.forget()
  }
}
