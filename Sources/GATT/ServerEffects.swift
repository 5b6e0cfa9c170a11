import ATT
import BindruneWire
import DequeModule

/// Names one question to the application.
public struct ServerRequestID: BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt32
  @inlinable public init(rawValue: UInt32) { self.rawValue = rawValue }
}

/// What the server tells the layer above, in order. `Octets` are ranges of the server's arena: `Server.withBytes(of:)`.
public enum ServerEffect: BitwiseCopyable, Sendable, Equatable {
  /// The client of this bearer changed what it wants of the characteristic with this value handle, or went away.
  case subscriptionChanged(BearerID, AttributeHandle, ClientCharacteristicConfiguration)
  /// A client wrote a value that the server keeps (it is changed already), or wrote a dynamic one by a command.
  case written(BearerID, AttributeHandle, offset: UInt16, Octets)
  /// A dynamic value is wanted, from `offset` on: `answerRead` or `refuse`.
  case readRequested(ServerRequestID, BearerID, AttributeHandle, offset: UInt16)
  /// A dynamic value is to be written, from `offset` on: `answerWrite` or `refuse`. `following` more of these come with
  /// the same id, from one queue of prepared writes: all are written or none, and there is one answer to all of them.
  case writeRequested(ServerRequestID, BearerID, AttributeHandle, offset: UInt16, Octets, following: Int)
  /// Nobody waits for this answer any more: the bearer was closed, or has answered for the application after 25 s.
  case requestCancelled(ServerRequestID, BearerID)
  /// What the server remembers of a bonded client has changed: the octets replace those that were kept for the bond, and
  /// are what `restore` takes when the client is back. `ClientRecord` reads them.
  case store(BondID, Octets)
}

/// Bounds of what a client can make the server keep, and what it may do before anybody has told of its link's security.
public struct ServerConfiguration: Sendable {
  /// Octets in one client's prepare queue: 0x09, Prepare Queue Full, beyond it.
  public var preparedOctets = 4096
  /// Writes in one client's prepare queue; parts of one long write are one. 0x09 beyond it.
  public var preparedRuns = 32
  /// Effects and octets waiting for the layer above: 0x11, Insufficient Resources, beyond it; commands are dropped.
  public var waitingEffects = 1024
  public var waitingOctets = 65_536
  /// What protects a bearer's link when it opens.
  public var initialSecurity = BearerSecurity.none
  public init() {}
}

/// A request whose answer is the application's.
struct PendingRequest: BitwiseCopyable {
  enum Kind: BitwiseCopyable {
    /// Read or Read Blob.
    case read(ATTOpcode)
    /// Read By Type, which goes on behind `handle`.
    case list(ReadByTypeRequest)
    /// Read Multiple or Read Multiple Variable, which goes on at this octet of its handles.
    case multiple(ATTOpcode, next: Int)
    case write
    /// What remains of the queue is written when the application has agreed.
    case execute
  }
  var id: ServerRequestID
  /// The bearer's name for the request.
  var ticket: RequestTicket
  var kind: Kind
  /// What the application is asked about.
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

/// What became of the application's answer.
public enum AnswerOutcome: BitwiseCopyable, Sendable, Equatable {
  /// The response PDU has been written: it goes to `Bearer.respond(to:with:)`.
  case response(RequestTicket)
  /// The request is one for several values; the next `.readRequested` asks for another of them. Nothing has been written.
  case collecting
  /// The answer is for nobody. Nothing has been written.
  case unwanted(UnwantedAnswer)
}

/// Why an answer of the application is for nobody.
public enum UnwantedAnswer: BitwiseCopyable, Sendable, Equatable {
  /// It has been answered: each question is answered once.
  case answeredAlready
  /// After 25 s the client got 0x0E, Unlikely Error.
  case tooLate
  /// The client is gone.
  case disconnected
  /// A value for a write, or a consent for a read. The question is still open.
  case wrongKind
  /// There was no such question, or it was long ago.
  case unknown
}

/// A question that needs no answer any more.
struct EndedRequest: BitwiseCopyable {
  var id: ServerRequestID
  var reason: UnwantedAnswer
  /// So many of them are remembered, to tell an application that errs how it did.
  static var remembered: Int { 64 }
}

// MARK: - Effects

extension Server {
  /// `nextEffect` has something to say.
  @inlinable @inline(__always) public var hasEffect: Bool { !effects.isEmpty || hasUnstoredRecord }
  /// What happened, in order; `nil` when there is no more, and then the octets of all effects are gone.
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
  /// The application's value for a `.readRequested`, from the offset that was asked for. A response PDU goes into `response`,
  /// which has room for the bearer's ATT_MTU; it is for the request of the outcome.
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

  /// The application agrees to a `.writeRequested`, and has written. Otherwise as `answerRead`.
  public mutating func answerWrite(_ id: ServerRequestID, into response: inout OutputRawSpan) -> AnswerOutcome {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending else {
      return .unwanted(reason(id))
    }
    switch pending.kind {
    case .read, .list, .multiple: return .unwanted(.wrongKind)
    case .write: response.append(WriteResponse.opcode.rawValue)
    case .execute:
      // What the server keeps was checked before the application was asked; it may have changed since.
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

  /// The application says no to a read or write: `error` is one of the Specification's, or its own (0x80 … 0x9F). `handle`
  /// is which of several writes it is about; without it, the first.
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

  /// Nobody waits any more for the answer to this request: the bearer has answered for an application that took too long.
  /// The application is told once; its answer, should it come, is for nobody.
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
  /// Whose request it is: its ATT_MTU is the room that an answer has.
  public func bearer(waitingFor id: ServerRequestID) -> BearerID? {
    session(waitingFor: id).map { sessions[$0].bearer }
  }
  /// Why nobody waits for an answer to this question.
  public func reason(_ id: ServerRequestID) -> UnwantedAnswer {
    ended.last { $0.id == id }?.reason ?? .unknown
  }
  private func session(waitingFor id: ServerRequestID) -> Int? {
    for index in 0..<sessions.count where sessions[index].pending?.id == id { return index }
    return nil
  }
  /// The question of this session is open no more.
  private mutating func end(_ index: Int, _ reason: UnwantedAnswer) {
    guard let pending = sessions[index].pending.take() else { return }
    if ended.count == EndedRequest.remembered { ended.removeFirst() }
    ended.append(EndedRequest(id: pending.id, reason: reason))
  }
}
