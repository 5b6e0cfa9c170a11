import BindruneATT
import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import NIOPosix

struct Demo: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Two hosts on a virtual radio: scan, connect, MTU, discover, read, write, subscribe, disconnect.",
    discussion: """
      A heart rate sensor and a central run in this process, each on its own virtual controller. Each step lists its \
      packets between the central and its controller, layer by layer: → from the host, ← to it.
      """)

  @Flag(help: "Show only the steps, without their packets.")
  var brief = false
  @Option(help: "Seed of the radio's random numbers: how strong and how late packets are.")
  var seed: UInt64 = 1
  @OptionGroup var common: CommonOptions

  func run() async throws {
    let story = Story(brief: brief)
    do {
      let limit = Seconds(20)
      guard try await withLimit(limit.duration, { try await walk(story) }) != nil else {
        throw Failure(
          "The demo did not end within \(limit): the machine is too busy, or this is a defect worth a report.")
      }
      story.printEntries()
    } catch {
      story.printEntries()
      throw error
    }
  }

  private func walk(_ story: Story) async throws {
    let loop = EventLoops.next()
    let radio = SimulatedRadio(on: loop, seed: seed, configuration: .quiet())
    let name = "Heart Rate Sensor", sensor = HeartRateSensor(name: name)
    let peripheral = BluetoothHost(radio.controller(), database: sensor.database, logger: common.logger)
    let controller = try await TransportSpec.sim.open(on: radio.eventLoop, radio: radio, trace: common.trace)
    let central = BluetoothHost(ObservedTransport(controller, story.observed), logger: common.logger)
    try await peripheral.start()

    story.step("start", "the central resets its controller and asks what it can do")
    try await central.start()
    let service = Task { try await sensor.run(on: peripheral, name: name, period: .milliseconds(50)) }
    defer { service.cancel() }

    story.step("scan", "until a device advertises the Heart Rate service")
    var found: Advertisement?
    for try await advertisement in central.scan(services: ["180D"]) where advertisement.name != nil {
      found = advertisement
      break
    }
    guard let found else { throw CancellationError() }
    story.result("\(found.peer)  \((found.name ?? "").printable())\(found.rssi.map { "  \($0) dBm" } ?? "")")

    story.step("connect", "to \(found.peer)", from: isCreateConnection)
    let link = try await central.connect(to: found.peer)

    story.step("MTU", "both sides send their longest PDU length; the shorter one applies", from: isMTURequest)
    // The host starts the exchange with the link; the next request waits for it.
    let deviceName = try await link.read(AttributeHandle(rawValue: 3))
    story.result("ATT_MTU \(await link.mtu), and the first request after it read the name: \(readable(deviceName))")

    story.step("discover", "services, then characteristics, then their descriptors")
    let database = try await link.discoverAll()
    for service in database.services {
      let characteristics = database.characteristics(of: service).map { $0.uuid.assignedName ?? $0.uuid.description }
      story.result(
        "\(service.uuid.assignedName ?? service.uuid.description): \(characteristics.joined(separator: ", "))")
    }
    guard let location = database.characteristic("2A38"), let measurement = database.characteristic("2A37"),
      let controlPoint = database.characteristic("2A39")
    else { throw Failure("The sensor's database is not the expected one: this is a defect worth a report.") }

    story.step("read", "the Body Sensor Location")
    story.result("Body Sensor Location \(readable(try await link.read(location.valueHandle))): chest")

    story.step("write", "1 to the Heart Rate Control Point: reset the energy expended")
    try await link.write([1], to: controlPoint.valueHandle)
    story.result("accepted")

    story.step("subscribe", "to the Heart Rate Measurement: ten notifications")
    var count = 0
    for try await value in link.notifications(of: measurement) {
      story.result(HeartRateSensor.text(value.value), indent: "")
      count += 1
      if count == 10 { break }
    }

    story.step("disconnect", "the subscription ends, and the link", from: isWriteRequest)
    try await link.disconnect()
    story.result("\(link.id) is down")
    await central.close()
    await controller.warnOfTrace()
    await peripheral.close()
  }
}

// Recognize the packets that begin steps. The first octet is the H4 packet type, an ACL packet's tenth the ATT opcode.
private func isCreateConnection(_ packet: [UInt8]) -> Bool { packet.starts(with: [0x01, 0x43, 0x20]) }
private func isMTURequest(_ packet: [UInt8]) -> Bool { packet[0] == 0x02 && packet.dropFirst(9).first == 0x02 }
private func isWriteRequest(_ packet: [UInt8]) -> Bool { packet[0] == 0x02 && packet.dropFirst(9).first == 0x12 }
