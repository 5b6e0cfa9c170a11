import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// Several sets at once, and changes while they are on the air.
@Suite("Scenarios: advertising sets") struct AdvertisingSetScenarioTests {
  private static let often = AdvertisingParameters.Interval.every(.milliseconds(20))
  private static func id(_ number: UInt32) -> AdvertisingSetID { AdvertisingSetID(rawValue: number) }
  private static func random(_ number: UInt64) -> DeviceAddress { DeviceAddress(0xC000_5E00_5300 + number) }
  /// 1,000 octets.
  private static var long: AdvertisingData {
    var data = AdvertisingData(flags: nil)
    data.serviceData = (0..<5).map { number in
      .init(uuid: .short(0x1800 + UInt16(number)), data: (0..<196).map { UInt8(truncatingIfNeeded: $0 * (number + 3)) })
    }
    return data
  }

  private static func advertise(
    _ world: inout World<TestHost>, _ data: AdvertisingData, _ parameters: AdvertisingParameters, as number: UInt32
  ) throws {
    try world.withHost(0) { host, now throws(AdvertisingError) in
      try host.core.advertise(data, parameters, as: id(number), now: now)
      host.drain()
    }
  }
  private static func scan(_ world: inout World<TestHost>, _ host: Int, isActive: Bool = true, for duration: Duration) {
    world.withHost(host) { host, now in
      host.core.startScan(ScanParameters(isActive: isActive), now: now)
      host.drain()
    }
    world.run(for: duration)
  }
  private static func reported(_ world: borrowing World<TestHost>, _ number: UInt32) -> [TestHost.AdvertisingWord] {
    world.readHost(0) { $0.advertisingReports[id(number)] ?? [] }
  }
  private static func names(_ heard: some Sequence<TestHost.Heard>) -> Set<String> {
    Set(heard.compactMap(\.data.localName))
  }

  @Test(arguments: [false, true]) func threeAtOnce(scannerIsExtended: Bool) throws {
    var world = World<TestHost>(seed: 1, configuration: .realistic)
    _ = world.addStarted(TestHost())
    _ = world.addStarted(TestHost()) { if !scannerIsExtended { $0 = .legacy(address: $0.address) } }
    try Self.advertise(
      &world, AdvertisingData(localName: "one", serviceUUIDs: ["180D"]), AdvertisingParameters(interval: Self.often),
      as: 1)
    try Self.advertise(
      &world, AdvertisingData(localName: "two"),
      AdvertisingParameters(kind: .scannable, interval: Self.often, address: Self.random(2)), as: 2)
    try Self.advertise(
      &world, Self.long,
      AdvertisingParameters(kind: .nonconnectable, interval: Self.often, address: Self.random(3)), as: 3)
    Self.scan(&world, 1, for: .seconds(2))
    let heard = world.readHost(1) { $0.advertisements }
    let first = heard.filter { $0.peer == PeerAddress(address(1), .public) }
    let second = heard.filter { $0.peer == PeerAddress(Self.random(2), .random) }
    let third = heard.filter { $0.peer == PeerAddress(Self.random(3), .random) && !$0.isTruncated }
    #expect(first.count > 50 && first.allSatisfy { $0.data.serviceUUIDs == ["180D"] })
    #expect(Self.names(first) == ["one"] && Self.names(second) == ["two"] && second.count > 50)
    if scannerIsExtended { #expect(third.count > 30) }
    #expect(third.isEmpty == !scannerIsExtended && third.allSatisfy { $0.data == Self.long && !$0.isLegacy })
    #expect(heard.allSatisfy { $0.peer.address != Self.random(4) })
    // One is stopped, the others continue.
    world.withHost(0) { host, now in
      host.core.stopAdvertising(Self.id(2), now: now)
      host.drain()
    }
    world.run(for: .milliseconds(200))
    let before = world.readHost(1) { $0.advertisements.count }
    world.run(for: .seconds(1))
    let after = world.readHost(1) { Array($0.advertisements[before...]) }
    #expect(!after.contains { $0.peer.address == Self.random(2) } && after.contains { $0.peer.address == address(1) })
    for number in 1...3 as ClosedRange<UInt32> {
      same(Self.reported(world, number), number == 2 ? [.started, .stopped(.stopped)] : [.started])
    }
    same(world.readHost(0) { $0.violations }, [])
  }

  /// Exactly every 20 ms, with any data: advertising that was off and on again would have restarted the interval.
  @Test(arguments: [false, true]) func dataChangeWithoutAPause(isExtended: Bool) throws {
    var world = World<TestHost>(seed: 1, configuration: .ideal)
    _ = world.addStarted(TestHost()) { if !isExtended { $0 = .legacy(address: $0.address) } }
    _ = world.addStarted(TestHost())
    Self.scan(&world, 1, isActive: false, for: .milliseconds(10))
    let parameters = AdvertisingParameters(kind: .nonconnectable, interval: Self.often)
    try Self.advertise(&world, AdvertisingData(localName: "0"), parameters, as: 0)
    for number in 1...5 {
      world.run(for: .milliseconds(207))
      let data = AdvertisingData(localName: "\(number)")
      if number % 2 == 0 {
        try Self.advertise(&world, data, parameters, as: 0)
      } else {
        try world.withHost(0) { host, now throws(AdvertisingError) in
          try host.core.setAdvertisingData(data, now: now)
          host.drain()
        }
      }
    }
    world.run(for: .milliseconds(207))
    let heard = world.readHost(1) { $0.advertisements }
    #expect(heard.compactMap(\.data.localName) == heard.compactMap(\.data.localName).sorted())
    #expect(Self.names(heard) == ["0", "1", "2", "3", "4", "5"] && heard.count > 55)
    let steps = zip(heard, heard.dropFirst()).map { $1.at - $0.at }
    #expect(steps.allSatisfy { $0 == .milliseconds(20) }, "\(steps)")
    same(Self.reported(world, 0), [TestHost.AdvertisingWord](repeating: .started, count: 6))
  }
  /// In pieces: off, set, on again. The host reports no end.
  @Test func longDataChange() throws {
    var world = World<TestHost>(seed: 1, configuration: .realistic)
    for _ in 0...1 { _ = world.addStarted(TestHost()) }
    Self.scan(&world, 1, for: .milliseconds(10))
    let parameters = AdvertisingParameters(kind: .nonconnectable, interval: Self.often)
    var other = Self.long
    other.serviceData.reverse()
    for data in [Self.long, other, Self.long] {
      try Self.advertise(&world, data, parameters, as: 0)
      world.run(for: .milliseconds(200))
      let before = world.readHost(1) { $0.advertisements.count }
      world.run(for: .milliseconds(500))
      let heard = world.readHost(1) { $0.advertisements[before...].filter { !$0.isTruncated } }
      #expect(heard.count > 5 && heard.allSatisfy { $0.data == data })
    }
    same(Self.reported(world, 0), [.started, .started, .started])
  }

  /// A connection ends one set, and not the others.
  @Test func aConnectionEndsOneOfThem() throws {
    var world = World<TestHost>(seed: 1, configuration: .realistic)
    for _ in 0...3 { _ = world.addStarted(TestHost()) }
    for (number, restarts) in [(1, true), (2, false), (3, true)] as [(UInt32, Bool)] {
      try Self.advertise(
        &world, AdvertisingData(localName: "set \(number)"),
        AdvertisingParameters(
          interval: Self.often, restartsAfterConnection: restarts, address: Self.random(UInt64(number))), as: number)
    }
    for (central, number) in [(1, 1), (2, 2)] as [(Int, UInt64)] {
      let ending = world.ask(central) { core, id, now in
        core.connect(to: PeerAddress(Self.random(number), .random), .fast, id: id, now: now)
      }
      #expect(ending?.isSuccess == true)
      world.run(for: .milliseconds(100))
    }
    same(Self.reported(world, 1), [.started, .started])
    same(Self.reported(world, 2), [.started, .stopped(.connected)])
    same(Self.reported(world, 3), [.started])
    same(world.readHost(0) { $0.advertisingSets }, [Self.id(1), Self.id(3)])
    Self.scan(&world, 3, for: .seconds(1))
    #expect(Self.names(world.readHost(3) { $0.advertisements }) == ["set 1", "set 3"])
    same(world.readHost(0) { $0.violations }, [])
  }

  @Test func eachHasATimeOfItsOwn() throws {
    var world = World<TestHost>(seed: 1, configuration: .ideal)
    _ = world.addStarted(TestHost())
    var parameters = AdvertisingParameters(kind: .nonconnectable, interval: Self.often)
    let data = AdvertisingData(localName: "x")
    try Self.advertise(&world, data, parameters, as: 4)
    parameters.maximumEvents = 5
    try Self.advertise(&world, data, parameters, as: 3)
    parameters.maximumEvents = nil
    for number in 1...2 as ClosedRange<UInt32> {
      parameters.duration = .milliseconds(300 * Int64(number))
      try Self.advertise(&world, data, parameters, as: number)
    }
    var left: [Set<UInt32>] = []
    for pause in [60, 220, 250, 250] {
      world.run(for: .milliseconds(pause))
      left.append(Set(world.readHost(0) { $0.advertisingSets.map(\.rawValue) }))
    }
    #expect(left == [[1, 2, 3, 4], [1, 2, 4], [2, 4], [4]], "\(left)")
    same(Self.reported(world, 1), [.started, .stopped(.durationOver)])
    same(Self.reported(world, 2), [.started, .stopped(.durationOver)])
    same(Self.reported(world, 3), [.started, .stopped(.eventsSent)])
    same(Self.reported(world, 4), [.started])
  }

  /// One set more than the controller has.
  @Test(arguments: [false, true]) func tooMany(isExtended: Bool) throws {
    var world = World<TestHost>(seed: 1, configuration: .ideal)
    _ = world.addStarted(TestHost()) {
      if !isExtended { $0 = .legacy(address: $0.address) }
      $0.advertisingSets = 3
    }
    let most: UInt32 = isExtended ? 3 : 1
    let parameters = AdvertisingParameters(kind: .nonconnectable, interval: Self.often)
    for number in 0..<most { try Self.advertise(&world, AdvertisingData(localName: "x"), parameters, as: number) }
    #expect(throws: AdvertisingError.tooManySets(available: Int(most))) {
      try Self.advertise(&world, AdvertisingData(localName: "y"), parameters, as: most)
    }
    world.run(for: .milliseconds(100))
    for number in 0..<most { same(Self.reported(world, number), [.started]) }
    same(Self.reported(world, most), [])
    // A set that is being stopped makes room.
    world.withHost(0) { host, now in host.core.stopAdvertising(now: now) }
    try Self.advertise(&world, AdvertisingData(localName: "y"), parameters, as: most)
    world.run(for: .milliseconds(100))
    same(Self.reported(world, 0), [.started, .stopped(.stopped)])
    same(Self.reported(world, most), [.started])
    same(world.readHost(0) { $0.violations }, [])
  }

  // MARK: Intervals

  @Test("S33: advertising in the background is less frequent", arguments: [false, true])
  func intents(isExtended: Bool) throws {
    // Vol 3, Part C, Appendix A, and up to 10 ms of advDelay: Vol 6, Part B, §4.4.2.2.1.
    for (interval, shortest, longest) in [
      (.fast, 30, 70), (.balanced, 100, 160), (.background, 1000, 1210), (.every(.seconds(3)), 3000, 3010),
    ] as [(AdvertisingParameters.Interval, Int64, Int64)] {
      var air = AirConfiguration.ideal
      air.advertisingDelay = .milliseconds(10)
      var world = World<TestHost>(seed: 1, configuration: air)
      _ = world.addStarted(TestHost()) { if !isExtended { $0 = .legacy(address: $0.address) } }
      _ = world.addStarted(TestHost())
      try Self.advertise(&world, AdvertisingData(localName: "x"), AdvertisingParameters(interval: interval), as: 0)
      Self.scan(&world, 1, isActive: false, for: .seconds(20))
      let times = world.readHost(1) { $0.advertisements.map(\.at) }
      let steps = zip(times, times.dropFirst()).map { $1 - $0 }.filter { $0 > .zero }
      #expect(!steps.isEmpty && steps.min()! >= .milliseconds(shortest), "\(interval)")
      // A scanner that changes its channel misses some.
      #expect(steps.filter { $0 > .milliseconds(longest) }.count * 10 < steps.count, "\(interval)")
    }
  }

  // MARK: Directed advertising

  @Test(arguments: [false, true], [false, true]) func onlyOneMayConnect(isExtended: Bool, isHighDutyCycle: Bool) throws
  {
    var world = World<TestHost>(seed: 1, configuration: .ideal)
    for _ in 0...2 {
      _ = world.addStarted(TestHost()) { if !isExtended { $0 = .legacy(address: $0.address) } }
    }
    let friend = PeerAddress(address(2), .public), own = PeerAddress(address(1), .public)
    let parameters = AdvertisingParameters(
      kind: isHighDutyCycle ? .directedHighDutyCycle(friend) : .directed(friend), interval: Self.often)
    try Self.advertise(&world, AdvertisingData(localName: "not said"), parameters, as: 0)
    let stranger = world.ask(2, for: .milliseconds(500)) { core, id, now in
      core.connect(to: own, .fast, id: id, now: now)
    }
    #expect(stranger == nil)
    let welcome = world.ask(1, for: .milliseconds(500)) { core, id, now in
      core.connect(to: own, .fast, id: id, now: now)
    }
    #expect(welcome?.isSuccess == true)
    world.run(for: .seconds(3))
    // It restarts after the connection; a high duty cycle lasts 1.28 s, and the rest of that after a connection.
    same(
      world.readHost(0) { $0.advertisingReports[.first] ?? [] },
      [.started, .started] + (isHighDutyCycle ? [.stopped(.durationOver)] : []))
    same(world.readHost(0) { $0.violations }, [])
  }

  // MARK: Chance

  /// Random requests for several sets, with connections between them: at the end exactly the requested sets are on the
  /// air, and each request has been answered.
  @Test(arguments: 1...24 as ClosedRange<UInt64>) func manyWishes(seed: UInt64) throws {
    for isExtended in [false, true] {
      var chaos = WishChaos(seed: seed, isExtended: isExtended)
      try chaos.run(steps: 60)
    }
  }
}

/// Random requests, and their expected results.
private struct WishChaos: ~Copyable {
  private var world: World<TestHost>
  private var chance: SplitMix64
  private let capacity: Int
  /// The requested sets: the name that each must advertise.
  private var wanted: [AdvertisingSetID: String] = [:]
  /// Sets whose last request has no outcome yet.
  private var pending: Set<AdvertisingSetID> = []
  private var wordsSeen: [AdvertisingSetID: Int] = [:]
  private var lastName = 0
  private let title: Comment

  init(seed: UInt64, isExtended: Bool) {
    title = "seed \(seed), \(isExtended ? "extended" : "legacy")"
    chance = SplitMix64(seed: seed)
    capacity = isExtended ? 3 : 1
    world = World(seed: seed, configuration: .realistic)
    for index in 0...2 {
      _ = world.addStarted(TestHost()) { controller in
        if !isExtended, index == 0 { controller = .legacy(address: controller.address) }
        controller.advertisingSets = 3
      }
    }
  }

  mutating func run(steps: Int) throws {
    for step in 0..<steps {
      try wish()
      if Int.random(in: 0..<3, using: &chance) == 0 { connect() }
      if Int.random(in: 0..<3, using: &chance) == 0 { disconnect() }
      world.run(for: .milliseconds(Int.random(in: 0...15, using: &chance)))
      takeReports()
      if step % 10 == 9 {
        world.run(for: .milliseconds(300))
        takeReports()
        #expect(pending.isEmpty, title)
      }
    }
    // All sets with a limit have ended.
    for _ in 0..<3 {
      disconnect(all: true)
      world.run(for: .seconds(2))
    }
    takeReports()
    #expect(pending.isEmpty, title)
    same(Set(world.readHost(0) { $0.advertisingSets }), Set(wanted.keys))
    world.withHost(2) { host, now in
      host.core.startScan(now: now)
      host.drain()
    }
    world.run(for: .milliseconds(100))
    let before = world.readHost(2) { $0.advertisements.count }
    world.run(for: .seconds(1))
    let heard = world.readHost(2) { Set($0.advertisements[before...].compactMap(\.data.localName)) }
    #expect(heard == Set(wanted.values), title)
    #expect(world.readHost(0) { $0.violations }.filter { !$0.hasPrefix("parametersRejected") } == [], title)
    let faults = world.air.faults(of: world.controller(of: 0))
    #expect(faults.commandsWithoutCredit + faults.malformedPackets == 0, title)
  }

  private mutating func wish() throws {
    let id = AdvertisingSetID(rawValue: UInt32.random(in: 1...4, using: &chance))
    lastName += 1
    let name = "\(lastName)", data = AdvertisingData(localName: name)
    switch Int.random(in: 0..<10, using: &chance) {
    case 0...5:
      let parameters = parameters(id)
      let isFull = wanted[id] == nil && wanted.count >= capacity
      do throws(AdvertisingError) {
        try world.withHost(0) { host, now throws(AdvertisingError) in
          _ = try host.core.advertise(data, parameters, as: id, now: now)
        }
        (wanted[id], _) = (name, pending.insert(id))
      } catch {
        #expect(isFull && error == .tooManySets(available: capacity), title)
      }
    case 6...7:
      do throws(AdvertisingError) {
        try world.withHost(0) { host, now throws(AdvertisingError) in
          _ = try host.core.setAdvertisingData(data, of: id, now: now)
        }
        #expect(wanted[id] != nil, title)
        (wanted[id], _) = (name, pending.insert(id))
      } catch {
        #expect(error == .notAdvertising(id), title)
        // It is ending, and its end will be reported.
        if wanted[id] != nil { pending.insert(id) }
      }
    default:
      world.withHost(0) { host, now in host.core.stopAdvertising(id, now: now) }
      wanted[id] = nil
      pending.insert(id)
    }
    world.withHost(0) { host, _ in host.drain() }
    takeReports()
    // A set that was ending has made room, and its end has been reported.
    #expect(wanted.count <= capacity, title)
  }
  private mutating func parameters(_ id: AdvertisingSetID) -> AdvertisingParameters {
    var parameters = AdvertisingParameters(
      kind: [.connectable, .connectable, .scannable, .nonconnectable].randomElement(using: &chance)!,
      interval: .every(.milliseconds(20)))
    parameters.restartsAfterConnection = Bool.random(using: &chance)
    if Int.random(in: 0..<4, using: &chance) == 0 {
      parameters.duration = .milliseconds(Int.random(in: 1...400, using: &chance))
    }
    if capacity > 1 {
      // The address distinguishes sets that are not connectable.
      if parameters.kind != .connectable { parameters.address = DeviceAddress(0xC000_5E00_5300 + UInt64(id.rawValue)) }
      parameters.policy = [.everything, .everything, .extended].randomElement(using: &chance)!
      if Int.random(in: 0..<4, using: &chance) == 0 {
        parameters.maximumEvents = UInt8.random(in: 1...20, using: &chance)
      }
    }
    return parameters
  }
  private mutating func connect() {
    world.withHost(1) { host, now in
      host.core.connect(to: PeerAddress(address(1), .public), .fast, id: host.newID(), now: now)
      host.drain()
    }
  }
  private mutating func disconnect(all: Bool = false) {
    world.withHost(1) { host, now in
      for link in host.links { host.core.disconnect(link, now: now) }
      if all { for id in host.unfinished { host.core.cancel(id, now: now) } }
      host.drain()
    }
  }
  /// Reports since the last check: an outcome for each request, and ends.
  private mutating func takeReports() {
    for (id, words) in world.readHost(0, { $0.advertisingReports }) {
      for word in words[(wordsSeen[id] ?? 0)...] {
        pending.remove(id)
        if word != .started { wanted[id] = nil }
      }
      wordsSeen[id] = words.count
    }
  }
}
