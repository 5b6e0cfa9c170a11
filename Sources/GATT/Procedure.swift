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
  enum Phase: BitwiseCopyable, Equatable {
    case reading
    case writing
    case preparing
    case executing
    /// Execute Write with Flags 0x00: the caller has had its answer.
    case rollingBack
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
  struct Part: BitwiseCopyable {
    var handle: AttributeHandle
    var value = Octets()
  }

  /// `nil` when nobody waits for the end: the caller has cancelled, or the client asks for itself.
  private(set) var id: RequestID?
  /// The client asks for itself.
  let isInternal: Bool
  private(set) var kind: Kind
  private(set) var phase: Phase
  private(set) var gathered: [UInt8] = []
  private var parts: [Part]
  private var octets: [UInt8]
  /// The part that is being prepared, and how much of it has been.
  private var part = 0, offset = 0
  /// The server may hold something of ours in its queue: a Prepare Write was answered, Execute Write not yet.
  private var hasPrepared = false
  /// The handle that the next Read By Type starts with.
  private var next = 1
  /// Of the request in flight: a Read answered in full length may go on.
  private var requestMTU = 23
  /// Its place: so many commands of the bearer leave before its first PDU. Nil: that is not known yet, and it waits.
  var commandsBefore: UInt64? = 0

  /// Without `id`, the client asks for itself.
  init(_ id: RequestID?, _ kind: Kind, parts: [Part] = [], octets: [UInt8] = []) {
    self.id = id
    isInternal = id == nil
    self.kind = kind
    self.parts = parts
    self.octets = octets
    switch kind {
    case .write, .subscribe, .unsubscribe, .followChanges: phase = .writing
    case .writeParts: phase = .preparing
    case .readByType(let range, _):
      phase = .reading
      next = Int(range.first.rawValue)
    default: phase = .reading
    }
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
    parts = [Part(handle: handle, value: Octets(0, value.count))]
    octets = value
  }
  /// The caller has gone.
  mutating func abandon() { id = nil }
  var isWanted: Bool { id != nil || isInternal }
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
    kind != .followChanges && (phase == .writing || phase == .executing)
  }

  // MARK: Requests

  var opcode: ATTOpcode {
    switch (phase, kind) {
    case (.reading, .readByType): ReadByTypeRequest.opcode
    case (.reading, .readMultiple): ReadMultipleRequest.opcode
    case (.reading, .readMultipleVariable): ReadMultipleVariableRequest.opcode
    case (.reading, _): gathered.isEmpty ? ReadRequest.opcode : ReadBlobRequest.opcode
    case (.writing, _): WriteRequest.opcode
    case (.preparing, _): PrepareWriteRequest.opcode
    case (.executing, _), (.rollingBack, _): ExecuteWriteRequest.opcode
    }
  }

  /// Writes the next request; false when ATT_MTU has no room for it.
  mutating func writeRequest(mtu: Int, into output: inout OutputRawSpan) -> Bool {
    requestMTU = mtu
    if phase == .writing, Int(parts[0].value.count) > mtu - 3 { phase = .preparing }
    var handles: [UInt8] = []
    guard let request = try? request(mtu: mtu, handles: &handles), handles.count < mtu else { return false }
    do {
      if handles.isEmpty {
        try request.encode(into: &output, from: octets.span)
      } else {
        try request.encode(into: &output, from: handles.span)
      }
      return true
    } catch { return false }
  }

  private func request(mtu: Int, handles: inout [UInt8]) throws(WireError) -> ATTPDU {
    switch (phase, kind) {
    case (.reading, .readByType(let range, let type)):
      var request = ReadByTypeRequest()
      request.startingHandle.rawValue = UInt16(clamping: next)
      request.endingHandle = range.last
      request.attributeType = type
      return .readByTypeRequest(request)
    case (.reading, .readMultiple):
      var request = ReadMultipleRequest()
      request.setOfHandles = try List(parts.map { $0.handle }, in: &handles)
      return .readMultipleRequest(request)
    case (.reading, .readMultipleVariable):
      var request = ReadMultipleVariableRequest()
      request.setOfHandles = try List(parts.map { $0.handle }, in: &handles)
      return .readMultipleVariableRequest(request)
    case (.reading, _) where gathered.isEmpty:
      var request = ReadRequest()
      request.attributeHandle = parts[0].handle
      return .readRequest(request)
    case (.reading, _):
      var request = ReadBlobRequest()
      request.attributeHandle = parts[0].handle
      request.valueOffset = UInt16(gathered.count)
      return .readBlobRequest(request)
    case (.writing, _):
      var request = WriteRequest()
      request.attributeHandle = parts[0].handle
      request.attributeValue = parts[0].value
      return .writeRequest(request)
    case (.preparing, _):
      var request = PrepareWriteRequest()
      request.attributeHandle = parts[part].handle
      request.valueOffset = UInt16(offset)
      request.partAttributeValue = piece(mtu)
      return .prepareWriteRequest(request)
    case (.executing, _), (.rollingBack, _):
      var request = ExecuteWriteRequest()
      request.flags = phase == .executing ? .write : .cancel
      return .executeWriteRequest(request)
    }
  }

  /// What fits of the part being prepared: ATT_MTU − 5 octets. Vol 3, Part F, §3.4.6.1.
  private func piece(_ mtu: Int) -> Octets {
    let value = parts[part].value
    return Octets(Int(value.offset) + offset, min(mtu - 5, Int(value.count) - offset))
  }

  // MARK: Responses

  mutating func receive(_ response: ATTPDU, in packet: Span<UInt8>, mtu: Int) -> Outcome {
    if phase == .executing || phase == .rollingBack { hasPrepared = false }
    switch (phase, kind, response) {
    case (.rollingBack, _, _): return .done
    case (_, _, .errorResponse(let error)): return refused(error)
    case (.reading, .readByType(let range, _), .readByTypeResponse(let list)):
      return gather(list.attributeDataList, packet, upTo: range.last)
    case (.reading, .readMultiple, .readMultipleResponse(let values)):
      gathered.append(values.setOfValues, of: packet)
      return .value
    case (.reading, .readMultipleVariable, .readMultipleVariableResponse(let list)):
      return gather(list, packet)
    case (.reading, .read, .readResponse(let value)):
      return gather(value.attributeValue, packet) ?? .value
    case (.reading, .readLong, .readResponse(let value)) where gathered.isEmpty:
      return goOn(after: value.attributeValue, packet, mtu)
    case (.reading, .readLong, .readBlobResponse(let value)) where !gathered.isEmpty:
      return goOn(after: value.partAttributeValue, packet, mtu)
    case (.writing, _, .writeResponse), (.executing, _, .executeWriteResponse): return .done
    case (.preparing, _, .prepareWriteResponse(let echo)): return prepared(echo, packet)
    default:
      if phase == .preparing { hasPrepared = true }
      return .failed(.malformedResponse(.unexpectedResponse))
    }
  }

  private mutating func refused(_ error: ErrorResponse) -> Outcome {
    switch (phase, kind, error.errorCode) {
    // The value ended exactly where a response did. Vol 3, Part F, §3.4.4.5: Invalid Offset is for offsets beyond the end
    // and Attribute Not Long for values that a Read returns whole, but servers send both here.
    case (.reading, .readLong, .invalidOffset) where !gathered.isEmpty,
      (.reading, .readLong, .attributeNotLong) where !gathered.isEmpty:
      return .value
    case (.preparing, _, .invalidPDU):
      // Or the bearer's word for a response that does not decode: then the part may have been queued.
      hasPrepared = true
      return .failed(.att(error.errorCode, opcode, error.attributeHandleInError))
    case (.reading, .readByType, .attributeNotFound) where !gathered.isEmpty: return .values
    default: return .failed(.att(error.errorCode, opcode, error.attributeHandleInError))
    }
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
  private mutating func goOn(after value: Octets, _ packet: Span<UInt8>, _ mtu: Int) -> Outcome {
    if let failure = gather(value, packet) { return failure }
    let isFull = Int(value.count) >= min(mtu, requestMTU) - 1
    return isFull && gathered.count < Self.maximumValueLength ? .again : .value
  }

  private mutating func gather(
    _ list: List<AttributeData>, _ packet: Span<UInt8>, upTo last: AttributeHandle
  ) -> Outcome {
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
    next = previous + 1
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

  private mutating func prepared(_ echo: PrepareWriteResponse, _ packet: Span<UInt8>) -> Outcome {
    hasPrepared = true
    let sent = piece(requestMTU), handle = parts[part].handle
    guard echo.attributeHandle == handle, Int(echo.valueOffset) == offset, echo.partAttributeValue.count == sent.count,
      (0..<Int(sent.count)).allSatisfy({ octets[Int(sent.offset) + $0] == echo.partAttributeValue.byte($0, in: packet) }
      )
    else { return .failed(.malformedResponse(.echo(handle))) }
    offset += Int(sent.count)
    if offset >= Int(parts[part].value.count) {
      part += 1
      offset = 0
    }
    if part == parts.count { phase = .executing }
    return .again
  }

  // MARK: Ends

  /// After a failure, or when the caller has gone: true when the server's queue must be emptied before the next request.
  mutating func rollBack() -> Bool {
    guard hasPrepared, phase != .rollingBack else { return false }
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
