import BindruneWire

/// Accepts SDUs for one channel, as `SendPort` accepts values for a link: `offer` answers on the caller's thread,
/// without waiting, from any thread.
///
/// 1. *Bounded.* At most `capacity` octets wait, two for each SDU included. The memory is allocated with the port.
/// 2. *False when full, then one edge.* After a run of refusals there is exactly one ready edge, when half of the
///    octets that may wait are free: `waitUntilReady` returns, and `readyEdges` grows by one. The port is full when the
///    peer gives no more credits: a peer that stops reading stops the producer.
/// 3. *First in, first out.* SDUs leave in the order in which they were offered. None is lost, duplicated or cut while
///    the channel is open; several producers may share the port.
/// 4. *The end of the channel* ends the port: SDUs that wait are dropped, no offer is accepted, and each waiter
///    completes once, with the reason. `LinkChannel.close` drops none: they leave first.
///
/// As with a `SendPort`, the drainer is the event loop of the channel's host, or, where that is in another process, the
/// writer of a socket.
///
/// `ChannelPortTests` and `LinkChannelTests` show each of them.
public final class ChannelPort: Sendable {
  private let core: PortCore
  private let wake: @Sendable () -> Void
  /// Octets that may wait, two for each SDU included: at least one SDU of the greatest length.
  public let capacity: Int
  /// The longest SDU that the channel takes, in octets: the peer's MTU, or less if the channel was opened with less.
  public let longestSDU: Int

  /// The port calls `wake`, from any thread, when it was empty and is not any more.
  package init(longestSDU: Int, capacity: Int, wake: @escaping @Sendable () -> Void) {
    let ring = SendRing(capacity: capacity, limit: longestSDU, longest: longestSDU, target: 0, depth: nil)
    self.capacity = ring.capacity
    self.longestSDU = longestSDU
    self.wake = wake
    core = PortCore(ring)
  }

  /// True: accepted. False: full, or the channel has ended (`waitUntilReady` distinguishes them). Throws
  /// `.invalidArgument` if the SDU is longer than `longestSDU`.
  public func offer(_ sdu: Span<UInt8>) throws(BluetoothError) -> Bool {
    guard sdu.count <= longestSDU else {
      throw BluetoothError(
        .invalidArgument,
        "\(sdu.count) octets do not fit one SDU of the channel, which carries \(longestSDU): cut them.",
        operation: "send on a channel")
    }
    switch core.withRing({ $0.offer(sdu, to: 0) }) {
    case .refused: return false
    case .taken: return true
    case .takenFirst:
      wake()
      return true
    }
  }
  public func offer(_ sdu: [UInt8]) throws(BluetoothError) -> Bool { try offer(sdu.span) }

  /// There is room now for one SDU of the greatest length. If not, one ready edge follows, as after a refused offer,
  /// unless the channel has ended.
  public func isReady() -> Bool { core.withRing { $0.hasRoom(for: $0.longest + $0.headerCount) } }
  /// Octets that wait now, two for each SDU included.
  public var count: Int { core.withRing { $0.count } }
  /// Ready edges so far, one for each run of refusals.
  public var readyEdges: Int { core.withRing { $0.edges } }
  /// Returns at once if nothing was refused, else at the ready edge; throws when the channel ends or the task is
  /// cancelled. If several producers share the port, another may have used the room: offer again, and wait again.
  public func waitUntilReady() async throws(BluetoothError) { try await core.waitUntilReady() }

  // MARK: The drainer's end

  /// Lends the SDUs in turn to `send`, until it refuses one, which stays, or none is left: then true. Calls `ready` at a
  /// ready edge.
  package func drain(now: Instant, ready: () -> Void, _ send: (Span<UInt8>) -> Bool) -> Bool {
    while true {
      let (left, isEdge) = core.withRing { $0.sendFirst(now: now) { sdu, _ in send(sdu) } }
      if isEdge {
        core.tellReady()
        ready()
      }
      switch left {
      case .more: continue
      case .nothing: return true
      // Nobody sets a fence in such a port.
      case .refused, .fenced: return false
      }
    }
  }
  /// Accepts nothing more; what waits can still leave.
  package func end(_ error: BluetoothError) { core.end(error) }
  /// Drops what waits, and accepts nothing more.
  package func close(_ error: BluetoothError) { core.close(error) }
}
