/// How text stands on a terminal, where a character takes no, one or two columns.
extension String {
  func padded(_ width: Int) -> String { self + String(repeating: " ", count: Swift.max(0, width - columns)) }
  func leftPadded(_ width: Int) -> String { String(repeating: " ", count: Swift.max(0, width - columns)) + self }

  /// Columns of a terminal. The text has no control characters.
  var columns: Int { unicodeScalars.reduce(0) { $0 + $1.columns } }

  /// At most so many columns, with … where something is left out.
  func cut(to width: Int) -> String {
    if columns <= width { return self }
    var result = "", used = 0
    for character in self {
      used += String(character).columns
      if used > width - 1 { break }
      result.append(character)
    }
    return width > 0 ? result + "…" : ""
  }
}

extension Unicode.Scalar {
  /// As wcwidth(3) counts a terminal's cells, without a locale, and where terminals differ the most of them: two for the wide
  /// and full-width characters of Unicode Standard Annex #11 and for emoji.
  fileprivate var columns: Int {
    switch value {
    case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3, 0xF900...0xFAFF,
      0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6, 0x16FE0...0x18DFF, 0x1AFF0...0x1B2FF,
      0x20000...0x3FFFD:
      return 2
    case 0xAD, 0x1F1E6...0x1F1FF: return 1  // soft hyphen; two of the others are a flag
    case 0xFE0F: return 1  // may make an emoji of what stands before it
    default: break
    }
    switch properties.generalCategory {
    case .nonspacingMark, .enclosingMark, .format: return 0
    default: return properties.isEmojiPresentation ? 2 : 1
    }
  }
}
