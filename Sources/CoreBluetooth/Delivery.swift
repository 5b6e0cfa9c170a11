import BindruneBroker
import Foundation

/// From a session's callback to a manager's queue: in order, in batches. Whoever puts the first event schedules one drain,
/// which takes all that have come by then; so a burst costs one turn of the queue.
final class Delivery: @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  private let lock = NSLock()
  private var waiting: [BrokerEvent] = []
  private var isScheduled = false
  private var isClosed = false
  let queue: DispatchQueue
  /// Called on the queue.
  private let handle: @Sendable (BrokerEvent) -> Void

  /// `queue` nil: the main queue.
  init(on queue: DispatchQueue?, _ handle: @escaping @Sendable (BrokerEvent) -> Void) {
    self.queue = queue ?? .main
    self.handle = handle
  }

  /// From any thread.
  func put(_ event: BrokerEvent) {
    let isFirst = lock.withLock { () -> Bool in
      guard !isClosed else { return false }
      waiting.append(event)
      defer { isScheduled = true }
      return !isScheduled
    }
    if isFirst { queue.async { self.drain() } }
  }
  private func drain() {
    let events = lock.withLock {
      isScheduled = false
      defer { waiting = [] }
      return waiting
    }
    for event in events {
      if lock.withLock({ isClosed }) { return }
      handle(event)
    }
  }
  /// Nothing is delivered any more, not even what waits: the manager is gone.
  func close() {
    let dropped = lock.withLock {
      isClosed = true
      defer { waiting = [] }
      return waiting
    }
    withExtendedLifetime(dropped) {}
  }
}
