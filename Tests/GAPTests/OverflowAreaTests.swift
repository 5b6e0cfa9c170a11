import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import BindruneGAP

/// Observations of others, in Fixtures/Vectors/overflow.txt.
private struct Observations {
  struct Mapping { var uuid: BluetoothUUID, octet: Int, bits: UInt8 }
  struct Capture { var uuids: [BluetoothUUID], mask: [UInt8] }
  private(set) var mappings: [Mapping] = []
  private(set) var captures: [Capture] = []

  init() throws {
    let url = VectorFile.fixtures.appending(path: "Vectors/overflow.txt")
    for line in try String(contentsOf: url, encoding: .utf8).split(separator: "\n") where !line.hasPrefix("#") {
      if line.hasPrefix("mask ") {
        let parts = line.dropFirst(5).split(separator: ":")
        let uuids = parts[1].split(separator: " ")
        captures.append(
          Capture(uuids: try uuids.map { try #require(BluetoothUUID(String($0))) }, mask: octets(String(parts[0]))))
      } else {
        let words = line.split(separator: " ").map(String.init)
        try #require(words.count == 3, "\(line)")
        mappings.append(
          Mapping(
            uuid: try #require(BluetoothUUID(words[0])), octet: try #require(Int(words[1])),
            bits: try #require(UInt8(words[2], radix: 16))))
      }
    }
  }
}

@Suite("Overflow area") struct OverflowAreaTests {
  @Test("S31, S146: every observed UUID sets the bit that others observed") func observedMappings() throws {
    let mappings = try Observations().mappings
    #expect(mappings.count == 288)
    for mapping in mappings {
      var expected = [UInt8](repeating: 0, count: 16)
      expected[mapping.octet] = mapping.bits
      #expect(OverflowArea([mapping.uuid]).mask == expected, "\(mapping.uuid)")
      let bit = OverflowArea.bit(of: mapping.uuid)
      #expect(bit >> 3 == mapping.octet && UInt8(1) << UInt8(bit & 7) == mapping.bits, "\(mapping.uuid)")
    }
  }
  @Test("S31, S146: two captured masks of 33 and 20 UUIDs") func capturedMasks() throws {
    let captures = try Observations().captures
    #expect(captures.map(\.uuids.count) == [33, 20])
    for capture in captures {
      let area = OverflowArea(capture.uuids)
      #expect(area.mask == capture.mask)
      #expect(area.manufacturerData == [0x4C, 0x00, 0x01] + capture.mask)
      #expect(OverflowArea(manufacturerData: area.manufacturerData) == area)
    }
    // Of the 33, only those that overflowed in the foreground match its mask.
    let foreground = try #require(OverflowArea(mask: captures[1].mask))
    #expect(captures[0].uuids.filter { foreground.contains($0) } == captures[1].uuids)
  }

  @Test("S32: a scan for a UUID finds it, and also one that shares its bit") func matching() {
    let area = OverflowArea(["1001"])
    #expect(area.contains("1001") && area.contains("3333") && !area.contains("C007"))
    #expect(OverflowArea(["1001", "3333"]) == area)
    #expect(OverflowArea().isEmpty && !area.isEmpty)
    #expect(!OverflowArea().contains("1001"))
  }
  /// The 128-bit form decides, in whichever form the UUID is given.
  @Test func formsOfAUUIDShareTheBit() {
    let forms: [BluetoothUUID] = ["C007", BluetoothUUID(0xC007 as UInt32), "0000C007-0000-1000-8000-00805F9B34FB"]
    for form in forms { #expect(OverflowArea([form]).mask == OverflowArea(["C007"]).mask) }
  }
  @Test func otherManufacturerDataIsNoOverflowArea() {
    let mask = [UInt8](repeating: 0xA5, count: 16)
    #expect(OverflowArea(manufacturerData: [0x4C, 0x00, 0x01] + mask)?.mask == mask)
    for other: [UInt8] in [
      [], [0x4C, 0x00], [0x4C, 0x00, 0x01], [0x4C, 0x00, 0x02] + mask, [0x00, 0x4C, 0x01] + mask,
      [0x4C, 0x00, 0x01] + mask.dropLast(), [0x4C, 0x00, 0x01] + mask + [0],
    ] { #expect(OverflowArea(manufacturerData: other) == nil, "\(other)") }
    for count in [0, 1, 15, 17, 32] { #expect(OverflowArea(mask: [UInt8](repeating: 1, count: count)) == nil) }
  }
  @Test func everyMaskIsReadAndWrittenAlike() {
    var generator = SplitMix64(seed: 0x0F10)
    for _ in 0..<500 {
      let mask = (0..<16).map { _ in UInt8.random(in: 0...255, using: &generator) }
      #expect(OverflowArea(mask: mask)?.mask == mask)
    }
  }
}
