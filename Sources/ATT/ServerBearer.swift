import BindruneWire
import DequeModule

/// # ServerBearer
/// **Overview**: the server half of a bearer: the peer's requests, one at a time (the sequential protocol of Vol 3,
/// Part F, §3.3.2), and our indications, one at a time, with the peer's confirmations.
///
/// **Function**: `serve` lets the GATT server write its response into a buffer of exactly ATT_MTU octets, where it
/// stays until the controller has room for it. A server that must ask the application first returns `.later`; `respond`
/// supplies the response to that request, which the ticket names; after 25 s the bearer sends Unlikely Error (0x0E) for
/// the application, in time for the peer's 30 s. Every accepted request gets exactly one response, in the order of the
/// requests.
///
/// **Phases** of the requests, `Requests`:
///
///     none ── a request ──▶ responding ── the response is sent ──▶ none
///     none ── a request that the server answers later ──▶ asking ── the answer, or 25 s ──▶ responding
///
/// A client that does not wait for its response violates the protocol without harm: the bearer accepts one more
/// request. If the first response only waits for the controller, the second request is served at once and its response
/// waits behind (`respondingTwice`, `respondingAndAsking`). If the application is still working on the first, the
/// second is held (`askingAndHolding`); the call that ends the first returns the held request, and `Bearer` serves it.
/// A third one is dropped.
///
/// **Phases** of an answer of the application: awaited → ready. It leaves after the notifications offered before it. If
/// some of those have not reached the bearer yet it is kept: awaited → kept → ready, by `release`, or after the 25 s.
///
/// **Phases** of an indication: none → waiting (to be sent) → sent (awaiting its confirmation, 30 s) → none.
@safe @usableFromInline struct ServerBearer: ~Copyable {
  /// A part of `memory` for one PDU.
  @usableFromInline enum Room: UInt8, BitwiseCopyable {
    /// Responses alternate between these two.
    case first, second
    case indication
    case held

    /// The room of the response that follows one in this room.
    @inlinable var behind: Room { self == .first ? .second : .first }
    /// Index in `responses`.
    @inlinable @inline(__always) var place: Int { Int(rawValue & 1) }
  }
  /// Describes a response in its room that waits to be sent.
  @usableFromInline struct Response: BitwiseCopyable {
    @usableFromInline let count: Int
    /// The number of notifications that the bearer sends before it.
    @usableFromInline let place: UInt64

    @inlinable @inline(__always) init(count: Int, place: UInt64 = 0) {
      self.count = count
      self.place = place
    }
  }
  /// A request that the application answers.
  @usableFromInline struct Question: BitwiseCopyable {
    @usableFromInline enum Answer: BitwiseCopyable {
      case awaited
      /// The answer is in its room, and notifications that precede it have not reached the bearer.
      case kept(count: Int)
    }
    @usableFromInline let ticket: RequestTicket
    @usableFromInline let opcode: ATTOpcode
    @usableFromInline let handle: AttributeHandle
    @usableFromInline let deadline: Instant
    @usableFromInline var answer = Answer.awaited

    @inlinable init(_ ticket: RequestTicket, _ opcode: ATTOpcode, _ handle: AttributeHandle, deadline: Instant) {
      self.ticket = ticket
      self.opcode = opcode
      self.handle = handle
      self.deadline = deadline
    }
  }
  /// A request in `Room.held`, which keeps its first octets if it is too long.
  @usableFromInline struct HeldRequest: BitwiseCopyable {
    /// Octets that the peer sent.
    @usableFromInline let count: Int
    init(count: Int) { self.count = count }
  }
  /// The peer's unanswered requests, and the room of the first answer: one octet, because every request reads and
  /// writes it. `responses`, `question` and `held` describe the contents of the rooms separately. As the payload of
  /// this enum, they would cost 43 instructions more for each request.
  @usableFromInline enum Requests: BitwiseCopyable {
    case none
    case responding(Room)
    /// The second response is in the room behind.
    case respondingTwice(Room)
    /// The application is working on the answer to the second request, which goes into the room behind.
    case respondingAndAsking(Room)
    case asking(Room)
    case askingAndHolding(Room)
  }
  @usableFromInline enum Indication: BitwiseCopyable {
    case none
    /// Leaves after this many notifications of the bearer.
    case waiting(count: Int, after: UInt64)
    case sent(deadline: Instant)
  }

  @usableFromInline var requests = Requests.none
  /// The responses in the first two rooms.
  @usableFromInline var responses = InlineArray<2, Response>(repeating: Response(count: 0))
  /// The application's question, in the phases that ask.
  @usableFromInline var question: Question
  /// The held request, in the phases that hold.
  private var held = HeldRequest(count: 0)
  @usableFromInline var indication = Indication.none
  /// The ticket of the next request that the server answers later.
  @usableFromInline var ticket: RequestTicket
  /// The rooms, `roomCount` octets each.
  @usableFromInline let memory: UnsafeMutableRawPointer
  @usableFromInline let roomCount: Int

  init(_ bearer: BearerID, largestMTU: Int) {
    ticket = RequestTicket(bearer: bearer, number: 1)
    question = Question(
      RequestTicket(bearer: bearer, number: 0), ATTOpcode(rawValue: 0), AttributeHandle(), deadline: .zero)
    roomCount = largestMTU
    unsafe memory = .allocate(byteCount: 4 * largestMTU, alignment: 8)
  }
  @inlinable deinit { unsafe memory.deallocate() }

  @unsafe @inlinable @inline(__always) func start(of room: Room) -> UnsafeMutableRawPointer {
    unsafe memory + Int(room.rawValue) &* roomCount
  }
  /// Copies a PDU, cut to the room.
  private mutating func store(_ pdu: Span<UInt8>, in room: Room) {
    let pdu = pdu.extracting(first: roomCount)
    unsafe pdu.withUnsafeBytes { bytes in
      guard let from = bytes.baseAddress else { return }
      unsafe start(of: room).copyMemory(from: from, byteCount: bytes.count)
    }
  }

  // MARK: Requests

  @inlinable @inline(__always) var hasResponse: Bool {
    switch requests {
    case .responding, .respondingTwice, .respondingAndAsking: true
    case .none, .asking, .askingAndHolding: false
    }
  }

  /// The room for the answer to the request in `packet`; nil when the request needs no further processing.
  @inlinable @inline(__always)
  mutating func admit(_ packet: Span<UInt8>, _ effects: inout Deque<BearerEffect>) -> Room? {
    if case .none = requests { return .first }
    return admitAnother(packet, &effects)
  }
  @usableFromInline
  mutating func admitAnother(_ packet: Span<UInt8>, _ effects: inout Deque<BearerEffect>) -> Room? {
    let opcode = ATTOpcode(rawValue: packet[0])
    switch requests {
    case .none, .responding: effects.report(.requestBeforeResponse(opcode))
    case .asking(let room):
      effects.report(.requestBeforeResponse(opcode))
      store(packet, in: .held)
      held = HeldRequest(count: packet.count)
      requests = .askingAndHolding(room)
    case .askingAndHolding, .respondingAndAsking, .respondingTwice: effects.report(.requestDropped(opcode))
    }
    return freeRoom
  }
  /// The room for the answer to one more request; nil when none can be served now.
  @usableFromInline var freeRoom: Room? {
    switch requests {
    case .none: .first
    case .responding(let first): first.behind
    case .asking, .askingAndHolding, .respondingAndAsking, .respondingTwice: nil
    }
  }
  /// The octets of a held request, which stay until another is held: not while this one is being served.
  @unsafe @usableFromInline func octets(of held: HeldRequest) -> UnsafeBufferPointer<UInt8> {
    unsafe UnsafeBufferPointer(
      start: UnsafePointer(start(of: .held).assumingMemoryBound(to: UInt8.self)), count: min(held.count, roomCount))
  }

  /// Lets `server` answer `request`, into the room from `admit`.
  @inlinable @inline(__always)
  mutating func serve<S: AttributeServer & ~Copyable>(
    _ request: ATTPDU, in packet: Span<UInt8>, _ room: Room, mtu: Int, now: Instant, server: inout S
  ) {
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: start(of: room), count: mtu)
    var response = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    let answer = server.respond(to: request, in: packet, as: ticket, now: now, response: &response)
    let count = unsafe response.finalize(for: buffer)
    switch answer {
    case .now:
      precondition(count > 0, "a server that answers writes a response")
      append(Response(count: count))
    case .later:
      append(
        Question(
          ticket, ATTOpcode(rawValue: packet[0]), request.subject,
          deadline: now.adding(seconds: ServerBearer.patience)), room)
      ticket.advance()
    }
  }
  /// Seconds after which the bearer answers for the application.
  @usableFromInline static var patience: UInt64 { 25 }

  /// Answers with an Error Response without an attribute, handle 0x0000. Vol 3, Part F, §3.3 and §3.4.1.1.
  @usableFromInline mutating func refuse(_ opcode: ATTOpcode, _ error: ATTError, _ room: Room) {
    append(write(ErrorResponse(opcode, error), room))
  }
  /// Answers Exchange MTU. Vol 3, Part F, §3.4.2.2.
  @usableFromInline mutating func answerMTU(_ serverRxMTU: Int, _ room: Room) {
    let response = ExchangeMTUResponse.with { $0.serverRxMTU = UInt16(clamping: serverRxMTU) }
    append(write(response, room))
  }
  /// Writes a response without ranges; it fits the smallest MTU.
  private mutating func write<M: ATTMessage>(_ message: M, _ room: Room) -> Response {
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: start(of: room), count: roomCount)
    var output = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    let count = output.append(message)
    _ = unsafe output.finalize(for: buffer)
    return Response(count: count)
  }

  /// Records the response to an admitted request, in the room from `admit`.
  @inlinable @inline(__always) mutating func append(_ response: Response) {
    // The first room's number as a constant avoids calculating and checking an index.
    guard case .none = requests else { return appendSecond(response) }
    responses[Room.first.place] = response
    requests = .responding(.first)
  }
  @usableFromInline mutating func appendSecond(_ response: Response) {
    guard case .responding(let first) = requests else { return refuseThird() }
    responses[first.behind.place] = response
    requests = .respondingTwice(first)
  }
  /// Records that an admitted request awaits the application, whose answer goes into `room`.
  @usableFromInline mutating func append(_ question: Question, _ room: Room) {
    self.question = question
    switch requests {
    case .none: requests = .asking(room)
    case .responding(let first): requests = .respondingAndAsking(first)
    case .asking, .askingAndHolding, .respondingAndAsking, .respondingTwice: refuseThird()
    }
  }
  private func refuseThird() {
    preconditionFailure("a request is served where `admit` has given it a room")
  }

  // MARK: The application's answers

  /// The result of an answer.
  @usableFromInline enum Outcome: BitwiseCopyable {
    /// No such answer is awaited.
    case unwanted
    /// Accepted; the request that was held for it is served next.
    case taken(HeldRequest?)
  }

  /// The room for the application's answer; nil when there is no question.
  @inlinable @inline(__always) var roomOfQuestion: Room? {
    switch requests {
    case .asking(let room), .askingAndHolding(let room): room
    case .respondingAndAsking(let first): first.behind
    case .none, .responding, .respondingTwice: nil
    }
  }
  /// Records the response to the question. Returns the request that was held behind it.
  private mutating func answer(with response: Response, _ room: Room) -> HeldRequest? {
    responses[room.place] = response
    switch requests {
    case .asking: requests = .responding(room)
    case .respondingAndAsking(let first): requests = .respondingTwice(first)
    case .askingAndHolding:
      requests = .responding(room)
      return held
    case .none, .responding, .respondingTwice: break
    }
    return nil
  }

  /// The application's answer to the request that `ticket` names, a whole PDU, which leaves after this many
  /// notifications; nil: it is kept until `release`.
  mutating func respond(
    to ticket: RequestTicket, with response: Span<UInt8>, mtu: Int, after notifications: UInt64?
  ) -> Outcome {
    precondition(!response.isEmpty && response.count <= mtu, "a response is one PDU of at most ATT_MTU octets")
    guard let room = roomOfQuestion, question.ticket == ticket, case .awaited = question.answer else {
      return .unwanted
    }
    store(response, in: room)
    if let notifications {
      return .taken(answer(with: Response(count: response.count, place: notifications), room))
    }
    question.answer = .kept(count: response.count)
    return .taken(nil)
  }
  /// All notifications that precede the kept answer have reached the bearer. `.unwanted` when none is kept.
  mutating func release(after notifications: UInt64) -> Outcome {
    guard let room = roomOfQuestion, case .kept(let count) = question.answer else { return .unwanted }
    return .taken(answer(with: Response(count: count, place: notifications), room))
  }

  /// Appends the response that is ready and returns its opcode; nil when there is none, or when more notifications than
  /// `sent` precede it.
  @inlinable @inline(__always)
  mutating func writeResponse(into output: inout OutputRawSpan, sent: UInt64) -> ATTOpcode? {
    guard case .responding(let room) = requests else {
      if case .none = requests { return nil }
      return writeFirst(into: &output, sent: sent)
    }
    let response = responses[room.place]
    guard response.place <= sent else { return nil }
    requests = .none
    return write(response, room, into: &output)
  }
  /// The same when another request is behind.
  @usableFromInline mutating func writeFirst(into output: inout OutputRawSpan, sent: UInt64) -> ATTOpcode? {
    let room: Room, next: Requests
    switch requests {
    case .respondingTwice(let first): (room, next) = (first, .responding(first.behind))
    case .respondingAndAsking(let first): (room, next) = (first, .asking(first.behind))
    case .none, .responding, .asking, .askingAndHolding: return nil
    }
    let response = responses[room.place]
    guard response.place <= sent else { return nil }
    requests = next
    return write(response, room, into: &output)
  }
  @inlinable @inline(__always)
  func write(_ response: Response, _ room: Room, into output: inout OutputRawSpan) -> ATTOpcode {
    let from = unsafe start(of: room)
    let opcode = unsafe ATTOpcode(rawValue: from.load(as: UInt8.self))
    unsafe output.append(from: from, count: response.count)
    return opcode
  }

  // MARK: Indications

  /// Keeps an indication until this many notifications have been sent. Vol 3, Part F, §3.4.7.2.
  mutating func indicate(
    _ handle: AttributeHandle, _ value: Span<UInt8>, limit: Int, after notifications: UInt64
  ) -> SendAnswer {
    guard case .none = indication else { return .full }
    let count = min(value.count, limit)
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: start(of: .indication), count: roomCount)
    var output = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    output.append(HandleValueIndication.opcode.rawValue)
    output.append(littleEndian: handle.rawValue)
    output.append(contentsOf: value.extracting(first: count))
    indication = .waiting(count: unsafe output.finalize(for: buffer), after: notifications)
    return count == value.count ? .queued : .cut(to: count)
  }
  /// The number of the waiting indication among the notifications, and its attribute; nil: none waits.
  var waitingIndication: (number: UInt64, handle: AttributeHandle)? {
    guard case .waiting(_, let number) = indication else { return nil }
    let low = unsafe start(of: .indication).load(fromByteOffset: 1, as: UInt8.self)
    let high = unsafe start(of: .indication).load(fromByteOffset: 2, as: UInt8.self)
    return (number, AttributeHandle(rawValue: UInt16(low) | UInt16(high) << 8))
  }
  mutating func dropIndication() { indication = .none }
  /// The notifications with these numbers will not leave, so that what waits for them has fewer before it.
  mutating func removePlaces(_ numbers: [UInt64]) {
    func moved(_ place: UInt64) -> UInt64 { place - UInt64(numbers.count(where: { $0 < place })) }
    for room in responses.indices {
      responses[room] = Response(count: responses[room].count, place: moved(responses[room].place))
    }
    if case .waiting(let count, let place) = indication { indication = .waiting(count: count, after: moved(place)) }
  }
  /// True while no indication is outstanding.
  var canIndicate: Bool { if case .none = indication { true } else { false } }
  @inlinable @inline(__always) var hasIndication: Bool { if case .waiting = indication { true } else { false } }

  /// Appends the waiting indication, and starts its 30 s; false when there is none, or when more notifications than
  /// `sent` precede it.
  @usableFromInline
  mutating func writeIndication(into output: inout OutputRawSpan, sent: UInt64, now: Instant) -> Bool {
    guard case .waiting(let count, let place) = indication, place <= sent else { return false }
    unsafe output.append(from: start(of: .indication), count: count)
    indication = .sent(deadline: now.adding(seconds: Bearer.transactionSeconds))
    return true
  }
  /// True when a confirmation is due.
  @usableFromInline mutating func confirm() -> Bool {
    guard case .sent = indication else { return false }
    indication = .none
    return true
  }

  // MARK: Time and end

  /// When the peer's time for a confirmation ends.
  @inlinable @inline(__always) var confirmationDeadline: Instant? {
    if case .sent(let deadline) = indication { deadline } else { nil }
  }
  @inlinable @inline(__always) var deadline: Instant? {
    .earliest(confirmationDeadline, roomOfQuestion == nil ? nil : question.deadline)
  }

  /// The result of `expire`.
  @usableFromInline enum Expiry: BitwiseCopyable {
    case nothing
    /// The bearer answered for the application.
    case unanswered(Question, HeldRequest?)
    /// A kept answer now precedes the notifications that it was kept for, so that it reaches the peer within its 30 s.
    case released(HeldRequest?)
  }
  /// Ends an overdue question. As whenever a server answers Unlikely Error, which is no property of an attribute, the
  /// Error Response names none: `GATT.Refusal`.
  @usableFromInline mutating func expire(now: Instant) -> Expiry {
    guard let room = roomOfQuestion, question.deadline <= now else { return .nothing }
    switch question.answer {
    case .awaited:
      let response = write(ErrorResponse(question.opcode, .unlikelyError), room)
      return .unanswered(question, answer(with: response, room))
    case .kept(let count): return .released(answer(with: Response(count: count), room))
    }
  }
  /// Drops everything. True when an unconfirmed indication is among it.
  mutating func close() -> Bool {
    requests = .none
    defer { indication = .none }
    if case .none = indication { return false }
    return true
  }
}

extension ErrorResponse {
  /// `handle` 0x0000: no attribute.
  init(_ opcode: ATTOpcode, _ error: ATTError, about handle: AttributeHandle = AttributeHandle()) {
    self.init()
    requestOpcodeInError = opcode
    attributeHandleInError = handle
    errorCode = error
  }
}

extension OutputRawSpan {
  /// Appends a message that has no ranges, opcode first, and returns its length. The caller guarantees room.
  mutating func append<M: ATTMessage>(_ message: M) -> Int {
    let start = byteCount, nothing = InlineArray<0, UInt8> { _ in 0 }
    append(M.opcode.rawValue)
    do throws(WireError) {
      try message.encode(into: &self, from: nothing.span)
    } catch {
      preconditionFailure("no room for \(M.self): \(error)")
    }
    return byteCount - start
  }
  /// Appends `count` octets of valid memory, which the caller guarantees; traps without room.
  @unsafe @inlinable @inline(__always) mutating func append(from memory: UnsafeRawPointer, count: Int) {
    precondition(count <= freeCapacity)
    unsafe withUnsafeMutableBytes { room, written in
      unsafe (room.baseAddress.unsafelyUnwrapped + written).copyMemory(from: memory, byteCount: count)
      written &+= count
    }
  }
}

extension ATTPDU {
  /// The handle that an error for this request names.
  @usableFromInline var subject: AttributeHandle {
    switch self {
    case .findInformationRequest(let m): m.startingHandle
    case .findByTypeValueRequest(let m): m.startingHandle
    case .readByTypeRequest(let m): m.startingHandle
    case .readByGroupTypeRequest(let m): m.startingHandle
    case .readRequest(let m): m.attributeHandle
    case .readBlobRequest(let m): m.attributeHandle
    case .writeRequest(let m): m.attributeHandle
    case .prepareWriteRequest(let m): m.attributeHandle
    case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationResponse, .findByTypeValueResponse,
      .readByTypeResponse, .readResponse, .readBlobResponse, .readMultipleRequest, .readMultipleResponse,
      .readByGroupTypeResponse, .writeResponse, .prepareWriteResponse, .executeWriteRequest, .executeWriteResponse,
      .handleValueNotification, .handleValueIndication, .handleValueConfirmation, .readMultipleVariableRequest,
      .readMultipleVariableResponse, .multipleHandleValueNotification, .writeCommand, .signedWriteCommand:
      AttributeHandle()
    }
  }
}
