import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

@Suite struct SignalingTests {
  static let request = ConnectionParameterUpdateRequest(
    intervalMin: ConnectionInterval(rawValue: 24), intervalMax: ConnectionInterval(rawValue: 40), latency: 4,
    timeout: SupervisionTimeout(rawValue: 600))

  /// Phases of our request and of the peer's, in both roles.
  enum Phase: CaseIterable { case central, centralRaised, peripheral, peripheralQueued, peripheralAwaiting }
  static func station(_ phase: Phase) -> Station {
    switch phase {
    case .central: return Station(.central)
    case .centralRaised:
      let station = Station(.central)
      station.receive(signal: "12 07 08 00 06 00 06 00 00 00 0A 00")
      #expect(station.effects() == ["requested 7: 6 6 0 10"] && station.sent() == [])
      return station
    case .peripheral: return Station(.peripheral)
    case .peripheralQueued:
      let station = Station(.peripheral)
      #expect(station.request(request))
      return station
    case .peripheralAwaiting:
      let station = Station(.peripheral)
      #expect(station.request(request))
      #expect(station.sent() == ["05: 12 01 08 00 18 00 28 00 04 00 58 02"])
      return station
    }
  }

  struct Input: Sendable {
    let signal: String
    /// Effect / answer, the same in every phase except those named.
    let outcome: String
    var but: [Phase: String] = [:]
  }
  static let notUnderstood = "05: 01 01 02 00 00 00"
  static let inputs = [
    // The request: in range, retransmitted, out of range in each field, too short, too long.
    Input(
      signal: "12 01 08 00 06 00 80 0C 00 00 80 0C", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: "requested 1: 6 3200 0 3200 / ", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 07 08 00 06 00 06 00 00 00 0A 00", outcome: "rejected 12 / 05: 01 07 02 00 00 00",
      but: [.central: "requested 7: 6 6 0 10 / ", .centralRaised: "unexpected 12 7 / "]),
    Input(
      signal: "12 01 08 00 05 00 06 00 00 00 0A 00", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 08 00 07 00 06 00 00 00 0A 00", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 08 00 06 00 81 0C 00 00 80 0C", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 08 00 06 00 06 00 F4 01 80 0C", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 08 00 06 00 06 00 00 00 09 00", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 08 00 06 00 06 00 00 00 81 0C", outcome: "rejected 12 / " + notUnderstood,
      but: [.central: " / 05: 13 01 02 00 01 00", .centralRaised: " / 05: 13 01 02 00 01 00"]),
    Input(
      signal: "12 01 07 00 06 00 06 00 00 00 0A",
      outcome: "malformed 12: truncated \"Timeout\": needed 2, available 1 / " + notUnderstood),
    Input(
      signal: "12 01 09 00 06 00 06 00 00 00 0A 00 00",
      outcome: "malformed 12: trailing: 1 octets after the last field / " + notUnderstood),
    Input(
      signal: "12 01 08 00", outcome: "malformed 12: wrong length \"Length\": 8, expected 0 / " + notUnderstood),
    // Two commands in one frame, which LE does not permit.
    Input(
      signal: "08 01 00 00 08 02 00 00",
      outcome: "malformed 08: wrong length \"Length\": 0, expected 4 / " + notUnderstood),
    // Responses.
    Input(
      signal: "13 01 02 00 00 00", outcome: "unexpected 13 1 / ", but: [.peripheralAwaiting: "ended: accepted / "]),
    Input(
      signal: "13 01 02 00 01 00", outcome: "unexpected 13 1 / ", but: [.peripheralAwaiting: "ended: rejected / "]),
    Input(
      signal: "13 01 02 00 07 00", outcome: "unexpected 13 1 / ", but: [.peripheralAwaiting: "ended: rejected / "]),
    Input(signal: "13 02 02 00 00 00", outcome: "unexpected 13 2 / "),
    Input(signal: "13 01 01 00 00", outcome: "malformed 13: truncated \"Result\": needed 2, available 1 / "),
    Input(
      signal: "01 01 02 00 00 00", outcome: "unexpected 01 1 / ",
      but: [.peripheralAwaiting: "ended: notUnderstood(BindruneL2CAP.RejectReason(rawValue: 0)) / "]),
    Input(signal: "01 02 02 00 00 00", outcome: "unexpected 01 2 / "),
    Input(signal: "01 01 00 00", outcome: "malformed 01: truncated \"Reason\": needed 2, available 0 / "),
    // Everything else: requests are rejected, the rest is ignored.
    Input(signal: "06 01 04 00 40 00 41 00", outcome: "rejected 06 / 05: 01 01 06 00 02 00 40 00 41 00"),
    Input(
      signal: "06 01 00 00",
      outcome: "malformed 06: truncated \"Destination CID\": needed 2, available 0 / " + notUnderstood),
    Input(
      signal: "14 01 0A 00 80 00 40 00 00 04 F7 00 10 00", outcome: "1 of 0x0080 requested 1: 1024 247 / "),
    Input(
      signal: "14 01 09 00 80 00 40 00 00 04 F7 00 10",
      outcome: "malformed 14: truncated \"Initial Credits\": needed 2, available 1 / " + notUnderstood),
    Input(
      signal: "17 01 0A 00 80 00 40 00 00 04 10 00 40 00", outcome: "1 enhanced of 0x0080 requested 1: 64 1024 / "),
    Input(
      signal: "17 01 08 00 80 00 40 00 00 04 10 00",
      outcome: "malformed 17: truncated \"Source CID\": needed 2, available 0 / " + notUnderstood),
    Input(
      signal: "17 01 0B 00 80 00 40 00 00 04 10 00 40 00 41",
      outcome: "malformed 17: truncated \"Source CID\": needed 2, available 1 / " + notUnderstood),
    Input(
      signal: "19 01 06 00 40 00 40 00 40 00", outcome: "reconfiguration refused 0x0003 / 05: 1A 01 02 00 03 00"),
    Input(signal: "02 01 00 00", outcome: "rejected 02 / " + notUnderstood),
    Input(signal: "0A 01 00 00", outcome: "rejected 0A / " + notUnderstood),
    Input(signal: "00 01 00 00", outcome: "rejected 00 / " + notUnderstood),
    Input(signal: "FF 01 00 00", outcome: "rejected FF / " + notUnderstood),
    Input(
      signal: "15 01 00 00", outcome: "malformed 15: truncated \"Destination CID\": needed 2, available 0 / "),
    Input(signal: "15 01 0A 00 41 00 17 00 17 00 00 00 00 00", outcome: "unexpected 15 1 / "),
    Input(signal: "07 01 04 00 40 00 41 00", outcome: "unexpected 07 1 / "),
    Input(signal: "18 01 0A 00 40 00 40 00 01 00 00 00 40 00", outcome: "unexpected 18 1 / "),
    Input(signal: "1A 01 02 00 00 00", outcome: "unexpected 1A 1 / "),
    Input(signal: "16 01 04 00 40 00 01 00", outcome: "credits 0x0040: 1 / "),
    Input(signal: "12 00 08 00 06 00 06 00 00 00 0A 00", outcome: "illegal identifier 12 / "),
    Input(signal: "13 00 02 00 00 00", outcome: "illegal identifier 13 / "),
    Input(
      signal: "08 01 14 00 " + String(repeating: "00 ", count: 20),
      outcome: "too long 5: 24 / 05: 01 01 04 00 01 00 17 00"),
    Input(signal: "09 01 14 00 " + String(repeating: "00 ", count: 20), outcome: "too long 5: 24 / "),
  ]

  @Test(arguments: inputs) func phaseByInput(_ input: Input) {
    for phase in Phase.allCases {
      let station = Self.station(phase)
      station.receive(signal: input.signal)
      let effects = station.effects().joined(separator: ", ")
      let ours = "05: 12 01 08 00 18 00 28 00 04 00 58 02"
      let sent = station.sent().filter { phase != .peripheralQueued || $0 != ours }
      #expect(
        effects + " / " + sent.joined(separator: ", ") == input.but[phase] ?? input.outcome,
        "\(input.signal) in \(phase)")
    }
  }

  @Test func centralAnswers() {
    for accepted in [true, false] {
      let station = Self.station(.centralRaised)
      #expect(!station.respond(6, accepted: accepted))
      #expect(station.respond(7, accepted: accepted))
      #expect(!station.respond(7, accepted: accepted))
      #expect(station.sent() == ["05: 13 07 02 00 0\(accepted ? 0 : 1) 00"])
      station.receive(signal: "12 08 08 00 06 00 06 00 00 00 0A 00")
      #expect(station.effects() == ["requested 8: 6 6 0 10"])
    }
  }

  @Test func requestsThatAreNotSent() {
    #expect(!Station(.central).request(Self.request))
    let station = Station(.peripheral)
    let other = ConnectionHandle(rawValue: 1)
    #expect(!station.request(Self.request, on: other))
    #expect(!station.respond(1, accepted: true, on: other))
    var wrong = Self.request
    wrong.intervalMin = ConnectionInterval(rawValue: 41)
    #expect(!station.request(wrong))
    // 5 × 40 × 2.5 ms is 500 ms: the timeout must be longer.
    wrong = ConnectionParameterUpdateRequest(
      intervalMin: ConnectionInterval(rawValue: 40), intervalMax: ConnectionInterval(rawValue: 40), latency: 4,
      timeout: SupervisionTimeout(rawValue: 50))
    #expect(!station.request(wrong))
    wrong.timeout = SupervisionTimeout(rawValue: 51)
    #expect(station.request(wrong))
    #expect(!station.request(Self.request))
    #expect(station.sent().count == 1 && station.effects() == [])
    #expect(!station.request(Self.request))
  }

  @Test func timeOut() {
    let station = Station(.peripheral)
    #expect(station.request(Self.request))
    #expect(station.deadline == nil)
    station.now += .seconds(5)
    #expect(station.sent().count == 1)
    #expect(station.deadline == Instant.zero + .seconds(35))
    station.layer.expire(link, now: Instant.zero + .milliseconds(34_999))
    #expect(station.effects() == [])
    station.layer.expire(link, now: Instant.zero + .seconds(35))
    station.layer.expire(link, now: Instant.zero + .seconds(36))
    #expect(station.effects() == ["ended: timedOut"] && station.deadline == nil)
    // The late answer belongs to nothing; the next request has another identifier.
    station.receive(signal: "13 01 02 00 00 00")
    #expect(station.effects() == ["unexpected 13 1"])
    #expect(station.request(Self.request))
    #expect(station.sent() == ["05: 12 02 08 00 18 00 28 00 04 00 58 02"])
    station.layer.close(link)
    station.layer.close(link)
    #expect(station.effects() == ["ended: linkClosed"] && station.deadline == nil)
  }

  @Test func identifiersRunFrom1To255() {
    let station = Station(.peripheral)
    var seen: [UInt8] = []
    for _ in 0..<300 {
      #expect(station.request(Self.request))
      let identifier = station.nextPacket()![10]
      seen.append(identifier)
      station.receive(frame(5, [0x13, identifier, 2, 0, 0, 0]))
    }
    #expect(seen == (0..<300).map { UInt8($0 % 255 + 1) })
    #expect(station.effects() == [String](repeating: "ended: accepted", count: 300).prefix(300).map { $0 })
  }

  /// Entries are found by identifier and by procedure; each ends once. Vol 3, Part A, §4.
  @Test func pendingRequests() {
    var pending = PendingSignals(), ended: [SignalProcedure?] = [], deadlines: [Instant?] = []
    ended.append(pending.end(1))
    ended.append(pending.endDue(now: .zero + .seconds(99)))
    pending.begin(.parameterUpdate, 9)
    let isNinePending = pending.contains(identifier: 9), isOnePending = pending.contains(identifier: 1)
    #expect(isNinePending && !isOnePending)
    deadlines.append(pending.deadline)
    pending.begin(.parameterUpdate, 1, deadline: .zero + .seconds(30))
    pending.begin(.parameterUpdate, 2, deadline: .zero + .seconds(20))
    deadlines.append(pending.deadline)
    ended.append(pending.endDue(now: .zero + .milliseconds(19_999)))
    #expect(ended == [nil, nil, nil])
    ended = [pending.endDue(now: .zero + .seconds(20)), pending.endDue(now: .zero + .seconds(20))]
    #expect(ended == [.parameterUpdate, nil])
    deadlines.append(pending.deadline)
    #expect(deadlines == [nil, .zero + .seconds(20), .zero + .seconds(30)])
    ended = [pending.end(1, of: .parameterUpdate), pending.end(1), pending.endDue(now: .zero + .seconds(99))]
    #expect(ended == [.parameterUpdate, nil, nil])
    let isPending = pending.contains(.parameterUpdate)
    ended = [pending.endFirst(), pending.endFirst()]
    let isStillPending = pending.contains(.parameterUpdate), count = pending.count
    #expect(isPending && ended == [.parameterUpdate, nil] && !isStillPending && count == 0)
  }

  /// A peer that sends requests and never accepts the answers cannot fill our memory.
  @Test func answersAreBounded() {
    let station = Station(.peripheral)
    for _ in 0..<20 { station.receive(signal: "08 01 00 00") }
    #expect(
      station.effects().map { String($0.prefix(8)) } == Array(repeating: "rejected", count: 8)
        + Array(repeating: "too many", count: 12))
    #expect(station.sent().count == 8)
  }

  /// A request that waits for the decision of the layer above counts as one of the eight answers.
  @Test func aRaisedRequestHasItsPlaceAmongTheAnswers() {
    let station = Station(.central)
    station.receive(signal: "12 09 08 00 18 00 28 00 00 00 C8 00")
    for _ in 0..<20 { station.receive(signal: "08 01 00 00") }
    let told = station.effects().map { String($0.prefix(8)) }
    #expect(told == ["requeste"] + Array(repeating: "rejected", count: 7) + Array(repeating: "too many", count: 13))
    #expect(station.respond(9, accepted: true))
    station.receive(signal: "08 01 00 00")
    #expect(station.effects() == ["too many 08"])
    let sent = station.sent()
    #expect(sent.count == 8 && sent.last == "05: 13 09 02 00 00 00")
  }
}

@Suite struct FuzzTests {
  /// Bad input into `receive` causes an effect, an answer, a payload, or nothing, never a trap; the link works
  /// afterwards.
  @Test func badInput() throws {
    var samples: [[UInt8]] = []
    for signal in SignalingTests.inputs { samples.append(aclPacket(frame(5, octets(signal.signal)))) }
    for pdu in ["0A 03 00", "1B 03 00 01 02 03", "02 17 00"] { samples.append(aclPacket(frame(4, octets(pdu)))) }
    samples.append(aclPacket(frame(6, octets("01 03 00 01 10 00 00"))))
    samples.append(aclPacket([UInt8](frame(4, [UInt8](repeating: 7, count: 300)).prefix(27))))
    samples.append(aclPacket([UInt8](repeating: 7, count: 277), 0b01))
    let central = Station(.central), peripheral = Station(.peripheral)
    var chance = SplitMix64(seed: Fuzz.seed)
    for packet in Fuzz(samples) {
      try receive(packet, into: central, &chance)
      try receive(packet, into: peripheral, &chance)
    }
  }

  private func receive(_ packet: [UInt8], into station: Station, _ chance: inout SplitMix64) throws {
    station.now += .milliseconds(10)
    do throws(WireError) { try station.deliver(packet) } catch { return }
    for _ in 0..<2 {
      if Bool.random(using: &chance) { _ = station.nextPacket(aclLength: .random(in: 1...100, using: &chance)) }
    }
    while let effect = station.layer.nextEffect() {
      switch effect {
      case .parameterUpdateRequested(let handle, let identifier, let request):
        #expect(request.isValid && handle == link)
        if Bool.random(using: &chance) { #expect(station.respond(identifier, accepted: true)) }
      case .channelsRequested(let handle, let identifier, let request):
        #expect((1...5).contains(request.count) && handle == link)
        let decision: ChannelDecision =
          Bool.random(using: &chance) ? .refused(.spsmNotSupported) : .accepted(ChannelSettings(mtu: 64, mps: 64))
        if Bool.random(using: &chance) {
          #expect(station.answer(identifier, decision) != nil)
        }
      case .channelOpened(let handle, let channel, _):
        if Bool.random(using: &chance) { #expect(handle == link && station.close(channel.rawValue)) }
      case .parameterUpdateEnded, .channelNotOpened, .channelClosed, .channelReconfigured, .reconfigurationEnded,
        .violation:
        break
      }
    }
    _ = station.request(SignalingTests.request)
    station.layer.expire(link, now: station.now)
    if Int.random(in: 0..<50, using: &chance) == 0 {
      station.upper.received = []
      station.upper.channels = []
      station.receive(RecombinationTests.whole)
      #expect(station.upper.received == [[0x0A, 0x03, 0x00]])
    }
    for (channel, payload) in zip(station.upper.channels, station.upper.received) {
      // An SDU may be empty.
      #expect((ChannelID.dynamic.contains(channel.rawValue) ? 0...64 : 1...517).contains(payload.count))
    }
    station.upper.received = []
    station.upper.channels = []
    station.upper.links = []
  }
}
