import BindruneTrace

/// A report in the XML of JUnit, which continuous integration reads: a suite for each file, a case for each rule.
struct JUnitReport {
  private var file: ReportFile

  init(_ path: String) throws(Failure) {
    file = try ReportFile(path, option: "--junit")
    try write("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"bindrune trace check\">\n")
  }
  private func write(_ text: String) throws(Failure) { try file.write(text) }

  /// Adds the suite of a file. `rules` are those that were selected.
  func add(_ result: CheckResult, _ rules: [CheckRule]) throws(Failure) {
    let findings = Dictionary(grouping: result.findings, by: \.rule)
    let skipped = rules.count { result.judgements[$0] == nil }
    try write(
      "<testsuite name=\"\(xml(result.path))\" tests=\"\(rules.count + (result.error == nil ? 0 : 1))\""
        + " failures=\"\(findings.count)\" errors=\"\(result.error == nil ? 0 : 1)\" skipped=\"\(skipped)\">\n")
    if let error = result.error {
      try write("<testcase classname=\"trace\" name=\"read\"><error message=\"\(xml(error))\"/></testcase>\n")
    }
    for rule in rules {
      let start = "<testcase classname=\"\(rule.area.rawValue)\" name=\"\(xml(rule.id))\""
      if let broken = findings[rule] {
        let message = "\(rule.sentence) (\(rule.section))"
        try write("\(start)><failure message=\"\(xml(message))\">\(xml(text(broken)))</failure></testcase>\n")
      } else if result.judgements[rule] == nil {
        try write("\(start)><skipped/></testcase>\n")
      } else {
        try write("\(start)/>\n")
      }
    }
    try write("</testsuite>\n")
  }
  /// The findings of a rule, a line each, as many as the text shows.
  private func text(_ findings: [CheckFinding]) -> String {
    var lines = findings.prefix(CheckOutput.mostOfRule).map { finding in
      var place = "frame \(finding.number)"
      if let connection = finding.connection { place += ", link \(CheckOutput.code(connection))" }
      return "\(place), \(finding.party.rawValue): \(finding.seen); allowed: \(finding.allowed)"
    }
    let more = findings.count - lines.count
    if more > 0 { lines.append(counted(more, "further finding")) }
    return lines.joined(separator: "\n")
  }
  private func xml(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "&": result += "&amp;"
      case "\"": result += "&quot;"
      case "\n": result += "&#10;"
      case "\t": result += "&#9;"
      // XML 1.0, §2.2, has no such characters, not even as references.
      case "\0"..." ", "\u{FFFE}", "\u{FFFF}": result += scalar == " " ? " " : "\u{FFFD}"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  mutating func finish() throws(Failure) {
    try write("</testsuites>\n")
    try file.finish()
  }
  mutating func close() { file.close() }
}
