import BindruneTrace
import BindruneWire

/// Prints what `bindrune trace check` finds, as text or as objects. Nothing is printed faster than it is read.
struct CheckOutput {
  /// Of all files.
  private(set) var findings = 0
  private var excluded: [CheckSelection.Exclusion: Int] = [:]
  private(set) var failures = 0
  private var files = 0, filesWithFindings = 0, records = 0, judgements: [CheckRule: Int] = [:]

  private let rules: [CheckRule]
  private let isJSON: Bool
  /// Of several files only those are told of which something is to say.
  private let isOneOfSeveral: Bool
  private let width = Console.isTerminal ? Screen.size.columns : nil
  private var text = ""

  init(_ rules: [CheckRule], isJSON: Bool, isOneOfSeveral: Bool = false) {
    self.rules = rules
    self.isJSON = isJSON
    self.isOneOfSeveral = isOneOfSeveral
  }

  mutating func print(_ result: CheckResult) {
    files += 1
    findings += result.findingCount
    filesWithFindings += result.findingCount > 0 ? 1 : 0
    failures += result.error == nil ? 0 : 1
    records += result.records
    excluded.merge(result.excluded, uniquingKeysWith: +)
    judgements.merge(result.judgements, uniquingKeysWith: +)
    if isJSON { printObjects(result) } else { printText(result) }
    flush()
    for warning in result.warnings { Console.warn(warning) }
    if let error = result.error { Console.error("Error: \(error)") }
  }

  /// Many findings are printed in blocks: a queue that is full would drop lines.
  private mutating func line(_ words: String) {
    text += words + "\n"
    if text.utf8.count > 60_000 { flush() }
  }
  private mutating func flush() {
    if text.isEmpty { return }
    Console.waitForReader()
    Console.line(String(text.dropLast()))
    text = ""
  }

  // MARK: Text

  /// Findings of a rule and file that are printed: one mistake often repeats with each packet.
  static let mostOfRule = 100

  private mutating func printText(_ result: CheckResult) {
    let name = result.path.printable()
    let isTold = result.story.hasTroubles || !result.findings.isEmpty || !isOneOfSeveral
    let story = isTold ? result.story.lines() : []
    if !result.findings.isEmpty || !story.isEmpty { line(Console.styled(name, .bold)) }
    for told in story { line(told) }
    var counts: [CheckRule: Int] = [:]
    for finding in result.findings {
      counts[finding.rule, default: 0] += 1
      if counts[finding.rule, default: 0] <= Self.mostOfRule { printText(finding) }
    }
    for rule in rules {
      let more = counts[rule, default: 0] - Self.mostOfRule
      if more > 0 { line(Console.styled("\(counted(more, "further finding")) of \(rule.id)", .dim)) }
    }
    let unkept = result.findingCount - result.findings.count
    if unkept > 0 { line(Console.styled("\(counted(unkept, "further finding")), of any rule", .dim)) }
    for remark in result.remarks {
      line(Console.styled("\(name): from frame \(remark.number) on, \(remark.sentence)", .dim))
    }
    // A file without a record has nothing to summarize but its error.
    if result.records == 0, result.error != nil { return }
    let summary =
      "\(name): \(counted(result.findingCount, "finding"))\(beside(result.excluded)); "
      + "\(counted(result.records, "record")); "
    line(styled(summary + judged(result.judgements), result.findingCount))
  }
  private mutating func printText(_ finding: CheckFinding) {
    var place = "frame \(finding.number)"
    if finding.adapter > 0, finding.adapter != .max { place += "  hci\(finding.adapter)" }
    if let connection = finding.connection { place += "  link \(code(connection))" }
    let head = "\(place)  \(Console.styled(finding.rule.id, .yellow))  \(finding.party.rawValue):"
    let breach = "\(finding.seen); allowed: \(finding.allowed)  (\(finding.rule.section))".printable()
    let headColumns = place.columns + finding.rule.id.columns + finding.party.rawValue.columns + 5
    guard let width, headColumns + 1 + breach.columns > width else { return line("\(head) \(breach)") }
    line(head)
    for piece in breach.wrapped(max(20, width - 6)) { line("    " + piece) }
  }
  /// After objects the sentence is no part of the output, so that outputs of several runs can be joined.
  mutating func printTotals() {
    var words = "\(counted(files, "file")): \(counted(findings, "finding"))"
    if findings > 0 { words += " in \(counted(filesWithFindings, "file"))" }
    words += beside(excluded)
    words += "; \(counted(records, "record")); \(judged(judgements))"
    if failures > 0 { words += "; \(counted(failures, "file")) could not be read to the end" }
    if isJSON { return Console.error(words) }
    line(styled(words, findings + failures))
    flush()
  }
  /// `, beside 3 known and 1 of other parties`.
  private func beside(_ excluded: [CheckSelection.Exclusion: Int]) -> String {
    let parts = CheckSelection.Exclusion.allCases.compactMap { reason -> String? in
      guard let count = excluded[reason] else { return nil }
      let words =
        switch reason {
        case .party: "of other parties"
        case .connection: "of other connections"
        case .ignored: "ignored"
        case .known: "known"
        }
      return "\(grouped(count)) \(words)"
    }
    return parts.isEmpty ? "" : ", beside " + parts.joined(separator: ", ")
  }
  private func judged(_ judgements: [CheckRule: Int]) -> String {
    let sum = judgements.values.reduce(0, +)
    return "\(judgements.count) of \(counted(rules.count, "rule")) judged"
      + (sum == 0 ? "" : " \(grouped(sum)) \(sum == 1 ? "time" : "times")")
  }
  private func styled(_ words: String, _ problems: Int) -> String {
    Console.styled(words, problems > 0 ? .red : .green)
  }

  // MARK: JSON

  private mutating func printObjects(_ result: CheckResult) {
    for finding in result.findings { line("\(Self.object(finding, result.path))") }
    var object = JSONLine()
    object.add("file", result.path)
    object.add("records", result.records)
    object.add("findings", result.findingCount)
    if !result.excluded.isEmpty {
      var excluded = JSONLine()
      for reason in CheckSelection.Exclusion.allCases where result.excluded[reason] != nil {
        excluded.add(reason.rawValue, result.excluded[reason])
      }
      object.add("excluded", excluded)
    }
    object.add("rulesJudged", result.judgements.count)
    object.add("judgements", result.judgements.values.reduce(0, +))
    object.add("stories", result.story.objects)
    if !result.story.troubles.isEmpty { object.add("troubles", result.story.troubles.map(StoryOutput.object)) }
    if !result.remarks.isEmpty {
      object.add("remarks", result.remarks.map { "from frame \($0.number) on, \($0.sentence)" })
    }
    if let error = result.error { object.add("error", error) }
    line("\(object)")
  }
  private static func object(_ finding: CheckFinding, _ path: String) -> JSONLine {
    var object = JSONLine()
    object.add("file", path)
    object.add("frame", finding.number)
    object.add("time", Double(finding.time) / 1_000_000_000)
    object.add("adapter", Int(finding.adapter))
    object.add("connection", finding.connection.map { code($0).lowercased() })
    object.add("peer", finding.peer?.text)
    object.add("id", finding.id)
    object.add("rule", finding.rule.id)
    object.add("section", finding.rule.section)
    object.add("party", finding.party.rawValue)
    object.add("seen", finding.seen)
    object.add("allowed", finding.allowed)
    return object
  }

  // MARK: The rules

  static func list(_ rules: [CheckRule], isJSON: Bool) {
    var output = CheckOutput(rules, isJSON: isJSON)
    let ids = rules.reduce(0) { max($0, $1.id.columns) }, sections = rules.reduce(0) { max($0, $1.section.columns) }
    let margin = ids + sections + 4
    for rule in rules {
      if isJSON {
        var object = JSONLine()
        object.add("id", rule.id)
        object.add("section", rule.section)
        object.add("sentence", rule.sentence)
        output.line("\(object)")
        continue
      }
      let left = Console.styled(rule.id.padded(ids), .yellow) + "  " + rule.section.padded(sections) + "  "
      // A narrow terminal breaks the lines itself.
      let pieces = output.width.flatMap { $0 < margin + 32 ? nil : rule.sentence.wrapped($0 - margin - 2) }
      for (index, piece) in (pieces ?? [rule.sentence]).enumerated() {
        output.line((index == 0 ? left : String(repeating: " ", count: margin)) + piece)
      }
    }
    output.flush()
  }

  /// `0x0040`.
  static func code(_ handle: UInt16) -> String { "0x" + hexDigits(UInt64(handle), 4) }
  private func code(_ handle: UInt16) -> String { Self.code(handle) }
}
