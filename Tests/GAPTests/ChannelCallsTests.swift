import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire
import TestSupport
import Testing

@testable import BindruneGAP

/// Credit-based channels of the application, against a scripted controller and peer. The octets are those of Vol 3,
/// Part A, §4.22 … §4.24, §4.6, §4.7; `ChannelProcedureTests` has L2CAP's half.
@Suite struct ChannelCallsTests {
  private static let link = LinkID(rawValue: 1)
  private static let spsm = SPSM(rawValue: 0x0080)
  private static let ours = ChannelID(rawValue: 0x0040)
  private static let settings = ChannelSettings(mtu: 100, mps: 50, longestSDU: 200)

  /// A link of the peer's, whose signals of the start have been sent.
  private static func linked(_ configure: (inout HostConfiguration) -> Void = { _ in }) -> Bench {
    var bench = Bench.started(Database(), configure)
    bench.receive(connectionComplete(0x40, .peripheral))
    bench.answerAll()
    bench.forget()
    return bench
  }
  /// One signal of the peer, on channel 0x0005.
  private static func signal(_ text: String) -> [UInt8] { data(0x40, channel: 5, octets(text)) }
  /// What has been sent on a channel: the payloads.
  private static func sent(_ bench: inout Bench, on channel: String) -> [String] {
    defer { bench.forget() }
    return bench.sent.filter { $0.hasPrefix("02 40 00 ") && $0.dropFirst(21).hasPrefix(channel) }
      .map { String($0.dropFirst(27)) }
  }
  private static func signals(_ bench: inout Bench) -> [String] { sent(&bench, on: "05 00") }
  /// The peer has opened a channel: its number there is 0x0041; SDUs of 200 octets in K-frames of 60, two credits.
  private static func served(_ service: ChannelService = ChannelService(settings)) -> Bench {
    var bench = linked()
    bench.perform { core, _ in expect(core.listen(spsm, service)) }
    bench.receive(signal("14 01 0A 00 80 00 41 00 C8 00 3C 00 02 00"))
    return bench
  }

  // MARK: Services

  /// Result 0x0002: no service. The number may be used again when nobody listens any more.
  @Test func onlyServicesAccept() {
    var bench = Self.linked(), request = Self.signal("14 01 0A 00 80 00 41 00 C8 00 3C 00 02 00")
    bench.receive(request)
    #expect(Self.signals(&bench) == ["15 01 0A 00 00 00 00 00 00 00 00 00 02 00"])
    bench.perform { core, _ in
      expect(core.freeSPSM == Self.spsm)
      expect(core.listen(Self.spsm, ChannelService(Self.settings)))
      expect(!core.listen(Self.spsm, ChannelService(Self.settings)), "taken")
      expect(!core.listen(SPSM(rawValue: 0x0100), ChannelService(Self.settings)), "not of LE")
      expect(!core.listen(SPSM(rawValue: 0), ChannelService(Self.settings)))
      expect(!core.listen(SPSM(rawValue: 0x0081), ChannelService(ChannelSettings(mtu: 22))), "below 23")
      expect(core.freeSPSM == SPSM(rawValue: 0x0081))
    }
    request[10] = 2
    bench.receive(request)
    // 100 octets and their length are three K-frames of 50: six credits.
    #expect(Self.signals(&bench) == ["15 02 0A 00 40 00 64 00 32 00 06 00 00 00"])
    bench.perform { core, _ in core.stopListening(Self.spsm) }
    bench.receive(Self.signal("14 03 0A 00 80 00 42 00 C8 00 3C 00 02 00"))
    #expect(Self.signals(&bench) == ["15 03 0A 00 00 00 00 00 00 00 00 00 02 00"])
  }

  /// Who may open a channel: Vol 3, Part C, §10.3.1.
  @Test func whatAServiceNeeds() {
    let strong = KeyStrength(isAuthenticated: true, isSecureConnections: true)
    let plain = KeyStrength(isAuthenticated: false, isSecureConnections: true)
    let short = KeyStrength(isAuthenticated: true, isSecureConnections: false, size: .shortest)
    let (none, bonded) = (LinkSecurity(), LinkSecurity(isBonded: true))
    func result(_ need: ChannelSecurity, _ security: LinkSecurity) -> ChannelResult {
      let decision = ChannelService(Self.settings, security: need).decision(on: security)
      return if case .refused(let result) = decision { result } else { .success }
    }
    for security in [none, bonded, LinkSecurity(key: short)] { #expect(result(.none, security) == .success) }
    for need in [ChannelSecurity.encrypted, .authenticated] {
      #expect(result(need, none) == .insufficientAuthentication)
      #expect(result(need, bonded) == .insufficientEncryption)
      #expect(result(need, LinkSecurity(key: short)) == .encryptionKeySizeTooShort)
      #expect(result(need, LinkSecurity(key: strong)) == .success)
    }
    #expect(result(.encrypted, LinkSecurity(key: plain)) == .success)
    #expect(result(.authenticated, LinkSecurity(key: plain, isBonded: true)) == .insufficientAuthentication)
  }

  // MARK: Data

  /// An SDU in two K-frames goes up whole; credits go back when the application has taken it, both at once.
  @Test func anSDUGoesUp() {
    var bench = Self.served()
    #expect(bench.takeTexts().contains { $0.hasPrefix("channelOpened(link 1") })
    bench.forget()
    let long = (0..<60).map { UInt8($0) }
    bench.receive(data(0x40, channel: 0x40, [60, 0] + long[..<48]))
    #expect(bench.effects.isEmpty)
    bench.receive(data(0x40, channel: 0x40, Array(long[48...])))
    bench.receive(data(0x40, channel: 0x40, [0, 0]))
    let received = bench.effects.compactMap { effect -> Int? in
      guard case .channelReceived(Self.link, Self.ours, let octets) = effect else { return nil }
      return Int(octets.count)
    }
    #expect(received == [60, 0])
    bench.perform { core, _ in core.taken(1, on: Self.ours, of: Self.link) }
    #expect(Self.signals(&bench) == ["16 01 04 00 40 00 02 00"])
    bench.perform { core, _ in core.taken(1, on: Self.ours, of: Self.link) }
    #expect(Self.signals(&bench) == [])
  }

  /// SDUs leave as the peer gives credit, in K-frames of its MPS. A refusal has one edge.
  @Test func sdusLeaveWithCredit() {
    var bench = Self.served()
    bench.forget()
    func send(_ count: Int) -> StreamAnswer {
      var answer = StreamAnswer.closed
      bench.perform { core, _ in
        answer = core.send([UInt8](repeating: 7, count: count).span, on: Self.ours, of: Self.link)
      }
      return answer
    }
    #expect(send(201) == .tooLong(most: 200))
    #expect(send(100) == .queued)
    #expect(Self.sent(&bench, on: "41 00").map { ($0.count + 1) / 3 } == [60, 42])
    var queued = 0
    while send(200) == .queued { queued += 1 }
    // 8,192 octets may wait, with two for the length of each.
    #expect(queued == 40)
    #expect(Self.sent(&bench, on: "41 00").isEmpty)
    var edges = 0, frames = 0
    for _ in 0..<300 {
      bench.receive(Self.signal("16 01 04 00 41 00 01 00"))
      bench.receive(completedPackets(0x40, 1))
      edges += bench.effects.count { if case .channelReady(Self.link, Self.ours) = $0 { true } else { false } }
      frames += Self.sent(&bench, on: "41 00").count
    }
    // 202 octets are four K-frames of 60.
    #expect(edges == 1 && frames == 40 * 4)
    #expect(send(1) == .queued && Self.sent(&bench, on: "41 00") == ["01 00 07"])
  }

  // MARK: The end

  /// Our end follows what waits, or not.
  @Test(arguments: [true, false]) func weClose(afterSending: Bool) {
    var bench = Self.served()
    for _ in 0..<3 {
      bench.perform { core, _ in _ = core.send([UInt8](repeating: 7, count: 58).span, on: Self.ours, of: Self.link) }
    }
    bench.forget()
    bench.perform { core, now in
      core.closeChannel(Self.ours, of: Self.link, afterSending: afterSending, now: now)
      expect(core.send([UInt8(1)].span, on: Self.ours, of: Self.link) == .closed)
    }
    let closed = { bench.effects.count { if case .channelClosed(_, _, .closedHere) = $0 { true } else { false } } }
    #expect(closed() == 0)
    var all = Self.signals(&bench)
    bench.receive(Self.signal("16 01 04 00 41 00 05 00"))
    #expect(closed() == 0)
    all += Self.signals(&bench)
    #expect(all == ["06 01 04 00 41 00 40 00"])
    bench.receive(Self.signal("07 01 04 00 41 00 40 00"))
    #expect(closed() == 1)
  }
  @Test func thePeerCloses() {
    var bench = Self.served()
    bench.forget()
    bench.receive(Self.signal("06 02 04 00 40 00 41 00"))
    #expect(bench.effects.count == 1)
    #expect(Self.signals(&bench) == ["07 02 04 00 40 00 41 00"])
    bench.perform { core, _ in expect(core.send([UInt8(1)].span, on: Self.ours, of: Self.link) == .closed) }
  }
  /// Channels end before their link; requests end with it.
  @Test func theLinkGoes() {
    var bench = Self.served()
    Self.open(&bench, 7)
    bench.forget()
    bench.receive(disconnectionComplete(0x40))
    same(
      bench.takeTexts(),
      [
        "7: noSuchLink",
        "channelClosed(link 1, BindruneL2CAP.ChannelID(rawValue: 64), BindruneL2CAP.ChannelEnd.linkClosed)",
        "link 1 down: 0x13",
      ])
  }

  // MARK: We ask

  private static func open(_ bench: inout Bench, _ number: UInt64) {
    bench.perform { core, now in
      core.openChannel(spsm, settings, on: link, id: RequestID(rawValue: number), now: now)
    }
  }
  @Test func weOpen() {
    var bench = Self.linked()
    Self.open(&bench, 7)
    #expect(Self.signals(&bench) == ["14 01 0A 00 80 00 40 00 64 00 32 00 06 00"])
    bench.receive(Self.signal("15 01 0A 00 41 00 C8 00 3C 00 01 00 00 00"))
    guard case .completed(RequestID(rawValue: 7), .channel(Self.ours, let channel))? = bench.effects.last else {
      Issue.record("\(bench.effects)")
      return
    }
    #expect(channel.peerMTU == 200 && channel.longestSDU == 200 && !channel.isIncoming)
    bench.forget()
    bench.perform { core, _ in expect(core.send([UInt8(5)].span, on: Self.ours, of: Self.link) == .queued) }
    #expect(Self.sent(&bench, on: "41 00") == ["01 00 05"])
  }
  @Test func theyRefuse() {
    var bench = Self.linked()
    Self.open(&bench, 7)
    bench.receive(Self.signal("15 01 0A 00 00 00 00 00 00 00 00 00 02 00"))
    #expect(
      bench.takeTexts() == ["7: channel(BindruneL2CAP.ChannelEnd.refused(BindruneL2CAP.ChannelResult(rawValue: 2)))"])
    Self.open(&bench, 8)
    bench.perform { core, now in core.cancel(RequestID(rawValue: 8), now: now) }
    #expect(bench.takeTexts() == ["8: cancelled"])
    // The answer that still comes opens nothing: the channel is disconnected.
    bench.forget()
    bench.receive(Self.signal("15 02 0A 00 41 00 C8 00 3C 00 01 00 00 00"))
    #expect(bench.takeTexts() == [] && Self.signals(&bench) == ["06 03 04 00 41 00 40 00"])
  }
  /// The peer wants a better protected link: the host secures it once, and asks once more. If it cannot, the request
  /// ends with the peer's refusal.
  @Test(arguments: [true, false]) func theyWantSecurity(pairs: Bool) {
    var bench = Self.linked { $0.pairsOnDemand = pairs }
    Self.open(&bench, 7)
    bench.forget()
    bench.receive(Self.signal("15 01 0A 00 00 00 00 00 00 00 00 00 05 00"))
    if pairs {
      // Vol 3, Part H, §2.4.6: a Peripheral asks the Central for it.
      #expect(Self.sent(&bench, on: "06 00").map { $0.prefix(2) } == ["0B"])
      // Pairing Failed, Pairing Not Supported.
      bench.receive(data(0x40, channel: 6, [0x05, 0x05]))
      #expect(
        bench.takeTexts().last
          == "7: channel(BindruneL2CAP.ChannelEnd.refused(BindruneL2CAP.ChannelResult(rawValue: 5)))")
    } else {
      #expect(
        bench.takeTexts() == ["7: channel(BindruneL2CAP.ChannelEnd.refused(BindruneL2CAP.ChannelResult(rawValue: 5)))"])
    }
  }
}
