import Foundation
import TestSupport
import Testing

private let pages = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent().appending(path: "Documentation/Course.docc")

/// What the pages say is tested by CourseTests; here is how the tool shows them.
@Suite("Tool: learn", .realTime, .hang) struct LearnTests {
  @Test func list() async throws {
    let end = try await Tool("learn").end()
    #expect(end.status == 0 && end.errors == "" && !end.output.contains("\u{1B}"))
    let names = try FileManager.default.contentsOfDirectory(atPath: pages.path).filter { $0.first?.isNumber == true }
    for name in names {
      let page = try String(contentsOf: pages.appending(path: name), encoding: .utf8)
      let head = try #require(page.firstMatch(of: #/^# (\d+): (.+)\n\n\*\*(\d+) minutes/#))
      #expect(end.lines.contains { $0.contains("\(head.1)  \(head.2) ") && $0.hasSuffix(" \(head.3) min") }, "\(name)")
    }
    #expect(names.count == 10)
  }

  /// Plain text in a pipe: no line of prose is wider than 80 columns, nothing of Markdown is left, no prompt.
  @Test(arguments: 1...10) func chapter(_ number: Int) async throws {
    let end = try await Tool("learn", "\(number)").end()
    #expect(end.status == 0 && end.errors == "" && !end.output.contains("\u{1B}"))
    #expect(end.lines.first?.hasPrefix("\(number): ") == true)
    let prose = end.lines.filter { !$0.hasPrefix("  ") && !$0.hasPrefix("| ") }
    #expect(prose.count > 40 && prose.allSatisfy { $0.count <= 80 }, "\(prose.filter { $0.count > 80 })")
    for mark in ["```", "<!--", "**", "](", "`"] { #expect(!prose.contains { $0.contains(mark) }, "\(mark)") }
    #expect(!end.output.contains("Return runs"))
  }

  @Test func solutions() async throws {
    let end = try await Tool("learn", "4", "--solutions").end()
    #expect(end.status == 0 && end.lines.first == "4: ATT")
    #expect(end.output.contains("0 octets from 44") && !end.output.contains("5: GATT"))
  }

  /// In a pipe `--try` runs every command of the chapter and prints what its page shows, and leaves no folder behind.
  @Test(arguments: ["02-hci", "06-advertising", "08-read-a-trace", "10-a-new-pdu"]) func trial(_ name: String)
    async throws
  {
    let page = try String(contentsOf: pages.appending(path: name + ".md"), encoding: .utf8)
    let shown = page.matches(of: #/(?s)```console\n(.+?)\n```/#).map { String($0.1) }.joined(separator: "\n")
    try await withFolder { folder in
      let end = try await Tool.shell("TMPDIR=\(folder.path) bindrune learn \(Int(name.prefix(2)) ?? 0) --try").end()
      #expect(end.status == 0 && end.errors == "")
      let lines = { (text: String) in text.split(separator: "\n").map { $0.replacing(#/ +$/#, with: "") } }
      #expect(lines(end.output).filter { !$0.isEmpty } == lines(shown).filter { !$0.isEmpty })
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).isEmpty)
    }
  }

  /// On a terminal a prompt comes after the chapter: a number, Return for the next, q.
  @Test func prompt() async throws {
    let terminal = try Terminal(
      "learn", "10", columns: 80, rows: 24, isTyped: true, environment: ["PAGER": "cat > /dev/null"])
    _ = try await terminal.screen { $0.lines.contains { $0.contains("Return runs 1") } }
    terminal.type("\n")
    _ = try await terminal.screen { screen in
      screen.lines.contains { $0 == "PASS belt" } && screen.lines.contains { $0.contains("Return runs 2") }
    }
    terminal.type("7\n")
    _ = try await terminal.screen { $0.lines.contains { $0.contains("There is no command 7") } }
    terminal.type("1\n")
    _ = try await terminal.screen { screen in screen.lines.filter { $0 == "PASS belt" }.count == 2 }
    terminal.type("q\n")
    let end = await terminal.end()
    #expect(end.status == 0 && end.screen.faults.isEmpty, "\(end.screen.faults)")
  }

  @Test func wrongUse() async throws {
    for (arguments, words) in [
      (["11"], "no chapter 11"), (["0"], "no chapter 0"), (["--try"], "the number of a chapter"),
      (["1", "--try", "--solutions"], "exclude each other"), (["four"], "four"),
    ] {
      let end = try await Tool.run(["learn"] + arguments)
      #expect(end.status == 64 && end.errors.contains(words), "\(arguments): \(end.errors)")
    }
    let nowhere = try await Tool.shell("TMPDIR=/nonexistent bindrune learn 10 --try").end()
    expectSentence(nowhere, "Cannot create a folder in /nonexistent")
  }
}
