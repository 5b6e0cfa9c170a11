import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// Scenarios with several links, both roles, and few buffers.
@Suite("Links") struct LinkScenarioTests {
  private static func quiet() -> AirConfiguration {
    var air = AirConfiguration.realistic
    air.loss = 0
    return air
  }
  /// Sends numbered values on a link until its queue is full or `last` has been sent; returns the next number.
  private static func pour(
    _ world: inout World<TestHost>, _ host: Int, _ link: LinkID, _ handle: AttributeHandle, from first: Int,
    to last: Int,
    count: Int = 20
  ) -> Int {
    world.withHost(host) { host, _ in
      var number = first
      while number < last {
        let value = [UInt8(number & 0xFF), UInt8(number >> 8 & 0xFF)] + [UInt8](repeating: 0, count: count - 2)
        guard host.notify(value, of: handle, on: link)?.isAccepted == true else { break }
        number += 1
      }
      return number
    }
  }
  private static func number(_ value: [UInt8]) -> Int { Int(value[0]) | Int(value[1]) << 8 }

  @Test func fourCentralsGetTheSameShare() throws {
    let peripheral = try Peripheral()
    var world = World<TestHost>(seed: 7, configuration: Self.quiet())
    let server = world.addStarted(TestHost(peripheral.database))
    var centrals: [Int] = []
    for _ in 0..<4 { centrals.append(world.addStarted(TestHost())) }
    try world.advertise(server)
    for central in centrals {
      let link = try need(world.connect(central, to: server))
      same(world.subscribe(central, link, peripheral.notifying), .done)
    }
    let links = world.readHost(server) { $0.core.subscribers(of: peripheral.notifying) }
    #expect(links.count == 4)
    var next = [Int](repeating: 0, count: 4)
    for _ in 0..<200 {
      for (i, link) in links.enumerated() {
        next[i] = Self.pour(&world, server, link, peripheral.notifying, from: next[i], to: .max)
      }
      world.run(for: .milliseconds(10))
    }
    world.run(for: .seconds(10))
    let counts = centrals.map { central in world.readHost(central) { $0.values.count } }
    for (i, central) in centrals.enumerated() {
      let numbers = world.readHost(central) { $0.values.map { Self.number($0.value) } }
      #expect(numbers == (0..<next[i]).map { $0 & 0xFFFF }, "in order, without gaps, all of them")
    }
    let least = counts.min() ?? 0, most = counts.max() ?? 0
    #expect(least > 500 && Double(least) > 0.9 * Double(most), "\(counts)")
  }

  @Test func aRingOfThreeInBothRoles() throws {
    let peripheral = try Peripheral()
    var world = World<TestHost>(seed: 3)
    for _ in 0..<3 { _ = world.addStarted(TestHost(peripheral.database)) }
    for host in 0..<3 { try world.advertise(host) }
    var links: [LinkID] = []
    for host in 0..<3 { links.append(try need(world.connect(host, to: (host + 1) % 3))) }
    for host in 0..<3 {
      same(world.subscribe(host, links[host], peripheral.notifying), .done)
      same(world.write(host, links[host], peripheral.writable, [UInt8(host)]), .done)
      same(world.read(host, links[host], peripheral.writable), .value([UInt8(host)]))
    }
    // Each host reads one neighbour and is read by the other, at the same time.
    var next = [0, 0, 0]
    for _ in 0..<50 {
      for host in 0..<3 {
        let up = try need(world.readHost(host) { $0.core.subscribers(of: peripheral.notifying).first })
        next[host] = Self.pour(&world, host, up, peripheral.notifying, from: next[host], to: 500)
      }
      world.run(for: .milliseconds(20))
    }
    world.run(for: .seconds(60))
    for host in 0..<3 {
      same(world.readHost(host) { $0.values.map { Self.number($0.value) } }, Array(0..<next[(host + 1) % 3]))
      #expect(next[host] == 500)
      same(world.readHost(host) { Set($0.ups.map(\.role)) }, [.central, .peripheral])
      same(world.readHost(host) { $0.violations }, [])
    }
  }

  /// One buffer of 27 octets: the longest values, both ways.
  @Test func theLongestValuesThroughTheSmallestController() throws {
    let peripheral = try Peripheral()
    var world = World<TestHost>(seed: 5)
    let tiny = { (configuration: inout ControllerConfiguration) in
      configuration = .legacy(address: configuration.address)
      configuration.aclBufferCount = 1
    }
    let server = world.addStarted(TestHost(peripheral.database), tiny)
    let client = world.addStarted(TestHost(), tiny)
    try world.advertise(server)
    let link = try need(world.connect(client, to: server))
    same(world.read(client, link, peripheral.long), .value(Peripheral.longValue))
    let other = Peripheral.longValue.map { ~$0 }
    same(world.write(client, link, peripheral.long, other), .done)
    same(world.read(client, link, peripheral.long), .value(other))
    same(world.subscribe(client, link, peripheral.notifying), .done)
    let up = try need(world.readHost(server) { $0.links.first })
    var next = 0
    while next < 100 {
      next = Self.pour(&world, server, up, peripheral.notifying, from: next, to: 100, count: 512)
      world.run(for: .milliseconds(100))
    }
    world.run(for: .seconds(60))
    same(world.readHost(client) { $0.values.map { Self.number($0.value) } }, Array(0..<100))
    same(world.readHost(client) { $0.values.allSatisfy { $0.value.count == 512 } }, true)
    same(world.readHost(server) { [$0.needlessEdges, $0.full.count] }, [0, 0])
    same(world.air.faults(of: world.controller(of: server)), HostFaults())
  }

  /// The cost of a peer out of range for another, whose link notifies as fast as it can.
  @Test func aSilentPeerDoesNotStarveAnother() throws {
    func received(isSilent: Bool) throws -> Int {
      let peripheral = try Peripheral()
      var world = World<TestHost>(seed: 11, configuration: Self.quiet())
      let server = world.addStarted(TestHost(peripheral.database)) { $0.aclBufferCount = 4 }
      let near = world.addStarted(TestHost()), far = world.addStarted(TestHost())
      try world.advertise(server)
      for central in [near, far] {
        let link = try need(world.connect(central, to: server))
        same(world.subscribe(central, link, peripheral.notifying), .done)
      }
      let links = world.readHost(server) { $0.core.subscribers(of: peripheral.notifying) }
      if isSilent { world.separate(server, far) }
      var next = [0, 0]
      // Less than the supervision time-out of 5 s.
      for _ in 0..<400 {
        for i in 0..<2 { next[i] = Self.pour(&world, server, links[i], peripheral.notifying, from: next[i], to: .max) }
        world.run(for: .milliseconds(10))
      }
      same(world.readHost(server) { $0.links.count }, 2)
      if isSilent {
        same(world.readHost(far) { $0.values.count < 50 }, true)
        world.run(for: .seconds(2))
        same(world.readHost(server) { $0.downs.map(\.reason) }, [.connectionTimeout])
        same(world.readHost(server) { $0.full }, [])
      }
      return world.readHost(near) { $0.values.count }
    }
    let alone = try received(isSilent: true), beside = try received(isSilent: false)
    #expect(Double(alone) > 0.95 * Double(beside), "\(alone) values beside a silent peer, \(beside) beside another")
  }

  @Test(arguments: 1...40) func cancelAtAnyMoment(_ seed: Int) throws {
    var chance = SplitMix64(seed: UInt64(seed))
    var world = World<TestHost>(seed: UInt64(seed))
    let server = world.addStarted(TestHost(try Peripheral().database)), client = world.addStarted(TestHost())
    try world.advertise(server)
    let peer = PeerAddress(address(server + 1), .public)
    for _ in 0..<5 {
      let id = world.withHost(client) { host, now in
        let id = host.newID()
        host.core.connect(to: peer, .fast, id: id, now: now)
        return id
      }
      world.run(for: .microseconds(Int.random(in: 0...250_000, using: &chance)))
      world.withHost(client) { host, now in
        host.core.cancel(id, now: now)
        host.drain()
      }
      let ending = try need(world.readHost(client) { $0.ending(id) })
      if case .linked(let link) = ending {
        // It may be down already, if it failed to be established (0x3E).
        _ = world.ask(client) { core, id, now in core.disconnect(link, id: id, now: now) }
      } else {
        #expect(ending == .failed("cancelled"))
      }
      world.run(for: .seconds(6))
      for host in [client, server] {
        same(world.readHost(host) { $0.links }, [])
        same(world.air.linkCount(of: world.controller(of: host)), 0)
      }
      same(world.readHost(client) { $0.completions[id]?.count }, 1)
      same(world.readHost(server) { $0.isAdvertising }, true)
    }
    same(world.readHost(client) { $0.overfinished }, [])
  }

  @Test func advertisingWaitsForALinkToEnd() throws {
    var world = World<TestHost>(seed: 1)
    let server = world.addStarted(TestHost(try Peripheral().database)) { $0.maximumConnections = 1 }
    let first = world.addStarted(TestHost()), second = world.addStarted(TestHost())
    try world.advertise(server)
    let link = try need(world.connect(first, to: server))
    let waiting = world.withHost(second) { host, now in
      let id = host.newID()
      host.core.connect(to: PeerAddress(address(server + 1), .public), .fast, id: id, now: now)
      return id
    }
    world.run(for: .seconds(5))
    same(world.readHost(second) { $0.ending(waiting) }, nil)
    same(world.ask(first) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
    world.run(for: .seconds(5))
    same(world.readHost(second) { $0.ending(waiting)?.isSuccess }, true)
    same(world.readHost(server) { $0.links.count }, 1)
  }
}

/// Failures between hosts, and their consequences.
@Suite("Accidents") struct AccidentTests {
  @Test func aLinkIsLostInMidDiscoveryAndMadeAgain() throws {
    let peripheral = try Peripheral()
    var world = World<TestHost>(seed: 2)
    let server = world.addStarted(TestHost(peripheral.database)), client = world.addStarted(TestHost())
    try world.advertise(server)
    let link = try need(world.connect(client, to: server))
    let ids = world.withHost(client) { host, _ in
      let ids = (0..<3).map { _ in host.newID() }
      host.core.withClient(of: link, id: ids[0]) { $0.discoverAll(ids[0]) }
      host.core.withClient(of: link, id: ids[1]) { $0.readLong(ids[1], peripheral.long) }
      host.core.withClient(of: link, id: ids[2]) { $0.write(ids[2], peripheral.writable, [1].span) }
      return ids
    }
    world.run(for: .milliseconds(40))
    world.separate(server, client)
    world.run(for: .seconds(6))
    for id in ids {
      same(
        world.readHost(client) { $0.completions[id] }, [.failed("bearerClosed(BindruneATT.BearerClosure.disconnected)")]
      )
    }
    for host in [client, server] {
      same(world.readHost(host) { $0.downs.map(\.reason) }, [.connectionTimeout])
      same(world.readHost(host) { $0.links }, [])
    }
    world.reunite(server, client)
    let again = try need(world.connect(client, to: server))
    #expect(again != link)
    same(world.ask(client) { core, id, _ in core.withClient(of: again, id: id) { $0.discoverAll(id) } }, .done)
    same(world.readHost(client) { $0.core.remoteDatabase(of: again)?.characteristic("2A37") != nil }, true)
    same(world.readHost(client) { $0.core.remoteDatabase(of: link) == nil }, true)
  }

  @Test func aControllerIsReplaced() throws {
    let peripheral = try Peripheral()
    var world = World<TestHost>(seed: 4)
    let server = world.addStarted(TestHost(peripheral.database)), client = world.addStarted(TestHost())
    try world.advertise(server)
    let link = try need(world.connect(client, to: server))
    same(world.subscribe(client, link, peripheral.notifying), .done)
    let pending = world.withHost(client) { host, _ in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { $0.readLong(id, peripheral.long) }
      return id
    }
    world.replaceController(of: client, ControllerConfiguration(address: address(client + 1)))
    world.withHost(client) { host, now in
      host.core.start(now: now)
      host.drain()
    }
    same(world.readHost(client) { $0.completions[pending]?.count }, 1)
    same(world.readHost(client) { $0.downs.map(\.reason) }, [.hardwareFailure])
    world.run(for: .seconds(6))
    same(world.readHost(server) { $0.downs.map(\.reason) }, [.connectionTimeout])
    // The server reports to its application that there is no subscriber left.
    same(world.readHost(server) { $0.subscriptions.map { $0.2 } }, [.notification, []])
    let again = try need(world.connect(client, to: server))
    same(world.read(client, again, peripheral.long), .value(Peripheral.longValue))
  }

  // MARK: Values that the application keeps

  private struct Asked: ~Copyable {
    var world: World<TestHost>
    let peripheral: Peripheral, server: Int, client: Int, link: LinkID
    init(_ world: consuming World<TestHost>, _ peripheral: Peripheral, _ server: Int, _ client: Int, _ link: LinkID) {
      self.world = world
      self.peripheral = peripheral
      self.server = server
      self.client = client
      self.link = link
    }
    static func make() throws -> Asked {
      let peripheral = try Peripheral()
      var world = World<TestHost>(seed: 9)
      let server = world.addStarted(TestHost(peripheral.database)), client = world.addStarted(TestHost())
      try world.advertise(server)
      let link = try need(world.connect(client, to: server))
      return Asked(world, peripheral, server, client, link)
    }
    /// Reads the dynamic value until the server's application has the request.
    mutating func read() throws -> (request: RequestID, question: ServerRequestID) {
      let handle = peripheral.dynamic, link = link, server = server
      let id = world.withHost(client) { host, _ in
        let id = host.newID()
        host.core.withClient(of: link, id: id) { $0.read(id, handle) }
        return id
      }
      world.run(for: .seconds(2)) { world in world.readHost(server) { $0.questions.isEmpty } }
      return (id, try need(world.readHost(server) { $0.questions.first?.id }))
    }
    mutating func answer(_ question: ServerRequestID, _ value: [UInt8]) {
      world.withHost(server) { host, now in
        if host.questions.contains(where: { $0.id == question }) {
          host.answer(question, value, now: now)
        } else {
          host.core.answerRead(question, value, now: now)
        }
        host.drain()
      }
    }
    func ending(_ id: RequestID) -> [TestHost.Ending]? { world.readHost(client) { $0.completions[id] } }
  }

  @Test func answeredLate() throws {
    var asked = try Asked.make()
    let (request, question) = try asked.read()
    asked.world.run(for: .seconds(20))
    same(asked.ending(request), nil)
    asked.answer(question, [1, 2, 3])
    asked.world.run(for: .seconds(1))
    same(asked.ending(request), [.value([1, 2, 3])])
  }
  @Test func answeredTwice() throws {
    var asked = try Asked.make()
    let (request, question) = try asked.read()
    asked.answer(question, [1])
    asked.answer(question, [2])
    asked.world.run(for: .seconds(1))
    same(asked.ending(request), [.value([1])])
    let again = try asked.read()
    asked.answer(question, [3])
    asked.answer(again.question, [4])
    asked.world.run(for: .seconds(1))
    same(asked.ending(again.request), [.value([4])])
    same(asked.world.readHost(asked.server) { $0.violations }, [])
  }
  /// The bearer answers 0x0E (Unlikely Error) for the application, before the client's 30 s are over.
  @Test func neverAnswered() throws {
    var asked = try Asked.make()
    let (request, question) = try asked.read()
    asked.world.run(for: .seconds(26))
    let ending = try need(asked.ending(request)?.first)
    guard case .failed(let error) = ending else {
      Issue.record("\(ending)")
      return
    }
    #expect(error.contains("\(ATTError.unlikelyError)"))
    same(asked.world.readHost(asked.server) { $0.questions.count }, 0)
    same(asked.world.readHost(asked.server) { $0.violations.map { $0.hasPrefix("applicationTooSlow") } }, [true])
    asked.answer(question, [1])
    asked.world.run(for: .seconds(1))
    same(asked.ending(request)?.count, 1)
    // The link continues.
    same(asked.world.read(asked.client, asked.link, asked.peripheral.short), .value([2]))
  }
  @Test func answeredAfterTheLink() throws {
    var asked = try Asked.make()
    let (request, question) = try asked.read()
    let link = asked.link
    same(asked.world.ask(asked.client) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
    asked.world.run(for: .seconds(1))
    same(asked.world.readHost(asked.server) { $0.questions.count }, 0)
    asked.answer(question, [1])
    same(asked.ending(request), [.failed("bearerClosed(BindruneATT.BearerClosure.disconnected)")])
    same(asked.world.readHost(asked.server) { $0.violations }, [])
  }
}

/// `#require` cannot look into a world, which is not copyable.
func need<Value>(_ value: Value?, sourceLocation: SourceLocation = #_sourceLocation) throws -> Value {
  try #require(value, sourceLocation: sourceLocation)
}

extension World where BluetoothHost == TestHost {
  /// Discovers, and subscribes to a characteristic.
  mutating func subscribe(_ host: Int, _ link: LinkID, _ handle: AttributeHandle) -> TestHost.Ending? {
    let found = ask(host) { core, id, _ in core.withClient(of: link, id: id) { $0.discoverAll(id) } }
    guard found == .done else { return found }
    return ask(host) { core, id, _ in core.withClient(of: link, id: id) { $0.subscribe(id, handle) } }
  }
}
