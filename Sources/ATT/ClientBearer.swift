import BindruneWire
import DequeModule

/// # ClientBearer
/// **Overview**: the client half of a bearer: our requests, one at a time (the sequential protocol of Vol 3, Part F,
/// §3.3.2), and the peer's indications, each of which is confirmed before the next may follow (§3.4.7.2).
///
/// **Function**: takes a request from the GATT client when none is outstanding, remembers its opcode and its deadline,
/// and hands the matching response to the client. It reports and ignores any other PDU: the request stays outstanding,
/// so a stray PDU cannot take the place of its response.
///
/// **Phases**: idle → awaiting (the response to one opcode, for 30 s) → idle. `Bearer` holds the phase closed.
@usableFromInline struct ClientBearer: ~Copyable {
  @usableFromInline enum Phase: BitwiseCopyable {
    case idle
    case awaiting(ATTOpcode, deadline: Instant)
  }
  /// The Exchange MTU Request is sent at most once on a bearer: Vol 3, Part F, §3.4.2.1.
  @usableFromInline enum MTUExchange: BitwiseCopyable { case notAsked, wanted, asked }

  @usableFromInline var phase = Phase.idle
  @usableFromInline var mtuExchange = MTUExchange.notAsked
  /// An indication has been received and its confirmation has not been sent.
  @usableFromInline var isConfirmationPending = false

  init() {}

  @inlinable @inline(__always) var isIdle: Bool { if case .idle = phase { true } else { false } }
  @inlinable @inline(__always) var wantsMTUExchange: Bool { if case .wanted = mtuExchange { true } else { false } }

  /// True if an indication is legal: the previous one has its confirmation. Vol 3, Part F, §3.4.7.2.
  @inlinable mutating func receiveIndication() -> Bool {
    if isConfirmationPending { return false }
    isConfirmationPending = true
    return true
  }
  /// Appends the outstanding confirmation; false when there is none.
  @inlinable @inline(__always) mutating func writeConfirmation(into output: inout OutputRawSpan) -> Bool {
    guard isConfirmationPending else { return false }
    isConfirmationPending = false
    output.append(HandleValueConfirmation.opcode.rawValue)
    return true
  }
  /// Requests an MTU exchange; false when it was requested before.
  mutating func exchangeMTU() -> Bool {
    guard case .notAsked = mtuExchange else { return false }
    mtuExchange = .wanted
    return true
  }
  /// Our Exchange MTU Request has no answer yet.
  @inlinable @inline(__always) var isExchangingMTU: Bool {
    if case .awaiting(let opcode, _) = phase { opcode == ExchangeMTURequest.opcode } else { false }
  }

  /// Records the request that `nextRequest` wrote: its 30 s begin. Vol 3, Part F, §3.3.3.
  @usableFromInline mutating func sent(_ opcode: ATTOpcode, now: Instant) {
    precondition(opcode.kind == .request, "a client writes requests")
    phase = .awaiting(opcode, deadline: now.adding(seconds: Bearer.transactionSeconds))
  }
  @usableFromInline mutating func writeMTURequest(_ clientRxMTU: Int, into output: inout OutputRawSpan, now: Instant) {
    let request = ExchangeMTURequest.with { $0.clientRxMTU = UInt16(clamping: clientRxMTU) }
    _ = output.append(request)
    mtuExchange = .asked
    sent(ExchangeMTURequest.opcode, now: now)
  }

  /// The outstanding opcode, if `response` answers it: then the client is idle again. Otherwise nil, and the request
  /// stays.
  @inlinable @inline(__always)
  mutating func match(_ response: ATTPDU, _ opcode: ATTOpcode, _ effects: inout Deque<BearerEffect>) -> ATTOpcode? {
    guard case .awaiting(let request, _) = phase else {
      effects.report(.unexpectedResponse(opcode))
      return nil
    }
    if case .errorResponse(let error) = response {
      guard error.requestOpcodeInError == request else {
        effects.report(.errorForAnotherRequest(error.requestOpcodeInError))
        return nil
      }
    } else if !opcode.answers(request) {
      effects.report(.unexpectedResponse(opcode))
      return nil
    }
    phase = .idle
    return request
  }
  /// The outstanding opcode, if the malformed response `opcode` would have answered it: then the client is idle again.
  mutating func matchMalformed(_ opcode: ATTOpcode) -> ATTOpcode? {
    guard case .awaiting(let request, _) = phase, opcode.answers(request) else { return nil }
    phase = .idle
    return request
  }

  @inlinable @inline(__always) var deadline: Instant? {
    if case .awaiting(_, let deadline) = phase { deadline } else { nil }
  }
  mutating func close() {
    phase = .idle
    mtuExchange = .asked
    isConfirmationPending = false
  }
}
