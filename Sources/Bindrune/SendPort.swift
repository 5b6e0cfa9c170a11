import ATT
import Synchronization

/// Where one producer puts values for one link: notifications, or writes without response. For one characteristic, or for all
/// of the link, so that values of several characteristics keep their order: then each offer says which. A client that has asked
/// for indications and not for notifications gets those, each when it has confirmed the one before.
///
/// A port has two ends. Producers use the public one: `offer` answers on the caller's thread, without waiting, from any thread. The
/// other is the drainer's, which `wake` calls: it takes the values with `sendNext`, as many as it has credit for. A port knows
/// neither link nor host. The event loop of a `BluetoothHost` drains the ports of its links; where the host is in another process, the writer
/// of a socket drains the ports of this one (Decision 0040).
///
///     producers ── offer ──▶ ┌───────────────┐ ── wake ───▶ drainer: a host's event loop,
///                            │ ring, fences  │ ◀ sendNext ─ or the writer of a socket
///     requests ─── fence ──▶ └───────────────┘ ── onReady, waitUntilReady ──▶ producers
///
/// What it promises:
///
/// 1. *Bounded.* At most `capacity` octets wait, `costOfValue` for each value included. The memory is allocated with the port: no
///    offer allocates, and no use makes it grow. (`boundedInBytes`, `likeAList`)
/// 2. *False when full, then one edge.* After a run of refusals there is exactly one ready edge, when half of `capacity` is
///    free again, and room for one value of the MTU: `waitUntilReady` returns, `readyEdges` grows by one, and `onReady` is
///    called by the drainer, on a host's event loop. (`boundedInBytes`, `likeAList`)
/// 3. *First in, first out.* Values leave in the order in which they were offered. None is lost, doubled or torn while the
///    link lives, even if the port is let go; several producers may share it. (`eightProducers`, `aPortThatIsLetGo`,
///    `eightThreadsShareAPort`)
/// 4. *Cut to min(MTU − 3, 512)* octets when it leaves; `longestValue` tells that length. (`whatIsTooLongIsCut`)
/// 5. *A link's ports take turns*, a value each, into the link's queue, which has a contract of its own: `NotificationQueue`.
///    (`portsTakeTurns`)
/// 6. *One wake for a burst.* The drainer is woken by the first value after it has emptied a port, and by no other; a host's
///    event loop once, however many of its ports are offered something until it comes. (`likeAList`, `eightThreadsShareAPort`,
///    `portsTakeTurns`)
/// 7. *The end of the link* ends the port: what waits in it is dropped, each waiter completes once, with the link's error,
///    no offer is taken, and every fence counts as reached; `onReady` is not called. (`theEndOfTheLinkEndsWaiters`,
///    `closedUnderEightThreads`)
/// 8. *In its place.* A request that is made on the link (`Link.read`, `BluetoothHost.begin` …) leaves after the values that have been
///    offered to the link's `.command` ports, an answer to the client after those of its `.notification` ports, and what is
///    offered after them leaves after them. (`OrderTests`)
/// 9. *When the server's services change*, what was to be written to the handles that are gone is dropped, and a port for one
///    of them ends. (`servicesChanged`)
public final class SendPort: Sendable {
  public enum Kind: Sendable { case notification, command }
  /// What the drainer finds after one `sendNext`.
  package enum Drained {
    /// No value is left. The next offer wakes the drainer.
    case nothing
    case more
    /// The value stays: the drainer comes again, without being woken, when it has credit.
    case refused
    /// The next value stands behind a fence. The drainer is woken when the fence is gone.
    case fenced
  }

  private struct State: ~Copyable {
    var ring: SendRing
    /// Why it is closed; nil while it is not.
    var error: BluetoothError?
  }
  private let state: Mutex<State>
  private let ready = Waiters()
  private let wake: @Sendable (SendPort) -> Void
  private let onReady: (@Sendable () -> Void)?
  /// The characteristic's; nil: the port is for all of the link.
  let handle: AttributeHandle?
  let kind: Kind
  /// Octets that may wait in this port, `costOfValue` for each value included: at least one value of the greatest length.
  public let capacity: Int
  /// Octets that a value takes besides its own: two, or four where each has a handle.
  public let costOfValue: Int

  /// For who drains it. `wake` is called from any thread when there is something to drain, and was nothing before.
  package init(
    handle: AttributeHandle?, kind: Kind, capacity: Int, mtu: Int,
    onReady: (@Sendable () -> Void)? = nil, wake: @escaping @Sendable (SendPort) -> Void
  ) {
    self.handle = handle
    self.kind = kind
    self.onReady = onReady
    self.wake = wake
    let ring = SendRing(capacity: capacity, longest: Self.longestValue(mtu), handle: handle)
    self.capacity = ring.capacity
    costOfValue = ring.headerCount
    state = Mutex(State(ring: ring))
  }
  private static func longestValue(_ mtu: Int) -> Int { min(mtu - 3, SendRing.longestValue) }

  /// True: the value is on its way. False: full, or the link is gone (`waitUntilReady` tells which).
  /// A value longer than min(MTU − 3, 512) octets is cut to that when it leaves. To a client that has not subscribed
  /// nothing is sent. For a port that has a handle; traps otherwise.
  public func offer(_ value: Span<UInt8>) -> Bool {
    guard let handle else {
      preconditionFailure("a port for all of a link must be told whose value it is: offer(_:to:)")
    }
    return take(value, handle)
  }
  public func offer(_ value: [UInt8]) -> Bool { offer(value.span) }
  /// The same for a port of a whole link: `handle` is that of a characteristic's value, or of a descriptor. Traps where the
  /// port has another.
  public func offer(_ value: Span<UInt8>, to handle: AttributeHandle) -> Bool {
    precondition(self.handle == nil || self.handle == handle, "this port is for another handle")
    return take(value, handle)
  }
  public func offer(_ value: [UInt8], to handle: AttributeHandle) -> Bool { offer(value.span, to: handle) }
  @inline(__always) private func take(_ value: Span<UInt8>, _ handle: AttributeHandle) -> Bool {
    switch state.withLock({ $0.ring.offer(value, to: handle) }) {
    case .refused: return false
    case .taken: return true
    case .takenFirst:
      wake(self)
      return true
    }
  }

  /// There is room now for one value of the greatest length, `longestValue`. Where there is not, one ready edge follows, as
  /// after a refused offer, unless the port has ended.
  public func isReady() -> Bool { state.withLock { $0.ring.hasRoom(for: $0.ring.longest + $0.ring.headerCount) } }
  /// There is room for `count` octets, each value with its length and `costOfValue`: for whoever offers to several ports all
  /// or nothing. Where there is not, a ready edge follows as above, which promises room for one value, and half of
  /// `capacity`, but not for `count`.
  public func hasRoom(for count: Int) -> Bool { state.withLock { $0.ring.hasRoom(for: count) } }

  /// The longest value that leaves whole now: min(MTU − 3, 512) octets. It may grow, and never shrinks.
  public var longestValue: Int { state.withLock { $0.ring.longest } }
  /// Octets that wait now, `costOfValue` for each value included.
  public var count: Int { state.withLock { $0.ring.count } }
  /// Ready edges so far: one for each run of refusals.
  public var readyEdges: Int { state.withLock { $0.ring.edges } }

  /// Returns at once where nothing was refused, else at the ready edge; throws when the link is gone, or the task is
  /// cancelled. Where several producers share the port, another may have been quicker: offer again, and wait again.
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

  // MARK: Places

  /// A place among the values of a port: values that are offered while it is held stay in the port, behind those that were
  /// offered before. From any thread.
  package final class Fence: Sendable {
    private let port: SendPort
    private let id: UInt64
    fileprivate init(_ port: SendPort, _ id: UInt64) { (self.port, self.id) = (port, id) }
    /// The values that were offered before have left the port, or the port has ended.
    package var isReached: Bool { port.state.withLock { $0.ring.hasReached(id) } }
    deinit {
      if port.state.withLock({ $0.ring.removeFence(id) }) { port.wake(port) }
    }
  }
  /// Nil: the link is gone.
  package func fence() -> Fence? { state.withLock { $0.ring.addFence() }.map { Fence(self, $0) } }

  // MARK: The drainer's end

  /// Lends the oldest value to `send`, under the lock; it stays if that refuses it. After an edge: `tellReady`.
  package func sendNext(_ send: (Span<UInt8>, AttributeHandle) -> Bool) -> (left: Drained, isEdge: Bool) {
    state.withLock { $0.ring.sendFirst(send) }
  }
  package func tellReady() {
    ready.resume()
    onReady?()
  }
  /// Drops the values whose handle `isGone`. True: after this edge `tellReady`.
  package func removeAll(where isGone: (AttributeHandle) -> Bool) -> Bool {
    state.withLock { $0.ring.removeAll(where: isGone) }
  }
  package func mtuChanged(_ mtu: Int) { state.withLock { $0.ring.longest = Self.longestValue(mtu) } }
  package func close(_ error: BluetoothError) {
    let isNew = state.withLock { state in
      guard state.ring.close() else { return false }
      state.error = error
      return true
    }
    if isNew { ready.resume(.failure(error)) }
  }
}
