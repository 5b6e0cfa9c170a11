import BindruneWire

/// Octets in the syntax of scripts and databases: parts separated by white space.
///
/// | part | means |
/// |---|---|
/// | `0B`, `0b00` | octets in hex, pairs of digits |
/// | `"Heart"` | the UTF-8 octets of a text; `\"` and `\\` stand for themselves |
/// | `00*512` | the part before the star, so many times |
/// | `??` | any octet; only where octets are expected |
/// | `[40-7F]` | any octet in this range; only where octets are expected |
/// | `{name:2}` | any two octets, which are called `name` from here on; only where octets are expected |
/// | `{name:[40-7F]}` | any octet in this range, which is called `name` from here on |
/// | `{name}` | the octets that were captured, or defined, under that name |
/// | `f4({a}, {b}, {n}, 00)` | the result of a function of pairing: ``PairingFunction`` |
/// | `...` | any octets up to the end, or none; only at the end of what is expected |
public struct OctetPattern: Sendable, Equatable {
  public enum Part: Sendable, Equatable {
    case octet(UInt8)
    case any
    case range(ClosedRange<UInt8>)
    case capture(String, count: Int)
    case captureInRange(String, ClosedRange<UInt8>)
    case captured(String)
    case result(PairingFunction, [OctetPattern])
    case rest
  }
  public var parts: [Part]

  public init(parts: [Part] = []) { self.parts = parts }
  public init(_ octets: some Sequence<UInt8>) { parts = octets.map { .octet($0) } }

  /// The octets, if every part is one.
  public var octets: [UInt8]? {
    var octets: [UInt8] = []
    for part in parts {
      guard case .octet(let octet) = part else { return nil }
      octets.append(octet)
    }
    return octets
  }

  /// The octets with captures and results inserted.
  func filled(with values: Values) throws(NoValue) -> [UInt8] {
    var octets: [UInt8] = []
    for part in parts {
      switch part {
      case .octet(let octet): octets.append(octet)
      case .captured(let name):
        guard let captured = values.named[name] else { throw .missing(name) }
        octets += captured
      case .result(let function, let arguments): octets += try values.result(of: function, arguments)
      case .any, .range, .capture, .captureInRange, .rest:
        preconditionFailure("the parser lets no wildcard into what is sent")
      }
    }
    return octets
  }

  /// Whether `octets` match; if they do, the named ones are added to `values`. What cannot be computed matches nothing.
  func matches(_ octets: [UInt8], _ values: inout Values) -> Bool {
    var found = values, at = 0
    for part in parts {
      let count: Int
      var wanted: [UInt8]?
      switch part {
      case .rest:
        values = found
        return true
      case .any: count = 1
      case .range(let range), .captureInRange(_, let range):
        count = 1
        guard at < octets.count, range.contains(octets[at]) else { return false }
      case .capture(_, let number): count = number
      case .octet, .captured, .result:
        do throws(NoValue) { wanted = try OctetPattern(parts: [part]).filled(with: found) } catch { return false }
        count = wanted?.count ?? 0
      }
      guard count <= octets.count - at else { return false }
      let piece = Array(octets[at..<at + count])
      if let wanted, wanted != piece { return false }
      switch part {
      case .capture(let name, _), .captureInRange(let name, _): found.named[name] = piece
      case .octet, .any, .range, .captured, .result, .rest: break
      }
      at += count
    }
    guard at == octets.count else { return false }
    values = found
    return true
  }
  /// With the results of functions in place of them, for a report.
  func computed(with values: Values) -> OctetPattern {
    OctetPattern(
      parts: parts.flatMap { part in
        guard case .result = part else { return [part] }
        do throws(NoValue) {
          return try OctetPattern(parts: [part]).filled(with: values).map { .octet($0) }
        } catch {
          return [part]
        }
      })
  }
}

extension OctetPattern {
  /// Parses octets up to the end of the line, a comment, or a character that ends octets.
  init(_ scanner: inout Scanner, wildcards: Bool, captured: inout Set<String>) throws(FileError) {
    parts = []
    var previous: [Part] = []
    while true {
      scanner.skipSpace()
      guard let next = scanner.next, !"#|,)=!".contains(next) else { return }
      let at = scanner.at
      if case .rest? = parts.last { throw scanner.failure("nothing may follow ...; remove it, or the dots") }
      switch next {
      case "*":
        guard !previous.isEmpty else { throw scanner.failure("* repeats the part before it, and there is none") }
        scanner.at += 1
        let count = try scanner.number("how often, as in 00*16")
        // The number is unbounded, so it is checked before any multiplication.
        guard 1...65_535 ~= count, parts.count + previous.count * (count - 1) <= 65_535 else {
          throw scanner.failure("this exceeds a PDU; 65535 octets are the limit", at: at)
        }
        for _ in 1..<count { parts += previous }
        previous = []
        continue
      case "\"": previous = try scanner.quoted().utf8.map { .octet($0) }
      case "{":
        previous = [try Self.name(&scanner, wildcards: wildcards, captured: &captured)]
      case "?", ".":
        let isAny = scanner.take("??")
        guard isAny || scanner.take("...") else {
          throw scanner.failure("a wildcard is ?? for an octet, or ... for the rest")
        }
        guard wildcards else {
          throw scanner.failure("a wildcard in octets to send; write the octets", at: at)
        }
        previous = [isAny ? .any : .rest]
      case "[":
        let range = try scanner.range()
        guard wildcards else {
          throw scanner.failure("a range in octets to send; write the octet", at: at)
        }
        previous = [.range(range)]
      case _ where scanner.isCall:
        let part = try Self.call(&scanner, captured: &captured)
        previous = [part]
      default:
        previous = []
        while let high = scanner.next?.hexDigitValue {
          guard let low = scanner.peek(1)?.hexDigitValue else {
            throw scanner.failure("half an octet; octets are pairs of hex digits")
          }
          previous = [.octet(UInt8(high << 4 | low))]
          parts += previous
          scanner.at += 2
        }
        guard scanner.at > at else {
          throw scanner.failure("\"\(next)\" is not an octet; write pairs of hex digits, as in 0A 03 00")
        }
        continue
      }
      parts += previous
    }
  }

  /// `f4({a}, {b}, {n}, 00)`.
  private static func call(_ scanner: inout Scanner, captured: inout Set<String>) throws(FileError) -> Part {
    let at = scanner.at, name = scanner.word()
    guard let function = PairingFunction(rawValue: name) else {
      throw scanner.failure(
        "\"\(name)\" is not a function; the functions are "
          + PairingFunction.allCases.map(\.rawValue).joined(separator: ", "), at: at)
    }
    _ = scanner.take("(")
    var arguments: [OctetPattern] = []
    repeat {
      arguments.append(try OctetPattern(&scanner, wildcards: false, captured: &captured))
    } while scanner.take(",")
    guard scanner.take(")") else { throw scanner.failure("the closing ) is missing after \(name)") }
    guard arguments.count == function.widths.count else {
      throw scanner.failure("\(name) has \(function.widths.count) arguments: \(function.signature)", at: at)
    }
    return .result(function, arguments)
  }
  private static func name(
    _ scanner: inout Scanner, wildcards: Bool, captured: inout Set<String>
  ) throws(FileError) -> Part {
    let at = scanner.at
    scanner.at += 1
    let name = scanner.word()
    guard !name.isEmpty else { throw scanner.failure("a name is missing in {}, as in {handle:2}") }
    guard scanner.take(":") else {
      guard scanner.take("}") else { throw scanner.failure("the closing } is missing after \(name)") }
      guard captured.contains(name) else {
        throw scanner.failure("\(name) has not been captured; capture it in an expected PDU with {\(name):2}", at: at)
      }
      return .captured(name)
    }
    if scanner.next == "[" {
      let range = try scanner.range()
      guard scanner.take("}") else { throw scanner.failure("the closing } is missing after \(name)") }
      guard wildcards else { throw scanner.failure("a capture in octets to send; write {\(name)}", at: at) }
      captured.insert(name)
      return .captureInRange(name, range)
    }
    let count = try scanner.number("how many octets, as in {\(name):2}")
    guard scanner.take("}") else { throw scanner.failure("the closing } is missing after \(name)") }
    guard wildcards else { throw scanner.failure("a capture in octets to send; write {\(name)}", at: at) }
    guard 1...512 ~= count else { throw scanner.failure("1 to 512 octets can be captured", at: at) }
    captured.insert(name)
    return .capture(name, count: count)
  }

  /// The octets of a whole text: a value in a database.
  static func octets(_ text: String, file: String, place: JSON.Place) throws(FileError) -> [UInt8] {
    var scanner = Scanner(text, file: file, line: place.line)
    scanner.column = place.column + 1
    var nothing: Set<String> = []
    let pattern = try OctetPattern(&scanner, wildcards: false, captured: &nothing)
    if scanner.next != nil { throw scanner.failure("unexpected text after the octets") }
    guard let octets = pattern.octets else {
      throw scanner.failure("a function in the octets of a value; write the octets", at: 0)
    }
    return octets
  }
}

extension OctetPattern: CustomStringConvertible {
  public var description: String {
    parts.map { part in
      switch part {
      case .octet(let octet): hexDigits(UInt64(octet), 2)
      case .any: "??"
      case .range(let range): range.script
      case .capture(let name, let count): "{\(name):\(count)}"
      case .captureInRange(let name, let range): "{\(name):\(range.script)}"
      case .captured(let name): "{\(name)}"
      case .result(let function, let arguments):
        "\(function.rawValue)(\(arguments.map(\.description).joined(separator: ", ")))"
      case .rest: "..."
      }
    }.joined(separator: " ")
  }
}

extension ClosedRange<UInt8> {
  /// In the syntax of scripts: `[40-7F]`.
  fileprivate var script: String { "[\(hexDigits(UInt64(lowerBound), 2))-\(hexDigits(UInt64(upperBound), 2))]" }
}
extension Scanner {
  /// `[40-7F]`.
  fileprivate mutating func range() throws(FileError) -> ClosedRange<UInt8> {
    let start = at
    at += 1
    let bounds = word().split(separator: "-", omittingEmptySubsequences: false).map {
      $0.count == 2 ? UInt8($0, radix: 16) : nil
    }
    guard take("]"), bounds.count == 2, let first = bounds[0], let last = bounds[1], first <= last else {
      throw failure("a range of octets is [40-7F], the least first", at: start)
    }
    return first...last
  }
}

/// A line that is parsed from left to right.
struct Scanner {
  let file: String
  let line: Int
  /// The column of the first character: more than 1 if the text is a part of a line.
  var column = 1
  private let characters: [Character]
  var at = 0

  init(_ text: String, file: String, line: Int) {
    self.file = file
    self.line = line
    characters = Array(text)
  }
  var next: Character? { peek(0) }
  func peek(_ distance: Int) -> Character? { at + distance < characters.count ? characters[at + distance] : nil }
  var isAtEnd: Bool { next == nil || next == "#" }

  func failure(_ message: String, at place: Int? = nil) -> FileError {
    FileError(file, line: line, column: column + (place ?? at), message)
  }
  mutating func skipSpace() { while next?.isWhitespace == true { at += 1 } }
  mutating func take(_ text: String) -> Bool {
    guard characters[min(at, characters.count)...].starts(with: text) else { return false }
    at += text.count
    return true
  }
  /// Letters, digits, hyphens; empty if there is none.
  mutating func word() -> String {
    var word = ""
    while let next, next.isLetter || next.isNumber || next == "-" || next == "_" {
      word.append(next)
      at += 1
    }
    return word
  }
  /// Whether a word and an opening parenthesis follow.
  var isCall: Bool {
    var copy = self
    return !copy.word().isEmpty && copy.next == "("
  }
  mutating func number(_ what: String) throws(FileError) -> Int {
    let start = at, word = word()
    let value = word.hasPrefix("0x") ? Int(word.dropFirst(2), radix: 16) : Int(word)
    guard let value, value >= 0 else { throw failure("a number is missing: \(what)", at: start) }
    return value
  }
  mutating func quoted() throws(FileError) -> String {
    let start = at
    at += 1
    var text = ""
    while let character = next {
      at += 1
      if character == "\"" { return text }
      if character == "\\", let escaped = next, escaped == "\"" || escaped == "\\" {
        text.append(escaped)
        at += 1
      } else {
        text.append(character)
      }
    }
    throw failure("the text has no end; close it with \"", at: start)
  }
}
