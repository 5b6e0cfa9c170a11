import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

/// A report in the XML of JUnit, which continuous integration reads: a suite for each file, a case for each rule. It is
/// written to a draft beside the file and gets the file's name when it is complete, so no reader sees a part of it.
struct JUnitReport {
  private let path: String
  private let draft: FilePath
  private let file: FileDescriptor
  private var isOpen = true

  /// Makes the draft, so that a path that cannot be written is known before anything is read.
  init(_ path: String) throws(Failure) {
    self.path = path
    draft = FilePath(text: "\(path).\(getpid())")
    do {
      // A device or a pipe must not be replaced.
      if let old = try? FileDescriptor.opened(
        FilePath(text: path), .readOnly, options: [.nonBlocking, .noControllingTerminal])
      {
        let isRegular = try old.closeAfter { try old.stat().type == .regular }
        if !isRegular { throw Errno.invalidArgument }
      }
      file = try FileDescriptor.opened(
        draft, .writeOnly, options: [.create, .exclusiveCreate, .noFollow],
        permissions: [.ownerReadWrite, .groupRead, .otherRead])
    } catch { throw Self.failure(path, error) }
    try write("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"bindrune trace check\">\n")
  }
  private static func failure(_ path: String, _ error: any Error) -> Failure {
    Failure("Cannot write the report \(path): \(error). --junit names a file in a folder that you may write.")
  }
  private func write(_ text: String) throws(Failure) {
    do { try file.writeAll(text.utf8) } catch { throw Self.failure(path, error) }
  }

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

  /// Gives the report its name.
  mutating func finish() throws(Failure) {
    try write("</testsuites>\n")
    do {
      isOpen = false
      try file.close()
      try draft.rename(to: FilePath(text: path))
    } catch {
      try? draft.remove()
      throw Self.failure(path, error)
    }
  }
  /// Removes a draft that was not finished.
  mutating func close() {
    guard isOpen else { return }
    isOpen = false
    try? file.close()
    try? draft.remove()
  }
}
