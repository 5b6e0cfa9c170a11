import BasicContainers
import BindruneWire
import DequeModule
import BindruneHCI

/// How our request for other connection parameters ended.
public enum ParameterUpdateOutcome: BitwiseCopyable, Sendable, Equatable {
  /// The central will change them: the controller's event reports when.
  case accepted
  case rejected
  /// The central does not support the command, or rejected it as a whole.
  case notUnderstood(RejectReason)
  /// No answer within 30 s. The link is unchanged.
  case timedOut
  /// The link went down first.
  case linkClosed
}

/// What a request begins: a procedure that one answer ends.
enum SignalProcedure: BitwiseCopyable, Equatable { case parameterUpdate }

/// The requests of one direction that await their answers: identifier → procedure, deadline. Each device numbers its
/// own requests, so each direction has such a table. Vol 3, Part A, §4.
struct PendingSignals: ~Copyable {
  struct Entry: BitwiseCopyable {
    let identifier: UInt8
    let procedure: SignalProcedure
    /// Nil: the layer above decides when it answers.
    let deadline: Instant?
  }
  /// In the order in which they began.
  private(set) var entries = UniqueArray<Entry>()

  var count: Int { entries.count }
  func contains(identifier: UInt8) -> Bool { index { $0.identifier == identifier } != nil }
  func contains(_ procedure: SignalProcedure) -> Bool { index { $0.procedure == procedure } != nil }
  /// Of an identifier that is not pending.
  mutating func begin(_ procedure: SignalProcedure, _ identifier: UInt8, deadline: Instant? = nil) {
    entries.append(Entry(identifier: identifier, procedure: procedure, deadline: deadline))
  }
  /// Ends the request; nil, without effect, if it is not pending, or is not of `procedure`. No `procedure`: of any.
  mutating func end(_ identifier: UInt8, of procedure: SignalProcedure? = nil) -> SignalProcedure? {
    guard let index = index(where: { $0.identifier == identifier && (procedure ?? $0.procedure) == $0.procedure })
    else { return nil }
    return entries.remove(at: index).procedure
  }
  /// When the next of them is due.
  var deadline: Instant? {
    if entries.isEmpty { return nil }
    var least: Instant?
    for index in entries.indices { least = .earliest(least, entries[index].deadline) }
    return least
  }
  /// Ends one that is due.
  mutating func endDue(now: Instant) -> SignalProcedure? {
    index { $0.deadline.map { $0 <= now } ?? false }.map { entries.remove(at: $0).procedure }
  }
  /// Ends the one that began first.
  mutating func endFirst() -> SignalProcedure? { entries.isEmpty ? nil : entries.remove(at: 0).procedure }

  private func index(where predicate: (Entry) -> Bool) -> Int? {
    for index in entries.indices where predicate(entries[index]) { return index }
    return nil
  }
}

/// # SignalingChannel
/// **Overview**: one link's LE signaling channel, 0x0005 (Vol 3, Part A, §4). Without credit based channels it has one
/// procedure: a peripheral asks for other connection parameters, and the central accepts or refuses.
///
/// **Function**: every request gets exactly one answer, and an unknown one is rejected; a response or a reject is never
/// answered. Commands wait here until the controller has room, and leave in the order in which they came.
///
/// **Phases** of our request: none → waiting (to be sent) → pending (its response, for RTX = 30 s; §6.2.1 allows
/// 1 … 60 s) → none. **Phases** of the peer's: none → pending (the layer above decides) → none. One of a procedure at a
/// time; another is refused meanwhile.
@usableFromInline struct SignalingChannel: ~Copyable {
  @usableFromInline enum Request: BitwiseCopyable {
    case parameterUpdate(ConnectionParameterUpdateRequest)
    var procedure: SignalProcedure {
      switch self {
      case .parameterUpdate: .parameterUpdate
      }
    }
  }
  @usableFromInline enum Answer: BitwiseCopyable {
    case notUnderstood
    case mtuExceeded
    case invalidCID(local: ChannelID, remote: ChannelID)
    case parameterUpdate(accepted: Bool)
  }
  /// A command that waits to be sent.
  @usableFromInline enum Command: BitwiseCopyable {
    /// It gets its identifier and its deadline when it leaves.
    case request(Request)
    case answer(identifier: UInt8, Answer)

    var isAnswer: Bool {
      switch self {
      case .answer: true
      case .request: false
      }
    }
  }

  /// The RTX timer of a request.
  static var responseTimeout: Duration { .seconds(30) }
  /// The limit of answers that wait on one link, those to requests that the layer above decides included.
  static var mostAnswers: Int { 8 }

  let role: LinkRole
  /// Our requests that await the peer's response.
  var sent = PendingSignals()
  /// The peer's requests that await the layer above.
  var received = PendingSignals()
  @usableFromInline var waiting = Deque<Command>()
  private var lastIdentifier: UInt8 = 0

  init(role: LinkRole) { self.role = role }

  // MARK: From above

  /// Asks the central for other parameters. False unless we are the peripheral, the parameters are in range, and no
  /// request is in progress.
  mutating func requestParameterUpdate(_ request: ConnectionParameterUpdateRequest) -> Bool {
    guard role == .peripheral, request.isValid else { return false }
    return begin(.parameterUpdate(request))
  }
  private mutating func begin(_ request: Request) -> Bool {
    if sent.contains(request.procedure) { return false }
    for case .request(let other) in waiting where other.procedure == request.procedure { return false }
    waiting.append(.request(request))
    return true
  }
  /// Answers the peer's request. False when there is no such request, or no longer.
  mutating func respondToParameterUpdate(identifier: UInt8, accepted: Bool) -> Bool {
    guard received.end(identifier, of: .parameterUpdate) != nil else { return false }
    // `answer` has reserved a place for it.
    waiting.append(.answer(identifier: identifier, .parameterUpdate(accepted: accepted)))
    return true
  }

  // MARK: From the peer

  /// A frame longer than MTU_sig, which has at least the command's code and identifier. Vol 3, Part A, §4.1.
  mutating func receive(tooLong head: Span<UInt8>, length: Int) -> L2CAPViolation {
    let code = SignalCode(rawValue: head[0])
    if code.isRequest, head[1] != 0, !answer(head[1], .mtuExceeded) { return .tooManySignals(code) }
    return .frameTooLong(.leSignaling, length: length)
  }

  /// One command, of at least four octets.
  mutating func receive(_ frame: Span<UInt8>, from link: ConnectionHandle, _ effects: inout Deque<L2CAPEffect>) {
    let code = SignalCode(rawValue: frame[0]), identifier = frame[1]
    guard identifier != 0 else { return effects.report(.illegalIdentifier(code), link) }
    do throws(WireError) {
      let header = try WireDecoder.decode(SignalHeader.self, frame, to: SignalHeader.count)
      guard SignalHeader.count + Int(header.length) == frame.count else {
        throw .wrongLength("Length", Int(header.length), expected: frame.count - SignalHeader.count)
      }
      switch try AnySignal(frame) {
      case .connectionParameterUpdateRequest(let request):
        receive(request, identifier, from: link, &effects)
      case .connectionParameterUpdateResponse(let response):
        let isSent = sent.end(identifier, of: .parameterUpdate) != nil
        guard isSent else { return effects.report(.unexpectedSignal(code, identifier: identifier), link) }
        effects.append(.parameterUpdateEnded(link, response.result == 0 ? .accepted : .rejected))
      case .commandRejectResponse(let response):
        guard let procedure = sent.end(identifier) else {
          return effects.report(.unexpectedSignal(code, identifier: identifier), link)
        }
        effects.report(procedure, .notUnderstood(response.reason), link)
      case .disconnectionRequest(let request):
        let content = Answer.invalidCID(local: request.destinationCID, remote: request.sourceCID)
        effects.report(answer(identifier, content) ? .rejectedSignal(code) : .tooManySignals(code), link)
      case .leCreditBasedConnectionRequest, .creditBasedConnectionRequest, .creditBasedReconfigureRequest:
        effects.report(answer(identifier, .notUnderstood) ? .rejectedSignal(code) : .tooManySignals(code), link)
      case .disconnectionResponse, .leCreditBasedConnectionResponse, .flowControlCreditIndication,
        .creditBasedConnectionResponse, .creditBasedReconfigureResponse:
        effects.report(.unexpectedSignal(code, identifier: identifier), link)
      case nil where code.isRequest:
        effects.report(answer(identifier, .notUnderstood) ? .rejectedSignal(code) : .tooManySignals(code), link)
      case nil:
        effects.report(.unexpectedSignal(code, identifier: identifier), link)
      }
    } catch {
      let isAnswered = !code.isRequest || answer(identifier, .notUnderstood)
      effects.report(isAnswered ? .malformedSignal(code, error) : .tooManySignals(code), link)
    }
  }

  private mutating func receive(
    _ request: ConnectionParameterUpdateRequest, _ identifier: UInt8, from link: ConnectionHandle,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    let code = ConnectionParameterUpdateRequest.code
    // A central must not ask: Vol 3, Part A, §4.20.
    guard role == .central else {
      return effects.report(answer(identifier, .notUnderstood) ? .rejectedSignal(code) : .tooManySignals(code), link)
    }
    if received.contains(identifier: identifier) {
      return effects.report(.unexpectedSignal(code, identifier: identifier), link)
    }
    guard request.isValid, !received.contains(.parameterUpdate), hasRoomForAnswer else {
      if !answer(identifier, .parameterUpdate(accepted: false)) { effects.report(.tooManySignals(code), link) }
      return
    }
    received.begin(.parameterUpdate, identifier)
    effects.append(.parameterUpdateRequested(link, identifier: identifier, request))
  }
  /// A request that awaits the layer above already has its place among the answers.
  private var hasRoomForAnswer: Bool {
    waiting.count(where: { $0.isAnswer }) + received.count < SignalingChannel.mostAnswers
  }
  private mutating func answer(_ identifier: UInt8, _ content: Answer) -> Bool {
    guard hasRoomForAnswer else { return false }
    waiting.append(.answer(identifier: identifier, content))
    return true
  }

  // MARK: To the peer

  @inlinable @inline(__always) var hasCommand: Bool { !waiting.isEmpty }

  /// Appends the next command; false when there is none.
  @usableFromInline mutating func writeCommand(into output: inout OutputRawSpan, now: Instant) -> Bool {
    switch waiting.popFirst() {
    case .answer(let identifier, let answer)?: write(answer, identifier, into: &output)
    case .request(let request)?:
      let identifier = nextIdentifier()
      sent.begin(request.procedure, identifier, deadline: now + SignalingChannel.responseTimeout)
      switch request {
      case .parameterUpdate(let request):
        write(.connectionParameterUpdateRequest(request), identifier, into: &output)
      }
    case nil: return false
    }
    return true
  }
  /// 1 … 255 in turn: each is reused only after all others, and not while it is pending. Vol 3, Part A, §4.
  private mutating func nextIdentifier() -> UInt8 {
    repeat {
      lastIdentifier = lastIdentifier == 255 ? 1 : lastIdentifier + 1
      // One of each procedure can be pending, so this ends.
    } while sent.contains(identifier: lastIdentifier)
    return lastIdentifier
  }
  private func write(_ answer: Answer, _ identifier: UInt8, into output: inout OutputRawSpan) {
    var reject = CommandRejectResponse(), data: [UInt8] = []
    switch answer {
    case .parameterUpdate(let accepted):
      let response = ConnectionParameterUpdateResponse.with { $0.result = accepted ? 0 : 1 }
      return write(.connectionParameterUpdateResponse(response), identifier, into: &output)
    case .notUnderstood: break
    case .mtuExceeded:
      let mtu = UInt16(L2CAPChannel.leSignaling.lengths.upperBound)
      reject.reason = .signalingMTUExceeded
      reject.reasonData = Octets([UInt8(mtu & 0xFF), UInt8(mtu >> 8)], in: &data)
    case .invalidCID(let local, let remote):
      reject.reason = .invalidCIDInRequest
      reject.reasonData = Octets(
        [local, remote].flatMap { [UInt8($0.rawValue & 0xFF), UInt8($0.rawValue >> 8)] }, in: &data)
    }
    write(.commandRejectResponse(reject), identifier, data, into: &output)
  }
  private func write(
    _ signal: AnySignal, _ identifier: UInt8, _ data: [UInt8] = [], into output: inout OutputRawSpan
  ) {
    do throws(WireError) {
      try signal.writeCommand(identifier: identifier, into: &output, from: data.span)
    } catch {
      preconditionFailure("no room for a signaling command: \(error)")
    }
  }

  // MARK: Time and end

  var deadline: Instant? { sent.deadline }
  mutating func expire(now: Instant, of link: ConnectionHandle, _ effects: inout Deque<L2CAPEffect>) {
    while let procedure = sent.endDue(now: now) { effects.report(procedure, .timedOut, link) }
  }
  /// Ends everything that waits, once.
  mutating func close(_ link: ConnectionHandle, _ effects: inout Deque<L2CAPEffect>) {
    while let procedure = sent.endFirst() { effects.report(procedure, .linkClosed, link) }
    while let command = waiting.popFirst() {
      if case .request(let request) = command { effects.report(request.procedure, .linkClosed, link) }
    }
  }
}

extension Deque<L2CAPEffect> {
  /// A procedure of ours has ended without its own response.
  fileprivate mutating func report(
    _ procedure: SignalProcedure, _ outcome: ParameterUpdateOutcome, _ link: ConnectionHandle
  ) {
    switch procedure {
    case .parameterUpdate: append(.parameterUpdateEnded(link, outcome))
    }
  }
}
