import BindruneWire
import Testing

@Suite struct PrintableTextTests {
  @Test(arguments: [
    ("Belt \"1\" \\ ß 寝室 한글 e\u{301}", "Belt \"1\" \\ ß 寝室 한글 e\u{301}"),
    ("\0\u{1B}[2J\u{7F}\u{9B}31m", "\\u{0}\\u{1B}[2J\\u{7F}\\u{9B}31m"),
    ("a\r\n\tb\u{85}c\u{2028}d\u{2029}e", "a\\r\\n\\tb\\u{85}c\\u{2028}d\\u{2029}e"),
    (
      "\u{E000}\u{F0000}\u{FFFE}\u{378}\u{AD}\u{FEFF}\u{200B}",
      "\\u{E000}\\u{F0000}\\u{FFFE}\\u{378}\\u{AD}\\u{FEFF}\\u{200B}"
    ),
    // Joined emoji, and a Persian word with its non-joiner.
    ("👩‍👩‍👧‍👦 ❤️ 🇩🇪 می\u{200C}خواهم", "👩‍👩‍👧‍👦 ❤️ 🇩🇪 می\u{200C}خواهم"),
    ("", ""),
  ])
  func text(text: String, shown: String) {
    #expect(text.printable() == shown)
    #expect(shown.printable() == shown)
  }

  /// Unicode Standard Annex #9, §2: all characters that control the direction of text.
  @Test func bidirectionalControls() {
    let controls: [UInt32] = [0x61C, 0x200E, 0x200F] + Array(0x202A...0x202E) + Array(0x2066...0x2069)
    for scalar in controls.compactMap(Unicode.Scalar.init) {
      #expect("a\(scalar)b".printable() == "a\\u{\(String(scalar.value, radix: 16, uppercase: true))}b")
    }
  }

  /// The text is one line without control characters, whatever octets a peer sends.
  @Test func octetsOfAPeer() {
    var chance = SystemRandomNumberGenerator()
    for _ in 0..<2000 {
      let octets = (0..<Int.random(in: 0...40, using: &chance)).map { _ in UInt8.random(in: 0...255, using: &chance) }
      let shown = String(decoding: octets, as: UTF8.self).printable()
      let isOneLine = shown.unicodeScalars.allSatisfy(\.isPrintable) && !shown.contains(where: \.isNewline)
      #expect(isOneLine, "\(octets)")
    }
    #expect(
      String(decoding: [0x41, 0xC3, 0x28, 0xED, 0xA0, 0x80] as [UInt8], as: UTF8.self).printable().contains("\u{FFFD}(")
    )
  }

  @Test func limit() {
    #expect("Thermometer".printable(limit: 6) == "Thermo…")
    #expect("Thermo".printable(limit: 6) == "Thermo")
    #expect("a\nb".dropFirst().printable(limit: 1) == "\\n…")
  }
}
