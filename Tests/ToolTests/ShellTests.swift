import Foundation
import TestSupport
import Testing

@testable import BindruneTool

@Suite("Tool: the shell", .realTime, .hang) struct ShellTests {
  private func piped(_ lines: String, _ options: String = "") throws -> Tool {
    try Tool.shell("printf '\(lines)' | bindrune shell --hci sim --name 'Virtual*' \(options)")
  }

  // MARK: From a pipe

  @Test func commandsFromAPipe() async throws {
    let end = try await piped(
      #"""
      # a comment, and an empty line\n\nread battery-level\nread 2A19 device-name\n
      write heart-rate-control-point 01\nformat hex\nread "Battery Level"\nsubscribe 2A37\nwait 2\nunsubscribe\nlist 180F
      """#
    ).end()
    #expect(end.status == 0 && end.errors == "", "\(end)")
    var lines = end.lines
    #expect(lines.prefix(4) == ["87 %", "2A19\t87 %", "device-name\t\"Virtual Heart Rate\"", "57"])
    lines.removeFirst(4)
    let values = lines.prefix { $0.hasPrefix("heart-rate-measurement\t00") }
    #expect(values.count >= 2)
    #expect(lines.dropFirst(values.count).first?.contains("Battery 180F") == true)
    #expect(lines.last?.contains("Client Characteristic Configuration 2902") == true)
  }
  @Test func theFirstErrorEndsIt() async throws {
    let stopped = try await piped(#"read 2A19\nread 2A6E\nread 2A19\n"#).end()
    #expect(stopped.lines == ["87 %"])
    expectSentence(stopped, "no attribute 2A6E", status: 3)
    let refused = try await piped(#"write heart-rate-control-point 07"#).end()
    expectSentence(refused, "0x80", status: 4)
    let late = try await piped(#"subscribe 2A19\nwait 1 0.2\n"#).end()
    expectSentence(late, "0 of 1 values came within 0.2 s", status: 5)
    let kept = try await piped(#"read 2A6E\nfoo\nread \"x\nread 2A19\n"#, "--keep-going").end()
    #expect(kept.status == 1 && kept.lines == ["87 %"], "\(kept)")
    #expect(kept.errors.split(separator: "\n").count == 3)
    #expect(try await piped(#"quit\nfoo\n"#).end().status == 0)
  }
  @Test(arguments: ShellHelp.names) func everythingIsExplained(topic: String) throws {
    let text = try #require(ShellHelp.text(topic) { _ in "battery-level" })
    #expect(text.count > 20 && text.split(separator: "\n").allSatisfy { $0.count <= 120 }, "\(text)")
  }
  @Test(arguments: [
    ("", []), ("  read  2A19 ", ["read", "2A19"]), (#"a "b c" 'd "e' f\ g "#, ["a", "b c", #"d "e"#, "f g"]),
    (#"a "" b"#, ["a", "", "b"]), ("a # b", ["a"]), ("a#b", ["a#b"]), (#"'a\b'"#, [#"a\b"#]), (#""a\"b""#, [#"a"b"#]),
  ])
  func words(line: String, expected: [String]) throws {
    #expect(try ShellWords.split(line) == expected)
  }
  @Test(arguments: [#"a "b"#, "'", #"a\"#]) func wordsWithoutEnd(line: String) {
    #expect(throws: Failure.self) { try ShellWords.split(line) }
  }

  // MARK: On a terminal

  private let cue = "Virtual Heart Rate> "
  /// The prompt with an empty line.
  private var empty: String { String(cue.dropLast()) }
  /// The shell with its first prompt.
  private func terminal(columns: Int = 80) async throws -> Terminal {
    let terminal = try Terminal(
      "shell", "--hci", "sim", "--name", "Virtual*", columns: columns, rows: 24, isTyped: true)
    _ = try await terminal.screen { $0.lines.last == empty && $0.marksPastes }
    return terminal
  }

  @Test func linesAreEditedAndRun() async throws {
    let terminal = try await terminal()
    #expect(!terminal.echoes)
    // Tab completes the command and the name.
    terminal.type("rea\tbatt\t")
    let typed = try await terminal.screen { $0.lines.last == cue + "read battery-level" }
    #expect(typed.cursor.column == cue.count + "read battery-level ".count)
    terminal.type("\r")
    let read = try await terminal.screen {
      $0.lines.suffix(3) == [cue + "read battery-level", "87 %", empty]
    }
    #expect(read.faults.isEmpty)
    // The previous line, edited in its middle, with the keys of a VT100.
    terminal.type("\u{1B}[A\u{17}\u{17}\u{19}\u{1}format hex\u{B}\r\u{1B}[A\u{1B}[A\r")
    _ = try await terminal.screen { $0.lines.suffix(3) == [cue + "read battery-level", "57", empty] }
    // The possible completions.
    terminal.type("read b\t")
    let list = try await terminal.screen {
      $0.lines.last == cue + "read b" && $0.lines.contains { $0.hasPrefix("body-sensor-location") }
    }
    #expect(list.lines.contains { $0.hasPrefix("battery-level") && $0.hasSuffix("2A19") })
    // Ctrl-D does not end the shell while the line has text.
    terminal.type("\u{4}\u{15}\u{4}")
    let end = await terminal.end()
    #expect(end.status == 0 && end.screen.faults.isEmpty && !end.screen.marksPastes, "\(end.screen.faults)")
    #expect(end.screen.lines.last != cue + "read b")
  }
  @Test(arguments: [nil, SIGTERM]) func theTerminalIsGivenBack(signal: Int32?) async throws {
    // A background job has only the standard input that it is given.
    let run = "exec 3<&0; \(Tool.path) shell --hci sim --name 'Virtual*' <&3 & echo pid $!; wait $!; stty -a"
    let terminal = try Terminal("-c", run, program: "/bin/sh", columns: 80, rows: 24, isTyped: true)
    let screen = try await terminal.screen { $0.lines.last == empty && $0.marksPastes }
    #expect(!terminal.echoes)
    if let signal {
      let pid = try #require(screen.lines.first { $0.hasPrefix("pid ") }.flatMap { Int32($0.dropFirst(4)) })
      kill(pid, signal)
    } else {
      terminal.type("quit\r")
    }
    let end = await terminal.end()
    let words = end.screen.lines.flatMap { $0.split(separator: " ") }
    for mode in ["icanon", "echo", "isig", "icrnl"] { #expect(words.contains(Substring(mode)), "\(end.screen.lines)") }
    #expect(!end.screen.marksPastes)
  }
  @Test func valuesStandAboveThePrompt() async throws {
    let terminal = try await terminal()
    terminal.type("subscribe heart-rate-measurement\rread bat")
    let screen = try await terminal.screen { screen in
      screen.lines.last == cue + "read bat" && screen.lines.filter { $0.hasSuffix(" bpm") }.count > 1
    }
    #expect(screen.faults.isEmpty && screen.cursor.row == screen.lines.count - 1)
    #expect(screen.cursor.column == cue.count + "read bat".count)
    terminal.type("tery-level\r")
    _ = try await terminal.screen { $0.lines.contains("87 %") }
    terminal.type("\u{4}")
    #expect(await terminal.end().status == 0)
  }
  @Test func interruptionsEndWhatRuns() async throws {
    let terminal = try await terminal()
    terminal.type("subscribe battery-level\rwait 1 500\r")
    _ = try await terminal.screen { $0.lines.last == cue + "wait 1 500" }
    terminal.type("\u{3}")
    _ = try await terminal.screen { $0.lines.suffix(2) == ["Interrupted.", empty] }
    terminal.type("half a line\u{3}")
    _ = try await terminal.screen { $0.lines.suffix(2) == [cue + "half a line^C", empty] }
    // Pressed before the command has begun.
    terminal.type("wait 1 500\r\u{3}")
    _ = try await terminal.screen { $0.lines.suffix(2) == ["Interrupted.", empty] && $0.lines.count > 6 }
    terminal.type("\u{3}")
    _ = try await terminal.screen { $0.lines.suffix(2).first?.hasPrefix(cue + "^C  (again") == true }
    terminal.type("\u{3}")
    #expect(await terminal.end().status == 0)
  }
  @Test func pastesRunWhenEnterIsPressed() async throws {
    let terminal = try await terminal()
    terminal.type("\u{1B}[200~read 2A19\nread 2A38\u{1B}[201~")
    _ = try await terminal.screen { $0.lines.last == cue + "read 2A19↵read 2A38" }
    terminal.type("\r")
    _ = try await terminal.screen { $0.lines.suffix(3).first == cue + "read 2A38" && $0.lines.contains("87 %") }
    // The first that fails ends the paste.
    terminal.type("\u{1B}[200~foo\nread 2A38\u{1B}[201~\r")
    let screen = try await terminal.screen { $0.lines.suffix(2).first == "The lines after it were not run." }
    #expect(screen.lines.suffix(3).first?.hasPrefix("Error: There is no command foo") == true)
    terminal.type("\u{4}")
    #expect(await terminal.end().status == 0)
  }
  @Test func aNarrowWindow() async throws {
    let terminal = try await terminal(columns: 60)
    let text = "write device-name --utf8 0123456789012345678901234567890123456789"
    terminal.type(text)
    let wide = try await terminal.screen { $0.lines.last?.hasSuffix("6789") == true }
    #expect(wide.faults.isEmpty && (wide.lines.last?.count ?? 0) < 60)
    terminal.resize(columns: 30, rows: 24)
    terminal.signal(SIGWINCH)
    let narrow = try await terminal.screen {
      $0.lines.last?.hasSuffix("6789") == true && ($0.lines.last?.count ?? 0) < 30
    }
    #expect(narrow.faults.isEmpty, "\(narrow.faults)")
    terminal.type("\u{3}\u{4}")
    #expect(await terminal.end().status == 0)
  }
  @Test func theDeviceGoesAway() async throws {
    let radio = try await controllers()
    let server = try Tool("serve", "--hci", radio.spec, "--name", "Belt")
    _ = try await server.line("serving ")
    let terminal = try Terminal(
      "shell", "--hci", radio.spec, "--name", "Belt", columns: 120, rows: 24, isTyped: true)
    _ = try await terminal.screen { $0.lines.last == "Belt>" }
    server.signal(SIGINT)
    _ = await server.end()
    let gone = try await terminal.screen { $0.lines.last == "Belt (not connected)>" }
    #expect(gone.lines.contains { $0.hasPrefix("The link is gone. ") })
    terminal.type("read 2A19\r")
    _ = try await terminal.screen { $0.lines.contains { $0.hasPrefix("Error: Could not keep the link ") } }
    // It comes back.
    let again = try Tool("serve", "--hci", radio.spec, "--name", "Belt")
    _ = try await again.line("serving ")
    terminal.type("connect\r")
    _ = try await terminal.screen { $0.lines.last == "Belt>" }
    terminal.type("read battery-level\r")
    _ = try await terminal.screen { $0.lines.suffix(2) == ["87 %", "Belt>"] }
    terminal.type("\u{4}")
    #expect(await terminal.end().status == 0)
    again.signal(SIGINT)
    radio.tool.signal(SIGINT)
    _ = await (again.end(), radio.tool.end())
  }
}
