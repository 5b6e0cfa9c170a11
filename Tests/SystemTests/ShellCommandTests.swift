import BindruneSystem
import Foundation
import TestSupport
import Testing

@Suite(.realTime, .hang) struct ShellCommandTests {
  private func run(_ command: String, within limit: Duration = .seconds(60)) async throws(ShellCommand.Failure)
    -> String
  {
    try await ShellCommand(command).run(["BINDRUNE_QUESTION": "compare"], within: limit)
  }

  @Test(arguments: [
    ("echo yes", "yes"), ("printf 'one\\ntwo\\n'", "one"), ("printf no", "no"), ("true", ""),
    ("echo $BINDRUNE_QUESTION", "compare"), ("read line; echo \"<$line>\"", "<>"),
    ("test -n \"$PATH\" && echo kept", "kept"),
    ("head -c 1000000 /dev/zero | tr '\\0' x", String(repeating: "x", count: 256)),
  ])
  func theFirstLineIsTheAnswer(command: String, line: String) async throws {
    #expect(try await run(command) == line)
  }
  @Test(arguments: [("echo yes; exit 3", CInt(3)), ("kill -9 $$", 137), ("/no/such/program", 127)])
  func aCommandThatFails(command: String, status: CInt) async {
    await #expect(throws: ShellCommand.Failure.failed(status: status)) { try await run(command) }
  }
  /// With everything that it has started.
  @Test(arguments: [true, false]) func itIsKilled(isCancelled: Bool) async throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    let command = "sleep 600 & echo $! >'\(path)'; wait"
    let work = Task { () -> ShellCommand.Failure? in
      do throws(ShellCommand.Failure) {
        _ = try await run(command, within: isCancelled ? .seconds(600) : .seconds(1))
      } catch {
        return error
      }
      return nil
    }
    var pid: pid_t?
    while pid == nil {
      try await Task.sleep(for: .milliseconds(10))
      let text = try? String(contentsOfFile: path, encoding: .utf8)
      pid = text.flatMap { pid_t($0.trimmingCharacters(in: .whitespacesAndNewlines)) }
    }
    if isCancelled { work.cancel() }
    #expect(await work.value == (isCancelled ? .cancelled : .tooSlow(.seconds(1))))
    // A zombie that nobody has collected is dead, too.
    while let state = try? String(contentsOfFile: "/proc/\(pid ?? 0)/stat", encoding: .utf8), !state.contains(") Z") {
      try await Task.sleep(for: .milliseconds(10))
    }
  }
}
