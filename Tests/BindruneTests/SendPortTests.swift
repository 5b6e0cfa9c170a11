import BindruneWire
import DequeModule
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import Bindrune

@Suite("SendPort", .virtualTime, .hang) struct SendPortTests {
  private func port(_ capacity: Int, mtu: Int = 23, wake: @escaping @Sendable (SendPort) -> Void = { _ in }) -> SendPort
  {
    SendPort(
      handle: AttributeHandle(rawValue: 3), kind: .notification, capacity: capacity, mtu: mtu, wake: wake)
  }

  /// 20 octets take 22: a port of 514 takes 23 such values. It is ready when 257 are free and one value of the MTU
  /// fits, and not before.
  @Test(arguments: [(mtu: 23, sent: 12), (mtu: 247, sent: 12), (mtu: 300, sent: 14), (mtu: 517, sent: 23)])
  func boundedInBytes(_ mtu: Int, _ sent: Int) async throws {
    let woken = Atomic(0)
    let port = port(0, mtu: mtu) { _ in woken.add(1, ordering: .relaxed) }
    let value = [UInt8](repeating: 7, count: 20)
    #expect(port.capacity == 514 && port.longestValue == min(mtu - 3, 512))
    for run in 1...3 {
      var taken = 0
      while port.offer(value) { taken += 1 }
      #expect(taken == 23 && port.count == 506)
      for _ in 0..<5 { #expect(!port.offer(value)) }
      #expect(woken.load(ordering: .relaxed) == run, "one wake for a burst")
      #expect(port.sendNext { _ in false } == .refused && port.count == 506 && port.readyEdges == run - 1)
      for number in 1...23 {
        #expect(port.readyEdges == (number > sent ? run : run - 1))
        #expect(port.sendNext { _ in true } == (number < 23 ? .more : .nothing))
        #expect(port.readyEdges == (number >= sent ? run : run - 1))
      }
      try await port.waitUntilReady()
      #expect(port.count == 0 && port.sendNext { _ in true } == .nothing && port.readyEdges == run)
    }
  }

  /// Three accepted writes: one edge, when the last has left. After a refusal there is that edge, and this one. A port
  /// that does not tell it has the first alone.
  @Test(arguments: [true, false]) func anEdgeWhenAllHaveLeft(_ tellsDrained: Bool) {
    let ready = Atomic(0), value = [UInt8](repeating: 7, count: 20)
    let port = SendPort(
      handle: AttributeHandle(rawValue: 3), kind: .command, capacity: 0, mtu: 23, tellsDrained: tellsDrained,
      onReady: { ready.add(1, ordering: .relaxed) }, wake: { _ in })
    func drain() {
      while port.sendAll(now: .zero, inTurns: true, { _, _ in true }, sent: {}) == .more {}
    }
    for run in 1...3 {
      for _ in 0..<3 { #expect(port.offer(value)) }
      #expect(port.sendAll(now: .zero, inTurns: true, { _, _ in false }, sent: {}) == .refused)
      drain()
      drain()
      #expect(ready.load(ordering: .relaxed) == (tellsDrained ? run : 0) && port.readyEdges == 0)
    }
    while port.offer(value) {}
    drain()
    #expect(ready.load(ordering: .relaxed) == (tellsDrained ? 5 : 1) && port.readyEdges == 1)
  }

  /// A producer fills the port at each ready edge; the link sends `burst` values every `interval` ms. After the first
  /// five seconds no value waits longer than `oldest` ms, and none of the places on the air stays empty.
  @Test(arguments: [
    (burst: 1, interval: 0.5, oldest: 270), (1, 3.7, 270), (2, 7.5, 270), (8, 30, 300), (1, 30, 270), (6, 100, 300),
    (1, 125, 1_000), (40, 1_000, 1_000),
  ]) func boundedByTime(_ burst: Int, _ interval: Double, _ oldest: Int) {
    let port = port(16 * 1024), value = [UInt8](repeating: 7, count: 20)
    var now = Instant.zero, offered: Deque<Instant> = [], places = 0, empty = 0, longest = Duration.zero
    func fill() { while port.offer(value) { offered.append(now) } }
    fill()
    #expect(offered.count == 32, "before the first measurement")
    while now < .zero + .seconds(60) {
      now += .nanoseconds(Int(interval * 1_000_000))
      for _ in 0..<burst {
        places += 1
        guard let first = offered.popFirst() else {
          empty += 1
          continue
        }
        if now > .zero + .seconds(5) { longest = max(longest, now - first) }
        if port.sendNext(now: now, { _, _ in true }).isEdge { fill() }
      }
    }
    #expect(longest <= .milliseconds(oldest))
    #expect(empty == 0, "of \(places) places")
  }
  /// On a link that carries 200 values a second, six each 30 ms, a producer that never lacks a value: each arrives
  /// within half a second of its offer, from the first one on, and none of the link's places stays empty.
  @Test func aFreshValueLeavesSoon() async throws {
    let lab = Lab(packetsPerEvent: 6), belt = try Belt(), clock = lab.radio.eventLoop
    let peripheral = try await lab.host(belt.database), central = try await lab.host()
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertiseFast()
      let link = try await central.connect(to: peripheral.ownAddress, .balanced)
      guard case .connected(let server) = try await events.next() else {
        Issue.record("not connected")
        return
      }
      let subscription = try await link.subscribe(to: link.discovered("2A37"))
      let port = try await peripheral.sendPort(.notification, on: server.id)
      let producer = Task {
        while !Task.isCancelled {
          let time = clock.now.uptimeNanoseconds
          let value = (0..<20).map { $0 < 8 ? UInt8(truncatingIfNeeded: time >> (8 * UInt64($0))) : 0 }
          if !port.offer(value, to: belt.notifying) { try await port.waitUntilReady() }
        }
      }
      let end = clock.now + TimeAmount.seconds(2)
      var oldest: UInt64 = 0, count = 0
      for try await value in subscription {
        let offered = value.value.prefix(8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        oldest = max(oldest, clock.now.uptimeNanoseconds - offered)
        count += 1
        if clock.now > end { break }
      }
      producer.cancel()
      #expect(oldest < 500_000_000 && count >= 2 * 33 * 6, "\(oldest / 1_000_000) ms, \(count) values")
    }
    await central.close()
    await peripheral.close()
  }

  /// Writes without response wait as long as they must: only octets bound them, and 22 octets each take 744 of 16 KiB.
  @Test func commandsAreBoundedByOctets() {
    let handle = AttributeHandle(rawValue: 3), value = [UInt8](repeating: 7, count: 20)
    let port = SendPort(handle: handle, kind: .command, capacity: 16 * 1024, mtu: 23) { _ in }
    for second in 0..<3 {
      while port.offer(value) {}
      #expect(port.count == 744 * 22)
      while port.count > 0 { _ = port.sendNext(now: .zero + .seconds(second)) { _, _ in true } }
    }
  }

  /// 512 octets are the longest value; a longer one leaves cut to that, or to what the link's MTU carries.
  @Test func whatIsTooLongIsCut() async throws {
    let port = port(0, mtu: 517)
    var lengths: [Int] = []
    for _ in 0..<3 {
      #expect(port.offer([UInt8](repeating: 1, count: 2000)) && !port.offer([]))
      #expect(
        port.sendNext { value in
          lengths.append(value.count)
          return true
        } == .nothing)
      try await port.waitUntilReady()
    }
    #expect(lengths == [512, 512, 512] && port.readyEdges == 3)
    let most = self.port(.max)
    #expect(most.capacity == 1 << 24, "memory has a limit, whatever is asked for")

    var configuration = HostConfiguration()
    configuration.preferredMTU = 100
    let lab = Lab(), belt = try Belt(), peripheral = try await lab.host(belt.database), served = configuration
    try await peripheral.advertiseFast()
    let central = try await lab.host(Database(), served)
    try await within {
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      let measurement = try await link.discovered("2A37")
      var events = await peripheral.events.makeAsyncIterator()
      let first = Task {
        for try await value in link.notifications(of: measurement) { return value.value }
        return []
      }
      var client: LinkID?
      while client == nil, let event = try await events.next() {
        if case .subscriptionChanged(let id, _, _) = event { client = id }
      }
      let up = try #require(client)
      let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: up, capacity: 2000)
      #expect(port.longestValue == 97 && port.offer([UInt8](repeating: 9, count: 400)))
      #expect(try await first.value == [UInt8](repeating: 9, count: 97))
    }
    await central.close()
    await peripheral.close()
  }

  @Test func theEndOfTheLinkEndsWaiters() async throws {
    let port = port(0)
    let longest = [UInt8](repeating: 1, count: 512)
    #expect(port.offer(longest) && !port.offer([2]))
    let waiters = (0..<3).map { _ in Task { try await port.waitUntilReady() } }
    let cancelled = Task { try await port.waitUntilReady() }
    cancelled.cancel()
    await #expect(throws: BluetoothError.cancelled) { try await cancelled.value }
    port.close(.linkIsDown)
    port.close(.closed)
    for waiter in waiters { await #expect(throws: BluetoothError.linkIsDown) { try await waiter.value } }
    #expect(!port.offer([3]) && port.count == 0 && port.sendNext { _ in true } == .nothing && port.readyEdges == 0)
    await #expect(throws: BluetoothError.linkIsDown) { try await port.waitUntilReady() }
  }

  /// Real threads: no value is lost, doubled, torn or out of order, and no wake is missed or superfluous.
  @Test(arguments: [(0, false), (2_000, true), (1 << 16, true)]) func eightThreadsShareAPort(
    _ capacity: Int, _ isForLink: Bool
  ) {
    #expect(SendPortThreads(capacity: capacity, isForLink: isForLink).share(count: 2_000) == [])
  }
  @Test(arguments: [(0, true), (1 << 16, false)]) func closedUnderEightThreads(_ capacity: Int, _ isForLink: Bool) async
  {
    #expect(await SendPortThreads(capacity: capacity, isForLink: isForLink).close() == [])
  }

  /// After one burst of offers, two ports of a link send one value each in turn.
  @Test func portsTakeTurns() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let ports = [
        try await link.sendPort(.command, to: belt.short), try await link.sendPort(.command, to: belt.short),
      ]
      // The offers run on the draining loop, which drains after all of them.
      try await lab.radio.eventLoop.submit {
        for (number, port) in ports.enumerated() {
          for _ in 0..<50 { #expect(port.offer([UInt8(number)])) }
        }
      }.get()
      for number in 0..<100 {
        guard case .written(_, _, let value, _)? = try await events.next() else {
          Issue.record("not value \(number)")
          return
        }
        #expect(value == [UInt8(number & 1)], "value \(number)")
      }
    }
    await central.close()
    await peripheral.close()
  }

  /// Eight producers, each with its own, far too small port: no value is lost, and each producer's arrive in order.
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
      let back = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 0)
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

  /// Writes without response: the values of a port released early still arrive.
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
      let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 0)
      for _ in 0..<2000 {
        while !port.offer([1, 2, 3]) { try await port.waitUntilReady() }
      }
      // The port ends with the link.
      try await link.disconnect()
      while let event = try await events.next() { if case .disconnected(client, _) = event { break } }
      #expect(!port.offer([1]))
    }
    await central.close()
    await peripheral.close()
  }
}
