import BindruneCapture
import BindruneWire
import BindruneHCI

/// A whole trace in memory, at most ``mostOctets`` of packets: for work that needs more than one look at it.
public struct CapturedTrace: CaptureSink, Sendable {
  public static var mostOctets: Int { 1 << 30 }
  /// Their octets are ranges of ``storage``.
  public private(set) var records: [CaptureRecord] = []
  public private(set) var storage: [UInt8] = []
  /// True if the trace has more than ``mostOctets``: what followed was left out.
  public private(set) var isTooLarge = false

  public init() {}
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard storage.count + bytes.count <= Self.mostOctets else {
      isTooLarge = true
      return
    }
    var record = record
    record.octets = Octets(storage.count, bytes.count)
    records.append(record)
    unsafe bytes.withUnsafeBufferPointer { unsafe storage.append(contentsOf: $0) }
  }
  public var wantsMore: Bool { !isTooLarge }

  public func octets(of record: CaptureRecord) -> [UInt8] { Array(storage[record.octets.range]) }
  /// Passes all records to `sink`.
  public func read(into sink: inout some CaptureSink & ~Copyable) {
    let all = storage.span
    for record in records where sink.wantsMore {
      var shown = record
      shown.octets = Octets(0, Int(record.octets.count))
      sink.receive(shown, all.extracting(record.octets.range))
    }
    sink.pause()
  }
}
