// B7: from one GAP public API to another: one host notifies, the other receives, each on a virtual controller, both on
// one radio, in virtual time. The figure includes everything between the two applications: both hosts, both
// controllers, and the radio, on which a packet takes no time.
import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

/// A host with an application: a peripheral that notifies whenever there is room, or a central that counts.
struct RadioHost: ~Copyable, HCIHost {
  static let valueHandle = AttributeHandle(rawValue: 3)
  var core: HostCore
  var link: LinkID?
  var mtu = 0
  var isSubscribed = false
  /// The values that the peripheral still has to send, and those that the central has received.
  var left = 0, received = 0
  var octets: UInt64 = 0
  let value = [UInt8](repeating: 7, count: 244)

  init(_ database: Database) {
    var chance = NoChance()
    // The sender offers a batch whenever there is room. With the default of 528 octets, two values: 8 % more.
    var configuration = HostConfiguration()
    configuration.queueCapacity = 32 * 1024
    core = HostCore(configuration: configuration, database: database, chance: &chance)
  }
  mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    core.receive(packet, now: now)
    drain()
  }
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    let wrote = core.nextPacket(into: &output, now: now)
    drain()
    return wrote
  }
  var deadline: Instant? { core.deadline }
  mutating func expire(now: Instant) {
    core.expire(now: now)
    drain()
  }
  @inline(__always) mutating func drain() {
    while let effect = core.nextEffect() {
      switch effect {
      case .value(_, _, let range, _):
        received &+= 1
        octets &+= core.withBytes(of: range) { UInt64($0.count) &+ UInt64($0[0]) }
      case .readyToSend: send()
      case .linkUp(let link, _, _, _): self.link = link
      case .linkDown: fail("the link went down")
      case .mtuChanged(_, let mtu): self.mtu = mtu
      case .completed(_, .gatt(.done)): isSubscribed = true
      case .completed(_, .failed(let reason)): fail("\(reason)")
      default: break
      }
    }
  }
  /// Offers until the queue is full; an effect reports room again.
  mutating func send() {
    guard let link else { return }
    let value = value
    while left > 0, core.notify(value.span, of: RadioHost.valueHandle, on: link)?.isAccepted == true { left &-= 1 }
  }
}

func radio(_ id: String, _ repetitions: Int, _ batches: Int) {
  let items = 10_000
  var builder = DatabaseBuilder()
  builder.service("180D") { _ = $0.characteristic("2A37", .notify) }
  let database: Database
  do { database = try builder.build() } catch { fail("\(error)") }
  var world = World<RadioHost>(configuration: .ideal)
  world.stepLimit = .max
  let address = DeviceAddress(0x0000_5E00_5301)
  world.add(RadioHost(database), ControllerConfiguration(address: address))
  world.add(RadioHost(Database()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5302)))
  for host in 0..<2 { world.withHost(host) { $0.core.start(now: $1) } }
  world.run(for: .seconds(1))
  world.withHost(0) { host, now in _ = try? host.core.advertise(AdvertisingData(localName: "B7"), now: now) }
  world.withHost(1) { $0.core.connect(to: PeerAddress(address, .public), id: RequestID(rawValue: 1), now: $1) }
  world.run(for: .seconds(5)) { $0.readHost(1) { $0.mtu == 0 } }
  world.withHost(1) { host, _ in
    guard let link = host.link else { fail("no link") }
    host.core.withClient(of: link, id: RequestID(rawValue: 2)) {
      $0.discoverAll(RequestID(rawValue: 2))
      $0.subscribe(RequestID(rawValue: 3), RadioHost.valueHandle)
    }
  }
  world.run(for: .seconds(5)) { $0.readHost(1) { !$0.isSubscribed } }
  _ = exchange(items, 1, &world)
  measure(id, items: items, repetitions: repetitions, batches: batches, showsRate: true) { exchange(items, $0, &world) }
}

@inline(never) func exchange(_ items: Int, _ repetitions: Int, _ world: inout World<RadioHost>) -> UInt64 {
  let before = world.readHost(1) { $0.octets }
  for _ in 0..<repetitions {
    let goal = world.readHost(1) { $0.received } + items
    world.withHost(0) { host, _ in
      host.left = items
      host.send()
    }
    world.run(for: .seconds(3600)) { $0.readHost(1) { $0.received < goal } }
    guard world.readHost(1, { $0.received }) == goal else { fail("not all notifications have arrived") }
  }
  return world.readHost(1) { $0.octets } - before
}
