import ATT
import BindruneWire
import GATT
import TestSupport

/// A server behind its bearer, as a client's PDUs reach it: octets in, octets out. An application that answers at once.
final class ServedBearer {
  var server: Server
  /// Says what a dynamic value is, and whether it may be written.
  var application: [Int: PlainServer.Application] = [:]
  /// What the server told since the last request.
  private(set) var events: [PlainServer.Event] = []
  private var bearer: Bearer
  private var client = Client()
  private var packet = PacketBuffer(), answer: PacketBuffer
  let id = BearerID(rawValue: 1)

  init(_ database: Database, mtu: Int) {
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    bearer = Bearer(id, configuration: configuration)
    answer = PacketBuffer(capacity: mtu)
    server = Server(database: database)
    server.open(id)
    if mtu > Bearer.defaultMTU { _ = ask([0x02, UInt8(mtu & 0xFF), UInt8(mtu >> 8)]) }
    precondition(bearer.mtu == mtu)
  }

  /// The response to one PDU; nil when there is none.
  func ask(_ request: [UInt8]) -> [UInt8]? {
    events = []
    bearer.receive(request.span, now: .zero, server: &server, client: &client)
    while let question = takeEffects() {
      // An answer may lead to the next question of the same request.
      if let answer = respond(to: question) { bearer.respond(answer.span) }
    }
    while bearer.nextEffect() != nil {}
    return packet.fill { bearer.nextPDU(into: &$0, now: .zero, client: &client) } ? packet.bytes : nil
  }

  private struct Question {
    var id: ServerRequestID
    /// An error, or what was asked for: for a write nothing.
    var refusal: (error: ATTError, about: AttributeHandle)?
    var value: [UInt8]?
  }
  /// Writes down what the server says and finds what it asks.
  private func takeEffects() -> Question? {
    var question: Question?
    while let effect = server.nextEffect() {
      switch effect {
      case .subscriptionChanged(_, let handle, let configuration):
        events.append(.subscribed(Int(handle.rawValue), configuration.rawValue))
      case .written(_, let handle, let offset, let value):
        events.append(.written(Int(handle.rawValue), offset: Int(offset), server.bytes(of: value)))
      case .readRequested(let id, _, let handle, let offset):
        events.append(.reads(Int(handle.rawValue), offset: Int(offset)))
        question = Question(id: id)
        do throws(PlainError) {
          question?.value = try application[Int(handle.rawValue), default: .init()].read(from: Int(offset))
        } catch {
          question?.refusal = (ATTError(rawValue: error.code), handle)
        }
      case .writeRequested(let id, _, let handle, let offset, let value, let following):
        let octets = server.bytes(of: value)
        events.append(.writes(Int(handle.rawValue), offset: Int(offset), octets, following: following))
        if question == nil { question = Question(id: id) }
        if question?.refusal == nil, let error = application[Int(handle.rawValue)]?.writeError {
          question?.refusal = (ATTError(rawValue: error), handle)
        }
      case .requestCancelled, .store: break
      }
    }
    return question
  }
  /// The response PDU; nil when the request goes on.
  private func respond(to question: Question) -> [UInt8]? {
    var outcome = AnswerOutcome.unwanted(.unknown)
    _ = answer.fill { output in
      if let (error, handle) = question.refusal {
        outcome = server.refuse(question.id, error, about: handle, into: &output)
      } else if let value = question.value {
        outcome = server.answerRead(question.id, with: value.span, into: &output)
      } else {
        outcome = server.answerWrite(question.id, into: &output)
      }
      return true
    }
    if case .response = outcome { return answer.bytes }
    return nil
  }

  func setSecurity(_ security: BearerSecurity, keySize: Int, isAuthorized: Bool) {
    server.setSecurity(security, keySize: keySize, of: id)
    server.setAuthorized(isAuthorized, of: id)
  }
  func setValue(_ raw: Int, _ value: [UInt8]) -> Bool { server.setValue(handle(UInt16(raw)), to: value) }
  func insert(_ builder: DatabaseBuilder) throws { try server.insert(builder) }
  func remove(_ service: AttributeHandle) throws {
    events = []
    try server.remove(service: service)
    _ = takeEffects()
  }
}
