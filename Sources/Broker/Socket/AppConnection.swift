import NIOCore

/// # AppConnection
/// **Overview**: the daemon's end of one session of an app. It reads requests and values, and writes events. An app that breaks a rule of the
/// socket, or does not read, loses its connection and nothing else.
///
/// **Function**: events wait in the session's `EventQueue` while the socket is not writable, so an app that does not read costs bounded
/// memory. Values are offered to the session's ports; those for which there is no room wait, within the port's credit.
///
/// **Phases**: greeting → serving → closed.
final class AppConnection: ChannelInboundHandler, EventQueueReader, @unchecked Sendable {
  // Sendable: everything is on the channel's event loop, but `eventsWait`, which goes there.
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Phase {
    case greeting
    case serving(any BrokerSession)
    /// The session lives as long as the connection: releasing it would close it as the app does, and the server may preserve it.
    case closed((any BrokerSession)?)

    var session: (any BrokerSession)? {
      switch self {
      case .greeting: nil
      case .serving(let session): session
      case .closed(let session): session
      }
    }
  }
  /// A port that the app has been told of.
  private final class Port {
    let number: UInt32, kind: SendPort.Kind, peer: UUID, port: SendPort
    /// What the app may send.
    var credit = AppConnection.credit
    /// What the app has spent, and has not got back.
    var spent = 0
    /// In order: values for which there is no room, and requests behind them.
    var waiting: [Item] = []
    enum Item {
      case value(AttributeHandle, [UInt8])
      case request(BrokerRequest)
    }
    init(_ number: UInt32, _ kind: SendPort.Kind, _ peer: UUID, _ port: SendPort) {
      (self.number, self.kind, self.peer, self.port) = (number, kind, peer, port)
    }
  }
  /// Octets that an app may have sent through a port and that have not been accepted there.
  static var credit: Int { 8192 }
  /// Octets of the first frame.
  static var longestGreeting: Int { 1 << 16 }

  /// Makes the session of a new connection, or throws the sentence for the app. On the channel's event loop.
  private let admit: (AppConnection, AppMessage.Hello, EventQueue) throws(FrameError) -> any BrokerSession
  /// `isOrderly`: the app has closed the session itself.
  private let ended: (AppConnection, _ isOrderly: Bool) -> Void
  private let events = EventQueue()
  private(set) var channel: (any Channel)?
  private var phase = Phase.greeting
  private var received = ByteBuffer()
  private var ports: [UInt32: Port] = [:]
  private var lastPort: UInt32 = 0
  private var isOrderly = false

  init(
    admit: @escaping (AppConnection, AppMessage.Hello, EventQueue) throws(FrameError) -> any BrokerSession,
    ended: @escaping (AppConnection, Bool) -> Void
  ) {
    self.admit = admit
    self.ended = ended
    events.reader = self
  }

  // MARK: The channel

  func channelActive(context: ChannelHandlerContext) { channel = context.channel }
  func channelInactive(context: ChannelHandlerContext) {
    if isOrderly { phase.session?.close() }
    phase = .closed(phase.session)
    channel = nil
    ports = [:]
    ended(self, isOrderly)
  }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var new = unwrapInboundIn(data)
    received.writeBuffer(&new)
    do throws(FrameError) {
      while let frame = try Frame.read(from: &received, longest: longest) { try take(frame) }
    } catch {
      refuse("This app has sent \(error).")
    }
    received.discardReadBytes()
  }
  func channelReadComplete(context: ChannelHandlerContext) { returnCredit() }
  func channelWritabilityChanged(context: ChannelHandlerContext) { if context.channel.isWritable { writeEvents() } }

  private var longest: Int { if case .greeting = phase { Self.longestGreeting } else { Frame.longest } }
  private func refuse(_ why: String) {
    guard let channel else { return }
    phase = .closed(phase.session)
    write(.refused(why))
    channel.close(promise: nil)
  }
  func close() { channel?.close(promise: nil) }

  // MARK: Reading

  private func take(_ frame: Frame) throws(FrameError) {
    switch (phase, frame) {
    case (.closed, _): return
    case (.greeting, .message(let contents)):
      guard case .hello(let hello) = try Frame.decode(AppMessage.self, contents) else {
        throw FrameError("a request before its greeting")
      }
      guard hello.version == Frame.version else {
        throw FrameError(
          "version \(hello.version) of the messages; bindruned has \(Frame.version): install the same version of both")
      }
      do throws(FrameError) {
        let session = try admit(self, hello, events)
        phase = .serving(session)
        write(.welcome)
        writeEvents()
      } catch {
        refuse(error.description)
      }
    case (.serving(let session), .message(let contents)):
      switch try Frame.decode(AppMessage.self, contents) {
      case .hello: throw FrameError("a second greeting")
      case .request(let request): pass(request, session)
      case .close:
        isOrderly = true
        channel?.close(promise: nil)
      }
    case (.serving, .value(let number, let handle, let value)):
      // Its link may have ended before the app learned of it.
      guard let port = ports[number] else {
        guard number <= lastPort else { throw FrameError("a value for port \(number), which it was never given") }
        return
      }
      let cost = value.count + Frame.costOfValue
      guard port.credit >= cost else { throw FrameError("more values than it has credit for") }
      port.credit -= cost
      if port.waiting.isEmpty, port.port.offer(value, to: handle) {
        port.spent += cost
      } else {
        port.waiting.append(.value(handle, value))
      }
    case (_, .value), (_, .values), (_, .credit): throw FrameError("a frame that only bindruned sends")
    }
  }
  /// Behind the values that the app has sent before it.
  private func pass(_ request: BrokerRequest, _ session: any BrokerSession) {
    if let line = request.line,
      let port = ports.values.first(where: { $0.kind == line.kind && $0.peer == line.peer }), !port.waiting.isEmpty
    {
      port.waiting.append(.request(request))
    } else {
      session.send(request)
    }
  }
  private func offerWaiting(_ port: Port) {
    guard case .serving(let session) = phase else { return }
    var done = 0
    loop: for item in port.waiting {
      switch item {
      case .request(let request): session.send(request)
      case .value(let handle, let value):
        guard port.port.offer(value, to: handle) else { break loop }
        port.spent += value.count + Frame.costOfValue
      }
      done += 1
    }
    port.waiting.removeFirst(done)
  }
  /// Half of the credit in one frame, or all of it when the port is empty.
  private func returnCredit() {
    guard let channel else { return }
    var buffer = channel.allocator.buffer(capacity: 64)
    for port in ports.values where port.spent >= Self.credit / 2 || (port.spent > 0 && port.credit < 520) {
      Frame.credit(port: port.number, UInt32(port.spent)).write(to: &buffer)
      port.credit += port.spent
      port.spent = 0
    }
    if buffer.readableBytes > 0 { channel.writeAndFlush(buffer, promise: nil) }
  }

  // MARK: Writing

  func eventsWait(in queue: EventQueue) { channel?.eventLoop.execute { self.writeEvents() } }
  func eventsDropped(_ count: Int, from queue: EventQueue) {}

  private func write(_ message: DaemonMessage) {
    guard let channel, let frame = try? Frame(message) else { return }
    var buffer = channel.allocator.buffer(capacity: 256)
    frame.write(to: &buffer)
    channel.writeAndFlush(buffer, promise: nil)
  }
  private func writeEvents() {
    guard let channel, channel.isWritable, case .serving(let session) = phase else { return }
    var batch: [BrokerEvent] = [], buffer = channel.allocator.buffer(capacity: 1024)
    func flushBatch() {
      if batch.isEmpty { return }
      if let frame = try? Frame(DaemonMessage.events(batch)) { frame.write(to: &buffer) }
      batch = []
    }
    func announce(_ kind: SendPort.Kind, _ peer: UUID, longest: Int) {
      guard let message = announcement(kind, peer, longest, session), let frame = try? Frame(message) else { return }
      flushBatch()
      frame.write(to: &buffer)
    }
    for case let event? in events.takeAll() {
      switch event {
      case .values(let peer, let handle, let values):
        flushBatch()
        Frame.values(peer, handle, values).write(to: &buffer)
        continue
      // The app has its own edges, of its own ports.
      case .readyToWrite(let peer), .readyToUpdate(let peer):
        for port in ports.values where port.peer == peer { offerWaiting(port) }
        continue
      case .connected(let peer, _, let longest): announce(.command, peer, longest: longest)
      case .subscribed(let peer, _, let longest): announce(.notification, peer, longest: longest)
      case .restored(let state):
        for peer in state.peers where peer.isConnected { announce(.command, peer.peer, longest: peer.longestWrite) }
        for subscription in state.services.flatMap(\.subscriptions) {
          announce(.notification, subscription.central, longest: subscription.longestUpdate)
        }
      default: break
      }
      batch.append(event)
      // One that is over makes room for a new one of the same peer.
      if batch.count >= 64 { flushBatch() }
    }
    flushBatch()
    for port in ports.values.sorted(by: { $0.number < $1.number })
    where session.port(port.kind, of: port.peer) !== port.port {
      ports[port.number] = nil
      for case .request(let request) in port.waiting { session.send(request) }
      if let frame = try? Frame(DaemonMessage.portEnded(port.number)) { frame.write(to: &buffer) }
    }
    if buffer.readableBytes > 0 { channel.writeAndFlush(buffer, promise: nil) }
    returnCredit()
  }
  /// Nil: the app knows the port, or the link has ended already.
  private func announcement(
    _ kind: SendPort.Kind, _ peer: UUID, _ longest: Int, _ session: any BrokerSession
  ) -> DaemonMessage? {
    guard let port = session.port(kind, of: peer), !ports.values.contains(where: { $0.port === port }) else {
      return nil
    }
    lastPort += 1
    ports[lastPort] = Port(lastPort, kind, peer, port)
    return .port(lastPort, kind, peer: peer, longest: longest, credit: Self.credit)
  }
}
