import BindruneATT
import BindruneWire

/// Accepts values for one link: notifications, or writes without response. A port is for one characteristic or for all
/// of the link; with the latter each offer names its characteristic, and values of several keep their order. A client
/// that has enabled only indications gets these, each after it has confirmed the one before.
///
/// A port has two ends. Producers use the public one: `offer` answers on the caller's thread, without waiting, from any
/// thread. The drainer, which `wake` calls, uses the other: it takes values with `sendNext` while it has credit. A port
/// knows neither link nor host. The event loop of a `BluetoothHost` drains the ports of its links; where the host is in
/// another process, the writer of a socket drains the ports of this one (Decision 0040).
///
///     producers ── offer ──▶ ┌───────────────┐ ── wake ───▶ drainer: a host's event loop,
///                            │ ring, fences  │ ◀ sendNext ─ or the writer of a socket
///     requests ─── fence ──▶ └───────────────┘ ── onReady, waitUntilReady ──▶ producers
///
/// What it promises:
///
/// 1. *Bounded.* At most `capacity` octets wait, `costOfValue` for each value included, and in a port for notifications
///    no more values than leave in a quarter of a second, so that the newest leaves soon (`SendDepth`). The memory is
///    allocated with the port: no offer allocates, and no use makes it grow. (`boundedInBytes`, `boundedByTime`,
///    `likeAList`)
/// 2. *False when full, then one edge.* After a run of refusals there is exactly one ready edge, when half of the
///    octets and half of the values that may wait are free, and room for one value of the MTU: `waitUntilReady`
///    returns, `readyEdges` grows by one, and the drainer calls `onReady`, on a host's event loop. (`boundedInBytes`,
///    `boundedByTime`, `likeAList`)
/// 3. *First in, first out.* Values leave in the order in which they were offered. None is lost, duplicated or torn
///    while the link lives, even if the port is released; several producers may share it. (`eightProducers`,
///    `aPortThatIsLetGo`, `eightThreadsShareAPort`)
/// 4. *Cut to min(MTU − 3, 512)* octets when a value leaves: `longestValue`. (`whatIsTooLongIsCut`)
/// 5. *A link's ports take turns*, a value each, into the link's queue, which has a contract of its own:
///    `NotificationQueue`. (`portsTakeTurns`)
/// 6. *One wake for a burst.* Only the first value after the drainer has emptied the port wakes it; offers to several
///    ports of one host cause one wake of its event loop. (`likeAList`, `eightThreadsShareAPort`, `portsTakeTurns`)
/// 7. *The end of the link* ends the port: waiting values are dropped, each waiter completes once, with the link's
///    error, no offer is accepted, and every fence counts as reached; `onReady` is not called.
///    (`theEndOfTheLinkEndsWaiters`, `closedUnderEightThreads`)
/// 8. *In its place.* A request on the link (`Link.read`, `BluetoothHost.begin` …) leaves after the values that were
///    offered to the link's `.command` ports before it, and before those that are offered after it; likewise an answer
///    to the client among the values of its `.notification` ports. (`OrderTests`)
/// 9. *When the server's services change*, values for the handles that are gone are dropped, and a port for one of them
///    ends; so with values of a service of ours that is removed. (`servicesChanged`, `valuesOfARemovedService`)
public final class SendPort: Sendable {
  /// What the values of a port become on the air, and so which queue of the link they enter.
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Kind: UInt8, Sendable, CaseIterable {
    /// Of a server: notifications, or indications to a client that has enabled only those.
    case notification = 0
    /// Of a client: writes without response.
    case command = 1
  }
  /// Some of the kinds.
  struct Kinds: OptionSet {
    let rawValue: UInt8
    init(rawValue: UInt8) { self.rawValue = rawValue }
    @inline(__always) init(_ kind: Kind) { rawValue = 1 << kind.rawValue }
  }
  /// What is left after one `sendNext`.
  package enum Drained {
    /// No value is left. The next offer wakes the drainer.
    case nothing
    case more
    /// The value stays: the drainer returns, without being woken, when it has credit.
    case refused
    /// The next value stands behind a fence. The drainer is woken when the fence has been removed.
    case fenced
  }

  private let core: PortCore
  private let wake: @Sendable (SendPort) -> Void
  private let onReady: (@Sendable () -> Void)?
  /// nil: the port is for all of the link.
  let handle: AttributeHandle?
  let kind: Kind
  /// The function that offers the values, for a trace.
  let call: StaticString
  /// Octets that may wait in this port, `costOfValue` for each value included: at least one value of the greatest
  /// length.
  public let capacity: Int
  /// Octets that a value takes besides its own: two, or four where each has a handle.
  public let costOfValue: Int

  /// For the drainer. The port calls `wake`, from any thread, when it was empty and is not any more. `tellsDrained`: it
  /// calls `onReady`, too, when the last of its values has left, once.
  package init(
    handle: AttributeHandle?, kind: Kind, capacity: Int, mtu: Int, call: StaticString = "offer(_:)",
    tellsDrained: Bool = false, onReady: (@Sendable () -> Void)? = nil, wake: @escaping @Sendable (SendPort) -> Void
  ) {
    self.handle = handle
    self.kind = kind
    self.call = call
    self.onReady = onReady
    self.wake = wake
    let ring = SendRing(
      capacity: capacity, limit: NotificationQueue.longestValue, longest: Self.longestValue(mtu),
      target: handle?.rawValue, depth: kind.depth, tellsDrained: tellsDrained)
    self.capacity = ring.capacity
    costOfValue = ring.headerCount
    core = PortCore(ring)
  }
  private static func longestValue(_ mtu: Int) -> Int { min(mtu - 3, NotificationQueue.longestValue) }

  /// True: accepted. False: full, or the link is down (`waitUntilReady` distinguishes them).
  /// A value longer than min(MTU − 3, 512) octets is cut to that when it leaves. A client that has not subscribed gets
  /// nothing. Traps if the port is for all of the link.
  public func offer(_ value: Span<UInt8>) -> Bool {
    guard let handle else {
      preconditionFailure("a port for all of a link needs the handle of each value: offer(_:to:)")
    }
    return take(value, handle)
  }
  public func offer(_ value: [UInt8]) -> Bool { offer(value.span) }
  /// The same for a port of a whole link: `handle` is that of a characteristic's value, or of a descriptor. Traps if
  /// the port is for another attribute.
  public func offer(_ value: Span<UInt8>, to handle: AttributeHandle) -> Bool {
    precondition(self.handle == nil || self.handle == handle, "this port is for another handle")
    return take(value, handle)
  }
  public func offer(_ value: [UInt8], to handle: AttributeHandle) -> Bool { offer(value.span, to: handle) }
  @inline(__always) private func take(_ value: Span<UInt8>, _ handle: AttributeHandle) -> Bool {
    switch core.withRing({ $0.offer(value, to: handle.rawValue) }) {
    case .refused: return false
    case .taken: return true
    case .takenFirst:
      wake(self)
      return true
    }
  }

  /// There is room now for one value of the greatest length, `longestValue`. If not, one ready edge follows, as after a
  /// refused offer, unless the port has ended.
  public func isReady() -> Bool { core.withRing { $0.hasRoom(for: $0.longest + $0.headerCount) } }
  /// There is room for one value that takes `count` octets, `costOfValue` included: for a producer that offers to
  /// several ports all or nothing. If not, a ready edge follows as above, which promises room for one value of the
  /// greatest length; but an empty port has no room only for more than its `capacity`, which it never has, and then no
  /// edge follows.
  public func hasRoom(for count: Int) -> Bool { core.withRing { $0.hasRoom(for: count) } }

  /// The longest value that leaves whole now: min(MTU − 3, 512) octets. It may grow and never shrinks.
  public var longestValue: Int { core.withRing { $0.longest } }
  /// Octets that wait now, `costOfValue` for each value included.
  public var count: Int { core.withRing { $0.count } }
  /// Ready edges so far, one for each run of refusals.
  public var readyEdges: Int { core.withRing { $0.edges } }

  /// Returns at once if nothing was refused, else at the ready edge; throws when the link goes down or the task is
  /// cancelled. If several producers share the port, another may have used the room: offer again, and wait again.
  public func waitUntilReady() async throws(BluetoothError) { try await core.waitUntilReady() }

  // MARK: Places

  /// A place among the values of a port: while the fence exists, values that are offered after it stay in the port.
  /// Usable from any thread.
  package final class Fence: Sendable {
    private let port: SendPort
    private let id: UInt64
    fileprivate init(_ port: SendPort, _ id: UInt64) { (self.port, self.id) = (port, id) }
    /// The values that were offered before it have left the port, or the port has ended.
    package var isReached: Bool { port.core.withRing { $0.hasReached(id) } }
    deinit {
      if port.core.withRing({ $0.removeFence(id) }) { port.wake(port) }
    }
  }
  /// nil: the link is down.
  package func fence() -> Fence? { core.withRing { $0.addFence() }.map { Fence(self, $0) } }

  // MARK: The drainer's end

  /// Lends the oldest value to `send`, under the lock; it stays if that refuses it. After an edge call `tellReady`.
  package func sendNext(
    now: Instant, _ send: (Span<UInt8>, AttributeHandle) -> Bool
  ) -> (left: Drained, isEdge: Bool) {
    core.withRing { $0.sendFirst(now: now) { send($0, AttributeHandle(rawValue: $1)) } }
  }
  /// `sendNext` for value after value, `sent` after each, and the edges: until nothing is left, or `send` refuses one;
  /// after the first if others have their turns.
  @inline(__always)
  func sendAll(
    now: Instant, inTurns: Bool, _ send: (Span<UInt8>, AttributeHandle) -> Bool, sent: () -> Void
  ) -> Drained {
    var left: Drained
    repeat {
      let isEdge: Bool
      (left, isEdge) = sendNext(now: now, send)
      sent()
      if isEdge { tellReady() }
    } while !inTurns && left == .more
    return left
  }
  package func tellReady() {
    core.tellReady()
    onReady?()
  }
  /// Drops the values whose handle `isGone`. True: an edge, after which call `tellReady`.
  package func removeAll(where isGone: (AttributeHandle) -> Bool) -> Bool {
    core.withRing { $0.removeAll { isGone(AttributeHandle(rawValue: $0)) } }
  }
  package func mtuChanged(_ mtu: Int) { core.withRing { $0.longest = Self.longestValue(mtu) } }
  package func close(_ error: BluetoothError) { core.close(error) }
}

extension SendPort.Kind {
  /// Limits how many values may wait; nil: only their octets are limited. An old notification is worth less than the
  /// newest, whereas each write is a step of its own.
  fileprivate var depth: SendDepth? {
    switch self {
    case .notification: SendDepth()
    case .command: nil
    }
  }
}
