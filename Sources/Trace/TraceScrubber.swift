import BindruneCapture
import BindruneToolbox
import BindruneWire
import BindruneHCI

/// Replaces what identifies devices and people in a trace, and the keys of its links, so that it can be shared:
///
///     let scrubber = TraceScrubber(seed: 7)
///     let (shared, report) = scrubber.scrub(trace)
///     let proof = ScrubProof(trace, shared, report)
///
/// Every replacement has the length of its original, and an original has one replacement. A private address that a key
/// of the trace, or the caller's, resolves is resolved by the key's replacement. Times, handles, UUIDs, errors and
/// lengths stay.
public struct TraceScrubber: Sendable {
  /// Also replaces the values of characteristics, and manufacturer and service data.
  public var scrubsValues = false
  /// Identity Resolving Keys that the trace does not hold; most significant octet first as numbers.
  public var identities: [UInt128] = []
  private let seed: UInt128

  /// The same seed gives the same replacements. Who knows it can test guesses of originals: a shared seed is no secret.
  public init(seed: UInt128) { self.seed = seed }

  public func scrub(_ trace: CapturedTrace) -> (trace: CapturedTrace, report: ScrubReport) {
    var sink = DissectingSink(ScrubSurvey(trace, scrubsValues: scrubsValues))
    trace.read(into: &sink)
    let survey = sink.sink
    var work = Work(trace, survey, seed, identities)
    work.replaceSites()
    work.openCommitments()
    work.replaceStrays()
    return (trace.with(work.storage), work.report)
  }

  private struct Work {
    let trace: CapturedTrace
    let survey: ScrubSurvey
    var storage: [UInt8]
    var replacements: ScrubReplacements
    var report = ScrubReport()

    init(_ trace: CapturedTrace, _ survey: ScrubSurvey, _ seed: UInt128, _ identities: [UInt128]) {
      (self.trace, self.survey, storage) = (trace, survey, trace.storage)
      func octets(_ site: ScrubSite) -> [UInt8] { site.places.map { trace.storage[$0] } }
      let irks = survey.sites.filter { ScrubReport.identityLabels.contains($0.label) && $0.places.count == 16 }
      let addresses = survey.sites.compactMap { site -> (value: UInt64, isRandom: Bool?)? in
        guard case .address(let isRandom) = site.kind, let value = address(octets(site)) else { return nil }
        return (value, isRandom)
      }
      replacements = ScrubReplacements(
        seed: seed, identities: irks.map { UInt128(leastSignificantFirst: octets($0).span) } + identities,
        addresses: addresses)
    }

    mutating func replaceSites() {
      for site in survey.sites {
        let original = site.places.map { trace.storage[$0] }, new: [UInt8]
        switch site.kind {
        case .address:
          guard let value = address(original) else { continue }
          new = octets(of: replacements.address(value), like: original)
        case .key: new = replacements.key(original)
        case .keyIdentifier: new = replacements.identifier(original)
        case .name: new = replacements.name(original, after: site.prefix)
        case .value: new = replacements.value(original, after: site.prefix)
        case .publicKey: new = replacements.publicKey(original)
        case .pairingRandom, .confirm, .check, .signature: new = replacements.chance(original)
        case .opaque: new = [UInt8](repeating: 0, count: original.count)
        case .handle, .signalStrength: continue
        }
        if new != original { report.replaced[site.kind.name, default: 0] += 1 }
        for (place, octet) in zip(site.places, new) { storage[place] = octet }
      }
      let confirms = survey.sites.count { $0.kind == .confirm } - survey.commitments.count
      for (what, count) in [
        ("Confirm values whose commitment the trace does not open, or that need a TK", confirms),
        ("DHKey Check values", survey.sites.count { $0.kind == .check }),
        ("Authentication Signatures", survey.sites.count { $0.kind == .signature }),
        ("results of LE Encrypt", survey.sites.count { $0.label == "Encrypted_Data" }),
        ("contents of the management protocol, now zeros", survey.sites.count { $0.label == "management protocol" }),
      ] where count > 0 {
        report.unverifiable[what] = count
      }
      report.kept = survey.kept
    }

    /// Confirm values of LE Secure Connections are made anew from the new keys and random values.
    mutating func openCommitments() {
      func number(_ site: Int, _ range: Range<Int>) -> [UInt8] {
        survey.sites[site].places[range].map { storage[$0] }
      }
      for commitment in survey.commitments {
        let confirm = f4(
          UInt256(leastSignificantFirst: number(commitment.own, 0..<32).span),
          UInt256(leastSignificantFirst: number(commitment.other, 0..<32).span),
          UInt128(leastSignificantFirst: number(commitment.random, 0..<16).span), commitment.z)
        for (index, place) in survey.sites[commitment.confirm].places.enumerated() {
          storage[place] = UInt8(truncatingIfNeeded: confirm >> UInt128(8 * index))
        }
      }
    }

    /// Originals in octets that have no fields, such as a vendor's packets: replaced where they occur.
    mutating func replaceStrays() {
      report.addresses = replacements.addresses
      report.keys = replacements.keys
      report.names = replacements.names
      report.resolved = replacements.resolved
      report.identities = replacements.identities.map { ($0.original, $0.replacement) }
      let search = report.search
      for run in runs(of: trace, survey) {
        let octets = run.places.map { storage[$0] }
        for found in search.find(in: octets) {
          let places = run.places[found.range]
          guard places.allSatisfy({ survey.isOpaque[$0] }) else { continue }
          for (place, octet) in zip(places, found.replacement) { storage[place] = octet }
          report.strays[found.what, default: 0] += 1
        }
      }
    }
  }
}

/// The octets that belong together: those of a record, and those of a frame in several.
private func runs(of trace: CapturedTrace, _ survey: ScrubSurvey) -> [(number: Int, places: [Int])] {
  trace.records.map { (number: $0.number, places: Array($0.octets.range)) } + survey.scattered
}

/// As in a packet, least significant octet first; or as text of 17 characters. nil: neither.
private func address(_ octets: [UInt8]) -> UInt64? {
  if octets.count == 6 { return octets.reversed().reduce(0) { $0 << 8 | UInt64($1) } }
  guard octets.count == 17 else { return nil }
  return UInt64(String(decoding: octets.filter { $0 != UInt8(ascii: ":") }, as: UTF8.self), radix: 16)
}
private func octets(of address: UInt64, like original: [UInt8]) -> [UInt8] {
  if original.count == 6 { return (0..<6).map { UInt8(truncatingIfNeeded: address >> UInt64(8 * $0)) } }
  let text = DeviceAddress(address).text
  return Array((original.contains { (0x61...0x66).contains($0) } ? text.lowercased() : text).utf8)
}

extension SensitiveField.Kind {
  fileprivate var name: String {
    switch self {
    case .address: "addresses"
    case .name: "names and serial numbers"
    case .key: "keys"
    case .keyIdentifier: "Rand, EDIV and random numbers"
    case .pairingRandom: "random values of pairing"
    case .confirm: "Confirm values"
    case .check: "DHKey Check values"
    case .publicKey: "public keys"
    case .signature: "Authentication Signatures"
    case .value: "values"
    case .opaque: "contents of the management protocol"
    case .handle, .signalStrength: ""
    }
  }
}

/// What ``TraceScrubber`` has done. It holds originals: it is for the proof, and for nobody else.
public struct ScrubReport: Sendable {
  static var identityLabels: Set<String> { ["Peer_IRK", "Local_IRK", "Identity Resolving Key"] }
  /// Fields that have a replacement, by their kind.
  public internal(set) var replaced: [String: Int] = [:]
  /// Originals found and replaced where no field is declared.
  public internal(set) var strays: [String: Int] = [:]
  /// Values that cannot be verified any more.
  public internal(set) var unverifiable: [String: Int] = [:]
  /// What stays, because nothing is known of it: people decide.
  public internal(set) var kept: [String: Int] = [:]
  /// Different private addresses that a key resolves.
  public internal(set) var resolved = 0
  public var addressCount: Int { addresses.count }
  public var keyCount: Int { keys.count }
  public var nameCount: Int { names.count }
  /// Names of fewer than four octets are replaced, but not searched for.
  public var shortNameCount: Int { names.keys.count { $0.count < Search.shortestName } }

  var addresses: [UInt64: UInt64] = [:]
  var keys: [[UInt8]: [UInt8]] = [:]
  var names: [[UInt8]: [UInt8]] = [:]
  var identities: [(original: UInt128, replacement: UInt128)] = []
  var search: Search { Search(self) }

  /// Finds originals: addresses and keys in both orders of their octets, and names.
  struct Search {
    static var shortestName: Int { 4 }
    struct Found {
      var range: Range<Int>
      var replacement: [UInt8]
      var what: String
    }
    private struct Needle {
      var octets: [UInt8], replacement: [UInt8]
      var what: String
    }
    /// By their first four octets.
    private var needles: [UInt32: [Needle]] = [:]

    fileprivate init(_ report: ScrubReport) {
      func octets(_ value: UInt64) -> [UInt8] { (0..<6).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) } }
      for (original, new) in report.addresses { add("addresses", octets(original), octets(new), bothOrders: true) }
      for (original, new) in report.keys where original.count >= 16 { add("keys", original, new, bothOrders: true) }
      for (original, new) in report.names where original.count >= Self.shortestName {
        add("names", original, new, bothOrders: false)
      }
    }
    private mutating func add(_ what: String, _ octets: [UInt8], _ new: [UInt8], bothOrders: Bool) {
      needles[Self.key(octets, 0), default: []].append(Needle(octets: octets, replacement: new, what: what))
      if bothOrders { add(what, octets.reversed(), new.reversed(), bothOrders: false) }
    }
    private static func key(_ octets: [UInt8], _ at: Int) -> UInt32 {
      UInt32(octets[at]) | UInt32(octets[at + 1]) << 8 | UInt32(octets[at + 2]) << 16 | UInt32(octets[at + 3]) << 24
    }
    func find(in octets: [UInt8]) -> [Found] {
      var found: [Found] = [], at = 0
      while at + 4 <= octets.count {
        let here = needles[Self.key(octets, at)]?.filter { octets[at...].starts(with: $0.octets) }
        guard let needle = here?.max(by: { $0.octets.count < $1.octets.count }) else {
          at += 1
          continue
        }
        found.append(
          Found(range: at..<at + needle.octets.count, replacement: needle.replacement, what: needle.what))
        at += needle.octets.count
      }
      return found
    }
  }
}

/// What a look at both traces shows: the scrubbed one is to be read again from its file.
public struct ScrubProof: Sendable {
  /// Records whose length, kind, time, direction, opcode or event code differ.
  public private(set) var changedRecords: [Int] = []
  /// Findings of the checker that only one of the traces has: `record 7 att.mtu`.
  public private(set) var changedFindings: [String] = []
  /// Records with a private address that one of the keys resolved and its replacement does not, or the reverse.
  public private(set) var changedIdentities: [Int] = []
  /// Private addresses that resolve in both.
  public private(set) var resolved = 0
  /// Records that still hold an original, and of which kind.
  public private(set) var remaining: [(number: Int, what: String)] = []
  public var holds: Bool {
    changedRecords.isEmpty && changedFindings.isEmpty && changedIdentities.isEmpty && remaining.isEmpty
  }

  /// `scrubbed` has the same records in the same order.
  public init(_ original: CapturedTrace, _ scrubbed: CapturedTrace, _ report: ScrubReport) {
    compare(original, scrubbed)
    let findings = (Self.findings(original), Self.findings(scrubbed))
    changedFindings =
      findings.0.subtracting(findings.1).union(findings.1.subtracting(findings.0)).sorted()
    identities(original, scrubbed, report)
    search(scrubbed, report)
  }

  private mutating func compare(_ one: CapturedTrace, _ other: CapturedTrace) {
    for index in 0..<max(one.records.count, other.records.count) {
      guard index < one.records.count, index < other.records.count else {
        changedRecords.append(index + 1)
        continue
      }
      let (a, b) = (one.records[index], other.records[index])
      let (x, y) = (one.octets(of: a), other.octets(of: b))
      // The type, a command's opcode, an event's code and an ACL packet's header.
      let head =
        switch x.first {
        case HCIPacketType.command.rawValue?: 4
        case HCIPacketType.event.rawValue?: 3
        case HCIPacketType.acl.rawValue?: 5
        default: 1
        }
      // The file has microseconds.
      let isSame =
        a.content == b.content && x.count == y.count && a.originalCount == b.originalCount
        && a.direction == b.direction && a.time / 1_000 == b.time / 1_000 && a.adapter == b.adapter
        && (a.content != .packet || x.prefix(head) == y.prefix(head))
      if !isSame { changedRecords.append(a.number) }
    }
  }
  private static func findings(_ trace: CapturedTrace) -> Set<String> {
    var sink = DissectingSink(Checker())
    trace.read(into: &sink)
    var counts: [String: Int] = [:]
    for finding in sink.sink.findings {
      counts["record \(finding.number) \(finding.rule.id) \(finding.party.rawValue)", default: 0] += 1
    }
    return Set(counts.map { $0.value > 1 ? "\($0.key) × \($0.value)" : $0.key })
  }
  private mutating func identities(_ one: CapturedTrace, _ other: CapturedTrace, _ report: ScrubReport) {
    func places(_ trace: CapturedTrace) -> [(number: Int, value: UInt64)] {
      var sink = DissectingSink(ScrubSurvey(trace, scrubsValues: false))
      trace.read(into: &sink)
      return sink.sink.sites.compactMap { site in
        guard case .address = site.kind, let value = address(site.places.map { trace.storage[$0] }) else { return nil }
        return (site.number, value)
      }
    }
    let keys = report.identities.map { (AES128(key: $0.original), AES128(key: $0.replacement)) }
    func resolve(_ value: UInt64, _ key: ((AES128, AES128)) -> AES128) -> Int? {
      guard DeviceAddress(value).randomKind == .resolvablePrivate else { return nil }
      return keys.firstIndex {
        ah(key($0), UInt32(truncatingIfNeeded: value >> 24)) == UInt32(truncatingIfNeeded: value & 0xFF_FFFF)
      }
    }
    let (a, b) = (places(one), places(other))
    if a.count != b.count { changedIdentities.append(0) }
    for (before, after) in zip(a, b) {
      // A public address may look private: only what was replaced as private counts.
      let (first, second) = (resolve(before.value, \.0), resolve(after.value, \.1))
      if first != nil, first == second { resolved += 1 }
      if first != second { changedIdentities.append(before.number) }
    }
  }
  private mutating func search(_ trace: CapturedTrace, _ report: ScrubReport) {
    var sink = DissectingSink(ScrubSurvey(trace, scrubsValues: false))
    trace.read(into: &sink)
    let search = report.search
    for run in runs(of: trace, sink.sink) {
      for found in search.find(in: run.places.map({ trace.storage[$0] })) {
        remaining.append((run.number, found.what))
      }
    }
  }
}
