import BindruneCapture
import BindruneHCI
import BindruneL2CAP

/// Passes a trace to two sinks, in one pass.
public struct PairedSink<First: TraceSink, Second: TraceSink>: TraceSink {
  public var first: First, second: Second
  public init(_ first: First, _ second: Second) { (self.first, self.second) = (first, second) }

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    first.record(record, bytes)
    second.record(record, bytes)
  }
  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    first.frame(frame, payload, of: record)
    second.frame(frame, payload, of: record)
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    first.enhancedPDU(frame, pdu, of: record)
    second.enhancedPDU(frame, pdu, of: record)
  }
  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    first.violation(violation, handle, direction, of: record)
    second.violation(violation, handle, direction, of: record)
  }
  public mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) {
    first.lost(handle, of: record)
    second.lost(handle, of: record)
  }
  public var wantsMore: Bool { first.wantsMore && second.wantsMore }
  public mutating func pause() {
    first.pause()
    second.pause()
  }
}
