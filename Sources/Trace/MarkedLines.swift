import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// # MarkedLines
/// **Overview**: the lines of ``TraceLines``, with what ``Checker`` finds about each packet as its
/// ``TraceLine/problem``, so that both name the same.
///
/// **Function**: the lines of a record wait until the checker has seen it, which is before the next record. What only
/// a later packet shows has a line of its own, with the number and time of the packet that it is about.
public struct MarkedLines<Output: TraceLineSink>: TraceSink {
  private var sinks: PairedSink<TraceLines<HeldLines>, Checker>
  public var output: Output
  private let isLive: Bool

  /// `isLive`: records may follow a pause.
  public init(
    _ output: Output, filter: TraceFilter = TraceFilter(), identities: [TraceNames.Identity] = [], isLive: Bool = false
  ) {
    self.output = output
    self.isLive = isLive
    sinks = PairedSink(TraceLines(HeldLines(), filter: filter, identities: identities), Checker())
  }

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    // The line of an ACL packet that ends no frame comes with the next record.
    sinks.first.record(record, bytes)
    release(before: record.number)
    sinks.second.record(record, bytes)
  }
  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    sinks.frame(frame, payload, of: record)
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    sinks.enhancedPDU(frame, pdu, of: record)
  }
  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    sinks.violation(violation, handle, direction, of: record)
  }
  public mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) { sinks.lost(handle, of: record) }
  public var wantsMore: Bool { sinks.wantsMore }
  public mutating func pause() {
    sinks.first.pause()
    // At the end breaches that later packets could have explained are marked.
    if !isLive, wantsMore { sinks.second.pause() }
    release(before: .max)
    output.flush()
  }

  private mutating func release(before number: Int) {
    let findings = sinks.second.takeFindings(), held = sinks.first.output.held
    if findings.isEmpty, held.isEmpty { return }
    var waiting: [TraceLine] = [], marked: Set<Int> = []
    for line in held {
      guard line.number < number else {
        waiting.append(line)
        continue
      }
      var line = line
      let own = findings.filter { $0.number == line.number }
      // A record has one line.
      if !own.isEmpty { line.problem = own.map(\.sentence).joined(separator: "; ") }
      marked.insert(line.number)
      output.receive(line)
    }
    sinks.first.output.held = waiting
    for finding in findings where !marked.contains(finding.number) {
      if let line = sinks.first.line(of: finding) { output.receive(line) }
    }
  }
}

struct HeldLines: TraceLineSink {
  var held: [TraceLine] = []
  mutating func receive(_ line: TraceLine) { held.append(line) }
  mutating func flush() {}
}
