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
  private struct State {
    var elements = Deque<Element>()
    var ending: Result<Void, BluetoothError>?
    var waiter: CheckedContinuation<Result<Element?, BluetoothError>, Never>?
  }
  private let state = Mutex(State())
  private let capacity: Int
  private let overflow: Overflow

  init(capacity: Int, overflow: Overflow) {
    self.capacity = capacity
    self.overflow = overflow
  }

  /// Nobody will take anything any more.
  var isFinished: Bool { state.withLock { $0.ending != nil && $0.elements.isEmpty } }

  func put(_ element: Element) {
    let waiter = state.withLock { state -> CheckedContinuation<Result<Element?, BluetoothError>, Never>? in
      guard state.ending == nil else { return nil }
      if let waiter = state.waiter {
        state.waiter = nil
        return waiter
      }
      if state.elements.count == capacity {
        switch overflow {
        case .dropOldest: state.elements.removeFirst()
        case .end:
          state.ending = .failure(
            BluetoothError(.overflow, "values came faster than they were taken; \(capacity) were waiting"))
          return nil
        }
      }
      state.elements.append(element)
      return nil
    }
    waiter?.resume(returning: .success(element))
  }

  /// nil: the sequence ends well. What waits is still delivered.
  func finish(_ error: BluetoothError? = nil) {
    let waiter = state.withLock { state -> CheckedContinuation<Result<Element?, BluetoothError>, Never>? in
      guard state.ending == nil else { return nil }
      state.ending = error.map { .failure($0) } ?? .success(())
      defer { state.waiter = nil }
      return state.waiter
    }
    waiter?.resume(returning: error.map { .failure($0) } ?? .success(nil))
  }

  /// The next element; nil at the end, or when the task has been cancelled. One consumer at a time.
  func take() async -> Result<Element?, BluetoothError> {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
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
      finish()
    }
  }
}
