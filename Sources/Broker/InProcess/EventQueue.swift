import FoundationEssentials
import NIOConcurrencyHelpers

/// Takes the events of a session out of its `EventQueue`, which calls both methods on the thread that puts events in.
public protocol EventQueueReader: AnyObject, Sendable {
  /// There are events, which wait until the reader calls `takeAll`.
  func eventsWait(in queue: EventQueue)
  /// The queue has dropped this many events, because too many were waiting.
  func eventsDropped(_ count: Int, from queue: EventQueue)
}

/// # EventQueue
/// **Overview**: the events of one session that its application has not taken, in order. The session's adapter puts
/// them in; a reader takes them when it can use them: a manager when its dispatch queue runs, a connection when its
/// socket is writable.
///
///     adapter's event loop ── put ──▶ ┌────────────┐ ── eventsWait ──▶ reader
///                                     │ EventQueue │
///                                     └────────────┘ ◀── takeAll ──── its own thread
///
/// **Function**: while the reader takes nothing, `WaitingEvents` bounds what waits. Every method may be called from any
/// thread.
///
/// **Phases**: open ⇄ held, while the app does not run (Decision 0052); → closed, by the session or by its reader, for
/// good. A closed queue drops what waits and what comes.
public final class EventQueue: @unchecked Sendable {
  // Sendable: the lock.
  private let lock = NIOLock()
  private var waiting = WaitingEvents()
  private var isClosed = false
  private var isHeld = false
  private weak var currentReader: (any EventQueueReader)?

  public init() {}

  /// Set it before the queue is given to a session. The queue does not keep it alive.
  public weak var reader: (any EventQueueReader)? {
    get { lock.withLock { currentReader } }
    set { lock.withLock { currentReader = newValue } }
  }

  public func put(_ events: [BrokerEvent]) {
    let (reader, dropped) = lock.withLock { () -> ((any EventQueueReader)?, Int) in
      if isClosed { return (nil, 0) }
      var dropped = 0
      for event in events { dropped += waiting.append(event) }
      return (currentReader, dropped)
    }
    // Without the lock: the reader may take the events at once. While they are held it finds none.
    reader?.eventsWait(in: self)
    if dropped > 0 { reader?.eventsDropped(dropped, from: self) }
  }
  /// All events that wait, in order; nil where one was removed. None while the queue is held.
  public func takeAll() -> [BrokerEvent?] { lock.withLock { isHeld ? [] : waiting.takeAll() } }

  /// While it is held, it takes events and offers none. Returns those that its reader has not taken before it was held.
  @discardableResult
  func hold(_ isHeld: Bool) -> [BrokerEvent] {
    let (reader, left) = lock.withLock { () -> ((any EventQueueReader)?, [BrokerEvent]) in
      let wasHeld = self.isHeld
      self.isHeld = isHeld
      if isHeld { return (nil, wasHeld ? [] : waiting.all) }
      return (wasHeld && !waiting.isEmpty ? currentReader : nil, [])
    }
    reader?.eventsWait(in: self)
    return left
  }

  public func close() {
    // Released without the lock.
    withExtendedLifetime(takeRemaining()) {}
  }
  /// Closes it, and returns what waits.
  func takeRemaining() -> [BrokerEvent] {
    let remaining = lock.withLock {
      isClosed = true
      return waiting.takeAll()
    }
    return remaining.compactMap { $0 }
  }
}
