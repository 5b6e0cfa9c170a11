import Synchronization

/// Tasks that wait for one thing to happen. Each ends exactly once: with the next `resume`, or with its own
/// cancellation.
final class Waiters: Sendable {
  typealias Outcome = Result<Void, BluetoothError>
  private struct State {
    var last: UInt64 = 0
    var waiting: [UInt64: CheckedContinuation<Outcome, Never>] = [:]
  }
  private let state = Mutex(State())

  /// Waits for the next `resume`. Calls `begin` on the caller's actor once this task is registered, so the wait cannot
  /// miss what `begin` starts. An outcome that `begin` returns ends this wait.
  func wait(
    isolation: isolated (any Actor)? = #isolation, _ begin: () -> Outcome? = { nil }
  ) async throws(BluetoothError) {
    let id = state.withLock { state in
      state.last += 1
      return state.last
    }
    let outcome = await withTaskCancellationHandler {
      _ = isolation  // A closure has a parameter's isolation only if it captures that: SE-0420.
      return await withCheckedContinuation { continuation in
        let isCancelled = state.withLock { state in
          // Set before `onCancel` is called: either this sees it, or `onCancel` finds the continuation.
          if Task.isCancelled { return true }
          state.waiting[id] = continuation
          return false
        }
        if isCancelled {
          continuation.resume(returning: .failure(.cancelled))
        } else if let outcome = begin() {
          end(id, outcome)
        }
      }
    } onCancel: {
      end(id, .failure(.cancelled))
    }
    try outcome.get()
  }
  private func end(_ id: UInt64, _ outcome: Outcome) {
    state.withLock { $0.waiting.removeValue(forKey: id) }?.resume(returning: outcome)
  }

  /// Ends all current waits.
  func resume(_ outcome: Outcome = .success(())) {
    let all = state.withLock { state in
      defer { state.waiting = [:] }
      return state.waiting
    }
    for continuation in all.values { continuation.resume(returning: outcome) }
  }
}
