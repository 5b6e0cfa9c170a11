import BindruneReplay
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// A replay finds what differs, where it differs, and survives any trace.
@Suite("Replay: changed traces") struct MutationTests {
  /// Every kind of response, continued request, SMP PDU and reply to the controller: changed, it diverges at exactly
  /// that record.
  @Test(arguments: OwnTraceTests.samples) func aChangedPDUDiverges(_ sample: OwnTraceTests.Sample) throws {
    var seen: Set<UInt16> = []
    for index in sample.packets.indices {
      let packet = sample.packets[index]
      guard packet.direction == .fromHost, let kind = Self.comparedKind(packet.octets), seen.insert(kind).inserted
      else {
        continue
      }
      var packets = sample.packets
      switch kind {
      // Its values are the application's: another code.
      case 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11: packets[index].octets[9] ^= 0x06
      // The offset.
      case 0x0C, 0x16: packets[index].octets[12] ^= 0x01
      default: packets[index].octets[packet.octets.count - 1] ^= 0x01
      }
      let result = try Replay(packets, seed: sample.seed).run()
      #expect(
        result.divergences.first?.number == packet.number, "kind \(kind), record \(packet.number): \(text(result))")
    }
    #expect(!seen.isEmpty || sample.name.contains("several links, client"))
  }
  /// A PDU that the host alone determines: responses, confirmations, SMP values, replies to the controller. nil: an
  /// application may have wanted the other value, or the packet is only a part of a frame.
  static func comparedKind(_ octets: [UInt8]) -> UInt16? {
    if octets[0] == 1, octets.count == 22, octets[1] == 0x1A, octets[2] == 0x20 { return 0x1000 }
    guard octets[0] == 2, octets.count > 9, octets[2] >> 4 & 3 == 0 else { return nil }
    let length = Int(octets[5]) | Int(octets[6]) << 8, opcode = octets[9]
    guard length == octets.count - 9 else { return nil }
    switch octets[7] {
    case 4:
      return [0x01, 0x05, 0x07, 0x09, 0x0B, 0x0C, 0x0D, 0x0F, 0x11, 0x16, 0x17, 0x18].contains(opcode)
        ? UInt16(opcode) : nil
    // Octet 6 of Pairing Request and Response are the keys that the application wants; the random values are the
    // seed's.
    case 6: return [0x03, 0x04, 0x06, 0x0C, 0x0D].contains(opcode) ? 0x100 | UInt16(opcode) : nil
    default: return nil
    }
  }

  /// A server whose value changes without a write: that is the application's, and named.
  @Test func changedValue() throws {
    let sample = try #require(OwnTraceTests.samples.first { $0.name.contains("MTU 517, server") })
    let place = try #require(
      sample.packets.lastIndex { $0.direction == .fromHost && $0.octets.count > 9 && $0.octets[9] == 0x0B })
    var packets = sample.packets
    packets[place].octets[12] ^= 0x80
    let result = try Replay(packets, seed: sample.seed).run()
    #expect(result.isEqual, "\(text(result))")
    #expect(result.freedoms[.applicationValue]?.numbers == [packets[place - 1].number], "\(text(result))")
  }
  /// A response that is missing, and one too many.
  @Test func missingAndAdded() throws {
    let sample = try #require(OwnTraceTests.samples.first { $0.name.contains("MTU 517, server") })
    let place = try #require(
      sample.packets.firstIndex { $0.direction == .fromHost && $0.octets.count > 9 && $0.octets[9] == 0x0B })
    var packets = sample.packets
    packets.insert(packets[place], at: place + 1)
    let added = try Replay(packets, seed: sample.seed).run()
    #expect(added.divergences.first?.number == packets[place].number)
    #expect(added.divergences.first?.ours == nil)
    packets = sample.packets
    packets.remove(at: place)
    #expect(try Replay(packets, seed: sample.seed).run().divergenceCount > 0)
  }

  /// Seeded damage to packets, and packets lost, doubled and exchanged: an end, and the same one each time.
  @Test(arguments: 0..<8) func mutations(_ part: Int) throws {
    let samples = OwnTraceTests.samples
    for round in 0..<150 {
      let seed = UInt64(part * 1_000 + round)
      var chance = SplitMix64(seed: seed)
      let sample = samples[Int(chance.next() % UInt64(samples.count))]
      var packets = sample.packets
      for _ in 0...(chance.next() % 20) {
        let at = Int(chance.next() % UInt64(packets.count))
        switch chance.next() % 6 {
        case 0: packets.remove(at: at)
        case 1: packets.insert(packets[at], at: Int(chance.next() % UInt64(packets.count)))
        case 2: packets.swapAt(at, Int(chance.next() % UInt64(packets.count)))
        case 3: packets[at].octets = Array(packets[at].octets.prefix(Int(chance.next() % 12)))
        case 4: packets[at].time = Int64(truncatingIfNeeded: chance.next())
        default:
          guard !packets[at].octets.isEmpty else { continue }
          let place = Int(chance.next() % UInt64(packets[at].octets.count))
          packets[at].octets[place] = UInt8(truncatingIfNeeded: chance.next())
        }
      }
      let hasSeed = chance.next() % 2 == 0
      let replay = Replay(packets, seed: hasSeed ? sample.seed : nil)
      let first = try? replay.run(), second = try? replay.run()
      #expect(first == second, "seed \(seed)")
    }
  }

  /// The shortest part still shows the divergence, and is the same each time.
  @Test func shrinks() throws {
    let sample = try #require(OwnTraceTests.samples.first { $0.name == "several links, server" })
    let place = try #require(
      sample.packets.lastIndex {
        $0.direction == .fromHost && $0.octets.count > 12 && $0.octets[0] == 2 && $0.octets[9] == 0x0B
      })
    var packets = sample.packets
    packets[place].octets[9] = 0x0D
    let replay = Replay(packets, seed: sample.seed)
    let whole = try replay.run()
    var shrinker = try #require(try ReplayShrinker(replay))
    let short = shrinker.shrink()
    let result = try Replay(short, seed: sample.seed).run()
    #expect(result.divergences.first?.recorded == whole.divergences.first?.recorded)
    #expect(result.divergences.first?.ours == whole.divergences.first?.ours)
    #expect(short.count < 12, "\(short.count) of \(packets.count)")
    var again = try #require(try ReplayShrinker(replay))
    #expect(again.shrink() == short)
    #expect(try ReplayShrinker(Replay(sample.packets, seed: sample.seed)) == nil)
  }

  /// Long traces of one packet: the time grows with their length only.
  @Test(arguments: [
    Pattern(4, [0x0C, 3, 0, 0, 0]), Pattern(4, [0x16, 3, 0, 0, 0, 1]), Pattern(4, [0x10, 1, 0, 0xFF, 0xFF, 0, 0x28]),
    Pattern(4, [0x1B, 3, 0, 1]), Pattern(6, [0x01, 3, 0, 0, 16, 0, 0]), Pattern(6, [0x0B, 1]),
    Pattern(5, [0x12, 1, 8, 0]),
  ])
  func repeated(_ pattern: Pattern) throws {
    for direction in [HCIDirection.fromController, .fromHost] {
      let count = UInt8(pattern.pdu.count)
      let octets = [2, 0x40, 0x20, count + 4, 0, count, 0, pattern.channel, 0] + pattern.pdu
      let packets = (1...4_000).map {
        ReplayPacket(number: $0, time: Int64($0) * 1_000_000, direction: direction, octets: octets)
      }
      _ = try Replay(packets).run()
    }
  }
  @Test func unusableTraces() {
    #expect(throws: ReplayError.noPackets) { try Replay([]).run() }
    let reset = ReplayPacket(number: 1, direction: .fromHost, octets: [1, 3, 0x0C, 0])
    #expect(throws: ReplayError.noFrames) { try Replay([reset]).run() }
    #expect(throws: ReplayError.noPackets) { try Replay(ReplayCollector()) }
  }
}

/// An L2CAP channel and a PDU.
struct Pattern: Sendable {
  var channel: UInt8
  var pdu: [UInt8]
  init(_ channel: UInt8, _ pdu: [UInt8]) {
    self.channel = channel
    self.pdu = pdu
  }
}
