import ATT
import BindruneWire

/// One request of a caller, waiting or active, and how far its reads or writes have come.
///
/// ## Function
/// Vol 3, Part G, §4.8 and §4.9: reads until a value is complete, writes in as many parts as ATT_MTU asks for. What a
/// Prepare Write has left in the server's queue is taken back by Execute Write (cancel) before anything else is asked,
/// also when the caller has gone.
///
/// ## Phases
/// `Phase`. Like `Discovery`, it writes a request and is brought the response, in turns.
struct Procedure {
  enum Kind: BitwiseCopyable, Equatable {
    case discover(Discovery.Goal)
    case read
    case readLong
    case readByType(HandleRange, BluetoothUUID)
    case readMultiple
    case readMultipleVariable
    /// A Write Request, or parts where the value is longer than ATT_MTU − 3.
    case write
    case writeParts
    /// Writes the Client Characteristic Configuration of the characteristic with this value handle; `nil` is what its
    /// properties offer.
    case subscribe(AttributeHandle, ClientCharacteristicConfiguration?)
    case unsubscribe(AttributeHandle)
    /// Writes Client Supported Features, then subscribes to Service Changed: where the server has them.
    case followChanges
    case databaseHash
    /// The client's own, after a change of services.
    case rediscover(HandleRange)
  }
  /// Who gets the result.
  enum Caller: BitwiseCopyable, Equatable {
    case request(RequestID)
    /// The client asks for itself.
    case client
    /// The caller has cancelled.
    case none
  }
  enum Phase: BitwiseCopyable, Equatable {
    /// The client asks first: for services, for the hash, for the handle of what is to be written.
    case locating
    /// One value, with a request of this ATT_MTU: a response of full length may not be the end.
    case reading(AttributeHandle, mtu: Int)
    /// The values of one type, from this handle on.
    case readingByType(from: Int)
    case readingMultiple
    case writing(Part)
    case preparing(Queueing)
    /// All parts are in the server's queue.
    case executing
    /// Execute Write with Flags 0x00: the caller has had its answer.
    case rollingBack
    /// Execute Write has been answered: the server's queue is empty.
    case executed
  }
  /// How much of a value has been prepared.
  struct Queueing: BitwiseCopyable, Equatable {
    /// The part that is being prepared, and how much of it has been.
    var part = 0, offset = 0
    /// Of the request in flight.
    var mtu = 23
    /// The server may hold something of ours in its queue: a Prepare Write has been answered.
    var hasPrepared = false
  }
  enum Outcome: BitwiseCopyable {
    case again
    case done
    /// `gathered` is the value.
    case value
    /// `gathered` holds values, each after its handle and length.
    case values
    case failed(ClientError)
  }
  /// A handle and, in `octets`, what is to be written there.
  struct Part: BitwiseCopyable, Equatable {
    var handle: AttributeHandle
    var value = Octets()
  }

  private(set) var caller: Caller
  private(set) var kind: Kind
  private(set) var phase: Phase
  /// What has been read.
  private(set) var gathered: [UInt8] = []
  private let parts: [Part]
  private var octets: [UInt8]
  /// Its place: so many commands of the bearer leave before its first PDU. Nil: that is not known yet, and it waits.
  var commandsBefore: UInt64? = 0

  init(_ caller: Caller, _ kind: Kind, parts: [Part] = [], octets: [UInt8] = []) {
    self.caller = caller
    self.kind = kind
    self.parts = parts
    self.octets = octets
    switch (kind, parts.first) {
    case (.read, let part?), (.readLong, let part?): phase = .reading(part.handle, mtu: 23)
    case (.readByType(let range, _), _): phase = .readingByType(from: Int(range.first.rawValue))
    case (.readMultiple, _), (.readMultipleVariable, _): phase = .readingMultiple
    case (.write, let part?): phase = .writing(part)
    case (.writeParts, _): phase = .preparing(Queueing())
    default: phase = .locating
    }
  }
  init(_ id: RequestID, _ kind: Kind, parts: [Part] = [], octets: [UInt8] = []) {
    self.init(.request(id), kind, parts: parts, octets: octets)
  }

  /// The Client Characteristic Configuration that a subscription writes.
  var configuration = ClientCharacteristicConfiguration()
  /// Where that is written has been found out.
  mutating func configure(_ descriptor: AttributeHandle) {
    let value = configuration.rawValue
    write([UInt8(truncatingIfNeeded: value), UInt8(value >> 8)], to: descriptor)
  }
  /// Goes on as a procedure of another kind, for the same caller.
  mutating func become(_ kind: Kind) { self.kind = kind }
  /// What is to be written, and where, has been found out.
  mutating func write(_ value: [UInt8], to handle: AttributeHandle) {
    octets = value
    phase = .writing(Part(handle: handle, value: Octets(0, value.count)))
  }
  /// The caller has gone.
  mutating func abandon() { if case .request = caller { caller = .none } }
  var isWanted: Bool { caller != .none }
  /// Asks for, or writes to, something in `range`.
  func touches(_ range: HandleRange) -> Bool {
    switch kind {
    case .subscribe(let handle, _), .unsubscribe(let handle): range.contains(handle)
    default: parts.contains { range.contains($0.handle) }
    }
  }

  /// What it asks for takes effect with a write, and not before.
  var isWriting: Bool {
    switch kind {
    case .write, .writeParts, .subscribe, .unsubscribe, .followChanges: true
    case .discover, .read, .readLong, .readByType, .readMultiple, .readMultipleVariable, .databaseHash, .rediscover:
      false
    }
  }
  /// The PDU that has just been written is the last of what it writes.
  var hasWrittenLast: Bool {
    // Following changes writes twice, and is a subscription by then.
    switch phase {
    case .writing: kind != .followChanges
    case .executing: true
    case .locating, .reading, .readingByType, .readingMultiple, .preparing, .rollingBack, .executed: false
    }
  }

  // MARK: Requests

  var opcode: ATTOpcode {
    switch phase {
    case .locating, .reading: gathered.isEmpty ? ReadRequest.opcode : ReadBlobRequest.opcode
    case .readingByType: ReadByTypeRequest.opcode
    case .readingMultiple:
      kind == .readMultiple ? ReadMultipleRequest.opcode : ReadMultipleVariableRequest.opcode
    case .writing: WriteRequest.opcode
    case .preparing: PrepareWriteRequest.opcode
    case .executing, .rollingBack, .executed: ExecuteWriteRequest.opcode
    }
  }

  /// Writes the next request; false when ATT_MTU has no room for it.
  mutating func writeRequest(mtu: Int, into output: inout OutputRawSpan) -> Bool {
    switch phase {
    case .reading(let handle, _): phase = .reading(handle, mtu: mtu)
    case .writing(let part) where Int(part.value.count) > mtu - 3: phase = .preparing(Queueing(mtu: mtu))
    case .preparing(var queueing):
      queueing.mtu = mtu
      phase = .preparing(queueing)
    case .locating, .readingByType, .readingMultiple, .writing, .executing, .rollingBack, .executed: break
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

  /// Nil while the client asks.
  private func request(handles: inout [UInt8]) throws(WireError) -> ATTPDU? {
    switch phase {
    case .locating, .executed: return nil
    case .readingByType(let next):
      guard case .readByType(let range, let type) = kind else { return nil }
      var request = ReadByTypeRequest()
      request.startingHandle.rawValue = UInt16(clamping: next)
      request.endingHandle = range.last
      request.attributeType = type
      return .readByTypeRequest(request)
    case .readingMultiple where kind == .readMultiple:
      var request = ReadMultipleRequest()
      request.setOfHandles = try List(parts.map { $0.handle }, in: &handles)
      return .readMultipleRequest(request)
    case .readingMultiple:
      var request = ReadMultipleVariableRequest()
      request.setOfHandles = try List(parts.map { $0.handle }, in: &handles)
      return .readMultipleVariableRequest(request)
    case .reading(let handle, _) where gathered.isEmpty:
      var request = ReadRequest()
      request.attributeHandle = handle
      return .readRequest(request)
    case .reading(let handle, _):
      var request = ReadBlobRequest()
      request.attributeHandle = handle
      request.valueOffset = UInt16(gathered.count)
      return .readBlobRequest(request)
    case .writing(let part):
      var request = WriteRequest()
      request.attributeHandle = part.handle
      request.attributeValue = part.value
      return .writeRequest(request)
    case .preparing(let queueing):
      var request = PrepareWriteRequest()
      request.attributeHandle = parts[queueing.part].handle
      request.valueOffset = UInt16(queueing.offset)
      request.partAttributeValue = piece(queueing)
      return .prepareWriteRequest(request)
    case .executing, .rollingBack:
      var request = ExecuteWriteRequest()
      request.flags = phase == .executing ? .write : .cancel
      return .executeWriteRequest(request)
    }
  }

  /// What fits of the part being prepared: ATT_MTU − 5 octets. Vol 3, Part F, §3.4.6.1.
  private func piece(_ queueing: Queueing) -> Octets {
    let value = parts[queueing.part].value
    return Octets(Int(value.offset) + queueing.offset, min(queueing.mtu - 5, Int(value.count) - queueing.offset))
  }

  // MARK: Responses

  mutating func receive(_ response: ATTPDU, in packet: Span<UInt8>, mtu: Int) -> Outcome {
    switch (phase, response) {
    case (.rollingBack, _): return .done
    case (_, .errorResponse(let error)): return refused(error)
    case (.readingByType(let next), .readByTypeResponse(let list)):
      return gather(list.attributeDataList, packet, from: next)
    case (.readingMultiple, .readMultipleResponse(let values)) where kind == .readMultiple:
      gathered.append(values.setOfValues, of: packet)
      return .value
    case (.readingMultiple, .readMultipleVariableResponse(let list)) where kind == .readMultipleVariable:
      return gather(list, packet)
    case (.reading, .readResponse(let value)) where kind == .read:
      return gather(value.attributeValue, packet) ?? .value
    case (.reading(_, let requestMTU), .readResponse(let value)) where gathered.isEmpty:
      return proceed(after: value.attributeValue, packet, min(mtu, requestMTU))
    case (.reading(_, let requestMTU), .readBlobResponse(let value)) where kind == .readLong && !gathered.isEmpty:
      return proceed(after: value.partAttributeValue, packet, min(mtu, requestMTU))
    case (.writing, .writeResponse): return .done
    case (.executing, .executeWriteResponse):
      phase = .executed
      return .done
    case (.preparing(let queueing), .prepareWriteResponse(let echo)): return prepared(queueing, echo, packet)
    default:
      mayHavePrepared()
      return .failed(.malformedResponse(.unexpectedResponse))
    }
  }
  /// The request has been answered in a way that does not say what the server's queue holds.
  private mutating func mayHavePrepared() {
    switch phase {
    case .preparing(var queueing):
      queueing.hasPrepared = true
      phase = .preparing(queueing)
    case .executing: phase = .executed
    default: break
    }
  }

  private mutating func refused(_ error: ErrorResponse) -> Outcome {
    let failure = Outcome.failed(.att(error.errorCode, opcode, error.attributeHandleInError))
    switch (phase, error.errorCode) {
    // The value ended exactly where a response did. Vol 3, Part F, §3.4.4.5: Invalid Offset is for offsets beyond the end
    // and Attribute Not Long for values that a Read returns whole, but servers send both here.
    case (.reading, .invalidOffset) where kind == .readLong && !gathered.isEmpty,
      (.reading, .attributeNotLong) where kind == .readLong && !gathered.isEmpty:
      return .value
    // Or the bearer's word for a response that does not decode: then the part may have been queued.
    case (.preparing, .invalidPDU), (.executing, _): mayHavePrepared()
    case (.readingByType, .attributeNotFound) where !gathered.isEmpty: return .values
    default: break
    }
    return failure
  }

  /// `nil` when there was room for it.
  private mutating func gather(_ value: Octets, _ packet: Span<UInt8>) -> Outcome? {
    guard gathered.count + Int(value.count) <= Self.maximumValueLength else {
      return .failed(.malformedResponse(.tooLong))
    }
    gathered.append(value, of: packet)
    return nil
  }

  /// A response shorter than ATT_MTU − 1 is the value's end (Vol 3, Part G, §4.8.3). The MTU may have grown between
  /// request and response; when in doubt, one request more does no harm.
  private mutating func proceed(after value: Octets, _ packet: Span<UInt8>, _ mtu: Int) -> Outcome {
    if let failure = gather(value, packet) { return failure }
    let isFull = Int(value.count) >= mtu - 1
    return isFull && gathered.count < Self.maximumValueLength ? .again : .value
  }

  private mutating func gather(
    _ list: List<AttributeData>, _ packet: Span<UInt8>, from next: Int
  ) -> Outcome {
    guard case .readByType(let range, _) = kind else { return .failed(.malformedResponse(.unexpectedResponse)) }
    let last = range.last
    var cursor = list.cursor, previous = next - 1
    while let entry = cursor.next(in: packet) {
      let handle = entry.attributeHandle
      guard Int(handle.rawValue) > previous else { return .failed(.malformedResponse(.handlesNotIncreasing(handle))) }
      guard handle.rawValue <= last.rawValue else { return .failed(.malformedResponse(.handleOutOfRange(handle))) }
      previous = Int(handle.rawValue)
      gathered.append(handle, entry.attributeValue, of: packet)
    }
    guard gathered.count <= Self.maximumGathered else { return .failed(.malformedResponse(.tooLong)) }
    guard previous >= next, previous < Int(last.rawValue) else { return .values }
    phase = .readingByType(from: previous + 1)
    return .again
  }

  /// The values come in the order of the handles; the last ones may be cut or missing for want of room, none may be added.
  /// Vol 3, Part F, §3.4.4.12.
  private mutating func gather(_ response: ReadMultipleVariableResponse, _ packet: Span<UInt8>) -> Outcome {
    var cursor = response.lengthValueTupleList.cursor, index = 0
    while let entry = cursor.next(in: packet) {
      guard index < parts.count else { return .failed(.malformedResponse(.tooLong)) }
      gathered.append(parts[index].handle, entry.attributeValue, of: packet)
      index += 1
    }
    let rest = response.truncatedTuple
    guard rest.count >= 2 else { return .values }
    guard index < parts.count else { return .failed(.malformedResponse(.tooLong)) }
    gathered.append(parts[index].handle, Octets(Int(rest.offset) + 2, Int(rest.count) - 2), of: packet, isCut: true)
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

  /// After a failure, or when the caller has gone: true when the server's queue must be emptied before the next request.
  mutating func rollBack() -> Bool {
    switch phase {
    case .executing: break
    case .preparing(let queueing) where queueing.hasPrepared: break
    case .locating, .reading, .readingByType, .readingMultiple, .writing, .preparing, .rollingBack, .executed:
      return false
    }
    phase = .rollingBack
    return true
  }

  /// Why this cannot be asked at all.
  var refusal: ClientError? {
    switch kind {
    case .readMultiple, .readMultipleVariable: return parts.count < 2 ? .invalidRequest : nil
    case .discover(let goal): return goal.range.isValid ? nil : .invalidRequest
    case .readByType(let range, _): return range.isValid ? nil : .invalidRequest
    case .write, .writeParts:
      if parts.isEmpty { return .invalidRequest }
      return parts.contains { $0.value.count > Self.maximumValueLength } ? .valueTooLong : nil
    case .read, .readLong, .subscribe, .unsubscribe, .followChanges, .databaseHash, .rediscover: return nil
    }
  }
  static var maximumValueLength: Int { 512 }
  /// Of one Read By Type over many attributes, handles and lengths included.
  static var maximumGathered: Int { 65_536 }
}

extension [UInt8] {
  mutating func append(_ value: Octets, of packet: Span<UInt8>) {
    let range = Int(value.offset)..<Int(value.offset) + Int(value.count)
    unsafe packet.extracting(range).withUnsafeBufferPointer { unsafe append(contentsOf: $0) }
  }
  /// A value after its handle and length, each two octets, least significant first; the length of one that has been cut
  /// has its highest bit set.
  mutating func append(_ handle: AttributeHandle, _ value: Octets, of packet: Span<UInt8>, isCut: Bool = false) {
    for number in [handle.rawValue, UInt16(clamping: value.count) | (isCut ? 0x8000 : 0)] {
      append(UInt8(truncatingIfNeeded: number))
      append(UInt8(number >> 8))
    }
    append(value, of: packet)
  }
}
