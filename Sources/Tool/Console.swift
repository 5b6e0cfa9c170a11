import BindruneTransport
import BindruneWire
import Glibc
import Synchronization
import SystemPackage

/// What a person or a program reads: colour and a live line on a terminal, plain lines elsewhere.
enum Console {
  static let isTerminal = isatty(STDOUT_FILENO) == 1
  /// https://no-color.org: any value but the empty one.
  static let hasColour = unsafe isTerminal && getenv("NO_COLOR").map { unsafe $0.pointee == 0 } ?? true
  private static let status = Mutex("")

  enum Style: String {
    case bold = "1"
    case dim = "2"
    case red = "31"
    case green = "32"
    case yellow = "33"
    case blue = "34"
    case magenta = "35"
    case cyan = "36"
    func on(_ text: String) -> String { "\u{1B}[\(rawValue)m\(text)\u{1B}[0m" }
  }
  static func styled(_ text: String, _ style: Style) -> String {
    hasColour ? style.on(text) : text
  }

  /// Text with commands in `backticks`: bold where there is colour.
  static func withCommands(_ text: String) -> String {
    guard hasColour else { return text }
    return text.split(separator: "`", omittingEmptySubsequences: false).enumerated()
      .map { $0.offset.isMultiple(of: 2) ? String($0.element) : styled(String($0.element), .bold) }.joined()
  }

  /// A line, at once: a pipe's reader follows live. The status stays below it.
  static func line(_ text: String = "") {
    status.withLock { status in
      write((status.isEmpty ? "" : "\r\u{1B}[J") + text + "\n" + status)
    }
  }
  static func line(_ object: JSONLine) {
    printsJSON.store(true, ordering: .relaxed)
    line("\(object)")
  }
  /// A line that the next one replaces, of less than 80 characters; only a terminal sees it. nil: none.
  static func status(_ text: String?) { prompt(text.map { styled($0, .dim) }) }
  /// The same with sequences of its own, such as a place for the cursor: the line that is being edited.
  static func prompt(_ text: String?) {
    guard isTerminal else { return }
    status.withLock { status in
      if text ?? "" == status { return }
      status = text ?? ""
      write("\r\u{1B}[J" + status)
    }
  }

  static func warn(_ text: String) {
    status(nil)
    error("Warning: \(text)")
  }
  /// A line to standard error, whatever the text has in it, and however much, of peers, files and arguments. What a picture
  /// on the screen would hide waits for its end.
  static func error(_ text: String) { printed(text.printable(limit: 4096)) }
  /// Lines to standard error that are known to be printable.
  static func printed(_ text: String) {
    if Screen.holdBack(text) { return }
    // A line that is being edited stays below this one.
    if isTerminal, errors === output { line(text) } else { errors.put((text + "\n").utf8) }
  }

  // MARK: Output

  /// Octets that wait for a reader: some ten thousand lines.
  private static let limit = 1 << 20
  private static let printsJSON = Atomic(false)

  private static let output = OutputQueue(
    to: .standardOutput, limit: limit,
    notice: { dropped in
      if printsJSON.load(ordering: .relaxed) {
        var line = JSONLine(event: "dropped")
        line.add("lines", dropped)
        return "\(line)\n"
      }
      return "(\(dropped == 1 ? "1 line was" : "\(dropped) lines were") dropped here: nobody read them)\n"
    },
    // Ends the work when nobody can read it.
    failed: { error in
      Interruption.end(error == .brokenPipe ? .outputClosed : .outputFailed(error.description))
    })
  /// Where both lead to the same place, a terminal most often, they are one queue, so that their lines keep their order.
  private static let errors =
    isOneFile
    ? output
    : OutputQueue(
      to: .standardError, limit: limit, waitsForRoom: true,
      notice: { "Warning: \($0) earlier messages were dropped.\n" })
  private static var isOneFile: Bool {
    guard let output = try? FileDescriptor.standardOutput.stat(), let errors = try? FileDescriptor.standardError.stat()
    else { return false }
    return output.deviceID == errors.deviceID && output.inode == errors.inode
  }

  /// Written by a thread of its own: nothing here waits for a reader.
  static func write(_ text: String) { output.put(text.utf8) }
  /// All that was written has been taken by the terminal, the pipe or the file.
  static var isDrained: Bool { output.isDrained }
  /// Waits for that, a second at most.
  static func drain() { _ = output.drain(within: .seconds(1)) }

  /// For a verb that holds no controller and prints without end: waits for the reader, or for a signal.
  static func waitForReader() {
    while !output.drain(within: .milliseconds(100)), Interruption.cause == nil {}
  }

  /// A standard stream that the program was started without keeps its number, so that no socket gets it and is written to as if
  /// it were that stream. Writing to it fails, as it would without.
  static func reserveStreams() {
    for stream in [FileDescriptor.standardInput, .standardOutput, .standardError] where (try? stream.stat()) == nil {
      _ = try? FileDescriptor.open(FilePath("/dev/null"), .readOnly)
    }
  }

  /// The end of the program: waits until its output has been read, and gives up when nothing has been taken of it for two
  /// seconds, after a signal for one. `awaitsReader`: without a signal it does not give up, so that nothing is lost that `less`
  /// has not shown yet.
  static func finish(awaitsReader: Bool) {
    let clock = ContinuousClock(), isInterrupted = Interruption.cause != nil
    let patience = Duration.seconds(isInterrupted ? 1 : 2)
    var written = output.written, last = clock.now, hasWarned = false
    while !output.drain(within: .milliseconds(50)) {
      if !isInterrupted, Interruption.cause != nil { break }
      let now = clock.now
      if output.written != written {
        (written, last) = (output.written, now)
      } else if now - last >= patience {
        guard awaitsReader, !isInterrupted else {
          error("Warning: Nobody reads standard output: its last lines are lost.")
          break
        }
        if !hasWarned { error("Waiting until standard output is read; Ctrl-C ends it.") }
        hasWarned = true
      }
    }
    if errors !== output { _ = errors.drain(within: .seconds(1)) }
  }
}

/// Standard error for the logger: each of its messages is one line.
struct ErrorStream: TextOutputStream {
  func write(_ text: String) { Console.error(text.hasSuffix("\n") ? String(text.dropLast()) : text) }
}

/// A JSON object on one line, its members in the order given.
struct JSONLine: CustomStringConvertible {
  private var text = "{"
  private mutating func add(_ key: String, raw: String) {
    if text.utf8.count > 1 { text += "," }
    text += Self.quoted(key) + ":" + raw
  }
  mutating func add(_ key: String, _ value: String?) { add(key, raw: value.map(Self.quoted) ?? "null") }
  mutating func add(_ key: String, _ value: Int?) { add(key, raw: value.map { String($0) } ?? "null") }
  mutating func add(_ key: String, _ value: Bool?) { add(key, raw: value.map { $0 ? "true" : "false" } ?? "null") }
  /// With three digits behind the point; null: not a number.
  mutating func add(_ key: String, _ value: Double?) {
    let finite = value.flatMap { $0.isFinite ? $0 : nil }
    add(key, raw: finite.map { decimal($0, 3) } ?? "null")
  }
  mutating func add(_ key: String, _ values: [String]) {
    add(key, raw: "[" + values.map(Self.quoted).joined(separator: ",") + "]")
  }
  mutating func add(_ key: String, _ objects: [JSONLine]) {
    add(key, raw: "[" + objects.map(\.description).joined(separator: ",") + "]")
  }
  mutating func add(_ key: String, _ object: JSONLine?) { add(key, raw: object?.description ?? "null") }
  var description: String { text + "}" }

  init(event: String? = nil) {
    if let event { add("event", event) }
  }
  private static func quoted(_ value: String) -> String {
    var result = "\""
    for scalar in value.unicodeScalars {
      switch scalar {
      case "\"": result += "\\\""
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\t": result += "\\t"
      case "\r": result += "\\r"
      case _ where !scalar.isPrintable:
        for unit in String(scalar).utf16 { result += "\\u" + hexDigits(UInt64(unit), 4).lowercased() }
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}

func hexText(_ bytes: some Collection<UInt8>, separator: String = "") -> String {
  bytes.map { hexDigits(UInt64($0), 2) }.joined(separator: separator)
}
/// What a person can read: text where the octets are printable UTF-8, hex otherwise, and of that at most `limit` octets.
func readable(_ bytes: [UInt8], limit: Int = 64) -> String {
  let text = String(decoding: bytes, as: UTF8.self)
  if bytes.count > 1, Array(text.utf8) == bytes, text.unicodeScalars.allSatisfy(\.isPrintable) {
    return "\"\(text)\""
  }
  return bytes.count <= limit
    ? hexText(bytes, separator: " ") : hexText(bytes.prefix(limit), separator: " ") + " … (\(bytes.count) octets)"
}
