import ATT
import BindruneWire
import DequeModule
import GAP
import Synchronization

/// Where one producer puts values for one link's characteristic: notifications, or writes without response.
///
/// `offer` answers on the caller's thread, without waiting for the host: false when the port is full. After a false there
/// is exactly one ready edge, when there is room again for one value of the MTU: `waitUntilReady` returns, or the
/// `readyEdges` count grows. Values leave in the order in which they were offered; none is lost while the link lives.
public final class SendPort: Sendable {
  public enum Kind: Sendable { case notification, command }

  struct Entry: Sendable { var value: [UInt8] }
  private struct State {
    var ring = Deque<[UInt8]>()
    var used = 0
    var isArmed = false
    var isDraining = false
    var closed: BluetoothError?
    var mtu: Int
    var edges = 0
    var lastWaiter: UInt64 = 0
    var waiters: [UInt64: CheckedContinuation<Result<Void, BluetoothError>, Never>] = [:]
  }
  private let state: Mutex<State>
  private let wake: @Sendable (SendPort) -> Void
  let link: LinkID
  let handle: AttributeHandle
  let kind: Kind
  /// Octets that may wait in this port.
  public let capacity: Int
  /// What a value costs beyond its octets.
  private static let overhead = 16

  init(
    link: LinkID, handle: AttributeHandle, kind: Kind, capacity: Int, mtu: Int,
    wake: @escaping @Sendable (SendPort) -> Void
  ) {
    self.link = link
    self.handle = handle
    self.kind = kind
    self.capacity = capacity
    self.wake = wake
    state = Mutex(State(mtu: mtu))
  }

  /// True: the value is on its way. False: full, or the link is gone (`waitUntilReady` tells which).
  /// A value longer than min(MTU − 3, 512) octets is cut to that when it leaves.
  public func offer(_ value: [UInt8]) -> Bool {
    let (accepted, mustWake) = state.withLock { state -> (Bool, Bool) in
      if state.closed != nil { return (false, false) }
      let cost = value.count + Self.overhead
      guard state.used + cost <= capacity || state.ring.isEmpty else {
        state.isArmed = true
        return (false, false)
      }
      state.used += cost
      state.ring.append(value)
      defer { state.isDraining = true }
      return (true, !state.isDraining)
    }
    if mustWake { wake(self) }
    return accepted
  }

  /// Ready edges so far: one for each run of refusals.
  public var readyEdges: Int { state.withLock { $0.edges } }

  /// Returns when there is room for one value of the MTU; throws when the link is gone or the task is cancelled.
  public func waitUntilReady() async throws(BluetoothError) {
    let id = state.withLock { state in
      state.lastWaiter += 1
      return state.lastWaiter
    }
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let now = state.withLock { state -> Result<Void, BluetoothError>? in
          if let closed = state.closed { return .failure(closed) }
          if !state.isArmed { return .success(()) }
          // Cancelled before there was anything for the handler to find.
          if Task.isCancelled { return Self.cancelled }
          state.waiters[id] = continuation
          return nil
        }
        if let now { continuation.resume(returning: now) }
      }
    } onCancel: {
      state.withLock { $0.waiters.removeValue(forKey: id) }?.resume(returning: Self.cancelled)
    }
    try result.get()
  }
  private static var cancelled: Result<Void, BluetoothError> {
    .failure(BluetoothError(.cancelled, "the task was cancelled while it waited for room"))
  }

  // MARK: The event loop's side

  /// Hands values to `send` until it refuses one (which stays) or none is left. True when some are left.
  func drain(_ send: ([UInt8]) -> Bool) -> Bool {
    while true {
      // Only an empty ring, seen under the lock, ends draining: a producer that offers meanwhile wakes nobody.
      let next = state.withLock { state -> [UInt8]? in
        state.isDraining = !state.ring.isEmpty
        return state.ring.first
      }
      guard let value = next else { return false }
      guard send(value) else { return true }
      release()
    }
  }
  private func release() {
    let waiters = state.withLock { state -> [CheckedContinuation<Result<Void, BluetoothError>, Never>] in
      guard let value = state.ring.popFirst() else { return [] }
      state.used -= value.count + Self.overhead
      // An empty port takes a value of any length, also where its capacity is below that.
      guard state.isArmed, state.ring.isEmpty || state.used + state.mtu + Self.overhead <= capacity else { return [] }
      state.isArmed = false
      state.edges += 1
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
    for waiter in waiters { waiter.resume(returning: .success(())) }
  }
  func mtuChanged(_ mtu: Int) { state.withLock { $0.mtu = mtu } }
  func close(_ error: BluetoothError) {
    let waiters = state.withLock { state -> [CheckedContinuation<Result<Void, BluetoothError>, Never>] in
      guard state.closed == nil else { return [] }
      state.closed = error
      state.ring.removeAll()
      defer { state.waiters = [:] }
      return Array(state.waiters.values)
    }
    for waiter in waiters { waiter.resume(returning: .failure(error)) }
  }
}
