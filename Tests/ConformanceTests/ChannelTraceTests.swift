import BindruneCapture
import BindruneConformance
import BindruneHCI
import BindruneTrace
import BindruneWire
import TestSupport
import Testing

/// What the scripts of channels send, as a trace: the rules of `trace check` find the tester's faults, and none of the
/// side under test.
@Suite struct ChannelTraceTests {
  @Test func ourSideBreaksNoRule() throws {
    var broken: Set<CheckRule> = [], judged: Set<CheckRule> = []
    for file in ChannelScriptTests.files {
      for script in try file.scripts() {
        let target = RecordedChannels(ChannelTarget(script.linkRole), script.linkRole)
        let verdict = Runner.run(script, against: target)
        #expect(verdict.outcome == .passed, "\(file.name(of: script))")
        for finding in target.check(&judged) {
          #expect(finding.party == .peer, "\(file.name(of: script)): \(finding.rule.id): \(finding.seen)")
          broken.insert(finding.rule)
        }
      }
    }
    let rules = Set(CheckRule.allCases.filter { $0.area == .l2cap })
    #expect(rules.subtracting(judged) == [])
    // A PDU of a script is a whole frame.
    let frames: Set<CheckRule> = [.fragmentOrder, .frameComplete, .frameOverlong]
    // No script breaks these.
    let others: Set<CheckRule> = [.channelCount, .channelKnown, .signalTimeout]
    #expect(rules.subtracting(broken) == frames.union(others), "\(rules.subtracting(broken).map(\.id))")
  }
}

/// Notes what passes between a side under test, as the host, and the tester.
private final class RecordedChannels: ConformanceTarget {
  private let target: ChannelTarget
  private let role: LinkRole
  private var packets: [(direction: HCIDirection, time: Duration, octets: [UInt8])] = []
  private var time = Duration.zero
  /// What the side under test has sent, in the order in which it did.
  private var outgoing: [[UInt8]] = []

  init(_ target: ChannelTarget, _ role: LinkRole) {
    self.target = target
    self.role = role
    connect()
  }

  /// The link begins: LE Connection Complete of connection 0x0040, after a reset.
  private func connect() {
    for (direction, text) in [
      (HCIDirection.fromHost, "01 03 0C 00"), (.fromController, "04 0E 04 01 03 0C 00"),
      (.fromHost, "01 06 20 0F A0 00 A0 00 00 00 00 00 00 00 00 00 00 07 00"),
      (.fromController, "04 0E 04 01 06 20 00"), (.fromHost, "01 0A 20 01 01"),
      (.fromController, "04 0E 04 01 0A 20 00"),
    ] where role == .peripheral { packets.append((direction, time, octets(text))) }
    if role == .central {
      packets.append((.fromHost, time, octets("01 03 0C 00")))
      packets.append((.fromController, time, octets("04 0E 04 01 03 0C 00")))
      packets.append(
        (
          .fromHost, time,
          octets("01 0D 20 19 60 00 30 00 00 01 55 44 33 22 11 C0 00 18 00 28 00 00 00 48 00 00 00 00 00")
        ))
      packets.append((.fromController, time, octets("04 0F 04 00 01 0D 20")))
    }
    let complete = "04 3E 13 01 00 40 00 \(role == .central ? "00" : "01") 01 55 44 33 22 11 C0 18 00 00 00 48 00 00"
    packets.append((.fromController, time, octets(complete)))
  }
  private func note(_ pdu: [UInt8], _ direction: HCIDirection) {
    let count = pdu.count - 2
    let frame = [UInt8(count & 0xFF), UInt8(count >> 8)] + pdu
    let header: [UInt8] = [
      0x02, 0x40, direction == .fromHost ? 0x00 : 0x20, UInt8(frame.count & 0xFF), UInt8(frame.count >> 8),
    ]
    packets.append((direction, time, header + frame))
  }
  private func drain() throws(TargetError) {
    while case .pdu(let pdu) = try target.receive(within: .zero) {
      note(pdu, .fromHost)
      outgoing.append(pdu)
    }
  }

  func send(_ pdu: [UInt8]) throws(TargetError) {
    note(pdu, .fromController)
    try target.send(pdu)
    try drain()
  }
  func receive(within time: Duration) throws(TargetError) -> Received {
    if !outgoing.isEmpty { return .pdu(outgoing.removeFirst()) }
    let received = try target.receive(within: time)
    guard case .pdu(let pdu) = received else {
      self.time += time
      return received
    }
    // Something that time has caused: the clock is late by less than the wait.
    note(pdu, .fromHost)
    return received
  }
  func wait(_ time: Duration) throws(TargetError) {
    try target.wait(time)
    self.time += time
    try drain()
  }
  func reconnect() throws(TargetError) {
    try target.reconnect()
    outgoing = []
    packets.append((.fromController, time, octets("04 05 04 00 40 00 13")))
    connect()
  }
  var takesCommands: Bool { true }
  func perform(_ command: Command) throws(TargetError) {
    try target.perform(command)
    try drain()
  }
  func result(within time: Duration) throws(TargetError) -> ProcedureResult? { try target.result(within: time) }
  func value(within time: Duration) throws(TargetError) -> ReceivedValue? { try target.value(within: time) }
  func event(within time: Duration) throws(TargetError) -> ApplicationEvent? { try target.event(within: time) }
  func key(within time: Duration) throws(TargetError) -> [UInt8]? { try target.key(within: time) }

  /// The findings about L2CAP; every rule that could be judged is added to `judged`.
  func check(_ judged: inout Set<CheckRule>) -> [CheckFinding] {
    var sink = DissectingSink(Checker(rules: Set(CheckRule.allCases.filter { $0.area == .l2cap })))
    for (index, packet) in packets.enumerated() {
      let time = packet.time.components
      let nanoseconds = time.seconds * 1_000_000_000 + time.attoseconds / 1_000_000_000
      let record = CaptureRecord(
        number: index + 1, time: 1_700_000_000_000_000_000 + nanoseconds, direction: packet.direction, adapter: 0,
        originalCount: packet.octets.count, octets: Octets(0, packet.octets.count))
      sink.receive(record, packet.octets.span)
    }
    sink.pause()
    for rule in CheckRule.allCases where sink.sink.judgements(of: rule) > 0 { judged.insert(rule) }
    return sink.sink.findings
  }
}
