import BindruneATT
import TestSupport
import Testing

@testable import Bindrune

/// Values read in batches.
@Suite("Batches", .virtualTime, .hang) struct BatchTests {
  /// Compared with a list of arrays: the same values come out in order, however they are read, and waiting values never
  /// exceed the capacity.
  @Test(arguments: 0..<20) func likeAList(seed: UInt64) throws {
    var chance = SplitMix64(seed: seed)
    let capacity = Int.random(in: 1...4000, using: &chance), handle = AttributeHandle(rawValue: 7)
    var pile = ReceivedBatch(handle, capacity: capacity), model: [ReceivedValue] = []
    for step in 0..<2000 {
      switch Int.random(in: 0..<100, using: &chance) {
      case 0..<60:
        let count = Bool.random(using: &chance) ? 244 : Int.random(in: 0...512, using: &chance)
        let value = (0..<count).map { _ in UInt8.random(in: 0...255, using: &chance) }
        let isIndication = Bool.random(using: &chance)
        let cost = model.reduce(0) { $0 + $1.value.count + 16 } + count + 16
        let error = pile.append(value.span, isIndication: isIndication)
        #expect((error == nil) == (model.isEmpty || cost <= capacity), "seed \(seed), step \(step)")
        if error == nil { model.append(ReceivedValue(handle: handle, value: value, isIndication: isIndication)) }
      case 60..<95:
        #expect(pile.popFirst() == (model.isEmpty ? nil : model.removeFirst()), "seed \(seed), step \(step)")
      default:
        let all = pile.takeAll()
        #expect(Array(all) == model && all.count == model.count && pile.isEmpty, "seed \(seed), step \(step)")
        for (index, value) in zip(all.indices, model) {
          #expect(all.withValue(at: index) { octets in octets.indices.map { octets[$0] } } == value.value)
        }
        model = []
      }
      #expect(pile.isEmpty == model.isEmpty && pile.count == model.count && pile.first == model.first)
    }
  }

  /// A reader that takes nothing gets a prefix without a gap, then the reason.
  @Test func noGapGoesUnseen() async throws {
    let handle = AttributeHandle(rawValue: 7)
    let inbox = Inbox(ReceivedBatch(handle, capacity: 100), to: "read values")  // six values of no octets
    for number in 0..<20 {
      inbox.add { $0.append([UInt8](repeating: 0, count: number < 6 ? 0 : 500).span, isIndication: false) }
      inbox.wake()
    }
    #expect(try await inbox.take() != nil)
    #expect(try await inbox.takeAll()?.count == 5)
    for _ in 0..<2 {
      await #expect(throws: BluetoothError.overflow(octets: 100).during("read values")) { try await inbox.takeAll() }
    }
  }

  @Test func cancelled() async throws {
    let inbox = Inbox(ReceivedBatch(AttributeHandle(rawValue: 7), capacity: 100), to: "read values")
    let reader = Task { try await inbox.takeAll() }
    reader.cancel()
    #expect(try await reader.value == nil)
    #expect(inbox.isFinished)
  }

  /// Ten thousand notifications, read alternately one at a time and all at once; then the link goes down, after the
  /// last one.
  @Test func throughAHost() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let measurement = try await link.discovered("2A37")
    let count = 10_000
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let subscription = try await link.subscribe(to: measurement, capacity: count * 40)
      guard case .subscriptionChanged(let client, _, _) = try await events.next() else { return }
      let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: client, capacity: 4096)
      let sender = Task {
        for number in 0..<count {
          let value = [UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 7, count: number % 21)
          while !port.offer(value) { try await port.waitUntilReady() }
        }
      }
      var next = 0
      func check(_ value: ReceivedValue) {
        #expect(value.value == [UInt8(next >> 8), UInt8(next & 255)] + [UInt8](repeating: 7, count: next % 21))
        next += 1
      }
      var values = subscription.makeAsyncIterator(), batches = subscription.batches.makeAsyncIterator()
      while next < count - 100 {
        if let value = try await values.next() { check(value) }
        if let batch = try await batches.next() { for value in batch { check(value) } }
      }
      try await sender.value
      while next < count, let value = try await values.next() { check(value) }
      try await link.disconnect()
      var end = BluetoothError.linkWentDown(.connectionTerminatedByLocalHost)
      end.operation = "keep the link to \(await link.address)"
      await #expect(throws: end) { try await batches.next() }
      #expect(next == count)
    }
    await central.close()
    await peripheral.close()
  }

  /// A loop over batches subscribes, and still reads what waits when the link ends.
  @Test func asALoop() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let measurement = try await link.discovered("2A37")
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let reader = Task { () -> [UInt8] in
        var numbers: [UInt8] = []
        do throws(BluetoothError) {
          for try await batch in link.notifications(of: measurement).batches {
            for index in batch.indices { numbers.append(batch.withValue(at: index) { $0[0] }) }
          }
        } catch { #expect(error.code == .disconnected) }
        return numbers
      }
      guard case .subscriptionChanged = try await events.next() else { return }
      for number in UInt8(0)..<200 { await peripheral.notify([number], of: belt.notifying) }
      // A request after them on the same link: they arrive before its answer.
      #expect(try await link.read(belt.short) == [2])
      try await link.disconnect()
      #expect(await reader.value == Array(0..<200))
    }
    await central.close()
    await peripheral.close()
  }
}
