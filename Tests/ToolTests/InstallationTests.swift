import Foundation
import TestSupport
import Testing

private func isExecutable(_ path: String) -> Bool { FileManager.default.isExecutableFile(atPath: path) }

/// The pages and completions that a package installs: Scripts/manual and Scripts/completions.
@Suite("Tool: manual pages and completions", .realTime, .hang) struct InstallationTests {
  private let scripts = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Scripts").path

  @Test(.enabled(if: isExecutable("/usr/bin/python3"))) func everyVerbHasAPage() async throws {
    try await withFolder { folder in
      let made = try await Tool.shell("\(scripts)/manual \(folder.path) \(Tool.path)").end()
      #expect(made.status == 0 && made.errors == "", "\(made.errors)")
      for verb in ["", "-scan", "-explore", "-read", "-write", "-subscribe", "-shell", "-serve", "-doctor"] {
        let page = try String(contentsOf: folder.appending(path: "bindrune\(verb).1"), encoding: .utf8)
        #expect(page.utf8.allSatisfy { $0 < 0x80 } && page.contains(".SH EXIT STATUS"))
      }
      // groff warns of requests, escapes and characters that it does not know.
      guard isExecutable("/usr/bin/groff") else { return }
      let checked = try await Tool.shell("groff -ww -man -Tutf8 \(folder.path)/*.1 >/dev/null").end()
      #expect(checked.status == 0 && checked.errors == "", "\(checked.errors)")
    }
  }
  @Test func shellsComplete() async throws {
    try await withFolder { folder in
      let made = try await Tool.shell("\(scripts)/completions \(folder.path) \(Tool.path)").end()
      // Without fish the script skips one of its checks, and says so.
      let skipped = isExecutable("/usr/bin/fish") ? "" : made.errors
      if skipped != "" { print(skipped) }
      #expect(made.status == 0 && (made.errors == "" || skipped.hasPrefix("skipped: ")), "\(made.errors)")
      // The completions of bash after `bindrune s`, after `bindrune read --format `, and after `bindrune scan --hci
      // si`.
      for (line, expected) in [
        ("bindrune s", ["scan", "serve", "shell", "subscribe"]),
        ("bindrune read --format ", ["hex", "json", "text", "utf8"]), ("bindrune scan --hci si", ["sim"]),
      ] {
        let words = line.split(separator: " ", omittingEmptySubsequences: false).map { "'\($0)'" }
        let run = """
          PATH=\(Tool.folder.path):$PATH; source \(folder.path)/bindrune.bash
          COMP_WORDS=(\(words.joined(separator: " "))); COMP_CWORD=\(words.count - 1); COMP_LINE='\(line)'
          COMP_POINT=\(line.utf8.count); COMP_TYPE=9
          _bindrune bindrune \(words.last ?? "''") \(words.dropLast().last ?? "''"); printf '%s\\n' "${COMPREPLY[@]}"
          """
        let script = folder.appending(path: "try.bash")
        try run.write(to: script, atomically: true, encoding: .utf8)
        let end = try await Tool.shell("bash --norc \(script.path)").end()
        let offered = end.lines.map { $0.trimmingCharacters(in: .whitespaces) }.sorted()
        #expect(offered == expected, "\(line): \(end)")
      }
    }
  }
}
