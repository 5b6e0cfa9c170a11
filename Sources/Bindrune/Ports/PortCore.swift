import BindruneWire
import Synchronization

/// The part that all ports share: the ring under its lock, who waits for room, and the end.
struct PortCore: ~Copyable, Sendable {
  // Not private: the compiler (6.3.1) ends with a broken module for a mutex of a private type in a stored struct.
  struct State: ~Copyable {
    var ring: SendRing
    /// nil: open.
    var error: BluetoothError?
  }
  private let state: Mutex<State>
  private let ready = Waiters()

  init(_ ring: consuming SendRing) { state = Mutex(State(ring: ring)) }

  /// One look at the ring, or one change of it.
  func withRing<Result>(_ body: (inout SendRing) -> Result) -> Result {
    state.withLock { body(&$0.ring) }
  }
  /// Why nothing more is accepted; nil: the port is open.
  var error: BluetoothError? { state.withLock { $0.error } }

  /// Returns at once if nothing was refused, else at the ready edge; throws when the port ends or the task is
  /// cancelled.
  func waitUntilReady() async throws(BluetoothError) {
    repeat {
      try await ready.wait {
        state.withLock { state in
          if let error = state.error { return .failure(error) }
          return state.ring.isRefused ? nil : .success(())
        }
      }
      // The edge of one run of refusals may resume a task that waits for the edge of the next.
    } while withRing { $0.isRefused }
  }
  func tellReady() { ready.resume() }

  /// Drops what waits, and accepts nothing more.
  func close(_ error: BluetoothError) { end(error) { $0.close() } }
  /// Accepts nothing more; what waits can still leave.
  func end(_ error: BluetoothError) { end(error) { $0.end() } }
  private func end(_ error: BluetoothError, _ change: (inout SendRing) -> Bool) {
    let isNew = state.withLock { state in
      guard change(&state.ring) else { return false }
      state.error = error
      return true
    }
    if isNew { ready.resume(.failure(error)) }
  }
}
