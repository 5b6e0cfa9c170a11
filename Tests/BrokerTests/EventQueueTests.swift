import Foundation
import Synchronization
import Testing

@testable import BindruneBroker

/// The queue of a session whose reader is not a manager.
@Suite struct EventQueueTests {
  /// A connection to an application in another process: takes events only while its socket is writable.
  final class Connection: EventQueueReader {
    let queue = EventQueue()
    private struct State {
      var isWritable = true
      var written: [BrokerEvent] = []
      var calls = 0, dropped = 0
    }
    private let state = Mutex(State())

    init() { queue.reader = self }
    func eventsWait(in queue: EventQueue) {
      let isWritable = state.withLock { state in
        state.calls += 1
        return state.isWritable
      }
      if isWritable { write() }
    }
    func eventsDropped(_ count: Int, from queue: EventQueue) { state.withLock { $0.dropped += count } }
    private func write() {
      let events = queue.takeAll().compactMap { $0 }
      state.withLock { $0.written += events }
    }
    func block() { state.withLock { $0.isWritable = false } }
    func unblock() {
      state.withLock { $0.isWritable = true }
      write()
    }
    func takeWritten() -> [BrokerEvent] {
      state.withLock { state in
        defer { state.written = [] }
        return state.written
      }
    }
    var dropped: Int { state.withLock { $0.dropped } }
    var calls: Int { state.withLock { $0.calls } }
  }
  private let peer = UUID()
  private func values(_ events: [BrokerEvent]) -> [UInt8] {
    events.flatMap { event -> [UInt8] in
      if case .values(_, _, let values) = event { values.map { $0[0] } } else { [] }
    }
  }

  @Test(
    "Events that the socket does not accept wait in the bounded queue; the others are in order, up to the present state"
  )
  func blocked() {
    let connection = Connection(), queue = connection.queue
    queue.put([.adapter(.poweredOn)])
    queue.put([.values(peer, 3, [Data([1])]), .values(peer, 3, [Data([2])])])
    var written = connection.takeWritten()
    #expect(written.count == 3 && values(written) == [1, 2] && connection.calls == 2)

    connection.block()
    for number in 0..<70_000 { queue.put([.values(peer, 3, [Data([UInt8(truncatingIfNeeded: number)])])]) }
    for number in 0..<100_000 {
      queue.put([.subscribed(peer, 5, longestUpdate: 20), .nameChanged(peer, "\(number)"), .unsubscribed(peer, 5)])
    }
    #expect(connection.takeWritten().isEmpty && connection.dropped == 70_000 - 65_536)
    connection.unblock()
    written = connection.takeWritten()
    #expect(values(written) == (0..<65_536).map { UInt8(truncatingIfNeeded: $0) })
    let others = written.dropFirst(65_536)
    guard others.count == 1, case .nameChanged(peer, "99999")? = others.first else {
      Issue.record("\(others.count) events are left")
      return
    }
    queue.put([.nameChanged(peer, "next")])
    #expect(connection.takeWritten().count == 1)
  }

  @Test("Either end closes the queue: waiting events are dropped, and the reader gets no more calls")
  func closed() {
    let connection = Connection()
    connection.block()
    connection.queue.put([.adapter(.poweredOn)])
    connection.queue.close()
    connection.queue.put([.adapter(.poweredOn)])
    connection.unblock()
    #expect(connection.takeWritten().isEmpty && connection.calls == 1)
  }

  @Test("Events added while another thread takes them are each taken once, in order")
  func threads() {
    let queue = EventQueue(), count = 20_000, isDone = Atomic(false)
    let taken = Mutex<[Int]>([])
    @Sendable func take() {
      for case .completed(let id, _)? in queue.takeAll() { taken.withLock { $0.append(Int(id.rawValue)) } }
    }
    DispatchQueue.concurrentPerform(iterations: 2) { thread in
      if thread == 0 {
        for number in 0..<count {
          queue.put([.completed(OperationID(rawValue: UInt64(number)), .success(.done))])
        }
        isDone.store(true, ordering: .releasing)
      } else {
        while !isDone.load(ordering: .acquiring) { take() }
      }
    }
    take()
    #expect(taken.withLock { $0 } == Array(0..<count))
  }
}
