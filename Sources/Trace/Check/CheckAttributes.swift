import BindruneATT
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// # CheckAttributes
/// **Overview**: the bearers of the Attribute Protocol on a connection, and the attributes that both devices show on
/// any of them, for ``Checker``. Vol 3, Part G, §5.3.
struct CheckAttributes {
  /// Enhanced bearers that are followed.
  private static var mostBearers: Int { 16 }

  /// What the host's client sees, and the peer's.
  private var databases = [CheckDatabase(), CheckDatabase()]
  /// The fixed channel's, and the enhanced ones' by their number at the host.
  private var bearers = [(number: ChannelID.attribute, bearer: CheckBearer(isEnhanced: false, isFromStart: false))]
  /// When a request or an indication will have waited too long, at the earliest; ``Int64/max``: none waits.
  private(set) var dueTime = Int64.max

  init(isFromStart: Bool) {
    bearers[0].bearer = CheckBearer(isEnhanced: false, isFromStart: isFromStart)
    for index in databases.indices { databases[index].isFromStart = isFromStart }
  }

  /// A PDU is missing: what waits is not known any more.
  mutating func lose() {
    for index in bearers.indices { bearers[index].bearer.lose() }
    for index in databases.indices { databases[index].lose() }
  }
  /// A key is of an earlier connection: the server may remember what the client configured.
  mutating func isBonded() {
    for index in databases.indices { databases[index].isBonded() }
  }
  /// Judges what has waited too long. `lastSeen`: when both devices were certainly there.
  mutating func timePasses(lastSeen: Int64, _ report: inout CheckReport) {
    guard report.time >= dueTime else { return }
    dueTime = .max
    for index in bearers.indices {
      dueTime = min(dueTime, bearers[index].bearer.timePasses(lastSeen: lastSeen, &report))
    }
  }
  /// The connection has ended, or the trace.
  mutating func end(_ report: inout CheckReport) {
    for index in databases.indices { databases[index].end(&report) }
  }
  /// The channel of an enhanced bearer, if there is one, has ended.
  mutating func close(_ number: ChannelID) { bearers.removeAll { $0.number == number && number != .attribute } }

  /// `mtu`: of an enhanced bearer's channel, if it is known.
  mutating func receive(
    _ number: ChannelID, _ direction: HCIDirection, _ pdu: Span<UInt8>, mtu: Int? = nil, isEncrypted: Bool?,
    _ report: inout CheckReport
  ) {
    guard let place = place(of: number) else { return }
    if number != .attribute { bearers[place].bearer.mtu = mtu }
    var writing: [(handle: UInt16, value: UInt16)] = []
    if !pdu.isEmpty, ATTOpcode(rawValue: pdu[0]).carriesValueOfServer {
      let client = direction == .fromHost ? 1 : 0
      for index in bearers.indices {
        if let write = bearers[index].bearer.pendingConfiguration(of: client) { writing.append(write) }
      }
    }
    bearers[place].bearer.receive(
      direction, pdu, &databases, writing: writing, isEncrypted: isEncrypted, &report)
    dueTime = min(dueTime, bearers[place].bearer.dueTime)
  }
  /// A PDU of the bearer is missing.
  mutating func lose(on number: ChannelID) {
    guard let place = place(of: number) else { return }
    bearers[place].bearer.lose()
    for index in databases.indices { databases[index].lose() }
  }
  private mutating func place(of number: ChannelID) -> Int? {
    if let place = bearers.firstIndex(where: { $0.number == number }) { return place }
    guard bearers.count <= Self.mostBearers else { return nil }
    // The trace shows the request that made it, and so all its PDUs.
    bearers.append((number, CheckBearer(isEnhanced: true, isFromStart: true)))
    return bearers.count - 1
  }
}

/// # CheckBearer
/// **Overview**: the Attribute Protocol on one bearer of a connection, for ``Checker``: both devices may be client and
/// server, so there are two independent sequences of requests and two of indications. Vol 3, Part F, §3.3.2.
struct CheckBearer {
  /// ATT_MTU; nil: not known.
  var mtu: Int?
  private let isEnhanced: Bool
  /// The client that the host is, and the one that the peer is.
  private var clients = [CheckClient(), CheckClient()]

  init(isEnhanced: Bool, isFromStart: Bool) {
    self.isEnhanced = isEnhanced
    mtu = isFromStart && !isEnhanced ? 23 : nil
    for index in clients.indices { clients[index].begin(isFromStart) }
  }

  /// A PDU is missing: what waits is not known any more.
  mutating func lose() {
    for index in clients.indices {
      if clients[index].request?.opcode == ExchangeMTURequest.opcode { mtu = nil }
      clients[index].lose()
    }
  }
  /// When a request or an indication will have waited too long.
  var dueTime: Int64 { min(clients[0].dueTime, clients[1].dueTime) }
  mutating func timePasses(lastSeen: Int64, _ report: inout CheckReport) -> Int64 {
    for client in clients.indices { clients[client].timePasses(client, lastSeen: lastSeen, &report) }
    return dueTime
  }
  /// What the client of this place writes of two octets and the server has not confirmed.
  func pendingConfiguration(of client: Int) -> (handle: UInt16, value: UInt16)? { clients[client].pendingConfiguration }

  /// `databases`: of the host's client, and of the peer's. `writing`: of the client that receives a value.
  mutating func receive(
    _ direction: HCIDirection, _ pdu: Span<UInt8>, _ databases: inout [CheckDatabase],
    writing: [(handle: UInt16, value: UInt16)], isEncrypted: Bool?, _ report: inout CheckReport
  ) {
    let party = direction.sender
    report.judge(.attributeEmpty, pdu.count > 0, by: party, seen: "an empty payload", allowed: "an opcode")
    guard pdu.count > 0 else { return }
    let opcode = ATTOpcode(rawValue: pdu[0])
    report.subject = .attribute(opcode)
    let before = report.findings.count
    defer {
      if report.findings.count > before { name(opcode, pdu, direction, databases, &report, from: before) }
    }
    if let mtu {
      report.judge(
        .attributeMTU, pdu.count <= mtu, by: party, seen: "\(opcode) of \(pdu.count) octets",
        allowed: "at most \(mtu)")
    }
    let isKnown = opcode.isKnown
    report.judge(
      .attributeOpcode, isKnown, by: party, seen: "opcode \(code(opcode.rawValue))", allowed: "one of the 31")
    let sender = direction == .fromHost ? 0 : 1, other = 1 - sender
    if isUse(opcode) {
      report.judge(
        .afterTimeout, !isDead(sender, report.time), by: party,
        seen: "\(opcode) after a transaction of this bearer has timed out", allowed: "responses and confirmations")
    }
    guard isKnown else {
      // A server answers an undefined request with an error, and ignores an undefined command.
      if !opcode.isCommand { clients[sender].undefined(opcode, &report) }
      return
    }
    let problem = Self.shapeProblem(opcode, pdu.count)
    report.judge(
      .attributeShape, problem == nil, by: party, seen: "\(opcode) of \(pdu.count) octets",
      allowed: problem ?? "")
    guard problem == nil else {
      let client = Self.isOfServer(opcode) ? other : sender
      clients[client].lose()
      return databases[client].lose()
    }
    if isEnhanced {
      report.judge(
        .enhancedEncrypted, isEncrypted != false, by: party, seen: "\(opcode) on a link that is not encrypted",
        allowed: "enhanced bearers of an encrypted one")
      report.judge(
        .enhancedMTU, opcode != ExchangeMTURequest.opcode, by: party, seen: "\(opcode) on an enhanced bearer",
        allowed: "the channel's MTU")
    }
    switch opcode {
    case ExchangeMTURequest.opcode where isEnhanced, ExchangeMTUResponse.opcode where isEnhanced: break
    case ExchangeMTURequest.opcode: exchange(pdu, of: sender, isRequest: true, party, &report)
    case ExchangeMTUResponse.opcode: exchange(pdu, of: other, isRequest: false, party, &report)
    case SignedWriteCommand.opcode:
      if let isEncrypted {
        report.judge(
          .signedUnencrypted, !isEncrypted, by: party, seen: "a signed write on an encrypted link",
          allowed: "Write Without Response")
      }
    default: break
    }
    if Self.isOfServer(opcode) {
      clients[other].fromServer(pdu, &databases[other], writing: writing, party, &report)
      if opcode == ExchangeMTUResponse.opcode, !isEnhanced { agree(other) }
    } else {
      clients[sender].fromClient(pdu, &databases[sender], party, &report)
    }
  }

  /// Names the attribute that the PDU is about in its findings.
  private func name(
    _ opcode: ATTOpcode, _ pdu: Span<UInt8>, _ direction: HCIDirection, _ databases: [CheckDatabase],
    _ report: inout CheckReport, from first: Int
  ) {
    let isFromServer = Self.isOfServer(opcode), client = (direction == .fromHost) == isFromServer ? 1 : 0
    let attribute: BluetoothUUID?
    switch opcode.kind {
    case .notification, .indication: attribute = pdu.count > 2 ? databases[client].type(of: pdu.little16(1)) : nil
    case .command: attribute = pdu.count > 2 ? databases[client].type(of: pdu.little16(1)) : nil
    case .request, .response: attribute = clients[client].latest.flatMap { databases[client].subject(of: $0) }
    case .confirmation, nil: attribute = nil
    }
    for index in first..<report.findings.count { report.findings[index].attribute = attribute }
  }
  /// What a device must not send after its transaction has timed out: a request, a command, an indication or a
  /// notification.
  private func isUse(_ opcode: ATTOpcode) -> Bool {
    switch opcode.kind {
    case .request, .command, .indication, .notification: true
    case .response, .confirmation, nil: false
    }
  }
  /// A transaction of this device has timed out: a request of its client, or an indication of its server.
  private func isDead(_ device: Int, _ time: Int64) -> Bool {
    // A peer's timer may have begun later than the trace has its PDU, and its next PDU was on its way for a while: by a
    // supervision timeout each, which is at most 32 s.
    let delay: Int64 = device == 0 ? 1_000_000_000 : 64_000_000_000
    return clients[device].requestTimedOut(by: time, delay) || clients[1 - device].indicationTimedOut(by: time, delay)
  }

  // MARK: MTU

  private mutating func exchange(
    _ pdu: Span<UInt8>, of client: Int, isRequest: Bool, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let value = Int(pdu.little16(1))
    report.judge(.mtuMinimum, value >= 23, by: party, seen: "\(value)", allowed: "23 or more")
    if isRequest {
      report.judge(
        .mtuOnce, clients[client].offer == nil, by: party, seen: "another Exchange MTU Request", allowed: "one")
      clients[client].offer = value
    } else {
      clients[client].answer = value
    }
    // As a client of one and the server of the other sequence a device offers the same value.
    let same = isRequest ? clients[1 - client].answer : clients[1 - client].offer
    if let same {
      report.judge(
        .mtuSymmetric, same == value, by: party, seen: "\(value) after \(same)", allowed: "\(same) again")
    }
  }
  private mutating func agree(_ client: Int) {
    guard let offer = clients[client].offer, let answer = clients[client].answer else {
      mtu = nil
      return
    }
    mtu = max(23, min(offer, answer))
  }

  // MARK: Opcodes

  /// Responses, notifications and indications.
  private static func isOfServer(_ opcode: ATTOpcode) -> Bool {
    switch opcode.kind {
    case .response, .notification, .indication: true
    case .request, .command, .confirmation, nil: false
    }
  }

  /// The lengths that an opcode permits; nil: the PDU has one of them. Vol 3, Part F, §3.4.
  private static func shapeProblem(_ opcode: ATTOpcode, _ count: Int) -> String? {
    let (isSound, allowed): (Bool, StaticString) =
      switch opcode {
      case ErrorResponse.opcode: (count == 5, "5 octets")
      case ExchangeMTURequest.opcode, ExchangeMTUResponse.opcode, ReadRequest.opcode: (count == 3, "3 octets")
      case FindInformationRequest.opcode, ReadBlobRequest.opcode: (count == 5, "5 octets")
      case FindInformationResponse.opcode: (count >= 6, "6 octets or more")
      case FindByTypeValueRequest.opcode: (count >= 7, "7 octets or more")
      case FindByTypeValueResponse.opcode: (count >= 5, "5 octets or more")
      case ReadByTypeRequest.opcode, ReadByGroupTypeRequest.opcode: (count == 7 || count == 21, "7 or 21 octets")
      case ReadByTypeResponse.opcode: (count >= 4, "4 octets or more")
      case ReadMultipleRequest.opcode, ReadMultipleVariableRequest.opcode:
        (count >= 3 && count % 2 == 1, "handles of 2 octets")
      case ReadByGroupTypeResponse.opcode: (count >= 6, "6 octets or more")
      case WriteRequest.opcode, WriteCommand.opcode, HandleValueNotification.opcode, HandleValueIndication.opcode:
        (count >= 3, "3 octets or more")
      case WriteResponse.opcode, ExecuteWriteResponse.opcode, HandleValueConfirmation.opcode: (count == 1, "1 octet")
      case PrepareWriteRequest.opcode, PrepareWriteResponse.opcode: (count >= 5, "5 octets or more")
      case ExecuteWriteRequest.opcode: (count == 2, "2 octets")
      case SignedWriteCommand.opcode: (count >= 15, "15 octets or more")
      default: (true, "")
      }
    return isSound ? nil : "\(allowed)"
  }
}

extension ATTOpcode {
  /// A notification or an indication.
  fileprivate var carriesValueOfServer: Bool {
    switch kind {
    case .notification, .indication: true
    default: false
    }
  }
}
