import ATT
import GAP
import Synchronization

/// Where one producer puts values for one link's characteristic: notifications, or writes without response.
///
/// `offer` answers on the caller's thread, without waiting for the host, from any thread. What it promises:
///
/// 1. *Bounded.* At most `capacity` octets wait, two for each value included. The memory is allocated with the port: no
///    offer allocates, and no use makes it grow. (`boundedInBytes`, `likeAList`)
/// 2. *False when full, then one edge.* After a run of refusals there is exactly one ready edge, when there is room again
///    for one value of the MTU: `waitUntilReady` returns, and `readyEdges` grows by one. (`boundedInBytes`, `likeAList`)
/// 3. *First in, first out.* Values leave in the order in which they were offered. None is lost, doubled or torn while the
///    link lives, even if the port is let go; several producers may share it. (`eightProducers`, `aPortThatIsLetGo`,
///    `eightThreadsShareAPort`)
/// 4. *Cut to min(MTU − 3, 512)* octets when it leaves; `longestValue` tells that length. (`whatIsTooLongIsCut`)
/// 5. *A link's ports take turns*, a value each, into the link's queue, which has a contract of its own: `NotificationQueue`.
///    (`portsTakeTurns`)
/// 6. *One wake for a burst.* The event loop is woken by the first value after it has emptied a port, and by no other,
///    however many ports of the host are offered something until it comes. (`likeAList`, `eightThreadsShareAPort`,
///    `portsTakeTurns`)
/// 7. *The end of the link* ends the port: what waits in it is dropped, each waiter completes once, with the link's error,
///    and no offer is taken. (`theEndOfTheLinkEndsWaiters`, `closedUnderEightThreads`)
public final class SendPort: Sendable {
  public enum Kind: Sendable { case notification, command }

  private struct State: ~Copyable {
    var ring: SendRing
    /// Why it is closed; nil while it is not.
    var error: BluetoothError?
  }
  private let state: Mutex<State>
  private let ready = Waiters()
  private let wake: @Sendable (SendPort) -> Void
  let link: LinkID
  let handle: AttributeHandle
  let kind: Kind
  /// Octets that may wait in this port, two for each value included: at least 514, one value of the greatest length.
  public let capacity: Int

  init(
    link: LinkID, handle: AttributeHandle, kind: Kind, capacity: Int, mtu: Int,
    wake: @escaping @Sendable (SendPort) -> Void
  ) {
    self.link = link
    self.handle = handle
    self.kind = kind
    self.wake = wake
    let ring = SendRing(capacity: capacity, longest: Self.longestValue(mtu))
    self.capacity = ring.capacity
    state = Mutex(State(ring: ring))
  }
  private static func longestValue(_ mtu: Int) -> Int { min(mtu - 3, SendRing.longestValue) }

  /// True: the value is on its way. False: full, or the link is gone (`waitUntilReady` tells which).
  /// A value longer than min(MTU − 3, 512) octets is cut to that when it leaves. To a client that has not subscribed
  /// nothing is sent.
  public func offer(_ value: Span<UInt8>) -> Bool {
    switch state.withLock({ $0.ring.offer(value) }) {
    case .refused: return false
    case .taken: return true
    case .takenByTheFirst:
      wake(self)
      return true
    }
  }
  public func offer(_ value: [UInt8]) -> Bool { offer(value.span) }

  /// The longest value that leaves whole now: min(MTU − 3, 512) octets. It may grow, and never shrinks.
  public var longestValue: Int { state.withLock { $0.ring.longest } }
  /// Octets that wait now, two for each value included.
  public var count: Int { state.withLock { $0.ring.count } }
  /// Ready edges so far: one for each run of refusals.
  public var readyEdges: Int { state.withLock { $0.ring.edges } }

  /// Returns when there is room for one value of the MTU; throws when the link is gone, or the task is cancelled. Where
  /// several producers share the port, another may have been quicker: offer again, and wait again.
  public func waitUntilReady() async throws(BluetoothError) {
    repeat {
      try await ready.wait {
        state.withLock { state in
          if let error = state.error { return .failure(error) }
          return state.ring.isRefused ? nil : .success(())
        }
      }
      // The edge of one run of refusals may come to those who wait for the edge of the next.
    } while state.withLock { $0.ring.isRefused }
  }

  // MARK: The event loop's side

  /// Lends the oldest value to `send`, under the lock; it stays if that refuses it.
  func sendNext(_ send: (Span<UInt8>) -> Bool) -> SendRing.Rest {
    let (rest, isEdge) = state.withLock { $0.ring.sendFirst(send) }
    if isEdge { ready.resume() }
    return rest
  }
  func mtuChanged(_ mtu: Int) { state.withLock { $0.ring.longest = Self.longestValue(mtu) } }
  func close(_ error: BluetoothError) {
    let isNew = state.withLock { state in
      guard state.ring.close() else { return false }
      state.error = error
      return true
    }
    if isNew { ready.resume(.failure(error)) }
  }
}
