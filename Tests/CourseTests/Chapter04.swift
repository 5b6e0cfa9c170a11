import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

// snippet 1
/// A device without a radio: PDUs in, PDUs out.
struct Device: ~Copyable {
  var server: Server
  var client = Client()
  var bearer = Bearer(BearerID(rawValue: 0))

  init(_ database: Database) {
    server = Server(database: database)
    server.open(bearer.id)
    client.open(bearer.id)
  }
  /// Gives it one PDU, and returns what it sends then.
  mutating func receive(_ pdu: [UInt8], now: Instant = .zero) -> [[UInt8]] {
    bearer.receive(pdu.span, now: now, server: &server, client: &client)
    return sends(now: now)
  }
  mutating func sends(now: Instant = .zero) -> [[UInt8]] {
    var pdus: [[UInt8]] = [], packet = PacketBuffer()
    while packet.fill({ bearer.nextPDU(into: &$0, now: now, client: &client) }) { pdus.append(packet.bytes) }
    return pdus
  }
}
// end

@Suite("Course 4: ATT", .hang) struct Chapter4 {
  @Test func page() throws {
    try course("04-att-one-question-at-a-time", exercises: [5, 10]) { page in
      // snippet
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "Heart Rate Sensor in the kitchen")
      var sensor = Device(try builder.build())

      for answer in sensor.receive([0x0A, 0x03, 0x00]) {
        print(hex(answer))
        print(try ATTPDU(answer.span).describe(in: answer.span))
      }
      page.shows()

      // snippet
      for answer in sensor.receive([0x0C, 0x03, 0x00, 0x16, 0x00]) { print(hex(answer)) }
      page.shows()

      // snippet
      for question in [[0x0A, 0x09, 0x00], [0x12, 0x03, 0x00, 0x58], [0x0A, 0x03]] as [[UInt8]] {
        for answer in sensor.receive(question) {
          print(try ATTPDU(answer.span).describe(in: answer.span))
        }
      }
      page.shows()

      // snippet
      while sensor.bearer.nextEffect() != nil {}  // reports about the questions above
      for handle in [3, 5, 3] as [UInt8] {
        let question = [0x0A, handle, 0x00]
        sensor.bearer.receive(question.span, now: .zero, server: &sensor.server, client: &sensor.client)
      }
      print("three questions,", sensor.sends().count, "answers")
      while let effect = sensor.bearer.nextEffect() {
        if case .violation(let violation) = effect { print(violation) }
      }
      page.shows()

      // snippet
      var phone = Device(Database())
      phone.client.read(RequestID(rawValue: 1), AttributeHandle(rawValue: 0x0003))
      print(phone.sends().map(hex))
      let limit = phone.bearer.deadline!
      phone.bearer.expire(now: limit, server: &phone.server, client: &phone.client)
      while let effect = phone.client.nextEffect() {
        if case .completed(let id, .failed(let error)) = effect { print("request", id.rawValue, "failed:", error) }
      }
      page.shows()

      // snippet
      let interval = 0.030  // seconds
      print("reads a second:", Int(1 / (2 * interval)))
      page.shows()
    }
  }
}
