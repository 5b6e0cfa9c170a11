/// Prints two lists of lines beside each other, on a narrow terminal below each other; lines that differ are marked by
/// colour.
func sideBySide(_ left: (title: String, lines: [String]), _ right: (title: String, lines: [String])) {
  let columns = Screen.size.columns, width = (columns - 7) / 2
  guard columns >= 80 else {
    for (title, lines) in [left, right] {
      Console.line("  \(title)")
      for line in lines { Console.line("    \(line)") }
    }
    return
  }
  Console.line("  \(left.title.cut(to: width).padded(width)) \(right.title)")
  for row in 0..<max(left.lines.count, right.lines.count) {
    let a = row < left.lines.count ? left.lines[row] : "", b = row < right.lines.count ? right.lines[row] : ""
    let pieces = (a.wrapped(width), b.wrapped(width))
    for line in 0..<max(pieces.0.count, pieces.1.count) {
      let one = line < pieces.0.count ? pieces.0[line] : "", other = line < pieces.1.count ? pieces.1[line] : ""
      let text = "  \(one.padded(width)) \(other)"
      Console.line(a == b ? text : Console.styled(text, .yellow))
    }
  }
}
