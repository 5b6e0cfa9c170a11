import BindruneWire
import NIOCore

/// One end of a pair in memory: host and controller in one process, on one event loop.
///
/// Packets are gathered in the other end's inbox and delivered in one go on the loop's next turn: a batch costs one
/// turn of the loop, a packet one copy, and no allocation once warm.
public final class MemoryTransport: HCITransport, @unchecked Sendable {
  // Sendable because every access is on the event loop, which the entry points check in debug builds.
  public let eventLoop: any EventLoop
  /// Closed while a delivery is scheduled or under way.
  private var gate = Gate()
  /// Nil once either end is closed.
  private var other: MemoryTransport?
  /// What the other end sent, and the batch being delivered: they change places, so their memory is kept.
  private var inbox = Batch()
  private var spare = Batch()
  /// The other end found our inbox full and waits.
  private var owesWritable = false
  private var isSearching = false
  /// The other end is there, and its inbox is not full. Stored, as it is asked for each packet.
  public private(set) var isWritable = true

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
    host.other = controller
    controller.other = host
    return (host, controller)
  }

  public func start(_ receiver: any HCIReceiver) {
    eventLoop.preconditionInEventLoop()
    gate.start(receiver)
    reopen()
  }

  public func send(_ packet: Span<UInt8>) {
    eventLoop.assertInEventLoop()
    guard let other, !packet.isEmpty else { return }
    let waiting = other.inbox.append(packet)
    if waiting.octets > Self.bound {
      detach()
      return end(.overflow(waiting.octets))
    }
    if waiting.octets >= Self.highWater {
      isWritable = false
      other.owesWritable = true
    }
    // For the others a delivery has been scheduled, or they wait for the gate.
    if waiting.packets == 1 { other.schedule() }
  }

  /// Nothing to do: the loop's next turn delivers.
  public func flush() {}

  public func resynchronise() {
    eventLoop.assertInEventLoop()
    isSearching = true
  }

  public func close() {
    eventLoop.assertInEventLoop()
    gate = .ended
    detach()
    inbox.removeAll()
  }
  /// There is nothing outside of memory.
  public var closeFuture: EventLoopFuture<Void> { eventLoop.makeSucceededVoidFuture() }

  // MARK: Delivery

  private func detach() {
    guard let other else { return }
    self.other = nil
    other.other = nil
    (isWritable, other.isWritable) = (false, false)
    other.end(.closed)
  }
  private func end(_ error: TransportError) {
    let isOurs = gate.hold()
    gate.end(error)
    if isOurs { reopen() }
  }

  private func schedule() {
    if gate.hold() { eventLoop.execute { self.deliver() } }
  }
  /// Opens the gate, or delivers on the next turn what came meanwhile.
  private func reopen() {
    guard gate.receiver != nil, !inbox.ends.isEmpty || !gate.reopen() else { return }
    eventLoop.execute { self.deliver() }
  }

  private func deliver() {
    if !inbox.ends.isEmpty {
      var batch = inbox
      inbox = spare
      spare = Batch()
      // Room again: the sender hears of it before the packets are looked at, on a turn of its own.
      if owesWritable, let other {
        owesWritable = false
        other.isWritable = true
        eventLoop.execute { if other.isWritable { other.gate.receiver?.writable() } }
      }
      guard let receiver = gate.receiver else { return }
      var start = 0
      for place in batch.ends {
        if case .ended = gate { break }
        let packet = batch.octets.span.extracting(start..<place)
        start = place
        if isSearching {
          guard H4Framer.isResetAnswer(packet) else { continue }
          isSearching = false
        }
        receiver.received(packet)
      }
      batch.removeAll()
      spare = batch
      gate.receiver?.receivedAll()
    }
    if inbox.ends.isEmpty, let (receiver, error) = gate.takeEnd() { receiver.failed(error) } else { reopen() }
  }
}
