import BindruneToolbox
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneSimulator

/// Encryption of links: start, pause and restart, missing and different keys, silence. Vol 6, Part B, §5.1.3.
@Suite struct EncryptionTests {
  /// LTK of the sample data in Vol 6, Part C, §1, and another key.
  static let key = "BF 01 FB 9D 4E F3 BC 36 D8 74 F5 39 41 38 68 4C", otherKey = String(repeating: "00 ", count: 16)
  static let airs = LinkTests.airs

  /// Two hosts with a link, host 0 the central; both handles are 1.
  static func connected(
    _ air: AirConfiguration, seed: UInt64 = 1, v2: Bool = false, timeout: UInt16 = 100
  ) -> Lab {
    var lab = Lab(seed: seed, air, (0..<2).map { ControllerConfiguration(address: Lab.address($0)) })
    #expect(lab.connect(0, 1, timeout: timeout) == (1, 1))
    if v2 { unmaskPage2(&lab) }
    return lab
  }
  /// Encryption Change [v2] and Authenticated Payload Timeout Expired.
  static func unmaskPage2(_ lab: inout Lab) {
    for host in 0..<2 { lab.send(host, "01 63 0C 08 00 00 80 02 00 00 00 00") }
    lab.run(1)
    for host in 0..<2 { #expect(lab.hexes(host) == ["04 0E 04 01 63 0C 00"]) }
  }
  static func enable(_ lab: inout Lab, _ key: String = key) {
    lab.send(0, "01 19 20 1C 01 00 08 07 06 05 04 03 02 01 34 12 \(key)")
  }
  static func reply(_ lab: inout Lab, _ key: String = key) { lab.send(1, "01 1A 20 12 01 00 \(key)") }
  static let started = "04 0F 04 00 01 19 20", asked = "04 3E 0D 05 01 00 08 07 06 05 04 03 02 01 34 12"
  static let replied = "04 0E 06 01 1A 20 00 01 00", refused = "04 0E 06 01 1B 20 00 01 00"
  static let isOn = "04 08 04 00 01 00 01", isRefreshed = "04 30 03 00 01 00"
  /// Both hosts encrypt the link or change its key.
  static func encrypt(_ lab: inout Lab, expect event: String = isOn) {
    enable(&lab)
    lab.run(100)
    #expect(lab.hexes(0) == [started] && lab.hexes(1) == [asked])
    reply(&lab)
    lab.run(200)
    #expect(lab.hexes(0) == [event] && lab.hexes(1) == [replied, event])
  }
  static func expectData(_ lab: inout Lab, sourceLocation: SourceLocation = #_sourceLocation) {
    lab.data(0, 1, [1, 2, 3])
    lab.data(1, 1, [4, 5])
    lab.run(100)
    let completed = "04 13 05 01 01 00 01 00"
    #expect(Set(lab.hexes(0)) == [completed, "02 01 20 02 00 04 05"], sourceLocation: sourceLocation)
    #expect(Set(lab.hexes(1)) == [completed, "02 01 20 03 00 01 02 03"], sourceLocation: sourceLocation)
  }

  /// Vol 6, Part C, §1.
  @Test func theSessionKeyOfTheSampleData() {
    let longTermKey = AES128(key: 0x4C68_3841_39F5_74D8_36BC_F34E_9DFB_01BF)
    let key = SessionKey(longTermKey, central: 0xACBD_CEDF_E0F1_0213, peripheral: 0x0213_2435_4657_6879)
    #expect(key.number == 0x99AD_1B52_26A3_7E3E_058E_3B8E_27C2_C666)
  }

  @Test(arguments: 0..<2, [false, true]) func startAndNewKeys(air: Int, v2: Bool) {
    var lab = Self.connected(Self.airs[air], v2: v2)
    Self.encrypt(&lab, expect: v2 ? "04 59 05 00 01 00 01 10" : Self.isOn)
    Self.expectData(&lab)
    for _ in 0..<3 {
      Self.encrypt(&lab, expect: Self.isRefreshed)
      Self.expectData(&lab)
    }
  }
  /// A controller of Core 5.2 has no version [v2], whatever its mask says.
  @Test func anOldControllerHasNoV2() {
    var old = ControllerConfiguration(address: Lab.address(0))
    old.version = CoreVersion(rawValue: 0x0B)
    var lab = Lab(.ideal, [old, ControllerConfiguration(address: Lab.address(1))])
    _ = lab.connect(0, 1)
    Self.unmaskPage2(&lab)
    Self.enable(&lab)
    Self.reply(&lab)
    lab.run()
    #expect(lab.hexes(0) == [Self.started, Self.isOn])
    #expect(lab.hexes(1).last == "04 59 05 00 01 00 01 10")
  }

  // MARK: No key

  @Test(arguments: 0..<2) func afterAMissingKeyTheLinkGoesOn(air: Int) {
    var lab = Self.connected(Self.airs[air])
    Self.enable(&lab)
    lab.run(100)
    #expect(lab.hexes(0) == [Self.started] && lab.hexes(1) == [Self.asked])
    lab.send(1, "01 1B 20 02 01 00")
    lab.run(100)
    #expect(lab.hexes(0) == ["04 08 04 06 01 00 00"] && lab.hexes(1) == [Self.refused])
    Self.expectData(&lab)
    Self.encrypt(&lab)
    Self.expectData(&lab)
  }
  /// A link that was encrypted must not go on without encryption. Vol 6, Part B, §5.1.3.1.
  @Test(arguments: 0..<2) func anEncryptedLinkEndsWithoutAKey(air: Int) {
    var lab = Self.connected(Self.airs[air])
    Self.encrypt(&lab)
    Self.enable(&lab)
    lab.run(100)
    #expect(lab.hexes(1) == [Self.asked])
    lab.data(0, 1, [1])
    lab.send(1, "01 1B 20 02 01 00")
    lab.run(100)
    #expect(lab.hexes(0) == [Self.started, "04 05 04 00 01 00 06"])
    #expect(lab.hexes(1) == [Self.refused, "04 05 04 00 01 00 16"])
  }
  @Test(arguments: 0..<2) func aHostThatMasksTheRequestHasNoKey(air: Int) {
    var lab = Self.connected(Self.airs[air])
    lab.send(1, "01 01 20 08 0F 00 00 00 00 00 00 00")
    lab.run(1)
    #expect(lab.hexes(1) == ["04 0E 04 01 01 20 00"])
    Self.enable(&lab)
    lab.run(100)
    #expect(lab.hexes(0) == [Self.started, "04 08 04 06 01 00 00"])
    #expect(lab.hexes(1) == [])
  }
  @Test(arguments: 0..<2) func aPeerWithoutEncryption(air: Int) {
    var plain = ControllerConfiguration(address: Lab.address(1))
    plain.features.subtract([.leEncryption, .lePing])
    var lab = Lab(Self.airs[air], [ControllerConfiguration(address: Lab.address(0)), plain])
    _ = lab.connect(0, 1)
    Self.enable(&lab)
    lab.run(100)
    #expect(lab.hexes(0) == [Self.started, "04 08 04 1A 01 00 00"])
    #expect(lab.hexes(1) == [])
    Self.expectData(&lab)
  }
  /// The peripheral cannot read the central's first encrypted packet, and leaves at once; the central hears no more.
  @Test(arguments: 0..<2, [false, true]) func differentKeys(air: Int, again: Bool) {
    var lab = Self.connected(Self.airs[air])
    if again { Self.encrypt(&lab) }
    Self.enable(&lab)
    lab.run(100)
    Self.reply(&lab, Self.otherKey)
    lab.run(100)
    #expect(lab.hexes(0) == [Self.started])
    #expect(lab.hexes(1) == [Self.asked, Self.replied, "04 05 04 00 01 00 3D"])
    lab.run(1000)
    #expect(lab.hexes(0) == ["04 05 04 00 01 00 08"])
    #expect(lab.connect(0, 1) == (2, 2))
  }
  /// Each procedure of a link mixes its own random numbers into its key.
  @Test func everySessionHasAKeyOfItsOwn() {
    var lab = Self.connected(.ideal), keys: [UInt128] = []
    for round in 0..<3 {
      Self.encrypt(&lab, expect: round == 0 ? Self.isOn : Self.isRefreshed)
      let link = lab.world.air.medium.links.id(at: 0)!
      let number = lab.world.air.medium.links[link].central.transmitKey?.number
      #expect(number != nil && number == lab.world.air.medium.links[link].peripheral.transmitKey?.number)
      keys.append(number ?? 0)
    }
    #expect(Set(keys).count == 3)
  }

  // MARK: Time

  /// The procedure response time-out, 40 s. Vol 6, Part B, §5.2.
  @Test(arguments: 0..<2, [false, true]) func aHostThatNeverAnswers(air: Int, again: Bool) {
    var lab = Self.connected(Self.airs[air])
    if again { Self.encrypt(&lab) }
    Self.enable(&lab)
    lab.run(39_990)
    #expect(lab.hexes(0) == [Self.started] && lab.hexes(1) == [Self.asked])
    lab.run(200)
    #expect(lab.hexes(0) == ["04 05 04 00 01 00 22"] && lab.hexes(1) == ["04 05 04 00 01 00 22"])
    Self.reply(&lab)
    lab.run(10)
    #expect(lab.hexes(1) == ["04 0E 06 01 1A 20 02 01 00"])
  }
  /// The time-out of a procedure that has ended ends nothing, not even a later procedure.
  @Test(arguments: 0..<2) func anAnswerInTime(air: Int) {
    var lab = Self.connected(Self.airs[air])
    Self.enable(&lab)
    lab.run(30_000)
    Self.reply(&lab)
    lab.run(5_000)
    #expect(lab.hexes(0) == [Self.started, Self.isOn])
    Self.enable(&lab)
    lab.run(30_000)
    Self.reply(&lab)
    lab.run(50_000)
    #expect(lab.hexes(0) == [Self.started, Self.isRefreshed])
    #expect(lab.hexes(1) == [Self.asked, Self.replied, Self.isOn, Self.asked, Self.replied, Self.isRefreshed])
  }

  // MARK: Wrong state

  @Test func refusals() {
    var lab = Self.connected(.ideal)
    let c = ConnectionHandle(rawValue: 1), none = ConnectionHandle(rawValue: 7)
    func enabling(_ handle: ConnectionHandle) -> LEEnableEncryption {
      .with { $0.connectionHandle = handle }
    }
    func replying(_ handle: ConnectionHandle) -> LELongTermKeyRequestReply {
      .with { $0.connectionHandle = handle }
    }
    let negative = LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = c }
    #expect(lab.status(0, enabling(none)) == 0x02)
    #expect(lab.status(1, replying(none)) == 0x02)
    // Only the central starts it; nobody has asked for a key.
    #expect(lab.status(1, enabling(c)) == 0x0C)
    for host in 0..<2 {
      #expect(lab.status(host, replying(c)) == 0x0C)
      #expect(lab.status(host, negative) == 0x0C)
    }
    // While it runs.
    #expect(lab.status(0, enabling(c)) == 0)
    #expect(lab.status(0, enabling(c)) == 0x0C)
    #expect(lab.status(0, replying(c)) == 0x0C)
    #expect(lab.status(1, enabling(c)) == 0x0C)
    #expect(lab.status(1, replying(c)) == 0)
    #expect(lab.status(1, replying(c)) == 0x0C)
    #expect(lab.status(1, negative) == 0x0C)
    #expect(lab.hexes(0) == [Self.isOn])
    #expect(lab.status(0, enabling(c)) == 0)
  }

  // MARK: Data

  /// Data queued before and during the procedure all arrive, in order. What both hosts send while one of them is asked
  /// for its key waits, and leaves encrypted.
  @Test(arguments: 0..<2, [false, true]) func dataWaits(air: Int, again: Bool) {
    var lab = Self.connected(Self.airs[air])
    if again { Self.encrypt(&lab) }
    for host in 0..<2 { for n in 0..<2 { lab.data(host, 1, [UInt8](repeating: UInt8(n), count: 100)) } }
    Self.enable(&lab)
    lab.run(100)
    var octets = (0..<2).map { Self.data(lab.packets($0)).count }
    for host in 0..<2 { for n in 2..<4 { lab.data(host, 1, [UInt8](repeating: UInt8(n), count: 100)) } }
    lab.run(300)
    for host in 0..<2 { #expect(Self.data(lab.packets(host)) == [], "nothing during the procedure") }
    Self.reply(&lab)
    lab.run(500)
    for host in 0..<2 {
      let packets = lab.packets(host), event = TestSupport.octets(again ? Self.isRefreshed : Self.isOn)
      let on = packets.firstIndex(of: event), first = packets.firstIndex { $0[0] == 2 }
      #expect(on != nil && first != nil && on! < first!)
      let rest = Self.data(packets)
      octets[host] += rest.count
      #expect(octets[host] == 400)
      #expect(rest == (0..<4).flatMap { [UInt8](repeating: $0, count: 100) }.suffix(rest.count))
      #expect(lab.world.air.usedBuffers(of: ControllerID(host)) == 0)
    }
  }
  static func data(_ packets: [[UInt8]]) -> [UInt8] { packets.filter { $0[0] == 2 }.flatMap { $0.dropFirst(5) } }

  /// Other procedures of the link wait too, and then complete.
  @Test(arguments: 0..<2) func otherProceduresWait(air: Int) {
    var lab = Self.connected(Self.airs[air])
    Self.enable(&lab)
    lab.run(100)
    for host in 0..<2 { lab.send(host, "01 1D 04 02 01 00") }
    lab.send(0, "01 16 20 02 01 00")
    lab.run(300)
    #expect(lab.hexes(0) == [Self.started, "04 0F 04 00 01 1D 04", "04 0F 04 00 01 16 20"])
    #expect(lab.hexes(1) == [Self.asked, "04 0F 04 00 01 1D 04"])
    Self.reply(&lab)
    lab.run(300)
    let version = "04 0C 08 00 01 00 0D FF FF 00 00"
    #expect(Set(lab.hexes(0)) == [Self.isOn, version, "04 3E 0C 04 00 01 00 FF 10 00 00 00 00 00 00"])
    #expect(Set(lab.hexes(1)) == [Self.replied, Self.isOn, version])
  }
  /// LL_TERMINATE_IND does not wait.
  @Test(arguments: 0..<2, 0..<2) func aHostEndsTheLink(air: Int, who: Int) {
    for delay in [0, 5, 10, 20, 40, 100] {
      var lab = Self.connected(Self.airs[air])
      Self.encrypt(&lab)
      Self.enable(&lab)
      lab.run(delay)
      lab.send(who, "01 06 04 03 01 00 13")
      lab.run(200)
      #expect(lab.hexes(who).last == "04 05 04 00 01 00 16", "after \(delay) ms")
      #expect(lab.hexes(1 - who).last == "04 05 04 00 01 00 13", "after \(delay) ms")
    }
  }

  // MARK: Loss

  /// The link is lost in every step of the procedures: each host gets one event, and the next link can be encrypted.
  @Test(arguments: [false, true]) func linkLossInEveryStep(again: Bool) {
    var outcomes: Set<Int> = [], air = LinkTests.quiet()
    // Each step in a connection event of its own.
    air.packetsPerEvent = 1
    for delay in 0..<70 {
      var lab = Self.connected(air)
      if again { Self.encrypt(&lab) }
      Self.enable(&lab)
      var events: [[String]] = [[], []]
      // The last of them is longer than the supervision time-out.
      for step in 0...delay + 10 {
        if step == delay { lab.world.separate(0, 1) }
        lab.run(step == delay + 10 ? 1100 : 1)
        for host in 0..<2 {
          for event in lab.hexes(host) {
            if event == Self.asked { Self.reply(&lab) }
            events[host].append(event)
          }
        }
      }
      for host in 0..<2 {
        #expect(events[host].filter { $0.hasPrefix("04 05") } == ["04 05 04 00 01 00 08"], "after \(delay) ms")
        #expect(events[host].last?.hasPrefix("04 05") == true)
      }
      outcomes.insert(events[0].count + 10 * events[1].count)
      lab.world.reunite(0, 1)
      #expect(lab.connect(0, 1) == (2, 2))
      lab.send(0, "01 19 20 1C 02 00 08 07 06 05 04 03 02 01 34 12 \(Self.key)")
      lab.run(100)
      lab.send(1, "01 1A 20 12 02 00 \(Self.key)")
      lab.run(200)
      for host in 0..<2 { #expect(lab.hexes(host).last == "04 08 04 00 02 00 01") }
    }
    // The peripheral's host was not asked, it has replied, or the link was encrypted before it was lost.
    #expect(outcomes.count == 3, "\(outcomes)")
  }
  /// Repeated packets, with every step of the procedures lost now and then.
  @Test func aNoisyRoom() {
    for seed in 1...30 as ClosedRange<UInt64> {
      var lab = Self.connected(LinkTests.quiet(), seed: seed, timeout: 1000)
      lab.world.air.setLoss(0.4)
      for round in 0..<3 {
        for host in 0..<2 { lab.data(host, 1, [UInt8](repeating: UInt8(round), count: 50)) }
        Self.enable(&lab)
        lab.run(1000)
        Self.reply(&lab)
        lab.run(2000)
        let event = round == 0 ? Self.isOn : Self.isRefreshed
        for host in 0..<2 {
          let packets = lab.packets(host)
          #expect(packets.map { hex($0) }.contains(event), "seed \(seed), round \(round)")
          #expect(Self.data(packets) == [UInt8](repeating: UInt8(round), count: 50), "seed \(seed), round \(round)")
        }
      }
    }
  }
  @Test func theSameSeedGivesTheSameOctets() {
    func records(_ seed: UInt64) -> [PacketRecord] {
      var lab = Self.connected(.realistic, seed: seed)
      lab.world.air.startRecording()
      for _ in 0..<3 {
        Self.enable(&lab)
        lab.run(100)
        Self.reply(&lab)
        lab.data(0, 1, [1, 2, 3])
        lab.run(200)
      }
      return lab.world.air.takeRecords()
    }
    #expect(records(5) == records(5))
    #expect(records(5) != records(6))
  }

  // MARK: Authenticated payload time-out

  static let expired = "04 57 02 01 00"

  @Test func theTimeOutIsRead() {
    var lab = Self.connected(.ideal)
    for host in 0..<2 {
      lab.send(host, "01 7B 0C 02 01 00")
      lab.send(host, "01 7C 0C 04 01 00 64 00")
      lab.send(host, "01 7B 0C 02 01 00")
      lab.run(1)
      #expect(
        lab.hexes(host) == [
          "04 0E 08 01 7B 0C 00 01 00 B8 0B", "04 0E 06 01 7C 0C 00 01 00", "04 0E 08 01 7B 0C 00 01 00 64 00",
        ])
    }
    // Zero, and an unknown link.
    lab.send(0, "01 7C 0C 04 01 00 00 00")
    lab.send(0, "01 7C 0C 04 07 00 64 00")
    lab.run(1)
    #expect(lab.hexes(0) == ["04 0E 06 01 7C 0C 12 01 00", "04 0E 06 01 7C 0C 02 07 00"])
  }
  /// connInterval × (1 + connPeripheralLatency), here 50 ms.
  @Test func theTimeOutIsNotShorterThanTheInterval() {
    var lab = Lab(hosts: 2)
    _ = lab.connect(0, 1, interval: 40)
    for (value, status) in [("04", "12"), ("05", "00")] {
      lab.send(0, "01 7C 0C 04 01 00 \(value) 00")
      lab.run(1)
      #expect(lab.hexes(0) == ["04 0E 06 01 7C 0C \(status) 01 00"])
    }
  }
  /// Healthy peers ping each other; a silent one is noticed by each end, again and again until the link ends.
  @Test(arguments: 0..<2) func silenceIsReported(air: Int) {
    var lab = Self.connected(Self.airs[air], v2: true)
    for host in 0..<2 { lab.send(host, "01 7C 0C 04 01 00 0A 00") }
    lab.run(1)
    for host in 0..<2 { #expect(lab.hexes(host) == ["04 0E 06 01 7C 0C 00 01 00"]) }
    // Not encrypted.
    lab.world.separate(0, 1)
    lab.run(500)
    lab.world.reunite(0, 1)
    lab.run(100)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    Self.encrypt(&lab, expect: "04 59 05 00 01 00 01 10")
    lab.run(20_000)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    lab.world.separate(0, 1)
    lab.run(350)
    for host in 0..<2 {
      let events = lab.hexes(host)
      #expect(Set(events) == [Self.expired] && (3...4).contains(events.count), "\(events)")
    }
    lab.world.reunite(0, 1)
    lab.run(150)
    _ = (lab.packets(0), lab.packets(1))
    lab.run(20_000)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    Self.expectData(&lab)
  }
  /// The default of 30 s, and an event that the host has not unmasked.
  @Test(arguments: 0..<2, [false, true]) func theDefaultIsHalfAMinute(air: Int, isUnmasked: Bool) {
    var lab = Self.connected(Self.airs[air], timeout: 3200)
    if isUnmasked { Self.unmaskPage2(&lab) }
    Self.enable(&lab)
    lab.run(100)
    Self.reply(&lab)
    lab.run(100_000)
    _ = (lab.packets(0), lab.packets(1))
    lab.world.separate(0, 1)
    lab.run(14_000)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    lab.run(16_500)
    for host in 0..<2 { #expect(lab.hexes(host) == (isUnmasked ? [Self.expired] : [])) }
  }
  /// A peer without LE Ping answers LL_UNKNOWN_RSP, whose MIC is as good.
  @Test func aPeerWithoutLEPing() {
    var plain = ControllerConfiguration(address: Lab.address(1))
    plain.features.remove(.lePing)
    var lab = Lab(.ideal, [ControllerConfiguration(address: Lab.address(0)), plain])
    _ = lab.connect(0, 1)
    Self.unmaskPage2(&lab)
    lab.send(0, "01 7C 0C 04 01 00 0A 00")
    lab.run(1)
    _ = lab.packets(0)
    Self.encrypt(&lab, expect: "04 59 05 00 01 00 01 10")
    lab.run(5_000)
    #expect(lab.hexes(0) == [])
  }
  /// Timers of ended procedures do not accumulate.
  @Test func manyKeysNeedNoMemory() {
    var lab = Self.connected(.ideal)
    Self.encrypt(&lab)
    var largest = 0
    for _ in 0..<500 {
      Self.enable(&lab)
      lab.run(1)
      Self.reply(&lab)
      lab.run(1)
      #expect(lab.hexes(0) == [Self.started, Self.isRefreshed])
      largest = max(largest, lab.world.air.medium.schedule.count)
    }
    #expect(largest <= 130, "\(largest) entries")
  }
}
