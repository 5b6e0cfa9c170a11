import BindruneWire

/// A bearer of the server or client; the composer assigns the numbers.
public struct BearerID: BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt16
  @inlinable public init(rawValue: UInt16) { self.rawValue = rawValue }
}

/// Names a request that a server answers later. Each is unique for the lifetime of its bearer, so that a late answer
/// cannot be mistaken for the answer to another request.
public struct RequestTicket: BitwiseCopyable, Sendable, Hashable {
  /// The bearer's number, and above it the request's, in one register.
  @usableFromInline var rawValue: UInt64
  @inlinable public init(bearer: BearerID, number: UInt32) {
    rawValue = UInt64(bearer.rawValue) | UInt64(number) &<< 16
  }
  @inlinable @inline(__always) public var bearer: BearerID { BearerID(rawValue: UInt16(truncatingIfNeeded: rawValue)) }
  /// Names the bearer's next request.
  @inlinable mutating func advance() { rawValue &+= 1 &<< 16 }
}

/// The GATT server, as a bearer sees it.
public protocol AttributeServer: ~Copyable {
  /// Answers `request` (any request but Exchange MTU). The response PDU, opcode first, goes into `response`, which has
  /// room for exactly the bearer's ATT_MTU; a longer one is cut as the Specification defines for that PDU. An error is
  /// a response too. `.later` promises one `Bearer.respond` to `ticket`.
  mutating func respond(
    to request: ATTPDU, in packet: Span<UInt8>, as ticket: RequestTicket, now: Instant, response: inout OutputRawSpan
  ) -> ServerAnswer
  /// The bearer has answered this request with Unlikely Error (0x0E), 25 s after the server's `.later`: it accepts no
  /// other answer.
  mutating func expired(_ ticket: RequestTicket, now: Instant)
  /// A command (Write Command, Signed Write Command): there is no response, not even an error.
  mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant)
  /// The client confirmed the indication that was outstanding.
  mutating func confirmed(on bearer: BearerID, now: Instant)
}

public enum ServerAnswer: BitwiseCopyable, Sendable {
  /// The response is in the buffer.
  case now
  /// The application must answer; the response follows through `Bearer.respond`.
  case later
}

/// The GATT client, as a bearer sees it. It may have several bearers.
public protocol AttributeClient: ~Copyable {
  /// Writes the next request, opcode first, into `request` (room for ATT_MTU octets) and returns true; false when there
  /// is none. Called only while no request is outstanding on the bearer: the sequential protocol of Vol 3, Part F,
  /// §3.3.2. `commands` of the bearer have left. A request has its place among them, the value of
  /// `Bearer.commandsTaken` when it was made, and waits until this many have left.
  mutating func nextRequest(
    on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool
  /// False if `nextRequest` would write none, however many commands have left.
  func hasRequest(on bearer: BearerID) -> Bool
  /// A request has been made and has not left: commands offered now must follow it, and are refused until then.
  func holdsCommands(on bearer: BearerID) -> Bool
  /// The response to the request last written on the bearer, an Error Response included.
  mutating func receive(response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant)
  /// A notification or (already confirmed by the bearer) an indication: 0x1B, 0x1D or 0x23.
  mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant)
  /// The bearer is closed: every caller that waits for it fails with `reason`.
  mutating func close(_ reason: BearerClosure, on bearer: BearerID)
}

/// Why a bearer is closed.
public enum BearerClosure: BitwiseCopyable, Sendable, Equatable {
  /// The link is gone.
  case disconnected
  /// No response within 30 s: Vol 3, Part F, §3.3.3.
  case timedOut
}
