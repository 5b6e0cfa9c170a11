import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// # TraceLines
/// **Overview**: describes each packet of a trace in a line, by the declarations that encode and decode it.
///
/// **Function**: a packet's line is that of its highest layer. An ACL packet that ends no frame has a line of its own:
/// it is passed on when the next record, or `pause`, shows that there was none.
public struct TraceLines<Output: TraceLineSink>: TraceSink {
  public var output: Output
  public var filter: TraceFilter
  private var names: TraceNames
  /// The last ACL packet, until its frame comes.
  private var waiting: TraceLine?
  private var pending = PendingHandles()
  private var isDone = false
  /// Of the connections of a capture from the air that are encrypted.
  private var encryption: [UInt32: LinkLayerEncryption] = [:]
  /// The time of the first record.
  private var start: Int64?

  public init(_ output: Output, filter: TraceFilter = TraceFilter(), identities: [TraceNames.Identity] = []) {
    self.output = output
    self.filter = filter
    names = TraceNames(identities: identities)
  }

  public mutating func pause() {
    passOn()
    output.flush()
  }
  private mutating func passOn() {
    if let line = waiting.take() { show(line) }
  }
  public var wantsMore: Bool { !isDone }

  private func line(_ record: CaptureRecord, _ layer: TraceLayer, _ name: String, _ fields: String) -> TraceLine {
    var line = TraceLine(
      number: record.number, time: record.time,
      elapsed: record.time.subtractingReportingOverflow(start ?? record.time).partialValue,
      direction: record.direction, adapter: record.adapter, layer: layer,
      name: name, fields: fields)
    if record.missingBefore > 0 { line.problem = "records are missing before this one" }
    return line
  }
  /// A line for what a later packet shows about an earlier one; nil: the filter does not permit it.
  func line(of finding: CheckFinding) -> TraceLine? {
    var line = TraceLine(
      number: finding.number, time: finding.time,
      elapsed: finding.time.subtractingReportingOverflow(start ?? finding.time).partialValue, direction: nil,
      adapter: finding.adapter, layer: TraceLayer(finding.rule.area),
      connection: finding.connection.map { UInt32($0) }, name: "Record \(finding.number)", fields: "")
    line.problem = finding.sentence
    return filter.frames.contains(finding.number) && filter.permits(line) ? line : nil
  }
  private mutating func show(_ line: TraceLine) {
    if filter.permits(line) { output.receive(line) }
  }

  // MARK: Records

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    passOn()
    if start == nil { start = record.time }
    names.learn(record, bytes)
    // Only a frame's last fragment can be wanted before the first frame number: discovery is learnt from all.
    isDone = record.number > filter.frames.upperBound
    guard filter.frames.contains(record.number) else { return }
    switch record.content {
    case .packet: packet(record, bytes)
    case .linkLayer: linkLayer(record, bytes)
    case .monitor(let opcode):
      var line = line(record, .note, opcode.description, "")
      line.opcode = opcode.rawValue
      line.octets = bytes.array
      line.fields = opcode == .systemNote || opcode == .userLogging ? text(bytes, opcode) : hex(bytes)
      show(line)
    case .note(let type):
      var line = line(record, .note, "Note 0x" + hexDigits(UInt64(type), 2), text(bytes, .systemNote))
      line.octets = bytes.array
      show(line)
    }
  }

  /// Octets of a program's text: a system note is text and a zero.
  private func text(_ bytes: Span<UInt8>, _ opcode: MonitorOpcode) -> String {
    // Cut before it is decoded: more than 1,000 characters are not shown.
    if opcode == .userLogging, let line = UserLogging(bytes.extracting(first: 4_000)) {
      return "\(line.identifier): \(line.message)".printable(limit: 1_000)
    }
    let words = bytes.array.map { $0 == 0 ? UInt8(ascii: " ") : $0 }
    return String(decoding: words, as: UTF8.self).printable(limit: 1_000)
  }

  private mutating func packet(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    var line = line(record, .hci, "", "")
    line.octets = bytes.array
    if record.isCut { line.problem = "the recorder kept \(bytes.count) of \(record.originalCount) octets" }
    guard bytes.count > 0 else {
      line.name = record.isCut ? "Packet" : "Empty packet"
      return show(line)
    }
    switch HCIPacketType(rawValue: bytes[0]) {
    case .command: describeCommand(bytes, &line)
    case .event: describeEvent(bytes, &line)
    case .acl: return describeData(record, bytes, &line)
    case .synchronous: line.name = "Synchronous Data"
    case .iso: line.name = "ISO Data"
    case nil:
      line.name = "Unknown packet"
      line.problem = line.problem ?? "0x\(hexDigits(UInt64(bytes[0]), 2)) is not an HCI packet type"
    }
    if line.fields.isEmpty, line.name.hasSuffix("Data") { line.fields = "\(bytes.count) octets" }
    show(line)
  }
  private func describeCommand(_ bytes: Span<UInt8>, _ line: inout TraceLine) {
    if bytes.count >= 3 { line.opcode = bytes.little16(1) }
    do throws(WireError) {
      let command = try AnyCommand(bytes)
      line.name = "\(command.name)"
      line.fields = command.describe(in: bytes)
      if case .unknown(let opcode, _) = command { line.name = opcode.unknownName }
      // A command about a link names it first, or hardly ever.
      let label = "Connection_Handle: 0x"
      if line.fields.hasPrefix(label) {
        line.connection = UInt32(line.fields.dropFirst(label.count).prefix(4), radix: 16)
      }
    } catch {
      line.name = line.opcode.flatMap { AnyCommand(default: HCIOpcode(rawValue: $0)) }.map { "\($0.name)" } ?? "Command"
      line.problem = line.problem ?? error.description
    }
  }
  private func describeEvent(_ bytes: Span<UInt8>, _ line: inout TraceLine) {
    if bytes.count >= 2 { line.opcode = UInt16(bytes[1]) }
    do throws(WireError) {
      let event = try HCIEvent(bytes)
      line.name = "\(event.name)"
      line.fields = event.describe(in: bytes)
      line.connection = event.connectionHandle.map { UInt32($0.rawValue) }
      switch event {
      case .commandComplete(let complete): line.meaning = complete.commandOpcode.shownName
      case .commandStatus(let status): line.meaning = status.commandOpcode.shownName
      case .vendor: line.name = "Vendor event"
      case .unknown(let code, _): line.name = "Event 0x" + hexDigits(UInt64(code), 2)
      case .unknownLE(let subevent, _): line.name = "LE event 0x" + hexDigits(UInt64(subevent), 2)
      case .leAdvertisingReport(let report): line.meaning = devices(report.reports, bytes)
      case .leExtendedAdvertisingReport(let report): line.meaning = devices(report.reports, bytes)
      case .leConnectionComplete(let complete):
        line.meaning = names.name(of: complete.peerAddress, complete.peerAddressType)
      case .leEnhancedConnectionComplete(let complete):
        line.meaning = names.name(of: complete.peerAddress, complete.peerAddressType)
      default: break
      }
    } catch {
      line.name = bytes.count >= 2 ? "Event 0x" + hexDigits(UInt64(bytes[1]), 2) : "Event"
      line.problem = line.problem ?? error.description
    }
  }
  private func devices(_ reports: WireList<LEAdvertisingReport.Report>, _ bytes: Span<UInt8>) -> String? {
    var cursor = reports.cursor, found: [String] = []
    while let report = cursor.next(in: bytes) {
      if let name = name(report.address, report.addressType, report.data, bytes) { found.append(name) }
    }
    return found.isEmpty ? nil : found.joined(separator: ", ")
  }
  private func devices(_ reports: WireList<LEExtendedAdvertisingReport.Report>, _ bytes: Span<UInt8>) -> String? {
    var cursor = reports.cursor, found: [String] = []
    while let report = cursor.next(in: bytes) {
      if let name = name(report.address, report.addressType, report.data, bytes) { found.append(name) }
    }
    return found.isEmpty ? nil : found.joined(separator: ", ")
  }
  /// The name that the user's key gives to a device, or the one that it advertises, in quotes.
  private func name(
    _ address: DeviceAddress, _ type: AddressType, _ data: Octets, _ bytes: Span<UInt8>
  ) -> String? {
    if let name = names.name(of: address, type) { return name }
    var cursor = ADCursor(data)
    while let structure = cursor.next(in: bytes) {
      guard structure.type == .completeLocalName || structure.type == .shortenedLocalName else { continue }
      return "\"" + String(decoding: structure.data.array(in: bytes), as: UTF8.self).printable(limit: 40) + "\""
    }
    return nil
  }

  private mutating func describeData(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ line: inout TraceLine) {
    line.name = "ACL Data"
    do throws(WireError) {
      let acl = try ACLPacket(bytes)
      line.connection = UInt32(acl.handle.rawValue)
      let kind =
        switch acl.packetBoundaryFlag {
        case .continuing: "continuing fragment"
        case .firstNonFlushable, .first: "first fragment"
        case .complete: "complete"
        }
      line.fields = "Handle: \(acl.handle.text), \(kind), \(acl.data.count) octets"
    } catch {
      line.connection = DataHandle(bytes).map { UInt32($0.handle.rawValue) }
      line.problem = line.problem ?? error.description
    }
    waiting = line
  }

  private mutating func linkLayer(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard case .linkLayer(let reception) = record.content else { return }
    let address = bytes.count >= 4 ? UInt32(bytes.little16(0)) | UInt32(bytes.little16(2)) << 16 : nil
    var state = address.flatMap { encryption[$0] } ?? LinkLayerEncryption()
    let text = LinkLayerText(bytes, reception, record, &state)
    if let address, state.isOn ? encryption.count < LinkLayerState.mostConnections : encryption[address] != nil {
      encryption[address] = state.isOn ? state : nil
    }
    // A new connection may have the access address of an old one.
    if let header = LinkLayerHeader(bytes), !reception.isBroken, let connect = ConnectIndication(header, bytes) {
      encryption[connect.aa] = nil
    }
    var line = line(record, .ll, text.name, text.fields)
    line.octets = bytes.array
    line.connection = address
    line.direction = reception.side
    line.reception = reception
    line.problem = text.problem ?? line.problem
    if let (address, type, data) = text.advertiser { line.meaning = name(address, type, data, bytes) }
    waiting = line
  }

  // MARK: Frames

  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    guard waiting?.problem == nil else { return }
    waiting?.problem = violation.sentence
  }

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard var line = waiting.take() ?? before(record, frame, payload) else { return }
    line.direction = frame.direction ?? line.direction
    line.connection = frame.connection
    line.below.append(TraceLine.Layer(name: line.name, fields: line.fields))
    line.octets = payload.array
    let channel = frame.channel.name ?? "channel \(frame.channel.text)"
    line.below.append(
      TraceLine.Layer(name: "L2CAP", fields: "PDU Length: \(frame.length), Channel ID: \(frame.channel.text)"))
    line.fields = ""
    // Of one packet the line has said already how much of it was kept.
    if !frame.isWhole, !record.isCut { line.problem = "the recorder kept \(payload.count) of \(frame.length) octets" }
    switch frame.channel {
    case .attribute: attribute(frame, payload, &line)
    case .securityManager: security(payload, &line)
    case .leSignaling, .classicSignaling: signal(frame, payload, &line)
    default:
      line.layer = .l2cap
      line.name = channel
      line.fields = "\(frame.length) octets"
      // A PDU may end with it.
      if frame.bearer != nil, record.number >= filter.frames.lowerBound {
        waiting = line
        return
      }
    }
    if record.number >= filter.frames.lowerBound { show(line) }
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    guard var line = waiting.take() else {
      var unseen = line(record, .att, "", "")
      return attribute(frame, pdu, &unseen)
    }
    line.octets = pdu.array
    line.below.append(TraceLine.Layer(name: "SDU", fields: "L2CAP SDU Length: \(frame.length)"))
    line.fields = ""
    line.bearer = frame.bearer?.rawValue
    if !frame.isWhole, line.problem == nil {
      line.problem = "the recorder kept \(pdu.count) of \(frame.length) octets"
    }
    attribute(frame, pdu, &line)
    show(line)
  }
  /// Before the first record that is shown, a frame is only learnt from.
  private mutating func before(_ record: CaptureRecord, _ frame: TraceFrame, _ payload: Span<UInt8>) -> TraceLine? {
    var unseen = line(record, .att, "", "")
    if frame.channel == .attribute { attribute(frame, payload, &unseen) }
    return nil
  }

  private mutating func attribute(_ frame: TraceFrame, _ payload: Span<UInt8>, _ line: inout TraceLine) {
    line.layer = .att
    guard payload.count > 0 else {
      line.name = "Attribute Protocol"
      // Of a PDU that its recorder cut before the opcode nothing is known.
      line.problem = line.problem ?? "an empty PDU"
      return
    }
    let opcode = ATTOpcode(rawValue: payload[0])
    line.opcode = UInt16(opcode.rawValue)
    line.handle = pending.handle(frame, payload)
    line.name = opcode.name.map { "\($0)" } ?? opcode.description
    do throws(WireError) {
      let pdu = try ATTPDU(payload)
      line.fields = pdu.describe(in: payload)
      names.learn(frame, pdu, in: payload)
    } catch { line.problem = line.problem ?? error.description }
    if let handle = line.handle {
      let uuid = names.uuid(of: AttributeHandle(rawValue: handle), in: frame, opcode: opcode)
      line.meaning = uuid.map { $0.assignedName ?? "\($0)" }
    }
  }
  private func security(_ payload: Span<UInt8>, _ line: inout TraceLine) {
    line.layer = .smp
    line.name = "Security Manager"
    if payload.count > 0 { line.opcode = UInt16(payload[0]) }
    do throws(WireError) {
      let pdu = try SMPPDU(payload)
      line.name = "\(pdu.name)"
      line.fields = pdu.describe(in: payload)
    } catch { line.problem = line.problem ?? error.description }
  }
  private func signal(_ frame: TraceFrame, _ payload: Span<UInt8>, _ line: inout TraceLine) {
    line.layer = .sig
    if payload.count > 0 { line.opcode = UInt16(payload[0]) }
    do throws(WireError) {
      let header = try WireDecoder.decode(SignalHeader.self, payload, to: min(payload.count, SignalHeader.count))
      line.name = header.code.name ?? "Signaling command"
      line.fields = "Code: \(header.code.text), Identifier: \(header.identifier), Length: \(header.length)"
      let end = SignalHeader.count + Int(header.length)
      guard end <= payload.count else {
        throw .truncated("Length", needed: Int(header.length), available: payload.count - SignalHeader.count)
      }
      if end < payload.count, frame.channel == .leSignaling { throw .trailing("Length", payload.count - end) }
      let more = try header.code.describe(payload, to: end)
      if !more.isEmpty { line.fields += ", " + more }
    } catch {
      if line.name.isEmpty || line.name == "ACL Data" { line.name = "Signaling command" }
      line.problem = line.problem ?? error.description
    }
  }
}

extension TraceLayer {
  /// The layer whose packets a rule is about.
  fileprivate init(_ area: CheckRule.Area) {
    switch area {
    case .hci, .ad: self = .hci
    case .l2cap: self = .l2cap
    case .att, .gatt: self = .att
    case .smp: self = .smp
    }
  }
}

/// The attribute handle that a PDU is about: its own, or that of the request or indication that it answers.
struct PendingHandles: Sendable {
  private struct Key: Hashable {
    var adapter: UInt16, connection: UInt32, bearer: ChannelID?, isFromHost: Bool, isIndication: Bool
  }
  private var handles: [Key: UInt16] = [:]
  /// Bearers whose requests are remembered.
  private static var most: Int { 16_384 }

  mutating func handle(_ frame: TraceFrame, _ payload: Span<UInt8>) -> UInt16? {
    let opcode = ATTOpcode(rawValue: payload[0])
    switch opcode {
    case ErrorResponse.opcode:
      _ = take(frame, isIndication: false)
      return payload.count >= 4 ? payload.little16(2) : nil
    case FindInformationRequest.opcode, FindByTypeValueRequest.opcode, ReadByTypeRequest.opcode,
      ReadByGroupTypeRequest.opcode:
      keep(frame, nil, isIndication: false)
      return payload.count >= 3 ? payload.little16(1) : nil
    case ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode, PrepareWriteRequest.opcode,
      HandleValueIndication.opcode:
      let handle = payload.count >= 3 ? payload.little16(1) : nil
      keep(frame, handle, isIndication: opcode.kind == .indication)
      return handle
    case PrepareWriteResponse.opcode, HandleValueNotification.opcode, WriteCommand.opcode, SignedWriteCommand.opcode:
      return payload.count >= 3 ? payload.little16(1) : nil
    case ExchangeMTURequest.opcode, ReadMultipleRequest.opcode, ExecuteWriteRequest.opcode,
      ReadMultipleVariableRequest.opcode:
      keep(frame, nil, isIndication: false)
      return nil
    case ReadResponse.opcode, ReadBlobResponse.opcode, WriteResponse.opcode: return take(frame, isIndication: false)
    case HandleValueConfirmation.opcode: return take(frame, isIndication: true)
    default: return nil
    }
  }
  private func key(_ frame: TraceFrame, isFromHost: Bool, isIndication: Bool) -> Key {
    Key(
      adapter: frame.adapter, connection: frame.connection, bearer: frame.bearer, isFromHost: isFromHost,
      isIndication: isIndication)
  }
  private mutating func keep(_ frame: TraceFrame, _ handle: UInt16?, isIndication: Bool) {
    let key = key(frame, isFromHost: frame.direction == .fromHost, isIndication: isIndication)
    if handles.count < Self.most || handles[key] != nil { handles[key] = handle }
  }
  private mutating func take(_ frame: TraceFrame, isIndication: Bool) -> UInt16? {
    // The other side has asked; a capture without directions has one side.
    handles.removeValue(forKey: key(frame, isFromHost: frame.direction == .fromController, isIndication: isIndication))
  }
}
