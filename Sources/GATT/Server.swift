import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// A GATT server: answers a client's requests from a `Database`. Vol 3, Part F, §3.4; Vol 3, Part G, §4.
///
/// ## Overview
/// A value: bearers hand it requests (`AttributeServer`), and it writes each response into the room that they give it.
/// Its effects report to the layer above what clients wrote and subscribed to.
///
/// ## The order of errors
/// Where more than one applies, the Specification lets the server choose (Vol 3, Part F, §3.4.1.1). This server's
/// order:
///
/// | what is wrong | error | fixed by |
/// |---|---|---|
/// | the PDU's form | 0x04, the bearer's; 0x06 for other PDUs | Vol 3, Part F, §3.3 |
/// | the client does not know the database | 0x12 | Vol 3, Part G, §2.5.2.1 |
/// | the range | 0x01 | Vol 3, Part F, §3.4.3.1 … §3.4.4.9 |
/// | the grouping type | 0x10 | Vol 3, Part F, §3.4.4.9 |
/// | the handle | 0x01 | |
/// | read or write not permitted | 0x02, 0x03 | |
/// | authorization | 0x08 | |
/// | authentication, encryption | 0x05 without a key, 0x0F with one | Vol 3, Part C, §10.3.1 |
/// | key size | 0x0C | |
/// | offset, then length | 0x07, 0x0D | of queued writes when they are executed: Vol 3, Part F, §3.4.6.1 |
/// | value | 0xFD, 0x13 | |
/// | room | 0x09, 0x11 | |
///
/// An Error Response names the first attribute in error (§3.4.4.7), except for 0x0E and 0x11 (§3.3). Commands are never
/// answered (§3.4.5.3).
///
/// ## Queued writes
/// A queue may hold writes to any values that the client may write, also to several, whatever the Reliable Write bit of
/// their Characteristic Extended Properties (Vol 3, Part G, §3.3.3.1). The bit tells a client where it may use the
/// sub-procedure of §4.9.5. A server that refused the PDUs could not distinguish that sub-procedure from a long write
/// (§4.9.4), and Prepare Write Request has no error for a missing bit (Vol 3, Part F, §3.4.6.1).
///
/// ## Dynamic values
/// The server asks the application, which answers later (`answerRead`, `answerWrite`, `refuse`), also for lists over
/// several of them: `ServerReads`. Only Find By Type Value skips dynamic values: no GATT procedure asks for them (Vol
/// 3, Part G, §4.4.2).
///
/// ## Why nearly everything is mutating
/// For speed: a borrowed value as large as a server is copied for a call, at some 30 instructions.
public struct Server: AttributeServer, ~Copyable {
  public internal(set) var database: Database
  public let configuration: ServerConfiguration
  /// In the order in which they connected.
  var clients = UniqueArray<ClientState>()
  /// All clients' bearers, in the order in which they were opened.
  var sessions = UniqueArray<BearerSession>()
  /// Index in `sessions`, by bearer.
  var places = PlaceTable()
  @usableFromInline var effects = Deque<ServerEffect>()
  /// The octets of the effects are its first `arenaCount`, and are dropped once all effects are taken.
  @usableFromInline var arena: [UInt8] = []
  @usableFromInline var arenaCount = 0
  /// The bearer's name for the request in progress.
  var serving = RequestTicket(bearer: BearerID(rawValue: 0), number: 0)
  private var lastRequest: UInt32 = 0
  /// Questions that need no answer any more, and why, the latest last.
  var ended = Deque<EndedRequest>()
  /// Changes of the database, the latest last, for bonded clients that missed them.
  var changes = Deque<DatabaseChange>()
  /// A bonded client's record has changed and is not stored yet.
  @usableFromInline var hasUnstoredRecord = false
  /// False when `takeServiceChanged` has nothing for any bearer.
  public internal(set) var hasServiceChanged = false

  public init(database: Database, configuration: ServerConfiguration = ServerConfiguration()) {
    self.database = database
    self.configuration = configuration
  }

  /// Changes a value that the server stores. See `Database.setValue`.
  @discardableResult
  public mutating func setValue(_ handle: AttributeHandle, to value: Span<UInt8>) -> Bool {
    database.setValue(handle, to: value)
  }
  @discardableResult
  public mutating func setValue(_ handle: AttributeHandle, to value: [UInt8]) -> Bool {
    database.setValue(handle, to: value.span)
  }

  /// Disables or enables the contents of a service. See `Database.setEnabled`.
  public mutating func setEnabled(_ isEnabled: Bool, service: AttributeHandle) {
    database.setEnabled(isEnabled, service: service)
  }

  public mutating func respond(
    to request: ATTPDU, in packet: Span<UInt8>, as ticket: RequestTicket, now: Instant, response: inout OutputRawSpan
  ) -> ServerAnswer {
    let start = response.byteCount
    do throws(Refusal) {
      guard let session = session(of: ticket.bearer), response.freeCapacity >= 5 else { throw Refusal(.unlikelyError) }
      // A bearer admits no request while one waits; for any other caller the later one replaces the earlier.
      if sessions[session].pending != nil { cancelRequest(ofSession: session) }
      if clients[sessions[session].client].awareness != .aware { try receive(request, packet, fromUnaware: session) }
      serving = ticket
      switch request {
      case .findInformationRequest(let request): try findInformation(request, &response)
      case .findByTypeValueRequest(let request): try findByTypeValue(request, packet, session, &response)
      case .readByTypeRequest(let request): return try readByType(request, session, &response)
      case .readRequest(let request):
        return try read(request.attributeHandle, nil, ReadRequest.opcode, session, &response)
      case .readBlobRequest(let request):
        return try read(request.attributeHandle, Int(request.valueOffset), ReadBlobRequest.opcode, session, &response)
      case .readMultipleRequest(let request):
        return try readMultiple(request.setOfHandles.octets, in: packet, ReadMultipleRequest.opcode, session, &response)
      case .readByGroupTypeRequest(let request): try readByGroupType(request, session, &response)
      case .writeRequest(let request): return try write(request, packet, session, &response)
      case .prepareWriteRequest(let request): try prepareWrite(request, packet, session, &response)
      case .executeWriteRequest(let request): return try executeWrite(request, session, &response)
      case .readMultipleVariableRequest(let request):
        return try readMultiple(
          request.setOfHandles.octets, in: packet, ReadMultipleVariableRequest.opcode, session, &response)
      case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationResponse,
        .findByTypeValueResponse, .readByTypeResponse, .readResponse, .readBlobResponse, .readMultipleResponse,
        .readByGroupTypeResponse, .writeResponse, .prepareWriteResponse, .executeWriteResponse,
        .handleValueNotification, .handleValueIndication, .handleValueConfirmation, .readMultipleVariableResponse,
        .multipleHandleValueNotification, .writeCommand, .signedWriteCommand:
        throw Refusal(.requestNotSupported)
      }
    } catch {
      response.truncate(to: start)
      error.append(to: &response, request: ATTOpcode(rawValue: packet.isEmpty ? 0 : packet[0]))
    }
    return .now
  }

  public mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
    guard let session = session(of: bearer) else { return }
    switch command {
    case .writeCommand(let command):
      write(command.attributeHandle, packet.extracting(command.attributeValue.range), session)
    case .signedWriteCommand(let command):
      guard let signature = verify(command, packet, session) else { return }
      write(
        command.attributeHandle, packet.extracting(command.attributeValue.range), session, signature: signature)
    case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationRequest, .findInformationResponse,
      .findByTypeValueRequest, .findByTypeValueResponse, .readByTypeRequest, .readByTypeResponse, .readRequest,
      .readResponse, .readBlobRequest, .readBlobResponse, .readMultipleRequest, .readMultipleResponse,
      .readByGroupTypeRequest, .readByGroupTypeResponse, .writeRequest, .writeResponse, .prepareWriteRequest,
      .prepareWriteResponse, .executeWriteRequest, .executeWriteResponse, .handleValueNotification,
      .handleValueIndication, .handleValueConfirmation, .readMultipleVariableRequest, .readMultipleVariableResponse,
      .multipleHandleValueNotification:
      break
    }
  }
  @inline(__always)
  private mutating func write(
    _ handle: AttributeHandle, _ value: Span<UInt8>, _ session: Int, signature: BearerSecurity = .none
  ) {
    if ignoresDatabase(session) { return }
    do throws(Refusal) {
      let position = try writable(handle, session, signature: signature)
      try checkWrite(position, at: 0, value, session)
      guard hasRoom(effects: 1, octets: value.count) else { return }
      apply(position, value, session)
    } catch {
      // Vol 3, Part F, §3.4.5.3: no response, and no error either.
    }
  }

  /// Assigns the id of a new question, whose answer the bearer then awaits. The answer has `room` octets: the current
  /// ATT_MTU applies to it even if an exchange changes it meanwhile. Vol 3, Part F, §3.4.2.2.
  mutating func ask(
    _ kind: PendingRequest.Kind, _ handle: AttributeHandle, room: Int, _ session: Int
  ) -> ServerRequestID {
    lastRequest &+= 1
    let id = ServerRequestID(rawValue: lastRequest)
    sessions[session].pending = PendingRequest(id: id, ticket: serving, kind: kind, handle: handle, room: room)
    return id
  }
}

/// Why the server refuses a request: the last two fields of an Error Response. Vol 3, Part F, §3.4.1.1.
struct Refusal: Error {
  var handle: AttributeHandle
  var error: ATTError
  /// Insufficient Resources and Unlikely Error name no attribute: Vol 3, Part F, §3.3.
  init(_ handle: AttributeHandle, _ error: ATTError) {
    self.handle = error == .insufficientResources || error == .unlikelyError ? AttributeHandle() : handle
    self.error = error
  }
  /// An error of no attribute in particular: handle 0x0000.
  init(_ error: ATTError) { self.init(AttributeHandle(), error) }
  /// Writes the Error Response, or nothing if it does not fit, which no valid ATT_MTU causes.
  func append(to response: inout OutputRawSpan, request: ATTOpcode) {
    guard response.freeCapacity >= 5 else { return }
    response.append(ErrorResponse.opcode.rawValue)
    response.append(request.rawValue)
    response.append(littleEndian: handle.rawValue)
    response.append(error.rawValue)
  }
}

// MARK: - Finding. Vol 3, Part F, §3.4.3

extension Server {
  /// Vol 3, Part F, §3.4.3.1 and others: 0x0000 and a reversed range are errors of the starting handle.
  @inline(__always)
  mutating func checkRange(_ start: AttributeHandle, _ end: AttributeHandle) throws(Refusal) {
    guard start.rawValue != 0, start.rawValue <= end.rawValue else { throw Refusal(start, .invalidHandle) }
  }
  private mutating func findInformation(_ request: FindInformationRequest, _ response: inout OutputRawSpan)
    throws(Refusal)
  {
    try checkRange(request.startingHandle, request.endingHandle)
    let attributes = database.attributes.span, uuids = database.uuids.span
    var position = database.firstPosition(from: request.startingHandle)
    guard position < attributes.count, attributes[position].handle.rawValue <= request.endingHandle.rawValue else {
      throw Refusal(request.startingHandle, .attributeNotFound)
    }
    response.append(FindInformationResponse.opcode.rawValue)
    // §3.4.3.2: one format a response.
    if case .short = uuids[Int(attributes[position].type)].uuid {
      response.append(InformationFormat.short.rawValue)
      while position < attributes.count, response.freeCapacity >= 4 {
        let attribute = attributes[position]
        guard attribute.handle.rawValue <= request.endingHandle.rawValue,
          case .short(let uuid) = uuids[Int(attribute.type)].uuid
        else { break }
        response.append(littleEndian: UInt32(attribute.handle.rawValue) | UInt32(uuid) &<< 16)
        position &+= 1
      }
    } else {
      response.append(InformationFormat.long.rawValue)
      while position < attributes.count, response.freeCapacity >= 18 {
        let attribute = attributes[position]
        guard attribute.handle.rawValue <= request.endingHandle.rawValue,
          case .long(let low, let high) = uuids[Int(attribute.type)].uuid
        else { break }
        response.append(littleEndian: attribute.handle.rawValue)
        response.append(littleEndian: low)
        response.append(littleEndian: high)
        position &+= 1
      }
    }
  }

  private mutating func findByTypeValue(
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
    var group = isService ? 0..<0 : database.uuids[index].types
    // The index covers services' UUIDs; a value that is not a UUID matches no service.
    if isService, let uuid = BluetoothUUID(value), let index = database.index(of: uuid) {
      group = database.uuids[index].services
    }
    let first = database.firstPosition(from: request.startingHandle)
    for index in Database.lowerBound(database.grouped.span, group, first)..<group.upperBound {
      let position = Int(database.grouped[index])
      let attribute = database.attributes[position]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if isService {
        // UUIDs of equal value and length have equal octets; a declaration may be of the other kind.
        guard attribute.type == type, Int(attribute.count) == value.count else { continue }
      } else {
        guard matches(position, value, session) else { continue }
      }
      guard response.freeCapacity >= 4 else { break }
      response.append(littleEndian: UInt32(attribute.handle.rawValue) | UInt32(attribute.groupEnd.rawValue) &<< 16)
    }
    if response.byteCount == start + 1 { throw Refusal(request.startingHandle, .attributeNotFound) }
  }
  /// The server does not compare a value that the client may not read: a match would reveal it.
  private mutating func matches(_ position: Int, _ value: Span<UInt8>, _ session: Int) -> Bool {
    let attribute = database.attributes[position]
    if readError(position, session) != nil { return false }
    switch attribute.kind {
    case .dynamic: return false
    case .configuration:
      let configuration = clients[sessions[session].client].configurations[attribute.slot].rawValue
      return value.count == 2 && UInt16(value[0]) | UInt16(value[1]) << 8 == configuration
    case .features: return value.count == 1 && value[0] == clients[sessions[session].client].features.rawValue
    case .stored:
      guard value.count == Int(attribute.count) else { return false }
      let from = Int(attribute.start)
      for i in 0..<value.count where database.values[from &+ i] != value[i] { return false }
      return true
    }
  }
}

// MARK: - Helpers

extension WireRecord {
  /// Appends a list's entry; false, without writing anything, when it does not fit.
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

extension BluetoothUUID {
  /// Decodes a UUID, least significant octet first; `nil` unless `bytes` are 2 or 16 octets.
  @inline(__always) init?(_ bytes: Span<UInt8>) {
    do throws(WireError) { self = try WireDecoder.decode(ServiceDeclaration.self, bytes).serviceUUID } catch {
      return nil
    }
  }
}
