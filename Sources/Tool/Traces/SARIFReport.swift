import BindruneTrace
import BindruneWire

/// A report in SARIF 2.1.0, which forges show beside the lines of a file. A trace has no lines: a finding is placed in
/// the text that `bindrune trace show` writes of it, a line for each record, in a file of the trace's name and `.txt`.
struct SARIFReport {
  private var file: ReportFile
  private var isFirst = true
  private var errors: [JSONLine] = []

  /// `rules` are those that were selected.
  init(_ path: String, _ rules: [CheckRule]) throws(Failure) {
    file = try ReportFile(path, option: "--sarif")
    var driver = JSONLine()
    driver.add("name", "bindrune trace check")
    driver.add("rules", rules.map(Self.descriptor))
    var tool = JSONLine()
    tool.add("driver", driver)
    try file.write(
      "{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\",\"runs\":[{\"tool\":\(tool),"
        + "\"results\":[")
  }
  private static func message(_ text: String) -> JSONLine {
    var message = JSONLine()
    message.add("text", text)
    return message
  }
  private static func descriptor(_ rule: CheckRule) -> JSONLine {
    var object = JSONLine()
    object.add("id", rule.id)
    object.add("shortDescription", message(rule.sentence))
    object.add("fullDescription", message("\(rule.sentence) \(rule.section)"))
    return object
  }

  mutating func add(_ result: CheckResult) throws(Failure) {
    var counts: [CheckRule: Int] = [:]
    for finding in result.findings {
      counts[finding.rule, default: 0] += 1
      guard counts[finding.rule, default: 0] <= CheckOutput.mostOfRule else { continue }
      try file.write((isFirst ? "\n" : ",\n") + "\(Self.object(finding, result.path))")
      isFirst = false
    }
    if let error = result.error {
      var notification = JSONLine()
      notification.add("level", "error")
      notification.add("message", Self.message(error))
      errors.append(notification)
    }
  }
  private static func object(_ finding: CheckFinding, _ path: String) -> JSONLine {
    var artifact = JSONLine(), region = JSONLine(), physical = JSONLine(), location = JSONLine(), prints = JSONLine()
    artifact.add("uri", uri(path + ".txt"))
    region.add("startLine", finding.number)
    physical.add("artifactLocation", artifact)
    physical.add("region", region)
    location.add("physicalLocation", physical)
    prints.add("findingID/v1", finding.id)
    var object = JSONLine()
    object.add("ruleId", finding.rule.id)
    object.add("level", "error")
    object.add(
      "message",
      message("\(finding.party.rawValue): \(finding.seen); allowed: \(finding.allowed) (\(finding.rule.section))"))
    object.add("locations", [location])
    object.add("partialFingerprints", prints)
    return object
  }
  /// RFC 3986: a relative reference, whose first segment has no colon.
  private static func uri(_ path: String) -> String {
    var text = ""
    for octet in path.utf8 {
      switch octet {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"), UInt8(ascii: "/"):
        text.unicodeScalars.append(Unicode.Scalar(octet))
      default: text += "%" + hexDigits(UInt64(octet), 2)
      }
    }
    return text
  }

  mutating func finish() throws(Failure) {
    var invocation = JSONLine()
    invocation.add("executionSuccessful", errors.isEmpty)
    invocation.add("toolExecutionNotifications", errors)
    try file.write("],\"invocations\":[\(invocation)]}]}\n")
    try file.finish()
  }
  mutating func close() { file.close() }
}
