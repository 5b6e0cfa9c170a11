import BindruneWire
import Glibc
import Synchronization

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
      write((status.isEmpty ? "" : "\r\u{1B}[K") + text + "\n" + status)
    }
  }
  /// A line that the next one replaces, of less than 80 characters; only a terminal sees it. nil: none.
  static func status(_ text: String?) {
    guard isTerminal else { return }
    status.withLock { status in
      if text ?? "" == status { return }
      status = text.map { styled($0, .dim) } ?? ""
      write("\r\u{1B}[K" + status)
    }
  }

  static func warn(_ text: String) {
    status(nil)
    error("Warning: \(text)\n")
  }
  /// To standard error; what a picture on the screen would hide waits for its end.
  static func error(_ text: String) {
    if !Screen.holdBack(text) { _ = write(text, to: STDERR_FILENO) }
  }

  /// Ends the work when nobody reads it.
  static func write(_ text: String) {
    switch write(text, to: STDOUT_FILENO) {
    case 0: break
    case EPIPE: Interruption.end(.outputClosed)
    case let failure: unsafe Interruption.end(.outputFailed(String(cString: strerror(failure))))
    }
  }
  /// Zero or the error number. Past the C library's buffer, which has no way to say that nobody reads any more.
  private static func write(_ text: String, to descriptor: CInt) -> CInt {
    var text = text
    return text.withUTF8 { octets -> CInt in
      var done = 0
      while done < octets.count {
        let count = unsafe Glibc.write(descriptor, octets.baseAddress.unsafelyUnwrapped + done, octets.count - done)
        if count >= 0 { done += count } else if errno != EINTR { return errno }
      }
      return 0
    }
  }
}

/// Standard error for who writes by himself, as the logger does.
struct ErrorStream: TextOutputStream {
  func write(_ text: String) { Console.error(text) }
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
/// What a person can read: text where the octets are printable UTF-8, hex otherwise, and of that so much as a line holds:
/// --json has all of it.
func readable(_ bytes: [UInt8]) -> String {
  let text = String(decoding: bytes, as: UTF8.self)
  if bytes.count > 1, Array(text.utf8) == bytes, text.unicodeScalars.allSatisfy(\.isPrintable) {
    return "\"\(text)\""
  }
  return bytes.count <= 64
    ? hexText(bytes, separator: " ") : hexText(bytes.prefix(64), separator: " ") + " … (\(bytes.count) octets)"
}
