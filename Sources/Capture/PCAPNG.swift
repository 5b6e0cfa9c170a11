import BindruneWire
import BindruneHCI

/// An interface of a pcapng section.
struct PCAPInterface: BitwiseCopyable, Sendable {
  /// The number of the link type: a section may have interfaces that are not Bluetooth.
  var type: UInt16
  /// Units of time in a second.
  var ticks: UInt64 = 1_000_000
  /// Seconds to add to the time.
  var seconds: Int64 = 0
}

/// Packets of a capture's interfaces that are not Bluetooth: they are passed over.
public struct ForeignPackets: BitwiseCopyable, Sendable {
  public private(set) var count = 0
  /// The link type of the first one.
  public private(set) var linkType: UInt16 = 0

  mutating func add(_ type: UInt16) {
    if count == 0 { linkType = type }
    count += 1
  }
  /// Why there is no record in a file of `records`, all of which are foreign.
  func onlyOne(_ records: Int) -> CaptureError.Reason? {
    count > 0 && count == records ? .unsupportedLinkType(linkType) : nil
  }
}

/// The pcapng file format. https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng
///
/// Writing: ``appendHeader(_:to:)``, then a block for each packet, with link type 201.
public enum PCAPNG {
  /// Appends a section header and the description of one interface: HCI packets with their direction, in microseconds.
  public static func appendHeader(_ type: PCAPLinkType = .h4WithDirection, to octets: inout [UInt8]) {
    octets.append(littleEndian: UInt32(0x0A0D_0D0A))
    octets.append(littleEndian: UInt32(28))
    octets.append(littleEndian: UInt32(0x1A2B_3C4D))
    octets.append(littleEndian: UInt32(1))  // version 1.0
    octets.append(littleEndian: UInt64.max)  // the section's length is not known
    octets.append(littleEndian: UInt32(28))
    appendInterface(type, to: &octets)
  }
  /// Seconds that no time of a record is before 1970.
  static var past: Int64 { 1 << 34 }
  /// Appends the description of an interface, to whose times so many seconds are added.
  static func appendInterface(
    _ type: PCAPLinkType = .h4WithDirection, secondsOffset: Int64 = 0, to octets: inout [UInt8]
  ) {
    let length: UInt32 = secondsOffset == 0 ? 20 : 36
    octets.append(littleEndian: UInt32(1))
    octets.append(littleEndian: length)
    octets.append(littleEndian: UInt32(type.rawValue))
    octets.append(littleEndian: UInt32(0))  // nothing is cut
    if secondsOffset != 0 {
      octets.append(littleEndian: UInt32(14 | 8 << 16))  // if_tsoffset, eight octets
      octets.append(littleEndian: secondsOffset)
      octets.append(littleEndian: UInt32(0))  // the end of the options
    }
    octets.append(littleEndian: length)
  }
  /// Appends an Enhanced Packet Block: the direction, and an HCI packet with its H4 packet type octet first. `time` is
  /// in microseconds since 1970. `originalCount`: the packet's octets before it was cut.
  public static func append(
    _ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64, originalCount: Int? = nil, interface: UInt32 = 0,
    to octets: inout [UInt8]
  ) {
    let count = 4 + packet.count, padding = (4 - count % 4) % 4
    octets.append(littleEndian: UInt32(6))
    octets.append(littleEndian: UInt32(32 + count + padding))
    octets.append(littleEndian: interface)
    octets.append(littleEndian: UInt32(truncatingIfNeeded: time >> 32))
    octets.append(littleEndian: UInt32(truncatingIfNeeded: time))
    octets.append(littleEndian: UInt32(count))
    octets.append(littleEndian: UInt32(clamping: 4 + (originalCount ?? packet.count)))
    octets.append(bigEndian: direction == .fromHost ? UInt32(0) : 1)
    unsafe packet.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
    octets.append(contentsOf: repeatElement(0, count: padding))
    octets.append(littleEndian: UInt32(32 + count + padding))
  }
}

extension CaptureParser {
  private enum Block {
    static var section: UInt32 { 0x0A0D_0D0A }
    static var interface: UInt32 { 1 }
    static var packet: UInt32 { 2 }  // obsolete, before the enhanced one
    static var simplePacket: UInt32 { 3 }
    static var enhancedPacket: UInt32 { 6 }
  }
  private static var shortest: Int { 12 }

  /// Blocks that are no packets are skipped: statistics, names, secrets, and what is still to be invented.
  mutating func pcapng(
    _ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    while true {
      let available = span.count - at
      if isLast, available == 0, let error = foreign.onlyOne(count) { throw self.error(error) }
      guard available >= Self.shortest else { return try missing(Self.shortest, available, isLast) }
      if span.big32(at) == Block.section {
        guard let isLittleEndian = Self.byteOrder(span, at) else {
          throw error(.contradiction("byte order", span.big32(at + 8), 0x1A2B_3C4D))
        }
        isSectionLittleEndian = isLittleEndian
      }
      let isLittle = isSectionLittleEndian
      let type = span.number32(at, isLittleEndian: isLittle), length = span.number32(at + 4, isLittleEndian: isLittle)
      guard length >= Self.shortest, length % 4 == 0, length <= Self.longestRecord else {
        throw error(.implausibleLength("block length", length))
      }
      let total = Int(length)
      guard available >= total else { return try missing(total, available, isLast) }
      let last = span.number32(at + total - 4, isLittleEndian: isLittle)
      guard last == length else { throw error(.contradiction("block length", length, last)) }
      var record: CaptureRecord?
      switch type {
      case Block.section: interfaces = []
      case Block.interface: try describeInterface(span, at, total)
      case Block.enhancedPacket, Block.packet, Block.simplePacket:
        record = try packet(type, span, at, total)
        if let interface = record.map({ interfaces[Int($0.adapter)] }) {
          if let type = PCAPLinkType(rawValue: interface.type), var found = record {
            let isTaken = take(type, span, &found)
            if type == .h4 || type == .user0 { takeDirection(&found, span, at, total) }
            record = isTaken ? found : nil
          } else {
            foreign.add(interface.type)
            record = nil
          }
        }
      default: break
      }
      advance(total, &at)
      if let record { return .record(record) }
    }
  }

  /// The direction in a block's flags, for packets that have none themselves: the option follows the packet. Commands
  /// and events are left as they are.
  private func takeDirection(_ record: inout CaptureRecord, _ bytes: Span<UInt8>, _ at: Int, _ total: Int) {
    let type = bytes.number32(at, isLittleEndian: isSectionLittleEndian), end = at + total - 4
    guard type != Block.simplePacket, record.content == .packet, record.octets.count > 0,
      HCIPacketType(rawValue: bytes[Int(record.octets.offset)]) != .command,
      HCIPacketType(rawValue: bytes[Int(record.octets.offset)]) != .event
    else { return }
    var option = at + 28 + (record.octets.range.upperBound - at - 28 + 3) / 4 * 4
    while option + 4 <= end {
      let code = bytes.number16(option, isLittleEndian: isSectionLittleEndian)
      let length = Int(bytes.number16(option + 2, isLittleEndian: isSectionLittleEndian))
      guard code != 0, option + 4 + length <= end else { return }
      if code == 2, length == 4 {
        switch bytes.number32(option + 4, isLittleEndian: isSectionLittleEndian) & 3 {
        case 1: record.direction = .fromController  // inbound
        case 2: record.direction = .fromHost
        default: break
        }
      }
      option += 4 + (length + 3) / 4 * 4
    }
  }

  private static func byteOrder(_ bytes: Span<UInt8>, _ at: Int) -> Bool? {
    switch bytes.big32(at + 8) {
    case 0x1A2B_3C4D: false
    case 0x4D3C_2B1A: true
    default: nil
    }
  }

  private mutating func describeInterface(_ bytes: Span<UInt8>, _ at: Int, _ total: Int) throws(CaptureError) {
    let isLittle = isSectionLittleEndian
    guard total >= 20 else { throw error(.truncated(needed: 20, available: total)) }
    // A file could describe interfaces without end.
    guard interfaces.count < 4_096 else { throw error(.implausibleLength("number of interfaces", 4_097)) }
    var interface = PCAPInterface(type: bytes.number16(at + 8, isLittleEndian: isLittle))
    var option = at + 16
    while option + 4 <= at + total - 4 {
      let code = bytes.number16(option, isLittleEndian: isLittle)
      let length = Int(bytes.number16(option + 2, isLittleEndian: isLittle)), value = option + 4
      guard code != 0, value + length <= at + total - 4 else { break }
      if code == 9, length == 1 {
        // The resolution of times: a negative power of ten or, with the highest bit, of two.
        let power = bytes[value] & 0x7F, base: UInt64 = bytes[value] & 0x80 == 0 ? 10 : 2
        guard power <= (base == 10 ? 18 : 62) else { throw error(.implausibleLength("resolution", UInt32(power))) }
        interface.ticks = (0..<power).reduce(1) { ticks, _ in ticks * base }
      }
      if code == 14, length == 8 {
        let one = UInt64(bytes.number32(value, isLittleEndian: isLittle))
        let two = UInt64(bytes.number32(value + 4, isLittleEndian: isLittle))
        interface.seconds = Int64(truncatingIfNeeded: isLittle ? two << 32 | one : one << 32 | two)
      }
      option = value + (length + 3) / 4 * 4
    }
    interfaces.append(interface)
  }

  /// A block with a packet. Its range is that of the link type's octets.
  private mutating func packet(
    _ type: UInt32, _ bytes: Span<UInt8>, _ at: Int, _ total: Int
  ) throws(CaptureError) -> CaptureRecord {
    let isLittle = isSectionLittleEndian, isSimple = type == Block.simplePacket
    let header = isSimple ? 12 : 28
    guard total >= header + 4 else { throw error(.truncated(needed: header + 4, available: total)) }
    let number: UInt32 =
      switch type {
      case Block.simplePacket: 0
      case Block.packet: UInt32(bytes.number16(at + 8, isLittleEndian: isLittle))
      default: bytes.number32(at + 8, isLittleEndian: isLittle)
      }
    guard number < interfaces.count else { throw error(.unknownInterface(number)) }
    let room = total - header - 4, captured: Int, original: UInt32
    if isSimple {
      original = bytes.number32(at + 8, isLittleEndian: isLittle)
      captured = min(Int(original), room)
    } else {
      let declared = bytes.number32(at + 20, isLittleEndian: isLittle)
      original = bytes.number32(at + 24, isLittleEndian: isLittle)
      guard declared <= room else { throw error(.contradiction("captured length", declared, UInt32(room))) }
      captured = Int(declared)
      time = interfaces[Int(number)].time(
        UInt64(bytes.number32(at + 12, isLittleEndian: isLittle)) << 32
          | UInt64(bytes.number32(at + 16, isLittleEndian: isLittle)))
    }
    count += 1
    return CaptureRecord(
      number: count, offset: offset, time: time, adapter: UInt16(number), originalCount: max(Int(original), captured),
      octets: Octets(at + header, captured))
  }

  func believablePCAPNG(_ bytes: Span<UInt8>, _ at: Int) -> Belief {
    guard bytes.count - at >= Self.shortest else { return .needs(Self.shortest) }
    let type = bytes.number32(at, isLittleEndian: isSectionLittleEndian)
    guard bytes.big32(at) == Block.section || (1...6).contains(type) else { return .no }
    let isLittle = bytes.big32(at) == Block.section ? Self.byteOrder(bytes, at) : isSectionLittleEndian
    guard let isLittle else { return .no }
    let length = bytes.number32(at + 4, isLittleEndian: isLittle)
    guard length >= Self.shortest, length % 4 == 0, length <= Self.longestRecord else { return .no }
    guard bytes.count - at >= Int(length) else { return .needs(Int(length)) }
    return bytes.number32(at + Int(length) - 4, isLittleEndian: isLittle) == length ? .yes : .no
  }
}

extension PCAPInterface {
  /// Nanoseconds since 1970; what does not fit is clamped.
  func time(_ count: UInt64) -> Int64 {
    let whole = Int64(clamping: count / ticks), part = count % ticks
    let fraction = Int64(ticks.dividingFullWidth(part.multipliedFullWidth(by: 1_000_000_000)).quotient)
    let (sum, first) = whole.addingReportingOverflow(seconds)
    let (product, second) = sum.multipliedReportingOverflow(by: 1_000_000_000)
    let (result, third) = product.addingReportingOverflow(fraction)
    return first || second || third ? .max : result
  }
}
