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
enum SignalProcedure: BitwiseCopyable, Equatable {
  case parameterUpdate
  case connection(ChannelGroup)
  case reconfiguration(ChannelList, mtu: UInt16, mps: UInt16)
  case disconnection(ChannelID)
}

/// The requests of one direction that await their answers: identifier → procedure, wait. Each device numbers its own
/// requests, so each direction has such a table. Vol 3, Part A, §4.
struct PendingSignals: ~Copyable {
  enum Wait: BitwiseCopyable {
    /// The layer above decides when it answers.
    case unlimited
    /// For an answer: the RTX timer.
    case answer(until: Instant)
    /// For a further answer, after one that announced it: the ERTX timer.
    case furtherAnswer(until: Instant)

    var deadline: Instant? {
      switch self {
      case .unlimited: nil
      case .answer(let deadline), .furtherAnswer(let deadline): deadline
      }
    }
  }
  struct Entry: BitwiseCopyable {
    let identifier: UInt8
    let procedure: SignalProcedure
    var wait: Wait
  }
  /// In the order in which they began.
  private(set) var entries = UniqueArray<Entry>()

  var count: Int { entries.count }
  func contains(identifier: UInt8) -> Bool { index { $0.identifier == identifier } != nil }
  func contains(where predicate: (SignalProcedure) -> Bool) -> Bool { index { predicate($0.procedure) } != nil }
  func contains(_ procedure: SignalProcedure) -> Bool { contains { $0 == procedure } }
  /// What the pending request has begun.
  func procedure(of identifier: UInt8) -> SignalProcedure? {
    index { $0.identifier == identifier }.map { entries[$0].procedure }
  }
  /// Of an identifier that is not pending.
  mutating func begin(_ procedure: SignalProcedure, _ identifier: UInt8, deadline: Instant? = nil) {
    let wait: Wait = deadline.map { .answer(until: $0) } ?? .unlimited
    entries.append(Entry(identifier: identifier, procedure: procedure, wait: wait))
  }
  /// A further answer is announced, the first time.
  mutating func extend(_ identifier: UInt8, until deadline: Instant) {
    guard let index = index(where: { $0.identifier == identifier }), case .answer = entries[index].wait else { return }
    entries[index].wait = .furtherAnswer(until: deadline)
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
    for index in entries.indices { least = .earliest(least, entries[index].wait.deadline) }
    return least
  }
  /// Ends one that is due.
  mutating func endDue(now: Instant) -> SignalProcedure? {
    index { $0.wait.deadline.map { $0 <= now } ?? false }.map { entries.remove(at: $0).procedure }
  }
  /// Ends the one that began first.
  mutating func endFirst() -> SignalProcedure? { entries.isEmpty ? nil : entries.remove(at: 0).procedure }

  private func index(where predicate: (Entry) -> Bool) -> Int? {
    for index in entries.indices where predicate(entries[index]) { return index }
    return nil
  }
}

/// # SignalingChannel
/// **Overview**: one link's LE signaling channel, 0x0005 (Vol 3, Part A, §4). Its procedures: a peripheral asks for
/// other connection parameters, and the central accepts or refuses; either device opens, reconfigures and closes
/// credit-based channels, and gives credits for them (`CreditChannel`).
///
/// **Function**: every request gets exactly one answer, and an unknown one is rejected; a response or a reject is never
/// answered. Commands wait here until the controller has room, and leave in the order in which they came; credits leave
/// when no command waits.
///
/// **Phases** of our request: none → waiting (to be sent) → pending (its response, for RTX = 30 s; §6.2.1 allows
/// 1 … 60 s; a response that announces another one gives it ERTX = 300 s, once; §6.2.2 allows 60 … 300 s) → none.
/// **Phases** of the peer's: none → pending (the layer above decides) → none. One request for other connection
/// parameters and one reconfiguration at a time; another is refused meanwhile.
@usableFromInline struct SignalingChannel: ~Copyable {
  @usableFromInline enum Request: BitwiseCopyable {
    case parameterUpdate(ConnectionParameterUpdateRequest)
    case connection(ChannelGroup)
    case reconfiguration(ChannelList, mtu: UInt16, mps: UInt16)
    /// `peer`: the channel's number there.
    case disconnection(ChannelID, peer: ChannelID)
    var procedure: SignalProcedure {
      switch self {
      case .parameterUpdate: .parameterUpdate
      case .connection(let group): .connection(group)
      case .reconfiguration(let channels, let mtu, let mps): .reconfiguration(channels, mtu: mtu, mps: mps)
      case .disconnection(let channel, _): .disconnection(channel)
      }
    }
  }
  @usableFromInline enum Answer: BitwiseCopyable {
    case notUnderstood
    case mtuExceeded
    case invalidCID(local: ChannelID, remote: ChannelID)
    case parameterUpdate(accepted: Bool)
    case connection(ConnectionAnswer)
    case reconfiguration(ReconfigureResult)
    case disconnection(DisconnectionRequest)
  }
  /// A command that waits to be sent.
  @usableFromInline enum Command: BitwiseCopyable {
    /// It gets its identifier and its deadline when it leaves.
    case request(Request)
    case answer(identifier: UInt8, Answer)

    var isOrdinaryAnswer: Bool {
      switch self {
      case .answer(_, .connection), .answer(_, .disconnection), .request: false
      case .answer: true
      }
    }
  }

  /// The RTX timer of a request.
  static var responseTimeout: Duration { .seconds(30) }
  /// The ERTX timer.
  static var furtherTimeout: Duration { .seconds(300) }
  /// The limit of answers that wait on one link, beside those about channels.
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
    return begin(.parameterUpdate(request), unless: { if case .parameterUpdate = $0 { true } else { false } })
  }
  /// False if a procedure of the same kind is in progress.
  mutating func begin(_ request: Request, unless isSame: (SignalProcedure) -> Bool) -> Bool {
    if sent.contains(where: isSame) { return false }
    for case .request(let other) in waiting where isSame(other.procedure) { return false }
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
  mutating func receive(
    _ frame: Span<UInt8>, from link: ConnectionHandle, now: Instant, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    let code = SignalCode(rawValue: frame[0]), identifier = frame[1]
    guard identifier != 0 else { return effects.report(.illegalIdentifier(code), link) }
    do throws(WireError) {
      let header = try WireDecoder.decode(SignalHeader.self, frame, to: SignalHeader.count)
      guard SignalHeader.count + Int(header.length) == frame.count else {
        throw .wrongLength("Length", Int(header.length), expected: frame.count - SignalHeader.count)
      }
      var command = ChannelCommand(identifier: identifier, code: code, link: link, now: now)
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
        end(procedure, .notUnderstood(response.reason), link, &channels, &effects)
      case .leCreditBasedConnectionRequest(let request): receive(request, command, &channels, &effects)
      case .creditBasedConnectionRequest(let request):
        command.list = ChannelNumbers(request.sourceCIDs, in: frame)
        receive(request, command, &channels, &effects)
      case .leCreditBasedConnectionResponse(let response): receive(response, command, &channels, &effects)
      case .creditBasedConnectionResponse(let response):
        command.list = ChannelNumbers(response.destinationCIDs, in: frame)
        receive(response, command, &channels, &effects)
      case .creditBasedReconfigureRequest(let request):
        command.list = ChannelNumbers(request.destinationCIDs, in: frame)
        receive(request, command, &channels, &effects)
      case .creditBasedReconfigureResponse(let response): receive(response, command, &channels, &effects)
      case .disconnectionRequest(let request): receive(request, command, &channels, &effects)
      case .disconnectionResponse(let response): receive(response, command, &channels, &effects)
      case .flowControlCreditIndication(let credits): receive(credits, command, &channels, &effects)
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
  /// A request that awaits the layer above already has its place among the answers. Those to requests for channels, and
  /// to disconnection requests, have their own: the channel table limits them.
  private var hasRoomForAnswer: Bool {
    let updates = received.contains(.parameterUpdate) ? 1 : 0
    return waiting.count(where: { $0.isOrdinaryAnswer }) + updates < SignalingChannel.mostAnswers
  }
  var hasRoomForConnectionAnswer: Bool {
    var count = 0
    for command in waiting { if case .answer(_, .connection) = command { count += 1 } }
    return count + received.count < ChannelID.dynamic.count
  }
  mutating func answer(_ identifier: UInt8, _ content: Answer) -> Bool {
    guard hasRoomForAnswer else { return false }
    waiting.append(.answer(identifier: identifier, content))
    return true
  }

  // MARK: To the peer

  @inlinable @inline(__always) var hasCommand: Bool { !waiting.isEmpty }

  /// Appends the next command; false when there is none.
  @usableFromInline mutating func writeCommand(
    of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant, _ channels: inout ChannelTable
  ) -> Bool {
    switch waiting.popFirst() {
    case .answer(let identifier, let answer)?: write(answer, identifier, into: &output, &channels)
    case .request(let request)?:
      let identifier = nextIdentifier()
      sent.begin(request.procedure, identifier, deadline: now + SignalingChannel.responseTimeout)
      switch request {
      case .parameterUpdate(let request):
        write(.connectionParameterUpdateRequest(request), identifier, into: &output)
      case .connection(let group): write(group, identifier, into: &output, &channels)
      case .reconfiguration(let list, let mtu, let mps):
        var numbers: [UInt8] = []
        let request = CreditBasedReconfigureRequest.with {
          $0.mtu = mtu
          $0.mps = mps
          $0.destinationCIDs = list.wire(in: &numbers)
        }
        write(.creditBasedReconfigureRequest(request), identifier, numbers, into: &output)
      case .disconnection(let channel, let peer):
        let request = DisconnectionRequest.with {
          $0.destinationCID = peer
          $0.sourceCID = channel
        }
        write(.disconnectionRequest(request), identifier, into: &output)
      }
    case nil: return writeCredits(into: &output, &channels) != nil
    }
    return true
  }
  /// Appends the command that gives the credits owed on one channel, and returns this channel's number; nil if none are
  /// owed.
  mutating func writeCredits(into output: inout OutputRawSpan, _ channels: inout ChannelTable) -> ChannelID? {
    guard let (channel, credits) = channels.takeOwedCredits() else { return nil }
    let indication = FlowControlCreditIndication.with {
      $0.cid = channel
      $0.credits = credits
    }
    write(.flowControlCreditIndication(indication), nextIdentifier(), into: &output)
    return .leSignaling
  }
  /// 1 … 255 in turn: each is reused only after all others, and not while it is pending. Vol 3, Part A, §4.
  private mutating func nextIdentifier() -> UInt8 {
    repeat {
      lastIdentifier = lastIdentifier == 255 ? 1 : lastIdentifier + 1
      // Fewer than 255 can be pending: two for each channel of the table, and one of each other procedure.
    } while sent.contains(identifier: lastIdentifier)
    return lastIdentifier
  }
  private func write(
    _ answer: Answer, _ identifier: UInt8, into output: inout OutputRawSpan, _ channels: inout ChannelTable
  ) {
    var reject = CommandRejectResponse(), data: [UInt8] = []
    switch answer {
    case .parameterUpdate(let accepted):
      let response = ConnectionParameterUpdateResponse.with { $0.result = accepted ? 0 : 1 }
      return write(.connectionParameterUpdateResponse(response), identifier, into: &output)
    case .connection(let answer): return write(answer, identifier, into: &output, &channels)
    case .reconfiguration(let result):
      let response = CreditBasedReconfigureResponse.with { $0.result = result }
      return write(.creditBasedReconfigureResponse(response), identifier, into: &output)
    case .disconnection(let request):
      let response = DisconnectionResponse.with {
        $0.destinationCID = request.destinationCID
        $0.sourceCID = request.sourceCID
      }
      return write(.disconnectionResponse(response), identifier, into: &output)
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
  func write(
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
  mutating func expire(
    now: Instant, of link: ConnectionHandle, _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    while let procedure = sent.endDue(now: now) { end(procedure, .timedOut, link, &channels, &effects) }
    while let channel = channels.overdue(now: now) {
      apply(.timeOver, to: channel, .timedOut, link, &channels, &effects)
    }
  }
  /// Ends everything that waits, and all channels, once.
  mutating func close(
    _ link: ConnectionHandle, _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    while let procedure = sent.endFirst() { end(procedure, .linkClosed, link, &channels, &effects) }
    while let command = waiting.popFirst() {
      if case .request(let request) = command { end(request.procedure, .linkClosed, link, &channels, &effects) }
    }
    while let channel = channels.last { apply(.linkDown, to: channel, .linkClosed, link, &channels, &effects) }
  }

  /// How a procedure of ours has ended without its own response.
  enum Ending: BitwiseCopyable {
    case notUnderstood(RejectReason)
    case timedOut
    case linkClosed
  }
  private mutating func end(
    _ procedure: SignalProcedure, _ ending: Ending, _ link: ConnectionHandle, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    switch procedure {
    case .parameterUpdate:
      let outcome: ParameterUpdateOutcome =
        switch ending {
        case .notUnderstood(let reason): .notUnderstood(reason)
        case .timedOut: .timedOut
        case .linkClosed: .linkClosed
        }
      effects.append(.parameterUpdateEnded(link, outcome))
    case .connection, .reconfiguration, .disconnection:
      endChannels(procedure, ending, link, &channels, &effects)
    }
  }
}
