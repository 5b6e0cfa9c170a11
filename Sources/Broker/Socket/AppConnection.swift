import BindruneControl
import BindruneTransport
import NIOCore
import Synchronization

/// # AppConnection
/// **Overview**: the daemon's end of one session of an app. It reads requests and values, and writes events. An app
/// that breaks a rule of the socket, or does not read, loses its connection and nothing else.
///
/// **Function**: events wait in the session's `EventQueue` while the socket is not writable, so an app that does not
/// read costs bounded memory. Values are offered to the session's ports; those for which there is no room wait, within
/// the port's credit. Channels of L2CAP have such bounds of their own: `AppChannel`.
///
/// A control (Decision 0054) takes the place of a session: the connection has one question and its answer.
///
/// **Phases**: greeting → admitting → serving → closed; greeting → answering → closed.
final class AppConnection: ChannelDuplexHandler, EventQueueReader, @unchecked Sendable {
  // Sendable: everything is on the channel's event loop, but `eventsWait`, which goes there.
  typealias InboundIn = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Phase {
    case greeting
    case admitting
    case serving(any BrokerSession)
    case answering
    /// The session lives as long as the connection: releasing it would close it as the app does, and the server may
    /// preserve it.
    case closed((any BrokerSession)?)

    var session: (any BrokerSession)? {
      switch self {
      case .greeting, .admitting, .answering: nil
      case .serving(let session): session
      case .closed(let session): session
      }
    }
  }
  /// A port that the app knows.
  private final class Port: NumberedPort {
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
  /// Requests whose answers the app has not taken. While there are as many, nothing more is read.
  static var mostRequests: Int { 1024 }
  /// Devices that an app may wait for in one session, as Apple's programs may: Decision 0041 has the same number for a
  /// process.
  static var mostPeers: Int { 1024 }

  private let patience: TimeAmount
  /// Makes the session of a new connection, or fails with the sentence for the app. On the channel's event loop.
  private let admit: (AppConnection, AppMessage.Hello, EventQueue) -> EventLoopFuture<any BrokerSession>
  private let control: (AppConnection, String) -> Void
  /// `isOrderly`: the app has closed the session itself.
  private let ended: (AppConnection, _ isOrderly: Bool) -> Void
  private let events = EventQueue()
  private(set) var channel: (any Channel)?
  private var phase = Phase.greeting
  private var received = FrameReader()
  private var ports: [Port] = []
  /// What is to be written: its memory is used again.
  private var writer = MessageWriter()
  private var lastPort: UInt32 = 0
  private var channels: [AppChannel] = []
  private var lastChannel: UInt32 = 0
  private var isOrderly = false
  private var role: BackgroundMode?
  /// Requests whose answers have not been written, and their devices.
  private var unanswered: [OperationID: UUID?] = [:]
  private var isReadHeldBack = false
  private var peers: Set<UUID> = []
  /// The values that this session has published, by their services. It may update no others: clients of one adapter
  /// have one table of handles for all sessions.
  private var published: [AttributeHandle: [AttributeHandle]] = [:]
  private var updatable: Set<AttributeHandle> = []
  /// The characteristics that this session has found: it may write to no other attribute without a response, such as a
  /// configuration, which is one for all sessions.
  private var found: [UUID: Set<AttributeHandle>] = [:]
  /// False: the app has gone, and what it asked for is not to be given to anybody.
  var isConnected: Bool { channel?.isActive == true }
  var countOfUnanswered: Int { unanswered.count }
  private(set) var requests = 0
  private(set) var valuesReceived = 0
  private(set) var valuesSent = 0
  /// Values for attributes that are not this session's: they are dropped.
  private(set) var strangers = 0
  /// Events that the app has not taken in time.
  var dropped: Int { drops.load(ordering: .relaxed) }
  private let drops = Atomic(0)

  init(
    patience: TimeAmount,
    admit: @escaping (AppConnection, AppMessage.Hello, EventQueue) -> EventLoopFuture<any BrokerSession>,
    control: @escaping (AppConnection, String) -> Void,
    ended: @escaping (AppConnection, Bool) -> Void
  ) {
    self.patience = patience
    self.admit = admit
    self.control = control
    self.ended = ended
    events.reader = self
  }

  // MARK: The channel

  func channelActive(context: ChannelHandlerContext) {
    channel = context.channel
    context.eventLoop.scheduleTask(in: patience) { [weak self] in
      if let self, case .greeting = phase { refuse("This app has not said who it is.") }
    }
  }
  func channelInactive(context: ChannelHandlerContext) {
    if isOrderly { phase.session?.close() }
    phase = .closed(phase.session)
    channel = nil
    ports = []
    for channel in channels { channel.close(dropping: true) }
    channels = []
    ended(self, isOrderly)
  }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    received.append(unwrapInboundIn(data))
    do throws(FrameError) {
      while let frame = try received.next(longest: longest) { try take(frame) }
    } catch {
      refuse("This app has sent \(error).")
    }
  }
  func channelReadComplete(context: ChannelHandlerContext) { returnCredit() }
  func channelWritabilityChanged(context: ChannelHandlerContext) { if context.channel.isWritable { writeEvents() } }

  /// An app that does not take its answers may ask no more.
  func read(context: ChannelHandlerContext) {
    if unanswered.count < Self.mostRequests { context.read() } else { isReadHeldBack = true }
  }

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
    switch phase {
    case .closed: return
    case .greeting: try greet(frame)
    case .answering: throw FrameError("a frame before the answer to its first")
    // Its user may be asked yet.
    case .admitting:
      switch try AppMessage(frame) {
      case .close: closeOrderly()
      case .hello, .request, .value, .sdu, .sdusTaken, .closeChannel:
        throw FrameError("a request before the answer to its greeting")
      case nil: break
      }
    case .serving(let session):
      switch try AppMessage(frame) {
      case .hello: throw FrameError("a second greeting")
      case .request(let request):
        try note(request)
        pass(request, session)
      case .close: closeOrderly()
      case .value(let port, let handle, let value): try take(value, of: handle, through: port)
      case .sdu(let number, let sdu): try openChannel(number)?.receive(sdu)
      case .sdusTaken(let number, let count): try openChannel(number)?.take(count)
      case .closeChannel(let number, let isDropping): try openChannel(number)?.close(dropping: isDropping)
      // A later version has it.
      case nil: if DaemonFrameKind(rawValue: frame.number) != nil { throw FrameError("a frame at the wrong time") }
      }
    }
  }
  private func greet(_ frame: Frame) throws(FrameError) {
    switch frame.number {
    case DaemonFrameKind.control.rawValue:
      phase = .answering
      control(self, String(buffer: frame.octets))
    case Frame.numberOfJSON:
      phase = .closed(nil)
      channel?.writeAndFlush(MessageVersions.refusalInJSON(Self.refusal(of: "1")), promise: nil)
      channel?.close(promise: nil)
    case AppMessage.Number.hello.rawValue:
      let versions = try MessageVersions(ofGreeting: frame)
      guard let version = MessageVersions.ofThisProgram.highest(with: versions) else {
        return refuse(Self.refusal(of: "\(versions)"))
      }
      guard case .hello(let hello)? = try AppMessage(frame) else { return }
      phase = .admitting
      role = hello.manager?.role
      admit(self, hello, events).whenComplete { [self] result in
        guard case .admitting = phase, channel != nil else { return }
        switch result {
        case .success(let session):
          phase = .serving(session)
          write(.welcome(version: version))
          writeEvents()
        case .failure(let error): refuse("\(error)")
        }
      }
    default: throw FrameError("a message \(frame.number) before its greeting")
    }
  }
  private static func refusal(of versions: String) -> String {
    "This app has sent version \(versions) of the messages; bindruned has \(MessageVersions.ofThisProgram): "
      + "install the same version of both."
  }
  private func closeOrderly() {
    isOrderly = true
    channel?.close(promise: nil)
  }
  private func take(_ value: ByteBuffer, of handle: AttributeHandle, through number: UInt32) throws(FrameError) {
    guard value.readableBytes <= 512 else {
      throw FrameError("a value of \(value.readableBytes) octets; it has at most 512")
    }
    // Its link may have ended before the app learned of it.
    guard let port = ports.port(number) else {
      guard number <= lastPort else { throw FrameError("a value for port \(number), which it was never given") }
      return
    }
    let cost = value.readableBytes + Frame.costOfValue
    guard port.credit >= cost else { throw FrameError("more values than it has credit for") }
    port.credit -= cost
    valuesReceived += 1
    guard isOwn(handle, of: port) else {
      strangers += 1
      port.spent += cost
      return
    }
    if port.waiting.isEmpty, port.port.offer(value.readableBytesUInt8Span, to: handle) {
      port.spent += cost
    } else {
      port.waiting.append(.value(handle, Array(value.readableBytesView)))
    }
  }
  /// Nil: it has ended before the app learned of it.
  private func openChannel(_ number: UInt32) throws(FrameError) -> AppChannel? {
    guard number <= lastChannel else { throw FrameError("something for channel \(number), which it was never given") }
    return channels.port(number)
  }
  private func isOwn(_ handle: AttributeHandle, of port: Port) -> Bool {
    switch port.kind {
    case .command: found[port.peer]?.contains(handle) == true
    case .notification: updatable.contains(handle)
    }
  }
  private func learn(_ service: PublishedService) {
    published[service.handle] = service.characteristics.map(\.value)
    updatable.formUnion(service.characteristics.map(\.value))
  }
  private func forget(_ service: AttributeHandle) {
    updatable.subtract(published.removeValue(forKey: service) ?? [])
    dropWaiting()
  }
  /// What the event says of the attributes that are the session's.
  private func learnAttributes(_ event: BrokerEvent) {
    switch event {
    case .completed(_, .success(.published(let service))): learn(service)
    case .completed(let operation, .success(.characteristics(let characteristics))):
      guard case let peer?? = unanswered[operation] else { return }
      found[peer, default: []].formUnion(Self.writable(characteristics))
    case .servicesChanged(let peer, let range): found[peer] = found[peer]?.filter { !range.contains($0) }
    // On the next link another attribute may be at the handle.
    case .disconnected(let peer, _, _, _): found[peer] = nil
    case .restored(let state):
      for service in state.services { learn(service.published) }
      for peer in state.peers {
        let known = peer.services.flatMap { $0.characteristics ?? [] }.map(\.characteristic)
        found[peer.peer, default: []].formUnion(Self.writable(known))
      }
    case .adapter(.poweredOn): return
    case .adapter(.poweredOff): found = [:]
    case .adapter(.unknown), .adapter(.resetting), .adapter(.unsupported), .adapter(.unauthorized):
      published = [:]
      updatable = []
      found = [:]
    case .completed, .discovered, .scanFailed, .connected, .connectionFailed, .nameChanged, .longestWriteChanged,
      .values, .readyToWrite, .linkedPeers, .subscribed, .unsubscribed, .longestUpdateChanged, .readRequested,
      .writeRequested, .requestEnded, .readyToUpdate, .advertisingEnded, .channelAccepted:
      return
    }
    dropWaiting()
  }
  /// Those that a session may write without a response: not what is one for all sessions.
  private static func writable(_ characteristics: [FoundCharacteristic]) -> [AttributeHandle] {
    characteristics.filter { $0.uuid != .clientSupportedFeatures }.map(\.handle)
  }
  /// Drops the values that wait of attributes that are not the session's any more: their handles may become others'.
  private func dropWaiting() {
    for port in ports where !port.waiting.isEmpty {
      port.waiting.removeAll { item in
        guard case .value(let handle, let value) = item, !isOwn(handle, of: port) else { return false }
        strangers += 1
        port.spent += value.count + Frame.costOfValue
        return true
      }
    }
  }
  /// The limits of one session.
  private func note(_ request: BrokerRequest) throws(FrameError) {
    requests += 1
    switch request {
    case .central where role == .peripheral, .peripheral where role == .central:
      throw FrameError("a request of the other role")
    case .central(.connect(let peer, _)):
      peers.insert(peer)
      guard peers.count <= Self.mostPeers else { throw FrameError("requests for more than \(Self.mostPeers) devices") }
    case .central(.cancelConnection(let peer)): peers.remove(peer)
    case .peripheral(.removeService(let service)): forget(service)
    case .peripheral(.removeAllServices): for service in Array(published.keys) { forget(service) }
    case .central(.scan), .central(.stopScan), .central(.readRSSI), .central(.discoverServices),
      .central(.discoverIncludedServices), .central(.discoverCharacteristics), .central(.discoverDescriptors),
      .central(.read), .central(.write), .central(.setNotifying), .central(.openChannel), .peripheral(.addService),
      .peripheral(.setValue), .peripheral(.respond), .peripheral(.reject), .peripheral(.startAdvertising),
      .peripheral(.stopAdvertising), .peripheral(.setDesiredLatency), .peripheral(.publishChannel),
      .peripheral(.unpublishChannel):
      break
    }
    if let (operation, peer) = request.operation { unanswered[operation] = .some(peer) }
  }
  /// Behind the values that the app has sent before it.
  private func pass(_ request: BrokerRequest, _ session: any BrokerSession) {
    if let line = request.line,
      let port = ports.first(where: { $0.kind == line.kind && $0.peer == line.peer }), !port.waiting.isEmpty
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
  func returnCredit() {
    writer.clear()
    writeCredit()
    flush()
  }
  /// Half of the credit in one frame, or all of it when the port is empty.
  private func writeCredit() {
    for port in ports where port.spent >= Self.credit / 2 || (port.spent > 0 && port.credit < 520) {
      writer.write(DaemonMessage.credit(port: port.number, octets: UInt32(port.spent)))
      port.credit += port.spent
      port.spent = 0
    }
    for channel in channels { channel.writeCredit(to: &writer) }
  }

  // MARK: Writing

  func eventsWait(in queue: EventQueue) { channel?.eventLoop.execute { self.writeEvents() } }
  /// SDUs or ends of channels wait.
  func channelsChanged() { writeEvents() }
  func eventsDropped(_ count: Int, from queue: EventQueue) { drops.add(count, ordering: .relaxed) }

  /// Lines of the answer to a control. One for which there is no room is dropped: only a log has as many.
  func answer(_ line: String) {
    guard let channel, channel.isWritable else { return }
    writer.clear()
    writer.writeText(DaemonFrameKind.line.rawValue, String(line.prefix(4096)))
    flush()
  }
  /// `failure`: see `DaemonFrameKind.end`.
  func endAnswer(_ failure: String) {
    writer.clear()
    writer.writeText(DaemonFrameKind.end.rawValue, failure)
    flush()
    channel?.close(promise: nil)
  }

  private func write(_ message: DaemonMessage) {
    writer.clear()
    writer.write(message)
    flush()
  }
  private func flush() { if !writer.isEmpty { channel?.writeAndFlush(writer.buffer, promise: nil) } }

  /// All of them at once: the messages of a batch are one write.
  private func writeEvents() {
    guard let channel, channel.isWritable, case .serving(let session) = phase else { return }
    func announce(_ kind: SendPort.Kind, _ peer: UUID, longest: Int) {
      if let message = announcement(kind, peer, longest, session) { writer.write(message) }
    }
    writer.clear()
    for case let event? in events.takeAll() {
      learnAttributes(event)
      switch event {
      case .values(_, _, let values): valuesSent += values.count
      // The app has its own edges, of its own ports.
      case .readyToWrite(let peer), .readyToUpdate(let peer):
        for port in ports where port.peer == peer { offerWaiting(port) }
        continue
      case .completed(let operation, .success(.channel(let channel))):
        unanswered[operation] = nil
        add(channel) { .channel(operation, $0) }
        continue
      case .channelAccepted(let channel, let central, let longest):
        add(channel) { .channelAccepted($0, central: central, longestUpdate: longest) }
        continue
      case .completed(let operation, _): unanswered[operation] = nil
      case .adapter(let state) where state != .poweredOn:
        unanswered = [:]
        peers = []
      // The end of a link answers what was asked of the device.
      case .disconnected(let peer, _, let isReconnecting, _):
        forget(peer, isOver: !isReconnecting)
      case .connectionFailed(let peer, _): forget(peer, isOver: true)
      case .connected(let peer, _, let longest): announce(.command, peer, longest: longest)
      case .subscribed(let peer, _, let longest): announce(.notification, peer, longest: longest)
      case .restored(let state):
        for peer in state.peers where peer.isConnected { announce(.command, peer.peer, longest: peer.longestWrite) }
        for subscription in state.services.flatMap(\.subscriptions) {
          announce(.notification, subscription.central, longest: subscription.longestUpdate)
        }
      case .adapter, .discovered, .scanFailed, .nameChanged, .longestWriteChanged, .servicesChanged, .linkedPeers,
        .unsubscribed, .longestUpdateChanged, .readRequested, .writeRequested, .requestEnded, .advertisingEnded:
        break
      }
      writer.write(DaemonMessage.event(event))
    }
    // One that is over makes room for a new one of the same peer.
    for port in ports where session.port(port.kind, of: port.peer) !== port.port {
      _ = ports.removePort(port.number)
      for case .request(let request) in port.waiting { session.send(request) }
      writer.write(DaemonMessage.portEnded(port.number))
    }
    channels.removeAll { $0.writeArrivals(to: &writer) }
    writeCredit()
    flush()
    if isReadHeldBack, unanswered.count < Self.mostRequests {
      isReadHeldBack = false
      channel.read()
    }
  }
  private func add(_ new: SessionChannel, _ message: (ChannelDescription) -> DaemonMessage) {
    guard let channel else { return }
    lastChannel += 1
    let added = AppChannel(lastChannel, new, of: self, on: channel.eventLoop)
    channels.append(added)
    writer.write(message(added.description))
    added.begin()
  }
  private func forget(_ peer: UUID, isOver: Bool) {
    unanswered = unanswered.filter { $0.value != peer }
    if isOver { peers.remove(peer) }
  }
  /// Nil: the app knows the port, or the link has ended already.
  private func announcement(
    _ kind: SendPort.Kind, _ peer: UUID, _ longest: Int, _ session: any BrokerSession
  ) -> DaemonMessage? {
    guard let port = session.port(kind, of: peer), !ports.contains(where: { $0.port === port }) else {
      return nil
    }
    lastPort += 1
    ports.append(Port(lastPort, kind, peer, port))
    return .port(lastPort, kind, peer: peer, longest: longest, credit: Self.credit)
  }
}
