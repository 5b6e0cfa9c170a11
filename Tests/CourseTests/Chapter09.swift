import BindruneATT
import BindruneCapture
import BindruneSimulator
import BindruneWire
import Foundation
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

// snippet
/// A host on a simulated radio, which writes down what happens to it.
struct Box: ~Copyable, HCIHost {
  var core: HostCore
  var heard: [PeerAddress] = []
  var link: LinkID?
  var values: [[UInt8]] = []
  var isReading = true

  init(_ database: Database) { core = HostCore(database: database) }

  mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    core.receive(packet, now: now)
    drain()
  }
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    core.nextPacket(into: &output, now: now)
  }
  var deadline: Instant? { core.deadline }
  mutating func expire(now: Instant) {
    core.expire(now: now)
    drain()
  }
  mutating func drain() {
    while let effect = core.nextEffect() {
      switch effect {
      case .discovered(_, let discovery): heard.append(discovery.address)
      case .linkUp(let link, _, _, _): self.link = link
      case .linkDown: link = nil
      case .value(_, _, let value, _): values.append(core.bytes(of: value))
      case .completed(_, .gatt): isReading = false
      default: break
      }
    }
  }
}
// end

@Suite("Course 9: a radio in memory", .hang) struct Chapter9 {
  @Test func page() throws {
    try course("09-a-radio-in-memory", exercises: [10, 10]) { page in
      // snippet
      var world = World<Box>(seed: 9)
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "Belt")
      let rate = builder.service("180D") { $0.characteristic("2A37", .notify).value }
      let belt = world.add(Box(try builder.build()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
      let phone = world.add(Box(Database()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5302)))
      world.air.startRecording()

      for host in [belt, phone] { world.withHost(host) { $0.core.start(now: $1) } }
      world.run(for: .seconds(1))
      print("running:", world.readHost(belt) { $0.core.isRunning }, world.readHost(phone) { $0.core.isRunning })
      page.shows()

      // snippet
      let data = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"])
      try world.withHost(belt) { _ = try $0.core.advertise(data, now: $1) }
      world.withHost(phone) { $0.core.startScan(filter: ScanFilter(services: ["180D"]), now: $1) }
      world.run(for: .seconds(5)) { $0.readHost(phone) { $0.heard.isEmpty } }

      let address = world.readHost(phone) { $0.heard[0] }
      print("the phone has heard", address)
      world.withHost(phone) { box, now in
        box.core.stopScan(now: now)
        box.core.connect(to: address, id: RequestID(rawValue: 1), now: now)
      }
      world.run(for: .seconds(5)) { $0.readHost(phone) { $0.link == nil } }
      page.shows()

      // snippet
      let link = world.readHost(phone) { $0.link! }
      let discovery = RequestID(rawValue: 2), subscription = RequestID(rawValue: 3)
      world.withHost(phone) { box, _ in box.core.withClient(of: link, id: discovery) { $0.discoverAll(discovery) } }
      world.run(for: .seconds(5)) { $0.readHost(phone) { $0.isReading } }
      world.withHost(phone) { box, _ in
        box.core.withClient(of: link, id: subscription) { $0.subscribe(subscription, rate, .notification) }
      }
      world.run(for: .seconds(1))
      for beats in 70...74 as ClosedRange<UInt8> {
        world.withHost(belt) { box, _ in _ = box.core.notify([0x00, beats].span, of: rate, on: box.link!) }
        world.run(for: .milliseconds(200))
      }
      print(world.readHost(phone) { $0.values.map(hex) })
      page.shows()

      // snippet
      var octets: [UInt8] = []
      BTSnoop.appendHeader(to: &octets)
      for record in world.air.takeRecords() where record.controller == world.controller(of: phone) {
        let direction: HCIDirection = record.isToHost ? .fromController : .fromHost
        BTSnoop.append(record.bytes.span, direction, time: record.time.nanoseconds / 1000, to: &octets)
      }
      print("sensor.btsnoop:", octets.count, "octets")
      page.shows()

      // snippet
      world.separate(belt, phone)
      let before = world.now
      world.run(for: .seconds(60)) { $0.readHost(phone) { $0.link != nil } }
      print("the link ended after", world.now - before)
      page.shows()

      let recording = Page.files.appending(path: "sensor.btsnoop")
      if Page.isRecording { try Data(octets).write(to: recording) }
      #expect(try Data(contentsOf: recording) == Data(octets))
    }
  }
}
