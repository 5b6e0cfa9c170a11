import BindruneBroker
import Foundation

/// From a session's callback to a manager's queue: in order, in batches. Whoever puts the first event schedules one drain,
/// which takes all that have come by then; so a burst costs one turn of the queue. There is one drain at a time, so the order
/// holds on a concurrent queue too.
final class Delivery: @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  private enum Item {
    case event(BrokerEvent)
    /// An answer that needs no session.
    case call(@Sendable () -> Void)
  }
  private let lock = NSLock()
  private var waiting: [Item] = []
  private var isScheduled = false
  private var isClosed = false
  let queue: DispatchQueue
  /// Called on the queue; until there is one everything waits.
  private var handle: (@Sendable (BrokerEvent) -> Void)?

  /// `queue` nil: the main queue. Without `handle`, `start` begins.
  init(on queue: DispatchQueue?, _ handle: (@Sendable (BrokerEvent) -> Void)? = nil) {
    self.queue = queue ?? .main
    self.handle = handle
  }
  func start(_ handle: @escaping @Sendable (BrokerEvent) -> Void) {
    let isFirst = lock.withLock {
      self.handle = handle
      return schedules()
    }
    if isFirst { queue.async { self.drain() } }
  }

  /// From any thread.
  func put(_ event: BrokerEvent) { put(.event(event)) }
  /// From any thread: `call` has its turn among the events.
  func perform(_ call: @escaping @Sendable () -> Void) { put(.call(call)) }
  private func put(_ item: Item) {
    let isFirst = lock.withLock { () -> Bool in
      guard !isClosed else { return false }
      waiting.append(item)
      return schedules()
    }
    if isFirst { queue.async { self.drain() } }
  }
  /// Under the lock. True: a drain is to be scheduled.
  private func schedules() -> Bool {
    guard handle != nil, !waiting.isEmpty, !isScheduled else { return false }
    isScheduled = true
    return true
  }
  private func drain() {
    let (items, handle) = lock.withLock { () -> ([Item], (@Sendable (BrokerEvent) -> Void)?) in
      defer { waiting = [] }
      return (waiting, self.handle)
    }
    guard let handle else { return }
    for item in items {
      if lock.withLock({ isClosed }) { return }
      switch item {
      case .event(let event): handle(event)
      case .call(let call): call()
      }
    }
    // What has come meanwhile has to wait its turn: others use the queue too.
    let isMore = lock.withLock {
      isScheduled = false
      return schedules()
    }
    if isMore { queue.async { self.drain() } }
  }
  /// Nothing is delivered any more, not even what waits: the manager is gone.
  func close() {
    let dropped = lock.withLock {
      isClosed = true
      handle = nil
      defer { waiting = [] }
      return waiting
    }
    withExtendedLifetime(dropped) {}
  }
}
