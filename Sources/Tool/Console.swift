import Glibc

/// What a person or a program reads: colour on a terminal, plain text elsewhere.
enum Console {
  static let isTerminal = isatty(STDOUT_FILENO) == 1
  private static let hasColour = {
    let refusal = unsafe getenv("NO_COLOR")
    return unsafe isTerminal && refusal == nil
  }()

  enum Style: String {
    case bold = "1"
    case dim = "2"
    case red = "31"
    case green = "32"
    case yellow = "33"
    case blue = "34"
    case magenta = "35"
    case cyan = "36"
  }
  static func styled(_ text: String, _ style: Style) -> String {
    hasColour ? "\u{1B}[\(style.rawValue)m\(text)\u{1B}[0m" : text
  }
  /// A line, at once: a pipe's reader follows live.
  static func line(_ text: String = "") {
    print(text)
    fflush(nil)
  }
  /// A line that the next one replaces; only a terminal sees it.
  static func status(_ text: String) {
    guard isTerminal else { return }
    print("\r\u{1B}[K" + text, terminator: "")
    fflush(nil)
  }
}

/// A JSON object on one line, its members in the order given.
struct JSONLine {
  private var text = "{"
  private mutating func add(_ key: String, raw: String) {
    if text.utf8.count > 1 { text += "," }
    text += Self.quoted(key) + ":" + raw
  }
  mutating func add(_ key: String, _ value: String?) { add(key, raw: value.map(Self.quoted) ?? "null") }
  mutating func add(_ key: String, _ value: Int?) { add(key, raw: value.map { String($0) } ?? "null") }
  mutating func add(_ key: String, _ value: Bool) { add(key, raw: value ? "true" : "false") }
  mutating func add(_ key: String, _ values: [String]) {
    add(key, raw: "[" + values.map(Self.quoted).joined(separator: ",") + "]")
  }
  mutating func add(_ key: String, _ object: JSONLine) { add(key, raw: object.description) }
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
      case _ where scalar.value < 0x20 || scalar.value == 0x7F:
        let hex = String(scalar.value, radix: 16)
        result += "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result + "\""
  }
}

func hexText(_ bytes: some Collection<UInt8>, separator: String = "") -> String {
  bytes.map { String($0 >> 4, radix: 16, uppercase: true) + String($0 & 15, radix: 16, uppercase: true) }
    .joined(separator: separator)
}
/// What a person can read: text where the octets are printable UTF-8, hex otherwise.
func readable(_ bytes: [UInt8]) -> String {
  let text = String(decoding: bytes, as: UTF8.self)
  let isText =
    bytes.count > 1 && Array(text.utf8) == bytes
    && text.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F }
  if isText { return "\"\(text)\"" }
  // A line holds so much; --json has all of it.
  return bytes.count <= 64
    ? hexText(bytes, separator: " ") : hexText(bytes.prefix(64), separator: " ") + " … (\(bytes.count) octets)"
}
/// A name from the air on a terminal: control characters could move the cursor.
func printable(_ name: String) -> String {
  String(String.UnicodeScalarView(name.unicodeScalars.map { $0.value < 0x20 || $0.value == 0x7F ? "·" : $0 }))
}
