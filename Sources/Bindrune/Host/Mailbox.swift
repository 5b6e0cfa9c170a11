import DequeModule
import Synchronization

/// Elements that wait for a reader, in order.
protocol Pile: Sendable {
  associatedtype Element: Sendable
  var isEmpty: Bool { get }
  mutating func popFirst() -> Element?
  /// Removes and returns everything that waits.
  mutating func takeAll() -> Self
}

/// Passes elements from the host's event loop to one reading task, in order, and ends once. The pile sets how much may
/// wait, and what happens beyond that.
final class Inbox<Waiting: Pile>: Sendable {
  private struct State {
    var pile: Waiting
    var ending: Result<Void, BluetoothError>?
    var reader: CheckedContinuation<Void, Never>?
  }
  private let state: Mutex<State>
  /// What the reader does, in the infinitive, for an error that names no operation.
  private let operation: String

  init(_ pile: Waiting, to operation: String) {
    state = Mutex(State(pile: pile))
    self.operation = operation
  }

  /// It accepts no more elements; the reader may still take those that wait.
  var isFinished: Bool { state.withLock { $0.ending != nil } }

  /// Adds elements, or ends the inbox with the error that `change` returns. Does not wake the reader: see `wake`.
  func add(_ change: (inout Waiting) -> BluetoothError?) {
    state.withLock { state in
      guard state.ending == nil, let error = change(&state.pile) else { return }
      state.ending = .failure(error)
    }
  }
  /// Wakes the reader if it has something to read. Call once per batch: waking costs far more than adding.
  func wake() {
    let reader = state.withLock { state in state.pile.isEmpty && state.ending == nil ? nil : state.reader.take() }
    reader?.resume()
  }

  /// Ends the sequence after the elements that wait; nil: without an error.
  func finish(_ error: BluetoothError? = nil) { end(error.map { .failure($0) } ?? .success(()), keepingElements: true) }

  /// The reader is gone: ends the inbox and drops the elements that wait.
  func abandon() { end(.success(()), keepingElements: false) }

  private func end(_ ending: Result<Void, BluetoothError>, keepingElements: Bool) {
    let dropped = state.withLock { state -> Waiting? in
      if state.ending == nil { state.ending = ending }
      // Released outside the lock: an element's deinit may call back here.
      return keepingElements ? nil : state.pile.takeAll()
    }
    wake()
    withExtendedLifetime(dropped) {}
  }

  /// The next element; nil at the end. Cancelling the task ends the mailbox. One task at a time (traps otherwise).
  func take() async throws(BluetoothError) -> Waiting.Element? { try await take { $0.popFirst() } }
  /// Everything that waits; nil at the end.
  func takeAll() async throws(BluetoothError) -> Waiting? { try await take { $0.isEmpty ? nil : $0.takeAll() } }

  private func take<Taken: Sendable>(_ some: (inout Waiting) -> Taken?) async throws(BluetoothError) -> Taken? {
    if Task.isCancelled { abandon() }
    while true {
      let found = state.withLock { state -> Result<Taken?, BluetoothError>? in
        if let taken = some(&state.pile) { return .success(taken) }
        return state.ending?.map { nil }
      }
      do throws(BluetoothError) { if let found { return try found.get() } } catch {
        throw error.operation == nil ? error.during(operation) : error
      }
      await sleep()
    }
  }
  /// Returns when something waits, or at the end.
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
    /// Drops the oldest: the newest report of a device is worth more.
    case dropOldest
    /// Ends the sequence with `.overflow`, after those that wait: the reader would not notice a gap.
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
  convenience init<Element>(capacity: Int, overflow: BoundedQueue<Element>.Overflow, to operation: String)
  where Waiting == BoundedQueue<Element> {
    self.init(BoundedQueue(capacity: capacity, overflow: overflow), to: operation)
  }
  func put<Element>(_ element: Element) where Waiting == BoundedQueue<Element> {
    add { $0.append(element) }
    wake()
  }
}
