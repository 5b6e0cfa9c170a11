import Foundation
import NIOCore
import Synchronization
import TestSupport
import Testing

/// The clock that the tests of hosts, adapters and the facade use.
@Suite("Virtual time", .virtualTime, .hang) struct VirtualTimeTests {
  private let loop = VirtualLoop.current

  @Test func timersInTheirOrder() async throws {
    let log = Mutex<[String]>([]), loop = loop, start = loop.now
    @Sendable func note(_ text: String) { log.withLock { $0.append("\(text) \((loop.now - start).nanoseconds)") } }
    try await loop.submit {
      loop.scheduleTask(in: .nanoseconds(2_500_000)) { note("second") }
      let cancelled = loop.scheduleTask(in: .milliseconds(2)) { note("cancelled") }
      loop.scheduleTask(in: .nanoseconds(2_500_000)) { note("third") }
      loop.scheduleTask(in: .nanoseconds(1_700_000)) {
        note("first")
        cancelled.cancel()
        // Everything that a timer causes comes before the next timer.
        loop.execute { loop.execute { note("behind it") } }
      }
    }.get()
    try await loop.scheduleTask(in: .seconds(2)) {}.futureResult.get()
    #expect(log.withLock { $0 } == ["first 1700000", "behind it 1700000", "second 2500000", "third 2500000"])
    #expect(loop.now - start >= .seconds(2))
  }

  /// A delayed thread loses no time: here sleep delays it, on a busy machine other processes do.
  @Test func aDelegateIsWaitedFor() async throws {
    let queue = DispatchQueue(label: "delegate"), loop = loop
    loop.follow(queue)
    let timeOut = loop.scheduleTask(in: .seconds(25)) {}
    for _ in 0..<5 {
      let passed = await withCheckedContinuation { continuation in
        queue.async {
          let start = loop.now
          usleep(50_000)
          continuation.resume(returning: loop.now - start)
        }
      }
      #expect(passed <= .milliseconds(1))
    }
    timeOut.cancel()
  }
  /// Tasks that are ready when a time-out begins, each with a hundred turns to take, are done long before it.
  @Test func tasksAreWaitedFor() async throws {
    let timeOut = loop.scheduleTask(in: .seconds(2)) {}, start = loop.now, loop = loop
    let times = await withTaskGroup(of: TimeAmount.self) { group in
      for _ in 0..<100 {
        group.addTask {
          for _ in 0..<100 { await Task.yield() }
          return loop.now - start
        }
      }
      return await group.reduce(into: []) { $0.append($1) }
    }
    #expect(times.count == 100 && times.allSatisfy { $0 < .seconds(1) }, "\(times)")
    try await timeOut.futureResult.get()
  }

  /// Virtual time does not limit a test that uses none.
  @Test func withoutTimersItStandsStill() async throws {
    let start = loop.now
    for _ in 0..<1000 { await Task.yield() }
    #expect(loop.now == start)
    #expect(try await loop.submit { 7 }.get() == 7)
  }

  @Test func whatIsLeftIsCancelled() async throws {
    let left: Scheduled<Void>
    do {
      let other = VirtualLoop()
      left = other.scheduleTask(in: .seconds(1)) { Issue.record("it went off") }
    }
    await #expect(throws: EventLoopError.cancelled) { try await left.futureResult.get() }
  }
}
