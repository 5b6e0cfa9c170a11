import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

@testable import BindruneGAP

private let link1 = LinkID(rawValue: 1)
private func id(_ number: UInt64) -> RequestID { RequestID(rawValue: number) }

@Suite("Connections") struct ConnectionsTests {
  private static func bench(list: UInt8 = 8) -> Bench {
    var controller = PaperController()
    controller.acceptListSize = list
    return Bench.started(controller: controller)
  }
  private static func peer(_ number: Int) -> PeerAddress {
    PeerAddress(DeviceAddress(0x0000_5E00_5300 + UInt64(number)), .public)
  }
  private static let ended = connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier)

  @Test("S39: a request without a time-out waits for as long as it takes") func pendingForEver() {
    var bench = Self.bench()
    bench.connect(1)
    bench.answerAll()
    _ = bench.takeAll()
    bench.wait(.seconds(30 * 86_400))
    same(bench.takeAll(), [])
    bench.receive(connectionComplete(0x40))
    same(bench.takeTexts(), ["link 1 up: \(Bench.peer), Central", "1: link 1"])
  }
  @Test func aTimeOutThatWasAskedFor() {
    var bench = Self.bench()
    bench.perform { core, now in core.connect(to: Bench.peer, timeout: .seconds(5), id: id(1), now: now) }
    bench.connect(2, Bench.otherPeer)
    bench.answerAll()
    bench.receive(Self.ended)
    bench.answerAll()
    _ = bench.takeAll()
    bench.wait(.milliseconds(4999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Create_Connection_Cancel", "1: timedOut"])
    // The attempt continues, for the other peer alone.
    bench.answerAll()
    bench.receive(Self.ended)
    same(bench.takeAll(), ["LE_Create_Connection"])
  }
  @Test func theFirstOfSeveral() {
    var bench = Self.bench()
    bench.perform { core, now in
      core.connect(to: [Bench.peer, Bench.otherPeer, Bench.peer], id: id(1), now: now)
    }
    bench.answerAll()
    same(
      bench.takeAll(),
      [
        "LE_Add_Device_To_Filter_Accept_List(1)", "LE_Add_Device_To_Filter_Accept_List(2)",
        "LE_Create_Connection(list)",
      ])
    bench.connect(2)
    same(bench.takeAll(), ["2: busy"])
    bench.receive(connectionComplete(0x40, .central, Bench.otherPeer))
    same(bench.takeTexts(), ["link 1 up: \(Bench.otherPeer), Central", "1: link 1"])
    expect(bench.core.connections.isQuiet)
    // The other peers may be requested again.
    bench.connect(3)
    same(bench.takeAll().last, "LE_Create_Connection")
  }
  @Test func impossibleRequests() {
    var bench = Self.bench()
    bench.perform { core, now in core.connect(to: [], id: id(1), now: now) }
    let wrong = ConnectionParameters(
      interval: ConnectionInterval(.seconds(4)), supervisionTimeout: SupervisionTimeout(.seconds(8)))
    bench.perform { core, now in core.connect(to: Bench.peer, wrong, id: id(2), now: now) }
    bench.perform { core, now in core.connect(to: (0..<1025).map(Self.peer), id: id(3), now: now) }
    same(bench.takeAll(), ["1: invalidParameters", "2: invalidParameters", "3: busy"])
  }

  /// The attempt is cancelled for one of two requests, but the link of the other came first.
  @Test func aLinkForAnotherRequestThanTheCancelledIsKept() {
    var bench = Self.bench()
    bench.connect(1)
    bench.connect(2, Bench.otherPeer)
    bench.answerAll()
    bench.receive(Self.ended)
    bench.answerAll()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    _ = bench.takeAll()
    bench.receive(connectionComplete(0x40, .central, Bench.otherPeer))
    bench.answer(.commandDisallowed)
    same(bench.takeTexts(), ["link 1 up: \(Bench.otherPeer), Central", "2: link 1"])
    expect(bench.core.connections.isQuiet)
  }

  /// One initiation has one set of parameters: a request for others gets them by an update of the link.
  @Test func parametersOfTheirOwn() {
    var bench = Self.bench()
    bench.connect(1)
    bench.perform { core, now in core.connect(to: Bench.otherPeer, .fast, id: id(2), now: now) }
    bench.answerAll()
    bench.receive(Self.ended)
    bench.answerAll()
    expect(bench.lastCommand.contains("Connection_Interval_Min: 24"))
    _ = bench.takeAll()
    bench.receive(connectionComplete(0x40, .central, Bench.otherPeer))
    bench.answerAll()
    expect(bench.sent.contains("LE_Connection_Update"))
    // The first request needs no update.
    _ = bench.takeAll()
    bench.receive(connectionComplete(0x41))
    bench.answerAll()
    expect(!bench.sent.contains("LE_Connection_Update"))
  }

  /// 0x22 of a controller is the peer's silence; its own has another name. Vol 1, Part F, §1.3.
  @Test func whoIsSilent() {
    var bench = Self.bench()
    bench.connect(1)
    bench.answerAll()
    bench.receive(connectionComplete(0, .central, Bench.peer, .lmpOrLLResponseTimeout))
    bench.answerAll()
    bench.receive(connectionComplete(0, .central, Bench.peer, .lmpOrLLResponseTimeout))
    same(bench.takeTexts(), ["1: refused to connect 0x22"])
    bench.connect(2)
    bench.wait(.seconds(4))
    same(bench.takeTexts(), ["2: controllerIsSilent"])
  }

  /// An attempt that fails at once says nothing about the list: 0x3E, Vol 1, Part F, §1.3.
  @Test func theListAfterAFailure() {
    var bench = Self.bench()
    bench.perform { core, now in core.connect(to: [Bench.peer, Bench.otherPeer], id: id(1), now: now) }
    bench.answerAll()
    _ = bench.takeAll()
    bench.receive(connectionComplete(0, .central, Bench.peer, .connectionFailedToBeEstablished))
    same(bench.takeAll(), ["LE_Create_Connection(list)"])
    bench.answerAll()
    // A second failure: each peer alone, for a turn, and the list again.
    bench.receive(connectionComplete(0, .central, Bench.peer, .connectionFailedToBeEstablished))
    same(bench.takeAll(), ["LE_Create_Connection"])
    bench.answerAll()
    bench.wait(Connections.turn)
    same(bench.takeAll(), ["LE_Create_Connection_Cancel"])
    bench.answerAll()
    bench.receive(Self.ended)
    same(bench.takeAll(), ["LE_Create_Connection"])
    bench.answerAll()
    bench.wait(Connections.turn)
    bench.answerAll()
    bench.receive(Self.ended)
    same(bench.takeAll(), ["LE_Create_Connection_Cancel", "LE_Create_Connection(list)"])
    bench.answerAll()
    // A link makes all well.
    bench.receive(connectionComplete(0x40, .central, Bench.otherPeer))
    same(bench.takeTexts(), ["link 1 up: \(Bench.otherPeer), Central", "1: link 1"])
  }
  /// A change of the list that is refused leaves its contents unknown: it is cleared, and used again.
  @Test func theListAfterARefusedChange() {
    var bench = Self.bench()
    bench.perform { core, now in core.connect(to: [Bench.peer, Bench.otherPeer], id: id(1), now: now) }
    bench.answer(.unspecifiedError)
    same(bench.takeAll(), ["LE_Add_Device_To_Filter_Accept_List(1)", "LE_Create_Connection"])
    bench.answerAll()
    bench.wait(Connections.turn)
    bench.answerAll()
    bench.receive(Self.ended)
    bench.answerAll()
    _ = bench.takeAll()
    bench.wait(Connections.turn)
    bench.answerAll()
    bench.receive(Self.ended)
    bench.answerAll()
    same(
      bench.takeAll(),
      [
        "LE_Create_Connection_Cancel", "LE_Clear_Filter_Accept_List", "LE_Add_Device_To_Filter_Accept_List(1)",
        "LE_Add_Device_To_Filter_Accept_List(2)", "LE_Create_Connection(list)",
      ])
  }

  /// With more peers than the list holds, each gets as many turns as the others.
  @Test(arguments: [(8, 20), (3, 7), (2, 3), (0, 5), (1, 4)]) func fairTurns(size: Int, count: Int) {
    var bench = Self.bench(list: UInt8(size))
    for number in 0..<count { bench.connect(UInt64(number), Self.peer(number)) }
    // The attempt for the first one alone is cancelled, for one with the list.
    bench.answer()
    if size > 1 {
      bench.answer()
      bench.receive(Self.ended)
    }
    bench.forget()
    var turns = [Int](repeating: 0, count: count), listed: Set<UInt64> = []
    for _ in 0..<(count * 12) {
      // The controller accepts all commands, until it initiates.
      var isInitiating = false
      while !isInitiating {
        guard let opcode = bench.unanswered.first?.opcode else { break }
        let target = bench.lastPeer
        switch opcode {
        case LEAddDeviceToFilterAcceptList.opcode: listed.insert(target)
        case LERemoveDeviceFromFilterAcceptList.opcode: listed.remove(target)
        case LECreateConnection.opcode:
          isInitiating = true
          let sought = bench.lastCommand.contains("Initiator_Filter_Policy: 0x01") ? listed : [target]
          for number in sought { turns[Int(number)] += 1 }
          #expect(sought.count == (size > 1 ? size : 1))
        default: break
        }
        bench.answer()
        if opcode == LECreateConnectionCancel.opcode { bench.receive(Self.ended) }
        bench.forget()
      }
      bench.wait(Connections.turn)
    }
    let least = turns.min() ?? 0, most = turns.max() ?? 0
    #expect(least > 0 && most - least <= 1 + most / 10, "\(turns)")
  }

  @Test func noRoomForAnotherLink() {
    var bench = Self.bench()
    bench.connect(1)
    bench.answer(.connectionLimitExceeded)
    same(bench.takeAll(), ["LE_Create_Connection", "1: connectionLimitReached"])
    // A request accepted before waits; the new one fails.
    bench.connect(2, Bench.otherPeer)
    bench.answerAll()
    bench.connect(3, Bench.thirdPeer)
    bench.answer()
    bench.receive(Self.ended)
    bench.answer()
    bench.answer()
    bench.answer(.limitedResources)
    same(bench.takeTexts(), ["3: connectionLimitReached"])
    expect(bench.core.connections.isQuiet)
    // A link goes down: there may be room.
    bench.forget()
    bench.receive(connectionComplete(0x40, .peripheral))
    bench.receive(disconnectionComplete(0x40))
    bench.answerAll()
    expect(bench.sent.last == "LE_Create_Connection")
  }

  @Test func suspensionIsNotReported() {
    var bench = Self.bench()
    bench.connect(1)
    bench.answerAll()
    bench.connect(2, Bench.otherPeer)
    bench.perform { core, now in core.connections.suspend(hci: &core.hci, now: now) }
    expect(!bench.core.connections.isQuiet)
    bench.answerAll()
    expect(!bench.core.connections.isQuiet)
    bench.receive(Self.ended)
    expect(bench.core.connections.isQuiet)
    same(bench.takeAll(), ["LE_Create_Connection", "LE_Create_Connection_Cancel"])
    bench.wait(.seconds(60))
    same(bench.takeAll(), [])
    bench.perform { core, now in core.connections.resume(hci: &core.hci, now: now) }
    bench.answerAll()
    same(bench.takeAll().last, "LE_Create_Connection(list)")
  }
}

@Suite("Connection parameters") struct ParameterUpdateTests {
  private static func linked(
    _ role: LinkRole, _ controller: PaperController = PaperController(),
    _ configure: (inout HostConfiguration) -> Void = { _ in }
  ) -> Bench {
    var bench = Bench.started(controller: controller, configure)
    bench.connect(9)
    bench.answerAll()
    bench.receive(connectionComplete(0x40, role))
    if role == .central {
      bench.receive(data(0x40, [3, 5, 2]))
    } else {
      bench.perform { core, now in core.cancel(id(9), now: now) }
      bench.answerAll()
    }
    bench.receive(completedPackets(0x40, 1))
    _ = bench.takeAll()
    return bench
  }
  private static let fast = ConnectionParameters.fast
  /// LE Connection Update Complete: 7.5 ms, 5 s.
  private static func complete(_ status: String = "00") -> [UInt8] {
    octets("04 3E 0A 03 \(status) 40 00 06 00 00 00 F4 01")
  }
  private static func update(_ bench: inout Bench, _ number: UInt64) {
    bench.perform { core, now in core.updateParameters(link1, fast, id: id(number), now: now) }
  }
  private static let change = "link 1: \(fast)"
  private static let request = "02 40 00 10 00 0C 00 05 00 12 0N 08 00 06 00 06 00 00 00 F4 01"

  @Test(arguments: [LinkRole.central, .peripheral]) func overTheLinkLayer(_ role: LinkRole) {
    var bench = Self.linked(role)
    Self.update(&bench, 1)
    Self.update(&bench, 2)
    same(bench.takeAll(), ["LE_Connection_Update", "2: busy"])
    bench.answer()
    bench.receive(Self.complete())
    same(bench.takeAll(), [Self.change, "1: \(Self.fast)"])
    same(bench.core.parameters(of: link1), Self.fast)
    // Refused by the peer: 0x3B.
    Self.update(&bench, 3)
    bench.answer()
    bench.receive(Self.complete("3B"))
    same(bench.takeAll(), ["LE_Connection_Update", "3: parametersRejected 0x3B"])
    bench.perform { core, now in core.updateParameters(LinkID(rawValue: 7), .fast, id: id(4), now: now) }
    same(bench.takeAll(), ["4: noSuchLink"])
  }
  /// Vol 3, Part A, §4.20: if the link layer's procedure is impossible.
  @Test(arguments: ["the peer has no such procedure", "not for peripherals"]) func fromTheLinkLayerToL2CAP(
    _ why: String
  ) {
    var bench = Self.linked(.peripheral)
    Self.update(&bench, 1)
    if why == "not for peripherals" {
      bench.answer(.commandDisallowed)
    } else {
      bench.answer()
      bench.receive(Self.complete("1A"))
    }
    same(bench.takeAll(), ["LE_Connection_Update", Self.request.replacing("0N", with: "01")])
    bench.receive(data(0x40, channel: 5, octets("13 01 02 00 00 00")))
    same(bench.takeAll(), [])
    bench.receive(Self.complete())
    same(bench.takeAll(), [Self.change, "1: \(Self.fast)"])
    bench.receive(completedPackets(0x40, 1))
    // From now on over L2CAP at once; the parameters are in force already, so no event comes.
    Self.update(&bench, 2)
    same(bench.takeAll(), [Self.request.replacing("0N", with: "02")])
    bench.receive(data(0x40, channel: 5, octets("13 02 02 00 00 00")))
    same(bench.takeAll(), ["2: \(Self.fast)"])
  }
  /// A central that accepts and does nothing, and a controller that never answers: both end in time.
  @Test func everyUpdateEnds() {
    var bench = Self.linked(.central)
    Self.update(&bench, 1)
    bench.answer()
    bench.wait(.milliseconds(39_999))
    same(bench.takeAll(), ["LE_Connection_Update"])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["1: parametersRejected 0x22"])
  }
  @Test func cancelAndTheEndOfTheLink() {
    var bench = Self.linked(.central)
    Self.update(&bench, 1)
    bench.answer()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    same(bench.takeAll(), ["LE_Connection_Update", "1: cancelled"])
    bench.receive(Self.complete())
    same(bench.takeAll(), [Self.change])
    Self.update(&bench, 2)
    bench.perform { core, now in core.readRSSI(link1, id: id(3), now: now) }
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(4), now: now) }
    bench.receive(disconnectionComplete(0x40))
    same(bench.takeTexts(), ["2: noSuchLink", "3: noSuchLink", "4: noSuchLink", "link 1 down: 0x13"])
  }
  @Test func thePolicyForRequestsOfPeers() {
    let limits = ConnectionParameterRange(.medium)
    for (policy, isAccepted) in [(ParameterPolicy.refuse, false), (.acceptWithin(limits), false), (.accept, true)] {
      var bench = Self.linked(.central) { $0.parameterPolicy = policy }
      // 30 … 50 ms, by both procedures.
      bench.receive(octets("04 3E 0B 06 40 00 18 00 28 00 00 00 F4 01"))
      same(bench.takeAll().map { $0.contains("Negative") }, [!isAccepted])
      bench.answer()
      bench.receive(data(0x40, channel: 5, octets("12 07 08 00 18 00 28 00 00 00 F4 01")))
      let answer = "02 40 00 0A 00 06 00 05 00 13 07 02 00 0\(isAccepted ? 0 : 1) 00"
      same(bench.takeAll(), isAccepted ? ["LE_Connection_Update", answer] : [answer])
    }
    #expect(ParameterPolicy.acceptWithin(limits).accepts(limits.request))
  }

  private static let peersRequest = "04 3E 0B 06 40 00 18 00 28 00 00 00 F4 01"
  /// One event ends every update: the host does not accept another during its own, nor begin one during the peer's.
  /// Vol 4, Part E, §7.7.65.3, §7.7.65.6.
  @Test(arguments: [LinkRole.central, .peripheral]) func oneUpdateAtATime(_ role: LinkRole) {
    var bench = Self.linked(role)
    Self.update(&bench, 1)
    bench.answer()
    _ = bench.takeAll()
    bench.receive(Self.peersRequest)
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Negative_Reply"])
    bench.answer()
    bench.receive(Self.complete())
    same(bench.takeAll(), [Self.change, "1: \(Self.fast)"])
    // The peer's first.
    bench.receive(Self.peersRequest)
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Reply"])
    bench.answer()
    Self.update(&bench, 2)
    bench.receive(Self.peersRequest)
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Negative_Reply", "2: busy"])
    bench.answer()
    bench.receive(Self.complete())
    same(bench.takeAll(), [Self.change])
    Self.update(&bench, 3)
    same(bench.takeAll(), ["LE_Connection_Update"])
  }
  /// The peer's update ends when the controller refuses our reply, or reports nothing for 40 s.
  @Test func thePeersUpdateEnds() {
    var bench = Self.linked(.central)
    bench.receive(Self.peersRequest)
    bench.answer(.commandDisallowed)
    bench.receive(Self.peersRequest)
    bench.answer()
    bench.wait(.seconds(40))
    same(bench.takeAll(), [String](repeating: "LE_Remote_Connection_Parameter_Request_Reply", count: 2))
    Self.update(&bench, 1)
    same(bench.takeAll(), ["LE_Connection_Update"])
  }
  /// No link has this handle.
  @Test func aRequestWithoutALink() {
    var bench = Self.linked(.central)
    bench.receive(Self.peersRequest.replacing("40 00", with: "41 00"))
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Negative_Reply"])
  }

  // MARK: Wishes

  /// All rules of `ConnectionLatency`. Times in units of 1.25 ms and 10 ms.
  @Test("S153, S155: every latency obeys every rule", arguments: ConnectionLatency.allCases)
  func wishes(_ wish: ConnectionLatency) {
    let wanted = ConnectionParameterRange(wish)
    let least = wanted.intervalMin.duration, most = wanted.intervalMax.duration
    let timeout = wanted.supervisionTimeout.duration, silence = most * (Int(wanted.latency) + 1)
    let unit = Duration.milliseconds(15)
    #expect(least >= unit && least.nanoseconds % unit.nanoseconds == 0)
    #expect(most.nanoseconds % unit.nanoseconds == 0)
    #expect(least + unit <= most || (least == unit && most == unit))
    #expect(wanted.latency <= 30)
    #expect((.seconds(2) ... .seconds(6)).contains(timeout))
    #expect(silence <= .seconds(2))
    #expect(silence * 3 < timeout)
    #expect(silence * 2 < timeout)
    #expect(wanted.isValid)
  }
  @Test("S155: low, medium and high are 0, 1 and 2, and in that order") func order() {
    #expect(ConnectionLatency.allCases.map(\.rawValue) == [0, 1, 2])
    let silences = ConnectionLatency.allCases.map { wish in
      let wanted = ConnectionParameterRange(wish)
      return wanted.intervalMax.duration * (Int(wanted.latency) + 1)
    }
    #expect(silences[0] < silences[1] && silences[1] < silences[2])
  }
}

@Suite("Strength, modulation, packet length") struct LinkStatusTests {
  private static func linked() -> Bench {
    var bench = Bench.started()
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    return bench
  }
  @Test func strength() {
    var bench = Self.linked()
    bench.perform { core, now in core.readRSSI(link1, id: id(1), now: now) }
    bench.perform { core, now in core.readRSSI(link1, id: id(2), now: now) }
    same(bench.takeAll(), ["Read_RSSI"])
    bench.receive(commandComplete(ReadRSSI.opcode, .success, [0x40, 0, 0xC5]))
    same(bench.takeAll(), ["1: rssi -59", "2: rssi -59"])
    bench.perform { core, now in core.readRSSI(link1, id: id(3), now: now) }
    bench.receive(commandComplete(ReadRSSI.opcode, .success, [0x40, 0, 127]))
    bench.perform { core, now in core.readRSSI(link1, id: id(4), now: now) }
    bench.receive(commandComplete(ReadRSSI.opcode, .success))
    bench.perform { core, now in core.readRSSI(link1, id: id(5), now: now) }
    bench.wait(.seconds(2))
    bench.perform { core, now in core.readRSSI(link1, id: id(6), now: now) }
    same(
      bench.takeTexts(),
      [
        "3: rssi nil", "4: refused to readRSSI 0x1F", "5: controllerIsSilent", "6: refused to readRSSI 0x01",
      ])
  }
  @Test func modulation() {
    var bench = Self.linked()
    bench.perform { core, now in core.readPHYs(link1, id: id(1), now: now) }
    bench.receive(commandComplete(LEReadPHY.opcode, .success, [0x40, 0, 1, 3]))
    same(bench.takeTexts(), ["1: LE 1M out, LE Coded in"])
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(2), now: now) }
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(3), now: now) }
    same(
      bench.lastCommand, "Connection_Handle: 0x0040, All_PHYs: 0x02, TX_PHYs: 0x02, RX_PHYs: 0x00, PHY_Options: 0x0000")
    bench.answer()
    bench.receive(octets("04 3E 06 0C 00 40 00 02 01"))
    same(bench.takeTexts(), ["3: busy", "link 1: LE 2M out, LE 1M in", "2: LE 2M out, LE 1M in"])
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(receive: []), id: id(4), now: now) }
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(), id: id(5), now: now) }
    bench.answer()
    bench.receive(octets("04 3E 06 0C 1A 40 00 02 01"))
    same(bench.takeTexts(), ["4: invalidParameters", "5: refused to setPHYs 0x1A"])
    // The peer changes it.
    bench.receive(octets("04 3E 06 0C 00 40 00 01 01"))
    same(bench.takeTexts(), ["link 1: LE 1M out, LE 1M in"])
    bench.perform { core, now in core.setDefaultPHYs(PHYPreferences(receive: .leCoded), id: id(6), now: now) }
    bench.answer(.unsupportedFeatureOrParameterValue)
    bench.perform { core, now in core.setDefaultPHYs(PHYPreferences(), id: id(7), now: now) }
    bench.answer()
    same(bench.takeTexts(), ["6: refused to setDefaultPHYs 0x11", "7: done"])
  }
  /// A controller that reports no change, not even in the link layer's own time-out: Vol 6, Part B, §5.2. An update
  /// that was cancelled ends too, and then the link takes another.
  @Test(arguments: [false, true]) func everyChangeOfModulationEnds(_ isCancelled: Bool) {
    var bench = Self.linked()
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(1), now: now) }
    bench.answer()
    if isCancelled { bench.perform { core, now in core.cancel(id(1), now: now) } }
    same(bench.takeTexts(), isCancelled ? ["1: cancelled"] : [])
    bench.wait(.milliseconds(39_999))
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(2), now: now) }
    same(bench.takeTexts(), ["2: busy"])
    bench.wait(.milliseconds(1))
    same(bench.takeTexts(), isCancelled ? [] : ["1: refused to setPHYs 0x22"])
    bench.perform { core, now in core.setPHYs(link1, PHYPreferences(transmit: .le2M), id: id(3), now: now) }
    bench.answer()
    bench.receive(octets("04 3E 06 0C 00 40 00 02 01"))
    same(bench.takeTexts(), ["link 1: LE 2M out, LE 1M in", "3: LE 2M out, LE 1M in"])
  }
  /// Requests at the same time share one command, and later ones need none. Vol 4, Part E, §7.8.21, §7.7.65.4.
  @Test func features() {
    var bench = Self.linked()
    for number: UInt64 in 1...3 { bench.perform { core, now in core.readFeatures(link1, id: id(number), now: now) } }
    bench.perform { core, now in core.cancel(id(1), now: now) }
    same(bench.takeAll(), ["LE_Read_Remote_Features", "1: cancelled"])
    same(bench.lastCommand, "Connection_Handle: 0x0040")
    bench.answer()
    bench.receive(octets("04 3E 0C 04 00 40 00 23 59 00 00 00 00 00 00"))
    same(bench.takeTexts(), ["2: features 0x0000000000005923", "3: features 0x0000000000005923"])
    bench.perform { core, now in core.readFeatures(link1, id: id(4), now: now) }
    // The answer to another program's command.
    bench.receive(octets("04 3E 0C 04 00 40 00 FF 00 00 00 00 00 00 00"))
    bench.perform { core, now in core.readFeatures(link1, id: id(5), now: now) }
    same(bench.takeAll(), ["4: features 0x0000000000005923", "5: features 0x0000000000005923"])
    bench.perform { core, now in core.readFeatures(LinkID(rawValue: 9), id: id(6), now: now) }
    same(bench.takeTexts(), ["6: noSuchLink"])
  }
  /// The last request's cancellation does not end the exchange: the next one joins it.
  @Test func featuresAreReadOnce() {
    var bench = Self.linked()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    bench.answer()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    bench.perform { core, now in core.readFeatures(link1, id: id(2), now: now) }
    bench.receive(octets("04 3E 0C 04 00 40 00 01 00 00 00 00 00 00 00"))
    same(bench.takeAll(), ["LE_Read_Remote_Features", "1: cancelled", "2: features 0x0000000000000001"])
  }
  /// A controller of Core 6.0 that has the command for all pages. Vol 4, Part E, §7.8.129, §7.7.65.38.
  @Test func featuresOfAllPages() {
    var paper = PaperController()
    paper.version = 14
    var bench = Bench.started(controller: paper)
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    same(bench.takeAll(), ["LE_Read_All_Remote_Features"])
    same(bench.lastCommand, "Connection_Handle: 0x0040, Pages_Requested: 10")
    bench.answer()
    let pages: [UInt8] = [0xFF, 0, 0, 0, 0, 0, 0, 0x80, 0x03] + [UInt8](repeating: 0, count: 239)
    bench.receive([4, 0x3E, 254, 0x2B, 0, 0x40, 0, 1, 10] + pages)
    same(bench.takeTexts(), ["1: features 0x80000000000000FF, bit 64, bit 65"])

    paper.lacks = [SupportedCommandBit(47, 3)]
    bench = Bench.started(controller: paper)
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    same(bench.takeAll(), ["LE_Read_Remote_Features"])
  }
  /// A peer that does not tell its features, a controller that refuses or is silent: the next request asks again.
  @Test func featuresAreRefused() {
    var bench = Self.linked()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    bench.answer()
    bench.receive(octets("04 3E 0C 04 1A 40 00 00 00 00 00 00 00 00 00"))
    bench.perform { core, now in core.readFeatures(link1, id: id(2), now: now) }
    bench.answer(.commandDisallowed)
    bench.perform { core, now in core.readFeatures(link1, id: id(3), now: now) }
    bench.wait(.seconds(2))
    same(
      bench.takeTexts(),
      ["1: refused to readFeatures 0x1A", "2: refused to readFeatures 0x0C", "3: controllerIsSilent"])
    // Vol 6, Part B, §5.2.
    bench = Self.linked()
    bench.perform { core, now in core.readFeatures(link1, id: id(4), now: now) }
    bench.answer()
    bench.wait(.milliseconds(39_999))
    bench.perform { core, now in core.readFeatures(link1, id: id(5), now: now) }
    same(bench.takeTexts(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeTexts(), ["4: refused to readFeatures 0x22", "5: refused to readFeatures 0x22"])

    var poor = PaperController()
    poor.lacks = [LEReadRemoteFeatures.supportedBit!]
    bench = Bench.started(controller: poor)
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    same(bench.takeAll(), ["1: refused to readFeatures 0x01"])
  }
  @Test func theEndOfTheLinkEndsTheFeatures() {
    var bench = Self.linked()
    bench.perform { core, now in core.readFeatures(link1, id: id(1), now: now) }
    bench.answer()
    bench.receive(disconnectionComplete(0x40))
    same(bench.takeTexts(), ["1: noSuchLink", "link 1 down: 0x13"])
    // The next link with this handle has others.
    bench.receive(connectionComplete(0x40, .peripheral))
    bench.receive(octets("04 3E 0C 04 00 40 00 01 00 00 00 00 00 00 00"))
    _ = bench.takeAll()
    bench.perform { core, now in core.readFeatures(LinkID(rawValue: 2), id: id(2), now: now) }
    same(bench.takeAll(), ["LE_Read_Remote_Features"])
  }
  @Test func pagesAndBitsOfFeatures() {
    let features = RemoteFeatures([0x21, 0x01, 0, 0, 0, 0, 0, 0x80, 0, 0x01] + [UInt8](repeating: 0, count: 238))
    same(features.octets, [0x21, 0x01, 0, 0, 0, 0, 0, 0x80, 0, 0x01])
    #expect(features.page0 == [.leEncryption, .leDataPacketLengthExtension, .le2MPHY, .llExtendedFeatureSet])
    #expect(features.contains([.leEncryption, .le2MPHY]) && !features.contains([.leEncryption, .leCodedPHY]))
    same((-1...2_000).filter { features[$0] }, [0, 5, 8, 63, 72])
    same("\(features)", "0x8000000000000121, bit 72")
    #expect(RemoteFeatures([]) == RemoteFeatures(LEFeatures()) && RemoteFeatures([]).page0.isEmpty)
    same("\(RemoteFeatures([]))", "0x0000000000000000")
  }
  @Test func packetLength() {
    var bench = Self.linked()
    same(bench.core.dataLength(of: link1)?.transmitOctets, 27)
    bench.receive(octets("04 3E 0B 07 40 00 FB 00 48 08 1B 00 48 01"))
    same(bench.takeTexts(), ["link 1: 251 octets out, 27 in"])
    same(bench.core.dataLength(of: link1)?.transmitTime, 2120)
  }
}
