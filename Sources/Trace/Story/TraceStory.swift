import BindruneATT
import BindruneCapture
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire

/// # TraceStory
/// **Overview**: tells what happened on each connection of a trace, as a ``TraceSink``:
///
///     var story = DissectingSink(TraceStory())
///     try file.read(into: &story)
///     for link in story.sink.links { print(link.sentence, link.troubles.map(\.sentence)) }
///
/// **Function**: it explains, and judges nothing: a refusal or a lost peer breaks no rule. Like the checker it follows
/// connections on its own and knows only what the trace shows. A side is the host, whose trace it is, or the peer.
public struct TraceStory: TraceSink {
  /// Connections that are told; further ones are only counted.
  public static var mostLinks: Int { 256 }
  private static var mostAttributes: Int { 1_024 }

  /// Connections that have ended, and those that the trace ends before, in the order of their beginnings.
  public private(set) var links: [LinkStory] = []
  /// Connections beyond ``mostLinks``.
  public private(set) var untold = 0
  /// What went wrong on no connection: of a controller, or of an attempt to connect.
  public private(set) var troubles: [LinkStory.Trouble] = []

  private var states: [State] = []
  private var names = TraceNames()
  /// Connections of BR/EDR, which are not told.
  private var classic: Set<UInt32> = []

  public init() {}

  /// Of a connection that lasts.
  private struct State {
    var story: LinkStory
    /// Its place among ``links``.
    var place: Int
    var timeout: SupervisionTimeout?
    var time: Int64 = 0
    var isEncrypted = false
    /// Frames of the peer since the link was encrypted.
    var framesSinceEncryption: Int?
    var sides = [Side(), Side()]
    var request: PairingFeatures?, response: PairingFeatures?
    var pairingFailed = false, hasPaired = false

    /// ATT_MTU of the fixed channel, if it was exchanged.
    var mtu: Int? {
      guard let one = sides[0].offer, let other = sides[1].offer else { return nil }
      return max(23, min(one, other))
    }
    var hasMTU: Bool { mtu.map { $0 > 23 } ?? false }
  }
  /// Of the host as client, and of the peer.
  private struct Side {
    struct Waiting { var number: Int, time: Int64, text: String }
    /// By bearer; nil: the fixed channel.
    var requests: [ChannelID?: Waiting] = [:]
    /// Of this client's server.
    var indications: [ChannelID?: Waiting] = [:]
    var requestCount = 0, valueCount = 0
    /// Of a value of 2 octets that is written.
    var configured = false
    /// Values that notify or indicate, as the client has discovered them.
    var notifying: [(handle: UInt16, uuid: BluetoothUUID, number: Int)] = []
    var asksCharacteristics = false
    var offer: Int?
    /// The first value that fills the MTU.
    var full: (number: Int, count: Int)?
    /// Refusals: the words, the first record, how many.
    var refusals: [(text: String, number: Int, count: Int)] = []
    /// Service Changed that the client has not answered by a discovery.
    var changed: (number: Int, range: ClosedRange<UInt16>)?
  }

  /// Returns the connections that have ended, and forgets them, so that a trace without an end can be told.
  public mutating func takeEnded() -> [LinkStory] {
    guard links.count > states.count else { return [] }
    let open = states.map(\.place), ended = links.indices.filter { !open.contains($0) }.map { links[$0] }
    links = open.map { links[$0] }
    for index in states.indices { states[index].place = index }
    return ended
  }

  // MARK: TraceSink

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    names.learn(record, bytes)
    guard record.content == .packet, bytes.count > 3 else { return }
    switch HCIPacketType(rawValue: bytes[0]) {
    case .event:
      // Reports are most events of a scan, and tell nothing here.
      if bytes[1] == 0x3E, [0x02, 0x0D].contains(bytes[3]) { return }
      guard let event = try? HCIEvent(bytes) else { return }
      self.event(event, bytes, record)
    case .command:
      guard !states.isEmpty, let command = try? AnyCommand(bytes) else { return }
      self.command(command, record)
    default: break
    }
  }
  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard record.content == .packet, let direction = frame.direction, !payload.isEmpty else { return }
    switch frame.channel {
    case .attribute, .leSignaling, .securityManager: break
    default: return
    }
    guard let index = state(frame.adapter, frame.connection, record) else { return }
    states[index].story.lastRecord = record.number
    states[index].time = record.time
    if direction == .fromController { states[index].framesSinceEncryption? += 1 }
    guard frame.isWhole else { return }
    switch frame.channel {
    case .attribute: attribute(index, frame, direction, payload, record)
    case .securityManager: pairing(index, direction, payload, record)
    case .leSignaling: signal(index, direction, payload, record)
    default: break
    }
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    guard record.content == .packet, let direction = frame.direction, !pdu.isEmpty, frame.isWhole,
      let index = state(frame.adapter, frame.connection, record)
    else { return }
    attribute(index, frame, direction, pdu, record)
  }
  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {}
  /// The trace ends.
  public mutating func pause() {
    for state in states { links[state.place] = told(state, "the trace ends while it lasts", isEnd: false) }
  }

  // MARK: Links

  private static func key(_ adapter: UInt16, _ connection: UInt32) -> UInt32 { UInt32(adapter) << 16 | connection }

  private func open(_ adapter: UInt16, _ connection: UInt32) -> Int? {
    states.firstIndex { $0.story.connection == connection && $0.story.adapter == adapter }
  }
  /// The state of a connection; begins one whose beginning the trace does not show.
  private mutating func state(_ adapter: UInt16, _ connection: UInt32, _ record: CaptureRecord) -> Int? {
    if let index = open(adapter, connection) { return index }
    guard !classic.contains(Self.key(adapter, connection)) else { return nil }
    return begin(adapter, connection, "it is older than the trace", record)
  }
  private mutating func begin(
    _ adapter: UInt16, _ connection: UInt32, _ beginning: String, _ record: CaptureRecord
  ) -> Int? {
    guard links.count < Self.mostLinks else {
      untold += 1
      return nil
    }
    let story = LinkStory(
      adapter: adapter, connection: connection, firstRecord: record.number, lastRecord: record.number,
      beginning: beginning, deeds: "", ending: "")
    links.append(story)
    states.append(State(story: story, place: links.count - 1))
    return states.count - 1
  }
  private mutating func end(_ index: Int, _ ending: String, _ number: Int) {
    states[index].story.lastRecord = number
    links[states[index].place] = told(states[index], ending, isEnd: true)
    states.remove(at: index)
  }
  private mutating func trouble(_ number: Int, _ sentence: String) {
    guard troubles.count < LinkStory.mostTroubles, !troubles.contains(where: { $0.sentence == sentence }) else {
      return
    }
    troubles.append(LinkStory.Trouble(number: number, sentence: sentence))
  }

  // MARK: Events

  private mutating func event(_ event: HCIEvent, _ bytes: Span<UInt8>, _ record: CaptureRecord) {
    let number = record.number
    if let new = ReportedConnection(event, bytes) { return connected(new, record) }
    if let new = ClassicConnectionComplete(event, bytes) {
      if new.status == .success {
        classic.insert(Self.key(record.adapter, UInt32(new.connectionHandle.rawValue)))
      }
      return
    }
    switch event {
    case .disconnectionComplete(let event) where event.status == .success:
      let connection = UInt32(event.connectionHandle.rawValue)
      classic.remove(Self.key(record.adapter, connection))
      guard let index = open(record.adapter, connection) else { return }
      let state = states[index]
      let words = TroubleWords.trouble(
        event.reason, silence: state.timeout.map(Self.text), isJustEncrypted: (state.framesSinceEncryption ?? .max) <= 3
      )
      if let words { states[index].story.add(number, words) }
      end(index, TroubleWords.ending(event.reason), number)
    case .encryptionChange(let event):
      encryption(event.status, event.connectionHandle, event.encryptionEnabled != 0, record)
    case .encryptionChangeV2(let event):
      encryption(event.status, event.connectionHandle, event.encryptionEnabled != 0, record)
    case .encryptionKeyRefreshComplete(let event): encryption(event.status, event.connectionHandle, true, record)
    case .leConnectionUpdateComplete(let event):
      guard let index = open(record.adapter, UInt32(event.connectionHandle.rawValue)) else { return }
      if event.status == .success {
        states[index].timeout = event.supervisionTimeout
      } else {
        states[index].story.add(
          number, "the connection's parameters were not changed: \(TroubleWords.status(event.status))")
      }
    case .hardwareError(let event):
      let words = "the controller reported a hardware error (code 0x\(hexDigits(UInt64(event.hardwareCode), 2)))"
      lose(record, words)
    case .commandComplete(let event) where event.commandOpcode == Reset.opcode:
      lose(record, "the controller was reset")
    default: break
    }
  }
  private static func text(_ timeout: SupervisionTimeout) -> String {
    timeout.rawValue.isMultiple(of: 100) ? "\(timeout.rawValue / 100) s" : "\(Int(timeout.rawValue) * 10) ms"
  }
  /// Connections that a controller drops without a word.
  private mutating func lose(_ record: CaptureRecord, _ cause: String) {
    let open = states.indices.filter { states[$0].story.adapter == record.adapter }
    if open.isEmpty {
      if !cause.hasSuffix("reset") { trouble(record.number, cause) }
      return
    }
    for index in open.reversed() {
      states[index].story.add(record.number, cause + ": the connection is gone without an event")
      end(index, cause, record.number)
    }
  }
  private mutating func connected(_ new: ReportedConnection, _ record: CaptureRecord) {
    guard new.status == .success else {
      // What the host has cancelled, and the end of directed advertising, went as wanted.
      if new.status != .unknownConnectionIdentifier, new.status != .advertisingTimeout {
        trouble(record.number, "a connection to \(new.peer.text) failed: \(TroubleWords.status(new.status))")
      }
      return
    }
    let connection = UInt32(new.handle.rawValue)
    if let index = open(record.adapter, connection) { end(index, "the trace does not show its end", record.number) }
    let beginning = "our host is \(new.role.text) to \(new.peer.text)"
    guard let index = begin(record.adapter, connection, beginning, record) else { return }
    states[index].timeout = new.timeout
    states[index].time = record.time
  }
  private mutating func encryption(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ isOn: Bool, _ record: CaptureRecord
  ) {
    guard let index = open(record.adapter, UInt32(handle.rawValue)) else { return }
    guard status == .success else {
      return states[index].story.add(record.number, TroubleWords.encryption(status))
    }
    states[index].isEncrypted = isOn
    states[index].framesSinceEncryption = isOn ? 0 : nil
  }

  // MARK: Commands

  private mutating func command(_ command: AnyCommand, _ record: CaptureRecord) {
    switch command {
    case .leLongTermKeyRequestNegativeReply(let command):
      guard let index = open(record.adapter, UInt32(command.connectionHandle.rawValue)) else { return }
      states[index].story.add(
        record.number,
        "our host has no key for the bond that the peer uses: it has forgotten it; remove the bond on the peer, too")
    case .leRemoteConnectionParameterRequestNegativeReply(let command):
      guard let index = open(record.adapter, UInt32(command.connectionHandle.rawValue)) else { return }
      states[index].story.add(record.number, "our host refused the connection parameters that the peer asked for")
    case .leEnableEncryption(let command):
      guard let index = open(record.adapter, UInt32(command.connectionHandle.rawValue)) else { return }
      states[index].framesSinceEncryption = 0
    default: break
    }
  }

  // MARK: Signals

  private mutating func signal(
    _ index: Int, _ direction: HCIDirection, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    guard let signal = try? AnySignal(payload) else { return }
    let who = direction == .fromHost ? "our host" : "the peer"
    switch signal {
    case .connectionParameterUpdateResponse(let answer) where answer.result != 0:
      states[index].story.add(record.number, "\(who) refused the connection parameters that the other side asked for")
    case .leCreditBasedConnectionResponse(let answer) where answer.result != .success:
      states[index].story.add(record.number, "\(who) refused a channel: \(answer.result.text)")
    case .creditBasedConnectionResponse(let answer) where answer.result != .success && !answer.result.isPending:
      states[index].story.add(record.number, "\(who) refused channels: \(answer.result.text)")
    default: break
    }
  }

  // MARK: Pairing

  private mutating func pairing(
    _ index: Int, _ direction: HCIDirection, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    switch SMPCode(rawValue: payload[0]) {
    case .pairingRequest:
      states[index].request = try? WireDecoder.decode(PairingFeatures.self, payload, from: 1)
      states[index].response = nil
      states[index].hasPaired = true
    case .pairingResponse: states[index].response = try? WireDecoder.decode(PairingFeatures.self, payload, from: 1)
    case .pairingFailed where payload.count > 1:
      let reason = PairingFailure(rawValue: payload[1])
      var method: CheckPairing.Method?
      if let request = states[index].request, let response = states[index].response {
        method = CheckPairing.method(request, response)
      }
      states[index].story.add(
        record.number,
        "pairing failed, \(direction == .fromHost ? "our host" : "the peer") says "
          + TroubleWords.pairing(reason, method: method))
      states[index].pairingFailed = true
    default: break
    }
  }

  // MARK: Attributes

  private mutating func attribute(
    _ index: Int, _ frame: TraceFrame, _ direction: HCIDirection, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    let opcode = ATTOpcode(rawValue: payload[0])
    guard let pdu = try? ATTPDU(payload) else { return }
    names.learn(frame, pdu, in: payload)
    let sender = direction == .fromHost ? 0 : 1, other = 1 - sender, bearer = frame.bearer
    switch opcode.kind {
    case .request:
      states[index].sides[sender].requestCount += 1
      states[index].sides[sender].requests[bearer] = Side.Waiting(
        number: record.number, time: record.time, text: words(opcode, Self.handle(opcode, payload), frame))
      asked(index, sender, pdu, payload, record)
    case .response:
      let asked = states[index].sides[other].requests.removeValue(forKey: bearer)
      answered(index, other, pdu, asked, payload, record)
    case .command: asked(index, sender, pdu, payload, record)
    case .indication:
      states[index].sides[other].indications[bearer] = Side.Waiting(
        number: record.number, time: record.time, text: words(opcode, Self.handle(opcode, payload), frame))
      value(index, of: other, frame, payload.count - 3, record)
      serviceChanged(index, of: other, pdu, frame, payload, record)
    case .notification: value(index, of: other, frame, payload.count - 3, record)
    case .confirmation: states[index].sides[sender].indications[bearer] = nil
    case nil: break
    }
  }
  /// The attribute of a PDU that is about one.
  private static func handle(_ opcode: ATTOpcode, _ payload: Span<UInt8>) -> AttributeHandle? {
    switch opcode {
    case ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode, WriteCommand.opcode,
      SignedWriteCommand.opcode,
      PrepareWriteRequest.opcode, HandleValueNotification.opcode, HandleValueIndication.opcode:
      payload.count >= 3 ? AttributeHandle(rawValue: payload.little16(1)) : nil
    default: nil
    }
  }
  /// `ATT_READ_REQ of 0x0003 (2A37)`.
  private func words(_ opcode: ATTOpcode, _ handle: AttributeHandle?, _ frame: TraceFrame) -> String {
    let name = opcode.name.map { "\($0)" } ?? opcode.description
    guard let handle else { return name }
    let uuid = names.uuid(of: handle, in: frame, opcode: opcode)
    return "\(name) of \(code(handle.rawValue, 4))" + (uuid.map { " (\($0))" } ?? "")
  }
  /// A request or a command of a client.
  private mutating func asked(
    _ index: Int, _ client: Int, _ pdu: ATTPDU, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    var side = states[index].sides[client]
    defer { states[index].sides[client] = side }
    side.asksCharacteristics = false
    switch pdu {
    case .exchangeMTURequest(let request): side.offer = Int(request.clientRxMTU.wire)
    case .readByTypeRequest(let request):
      side.asksCharacteristics = request.attributeType == .characteristic
      if side.asksCharacteristics || request.attributeType == .databaseHash { side.changed = nil }
    case .readByGroupTypeRequest, .findInformationRequest, .findByTypeValueRequest: side.changed = nil
    case .writeRequest(let request) where request.attributeValue.count == 2: side.configured = true
    default: break
    }
    if let changed = side.changed, let handle = Self.handle(pdu.opcode, payload),
      changed.range.contains(handle.rawValue)
    {
      states[index].story.add(
        record.number,
        "the client ignored Service Changed (record \(changed.number)): it goes on using \(code(handle.rawValue, 4)) and"
          + " discovers nothing anew")
      side.changed = nil
    }
  }
  private mutating func answered(
    _ index: Int, _ client: Int, _ pdu: ATTPDU, _ asked: Side.Waiting?, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    switch pdu {
    case .exchangeMTUResponse(let response): states[index].sides[1 - client].offer = Int(response.serverRxMTU.wire)
    case .readByTypeResponse(let response) where states[index].sides[client].asksCharacteristics:
      var cursor = response.attributeDataList.cursor
      while let entry = cursor.next(in: payload) {
        let value = entry.attributeValue.range
        guard value.upperBound <= payload.count,
          let found = try? WireDecoder.decode(CharacteristicDeclaration.self, payload.extracting(value)),
          !found.characteristicProperties.isDisjoint(with: [.notify, .indicate]),
          // Every server has it, and a client may leave it alone.
          found.characteristicUUID != .serviceChanged,
          states[index].sides[client].notifying.count < Self.mostAttributes
        else { continue }
        states[index].sides[client].notifying.append(
          (found.characteristicValueHandle.rawValue, found.characteristicUUID, record.number))
      }
    case .errorResponse(let error):
      // Discovery ends with it.
      guard error.errorCode != .attributeNotFound, let asked else { return }
      refused(index, client, "\(asked.text) was refused: \(error.errorCode.description)", record.number)
    default: break
    }
  }
  private mutating func refused(_ index: Int, _ client: Int, _ text: String, _ number: Int) {
    if let place = states[index].sides[client].refusals.firstIndex(where: { $0.text == text }) {
      states[index].sides[client].refusals[place].count += 1
    } else if states[index].sides[client].refusals.count < LinkStory.mostTroubles {
      states[index].sides[client].refusals.append((text, number, 1))
    }
  }
  /// A value that a server sends without being asked.
  private mutating func value(_ index: Int, of client: Int, _ frame: TraceFrame, _ count: Int, _ record: CaptureRecord)
  {
    states[index].sides[client].valueCount += 1
    guard frame.bearer == nil, count == 20, !states[index].hasMTU else { return }
    let first = states[index].sides[client].full?.number ?? record.number
    states[index].sides[client].full = (first, (states[index].sides[client].full?.count ?? 0) + 1)
  }
  private mutating func serviceChanged(
    _ index: Int, of client: Int, _ pdu: ATTPDU, _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    guard case .handleValueIndication(let indication) = pdu, payload.count == 7,
      names.uuid(of: indication.attributeHandle, in: frame, opcode: HandleValueIndication.opcode) == .serviceChanged,
      let change = try? WireDecoder.decode(ServiceChanged.self, payload.extracting(droppingFirst: 3))
    else { return }
    let start = change.startOfAffectedAttributeHandleRange.rawValue
    let end = change.endOfAffectedAttributeHandleRange.rawValue
    if start <= end { states[index].sides[client].changed = (record.number, start...end) }
  }

  // MARK: The end

  private func told(_ state: State, _ ending: String, isEnd: Bool) -> LinkStory {
    var story = state.story
    story.ending = ending
    var deeds: [String] = []
    if let mtu = state.mtu { deeds.append("MTU \(mtu)") }
    if state.hasPaired { deeds.append(state.pairingFailed ? "tried to pair" : "paired") }
    if state.isEncrypted { deeds.append("encrypted") }
    func count(_ number: Int, _ one: String, _ more: String) {
      if number > 0 { deeds.append("\(number) \(number == 1 ? one : more)") }
    }
    count(state.sides[0].requestCount, "request of ours", "requests of ours")
    count(state.sides[1].requestCount, "request of the peer", "requests of the peer")
    count(state.sides[0].valueCount, "value received", "values received")
    count(state.sides[1].valueCount, "value sent", "values sent")
    story.deeds = deeds.joined(separator: ", ")
    for (client, side) in state.sides.enumerated() {
      let (us, them) = client == 0 ? ("our host", "the peer") : ("the peer", "our host")
      for refusal in side.refusals {
        story.add(refusal.number, refusal.text + (refusal.count > 1 ? ", \(refusal.count) times" : ""))
      }
      let wait: Int64 = 30_000_000_000
      for waiting in side.requests.values where isEnd || state.time &- waiting.time > wait {
        story.add(waiting.number, "\(waiting.text) was never answered by \(them)")
      }
      for waiting in side.indications.values where isEnd || state.time &- waiting.time > wait {
        story.add(waiting.number, "\(waiting.text) was never confirmed by \(us)")
      }
      // The next two explain why something is missing; that nothing is may be meant, too.
      if story.troubles.isEmpty, let full = side.full, !state.hasMTU {
        let values = full.count == 1 ? "a value fills" : "\(full.count) values fill"
        story.add(
          full.number,
          "\(values) all 20 octets that the MTU of 23 leaves, and nobody exchanged a greater one: what is longer is cut"
        )
      }
      if story.troubles.isEmpty, isEnd, !side.configured, side.valueCount == 0, !state.isEncrypted,
        let first = side.notifying.first
      {
        let others = side.notifying.count > 1 ? " and \(side.notifying.count - 1) more" : ""
        story.add(
          first.number,
          "\(us) has not subscribed: \(code(first.handle, 4)) (\(first.uuid))\(others) notifies, but no Client"
            + " Characteristic Configuration (2902) was written")
      }
    }
    return story
  }
}
