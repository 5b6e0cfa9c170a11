import BindruneCapture
import BindruneToolbox
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// A trace without what identifies anybody, that is otherwise the same.
@Suite struct ScrubTests {
  private func captured(_ packets: Packets) -> CapturedTrace {
    var trace = CapturedTrace()
    for (record, octets) in packets.records { trace.receive(record, octets.span) }
    return trace
  }
  private func captured(path: String) throws -> CapturedTrace {
    var file = try TraceFile(path: path), trace = CapturedTrace()
    try file.read(into: &trace)
    return trace
  }
  /// The IRK and the address of Vol 3, Part H, Appendix D.7, and a device without a key: their names and values.
  private static let irk: UInt128 = 0xEC02_34A3_57C8_AD05_3410_10A6_0A39_7D9B
  private static let privateAddress = "AA FB 0D 94 81 70"
  private var identity: Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 \(Self.privateAddress) 18 00 00 00 C8 00 00")
    packets.frame(
      .fromController, channel: 6, [0x08] + (0..<16).map { UInt8(truncatingIfNeeded: Self.irk >> (8 * $0)) })
    packets.frame(.fromController, channel: 6, octets("09 00 11 22 33 44 55 66"))
    // An advertising report with the name "Erika's watch", and Flags.
    let name = Array("Erika's watch".utf8)
    let data = [2, 1, 6, UInt8(name.count + 1), 9] + name
    packets.add(
      .fromController,
      [4, 0x3E, UInt8(12 + data.count), 2, 1, 0, 1] + octets(Self.privateAddress) + [UInt8(data.count)] + data + [0xC0])
    // Our own list of private addresses, and a vendor's packet with the address in it.
    packets.add(.fromController, "04 FF 08 01 \(Self.privateAddress) 77")
    return packets
  }

  @Test func identities() throws {
    let trace = captured(identity)
    var scrubber = TraceScrubber(seed: 5)
    scrubber.keepsUnknown = true
    let (scrubbed, report) = scrubber.scrub(trace), proof = ScrubProof(trace, scrubbed, report)
    #expect(proof.holds && proof.resolved == 2, "\(proof)")
    #expect(report.addressCount == 2 && report.keyCount == 1 && report.nameCount == 1 && report.resolved == 1)
    #expect(report.strays == ["addresses": 1])
    // The new key resolves the new address, computed by hand: ah(k, prand) is e(k, prand) mod 2^24.
    let key = scrubbed.octets(of: scrubbed.records[1]).suffix(16),
      address = scrubbed.octets(of: scrubbed.records[0])[9..<15]
    let k = key.reversed().reduce(UInt128(0)) { $0 << 8 | UInt128($1) }
    let value = address.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    #expect(k != Self.irk && value >> 46 == 1)
    #expect(UInt64(AES128(key: k).encrypt(UInt128(value >> 24)) & 0xFF_FFFF) == value & 0xFF_FFFF)
    // Everywhere the same, and the name has letters in the same place.
    #expect(scrubbed.octets(of: scrubbed.records[4])[4..<10] == address)
    let report4 = scrubbed.octets(of: scrubbed.records[3])
    #expect(report4[7..<13] == address && Array(report4[14..<19]) == octets("02 01 06 0E 09"))
    #expect(report4[19..<32].allSatisfy { (UInt8(ascii: "a")...UInt8(ascii: "z")).contains($0) })
    // A public address is not of a kind; its type and the others' stay.
    #expect(scrubbed.octets(of: scrubbed.records[2])[9...10].elementsEqual(octets("09 00")))
  }

  @Test func seeds() {
    let trace = captured(identity)
    let (a, b, c) = (TraceScrubber(seed: 1), TraceScrubber(seed: 1), TraceScrubber(seed: 2))
    #expect(a.scrub(trace).trace.storage == b.scrub(trace).trace.storage)
    #expect(a.scrub(trace).trace.storage != c.scrub(trace).trace.storage)
  }

  /// The proof finds what was not replaced, what was changed, and keys that resolve no more.
  @Test func proofsThatFail() {
    let trace = captured(identity), report = TraceScrubber(seed: 5).scrub(trace).report
    let unchanged = ScrubProof(trace, trace, report)
    let kinds: Set = ["addresses", "keys", "names and serial numbers", "vendor packets"]
    #expect(!unchanged.holds && Set(unchanged.remaining.map(\.what)) == kinds, "\(unchanged.remaining)")
    #expect(!unchanged.changedIdentities.isEmpty && unchanged.changedRecords.isEmpty)
    var shorter = Packets()
    for (record, octets) in identity.records.dropLast() { shorter.add(record.direction, octets) }
    #expect(ScrubProof(trace, captured(shorter), report).changedRecords == [5])
  }

  /// A long name is read in parts; the parts of its replacement fit, also where a packet ends within it.
  @Test func namesInParts() throws {
    var packets = Packets()
    let name = Array("A name that needs two parts".utf8)
    packets.frame(.fromHost, octets("08 01 00 FF FF 03 28"))
    packets.frame(.fromController, octets("09 07 02 00 02 03 00 00 2A"))
    for _ in 0..<2 {
      packets.frame(.fromHost, octets("0A 03 00"))
      packets.frame(.fromController, size: 10, [0x0B] + name.prefix(22))
      packets.frame(.fromHost, octets("0C 03 00 16 00"))
      packets.frame(.fromController, [0x0D] + name.dropFirst(22))
    }
    packets.frame(.fromController, octets("1B 09 00") + name)
    let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 9).scrub(trace)
    var sink = DissectingSink(TraceFields())
    scrubbed.read(into: &sink)
    let rows = String(decoding: sink.sink.output, as: UTF8.self).split(separator: "\n").map {
      $0.split(separator: "\t")
    }
    let parts = rows.filter { $0[4] == "0x0b" || $0[4] == "0x0d" }.map { $0.last.map(String.init) ?? "" }
    #expect(parts.count == 4 && parts[0] == parts[2] && parts[1] == parts[3])
    #expect(parts[0].utf8.count == 46 && !parts[0].contains("41206e616d65"))
    #expect(report.nameCount >= 1 && ScrubProof(trace, scrubbed, report).holds)
  }

  /// Every trace of ours, and the public ones: the proof holds, with and without values.
  @Test(arguments: OwnTraces.names.map(OwnTraces.path), [false, true]) func ownTraces(_ path: String, _ values: Bool)
    throws
  {
    try prove(path, values)
  }
  @Test(.enabled(if: PublicTraces.arePresent, PublicTraces.absence)) func publicTraces() throws {
    for name in PublicTraces.names where !name.hasPrefix("whad") && !name.hasPrefix("mikeryan") {
      try prove(PublicTraces.path(name), false)
    }
  }
  private func prove(_ path: String, _ values: Bool) throws {
    let trace = try captured(path: path)
    var scrubber = TraceScrubber(seed: 0x5EED)
    scrubber.scrubsValues = values
    let (scrubbed, report) = scrubber.scrub(trace), proof = ScrubProof(trace, scrubbed, report)
    #expect(proof.changedRecords.isEmpty && proof.changedIdentities.isEmpty, "\(path)")
    #expect(proof.changedFindings == [], "\(path)")
    #expect(proof.remaining.isEmpty, "\(path): \(proof.remaining.prefix(5))")
  }

  /// Damaged packets, and packets of chance: nothing traps, and the lengths stay.
  @Test func noise() {
    let seed = UInt64.random(in: 0...UInt64.max)
    var chance = SplitMix64(seed: seed)
    for _ in 0..<40 {
      var packets = Packets()
      for (record, octets) in identity.records + Packets.session.records {
        var damaged = octets
        for _ in 0..<Int.random(in: 0..<4, using: &chance) {
          damaged[Int.random(in: 0..<damaged.count, using: &chance)] = UInt8.random(in: 0...255, using: &chance)
        }
        packets.add(record.direction, Array(damaged.prefix(Int.random(in: 0...damaged.count, using: &chance))))
      }
      let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 1).scrub(trace)
      #expect(scrubbed.storage.count == trace.storage.count, "seed \(seed)")
      #expect(ScrubProof(trace, scrubbed, report).changedRecords.isEmpty, "seed \(seed)")
    }
  }

  // MARK: What must survive, and what must not

  /// Mistakes stay mistakes: every finding of every fixture of the checker, whatever is replaced.
  @Test(arguments: CheckTests.cases()) func findings(_ fixture: CheckTests.Case) throws {
    var trace = CapturedTrace()
    try fixture.script().run(into: &trace)
    for (values, keeps) in [(false, false), (true, false), (false, true), (true, true)] {
      var scrubber = TraceScrubber(seed: 0x5EED)
      (scrubber.scrubsValues, scrubber.keepsUnknown) = (values, keeps)
      let (scrubbed, report) = scrubber.scrub(trace), proof = ScrubProof(trace, scrubbed, report)
      #expect(proof.holds, "values \(values), keeps \(keeps): \(proof)")
    }
  }

  /// The peer 66:55:44:5E:22:11, whose name is "Testname Person", and characteristics with texts of their maker.
  private static let peer: [UInt8] = [0x11, 0x22, 0x5E, 0x44, 0x55, 0x66]
  private func session(_ value: [UInt8]) -> Packets {
    var packets = Packets()
    packets.add(.fromController, octets("04 3E 13 01 00 40 00 00 00") + Self.peer + octets("18 00 00 00 C8 00 00"))
    packets.add(
      .fromController,
      [4, 7, 255, 0] + Self.peer + Array("Testname Person".utf8) + [UInt8](repeating: 0, count: 233))
    packets.frame(.fromHost, octets("08 01 00 FF FF 03 28"))
    packets.frame(.fromController, octets("09 07 02 00 02 03 00 29 2A"))
    packets.frame(.fromHost, octets("0A 03 00"))
    packets.frame(.fromController, [0x0B] + value)
    return packets
  }
  private static var forms: [[UInt8]] {
    let plain = [
      "66:55:44:5E:22:11", "6655445E2211", "66-55-44-5e-22-11", "11225e445566", "sn 665544.5e2211", "5E2211",
      "11 22 5e",
    ]
    let texts = plain.map { Array($0.utf8) } + plain.flatMap { [wide($0, 0), wide($0, 1)] }
    let name = Array("a Testname Person b".utf8)
    let names = [name, wide("Testname Person", 0), wide("Testname Person", 1)]
    let eui: [[UInt8]] = [
      [0x11, 0x22, 0x5E, 0xFE, 0xFF, 0x44, 0x55, 0x66], [0x66, 0x55, 0x44, 0xFF, 0xFE, 0x5E, 0x22, 0x11],
      [0x64, 0x55, 0x44, 0xFF, 0xFE, 0x5E, 0x22, 0x11],
    ]
    return texts + names + eui + [peer, peer.reversed(), Array(peer[..<3]), peer[..<3].reversed()]
  }
  /// UTF-16, with the zero behind or before each letter.
  private static func wide(_ text: String, _ place: Int) -> [UInt8] {
    text.utf8.flatMap { place == 0 ? [$0, 0] : [0, $0] }
  }
  /// In a value that stays, each form of an address and of a name is replaced, and nothing else.
  @Test(arguments: forms) func formsOfOriginals(_ form: [UInt8]) {
    let value = Array("<<".utf8) + form + Array(">>".utf8), trace = captured(session(value))
    let (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace), proof = ScrubProof(trace, scrubbed, report)
    let new = Array(scrubbed.octets(of: scrubbed.records[5]).suffix(value.count))
    #expect(proof.holds, "\(proof)")
    #expect(new.count == value.count && new != value)
    #expect(new.prefix(2) == value.prefix(2) && new.suffix(2) == value.suffix(2))
    // Zeros and separators stay where they are.
    for (old, octet) in zip(value, new) where old == 0 || Array(":-.".utf8).contains(old) { #expect(old == octet) }
    #expect(report.strays.values.reduce(0, +) >= 1)
  }
  /// A number that equals an address by chance is none: 00:00:00:00:00:01 in a list, and an event mask.
  @Test func innocentNumbers() {
    var packets = Packets()
    packets.add(.fromHost, "01 11 20 07 00 01 00 00 00 00 00")
    packets.add(.fromHost, "01 01 20 08 01 00 00 00 00 00 00 00")
    let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace)
    #expect(ScrubProof(trace, scrubbed, report).holds)
    #expect(scrubbed.octets(of: scrubbed.records[1]) == packets.records[1].octets)
    #expect(scrubbed.octets(of: scrubbed.records[0]) != packets.records[0].octets)
  }

  private static let secret = Array("+CLIP: \"5550100\"".utf8)
  /// What nothing declares becomes zeros, and its headers and lengths stay; `--keep-unknown` keeps it.
  @Test(
    arguments: [
      "vendor command", "vendor event", "vendor answer", "synchronous", "isochronous", "packet type",
      "channel of BR/EDR", "unknown channel", "fragment", "advertising", "manufacturer", "echo", "unknown event",
    ])
  func unknownOctets(_ kind: String) {
    let secret = Self.secret, count = UInt8(secret.count)
    var packets = session([0x41])
    let first = packets.records.count
    switch kind {
    case "vendor command": packets.add(.fromHost, [1, 0x01, 0xFC, count] + secret)
    case "vendor event": packets.add(.fromController, [4, 0xFF, count] + secret)
    case "vendor answer": packets.add(.fromController, [4, 0x0E, count + 3, 1, 0x01, 0xFC] + secret)
    case "synchronous": packets.add(.fromController, [3, 0x40, 0, count] + secret)
    case "isochronous": packets.add(.fromController, [5, 0x40, 0, count, 0] + secret)
    case "packet type": packets.add(.fromController, [9] + secret)
    case "channel of BR/EDR":
      packets.add(.fromController, octets("04 03 0B 00 0B 00") + Self.peer + [1, 0])
      packets.frame(.fromController, channel: 0x41, handle: 0x0B, secret)
    case "unknown channel": packets.frame(.fromController, channel: 0x33, handle: 0xEDC, secret)
    case "fragment": packets.add(.fromController, [2, 0x40, 0x10, count, 0] + secret)
    case "advertising", "manufacturer":
      let data = kind == "advertising" ? [count + 1, 0x24] + secret : [count + 3, 0xFF, 0xFF, 0xFF] + secret
      packets.add(
        .fromController,
        [4, 0x3E, UInt8(12 + data.count), 2, 1, 0, 0] + Self.peer + [UInt8(data.count)] + data + [0xC0])
    case "echo": packets.frame(.fromController, channel: 1, [8, 1, count, 0] + secret)
    default: packets.add(.fromController, [4, 0x61, count] + secret)
    }
    let trace = captured(packets)
    var scrubber = TraceScrubber(seed: 3)
    let (scrubbed, report) = scrubber.scrub(trace), proof = ScrubProof(trace, scrubbed, report)
    #expect(proof.holds, "\(proof)")
    for (old, new) in zip(trace.records[first...], scrubbed.records[first...]) {
      let (a, b) = (trace.octets(of: old), scrubbed.octets(of: new))
      #expect(a.count == b.count)
      #expect(!holds(b, Array(secret[..<4])) && !holds(b, Array(secret[8..<12])))
    }
    #expect(report.zeroed.values.reduce(0, +) == 1, "\(report.zeroed)")
    scrubber.keepsUnknown = true
    let kept = scrubber.scrub(trace).trace
    #expect(kept.records.contains { holds(kept.octets(of: $0), secret) })
  }
  /// A value of an attribute that the trace does not name is replaced, the same by the same.
  @Test func valuesWithoutNames() {
    var packets = session([0x41])
    for value in [Self.secret, Self.secret, Self.secret + [0]] {
      packets.frame(.fromController, [0x1B, 0x77, 0] + value)
    }
    let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace)
    let values = scrubbed.records.suffix(3).map { Array(scrubbed.octets(of: $0).dropFirst(12)) }
    #expect(ScrubProof(trace, scrubbed, report).holds && report.zeroed.isEmpty)
    #expect(values[0] == values[1] && values[2].dropLast() == values[0][...] && values[0] != Self.secret)
  }
  /// Headers tell what a packet is, also where nothing else of it is understood.
  @Test(arguments: ["1F 41 42 43", "77 01 02 00 41 42"]) func headersOfUnknownPDUs(_ text: String) {
    for channel: UInt8 in [4, 5, 6] {
      var packets = session([0x41])
      packets.frame(.fromController, channel: channel, octets(text))
      let scrubbed = TraceScrubber(seed: 3).scrub(captured(packets)).trace
      let kept = channel == 5 ? 4 : 1, pdu = Array(scrubbed.octets(of: scrubbed.records.last!).dropFirst(9))
      #expect(pdu.prefix(kept) == octets(text).prefix(kept) && pdu.dropFirst(kept).allSatisfy { $0 == 0 })
    }
  }
  private func holds(_ octets: [UInt8], _ part: [UInt8]) -> Bool {
    octets.indices.contains { octets[$0...].starts(with: part) }
  }
  /// Of a credit-based channel the length of each SDU stays. Vol 3, Part A, §3.4.3.
  @Test func serviceDataUnits() {
    var packets = session([0x41])
    packets.frame(.fromHost, channel: 5, octets("14 01 0A 00 80 00 40 00 40 00 17 00 05 00"))
    packets.frame(.fromController, channel: 5, octets("15 01 0A 00 51 00 40 00 17 00 05 00 00 00"))
    packets.frame(.fromHost, channel: 0x51, octets("06 00 41 42 43"))
    packets.frame(.fromHost, channel: 0x51, octets("44 45 46"))
    packets.frame(.fromHost, channel: 0x51, octets("02 00 47 48"))
    let trace = captured(packets), scrubbed = TraceScrubber(seed: 3).scrub(trace).trace
    let ends = scrubbed.records.suffix(3).map { Array(scrubbed.octets(of: $0).dropFirst(9)) }
    #expect(trace.records.count == scrubbed.records.count)
    #expect(ends == [[6, 0, 0, 0, 0], [0, 0, 0], [2, 0, 0, 0]])
  }

  /// A name that is not UTF-8, or is cut within a character, is as wrong afterwards. RFC 3629, §3.
  @Test(
    arguments: [
      "53 C3 28", "C3 A9 74 C3 A9", "E4 BD A0 E5 A5 BD", "F0 9F 98 80 61", "61 E4 BD", "61 C3", "C0 80", "ED A0 80",
      "F4 90 80 80", "80", "FF FE 41 00", "E0 80 80",
    ])
  func wrongNames(_ text: String) {
    let name = octets(text)
    for kind: UInt8 in [8, 9] {
      let data = [UInt8(name.count + 1), kind] + name
      var packets = Packets()
      packets.add(
        .fromController,
        [4, 0x3E, UInt8(12 + data.count), 2, 1, 0, 0] + Self.peer + [UInt8(data.count)] + data + [0xC0])
      let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace)
      #expect(ScrubProof(trace, scrubbed, report).holds)
      let new = Array(scrubbed.octets(of: scrubbed.records[0]).dropLast().suffix(name.count))
      for count in 1...name.count {
        let valid = [name, new].map { String(validating: $0[..<count], as: UTF8.self) != nil }
        #expect(valid[0] == valid[1], "\(text): \(new)")
      }
      #expect(new.count == name.count)
    }
  }

  /// A name that begins in one report and ends in the next: the second part has no structures of its own. Vol 4, Part E,
  /// §7.7.65.13.
  @Test func namesInPartsOfReports() {
    let name = Array("Testname Person".utf8), data = [16, 9] + name
    var packets = Packets()
    for (status, part) in [(0x20, data[..<9]), (0x00, data[9...])] as [(UInt8, ArraySlice<UInt8>)] {
      let head: [UInt8] = [0x0D, 1, status, 0, 0] + Self.peer + octets("01 00 FF 7F C0 00 00 00 00 00 00 00 00 00")
      packets.add(.fromController, [4, 0x3E, UInt8(head.count + 1 + part.count)] + head + [UInt8(part.count)] + part)
    }
    // The host's own data: the last fragment.
    packets.add(.fromHost, [1, 0x37, 0x20, 12, 0, 2, 1, 8] + name[7...])
    let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace)
    #expect(ScrubProof(trace, scrubbed, report).holds)
    #expect(scrubbed.octets(of: scrubbed.records[1]).suffix(8).allSatisfy { $0 == 0 })
    #expect(
      scrubbed.octets(of: scrubbed.records[2]) == [1, 0x37, 0x20, 12, 0, 2, 1, 8] + [UInt8](repeating: 0, count: 8))
  }

  /// A frame that never ends holds only so many records, and the passes agree what became of them.
  @Test func framesWithoutEnd() {
    var packets = Packets()
    packets.add(.fromController, octets("02 40 20 06 00 FF FF 04 00 1B 03"))
    for index in 0..<200 {
      packets.add(.fromController, [2, 0x40, 0x10, 0xFF, 0x00] + [UInt8](repeating: UInt8(index), count: 255))
      packets.frame(.fromController, handle: 0x41, octets("0B 41 42"))
    }
    let trace = captured(packets), (scrubbed, report) = TraceScrubber(seed: 3).scrub(trace)
    #expect(scrubbed.records.count == trace.records.count && ScrubProof(trace, scrubbed, report).holds)
    for record in scrubbed.records where record.octets.count == 260 {
      #expect(scrubbed.octets(of: record).dropFirst(5).allSatisfy { $0 == 0 })
    }
  }
}
