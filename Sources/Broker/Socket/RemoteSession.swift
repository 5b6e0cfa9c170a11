import BindruneTransport
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import SystemPackage

/// A session of an adapter that a daemon owns, over a unix socket.
///
///     manager ── send ──▶ ┌───────────────┐ ── frames ──▶ daemon
///       ports ── offer ─▶ │ RemoteSession │ ◀─ frames ─── (`AppConnection`)
///     events ◀── put ──── └───────────────┘
///
/// Values that the app offers wait in a port of this process, so an offer is answered on the caller's thread; the
/// writer takes them while the daemon has granted credit. So do SDUs of its channels. When the daemon ends, the adapter
/// is `resetting`, and the session connects again.
///
/// It is closed when it is released, at the latest.
public final class RemoteSession: BrokerSession {
  private let connection: RemoteConnection

  /// `path`: the daemon's socket. `events`: as for `DirectSession`.
  convenience init(to path: String, _ hello: AppMessage.Hello, events: EventQueue) {
    self.init(to: path, hello, events: events, on: EventLoops.next(), .standard)
  }
  init(
    to path: String, _ hello: AppMessage.Hello, events: EventQueue, on eventLoop: any EventLoop,
    _ patience: RemotePatience
  ) {
    connection = RemoteConnection(to: path, hello, events: events, on: eventLoop, patience)
    connection.connect()
  }
  deinit { close() }

  public func send(_ request: BrokerRequest) { connection.send(request) }
  public func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { connection.port(kind, of: peer) }
  public func close() { connection.close() }
}

/// How long a session waits before it connects again.
struct RemotePatience: Sendable {
  var first = TimeAmount.milliseconds(100)
  var longest = TimeAmount.seconds(5)
  static let standard = RemotePatience()
}

/// # RemoteConnection
/// **Overview**: the app's end of the socket. **Function**: see `RemoteSession`.
///
/// **Phases**: connecting → connected → waiting → connecting …; → closed, by the session, or for good when the daemon
/// refuses it.
private final class RemoteConnection: ChannelInboundHandler, RemoteChannelWriter, @unchecked Sendable {
  // Sendable: the lock, or the event loop.
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private struct Placed {
    let request: BrokerRequest
    let place: SendPort.Fence?
  }
  /// A port of this process, and what the daemon takes of it.
  private final class Port: NumberedPort {
    let number: UInt32
    let name: PortKey
    let port: SendPort
    var credit: Int
    init(_ number: UInt32, _ name: PortKey, _ port: SendPort, credit: Int) {
      (self.number, self.name, self.port, self.credit) = (number, name, port, credit)
    }
  }
  private struct PortKey: Hashable {
    let kind: SendPort.Kind
    let peer: UUID
  }

  private let path: String
  private let events: EventQueue
  let eventLoop: any EventLoop
  private let patience: RemotePatience

  // MARK: Under the lock
  private let lock = NIOLock()
  private var requests: [Placed] = []
  private var open: [PortKey: SendPort] = [:]
  private var isClosed = false
  private var isDrainScheduled = false

  // MARK: On the event loop
  private var hello: AppMessage.Hello
  private var channel: (any Channel)?
  /// Of the messages; nil: the daemon has not answered the greeting.
  private var version: UInt16?
  private var received = FrameReader()
  /// What is to be written, and what is being read: their memory is used again.
  private var writer = MessageWriter()
  private var taken: [Placed] = []
  private var gathered: [BrokerEvent] = []
  private var ports: [Port] = []
  private var channels: [RemoteChannel] = []
  private var failures = 0
  private var lastState = AdapterState.unknown

  init(
    to path: String, _ hello: AppMessage.Hello, events: EventQueue, on eventLoop: any EventLoop,
    _ patience: RemotePatience
  ) {
    (self.path, self.hello, self.events, self.eventLoop, self.patience) = (path, hello, events, eventLoop, patience)
  }

  // MARK: From any thread

  func send(_ request: BrokerRequest) {
    let isFirst = lock.withLock { () -> Bool in
      if isClosed { return false }
      let place = request.line.flatMap { open[PortKey(kind: $0.kind, peer: $0.peer)]?.fence() }
      requests.append(Placed(request: request, place: place))
      return scheduleDrain()
    }
    if isFirst { eventLoop.execute { self.drain() } }
  }
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? {
    lock.withLock { open[PortKey(kind: kind, peer: peer)] }
  }
  func close() {
    events.close()
    let isFirst = lock.withLock {
      defer { isClosed = true }
      return !isClosed
    }
    guard isFirst else { return }
    eventLoop.execute { [self] in
      endPorts(.socketClosed)
      endChannels(.abandoned)
      // Also before the daemon has answered the greeting: it takes an end without this for the end of the process, and
      // ends the app's other sessions.
      if let channel {
        write(.close, to: channel)
        // The daemon ends the connection when it has read that. If this end did so first, the daemon could find it
        // broken before it reads.
        eventLoop.scheduleTask(in: .seconds(5)) { channel.close(promise: nil) }
      }
      channel = nil
    }
  }
  func wake() {
    if lock.withLock({ scheduleDrain() }) { eventLoop.execute { self.drain() } }
  }
  /// With the lock held. True: the caller schedules it.
  private func scheduleDrain() -> Bool {
    defer { isDrainScheduled = true }
    return !isDrainScheduled
  }

  // MARK: Connecting

  func connect() {
    do throws(Errno) {
      let socket = try StreamSocket.connected(toPath: path)
      ClientBootstrap(group: eventLoop).channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(self) }
      }.withConnectedSocket(socket.rawValue).whenFailure { error in
        self.eventLoop.execute { self.notConnected(error) }
      }
    } catch {
      eventLoop.execute { self.notConnected(error) }
    }
  }
  func channelActive(context: ChannelHandlerContext) {
    // Closed while it was connecting: the daemon has not heard of the session.
    if lock.withLock({ isClosed }) { return context.close(promise: nil) }
    channel = context.channel
    received = FrameReader()
    version = nil
    write(.hello(hello), to: context.channel)
  }
  func channelInactive(context: ChannelHandlerContext) {
    ended(.resetting("bindruned has ended the connection: look at its log. This program connects again by itself."))
  }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

  private func notConnected(_ error: any Error) {
    switch error as? Errno {
    case .permissionDenied, .notPermitted:
      ended(.unauthorized("You may not use \(path): have yourself added to the socket's group, and log in again."))
    case .noSuchFileOrDirectory, .connectionRefused:
      ended(.resetting("bindruned does not run at \(path): start it. This program waits for it."))
    default: ended(.resetting("\(path): \(error): this program tries it again."))
    }
  }
  private func ended(_ state: AdapterState) {
    channel = nil
    endPorts(.socketClosed)
    endChannels(.socketClosed)
    lock.withLock {
      requests = []
      isDrainScheduled = false
    }
    if lock.withLock({ isClosed }) { return }
    report(state)
    if lastState != .unknown { hello.isReconnecting = true }
    failures += 1
    let wait = min(patience.longest, patience.first * (1 << min(failures - 1, 16)))
    eventLoop.scheduleTask(in: wait) { [weak self] in
      guard let self, !lock.withLock({ isClosed }) else { return }
      connect()
    }
  }
  private func refused(_ why: String) {
    report(.unauthorized(why))
    lock.withLock { isClosed = true }
    channel?.close(promise: nil)
    channel = nil
  }
  private func report(_ state: AdapterState) {
    if state == lastState { return }
    lastState = state
    // As a core logs it for a session of this process; the daemon's own states are in its log.
    if let hindrance = state.hindrance { Logger.adapter.warning("\(hindrance)") }
    events.put([.adapter(state)])
  }

  // MARK: Writing

  private func write(_ message: AppMessage, to channel: any Channel) {
    writer.clear()
    writer.write(message)
    channel.writeAndFlush(writer.buffer, promise: nil)
  }
  func channelWritabilityChanged(context: ChannelHandlerContext) { if context.channel.isWritable { drain() } }

  /// Writes the requests whose places have been reached, and the values and SDUs that the daemon takes.
  private func drain() {
    lock.withLock { isDrainScheduled = false }
    guard let channel, let version, channel.isWritable else { return }
    writer.clear()
    var isProgress = true
    while isProgress {
      isProgress = writeRequests(version)
      for port in ports where writeValues(of: port) { isProgress = true }
    }
    for channel in channels { channel.write(to: &writer) }
    if !writer.isEmpty { channel.writeAndFlush(writer.buffer, promise: nil) }
  }
  /// A request waits for the values that were offered before it on its line, and those behind it on the same line wait
  /// too.
  private func writeRequests(_ version: UInt16) -> Bool {
    lock.withLock { swap(&requests, &taken) }
    if taken.isEmpty { return false }
    var blocked: Set<PortKey> = [], waiting: [Placed] = []
    for placed in taken {
      let line = placed.request.line.map { PortKey(kind: $0.kind, peer: $0.peer) }
      if let line, blocked.contains(line) || placed.place?.isReached == false {
        blocked.insert(line)
        waiting.append(placed)
      } else if placed.request.firstVersion > version, let (operation, _) = placed.request.operation {
        events.put([.completed(operation, .failure(.daemonIsOlder))])
      } else {
        writer.write(AppMessage.request(placed.request))
      }
    }
    defer {
      // Released here, after the requests: a fence that is gone lets the next values go.
      taken.removeAll(keepingCapacity: true)
    }
    // Before those that have come since.
    if !waiting.isEmpty { lock.withLock { requests.insert(contentsOf: waiting, at: 0) } }
    return waiting.count < taken.count
  }
  private func writeValues(of port: Port) -> Bool {
    var isAny = false
    while true {
      let (left, isEdge) = port.port.sendNext(now: .zero) { value, handle in
        let cost = value.count + Frame.costOfValue
        guard port.credit >= cost else { return false }
        port.credit -= cost
        writer.writeValue(port.number, handle, value)
        isAny = true
        return true
      }
      if isEdge { port.port.tellReady() }
      if case .more = left { continue }
      return isAny
    }
  }

  // MARK: Reading

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    received.append(unwrapInboundIn(data))
    do throws(FrameError) {
      while let frame = try received.next() { try take(frame) }
    } catch {
      Logger.adapter.error("bindruned has sent \(error)")
      context.close(promise: nil)
    }
    handOver()
  }
  /// Puts the events that have been read into the session's queue.
  private func handOver() {
    if gathered.isEmpty { return }
    events.put(gathered)
    gathered.removeAll(keepingCapacity: true)
  }
  private func take(_ frame: Frame) throws(FrameError) {
    if frame.number == Frame.numberOfJSON {
      return refused(
        "bindruned has sent version 1 of the messages; this app has \(MessageVersions.ofThisProgram): "
          + "install the same version of both.")
    }
    // A later version may have it.
    guard let message = try DaemonMessage(frame) else { return }
    if case .event(let event) = message {
      note(event)
      gathered.append(event)
      return
    }
    handOver()
    switch message {
    case .welcome(let version):
      self.version = version
      failures = 0
      drain()
    case .refused(let why): refused(why)
    case .port(let number, let kind, let peer, let longest, let credit):
      add(number, PortKey(kind: kind, peer: peer), longest, credit)
    case .portEnded(let number): end(number, .linkEnded)
    case .credit(let number, let octets):
      ports.port(number)?.credit += Int(octets)
      drain()
    case .sdu(let number, let sdu):
      channels.port(number)?.receiver?.channelReceived(Array(sdu.readableBytesView))
    case .sdusAccepted(let number, let octets):
      channels.port(number)?.credit += Int(octets)
      drain()
    case .channelEnded(let number, let error): channels.removePort(number)?.end(error)
    case .channel(let operation, let announced):
      gathered.append(.completed(operation, .success(.channel(try add(announced)))))
    case .channelAccepted(let announced, let central, let longest):
      gathered.append(.channelAccepted(try add(announced), central: central, longestUpdate: longest))
    case .event: break
    }
  }
  /// What the event means for the ports.
  private func note(_ event: BrokerEvent) {
    switch event {
    case .adapter(let state):
      lastState = state
      if state != .poweredOn { endPorts(.linkEnded) }
    case .longestWriteChanged(let peer, let count): port(.command, of: peer)?.mtuChanged(count + 3)
    case .longestUpdateChanged(let peer, let count): port(.notification, of: peer)?.mtuChanged(count + 3)
    default: break
    }
  }
  private func add(_ number: UInt32, _ key: PortKey, _ longest: Int, _ credit: Int) {
    let peer = key.peer
    let port = SendPort(
      handle: nil, kind: key.kind, capacity: 4096, mtu: longest + 3,
      tellsDrained: key.kind == .command,
      onReady: { [weak self] in
        self?.events.put([key.kind == .command ? .readyToWrite(peer) : .readyToUpdate(peer)])
      },
      wake: { [weak self] _ in self?.wake() })
    ports.append(Port(number, key, port, credit: credit))
    lock.withLock { open[key] = isClosed ? nil : port }
  }
  private func end(_ number: UInt32, _ error: BluetoothError) {
    guard let ended = ports.removePort(number) else { return }
    lock.withLock { if open[ended.name] === ended.port { open[ended.name] = nil } }
    ended.port.close(error)
    // Its fences are reached now.
    drain()
  }
  private func endPorts(_ error: BluetoothError) {
    for port in ports { end(port.number, error) }
  }
  private func add(_ announced: ChannelDescription) throws(FrameError) -> SessionChannel {
    // Vol 3, Part A, §4.22: an MTU is at least that.
    guard announced.longestSDU >= 23, announced.number > channels.last?.number ?? 0 else {
      throw FrameError("a channel \(announced.number) with SDUs of \(announced.longestSDU) octets")
    }
    let new = RemoteChannel(announced, of: self), channel = SessionChannel(new, on: eventLoop)
    new.receiver = channel
    channels.append(new)
    return channel
  }
  private func endChannels(_ error: BluetoothError) {
    let ended = channels
    channels = []
    for channel in ended { channel.end(error) }
  }
}

extension BluetoothError {
  fileprivate static var socketClosed: BluetoothError {
    BluetoothError(.notStarted, "The connection to bindruned has ended: it is made again by itself.")
  }
  fileprivate static var linkEnded: BluetoothError {
    BluetoothError(.disconnected, "The link is down: connect again.")
  }
  fileprivate static var daemonIsOlder: BluetoothError {
    BluetoothError(.refused, "bindruned is older than this program, and has no L2CAP channels: update it.")
  }
}
extension BrokerRequest {
  /// The first version of the messages that has it.
  fileprivate var firstVersion: UInt16 {
    switch self {
    case .central(.openChannel), .peripheral(.publishChannel), .peripheral(.unpublishChannel):
      MessageVersions.withChannels
    case .central, .peripheral: MessageVersions.ofThisProgram.lowest
    }
  }
}
