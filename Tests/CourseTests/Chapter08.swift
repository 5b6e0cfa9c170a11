import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

// snippet
/// How long the server takes for each answer.
struct RoundTrips: TraceSink {
  var asked: Int64?
  var milliseconds: [Int64] = []

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard frame.channel == .attribute, payload.count > 0 else { return }
    switch (record.direction, payload[0]) {
    // A request has an even opcode, and is no command and no confirmation; its answer has the next number.
    case (.fromHost?, let opcode) where opcode % 2 == 0 && opcode < 0x1B || opcode == 0x20: asked = record.time
    case (.fromController?, let opcode) where opcode % 2 == 1 && opcode < 0x1B || opcode == 0x21:
      if let asked { milliseconds.append((record.time - asked) / 1_000_000) }
      asked = nil
    default: break
    }
  }
  mutating func record(_: CaptureRecord, _: Span<UInt8>) {}
  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}
}
// end

@Suite("Course 8: read a trace", .hang) struct Chapter8 {
  @Test func page() throws {
    let path = Page.files.appending(path: "sensor.btsnoop").path
    try course("08-read-a-trace", exercises: [5, 10]) { page in
      // snippet
      var file = try TraceFile(path: path)  // sensor.btsnoop
      var sink = DissectingSink(RoundTrips())
      try file.read(into: &sink)
      print(sink.sink.milliseconds)
      page.shows()

      // snippet
      var again = try TraceFile(path: path), checker = DissectingSink(Checker())
      try again.read(into: &checker)
      print("findings:", checker.sink.findings.count)
      page.shows()
    }
  }
}
