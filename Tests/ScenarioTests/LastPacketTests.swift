import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@Suite("The last packet of a link") struct LastPacketTests {
  /// The central disconnects while notifications are on the air: none arrives after Disconnection Complete.
  @Test(arguments: 1...30) func nothingFollowsTheDisconnection(_ seed: Int) throws {
    var air = AirConfiguration.realistic
    air.loss = seed % 3 == 0 ? 0.2 : 0
    var world = World<TestHost>(seed: UInt64(seed), configuration: air)
    let peripheral = try Peripheral()
    let server = world.addStarted(TestHost(peripheral.database))
    let client = world.addStarted(TestHost())
    try world.advertise(server)
    var link: LinkID?, subscribed: TestHost.Ending?, attempts = 0
    while subscribed != .done && attempts < 10 {
      attempts += 1
      link = world.connect(client, to: server)
      guard let link else { continue }
      _ = world.ask(client) { core, id, _ in core.withClient(of: link, id: id) { $0.discoverAll(id) } }
      subscribed = world.ask(client) { core, id, _ in
        core.withClient(of: link, id: id) { $0.subscribe(id, peripheral.notifying) }
      }
    }
    let up = try #require(world.readHost(server) { $0.links.last })
    // One value an event, from before the disconnection until after it.
    for count in 0..<40 {
      world.withHost(server) { host, _ in
        _ = host.core.notify([UInt8(count)].span, of: peripheral.notifying, on: up)
        host.drain()
      }
      if count == 20 {
        world.withHost(client) { host, now in
          guard let link else { return }
          host.core.disconnect(link, now: now)
          host.drain()
        }
      }
      world.run(for: .milliseconds(7))
    }
    world.run(for: .seconds(10))
    same(world.readHost(client) { $0.links }, [])
    same(world.readHost(server) { $0.links }, [])
    same(world.readHost(client) { $0.violations }, [])
  }
}
