import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// One record as the page shows it.
struct ReportRow {
  /// Microseconds since 1970.
  var time: Int64
  /// Direction, kind and layer; see ``ReportRow/flags(_:_:_:)``.
  var flags = 0
  var link = -1
  var adapter: UInt16
  var shape = 0
  var name = 0
  var meaning = 0
  var problem = 0
  var handle = 0
  /// Records back to the one that this one answers; 0: none.
  var answers = 0
  var count = 0
  /// Where a joined frame begins in the octets; 0: there is none.
  var split = 0

  /// 2 bits direction (0 not known, 1 from the host, 2 to it), 3 bits kind (0 note, 1 … 5 HCI packet types, 6 the
  /// air, 7 other), 3 bits layer, in the order of ``TraceLayer``.
  static func flags(_ direction: HCIDirection?, _ kind: Int, _ layer: TraceLayer) -> Int {
    let side = direction.map { $0 == .fromHost ? 1 : 2 } ?? 0
    return side | kind << 2 | (TraceLayer.allCases.firstIndex(of: layer) ?? 0) << 5
  }
}

/// Keeps the last line of ``TraceLines``.
struct ReportLine: TraceLineSink {
  var lines: [TraceLine] = []
  mutating func receive(_ line: TraceLine) { lines.append(line) }
  mutating func flush() {}
}

/// # ReportSink
/// **Overview**: collects what a page shows of a trace, in one pass.
///
/// **Function**: a record waits until the next one, because its frame is known only then. Records before the first one
/// that is shown are learnt from. Memory is bounded by the limits of ``ReportCollector``.
struct ReportSink: TraceSink {
  let frames: ClosedRange<Int>
  private(set) var rows: [ReportRow] = []
  private(set) var octets: [UInt8] = []
  private(set) var strings = ReportStrings()
  private(set) var shapes = ReportShapes()
  private(set) var links = ReportLinks()
  private(set) var attributes = ReportAttributes()
  private(set) var pairings = ReportPairings()
  private var judges = PairedSink(Checker(), TraceStory())
  var checker: Checker { judges.first }
  var story: TraceStory { judges.second }
  private var lines: TraceLines<ReportLine>
  private var names: TraceNames
  private var waiting: Waiting?
  /// Where the last row names a call of our host, which causes the next packet.
  private var callPlace: Int?
  private struct Waiting {
    var record: CaptureRecord
    var bytes: [UInt8]
    var row: ReportRow
    var frame: (TraceFrame, [UInt8])?
  }

  init(_ frames: ClosedRange<Int>, _ identities: [TraceNames.Identity]) {
    self.frames = frames
    lines = TraceLines(ReportLine(), identities: identities)
    names = TraceNames(identities: identities)
  }

  mutating func pause() {
    finish()
    lines.pause()
    describe()
    judges.pause()
  }
  mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) { judges.lost(handle, of: record) }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    lines.violation(violation, handle, direction, of: record)
    judges.violation(violation, handle, direction, of: record)
  }

  // MARK: Records

  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    finish()
    lines.record(record, bytes)
    judges.record(record, bytes)
    names.learn(record, bytes)
    var row = ReportRow(time: record.time / 1_000, adapter: record.adapter)
    follow(record, bytes, &row)
    waiting = Waiting(record: record, bytes: bytes.array, row: row)
  }

  /// Follows connections, and finds what the record answers.
  private mutating func follow(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ row: inout ReportRow) {
    guard record.content == .packet, bytes.count > 0 else { return }
    let number = record.number
    switch HCIPacketType(rawValue: bytes[0]) {
    case .command where bytes.count >= 3:
      // A command that is cut has its opcode too.
      links.command(record.adapter, UInt16(bytes[1]) | UInt16(bytes[2]) << 8, number)
      if case .leEnableEncryption(let command)? = try? AnyCommand(bytes),
        let link = links.known(record.adapter, command.connectionHandle)
      {
        pairings.asked(link, number)
      }
    case .event:
      do throws(WireError) {
        let event = try HCIEvent(bytes)
        links.receive(event, record.adapter, number, bytes, names)
        switch event {
        case .commandComplete(let complete):
          answer(links.commandAnswered(record.adapter, complete.commandOpcode.rawValue), number, &row)
          if complete.commandOpcode == Reset.opcode { links.reset(record.adapter, number) }
          links.buffers(complete, record.adapter, bytes)
          links.strength(complete, record.adapter, number, bytes)
        case .commandStatus(let status):
          answer(links.commandAnswered(record.adapter, status.commandOpcode.rawValue), number, &row)
        case .encryptionChange(let change):
          encrypted(change.connectionHandle, change.status, change.encryptionEnabled, record)
        case .encryptionChangeV2(let change):
          encrypted(change.connectionHandle, change.status, change.encryptionEnabled, record)
        default: break
        }
      } catch {}
    default: break
    }
  }
  private func answer(_ request: Int?, _ number: Int, _ row: inout ReportRow) {
    if let request, frames.contains(request) { row.answers = number - request }
  }
  private mutating func encrypted(
    _ handle: ConnectionHandle, _ status: HCIStatus, _ isEnabled: UInt8, _ record: CaptureRecord
  ) {
    guard let link = links.known(record.adapter, handle) else { return }
    let isOn = status == .success && isEnabled != 0
    pairings.encrypted(
      link, record.number, status == .success ? (isOn ? "on" : "off") : "not changed: \(status.text)", isOn: isOn)
  }

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    lines.frame(frame, payload, of: record)
    judges.frame(frame, payload, of: record)
    let isFromAir = record.content != .packet
    guard var waiting,
      let link = links.link(frame.adapter, frame.connection, at: record.number, isFromAir: isFromAir, opens: true)
    else { return }
    waiting.frame = (frame, payload.array)
    waiting.row.link = link
    let offset = Self.isInside(frame, payload.count, waiting.bytes, isFromAir) ? nil : waiting.bytes.count
    let inside = isFromAir ? 6 : ACLPacket.headerCount
    waiting.row.split = offset ?? 0
    let start = (offset ?? inside) + L2CAPFrame.headerCount
    if frame.channel == .attribute, payload.count > 0 {
      attribute(frame, payload, link, record.number, offset: start, &waiting.row)
    } else if frame.channel == .securityManager {
      do throws(WireError) {
        pairings.receive(
          try SMPPDU(payload), payload, link: link, record.number, frame.direction, links.list[link].role)
      } catch {}
    } else {
      links.channel(link, frame, payload, record)
    }
    self.waiting = waiting
  }
  mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    lines.enhancedPDU(frame, pdu, of: record)
    judges.enhancedPDU(frame, pdu, of: record)
    guard var waiting, waiting.row.link >= 0, !pdu.isEmpty else { return }
    // A PDU in several K-frames stands nowhere in one piece.
    let isInOne = waiting.frame?.1.count == CreditFrame.lengthCount + pdu.count
    let inside = record.content != .packet ? 6 : ACLPacket.headerCount
    let start = waiting.row.split > 0 ? waiting.row.split : inside
    attribute(
      frame, pdu, waiting.row.link, record.number,
      offset: isInOne ? start + L2CAPFrame.headerCount + CreditFrame.lengthCount : nil, &waiting.row)
    self.waiting = waiting
  }
  /// `offset`: of the PDU in the row's octets.
  private mutating func attribute(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ link: Int, _ number: Int, offset: Int?, _ row: inout ReportRow
  ) {
    let opcode = ATTOpcode(rawValue: payload[0])
    answer(links.answered(frame, opcode, number), number, &row)
    do throws(WireError) {
      let pdu = try ATTPDU(payload)
      names.learn(frame, pdu, in: payload)
      attributes.learn(
        frame, pdu, in: payload, link: link, peer: links.list[link].peer, record: number,
        offset: frames.contains(number) ? offset : nil)
      if frame.channel == .attribute { mtu(pdu, link, number) }
    } catch {}
  }
  private mutating func mtu(_ pdu: ATTPDU, _ link: Int, _ record: Int) {
    switch pdu {
    case .exchangeMTURequest(let request):
      links.change(link, record, "ATT_MTU", "the client can receive \(request.clientRxMTU) octets")
    case .exchangeMTUResponse(let response):
      links.change(link, record, "ATT_MTU", "the server can receive \(response.serverRxMTU) octets")
    default: break
    }
  }
  /// True if the record itself holds the whole frame.
  private static func isInside(_ frame: TraceFrame, _ count: Int, _ bytes: [UInt8], _ isFromAir: Bool) -> Bool {
    let header = isFromAir ? 6 : ACLPacket.headerCount
    guard bytes.count >= header + L2CAPFrame.headerCount + count else { return false }
    let length = Int(bytes[header]) | Int(bytes[header + 1]) << 8
    let channel = UInt16(bytes[header + 2]) | UInt16(bytes[header + 3]) << 8
    let isFirst = isFromAir ? bytes[4] & 3 == 2 : bytes[2] >> 4 & 3 != 1
    return isFirst && length == frame.length && channel == frame.channel.rawValue
  }

  // MARK: Rows

  /// Explains the record that waited, and adds it.
  private mutating func finish() {
    guard var waiting = waiting.take(), frames.contains(waiting.record.number) else { return }
    var rows: [Int] = []
    let record = waiting.record
    switch record.content {
    case .packet: explainPacket(waiting, &rows)
    case .linkLayer: explainAir(waiting, &rows)
    case .monitor, .note:
      ReportShapes.add(.field, bit: 0, width: 8 * waiting.bytes.count, "Data", "", to: &rows, &strings)
    }
    if waiting.row.split > 0, let (frame, payload) = waiting.frame {
      let joined = Self.header(frame) + payload
      ReportShapes.add(
        Explanation(of: Array(joined.prefix(0xFFFF)), as: .l2cap), at: waiting.bytes.count, to: &rows, &strings)
      waiting.bytes += joined
    }
    waiting.row.shape = shapes.place(rows)
    waiting.row.count = waiting.bytes.count
    self.rows.append(waiting.row)
    octets += waiting.bytes
    describe()
  }
  private static func header(_ frame: TraceFrame) -> [UInt8] {
    let length = UInt16(truncatingIfNeeded: frame.length), channel = frame.channel.rawValue
    return [length, channel].flatMap { [UInt8(truncatingIfNeeded: $0), UInt8($0 >> 8)] }
  }
  private mutating func explainPacket(_ waiting: Waiting, _ rows: inout [Int]) {
    ReportShapes.add(Explanation(of: Array(waiting.bytes.prefix(0xFFFF)), as: .hci), at: 0, to: &rows, &strings)
  }
  /// A packet from the air: access address, header, length. Vol 6, Part B, §2.1.
  private mutating func explainAir(_ waiting: Waiting, _ rows: inout [Int]) {
    let bytes = waiting.bytes
    ReportShapes.add(.layer, bit: 0, width: 0, "Link-layer packet", "Vol 6, Part B, §2.1", to: &rows, &strings)
    guard bytes.count >= 6 else {
      return ReportShapes.add(.wrong, bit: 0, width: 8 * bytes.count, "", "not understood", to: &rows, &strings)
    }
    let address = (0..<4).reduce(UInt64(0)) { $0 | UInt64(bytes[$1]) << UInt64(8 * $1) }
    ReportShapes.add(.field, bit: 0, width: 32, "Access Address", "0x" + hexDigits(address, 8), to: &rows, &strings)
    ReportShapes.add(
      .field, bit: 32, width: 8, "Header", "0x" + hexDigits(UInt64(bytes[4]), 2), to: &rows, &strings)
    let end = min(6 + Int(bytes[5]), bytes.count)
    ReportShapes.add(.field, bit: 40, width: 8, "Length", octetCount(Int(bytes[5])), to: &rows, &strings)
    if waiting.frame != nil, waiting.row.split == 0 {
      ReportShapes.add(Explanation(of: Array(bytes[6..<end]), as: .l2cap), at: 6, to: &rows, &strings)
    } else if end > 6 {
      ReportShapes.add(.field, bit: 48, width: 8 * (end - 6), "Payload", octetCount(end - 6), to: &rows, &strings)
    }
    if end < bytes.count {
      ReportShapes.add(
        .field, bit: 8 * end, width: 8 * (bytes.count - end), "MIC, CRC", octetCount(bytes.count - end), to: &rows,
        &strings)
    }
  }

  /// Takes over the lines that have come: names, meanings, problems.
  private mutating func describe() {
    for line in lines.output.lines where frames.contains(line.number) {
      let place = line.number - frames.lowerBound
      guard rows.indices.contains(place) else { continue }
      let kind: Int
      switch line.layer {
      case .note: kind = 0
      case .ll: kind = 6
      default:
        let first = rows[place].count > 0 ? octets[octets.count - rows[place].count] : 0
        kind = isLast(place) && (1...5).contains(first) ? Int(first) : 7
      }
      var flags = ReportRow.flags(line.direction, kind, line.layer)
      if rows[place].link >= 0, links.list[rows[place].link].isFromAir {
        flags = ReportRow.flags(line.direction, 6, line.layer)
      }
      rows[place].flags = flags
      rows[place].name = strings.place(line.layer == .note ? "\(line.name) \(line.fields)" : line.name)
      rows[place].meaning = line.meaning.map { strings.place($0) } ?? 0
      rows[place].problem = line.problem.map { strings.place($0) } ?? 0
      rows[place].handle = line.handle.map { Int($0) } ?? 0
      if rows[place].link < 0, let handle = line.connection {
        let opens = line.name == "ACL Data"
        rows[place].link =
          links.link(line.adapter, handle, at: line.number, isFromAir: line.layer == .ll, opens: opens) ?? -1
      }
      // The call stands in the connection of its packet.
      if let callPlace, line.direction == .fromHost { rows[callPlace].link = rows[place].link }
      let isCall = line.opcode == MonitorOpcode.userLogging.rawValue && line.layer == .note
      callPlace = isCall && line.fields.hasPrefix("bindrune: ") ? place : nil
    }
    lines.output.lines.removeAll(keepingCapacity: true)
  }
  private func isLast(_ place: Int) -> Bool { place == rows.count - 1 }
}

extension Span<UInt8> {
  var array: [UInt8] { unsafe withUnsafeBufferPointer { unsafe Array($0) } }
}
