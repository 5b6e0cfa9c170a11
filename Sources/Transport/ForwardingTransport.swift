import NIOCore

/// Forwards everything in both directions between its user and another transport. Subclasses override the direction
/// that they observe, change or delay, and call `super` to forward.
///
///     final class Counter: ForwardingTransport {
///       var count = 0
///       override func received(_ packet: Span<UInt8>) {
///         count += 1
///         super.received(packet)
///       }
///     }
open class ForwardingTransport: HCITransport, HCIReceiver, @unchecked Sendable {
  // Sendable because every access is on the inner transport's event loop.
  private let inner: any HCITransport
  private var receiver: (any HCIReceiver)?

  public init(_ inner: any HCITransport) { self.inner = inner }

  // MARK: From the user to the inner transport

  public final var eventLoop: any EventLoop { inner.eventLoop }
  public final var isWritable: Bool { inner.isWritable }
  public final func resynchronise() { inner.resynchronise() }
  public final func start(_ receiver: any HCIReceiver) {
    self.receiver = receiver
    inner.start(self)
  }
  open var recordsCalls: Bool { inner.recordsCalls }
  open func willSend(becauseOf call: String) { inner.willSend(becauseOf: call) }
  open func send(_ packet: Span<UInt8>) { inner.send(packet) }
  open func flush() { inner.flush() }
  open func close() {
    receiver = nil
    inner.close()
  }
  open var closeFuture: EventLoopFuture<Void> { inner.closeFuture }

  // MARK: From the inner transport to the user

  open func received(_ packet: Span<UInt8>) { receiver?.received(packet) }
  open func receivedAll() { receiver?.receivedAll() }
  public final func writable() { receiver?.writable() }
  open func failed(_ error: TransportError) {
    let receiver = receiver
    self.receiver = nil
    receiver?.failed(error)
  }
}
