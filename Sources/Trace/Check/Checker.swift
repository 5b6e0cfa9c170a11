import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # Checker
/// **Overview**: judges a trace by the rules of the Specification, as a ``TraceSink``:
///
///     var checker = DissectingSink(Checker())
///     try file.read(into: &checker)
///     for finding in checker.sink.findings { print(finding.number, finding.rule.id, finding.seen) }
///
/// **Function**: it shares no machine with the host, which it must be able to judge: it follows adapters, connections,
/// requests and pairings on its own. It knows only what the trace shows: a trace that begins in the middle, or lacks
/// packets, leaves things open, and what is open breaks no rule. ``judgements(of:)`` tells how often a rule could be
/// judged.
///
/// Memory is bounded: by the adapters and connections that exist at a time, the attributes that a peer shows, and
/// ``mostFindings``.
public struct Checker: TraceSink {
  /// Findings that are kept at a time; further ones are only counted.
  public static var mostFindings: Int { 10_000 }
  /// Adapters, and connections of each, that are followed.
  static var mostAdapters: Int { 64 }
  static var mostLinks: Int { 512 }

  /// Kinds of ``remarks``.
  static var mostRemarks: Int { 64 }

  private var report: CheckReport
  private var adapters: [CheckAdapter] = []

  public init(rules: Set<CheckRule> = Set(CheckRule.allCases), selection: CheckSelection = CheckSelection()) {
    report = CheckReport(rules, selection)
  }

  /// What breaks a rule, in the order of the trace; the first ``mostFindings``.
  public var findings: [CheckFinding] { report.findings }
  /// All findings, also those beyond ``mostFindings``.
  public var findingCount: Int { report.findingCount }
  /// How many breaches the selection leaves out.
  public var excluded: [CheckSelection.Exclusion: Int] { report.excluded }
  /// The ids of the findings that count, the first ``mostFindings`` different ones, if the selection collects them.
  public var ids: Set<String> { report.ids }
  /// What no rule is about, each kind once.
  public var remarks: [CheckRemark] { report.remarks }
  /// How often the trace let a rule be judged.
  public func judgements(of rule: CheckRule) -> Int { report.judgements[Int(rule.rawValue)] }
  /// Returns the findings so far and forgets them, so that a long trace can be reported while it is read.
  public mutating func takeFindings() -> [CheckFinding] {
    defer { report.findings.removeAll(keepingCapacity: true) }
    return report.findings
  }

  var believesHandles: Bool {
    get { report.believesHandles }
    set { report.believesHandles = newValue }
  }

  // MARK: TraceSink

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    report.number = record.number
    report.time = record.time
    report.adapter = record.adapter
    report.connection = nil
    report.peer = nil
    report.attribute = nil
    report.subject = .none
    // What the missing packets changed is not known.
    if record.missingBefore > 0 { adapters.removeAll() }
    switch record.content {
    case .packet:
      guard let place = place(of: record.adapter) else { return }
      adapters[place].receive(record, bytes, &report)
    // An adapter that is opened or closed begins anew.
    case .monitor(.newIndex), .monitor(.deleteIndex), .monitor(.openIndex), .monitor(.closeIndex):
      for index in adapters.indices where adapters[index].number == record.adapter { adapters[index].end(&report) }
      adapters.removeAll { $0.number == record.adapter }
    case .monitor, .linkLayer, .note: break
    }
  }

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard record.content == .packet, let place = place(of: frame.adapter), let direction = frame.direction,
      adapters[place].knowsDirections(record)
    else { return }
    adapters[place].receive(frame, direction, payload, &report)
  }

  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    guard record.content == .packet, let place = place(of: frame.adapter), let direction = frame.direction,
      adapters[place].knowsDirections(record)
    else { return }
    adapters[place].enhancedPDU(frame, direction, pdu, &report)
  }

  public mutating func lost(_ handle: ConnectionHandle, of record: CaptureRecord) {
    guard let place = place(of: record.adapter) else { return }
    adapters[place].lost(handle.rawValue)
  }

  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    guard let place = place(of: record.adapter), let direction, adapters[place].knowsDirections(record) else { return }
    adapters[place].receive(violation, handle.rawValue, direction, &report)
  }

  /// The trace ends: breaches that later packets could have explained are findings.
  public mutating func pause() {
    for index in adapters.indices { adapters[index].end(&report) }
  }

  private mutating func place(of number: UInt16) -> Int? {
    if let place = adapters.firstIndex(where: { $0.number == number }) { return place }
    guard adapters.count < Self.mostAdapters else { return nil }
    adapters.append(CheckAdapter(number))
    return adapters.count - 1
  }
}

extension HCIDirection {
  /// Whose data goes in this direction of a connection.
  var sender: CheckFinding.Party { self == .fromHost ? .host : .peer }
}

/// `0x0A`.
func code(_ number: some UnsignedInteger, _ digits: Int = 2) -> String {
  "0x" + hexDigits(UInt64(truncatingIfNeeded: number), digits)
}
