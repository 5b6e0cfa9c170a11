import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// A device keeps its identity across address changes once its IRK is known. Vol 3, Part C, §10.7; Vol 6, Part B, §6.
@Suite("Scenarios: privacy") struct PrivacyScenarioTests {
  private static let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
  private static let centralIRK = IdentityResolvingKey(0x2b7e1516_28aed2a6_abf71588_09cf4f3c)
  private static let data = AdvertisingData(localName: "private", serviceUUIDs: ["180D"])
  private static let every = Duration.seconds(1)

  /// The privacy support of the scanner's controller.
  enum Controller: CaseIterable, Sendable {
    /// A resolving list with room; a list of one entry, which is taken; none; Bluetooth 4.2 and none.
    case list, fullList, noList, legacy
    var resolves: Bool { self == .list }
  }

  /// An advertiser (0) and a scanner (1).
  private static func world(
    _ controller: Controller, seed: UInt64 = 1, air: AirConfiguration = .realistic,
    _ policies: (AddressPolicy, AddressPolicy) = (.resolvable(irk, rotation: every), .identity), random: Bool = false
  ) -> World<TestHost> {
    var world = World<TestHost>(seed: seed, configuration: air)
    for (index, policy) in [policies.0, policies.1].enumerated() {
      let host = TestHost(seed: seed &* 2 &+ UInt64(index)) {
        $0.addressPolicy = policy
        $0.randomStaticAddress = DeviceAddress(0xC000_5E00_5300 + UInt64(index))
      }
      _ = world.addStarted(host) {
        switch controller {
        case .list: break
        case .fullList: $0.resolvingListSize = 1
        case .noList: $0.features.remove(.llPrivacy)
        case .legacy: $0 = .legacy(address: $0.address)
        }
        if random { $0.address = DeviceAddress() }
      }
    }
    return world
  }
  private static func know(
    _ world: inout World<TestHost>, _ controller: Controller, host: Int = 1, _ irk: IdentityResolvingKey = irk
  ) throws {
    let other = world.readHost(1 - host) { $0.core.identityAddress }
    try world.withHost(host) { host, now throws(IdentityError) in
      if controller == .fullList {
        let stranger = PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)
        try host.core.addPeerIdentity(stranger, IdentityResolvingKey(7), now: now)
      }
      try host.core.addPeerIdentity(other, irk, now: now)
      host.drain()
    }
    world.run(for: .milliseconds(50))
  }
  private static func advertise(
    _ world: inout World<TestHost>, _ kind: AdvertisingParameters.Kind = .connectable
  ) throws {
    let parameters = AdvertisingParameters(kind: kind, interval: .every(.milliseconds(50)))
    try world.withHost(0) { host, now throws(AdvertisingError) in
      try host.core.advertise(data, parameters, now: now)
      host.drain()
    }
    world.run(for: .milliseconds(100))
  }
  private static func scan(_ world: inout World<TestHost>) {
    world.withHost(1) { host, now in
      host.core.startScan(ScanParameters(isActive: false), now: now)
      host.drain()
    }
  }
  /// The advertiser's addresses, sampled ten times a second.
  private static func addresses(_ world: inout World<TestHost>, for seconds: Int) -> [PeerAddress] {
    var found: [PeerAddress] = []
    for _ in 0..<10 * seconds {
      world.run(for: .milliseconds(100))
      let address = world.readHost(0) { $0.core.ownAddress }
      if found.last != address { found.append(address) }
    }
    return found
  }
  private static func connect(_ world: inout World<TestHost>, for limit: Duration = .seconds(30)) -> LinkID? {
    let peer = world.readHost(0) { $0.core.identityAddress }
    let ending = world.ask(1, for: limit) { core, id, now in core.connect(to: peer, .fast, id: id, now: now) }
    if case .linked(let link)? = ending { return link }
    Issue.record("\(String(describing: ending))")
    return nil
  }
  private static func violations(_ world: borrowing World<TestHost>) {
    for host in 0...1 { same(world.readHost(host) { $0.violations }, []) }
  }

  /// Through ten rotations it remains one device; a link to it survives rotations, and a second connection succeeds.
  @Test(arguments: Controller.allCases, [false, true])
  func oneDeviceOverRotations(controller: Controller, random: Bool) throws {
    var world = Self.world(controller, random: random)
    let identity = world.readHost(0) { $0.core.identityAddress }
    #expect(identity.isRandom == random)
    try Self.know(&world, controller)
    try Self.advertise(&world)
    Self.scan(&world)
    let own = Self.addresses(&world, for: 11)
    #expect(
      own.count >= 10 && Set(own).count == own.count && own.allSatisfy { $0.address.randomKind == .resolvablePrivate })
    let heard = world.readHost(1) { $0.advertisements }
    #expect(!heard.isEmpty && heard.allSatisfy { $0.peer == identity })

    for _ in 0..<2 {
      let link = try need(Self.connect(&world))
      same(world.readHost(1) { $0.ups.last?.peer }, Optional(PeerID(identity)))
      let onAir = world.readHost(1) { $0.core.addressesOnAir(of: link)?.peer }
      #expect(onAir?.address.randomKind == .resolvablePrivate)
      // The link stays, and the advertiser still resumes advertising.
      _ = Self.addresses(&world, for: 3)
      same(world.readHost(1) { $0.links }, [link])
      same(world.ask(1) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
      _ = Self.addresses(&world, for: 2)
    }
    Self.violations(world)
  }

  /// Each address is used in one period, and not again after the next one.
  @Test(arguments: [Controller.noList, .legacy]) func addressesAreNotMixed(controller: Controller) throws {
    var world = Self.world(controller)
    try Self.advertise(&world)
    world.air.startRecording()
    Self.scan(&world)
    let own = Self.addresses(&world, for: 11)
    let scanner = world.controller(of: 1)
    var heard: [DeviceAddress] = []
    for record in world.air.takeRecords() where record.controller == scanner && record.isToHost {
      guard let event = try? HCIEvent(record.bytes.span) else { continue }
      switch event {
      case .leAdvertisingReport(let event):
        var cursor = event.reports.cursor
        while let report = cursor.next(in: record.bytes.span) { heard.append(report.address) }
      case .leExtendedAdvertisingReport(let event):
        var cursor = event.reports.cursor
        while let report = cursor.next(in: record.bytes.span) { heard.append(report.address) }
      default: break
      }
    }
    #expect(heard.count > 100)
    let changes = zip(heard, heard.dropFirst()).count { $0 != $1 }
    #expect(Set(heard).count == changes + 1 && changes >= 9)
    #expect(Set(heard).isSubset(of: own.map(\.address)))
  }

  /// Without its key it is another device each time.
  @Test(arguments: Controller.allCases) func withoutTheKeyItIsManyDevices(controller: Controller) throws {
    var world = Self.world(controller)
    try Self.advertise(&world)
    Self.scan(&world)
    let own = Self.addresses(&world, for: 11)
    let peers = Set(world.readHost(1) { $0.advertisements }.map(\.peer))
    #expect(peers.count >= 10 && peers.isSubset(of: own))
  }

  /// The request precedes the device, and waits over rotations of both addresses, on bad air.
  @Test(arguments: Controller.allCases, 1...5) func aRequestedPeerIsFound(controller: Controller, seed: UInt64) throws {
    var air = AirConfiguration.realistic
    air.loss = 0.1
    var world = Self.world(
      controller, seed: seed, air: air,
      (.resolvable(Self.irk, rotation: .seconds(3)), .resolvable(Self.centralIRK, rotation: .seconds(4))))
    try Self.know(&world, controller)
    try Self.know(&world, .noList, host: 0, Self.centralIRK)
    let peripheral = world.readHost(0) { $0.core.identityAddress },
      central = world.readHost(1) { $0.core.identityAddress }
    func ask() -> RequestID {
      world.withHost(1) { host, now in
        let id = host.newID()
        host.core.connect(to: peripheral, .fast, id: id, now: now)
        host.drain()
        return id
      }
    }
    var id = ask()
    world.run(for: .seconds(10))
    same(world.readHost(1) { $0.ending(id) }, nil)
    try Self.advertise(&world)
    // A CONNECT_IND that is lost is a link for the central alone, and ends with 0x3E.
    for _ in 0..<5 {
      world.run(for: .seconds(60)) { world in world.readHost(1) { $0.ending(id) == nil } }
      #expect(world.readHost(1) { $0.ending(id)?.isSuccess } == true)
      world.run(for: .milliseconds(200))
      if !world.readHost(1, { $0.links.isEmpty }) { break }
      same(world.readHost(1) { $0.downs.last?.reason }, Optional(.connectionFailedToBeEstablished))
      id = ask()
    }
    same(world.readHost(1) { Set($0.ups.map(\.peer)) }, [PeerID(peripheral)])
    same(world.readHost(0) { $0.ups.map(\.peer) }, [PeerID(central)])
    same(world.readHost(1) { $0.overfinished }, [])
  }

  /// A beacon that cannot be recognised; it is not connectable, and cannot connect.
  @Test func aBeaconIsAnonymous() throws {
    var world = Self.world(.list, (.nonResolvable(rotation: Self.every), .identity))
    try Self.advertise(&world, .connectable)
    same(world.readHost(0) { $0.violations }, ["advertising: \(HCIStatus.commandDisallowed)"])
    let peer = world.readHost(1) { $0.core.ownAddress }
    let ending = world.ask(0) { core, id, now in core.connect(to: peer, id: id, now: now) }
    #expect(ending.map(\.isSuccess) == false)
    try Self.advertise(&world, .nonconnectable)
    Self.scan(&world)
    let own = Self.addresses(&world, for: 5)
    #expect(
      own.count >= 5 && own.allSatisfy { $0.address.randomKind == .nonResolvablePrivate && $0.address.isValidRandom })
    let peers = Set(world.readHost(1) { $0.advertisements }.map(\.peer))
    #expect(peers.count >= 5 && peers.isSubset(of: own))
  }

  /// Keys are added and removed while all roles are active.
  @Test(arguments: Controller.allCases) func aKeyIsRemoved(controller: Controller) throws {
    var world = Self.world(controller)
    let identity = world.readHost(0) { $0.core.identityAddress }
    try Self.advertise(&world)
    Self.scan(&world)
    world.run(for: .seconds(2))
    #expect(!world.readHost(1) { $0.advertisements }.contains { $0.peer == identity })
    try Self.know(&world, controller)
    world.run(for: .seconds(2))
    #expect(world.readHost(1) { $0.advertisements }.contains { $0.peer == identity })
    world.withHost(1) { host, now in
      host.core.removePeerIdentity(identity, now: now)
      host.drain()
    }
    world.run(for: .milliseconds(100))
    let before = world.readHost(1) { $0.advertisements.count }
    world.run(for: .seconds(3))
    let later = world.readHost(1) { Array($0.advertisements[before...]) }
    #expect(!later.isEmpty && !later.contains { $0.peer == identity })
    Self.violations(world)
  }
}
