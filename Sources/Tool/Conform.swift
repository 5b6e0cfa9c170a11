import ArgumentParser
import BindruneConformance
import Foundation

struct Conform: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Hold a stack to conformance scripts.",
    discussion: """
      A script is a text file that says what a tester sends and what must come back; Fixtures/Scripts/FORMAT.md tells \
      what stands in one. Without more, our own stack is held to them, in virtual time. Prints PASS or FAIL for each; \
      status 1 if any failed.
      """)

  @Argument(help: ArgumentHelp("Scripts, or folders: all *.exchange in them.", valueName: "script"))
  var scripts: [String]
  @Option(help: ArgumentHelp("The database, instead of the one that a script names (JSON).", valueName: "file"))
  var database: String?
  @Option(
    help: ArgumentHelp("The side under test, instead of the one that a script names.", valueName: "server|client"))
  var side: Side?
  @Flag(help: "Print one JSON object per script, and one for the sum.")
  var json = false
  @Flag(name: .shortAndLong, help: "Show the PDUs of every script.")
  var verbose = false

  func run() async throws {
    var passed = 0, failed = 0, skipped = 0
    for file in try ScriptFile.all(scripts) {
      let script = try override(file.script())
      let verdict = try self.verdict(script, file)
      switch verdict.outcome {
      case .passed: passed += 1
      case .failed: failed += 1
      case .skipped: skipped += 1
      }
      if json { Console.line("\(verdict.json(file.name, script))") } else { show(verdict, file.name) }
      try Task.checkCancellation()
    }
    if json {
      var sum = JSONLine()
      sum.add("passed", passed)
      sum.add("failed", failed)
      sum.add("skipped", skipped)
      Console.line("\(sum)")
    } else {
      let sum = "\(passed) passed, \(failed) failed" + (skipped > 0 ? ", \(skipped) skipped" : "")
      Console.line(Console.styled(sum, failed > 0 ? .red : .green))
    }
    if failed > 0 { throw ExitCode.failure }
  }

  private func override(_ script: Script) throws -> Script {
    var script = script
    if let side { script.side = side }
    guard let side = script.side else {
      throw Failure("\(script.file): no side under test; add \"side: server\" or \"side: client\", or give --side.")
    }
    if side == .server, script.database == nil, database == nil {
      throw Failure("\(script.file): no database for the server; add \"database: FILE.json\", or give --database.")
    }
    return script
  }

  private func verdict(_ script: Script, _ file: ScriptFile) throws -> Verdict {
    let path = database ?? script.database.map { file.neighbour($0) }
    let database = try path.map { try ScriptFile.database($0) } ?? DatabaseFile()
    return Runner.run(script, against: StackTarget(database))
  }

  private func show(_ verdict: Verdict, _ name: String) {
    switch verdict.outcome {
    case .passed: Console.line("\(Console.styled("PASS", .green)) \(name)")
    case .failed(let failure):
      Console.line("\(Console.styled("FAIL", .red)) \(name): \(failure.text)")
    case .skipped(let why): Console.line("\(Console.styled("SKIP", .yellow)) \(name): \(why)")
    }
    if verbose { for line in verdict.transcript { Console.line("  " + Console.styled(line, .dim)) } }
  }
}

extension Side: ExpressibleByArgument {}

extension Verdict.Failure {
  fileprivate var text: String { "line \(line), \(step), expected \(expected), got \(got)" }
}

extension Verdict {
  fileprivate func json(_ name: String, _ script: Script) -> JSONLine {
    var line = JSONLine()
    line.add("name", name)
    line.add("title", script.title)
    line.add("section", script.section)
    line.add("side", script.side?.rawValue)
    switch outcome {
    case .passed: line.add("result", "PASS")
    case .failed(let failure):
      line.add("result", "FAIL")
      line.add("line", failure.line)
      line.add("step", failure.step)
      line.add("expected", failure.expected)
      line.add("got", failure.got)
    case .skipped(let why):
      line.add("result", "SKIP")
      line.add("reason", why)
    }
    line.add("transcript", transcript)
    return line
  }
}
