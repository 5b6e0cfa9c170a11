import Foundation
import TestSupport
import Testing

/// What the tool has besides the pages: their list, the course's files; and the page that lists the chapters.
@Suite("Course: in the tool", .hang) struct EmbeddingTests {
  private var names: [String] {
    get throws {
      try FileManager.default.contentsOfDirectory(atPath: Page.folder.path).map { String($0.dropLast(3)) }.sorted()
    }
  }

  @Test func listOfPages() throws {
    let chapters = try names.filter { $0.first?.isNumber == true }
    #expect(chapters.count == 10)
    let text = """
      // The chapters of Sources/GAP/GAP.docc/Course; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

      extension Course {
        static let pages = [
          \(chapters.map { Embedded($0).property }.joined(separator: ", ")),
        ]
      }

      """
    try compare(text, with: Page.root.appending(path: "Sources/Tool/Teaching/Course/Pages.swift"))
  }

  @Test func files() throws {
    var text = """
      // swift-format-ignore-file
      // Fixtures/Course; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

      extension Course {
        static let files = [

      """
    for name in try FileManager.default.contentsOfDirectory(atPath: Page.files.path).sorted() {
      let octets = [UInt8](try Data(contentsOf: Page.files.appending(path: name)))
      text += "    CourseFile(\"\(name)\", \"\"\"\n"
      for start in stride(from: 0, to: octets.count, by: 56) {
        text += "      " + octets[start..<min(start + 56, octets.count)].map { hex([$0]) }.joined() + "\n"
      }
      text += "      \"\"\"),\n"
    }
    text += "  ]\n}\n"
    try compare(text, with: Page.root.appending(path: "Sources/Tool/Teaching/Course/Files.swift"))
  }
  /// `Course.md` lists each chapter with its title and minutes.
  @Test func contents() throws {
    let address = Page.root.appending(path: "Sources/GAP/GAP.docc/Course.md")
    var rows: [String] = [], minutes = 0
    for name in try names where name.first?.isNumber == true {
      let page = try String(contentsOf: Page.folder.appending(path: name + ".md"), encoding: .utf8)
      let head = try #require(page.firstMatch(of: #/^# (\d+): (.+)\n\n\*\*(\d+) minutes\.\*\* (.+)\n/#), "\(name)")
      rows.append("| \(head.1) | [\(head.2)](Course/\(name).md) | \(head.3) |")
      minutes += Int(head.3) ?? 0
    }
    let old = try String(contentsOf: address, encoding: .utf8).components(separatedBy: "\n")
    let isRow = { (line: String) in line.hasPrefix("| ") && line.dropFirst(2).first?.isNumber == true }
    let place = try #require(old.firstIndex { $0.hasPrefix("|---") }) + 1
    var lines = old.filter { !isRow($0) }
    lines.insert(contentsOf: rows, at: place)
    lines = lines.map { line in
      line.replacing(#/Together they take \d+ hours and \d+ minutes/#) { _ in
        "Together they take \(minutes / 60) hours and \(minutes % 60) minutes"
      }
    }
    try compare(lines.joined(separator: "\n"), with: address)
  }
}
