import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// A server behind its bearer, as a client's PDUs reach it: octets in, octets out. An application that answers at once.
final class ServedBearer {
  var server: Server
  /// Provides dynamic values, and decides whether they may be written.
  var application: [Int: PlainServer.Application] = [:]
  /// The server's effects since the last request.
  private(set) var events: [PlainServer.Event] = []
  private var bearer: Bearer
  private var client = Client()
  private var packet = PacketBuffer(), response: PacketBuffer
  let id = BearerID(rawValue: 1)

  init(_ database: Database, mtu: Int) {
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    bearer = Bearer(id, configuration: configuration)
    response = PacketBuffer(capacity: mtu)
    server = Server(database: database)
    server.open(id)
    if mtu > Bearer.defaultMTU { _ = ask([0x02, UInt8(mtu & 0xFF), UInt8(mtu >> 8)]) }
    precondition(bearer.mtu == mtu)
  }

  /// The response to one PDU; nil when there is none.
  func ask(_ request: [UInt8]) -> [UInt8]? {
    events = []
    bearer.receive(request.span, now: .zero, server: &server, client: &client)
    while let answer = takeEffects() {
      // It may cause the next question for the same request.
      if let (ticket, response) = respond(answer) {
        bearer.respond(to: ticket, with: response.span, now: .zero, server: &server)
      }
    }
    while bearer.nextEffect() != nil {}
    return packet.fill { bearer.nextPDU(into: &$0, now: .zero, client: &client) } ? packet.bytes : nil
  }

  /// Records the server's effects and answers its requests to the application.
  private func takeEffects() -> PlainAnswer? {
    var answer: PlainAnswer?
    while let effect = server.nextEffect() {
      switch effect {
      case .subscriptionChanged(_, let handle, let configuration):
        events.append(.subscribed(Int(handle.rawValue), configuration.rawValue))
      case .written(_, let handle, let offset, let value):
        events.append(.written(Int(handle.rawValue), offset: Int(offset), server.bytes(of: value)))
      case .readRequested(let id, _, let handle, let offset):
        events.append(.reads(Int(handle.rawValue), offset: Int(offset)))
        answer = PlainAnswer(id, handle, application[Int(handle.rawValue)], from: Int(offset))
      case .writeRequested(let id, _, let handle, let offset, let value, let following):
        let octets = server.bytes(of: value)
        events.append(.writes(Int(handle.rawValue), offset: Int(offset), octets, following: following))
        if answer == nil { answer = PlainAnswer(id) }
        answer?.write(handle, application[Int(handle.rawValue)])
      case .requestCancelled, .store, .signCounterChanged, .signatureRefused: break
      }
    }
    return answer
  }
  /// The response PDU; nil while the request continues.
  private func respond(_ answer: PlainAnswer) -> (RequestTicket, [UInt8])? {
    var outcome = AnswerOutcome.unwanted(.unknown)
    _ = response.fill { output in
      if let (error, handle) = answer.refusal {
        outcome = server.refuse(answer.id, error, about: handle, into: &output)
      } else if let value = answer.value {
        outcome = server.answerRead(answer.id, with: value.span, into: &output)
      } else {
        outcome = server.answerWrite(answer.id, into: &output)
      }
      return true
    }
    if case .response(let ticket) = outcome { return (ticket, response.bytes) }
    return nil
  }

  func setSecurity(_ security: BearerSecurity, keySize: Int, isAuthorized: Bool) {
    server.setSecurity(security, keySize: keySize, of: id)
    server.setAuthorized(isAuthorized, of: id)
  }
  func setValue(_ raw: Int, _ value: [UInt8]) -> Bool { server.setValue(handle(UInt16(raw)), to: value) }
  /// The octets of a value that may be sent; also compares the check before each notification.
  func mayBeSent(_ raw: Int) -> UInt16 {
    let value = handle(UInt16(raw)), allowed = server.mayBeSent(value, to: id)
    let mayNotify = server.mayNotify(value, to: id)
    #expect(mayNotify == allowed.contains(.notification))
    return allowed.rawValue
  }
  func insert(_ builder: DatabaseBuilder) throws { try server.insert(builder) }
  func remove(_ service: AttributeHandle) throws {
    events = []
    try server.remove(service: service)
    _ = takeEffects()
  }
}
