import BindruneCapture
import BindruneToolbox
import BindruneWire

/// What a look at both traces shows: the scrubbed one is to be read again from its file.
public struct ScrubProof: Sendable {
  /// Exceptions of one kind that are kept; further ones are only counted.
  public static var mostExceptions: Int { 1_000 }
  /// Records whose length, kind, time, direction, opcode or event code differ.
  public internal(set) var changedRecords: [Int] = []
  /// Findings of the checker that only one of the traces has: `record 7 att.mtu`.
  public internal(set) var changedFindings: [String] = []
  /// Records with a private address that one of the keys resolved and its replacement does not, or the reverse; and
  /// with an address that has two replacements.
  public internal(set) var changedIdentities: [Int] = []
  /// Private addresses that resolve in both.
  public internal(set) var resolved = 0
  /// Records that still hold an original, or what nothing declares, and which.
  public internal(set) var remaining: [(number: Int, what: String)] = []
  /// False if one of the traces ended before the other: whoever reads them says so.
  public var isWhole = true
  public var holds: Bool {
    isWhole && changedRecords.isEmpty && changedFindings.isEmpty && changedIdentities.isEmpty && remaining.isEmpty
  }

  /// Compares traces in memory. `scrubbed` has the same records in the same order.
  public init(_ original: CapturedTrace, _ scrubbed: CapturedTrace, _ report: ScrubReport) {
    var prover = ScrubProver(report)
    for (one, other) in zip(original.records, scrubbed.records) {
      let (a, b) = (original.octets(of: one), scrubbed.octets(of: other))
      prover.receive(one, a.span, other, b.span)
    }
    let counts = [original.records.count, scrubbed.records.count].sorted()
    self = prover.proof()
    changedRecords += counts[0] + 1..<counts[1] + 1
  }
  init() {}
}

/// # ScrubProver
/// **Overview**: the third pass of a ``TraceScrubber``: reads both traces side by side, and compares them place by
/// place. It looks for fields and findings anew and trusts nothing of the second pass but what replaces an original.
public struct ScrubProver: ~Copyable {
  private var found = ScrubProof()
  private let report: ScrubReport
  private var pass: DissectingSink<ScrubSurvey>
  /// The new octets of the records that wait in the survey.
  private var scrubbed: [[UInt8]] = []
  private var base = 0
  private var checker = DissectingSink(Checker()), other = DissectingSink(Checker())
  /// Findings of the original, less those of the scrubbed trace: both come with the same record.
  private var findings: [String: Int] = [:]
  /// What was seen in the place of an address, and whether a key resolves it.
  private var addresses: [UInt64: (new: UInt64, resolves: Bool, isEqual: Bool)] = [:]
  private let keys: [(AES128, AES128)]

  public init(_ report: ScrubReport) {
    self.report = report
    pass = DissectingSink(ScrubSurvey(report.plan.scrubber))
    keys = report.plan.replacements.identities.map { ($0.key, $0.newKey) }
  }

  /// A record, and the one in its place. Both are numbered as in the scrubbed trace.
  public mutating func receive(
    _ original: CaptureRecord, _ bytes: Span<UInt8>, _ new: CaptureRecord, _ newBytes: Span<UInt8>
  ) {
    var original = original
    original.number = new.number
    compare(original, bytes, new, newBytes)
    checker.receive(original, bytes)
    other.receive(new, newBytes)
    compareFindings()
    pass.receive(original, bytes)
    scrubbed.append(newBytes.array)
    pass.sink.settle()
    compareFields()
  }
  /// After the last record.
  public consuming func proof() -> ScrubProof {
    checker.pause()
    other.pause()
    compareFindings()
    pass.sink.end()
    compareFields()
    found.changedFindings = findings.filter { $0.value != 0 }.keys.sorted()
    return found
  }

  private mutating func compare(
    _ one: CaptureRecord, _ bytes: Span<UInt8>, _ new: CaptureRecord, _ newBytes: Span<UInt8>
  ) {
    let head = ScrubEntry.headerCount(of: bytes.extracting(first: 1).array, one.content)
    // The file has microseconds.
    var isSame =
      one.content == new.content && bytes.count == newBytes.count && one.originalCount == new.originalCount
      && one.direction == new.direction && one.time / 1_000 == new.time / 1_000 && one.adapter == new.adapter
    for index in 0..<min(head, bytes.count) where isSame { isSame = bytes[index] == newBytes[index] }
    if !isSame, found.changedRecords.count < ScrubProof.mostExceptions { found.changedRecords.append(one.number) }
  }
  private mutating func compareFindings() {
    if checker.sink.findings.isEmpty, other.sink.findings.isEmpty { return }
    for (found, step) in [(checker.sink.takeFindings(), 1), (other.sink.takeFindings(), -1)] {
      for finding in found {
        let text = "record \(finding.number) \(finding.rule.id) \(finding.party.rawValue)"
        let count = findings[text, default: 0] + step
        findings[text] = count == 0 ? nil : count
      }
    }
  }

  private mutating func remains(_ record: Int, _ what: String) {
    guard found.remaining.count < ScrubProof.mostExceptions else { return }
    found.remaining.append((record + 1, what))
  }
  private mutating func compareFields() {
    for field in pass.sink.takeFields() {
      let place = field.place
      guard place.pieces.allSatisfy({ scrubbed[$0.record - base].count >= $0.range.upperBound }) else { continue }
      let new = place.pieces.flatMap { scrubbed[$0.record - base][$0.range] }
      let old = pass.sink.octets(of: place)
      switch field.kind {
      case .open:
        pass.sink.change(place) { entry, index, _ in entry.marks[index] = .open }
        continue
      case .zero: if new.contains(where: { $0 != 0 }) { remains(place.first.record, field.label.description) }
      case .text:
        if new.contains(where: { $0 != 0 && $0 != UInt8(ascii: "x") }) {
          remains(place.first.record, field.label.description)
        }
      case .replace(.address):
        if let before = address(old), let after = address(new) { compare(before, after, place.first.record) }
      // Zeros stand for no value, a debug key is everybody's, and what follows a prefix may begin in its middle.
      case .replace(let kind) where [.key, .name, .pairingRandom, .keyIdentifier, .confirm].contains(kind):
        let isPlain = old.allSatisfy { $0 == 0 || $0 == 0xFF }
        if new == old, !isPlain, old.count > 2 { remains(place.first.record, kind.name) }
      case .replace: break
      }
      pass.sink.change(place) { entry, index, _ in entry.marks[index] = .done }
    }
    for place in pass.sink.takeScattered() {
      var marks: [ScrubEntry.Mark] = []
      pass.sink.change(place) { entry, index, _ in marks.append(entry.marks[index]) }
      let new = place.pieces.flatMap { scrubbed[$0.record - base][$0.range] }
      search(new, pass.sink.octets(of: place), marks, place.first.record)
    }
    let released = pass.sink.release()
    for (index, entry) in released.enumerated() { search(scrubbed[index], entry.octets, entry.marks, base + index) }
    scrubbed.removeFirst(released.count)
    base += released.count
  }
  /// Originals that stand where they stood.
  private mutating func search(_ new: [UInt8], _ old: [UInt8], _ marks: [ScrubEntry.Mark], _ record: Int) {
    if report.plan.search.isEmpty || new.count != old.count { return }
    var strays: [String] = []
    report.plan.search.replace(
      in: new, hasOpen: marks.contains(.open), isOpen: { marks[$0] == .open }
    ) { _, _ in
    } count: { range, what in
      let isKept = range.contains { marks[$0] == .open || marks[$0] == .declared }
      let isOwn = isKept && range.allSatisfy { new[$0] == old[$0] }
      if isOwn { strays.append(what.rawValue) }
    }
    for what in strays { remains(record, what) }
  }

  private func resolve(_ value: UInt64, isNew: Bool) -> Int? {
    guard DeviceAddress(value).randomKind == .resolvablePrivate else { return nil }
    return keys.firstIndex {
      ah(isNew ? $0.1 : $0.0, UInt32(truncatingIfNeeded: value >> 24)) == UInt32(truncatingIfNeeded: value & 0xFF_FFFF)
    }
  }
  private mutating func compare(_ before: UInt64, _ after: UInt64, _ record: Int) {
    if addresses[before] == nil {
      // A public address may look private: only what was replaced as private counts.
      let (first, second) = (resolve(before, isNew: false), resolve(after, isNew: true))
      addresses[before] = (after, first != nil && first == second, first == second)
    }
    guard let known = addresses[before] else { return }
    if known.resolves { found.resolved += 1 }
    if !known.isEqual || known.new != after, found.changedIdentities.count < ScrubProof.mostExceptions {
      found.changedIdentities.append(record + 1)
    }
    if before == after, ScrubSearch.isDistinctive(before) { remains(record, "addresses") }
  }
}
