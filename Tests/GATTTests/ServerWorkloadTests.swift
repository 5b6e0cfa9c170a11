import Foundation
import GATT
import TestSupport
import Testing

/// The workloads that three C stacks answered alike, byte for byte. Two exchanges of every kind are a conformance script,
/// `Fixtures/Scripts/own/server-300.exchange`.
@Suite struct ServerWorkloadTests {
  /// All 1,780 of both sizes, where `perf/run` has left them: `BINDRUNE_PERF` or the cache folder names the place.
  @Test(arguments: [300, 3000]) func allExchanges(attributes: Int) throws {
    let environment = ProcessInfo.processInfo.environment
    let cache = environment["XDG_CACHE_HOME"] ?? (environment["HOME"] ?? "") + "/.cache"
    let folder = URL(filePath: environment["BINDRUNE_PERF"] ?? cache + "/bindrune-perf")
    guard let requests = try? Data(contentsOf: folder.appending(path: "reqs_\(attributes).bin")),
      let responses = try? Data(contentsOf: folder.appending(path: "resp_c_\(attributes).bin"))
    else {
      print("skipped: no workload of \(attributes) attributes in \(folder.path())")
      return
    }
    let tester = ServerUnderTest(try benchmarkDatabase(services: attributes / 30), mtu: 247)
    var asked = Reader([UInt8](requests)), expected = Reader([UInt8](responses))
    let count = asked.number(4)
    for index in 0..<count {
      let kind = asked.number(1)
      let request = asked.take(asked.number(2))
      let response = expected.take(expected.number(2))
      #expect(tester.ask(request) == response, "request \(index) of kind K\(kind)")
      _ = tester.effects()
    }
    #expect(count == 1780)
  }
}

private struct Reader {
  let bytes: [UInt8]
  var at = 0
  init(_ bytes: [UInt8]) { self.bytes = bytes }
  mutating func take(_ count: Int) -> [UInt8] {
    defer { at += count }
    return Array(bytes[at..<(at + count)])
  }
  mutating func number(_ width: Int) -> Int { take(width).reversed().reduce(0) { $0 << 8 | Int($1) } }
}
