import BindruneReplay
import BindruneCapture
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneTrace
import BindruneWire
import TestSupport
import Testing

/// What a host may decide is named and no divergence; what it may not is one, and what follows from it stands with it.
/// The traces are written by hand.
@Suite("Replay: policy and divergences") struct PolicyTests {
  /// A trace at one host, on the link 0x0040.
  private struct Scene {
    var packets: [ReplayPacket] = []
    private var time: Int64 = 1_700_000_000_000_000_000

    mutating func add(_ direction: HCIDirection, _ octets: [UInt8]) {
      packets.append(ReplayPacket(number: packets.count + 1, time: time, direction: direction, octets: octets))
      time += 10_000_000
    }
    mutating func event(_ text: String) { add(.fromController, [4] + hex(text)) }
    mutating func connect(_ role: LinkRole) {
      // LE Connection Complete: status, handle, role, peer, interval, latency, time-out, clock accuracy.
      event("3E 13 01 00 40 00 \(role == .central ? "00" : "01") 00 01 00 5E 00 53 00 18 00 00 00 F4 01 00")
    }
    mutating func end() { event("05 04 00 40 00 13") }
    mutating func wait(_ seconds: Int64) { time += seconds * 1_000_000_000 }
    mutating func frame(_ direction: HCIDirection, _ channel: UInt8, _ payload: [UInt8]) {
      let length = UInt8(payload.count), flags: UInt8 = direction == .fromHost ? 0x00 : 0x20
      add(direction, [2, 0x40, flags, length + 4, 0, length, 0, channel, 0] + payload)
    }
    mutating func host(_ text: String) { frame(.fromHost, 4, hex(text)) }
    mutating func peer(_ text: String) { frame(.fromController, 4, hex(text)) }
    mutating func pairing(_ direction: HCIDirection, _ text: String) { frame(direction, 6, hex(text)) }
    mutating func disconnect() {
      add(.fromHost, hex("01 06 04 03 40 00 13"))
      event("0F 04 00 01 06 04")
    }
    func run() throws -> ReplayResult { try Replay(packets).run() }
  }
  private static func hex(_ text: String) -> [UInt8] { text.split(separator: " ").map { UInt8($0, radix: 16)! } }
  private static func scene(_ role: LinkRole, _ body: (inout Scene) -> Void) -> Scene {
    var scene = Scene()
    scene.connect(role)
    body(&scene)
    return scene
  }
  /// Heart Rate's UUID, 0x180D, as 128 bits, the least significant octet first. Vol 3, Part B, §2.5.1.
  private static let long180D = "FB 34 9B 5F 80 00 00 80 00 10 00 00 0D 18 00 00"
  private static let long2A37 = "FB 34 9B 5F 80 00 00 80 00 10 00 00 37 2A 00 00"

  // MARK: UUIDs

  /// A server writes a short UUID in its long form: in a list of services, of characteristics, of types, and in the
  /// value of a declaration.
  @Test func longFormsOfAServer() throws {
    let scene = Self.scene(.peripheral) {
      $0.peer("10 01 00 FF FF 00 28")
      $0.host("11 14 01 00 05 00 \(Self.long180D)")
      $0.peer("10 06 00 FF FF 00 28")
      $0.host("01 10 06 00 0A")
      $0.peer("08 01 00 05 00 03 28")
      $0.host("09 15 02 00 10 03 00 \(Self.long2A37)")
      $0.peer("04 03 00 03 00")
      $0.host("05 02 03 00 \(Self.long2A37)")
      $0.peer("0A 02 00")
      $0.host("0B 10 03 00 \(Self.long2A37)")
      $0.end()
    }
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == 5, "\(text(result))")
    #expect(result.freedoms[.uuidForm]?.count == 4, "\(text(result))")
    #expect(result.insufficiency == nil)
    // Another UUID in the second answer about the same attribute.
    var other = scene
    let place = try #require(other.packets.firstIndex { $0.octets.count > 9 && $0.octets[9] == 0x05 })
    other.packets[place].octets[other.packets[place].octets.count - 4] = 0x38
    #expect(!(try other.run()).isEqual)
  }
  /// Entries of another length do not fit into the same response, so the lists part.
  @Test func longFormsPartALists() throws {
    let scene = Self.scene(.peripheral) {
      $0.peer("10 01 00 FF FF 00 28")
      $0.host("11 06 01 00 05 00 00 18")
      $0.peer("10 06 00 FF FF 00 28")
      $0.host("11 14 06 00 09 00 \(Self.long180D)")
      $0.peer("10 0A 00 FF FF 00 28")
      $0.host("11 06 0A 00 0D 00 0F 18 0E 00 10 00 0A 18")
      $0.peer("10 11 00 FF FF 00 28")
      $0.host("01 10 11 00 0A")
      $0.end()
    }
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == 4 && result.freedoms[.uuidForm]?.count == 1, "\(text(result))")
  }
  /// A client asks for a short UUID in its long form.
  @Test func longFormsOfAClient() throws {
    let result = try Self.scene(.central) {
      $0.host("06 01 00 FF FF 00 28 \(Self.long180D)")
      $0.peer("07 06 00 09 00")
      $0.host("06 0A 00 FF FF 00 28 \(Self.long180D)")
      $0.peer("01 06 0A 00 0A")
      $0.host("08 06 00 09 00 \(Self.long2A37)")
      $0.peer("01 08 06 00 0A")
      $0.end()
    }.run()
    #expect(result.isEqual && result.comparedCount == 3, "\(text(result))")
    #expect(result.freedoms[.uuidForm]?.count == 3)
  }

  /// A client asks for a service by its long form, and the server has it.
  @Test func aSearchByTheLongForm() throws {
    let result = try Self.scene(.peripheral) {
      $0.peer("06 01 00 FF FF 00 28 0D 18")
      $0.host("07 06 00 09 00")
      $0.peer("06 01 00 FF FF 00 28 \(Self.long180D)")
      $0.host("07 06 00 09 00")
      $0.end()
    }.run()
    #expect(result.isEqual && result.comparedCount == 2 && result.freedoms[.uuidForm]?.count == 1, "\(text(result))")
  }

  // MARK: Servers

  /// A server need not support every request (Vol 3, Part F, §3.4.1.1), nor read a part of a value that is not long
  /// (§3.4.4.5): what follows is compared.
  @Test func optionalRequests() throws {
    let scene = Self.scene(.peripheral) {
      $0.peer("02 05 02")
      $0.host("01 02 00 00 06")
      $0.peer("20 03 00 05 00")
      $0.host("01 20 03 00 06")
      $0.peer("0A 03 00")
      $0.host("0B" + [String](repeating: " 41", count: 22).joined())
      $0.peer("0C 03 00 16 00")
      $0.host("0D 42")
      $0.peer("0A 05 00")
      $0.host("0B 01 02")
      $0.peer("0C 05 00 02 00")
      $0.host("01 0C 05 00 0B")
      $0.end()
    }
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == 6, "\(text(result))")
    #expect(result.freedoms[.optionalRequest]?.count == 3 && result.insufficiency == nil)
    // The value is long: it has 23 octets.
    let long = try Self.scene(.peripheral) {
      $0.peer("0A 03 00")
      $0.host("0B" + [String](repeating: " 41", count: 22).joined())
      $0.peer("0C 03 00 16 00")
      $0.host("0D 42")
      $0.peer("0C 03 00 00 00")
      $0.host("01 0C 03 00 0B")
      $0.end()
    }.run()
    #expect(long.divergences.map(\.number) == [7], "\(text(long))")
  }
  /// An error of the application may name the request's handle, or none; not another one.
  @Test(arguments: [("03", true), ("00", true), ("04", false)]) func theHandleOfAnError(
    _ handle: String, isEqual: Bool
  ) throws {
    let result = try Self.scene(.peripheral) {
      $0.peer("0A 03 00")
      $0.host("01 0A \(handle) 00 0E")
      $0.end()
    }.run()
    #expect(result.isEqual == isEqual, "\(text(result))")
  }
  /// A request without an answer is one divergence, and not every answer behind it.
  @Test func anUnansweredRequest() throws {
    let result = try Self.scene(.peripheral) {
      $0.peer("12 03 00 22")
      $0.wait(1)
      $0.peer("0A 05 00")
      $0.host("0B 55")
      $0.peer("0A 07 00")
      $0.host("0B 66")
      $0.end()
    }.run()
    #expect(result.divergences.map(\.number) == [2] && result.equalCount == 2, "\(text(result))")
    #expect(result.divergences.first?.cause == .extra)
  }
  /// A trace that begins on an encrypted link: its server permits what it refuses on the next one.
  @Test(arguments: [LinkRole.central, .peripheral]) func aLinkThatWasEncryptedBefore(_ role: LinkRole) throws {
    var scene = Scene()
    if role == .central {
      scene.host("0A 10 00")
      scene.peer("0B 05")
    }
    scene.peer("0A 03 00")
    scene.host("0B 01")
    scene.end()
    scene.connect(role)
    scene.peer("0A 03 00")
    scene.host("01 0A 03 00 0F")
    scene.end()
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == (role == .central ? 3 : 2), "\(text(result))")
    #expect(result.freedoms[.keysBefore] != nil)
  }

  // MARK: MTU

  /// The host's MTU exchange comes after a list, a cut value and the rest of that value, whose lengths are those of an
  /// ATT_MTU of 23.
  @Test func theMTUExchangeComesLater() throws {
    let part = [String](repeating: "41", count: 22).joined(separator: " ")
    let result = try Self.scene(.central) {
      $0.peer("10 01 00 FF FF 00 28")
      $0.host("11 06 01 00 05 00 00 18 06 00 09 00 01 18 0A 00 0D 00 0D 18")
      $0.host("0A 03 00")
      $0.peer("0B \(part)")
      $0.host("0C 03 00 16 00")
      $0.peer("0D 42 42")
      $0.host("02 05 02")
      $0.peer("03 05 02")
      $0.peer("10 0E 00 FF FF 00 28")
      $0.host("11 06 0E 00 11 00 0F 18 12 00 14 00 0A 18")
      $0.end()
    }.run()
    #expect(result.isEqual && result.comparedCount == 5, "\(text(result))")
    #expect(Set(result.freedoms.keys) == [.mtuExchange], "\(text(result))")
    #expect(result.freedoms[.mtuExchange]?.numbers == [4])
  }
  /// The same before the trace, and the host's exchange in it.
  @Test func theTraceBeginsBeforeTheMTUExchange() throws {
    var scene = Scene()
    scene.host("0A 03 00")
    scene.peer("0B" + [String](repeating: " 41", count: 22).joined())
    scene.host("0C 03 00 16 00")
    scene.peer("0D 42 42")
    scene.host("02 F7 00")
    scene.peer("03 05 02")
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == 3, "\(text(result))")
  }

  // MARK: Links

  @Test func aRepeatedDisconnect() throws {
    let result = try Self.scene(.central) {
      $0.peer("1B 03 00 01")
      $0.disconnect()
      $0.wait(15)
      $0.disconnect()
      $0.end()
    }.run()
    #expect(result.isEqual && result.comparedCount == 2 && result.freedoms[.repeatedDisconnect]?.count == 1)
  }

  /// Vol 3, Part F, §3.3.3: after 30 s without a response nothing more may be sent; it is one divergence.
  @Test func aDeadBearer() throws {
    func scene(after: (inout Scene) -> Void) -> Scene {
      Self.scene(.central) {
        $0.host("02 17 00")
        $0.peer("03 17 00")
        $0.host("0A 03 00")
        $0.wait(45)
        after(&$0)
        $0.end()
      }
    }
    let silent = try scene { $0.peer("1B 05 00 01") }.run()
    #expect(silent.isEqual && silent.freedoms[.deadBearer]?.count == 1, "\(text(silent))")
    let late = try scene {
      $0.peer("0B 01")
      $0.disconnect()
    }.run()
    #expect(late.isEqual && late.comparedCount == 3, "\(text(late))")
    let loud = try scene {
      $0.peer("0B 01")
      $0.host("0A 05 00")
      $0.peer("0B 02")
      $0.host("52 05 00 01")
      $0.host("0A 07 00")
    }.run()
    let divergence = try #require(loud.divergences.first)
    #expect(loud.divergenceCount == 1 && divergence.number == 6, "\(text(loud))")
    #expect(divergence.cause == .bearerDead(since: 4) && divergence.isRecordedHostsFault)
    #expect(divergence.reason.contains("Record 4") && divergence.reason.contains("Vol 3, Part F, §3.3.3"))
    #expect(loud.passedOver[.deadBearer] == 2)
    // 29 s are in time.
    let inTime = try Self.scene(.central) {
      $0.host("0A 03 00")
      $0.wait(29)
      $0.peer("0B 01")
      $0.host("0A 05 00")
      $0.peer("0B 02")
      $0.end()
    }.run()
    #expect(inTime.isEqual && inTime.comparedCount == 2 && inTime.freedoms[.deadBearer] == nil, "\(text(inTime))")
    // The same for an indication.
    let indication = try Self.scene(.peripheral) {
      $0.peer("12 04 00 02 00")
      $0.host("13")
      $0.host("1D 03 00 01")
      $0.wait(31)
      $0.host("1D 03 00 02")
      $0.end()
    }.run()
    #expect(indication.divergences.map(\.cause) == [.bearerDead(since: 4)], "\(text(indication))")
  }

  // MARK: Pairing

  /// A dual-mode host offers and asks for the link key of BR/EDR, and its peer too; ours has no such key.
  @Test(arguments: ["central", "peripheral"]) func theLinkKeyBit(_ end: String) throws {
    let sample = try #require(OwnTraceTests.samples.first { $0.name == "Secure Connections, \(end)" })
    var packets = sample.packets, count = 0
    for index in packets.indices {
      let octets = packets[index].octets
      guard octets.count == 16, octets[0] == 2, octets[7] == 6, [1, 2].contains(octets[9]) else { continue }
      for place in 14...15 { packets[index].octets[place] |= 0x08 }
      count += 1
    }
    #expect(count == 2)
    let result = try Replay(packets).run()
    #expect(result.isEqual, "\(text(result))")
    #expect(result.freedoms[.keyDistribution] != nil)
  }
  /// A host without a bond that offers keys all the same, and sends and gets them. Vol 3, Part H, §3.6.1.
  @Test func keysWithoutABond() throws {
    func value(_ octet: String, _ count: Int = 16) -> String {
      [String](repeating: octet, count: count).joined(separator: " ")
    }
    let result = try Self.scene(.central) {
      $0.pairing(.fromHost, "01 03 00 00 10 03 03")
      $0.pairing(.fromController, "02 03 00 00 10 03 03")
      $0.pairing(.fromHost, "03 \(value("11"))")
      $0.pairing(.fromController, "03 \(value("22"))")
      $0.pairing(.fromHost, "04 \(value("33"))")
      $0.pairing(.fromController, "04 \(value("44"))")
      // LE Enable Encryption with the Short Term Key.
      $0.add(.fromHost, Self.hex("01 19 20 1C 40 00 \(value("00", 10)) \(value("55"))"))
      $0.event("0F 04 00 01 19 20")
      $0.event("08 04 00 40 00 01")
      for direction in [HCIDirection.fromController, .fromHost] {
        $0.pairing(direction, "06 \(value("66"))")
        $0.pairing(direction, "07 77 77 \(value("77", 8))")
        $0.pairing(direction, "08 \(value("88"))")
        $0.pairing(direction, "09 00 99 99 99 99 99 99")
      }
      $0.host("0A 03 00")
      $0.peer("0B 01")
      $0.end()
    }.run()
    #expect(result.isEqual, "\(text(result))")
    #expect(result.comparedCount == 9 && result.freedoms[.keyDistribution] != nil, "\(text(result))")
  }
  /// Which reason a host gives when it refuses to pair at all. Vol 3, Part H, §3.5.5.
  @Test(arguments: ["05", "08", "09"]) func aRefusal(_ reason: String) throws {
    let result = try Self.scene(.peripheral) {
      $0.pairing(.fromController, "01 03 00 01 10 01 01")
      $0.wait(2)
      $0.pairing(.fromHost, "05 \(reason)")
      $0.end()
    }.run()
    #expect(result.isEqual && result.freedoms[.refusal] != nil, "\(text(result))")
  }
  /// Commands alone are compared too.
  @Test func commandsAlone() throws {
    let result = try Self.scene(.peripheral) {
      $0.event("3E 0D 05 40 00 01 02 03 04 05 06 07 08 09 0A")
      $0.add(.fromHost, Self.hex("01 1B 20 02 40 00"))
      $0.event("0E 06 01 1B 20 00 40 00")
      $0.end()
    }.run()
    #expect(result.isEqual && result.comparedCount == 1 && result.insufficiency == nil, "\(text(result))")
  }
  /// The trace begins in the middle of a legacy pairing: its Short Term Key makes no bond of LE Secure Connections, which
  /// a later legacy pairing could not replace.
  @Test(arguments: [LinkRole.central, .peripheral]) func aShortTermKey(_ role: LinkRole) throws {
    func value(_ octet: String, _ count: Int = 16) -> String {
      [String](repeating: octet, count: count).joined(separator: " ")
    }
    func encrypt(_ scene: inout Scene) {
      if role == .central {
        scene.add(.fromHost, Self.hex("01 19 20 1C 40 00 \(value("00", 10)) \(value("55"))"))
        scene.event("0F 04 00 01 19 20")
      } else {
        scene.event("3E 0D 05 40 00 \(value("00", 10))")
        scene.add(.fromHost, Self.hex("01 1A 20 12 40 00 \(value("55"))"))
        scene.event("0E 06 01 1A 20 00 40 00")
      }
      scene.event("08 04 00 40 00 01")
    }
    let initiator: HCIDirection = role == .central ? .fromHost : .fromController
    let responder: HCIDirection = role == .central ? .fromController : .fromHost
    var scene = Scene()
    for isWhole in [false, true] {
      if isWhole {
        scene.connect(role)
        scene.pairing(initiator, "01 03 00 01 10 00 00")
        scene.pairing(responder, "02 03 00 01 10 00 00")
        scene.pairing(initiator, "03 \(value("11"))")
        scene.pairing(responder, "03 \(value("22"))")
      }
      scene.pairing(initiator, "04 \(value("33"))")
      scene.pairing(responder, "04 \(value("44"))")
      encrypt(&scene)
      scene.end()
      scene.wait(600)
    }
    let result = try scene.run()
    #expect(result.isEqual && result.comparedCount == 5, "\(text(result))")
    #expect(result.freedoms[.bondRemoved] == nil)
  }

  // MARK: Divergences

  /// All divergences, each with its reason; what follows from one stands with it.
  @Test func groups() throws {
    let result = try Self.scene(.peripheral) {
      // Handle 0 is no attribute: Invalid Handle, Vol 3, Part F, §3.4.4.3.
      for code in ["02", "02"] {
        $0.peer("0A 00 00")
        $0.host("01 0A 00 00 \(code)")
      }
      $0.peer("0A 00 00")
      $0.host("01 0A 00 00 01")
      $0.peer("02 17 00")
      $0.host("03 40")
      $0.end()
    }.run()
    #expect(result.divergences.map(\.number) == [3, 5, 9], "\(text(result))")
    #expect(result.divergences.map(\.isFirst) == [true, false, true])
    #expect(result.divergences.map(\.group) == [0, 0, 1])
    #expect(result.first.count == 2 && result.divergences.allSatisfy { !$0.reason.isEmpty })
    #expect(result.divergences.first?.reason.contains("Error Code: ") == true)
    #expect(result.divergences.last?.breach != nil)
  }
  /// An absence of divergences says nothing if nothing, or only a small part, was compared.
  @Test func insufficient() throws {
    var peers = Scene()
    peers.frame(.fromController, 6, [0x0A] + [UInt8](repeating: 0, count: 16))
    let nothing = try peers.run()
    #expect(nothing.isEqual && nothing.comparedCount == 0)
    #expect(nothing.insufficiency?.hasPrefix("Nothing was compared: ") == true)
    // Frames of a channel that has opened before the trace.
    var channels = Self.scene(.central) {
      $0.host("0A 03 00")
      $0.peer("0B 01")
    }
    for _ in 0..<3 { channels.frame(.fromHost, 0x41, [1, 0, 7]) }
    let few = try channels.run()
    #expect(few.isEqual && few.comparedCount == 1 && few.passedOver[.channels] == 3, "\(text(few))")
    #expect(few.insufficiency?.hasPrefix("Only 1 of 4 PDUs were compared") == true)
    channels.host("0A 03 00")
    channels.peer("0B 01")
    channels.host("0A 03 00")
    channels.peer("0B 01")
    #expect(try channels.run().insufficiency == nil)
  }

  // MARK: Service Changed

  /// A bonded client comes back after a change. Ours indicates it when the link is encrypted; a host may do so before,
  /// or after other values. Vol 3, Part G, §2.5.2, §7.1.
  @Test(arguments: [false, true]) func serviceChangedAtAnotherTime(isLater: Bool) throws {
    let subject = try Subject()
    var recording = Recording(seed: 760)
    recording.add(subject.database)
    recording.add()
    try recording.advertise()
    let link = try recording.connect(1)
    #expect(recording.pair(1, on: link, with: 0)?.isSuccess == true)
    recording.client(1, link) { $0.discoverAll($1) }
    recording.client(1, link) { $0.followChanges($1) }
    recording.client(1, link) { $0.subscribe($1, subject.notifying.value) }
    recording.disconnect(1, link)
    try recording.world.withHost(0) { host, now throws(DatabaseError) in
      var builder = DatabaseBuilder(after: host.core.database)
      builder.service("180F") { _ = $0.characteristic("2A19", .read, value: [50]) }
      try host.core.insert(builder)
      host.drain()
    }
    try recording.advertise()
    let again = try recording.connect(1)
    recording.world.run(for: .seconds(3))
    recording.client(1, again) { $0.discoverAll($1) }
    let other = try #require(recording.world.readHost(0) { $0.links.first })
    _ = recording.world.withHost(0) { host, _ in host.notify([1, 2], of: subject.notifying.value, on: other) }
    recording.world.run(for: .seconds(1))
    recording.disconnect(1, again)
    var packets = recording.trace(of: 0)
    func isFrame(_ packet: ReplayPacket, _ opcode: UInt8) -> Bool {
      packet.octets.count > 9 && packet.octets[0] == 2 && packet.octets[7] == 4 && packet.octets[9] == opcode
    }
    let whole = try Replay(packets).run()
    #expect(whole.isEqual && whole.freedoms[.serviceChangedTime] == nil, "\(text(whole))")
    let change = try #require(packets.lastIndex { isFrame($0, 0x1D) })
    let confirmation = try #require(packets.lastIndex { isFrame($0, 0x1E) })
    #expect(confirmation > change)
    var moved = [packets[change], packets[confirmation]]
    packets.remove(at: confirmation)
    packets.remove(at: change)
    let place: Int
    if isLater {
      place = try #require(packets.lastIndex { isFrame($0, 0x1B) }) + 1
    } else {
      // LE Long Term Key Request: subevent 0x05.
      place = try #require(packets.lastIndex { $0.octets.starts(with: [4, 0x3E]) && $0.octets[3] == 5 })
    }
    for index in moved.indices { moved[index].time = packets[place].time }
    packets.insert(contentsOf: moved, at: place)
    for index in packets.indices { packets[index].number = index + 1 }
    let result = try Replay(packets).run()
    #expect(result.isEqual && result.freedoms[.serviceChangedTime]?.count == 1, "\(text(result))")
  }

  // MARK: Directions

  /// A format without directions: the flags of ACL packets tell them. Vol 4, Part E, §5.4.2.
  @Test func withoutDirections() throws {
    var collector = ReplayCollector()
    let fragmented: [[UInt8]] = [
      Self.hex("04 3E 13 01 00 40 00 00 00 01 00 5E 00 53 00 18 00 00 00 F4 01 00"),
      Self.hex("02 40 00 07 00 03 00 04 00 02 17 00"), Self.hex("02 40 20 07 00 03 00 04 00 03 17 00"),
      Self.hex("02 40 00 06 00 06 00 04 00 12 03"), Self.hex("02 40 10 04 00 00 01 02 03"),
      Self.hex("02 40 20 05 00 01 00 04 00 13"), Self.hex("04 05 04 00 40 00 13"),
    ]
    for (index, octets) in fragmented.enumerated() {
      var record = CaptureRecord(number: index + 1, octets: Octets(0, octets.count))
      record.direction = octets[0] == 4 ? .fromController : nil
      collector.receive(record, octets.span)
    }
    let result = try Replay(collector).run()
    #expect(result.isEqual && result.comparedCount == 2, "\(text(result))")
  }
}
