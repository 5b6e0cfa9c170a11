import BindruneWire
import BindruneHCI

// Apple's PacketLogger: a length, the time in seconds and microseconds, a type octet, the packet; the length counts all
// but itself. Numbers are big-endian in older files, little-endian in newer ones; nothing says which.

extension CaptureParser {
  private static var headerCount: Int { 13 }

  mutating func packetLogger(
    _ isLittleEndian: Bool, _ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    let available = span.count - at
    guard available >= 4 else { return try missing(Self.headerCount, available, isLast) }
    let length = span.number32(at, isLittleEndian: isLittleEndian)
    guard length >= 9, length <= Self.longestRecord else { throw error(.implausibleLength("length", length)) }
    let total = 4 + Int(length)
    guard available >= total else { return try missing(total, available, isLast) }
    time = Self.packetLoggerTime(span, at, isLittleEndian)
    count += 1
    let start = at + Self.headerCount
    var record = CaptureRecord(
      number: count, offset: offset, time: time, octets: Octets(start, total - Self.headerCount))
    let type = span[at + 12]
    if let packet = Self.packet(type) {
      record.direction = packet.direction
      record.prepend(packet.type)
    } else {
      record.content = .note(type)
    }
    advance(total, &at)
    return .record(record)
  }

  /// The types that are HCI packets.
  private static func packet(_ type: UInt8) -> (type: HCIPacketType, direction: HCIDirection)? {
    switch type {
    case 0x00: (.command, .fromHost)
    case 0x01: (.event, .fromController)
    case 0x02: (.acl, .fromHost)
    case 0x03: (.acl, .fromController)
    case 0x08: (.synchronous, .fromHost)
    case 0x09: (.synchronous, .fromController)
    default: nil
    }
  }
  private static func packetLoggerTime(_ bytes: Span<UInt8>, _ at: Int, _ isLittleEndian: Bool) -> Int64 {
    let seconds = Int64(bytes.number32(at + 4, isLittleEndian: isLittleEndian))
    let micro = Int64(bytes.number32(at + 8, isLittleEndian: isLittleEndian))
    return nanoseconds(seconds * 1_000_000 + micro, perSecond: 1_000_000)
  }

  /// The endianness in which the first record is one; nil: it is none.
  static func packetLoggerEndianness(_ bytes: Span<UInt8>, _ at: Int) -> Bool? {
    for isLittleEndian in [false, true] {
      if case .yes = CaptureParser().believablePacketLogger(isLittleEndian, bytes, at) { return isLittleEndian }
    }
    return nil
  }
  func believablePacketLogger(_ isLittleEndian: Bool, _ bytes: Span<UInt8>, _ at: Int) -> Belief {
    guard bytes.count - at >= Self.headerCount else { return .needs(Self.headerCount) }
    let length = bytes.number32(at, isLittleEndian: isLittleEndian), type = bytes[at + 12]
    guard length >= 9, length <= Self.longestRecord, bytes.number32(at + 8, isLittleEndian: isLittleEndian) < 1_000_000,
      isNear(Self.packetLoggerTime(bytes, at, isLittleEndian))
    else { return .no }
    guard let packet = Self.packet(type) else { return type >= 0xF0 || (0x0A...0x0B).contains(type) ? .yes : .no }
    let start = at + Self.headerCount
    guard bytes.count - start >= 4 || bytes.count - start >= Int(length) - 9 else {
      return .needs(Self.headerCount + min(4, Int(length) - 9))
    }
    let declared = packetCount(packet.type.rawValue, bytes, start, available: min(bytes.count - start, Int(length) - 9))
    return declared == Int(length) - 9 ? .yes : .no
  }
}
