import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import BindruneL2CAP
import Testing

/// The project's traces, cut at every octet.
@Suite struct CutFixturesTests {
  private static func octets(_ name: String) throws -> [UInt8] {
    [UInt8](try Data(contentsOf: URL(filePath: OwnTraces.path(name))))
  }

  /// The parser's state before each record is the same however much follows, so each cut is tried from the record on
  /// that it falls into: an error that names that record, or the end between two.
  @Test(arguments: OwnTraces.names) func files(_ name: String) throws {
    let file = try Self.octets(name)
    var parser = CaptureParser(), at = 0, whole = file, cuts = 0
    while true {
      let before = parser, start = at
      var span = whole.mutableSpan
      guard case .record(let record) = try parser.next(&span, at: &at, isLast: true) else { break }
      for end in start..<at {
        var cut = before, part = Array(file[start..<end]), place = 0, bytes = part.mutableSpan
        cuts += 1
        do throws(CaptureError) {
          let step = try cut.next(&bytes, at: &place, isLast: true)
          guard case .end = step, end == start || end == 16 else {
            Issue.record("record \(record.number), \(end - start) octets: \(step)")
            return
          }
        } catch {
          #expect(error.offset == (end < 16 ? 0 : record.offset), "record \(record.number), \(end - start) octets")
          guard case .truncated(let needed, let available) = error.reason else {
            #expect(end < 16, "record \(record.number), \(end - start) octets: \(error)")
            continue
          }
          #expect(available < needed)
        }
      }
    }
    #expect(cuts == file.count)
  }

  /// Lines, fields and rules together.
  private struct All: TraceSink {
    var lines = TraceLines(LineSink()), fields = TraceFields(), checker = Checker()
    mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
      lines.record(record, bytes)
      checker.record(record, bytes)
    }
    mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
      lines.frame(frame, payload, of: record)
      fields.frame(frame, payload, of: record)
      checker.frame(frame, payload, of: record)
    }
    mutating func violation(
      _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
    ) {
      lines.violation(violation, handle, direction, of: record)
      checker.violation(violation, handle, direction, of: record)
    }
  }
  /// Each kind of packet of each trace cut at every octet, once by its recorder and once by its sender: a line for
  /// each, of printable text.
  @Test(arguments: OwnTraces.names) func packets(_ name: String) throws {
    var parser = CaptureParser(), at = 0, file = try Self.octets(name), kinds: Set<[UInt8]> = []
    var recorded = DissectingSink(All()), sent = DissectingSink(All()), count = 0
    while true {
      var span = file.mutableSpan
      guard case .record(let record) = try parser.next(&span, at: &at, isLast: true) else { break }
      guard case .packet = record.content else { continue }
      let packet = Array(file[record.octets.range])
      // Type and opcode or event, or for data the flags, channel and opcode of its PDU.
      let kind = packet[0] == 2 ? [packet[2] >> 4] + packet.dropFirst(7).prefix(3) : Array(packet.prefix(4))
      guard kinds.insert(kind).inserted else { continue }
      for length in 0..<packet.count {
        count += 1
        var part = record
        part.octets = Octets(0, length)
        let octets = Array(packet.prefix(length))
        recorded.receive(part, octets.span)
        part.originalCount = length
        sent.receive(part, octets.span)
      }
    }
    recorded.pause()
    sent.pause()
    #expect(
      recorded.sink.lines.output.lines.count == count && sent.sink.lines.output.lines.count == count && count > 100)
    for line in recorded.sink.lines.output.lines + sent.sink.lines.output.lines {
      let words = line.name + line.fields + (line.meaning ?? "") + (line.problem ?? "")
      #expect(words.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F })
    }
    #expect(sent.sink.checker.findingCount > 10)
  }
}
