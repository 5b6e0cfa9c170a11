import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import TestSupport
import Testing

/// What a server sends unasked, to a client of ours, through every layer.
@Suite("A server that changes") struct ServerScenarioTests {
  /// Vol 3, Part G, §2.5.2, §4.10.2: services change while the client follows, and several values travel together.
  @Test func changesAndSeveralValues() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "changing")
    builder.genericAttribute()
    let (rate, place, secret) = builder.service("180D") {
      (
        $0.characteristic("2A37", .notify).value, $0.characteristic("2A38", .notify).value,
        $0.characteristic("2A39", .notify, configuring: .open).value
      )
    }
    var world = World<TestHost>(seed: 11)
    let server = world.addStarted(TestHost(try builder.build()) { $0.queueCapacity = 2048 })
    let client = world.addStarted(TestHost())
    try world.advertise(server)
    let link = try need(world.connect(client, to: server))
    func ask(_ body: @escaping (inout Client, RequestID) -> Void) -> TestHost.Ending? {
      world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { body(&$0, id) } }
    }
    same(ask { $0.discoverAll($1) }, .done)
    same(ask { $0.followChanges($1) }, .done)
    same(ask { $0.subscribe($1, rate, .notification) }, .done)
    same(ask { $0.subscribe($1, place, .notification) }, .done)

    // Two in one PDU, one alone, none without a subscription.
    let up = try need(world.readHost(server) { $0.links.first })
    let answer = world.withHost(server) { host, _ in
      host.core.notify([(rate, [1]), (secret, [2]), (place, [3, 4]), (rate, Array(repeating: 5, count: 512))], on: up)
    }
    same(answer, .queued)
    world.run(for: .seconds(5)) { world in world.readHost(client) { $0.values.count < 3 } }
    same(
      world.readHost(client) { $0.values.map { [UInt8($0.handle.rawValue)] + $0.value.prefix(2) } },
      [[UInt8(rate.rawValue), 1], [UInt8(place.rawValue), 3, 4], [UInt8(rate.rawValue), 5, 5]])

    // A new service: the client gets Service Changed, and discovers it.
    try world.withHost(server) { host, _ throws(DatabaseError) in
      var builder = DatabaseBuilder(after: host.core.database)
      builder.service("180F") { $0.characteristic("2A19", .read, value: [77]) }
      try host.core.insert(builder)
    }
    world.run(for: .seconds(10)) { world in world.readHost(client) { !$0.changes.contains { $0.isRediscovered } } }
    let battery = try need(
      world.readHost(client) { $0.core.remoteDatabase(of: link)?.characteristic("2A19")?.valueHandle })
    same(ask { $0.read($1, battery) }, .value([77]))
    // A removed service.
    try world.withHost(server) { host, _ throws(DatabaseError) in
      _ = try host.core.remove(service: AttributeHandle(rawValue: battery.rawValue - 2))
    }
    world.run(for: .seconds(10)) { world in
      world.readHost(client) { $0.core.remoteDatabase(of: link)?.characteristic("2A19") != nil }
    }
    same(world.readHost(client) { $0.core.remoteDatabase(of: link)?.characteristic("2A19") == nil }, true)
    same(world.readHost(client) { $0.violations }, [])
    same(world.readHost(server) { $0.violations }, [])
  }
}
