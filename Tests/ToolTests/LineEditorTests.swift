import Testing

@testable import BindruneTool

@Suite("Tool: a line that is edited") struct LineEditorTests {
  private func keys(_ parts: [UInt8]...) -> [Key] {
    var decoder = KeyDecoder()
    return parts.flatMap { decoder.keys($0) }
  }
  private func keys(_ text: String) -> [Key] { keys(Array(text.utf8)) }
  private let none = { (before: String) in LineEditor.Completion(word: "", candidates: []) }
  /// The editor after these keys, and the last edit.
  private func editor(_ text: String) -> (editor: LineEditor, edit: LineEditor.Edit?) {
    var editor = LineEditor(), edit: LineEditor.Edit?
    for key in keys(text) { edit = editor.press(key, none) }
    return (editor, edit)
  }

  @Test(
    arguments: [
      ("abc", [.text("abc")]), ("é日🙂", [.text("é日🙂")]), ("\r", [.enter]), ("\n", [.enter]), ("\t", [.tab]),
      ("\u{7F}\u{8}", [.backspace, .backspace]), ("\u{1}\u{2}\u{5}\u{6}", [.home, .left, .end, .right]),
      ("\u{3}\u{4}\u{C}\u{1A}", [.interrupt, .endOfInput, .clear, .suspend]),
      ("\u{B}\u{15}\u{17}\u{19}", [.killToEnd, .killToStart, .killWord, .yank]),
      ("\u{1B}[A\u{1B}[B\u{1B}[C\u{1B}[D\u{1B}[H\u{1B}[F", [.up, .down, .right, .left, .home, .end]),
      ("\u{1B}OA\u{1B}OH\u{1B}[3~\u{1B}[1~\u{1B}[8~", [.up, .home, .delete, .home, .end]),
      ("\u{1B}[1;5D\u{1B}[1;5C\u{1B}b\u{1B}f\u{1B}\u{7F}", [.wordLeft, .wordRight, .wordLeft, .wordRight, .killWord]),
      // Keys without a meaning are ignored: F5, a mouse, a lone escape before another, control characters.
      ("\u{1B}[15~a\u{1B}[<0;1;1Mb\u{1B}\u{1B}[Ac\u{0}\u{1C}", [.text("ab"), .up, .text("c")]),
      ("\u{1B}[200~a\rb\tc\u{1B}[Ad\u{1B}[201~e", [.pasted("a\nb c [Ad"), .text("e")]),
      ("\u{1B}[200~a\r\nb\u{1B}[201~", [.pasted("a\nb")]),
    ] as [(String, [Key])])
  func octetsAreKeys(octets: String, expected: [Key]) {
    #expect(keys(octets) == expected)
    // The same if each octet comes alone; text then comes in as many parts.
    var decoder = KeyDecoder()
    let single = Array(octets.utf8).flatMap { decoder.keys([$0]) }
    #expect(joined(single) == joined(expected))
  }
  private func joined(_ keys: [Key]) -> [Key] {
    keys.reduce(into: []) { all, key in
      if case .text(let text) = key, case .text(let before)? = all.last {
        all[all.count - 1] = .text(before + text)
      } else {
        all.append(key)
      }
    }
  }
  @Test func whatIsNoText() {
    #expect(keys([0xFF, 0x61]) == [.text("\u{FFFD}a")])
    #expect(keys([0xC3], [0x28]) == [.text("\u{FFFD}(")])
    #expect(keys([0xE2, 0x82], [0xAC]) == [.text("€")])
    // Right-to-left override: not printable.
    #expect(keys("\u{202E}").isEmpty)
  }

  @Test(arguments: [
    ("read\u{1}x", "x", "read"), ("read\u{2}\u{2}x", "rex", "ad"), ("a b  c\u{17}", "a b  ", ""),
    ("a b  \u{17}", "a ", ""), ("ab\u{2}\u{B}", "a", ""), ("ab\u{2}\u{15}", "", "b"),
    ("ab cd\u{17}\u{1}\u{19}", "cd", "ab "),
    ("ab\u{1}\u{1B}[3~", "", "b"), ("ab\u{1}\u{4}", "", "b"), ("ab\u{7F}", "a", ""),
    ("\u{7F}\u{1B}[3~\u{1B}[C\u{1B}[D", "", ""),
    ("one two\u{1B}b", "one ", "two"), ("one two\u{1B}b\u{1B}b", "", "one two"), ("one two\u{1}\u{1B}f", "one", " two"),
    ("é日🙂\u{7F}\u{7F}", "é", ""), ("e\u{301}\u{7F}", "", ""), ("👩‍👩‍👧x\u{2}\u{2}", "", "👩‍👩‍👧x"),
    ("\u{3}", "", ""),
  ])
  func keysAreEdits(typed: String, before: String, after: String) {
    let (editor, _) = editor(typed)
    #expect(editor.before == before && editor.after == after, "\(editor)")
  }

  @Test func linesAreKept() {
    #expect(editor("one\r").edit == .lines(["one"]))
    #expect(editor("\u{1B}[200~one\rtwo\u{1B}[201~\r").edit == .lines(["one", "two"]))
    #expect(editor("half\u{3}").edit == .interrupt("half"))
    #expect(editor("\u{4}").edit == .endOfInput)
    let up = "\u{1B}[A", down = "\u{1B}[B"
    for (typed, line) in [
      ("one\rtwo\r" + up, "two"), ("one\rtwo\r" + up + up, "one"), ("one\rtwo\r" + up + up + up, "one"),
      ("one\rtwo\rdraft" + up + up + down + down, "draft"), ("one\rtwo\r" + up + down + down, ""),
      // The history keeps a repeated line once and an empty one not at all; a changed line becomes a new one.
      ("one\rone\r\r  \r" + up + up, "one"), ("one\r" + up + "x\r" + up + up, "one"),
      ("one\r" + up + "x\r" + up, "onex"),
    ] {
      #expect(editor(typed).editor.before == line, "\(typed.debugDescription)")
    }
  }

  @Test func completion() {
    let names = ["battery-level", "battery-level-state", "body-sensor-location", "2A19"]
    func complete(_ before: String) -> LineEditor.Completion {
      let word = String(before.reversed().prefix { $0 != " " }.reversed())
      return .init(
        word: word,
        candidates: names.filter { $0.lowercased().hasPrefix(word.lowercased()) }.map { .init(text: $0) })
    }
    func press(_ text: String) -> (String, LineEditor.Edit?) {
      var editor = LineEditor(), edit: LineEditor.Edit?
      for key in keys(text) { edit = editor.press(key, complete) }
      return (editor.before, edit)
    }
    for (typed, line) in [
      ("read bo\t", "read body-sensor-location "), ("read ba\t", "read battery-level"), ("read 2a\t", "read 2A19 "),
      ("read x\t", "read x"),
      // In the middle of a line, before a space that is there.
      ("bo x\u{2}\u{2}\t", "body-sensor-location"),
    ] {
      let (before, edit) = press(typed)
      #expect(before == line && edit == nil, "\(typed.debugDescription)")
    }
    let (line, edit) = press("read b\t")
    #expect(line == "read b")
    #expect(edit == .candidates(names.dropLast().map { .init(text: $0) }))
  }

  @Test func aWindowShowsTheCursor() {
    for (typed, columns, text, cursor) in [
      ("abc\u{2}", 10, "abc", 2), ("0123456789", 6, "56789", 5), ("0123456789\u{1}", 6, "01234", 0),
      ("0123456789\u{2}\u{2}", 6, "56789", 3), ("日本語", 6, "本語", 4), ("\u{1B}[200~a\rb\u{1B}[201~", 10, "a↵b", 3),
      ("abc", 0, "", 0),
    ] {
      let window = editor(typed).editor.window(columns: columns)
      #expect(window.text == text && window.cursor == cursor, "\(typed.debugDescription): \(window)")
    }
  }
  /// For any octets, nothing traps, and a window has its width.
  @Test func anyOctets() {
    var chance = Seeded(state: 0x5EED)
    let pieces: [[UInt8]] = [
      "\u{1B}[", "\u{1B}[200~", "\u{1B}[201~", "e\u{301}", "日", "🙂", "\r", "\t", "\u{1B}[A", "\u{1B}b",
    ].map { Array($0.utf8) }
    for _ in 0..<2000 {
      var decoder = KeyDecoder(), editor = LineEditor()
      for _ in 0..<20 {
        let octets =
          Bool.random(using: &chance)
          ? pieces.randomElement(using: &chance) ?? []
          : (0..<4).map { _ in UInt8.random(in: 0...255, using: &chance) }
        for key in decoder.keys(octets) {
          _ = editor.press(key) {
            .init(word: String($0.suffix(1)), candidates: [.init(text: "ab"), .init(text: "日")])
          }
        }
        let columns = Int.random(in: 0...12, using: &chance), (text, cursor) = editor.window(columns: columns)
        #expect(text.columns <= max(0, columns - 1) && cursor <= max(0, columns - 1), "\(text) in \(columns)")
      }
    }
  }
  private struct Seeded: RandomNumberGenerator {
    var state: UInt64
    // SplitMix64.
    mutating func next() -> UInt64 {
      state &+= 0x9E37_79B9_7F4A_7C15
      var z = (state ^ state >> 30) &* 0xBF58_476D_1CE4_E5B9
      z = (z ^ z >> 27) &* 0x94D0_49BB_1331_11EB
      return z ^ z >> 31
    }
  }
}
