/// A page of Markdown as lines for a terminal: headings, paragraphs, lists and tables, wrapped; blocks of code as they
/// are. It knows what the course's pages use, and shows anything else as text.
struct CourseText {
  private(set) var lines: [String] = []
  private let width: Int

  init(_ markdown: String, width: Int) {
    self.width = max(width, 20)
    var source = markdown.split(separator: "\n", omittingEmptySubsequences: false)[...]
    while let line = source.popFirst() {
      if line.hasPrefix("```") {
        let end = source.firstIndex { $0.hasPrefix("```") } ?? source.endIndex
        code(source[..<end], line.dropFirst(3))
        source = source[end...].dropFirst()
      } else if line.hasPrefix("#") {
        let text = line.drop { $0 == "#" }.drop { $0 == " " }
        lines.append(Console.styled(String(text), .bold))
      } else if line.hasPrefix("|") {
        let rest = source.prefix { $0.hasPrefix("|") }
        table([line] + rest)
        source = source.dropFirst(rest.count)
      } else if line.hasPrefix("<!--") || line.isEmpty {
        if lines.last?.isEmpty == false { lines.append("") }
      } else {
        let rest = source.prefix { Self.continues($0) }
        paragraph(([line] + rest).joined(separator: " "))
        source = source.dropFirst(rest.count)
      }
    }
    while lines.last?.isEmpty == true { lines.removeLast() }
  }

  /// The line belongs to the paragraph or the item of the line before.
  private static func continues(_ line: Substring) -> Bool {
    !line.isEmpty && !line.hasPrefix("```") && !line.hasPrefix("#") && !line.hasPrefix("|") && !line.hasPrefix("<!--")
      && marker(line) == nil
  }
  /// `- ` or `3. ` at the beginning of an item.
  private static func marker(_ line: Substring) -> Substring? {
    if line.hasPrefix("- ") { return line.prefix(2) }
    let digits = line.prefix { $0.isASCII && $0.isNumber }
    guard !digits.isEmpty, line.dropFirst(digits.count).hasPrefix(". ") else { return nil }
    return line.prefix(digits.count + 2)
  }

  private mutating func code(_ code: ArraySlice<Substring>, _ language: Substring) {
    for line in code {
      let isCommand = language == "console" && line.hasPrefix("$ ")
      lines.append(line.isEmpty ? "" : "  " + Console.styled(String(line), isCommand ? .bold : .cyan))
    }
  }

  private mutating func paragraph(_ text: String) {
    let marker = Self.marker(text[...]) ?? ""
    let indent = String(repeating: " ", count: marker.count)
    var line = "", used = 0
    func flush(_ line: String, isFirst: Bool, into lines: inout [String]) {
      lines.append((isFirst ? String(marker) : indent) + line)
    }
    var isFirst = true
    for word in Self.words(text.dropFirst(marker.count)) {
      if used > 0, marker.count + used + 1 + word.columns > width {
        flush(line, isFirst: isFirst, into: &lines)
        (line, used, isFirst) = ("", 0, false)
      }
      line += (used > 0 ? " " : "") + word.text
      used += (used > 0 ? 1 : 0) + word.columns
    }
    flush(line, isFirst: isFirst, into: &lines)
  }

  /// Columns as wide as their longest cell; a row that is wider than the page is cut.
  private mutating func table(_ rows: [Substring]) {
    let cells = rows.map { row in
      row.drop { $0 == "|" }.split(separator: "|", omittingEmptySubsequences: false).dropLast().map { cell in
        Self.words(cell).reduce(into: (text: "", columns: 0)) { cell, word in
          cell.text += (cell.columns > 0 ? " " : "") + word.text
          cell.columns += (cell.columns > 0 ? 1 : 0) + word.columns
        }
      }
    }
    let count = cells.map(\.count).max() ?? 0
    let widths = (0..<count).map { column in cells.map { column < $0.count ? $0[column].columns : 0 }.max() ?? 0 }
    for (index, row) in cells.enumerated() where index != 1 {
      if row.allSatisfy({ $0.columns == 0 }) { continue }
      var line = ""
      for (column, cell) in row.enumerated() {
        let padding = column + 1 < row.count ? widths[column] - cell.columns + 2 : 0
        line += cell.text + String(repeating: " ", count: padding)
      }
      lines.append(line)
    }
  }

  /// The words of a text with their widths: code and emphasis styled, links as their text alone.
  private static func words(_ text: Substring) -> [(text: String, columns: Int)] {
    var words: [(text: String, columns: Int)] = []
    var word = "", columns = 0, style: Console.Style?, rest = text, run = ""
    func closeRun() {
      if !run.isEmpty { word += style.map { Console.styled(run, $0) } ?? run }
      run = ""
    }
    func closeWord() {
      closeRun()
      if columns > 0 { words.append((word, columns)) }
      (word, columns) = ("", 0)
    }
    while let character = rest.popFirst() {
      switch character {
      case " " where style != .cyan: closeWord()
      case "`":
        closeRun()
        style = style == .cyan ? nil : .cyan
      case "*" where style != .cyan && (rest.first == "*" || style == .bold || rest.first?.isLetter == true):
        rest = rest.drop { $0 == "*" }
        closeRun()
        style = style == .bold ? nil : .bold
      case "[" where style != .cyan:
        // [text](address)
        guard let end = rest.firstIndex(of: "]"), rest[end...].hasPrefix("]("),
          let last = rest[end...].firstIndex(of: ")")
        else {
          run.append(character)
          columns += 1
          continue
        }
        rest = rest[..<end] + rest[rest.index(after: last)...]
      default:
        run.append(character)
        columns += String(character).columns
      }
    }
    closeWord()
    return words
  }
}
