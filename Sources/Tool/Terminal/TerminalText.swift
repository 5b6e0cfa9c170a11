/// The width of text on a terminal, where a character takes zero, one or two columns.
extension String {
  func padded(_ width: Int) -> String { self + String(repeating: " ", count: Swift.max(0, width - columns)) }
  func leftPadded(_ width: Int) -> String { String(repeating: " ", count: Swift.max(0, width - columns)) + self }

  /// Columns on a terminal. The text must have no control characters.
  var columns: Int { utf8.allSatisfy { $0 < 0x80 } ? utf8.count : unicodeScalars.reduce(0) { $0 + $1.columns } }

  /// At most `width` columns, with … in place of what is left out.
  func cut(to width: Int) -> String {
    if utf8.count <= width || columns <= width { return self }
    var result = "", used = 0
    for character in self {
      used += String(character).columns
      if used > width - 1 { break }
      result.append(character)
    }
    return width > 0 ? result + "…" : ""
  }

  /// Pieces of at most `width` characters, broken at spaces where there are some; those after the first are indented
  /// by two more.
  func wrapped(_ width: Int) -> [String] {
    var pieces: [String] = [], rest = Substring(self)
    while rest.count > width {
      let end = rest.prefix(width).lastIndex(of: " ").flatMap { $0 == rest.startIndex ? nil : $0 }
      let piece = end.map { rest[..<$0] } ?? rest.prefix(width)
      pieces.append((pieces.isEmpty ? "" : "  ") + piece)
      rest = rest[piece.endIndex...].drop { $0 == " " }
      if pieces.count > 40 { break }
    }
    return pieces + [(pieces.isEmpty ? "" : "  ") + rest]
  }
}

extension Unicode.Scalar {
  /// Counts a terminal's cells like wcwidth(3), without a locale; where terminals differ, the larger number: two for
  /// the wide and full-width characters of Unicode Standard Annex #11 and for emoji.
  fileprivate var columns: Int {
    switch value {
    case 0x1100...0x115F, 0x2E80...0x303E, 0x3041...0xA4CF, 0xA960...0xA97F, 0xAC00...0xD7A3, 0xF900...0xFAFF,
      0xFE10...0xFE19, 0xFE30...0xFE6F, 0xFF01...0xFF60, 0xFFE0...0xFFE6, 0x16FE0...0x18DFF, 0x1AFF0...0x1B2FF,
      0x20000...0x3FFFD:
      return 2
    case 0xAD, 0x1F1E6...0x1F1FF: return 1  // soft hyphen; two of the others are a flag
    case 0xFE0F: return 1  // may turn the character before it into an emoji
    default: break
    }
    switch properties.generalCategory {
    case .nonspacingMark, .enclosingMark, .format: return 0
    default: return properties.isEmojiPresentation ? 2 : 1
    }
  }
}
