import Foundation
import BindruneGATT
import TestSupport
import Testing

@testable import BindruneBroker

@Suite(.virtualTime, .hang) struct ScanTests {
  /// S106, S108, S110: every device once, and again with the data of its scan response.
  @Test func everybodyOnce() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor(), name: "Sensor")
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.scan(services: [], solicitedServices: [], allowsDuplicates: false))
    let found = try await probe.wait("discovery") { if case .discovered(let found) = $0 { found } else { nil } }
    #expect(found.peer == peer && found.name == "Sensor" && found.localName == "Sensor")
    #expect(found.services == ["180D"] && found.isConnectable && found.rssi != nil)
    #expect(abs(found.seconds - Date().timeIntervalSinceReferenceDate) < 60)
    // Another device appears: by then the first would have been reported many times.
    try await host.advertise(
      AdvertisingData(localName: "Other"), AdvertisingParameters(interval: .every(.milliseconds(20))),
      as: AdvertisingSetID(rawValue: 7))
    let (other, _) = try await room.sensor(try Sensor(), name: "Third")
    try await probe.wait("the third") {
      if case .discovered(let found) = $0, found.name == "Third" { true } else { nil }
    }
    let first = try await probe.history().filter {
      if case .discovered(let found) = $0 { found.peer == peer } else { false }
    }
    #expect(first.count <= 2)
    withExtendedLifetime((host, other)) {}
  }
  /// S107, S111, and with duplicates.
  @Test func withServicesAndDuplicates() async throws {
    let room = Room(), (sensor, peer) = try await room.sensor(try Sensor())
    let other = try await room.host(Database())
    try await other.advertise(
      AdvertisingData(localName: "Other", serviceUUIDs: ["180F"]),
      AdvertisingParameters(interval: .every(.milliseconds(20))))
    let one = try await Probe.poweredOn(room.adapter())
    let two = try await Probe.poweredOn(one.adapter)
    one.send(.scan(services: ["180D"], solicitedServices: [], allowsDuplicates: true))
    two.send(.scan(services: ["180F"], solicitedServices: ["180D"], allowsDuplicates: false))
    for _ in 0..<5 {
      let found = try await one.wait("discovery") { if case .discovered(let found) = $0 { found.peer } else { nil } }
      #expect(found == peer)
    }
    let found = try await two.wait("discovery") { if case .discovered(let found) = $0 { found } else { nil } }
    #expect(found.name == "Other")
    // The second scan replaces the first: it does not report the sensor.
    one.send(.scan(services: ["180F"], solicitedServices: [], allowsDuplicates: true))
    try await one.wait("the other") { if case .discovered(let found) = $0, found.name == "Other" { true } else { nil } }
    let log = try await one.history()
    let turn = try #require(
      log.firstIndex { if case .discovered(let found) = $0 { found.name == "Other" } else { false } })
    #expect(!log[turn...].contains { if case .discovered(let found) = $0 { found.peer == peer } else { false } })
    one.send(.stopScan)
    try await one.waitForEvents()
    let count = try await one.history().count
    two.send(.scan(services: [], solicitedServices: [], allowsDuplicates: true))
    for _ in 0..<5 { try await two.wait("discovery") { if case .discovered = $0 { true } else { nil } } }
    #expect(try await one.history().count == count)
    withExtendedLifetime((sensor, other)) {}
  }
  @Test func solicitors() async throws {
    let room = Room(), host = try await room.host(Database())
    var data = AdvertisingData(localName: "Lonely")
    data.solicitedServiceUUIDs = ["1805"]
    try await host.advertise(data, AdvertisingParameters(interval: .every(.milliseconds(20))))
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.scan(services: ["180D"], solicitedServices: ["1805"], allowsDuplicates: false))
    let found = try await probe.wait("discovery") { if case .discovered(let found) = $0 { found } else { nil } }
    #expect(found.solicitedServices == ["1805"] && found.name == "Lonely")
    withExtendedLifetime(host) {}
  }
}

@Suite(.virtualTime, .hang) struct OperationTests {
  /// A connected session, and the sensor's host.
  func connected(_ sensor: Sensor) async throws -> (Probe, BluetoothHost, UUID) {
    let room = Room(), (host, peer) = try await room.sensor(sensor)
    let probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    // 517, the greatest ATT_MTU, less three; a value has 512 at most. Vol 3, Part F, §3.2.9.
    #expect(try await probe.connected(peer) == 514)
    return (probe, host, peer)
  }
  func services(_ probe: Probe, _ peer: UUID, _ wanted: [BluetoothUUID]? = nil) async throws -> [FoundService] {
    guard case .services(let found) = try await probe.ask({ .discoverServices($0, peer, wanted) }) else {
      throw CancellationError()
    }
    return found
  }
  func characteristics(_ probe: Probe, _ peer: UUID, _ service: FoundService, _ wanted: [BluetoothUUID]? = nil)
    async throws -> [FoundCharacteristic]
  {
    let answer = try await probe.ask { .discoverCharacteristics($0, peer, service.handle, wanted) }
    guard case .characteristics(let found) = answer else { throw CancellationError() }
    return found
  }

  /// S114 to S118.
  @Test func discovers() async throws {
    let sensor = try Sensor(), (probe, host, peer) = try await connected(sensor)
    let all = try await services(probe, peer)
    #expect(
      all.map(\.uuid) == ["1800", "1801", "180D", "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F"] && all.allSatisfy(\.isPrimary)
    )
    #expect(try await services(probe, peer, []).count == 4)
    #expect(
      try await services(probe, peer, ["A4E649F4-4BE5-11E5-885D-FEFF819CDC9F", "180D", "1234"]).map(\.uuid)
        == all[2...].map(\.uuid))
    #expect(try await services(probe, peer, ["1234"]).isEmpty)
    #expect(try await services(probe, peer, ["AAA1", "AAA2", "AAA3", "180D"]).map(\.uuid) == ["180D"])
    let found = try await characteristics(probe, peer, all[2])
    #expect(found.map(\.handle) == [sensor.measurement, sensor.location, sensor.control])
    #expect(found[0].properties == .notify && found[1].properties == [.read, .write, .writeWithoutResponse])
    #expect(try await characteristics(probe, peer, all[2], ["2A39"]).map(\.handle) == [sensor.control])
    #expect(try await probe.ask { .discoverIncludedServices($0, peer, all[2].handle, nil) } == .includedServices([]))
    guard
      case .descriptors(let descriptors) = try await probe.ask({ .discoverDescriptors($0, peer, sensor.measurement) })
    else {
      Issue.record("no descriptors")
      return
    }
    #expect(descriptors.map(\.uuid) == ["2902"])
    #expect(try await probe.ask { .discoverDescriptors($0, peer, sensor.control) } == .descriptors([]))
    // Undiscovered services, and invalid ones.
    #expect(try await probe.errorCode { .discoverDescriptors($0, peer, sensor.long) } == .invalidArgument)
    #expect(
      try await probe.errorCode { .discoverCharacteristics($0, peer, sensor.measurement, nil) } == .invalidArgument)
    #expect(try await probe.errorCode { .setNotifying($0, peer, sensor.long, true) } == .invalidArgument)
    withExtendedLifetime(host) {}
  }
  @Test func includedServices() async throws {
    var builder = DatabaseBuilder()
    let battery = builder.service("180F", .secondary) { service in
      service.characteristic("2A19", .read, value: [9])
    }
    _ = battery
    let pending = try builder.build()
    let secondary = try #require(pending.allAttributes.first).handle
    builder.service("180D") { service in service.include(secondary) }
    let room = Room(), host = try await room.host(try builder.build())
    try await host.advertiseAsSensor()
    let peer = UUID(PeerID(await host.ownAddress)), probe = try await Probe.poweredOn(room.adapter())
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    let found = try await services(probe, peer)
    #expect(found.map(\.uuid) == ["180D"])
    guard
      case .includedServices(let included) = try await probe.ask({
        .discoverIncludedServices($0, peer, found[0].handle, nil)
      })
    else {
      Issue.record("no included services")
      return
    }
    #expect(included.map(\.uuid) == ["180F"] && included.map(\.handle) == [secondary])
    #expect(
      try await probe.ask { .discoverIncludedServices($0, peer, found[0].handle, ["180A"]) } == .includedServices([]))
    withExtendedLifetime(host) {}
  }

  /// S119 to S122, S126 to S128.
  @Test func readsAndWrites() async throws {
    let sensor = try Sensor(), (probe, host, peer) = try await connected(sensor)
    #expect(try await probe.ask { .read($0, peer, sensor.location) } == .value(Data([2])))
    #expect(try await probe.ask { .read($0, peer, sensor.long) } == .value(Data(Sensor.longValue)))
    let other = Data(Sensor.longValue.reversed())
    #expect(try await probe.ask { .write($0, peer, sensor.long, other) } == .done)
    #expect(await host.database.value(sensor.long) == [UInt8](other))
    let id = probe.newID()
    probe.send(.read(id, peer, sensor.control))
    guard case .failure(let error) = try await probe.completion(of: id) else {
      Issue.record("it was read")
      return
    }
    #expect(error.code == .att && error.attError == .readNotPermitted)
    #expect(try await probe.errorCode { .write($0, peer, sensor.silent, Data([1])) } == .att)
    #expect(try await probe.errorCode { .write($0, peer, sensor.long, Data(count: 513)) } == .invalidArgument)
    guard case .rssi(let rssi) = try await probe.ask({ .readRSSI($0, peer) }) else { return }
    #expect(rssi.map { (-127...20).contains($0) } == true)
    // Writes without a response, in order with those with one.
    let port = try #require(probe.session.port(.command, of: peer))
    #expect(port.offer([7], to: sensor.location))
    try await eventually { await host.database.value(sensor.location) == [7] }
    withExtendedLifetime(host) {}
  }
  /// A port that has refused a value reports once that it is ready again; all values that it accepted arrive.
  @Test func readyToWrite() async throws {
    let sensor = try Sensor(), (probe, host, peer) = try await connected(sensor)
    let port = try #require(probe.session.port(.command, of: peer))
    var sent = 0
    while port.offer([UInt8](repeating: UInt8(truncatingIfNeeded: sent), count: 200), to: sensor.location) { sent += 1 }
    #expect(sent > 0)
    try await probe.wait("ready") { if case .readyToWrite(peer) = $0 { true } else { nil } }
    #expect(port.isReady())
    withExtendedLifetime(host) {}
  }

  /// S123 to S125: one configuration for all sessions.
  @Test func subscriptionsAreShared() async throws {
    let sensor = try Sensor(), (one, host, peer) = try await connected(sensor)
    let two = try await Probe.poweredOn(one.adapter)
    two.send(.connect(peer, ConnectOptions()))
    try await two.connected(peer)
    let heart = try await services(one, peer, ["180D"])[0]
    _ = try await characteristics(one, peer, heart)
    let changes = await host.events
    #expect(try await one.ask { .setNotifying($0, peer, sensor.measurement, true) } == .notifying(true))
    #expect(try await one.ask { .setNotifying($0, peer, sensor.measurement, true) } == .notifying(true))
    #expect(try await two.ask { .setNotifying($0, peer, sensor.measurement, false) } == .notifying(false))
    await host.notify([1], of: sensor.measurement)
    #expect(try await one.value(of: sensor.measurement) == [1])
    #expect(try await two.ask { .setNotifying($0, peer, sensor.measurement, true) } == .notifying(true))
    await host.notify([2], of: sensor.measurement)
    #expect(try await one.value(of: sensor.measurement) == [2])
    #expect(try await two.value(of: sensor.measurement) == [2])
    #expect(try await one.ask { .setNotifying($0, peer, sensor.measurement, false) } == .notifying(false))
    await host.notify([3], of: sensor.measurement)
    #expect(try await two.value(of: sensor.measurement) == [3])
    // Both at once, in both orders: each is answered, and the last request holds.
    let ids = (0..<6).map { _ in one.newID() }
    for (index, id) in ids.enumerated() { one.send(.setNotifying(id, peer, sensor.measurement, index % 2 == 0)) }
    for id in ids { _ = try await one.completion(of: id).get() }
    two.session.close()
    try await one.waitForEvents()
    var configurations: [ClientCharacteristicConfiguration] = []
    for try await event in changes {
      guard case .subscriptionChanged(_, sensor.measurement, let configuration) = event else { continue }
      configurations.append(configuration)
      if configuration == [] { break }
    }
    // On for the first, off after the last.
    #expect(configurations == [.notification, []])
    let values = try await one.history().filter {
      if case .values(_, sensor.measurement, let data) = $0 { data == [Data([3])] } else { false }
    }
    #expect(values.isEmpty)
  }
  @Test func aSubscriptionThatIsRefused() async throws {
    let sensor = try Sensor(), (probe, host, peer) = try await connected(sensor)
    for service in try await services(probe, peer) { _ = try await characteristics(probe, peer, service) }
    // It has no configuration descriptor.
    for _ in 0..<2 {
      #expect(try await probe.errorCode { .setNotifying($0, peer, sensor.silent, true) } == .invalidArgument)
    }
    #expect(try await probe.ask { .setNotifying($0, peer, sensor.silent, false) } == .notifying(false))
    withExtendedLifetime(host) {}
  }

  /// The only descriptor of a value that notifies is not its configuration: the adapter asks, and does not write to it.
  @Test func anotherDescriptor() async throws {
    var builder = DatabaseBuilder(), handles: (value: AttributeHandle, descriptor: AttributeHandle)?
    builder.genericAccess(name: "Belt")
    builder.service("180D") { service in
      let value = service.characteristic("2A37", .notify, value: [0, 60], configured: false).value
      let status = AttributeValue.stored(Array("Status".utf8)), all = AttributePermissions(read: .open, write: .open)
      handles = (value, service.descriptor("2901", value: status, permissions: all))
    }
    let room = Room(), host = try await room.host(try builder.build()), peer = UUID(PeerID(await host.ownAddress))
    try await host.advertiseAsSensor()
    let probe = try await Probe.poweredOn(room.adapter()), (value, descriptor) = try #require(handles)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    let heart = try await services(probe, peer, ["180D"])[0]
    _ = try await characteristics(probe, peer, heart)
    for _ in 0..<2 {
      #expect(try await probe.errorCode { .setNotifying($0, peer, value, true) } == .invalidArgument)
    }
    #expect(
      try await probe.ask { .discoverDescriptors($0, peer, value) }
        == .descriptors([RemoteDescriptor(handle: descriptor, uuid: "2901")]))
    #expect(try await probe.ask { .read($0, peer, descriptor) } == .value(Data("Status".utf8)))
    // Nobody has subscribed by it, so that the application may write it.
    #expect(try await probe.ask { .write($0, peer, descriptor, Data("New".utf8)) } == .done)
    withExtendedLifetime(host) {}
  }

  /// The adapter reads the device's name and follows its changes of services, unasked.
  @Test func errands() async throws {
    let sensor = try Sensor(name: "My Belt"), (probe, host, peer) = try await connected(sensor)
    try await probe.wait("name") { if case .nameChanged(peer, "My Belt") = $0 { true } else { nil } }
    let all = try await services(probe, peer)
    var builder = DatabaseBuilder(after: await host.database)
    builder.service("1805") { service in service.characteristic("2A2B", .read, value: [1]) }
    try await host.insert(builder)
    let range = try await probe.wait("change") { if case .servicesChanged(peer, let range) = $0 { range } else { nil } }
    #expect(range.first.rawValue <= all[3].endHandle.rawValue + 1)
    #expect(try await services(probe, peer).map(\.uuid).last == "1805")
    // And the next one, too.
    try await host.remove(
      service: try #require(await host.database.allAttributes.last { $0.type == .primaryService }).handle)
    try await probe.wait("change") { if case .servicesChanged(peer, _) = $0 { true } else { nil } }
    #expect(try await services(probe, peer).count == 4)
    let links = try await probe.history().compactMap { if case .linkedPeers(let links) = $0 { links } else { nil } }
    #expect(links.last?.first?.name == "My Belt" && links.last?.first?.services.contains("180D") == true)
  }
}
