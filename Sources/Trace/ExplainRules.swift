import BindruneATT
import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneWire

// The marks of an explanation are those of `Checker`: there is one list of rules.

extension CheckFinding {
  /// The rule's id, what breaks it and what it allows: `att.error-code: …; allowed: …  (Vol 3, Part F, §3.4.1.1)`.
  public var sentence: String { "\(rule.id): \(breach)" }
  var breach: String { "\(seen); allowed: \(allowed)  (\(rule.section))".printable() }
}

extension Explanation {
  /// Marks the rules that the octets break by themselves, whatever precedes them.
  public mutating func judge() { mark(findings()) }
  /// Marks a record of a trace by the findings that a ``Checker`` has for it. They decide: what the explanation does
  /// not understand, and no finding is about, becomes a note.
  public mutating func judge(by findings: [CheckFinding]) {
    if findings.isEmpty {
      for index in rows.indices where rows[index].kind == .problem {
        rows[index] = Row(kind: .entry, bit: rows[index].bit, width: 0, label: rows[index].text, text: "")
      }
    }
    mark(findings)
  }
  /// Notes that the recorder of a trace kept only a part of the packet.
  public mutating func noteCut(from originalCount: Int) {
    rows.append(
      Row(
        kind: .entry, bit: 8 * octets.count, width: 0,
        label: "The recorder kept \(octets.count) of \(octetCount(originalCount)).", text: ""))
  }
  private mutating func mark(_ findings: [CheckFinding]) {
    for finding in findings {
      rows.append(
        Row(kind: .problem, bit: 8 * octets.count, width: 0, label: finding.rule.id, text: finding.breach))
    }
  }

  /// What a checker finds that sees the octets and nothing else: what is open breaks no rule.
  private func findings() -> [CheckFinding] {
    func little(_ count: Int) -> [UInt8] { [UInt8(truncatingIfNeeded: count), UInt8(truncatingIfNeeded: count >> 8)] }
    func packet(_ data: [UInt8], isSent: Bool) -> [UInt8] {
      // The host begins frames with another flag than the controller. Vol 4, Part E, §5.4.2.
      [HCIPacketType.acl.rawValue] + little(isSent ? 0x0040 : 0x2040) + little(data.count) + data
    }
    func frame(_ channel: ChannelID, _ payload: [UInt8]) -> [UInt8] {
      little(payload.count) + little(Int(channel.rawValue)) + payload
    }
    let data: [UInt8]
    switch form {
    case .hci:
      guard octets.first == HCIPacketType.acl.rawValue, octets.count > ACLPacket.headerCount,
        octets[2] & 0x30 != 0x10
      else { return Self.check([octets]) }
      data = Array(octets[ACLPacket.headerCount...])
    case .ad:
      var rules = CheckAdvertisingData(), report = CheckReport(Set(CheckRule.allCases), CheckSelection())
      rules.receive(octets.indices, of: octets.span, isScanResponse: false, by: .host, device: nil, &report)
      return report.findings
    case .l2cap: data = octets
    case .att: data = frame(.attribute, octets)
    case .smp: data = frame(.securityManager, octets)
    case .signaling: data = frame(.leSignaling, octets)
    }
    // Longer data is no packet's: nothing of it is judged.
    guard data.count <= 0xFFFF else { return [] }
    let isSent = form != .hci || octets[2] & 0x30 == 0
    let judged = form == .hci ? octets : packet(data, isSent: isSent)
    guard data.count > 4, data[2] == ChannelID.attribute.rawValue, data[3] == 0,
      let request = Self.request(before: Array(data[4...]))
    else { return Self.check([judged]) }
    var asking = packet(frame(.attribute, request), isSent: !isSent)
    (asking[1], asking[2]) = (judged[1], asking[2] & 0xF0 | judged[2] & 0x0F)
    return Self.check([asking, judged])
  }
  /// A request to which the octets may be the answer: without one a checker knows too little of a response.
  private static func request(before response: [UInt8]) -> [UInt8]? {
    let isError = response[0] == ErrorResponse.opcode.rawValue && response.count == 5
    // The opcode of a response follows that of its request. Vol 3, Part F, §3.4.8.
    let opcode = ATTOpcode(rawValue: isError ? response[1] : response[0] &- 1), first: [UInt8]
    first = isError && response[2...3] != [0, 0] ? Array(response[2...3]) : [1, 0]
    let isExpected = isError ? opcode.kind == .request : opcode.response?.rawValue == response[0]
    guard opcode.kind == .request, isExpected else { return nil }
    let begin = [opcode.rawValue] + first
    switch opcode {
    case ExchangeMTURequest.opcode: return [opcode.rawValue, 23, 0]
    case FindInformationRequest.opcode: return begin + [0xFF, 0xFF]
    // No attribute has the type 0xFFFF: the checker has no opinion of its values.
    case ReadByTypeRequest.opcode: return begin + [0xFF, 0xFF, 0xFF, 0xFF]
    case FindByTypeValueRequest.opcode: return begin + [0xFF, 0xFF, 0x00, 0x28, 0xFF, 0xFF]
    case ReadByGroupTypeRequest.opcode: return begin + [0xFF, 0xFF, 0x00, 0x28]
    case ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode:
      return begin + (opcode == ReadBlobRequest.opcode ? [0, 0] : [])
    case ReadMultipleRequest.opcode, ReadMultipleVariableRequest.opcode: return begin + [2, 0]
    case ExecuteWriteRequest.opcode: return [opcode.rawValue, 1]
    // The answer repeats the request.
    case PrepareWriteRequest.opcode: return isError ? begin + [0, 0] : [opcode.rawValue] + response.dropFirst()
    default: return nil
    }
  }
  /// The findings about the last packet.
  private static func check(_ packets: [[UInt8]]) -> [CheckFinding] {
    var sink = DissectingSink(Checker())
    sink.sink.believesHandles = true
    for (index, packet) in packets.enumerated() {
      let isSent =
        switch packet.first.flatMap(HCIPacketType.init(rawValue:)) {
        case .event: false
        case .acl: packet.count < 3 || packet[2] & 0x30 == 0
        case .command, .synchronous, .iso, nil: true
        }
      let record = CaptureRecord(
        number: index + 1, direction: isSent ? .fromHost : .fromController, octets: Octets(0, packet.count))
      sink.receive(record, packet.span)
    }
    sink.pause()
    return sink.sink.findings.filter { $0.number == packets.count }
  }
}

/// Keeps one packet of a trace, the frame that it ends if its own octets are only the last of it, and what a
/// ``Checker`` finds about it:
///
///     var sink = DissectingSink(ExplainedRecord(17))
///     try file.read(into: &sink)
///     let explanation = sink.sink.explanation(as: nil)
public struct ExplainedRecord: TraceSink {
  private let number: Int
  private var octets: [UInt8]?
  private var originalCount = 0
  private var frame: [UInt8]?
  /// The records whose octets are explained.
  public private(set) var records: [Int] = []
  /// The records of each link's incomplete frame, by adapter, direction and handle.
  private var incomplete: [UInt64: [Int]] = [:]
  private var checker = Checker()
  private var findings: [CheckFinding] = []

  public init(_ number: Int) { self.number = number }

  /// Nil: the trace has no such packet, or it has no octets. `form`: of the record's octets, or of its frame's.
  public func explanation(as form: Explanation.Form?) -> Explanation? {
    guard let octets, !octets.isEmpty, octets.count <= 0xFFFF else { return nil }
    let shown = frame.flatMap { $0.count <= 0xFFFF ? $0 : nil }
    var explanation = Explanation(of: shown ?? octets, as: form ?? (shown == nil ? .hci : .l2cap))
    explanation.judge(by: findings)
    if octets.count < originalCount { explanation.noteCut(from: originalCount) }
    return explanation
  }

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    collect()
    checker.record(record, bytes)
    guard record.content == .packet, octets == nil else { return }
    if let header = ACLHeader(bytes) {
      let side: UInt64 = record.direction == .fromHost ? 0 : 1
      let link = UInt64(record.adapter) << 32 | side << 16 | UInt64(header.handle.rawValue)
      if header.packetBoundaryFlag != .continuing { incomplete[link] = [] }
      // A frame has at most 65,539 octets; a hostile trace has any number of continuing fragments.
      if incomplete[link, default: []].count < 4_096 { incomplete[link, default: []].append(record.number) }
      if record.number == number { records = incomplete[link] ?? [] }
    }
    guard record.number == number else { return }
    if records.isEmpty { records = [number] }
    octets = bytes.array
    originalCount = record.originalCount
  }
  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    checker.frame(frame, payload, of: record)
    guard record.number == number, records.count > 1 else { return }
    let header = [UInt16(truncatingIfNeeded: frame.length), frame.channel.rawValue]
    self.frame = header.flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] } + payload.array
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    checker.enhancedPDU(frame, pdu, of: record)
  }
  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    checker.violation(violation, handle, direction, of: record)
  }
  public mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) { checker.lost(handle, of: record) }
  /// Later packets may show that the record broke a rule, so the whole trace is read.
  public mutating func pause() {
    checker.pause()
    collect()
  }
  private mutating func collect() { findings += checker.takeFindings().filter { $0.number == number } }
}
