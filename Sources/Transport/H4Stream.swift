import BindruneSystem
import BindruneWire
import BindruneHCI
import NIOCore
import NIOPosix
import SystemPackage

/// H4 over a stream: TCP, a Unix socket or a serial line, on either side.
///
/// `send` gathers packets, which leave with `flush` (or at every 16 kB) in one system call; received octets are cut
/// into packets in place. The channel reads only after `start`, so nothing is lost before there is a receiver.
public final class H4Stream: HCITransport, @unchecked Sendable {
  // Sendable because every access is on the channel's event loop, which the entry points check in debug builds.
  private let channel: any Channel
  /// A serial line's descriptor, owned by the channel.
  private let line: FileDescriptor?
  private var gate = Gate()
  private var framer: H4Framer
  private var outgoing: ByteBuffer
  /// The channel has `outgoing`: the next packet begins a new batch.
  private var handedOver = false

  /// Octets gathered before they are sent without a `flush`.
  private static var batch: Int { 16_384 }
  /// Octets that may wait for a peer that does not read.
  private static var bound: Int { 1 << 20 }

  fileprivate init(_ channel: any Channel, line: FileDescriptor?, incoming: HCIDirection, limits: H4Framer.Limits) {
    self.channel = channel
    self.line = line
    framer = H4Framer(incoming, limits: limits)
    outgoing = channel.allocator.buffer(capacity: Self.batch)
  }

  public var eventLoop: any EventLoop { channel.eventLoop }
  public var isWritable: Bool { gate.isLive && channel.isWritable }

  public func start(_ receiver: any HCIReceiver) {
    eventLoop.preconditionInEventLoop()
    gate.start(receiver)
    if gate.isLive { channel.setOption(.autoRead, value: true).whenComplete { _ in } }
    reopen()
  }

  public func send(_ packet: Span<UInt8>) {
    eventLoop.assertInEventLoop()
    guard gate.isLive else { return }
    if handedOver {
      outgoing.clear()  // the same memory when the channel is done with it
      handedOver = false
    }
    unsafe packet.withUnsafeBytes { _ = unsafe outgoing.writeBytes($0) }
    if outgoing.readableBytes >= Self.batch { flush() }
  }

  public func flush() {
    eventLoop.assertInEventLoop()
    guard gate.isLive, !handedOver, outgoing.readableBytes > 0 else { return }
    handedOver = true
    guarded {
      channel.writeAndFlush(outgoing, promise: nil)
      if !channel.isWritable, let waiting = try? channel.syncOptions?.getOption(.bufferedWritableBytes),
        waiting > Self.bound
      {
        fail(.overflow(waiting))
      }
    }
  }

  public func resynchronise() {
    eventLoop.assertInEventLoop()
    framer.resynchronise()
  }

  public func close() {
    eventLoop.assertInEventLoop()
    if gate.isLive { flush() }
    gate = .ended
    closeChannel()
  }
  private func closeChannel() {
    guard let line else { return channel.close(promise: nil) }
    // Closing a blocked line can block the event loop for half a minute, so the last packets get a moment to leave.
    eventLoop.scheduleTask(in: .milliseconds(100)) { [channel] in
      if channel.isActive { tcflush(line.rawValue, TCOFLUSH) }
      channel.close(promise: nil)
    }
  }

  /// Completes when the connection is closed and its file descriptor too.
  public var closeFuture: EventLoopFuture<Void> { channel.closeFuture }

  // MARK: From the channel

  /// NIO reads to the end when the peer closes, even before `start` and inside of `flush`.
  fileprivate func read(_ buffer: ByteBuffer) {
    guard gate.isLive else { return }
    if case .open = gate {
      _ = frame(buffer)
      return
    }
    let waiting = gate.keep(buffer)
    if waiting > Self.bound { fail(.overflow(waiting)) }
  }

  /// False if the framing is lost, so that the rest is meaningless.
  private func frame(_ buffer: ByteBuffer) -> Bool {
    let bytes = buffer.readableBytesUInt8Span
    var index = 0
    while let receiver = gate.receiver {
      switch framer.next(in: bytes, at: &index) {
      case .packet(let range): receiver.received(bytes.extracting(range))
      case .assembled(let packet): receiver.received(packet.span)
      case .needMore: return true
      case .lost(let error):
        // Nearer to the cause than a subsequent close.
        if gate.isLive { fail(.framing(error)) } else { gate.end(.framing(error), isNearer: true) }
        return false
      }
    }
    return true
  }

  /// Delivers what has waited: early octets, then the end.
  private func catchUp() {
    let waited = gate.takePackets()
    if !waited.isEmpty {
      for buffer in waited where !frame(buffer) { break }
      gate.receiver?.receivedAll()
    }
    if let (receiver, error) = gate.takeEnd() { receiver.failed(error) } else { reopen() }
  }
  private func reopen() {
    if !gate.reopen() { eventLoop.execute { self.catchUp() } }
  }

  fileprivate func readAll() {
    if case .open(let receiver) = gate { receiver.receivedAll() }
  }

  fileprivate func writabilityChanged() {
    guard channel.isWritable, gate.isLive else { return }
    switch gate {
    case .open(let receiver): receiver.writable()
    case .waiting(let early) where early.receiver != nil: eventLoop.execute { self.writabilityChanged() }
    case .waiting, .ended: break
    }
  }

  fileprivate func fail(_ error: TransportError) {
    guard gate.isLive else { return }
    let isOurs = gate.hold()
    gate.end(error)
    closeChannel()
    if isOurs { catchUp() }
  }

  /// Calls the channel from inside a call of the receiver's. If the channel calls back at once, the receiver gets that
  /// afterwards.
  private func guarded(_ body: () -> Void) {
    let isOurs = gate.hold()
    body()
    if isOurs { reopen() }
  }
}

// MARK: - Opening

extension H4Stream {
  /// Connects to a controller, or gives up after `timeout`. The transport uses `loop`.
  public static func connect(
    to spec: TransportSpec, on loop: any EventLoop, timeout: Duration = .seconds(5),
    limits: H4Framer.Limits = H4Framer.Limits()
  ) async throws(TransportError) -> H4Stream {
    let bootstrap = ClientBootstrap(group: loop).channelOption(.autoRead, value: false)
    func stream(_ bootstrap: ClientBootstrap, over socket: FileDescriptor) async throws -> H4Stream {
      try await bootstrap.withConnectedSocket(socket.rawValue) { channel in
        channel.eventLoop.makeCompletedFuture { try H4Stream.make(channel, incoming: .fromController, limits: limits) }
      }
    }
    do {
      switch spec {
      case .tcp(_, 0): throw TransportError.unsuitable(spec, "port 0 is for listening, write the controller's port")
      case .tcp(let host, let port):
        let socket = try await NIOThreadPool.singleton.runIfActive {
          try StreamSocket.connected(toHost: host, port: port, within: timeout)
        }
        return try await stream(bootstrap.channelOption(.tcpOption(.tcp_nodelay), value: 1), over: socket)
      case .unix(let path):
        return try await stream(bootstrap, over: try StreamSocket.connected(toPath: path))
      case .radio(let name):
        let path = try SharedRadio(name).path(creates: false)
        let socket: FileDescriptor
        do throws(Errno) { socket = try StreamSocket.connected(toPath: path.string) } catch {
          let isAbsent = [.noSuchFileOrDirectory, .connectionRefused].contains(error)
          throw isAbsent ? TransportError.noRadio(name: name, path: path.string) : TransportError(error, at: spec)
        }
        return try await stream(bootstrap, over: socket)
      case .serial(let path, let baud):
        let input = try SerialPort.open(path, baud: baud, for: spec)
        do {
          return try await NIOPipeBootstrap(group: loop).channelOption(.autoRead, value: false)
            .takingOwnership(of: input) { channel in
              channel.eventLoop.makeCompletedFuture {
                try H4Stream.make(channel, line: input, incoming: .fromController, limits: limits)
              }
            }
        } catch {
          try? input.close()
          throw error
        }
      case .adapter: throw TransportError.unsuitable(spec, "an adapter is opened as a UserChannelSocket")
      case .sim: throw TransportError.unsuitable(spec, "a virtual controller has no connection, ask the radio for one")
      }
    } catch {
      throw TransportError(error, at: spec, timeout: timeout)
    }
  }

  /// Adds a stream to a channel. `ready` is called once it is open.
  @discardableResult
  static func make(
    _ channel: any Channel, line: FileDescriptor? = nil, incoming: HCIDirection, limits: H4Framer.Limits,
    ready: ((H4Stream) -> Void)? = nil
  ) throws -> H4Stream {
    let stream = H4Stream(channel, line: line, incoming: incoming, limits: limits)
    try channel.pipeline.syncOperations.addHandler(H4Handler(stream, ready))
    return stream
  }
}

extension NIOPipeBootstrap {
  /// A channel that reads and writes `descriptor`, which stays the caller's if this throws.
  func takingOwnership<Output: Sendable>(
    of descriptor: FileDescriptor, _ initializer: @escaping @Sendable (any Channel) -> EventLoopFuture<Output>
  ) async throws -> Output {
    // The channel needs a descriptor for each direction. Their file is released when both are closed, so children of
    // this process must not inherit one.
    let output = try descriptor.copied()
    do {
      return try await takingOwnershipOfDescriptors(
        input: descriptor.rawValue, output: output.rawValue, channelInitializer: initializer)
    } catch {
      try? output.close()
      throw error
    }
  }
}

/// The channel's end of an `H4Stream`.
private final class H4Handler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  private let stream: H4Stream
  private var ready: ((H4Stream) -> Void)?
  init(_ stream: H4Stream, _ ready: ((H4Stream) -> Void)?) {
    self.stream = stream
    self.ready = ready
  }
  func handlerAdded(context: ChannelHandlerContext) { if context.channel.isActive { active() } }
  func channelActive(context: ChannelHandlerContext) { active() }
  private func active() {
    ready?(stream)
    ready = nil
  }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) { stream.read(unwrapInboundIn(data)) }
  func channelReadComplete(context: ChannelHandlerContext) { stream.readAll() }
  func channelWritabilityChanged(context: ChannelHandlerContext) { stream.writabilityChanged() }
  func channelInactive(context: ChannelHandlerContext) { stream.fail(.closed) }
  /// A reset connection or a broken pipe closes the channel; `channelInactive` reports the end.
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

// MARK: - The system's errors

extension TransportError {
  /// Converts an error of NIO or the system.
  init(_ error: any Error, at spec: TransportSpec, timeout: Duration = .seconds(5)) {
    let seconds = Int(timeout.components.seconds) + (timeout.components.attoseconds > 0 ? 1 : 0)
    switch error {
    case let error as TransportError: self = error
    case is SocketAddressError: self = .unresolved(spec)
    case ChannelError.connectTimeout: self = .timedOut(spec, seconds: seconds)
    case let error as Errno: self.init(errno: error, at: spec, seconds)
    case let error as IOError: self.init(errno: Errno(rawValue: error.errnoCode), at: spec, seconds)
    case let error as NIOConnectionError:
      // One failure per address of the name; any of them will do.
      if let first = error.connectionErrors.first {
        self.init(first.error, at: spec, timeout: timeout)
      } else {
        self = .unresolved(spec)
      }
    default: self = .system(spec, "\(error)")
    }
  }

  private init(errno error: Errno, at spec: TransportSpec, _ seconds: Int) {
    self =
      switch error {
      case .connectionRefused: .refused(spec)
      case .noSuchFileOrDirectory: .notFound(spec)
      case .permissionDenied, .notPermitted: .permissionDenied(spec)
      case .timedOut: .timedOut(spec, seconds: seconds)
      case .addressInUse: .addressInUse(spec)
      case .addressNotAvailable: .unresolved(spec)
      default: .system(spec, error.description)
      }
  }
}

extension LockFile {
  /// The lock of the socket at which `spec` listens.
  package init(ofSocket socket: FilePath, for spec: TransportSpec) throws(TransportError) {
    do throws(Failure) { self = try LockFile(ofSocket: socket) } catch {
      throw switch error {
      case .taken: .addressInUse(spec)
      case .isNoFile(let path):
        .unsuitable(spec, "\(path) is not a regular file, remove it or choose another address")
      case .isNotOpened(let path, let error): .unsuitable(spec, "the lock file \(path) cannot be opened: \(error)")
      case .system(let error): TransportError(error, at: spec)
      }
    }
  }
}
