import Bindrune
import BindruneWire
import BindruneGATT
import class Foundation.FileManager
import struct Foundation.UUID
import TestSupport
import Testing

/// A peripheral with a complete Generic Attribute service, and a heart rate.
private struct Sensor {
  let database: Database
  let changed: AttributeHandle, rate: AttributeHandle, controlPoint: AttributeHandle
  static let hash = [UInt8](0xA0...0xAF)

  /// `status`: the one descriptor of the heart rate is a User Description, and not the configuration.
  init(status: String? = nil) throws {
    var builder = DatabaseBuilder()
    changed = builder.service("1801") { service in
      let changed = service.characteristic("2A05", .indicate).value
      service.characteristic("2B29", [.read, .write], value: [0])
      service.characteristic("2B2A", .read, value: .stored(Self.hash))
      return changed
    }
    (rate, controlPoint) = builder.service("180D") { service in
      let rate = service.characteristic("2A37", [.notify, .indicate], configured: status == nil).value
      if let status {
        _ = service.descriptor(
          "2901", value: .stored(Array(status.utf8)), permissions: AttributePermissions(read: .open, write: .open))
      }
      return (rate, service.characteristic("2A39", [.read, .write, .writeWithoutResponse], value: [0]).value)
    }
    database = try builder.build()
  }
}

/// A cache that counts calls, and returns a given database.
private actor SpyCache: DatabaseCache {
  private(set) var asked = 0
  private(set) var kept: [RemoteDatabase?] = []
  private var waiting: CheckedContinuation<Void, Never>?
  var answer: RemoteDatabase?
  func database(of peer: PeerID) -> RemoteDatabase? {
    asked += 1
    return answer
  }
  func keep(_ database: RemoteDatabase?, of peer: PeerID) {
    kept.append(database)
    answer = database
    waiting?.resume()
    waiting = nil
  }
  func set(_ database: RemoteDatabase?) { answer = database }
  /// Waits until the host has stored something `count` times.
  func keeps(_ count: Int) async {
    while kept.count < count { await withCheckedContinuation { waiting = $0 } }
  }
}

@Suite("Link", .virtualTime, .hang) struct LinkTests {
  private func linked(
    _ sensor: Sensor, _ cache: any DatabaseCache = MemoryDatabaseCache()
  ) async throws -> (central: BluetoothHost, peripheral: BluetoothHost, link: Link) {
    let lab = Lab()
    let peripheral = try await lab.host(sensor.database)
    try await peripheral.advertiseFast()
    let central = BluetoothHost(lab.radio.controller(), databaseCache: cache)
    try await central.start()
    return (central, peripheral, try await central.connect(to: peripheral.ownAddress, .fast))
  }
  private func subscription(
    _ events: inout ServerEventSequence.AsyncIterator, _ handle: AttributeHandle
  ) async throws -> ClientCharacteristicConfiguration? {
    try await subscriber(&events, handle)?.configuration
  }
  private func subscriber(
    _ events: inout ServerEventSequence.AsyncIterator, _ handle: AttributeHandle
  ) async throws -> (link: LinkID, configuration: ClientCharacteristicConfiguration)? {
    while let event = try await events.next() {
      if case .subscriptionChanged(let link, handle, let configuration) = event { return (link, configuration) }
    }
    return nil
  }

  // MARK: Subscriptions

  @Test func aSubscriptionIsActiveWhenItReturns() async throws {
    let sensor = try Sensor(), (central, peripheral, link) = try await linked(sensor)
    try await within {
      let rate = try #require(try await link.discover().characteristic("2A37"))
      let subscription = try await link.subscribe(to: rate)
      #expect(await peripheral.notify([1], of: sensor.rate).isEmpty)
      // It waits, although no reader has started.
      #expect(try await link.read(sensor.controlPoint) == [0])
      var values = subscription.makeAsyncIterator()
      #expect(try await values.next()?.value == [1])

      var events = await peripheral.events.makeAsyncIterator()
      try await subscription.end()
      #expect(try await values.next() == nil)
      #expect(try await self.subscription(&events, sensor.rate) == [])
      try await subscription.end()

      // Indications, because the caller asks for them.
      let indications = try await link.subscribe(to: rate, .indication)
      let (client, configuration) = try #require(try await subscriber(&events, sensor.rate))
      #expect(configuration == .indication)
      try await peripheral.indicate([2], of: sensor.rate, on: client)
      var indicated = indications.makeAsyncIterator()
      let value = try await indicated.next()
      #expect(value == ReceivedValue(handle: sensor.rate, value: [2], isIndication: true))
    }
    await central.close()
    await peripheral.close()
  }

  @Test func severalSubscribersShareOne() async throws {
    let sensor = try Sensor(), (central, peripheral, link) = try await linked(sensor)
    try await within {
      let rate = try #require(try await link.discover().characteristic("2A37"))
      var events = await peripheral.events.makeAsyncIterator()
      async let one = link.subscribe(to: rate)
      async let two = link.subscribe(to: rate)
      let (first, second) = try await (one, two)
      await peripheral.notify([1], of: sensor.rate)
      var values = (first.makeAsyncIterator(), second.makeAsyncIterator())
      #expect(try await values.0.next()?.value == [1])
      #expect(try await values.1.next()?.value == [1])
      try await first.end()
      await peripheral.notify([2], of: sensor.rate)
      #expect(try await values.1.next()?.value == [2])
      try await second.end()
      // One on, one off, and nothing between.
      #expect(try await subscription(&events, sensor.rate) == .notification)
      #expect(try await subscription(&events, sensor.rate) == [])
    }
    await central.close()
    await peripheral.close()
  }

  @Test func valuesThatNobodyHasAskedFor() async throws {
    let sensor = try Sensor(), (central, peripheral, link) = try await linked(sensor)
    try await within {
      let database = try await link.discover()
      let rate = try #require(database.characteristic("2A37"))
      // Discovery has inferred its only descriptor.
      #expect(!rate.descriptorsAreKnown && database.descriptors(of: rate).isEmpty)
      let configuration = try #require(try await link.discoverDescriptors(of: rate).first)
      #expect(configuration.uuid == .clientCharacteristicConfiguration)
      #expect(await link.database.isComplete)
      // As after a reconnection to a server that has kept the configuration.
      try await link.write([1, 0], to: configuration)
      for number in UInt8(1)...70 { await peripheral.notify([number], of: sensor.rate) }
      #expect(try await link.read(sensor.controlPoint) == [0])
      var events = await link.events.makeAsyncIterator()
      // The last 64 have waited for the first reader.
      for number in UInt8(7)...70 {
        guard case .value(let value)? = try await events.next() else {
          Issue.record("no value")
          return
        }
        #expect(value == ReceivedValue(handle: sensor.rate, value: [number], isIndication: false))
      }
      await peripheral.notify([71], of: sensor.rate)
      guard case .value(let value)? = try await events.next() else {
        Issue.record("no value")
        return
      }
      #expect(value.value == [71])
      let later = await link.events
      try await link.disconnect()
      #expect(
        try await errorCode { () async throws(BluetoothError) in for try await _ in later {} } == .disconnected)
    }
    await central.close()
    await peripheral.close()
  }

  // MARK: Reading and writing

  @Test func proceduresByName() async throws {
    let sensor = try Sensor(), (central, peripheral, link) = try await linked(sensor)
    try await within {
      let services = try await link.discoverServices()
      #expect(services.map(\.uuid) == ["1801", "180D"])
      let heart = try #require(try await link.discoverServices("180D").first)
      #expect(try await link.discoverIncludedServices(of: heart).isEmpty)
      #expect(try await link.discoverCharacteristics(of: heart).map(\.uuid) == ["2A37", "2A39"])
      let rate = try #require(try await link.discoverCharacteristics("2A37", of: heart).first)
      #expect(try await link.discoverDescriptors(of: rate).map(\.uuid) == ["2902"])
      #expect(await link.database.services.count == 2)

      try await link.writeReliably([(sensor.controlPoint, [5]), (sensor.controlPoint, [6])])
      #expect(try await link.read(sensor.controlPoint) == [6])
      let byType = try await link.read(uuid: "2A39")
      #expect(byType == [ReadAttributeValue(handle: sensor.controlPoint, value: [6], isCut: false)])
      let both = try await link.read([sensor.controlPoint, sensor.controlPoint])
      #expect(both.map(\.value) == [[6], [6]])
    }
    await central.close()
    await peripheral.close()
  }

  // MARK: Cache

  @Test func theSecondConnectionDiscoversNothing() async throws {
    let sensor = try Sensor(), cache = SpyCache(), (central, peripheral, link) = try await linked(sensor, cache)
    try await within {
      let first = try await link.discover()
      #expect(first.isComplete && first.hash?.octets == Sensor.hash)
      await cache.keeps(1)
      #expect(await cache.kept == [first])
      try await link.disconnect()

      // The host trusts a cache with the same hash, even if the database differs: it asks the server nothing.
      let other = try RemoteDatabase(cacheText: try #require(first.cacheText).replacing("180D", with: "1810"))
      await cache.set(other)
      try await peripheral.advertiseFast()
      let again = try await central.connect(to: peripheral.ownAddress, .fast)
      #expect(try await again.discover() == other)
      #expect(await again.database == other)
      try await again.disconnect()

      // It does not use an entry with another hash.
      await cache.set(
        try RemoteDatabase(cacheText: try #require(first.cacheText).replacing("hash A0", with: "hash 00")))
      try await peripheral.advertiseFast()
      let third = try await central.connect(to: peripheral.ownAddress, .fast)
      #expect(try await third.discover() == first)
      await cache.keeps(2)
    }
    await central.close()
    await peripheral.close()
  }

  @Test func servicesThatChange() async throws {
    let sensor = try Sensor(), cache = SpyCache(), (central, peripheral, link) = try await linked(sensor, cache)
    try await within {
      var served = await peripheral.events.makeAsyncIterator()
      let database = try await link.discover()
      let (client, followed) = try #require(try await subscriber(&served, sensor.changed))
      #expect(followed == .indication)
      let subscription = try await link.subscribe(to: try #require(database.characteristic("2A37")))
      let port = try await link.sendPort(.command, to: sensor.controlPoint)
      var events = await link.events.makeAsyncIterator()
      let service = try #require(database.service("180D"))
      let range = [service.handle.rawValue, service.endHandle.rawValue].flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] }
      try await peripheral.indicate(range, of: sensor.changed, on: client)

      // The link's initial events come first.
      changed: while let event = try await events.next() {
        switch event {
        case .mtuChanged, .dataLengthChanged: break
        case .servicesChanged(let changed):
          #expect(changed == service.range)
          break changed
        case .value, .rediscovered, .peerIdentified, .parametersChanged, .physChanged, .bearersChanged,
          .securityChanged:
          Issue.record("\(event)")
        }
      }
      guard case .rediscovered(let again)? = try await events.next() else {
        Issue.record("not discovered again")
        return
      }
      #expect(again == database)
      #expect(
        try await errorCode { () async throws(BluetoothError) in for try await _ in subscription {} }
          == .servicesChanged)
      #expect(!port.offer([1]))
      await cache.keeps(3)
      #expect(await cache.kept == [database, nil, database])
    }
    await central.close()
    await peripheral.close()
  }

  /// What a subscription has read of descriptors is in the cache for the next connection.
  @Test func theCacheLearnsDescriptors() async throws {
    let sensor = try Sensor(), cache = SpyCache(), (central, peripheral, link) = try await linked(sensor, cache)
    try await within {
      let first = try await link.discover(), rate = try #require(first.characteristic("2A37"))
      #expect(first.descriptors(of: rate).isEmpty)
      let subscription = try await link.subscribe(to: rate)
      try await link.disconnect()
      withExtendedLifetime(subscription) {}
      await cache.keeps(2)
      let learned = try #require(await cache.kept[1])
      #expect(learned.hash == first.hash && learned.characteristics == first.characteristics)
      #expect(learned.descriptors(of: rate).map(\.uuid) == [.clientCharacteristicConfiguration])

      try await peripheral.advertiseFast()
      let again = try await central.connect(to: peripheral.ownAddress, .fast)
      #expect(try await again.discover() == learned)
      let other = try await again.subscribe(to: rate)
      #expect(await again.database == learned)
      try await again.disconnect()
      withExtendedLifetime(other) {}
    }
    await central.close()
    await peripheral.close()
    #expect(await cache.kept.count == 2)
  }

  /// The cached database of a bonded device was written by an earlier version, which inferred a configuration where the
  /// device has something else. After bluez/bluez#2383.
  @Test func aCacheThatHasInferred() async throws {
    let sensor = try Sensor(status: "Status"), cache = SpyCache()
    let (central, peripheral, link) = try await linked(sensor, cache)
    try await within {
      let first = try await link.discover(), rate = try #require(first.characteristic("2A37"))
      try await link.pair()
      try await link.disconnect()
      let text = try #require(first.cacheText), place = hexDigits(UInt64(rate.endHandle.rawValue), 4)
      #expect(text.contains("\ndescriptor \(place) -\n"))
      await cache.set(
        try RemoteDatabase(
          cacheText: text.replacing("gatt 2", with: "gatt 1").replacing("\(place) -", with: "\(place) 2902")))

      try await peripheral.advertiseFast()
      let again = try await central.connect(to: peripheral.ownAddress, .fast)
      let restored = try await again.discover()
      #expect(restored.descriptors(of: rate).isEmpty)
      for _ in 0..<2 {
        #expect(
          try await errorCode { () async throws(BluetoothError) in _ = try await again.subscribe(to: rate) }
            == .invalidArgument)
      }
      let status = try #require(await again.database.descriptors(of: rate).first)
      #expect(status.uuid == "2901")
      #expect(try await again.read(status) == Array("Status".utf8))
      #expect(try await again.discoverDescriptors(of: rate) == [status])
      try await again.disconnect()
      while await cache.kept.last??.descriptors(of: rate).map(\.uuid) != ["2901"] {
        await cache.keeps(await cache.kept.count + 1)
      }
    }
    await central.close()
    await peripheral.close()
  }

  // MARK: Files

  @Test func aCacheInFiles() async throws {
    let directory = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: false)
    defer { try? FileManager.default.removeItem(at: directory) }
    let cache = FileDatabaseCache(directory: directory.path())
    let peer = PeerID(PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random))
    let other = PeerID(PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .public))
    let text = "bindrune-gatt 2\nhash \(DatabaseHash(low: 1, high: 2))\nservice 0001 0009 primary 180D\nend 3\n"
    let database = try RemoteDatabase(cacheText: text)
    #expect(await cache.database(of: peer) == nil)
    await cache.keep(database, of: peer)
    #expect(await cache.database(of: peer) == database)
    #expect(await cache.database(of: other) == nil)
    let file = directory.appending(path: "F0F1F2F3F4F5-random.gatt")
    #expect(try String(contentsOf: file, encoding: .utf8) == text)
    for spoilt in [text.replacing("180D", with: "18"), String(text.dropLast(4)), ""] {
      try spoilt.write(to: file, atomically: true, encoding: .utf8)
      #expect(await cache.database(of: peer) == nil)
    }
    await cache.keep(nil, of: peer)
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path()).isEmpty)
    // The cache cannot write: the next connection discovers.
    let nowhere = FileDatabaseCache(directory: directory.appending(path: "none").path())
    await nowhere.keep(database, of: peer)
    #expect(await nowhere.database(of: peer) == nil)
  }

  @Test func aCacheInMemory() async throws {
    let cache = MemoryDatabaseCache(capacity: 2)
    func peer(_ number: UInt64) -> PeerID { PeerID(PeerAddress(DeviceAddress(number), .public)) }
    for number in UInt64(1)...3 { await cache.keep(RemoteDatabase(), of: peer(number)) }
    #expect(await cache.database(of: peer(1)) == nil)
    await cache.keep(nil, of: peer(2))
    #expect(await cache.database(of: peer(2)) == nil)
    #expect(await cache.database(of: peer(3)) != nil)
  }
}
