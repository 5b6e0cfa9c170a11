import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

extension Explanation {
  /// The explanation of `octets`, at most 65,535 of them (traps otherwise). Without `form`, octets that begin with the
  /// header of an HCI packet of their length are one, also where its parameters are wrong. Of others the first of
  /// `Form.allCases` that fits is taken; if none fits, the one that the first octet suggests. ``alternatives`` has the
  /// other forms that fit.
  public init(of octets: [UInt8], as form: Form? = nil) {
    precondition(octets.count <= 0xFFFF, "no packet is longer")
    if let form {
      self.init(octets, form)
      return
    }
    let sound = Form.allCases.filter { Explanation.suggests($0, octets) }.map { Explanation(octets, $0) }
      .filter(\.isSound)
    let isPacket = Explanation.statesItsLength(octets)
    self = isPacket ? Explanation(octets, .hci) : sound.first ?? Explanation(octets, Explanation.guess(octets))
    alternatives = sound.map(\.form).filter { $0 != self.form }
    isGuess = !isPacket
  }
  /// True if `octets` begin with the header of an HCI packet, and it states as many octets as there are.
  private static func statesItsLength(_ octets: [UInt8]) -> Bool {
    func number(_ at: Int, _ width: Int) -> Int { (0..<width).reduce(0) { $0 | Int(octets[at + $1]) << (8 * $1) } }
    let (place, width) =
      switch octets.first.flatMap(HCIPacketType.init(rawValue:)) {
      case .command, .synchronous: (3, 1)
      case .event: (2, 1)
      case .acl, .iso: (3, 2)
      case nil: (octets.count, 0)
      }
    guard octets.count >= place + width, width > 0 else { return false }
    // Two bits of ISO's length are reserved.
    let stated = octets[0] == HCIPacketType.iso.rawValue ? number(place, width) & 0x3FFF : number(place, width)
    return octets.count == place + width + stated
  }
  private init(_ octets: [UInt8], _ form: Form) {
    self.octets = octets
    self.form = form
    rows = Self.rows(of: octets, form, draws: true)
  }
  /// The rows; without texts if nothing is to be drawn.
  static func rows(of octets: [UInt8], _ form: Form, draws: Bool) -> [Row] {
    var recorder = ExplainRecorder(octets, draws: draws)
    switch form {
    case .hci: recorder.packet(to: octets.count)
    case .l2cap: recorder.guarded(to: octets.count) { recorder throws(WireError) in try recorder.frame() }
    case .att: recorder.guarded(to: octets.count) { recorder throws(WireError) in try recorder.att() }
    case .smp: recorder.guarded(to: octets.count) { recorder throws(WireError) in try recorder.smp() }
    case .signaling: recorder.guarded(to: octets.count) { recorder throws(WireError) in try recorder.signal() }
    case .ad:
      recorder.layer("Advertising data", "Vol 3, Part C, §11")
      recorder.structures()
    }
    return recorder.rows
  }

  /// Cheap tests that come before an explanation.
  private static func suggests(_ form: Form, _ octets: [UInt8]) -> Bool {
    guard let first = octets.first else { return false }
    switch form {
    case .hci: return (1...5).contains(first)
    case .l2cap: return octets.count >= 4 && octets[3] == 0 && (4...6).contains(octets[2])
    case .att: return ATTOpcode(rawValue: first).isKnown
    case .smp: return SMPCode(rawValue: first).isKnown
    case .signaling: return SignalCode(rawValue: first).name != nil
    case .ad: return octets.count >= 2 && ADType(rawValue: octets[1]).name != nil
    }
  }
  private static func guess(_ octets: [UInt8]) -> Form {
    if suggests(.l2cap, octets), octets.count > 4 { return .l2cap }
    if octets.count > 4, octets[0] == 1 || octets[0] == 2 || octets[0] == 4 { return .hci }
    return Form.allCases.first { $0 != .hci && suggests($0, octets) } ?? .hci
  }
}

extension ExplainRecorder {
  /// Runs `body`; its error becomes rows, which take the octets up to `limit`.
  mutating func guarded(to limit: Int, _ body: (inout ExplainRecorder) throws(WireError) -> Void) {
    do throws(WireError) {
      try body(&self)
      if at != end { throw .trailing("", end - at) }
    } catch { fail(error, to: limit) }
    if at < limit { fail(.trailing("", limit - at), to: limit) }
  }

  // MARK: HCI

  /// An HCI packet, H4 packet type octet first. Vol 4, Part A, §2.
  mutating func packet(to limit: Int) {
    guard let first = packet.first else {
      return guarded(to: limit) { _ throws(WireError) in throw .truncated("HCI packet type", needed: 1, available: 0) }
    }
    switch HCIPacketType(rawValue: first) {
    case .command: guarded(to: limit) { recorder throws(WireError) in try recorder.command() }
    case .event: guarded(to: limit) { recorder throws(WireError) in try recorder.event() }
    case .acl: guarded(to: limit) { recorder throws(WireError) in try recorder.acl() }
    case .synchronous:
      guarded(to: limit) { recorder throws(WireError) in
        recorder.layer("HCI Synchronous Data", "Vol 4, Part E, §5.4.3")
        try recorder.record(SynchronousPacket.self)
      }
    case .iso:
      guarded(to: limit) { recorder throws(WireError) in
        recorder.layer("HCI ISO Data", "Vol 4, Part E, §5.4.5")
        try recorder.record(ISOPacket.self)
      }
    case nil:
      guarded(to: limit) { recorder throws(WireError) in
        recorder.layer("HCI packet", "Vol 4, Part A, §2")
        var type = HCIPacketType.command
        try recorder.value("HCI packet type", &type)
      }
    }
  }
  /// Reads the octet with the parameters' length. The fields then end there, or where the packet does.
  private mutating func totalLength() throws(WireError) -> Int {
    var length: UInt8 = 0
    try value("Parameter_Total_Length", &length)
    let declared = Int(length)
    end = min(end, at + declared)
    return at + declared
  }
  /// The length in the header is wrong, although the parameters are right.
  private func check(_ stated: Int) throws(WireError) {
    if stated < packet.count { throw .trailing("Parameter_Total_Length", packet.count - stated) }
    if stated > packet.count {
      throw .truncated("Parameter_Total_Length", needed: stated, available: packet.count)
    }
  }
  private mutating func unknown(_ label: StaticString) {
    if at < end { add(.field, label, end - at, octets: end - at) }
  }

  private mutating func command() throws(WireError) {
    let opcode = packet.count > 2 ? HCIOpcode(rawValue: UInt16(number(1, 2))) : HCIOpcode()
    let known = AnyCommand(default: opcode)
    var facts = WireFacts()
    try known?.visit(&facts)
    if known != nil {
      layer(facts.name, facts.section)
    } else {
      layer(named: opcode.shownName, else: "HCI Command", "Vol 4, Part E, §5.4.1")
    }
    var type = HCIPacketType.command, number = HCIOpcode()
    try value("HCI packet type", &type)
    try value("Opcode", &number)
    let stated = try totalLength()
    if let known { try known.visit(&self) } else { unknown("Parameters") }
    try check(stated)
  }
  private mutating func event() throws(WireError) {
    let code = packet.count > 1 ? packet[1] : 0, subevent = packet.count > 3 ? packet[3] : 0
    let known = packet.count > 1 ? HCIEvent(default: code, subevent: subevent) : nil
    var facts = WireFacts(), type = HCIPacketType.event, number: UInt8 = 0
    try known?.visit(&facts)
    let name: StaticString = code == 0xFF ? "Vendor event" : "HCI Event"
    layer(known == nil ? name : facts.name, known == nil ? "Vol 4, Part E, §5.4.4" : facts.section)
    try value("HCI packet type", &type)
    try value("Event_Code", &number)
    rows[rows.count - 1].text = "0x" + hexDigits(UInt64(number), 2)
    let stated = try totalLength()
    if code == 0x3E {
      try value("Subevent_Code", &number)
      rows[rows.count - 1].text = "0x" + hexDigits(UInt64(number), 2)
    }
    if let known { try known.visit(&self) } else { unknown("Parameters") }
    if code == 0x0E { try returnParameters() }
    try check(stated)
  }
  /// Explains the return parameters instead of their octets.
  private mutating func returnParameters() throws(WireError) {
    guard let last = rows.last, last.name.isEqual(to: "Return_Parameters"), last.bit >= 48 else { return }
    let opcode = HCIOpcode(rawValue: UInt16(number(last.bit / 8 - 2, 2)))
    guard let command = AnyCommand(default: opcode) else { return }
    rows.removeLast()
    at = last.bit / 8
    var answer = ReturnVisitor(recorder: self)
    defer { self = answer.recorder }
    try command.visit(&answer)
  }

  private mutating func acl() throws(WireError) {
    layer("HCI ACL Data", "Vol 4, Part E, §5.4.2")
    var type = HCIPacketType.acl, acl = ACLPacket()
    try value("HCI packet type", &type)
    try acl.fields(&self)
    guard at == end else { throw .trailing("Data_Total_Length", end - at) }
    guard acl.packetBoundaryFlag != .continuing, acl.data.count >= 4 else { return }
    let start = Int(acl.data.offset)
    // A fragment has not the whole frame.
    guard L2CAPFrame.headerCount + Int(number(start, 2)) <= Int(acl.data.count) else {
      rows.removeLast()
      at = start
      layer("L2CAP B-frame, its first fragment", "Vol 3, Part A, §3.1")
      var length: UInt16 = 0, channel = ChannelID()
      try value("PDU Length", &length)
      try value("Channel ID", &channel)
      return unknown("Fragment")
    }
    rows.removeLast()
    at = start
    try frame()
  }

  // MARK: L2CAP and above

  mutating func frame() throws(WireError) {
    layer("L2CAP B-frame", "Vol 3, Part A, §3.1")
    var frame = L2CAPFrame()
    try frame.fields(&self)
    rows[rows.count - 1].label = "Information Payload"
    if at != end { throw .trailing("PDU Length", end - at) }
    guard frame.pduLength > 0 else { return }
    let start = at - Int(frame.pduLength)
    switch frame.channelID {
    case .attribute:
      rows.removeLast()
      at = start
      try att()
    case .leSignaling:
      rows.removeLast()
      at = start
      try signal()
    case .securityManager:
      rows.removeLast()
      at = start
      try smp()
    default: break
    }
  }
  mutating func att() throws(WireError) {
    var defaults = WireDefaults(), facts = WireFacts(), opcode = ATTOpcode()
    guard at < end else { throw .truncated("Opcode", needed: 1, available: 0) }
    var known: ATTPDU?
    do throws(WireError) { known = try ATTPDU(ATTOpcode(rawValue: packet[at]), &defaults) } catch {}
    try known?.visit(&facts)
    layer(known == nil ? "ATT PDU" : facts.name, known == nil ? "Vol 3, Part F, §3.3.1" : facts.section)
    guard let known else { throw .unknown("Opcode", Int(packet[at])) }
    try value("Opcode", &opcode)
    try known.visit(&self)
  }
  mutating func smp() throws(WireError) {
    var defaults = WireDefaults(), facts = WireFacts(), code = SMPCode()
    guard at < end else { throw .truncated("Code", needed: 1, available: 0) }
    var known: SMPPDU?
    do throws(WireError) { known = try SMPPDU(SMPCode(rawValue: packet[at]), &defaults) } catch {}
    try known?.visit(&facts)
    layer(known == nil ? "SMP PDU" : facts.name, known == nil ? "Vol 3, Part H, §3.3" : facts.section)
    guard let known else { throw .unknown("Code", Int(packet[at])) }
    try value("Code", &code)
    try known.visit(&self)
  }
  mutating func signal() throws(WireError) {
    guard at < end else { throw .truncated("Code", needed: 1, available: 0) }
    let code = SignalCode(rawValue: packet[at])
    var defaults = WireDefaults(), facts = WireFacts()
    let known = try AnySignal(code, &defaults)
    try known?.visit(&facts)
    if known != nil {
      layer(facts.name, facts.section)
    } else {
      layer(named: code.name, else: "L2CAP signaling command", "Vol 3, Part A, §4")
    }
    if code.name == nil { throw .unknown("Code", Int(code.rawValue)) }
    try signalHeader()
    if let known { try known.visit(&self) } else { unknown("Data") }
  }
  private mutating func signalHeader() throws(WireError) {
    var header = SignalHeader()
    try header.fields(&self)
    let available = end - at
    if Int(header.length) != available { throw .wrongLength("Length", Int(header.length), expected: available) }
  }
}

/// Records a command's return parameters.
private struct ReturnVisitor: CommandVisitor {
  var recorder: ExplainRecorder
  mutating func visitCommand<C: HCICommand>(_: C) throws(WireError) {
    recorder.layer(C.name, C.section)
    if recorder.draws { recorder.rows[recorder.rows.count - 1].label = "Return parameters of \(C.name)" }
    // A controller that refuses a command may omit everything after the status.
    if recorder.end - recorder.at == 1, recorder.packet[recorder.at] != 0 {
      try recorder.record(StatusReturn.self)
    } else {
      try recorder.record(C.Return.self)
    }
  }
}
/// Vol 4, Part E, §5.4.3.
private struct SynchronousPacket: WireRecord {
  var type = HCIPacketType.synchronous, handle = ConnectionHandle(), status: UInt8 = 0, reserved: UInt8 = 0
  var data = Octets()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("HCI packet type", &type)
    try visit.bits("Connection_Handle", &handle, 12)
    try visit.bits("Packet_Status_Flag", &status, 2)
    try visit.bits("Reserved", &reserved, 2)
    try visit.octets(lengthIn: "Data_Total_Length", UInt8.self, "Data", &data)
  }
}
/// Vol 4, Part E, §5.4.5.
private struct ISOPacket: WireRecord {
  var type = HCIPacketType.iso, handle = ConnectionHandle(), boundary: UInt8 = 0, stamp: UInt8 = 0, reserved: UInt8 = 0
  var length: UInt16 = 0, data = Octets()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("HCI packet type", &type)
    try visit.bits("Connection_Handle", &handle, 12)
    try visit.bits("PB_Flag", &boundary, 2)
    try visit.bits("TS_Flag", &stamp, 1)
    try visit.bits("Reserved", &reserved, 1)
    try visit.bits("Data_Total_Length", &length, 14)
    try visit.bits("Reserved", &reserved, 2)
    try visit.octets("Data", &data, .exactly(Int(length)))
  }
}
