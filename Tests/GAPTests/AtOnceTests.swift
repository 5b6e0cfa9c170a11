import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// Compares a value that is written into its packet at once with the same value through the queue: for any other
/// traffic, the controller gets the same packets in the same order, and the application the same answers.
@Suite struct AtOnceTests {
  /// A peripheral with three clients; two sides differ only in `atOnce`.
  struct Side: ~Copyable {
    var bench: Bench
    let atOnce: Bool
    var links: [UInt16: LinkID] = [:]
    var answers: [String] = []

    init(atOnce: Bool, buffers: UInt8, _ database: Database) {
      self.atOnce = atOnce
      var controller = PaperController()
      controller.buffers = [27, 0, buffers]
      bench = Bench.started(database, controller: controller) { $0.queueCapacity = 1024 }
      bench.forget()
    }
    mutating func connect(_ handle: UInt16) {
      let peer = PeerAddress(DeviceAddress(0x0000_5E00_5300 + UInt64(handle)), .public)
      bench.receive(connectionComplete(handle, .peripheral, peer))
      links[handle] = LinkID(rawValue: bench.core.lastLink)
      bench.answerAll()
    }
    mutating func disconnect(_ handle: UInt16) {
      bench.receive(disconnectionComplete(handle))
      links[handle] = nil
    }
    mutating func request(_ handle: UInt16, _ pdu: [UInt8]) {
      bench.receive(
        [2] + little(handle | 0x2000) + little(UInt16(pdu.count + 4)) + little(UInt16(pdu.count)) + [4, 0] + pdu)
    }
    mutating func notify(_ handle: UInt16, _ value: [UInt8]) {
      guard let link = links[handle] else { return }
      let answer: SendAnswer?
      if atOnce {
        answer = bench.write { core, output in core.notify(value.span, of: Self.value, on: link, into: &output) }
      } else {
        var answered: SendAnswer?
        bench.perform { core, _ in answered = core.notify(value.span, of: Self.value, on: link) }
        answer = answered
      }
      answers.append("\(answer, default: "nil")")
    }
    mutating func command(_ handle: UInt16, _ value: [UInt8]) {
      guard let link = links[handle] else { return }
      let target = AttributeHandle(rawValue: 0x0042), answer: SendAnswer
      if atOnce {
        answer = bench.write { core, output in core.write(command: value.span, to: target, on: link, into: &output) }
      } else {
        var answered = SendAnswer.closed
        bench.perform { core, _ in answered = core.write(command: value.span, to: target, on: link) }
        answer = answered
      }
      answers.append("\(answer)")
    }
    mutating func read(_ handle: UInt16) {
      guard let link = links[handle] else { return }
      bench.perform { core, _ in
        core.withClient(of: link, id: RequestID(rawValue: 1)) {
          $0.read(RequestID(rawValue: 1), AttributeHandle(rawValue: 7))
        }
      }
    }
    mutating func take() -> [String] {
      defer { answers = [] }
      return bench.takeAll() + answers
    }
    static var value: AttributeHandle { AttributeHandle(rawValue: 3) }
  }

  static func database() throws -> Database {
    var builder = DatabaseBuilder()
    builder.service("180D") { _ = $0.characteristic("2A37", [.notify, .read], value: [1, 2, 3]) }
    return try builder.build()
  }

  @Test(arguments: 0..<150) func thePacketsAreTheSame(seed: UInt64) throws {
    var chance = SplitMix64(seed: seed)
    let buffers = UInt8.random(in: 1...6, using: &chance), database = try Self.database()
    var queued = Side(atOnce: false, buffers: buffers, database),
      direct = Side(atOnce: true, buffers: buffers, database)
    func both(_ body: (inout Side) -> Void) {
      body(&queued)
      body(&direct)
    }
    for handle in UInt16(1)...3 { both { $0.connect(handle) } }
    for step in 0..<300 {
      let handle = UInt16.random(in: 1...3, using: &chance)
      let value = [UInt8](repeating: UInt8(step & 0xFF), count: Int.random(in: 0...80, using: &chance))
      switch Int.random(in: 0...19, using: &chance) {
      case 0: both { $0.request(handle, [0x02, 64, 0]) }
      case 1: both { $0.request(handle, [0x12, 4, 0, 1, 0]) }
      case 2: both { $0.request(handle, [0x0A, 3, 0]) }
      case 3: both { $0.read(handle) }
      case 4: both { $0.request(handle, [0x0B, 9]) }
      case 5: both { $0.request(handle, [0x1D, 9, 0, 1]) }
      case 6: both { side in if side.links[handle] == nil { side.connect(handle) } }
      case 7: if Bool.random(using: &chance) { both { $0.disconnect(handle) } }
      case 8, 9: both { $0.command(handle, value) }
      case 10, 11, 12:
        let count = UInt16.random(in: 1...4, using: &chance)
        both { $0.bench.receive(completedPackets(handle, count)) }
      default: both { $0.notify(handle, value) }
      }
      let expected = queued.take(), found = direct.take()
      guard found == expected else {
        Issue.record("seed \(seed), step \(step): \(found) instead of \(expected)")
        return
      }
    }
  }

  /// A value is written at once exactly if there is a buffer and nothing waits before it.
  @Test func atOnceIsAtOnce() throws {
    var side = Side(atOnce: true, buffers: 2, try Self.database())
    side.connect(1)
    side.request(1, [0x12, 4, 0, 1, 0])
    side.bench.receive(completedPackets(1, 1))
    side.bench.forget()
    guard let link = side.links[1] else { throw CancellationError() }
    func written(_ core: inout HostCore) -> Int {
      var output = PacketBuffer()
      _ = output.fill { output in
        core.notify([7].span, of: Side.value, on: link, into: &output) == .queued
      }
      return output.count
    }
    #expect(written(&side.bench.core) == 13 && written(&side.bench.core) == 13)
    #expect(written(&side.bench.core) == 0, "the controller has no buffer")
    side.bench.receive(completedPackets(1, 2))
    #expect(side.bench.sent == ["02 01 00 08 00 04 00 04 00 1B 03 00 07"], "the one that waited")
  }

  /// A request that is too long for ATT_MTU fails in its turn, and that turn's packet has the next value.
  @Test func aRequestWithoutRoom() throws {
    var side = Side(atOnce: false, buffers: 1, try Self.database())
    side.connect(1)
    side.request(1, [0x02, 23, 0])
    side.bench.receive(completedPackets(1, 1))
    side.request(1, [0x12, 4, 0, 1, 0])
    side.bench.receive(completedPackets(1, 1))
    side.notify(1, [1])
    side.notify(1, [2])
    guard let link = side.links[1] else { throw CancellationError() }
    side.bench.perform { core, _ in
      core.withClient(of: link, id: RequestID(rawValue: 9)) {
        $0.readMultiple(RequestID(rawValue: 9), [AttributeHandle](repeating: Side.value, count: 12))
      }
    }
    _ = side.take()
    side.bench.receive(completedPackets(1, 1))
    #expect(
      side.take() == ["02 01 00 08 00 04 00 04 00 1B 03 00 02", "9: failed(BindruneGATT.ClientError.valueTooLong)"])
  }
}
