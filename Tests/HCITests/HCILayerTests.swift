import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@Suite struct ControllerStartTests {
  @Test func everyStepInOrder() throws {
    var bench = Bench()
    let (opcodes, end) = bench.start()
    #expect(
      opcodes == [
        Reset.opcode, ReadLocalVersionInformation.opcode, ReadLocalSupportedCommands.opcode,
        ReadLocalSupportedFeatures.opcode, LEReadLocalSupportedFeatures.opcode, ReadBDADDR.opcode, SetEventMask.opcode,
        SetEventMaskPage2.opcode, LESetEventMask.opcode, LEReadBufferSize.opcode, LEReadMaximumDataLength.opcode,
        LEReadFilterAcceptListSize.opcode, LEReadMaximumAdvertisingDataLength.opcode,
        LEReadNumberOfSupportedAdvertisingSets.opcode,
      ])
    let info = try #require(end.started)
    #expect(info.version.hciVersion.edition?.description == "5.4" && info.address.text == "01:02:03:04:05:06")
    #expect(info.aclLength == 251 && info.aclCount == 8 && !info.buffersAreShared && info.maximumTxOctets == 251)
    #expect(!info.needsRandomAddress && !info.isDualMode)
    #expect(info.usesExtendedCommands && info.maximumAdvertisingDataLength == 1650 && info.maximumAdvertisingSets == 7)
    expect(bench.layer.isRunning && bench.layer.credits.total == 8 && bench.layer.deadline == nil)
    expect(bench.layer.supports(LESetScanEnable.opcode) && !bench.layer.supports(HCIOpcode(rawValue: 0xFC01)))
  }

  @Test func aDualModeControllerLearnsThatThereIsAnLEHost() {
    var bench = Bench(), controller = PaperController()
    controller.lmpFeatures = .leSupported
    let (opcodes, end) = bench.start(controller)
    #expect(opcodes.contains(WriteLEHostSupport.opcode) && end.started?.isDualMode == true)
  }

  @Test func sharedBuffers() {
    for buffers in [[0, 0, 0], [0, 0, 8], [27, 0, 0]] as [[UInt8]] {
      var bench = Bench(), controller = PaperController()
      controller.leBuffers = buffers
      let (opcodes, end) = bench.start(controller)
      #expect(opcodes.contains(ReadBufferSize.opcode))
      #expect(end.started.map { $0.aclLength == 1021 && $0.aclCount == 6 && $0.buffersAreShared } == true)
    }
  }

  /// A packet of 1,023 data octets is the longest that Linux's HCI sockets accept: 1,028 in all.
  @Test func noPacketIsLongerThanTheSystemTakes() {
    for (announced, used) in [([27, 0], 27), ([0xFF, 3], 1023), ([0, 4], 1023), ([0xFF, 0xFF], 1023)]
      as [([UInt8], Int)]
    {
      var bench = Bench(), controller = PaperController()
      controller.leBuffers = announced + [8]
      let info = bench.start(controller).end.started
      #expect(info?.aclLength == Int(announced[0]) | Int(announced[1]) << 8)
      expect(bench.layer.credits.aclLength == used)
    }
  }

  /// Vol 4, Part E, §3.1.1: a host uses only legacy or only extended commands.
  @Test func extendedCommandsOnlyIfPreferredAndComplete() {
    func usesThem(_ controller: PaperController, prefers: Bool = true) -> Bool? {
      var configuration = HCILayer.Configuration()
      configuration.prefersExtendedCommands = prefers
      var bench = Bench(configuration)
      let (opcodes, end) = bench.start(controller), info = end.started
      // After one of them, the controller would refuse the legacy commands.
      #expect(opcodes.contains(LEReadMaximumAdvertisingDataLength.opcode) == info?.usesExtendedCommands)
      #expect(opcodes.contains(LEReadNumberOfSupportedAdvertisingSets.opcode) == info?.usesExtendedCommands)
      #expect(info?.maximumAdvertisingSets == (info?.usesExtendedCommands == true ? 7 : 1))
      return info?.usesExtendedCommands
    }
    var controller = PaperController()
    #expect(usesThem(controller) == true && usesThem(controller, prefers: false) == false)
    let needed: [SupportedCommandBit?] = [
      LESetExtendedAdvertisingParameters.supportedBit, LESetExtendedAdvertisingData.supportedBit,
      LESetExtendedScanResponseData.supportedBit, LESetExtendedAdvertisingEnable.supportedBit,
      LERemoveAdvertisingSet.supportedBit, LESetExtendedScanParameters.supportedBit,
      LESetExtendedScanEnable.supportedBit, LEExtendedCreateConnection.supportedBit,
    ]
    for bit in needed.compactMap(\.self) {
      controller.lacks = [bit]
      #expect(usesThem(controller) == false, "\(bit)")
    }
    // A set has a random address only if the controller has no public one.
    controller.lacks = [LESetAdvertisingSetRandomAddress.supportedBit!]
    #expect(usesThem(controller) == true)
    controller.address = [0, 0, 0, 0, 0, 0]
    #expect(usesThem(controller) == false)
    // A role that it lacks in both forms does not matter: this one only scans.
    controller.lacks = [
      LESetAdvertisingEnable.supportedBit!, LESetExtendedAdvertisingEnable.supportedBit!,
      LECreateConnection.supportedBit!, LEExtendedCreateConnection.supportedBit!,
    ]
    #expect(usesThem(controller) == true)
    controller.features = []
    #expect(usesThem(controller) == false)
  }

  @Test func theLengthOfAdvertisingDataIsPossible() {
    for (told, length) in [(0, 31), (31, 31), (250, 250), (1650, 1650), (0xFFFF, 1650)] as [(UInt16, Int)] {
      var bench = Bench(), controller = PaperController()
      controller.maximumAdvertisingData = told
      #expect(bench.start(controller).end.started?.maximumAdvertisingDataLength == length)
    }
    var bench = Bench(), controller = PaperController()
    controller.refused = [LEReadMaximumAdvertisingDataLength.opcode: .unspecifiedError]
    #expect(bench.start(controller).end.started?.maximumAdvertisingDataLength == 31)
  }

  @Test func noPublicAddress() {
    for octet: UInt8 in [0, 0xFF] {
      var bench = Bench(), controller = PaperController()
      controller.address = Array(repeating: octet, count: 6)
      #expect(bench.start(controller).end.started?.needsRandomAddress == true)
    }
    var bench = Bench(), controller = PaperController()
    controller.silent = [ReadBDADDR.opcode]
    #expect(bench.start(controller).end.started?.needsRandomAddress == true)
  }

  /// Each command except the first three may be missing, unanswered or refused.
  @Test func optionalCommandsMayFail() throws {
    let opcodes = Bench.startOpcodes
    for opcode in opcodes.dropFirst(3) {
      var dual = PaperController()
      dual.lmpFeatures = .leSupported
      var controllers = [dual, dual, dual]
      controllers[0].lacks = [try #require(AnyCommand(default: opcode)?.supportedBit)]
      controllers[1].silent = [opcode]
      controllers[2].refused = [opcode: .unknownHCICommand]
      for (i, controller) in controllers.enumerated() {
        var bench = Bench()
        let (sent, end) = bench.start(controller)
        #expect(sent.contains(opcode) == (i > 0))
        #expect(end.started?.aclCount == (opcode == LEReadBufferSize.opcode ? 6 : 8), "\(opcode)")
      }
    }
  }

  @Test func requiredCommandsMustNotFail() {
    for opcode in Bench.startOpcodes.prefix(3) {
      var silent = PaperController(), refusing = PaperController(), bench = Bench()
      silent.silent = [opcode]
      #expect(bench.start(silent).end.failure == .timedOut(opcode))
      refusing.refused = [opcode: .hardwareFailure]
      #expect(bench.start(refusing).end.failure == .refused(opcode, .hardwareFailure))
      // After a failure nothing happens until the next start, which may succeed.
      expect(!bench.layer.isRunning && bench.sent() == [] && bench.layer.deadline == nil)
      #expect(bench.receive(connected(1)).isNothing)
      #expect(bench.start().end.started != nil)
    }
    var none = PaperController(), bench = Bench()
    none.leBuffers = [0, 0, 0]
    none.refused = [ReadBufferSize.opcode: .unknownHCICommand]
    #expect(bench.start(none).end.failure == .noBuffers)
    #expect(StartFailure.timedOut(Reset.opcode).description == "the controller does not answer HCI_Reset")
  }

  @Test func resetTimesOutAfterTwoSeconds() {
    var bench = Bench()
    bench.layer.start(now: .ms(10))
    bench.now = .ms(10)
    expect(bench.sent() == [Reset.opcode] && bench.layer.deadline == .ms(2_010))
    expect(bench.layer.expire(now: .ms(2_009)).isNothing)
    expect(bench.layer.expire(now: .ms(2_010)).failure == .timedOut(Reset.opcode))
  }

  /// A controller may leave three commands without an answer, which takes 6 s. With more, the start fails after 8 s.
  @Test func theWholeStartIsBounded() {
    let optional = Array(Bench.startOpcodes.dropFirst(3))
    var few = PaperController(), many = PaperController(), bench = Bench()
    few.silent = Set(optional.prefix(3))
    #expect(bench.start(few).end.started != nil && bench.now == .ms(6_001))
    many.silent = Set(optional)
    bench = Bench()
    let end = bench.start(many).end
    #expect(bench.now == .ms(8_001))
    #expect(end.failure == .tookTooLong(SetEventMask.opcode))
    #expect(end.failure?.description == "the controller takes too long and is still at HCI_Set_Event_Mask")
    expect(!bench.layer.isRunning && bench.sent() == [] && bench.layer.deadline == nil)
    #expect(bench.receive(complete(SetEventMask.opcode)).isNothing)
    #expect(bench.start().end.started != nil, "the next start may succeed")
    expect(bench.layer.deadline == nil, "a layer that runs has no start to end")
  }
  /// The controller answers every command, each after 1 s.
  @Test func aSlowControllerDoesNotStart() {
    var bench = Bench(), sent: [HCIOpcode] = [], end: StartFailure?
    bench.layer.start(now: bench.now)
    for _ in 0..<20 where end == nil {
      sent += bench.sent()
      let answer = bench.now + .seconds(1)
      if let deadline = bench.layer.deadline, deadline < answer {
        bench.now = deadline
        end = bench.layer.expire(now: deadline).failure
      } else {
        bench.now = answer
        if let answer = sent.last.flatMap({ PaperController().answer($0) }) { end = bench.receive(answer).failure }
      }
    }
    #expect(sent.count == 9 && end == sent.last.map { .tookTooLong($0) } && bench.now == .ms(8_001))
  }

  @Test func packetsBeforeTheAnswerToResetAreIgnored() {
    var bench = Bench()
    bench.layer.start(now: bench.now)
    #expect(bench.sent() == [Reset.opcode])
    for packet in [connected(0x40), completed([(0x40, 1)]), disconnected(0x40), complete(LESetScanEnable.opcode)] {
      #expect(bench.receive(packet).isNothing)
    }
    #expect(bench.receive([2, 0x40, 0x20, 1, 0, 0]).isNothing)
    #expect(bench.receive(complete(Reset.opcode)).isNothing)
    #expect(bench.sent() == [ReadLocalVersionInformation.opcode])
    expect(!bench.layer.credits.isOpen(ConnectionHandle(rawValue: 0x40)))
  }

  @Test func startingAgainForgetsTheFirstTry() {
    var bench = Bench()
    bench.layer.start(now: bench.now)
    #expect(bench.sent() == [Reset.opcode])
    bench.layer.start(now: bench.now)
    expect(bench.layer.expire(now: bench.now).isNothing)
    #expect(bench.sent() == [Reset.opcode])
    bench.layer.start(now: bench.now)
    #expect(bench.start().end.started != nil)
  }

  @Test func theMaskAsksOnlyForWhatTheFeaturesAllow() {
    var info = ControllerInfo()
    #expect(info.leEventMask == .standard)
    info.features = [.leDataPacketLengthExtension]
    #expect(info.leEventMask.contains(.dataLengthChange) && !info.leEventMask.contains(.extendedAdvertisingReport))
    #expect(EventMask.standard.rawValue == 0x2000_8000_0204_E890)
    // Encryption Change [v2] exists since Core 5.3, 0x0C.
    info.version.hciVersion = CoreVersion(rawValue: 0x0C)
    #expect(info.eventMaskPage2 == [])
    info.features.insert(.leEncryption)
    #expect(info.eventMaskPage2 == .encryptionChangeV2)
    info.features.insert(.lePing)
    #expect(info.eventMaskPage2.rawValue == 0x0280_0000)
    info.version.hciVersion = CoreVersion(rawValue: 0x0B)
    #expect(info.eventMaskPage2.rawValue == 0x0080_0000)
    // What encryption needs, in each mask: Encryption Change and Key Refresh Complete, LE Long Term Key Request.
    #expect(EventMask.standard.isSuperset(of: [.encryptionChange, .encryptionKeyRefreshComplete]))
    #expect(info.leEventMask.contains(.longTermKeyRequest))
  }

  /// Vol 4, Part E, §7.3.1: bit n of a mask that this stack sends is event code n + 1, and §7.8.1: subevent code n + 1.
  /// §7.3.69: bits 23 … 25 of page 2 are event codes 0x57 … 0x59. The layer can decode every event that it enables.
  @Test func everyEventOfTheMasksIsDecoded() {
    var info = ControllerInfo()
    info.features = LEFeatures(rawValue: .max)
    info.version.hciVersion = CoreVersion(rawValue: 0x0D)
    for bit in UInt8(0)..<64 {
      let isLEMeta = bit == 61
      if EventMask.standard.rawValue >> bit & 1 == 1, !isLEMeta {
        #expect(HCIEvent(default: bit + 1) != nil, "event 0x\(hex([bit + 1]))")
      }
      if info.eventMaskPage2.rawValue >> bit & 1 == 1 {
        #expect((23...25).contains(bit) && HCIEvent(default: bit + 0x40) != nil, "event 0x\(hex([bit + 0x40]))")
      }
      if info.leEventMask.rawValue >> bit & 1 == 1 {
        #expect(HCIEvent(default: 0x3E, subevent: bit + 1) != nil, "subevent 0x\(hex([bit + 1]))")
      }
    }
  }

  /// The length octet disagrees with the octets present, with a field that takes all octets up to the end.
  @Test func lengthErrors() {
    for (packet, words) in [
      ("04 FF 02 01 02 03", "trailing \"Parameter_Total_Length\": 1 octets more than it says"),
      ("04 0E 04 01 03 0C 00 00 00", "trailing \"Parameter_Total_Length\": 2 octets more than it says"),
      ("04 10 01 2A 00 00", "trailing: 2 octets after the last field"),
      ("04 10 02 2A", "truncated \"Parameter_Total_Length\": needed 2, available 1"),
      ("01 01 FC 00 07", "trailing \"Parameter_Total_Length\": 1 octets more than it says"),
    ] {
      let packet = octets(packet)
      var error: WireError?
      do throws(WireError) {
        if packet[0] == 4 { _ = try HCIEvent(packet.span) } else { _ = try AnyCommand(packet.span) }
      } catch let thrown {
        error = thrown
      }
      #expect(error?.description == words)
    }
  }
}

extension Bench {
  /// The commands of a start with a controller that supports all.
  static var startOpcodes: [HCIOpcode] {
    var bench = Bench(), controller = PaperController()
    controller.lmpFeatures = .leSupported
    return bench.start(controller).opcodes
  }
}

@Suite struct HCILayerTests {
  @Test func linksOpenAndClose() {
    var bench = Bench()
    _ = bench.start()
    let link = ConnectionHandle(rawValue: 0x40)
    expect(bench.receive(connected(0x40, .operationCancelledByHost)).event != nil && !bench.layer.credits.isOpen(link))
    expect(bench.receive(connected(0x40)).event != nil && bench.layer.credits.isOpen(link))
    guard case .handleInUse(link)? = bench.receive(connected(0x40)).violation else {
      Issue.record("a violation")
      return
    }
    expect(bench.receive(disconnected(0x40)).event != nil && !bench.layer.credits.isOpen(link))
    #expect(bench.receive(connected(0x40)).event != nil)
    bench.layer.start(now: bench.now)
    expect(!bench.layer.credits.isOpen(link))
  }

  @Test func dataPassThrough() throws {
    var bench = Bench()
    _ = bench.start()
    let packet = octets("02 40 20 03 00 01 02 03")
    guard case .acl(let acl) = bench.receive(packet) else {
      Issue.record("ACL")
      return
    }
    #expect(acl.handle.rawValue == 0x40 && acl.packetBoundaryFlag == .first && acl.data == Octets(5, 3))
    var buffer = PacketBuffer()
    _ = try buffer.fill { output throws(WireError) in
      try acl.writePacket(into: &output, from: packet.span)
      return true
    }
    #expect(buffer.bytes == packet)
    _ = buffer.fill { output in
      ACLPacket.writeHeader(acl.handle, .first, count: 3, into: &output)
      output.append(contentsOf: packet.span.extracting(5..<8))
      return true
    }
    #expect(buffer.bytes == packet)
    for count in 0..<packet.count {
      #expect(throws: WireError.self) { try ACLPacket(packet.span.extracting(0..<count)) }
    }
  }

  @Test func eventsPassThrough() {
    var bench = Bench()
    _ = bench.start()
    guard case .hardwareError(let error)? = bench.receive([4, 0x10, 1, 42]).event else {
      Issue.record("an event")
      return
    }
    #expect(error.hardwareCode == 42)
    guard case .vendor(Octets(3, 2))? = bench.receive([4, 0xFF, 2, 1, 2]).event,
      case .unknownLE(0x63, Octets(4, 1))? = bench.receive([4, 0x3E, 2, 0x63, 9]).event
    else {
      Issue.record("kept as bytes")
      return
    }
  }

  @Test func impossiblePackets() {
    var bench = Bench()
    _ = bench.start()
    for type: UInt8 in [0, 1, 3, 5, 6, 0xFF] {
      guard case .unexpectedPacketType(type)? = bench.receive([type, 0, 0, 0]).violation else {
        Issue.record("type \(type)")
        continue
      }
    }
    guard case .malformed(let error)? = bench.receive([]).violation else {
      Issue.record("an empty packet")
      return
    }
    #expect(error.reason == .truncated(needed: 1, available: 0))
  }

  /// Every phase × every kind of input: a new phase, or the result in the table.
  @Test func phasesAndInputs() {
    enum Phase: CaseIterable { case off, starting, running, failed }
    struct Input {
      var name: String, packet: [UInt8], running: (HCIIndication) -> Bool, starting: (HCIIndication) -> Bool
    }
    let isNothing: (HCIIndication) -> Bool = { $0.isNothing },
      isViolation: (HCIIndication) -> Bool = { $0.violation != nil }
    let isEvent: (HCIIndication) -> Bool = { $0.event != nil }
    let inputs = [
      Input(name: "connection", packet: connected(1), running: isEvent, starting: isNothing),
      Input(name: "disconnection", packet: disconnected(1), running: isEvent, starting: isNothing),
      Input(name: "completed", packet: completed([(9, 1)]), running: isViolation, starting: isNothing),
      Input(name: "unexpected complete", packet: complete(Reset.opcode), running: isViolation, starting: isNothing),
      Input(name: "unexpected status", packet: status(Disconnect.opcode), running: isViolation, starting: isNothing),
      Input(name: "number only", packet: status(.none), running: isNothing, starting: isNothing),
      Input(
        name: "data", packet: [2, 1, 0x20, 0, 0], running: { if case .acl = $0 { true } else { false } },
        starting: isNothing),
      Input(name: "malformed event", packet: [4, 5, 9], running: isViolation, starting: isViolation),
      Input(name: "malformed data", packet: [2, 5, 9], running: isViolation, starting: isViolation),
      Input(name: "a command", packet: [1, 3, 12, 0], running: isViolation, starting: isViolation),
      Input(name: "vendor", packet: [4, 0xFF, 0], running: isEvent, starting: isNothing),
    ]
    for phase in Phase.allCases {
      for input in inputs {
        var bench = Bench()
        switch phase {
        case .off: break
        case .starting: bench.layer.start(now: bench.now)
        case .running: _ = bench.start()
        case .failed:
          bench.layer.start(now: bench.now)
          _ = bench.sent()
          expect(bench.layer.expire(now: .ms(3_000)).failure != nil)
        }
        let indication = bench.receive(input.packet)
        switch phase {
        case .off, .failed: #expect(indication.isNothing, "\(phase), \(input.name)")
        case .starting: #expect(input.starting(indication), "\(phase), \(input.name)")
        case .running: #expect(input.running(indication), "\(phase), \(input.name)")
        }
        // A command from above completes in every phase.
        bench.layer.send(LESetScanEnable(), tag: 7, now: bench.now)
        let outcome = bench.layer.expire(now: bench.now).outcome
        #expect(phase == .running ? outcome == nil : outcome?.ending == .aborted, "\(phase)")
        #expect((phase == .running || phase == .starting) == (bench.nextCommand() != nil), "\(phase)")
      }
    }
  }
}
