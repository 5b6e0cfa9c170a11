import ATT
import BindruneWire
import DequeModule
import GAP
import Synchronization

/// Where one producer puts values for one link's characteristic: notifications, or writes without response.
///
/// `offer` answers on the caller's thread, without waiting for the host: false when the port is full. After a run of
/// refusals there is exactly one ready edge, when there is room again for one value of the MTU: `waitUntilReady` returns,
/// and `readyEdges` grows by one. Values leave in the order in which they were offered; none is lost while the link lives,
/// even if the port is let go. A link's ports take turns.
public final class SendPort: Sendable {
  public enum Kind: Sendable { case notification, command }

  private struct State {
    var ring = Deque<[UInt8]>()
    var used = 0
    var mtu: Int
    /// An offer was refused, and the edge is still to come.
    var isRefused = false
    /// The host knows that there are values.
    var isAwaited = false
    var edges = 0
    var closed: BluetoothError?
  }
  private let state: Mutex<State>
  private let ready = Waiters()
  private let wake: @Sendable (SendPort) -> Void
  let link: LinkID
  let handle: AttributeHandle
  let kind: Kind
  /// Octets that may wait in this port, 16 for each value included. A single value is always taken.
  public let capacity: Int

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

  private static func cost(_ count: Int) -> Int { count + 16 }

  /// True: the value is on its way. False: full, or the link is gone (`waitUntilReady` tells which).
  /// A value longer than min(MTU − 3, 512) octets is cut to that when it leaves. To a client that has not subscribed
  /// nothing is sent.
  public func offer(_ value: [UInt8]) -> Bool {
    let (isTaken, mustWake) = state.withLock { state -> (Bool, Bool) in
      guard state.closed == nil else { return (false, false) }
      let cost = Self.cost(min(value.count, NotificationQueue.longestValue))
      guard state.ring.isEmpty || state.used + cost <= capacity else {
        state.isRefused = true
        return (false, false)
      }
      state.used += cost
      state.ring.append(
        value.count <= NotificationQueue.longestValue ? value : Array(value.prefix(NotificationQueue.longestValue)))
      defer { state.isAwaited = true }
      return (true, !state.isAwaited)
    }
    if mustWake { wake(self) }
    return isTaken
  }

  /// Ready edges so far: one for each run of refusals.
  public var readyEdges: Int { state.withLock { $0.edges } }

  /// Returns when there is room for one value of the MTU; throws when the link is gone, or the task is cancelled.
  public func waitUntilReady() async throws(BluetoothError) {
    try await ready.wait {
      state.withLock { state in
        if let error = state.closed { return .failure(error) }
        return state.isRefused ? nil : .success(())
      }
    }
  }

  // MARK: The event loop's side

  /// What is left after one value.
  enum Rest { case nothing, more, refused }

  /// Hands the oldest value to `send`; it stays if that refuses it.
  func sendNext(_ send: ([UInt8]) -> Bool) -> Rest {
    let (rest, isEdge) = state.withLock { state -> (Rest, Bool) in
      if let value = state.ring.first {
        guard send(value) else { return (.refused, false) }
        state.ring.removeFirst()
        state.used -= Self.cost(value.count)
      }
      // Seen under the lock: whoever offers after this wakes the host again.
      state.isAwaited = !state.ring.isEmpty
      let isEdge = state.isRefused && (state.ring.isEmpty || state.used + Self.cost(state.mtu) <= capacity)
      if isEdge {
        state.isRefused = false
        state.edges += 1
      }
      return (state.ring.isEmpty ? .nothing : .more, isEdge)
    }
    if isEdge { ready.resume() }
    return rest
  }
  func mtuChanged(_ mtu: Int) { state.withLock { $0.mtu = mtu } }
  func close(_ error: BluetoothError) {
    state.withLock { state in
      guard state.closed == nil else { return }
      state.closed = error
      state.ring.removeAll()
      state.used = 0
      state.isRefused = false
    }
    ready.resume(.failure(error))
  }
}
