import BindruneBroker
import Foundation
import Synchronization

/// # Delivery
/// **Overview**: carries events from a session's `EventQueue` to a manager's queue, in order and in batches. The first
/// waiting event schedules one drain, which takes all events that wait by then; so a burst costs one turn of the queue.
/// Only one drain runs at a time, so the order holds on a concurrent queue too. Values that came one after another are
/// one event.
///
/// **Function**: nothing is delivered before the manager's initialiser has returned, and the first state waits for a
/// delegate, with all later events: until then the manager's state is `unknown`, so the program can make no requests,
/// and few events come (Decision 0026). Until a drain takes them, events wait in the session, which bounds their
/// number.
///
/// **Phases**: initialising → awaitingDelegate → delivering → closed.
final class Delivery: EventQueueReader, @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  private struct Manager {
    let delegate: @Sendable () -> AnyObject?
    let handle: @Sendable (BrokerEvent, Delivery) -> Void
  }
  private enum Phase {
    case initialising
    case awaitingDelegate(Manager)
    case delivering(Manager)
    case closed
  }
  private let lock = NSLock()
  private var phase = Phase.initialising
  /// Calls of delegates that no event of the session causes.
  private var calls: [@Sendable () -> Void] = []
  /// True if no drain has taken the latest events.
  private var hasEvents = false
  private var isScheduled = false
  /// A delegate was set after a drain last looked for one.
  private var hasNewDelegate = false
  private var losses = RepeatedNote()
  private let isClosed = Atomic(false)
  /// False once the manager is released. Changes on any thread.
  var isOpen: Bool { !isClosed.load(ordering: .acquiring) }
  let queue: DispatchQueue
  /// The session's.
  let events = EventQueue()

  /// `queue` nil: the main queue.
  init(on queue: DispatchQueue?) {
    self.queue = queue ?? .main
    events.reader = self
  }

  /// A manager's initialiser calls this last. `delegate` returns the manager's; `handle` is called on the queue, and
  /// checks `isOpen` before each value of an event.
  ///
  /// Delivery begins when `hasReturned` returns true; it is called repeatedly until then.
  func start(
    delegate: @escaping @Sendable () -> AnyObject?,
    hasReturned: @escaping @Sendable () -> Bool = InitialisingThread().hasReturned,
    handle: @escaping @Sendable (BrokerEvent, Delivery) -> Void
  ) {
    let manager = Manager(delegate: delegate, handle: handle)
    Self.observation.async { self.begin(manager, when: hasReturned, interval: 1) }
  }
  private static let observation = DispatchQueue(label: "CoreBluetooth.initialisers")
  private func begin(_ manager: Manager, when hasReturned: @escaping @Sendable () -> Bool, interval: Int) {
    guard hasReturned() else {
      if lock.withLock({ if case .closed = phase { true } else { false } }) { return }
      return Self.observation.asyncAfter(deadline: .now() + .milliseconds(interval)) {
        self.begin(manager, when: hasReturned, interval: min(2 * interval, 32))
      }
    }
    lock.withLock {
      if case .initialising = phase { phase = .awaitingDelegate(manager) }
      scheduleDrain()
    }
  }
  /// The initialiser has returned, and events are delivered if there is a delegate.
  var hasBegun: Bool { lock.withLock { if case .initialising = phase { false } else { true } } }

  /// The manager's delegate has changed. From any thread.
  func delegateChanged() {
    lock.withLock {
      hasNewDelegate = true
      scheduleDrain()
    }
  }
  func eventsWait(in queue: EventQueue) {
    lock.withLock {
      hasEvents = true
      scheduleDrain()
    }
  }
  func eventsDropped(_ count: Int, from queue: EventQueue) {
    guard let losses = lock.withLock({ losses.count(count, at: .now) }) else { return }
    Log.note(
      self.queue, "\"\(self.queue.label)\" is blocked: too many events wait for it, and \(losses) more were dropped.")
  }
  /// The next drain makes `call` before it delivers events, and does not wait for a delegate. From any thread.
  func perform(_ call: @escaping @Sendable () -> Void) {
    lock.withLock {
      if case .closed = phase { return }
      calls.append(call)
      scheduleDrain()
    }
  }
  /// Under the lock.
  private func scheduleDrain() {
    guard !isScheduled, hasEvents || !calls.isEmpty else { return }
    switch phase {
    case .initialising, .closed: break
    case .awaitingDelegate, .delivering:
      isScheduled = true
      queue.async { self.drain() }
    }
  }

  private func drain() {
    var calls: [@Sendable () -> Void] = []
    let (first, isAwaiting) = lock.withLock { () -> (Manager?, Bool) in
      swap(&calls, &self.calls)
      switch phase {
      case .initialising, .closed: return (nil, false)
      case .awaitingDelegate(let manager):
        hasNewDelegate = false
        return (manager, true)
      case .delivering(let manager):
        hasEvents = false
        return (manager, false)
      }
    }
    guard let manager = first else { return }
    // Without the lock, for the program's own `delegate` may do anything. It is kept until the events are delivered.
    let delegate = isAwaiting ? manager.delegate() : nil
    let taken = isAwaiting ? takeFirst(for: delegate, of: manager) : events.takeAll()
    for call in calls {
      guard isOpen else { return }
      call()
    }
    for event in taken {
      guard isOpen else { return }
      if let event { manager.handle(event, self) }
    }
    withExtendedLifetime(delegate) {}
    // Later events wait for another turn of the queue, which others use too.
    lock.withLock {
      isScheduled = false
      if case .awaitingDelegate = phase, delegate == nil, !hasNewDelegate, self.calls.isEmpty { return }
      scheduleDrain()
    }
  }
  /// Without a delegate the events stay in the queue. After the first known state, delivery needs none.
  private func takeFirst(for delegate: AnyObject?, of manager: Manager) -> [BrokerEvent?] {
    guard delegate != nil else { return [] }
    lock.withLock { hasEvents = false }
    let taken = events.takeAll()
    let hasKnownState = taken.contains { if case .adapter(let state)? = $0 { state != .unknown } else { false } }
    lock.withLock { if hasKnownState, case .awaitingDelegate = phase { phase = .delivering(manager) } }
    return taken
  }
  /// The manager is released: no more events are delivered, and those that wait are dropped.
  func close() {
    isClosed.store(true, ordering: .releasing)
    events.close()
    var dropped: [@Sendable () -> Void] = []
    lock.withLock {
      phase = .closed
      swap(&calls, &dropped)
    }
    // Released without the lock.
    withExtendedLifetime(dropped) {}
  }
}

/// Counts repetitions for a note about them: one note at first, and then one a minute at most.
struct RepeatedNote {
  private var count = 0
  private var next: ContinuousClock.Instant?

  /// Adds `times`. Returns the count since the last note if another note is due, else nil.
  mutating func count(_ times: Int = 1, at now: ContinuousClock.Instant) -> Int? {
    count += times
    if let next, now < next { return nil }
    next = now + .seconds(60)
    defer { count = 0 }
    return count
  }
}
