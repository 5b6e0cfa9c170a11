import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@Suite struct ServerFuzzTests {
  static let samples = [
    "04 01 00 FF FF", "06 01 00 FF FF 00 28 0F 18", "06 01 00 FF FF 00 28 " + customOctets(0), "08 01 00 FF FF 03 28",
    "08 01 00 FF FF " + customOctets(2), "0A 03 00", "0A 3A 00", "0C 3E 00 10 00", "0E 03 00 05 00 13 00",
    "10 01 00 FF FF 00 28", "12 34 00 01 02 03", "12 13 00 01 00", "12 3A 00 01", "16 34 00 00 00 01 02",
    "16 3E 00 10 00 01 02", "16 3A 00 00 00 01", "16 13 00 00 00 01 00", "18 00", "18 01", "20 03 00 05 00",
    "52 34 00 01", "52 3A 00 01", "D2 34 00 01 00 01 02 03 04 05 06 07 08 09 0A 0B",
  ]

  /// Any PDU of a client causes a response of at most ATT_MTU octets or a request to the application, never a trap.
  @Test(arguments: [23, 24, 27, 64, 247, 517]) func anyRequest(mtu: Int) throws {
    let tester = ServerUnderTest(try richDatabase(), mtu: mtu)
    var chance = SplitMix64(seed: Fuzz.seed &+ UInt64(mtu)), answered = 0, waiting: [ServerRequestID] = []
    for request in Fuzz(Self.samples.map { octets($0) }) {
      if let opcode = request.first, opcode & 0x40 != 0 {
        tester.command(hex(request))
      } else if let response = tester.ask(request) {
        #expect((1...mtu).contains(response.count))
        // The response of this request, or an Error Response to it.
        #expect(response[0] == (request.first ?? 0) + 1 || response[0] == 0x01 && response[1] == request.first ?? 0)
        answered += 1
      }
      for effect in tester.effects() {
        switch effect {
        case .readRequested(let id, _, _, _), .writeRequested(let id, _, _, _, _, _): waiting.append(id)
        case .requestCancelled(let id, _): waiting.removeAll { $0 == id }
        default: break
        }
      }
      if let id = waiting.first, Bool.random(using: &chance) {
        let response: String
        switch UInt8.random(in: 0...3, using: &chance) {
        case 0:
          response = tester.answerRead(id.rawValue, Array(repeating: 1, count: .random(in: 0...600, using: &chance)))
        case 1: response = tester.answerWrite(id.rawValue)
        case 2: response = tester.refuse(id.rawValue, .unlikelyError)
        default:
          tester.expire()
          response = "nobody waits"
        }
        if !response.hasPrefix("nobody waits") {
          if response != later { #expect((1...mtu).contains(octets(response).count)) }
          waiting.removeFirst()
        }
      }
      if Int.random(in: 0..<500, using: &chance) == 0 {
        tester.server.close(tester.bearer)
        tester.server.open(tester.bearer)
        tester.server.setSecurity(
          BearerSecurity(rawValue: .random(in: 0...3, using: &chance)) ?? .none, of: tester.bearer)
      }
    }
    #expect(answered > 1000)
    #expect(tester.server.database.count == 38)
  }
}
