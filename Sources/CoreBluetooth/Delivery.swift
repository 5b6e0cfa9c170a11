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
  /// The queue stands still, and that has been told.
  private var hasLost = false
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
  func put(_ event: BrokerEvent) { put(.event(event), unless: event.mostWaiting) }
  /// From any thread: `call` has its turn among the events.
  func perform(_ call: @escaping @Sendable () -> Void) { put(.call(call), unless: .max) }
  private func put(_ item: Item, unless most: Int) {
    let (isFirst, isFirstLost) = lock.withLock { () -> (Bool, Bool) in
      guard !isClosed else { return (false, false) }
      if waiting.count >= most {
        defer { hasLost = true }
        return (false, !hasLost)
      }
      waiting.append(item)
      return (schedules(), false)
    }
    if isFirst { queue.async { self.drain() } }
    if isFirstLost {
      Log.note(queue, "\"\(queue.label)\" stands still: \(most) events wait for it, and what comes now is dropped.")
    }
  }
  /// Under the lock. True: a drain is to be scheduled.
  private func schedules() -> Bool {
    guard handle != nil, !waiting.isEmpty, !isScheduled else { return false }
    isScheduled = true
    return true
  }
  private func drain() {
    let (items, handle) = lock.withLock { () -> ([Item], (@Sendable (BrokerEvent) -> Void)?) in
      defer { (waiting, hasLost) = ([], false) }
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

extension BrokerEvent {
  /// While so many wait, this one is dropped: a device must not fill the memory of a program that stands still. What the
  /// program has asked for is never dropped, nor what a central waits for an answer to.
  fileprivate var mostWaiting: Int {
    switch self {
    case .discovered: 1024  // it will be heard again
    case .value: 65_536
    case .writeRequested(let request, _, _, _) where request.isCommand: 65_536
    default: .max
    }
  }
}
