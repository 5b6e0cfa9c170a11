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
    record.take(type, span)
    advance(total, &at)
    return .record(record)
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
    case .leLinkLayer, .leLinkLayerWithHeader, .nordic: original <= 300
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
    case .leLinkLayerWithHeader:
      // Channel, signal, noise, offenses, reference access address, flags: bits 7 to 9 are the type of PDU, of which 2
      // and 3 are data from the Central and from the Peripheral.
      let flags = count >= 10 ? bytes.little16(start + 8) : 0
      guard skip(10) else {
        content = .note(0)
        return
      }
      switch flags >> 7 & 7 {
      case 2: content = .linkLayer(.central)
      case 3: content = .linkLayer(.peripheral)
      default: content = .linkLayer(.unknown)
      }
    case .nordic:
      // Board, six octets of the sniffer's protocol, ten about the reception: its flags follow their length.
      let flags = count >= 17 ? bytes[start + 8] : 0
      guard skip(17) else {
        content = .note(0)
        return
      }
      content = .linkLayer(flags & 2 != 0 ? .central : .peripheral)
    }
  }
  /// Removes octets from the front; false if there are fewer.
  private mutating func skip(_ number: Int) -> Bool {
    guard octets.count >= number else { return false }
    octets = Octets(Int(octets.offset) + number, Int(octets.count) - number)
    originalCount -= number
    return true
  }
}
