import TestSupport
import Testing

@testable import Bindrune

@Suite("Mailbox", .realTime, .hang) struct MailboxTests {
  private func rest(_ mailbox: Mailbox<Int>) async throws(BluetoothError) -> [Int] {
    var taken: [Int] = []
    while let element = try await mailbox.take() { taken.append(element) }
    return taken
  }

  @Test func inOrder() async throws {
    let mailbox = Mailbox<Int>(capacity: 1000, overflow: .end, to: "read numbers")
    let consumer = Task { try await rest(mailbox) }
    for number in 0..<1000 { mailbox.put(number) }
    mailbox.finish()
    mailbox.finish(.closed)  // the first end counts
    mailbox.put(1000)
    #expect(try await consumer.value == Array(0..<1000))
    #expect(try await mailbox.take() == nil)
  }

  @Test func theNewestStay() async throws {
    let mailbox = Mailbox<Int>(capacity: 3, overflow: .dropOldest, to: "read numbers")
    for number in 0..<10 { mailbox.put(number) }
    mailbox.finish()
    #expect(try await rest(mailbox) == [7, 8, 9])
  }

  @Test func noGapGoesUnseen() async throws {
    let mailbox = Mailbox<Int>(capacity: 3, overflow: .end, to: "read numbers")
    for number in 0..<10 { mailbox.put(number) }
    for number in 0..<3 { #expect(try await mailbox.take() == number) }
    mailbox.put(11)
    for _ in 0..<2 {
      await #expect(throws: BluetoothError.overflow(3).during("read numbers")) { try await mailbox.take() }
    }
  }

  @Test func whoWaitsHearsTheEnd() async throws {
    let mailbox = Mailbox<Int>(capacity: 3, overflow: .end, to: "read numbers")
    let consumer = Task { try await mailbox.take() }
    mailbox.finish(.linkIsDown)
    await #expect(throws: BluetoothError.linkIsDown.during("read numbers")) { try await consumer.value }
  }

  /// Drops what waits: the consumer has ended.
  @Test func cancelled() async throws {
    let mailbox = Mailbox<Int>(capacity: 3, overflow: .end, to: "read numbers")
    mailbox.put(1)
    let consumer = Task {
      while !Task.isCancelled { await Task.yield() }
      return try await mailbox.take()
    }
    consumer.cancel()
    #expect(try await consumer.value == nil)
    #expect(mailbox.isFinished)
    let waiting = Mailbox<Int>(capacity: 3, overflow: .end, to: "read numbers")
    let other = Task { try await waiting.take() }
    other.cancel()
    #expect(try await other.value == nil)
  }

  @Test func waiters() async throws {
    let waiters = Waiters()
    let begun = Mailbox<Int>(capacity: 8, overflow: .end, to: "read numbers")
    let tasks = (0..<4).map { number in
      Task {
        try await waiters.wait {
          begun.put(number)
          return nil
        }
      }
    }
    for _ in tasks { _ = try await begun.take() }
    tasks[0].cancel()
    await #expect(throws: BluetoothError.cancelled) { try await tasks[0].value }
    waiters.resume()
    for task in tasks.dropFirst() { try await task.value }
    // Found at the beginning; cancelled before.
    await #expect(throws: BluetoothError.linkIsDown) { try await waiters.wait { .failure(.linkIsDown) } }
    let late = Task {
      while !Task.isCancelled { await Task.yield() }
      try await waiters.wait { fatalError("not to be begun") }
    }
    late.cancel()
    await #expect(throws: BluetoothError.cancelled) { try await late.value }
    waiters.resume(.failure(.closed))
  }
}
