import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Commands through a running layer: Vol 4, Part E, §4.4.
@Suite struct CommandQueueTests {
  let scan = LESetScanEnable.opcode, version = ReadRemoteVersionInformation.opcode, update = LEConnectionUpdate.opcode
  let link = ConnectionHandle(rawValue: 0x0040)

  /// A running layer whose controller has just reported that it accepts `number` commands.
  func bench(number: UInt8 = 1) -> Bench {
    var bench = Bench()
    _ = bench.start()
    bench.receive(complete(.none, number: number).dropLastStatus())
    return bench
  }

  @Test func oneCommandAtATimeIfTheControllerAcceptsOne() {
    var bench = bench()
    for tag in 1...3 { bench.layer.send(LESetScanEnable(), tag: UInt32(tag), now: bench.now) }
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan)).outcome?.tag == 1)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan)).outcome?.tag == 2)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan)).outcome?.tag == 3)
    expect(bench.sent() == [] && bench.layer.deadline == nil)
  }

  @Test func severalIfItAcceptsSeveral() {
    var bench = bench(number: 3)
    for tag in 1...5 { bench.layer.send(LESetScanEnable(), tag: UInt32(tag), now: bench.now) }
    #expect(bench.sent().count == 3)
    // Two are still outstanding: of the three that it accepts, one may be sent.
    #expect(bench.receive(complete(scan, number: 3)).outcome?.tag == 1)
    #expect(bench.sent().count == 1)
  }

  @Test func zeroMeansWait() {
    var bench = bench()
    bench.layer.send(LESetScanEnable(), tag: 1, now: bench.now)
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan, number: 0)).outcome?.tag == 1)
    #expect(bench.sent() == [])
    #expect(bench.receive(complete(.none, number: 1).dropLastStatus()).isNothing)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan, number: 0)).outcome?.tag == 2)
    bench.layer.send(LESetScanEnable(), tag: 3, now: bench.now)
    #expect(bench.sent() == [])
    #expect(bench.receive(status(.none, number: 1)).isNothing)
    #expect(bench.sent() == [scan])
  }

  @Test func unsentCommandsTimeOutToo() {
    var bench = bench(number: 0)
    bench.now = .ms(5_000)
    bench.layer.send(LESetScanEnable(), tag: 1, now: bench.now)
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    expect(bench.sent() == [] && bench.layer.deadline == .ms(7_000))
    expect(bench.layer.expire(now: .ms(6_999)).isNothing)
    expect(bench.layer.expire(now: .ms(7_000)).outcome.map { $0.tag == 1 && $0.timedOut } == true)
    expect(bench.layer.expire(now: .ms(7_000)).outcome.map { $0.tag == 2 && $0.timedOut } == true)
    expect(bench.layer.expire(now: .ms(7_000)).isNothing && bench.layer.deadline == nil)
    // It never reported that it accepts one: nothing is sent, now or later.
    bench.layer.send(LESetScanEnable(), tag: 3, now: .ms(8_000))
    expect(bench.sent() == [] && bench.layer.deadline == .ms(10_000))
  }

  @Test func anUnansweredCommandDoesNotStopTheQueue() {
    var bench = bench()
    bench.now = .ms(100)
    bench.layer.send(ReadRemoteVersionInformation.with { $0.connectionHandle = link }, tag: 1, now: bench.now)
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    expect(bench.sent() == [version] && bench.layer.deadline == .ms(2_100))
    let outcome = bench.layer.expire(now: .ms(2_100)).outcome
    #expect(outcome?.tag == 1 && outcome?.timedOut == true)
    bench.now = .ms(2_100)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan)).outcome?.status == .success)
    // Links work without it, so the layer does not repeat it.
    expect(!bench.layer.supports(version))
    bench.layer.send(ReadRemoteVersionInformation.with { $0.connectionHandle = link }, tag: 3, now: bench.now)
    expect(bench.sent() == [] && bench.layer.deadline == .zero)
    expect(bench.layer.expire(now: bench.now).outcome?.ending == .unsupported)
    // A late answer.
    guard case .unexpectedAnswer(version)? = bench.receive(status(version)).violation else {
      Issue.record("a late answer is a violation")
      return
    }
  }

  @Test func anEssentialCommandIsRepeated() {
    var bench = bench()
    bench.layer.send(LESetScanEnable(), tag: 1, now: bench.now)
    #expect(bench.sent() == [scan])
    bench.now = bench.now + .seconds(2)
    expect(bench.layer.expire(now: bench.now).outcome?.timedOut == true)
    expect(bench.layer.supports(scan))
  }

  @Test func answersInAnotherOrder() {
    var bench = bench(number: 5)
    bench.layer.send(LEConnectionUpdate.with { $0.connectionHandle = link }, tag: 1, now: bench.now)
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    #expect(bench.sent() == [update, scan])
    #expect(bench.receive(complete(scan, .commandDisallowed)).outcome.map { $0.tag == 2 && $0.status == 0x0C } == true)
    #expect(bench.receive(status(update, .unknownConnectionIdentifier)).outcome?.tag == 1)
    expect(bench.layer.deadline == nil)
  }

  @Test func statusSuccessDoesNotEndACommandThatCompletes() {
    var bench = bench()
    bench.layer.send(LESetScanEnable(), tag: 1, now: bench.now)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(status(scan)).isNothing)
    #expect(bench.receive(complete(scan)).outcome?.tag == 1)
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(status(scan, .unknownHCICommand)).outcome?.status == .unknownHCICommand)
  }

  @Test func returnParametersAreARangeOfThePacket() throws {
    var bench = bench()
    bench.layer.send(LESetDataLength.with { $0.connectionHandle = link }, tag: 1, now: bench.now)
    #expect(bench.sent() == [LESetDataLength.opcode])
    let packet = complete(LESetDataLength.opcode, .success, [0x40, 0])
    let outcome = try #require(bench.receive(packet).outcome)
    #expect(
      try LESetDataLength.decodeReturn(outcome.returnParameters, in: packet.span).connectionHandle.rawValue == 0x40)
    // No return parameters, not even a status.
    bench.layer.send(LESetScanEnable(), tag: 2, now: bench.now)
    #expect(bench.sent() == [scan])
    #expect(bench.receive(complete(scan).dropLastStatus()).outcome?.status == .unspecifiedError)
  }

  @Test func boundedInOctets() {
    var configuration = HCILayer.Configuration()
    configuration.commandCapacity = 20
    var bench = Bench(configuration)
    _ = bench.start()
    for tag in 1...4 { bench.layer.send(LESetScanEnable(), tag: UInt32(tag), now: bench.now) }  // six octets each
    let outcome = bench.layer.expire(now: bench.now).outcome
    #expect(outcome?.tag == 4 && outcome?.ending == .aborted)
    expect(bench.layer.expire(now: bench.now).isNothing)
    #expect(bench.sent() == [scan])
  }

  /// Commands that may be refused leave room for the others, which are bounded too.
  @Test func ownCommandsHaveRoomOfTheirOwn() {
    var configuration = HCILayer.Configuration()
    configuration.commandCapacity = 20
    var bench = Bench(configuration)
    _ = bench.start()
    for tag in 1...4 { bench.layer.send(LESetScanEnable(), tag: UInt32(tag), now: bench.now) }
    bench.layer.send(LESetScanEnable(), tag: 5, mayBeRefused: false, now: bench.now)
    expect(bench.layer.expire(now: bench.now).outcome?.tag == 4)
    expect(bench.layer.expire(now: bench.now).isNothing)
    var sent = 1
    while bench.layer.expire(now: bench.now).isNothing, sent < 100_000 {
      bench.layer.send(LESetScanEnable(), tag: 5, mayBeRefused: false, now: bench.now)
      sent += 1
    }
    expect(sent == (20 + 65_536) / 6 - 3 + 1)
  }

  @Test func resetGoesAlone() throws {
    var queue = CommandQueue(), packet = PacketBuffer()
    try queue.append(LESetScanEnable(), from: Span(), tag: 1, now: .zero)
    expect(packet.fill { queue.next(into: &$0, now: .zero) })
    try queue.append(Reset(), from: Span(), tag: 2, now: .zero)
    expect(!packet.fill { queue.next(into: &$0, now: .zero) })
    queue.abortAll()
    expect(queue.expire(now: .zero)?.tag == 1)
    expect(queue.expire(now: .zero)?.tag == 2)
    expect(queue.expire(now: .zero) == nil && queue.isEmpty)
  }

  @Test func aRestartEndsEveryCommandOnce() {
    var bench = bench()
    for tag in 1...3 { bench.layer.send(LESetScanEnable(), tag: UInt32(tag), now: bench.now) }
    #expect(bench.sent() == [scan])
    bench.layer.start(now: bench.now)
    bench.layer.send(LESetScanEnable(), tag: 4, now: bench.now)
    for tag in 1...4 {
      let outcome = bench.layer.expire(now: bench.now).outcome
      #expect(outcome?.tag == UInt32(tag) && outcome?.ending == .aborted)
    }
    expect(bench.layer.expire(now: bench.now).isNothing)
    #expect(bench.sent() == [Reset.opcode])
  }

  @Test func noRoomForThePacketKeepsIt() {
    var bench = bench()
    bench.layer.send(LESetScanEnable(), tag: 1, now: bench.now)
    var small = PacketBuffer(capacity: 5)
    let now = bench.now
    expect(!small.fill { bench.layer.nextCommand(into: &$0, now: now) } && small.count == 0)
    #expect(bench.sent() == [scan])
  }
}

extension [UInt8] {
  /// Command Complete without return parameters.
  func dropLastStatus() -> [UInt8] {
    var short = Array(dropLast())
    short[2] -= 1
    return short
  }
}
