import Bindrune
import BindruneConformance
import BindruneTransport
import Foundation
import BindruneGATT
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import BindruneTool

@Suite("Tool: serving", .realTime, .hang) struct ServingTests {
  private static let profile = #"""
    { "services": [
        { "uuid": "1801", "characteristics": [
            { "uuid": "2A05", "properties": ["indicate"], "value": "00*4", "descriptors": [ { "uuid": "2902" } ] } ] },
        { "uuid": "FFE0", "characteristics": [
            { "uuid": "FFE1", "properties": ["indicate"], "value": "07", "descriptors": [ { "uuid": "2902" } ] },
            { "uuid": "FFE2", "properties": ["read", "notify"], "value": "08" } ] } ] }
    """#
  private func withProfile<Result>(
    _ profile: String = ServingTests.profile, _ body: (String) async throws -> Result
  ) async throws -> Result {
    try await withFolder { folder in
      let path = folder.appending(path: "profile.json").path
      try profile.write(toFile: path, atomically: true, encoding: .utf8)
      return try await body(path)
    }
  }

  /// The server indicates Service Changed when services have changed, and not on a subscription. Vol 3, Part G, §7.1.
  @Test func serviceChangedIsTheServersOwn() async throws {
    let octets = try await withProfile { path in
      let radio = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next())
      let server = try ProfileServer(path, name: "Profile"), trace = path + ".btsnoop"
      let peripheral = BluetoothHost(radio.controller(), database: server.database)
      try await peripheral.start()
      let serving = Task {
        try await server.run(on: peripheral, name: "Profile", period: .seconds(60), begun: {}) { _ in }
      }
      let central = try await BluetoothHost.open("sim", radio: radio, trace: trace)
      let link = try await central.connect(to: await peripheral.ownAddress)
      let database = try await link.discoverAll()
      let changed = try #require(database.characteristic("2A05")), other = try #require(database.characteristic("FFE1"))
      let watching = try await link.subscribe(to: changed)
      for try await value in link.notifications(of: other) {
        #expect(value.value == [7])
        break
      }
      try await watching.end()
      await central.close()
      serving.cancel()
      _ = await serving.result
      await peripheral.close()
      return [UInt8](try Data(contentsOf: URL(filePath: trace)))
    }
    // Every Handle Value Indication that the central got: ACL data (0x02) of a frame on channel 0x0004 with opcode
    // 0x1D.
    var place = 16, indicated: [[UInt8]] = []
    while place + 24 <= octets.count {
      let count = octets[place..<place + 4].reduce(0) { $0 << 8 | Int($1) }
      let packet = Array(octets[place + 24..<place + 24 + count])
      place += 24 + count
      if packet.count > 9, packet[0] == 0x02, packet[7...9] == [0x04, 0x00, 0x1D] {
        indicated.append(Array(packet[12...]))
      }
    }
    #expect(indicated == [[7]])
  }

  @Test func aCharacteristicWithoutSubscriptions() async throws {
    try await withProfile { path in
      let warnings = try ProfileServer(path, name: "Profile").warnings
      #expect(warnings.count == 1 && warnings.first?.line == 6)
      #expect(warnings.first?.message.contains("FFE2 notifies or indicates and has no descriptor 2902") == true)
      let end = try await Tool("serve", "--hci", "sim", "--profile", path, "--duration", "0.1").end()
      #expect(end.status == 0 && end.errors.hasPrefix("Warning: \(path):6:"), "\(end.errors)")
    }
  }

  private static let channels = #"""
    { "services": [], "channels": [
        { "action": "discard" }, { "psm": "0x80", "action": "echo" },
        { "psm": 255, "security": "encrypted", "action": "echo" } ] }
    """#

  /// An echo that nobody reads stops its sender, and nothing is lost.
  @Test func channels() async throws {
    try await withProfile(Self.channels) { path in
      let radio = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next(), configuration: .ideal)
      let server = try ProfileServer(path, name: "Profile"), (lines, reports) = AsyncStream.makeStream(of: String.self)
      let peripheral = BluetoothHost(radio.controller(), database: server.database)
      try await peripheral.start()
      let serving = Task {
        try await server.run(on: peripheral, name: "Profile", period: .seconds(60), begun: {}) { reports.yield($0) }
      }
      var heard = lines.makeAsyncIterator()
      // The first channel gets the least PSM that no other has.
      for expected in ["PSM 0x0080: echo", "PSM 0x00FF: echo", "PSM 0x0081: discard"] {
        #expect(await heard.next() == expected)
      }
      let central = try await BluetoothHost.open("sim", radio: radio)
      let link = try await central.connect(to: await peripheral.ownAddress)
      let echo = try await link.openChannel(psm: SPSM(rawValue: 0x80))
      let sdus = (0..<100).map { number in
        [UInt8](repeating: UInt8(number), count: number.isMultiple(of: 10) ? 0 : 1_999)
      }
      var accepted = 0
      while try echo.port.offer(sdus[accepted]) { accepted += 1 }
      let rest = sdus.dropFirst(accepted)
      #expect(rest.count > 50)
      let sending = Task { for sdu in rest { try await echo.send(sdu) } }
      var returned: [[UInt8]] = []
      for try await sdu in echo.received {
        returned.append(sdu)
        if returned.count == sdus.count { break }
      }
      #expect(returned == sdus)
      try await sending.value
      await echo.close()

      let drain = try await link.openChannel(psm: SPSM(rawValue: 0x81))
      for sdu in sdus { try await drain.send(sdu) }
      await drain.close()
      // Both devices pair for it.
      #expect(!(await link.security.isEncrypted))
      let secure = try await link.openChannel(psm: SPSM(rawValue: 0xFF), mtu: 23)
      #expect(await link.security.isEncrypted)
      try await secure.send([UInt8](0..<23))
      for try await sdu in secure.received {
        #expect(sdu == [UInt8](0..<23))
        break
      }
      await secure.close()
      var closed: [String] = []
      while closed.count < 3, let line = await heard.next() {
        if line.hasPrefix("channel closed") { closed.append(line) }
      }
      #expect(
        closed == [
          "channel closed: PSM 0x0080, 179910 octets received", "channel closed: PSM 0x0081, 179910 octets received",
          "channel closed: PSM 0x00FF, 23 octets received",
        ])
      await central.close()
      serving.cancel()
      _ = await serving.result
      await peripheral.close()
    }
  }

  /// The channel of a file, and `pipe`.
  @Test func channelsOfTheTool() async throws {
    let (radio, spec) = try await controllers()
    try await withProfile(Self.channels) { path in
      let server = try Tool("serve", "--hci", spec, "--name", "Profile", "--profile", path)
      _ = try await server.line("PSM 0x0081: discard")
      let pipe = try await Tool.shell("printf hello | bindrune pipe --hci \(spec) --name Profile --psm 0x80").end()
      #expect(pipe.status == 0 && pipe.output == "hello", "\(pipe.errors)")
      _ = try await server.line("channel closed: PSM 0x0080, 5 octets received")
      server.signal(SIGINT)
      #expect(await server.end().status == 0)
      try #"{ "services": [], "channels": [ { "psm": 128, "action": "echo" }, { "psm": 128, "action": "echo" } ] }"#
        .write(toFile: path, atomically: true, encoding: .utf8)
      let bad = try await Tool("serve", "--hci", "sim", "--profile", path).end()
      #expect(bad.status == 1 && bad.errors.contains(":1:76: PSM 0x0080 is that of a channel above; choose another"))
    }
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// A central that connects at the first advertisement is reported, although the controller reports both at once.
  @Test(arguments: ["sensor", "profile"]) func anInstantConnection(kind: String) async throws {
    try await withProfile { path in
      let radio = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next())
      let central = BluetoothHost(radio.controller())
      try await central.start()
      let controller = HoldingTransport(radio.controller())
      let (lines, continuation) = AsyncStream.makeStream(of: String.self)
      let serving: Task<Void, any Error>, peripheral: BluetoothHost
      if kind == "sensor" {
        let sensor = HeartRateSensor(name: "Sensor")
        peripheral = BluetoothHost(controller, database: sensor.database)
        try await peripheral.start()
        serving = Task { [peripheral] in
          try await sensor.run(on: peripheral, name: "Sensor", period: .seconds(60), begun: {}) {
            continuation.yield($0)
          }
        }
      } else {
        let server = try ProfileServer(path, name: "Profile")
        peripheral = BluetoothHost(controller, database: server.database)
        try await peripheral.start()
        serving = Task { [peripheral] in
          try await server.run(on: peripheral, name: "Profile", period: .seconds(60), begun: {}) {
            continuation.yield($0)
          }
        }
      }
      let link = try await central.connect(to: await peripheral.ownAddress)
      // Both ends print the same, in order; if the connection were missed, its end would come first.
      try await link.disconnect()
      var heard: [String] = []
      for await line in lines {
        heard.append(String(line.prefix { $0 != ":" }))
        if heard.last == "disconnected" { break }
      }
      #expect(heard == ["connected", "disconnected"])
      serving.cancel()
      _ = await serving.result
      await peripheral.close()
      await central.close()
    }
  }
}

/// A controller whose answer to the first LE Set Extended Advertising Enable (0x2039) comes with the connection.
private final class HoldingTransport: ForwardingTransport, @unchecked Sendable {
  private enum Phase { case before, holding([[UInt8]]), released }
  private var phase = Phase.before

  override func received(_ packet: Span<UInt8>) {
    let octets = packet.indices.map { packet[$0] }
    // Command Complete, Vol 4, Part E, §7.7.14.
    if case .before = phase, octets.count > 5, octets[1] == 0x0E, octets[4...5] == [0x39, 0x20] {
      phase = .holding([])
    }
    guard case .holding(let held) = phase else { return super.received(packet) }
    phase = .holding(held + [octets])
    // LE Enhanced Connection Complete, §7.7.65.10, or LE Connection Complete, §7.7.65.1.
    if octets[1] == 0x3E, [0x0A, 0x01].contains(octets[3]) {
      phase = .released
      for packet in held + [octets] { super.received(packet.span) }
    }
  }
}
