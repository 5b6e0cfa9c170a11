// Text that somebody else has written, a peer or a file, for a terminal, a log or an error's sentence.

extension StringProtocol {
  /// The text with an escape, `\n` or `\u{202E}`, instead of each character that is not ``Swift/Unicode/Scalar/isPrintable``:
  /// it stays on its line, and can neither steer a terminal nor pass for a line of its own.
  ///
  /// After `limit` characters of the text it ends with `…`. Backslashes stand for themselves, so what this returns is for
  /// people and not to be parsed. Octets that are not UTF-8 became U+FFFD when they were decoded, and are shown as that.
  package func printable(limit: Int = .max) -> String {
    var shown = String.UnicodeScalarView(), count = 0
    for scalar in unicodeScalars {
      if count == limit {
        shown.append("…")
        break
      }
      count += 1
      if scalar.isPrintable { shown.append(scalar) } else { shown.append(contentsOf: scalar.escape.unicodeScalars) }
    }
    return String(shown)
  }
}

extension Unicode.Scalar {
  /// False for what acts on a terminal or a reader instead of being seen: control characters (C0, DEL, C1), line and paragraph
  /// separators, format characters, the embeddings, overrides, isolates and marks of bidirectional text among them,
  /// and what has no character in Unicode: private, unassigned, surrogate.
  ///
  /// Two format characters are printable, the zero-width joiner and non-joiner: words of Persian and of Indic scripts, and many
  /// emoji, are written with them, and they join or part their neighbours only.
  package var isPrintable: Bool {
    if 0x20..<0x7F ~= value { return true }
    if self == "\u{200C}" || self == "\u{200D}" { return true }
    switch properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned, .surrogate: return false
    default: return true
    }
  }

  /// As Swift's string literals spell it.
  fileprivate var escape: String {
    switch self {
    case "\n": "\\n"
    case "\r": "\\r"
    case "\t": "\\t"
    default: "\\u{" + hexDigits(UInt64(value), 1) + "}"
    }
  }
}
