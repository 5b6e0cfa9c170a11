import BindruneBroker
import Foundation
import Synchronization

/// # Delivery
/// **Overview**: carries events from a session's callback to a manager's queue, in order and in batches. The first event that
/// waits schedules one drain, which takes all events that wait by then; so a burst costs one turn of the queue. One drain runs
/// at a time, so the order holds on a concurrent queue too. Values that came one after another are one event.
///
/// **Function**: nothing is delivered before the manager's initialiser has returned, and the first state waits for a delegate,
/// with all that comes after it: until then the manager's state is `unknown`, so the program can ask for nothing, and little
/// comes (Decision 0028). What waits is bounded: see `WaitingEvents`.
///
/// **Phases**: initialising → awaitingDelegate → delivering → closed.
final class Delivery: @unchecked Sendable {
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
  private var waiting = WaitingEvents()
  private var isScheduled = false
  /// A delegate was set since the last time that one was looked for.
  private var hasNewDelegate = false
  private var losses = RepeatedNote()
  private let isClosed = Atomic(false)
  /// The manager is there. Changes on any thread.
  var isOpen: Bool { !isClosed.load(ordering: .acquiring) }
  let queue: DispatchQueue

  /// `queue` nil: the main queue.
  init(on queue: DispatchQueue?) { self.queue = queue ?? .main }

  /// The last that a manager's initialiser does. `delegate` gives the manager's, `handle` is called on the queue; within an event
  /// of several values it looks at `isOpen` before each.
  ///
  /// `hasReturned` is asked until it says yes.
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
  /// The initialiser has returned, and what comes is delivered, if there is a delegate.
  var hasBegun: Bool { lock.withLock { if case .initialising = phase { false } else { true } } }

  /// The manager has another delegate now. From any thread.
  func delegateChanged() {
    lock.withLock {
      hasNewDelegate = true
      scheduleDrain()
    }
  }
  /// From any thread.
  func put(_ events: [BrokerEvent]) {
    put { waiting in events.reduce(0) { $0 + waiting.append($1) } }
  }
  /// From any thread: `call` has its turn among the events, but does not wait for a delegate.
  func perform(_ call: @escaping @Sendable () -> Void) {
    put { waiting in
      waiting.append(call)
      return 0
    }
  }
  /// `append` returns how many events it has dropped.
  private func put(_ append: (inout WaitingEvents) -> Int) {
    let losses = lock.withLock { () -> Int? in
      if case .closed = phase { return nil }
      let dropped = append(&waiting)
      scheduleDrain()
      return dropped == 0 ? nil : self.losses.count(dropped, at: .now)
    }
    if let losses {
      Log.note(queue, "\"\(queue.label)\" stands still: too many events wait for it, and \(losses) more were dropped.")
    }
  }
  /// Under the lock.
  private func scheduleDrain() {
    guard !isScheduled, !waiting.isEmpty else { return }
    switch phase {
    case .initialising, .closed: break
    case .awaitingDelegate, .delivering:
      isScheduled = true
      queue.async { self.drain() }
    }
  }

  private func drain() {
    let (first, isAwaiting) = lock.withLock { () -> (Manager?, Bool) in
      switch phase {
      case .initialising, .closed: return (nil, false)
      case .awaitingDelegate(let manager):
        hasNewDelegate = false
        return (manager, true)
      case .delivering(let manager): return (manager, false)
      }
    }
    guard let manager = first else { return }
    // Not under the lock, for a program's own property may do anything. Kept until it has been told.
    let delegate = isAwaiting ? manager.delegate() : nil
    let items = lock.withLock { () -> [WaitingEvents.Item?] in
      guard isAwaiting else { return waiting.takeAll() }
      guard delegate != nil else { return waiting.takeCalls() }
      if waiting.hasState, case .awaitingDelegate = phase {
        phase = .delivering(manager)
        waiting.isFirst = false
      }
      return waiting.takeAll()
    }
    for item in items {
      guard isOpen else { return }
      switch item {
      case .event(let event): manager.handle(event, self)
      case .call(let call): call()
      case nil: break
      }
    }
    withExtendedLifetime(delegate) {}
    // What has come meanwhile has to wait its turn: others use the queue too.
    lock.withLock {
      isScheduled = false
      if case .awaitingDelegate = phase, delegate == nil, !hasNewDelegate, !waiting.hasCalls { return }
      scheduleDrain()
    }
  }
  /// Nothing is delivered any more, not even what waits: the manager is gone.
  func close() {
    isClosed.store(true, ordering: .releasing)
    let dropped = lock.withLock {
      phase = .closed
      return waiting.takeAll()
    }
    withExtendedLifetime(dropped) {}
  }
}

/// Counts what repeats, for a note about it: once at first, and then once a minute at most.
struct RepeatedNote {
  private var count = 0
  private var next: ContinuousClock.Instant?

  /// It has happened `times` more. Returns how often since the last note, if there is to be another.
  mutating func count(_ times: Int = 1, at now: ContinuousClock.Instant) -> Int? {
    count += times
    if let next, now < next { return nil }
    next = now + .seconds(60)
    defer { count = 0 }
    return count
  }
}
