import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneL2CAP

// A plain model of the paths of packets from and to the controller: only declared records and arrays, one step after
// the other. Tests compare the layers, with their shortcuts, to it.

/// A result of a packet.
struct Happening: Equatable {
  var name: String
  var link = 0
  var octets: [UInt8] = []
  /// A length or another number.
  var number = 0
  /// The `WireError`: reason, field, needed, available.
  var error = ""
  init(_ name: String, _ link: Int = 0, octets: [UInt8] = [], number: Int = 0, error: WireError? = nil) {
    self.name = name
    self.link = link
    self.octets = octets
    self.number = number
    if let error { self.error = "\(error)" }
  }
}

/// The results of a packet, by layer.
struct Happenings: Equatable {
  var hci: [Happening] = []
  /// Calls of the server and the client.
  var upper: [Happening] = []
  var l2cap: [Happening] = []
  var att: [Happening] = []
}

/// One end of a bearer. Its server answers every request with one octet, at once; its client sends the requests of the
/// test.
struct PlainBearer {
  let link: Int
  var mtu = 23
  /// The client's requests: those not yet sent, and the one sent.
  var requests: [[UInt8]] = []
  var awaiting: UInt8?
  var wantsMTU = false
  /// At most two.
  var responses: [[UInt8]] = []
  var owesConfirmation = false
  var indication: [UInt8]? { didSet { if indication != nil { indicationPlace = notificationsTaken - 1 } } }
  var isIndicating = false
  /// Notifications and commands.
  var queue: [[UInt8]] = []
  private var notificationsSent = 0
  /// How many notifications and indications precede the next call.
  var notificationsTaken: Int {
    notificationsSent + queue.filter { $0[0] & 0x40 == 0 }.count + (indication == nil ? 0 : 1)
  }
  /// How many precede the first response, and the indication.
  var responsePlace = 0
  private var indicationPlace = 0
  private enum PeerExchange { case notAsked, answering(Int), done }
  private var peerExchange = PeerExchange.notAsked

  init(link: Int) { self.link = link }

  // MARK: Up

  mutating func receive(_ pdu: [UInt8], _ said: inout Happenings) {
    let opcode = pdu[0]
    if pdu.count > mtu { said.att.append(Happening("longer than the MTU", link, number: pdu.count)) }
    do throws(WireError) { _ = try ATTPDU(pdu.span) } catch { return malformed(pdu, error, &said) }
    switch opcode {
    case 0x02:
      guard admit([0x03, 0x05, 0x02], opcode, &said) else { return }
      guard case .notAsked = peerExchange else { return said.att.append(Happening("repeated MTU exchange", link)) }
      peerExchange = .answering(Int(pdu[1]) | Int(pdu[2]) << 8)
    case 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20:
      if admit([opcode + 1], opcode, &said) { said.upper.append(Happening("request", link, octets: pdu)) }
    case 0x52, 0xD2: said.upper.append(Happening("command", link, octets: pdu))
    case 0x1E:
      guard isIndicating else { return said.att.append(Happening("unexpected confirmation", link)) }
      isIndicating = false
      said.att.append(Happening("confirmed", link))
      said.upper.append(Happening("confirmed", link))
    case 0x1D where owesConfirmation:
      said.att.append(Happening("early indication", link, number: Int(pdu[1]) | Int(pdu[2]) << 8))
    case 0x1B, 0x1D, 0x23:
      owesConfirmation = owesConfirmation || opcode == 0x1D
      said.upper.append(Happening("value", link, octets: pdu))
    case 0x01 where awaiting != nil && awaiting != pdu[1]:
      said.att.append(Happening("error for another", link, number: Int(pdu[1])))
    case 0x01 where awaiting != nil: ended(pdu, &said)
    case _ where awaiting == opcode - 1: ended(pdu, &said)
    default: said.att.append(Happening("unexpected response", link, number: Int(opcode)))
    }
  }
  /// Vol 3, Part F, §3.3.
  private mutating func malformed(_ pdu: [UInt8], _ error: WireError, _ said: inout Happenings) {
    let opcode = pdu[0], isKnown = if case .unknown = error.reason { false } else { true }
    said.att.append(
      isKnown
        ? Happening("malformed", link, number: Int(opcode), error: error)
        : Happening("unknown", link, number: Int(opcode)))
    switch opcode {
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x17, 0x19, 0x21:
      // It ends the outstanding request, as an error would.
      if let awaiting, opcode == awaiting + 1 { ended([0x01, awaiting, 0, 0, 0x04], &said) }
    case 0x1B, 0x1D, 0x1E, 0x23: break
    case _ where opcode & 0x40 != 0: break
    default: _ = admit([0x01, opcode, 0, 0, isKnown ? 0x04 : 0x06], opcode, &said)
    }
  }
  /// A client waits for each response; the server accepts a second request, but no third: Vol 3, Part F, §3.3.2.
  private mutating func admit(_ response: [UInt8], _ opcode: UInt8, _ said: inout Happenings) -> Bool {
    if responses.count == 2 {
      said.att.append(Happening("dropped", link, number: Int(opcode)))
      return false
    }
    if responses.count == 1 { said.att.append(Happening("early request", link, number: Int(opcode))) }
    responses.append(response)
    return true
  }
  private mutating func ended(_ response: [UInt8], _ said: inout Happenings) {
    let request = awaiting
    awaiting = nil
    guard request == 0x02 else { return said.upper.append(Happening("response", link, octets: response)) }
    if response[0] == 0x03 {
      agree(Int(response[1]) | Int(response[2]) << 8, &said)
    } else {
      said.att.append(Happening("MTU", link, number: mtu))
    }
  }
  private mutating func agree(_ other: Int, _ said: inout Happenings) {
    if other < 23 { said.att.append(Happening("MTU too small", link, number: other)) }
    mtu = max(mtu, min(517, other))
    said.att.append(Happening("MTU", link, number: mtu))
  }

  // MARK: Down

  /// Responses, confirmations, requests, indications, then the queue; a PDU with a place among the notifications waits
  /// for those before it.
  mutating func next(_ said: inout Happenings) -> [UInt8]? {
    if !responses.isEmpty, responsePlace <= notificationsSent || awaiting == 0x02 {
      let response = responses.removeFirst()
      if response[0] == 0x03, case .answering(let other) = peerExchange {
        peerExchange = .done
        agree(other, &said)
      }
      return response
    }
    if owesConfirmation {
      owesConfirmation = false
      return [0x1E]
    }
    if awaiting == nil {
      if wantsMTU {
        wantsMTU = false
        awaiting = 0x02
        return [0x02, 0x05, 0x02]
      }
      if !requests.isEmpty {
        let request = requests.removeFirst()
        awaiting = request[0]
        return request
      }
    }
    // Vol 3, Part F, §3.4.2.2: no values between an Exchange MTU Request and its answer.
    if awaiting == 0x02 { return nil }
    if let indication, indicationPlace <= notificationsSent {
      self.indication = nil
      notificationsSent += 1
      isIndicating = true
      return indication
    }
    if queue.isEmpty { return nil }
    if queue[0][0] & 0x40 == 0 { notificationsSent += 1 }
    return queue.removeFirst()
  }

  /// The PDU of a value, cut to the length of one PDU.
  func pdu(_ opcode: ATTOpcode, _ handle: AttributeHandle, _ value: [UInt8]) -> [UInt8] {
    let value = Array(value.prefix(min(mtu - 3, 512))), octets = Octets(0, value.count)
    switch opcode {
    case HandleValueNotification.opcode:
      var message = HandleValueNotification()
      message.attributeHandle = handle
      message.attributeValue = octets
      return encoded(.handleValueNotification(message), from: value.span)
    case HandleValueIndication.opcode:
      var message = HandleValueIndication()
      message.attributeHandle = handle
      message.attributeValue = octets
      return encoded(.handleValueIndication(message), from: value.span)
    default:
      var message = WriteCommand()
      message.attributeHandle = handle
      message.attributeValue = octets
      return encoded(.writeCommand(message), from: value.span)
    }
  }
}

/// One link: recombines and fragments frames.
struct PlainLink {
  let handle: Int
  var bearer: PlainBearer
  /// The octets of an incomplete frame; nil if none has begun.
  private var collected: [UInt8]?
  /// The remaining octets of a frame on its way down.
  private var rest: [UInt8] = []
  private var owesPairingFailed = false
  /// Our one Exchange MTU Request has been requested.
  var hasAskedMTU = false

  init(_ handle: Int) {
    self.handle = handle
    bearer = PlainBearer(link: handle)
  }

  // MARK: Up. Vol 3, Part A, §7.2.2

  mutating func receive(_ acl: ACLPacket, _ packet: [UInt8], _ said: inout Happenings) {
    let data = acl.data.array(in: packet.span)
    guard acl.broadcastFlag == 0, acl.packetBoundaryFlag != .complete else {
      return said.l2cap.append(Happening("illegal flags", handle))
    }
    var isInterrupted = false
    if acl.packetBoundaryFlag == .continuing {
      if collected == nil { return said.l2cap.append(Happening("orphan", handle, number: data.count)) }
    } else {
      if let before = collected, !before.isEmpty {
        isInterrupted = true
        said.l2cap.append(Happening("incomplete", handle, octets: littleEndian(before.count), number: length(before)))
      }
      collected = []
    }
    let frame = (collected ?? []) + data
    guard frame.count >= 2, frame.count >= length(frame) else {
      collected = frame
      return
    }
    collected = nil
    guard frame.count == length(frame) else {
      if !isInterrupted {
        said.l2cap.append(Happening("overlong", handle, octets: littleEndian(frame.count), number: length(frame)))
      }
      return
    }
    receive(frame: frame, &said)
  }
  /// The length of the frame that begins with these octets, header included; 0 while unknown.
  private func length(_ frame: [UInt8]) -> Int {
    frame.count < 2 ? 0 : 4 + Int(frame[0]) + Int(frame[1]) * 256
  }
  private mutating func receive(frame octets: [UInt8], _ said: inout Happenings) {
    guard let frame = try? WireDecoder.decode(L2CAPFrame.self, octets.span) else { return }
    let payload = frame.informationPayload.array(in: octets.span), channel = Int(frame.channelID.rawValue)
    let limits = [0x0004: 1...517, 0x0005: 4...23]
    guard let limit = limits[channel] else {
      return said.l2cap.append(Happening("unknown channel", handle, number: channel))
    }
    guard limit.contains(payload.count) else {
      // L2CAP answers a frame too long for the signaling channel; this model does not.
      if payload.count > limit.upperBound, channel == 0x0005 { return }
      let name = payload.count < limit.lowerBound ? "too short" : "too long"
      return said.l2cap.append(Happening(name, handle, octets: littleEndian(channel), number: payload.count))
    }
    if channel == 0x0004 { bearer.receive(payload, &said) }
  }

  // MARK: Down. Vol 3, Part A, §7.2.1; Vol 4, Part E, §5.4.2

  /// The next ACL packet, H4 packet type octet first.
  mutating func nextPacket(aclLength: Int, _ said: inout Happenings) throws -> [UInt8]? {
    var acl = ACLPacket()
    acl.handle = ConnectionHandle(rawValue: UInt16(handle))
    acl.packetBoundaryFlag = .continuing
    if rest.isEmpty {
      guard let pdu = bearer.next(&said) else { return nil }
      rest = try frame(.attribute, pdu)
      acl.packetBoundaryFlag = .firstNonFlushable
    }
    let fragment = Array(rest.prefix(aclLength))
    rest = Array(rest.dropFirst(aclLength))
    acl.data = Octets(0, fragment.count)
    return [0x02] + (try acl.encoded(from: fragment.span))
  }
  private func frame(_ channel: ChannelID, _ payload: [UInt8]) throws -> [UInt8] {
    try L2CAPFrame(channel, Octets(0, payload.count)).encoded(from: payload.span)
  }
}

/// A host with links only: HCI's part of the path up.
struct PlainHost {
  var links: [Int: PlainLink] = [:]
  /// Packets in the controller, by link.
  var outstanding: [Int: Int] = [:]

  /// Vol 4, Part E, §4.1.1, §5.4, §7.7.
  mutating func receive(_ packet: [UInt8]) -> Happenings {
    var said = Happenings()
    do throws(WireError) {
      switch packet.first {
      case 2?:
        let acl = try WireDecoder.decode(ACLPacket.self, packet.span, from: 1), handle = Int(acl.handle.rawValue)
        guard links[handle] != nil else {
          said.l2cap.append(Happening("unknown link", handle))
          break
        }
        links[handle]?.receive(acl, packet, &said)
      case 4?: receive(try HCIEvent(packet.span), packet, &said)
      case let type?: said.hci.append(Happening("unexpected packet type", number: Int(type)))
      case nil: throw WireError.truncated("HCI packet type", needed: 1, available: 0)
      }
    } catch {
      said.hci.append(Happening("malformed", error: error))
    }
    return said
  }
  private mutating func receive(_ event: HCIEvent, _ packet: [UInt8], _ said: inout Happenings) {
    var opened: ConnectionHandle?
    switch event {
    case .numberOfCompletedPackets:
      var wrong: Happening?
      for at in stride(from: 4, to: 4 + 4 * Int(packet[3]), by: 4) {
        // A handle has twelve bits: Vol 4, Part E, §7.7.19.
        let link = Int(packet[at]) | Int(packet[at + 1] & 0x0F) << 8
        let count = Int(packet[at + 2]) | Int(packet[at + 3]) << 8
        if let held = outstanding[link] {
          if count > held { wrong = wrong ?? Happening("too many completed", link, number: count - held) }
          outstanding[link] = max(0, held - count)
        } else {
          wrong = wrong ?? Happening("completed of unknown link", link)
        }
      }
      if let wrong { said.hci.append(wrong) }
      return
    case .commandComplete(let event):
      if event.commandOpcode != .none {
        said.hci.append(Happening("unexpected answer", number: Int(event.commandOpcode.rawValue)))
      }
      return
    case .commandStatus(let event):
      if event.commandOpcode != .none {
        said.hci.append(Happening("unexpected answer", number: Int(event.commandOpcode.rawValue)))
      }
      return
    case .leConnectionComplete(let link) where link.status == .success: opened = link.connectionHandle
    case .leEnhancedConnectionComplete(let link) where link.status == .success: opened = link.connectionHandle
    case .disconnectionComplete(let link) where link.status == .success:
      outstanding[Int(link.connectionHandle.rawValue)] = nil
    default: break
    }
    if let handle = opened.map({ Int($0.rawValue) }) {
      if outstanding[handle] != nil { return said.hci.append(Happening("handle in use", handle)) }
      outstanding[handle] = 0
    }
    said.hci.append(Happening("event", octets: packet))
  }
}

private func littleEndian(_ value: Int) -> [UInt8] { [UInt8(value & 0xFF), UInt8(value >> 8 & 0xFF)] }

/// The octets of a PDU, from its record.
func encoded(_ pdu: ATTPDU, from source: Span<UInt8>) -> [UInt8] {
  var buffer = PacketBuffer(capacity: 2048)
  do throws(WireError) {
    _ = try buffer.fill { output throws(WireError) in
      try pdu.encode(into: &output, from: source)
      return true
    }
  } catch {
    return []
  }
  return buffer.bytes
}
