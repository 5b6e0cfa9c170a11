import BindruneTransport
import BindruneWire
import Foundation
import BindruneGATT
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// The daemon's socket, over real sockets in this process.
@Suite(.hang) struct AppServerTests {
  private static let manifest = AppManifest(
    identifier: "org.example.test", backgroundModes: [.central, .peripheral], relaunch: ["/bin/true"])

  @Test func twoAppsAndTheirValues() async throws {
    let lab = try await ServerLab(), sensor = try Sensor(), device = try await lab.host(sensor.database)
    try await device.advertiseAsSensor()
    let peer = UUID(PeerID(await device.ownAddress)), count = 2_000
    // A central, to which values come and which writes values.
    let central = SocketApp(lab, AppManifest(identifier: "central"))
    try await central.state(.poweredOn)
    central.session.send(.connect(peer, ConnectOptions()))
    try await central.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    _ = try await central.ask { .discoverServices($0, peer, nil) }
    _ = try await central.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }
    #expect(try await central.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    _ = try await central.ask { .setNotifying($0, peer, sensor.measurement, true) }
    let link = try #require(await device.links.first)
    let out = try await link.sendPort(.notification, to: sensor.measurement)
    let sending = Task {
      for number in 0..<count {
        let value = [UInt8(number >> 8), UInt8(number & 255)]
        while !out.offer(value) { try await out.waitUntilReady() }
      }
    }
    var numbers: [Int] = []
    while numbers.count < count {
      numbers += try await central.wait { event -> [Int]? in
        guard case .values(peer, sensor.measurement, let values) = event else { return nil }
        return values.map { Int($0[0]) << 8 | Int($0[1]) }
      }
    }
    try await sending.value
    #expect(numbers == Array(0..<count))
    let port = try #require(central.session.port(.command, of: peer))
    for number in 0..<count {
      while !port.offer([UInt8(number >> 8), UInt8(number & 255)], to: sensor.location) {
        try await port.waitUntilReady()
      }
    }
    // In its place: behind all values.
    #expect(
      try await central.ask { .read($0, peer, sensor.location) }
        == .value(Data([UInt8((count - 1) >> 8), UInt8((count - 1) & 255)])))

    // Another app, a peripheral, with a subscriber.
    let peripheral = SocketApp(lab, AppManifest(identifier: "peripheral"))
    try await peripheral.state(.poweredOn)
    guard case .published(let service) = try await peripheral.ask({ .addService($0, Pulse.description) }) else {
      Issue.record("not published")
      return
    }
    let pulse = Pulse(service: service)
    _ = try await peripheral.ask { .startAdvertising($0, localName: "Pulse", services: ["180D"]) }
    let phone = try await lab.host(Database())
    let adapter = lab.adapter
    let own = try await adapter.eventLoop.submit { adapter.host?.assumeIsolated { $0.ownAddress } }.get()
    let phoneLink = try await phone.connect(to: try #require(own), .fast)
    _ = try await phoneLink.discover()
    let values = try await phoneLink.subscribe(to: try await phoneLink.characteristic(pulse.measurement))
    let subscriber = try await peripheral.wait { event -> UUID? in
      if case .subscribed(let central, pulse.measurement, _) = event { central } else { nil }
    }
    let updates = try #require(peripheral.session.port(.notification, of: subscriber))
    let notifying = Task {
      for number in 0..<count {
        while !updates.offer([UInt8(number >> 8), UInt8(number & 255)], to: pulse.measurement) {
          try await updates.waitUntilReady()
        }
      }
    }
    numbers = []
    for try await value in values {
      numbers.append(Int(value.value[0]) << 8 | Int(value.value[1]))
      if numbers.count == count { break }
    }
    try await notifying.value
    #expect(numbers == Array(0..<count))
    let reading = Task { try await phoneLink.read(try await phoneLink.characteristic(pulse.control)) }
    let request = try await peripheral.wait { event -> (ServerRequest, UUID)? in
      if case .readRequested(let id, let central, pulse.control, _, _) = event { (id, central) } else { nil }
    }
    peripheral.session.send(.respond(request.0, central: request.1, Data([9])))
    #expect(try await reading.value == [9])
    // A manager that is released takes only its own with it.
    peripheral.session.close()
    try await eventually { try await lab.adapter.eventLoop.submit { lab.adapter.core.serving.services.isEmpty }.get() }
    #expect(
      try await central.ask { .read($0, peer, sensor.location) }
        == .value(Data([UInt8((count - 1) >> 8), UInt8((count - 1) & 255)])))
    withExtendedLifetime((phone, device)) {}
    try await lab.close()
  }

  @Test("S18, S36, S41–S43: an app is stopped and resumed, its process ends, and it is relaunched and restored")
  func lives() async throws {
    var limits = AppServer.Limits()
    limits.core.awake = .milliseconds(50)
    let lab = try await ServerLab(limits: limits), sensor = try Sensor(), device = try await lab.host(sensor.database)
    let peer = UUID(PeerID(await device.ownAddress)), identity = ManagerIdentity(.central, restoreIdentifier: "lock")
    let app = SocketApp(lab, Self.manifest, identity, reconnectsAfter: .hours(1))
    try await app.state(.poweredOn)
    let identifier = Self.manifest.identifier, log = try await lab.log()
    try await lab.move(identifier, to: .suspended)
    try await lab.until("stop")
    app.session.send(.connect(peer, ConnectOptions()))
    try await device.advertiseAsSensor()
    // The connection wakes it, and it is stopped again.
    try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    try await lab.until("resume")
    while lab.did.filter({ $0 == "stop" }).count < 2 { await Task.yield() }
    await device.stopAdvertising()
    // On a slow machine the app is stopped again before it has taken the connection, or before the device's name comes:
    // either wakes it once more.
    #expect(lab.did.prefix(3) == ["stop", "resume", "stop"])
    while !log.lines.contains(where: { $0.contains("is woken by") }) { await Task.yield() }
    let reasons = log.lines.compactMap { $0.split(separator: "is woken by ").dropFirst().first }
    let known = ["a connection", "a new name"]
    #expect(reasons.first == "a connection" && reasons.allSatisfy { known.contains(String($0)) }, "\(reasons)")
    // Its process ends: the socket is closed, and nothing was said.
    try await lab.breakConnections()
    try await eventually { try await lab.life(of: identifier) == .terminated }
    await device.disconnectAll()
    try await lab.until("launch \(identifier)")
    let second = SocketApp(lab, Self.manifest, identity)
    let restored = try await second.wait { if case .restored(let state) = $0 { state } else { nil } }
    // The link has ended before the restoration: its device is restored, and the event follows.
    #expect(restored.peers.map(\.peer) == [peer] && restored.peers.map(\.isConnected) == [false])
    try await second.state(.poweredOn)
    try await second.wait { if case .disconnected(peer, _, _, _) = $0 { true } else { nil } }
    try await lab.close()
  }

  @Test func aDaemonThatIsRestarted() async throws {
    let lab = try await ServerLab()
    let app = SocketApp(lab, AppManifest(identifier: "patient"))
    try await app.state(.poweredOn)
    await lab.server.close()
    try await app.wait { if case .adapter(.resetting) = $0 { true } else { nil } }
    let next = AppServer(
      on: lab.loop, adapters: [AppServer.NamedAdapter(name: "sim", adapter: lab.adapter)], logger: .silent)
    try await next.listen(at: lab.path)
    try await app.state(.poweredOn)
    await next.close()
    try await lab.close()
  }

  @Test("An app of another version is refused with a sentence; so is a frame that no app sends")
  func refusals() async throws {
    let lab = try await ServerLab()
    let old = SocketApp(lab, AppManifest(identifier: "old"), versions: MessageVersions(lowest: 4, highest: 9))
    let why = try await old.wait { if case .adapter(.unauthorized(let why)) = $0 { why } else { nil } }
    #expect(
      why
        == "This app has sent version 4 … 9 of the messages; bindruned has 2 … 3: install the same version of both.")
    let app = SocketApp(lab, AppManifest(identifier: "new"))
    try await app.state(.poweredOn)
    for octets in [[UInt8](repeating: 0xFF, count: 64), [1, 0, 0, 0, 9], [0, 0, 0, 0], [5, 0, 0, 0, 1, 1, 2, 3, 4]] {
      let answer = try await ClientBootstrap(group: lab.loop).connect(unixDomainSocketPath: lab.path) { channel in
        channel.eventLoop.makeCompletedFuture {
          try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
        }
      }.executeThenClose { inbound, outbound -> String in
        try await outbound.write(ByteBuffer(bytes: octets))
        var all = ByteBuffer()
        for try await var part in inbound { all.writeBuffer(&part) }
        return String(buffer: all)
      }
      #expect(answer.contains("This app has sent"), "\(octets): \(answer)")
    }
    // The others do not notice.
    _ = try? await app.ask { .readRSSI($0, UUID()) }
    try await lab.close()
  }

  @Test("A manager that is released before the daemon has answered it takes no other of its app with it")
  func releasedEarly() async throws {
    let lab = try await ServerLab(), manifest = AppManifest(identifier: "two")
    let first = SocketApp(lab, manifest)
    try await first.state(.poweredOn)
    for turn in 0..<40 {
      let second = SocketApp(lab, manifest, reconnectsAfter: .hours(1))
      // At every stage: while it connects, greets, and waits for the answer.
      for _ in 0..<turn { await Task.yield() }
      second.session.close()
    }
    try await eventually {
      try await lab.loop.submit { [server = lab.server] in
        server.apps.values.reduce(0) { $0 + $1.connections.count }
      }.get() <= 1
    }
    // It has neither lost its connection nor got another one.
    await #expect(throws: BluetoothError.self) { try await first.ask { .readRSSI($0, UUID()) } }
    let states = first.log.compactMap { if case .adapter(let state) = $0 { state } else { nil } }
    #expect(states.last == .poweredOn)
    #expect(!first.log.contains { if case .adapter(.resetting) = $0 { true } else { false } })
    try await lab.close()
  }

  @Test("No child of this process gets the daemon's or the app's end of a connection, or the listening socket")
  func closedInChildren() async throws {
    let lab = try await ServerLab(), app = SocketApp(lab, AppManifest(identifier: "parent"))
    try await app.state(.poweredOn)
    // unix(7): the listening socket and the daemon's end have the path, of its draft; the app's end is connected to it.
    var found: [Bool] = []
    for number in 3..<CInt(4096) {
      var own = sockaddr_un(), peer = sockaddr_un()
      func isOurs(
        _ call: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt, _ name: inout sockaddr_un
      ) -> Bool {
        var length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let result = unsafe withUnsafeMutablePointer(to: &name) {
          unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe call($0, &length) }
        }
        guard result == 0, name.sun_family == sa_family_t(AF_UNIX) else { return false }
        let text = unsafe withUnsafeBytes(of: &name.sun_path) {
          unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        return text == lab.path + "~"
      }
      guard
        unsafe isOurs({ unsafe getsockname(number, $0, $1) }, &own)
          || isOurs({ unsafe getpeername(number, $0, $1) }, &peer)
      else {
        continue
      }
      found.append(fcntl(number, F_GETFD) & FD_CLOEXEC != 0)
    }
    #expect(found == [true, true, true])
    try await lab.close()
  }

  /// After bluez/bluez#2383.
  @Test("The daemon subscribes by the configuration alone: another only descriptor is read, and not written")
  func onlyDescriptor() async throws {
    var builder = DatabaseBuilder(), handles: [(value: AttributeHandle, descriptor: AttributeHandle)] = []
    builder.genericAccess(name: "Belt")
    let start = builder.service("180D") { service in
      for uuid in ["2900", "2901", "2903", "2904", "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F"] as [BluetoothUUID] {
        let value = service.characteristic("2A37", [.notify, .indicate], configured: false).value
        let permissions = AttributePermissions(read: .open, write: .open)
        handles.append((value, service.descriptor(uuid, value: .stored([9, 9]), permissions: permissions)))
      }
      return AttributeHandle(rawValue: handles[0].value.rawValue - 2)
    }
    let lab = try await ServerLab(), device = try await lab.host(try builder.build())
    try await device.advertiseAsSensor()
    let peer = UUID(PeerID(await device.ownAddress)), app = SocketApp(lab, Self.manifest)
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions()))
    try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    _ = try await app.ask { .discoverServices($0, peer, nil) }
    _ = try await app.ask { .discoverCharacteristics($0, peer, start, nil) }
    for (value, descriptor) in handles {
      for _ in 0..<2 {
        do {
          _ = try await app.ask { .setNotifying($0, peer, value, true) }
          Issue.record("subscribed by \(descriptor)")
        } catch let error as BluetoothError {
          #expect(error.code == .invalidArgument, "\(error)")
        }
      }
      guard case .descriptors(let found) = try await app.ask({ .discoverDescriptors($0, peer, value) }) else {
        Issue.record("no descriptors")
        return
      }
      #expect(found.map(\.handle) == [descriptor] && found.first?.uuid != "2902")
      #expect(try await app.ask { .read($0, peer, descriptor) } == .value(Data([9, 9])))
    }
    try await lab.close()
  }

  @Test("An app updates none of another app's characteristics, and silences none of its subscriptions")
  func apart() async throws {
    let lab = try await ServerLab(), sensor = try Sensor(), device = try await lab.host(sensor.database)
    try await device.advertiseAsSensor()
    let peer = UUID(PeerID(await device.ownAddress))
    // Two centrals on one link: the first subscribes.
    let first = SocketApp(lab, AppManifest(identifier: "first")),
      second = SocketApp(lab, AppManifest(identifier: "second"))
    for app in [first, second] {
      try await app.state(.poweredOn)
      app.session.send(.connect(peer, ConnectOptions()))
      try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
      _ = try await app.ask { .discoverServices($0, peer, nil) }
    }
    _ = try await first.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }
    _ = try await first.ask { .setNotifying($0, peer, sensor.measurement, true) }
    let configuration = AttributeHandle(rawValue: sensor.measurement.rawValue + 1), off = Data([0, 0])
    await #expect(throws: BluetoothError.self) { try await second.ask { .write($0, peer, configuration, off) } }
    let commands = try #require(second.session.port(.command, of: peer))
    #expect(commands.offer([0, 0], to: configuration) && commands.offer([7], to: sensor.location))
    // The second has not found these characteristics.
    let handles = [sensor.measurement, sensor.location, sensor.control, configuration]
    for handle in handles {
      for request: (OperationID) -> BrokerRequest.Central in [
        { .read($0, peer, handle) }, { .write($0, peer, handle, Data([9])) }, { .setNotifying($0, peer, handle, true) },
        { .setNotifying($0, peer, handle, false) }, { .discoverDescriptors($0, peer, handle) },
        { .discoverCharacteristics($0, peer, handle, nil) }, { .discoverIncludedServices($0, peer, handle, nil) },
      ] {
        let error = await #expect(throws: BluetoothError.self) { try await second.ask(request) }
        #expect(error?.code == .invalidArgument && error?.diagnostics.contains("discover first") == true)
      }
    }
    _ = try await second.ask { .discoverCharacteristics($0, peer, sensor.service, ["2A38"]) }
    await #expect(throws: BluetoothError.self) { try await second.ask { .read($0, peer, sensor.measurement) } }
    // Behind both values above.
    #expect(try await second.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    _ = try await second.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }
    _ = try await second.ask { .discoverDescriptors($0, peer, sensor.measurement) }
    await #expect(throws: BluetoothError.sharedConfiguration("2902")) {
      try await second.ask { .write($0, peer, configuration, off) }
    }
    #expect(try await second.ask { .read($0, peer, configuration) } == .value(Data([1, 0])))
    #expect(commands.offer([8], to: sensor.location))
    #expect(try await second.ask { .read($0, peer, sensor.location) } == .value(Data([8])))
    let deviceLink = try #require(await device.links.first)
    let out = try await deviceLink.sendPort(.notification, to: sensor.measurement)
    #expect(out.offer([72]))
    let value = try await first.wait { event -> [UInt8]? in
      if case .values(peer, sensor.measurement, let values) = event { values.map { Array($0) }.first } else { nil }
    }
    #expect(value == [72])

    // Two peripherals with one client: each updates its own.
    var pulses: [Pulse] = []
    for app in [first, second] {
      guard case .published(let service) = try await app.ask({ .addService($0, Pulse.description) }) else {
        Issue.record("not published")
        return
      }
      pulses.append(Pulse(service: service))
    }
    _ = try await first.ask { .startAdvertising($0, localName: "Pulse", services: ["180D"]) }
    let phone = try await lab.host(Database()), adapter = lab.adapter
    let own = try await adapter.eventLoop.submit { adapter.host?.assumeIsolated { $0.ownAddress } }.get()
    let link = try await phone.connect(to: try #require(own), .fast)
    _ = try await link.discover()
    let values = try await link.subscribe(to: try await link.characteristic(pulses[0].measurement))
    let others = try await link.subscribe(to: try await link.characteristic(pulses[1].measurement))
    func subscriber(_ app: SocketApp) async throws -> UUID {
      try await app.wait { if case .subscribed(let central, _, _) = $0 { central } else { nil } }
    }
    let client = try await subscriber(first)
    #expect(try await subscriber(second) == client)
    let updates = try #require(second.session.port(.notification, of: client))
    #expect(updates.offer([66], to: pulses[0].measurement) && updates.offer([2], to: pulses[1].measurement))
    for try await value in others {
      #expect(value.value == [2])
      break
    }
    #expect(first.session.port(.notification, of: client)?.offer([1], to: pulses[0].measurement) == true)
    for try await value in values {
      #expect(value.value == [1], "the second app's value was the first one's")
      break
    }
    withExtendedLifetime((phone, device)) {}
    try await lab.close()
  }

  @Test("What is one for all apps of a link, no app writes: 2902, 2903, 2B29, and Service Changed stays subscribed to")
  func sharedAttributes() async throws {
    let lab = try await ServerLab()
    var builder = DatabaseBuilder(), broadcast = AttributeHandle(), value = AttributeHandle()
    builder.genericAccess(name: "Belt")
    builder.genericAttribute()
    builder.service("180D") { service in
      value = service.characteristic("2A37", [.notify, .write, .writeWithoutResponse], value: .stored([0])).value
      broadcast = service.descriptor(
        "2903", value: .stored([0, 0]), permissions: AttributePermissions(read: .open, write: .open))
    }
    let database = try builder.build(), device = try await lab.host(database)
    func handle(_ uuid: BluetoothUUID) throws -> AttributeHandle {
      try #require(database.allAttributes.first { $0.type == uuid }).handle
    }
    let features = try handle("2B29"), changed = try handle("2A05")
    try await device.advertiseAsSensor()
    let peer = UUID(PeerID(await device.ownAddress))
    let first = SocketApp(lab, AppManifest(identifier: "first")),
      second = SocketApp(lab, AppManifest(identifier: "second"))
    for app in [first, second] {
      try await app.state(.poweredOn)
      app.session.send(.connect(peer, ConnectOptions()))
      try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
      guard case .services(let services) = try await app.ask({ .discoverServices($0, peer, nil) }) else {
        Issue.record("no services")
        return
      }
      for service in services { _ = try await app.ask { .discoverCharacteristics($0, peer, service.handle, nil) } }
      for value in [value, changed] { _ = try await app.ask { .discoverDescriptors($0, peer, value) } }
    }
    let known = try await second.ask { .read($0, peer, features) }
    for (handle, uuid) in [(features, "2B29"), (broadcast, "2903"), (try handle("2902"), "2902")]
      as [(AttributeHandle, BluetoothUUID)]
    {
      await #expect(throws: BluetoothError.sharedConfiguration(uuid)) {
        try await second.ask { .write($0, peer, handle, Data([1, 0])) }
      }
    }
    let commands = try #require(second.session.port(.command, of: peer))
    #expect(
      commands.offer([7], to: features) && commands.offer([1, 0], to: broadcast) && commands.offer([5], to: value))
    #expect(try await second.ask { .read($0, peer, broadcast) } == .value(Data([0, 0])))
    #expect(try await second.ask { .read($0, peer, features) } == known)
    #expect(await device.database.value(value) == [5])
    // The first app, and the second itself, learn of changes after the second has lost its interest in them.
    _ = try await second.ask { .setNotifying($0, peer, changed, true) }
    _ = try await second.ask { .setNotifying($0, peer, changed, false) }
    var more = DatabaseBuilder(after: await device.database)
    more.service("1805") { service in service.characteristic("2A2B", .read, value: [1]) }
    try await device.insert(more)
    for app in [first, second] { try await app.wait { if case .servicesChanged(peer, _) = $0 { true } else { nil } } }
    withExtendedLifetime(device) {}
    try await lab.close()
  }
}
