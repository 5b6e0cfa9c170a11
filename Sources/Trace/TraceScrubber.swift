import BindruneCapture
import BindruneToolbox
import BindruneWire
import BindruneHCI

/// # TraceScrubber
/// **Overview**: replaces what identifies devices and people in a trace, and the keys of its links, and zeroes what
/// nothing declares, so that the trace can be shared:
///
///     let scrubber = TraceScrubber(seed: 7)
///     var originals = ScrubOriginals(scrubber)
///     try file.read(into: &originals)                        // once, to find the originals
///     var writer = ScrubWriter(originals.plan(), CapturedTrace())
///     try again.read(into: &writer)                          // and again, to replace them
///     print(writer.report.addressCount, writer.output.records.count)
///
/// **Function**: every replacement has the length of its original, and an original has one replacement. A private
/// address that a key of the trace, or the caller's, resolves is resolved by the key's replacement. Times, handles,
/// UUIDs, errors and lengths stay. A third pass, ``ScrubProver``, shows what a reader of the new trace may rely on.
/// Memory grows with the number of different originals, not with the trace.
public struct TraceScrubber: Sendable {
  /// Also replaces the values of characteristics, and manufacturer and service data.
  public var scrubsValues = false
  /// Keeps what nothing declares; originals in it are searched for.
  public var keepsUnknown = false
  /// Identity Resolving Keys that the trace does not hold; most significant octet first as numbers.
  public var identities: [UInt128] = []
  fileprivate let seed: UInt128

  /// The same seed gives the same replacements. Who knows it can test guesses of originals: a shared seed is no secret.
  public init(seed: UInt128) { self.seed = seed }

  /// Scrubs a trace in memory.
  public func scrub(_ trace: CapturedTrace) -> (trace: CapturedTrace, report: ScrubReport) {
    var originals = ScrubOriginals(self)
    trace.read(into: &originals)
    var writer = ScrubWriter(originals.plan(), CapturedTrace())
    trace.read(into: &writer)
    return (writer.output, writer.report)
  }
}

/// The first pass of a ``TraceScrubber``: finds the originals of a trace.
public struct ScrubOriginals: ~Copyable, CaptureSink {
  /// Different addresses, keys or names that are told apart.
  public static var most: Int { 1 << 18 }
  private let scrubber: TraceScrubber
  private var pass: DissectingSink<ScrubSurvey>
  private var irks: [UInt128] = []
  private var random: Set<UInt64> = [], addresses: Set<UInt64> = []
  private var keys: Set<[UInt8]> = [], names: Set<[UInt8]> = []
  /// The records so far.
  public var count: Int { pass.sink.count }
  /// The trace has more different originals than are told apart, and cannot be scrubbed whole.
  public private(set) var hasTooMany = false
  /// The trace has packets from the air, which may be encrypted: they cannot be scrubbed.
  public private(set) var isFromAir = false

  public init(_ scrubber: TraceScrubber) {
    self.scrubber = scrubber
    pass = DissectingSink(ScrubSurvey(scrubber))
  }
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if case .linkLayer = record.content { isFromAir = true }
    pass.receive(record, bytes)
    pass.sink.settle()
    collect()
  }
  public var wantsMore: Bool { !hasTooMany && !isFromAir }

  private mutating func collect() {
    for field in pass.sink.takeFields() {
      guard case .replace(let kind) = field.kind else { continue }
      switch kind {
      case .address(let isRandom):
        guard let value = address(pass.sink.octets(of: field.place)) else { continue }
        addresses.insert(value)
        if isRandom == true { random.insert(value) }
      case .key:
        let key = pass.sink.octets(of: field.place)
        keys.insert(key)
        guard field.isIdentity, key.count == 16 else { continue }
        let irk = UInt128(leastSignificantFirst: key.span)
        if !irks.contains(irk), irks.count < 4_096 { irks.append(irk) }
      case .name where field.prefix.isEmpty: names.insert(pass.sink.octets(of: field.place))
      default: continue
      }
    }
    if max(addresses.count, keys.count, names.count) > Self.most { hasTooMany = true }
    _ = pass.sink.release()
  }

  /// After the whole trace: what is to be replaced, and by what.
  public consuming func plan() -> ScrubPlan {
    pass.sink.end()
    collect()
    var replacements = ScrubReplacements(
      seed: scrubber.seed, identities: irks + scrubber.identities, random: random, found: addresses)
    // In an order that does not depend on the run: a replacement avoids those before it.
    for address in addresses.sorted() { _ = replacements.address(address) }
    for key in keys { _ = replacements.key(key) }
    for name in names { _ = replacements.name(name, after: []) }
    return ScrubPlan(
      scrubber: scrubber, count: count, replacements: replacements, commitments: pass.sink.commitments,
      search: ScrubSearch(
        addresses: replacements.addresses, keys: replacements.keys, names: replacements.names))
  }
}

extension ScrubSurvey {
  init(_ scrubber: TraceScrubber) {
    self.init(scrubsValues: scrubber.scrubsValues, keepsUnknown: scrubber.keepsUnknown)
  }
}
extension ScrubField {
  /// An Identity Resolving Key.
  var isIdentity: Bool {
    label.isEqual(to: "Peer_IRK") || label.isEqual(to: "Local_IRK") || label.isEqual(to: "Identity Resolving Key")
  }
}

/// What a trace has, and what takes its place. It holds originals: it is for the other passes, and for nobody else.
public struct ScrubPlan: Sendable {
  let scrubber: TraceScrubber
  /// The records of the trace.
  public let count: Int
  var replacements: ScrubReplacements
  let commitments: [Int: ScrubSurvey.Commitment]
  let search: ScrubSearch
}

/// The second pass of a ``TraceScrubber``: passes the records on, scrubbed, in their order.
public struct ScrubWriter<Output: CaptureSink>: ~Copyable, CaptureSink {
  public var output: Output
  public private(set) var report: ScrubReport
  private var plan: ScrubPlan
  private var pass: DissectingSink<ScrubSurvey>

  public init(_ plan: ScrubPlan, _ output: Output) {
    self.output = output
    self.plan = plan
    pass = DissectingSink(ScrubSurvey(plan.scrubber))
    report = ScrubReport(plan)
  }
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    pass.receive(record, bytes)
    pass.sink.settle()
    write()
  }
  /// A file that grows has only the records of the first pass.
  public var wantsMore: Bool { pass.sink.count < plan.count && output.wantsMore }
  public mutating func pause() {
    pass.sink.end()
    write()
    report.finish(plan)
    output.pause()
  }

  private mutating func write() {
    for field in pass.sink.takeFields() { replace(field) }
    for place in pass.sink.takeScattered() { replaceStrays(place) }
    for var entry in pass.sink.release() {
      if !plan.search.isEmpty { replaceStrays(&entry) }
      var record = entry.record
      record.octets = Octets(0, entry.new.count)
      output.receive(record, entry.new.span)
    }
  }

  // MARK: Fields

  private mutating func replace(_ field: ScrubField) {
    let kind: SensitiveField.Kind
    switch field.kind {
    case .open:
      report.kept[field.label.description, default: 0] += 1
      pass.sink.change(field.place) { entry, index, _ in entry.marks[index] = .open }
      return
    case .zero, .text:
      report.zeroed[field.label.description, default: 0] += 1
      let octet: UInt8 = field.kind == .text ? UInt8(ascii: "x") : 0
      pass.sink.change(field.place) { entry, index, _ in
        entry.new[index] = entry.octets[index] == 0 ? 0 : octet
        entry.marks[index] = .done
      }
      return
    case .replace(let replaced): kind = replaced
    }
    let original = pass.sink.octets(of: field.place)
    guard let new = new(kind, original, field) else { return }
    if new != original { report.replaced[kind.name, default: 0] += 1 }
    if let what = kind.unverifiable(field, isOpened: plan.commitments[field.place.first.record] != nil) {
      report.unverifiable[what, default: 0] += 1
    }
    pass.sink.change(field.place) { entry, index, number in
      entry.new[index] = new[number]
      entry.marks[index] = .done
    }
  }
  private mutating func new(_ kind: SensitiveField.Kind, _ original: [UInt8], _ field: ScrubField) -> [UInt8]? {
    switch kind {
    case .address:
      guard let value = address(original) else { return nil }
      return octets(of: plan.replacements.address(value), like: original)
    case .key: return plan.replacements.key(original)
    case .keyIdentifier: return plan.replacements.identifier(original)
    case .name: return plan.replacements.name(original, after: field.prefix)
    case .value: return plan.replacements.value(original, after: field.prefix)
    case .publicKey: return plan.replacements.publicKey(original)
    case .confirm:
      // Those of LE Secure Connections are made anew from the new keys and random values.
      guard let commitment = plan.commitments[field.place.first.record] else {
        return plan.replacements.chance(original)
      }
      func x(_ key: [UInt8]) -> UInt256 {
        UInt256(leastSignificantFirst: Array(plan.replacements.publicKey(key)[..<32]).span)
      }
      let random = UInt128(leastSignificantFirst: plan.replacements.chance(commitment.random).span)
      let confirm = f4(x(commitment.own), x(commitment.other), random, commitment.z)
      return (0..<original.count).map { UInt8(truncatingIfNeeded: confirm >> UInt128(8 * $0)) }
    case .pairingRandom, .check, .signature: return plan.replacements.chance(original)
    case .opaque: return [UInt8](repeating: 0, count: original.count)
    case .residue: return original.map { $0 == 0 ? 0 : 1 }
    case .handle, .signalStrength: return nil
    }
  }

  // MARK: Strays

  /// Originals where no field is declared.
  private func strays(in octets: [UInt8], _ marks: [ScrubEntry.Mark], _ change: (Int, UInt8) -> Void) -> [String] {
    var found: [String] = []
    plan.search.replace(in: octets, hasOpen: marks.contains(.open), isOpen: { marks[$0] == .open }) { place, octet in
      if marks[place] == .declared || marks[place] == .open { change(place, octet) }
    } count: { range, what in
      if range.contains(where: { marks[$0] == .declared || marks[$0] == .open }) { found.append(what.rawValue) }
    }
    return found
  }
  private mutating func replaceStrays(_ entry: inout ScrubEntry) {
    // The closure below cannot change what it reads.
    var changes: [(Int, UInt8)] = []
    for what in strays(in: entry.octets, entry.marks, { changes.append(($0, $1)) }) {
      report.strays[what, default: 0] += 1
    }
    for (place, octet) in changes {
      entry.new[place] = octet
      entry.marks[place] = .done
    }
  }
  private mutating func replaceStrays(_ place: ScrubPlace) {
    if plan.search.isEmpty { return }
    var marks: [ScrubEntry.Mark] = [], changes: [Int: UInt8] = [:]
    pass.sink.change(place) { entry, index, _ in marks.append(entry.marks[index]) }
    for what in strays(in: pass.sink.octets(of: place), marks, { changes[$0] = $1 }) {
      report.strays[what, default: 0] += 1
    }
    if changes.isEmpty { return }
    pass.sink.change(place) { entry, index, number in
      guard let octet = changes[number] else { return }
      entry.new[index] = octet
      entry.marks[index] = .done
    }
  }
}

/// As in a packet, least significant octet first; or as text of 17 characters. nil: neither.
func address(_ octets: [UInt8]) -> UInt64? {
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
  var name: String {
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
    case .residue: "octets where zeros should be"
    case .handle, .signalStrength: ""
    }
  }
  /// What the replacement of a field cannot verify.
  fileprivate func unverifiable(_ field: ScrubField, isOpened: Bool) -> String? {
    switch self {
    case .confirm where !isOpened: "Confirm values whose commitment the trace does not open, or that need a TK"
    case .check: "DHKey Check values"
    case .signature: "Authentication Signatures"
    case .opaque: "contents of the management protocol, now zeros"
    case .pairingRandom where field.label.isEqual(to: "Encrypted_Data"): "results of LE Encrypt"
    default: nil
    }
  }
}

/// What ``TraceScrubber`` has done. It holds originals: it is for the proof, and for nobody else.
public struct ScrubReport: Sendable {
  /// Fields that have a replacement, by their kind.
  public internal(set) var replaced: [String: Int] = [:]
  /// Originals found and replaced where no field is declared.
  public internal(set) var strays: [String: Int] = [:]
  /// Values that cannot be verified any more.
  public internal(set) var unverifiable: [String: Int] = [:]
  /// What nothing declares, now zeros: packets or fields.
  public internal(set) var zeroed: [String: Int] = [:]
  /// What stays as it is, but for originals that were found in it.
  public internal(set) var kept: [String: Int] = [:]
  /// Different private addresses that a key resolves.
  public private(set) var resolved = 0
  public private(set) var addressCount = 0, keyCount = 0, nameCount = 0
  /// Names of fewer than four octets are replaced, but not searched for.
  public private(set) var shortNameCount = 0
  private(set) var plan: ScrubPlan

  fileprivate init(_ plan: ScrubPlan) { self.plan = plan }
  fileprivate mutating func finish(_ plan: ScrubPlan) {
    resolved = plan.replacements.resolved
    addressCount = plan.replacements.addresses.count
    keyCount = plan.replacements.keys.count
    nameCount = plan.replacements.names.count
    shortNameCount = plan.replacements.names.keys.count { $0.count < ScrubSearch.shortestName }
  }
}
