import BindruneWire
import BindruneHCI

/// The btsnoop file format, version 1. All numbers are big-endian. Wireshark, `btmon` and hcidump read it.
///
/// Writing: ``appendHeader(_:to:)``, then a record for each packet.
public enum BTSnoop {
  /// Appends the header of a file, 16 octets: identification, version 1, datalink.
  public static func appendHeader(_ datalink: BTSnoopDatalink = .h4, to octets: inout [UInt8]) {
    octets += "btsnoop\0".utf8
    octets.append(bigEndian: UInt32(1))
    octets.append(bigEndian: datalink.rawValue)
  }

  /// Microseconds from 1 January of the year 0 to 1 January 1970.
  public static var microsecondsTo1970: UInt64 { 0x00DC_DDB3_0F2F_8000 }

  /// Appends a record of datalink 1002: an HCI packet, its H4 packet type octet first. `time` is in microseconds since
  /// 1970. Flags: bit 0 is set for packets to the host, bit 1 for commands and events instead of data. `drops`: the
  ///       packets missing in the file before this one. `originalCount`: the packet's octets before it was cut.
  public static func append(
    _ packet: Span<UInt8>, _ direction: HCIDirection, time: UInt64, drops: UInt32 = 0, originalCount: Int? = nil,
    to octets: inout [UInt8]
  ) {
    let type = packet.isEmpty ? nil : HCIPacketType(rawValue: packet[0])
    let flags: UInt32 = (direction == .fromController ? 1 : 0) | (type == .command || type == .event ? 2 : 0)
    append(packet, flags: flags, time: time, drops: drops, originalCount: originalCount, to: &octets)
  }

  /// Appends a record of datalink 2001: `data` without an H4 packet type octet.
  public static func append(
    _ data: Span<UInt8>, _ opcode: MonitorOpcode, adapter: UInt16 = 0, time: UInt64, drops: UInt32 = 0,
    originalCount: Int? = nil, to octets: inout [UInt8]
  ) {
    append(
      data, flags: UInt32(adapter) << 16 | UInt32(opcode.rawValue), time: time, drops: drops,
      originalCount: originalCount, to: &octets)
  }

  private static func append(
    _ data: Span<UInt8>, flags: UInt32, time: UInt64, drops: UInt32, originalCount: Int?, to octets: inout [UInt8]
  ) {
    octets.append(bigEndian: UInt32(clamping: originalCount ?? data.count))
    octets.append(bigEndian: UInt32(data.count))
    octets.append(bigEndian: flags)
    octets.append(bigEndian: drops)  // cumulative
    octets.append(bigEndian: time &+ microsecondsTo1970)
    unsafe data.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
  }
}

extension [UInt8] {
  mutating func append(bigEndian value: some FixedWidthInteger) {
    for place in 1...value.bitWidth / 8 {
      append(UInt8(truncatingIfNeeded: value >> (value.bitWidth - 8 * place)))
    }
  }
  mutating func append(littleEndian value: some FixedWidthInteger) {
    for place in 0..<value.bitWidth / 8 { append(UInt8(truncatingIfNeeded: value >> (8 * place))) }
  }
}

extension CaptureParser {
  private static var headerCount: Int { 24 }

  @inline(__always) mutating func btsnoop(
    _ datalink: BTSnoopDatalink, _ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    let available = span.count &- at
    guard available >= Self.headerCount else { return try missing(Self.headerCount, available, isLast) }
    var original = span.big32(at)
    let included = span.big32(at &+ 4), flags = span.big32(at &+ 8)
    guard included <= Self.longestRecord else { throw error(.implausibleLength("included length", included)) }
    if included > original { original = try self.original(original, included, datalink, span, at) }
    let count = Int(included), total = Self.headerCount &+ count
    guard available >= total else { return try missing(total, available, isLast) }
    let stamp = Int64(truncatingIfNeeded: span.big64(at &+ 16) &- BTSnoop.microsecondsTo1970)
    time = Self.nanoseconds(stamp, perSecond: 1_000_000)
    self.count &+= 1
    let start = at &+ Self.headerCount, isReceived = flags & 1 != 0
    var record = CaptureRecord(
      number: self.count, offset: offset, time: time, direction: isReceived ? .fromController : .fromHost,
      originalCount: Int(original), octets: Octets(start, count))
    let drops = span.big32(at &+ 12)
    if drops != self.drops { record.missingBefore = missing(drops) }
    switch datalink {
    case .h4:
      // A command or event says itself who sends it.
      if count > 0 { record.setDirection(span[start]) }
    case .unencapsulated:
      let type: HCIPacketType = flags & 2 == 0 ? .acl : isReceived ? .event : .command
      record.prepend(type)
    case .monitor:
      record.adapter = UInt16(truncatingIfNeeded: flags >> 16)
      record.take(MonitorOpcode(rawValue: UInt16(truncatingIfNeeded: flags)))
    case .bcsp, .threeWire: break  // unpacked by the caller, in place
    }
    advance(total, &at)
    return .record(record)
  }

  /// Some recorders count the original length wrong, or not at all: the included one then bounds the record. Unless the
  /// packet's own length is the original one, so that the included one is the damage.
  @inline(never) private func original(
    _ original: UInt32, _ included: UInt32, _ datalink: BTSnoopDatalink, _ span: Span<UInt8>, _ at: Int
  ) throws(CaptureError) -> UInt32 {
    let start = at + Self.headerCount
    if datalink == .h4, original > 0, span.count > start,
      let own = packetCount(span[start], span, start + 1, available: span.count - start - 1), own + 1 == Int(original)
    {
      throw error(.contradiction("length", original, included))
    }
    return included
  }

  /// The records dropped since the last one. What was dropped before the first is not between two records; a count
  /// that falls began anew.
  @inline(never) private mutating func missing(_ drops: UInt32) -> UInt32 {
    defer { self.drops = drops }
    return count == 1 ? 0 : drops > self.drops ? drops - self.drops : 1
  }

  func believableBTSnoop(_ datalink: BTSnoopDatalink, _ bytes: Span<UInt8>, _ at: Int) -> Belief {
    guard bytes.count - at >= Self.headerCount else { return .needs(Self.headerCount) }
    let included = bytes.big32(at + 4), flags = bytes.big32(at + 8), original = max(bytes.big32(at), included)
    let stamp = Int64(truncatingIfNeeded: bytes.big64(at + 16) &- BTSnoop.microsecondsTo1970)
    guard included <= Self.longestRecord, included > 0, original <= 65_541,
      isNear(Self.nanoseconds(stamp, perSecond: 1_000_000))
    else { return .no }
    let start = at + Self.headerCount, count = Int(included)
    guard bytes.count >= start + min(count, 5) else { return .needs(Self.headerCount + min(count, 5)) }
    switch datalink {
    case .monitor:
      let opcode = MonitorOpcode(rawValue: UInt16(truncatingIfNeeded: flags))
      guard opcode.rawValue <= 19 else { return .no }
      guard let packet = opcode.packet else { return .yes }
      return packetCount(packet.type.rawValue, bytes, start, available: count) == Int(original) ? .yes : .no
    case .h4:
      guard flags <= 3 else { return .no }
      return packetCount(bytes[start], bytes, start + 1, available: count - 1) == Int(original) - 1 ? .yes : .no
    case .unencapsulated:
      guard flags <= 3 else { return .no }
      let type: HCIPacketType = flags & 2 == 0 ? .acl : flags & 1 == 0 ? .command : .event
      return packetCount(type.rawValue, bytes, start, available: count) == Int(original) ? .yes : .no
    case .bcsp, .threeWire: return flags <= 3 ? .yes : .no
    }
  }
}

extension CaptureRecord {
  /// Commands come from the host, events from the controller, whatever the recorder says.
  @inline(__always) mutating func setDirection(_ type: UInt8) {
    if type == HCIPacketType.event.rawValue { direction = .fromController }
    if type == HCIPacketType.command.rawValue { direction = .fromHost }
  }
  /// The packet begins one octet earlier, with its type, where the record's header was.
  @inline(__always) mutating func prepend(_ type: HCIPacketType) {
    octets = Octets(Int(octets.offset) &- 1, Int(octets.count) &+ 1)
    originalCount &+= 1
    missingType = type
    setDirection(type.rawValue)
  }
  /// A record of the monitor: an HCI packet, or something about the adapter.
  mutating func take(_ opcode: MonitorOpcode) {
    if let packet = opcode.packet {
      direction = packet.direction
      prepend(packet.type)
    } else {
      direction = nil
      content = .monitor(opcode)
    }
  }
}
