import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// Receives a trace: its records, and the frames that their fragments make.
public protocol TraceSink: ~Copyable {
  /// Every record, before its frame. `bytes`: its octets, lent for the duration of the call.
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>)
  /// An L2CAP frame ended with `record`. `payload`: the octets after its header, lent for the duration of the call.
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord)
  /// A PDU of the Attribute Protocol ended with the K-frame that was passed last, on the enhanced bearer `frame.bearer`.
  /// `pdu`: lent for the duration of the call. `frame.length` is the PDU's.
  mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord)
  /// The fragments of a link violated L2CAP's rules; the frame is dropped.
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord)
  /// A packet of the link belongs to no frame that can be read: it is malformed, or its recorder cut it too early.
  mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord)
  /// False ends the reading before the next record.
  var wantsMore: Bool { get }
  /// No more records for the moment: show what waits. Also called at the end.
  mutating func pause()
}
extension TraceSink where Self: ~Copyable {
  public var wantsMore: Bool { true }
  public mutating func pause() {}
  public mutating func enhancedPDU(_: TraceFrame, _: Span<UInt8>, of _: CaptureRecord) {}
  public mutating func lost(_: ConnectionHandle, of _: CaptureRecord) {}
}

/// A dissector and the recipient of what it finds, for ``TraceFile/read(into:)``:
///
///     var fields = DissectingSink(TraceFields())
///     try file.read(into: &fields)
///     print(fields.sink.output.count)
public struct DissectingSink<Sink: TraceSink & ~Copyable>: ~Copyable, CaptureSink {
  public private(set) var dissector = Dissector()
  public var sink: Sink
  public init(_ sink: consuming Sink) { self.sink = sink }
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    dissector.receive(record, bytes, into: &sink)
  }
  public var wantsMore: Bool { sink.wantsMore }
  public mutating func pause() { sink.pause() }
}

/// An L2CAP frame of a trace. Vol 3, Part A, §3.1.
public struct TraceFrame: BitwiseCopyable, Sendable {
  public var adapter: UInt16
  /// The connection handle; in a link-layer capture the access address.
  public var connection: UInt32
  /// nil: the capture does not say.
  public var direction: HCIDirection?
  public var channel: ChannelID
  /// Octets of the payload, according to the header.
  public var length: Int
  /// False if the recorder cut a packet of it: `payload` has the beginning.
  public var isWhole: Bool
  /// The enhanced bearer of the Attribute Protocol that it is for: its channel's number at the host, the same in both
  /// directions. nil: none that the trace shows.
  public var bearer: ChannelID?
}

/// # Dissector
/// **Overview**: joins the fragments of each link and direction to L2CAP frames, for everybody who reads traces.
///
/// **Function**: a frame that lies whole in one packet, as most do, is not copied. It trusts nothing: a trace may begin
/// in the middle, lack packets, or hold octets of an attacker. It is not the host's `Recombiner`: what judges the host
/// must not share its machines. On enhanced bearers of the Attribute Protocol it also joins K-frames to PDUs. Memory is
/// bounded: at most ``mostAssemblies`` frames are incomplete at a time.
///
/// **Phases** of a link's direction: idle → collecting → idle.
public struct Dissector: ~Copyable {
  /// Frames that may be incomplete at the same time; the fragments of further ones are dropped.
  public static var mostAssemblies: Int { 1_024 }
  /// An incomplete frame: its octets so far, header included.
  struct Assembly {
    var octets: [UInt8]
    /// Octets received: more than `octets` has if a packet was cut.
    var received: Int
    var expected: Int? { octets.count < 2 ? nil : L2CAPFrame.headerCount + (Int(octets[0]) | Int(octets[1]) << 8) }
  }
  private var assemblies: [UInt64: Assembly] = [:]
  /// The storage of the last frame, for the next one.
  private var spare: [UInt8] = []
  private var linkLayer = LinkLayerState()
  private var bearers = TraceBearers()
  private var vendorData = VendorData()
  /// Data packets from the air that are encrypted, so that no frame comes of them.
  public var encryptedCount: Int { linkLayer.encryptedCount }

  public init() {}

  /// Passes the record, and a frame that it ends, to `sink`.
  public mutating func receive(
    _ record: CaptureRecord, _ bytes: Span<UInt8>, into sink: inout some TraceSink & ~Copyable
  ) {
    // A frame whose fragments are missing does not end.
    if record.missingBefore > 0 {
      assemblies.removeAll()
      bearers = TraceBearers()
    }
    sink.record(record, bytes)
    switch record.content {
    case .packet:
      guard bytes.count > 0 else { return }
      switch HCIPacketType(rawValue: bytes[0]) {
      case .acl: data(record, bytes, &sink)
      case .event:
        vendorData.learn(record, bytes)
        if !assemblies.isEmpty || !bearers.isEmpty { forget(record, bytes) }
      default: break
      }
    case .linkLayer(let reception): linkLayer.receive(record, reception, bytes, &sink)
    case .monitor, .note: break
    }
  }

  private func key(_ record: CaptureRecord, _ handle: UInt16, _ direction: HCIDirection) -> UInt64 {
    UInt64(record.adapter) << 32 | UInt64(handle) << 1 | (direction == .fromHost ? 0 : 1)
  }

  private mutating func data(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ sink: inout some TraceSink & ~Copyable) {
    guard bytes.count >= ACLPacket.headerCount else { return }
    let word = UInt16(bytes[1]) | UInt16(bytes[2]) << 8, handle = word & 0x0FFF
    let declared = Int(bytes[3]) | Int(bytes[4]) << 8, available = bytes.count - ACLPacket.headerCount
    if handle >= VendorData.leastHandle, vendorData.takes(record, handle) { return }
    // Only the recorder may have cut it: another packet is malformed, which its own text says.
    guard declared == available || (record.isCut && declared > available) else {
      return lose(record, handle, &sink)
    }
    let flag = PacketBoundaryFlag(rawValue: UInt8(truncatingIfNeeded: word >> 12 & 3))
    // The parser infers it where the format has none.
    let direction = record.direction ?? .fromController
    // The recorder may have cut the packet within L2CAP's header.
    if flag != .continuing, flag != .complete, word >> 14 == 0, available >= L2CAPFrame.headerCount,
      assemblies.isEmpty || assemblies[key(record, handle, direction)] == nil,
      L2CAPFrame.headerCount + (Int(bytes[5]) | Int(bytes[6]) << 8) == declared
    {
      let frame = TraceFrame(
        adapter: record.adapter, connection: UInt32(handle), direction: direction,
        channel: ChannelID(rawValue: UInt16(bytes[7]) | UInt16(bytes[8]) << 8),
        length: declared - L2CAPFrame.headerCount, isWhole: available == declared)
      return pass(
        frame, bytes.extracting(droppingFirst: ACLPacket.headerCount + L2CAPFrame.headerCount), record, &sink)
    }
    let handleNumber = ConnectionHandle(rawValue: handle)
    guard word >> 14 == 0, flag != .complete, let flag else {
      return sink.violation(.illegalFlags, handleNumber, direction, of: record)
    }
    let fragment = bytes.extracting(droppingFirst: ACLPacket.headerCount)
    let link = Link(adapter: record.adapter, connection: UInt32(handle), direction: direction, handle: handleNumber)
    collect(
      fragment, declared, isFirst: flag != .continuing, key(record, handle, direction), link, record, &sink)
  }

  /// Whose fragment it is.
  struct Link {
    var adapter: UInt16
    var connection: UInt32
    var direction: HCIDirection?
    var handle: ConnectionHandle
  }

  private mutating func collect(
    _ fragment: Span<UInt8>, _ declared: Int, isFirst: Bool, _ key: UInt64, _ link: Link, _ record: CaptureRecord,
    _ sink: inout some TraceSink & ~Copyable
  ) {
    var assembly: Assembly
    if isFirst {
      if let before = assemblies.removeValue(forKey: key), before.received > 0 {
        sink.violation(
          .incompleteFrame(received: before.received, expected: before.expected), link.handle, link.direction,
          of: record)
      }
      assembly = Assembly(octets: spare, received: 0)
      spare = []
    } else {
      guard let before = assemblies.removeValue(forKey: key) else {
        return sink.violation(.orphanFragment(count: declared), link.handle, link.direction, of: record)
      }
      assembly = before
    }
    // Behind a packet that was cut, further octets have no place.
    if assembly.octets.count == assembly.received {
      unsafe fragment.withUnsafeBufferPointer { unsafe assembly.octets.append(contentsOf: $0) }
    }
    assembly.received += declared
    guard let expected = assembly.expected, assembly.received >= expected else {
      guard assemblies.count < Self.mostAssemblies else { return sink.lost(link.handle, of: record) }
      assemblies[key] = assembly
      return
    }
    guard assembly.received == expected else {
      return sink.violation(
        .overlongFragment(received: assembly.received, expected: expected), link.handle, link.direction, of: record)
    }
    // The recorder cut it within its header: which channel it is for is not known.
    guard assembly.octets.count >= L2CAPFrame.headerCount else { return sink.lost(link.handle, of: record) }
    let frame = TraceFrame(
      adapter: link.adapter, connection: link.connection, direction: link.direction,
      channel: ChannelID(rawValue: UInt16(assembly.octets[2]) | UInt16(assembly.octets[3]) << 8),
      length: expected - L2CAPFrame.headerCount, isWhole: assembly.octets.count == expected)
    pass(frame, assembly.octets.span.extracting(droppingFirst: L2CAPFrame.headerCount), record, &sink)
    swap(&spare, &assembly.octets)
    spare.removeAll(keepingCapacity: true)
  }

  /// A frame, and the PDU that ends with it.
  @inline(__always) private mutating func pass(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord, _ sink: inout some TraceSink & ~Copyable
  ) {
    if frame.channel == .attribute || (bearers.isEmpty && frame.channel != .leSignaling) {
      return sink.frame(frame, payload, of: record)
    }
    passOther(frame, payload, record, &sink)
  }
  private mutating func passOther(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord, _ sink: inout some TraceSink & ~Copyable
  ) {
    var frame = frame
    if frame.channel == .leSignaling { bearers.learn(frame, payload) } else { frame.bearer = bearers.bearer(of: frame) }
    sink.frame(frame, payload, of: record)
    guard frame.bearer != nil, let (octets, length) = bearers.join(frame, payload) else { return }
    frame.length = length
    frame.isWhole = octets.count == length
    sink.enhancedPDU(frame, octets.span, of: record)
  }

  /// A packet that cannot be a part of a frame: what it continued does not end.
  private mutating func lose(_ record: CaptureRecord, _ handle: UInt16, _ sink: inout some TraceSink & ~Copyable) {
    assemblies[key(record, handle, .fromHost)] = nil
    assemblies[key(record, handle, .fromController)] = nil
    bearers.lose(record.adapter, UInt32(handle))
    sink.lost(ConnectionHandle(rawValue: handle), of: record)
  }
  /// A link that begins or ends has no incomplete frame.
  private mutating func forget(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard bytes.count >= 7 else { return }
    let at: Int
    switch (bytes[1], bytes[3]) {
    case (0x05, _): at = 4  // Disconnection Complete: status, handle
    case (0x3E, 0x01), (0x3E, 0x0A): at = 5  // LE Connection Complete: subevent, status, handle
    default: return
    }
    let handle = (UInt16(bytes[at]) | UInt16(bytes[at + 1]) << 8) & 0x0FFF
    assemblies[key(record, handle, .fromHost)] = nil
    assemblies[key(record, handle, .fromController)] = nil
    bearers.forget(record.adapter, UInt32(handle))
  }
}
