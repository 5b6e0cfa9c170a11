import BindruneATT
import BindruneWire
import TestSupport

/// A server that answers every request, at once or later, with the response opcode and the request's remaining octets.
struct FakeServer: AttributeServer {
  var log: [String] = []
  var answersLater = false
  /// The requests that it answers later, in their order.
  var tickets: [RequestTicket] = []

  mutating func respond(
    to request: ATTPDU, in packet: Span<UInt8>, as ticket: RequestTicket, now: Instant, response: inout OutputRawSpan
  ) -> ServerAnswer {
    log.append("server: \(text(packet))")
    if answersLater {
      tickets.append(ticket)
      return .later
    }
    precondition(response.byteCount == 0)
    response.append(packet[0] + 1)
    for index in 1..<packet.count where response.freeCapacity > 0 { response.append(packet[index]) }
    return .now
  }
  mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
    log.append("server: \(text(packet))")
  }
  mutating func expired(_ ticket: RequestTicket, now: Instant) {
    log.append("server: expired #\((tickets.firstIndex(of: ticket) ?? -1) + 1)")
  }
  mutating func confirmed(on bearer: BearerID, now: Instant) { log.append("server: confirmed") }
}

/// A client with a list of requests.
struct FakeClient: AttributeClient {
  var log: [String] = []
  var requests: [[UInt8]] = []
  /// Requests sent and neither answered nor failed.
  var outstanding = 0, completed = 0

  mutating func nextRequest(
    on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool {
    guard let next = requests.first, next.count <= mtu else { return false }
    requests.removeFirst()
    request.append(contentsOf: next.span)
    outstanding += 1
    return true
  }
  func hasRequest(on bearer: BearerID) -> Bool { !requests.isEmpty }
  func holdsCommands(on bearer: BearerID) -> Bool { isHolding }
  var isHolding = false
  mutating func receive(response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant) {
    if case .errorResponse(let error) = response {
      log.append("client: error \(hex([error.requestOpcodeInError.rawValue, error.errorCode.rawValue]))")
    } else {
      log.append("client: \(text(packet))")
    }
    outstanding -= 1
    completed += 1
  }
  mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
    log.append("client: \(text(packet))")
  }
  mutating func close(_ reason: BearerClosure, on bearer: BearerID) {
    log.append("client: \(reason)")
    completed += outstanding + requests.count
    outstanding = 0
    requests = []
  }
}

func text(_ packet: Span<UInt8>) -> String { hex(packet.indices.map { packet[$0] }) }

/// One end of a bearer with its clock.
final class Station {
  var bearer: Bearer
  var server = FakeServer()
  var client = FakeClient()
  var now = Instant.zero
  private var buffer = PacketBuffer(capacity: 600)

  init(mtu: Int = 517, kind: BearerKind = .unenhanced, queueCapacity: Int = 4096) {
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    configuration.queueCapacity = queueCapacity
    bearer = Bearer(BearerID(rawValue: 0x40), kind: kind, configuration: configuration)
  }
  var mtu: Int { bearer.mtu }
  var deadline: Instant? { bearer.deadline }
  var closure: BearerClosure? { bearer.closure }

  func receive(_ packet: [UInt8]) { bearer.receive(packet.span, now: now, server: &server, client: &client) }
  func receive(_ packet: String) { receive(octets(packet)) }

  func nextPDU() -> [UInt8]? {
    let wants = bearer.hasPDU(client: client)
    let wrote = buffer.fill { output in bearer.nextPDU(into: &output, now: now, client: &client) }
    precondition(wrote == wants, "hasPDU and nextPDU agree")
    precondition(!wrote || (1...bearer.mtu).contains(buffer.count) || buffer.bytes[0] == 0x03)
    return wrote ? buffer.bytes : nil
  }
  func sent() -> [String] {
    var result: [String] = []
    while let pdu = nextPDU() { result.append(hex(pdu)) }
    return result
  }
  func notify(_ value: [UInt8], _ handle: UInt16 = 3) -> SendAnswer {
    bearer.offer(notification: AttributeHandle(rawValue: handle), value.span)
  }
  func write(_ value: [UInt8], _ handle: UInt16 = 3) -> SendAnswer {
    bearer.offer(command: AttributeHandle(rawValue: handle), value.span, client: client)
  }
  func indicate(_ value: [UInt8], _ handle: UInt16 = 3) -> SendAnswer {
    bearer.indicate(AttributeHandle(rawValue: handle), value.span)
  }
  func remove(_ handle: UInt16, andIndication: Bool = true) -> Bool {
    bearer.removeValues(andIndication: andIndication) { $0.rawValue == handle }
  }
  func offer(multiple tuples: String) -> SendAnswer { bearer.offer(multiple: octets(tuples).span) }
  /// Answers the request that the server deferred last, or the `number`th deferred one.
  func respond(_ pdu: String, to number: Int? = nil, isKept: Bool = false) -> Bool {
    let pdu = octets(pdu), tickets = server.tickets
    guard let ticket = number.map({ tickets[$0 - 1] }) ?? tickets.last else { return false }
    return bearer.respond(to: ticket, with: pdu.span, isKept: isKept, now: now, server: &server)
  }
  func release() -> Bool { bearer.releaseAnswer(now: now, server: &server) }
  func exchangeMTU() -> Bool { bearer.exchangeMTU() }
  func expire() {
    bearer.expire(now: now, server: &server, client: &client)
  }
  func close() { bearer.close(client: &client) }

  func effects() -> [String] {
    var result: [String] = []
    while let effect = bearer.nextEffect() { result.append(ATTTests.text(effect)) }
    return result
  }
  /// The calls so far, then the effects.
  func events() -> [String] {
    defer {
      server.log = []
      client.log = []
    }
    return server.log + client.log + effects()
  }
}

func text(_ effect: BearerEffect) -> String {
  switch effect {
  case .mtuChanged(let mtu): "mtu \(mtu)"
  case .ready: "ready"
  case .indicationConfirmed: "confirmed"
  case .indicationFailed(let closure): "indication failed: \(closure)"
  case .answeredForApplication(let opcode, let handle):
    "answered for application: \(hex([opcode.rawValue])) \(handle.rawValue)"
  case .closed(let closure): "closed: \(closure)"
  case .violation(let violation):
    switch violation {
    case .emptyPDU: "empty"
    case .malformed(let opcode, let error): "malformed \(hex([opcode.rawValue])): \(error.field)"
    case .unknownOpcode(let opcode): "unknown \(hex([opcode.rawValue]))"
    case .unexpectedResponse(let opcode): "unexpected \(hex([opcode.rawValue]))"
    case .errorForAnotherRequest(let opcode): "error for another \(hex([opcode.rawValue]))"
    case .unexpectedConfirmation: "unexpected confirmation"
    case .requestBeforeResponse(let opcode): "early \(hex([opcode.rawValue]))"
    case .requestDropped(let opcode): "dropped \(hex([opcode.rawValue]))"
    case .indicationBeforeConfirmation(let handle): "early indication \(handle.rawValue)"
    case .mtuExchangeUnsupported: "MTU exchange unsupported"
    case .repeatedMTUExchange: "repeated MTU exchange"
    case .mtuTooSmall(let mtu): "mtu too small \(mtu)"
    case .longerThanMTU(let opcode, let count, let mtu): "longer \(hex([opcode.rawValue])): \(count) of \(mtu)"
    }
  }
}
