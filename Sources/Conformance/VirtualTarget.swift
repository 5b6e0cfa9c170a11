import BindruneWire
import DequeModule

/// A machine of ours under test, in virtual time: what it has sent, asked and ended waits for the tester.
protocol VirtualTarget: ServedTarget {
  var now: Instant { get set }
  var outgoing: Deque<[UInt8]> { get set }
  var events: Deque<ApplicationEvent> { get set }
  var results: Deque<ProcedureResult> { get set }
  /// When the machine must act next.
  var deadline: Instant? { get }
  /// It acts, and what comes of it waits.
  func expire()
}

extension VirtualTarget {
  /// Lets time pass until `isDone`, or to its end.
  func pass(_ time: Duration, until isDone: () -> Bool) {
    let end = now + time
    while !isDone() {
      guard let due = deadline, due <= end else {
        now = end
        return
      }
      now = max(now, due)
      expire()
    }
  }

  // MARK: For the tester

  func nextPDU(within time: Duration) -> Received {
    pass(time) { !outgoing.isEmpty }
    return ready ?? .nothing
  }
  func nextResult(within time: Duration) -> ProcedureResult? {
    pass(time) { !results.isEmpty }
    return results.popFirst()
  }
  func nextEvent(within time: Duration) -> ApplicationEvent? {
    pass(time) { !events.isEmpty }
    return events.popFirst()
  }

  // MARK: For `StackServer`, which has the clock

  var timeToDeadline: Duration? { deadline.map { $0 - now } }
  func pass(_ time: Duration) { pass(time) { false } }
  var ready: Received? { outgoing.popFirst().map { .pdu($0) } }
  func takeLines() -> [String] {
    defer { forgetLines() }
    return events.map(\.description) + results.flatMap { $0.lines + ["end"] }
  }
  func forgetLines() {
    events.removeAll()
    results.removeAll()
  }
}
