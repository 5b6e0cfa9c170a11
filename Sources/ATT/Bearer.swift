import BindruneWire
import DequeModule

/// The configuration of a bearer.
public struct BearerConfiguration: BitwiseCopyable, Sendable {
  /// The ATT_MTU that we offer: `Bearer.defaultMTU` … `Bearer.largestMTU`.
  public var preferredMTU = Bearer.largestMTU
  /// Octets that waiting notifications and commands may occupy, eight for each value's header included. At least 528:
  /// room for the longest PDU.
  public var queueCapacity = 16 * 1024
  @inlinable public init() {}
}

/// What carries a bearer, and so where its ATT_MTU comes from. Vol 3, Part F, §3.2.11.
public enum BearerKind: BitwiseCopyable, Sendable {
  /// The fixed channel 0x0004: 23 octets, and one exchange. Vol 3, Part F, §3.2.8, §3.4.2.1; Vol 3, Part G, §5.2.1.
  case unenhanced
  /// A channel of its own, whose MTUs are the bearer's: the lesser of the two, at least 64 (a lesser one counts as 64).
  /// No exchange: Vol 3, Part G, §4.2, §5.3.1.
  case enhanced(mtu: Int)
}

/// What a bearer reports to the layers above.
public enum BearerEffect: Sendable {
  /// An MTU exchange has ended, ours or the peer's; this is the ATT_MTU in force now. Ours may have changed nothing,
  /// because a peer need not support it.
  case mtuChanged(Int)
  /// After an `offer` that returned `.full`: there is room for the longest PDU of the MTU now.
  case ready
  /// The peer has confirmed our indication; another one is possible.
  case indicationConfirmed
  /// The bearer closed before the peer confirmed our indication.
  case indicationFailed(BearerClosure)
  /// The application took more than 25 s to answer this request; the peer got Unlikely Error (0x0E).
  case answeredForApplication(ATTOpcode, AttributeHandle)
  /// The bearer is closed. The fixed channel 0x0004 cannot be closed, so its link must end.
  case closed(BearerClosure)
  /// The peer violated a rule. The case documents what happened to the PDU.
  case violation(ATTViolation)
}

/// How a peer can violate the protocol. The bearer stays open in every case; each case documents the full consequence.
public enum ATTViolation: Sendable {
  /// No opcode. Ignored.
  case emptyPDU
  /// A field is missing, superfluous or impossible. A request gets Invalid PDU (0x04, Vol 3, Part F, §3.3); a response
  /// to the outstanding request ends it as if it were that error; any other PDU is ignored.
  case malformed(ATTOpcode, WireError)
  /// An undefined opcode. A command is ignored (Vol 3, Part F, §3.3), anything else gets Request Not Supported (0x06).
  case unknownOpcode(ATTOpcode)
  /// A response while none is due, or not the one to our request. Ignored: Vol 3, Part F, §3.3.2.
  case unexpectedResponse(ATTOpcode)
  /// An Error Response for a request other than ours. Ignored.
  case errorForAnotherRequest(ATTOpcode)
  /// A confirmation while no indication is outstanding. Ignored: Vol 3, Part F, §3.4.7.3.
  case unexpectedConfirmation
  /// A second request before the response to the first. Accepted, and answered after it: Vol 3, Part F, §3.3.2.
  case requestBeforeResponse(ATTOpcode)
  /// A third request before the response to the first. Dropped without an answer.
  case requestDropped(ATTOpcode)
  /// An indication before our confirmation of the last one has been sent. Dropped: Vol 3, Part F, §3.4.7.2.
  case indicationBeforeConfirmation(AttributeHandle)
  /// An Exchange MTU Request on an enhanced bearer. It gets Request Not Supported (0x06): Vol 3, Part G, §4.2.
  case mtuExchangeUnsupported
  /// A second Exchange MTU Request. Answered, without effect: Vol 3, Part F, §3.4.2.1.
  case repeatedMTUExchange
  /// An Rx MTU below 23. The bearer uses 23: Vol 3, Part F, §3.2.8.
  case mtuTooSmall(UInt16)
  /// A PDU longer than the ATT_MTU in force, the limit for a peer (Vol 3, Part F, §3.2.8). Accepted like any other;
  /// only a Prepare Write Request, whose response would repeat it, gets Invalid PDU (0x04). Decision 0031.
  case longerThanMTU(ATTOpcode, count: Int, mtu: Int)
}

/// # Bearer
/// **Overview**: one bearer of the Attribute Protocol (Vol 3, Part F, §3.2.11): the fixed channel 0x0004 of a link, or
/// an enhanced bearer (`BearerKind`). Both ends of a link are client and server at once, so this type joins four parts:
/// `ServerBearer` (requests in, indications out), `ClientBearer` (requests out, indications in), the
/// `NotificationQueue`, and the ATT_MTU that they share.
///
/// **Function**: `receive` takes a PDU and calls the server or the client while the PDU is borrowed. `nextPDU` writes
/// the next PDU to send, in this order: responses, confirmations, requests, indications, then notifications and
/// commands in the order of their offers. So a flood of notifications does not delay the server's own answers.
/// `nextEffect` returns everything else.
///
/// **Order**: traffic of the layers above leaves in the order of their calls: a request after the commands offered
/// before it, and a command after the requests made before it (`AttributeClient.holdsCommands`); an application's
/// answer and an indication after the notifications offered before them, and notifications after those. Requests wait
/// for one another (Vol 3, Part F, §3.3.2); so do indications. While our Exchange MTU Request awaits its response,
/// which holds values back (§3.4.2.2), an answer precedes them: the peer may be waiting for it.
///
/// **Phases**: open → closed, by `close` (the link is gone) or by a transaction that took more than 30 s (Vol 3, Part
/// F, §3.3.3). Closing fails everything that waits, each once; a closed bearer ignores PDUs and sends none.
public struct Bearer: ~Copyable {
  /// The minimum ATT_MTU, and the one in force before an exchange: Vol 3, Part F, §3.2.8; Vol 3, Part G, §5.2.1.
  public static var defaultMTU: Int { 23 }
  /// The minimum ATT_MTU of an enhanced bearer: Vol 3, Part G, §5.3.1.
  public static var leastEnhancedMTU: Int { 64 }
  /// The greatest useful ATT_MTU: a value of 512 octets, and five for the longest header.
  @inlinable public static var largestMTU: Int { 517 }
  /// A transaction that takes longer ends the bearer: Vol 3, Part F, §3.3.3.
  public static var transactionTimeout: Duration { .seconds(Int(transactionSeconds)) }
  static var transactionSeconds: UInt64 { 30 }

  @usableFromInline enum Phase: BitwiseCopyable {
    case open
    case closed(BearerClosure)
  }
  /// The progress of the peer's Exchange MTU Request.
  @usableFromInline enum PeerExchange: BitwiseCopyable {
    case notAsked
    /// The response waits; sending it completes the exchange.
    case answering(peerRxMTU: Int)
    case done
  }

  public let id: BearerID
  public let kind: BearerKind
  /// The ATT_MTU in force.
  public private(set) var mtu: Int
  /// The greatest MTU that the bearer may get: an exchange offers it.
  @usableFromInline let preferredMTU: Int
  @usableFromInline var phase = Phase.open
  @usableFromInline var peerExchange = PeerExchange.notAsked
  @usableFromInline var serverSide: ServerBearer
  @usableFromInline var clientSide = ClientBearer()
  @usableFromInline var queue: NotificationQueue
  /// A command was refused because a request must leave before it.
  @usableFromInline var isCommandRefused = false
  @usableFromInline var effects = Deque<BearerEffect>()

  public init(
    _ id: BearerID, kind: BearerKind = .unenhanced, configuration: BearerConfiguration = BearerConfiguration()
  ) {
    self.id = id
    self.kind = kind
    switch kind {
    case .unenhanced:
      mtu = Bearer.defaultMTU
      preferredMTU = min(max(configuration.preferredMTU, mtu), Bearer.largestMTU)
    case .enhanced(let channelMTU):
      preferredMTU = Bearer.largestMTU
      mtu = min(max(channelMTU, Bearer.leastEnhancedMTU), preferredMTU)
    }
    serverSide = ServerBearer(id, largestMTU: preferredMTU)
    queue = NotificationQueue(capacity: configuration.queueCapacity)
  }

  @inlinable @inline(__always) var isOpen: Bool { if case .open = phase { true } else { false } }
  /// Why the bearer is closed; nil while it is open.
  public var closure: BearerClosure? { if case .closed(let closure) = phase { closure } else { nil } }
  /// The longest value that a notification, an indication or a command carries now: min(ATT_MTU − 3, 512).
  @inlinable public var longestValue: Int { min(mtu &- 3, NotificationQueue.longestValue) }

  // MARK: From the peer

  /// Processes one PDU: the result is a call of `server` or `client`, an answer, an effect, or nothing.
  @inlinable
  public mutating func receive<S: AttributeServer & ~Copyable, C: AttributeClient & ~Copyable>(
    _ pdu: Span<UInt8>, now: Instant, server: inout S, client: inout C
  ) {
    guard isOpen else { return }
    if pdu.count > mtu { reportLongerThanMTU(pdu) }
    let message: ATTPDU
    do throws(WireError) {
      message = try ATTPDU(pdu)
    } catch {
      return receive(malformed: pdu, error, now: now, client: &client)
    }
    switch message {
    case .exchangeMTURequest(let request):
      guard let room = serverSide.admit(pdu, &effects) else { return }
      receive(request, room)
    case .findInformationRequest, .findByTypeValueRequest, .readByTypeRequest, .readRequest, .readBlobRequest,
      .readMultipleRequest, .readByGroupTypeRequest, .writeRequest, .prepareWriteRequest, .executeWriteRequest,
      .readMultipleVariableRequest:
      guard let room = serverSide.admit(pdu, &effects) else { return }
      serverSide.serve(message, in: pdu, room, mtu: mtu, now: now, server: &server)
    case .writeCommand, .signedWriteCommand:
      server.receive(command: message, in: pdu, on: id, now: now)
    case .handleValueConfirmation:
      guard serverSide.confirm() else { return effects.report(.unexpectedConfirmation) }
      effects.append(.indicationConfirmed)
      server.confirmed(on: id, now: now)
    case .handleValueNotification, .multipleHandleValueNotification:
      client.receive(value: message, in: pdu, on: id, now: now)
    case .handleValueIndication(let indication):
      guard clientSide.receiveIndication() else {
        return effects.report(.indicationBeforeConfirmation(indication.attributeHandle))
      }
      client.receive(value: message, in: pdu, on: id, now: now)
    case .errorResponse, .exchangeMTUResponse, .findInformationResponse, .findByTypeValueResponse, .readByTypeResponse,
      .readResponse, .readBlobResponse, .readMultipleResponse, .readByGroupTypeResponse, .writeResponse,
      .prepareWriteResponse, .executeWriteResponse, .readMultipleVariableResponse:
      guard let request = clientSide.match(message, ATTOpcode(rawValue: pdu[0]), &effects) else { return }
      if request == ExchangeMTURequest.opcode {
        exchangeEnded(message)
      } else {
        client.receive(response: message, in: pdu, on: id, mtu: mtu, now: now)
      }
    }
  }

  /// Decodes `pdu` if it is a notification that `receive` would only pass to the client; the caller then processes it
  /// instead. Nil if `receive` must process `pdu`.
  @inlinable @inline(__always) public func notification(in pdu: Span<UInt8>) -> HandleValueNotification? {
    guard isOpen, pdu.count <= mtu, !pdu.isEmpty, pdu[0] == HandleValueNotification.opcode.rawValue else { return nil }
    return try? WireDecoder.decode(HandleValueNotification.self, pdu, from: 1)
  }

  /// Serves the request that was held while the application worked on the one before it. Its violations were reported
  /// on arrival.
  @inlinable @inline(never)
  mutating func serve<S: AttributeServer & ~Copyable>(
    _ held: ServerBearer.HeldRequest?, now: Instant, server: inout S
  ) {
    guard let held else { return }
    let octets = unsafe serverSide.octets(of: held)
    unsafe serve(octets.span, isWhole: octets.count == held.count, now: now, server: &server)
  }
  @inlinable
  mutating func serve<S: AttributeServer & ~Copyable>(
    _ pdu: Span<UInt8>, isWhole: Bool, now: Instant, server: inout S
  ) {
    guard let room = serverSide.freeRoom else { return }
    let opcode = ATTOpcode(rawValue: pdu[0])
    guard isWhole else { return serverSide.refuse(opcode, .invalidPDU, room) }
    do throws(WireError) {
      let request = try ATTPDU(pdu)
      if case .exchangeMTURequest(let request) = request {
        receive(request, room)
      } else {
        serverSide.serve(request, in: pdu, room, mtu: mtu, now: now, server: &server)
      }
    } catch {
      serverSide.refuse(opcode, Bearer.refusal(error), room)
    }
  }
  /// The error for a request that cannot be decoded: Vol 3, Part F, §3.3.
  @usableFromInline static func refusal(_ error: WireError) -> ATTError {
    if case .unknown = error.reason { .requestNotSupported } else { .invalidPDU }
  }

  @inline(never) @usableFromInline mutating func reportLongerThanMTU(_ pdu: Span<UInt8>) {
    effects.report(.longerThanMTU(ATTOpcode(rawValue: pdu[0]), count: pdu.count, mtu: mtu))
  }

  /// Processes a PDU that cannot be decoded: Vol 3, Part F, §3.3.
  @usableFromInline mutating func receive<C: AttributeClient & ~Copyable>(
    malformed pdu: Span<UInt8>, _ error: WireError, now: Instant, client: inout C
  ) {
    guard !pdu.isEmpty else { return effects.report(.emptyPDU) }
    let opcode = ATTOpcode(rawValue: pdu[0])
    if case .unknown = error.reason {
      effects.report(.unknownOpcode(opcode))
    } else {
      effects.report(.malformed(opcode, error))
    }
    switch opcode.kind {
    case .request, nil:  // to a server what is not defined is a request that it does not support
      guard let room = serverSide.admit(pdu, &effects) else { return }
      serverSide.refuse(opcode, Bearer.refusal(error), room)
    case .response:
      guard let request = clientSide.matchMalformed(opcode) else { return }
      let answer = ErrorResponse(request, .invalidPDU)
      if request == ExchangeMTURequest.opcode {
        exchangeEnded(.errorResponse(answer))
      } else {
        client.receive(response: .errorResponse(answer), in: pdu, on: id, mtu: mtu, now: now)
      }
    case .command, .notification, .indication, .confirmation:
      break
    }
  }

  // MARK: MTU

  /// Sends our MTU to the peer, as a client. Once on a bearer: Vol 3, Part F, §3.4.2.1. Ends with `.mtuChanged`, which
  /// has the MTU in force even if the peer refuses, or with `.closed`. False if it was called before, or the bearer has
  /// no exchange.
  @discardableResult public mutating func exchangeMTU() -> Bool {
    switch kind {
    case .unenhanced: isOpen && clientSide.exchangeMTU()
    case .enhanced: false
    }
  }
  /// The same, unless the peer has begun an exchange: the MTU of a device is the same in both directions, so a second
  /// exchange would change nothing. Vol 3, Part F, §3.4.2.1.
  public mutating func exchangeMTUUnlessPeerHas() { if case .notAsked = peerExchange { exchangeMTU() } }
  /// The peer sends its MTU and asks for ours. The exchange takes effect when the response has been sent: §3.4.2.2.
  @usableFromInline mutating func receive(_ request: ExchangeMTURequest, _ room: ServerBearer.Room) {
    if case .enhanced = kind {
      effects.report(.mtuExchangeUnsupported)
      return serverSide.refuse(ExchangeMTURequest.opcode, .requestNotSupported, room)
    }
    serverSide.answerMTU(preferredMTU, room)
    guard case .notAsked = peerExchange else { return effects.report(.repeatedMTUExchange) }
    peerExchange = .answering(peerRxMTU: Int(request.clientRxMTU))
  }
  /// Our exchange has ended, successfully or not.
  @usableFromInline mutating func exchangeEnded(_ response: ATTPDU) {
    if case .exchangeMTUResponse(let response) = response {
      agree(on: Int(response.serverRxMTU))
    } else {
      effects.append(.mtuChanged(mtu))
    }
  }
  /// The response to the peer's Exchange MTU Request has been sent.
  @usableFromInline mutating func mtuResponseSent() {
    guard case .answering(let peerRxMTU) = peerExchange else { return }
    peerExchange = .done
    agree(on: peerRxMTU)
  }
  /// The MTU in force is the lesser of the two, and at least 23. A peer uses the same MTU in both directions
  /// (§3.4.2.2); for one that does not, the greater applies: an MTU never shrinks, so no waiting PDU must be cut again.
  private mutating func agree(on peerRxMTU: Int) {
    if peerRxMTU < Bearer.defaultMTU { effects.report(.mtuTooSmall(UInt16(clamping: peerRxMTU))) }
    mtu = max(mtu, min(preferredMTU, peerRxMTU))
    effects.append(.mtuChanged(mtu))
  }

  /// The MTUs of an enhanced bearer's channel have changed. An MTU never shrinks: Vol 3, Part A, §4.27.
  public mutating func reconfigured(mtu channelMTU: Int) {
    guard case .enhanced = kind, isOpen else { return }
    mtu = max(mtu, min(channelMTU, preferredMTU))
    effects.append(.mtuChanged(mtu))
  }

  // MARK: To the peer

  /// True while `nextPDU` writes a PDU.
  @inlinable @inline(__always) public func hasPDU<C: AttributeClient & ~Copyable>(client: borrowing C) -> Bool {
    guard isOpen else { return false }
    return (!queue.isEmpty || serverSide.hasIndication) && !clientSide.isExchangingMTU || serverSide.hasResponse
      || clientSide.isConfirmationPending
      || clientSide.isIdle && (clientSide.wantsMTUExchange || client.hasRequest(on: id))
  }
  /// Appends the next PDU to send; false when there is none. `output` has room for ATT_MTU octets.
  ///
  /// Call it only when the PDU can be sent now: a PDU that is still inside can be overtaken by a more urgent one.
  @inlinable
  public mutating func nextPDU<C: AttributeClient & ~Copyable>(
    into output: inout OutputRawSpan, now: Instant, client: inout C
  ) -> Bool {
    guard isOpen else { return false }
    let sent = clientSide.isExchangingMTU ? .max : queue.notificationsSent
    if let opcode = serverSide.writeResponse(into: &output, sent: sent) {
      if opcode == ExchangeMTUResponse.opcode { mtuResponseSent() }
      return true
    }
    if clientSide.writeConfirmation(into: &output) { return true }
    if clientSide.isIdle {
      if clientSide.wantsMTUExchange {
        clientSide.writeMTURequest(preferredMTU, into: &output, now: now)
        return true
      }
      let start = output.byteCount
      if client.hasRequest(on: id),
        client.nextRequest(on: id, after: queue.commandsSent, mtu: mtu, into: &output)
      {
        clientSide.sent(ATTOpcode(rawValue: output.octet(at: start)), now: now)
        releaseCommands(client: client)
        return true
      }
    }
    // No values between our Exchange MTU Request and its response: Vol 3, Part F, §3.4.2.2. Commands wait with them.
    if clientSide.isExchangingMTU { return false }
    if serverSide.hasIndication, serverSide.writeIndication(into: &output, sent: sent, now: now) {
      queue.countIndicationSent()
      return true
    }
    guard queue.pull(into: &output) else { return false }
    if queue.takeReadyEdge(limit: mtu &- 3) { effects.append(.ready) }
    return true
  }

  /// Queues a Handle Value Notification (Vol 3, Part F, §3.4.7.1). Returns at once; the value is copied.
  @inlinable @inline(__always)
  public mutating func offer(notification handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    guard isOpen else { return .closed }
    return queue.offer(HandleValueNotification.opcode, handle, value, limit: longestValue)
  }
  /// Nothing waits or holds values back: a value may be written at once.
  @inlinable @inline(__always) public func isQuiet<C: AttributeClient & ~Copyable>(client: borrowing C) -> Bool {
    isOpen && queue.isEmpty && !clientSide.isExchangingMTU && !hasPDU(client: client)
  }
  /// Appends a Handle Value Notification to `output` instead of queueing it: only while `isQuiet`, and into a packet
  /// that is sent now. `output` has room for ATT_MTU octets.
  @inlinable @inline(__always)
  public mutating func write(
    notification handle: AttributeHandle, _ value: Span<UInt8>, into output: inout OutputRawSpan
  ) -> SendAnswer {
    NotificationQueue.write(HandleValueNotification.opcode, handle, value, limit: longestValue, into: &output)
  }
  /// The same for a Write Command.
  @inlinable @inline(__always)
  public mutating func write(
    command handle: AttributeHandle, _ value: Span<UInt8>, into output: inout OutputRawSpan
  ) -> SendAnswer {
    NotificationQueue.write(WriteCommand.opcode, handle, value, limit: longestValue, into: &output)
  }
  /// Queues a Multiple Handle Value Notification (Vol 3, Part F, §3.4.7.4): `tuples` are two or more of handle, length
  /// and value, together at most ATT_MTU − 1 octets (traps otherwise), because they are never cut. Only for a client
  /// that supports it: Vol 3, Part G, §4.10.2.
  @inlinable public mutating func offer(multiple tuples: Span<UInt8>) -> SendAnswer {
    precondition(tuples.count >= 8 && tuples.count < mtu, "8 … ATT_MTU − 1 octets")
    guard isOpen else { return .closed }
    let first = AttributeHandle(rawValue: UInt16(tuples[0]) | UInt16(tuples[1]) << 8)
    return queue.offer(
      MultipleHandleValueNotification.opcode, first, tuples.extracting(2..<tuples.count), limit: tuples.count &- 2)
  }
  /// Queues a Write Command (Vol 3, Part F, §3.4.5.3). Returns at once; the value is copied. `.full` also while an
  /// earlier request has not left.
  @inlinable public mutating func offer<C: AttributeClient & ~Copyable>(
    command handle: AttributeHandle, _ value: Span<UInt8>, client: borrowing C
  ) -> SendAnswer {
    offer(command: WriteCommand.opcode, handle, value, limit: longestValue, client: client)
  }
  @inlinable mutating func offer<C: AttributeClient & ~Copyable>(
    command opcode: ATTOpcode, _ handle: AttributeHandle, _ value: Span<UInt8>, limit: Int, client: borrowing C
  ) -> SendAnswer {
    guard isOpen else { return .closed }
    if client.holdsCommands(on: id) {
      isCommandRefused = true
      return .full
    }
    return queue.offer(opcode, handle, value, limit: limit)
  }
  /// Queues a Signed Write Command (Vol 3, Part F, §3.4.5.4) like `offer(command:)`. `value` ends with its signature,
  /// and fits into the PDU (traps otherwise), because a part of it would have another signature.
  public mutating func offer<C: AttributeClient & ~Copyable>(
    signed handle: AttributeHandle, _ value: Span<UInt8>, client: borrowing C
  ) -> SendAnswer {
    precondition(value.count <= mtu &- 3)
    return offer(command: SignedWriteCommand.opcode, handle, value, limit: value.count, client: client)
  }
  /// Reports `.ready` for commands that were refused because of a request, when that has left or ended. Call it when
  /// requests have ended; the bearer calls it when it has written one.
  @inlinable @inline(__always)
  public mutating func releaseCommands<C: AttributeClient & ~Copyable>(client: borrowing C) {
    guard isCommandRefused, !client.holdsCommands(on: id) else { return }
    isCommandRefused = false
    queue.refuse()
    if queue.takeReadyEdge(limit: mtu &- 3) { effects.append(.ready) }
  }
  /// The place of a request made now: see `AttributeClient.nextRequest`.
  @inlinable public var commandsTaken: UInt64 { queue.commandsTaken }
  /// How many of them have left.
  @inlinable public var commandsSent: UInt64 { queue.commandsSent }
  /// True while no indication is outstanding, so that `indicate` accepts one.
  public var canIndicate: Bool { isOpen && serverSide.canIndicate }
  /// Sends a Handle Value Indication (Vol 3, Part F, §3.4.7.2). One at a time: `.full` until `.indicationConfirmed`.
  public mutating func indicate(_ handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    guard isOpen else { return .closed }
    let answer = serverSide.indicate(handle, value, limit: longestValue, after: queue.notificationsTaken)
    // It counts as a notification, so that a later answer leaves after it.
    if answer.isAccepted { queue.countIndicationTaken() }
    return answer
  }
  /// Drops the notifications that wait of attributes that `isGone`: their service has been removed, and its handles may
  /// become those of other values. `andIndication`: a waiting indication, too; true if one was dropped, which is then
  /// neither confirmed nor fails.
  public mutating func removeValues(andIndication: Bool, where isGone: (AttributeHandle) -> Bool) -> Bool {
    guard isOpen else { return false }
    let waiting = serverSide.waitingIndication
    var removed = queue.removeNotifications(besides: waiting?.number, where: isGone), isDropped = false
    if andIndication, let (number, handle) = waiting, isGone(handle) {
      serverSide.dropIndication()
      queue.countIndicationDropped()
      removed.append(number)
      isDropped = true
    }
    if removed.count > 0 { serverSide.removePlaces(removed) }
    if queue.takeReadyEdge(limit: mtu &- 3) { effects.append(.ready) }
    return isDropped
  }
  /// The answer that the server's `.later` promised for the request that `ticket` names: a whole PDU of at most ATT_MTU
  /// octets. It leaves after the notifications that the bearer has accepted; `isKept`: not before `releaseAnswer`, or
  /// the end of the 25 s. Then serves a request that was held behind this one. False, without effect, when this answer
  /// is not awaited: the bearer is closed, or the request has been answered, or the bearer has answered it after 25 s.
  @discardableResult @inlinable public mutating func respond<S: AttributeServer & ~Copyable>(
    to ticket: RequestTicket, with response: Span<UInt8>, isKept: Bool = false, now: Instant, server: inout S
  ) -> Bool {
    finish(answer(ticket, response, isKept: isKept), now: now, server: &server)
  }
  /// The bearer has accepted all notifications that precede the kept answer. Then serves a request that was held behind
  /// it. False when none is kept.
  @discardableResult @inlinable public mutating func releaseAnswer<S: AttributeServer & ~Copyable>(
    now: Instant, server: inout S
  ) -> Bool {
    finish(release(), now: now, server: &server)
  }
  @inlinable
  mutating func finish<S: AttributeServer & ~Copyable>(
    _ outcome: ServerBearer.Outcome, now: Instant, server: inout S
  ) -> Bool {
    guard case .taken(let held) = outcome else { return false }
    serve(held, now: now, server: &server)
    return true
  }
  @usableFromInline mutating func answer(
    _ ticket: RequestTicket, _ response: Span<UInt8>, isKept: Bool
  ) -> ServerBearer.Outcome {
    guard isOpen else { return .unwanted }
    return serverSide.respond(to: ticket, with: response, mtu: mtu, after: isKept ? nil : queue.notificationsTaken)
  }
  @usableFromInline mutating func release() -> ServerBearer.Outcome {
    serverSide.release(after: queue.notificationsTaken)
  }

  // MARK: Time, end, effects

  /// When `expire` must act.
  @inlinable @inline(__always) public var deadline: Instant? {
    guard isOpen else { return nil }
    return .earliest(clientSide.deadline, serverSide.deadline)
  }
  /// Handles everything that is due: answers for an application that is late, informs the server, and serves the
  /// request that was held behind; closes the bearer when the peer is late.
  @inlinable
  public mutating func expire<S: AttributeServer & ~Copyable, C: AttributeClient & ~Copyable>(
    now: Instant, server: inout S, client: inout C
  ) {
    guard isOpen else { return }
    switch serverSide.expire(now: now) {
    case .nothing: break
    case .unanswered(let question, let held):
      effects.append(.answeredForApplication(question.opcode, question.handle))
      server.expired(question.ticket, now: now)
      serve(held, now: now, server: &server)
    case .released(let held): serve(held, now: now, server: &server)
    }
    if let deadline = Instant?.earliest(clientSide.deadline, serverSide.confirmationDeadline), deadline <= now {
      close(.timedOut, client: &client)
    }
  }
  /// The link is gone.
  public mutating func close<C: AttributeClient & ~Copyable>(client: inout C) {
    guard isOpen else { return }
    close(.disconnected, client: &client)
  }
  @usableFromInline mutating func close<C: AttributeClient & ~Copyable>(_ closure: BearerClosure, client: inout C) {
    phase = .closed(closure)
    queue.removeAll()
    clientSide.close()
    if serverSide.close() { effects.append(.indicationFailed(closure)) }
    client.close(closure, on: id)
    effects.append(.closed(closure))
  }
  /// True while `nextEffect` returns an effect.
  @inlinable @inline(__always) public var hasEffect: Bool { !effects.isEmpty }
  /// The next effect, in order.
  @inlinable public mutating func nextEffect() -> BearerEffect? { effects.popFirst() }
}

extension Deque<BearerEffect> {
  /// Adds a violation, unless the caller evidently does not take effects: a peer cannot exhaust our memory.
  @usableFromInline mutating func report(_ violation: ATTViolation) {
    if count < 64 { append(.violation(violation)) }
  }
}
