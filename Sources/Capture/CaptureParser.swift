import BindruneWire
import BindruneHCI

/// What parsing found at the current place.
public enum CaptureStep: BitwiseCopyable, Sendable {
  case record(CaptureRecord)
  /// The next record or header needs this many octets from the current place on, at least.
  case needs(Int)
  /// Every record has been parsed.
  case end
}

/// # CaptureParser
/// **Overview**: finds the records of a trace in its octets, whatever the format; the octets come in blocks from a
/// file, a pipe or a test.
///
/// **Function**: call `next` with a buffer and the place of the next unread octet, until it needs more octets than are
/// there; then move the unread ones to the front, append more, and call it again. Memory is the buffer's: no record is
/// longer than ``longestRecord``, whatever a length field claims.
///
/// A packet without an H4 packet type octet gets one, written over the last octet of its record's header: every packet
/// of every format can be decoded in place.
///
/// **Phases**: format unknown → header → records → end, or damaged: `resume` then looks for the next record.
public struct CaptureParser: Sendable {
  public internal(set) var format: CaptureFormat?
  /// Records so far.
  public internal(set) var count = 0
  /// The file's octets before the current place.
  public private(set) var offset: UInt64 = 0
  /// The time of the last record, in nanoseconds since 1970. The reader of the monitor sets it: its records have none.
  public var time: Int64 = 0
  /// The records that the recorder of a btsnoop file has dropped so far.
  var drops: UInt32 = 0
  /// Octets were skipped since the last record.
  var hasSkipped = false
  /// The octets of the last record, if it ``CaptureRecord/isAssembled``: until the next call of `next`.
  public internal(set) var assembled: [UInt8] = []
  /// Packets of other interfaces.
  public internal(set) var foreign = ForeignPackets()
  /// What the directions of packets are inferred from.
  var directions = InferredDirections()
  /// The packets of USB's devices.
  var usb = USBDevices()
  /// Packets in a text, without their octets: passed over.
  public internal(set) var packetsWithoutOctets = 0
  /// A packet of a text had octets beside those of its header.
  var hasPrintedOctets = false
  /// Of the current section of a pcapng file.
  var interfaces: [PCAPInterface] = []
  var isSectionLittleEndian = true

  /// The longest record, in octets. HCI's longest packet has 65,540.
  public static var longestRecord: Int { 262_144 }

  /// Recognizes the format by the first octets.
  public init() {}
  /// Records without a file's header: those of the monitor's socket.
  public init(format: CaptureFormat) { self.format = format }

  /// Parses the next record of `bytes`, from `at` on, and moves `at` behind it. `isLast`: no more octets will follow.
  public mutating func next(
    _ bytes: inout MutableSpan<UInt8>, at: inout Int, isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    guard let format else {
      if let count = try begin(bytes.span, at, isLast) { return .needs(count) }
      advance(headerCount(bytes.span, at), &at)
      return try next(&bytes, at: &at, isLast: isLast)
    }
    let step = try step(format, bytes.span, &at, isLast)
    guard case .record(var record) = step else { return step }
    if hasSkipped {
      hasSkipped = false
      record.missingBefore = max(1, record.missingBefore)
    }
    switch format {
    case .btsnoop(.bcsp): record.takeFromSerialFrame(isThreeWire: false, &bytes)
    case .btsnoop(.threeWire): record.takeFromSerialFrame(isThreeWire: true, &bytes)
    case .btsnoop: break
    default: record.removeCodingIndicator(&bytes)
    }
    if let type = record.missingType { bytes[Int(record.octets.offset)] = type.rawValue }
    return .record(record)
  }
  @inline(__always) private mutating func step(
    _ format: CaptureFormat, _ bytes: Span<UInt8>, _ at: inout Int, _ isLast: Bool
  ) throws(CaptureError) -> CaptureStep {
    switch format {
    case .btsnoop(let datalink): try btsnoop(datalink, bytes, &at, isLast)
    case .packetLogger(let isLittleEndian): try packetLogger(isLittleEndian, bytes, &at, isLast)
    case .pcap(let type, let isLittleEndian, let ticks): try pcap(type, isLittleEndian, ticks, bytes, &at, isLast)
    case .pcapng: try pcapng(bytes, &at, isLast)
    case .monitor: try monitor(bytes, &at, isLast)
    case .serialMonitor: try serialMonitor(bytes, &at, isLast)
    case .hcidump: try hcidump(bytes, &at, isLast)
    case .h4Stream: try h4Stream(bytes, &at, isLast)
    case .btsnooz(let version): try btsnooz(version, bytes, &at, isLast)
    case .text: try text(bytes, &at, isLast)
    }
  }

  /// Moves past `count` octets.
  @inline(__always) mutating func advance(_ count: Int, _ at: inout Int) {
    at &+= count
    offset &+= UInt64(count)
  }
  /// More octets are needed; or the end, or a record that the end cuts.
  @inline(never) func missing(_ needed: Int, _ available: Int, _ isLast: Bool) throws(CaptureError) -> CaptureStep {
    guard isLast else { return .needs(needed) }
    if available == 0 { return .end }
    throw CaptureError(offset: offset, reason: .truncated(needed: needed, available: available))
  }
  func error(_ reason: CaptureError.Reason) -> CaptureError { CaptureError(offset: offset, reason: reason) }

  /// Nanoseconds since 1970 from seconds and a fraction; what does not fit is clamped.
  @inline(__always) static func nanoseconds(_ count: Int64, perSecond: Int64) -> Int64 {
    let (product, overflow) = count.multipliedReportingOverflow(by: 1_000_000_000 / perSecond)
    return overflow ? (count < 0 ? .min : .max) : product
  }

  // MARK: Beginning

  /// Determines the format. Returns the octets needed for that, or nil when it is known.
  private mutating func begin(_ bytes: Span<UInt8>, _ at: Int, _ isLast: Bool) throws(CaptureError) -> Int? {
    let available = bytes.count - at
    if available == 0, isLast { throw error(.empty) }
    // The longest of the headers: PacketLogger's first record may be shorter than pcap's header, and is tried last.
    if available < 24, !isLast { return 24 }
    if bytes.starts(with: "btsnoop\0", at: at) {
      guard available >= 16 else { throw error(.truncated(needed: 16, available: available)) }
      guard bytes.big32(at + 8) == 1 else { throw error(.unsupportedVersion("btsnoop", bytes.big32(at + 8))) }
      guard let datalink = BTSnoopDatalink(rawValue: bytes.big32(at + 12)) else {
        throw error(.unsupportedDatalink(bytes.big32(at + 12)))
      }
      format = .btsnoop(datalink)
    } else if available >= 4, bytes.big32(at) == 0x0A0D_0D0A {
      format = .pcapng
    } else if available >= 24, let magic = PCAPMagic(bytes.big32(at)) {
      let type = UInt16(truncatingIfNeeded: bytes.number32(at + 20, isLittleEndian: magic.isLittleEndian))
      guard let link = PCAPLinkType(rawValue: type) else { throw error(.unsupportedLinkType(type)) }
      format = .pcap(link, isLittleEndian: magic.isLittleEndian, ticks: magic.ticks)
    } else if let isLittleEndian = Self.packetLoggerEndianness(bytes, at) {
      format = .packetLogger(isLittleEndian: isLittleEndian)
    } else if let file = ForeignFile(bytes.extracting(at..<bytes.count)) {
      throw error(.foreign(file))
    } else {
      return try beginWithoutMagic(bytes, at, isLast)
    }
    return nil
  }
  private func headerCount(_ bytes: Span<UInt8>, _ at: Int) -> Int {
    switch format {
    case .btsnoop: 16
    case .pcap: 24
    default: 0
    }
  }

  // MARK: Damage

  /// After an error: looks for the next octet where a believable record begins, and moves `at` there.
  ///
  /// A record is believable if its lengths agree with each other and with the packet's own, and its time lies within
  /// ten years of the last one. Returns nil when one was found, else the octets needed to decide; at the end of the
  /// file nothing is left.
  public mutating func resume(_ bytes: Span<UInt8>, at: inout Int, isLast: Bool) -> Int? {
    guard format != nil else {
      advance(bytes.count - at, &at)
      return isLast ? nil : 1
    }
    hasSkipped = true
    advance(min(1, bytes.count - at), &at)
    while at < bytes.count {
      switch believable(bytes, at) {
      case .yes: return nil
      case .needs(let count) where !isLast: return count
      case .needs, .no: advance(1, &at)
      }
    }
    return isLast ? nil : 1
  }
  enum Belief { case yes, no, needs(Int) }
  private func believable(_ bytes: Span<UInt8>, _ at: Int) -> Belief {
    switch format {
    case .btsnoop(let datalink): believableBTSnoop(datalink, bytes, at)
    case .packetLogger(let isLittleEndian): believablePacketLogger(isLittleEndian, bytes, at)
    case .pcap(let type, let isLittleEndian, let ticks): believablePCAP(type, isLittleEndian, ticks, bytes, at)
    case .pcapng: believablePCAPNG(bytes, at)
    case .serialMonitor: believableSerialMonitor(bytes, at)
    case .hcidump: believableHCIDump(bytes, at)
    case .h4Stream: believableH4(bytes, at)
    case .btsnooz(let version): believableBTSnooz(version, bytes, at)
    case .monitor, .text, nil: .no
    }
  }
  func isNear(_ time: Int64) -> Bool {
    count == 0 || time.subtractingReportingOverflow(self.time).partialValue.magnitude < 315_360_000_000_000_000
  }
}

/// The number of octets that an HCI packet of this type has according to its own length field, without the H4 packet
/// type octet; nil if `available` octets do not reach that field, or the type is unknown. Vol 4, Part E, §5.4.
func packetCount(_ type: UInt8, _ bytes: Span<UInt8>, _ at: Int, available: Int) -> Int? {
  switch HCIPacketType(rawValue: type) {
  case .command, .synchronous: available >= 3 ? 3 + Int(bytes[at + 2]) : nil
  case .event: available >= 2 ? 2 + Int(bytes[at + 1]) : nil
  case .acl: available >= 4 ? 4 + Int(bytes.little16(at + 2)) : nil
  case .iso: available >= 4 ? 4 + Int(bytes.little16(at + 2) & 0x3FFF) : nil
  case nil: nil
  }
}

extension Span<UInt8> {
  // One load each, which the standard library checks: four loads of an octet would be a third of a record's cost.
  @inline(__always) func big64(_ at: Int) -> UInt64 {
    unsafe bytes.unsafeLoadUnaligned(fromByteOffset: at, as: UInt64.self).bigEndian
  }
  @inline(__always) func big32(_ at: Int) -> UInt32 {
    unsafe bytes.unsafeLoadUnaligned(fromByteOffset: at, as: UInt32.self).bigEndian
  }
  @inline(__always) func big16(_ at: Int) -> UInt16 {
    unsafe bytes.unsafeLoadUnaligned(fromByteOffset: at, as: UInt16.self).bigEndian
  }
  @inline(__always) func little16(_ at: Int) -> UInt16 { big16(at).byteSwapped }
  @inline(__always) func little32(_ at: Int) -> UInt32 { big32(at).byteSwapped }
  @inline(__always) func number32(_ at: Int, isLittleEndian: Bool) -> UInt32 {
    isLittleEndian ? little32(at) : big32(at)
  }
  @inline(__always) func number16(_ at: Int, isLittleEndian: Bool) -> UInt16 {
    isLittleEndian ? little16(at) : big16(at)
  }
  func starts(with text: StaticString, at: Int) -> Bool {
    guard at + text.utf8CodeUnitCount <= count else { return false }
    for index in 0..<text.utf8CodeUnitCount where unsafe self[at + index] != text.utf8Start[index] { return false }
    return true
  }
}
