import Synchronization
import TestSupport
import Testing

@testable import Bindrune

@Suite("SendPort", .timeLimit(.minutes(1))) struct SendPortTests {
  private func port(_ capacity: Int, mtu: Int = 23, wake: @escaping @Sendable (SendPort) -> Void = { _ in }) -> SendPort
  {
    SendPort(
      link: LinkID(rawValue: 1), handle: AttributeHandle(rawValue: 3), kind: .notification, capacity: capacity,
      mtu: mtu, wake: wake)
  }

  /// 20 octets cost 36: a port of 100 takes two, and is ready again when one value of the MTU, 39, fits.
  @Test func boundedInBytesWithOneEdgePerRun() async throws {
    let woken = Atomic(0)
    let port = port(100) { _ in woken.add(1, ordering: .relaxed) }
    let value = [UInt8](repeating: 7, count: 20)
    #expect(port.offer(value) && port.offer(value) && !port.offer(value) && !port.offer(value))
    #expect(woken.load(ordering: .relaxed) == 1 && port.readyEdges == 0)
    #expect(port.sendNext { _ in false } == .refused)
    #expect(port.readyEdges == 0)
    #expect(port.sendNext { _ in true } == .more)
    #expect(port.readyEdges == 1)
    try await port.waitUntilReady()
    #expect(port.sendNext { _ in true } == .nothing)
    #expect(port.readyEdges == 1)
    #expect(port.offer(value) && port.offer(value) && !port.offer(value))
    #expect(woken.load(ordering: .relaxed) == 2)
    #expect(port.sendNext { _ in true } == .more && port.sendNext { _ in true } == .nothing)
    #expect(port.readyEdges == 2)
  }

  /// A port smaller than a value works, one value at a time.
  @Test func aTinyPort() async throws {
    let port = port(1, mtu: 517)
    let lengths = Mutex([Int]())
    for _ in 0..<3 {
      #expect(port.offer([UInt8](repeating: 1, count: 2000)) && !port.offer([1]))
      #expect(
        port.sendNext { value in
          lengths.withLock { $0.append(value.count) }
          return true
        } == .nothing)
      try await port.waitUntilReady()
    }
    #expect(lengths.withLock { $0 } == [512, 512, 512] && port.readyEdges == 3)
  }

  @Test func theEndOfTheLinkEndsWaiters() async throws {
    let port = port(1)
    #expect(port.offer([1]) && !port.offer([2]))
    let waiters = (0..<3).map { _ in Task { try await port.waitUntilReady() } }
    let cancelled = Task { try await port.waitUntilReady() }
    cancelled.cancel()
    await #expect(throws: BluetoothError.cancelled) { try await cancelled.value }
    port.close(.linkIsDown)
    port.close(.closed)
    for waiter in waiters { await #expect(throws: BluetoothError.linkIsDown) { try await waiter.value } }
    #expect(!port.offer([3]) && port.sendNext { _ in true } == .nothing && port.readyEdges == 0)
    await #expect(throws: BluetoothError.linkIsDown) { try await port.waitUntilReady() }
  }

  /// Eight producers, each with a port of its own that is far too small: nothing is lost, each one's values in order.
  @Test func eightProducers() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let measurement = try await link.discovered("2A37")
    let count = 300
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let reader = Task {
        var next = [UInt16](repeating: 0, count: 8), total = 0
        for try await value in link.notifications(of: measurement) {
          let producer = Int(value.value[0])
          #expect(UInt16(value.value[1]) << 8 | UInt16(value.value[2]) == next[producer] && value.value.count == 100)
          next[producer] += 1
          total += 1
          if total == 8 * count { return }
        }
        Issue.record("only \(next)")
      }
      guard case .subscriptionChanged(let client, _, _) = try await events.next() else { return }
      let back = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 1)
      #expect(back.kind == .notification)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for producer in 0..<8 {
          group.addTask {
            let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 700)
            var refusals = 0
            for number in 0..<count {
              let value = [UInt8(producer), UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 0, count: 97)
              while !port.offer(value) {
                refusals += 1
                try await port.waitUntilReady()
              }
            }
            // One edge for each run of refusals, and each run here was one refusal.
            #expect(port.readyEdges == refusals)
          }
        }
        try await group.waitForAll()
      }
      try await reader.value
    }
    await central.close()
    await peripheral.close()
  }

  /// Writes without response; the port is let go before its values have left, and they arrive all the same.
  @Test func aPortThatIsLetGo() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      weak var gone: SendPort?
      do {
        let port = try await link.sendPort(.command, to: belt.short, capacity: 1 << 16)
        gone = port
        for number in 0..<200 { #expect(port.offer([UInt8(number)])) }
      }
      for number in 0..<200 {
        guard case .written(_, belt.short, [UInt8(number)], 0) = try await events.next() else {
          Issue.record("not \(number)")
          return
        }
      }
      #expect(gone == nil)
    }
    await central.close()
    await peripheral.close()
  }

  @Test func nobodyHasSubscribed() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await link.write([1], to: belt.short)
      guard case .written(let client, _, _, _) = try await events.next() else { return }
      let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 30)
      for _ in 0..<20 {
        while !port.offer([1, 2, 3]) { try await port.waitUntilReady() }
      }
      // With the link goes the port.
      try await link.disconnect()
      while let event = try await events.next() { if case .disconnected(client, _) = event { break } }
      #expect(!port.offer([1]))
    }
    await central.close()
    await peripheral.close()
  }
}
