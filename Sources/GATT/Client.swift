import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// Limits of a `Client`.
public struct ClientConfiguration: BitwiseCopyable, Sendable {
  /// Requests that wait on a bearer while another is active; one more is refused with `.busy`.
  public var maximumWaiting = 256
  /// Octets of received values, 8 for each value included, that may wait to be taken as effects; the client drops and
  /// counts what exceeds them. A composer that drains after every packet never gets near it.
  public var valueCapacity = 65_536
  /// A request that the server refuses for lack of security waits until the link has been secured: `.securityNeeded`.
  public var repeatsWhenSecured = false
  public init() {}
}

/// The client half of GATT: discovery, reads, writes, subscriptions. Vol 3, Part G, §4.
///
/// ## Function
/// A caller names each request by a `RequestID` and gets exactly one `.completed` for it from `nextEffect`. One request
/// is active at a time on each bearer (Vol 3, Part F, §3.3.2); the others wait in order. Bytes of ATT requests never
/// wait: the bearer pulls them, one at a time.
///
///     client.open(bearer)
///     client.discoverAll(id)
///     while client.hasRequest(on: bearer) { …bearer… }  // nextRequest, receive(response:)
///     while let effect = client.nextEffect() { … }      // after every packet
///
/// `ClientBearers.swift` says what the client keeps for each bearer and what it keeps once; `ClientCaching.swift` what
/// it knows of the server, and how it learns of a change.
///
/// ## Effects
/// Take them after every packet and every command: their `Octets` are ranges of an arena, which the next call that
/// changes the client empties once all effects have been taken.
public struct Client: AttributeClient, ~Copyable {
  /// What discoveries have found. It changes when a discovery completes, and when the server's services change.
  public internal(set) var remote = RemoteDatabase()
  public let configuration: ClientConfiguration

  /// In the order in which they were opened.
  @usableFromInline var bearers = UniqueArray<RequestQueue>()
  /// How many of `bearers` are not idle, and one more while the client awaits encryption. At 0 the bearers ask for no
  /// request and skip the list, so that sending a value costs nothing extra.
  @usableFromInline var busyCount = 0
  /// The link claims to lead to a bonded server and is not encrypted, so anybody may answer: no request leaves,
  /// commands are refused, and values are dropped, but a Service Changed indication, which can only cost a discovery,
  /// is processed. Requests that are made meanwhile wait.
  public var awaitsEncryption = false {
    didSet { busyCount += (awaitsEncryption ? 1 : 0) - (oldValue ? 1 : 0) }
  }
  /// A request waits to be sent.
  public var hasWaitingRequest: Bool { busyCount > (awaitsEncryption ? 1 : 0) }
  /// The bearer whose procedure uses what the client has once: see `ClientBearers.swift`.
  var exclusive: BearerID?
  /// The bearer that new requests are made on: see `makeRequests`.
  var target: (bearer: BearerID, place: UInt64?) = (BearerID(rawValue: 0), 0)
  /// How many commands of the first bearer have left. While there are others the caller keeps it up to date: what is
  /// made after a command leaves after it, on any bearer.
  public var commandsSent: UInt64 = 0
  /// What `followChanges` tells the server that we support.
  public var features: ClientSupportedFeatures = [.robustCaching, .multipleHandleValueNotifications]
  /// Why the bearer that closed last closed.
  var closure = BearerClosure.disconnected
  /// Writes the requests and reads the responses of the exclusive procedure while that is `discovering`.
  @usableFromInline var discovery = Discovery()
  /// The other bearers may ask for parts of it. False once the server has refused one there what it may grant here.
  @usableFromInline var isDiscoveryShared = true
  /// Why a part of it has failed on another bearer.
  var discoveryFailure: ClientError?
  /// As the last `discoverAll` did.
  var infersDescriptors = true
  /// The server's queue may hold parts that were prepared on a bearer that has closed.
  var mustEmptyQueue = false

  /// The hash that was read last, until a discovery takes it.
  var freshHash: DatabaseHash?
  /// The server has reported a Database Hash.
  var hasHash = false

  /// One of the server's values that has subscribers.
  struct Subscription: BitwiseCopyable {
    var valueHandle: AttributeHandle
    var configuration: ClientCharacteristicConfiguration
    var subscribers: Int
  }
  var subscriptions: [Subscription] = []
  /// The handle of Service Changed when `followChanges` subscribed to it.
  var followed: AttributeHandle?

  @usableFromInline var effects: Deque<ClientEffect> = []
  @usableFromInline var arena = UniqueArray<UInt8>()
  /// The octets that `valueCapacity` bounds.
  private var undrained = 0
  @usableFromInline var lost = 0

  public init(configuration: ClientConfiguration = ClientConfiguration()) { self.configuration = configuration }

  // MARK: Discovery

  /// Everything: services, includes, characteristics, descriptors. Replaces `remote`. Vol 3, Part G, §4.4 … §4.7.
  ///
  /// To save round trips the client does not ask for the type of a descriptor that the characteristic's properties
  /// require and that has the only handle there: `remote` does not have it until `subscribe` or `discoverDescriptors`
  /// has asked. With `infersDescriptors: false` the client asks for each, also when it discovers changed services
  /// again.
  public mutating func discoverAll(_ id: RequestID, infersDescriptors: Bool = true) {
    submit(Procedure(.request(id), .discover(.everything(.all, infersDescriptors: infersDescriptors))))
  }
  /// All primary services (§4.4.1), or those with `uuid` (§4.4.2). `remote` keeps what it knows of services that still
  /// exist.
  public mutating func discoverPrimaryServices(_ id: RequestID, _ uuid: BluetoothUUID? = nil) {
    submit(Procedure(.request(id), .discover(uuid.map { .services($0) } ?? .primaryServices)))
  }
  /// The services that those in `range` include. Vol 3, Part G, §4.5.1.
  public mutating func discoverIncludedServices(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(.request(id), .discover(.includedServices(range))))
  }
  /// The characteristics in `range`, without descriptors. Vol 3, Part G, §4.6.1. Discovery by UUID (§4.6.2) is the same
  /// exchange, followed by a search in `remote`.
  public mutating func discoverCharacteristics(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(.request(id), .discover(.characteristics(range))))
  }
  /// The descriptors in `range`, such as a characteristic's `descriptorRange`. Vol 3, Part G, §4.7.1.
  public mutating func discoverDescriptors(_ id: RequestID, in range: HandleRange) {
    submit(Procedure(.request(id), .discover(.descriptors(range))))
  }

  // MARK: Reading

  /// One Read Request: at most ATT_MTU − 1 octets. Vol 3, Part G, §4.8.1, §4.12.1.
  public mutating func read(_ id: RequestID, _ handle: AttributeHandle) {
    submit(Procedure(id, .reading(Procedure.Reading(handle: handle, isLong: false))))
  }
  /// The whole value. Vol 3, Part G, §4.8.3, §4.12.2.
  public mutating func readLong(_ id: RequestID, _ handle: AttributeHandle) {
    submit(Procedure(id, .reading(Procedure.Reading(handle: handle, isLong: true))))
  }
  /// The values of all attributes of one type; each is cut at min(ATT_MTU − 4, 253) octets. Vol 3, Part G, §4.8.2.
  public mutating func read(_ id: RequestID, uuid: BluetoothUUID, in range: HandleRange = .all) {
    submit(Procedure(id, .readingByType(range, uuid.shortest)))
  }
  /// Two or more values of known length, in one response. Vol 3, Part G, §4.8.4.
  public mutating func readMultiple(_ id: RequestID, _ handles: [AttributeHandle]) {
    submit(Procedure(id, .readingMultiple(isVariable: false), parts: handles.map { Procedure.Part(handle: $0) }))
  }
  /// Two or more values, in one response. The value that exceeds the response's room is cut, and those after it are
  /// missing. Vol 3, Part G, §4.8.5.
  public mutating func readMultipleVariable(_ id: RequestID, _ handles: [AttributeHandle]) {
    submit(Procedure(id, .readingMultiple(isVariable: true), parts: handles.map { Procedure.Part(handle: $0) }))
  }

  // MARK: Writing

  /// Writes a value, and one longer than ATT_MTU − 3 in parts. Vol 3, Part G, §4.9.3, §4.9.4.
  public mutating func write(_ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    let part = Procedure.Part(handle: handle, value: Octets(0, value.count))
    submit(Procedure(id, .writing(part), octets: copy(value)))
  }
  /// Writes a value of any length in parts; the server writes nothing unless it has echoed every part as it was sent.
  /// Vol 3, Part G, §4.9.4.
  public mutating func writeLong(_ id: RequestID, _ handle: AttributeHandle, _ value: Span<UInt8>) {
    let part = Procedure.Part(handle: handle, value: Octets(0, value.count))
    submit(Procedure(id, .preparing(Procedure.Queueing()), parts: [part], octets: copy(value)))
  }
  /// Writes several values, all or none. Vol 3, Part G, §4.9.5.
  public mutating func writeReliable(_ id: RequestID, _ values: [(handle: AttributeHandle, value: [UInt8])]) {
    var parts: [Procedure.Part] = [], octets: [UInt8] = []
    for (handle, value) in values {
      parts.append(Procedure.Part(handle: handle, value: Octets(value, in: &octets)))
    }
    submit(Procedure(id, .preparing(Procedure.Queueing()), parts: parts, octets: octets))
  }

  // MARK: Subscribing

  /// Asks the server to send the value with `valueHandle` on its own initiative; completes when the server has agreed.
  /// Without `configuration` the client chooses notifications where the characteristic has that property, otherwise
  /// indications. Vol 3, Part G, §4.10, §4.11, §3.3.3.3.
  ///
  /// The client looks the descriptor up in `remote`, and asks the server for the characteristic's descriptors, once, if
  /// `remote` does not know them: it writes to no handle whose type it has not read. The client counts subscribers: a
  /// second one causes no request. Cancelling while the request is in flight restores the configuration that was in
  /// force before.
  public mutating func subscribe(
    _ id: RequestID, _ valueHandle: AttributeHandle, _ configuration: ClientCharacteristicConfiguration? = nil
  ) {
    submit(Procedure(.request(id), .subscribe(valueHandle, configuration)))
  }
  /// Removes one subscriber; after the last one the client asks the server to send no more.
  public mutating func unsubscribe(_ id: RequestID, _ valueHandle: AttributeHandle) {
    submit(Procedure(.request(id), .unsubscribe(valueHandle)))
  }

  private func copy(_ value: Span<UInt8>) -> [UInt8] {
    var octets: [UInt8] = []
    octets.append(Octets(0, value.count), of: value)
    return octets
  }

  // MARK: The bearer's side

  @inlinable @inline(__always) public func hasRequest(on bearer: BearerID) -> Bool {
    busyCount > 0 && !awaitsEncryption
      && Client.isAsking(
        bearer, among: bearers, hasFreeLane: discovery.hasFreeLane, isShared: isDiscoveryShared, after: commandsSent)
  }
  @inlinable @inline(__always) public func holdsCommands(on bearer: BearerID) -> Bool {
    busyCount > 0 && (awaitsEncryption || Client.holdsCommands(bearer, among: bearers))
  }
  // Kept out of the path of values, and static, because a borrowed client would be copied for the call.
  @inline(never) @usableFromInline
  static func isAsking(
    _ bearer: BearerID, among bearers: borrowing UniqueArray<RequestQueue>, hasFreeLane: Bool, isShared: Bool,
    after commands: UInt64
  ) -> Bool {
    guard let index = index(of: bearer, among: bearers) else { return false }
    switch bearers[index].phase {
    case .asking: return hasFreeLane || !bearers[index].isSearching
    case .idle: return hasShare(for: index, among: bearers, after: commands) || hasFreeLane && isShared
    case .blocked, .awaiting, .searching, .securing: return false
    }
  }
  @inline(never) @usableFromInline
  static func holdsCommands(_ bearer: BearerID, among bearers: borrowing UniqueArray<RequestQueue>) -> Bool {
    guard let index = index(of: bearer, among: bearers) else { return false }
    return bearers[index].holdsCommands
  }

  /// See `AttributeClient`. A request that exceeds `mtu` (Read Multiple of too many handles) fails here, and the client
  /// tries the next one. A value too long for a Write Request returns to the waiting requests while another bearer is
  /// exclusive.
  public mutating func nextRequest(
    on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool {
    emptyArena()
    guard let index = index(of: bearer) else { return false }
    if bearers[index].phase.isIdle, !takeShare(at: index) { return search(at: index, into: &request) }
    while case .asking(var active) = bearers[index].phase, active.place <= commands {
      // The rest of the discovery is in flight on other bearers.
      if bearers[index].isSearching, !discovery.hasFreeLane { return false }
      if bearers[index].procedure.needsQueue(mtu: mtu) {
        guard acquire(at: index) else {
          block(at: index)
          return false
        }
        if mustEmptyQueue, bearers[index].procedure.emptyQueue() { mustEmptyQueue = false }
      }
      if writeRequest(active.synchrony, at: index, mtu: mtu, into: &request) {
        active.hasLeft = active.hasLeft || bearers[index].procedure.leavesWithThis
        bearers[index].turn(to: .awaiting(active))
        return true
      }
      end(.failed(.valueTooLong), at: index)
    }
    return false
  }
  private mutating func writeRequest(
    _ synchrony: RequestQueue.Synchrony, at index: Int, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool {
    switch (synchrony, bearers[index].procedure.phase) {
    case (.readingHash, _), (_, .readingHash):
      return (try? DatabaseHash.request.encode(into: &request, from: Span())) != nil
    case (_, .discovering): return writeSearch(at: index, into: &request)
    case (_, .reading), (_, .readingByType), (_, .readingMultiple), (_, .writing), (_, .preparing), (_, .emptying),
      (_, .executing), (_, .rollingBack), (_, .finished):
      return bearers[index].procedure.writeRequest(mtu: mtu, into: &request)
    }
  }

  public mutating func receive(
    response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant
  ) {
    emptyArena()
    guard let index = index(of: bearer) else { return effects.append(.ignored(.unexpectedResponse)) }
    if case .searching = bearers[index].phase { return found(response, in: packet, at: index) }
    guard case .awaiting(let active) = bearers[index].phase else {
      return effects.append(.ignored(.unexpectedResponse))
    }
    if case .errorResponse(let error) = response, secures(active, refusedWith: error, at: index) { return }
    advance(by: response, in: packet, at: index, active, mtu: mtu)
  }
  /// Hands a response to the active procedure, which awaits it. Inlined: as a call it costs 170 instructions a
  /// response.
  @inline(__always) mutating func advance(
    by response: ATTPDU, in packet: Span<UInt8>, at index: Int, _ active: RequestQueue.Active, mtu: Int
  ) {
    bearers[index].turn(to: .asking(active))
    let isWanted = bearers[index].procedure.isWanted
    switch (active.synchrony, bearers[index].procedure.phase) {
    case (.readingHash, _): resume(after: response, in: packet, at: index)
    case (_, .readingHash): received(hash: response, in: packet, at: index)
    case (.inSync, _) where isOutOfSync(response, at: index):
      repeatSearch(at: index)
      bearers[index].synchrony = .readingHash
      if !acquire(at: index) { block(at: index) }
    case (_, .discovering):
      switch isWanted ? receive(found: response, in: packet, at: index) : .failed(.cancelled) {
      case .again, .stale: if let failure = discoveryFailure { end(.failed(failure), at: index) }
      case .finished: discovered(at: index)
      case .failed(let error): end(.failed(error), at: index)
      }
    case (_, .reading), (_, .readingByType), (_, .readingMultiple), (_, .writing), (_, .preparing), (_, .emptying),
      (_, .executing), (_, .rollingBack), (_, .finished):
      switch bearers[index].procedure.receive(response, in: packet, mtu: mtu) {
      case .again: if !isWanted { end(.failed(.cancelled), at: index) }
      case .done: written(error: nil, at: index)
      case .value: end(.value(isWanted ? gathered(at: index) : Octets()), at: index)
      case .values: end(.values(isWanted ? gathered(at: index) : Octets()), at: index)
      case .failed(let error): written(error: error, at: index)
      }
    }
  }

  /// Ends a discovery: the active request, or the search for the descriptor that it writes to.
  mutating func discovered(at index: Int) {
    let found = discovery.takeFound()
    switch bearers[index].procedure.kind {
    case .subscribe(let valueHandle, _), .unsubscribe(let valueHandle):
      // `remote` may have forgotten it meanwhile.
      guard let characteristic = remote.characteristic(valueHandle: valueHandle) else {
        return end(.failed(.databaseChanged), at: index)
      }
      remote.learnDescriptors(of: characteristic, from: found)
      if !configure(valueHandle, at: index) { end(.failed(.noConfigurationDescriptor), at: index) }
    case .discover(let goal):
      if case .everything = goal { learn(found, isComplete: true) } else { learn(found, isComplete: false) }
      end(.discovered, at: index)
    case .values, .rediscover, .databaseHash, .followChanges:
      learn(found, isComplete: true)
      end(.discovered, at: index)
    }
  }

  /// The server has answered a write, or refused any request.
  private mutating func written(error: ClientError?, at index: Int) {
    switch bearers[index].procedure.kind {
    case .subscribe(let valueHandle, let configuration?) where error == nil:
      if let undo = subscribed(valueHandle, configuration, by: bearers[index].procedure.caller) {
        bearers[index].waiting.prepend(RequestQueue.Waiting(procedure: undo))
      }
    case .unsubscribe(let valueHandle): subscriptions.removeAll { $0.valueHandle == valueHandle }
    case .followChanges:
      if let result = followed(error, at: index) { end(result, at: index) }
      return
    case .values, .discover, .rediscover, .databaseHash, .subscribe: break
    }
    end(error.map { .failed($0) } ?? .done, at: index)
  }

  /// What a bearer's procedure has read, copied into the arena.
  private mutating func gathered(at index: Int) -> Octets {
    let gathered = bearers[index].procedure.octets, octets = Octets(arena.count, gathered.count)
    arena.append(copying: gathered.span)
    return octets
  }

  public mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
    emptyArena()
    if index(of: bearer) == nil { return }
    if awaitsEncryption { return drop(value, in: packet) }
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
    case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationRequest, .findInformationResponse,
      .findByTypeValueRequest, .findByTypeValueResponse, .readByTypeRequest, .readByTypeResponse, .readRequest,
      .readResponse, .readBlobRequest, .readBlobResponse, .readMultipleRequest, .readMultipleResponse,
      .readByGroupTypeRequest, .readByGroupTypeResponse, .writeRequest, .writeResponse, .prepareWriteRequest,
      .prepareWriteResponse, .executeWriteRequest, .executeWriteResponse, .handleValueConfirmation,
      .readMultipleVariableRequest, .readMultipleVariableResponse, .writeCommand, .signedWriteCommand:
      break
    }
  }

  /// The link is not encrypted, see `awaitsEncryption`.
  private mutating func drop(_ value: ATTPDU, in packet: Span<UInt8>) {
    switch value {
    case .handleValueNotification(let pdu): effects.append(.ignored(.notEncrypted(pdu.attributeHandle)))
    case .handleValueIndication(let pdu):
      guard isServiceChanged(pdu.attributeHandle) else {
        return effects.append(.ignored(.notEncrypted(pdu.attributeHandle)))
      }
      received(serviceChanged: pdu.attributeValue, in: packet)
    case .multipleHandleValueNotification(let pdu):
      var cursor = pdu.handleLengthValueTupleList.cursor
      while let tuple = cursor.next(in: packet) {
        effects.append(.ignored(.notEncrypted(tuple.attributeHandle)))
      }
    case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationRequest, .findInformationResponse,
      .findByTypeValueRequest, .findByTypeValueResponse, .readByTypeRequest, .readByTypeResponse, .readRequest,
      .readResponse, .readBlobRequest, .readBlobResponse, .readMultipleRequest, .readMultipleResponse,
      .readByGroupTypeRequest, .readByGroupTypeResponse, .writeRequest, .writeResponse, .prepareWriteRequest,
      .prepareWriteResponse, .executeWriteRequest, .executeWriteResponse, .handleValueConfirmation,
      .readMultipleVariableRequest, .readMultipleVariableResponse, .writeCommand, .signedWriteCommand:
      break
    }
  }

  private mutating func keep(
    _ handle: AttributeHandle, _ value: Octets, _ packet: Span<UInt8>, _ kind: ValueKind
  ) {
    // Vol 3, Part F, §3.2.2: 0x0000 is reserved, no attribute has it.
    guard handle.rawValue != 0 else { return effects.append(.ignored(.handleOutOfRange(handle))) }
    // After the first lost value all are dropped until the effects have been taken, so that the rest is a prefix, in
    // order.
    guard lost == 0, undrained + 8 + Int(value.count) <= configuration.valueCapacity else {
      lost += 1
      return
    }
    undrained += 8 + Int(value.count)
    effects.append(.value(handle, Octets(arena.count, Int(value.count)), kind))
    arena.append(copying: packet.extracting(Int(value.offset)..<Int(value.offset) + Int(value.count)))
  }

  // MARK: Effects

  /// True while `nextEffect` returns an effect.
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

  /// Lends the bytes of an effect. Traps when `octets` is not a range of the arena.
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
  /// The values of `.values`, in handle order, or in the order of the request.
  public borrowing func values(of octets: Octets) -> [HandleValue] {
    HandleValue.list(arena.span.extracting(octets.range), from: Int(octets.offset))
  }
}

/// One of several values that were read.
public struct HandleValue: BitwiseCopyable, Sendable, Equatable {
  public var handle: AttributeHandle
  public var value: Octets
  /// The response had no room for the whole value, which has only its first octets here. Vol 3, Part F, §3.4.4.12.
  public var isCut = false

  /// The values of a `ClientResult.values`, decoded from its octets; the ranges begin at `start`.
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
