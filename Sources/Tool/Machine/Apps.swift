import ArgumentParser
import Bindrune
import BindruneControl
import BindruneTransport
import BindruneWire
import NIOPosix

struct Apps: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show and move the apps of bindruned, as the system does it.",
    discussion: """
      bindruned shares adapters among Core Bluetooth programs. An app in the background may do what the modes of its \
      manifest permit; soon it is suspended, and events wake it. BINDRUNE_SOCKET names the daemon's socket; otherwise \
      it is $XDG_RUNTIME_DIR/bindrune-apps.socket if that is there, else /run/bindrune/apps.socket.
      """,
    subcommands: [List.self, Foreground.self, Background.self, Suspend.self, Terminate.self, Log.self])

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "List the apps: your own, for root all of them.",
      discussion: """
        LIFE is foreground, background, awake (an event has woken or relaunched it for ten seconds), suspended, or \
        terminated: without a process. MANAGERS are those of its process, and those that are preserved for the next.
        """)
    @Flag(help: "Print one JSON object per app.")
    var json = false

    func run() async throws {
      let rows = try await DaemonControl.list.lines().compactMap { AppRow(text: $0) }
      if json { return rows.forEach { Console.line($0.json) } }
      if rows.isEmpty { return Console.line("There are no apps.") }
      let width = max(3, rows.map(\.identifier.count).max() ?? 0) + 2
      Console.line(Console.styled("APP".padded(width) + "LIFE         PID       MANAGERS       RELAUNCH  MODES", .dim))
      for row in rows {
        let managers = row.preserved == 0 ? "\(row.managers)" : "\(row.managers), \(row.preserved) kept"
        Console.line(
          Console.styled(row.identifier.padded(width), .bold) + Console.styled(row.life.padded(13), row.style)
            + (row.pid.map { "\($0)" } ?? "").padded(10) + managers.padded(15)
            + ([(row.canRelaunch ? "yes" : "no").padded(9)] + row.modes).joined(separator: " "))
      }
    }
  }

  struct Foreground: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Bring an app to the foreground: it may do everything, and gets the events that have waited.")
    @OptionGroup var app: NamedApp
    func run() async throws { try await app.move(to: "foreground", "is in the foreground") }
  }
  struct Background: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send an app to the background; it is suspended five seconds later.")
    @OptionGroup var app: NamedApp
    func run() async throws { try await app.move(to: "background", "is in the background, and is suspended soon") }
  }
  struct Suspend: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Suspend an app: its process stops (SIGSTOP) until an event of its modes wakes it.")
    @OptionGroup var app: NamedApp
    func run() async throws { try await app.move(to: "suspended", "is suspended") }
  }
  struct Terminate: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "End an app's process (SIGKILL), as the system does for memory.",
      discussion: """
        What its managers with a restoration identifier have begun goes on; an event that completes it relaunches the \
        app, if its manifest says how.
        """)
    @OptionGroup var app: NamedApp
    func run() async throws { try await app.move(to: "terminated", "is terminated") }
  }

  struct NamedApp: ParsableArguments {
    @Argument(
      help: ArgumentHelp("The identifier of its manifest, as \"bindrune apps list\" prints it.", valueName: "app"))
    var name: String
    fileprivate func move(to life: String, _ words: String) async throws {
      if name.contains("\t") { throw ValidationError("An app's identifier has no tabs.") }
      _ = try await DaemonControl.move(app: name, life: life).lines()
      Console.line("\(name.printable()) \(words)")
    }
  }

  struct Log: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Print what happens to apps, until interrupted: lives, wake-ups, relaunches, alerts.",
      discussion: "For root and the daemon's user. Values of characteristics do not stand there.")
    @Flag(help: "Print one JSON object per line.")
    var json = false

    func run() async throws {
      let json = json
      try await DaemonControl.log.each(within: nil) { line in
        let words = line.split(separator: "\t", maxSplits: 2).map(String.init)
        guard words.count == 3 else { return }
        if json {
          var object = JSONLine(event: "app")
          object.add("level", words[0])
          object.add("app", words[1])
          object.add("text", words[2])
          return Console.line(object)
        }
        let style: Console.Style? = ["error": .red, "warning": .yellow][words[0]]
        let text = words[2].printable()
        Console.line("\(Console.styled(words[1].printable(), .bold)) \(style.map { Console.styled(text, $0) } ?? text)")
      }
    }
  }
}

extension DaemonControl {
  fileprivate func lines() async throws -> [String] {
    try await NIOThreadPool.singleton.runIfActive {
      var lines: [String] = []
      try ask(at: DaemonSocket.path()) { lines.append($0) }
      return lines
    }
  }
  /// The thread that reads ends with the process.
  fileprivate func each(within limit: Int?, _ line: @escaping @Sendable (String) -> Void) async throws {
    let reading = NIOThreadPool.singleton
    let end = AsyncThrowingStream<Never, any Error> { end in
      reading.submit { _ in
        do {
          try ask(at: DaemonSocket.path(), within: limit, line: line)
          end.finish(throwing: DaemonAnswerError("bindruned has ended: start it again."))
        } catch { end.finish(throwing: error) }
      }
    }
    for try await _ in end {}
  }
}

extension AppRow {
  fileprivate var style: Console.Style {
    switch life {
    case "foreground", "awake": .green
    case "background": .yellow
    default: .dim
    }
  }
  fileprivate var json: JSONLine {
    var object = JSONLine(event: "app")
    object.add("identifier", identifier)
    object.add("user", Int(user))
    object.add("life", life)
    object.add("pid", pid.map { Int($0) })
    object.add("modes", modes)
    object.add("managers", managers)
    object.add("preserved", preserved)
    object.add("canRelaunch", canRelaunch)
    return object
  }
}
