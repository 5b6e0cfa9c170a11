import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// Names one question to the application.
public struct ServerRequestID: BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt32
  @inlinable public init(rawValue: UInt32) { self.rawValue = rawValue }
}

/// What the server reports to the layer above, in order. `Octets` are ranges of the server's arena:
/// `Server.withBytes(of:)`.
public enum ServerEffect: BitwiseCopyable, Sendable, Equatable {
  /// The client of this bearer changed its subscription to the characteristic with this value handle, or disconnected.
  case subscriptionChanged(BearerID, AttributeHandle, ClientCharacteristicConfiguration)
  /// A client wrote a value that the server stores (and has changed already), or wrote a dynamic one by a command.
  case written(BearerID, AttributeHandle, offset: UInt16, Octets)
  /// The application must supply a dynamic value, from `offset` on: `answerRead` or `refuse`.
  case readRequested(ServerRequestID, BearerID, AttributeHandle, offset: UInt16)
  /// The application must write a dynamic value, from `offset` on: `answerWrite` or `refuse`. `following` more effects
  /// have the same id, from one queue of prepared writes: all are written or none, and one answer covers all of them.
  case writeRequested(ServerRequestID, BearerID, AttributeHandle, offset: UInt16, Octets, following: Int)
  /// The question needs no answer any more: the bearer was closed, or has answered for the application after 25 s.
  case requestCancelled(ServerRequestID, BearerID)
  /// The client of this bearer has signed a write: it will sign the next one with this counter or a higher one, which
  /// replaces that of its ``ClientSigning`` also where it is stored.
  case signCounterChanged(BearerID, UInt32)
  /// The server has ignored a signed write to this attribute. Vol 3, Part F, §3.4.5.4.
  case signatureRefused(BearerID, AttributeHandle, SignatureRefusal)
  /// The record of a bonded client has changed: the octets replace those stored for the bond, and `restore` takes them
  /// when the client returns. `ClientRecord` decodes them.
  case store(BondID, Octets)
}

/// Limits of the memory that a client can occupy.
public struct ServerConfiguration: Sendable {
  /// Octets in one client's prepare queue: 0x09, Prepare Queue Full, beyond it.
  public var preparedOctets = 4096
  /// Writes in one client's prepare queue; parts of one long write are one. 0x09 beyond it.
  public var preparedRuns = 32
  /// Effects and octets waiting for the layer above: 0x11, Insufficient Resources, beyond it; commands are dropped.
  public var waitingEffects = 1024
  public var waitingOctets = 65_536
  public init() {}
}

/// A request that awaits the application's answer.
struct PendingRequest: BitwiseCopyable {
  enum Kind: BitwiseCopyable {
    /// Read or Read Blob.
    case read(ATTOpcode)
    /// Read By Type, which resumes after `handle`.
    case list(ReadByTypeRequest)
    /// Read Multiple or Read Multiple Variable, which resumes at this octet of its handles.
    case multiple(ATTOpcode, next: Int)
    case write
    /// The server writes the rest of the queue when the application has agreed.
    case execute
  }
  var id: ServerRequestID
  /// The bearer's name for the request.
  var ticket: RequestTicket
  var kind: Kind
  /// The attribute that the question is about.
  var handle: AttributeHandle
  /// Octets of the response: the ATT_MTU when the request came.
  var room: Int

  /// The opcode of the request.
  var opcode: ATTOpcode {
    switch kind {
    case .read(let opcode), .multiple(let opcode, _): opcode
    case .list: ReadByTypeRequest.opcode
    case .write: WriteRequest.opcode
    case .execute: ExecuteWriteRequest.opcode
    }
  }
}

/// The result of an answer of the application.
public enum AnswerOutcome: BitwiseCopyable, Sendable, Equatable {
  /// The response PDU has been written: it goes to `Bearer.respond(to:with:)`.
  case response(RequestTicket)
  /// The request reads several values; the next `.readRequested` asks for another of them. Nothing has been written.
  case collecting
  /// No request awaits the answer. Nothing has been written.
  case unwanted(UnwantedAnswer)
}

/// Why no request awaits an answer of the application.
public enum UnwantedAnswer: BitwiseCopyable, Sendable, Equatable {
  /// It has been answered: each question takes one answer.
  case answeredAlready
  /// After 25 s the client got 0x0E, Unlikely Error.
  case tooLate
  /// The client has disconnected.
  case disconnected
  /// A value for a write, or a consent for a read. The question is still open.
  case wrongKind
  /// There was no such question, or it ended long ago.
  case unknown
}

/// A question that needs no answer any more.
struct EndedRequest: BitwiseCopyable {
  var id: ServerRequestID
  var reason: UnwantedAnswer
  /// The number of ended questions that the server remembers, to explain late answers to the application.
  static var remembered: Int { 64 }
}

// MARK: - Effects

extension Server {
  /// True while `nextEffect` returns an effect.
  @inlinable @inline(__always) public var hasEffect: Bool { !effects.isEmpty || hasUnstoredRecord }
  /// The next effect, in order; `nil` when there is none, which also invalidates the octets of all effects.
  @inlinable @inline(__always) public mutating func nextEffect() -> ServerEffect? {
    if hasEffect, let effect = takeEffect() { return effect }
    arenaCount = 0
    return nil
  }
  @usableFromInline mutating func takeEffect() -> ServerEffect? { effects.popFirst() ?? nextRecord() }
  /// Lends the octets of an effect: valid until `nextEffect` returned `nil`.
  @inlinable @inline(__always)
  public func withBytes<Result, Failure: Error>(
    of octets: Octets, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try body(arena.span.extracting(octets.range))
  }
  /// A copy of the octets of an effect.
  public func bytes(of octets: Octets) -> [UInt8] {
    withBytes(of: octets) { bytes in bytes.indices.map { bytes[$0] } }
  }
  /// Whether `effects` more effects with `octets` octets together may wait.
  @inline(__always)
  mutating func hasRoom(effects more: Int, octets: Int) -> Bool {
    effects.count &+ more <= configuration.waitingEffects && arenaCount &+ octets <= configuration.waitingOctets
  }
  @inline(__always)
  mutating func keep(_ bytes: Span<UInt8>) -> Octets {
    let octets = Octets(arenaCount, bytes.count)
    arenaCount &+= bytes.count
    if arenaCount > arena.count { growArena() }
    arena.overwrite(at: Int(octets.offset), with: bytes)
    return octets
  }
  @inline(never)
  private mutating func growArena() {
    let room = max(256, 2 * arena.count, arenaCount)
    arena.append(contentsOf: repeatElement(0, count: room - arena.count))
  }
}

// MARK: - The application's answers

extension Server {
  /// The application's value for a `.readRequested`, from the requested offset. Writes a response PDU into `response`,
  /// which must have room for the bearer's ATT_MTU; the outcome names the request that it answers.
  public mutating func answerRead(
    _ id: ServerRequestID, with value: Span<UInt8>, into response: inout OutputRawSpan
  ) -> AnswerOutcome {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending else {
      return .unwanted(reason(id))
    }
    switch pending.kind {
    case .write, .execute: return .unwanted(.wrongKind)
    case .read, .list, .multiple: break
    }
    end(index, .answeredAlready)
    serving = pending.ticket
    let start = response.byteCount
    do throws(Refusal) {
      if try resume(pending, with: value, index, &response) == .later { return .collecting }
    } catch {
      response.truncate(to: start)
      error.append(to: &response, request: pending.opcode)
    }
    return .response(pending.ticket)
  }

  /// The application has agreed to a `.writeRequested` and written the value. Otherwise as `answerRead`.
  public mutating func answerWrite(_ id: ServerRequestID, into response: inout OutputRawSpan) -> AnswerOutcome {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending else {
      return .unwanted(reason(id))
    }
    switch pending.kind {
    case .read, .list, .multiple: return .unwanted(.wrongKind)
    case .write: response.append(WriteResponse.opcode.rawValue)
    case .execute:
      // The server's own values were checked before the application was asked; they may have changed since.
      do throws(Refusal) {
        _ = try execute(index, asking: false, room: pending.room)
        response.append(ExecuteWriteResponse.opcode.rawValue)
      } catch {
        error.append(to: &response, request: pending.opcode)
      }
    }
    end(index, .answeredAlready)
    return .response(pending.ticket)
  }

  /// The application refuses a read or write: `error` is one of the Specification's, or its own (0x80 … 0x9F). `handle`
  /// names the one of several writes that it concerns, by default the first.
  public mutating func refuse(
    _ id: ServerRequestID, _ error: ATTError, about handle: AttributeHandle? = nil, into response: inout OutputRawSpan
  ) -> AnswerOutcome {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending else {
      return .unwanted(reason(id))
    }
    end(index, .answeredAlready)
    if case .execute = pending.kind { sessions[index].executing.removeAll() }
    if case .list = pending.kind, !sessions[index].collected.response.isEmpty {
      // Vol 3, Part F, §3.4.4.1: an error of a later attribute ends the list.
      response.append(contentsOf: sessions[index].collected.response.span)
    } else {
      Refusal(handle ?? pending.handle, error).append(to: &response, request: pending.opcode)
    }
    return .response(pending.ticket)
  }

  /// The bearer has answered this request for an application that took too long. One effect reports it; a later answer
  /// is unwanted.
  public mutating func expired(_ ticket: RequestTicket, now: Instant) {
    guard let index = session(of: ticket.bearer), sessions[index].pending?.ticket == ticket else { return }
    cancelRequest(ofSession: index)
  }
  mutating func cancelRequest(ofSession index: Int, _ reason: UnwantedAnswer = .tooLate) {
    guard let pending = sessions[index].pending else { return }
    end(index, reason)
    if case .execute = pending.kind { sessions[index].executing.removeAll() }
    effects.append(.requestCancelled(pending.id, sessions[index].bearer))
  }
  /// The bearer of the request: its ATT_MTU is the room that an answer has.
  public func bearer(waitingFor id: ServerRequestID) -> BearerID? {
    session(waitingFor: id).map { sessions[$0].bearer }
  }
  /// Why no request awaits an answer to this question.
  public func reason(_ id: ServerRequestID) -> UnwantedAnswer {
    ended.last { $0.id == id }?.reason ?? .unknown
  }
  private func session(waitingFor id: ServerRequestID) -> Int? {
    for index in 0..<sessions.count where sessions[index].pending?.id == id { return index }
    return nil
  }
  /// Closes the question of this session.
  private mutating func end(_ index: Int, _ reason: UnwantedAnswer) {
    guard let pending = sessions[index].pending.take() else { return }
    if ended.count == EndedRequest.remembered { ended.removeFirst() }
    ended.append(EndedRequest(id: pending.id, reason: reason))
  }
}
