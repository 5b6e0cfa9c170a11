import BindruneWire

/// A key of a terminal, by its effect on a line, or text.
enum Key: Equatable, Sendable {
  /// Printable characters, typed.
  case text(String)
  /// The same, pasted; line feeds are kept.
  case pasted(String)
  case enter, tab, backspace, delete
  case left, right, wordLeft, wordRight, home, end, up, down
  case killToEnd, killToStart, killWord, yank
  case interrupt, endOfInput, clear, suspend
}

/// Decodes the input from a terminal in raw mode: octets in, keys out. A character or a sequence may arrive in parts;
/// unknown sequences are ignored.
struct KeyDecoder {
  private var pending: [UInt8] = []
  private var isPasting = false
  private static let endOfPaste = Array("\u{1B}[201~".utf8)

  mutating func keys(_ octets: some Sequence<UInt8>) -> [Key] {
    pending += octets
    var keys: [Key] = []
    while let (count, key) = first() {
      pending.removeFirst(count)
      switch (key, keys.last) {
      case (.text(let text)?, .text(let before)?): keys[keys.count - 1] = .text(before + text)
      case (let key?, _): keys.append(key)
      case (nil, _): break
      }
    }
    return keys
  }

  /// The length of the first item in `pending`, and its key, if it is one; nil: the item is incomplete.
  private mutating func first() -> (count: Int, key: Key?)? {
    if isPasting { return paste() }
    guard let octet = pending.first else { return nil }
    if octet == 0x1B { return sequence() }
    if octet < 0x20 || octet == 0x7F { return (1, Self.controls[octet]) }
    let length = octet < 0xC0 ? 1 : octet < 0xE0 ? 2 : octet < 0xF0 ? 3 : 4
    // An octet that cannot continue a character ends it: invalid UTF-8 is shown as U+FFFD.
    let whole = pending.prefix(length).dropFirst().prefix { $0 & 0xC0 == 0x80 }.count + 1
    if whole < length, whole == pending.count { return nil }
    return (whole, text(pending.prefix(whole)).map { .text($0) })
  }
  private func text(_ octets: some Collection<UInt8>, keepsLines: Bool = false) -> String? {
    var text = String.UnicodeScalarView()
    for scalar in String(decoding: octets, as: UTF8.self).replacing("\r\n", with: "\n").unicodeScalars {
      if scalar.isPrintable {
        text.append(scalar)
      } else if keepsLines {
        // Terminals send a carriage return for the end of a line.
        text.append(scalar == "\r" || scalar == "\n" ? "\n" : " ")
      }
    }
    return text.isEmpty ? nil : String(text)
  }
  private mutating func paste() -> (count: Int, key: Key?)? {
    guard pending.count >= Self.endOfPaste.count,
      let end = (0...pending.count - Self.endOfPaste.count).first(where: {
        pending[$0...].starts(with: Self.endOfPaste)
      })
    else { return nil }
    isPasting = false
    return (end + Self.endOfPaste.count, text(pending[..<end], keepsLines: true).map { .pasted($0) })
  }
  /// ECMA-48, §5.4: CSI, parameters, a final octet. SS3 and the Meta key are additions of terminals.
  private mutating func sequence() -> (count: Int, key: Key?)? {
    guard pending.count > 1 else { return nil }
    switch pending[1] {
    case UInt8(ascii: "["):
      guard let end = pending.dropFirst(2).firstIndex(where: { 0x40...0x7E ~= $0 }) else { return nil }
      let name = String(decoding: pending[2...end], as: UTF8.self)
      if name == "200~" { isPasting = true }
      return (end + 1, Self.sequences[name])
    case UInt8(ascii: "O"):
      guard pending.count > 2 else { return nil }
      return (3, Self.sequences[String(decoding: [pending[2]], as: UTF8.self)])
    case 0x1B: return (1, nil)
    case UInt8(ascii: "b"): return (2, .wordLeft)
    case UInt8(ascii: "f"): return (2, .wordRight)
    case 0x7F: return (2, .killWord)
    default: return (2, nil)
    }
  }
  private static let controls: [UInt8: Key] = [
    0x01: .home, 0x02: .left, 0x03: .interrupt, 0x04: .endOfInput, 0x05: .end, 0x06: .right, 0x08: .backspace,
    0x09: .tab, 0x0A: .enter, 0x0B: .killToEnd, 0x0C: .clear, 0x0D: .enter, 0x0E: .down, 0x10: .up, 0x15: .killToStart,
    0x17: .killWord, 0x19: .yank, 0x1A: .suspend, 0x7F: .backspace,
  ]
  private static let sequences: [String: Key] = [
    "A": .up, "B": .down, "C": .right, "D": .left, "H": .home, "F": .end, "1~": .home, "7~": .home, "4~": .end,
    "8~": .end, "3~": .delete, "1;5C": .wordRight, "1;3C": .wordRight, "1;5D": .wordLeft, "1;3D": .wordLeft,
  ]
}
