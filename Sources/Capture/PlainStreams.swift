import BindruneWire
import BindruneHCI

// Formats without a file's header. Nothing says what they are, so the first records do: each has fields that only few
// values fit, and several of them in a row are no accident.

extension CaptureParser {
  /// Octets in which records are looked for.
  private static var mostExamined: Int { 4_096 }
  /// Records that are enough, and those that are if the file has no more.
  private static var manyRecords: Int { 4 }
  private static var fewRecords: Int { 2 }

  /// The format of a file that begins with none of the known numbers. Returns the octets needed to tell.
  mutating func beginWithoutMagic(_ bytes: Span<UInt8>, _ at: Int, _ isLast: Bool) throws(CaptureError) -> Int? {
    let available = bytes.count - at, isWhole = isLast && available <= Self.mostExamined
    var needsMore = false
    for candidate in [CaptureFormat.hcidump, .serialMonitor, .h4Stream] {
      var parser = self, place = at, records = 0
      parser.format = candidate
      search: while records < Self.manyRecords, place < bytes.count {
        switch parser.plain(bytes, place) {
        case .record(let total):
          records += 1
          place += total
        case .none:
          records = -1
          break search
        case .cut:
          // The end of what is examined; a whole file ends with a record.
          if isWhole { records = -1 } else if available < Self.mostExamined { needsMore = true }
          break search
        }
      }
      if records >= Self.manyRecords || (records >= Self.fewRecords && isWhole && place == bytes.count) {
        format = candidate
        return nil
      }
      if records > 0, !isLast, available < Self.mostExamined { needsMore = true }
    }
    switch Self.text(bytes.extracting(at..<min(bytes.count, at + Self.mostExamined))) {
    case .packets:
      format = .text
      return nil
    case .other where isLast || available >= Self.mostExamined: throw error(.text)
    case .other: needsMore = true
    case .binary: break
    }
    if needsMore, !isLast { return available + 1 }
    throw error(.unknownFormat)
  }

  enum PlainRecord { case record(Int), none, cut }
  /// What a record of the current format needs here.
  private func plain(_ bytes: Span<UInt8>, _ at: Int) -> PlainRecord {
    switch format {
    case .hcidump: hcidumpRecord(bytes, at)
    case .serialMonitor: serialMonitorRecord(bytes, at)
    default: h4Record(bytes, at)
    }
  }
  private func belief(_ record: PlainRecord, needs count: Int) -> Belief {
    switch record {
    case .record: .yes
    case .none: .no
    case .cut: .needs(count)
    }
  }

  // MARK: hcidump -w

  private static var hcidumpHeader: Int { 12 }

  /// Length, direction, padding, seconds, microseconds; then an HCI packet with its type octet.
  mutating func hcidump(_ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool) throws(CaptureError) -> CaptureStep {
    let available = span.count - at
    guard available >= Self.hcidumpHeader else { return try missing(Self.hcidumpHeader, available, isLast) }
    let length = Int(span.little16(at)), total = Self.hcidumpHeader + length, isReceived = span[at + 2]
    guard isReceived <= 1 else { throw error(.implausibleLength("direction", UInt32(isReceived))) }
    guard available >= total else { return try missing(total, available, isLast) }
    time = Self.hcidumpTime(span, at)
    count += 1
    var record = CaptureRecord(
      number: count, offset: offset, time: time, direction: isReceived == 1 ? .fromController : .fromHost,
      octets: Octets(at + Self.hcidumpHeader, length))
    if length > 0 { record.setDirection(span[at + Self.hcidumpHeader]) }
    advance(total, &at)
    return .record(record)
  }
  private static func hcidumpTime(_ bytes: Span<UInt8>, _ at: Int) -> Int64 {
    nanoseconds(
      Int64(bytes.little32(at + 4)) * 1_000_000 + Int64(bytes.little32(at + 8)), perSecond: 1_000_000)
  }
  private func hcidumpRecord(_ bytes: Span<UInt8>, _ at: Int) -> PlainRecord {
    guard bytes.count - at >= Self.hcidumpHeader else { return .cut }
    let length = Int(bytes.little16(at))
    guard length > 0, bytes[at + 2] <= 1, bytes[at + 3] == 0, bytes.little32(at + 8) < 1_000_000,
      isNear(Self.hcidumpTime(bytes, at))
    else { return .none }
    guard bytes.count - at >= Self.hcidumpHeader + length else { return .cut }
    let start = at + Self.hcidumpHeader
    guard case .record(let count) = h4Record(bytes, start), count == length else { return .none }
    return .record(Self.hcidumpHeader + length)
  }
  func believableHCIDump(_ bytes: Span<UInt8>, _ at: Int) -> Belief {
    let length = bytes.count - at >= 2 ? Int(bytes.little16(at)) : 0
    return belief(hcidumpRecord(bytes, at), needs: Self.hcidumpHeader + length)
  }

  // MARK: H4. Vol 4, Part A, §2.

  mutating func h4Stream(_ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool) throws(CaptureError) -> CaptureStep {
    let available = span.count - at
    guard available >= 5 || isLast else { return .needs(5) }
    guard available > 0 else { return .end }
    guard HCIPacketType(rawValue: span[at]) != nil else {
      throw error(.implausibleLength("packet type", UInt32(span[at])))
    }
    guard let length = packetCount(span[at], span, at + 1, available: available - 1) else {
      return try missing(5, available, isLast)
    }
    let total = 1 + length
    guard available >= total else { return try missing(total, available, isLast) }
    count += 1
    var record = CaptureRecord(number: count, offset: offset, time: time, octets: Octets(at, total))
    record.setDirection(span[at])
    if record.direction == nil { infer(&record, span) }
    advance(total, &at)
    return .record(record)
  }
  /// A packet whose header has no value that the Specification reserves.
  private func h4Record(_ bytes: Span<UInt8>, _ at: Int) -> PlainRecord {
    let available = bytes.count - at
    guard available > 0 else { return .cut }
    guard let type = HCIPacketType(rawValue: bytes[at]) else { return .none }
    guard let length = packetCount(bytes[at], bytes, at + 1, available: available - 1) else { return .cut }
    let isPlausible =
      switch type {
      // Groups 1 to 8, and those of tests and vendors. Vol 4, Part E, §5.4.1.
      case .command: (0x01...0x08).contains(bytes[at + 2] >> 2) || bytes[at + 2] >> 2 >= 0x3E
      case .event: bytes[at + 1] > 0 && (bytes[at + 1] <= 0x5B || bytes[at + 1] >= 0xFE)
      case .acl: bytes.little16(at + 1) & 0x0FFF <= 0x0EFF && bytes[at + 2] >> 6 <= 1 && length > 4
      case .synchronous, .iso: bytes.little16(at + 1) & 0x0FFF <= 0x0EFF && bytes[at + 2] >> 7 == 0 && length > 3
      }
    guard isPlausible else { return .none }
    return available >= 1 + length ? .record(1 + length) : .cut
  }
  func believableH4(_ bytes: Span<UInt8>, _ at: Int) -> Belief {
    // A type octet is found everywhere: a second packet must follow, or the end.
    guard case .record(let length) = h4Record(bytes, at) else { return belief(h4Record(bytes, at), needs: 65_541) }
    if at + length == bytes.count { return .yes }
    if case .none = h4Record(bytes, at + length) { return .no }
    return .yes
  }

  // MARK: The monitor on a serial line

  private static var serialHeader: Int { 6 }

  /// The length of what follows it, opcode, flags, the length of an extended header; that; the data. Little-endian.
  mutating func serialMonitor(_ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool) throws(CaptureError)
    -> CaptureStep
  {
    let available = span.count - at
    guard available >= Self.serialHeader else { return try missing(Self.serialHeader, available, isLast) }
    let length = Int(span.little16(at)), extended = Int(span[at + 5])
    guard length >= 4 + extended else { throw error(.implausibleLength("length", UInt32(length))) }
    let total = 2 + length
    guard available >= total else { return try missing(total, available, isLast) }
    let start = at + Self.serialHeader + extended
    let drops = takeExtended(span, at + Self.serialHeader, start)
    count += 1
    var record = CaptureRecord(
      number: count, offset: offset, time: time, octets: Octets(start, at + total - start))
    record.missingBefore = drops
    record.take(MonitorOpcode(rawValue: span.little16(at + 2)))
    advance(total, &at)
    return .record(record)
  }
  /// The extended header: the drops of seven kinds of packets, an octet each, and the time in tenths of a millisecond.
  private mutating func takeExtended(_ bytes: Span<UInt8>, _ start: Int, _ end: Int) -> UInt32 {
    var at = start, drops: UInt32 = 0
    while at < end {
      switch bytes[at] {
      case 1...7 where at + 2 <= end:
        drops += UInt32(bytes[at + 1])
        at += 2
      case 8 where at + 5 <= end:
        time = Int64(bytes.little32(at + 1)) * 100_000
        at += 5
      default: return drops
      }
    }
    return drops
  }
  private func serialMonitorRecord(_ bytes: Span<UInt8>, _ at: Int) -> PlainRecord {
    guard bytes.count - at >= Self.serialHeader else { return .cut }
    let length = Int(bytes.little16(at)), extended = Int(bytes[at + 5])
    let opcode = MonitorOpcode(rawValue: bytes.little16(at + 2))
    guard length >= 4 + extended, opcode.rawValue <= 19, bytes[at + 4] == 0, extended <= 19 else { return .none }
    guard bytes.count - at >= 2 + length else { return .cut }
    let start = at + Self.serialHeader + extended, count = at + 2 + length - start
    if let packet = opcode.packet {
      guard packetCount(packet.type.rawValue, bytes, start, available: count) == count else { return .none }
    } else if count > 1_024 {
      return .none
    }
    return .record(2 + length)
  }
  func believableSerialMonitor(_ bytes: Span<UInt8>, _ at: Int) -> Belief {
    let length = bytes.count - at >= 2 ? Int(bytes.little16(at)) : 0
    return belief(serialMonitorRecord(bytes, at), needs: max(Self.serialHeader, 2 + length))
  }

  // MARK: btsnooz

  /// A record of the ring in a bug report: its length and, in version 2, the packet's, both with the type octet; the
  /// microseconds since the record before; the type. The sum of these is before the first record's time: its reader
  /// sets ``time``.
  mutating func btsnooz(
    _ version: UInt8, _ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    let available = span.count - at, header = version == 1 ? 7 : 9
    guard available >= header else { return try missing(header, available, isLast) }
    let length = Int(span.little16(at)), original = version == 1 ? length : Int(span.little16(at + 2))
    guard length > 0 else { throw error(.implausibleLength("length", 0)) }
    let total = header + length - 1
    guard available >= total else { return try missing(total, available, isLast) }
    time = time.addingReportingOverflow(Int64(span.little32(at + header - 5)) * 1_000).partialValue
    count += 1
    var record = CaptureRecord(
      number: count, offset: offset, time: time, originalCount: max(original, length) - 1,
      octets: Octets(at + header, length - 1))
    if let packet = Self.btsnoozPacket(span[at + header - 1]) {
      record.direction = packet.direction
      record.prepend(packet.type)
    } else {
      record.content = .note(span[at + header - 1])
    }
    advance(total, &at)
    return .record(record)
  }
  /// The types of Android's stack.
  private static func btsnoozPacket(_ type: UInt8) -> (type: HCIPacketType, direction: HCIDirection)? {
    switch type {
    case 0x10: (.event, .fromController)
    case 0x11: (.acl, .fromController)
    case 0x12: (.synchronous, .fromController)
    case 0x17: (.iso, .fromController)
    case 0x20: (.command, .fromHost)
    case 0x21: (.acl, .fromHost)
    case 0x22: (.synchronous, .fromHost)
    case 0x2D: (.iso, .fromHost)
    default: nil
    }
  }
  func believableBTSnooz(_ version: UInt8, _ bytes: Span<UInt8>, _ at: Int) -> Belief {
    let header = version == 1 ? 7 : 9
    guard bytes.count - at >= header + 4 else { return .needs(header + 4) }
    let length = Int(bytes.little16(at)), original = version == 1 ? length : Int(bytes.little16(at + 2))
    guard length > 1, original >= length, let packet = Self.btsnoozPacket(bytes[at + header - 1]) else { return .no }
    let available = min(bytes.count - at - header, length - 1)
    return packetCount(packet.type.rawValue, bytes, at + header, available: available) == original - 1 ? .yes : .no
  }
}
