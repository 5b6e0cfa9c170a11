import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

/// Opening, reconfiguring and closing credit-based channels: the octets are those of the layouts in Vol 3, Part A,
/// §4.6, §4.7 and §4.22 … §4.28.
@Suite struct ChannelProcedureTests {
  static let spsm = SPSM(rawValue: 0x0080)
  static let settings = ChannelSettings(mtu: 512, mps: 247)
  static let first = ChannelID(rawValue: 0x0040)

  // MARK: We ask

  @Test(arguments: [LinkRole.central, .peripheral]) func weOpenAChannel(_ role: LinkRole) throws {
    let station = Station(role)
    let list = try station.openChannel()
    #expect(list.count == 1 && list[0] == Self.first)
    // 512 octets and their length are three K-frames of 247: six credits.
    #expect(station.sent() == ["05: 14 01 0A 00 80 00 40 00 00 02 F7 00 06 00"])
    // Before it is open, nothing may be sent, and nothing is received.
    station.upper.others[0x40] = [[1, 2, 3]]
    station.receive(frame(0x40, [1, 0, 7]))
    #expect(station.sent() == [] && station.effects() == ["unknown channel 64"])
    station.receive(signal: "15 01 0A 00 41 00 00 01 64 00 02 00 00 00")
    #expect(station.effects() == ["open 0x0040: 256"])
    #expect(station.sent() == ["41: 03 00 01 02 03"])
    station.receive(frame(0x40, [1, 0, 7]))
    #expect(station.upper.received == [[7]] && station.upper.channels == [Self.first])
  }

  static let refusals: [(String, String, String)] =
    [2, 4, 5, 6, 7, 8, 9, 0xA, 0xB].map { (result: UInt8) in
      let number = hex([result])
      return (
        "15 01 0A 00 00 00 00 00 00 00 00 00 \(number) 00", "not open 0x0040: refused 0x00\(number)", ""
      )
    } + [
      // Reserved.
      ("15 01 0A 00 41 00 00 01 64 00 02 00 77 77", "not open 0x0040: refused 0x7777", ""),
      // Numbers that LE-U does not have: §2.1.
      ("15 01 0A 00 3F 00 00 01 64 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15", ""),
      ("15 01 0A 00 80 00 00 01 64 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15", ""),
      ("15 01 0A 00 00 00 00 01 64 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15", ""),
      // MTU and MPS below 23, MPS above 65,533: the peer believes the channel open.
      (
        "15 01 0A 00 41 00 16 00 64 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15",
        "05: 06 02 04 00 41 00 40 00"
      ),
      (
        "15 01 0A 00 41 00 17 00 16 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15",
        "05: 06 02 04 00 41 00 40 00"
      ),
      (
        "15 01 0A 00 41 00 17 00 00 00 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15",
        "05: 06 02 04 00 41 00 40 00"
      ),
      (
        "15 01 0A 00 41 00 17 00 FE FF 02 00 00 00", "not open 0x0040: invalidResponse, invalid response 15",
        "05: 06 02 04 00 41 00 40 00"
      ),
      // Rejects: §4.1.
      ("01 01 02 00 00 00", "not open 0x0040: not understood 0x0000", ""),
      ("01 01 04 00 01 00 17 00", "not open 0x0040: not understood 0x0001", ""),
    ]
  @Test(arguments: refusals) func theyRefuse(_ signal: String, _ told: String, _ sent: String) throws {
    let station = Station(.central)
    _ = try station.openChannel()
    _ = station.sent()
    station.receive(signal: signal)
    #expect(station.effects().joined(separator: ", ") == told && station.sent().joined(separator: ", ") == sent)
    // Another answer belongs to nothing.
    station.receive(signal: signal)
    #expect(station.effects() == ["unexpected \(signal.prefix(2)) 1"] && station.sent() == [])
  }
  /// Least and greatest values.
  @Test(arguments: ["41 00 17 00 17 00 00 00", "7F 00 FF FF FD FF FF FF"]) func valuesAtTheLimits(_ values: String)
    throws
  {
    let station = Station(.central)
    _ = try station.openChannel()
    _ = station.sent()
    station.receive(signal: "15 01 0A 00 \(values) 00 00")
    #expect(station.effects().first?.hasPrefix("open 0x0040") == true && station.sent() == [])
  }
  /// The peer gives one number twice.
  @Test func aNumberOfThePeerThatIsTaken() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x0041)
    _ = try station.openChannel()
    #expect(station.sent() == ["05: 14 02 0A 00 80 00 41 00 00 02 F7 00 06 00"])
    station.receive(signal: "15 02 0A 00 41 00 00 01 64 00 02 00 00 00")
    #expect(station.effects() == ["not open 0x0041: invalidResponse", "invalid response 15"] && station.sent() == [])
  }

  @Test func responsesToOtherRequests() throws {
    let station = Station(.central)
    _ = try station.openChannel()
    _ = station.sent()
    for signal in [
      "15 02 0A 00 41 00 00 01 64 00 02 00 00 00", "18 01 0A 00 00 01 64 00 02 00 00 00 41 00",
      "07 01 04 00 41 00 40 00",
      "1A 01 02 00 00 00", "13 01 02 00 00 00",
    ] {
      station.receive(signal: signal)
      #expect(station.effects().first?.hasPrefix("unexpected \(signal.prefix(2))") == true)
    }
    station.receive(signal: "15 01 0A 00 41 00 00 01 64 00 02 00 00 00")
    #expect(station.effects() == ["open 0x0040: 256"])
  }

  /// Vol 3, Part A, §6.2.1.
  @Test func nobodyAnswers() throws {
    let station = Station(.central)
    _ = try station.openChannel()
    #expect(station.deadline == nil)
    _ = station.sent()
    #expect(station.deadline == Instant.zero + .seconds(30))
    station.layer.expire(link, now: Instant.zero + .milliseconds(29_999))
    #expect(station.effects() == [])
    station.layer.expire(link, now: Instant.zero + .seconds(30))
    #expect(station.effects() == ["not open 0x0040: timedOut"] && station.deadline == nil)
    station.receive(signal: "15 01 0A 00 41 00 00 01 64 00 02 00 00 00")
    #expect(station.effects() == ["unexpected 15 1"])
  }
  /// The application gives up between the request and the response: a late success is disconnected.
  @Test func weGiveUp() throws {
    let station = Station(.central)
    _ = try station.openChannel()
    _ = station.sent()
    #expect(station.close(0x40) && !station.close(0x40))
    #expect(station.effects() == ["not open 0x0040: closedHere"] && station.sent() == [])
    // Its number is not free before the peer has answered.
    #expect(try station.openChannel()[0] == ChannelID(rawValue: 0x0041))
    _ = station.sent()
    station.receive(signal: "15 01 0A 00 41 00 00 01 64 00 02 00 00 00")
    #expect(station.effects() == [] && station.sent() == ["05: 06 03 04 00 41 00 40 00"])
    station.receive(signal: "07 03 04 00 41 00 40 00")
    #expect(try station.openChannel()[0] == Self.first)
    // A request that has not left is not sent.
    _ = station.sent()
    _ = try station.openChannel()
    #expect(station.close(0x42) && station.sent() == [] && station.effects() == ["not open 0x0042: closedHere"])
    #expect(station.layer.deadline(of: link) != nil)
  }

  @Test func requestsThatAreNotSent() throws {
    let station = Station(.central)
    func refusal(
      _ spsm: UInt16 = 0x80, _ settings: ChannelSettings = Self.settings, count: Int = 1, isEnhanced: Bool = false,
      on handle: ConnectionHandle = link
    ) -> ChannelRefusal? {
      do throws(ChannelRefusal) {
        _ = try station.layer.openChannels(
          handle, SPSM(rawValue: spsm), settings, count: count, isEnhanced: isEnhanced, now: station.now)
        return nil
      } catch { return error }
    }
    #expect(refusal(on: ConnectionHandle(rawValue: 1)) == .notOpen)
    #expect(refusal(0) == .invalidParameters && refusal(0x100) == .invalidParameters)
    for (mtu, mps) in [(22, 23), (23, 22), (23, 65_534)] {
      #expect(refusal(0x80, ChannelSettings(mtu: UInt16(mtu), mps: UInt16(mps))) == .invalidParameters)
    }
    for (mtu, mps) in [(63, 64), (64, 63), (64, 65_534)] {
      let settings = ChannelSettings(mtu: UInt16(mtu), mps: UInt16(mps))
      #expect(refusal(0x80, settings, isEnhanced: true) == .invalidParameters)
    }
    for count in [0, 2] { #expect(refusal(count: count) == .invalidParameters) }
    for count in [0, 6] { #expect(refusal(count: count, isEnhanced: true) == .invalidParameters) }
    #expect(station.sent() == [])
    for _ in 0..<11 { #expect(refusal(count: 5, isEnhanced: true) == nil) }
    #expect(refusal(count: 2, isEnhanced: true) == .noFreeChannel && refusal() == nil && refusal() == .noFreeChannel)
    #expect(station.sent().count == 12)
  }

  // MARK: Enhanced

  @Test func weOpenFive() throws {
    let station = Station(.peripheral)
    let list = try station.openChannel(count: 5, isEnhanced: true)
    #expect((0..<5).map { list[$0].rawValue } == [0x40, 0x41, 0x42, 0x43, 0x44])
    #expect(station.sent() == ["05: 17 01 12 00 80 00 00 02 F7 00 06 00 40 00 41 00 42 00 43 00 44 00"])
    // Of five, three are accepted.
    station.receive(signal: "18 01 12 00 00 01 64 00 02 00 04 00 50 00 00 00 51 00 00 00 52 00")
    #expect(
      station.effects() == [
        "open 0x0040: 256", "not open 0x0041: refused 0x0004", "open 0x0042: 256", "not open 0x0043: refused 0x0004",
        "open 0x0044: 256",
      ])
    station.upper.others[0x42] = [[9]]
    #expect(station.sent() == ["51: 01 00 09"])
    #expect(try station.openChannel()[0] == ChannelID(rawValue: 0x0041))
  }
  static let enhancedResponses: [(String, [String], [String])] = [
    // All refused, with and without a list.
    (
      "18 01 0C 00 00 00 00 00 00 00 02 00 00 00 00 00",
      ["not open 0x0040: refused 0x0002", "not open 0x0041: refused 0x0002"], []
    ),
    (
      "18 01 08 00 00 00 00 00 00 00 0C 00", ["not open 0x0040: refused 0x000C", "not open 0x0041: refused 0x000C"], []
    ),
    // A refusal of all does not open one.
    (
      "18 01 0C 00 00 01 64 00 02 00 05 00 50 00 51 00",
      ["not open 0x0040: refused 0x0005", "not open 0x0041: refused 0x0005"], []
    ),
    // Success that opens one of two, or none.
    (
      "18 01 0C 00 00 01 64 00 02 00 00 00 50 00 00 00",
      ["open 0x0040: 256", "not open 0x0041: invalidResponse", "invalid response 18"], []
    ),
    (
      "18 01 08 00 00 01 64 00 02 00 00 00",
      ["not open 0x0040: invalidResponse", "not open 0x0041: invalidResponse", "invalid response 18"], []
    ),
    // One number twice: neither channel may be used. One outside the range; one too many.
    (
      "18 01 0C 00 00 01 64 00 02 00 00 00 50 00 50 00",
      [
        "open 0x0040: 256", "closed 0x0040: invalidResponse", "not open 0x0041: invalidResponse",
        "invalid response 18",
      ],
      ["05: 06 02 04 00 50 00 40 00"]
    ),
    (
      "18 01 0C 00 00 01 64 00 02 00 00 00 05 00 50 00",
      ["not open 0x0040: invalidResponse", "open 0x0041: 256", "invalid response 18"], []
    ),
    (
      "18 01 0E 00 00 01 64 00 02 00 00 00 50 00 51 00 52 00",
      ["open 0x0040: 256", "open 0x0041: 256", "invalid response 18"], []
    ),
    // MTU and MPS below 64.
    (
      "18 01 0C 00 3F 00 64 00 02 00 00 00 50 00 51 00",
      ["not open 0x0040: invalidResponse", "not open 0x0041: invalidResponse", "invalid response 18"],
      ["05: 06 02 04 00 50 00 40 00", "05: 06 03 04 00 51 00 41 00"]
    ),
    (
      "18 01 0C 00 40 00 3F 00 02 00 04 00 50 00 00 00",
      ["not open 0x0040: invalidResponse", "not open 0x0041: refused 0x0004", "invalid response 18"],
      ["05: 06 02 04 00 50 00 40 00"]
    ),
    (
      "01 01 02 00 00 00", ["not open 0x0040: not understood 0x0000", "not open 0x0041: not understood 0x0000"], []
    ),
  ]
  @Test(arguments: enhancedResponses) func enhancedResponse(_ signal: String, _ told: [String], _ sent: [String]) throws
  {
    let station = Station(.central)
    _ = try station.openChannel(count: 2, isEnhanced: true)
    _ = station.sent()
    station.receive(signal: signal)
    #expect(station.effects() == told && station.sent() == sent)
  }
  /// Results 0x000D … 0x000F announce another response, for ERTX = 300 s, once: Vol 3, Part A, §6.2.2.
  @Test func pendingConnections() throws {
    for result in ["0D", "0E", "0F"] {
      let station = Station(.central)
      _ = try station.openChannel(count: 2, isEnhanced: true)
      _ = station.sent()
      station.now += .seconds(29)
      station.receive(signal: "18 01 0C 00 00 00 00 00 00 00 \(result) 00 00 00 00 00")
      #expect(station.deadline == Instant.zero + .seconds(329) && station.effects() == [])
      station.now += .seconds(200)
      station.receive(signal: "18 01 0C 00 00 00 00 00 00 00 \(result) 00 00 00 00 00")
      #expect(station.deadline == Instant.zero + .seconds(329))
      if result == "0D" {
        station.receive(signal: "18 01 0C 00 00 01 64 00 02 00 00 00 50 00 51 00")
        #expect(station.effects() == ["open 0x0040: 256", "open 0x0041: 256"] && station.deadline == nil)
      } else {
        station.layer.expire(link, now: Instant.zero + .seconds(329))
        #expect(station.effects() == ["not open 0x0040: timedOut", "not open 0x0041: timedOut"])
      }
    }
  }

  // MARK: They ask

  @Test(arguments: [LinkRole.central, .peripheral]) func theyOpenAChannel(_ role: LinkRole) {
    let station = Station(role)
    station.receive(signal: "14 07 0A 00 80 00 55 00 00 01 64 00 02 00")
    #expect(station.effects() == ["1 of 0x0080 requested 7: 256 100"] && station.sent() == [])
    #expect(station.answer(6, .accepted(Self.settings)) == nil)
    #expect(station.answer(7, .accepted(Self.settings)) == [0x40])
    #expect(station.answer(7, .accepted(Self.settings)) == nil)
    #expect(station.effects() == ["open 0x0040: 256"])
    // The response leaves before the first K-frame, although the other channel has the turn.
    station.upper.others[0x40] = [[1], [2]]
    station.upper.outgoing[link] = [[0x0B, 1]]
    #expect(
      station.sent() == [
        "04: 0B 01", "05: 15 07 0A 00 40 00 00 02 F7 00 06 00 00 00", "55: 01 00 01", "55: 01 00 02",
      ])
  }
  @Test(arguments: [
    ChannelResult.spsmNotSupported, .noResources, .insufficientAuthentication, .insufficientAuthorization,
    .encryptionKeySizeTooShort, .insufficientEncryption,
  ]) func theLayerAboveRefuses(_ result: ChannelResult) {
    let station = Station(.central), number = hex([UInt8(result.rawValue)])
    station.receive(signal: "14 07 0A 00 80 00 55 00 00 01 64 00 02 00")
    #expect(station.answer(7, .refused(result)) == [])
    #expect(station.sent() == ["05: 15 07 0A 00 00 00 00 00 00 00 00 00 \(number) 00"])
    station.receive(signal: "17 08 0C 00 80 00 00 01 64 00 02 00 55 00 56 00")
    #expect(station.answer(8, .refused(result)) == [])
    #expect(station.sent() == ["05: 18 08 0C 00 00 00 00 00 00 00 \(number) 00 00 00 00 00"])
    #expect(station.effects() == ["1 of 0x0080 requested 7: 256 100", "2 enhanced of 0x0080 requested 8: 256 100"])
    // The numbers of both sides are free.
    station.receive(signal: "14 09 0A 00 80 00 55 00 00 01 64 00 02 00")
    #expect(station.answer(9, .accepted(Self.settings)) == [0x40])
  }
  static let refusedByUs: [(String, String)] = [
    // MTU, MPS; source CID 0x0039, 0x0000, 0x0080, 0x0004.
    ("14 01 0A 00 80 00 55 00 16 00 17 00 00 00", "0B"), ("14 01 0A 00 80 00 55 00 00 00 17 00 00 00", "0B"),
    ("14 01 0A 00 80 00 55 00 17 00 16 00 00 00", "0B"), ("14 01 0A 00 80 00 55 00 17 00 00 00 00 00", "0B"),
    ("14 01 0A 00 80 00 55 00 17 00 FE FF 00 00", "0B"), ("14 01 0A 00 80 00 3F 00 17 00 17 00 00 00", "09"),
    ("14 01 0A 00 80 00 00 00 17 00 17 00 00 00", "09"), ("14 01 0A 00 80 00 80 00 17 00 17 00 00 00", "09"),
    ("14 01 0A 00 80 00 04 00 17 00 17 00 00 00", "09"), ("14 01 0A 00 80 00 50 00 17 00 17 00 00 00", "0A"),
    ("17 01 0A 00 80 00 3F 00 40 00 01 00 55 00", "0C"), ("17 01 0A 00 80 00 40 00 3F 00 01 00 55 00", "0C"),
    ("17 01 0A 00 80 00 40 00 FE FF 01 00 55 00", "0C"), ("17 01 0A 00 80 00 40 00 40 00 01 00 3F 00", "09"),
    ("17 01 0A 00 80 00 40 00 40 00 01 00 50 00", "0A"),
  ]
  @Test(arguments: refusedByUs) func weRefuse(_ signal: String, _ result: String) {
    let station = Station(.central)
    station.openIncoming(peer: 0x50)
    station.receive(signal: signal)
    let answer =
      signal.hasPrefix("14")
      ? "15 01 0A 00 00 00 00 00 00 00 00 00 \(result) 00" : "18 01 0A 00 00 00 00 00 00 00 \(result) 00 00 00"
    #expect(station.sent() == ["05: " + answer])
    #expect(station.effects() == ["channels refused 0x00\(result)"])
  }
  /// Each of an enhanced request is judged; one that occurs twice is allocated the first time.
  @Test func weRefuseSome() {
    let station = Station(.central)
    station.openIncoming(peer: 0x50)
    station.receive(signal: "17 08 12 00 80 00 00 01 64 00 02 00 51 00 51 00 52 00 50 00 05 00")
    #expect(station.effects() == ["channels refused 0x000A", "2 enhanced of 0x0080 requested 8: 256 100"])
    #expect(station.answer(8, .accepted(Self.settings)) == [0x41, 0x42])
    #expect(station.sent() == ["05: 18 08 12 00 00 02 F7 00 06 00 0A 00 41 00 00 00 42 00 00 00 00 00"])
    #expect(station.effects() == ["open 0x0041: 256", "open 0x0042: 256"])
  }
  /// The layer above opens fewer than were asked for.
  @Test func fewerThanAskedFor() {
    let station = Station(.central)
    station.receive(signal: "17 08 0E 00 27 00 00 01 64 00 02 00 51 00 52 00 53 00")
    #expect(station.answer(8, .accepted(Self.settings, atMost: 1)) == [0x40])
    #expect(station.sent() == ["05: 18 08 0E 00 00 02 F7 00 06 00 04 00 40 00 00 00 00 00"])
    station.receive(signal: "17 09 0C 00 27 00 00 01 64 00 02 00 52 00 53 00")
    #expect(station.answer(9, .accepted(Self.settings, atMost: 0)) == [])
    #expect(station.sent() == ["05: 18 09 0C 00 00 00 00 00 00 00 04 00 00 00 00 00"])
  }
  /// Settings that are for LE channels only: the peer chooses which kind of request it sends, §4.25.
  @Test func settingsForTheOtherKind() {
    let station = Station(.central), settings = ChannelSettings(mtu: 23, mps: 23)
    station.receive(signal: "17 08 0C 00 80 00 00 01 64 00 02 00 51 00 52 00")
    #expect(station.answer(8, .accepted(settings)) == [])
    #expect(station.sent() == ["05: 18 08 0C 00 00 00 00 00 00 00 04 00 00 00 00 00"])
    station.receive(signal: "14 09 0A 00 80 00 51 00 00 01 64 00 02 00")
    #expect(station.answer(9, .accepted(settings)) == [0x40])
  }
  @Test func allNumbersInUse() {
    let station = Station(.central)
    for number in 0..<56 { station.openIncoming(peer: 0x40 + number) }
    #expect(station.effects() == [])
    station.receive(signal: "14 01 0A 00 80 00 78 00 17 00 17 00 00 00")
    #expect(station.sent() == ["05: 15 01 0A 00 00 00 00 00 00 00 00 00 04 00"])
    station.receive(signal: "06 02 04 00 77 00 77 00")
    _ = station.effects()
    #expect(station.sent() == ["05: 07 02 04 00 77 00 77 00"])
    station.receive(signal: "17 03 0C 00 80 00 40 00 40 00 01 00 78 00 79 00")
    #expect(station.answer(3, .accepted(Self.settings)) == [0x77])
    #expect(station.sent() == ["05: 18 03 0C 00 00 02 F7 00 06 00 04 00 77 00 00 00"])
  }
  /// A request with an identifier that is pending is a repetition: §4, §6.2.1.
  @Test func repeatedRequests() {
    let station = Station(.central)
    for _ in 0..<20 { station.receive(signal: "17 08 0C 00 80 00 00 01 64 00 02 00 51 00 52 00") }
    #expect(
      station.effects() == ["2 enhanced of 0x0080 requested 8: 256 100"]
        + Array(repeating: "unexpected 17 8", count: 19))
  }
  /// 64 at once: as many as there are channels await the layer above, and none of them is lost.
  @Test func manyRequestsAtOnce() {
    let station = Station(.central)
    for number in UInt8(1)...64 {
      station.receive(frame(5, [0x14, number, 10, 0, 0x80, 0, 0x3F + number, 0, 23, 0, 23, 0, 0, 0]))
    }
    let told = station.effects().map { String($0.prefix(8)) }
    #expect(told == Array(repeating: "1 of 0x0", count: 56) + Array(repeating: "too many", count: 8))
    for number in UInt8(1)...56 { #expect(station.answer(number, .refused(.spsmNotSupported)) == []) }
    // The controller takes no packet: what waits is limited.
    station.receive(frame(5, [0x14, 99, 10, 0, 0x80, 0, 0x40, 0, 23, 0, 23, 0, 0, 0]))
    #expect(station.effects() == ["too many 14"] && station.sent().count == 56)
  }

  // MARK: Disconnection

  @Test func wedisconnect() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    #expect(station.close(0x40) && !station.close(0x40) && !station.close(0x04))
    #expect(station.sent() == ["05: 06 02 04 00 55 00 40 00"])
    // Frames and credits of a closing channel are ignored; its number is not free.
    station.receive(frame(0x40, [3, 0, 1]))
    station.receive(signal: "16 01 04 00 55 00 FF FF")
    #expect(station.effects() == [] && station.upper.received == [] && station.sent() == [])
    _ = try station.openChannel()
    #expect(station.sent() == ["05: 14 03 0A 00 80 00 41 00 00 02 F7 00 06 00"])
    // A response whose numbers do not match is discarded: §4.7.
    for wrong in [
      "07 02 04 00 56 00 40 00", "07 02 04 00 55 00 41 00", "07 01 04 00 55 00 40 00", "07 03 04 00 55 00 40 00",
    ] {
      station.receive(signal: wrong)
      #expect(station.effects().first?.hasPrefix("unexpected 07") == true)
    }
    // The peer has got everything, which shows the answer.
    station.receive(signal: "07 02 04 00 55 00 40 00")
    #expect(station.effects() == ["closed 0x0040: closedHere"])
    #expect(try station.openChannel()[0] == Self.first)
  }
  @Test(arguments: ["01 02 06 00 02 00 55 00 40 00", ""]) func theirAnswerToOurDisconnection(_ signal: String) throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    #expect(station.close(0x40))
    _ = station.sent()
    if signal.isEmpty {
      station.layer.expire(link, now: Instant.zero + .seconds(30))
    } else {
      station.receive(signal: signal)
    }
    let reason = signal.isEmpty ? "timedOut" : "closedHere"
    #expect(station.effects() == ["closed 0x0040: \(reason)"] && station.deadline == nil)
    #expect(try station.openChannel()[0] == Self.first)
  }
  /// The same identifier, and the numbers in the order of the request: §4.7.
  @Test func theyDisconnect() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    station.upper.others[0x40] = [[UInt8](repeating: 1, count: 250)]
    #expect(station.nextPacket()?.count == 109)
    // Unknown to us: invalid CID. Known with another number of the peer: discarded (§4.6).
    station.receive(signal: "06 09 04 00 41 00 55 00")
    station.receive(signal: "06 0A 04 00 40 00 56 00")
    #expect(station.effects() == ["rejected 06", "unexpected 06 10"])
    station.receive(signal: "06 0B 04 00 40 00 55 00")
    #expect(station.effects() == ["closed 0x0040: closedByPeer"])
    #expect(station.sent() == ["05: 01 09 06 00 02 00 41 00 55 00", "05: 07 0B 04 00 40 00 55 00"])
    // Repeated: there is no such channel any more.
    station.receive(signal: "06 0B 04 00 40 00 55 00")
    #expect(station.effects() == ["rejected 06"])
    _ = station.sent()
    station.receive(frame(0x40, [1, 0, 1]))
    #expect(station.effects() == ["unknown channel 64"])
    try station.openChannel(peer: 0x55)
  }
  /// Both ask: each answers, and each request gets its answer.
  @Test func crossingDisconnections() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    #expect(station.close(0x40))
    #expect(station.sent() == ["05: 06 02 04 00 55 00 40 00"])
    station.receive(signal: "06 09 04 00 40 00 55 00")
    #expect(station.sent() == ["05: 07 09 04 00 40 00 55 00"])
    #expect(try station.openChannel()[0] == ChannelID(rawValue: 0x0041))
    station.receive(signal: "07 02 04 00 55 00 40 00")
    #expect(station.effects() == ["closed 0x0040: closedHere"])
    #expect(try station.openChannel()[0] == Self.first)
    // Ours has not left: it is not sent.
    let other = Station(.central)
    try other.openChannel(peer: 0x55)
    #expect(other.close(0x40))
    other.receive(signal: "06 09 04 00 40 00 55 00")
    #expect(other.sent() == ["05: 07 09 04 00 40 00 55 00"] && other.deadline == nil)
    #expect(other.effects() == ["closed 0x0040: closedByPeer"])
    #expect(try other.openChannel()[0] == Self.first)
  }
  /// An SDU that has begun is completed, before the disconnection request.
  @Test func closingInTheMiddleOfAnSDU() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55, credits: 1)
    station.upper.others[0x40] = [Array(1...250), [7]]
    #expect(station.sent() == ["55: FA 00 " + hex(Array(1...98))])
    #expect(station.close(0x40) && station.sent() == [] && station.deadline == Instant.zero + .seconds(30))
    station.receive(frame(0x40, [1, 0, 1]))
    station.receive(signal: "16 01 04 00 55 00 01 00")
    #expect(station.sent() == ["55: " + hex(Array(99...198))] && station.upper.received == [])
    station.receive(signal: "16 01 04 00 55 00 05 00")
    #expect(station.sent() == ["55: " + hex(Array(199...250)), "05: 06 02 04 00 55 00 40 00"])
    station.receive(signal: "07 02 04 00 55 00 40 00")
    #expect(station.deadline == nil && station.effects() == ["closed 0x0040: closedHere"])
    // A peer that gives no credits is waited for 30 s.
    station.upper.others[0x40] = [Array(1...250)]
    try station.openChannel(peer: 0x56, credits: 1)
    _ = station.sent()
    #expect(station.close(0x40))
    station.layer.expire(link, now: Instant.zero + .seconds(30))
    #expect(station.sent() == ["05: 06 04 04 00 56 00 40 00"])
    #expect(station.effects() == ["closed 0x0040: timedOut"])
    station.receive(signal: "07 04 04 00 56 00 40 00")
    #expect(station.effects() == [])
    // One that disconnects, or breaks a rule, does not get the rest.
    for (signal, reason) in [
      ("06 09 04 00 40 00 57 00", "closedByPeer"), ("16 09 04 00 57 00 FF FF", "tooManyCredits"),
    ] {
      station.upper.others[0x40] = [Array(1...250)]
      try station.openChannel(peer: 0x57, credits: 1)
      _ = station.sent()
      #expect(station.close(0x40))
      // Repeated: the credits together are too many.
      station.receive(signal: signal)
      station.receive(signal: signal)
      #expect(station.effects().contains("closed 0x0040: \(reason)"))
      _ = station.sent()
    }
  }
  @Test func theLinkEnds() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    station.openIncoming(peer: 0x56)
    try station.openChannel(peer: 0x57)
    #expect(station.close(0x42))
    _ = try station.openChannel(count: 2, isEnhanced: true)
    _ = station.sent()
    _ = try station.openChannel()
    station.receive(signal: "14 01 0A 00 80 00 58 00 17 00 17 00 00 00")
    _ = station.effects()
    station.layer.close(link)
    #expect(
      station.effects().sorted() == [
        "closed 0x0040: linkClosed", "closed 0x0041: linkClosed", "closed 0x0042: linkClosed",
        "not open 0x0043: linkClosed",
        "not open 0x0044: linkClosed", "not open 0x0045: linkClosed",
      ])
    #expect(station.answer(1, .accepted(Self.settings)) == nil && !station.close(0x40) && station.deadline == nil)
    station.open(link, .central)
    #expect(try station.openChannel()[0] == Self.first)
  }
  /// Numbers are used again and again, and nothing accumulates.
  @Test func aThousandOpenings() throws {
    let station = Station(.central)
    for _ in 0..<1_000 {
      try station.openChannel(peer: 0x55)
      #expect(station.close(0x40))
      let identifier = station.nextPacket()![10]
      station.receive(frame(5, [0x07, identifier, 4, 0, 0x55, 0, 0x40, 0]))
      #expect(station.effects() == ["closed 0x0040: closedHere"])
      station.openIncoming(peer: 0x55)
      station.receive(signal: "06 0B 04 00 40 00 55 00")
      #expect(station.sent() == ["05: 07 0B 04 00 40 00 55 00"])
      #expect(station.effects() == ["closed 0x0040: closedByPeer"])
    }
  }

  // MARK: Reconfiguration

  @Test func weReconfigure() throws {
    let station = Station(.central)
    let list = try station.openChannel(peers: [0x55, 0x56])
    func reconfigure(_ list: ChannelList, _ mtu: UInt16, _ mps: UInt16) -> ChannelRefusal? {
      do throws(ChannelRefusal) {
        try station.layer.reconfigureChannels(link, list, mtu: mtu, mps: mps)
        return nil
      } catch { return error }
    }
    // The MTU does not shrink, nor the MPS of several.
    #expect(reconfigure(list, 511, 247) == .invalidParameters && reconfigure(list, 512, 246) == .invalidParameters)
    #expect(
      reconfigure(list, 512, 65_534) == .invalidParameters && reconfigure(ChannelList(), 512, 247) == .invalidParameters
    )
    try station.openChannel(peer: 0x57)
    var other = ChannelList()
    other.append(ChannelID(rawValue: 0x0042))
    #expect(reconfigure(other, 1_024, 247) == .notOpen)
    #expect(reconfigure(list, 1_024, 512) == nil && reconfigure(list, 1_024, 512) == .busy)
    #expect(station.sent() == ["05: 19 03 08 00 00 04 00 02 40 00 41 00"])
    #expect(reconfigure(list, 1_024, 512) == .busy)
    // A K-frame of the new length may follow the request at once.
    let long = [UInt8](repeating: 7, count: 510)
    station.receive(frame(0x40, [0xFE, 0x01] + long))
    #expect(station.upper.received == [long])
    station.receive(signal: "1A 03 02 00 00 00")
    #expect(station.effects() == ["reconfiguration of 2 ended: accepted"] && station.deadline == nil)
    // One channel may get a smaller MPS; afterwards a longer K-frame is a violation.
    var single = ChannelList()
    single.append(list[0])
    #expect(reconfigure(single, 1_024, 64) == nil)
    _ = station.sent()
    station.receive(frame(0x40, [0xFE, 0x01] + long))
    station.receive(signal: "1A 04 02 00 00 00")
    #expect(station.effects() == ["reconfiguration of 1 ended: accepted"] && station.upper.received.count == 2)
    station.receive(frame(0x40, [0xFE, 0x01] + long))
    #expect(station.effects().first == "fault 0x0040: frameTooLong(length: 512)")
  }
  @Test(arguments: [
    ("1A 02 02 00 01 00", "refused 0x0001"), ("1A 02 02 00 04 00", "refused 0x0004"),
    ("01 02 02 00 00 00", "not understood 0x0000"), ("", "timedOut"),
  ]) func theyRefuseOurReconfiguration(_ signal: String, _ told: String) throws {
    let station = Station(.central)
    let list = try station.openChannel(peers: [0x55, 0x56])
    try station.layer.reconfigureChannels(link, list, mtu: 1_024, mps: 512)
    _ = station.sent()
    if signal.isEmpty {
      station.layer.expire(link, now: Instant.zero + .seconds(30))
    } else {
      station.receive(signal: signal)
    }
    #expect(station.effects() == ["reconfiguration of 2 ended: \(told)"])
    station.receive(frame(0x40, [0x00, 0x02] + [UInt8](repeating: 7, count: 246)))
    #expect(station.effects().first == "fault 0x0040: frameTooLong(length: 248)")
  }
  /// Vol 3, Part A, §4.27, §4.28.
  @Test func theyReconfigure() throws {
    let station = Station(.central)
    _ = try station.openChannel(peers: [0x55, 0x56])
    try station.openChannel(peer: 0x57)
    let cases: [(String, String, [String])] = [
      // Of two: MTU 256, MPS 100 before.
      ("19 01 08 00 FF 00 64 00 55 00 56 00", "01", ["reconfiguration refused 0x0001"]),
      ("19 01 08 00 00 01 63 00 55 00 56 00", "02", ["reconfiguration refused 0x0002"]),
      ("19 01 08 00 00 01 64 00 55 00 58 00", "03", ["reconfiguration refused 0x0003"]),
      ("19 01 08 00 00 01 64 00 55 00 55 00", "03", ["reconfiguration refused 0x0003"]),
      // Opened by an LE request.
      ("19 01 06 00 00 02 64 00 57 00", "03", ["reconfiguration refused 0x0003"]),
      ("19 01 06 00 3F 00 64 00 55 00", "04", ["reconfiguration refused 0x0004"]),
      ("19 01 06 00 00 01 3F 00 55 00", "04", ["reconfiguration refused 0x0004"]),
      ("19 01 06 00 00 01 FE FF 55 00", "04", ["reconfiguration refused 0x0004"]),
      ("19 01 10 00 00 01 64 00 55 00 56 00 55 00 56 00 55 00 56 00", "04", ["reconfiguration refused 0x0004"]),
      ("19 01 08 00 00 02 65 00 55 00 56 00", "00", ["reconfigured 0x0040: 512", "reconfigured 0x0041: 512"]),
      ("19 01 06 00 00 02 40 00 55 00", "00", ["reconfigured 0x0040: 512"]),
    ]
    for (signal, result, told) in cases {
      station.receive(signal: signal)
      #expect(station.sent() == ["05: 1A 01 02 00 \(result) 00"] && station.effects() == told, "\(signal)")
    }
    station.upper.others[0x40] = [Array(1...100)]
    #expect(station.sent() == ["55: 64 00 " + hex(Array(1...62)), "55: " + hex(Array(63...100))])
  }
}

extension Station {
  /// Our request, which waits to be sent.
  func openChannel(
    _ settings: ChannelSettings = ChannelProcedureTests.settings, count: Int = 1, isEnhanced: Bool = false
  ) throws(ChannelRefusal) -> ChannelList {
    try layer.openChannels(
      link, ChannelProcedureTests.spsm, settings, count: count, isEnhanced: isEnhanced, now: now)
  }
  /// A channel of ours that is open. The peer accepts 256 and 100 octets.
  func openChannel(
    peer: Int, _ settings: ChannelSettings = ChannelProcedureTests.settings, mtu: Int = 256, mps: Int = 100,
    credits: Int = 2
  ) throws {
    _ = try openChannel(settings)
    let identifier = nextPacket()![10]
    receive(
      frame(
        5,
        [0x15, identifier, 10, 0] + littleEndian(peer) + littleEndian(mtu) + littleEndian(mps) + littleEndian(credits)
          + [0, 0]))
    guard case .channelOpened? = layer.nextEffect() else { preconditionFailure("the channel is not open") }
  }
  /// Enhanced channels of ours that are open, with the same lengths.
  func openChannel(peers: [Int]) throws -> ChannelList {
    let list = try openChannel(count: peers.count, isEnhanced: true)
    let identifier = nextPacket()![10]
    receive(
      frame(
        5,
        [0x18, identifier] + littleEndian(8 + 2 * peers.count) + octets("00 01 64 00 02 00 00 00")
          + peers.flatMap { littleEndian($0) }))
    for _ in peers {
      guard case .channelOpened? = layer.nextEffect() else { preconditionFailure("the channel is not open") }
    }
    return list
  }
  /// A channel of the peer that is open. The peer accepts 256 and 100 octets.
  func openIncoming(
    peer: Int, _ settings: ChannelSettings = ChannelProcedureTests.settings, mtu: Int = 256, mps: Int = 100,
    credits: Int = 2
  ) {
    receive(
      frame(
        5,
        [0x14, 0xFE, 10, 0, 0x80, 0] + littleEndian(peer) + littleEndian(mtu) + littleEndian(mps)
          + littleEndian(credits)))
    guard case .channelsRequested? = layer.nextEffect(),
      layer.answerChannels(link, identifier: 0xFE, .accepted(settings)) != nil,
      case .channelOpened? = layer.nextEffect(), sent().count == 1
    else { preconditionFailure("the channel is not open") }
  }
  func answer(_ identifier: UInt8, _ decision: ChannelDecision) -> [Int]? {
    layer.answerChannels(link, identifier: identifier, decision).map { list in
      (0..<list.count).map { Int(list[$0].rawValue) }
    }
  }
  func close(_ number: UInt16) -> Bool { layer.closeChannel(link, ChannelID(rawValue: number), now: now) }
}
