import BindruneATT
import BindruneWire
import TestSupport
import Testing

/// Each phase of a bearer × each kind of PDU.
@Suite struct BearerPhaseTests {
  enum Phase: CaseIterable {
    case idle, asking, exchanging
    case answering, answeringTwo, awaitingApplication, awaitingAndHolding
    case indicating, confirming, closed
  }
  /// What a station in that phase sends in any case.
  static let pending: [Phase: [String]] = [
    .answering: ["0B 01 00"], .answeringTwo: ["0B 01 00", "0B 02 00"], .confirming: ["1E"],
  ]
  static func station(_ phase: Phase) -> Station {
    let station = Station()
    switch phase {
    case .idle: break
    case .asking:
      station.client.requests = [[0x0A, 0x03, 0x00]]
      #expect(station.sent() == ["0A 03 00"])
    case .exchanging:
      #expect(station.exchangeMTU() && station.sent() == ["02 05 02"])
    case .answering: station.receive("0A 01 00")
    case .answeringTwo:
      station.receive("0A 01 00")
      station.receive("0A 02 00")
    case .awaitingApplication, .awaitingAndHolding:
      station.server.answersLater = true
      station.receive("0A 01 00")
      if phase == .awaitingAndHolding { station.receive("0A 02 00") }
    case .indicating: #expect(station.indicate([0x07]) == .queued && station.sent() == ["1D 03 00 07"])
    case .confirming: station.receive("1D 05 00 01")
    case .closed: station.close()
    }
    _ = station.events()
    return station
  }

  struct Input: Sendable {
    let pdu: String
    /// Calls and effects, then the PDUs sent.
    let outcome: String
    var but: [Phase: String] = [:]
  }
  /// An input that causes `events` and then `answer`.
  static func answered(_ pdu: String, _ events: [String], _ answer: String) -> Input {
    let opcode = pdu.prefix(2), isServed = events.first?.hasPrefix("server") == true
    func outcome(_ events: [String], _ answer: String = "") -> String {
      events.joined(separator: ", ") + " > " + answer
    }
    // A refused or dropped request does not reach the server.
    let unserved = isServed ? [] : events
    return Input(
      pdu: pdu, outcome: outcome(events, answer),
      but: [
        .answering: outcome(events + ["early \(opcode)"], answer),
        .answeringTwo: outcome(unserved + ["dropped \(opcode)"]),
        .awaitingApplication: outcome(unserved + ["early \(opcode)"]),
        .awaitingAndHolding: outcome(unserved + ["dropped \(opcode)"]),
      ])
  }
  static func request(_ pdu: String, _ response: String) -> Input { answered(pdu, ["server: \(pdu)"], response) }
  static func response(_ pdu: String, asking: String? = nil, exchanging: String? = nil) -> Input {
    let unexpected = "unexpected \(pdu.prefix(2)) >"
    return Input(
      pdu: pdu, outcome: unexpected, but: [.asking: asking ?? unexpected, .exchanging: exchanging ?? unexpected])
  }
  static func malformed(_ pdu: String, _ field: String) -> Input {
    let opcode = pdu.prefix(2)
    return answered(pdu, ["malformed \(opcode): \(field)"], "01 \(opcode) 00 00 04")
  }
  static func unknown(_ pdu: String) -> Input {
    answered(pdu, ["unknown \(pdu.prefix(2))"], "01 \(pdu.prefix(2)) 00 00 06")
  }
  static let inputs = [
    request("04 01 00 FF FF", "05 01 00 FF FF"), request("06 01 00 FF FF 00 28 0D 18", "07 01 00 FF FF 00 28 0D 18"),
    request("08 01 00 FF FF 03 28", "09 01 00 FF FF 03 28"), request("0A 03 00", "0B 03 00"),
    request("0C 03 00 16 00", "0D 03 00 16 00"), request("0E 03 00 05 00", "0F 03 00 05 00"),
    request("10 01 00 FF FF 00 28", "11 01 00 FF FF 00 28"), request("12 03 00 01", "13 03 00 01"),
    request("16 03 00 00 00 01", "17 03 00 00 00 01"), request("18 01", "19 01"),
    request("20 03 00 05 00", "21 03 00 05 00"),
    // The bearer itself answers Exchange MTU.
    answered("02 F7 00", [], "03 05 02, mtu 247"),
    // Responses.
    response("0B 01 02", asking: "client: 0B 01 02 >"), response("0B", asking: "client: 0B >"),
    response("01 0A 03 00 0A", asking: "client: error 0A 0A >", exchanging: "error for another 0A >"),
    response("01 02 00 00 06", asking: "error for another 02 >", exchanging: "mtu 23 >"),
    response("01 12 03 00 05", asking: "error for another 12 >", exchanging: "error for another 12 >"),
    response("03 F7 00", exchanging: "mtu 247 >"), response("03 00 10", exchanging: "mtu 517 >"),
    response("03 10 00", exchanging: "mtu too small 16, mtu 23 >"), response("05 01 01 00 00 28"),
    response("07 01 00 05 00"), response("09 03 01 00 07"), response("0D 01"), response("0F 01 02"),
    response("11 06 01 00 05 00 0D 18"), response("13"), response("17 03 00 00 00 01"), response("19"),
    response("21 01 00 07"),
    // Values.
    Input(pdu: "1B 03 00 01", outcome: "client: 1B 03 00 01 >"), Input(pdu: "1B 03 00", outcome: "client: 1B 03 00 >"),
    Input(pdu: "23 03 00 01 00 07", outcome: "client: 23 03 00 01 00 07 >"),
    Input(pdu: "1D 03 00 01", outcome: "client: 1D 03 00 01 > 1E", but: [.confirming: "early indication 3 >"]),
    Input(pdu: "1E", outcome: "unexpected confirmation >", but: [.indicating: "server: confirmed, confirmed >"]),
    // Commands.
    Input(pdu: "52 03 00 01", outcome: "server: 52 03 00 01 >"),
    Input(
      pdu: "D2 03 00 01 00 01 02 03 04 05 06 07 08 09 0A 0B",
      outcome: "server: D2 03 00 01 00 01 02 03 04 05 06 07 08 09 0A 0B >"),
    // Undefined opcodes.
    unknown("14"), unknown("1A 00"), unknown("1F"), unknown("22"),
    unknown("3F 00"), unknown("80"), unknown("92 03 00 01"),
    Input(pdu: "40", outcome: "unknown 40 >"), Input(pdu: "53 03 00 01", outcome: "unknown 53 >"),
    Input(pdu: "FF", outcome: "unknown FF >"),
    // PDUs that cannot be decoded.
    Input(pdu: "", outcome: "empty >"), malformed("0A", "Attribute Handle"), malformed("0A 03 00 00", ""),
    malformed("02 17", "Client Rx MTU"), malformed("0E 03 00", "Set Of Handles"),
    malformed("08 01 00 FF FF 03 28 00", "Attribute Type"),
    Input(
      pdu: "01 0A 03", outcome: "malformed 01: Attribute Handle In Error >"),
    Input(
      pdu: "03 17", outcome: "malformed 03: Server Rx MTU >",
      but: [.exchanging: "malformed 03: Server Rx MTU, mtu 23 >"]),
    Input(pdu: "05 03 01 00 00 28", outcome: "malformed 05: Format >"),
    Input(pdu: "09 01 00", outcome: "malformed 09: Length >"),
    Input(pdu: "1B 03", outcome: "malformed 1B: Attribute Handle >"),
    Input(pdu: "1D 03", outcome: "malformed 1D: Attribute Handle >"), Input(pdu: "1E 00", outcome: "malformed 1E:  >"),
    Input(pdu: "52 03", outcome: "malformed 52: Attribute Handle >"),
    Input(pdu: "D2 03 00 01", outcome: "malformed D2: Authentication Signature >"),
  ]

  @Test(arguments: inputs) func phaseByInput(_ input: Input) {
    for phase in Phase.allCases {
      let station = Self.station(phase)
      station.receive(input.pdu)
      let events = station.events()
      var sent = station.sent()
      for pdu in Self.pending[phase] ?? [] {
        if let index = sent.firstIndex(of: pdu) { sent.remove(at: index) } else { Issue.record("\(pdu) is lost") }
      }
      let outcome = events.joined(separator: ", ") + " > " + (sent + station.events()).joined(separator: ", ")
      let expected = phase == .closed ? ">" : input.but[phase] ?? input.outcome
      #expect(outcome.trimmed == expected.trimmed, "\(input.pdu) in \(phase)")
      // No input of a peer closes the bearer.
      #expect((station.closure == nil) == (phase != .closed))
    }
  }

  /// An answer that cannot be decoded ends the request too: it does not wait for the time-out of 30 s.
  @Test func malformedResponseEndsTheRequest() {
    let station = Station()
    station.client.requests = [octets("08 01 00 FF FF 03 28"), octets("0A 03 00")]
    #expect(station.sent().count == 1)
    station.receive("09 01 00")
    #expect(station.events() == ["client: error 08 04", "malformed 09: Length"])
    #expect(station.sent() == ["0A 03 00"])
    station.receive("09 01 00")
    #expect(station.events() == ["malformed 09: Length"])
    station.receive("0B 01")
    #expect(station.events() == ["client: 0B 01"] && station.client.completed == 2)
  }

  /// The bearer serves it when the first one is answered, and sends its response second: Vol 3, Part F, §3.3.2.
  @Test func secondRequestBehindTheApplication() {
    let station = Self.station(.awaitingAndHolding)
    #expect(station.sent() == [])
    station.receive("0A 03 00")
    #expect(station.events() == ["dropped 0A"])
    #expect(station.respond("0B 07"))
    #expect(station.events() == ["server: 0A 02 00"])
    #expect(station.sent() == ["0B 07"])
    #expect(station.respond("0B 08"))
    #expect(!station.respond("0B 09"))
    #expect(station.sent() == ["0B 08"])
    // The second of two may be the one that the application defers.
    station.server.answersLater = false
    station.receive("0A 01 00")
    station.server.answersLater = true
    station.receive("0A 02 00")
    #expect(station.sent() == ["0B 01 00"])
    #expect(station.respond("0B 02") && station.sent() == ["0B 02"])
    #expect(station.events() == ["server: 0A 01 00", "server: 0A 02 00", "early 0A"])
  }

  /// The bearer holds any request unchanged, and reports it once.
  @Test(arguments: [
    ("0A", "01 0A 00 00 04", "malformed 0A: Attribute Handle, early 0A >"),
    ("14", "01 14 00 00 06", "unknown 14, early 14 >"),
    ("02 F7 00", "03 05 02", "early 02 > mtu 247"), ("12 03 00 01", "13 03 00 01", "early 12 > server: 12 03 00 01"),
  ])
  func heldRequest(pdu: String, response: String, events: String) {
    let station = Self.station(.awaitingApplication)
    station.receive(pdu)
    let before = station.events()
    station.server.answersLater = false
    station.now += .seconds(25)
    station.expire()
    #expect(station.sent() == ["01 0A 00 00 0E", response])
    let after = station.events().filter { $0 != "answered for application: 0A 1" && $0 != "server: expired #1" }
    #expect((before.joined(separator: ", ") + " > " + after.joined(separator: ", ")).trimmed == events.trimmed)
  }

  /// A request longer than our greatest ATT_MTU is not held.
  @Test func tooLongToBeHeld() {
    let station = Station(mtu: 23)
    station.server.answersLater = true
    station.receive("0A 01 00")
    station.receive([0x12, 0x03, 0x00] + Array(repeating: 1, count: 21))
    #expect(station.respond("0B 07") && station.sent() == ["0B 07", "01 12 00 00 04"])
  }

  /// Vol 3, Part F, §3.2.8: no PDU is longer than ATT_MTU. The bearer reports a longer one, of any kind, once, and
  /// accepts it.
  @Test func longerThanTheMTU() {
    let station = Station()
    station.client.requests = [octets("0A 03 00")]
    #expect(station.sent() == ["0A 03 00"])
    let octets = [UInt8](repeating: 7, count: 21)
    for (pdu, taker, answers) in [
      ([0x12, 3, 0] + octets, "server", 1), ([0x52, 3, 0] + octets, "server", 0), ([0x1B, 3, 0] + octets, "client", 0),
      ([0x1D, 3, 0] + octets, "client", 1), ([0x0B, 3, 0] + octets, "client", 0),
    ] as [([UInt8], String, Int)] {
      station.receive(pdu)
      #expect(station.events() == ["\(taker): \(hex(pdu))", "longer \(hex([pdu[0]])): 24 of 23"])
      #expect(station.sent().count == answers)
    }
    #expect(station.client.completed == 1)
    // A held request is reported on arrival. PDUs of exactly the MTU's length are correct.
    station.server.answersLater = true
    station.receive("0A 01 00")
    station.receive([0x12, 3, 0] + octets)
    #expect(station.respond("0B 07"))
    #expect(station.events().filter { $0.hasPrefix("longer") } == ["longer 12: 24 of 23"])
    station.receive([0x1B, 3, 0] + octets.dropLast())
    #expect(station.events().count == 1)
  }

  /// Vol 3, Part F, §3.4.7.4: several values in one PDU, in order with the others.
  @Test func multipleHandleValueNotification() {
    let station = Station(mtu: 23)
    let tuples = octets("03 00 02 00 01 02 05 00 00 00 07 00 08 00 01 02 03 04 05 06 07 08")
    #expect(station.notify([9]) == .queued)
    #expect(station.bearer.offer(multiple: tuples.span) == .queued)
    #expect(station.notify([8]) == .queued)
    #expect(station.sent() == ["1B 03 00 09", "23 " + hex(tuples), "1B 03 00 08"])
    station.close()
    #expect(station.bearer.offer(multiple: tuples.span) == .closed)
  }

  @Test func onlyOneRequestIsOutstanding() {
    let station = Station()
    station.client.requests = [octets("0A 01 00"), octets("0A 02 00"), octets("0A 03 00")]
    for number in 1...3 {
      #expect(station.sent() == ["0A 0\(number) 00"] && station.sent() == [])
      station.receive("0B 0\(number)")
    }
    #expect(station.events() == ["client: 0B 01", "client: 0B 02", "client: 0B 03"])
  }

  @Test func orderOfWhatIsSent() {
    let station = Station()
    #expect(station.notify([1]) == .queued && station.write([2]) == .queued && station.indicate([3]) == .queued)
    station.client.requests = [octets("0A 09 00")]
    #expect(station.exchangeMTU())
    station.receive("1D 05 00 01")
    station.receive("0A 01 00")
    #expect(station.sent() == ["0B 01 00", "1E", "02 05 02"])
    station.receive("03 17 00")
    #expect(station.sent() == ["0A 09 00", "1B 03 00 01", "1D 03 00 03", "52 03 00 02"])
    #expect(station.indicate([4]) == .full)
    station.receive("1E")
    #expect(station.indicate([4]) == .queued && station.sent() == ["1D 03 00 04"])
  }

  /// The values of a service that is removed do not leave: another one may take its handles. What waits behind them
  /// has fewer before it.
  @Test func valuesOfARemovedServiceAreDropped() {
    let station = Station()
    station.server.answersLater = true
    station.receive("0A 05 00")
    #expect(station.notify([1]) == .queued && station.notify([2], 4) == .queued && station.notify([3]) == .queued)
    #expect(station.respond("0B 09"))
    #expect(station.notify([4]) == .queued && station.write([5]) == .queued && station.notify([6], 4) == .queued)
    #expect(!station.remove(3))
    // Commands go to the other device's attributes.
    #expect(station.sent() == ["1B 04 00 02", "0B 09", "52 03 00 05", "1B 04 00 06"])
    #expect(!station.remove(3) && station.sent() == [])

    // An indication, which waits for the notifications before it, and those after it.
    #expect(station.notify([1]) == .queued && station.indicate([2], 4) == .queued && station.notify([3]) == .queued)
    #expect(station.notify([4], 4) == .queued && station.indicate([5], 4) == .full)
    #expect(!station.remove(3) && station.sent() == ["1D 04 00 02", "1B 04 00 04"])
    station.receive("1E")
    #expect(station.notify([1], 4) == .queued && station.indicate([2]) == .queued && station.notify([3], 4) == .queued)
    station.receive("0A 06 00")
    #expect(station.respond("0B 0A"))
    // Service Changed stays.
    #expect(!station.remove(3, andIndication: false) && !station.bearer.canIndicate)
    #expect(station.remove(3) && station.bearer.canIndicate && station.indicate([7], 4) == .queued)
    #expect(station.sent() == ["1B 04 00 01", "1B 04 00 03", "0B 0A", "1D 04 00 07"])
    station.receive("1E")
    // One that has left is confirmed as any.
    #expect(station.indicate([8]) == .queued && station.sent() == ["1D 03 00 08"])
    #expect(!station.remove(3) && !station.bearer.canIndicate)
  }
  /// Vol 3, Part F, §3.4.7.4: two or more tuples.
  @Test func tuplesOfARemovedServiceAreDropped() {
    let station = Station(), one = "03 00 01 00 AA", two = "04 00 02 00 BB BC", three = "05 00 00 00"
    #expect(station.offer(multiple: "\(one) \(two)") == .queued && station.offer(multiple: "\(two) \(one)") == .queued)
    #expect(station.offer(multiple: "\(one) \(two) \(three)") == .queued)
    #expect(station.offer(multiple: "\(one) \(one)") == .queued && station.notify([], 3) == .queued)
    #expect(station.offer(multiple: "\(two) \(three)") == .queued)
    #expect(!station.remove(3))
    let single = "1B 04 00 BB BC", both = "23 \(two) \(three)"
    #expect(station.sent() == [single, single, both, both])
  }
  /// Random values for five attributes at every place of the ring: those of one of them go, the others keep their
  /// order.
  @Test(arguments: 0..<20) func anyValuesMayBeDropped(_ seed: UInt64) {
    var chance = SplitMix64(seed: seed), model: [(handle: UInt16, pdu: String)] = []
    let station = Station(queueCapacity: 600)
    for step in 0..<2000 {
      let handle = UInt16.random(in: 1...5, using: &chance)
      switch Int.random(in: 0..<16, using: &chance) {
      case 0:
        let wasFull = station.notify([UInt8](repeating: 0, count: 20), 9) == .full
        if !wasFull { model.append((9, "1B 09 00" + String(repeating: " 00", count: 20))) }
        #expect(!station.remove(handle))
        model.removeAll { $0.handle == handle && $0.pdu.hasPrefix("1B") }
      case 1..<9:
        let value = [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: Int.random(in: 0...20, using: &chance))
        let isCommand = Bool.random(using: &chance)
        guard (isCommand ? station.write(value, handle) : station.notify(value, handle)).isAccepted else { continue }
        model.append((handle, hex([isCommand ? 0x52 : 0x1B, UInt8(handle), 0] + value)))
      default: #expect(station.nextPDU().map { hex($0) } == (model.isEmpty ? nil : model.removeFirst().pdu))
      }
    }
    #expect(station.sent() == model.map(\.pdu))
  }
  /// Room that comes from what is dropped ends a refusal.
  @Test func droppedValuesMakeRoom() {
    let station = Station(queueCapacity: 528)
    while station.notify([UInt8](repeating: 1, count: 20)) == .queued {}
    #expect(station.effects() == [])
    #expect(!station.remove(3) && station.effects() == ["ready"])
    #expect(station.sent() == [])
  }

  @Test func unreadViolationsAreBounded() {
    let station = Station()
    for _ in 0..<10_000 { station.receive("0B") }
    #expect(station.events().count == 64)
  }
}
extension String {
  fileprivate var trimmed: String { split(separator: " ").joined(separator: " ") }
}

@Suite struct MTUTests {
  @Test(arguments: [
    (23, 517, 23), (517, 517, 517), (517, 100, 100), (100, 517, 100), (517, 22, 23), (517, 0xFFFF, 517),
    (1000, 1000, 517), (0, 50, 23),
  ])
  func lesserOfTheTwo(_ ours: Int, _ theirs: Int, _ inForce: Int) {
    let asked = Station(mtu: ours), theirsInHex = hex([UInt8(theirs & 0xFF), UInt8(theirs >> 8)])
    let offer = min(max(ours, 23), 517), offerInHex = hex([UInt8(offer & 0xFF), UInt8(offer >> 8)])
    asked.receive("02 " + theirsInHex)
    #expect(asked.mtu == 23, "not before the response is sent")
    #expect(asked.sent() == ["03 " + offerInHex] && asked.mtu == inForce)
    #expect(asked.events().last == "mtu \(inForce)")

    let asking = Station(mtu: ours)
    #expect(asking.exchangeMTU() && !asking.exchangeMTU())
    #expect(asking.sent() == ["02 " + offerInHex])
    asking.receive("03 " + theirsInHex)
    #expect(asking.mtu == inForce && asking.events().last == "mtu \(inForce)")
    #expect(!asking.exchangeMTU() && asking.sent() == [])
  }

  /// Vol 3, Part F, §3.4.2.2: PDUs sent before the response obey the old MTU, PDUs after it the new one.
  @Test func takesEffectAfterTheResponse() {
    let station = Station()
    #expect(station.notify([UInt8](repeating: 1, count: 30)) == .cut(to: 20))
    station.receive("02 64 00")
    #expect(station.notify([UInt8](repeating: 2, count: 30)) == .cut(to: 20))
    #expect(station.nextPDU() == [0x03, 0x05, 0x02])
    #expect(station.notify([UInt8](repeating: 3, count: 30)) == .queued)
    #expect(station.nextPDU()?.count == 23 && station.nextPDU()?.count == 23 && station.nextPDU()?.count == 33)
    station.receive([0x12, 3, 0] + [UInt8](repeating: 7, count: 90))
    #expect(station.nextPDU()?.count == 93)
    station.receive([0x12, 3, 0] + [UInt8](repeating: 7, count: 200))
    #expect(station.nextPDU()?.count == 100, "a response has room for exactly the MTU")
  }

  @Test func bothDirections() {
    let here = Station(mtu: 200)
    #expect(here.exchangeMTU() && here.sent() == ["02 C8 00"])
    here.receive("02 64 00")
    #expect(here.sent() == ["03 C8 00"] && here.mtu == 100)
    here.receive("03 64 00")
    #expect(here.mtu == 100 && here.events() == ["mtu 100", "mtu 100"])
    // A second request of the peer is answered and changes nothing; nor does a smaller MTU.
    here.receive("02 C8 00")
    #expect(here.events() == ["repeated MTU exchange"] && here.sent() == ["03 C8 00"] && here.mtu == 100)
    #expect(here.events() == [])
  }

  /// Vol 3, Part F, §3.4.2.2: neither notifications nor indications between our request and its answer.
  @Test(arguments: ["03 64 00", "01 02 00 00 06"]) func valuesWaitForTheAnswer(answer: String) {
    let station = Station()
    #expect(station.notify([1]) == .queued && station.indicate([2]) == .queued && station.exchangeMTU())
    #expect(station.sent() == ["02 05 02"])
    #expect(station.notify([3]) == .queued && station.sent() == [])
    // Answers and confirmations do not wait.
    station.receive("0A 01 00")
    station.receive("1D 07 00 01")
    #expect(station.sent() == ["0B 01 00", "1E"])
    station.receive(answer)
    #expect(station.sent() == ["1B 03 00 01", "1D 03 00 02", "1B 03 00 03"])
  }

  @Test func peerWithoutMTUExchange() {
    let station = Station()
    #expect(station.exchangeMTU() && station.sent().count == 1)
    station.client.requests = [octets("0A 01 00")]
    #expect(station.sent() == [])
    station.receive("01 02 00 00 06")
    #expect(station.events() == ["mtu 23"] && station.sent() == ["0A 01 00"])
  }

  /// The channel's MTU is the bearer's, at least 64 and at most what a PDU can use: Vol 3, Part G, §5.3.1.
  @Test(arguments: [(0, 64), (63, 64), (64, 64), (100, 100), (517, 517), (65_535, 517)])
  func mtuOfAnEnhancedBearer(_ channel: Int, _ mtu: Int) {
    let station = Station(mtu: 23, kind: .enhanced(mtu: channel))
    #expect(station.mtu == mtu && station.bearer.longestValue == min(mtu - 3, 512))
    // No exchange, from either side: Vol 3, Part G, §4.2.
    #expect(!station.exchangeMTU() && station.sent() == [])
    station.receive("02 05 02")
    #expect(station.events() == ["MTU exchange unsupported"] && station.sent() == ["01 02 00 00 06"])
    #expect(station.mtu == mtu)
    // Everything else is as on the other kind.
    station.receive("0A 01 00")
    #expect(station.events() == ["server: 0A 01 00"] && station.sent() == ["0B 01 00"])
    #expect(station.notify([UInt8](repeating: 7, count: 512)).isAccepted)
    #expect(station.nextPDU()?.count == min(mtu, 515))
  }
  /// The request waits while the application works on another one.
  @Test func enhancedBearerHoldsAnExchange() {
    let station = Station(kind: .enhanced(mtu: 64))
    station.server.answersLater = true
    station.receive("0A 01 00")
    station.receive("02 05 02")
    #expect(station.sent() == [])
    #expect(station.respond("0B AA"))
    #expect(station.sent() == ["0B AA", "01 02 00 00 06"] && station.mtu == 64)
  }
}

@Suite struct BearerTimeTests {
  @Test func requestTimesOut() {
    let station = Station()
    #expect(station.deadline == nil)
    station.client.requests = [octets("0A 01 00"), octets("0A 02 00")]
    station.now += .seconds(1)
    #expect(station.sent().count == 1)
    #expect(station.deadline == Instant.zero + .seconds(31))
    #expect(station.notify([1]) == .queued && station.indicate([2]) == .queued)
    station.now = Instant.zero + .milliseconds(30_999)
    station.expire()
    #expect(station.events() == [] && station.closure == nil)
    station.now = Instant.zero + .seconds(31)
    station.expire()
    station.expire()
    station.close()
    #expect(station.events() == ["client: timedOut", "indication failed: timedOut", "closed: timedOut"])
    #expect(station.closure == .timedOut && station.deadline == nil && station.client.completed == 2)
    // The bearer ignores PDUs and sends none.
    station.receive("0B 01")
    station.receive("0A 01 00")
    #expect(station.sent() == [] && station.events() == [])
    #expect(station.notify([1]) == .closed && station.write([1]) == .closed && station.indicate([1]) == .closed)
    #expect(!station.exchangeMTU() && !station.respond("0B"))
  }

  @Test func responseStopsTheClock() {
    let station = Station()
    station.client.requests = [octets("0A 01 00")]
    _ = station.sent()
    station.now += .seconds(29)
    station.receive("0B")
    #expect(station.deadline == nil)
    station.now += .seconds(29)
    station.expire()
    #expect(station.closure == nil && station.events() == ["client: 0B"])
  }

  @Test func indicationTimesOut() {
    let station = Station()
    #expect(station.indicate([7]) == .queued && station.deadline == nil)
    _ = station.sent()
    #expect(station.deadline == Instant.zero + .seconds(30))
    station.now += .seconds(30)
    station.expire()
    #expect(station.events() == ["client: timedOut", "indication failed: timedOut", "closed: timedOut"])
  }

  @Test func mtuExchangeTimesOut() {
    let station = Station()
    #expect(station.exchangeMTU() && station.sent().count == 1)
    station.now += .seconds(30)
    station.expire()
    #expect(station.events() == ["client: timedOut", "closed: timedOut"])
  }

  @Test func applicationIsAnsweredFor() {
    let station = Station()
    station.server.answersLater = true
    station.receive("0A 01 00")
    #expect(station.deadline == Instant.zero + .seconds(25))
    station.now += .seconds(25)
    station.expire()
    #expect(station.events() == ["server: 0A 01 00", "server: expired #1", "answered for application: 0A 1"])
    #expect(station.sent() == ["01 0A 00 00 0E"] && !station.respond("0B 07") && station.deadline == nil)
    station.receive("0A 02 00")
    #expect(station.respond("0B 07") && station.sent() == ["0B 07"])
  }

  /// An answer that comes too late does not answer the next request, which waits by then.
  @Test func lateAnswerToAnOlderRequest() {
    let station = Station()
    station.server.answersLater = true
    station.receive("0A 01 00")
    station.now += .seconds(25)
    station.expire()
    station.receive("0A 02 00")
    #expect(station.sent() == ["01 0A 00 00 0E"])
    #expect(!station.respond("0B 01", to: 1))
    #expect(station.sent() == [])
    #expect(station.respond("0B 02", to: 2) && station.sent() == ["0B 02"])
    // An answered request cannot be answered again, nor another bearer's request here.
    station.receive("0A 03 00")
    station.server.tickets.append(RequestTicket(bearer: BearerID(rawValue: 0x41), number: 3))
    #expect(!station.respond("0B 02", to: 2) && !station.respond("0B 04", to: 4))
    #expect(station.respond("0B 03", to: 3) && station.sent() == ["0B 03"])
    station.receive("0A 05 00")
    station.close()
    #expect(!station.respond("0B 05", to: 5))
  }

  /// However the first request ends, the bearer then serves the one that was held behind it.
  @Test func heldRequestFollowsEveryEnd() {
    let station = Station()
    station.server.answersLater = true
    station.receive("0A 01 00")
    station.receive("0A 02 00")
    station.now += .seconds(25)
    station.expire()
    #expect(
      station.events() == [
        "server: 0A 01 00", "server: expired #1", "server: 0A 02 00", "early 0A", "answered for application: 0A 1",
      ])
    #expect(station.deadline == station.now + .seconds(25))
    // With an answer that is kept, the request behind it waits for the release.
    station.receive("0A 03 00")
    #expect(station.sent() == ["01 0A 00 00 0E"])
    station.receive("0A 03 00")
    #expect(station.respond("0B 02", isKept: true) && station.sent() == [])
    #expect(station.events() == ["dropped 0A", "early 0A"])
    #expect(!station.respond("0B 02"))
    #expect(station.release() && !station.release())
    #expect(station.events() == ["server: 0A 03 00"] && station.sent() == ["0B 02"])
    // The bearer sends an answer that was kept for 25 s.
    station.receive("0A 04 00")
    #expect(station.respond("0B 03", isKept: true) && station.sent() == [])
    station.now += .seconds(25)
    station.expire()
    #expect(station.events() == ["server: 0A 04 00", "early 0A"] && station.sent() == ["0B 03"])
    #expect(station.respond("0B 04") && station.sent() == ["0B 04"])
  }

  @Test func closeFailsEverythingOnce() {
    let station = Station()
    station.client.requests = [octets("0A 01 00"), octets("0A 02 00")]
    _ = station.sent()
    station.receive("0A 01 00")
    #expect(station.indicate([1]) == .queued && station.notify([1]) == .queued)
    station.close()
    station.close()
    station.expire()
    #expect(
      station.events() == [
        "server: 0A 01 00", "client: disconnected", "indication failed: disconnected", "closed: disconnected",
      ])
    #expect(station.client.completed == 2 && station.sent() == [])
  }
}

@Suite struct BearerPairTests {
  /// Two bearers exchange PDUs with random delays. Every request ends exactly once, at most one is in flight each way,
  /// notifications arrive in order.
  @Test(arguments: 0..<100) func twoEnds(_ seed: UInt64) {
    var chance = SplitMix64(seed: seed)
    let ends = [Station(), Station(mtu: Int.random(in: 23...517, using: &chance))]
    var air: [[[UInt8]]] = [[], []], asked = [0, 0], sent = [0, 0], indications = [0, 0]
    for _ in 0..<2000 {
      let index = Int.random(in: 0...1, using: &chance), end = ends[index]
      end.now += .milliseconds(1)
      switch Int.random(in: 0..<8, using: &chance) {
      case 0:
        end.client.requests.append([0x0A, UInt8(asked[index] & 0xFF), UInt8(asked[index] >> 8)])
        asked[index] += 1
      case 1:
        let value = [UInt8(sent[index] & 0xFF), UInt8(sent[index] >> 8)]
        if end.notify(value).isAccepted { sent[index] += 1 }
      case 2: if end.indicate([9]).isAccepted { indications[index] += 1 }
      case 3: _ = end.exchangeMTU()
      case 4, 5: if let pdu = end.nextPDU() { air[index].append(pdu) }
      default: if !air[1 - index].isEmpty { end.receive(air[1 - index].removeFirst()) }
      }
      #expect(end.client.outstanding <= 1)
    }
    while true {
      var isQuiet = true
      for index in 0...1 {
        while let pdu = ends[index].nextPDU() { air[index].append(pdu) }
        for pdu in air[index] { ends[1 - index].receive(pdu) }
        if !air[index].isEmpty { isQuiet = false }
        air[index] = []
      }
      if isQuiet { break }
    }
    for index in 0...1 {
      #expect(ends[index].client.completed == asked[index])
      let answers = ends[index].client.log.filter { $0.hasPrefix("client: 0B") }
      #expect(answers == (0..<asked[index]).map { "client: 0B " + hex([UInt8($0 & 0xFF), UInt8($0 >> 8)]) })
      let values = ends[1 - index].client.log.filter { $0.hasPrefix("client: 1B") }
      #expect(values == (0..<sent[index]).map { "client: 1B 03 00 " + hex([UInt8($0 & 0xFF), UInt8($0 >> 8)]) })
      #expect(ends[1 - index].client.log.filter { $0.hasPrefix("client: 1D") }.count == indications[index])
      #expect(ends[index].effects().allSatisfy { $0 == "confirmed" || $0.hasPrefix("mtu") || $0 == "ready" })
    }
    #expect(ends[0].mtu == ends[1].mtu)
  }
}

@Suite struct BearerFuzzTests {
  /// Bad input into `receive` causes a call, an answer, an effect or nothing, never a trap; every request of ours ends
  /// at most once, and the bearer answers afterwards.
  @Test func badInput() {
    let samples = BearerPhaseTests.inputs.map { octets($0.pdu) }.filter { !$0.isEmpty }
    var station = Station(mtu: 64, queueCapacity: 1024), chance = SplitMix64(seed: Fuzz.seed), asked = 0
    for packet in Fuzz(samples) {
      station.server.answersLater = Int.random(in: 0..<4, using: &chance) == 0
      if station.client.requests.count < 3 {
        station.client.requests.append(octets("0A 03 00"))
        asked += 1
      }
      _ = station.notify([UInt8](repeating: 1, count: Int.random(in: 0...80, using: &chance)))
      _ = station.indicate([1])
      _ = station.exchangeMTU()
      for _ in 0..<Int.random(in: 0...3, using: &chance) { _ = station.nextPDU() }
      station.receive(packet)
      if Bool.random(using: &chance) { _ = station.respond("0B 07") }
      station.now += .milliseconds(Int.random(in: 0...200, using: &chance))
      station.expire()
      #expect((0...1).contains(station.client.outstanding) && (23...64).contains(station.mtu))
      for effect in station.effects() { #expect(effect != "closed: timedOut" || station.closure == .timedOut) }
      station.client.log = []
      station.server.log = []
      if station.closure != nil {
        #expect(station.nextPDU() == nil && station.client.completed == asked)
        station = Station(mtu: 64, queueCapacity: 1024)
        asked = 0
      } else if Int.random(in: 0..<50, using: &chance) == 0 {
        _ = station.respond("0B 07")
        _ = station.sent()
        _ = station.respond("0B 07")
        _ = station.sent()
        station.server.answersLater = false
        station.receive("0A 01 00")
        #expect(station.server.log == ["server: 0A 01 00"] && station.sent().first == "0B 01 00")
      }
    }
  }
}
