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
  /// The address of the device at the other end of the connection, or of the one that advertises; nil: not known.
  public var peer: DeviceAddress?
  public var rule: CheckRule
  /// Whose packet breaks it.
  public var party: Party
  public enum Party: String, Sendable { case host, controller, peer }
  /// What the trace has.
  public var seen: String
  /// What the rule allows there.
  public var allowed: String
  /// The kind of packet, and the attribute that it is about.
  var subject: CheckSubject
  var attribute: BluetoothUUID?

  /// The same for the same breach in another recording: rule, party, kind of packet and the attribute's UUID, as
  /// `gatt.notification-enabled/peer/ATT_HANDLE_VALUE_NTF/2A37`.
  public var id: String {
    ([rule.id, party.rawValue] + [subject.text, attribute.map { "\($0)" }].compactMap { $0 }).joined(separator: "/")
  }
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
  /// Breaches that the selection leaves out.
  private(set) var excluded: [CheckSelection.Exclusion: Int] = [:]
  /// The ids of all findings that count.
  private(set) var ids: Set<String> = []
  private var enabled: [Bool]
  private let selection: CheckSelection
  /// Findings that are not kept are looked at, too.
  private let looksAtAll: Bool
  /// The packet that is judged.
  var number = 0
  var time: Int64 = 0
  var adapter: UInt16 = 0
  var connection: UInt16?
  var peer: DeviceAddress?
  /// Each handle is a connection's: a packet alone does not show more.
  var believesHandles = false
  var subject = CheckSubject.none
  var attribute: BluetoothUUID?

  init(_ rules: Set<CheckRule>, _ selection: CheckSelection) {
    self.selection = selection
    looksAtAll = selection.needsIDs
    judgements = Array(repeating: 0, count: CheckRule.allCases.count)
    enabled = CheckRule.allCases.map { rules.contains($0) }
  }

  /// Judges a rule: `holds` is its verdict, the texts describe a breach.
  @inline(__always) mutating func judge(
    _ rule: CheckRule, _ holds: Bool, by party: CheckFinding.Party, seen: @autoclosure () -> String,
    allowed: @autoclosure () -> String
  ) {
    judgements[Int(rule.rawValue)] &+= 1
    if !holds, needsTexts(rule) { breach(finding(rule, party, seen(), allowed())) }
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
    if suspects.isEmpty { return }
    for suspect in suspects { breach(suspect) }
    findings.sort { $0.number < $1.number }
  }
  mutating func remark(_ kind: CheckRemark.Kind) {
    if let place = remarks.firstIndex(where: { $0.kind == kind }) {
      remarks[place].count += 1
    } else if remarks.count < Checker.mostRemarks {
      remarks.append(CheckRemark(kind: kind, number: number, count: 1))
    }
  }
  /// Whether a breach of the rule is more than a number. Counts it if not.
  private mutating func needsTexts(_ rule: CheckRule) -> Bool {
    guard enabled[Int(rule.rawValue)] else { return false }
    if findings.count < Checker.mostFindings || looksAtAll { return true }
    findingCount += 1
    return false
  }
  /// Counts a finding, and keeps it if there is room.
  private mutating func breach(_ finding: CheckFinding) {
    if let exclusion = selection.exclusion(of: finding) {
      excluded[exclusion, default: 0] += 1
      return
    }
    findingCount += 1
    if selection.collectsIDs, ids.count < Checker.mostFindings { ids.insert(finding.id) }
    if findings.count < Checker.mostFindings { findings.append(finding) }
  }
  private func finding(
    _ rule: CheckRule, _ party: CheckFinding.Party, _ seen: String, _ allowed: String
  ) -> CheckFinding {
    CheckFinding(
      number: number, time: time, adapter: adapter, connection: connection, peer: peer, rule: rule, party: party,
      seen: seen, allowed: allowed, subject: subject, attribute: attribute)
  }
}
