import BindruneWire
import BindruneHCI

/// One record of a trace file, or of Linux's HCI monitor: what it holds, when it was recorded, and where its octets
/// are.
public struct CaptureRecord: BitwiseCopyable, Sendable {
  /// What `octets` are.
  public enum Content: BitwiseCopyable, Sendable, Equatable {
    /// An HCI packet, its H4 packet type octet first (Vol 4, Part A, §2), also from a format that has none.
    case packet
    /// What Linux's monitor reports beside packets.
    case monitor(MonitorOpcode)
    /// A link-layer packet from the access address to the last octet before the CRC, which may follow (Vol 6, Part B,
    /// §2.1), and what the recorder says about its reception.
    case linkLayer(LinkLayerReception)
    /// A record of the logging program, with its type: text, mostly.
    case note(UInt8)
  }
  /// Its place in the file, from 1. Wireshark's frame number.
  public var number: Int
  /// Where the record begins, in octets from the beginning of the file.
  public var offset: UInt64
  /// Nanoseconds since 1970. Clocks are set while traces are recorded, so a later record may have an earlier time.
  public var time: Int64
  /// nil: the format does not say, and the packet's type does not either.
  public var direction: HCIDirection?
  public var content: Content
  /// The adapter of Linux's monitor, the interface of a pcapng file; else 0.
  public var adapter: UInt16
  /// The packet's octets, H4 packet type included, before a recorder with a limit cut it.
  public var originalCount: Int
  /// Records that the trace lacks before this one, at least: the recorder dropped them, or damage was skipped. 0: none
  /// that it reports.
  public var missingBefore: UInt32 = 0
  /// The packet's range in the buffer that was parsed; in ``CaptureParser/assembled`` if ``isAssembled``.
  public var octets: Octets
  /// True if the packet does not lie in the file as it is: its octets came in pieces, or as text.
  public var isAssembled = false
  /// The H4 packet type octet that the parser has to write at the beginning: the format has none.
  var missingType: HCIPacketType?

  /// True if the recorder kept only the beginning.
  public var isCut: Bool { Int(octets.count) < originalCount }

  public init(
    number: Int, offset: UInt64 = 0, time: Int64 = 0, direction: HCIDirection? = nil, content: Content = .packet,
    adapter: UInt16 = 0, originalCount: Int? = nil, octets: Octets
  ) {
    self.number = number
    self.offset = offset
    self.time = time
    self.direction = direction
    self.content = content
    self.adapter = adapter
    self.originalCount = originalCount ?? Int(octets.count)
    self.octets = octets
  }
}

/// The kind of a record of Linux's HCI monitor (`HCI_CHANNEL_MONITOR`), of btsnoop's datalink 2001 and of pcap's link
/// type 254.
public struct MonitorOpcode: OpenNumber, Hashable, ExpressibleByIntegerLiteral, CustomStringConvertible {
  public var rawValue: UInt16
  @inlinable public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable public init(integerLiteral value: UInt16) { rawValue = value }
  @inlinable public init() { rawValue = 0 }

  /// An adapter appeared: type, bus, BD_ADDR and name.
  public static var newIndex: MonitorOpcode { 0 }
  public static var deleteIndex: MonitorOpcode { 1 }
  public static var command: MonitorOpcode { 2 }
  public static var event: MonitorOpcode { 3 }
  public static var aclTransmit: MonitorOpcode { 4 }
  public static var aclReceive: MonitorOpcode { 5 }
  public static var synchronousTransmit: MonitorOpcode { 6 }
  public static var synchronousReceive: MonitorOpcode { 7 }
  public static var openIndex: MonitorOpcode { 8 }
  public static var closeIndex: MonitorOpcode { 9 }
  public static var indexInformation: MonitorOpcode { 10 }
  public static var vendorDiagnostics: MonitorOpcode { 11 }
  public static var systemNote: MonitorOpcode { 12 }
  public static var userLogging: MonitorOpcode { 13 }
  public static var controlOpen: MonitorOpcode { 14 }
  public static var controlClose: MonitorOpcode { 15 }
  public static var controlCommand: MonitorOpcode { 16 }
  public static var controlEvent: MonitorOpcode { 17 }
  public static var isoTransmit: MonitorOpcode { 18 }
  public static var isoReceive: MonitorOpcode { 19 }

  /// The H4 packet type and direction of an HCI packet's record; nil for others.
  public var packet: (type: HCIPacketType, direction: HCIDirection)? {
    switch rawValue {
    case 2: (.command, .fromHost)
    case 3: (.event, .fromController)
    case 4: (.acl, .fromHost)
    case 5: (.acl, .fromController)
    case 6: (.synchronous, .fromHost)
    case 7: (.synchronous, .fromController)
    case 18: (.iso, .fromHost)
    case 19: (.iso, .fromController)
    default: nil
    }
  }
  /// The opcode of an HCI packet's record.
  public init(_ type: HCIPacketType, _ direction: HCIDirection) {
    let isSent = direction == .fromHost
    switch type {
    case .command: self = .command
    case .event: self = .event
    case .acl: self = isSent ? .aclTransmit : .aclReceive
    case .synchronous: self = isSent ? .synchronousTransmit : .synchronousReceive
    case .iso: self = isSent ? .isoTransmit : .isoReceive
    }
  }

  public var description: String {
    let names = [
      "New Index", "Delete Index", "Command", "Event", "ACL sent", "ACL received", "Synchronous sent",
      "Synchronous received", "Open Index", "Close Index", "Index Information", "Vendor Diagnostics", "System Note",
      "User Logging", "Control Open", "Control Close", "Control Command", "Control Event", "ISO sent", "ISO received",
    ]
    return Int(rawValue) < names.count ? names[Int(rawValue)] : "Monitor opcode \(rawValue)"
  }
}
