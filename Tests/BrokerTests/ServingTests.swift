import Foundation
import BindruneGATT
import TestSupport
import Testing

@testable import BindruneBroker

/// Whether `event` is an answer to a session's operation that failed, and how.
private func failure(_ result: Result<BrokerAnswer, BluetoothError>) -> BluetoothError? {
  if case .failure(let error) = result { error } else { nil }
}

@Suite("Serving", .virtualTime, .hang) struct ServingTests {
  // MARK: Publishing

  /// S81 … S85, S137, S139: the services of two sessions are one database, which may contain a UUID twice.
  @Test func oneDatabaseForAll() async throws {
    let ward = try await Ward()
    let (a, b) = (try await ward.session(), try await ward.session())
    let (first, second) = (try await a.publishPulse(), try await b.publishPulse())
    #expect(first.service != second.service)
    try await a.advertise("Two")
    let link = try await ward.link()
    let database = try await link.discover()
    #expect(database.services.map(\.uuid) == ["1800", "1801", "180D", "180D"])
    #expect(database.services.map(\.isPrimary) == [true, true, true, true])
    #expect(database.services(("180D")).map(\.handle) == [first.service.handle, second.service.handle])
    // Robust caching: Vol 3, Part G, §7.
    #expect(database.hash != nil && database.characteristic("2B29") != nil && database.characteristic("2A05") != nil)
    let name = try #require(database.characteristic("2A00", in: "1800"))
    let machine = try hostName()
    #expect(String(decoding: try await link.read(name), as: UTF8.self) == machine)

    for pulse in [first, second] {
      let measurement = try #require(database.characteristic(valueHandle: pulse.measurement))
      #expect(measurement.properties == [.notify, .indicate])
      let descriptors = database.descriptors(of: measurement)
      #expect(Set(descriptors.map(\.uuid)) == ["2901", "2902", "2904"])
      for (handle, value) in zip(pulse.service.characteristics[0].descriptors, [Array("beats".utf8), Pulse.format]) {
        #expect(try await link.read(handle) == value)
      }
      #expect(try await link.read(pulse.location) == [2])
      // Neither property nor permission.
      #expect(
        await link.attError { link throws(BluetoothError) in _ = try await link.read(pulse.measurement) }
          == .readNotPermitted)
      #expect(
        await link.attError { link throws(BluetoothError) in try await link.write([1], to: pulse.location) }
          == .writeNotPermitted)
    }
    a.send(.setValue(first.location, Data([1, 2, 3])))
    // It cannot remove another session's service.
    a.send(.setValue(second.location, Data([9])))
    try await a.waitForEvents()
    #expect(try await link.read(first.location) == [1, 2, 3])
    #expect(try await link.read(second.location) == [2])
  }
  private func hostName() throws -> String {
    try String(contentsOfFile: "/proc/sys/kernel/hostname", encoding: .utf8)
      .trimmingCharacters(in: .whitespacesAndNewlines)
  }

  /// S85: the error names the cause, and nothing is published.
  @Test func invalidServices() async throws {
    let ward = try await Ward()
    let (a, b) = (try await ward.session(), try await ward.session())
    let foreign = try await b.publish(ServiceDescription(uuid: "180F"))
    func described(_ characteristic: ServiceDescription.Characteristic) -> ServiceDescription {
      ServiceDescription(uuid: "180D", characteristics: [characteristic])
    }
    func readable(
      _ uuid: BluetoothUUID = "2A37", _ properties: CharacteristicProperties = .read, value: Data? = nil,
      descriptors: [ServiceDescription.Descriptor] = []
    ) -> ServiceDescription {
      described(
        .init(uuid: uuid, properties: properties, permissions: .open, value: value, descriptors: descriptors))
    }
    let impossible: [(ServiceDescription, says: String)] = [
      (ServiceDescription(uuid: "1800"), "itself"), (ServiceDescription(uuid: "1801"), "itself"),
      (ServiceDescription(uuid: "180D", includes: [foreign.handle]), "publish that one first"),
      (ServiceDescription(uuid: "180D", includes: [AttributeHandle(rawValue: 0x7777)]), "0x7777"),
      (readable("2803"), "declaration"), (readable("2A37", [.read, .broadcast]), "broadcast"),
      (readable("2A37", [.read, .extendedProperties]), "extended"),
      (readable(value: Data(count: 513)), "513 octets"),
      (readable("2A37", [.read, .write], value: Data([1])), "read-only"),
      (readable(descriptors: [.init(uuid: "2902", value: Data([0, 0]))]), "2902"),
      (readable(descriptors: [.init(uuid: "2900", value: Data([0, 0]))]), "2900"),
      (readable(descriptors: [.init(uuid: "2904", value: Data([4]))]), "7"),
      (readable(descriptors: [.init(uuid: "2901", value: Data(count: 513))]), "513 octets"),
      (readable(descriptors: [.init(uuid: "2901", value: Data()), .init(uuid: "2901", value: Data())]), "two"),
      (readable(descriptors: [.init(uuid: "2800", value: Data([0, 0]))]), "declaration"),
    ]
    for (description, sentence) in impossible {
      let id = a.newID()
      a.send(.addService(id, description))
      let error = try #require(failure(try await a.completion(of: id)))
      #expect(error.code == .invalidArgument && error.diagnostics.contains(sentence), "\(error)")
    }
    // All handles, and one more.
    let descriptors = Array(repeating: ServiceDescription.Descriptor(uuid: "2905", value: Data()), count: 0xFF00)
    let large = try await a.publish(readable(descriptors: descriptors))
    let pulse = a.newID()
    a.send(.addService(pulse, readable(descriptors: Array(descriptors.prefix(0x200)))))
    #expect(failure(try await a.completion(of: pulse))?.code == .outOfSpace)
    a.send(.removeService(large.handle))
    let again = try await a.publish(readable(descriptors: Array(descriptors.prefix(0x200))))
    #expect(again.handle == large.handle)
  }

  /// S130, S138 … S141: services change while a central is connected, which gets Service Changed.
  @Test func changesWhileConnected() async throws {
    let ward = try await Ward()
    let (a, b) = (try await ward.session(), try await ward.session())
    try await a.advertise("Changing")
    let link = try await ward.link()
    _ = try await link.discover()
    let events = await link.events
    func next() async throws -> RemoteDatabase? {
      for try await event in events { if case .rediscovered(let database) = event { return database } }
      return nil
    }
    let battery = try await a.publish(
      ServiceDescription(
        uuid: "180F",
        characteristics: [.init(uuid: "2A19", properties: .read, permissions: .readable, value: Data([50]))]))
    #expect(try await next()?.services.map(\.uuid) == ["1800", "1801", "180F"])
    let heart = try await a.publish(
      ServiceDescription(
        uuid: "180D", isPrimary: false, includes: [battery.handle],
        characteristics: [.init(uuid: "2A37", properties: .notify, permissions: .none)]))
    let included = try #require(try await next())
    let service = try #require(included.service(at: heart.handle))
    #expect(!service.isPrimary && included.includes(of: service).map(\.serviceHandle) == [battery.handle])
    let measurement = heart.characteristics[0].value
    let rate = try await link.subscribe(to: try #require(included.characteristic("2A37")))
    try await a.subscribed(to: measurement)
    let other = try await b.publishPulse()
    _ = try await next()

    // The service that includes it continues without the include, and keeps its subscribers. The other session's
    // services stay.
    a.send(.removeService(battery.handle))
    b.send(.removeService(heart.handle))
    let without = try #require(try await next())
    #expect(without.services.map(\.uuid) == ["1800", "1801", "180D", "180D"] && without.includes.isEmpty)
    let port = try #require(a.session.port(.notification, of: UUID(PeerID(await ward.central.ownAddress))))
    #expect(port.offer([72], to: measurement))
    // The central's client has ended its subscription with the change; the server has kept it.
    for try await event in events {
      guard case .value(let value) = event else { continue }
      #expect(value.handle == measurement && value.value == [72])
      break
    }
    a.send(.removeAllServices)
    try await a.unsubscribed(from: measurement)
    #expect(try await next()?.services.map(\.handle).last == other.service.handle)
    #expect(try await link.read(other.location) == [2])
    withExtendedLifetime(rate) {}
  }

  // MARK: Requests

  /// S90 … S95: a read reaches the session that has published the value, and the answer reaches the central.
  @Test func reads() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    let stranger = try await ward.session()
    let long = (0..<300).map { UInt8(truncatingIfNeeded: $0) }
    async let value = link.read(pulse.control)
    // Read, then Read Blob: Vol 3, Part G, §4.8.3. The MTU is 517, so one answer holds 300 octets.
    let read = try await session.readRequest()
    #expect(
      read.central == UUID(PeerID(await ward.central.ownAddress)) && read.handle == pulse.control && read.offset == 0)
    // No other session can answer it.
    stranger.send(.respond(read.id, central: read.central, Data([6, 6, 6])))
    stranger.send(.reject(read.id, central: read.central, .unlikelyError))
    try await stranger.waitForEvents()
    session.send(.respond(read.id, central: read.central, Data(long)))
    session.send(.respond(read.id, central: read.central, Data([1])))
    session.send(.reject(read.id, central: read.central, .unlikelyError))
    session.send(.respond(ServerRequest(rawValue: 4711), central: read.central, Data([1])))
    #expect(try await value == long)
    async let error = link.attError { link throws(BluetoothError) in _ = try await link.read(pulse.control) }
    let asked1 = try await session.readRequest()
    session.send(.reject(asked1.id, central: asked1.central, .insufficientAuthorization))
    #expect(await error == .insufficientAuthorization)
    async let nothing = link.read(pulse.control)
    let asked2 = try await session.readRequest()
    session.send(.respond(asked2.id, central: asked2.central, nil))
    #expect(try await nothing == [])
    let history = try await stranger.history()
    #expect(!history.contains { if case .readRequested = $0 { true } else { false } })
  }

  /// A value longer than the ATT_MTU: the central reads the rest from its offset on. S92.
  @Test func longRead() async throws {
    let ward = try await Ward()
    let session = try await ward.session()
    let pulse = try await session.publishPulse()
    try await session.advertise("Long")
    var small = HostConfiguration()
    small.preferredMTU = 23
    let central = BluetoothHost(ward.room.radio.controller(), configuration: small)
    try await central.start()
    let link = try await central.connect(to: try await ward.address(), .fast)
    let value = (0..<50).map { UInt8($0) }
    async let answer = link.read(pulse.control)
    for offset in [0, 22, 44] {
      let read = try await session.readRequest()
      #expect(read.offset == offset)
      session.send(.respond(read.id, central: read.central, Data(value[offset...])))
    }
    #expect(try await answer == value)
    await central.close()
  }

  /// S96 … S98: writes come together, with their offsets; one answer covers all of them.
  @Test func writes() async throws {
    let ward = try await Ward()
    let session = try await ward.session()
    let pulse = try await session.publishPulse()
    let more = try await session.publish(
      ServiceDescription(
        uuid: "1810", characteristics: [.init(uuid: "2A52", properties: [.write, .notify], permissions: .writable)]))
    try await session.advertise("Written")
    let link = try await ward.link()
    async let written: Void = link.write([1, 2], to: pulse.control)
    var request = try await session.writeRequest()
    #expect(request.writes == [ServerWrite(handle: pulse.control, offset: 0, value: Data([1, 2]))])
    session.send(.respond(request.id, central: request.central, nil))
    session.send(.respond(request.id, central: request.central, nil))
    try await written
    async let refused = link.attError { link throws(BluetoothError) in try await link.write([3], to: pulse.control) }
    let wanted3 = try await session.writeRequest()
    session.send(.reject(wanted3.id, central: wanted3.central, .invalidAttributeValueLength))
    #expect(await refused == .invalidAttributeValueLength)
    // A queue of prepared writes over two values of the session: all or nothing. Vol 3, Part G, §4.9.5.
    let both = [
      (handle: pulse.control, value: [UInt8](repeating: 7, count: 600).prefix(512).map { $0 }),
      (handle: more.characteristics[0].value, value: [9]),
    ]
    async let several: Void = link.writeReliably(both)
    request = try await session.writeRequest()
    #expect(request.writes.map(\.handle) == both.map(\.handle) && request.writes.map(\.offset) == [0, 0])
    #expect(request.writes.map { [UInt8]($0.value) } == both.map(\.value))
    session.send(.respond(request.id, central: request.central, nil))
    try await several
    // Without response: no central waits for an answer, and an unnecessary one does no harm.
    #expect(try await link.writeWithoutResponse([5], to: pulse.index))
    request = try await session.writeRequest()
    #expect(request.writes == [ServerWrite(handle: pulse.index, offset: 0, value: Data([5]))])
    session.send(.respond(request.id, central: request.central, nil))
    session.send(.reject(request.id, central: request.central, .unlikelyError))
    // Accesses that the properties do not permit: Vol 3, Part G, §3.3.1.1.
    #expect(
      await link.attError { link throws(BluetoothError) in try await link.write([1], to: pulse.index) }
        == .writeNotPermitted)
    #expect(try await link.writeWithoutResponse([6], to: pulse.control))
    async let last: Void = link.write([8], to: pulse.control)
    request = try await session.writeRequest()
    #expect(request.writes.map { [UInt8]($0.value) } == [[8]])
    session.send(.respond(request.id, central: request.central, nil))
    try await last
  }

  /// A queue over values of two sessions is refused: neither session can accept for the other.
  @Test func writesAcrossSessions() async throws {
    let ward = try await Ward()
    // Before the link, so that nothing changes while it is up.
    let b = try await ward.session()
    let other = try await b.publishPulse()
    let (a, pulse, link) = try await ward.linked()
    let error = await link.attError { link throws(BluetoothError) in
      try await link.writeReliably([(handle: pulse.control, value: [1]), (handle: other.control, value: [2])])
    }
    #expect(error == .unlikelyError)
    for session in [a, b] {
      try await session.waitForEvents()
      #expect(!(try await session.history()).contains { if case .writeRequested = $0 { true } else { false } })
    }
  }

  /// A session that closes leaves no central waiting, and only the other sessions' services remain.
  @Test func aSessionThatCloses() async throws {
    let ward = try await Ward()
    let b = try await ward.session()
    let other = try await b.publishPulse()
    let (a, pulse, link) = try await ward.linked()
    async let error = link.attError { link throws(BluetoothError) in _ = try await link.read(pulse.control) }
    _ = try await a.readRequest()
    a.session.close()
    #expect(await error == .unlikelyError)
    let database = try await link.discoverAll()
    #expect(database.services.map(\.handle).last == other.service.handle && database.services(("180D")).count == 1)
    #expect(try await link.read(other.location) == [2])
    #expect(a.session.port(.notification, of: UUID(PeerID(await ward.central.ownAddress))) == nil)
    // It advertises no more; the other session does.
    try await b.advertise("Left")
    for try await found in ward.central.scan() where found.data.serviceUUIDs == ["180D"] {
      #expect(found.name == "Left")
      break
    }
  }

  /// If the central disconnects, or has waited for 25 s, the session gets one event, and its answer is ignored.
  @Test func requestsThatEnd() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    func ended(_ id: ServerRequest) async throws {
      try await session.wait("end of the request") { if case .requestEnded(id) = $0 { true } else { nil } }
    }
    let read = Task { await link.attError { link throws(BluetoothError) in _ = try await link.read(pulse.control) } }
    var request = try await session.readRequest()
    // The host's event after 25 s; the layers' tests wait for it in virtual time.
    let (adapter, handle) = (ward.adapter, pulse.control)
    try await adapter.eventLoop.submit {
      guard let peer = adapter.core.serving.clients.keys.first else { return }
      adapter.withHost { adapter.host($0, did: .server(.requestUnanswered(peer, handle))) }
    }.get()
    try await ended(request.id)
    session.send(.respond(request.id, central: request.central, Data([1])))
    try await session.waitForEvents()
    try await link.disconnect()
    #expect(await read.value == nil)
    let second = try await ward.link()
    let again = Task { await second.attError { link throws(BluetoothError) in _ = try await link.read(handle) } }
    request = try await session.readRequest()
    try await second.disconnect()
    try await ended(request.id)
    _ = await again.value
    session.send(.respond(request.id, central: request.central, Data([2])))
    // It does not answer the next one.
    let third = try await ward.link()
    async let value = third.read(handle)
    let asked4 = try await session.readRequest()
    session.send(.respond(asked4.id, central: asked4.central, Data([3])))
    #expect(try await value == [3])
    #expect(try await session.history().filter { if case .requestEnded = $0 { true } else { false } }.count == 2)
  }

  // MARK: Encryption

  /// Values that need encryption are refused with 0x05 until the devices have paired. Vol 3, Part C, §10.3.1.
  @Test func encryption() async throws {
    let ward = try await Ward()
    let session = try await ward.session()
    let secret = AttributePermissions(read: .encrypted, write: .encrypted)
    let service = try await session.publish(
      ServiceDescription(
        uuid: "180D",
        characteristics: [
          .init(uuid: "2A38", properties: .read, permissions: secret, value: Data([1])),
          .init(uuid: "2A39", properties: [.read, .write], permissions: secret),
          .init(uuid: "2A37", properties: .notify, permissions: .none, configuring: .encrypted),
          // A value that needs encryption is not notified without: Vol 3, Part C, §10.3.1.1.
          .init(uuid: "2A19", properties: .notify, permissions: AttributePermissions(read: .encrypted)),
        ]))
    try await session.advertise("Secret")
    var configuration = HostConfiguration()
    configuration.pairsOnDemand = false
    let central = try await ward.room.host(Database(), configuration)
    let link = try await central.connect(to: try await ward.address(), .fast)
    let database = try await link.discover()
    let values = service.characteristics.map(\.value)
    for value in values.prefix(2) {
      #expect(
        await link.attError { link throws(BluetoothError) in _ = try await link.read(value) }
          == .insufficientAuthentication)
    }
    let writable = values[1]
    #expect(
      await link.attError { link throws(BluetoothError) in try await link.write([1], to: writable) }
        == .insufficientAuthentication)
    for value in values.suffix(2) {
      let characteristic = try #require(database.characteristic(valueHandle: value))
      #expect(
        await link.attError { link throws(BluetoothError) in _ = try await link.subscribe(to: characteristic) }
          == .insufficientAuthentication)
    }
    try await session.waitForEvents()
    #expect(
      !(try await session.history()).contains {
        switch $0 {
        case .readRequested, .writeRequested, .subscribed: true
        default: false
        }
      })

    // The same client, paired; and one that pairs by itself.
    #expect(try await link.pair().isEncrypted)
    #expect(try await link.read(values[0]) == [1])
    _ = try await link.subscribe(to: try #require(database.characteristic(valueHandle: values[2])))
    try await link.disconnect()
    let other = try await ward.link()
    #expect(try await other.read(values[0]) == [1])
    #expect(await other.security.isBonded)
  }

  // MARK: The adapter's states

  /// Below poweredOff all services are removed, and the database begins again.
  @Test func theDatabaseBeginsAnew() async throws {
    let ways = Ways()
    let ward = try await Ward { room in
      room.adapter { _ async throws(TransportError) in await ways.open(room.radio) }
    }
    let (session, pulse, link) = try await ward.linked()
    let rate = try await link.subscribe(to: try await link.characteristic(pulse.measurement))
    try await session.subscribed(to: pulse.measurement)
    let peer = UUID(PeerID(await ward.central.ownAddress))
    #expect(session.session.port(.notification, of: peer) != nil)
    try await ways.cut()
    try await session.wait("reset") { if case .adapter(.resetting) = $0 { true } else { nil } }
    try await session.state(.poweredOn)
    #expect(session.session.port(.notification, of: peer) == nil)
    // The state is the only event for it.
    let events = try await session.history().filter {
      switch $0 {
      case .unsubscribed, .advertisingEnded: true
      default: false
      }
    }
    #expect(events.isEmpty, "\(events)")
    #expect(try await session.publishPulse().service == pulse.service)
    try await session.advertise("Again")
    let database = try await ward.link().discoverAll()
    #expect(database.services.map(\.uuid) == ["1800", "1801", "180D"])
    withExtendedLifetime(rate) {}
  }

  /// Before it is powered on, every request is answered.
  @Test func beforeItIsPoweredOn() async throws {
    let room = Room()
    let adapter = room.adapter { _ async throws(TransportError) in throw .specification("nothing") }
    let session = Probe(adapter)
    try await session.wait("state") { if case .adapter(.unsupported) = $0 { true } else { nil } }
    #expect(try await session.errorCode { .addService($0, Pulse.description) } == .notStarted)
    #expect(
      try await session.errorCode { .startAdvertising($0, localName: nil, services: []) } == .notStarted)
    session.send(.removeAllServices)
    session.send(.stopAdvertising)
    session.send(.respond(ServerRequest(rawValue: 1), central: UUID(), nil))
    session.send(.setDesiredLatency(UUID(), .low))
    session.send(.removeService(AttributeHandle(rawValue: 1)))
    try await session.waitForEvents()
    session.session.close()
  }
}
