import BindruneTrace
import Foundation
import TestSupport
import Testing

/// The page of the rules has the table that the checker uses.
@Suite struct RulesPageTests {
  private let names: [CheckRule.Area: String] = [
    .hci: "HCI", .l2cap: "L2CAP", .att: "ATT", .gatt: "GATT", .smp: "SMP", .ad: "Advertising data",
  ]

  private func page() -> String {
    var text = """
      # The rules

      What ``Checker`` judges, by area.

      ## Overview

      `bindrune trace check --only ID` takes the ids of this table, and the areas before the dot. Sections are those \
      of the Bluetooth Core
      Specification 5.4; CSS is its Supplement, version 11. Each rule has a trace that keeps it and one that breaks it \
      in `Fixtures/Checks`.

      """
    for area in CheckRule.Area.allCases {
      text += "\n## \(names[area] ?? area.rawValue)\n\n| rule | section | demands |\n|---|---|---|\n"
      for rule in CheckRule.allCases where rule.area == area {
        text += "| `\(rule.id)` | \(rule.section) | \(rule.sentence) |\n"
      }
    }
    return text
  }

  @Test func isTheTable() throws {
    let url = VectorFile.fixtures.deletingLastPathComponent().appending(path: "Sources/Trace/Trace.docc/Rules.md")
    if ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] == "1" { try Data(page().utf8).write(to: url) }
    let written = try String(contentsOf: url, encoding: .utf8)
    #expect(written == page(), "BINDRUNE_RECORD=1 swift test --filter RulesPageTests writes it again")
    // The sentences stand in a table.
    #expect(CheckRule.allCases.allSatisfy { !$0.sentence.contains { "|*<`".contains($0) } })
  }
}
