import ATT
import BasicContainers
import BindruneWire
import DequeModule

/// A GATT server: answers a client's requests from a `Database`. Vol 3, Part F, §3.4; Vol 3, Part G, §4.
///
/// ## Overview
/// A value: it is handed requests by the bearers (`AttributeServer`), writes each response into the room it is given,
/// and tells the layer above in effects what clients wrote and subscribed to.
///
/// ## The order of errors
/// Vol 3, Part F, §4 leaves most of it open; here it is: the PDU's form (the bearer's, 0x04), the handle or range (0x01),
/// read or write permitted (0x02, 0x03), authentication and encryption (0x05, 0x0F: Vol 3, Part C, §10.3.1), offset (0x07),
/// length (0x0D), value (0xFD), resources (0x09, 0x11). An Error Response names the first attribute in error, except for
/// 0x0E and 0x11.
///
/// ## Dynamic values
/// Read, Read Blob, Write and Execute Write ask the application and are answered later (`answerRead`, `answerWrite`,
/// `refuse`). A list of values ends before a dynamic one; Read By Type asks the application if its first is dynamic.
/// The two Read Multiple requests, which cannot end early, answer 0x0E for it.
public struct Server: AttributeServer, ~Copyable {
  public internal(set) var database: Database
  public let configuration: ServerConfiguration
  var sessions = UniqueArray<Session>()
  var effects = Deque<ServerEffect>()
  /// Octets of the effects are the first `arenaCount`; there are none when all effects are taken.
  var arena: [UInt8] = []
  var arenaCount = 0
  private var lastRequest: UInt32 = 0

  public init(database: Database, configuration: ServerConfiguration = ServerConfiguration()) {
    self.database = database
    self.configuration = configuration
  }

  /// Changes a value that the server keeps. See `Database.setValue`.
  @discardableResult
  public mutating func setValue(_ handle: AttributeHandle, to value: Span<UInt8>) -> Bool {
    database.setValue(handle, to: value)
  }
  @discardableResult
  public mutating func setValue(_ handle: AttributeHandle, to value: [UInt8]) -> Bool {
    database.setValue(handle, to: value.span)
  }

  public mutating func respond(
    to request: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant, response: inout OutputRawSpan
  ) -> ServerAnswer {
    let start = response.byteCount
    do throws(Refusal) {
      guard let session = session(of: bearer), response.freeCapacity >= 5 else { throw Refusal(.unlikelyError) }
      // The bearer lets no request in while one waits: if one comes, the bearer has answered the other itself.
      if sessions[session].pending != nil { cancelRequest(ofSession: session) }
      switch request {
      case .findInformationRequest(let request): try findInformation(request, &response)
      case .findByTypeValueRequest(let request): try findByTypeValue(request, packet, session, &response)
      case .readByTypeRequest(let request): return try readByType(request, session, &response)
      case .readRequest(let request):
        return try read(request.attributeHandle, nil, ReadRequest.opcode, session, &response)
      case .readBlobRequest(let request):
        return try read(
          request.attributeHandle, Int(request.valueOffset), ReadBlobRequest.opcode, session, &response)
      case .readMultipleRequest(let request): try readMultiple(request, packet, session, &response)
      case .readByGroupTypeRequest(let request): try readByGroupType(request, session, &response)
      case .writeRequest(let request): return try write(request, packet, session, &response)
      case .prepareWriteRequest(let request): try prepareWrite(request, packet, session, &response)
      case .executeWriteRequest(let request): return try executeWrite(request, session, &response)
      case .readMultipleVariableRequest(let request): try readMultipleVariable(request, packet, session, &response)
      default: throw Refusal(.requestNotSupported)
      }
    } catch {
      response.truncate(to: start)
      error.append(to: &response, request: ATTOpcode(rawValue: packet.isEmpty ? 0 : packet[0]))
    }
    return .now
  }

  public mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
    // A Signed Write Command is ignored until there are keys to check it with: Vol 3, Part F, §3.4.5.4.
    guard case .writeCommand(let command) = command, let session = session(of: bearer) else { return }
    let value = packet.extracting(command.attributeValue.range)
    do throws(Refusal) {
      let position = try writable(command.attributeHandle, session)
      try checkWrite(position, at: 0, value)
      guard hasRoom(effects: 1, octets: value.count) else { return }
      apply(position, value, session)
    } catch {
      // Vol 3, Part F, §3.4.5.3: no response, and no error either.
    }
  }

  /// Nothing depends on it yet: the bearer tells the layer above itself.
  public mutating func confirmed(on bearer: BearerID, now: Instant) {}

  /// The id of a new question, which the bearer then waits for.
  private mutating func ask(
    _ kind: PendingRequest.Kind, _ handle: AttributeHandle, _ session: Int
  ) -> ServerRequestID {
    lastRequest &+= 1
    let id = ServerRequestID(rawValue: lastRequest)
    sessions[session].pending = PendingRequest(id: id, kind: kind, handle: handle)
    return id
  }
}

/// Why a request is not fulfilled: the last two fields of an Error Response. Vol 3, Part F, §3.4.1.1.
struct Refusal: Error {
  var handle: AttributeHandle
  var error: ATTError
  /// Insufficient Resources and Unlikely Error are of no attribute, whatever was being done: Vol 3, Part F, §3.3.
  init(_ handle: AttributeHandle, _ error: ATTError) {
    self.handle = error == .insufficientResources || error == .unlikelyError ? AttributeHandle() : handle
    self.error = error
  }
  /// Of no attribute in particular: handle 0x0000.
  init(_ error: ATTError) { self.init(AttributeHandle(), error) }
  /// Writes the Error Response; nothing where there is no room for it, which no ATT_MTU is.
  func append(to response: inout OutputRawSpan, request: ATTOpcode) {
    guard response.freeCapacity >= 5 else { return }
    response.append(ErrorResponse.opcode.rawValue)
    response.append(request.rawValue)
    response.append(littleEndian: handle.rawValue)
    response.append(error.rawValue)
  }
}

// MARK: - Permissions

extension Server {
  /// The position of the attribute that the client wants to read.
  @inline(__always)
  func readable(_ handle: AttributeHandle, _ session: Int) throws(Refusal) -> Int {
    guard let position = database.position(of: handle) else { throw Refusal(handle, .invalidHandle) }
    if let error = readError(position, session) { throw Refusal(handle, error) }
    return position
  }
  @inline(__always)
  func writable(_ handle: AttributeHandle, _ session: Int) throws(Refusal) -> Int {
    guard let position = database.position(of: handle) else { throw Refusal(handle, .invalidHandle) }
    let access = database.attributes[position].permissions.write
    if let error = error(access, .writeNotPermitted, session) { throw Refusal(handle, error) }
    return position
  }
  @inline(__always)
  func readError(_ position: Int, _ session: Int) -> ATTError? {
    error(database.attributes[position].permissions.read, .readNotPermitted, session)
  }
  /// Vol 3, Part C, §10.3.1: without a key the client is asked to pair (0x05), with one to encrypt (0x0F).
  @inline(__always)
  private func error(_ access: AttributePermissions.Access, _ forbidden: ATTError, _ session: Int) -> ATTError? {
    access == .open ? nil : protectedError(access, forbidden, sessions[session].security)
  }
  private func protectedError(
    _ access: AttributePermissions.Access, _ forbidden: ATTError, _ security: BearerSecurity
  ) -> ATTError? {
    let needed: BearerSecurity
    switch access {
    case .open: return nil
    case .none: return forbidden
    case .encrypted: needed = .encrypted
    case .authenticated: needed = .authenticated
    }
    if security >= needed { return nil }
    return security == .keysAvailable ? .insufficientEncryption : .insufficientAuthentication
  }
  /// Vol 3, Part F, §3.4.3.1 and others: 0x0000 and a range that runs backwards are errors of the starting handle.
  @inline(__always)
  private func checkRange(_ start: AttributeHandle, _ end: AttributeHandle) throws(Refusal) {
    guard start.rawValue != 0, start.rawValue <= end.rawValue else { throw Refusal(start, .invalidHandle) }
  }
}

// MARK: - Finding. Vol 3, Part F, §3.4.3

extension Server {
  private func findInformation(_ request: FindInformationRequest, _ response: inout OutputRawSpan) throws(Refusal) {
    try checkRange(request.startingHandle, request.endingHandle)
    var position = database.firstPosition(from: request.startingHandle)
    let nothing = Span<UInt8>()
    var format = 0
    while position < database.attributes.count {
      let attribute = database.attributes[position]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      var entry = InformationData()
      entry.handle = attribute.handle
      entry.uuid = database.uuids[Int(attribute.type)].uuid
      if format == 0 {
        format = entry.uuid.count
        response.append(FindInformationResponse.opcode.rawValue)
        response.append(format == 2 ? InformationFormat.short.rawValue : InformationFormat.long.rawValue)
      }
      // §3.4.3.2: one format a response.
      guard entry.uuid.count == format, entry.append(to: &response, from: nothing) else { break }
      position &+= 1
    }
    if format == 0 { throw Refusal(request.startingHandle, .attributeNotFound) }
  }

  private func findByTypeValue(
    _ request: FindByTypeValueRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    try checkRange(request.startingHandle, request.endingHandle)
    let value = packet.extracting(request.attributeValue.range)
    let start = response.byteCount
    response.append(FindByTypeValueResponse.opcode.rawValue)
    let isService = request.attributeType.rawValue == 0x2800 || request.attributeType.rawValue == 0x2801
    guard let index = database.index(of: .short(request.attributeType.rawValue)) else {
      throw Refusal(request.startingHandle, .attributeNotFound)
    }
    let type = UInt16(truncatingIfNeeded: index)
    let list = isService ? database.byService : database.byType
    var group = isService ? 0..<0 : database.uuids[index].types
    // A service's UUID is indexed; a value that is no UUID is no service's.
    if isService, let uuid = BluetoothUUID(value), let index = database.index(of: uuid) {
      group = database.uuids[index].services
    }
    let nothing = Span<UInt8>()
    let first = database.firstPosition(from: request.startingHandle)
    for index in Database.lowerBound(list, group, first)..<group.upperBound {
      let position = Int(list[index])
      let attribute = database.attributes[position]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if isService {
        // Two UUIDs that are equal and equally long are the same octets; a declaration may be of the other kind.
        guard attribute.type == type, Int(attribute.count) == value.count else { continue }
      } else {
        guard matches(position, value, session) else { continue }
      }
      var entry = HandlesInformation()
      entry.foundAttributeHandle = attribute.handle
      entry.groupEndHandle = attribute.groupEnd
      guard entry.append(to: &response, from: nothing) else { break }
    }
    if response.byteCount == start + 1 { throw Refusal(request.startingHandle, .attributeNotFound) }
  }
  /// A value that the client may not read is not compared: a match would tell it.
  private func matches(_ position: Int, _ value: Span<UInt8>, _ session: Int) -> Bool {
    let attribute = database.attributes[position]
    if readError(position, session) != nil { return false }
    switch attribute.kind {
    case .dynamic: return false
    case .configuration:
      let configuration = sessions[session].configurations[Int(attribute.slot)].rawValue
      return value.count == 2 && UInt16(value[0]) | UInt16(value[1]) << 8 == configuration
    case .stored:
      guard value.count == Int(attribute.count) else { return false }
      let from = Int(attribute.start)
      for i in 0..<value.count where database.values[from &+ i] != value[i] { return false }
      return true
    }
  }
}

// MARK: - Reading. Vol 3, Part F, §3.4.4

extension Server {
  private mutating func readByType(
    _ request: ReadByTypeRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    try checkRange(request.startingHandle, request.endingHandle)
    guard let type = database.index(of: request.attributeType) else {
      throw Refusal(request.startingHandle, .attributeNotFound)
    }
    let group = database.uuids[type].types
    let first = database.firstPosition(from: request.startingHandle)
    var length = -1
    for index in Database.lowerBound(database.byType, group, first)..<group.upperBound {
      let position = Int(database.byType[index])
      let attribute = database.attributes[position]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if let error = readError(position, session) {
        // §3.4.4.1: an error of the first attribute is the answer, one of a later attribute ends the list.
        if length < 0 { throw Refusal(attribute.handle, error) }
        break
      }
      if attribute.kind == .dynamic {
        if length >= 0 { break }
        return try askToRead(attribute.handle, 0, ReadByTypeRequest.opcode, session)
      }
      // §3.4.4.2: a value is cut to what one response can carry, and its length to what one octet can say.
      let count = min(Int(attribute.count), 253, length < 0 ? response.freeCapacity &- 4 : 253)
      if length < 0 {
        length = count
        response.append(ReadByTypeResponse.opcode.rawValue)
        response.append(UInt8(truncatingIfNeeded: count &+ 2))
      }
      guard count == length, response.freeCapacity >= count &+ 2 else { break }
      response.append(littleEndian: attribute.handle.rawValue)
      appendValue(position, from: 0, atMost: count, session, &response)
    }
    if length < 0 { throw Refusal(request.startingHandle, .attributeNotFound) }
    return .now
  }

  /// Read (`offset` nil) and Read Blob.
  private mutating func read(
    _ handle: AttributeHandle, _ offset: Int?, _ opcode: ATTOpcode, _ session: Int,
    _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let position = try readable(handle, session)
    let attribute = database.attributes[position]
    if attribute.kind == .dynamic { return try askToRead(handle, offset ?? 0, opcode, session) }
    let from = offset ?? 0
    guard from <= Int(attribute.count) else { throw Refusal(handle, .invalidOffset) }
    // §3.4.4.5 allows 0x0B for a short value; an answer helps the client more.
    response.append(offset == nil ? ReadResponse.opcode.rawValue : ReadBlobResponse.opcode.rawValue)
    appendValue(position, from: from, atMost: response.freeCapacity, session, &response)
    return .now
  }

  private func readMultiple(
    _ request: ReadMultipleRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    response.append(ReadMultipleResponse.opcode.rawValue)
    var cursor = request.setOfHandles.cursor
    while let handle = cursor.next(in: packet) {
      let position = try storedValue(handle, session)
      // §3.4.4.8: what exceeds ATT_MTU − 1 octets is cut off; a later handle can still be in error.
      appendValue(position, from: 0, atMost: response.freeCapacity, session, &response)
    }
  }

  private func readMultipleVariable(
    _ request: ReadMultipleVariableRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    response.append(ReadMultipleVariableResponse.opcode.rawValue)
    var cursor = request.setOfHandles.cursor
    var isFull = false
    while let handle = cursor.next(in: packet) {
      let position = try storedValue(handle, session)
      // §3.4.4.12: the list is cut at ATT_MTU − 1 octets; Value Length tells the whole length of a value that is cut.
      if response.freeCapacity < 2 { isFull = true }
      if isFull { continue }
      response.append(littleEndian: database.attributes[position].count)
      appendValue(position, from: 0, atMost: response.freeCapacity, session, &response)
    }
  }
  private func storedValue(_ handle: AttributeHandle, _ session: Int) throws(Refusal) -> Int {
    let position = try readable(handle, session)
    if database.attributes[position].kind == .dynamic { throw Refusal(handle, .unlikelyError) }
    return position
  }

  private func readByGroupType(
    _ request: ReadByGroupTypeRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    try checkRange(request.startingHandle, request.endingHandle)
    // Vol 3, Part G, §2.5.3: the Characteristic grouping type is not for this request.
    guard request.attributeGroupType == .primaryService || request.attributeGroupType == .secondaryService else {
      throw Refusal(request.startingHandle, .unsupportedGroupType)
    }
    let group = database.index(of: request.attributeGroupType).map { database.uuids[$0].types } ?? 0..<0
    let first = database.firstPosition(from: request.startingHandle)
    let values = database.values.span
    var length = -1
    for index in Database.lowerBound(database.byType, group, first)..<group.upperBound {
      let attribute = database.attributes[Int(database.byType[index])]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if length < 0 {
        length = Int(attribute.count)
        response.append(ReadByGroupTypeResponse.opcode.rawValue)
        response.append(UInt8(truncatingIfNeeded: length &+ 4))
      }
      var entry = GroupData()
      entry.attributeHandle = attribute.handle
      entry.endGroupHandle = attribute.groupEnd
      entry.attributeValue = Octets(Int(attribute.start), Int(attribute.count))
      guard Int(attribute.count) == length, entry.append(to: &response, from: values) else { break }
    }
    if length < 0 { throw Refusal(request.startingHandle, .attributeNotFound) }
  }

  /// Appends at most `limit` octets of a value that the server keeps, from `offset` on, which is within it.
  @inline(__always)
  private func appendValue(
    _ position: Int, from offset: Int, atMost limit: Int, _ session: Int, _ response: inout OutputRawSpan
  ) {
    let attribute = database.attributes[position]
    let count = min(Int(attribute.count) &- offset, limit)
    if attribute.kind == .configuration {
      let configuration = sessions[session].configurations[Int(attribute.slot)].rawValue
      for i in offset..<(offset &+ count) { response.append(UInt8(truncatingIfNeeded: configuration >> (8 * i))) }
    } else {
      let from = Int(attribute.start) &+ offset
      response.append(contentsOf: database.values.span.extracting(from..<(from &+ count)))
    }
  }
  private mutating func askToRead(
    _ handle: AttributeHandle, _ offset: Int, _ opcode: ATTOpcode, _ session: Int
  ) throws(Refusal) -> ServerAnswer {
    guard hasRoom(effects: 1, octets: 0) else { throw Refusal(handle, .insufficientResources) }
    let id = ask(.read(opcode), handle, session)
    effects.append(
      .readRequested(id, sessions[session].bearer, handle, offset: UInt16(truncatingIfNeeded: offset)))
    return .later
  }
}

// MARK: - Writing. Vol 3, Part F, §3.4.5

extension Server {
  private mutating func write(
    _ request: WriteRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let handle = request.attributeHandle
    let value = packet.extracting(request.attributeValue.range)
    let position = try writable(handle, session)
    try checkWrite(position, at: 0, value)
    guard hasRoom(effects: 1, octets: value.count) else { throw Refusal(handle, .insufficientResources) }
    if database.attributes[position].kind == .dynamic {
      let id = ask(.write, handle, session)
      effects.append(.writeRequested(id, sessions[session].bearer, handle, offset: 0, keep(value)))
      return .later
    }
    apply(position, value, session)
    response.append(WriteResponse.opcode.rawValue)
    return .now
  }

  /// Whether `part` may be written at `offset`, as far as length and value go.
  @inline(__always)
  private func checkWrite(_ position: Int, at offset: Int, _ part: Span<UInt8>) throws(Refusal) {
    let attribute = database.attributes[position]
    // §3.4.5.1: a fixed-length value takes fewer octets than it has, not more. §3.2.9: at most 512.
    guard offset &+ part.count <= Int(attribute.maximum) else {
      throw Refusal(attribute.handle, .invalidAttributeValueLength)
    }
    if attribute.kind == .configuration, !accepts(configuration: Int(attribute.slot), at: offset, part) {
      throw Refusal(attribute.handle, .clientCharacteristicConfigurationImproperlyConfigured)
    }
  }

  /// Does a write that was checked, and says so. A dynamic value goes to the application, unasked.
  @inline(__always)
  private mutating func apply(_ position: Int, _ value: Span<UInt8>, _ session: Int) {
    let attribute = database.attributes[position]
    if attribute.kind == .configuration { return configure(session, slot: Int(attribute.slot), at: 0, value) }
    if attribute.kind == .stored { database.replace(position, with: value) }
    effects.append(.written(sessions[session].bearer, attribute.handle, offset: 0, keep(value)))
  }
}

// MARK: - Queued writes. Vol 3, Part F, §3.4.6

extension Server {
  private mutating func prepareWrite(
    _ request: PrepareWriteRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    // §3.4.6.1: permissions now, offset and length when the queue is executed.
    _ = try writable(request.attributeHandle, session)
    let part = packet.extracting(request.partAttributeValue.range)
    guard
      sessions[session].prepared.append(
        request.attributeHandle, Int(request.valueOffset), part, limits: configuration)
    else { throw Refusal(request.attributeHandle, .prepareQueueFull) }
    var echo = PrepareWriteResponse()
    echo.attributeHandle = request.attributeHandle
    echo.valueOffset = request.valueOffset
    echo.partAttributeValue = request.partAttributeValue
    response.append(PrepareWriteResponse.opcode.rawValue)
    // A request that fits the MTU has an echo that does.
    guard echo.append(to: &response, from: packet) else { throw Refusal(request.attributeHandle, .invalidPDU) }
  }

  private mutating func executeWrite(
    _ request: ExecuteWriteRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    switch request.flags {
    case 0x00: sessions[session].prepared.removeAll()
    case 0x01: if try executePrepared(session, asking: true) == .later { return .later }
    default: throw Refusal(.invalidPDU)
    }
    response.append(ExecuteWriteResponse.opcode.rawValue)
    return .now
  }

  /// Writes the whole queue or nothing of it. In both cases the queue is empty afterwards, unless the application has
  /// to be asked first: then it is `asking`, and the queue waits.
  ///
  /// The application can agree to one write at a time: a queue with a second one for it is refused with 0x0E.
  mutating func executePrepared(_ session: Int, asking: Bool) throws(Refusal) -> ServerAnswer {
    var queue = PreparedWrites()
    swap(&queue, &sessions[session].prepared)
    defer { swap(&queue, &sessions[session].prepared) }
    do throws(Refusal) {
      let dynamic = try check(queue, session)
      guard hasRoom(effects: queue.runs.count, octets: queue.bytes.count) else { throw Refusal(.insufficientResources) }
      if asking, let run = dynamic {
        let id = ask(.execute, run.handle, session)
        let octets = keep(queue.bytes.span.extracting(run.octets))
        effects.append(
          .writeRequested(
            id, sessions[session].bearer, run.handle, offset: UInt16(truncatingIfNeeded: run.offset), octets))
        return .later
      }
    } catch {
      queue.removeAll()
      throw error
    }
    commit(queue, session)
    queue.removeAll()
    return .now
  }

  /// Whether every write of the queue can be done. Returns the one that the application has to agree to, if any.
  private func check(_ queue: borrowing PreparedWrites, _ session: Int) throws(Refusal) -> PreparedWrites.Run? {
    var dynamic: PreparedWrites.Run?
    for index in queue.runs.indices {
      let run = queue.runs[index]
      let position = try writable(run.handle, session)
      let attribute = database.attributes[position]
      if attribute.kind == .dynamic {
        if dynamic != nil { throw Refusal(run.handle, .unlikelyError) }
        dynamic = run
      } else {
        // §3.4.6.3: an offset is good up to the length that the value has after the writes before it.
        guard run.offset <= max(Int(attribute.count), queue.end(of: run.handle, before: index)) else {
          throw Refusal(run.handle, .invalidOffset)
        }
      }
      try checkWrite(position, at: run.offset, queue.bytes.span.extracting(run.octets))
    }
    return dynamic
  }

  /// Does a queue that was checked. A value of variable length that was written from its first octet on ends with what
  /// was written, as it would after a Write Request (§3.4.5.1); otherwise the octets not written stay.
  private mutating func commit(_ queue: borrowing PreparedWrites, _ session: Int) {
    let bearer = sessions[session].bearer
    for index in queue.runs.indices {
      let run = queue.runs[index]
      guard let position = database.position(of: run.handle) else { continue }
      let attribute = database.attributes[position]
      let octets = queue.bytes.span.extracting(run.octets)
      switch attribute.kind {
      case .dynamic: continue
      case .configuration: configure(session, slot: Int(attribute.slot), at: run.offset, octets)
      case .stored:
        database.write(position, at: run.offset, octets)
        effects.append(.written(bearer, run.handle, offset: UInt16(truncatingIfNeeded: run.offset), keep(octets)))
      }
    }
    for index in queue.runs.indices where queue.runs[index].offset == 0 {
      let run = queue.runs[index]
      guard let position = database.position(of: run.handle) else { continue }
      let attribute = database.attributes[position]
      guard attribute.kind == .stored, !attribute.isFixed else { continue }
      database.attributes[position].count = UInt16(
        truncatingIfNeeded: queue.end(of: run.handle, before: queue.runs.count))
    }
  }
}

// MARK: - Small things

extension WireRecord {
  /// Appends a list's entry; false when there is no room for it, and then nothing is written.
  @inline(__always)
  func append(to output: inout OutputRawSpan, from source: Span<UInt8>) -> Bool {
    do throws(WireError) {
      try encode(into: &output, from: source)
      return true
    } catch {
      return false
    }
  }
}

extension Octets {
  var range: Range<Int> { Int(offset)..<(Int(offset) &+ Int(count)) }
}

extension BluetoothUUID {
  /// `nil` unless `bytes` are 2 or 16 octets.
  init?(_ bytes: Span<UInt8>) {
    do throws(WireError) { self = try Decoder.decode(ServiceDeclaration.self, bytes).serviceUUID } catch { return nil }
  }
}
