import BindruneWire

/// Which bearer of the server or client a PDU belongs to: the composer numbers them.
public struct BearerID: BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt16
  @inlinable public init(rawValue: UInt16) { self.rawValue = rawValue }
}

/// Names a request that a server answers later. The bearer gives it, and no other request of the bearer's life has it, so that
/// an answer that comes too late is never taken for the answer to another request.
public struct RequestTicket: BitwiseCopyable, Sendable, Hashable {
  /// The bearer's number, and above it the request's: one register.
  @usableFromInline var rawValue: UInt64
  @inlinable public init(bearer: BearerID, number: UInt32) {
    rawValue = UInt64(bearer.rawValue) | UInt64(number) &<< 16
  }
  @inlinable @inline(__always) public var bearer: BearerID { BearerID(rawValue: UInt16(truncatingIfNeeded: rawValue)) }
  /// Names the bearer's next request.
  @inlinable mutating func advance() { rawValue &+= 1 &<< 16 }
}

/// What a server bearer hands its requests to: the GATT server.
public protocol AttributeServer: ~Copyable {
  /// Answers `request` (any request but Exchange MTU). The response PDU, opcode first, goes into `response`, which has
  /// room for exactly the bearer's ATT_MTU; whatever does not fit is cut as the Specification says for that PDU.
  /// An error is a response too. `.later` promises one `Bearer.respond` to `ticket`.
  mutating func respond(
    to request: ATTPDU, in packet: Span<UInt8>, as ticket: RequestTicket, now: Instant, response: inout OutputRawSpan
  ) -> ServerAnswer
  /// The bearer has answered this request with Unlikely Error (0x0E), 25 s after the server's `.later`: its answer is not
  /// wanted any more.
  mutating func expired(_ ticket: RequestTicket, now: Instant)
  /// A command (Write Command, Signed Write Command): there is no answer, not even an error.
  mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant)
  /// The client confirmed the indication that was outstanding.
  mutating func confirmed(on bearer: BearerID, now: Instant)
}

public enum ServerAnswer: BitwiseCopyable, Sendable {
  /// The response stands in the buffer.
  case now
  /// The application has been asked; the answer comes through `Bearer.respond`.
  case later
}

/// What a client bearer hands responses to and pulls requests from: the GATT client. It may have several bearers.
public protocol AttributeClient: ~Copyable {
  /// Writes the next request, opcode first, into `request` (room for ATT_MTU octets) and returns true; false when there
  /// is none. Asked only while no request is outstanding on the bearer: the sequential protocol of Vol 3, Part F, §3.3.2.
  /// `commands` of the bearer have left. A request has its place among them, `Bearer.commandsTaken` at the time when it was
  /// made, and waits until so many have left.
  mutating func nextRequest(
    on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool
  /// False: `nextRequest` would write none, however many commands have left.
  func hasRequest(on bearer: BearerID) -> Bool
  /// A request has been made and has not left: commands that are offered now come after it, and are not taken before.
  func holdsCommands(on bearer: BearerID) -> Bool
  /// The response to the request last written on the bearer, an Error Response included.
  mutating func receive(response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant)
  /// A notification or (already confirmed by the bearer) an indication: 0x1B, 0x1D or 0x23.
  mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant)
  /// The bearer is dead: every caller that waits for it fails with `reason`.
  mutating func close(_ reason: BearerClosure, on bearer: BearerID)
}

/// Why a bearer carries nothing any more.
public enum BearerClosure: BitwiseCopyable, Sendable, Equatable {
  /// The link is gone.
  case disconnected
  /// No response within 30 s: Vol 3, Part F, §3.3.3.
  case timedOut
}
