import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// Controllers with legacy and with extended commands, on both sides of the air.
@Suite("Scenarios: advertising") struct AdvertisingScenarioTests {
  private static let data = AdvertisingData(localName: "scenario", serviceUUIDs: ["180D"])
  private static let often = AdvertisingParameters.Interval.every(.milliseconds(20))
  private static func parameters(
    _ kind: AdvertisingParameters.Kind = .connectable, _ policy: AdvertisingPacker.Policy = .everything,
    duration: Duration? = nil, events: UInt8? = nil, restarts: Bool = true
  ) -> AdvertisingParameters {
    AdvertisingParameters(
      kind: kind, policy: policy, interval: often, duration: duration, maximumEvents: events,
      restartsAfterConnection: restarts)
  }
  /// 1,000 octets: a beacon of five PDUs.
  private static var long: AdvertisingData {
    var data = AdvertisingData(flags: nil)
    data.serviceData = (0..<5).map { number in
      .init(uuid: .short(0x1800 + UInt16(number)), data: (0..<196).map { UInt8(truncatingIfNeeded: $0 * (number + 3)) })
    }
    return data
  }

  /// An advertiser and a scanner. `random`: neither has a public address.
  private static func world(
    _ air: AirConfiguration = .realistic, seed: UInt64 = 1, extended: (Bool, Bool), random: Bool = false
  ) -> World<TestHost> {
    var world = World<TestHost>(seed: seed, configuration: air)
    for (index, isExtended) in [extended.0, extended.1].enumerated() {
      let host = TestHost { $0.randomStaticAddress = DeviceAddress(0xC000_5E00_5300 + UInt64(index)) }
      _ = world.addStarted(host) { controller in
        if !isExtended { controller = .legacy(address: controller.address) }
        if random { controller.address = DeviceAddress() }
      }
      same(world.readHost(index) { $0.core.controller?.usesExtendedCommands == true }, isExtended)
    }
    return world
  }
  private static func advertise(
    _ world: inout World<TestHost>, _ data: AdvertisingData = data, _ parameters: AdvertisingParameters = parameters()
  ) throws {
    try world.withHost(0) { host, now throws(AdvertisingError) in
      try host.core.advertise(data, parameters, now: now)
      host.drain()
    }
    world.run(for: .seconds(1)) { world in world.readHost(0) { !$0.isAdvertising } }
    same(world.readHost(0) { $0.isAdvertising }, true)
  }
  private static func scan(_ world: inout World<TestHost>, isActive: Bool = true, for duration: Duration = .seconds(2))
  {
    world.withHost(1) { host, now in host.core.startScan(ScanParameters(isActive: isActive), now: now) }
    world.run(for: duration)
  }

  @Test(
    "S87, S88, S149: an advertiser is found and can be connected to, until it stops",
    arguments: [false, true], [false, true])
  func bothKindsMeet(advertiser: Bool, scanner: Bool) throws {
    for random in [false, true] {
      var world = Self.world(extended: (advertiser, scanner), random: random)
      try Self.advertise(&world)
      Self.scan(&world)
      let heard = world.readHost(1) { $0.advertisements }, own = world.readHost(0) { $0.core.ownAddress }
      #expect(own.isRandom == random)
      #expect(heard.contains { $0.peer == own && $0.data.serviceUUIDs == ["180D"] })
      #expect(heard.contains { $0.peer == own && $0.data.localName == "scenario" && $0.isLegacy })

      // It accepts connections, resumes afterwards, and stops on request.
      let ending = world.ask(1) { core, id, now in core.connect(to: own, .fast, id: id, now: now) }
      guard case .linked(let link)? = ending else {
        Issue.record("\(String(describing: ending))")
        continue
      }
      world.run(for: .seconds(1))
      same(world.readHost(0) { $0.ups.map(\.role) }, [.peripheral])
      same(world.readHost(0) { $0.isAdvertising }, true)
      let before = world.readHost(1) { $0.advertisements.count }
      world.run(for: .seconds(1))
      #expect(world.readHost(1) { $0.advertisements.count } > before)
      same(world.ask(1) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
      world.withHost(0) { host, now in host.core.stopAdvertising(now: now) }
      world.run(for: .milliseconds(200))
      let after = world.readHost(1) { $0.advertisements.count }
      world.run(for: .seconds(1))
      same(world.readHost(1) { $0.advertisements.count }, after)
      same(world.readHost(0) { $0.advertisingEnds }, [.stopped])
      for host in 0...1 { same(world.readHost(host) { $0.violations }, []) }
    }
  }

  /// Data too long for legacy PDUs go out in extended ones, which legacy scanners do not receive.
  @Test(arguments: [AdvertisingParameters.Kind.connectable, .scannable, .nonconnectable])
  func longData(kind: AdvertisingParameters.Kind) throws {
    for scanner in [false, true] {
      var world = Self.world(extended: (true, scanner))
      var data = Self.long
      if kind == .connectable { data.serviceData = [.init(uuid: "180F", data: [UInt8](repeating: 5, count: 200))] }
      try Self.advertise(&world, data, Self.parameters(kind))
      Self.scan(&world)
      let heard = world.readHost(1) { $0.advertisements }
      let whole = heard.filter { !$0.isTruncated && $0.data == data }
      #expect(
        whole.isEmpty == !scanner && whole.allSatisfy { !$0.isLegacy && $0.hasScanResponse == (kind == .scannable) })
      if !scanner { #expect(heard.isEmpty) }
      if kind != .connectable { continue }
      let connected = world.ask(1, for: .seconds(5)) { core, id, now in
        core.connect(to: PeerAddress(address(1), .public), .fast, id: id, now: now)
      }
      #expect(connected.map(\.isSuccess) == (scanner ? true : nil))
    }
  }

  /// A chain that loses its end is reported as truncated, with the right beginning; memory for the pieces is bounded.
  @Test(arguments: 1...5) func badAirCutsLongData(seed: UInt64) throws {
    var air = AirConfiguration.realistic
    air.loss = 0.2
    var world = Self.world(air, seed: seed, extended: (true, true))
    try Self.advertise(&world, Self.long, Self.parameters(.nonconnectable))
    Self.scan(&world, for: .seconds(5))
    let heard = world.readHost(1) { $0.advertisements }
    let whole = heard.filter { !$0.isTruncated }, cut = heard.filter(\.isTruncated)
    #expect(!whole.isEmpty && whole.allSatisfy { $0.data == Self.long })
    #expect(!cut.isEmpty)
    // Whole structures come first; the last one is cut.
    for report in cut {
      #expect(Self.long.serviceData.starts(with: report.data.serviceData) && report.data.fault != nil)
    }
  }

  /// From one kind of PDUs to the other and back while it is on: each time the set is replaced.
  @Test func theKindOfPDUsChanges() throws {
    var world = Self.world(.ideal, extended: (true, true))
    Self.scan(&world, for: .milliseconds(10))
    for (data, parameters, isLegacy) in [
      (Self.long, Self.parameters(.nonconnectable), false), (Self.data, Self.parameters(), true),
      (Self.long, Self.parameters(.scannable), false), (Self.data, Self.parameters(.connectable, .extended), false),
      (Self.data, Self.parameters(.nonconnectable), true), (Self.long, Self.parameters(.nonconnectable), false),
    ] {
      try Self.advertise(&world, data, parameters)
      world.run(for: .milliseconds(100))
      let before = world.readHost(1) { $0.advertisements.count }
      world.run(for: .milliseconds(500))
      let heard = world.readHost(1) { Array($0.advertisements[before...]) }
      #expect(!heard.isEmpty && heard.allSatisfy { $0.isLegacy == isLegacy })
      #expect(
        heard.contains { report in
          data.serviceData.isEmpty ? report.data.serviceUUIDs == data.serviceUUIDs : report.data == data
        })
    }
    same(world.readHost(0) { $0.violations }, [])
  }

  // MARK: Ends

  @Test(arguments: [false, true]) func itsTimeIsOver(extended: Bool) throws {
    var world = Self.world(.ideal, extended: (extended, extended))
    Self.scan(&world, for: .milliseconds(10))
    try Self.advertise(&world, Self.data, Self.parameters(duration: .milliseconds(500)))
    world.run(for: .milliseconds(480))
    same(world.readHost(0) { $0.advertisingEnds }, [])
    world.run(for: .milliseconds(100))
    same(world.readHost(0) { $0.advertisingEnds }, [.durationOver])
    let count = world.readHost(1) { $0.advertisements.count }
    #expect(count > 5)
    world.run(for: .seconds(3))
    same(world.readHost(1) { $0.advertisements.count }, count)
    same(world.readHost(0) { $0.advertisingEnds }, [.durationOver])
  }
  @Test func itsEventsAreOver() throws {
    var world = Self.world(.ideal, extended: (true, true))
    Self.scan(&world, isActive: false, for: .milliseconds(10))
    try Self.advertise(&world, Self.data, Self.parameters(.nonconnectable, events: 7))
    world.run(for: .seconds(3))
    same(world.readHost(0) { $0.advertisingEnds }, [.eventsSent])
    same(world.readHost(1) { $0.advertisements.count }, 7)
  }
  @Test(arguments: [false, true]) func aConnectionEndsIt(extended: Bool) throws {
    var world = Self.world(.ideal, extended: (extended, true))
    try Self.advertise(&world, Self.data, Self.parameters(restarts: false))
    let ending = world.ask(1) { core, id, now in
      core.connect(to: PeerAddress(address(1), .public), .fast, id: id, now: now)
    }
    #expect(ending?.isSuccess == true)
    world.run(for: .seconds(1))
    same(world.readHost(0) { $0.advertisingEnds }, [.connected])
    same(world.readHost(0) { $0.violations }, [])
  }

  /// A controller that lacks one extended command is used as a legacy one.
  @Test func aControllerWithAHole() throws {
    var world = World<TestHost>(seed: 1, configuration: .ideal)
    _ = world.addStarted(TestHost()) { $0.unknownCommands = [LESetExtendedScanResponseData.opcode] }
    _ = world.addStarted(TestHost())
    same(world.readHost(0) { $0.core.controller?.usesExtendedCommands == true }, false)
    try Self.advertise(&world)
    Self.scan(&world, for: .milliseconds(500))
    #expect(world.readHost(1) { $0.advertisements }.contains { $0.data.localName == "scenario" })
    // Both at once, and a connection too: never a command of the other kind, which the controller would refuse.
    world.withHost(0) { host, now in host.core.startScan(now: now) }
    let ending = world.ask(1) { core, id, now in
      core.connect(to: PeerAddress(address(1), .public), .fast, id: id, now: now)
    }
    #expect(ending?.isSuccess == true)
    world.run(for: .seconds(1))
    for host in 0...1 { same(world.readHost(host) { $0.violations }, []) }
  }
}
