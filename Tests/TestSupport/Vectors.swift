import BindruneWire
import Foundation

/// One message of `Fixtures/Vectors/*.txt`: its title with the §, its octets, and its text.
///
///     ATT_READ_BLOB_REQ · Vol 3, Part F, §3.4.4.5
///     0C 03 00 16 00
///     Attribute Handle: 0x0003, Value Offset: 22
///
/// Blank lines separate vectors, `#` begins a comment line, octets may span several lines; a message without fields has
/// no text line.
public struct Vector: Sendable, CustomStringConvertible {
  /// The Specification's name; a variant follows after a comma: `ATT_READ_BY_TYPE_REQ, 128-bit UUID`.
  public let title: String
  public let octets: [UInt8]
  public let text: String
  /// Its location: `att.txt:12`.
  public let place: String
  public var name: String { String(title.prefix { $0 != "," }) }
  public var description: String { "\(place) \(title)" }
}

public struct VectorFile {
  /// The folder of the fixtures, relative to this source file: the tests run in any working directory.
  public static var fixtures: URL {
    URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
      .appending(path: "Fixtures")
  }

  public let url: URL
  public private(set) var vectors: [Vector] = []
  private var lines: [String]
  /// The lines of each vector's text; an empty range if it has none.
  private var textLines: [Range<Int>] = []

  /// `name` is relative to `Fixtures/Vectors`.
  public init(_ name: String) throws {
    url = Self.fixtures.appending(path: "Vectors").appending(path: name)
    lines = try String(contentsOf: url, encoding: .utf8).split(separator: "\n", omittingEmptySubsequences: false)
      .map(String.init)
    var at = 0
    while at < lines.count {
      if lines[at].isEmpty || lines[at].hasPrefix("#") {
        at += 1
        continue
      }
      let parts = lines[at].components(separatedBy: " · "), place = "\(name):\(at + 1)"
      guard parts.count == 2, parts[1].contains("§") else { throw VectorError("\(place): not a title: \(lines[at])") }
      var bytes: [UInt8] = []
      at += 1
      while at < lines.count, let more = Self.octets(lines[at]) {
        bytes += more
        at += 1
      }
      guard !bytes.isEmpty else { throw VectorError("\(place): no octets") }
      let hasText = at < lines.count && !lines[at].isEmpty && !lines[at].hasPrefix("#")
      textLines.append(at..<(hasText ? at + 1 : at))
      vectors.append(Vector(title: parts[0], octets: bytes, text: hasText ? lines[at] : "", place: place))
      at += hasText ? 1 : 0
    }
  }

  private static func octets(_ line: String) -> [UInt8]? {
    let pairs = line.split(separator: " ")
    let bytes = pairs.compactMap { $0.utf8.count == 2 ? UInt8($0, radix: 16) : nil }
    return bytes.count == pairs.count && !bytes.isEmpty ? bytes : nil
  }

  /// The results for one vector: its text, and the octets from encoding it again.
  public typealias RoundTrip = ([UInt8]) throws(WireError) -> (text: String, octets: [UInt8])

  /// Decodes every vector, and checks that its text is equal, that encoding returns the same octets, and that every
  /// prefix shorter than the fixed fields is a `WireError` that names the field. A longer prefix that decodes must
  /// encode to the same octets.
  ///
  /// `layout` returns the fields of the message, the header's first; without it, prefixes must only not trap.
  /// With `BINDRUNE_RECORD=1` it rewrites the text lines instead: review the diff. Returns the failures.
  public func check(_ roundTrip: RoundTrip, layout: ([UInt8]) -> [WireLayout.Field] = { _ in [] }) throws -> [String] {
    var wrong: [String] = [], texts: [String] = []
    for vector in vectors {
      do throws(WireError) {
        let found = try roundTrip(vector.octets)
        texts.append(found.text)
        if found.text != vector.text { wrong.append("\(vector): the text is\n  \(found.text)\nnot\n  \(vector.text)") }
        if found.octets != vector.octets { wrong.append("\(vector): encodes to \(hex(found.octets))") }
      } catch {
        texts.append(vector.text)
        wrong.append("\(vector): \(error)")
      }
      let fields = layout(vector.octets)
      for count in vector.octets.indices { check(vector, prefix: count, fields, roundTrip, &wrong) }
    }
    if environment("BINDRUNE_RECORD") == "1" {
      try record(texts)
      wrong.removeAll { $0.contains(": the text is\n") }
    }
    return wrong
  }

  private func check(
    _ vector: Vector, prefix count: Int, _ fields: [WireLayout.Field], _ roundTrip: RoundTrip, _ wrong: inout [String]
  ) {
    let prefix = Array(vector.octets[..<count])
    // The first fixed field that the prefix does not contain completely.
    let missing = fields.first { field in
      guard let bit = field.bit, let width = field.width else { return false }
      return bit + width > 8 * count
    }
    do throws(WireError) {
      let found = try roundTrip(prefix)
      if let missing { wrong.append("\(vector): \(count) octets decode without \"\(missing.label)\"") }
      if found.octets != prefix { wrong.append("\(vector): \(count) octets encode to \(hex(found.octets))") }
    } catch {
      if let missing, "\(error.field)" != missing.label {
        wrong.append("\(vector): \(count) octets: \(error); it is \"\(missing.label)\" that is missing")
      }
    }
  }

  private func record(_ texts: [String]) throws {
    var lines = self.lines
    for (text, range) in zip(texts, textLines).reversed() {
      lines.replaceSubrange(range, with: text.isEmpty ? [] : [text])
    }
    let recorded = lines.joined(separator: "\n")
    if recorded != self.lines.joined(separator: "\n") { try recorded.write(to: url, atomically: true, encoding: .utf8) }
  }
}

/// A malformed vector file.
public struct VectorError: Error, CustomStringConvertible {
  public let description: String
  init(_ description: String) { self.description = description }
}
