import Foundation
import BindruneGATT
import TestSupport
import Testing

/// The workloads to which three C stacks gave identical answers: `Fixtures/Workloads`. Two exchanges of every kind are
/// a conformance script, `Fixtures/Scripts/own/server-300.exchange`.
@Suite struct ServerWorkloadTests {
  /// All 1,780 of both sizes, through the bearer.
  @Test(arguments: [300, 3000]) func allExchanges(attributes: Int) throws {
    let folder = VectorFile.fixtures.appending(path: "Workloads")
    var asked = Reader([UInt8](try Data(contentsOf: folder.appending(path: "reqs_\(attributes).bin"))))
    var expected = Reader([UInt8](try Data(contentsOf: folder.appending(path: "resp_c_\(attributes).bin"))))
    let served = ServedBearer(try .workload(services: attributes / 30), mtu: 247)
    let count = asked.number(4)
    for index in 0..<count {
      let kind = asked.number(1)
      let request = asked.take(asked.number(2)), response = expected.take(expected.number(2))
      let answered = served.ask(request)
      if answered != response {
        Issue.record(
          "request \(index) of kind K\(kind), \(hex(request)): \(answered.map(hex) ?? "nothing"), not \(hex(response))")
      }
    }
    #expect(count == 1780 && asked.isAtEnd && expected.isAtEnd)
  }
}

private struct Reader {
  let bytes: [UInt8]
  var at = 0
  init(_ bytes: [UInt8]) { self.bytes = bytes }
  var isAtEnd: Bool { at == bytes.count }
  mutating func take(_ count: Int) -> [UInt8] {
    defer { at += count }
    return Array(bytes[at..<(at + count)])
  }
  mutating func number(_ width: Int) -> Int { take(width).reversed().reduce(0) { $0 << 8 | Int($1) } }
}
