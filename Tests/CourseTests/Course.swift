import Foundation
import Synchronization
import TestSupport
import Testing

/// A page of the course, and the test of everything that it shows.
///
/// The page is Markdown. Its blocks of code are not written by hand: the test compares them with their source, and
/// `BINDRUNE_RECORD=1 swift test --filter CourseTests` rewrites them.
///
/// | block | shows |
/// |---|---|
/// | `swift` | the next snippet of the test's source: from `// snippet` to `page.shows()`, or to `// end` |
/// | `text` | what the snippet above has printed |
/// | `console` | commands after `$ `, and what they print |
/// | `picture` | a drawing of the declarations or the phase tables, which the comment above names: `Pictures` |
/// | `file` | the file of `Fixtures/Course` that the comment above names |
///
/// `bindrune learn` embeds these pages.
final class Page: Sendable {
  private let printed = Mutex((now: "", shown: [String]()))
  @TaskLocal static var current: Page?

  static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
  static let folder = root.appending(path: "Documentation/Course.docc")
  static let files = root.appending(path: "Fixtures/Course")
  static let isRecording = ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] == "1"

  /// Ends a snippet: what it has printed is shown below it.
  func shows() {
    printed.withLock { state in
      state.shown.append(state.now)
      state.now = ""
    }
  }
  fileprivate func print(_ text: String) { printed.withLock { $0.now += text } }
  var shown: [String] { printed.withLock { $0.shown } }
}

/// In this module `print` writes into the page that is being tested.
func print(_ items: Any..., separator: String = " ", terminator: String = "\n") {
  Page.current?.print(items.map { "\($0)" }.joined(separator: separator) + terminator)
}

/// Runs the code of a page, and compares the page with its sources. `minutes`: what each exercise takes a reader.
func course(
  _ name: String, exercises minutes: [Int] = [], source: String = #filePath, _ body: (Page) throws -> Void
) throws {
  let page = Page()
  try Page.$current.withValue(page) { try body(page) }
  let address = Page.folder.appending(path: name + ".md")
  let text = try String(contentsOf: address, encoding: .utf8)
  var composer = try Composer(
    text, snippets: Snippet.all(in: String(contentsOfFile: source, encoding: .utf8)), shown: page.shown,
    exercises: minutes)
  let expected = try composer.compose()
  try compare(expected, with: address)
}

/// The file has this text, or gets it when recording.
func compare(_ expected: String, with address: URL) throws {
  let text = (try? String(contentsOf: address, encoding: .utf8)) ?? ""
  if text == expected { return }
  if Page.isRecording { return try expected.write(to: address, atomically: true, encoding: .utf8) }
  let lines = text.components(separatedBy: "\n"), wanted = expected.components(separatedBy: "\n")
  let place = zip(lines, wanted).enumerated().first { $1.0 != $1.1 }?.offset ?? min(lines.count, wanted.count)
  Issue.record(
    """
    \(address.lastPathComponent):\(place + 1) is not what its sources say. It has
    \(lines.dropFirst(place).prefix(5).joined(separator: "\n"))
    and they say
    \(wanted.dropFirst(place).prefix(5).joined(separator: "\n"))
    BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.
    """)
}

/// A piece of a test's source that a page shows.
struct Snippet {
  var lines: [String]
  var isRun: Bool

  /// In the order of the page: `// snippet 3` is the third of its page, the others have the places that are left.
  static func all(in source: String) throws -> [Snippet] {
    var placed: [Int: Snippet] = [:], others: [Snippet] = []
    var lines = source.components(separatedBy: "\n")[...]
    while let line = lines.popFirst() {
      let words = line.split(separator: " ")
      guard words.starts(with: ["//", "snippet"]) else { continue }
      let end = try #require(lines.firstIndex { isEnd($0) }, "a snippet without an end")
      let snippet = Snippet(lines: dedented(lines[..<end]), isRun: lines[end].hasSuffix("page.shows()"))
      if words.count > 2, let place = Int(words[2]) { placed[place - 1] = snippet } else { others.append(snippet) }
      lines = lines[end...]
    }
    return try (0..<placed.count + others.count).map { place in
      if let snippet = placed[place] { return snippet }
      try #require(!others.isEmpty, "no snippet \(place + 1)")
      return others.removeFirst()
    }
  }
  private static func isEnd(_ line: String) -> Bool {
    let line = line.drop { $0 == " " }
    return line == "page.shows()" || line == "// end"
  }
  static func dedented(_ lines: ArraySlice<String>) -> [String] {
    let indent = lines.filter { !$0.isEmpty }.map { $0.prefix { $0 == " " }.count }.min() ?? 0
    return lines.map { String($0.dropFirst(indent)) }
  }
}

/// A page has a block without a source.
struct Misfit: Error {
  var words: String
  init(_ words: String) { self.words = words }
}

/// Writes a page anew: its prose, with every block from its source.
private struct Composer {
  var source: ArraySlice<String>
  var snippets: ArraySlice<Snippet>
  var shown: ArraySlice<String>
  let exercises: [Int]
  var result: [String] = []
  /// The comment above the current line.
  var comment = ""
  /// What the last snippet has printed.
  var output: String?
  var prose = 0
  var code = 0

  init(_ text: String, snippets: [Snippet], shown: [String], exercises: [Int]) {
    source = text.components(separatedBy: "\n")[...]
    self.snippets = snippets[...]
    self.shown = shown[...]
    self.exercises = exercises
  }

  mutating func compose() throws -> String {
    let shell = try CourseShell()
    defer { shell.remove() }
    while let line = source.popFirst() {
      result.append(line)
      guard line.hasPrefix("```") else {
        if line.hasPrefix("<!-- ") {
          comment = String(line.dropFirst(5).dropLast(4))
        } else {
          prose += line.split(separator: " ").count
        }
        continue
      }
      let end = try #require(source.firstIndex { $0 == "```" }, "a block without an end")
      let block = Array(source[..<end])
      source = source[end...].dropFirst()
      let lines = try content(of: block, String(line.dropFirst(3)), shell)
      for line in lines { #expect(line.count <= 120, "too wide for a page: \(line)") }
      result += lines + ["```"]
      code += lines.count
    }
    #expect(snippets.isEmpty, "the page does not show the snippet \(snippets.first?.lines.first ?? "")")
    checkOutputIsShown()
    setMinutes()
    return result.joined(separator: "\n")
  }

  private mutating func content(of block: [String], _ language: String, _ shell: CourseShell) throws -> [String] {
    switch language {
    case "swift":
      checkOutputIsShown()
      guard let snippet = snippets.popFirst() else { throw Misfit("the page has more Swift blocks than snippets") }
      if snippet.isRun {
        guard let text = shown.popFirst() else { throw Misfit("a snippet did not run") }
        output = text
      }
      return snippet.lines
    case "text":
      let text = try #require(output, "no snippet above this output")
      output = nil
      return lines(of: text)
    case "console":
      var lines: [String] = []
      for command in block where command.hasPrefix("$ ") {
        lines.append(command)
        lines += try shell.run(String(command.dropFirst(2)))
      }
      return lines
    case "picture": return try Pictures.picture(String(comment.dropFirst("picture ".count)))
    case "file":
      let file = Page.files.appending(path: String(comment.dropFirst("file ".count)))
      return try String(contentsOf: file, encoding: .utf8).components(separatedBy: "\n").dropLast()
    default:
      Issue.record("a block of \(language)")
      return block
    }
  }
  private mutating func checkOutputIsShown() {
    if let output, !output.isEmpty { Issue.record("the page does not show what a snippet printed: \(output)") }
    output = nil
  }

  /// A reader reads 200 words and 15 lines of code or output a minute; each exercise says what it takes.
  private mutating func setMinutes() {
    // The solutions have no minutes.
    guard result.count > 2, result[2].hasPrefix("**"), let end = result[2].range(of: " minutes") else { return }
    let reading = Double(prose) / 200 + Double(code) / 15
    let minutes = Int((reading / 5).rounded(.up)) * 5 + exercises.reduce(0, +)
    result[2] = "**\(minutes)" + result[2][end.lowerBound...]
    #expect(550...1300 ~= prose, "a chapter has 600 to 1,200 words, this one \(prose)")
  }
}

/// Without blanks at the end of a line, which a page does not have.
private func lines(of text: String) -> [String] {
  text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map { line in
    String(line.reversed().drop { $0 == " " }.reversed())
  }
}

/// Runs command lines in a folder of its own, which has the course's files; `bindrune` and `bindruned` are
/// those of this build.
struct CourseShell {
  let folder: URL

  init() throws {
    folder = FileManager.default.temporaryDirectory.appending(path: "bindrune-course-\(UUID().uuidString.prefix(8))")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    for name in try FileManager.default.contentsOfDirectory(atPath: Page.files.path) {
      try FileManager.default.copyItem(at: Page.files.appending(path: name), to: folder.appending(path: name))
    }
  }
  func remove() { try? FileManager.default.removeItem(at: folder) }

  func run(_ command: String) throws -> [String] {
    let build = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent().path
    let programs = ["bindrune", "bindruned"].map { #"\#($0)() { "\#(build)/\#($0)" "$@"; }"# + "\n" }
    let process = Process(), output = Pipe()
    process.executableURL = URL(filePath: "/bin/sh")
    process.arguments = ["-c", programs.joined() + command]
    process.currentDirectoryURL = folder
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = output
    process.standardError = output
    try process.run()
    let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    return lines(of: text)
  }
}
