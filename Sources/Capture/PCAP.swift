import BindruneWire
import BindruneHCI

/// The first four octets of a pcap file.
struct PCAPMagic {
  var isLittleEndian: Bool
  /// In a second.
  var ticks: UInt32
  init?(_ number: UInt32) {
    switch number {
    case 0xA1B2_C3D4: (isLittleEndian, ticks) = (false, 1_000_000)
    case 0xD4C3_B2A1: (isLittleEndian, ticks) = (true, 1_000_000)
    case 0xA1B2_3C4D: (isLittleEndian, ticks) = (false, 1_000_000_000)
    case 0x4D3C_B2A1: (isLittleEndian, ticks) = (true, 1_000_000_000)
    default: return nil
    }
  }
}

// pcap: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap

extension CaptureParser {
  private static var headerCount: Int { 16 }

  mutating func pcap(
    _ type: PCAPLinkType, _ isLittleEndian: Bool, _ ticks: UInt32, _ span: Span<UInt8>, _ at: inout Int,
    _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    while true {
      let available = span.count - at
      guard available >= Self.headerCount else { return try missing(Self.headerCount, available, isLast) }
      let captured = span.number32(at + 8, isLittleEndian: isLittleEndian)
      let original = span.number32(at + 12, isLittleEndian: isLittleEndian)
      guard captured <= Self.longestRecord else { throw error(.implausibleLength("captured length", captured)) }
      let total = Self.headerCount + Int(captured)
      guard available >= total else { return try missing(total, available, isLast) }
      time = Self.pcapTime(span, at, isLittleEndian, ticks)
      count += 1
      var record = CaptureRecord(
        number: count, offset: offset, time: time, originalCount: max(Int(original), Int(captured)),
        octets: Octets(at + Self.headerCount, Int(captured)))
      let isTaken = take(type, span, &record)
      advance(total, &at)
      if isTaken { return .record(record) }
    }
  }
  /// Finds the packet in the payload of a pcap or pcapng record. False: it is none of Bluetooth's, and is passed over.
  @inline(__always) mutating func take(
    _ type: PCAPLinkType, _ span: Span<UInt8>, _ record: inout CaptureRecord
  ) -> Bool {
    switch type {
    case .usbLinux, .usbLinuxMapped, .usbPcap: return takeFromUSB(type, span, &record)
    default: record.take(type, span)
    }
    if record.direction == nil { infer(&record, span) }
    return true
  }
  private static func pcapTime(_ bytes: Span<UInt8>, _ at: Int, _ isLittleEndian: Bool, _ ticks: UInt32) -> Int64 {
    let seconds = Int64(bytes.number32(at, isLittleEndian: isLittleEndian))
    let fraction = Int64(bytes.number32(at + 4, isLittleEndian: isLittleEndian))
    return nanoseconds(seconds * Int64(ticks) + fraction, perSecond: Int64(ticks))
  }
  func believablePCAP(
    _ type: PCAPLinkType, _ isLittleEndian: Bool, _ ticks: UInt32, _ bytes: Span<UInt8>, _ at: Int
  ) -> Belief {
    guard bytes.count - at >= Self.headerCount else { return .needs(Self.headerCount) }
    let captured = bytes.number32(at + 8, isLittleEndian: isLittleEndian)
    let original = bytes.number32(at + 12, isLittleEndian: isLittleEndian)
    guard captured > 0, captured <= original, original <= 65_600,
      bytes.number32(at + 4, isLittleEndian: isLittleEndian) < ticks,
      isNear(Self.pcapTime(bytes, at, isLittleEndian, ticks))
    else { return .no }
    let count = min(Int(captured), 9)
    guard bytes.count - at >= Self.headerCount + count else { return .needs(Self.headerCount + count) }
    return isPacket(type, bytes, at + Self.headerCount, available: count, original: Int(original)) ? .yes : .no
  }

  /// True if a packet of this link type can have these first octets and this length.
  func isPacket(_ type: PCAPLinkType, _ bytes: Span<UInt8>, _ start: Int, available: Int, original: Int) -> Bool {
    switch type {
    case .h4:
      available > 0
        && packetCount(bytes[start], bytes, start + 1, available: available - 1) == original - 1
    case .h4WithDirection:
      available > 4 && bytes.big32(start) <= 1
        && packetCount(bytes[start + 4], bytes, start + 5, available: available - 5) == original - 5
    case .linuxMonitor: available >= 4 && bytes.big16(start + 2) <= 19
    case .leLinkLayer, .leLinkLayerWithHeader, .nordic, .nordicOld, .ppi: original <= 400
    case .user0:
      isPacket(.h4, bytes, start, available: available, original: original)
        || CaptureRecord.isLinkLayer(bytes, start, available: available, original: original)
    // The ninth octet is an event's letter: submission, completion, error.
    case .usbLinux, .usbLinuxMapped:
      available > 8 && original >= 48
        && [UInt8(ascii: "S"), UInt8(ascii: "C"), UInt8(ascii: "E")].contains(bytes[start + 8])
    case .usbPcap: available >= 2 && (27...64).contains(Int(bytes.little16(start)))
    }
  }
}

extension CaptureRecord {
  /// The packet in the payload of a pcap or pcapng record. A payload too short for its own header stays a note.
  mutating func take(_ type: PCAPLinkType, _ bytes: Span<UInt8>) {
    let start = Int(octets.offset), count = Int(octets.count)
    switch type {
    case .h4:
      if count > 0 { setDirection(bytes[start]) }
    case .h4WithDirection:
      guard skip(4) else {
        content = .note(0)
        return
      }
      // 0: sent by the host; 1: received.
      direction = bytes[start + 3] == 0 ? .fromHost : .fromController
      if count > 4 { setDirection(bytes[start + 4]) }
    case .linuxMonitor:
      guard skip(4) else {
        content = .note(0)
        return
      }
      adapter = bytes.big16(start)
      take(MonitorOpcode(rawValue: bytes.big16(start + 2)))
    case .leLinkLayer: content = .linkLayer(.unknown)
    case .leLinkLayerWithHeader: takeFromLinkLayerHeader(bytes)
    case .nordic, .nordicOld: takeFromNordic(isOld: type == .nordicOld, bytes)
    case .ppi: takeFromPPI(bytes)
    case .user0:
      // Everybody's own: HCI packets or packets from the air, if their lengths fit.
      if count > 0, packetCount(bytes[start], bytes, start + 1, available: count - 1) == originalCount - 1 {
        setDirection(bytes[start])
      } else if Self.isLinkLayer(bytes, start, available: count, original: originalCount) {
        content = .linkLayer(.unknown)
      } else {
        content = .note(0)
      }
    // Their packets may have come in pieces: the parser takes them.
    case .usbLinux, .usbLinuxMapped, .usbPcap: content = .note(0)
    }
  }
  /// True if the header's length is that of a link-layer packet, with or without its CRC.
  static func isLinkLayer(_ bytes: Span<UInt8>, _ start: Int, available: Int, original: Int) -> Bool {
    available >= 6 && (original == 6 + Int(bytes[start + 5]) || original == 9 + Int(bytes[start + 5]))
  }
  /// Removes octets from the front; false if there are fewer.
  mutating func skip(_ number: Int) -> Bool {
    guard octets.count >= number else { return false }
    octets = Octets(Int(octets.offset) + number, Int(octets.count) - number)
    originalCount -= number
    return true
  }
}
