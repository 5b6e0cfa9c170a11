import BindruneWire
import BindruneHCI

/// A place where a trace breaks a rule.
public struct CheckFinding: Sendable {
  /// The record's number in the trace, from 1.
  public var number: Int
  /// Nanoseconds since 1970.
  public var time: Int64
  public var adapter: UInt16
  /// The connection handle; nil: the rule is not about a connection.
  public var connection: UInt16?
  public var rule: CheckRule
  /// Whose packet breaks it.
  public var party: Party
  public enum Party: String, Sendable { case host, controller, peer }
  /// What the trace has.
  public var seen: String
  /// What the rule allows there.
  public var allowed: String
}

/// What the checks have judged so far.
struct CheckReport {
  /// Findings that the owner has not taken; ``findingCount`` counts them all.
  var findings: [CheckFinding] = []
  var findingCount = 0
  /// How often each rule was judged, by its raw value.
  var judgements: [Int]
  private var enabled: [Bool]
  /// The packet that is judged.
  var number = 0
  var time: Int64 = 0
  var adapter: UInt16 = 0
  var connection: UInt16?

  init(_ rules: Set<CheckRule>) {
    judgements = Array(repeating: 0, count: CheckRule.allCases.count)
    enabled = CheckRule.allCases.map { rules.contains($0) }
  }

  /// Judges a rule: `holds` is its verdict, the texts describe a breach.
  @inline(__always) mutating func judge(
    _ rule: CheckRule, _ holds: Bool, by party: CheckFinding.Party, seen: @autoclosure () -> String,
    allowed: @autoclosure () -> String
  ) {
    judgements[Int(rule.rawValue)] &+= 1
    if !holds, keeps(rule) { findings.append(finding(rule, party, seen(), allowed())) }
  }
  /// The same for a breach that later packets may explain: it is added to `suspects` instead.
  mutating func suspect(
    _ rule: CheckRule, _ holds: Bool, by party: CheckFinding.Party, seen: @autoclosure () -> String,
    allowed: @autoclosure () -> String, _ suspects: inout [CheckFinding]
  ) {
    judgements[Int(rule.rawValue)] &+= 1
    guard !holds, enabled[Int(rule.rawValue)], suspects.count < Self.mostSuspects else { return }
    suspects.append(finding(rule, party, seen(), allowed()))
  }
  /// Of one server in a connection.
  private static var mostSuspects: Int { 16 }
  /// Adds breaches of earlier packets, in the order of the trace.
  mutating func add(_ suspects: [CheckFinding]) {
    findingCount += suspects.count
    guard !suspects.isEmpty, findings.count + suspects.count <= Checker.mostFindings else { return }
    findings += suspects
    findings.sort { $0.number < $1.number }
  }
  /// Counts a finding; true if it is kept, so that its texts are needed.
  private mutating func keeps(_ rule: CheckRule) -> Bool {
    guard enabled[Int(rule.rawValue)] else { return false }
    findingCount += 1
    return findings.count < Checker.mostFindings
  }
  private func finding(
    _ rule: CheckRule, _ party: CheckFinding.Party, _ seen: String, _ allowed: String
  ) -> CheckFinding {
    CheckFinding(
      number: number, time: time, adapter: adapter, connection: connection, rule: rule, party: party, seen: seen,
      allowed: allowed)
  }
}
