import BindruneWire
import BindruneHCI

// A read from the socket of Linux's HCI monitor: opcode, adapter and length, in the machine's byte order, then the
// data. The socket has no times in its records: its reader sets them.

extension CaptureParser {
  private static var headerCount: Int { 6 }

  mutating func monitor(
    _ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    let available = span.count - at
    guard available >= Self.headerCount else { return try missing(Self.headerCount, available, isLast) }
    let isLittle = UInt16(1).littleEndian == 1
    let length = Int(span.number16(at + 4, isLittleEndian: isLittle)), total = Self.headerCount + length
    guard available >= total else { return try missing(total, available, isLast) }
    count += 1
    var record = CaptureRecord(
      number: count, offset: offset, time: time, adapter: span.number16(at + 2, isLittleEndian: isLittle),
      octets: Octets(at + Self.headerCount, length))
    record.take(MonitorOpcode(rawValue: span.number16(at, isLittleEndian: isLittle)))
    advance(total, &at)
    return .record(record)
  }
}
