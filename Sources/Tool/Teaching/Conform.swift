import BindruneATT
import ArgumentParser
import BindruneConformance
import BindruneTransport
import BindruneWire
import FoundationEssentials

struct Conform: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Run conformance scripts against a stack.",
    discussion: """
      A script is a text file that lists what a tester sends and what must come back; Fixtures/Scripts/FORMAT.md \
      describes the format. By default the scripts test this stack, in virtual time; --against tests another stack \
      over a socket that carries its ATT PDUs, or for scripts of pairing the PDUs of its Security Manager, or for \
      scripts of channels all PDUs of a link, in real time. Prints PASS, FAIL or SKIP for each; status 1 if any failed. --serve offers this stack on a socket, for \
      other tools to test.
      """)

  @Argument(help: ArgumentHelp("Scripts, or folders: all *.exchange files in them.", valueName: "script"))
  var scripts: [String] = []
  @Option(
    help: ArgumentHelp("The stack to test: unix:PATH (SOCK_SEQPACKET) or tcp:HOST:PORT.", valueName: "spec"),
    transform: SocketAddress.init(argument:))
  var against: SocketAddress?
  @Option(
    help: ArgumentHelp("Serve this stack at unix:PATH or tcp:HOST:PORT, until interrupted.", valueName: "spec"),
    transform: SocketAddress.init(argument:))
  var serve: SocketAddress?
  @Option(
    help: ArgumentHelp("The socket for everything but PDUs: unix:PATH or tcp:HOST:PORT.", valueName: "spec"),
    transform: SocketAddress.init(argument:))
  var control: SocketAddress?
  @Option(help: ArgumentHelp("The database, instead of the one that a script names (JSON).", valueName: "file"))
  var database: String?
  @Option(
    help: ArgumentHelp(
      "The side under test of ATT, instead of the one that a script names.", valueName: "server|client"))
  var side: Side?
  @Option(help: ArgumentHelp("How long an answer may take.", valueName: "seconds"))
  var timeout = Seconds(5)
  @Option(
    help: ArgumentHelp(
      "With --serve: the receive MTU of the stack, \(Bearer.defaultMTU) to \(Bearer.largestMTU).",
      valueName: "octets"))
  var mtu: Int?
  @Flag(help: "Print one JSON object per script, and one for the totals.")
  var json = false
  @Flag(name: .shortAndLong, help: "Show the PDUs of every script.")
  var verbose = false

  func validate() throws {
    if serve != nil {
      if !scripts.isEmpty { throw ValidationError("--serve runs no scripts: leave out the scripts, or --serve.") }
      if against != nil { throw ValidationError("--serve and --against are opposite ends: give one of them.") }
    } else {
      if scripts.isEmpty { throw ValidationError("No scripts: name some, or a folder of them.") }
      if control != nil, against == nil { throw ValidationError("--control belongs to --against or --serve.") }
      if mtu != nil { throw ValidationError("--mtu belongs to --serve; a script has its own mtu.") }
    }
    if let mtu, !(Bearer.defaultMTU...Bearer.largestMTU).contains(mtu) {
      throw ValidationError("--mtu is \(Bearer.defaultMTU) to \(Bearer.largestMTU) octets.")
    }
  }

  func run() async throws {
    if let serve { try beServer(at: serve) } else { try play() }
  }

  private func beServer(at address: SocketAddress) throws {
    let server = try StackServer(
      on: address, control: control, database: database.map { try ScriptFile.database($0) } ?? DatabaseFile(), mtu: mtu)
    let control = server.controlAddress.map { ", control on \($0)" } ?? ""
    Console.line("listening on \(server.address)\(control)".printable())
    try server.run(until: { Task.isCancelled }) { line in if verbose { Console.line(line.printable()) } }
  }

  private func play() throws {
    var passed = 0, failed = 0, skipped = 0, hasConnected = false
    for file in try ScriptFile.all(scripts) {
      let scripts: [Script]
      do throws(FileError) {
        scripts = try file.scripts()
      } catch {
        failed += 1
        show(error.description, file.name, nil)
        continue
      }
      for script in scripts {
        let name = file.name(of: script)
        if against != nil { Console.status(name.printable()) }
        let verdict: Verdict
        do {
          verdict = try self.verdict(try override(script), file, &hasConnected)
        } catch let error as UnreadableScript {
          failed += 1
          show(error.description, name, script)
          continue
        }
        switch verdict.outcome {
        case .passed: passed += 1
        case .failed: failed += 1
        case .skipped: skipped += 1
        }
        if json { Console.line(verdict.json(name, script)) } else { show(verdict, name.printable()) }
        Console.waitForReader()
        try Task.checkCancellation()
      }
    }
    if json {
      var sum = JSONLine()
      sum.add("passed", passed)
      sum.add("failed", failed)
      sum.add("skipped", skipped)
      Console.line(sum)
    } else {
      let sum = "\(passed) passed, \(failed) failed" + (skipped > 0 ? ", \(skipped) skipped" : "")
      Console.line(Console.styled(sum, failed > 0 ? .red : .green))
    }
    if failed > 0 { throw ExitCode.failure }
  }

  /// Reports a script that cannot be played; the others are.
  private func show(_ reason: String, _ name: String, _ script: Script?) {
    Console.error(reason)
    guard json else { return Console.line("\(Console.styled("FAIL", .red)) \(name.printable()): it cannot be played") }
    var line = JSONLine()
    line.add("name", name)
    line.add("title", script?.title)
    line.add("result", "FAIL")
    line.add("reason", reason)
    Console.line(line)
  }

  private func override(_ script: Script) throws(UnreadableScript) -> Script {
    guard script.channel == .att else { return script }
    var script = script
    if let side { script.side = side }
    guard let side = script.side else {
      throw UnreadableScript(
        "\(script.file): no side under test; add \"side: server\" or \"side: client\", or give --side.")
    }
    if side == .server, script.database == nil, database == nil {
      throw UnreadableScript(
        "\(script.file): no database for the server; add \"database: FILE.json\", or give --database.")
    }
    return script
  }

  private func verdict(_ script: Script, _ file: ScriptFile, _ hasConnected: inout Bool) throws -> Verdict {
    let path = script.channel != .att ? nil : database ?? script.database.map { file.neighbour($0) }
    var database = DatabaseFile()
    do throws(FileError) {
      if let path { database = try ScriptFile.database(path) }
    } catch { throw UnreadableScript(error.description) }
    guard let against else {
      let target: any ConformanceTarget =
        switch script.channel {
        case .att: StackTarget(database)
        case .smp: PairingTarget(script.pairing)
        case .l2cap: ChannelTarget(script.linkRole)
        }
      return Runner.run(script, against: target, patience: timeout.duration)
    }
    let whole = path.map { URL(filePath: $0).standardizedFileURL.path }
    do throws(SocketError) {
      let target = try SocketTarget(against, control: control, database: whole, script: script)
      hasConnected = true
      return Runner.run(script, against: target, patience: timeout.duration)
    } catch {
      // If the stack was reachable before, this script has failed.
      guard hasConnected else {
        throw Failure("\(error.description); is the stack under test running, and does it listen?")
      }
      return Verdict(failure: .init(line: 0, step: "connecting", expected: "a bearer", got: error.description))
    }
  }

  private func show(_ verdict: Verdict, _ name: String) {
    switch verdict.outcome {
    case .passed: Console.line("\(Console.styled("PASS", .green)) \(name)")
    case .failed(let failure):
      Console.line("\(Console.styled("FAIL", .red)) \(name): \(failure.text.printable())")
    case .skipped(let why): Console.line("\(Console.styled("SKIP", .yellow)) \(name): \(why.printable())")
    }
    if verbose { for line in verdict.transcript { Console.line("  " + Console.styled(line.printable(), .dim)) } }
  }
}

/// Why a script cannot be played.
private struct UnreadableScript: Error {
  var description: String
  init(_ description: String) { self.description = description }
}

extension Side: ExpressibleByArgument {}

extension SocketAddress {
  /// The spelling is that of a transport; only sockets are accepted.
  init(argument: String) throws {
    switch try TransportSpec(argument: argument) {
    case .tcp(let host, let port): self = .tcp(host: host, port: port)
    case .unix(let path): self = .unix(path: path)
    default: throw ValidationError("\"\(argument)\" is not a socket: write tcp:HOST:PORT or unix:PATH.")
    }
  }
}

extension Verdict.Failure {
  fileprivate var text: String { "line \(line), \(step), expected \(expected), got \(got)" }
}

extension Verdict {
  fileprivate func json(_ name: String, _ script: Script) -> JSONLine {
    var line = JSONLine()
    line.add("name", name)
    line.add("title", script.title)
    line.add("section", script.section)
    line.add("channel", script.channel.rawValue)
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
