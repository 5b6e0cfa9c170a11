import DequeModule
import Synchronization

/// What waits for a reader, in order.
protocol Pile: Sendable {
  associatedtype Element: Sendable
  var isEmpty: Bool { get }
  mutating func popFirst() -> Element?
  /// Everything that waits; nothing waits afterwards.
  mutating func takeAll() -> Self
}

/// From the host's event loop to one reading task: in order, ended once. How much may wait, and what happens then, is the
/// pile's.
final class Inbox<Waiting: Pile>: Sendable {
  private struct State {
    var pile: Waiting
    var ending: Result<Void, BluetoothError>?
    var reader: CheckedContinuation<Void, Never>?
  }
  private let state: Mutex<State>

  init(_ pile: Waiting) { state = Mutex(State(pile: pile)) }

  /// It takes nothing more; what waits may still be taken.
  var isFinished: Bool { state.withLock { $0.ending != nil } }

  /// Adds to what waits, or ends it with the error that `change` returns. The reader sleeps on until `wake`.
  func add(_ change: (inout Waiting) -> BluetoothError?) {
    state.withLock { state in
      guard state.ending == nil, let error = change(&state.pile) else { return }
      state.ending = .failure(error)
    }
  }
  /// Wakes the reader if it has something to read: once for a batch, which costs far more than to add to it.
  func wake() {
    let reader = state.withLock { state in state.pile.isEmpty && state.ending == nil ? nil : state.reader.take() }
    reader?.resume()
  }

  /// nil: the sequence ends well. What waits is still delivered.
  func finish(_ error: BluetoothError? = nil) { end(error.map { .failure($0) } ?? .success(()), keepingElements: true) }

  /// Nobody will take anything any more: what waits is let go.
  func abandon() { end(.success(()), keepingElements: false) }

  private func end(_ ending: Result<Void, BluetoothError>, keepingElements: Bool) {
    let dropped = state.withLock { state -> Waiting? in
      if state.ending == nil { state.ending = ending }
      // Let go outside the lock: an element's end may lead back here.
      return keepingElements ? nil : state.pile.takeAll()
    }
    wake()
    withExtendedLifetime(dropped) {}
  }

  /// The next element; nil at the end. Cancelling the task ends the mailbox. One task at a time (traps otherwise).
  func take() async throws(BluetoothError) -> Waiting.Element? { try await take { $0.popFirst() } }
  /// All that waits.
  func takeAll() async throws(BluetoothError) -> Waiting? { try await take { $0.isEmpty ? nil : $0.takeAll() } }

  private func take<Taken: Sendable>(_ some: (inout Waiting) -> Taken?) async throws(BluetoothError) -> Taken? {
    if Task.isCancelled { abandon() }
    while true {
      let found = state.withLock { state -> Result<Taken?, BluetoothError>? in
        if let taken = some(&state.pile) { return .success(taken) }
        return state.ending?.map { nil }
      }
      if let found { return try found.get() }
      await sleep()
    }
  }
  /// Returns when there is something to read, or the end.
  private func sleep() async {
    await withTaskCancellationHandler {
      await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
        let mustSleep = state.withLock { state in
          guard state.pile.isEmpty, state.ending == nil else { return false }
          precondition(state.reader == nil, "one iterator, one task")
          state.reader = continuation
          return true
        }
        if !mustSleep { continuation.resume() }
      }
    } onCancel: {
      abandon()
    }
  }
}

/// An inbox of single elements.
typealias Mailbox<Element: Sendable> = Inbox<BoundedQueue<Element>>

/// Elements of which at most `capacity` wait.
struct BoundedQueue<Element: Sendable>: Pile {
  /// What happens to an element that comes while `capacity` wait.
  enum Overflow: Sendable {
    /// The oldest goes: the newest report of a device is worth more.
    case dropOldest
    /// The sequence ends with `.overflow`, after those that wait: a gap would go unseen.
    case end
  }
  private var elements = Deque<Element>()
  private let capacity: Int
  private let overflow: Overflow

  init(capacity: Int, overflow: Overflow) {
    self.capacity = capacity
    self.overflow = overflow
  }
  var isEmpty: Bool { elements.isEmpty }
  mutating func popFirst() -> Element? { elements.popFirst() }
  mutating func takeAll() -> Self {
    var all = Self(capacity: capacity, overflow: overflow)
    swap(&all, &self)
    return all
  }
  mutating func append(_ element: Element) -> BluetoothError? {
    if elements.count == capacity {
      if overflow == .end { return .overflow(capacity) }
      elements.removeFirst()
    }
    elements.append(element)
    return nil
  }
}

extension Inbox {
  convenience init<Element>(capacity: Int, overflow: BoundedQueue<Element>.Overflow)
  where Waiting == BoundedQueue<Element> {
    self.init(BoundedQueue(capacity: capacity, overflow: overflow))
  }
  func put<Element>(_ element: Element) where Waiting == BoundedQueue<Element> {
    add { $0.append(element) }
    wake()
  }
}
