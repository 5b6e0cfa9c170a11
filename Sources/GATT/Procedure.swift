import BindruneATT
import BindruneWire

/// One request of a caller, waiting or active, and its progress.
///
/// ## Function
/// Vol 3, Part G, §4.8 and §4.9: reads until a value is complete, writes in as many parts as ATT_MTU requires. Execute
/// Write (cancel) takes back what a Prepare Write has left in the server's queue before the next request, also after
/// the caller has cancelled.
///
/// ## Phases
/// Like `Discovery`, it alternately writes a request and receives the response. In the phases `readingHash` and
/// `discovering` the client does both instead.
///
///     values                   reading │ readingByType │ readingMultiple │ writing │ preparing ──▶ executing
///                                                                             └────────▲
///     databaseHash             readingHash
///     discover                 discovering
///     rediscover               readingHash ──▶ discovering, or at once discovering
///     subscribe, unsubscribe   discovering ──▶ writing, or at once writing
///     followChanges            writing ──▶ subscribe, or at once subscribe
///     preparing                ──▶ emptying ──▶ preparing, after another bearer has closed that prepared
///     any that has prepared    ──▶ rollingBack
struct Procedure {
  enum Kind: BitwiseCopyable, Equatable {
    /// Reads or writes values; the phase says how.
    case values
    case discover(Discovery.Goal)
    /// The client's own, after a change of services.
    case rediscover(HandleRange)
    case databaseHash
    /// Writes the Client Characteristic Configuration of the characteristic with this value handle; `nil` means the
    /// configuration that its properties offer, which replaces it at the beginning.
    case subscribe(AttributeHandle, ClientCharacteristicConfiguration?)
    case unsubscribe(AttributeHandle)
    /// Writes Client Supported Features, then subscribes to Service Changed, if the server has them.
    case followChanges
  }
  /// The recipient of the result.
  enum Caller: BitwiseCopyable, Equatable {
    case request(RequestID)
    /// The client itself.
    case client
    /// No one: the caller has cancelled, or already has its result.
    case none
  }
  /// What the procedure asks now; of a waiting procedure, what it asks first unless the client knows it by then.
  enum Phase: BitwiseCopyable, Equatable {
    case readingHash
    /// Searches what the caller asked for, or the descriptor to write.
    case discovering
    case reading(Reading)
    /// Reads the values of one type in the rest of a range.
    case readingByType(HandleRange, BluetoothUUID)
    /// Reads the values of all `parts`, in one response.
    case readingMultiple(isVariable: Bool)
    /// Writes by a Write Request, or as `preparing` where the value is longer than ATT_MTU − 3.
    case writing(Part)
    case preparing(Queueing)
    /// Empties the server's queue of parts prepared on a bearer that has closed, before `preparing`.
    case emptying(Queueing)
    /// All parts are in the server's queue.
    case executing
    /// Execute Write with Flags 0x00, after the caller got its result.
    case rollingBack
    /// No request is left, and the server's queue is empty.
    case finished
  }
  /// The state of a read.
  struct Reading: BitwiseCopyable, Equatable {
    var handle: AttributeHandle
    /// Whether to read until the value is complete instead of once.
    var isLong: Bool
    /// ATT_MTU of the request in flight: a response of full length may not be the end.
    var mtu = Bearer.defaultMTU
  }
  /// How many of `parts` have been prepared.
  struct Queueing: BitwiseCopyable, Equatable {
    /// The part that is being prepared, and how many of its octets have been.
    var part = 0, offset = 0
    /// ATT_MTU of the request in flight.
    var mtu = Bearer.defaultMTU
    /// The server may hold our parts in its queue: it has answered a Prepare Write.
    var hasPrepared = false
  }
  enum Outcome: BitwiseCopyable {
    case again
    case done
    /// `octets` hold the value.
    case value
    /// `octets` hold values, each after its handle and length.
    case values
    case failed(ClientError)
  }
  /// A handle and, for a write, the range of its value in `octets`.
  struct Part: BitwiseCopyable, Equatable {
    var handle: AttributeHandle
    var value = Octets()
  }

  private(set) var caller: Caller
  private(set) var kind: Kind
  private(set) var phase: Phase
  /// In a phase that writes: the octets to write. In one that reads: the octets read so far.
  private(set) var octets: [UInt8]
  /// What `readingMultiple` reads and `preparing` writes.
  private var parts: [Part]

  /// A finished procedure without a caller.
  init() {
    (caller, kind, phase) = (.none, .values, .finished)
    (octets, parts) = ([], [])
  }
  /// Reads or writes values, beginning with `phase`.
  init(_ id: RequestID, _ phase: Phase, parts: [Part] = [], octets: [UInt8] = []) {
    (caller, kind, self.phase) = (.request(id), .values, phase)
    (self.octets, self.parts) = (octets, parts)
  }
  /// Of any kind but `values`.
  init(_ caller: Caller, _ kind: Kind) {
    (self.caller, self.kind) = (caller, kind)
    phase = if case .databaseHash = kind { .readingHash } else { .discovering }
    (octets, parts) = ([], [])
  }

  /// Continues as a procedure of another kind, for the same caller.
  mutating func become(_ kind: Kind) { self.kind = kind }
  /// The client reads the hash before anything else.
  mutating func readHash() { phase = .readingHash }
  /// Starts the client's `discovery`.
  mutating func discover() { phase = .discovering }
  /// Sets the value and the handle to write, now that they are known.
  mutating func write(_ value: [UInt8], to handle: AttributeHandle) {
    octets = value
    phase = .writing(Part(handle: handle, value: Octets(0, value.count)))
  }
  /// Sets the descriptor that a subscription, or its end, is written to, now that it is known.
  mutating func configure(_ descriptor: AttributeHandle) {
    var value: UInt16 = 0
    if case .subscribe(_, let configuration?) = kind { value = configuration.rawValue }
    write([UInt8(truncatingIfNeeded: value), UInt8(value >> 8)], to: descriptor)
  }
  /// The caller has cancelled.
  mutating func abandon() { if case .request = caller { caller = .none } }
  var isWanted: Bool { caller != .none }
  /// Whether the server's queue may hold parts of it.
  var usesQueue: Bool {
    switch phase {
    case .preparing, .emptying, .executing, .rollingBack: true
    case .readingHash, .discovering, .reading, .readingByType, .readingMultiple, .writing, .finished: false
    }
  }
  /// Reads values, and so may overtake other reads.
  var isRead: Bool {
    guard case .values = kind else { return false }
    switch phase {
    case .reading, .readingByType, .readingMultiple: return true
    case .readingHash, .discovering, .writing, .preparing, .emptying, .executing, .rollingBack, .finished: return false
    }
  }
  /// Whether it uses what exists once for the client: see `ClientBearers.swift`.
  var isExclusive: Bool { if case .values = kind { usesQueue } else { true } }
  /// Whether a waiting request refers to a handle in `range`.
  func touches(_ range: HandleRange) -> Bool {
    switch (kind, phase) {
    case (.subscribe(let handle, _), _), (.unsubscribe(let handle), _): range.contains(handle)
    case (_, .reading(let reading)): range.contains(reading.handle)
    case (_, .writing(let part)): range.contains(part.handle)
    case (_, .readingHash), (_, .discovering), (_, .readingByType), (_, .readingMultiple), (_, .preparing),
      (_, .emptying), (_, .executing), (_, .rollingBack), (_, .finished):
      parts.contains { range.contains($0.handle) }
    }
  }
  /// Whether later traffic may follow the PDU that is being written. A read leaves with its first PDU; a write with its
  /// last, because that has the effect.
  var leavesWithThis: Bool {
    switch phase {
    case .readingHash, .discovering:
      switch kind {
      case .discover, .rediscover, .databaseHash, .values: true
      case .subscribe, .unsubscribe, .followChanges: false
      }
    case .reading, .readingByType, .readingMultiple, .executing: true
    // Following changes writes twice; by the second write it is a subscription.
    case .writing: kind != .followChanges
    case .preparing, .emptying, .rollingBack, .finished: false
    }
  }

  // MARK: Requests

  /// Whether the next request uses the server's queue: a value that exceeds ATT_MTU is written in parts (Vol 3, Part G,
  /// §4.9.4).
  mutating func needsQueue(mtu: Int) -> Bool {
    guard case .values = kind else { return false }
    if case .writing(let part) = phase, Int(part.value.count) > mtu - 3 {
      parts = [part]
      phase = .preparing(Queueing())
    }
    return usesQueue
  }
  /// The server's queue is not empty. Returns true if the procedure empties it before it prepares anything.
  mutating func emptyQueue() -> Bool {
    guard case .preparing(let queueing) = phase, !queueing.hasPrepared else { return false }
    phase = .emptying(queueing)
    return true
  }

  /// The opcode of the refused request.
  private var opcode: ATTOpcode {
    switch phase {
    case .reading: octets.isEmpty ? ReadRequest.opcode : ReadBlobRequest.opcode
    case .readingHash, .discovering, .readingByType: ReadByTypeRequest.opcode
    case .readingMultiple(let isVariable):
      isVariable ? ReadMultipleVariableRequest.opcode : ReadMultipleRequest.opcode
    case .writing: WriteRequest.opcode
    case .preparing: PrepareWriteRequest.opcode
    case .emptying, .executing, .rollingBack, .finished: ExecuteWriteRequest.opcode
    }
  }

  /// Writes the next request; false when it exceeds ATT_MTU.
  mutating func writeRequest(mtu: Int, into output: inout OutputRawSpan) -> Bool {
    switch phase {
    case .reading(var reading):
      reading.mtu = mtu
      phase = .reading(reading)
    case .preparing(var queueing):
      queueing.mtu = mtu
      phase = .preparing(queueing)
    case .readingHash, .discovering, .readingByType, .readingMultiple, .writing, .emptying, .executing, .rollingBack,
      .finished:
      break
    }
    var handles: [UInt8] = []
    guard let request = try? request(handles: &handles), handles.count < mtu else { return false }
    do {
      if handles.isEmpty {
        try request.encode(into: &output, from: octets.span)
      } else {
        try request.encode(into: &output, from: handles.span)
      }
      return true
    } catch { return false }
  }

  /// Nil in phases in which the client writes the request.
  private func request(handles: inout [UInt8]) throws(WireError) -> ATTPDU? {
    switch phase {
    case .readingHash, .discovering, .finished: return nil
    case .readingByType(let range, let type):
      let request = ReadByTypeRequest.with {
        $0.startingHandle = range.first
        $0.endingHandle = range.last
        $0.attributeType = type
      }
      return .readByTypeRequest(request)
    case .readingMultiple(isVariable: false):
      var request = ReadMultipleRequest()
      request.setOfHandles = try WireList(parts.map { $0.handle }, in: &handles)
      return .readMultipleRequest(request)
    case .readingMultiple(isVariable: true):
      var request = ReadMultipleVariableRequest()
      request.setOfHandles = try WireList(parts.map { $0.handle }, in: &handles)
      return .readMultipleVariableRequest(request)
    case .reading(let reading) where octets.isEmpty:
      let request = ReadRequest.with { $0.attributeHandle = reading.handle }
      return .readRequest(request)
    case .reading(let reading):
      let request = ReadBlobRequest.with {
        $0.attributeHandle = reading.handle
        $0.valueOffset = UInt16(octets.count)
      }
      return .readBlobRequest(request)
    case .writing(let part):
      let request = WriteRequest.with {
        $0.attributeHandle = part.handle
        $0.attributeValue = part.value
      }
      return .writeRequest(request)
    case .preparing(let queueing):
      let request = PrepareWriteRequest.with {
        $0.attributeHandle = parts[queueing.part].handle
        $0.valueOffset = UInt16(queueing.offset)
        $0.partAttributeValue = piece(queueing)
      }
      return .prepareWriteRequest(request)
    case .emptying, .executing, .rollingBack:
      let request = ExecuteWriteRequest.with { $0.flags = phase == .executing ? .write : .cancel }
      return .executeWriteRequest(request)
    }
  }

  /// The next piece of the part being prepared: at most ATT_MTU − 5 octets. Vol 3, Part F, §3.4.6.1.
  private func piece(_ queueing: Queueing) -> Octets {
    let value = parts[queueing.part].value
    return Octets(Int(value.offset) + queueing.offset, min(queueing.mtu - 5, Int(value.count) - queueing.offset))
  }

  // MARK: Responses

  mutating func receive(_ response: ATTPDU, in packet: Span<UInt8>, mtu: Int) -> Outcome {
    switch (phase, response) {
    case (.rollingBack, _): return .done
    case (.emptying(let queueing), _):
      phase = .preparing(queueing)
      return .again
    case (_, .errorResponse(let error)): return refused(error)
    case (.readingByType(let range, let type), .readByTypeResponse(let list)):
      return gather(list.attributeDataList, packet, in: range, type)
    case (.readingMultiple(isVariable: false), .readMultipleResponse(let values)):
      octets.append(values.setOfValues, of: packet)
      return .value
    case (.readingMultiple(isVariable: true), .readMultipleVariableResponse(let list)): return gather(list, packet)
    case (.reading(let reading), .readResponse(let value)) where octets.isEmpty:
      return gather(value.attributeValue, packet, reading, mtu)
    case (.reading(let reading), .readBlobResponse(let value)) where !octets.isEmpty:
      return gather(value.partAttributeValue, packet, reading, mtu)
    case (.writing, .writeResponse): return .done
    case (.executing, .executeWriteResponse):
      phase = .finished
      return .done
    case (.preparing(let queueing), .prepareWriteResponse(let echo)): return prepared(queueing, echo, packet)
    case (.readingHash, _), (.discovering, _), (.reading, _), (.readingByType, _), (.readingMultiple, _),
      (.writing, _), (.preparing, _), (.executing, _), (.finished, _):
      mayHavePrepared()
      return .failed(.malformedResponse(.unexpectedResponse))
    }
  }
  /// The server has answered in a way that leaves open what its queue holds.
  private mutating func mayHavePrepared() {
    switch phase {
    case .preparing(var queueing):
      queueing.hasPrepared = true
      phase = .preparing(queueing)
    case .executing: phase = .finished
    case .readingHash, .discovering, .reading, .readingByType, .readingMultiple, .writing, .emptying, .rollingBack,
      .finished:
      break
    }
  }

  private mutating func refused(_ error: ErrorResponse) -> Outcome {
    let failure = Outcome.failed(.att(error.errorCode, opcode, error.attributeHandleInError))
    switch (phase, error.errorCode) {
    // The value ended exactly where a response did. Vol 3, Part F, §3.4.4.5 reserves Invalid Offset for offsets beyond
    // the end and Attribute Not Long for values that a Read returns whole, but servers send both here.
    case (.reading, .invalidOffset) where !octets.isEmpty, (.reading, .attributeNotLong) where !octets.isEmpty:
      return .value
    // A server without Read Blob cannot hold more than a Read returns: its answer to the first one, after a response
    // that ATT_MTU filled. Part G, §4.8.3.
    case (.reading(let reading), .requestNotSupported) where !octets.isEmpty && octets.count < reading.mtu:
      return .value
    // The bearer reports a malformed response as invalid PDU: the server may have queued the part.
    case (.preparing, .invalidPDU), (.executing, _): mayHavePrepared()
    case (.readingByType, .attributeNotFound) where !octets.isEmpty: return .values
    case (.readingHash, _), (.discovering, _), (.reading, _), (.readingByType, _), (.readingMultiple, _), (.writing, _),
      (.preparing, _), (.emptying, _), (.rollingBack, _), (.finished, _):
      break
    }
    return failure
  }

  /// A response shorter than ATT_MTU − 1 ends the value (Vol 3, Part G, §4.8.3). The MTU may have grown between request
  /// and response; one superfluous request does no harm.
  private mutating func gather(_ value: Octets, _ packet: Span<UInt8>, _ reading: Reading, _ mtu: Int) -> Outcome {
    guard octets.count + Int(value.count) <= Self.maximumValueLength else {
      return .failed(.malformedResponse(.tooLong))
    }
    octets.append(value, of: packet)
    let isFull = Int(value.count) >= min(mtu, reading.mtu) - 1
    return reading.isLong && isFull && octets.count < Self.maximumValueLength ? .again : .value
  }

  private mutating func gather(
    _ list: WireList<AttributeData>, _ packet: Span<UInt8>, in range: HandleRange, _ type: BluetoothUUID
  ) -> Outcome {
    let next = Int(range.first.rawValue), last = range.last
    var cursor = list.cursor, previous = next - 1
    while let entry = cursor.next(in: packet) {
      let handle = entry.attributeHandle
      guard Int(handle.rawValue) > previous else { return .failed(.malformedResponse(.handlesNotIncreasing(handle))) }
      guard handle.rawValue <= last.rawValue else { return .failed(.malformedResponse(.handleOutOfRange(handle))) }
      previous = Int(handle.rawValue)
      octets.append(handle, entry.attributeValue, of: packet)
    }
    guard octets.count <= Self.maximumGathered else { return .failed(.malformedResponse(.tooLong)) }
    guard previous >= next, previous < Int(last.rawValue) else { return .values }
    phase = .readingByType(HandleRange(raw: previous + 1, Int(last.rawValue)), type)
    return .again
  }

  /// The values have the order of the handles; for lack of room the last ones may be cut or missing, but none may be
  /// added.
  /// Vol 3, Part F, §3.4.4.12.
  private mutating func gather(_ response: ReadMultipleVariableResponse, _ packet: Span<UInt8>) -> Outcome {
    var cursor = response.lengthValueTupleList.cursor, index = 0
    while let entry = cursor.next(in: packet) {
      guard index < parts.count else { return .failed(.malformedResponse(.tooLong)) }
      octets.append(parts[index].handle, entry.attributeValue, of: packet)
      index += 1
    }
    let rest = response.truncatedTuple
    guard rest.count >= 2 else { return .values }
    guard index < parts.count else { return .failed(.malformedResponse(.tooLong)) }
    octets.append(parts[index].handle, Octets(Int(rest.offset) + 2, Int(rest.count) - 2), of: packet, isCut: true)
    return .values
  }

  private mutating func prepared(
    _ queueing: Queueing, _ echo: PrepareWriteResponse, _ packet: Span<UInt8>
  ) -> Outcome {
    mayHavePrepared()
    let sent = piece(queueing), part = parts[queueing.part]
    guard echo.attributeHandle == part.handle, Int(echo.valueOffset) == queueing.offset,
      echo.partAttributeValue.count == sent.count,
      (0..<Int(sent.count)).allSatisfy({ octets[Int(sent.offset) + $0] == echo.partAttributeValue.byte($0, in: packet) }
      )
    else { return .failed(.malformedResponse(.echo(part.handle))) }
    var next = Queueing(
      part: queueing.part, offset: queueing.offset + Int(sent.count), mtu: queueing.mtu, hasPrepared: true)
    if next.offset >= Int(part.value.count) { (next.part, next.offset) = (next.part + 1, 0) }
    phase = next.part == parts.count ? .executing : .preparing(next)
    return .again
  }

  // MARK: Ends

  /// After a failure or a cancellation: true when the server's queue must be emptied before the next request.
  mutating func rollBack() -> Bool {
    switch phase {
    case .emptying, .executing: break
    case .preparing(let queueing) where queueing.hasPrepared: break
    case .readingHash, .discovering, .reading, .readingByType, .readingMultiple, .writing, .preparing, .rollingBack,
      .finished:
      return false
    }
    phase = .rollingBack
    return true
  }

  /// Why the request is invalid; nil if it is valid.
  var refusal: ClientError? {
    switch (kind, phase) {
    case (.discover(let goal), _): return goal.range.isValid ? nil : .invalidRequest
    case (_, .readingByType(let range, _)): return range.isValid ? nil : .invalidRequest
    case (_, .readingMultiple): return parts.count < 2 ? .invalidRequest : nil
    case (_, .writing(let part)): return part.value.count > Self.maximumValueLength ? .valueTooLong : nil
    case (_, .preparing):
      if parts.isEmpty { return .invalidRequest }
      return parts.contains { $0.value.count > Self.maximumValueLength } ? .valueTooLong : nil
    case (_, .readingHash), (_, .discovering), (_, .reading), (_, .emptying), (_, .executing), (_, .rollingBack),
      (_, .finished):
      return nil
    }
  }
  static var maximumValueLength: Int { 512 }
  /// Limit of one Read By Type over many attributes, in octets, handles and lengths included.
  static var maximumGathered: Int { 65_536 }
}

extension [UInt8] {
  mutating func append(_ value: Octets, of packet: Span<UInt8>) {
    let range = Int(value.offset)..<Int(value.offset) + Int(value.count)
    unsafe packet.extracting(range).withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
  }
  /// Appends a value after its handle and length, each two octets, least significant first. The highest bit of the
  /// length marks a value that has been cut.
  mutating func append(_ handle: AttributeHandle, _ value: Octets, of packet: Span<UInt8>, isCut: Bool = false) {
    for number in [handle.rawValue, UInt16(clamping: value.count) | (isCut ? 0x8000 : 0)] {
      append(UInt8(truncatingIfNeeded: number))
      append(UInt8(number >> 8))
    }
    append(value, of: packet)
  }
}
