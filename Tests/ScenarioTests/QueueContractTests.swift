import BindruneATT
import BindruneSimulator
import BindruneWire
import Foundation
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// The contract of `NotificationQueue`, through a whole host and over simulated air.
@Suite("Queue contract") struct QueueContractTests {
  /// `BINDRUNE_SEEDS` of them, 24 if it is not set.
  private static let seeds = ProcessInfo.processInfo.environment["BINDRUNE_SEEDS"].flatMap { Int($0) } ?? 24

  /// Every rule that `QueueTraffic` checks, over seeded worlds; each must be exercised often enough.
  @Test func overSeededWorlds() throws {
    var done: [String: Int] = [:]
    for seed in 0..<Self.seeds {
      var traffic = try QueueTraffic(seed: UInt64(seed))
      traffic.run(steps: 60)
      traffic.finish()
      for fault in traffic.faults { Issue.record("seed \(seed): \(fault)") }
      done.merge(traffic.done, uniquingKeysWith: +)
    }
    let counts = done.sorted { $0.key < $1.key }.map { "\($0.value) × \($0.key)" }
    print("queue contract, seeds 0 ..< \(Self.seeds):", counts.joined(separator: ", "))
    for name in [
      "offer", "full", "cut", "edge", "indication", "overtaking response", "disconnect", "purge", "offer after the end",
      "arrival",
    ] { #expect(done[name, default: 0] >= Self.seeds / 4, "\(name): not often enough to mean anything") }
  }
  /// `BINDRUNE_SEED=96 swift test --filter QueueContractTests/oneSeed` prints the faults of one.
  @Test func oneSeed() throws {
    guard let seed = ProcessInfo.processInfo.environment["BINDRUNE_SEED"].flatMap({ UInt64($0) }) else { return }
    var traffic = try QueueTraffic(seed: seed)
    traffic.run(steps: 60)
    traffic.finish()
    print(traffic.done, traffic.faults)
  }

  /// The queue accepts several values that together fill the longest PDU, each time after the one edge, even with the
  /// least capacity. Vol 3, Part F, §3.4.7.4.
  @Test func theLongestPDUsGetIn() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "tuples")
    builder.genericAttribute()
    let (one, other) = builder.service("180D") {
      ($0.characteristic("2A37", .notify).value, $0.characteristic("2A1C", .notify).value)
    }
    let database = try builder.build()
    var world = World<TestHost>(seed: 1, configuration: .realistic)
    let server = world.addStarted(TestHost(database) { $0.queueCapacity = 0 })
    try world.advertise(server)
    let client = world.addStarted(TestHost())
    let link = try need(world.connect(client, to: server))
    for handle in [one, other] { same(world.subscribe(client, link, handle), .done) }
    let back = try need(world.readHost(server) { $0.links.last })
    same(world.readHost(server) { $0.core.mtu(of: back) }, 517)

    // Two headers of four octets and 508 of values: ATT_MTU − 1.
    let values = [(handle: one, value: [UInt8](repeating: 1, count: 256)), (other, [UInt8](repeating: 2, count: 252))]
    var taken = 0
    for _ in 0..<20 {
      let edges = world.readHost(server) { $0.edges[back, default: 0] }
      var answer = SendAnswer.queued
      while answer == .queued {
        answer = world.withHost(server) { host, _ in host.notify(values, on: back) }
        if answer == .queued { taken += 1 }
      }
      same(answer, .full)
      world.run(for: .seconds(5)) { world in world.readHost(server) { $0.edges[back, default: 0] } == edges }
      same(world.readHost(server) { $0.edges[back, default: 0] }, edges + 1)
    }
    same(taken, 20)
    world.run(for: .seconds(5))
    same(world.readHost(client) { $0.values.map(\.handle) }, (0..<taken).flatMap { _ in [one, other] })
    same(world.readHost(client) { $0.values.map(\.value.count) }, (0..<taken).flatMap { _ in [256, 252] })
    same(world.readHost(server) { $0.needlessEdges }, 0)
  }

  // MARK: Fairness

  /// A server whose `links` clients have subscribed, on a controller with `buffers` buffers; connection events of 30
  /// ms, and a supervision time-out longer than the measurement.
  private struct Server: ~Copyable {
    var world: World<TestHost>
    let server: Int, clients: [Int], links: [LinkID], notifying: AttributeHandle

    init(links count: Int, buffers: Int) throws {
      let values = try QueueTraffic.Values()
      var air = AirConfiguration.realistic
      air.loss = 0
      var world = World<TestHost>(seed: 1, configuration: air)
      let server = world.addStarted(TestHost(values.database)) { $0.aclBufferCount = UInt8(buffers) }
      try world.advertise(server)
      var clients: [Int] = [], parameters = ConnectionParameters.fast
      parameters.interval = ConnectionInterval(.milliseconds(30))
      parameters.supervisionTimeout = SupervisionTimeout(.seconds(30))
      for _ in 0..<count {
        let client = world.addStarted(TestHost()), peer = PeerAddress(address(server + 1), .public)
        clients.append(client)
        guard
          case .linked(let link)? = world.ask(client, { $0.connect(to: peer, parameters, id: $1, now: $2) })
        else { preconditionFailure("no link") }
        same(world.subscribe(client, link, values.notifying[0]), .done)
      }
      notifying = values.notifying[0]
      links = world.readHost(server) { $0.links }
      self.clients = clients
      self.server = server
      self.world = world
    }
    /// Keeps the queues of `talking` links full for a second; returns how many values each client got meanwhile.
    mutating func talk(_ talking: Range<Int>) -> [Int] {
      let before = clients.map { client in world.readHost(client) { $0.values.count } }
      for _ in 0..<50 {
        for link in links[talking] {
          world.withHost(server) { host, _ in
            while host.notify([UInt8](repeating: 1, count: 20), of: notifying, on: link) == .queued {}
          }
        }
        world.run(for: .milliseconds(20))
      }
      return zip(clients, before).map { client, before in world.readHost(client) { $0.values.count } - before }
    }
    mutating func silence(_ client: Int) { world.separate(server, clients[client]) }
  }

  /// The cost of a silent peer for the others, with n buffers. If all send: less than a twentieth with as many buffers
  /// as links, and everything with one, which holds its packet. With fewer buffers than links the others take turns,
  /// and three get half of what they had, or more, as their connection events happen to follow one another. If it alone
  /// sent: it holds all but one buffer for each of the others, and each of them sends with that one.
  @Test func whatASilentPeerCosts() throws {
    print("links  buffers  values of the others in 1 s: all talk, one falls silent meanwhile, it did so while alone")
    for links in 2...4 {
      for buffers in [1, 2, 4, 8, 16] {
        var meanwhile = try Server(links: links, buffers: buffers)
        let before = meanwhile.talk(0..<links)[1...].reduce(0, +)
        meanwhile.silence(0)
        let after = meanwhile.talk(0..<links)[1...].reduce(0, +)
        var alone = try Server(links: links, buffers: buffers)
        alone.silence(0)
        _ = alone.talk(0..<1)
        let late = alone.talk(0..<links)[1...].reduce(0, +)
        let percent = { (count: Int) in "\(count) (\(100 * count / max(before, 1)) %)" }
        print("\(links)      \(buffers)        \(before), \(percent(after)), \(percent(late))")
        if buffers >= links { #expect(20 * after >= 19 * before, "\(links) links, \(buffers) buffers: \(after)") }
        if buffers > 1 { #expect(2 * after >= before, "\(links) links, \(buffers) buffers: \(after)") }
        // A share is max(1, ⌊n / links⌋) buffers: each of the others has one of them.
        if buffers >= links { #expect(late * max(1, buffers / links) * 20 >= before * 19, "late: \(late)") }
      }
    }
  }
}
