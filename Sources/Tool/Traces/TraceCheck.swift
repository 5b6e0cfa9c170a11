import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire

struct TraceCheck: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check",
    abstract: "Judge traces by the rules of the Specification.",
    discussion: """
      First it says what happened on each connection: how it began, what it did, who ended it, and, behind !, what went \
      wrong, which need not break a rule. Each finding names the record, the connection, the rule with its section, who breaks it, what the trace has and \
      what is allowed. What a trace does not show breaks no rule; the summary says how many rules could be judged. \
      A folder stands for the traces in it and below it. \
      Files are read side by side, and a bad one stops no other.

      A finding that does not count is only summed up: --party and --connection choose what counts, --ignore and \
      --baseline what is known. A finding's id, which --json prints, is its rule, party, kind of packet and attribute, \
      so that it is the same in a new recording.

      Status 0: no findings that count; 1: findings; 2: a file could not be read to its end, or a report could not be \
      written.

      Examples:
        bindrune trace check capture.btsnoop
        bindrune trace check traces/* --except ad --junit report.xml
        bindrune trace check captures/ --only att,smp.order --json > findings.ndjson
        bindrune trace check captures/ --write-baseline known.json
        bindrune trace check captures/ --baseline known.json --party host --sarif report.sarif
        bindrune trace check --rules
      """)

  @Argument(
    help: ArgumentHelp("The traces, and folders of traces; - is standard input.", valueName: "file"),
    completion: .file())
  var files: [String] = []
  @Option(
    help: ArgumentHelp("Only these rules or areas, as att.mtu or att; several with commas.", valueName: "id"),
    transform: RuleList.init(argument:))
  var only: [RuleList] = []
  @Option(
    help: ArgumentHelp("All but these rules or areas.", valueName: "id"), transform: RuleList.init(argument:))
  var except: [RuleList] = []
  @Flag(help: "Print the rules, and read nothing.")
  var rules = false
  @Flag(help: "Print one JSON object per finding, and one per file.")
  var json = false
  @Option(
    help: ArgumentHelp("Also write a report in JUnit's XML to this file.", valueName: "file"), completion: .file())
  var junit: String?
  @Option(
    help: ArgumentHelp(
      """
      Also write a report in SARIF to this file. It places a finding of capture.btsnoop in capture.btsnoop.txt, as \
      `bindrune trace show capture.btsnoop > capture.btsnoop.txt` writes it.
      """, valueName: "file"), completion: .file())
  var sarif: String?
  @Option(
    help: ArgumentHelp(
      "Only the breaches of this party count: host, controller, peer, or a device's address.", valueName: "party"),
    transform: CheckParty.init(argument:))
  var party: CheckParty?
  @Option(help: ArgumentHelp("Only findings of this connection handle count, as 0x0040.", valueName: "handle"))
  var connection: [Number16] = []
  @Option(help: ArgumentHelp("This finding does not count; also the beginning of its id.", valueName: "id"))
  var ignore: [String] = []
  @Option(
    help: ArgumentHelp("Only findings that are not in this file count.", valueName: "file"), completion: .file())
  var baseline: String?
  @Option(
    help: ArgumentHelp("Write the ids of all findings to this file, and end with status 0.", valueName: "file"),
    completion: .file())
  var writeBaseline: String?
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if selected.isEmpty { throw ValidationError("--only and --except leave no rule.") }
    if rules {
      if !files.isEmpty || junit != nil || sarif != nil || writeBaseline != nil {
        throw ValidationError("--rules reads nothing: give it alone.")
      }
      return
    }
    if baseline != nil, writeBaseline != nil {
      throw ValidationError("--write-baseline writes all findings: leave out --baseline.")
    }
    if let bad = ignore.first(where: { CheckBaseline.rule(of: $0) == nil }) {
      throw ValidationError(
        "\"\(bad.printable())\" begins with no rule's id: `bindrune trace check --rules` lists them.")
    }
    if files.isEmpty { throw ValidationError("No traces: name some, or - for standard input.") }
    if files.contains(TraceOptions.monitor) {
      throw ValidationError("check reads files: record \(TraceOptions.monitor) with `bindrune trace convert` first.")
    }
    if files.count(where: { $0 == "-" }) > 1 { throw ValidationError("Standard input can be read once: give one -.") }
  }

  /// In the order of the table.
  private var selected: [CheckRule] {
    let only = only.reduce(into: Set()) { $0.formUnion($1.rules) }
    let except = except.reduce(into: Set()) { $0.formUnion($1.rules) }
    return CheckRule.allCases.filter { (self.only.isEmpty || only.contains($0)) && !except.contains($0) }
  }

  func run() async throws {
    if rules { return CheckOutput.list(selected, isJSON: json) }
    Interruption.outputFailureStatus = TraceInputs.unreadable
    do {
      var selection = CheckSelection()
      if let baseline { selection.known = try CheckBaseline.read(baseline) }
      (selection.party, selection.peer) = (party?.party, party?.peer)
      selection.connections = Set(connection.map(\.value))
      selection.ignored = ignore
      selection.collectsIDs = writeBaseline != nil
      var report = try junit.map { path throws(Failure) in try JUnitReport(path) }
      defer { report?.close() }
      var codes = try sarif.map { path throws(Failure) in try SARIFReport(path, selected) }
      defer { codes?.close() }
      var known = try writeBaseline.map { path throws(Failure) in try ReportFile(path, option: "--write-baseline") }
      defer { known?.close() }
      var ids: Set<String> = []
      let rules = selected, options = options, inputs = try TraceInputs(files), counted = selection
      var output = CheckOutput(selected, isJSON: json, isOneOfSeveral: inputs.areSeveral)
      try await TraceBatch.read(inputs, weight: \.findings.count) { input, _, progress in
        CheckResult(input, rules, counted, options, progress)
      } receive: { result throws(Failure) in
        output.print(result)
        try report?.add(result, selected)
        try codes?.add(result)
        if known != nil { ids.formUnion(result.ids) }
      }
      try report?.finish()
      try codes?.finish()
      try known?.write(CheckBaseline.text(ids))
      try known?.finish()
      if inputs.areSeveral { output.printTotals() }
      if output.failures > 0 { throw ExitCode(TraceInputs.unreadable) }
      if output.findings > 0, writeBaseline == nil { throw ExitCode.failure }
    } catch let failure as Failure {
      // 1 stands for findings.
      Console.error("Error: \(failure)")
      throw ExitCode(TraceInputs.unreadable)
    }
  }
}

/// `att.mtu,smp`: rules, and areas that stand for all of theirs.
struct RuleList {
  var rules: Set<CheckRule> = []
  init(argument: String) throws {
    for word in argument.split(separator: ",", omittingEmptySubsequences: false) {
      let id = word.lowercased()
      let named = CheckRule.allCases.filter { $0.id == id || $0.area.rawValue == id }
      if named.isEmpty {
        throw ValidationError(
          "\"\(word.description.printable())\" is neither a rule nor an area: `bindrune trace check --rules` lists them."
        )
      }
      rules.formUnion(named)
    }
  }
}

/// What the check of one file has found.
struct CheckResult: Sendable {
  /// For people and programs: not escaped.
  var path: String
  /// The first ones; `findingCount` counts them all.
  var findings: [CheckFinding]
  var findingCount: Int
  /// Breaches that do not count, and the ids of those that do.
  var excluded: [CheckSelection.Exclusion: Int]
  var ids: Set<String>
  var records: Int
  var story: StoryOutput
  /// What no rule is about.
  var remarks: [CheckRemark]
  /// How often each of the selected rules was judged, if it was.
  var judgements: [CheckRule: Int]
  /// Octets that were skipped.
  var warnings: [String]
  /// Why the file could not be read to its end.
  var error: String?

  /// nil: the file is not a trace.
  init?(
    _ input: TraceInput, _ rules: [CheckRule], _ selection: CheckSelection, _ options: TraceOptions,
    _ progress: TraceProgress
  ) {
    let judge = Checker(rules: Set(rules), selection: selection)
    var sink = MeteredSink(PairedSink(judge, TraceStory()), progress), warnings: [String] = []
    do { try options.read(input, into: &sink, warn: { warnings.append($0) }) } catch is NotATrace {
      sink.end()
      return nil
    } catch { self.error = "\(error)" }
    if sink.isFromAir {
      warnings.append(
        "\(input.path): the trace was recorded on the air, and the rules judge HCI traffic: none applies.")
    }
    sink.end()
    let checker = sink.dissector.sink.first
    story = StoryOutput(sink.dissector.sink.second)
    path = input.name
    self.warnings = warnings
    records = sink.records
    findings = checker.findings
    remarks = checker.remarks
    findingCount = checker.findingCount
    excluded = checker.excluded
    ids = checker.ids
    judgements = [:]
    for rule in rules where checker.judgements(of: rule) > 0 { judgements[rule] = checker.judgements(of: rule) }
  }
}

/// `1,234,567`.
func grouped(_ number: Int) -> String {
  var digits = String(number.magnitude), groups: [String] = []
  while digits.utf8.count > 3 {
    groups.insert(String(digits.suffix(3)), at: 0)
    digits.removeLast(3)
  }
  return (number < 0 ? "-" : "") + ([digits] + groups).joined(separator: ",")
}
/// `1 finding`, `1,234 findings`, `no findings`.
func counted(_ number: Int, _ noun: String) -> String {
  (number == 0 ? "no" : grouped(number)) + " \(noun)" + (number == 1 ? "" : "s")
}
