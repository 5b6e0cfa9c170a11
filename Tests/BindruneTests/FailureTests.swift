import Bindrune
import BindruneTransport
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// Whatever fails below, each caller soon gets one named error.
@Suite("Failure", .virtualTime, .hang) struct FailureTests {
  @Test func hardwareError() async throws {
    let lab = Lab(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.relayedHost()
    let tasks = try await waiting(on: central, peripheral, belt)
    try await relay.fromController("04 10 01 42")
    try await expectEnd(tasks, of: central, [.controller])
    await peripheral.close()
  }

  /// A wait that concerns no link ends with the reason for the controller's loss, and not with the host's closing.
  @Test func aHardwareErrorIsTheCauseOfAllEnds() async throws {
    let lab = Lab(), (central, relay) = try await lab.relayedHost()
    let connecting = Task {
      do throws(BluetoothError) {
        _ = try await central.connect(to: PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random))
      } catch {
        return error.diagnostics
      }
      return "connected"
    }
    // LE Extended Create Connection.
    try await within { await relay.command("01 43 20") }
    try await relay.fromController("04 10 01 42")
    let cause = try await within { await connecting.value }
    #expect(cause.hasPrefix("The controller failed, "), "\(cause)")
  }

  /// Each error names what the controller does not do. Vol 4, Part E, §7.5.4, §7.1.6; errors: Vol 1, Part F, §2.
  @Test func aRefusalNamesTheOperation() async throws {
    let lab = Lab(), belt = try Belt(), peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.relayedHost()
    try await peripheral.advertiseFast()
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    // No command is outstanding when the controller stops answering.
    _ = try await link.read(belt.short)
    _ = try await link.readRSSI()
    try await within { await relay.command("01 05 14") }
    try await relay.fallSilent()
    let operations:
      [(command: String, answer: String, words: String, run: @Sendable () async throws(BluetoothError) -> Void)] = [
        (
          "01 05 14", "04 0E 07 01 05 14 1F 40 00 00", "read the signal strength",
          { () async throws(BluetoothError) in _ = try await link.readRSSI() }
        ),
        (
          "01 06 04", "04 0F 04 1F 01 06 04", "take the link down",
          { () async throws(BluetoothError) in try await link.disconnect() }
        ),
      ]
    for (command, answer, words, run) in operations {
      let task = Task { () -> BluetoothError? in
        do throws(BluetoothError) { try await run() } catch { return error }
        return nil
      }
      try await within { await relay.command(command) }
      try await relay.fromController(answer)
      let error = try await within { await task.value }
      #expect(error?.code == .controller && error?.status == .unspecifiedError, "\(words)")
      #expect(error?.diagnostics.contains(words) == true, "\(error?.diagnostics ?? "none")")
    }
    try await relay.close()
    await peripheral.close()
  }

  /// The links end first, with a named error; the peer sees a disconnection, not a time-out.
  @Test func close() async throws {
    let lab = Lab(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.relayedHost()
    let tasks = try await waiting(on: central, peripheral, belt)
    var events = await peripheral.events.makeAsyncIterator()
    try await within {
      async let first: Void = central.close()
      async let second: Void = central.close()
      _ = await (first, second)
      await central.close()
    }
    try await expectEnd(tasks, of: central, [.disconnected, .notStarted])
    while let event = try await events.next() {
      guard case .disconnected(_, let reason) = event else { continue }
      #expect(reason == .remoteUserTerminatedConnection)
      break
    }
    // And the controller is in its first state again: its reset ends the connection attempt and the scan.
    try await within { await relay.command("01 03 0C") }
    await peripheral.close()
  }

  /// Neither the peer's controller nor ours answers any more: it takes one second, no longer.
  @Test func closeOnASilentController() async throws {
    let lab = Lab(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.relayedHost()
    try await peripheral.advertiseFast()
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    let read = Task { try await link.read(belt.dynamic) }
    try await relay.fallSilent()
    let start = VirtualLoop.current.now
    let closing = Task {
      // Also in a cancelled task the end is the same.
      while !Task.isCancelled { await Task.yield() }
      await central.close()
    }
    closing.cancel()
    try await within { await closing.value }
    #expect(VirtualLoop.current.now - start < .milliseconds(1_500))
    await #expect(throws: BluetoothError.self) { try await read.value }
    try await relay.close()
    await peripheral.close()
  }

  /// Two seconds without an answer to HCI_Reset.
  @Test func noControllerThere() async throws {
    let (transport, controller) = MemoryTransport.pair(on: VirtualLoop.current), host = BluetoothHost(transport)
    let start = VirtualLoop.current.now
    let error = await #expect(throws: BluetoothError.self) { try await within { try await host.start() } }
    #expect(error?.code == .controller && error?.diagnostics.contains("HCI_Reset") == true)
    let time = VirtualLoop.current.now - start
    #expect(time >= .seconds(2) && time < .milliseconds(2_500))
    withExtendedLifetime(controller) {}
  }

  @Test func aHostThatIsLetGo() async throws {
    let lab = Lab(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    try await peripheral.advertiseFast()
    weak var gone: BluetoothHost?
    let listener: Task<BluetoothError.Code?, Never>
    do {
      let central = try await lab.host()
      gone = central
      let events = await central.events
      listener = Task {
        do throws(BluetoothError) { for try await _ in events {} } catch { return error.code }
        return nil
      }
      let unheard = await central.events
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      #expect(try await link.read(belt.short) == [2])
      for try await _ in central.scan() { break }
      let measurement = try await link.discovered("2A37")
      let reader = Task { for try await _ in link.notifications(of: measurement) {} }
      reader.cancel()
      try await reader.value
      _ = unheard
    }
    #expect(try await within { await listener.value } == .notStarted)
    #expect(gone == nil)
    // Its controller goes with it.
    try await eventually { try await lab.controllerCount() == 1 }
    await peripheral.close()
  }
}

/// Failures of a socket: its end, and octets that are not packets.
@Suite("Failure of a stream", .realTime, .hang) struct StreamFailureTests {
  @Test func theTransportEnds() async throws {
    let lab = Lab.overSockets(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.streamedHost()
    let tasks = try await waiting(on: central, peripheral, belt)
    try await relay.close()
    try await expectEnd(tasks, of: central, [.transport])
    await central.close()
    await peripheral.close()
  }

  @Test func garbage() async throws {
    let lab = Lab.overSockets(), belt = try Belt()
    let peripheral = try await lab.host(belt.database)
    let (central, relay) = try await lab.streamedHost()
    let tasks = try await waiting(on: central, peripheral, belt)
    try await relay.fromController("47 45 54 20 2F 20 48 54 54 50")
    try await expectEnd(tasks, of: central, [.transport])
    await peripheral.close()
  }

  /// Garbage is no answer to HCI_Reset.
  @Test func garbageInsteadOfAController() async throws {
    let server = try await H4Server.listen(
      on: .tcp(host: "127.0.0.1", port: 0), loop: RealTime.nextLoop()
    ) { stream in
      let garbage = [UInt8](repeating: 0x55, count: 100)
      stream.send(garbage.span)
      stream.flush()
    }
    let error = try await within { () -> BluetoothError? in
      do throws(BluetoothError) { _ = try await BluetoothHost.open("\(server.address)") } catch { return error }
      return nil
    }
    #expect(error?.code == .controller && error?.diagnostics.contains("HCI_Reset") == true)
    #expect(error?.operation == "open \(server.address)")
    await server.close()
  }
}

/// Everything that can wait on a host, each as a task that returns the code of its error; nil: no error.
private func waiting(
  on central: BluetoothHost, _ peripheral: BluetoothHost, _ belt: Belt
) async throws -> [(name: String, task: Task<BluetoothError.Code?, Never>)] {
  func task(
    _ name: String, _ body: @escaping @Sendable () async throws(BluetoothError) -> Void
  ) -> (String, Task<BluetoothError.Code?, Never>) {
    (
      name,
      Task {
        do throws(BluetoothError) { try await body() } catch { return error.code }
        return nil
      }
    )
  }
  try await peripheral.advertiseFast()
  let link = try await central.connect(to: peripheral.ownAddress, .fast)
  let database = try await link.discoverAll()
  let (measurement, indicated) = (
    try #require(database.characteristic("2A37")), try #require(database.characteristic("2A05"))
  )
  var served = await peripheral.events.makeAsyncIterator()
  let port = try await link.sendPort(.command, to: belt.short, capacity: 1)
  let events = await central.events
  var tasks = [
    task("values") { () async throws(BluetoothError) in for try await _ in link.notifications(of: measurement) {} },
    task("values") { () async throws(BluetoothError) in for try await _ in link.notifications(of: indicated) {} },
  ]
  for _ in tasks {
    guard case .subscriptionChanged? = try await served.next() else {
      Issue.record("not subscribed")
      return []
    }
  }
  tasks += [
    task("events") { () async throws(BluetoothError) in for try await _ in events {} },
    task("scan") { () async throws(BluetoothError) in for try await _ in central.scan() {} },
    task("connect") { () async throws(BluetoothError) in
      _ = try await central.connect(to: PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random))
    },
    task("read") { () async throws(BluetoothError) in _ = try await link.read(belt.dynamic) },
  ]
  guard case .readRequested? = try await served.next() else {
    Issue.record("not asked")
    return []
  }
  tasks += [
    task("read behind it") { () async throws(BluetoothError) in _ = try await link.read(belt.short) },
    task("port") { () async throws(BluetoothError) in
      while true {
        if !port.offer([1]) { try await port.waitUntilReady() }
        await Task.yield()
      }
    },
  ]
  return tasks
}
/// Each has ended with one of `codes`, and so do later calls.
private func expectEnd(
  _ tasks: [(name: String, task: Task<BluetoothError.Code?, Never>)], of host: BluetoothHost,
  _ codes: [BluetoothError.Code]
) async throws {
  for (name, task) in tasks {
    let code = try await within { await task.value }
    #expect(code.map(codes.contains) == true, "\(name): \(code.map { "\($0)" } ?? "ended well")")
  }
  let late = try await errorCode { () async throws(BluetoothError) in try await host.start() }
  #expect(late.map(codes.contains) == true)
  #expect(try await errorCode { () async throws(BluetoothError) in for try await _ in host.scan() {} } == late)
  #expect(try await errorCode { () async throws(BluetoothError) in for try await _ in await host.events {} } == late)
}
