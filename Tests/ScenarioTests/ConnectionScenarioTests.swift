import BindruneSimulator
import BindruneWire
import Foundation
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

private func expect(_ condition: Bool, sourceLocation: SourceLocation = #_sourceLocation) {
  #expect(condition, sourceLocation: sourceLocation)
}

/// Several requests, several links, both roles at once.
@Suite("Connecting") struct ConnectionScenarioTests {
  private static func peer(_ host: Int) -> PeerAddress { PeerAddress(address(host + 1), .public) }
  private static func request(
    _ world: inout World<TestHost>, _ host: Int, to peers: [Int], timeout: Duration? = nil
  ) -> RequestID {
    world.withHost(host) { host, now in
      let id = host.newID()
      host.core.connect(to: peers.map(peer), .fast, timeout: timeout, id: id, now: now)
      host.drain()
      return id
    }
  }
  private static func isLinked(_ world: borrowing World<TestHost>, _ host: Int, _ id: RequestID) -> Bool {
    world.readHost(host) { $0.ending(id)?.isSuccess == true }
  }

  /// S39: the absent one is requested first, and its request still waits at the end.
  @Test("S39, S112: an absent device does not delay others", arguments: [true, false])
  func oneIsAbsent(isLegacy: Bool) throws {
    var world = World<TestHost>(seed: 11)
    let central = world.addStarted(TestHost()) { if isLegacy { $0 = .legacy(address: $0.address) } }
    for _ in 0..<4 { _ = world.addStarted(TestHost()) }
    for host in 2...4 { try world.advertise(host) }
    let absent = Self.request(&world, central, to: [1])
    world.run(for: .seconds(1))
    let others = (2...4).map { Self.request(&world, central, to: [$0]) }
    let start = world.now
    world.run(for: .seconds(10)) { world in !others.allSatisfy { Self.isLinked(world, central, $0) } }
    expect(others.allSatisfy { Self.isLinked(world, central, $0) })
    // 100 to 150 ms between advertisements, one after another.
    expect(world.now - start < .seconds(2))
    world.run(for: .seconds(60))
    same(world.readHost(central) { $0.unfinished }, [absent])
    try world.advertise(1)
    world.run(for: .seconds(5)) { world in !Self.isLinked(world, central, absent) }
    expect(Self.isLinked(world, central, absent))
  }

  /// One present device among many absent ones is found within one round of turns.
  @Test(arguments: [(0, 3), (1, 3), (2, 6), (3, 10), (8, 20)]) func turns(size: Int, count: Int) throws {
    var world = World<TestHost>(seed: 5)
    let central = world.addStarted(TestHost()) { $0.filterAcceptListSize = UInt8(size) }
    let present = world.addStarted(TestHost())
    let requests = (0..<count).map { Self.request(&world, central, to: [$0 == count - 1 ? present : 100 + $0]) }
    try world.advertise(present)
    let turns = (count + max(size, 1) - 1) / max(size, 1)
    world.run(for: .seconds(12 * turns)) { world in !Self.isLinked(world, central, requests[count - 1]) }
    expect(Self.isLinked(world, central, requests[count - 1]))
    same(world.readHost(central) { $0.unfinished.count }, count - 1)
    for id in requests { world.withHost(central) { host, now in host.core.cancel(id, now: now) } }
    world.run(for: .seconds(5))
    same(world.air.isInitiating(world.controller(of: central)), false)
    same(world.readHost(central) { $0.unfinished }, [])
  }

  @Test func fourPeripheralsAndThreeCentralsAtOnce() throws {
    var world = World<TestHost>(seed: 21)
    let hub = world.addStarted(TestHost())
    for _ in 0..<7 { _ = world.addStarted(TestHost()) }
    let peripherals = 1...4, centrals = 5...7
    for host in peripherals { try world.advertise(host) }
    try world.advertise(hub)
    let outgoing = peripherals.map { Self.request(&world, hub, to: [$0]) }
    let incoming = centrals.map { ($0, Self.request(&world, $0, to: [hub])) }
    world.run(for: .seconds(60)) { world in
      !(outgoing.allSatisfy { Self.isLinked(world, hub, $0) }
        && incoming.allSatisfy { Self.isLinked(world, $0.0, $0.1) })
    }
    let roles = world.readHost(hub) { host in
      host.ups.filter { up in host.links.contains(up.link) }.map(\.role)
    }
    #expect(roles.count { $0 == .central } == 4 && roles.count { $0 == .peripheral } == 3, "\(roles)")
  }

  @Test func noRoomForAnotherLink() throws {
    var world = World<TestHost>(seed: 8)
    let central = world.addStarted(TestHost()) { $0.maximumConnections = 1 }
    for _ in 0..<2 {
      let host = world.addStarted(TestHost())
      try world.advertise(host)
    }
    let link = try need(world.connect(central, to: 1))
    let second = world.ask(central) { core, id, now in core.connect(to: Self.peer(2), .fast, id: id, now: now) }
    same(second, .failed("connectionLimitReached"))
    same(world.ask(central) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
    _ = try need(world.connect(central, to: 2))
  }

  @Test func silenceEndsALinkByName() throws {
    var world = World<TestHost>(seed: 9)
    let central = world.addStarted(TestHost()), peripheral = world.addStarted(TestHost())
    try world.advertise(peripheral)
    _ = try need(world.connect(central, to: peripheral))
    world.run(for: .seconds(1))
    world.separate(central, peripheral)
    world.run(for: .seconds(10)) { world in world.readHost(central) { $0.downs.isEmpty } }
    same(world.readHost(central) { $0.downs.map(\.reason) }, [.connectionTimeout])
  }

  // MARK: Parameters of links

  @Test("S153: both sides ask, over the link layer and over L2CAP", arguments: [true, false], [true, false])
  func parameters(hasProcedure: Bool, isAskedByPeripheral: Bool) throws {
    var world = World<TestHost>(seed: 4)
    let shape = { (controller: inout ControllerConfiguration) in
      if !hasProcedure { controller.features.remove(.connectionParametersRequestProcedure) }
    }
    let central = world.addStarted(TestHost(), shape), peripheral = world.addStarted(TestHost())
    try world.advertise(peripheral)
    let link = try need(world.connect(central, to: peripheral))
    let asking = isAskedByPeripheral ? peripheral : central
    world.run(for: .seconds(1)) { world in world.readHost(peripheral) { $0.links.isEmpty } }
    let own = try need(world.readHost(asking) { $0.links.first })
    for wish in ConnectionLatency.allCases {
      let wanted = ConnectionParameterRange(wish)
      let ending = world.ask(asking) { core, id, now in core.updateParameters(own, wanted, id: id, now: now) }
      guard case .parameters(let parameters)? = ending else {
        Issue.record("\(wish): \(ending as Any)")
        continue
      }
      #expect(wanted.contains(parameters))
      world.run(for: .seconds(5))
      same(world.readHost(central) { $0.core.parameters(of: link) }, .some(parameters))
    }
    same(world.readHost(central) { $0.violations }, [])
    same(world.readHost(peripheral) { $0.violations }, [])
  }
  @Test("S154: without a desired latency the central's choice stays") func theCentralsChoice() throws {
    var world = World<TestHost>(seed: 14)
    let central = world.addStarted(TestHost()), peripheral = world.addStarted(TestHost())
    try world.advertise(peripheral)
    let chosen = ConnectionParameters(
      interval: ConnectionInterval(.milliseconds(75)), latency: 4, supervisionTimeout: SupervisionTimeout(.seconds(3)))
    let ending = world.ask(central) { core, id, now in core.connect(to: Self.peer(peripheral), chosen, id: id, now: now)
    }
    same(ending?.isSuccess, true)
    world.run(for: .seconds(60))
    let link = try need(world.readHost(peripheral) { $0.links.first })
    same(world.readHost(peripheral) { $0.core.parameters(of: link) }, .some(chosen))
  }
  @Test func aCentralThatRefuses() throws {
    var world = World<TestHost>(seed: 4)
    let central = world.addStarted(TestHost { $0.parameterPolicy = .refuse }), peripheral = world.addStarted(TestHost())
    try world.advertise(peripheral)
    _ = try need(world.connect(central, to: peripheral))
    world.run(for: .seconds(1)) { world in world.readHost(peripheral) { $0.links.isEmpty } }
    let link = try need(world.readHost(peripheral) { $0.links.first })
    let ending = world.ask(peripheral) { core, id, now in
      core.updateParameters(link, ConnectionParameterRange(.high), id: id, now: now)
    }
    guard case .failed(let failure)? = ending else {
      Issue.record("\(ending as Any)")
      return
    }
    #expect(failure.hasPrefix("parametersRejected"))
  }
  @Test func modulationAndStrength() throws {
    var world = World<TestHost>(seed: 6)
    let fast = { (controller: inout ControllerConfiguration) in controller.features.formUnion([.le2MPHY, .leCodedPHY]) }
    let central = world.addStarted(TestHost(), fast), peripheral = world.addStarted(TestHost(), fast)
    try world.advertise(peripheral)
    let link = try need(world.connect(central, to: peripheral))
    let both = world.ask(central) { core, id, now in
      core.setPHYs(link, PHYPreferences(transmit: .le2M, receive: .leCoded), id: id, now: now)
    }
    same(both, .phys(LinkPHYs(transmit: .le2M, receive: .leCoded)))
    let theirs = try need(world.readHost(peripheral) { $0.links.first })
    same(
      world.ask(peripheral) { core, id, now in core.readPHYs(theirs, id: id, now: now) },
      .phys(LinkPHYs(transmit: .leCoded, receive: .le2M)))
    guard case .rssi(let rssi?)? = world.ask(central, { core, id, now in core.readRSSI(link, id: id, now: now) }) else {
      Issue.record("no strength")
      return
    }
    #expect(rssi < 0 && rssi > -95)
  }

  // MARK: Chance

  /// `BINDRUNE_SEEDS` of them, 12 if it is not set.
  private static let seeds = ProcessInfo.processInfo.environment["BINDRUNE_SEEDS"].flatMap { Int($0) } ?? 12

  /// A hub with four peripherals and three centrals that come, go, connect, cancel and disconnect at random.
  @Test(arguments: 1...seeds) func anythingGoes(_ seed: Int) throws {
    var chance = SplitMix64(seed: UInt64(seed))
    var air = AirConfiguration.realistic
    air.loss = [0, 0.01, 0.2].randomElement(using: &chance) ?? 0
    var world = World<TestHost>(seed: UInt64(seed), configuration: air)
    for _ in 0..<8 {
      let isLegacy = Bool.random(using: &chance), size = [0, 1, 2, 3, 8].randomElement(using: &chance) ?? 8
      let most = [2, 4, 8].randomElement(using: &chance) ?? 8
      _ = world.addStarted(TestHost()) {
        if isLegacy { $0 = .legacy(address: $0.address) }
        $0.filterAcceptListSize = UInt8(size)
        $0.maximumConnections = most
      }
    }
    for host in 0...4 { try world.advertise(host) }
    for _ in 0..<60 {
      let host = Bool.random(using: &chance) ? 0 : Int.random(in: 5...7, using: &chance)
      switch Int.random(in: 0..<12, using: &chance) {
      case 0...4:
        // 8 and 9 do not exist.
        let peers = (0..<Int.random(in: 1...3, using: &chance)).map { _ in
          host == 0 ? Int.random(in: 1...9, using: &chance) : [0, 1, 2, 8].randomElement(using: &chance) ?? 0
        }
        let timeout = Bool.random(using: &chance) ? Duration.seconds(Int.random(in: 1...5, using: &chance)) : nil
        _ = Self.request(&world, host, to: peers, timeout: timeout)
      case 5...7:
        guard let id = world.readHost(host, { $0.unfinished }).randomElement(using: &chance) else { continue }
        world.withHost(host) { host, now in
          host.core.cancel(id, now: now)
          host.drain()
        }
      case 8...9:
        guard let link = world.readHost(host, { $0.links }).randomElement(using: &chance) else { continue }
        world.withHost(host) { host, now in
          host.core.disconnect(link, now: now)
          host.drain()
        }
      case 10:
        let other = Int.random(in: 0...4, using: &chance)
        world.withHost(other) { host, now in
          host.core.stopAdvertising(now: now)
          host.drain()
        }
      default:
        let other = Int.random(in: 0...4, using: &chance)
        world.withHost(other) { host, now in
          do throws(AdvertisingError) {
            try host.core.advertise(AdvertisingData(localName: "again"), now: now)
          } catch { Issue.record("seed \(seed): \(error)") }
          host.drain()
        }
      }
      world.run(for: .milliseconds(Int.random(in: 0...400, using: &chance)))
    }
    for host in 0..<8 {
      for id in world.readHost(host, { $0.unfinished }) {
        world.withHost(host) { host, now in
          host.core.cancel(id, now: now)
          host.drain()
        }
      }
    }
    // Longer than a cancelled attempt's end, and a supervision time-out.
    world.run(for: .seconds(8))
    for index in 0..<8 {
      let controller = world.controller(of: index), handles = world.air.handles(of: controller)
      let isInitiating = world.air.isInitiating(controller), faults = world.air.faults(of: controller)
      world.readHost(index) { host in
        let what = "seed \(seed), host \(index)"
        #expect(host.unfinished.isEmpty && host.overfinished.isEmpty, "\(what): \(host.completions)")
        #expect(host.links.count == handles.count, "\(what): \(host.links), \(handles)")
        #expect(!isInitiating, "\(what): initiates for nobody")
        #expect(faults == HostFaults(), "\(what): \(faults)")
        // Every link belongs to exactly one request.
        let owned = host.completions.values.joined().compactMap { ending -> LinkID? in
          if case .linked(let link) = ending { link } else { nil }
        }
        let made = host.ups.filter { $0.role == .central }.map(\.link)
        #expect(Set(owned) == Set(made) && owned.count == made.count, "\(what): \(owned), \(made)")
      }
    }
  }
}
