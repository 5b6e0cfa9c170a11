import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// A client's cached database from one connection to the next, over air that loses packets.
@Suite("Attribute caching") struct ClientScenarioTests {
  @Test(arguments: 1...10) func aKeptDatabaseAndAChange(_ seed: Int) throws {
    var builder = DatabaseBuilder()
    let changed = builder.service("1801") { service in
      let changed = service.characteristic("2A05", .indicate).value
      service.characteristic("2B29", [.read, .write], value: [0])
      service.characteristic("2B2A", .read, value: .stored([UInt8](0xA0...0xAF)))
      return changed
    }
    let rate = builder.service("180D") { $0.characteristic("2A37", .notify).value }
    let database = try builder.build()

    var air = AirConfiguration.realistic
    air.loss = [0, 0.1, 0.2][seed % 3]
    var world = World<TestHost>(seed: UInt64(seed), configuration: air)
    let server = world.addStarted(TestHost(database)), client = world.addStarted(TestHost())
    var kept: RemoteDatabase?, link = LinkID(rawValue: 0)
    for _ in 1...2 {
      var found: TestHost.Ending?
      for _ in 1...10 where found?.isSuccess != true {
        try world.advertise(server)
        guard let up = world.connect(client, to: server) else { continue }
        link = up
        found = world.ask(client) { core, id, _ in core.withClient(of: up, id: id) { $0.readDatabaseHash(id) } }
      }
      same(found, .value([UInt8](0xA0...0xAF)))
      if let kept {
        world.withHost(client) { host, _ in host.core.restore(kept, on: link) }
      } else {
        let discovered = world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.discoverAll(id) } }
        same(discovered, .done)
      }
      same(world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.followChanges(id) } }, .done)
      let subscribed = world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.subscribe(id, rate) } }
      same(subscribed, .done)
      let remote = try #require(world.readHost(client) { $0.core.remoteDatabase(of: link) })
      #expect(remote.isComplete && remote.hash?.octets == [UInt8](0xA0...0xAF))
      if kept == nil {
        kept = try RemoteDatabase(cacheText: try #require(remote.cacheText))
        same(world.ask(client) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
        world.run(for: .seconds(10)) { world in world.readHost(server) { !$0.links.isEmpty } }
      } else {
        #expect(kept == remote)
      }
    }
    // The heart rate service moves: the client drops the old range, and discovers only the changed one.
    let up = try #require(world.readHost(server) { $0.links.first })
    let range = HandleRange(AttributeHandle(rawValue: rate.rawValue - 2), AttributeHandle(rawValue: rate.rawValue + 9))
    let value = [range.first.rawValue, range.last.rawValue].flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
    _ = world.withHost(server) { host, _ in host.indicate(value, of: changed, on: up) }
    world.run(for: .seconds(30)) { world in world.readHost(client) { !($0.changes.last?.isRediscovered ?? false) } }
    same(world.readHost(client) { $0.changes.map(\.isRediscovered) }, [false, true])
    same(world.readHost(client) { $0.changes.map(\.range) }, [range, range])
    // What was read in the old range is read again before it is used.
    let again = try #require(world.readHost(client) { $0.core.remoteDatabase(of: link) })
    #expect(again.isComplete && again.characteristics == kept?.characteristics && again != kept)
    same(world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.subscribe(id, rate) } }, .done)
    same(world.readHost(client) { $0.core.remoteDatabase(of: link) }, kept)
    same(world.readHost(server) { $0.confirmations }, 1)
    same(world.readHost(client) { $0.violations }, [])
    same(world.readHost(client) { $0.overfinished }, [])
  }
}
