import BindruneWire
import Foundation

@testable import Bindrune

extension SendPort {
  /// What the event loop does for one value.
  func sendNext(_ send: (Span<UInt8>) -> Bool) -> SendPort.Drained {
    let (left, isEdge) = sendNext(now: .zero) { value, _ in send(value) }
    if isEdge { tellReady() }
    return left
  }
}

/// Threads that use one `SendPort` at once: eight producers, and one in place of the event loop. It describes each
/// fault in words. `swift test` runs this, and `Tests/ThreadSanitizer/run` runs it under ThreadSanitizer.
final class SendPortThreads: @unchecked Sendable {
  // Sendable: the threads share only the port and what `condition` guards.
  private let condition = NSCondition()
  private var rings = 0, calls = 0, running = 0, found: [String] = []
  private var port: SendPort!
  static let producers = 8

  private static let handle = AttributeHandle(rawValue: 3)
  private let isForLink: Bool

  /// `capacity` octets. `isForLink`: each producer's values are for a handle of its own.
  init(capacity: Int, isForLink: Bool = false) {
    self.isForLink = isForLink
    port = SendPort(
      handle: isForLink ? nil : Self.handle, kind: .notification, capacity: capacity, mtu: 247,
      onReady: { [unowned self] in condition.withLock { calls += 1 } }
    ) { [unowned self] _ in
      condition.withLock {
        rings += 1
        condition.broadcast()
      }
    }
  }

  private func fault(_ text: String) { condition.withLock { if found.count < 10 { found.append(text) } } }
  private func start(_ body: @escaping @Sendable () -> Void) {
    condition.withLock { running += 1 }
    Thread.detachNewThread {
      body()
      self.condition.withLock {
        self.running -= 1
        self.condition.broadcast()
      }
    }
  }
  /// Seconds that only a hang exceeds.
  private static let bound = 600.0
  /// All threads have ended. False: not within the bound.
  private func join() -> Bool {
    let limit = Date(timeIntervalSinceNow: Self.bound)
    return condition.withLock {
      while running > 0 { guard condition.wait(until: limit) else { return false } }
      return true
    }
  }
  /// Waits until the port has woken the event loop. False: not within the bound.
  private func awaitRing() -> Bool {
    let limit = Date(timeIntervalSinceNow: Self.bound)
    return condition.withLock {
      while rings == 0 { guard condition.wait(until: limit) else { return false } }
      rings -= 1
      return true
    }
  }

  /// Value `number` of `producer`: the producer, the number, and as many further octets as those determine.
  private static func value(_ producer: Int, _ number: Int) -> [UInt8] {
    let fill = UInt8(truncatingIfNeeded: producer &* 31 &+ number)
    return [UInt8(producer), UInt8(number & 255), UInt8(number >> 8)]
      + [UInt8](repeating: fill, count: (number &* 7 &+ producer) % 240)
  }

  private func handle(of producer: Int) -> AttributeHandle {
    isForLink ? AttributeHandle(rawValue: UInt16(producer + 1)) : Self.handle
  }

  /// Each producer offers `count` values and retries if there is no room; all of them leave, in each producer's order.
  func share(count: Int) -> [String] {
    let port = port!
    for producer in 0..<Self.producers {
      let handle = handle(of: producer)
      start {
        for number in 0..<count {
          let value = Self.value(producer, number)
          // With and without an array; one producer also checks the count.
          while number.isMultiple(of: 2) ? !port.offer(value, to: handle) : !port.offer(value.span, to: handle) {
            sched_yield()
          }
          if producer == 0, port.count > port.capacity { self.fault("beyond the capacity") }
        }
      }
    }
    start {
      var next = [Int](repeating: 0, count: Self.producers), left = Self.producers * count, turn = 0
      while left > 0 {
        guard self.awaitRing() else { return self.fault("not woken") }
        let before = left
        var rest = SendPort.Drained.more
        while rest != .nothing {
          turn += 1
          if turn.isMultiple(of: 100) { port.mtuChanged(23 + turn % 500) }
          // Asking for room arms an edge, as a refusal does.
          if turn.isMultiple(of: 7) { _ = port.isReady() }
          let isEdge: Bool
          (rest, isEdge) = port.sendNext(now: .zero) { span, handle in
            if turn.isMultiple(of: 5) { return false }
            let value = span.indices.map { span[$0] }, producer = Int(value[0])
            let expected = Self.value(producer, next[producer])
            if value != expected { self.fault("\(value.prefix(4)), not \(expected.prefix(4))") }
            if handle != self.handle(of: producer) { self.fault("for \(handle), not producer \(producer)'s") }
            next[producer] += 1
            left -= 1
            return true
          }
          if isEdge { port.tellReady() }
        }
        if left == before { self.fault("woken for nothing") }
      }
    }
    if !join() { fault("not done") }
    if port.count != 0 { fault("\(port.count) octets are left") }
    let told = condition.withLock { calls }
    if told != port.readyEdges { fault("\(told) calls for \(port.readyEdges) edges") }
    return condition.withLock { found }
  }

  /// The link goes down while all offer: afterwards the port takes and lends nothing, and wakes every waiter once.
  func close() async -> [String] {
    let port = port!
    for producer in 0..<Self.producers {
      start {
        var number = 0
        while port.offer([UInt8](repeating: UInt8(producer), count: 100), to: Self.handle) || !self.isClosed {
          number += 1
          if number.isMultiple(of: 16) { sched_yield() }
        }
        if port.offer([1], to: Self.handle) { self.fault("taken after the end") }
      }
    }
    let waiters = (0..<Self.producers).map { _ in
      Task {
        var edges = 0
        while true {
          do throws(BluetoothError) { try await port.waitUntilReady() } catch { return edges }
          edges += 1
          await Task.yield()
        }
      }
    }
    start {
      for number in 0..<2000 {
        _ = port.sendNext { _ in true }
        if number.isMultiple(of: 100), port.removeAll(where: { _ in self.isForLink }) { port.tellReady() }
      }
      port.close(.linkIsDown)
      self.condition.withLock { self.hasClosed = true }
      if port.sendNext({ _ in true }) != .nothing { self.fault("lent after the end") }
      port.close(.closed)
    }
    if !join() { fault("not done") }
    for waiter in waiters { _ = await waiter.value }
    do throws(BluetoothError) {
      try await port.waitUntilReady()
      fault("ready after the end")
    } catch { if error != .linkIsDown { fault("\(error)") } }
    return condition.withLock { found }
  }
  private var hasClosed = false
  private var isClosed: Bool { condition.withLock { hasClosed } }
}
