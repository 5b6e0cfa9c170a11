import ATT
import BindruneWire
import HCI

/// # CheckAttributes
/// **Overview**: the Attribute Protocol on a connection, for ``Checker``: both devices may be client and server, so
/// there are two independent sequences of requests and two of indications. Vol 3, Part F, §3.3.2.
struct CheckAttributes {
  /// ATT_MTU; nil: not known.
  private var mtu: Int?
  /// The client that the host is, and the one that the peer is.
  private var clients = [CheckClient(), CheckClient()]

  var isFromStart = false {
    didSet {
      mtu = isFromStart ? 23 : nil
      for index in clients.indices { clients[index].begin(isFromStart) }
    }
  }

  /// A PDU is missing: what waits is not known any more.
  mutating func lose() {
    for index in clients.indices {
      if clients[index].request?.opcode == 0x02 { mtu = nil }
      clients[index].lose()
    }
  }
  mutating func encryptionChanged(_ isOn: Bool, afterPairing: Bool) {
    guard isOn, !afterPairing else { return }
    for index in clients.indices { clients[index].isBonded() }
  }
  /// The connection has ended, or the trace.
  mutating func end(_ report: inout CheckReport) {
    for index in clients.indices { clients[index].end(&report) }
  }

  mutating func receive(
    _ direction: HCIDirection, _ pdu: Span<UInt8>, isEncrypted: Bool?, _ report: inout CheckReport
  ) {
    let party = direction.sender
    report.judge(.attributeEmpty, pdu.count > 0, by: party, seen: "an empty payload", allowed: "an opcode")
    guard pdu.count > 0 else { return }
    let opcode = pdu[0]
    if let mtu {
      report.judge(
        .attributeMTU, pdu.count <= mtu, by: party, seen: "\(Self.name(opcode)) of \(pdu.count) octets",
        allowed: "at most \(mtu)")
    }
    let isKnown = ATTOpcode(rawValue: opcode).isKnown
    report.judge(.attributeOpcode, isKnown, by: party, seen: "opcode \(code(opcode))", allowed: "one of the 31")
    let sender = direction == .fromHost ? 0 : 1, other = 1 - sender
    guard isKnown else {
      // A server answers an undefined request with an error, and ignores an undefined command.
      if opcode & 0x40 == 0 { clients[sender].undefined(opcode, &report) }
      return
    }
    let problem = Self.shapeProblem(pdu)
    report.judge(
      .attributeShape, problem == nil, by: party, seen: "\(Self.name(opcode)) of \(pdu.count) octets",
      allowed: problem ?? "")
    guard problem == nil else { return clients[Self.isOfServer(opcode) ? other : sender].lose() }
    switch opcode {
    case 0x02: exchange(pdu, of: sender, isRequest: true, party, &report)
    case 0x03: exchange(pdu, of: other, isRequest: false, party, &report)
    case 0xD2:
      if let isEncrypted {
        report.judge(
          .signedUnencrypted, !isEncrypted, by: party, seen: "a signed write on an encrypted link",
          allowed: "Write Without Response")
      }
    default: break
    }
    if Self.isOfServer(opcode) {
      clients[other].fromServer(pdu, party, &report)
      if opcode == 0x03 { agree(other) }
    } else {
      clients[sender].fromClient(pdu, party, &report)
    }
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
  private static func isOfServer(_ opcode: UInt8) -> Bool {
    switch ATTOpcode(rawValue: opcode).kind {
    case .response, .notification, .indication: true
    case .request, .command, .confirmation, nil: false
    }
  }
  static func name(_ opcode: UInt8) -> String { ATTOpcode(rawValue: opcode).description }

  /// The lengths that an opcode permits; nil: the PDU has one of them. Vol 3, Part F, §3.4.
  private static func shapeProblem(_ pdu: Span<UInt8>) -> String? {
    let count = pdu.count
    let (isSound, allowed): (Bool, StaticString) =
      switch pdu[0] {
      case 0x01: (count == 5, "5 octets")
      case 0x02, 0x03, 0x0A: (count == 3, "3 octets")
      case 0x04, 0x0C: (count == 5, "5 octets")
      case 0x05: (count >= 6, "6 octets or more")
      case 0x06: (count >= 7, "7 octets or more")
      case 0x07: (count >= 5, "5 octets or more")
      case 0x08, 0x10: (count == 7 || count == 21, "7 or 21 octets")
      case 0x09: (count >= 4, "4 octets or more")
      case 0x0E, 0x20: (count >= 3 && count % 2 == 1, "handles of 2 octets")
      case 0x11: (count >= 6, "6 octets or more")
      case 0x12, 0x52, 0x1B, 0x1D: (count >= 3, "3 octets or more")
      case 0x13, 0x19, 0x1E: (count == 1, "1 octet")
      case 0x16, 0x17: (count >= 5, "5 octets or more")
      case 0x18: (count == 2, "2 octets")
      case 0xD2: (count >= 15, "15 octets or more")
      default: (true, "")
      }
    return isSound ? nil : "\(allowed)"
  }
}
