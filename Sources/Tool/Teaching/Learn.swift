import ArgumentParser
import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import SystemPackage

struct Learn: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Read the course: Bluetooth LE in ten chapters, with commands to try.",
    discussion: """
      Without a number it lists the chapters. On a terminal a chapter is shown in your pager, and a prompt after it \
      runs the chapter's commands on the virtual radio, in a temporary folder that has the course's files. In a pipe \
      it is plain text without a prompt; --try runs all of its commands then, one after another.

      Examples:
        bindrune learn
        bindrune learn 4
        bindrune learn 4 --try
        bindrune learn 4 --solutions
      """)

  @Argument(help: ArgumentHelp("The number of a chapter.", valueName: "chapter"))
  var chapter: Int?
  @Flag(name: .customLong("try"), help: "Go to the chapter's commands at once, without its text.")
  var tries = false
  @Flag(help: "Show the solutions of the chapter's exercises.")
  var solutions = false

  func validate() throws {
    if chapter == nil, tries || solutions {
      throw ValidationError(
        "Give the number of a chapter, as in `bindrune learn 4 \(tries ? "--try" : "--solutions")`.")
    }
    if tries, solutions { throw ValidationError("--try and --solutions exclude each other: give one of them.") }
    if let chapter, !Course.chapters.contains(where: { $0.number == chapter }) {
      throw ValidationError("There is no chapter \(chapter): give a number from 1 to \(Course.chapters.count).")
    }
  }

  func run() async throws {
    guard let page = Course.chapters.first(where: { $0.number == chapter }) else { return list() }
    let width = Console.isTerminal ? min(Screen.size.columns, 100) : 80
    if solutions { return show(CourseText(Course.solutions(of: page.number), width: width)) }
    if !tries {
      show(CourseText(page.markdown, width: width))
      guard Console.isTerminal, StandardInput.isTerminal else { return }
      Console.drain()
      Pager.finish()
    }
    try await CourseTrial(page).run()
  }

  private func list() {
    let minutes = Course.chapters.reduce(0) { $0 + $1.minutes }
    Console.line("Bluetooth Low Energy for people who know Swift: \(minutes / 60) h \(minutes % 60) min")
    Console.line()
    let width = Course.chapters.map(\.title.columns).max() ?? 0
    for page in Course.chapters {
      Console.line(
        Console.styled("\(page.number)".leftPadded(3), .bold) + "  \(page.title.padded(width))  "
          + Console.styled("\(page.minutes)".leftPadded(3) + " min", .dim))
    }
    Console.line()
    Console.line(Console.withCommands("`bindrune learn 1` shows a chapter, and lets you try its commands."))
  }
  private func show(_ text: CourseText) {
    Pager.begin()
    for line in text.lines { Console.line(line) }
  }
}

/// Runs a chapter's commands, in a folder that has the files of the course and is removed at the end.
struct CourseTrial {
  private let page: Course.Page
  init(_ page: Course.Page) { self.page = page }

  func run() async throws {
    let commands = page.commands
    if commands.isEmpty { return Console.line("Chapter \(page.number) has no commands to try: its code is Swift.") }
    let folder = try makeFolder()
    defer { if let child = Subshell.start(#"rm -rf -- "$1""#, [folder]) { ChildProcess.wait(for: child) } }
    guard Console.isTerminal, StandardInput.isTerminal else {
      for command in commands { try await run(command, in: folder) }
      return
    }
    var next = 0
    while next < commands.count {
      Console.line()
      for (index, command) in commands.enumerated() {
        Console.line((index == next ? "→ " : "  ") + "\(index + 1)  " + Console.styled(command, .bold))
      }
      Console.write("Return runs \(next + 1), a number another one, q leaves: ")
      Console.drain()
      guard let octets = await StandardInput.next() else { return }
      let answer = String(decoding: octets, as: UTF8.self).drop { $0.isWhitespace }.prefix { !$0.isWhitespace }
      if answer == "q" || answer == "quit" { return }
      let number = answer.isEmpty ? next + 1 : Int(answer) ?? 0
      guard 1...commands.count ~= number else {
        Console.line(
          "There is no command \(String(answer).printable(limit: 40)): the numbers are 1 to \(commands.count).")
        continue
      }
      try await run(commands[number - 1], in: folder)
      next = number
    }
    Console.line()
    Console.line(Console.withCommands("That was the last one. `bindrune learn` lists the chapters."))
  }

  private func run(_ command: String, in folder: String) async throws {
    Console.line("$ " + Console.styled(command, .bold))
    Console.drain()
    // In the shell, `bindrune` is this program.
    let script = #"cd "$1" || exit; program=$2; bindrune() { "$program" "$@"; }"# + "\n" + command
    guard let child = Subshell.start(script, [folder, "/proc/\(getpid())/exe"]) else {
      throw Failure("/bin/sh does not start: the commands of the course need it.")
    }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
          ChildProcess.wait(for: child)
          continuation.resume()
        }
      }
    } onCancel: {
      kill(child, SIGTERM)
    }
    try Task.checkCancellation()
  }

  /// A new folder, with the files that the course refers to.
  private func makeFolder() throws -> String {
    let parent = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
    var path = Array("\(parent)/bindrune-course-XXXXXX".utf8CString)
    guard unsafe mkdtemp(&path) != nil else {
      throw Failure("Cannot create a folder in \(parent.printable(limit: 200)): \(Errno(rawValue: errno)).")
    }
    let folder = String(decoding: path.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    for file in Course.files {
      do {
        let descriptor = try FileDescriptor.opened(
          FilePath(folder).appending(file.name), .writeOnly, options: [.create, .exclusiveCreate],
          permissions: [.ownerReadWrite])
        _ = try descriptor.closeAfter { try descriptor.writeAll(file.octets) }
      } catch {
        throw Failure("Cannot write \(folder)/\(file.name): \(error).")
      }
    }
    return folder
  }
}
