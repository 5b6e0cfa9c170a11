import BindruneAdapters
import BindruneSystem
import BindruneWire
import BindruneHCI
import NIOCore
import NIOPosix
import SystemPackage

/// An adapter of this machine: Linux's HCI user channel, or any socket that preserves packet boundaries.
///
/// One read is one packet and one write is one packet. The kernel takes two packets in one `writev` as a single
/// malformed one, without an error; so the channel never holds more than one packet, and has nothing to gather. A
/// packet that the kernel has no room for waits in the channel; later ones wait here, up to a bound.
///
/// The kernel drops packets that exceed its receive buffer, also without an error: `receiveBuffer` returns the size of
/// that buffer. Do not run slow code on this event loop.
public final class UserChannelSocket: HCITransport, @unchecked Sendable {
  // Sendable because every access is on the channel's event loop, which the entry points check in debug builds.
  private let channel: any Channel
  private let adapter: UInt16
  /// Octets that the kernel buffers for us, its own bookkeeping included.
  public let receiveBuffer: Int
  /// Completes when the adapter is released, and is up again if opening took it down; a `TransportError` gives the
  /// reason if it is not.
  public let closeFuture: EventLoopFuture<Void>
  private var gate = Gate()
  private var isSearching = false

  /// The packet that the channel has, or the memory for the next one.
  private var outgoing: ByteBuffer
  private var isInFlight = false
  /// The packets behind it.
  private var waiting = CircularBuffer<ByteBuffer>()
  private var waitingOctets = 0
  private var isDraining = false

  /// The kernel's packets have at most 1,029 octets. A read that fills this buffer may have cut one.
  private static var longestRead: Int { 2048 }
  /// Octets that may wait on either side.
  private static var bound: Int { 1 << 20 }

  fileprivate init(_ channel: any Channel, _ userChannel: UserChannel) {
    self.channel = channel
    adapter = userChannel.adapter
    receiveBuffer = userChannel.receiveBuffer
    outgoing = channel.allocator.buffer(capacity: 260)
    let loop = channel.eventLoop
    closeFuture = channel.closeFuture.flatMap {
      guard userChannel.mustRestorePower else { return loop.makeSucceededVoidFuture() }
      // Meanwhile the kernel starts the controller.
      return NIOThreadPool.singleton.runIfActive(eventLoop: loop) { try userChannel.restorePower() }
    }
  }

  public var eventLoop: any EventLoop { channel.eventLoop }
  public var isWritable: Bool { gate.isLive && !isInFlight }

  public func start(_ receiver: any HCIReceiver) {
    eventLoop.preconditionInEventLoop()
    gate.start(receiver)
    if gate.isLive { channel.setOption(.autoRead, value: true).whenComplete { _ in } }
    reopen()
  }

  public func send(_ packet: Span<UInt8>) {
    eventLoop.assertInEventLoop()
    guard gate.isLive, !packet.isEmpty else { return }
    if isInFlight {
      var buffer = channel.allocator.buffer(capacity: packet.count)
      unsafe packet.withUnsafeBytes { _ = unsafe buffer.writeBytes($0) }
      waiting.append(buffer)
      waitingOctets += packet.count
      if waitingOctets > Self.bound { guarded { fail(.overflow(waitingOctets)) } }
    } else {
      outgoing.clear()  // the same memory, since the channel is done with it
      unsafe packet.withUnsafeBytes { _ = unsafe outgoing.writeBytes($0) }
      guarded { write(outgoing) }
    }
  }

  /// Has no effect: each packet is sent by its `send`.
  public func flush() {}

  public func resynchronise() {
    eventLoop.assertInEventLoop()
    isSearching = true
  }

  public func close() {
    eventLoop.assertInEventLoop()
    gate = .ended
    channel.close(promise: nil)
  }

  // MARK: Writing

  /// The only place that writes to the channel, and only when the channel has nothing.
  private func write(_ packet: ByteBuffer) {
    precondition(!isInFlight, "one packet at a time")
    isInFlight = true
    let promise = eventLoop.makePromise(of: Void.self)
    // Before the write: a failed write closes the channel, and the reason must arrive first.
    promise.futureResult.whenComplete { self.wrote($0) }
    channel.writeAndFlush(packet, promise: promise)
  }

  private func wrote(_ result: Result<Void, any Error>) {
    isInFlight = false
    if case .failure(let error) = result { return fail(reason(error)) }
    guard !isDraining else { return }  // the caller continues
    isDraining = true
    while !isInFlight, gate.isLive, let next = waiting.popFirst() {
      waitingOctets -= next.readableBytes
      write(next)
    }
    isDraining = false
    // `send` did not stop the sender.
    if isWritable, case .open(let receiver) = gate { receiver.writable() }
  }

  // MARK: From the channel

  /// The channel reads remaining packets when the other side closes, even before `start` and inside of a failing
  /// `send`.
  fileprivate func read(_ packet: ByteBuffer) {
    guard gate.isLive else { return }
    if packet.readableBytes >= Self.longestRead { return fail(.packetTooLong(limit: Self.longestRead - 1)) }
    if case .open = gate { return deliver(packet) }
    let waiting = gate.keep(packet)
    if waiting > Self.bound { fail(.overflow(waiting)) }
  }

  private func deliver(_ packet: ByteBuffer) {
    let packet = packet.readableBytesUInt8Span
    if isSearching {
      guard H4Framer.isResetAnswer(packet) else { return }
      isSearching = false
    }
    gate.receiver?.received(packet)
  }

  fileprivate func readAll() {
    if case .open(let receiver) = gate { receiver.receivedAll() }
  }

  /// Delivers what has waited: early packets, then the end.
  private func catchUp() {
    let waited = gate.takePackets()
    if !waited.isEmpty {
      for packet in waited { deliver(packet) }
      gate.receiver?.receivedAll()
    }
    if let (receiver, error) = gate.takeEnd() { return receiver.failed(error) }
    reopen()
    // A packet may have been written while the gate was closed.
    if isWritable, case .open(let receiver) = gate { receiver.writable() }
  }
  private func reopen() {
    if !gate.reopen() { eventLoop.execute { self.catchUp() } }
  }

  private func fail(_ error: TransportError) {
    guard gate.isLive else { return }
    let isOurs = gate.hold()
    gate.end(error)
    waiting.removeAll()
    channel.close(promise: nil)
    if isOurs { catchUp() }
  }
  fileprivate func closed() { fail(.closed) }
  fileprivate func failed(_ error: any Error) { fail(reason(error)) }

  private func reason(_ error: any Error) -> TransportError {
    guard let error = error as? IOError else { return .closed }
    let code = Errno(rawValue: error.errnoCode)
    return switch code {
    // Reported once, by the first read or write; later errors differ, or are absent.
    case .brokenPipe, .badStateOfDescriptor, .noSuchDevice, .networkDown: .unplugged(.adapter(adapter))
    case .connectionReset: .closed
    default: .system(.adapter(adapter), code.description)
    }
  }

  /// Calls the channel from inside a call of the receiver's. If the channel calls back at once, the receiver gets that
  /// afterwards.
  private func guarded(_ body: () -> Void) {
    let isOurs = gate.hold()
    body()
    if isOurs { reopen() }
  }
}

// MARK: - The channel

extension UserChannelSocket {
  /// A transport on a descriptor that preserves packet boundaries, such as one that a privileged process has bound to
  /// `adapter`'s user channel and handed over. The transport owns it from here on, and it is closed if this throws.
  public static func adopt(
    _ descriptor: FileDescriptor, of adapter: UInt16, on loop: any EventLoop
  ) async throws(TransportError) -> UserChannelSocket {
    let channel = UserChannel(adapter, adopting: descriptor)
    do throws(TransportError) {
      return try await make(channel, on: loop)
    } catch {
      try? channel.abandon()
      throw error
    }
  }

  /// The caller keeps the descriptor if this throws.
  static func make(_ userChannel: UserChannel, on loop: any EventLoop) async throws(TransportError) -> UserChannelSocket
  {
    do {
      return try await NIOPipeBootstrap(group: loop)
        .channelOption(.autoRead, value: false)
        // A fixed size: the default allocator begins small, and the rest of a longer packet would be lost.
        .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: longestRead))
        .takingOwnership(of: userChannel.descriptor) { channel in
          channel.eventLoop.makeCompletedFuture {
            let socket = UserChannelSocket(channel, userChannel)
            try channel.pipeline.syncOperations.addHandler(PacketHandler(socket))
            return socket
          }
        }
    } catch {
      throw .system(.adapter(userChannel.adapter), "\(error)")
    }
  }
}

/// The channel's end of a `UserChannelSocket`.
private final class PacketHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  private let socket: UserChannelSocket
  init(_ socket: UserChannelSocket) { self.socket = socket }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) { socket.read(unwrapInboundIn(data)) }
  func channelReadComplete(context: ChannelHandlerContext) { socket.readAll() }
  func channelInactive(context: ChannelHandlerContext) { socket.closed() }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { socket.failed(error) }
}
