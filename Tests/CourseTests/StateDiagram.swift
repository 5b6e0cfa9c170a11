import Foundation

/// A machine's table of `Fixtures/Transitions` or `Fixtures/Machines`, without the paths that lead to each phase: which
/// inputs lead from which phase to which other one.
struct PhaseTable {
  struct Move: Equatable {
    var from: String
    var to: String
    /// In the order of the table.
    var inputs: [String]
  }
  /// In the order in which the moves lead to them; the first is the phase at the start.
  private(set) var phases: [String] = []
  /// Phases that the table leads to, and from which it tries nothing.
  private(set) var untried: Set<String> = []
  private(set) var moves: [Move] = []
  /// What leads from most phases to the same one. It is named once instead of in every phase.
  private(set) var common: [(input: [String], to: String)] = []

  init(_ text: String) {
    var found: [String] = [], phase = "", inputs: [String] = []
    var all: [String: [(input: String, to: String)]] = [:]
    for line in text.components(separatedBy: "\n") where !line.isEmpty {
      guard line.hasPrefix("  ") else {
        phase = Self.phase(String(line.components(separatedBy: ": ").last ?? ""))
        if !found.contains(phase) { found.append(phase) }
        continue
      }
      let halves = line.dropFirst(2).components(separatedBy: " → ")
      let to = Self.phase(String(halves[1].components(separatedBy: ": ")[0])), input = halves[0]
      if !inputs.contains(input) { inputs.append(input) }
      if !(all[phase] ?? []).contains(where: { $0 == (input, to) }) { all[phase, default: []].append((input, to)) }
    }
    untried = Set(all.values.joined().map(\.to)).subtracting(found)
    for phase in found {
      for (_, to) in all[phase] ?? [] where !found.contains(to) { found.append(to) }
    }
    var isCommon: Set<[String]> = []
    for to in found {
      let common = inputs.filter { input in
        let sources = found.count { from in from != to && (all[from] ?? []).contains { $0 == (input, to) } }
        return sources > 2 && 2 * sources >= found.count - 1
      }
      if !common.isEmpty { self.common.append((common, to)) }
      isCommon.formUnion(common.map { [$0, to] })
    }
    var waiting = found[...]
    while let first = waiting.first {
      // Breadth first from the start, then what only other paths lead to.
      var queue = [first]
      while let from = queue.first {
        queue.removeFirst()
        guard let place = waiting.firstIndex(of: from) else { continue }
        waiting.remove(at: place)
        phases.append(from)
        var targets: [String] = []
        for (input, to) in all[from] ?? [] where to != from && !isCommon.contains([input, to]) {
          if !targets.contains(to) { targets.append(to) }
        }
        for to in targets {
          let leading = (all[from] ?? []).filter { $0.to == to && !isCommon.contains([$0.input, to]) }.map(\.input)
          moves.append(Move(from: from, to: to, inputs: leading))
        }
        queue += targets
      }
    }
  }
  /// `setting enable, retry`: what a phase knows is not part of its name.
  private static func phase(_ text: String) -> String { text.components(separatedBy: ", ")[0] }

  /// The same as the drawing, for readers of the text.
  var rows: [String] {
    ["| in | on | goes to |", "|---|---|---|"]
      + moves.map { "| \($0.from) | \($0.inputs.joined(separator: ", ")) | \($0.to) |" }
      + common.map { "| most phases | \($0.input.joined(separator: ", ")) | \($0.to) |" }
  }
}

/// A phase table as a picture: a box for each phase, a row in it for each phase that follows, and for each phase a line
/// of its own colour that collects what leads to it. No line crosses a label, however many phases there are.
struct StateDiagram {
  let title: String
  let table: PhaseTable

  private struct Row {
    var move: PhaseTable.Move
    var label: [String]
    /// Where its line leaves the box.
    var y = 0
  }
  private struct Box {
    var phase: String
    var rows: [Row]
    var top = 0
    var height = 0
    var entry: Int { top + 15 }
  }
  private static let line = 16, labelColumns = 42
  /// Widths of text in a font that the reader's system chooses: with room to spare.
  private static func width(_ text: String, isBold: Bool = false) -> Int { (text.count * (isBold ? 84 : 74) + 9) / 10 }

  private static func wrapped(_ words: [String], _ columns: Int) -> [String] {
    var lines: [String] = []
    for (place, word) in words.enumerated() {
      let word = word + (place + 1 < words.count ? "," : "")
      if let last = lines.last, last.count + 1 + word.count <= columns {
        lines[lines.count - 1] += " " + word
      } else {
        lines.append(word)
      }
    }
    return lines
  }

  private func boxes() -> [Box] {
    var top = 16
    return table.phases.map { phase in
      var box = Box(phase: phase, rows: [], top: top), y = top + 26
      for move in table.moves where move.from == phase {
        var label = Self.wrapped(move.inputs, Self.labelColumns)
        let last = label.removeLast(), arrow = "→ \(move.to)"
        label += last.count + 1 + arrow.count > Self.labelColumns ? [last, arrow] : ["\(last) \(arrow)"]
        y += Self.line * label.count + 6
        box.rows.append(Row(move: move, label: label, y: y - 2))
      }
      box.height = y + 6 - top
      top += box.height + 14
      return box
    }
  }

  /// The vertical line of each phase that something leads to: the place of its lane, from the boxes outwards. Short
  /// ones are inside.
  private func lanes(_ boxes: [Box]) -> [(phase: String, ys: [Int], entry: Int, lane: Int)] {
    var found = boxes.compactMap { box -> (phase: String, ys: [Int], entry: Int, lane: Int)? in
      let ys = boxes.flatMap(\.rows).filter { $0.move.to == box.phase }.map(\.y)
      return ys.isEmpty ? nil : (box.phase, ys, box.entry, 0)
    }
    func span(_ place: Int) -> ClosedRange<Int> {
      let ys = found[place].ys + [found[place].entry]
      return (ys.min() ?? 0)...(ys.max() ?? 0)
    }
    var taken: [[ClosedRange<Int>]] = []
    for place in found.indices.sorted(by: { (span($0).count, $0) < (span($1).count, $1) }) {
      let range = span(place)
      let lane = taken.firstIndex { !$0.contains { $0.overlaps(range) } } ?? taken.count
      if lane == taken.count { taken.append([]) }
      taken[lane].append(range)
      found[place].lane = lane
    }
    return found
  }

  private struct Colours {
    var paper, box, edge, text, label: String
    var lanes: [String]
    static let light = Colours(
      paper: "#ffffff", box: "#f5f5f7", edge: "#6e6e73", text: "#1d1d1f", label: "#3a3a3c",
      lanes: ["#0062c4", "#b3261e", "#1a7f37", "#8250df", "#9a5b00", "#00756f", "#b0125b", "#5c6670"])
    static let dark = Colours(
      paper: "#161618", box: "#2a2a2d", edge: "#98989d", text: "#f5f5f7", label: "#d2d2d7",
      lanes: ["#6cb4ff", "#ff8a80", "#5dd879", "#c9a6ff", "#f0b45a", "#52d6cd", "#ff8cc3", "#b4bfca"])
  }

  /// The text that stands for the picture.
  var alternative: String {
    "State diagram. \(title): \(table.phases.joined(separator: ", "))."
  }

  func svg(isDark: Bool) -> String {
    let colours = isDark ? Colours.dark : Colours.light, boxes = boxes(), lanes = lanes(boxes)
    let left = 30, right = left + 20 + (table.phases.map { Self.width($0, isBold: true) }.max() ?? 0)
    let labels = boxes.flatMap(\.rows).flatMap(\.label).map { Self.width($0) }.max() ?? 0
    let lane = { (number: Int) in right + 10 + labels + 14 + 16 * number }
    let width = max(560, lane((lanes.map(\.lane).max() ?? 0) + 1) + 8)
    let notes = table.common.flatMap { common in
      Self.wrapped(common.input, (width - 2 * left) * 10 / 74 - 6).enumerated().map { place, text in
        place == 0 ? "From most phases to \(common.to):\n\(text)" : text
      }
    }.flatMap { $0.components(separatedBy: "\n") }
    let bottom = (boxes.last.map { $0.top + $0.height } ?? 0) + 14
    let height = bottom + (notes.isEmpty ? 0 : Self.line * notes.count + 14)
    var svg = [
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"\(width)\" height=\"\(height)\" viewBox=\"0 0 \(width) \(height)\""
        + " role=\"img\" font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"13\">",
      "<title>\(escaped(title))</title>",
      "<desc>\(escaped(alternative))</desc>",
      "<rect width=\"\(width)\" height=\"\(height)\" rx=\"10\" fill=\"\(colours.paper)\"/>",
    ]
    if let first = boxes.first {
      svg.append("<circle cx=\"10\" cy=\"\(first.entry)\" r=\"5\" fill=\"\(colours.text)\"/>")
      svg.append(arrow(to: left, first.entry, from: 15, colours.text))
    }
    for (number, bus) in lanes.enumerated() {
      let x = lane(bus.lane), colour = colours.lanes[number % colours.lanes.count]
      let ys = bus.ys + [bus.entry]
      svg.append(line(x, ys.min() ?? 0, x, ys.max() ?? 0, colour))
      for y in bus.ys {
        svg.append(line(right, y, x, y, colour))
        svg.append("<circle cx=\"\(x)\" cy=\"\(y)\" r=\"3\" fill=\"\(colour)\"/>")
      }
      svg.append(arrow(to: right, bus.entry, from: x, colour))
    }
    for box in boxes {
      svg.append(
        "<rect x=\"\(left)\" y=\"\(box.top)\" width=\"\(right - left)\" height=\"\(box.height)\" rx=\"7\""
          + " fill=\"\(colours.box)\" stroke=\"\(colours.edge)\"/>")
      svg.append(text(left + 10, box.entry + 5, box.phase, colours.text, isBold: true))
      for row in box.rows {
        for (place, label) in row.label.reversed().enumerated() {
          let y = row.y - 4 - Self.line * place, halves = label.components(separatedBy: "→")
          let colour = lanes.firstIndex { $0.phase == row.move.to }.map { colours.lanes[$0 % colours.lanes.count] }
          svg.append(text(right + 10, y, halves[0], colours.label, then: halves.dropFirst().first, colour ?? ""))
        }
      }
    }
    for (place, note) in notes.enumerated() {
      let isHeading = note.hasPrefix("From most phases")
      svg.append(
        text(left + (isHeading ? 0 : 14), bottom + 10 + Self.line * place, note, colours.label, isBold: isHeading))
    }
    return (svg + ["</svg>", ""]).joined(separator: "\n")
  }
  private func line(_ x1: Int, _ y1: Int, _ x2: Int, _ y2: Int, _ colour: String) -> String {
    "<path d=\"M\(x1) \(y1)L\(x2) \(y2)\" stroke=\"\(colour)\" stroke-width=\"1.6\" stroke-linecap=\"round\"/>"
  }
  private func arrow(to x: Int, _ y: Int, from start: Int, _ colour: String) -> String {
    let back = start > x ? 8 : -8
    return line(start, y, x + back, y, colour)
      + "<path d=\"M\(x) \(y)l\(back) -4v8z\" fill=\"\(colour)\"/>"
  }
  private func text(
    _ x: Int, _ y: Int, _ text: String, _ colour: String, isBold: Bool = false, then target: String? = nil,
    _ other: String = ""
  ) -> String {
    let end = target.map { "<tspan fill=\"\(other)\">→\(escaped($0))</tspan>" } ?? ""
    return
      "<text x=\"\(x)\" y=\"\(y)\" fill=\"\(colour)\"\(isBold ? " font-weight=\"600\"" : "")>\(escaped(text))\(end)</text>"
  }
  private func escaped(_ text: String) -> String {
    text.replacingOccurrences(of: "&", with: "&amp;").replacingOccurrences(of: "<", with: "&lt;")
  }
}
