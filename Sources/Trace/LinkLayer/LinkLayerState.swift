import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # LinkLayerState
/// **Overview**: finds the L2CAP frames in a capture from the air. Vol 6, Part B, §2.
///
/// **Function**: data PDUs of each access address and direction, joined as their LLIDs say. A repeated fragment, whose
/// acknowledgement was lost, counts once: its sequence number is that of the one before. A repeated whole frame is
/// passed on again, as it was on the air. A packet whose CRC or MIC is wrong changes nothing: its octets are not those
/// that were sent.
///
/// From the start of encryption on, a connection is readable if the sniffer has decrypted it. Some captures have a flag
/// for that. Where there is none, lengths tell: the plain start of a frame has L2CAP's own length and a channel that LE
/// has, which an encrypted one has by chance once in 30 million.
///
/// **Phases** of a connection: plain → encrypted → plain again after a pause, or when a new connection uses its access
/// address.
struct LinkLayerState {
  /// Connections of one capture; further ones are not followed.
  static var mostConnections: Int { 1_024 }
  private struct Side {
    var assembly: Dissector.Assembly?
    /// Sequence number and octets of the last data PDU.
    var last: (sequence: Bool, count: Int, sum: UInt64)?
  }
  private struct Connection {
    var encryption = LinkLayerEncryption()
    /// The sniffer has left the MIC behind what it decrypted.
    var keepsMIC = false
    /// By ``LinkLayerDirection``: unknown, Central, Peripheral.
    var sides = (Side(), Side(), Side())
  }
  private var connections: [UInt32: Connection] = [:]
  private(set) var encryptedCount = 0

  mutating func receive(
    _ record: CaptureRecord, _ reception: LinkLayerReception, _ bytes: Span<UInt8>,
    _ sink: inout some TraceSink & ~Copyable
  ) {
    guard !reception.isBroken, let header = LinkLayerHeader(bytes), let place = header.payload(in: bytes) else {
      return
    }
    if header.isAdvertising {
      if let connect = ConnectIndication(header, bytes) { connections[connect.aa] = nil }
      return
    }
    if reception.isOutsideConnections { return }
    let address = header.accessAddress
    var connection = connections[address] ?? Connection()
    guard connections.count < Self.mostConnections || connections[address] != nil else { return }
    defer { connections[address] = connection }
    var payload = bytes.extracting(place)
    let isReadable = connection.encryption.receive(header, reception, payload)
    guard header.llid == .continuation || header.llid == .start, !payload.isEmpty else { return }
    guard isReadable else {
      encryptedCount += 1
      return
    }
    if connection.encryption.isOn {
      if header.llid == .start, payload.count >= 8, payload.count == 8 + Int(payload.little16(0)) {
        connection.keepsMIC = true
      }
      if connection.keepsMIC, payload.count > 4 { payload = payload.extracting(droppingLast: 4) }
    }
    switch reception.direction {
    case .unknown: collect(&connection.sides.0, address, header, payload, record, &sink)
    case .central: collect(&connection.sides.1, address, header, payload, record, &sink)
    case .peripheral: collect(&connection.sides.2, address, header, payload, record, &sink)
    }
  }

  private func collect(
    _ side: inout Side, _ address: UInt32, _ header: LinkLayerHeader, _ payload: Span<UInt8>, _ record: CaptureRecord,
    _ sink: inout some TraceSink & ~Copyable
  ) {
    let isStart = header.llid == .start, isRepeated: Bool
    let sum = payload.indices.reduce(into: UInt64(0)) { $0 = $0 &* 31 &+ UInt64(payload[$1]) }
    let current = (sequence: header.sn, count: payload.count, sum: sum)
    isRepeated = side.last.map { $0 == current } ?? false
    side.last = current
    // A whole frame, also one of the other direction where the capture does not tell them apart.
    if isStart, payload.count >= L2CAPFrame.headerCount,
      payload.count == L2CAPFrame.headerCount + Int(payload.little16(0))
    {
      let assembly = Dissector.Assembly(octets: payload.indices.map { payload[$0] }, received: payload.count)
      return pass(assembly, address, record, &sink)
    }
    guard var assembly = isStart ? Dissector.Assembly(octets: [], received: 0) : side.assembly else { return }
    if isRepeated, !isStart { return }
    side.assembly = nil
    unsafe payload.withUnsafeBufferPointer { unsafe assembly.octets.append(contentsOf: $0) }
    assembly.received += payload.count
    guard let expected = assembly.expected, assembly.received >= expected else {
      side.assembly = assembly
      return
    }
    if assembly.received == expected { pass(assembly, address, record, &sink) }
  }

  private func pass(
    _ assembly: Dissector.Assembly, _ address: UInt32, _ record: CaptureRecord, _ sink: inout some TraceSink & ~Copyable
  ) {
    let channel = ChannelID(rawValue: UInt16(assembly.octets[2]) | UInt16(assembly.octets[3]) << 8)
    // Without sides nobody knows whose numbers other channels have.
    let frame = TraceFrame(
      adapter: record.adapter, connection: address, direction: nil, channel: channel,
      length: assembly.received - L2CAPFrame.headerCount, isWhole: true)
    sink.frame(frame, assembly.octets.span.extracting(droppingFirst: L2CAPFrame.headerCount), of: record)
  }
}

/// Whether a connection's packets are encrypted, and whether the capture has them in the clear nevertheless.
struct LinkLayerEncryption {
  private(set) var isOn = false
  /// A packet was in the clear by its lengths: the sniffer has the key, though no flag says so.
  private var isInferred = false

  /// A data PDU in the order of the capture. True if its payload is plain text.
  mutating func receive(
    _ header: LinkLayerHeader, _ reception: LinkLayerReception, _ payload: Span<UInt8>
  ) -> Bool {
    guard header.llid == .control else {
      guard isOn, !reception.isDecrypted, !payload.isEmpty else { return true }
      guard header.llid == .start else { return isInferred }
      guard payload.count >= L2CAPFrame.headerCount, Self.isChannel(payload.little16(2)) else { return false }
      // The frame, or the frame and the MIC.
      let rest = payload.count - L2CAPFrame.headerCount - Int(payload.little16(0))
      if rest == 0 || rest == 4 { isInferred = true }
      return isInferred && (rest <= 0 || rest == 4)
    }
    guard !payload.isEmpty else { return true }
    switch (payload[0], payload.count) {
    // The last PDU in the clear: Vol 6, Part B, §5.1.3.1.
    case (LLStartEncReq.opcode, 1):
      isOn = true
      return true
    // Both are in the clear after a pause, and one octet or 23 long, which with a MIC they are not: §5.1.3.2.
    case (LLPauseEncRsp.opcode, 1) where !reception.isDecrypted, (LLEncReq.opcode, 23) where !reception.isDecrypted:
      isOn = false
      return true
    default: return !isOn || reception.isDecrypted || isInferred || Self.isWhole(payload)
    }
  }
  /// The fixed channels of LE, and those that its signaling opens. Vol 3, Part A, §2.1, Table 2.1, Table 2.3.
  private static func isChannel(_ number: UInt16) -> Bool {
    (0x0004...0x0006).contains(number) || (0x0020...0x007F).contains(number)
  }
  /// A control PDU in the clear has the length of its kind; an encrypted one has four octets more.
  private static func isWhole(_ payload: Span<UInt8>) -> Bool {
    (try? LinkLayerControls.describe(payload, payload.indices)) != nil
  }
}
