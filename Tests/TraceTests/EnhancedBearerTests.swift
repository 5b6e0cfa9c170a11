import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneTrace
import BindruneWire
import TestSupport
import Testing

/// Enhanced bearers in traces: their PDUs are shown, counted, judged and replaced as those of the fixed channel are.
@Suite("Trace: enhanced bearers") struct EnhancedBearerTests {
  /// A connection that the host has encrypted, and two bearers: 0x0040 and 0x0042 at the host, 0x0051 and 0x0050 at the
  /// peer.
  private static func opened() -> Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    packets.add(.fromController, "04 08 04 00 40 00 01")
    packets.frame(.fromHost, channel: 5, octets("17 01 0C 00 27 00 40 00 40 00 05 00 40 00 42 00"))
    packets.frame(.fromController, channel: 5, octets("18 01 0C 00 40 00 40 00 05 00 00 00 51 00 50 00"))
    return packets
  }
  /// Discovery on one bearer, two reads at once on both, a notification in two K-frames.
  private static func session() -> Packets {
    var packets = opened()
    packets.frame(.fromHost, channel: 0x51, octets("07 00 08 01 00 FF FF 03 28"))
    packets.frame(.fromController, channel: 0x40, octets("09 00 09 07 02 00 12 03 00 37 2A"))
    packets.frame(.fromHost, channel: 0x51, octets("03 00 0A 03 00"))
    packets.frame(.fromHost, channel: 0x50, octets("03 00 0A 05 00"))
    packets.frame(.fromController, channel: 0x42, octets("02 00 0B 77"))
    packets.frame(.fromController, channel: 0x40, octets("03 00 0B 41 42"))
    packets.frame(.fromController, channel: 0x40, octets("05 00 1B 03"))
    packets.frame(.fromController, channel: 0x40, octets("00 43 44"))
    return packets
  }

  @Test func lines() {
    let lines = Self.session().lines()
    #expect(lines.map(\.number) == Array(1...12))
    let shown = lines.dropFirst(4)
    #expect(
      shown.map(\.name) == [
        "ATT_READ_BY_TYPE_REQ", "ATT_READ_BY_TYPE_RSP", "ATT_READ_REQ", "ATT_READ_REQ", "ATT_READ_RSP", "ATT_READ_RSP",
        "channel 0x0040", "ATT_HANDLE_VALUE_NTF",
      ])
    #expect(shown.map(\.bearer) == [0x40, 0x40, 0x40, 0x42, 0x42, 0x40, nil, 0x40])
    // A response has the handle of its bearer's request, and the name from any bearer's discovery.
    #expect(shown.map(\.handle) == [1, nil, 3, 5, 5, 3, nil, 3])
    #expect(
      shown.map(\.meaning) == [
        nil, nil, "Heart Rate Measurement", nil, nil, "Heart Rate Measurement", nil, "Heart Rate Measurement",
      ])
    #expect(
      shown.last?.octets == octets("1B 03 00 43 44") && shown.last?.below.map(\.name) == ["ACL Data", "L2CAP", "SDU"])
    #expect(lines.allSatisfy { $0.problem == nil })
  }
  /// Records before the first that is shown are learnt from.
  @Test func laterLines() {
    var filter = TraceFilter()
    filter.frames = 9...12
    let lines = Self.session().lines(filter)
    #expect(lines.map(\.number) == [9, 10, 11, 12] && lines.map(\.handle) == [5, 3, nil, 3])
    #expect(lines.last?.meaning == "Heart Rate Measurement")
  }
  @Test func fields() {
    #expect(
      Self.session().fields().filter { $0.contains("\tatt\t") } == [
        "5\tS\t0x0040\tatt\t0x08\t0x0001\t0100ffff0328\t080100ffff0328",
        "6\tR\t0x0040\tatt\t0x09\t\t070200120300372a\t09070200120300372a",
        "7\tS\t0x0040\tatt\t0x0a\t0x0003\t\t0a0300", "8\tS\t0x0040\tatt\t0x0a\t0x0005\t\t0a0500",
        "9\tR\t0x0040\tatt\t0x0b\t0x0005\t77\t0b77", "10\tR\t0x0040\tatt\t0x0b\t0x0003\t4142\t0b4142",
        "12\tR\t0x0040\tatt\t0x1b\t0x0003\t4344\t1b03004344",
      ])
  }

  /// Two requests at once are two bearers' business: each has its round trip, and none is unanswered.
  @Test func statistics() throws {
    var sink = DissectingSink(TraceStatistics())
    for (record, octets) in Self.session().records { sink.receive(record, octets.span) }
    sink.pause()
    let link = try #require(sink.sink.connections.first)
    #expect(link.hints.unanswered == 0 && link.attMTU == 23)
    #expect(link.roundTrips[.init(isIndication: false, asker: .fromHost)]?.count == 3)
    #expect(
      link.sortedKinds.filter { $0.kind.layer == .att }.map { "\($0.kind.name) \($0.amount.count)" } == [
        "ATT_READ_BY_TYPE_REQ 1", "ATT_READ_BY_TYPE_RSP 1", "ATT_READ_REQ 2", "ATT_READ_RSP 2",
        "ATT_HANDLE_VALUE_NTF 1",
      ])
    #expect(link.sortedKinds.allSatisfy { $0.kind.layer != .l2cap })
    #expect(link.channels.map(\.received.sdus) == [3, 1] && link.channels.map(\.received.frames) == [4, 1])
  }

  @Test func values() {
    var sink = DissectingSink(AirMonitor())
    for (record, octets) in Self.session().records { sink.receive(record, octets.span) }
    let values = sink.sink.values.map { "\($0.handle) \(hex($0.octets)) \($0.cause.rawValue) \($0.count)" }
    #expect(values.sorted() == ["3 43 44 notified 2", "5 77 read 1"] && sink.sink.total(.att) == 7)
    #expect(sink.sink.links.first?.mtu == 23)
  }

  /// Values are free where the user says so, and how a PDU is cut into K-frames is no difference.
  @Test func difference() {
    func outline(_ packets: Packets, _ free: Set<TraceFreedom>) -> TraceOutline {
      var sink = DissectingSink(TraceOutline(free: free))
      for (record, octets) in packets.records { sink.receive(record, octets.span) }
      sink.pause()
      return sink.sink
    }
    var one = Self.opened(), other = Self.opened(), third = Self.opened()
    one.frame(.fromController, channel: 0x40, octets("05 00 1B 03 00 43 44"))
    other.frame(.fromController, channel: 0x40, octets("05 00 1B 03"))
    other.frame(.fromController, channel: 0x40, octets("00 43 44"))
    third.frame(.fromController, channel: 0x40, octets("05 00 1B 03 00 43 45"))
    let usual = TraceFreedom.usual, values = usual.union([.values])
    #expect(TraceDifference(outline(one, usual), outline(other, usual)).isEqual)
    #expect(!TraceDifference(outline(one, usual), outline(third, usual)).isEqual)
    #expect(TraceDifference(outline(one, values), outline(third, values)).isEqual)
  }

  /// A device's name that was read on an enhanced bearer, in two K-frames, is replaced, and so is a value.
  @Test func scrub() throws {
    var packets = Self.opened()
    packets.frame(.fromHost, channel: 0x51, octets("07 00 08 01 00 FF FF 03 28"))
    packets.frame(.fromController, channel: 0x40, octets("10 00 09 07 02 00 02 03 00 00 2A 04 00 12 05 00 37 2A"))
    packets.frame(.fromHost, channel: 0x50, octets("03 00 0A 03 00"))
    packets.frame(.fromController, channel: 0x42, octets("08 00 0B") + Array("Eri".utf8))
    packets.frame(.fromController, channel: 0x42, Array("ka's".utf8))
    packets.frame(.fromController, channel: 0x40, octets("05 00 1B 05 00 43 44"))
    var trace = CapturedTrace()
    for (record, octets) in packets.records { trace.receive(record, octets.span) }
    var scrubber = TraceScrubber(seed: 5)
    scrubber.scrubsValues = true
    let (scrubbed, report) = scrubber.scrub(trace)
    func packet(_ trace: CapturedTrace, _ number: Int) -> [UInt8] { Array(trace.octets(of: trace.records[number - 1])) }
    #expect(report.nameCount == 1 && ScrubProof(trace, scrubbed, report).holds)
    let name = packet(scrubbed, 8).suffix(3) + packet(scrubbed, 9).suffix(4)
    #expect(name.count == 7 && !name.contains(UInt8(ascii: "E")) && name != Array("Erika's".utf8)[...])
    #expect(packet(scrubbed, 10).suffix(2) != [0x43, 0x44])
    for number in [5, 6, 7] { #expect(packet(scrubbed, number) == packet(trace, number)) }
    #expect(packet(scrubbed, 10).prefix(14) == packet(trace, 10).prefix(14))
  }

  /// What an end, a gap and a mistake leave: no PDU is shown that the trace does not have.
  @Test(arguments: ["ended", "numbered anew", "disconnected", "gap", "overlong", "cut"]) func unknown(_ cause: String) {
    var packets = Self.opened()
    switch cause {
    case "ended":
      packets.frame(.fromHost, channel: 5, octets("06 02 04 00 51 00 40 00"))
      packets.frame(.fromController, channel: 5, octets("07 02 04 00 51 00 40 00"))
    case "numbered anew":
      packets.frame(.fromHost, channel: 5, octets("14 03 0A 00 80 00 40 00 40 00 17 00 02 00"))
      packets.frame(.fromController, channel: 5, octets("15 03 0A 00 51 00 1E 00 19 00 01 00 00 00"))
    case "disconnected":
      packets.add(.fromController, "04 05 04 00 40 00 13")
      packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    case "gap": break
    case "overlong": packets.frame(.fromHost, channel: 0x51, octets("02 00 0A 03 00"))
    default: packets.frame(.fromHost, channel: 0x51, octets("03"))
    }
    packets.frame(.fromHost, channel: 0x51, octets("03 00 0A 03 00"))
    if cause == "gap" { packets.records[packets.records.count - 1].record.missingBefore = 1 }
    #expect(packets.lines().allSatisfy { $0.layer != .att })
  }
}
