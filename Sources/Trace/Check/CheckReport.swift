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

/// Packets of a trace that no rule is about, because they are none of the Specification's.
public struct CheckRemark: Sendable {
  public enum Kind: Sendable, Equatable {
    /// ACL data of the controller with a connection handle that no connection has: what its manufacturer logs.
    case vendorData(handle: UInt16)
    /// Packets of a type that HCI does not have.
    case packetType(UInt8)
  }
  public var kind: Kind
  /// The first record, from 1.
  public var number: Int
  /// How many records.
  public var count: Int

  public var sentence: String {
    let packets = count == 1 ? "1 packet" : "\(count) packets"
    return switch kind {
    case .vendorData(let handle):
      "\(packets) of ACL data on handle \(code(handle, 4)), which no connection has: the controller's own data, not judged"
    case .packetType(let type): "\(packets) of type \(code(type)), which HCI does not have: not judged"
    }
  }
}

/// What the checks have judged so far.
struct CheckReport {
  /// Findings that the owner has not taken; ``findingCount`` counts them all.
  var findings: [CheckFinding] = []
  var findingCount = 0
  private(set) var remarks: [CheckRemark] = []
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
  mutating func remark(_ kind: CheckRemark.Kind) {
    if let place = remarks.firstIndex(where: { $0.kind == kind }) {
      remarks[place].count += 1
    } else if remarks.count < Checker.mostRemarks {
      remarks.append(CheckRemark(kind: kind, number: number, count: 1))
    }
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
