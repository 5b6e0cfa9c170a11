import BindruneCapture
import BindruneHCI
import BindruneTrace
import BindruneWire
import TestSupport
import Testing

/// What two versions of a device are compared by.
@Suite struct SummaryTests {
  private func summary(_ packets: Packets) -> TraceSummary {
    var sink = DissectingSink(TraceSummary())
    for (record, octets) in packets.records { sink.receive(record, octets.span) }
    sink.pause()
    return sink.sink
  }
  private let peer = DeviceAddress(0x0053_005E_0001)
  private func connected(_ pdus: [(Bool, String)]) -> Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 00 01 00 5E 00 53 00 18 00 00 00 F4 01 00")
    for (isHosts, text) in pdus { packets.frame(isHosts ? .fromHost : .fromController, octets(text)) }
    return packets
  }

  /// A summary counts what the checker finds, also where the recorder has cut packets.
  @Test(arguments: CheckTests.cases()) func findings(_ fixture: CheckTests.Case) throws {
    let script = try fixture.script()
    var sink = DissectingSink(TraceSummary())
    script.run(into: &sink)
    #expect(sink.sink.findings == Dictionary(script.check().findings.map { ($0.rule, 1) }, uniquingKeysWith: +))
  }

  /// A service with a characteristic and its configuration moves, gains a property, and another service is new.
  @Test func databases() throws {
    let one = summary(
      connected([
        (true, "10 01 00 FF FF 00 28"), (false, "11 06 01 00 05 00 00 18 06 00 09 00 0D 18"),
        (true, "10 0A 00 FF FF 00 28"), (false, "01 10 0A 00 0A"), (true, "08 06 00 09 00 03 28"),
        (false, "09 07 07 00 10 08 00 37 2A"), (true, "08 08 00 09 00 03 28"), (false, "01 08 08 00 0A"),
        (true, "04 09 00 09 00"), (false, "05 01 09 00 02 29"),
      ]))
    let other = summary(
      connected([
        (true, "10 01 00 FF FF 00 28"), (false, "11 06 01 00 05 00 00 18 06 00 0A 00 0D 18 0B 00 0C 00 0F 18"),
        (true, "10 0D 00 FF FF 00 28"), (false, "01 10 0D 00 0A"), (true, "08 06 00 0A 00 03 28"),
        (false, "09 07 07 00 12 08 00 37 2A"), (true, "08 08 00 0A 00 03 28"), (false, "01 08 08 00 0A"),
        (true, "04 09 00 0A 00"), (false, "05 01 0A 00 02 29"),
      ]))
    #expect(one.servers == [.peer(peer)] && one.failures.isEmpty)
    let a = try #require(one.databases[.peer(peer)]), b = try #require(other.databases[.peer(peer)])
    let result = ShownDatabase.changes(a, b)
    #expect(result.alike == 1)
    #expect(
      result.changes.map { [$0.name, $0.first, $0.second] } == [
        ["180D", "0x0006 … 0x0009", "0x0006 … 0x000A"],
        ["180D / 2A37", "0x0007, value 0x0008, properties 0x10", "0x0007, value 0x0008, properties 0x12"],
        ["180D / 2A37 / 2902", "0x0009", "0x000A"], ["180F", nil, "0x000B … 0x000C"],
      ])
    #expect(result.changes.allSatisfy { !$0.isUnknown })
    #expect(ShownDatabase.changes(a, a).changes.isEmpty)
    // A trace that has not looked for characteristics does not show that they are gone.
    let less = summary(
      connected([
        (true, "10 01 00 FF FF 00 28"), (false, "11 06 01 00 05 00 00 18 06 00 09 00 0D 18"),
        (true, "10 0A 00 FF FF 00 28"), (false, "01 10 0A 00 0A"),
      ]))
    let unknown = ShownDatabase.changes(a, try #require(less.databases[.peer(peer)]))
    #expect(unknown.alike == 2 && unknown.changes.map(\.isUnknown) == [true, true])
  }

  /// Errors by code, but not the end of a search; findings by rule.
  @Test func failuresAndFindings() {
    let summary = summary(
      connected([
        (true, "0A 03 00"), (false, "01 0A 03 00 05"), (true, "0A 03 00"), (false, "01 0A 03 00 05"),
        (true, "10 01 00 FF FF 00 28"), (false, "01 10 01 00 0A"), (false, "0A 04 00"), (true, "01 0A 04 00 01"),
        (false, "0B 01"),
      ]))
    let failures = summary.failures.map { ($0.key.isHosts, $0.key.request.rawValue, $0.key.error.rawValue, $0.value) }
    #expect(failures.map { "\($0)" }.sorted() == ["(false, 10, 5, 2)", "(true, 10, 1, 1)"])
    // A response to no request.
    #expect(summary.findings[.responseAsked] == 1)
  }

  // MARK: Significance

  private func times(_ milliseconds: [Int]) -> Histogram {
    var histogram = Histogram()
    for time in milliseconds { histogram.add(.milliseconds(time)) }
    return histogram
  }
  /// Powers of two lie in a bucket each, so that no two values are tied by it.
  @Test func rankTest() throws {
    func powers(_ counts: [Int]) -> Histogram {
      times(counts.enumerated().flatMap { [Int](repeating: 1 << $0.offset, count: $0.element) })
    }
    // As scipy 1.11 computes it: mannwhitneyu(x, y, method='asymptotic').
    let a = powers([5, 5, 5, 5]), b = powers([2, 4, 6, 8])
    let test = try #require(RankTest(a, b))
    #expect(abs(test.p - Self.expectedP) < 1e-6, "\(test.p)")
    #expect(abs(test.share - 250.0 / 400) < 1e-9 && !test.isSignificant)
    #expect(test.first == 20 && test.second == 20)
    let far = try #require(RankTest(powers([20, 5]), powers([0, 0, 25])))
    #expect(far.isSignificant && far.share == 1 && far.p < 1e-8)
    let same = try #require(RankTest(powers([20]), powers([20])))
    #expect(same.p == 1 && same.share == 0.5)
    // No claim with few samples.
    #expect(RankTest(powers([19]), powers([0, 0, 500])) == nil)
  }
  private static let expectedP = 0.164_703_752_764_916_56
  @Test func sums() {
    var sum = times([1, 10])
    sum.add(times([100]))
    #expect(sum.count == 3 && sum.longest == .milliseconds(100) && sum.shortest == .milliseconds(1))
    let shapes = Histogram.shapes([times([1, 1]), times([1, 1_000])], columns: 10)
    #expect(shapes?.shapes.map(\.first) == [2, 1] && shapes?.shapes.map(\.last) == [0, 1])
    #expect(Histogram.shapes([Histogram()], columns: 10) == nil)
  }
}
