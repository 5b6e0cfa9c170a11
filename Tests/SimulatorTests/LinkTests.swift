import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Links: data, control procedures, ends. Vol 6, Part B, §4.5 and §5.1.
@Suite struct LinkTests {
  static func quiet() -> AirConfiguration {
    var air = AirConfiguration.realistic
    air.loss = 0
    return air
  }
  static let airs = [AirConfiguration.ideal, quiet()]

  @Test(arguments: 0..<2) func dataBothWays(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, p) = lab.connect(0, 1)
    lab.data(0, c, [1, 2, 3])
    lab.data(1, p, [4, 5])
    lab.run(100)
    #expect(Set(lab.hexes(0)) == ["04 13 05 01 01 00 01 00", "02 01 20 02 00 04 05"])
    #expect(Set(lab.hexes(1)) == ["04 13 05 01 01 00 01 00", "02 01 20 03 00 01 02 03"])
  }
  @Test(arguments: 0..<2) func fragmentsPassOneToOne(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, _) = lab.connect(0, 1)
    lab.data(0, c, [1, 2, 3])
    lab.data(0, c, [4, 5], flag: 1)
    lab.data(0, c, [6], flag: 1)
    lab.run(100)
    #expect(lab.hexes(1) == ["02 01 20 03 00 01 02 03", "02 01 10 02 00 04 05", "02 01 10 01 00 06"])
  }
  @Test func longPacketsAreCutOnTheAir() {
    var lab = Lab(Self.quiet(), hosts: 2)
    let (c, _) = lab.connect(0, 1)
    lab.data(0, c, [UInt8](0..<60))
    lab.run(100)
    let packets = lab.packets(1)
    #expect(packets.map { $0[2] >> 4 } == [2, 1, 1])
    #expect(packets.map(\.count) == [32, 32, 11])
    #expect(packets.flatMap { $0.dropFirst(5) } == [UInt8](0..<60))
    #expect(lab.hexes(0) == ["04 13 05 01 01 00 01 00"], "one packet of the host")
  }
  @Test func dataLength() {
    var lab = Lab(Self.quiet(), hosts: 2)
    let (c, _) = lab.connect(0, 1)
    var length = LESetDataLength()
    length.connectionHandle = ConnectionHandle(rawValue: c)
    length.txOctets = 251
    length.txTime = 2120
    lab.command(0, length)
    lab.run(100)
    #expect(lab.hexes(0) == ["04 0E 06 01 22 20 00 01 00", "04 3E 0B 07 01 00 FB 00 48 08 1B 00 48 01"])
    #expect(lab.hexes(1) == ["04 3E 0B 07 01 00 1B 00 48 01 FB 00 48 08"])
    lab.data(0, c, [UInt8](0..<200))
    lab.run(100)
    #expect(lab.packets(1).count == 1)
    length.txOctets = 26
    #expect(lab.status(0, length) == 0x12)
  }
  @Test func dataLengthFromTheStart() {
    var lab = Lab(hosts: 2)
    var suggested = LEWriteSuggestedDefaultDataLength()
    suggested.suggestedMaxTXOctets = 100
    suggested.suggestedMaxTXTime = 2120
    #expect(lab.status(0, suggested) == 0)
    lab.advertise(1)
    lab.command(0, Lab.creation(to: Lab.address(1)))
    lab.run(100)
    #expect(lab.hexes(0).last == "04 3E 0B 07 01 00 64 00 90 03 1B 00 48 01")
  }

  @Test(arguments: 0..<2) func disconnecting(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, p) = lab.connect(0, 1)
    let disconnect = Disconnect.with { $0.connectionHandle = ConnectionHandle(rawValue: c) }
    lab.command(0, disconnect)
    lab.run(100)
    #expect(lab.hexes(0) == ["04 0F 04 00 01 06 04", "04 05 04 00 01 00 16"])
    #expect(lab.hexes(1) == ["04 05 04 00 01 00 13"])
    // The handles are invalid, and not reused at once.
    lab.data(1, p, [1])
    lab.run(10)
    #expect(lab.world.air.faults(of: ControllerID(1)).dataForUnknownHandle == 1)
    #expect(lab.connect(0, 1) == (2, 2))
  }
  /// The packet that acknowledges LL_TERMINATE_IND may carry data: the link is over, and no data of it follow its end.
  @Test(arguments: [0, 1]) func nothingAfterTheEnd(who: Int) {
    var lab = Lab(Self.quiet(), hosts: 2)
    let handles = lab.connect(0, 1), own = who == 0 ? handles.0 : handles.1, peer = who == 0 ? handles.1 : handles.0
    for _ in 0..<8 { lab.data(1 - who, peer, [UInt8](0..<20)) }
    let disconnect = Disconnect.with { $0.connectionHandle = ConnectionHandle(rawValue: own) }
    lab.command(who, disconnect)
    lab.run(200)
    #expect(lab.packets(who).last?.starts(with: [0x04, 0x05]) == true)
  }
  @Test(arguments: 0..<2) func linkLoss(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    _ = lab.connect(0, 1, timeout: 100)
    lab.world.separate(0, 1)
    lab.run(980)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    lab.run(40)
    #expect(lab.hexes(0) == ["04 05 04 00 01 00 08"])
    #expect(lab.hexes(1) == ["04 05 04 00 01 00 08"])
    lab.world.reunite(0, 1)
    #expect(lab.connect(0, 1) == (2, 2))
  }
  @Test(arguments: 0..<2) func aShortAbsenceIsSurvived(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, _) = lab.connect(0, 1, timeout: 100)
    lab.world.separate(0, 1)
    lab.data(0, c, [1, 2, 3])
    lab.run(900)
    #expect(lab.hexes(0) == [] && lab.hexes(1) == [])
    lab.world.reunite(0, 1)
    lab.run(1500)
    #expect(lab.hexes(0) == ["04 13 05 01 01 00 01 00"])
    #expect(lab.hexes(1) == ["02 01 20 03 00 01 02 03"])
  }
  @Test(arguments: 0..<2) func aRemovedController(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    _ = lab.connect(0, 1, timeout: 100)
    lab.world.removeController(of: 0)
    lab.run(1100)
    #expect(lab.hexes(0) == [])
    #expect(lab.hexes(1) == ["04 05 04 00 01 00 08"])
  }
  @Test(arguments: 0..<2, [true, false]) func reset(air: Int, terminates: Bool) {
    var first = ControllerConfiguration(address: Lab.address(0))
    first.terminatesOnReset = terminates
    var lab = Lab(Self.airs[air], [first, ControllerConfiguration(address: Lab.address(1))])
    _ = lab.connect(0, 1, timeout: 100)
    lab.command(0, Reset())
    lab.run(100)
    #expect(lab.hexes(0) == ["04 0E 04 01 03 0C 00"])
    #expect(lab.hexes(1) == (terminates ? ["04 05 04 00 01 00 13"] : []))
    lab.run(1000)
    #expect(lab.hexes(1) == (terminates ? [] : ["04 05 04 00 01 00 08"]))
  }

  /// Both hosts end the link, the second at any time from before the first until after: in every phase of its end each
  /// host gets one answer and one event, and the second command is refused only once there is no link.
  @Test(arguments: [0, 1]) func bothHostsDisconnect(first: Int) {
    var statuses: Set<UInt8> = []
    for delay in 0..<40 {
      var lab = Lab(Self.quiet(), hosts: 2)
      let handles = lab.connect(0, 1, interval: 8)
      func disconnect(_ host: Int) -> Disconnect {
        let command = Disconnect.with {
          $0.connectionHandle = ConnectionHandle(rawValue: host == 0 ? handles.0 : handles.1)
          $0.reason = .remoteUserTerminatedConnection
        }
        return command
      }
      lab.command(first, disconnect(first))
      lab.run(delay)
      lab.command(1 - first, disconnect(1 - first))
      lab.run(500)
      let other = lab.packets(1 - first), answer = other.first { $0[1] == 0x0F }
      statuses.insert(answer?[3] ?? 0xFF)
      #expect(other.filter { $0[1] == 0x05 }.count == 1, "after \(delay) ms")
      #expect(lab.hexes(first).filter { $0.hasPrefix("04 05") } == ["04 05 04 00 01 00 16"], "after \(delay) ms")
      // Again: there is no link any more.
      #expect(lab.status(first, disconnect(first)) == 0x02)
    }
    #expect(statuses == [0x00, 0x02])
  }
  /// A second Disconnect of the same host, while LL_TERMINATE_IND is on its way.
  @Test func disconnectedTwice() {
    var lab = Lab(Self.quiet(), hosts: 2)
    let command = Disconnect.with {
      $0.connectionHandle = ConnectionHandle(rawValue: lab.connect(0, 1, interval: 80).0)
      $0.reason = .remoteUserTerminatedConnection
    }
    #expect(lab.status(0, command) == 0)
    #expect(lab.status(0, command) == 0x0C)
    lab.run(1000)
    #expect(lab.hexes(0).filter { $0.hasPrefix("04 05") } == ["04 05 04 00 01 00 16"])
  }

  @Test(arguments: 0..<2) func remoteFeaturesAndVersion(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let handles = lab.connect(0, 1)
    for (host, handle) in [(0, handles.0), (1, handles.1)] {
      let features = LEReadRemoteFeatures.with { $0.connectionHandle = ConnectionHandle(rawValue: handle) }
      lab.command(host, features)
      let version = ReadRemoteVersionInformation.with { $0.connectionHandle = ConnectionHandle(rawValue: handle) }
      lab.command(host, version)
      lab.run(100)
      lab.command(host, version)
      lab.run(100)
      #expect(
        lab.hexes(host).sorted() == [
          "04 0C 08 00 01 00 0D FF FF 00 00", "04 0C 08 00 01 00 0D FF FF 00 00", "04 0F 04 00 01 16 20",
          "04 0F 04 00 01 1D 04", "04 0F 04 00 01 1D 04", "04 3E 0C 04 00 01 00 FF 10 00 00 00 00 00 00",
        ])
    }
  }
  /// Vol 4, Part E, §7.8.129, §7.7.65.38; Vol 6, Part B, §5.1.4.3: page 0 alone unless both have the LL Extended Feature
  /// Set. `pages`: how many the host wants.
  @Test(arguments: 0..<2, [0, 1, 2, 10]) func allRemoteFeatures(air: Int, pages: UInt8) throws {
    var rich = ControllerConfiguration(address: Lab.address(0)), other = rich, plain = rich
    rich.version = CoreVersion(rawValue: 0x0E)
    rich.features.insert(.llExtendedFeatureSet)
    other = rich
    (other.address, plain.address) = (Lab.address(1), Lab.address(2))
    // Bits 65 and 64 + 192 + 7, which is on page 2.
    other.furtherFeatures = [0x02] + [UInt8](repeating: 0, count: 23) + [0x80]
    var lab = Lab(Self.airs[air], [rich, other, plain])
    func features(_ host: Int, _ handle: UInt16) -> String {
      let read = LEReadAllRemoteFeatures.with {
        $0.connectionHandle = ConnectionHandle(rawValue: handle)
        $0.pagesRequested = pages
      }
      lab.command(host, read)
      // One at a time; on the air without delay the first has ended.
      if air == 1 {
        lab.command(host, LEReadRemoteFeatures.with { $0.connectionHandle = ConnectionHandle(rawValue: handle) })
      }
      lab.run(1_000)
      let packets = lab.hexes(host)
      #expect(packets.dropLast() == ["04 0F 04 00 01 88 20"] + (air == 1 ? ["04 0F 04 0C 01 16 20"] : []))
      var text = packets.last ?? ""
      while text.hasSuffix(" 00") { text.removeLast(3) }
      #expect(packets.last?.count == 3 * 257 - 1)
      return text
    }
    let (c, p) = lab.connect(0, 1)
    let page1 = " 02" + String(repeating: " 00", count: 23)
    let valid: UInt8 = min(pages, pages == 0 ? 0 : 2)
    #expect(
      features(0, c) == "04 3E FE 2B 00 01 00 02 0\(valid) FF 10 00 00 00 00 00 80"
        + (pages == 0 ? "" : pages == 1 ? " 02" : page1 + " 80"))
    // The other has no features after page 0.
    #expect(features(1, p) == "04 3E FE 2B 00 01 00 00 0\(min(pages, 1)) FF 10 00 00 00 00 00 80")
    let (d, _) = lab.connect(0, 2)
    #expect(features(0, d) == "04 3E FE 2B 00 0\(d) 00 00 00 FF 10")
    let many = LEReadAllRemoteFeatures.with {
      $0.connectionHandle = ConnectionHandle(rawValue: c)
      $0.pagesRequested = 11
    }
    #expect(lab.status(0, many) == 0x12)
    // Bluetooth 5.4.
    #expect(lab.status(2, LEReadAllRemoteFeatures.with { $0.connectionHandle = ConnectionHandle(rawValue: 1) }) == 0x01)
  }
  /// Peripheral-initiated Features Exchange is missing: at our controller, then at the central's.
  @Test(arguments: [false, true]) func theCentralKeepsItsFeatures(allPages: Bool) {
    var ours = ControllerConfiguration(address: Lab.address(1)),
      theirs = ControllerConfiguration(address: Lab.address(0))
    ours.version = CoreVersion(rawValue: 0x0E)
    theirs.features.remove(.peripheralInitiatedFeaturesExchange)
    var lab = Lab(Self.quiet(), [theirs, ours])
    let handle = ConnectionHandle(rawValue: lab.connect(0, 1).1)
    for _ in 0..<2 {
      if allPages {
        lab.command(1, LEReadAllRemoteFeatures.with { $0.connectionHandle = handle })
      } else {
        lab.command(1, LEReadRemoteFeatures.with { $0.connectionHandle = handle })
      }
      lab.run(200)
      let event = lab.hexes(1).last ?? ""
      #expect(event.hasPrefix(allPages ? "04 3E FE 2B 1A 01 00 00 00 00" : "04 3E 0C 04 1A 01 00 00"))
    }
  }
  @Test(arguments: 0..<2) func updateByTheCentral(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, _) = lab.connect(0, 1)
    let update = LEConnectionUpdate.with { $0.connectionHandle = ConnectionHandle(rawValue: c) }
    lab.command(0, update)
    lab.run(500)
    #expect(lab.hexes(0) == ["04 0F 04 00 01 13 20", "04 3E 0A 03 00 01 00 18 00 00 00 F4 01"])
    #expect(lab.hexes(1) == ["04 3E 0A 03 00 01 00 18 00 00 00 F4 01"])
  }
  @Test(arguments: 0..<2, [true, false]) func updateAskedForByThePeripheral(air: Int, accepts: Bool) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (c, p) = lab.connect(0, 1)
    let update = LEConnectionUpdate.with { $0.connectionHandle = ConnectionHandle(rawValue: p) }
    lab.command(1, update)
    lab.run(100)
    #expect(lab.hexes(0) == ["04 3E 0B 06 01 00 18 00 28 00 00 00 F4 01"])
    #expect(lab.hexes(1) == ["04 0F 04 00 01 13 20"])
    if accepts {
      let reply = LERemoteConnectionParameterRequestReply.with { $0.connectionHandle = ConnectionHandle(rawValue: c) }
      lab.command(0, reply)
    } else {
      let reply = LERemoteConnectionParameterRequestNegativeReply.with {
        $0.connectionHandle = ConnectionHandle(rawValue: c)
      }
      lab.command(0, reply)
    }
    lab.run(200)
    let complete = accepts ? "04 3E 0A 03 00 01 00 18 00 00 00 F4 01" : "04 3E 0A 03 3B 01 00 06 00 00 00 64 00"
    #expect(lab.hexes(1) == [complete])
    #expect(lab.hexes(0).count == (accepts ? 2 : 1))
  }

  @Test(arguments: 0..<2) func noKey(air: Int) {
    var lab = Lab(Self.airs[air], hosts: 2)
    let (_, p) = lab.connect(0, 1)
    lab.send(0, "01 19 20 1C 01 00 08 07 06 05 04 03 02 01 34 12" + String(repeating: " 00", count: 16))
    lab.run(100)
    #expect(lab.hexes(0) == ["04 0F 04 00 01 19 20"])
    #expect(lab.hexes(1) == ["04 3E 0D 05 01 00 08 07 06 05 04 03 02 01 34 12"])
    let reply = LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = ConnectionHandle(rawValue: p) }
    lab.command(1, reply)
    lab.run(100)
    #expect(lab.hexes(0) == ["04 08 04 06 01 00 00"])
    #expect(lab.hexes(1) == ["04 0E 06 01 1B 20 00 01 00"])
  }
  @Test(arguments: 0..<2) func aPeerThatLacksAFeature(air: Int) {
    var lab = Lab(Self.airs[air], [ControllerConfiguration(address: Lab.address(0)), .legacy(address: Lab.address(1))])
    let (c, p) = lab.connect(0, 1)
    let length = LESetDataLength.with {
      $0.connectionHandle = ConnectionHandle(rawValue: c)
      $0.txOctets = 251
      $0.txTime = 2120
    }
    lab.command(0, length)
    lab.run(100)
    #expect(lab.hexes(0) == ["04 0E 06 01 22 20 00 01 00"], "and no change")
    var simple = ControllerConfiguration.legacy(address: Lab.address(2))
    simple.features = []
    lab.world.add(RawHost(), simple)
    _ = p
    lab.advertise(2)
    lab.command(1, Lab.creation(to: Lab.address(2)))
    lab.run(100)
    lab.command(1, SetEventMask())
    lab.command(2, SetEventMask())
    lab.run(1)
    _ = lab.packets(1)
    _ = lab.packets(2)
    let update = LEConnectionUpdate.with { $0.connectionHandle = ConnectionHandle(rawValue: 1) }
    lab.command(2, update)
    lab.run(100)
    #expect(lab.hexes(2) == ["04 0F 04 1A 01 13 20"])
  }

  @Test func tooManyPacketsOverflow() {
    var small = ControllerConfiguration(address: Lab.address(0))
    small.aclBufferCount = 2
    small.aclDataLength = 27
    var lab = Lab(Self.quiet(), [small, ControllerConfiguration(address: Lab.address(1))])
    let (c, _) = lab.connect(0, 1)
    for n in 0..<3 { lab.data(0, c, [UInt8(n)]) }
    lab.data(0, c, [UInt8](repeating: 0, count: 28))
    lab.run(100)
    let packets = lab.hexes(0)
    #expect(packets.filter { $0 == "04 1A 01 01" }.count == 2)
    #expect(lab.hexes(1) == ["02 01 20 01 00 00", "02 01 20 01 00 01"])
    #expect(lab.world.air.faults(of: ControllerID(0)).dataBeyondBuffers == 2)
    #expect(lab.world.air.usedBuffers(of: ControllerID(0)) == 0)
  }
  @Test func aHostThatDoesNotReadHoldsTheOtherBack() {
    var reader = ControllerConfiguration(address: Lab.address(1))
    reader.hostBacklog = 100
    for air in Self.airs {
      var lab = Lab(air, [ControllerConfiguration(address: Lab.address(0)), reader])
      let (c, _) = lab.connect(0, 1)
      // Bypasses the world, so that host 1 does not read.
      let data: [UInt8] = [0x02, UInt8(c), 0, 27, 0] + [UInt8](repeating: 7, count: 27)
      let controllers = [ControllerID(0), ControllerID(1)]
      var now = lab.world.now
      for _ in 0..<8 { lab.world.air.receive(data.span, at: controllers[0], now: now) }
      now += .seconds(1)
      lab.world.air.advance(to: now)
      #expect(lab.world.air.usedBuffers(of: controllers[0]) == 4, "32 octets each: the fourth fills the backlog")
      var buffer = PacketBuffer(), received = 0
      for _ in 0..<20 {
        while buffer.fill({ lab.world.air.nextPacket(from: controllers[1], into: &$0, now: now) }) { received += 1 }
        now += .milliseconds(20)
        lab.world.air.advance(to: now)
      }
      #expect(received == 8)
      #expect(lab.world.air.usedBuffers(of: controllers[0]) == 0)
    }
  }
  @Test func severalLinks() {
    var lab = Lab(hosts: 4)
    var handles: [UInt16] = []
    for peer in 1..<4 { handles.append(lab.connect(0, peer).0) }
    #expect(handles == [1, 2, 3])
    for (index, handle) in handles.enumerated() { lab.data(0, handle, [UInt8(index)]) }
    lab.run(10)
    for peer in 1..<4 { #expect(lab.hexes(peer) == ["02 01 20 01 00 0\(peer - 1)"]) }
    #expect(lab.world.air.linkCount(of: ControllerID(0)) == 3)
  }
}
