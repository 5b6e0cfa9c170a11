import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// A peripheral with one value of each kind: to read, a long one, to write, to notify, to indicate.
struct Peripheral {
  let database: Database
  let short: AttributeHandle, long: AttributeHandle, writable: AttributeHandle
  let notifying: AttributeHandle, indicating: AttributeHandle, dynamic: AttributeHandle
  static let longValue = (0..<512).map { UInt8(truncatingIfNeeded: $0 &* 7) }

  init() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "scenario")
    (short, long, writable, notifying, indicating, dynamic) = builder.service("A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00") {
      (
        $0.characteristic("2A38", .read, value: [2]).value,
        $0.characteristic("A0B10006-1D1D-4BBD-8E5C-6F0E5F1A0C00", [.read, .write], value: .stored(Self.longValue))
          .value,
        $0.characteristic("2A39", [.read, .write, .writeWithoutResponse]).value,
        $0.characteristic("2A37", .notify).value,
        $0.characteristic("2A05", .indicate).value,
        $0.characteristic("2A9F", [.read, .write], value: .dynamic).value
      )
    }
    database = try builder.build()
  }
}

extension World where BluetoothHost == TestHost {
  /// Adds a host with its controller, started.
  mutating func addStarted(
    _ host: consuming TestHost, _ configure: (inout ControllerConfiguration) -> Void = { _ in }
  ) -> Int {
    var configuration = ControllerConfiguration(address: address(hostCount + 1))
    configure(&configuration)
    let index = add(host, configuration)
    withHost(index) { host, now in
      host.core.start(now: now)
      host.drain()
    }
    run(for: .seconds(5)) { world in world.readHost(index) { !$0.isStarted && $0.startFailure == nil } }
    return index
  }
  /// Starts a request on `link` and runs until its completion.
  mutating func ask(
    _ host: Int, for limit: Duration = .seconds(60), _ start: (inout HostCore, RequestID, Instant) -> Void
  ) -> TestHost.Ending? {
    let id = withHost(host) { host, now in
      let id = host.newID()
      start(&host.core, id, now)
      host.drain()
      return id
    }
    run(for: limit) { world in world.readHost(host) { $0.ending(id) == nil } }
    return readHost(host) { $0.ending(id) }
  }
  mutating func advertise(_ host: Int, name: String = "scenario") throws {
    try withHost(host) { host, now throws(AdvertisingError) in
      _ = try host.core.advertise(AdvertisingData(localName: name, serviceUUIDs: ["180D"]), now: now)
    }
    run(for: .seconds(1)) { world in world.readHost(host) { !$0.isAdvertising } }
  }
  mutating func connect(_ central: Int, to peripheral: Int) -> LinkID? {
    let peer = PeerAddress(address(peripheral + 1), .public)
    let ending = ask(central) { core, id, now in core.connect(to: peer, .fast, id: id, now: now) }
    guard case .linked(let link)? = ending else { return nil }
    return link
  }
}

@Suite("Scenarios") struct ScenarioTests {
  /// All layers, on all kinds of air and controllers.
  @Test(arguments: 1...40) func twoHostsWalkThroughEveryLayer(_ seed: Int) throws {
    var generator = SplitMix64(seed: UInt64(seed))
    var air = AirConfiguration.realistic
    air.loss = [0, 0, 0.05, 0.3][Int.random(in: 0...3, using: &generator)]
    var world = World<TestHost>(seed: UInt64(seed), configuration: air)
    let shape = { (configuration: inout ControllerConfiguration) in
      configuration.aclDataLength = [27, 28, 64, 192, 251][Int.random(in: 0...4, using: &generator)]
      configuration.aclBufferCount = UInt8([1, 2, 3, 8, 20][Int.random(in: 0...4, using: &generator)])
      if Bool.random(using: &generator) { configuration = .legacy(address: configuration.address) }
    }
    let peripheral = try Peripheral()
    let server = world.addStarted(TestHost(peripheral.database), shape)
    let client = world.addStarted(TestHost(), shape)
    same(world.readHost(server) { $0.isStarted }, true)
    same(world.readHost(client) { $0.isStarted }, true)

    try world.advertise(server)
    world.withHost(client) { host, now in host.core.startScan(now: now) }
    world.run(for: .seconds(20)) { world in
      world.readHost(client) { host in !host.advertisements.contains { $0.data.localName != nil } }
    }
    let heard = world.readHost(client) { $0.advertisements }
    #expect(heard.contains { $0.data.serviceUUIDs == ["180D"] && $0.peer.address == address(server + 1) })
    world.withHost(client) { host, now in host.core.stopScan(now: now) }

    // On bad air a link may fail within its first six events (0x3E, Vol 6, Part B, §4.5.2): then it is made again.
    var attempts = 0, found: TestHost.Ending?, link = LinkID(rawValue: 0)
    while found != .done && attempts < 10 {
      attempts += 1
      guard let up = world.connect(client, to: server) else { continue }
      link = up
      found = world.ask(client) { core, id, _ in core.withClient(of: up, id: id) { $0.discoverAll(id) } }
    }
    same(found, .done)
    let early = world.readHost(client) { $0.downs.map(\.reason) }
    #expect(early.allSatisfy { $0 == .connectionFailedToBeEstablished })
    #expect(early.isEmpty || air.loss > 0.2)
    same(world.readHost(client) { $0.core.mtu(of: link) }, 517)
    let remote = try #require(world.readHost(client) { $0.core.remoteDatabase(of: link) })
    #expect(remote.services.map(\.uuid) == ["1800", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
    #expect(remote.characteristic("2A37")?.valueHandle == peripheral.notifying)

    same(world.read(client, link, peripheral.short), .value([2]))
    same(world.read(client, link, peripheral.long), .value(Peripheral.longValue))
    same(world.write(client, link, peripheral.writable, [1, 2, 3]), .done)
    same(world.read(client, link, peripheral.writable), .value([1, 2, 3]))
    let reversed = Array(Peripheral.longValue.reversed())
    same(world.write(client, link, peripheral.long, reversed), .done)
    same(world.read(client, link, peripheral.long), .value(reversed))
    // The database has no such handle.
    let refusal = world.read(client, link, AttributeHandle(rawValue: 0x7000))
    guard case .failed(let error)? = refusal else {
      Issue.record("a read of no attribute: \(refusal as Any)")
      return
    }
    #expect(error.contains("\(ATTError.invalidHandle)"))

    same(
      world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.subscribe(id, peripheral.notifying) } },
      .done)
    let up = try #require(world.readHost(server) { $0.links.first })
    for count in 0..<10 {
      let answer = world.withHost(server) { host, _ in
        host.core.notify([UInt8(count)].span, of: peripheral.notifying, on: up)
      }
      #expect(answer == .queued)
    }
    world.run(for: .seconds(30)) { world in world.readHost(client) { $0.values.count < 10 } }
    same(world.readHost(client) { $0.values.map(\.value) }, (0..<10).map { [UInt8($0)] })

    same(world.ask(client) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
    world.run(for: .seconds(10)) { world in world.readHost(server) { !$0.links.isEmpty } }
    same(world.readHost(client) { $0.downs.last?.reason }, .connectionTerminatedByLocalHost)
    same(world.readHost(server) { $0.downs.last?.reason }, .remoteUserTerminatedConnection)
    same(world.readHost(client) { $0.violations }, [])
    same(world.readHost(server) { $0.violations }, [])
  }
}

/// `#expect` cannot look into a world, which is not copyable.
func same<Value: Equatable>(
  _ found: Value, _ expected: Value, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation
) {
  #expect(found == expected, comment, sourceLocation: sourceLocation)
}

extension World where BluetoothHost == TestHost {
  mutating func read(_ host: Int, _ link: LinkID, _ handle: AttributeHandle) -> TestHost.Ending? {
    ask(host) { core, id, _ in core.withClient(of: link, id: id) { $0.readLong(id, handle) } }
  }
  mutating func write(_ host: Int, _ link: LinkID, _ handle: AttributeHandle, _ value: [UInt8]) -> TestHost.Ending? {
    ask(host) { core, id, _ in core.withClient(of: link, id: id) { $0.write(id, handle, value.span) } }
  }
}
