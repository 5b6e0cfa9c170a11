import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Peers that reveal their identity while a link with them is up.
@Suite(.virtualTime, .hang) struct IdentityTests {
  private let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)

  /// A sensor that changes its address every five seconds, and its identity address.
  private func privateSensor(_ room: Room) async throws -> (sensor: Sensor, host: BluetoothHost, identity: PeerAddress)
  {
    let sensor = try Sensor()
    var configuration = HostConfiguration()
    configuration.addressPolicy = .resolvable(irk, rotation: .seconds(5))
    let host = BluetoothHost(room.radio.controller(), configuration: configuration, database: sensor.database)
    try await host.start()
    try await host.advertiseAsSensor()
    return (sensor, host, await host.identityAddress)
  }
  /// Once the GAP service's name was read it stays: an advertisement may have a shortened one.
  @Test func namesThatWereReadStay() {
    var names = PeerNames()
    let (one, two) = (PeerID(PeerAddress(DeviceAddress(1), .public)), PeerID(PeerAddress(DeviceAddress(2), .public)))
    #expect(names.set("Be", of: one) && !names.set("Be", of: one) && names.set("Belt", of: one))
    #expect(names.setRead("My Belt", of: one) && !names.setRead("My Belt", of: one))
    #expect(!names.set("Belt", of: one) && names[one] == "My Belt")
    #expect(names.setRead("My new Belt", of: one) && names[one] == "My new Belt")
    let isSet = names.set("Be", of: two)
    #expect(isSet)
    names.merge(one, into: two)
    #expect(!names.set("Be", of: two) && names[two] == "My new Belt")
  }

  /// The peer of the adapter's only link reveals its identity.
  private func identify(_ adapter: Adapter, as identity: PeerAddress) async throws {
    let irk = irk
    try await adapter.eventLoop.submit {
      adapter.withHost { host in
        do {
          try host.identify(adapter.core.links.all[0].id, as: identity, irk: irk)
        } catch {
          Issue.record(error)
        }
      }
    }.get()
  }
  private func found(_ probe: Probe) async throws -> UUID {
    probe.send(.scan(services: ["180D"], solicitedServices: [], allowsDuplicates: true))
    defer { probe.send(.stopScan) }
    return try await probe.wait("discovery") { if case .discovered(let found) = $0 { found.peer } else { nil } }
  }

  /// A session's identifier for a device stays the same on the link and afterwards, whatever address the device uses.
  @Test func aLinkLearnsWhoItsPeerIs() async throws {
    let room = Room(), (sensor, host, identity) = try await privateSensor(room)
    let probe = try await Probe.poweredOn(room.adapter()), peer = try await found(probe)
    #expect(peer != UUID(PeerID(identity)))
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    try await probe.ask { .discoverServices($0, peer, nil) }
    try await probe.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }
    try await probe.ask { .discoverDescriptors($0, peer, sensor.measurement) }
    try await probe.ask { .setNotifying($0, peer, sensor.measurement, true) }

    try await identify(probe.adapter, as: identity)
    await host.notify([0, 61], of: sensor.measurement)
    try await probe.wait("value") {
      if case .values(peer, sensor.measurement, [Data([0, 61])]) = $0 { true } else { nil }
    }
    #expect(try await probe.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    #expect(probe.session.port(.command, of: peer) != nil)
    probe.send(.cancelConnection(peer))
    #expect(try await probe.disconnected(peer).error == nil)

    // The session finds the device at another address under the same identifier, and connects to it.
    let before = await host.ownAddress
    try await VirtualLoop.current.scheduleTask(in: .seconds(6)) {}.futureResult.get()
    #expect(await host.ownAddress != before)
    #expect(try await found(probe) == peer)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(try await probe.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
  }

  /// One session has requested a device by its identity address, another is connected to the same device by a private
  /// address. When the identity is revealed, each session keeps its own identifier.
  @Test func twoNamesOfOneDevice() async throws {
    let room = Room(), (sensor, host, identity) = try await privateSensor(room)
    let one = try await Probe.poweredOn(room.adapter()), two = try await Probe.poweredOn(one.adapter)
    let known = UUID(PeerID(identity)), peer = try await found(one)
    two.send(.connect(known, ConnectOptions()))
    one.send(.connect(peer, ConnectOptions()))
    try await one.connected(peer)
    try await identify(one.adapter, as: identity)
    try await two.connected(known)
    try await two.ask { .discoverServices($0, known, nil) }
    #expect(try await two.ask { .read($0, known, sensor.location) } == .value(Data([2])))
    #expect(try await one.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    // A session that has the device and requests it by the second identifier gets `.busy` with the first.
    one.send(.connect(known, ConnectOptions()))
    try await one.wait("failure") {
      if case .connectionFailed(known, let error) = $0, error.code == .busy { true } else { nil }
    }
    await host.disconnectAll()
    #expect(try await two.disconnected(known).error != nil)
    #expect(try await one.disconnected(peer).error != nil)
    try await eventually {
      try await one.adapter.eventLoop.submit { one.adapter.core.central.reaches.isEmpty }.get()
    }
  }
}
