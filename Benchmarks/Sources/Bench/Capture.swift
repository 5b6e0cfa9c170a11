// B6: a trace file to ATT. B6.read decodes and visits every field, as the C bound does; B6.fields writes each PDU as
// text, to memory; B6.check judges each packet by the rules of the Specification.
import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneL2CAP

func capture(_ id: String, _ workloads: String, _ repetitions: Int, _ batches: Int) {
  let path = "\(workloads)/capture.btsnoop"
  do throws(TraceError) {
    switch id {
    case "B6.fields": try measure(id, path, repetitions, batches) { FieldsSum() }
    case "B6.check": try measure(id, path, repetitions, batches) { CheckSum() }
    default: try measure(id, path, repetitions, batches) { WalkSum() }
    }
  } catch { fail("\(error)") }
}

private protocol SummingSink: TraceSink {
  var sum: UInt64 { get }
  var records: Int { get }
}
private func measure<Sink: SummingSink>(
  _ id: String, _ path: String, _ repetitions: Int, _ batches: Int, _ make: () -> Sink
) throws(TraceError) {
  @inline(never) func run() throws(TraceError) -> (UInt64, Int) {
    var file = try TraceFile(path: path), sink = DissectingSink(make())
    try file.read(into: &sink)
    return (sink.sink.sum, sink.sink.records)
  }
  let items = try run().1
  measure(id, items: items, repetitions: repetitions, batches: batches, showsRate: true) { repetitions in
    (0..<repetitions).reduce(UInt64(0)) { sum, _ in sum &+ ((try? run().0) ?? 0) }
  }
}

private struct WalkSum: SummingSink {
  var sum: UInt64 = 0
  var records = 0
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records &+= 1
    if bytes[0] == HCIPacketType.event.rawValue { sum &+= UInt64(bytes[1]) }
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard frame.channel.rawValue == 4 else { return }
    do throws(WireError) { sum &+= walk(try ATTPDU(payload), payload) } catch {
      fail("record \(record.number): \(error)")
    }
  }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) { fail("record \(record.number): \(violation)") }
}

private struct FieldsSum: SummingSink {
  var fields = TraceFields()
  var sum: UInt64 = 0
  var records = 0
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records &+= 1
    guard fields.output.count > 60_000 else { return }
    sum &+= UInt64(fields.output.count)
    fields.output.removeAll(keepingCapacity: true)
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    fields.frame(frame, payload, of: record)
  }
  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}
}

private struct CheckSum: SummingSink {
  var checker = Checker()
  var records = 0
  var sum: UInt64 { CheckRule.allCases.reduce(0) { $0 &+ UInt64(checker.judgements(of: $1)) } }
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records &+= 1
    checker.record(record, bytes)
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    checker.frame(frame, payload, of: record)
  }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) { checker.violation(violation, handle, direction, of: record) }
}
