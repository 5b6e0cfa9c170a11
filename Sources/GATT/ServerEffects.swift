import ATT
import BindruneWire

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
  /// A dynamic value is to be written, from `offset` on: `answerWrite` or `refuse`.
  case writeRequested(ServerRequestID, BearerID, AttributeHandle, offset: UInt16, Octets)
  /// Nobody waits for this answer any more: the bearer was closed, or has answered for the application after 25 s.
  case requestCancelled(ServerRequestID, BearerID)
}

/// Bounds of what a client can make the server keep.
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

/// A request whose answer is the application's.
struct PendingRequest: BitwiseCopyable {
  enum Kind: BitwiseCopyable {
    case read(ATTOpcode)
    case write
    /// What remains of the prepare queue is written when the application has agreed.
    case execute
  }
  var id: ServerRequestID
  var kind: Kind
  var handle: AttributeHandle

  /// The opcode of the request.
  var opcode: ATTOpcode {
    switch kind {
    case .read(let opcode): opcode
    case .write: WriteRequest.opcode
    case .execute: ExecuteWriteRequest.opcode
    }
  }
}

// MARK: - Effects

extension Server {
  /// What happened, in order; `nil` when there is no more, and then the octets of all effects are gone.
  public mutating func nextEffect() -> ServerEffect? {
    if let effect = effects.popFirst() { return effect }
    arenaCount = 0
    return nil
  }
  /// Lends the octets of an effect: valid until `nextEffect` returned `nil`.
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
  func hasRoom(effects more: Int, octets: Int) -> Bool {
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
  /// The application's value for a `.readRequested`, from the offset that was asked for. The response PDU goes into
  /// `response`, which has room for the bearer's ATT_MTU. Returns the bearer that it is for: `nil`, and nothing
  /// written, when nobody waits for it (answered before, cancelled, or not a read).
  public mutating func answerRead(
    _ id: ServerRequestID, with value: Span<UInt8>, into response: inout OutputRawSpan
  ) -> BearerID? {
    guard let index = session(waitingFor: id), case .read(let opcode)? = sessions[index].pending?.kind,
      let pending = sessions[index].pending.take()
    else { return nil }
    let start = response.byteCount
    do throws(Refusal) {
      _ = try readable(pending.handle, index)  // the database or the link's security may have changed meanwhile
      switch opcode {
      case ReadByTypeRequest.opcode:
        // Vol 3, Part F, §3.4.4.2: Length is one octet and counts the handle too.
        let count = min(value.count, 253, response.freeCapacity - 4)
        response.append(ReadByTypeResponse.opcode.rawValue)
        response.append(UInt8(count + 2))
        response.append(littleEndian: pending.handle.rawValue)
        response.append(contentsOf: value.extracting(first: count))
      case let opcode:
        response.append(opcode == ReadRequest.opcode ? ReadResponse.opcode.rawValue : ReadBlobResponse.opcode.rawValue)
        response.append(contentsOf: value.extracting(first: response.freeCapacity))
      }
    } catch {
      response.truncate(to: start)
      error.append(to: &response, request: pending.opcode)
    }
    return sessions[index].bearer
  }

  /// The application agrees to a `.writeRequested`, and has written. Otherwise as `answerRead`.
  public mutating func answerWrite(_ id: ServerRequestID, into response: inout OutputRawSpan) -> BearerID? {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending else { return nil }
    switch pending.kind {
    case .read: return nil
    case .write: response.append(WriteResponse.opcode.rawValue)
    case .execute:
      // What the server keeps was checked before the application was asked; it may have changed since.
      do throws(Refusal) {
        _ = try executePrepared(index, asking: false)
        response.append(ExecuteWriteResponse.opcode.rawValue)
      } catch {
        error.append(to: &response, request: pending.opcode)
      }
    }
    sessions[index].pending = nil
    return sessions[index].bearer
  }

  /// The application says no to a read or write: `error` is one of the Specification's, or its own (0x80 … 0x9F).
  public mutating func refuse(
    _ id: ServerRequestID, _ error: ATTError, into response: inout OutputRawSpan
  ) -> BearerID? {
    guard let index = session(waitingFor: id), let pending = sessions[index].pending.take() else { return nil }
    if case .execute = pending.kind { sessions[index].prepared.removeAll() }
    Refusal(pending.handle, error).append(to: &response, request: pending.opcode)
    return sessions[index].bearer
  }

  /// Nobody waits any more for what was asked on this bearer's behalf: the bearer has answered for an application that
  /// took too long. The application is told once; its answer, should it come, is for nobody.
  public mutating func cancelRequest(on bearer: BearerID) {
    if let index = session(of: bearer) { cancelRequest(ofSession: index) }
  }
  mutating func cancelRequest(ofSession index: Int) {
    guard let pending = sessions[index].pending.take() else { return }
    if case .execute = pending.kind { sessions[index].prepared.removeAll() }
    effects.append(.requestCancelled(pending.id, sessions[index].bearer))
  }
  /// Whose request it is: its ATT_MTU is the room that an answer has.
  public func bearer(waitingFor id: ServerRequestID) -> BearerID? {
    session(waitingFor: id).map { sessions[$0].bearer }
  }
  private func session(waitingFor id: ServerRequestID) -> Int? {
    for index in 0..<sessions.count where sessions[index].pending?.id == id { return index }
    return nil
  }
}
