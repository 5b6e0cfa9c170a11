import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Any octets into `HCILayer.receive` cause an indication or a typed violation, never a trap; the number of buffers
/// stays right.
@Suite struct FuzzTests {
  @Test func anythingIntoReceive() throws {
    let samples = try VectorFile("hci.txt").vectors.map(\.octets) + [[2, 0x40, 0x20, 3, 0, 1, 2, 3]]
    var running = DataCreditsTests.bench(total: 8, DataCreditsTests.a, DataCreditsTests.b), starting = Bench()
    starting.layer.start(now: starting.now)
    var violations = 0, chance = SplitMix64(seed: Fuzz.seed)
    for packet in Fuzz(samples) {
      running.now += .microseconds(1)
      if UInt8.random(in: 0...7, using: &chance) == 0 {
        running.layer.send(LESetScanEnable(), tag: 1, now: running.now)
      }
      _ = running.sent()
      if let link = running.layer.credits.next() { running.layer.credits.took(link) }
      running.layer.credits.setWants(DataCreditsTests.a, Bool.random(using: &chance))
      touch(running.receive(packet), packet, &violations)
      expect(running.layer.isRunning)
      expect((0...running.layer.credits.total).contains(running.layer.credits.free))
      while !running.layer.expire(now: running.now).isNothing {}

      // A start receives the same octets; it begins again after it has succeeded or failed.
      _ = starting.sent()
      let indication = starting.receive(packet)
      touch(indication, packet, &violations)
      if indication.started != nil || indication.failure != nil { starting.layer.start(now: starting.now) }
    }
    #expect(violations > 0)
    expect(running.layer.credits.total == 8)
  }

  /// Reads everything that the indication refers to: its ranges lie in the packet.
  func touch(_ indication: HCIIndication, _ packet: [UInt8], _ violations: inout Int) {
    switch indication {
    case .acl(let acl): if !acl.data.isEmpty { _ = acl.data.byte(Int(acl.data.count) - 1, in: packet.span) }
    case .event(let event): _ = event.describe(in: packet.span)
    case .command(let outcome):
      if let command = AnyCommand(default: outcome.opcode) {
        _ = command.describe(return: outcome.returnParameters, in: packet.span)
      }
    case .violation: violations += 1
    case .nothing, .started, .startFailed: break
    }
  }

  @Test func anythingIntoTheCommandDecoder() throws {
    let samples = try VectorFile("hci.txt").vectors.map(\.octets).filter { $0[0] == 1 }
    for packet in Fuzz(samples) {
      do throws(WireError) {
        let command = try AnyCommand(packet.span)
        _ = command.describe(in: packet.span)
        var buffer = PacketBuffer()
        _ = try buffer.fill { output throws(WireError) in
          try command.writePacket(into: &output, from: packet.span)
          return true
        }
        #expect(buffer.count == packet.count)
      } catch {
        if case .noRoom = error.reason { Issue.record("\(error)") }
      }
    }
  }
}
