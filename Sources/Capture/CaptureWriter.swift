import BindruneWire
import BindruneHCI

/// Writes a trace: octets that the caller puts into a file.
///
///     var writer = CaptureWriter(.pcapng), file: [UInt8] = []
///     writer.begin(&file)
///     writer.append(record, bytes, to: &file)
public struct CaptureWriter: Sendable {
  public enum Format: String, Sendable, CaseIterable {
    /// btsnoop, datalink 1002.
    case btsnoop
    /// btsnoop, datalink 2001, which also holds what Linux's monitor reports beside packets.
    case monitor
    /// pcapng, link type 201.
    case pcapng
  }
  public let format: Format
  /// Records that the format cannot hold, and that were left out: notes, packets of the link layer, packets without a
  /// known direction.
  public private(set) var omitted = 0
  /// Of the records that the source lacks; pcapng's packets have no such count here.
  private var drops: UInt32 = 0
  /// pcapng's times are not negative: an interface of its own has the packets before 1970.
  private var hasPast = false

  public init(_ format: Format) { self.format = format }

  /// Appends what precedes the first record.
  public func begin(_ octets: inout [UInt8]) {
    switch format {
    case .btsnoop: BTSnoop.appendHeader(.h4, to: &octets)
    case .monitor: BTSnoop.appendHeader(.monitor, to: &octets)
    case .pcapng: PCAPNG.appendHeader(to: &octets)
    }
  }

  /// Appends a record; `bytes` are its octets. False if the format cannot hold it.
  @discardableResult
  public mutating func append(_ record: CaptureRecord, _ bytes: Span<UInt8>, to octets: inout [UInt8]) -> Bool {
    let micro = record.time / 1_000 - (record.time % 1_000 < 0 ? 1 : 0), time = UInt64(bitPattern: micro)
    drops &+= record.missingBefore
    switch (record.content, format) {
    case (.packet, _):
      guard let direction = record.direction, bytes.count > 0, let type = HCIPacketType(rawValue: bytes[0]) else {
        break
      }
      switch format {
      case .btsnoop:
        BTSnoop.append(
          bytes, direction, time: time, drops: drops, originalCount: record.originalCount, to: &octets)
      case .monitor:
        BTSnoop.append(
          bytes.extracting(droppingFirst: 1), MonitorOpcode(type, direction), adapter: record.adapter, time: time,
          drops: drops, originalCount: record.originalCount - 1, to: &octets)
      case .pcapng where micro < 0:
        if !hasPast { PCAPNG.appendInterface(secondsOffset: -PCAPNG.past, to: &octets) }
        hasPast = true
        PCAPNG.append(
          bytes, direction, time: UInt64(micro + PCAPNG.past * 1_000_000), originalCount: record.originalCount,
          interface: 1, to: &octets)
      case .pcapng: PCAPNG.append(bytes, direction, time: time, originalCount: record.originalCount, to: &octets)
      }
      return true
    case (.monitor(let opcode), .monitor):
      BTSnoop.append(
        bytes, opcode, adapter: record.adapter, time: time, drops: drops, originalCount: record.originalCount,
        to: &octets)
      return true
    default: break
    }
    omitted += 1
    return false
  }
}
