import BindruneWire
import DequeModule
import HCI

/// The code of a signaling command. Vol 3, Part A, §4, Table 4.2.
public struct SignalCode: OpenNumber, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }

  /// Whether it needs an answer, so that it is rejected if it is not understood. Responses do not, nor do credits
  /// (0x16), the only indication: two stacks would reject each other for ever.
  @inlinable public var isRequest: Bool {
    switch rawValue {
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x15, 0x16, 0x18, 0x1A: false
    default: true
    }
  }
}

/// The header of a signaling command. Vol 3, Part A, §4. On LE a frame contains exactly one command.
public struct SignalHeader: WireRecord {
  public var code = SignalCode()
  /// Links a response to its request; never 0.
  public var identifier: UInt8 = 0
  /// Octets of the fields.
  public var length: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Code", &code)
    try visit.value("Identifier", &identifier)
    try visit.value("Length", &length)
  }
  @inlinable public static var count: Int { 4 }
}

/// The fields of a signaling command.
///
/// `Scripts/messages` writes the list of all from these declarations: `SignalList.swift`.
public protocol L2CAPSignal: WireMessage { static var code: SignalCode { get } }
extension L2CAPSignal { public static var messageNumber: UInt16 { UInt16(code.rawValue) } }

extension AnySignal {
  /// The command in `frame`, header first; nil when this stack does not support its code. Ranges in it refer to
  /// `frame`.
  public init?(_ frame: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(frame) }
    var decoder = try unsafe WireDecoder(frame), header = SignalHeader()
    try header.fields(&decoder)
    try self.init(header.code, &decoder)
  }
  public var code: SignalCode {
    var facts = WireFacts()
    do throws(WireError) { try visit(&facts) } catch {}
    return SignalCode(rawValue: UInt8(truncatingIfNeeded: facts.number))
  }
  /// Appends the whole command. Ranges are copied from `source`. The caller guarantees room.
  public func writeCommand(
    identifier: UInt8, into output: inout OutputRawSpan, from source: Span<UInt8>
  ) throws(WireError) {
    defer { extendLifetime(source) }
    let start = output.byteCount
    var header = SignalHeader()
    header.code = code
    header.identifier = identifier
    try header.encode(into: &output, from: source)
    var encoder = unsafe WireEncoder(&output, source)
    try visit(&encoder)
    unsafe encoder.commit(&output)
    output.patch(UInt16(output.byteCount - start - SignalHeader.count), at: start + 2)
  }
  /// The fields as text.
  public func describe(in frame: Span<UInt8>) -> String {
    defer { extendLifetime(frame) }
    var describer = unsafe WireDescriber(frame)
    do throws(WireError) { try visit(&describer) } catch {}
    return describer.text
  }
}

/// L2CAP_COMMAND_REJECT_RSP. Vol 3, Part A, §4.1.
public struct CommandRejectResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x01 }
  public static var name: StaticString { "L2CAP_COMMAND_REJECT_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.1" }
  public var reason = RejectReason.commandNotUnderstood
  /// Empty; or the MTU_sig in force (2 octets); or the local and remote channel IDs (4 octets).
  public var reasonData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Reason", &reason)
    try visit.octets("Reason Data", &reasonData)
  }
}
/// Why a command was rejected. Vol 3, Part A, §4.1, Table 4.3.
public struct RejectReason: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var commandNotUnderstood: RejectReason { RejectReason(rawValue: 0x0000) }
  @inlinable public static var signalingMTUExceeded: RejectReason { RejectReason(rawValue: 0x0001) }
  @inlinable public static var invalidCIDInRequest: RejectReason { RejectReason(rawValue: 0x0002) }
}

/// L2CAP_DISCONNECTION_REQ. Vol 3, Part A, §4.6. Fixed channels cannot be disconnected, so it is rejected.
public struct DisconnectionRequest: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x06 }
  public static var name: StaticString { "L2CAP_DISCONNECTION_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.6" }
  /// The channel's number at the receiver.
  public var destinationCID = ChannelID()
  /// The channel's number at the sender.
  public var sourceCID = ChannelID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Destination CID", &destinationCID)
    try visit.value("Source CID", &sourceCID)
  }
}

/// L2CAP_CONNECTION_PARAMETER_UPDATE_REQ. Vol 3, Part A, §4.20. From the peripheral to the central only.
public struct ConnectionParameterUpdateRequest: L2CAPSignal, Equatable {
  @inlinable public static var code: SignalCode { 0x12 }
  public static var name: StaticString { "L2CAP_CONNECTION_PARAMETER_UPDATE_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.20" }
  /// Not more than `intervalMax`.
  public var intervalMin = ConnectionInterval(rawValue: 24)
  public var intervalMax = ConnectionInterval(rawValue: 40)
  /// Connection events that the peripheral may skip: 0 … 499, and so few that the timeout exceeds two more intervals.
  public var latency: UInt16 = 0
  public var timeout = SupervisionTimeout(rawValue: 500)
  @inlinable public init() {}
  @inlinable public init(
    intervalMin: ConnectionInterval, intervalMax: ConnectionInterval, latency: UInt16, timeout: SupervisionTimeout
  ) {
    self.intervalMin = intervalMin
    self.intervalMax = intervalMax
    self.latency = latency
    self.timeout = timeout
  }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Interval Min", &intervalMin)
    try visit.value("Interval Max", &intervalMax)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
  }
  /// Every field is in its range, and they are consistent: (1 + latency) × intervalMax × 1.25 ms × 2 < timeout × 10 ms.
  /// L2CAP would allow equality (Vol 3, Part A, §4.20), the controller's command does not (Vol 4, Part E, §7.8.18).
  @inlinable public var isValid: Bool {
    (6...3200).contains(intervalMin.rawValue) && (6...3200).contains(intervalMax.rawValue) && intervalMin <= intervalMax
      && latency <= 499 && (10...3200).contains(timeout.rawValue)
      && (1 + Int(latency)) * Int(intervalMax.rawValue) < Int(timeout.rawValue) * 4
  }
}

/// L2CAP_CONNECTION_PARAMETER_UPDATE_RSP. Vol 3, Part A, §4.21.
public struct ConnectionParameterUpdateResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x13 }
  public static var name: StaticString { "L2CAP_CONNECTION_PARAMETER_UPDATE_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.21" }
  /// 0 accepted, 1 rejected.
  public var result: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Result", &result)
  }
}

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

/// # SignalingChannel
/// **Overview**: one link's LE signaling channel, 0x0005 (Vol 3, Part A, §4). Without credit based channels it has one
/// procedure: a peripheral asks for other connection parameters, and the central accepts or refuses.
///
/// **Function**: every request gets exactly one answer, and an unknown one is rejected; a response or a reject is never
/// answered. Commands wait here until the controller has room.
///
/// **Phases** of our request: none → queued → awaiting (its response, for RTX = 30 s; §6.2.1 allows 1 … 60 s) → none.
/// **Phases** of the peer's: none → raised (the layer above decides) → none. One at a time; another is refused
/// meanwhile.
struct SignalingChannel: ~Copyable {
  enum OurRequest: BitwiseCopyable {
    case none
    case queued(ConnectionParameterUpdateRequest)
    case awaiting(identifier: UInt8, deadline: Instant)
  }
  enum PeersRequest: BitwiseCopyable {
    case none
    case raised(identifier: UInt8)
  }
  /// An answer that waits to be sent.
  struct Answer: BitwiseCopyable {
    enum Content: BitwiseCopyable {
      case notUnderstood
      case mtuExceeded
      case invalidCID(local: ChannelID, remote: ChannelID)
      case parameterUpdate(accepted: Bool)
    }
    var identifier: UInt8
    var content: Content
  }

  /// The RTX timer of the only request.
  static var responseTimeout: Duration { .seconds(30) }
  /// The limit of answers that wait on one link, the one to a raised request included.
  static var mostAnswers: Int { 8 }

  let role: LinkRole
  var ours = OurRequest.none
  var peers = PeersRequest.none
  var lastIdentifier: UInt8 = 0
  var answers = Deque<Answer>()

  init(role: LinkRole) { self.role = role }

  // MARK: From above

  /// Asks the central for other parameters. False unless we are the peripheral, the parameters are in range, and no
  /// request is in progress.
  mutating func requestParameterUpdate(_ request: ConnectionParameterUpdateRequest) -> Bool {
    guard role == .peripheral, request.isValid, case .none = ours else { return false }
    ours = .queued(request)
    return true
  }
  /// Answers the peer's request. False when there is no such request, or no longer.
  mutating func respondToParameterUpdate(identifier: UInt8, accepted: Bool) -> Bool {
    guard case .raised(identifier) = peers else { return false }
    peers = .none
    // `answer` has reserved a place for it.
    answers.append(Answer(identifier: identifier, content: .parameterUpdate(accepted: accepted)))
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
        receive(answer: response.result == 0 ? .accepted : .rejected, code, identifier, from: link, &effects)
      case .commandRejectResponse(let response):
        receive(answer: .notUnderstood(response.reason), code, identifier, from: link, &effects)
      case .disconnectionRequest(let request):
        let content = Answer.Content.invalidCID(local: request.destinationCID, remote: request.sourceCID)
        effects.report(answer(identifier, content) ? .rejectedSignal(code) : .tooManySignals(code), link)
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
    if case .raised(identifier) = peers {
      return effects.report(.unexpectedSignal(code, identifier: identifier), link)
    }
    guard request.isValid, case .none = peers, hasRoomForAnswer else {
      if !answer(identifier, .parameterUpdate(accepted: false)) { effects.report(.tooManySignals(code), link) }
      return
    }
    peers = .raised(identifier: identifier)
    effects.append(.parameterUpdateRequested(link, identifier: identifier, request))
  }
  private mutating func receive(
    answer: ParameterUpdateOutcome, _ code: SignalCode, _ identifier: UInt8, from link: ConnectionHandle,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard case .awaiting(identifier, _) = ours else {
      return effects.report(.unexpectedSignal(code, identifier: identifier), link)
    }
    ours = .none
    effects.append(.parameterUpdateEnded(link, answer))
  }
  /// A request that awaits the layer above already has its place among the answers.
  private var hasRoomForAnswer: Bool {
    let raised = if case .raised = peers { 1 } else { 0 }
    return answers.count + raised < SignalingChannel.mostAnswers
  }
  private mutating func answer(_ identifier: UInt8, _ content: Answer.Content) -> Bool {
    guard hasRoomForAnswer else { return false }
    answers.append(Answer(identifier: identifier, content: content))
    return true
  }

  // MARK: To the peer

  var hasCommand: Bool { if case .queued = ours { true } else { !answers.isEmpty } }

  /// Appends the next command, answers first; false when there is none.
  mutating func writeCommand(into output: inout OutputRawSpan, now: Instant) -> Bool {
    if let answer = answers.popFirst() {
      write(answer, into: &output)
      return true
    }
    guard case .queued(let request) = ours else { return false }
    // 1 … 255 in turn: each is reused only after all others. Vol 3, Part A, §4.
    lastIdentifier = lastIdentifier == 255 ? 1 : lastIdentifier + 1
    ours = .awaiting(identifier: lastIdentifier, deadline: now + SignalingChannel.responseTimeout)
    write(.connectionParameterUpdateRequest(request), lastIdentifier, into: &output)
    return true
  }
  private func write(_ answer: Answer, into output: inout OutputRawSpan) {
    var reject = CommandRejectResponse(), data: [UInt8] = []
    switch answer.content {
    case .parameterUpdate(let accepted):
      let response = ConnectionParameterUpdateResponse.with { $0.result = accepted ? 0 : 1 }
      return write(.connectionParameterUpdateResponse(response), answer.identifier, into: &output)
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
    write(.commandRejectResponse(reject), answer.identifier, data, into: &output)
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

  var deadline: Instant? { if case .awaiting(_, let deadline) = ours { deadline } else { nil } }
  mutating func expire(now: Instant, of link: ConnectionHandle, _ effects: inout Deque<L2CAPEffect>) {
    guard let deadline, deadline <= now else { return }
    ours = .none
    effects.append(.parameterUpdateEnded(link, .timedOut))
  }
  /// Ends everything that waits, once.
  mutating func close(_ link: ConnectionHandle, _ effects: inout Deque<L2CAPEffect>) {
    if case .none = ours { return }
    ours = .none
    effects.append(.parameterUpdateEnded(link, .linkClosed))
  }
}
