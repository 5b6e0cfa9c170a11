import BindruneWire
import NIOCore

/// A way to a controller (or, seen from the controller, to its host): whole HCI packets in order, both ways.
/// A packet starts with its H4 type octet, on every transport.
///
/// One event loop owns a transport and its receiver. **Every member is called on that loop**, and the receiver is
/// called on it, never from inside a call that it makes itself: neither side has to expect re-entry.
/// `actor BluetoothHost` takes `eventLoop.executor` as its own executor and enters with `assumeIsolated`: no hop, no lock.
public protocol HCITransport: AnyObject, Sendable {
  var eventLoop: any EventLoop { get }
  /// Packets arrive from now on. Until then nothing is read. Once; the receiver is kept until `close` or `failed`.
  func start(_ receiver: any HCIReceiver)
  /// One packet. Taken whatever `isWritable` says, up to a bound (then `failed(.overflow)`); ignored after the end.
  func send(_ packet: Span<UInt8>)
  /// What was sent goes out now, in as few system calls as the transport allows. Call it after a batch.
  func flush()
  /// Whether the peer keeps up. When it is false, stop: `writable()` tells when to go on.
  var isWritable: Bool { get }
  /// Drops everything until the answer to HCI_Reset, which is the first packet delivered.
  /// For the start of a controller, before HCI_Reset is sent: whatever it still says of an earlier life is lost.
  func resynchronise()
  /// Ends it. The receiver hears nothing more, not even `failed`.
  func close()
  /// Ready when nothing of it is left after `close` or `failed`: its descriptor is closed, and what it changed to be opened
  /// is as it was. Fails where that could not be done.
  var closeFuture: EventLoopFuture<Void> { get }
}

/// The user of a transport.
public protocol HCIReceiver: AnyObject, Sendable {
  /// One packet, type octet first, lent for the call.
  func received(_ packet: Span<UInt8>)
  /// No more packets for the moment: the time to answer, once for the batch.
  func receivedAll()
  /// `isWritable` is true again.
  func writable()
  /// The end, once; never after `close`.
  func failed(_ error: TransportError)
}

extension HCITransport {
  /// One packet in a buffer.
  public func send(_ packet: ByteBuffer) { send(packet.readableBytesUInt8Span) }
}

/// Which way packets go. HCI names them by the host: commands go out, events come in.
public enum HCIDirection: Sendable, Hashable {
  case fromHost, fromController
  public var opposite: HCIDirection { self == .fromHost ? .fromController : .fromHost }
}
