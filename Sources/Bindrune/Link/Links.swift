import BindruneATT
import BindruneWire
import DequeModule
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

/// The state of one link above the core.
final class LinkState: @unchecked Sendable {
  // Sendable: only its host uses it, isolated.
  let peer: PeerID
  let role: LinkRole
  let ending = Ending<BluetoothError>()
  /// Readers of the link's events. Until the first one comes, `unheard` holds the last events.
  var events: [Mailbox<LinkEvent>] = [] { didSet { noteReaders() } }
  var unheard: Deque<LinkEvent>? { didSet { noteReaders() } }
  /// Subscribers, by value handle.
  var values: [AttributeHandle: [Inbox<ReceivedBatch>]] = [:] { didSet { noteReaders() } }
  /// Values of this link have readers besides the observer. Stored, because every value checks it.
  private(set) var hasReaders = false {
    didSet { if hasReaders != oldValue { readers.links += hasReaders ? 1 : -1 } }
  }
  private let readers: ReaderCount
  /// The task waiting for the confirmation of the link's one outstanding indication.
  let confirmation = Waiters()
  /// The ports with values to send, in turn. The link retains them until they have sent these.
  var sending = Deque<SendPort>()
  /// Requests that the core holds until the values before them have been written, in order.
  var held = Deque<HeldRequest>()
  struct HeldRequest {
    let id: RequestID
    let places: [SendPort.Fence]
  }
  /// The places of the answer to the client that the core holds until the values before it have been written.
  var keptAnswer: [SendPort.Fence]?
  var holdsRequests: Bool { !held.isEmpty || keptAnswer != nil }
  /// `isObserved`: no events are kept as unheard. `readers`: the host's.
  init(peer: PeerID, role: LinkRole, isObserved: Bool, readers: ReaderCount) {
    self.peer = peer
    self.role = role
    self.readers = readers
    unheard = isObserved ? nil : []
    noteReaders()
  }
  private func noteReaders() { hasReaders = !values.isEmpty || hears }
  /// The link's events are kept for a first reader, or have readers.
  var hears: Bool { unheard != nil || !events.isEmpty }

  /// The database of the peer that the cache has, and the one with the descriptors that requests have read since.
  var cached: RemoteDatabase?, learned: RemoteDatabase?

  /// The peer no longer has the key of its bond, and the link is not encrypted.
  var bondIsRejected = false
  /// The agent's tasks that answer the pairing in progress.
  var questions: [Task<Void, Never>] = []
  func endQuestions() {
    for question in questions { question.cancel() }
    questions = []
  }

  /// All ports still in use.
  private var ports: [WeakPort] = []
  private struct WeakPort { weak var port: SendPort? }

  /// The channels that are open.
  private(set) var channels: [ChannelState] = []
  func add(_ channel: ChannelState) { channels.append(channel) }
  func channel(_ id: ChannelID) -> ChannelState? { channels.first { $0.id == id } }
  func takeChannel(_ id: ChannelID) -> ChannelState? {
    channels.firstIndex { $0.id == id }.map { channels.remove(at: $0) }
  }

  func add(_ port: SendPort) {
    ports.removeAll { $0.port == nil }
    ports.append(WeakPort(port: port))
  }
  /// Values of this kind wait in ports.
  func hasValues(_ kind: SendPort.Kind) -> Bool {
    ports.contains { entry in entry.port.map { $0.kind == kind && $0.count > 0 } ?? false }
  }
  /// Earlier messages wait behind values of this kind, and the next one must not overtake them.
  private func hasHeld(_ kind: SendPort.Kind) -> Bool {
    switch kind {
    case .notification: false  // a client has one request at a time, so no earlier answer waits
    case .command: !held.isEmpty
    }
  }
  /// The place of a request made now: a fence in each port of this kind, also in empty ones, as later offers come after
  /// it. Empty if nothing is before it.
  func places(among kind: SendPort.Kind) -> [SendPort.Fence] {
    guard hasValues(kind) || hasHeld(kind) else { return [] }
    return ports.compactMap { $0.port?.kind == kind ? $0.port?.fence() : nil }
  }
  /// Takes the ports with values to send; call `putBack` afterwards. A copy would allocate at every turn.
  func takeSending(_ ports: inout Deque<SendPort>) { swap(&sending, &ports) }
  /// Puts them back, before the ports that have rung meanwhile.
  func putBack(_ ports: inout Deque<SendPort>) {
    swap(&sending, &ports)
    sending.append(contentsOf: ports)
  }
  func mtuChanged(_ mtu: Int) {
    for entry in ports { entry.port?.mtuChanged(mtu) }
  }
  /// Invalidates the handles in `range`: ends their subscriptions, closes their ports, and removes values to them from
  /// ports for all handles. Returns the ports that have room again.
  func servicesChanged(_ range: HandleRange) -> [SendPort] {
    let error = BluetoothError(ClientError.databaseChanged)
    for (handle, mailboxes) in values where range.contains(handle) {
      values[handle] = nil
      for mailbox in mailboxes { mailbox.finish(error) }
    }
    return drop(.command, in: range, error)
  }
  /// Drops the values of these attributes from ports of the kind, and closes ports that are for one of them. Returns
  /// the ports that have room again.
  func drop(_ kind: SendPort.Kind, in range: HandleRange, _ error: BluetoothError) -> [SendPort] {
    var ready: [SendPort] = []
    for case let port? in ports.map(\.port) where port.kind == kind {
      guard let handle = port.handle else {
        if port.removeAll(where: range.contains) { ready.append(port) }
        continue
      }
      guard range.contains(handle) else { continue }
      sending.removeAll { $0 === port }
      port.close(error)
    }
    return ready
  }
  func tell(_ event: LinkEvent) {
    events.removeAll { $0.isFinished }
    for mailbox in events { mailbox.put(event) }
    guard unheard != nil else { return }
    unheard?.append(event)
    if unheard?.count ?? 0 > 64 { unheard?.removeFirst() }
  }
  /// Ends every wait; called once, after the state was removed from `BluetoothHost.linkStates`.
  func end(_ error: BluetoothError) {
    for mailbox in values.values.joined() { mailbox.finish(error) }
    for mailbox in events { mailbox.finish(error) }
    for entry in ports { entry.port?.close(error) }
    for channel in channels { channel.end(.failed(error)) }
    confirmation.resume(.failure(error))
    endQuestions()
    ending.finish(error)
    hasReaders = false
  }
}
/// Counts the host's links whose values have readers besides the observer. If it is 0, values skip the look-up of their
/// link.
final class ReaderCount: @unchecked Sendable {
  // Sendable: only its host uses it, isolated.
  var links = 0
}

extension BluetoothHost {
  // MARK: Central

  /// Connects. Waits without limit, until the task is cancelled or `timeout` expires, which cancels the attempt.
  /// Several tasks may wait, for at most 1,024 devices; an absent device does not delay the others.
  ///
  /// If the peer missed the connection's first packets, the link soon goes down with the status
  /// `.connectionFailedToBeEstablished`: connect again. Vol 6, Part B, §4.5.
  public func connect(
    to peer: PeerID, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil
  ) async throws(BluetoothError) -> Link {
    try await connect(to: [address(of: peer)], parameters, timeout: timeout)
  }
  /// Connects to the device with this address.
  public func connect(
    to address: PeerAddress, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil
  ) async throws(BluetoothError) -> Link {
    try await connect(to: [address], parameters, timeout: timeout)
  }
  /// Connects to the first of `peers` that is reachable, and gives up the others.
  public func connect(
    to peers: [PeerAddress], _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil
  ) async throws(BluetoothError) -> Link {
    // The link may be down again already: then the first request on it throws.
    try await request(.connectToFirst(peers, parameters, timeout: timeout), \.linked)
  }

  /// The links that are up, in both roles, in the order in which they came up.
  public var links: [Link] { linkStates.keys.compactMap(link) }
  /// nil: the link is down.
  func link(_ id: LinkID) -> Link? {
    linkStates[id].map { Link(id: id, peer: $0.peer, role: $0.role, host: self, ending: $0.ending) }
  }

  /// What has been discovered on the link so far; nil: the link is down.
  public func remoteDatabase(of link: LinkID) -> RemoteDatabase? { core.remoteDatabase(of: link) }
  func parameters(of link: LinkID) -> ConnectionParameters? { core.parameters(of: link) }
  func dataLength(of link: LinkID) -> LinkDataLength? { core.dataLength(of: link) }
  /// Sets the preferred modulations of future links. Vol 4, Part E, §7.8.48.
  public func setDefaultPHYs(_ wanted: PHYPreferences) async throws(BluetoothError) {
    try await request(.setDefaultPHYs(wanted))
  }
  /// ATT_MTU in force, 23 … 517; nil: the link is down.
  public func mtu(of link: LinkID) -> Int? { core.mtu(of: link) }

  func write(command value: [UInt8], to handle: AttributeHandle, on link: LinkID) throws(BluetoothError) -> Bool {
    let operation = { "write attribute \(handle.text) of \(self.peerText(link)) without response" }
    guard linkStates[link] != nil, let mtu = core.mtu(of: link) else {
      throw linkIsDown(link).during(operation())
    }
    let limit = min(mtu - 3, NotificationQueue.longestValue)
    guard value.count <= limit else {
      throw BluetoothError(
        .invalidArgument,
        "\(value.count) octets do not fit one write without response, which carries \(limit): use write.",
        operation: operation())
    }
    guard !hasValues(.command, on: link) else { return false }
    return perform(as: "writeWithoutResponse(_:to:)") { core, _ in
      let isAccepted = core.write(command: value.span, to: handle, on: link).isAccepted
      if isAccepted { calls?.accepted(on: link) }
      return isAccepted
    }
  }

  func write(signed value: [UInt8], to handle: AttributeHandle, on link: LinkID) async throws(BluetoothError) -> Bool {
    let operation = { "write attribute \(handle.text) of \(self.peerText(link)) with a signature" }
    guard let state = linkStates[link] else { throw linkIsDown(link).during(operation()) }
    while true {
      guard !hasValues(.command, on: link) else { return false }
      let answer = perform(as: "writeSigned(_:to:)") { core, _ in
        let answer = core.write(signed: value.span, to: handle, on: link)
        if case .queued = answer { calls?.accepted(on: link) }
        return answer
      }
      switch answer {
      case .queued: return true
      case .full: return false
      case .closed: throw linkIsDown(link).during(operation())
      case .storeBond:
        if let error = await storeBond(state.peer).value { throw error.during(operation()) }
      case .noSigningKey:
        throw BluetoothError(
          .pairing, "There is no key for a signature: pair with the device, or write without one.",
          operation: operation())
      case .tooLong(let limit):
        throw BluetoothError(
          .invalidArgument, "\(value.count) octets do not fit one signed write, which carries \(limit): use write.",
          operation: operation())
      }
    }
  }

  // MARK: Ports

  /// A port for all characteristics of a link: see `Link.sendPort`. `onReady` runs on the event loop, once per ready
  /// edge.
  public func sendPort(
    _ kind: SendPort.Kind, on link: LinkID, capacity: Int = 16 * 1024, onReady: (@Sendable () -> Void)? = nil
  ) throws(BluetoothError) -> SendPort {
    try sendPort(kind, to: nil, on: link, capacity: capacity, onReady: onReady)
  }
  /// The same for an interface on top of the host: `call` is its function that offers the values, for a trace.
  package func sendPort(
    _ kind: SendPort.Kind, on link: LinkID, capacity: Int, call: StaticString, tellsDrained: Bool,
    onReady: (@Sendable () -> Void)?
  ) throws(BluetoothError) -> SendPort {
    try sendPort(
      kind, to: nil, on: link, capacity: capacity, call: call, tellsDrained: tellsDrained, onReady: onReady)
  }
  func sendPort(
    _ kind: SendPort.Kind, to handle: AttributeHandle?, on link: LinkID, capacity: Int, call: StaticString? = nil,
    tellsDrained: Bool = false, onReady: (@Sendable () -> Void)? = nil
  ) throws(BluetoothError) -> SendPort {
    guard linkStates[link] != nil, let mtu = core.mtu(of: link) else {
      throw linkIsDown(link).during("open a port to \(link)")
    }
    let doorbell = doorbellOfPorts()
    let call = call ?? (handle == nil ? "offer(_:to:)" : "offer(_:)")
    let port = SendPort(
      handle: handle, kind: kind, capacity: capacity, mtu: mtu, call: call, tellsDrained: tellsDrained, onReady: onReady
    ) {
      doorbell.ring(.values($0), of: link)
    }
    linkStates[link]?.add(port)
    return port
  }
  /// Made with the first port.
  func doorbellOfPorts() -> Doorbell {
    let doorbell = doorbell ?? Doorbell(self)
    self.doorbell = doorbell
    return doorbell
  }
  /// A port has rung.
  func fetch(_ port: Doorbell.Port, of link: LinkID) {
    switch port {
    case .values(let port): fetch(port, of: link)
    case .channel(let id): channelReady(id, of: link)
    }
  }
  /// Queues a port that was empty and now has values to send.
  private func fetch(_ port: SendPort, of link: LinkID) {
    linkStates[link]?.sending.append(port)
    if linkStates[link] != nil, !ringing.contains(link) { ringing.append(link) }
  }
  func sendFromPorts() {
    while let link = ringing.popFirst() { sendFromPorts(of: link) }
  }
  /// Sends from the link's ports, one value each in turn, until the link's queue is full or the ports are empty.
  func sendFromPorts(of link: LinkID) {
    // Fetched once: this runs for each value of a link that is slower than its producers.
    guard let state = linkStates[link], !state.sending.isEmpty else { return }
    var sending = Deque<SendPort>()
    state.takeSending(&sending)
    send(&sending, of: link)
    state.putBack(&sending)
    if state.holdsRequests { releaseHeld(on: link) }
    pump()
  }
  /// When the link refuses a port, that port and the others of its kind keep their turn: a waiting request holds back
  /// only commands, and a waiting indication only notifications.
  private func send(_ ports: inout Deque<SendPort>, of link: LinkID) {
    // The transport is fetched once, as each fetch retains it.
    let now = now, transport = transport
    var refused: SendPort.Kinds = []
    while let index = ports.firstIndex(where: { !refused.contains(SendPort.Kinds($0.kind)) }) {
      let port = ports[index], kind = port.kind, inTurns = ports.count > 1
      let left: SendPort.Drained
      if let calls {
        left = port.sendAll(now: now, inTurns: inTurns) {
          send($0, to: $1, kind, on: link, over: transport) { isIndication in
            if isIndication {
              calls.acceptedIndication(on: link, ofPort: port.call)
            } else {
              calls.accepted(on: link, ofPort: port.call)
            }
          }
        } sent: {
          sendWritten(to: transport)
        }
      } else {
        // A value has a budget: nothing of a trace is here.
        left = port.sendAll(now: now, inTurns: inTurns) {
          send($0, to: $1, kind, on: link, over: transport) { _ in }
        } sent: {
          sendWritten(to: transport)
        }
      }
      switch left {
      case .nothing, .fenced: ports.remove(at: index)
      case .more:
        ports.remove(at: index)
        ports.append(port)
      // The bearer reports when there is room again.
      case .refused: refused.insert(SendPort.Kinds(kind))
      }
    }
  }

  // MARK: Order

  /// Hands a request to the link's client, after the values before `places`. Requests wait for one another in the order
  /// of these calls: take the places of a port in the same order, or two requests wait for each other.
  func ask(
    _ id: RequestID, of link: LinkID, at places: [SendPort.Fence], _ body: (inout Client) -> Void
  ) {
    let isHeld = linkStates[link]?.held.isEmpty == false || !places.allSatisfy(\.isReached)
    // Recorded first: the call to the core may send those values at once, and then `releaseHeld` reads this.
    if isHeld { linkStates[link]?.held.append(LinkState.HeldRequest(id: id, places: places)) }
    perform { core, _ in core.withClient(of: link, id: id, isHeld: isHeld, body) }
  }
  /// The place of a request made now, among the values of the link's ports.
  func places(among kind: SendPort.Kind, on link: LinkID) -> [SendPort.Fence] {
    fetchAll()
    return linkStates[link]?.places(among: kind) ?? []
  }
  /// Values of this kind wait in the link's ports: a direct write would overtake them.
  func hasValues(_ kind: SendPort.Kind, on link: LinkID) -> Bool {
    fetchAll()
    return linkStates[link]?.hasValues(kind) == true
  }
  /// Moves the offered values to the core, as far as it has room.
  private func fetchAll() { doorbell?.answer() }
  /// Releases the requests and the answer whose places the ports have reached.
  func releaseHeld(on link: LinkID) {
    while let request = linkStates[link]?.held.first, request.places.allSatisfy(\.isReached) {
      linkStates[link]?.held.removeFirst()
      perform { core, _ in core.release(request.id, on: link) }
    }
    if let places = linkStates[link]?.keptAnswer, places.allSatisfy(\.isReached) {
      linkStates[link]?.keptAnswer = nil
      perform { core, now in core.releaseAnswer(on: link, now: now) }
    }
  }

  /// Sends into the link's queue, or directly into the packet if nothing waits before it. False: there is no room.
  /// Calls `accepted` with true if the value became an indication.
  @inline(__always) private func send(
    _ value: Span<UInt8>, to handle: AttributeHandle, _ kind: SendPort.Kind, on link: LinkID,
    over transport: any HCITransport, accepted: (_ isIndication: Bool) -> Void
  ) -> Bool {
    func noted(_ answer: SendAnswer?, isIndication: Bool = false) -> SendAnswer? {
      if answer?.isAccepted == true { accepted(isIndication) }
      return answer
    }
    guard transport.isWritable else {
      switch kind {
      case .notification:
        return
          (noted(core.notify(value, of: handle, on: link))
          ?? noted(indicate(value, handle, link), isIndication: true)) != .full
      case .command: return noted(core.write(command: value, to: handle, on: link)) != .full
      }
    }
    return packet.fill { output in
      switch kind {
      case .notification:
        (noted(core.notify(value, of: handle, on: link, into: &output))
          ?? noted(indicate(value, handle, link), isIndication: true)) != .full
      case .command: noted(core.write(command: value, to: handle, on: link, into: &output)) != .full
      }
    }
  }
  /// A client without notifications may have enabled indications: one at a time, so the port waits for the
  /// confirmation. If the client has unsubscribed meanwhile, the value is lost, as it would be on the air.
  private func indicate(_ value: Span<UInt8>, _ handle: AttributeHandle, _ link: LinkID) -> SendAnswer? {
    core.indicate(value, of: handle, on: link)
  }
  /// Hands the directly written packet to the transport, which flushes it with the next packets of `pump`.
  private func sendWritten(to transport: any HCITransport) {
    guard packet.count > 0 else { return }
    if let calls {
      send(calls, over: transport)
    } else {
      packet.withBytes { transport.send($0) }
      packet.removeAll()
    }
    isUnflushed = true
  }
}
