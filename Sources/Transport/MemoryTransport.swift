import BindruneWire
import NIOCore

/// One end of a pair in memory: host and controller in one process, on one event loop.
///
/// Packets are gathered in the other end's inbox and delivered in one go on the loop's next turn: a batch costs one
/// turn of the loop, a packet one copy, and no allocation once warm.
public final class MemoryTransport: HCITransport, @unchecked Sendable {
  // Sendable because every access is on the event loop, which the entry points check in debug builds.
  public let eventLoop: any EventLoop
  // Release builds do not check that no two accesses to it overlap, which would cost 700 instructions for each value:
  // all are on the event loop, and none lasts while a receiver or the other end is called.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var state = State()

  private struct State {
    /// Closed while a delivery is scheduled or under way.
    var gate = Gate()
    /// Nil once either end is closed.
    var other: MemoryTransport?
    /// What the other end sent, and the batch being delivered: they change places, so their memory is kept.
    var inbox = Batch()
    var spare = Batch()
    /// The other end found our inbox full and waits.
    var mustReportWritable = false
    var isSearching = false
    /// The other end is there, and its inbox is not full. Stored, as it is asked for each packet.
    var isWritable = true
  }
  public var isWritable: Bool { state.isWritable }

  private struct Batch {
    var octets: [UInt8] = []
    /// Where each packet ends.
    var ends: [Int] = []
    /// Returns how many packets and octets there are now.
    mutating func append(_ packet: Span<UInt8>) -> (packets: Int, octets: Int) {
      unsafe packet.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
      ends.append(octets.count)
      return (ends.count, octets.count)
    }
    mutating func removeAll() {
      octets.removeAll(keepingCapacity: true)
      ends.removeAll(keepingCapacity: true)
    }
  }

  /// Octets in an inbox from which on its sender is asked to stop.
  private static var highWater: Int { 65_536 }
  /// Octets in an inbox that are too many.
  private static var bound: Int { 1 << 20 }

  private init(_ eventLoop: any EventLoop) { self.eventLoop = eventLoop }

  /// The two ends. What one sends the other receives; when one is closed the other fails with `.closed` after the last
  /// packet.
  public static func pair(on loop: any EventLoop) -> (host: MemoryTransport, controller: MemoryTransport) {
    let host = MemoryTransport(loop)
    let controller = MemoryTransport(loop)
    host.state.other = controller
    controller.state.other = host
    return (host, controller)
  }

  public func start(_ receiver: any HCIReceiver) {
    eventLoop.preconditionInEventLoop()
    state.gate.start(receiver)
    reopen()
  }

  public func send(_ packet: Span<UInt8>) {
    eventLoop.assertInEventLoop()
    guard let other = state.other, !packet.isEmpty else { return }
    let waiting = other.state.inbox.append(packet)
    if waiting.octets > Self.bound {
      detach()
      return end(.overflow(waiting.octets))
    }
    if waiting.octets >= Self.highWater {
      state.isWritable = false
      other.state.mustReportWritable = true
    }
    // For the others a delivery has been scheduled, or they wait for the gate.
    if waiting.packets == 1 { other.schedule() }
  }

  /// Nothing to do: the loop's next turn delivers.
  public func flush() {}

  public func resynchronise() {
    eventLoop.assertInEventLoop()
    state.isSearching = true
  }

  public func close() {
    eventLoop.assertInEventLoop()
    state.gate = .ended
    detach()
    state.inbox.removeAll()
  }
  /// There is nothing outside of memory.
  public var closeFuture: EventLoopFuture<Void> { eventLoop.makeSucceededVoidFuture() }

  // MARK: Delivery

  private func detach() {
    guard let other = state.other else { return }
    state.other = nil
    other.state.other = nil
    (state.isWritable, other.state.isWritable) = (false, false)
    other.end(.closed)
  }
  private func end(_ error: TransportError) {
    let isOurs = state.gate.hold()
    state.gate.end(error)
    if isOurs { reopen() }
  }

  private func schedule() {
    if state.gate.hold() { eventLoop.execute { self.deliver() } }
  }
  /// Opens the gate, or delivers on the next turn what came meanwhile.
  private func reopen() {
    guard state.gate.receiver != nil, !state.inbox.ends.isEmpty || !state.gate.reopen() else { return }
    eventLoop.execute { self.deliver() }
  }

  private func deliver() {
    if !state.inbox.ends.isEmpty {
      var batch = state.inbox
      state.inbox = state.spare
      state.spare = Batch()
      // Room again: the sender hears of it before the packets are looked at, on a turn of its own.
      if state.mustReportWritable, let other = state.other {
        state.mustReportWritable = false
        other.state.isWritable = true
        eventLoop.execute { if other.state.isWritable { other.state.gate.receiver?.writable() } }
      }
      guard let receiver = state.gate.receiver else { return }
      var start = 0
      for place in batch.ends {
        if case .ended = state.gate { break }
        let packet = batch.octets.span.extracting(start..<place)
        start = place
        if state.isSearching {
          guard H4Framer.isResetAnswer(packet) else { continue }
          state.isSearching = false
        }
        receiver.received(packet)
      }
      batch.removeAll()
      state.spare = batch
      state.gate.receiver?.receivedAll()
    }
    guard state.inbox.ends.isEmpty, let (receiver, error) = state.gate.takeEnd() else { return reopen() }
    receiver.failed(error)
  }
}
