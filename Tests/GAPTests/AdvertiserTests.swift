import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

@Suite("HostCore: advertising") struct AdvertiserTests {
  private static let set = "Advertising_Handle: 0, "
  private static func enable(_ duration: String = "0 (0 ms)", events: Int = 0, on: Bool = true) -> String {
    "Enable: \(on), Num_Sets: 1, Sets: [{\(set)Duration: \(duration), Max_Extended_Advertising_Events: \(events)}]"
  }
  private static let data = AdvertisingData(localName: "a name of 26 octets for it", serviceUUIDs: ["180D"])
  private static func advertise(
    _ bench: inout Bench, _ data: AdvertisingData = data, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) {
    bench.perform { core, now in try! core.advertise(data, parameters, now: now) }
  }
  private static func refusal(
    _ bench: inout Bench, _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) -> AdvertisingError? {
    do throws(AdvertisingError) { try bench.core.advertise(data, parameters, now: bench.now) } catch {
      return error
    }
    return nil
  }
  /// The commands that the core sends for it, each accepted, as texts.
  private static func commands(
    _ bench: inout Bench, _ data: AdvertisingData = data, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) -> [String] {
    advertise(&bench, data, parameters)
    return accepted(&bench)
  }
  private static func accepted(_ bench: inout Bench) -> [String] {
    var texts: [String] = []
    repeat {
      texts.append(bench.lastCommand)
    } while bench.answer() && !bench.takeAll().contains { $0.hasPrefix("advertisingStarted") }
    return texts
  }

  @Test func legacyPDUsInASet() throws {
    var bench = Bench.started(controller: .extended)
    let texts = Self.commands(&bench)
    // ADV_IND is 0b10011: Vol 4, Part E, §7.8.53, table of properties for legacy PDUs.
    #expect(
      texts[0].hasPrefix(
        Self.set + "Connectable advertising: true, Scannable advertising: true, Directed advertising: false, "
          + "High Duty Cycle Directed Connectable advertising: false, Use legacy advertising PDUs: true, "))
    #expect(
      texts[0].contains(
        "Primary_Advertising_Interval_Min: 160 (100 ms), Primary_Advertising_Interval_Max: 240 (150 ms), "))
    #expect(
      texts[1...] == [
        Self.set + "Operation: complete, Fragment_Preference: 0x00, Advertising_Data_Length: 7, "
          + "Advertising_Data: 02 01 06 03 03 0D 18",
        Self.set + "Operation: complete, Fragment_Preference: 0x00, Scan_Response_Data_Length: 28, "
          + "Scan_Response_Data: 1B 09 \(hex(Array(Self.data.localName!.utf8)))",
        Self.enable(),
      ])
    bench.perform { core, now in core.stopAdvertising(now: now) }
    same(bench.lastCommand, Self.enable(on: false))
    bench.answerAll()
    same(bench.takeTexts(), ["advertisingStopped"])
  }

  @Test func theSetHasTheRandomAddress() {
    var controller = PaperController.extended
    controller.address = [0, 0, 0, 0, 0, 0]
    var bench = Bench.started(controller: controller) { $0.randomStaticAddress = DeviceAddress(0xC000_5E00_5300) }
    let texts = Self.commands(&bench)
    #expect(texts[0].contains("Own_Address_Type: random, "))
    #expect(texts[1] == Self.set + "Random_Address: C0:00:5E:00:53:00")
    #expect(texts.count == 5)
  }

  @Test func longDataGoInPieces() {
    var bench = Bench.started(controller: .extended)
    bench.advertiseLong()
    let texts = Self.accepted(&bench)
    #expect(texts.count == 4 && texts[0].contains("Use legacy advertising PDUs: false, "))
    #expect(texts[0].hasPrefix(Self.set + "Connectable advertising: false, Scannable advertising: false, "))
    #expect(
      texts[1].hasPrefix(Self.set + "Operation: first, Fragment_Preference: 0x00, Advertising_Data_Length: 251, "))
    #expect(texts[2].hasPrefix(Self.set + "Operation: last, Fragment_Preference: 0x00, Advertising_Data_Length: 155, "))
    // 1,650 octets: seven commands, five of them in the middle; in the scan response of scannable ones.
    var data = AdvertisingData(flags: nil)
    data.serviceData = (0..<8).map { .init(uuid: .short(0x1800 + $0), data: [UInt8](repeating: 1, count: 202)) }
    data.other = [.init(type: .pbADV, data: [])]
    let more = Self.commands(&bench, data, AdvertisingParameters(kind: .scannable)).dropFirst(2)
    #expect(
      more.dropFirst().map { $0.contains("Scan_Response_Data_Length: ") } == [
        true, true, true, true, true, true, true, false,
      ])
    #expect(more.dropFirst(2).dropLast(2).allSatisfy { $0.contains("Operation: intermediate, ") } && more.count == 9)
  }

  /// The controller refuses new parameters whose PDUs may not carry the set's data: Vol 4, Part E, §7.8.53.
  @Test func aSetOfAnotherKindIsRemovedFirst() {
    var bench = Bench.started(controller: .extended)
    let other = AdvertisingData(localName: "other"), scannable = AdvertisingParameters(kind: .scannable)
    _ = Self.steps(&bench, Self.data)
    #expect(Self.steps(&bench, other) == [Self.setData, Self.setResponse, "advertisingStarted"])
    #expect(
      Self.steps(&bench, other, scannable) == [
        Self.off, "LE_Remove_Advertising_Set", Self.setParameters, Self.setData, Self.setResponse, Self.on,
        "advertisingStarted",
      ])
    let extended = AdvertisingParameters(kind: .scannable, policy: .extended)
    #expect(
      Self.steps(&bench, other, extended) == [
        Self.off, "LE_Remove_Advertising_Set", Self.setParameters, Self.setResponse, Self.on, "advertisingStarted",
      ])
    #expect(Self.steps(&bench, Self.data, extended) == [Self.setResponse, "advertisingStarted"])
    // After a reset the controller has no sets.
    bench.start()
    _ = bench.takeAll()
    #expect(Self.steps(&bench, Self.data).first == Self.setParameters)
  }
  /// Even if the target changes while the set is being made or removed.
  @Test func anUnwantedSetIsRemembered() {
    var bench = Bench.started(controller: .extended)
    let scannable = AdvertisingParameters(kind: .scannable)
    for (answers, next) in [(0, "LE_Remove_Advertising_Set"), (1, Self.setParameters)] {
      Self.advertise(&bench)
      if answers == 1 {
        bench.answerAll()
        _ = bench.takeAll()
        Self.advertise(&bench, Self.data, scannable)
        bench.answer()
        same(bench.takeAll().last, "LE_Remove_Advertising_Set")
      }
      bench.perform { core, now in core.stopAdvertising(now: now) }
      bench.answer()
      same(bench.takeAll().last, "advertisingStopped")
      Self.advertise(&bench, Self.data, scannable)
      same(bench.takeAll(), [next])
      bench.perform { core, now in core.stopAdvertising(now: now) }
      bench.answerAll()
      bench.start()
      _ = bench.takeAll()
    }
  }

  // MARK: Only necessary commands

  private static let off = "LE_Set_Extended_Advertising_Enable(off)", on = "LE_Set_Extended_Advertising_Enable(on)"
  private static let setData = "LE_Set_Extended_Advertising_Data"
  private static let setResponse = "LE_Set_Extended_Scan_Response_Data"
  private static let setParameters = "LE_Set_Extended_Advertising_Parameters"
  /// All commands and effects until every command is answered.
  private static func steps(
    _ bench: inout Bench, _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) -> [String] {
    _ = bench.takeAll()
    advertise(&bench, data, parameters)
    return rest(&bench)
  }
  private static func rest(_ bench: inout Bench) -> [String] {
    var texts = bench.takeAll()
    while bench.answer() { texts += bench.takeAll() }
    return texts
  }

  @Test func onlyDifferencesAreSent() {
    for controller in [PaperController(), .extended] {
      var bench = Bench.started(controller: controller)
      func plain(_ texts: [String]) -> [String] {
        texts.map { $0.replacing("Extended_Advertising", with: "Advertising").replacing("Extended_Scan", with: "Scan") }
      }
      let first = AdvertisingData(localName: "1", serviceUUIDs: ["180D"])
      let all = ["LE_Set_Advertising_Parameters", "LE_Set_Advertising_Data", "LE_Set_Scan_Response_Data"]
      let on = "LE_Set_Advertising_Enable(on)", started = "advertisingStarted"
      #expect(plain(Self.steps(&bench, first)) == all + [on, started])
      #expect(plain(Self.steps(&bench, first)) == [started])
      // One command, and advertising stays on.
      let second = AdvertisingData(localName: "2", serviceUUIDs: ["180D"])
      #expect(plain(Self.steps(&bench, second)) == ["LE_Set_Advertising_Data", started])
      try! bench.core.setAdvertisingData(first, now: bench.now)
      bench.perform { _, _ in }
      #expect(plain(Self.rest(&bench)) == ["LE_Set_Advertising_Data", started])
      // This needs no command.
      var parameters = AdvertisingParameters(restartsAfterConnection: false)
      #expect(plain(Self.steps(&bench, first, parameters)) == [started])
      // This is possible only while the set is off.
      parameters.interval = .background
      parameters.restartsAfterConnection = true
      #expect(
        plain(Self.steps(&bench, first, parameters)) == ["LE_Set_Advertising_Enable(off)"] + all + [on, started])
      // After a connection.
      bench.receive(connectionComplete(0x40, .peripheral))
      if bench.unanswered.isEmpty { bench.receive("04 3E 06 12 00 00 40 00 00") }
      #expect(plain(Self.rest(&bench)).filter { !$0.hasPrefix("link") } == [on, started])
      // Stopped, and advertised again.
      bench.perform { core, now in core.stopAdvertising(now: now) }
      bench.answerAll()
      #expect(plain(Self.steps(&bench, first, parameters)) == [on, started])
    }
  }
  /// Vol 4, Part E, §7.8.54: pieces are refused while the set is on.
  @Test func longDataChangeWhileItIsOff() {
    var bench = Bench.started(controller: .extended)
    let parameters = AdvertisingParameters(kind: .nonconnectable)
    func data(_ count: Int) -> AdvertisingData {
      var data = AdvertisingData(flags: nil)
      data.serviceData = [
        .init(uuid: "180D", data: [UInt8](repeating: 1, count: 200)),
        .init(uuid: "180F", data: [UInt8](repeating: 2, count: count - 208)),
      ]
      return data
    }
    _ = Self.steps(&bench, data(250), parameters)
    #expect(Self.steps(&bench, data(251), parameters) == [Self.setData, "advertisingStarted"])
    #expect(
      Self.steps(&bench, data(252), parameters) == [
        Self.off, Self.setData, Self.setData, Self.on, "advertisingStarted",
      ])
    #expect(Self.steps(&bench, data(240), parameters) == [Self.setData, "advertisingStarted"])
  }
  /// A change that the controller refuses while the set is on is repeated while it is off; a second refusal is final.
  @Test func aRefusedChange() {
    var bench = Bench.started(controller: .extended)
    let changed = AdvertisingData(localName: "other", serviceUUIDs: ["180D"])
    _ = Self.steps(&bench, Self.data)
    Self.advertise(&bench, changed)
    bench.answer(.commandDisallowed)
    #expect(
      Self.rest(&bench) == [Self.setData, Self.off, Self.setData, Self.setResponse, Self.on, "advertisingStarted"])
    Self.advertise(&bench, Self.data)
    bench.answer(.commandDisallowed)
    bench.answer()
    bench.answer(.invalidHCICommandParameters)
    same(bench.takeTexts(), ["advertisingFailed 0x12"])
    // The controller's data are unknown, so they are sent again, and otherwise only differences.
    #expect(Self.steps(&bench, Self.data) == [Self.setData, Self.setResponse, Self.on, "advertisingStarted"])
  }

  // MARK: Several sets

  @Test func eachSetHasItsHandleItsSIDAndItsAddress() {
    var bench = Bench.started(controller: .extended)
    _ = Self.steps(&bench, Self.data)
    let parameters = AdvertisingParameters(txPower: -8, address: DeviceAddress(0xC000_5E00_5307))
    bench.perform { core, now in
      try! core.advertise(Self.data, parameters, as: AdvertisingSetID(rawValue: 77), now: now)
    }
    let texts = Self.accepted(&bench)
    #expect(texts.allSatisfy { $0.contains("Advertising_Handle: 1") } && texts.count == 5)
    #expect(texts[0].contains("Own_Address_Type: random, ") && texts[0].contains("Advertising_TX_Power: -8, "))
    #expect(texts[0].contains("Advertising_SID: 1, "))
    #expect(texts[1] == "Advertising_Handle: 1, Random_Address: C0:00:5E:00:53:07")
    same(bench.takeTexts(), [])
    // The first one is unaffected, and both end with the controller.
    bench.start()
    same(bench.takeTexts(), ["advertisingStopped", "advertisingStopped 77", "started"])
  }
  @Test func asManyAsTheControllerHas() {
    for (controller, count) in [(PaperController(), 1), (.extended, 4)] as [(PaperController, UInt32)] {
      var bench = Bench.started(controller: controller)
      same(bench.core.controller?.maximumAdvertisingSets, Int(count))
      for id in 1...count { bench.advertise("x", as: id) }
      bench.advertise("one more", as: 9)
      same(
        bench.takeTexts(),
        [
          count == 1
            ? "this controller has one advertising set; stop its advertising first"
            : "all 4 advertising sets of this controller are in use; stop one first"
        ])
      bench.answerAll()
      same(bench.takeTexts(), (1...count).map { "advertisingStarted \($0)" })
      // A set that is being stopped makes room, and its handle is used again.
      bench.stopAdvertising(1)
      bench.advertise("y", as: 9)
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStopped 1", "advertisingStarted 9"])
      same(bench.core.advertiser.sets.count, Int(count))
    }
    // A controller that reports no number, or an impossible one, has one set; Vol 6, Part B, §2.3.4.4: SIDs are four
    // bits.
    for (number, count) in [(0, 1), (255, 16)] as [(UInt8, Int)] {
      var controller = PaperController.extended
      controller.advertisingSets = number
      let bench = Bench.started(controller: controller)
      same(bench.core.advertiser.capacity, count)
    }
  }

  // MARK: Parameters

  @Test func intervals() {
    func range(
      _ interval: AdvertisingParameters.Interval, _ kind: AdvertisingParameters.Kind, _ controller: PaperController
    )
      -> String
    {
      var bench = Bench.started(controller: controller)
      Self.advertise(&bench, Self.data, AdvertisingParameters(kind: kind, interval: interval))
      let parts = bench.lastCommand.split(separator: ", ").filter { $0.contains("_Interval_") }
      return parts.map { String($0.split(separator: ": ")[1].prefix { $0 != " " }) }.joined(separator: "-")
    }
    for controller in [PaperController(), .extended] {
      // Vol 3, Part C, Appendix A, in units of 0.625 ms.
      #expect(range(.fast, .connectable, controller) == "48-96")
      #expect(range(.fast, .nonconnectable, controller) == "160-240")
      #expect(range(.balanced, .connectable, controller) == "160-240")
      #expect(range(.background, .scannable, controller) == "1600-1920")
      #expect(range(.every(.milliseconds(20)), .connectable, controller) == "32-32")
      #expect(range(.between(.milliseconds(20), .milliseconds(10240)), .connectable, controller) == "32-16384")
    }
    #expect(range(.every(.microseconds(0xFF_FFFF * 625)), .connectable, .extended) == "16777215-16777215")
  }
  @Test func limits() {
    let ms20 = Duration.milliseconds(20), most = Duration.milliseconds(10240),
      muchMore = Duration.microseconds(0xFF_FFFF * 625)
    for (controller, longest) in [(PaperController(), most), (.extended, muchMore)] {
      var bench = Bench.started(controller: controller)
      for (shortest, end) in [
        (.zero, ms20), (.microseconds(19_999), ms20), (ms20, longest + .microseconds(1)), (most, ms20),
        (.seconds(-1), most), (ms20, .seconds(Int64.max / 2)),
      ] as [(Duration, Duration)] {
        let parameters = AdvertisingParameters(interval: .between(shortest, end))
        #expect(Self.refusal(&bench, Self.data, parameters) == .interval(shortest, end, allowed: ms20...longest))
      }
      for (parameters, error) in [
        (AdvertisingParameters(duration: .zero), .duration(.zero)),
        (AdvertisingParameters(maximumEvents: 0), .noEvents),
        (AdvertisingParameters(txPower: 21), .txPower(21)), (AdvertisingParameters(txPower: -128), .txPower(-128)),
        (AdvertisingParameters(kind: .directed(Bench.peer), policy: .extended), .directedExtended),
      ] as [(AdvertisingParameters, AdvertisingError?)] {
        if let error { #expect(Self.refusal(&bench, Self.data, parameters) == error) }
      }
      // Vol 6, Part B, §1.3.2.
      for address in [0x8000_5E00_5300, 0xC000_0000_0000, 0xFFFF_FFFF_FFFF, 0, 0x3FFF_FFFF_FFFF] as [UInt64] {
        let parameters = AdvertisingParameters(address: DeviceAddress(address))
        #expect(Self.refusal(&bench, Self.data, parameters) == .address(DeviceAddress(address)))
      }
      same(bench.takeAll(), [])
      do throws(AdvertisingError) { try bench.core.setAdvertisingData(Self.data, now: bench.now) } catch {
        #expect(error == .notAdvertising(.first))
      }
    }
    // Parameters that the legacy commands lack.
    var legacy = Bench.started()
    for parameters in [
      AdvertisingParameters(txPower: 0), AdvertisingParameters(address: DeviceAddress(0xC000_5E00_5300)),
    ] {
      #expect(Self.refusal(&legacy, Self.data, parameters) == .data(.extendedUnavailable))
    }
  }

  @Test func directed() {
    for (kind, legacyType, properties, duration) in [
      (.directed(Bench.otherPeer), "ADV_DIRECT_IND, low duty cycle", "false", "0 (0 ms)"),
      (.directedHighDutyCycle(Bench.otherPeer), "ADV_DIRECT_IND, high duty cycle", "true", "128 (1280 ms)"),
    ] as [(AdvertisingParameters.Kind, String, String, String)] {
      var legacy = Bench.started()
      let commands = Self.commands(&legacy, Self.data, AdvertisingParameters(kind: kind))
      #expect(commands[0].contains("Advertising_Type: \(legacyType), "))
      #expect(commands[0].contains("Peer_Address_Type: random, Peer_Address: C0:00:5E:00:53:02, "))
      #expect(commands[1].hasPrefix("Advertising_Data_Length: 0, "))
      // By the extended commands: 0b00010101 and 0b00011101, and no data. Vol 4, Part E, §7.8.53.
      var extended = Bench.started(controller: .extended)
      let texts = Self.commands(&extended, Self.data, AdvertisingParameters(kind: kind))
      #expect(
        texts[0].hasPrefix(
          Self.set + "Connectable advertising: true, Scannable advertising: false, Directed advertising: true, "
            + "High Duty Cycle Directed Connectable advertising: \(properties), Use legacy advertising PDUs: true, "))
      #expect(texts[0].contains("Peer_Address_Type: random, Peer_Address: C0:00:5E:00:53:02, "))
      #expect(texts[1...] == [Self.enable(duration)])
    }
  }
  /// LE Connection Complete with 0x3C is the end of advertising, not of an attempt to connect. Vol 4, Part E, §7.8.9.
  @Test func theControllerEndsAHighDutyCycle() {
    var bench = Bench.started()
    Self.advertise(&bench, Self.data, AdvertisingParameters(kind: .directedHighDutyCycle(Bench.peer)))
    bench.answerAll()
    bench.connect(1)
    bench.answerAll()
    _ = bench.takeAll()
    bench.receive(connectionComplete(0, .peripheral, Bench.peer, .advertisingTimeout))
    same(bench.takeAll(), ["advertisingStopped: the time is over"])
    bench.receive(connectionComplete(0x40))
    same(bench.takeTexts().last, "1: link 1")
    // If the controller does not report it, the host ends the set.
    Self.advertise(&bench, Self.data, AdvertisingParameters(kind: .directedHighDutyCycle(Bench.peer)))
    bench.answerAll()
    _ = bench.takeAll()
    bench.wait(.milliseconds(2279))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Set_Advertising_Enable(off)"])
  }

  @Test func unsupportedFeatures() {
    var legacy = Bench.started()
    // 13 in the advertising data, 14 in the scan response: one octet is left there.
    let long = AdvertisingData(serviceUUIDs: (0..<28).map { .short(0x1800 + $0) })
    #expect(
      Self.refusal(&legacy, long)
        == .data(.leftOut([.init(item: .serviceUUID("181B"), reason: .noRoom(needed: 2, available: 1))])))
    #expect(Self.refusal(&legacy, Self.data, AdvertisingParameters(maximumEvents: 1)) == .data(.extendedUnavailable))
    same(legacy.takeAll(), [])
    // For a controller that lacks one extended command, the host uses only legacy ones.
    var part = PaperController.extended
    part.lacks = [LEExtendedCreateConnection.supportedBit!]
    var bench = Bench.started(controller: part)
    Self.advertise(&bench)
    bench.answerAll()
    bench.perform { core, now in core.startScan(now: now) }
    bench.answerAll()
    bench.connect(1)
    same(
      bench.takeAll(),
      [
        "LE_Set_Advertising_Parameters", "LE_Set_Advertising_Data", "LE_Set_Scan_Response_Data",
        "LE_Set_Advertising_Enable(on)", "LE_Set_Scan_Parameters", "LE_Set_Scan_Enable(on)", "LE_Create_Connection",
        "advertisingStarted", "scanStarted",
      ])
    var small = PaperController.extended
    small.maximumAdvertisingData = 40
    var poor = Bench.started(controller: small)
    #expect(Self.refusal(&poor, long) == Self.refusal(&legacy, long))
    same(poor.takeAll(), [])
  }

  // MARK: Ends

  @Test func theHostEndsALegacyAdvertisement() {
    var bench = Bench.started()
    Self.advertise(&bench, Self.data, AdvertisingParameters(duration: .seconds(3)))
    bench.answerAll()
    _ = bench.takeAll()
    bench.wait(.milliseconds(2999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Set_Advertising_Enable(off)"])
    bench.answer()
    same(bench.takeAll(), ["advertisingStopped: the time is over"])
    same(bench.core.deadline, nil)
  }

  @Test func theControllerEndsASet() {
    for (status, end) in [
      (0x3C, "advertisingStopped: the time is over"),
      (0x43, "advertisingStopped: all events have been sent"),
      (0x1F, "advertisingStopped: the controller ended it: 0x1F (Unspecified Error)"),
    ] as [(UInt8, String)] {
      var bench = Bench.started(controller: .extended)
      let parameters = AdvertisingParameters(duration: .milliseconds(2995), maximumEvents: 9)
      let texts = Self.commands(&bench, Self.data, parameters)
      // At least the duration requested, in units of 10 ms.
      #expect(texts.last == Self.enable("300 (3000 ms)", events: 9))
      bench.receive([4, 0x3E, 6, 0x12, status, 0, 0, 0, 9])
      same(bench.takeAll(), [end])
      bench.wait(.seconds(10))
      same(bench.takeAll(), [])
    }
  }
  /// Some controllers ignore the duration: then the host ends the set, a little later.
  @Test func theHostEndsSetsThatTheControllerDoesNot() {
    var bench = Bench.started(controller: .extended)
    _ = Self.commands(&bench, Self.data, AdvertisingParameters(duration: .seconds(3)))
    bench.wait(.milliseconds(3999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Set_Extended_Advertising_Enable(off)"])
    // The controller's event crosses the command.
    bench.receive("04 3E 06 12 3C 00 00 00 00")
    bench.answer(.commandDisallowed)
    same(bench.takeAll(), ["advertisingStopped: the time is over"])
    // The controller's timer is limited to 655.35 s.
    #expect(
      Self.commands(&bench, Self.data, AdvertisingParameters(duration: .seconds(656))).last == Self.enable())
    bench.wait(.seconds(656))
    same(bench.takeAll(), ["LE_Set_Extended_Advertising_Enable(off)"])
  }

  @Test func aRestartHasTheTimeThatIsLeft() {
    for controller in [PaperController(), .extended] {
      var bench = Bench.started(controller: controller)
      _ = Self.commands(&bench, Self.data, AdvertisingParameters(duration: .seconds(10)))
      bench.wait(.seconds(4))
      bench.receive(connectionComplete(0x40, .peripheral))
      bench.receive("04 3E 06 12 00 00 40 00 00")
      let texts = Self.accepted(&bench)
      if texts.last?.contains("Num_Sets") == true { #expect(texts.last == Self.enable("600 (6000 ms)")) }
      bench.wait(.seconds(5))
      same(bench.takeAll(), [])
      bench.wait(.seconds(2))
      bench.answer()
      same(bench.takeTexts(), ["advertisingStopped: the time is over"])
    }
  }
  @Test func timeRunsOutWhileItIsBlockedOrBeingSet() {
    let parameters = AdvertisingParameters(duration: .seconds(10))
    var blocked = Bench.started(controller: .extended)
    _ = Self.commands(&blocked, Self.data, parameters)
    blocked.receive(connectionComplete(0x40, .peripheral))
    blocked.receive("04 3E 06 12 00 00 40 00 00")
    blocked.answer(.connectionLimitExceeded)
    same(name(blocked.core.advertiser.sets[0].phase), "blocked")
    _ = blocked.takeAll()
    blocked.wait(.seconds(10))
    same(blocked.takeAll(), ["advertisingStopped: the time is over"])
    blocked.receive(disconnectionComplete(0x40))
    same(blocked.takeAll(), ["link 1 down: 0x13"])

    var setting = Bench.started(controller: .extended)
    _ = Self.commands(&setting, Self.data, parameters)
    setting.wait(.milliseconds(9_500))
    setting.receive(connectionComplete(0x40, .peripheral))
    setting.receive("04 3E 06 12 00 00 40 00 00")
    _ = setting.takeAll()
    setting.wait(.milliseconds(500))
    same(setting.takeAll(), [])
    setting.answerAll()
    same(setting.takeAll(), [Self.off, "advertisingStopped: the time is over"])
  }
  /// The same call again restarts the time.
  @Test func aTimeIsCountedFromTheLastCall() {
    let parameters = AdvertisingParameters(duration: .seconds(3))
    for controller in [PaperController(), .extended] {
      var bench = Bench.started(controller: controller)
      _ = Self.commands(&bench, Self.data, parameters)
      bench.wait(.seconds(2))
      Self.advertise(&bench, Self.data, parameters)
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStarted"])
      _ = bench.takeAll()
      bench.wait(.milliseconds(2_900))
      same(bench.takeAll(), [])
      // The host waits a second longer than a controller with a timer.
      bench.wait(.milliseconds(1_100))
      same(bench.takeAll().map { $0.hasSuffix("_Advertising_Enable(off)") }, [true])
      Self.advertise(&bench)
      bench.answerAll()
      _ = bench.takeAll()
      // Without a duration, advertising continues.
      bench.wait(.seconds(30))
      same(bench.takeAll(), [])
    }
  }

  // MARK: Suspension

  /// Off in the controller, but still on for the caller.
  @Test func aSuspensionIsNotReported() {
    for controller in [PaperController(), .extended] {
      var bench = Bench.started(controller: controller)
      expect(bench.core.advertiser.isQuiet)
      bench.suspendAdvertising()
      bench.resumeAdvertising()
      same(bench.takeAll(), [])
      // Requested before; the outcome comes after.
      Self.advertise(&bench)
      bench.suspendAdvertising()
      expect(!bench.core.advertiser.isQuiet)
      bench.answerAll()
      same(bench.takeTexts(), [])
      expect(bench.core.advertiser.isQuiet)
      bench.resumeAdvertising()
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStarted"])
      _ = bench.takeAll()

      bench.suspendAdvertising()
      expect(!bench.core.advertiser.isQuiet)
      bench.answerAll()
      same(bench.takeAll().map { $0.hasSuffix("Advertising_Enable(off)") }, [true])
      expect(bench.core.advertiser.isQuiet)
      bench.resumeAdvertising()
      bench.answerAll()
      same(bench.takeAll().last?.hasSuffix("Advertising_Enable(on)"), true)
      // Stopped, or requested, while suspended.
      bench.suspendAdvertising()
      bench.answerAll()
      bench.perform { core, now in core.stopAdvertising(now: now) }
      same(bench.takeTexts(), ["advertisingStopped"])
      Self.advertise(&bench)
      same(bench.takeTexts(), [])
      bench.resumeAdvertising()
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStarted"])
    }
  }
  @Test func theEndDuringASuspension() {
    var late = Bench.started()
    Self.advertise(&late, Self.data, AdvertisingParameters(duration: .seconds(3)))
    late.answerAll()
    late.suspendAdvertising()
    late.answerAll()
    _ = late.takeAll()
    late.now = late.now + .seconds(3)
    late.resumeAdvertising()
    same(late.takeAll(), ["advertisingStopped: the time is over"])

    for restarts in [false, true] {
      var bench = Bench.started()
      Self.advertise(&bench, Self.data, AdvertisingParameters(restartsAfterConnection: restarts))
      bench.answerAll()
      bench.suspendAdvertising()
      _ = bench.takeAll()
      // The connection crosses the command.
      bench.receive(connectionComplete(0x40, .peripheral))
      bench.answer(.commandDisallowed)
      same(bench.takeTexts().dropFirst(), restarts ? [] : ["advertisingStopped: a central connected"])
      bench.resumeAdvertising()
      bench.answerAll()
      same(bench.takeTexts(), restarts ? ["advertisingStarted"] : [])
    }
  }
}
