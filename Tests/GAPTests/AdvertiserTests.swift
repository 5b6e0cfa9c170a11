import BindruneWire
import GATT
import HCI
import TestSupport
import Testing

@testable import GAP

@Suite("HostCore: advertising") struct AdvertiserTests {
  private static let set = "Advertising_Handle: 0, "
  private static func enable(_ duration: String = "0 (0 ms)", events: Int = 0, on: Bool = true) -> String {
    "Enable: \(on), Num_Sets: 1, Sets: [{\(set)Duration: \(duration), Max_Extended_Advertising_Events: \(events)}]"
  }
  private static let data = AdvertisingData(localName: "a name of 26 octets for it", serviceUUIDs: ["180D"])
  private static func advertise(
    _ bench: inout Bench, _ data: AdvertisingData = data, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) {
    bench.tell { core, now in try! core.advertise(data, parameters, now: now) }
  }
  private static func refusal(
    _ bench: inout Bench, _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) -> AdvertisingDataError? {
    do throws(AdvertisingDataError) { try bench.core.advertise(data, parameters, now: bench.now) } catch {
      return error
    }
    return nil
  }
  /// What the core sends for it, one text a command, all of them accepted.
  private static func commands(
    _ bench: inout Bench, _ data: AdvertisingData = data, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) -> [String] {
    advertise(&bench, data, parameters)
    return accepted(&bench)
  }
  private static func accepted(_ bench: inout Bench) -> [String] {
    var texts: [String] = []
    repeat { texts.append(bench.lastCommand) } while bench.answer() && !bench.takeAll().contains("advertisingStarted")
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
    #expect(texts[0].contains("Primary_Advertising_Interval_Min: 160, Primary_Advertising_Interval_Max: 240, "))
    #expect(
      texts[1...] == [
        Self.set + "Operation: complete, Fragment_Preference: 0x00, Advertising_Data_Length: 7, "
          + "Advertising_Data: 02 01 06 03 03 0D 18",
        Self.set + "Operation: complete, Fragment_Preference: 0x00, Scan_Response_Data_Length: 28, "
          + "Scan_Response_Data: 1B 09 \(hex(Array(Self.data.localName!.utf8)))",
        Self.enable(),
      ])
    bench.tell { core, now in core.stopAdvertising(now: now) }
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

  /// A set that holds what its new PDUs may not carry would be refused: Vol 4, Part E, §7.8.53.
  @Test func aSetOfAnotherKindIsRemovedFirst() {
    var bench = Bench.started(controller: .extended)
    let other = AdvertisingData(localName: "other")
    var begun: [String] = []
    for (data, parameters) in [
      (Self.data, AdvertisingParameters()), (other, AdvertisingParameters()),
      (other, AdvertisingParameters(kind: .scannable)),
      (other, AdvertisingParameters(kind: .scannable, policy: .extended)),
      (Self.data, AdvertisingParameters(kind: .scannable, policy: .extended)),
    ] {
      Self.advertise(&bench, data, parameters)
      if begun.count > 0 { bench.answer() }
      begun.append(bench.takeAll().last ?? "")
      bench.answerAll()
      _ = bench.takeAll()
    }
    let first = "LE_Set_Extended_Advertising_Parameters", removal = "LE_Remove_Advertising_Set"
    #expect(begun == [first, first, removal, removal, first])
    // After a reset there is none.
    bench.start()
    _ = bench.takeAll()
    Self.advertise(&bench)
    same(bench.takeAll(), [first])
  }

  /// Also when what is wanted changes while the set is being made.
  @Test func aSetThatNobodyWantsAnyMoreIsRemembered() {
    var bench = Bench.started(controller: .extended)
    let parameters = AdvertisingParameters(duration: .seconds(3))
    _ = Self.commands(&bench, Self.data, parameters)
    Self.advertise(&bench, Self.data, parameters)
    bench.answer()
    same(bench.takeAll().last, "LE_Set_Extended_Advertising_Parameters")
    Self.advertise(&bench, Self.data, AdvertisingParameters(kind: .scannable, duration: .seconds(3)))
    bench.answer()
    same(bench.takeAll(), ["LE_Remove_Advertising_Set"])
    bench.answerAll()
    same(bench.takeTexts(), ["advertisingStarted"])
  }

  @Test func whatTheControllerCannotDo() {
    var legacy = Bench.started()
    // 13 in the advertising data, 14 in the scan response: one octet is left there.
    let long = AdvertisingData(serviceUUIDs: (0..<28).map { .short(0x1800 + $0) })
    #expect(
      Self.refusal(&legacy, long)
        == .leftOut([.init(item: .serviceUUID("181B"), reason: .noRoom(needed: 2, available: 1))]))
    #expect(Self.refusal(&legacy, Self.data, AdvertisingParameters(maximumEvents: 1)) == .extendedUnavailable)
    same(legacy.takeAll(), [])
    // One that lacks one of the extended commands goes by the legacy ones altogether.
    var part = PaperController.extended
    part.lacks = [LEExtendedCreateConnection.supportedBit!]
    var bench = Bench.started(controller: part)
    Self.advertise(&bench)
    bench.answerAll()
    bench.tell { core, now in core.startScan(now: now) }
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
      // Not less than was asked for, in units of 10 ms.
      #expect(texts.last == Self.enable("300 (3000 ms)", events: 9))
      bench.receive([4, 0x3E, 6, 0x12, status, 0, 0, 0, 9])
      same(bench.takeAll(), [end])
      bench.wait(.seconds(10))
      same(bench.takeAll(), [])
    }
  }
  /// Some controllers count no time: then the host does, a little later.
  @Test func theHostEndsWhatTheControllerDoesNot() {
    var bench = Bench.started(controller: .extended)
    _ = Self.commands(&bench, Self.data, AdvertisingParameters(duration: .seconds(3)))
    bench.wait(.milliseconds(3999))
    same(bench.takeAll(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeAll(), ["LE_Set_Extended_Advertising_Enable(off)"])
    // The controller's word crosses the command.
    bench.receive("04 3E 06 12 3C 00 00 00 00")
    bench.answer(.commandDisallowed)
    same(bench.takeAll(), ["advertisingStopped: the time is over"])
    // Its clock goes up to 655.35 s.
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
    blocked.answer(.connectionLimitExceeded)
    same(name(blocked.core.advertiser.phase), "blocked")
    _ = blocked.takeAll()
    blocked.wait(.seconds(10))
    same(blocked.takeAll(), ["advertisingStopped: the time is over"])
    blocked.receive(disconnectionComplete(0x40))
    same(blocked.takeAll(), ["link 1 down: 0x13"])

    var setting = Bench.started(controller: .extended)
    _ = Self.commands(&setting, Self.data, parameters)
    setting.wait(.milliseconds(9_500))
    setting.receive(connectionComplete(0x40, .peripheral))
    _ = setting.takeAll()
    setting.wait(.milliseconds(500))
    same(setting.takeAll(), [])
    setting.answer()
    same(setting.takeAll(), ["advertisingStopped: the time is over"])
  }
  /// The same said again begins anew.
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
      // A controller that counts has a second more.
      bench.wait(.milliseconds(1_100))
      same(bench.takeAll().map { $0.hasSuffix("_Advertising_Enable(off)") }, [true])
      Self.advertise(&bench)
      bench.answerAll()
      _ = bench.takeAll()
      // No time was asked for: it goes on.
      bench.wait(.seconds(30))
      same(bench.takeAll(), [])
    }
  }

  // MARK: Suspension

  private static func suspend(_ bench: inout Bench) {
    bench.tell { core, now in core.advertiser.suspend(hci: &core.hci, now: now) }
  }
  private static func resume(_ bench: inout Bench) {
    bench.tell { core, now in core.advertiser.resume(hci: &core.hci, now: now) }
  }

  /// Off in the controller, on for whoever asked for it.
  @Test func aSuspensionTellsNobody() {
    for controller in [PaperController(), .extended] {
      var bench = Bench.started(controller: controller)
      expect(bench.core.advertiser.isQuiet)
      Self.suspend(&bench)
      Self.resume(&bench)
      same(bench.takeAll(), [])
      // Asked for before, its outcome comes after.
      Self.advertise(&bench)
      Self.suspend(&bench)
      expect(!bench.core.advertiser.isQuiet)
      bench.answerAll()
      same(bench.takeTexts(), [])
      expect(bench.core.advertiser.isQuiet)
      Self.resume(&bench)
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStarted"])
      _ = bench.takeAll()

      Self.suspend(&bench)
      expect(!bench.core.advertiser.isQuiet)
      bench.answerAll()
      same(bench.takeAll().map { $0.hasSuffix("Advertising_Enable(off)") }, [true])
      expect(bench.core.advertiser.isQuiet)
      Self.resume(&bench)
      bench.answerAll()
      same(bench.takeAll().last?.hasSuffix("Advertising_Enable(on)"), true)
      // Stopped, or asked for, while suspended.
      Self.suspend(&bench)
      bench.answerAll()
      bench.tell { core, now in core.stopAdvertising(now: now) }
      same(bench.takeTexts(), ["advertisingStopped"])
      Self.advertise(&bench)
      same(bench.takeTexts(), [])
      Self.resume(&bench)
      bench.answerAll()
      same(bench.takeTexts(), ["advertisingStarted"])
    }
  }
  @Test func theEndDuringASuspension() {
    var late = Bench.started()
    Self.advertise(&late, Self.data, AdvertisingParameters(duration: .seconds(3)))
    late.answerAll()
    Self.suspend(&late)
    late.answerAll()
    _ = late.takeAll()
    late.now = late.now + .seconds(3)
    Self.resume(&late)
    late.wait(.zero)
    same(late.takeAll(), ["advertisingStopped: the time is over"])

    for restarts in [false, true] {
      var bench = Bench.started()
      Self.advertise(&bench, Self.data, AdvertisingParameters(restartsAfterConnection: restarts))
      bench.answerAll()
      Self.suspend(&bench)
      _ = bench.takeAll()
      // The connection crosses the command.
      bench.receive(connectionComplete(0x40, .peripheral))
      bench.answer(.commandDisallowed)
      same(bench.takeTexts().dropFirst(), restarts ? [] : ["advertisingStopped: a central connected"])
      Self.resume(&bench)
      bench.answerAll()
      same(bench.takeTexts(), restarts ? ["advertisingStarted"] : [])
    }
  }
}
