import BindruneWire
import DequeModule

/// # ServerBearer
/// **Overview**: the half of a bearer that answers: the peer's requests, one at a time (the sequential protocol of Vol 3,
/// Part F, §3.3.2), and our indications, one at a time, with the peer's confirmations.
///
/// **Function**: `serve` lets the GATT server write its response into a buffer of exactly ATT_MTU octets, where it stays
/// until the controller has room for it. A server that must ask the application first answers `.later`; `respond` brings
/// the response, and after 25 s the bearer sends Unlikely Error (0x0E) in the application's name, in time for the peer's
/// 30 s. Every request that is taken gets exactly one response, in the order of the requests.
///
/// **Phases** of an answer: none → awaited (by the application) → ready → none, when it is sent. The application's answer
/// leaves after the notifications that were offered before it. Where some of those have not reached the bearer yet it is
/// kept: awaited → kept → ready, by `release`, or when the 25 s are over.
/// A client that does not wait for its response is out of order but does no harm: one further request is taken. If the
/// first response only waits for the controller, the second request is served at once and its response waits behind; if
/// the application is still at work on the first, the second is held as it came, and served when the first has its answer.
/// A third one is dropped.
///
/// **Phases** of a held request: none → waiting (for the first one's answer) → served → none.
///
/// **Phases** of an indication: none → waiting (to be sent) → sent (awaiting its confirmation, 30 s) → none.
@safe @usableFromInline struct ServerBearer: ~Copyable {
  @usableFromInline enum Answer: BitwiseCopyable {
    case none
    case awaited(ATTOpcode, AttributeHandle, deadline: Instant)
    case kept(count: Int, deadline: Instant)
    /// Leaves when the bearer has sent so many notifications.
    case ready(count: Int, after: UInt64)
  }
  @usableFromInline enum Indication: BitwiseCopyable {
    case none
    /// Leaves when the bearer has sent so many notifications.
    case waiting(count: Int, after: UInt64)
    case sent(deadline: Instant)
  }

  @usableFromInline enum Held: BitwiseCopyable {
    case none
    case waiting(count: Int)
    case served
  }

  /// The answer to the oldest request, and the answer to the one behind it.
  @usableFromInline var current = Answer.none, following = Answer.none
  @usableFromInline var held = Held.none
  @usableFromInline var indication = Indication.none
  /// Which of the first two rooms is `current`'s.
  @usableFromInline var front = 0
  /// Two responses, an indication and a held request, each of `roomCount` octets.
  @usableFromInline let rooms: UnsafeMutableRawPointer
  @usableFromInline let roomCount: Int

  init(largestMTU: Int) {
    roomCount = largestMTU
    unsafe rooms = .allocate(byteCount: 4 * largestMTU, alignment: 8)
  }
  @inlinable deinit { unsafe rooms.deallocate() }

  // MARK: Requests

  @inlinable @inline(__always) var hasResponse: Bool { if case .ready = current { true } else { false } }

  /// The room where the answer to the request in `packet` goes; nil when the request has been dealt with here.
  @inlinable @inline(__always)
  mutating func admit(_ packet: Span<UInt8>, _ effects: inout Deque<BearerEffect>) -> Int? {
    if case .none = current {
      if case .waiting = held {} else { return front }
    }
    return admitAnother(packet, &effects)
  }
  @usableFromInline
  mutating func admitAnother(_ packet: Span<UInt8>, _ effects: inout Deque<BearerEffect>) -> Int? {
    let opcode = ATTOpcode(rawValue: packet[0])
    if case .served = held { return front ^ 1 }
    guard case .none = following, case .none = held else {
      effects.report(.requestDropped(opcode))
      return nil
    }
    effects.report(.requestBeforeResponse(opcode))
    if case .ready = current { return front ^ 1 }
    guard packet.count <= roomCount else {
      refuse(opcode, .invalidPDU, room: front ^ 1)
      return nil
    }
    unsafe packet.withUnsafeBytes { bytes in
      unsafe (rooms + 3 * roomCount).copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: bytes.count)
    }
    held = .waiting(count: packet.count)
    return nil
  }
  /// What comes is not new: it has been held.
  var isServingHeld: Bool { if case .served = held { true } else { false } }
  /// The request that is held, once nothing stands before it. Its octets stay until another is held: not while it is
  /// being served.
  @unsafe @usableFromInline mutating func takeHeld() -> UnsafeBufferPointer<UInt8>? {
    guard case .waiting(let count) = held else { return nil }
    switch current {
    case .awaited, .kept: return nil
    case .none, .ready: break
    }
    held = .served
    return unsafe UnsafeBufferPointer(
      start: UnsafePointer((rooms + 3 * roomCount).assumingMemoryBound(to: UInt8.self)), count: count)
  }
  @inlinable @inline(__always) mutating func set(_ answer: Answer, room: Int) {
    if room == front { current = answer } else { following = answer }
  }

  /// Lets `server` answer `request`.
  @inlinable @inline(__always)
  mutating func serve<S: AttributeServer & ~Copyable>(
    _ request: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant, server: inout S,
    _ effects: inout Deque<BearerEffect>
  ) {
    let opcode = ATTOpcode(rawValue: packet[0])
    guard let room = admit(packet, &effects) else { return }
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: rooms + room &* roomCount, count: mtu)
    var response = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    let answer = server.respond(to: request, in: packet, on: bearer, now: now, response: &response)
    let count = unsafe response.finalize(for: buffer)
    switch answer {
    case .now:
      precondition(count > 0, "a server that answers writes a response")
      set(.ready(count: count, after: 0), room: room)
    case .later:
      set(.awaited(opcode, request.subject, deadline: now.adding(seconds: ServerBearer.patience)), room: room)
    }
  }
  /// An application that has not answered after so many seconds is answered for.
  @usableFromInline static var patience: UInt64 { 25 }

  /// Answers with an Error Response about no attribute, handle 0x0000. Vol 3, Part F, §3.3 and §3.4.1.1.
  @usableFromInline mutating func refuse(_ opcode: ATTOpcode, _ error: ATTError, room: Int) {
    var response = ErrorResponse()
    response.requestOpcodeInError = opcode
    response.errorCode = error
    write(response, room: room)
  }
  /// Answers Exchange MTU. Vol 3, Part F, §3.4.2.2.
  @usableFromInline mutating func answerMTU(_ serverRxMTU: Int, room: Int) {
    var response = ExchangeMTUResponse()
    response.serverRxMTU = UInt16(clamping: serverRxMTU)
    write(response, room: room)
  }
  /// A response without ranges; the smallest MTU has room for it.
  private mutating func write<M: ATTMessage>(_ message: M, room: Int) {
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: rooms + room * roomCount, count: roomCount)
    var output = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    let count = output.append(message)
    _ = unsafe output.finalize(for: buffer)
    set(.ready(count: count, after: 0), room: room)
  }

  /// The application's answer, a whole PDU, which leaves after so many notifications; nil: it is kept until `release` says.
  /// False when none is awaited.
  mutating func respond(_ response: Span<UInt8>, mtu: Int, after notifications: UInt64?) -> Bool {
    precondition(!response.isEmpty && response.count <= mtu, "a response is one PDU of at most ATT_MTU octets")
    let room: Int, due: Instant
    if case .awaited(_, _, let deadline) = current {
      (room, due) = (front, deadline)
    } else if case .awaited(_, _, let deadline) = following {
      (room, due) = (front ^ 1, deadline)
    } else {
      return false
    }
    unsafe response.withUnsafeBytes { bytes in
      unsafe (rooms + room * roomCount).copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: bytes.count)
    }
    set(
      notifications.map { .ready(count: response.count, after: $0) } ?? .kept(count: response.count, deadline: due),
      room: room)
    return true
  }
  /// All that was offered before the answer that is kept has reached the bearer. False when none is kept.
  mutating func release(after notifications: UInt64) -> Bool {
    for (answer, room) in [(current, front), (following, front ^ 1)] {
      guard case .kept(let count, _) = answer else { continue }
      set(.ready(count: count, after: notifications), room: room)
      return true
    }
    return false
  }

  /// Appends the response that is ready and returns its opcode; nil when there is none, or when it is to leave after more
  /// notifications than have been `sent`.
  @inlinable @inline(__always)
  mutating func writeResponse(into output: inout OutputRawSpan, sent: UInt64) -> ATTOpcode? {
    guard case .ready(let count, let place) = current, place <= sent else { return nil }
    let from = unsafe rooms + front &* roomCount
    let opcode = unsafe ATTOpcode(rawValue: from.load(as: UInt8.self))
    unsafe output.append(from: from, count: count)
    current = following
    following = .none
    front ^= 1
    return opcode
  }

  // MARK: Indications

  /// Keeps an indication until so many notifications and it are sent. Vol 3, Part F, §3.4.7.2.
  mutating func indicate(
    _ handle: AttributeHandle, _ value: Span<UInt8>, limit: Int, after notifications: UInt64
  ) -> SendAnswer {
    guard case .none = indication else { return .full }
    let count = min(value.count, limit)
    let buffer = unsafe UnsafeMutableRawBufferPointer(start: rooms + 2 * roomCount, count: roomCount)
    var output = unsafe OutputRawSpan(buffer: buffer, initializedCount: 0)
    output.append(HandleValueIndication.opcode.rawValue)
    output.append(littleEndian: handle.rawValue)
    output.append(contentsOf: value.extracting(first: count))
    indication = .waiting(count: unsafe output.finalize(for: buffer), after: notifications)
    return count == value.count ? .queued : .cut(to: count)
  }
  /// No indication is under way.
  var canIndicate: Bool { if case .none = indication { true } else { false } }
  @inlinable @inline(__always) var hasIndication: Bool { if case .waiting = indication { true } else { false } }

  /// Appends the indication that waits, and starts its 30 s; false when there is none, or when it is to leave after more
  /// notifications than have been `sent`.
  @usableFromInline
  mutating func writeIndication(into output: inout OutputRawSpan, sent: UInt64, now: Instant) -> Bool {
    guard case .waiting(let count, let place) = indication, place <= sent else { return false }
    unsafe output.append(from: rooms + 2 * roomCount, count: count)
    indication = .sent(deadline: now.adding(seconds: Bearer.transactionSeconds))
    return true
  }
  /// True when a confirmation is due now.
  @usableFromInline mutating func confirm() -> Bool {
    guard case .sent = indication else { return false }
    indication = .none
    return true
  }

  // MARK: Time and end

  /// When the application's time is up, or that of an answer that is kept.
  private static func deadline(of answer: Answer) -> Instant? {
    switch answer {
    case .awaited(_, _, let deadline), .kept(_, let deadline): deadline
    case .none, .ready: nil
    }
  }
  /// When the bearer's time is up.
  var confirmationDeadline: Instant? { if case .sent(let deadline) = indication { deadline } else { nil } }
  var deadline: Instant? {
    .earliest(
      confirmationDeadline, .earliest(ServerBearer.deadline(of: current), ServerBearer.deadline(of: following)))
  }
  /// Answers for the application where its time is up. An answer that is kept overtakes what it was kept for, so that the
  /// peer has it within its 30 s.
  mutating func expire(now: Instant, _ effects: inout Deque<BearerEffect>) {
    for room in [front, front ^ 1] {
      switch room == front ? current : following {
      case .awaited(let opcode, let handle, let deadline) where deadline <= now:
        refuse(opcode, ATTError(rawValue: 0x0E), room: room)
        effects.append(.answeredForApplication(opcode, handle))
      case .kept(let count, let deadline) where deadline <= now:
        set(.ready(count: count, after: 0), room: room)
      case .none, .awaited, .kept, .ready: break
      }
    }
  }
  /// Drops everything. True when an indication has not been confirmed and never will be.
  mutating func close() -> Bool {
    current = .none
    following = .none
    held = .none
    defer { indication = .none }
    if case .none = indication { return false }
    return true
  }
}

extension OutputRawSpan {
  /// Appends a message that has no ranges, opcode first, and returns its length. The caller has seen to the room.
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
  /// Appends `count` octets of memory that the caller vouches for; traps without room.
  @unsafe @inlinable @inline(__always) mutating func append(from memory: UnsafeRawPointer, count: Int) {
    precondition(count <= freeCapacity)
    unsafe withUnsafeMutableBytes { room, written in
      unsafe (room.baseAddress.unsafelyUnwrapped + written).copyMemory(from: memory, byteCount: count)
      written &+= count
    }
  }
}

extension ATTPDU {
  /// The handle that an error in this request is about.
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
    default: AttributeHandle()
    }
  }
}
