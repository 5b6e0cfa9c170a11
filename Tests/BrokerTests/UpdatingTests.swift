import Foundation
import TestSupport
import Testing

@testable import BindruneBroker

/// What a peripheral initiates: values, advertising, latency of the link.
@Suite("Updating", .virtualTime, .hang) struct UpdatingTests {
  // MARK: Subscriptions

  /// S99 … S103, S151: a subscription is reported with the greatest length of a value, and the central gets the values
  /// of the session's port.
  @Test func notifications() async throws {
    let ward = try await Ward()
    let (a, pulse, link) = try await ward.linked()
    let b = try await ward.session()
    let other = try await b.publishPulse()
    _ = try await link.discoverAll()
    let peer = UUID(PeerID(await ward.central.ownAddress))
    #expect(a.session.port(.notification, of: peer) == nil)
    let rate = try await link.subscribe(to: try await link.characteristic(pulse.measurement))
    let subscription = try await a.subscribed(to: pulse.measurement)
    // 517 − 3, and an attribute has 512 at most: Vol 3, Part F, §3.2.9.
    #expect(subscription.central == peer && subscription.longest == 512)
    let port = try #require(a.session.port(.notification, of: peer))
    #expect(b.session.port(.notification, of: peer) == nil && a.session.port(.notification, of: UUID()) == nil)
    // Too many values: none of those refused is sent, and one edge follows.
    var sent: [[UInt8]] = []
    while true {
      let value = (0..<100).map { _ in UInt8(truncatingIfNeeded: sent.count) }
      guard port.offer(value, to: pulse.measurement) else { break }
      sent.append(value)
    }
    try await a.wait("edge") { if case .readyToUpdate(peer) = $0 { true } else { nil } }
    #expect(port.offer([0xFF], to: pulse.measurement))
    var received: [[UInt8]] = []
    for try await value in rate {
      #expect(!value.isIndication)
      if value.value == [0xFF] { break }
      received.append(value.value)
    }
    #expect(received == sent && sent.count >= 32)
    #expect(try await a.history().filter { if case .readyToUpdate = $0 { true } else { false } }.count == 1)

    // Each session has a port of its own, and gets events of its own values only.
    let second = try await link.subscribe(to: try await link.characteristic(other.measurement))
    try await b.subscribed(to: other.measurement)
    let own = b.session.port(.notification, of: peer)
    #expect(own != nil && own !== port)
    try await rate.end()
    try await a.unsubscribed(from: pulse.measurement)
    // Without a subscription nothing is sent, and the port stays until the link ends.
    #expect(port.offer([1], to: pulse.measurement))
    try await link.disconnect()
    try await b.unsubscribed(from: other.measurement)
    try await b.waitForEvents()
    #expect(b.session.port(.notification, of: peer) == nil && !port.offer([1], to: pulse.measurement))
    withExtendedLifetime(second) {}
  }

  /// A central that disconnects has unsubscribed from everything, once each. S100.
  @Test func aDisconnectedCentralHasUnsubscribed() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    let other = try await ward.room.host(Database())
    let stays = try await other.connect(to: try await ward.address(), .fast)
    _ = try await stays.discover()
    var held: [Subscription] = []
    for each in [link, stays] {
      for value in [pulse.measurement, pulse.alarm] {
        held.append(try await each.subscribe(to: try await each.characteristic(value)))
        try await session.subscribed(to: value)
      }
    }
    try await link.disconnect()
    try await session.unsubscribed(from: pulse.measurement)
    try await session.unsubscribed(from: pulse.alarm)
    let peer = UUID(PeerID(await ward.central.ownAddress))
    #expect(
      try await session.history().filter { if case .unsubscribed = $0 { true } else { false } }.count == 2)
    #expect(session.session.port(.notification, of: peer) == nil)
    #expect(session.session.port(.notification, of: UUID(PeerID(await other.ownAddress))) != nil)
    withExtendedLifetime(held) {}
    await other.close()
  }

  /// The greatest length of a value changes with the MTU, which the central may exchange after it has subscribed. S152.
  @Test func longestUpdate() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    let rate = try await link.subscribe(to: try await link.characteristic(pulse.measurement))
    let peer = try await session.subscribed(to: pulse.measurement).central
    let adapter = ward.adapter
    try await adapter.eventLoop.submit {
      guard let client = adapter.core.serving.clients.keys.first else { return }
      adapter.withHost { adapter.host($0, did: .mtuChanged(client, 517)) }
    }.get()
    let longest = try await session.wait("room") {
      if case .longestUpdateChanged(peer, let longest) = $0 { longest } else { nil }
    }
    #expect(longest == 512)
    // A value that is too long is cut when it leaves.
    let port = try #require(session.session.port(.notification, of: peer))
    #expect(port.offer([UInt8](repeating: 7, count: 600), to: pulse.measurement))
    var values = rate.makeAsyncIterator()
    #expect(try await values.next()?.value == [UInt8](repeating: 7, count: 512))
  }

  /// A client that wants indications gets each value as one, in order, the next when it has confirmed; notifications
  /// where it wants both. Vol 3, Part F, §3.4.7.2; S151.
  @Test func indications() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    let rate = try await link.subscribe(to: try await link.characteristic(pulse.measurement), .indication)
    let alarm = try await link.subscribe(to: try await link.characteristic(pulse.alarm))
    try await session.subscribed(to: pulse.measurement)
    let peer = try await session.subscribed(to: pulse.alarm).central
    let port = try #require(session.session.port(.notification, of: peer))
    for octet in UInt8(0)..<50 {
      for handle in [pulse.measurement, pulse.alarm] {
        while !port.offer([octet], to: handle) { try await port.waitUntilReady() }
      }
    }
    for subscription in [rate, alarm] {
      var values: [UInt8] = []
      for try await value in subscription {
        #expect(value.isIndication)
        values += value.value
        if values.count == 50 { break }
      }
      #expect(values == Array(0..<50))
    }
    // Both: notifications.
    let both = try await link.subscribe(
      to: try await link.characteristic(pulse.measurement), [.notification, .indication])
    #expect(port.offer([99], to: pulse.measurement))
    for try await value in both {
      #expect(!value.isIndication && value.value == [99])
      break
    }
  }

  // MARK: Advertising

  /// S86 … S88: found by name and service, connectable; it continues after a connection, and ends when it is stopped.
  /// S149.
  @Test func advertising() async throws {
    let ward = try await Ward()
    let session = try await ward.session()
    try await session.advertise("Here")
    #expect(
      try await session.errorCode { .startAdvertising($0, localName: "Twice", services: []) } == .busy)
    let address = try await ward.address()
    for _ in 0..<2 {
      for try await found in ward.central.scan() where found.name == "Here" {
        #expect(found.isConnectable && found.data.serviceUUIDs == ["180D"] && found.address == address)
        // LE only, general discoverable: Supplement, Part A, §1.3.
        #expect(found.data.flags == 0x06)
        break
      }
      try await ward.link().disconnect()
    }
    session.send(.stopAdvertising)
    try await session.waitForEvents()
    // Each is answered, and the last one holds.
    var codes: [BluetoothError.Code?] = []
    for round in 0..<5 {
      let id = session.newID()
      // On the loop, so that the controller has not begun in between.
      try await session.adapter.eventLoop.submit {
        session.send(.startAdvertising(id, localName: "Round \(round)", services: []))
        if round < 4 { session.send(.stopAdvertising) }
      }.get()
      if case .failure(let error) = try await session.completion(of: id) {
        codes.append(error.code)
      } else {
        codes.append(nil)
      }
    }
    #expect(codes == [.cancelled, .cancelled, .cancelled, .cancelled, nil])
    for try await found in ward.central.scan() where found.name != nil {
      #expect(found.name == "Round 4")
      break
    }
    #expect(!(try await session.history()).contains { if case .advertisingEnded = $0 { true } else { false } })
  }

  /// More services than the advertisement holds: the rest is in the overflow area. S143 … S146.
  @Test func overflow() async throws {
    let ward = try await Ward()
    let session = try await ward.session()
    let services: [BluetoothUUID] = [
      "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F", "C4C1F6E2-4BE5-11E5-885D-FEFF819CDC9F", "180D",
    ]
    try await session.ask { .startAdvertising($0, localName: "Full of them", services: services) }
    var seen: Advertisement?
    for try await found in ward.central.scan() where found.hasScanResponse {
      seen = found
      break
    }
    let found = try #require(seen)
    #expect(found.data.serviceUUIDs == ["180D", services[0]])
    #expect(found.data.overflowArea?.contains(services[1]) == true)
  }

  /// S142: several sessions advertise at once, each in a set of its own while the controller has one left, the others
  /// together.
  @Test func severalSessions() async throws {
    let ward = try await Ward()
    let (a, b) = (try await ward.session(), try await ward.session())
    try await a.advertise("One")
    try await b.advertise("Two")
    var names: Set<String> = []
    for try await found in ward.central.scan() where names.count < 2 {
      if let name = found.name { names.insert(name) }
      if names.count == 2 { break }
    }
    #expect(names == ["One", "Two"])

    var old = ControllerConfiguration()
    old.version = .init(rawValue: 0x08)
    old.features.remove(.leExtendedAdvertising)
    let configuration = old
    let small = try await Ward { room in
      room.adapter { _ async throws(TransportError) in room.radio.controller(configuration) }
    }
    let (c, d) = (try await small.session(), try await small.session())
    try await c.advertise("First")
    try await d.ask { .startAdvertising($0, localName: "Second", services: ["1805"]) }
    for try await found in small.central.scan() where found.name != nil && found.data.serviceUUIDs.count == 2 {
      // The name can be sent only once.
      #expect(found.name == "First" && found.data.serviceUUIDs == ["180D", "1805"])
      break
    }
    c.send(.stopAdvertising)
    for try await found in small.central.scan() where found.name == "Second" {
      #expect(found.data.serviceUUIDs == ["1805"])
      break
    }
    d.session.close()
    try await c.advertise("Third")
    for try await found in small.central.scan() where found.name == "Third" {
      #expect(found.data.serviceUUIDs == ["180D"])
      break
    }
  }

  /// S153, S155: the central is asked for the parameters of the latency, and the last request holds.
  @Test func latency() async throws {
    let ward = try await Ward()
    let (session, pulse, link) = try await ward.linked()
    let rate = try await link.subscribe(to: try await link.characteristic(pulse.measurement))
    let peer = try await session.subscribed(to: pulse.measurement).central
    for latency in [ConnectionLatency.high, .medium, .low] { session.send(.setDesiredLatency(peer, latency)) }
    session.send(.setDesiredLatency(UUID(), .low))
    let wanted = ConnectionParameterRange(.low)
    while let parameters = await link.parameters, !wanted.contains(parameters) { await Task.yield() }
    #expect(await link.parameters != nil)
    // A session to which this central has not turned does not change its link.
    let stranger = try await ward.session(), adapter = ward.adapter
    while try await adapter.eventLoop.submit({ !adapter.core.serving.updates.isEmpty }).get() { await Task.yield() }
    stranger.send(.setDesiredLatency(peer, .high))
    _ = try await stranger.publishPulse()
    #expect(try await adapter.eventLoop.submit { adapter.core.serving.updates.isEmpty }.get())
    withExtendedLifetime(rate) {}
  }
}
