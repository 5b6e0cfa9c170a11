/// A line that is being edited: keys in, edits out. It uses no terminal: `window` is the visible part for any width.
struct LineEditor {
  /// An action for the terminal's owner.
  enum Edit: Equatable, Sendable {
    /// The line is finished; pasted text may have several.
    case lines([String])
    /// The line that the user abandoned.
    case interrupt(String)
    case endOfInput
    /// The possible words at the cursor.
    case candidates([Candidate])
    case clear
    case suspend
  }
  struct Candidate: Equatable, Sendable {
    var text: String
    /// A description for the list.
    var note = ""
  }
  /// Replacements for `word`, with which the text before the cursor ends.
  struct Completion {
    var word: String
    var candidates: [Candidate]
  }

  /// The text on both sides of the cursor.
  private(set) var before = ""
  private(set) var after = ""
  /// What ^K, ^U or ^W removed last.
  private var killed = ""
  private var history: [String] = []
  /// The line of the history that is shown, and the draft it replaces; nil: none.
  private var recalled: (index: Int, draft: String)?
  private static var longestHistory: Int { 1000 }

  /// nil: the caller has nothing to do but show the line.
  mutating func press(_ key: Key, _ complete: (_ before: String) -> Completion) -> Edit? {
    switch key {
    case .text(let text), .pasted(let text): before += text
    case .enter: return .lines(finish())
    case .tab: return insert(complete(before))
    case .backspace: if !before.isEmpty { before.removeLast() }
    case .delete: if !after.isEmpty { after.removeFirst() }
    case .left: moveLeft()
    case .right: moveRight()
    case .wordLeft: moveLeft(over: wordBefore.count)
    case .wordRight:
      moveRight(
        over: after.prefix(while: \.isWhitespace).count
          + after.drop(while: \.isWhitespace).prefix { !$0.isWhitespace }.count)
    case .home: (before, after) = ("", before + after)
    case .end: (before, after) = (before + after, "")
    case .up: recall((recalled?.index ?? history.count) - 1)
    case .down: recall((recalled?.index ?? history.count) + 1)
    case .killToEnd: (killed, after) = (after, "")
    case .killToStart: (killed, before) = (before, "")
    case .killWord:
      killed = String(wordBefore)
      before.removeLast(killed.count)
    case .yank: before += killed
    case .interrupt:
      let text = before + after
      clear()
      return .interrupt(text)
    case .endOfInput:
      if before.isEmpty && after.isEmpty { return .endOfInput }
      if !after.isEmpty { after.removeFirst() }
    case .clear: return .clear
    case .suspend: return .suspend
    }
    return nil
  }

  private mutating func clear() { (before, after, recalled) = ("", "", nil) }
  private mutating func finish() -> [String] {
    let lines = (before + after).split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    clear()
    for line in lines where line.contains(where: { !$0.isWhitespace }) && line != history.last { history.append(line) }
    history.removeFirst(max(0, history.count - Self.longestHistory))
    return lines
  }
  private mutating func moveLeft(over count: Int = 1) {
    for _ in 0..<min(count, before.count) { after.insert(before.removeLast(), at: after.startIndex) }
  }
  private mutating func moveRight(over count: Int = 1) {
    for _ in 0..<min(count, after.count) { before.append(after.removeFirst()) }
  }
  /// The last word before the cursor, with the spaces after it.
  private var wordBefore: Substring {
    let spaces = before.reversed().prefix(while: \.isWhitespace).count
    let word = before.dropLast(spaces).reversed().prefix { !$0.isWhitespace }.count
    return before.suffix(word + spaces)
  }
  private mutating func recall(_ index: Int) {
    guard 0...history.count ~= index else { return }
    let draft = recalled?.draft ?? before + after
    recalled = index < history.count ? (index, draft) : nil
    (before, after) = (index < history.count ? history[index] : draft, "")
  }
  /// Inserts the common beginning of the candidates; returns them if it is no longer than the word.
  private mutating func insert(_ completion: Completion) -> Edit? {
    guard let first = completion.candidates.first?.text else { return nil }
    var common = first
    for candidate in completion.candidates {
      common = String(zip(common, candidate.text).prefix { $0 == $1 }.map(\.0))
    }
    let isOnly = completion.candidates.count == 1
    guard isOnly || common.count > completion.word.count else { return .candidates(completion.candidates) }
    before.removeLast(completion.word.count)
    before += common
    if isOnly, after.first != " " { before += " " }
    return nil
  }

  /// The visible part of the line in one row of `columns`, and the column of the cursor in it. A longer line is shown
  /// around the cursor; ↵ stands for the end of a pasted line.
  func window(columns: Int) -> (text: String, cursor: Int) {
    let left = before.replacing("\n", with: "↵"), right = after.replacing("\n", with: "↵")
    // The cursor needs a cell after the text.
    let room = max(0, columns - 1)
    var shown = left[...]
    let most = left.columns + right.columns <= room ? room : max(room * 3 / 4, room - right.columns)
    var used = left.columns
    while used > most, let character = shown.popFirst() { used -= String(character).columns }
    var text = String(shown), end = used
    for character in right {
      end += String(character).columns
      if end > room { break }
      text.append(character)
    }
    return (text, used)
  }
}
