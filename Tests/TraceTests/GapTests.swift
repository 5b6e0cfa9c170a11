import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import Testing

/// Records that a trace lacks: the recorder dropped them, or damage was skipped. What follows them breaks no rule by
/// it.
@Suite struct GapTests {
  /// Keeps what each record says about missing ones.
  private struct Missing: CaptureSink {
    var counts: [UInt32] = []
    mutating func receive(_ record: CaptureRecord, _: Span<UInt8>) { counts.append(record.missingBefore) }
  }
  private static func missing(_ octets: [UInt8], resynchronizes: Bool = false) throws -> [UInt32] {
    let file = try ScratchFile(octets)
    var trace = try TraceFile(path: file.path), sink = Missing()
    trace.resynchronizes = resynchronizes
    try trace.read(into: &sink)
    return sink.counts
  }

  /// btsnoop's cumulative drops: what the field has before the first record lies before the trace, and a count that
  /// falls began anew.
  @Test(arguments: [[0, 0, 3, 3, 10], [7, 7, 7, 8, 2]]) func dropped(_ drops: [UInt32]) throws {
    var file: [UInt8] = []
    BTSnoop.appendHeader(to: &file)
    for (packet, drops) in zip(Formats.packets, drops) {
      BTSnoop.append(packet.octets.span, packet.direction, time: UInt64(packet.micro), drops: drops, to: &file)
    }
    #expect(try Self.missing(file) == (drops[0] == 0 ? [0, 0, 3, 0, 7] : [0, 0, 0, 1, 1]))
  }

  /// The record behind skipped octets says so; a copy keeps it.
  @Test(arguments: [CaptureWriter.Format.btsnoop, .monitor]) func skippedAndWritten(_ format: CaptureWriter.Format)
    throws
  {
    var file = Formats.btsnoop(1002)
    // The second record's lengths.
    for place in 44..<52 { file[place] = 0xEE }
    #expect(try Self.missing(file, resynchronizes: true) == [0, 1, 0, 0])
    struct Copy: CaptureSink {
      var writer: CaptureWriter
      var octets: [UInt8] = []
      mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
        writer.append(record, bytes, to: &octets)
      }
    }
    let damaged = try ScratchFile(file)
    var copy = Copy(writer: CaptureWriter(format))
    copy.writer.begin(&copy.octets)
    var trace = try TraceFile(path: damaged.path)
    trace.resynchronizes = true
    try trace.read(into: &copy)
    #expect(try Self.missing(copy.octets) == [0, 1, 0, 0])
  }

  /// A request, a fragment, a command and a disconnection among the missing records: with the gap nothing is broken,
  /// without it the rules that they explain.
  @Test(arguments: [
    ("host att 0A 03 00", "peer att 0B 41", "att.response-asked"),
    ("host acl 0040 0 05 00 04 00", "host acl 0040 1 0A 03 00 00 00", "l2cap.fragment-order"),
    ("host command 0406 40 00 13", "controller status 0406 00", "hci.reply-matches"),
  ])
  func missingExplains(missing: String, next: String, rule: String) throws {
    for isReported in [true, false] {
      var script = CheckScript()
      try script.append("connect")
      let count = script.packets.count
      try script.append(next)
      var sink = DissectingSink(Checker())
      for (index, packet) in script.packets.enumerated() {
        var record = CaptureRecord(
          number: index + 1, time: packet.time, direction: packet.direction, octets: Octets(0, packet.octets.count))
        if isReported, index == count { record.missingBefore = 1 }
        sink.receive(record, packet.octets.span)
      }
      sink.pause()
      #expect(sink.sink.findings.map(\.rule.id) == (isReported ? [] : [rule]), "without \(missing)")
    }
  }

  /// A frame whose last fragment is missing does not continue behind the gap.
  @Test func fragments() {
    var packets = Packets()
    packets.frame(.fromController, size: 8, [0x0B] + Array(repeating: 7, count: 11))
    packets.records[1].record.missingBefore = 2
    #expect(packets.records.count == 2 && packets.fields() == [])
    let lines = packets.lines()
    #expect(lines.map(\.layer) == [.hci, .hci] && lines[1].problem == "records are missing before this one")
    packets.records[1].record.missingBefore = 0
    #expect(packets.fields().count == 1)
  }
}
