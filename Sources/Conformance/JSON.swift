import BindruneWire

/// A JSON value with its position, so that an error can name line and column. RFC 8259.
///
/// Foundation's reader reports neither the position of a value nor a duplicate key; people write these files.
package struct JSON: Sendable {
  package enum Value: Sendable {
    case null
    case bool(Bool)
    /// In its spelling.
    case number(String)
    case string(String)
    case array([JSON])
    case object([Member])
  }
  package struct Member: Sendable {
    package var key: String
    /// The position of the key.
    package var place: Place
    package var value: JSON
  }
  package struct Place: Sendable {
    package var line: Int
    package var column: Int
  }
  package var value: Value
  package var place: Place

  /// The kind of value, for an error.
  package var kind: String {
    switch value {
    case .null: "null"
    case .bool: "true or false"
    case .number: "a number"
    case .string: "a string"
    case .array: "a list"
    case .object: "an object"
    }
  }

  init(value: Value, place: Place) {
    self.value = value
    self.place = place
  }
  /// Parses the whole of `text`.
  package init(_ text: String, file: String) throws(FileError) {
    var reader = JSONReader(text, file: file)
    self = try reader.whole()
  }
}

/// Parses JSON: recursive descent, at most 64 levels.
private struct JSONReader {
  let file: String
  private let scalars: [Unicode.Scalar]
  private var at = 0
  private var line = 1
  private var lineStart = 0

  init(_ text: String, file: String) {
    self.file = file
    scalars = Array(text.unicodeScalars)
  }

  private var place: JSON.Place { JSON.Place(line: line, column: at - lineStart + 1) }
  private func failure(_ message: String) -> FileError {
    FileError(file, line: line, column: at - lineStart + 1, message)
  }
  private var next: Unicode.Scalar? { at < scalars.count ? scalars[at] : nil }
  /// The next character, for an error.
  private var found: String { next.map { "\"\($0)\"" } ?? "the end of the file" }

  private mutating func skipSpace() {
    while let scalar = next, scalar == " " || scalar == "\t" || scalar == "\r" || scalar == "\n" {
      at += 1
      if scalar == "\n" {
        line += 1
        lineStart = at
      }
    }
  }
  private mutating func take(_ scalar: Unicode.Scalar) -> Bool {
    guard next == scalar else { return false }
    at += 1
    return true
  }

  mutating func whole() throws(FileError) -> JSON {
    let json = try value(depth: 0)
    skipSpace()
    if next != nil { throw failure("\(found) after the end of the JSON value; remove it") }
    return json
  }

  private mutating func value(depth: Int) throws(FileError) -> JSON {
    skipSpace()
    let place = place
    guard depth < 64 else { throw failure("nested more than 64 levels deep; reduce the nesting") }
    guard let first = next else { throw failure("the file ends where a value is missing") }
    switch first {
    case "{": return JSON(value: .object(try members(depth: depth)), place: place)
    case "[": return JSON(value: .array(try elements(depth: depth)), place: place)
    case "\"": return JSON(value: .string(try string()), place: place)
    case "-", "0"..."9": return JSON(value: .number(number()), place: place)
    default:
      for (word, value) in [("true", JSON.Value.bool(true)), ("false", .bool(false)), ("null", .null)] {
        guard scalars[at...].starts(with: word.unicodeScalars) else { continue }
        at += word.unicodeScalars.count
        return JSON(value: value, place: place)
      }
      throw failure("\(found) does not begin a JSON value; write an object, a list, a string in quotes, or a number")
    }
  }

  private mutating func members(depth: Int) throws(FileError) -> [JSON.Member] {
    at += 1
    var members: [JSON.Member] = [], lines: [String: Int] = [:]
    skipSpace()
    if take("}") { return members }
    while true {
      skipSpace()
      let place = place
      guard next == "\"" else { throw failure("\(found) instead of a key in quotes") }
      let key = try string()
      if let earlier = lines.updateValue(place.line, forKey: key) {
        throw FileError(
          file, line: place.line, column: place.column,
          "the key \"\(key.printable(limit: 60))\" is a duplicate (first in line \(earlier)); remove one")
      }
      skipSpace()
      guard take(":") else {
        throw failure("\(found) instead of the colon after \"\(key.printable(limit: 60))\"")
      }
      members.append(JSON.Member(key: key, place: place, value: try value(depth: depth + 1)))
      skipSpace()
      if take("}") { return members }
      guard take(",") else { throw failure("\(found) instead of a comma or the closing brace") }
    }
  }

  private mutating func elements(depth: Int) throws(FileError) -> [JSON] {
    at += 1
    var elements: [JSON] = []
    skipSpace()
    if take("]") { return elements }
    while true {
      elements.append(try value(depth: depth + 1))
      skipSpace()
      if take("]") { return elements }
      guard take(",") else { throw failure("\(found) instead of a comma or the closing bracket") }
    }
  }

  private mutating func number() -> String {
    var text = ""
    while let scalar = next, "+-.eE".unicodeScalars.contains(scalar) || "0"..."9" ~= scalar {
      text.unicodeScalars.append(scalar)
      at += 1
    }
    return text
  }

  private mutating func string() throws(FileError) -> String {
    at += 1
    var text = String.UnicodeScalarView()
    while let scalar = next {
      switch scalar {
      case "\"":
        at += 1
        return String(text)
      case "\\":
        at += 1
        text.append(try escaped())
      case _ where scalar.value < 0x20: throw failure("a string ends in the line where it began; close it with \"")
      default:
        text.append(scalar)
        at += 1
      }
    }
    throw failure("the file ends inside a string; close it with \"")
  }

  /// Parses the character after a backslash.
  private mutating func escaped() throws(FileError) -> Unicode.Scalar {
    guard let scalar = next else { throw failure("the file ends inside a string; close it with \"") }
    at += 1
    switch scalar {
    case "\"", "\\", "/": return scalar
    case "n": return "\n"
    case "t": return "\t"
    case "r": return "\r"
    case "b": return "\u{08}"
    case "f": return "\u{0C}"
    case "u":
      let first = try unit()
      if 0xD800..<0xDC00 ~= first, take("\\"), take("u") {
        let second = try unit()
        if 0xDC00..<0xE000 ~= second, let pair = Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + second - 0xDC00) {
          return pair
        }
      }
      guard let scalar = Unicode.Scalar(first) else {
        throw failure("half a surrogate pair; write the character itself")
      }
      return scalar
    default:
      at -= 1
      throw failure("\\\(scalar) is not an escape; a backslash itself is written \\\\")
    }
  }
  private mutating func unit() throws(FileError) -> UInt32 {
    var value: UInt32 = 0
    for _ in 0..<4 {
      guard let digit = next.flatMap({ Character($0).hexDigitValue }) else {
        throw failure("\(found) instead of one of four hex digits")
      }
      value = value << 4 | UInt32(digit)
      at += 1
    }
    return value
  }
}
