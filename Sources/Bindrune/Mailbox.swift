import DequeModule
import Synchronization

/// Elements from the host's event loop to one consuming task: bounded, in order, ended once.
final class Mailbox<Element: Sendable>: Sendable {
  /// What happens to an element that comes while `capacity` wait.
  enum Overflow: Sendable {
    /// The oldest goes: the newest report of a device is worth more.
    case dropOldest
    /// The sequence ends with `.overflow`, after those that wait: a gap would go unseen.
    case end
  }
  private typealias Waiter = CheckedContinuation<Result<Element?, BluetoothError>, Never>
  private struct State {
    var elements = Deque<Element>()
    var ending: Result<Void, BluetoothError>?
    var waiter: Waiter?
  }
  private let state = Mutex(State())
  private let capacity: Int
  private let overflow: Overflow

  init(capacity: Int, overflow: Overflow) {
    self.capacity = capacity
    self.overflow = overflow
  }

  /// It takes nothing more; what waits may still be taken.
  var isFinished: Bool { state.withLock { $0.ending != nil } }

  func put(_ element: Element) {
    let waiter = state.withLock { state -> Waiter? in
      guard state.ending == nil else { return nil }
      if let waiter = state.waiter.take() { return waiter }
      if state.elements.count == capacity {
        guard overflow == .dropOldest else {
          state.ending = .failure(.overflow(capacity))
          return nil
        }
        state.elements.removeFirst()
      }
      state.elements.append(element)
      return nil
    }
    waiter?.resume(returning: .success(element))
  }

  /// nil: the sequence ends well. What waits is still delivered.
  func finish(_ error: BluetoothError? = nil) { end(error.map { .failure($0) } ?? .success(()), keepingElements: true) }

  /// Nobody will take anything any more: what waits is let go.
  func abandon() { end(.success(()), keepingElements: false) }

  private func end(_ ending: Result<Void, BluetoothError>, keepingElements: Bool) {
    let (waiter, dropped) = state.withLock { state -> (Waiter?, Deque<Element>) in
      var dropped = Deque<Element>()
      // Let go outside the lock: an element's end may lead back here.
      if !keepingElements { swap(&dropped, &state.elements) }
      if state.ending == nil { state.ending = ending }
      return (state.waiter.take(), dropped)
    }
    waiter?.resume(returning: ending.map { nil })
    withExtendedLifetime(dropped) {}
  }

  /// The next element; nil at the end. Cancelling the task ends the mailbox. One task at a time (traps otherwise).
  func take() async throws(BluetoothError) -> Element? {
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { (continuation: Waiter) in
        let ready = state.withLock { state -> Result<Element?, BluetoothError>? in
          if let element = state.elements.popFirst() { return .success(element) }
          if let ending = state.ending { return ending.map { nil } }
          precondition(state.waiter == nil, "one iterator, one task")
          state.waiter = continuation
          return nil
        }
        if let ready { continuation.resume(returning: ready) }
      }
    } onCancel: {
      abandon()
    }
    return try result.get()
  }
}
