import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # LinkLayerState
/// **Overview**: finds the L2CAP frames in a capture from the air. Vol 6, Part B, §2.
///
/// **Function**: data PDUs of each access address and direction, joined as their LLIDs say. A repeated fragment, whose
/// acknowledgement was lost, counts once: its sequence number is that of the one before. A repeated whole frame is
/// passed on again, as it was on the air. From the start of encryption on, nothing of the connection is readable.
///
/// **Phases** of a connection: plain → encrypted; plain again when a new connection uses its access address.
struct LinkLayerState {
  /// Connections of one capture; further ones are not followed.
  static var mostConnections: Int { 1_024 }
  private struct Side {
    var assembly: Dissector.Assembly?
    /// Sequence number and octets of the last data PDU.
    var last: (sequence: Bool, count: Int, sum: UInt64)?
  }
  private struct Connection {
    var isEncrypted = false
    /// By ``LinkLayerDirection``: unknown, Central, Peripheral.
    var sides = (Side(), Side(), Side())
  }
  private var connections: [UInt32: Connection] = [:]
  private(set) var encryptedCount = 0
  /// The last control PDU in the clear. Vol 6, Part B, §2.4.2.6.
  private static var startEncryptionRequest: UInt8 { 0x05 }

  mutating func receive(
    _ record: CaptureRecord, _ direction: LinkLayerDirection, _ bytes: Span<UInt8>,
    _ sink: inout some TraceSink & ~Copyable
  ) {
    guard let header = LinkLayerHeader(bytes), let place = header.payload(in: bytes) else { return }
    if header.isAdvertising {
      if let connect = ConnectIndication(header, bytes) { connections[connect.aa] = nil }
      return
    }
    let address = header.accessAddress
    var connection = connections[address] ?? Connection()
    guard connections.count < Self.mostConnections || connections[address] != nil else { return }
    defer { connections[address] = connection }
    let payload = bytes.extracting(place)
    switch header.llid {
    case .control:
      // LL_START_ENC_REQ is the last PDU in the clear; LL_PAUSE_ENC_RSP leads back, encrypted or not. Vol 6, Part B,
      // §5.1.3.
      if !payload.isEmpty, payload[0] == Self.startEncryptionRequest { connection.isEncrypted = true }
    case .continuation, .start:
      if connection.isEncrypted, !payload.isEmpty { encryptedCount += 1 }
      if connection.isEncrypted || payload.isEmpty { return }
      switch direction {
      case .unknown: collect(&connection.sides.0, address, header, payload, record, &sink)
      case .central: collect(&connection.sides.1, address, header, payload, record, &sink)
      case .peripheral: collect(&connection.sides.2, address, header, payload, record, &sink)
      }
    default: break
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
