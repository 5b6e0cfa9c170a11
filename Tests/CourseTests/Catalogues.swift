import Foundation
import TestSupport
import Testing

/// The documentation catalogue of one module, whose first page opens with a picture, the module's verbs and what is
/// supported.
///
/// What a page shows is not written by hand where it has a source. A comment above a block names it, and
/// `BINDRUNE_RECORD=1 swift test --filter CatalogueTests` rewrites the block:
///
/// | comment | block below it |
/// |---|---|
/// | `picture WORDS` | a drawing, as in the course: `Pictures` |
/// | `example` | Swift: the module's example in `Openings.swift`, with its imports |
/// | `output` | what that example has printed |
/// | `console` | commands after `$ `, and what they print |
/// | `diagram MACHINE` | the image of a machine's phase table |
/// | `moves MACHINE` | the same as a table |
///
/// Other drawings may name only what the sources declare.
struct Catalogue: CustomStringConvertible, Sendable {
  let module: String
  let folder: String
  var name: String { folder.components(separatedBy: "/").last ?? folder }
  var address: URL { Page.root.appending(path: "\(folder)/\(name).docc") }
  var page: URL { address.appending(path: "\(name).md") }
  var description: String { module }

  /// Each module of `Sources`.
  static func all() throws -> [Catalogue] {
    try ModuleMap().modules.map { Catalogue(module: $0.name, folder: $0.folder) }
  }
  /// Those that there are: `firstPage` fails for the others.
  static func present() throws -> [Catalogue] {
    try all().filter { FileManager.default.fileExists(atPath: $0.page.path) }
  }
}

/// A machine that a catalogue shows: by its table of transitions, or else by a record of what it does.
private let machines: [(file: String, title: String)] = [
  ("Transitions/advertising-set", "An advertising set"),
  ("Transitions/scanner", "Scanner"),
  ("Transitions/connections", "Connections"),
  ("Transitions/credit-channel", "A credit-based channel"),
  ("Machines/security-manager-initiator", "Security Manager, initiator"),
  ("Machines/security-manager-responder", "Security Manager, responder"),
]
private func diagram(_ name: String) throws -> StateDiagram {
  let machine = try #require(machines.first { $0.file.hasSuffix("/" + name) }, "no machine \(name)")
  let address = Page.root.appending(path: "Fixtures/\(machine.file).txt")
  return StateDiagram(title: machine.title, table: PhaseTable(try String(contentsOf: address, encoding: .utf8)))
}

@Suite("Catalogues", .hang) struct CatalogueTests {
  /// A module without a catalogue fails here: its first page is missing.
  @Test(arguments: try Catalogue.all()) func firstPage(_ catalogue: Catalogue) throws {
    let text = try String(contentsOf: catalogue.page, encoding: .utf8)
    let lines = text.components(separatedBy: "\n")
    let title = catalogue.isProgram ? "# " : "# ``\(catalogue.module)``"
    #expect(catalogue.isProgram ? lines[0].hasPrefix(title) : lines[0] == title)
    #expect(lines.dropFirst(2).first?.isEmpty == false, "the page has no abstract")

    // The picture is the first thing that is not prose; verbs with an example follow, and then what is supported.
    let isShown = { (line: String) in ["<!-- picture ", "<!-- diagram "].contains { line.hasPrefix($0) } }
    let first = lines.firstIndex {
      isShown($0) || $0.hasPrefix("```") || $0.hasPrefix("|") || $0.hasPrefix("## ") && $0 != "## Overview"
    }
    let picture = try #require(first)
    #expect(isShown(lines[picture]), "\(catalogue.name).md:\(picture + 1): the page does not open with its picture")
    let verbs = try #require(lines.firstIndex(of: "## Verbs"), "no verbs")
    let supported = try #require(lines.firstIndex { $0.hasPrefix("## Supported ") }, "no table of what is supported")
    #expect(picture < verbs && verbs < supported)
    #expect(lines[verbs..<supported].contains { $0.hasPrefix("|---") }, "no table of verbs")
    let isExample = { (line: String) in line == "<!-- example -->" || line == "<!-- console -->" }
    #expect(lines[..<supported].contains(where: isExample), "no example")
    #expect(lines[supported...].prefix(8).contains { $0.hasPrefix("|---") }, "no table of what is supported")
  }

  @Test func pagesAreWhatTheirSourcesSay() throws {
    for catalogue in try Catalogue.present() {
      for page in try catalogue.pages() {
        let text = try String(contentsOf: page, encoding: .utf8)
        var composer = CataloguePage(text, of: catalogue)
        try compare(try composer.compose(), with: page)
      }
    }
  }

  /// The images of the phase tables, for light and dark pages, in the catalogues whose pages show them.
  @Test func diagrams() throws {
    var shown: Set<String> = []
    for catalogue in try Catalogue.present() {
      for page in try catalogue.pages() {
        for line in try String(contentsOf: page, encoding: .utf8).components(separatedBy: "\n") {
          guard line.hasPrefix("<!-- diagram ") else { continue }
          let file = String(line.dropFirst(13).dropLast(4)), diagram = try diagram(file)
          shown.insert(file)
          try compare(diagram.svg(isDark: false), with: catalogue.address.appending(path: "\(file).svg"))
          try compare(diagram.svg(isDark: true), with: catalogue.address.appending(path: "\(file)~dark.svg"))
        }
      }
    }
    #expect(Set(machines.map { $0.file.components(separatedBy: "/")[1] }) == shown)
    let transitions = Page.root.appending(path: "Fixtures/Transitions").path
    for file in try FileManager.default.contentsOfDirectory(atPath: transitions) {
      #expect(shown.contains(file.replacingOccurrences(of: ".txt", with: "")), "no page shows \(file)")
    }
  }

  /// Something leads to every phase that a diagram shows, but for the first, and the table has each phase.
  @Test func everyPhaseIsReached() throws {
    for machine in machines {
      let table = try diagram(machine.file.components(separatedBy: "/")[1]).table
      #expect(table.untried.isEmpty, "\(machine.file)")
      let reached = Set(table.moves.map(\.to) + table.common.map(\.to))
      for phase in table.phases.dropFirst() { #expect(reached.contains(phase), "\(machine.file): \(phase)") }
    }
  }

  /// A § on a first page stands in a Swift source too, where the code that follows it is.
  @Test func sectionsAreThoseOfTheCode() throws {
    let cited = try Sources.sections()
    for catalogue in try Catalogue.present() {
      for found in Sources.sections(of: try String(contentsOf: catalogue.page, encoding: .utf8)) {
        let isCited = cited.contains(found)
        #expect(isCited, "\(catalogue.name).md cites \(found), and no source does")
      }
    }
  }

  /// A drawing by hand names only what the sources declare.
  @Test func drawingsNameWhatExists() throws {
    let known = try Sources.words()
    // The blocks of the programs' pages are sessions of a shell.
    for catalogue in try Catalogue.present() where !catalogue.isProgram {
      let lines = try String(contentsOf: catalogue.page, encoding: .utf8).components(separatedBy: "\n")
      // The fence of the block in which a line stands; `drawing` has no language and no source.
      var fence: String?
      let drawing = "```"
      for (above, line) in zip([""] + lines, lines) {
        if line.hasPrefix(drawing) {
          fence = fence == nil ? line + (above.hasPrefix("<!-- ") ? above : "") : nil
          continue
        }
        guard fence == drawing else { continue }
        for word in line.split(whereSeparator: { !$0.isLetter && !$0.isNumber }) {
          // `HCILayer`, `nextPDU`: names of the code, and no others, have a capital inside after a small letter.
          guard zip(word, word.dropFirst()).contains(where: { $0.isLowercase && $1.isUppercase }) else { continue }
          let isKnown = known.contains(String(word))
          #expect(isKnown, "\(catalogue.name).md draws \(word), which nothing declares")
        }
      }
    }
  }
}

extension Catalogue {
  /// A program has no interface for other code.
  var isProgram: Bool { ["BindruneTool", "BindruneDaemon"].contains(module) }
  /// The pages that may have blocks with sources: not the course, which has a test of its own.
  func pages() throws -> [URL] {
    try FileManager.default.contentsOfDirectory(at: address, includingPropertiesForKeys: nil)
      .filter { $0.pathExtension == "md" }.sorted { $0.path < $1.path }
  }
}

/// What the Swift sources of this package say.
private enum Sources {
  /// With the examples, which drawings name too.
  private static func texts() throws -> [String] {
    try ["Sources", "Examples"].flatMap { name in
      let folder = Page.root.appending(path: name)
      return try FileManager.default.subpathsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".swift") }.map {
        try String(contentsOf: folder.appending(path: $0), encoding: .utf8)
      }
    }
  }
  static func words() throws -> Set<String> {
    var words: Set<String> = []
    for text in try texts() {
      for word in text.utf8.split(whereSeparator: {
        !($0 >= 0x61 && $0 <= 0x7A || $0 >= 0x41 && $0 <= 0x5A || $0 >= 0x30 && $0 <= 0x39)
      }) {
        words.insert(String(Substring(word)))
      }
    }
    return words
  }
  static func sections() throws -> Set<String> { try Set(texts().flatMap(sections)) }
  /// `Vol 3, Part F, §3.4.2 and §3.4.3` are two; the head of a table's column may name the part. A part holds for a
  /// paragraph.
  static func sections(of text: String) -> [String] {
    var found: [String] = [], part = ""
    for match in text.matches(of: #/Vol \d,\sPart [A-Z]|§\d+(?:\.\d+)*|\n\n/#) {
      if match.0.hasPrefix("§") {
        if !part.isEmpty { found.append("\(part), \(match.0)") }
      } else {
        part = match.0.hasPrefix("Vol") ? match.0.split(separator: "\n").joined(separator: " ") : ""
      }
    }
    return found
  }
}

/// Writes a page of a catalogue anew: its prose, with every block that has a source from there.
private struct CataloguePage {
  private var source: ArraySlice<String>
  private let catalogue: Catalogue
  private var output: String?

  init(_ text: String, of catalogue: Catalogue) {
    source = text.components(separatedBy: "\n")[...]
    self.catalogue = catalogue
  }

  mutating func compose() throws -> String {
    var result: [String] = []
    while let line = source.popFirst() {
      result.append(line)
      guard line.hasPrefix("<!-- "), line.hasSuffix(" -->") else { continue }
      let words = line.dropFirst(5).dropLast(4).split(separator: " ", maxSplits: 1).map(String.init)
      let object = words.count > 1 ? words[1] : ""
      switch words[0] {
      case "picture": result += try block("", Pictures.picture(object))
      case "example": result += try block("swift", example())
      case "output":
        let text = try #require(output, "no example above this output")
        result += try block("text", text.components(separatedBy: "\n").dropLast())
      case "console": result += try console()
      case "diagram":
        dropLines { !$0.isEmpty }
        let diagram = try diagram(object)
        result.append("![\(diagram.alternative)](\(object).svg)")
      case "moves":
        dropLines { !$0.isEmpty }
        result += try diagram(object).table.rows
      case "Scripts/programs", "to": break  // that script checks its table itself
      case "table": break  // ProtocolTests compare these with the messages
      default: Issue.record("\(catalogue.name): an unknown comment: \(line)")
      }
    }
    return result.joined(separator: "\n")
  }

  private mutating func dropLines(while isDropped: (String) -> Bool) {
    while let line = source.first, isDropped(line) { source.removeFirst() }
  }
  /// The block that is there, which the new one replaces.
  private mutating func old() throws -> [String] {
    try #require(source.popFirst()?.hasPrefix("```") == true, "\(catalogue.name): no block below the comment")
    let end = try #require(source.firstIndex { $0 == "```" }, "a block without an end")
    let lines = Array(source[..<end])
    source = source[end...].dropFirst()
    return lines
  }
  private mutating func block(_ language: String, _ lines: [String]) throws -> [String] {
    _ = try old()
    for line in lines { #expect(line.count <= 120, "too wide for a page: \(line)") }
    return ["```" + language] + lines + ["```"]
  }
  private mutating func console() throws -> [String] {
    let shell = try CourseShell()
    defer { shell.remove() }
    var lines: [String] = []
    for command in try old() where command.hasPrefix("$ ") {
      lines.append(command)
      lines += try shell.run(String(command.dropFirst(2)))
    }
    return ["```console"] + lines + ["```"]
  }
  private mutating func example() throws -> [String] {
    let opening = try #require(openings[catalogue.module], "no example of \(catalogue.module)")
    let page = Page()
    if let run = opening {
      try Page.$current.withValue(page) { try run() }
      page.shows()
      output = page.shown.first
    }
    return try Self.code(of: catalogue.module)
  }
  /// From `// example MODULE: import, import …` to `// end`.
  private static func code(of module: String) throws -> [String] {
    let folder = URL(filePath: #filePath).deletingLastPathComponent()
    for file in ["Openings.swift", "OpeningsOfPrograms.swift"] {
      let text = try String(contentsOf: folder.appending(path: file), encoding: .utf8)
      var lines = text.components(separatedBy: "\n")[...]
      guard let start = lines.firstIndex(where: { $0.contains("// example \(module): ") }) else { continue }
      let imports = lines[start].components(separatedBy: ": ")[1].components(separatedBy: ", ")
      for name in imports { #expect(lines.contains("import \(name)"), "\(file) does not import \(name)") }
      lines = lines[(start + 1)...]
      let end = try #require(lines.firstIndex { $0.hasSuffix("// end") }, "an example without an end")
      return imports.map { "import \($0)" } + [""] + Snippet.dedented(lines[..<end])
    }
    throw Misfit("no example of \(module)")
  }
}
