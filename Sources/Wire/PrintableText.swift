// Text of foreign origin, such as a peer or a file, for a terminal, a log or an error message.

extension StringProtocol {
  /// The text with an escape, `\n` or `\u{202E}`, instead of each character that is not
  /// ``Swift/Unicode/Scalar/isPrintable``: it stays on its line, and can neither control a terminal nor imitate another
  /// line.
  ///
  /// Ends with `…` after `limit` characters. Backslashes are not escaped, so the result is for people and not for
  /// parsers. Octets that are not UTF-8 became U+FFFD when they were decoded, and are shown as that.
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
  /// False for characters that act on a terminal or a reader instead of being seen: control characters (C0, DEL, C1),
  /// line and paragraph separators, format characters, including the embeddings, overrides, isolates and marks of
  /// bidirectional text, and code points without a character: private, unassigned, surrogate.
  ///
  /// Two format characters are printable, the zero-width joiner and non-joiner: words of Persian and of Indic scripts,
  /// and many emoji, contain them, and they affect only their neighbours.
  package var isPrintable: Bool {
    if 0x20..<0x7F ~= value { return true }
    if self == "\u{200C}" || self == "\u{200D}" { return true }
    switch properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned, .surrogate: return false
    default: return true
    }
  }

  /// The escape of Swift's string literals.
  fileprivate var escape: String {
    switch self {
    case "\n": "\\n"
    case "\r": "\\r"
    case "\t": "\\t"
    default: "\\u{" + hexDigits(UInt64(value), 1) + "}"
    }
  }
}
