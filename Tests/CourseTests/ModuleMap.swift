import Foundation

/// Which target imports which, from Package.swift, and the place of one module in it as a picture.
struct ModuleMap {
  /// The targets of `Sources` with Swift code, in the order of the manifest.
  private(set) var modules: [(name: String, folder: String)] = []
  /// Everything of this package that a module uses, directly or through others.
  private var below: [String: Set<String>] = [:]

  init() throws {
    let text = try String(contentsOf: Page.root.appending(path: "Package.swift"), encoding: .utf8)
    var direct: [String: [String]] = [:]
    for target in text.components(separatedBy: "arget(").dropFirst() {
      let words = target.components(separatedBy: "\"")
      guard let name = words.dropFirst().first else { continue }
      let folder = words.firstIndex { $0.hasSuffix("path: ") }.map { words[$0 + 1] } ?? "Sources/\(name)"
      guard folder.hasPrefix("Sources/"), try Self.hasSwift(folder) else { continue }
      modules.append((name, folder))
      let list = target.components(separatedBy: "settings").first?.components(separatedBy: "dependencies:").dropFirst()
      direct[name] = list?.first?.components(separatedBy: "path:")[0].components(separatedBy: "\"") ?? []
    }
    for (name, _) in modules {
      // A target stands behind those that it uses.
      let used = (direct[name] ?? []).filter { below[$0] != nil && $0 != name }
      below[name] = used.reduce(into: Set(used)) { $0.formUnion(below[$1] ?? []) }
    }
  }
  private static func hasSwift(_ folder: String) throws -> Bool {
    let address = Page.root.appending(path: folder)
    guard FileManager.default.fileExists(atPath: address.path) else { return false }
    return try FileManager.default.subpathsOfDirectory(atPath: address.path).contains { $0.hasSuffix(".swift") }
  }

  /// The modules that use this one, and those that it uses; without those that others of them use too.
  func neighbours(of module: String) -> (above: [String], below: [String]) {
    let users = modules.map(\.name).filter { below[$0]?.contains(module) == true }
    let used = modules.map(\.name).filter { below[module]?.contains($0) == true }
    return (
      users.filter { user in !users.contains { below[user]?.contains($0) == true } },
      used.filter { other in !used.contains { below[$0]?.contains(other) == true } }
    )
  }

  /// A box for the module, above it the boxes of those that use it, below it those of the modules that it uses.
  func picture(of module: String) -> [String] {
    let (users, used) = neighbours(of: module)
    let rows = [Row(users), Row([module], isHeavy: true), Row(used)], centre = (rows.map(\.width).max() ?? 0) / 2
    let placed = rows.map { $0.moved(by: centre - $0.width / 2) }
    let middle = placed[1].centres[0]
    var lines: [String] = []
    if !users.isEmpty { lines += placed[0].lines + [Self.bus(placed[0].centres, to: middle, isAbove: true)] }
    lines += placed[1].lines
    if !used.isEmpty { lines += [Self.bus(placed[2].centres, to: middle, isAbove: false)] + placed[2].lines }
    return lines
  }
  private struct Row {
    var lines = ["", "", ""]
    var centres: [Int] = []
    var width: Int { lines[0].count }
    init(_ names: [String], isHeavy: Bool = false) {
      let glyphs = Array(isHeavy ? "━┏┓┃┗┛" : "─┌┐│└┘")
      for name in names {
        if !centres.isEmpty { lines = lines.map { $0 + " " } }
        centres.append(width + (name.count + 4) / 2)
        let edge = String(repeating: glyphs[0], count: name.count + 2)
        let box = [
          "\(glyphs[1])\(edge)\(glyphs[2])", "\(glyphs[3]) \(name) \(glyphs[3])", "\(glyphs[4])\(edge)\(glyphs[5])",
        ]
        lines = zip(lines, box).map { $0 + $1 }
      }
    }
    func moved(by columns: Int) -> Row {
      var row = self
      row.lines = lines.map { String(repeating: " ", count: columns) + $0 }
      row.centres = centres.map { $0 + columns }
      return row
    }
  }
  /// The line that joins the boxes of a row with the module in the middle.
  private static func bus(_ centres: [Int], to middle: Int, isAbove: Bool) -> String {
    let ends = centres + [middle], first = ends.min() ?? 0, last = ends.max() ?? 0
    // By whether it goes up, down, left and right, in binary.
    let glyphs = Array(" ───│┌┐┬│└┘┴│├┤┼")
    var line = String(repeating: " ", count: first)
    for column in first...last {
      let toBox = centres.contains(column), toModule = column == middle
      let up = isAbove ? toBox : toModule, down = isAbove ? toModule : toBox
      line.append(glyphs[(up ? 8 : 0) + (down ? 4 : 0) + (column > first ? 2 : 0) + (column < last ? 1 : 0)])
    }
    return line
  }
}
