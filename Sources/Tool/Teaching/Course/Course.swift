/// The course, as it is in this program: the pages of `Documentation/Course.docc` and the files of `Fixtures/Course`,
/// which the links in this folder name and the manifest embeds.
enum Course {
  struct Page {
    var number: Int
    var title: String
    var minutes: Int
    var markdown: String

    /// `# 4: ATT: one question at a time`, and two lines below it `**25 minutes.**`.
    init(_ markdown: String) {
      let lines = markdown.split(separator: "\n", maxSplits: 3, omittingEmptySubsequences: false)
      let heading = lines[0].dropFirst(2).split(separator: ":", maxSplits: 1)
      number = heading.first.flatMap { Int($0) } ?? 0
      title = heading.last.map { String($0.drop { $0 == " " }) } ?? ""
      minutes = lines.count > 2 ? Int(lines[2].drop { $0 == "*" }.prefix { $0.isNumber }) ?? 0 : 0
      self.markdown = markdown
    }
    /// The command lines that it shows.
    var commands: [String] {
      var commands: [String] = [], isConsole = false
      for line in markdown.split(separator: "\n", omittingEmptySubsequences: false) {
        if line.hasPrefix("```") { isConsole = line == "```console" }
        if isConsole, line.hasPrefix("$ ") { commands.append(String(line.dropFirst(2))) }
      }
      return commands
    }
  }
  static let chapters = [
    PackageResources.page01_md, PackageResources.page02_md, PackageResources.page03_md, PackageResources.page04_md,
    PackageResources.page05_md, PackageResources.page06_md, PackageResources.page07_md, PackageResources.page08_md,
    PackageResources.page09_md, PackageResources.page10_md,
  ].map { Page(String(decoding: $0, as: UTF8.self)) }

  /// Recordings, scripts and databases.
  static let files: [(name: String, octets: [UInt8])] = [
    ("belt.exchange", PackageResources.belt_exchange), ("belt.json", PackageResources.belt_json),
    ("name.exchange", PackageResources.name_exchange), ("name.json", PackageResources.name_json),
    ("sensor.btsnoop", PackageResources.sensor_btsnoop), ("wrong.exchange", PackageResources.wrong_exchange),
  ]

  static let solutionPage = String(decoding: PackageResources.solutions_md, as: UTF8.self)
  /// The part of the page of solutions about one chapter.
  static func solutions(of chapter: Int) -> String {
    var lines: [Substring] = [], isWanted = false
    for line in solutionPage.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.hasPrefix("## ") { isWanted = line.hasPrefix("## \(chapter):") }
      if isWanted { lines.append(line) }
    }
    return lines.joined(separator: "\n")
  }
}
