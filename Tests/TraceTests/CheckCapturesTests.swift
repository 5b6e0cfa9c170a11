import BindruneTrace
import Foundation
import Testing

/// What the checks find in real traces. A finding here is either listed, with its reason, or a defect.
@Suite struct CheckCapturesTests {
  private func check(_ path: String) throws -> Checker {
    var file = try TraceFile(path: path), sink = DissectingSink(Checker())
    file.resynchronizes = true
    try file.read(into: &sink)
    return sink.sink
  }
  /// The rules that are broken, with how often and by whom: `att.mtu host 2`.
  private func summary(_ checker: Checker) -> [String] {
    var counts: [String: Int] = [:]
    for finding in checker.findings { counts["\(finding.rule.id) \(finding.party.rawValue)", default: 0] += 1 }
    return counts.map { "\($0.key) \($0.value)" }.sorted()
  }

  /// What foreign peers break in our traces. The suite's Bumble asks for undefined opcodes, a cut request, a range that
  /// ends before it begins, and sends an undefined signaling command; where it advertises, Flags are in its scan
  /// response.
  private func provoked(_ name: String) -> [String] {
    if name.hasPrefix("bumble-peripheral") {
      return ["att.opcode peer 2", "att.range peer 1", "att.shape peer 1", "l2cap.signal-code peer 1"]
    }
    return name.hasSuffix("-central") || name == "bumble-explore" ? ["ad.flags-scan-response peer 1"] : []
  }
  @Test(arguments: OwnTraces.names) func ownTrace(_ name: String) throws {
    let checker = try check(OwnTraces.path(name))
    let texts = checker.findings.map { "\($0.number) \($0.rule.id) \($0.party.rawValue): \($0.seen); \($0.allowed)" }
    #expect(summary(checker) == provoked(name), "\(texts)")
    #expect(CheckRule.allCases.count { checker.judgements(of: $0) > 0 } >= 15)
  }

  /// Two findings in ten captures: a controller carries out a command whose bit of Supported_Commands is 0, and a server
  /// names handle 0x0000 in Attribute Not Found.
  @Test(.enabled(if: PublicTraces.arePresent, PublicTraces.absence)) func publicTraces() throws {
    var found: [String] = [], texts: [String] = []
    for name in PublicTraces.names {
      let checker = try check(PublicTraces.path(name))
      found += summary(checker)
      texts += checker.findings.map { "\(name) \($0.number) \($0.rule.id): \($0.seen); \($0.allowed)" }
    }
    #expect(found == ["hci.command-supported controller 1", "att.error-handle peer 1"], "\(texts)")
  }
}
