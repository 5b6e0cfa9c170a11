import ArgumentParser
import Bindrune
import Glibc

struct Shell: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Connect to a device, and read, write and subscribe by hand.",
    discussion: """
      On a terminal, shows a prompt: Tab completes commands, and names of services and attributes; the arrow keys \
      bring back lines; values that the device sends by itself appear above the prompt; "help" explains. Ctrl-C ends \
      the running command. A second Ctrl-C, or Ctrl-D, ends the shell.

      From a pipe or a file, runs each line as a command, without a prompt. The first command that fails ends the \
      shell with its status. With --keep-going the shell continues, and ends with status 1.

        printf 'subscribe 2A37\\nwrite 2A39 01\\nwait 3\\n' | bindrune shell --name "Heart*"

      \(DeviceOptions.statuses)
      """)

  @OptionGroup var device: DeviceOptions
  @Option(help: ValueFormat.help) var format = ValueFormat.text
  @Flag(help: "From a pipe: continue after a command that fails, and end with status 1.")
  var keepGoing = false

  func run() async throws {
    let isInteractive = StandardInput.isTerminal && Screen.isPossible
    let progress = Progress(isShown: isInteractive), desk = ShellDesk()
    if !isInteractive { Interruption.watchOutput() }
    // On a terminal the shell reads the keys, so that questions have to go through it.
    let isAsked = isInteractive && (device.pairing.agent ?? .terminal) == .terminal
    try await device.withLink(progress, agent: isAsked ? AskingAgent(desk) : nil) { link, peer in
      progress("discovering the services of \(peer)")
      let (changes, changed) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
      let session = try await ShellSession(link, device.wanted, format: format, timeout: device.timeout) {
        changed.yield()
      }
      do {
        if isInteractive {
          progress(nil)
          var terminal = ShellTerminal(session, changes: changes, questions: desk.questions)
          try await terminal.run()
        } else {
          try await runLines(on: session)
        }
      } catch {
        await session.close()
        throw error
      }
      await session.close()
    }
  }

  private func runLines(on session: ShellSession) async throws {
    var lines = InputLines(), failures = 0
    while let line = try await lines.next() {
      do {
        if try await session.run(line) == .quit { break }
      } catch {
        guard keepGoing, !Task.isCancelled else { throw error }
        failures += 1
        Console.error("Error: \(error)")
      }
    }
    try Task.checkCancellation()
    if failures > 0 { throw ExitCode(ExitStatus.failure.rawValue) }
  }
}

/// The lines of standard input; the last need not end with a line feed.
struct InputLines {
  private var octets: [UInt8] = []
  private var hasEnded = false
  private static var longest: Int { 65_536 }

  mutating func next() async throws -> String? {
    while true {
      if let end = octets.firstIndex(of: UInt8(ascii: "\n")) {
        defer { octets.removeFirst(end + 1) }
        return String(decoding: octets[..<end], as: UTF8.self)
      }
      if octets.count > Self.longest {
        throw Failure("A line of standard input has more than \(Self.longest) octets: give commands.")
      }
      if hasEnded {
        defer { octets = [] }
        return octets.isEmpty ? nil : String(decoding: octets, as: UTF8.self)
      }
      if let more = await StandardInput.next() { octets += more } else { hasEnded = true }
    }
  }
}

/// The shell on a terminal: passes keys to the editor, lines to the session, and keeps the prompt below the output.
struct ShellTerminal {
  private enum Event: Sendable {
    case octets([UInt8])
    /// The window, the link or the device's services.
    case changed
    /// The result of the last command; nil: no error.
    case finished(ShellSession.Outcome, (any Error)?)
    case inputEnded
    /// A device pairs; also when the question is over.
    case asked(ShellDesk.Question)
  }
  private enum Phase {
    case editing
    /// The user has pressed Ctrl-C at the prompt: a second one ends the shell.
    case interrupted
    /// `lines`: pasted after the running command.
    case running(Task<Void, Never>, lines: ArraySlice<String>)
    /// The user has pressed Ctrl-C, and the command has not ended yet.
    case cancelling
    case ended
  }
  private let session: ShellSession
  private let changes: AsyncStream<Void>
  private let questions: AsyncStream<ShellDesk.Question>
  private let events: AsyncStream<Event>
  private let happened: AsyncStream<Event>.Continuation
  private var phase = Phase.editing
  private var decoder = KeyDecoder()
  private var editor = LineEditor()
  /// Typed while a command runs.
  private var keys: [Key] = []
  private var completer = ShellCompleter()
  private var prompt = ""
  /// The open question, which gets the keys before the prompt does, and the editor of its answer.
  private var question: ShellDesk.Question?
  private var answer = LineEditor()

  init(_ session: ShellSession, changes: AsyncStream<Void>, questions: AsyncStream<ShellDesk.Question>) {
    self.session = session
    self.changes = changes
    self.questions = questions
    (events, happened) = AsyncStream.makeStream()
  }

  mutating func run() async throws {
    RawMode.begin()
    let window = Interruption.source(SIGWINCH) { [happened] in happened.yield(.changed) }
    let reader = Task { [happened] in
      while let octets = await StandardInput.next() { happened.yield(.octets(octets)) }
      happened.yield(.inputEnded)
    }
    let watcher = Task { [happened, changes] in for await _ in changes { happened.yield(.changed) } }
    let listener = Task { [happened, questions] in
      for await question in questions { happened.yield(.asked(question)) }
    }
    defer {
      for task in [reader, watcher, listener] { task.cancel() }
      question?.answer(nil)
      window.cancel()
      Console.prompt(nil)
      RawMode.end()
    }
    await update()
    Console.line("Connected to \(prompt). Tab completes, `help` explains, Ctrl-D leaves.")
    draw()
    for await event in events {
      await handle(event)
      if case .ended = phase { return }
      draw()
    }
    try Task.checkCancellation()
  }

  private mutating func handle(_ event: Event) async {
    switch event {
    case .octets(let octets):
      keys += decoder.keys(octets)
    case .changed: await update()
    case .finished(let outcome, let error):
      await update()
      finished(outcome, error)
    case .inputEnded: phase = .ended
    case .asked(let question):
      if question.isOpen {
        self.question?.answer(nil)
        self.question = question
        answer = LineEditor()
        // What was typed before the question is no answer to it.
        keys = []
      }
    }
    if question?.isOpen == false { question = nil }
    await press()
  }
  /// Updates the completions and the prompt from the session.
  private mutating func update() async {
    completer = ShellCompleter(await session.database)
    prompt = await session.name ?? "device"
    if await !session.isConnected { prompt += " (not connected)" }
  }

  /// Ctrl-C cancels the running command, and discards the text typed before it.
  private mutating func interrupt() {
    while let place = keys.firstIndex(of: .interrupt) {
      keys.removeFirst(place + 1)
      guard case .running(let task, _) = phase else {
        phase = .ended
        return
      }
      task.cancel()
      phase = .cancelling
    }
  }
  private mutating func finished(_ outcome: ShellSession.Outcome, _ error: (any Error)?) {
    var lines: ArraySlice<String> = []
    switch phase {
    case .running(_, let others): lines = others
    case .cancelling: Console.line("Interrupted.")
    case .editing, .interrupted, .ended: return
    }
    if case .running = phase, let error {
      Console.error("Error: \(error)")
      if !lines.isEmpty { Console.line("The lines after it were not run.") }
      lines = []
    }
    phase = outcome == .quit ? .ended : .editing
    start(lines)
  }

  /// Handles the typed keys, up to a command that runs.
  private mutating func press() async {
    while !keys.isEmpty {
      if let question {
        press(keys.removeFirst(), for: question)
        continue
      }
      switch phase {
      case .running, .cancelling: return interrupt()
      case .ended: return
      case .editing, .interrupted: break
      }
      let key = keys.removeFirst(), isAgain: Bool
      if case .interrupted = phase { isAgain = true } else { isAgain = false }
      phase = .editing
      switch editor.press(key, completer.completion) {
      case nil: break
      case .lines(let lines)?: start(lines[...])
      case .interrupt(let line)?:
        if isAgain, line.isEmpty {
          phase = .ended
        } else {
          Console.line(shown(line) + "^C" + (line.isEmpty ? "  (again, or Ctrl-D, to leave)" : ""))
          phase = .interrupted
        }
      case .endOfInput?: phase = .ended
      case .candidates(let candidates)?: show(candidates)
      case .clear?: Console.write("\u{1B}[2J\u{1B}[H")
      case .suspend?: suspend()
      }
    }
  }
  /// Ctrl-C and Ctrl-D refuse.
  private mutating func press(_ key: Key, for question: ShellDesk.Question) {
    let line: String?
    switch answer.press(key, { _ in LineEditor.Completion(word: "", candidates: []) }) {
    case .lines(let lines)?: line = lines.first ?? ""
    case .interrupt?, .endOfInput?: line = nil
    case nil, .candidates?, .clear?, .suspend?: return
    }
    Console.prompt(nil)
    Console.line(question.cue + (line ?? "^C"))
    question.answer(line?.split(separator: " ").joined(separator: " "))
    self.question = nil
  }
  /// Runs the first of `lines`, and keeps the others for later.
  private mutating func start(_ lines: ArraySlice<String>) {
    guard let line = lines.first else { return }
    Console.prompt(nil)
    Console.line(shown(line))
    let task = Task { [session, happened] in
      do { happened.yield(.finished(try await session.run(line), nil)) } catch {
        happened.yield(.finished(.done, error))
      }
    }
    phase = .running(task, lines: lines.dropFirst())
  }
  private func show(_ candidates: [LineEditor.Candidate]) {
    let width = candidates.map(\.text.columns).max() ?? 0, room = max(1, Screen.size.rows - 2)
    for candidate in candidates.prefix(candidates.count > room ? room - 1 : room) {
      Console.line(candidate.text.padded(width) + "  " + Console.styled(candidate.note, .dim))
    }
    if candidates.count > room { Console.line("… \(candidates.count - room + 1) more") }
  }
  private func suspend() {
    Console.prompt(nil)
    RawMode.end()
    Console.drain()
    kill(getpid(), SIGSTOP)
    RawMode.begin()
  }

  private var cue: String { prompt + "> " }
  private func shown(_ line: String) -> String { Console.styled(cue, .cyan) + line }
  /// Shows the prompt in the last row, while the user can type.
  private func draw() {
    let cue = question?.cue ?? cue, editor = question == nil ? editor : answer
    switch phase {
    case .running where question == nil, .cancelling where question == nil, .ended: return Console.prompt(nil)
    case .editing, .interrupted, .running, .cancelling: break
    }
    let columns = Screen.size.columns
    self.draw(cue.cut(to: columns / 2), editor, columns)
  }
  private func draw(_ cue: String, _ editor: LineEditor, _ columns: Int) {
    let (text, cursor) = editor.window(columns: columns - cue.columns)
    let place = cue.columns + cursor
    Console.prompt(Console.styled(cue, .cyan) + text + "\r" + (place > 0 ? "\u{1B}[\(place)C" : ""))
  }
}
