import BindruneWire
import Synchronization
import TestSupport
import Testing

@testable import Bindrune

/// One port for all characteristics of a link.
@Suite("SendPort of a link", .virtualTime, .hang) struct LinkPortTests {
  private func port(
    _ capacity: Int, mtu: Int = 23, of handle: AttributeHandle? = nil, onReady: (@Sendable () -> Void)? = nil,
    wake: @escaping @Sendable (SendPort) -> Void = { _ in }
  ) -> SendPort {
    SendPort(
      handle: handle, kind: .command, capacity: capacity, mtu: mtu, onReady: onReady, wake: wake)
  }

  /// Compared with a slow list: every length at every place of the ring, handles, refusals, questions for room, values
  /// dropped from the middle, fences that come and go in any order, wakes, and one call of `onReady` for each edge.
  /// Also the port of one characteristic.
  @Test(arguments: [516, 517, 600, 1000, 4096], [nil, AttributeHandle(rawValue: 3)])
  func likeAList(_ capacity: Int, _ handle: AttributeHandle?) {
    let cost = handle == nil ? 4 : 2
    for seed in UInt64(0)..<10 {
      var chance = SplitMix64(seed: seed), model: [(value: [UInt8], handle: AttributeHandle)] = []
      var (isRefused, isDrainScheduled, wakes, edges) = (false, false, 0, 0)
      let woken = Atomic(0), called = Atomic(0)
      let port = port(
        capacity, of: handle, onReady: { called.add(1, ordering: .relaxed) },
        wake: { _ in woken.add(1, ordering: .relaxed) })
      #expect(port.capacity == capacity && port.costOfValue == cost)
      // Each fence, and the number of values before it; the event loop has reached the first fence.
      var fences: [(fence: SendPort.Fence?, values: Int)] = [], isStopped = false
      var used: Int { model.reduce(0) { $0 + $1.value.count + cost } }
      func takeEdge() {
        guard isRefused, used + max(port.longestValue + cost, capacity / 2) <= capacity else { return }
        (isRefused, edges) = (false, edges + 1)
      }
      for step in 0..<1000 {
        switch Int.random(in: 0..<28, using: &chance) {
        case 24: if fences.count < 5 { fences.append((port.fence(), model.count)) }
        case 25, 26, 27:
          #expect(fences.allSatisfy { $0.fence?.isReached == ($0.values == 0) }, "seed \(seed), step \(step)")
          guard !fences.isEmpty else { break }
          fences.remove(at: Int.random(in: 0..<fences.count, using: &chance))
          guard isStopped, fences.first?.values != 0 else { break }
          isStopped = false
          isDrainScheduled = !model.isEmpty
          if isDrainScheduled { wakes += 1 }
        case 0: port.mtuChanged(Int.random(in: 23...600, using: &chance))
        case 1:
          let gone = AttributeHandle(rawValue: UInt16.random(in: 0..<4, using: &chance))
          if port.removeAll(where: { $0 == gone }) { port.tellReady() }
          for index in fences.indices {
            fences[index].values -= model[..<fences[index].values].count { $0.handle == gone }
          }
          model.removeAll { $0.handle == gone }
          takeEdge()
        case 2:
          let isReady = used + port.longestValue + cost <= capacity
          #expect(port.isReady() == isReady)
          if !isReady { isRefused = true }
        case 3:
          let count = Int.random(in: 0...700, using: &chance), hasRoom = used + count <= capacity
          #expect(port.hasRoom(for: count) == hasRoom)
          if !hasRoom, used > 0 { isRefused = true }
        case 4...13:
          let value = (0..<Int.random(in: 0...600, using: &chance)).map { UInt8(truncatingIfNeeded: $0 + step) }
          let handle = handle ?? AttributeHandle(rawValue: UInt16.random(in: 0..<4, using: &chance))
          let kept = Array(value.prefix(512)), fits = used + kept.count + cost <= capacity
          #expect(port.offer(value, to: handle) == fits)
          if fits {
            model.append((kept, handle))
            if !isDrainScheduled { wakes += 1 }
            isDrainScheduled = true
          } else {
            isRefused = true
          }
        default:
          let isTaken = Int.random(in: 0..<4, using: &chance) > 0, first = model.first
          var lent: (value: [UInt8], handle: AttributeHandle)?
          let (left, isEdge) = port.sendNext(now: .zero) { value, handle in
            lent = (value.indices.map { value[$0] }, handle)
            return isTaken
          }
          if isEdge { port.tellReady() }
          if first != nil, fences.first?.values == 0 {
            #expect(left == .fenced && lent == nil, "seed \(seed), step \(step)")
            isStopped = true
            break
          }
          #expect(lent?.value == first?.value && lent?.handle == first?.handle, "seed \(seed), step \(step)")
          if first != nil, !isTaken {
            #expect(left == .refused)
            break
          }
          if first != nil {
            model.removeFirst()
            for index in fences.indices { fences[index].values -= 1 }
          }
          isDrainScheduled = !model.isEmpty
          #expect(left == (model.isEmpty ? .nothing : .more))
          takeEdge()
        }
        #expect(port.count == used && port.readyEdges == edges && woken.load(ordering: .relaxed) == wakes)
        #expect(called.load(ordering: .relaxed) == edges)
      }
    }
  }

  @Test func afterTheEnd() {
    let called = Atomic(0), port = port(0, onReady: { called.add(1, ordering: .relaxed) })
    #expect(port.capacity == 516 && port.isReady() && port.hasRoom(for: 516) && !port.hasRoom(for: 517))
    #expect(port.offer([UInt8](repeating: 1, count: 600), to: AttributeHandle(rawValue: 3)) && !port.isReady())
    port.close(.linkIsDown)
    #expect(!port.isReady() && !port.hasRoom(for: 0) && !port.offer([1], to: AttributeHandle(rawValue: 3)))
    #expect(port.sendNext { _ in true } == .nothing && called.load(ordering: .relaxed) == 0 && port.readyEdges == 0)
  }

  /// More than the port ever holds: no edge can follow in an empty port, so nobody waits for one.
  @Test func moreThanTheCapacity() async throws {
    let port = port(0)
    #expect(!port.hasRoom(for: 517))
    try await port.waitUntilReady()
    #expect(port.offer([1], to: AttributeHandle(rawValue: 3)) && !port.hasRoom(for: 517))
    #expect(port.sendNext { _ in true } == .nothing && port.readyEdges == 1)
    try await port.waitUntilReady()
  }

  /// Over the air: commands for two characteristics arrive in the order of the offers, from a producer that relies on
  /// `onReady` alone.
  @Test func inTheOrderOfTheOffers() async throws {
    var builder = DatabaseBuilder()
    let handles = builder.service("180D") { service in
      ["2A38", "2A39", "2A3A"].map { service.characteristic($0, .writeWithoutResponse, value: [0]).value }
    }
    let lab = Lab(), peripheral = try await lab.host(try builder.build()), central = try await lab.host()
    let count = 2_000
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertiseFast()
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      let port = Mutex<SendPort?>(nil), next = Mutex(0), calls = Atomic(0)
      @Sendable func offer() {
        guard let port = port.withLock({ $0 }) else { return }
        next.withLock { next in
          while next < count, port.offer([UInt8(next >> 8), UInt8(next & 255)], to: handles[next % 3]) { next += 1 }
        }
      }
      let made = try await central.sendPort(.command, on: link.id, capacity: 700) {
        calls.add(1, ordering: .relaxed)
        offer()
      }
      port.withLock { $0 = made }
      offer()
      for number in 0..<count {
        guard case .written(_, let handle, let value, 0)? = try await nextWritten(&events) else {
          Issue.record("not value \(number)")
          return
        }
        #expect(handle == handles[number % 3] && value == [UInt8(number >> 8), UInt8(number & 255)], "value \(number)")
      }
      #expect(calls.load(ordering: .relaxed) == made.readyEdges && made.readyEdges > 0)
      port.withLock { $0 = nil }
    }
    await central.close()
    await peripheral.close()
  }
  private func nextWritten(_ events: inout ServerEventSequence.AsyncIterator) async throws -> ServerEvent? {
    while let event = try await events.next() { if case .written = event { return event } }
    return nil
  }

  /// In its ready edge a producer offers values to another port of the link, and then makes a request that must come
  /// after them. The host takes what it can from the other port at once, and the rest later.
  @Test func fromWithinAnEdge() async throws {
    var builder = DatabaseBuilder()
    let handle = builder.service("180D") { $0.characteristic("2A39", .writeWithoutResponse, value: [0]).value }
    let lab = Lab(), peripheral = try await lab.host(try builder.build()), central = try await lab.host()
    let count = 2_000
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertiseFast()
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      let other = try await central.sendPort(.command, on: link.id, capacity: count * 24), isFirst = Atomic(true)
      let port = try await central.sendPort(.command, on: link.id, capacity: 700) {
        guard isFirst.exchange(false, ordering: .relaxed) else { return }
        for number in 0..<count { #expect(other.offer(value(number), to: handle)) }
        central.assumeIsolated { _ = $0.begin(.read(link.id, handle)) }
      }
      while port.offer([0xFF], to: handle) {}
      var next = 0
      while next < count, case .written(_, _, let octets, 0)? = try await nextWritten(&events) {
        if octets == [0xFF] { continue }
        #expect(octets == value(next))
        next += 1
      }
      #expect(next == count && other.count == 0)
    }
    await central.close()
    await peripheral.close()
    @Sendable func value(_ number: Int) -> [UInt8] {
      [UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 7, count: 18)
    }
  }

  /// A client that enabled indications gets each value as one, the next after its confirmation: in the order of the
  /// offers, however many wait. Vol 3, Part F, §3.4.7.2.
  @Test func indications() async throws {
    var builder = DatabaseBuilder()
    let handles = builder.service("180D") { service in
      ["2A35", "2A1C"].map { service.characteristic($0, .indicate).value }
    }
    let lab = Lab(), peripheral = try await lab.host(try builder.build()), central = try await lab.host()
    let count = 100
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertiseFast()
      let link = try await central.connect(to: peripheral.ownAddress, .fast), database = try await link.discover()
      guard case .connected(let server) = try await events.next() else {
        Issue.record("not connected")
        return
      }
      var subscriptions: [Subscription] = []
      for handle in handles {
        subscriptions.append(try await link.subscribe(to: try #require(database.characteristic(valueHandle: handle))))
      }
      let port = try await peripheral.sendPort(.notification, on: server.id)
      for number in 0..<count {
        while !port.offer([UInt8(number)], to: handles[number % 2]) { try await port.waitUntilReady() }
      }
      for (first, subscription) in subscriptions.enumerated() {
        var received: [UInt8] = []
        for try await value in subscription {
          #expect(value.isIndication)
          received += value.value
          if received.count == count / 2 { break }
        }
        #expect(received == stride(from: first, to: count, by: 2).map { UInt8($0) })
      }
      #expect(port.count == 0)
    }
    await central.close()
    await peripheral.close()
  }

  /// The server's services change while the port is full: the port drops values for removed handles, keeps the others,
  /// and reports one edge.
  @Test func servicesChanged() async throws {
    var builder = DatabaseBuilder()
    let changed = builder.service("1801") { $0.characteristic("2A05", .indicate).value }
    let kept = builder.service("180D") { $0.characteristic("2A39", .writeWithoutResponse, value: [0]).value }
    let gone = builder.service("180F") { $0.characteristic("2A19", .writeWithoutResponse, value: [0]).value }
    let lab = Lab(), peripheral = try await lab.host(try builder.build()), recorder = Recorder()
    let (central, relay) = try await lab.relayedHost(observer: recorder)
    let handle = Mutex<[UInt8]>([]), calls = Atomic(0)
    try await relay.watch { packet in
      if packet[0] == 0x02 { handle.withLock { $0 = [packet[1], packet[2] & 0x0F] } }
    }
    try await peripheral.advertiseFast()
    try await within {
      let link = try await central.connect(to: peripheral.ownAddress, .fast), database = try await link.discover()
      let port = try await central.sendPort(.command, on: link.id, capacity: 2_000) {
        calls.add(1, ordering: .relaxed)
      }
      let single = try await link.sendPort(.command, to: gone), other = try await link.sendPort(.command, to: kept)
      // The controller accepts nothing more: buffers, the link's queue and the port fill up.
      try await relay.fallSilent()
      var offered = 0, before = -1
      while before < offered {
        before = offered
        while port.offer([UInt8](repeating: 1, count: 16), to: offered.isMultiple(of: 2) ? kept : gone) { offered += 1 }
        // Some turns of the radio's loop and the host's: the offered values have advanced as far as they can.
        for _ in 0..<50 {
          try await lab.radio.eventLoop.submit {}.get()
          _ = await central.mtu(of: link.id)
        }
      }
      let edges = port.readyEdges
      let waiting = port.count / 20
      #expect(waiting == 100 && port.count == 2_000 && !port.isReady())
      let remaining = (offered - waiting..<offered).count { $0.isMultiple(of: 2) }

      // Handle Value Indication of Service Changed, Vol 3, Part F, §3.4.7.2 and Part G, §7.1.
      let service = try #require(database.service("180F")), acl = handle.withLock { $0 }
      let value = [service.handle, service.endHandle].flatMap { [UInt8($0.rawValue & 255), UInt8($0.rawValue >> 8)] }
      let pdu = [0x1D, UInt8(changed.rawValue & 255), UInt8(changed.rawValue >> 8)] + value
      let packet = [0x02, acl[0], acl[1] | 0x20, UInt8(pdu.count + 4), 0, UInt8(pdu.count), 0, 4, 0] + pdu
      try await relay.fromController(hex(packet))
      _ = try await recorder.first { if case .servicesChanged(link.id, service.range) = $0 { true } else { nil } }
      #expect(port.count == remaining * 20 && remaining == 50)
      #expect(port.readyEdges == edges + 1 && calls.load(ordering: .relaxed) == port.readyEdges)
      #expect(port.offer([2], to: kept) && !single.offer([1]) && other.offer([1]))
    }
    await central.close()
    await peripheral.close()
  }
}
