import Bindrune
import Glibc

/// A central that checks `../peer_peripheral.py` through the public API: features that the tool's verbs do not
/// exercise.
///
///     InteropCentral tcp:127.0.0.1:9000
///
/// A line per check; status 0 when all passed.
@main
struct InteropCentral {
  static func main() async {
    guard CommandLine.arguments.count == 2 else {
      print("usage: InteropCentral tcp:HOST:PORT")
      exit(2)
    }
    let check = Checks(), spec = CommandLine.arguments[1]
    do {
      try await within(.seconds(60)) {
        // InteropSecurity pairs; here a refused request stays refused.
        var configuration = HostConfiguration()
        configuration.pairsOnDemand = false
        // Tests/Interop/run names the file.
        let trace = unsafe getenv("BINDRUNE_TRACE").map { unsafe String(cString: $0) }
        let host = try await BluetoothHost.open(spec, configuration: configuration, trace: trace)
        try await InteropCentral(host: host, check: check).run()
        await host.close()
      }
    } catch {
      check("completed", "\(error)", "no error")
    }
    exit(check.failed ? 1 : 0)
  }

  let host: BluetoothHost
  let check: Checks

  static func uuid(_ number: UInt64) -> BluetoothUUID {
    .long(low: 0x8E5C_6F0E_5F1A_0C00, high: 0xA0B1_0000_1D1D_4BBD | number << 32)
  }

  func run() async throws {
    let peer = try await find()
    try await cancellation()

    let events = await host.events
    var link = try await host.connect(to: peer)
    var server = RemoteServer(link: link, database: try await link.discoverAll())
    check("mtu: 517 with a peer that has it", await link.mtu, 517)
    try await reads(server)
    try await writes(server)
    try await commands(server)
    try await notifications(server)
    try await indications(server)
    try await requestsOfThePeripheral(server)
    try await link.disconnect()

    link = try await host.connect(to: peer)
    server = RemoteServer(link: link, database: try await link.discoverAll())
    try await disconnectionByThePeripheral(server, events)
  }

  /// The peripheral's address, from its advertisement.
  func find() async throws -> PeerAddress {
    let host = host
    let found = try await within(.seconds(10)) {
      for try await advertisement in host.scan(services: ["180D"]) where advertisement.name == "InteropPeer" {
        return advertisement
      }
      throw BluetoothError(.connectionFailed, "the scan ended")
    }
    check("scan: connectable", found.isConnectable)
    check("scan: services", found.data.serviceUUIDs.prefix(2), ["180D", "180F"])
    check("scan: address", found.address.description, "F0:F1:F2:F3:F4:F5/random")
    return found.address
  }

  /// No device has this address: only cancelling ends the request, without effect on the next connection.
  func cancellation() async throws {
    let nobody = PeerAddress(DeviceAddress(0xC0FF_EEC0_FFEE), .random)
    let host = host
    let task = Task { () async -> BluetoothError.Code? in
      do throws(BluetoothError) { _ = try await host.connect(to: nobody) } catch { return error.code }
      return nil
    }
    try await Task.sleep(for: .milliseconds(200))
    task.cancel()
    check("cancel: a connection to nobody", try await within(.seconds(5)) { await task.value }, .cancelled)
  }

  func reads(_ server: RemoteServer) async throws {
    let link = server.link
    check("discover: primary services", server.database.services.filter(\.isPrimary).count, 5)
    check("discover: characteristics of the primary services", server.primaryCharacteristics.count, 21)
    check("discover: includes", server.database.includes.compactMap(\.uuid), ["180F", Self.uuid(0x20)])
    check("read: a value", try await link.read(server[1].valueHandle), Array("HELLO".utf8))
    check("read: a long value", try await link.read(server[6].valueHandle), Self.longValue)
    for (name, handle, error) in [
      ("needs encryption", server[7].valueHandle, 0x0F), ("needs authentication", server[8].valueHandle, 0x05),
      ("the application's error", server[11].valueHandle, 0x80), ("not permitted", server[12].valueHandle, 0x02),
      ("invalid handle", AttributeHandle(rawValue: 0xFFF0), 0x01),
    ] as [(String, AttributeHandle, UInt8)] {
      await check.error("read: \(name)", \.attError, ATTError(rawValue: error)) { () throws(BluetoothError) in
        _ = try await link.read(handle)
      }
    }
    check("read: after the refusals", try await link.read(server[1].valueHandle), Array("HELLO".utf8))

    // Many at once: the bearer has one request in flight, and each answer reaches its caller.
    let answers = try await withThrowingTaskGroup(of: (Int, [UInt8]).self) { group in
      for number in 0..<20 {
        let handle = number % 2 == 0 ? server[1].valueHandle : server[9].valueHandle
        group.addTask { (number, try await link.read(handle)) }
      }
      return try await group.reduce(into: [Int: [UInt8]]()) { $0[$1.0] = $1.1 }
    }
    check(
      "read: twenty at once", answers.filter { $0.value == Array(($0.key % 2 == 0 ? "HELLO" : "d").utf8) }.count, 20)
  }

  func writes(_ server: RemoteServer) async throws {
    let link = server.link
    try await link.write(Array("with response".utf8), to: server[2].valueHandle)
    check("write: reads back", try await link.read(server[2].valueHandle), Array("with response".utf8))
    await check.error("write: the application's error", \.attError, ATTError(rawValue: 0x81)) {
      () throws(BluetoothError) in
      try await link.write([0x78], to: server[11].valueHandle)
    }
    let controlPoint = try server.characteristic("2A39").valueHandle
    await check.error("write: control point refuses 02", \.attError, ATTError(rawValue: 0x80)) {
      () throws(BluetoothError) in
      try await link.write([2], to: controlPoint)
    }
    try await link.write([1], to: controlPoint)
    try await link.write([0x77], to: server[12].valueHandle)
    let other: [UInt8] = Self.longValue.reversed()
    try await link.write(other, to: server[6].valueHandle)
    check("write: a long value reads back", try await link.read(server[6].valueHandle), other)
    try await link.write(Self.longValue, to: server[6].valueHandle)
  }

  /// A hundred Write Commands through a port that holds a few of them.
  func commands(_ server: RemoteServer) async throws {
    let port = try await server.link.sendPort(.command, to: server[3].valueHandle, capacity: 256)
    var refused = 0
    for number in 0..<UInt8(100) {
      while !port.offer(Array(repeating: number, count: 20)) {
        refused += 1
        try await port.waitUntilReady()
      }
    }
    // A request may overtake a command that still waits in our own queue.
    let counted = try await eventually {
      try await server.link.read(server[3].valueHandle) == [100, 0, 0, 0, 0xD0, 7, 0, 0]
    }
    check("write: commands all arrived", counted)
    check("port: a refusal has one ready edge", port.readyEdges <= refused && (refused == 0 || port.readyEdges > 0))
  }

  func notifications(_ server: RemoteServer) async throws {
    let heartRate = try server.characteristic("2A37")
    let rates = try await within(.seconds(10)) {
      var rates: [[UInt8]] = []
      for try await value in server.link.notifications(of: heartRate) {
        rates.append(value.value)
        if rates.count == 10 { break }
      }
      return rates
    }
    check("notify: heart rates", rates, (0..<10).map { [0, 60 + $0] })
    check(
      "notify: off after the last", try await eventually { try await server.configuration(of: heartRate) == [0, 0] })

    let burst = Task {
      var values: [ReceivedValue] = []
      for try await value in server.link.notifications(of: server[4]) {
        values.append(value)
        if values.count == 200 { break }
      }
      return values
    }
    check("notify: on", try await eventually { try await server.configuration(of: server[4]) == [1, 0] })
    try await server.link.write([1, 200, 0, 244, 0], to: server[10].valueHandle)
    let values = try await within(.seconds(10)) { try await burst.value }
    check("notify: a burst in order, none lost", values.map { Int($0.value[0]) }, Array(0..<200))
    check("notify: whole values", Set(values.map(\.value.count)), [244])
    check("notify: not indications", values.contains(where: \.isIndication), false)
  }

  func indications(_ server: RemoteServer) async throws {
    let three = Task {
      var values: [ReceivedValue] = []
      for try await value in server.link.notifications(of: server[5]) {
        values.append(value)
        if values.count == 3 { break }
      }
      return values
    }
    check("indicate: on", try await eventually { try await server.configuration(of: server[5]) == [2, 0] })
    try await server.link.write([2, 3], to: server[10].valueHandle)
    let values = try await within(.seconds(10)) { try await three.value }
    check("indicate: three in order", values.map(\.value), (0..<3).map { [$0, 0, 0, 0] })
    check("indicate: reported as indications", values.allSatisfy(\.isIndication))
  }

  /// Parameters over L2CAP, and pairing: the peripheral counts our answers. A read after each shows that the link
  /// works.
  func requestsOfThePeripheral(_ server: RemoteServer) async throws {
    for request: UInt8 in [4, 5] {
      try await server.link.write([request], to: server[10].valueHandle)
      for _ in 0..<3 { _ = try await server.link.read(server[1].valueHandle) }
    }
  }

  func disconnectionByThePeripheral(_ server: RemoteServer, _ events: ServerEventSequence) async throws {
    let link = server.link
    let waiting = Task { () async -> BluetoothError.Code? in
      do throws(BluetoothError) { for try await _ in link.notifications(of: server[4]) {} } catch { return error.code }
      return nil
    }
    _ = try await eventually { try await server.configuration(of: server[4]) == [1, 0] }
    try await link.write([3], to: server[10].valueHandle)
    let reason = try await within(.seconds(5)) {
      for try await event in events {
        if case .disconnected(link.id, let reason) = event { return reason.rawValue }
      }
      return 0
    }
    check("disconnection: the peripheral's", reason, 0x13)
    check("disconnection: ends what waits", try await within(.seconds(5)) { await waiting.value }, .disconnected)
    await check.error("disconnection: later calls know", \.code, .disconnected) { () throws(BluetoothError) in
      _ = try await link.read(server[1].valueHandle)
    }
  }

  static let longValue = (0..<512).map { UInt8(truncatingIfNeeded: $0) }
}

/// A link and what was discovered on it.
struct RemoteServer: Sendable {
  let link: Link
  let database: RemoteDatabase

  /// The test service's characteristic with this number; `run` has checked that there are 12.
  subscript(_ number: UInt64) -> RemoteCharacteristic {
    guard let found = database.characteristic(InteropCentral.uuid(number)) else {
      print("FAIL discover: characteristic \(number): got none want one")
      exit(1)
    }
    return found
  }
  func characteristic(_ uuid: BluetoothUUID) throws -> RemoteCharacteristic {
    guard let found = database.characteristic(uuid) else {
      throw BluetoothError(.invalidArgument, "the server has no \(uuid)")
    }
    return found
  }
  var primaryCharacteristics: [RemoteCharacteristic] {
    database.services.filter(\.isPrimary).flatMap(database.characteristics(of:))
  }
  /// The value of the Client Characteristic Configuration.
  func configuration(of characteristic: RemoteCharacteristic) async throws -> [UInt8] {
    guard let descriptor = database.descriptor(.clientCharacteristicConfiguration, of: characteristic) else {
      return []
    }
    return try await link.read(descriptor.handle)
  }
}

/// Waits for `condition`, with up to a hundred checks.
func eventually(_ condition: () async throws -> Bool) async throws -> Bool {
  for _ in 0..<100 {
    if try await condition() { return true }
    try await Task.sleep(for: .milliseconds(20))
  }
  return false
}
