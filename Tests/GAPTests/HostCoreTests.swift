import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

private func id(_ number: UInt64) -> RequestID { RequestID(rawValue: number) }
private let link1 = LinkID(rawValue: 1)

@Suite("HostCore: start and end of a controller") struct ControllerTests {
  private var homeless: PaperController {
    var controller = PaperController()
    controller.address = [0, 0, 0, 0, 0, 0]
    return controller
  }

  @Test func aPublicAddressIsUsedEverywhere() {
    var bench = Bench()
    bench.start()
    same(bench.takeTexts(), ["started"])
    same(bench.core.ownAddress, PeerAddress(DeviceAddress(0x0102_0304_0506), .public))
    same(bench.ownAddressTypes(), ["public", "public", "public"])
  }

  @Test func withoutAPublicAddressARandomStaticOneIsSetFirst() {
    var bench = Bench(controller: homeless) { $0.randomStaticAddress = DeviceAddress(0xC000_5E00_5300) }
    bench.start()
    same(bench.takeTexts(), ["started"])
    same(bench.core.ownAddress, PeerAddress(DeviceAddress(0xC000_5E00_5300), .random))
    same(bench.lastCommand, "Random_Address: C0:00:5E:00:53:00")
    same(bench.ownAddressTypes(), ["random", "random", "random"])
  }

  @Test func withoutAnyAddressThereIsNoStart() {
    var refusing = homeless, silent = homeless, lacking = homeless
    refusing.refused = [LESetRandomAddress.opcode: .commandDisallowed]
    silent.silent = [LESetRandomAddress.opcode]
    lacking.lacks = [LESetRandomAddress.supportedBit!]
    for (controller, reason) in [
      (refusing, "the controller refuses HCI_LE_Set_Random_Address: 0x0C (Command Disallowed)"),
      (silent, "the controller does not answer HCI_LE_Set_Random_Address"),
      (lacking, "the controller refuses HCI_LE_Set_Random_Address: 0x01 (Unknown HCI Command)"),
    ] {
      var bench = Bench(controller: controller)
      bench.start()
      bench.wait(.seconds(3))
      same(bench.takeTexts(), ["startFailed: \(reason)"])
      // The next start may succeed.
      bench.controller = homeless
      bench.start()
      same(bench.takeTexts(), ["started"])
    }
  }

  @Test func startedAgainWhileItsAddressIsSet() {
    var silent = homeless
    silent.silent = [LESetRandomAddress.opcode]
    var bench = Bench(controller: silent)
    bench.start()
    same(bench.takeTexts(), [])
    bench.controller = homeless
    bench.start()
    same(bench.takeTexts(), ["started"])
    bench.wait(.seconds(10))
    same(bench.takeTexts(), [])
  }

  @Test func nothingIsDoneBeforeTheStart() throws {
    var bench = Bench()
    for phase in ["stopped", "starting"] {
      same(name(bench.core.phase), phase)
      bench.perform { core, now in core.startScan(now: now) }
      bench.advertise("a")
      bench.connect(1)
      bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
      bench.perform { core, _ in core.withClient(of: link1, id: id(3)) { $0.discoverAll(id(3)) } }
      bench.perform { core, now in core.stopScan(now: now) }
      bench.perform { core, now in core.stopAdvertising(now: now) }
      same(
        bench.takeAll(),
        (phase == "starting" ? ["Reset"] : []) + [
          "scanFailed 0x0C", "advertisingFailed 0x0C", "1: notStarted", "2: noSuchLink", "3: noSuchLink",
          "scanStopped", "advertisingStopped",
        ])
      bench.perform { core, now in core.start(now: now) }
    }
  }

  @Test func hardwareErrorEndsEverythingOnce() {
    var bench = Bench.started()
    bench.perform { core, now in core.startScan(now: now) }
    bench.advertise("a")
    bench.answerAll()
    bench.connect(1)
    bench.answerAll()
    bench.receive(connectionComplete(0x40))
    bench.connect(2, Bench.otherPeer)
    bench.perform { core, _ in core.withClient(of: link1, id: id(3)) { $0.discoverAll(id(3)) } }
    bench.perform { core, _ in core.withClient(of: link1, id: id(4)) { $0.read(id(4), AttributeHandle(rawValue: 3)) } }
    bench.perform { core, now in core.disconnect(link1, id: id(5), now: now) }
    _ = bench.takeAll()
    bench.receive("04 10 01 2A")
    same(
      bench.takeAll(),
      [
        "hardwareError", "controllerFailed 0x03", "3: bearer disconnected", "4: bearer disconnected",
        "link 1 down: 0x03", "5: disconnected",
        "2: notStarted", "scanStopped", "advertisingStopped",
      ])
    // No output until the next start.
    bench.receive(connectionComplete(0x41, .peripheral))
    bench.receive(data(0x40, [0x0A, 3, 0]))
    bench.receive("04 10 01 2A")
    bench.wait(.seconds(60))
    same(bench.takeAll(), [])
    same(bench.core.deadline, nil)
    bench.start()
    same(bench.takeTexts(), ["started"])
    bench.receive(connectionComplete(0x40, .peripheral))
    same(bench.takeTexts(), ["link 2 up: \(Bench.peer), Peripheral"])
  }

  @Test func aHandleThatIsInUseMeansThatTheControllerIsLost() {
    var bench = Bench.started()
    bench.receive(connectionComplete(0x40, .peripheral))
    bench.receive(connectionComplete(0x40, .peripheral, Bench.otherPeer))
    same(
      bench.takeTexts(),
      ["link 1 up: \(Bench.peer), Peripheral", "handleInUse 64", "controllerFailed 0x1F", "link 1 down: 0x03"])
  }

  /// Commands that the controller lacks end before the call returns: without `expire`, and without waiting for a
  /// packet.
  @Test func unsupportedCommands() {
    var controller = PaperController()
    controller.lacks = [
      LESetScanParameters.supportedBit!, LESetAdvertisingParameters.supportedBit!, LECreateConnection.supportedBit!,
      Disconnect.supportedBit!, LEConnectionUpdate.supportedBit!,
      LERemoteConnectionParameterRequestReply.supportedBit!, LELongTermKeyRequestNegativeReply.supportedBit!,
    ]
    var bench = Bench.started(controller: controller)
    bench.perform { core, now in core.startScan(now: now) }
    bench.advertise("a")
    bench.connect(1)
    same(bench.takeAll(), ["scanFailed 0x01", "advertisingFailed 0x01", "1: refused to connect 0x01"])
    bench.receive(connectionComplete(0x40, .central))
    same(bench.takeAll(), ["disconnectRefused 0x01"])
    bench.receive(connectionComplete(0x41, .peripheral))
    bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
    same(
      bench.takeAll(),
      ["link 1 up: \(Bench.peer), Peripheral", "link 1 disconnectRefused 0x01", "2: refused to disconnect 0x01"])
    bench.receive(octets("04 3E 0B 06 41 00 18 00 28 00 00 00 F4 01"))
    bench.receive(octets("04 3E 0D 05 41 00 00 00 00 00 00 00 00 00 00 00"))
    same(bench.takeAll(), [])
    same(bench.core.deadline, nil)
  }

  /// The controller has half of each machine's commands: the first is sent, the second cannot be.
  @Test func unsupportedSecondCommands() {
    var controller = PaperController()
    controller.lacks = [
      LESetScanEnable.supportedBit!, LESetScanResponseData.supportedBit!, LECreateConnectionCancel.supportedBit!,
    ]
    var bench = Bench.started(controller: controller)
    bench.perform { core, now in core.startScan(now: now) }
    bench.answerAll()
    same(bench.takeAll(), ["LE_Set_Scan_Parameters", "scanFailed 0x01"])
    bench.advertise("a")
    bench.answerAll()
    same(bench.takeAll(), ["LE_Set_Advertising_Parameters", "LE_Set_Advertising_Data", "advertisingFailed 0x01"])
    bench.connect(1)
    bench.answerAll()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    same(bench.takeAll(), ["LE_Create_Connection", "1: cancelled"])
    same(bench.core.deadline, bench.now + .seconds(2))
    bench.connect(2, Bench.otherPeer)
    bench.wait(.seconds(2))
    same(bench.takeAll(), ["LE_Create_Connection"])
    // The first attempt is still in progress: the second command is repeated until that ends.
    bench.answer(.commandDisallowed)
    same(bench.takeAll(), [])
    bench.wait(.seconds(2))
    bench.answer(.commandDisallowed)
    same(bench.takeAll(), ["LE_Create_Connection"])
    bench.receive(connectionComplete(0x40))
    same(bench.takeAll(), ["LE_Create_Connection"])
    bench.answer()
    same(bench.takeAll(), ["Disconnect(64, 0x13)"])
    same(bench.core.deadline, bench.now + .seconds(2))
  }

  /// The core's own commands have room of their own: all leave, and each has one outcome.
  @Test func moreCommandsThanFit() {
    var bench = Bench.started()
    bench.connect(1)
    bench.answerAll()
    bench.receive(connectionComplete(0x40))
    _ = bench.takeAll()
    // Unrequested links, each of which the core disconnects.
    for handle in 0..<800 { bench.receive(connectionComplete(0x100 + UInt16(handle), .central, Bench.otherPeer)) }
    same(bench.takeTexts(), [])
    bench.perform { core, now in core.startScan(now: now) }
    same(bench.takeTexts(), [])
    var answers = 0
    while bench.answer(.commandDisallowed) { answers += 1 }
    same(answers, 801)
    same(bench.takeTexts().count, answers)
    bench.perform { core, now in core.disconnect(link1, id: id(3), now: now) }
    bench.answer()
    bench.receive(disconnectionComplete(0x40, .connectionTerminatedByLocalHost))
    same(bench.takeTexts(), ["link 1 down: 0x16", "3: disconnected"])
  }
}

@Suite("HostCore: links") struct LinkTests {
  /// A central with a link to `Bench.peer`, after the MTU exchange.
  private static func central() -> Bench {
    var bench = Bench.started()
    bench.connect(1)
    bench.answerAll()
    bench.receive(connectionComplete(0x40))
    bench.receive(data(0x40, [3, 5, 2]))
    bench.receive(completedPackets(0x40, 1))
    _ = bench.takeAll()
    return bench
  }
  private static func peripheral() -> Bench {
    var bench = Bench.started()
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    return bench
  }

  @Test func aLinkFromUpToDown() {
    var bench = Bench.started()
    bench.connect(1)
    bench.answerAll()
    bench.receive(connectionComplete(0x40))
    bench.receive(data(0x40, [3, 23, 0]))
    bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
    bench.perform { core, now in core.disconnect(link1, id: id(3), now: now) }
    bench.answerAll()
    bench.receive(disconnectionComplete(0x40, .connectionTerminatedByLocalHost))
    same(
      bench.takeAll(),
      [
        "LE_Create_Connection", "02 40 00 07 00 03 00 04 00 02 05 02", "Disconnect(64, 0x13)",
        "link 1 up: \(Bench.peer), Central", "1: link 1", "mtuChanged(link 1, mtu: 23)", "link 1 down: 0x16",
        "2: disconnected", "3: disconnected",
      ])
  }

  /// On a link that the peer made, an app would keep an ATT_MTU of 23 if the peer asks for no exchange: one precedes our
  /// client's first request. Once, and not if the peer has asked: Vol 3, Part F, §3.4.2.1.
  @Test(arguments: [false, true]) func aPeripheralsClientExchangesTheMTU(thePeerHas: Bool) {
    var bench = Self.peripheral()
    bench.answerAll()
    if thePeerHas { bench.receive(data(0x40, [0x02, 100, 0])) }
    _ = bench.takeAll()
    for number in UInt64(1)...2 {
      bench.perform { core, _ in
        core.withClient(of: link1, id: id(number)) { $0.read(id(number), AttributeHandle(rawValue: 3)) }
      }
    }
    if thePeerHas {
      same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 0A 03 00"])
    } else {
      same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 02 05 02"])
      bench.receive(data(0x40, [0x03, 247, 0]))
      same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 0A 03 00", "mtuChanged(link 1, mtu: 247)"])
      // The peer may still ask; its answer is the same as ours.
      bench.receive(data(0x40, [0x02, 247, 0]))
      same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 03 05 02", "mtuChanged(link 1, mtu: 247)"])
    }
    bench.receive(data(0x40, [0x0B, 7]))
    #expect(bench.sent == ["02 40 00 07 00 03 00 04 00 0A 03 00"])
  }

  @Test func oneLinkWithAPeer() {
    var bench = Self.central()
    bench.connect(2)
    same(bench.takeAll(), ["2: busy"])
    bench.receive(disconnectionComplete(0x40))
    bench.connect(3)
    same(bench.takeAll(), ["LE_Create_Connection", "link 1 down: 0x13"])
  }

  @Test func moreRequestsThanMayWait() {
    var bench = Bench.started()
    for number in 0..<1030 { bench.connect(UInt64(number), PeerAddress(DeviceAddress(UInt64(number)), .public)) }
    same(bench.takeTexts(), (1024..<1030).map { "\($0): busy" })
    bench.start()
    same(bench.takeTexts(), (0..<1024).map { "\($0): notStarted" } + ["started"])
  }

  /// A link that comes up while its request is being cancelled is disconnected.
  @Test func cancelLosesTheRace() {
    var bench = Bench.started()
    bench.connect(1)
    bench.answerAll()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    bench.receive(connectionComplete(0x40))
    bench.connect(2, Bench.otherPeer)
    // The controller had nothing left to cancel; its answer does not concern the next attempt.
    bench.answer(.commandDisallowed)
    same(
      bench.takeAll(),
      ["LE_Create_Connection", "LE_Create_Connection_Cancel", "Disconnect(64, 0x13)", "1: cancelled"])
    bench.answerAll()
    bench.receive(disconnectionComplete(0x40, .connectionTerminatedByLocalHost))
    bench.receive(connectionComplete(0x41, .central, Bench.otherPeer))
    same(
      bench.takeAll(),
      [
        "LE_Create_Connection", "02 41 00 07 00 03 00 04 00 02 05 02", "link 1 up: \(Bench.otherPeer), Central",
        "2: link 1",
      ])
  }

  /// Bumble's controller answers the cancel and never reports the end of the attempt.
  @Test func theEndOfACancelledAttemptNeverComes() {
    var bench = Bench.started()
    bench.connect(1)
    bench.answerAll()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    bench.answerAll()
    bench.connect(2, Bench.otherPeer)
    same(bench.takeAll(), ["LE_Create_Connection", "LE_Create_Connection_Cancel", "1: cancelled"])
    bench.wait(.milliseconds(1999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Create_Connection"])
    bench.answerAll()
    // When the end or the link comes late, the next attempt begins.
    bench.receive(connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier))
    bench.receive(connectionComplete(0x40))
    same(bench.takeAll(), ["Disconnect(64, 0x13)"])
    bench.answerAll()
    bench.receive(connectionComplete(0x41, .central, Bench.otherPeer))
    same(bench.takeTexts(), ["link 1 up: \(Bench.otherPeer), Central", "2: link 1"])
  }

  @Test func cancelAfterTheEndDoesNothing() {
    var bench = Self.central()
    bench.perform { core, now in core.cancel(id(1), now: now) }
    bench.perform { core, now in core.cancel(id(99), now: now) }
    same(bench.takeAll(), [])
  }
  @Test func cancelOfADisconnectEndsTheWaitOnly() {
    var bench = Self.central()
    bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
    bench.perform { core, now in core.cancel(id(2), now: now) }
    bench.answerAll()
    bench.receive(disconnectionComplete(0x40))
    same(bench.takeAll(), ["Disconnect(64, 0x13)", "2: cancelled", "link 1 down: 0x13"])
  }

  /// The controller has no such link, because its event was lost. The handle can be used again.
  @Test func disconnectOfALinkThatIsGone() {
    var bench = Self.central()
    bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
    bench.answer(.unknownConnectionIdentifier)
    bench.receive(connectionComplete(0x40, .peripheral))
    same(
      bench.takeAll(),
      ["Disconnect(64, 0x13)", "link 1 down: 0x16", "2: disconnected", "link 2 up: \(Bench.peer), Peripheral"])
  }
  @Test func disconnectRefused() {
    var bench = Self.central()
    bench.perform { core, now in core.disconnect(link1, id: id(2), now: now) }
    bench.answer(.commandDisallowed)
    bench.perform { core, now in core.disconnect(link1, id: id(3), now: now) }
    bench.wait(.seconds(2))
    same(
      bench.takeAll(),
      [
        "Disconnect(64, 0x13)", "Disconnect(64, 0x13)", "link 1 disconnectRefused 0x0C",
        "2: refused to disconnect 0x0C",
        "link 1 disconnectRefused 0x22", "3: controllerIsSilent",
      ])
  }

  /// Vol 3, Part F, §3.3.3.
  @Test func thirtySecondsWithoutAResponseEndTheLink() {
    var bench = Self.central()
    for number: UInt64 in 2...3 {
      bench.perform { core, _ in
        core.withClient(of: link1, id: id(number)) { $0.read(id(number), AttributeHandle(rawValue: 3)) }
      }
    }
    same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 0A 03 00"])
    bench.receive(completedPackets(0x40, 1))
    bench.wait(.milliseconds(29_999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(
      bench.takeAll(),
      ["Disconnect(64, 0x13)", "2: bearer timedOut", "3: bearer timedOut", "link 1 transactionTimedOut"])
    bench.answerAll()
    // The peer's late answer causes no further command.
    for _ in 0..<10 { bench.receive(data(0x40, [0x0B, 1])) }
    bench.perform { core, _ in core.withClient(of: link1, id: id(4)) { $0.read(id(4), AttributeHandle(rawValue: 3)) } }
    same(bench.takeAll(), ["4: bearer timedOut"])
    bench.receive(disconnectionComplete(0x40, .connectionTerminatedByLocalHost))
    same(bench.takeAll(), ["link 1 down: 0x16"])
    same(bench.core.deadline, nil)
  }

  @Test func requestsEndBeforeTheirLink() throws {
    var builder = DatabaseBuilder()
    let (value, dynamic) = builder.service("180D") {
      (
        $0.characteristic("2A37", .notify).value,
        $0.characteristic("2A9F", [.read], value: .dynamic).value
      )
    }
    var bench = Bench.started(try builder.build())
    bench.receive(connectionComplete(0x40, .peripheral))
    let descriptor = value.rawValue + 1
    bench.receive(data(0x40, [0x12] + little(descriptor) + [1, 0]))
    bench.receive(data(0x40, [0x0A] + little(dynamic.rawValue)))
    _ = bench.takeAll()
    bench.receive(disconnectionComplete(0x40))
    same(
      bench.takeTexts().map { String($0.prefix { $0 != "(" }) },
      ["requestCancelled", "subscriptionChanged", "link 1 down: 0x13"])
    guard case .subscriptionChanged(link1, value, [])? = bench.effects.dropLast().last else {
      Issue.record("\(bench.effects.count) effects")
      return
    }
    // A new link with the same handle has none of the old one's state.
    bench.receive(connectionComplete(0x40, .peripheral))
    same(bench.takeTexts(), ["link 2 up: \(Bench.peer), Peripheral"])
    same(bench.core.subscribers(of: value), [])
  }

  @Test func longPacketsAreAskedForWhereTheControllerHasThem() {
    var controller = PaperController()
    controller.maximumOctets = 251
    var bench = Bench.started(controller: controller)
    bench.receive(connectionComplete(0x40, .peripheral))
    same(bench.takeAll(), ["LE_Set_Data_Length", "link 1 up: \(Bench.peer), Peripheral"])
    same(bench.lastCommand, "Connection_Handle: 0x0040, TX_Octets: 251, TX_Time: 2120")
    bench.answer(.unsupportedRemoteFeature)
    same(bench.takeAll(), [])
  }

  @Test func withoutKeysThereIsNoEncryption() {
    var bench = Self.peripheral()
    bench.receive(octets("04 3E 0D 05 40 00 00 00 00 00 00 00 00 00 00 00"))
    same(bench.takeAll(), ["LE_Long_Term_Key_Request_Negative_Reply"])
  }

  // MARK: Connection parameters

  private let request = octets("12 07 08 00 18 00 28 00 00 00 F4 01"), refused = octets("13 07 02 00 01 00")

  /// Vol 3, Part A, §4.20, §4.21.
  @Test func thePeripheralAsksOverL2CAP() {
    var bench = Self.central()
    bench.receive(data(0x40, channel: 5, request))
    same(bench.takeAll(), ["LE_Connection_Update", "02 40 00 0A 00 06 00 05 00 13 07 02 00 00 00"])
    same(
      bench.lastCommand.prefix { $0 != "M" },
      "Connection_Handle: 0x0040, Connection_Interval_")
    bench.answer()
    bench.receive(octets("04 3E 0A 03 00 40 00 28 00 00 00 F4 01"))
    same(
      bench.takeAll(), ["link 1: interval 40 (50 ms), latency 0, supervision time-out 500 (5000 ms)"])
    // Out of range: interval 5, latency that the time-out does not hold.
    bench.receive(completedPackets(0x40, 1))
    for bad in [octets("12 07 08 00 05 00 28 00 00 00 F4 01"), octets("12 07 08 00 18 00 28 00 63 00 F4 01")] {
      bench.receive(data(0x40, channel: 5, bad))
      same(bench.takeAll(), ["02 40 00 0A 00 06 00 05 00 " + hex(refused)])
      bench.receive(completedPackets(0x40, 1))
    }
  }
  @Test func thePeripheralAsksOverTheLinkLayer() {
    var bench = Self.central()
    bench.receive(octets("04 3E 0B 06 40 00 18 00 28 00 00 00 F4 01"))
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Reply"])
    bench.answer()
    bench.receive(octets("04 3E 0B 06 40 00 05 00 28 00 00 00 F4 01"))
    same(bench.takeAll(), ["LE_Remote_Connection_Parameter_Request_Negative_Reply"])
    same(bench.lastCommand.suffix(4), "ers)")
  }
  /// A controller of Bluetooth 4.0 has no procedure for it, so the host uses L2CAP: Vol 3, Part A, §4.20.
  @Test func thePeripheralRequestsParameters() {
    var bench = Bench.started(controller: .old)
    bench.receive(connectionComplete(0x40, .peripheral))
    _ = bench.takeAll()
    bench.perform { core, now in core.updateParameters(link1, .fast, now: now) }
    bench.perform { core, now in core.updateParameters(link1, .fast, now: now) }
    same(
      bench.takeAll(),
      ["02 40 00 10 00 0C 00 05 00 12 01 08 00 06 00 06 00 00 00 F4 01", "link 1 parametersRejected 0x0C"])
    bench.receive(data(0x40, channel: 5, octets("13 01 02 00 01 00")))
    same(bench.takeAll(), ["link 1 parametersRejected 0x3B"])
    let impossible = ConnectionParameters(
      interval: ConnectionInterval(rawValue: 3200), supervisionTimeout: SupervisionTimeout(rawValue: 10))
    bench.perform { core, now in core.updateParameters(link1, impossible, now: now) }
    same(bench.takeAll(), ["link 1 parametersRejected 0x11"])
  }
  @Test func theCentralChangesParameters() {
    var bench = Self.central()
    bench.perform { core, now in core.updateParameters(link1, .fast, now: now) }
    bench.answer(.commandDisallowed)
    same(bench.takeAll(), ["LE_Connection_Update", "link 1 parametersRejected 0x0C"])
    bench.perform { core, now in core.updateParameters(link1, .fast, now: now) }
    bench.answer()
    bench.receive(octets("04 3E 0A 03 3B 40 00 28 00 00 00 F4 01"))
    same(bench.takeAll(), ["LE_Connection_Update", "link 1 parametersRejected 0x3B"])
  }
}

extension Bench {
  /// `Own_Address_Type` of the commands that scan, advertise and connect.
  mutating func ownAddressTypes() -> [String] {
    var types: [String] = []
    perform { core, now in core.startScan(now: now) }
    types.append(ownAddressType())
    answerAll()
    advertise("a")
    types.append(ownAddressType())
    answerAll()
    connect(1)
    types.append(ownAddressType())
    return types
  }
  private func ownAddressType() -> String {
    let label = "Own_Address_Type: "
    guard let field = lastCommand.split(separator: ", ").first(where: { $0.hasPrefix(label) }) else {
      return lastCommand
    }
    return String(field.dropFirst(label.count))
  }
}
