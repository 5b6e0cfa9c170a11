import ATT
import ArgumentParser
import Bindrune
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI
import NIOPosix
import Synchronization

struct Demo: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Two hosts on a virtual radio: scan, connect, MTU, discover, read, write, subscribe, disconnect.",
    discussion: """
      A heart rate sensor and a central run in this process, each on its own virtual controller. Under each step stand \
      the packets between the central and its controller that made it, layer by layer.
      """)

  @Option(help: "Seed of the virtual radio: the same seed gives the same run.")
  var seed: UInt64 = 1
  @Flag(help: "Only the steps, without their packets.")
  var brief = false
  @Option(name: .long, help: "Write the central's HCI packets to this file (btsnoop).")
  var trace: String?
  @OptionGroup var logging: LoggingOptions

  func run() async throws {
    guard
      let done = try await withLimit(
        .seconds(20),
        {
          try await walk()
          return true
        }), done
    else {
      throw Failure("the demo did not end within 20 s: the machine is too busy, or this is a defect worth a report.")
    }
  }

  private func walk() async throws {
    let radio = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next(), seed: seed)
    let story = Story(brief: brief)

    let sensor = HeartRateSensor(name: "Heart Rate Sensor")
    let peripheral = Host(radio.controller(), database: sensor.database, logger: logging.logger)
    try await peripheral.start()
    let controller = try await TransportSpec.sim.open(on: radio.eventLoop, radio: radio, trace: trace)
    let transport = ObservedTransport(controller, story.observed)
    let central = Host(transport, logger: logging.logger)
    story.step("Start", "the central resets its controller and asks what it can do")
    try await central.start()
    try await peripheral.advertise(sensor.advertisingData(name: "Heart Rate Sensor"))
    let service = Task { try await sensor.run(on: peripheral, period: .milliseconds(50)) { _ in } }

    story.step("Scan", "until somebody advertises the Heart Rate service")
    var found: Advertisement?
    for try await advertisement in central.scan(services: ["180D"]) where advertisement.name != nil {
      found = advertisement
      break
    }
    guard let found else { throw Failure("the scan ended before a device was heard.") }
    story.result("\(found.peer)  \(found.name ?? "")  \(found.rssi ?? 0) dBm")

    story.step("Connect", "to \(found.peer)")
    let link = try await central.connect(to: found.peer)

    story.step("MTU", "both sides say how long a PDU may be; the shorter one counts")
    let generic = try await link.read(AttributeHandle(rawValue: 3))
    story.result("ATT_MTU \(await link.mtu)")

    story.step("Discover", "services, then characteristics, then the descriptors that must be asked for")
    let database = try await link.discoverAll()
    for service in database.services {
      let characteristics = database.characteristics(of: service).map { assignedName($0.uuid) ?? $0.uuid.description }
      story.result(
        "\(assignedName(service.uuid) ?? service.uuid.description): \(characteristics.joined(separator: ", "))")
    }

    story.step("Read", "the Body Sensor Location")
    guard let location = database.characteristic("2A38"), let measurement = database.characteristic("2A37"),
      let controlPoint = database.characteristic("2A39")
    else { throw Failure("the sensor's database is not the one it should be.") }
    story.result("Body Sensor Location \(readable(try await link.read(location.valueHandle))) (chest)")

    story.step("Write", "1 to the Heart Rate Control Point: reset the energy expended")
    try await link.write([1], to: controlPoint.valueHandle)
    story.result("accepted")

    story.step("Subscribe", "to the Heart Rate Measurement: ten notifications")
    var count = 0
    for try await value in link.notifications(of: measurement) {
      story.result("Heart Rate Measurement \(value.value.count > 1 ? value.value[1] : 0) bpm")
      count += 1
      if count == 10 { break }
    }

    story.step("Disconnect", "")
    try await link.disconnect()
    story.result("Remote name was \(readable(generic)).")
    service.cancel()
    await central.close()
    await peripheral.close()
    story.end()
  }
}

/// Collects the central's packets and tells them under the step that they belong to.
final class Story: Sendable {
  private struct State {
    var packets: [(bytes: [UInt8], direction: HCIDirection)] = []
    var results: [String] = []
    var number = 0
  }
  private let state = Mutex(State())
  private let brief: Bool
  init(brief: Bool) { self.brief = brief }

  @Sendable func observed(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    let bytes = packet.indices.map { packet[$0] }
    state.withLock { $0.packets.append((bytes, direction)) }
  }
  func result(_ text: String) { state.withLock { $0.results.append(text) } }

  func step(_ name: String, _ explanation: String) {
    tell()
    let number = state.withLock { state in
      state.number += 1
      return state.number
    }
    Console.line()
    Console.line(Console.styled("\(number) \(name)", .bold) + (explanation.isEmpty ? "" : "  " + explanation))
  }
  func end() { tell() }

  private func tell() {
    let (packets, results) = state.withLock { state in
      defer { (state.packets, state.results) = ([], []) }
      return (state.packets, state.results)
    }
    if !brief {
      for packet in packets {
        let arrow = packet.direction == .fromHost ? Console.styled("→", .magenta) : Console.styled("←", .cyan)
        for (index, line) in Explainer.lines(packet.bytes).enumerated() {
          Console.line("    \(index == 0 ? arrow : " ") " + String(repeating: "  ", count: index) + line)
        }
      }
    }
    for result in results { Console.line("  " + result) }
  }
}
