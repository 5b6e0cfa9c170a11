import Foundation
import TestSupport
import Testing

@testable import BindruneTool

/// The pages and files that the tool has, which are links to those that people read; and the page that lists the
/// chapters.
@Suite("Course: in the tool", .hang) struct EmbeddingTests {
  private var names: [String] {
    get throws {
      try FileManager.default.contentsOfDirectory(atPath: Page.folder.path).map { String($0.dropLast(3)) }.sorted()
    }
  }

  @Test func pages() throws {
    let chapters = try names.filter { $0.first?.isNumber == true }
    #expect(chapters.count == 10)
    let text = { (name: String) in
      try String(contentsOf: Page.folder.appending(path: name + ".md"), encoding: .utf8)
    }
    #expect(try Course.chapters.map(\.markdown) == chapters.map(text))
    #expect(Course.chapters.map(\.number) == Array(1...10))
    #expect(try Course.solutionPage == text("Solutions"))
  }
  @Test func files() throws {
    let names = try FileManager.default.contentsOfDirectory(atPath: Page.files.path).sorted()
    #expect(Course.files.map(\.name) == names)
    for file in Course.files {
      #expect(try file.octets == [UInt8](Data(contentsOf: Page.files.appending(path: file.name))), "\(file.name)")
    }
  }
  /// `Course.md` lists each chapter with its title and minutes.
  @Test func contents() throws {
    let address = Page.folder.appending(path: "Course.md")
    var rows: [String] = [], minutes = 0
    for name in try names where name.first?.isNumber == true {
      let page = try String(contentsOf: Page.folder.appending(path: name + ".md"), encoding: .utf8)
      let head = try #require(page.firstMatch(of: #/^# (\d+): (.+)\n\n\*\*(\d+) minutes\.\*\* (.+)\n/#), "\(name)")
      rows.append("| \(head.1) | [\(head.2)](\(name).md) | \(head.3) |")
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
