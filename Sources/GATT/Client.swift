import ATT
import BasicContainers
import BindruneWire
import DequeModule

/// Limits of a `Client`.
public struct ClientConfiguration: BitwiseCopyable, Sendable {
  /// Requests that wait while another is active; one more is refused with `.busy`.
  public var maximumWaiting = 256
  /// Octets of received values, 8 for each value included, that may wait to be taken as effects; what comes beyond is
  /// dropped and counted. A composer that drains after every packet never gets near it.
  public var valueCapacity = 65_536
  public init() {}
}

/// The client half of GATT on one bearer: discovery, reads, writes, subscriptions. Vol 3, Part G, §4.
///
/// ## Function
/// A caller names each request by a `RequestID` and gets exactly one `.completed` for it from `nextEffect`. One request is
/// active at a time, as the bearer asks (Vol 3, Part F, §3.3.2); the others wait in order. Bytes of ATT requests never
/// wait: the bearer pulls them, one at a time.
///
///     client.discoverAll(id)
///     while client.hasRequest { …bearer… }              // nextRequest, receive(response:)
///     while let effect = client.nextEffect() { … }      // after every packet
///
/// What it knows of the server, and how it learns that this has changed: `ClientCaching.swift`.
///
/// ## Effects
/// Take them after every packet and every command: `Octets` in them are ranges of an arena that is emptied by the next
/// call that changes the client, once all effects have been taken.
///
/// ## Phases
///
///     idle ── request ──▶ asking ── nextRequest ──▶ awaiting ── response ──▶ asking, or idle
///       any ── close ──▶ closed
///
/// Cancelling while a request is in flight completes the caller at once; the client stays in `awaiting` until the response
/// has come and gone. While the first of those that wait has no place yet (`place`), the client is idle.
public struct Client: AttributeClient, ~Copyable {
  /// What discoveries have found. It changes when one completes, and when the server's services change.
  public internal(set) var remote = RemoteDatabase()
  public let configuration: ClientConfiguration

  @usableFromInline enum Phase: BitwiseCopyable, Equatable {
    case idle
    /// The active request has something to ask.
    case asking
    case awaiting
    case closed(BearerClosure)
  }
  @usableFromInline var phase = Phase.idle
  var active: Procedure?
  /// The active request is being served by `discovery`.
  var isDiscovering = false
  var discovery = Discovery()
  var waiting: Deque<Procedure> = []
  /// The place of the next request that is made: so many commands of the bearer leave before it. Nil: its caller has made
  /// commands that have not reached the bearer; the request waits until `place`.
  public var commandsBefore: UInt64? = 0
  /// The place of the active request.
  @usableFromInline var requestPlace: UInt64 = 0
  @inlinable @inline(__always) public var commandsBeforeRequest: UInt64 { requestPlace }
  /// The active request has left: what is asked for after it may follow. One that writes has left with its last PDU, any
  /// other with its first.
  private var hasLeft = false, leavesWithFirst = true

  /// A reading of the Database Hash, in the midst of the active request or on its behalf.
  enum HashReading: BitwiseCopyable { case none, wanted, awaited }
  var hashReading = HashReading.none
  /// The active request has been answered 0x12 once.
  var hasBeenOutOfSync = false
  /// What was read last and belongs to no discovery yet.
  var freshHash: DatabaseHash?
  /// This server has told a Database Hash.
  var hasHash = false

  /// One of the server's values that somebody has subscribed to.
  struct Subscription: BitwiseCopyable {
    var valueHandle: AttributeHandle
    var configuration: ClientCharacteristicConfiguration
    var subscribers: Int
  }
  var subscriptions: [Subscription] = []
  /// Where Service Changed was when `followChanges` subscribed to it.
  var followed: AttributeHandle?

  @usableFromInline var effects: Deque<ClientEffect> = []
  @usableFromInline var arena = UniqueArray<UInt8>()
  /// What `valueCapacity` bounds.
  private var undrained = 0
  @usableFromInline var lost = 0

  public init(configuration: ClientConfiguration = ClientConfiguration()) { self.configuration = configuration }

  // MARK: Discovery

  /// Everything: services, includes, characteristics, descriptors. Replaces `remote`. Vol 3, Part G, §4.4 … §4.7.
  public mutating func discoverAll(_ id: RequestID) { submit(Procedure(id, .discover(.everything(.all)))) }
  /// All primary services (§4.4.1), or those with `uuid` (§4.4.2). What `remote` knows of services that are still there stays.
  public mutating func discoverPrimaryServices(_ id: RequestID, _ uuid: BluetoothUUID? = nil) {
    submit(Procedure(id, .discover(uuid.map { .services($0) } ?? .primaryServices)))
  }
  /// The services that those in `range` include. Vol 3, Part G, §4.5.1.
  public mutating func discoverIncludedServices(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(id, .discover(.includedServices(range))))
  }
  /// The characteristics in `range`, without descriptors. Vol 3, Part G, §4.6.1; by UUID (§4.6.2) is the same exchange,
  /// followed by a look into `remote`.
  public mutating func discoverCharacteristics(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(id, .discover(.characteristics(range))))
  }
  /// The descriptors in `range`, such as a characteristic's `descriptorRange`. Vol 3, Part G, §4.7.1.
  public mutating func discoverDescriptors(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(id, .discover(.descriptors(range))))
  }

  // MARK: Reading

  /// One Read Request: at most ATT_MTU − 1 octets. Vol 3, Part G, §4.8.1, §4.12.1.
  public mutating func read(_ id: RequestID, _ handle: AttributeHandle) {
    submit(Procedure(id, .read, parts: [Procedure.Part(handle: handle)]))
  }
  /// The whole value. Vol 3, Part G, §4.8.3, §4.12.2.
  public mutating func readLong(_ id: RequestID, _ handle: AttributeHandle) {
    submit(Procedure(id, .readLong, parts: [Procedure.Part(handle: handle)]))
  }
  /// The values of all attributes of one type; each is cut at min(ATT_MTU − 4, 253) octets. Vol 3, Part G, §4.8.2.
  public mutating func read(_ id: RequestID, uuid: BluetoothUUID, in range: HandleRange = .all) {
    submit(Procedure(id, .readByType(range, uuid.shortest)))
  }
  /// Two or more values of known length, in one response. Vol 3, Part G, §4.8.4.
  public mutating func readMultiple(_ id: RequestID, _ handles: [AttributeHandle]) {
    submit(Procedure(id, .readMultiple, parts: handles.map { Procedure.Part(handle: $0) }))
  }
  /// Two or more values, in one response; a value for which it has no room is cut, those behind it are missing.
  /// Vol 3, Part G, §4.8.5.
  public mutating func readMultipleVariable(_ id: RequestID, _ handles: [AttributeHandle]) {
    submit(Procedure(id, .readMultipleVariable, parts: handles.map { Procedure.Part(handle: $0) }))
  }

  // MARK: Writing

  /// Vol 3, Part G, §4.9.3; a value longer than ATT_MTU − 3 as in §4.9.4.
  public mutating func write(_ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    submit(.write, id, handle, value)
  }
  /// In parts, whatever its length; nothing is written unless every part came back as it was sent. Vol 3, Part G, §4.9.4.
  public mutating func writeLong(_ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    submit(.writeParts, id, handle, value)
  }
  /// Several values, all or none. Vol 3, Part G, §4.9.5.
  public mutating func writeReliable(_ id: RequestID, _ values: [(handle: AttributeHandle, value: [UInt8])]) {
    var parts: [Procedure.Part] = [], octets: [UInt8] = []
    for (handle, value) in values {
      parts.append(Procedure.Part(handle: handle, value: Octets(value, in: &octets)))
    }
    submit(Procedure(id, .writeParts, parts: parts, octets: octets))
  }
  /// Refused, until pairing gives the keys that sign: `.noSigningKey`. Vol 3, Part G, §4.9.2.
  public mutating func writeSigned(_ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    emptyArena()
    complete(id, .failed(.noSigningKey))
  }

  // MARK: Subscribing

  /// Asks the server to send the value with `valueHandle` whenever it likes; completes when the server has said yes.
  /// Without `configuration`: notifications where the characteristic has that property, else indications.
  /// Vol 3, Part G, §4.10, §4.11, §3.3.3.3.
  ///
  /// The descriptor is looked up in `remote`, and searched on the server where that has none. Subscribers are counted: a
  /// second one asks the server for nothing. One who cancels while the server is being asked
  /// leaves nothing behind: the server is asked for what was in force before.
  public mutating func subscribe(
    _ id: RequestID, _ valueHandle: AttributeHandle, _ configuration: ClientCharacteristicConfiguration? = nil
  ) {
    submit(Procedure(id, .subscribe(valueHandle, configuration)))
  }
  /// One subscriber less; after the last one the server is asked to send no more.
  public mutating func unsubscribe(_ id: RequestID, _ valueHandle: AttributeHandle) {
    submit(Procedure(id, .unsubscribe(valueHandle)))
  }

  // MARK: Requests and their ends

  private mutating func submit(
    _ kind: Procedure.Kind, _ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>
  ) {
    var octets: [UInt8] = []
    octets.append(Octets(0, value.count), of: value)
    submit(Procedure(id, kind, parts: [Procedure.Part(handle: handle, value: Octets(0, value.count))], octets: octets))
  }

  mutating func submit(_ procedure: Procedure) {
    emptyArena()
    if case .closed(let reason) = phase {
      complete(procedure, .failed(.bearerClosed(reason)))
    } else if let refusal = procedure.refusal {
      complete(procedure, .failed(refusal))
    } else if waiting.count < configuration.maximumWaiting {
      waiting.append(procedure)
      waiting[waiting.count - 1].commandsBefore = commandsBefore
      if phase == .idle { next() }
    } else {
      complete(procedure, .failed(.busy))
    }
  }

  /// Gives a request that waits for it its place: after so many commands of the bearer. Nothing where it has ended already.
  public mutating func place(_ id: RequestID, after commands: UInt64) {
    emptyArena()
    guard let index = waiting.firstIndex(where: { $0.caller == .request(id) }) else { return }
    waiting[index].commandsBefore = commands
    if phase == .idle { next() }
  }

  /// Begins the requests that wait, up to one that has something to ask, or no place yet.
  mutating func next() {
    active = nil
    phase = .idle
    while let place = waiting.first?.commandsBefore, let procedure = waiting.popFirst() {
      active = procedure
      requestPlace = place
      hasLeft = false
      leavesWithFirst = !procedure.isWriting
      isDiscovering = false
      hashReading = .none
      hasBeenOutOfSync = false
      guard let result = begin(procedure) else {
        phase = .asking
        return
      }
      complete(procedure, result)
      active = nil
    }
  }

  /// Returns how the request ends where nothing has to be asked.
  private mutating func begin(_ procedure: Procedure) -> ClientResult? {
    switch procedure.kind {
    case .discover(let goal): discover(goal)
    case .rediscover(let range): beginRediscovery(range)
    case .databaseHash: hashReading = .wanted
    case .followChanges: return beginFollowing()
    case .subscribe(let valueHandle, let wanted): return beginSubscribing(valueHandle, wanted)
    case .unsubscribe(let valueHandle): return beginUnsubscribing(valueHandle)
    case .read, .readLong, .readByType, .readMultiple, .readMultipleVariable, .write, .writeParts: break
    }
    return nil
  }

  mutating func discover(_ goal: Discovery.Goal) {
    isDiscovering = true
    discovery.start(goal, knowing: remote)
  }

  /// Ends the active request for its caller, and for the client, unless the server's queue must be emptied first.
  mutating func end(_ result: ClientResult) {
    guard let procedure = active else { return }
    complete(procedure, result)
    active?.abandon()
    hasLeft = true
    phase = .asking
    if active?.rollBack() == true { return }
    next()
  }

  mutating func complete(_ procedure: Procedure, _ result: ClientResult) {
    if case .rediscover(let range) = procedure.kind {
      if case .failed(let error) = result { effects.append(.rediscovered(range, error)) }
      if case .discovered = result { effects.append(.rediscovered(range, nil)) }
    } else if case .request(let id) = procedure.caller {
      complete(id, result)
    }
  }
  private mutating func complete(_ id: RequestID, _ result: ClientResult) { effects.append(.completed(id, result)) }

  /// Ends a request early: `.failed(.cancelled)` follows at once. Nothing happens when it has completed already. Parts of
  /// a value that the server has queued are taken back, and so is a subscription; a write whose request is on its way may
  /// still take effect.
  public mutating func cancel(_ id: RequestID) {
    emptyArena()
    if let index = waiting.firstIndex(where: { $0.caller == .request(id) }) {
      waiting.remove(at: index)
      complete(id, .failed(.cancelled))
      if phase == .idle { next() }
    } else if active?.caller == .request(id) {
      if phase == .asking { return end(.failed(.cancelled)) }
      complete(id, .failed(.cancelled))
      active?.abandon()
      hasLeft = true
    }
  }

  public mutating func close(_ reason: BearerClosure) {
    emptyArena()
    if case .closed = phase { return }
    phase = .closed(reason)
    if let active { complete(active, .failed(.bearerClosed(reason))) }
    active = nil
    while let orphan = waiting.popFirst() { complete(orphan, .failed(.bearerClosed(reason))) }
    subscriptions.removeAll()
  }

  // MARK: The bearer's side

  @inlinable @inline(__always) public var hasRequest: Bool { if case .asking = phase { true } else { false } }
  @inlinable @inline(__always) public var holdsCommands: Bool { if case .idle = phase { false } else { isHolding } }
  @usableFromInline var isHolding: Bool { active != nil && !hasLeft || waiting.first?.commandsBefore != nil }

  /// See `AttributeClient`. A request for which `mtu` has no room (Read Multiple of too many handles) fails here, and the
  /// next one is tried.
  public mutating func nextRequest(mtu: Int, into request: inout OutputRawSpan) -> Bool {
    emptyArena()
    while phase == .asking {
      phase = .awaiting
      if hashReading == .wanted {
        hashReading = .awaited
        if (try? DatabaseHash.request.encode(into: &request, from: Span())) != nil {
          hasLeft = hasLeft || leavesWithFirst
          return true
        }
      } else if isDiscovering {
        var source: [UInt8] = []
        let pdu = discovery.request(source: &source)
        if (try? pdu.encode(into: &request, from: source.span)) != nil {
          hasLeft = hasLeft || leavesWithFirst
          return true
        }
      } else if active?.writeRequest(mtu: mtu, into: &request) == true {
        hasLeft = hasLeft || leavesWithFirst || active?.hasWrittenLast == true
        return true
      }
      end(.failed(.valueTooLong))
    }
    return false
  }

  public mutating func receive(response: ATTPDU, in packet: Span<UInt8>, mtu: Int, now: Instant) {
    emptyArena()
    guard phase == .awaiting, let isWanted = active?.isWanted else {
      return effects.append(.ignored(.unexpectedResponse))
    }
    phase = .asking
    if hashReading == .awaited {
      hashReading = .none
      received(hash: response, in: packet)
    } else if isOutOfSync(response) {
      hasBeenOutOfSync = true
      hashReading = .wanted
    } else if isDiscovering {
      let outcome = isWanted ? discovery.receive(response, in: packet) : .failed(.cancelled)
      if let ignored = discovery.ignored {
        effects.append(.ignored(ignored))
        discovery.ignored = nil
      }
      switch outcome {
      case .again: break
      case .finished: discovered()
      case .failed(let error): end(.failed(error))
      }
    } else if let outcome = active?.receive(response, in: packet, mtu: mtu) {
      switch outcome {
      case .again: if !isWanted { end(.failed(.cancelled)) }
      case .done: written(error: nil)
      case .value: end(.value(isWanted ? gathered() : Octets()))
      case .values: end(.values(isWanted ? gathered() : Octets()))
      case .failed(let error): written(error: error)
      }
    }
  }

  /// A discovery is at its end: the active request, or the search for the descriptor that it writes to.
  private mutating func discovered() {
    let found = discovery.takeFound()
    switch active?.kind {
    case .subscribe(let valueHandle, _), .unsubscribe(let valueHandle):
      remote = found
      isDiscovering = false
      if !configure(valueHandle) { end(.failed(.noConfigurationDescriptor)) }
    case .discover(let goal):
      learn(found, isComplete: goal == .everything(.all))
      end(.discovered)
    default:
      learn(found, isComplete: true)
      end(.discovered)
    }
  }

  /// The server has answered a write, or refused anything.
  private mutating func written(error: ClientError?) {
    let result = error.map { ClientResult.failed($0) } ?? .done
    switch active?.kind {
    case .subscribe(let valueHandle, _): subscribed(valueHandle, error)
    case .unsubscribe(let valueHandle): subscriptions.removeAll { $0.valueHandle == valueHandle }
    case .followChanges: if let result = followed(error) { return end(result) } else { return }
    default: break
    }
    end(result)
  }

  /// What the active request has gathered, in the arena.
  private mutating func gathered() -> Octets {
    guard let gathered = active?.gathered else { return Octets() }
    let octets = Octets(arena.count, gathered.count)
    arena.append(copying: gathered.span)
    return octets
  }

  public mutating func receive(value: ATTPDU, in packet: Span<UInt8>, now: Instant) {
    emptyArena()
    if case .closed = phase { return }
    switch value {
    case .handleValueNotification(let pdu): keep(pdu.attributeHandle, pdu.attributeValue, packet, .notification)
    case .handleValueIndication(let pdu):
      keep(pdu.attributeHandle, pdu.attributeValue, packet, .indication)
      if isServiceChanged(pdu.attributeHandle) {
        received(serviceChanged: pdu.attributeValue, in: packet)
      }
    case .multipleHandleValueNotification(let pdu):
      var cursor = pdu.handleLengthValueTupleList.cursor
      while let tuple = cursor.next(in: packet) {
        keep(tuple.attributeHandle, tuple.attributeValue, packet, .notification)
      }
    default: break
    }
  }

  private mutating func keep(
    _ handle: AttributeHandle, _ value: Octets, _ packet: Span<UInt8>, _ kind: ValueKind
  ) {
    // After the first one lost all are lost until the effects have been taken: what is left is a prefix, in order.
    guard lost == 0, undrained + 8 + Int(value.count) <= configuration.valueCapacity else {
      lost += 1
      return
    }
    undrained += 8 + Int(value.count)
    effects.append(.value(handle, Octets(arena.count, Int(value.count)), kind))
    arena.append(copying: packet.extracting(Int(value.offset)..<Int(value.offset) + Int(value.count)))
  }

  // MARK: Effects

  /// `nextEffect` has something to say.
  @inlinable @inline(__always) public var hasEffect: Bool { !effects.isEmpty || lost > 0 }
  public mutating func nextEffect() -> ClientEffect? {
    if let effect = effects.popFirst() { return effect }
    guard lost > 0 else { return nil }
    defer { lost = 0 }
    return .valuesLost(lost)
  }

  mutating func emptyArena() {
    guard effects.isEmpty, !arena.isEmpty || undrained > 0 else { return }
    arena.removeAll(keepingCapacity: true)
    undrained = 0
  }

  /// Lends the bytes of an effect. Traps when `octets` is no range of the arena.
  @inlinable @inline(__always)
  public borrowing func withBytes<Result, Failure: Error>(
    _ octets: Octets, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try body(arena.span.extracting(Int(octets.offset)..<Int(octets.offset) + Int(octets.count)))
  }
  /// A copy of the bytes of an effect.
  public borrowing func bytes(of octets: Octets) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.append(octets, of: arena.span)
    return bytes
  }
  /// The values of `.values`, in handle order, or in the order they were asked for.
  public borrowing func values(of octets: Octets) -> [HandleValue] {
    HandleValue.list(arena.span.extracting(octets.range), from: Int(octets.offset))
  }
}

/// One of several values that were read.
public struct HandleValue: BitwiseCopyable, Sendable, Equatable {
  public var handle: AttributeHandle
  public var value: Octets
  /// The response had no room for the whole value: these are its first octets. Vol 3, Part F, §3.4.4.12.
  public var isCut = false

  /// The values of a `ClientResult.values`, whose octets these are; the ranges begin at `start`.
  public static func list(_ octets: Span<UInt8>, from start: Int = 0) -> [HandleValue] {
    var values: [HandleValue] = [], at = 0
    while at + 4 <= octets.count {
      let handle = UInt16(octets[at]) | UInt16(octets[at + 1]) << 8
      let length = UInt16(octets[at + 2]) | UInt16(octets[at + 3]) << 8, count = Int(length & 0x7FFF)
      values.append(
        HandleValue(
          handle: AttributeHandle(rawValue: handle), value: Octets(start + at + 4, count), isCut: length & 0x8000 != 0))
      at += 4 + count
    }
    return values
  }
}
