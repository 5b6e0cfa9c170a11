import Bindrune
import TestSupport
import Testing

/// A cancelled call returns at once, and leaves nothing behind: neither here, nor in the controller, nor at the peer.
@Suite("Cancellation", .virtualTime, .hang) struct CancellationTests {
  /// Cancels the task after `begun` has returned; with nil, before it begins.
  private func cancelled(
    once begun: (@Sendable () async throws -> Void)?,
    _ body: @escaping @Sendable () async throws(BluetoothError) -> Void
  ) async throws -> BluetoothError.Code? {
    try await within {
      let task = Task { () -> BluetoothError.Code? in
        if begun == nil { while !Task.isCancelled { await Task.yield() } }
        do throws(BluetoothError) { try await body() } catch { return error.code }
        return nil
      }
      try await begun?()
      task.cancel()
      return await task.value
    }
  }

  @Test func connect() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, relay) = try await lab.relayedHost()
    let peripheral = try await lab.host(belt.database)
    let peer = await peripheral.ownAddress
    let connect = { @Sendable () async throws(BluetoothError) in _ = try await central.connect(to: peer, .fast) }
    // No device answers: the attempt lasts until the task cancels it, and the host cancels it in the controller.
    #expect(try await cancelled(once: nil, connect) == .cancelled)
    #expect(try await cancelled(once: { await relay.command("01 43 20") }, connect) == .cancelled)
    await relay.command("01 0E 20")
    // No link has come up, and the next attempt works.
    var events = await peripheral.events.makeAsyncIterator()
    try await peripheral.advertiseFast()
    let link = try await within { try await central.connect(to: peer, .fast) }
    guard case .connected = try await events.next() else {
      Issue.record("no link")
      return
    }
    try await link.disconnect()
    guard case .disconnected = try await events.next() else {
      Issue.record("another link")
      return
    }
    // At any moment of an attempt that would succeed: both sides have a link, or neither has.
    for turns in 0..<40 {
      let task = Task { try await central.connect(to: peer, .fast) }
      for _ in 0..<turns { await Task.yield() }
      task.cancel()
      if let link = try? await within({ try await task.value }) { try await link.disconnect() }
    }
    let last = try await within { try await central.connect(to: peer, .fast) }
    #expect(try await last.read(belt.short) == [2])
    await central.close()
    await peripheral.close()
  }

  @Test func scan() async throws {
    let lab = Lab()
    let (central, relay) = try await lab.relayedHost()
    let peripheral = try await lab.host()
    try await peripheral.advertiseFast()
    let scan = { @Sendable () async throws(BluetoothError) in for try await _ in central.scan() {} }
    #expect(try await cancelled(once: nil, scan) == nil)
    #expect(try await cancelled(once: { await relay.command("01 42 20 06 01") }, scan) == nil)
    try await within { await relay.command("01 42 20 06 00") }
    // Cancelling the last of two ends the controller's scan, and the next one starts it again.
    let one = Task { for try await _ in central.scan() {} }
    try await within { await relay.command("01 42 20 06 01") }
    #expect(try await within { try await central.find("Belt") }.name == "Belt")
    one.cancel()
    try await one.value
    try await within { await relay.command("01 42 20 06 00") }
    #expect(try await within { try await central.find("Belt") }.name == "Belt")
    await central.close()
    await peripheral.close()
  }

  @Test func notifications() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let measurement = try await link.discovered("2A37")
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let read = { @Sendable () async throws(BluetoothError) in
        for try await _ in link.notifications(of: measurement) {}
      }
      #expect(try await cancelled(once: nil, read) == nil)
      let readers = (0..<2).map { _ in Task { try await read() } }
      guard case .subscriptionChanged(_, _, .notification) = try await events.next() else {
        Issue.record("not subscribed")
        return
      }
      // Both have a subscription: a value reaches both, and ending one leaves the other.
      #expect(try await link.read(belt.short) == [2])
      for reader in readers {
        await peripheral.notify([1], of: belt.notifying)
        reader.cancel()
        try await reader.value
      }
      guard case .subscriptionChanged(_, _, []) = try await events.next() else {
        Issue.record("still subscribed")
        return
      }
    }
    await central.close()
    await peripheral.close()
  }

  @Test func requests() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let events = Requests(await peripheral.events)
    let read = { @Sendable () async throws(BluetoothError) in _ = try await link.read(belt.dynamic) }
    #expect(try await cancelled(once: nil, read) == .cancelled)
    // The server has the request and does not answer it; the next one waits behind it.
    #expect(try await cancelled(once: { await events.next() }, read) == .cancelled)
    let discovery = Task { try await link.discoverAll() }
    discovery.cancel()
    await #expect(throws: BluetoothError.self) { try await discovery.value }
    await events.answer([5])
    let after = Task { try await link.read(belt.dynamic) }
    await events.next()
    await events.answer([6])
    #expect(try await within { try await after.value } == [6])
    #expect(try await within { try await link.discoverAll() }.services.count == 2)
    await central.close()
    await peripheral.close()
  }

  @Test func indicate() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, relay) = try await lab.relayedHost()
    let peripheral = try await lab.host(belt.database)
    try await peripheral.advertiseFast()
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    let characteristic = try await link.discovered("2A05")
    var events = await peripheral.events.makeAsyncIterator()
    let reader = Task { for try await _ in link.notifications(of: characteristic) {} }
    guard case .subscriptionChanged(let client, _, _) = try await events.next() else { return }
    let indicate = { @Sendable () async throws(BluetoothError) in
      try await peripheral.indicate([1], of: belt.indicating, on: client)
    }
    #expect(try await cancelled(once: nil, indicate) == .cancelled)
    // Its confirmation never comes.
    try await relay.fallSilent()
    let (indications, arrived) = AsyncStream.makeStream(of: Void.self)
    try await relay.watch { if $0[0] == 0x02, $0[9] == 0x1D { arrived.yield() } }
    let waiting = Task { () -> BluetoothError.Code? in
      do throws(BluetoothError) { try await indicate() } catch { return error.code }
      return nil
    }
    for await _ in indications { break }
    #expect(try await errorCode(indicate) == .busy)
    waiting.cancel()
    #expect(await waiting.value == .cancelled)
    #expect(try await errorCode(indicate) == .busy)
    reader.cancel()
    try await relay.close()
    await peripheral.close()
  }

  @Test func start() async throws {
    let lab = Lab()
    let (host, relay) = try await lab.unstartedHost()
    try await relay.fallSilent()
    let start = { @Sendable () async throws(BluetoothError) in try await host.start() }
    #expect(try await cancelled(once: nil, start) == .cancelled)
    #expect(try await cancelled(once: { await relay.command("01 03 0C") }, start) == .cancelled)
    // The start continues, and another task may wait for it.
    let second = Task { try await host.start() }
    try await relay.fromController("04 0E 04 01 03 0C 10")
    await #expect(throws: BluetoothError.self) { try await second.value }
    // Closing does not wait for a start.
    let (other, _) = try await lab.unstartedHost()
    #expect(try await cancelled(once: nil) { () async throws(BluetoothError) in try await other.start() } == .cancelled)
    await other.close()
  }

  @Test func advertise() async throws {
    let lab = Lab()
    let (host, relay) = try await lab.relayedHost()
    try await relay.fallSilent()
    let advertise = { @Sendable () async throws(BluetoothError) -> Void in
      try await host.advertise(AdvertisingData(localName: "x"))
    }
    #expect(try await cancelled(once: nil, advertise) == .cancelled)
    #expect(try await cancelled(once: { await relay.command("01 36 20") }, advertise) == .cancelled)
    // The answer comes late; the host sends nothing after it.
    try await relay.fromController("04 0E 05 01 36 20 00 00")
    await host.close()
    for await command in relay.commands { #expect(!command.starts(with: octets("01 39 20 06 01"))) }
  }
}

/// The read requests of a server, which wait for an answer.
actor Requests {
  private let events: ServerEventSequence
  private var pending: [ServerReadRequest] = []
  private var arrived = 0
  private var taken = 0
  init(_ events: ServerEventSequence) {
    self.events = events
    Task { await follow() }
  }
  private func follow() async {
    do {
      for try await event in events {
        guard case .readRequested(let request) = event else { continue }
        pending.append(request)
        arrived += 1
      }
    } catch {}
  }
  /// Returns when one more has arrived.
  func next() async {
    while arrived == taken { await Task.yield() }
    taken += 1
  }
  /// Answers the oldest.
  func answer(_ value: [UInt8]) async { try? await pending.removeFirst().respond(value) }
}
