import Bindrune
import TestSupport
import Testing

@Suite("The end of a link, and the states of a host", .virtualTime, .hang) struct LinkEndingTests {
  private struct Failure: Error {}

  @Test func everyWaiterGetsTheReason() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    try await within {
      #expect(await central.links.map(\.id) == [link.id])
      let server = try #require(await peripheral.links.first)
      #expect(server.role == .peripheral && link.role == .central)
      #expect(await server.address == (await central.ownAddress))
      let waiting = (0..<3).map { _ in Task { await link.closed } }
      let cancelled = Task { await link.closed }
      cancelled.cancel()
      #expect(await cancelled.value.code == .cancelled)
      #expect(try await link.read(belt.short) == [2])

      try await server.disconnect()
      for task in waiting {
        let reason = await task.value
        #expect(reason.code == .disconnected && reason.status == .remoteUserTerminatedConnection)
      }
      // A copy of the link keeps the reason, also for a cancelled task.
      #expect(await link.closed.status == .remoteUserTerminatedConnection)
      #expect(await server.closed.status == .connectionTerminatedByLocalHost)
      let late = Task {
        while !Task.isCancelled { await Task.yield() }
        return await link.closed
      }
      late.cancel()
      #expect(await late.value.code == .disconnected)
      #expect(await central.links.count + peripheral.links.count == 0)
    }
    await central.close()
    await peripheral.close()
  }

  /// A request that comes after the end says why the link ended, like those that the end interrupted.
  @Test func whoComesTooLateGetsTheReason() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let measurement = try await within { try await link.discovered("2A37") }
    let server = try #require(await peripheral.links.first)
    try await within { try await server.disconnect() }
    _ = try await within { await link.closed }
    func late(_ name: String, _ body: () async throws(BluetoothError) -> Void) async {
      do throws(BluetoothError) {
        try await body()
        Issue.record("\(name) did not fail")
      } catch {
        #expect(error.code == .disconnected && error.status == .remoteUserTerminatedConnection, "\(name): \(error)")
      }
    }
    await late("read") { () async throws(BluetoothError) in _ = try await link.read(belt.short) }
    await late("write") { () async throws(BluetoothError) in try await link.write([1], to: belt.short) }
    await late("discover") { () async throws(BluetoothError) in _ = try await link.discover() }
    await late("encrypt") { () async throws(BluetoothError) in _ = try await link.encrypt() }
    await late("pair") { () async throws(BluetoothError) in _ = try await link.pair() }
    await late("RSSI") { () async throws(BluetoothError) in _ = try await link.readRSSI() }
    await late("PHYs") { () async throws(BluetoothError) in _ = try await link.readPHYs() }
    await late("features") { () async throws(BluetoothError) in _ = try await link.readFeatures() }
    await late("parameters") { () async throws(BluetoothError) in _ = try await link.updateParameters(.balanced) }
    await late("subscribe") { () async throws(BluetoothError) in _ = try await link.subscribe(to: measurement) }
    await late("port") { () async throws(BluetoothError) in _ = try await link.sendPort(.command) }
    await late("command") { () async throws(BluetoothError) in
      _ = try await link.writeWithoutResponse([1], to: belt.short)
    }
    await late("events") { () async throws(BluetoothError) in for try await _ in await link.events {} }
    #expect(try await within { await central.links.isEmpty })
    await central.close()
    await peripheral.close()
  }

  /// At any moment between the last answer and the end.
  @Test func noWaiterIsMissed() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    try await peripheral.advertiseFast()
    let peer = await peripheral.ownAddress
    for turns in 0..<30 {
      let link = try await within { try await central.connect(to: peer, .fast) }
      let end = Task { try await link.disconnect() }
      for _ in 0..<turns { await Task.yield() }
      #expect(try await within { await link.closed }.status == .connectionTerminatedByLocalHost)
      try await end.value
    }
    await central.close()
    await peripheral.close()
  }

  @Test func aLostControllerEndsTheLink() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, relay) = try await lab.relayedHost()
    let peripheral = try await lab.host(belt.database)
    try await peripheral.advertiseFast()
    let link = try await within { try await central.connect(to: await peripheral.ownAddress, .fast) }
    var states = await central.states.makeAsyncIterator()
    #expect(try await states.next() == .running)
    try await relay.close()
    #expect(try await within { await link.closed }.code == .transport)
    guard case .closed(let error)? = try await states.next() else {
      Issue.record("not closed")
      return
    }
    #expect(error.code == .transport)
    #expect(try await states.next() == nil)
    // The peer receives nothing any more.
    let server = try #require(await peripheral.links.first)
    #expect(try await within { await server.closed }.code == .connectionTimedOut)
    await peripheral.close()
  }

  // MARK: withLink

  @Test func aLinkThatIsLentIsGivenBack() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    try await peripheral.advertiseFast()
    let peer = await peripheral.ownAddress
    try await within {
      let (value, link) = try await central.withLink(to: peer, .fast) { link in
        (try await link.read(belt.short), link)
      }
      #expect(value == [2])
      #expect(await link.closed.code == .disconnected)
      #expect(await central.links.isEmpty)

      await #expect(throws: Failure.self) {
        try await central.withLink(to: central.peer(at: peer), .fast) { _ in throw Failure() }
      }
      #expect(await central.links.isEmpty)
      // A link that goes down in the middle.
      let code = try await central.withLink(to: [peer], .fast) { link in
        try await link.disconnect()
        return try await errorCode { () async throws(BluetoothError) in _ = try await link.read(belt.short) }
      }
      #expect(code == .disconnected)
    }
    await central.close()
    await peripheral.close()
  }

  /// Cancelled at any moment, it leaves no link.
  @Test func aCancelledLoanIsGivenBack() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    try await peripheral.advertiseFast()
    let peer = await peripheral.ownAddress
    for turns in 0..<60 {
      let task = Task {
        try await central.withLink(to: peer, .fast) { link in
          while true { _ = try await link.read(belt.short) }
        }
      }
      for _ in 0..<turns { await Task.yield() }
      task.cancel()
      await #expect(throws: BluetoothError.self) { try await within { try await task.value } }
      #expect(await central.links.isEmpty)
    }
    #expect(try await within { try await central.withLink(to: peer) { try await $0.read(belt.short) } } == [2])
    await central.close()
    await peripheral.close()
  }

  // MARK: States

  @Test func aHostsLife() async throws {
    let lab = Lab()
    let host = BluetoothHost(lab.radio.controller())
    let first = await host.states
    let life = Task { () -> [HostState] in
      var states: [HostState] = []
      for try await state in first { states.append(state) }
      return states
    }
    try await host.start()
    #expect(await host.state == .running)
    var late = await host.states.makeAsyncIterator()
    #expect(try await late.next() == .running)
    await host.close()
    let end = await host.state
    guard case .closed(let error) = end else {
      Issue.record("\(end)")
      return
    }
    #expect(error.code == .notStarted)
    #expect(try await within { try await life.value } == [.stopped, .starting, .running, .closing, end])
    var after = await host.states.makeAsyncIterator()
    #expect(try await after.next() == end)
    #expect(try await after.next() == nil)
  }
}
