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
    let trace = captured(identity), (scrubbed, report) = TraceScrubber(seed: 5).scrub(trace)
    let proof = ScrubProof(trace, scrubbed, report)
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
    #expect(!unchanged.holds && Set(unchanged.remaining.map(\.what)) == ["addresses", "keys", "names"])
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
}
