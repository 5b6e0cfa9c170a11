import BindruneWire
import Glibc
import HCI
import NIOCore
import NIOPosix

/// An adapter of this machine, all of it: Linux's HCI user channel, or any socket that keeps packets whole.
///
/// One read is one packet and one write is one packet. The kernel takes two packets that come in one `writev` for one
/// that is broken, and says nothing; so the channel below never holds more than one packet, and has nothing to gather.
/// A packet that the kernel has no room for waits there until it has; those behind it wait here, up to a bound.
///
/// What comes while the kernel's buffer for us is full it drops, also without a word: `receiveBuffer` says how large that
/// buffer is, and nothing that takes long belongs on this event loop.
public final class UserChannelSocket: HCITransport, @unchecked Sendable {
  // Sendable because every access is on the channel's event loop, which the entry points check in debug builds.
  private let channel: any Channel
  private let adapter: UInt16
  /// Octets that the kernel keeps for us until they are read, its own bookkeeping included.
  public let receiveBuffer: Int
  /// Ready when the adapter has been let go, and is up again if it was taken down to be opened; a `TransportError` says
  /// why it is not.
  public let closeFuture: EventLoopFuture<Void>
  private var receiver: (any HCIReceiver)?
  private var isSearching = false

  /// The packet that the channel has, or the memory for the next one.
  private var outgoing: ByteBuffer
  private var isInFlight = false
  /// Those behind it.
  private var waiting = CircularBuffer<ByteBuffer>()
  private var waitingOctets = 0
  private var isDraining = false

  /// A call of the receiver's is on the stack: what happens meanwhile is told afterwards.
  private var isCalled = false
  /// What came before it can be told: before `start` when the other side closes, and inside a `send` that fails, when the
  /// channel reads what there is.
  private var early: [ByteBuffer] = []
  private var earlyOctets = 0
  /// Why it ended, before or after `start`.
  private var end: End?
  private enum End { case closed, failed(TransportError), told }

  /// The kernel's packets have at most 1,029 octets. A read that fills this much may have cut one.
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
      guard userChannel.owesPower else { return loop.makeSucceededVoidFuture() }
      // The kernel starts the controller meanwhile.
      return NIOThreadPool.singleton.runIfActive(eventLoop: loop) { try userChannel.restorePower() }
    }
  }

  public var eventLoop: any EventLoop { channel.eventLoop }
  public var isWritable: Bool { end == nil && !isInFlight }

  public func start(_ receiver: any HCIReceiver) {
    eventLoop.preconditionInEventLoop()
    precondition(self.receiver == nil, "a transport is started once")
    switch end {
    case .closed, .told: return
    case .failed: break
    case nil: guarded { channel.setOption(.autoRead, value: true).whenComplete { _ in } }
    }
    self.receiver = receiver
    if end != nil || !early.isEmpty { eventLoop.execute { self.catchUp() } }
  }

  public func send(_ packet: Span<UInt8>) {
    eventLoop.assertInEventLoop()
    guard end == nil, !packet.isEmpty else { return }
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

  /// Nothing to do: each packet goes out with its `send`.
  public func flush() {}

  public func resynchronise() {
    eventLoop.assertInEventLoop()
    isSearching = true
  }

  public func close() {
    eventLoop.assertInEventLoop()
    receiver = nil
    end = .closed
    early = []
    channel.close(promise: nil)
  }

  // MARK: Writing

  /// The only place where the channel is given anything, and only when it has nothing.
  private func write(_ packet: ByteBuffer) {
    precondition(!isInFlight, "one packet at a time")
    isInFlight = true
    let promise = eventLoop.makePromise(of: Void.self)
    // Before the write: one that fails closes the channel, and the reason must be here first.
    promise.futureResult.whenComplete { self.wrote($0) }
    channel.writeAndFlush(packet, promise: promise)
  }

  private func wrote(_ result: Result<Void, any Error>) {
    isInFlight = false
    if case .failure(let error) = result { return fail(reason(error)) }
    guard !isDraining else { return }  // the caller goes on
    isDraining = true
    while !isInFlight, end == nil, let next = waiting.popFirst() {
      waitingOctets -= next.readableBytes
      write(next)
    }
    isDraining = false
    // Inside `send` nobody has been told to wait.
    if !isCalled, isWritable { receiver?.writable() }
  }

  // MARK: From the channel

  fileprivate func read(_ packet: ByteBuffer) {
    guard end == nil else { return }
    if packet.readableBytes >= Self.longestRead { return fail(.packetTooLong(limit: Self.longestRead - 1)) }
    if receiver != nil, early.isEmpty, !isCalled { return deliver(packet) }
    if isCalled, early.isEmpty { eventLoop.execute { self.catchUp() } }
    early.append(packet)
    earlyOctets += packet.readableBytes
    if earlyOctets > Self.bound { fail(.overflow(earlyOctets)) }
  }

  private func deliver(_ packet: ByteBuffer) {
    let packet = packet.readableBytesUInt8Span
    if isSearching {
      guard H4Framer.isResetAnswer(packet) else { return }
      isSearching = false
    }
    receiver?.received(packet)
  }

  fileprivate func readAll() { if early.isEmpty, !isCalled { receiver?.receivedAll() } }

  /// Tells what has not been told: packets that came too early, then the end.
  private func catchUp() {
    if receiver != nil, !early.isEmpty {
      let packets = early
      early = []
      earlyOctets = 0
      for packet in packets { deliver(packet) }
      receiver?.receivedAll()
    }
    guard case .failed(let error) = end, let receiver else { return }
    self.receiver = nil
    end = .told
    receiver.failed(error)
  }

  /// The first reason counts.
  private func fail(_ error: TransportError) {
    guard end == nil else { return }
    end = .failed(error)
    waiting.removeAll()
    channel.close(promise: nil)
    if isCalled || !early.isEmpty { eventLoop.execute { self.catchUp() } } else { catchUp() }
  }
  fileprivate func closed() { fail(.closed) }
  fileprivate func failed(_ error: any Error) { fail(reason(error)) }

  private func reason(_ error: any Error) -> TransportError {
    guard let error = error as? IOError else { return .closed }
    return switch error.errnoCode {
    // Said once, by a read or by a write, whichever comes first; later the kernel says something else, or nothing.
    case EPIPE, EBADFD, ENODEV, ENETDOWN: .unplugged(.adapter(adapter))
    case ECONNRESET: .closed
    default: .system(.adapter(adapter), systemWords(error.errnoCode))
    }
  }

  private func guarded(_ body: () -> Void) {
    let outer = isCalled
    isCalled = true
    body()
    isCalled = outer
  }
}

// MARK: - The channel

extension UserChannelSocket {
  /// A transport on a descriptor that keeps packets whole, such as one that a privileged process has bound to `adapter`'s
  /// user channel and handed over. It is the transport's from here on, and closed if this throws.
  public static func adopt(
    _ descriptor: CInt, of adapter: UInt16, on loop: any EventLoop
  ) async throws(TransportError) -> UserChannelSocket {
    let channel = UserChannel(adapter, adopting: descriptor)
    do throws(TransportError) {
      return try await make(channel, on: loop)
    } catch {
      try? channel.abandon()
      throw error
    }
  }

  /// The descriptor stays the caller's if this throws.
  static func make(_ userChannel: UserChannel, on loop: any EventLoop) async throws(TransportError) -> UserChannelSocket
  {
    // The channel wants a descriptor for each direction. The adapter is free when both are closed, so no child gets one.
    let output = fcntl(userChannel.descriptor, F_DUPFD_CLOEXEC, 0)
    guard output >= 0 else { throw .system(.adapter(userChannel.adapter), systemWords(errno)) }
    do {
      return try await NIOPipeBootstrap(group: loop)
        .channelOption(.autoRead, value: false)
        // One size: the usual allocator begins small, and what does not fit is lost.
        .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: longestRead))
        .takingOwnershipOfDescriptors(input: userChannel.descriptor, output: output) { channel in
          channel.eventLoop.makeCompletedFuture {
            let socket = UserChannelSocket(channel, userChannel)
            try channel.pipeline.syncOperations.addHandler(PacketHandler(socket))
            return socket
          }
        }
    } catch {
      _ = Glibc.close(output)
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
