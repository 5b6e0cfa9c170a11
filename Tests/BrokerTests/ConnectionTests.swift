import Foundation
import NIOCore
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

@Suite(.virtualTime, .hang) struct ConnectionTests {
  /// S112, and the header: the error is nil only after the session's own cancel, and the link is down by then.
  @Test func connectsAndCancels() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor())
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(
      try await probe.history().contains {
        if case .linkedPeers(let all) = $0 { all.map(\.peer) == [peer] } else { false }
      })
    // A second request gets a second answer.
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    probe.send(.cancelConnection(peer))
    let end = try await probe.disconnected(peer)
    #expect(end.error == nil && !end.isReconnecting && abs(end.seconds - Date().timeIntervalSinceReferenceDate) < 60)
    #expect(probe.session.port(.command, of: peer) == nil)
    #expect(try await probe.adapter.eventLoop.submit { probe.adapter.core.links.all.isEmpty }.get())
    #expect(try await probe.errorCode { .readRSSI($0, peer) } == .disconnected)
    // Cancelling and connecting at once: the end of the first, then the second connection.
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    probe.send(.cancelConnection(peer))
    probe.send(.connect(peer, ConnectOptions()))
    #expect(try await probe.disconnected(peer).error == nil)
    try await probe.connected(peer)
    // One end for each request: of the link, and of the connection that was requested meanwhile and cancelled.
    probe.send(.cancelConnection(peer))
    probe.send(.connect(peer, ConnectOptions()))
    probe.send(.cancelConnection(peer))
    for _ in 0..<2 { #expect(try await probe.disconnected(peer).error == nil) }
    try await eventually {
      try await probe.adapter.eventLoop.submit { probe.adapter.core.central.reaches.isEmpty }.get()
    }
    withExtendedLifetime(host) {}
  }
  /// A device that has lost the key of the bond: the link ends with the error that says so.
  @Test(arguments: [false, true]) func theKeyIsLost(reconnects: Bool) async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor())
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    let link = try #require(await host.links.first)
    #expect(try await link.pair().isBonded)
    probe.send(.cancelConnection(peer))
    #expect(try await probe.disconnected(peer).error == nil)
    for bond in await host.bonds { #expect(await host.removeBond(with: bond.peer)) }
    probe.send(.connect(peer, ConnectOptions(reconnects: reconnects)))
    let (error, isReconnecting) = try await probe.wait("the end") { event -> (BluetoothError?, Bool)? in
      switch event {
      case .disconnected(peer, let error, let isReconnecting, _): (error, isReconnecting)
      case .connectionFailed(peer, let error): (error, false)
      default: nil
      }
    }
    #expect(error?.code == .pairing && error?.status == .pinOrKeyMissing && !isReconnecting)
    try await probe.waitForEvents()
    #expect(try await probe.adapter.eventLoop.submit { probe.adapter.core.links.all.isEmpty }.get())
    withExtendedLifetime(host) {}
  }
  @Test func waitsForAsLongAsItTakes() async throws {
    let room = Room(), host = try await room.host(try Sensor().database), peer = UUID(PeerID(await host.ownAddress))
    let one = try await Probe.poweredOn(room.adapter()), two = try await Probe.poweredOn(one.adapter)
    one.send(.connect(peer, ConnectOptions()))
    two.send(.connect(peer, ConnectOptions()))
    // Cancelled while it waits.
    one.send(.cancelConnection(peer))
    #expect(try await one.disconnected(peer).error == nil)
    one.send(.connect(peer, ConnectOptions()))
    one.send(.cancelConnection(peer))
    two.send(.cancelConnection(peer))
    two.send(.connect(peer, ConnectOptions()))
    try await two.waitForEvents()
    try await host.advertiseAsSensor()
    try await two.connected(peer)
    try await one.waitForEvents()
    #expect(!(try await one.history().contains { if case .connected = $0 { true } else { false } }))
    // A session may cancel a connection that it never requested; no event follows.
    func ends() async throws -> Int {
      try await one.history().filter { if case .disconnected = $0 { true } else { false } }.count
    }
    let count = try await ends()
    one.send(.cancelConnection(UUID()))
    one.send(.cancelConnection(UUID(PeerID(PeerAddress(DeviceAddress(5), .public)))))
    try await one.waitForEvents()
    #expect(try await ends() == count)
  }
  @Test func foreignIdentifiers() async throws {
    let probe = try await Probe.poweredOn(Room().adapter()), stranger = UUID()
    probe.send(.connect(stranger, ConnectOptions()))
    try await probe.wait("failure") {
      if case .connectionFailed(stranger, let error) = $0, error.code == .invalidArgument { true } else { nil }
    }
  }

  /// One link for two sessions: it ends with the last one.
  @Test func sessionsShareALink() async throws {
    let room = Room(), sensor = try Sensor(), (host, peer) = try await room.sensor(sensor)
    let one = try await Probe.poweredOn(room.adapter()), two = try await Probe.poweredOn(one.adapter)
    one.send(.connect(peer, ConnectOptions()))
    try await one.connected(peer)
    two.send(.connect(peer, ConnectOptions()))
    try await two.connected(peer)
    #expect(try await one.adapter.eventLoop.submit { one.adapter.core.links.all.count }.get() == 1)
    #expect(one.session.port(.command, of: peer) !== two.session.port(.command, of: peer))
    one.send(.cancelConnection(peer))
    #expect(try await one.disconnected(peer).error == nil)
    #expect(try await two.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    #expect(try await one.errorCode { .read($0, peer, sensor.location) } == .disconnected)
    two.session.close()
    try await eventually { try await one.adapter.eventLoop.submit { one.adapter.core.links.all.isEmpty }.get() }
    #expect(!(try await two.history().contains { if case .disconnected = $0 { true } else { false } }))
    withExtendedLifetime(host) {}
  }

  /// The peer ends it: the event has the reason, and a session that wants to reconnect gets a new link.
  @Test func reconnects() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor())
    let one = try await Probe.poweredOn(room.adapter()), two = try await Probe.poweredOn(one.adapter)
    one.send(.connect(peer, ConnectOptions(reconnects: true)))
    two.send(.connect(peer, ConnectOptions()))
    try await one.connected(peer)
    try await two.connected(peer)
    for _ in 0..<3 {
      await host.disconnectAll()
      let end = try await one.disconnected(peer)
      #expect(
        end.error?.code == .disconnected && end.error?.status == .remoteUserTerminatedConnection && end.isReconnecting)
      try await one.connected(peer)
    }
    let end = try await two.disconnected(peer)
    #expect(end.error != nil && !end.isReconnecting)
    one.send(.cancelConnection(peer))
    #expect(try await one.disconnected(peer).error == nil)
    try await two.waitForEvents()
    #expect(try await two.history().filter { if case .disconnected = $0 { true } else { false } }.count == 1)
  }
  /// A silent device: the link times out, and its end covers the requests that waited on it.
  @Test func theEndCoversWhatWaits() async throws {
    let room = Room(), sensor = try Sensor(), (host, peer) = try await room.sensor(sensor)
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    let ids = (0..<20).map { _ in probe.newID() }
    await host.close()
    for id in ids { probe.send(.read(id, peer, sensor.long)) }
    try await probe.disconnected(peer)
    try await probe.waitForEvents()
    let events = try await probe.history()
    let end = try #require(events.firstIndex { if case .disconnected = $0 { true } else { false } })
    for (index, event) in events.enumerated() {
      guard case .completed(let id, let result) = event, ids.contains(id) else { continue }
      // Answered before, or not sent afterwards.
      if index < end {
        #expect(throws: Never.self) { try result.get() }
      } else {
        #expect(throws: BluetoothError.self) { try result.get() }
      }
    }
  }

  @Test func delayed() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor())
    let probe = try await Probe.poweredOn(room.adapter())
    let begin = VirtualLoop.current.now
    probe.send(.connect(peer, ConnectOptions(startDelay: 0.2)))
    try await probe.connected(peer)
    #expect(VirtualLoop.current.now - begin >= .milliseconds(200))
    probe.send(.cancelConnection(peer))
    try await probe.disconnected(peer)
    // Cancelled before it begins, and with an unlimited delay.
    for delay in [3600, .infinity, 1e300] {
      probe.send(.connect(peer, ConnectOptions(startDelay: delay)))
      probe.send(.cancelConnection(peer))
      #expect(try await probe.disconnected(peer).error == nil)
    }
    probe.send(.connect(peer, ConnectOptions(startDelay: .nan)))
    try await probe.connected(peer)
    withExtendedLifetime(host) {}
  }

  /// A session may use a link that a central has made, but cannot end it.
  @Test func theOtherSidesLink() async throws {
    let room = Room(), adapter = room.adapter(), probe = try await Probe.poweredOn(adapter)
    let sensor = try Sensor(), host = try await room.host(sensor.database), peer = UUID(PeerID(await host.ownAddress))
    let own = try #require(try await adapter.eventLoop.submit { adapter.host }.get())
    try await own.advertiseAsSensor()
    // The session's request waits already when the link comes.
    probe.send(.connect(peer, ConnectOptions()))
    let link = try await host.connect(to: own.ownAddress)
    try await probe.connected(peer)
    #expect(try await probe.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    probe.send(.cancelConnection(peer))
    #expect(try await probe.disconnected(peer).error == nil)
    // And again, at once.
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(await link.parameters != nil)
    try await link.disconnect()
    #expect(try await probe.disconnected(peer).error != nil)
  }

  /// More devices than the controller's list holds: they take turns, and none is forgotten.
  @Test func moreThanThereIsRoomFor() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor())
    let probe = try await Probe.poweredOn(room.adapter())
    let absent = (1...70).map { UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0000 + UInt64($0)), .random))) }
    for peer in absent { probe.send(.connect(peer, ConnectOptions())) }
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    for peer in absent {
      probe.send(.cancelConnection(peer))
      #expect(try await probe.disconnected(peer).error == nil)
    }
    try await eventually {
      try await probe.adapter.eventLoop.submit { probe.adapter.core.central.connects.isEmpty }.get()
    }
    withExtendedLifetime(host) {}
  }

  /// The controller has no room for another link: the session gets an error, and the others keep their links.
  @Test func theControllersLimit() async throws {
    let room = Room(), (one, first) = try await room.sensor(try Sensor()),
      (two, second) = try await room.sensor(try Sensor())
    let probe = try await Probe.poweredOn(
      room.adapter { loop async throws(TransportError) in
        var configuration = ControllerConfiguration()
        configuration.maximumConnections = 1
        return room.radio.controller(configuration)
      })
    probe.send(.connect(first, ConnectOptions()))
    try await probe.connected(first)
    probe.send(.connect(second, ConnectOptions()))
    try await probe.wait("failure") {
      if case .connectionFailed(second, let error) = $0, error.code == .connectionLimitReached { true } else { nil }
    }
    probe.send(.cancelConnection(first))
    try await probe.disconnected(first)
    probe.send(.connect(second, ConnectOptions()))
    try await probe.connected(second)
    withExtendedLifetime((one, two)) {}
  }
  /// A device with the least ATT_MTU, 23 (Vol 3, Part F, §3.2.8), causes no event of a change.
  @Test func theLeastMTU() async throws {
    let room = Room(), sensor = try Sensor()
    var configuration = HostConfiguration()
    configuration.preferredMTU = 23
    let host = BluetoothHost(room.radio.controller(), configuration: configuration, database: sensor.database)
    try await host.start()
    try await host.advertiseAsSensor()
    let peer = UUID(PeerID(await host.ownAddress)), probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    #expect(try await probe.connected(peer) == 20)
    #expect(try await probe.ask { .read($0, peer, sensor.long) } == .value(Data(Sensor.longValue)))
    withExtendedLifetime(host) {}
  }

  /// The device did not receive the connection request, 0x3E (Vol 6, Part B, §4.5): no event follows, and the adapter
  /// connects again. A device that ends the link before it has answered anything is a failure, with its reason. The
  /// test makes up the host's events for these links.
  @Test func notEstablished() async throws {
    let absent = PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)), peer = UUID(absent)
    let adapter = Room().adapter(), probe = try await Probe.poweredOn(adapter)
    func isDown(_ number: UInt32, _ reason: HCIStatus) async throws {
      try await adapter.eventLoop.submit {
        adapter.withHost { host in
          let link = Link(id: LinkID(rawValue: number), peer: absent, role: .central, host: host, ending: Ending())
          adapter.host(host, did: .server(.connected(link)))
          adapter.host(host, did: .server(.disconnected(link.id, reason)))
        }
      }.get()
    }
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.waitForEvents()
    try await isDown(1001, .connectionFailedToBeEstablished)
    try await probe.waitForEvents()
    #expect(try await adapter.eventLoop.submit { adapter.core.central.reaches[absent] != nil }.get())
    let events = try await probe.history().filter {
      switch $0 {
      case .connected, .connectionFailed, .disconnected: true
      default: false
      }
    }
    #expect(events.isEmpty)
    try await isDown(1002, .remoteUserTerminatedConnection)
    let error = try await probe.wait("failure") {
      if case .connectionFailed(peer, let error) = $0 { error } else { nil }
    }
    #expect(error.status == .remoteUserTerminatedConnection)
    try await eventually { try await adapter.eventLoop.submit { adapter.core.central.reaches.isEmpty }.get() }
  }

  /// The end of the process: the peer sees a disconnection, as fast as a link ends.
  @Test func shutDown() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor()), adapter = room.adapter()
    let probe = try await Probe.poweredOn(adapter), events = await host.events
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    await withCheckedContinuation { continuation in adapter.shutDown { continuation.resume() } }
    #expect(!(try await probe.history().contains { if case .disconnected = $0 { true } else { false } }))
    for try await event in events {
      guard case .disconnected(_, let reason) = event else { continue }
      #expect(reason == .remoteUserTerminatedConnection)
      break
    }
    // Again, and for an adapter that never started: both return at once.
    for adapter in [adapter, room.adapter()] {
      await withCheckedContinuation { continuation in adapter.shutDown { continuation.resume() } }
    }
  }
}
