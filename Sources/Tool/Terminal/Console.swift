import BindruneSystem
import BindruneTransport
import BindruneWire
import Glibc
import Synchronization
import SystemPackage

/// Output for people and programs: colour and a live line on a terminal, plain lines elsewhere.
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

  /// Shows commands in `backticks` in bold, if there is colour.
  static func withCommands(_ text: String) -> String {
    guard hasColour else { return text }
    return text.split(separator: "`", omittingEmptySubsequences: false).enumerated()
      .map { $0.offset.isMultiple(of: 2) ? String($0.element) : styled(String($0.element), .bold) }.joined()
  }

  /// Prints a line without delay, also into a pipe. The status stays below it.
  static func line(_ text: String = "") {
    status.withLock { status in
      write((status.isEmpty ? "" : "\r\u{1B}[J") + text + "\n" + status)
    }
  }
  static func line(_ object: JSONLine) {
    printsJSON.store(true, ordering: .relaxed)
    line("\(object)")
  }
  /// Shows a line of less than 80 characters until the next one, on a terminal only. nil: none.
  static func status(_ text: String?) { prompt(text.map { styled($0, .dim) }) }
  /// The same with escape sequences, such as one that places the cursor: for the line being edited.
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
  /// Prints a line on standard error; escapes and shortens text that comes from peers, files and arguments. The line
  /// waits while a picture covers the screen.
  static func error(_ text: String) { printed(text.printable(limit: 4096)) }
  /// Prints lines on standard error that are known to be printable.
  static func printed(_ text: String) {
    if Screen.holdBack(text) { return }
    // A line that is being edited stays below this one.
    if isTerminal, errors === output { line(text) } else { errors.put((text + "\n").utf8) }
  }

  // MARK: Output

  /// Octets that may wait for a reader: about ten thousand lines.
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
      return "(\(dropped == 1 ? "1 line was" : "\(dropped) lines were") dropped here: the output was not read)\n"
    },
    // Ends the work when the output cannot be written.
    failed: { error in
      Interruption.end(error == .brokenPipe ? .outputClosed : .outputFailed(error.description))
    })
  /// If both are the same file, usually a terminal, they share one queue, so that their lines keep their order.
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

  /// Queues text for a separate thread to write: no caller waits for a reader.
  static func write(_ text: String) { output.put(text.utf8) }
  /// The same for a verb that produces without end: waits for the reader, or for a signal, so that nothing is dropped.
  static func writeWaiting(_ octets: some Collection<UInt8>) {
    waitForReader()
    output.put(octets)
  }
  /// True if the terminal, the pipe or the file has taken all output.
  static var isDrained: Bool { output.isDrained }
  /// Waits for that, a second at most.
  static func drain() { _ = output.drain(within: .seconds(1)) }

  /// For a verb that opens no controller and prints without end: waits for the reader, or for a signal.
  static func waitForReader() {
    while !output.drain(within: .milliseconds(100)), Interruption.cause == nil {}
  }

  /// Reserves the numbers of standard streams that are closed at the start, so that no socket gets one and receives the
  /// output. Writing to such a stream still fails.
  static func reserveStreams() {
    for stream in [FileDescriptor.standardInput, .standardOutput, .standardError] where (try? stream.stat()) == nil {
      FileDescriptor.openNothing()
    }
  }

  /// Waits, at the end of the program, until its output has been read. Gives up after two seconds without progress, one
  /// second after a signal. `awaitsReader`: without a signal it never gives up, so that `less` can show everything.
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
          error("Warning: Standard output is not being read: its last lines are lost.")
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
  /// With three digits after the point; null: not finite.
  mutating func add(_ key: String, _ value: Double?) {
    let finite = value.flatMap { $0.isFinite ? $0 : nil }
    add(key, raw: finite.map { decimal($0, 3) } ?? "null")
  }
  mutating func add(_ key: String, _ values: [String]) {
    add(key, raw: "[" + values.map(Self.quoted).joined(separator: ",") + "]")
  }
  mutating func add(_ key: String, _ numbers: [Int]) {
    add(key, raw: "[" + numbers.map { String($0) }.joined(separator: ",") + "]")
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
    // Most texts have nothing to escape, and traces have many texts.
    if value.utf8.allSatisfy({ 0x20..<0x7F ~= $0 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") }) {
      return "\"" + value + "\""
    }
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
  let digits = Array("0123456789ABCDEF".utf8)
  var text: [UInt8] = []
  text.reserveCapacity(bytes.count * (2 + separator.utf8.count))
  for byte in bytes {
    if !text.isEmpty { text += separator.utf8 }
    text.append(digits[Int(byte >> 4)])
    text.append(digits[Int(byte & 0xF)])
  }
  return String(decoding: text, as: UTF8.self)
}
/// Octets in readable form: text if they are printable UTF-8, else hex of at most `limit` octets.
func readable(_ bytes: [UInt8], limit: Int = 64) -> String {
  let text = String(decoding: bytes, as: UTF8.self)
  if bytes.count > 1, Array(text.utf8) == bytes, text.unicodeScalars.allSatisfy(\.isPrintable) {
    return "\"\(text)\""
  }
  return bytes.count <= limit
    ? hexText(bytes, separator: " ") : hexText(bytes.prefix(limit), separator: " ") + " … (\(bytes.count) octets)"
}
