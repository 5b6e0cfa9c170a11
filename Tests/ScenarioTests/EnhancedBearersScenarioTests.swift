import BindruneATT
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP
import BindruneSimulator
import BindruneWire
import TestSupport
import Testing

/// Two hosts with enhanced bearers, through every layer and two controllers. Vol 3, Part G, §5.3.
@Suite("Scenarios: enhanced bearers") struct EnhancedBearersScenarioTests {
  private static let peripheral = 0, central = 1

  /// The server of the benchmarks, with 300 attributes, and one of the application's values.
  private static func database() throws -> (Database, AttributeHandle) {
    var builder = DatabaseBuilder()
    builder.genericAttribute(serverFeatures: [1])
    builder.addWorkload(services: 10)
    let slow = builder.service("180F") { $0.characteristic("2A19", .read, value: .dynamic).value }
    return (try builder.build(), slow)
  }
  private static func world(
    bearers: Int, _ database: Database, seed: UInt64 = 1, air: AirConfiguration = .ideal
  ) throws -> World<TestHost> {
    var world = World<TestHost>(seed: seed, configuration: air)
    _ = world.addStarted(TestHost(database, seed: 2 * seed) { $0.enhancedBearers = bearers })
    _ = world.addStarted(TestHost(seed: 2 * seed + 1) { $0.enhancedBearers = bearers })
    try world.advertise(peripheral)
    return world
  }
  /// A link of 30 ms that has been encrypted, and has its bearers.
  private static func connected(_ world: inout World<TestHost>, bearers: Int) throws -> LinkID {
    let peer = PeerAddress(address(peripheral + 1), .public)
    let ending = world.ask(central) { core, id, now in core.connect(to: peer, .balanced, id: id, now: now) }
    guard case .linked(let link)? = ending, case .secured? = world.pair(central, on: link, with: peripheral) else {
      throw NotConnected()
    }
    world.run(for: .seconds(10))
    for host in [central, peripheral] { same(world.readHost(host) { $0.bearers.values.max() ?? 0 }, bearers) }
    return link
  }
  private struct NotConnected: Error {}

  /// At an interval of 30 ms a discovery takes less than half of the time that it takes on one bearer.
  @Test func discovery() throws {
    let (database, _) = try Self.database()
    var times: [Int: Duration] = [:]
    for bearers in [0, 3, 5] {
      var air = AirConfiguration.realistic
      air.loss = 0
      var world = try Self.world(bearers: bearers, database, air: air)
      let link = try Self.connected(&world, bearers: bearers), began = world.now
      let ending = world.ask(Self.central) { core, id, _ in core.withClient(of: link, id: id) { $0.discoverAll(id) } }
      same(ending?.isSuccess, true)
      same(world.readHost(Self.central) { $0.core.remoteDatabase(of: link)?.characteristics.count }, 105)
      times[bearers] = world.now - began
    }
    let alone = try need(times[0])
    print("discovery of 300 attributes at 30 ms: \(alone); with 3 and 5 more bearers: \(times[3]!), \(times[5]!)")
    for bearers in [3, 5] { same(try need(times[bearers]) * 2 <= alone, true, "\(bearers)") }
  }

  /// An application that takes its time for one answer delays no other.
  @Test func aSlowAnswer() throws {
    let (database, slow) = try Self.database()
    var world = try Self.world(bearers: 2, database, air: .realistic)
    let link = try Self.connected(&world, bearers: 2)
    let id = world.withHost(Self.central) { host, _ in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { $0.read(id, slow) }
      return id
    }
    world.run(for: .seconds(5))
    for _ in 0..<10 {
      let began = world.now, ending = world.read(Self.central, link, AttributeHandle(rawValue: 1))
      same(ending?.isSuccess, true)
      same(world.now - began < .milliseconds(500), true)
    }
    same(world.readHost(Self.central) { $0.ending(id) == nil }, true)
    world.withHost(Self.peripheral) { host, now in
      if let question = host.questions.first { host.answer(question.id, [77], now: now) }
    }
    world.run(for: .seconds(1))
    same(world.readHost(Self.central) { $0.ending(id) }, .value([77]))
  }

  /// Requests, commands and values of both sides over a bad radio: each request ends once, writes are in order, and
  /// values are.
  @Test(arguments: 1...12 as ClosedRange<UInt64>) func everythingAtOnce(_ seed: UInt64) throws {
    var builder = DatabaseBuilder()
    let (value, notifying) = builder.service("180D") {
      (
        $0.characteristic("2A39", [.read, .write, .writeWithoutResponse]).value,
        $0.characteristic("2A37", [.notify, .indicate]).value
      )
    }
    var world = try Self.world(bearers: 3, try builder.build(), seed: seed, air: .realistic)
    let link = try Self.connected(&world, bearers: 3)
    let other = try need(world.readHost(Self.peripheral) { $0.links.first })
    same(
      world.ask(Self.central) { core, id, _ in core.withClient(of: link, id: id) { $0.discoverAll(id) } }?.isSuccess,
      true)
    same(
      world.ask(Self.central) { core, id, _ in
        core.withClient(of: link, id: id) { $0.subscribe(id, notifying) }
      }?.isSuccess, true)
    var chance = SplitMix64(seed: seed), written: UInt8 = 0, sent: UInt8 = 0
    // What each read may find: what was written last before it, or a write that was made after it.
    var reads: [(RequestID, least: UInt8)] = []
    for _ in 0..<120 {
      world.withHost(Self.central) { host, _ in
        let id = host.newID()
        switch Int.random(in: 0..<4, using: &chance) {
        case 0:
          written += 1
          host.core.withClient(of: link, id: id) { $0.write(id, value, [written].span) }
        case 1:
          // It has no completion.
          _ = host.write(command: [written], to: value, on: link)
          host.core.withClient(of: link, id: id) { $0.read(id, AttributeHandle(rawValue: 1)) }
        default:
          host.core.withClient(of: link, id: id) { $0.readLong(id, value) }
          reads.append((id, written))
        }
      }
      if Bool.random(using: &chance) {
        world.withHost(Self.peripheral) { host, _ in
          if host.notify([sent], of: notifying, on: other)?.isAccepted == true { sent += 1 }
        }
      }
      world.run(for: .milliseconds(Int.random(in: 0...30, using: &chance)))
    }
    world.run(for: .seconds(30))
    same(world.readHost(Self.central) { $0.unfinished.count }, 0)
    same(world.readHost(Self.central) { $0.overfinished.count }, 0)
    same(world.readHost(Self.central) { $0.values.filter { $0.1 == notifying }.map(\.2) }, (0..<sent).map { [$0] })
    for (id, least) in reads {
      guard case .value(let octets)? = world.readHost(Self.central, { $0.ending(id) }) else {
        Issue.record("\(id)")
        continue
      }
      same((octets.first ?? 0) >= least, true, "a read has overtaken a write: seed \(seed)")
    }
    for host in [Self.central, Self.peripheral] { same(world.readHost(host) { $0.violations }, []) }
  }
}
