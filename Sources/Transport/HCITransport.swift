import BindruneWire
import NIOCore

/// Connects to a controller (or, on the controller's side, to its host): whole HCI packets in order, both ways. A
/// packet starts with its H4 type octet, on every transport.
///
/// One event loop owns a transport and its receiver. **Call every member on that loop.** The transport calls the
/// receiver on it, never from inside a call that the receiver makes: neither side has to expect re-entry. `actor
/// BluetoothHost` uses `eventLoop.executor` as its own executor and enters with `assumeIsolated`: no hop, no lock.
public protocol HCITransport: AnyObject, Sendable {
  var eventLoop: any EventLoop { get }
  /// Starts reading and delivering packets. Call it once; the receiver is retained until `close` or `failed`.
  func start(_ receiver: any HCIReceiver)
  /// Sends one packet. Accepted even if `isWritable` is false, up to a bound (then `failed(.overflow)`); ignored after
  /// the end.
  func send(_ packet: Span<UInt8>)
  /// Whether it records the calls that cause packets: only then `willSend(becauseOf:)` has an effect. Constant.
  var recordsCalls: Bool { get }
  /// Records, in a trace, the call that causes the packet of the next `send`.
  func willSend(becauseOf call: String)
  /// Sends gathered packets now, in as few system calls as the transport allows. Call it after a batch.
  func flush()
  /// Whether the peer keeps up. If false, stop sending until `writable()`.
  var isWritable: Bool { get }
  /// Drops everything until the answer to HCI_Reset, which is the first packet delivered. For the start of a
  /// controller, before HCI_Reset is sent: it discards packets from before the reset.
  func resynchronise()
  /// Closes the transport. The receiver gets nothing more, not even `failed`.
  func close()
  /// Completes when everything is released after `close` or `failed`: its descriptor is closed, and changes that
  /// opening made are undone. Fails if that was impossible.
  var closeFuture: EventLoopFuture<Void> { get }
}

/// The user of a transport.
public protocol HCIReceiver: AnyObject, Sendable {
  /// One packet, type octet first, lent for the duration of the call.
  func received(_ packet: Span<UInt8>)
  /// No more packets for the moment: answer the batch now.
  func receivedAll()
  /// `isWritable` is true again.
  func writable()
  /// The end of the transport, once; never after `close`.
  func failed(_ error: TransportError)
}

extension HCITransport {
  public var recordsCalls: Bool { false }
  public func willSend(becauseOf call: String) {}
  /// Sends one packet from a buffer.
  public func send(_ packet: ByteBuffer) { send(packet.readableBytesUInt8Span) }
}
