import BindruneWire
import TestSupport
import Testing

@testable import BindruneGAP

private let one128: BluetoothUUID = "00112233-4455-6677-8899-AABBCCDDEEFF"
private let one128Octets: [UInt8] = [
  0xFF, 0xEE, 0xDD, 0xCC, 0xBB, 0xAA, 0x99, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x00,
]
/// nRF Connect's captures, as Fixtures/Vectors/overflow.txt has them.
private let thirtyThree: [BluetoothUUID] = [
  "4382", "4F02", "DDC3", "77EA", "B5BB", "8AE4", "2A9C", "DBB5", "1135", "6B07", "20F8", "AB5D", "2B63", "E29E",
  "21C2",
  "19BB", "D0EB", "4021", "3D92", "885C", "89C4", "1FBB", "CE5C", "712F", "2412", "26FE", "9770", "A9D8", "9AF2",
  "4ADF",
  "6FB4", "E852", "6619",
]

/// Expected octets are those of captures, with our flags (06, an LE-only device's) for an iPhone's (1A): AD and scan
/// response of real iPhones, from pagepinner's (2014), Crownstone's and others' public reports.
@Suite("Packing like Core Bluetooth") struct CoreBluetoothPackingTests {
  private static func pack(
    _ data: AdvertisingData, _ kind: AdvertisingParameters.Kind = .connectable, isInBackground: Bool = false
  ) -> PackedAdvertisement {
    AdvertisingPacker(.coreBluetooth, kind: kind).pack(data, isInBackground: isInBackground)
  }

  @Test("S143, S145, S148: a service and a name, as captured (Crownstone: \"Fred\" and C007)") func fred() {
    let packed = Self.pack(AdvertisingData(localName: "Fred", serviceUUIDs: ["C007"]))
    #expect(packed.payloads.advertising == octets("02 01 06 03 03 07 C0 05 09 46 72 65 64"))
    #expect(packed.payloads.scanResponse == [] && packed.payloads.usesLegacyPDUs)
    #expect(packed.leftOut == [] && packed.overflow == [] && !packed.isNameShortened)
  }
  @Test(
    "S143, S145, S146: 28 octets hold a 128-bit UUID and 8 of the name, the rest overflows, as captured (LightBlue)")
  func lightBlue() {
    let data = AdvertisingData(
      localName: "LightBlue", serviceUUIDs: [one128, "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
    let packed = Self.pack(data)
    #expect(
      packed.payloads.advertising
        == octets("02 01 06 11 06") + one128Octets + octets("09 08") + Array("LightBlu".utf8))
    let mask = OverflowArea(["A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"]).mask
    #expect(packed.payloads.scanResponse == octets("14 FF 4C 00 01") + mask)
    #expect(
      packed.isNameShortened && packed.overflow == ["A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"] && packed.leftOut == [])
  }
  @Test("S143, S146: of 33 UUIDs 13 fit and 20 overflow, as captured (nRF Connect)") func thirtyThreeUUIDs() {
    let packed = Self.pack(AdvertisingData(serviceUUIDs: thirtyThree))
    #expect(
      packed.payloads.advertising
        == octets("02 01 06 1B 02 82 43 02 4F C3 DD EA 77 BB B5 E4 8A 9C 2A B5 DB 35 11 07 6B F8 20 5D AB 63 2B"))
    #expect(
      packed.payloads.scanResponse
        == octets("14 FF 4C 00 01 00 00 00 00 00 00 00 00 10 0F 0E 0D 0C 0B 0A 09"))
    #expect(packed.overflow == Array(thirtyThree[13...]))
  }
  @Test("S29, S30, S31, S147: in the background no name, and all UUIDs in the overflow area, as captured (nRF Connect)")
  func background() {
    let packed = Self.pack(AdvertisingData(localName: "Fred", serviceUUIDs: thirtyThree), isInBackground: true)
    #expect(
      packed.payloads.advertising
        == octets("02 01 06 14 FF 4C 00 01 08 07 06 05 04 03 02 01 10 0F 0E 0D 0C 0B 0A 09"))
    #expect(packed.payloads.scanResponse == [] && packed.overflow == thirtyThree)
    #expect(packed.leftOut.map(\.reason) == [.inBackground] && packed.leftOut.map(\.item.description) == ["name"])
    #expect(packed.placements.filter { $0.fate == .overflow(.advertising) }.count == 33)
    // S32: only scanners that name them find them.
    let heard = AdvertisingData(decoding: packed.payloads.advertising.span)
    #expect(heard.serviceUUIDs == [] && thirtyThree.allSatisfy { heard.overflowArea?.contains($0) == true })
    let nothing = Self.pack(AdvertisingData(localName: "Fred"), isInBackground: true)
    #expect(nothing.payloads.advertising == octets("02 01 06"))
  }
  @Test("S143, S148: 16-bit UUIDs come first on the air, as captured (Crownstone: four and a 128-bit one)")
  func shortUUIDsFirst() {
    let expected = octets("02 01 06 09 03 01 00 02 00 03 00 04 00 11 07") + one128Octets
    let short: [BluetoothUUID] = ["0001", "0002", "0003", "0004"]
    for uuids in [short + [one128], [one128] + short] {
      #expect(Self.pack(AdvertisingData(serviceUUIDs: uuids)).payloads.advertising == expected)
    }
  }
  @Test("S143, S146: UUIDs are chosen in the caller's order, and smaller ones are still tried") func callersOrder() {
    // 18 octets of 28 for the first; 2 and four times 2 for the next ones; the others overflow.
    let eight = (1...8).map { BluetoothUUID.short($0) }
    let packed = Self.pack(AdvertisingData(localName: "Fred", serviceUUIDs: [one128] + eight))
    // Supplement, Part A, §1.1: the 16-bit list is incomplete (0x02), and that of the one 128-bit UUID complete (0x07).
    #expect(
      packed.payloads.advertising == octets("02 01 06 09 02 01 00 02 00 03 00 04 00 11 07") + one128Octets)
    #expect(packed.overflow == ["0005", "0006", "0007", "0008"])
    // The advertising data have no room for the name: 8 octets go beside the overflow area.
    let mask = OverflowArea(packed.overflow).mask
    #expect(packed.payloads.scanResponse == octets("14 FF 4C 00 01") + mask + octets("05 09") + Array("Fred".utf8))
    // A second 128-bit UUID does not fit, and a 16-bit one after it does.
    let mixed = Self.pack(AdvertisingData(serviceUUIDs: [one128, "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "180D"]))
    #expect(mixed.payloads.advertising == octets("02 01 06 03 03 0D 18 11 06") + one128Octets)
    #expect(mixed.overflow == ["A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
  }
  @Test("S148: UUIDs of 32 bits have their own lists") func uuidsOf32Bits() {
    let packed = Self.pack(AdvertisingData(serviceUUIDs: ["12345678", one128, "180D"]))
    #expect(packed.payloads.advertising == octets("02 01 06 03 03 0D 18 05 05 78 56 34 12 11 07") + one128Octets)
    // The long form of a short UUID is the same UUID, and is sent once.
    let forms = Self.pack(
      AdvertisingData(serviceUUIDs: [
        "0000180D-0000-1000-8000-00805F9B34FB", "180D", "12345678-0000-1000-8000-00805F9B34FB",
      ]))
    #expect(forms.payloads.advertising == octets("02 01 06 03 03 0D 18 05 05 78 56 34 12"))
  }
  @Test("S144, S145: the scan response has 10 octets for the name, 8 beside the overflow area")
  func nameInTheScanResponse() {
    let full = (1...13).map { BluetoothUUID.short($0) }
    func response(_ name: String, _ uuids: [BluetoothUUID]) -> [UInt8] {
      let packed = Self.pack(AdvertisingData(localName: name, serviceUUIDs: uuids))
      #expect(packed.isNameShortened == (name.utf8.count > (uuids.count > 13 ? 8 : 10)) && packed.leftOut == [])
      return packed.payloads.scanResponse
    }
    #expect(response("0123456789", full) == octets("0B 09") + Array("0123456789".utf8))
    #expect(response("0123456789A", full) == octets("0B 08") + Array("0123456789".utf8))
    let mask = OverflowArea([.short(14)]).mask, area = octets("14 FF 4C 00 01") + mask
    #expect(response("01234567", full + [.short(14)]) == area + octets("09 09") + Array("01234567".utf8))
    #expect(response("012345678", full + [.short(14)]) == area + octets("09 08") + Array("01234567".utf8))
    // Cut at a character's end.
    #expect(response("ßßßßßß", full) == octets("0B 08") + Array("ßßßßß".utf8))
    #expect(response("aßßßßß", full) == octets("0A 08") + Array("aßßßß".utf8))
  }
  @Test("S143: a name is cut in the advertising data if a character of it fits, else it moves") func nameCutOrMoved() {
    // 28 − 18 octets: a header and 8, as a receiver observed it from an iPhone ("01234567").
    let name = Self.pack(AdvertisingData(localName: "0123456789", serviceUUIDs: [one128]))
    #expect(
      name.payloads.advertising == octets("02 01 06 11 07") + one128Octets + octets("09 08") + Array("01234567".utf8))
    #expect(name.placements.last?.fate == .shortened(.advertising, octets: 8))
    // Three 16-bit UUIDs beside it leave 2: a header without a name. Then it moves.
    let moved = Self.pack(AdvertisingData(localName: "A name", serviceUUIDs: [one128, "0001", "0002", "0003"]))
    #expect(
      moved.payloads.scanResponse == octets("07 09") + Array("A name".utf8) && moved.payloads.advertising.count == 29)
    // 12 UUIDs leave 2 as well; 11 leave 4: two octets of name, too few for the emoji.
    let eleven = (1...11).map { BluetoothUUID.short($0) }
    let ab = Self.pack(AdvertisingData(localName: "ABC", serviceUUIDs: eleven)).payloads
    #expect(ab.advertising.suffix(4) == octets("03 08") + Array("AB".utf8) && ab.scanResponse == [])
    let wave = Self.pack(AdvertisingData(localName: "🌊", serviceUUIDs: eleven)).payloads
    #expect(wave.advertising.count == 27 && wave.scanResponse == octets("05 09 F0 9F 8C 8A"))
  }
  @Test("S86: other data are no keys of Core Bluetooth, and the packer reports them as left out") func otherKeys() {
    var data = AdvertisingData(localName: "Fred", serviceUUIDs: ["C007"], flags: nil)
    data.txPowerLevel = 4
    data.manufacturerDataList = [[0xFF, 0xFF, 1], [0xFE, 0xFF, 2]]
    data.solicitedServiceUUIDs = ["180A"]
    let packed = Self.pack(data)
    #expect(packed.payloads.advertising == octets("02 01 06 03 03 07 C0 05 09 46 72 65 64"))
    #expect(packed.leftOut.count == 4 && packed.leftOut.allSatisfy { $0.reason == .notInThisPolicy })
  }
  /// A beacon has no scan response: data for it are left out.
  @Test func withoutAScanResponse() {
    let packed = Self.pack(AdvertisingData(localName: "Fred", serviceUUIDs: thirtyThree), .nonconnectable)
    #expect(packed.payloads.scanResponse == [] && packed.overflow == [])
    #expect(packed.leftOut.count == 21)
    #expect(packed.leftOut.first?.reason == .noRoom(needed: 21, available: 0))
  }
}

@Suite("Packing") struct PackingTests {
  @Test func splitsOverBothLegacyPayloads() {
    let data = AdvertisingData(localName: "A sensor with a name", serviceUUIDs: ["180D", one128])
    let packed = AdvertisingPacker(.standard).pack(data)
    #expect(packed.payloads.advertising == octets("02 01 06 03 03 0D 18 11 07") + one128Octets)
    #expect(packed.payloads.scanResponse == [0x15, 0x09] + Array("A sensor with a name".utf8))
    #expect(packed.leftOut == [] && packed.usesLegacyPDUs)
  }
  /// A list that fits neither place is split, and both parts are marked incomplete.
  @Test func splitsAList() {
    let uuids: [BluetoothUUID] = [
      one128, "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00",
    ]
    let packed = AdvertisingPacker(.standard).pack(AdvertisingData(serviceUUIDs: uuids))
    #expect(packed.payloads.advertising == octets("02 01 06 11 06") + one128Octets)
    #expect(
      packed.payloads.scanResponse == octets("11 06 00 0C 1A 5F 0E 6F 5C 8E BD 4B 1D 1D 00 00 B1 A0"))
    #expect(packed.leftOut == [.init(item: .serviceUUID(uuids[2]), reason: .noRoom(needed: 16, available: 13))])
    #expect(packed.leftOut.first?.description == "service \(uuids[2]) needs 16 octets and 13 are free")
  }
  /// Supplement, Part A, §1.2: a name that does not fit is cut at a character's end, and marked shortened.
  @Test func shortensTheName() {
    func names(_ data: AdvertisingData, _ kind: AdvertisingParameters.Kind) -> [[UInt8]] {
      let payloads = AdvertisingPacker(.standard, kind: kind).pack(data).payloads
      return [payloads.advertising, payloads.scanResponse]
    }
    // 15 characters of 2 octets: 29 are free in the scan response, 26 beside the flags.
    let data = AdvertisingData(localName: String(repeating: "ß", count: 15))
    let fourteen: [UInt8] = [0x1D, 0x08] + Array(String(repeating: "ß", count: 14).utf8)
    #expect(names(data, .connectable) == [[2, 1, 6], fourteen])
    #expect(names(data, .nonconnectable)[0] == [2, 1, 6, 0x1B, 0x08] + Array(fourteen[2..<28]))
    var full = AdvertisingData(localName: "🌊", flags: nil)
    full.manufacturerData = [UInt8](repeating: 0xFF, count: 25)
    // A character is not cut.
    let packed = AdvertisingPacker(.standard, kind: .nonconnectable).pack(full)
    #expect(packed.leftOut.map(\.description) == ["name needs 6 octets and 4 are free"])
    // Other data have priority, of any type.
    full = AdvertisingData(localName: String(repeating: "n", count: 40), flags: nil)
    full.other = [.init(type: 0x33, data: [UInt8](repeating: 7, count: 29))]
    #expect(names(full, .connectable)[1] == [30, 8] + Array(String(repeating: "n", count: 29).utf8))
    // A name that is not UTF-8 is cut at an octet.
    full = AdvertisingData(flags: nil)
    full.localNameOctets = [UInt8](repeating: 0x80, count: 40)
    #expect(names(full, .nonconnectable)[0] == [30, 8] + [UInt8](repeating: 0x80, count: 29))
  }
  /// Vol 4, Part E, §7.8.53: the place and length of data in extended PDUs.
  @Test func extendedPayloadsAreInOnePlace() {
    let short = AdvertisingData(localName: "n")
    for (kind, place) in [(.connectable, 0), (.scannable, 1), (.nonconnectable, 0)]
      as [(AdvertisingParameters.Kind, Int)]
    {
      let extended = AdvertisingPacker(.extended, kind: kind, longestExtended: 31).pack(short)
      let whole = octets("02 01 06 02 09 6E"), payloads = extended.payloads
      // Flags do not go into a scan response: Supplement, Part A, §1.3.
      #expect([payloads.advertising, payloads.scanResponse] == (place == 0 ? [whole, []] : [[], octets("02 09 6E")]))
      #expect(!payloads.usesLegacyPDUs)
      #expect(extended.leftOut.map(\.description) == (place == 0 ? [] : ["flags cannot be in a scan response"]))
      // A controller of 4.x has none.
      let legacy = AdvertisingPacker(.extended, kind: kind).pack(short)
      #expect(legacy.usesLegacyPDUs && legacy.payloads.advertising == whole && legacy.leftOut == [])
    }
    var data = AdvertisingData(localName: String(repeating: "n", count: 300), flags: nil)
    data.manufacturerData = [UInt8](repeating: 7, count: 200)
    func count(_ kind: AdvertisingParameters.Kind, _ longest: Int?) -> Int {
      AdvertisingPacker(.extended, kind: kind, longestExtended: longest).pack(data).payloads.advertising.count
    }
    #expect(count(.connectable, 1650) == 245 && count(.nonconnectable, 251) == 251)
    // A structure's length is one octet: 254 octets of name.
    #expect(count(.nonconnectable, 1650) == 202 + 256)
    // On a 4.x controller the packer names the data that do not fit.
    let fallback = AdvertisingPacker(.extended).pack(data)
    #expect(fallback.usesLegacyPDUs && fallback.isNameShortened)
    #expect(fallback.leftOut.map(\.description) == ["manufacturer data needs 202 octets and 31 are free"])
    data.manufacturerData = [UInt8](repeating: 7, count: 255)
    let tooLong = AdvertisingPacker(.extended, kind: .nonconnectable, longestExtended: 1650).pack(data)
    #expect(tooLong.leftOut.map(\.reason) == [.noRoom(needed: 257, available: 256)])
  }
  /// Data that fit legacy PDUs go out in them, because every scanner receives these.
  @Test func everything() {
    func packed(_ data: AdvertisingData, _ longest: Int?) -> PackedAdvertisement {
      AdvertisingPacker(.everything, longestExtended: longest).pack(data)
    }
    // A long name alone does not cause extended PDUs, which many phones do not receive; other long data do, and then
    // the name is whole.
    var long = AdvertisingData(localName: String(repeating: "n", count: 60))
    #expect(packed(long, 1650).usesLegacyPDUs)
    long.manufacturerData = [UInt8](repeating: 0xFF, count: 40)
    let whole = packed(long, 1650)
    #expect(!whole.usesLegacyPDUs && whole.payloads.advertising.count == 3 + 42 + 62)
    #expect(AdvertisingData(decoding: whole.payloads.advertising.span) == long)
    // Without extended PDUs, or with too few octets in them, the data are left out: a host refuses.
    #expect(packed(long, nil).leftOut.map(\.description) == ["manufacturer data needs 42 octets and 31 are free"])
    #expect(packed(long, 40).usesLegacyPDUs && packed(long, 40).leftOut == packed(long, nil).leftOut)
  }
  @Test("S31, S146: the controller gets what was packed, whatever commands it has", arguments: [false, true])
  func theControllerGetsIt(isExtended: Bool) throws {
    var bench = isExtended ? Bench.started(controller: .extended) : Bench.started()
    let data = AdvertisingData(localName: "Fred", serviceUUIDs: thirtyThree)
    for isInBackground in [false, true] {
      var parameters = AdvertisingParameters(policy: .coreBluetooth)
      parameters.isInBackground = isInBackground
      let packed = try bench.core.pack(data, parameters)
      bench.perform { core, now in
        do throws(AdvertisingError) { same(try core.advertise(data, parameters, now: now), packed) } catch {
          Issue.record("\(error)")
        }
      }
      var texts: [String] = []
      repeat { texts.append(bench.lastCommand) } while bench.answer()
      #expect(texts.contains { $0.contains("Advertising_Data: \(hex(packed.payloads.advertising))") })
      #expect(texts.contains { isInBackground || $0.contains("Response_Data: \(hex(packed.payloads.scanResponse))") })
    }
    // Data that a 4.x controller cannot send are left out and reported; with `everything`, the host refuses.
    var long = AdvertisingData(localName: "long")
    long.manufacturerData = [UInt8](repeating: 7, count: 40)
    let packed = try bench.core.pack(long, AdvertisingParameters(policy: .extended))
    #expect(packed.usesLegacyPDUs != isExtended && packed.leftOut.isEmpty == isExtended)
    if !isExtended {
      #expect(throws: AdvertisingDataError.leftOut(packed.leftOut)) { try bench.core.pack(long) }
    }
    // Flags without a place are no reason to refuse.
    if isExtended { #expect(try !bench.core.pack(long, AdvertisingParameters(kind: .scannable)).usesLegacyPDUs) }
  }
  /// Data that a scanner could not decode are not sent: Supplement, Part A.
  @Test func malformedIsLeftOut() {
    var data = AdvertisingData()
    data.manufacturerData = [0xFF]
    data.other = [
      .init(type: .completeServiceUUIDs16, data: [0x0D]), .init(type: .leRole, data: [0, 0]),
      .init(type: .completeServiceUUIDs16, data: [0x0F, 0x18]), .init(type: .flags, data: [0x05]),
    ]
    let packed = AdvertisingPacker(.standard).pack(data)
    #expect(packed.payloads.advertising == octets("02 01 06 03 03 0F 18"))
    #expect(packed.leftOut.map(\.reason) == [.alreadySaid, .malformed, .malformed, .malformed])
  }

  // MARK: Several applications

  @Test("S142: several applications take turns, the same UUID counts once, the first name wins")
  func severalApplications() {
    let a = AdvertisingData(localName: "A", serviceUUIDs: (1...12).map { .short($0) })
    let b = AdvertisingData(localName: "B", serviceUUIDs: ["0001", "1001", "1002", "1003"])
    let packer = AdvertisingPacker(.coreBluetooth)
    let packed = packer.pack([.init(a), .init(b)])
    // By turns 1 (of both), 2, 1001, 3, 1002, 4, 1003, then the rest of A's: 13 of the 15 in all.
    #expect(
      packed.payloads.advertising
        == octets("02 01 06 1B 02 01 00 02 00 01 10 03 00 02 10 04 00 03 10 05 00 06 00 07 00 08 00 09 00 0A 00"))
    #expect(packed.overflow == ["000B", "000C"])
    #expect(
      packed.payloads.scanResponse == octets("14 FF 4C 00 01") + OverflowArea(packed.overflow).mask + octets("02 09 41")
    )
    // The result lists the fate of each application's items.
    #expect(packed.placements(of: b).map(\.fate).filter { $0 == .whole(.advertising) }.count == 5)
    #expect(packed.placements(of: b).last?.fate == .leftOut(.alreadySaid))
    #expect(packed.placements(of: a).filter { $0.fate == .overflow(.scanResponse) }.count == 2)
    #expect(packed == packer.pack([.init(a), .init(b)]))
  }
  @Test("S31, S142: UUIDs of background applications overflow beside the others' advertisement") func mixedGrounds() {
    let front = AdvertisingData(localName: "Front", serviceUUIDs: ["180D"])
    let back = AdvertisingData(localName: "Back", serviceUUIDs: ["C007", "180D"])
    let packer = AdvertisingPacker(.coreBluetooth)
    let packed = packer.pack([.init(back, isInBackground: true), .init(front)])
    #expect(packed.payloads.advertising.starts(with: octets("02 01 06 03 02 0D 18")))
    #expect(packed.overflow == ["C007"])
    // Seen on the air: C007 sets bit 0x10 of octet 4.
    #expect(packed.payloads.scanResponse == octets("14 FF 4C 00 01 00 00 00 00 10 00 00 00 00 00 00 00 00 00 00 00"))
    let both = packer.pack([.init(back, isInBackground: true), .init(front, isInBackground: true)])
    #expect(both.payloads.scanResponse == [] && both.overflow == ["C007", "180D"])
    #expect(both.payloads.advertising.count == 24)
  }

  // MARK: Bad input

  private struct Chance {
    var generator: SplitMix64
    mutating func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &generator) }
    mutating func bytes(_ count: Int) -> [UInt8] {
      (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
    }
    mutating func uuid() -> BluetoothUUID {
      switch number(0...2) {
      // Few enough to cause duplicates.
      case 0: .short(UInt16(0x1800 + number(0...60)))
      case 1: BluetoothUUID(UInt32(number(0x1_0000...0x1_0020)))
      default: .long(low: UInt64(number(0...20)), high: generator.next() & 0xF)
      }
    }
    /// A name of any length: characters of every width, or octets that are not text.
    mutating func name() -> [UInt8] {
      let count = number(0...300)
      if number(0...3) == 0 { return bytes(count) }
      var name: [UInt8] = []
      while name.count < count { name += Array(["a", "ß", "€", "🌊", "e\u{301}"][number(0...4)].utf8) }
      return name
    }
    mutating func data() -> AdvertisingData {
      var data = AdvertisingData(flags: number(0...3) == 0 ? nil : UInt8(number(0...31)))
      if number(0...4) > 0 { data.localNameOctets = name() }
      data.isNameShortened = data.localNameOctets != nil && number(0...5) == 0
      let most = [3, 20, 200][number(0...2)]
      data.serviceUUIDs = (0..<number(0...most)).map { _ in uuid() }
      if number(0...2) == 0 { data.solicitedServiceUUIDs = (0..<number(0...20)).map { _ in uuid() } }
      if number(0...1) == 0 { data.txPowerLevel = Int8(number(-127...20)) }
      if number(0...1) == 0 { data.appearance = UInt16(number(0...0xFFFF)) }
      let longest = [4, 40, 400][number(0...2)]
      data.serviceData = (0..<number(0...3)).map { _ in .init(uuid: uuid(), data: bytes(number(0...longest))) }
      data.manufacturerDataList = (0..<number(0...3)).map { _ in bytes(number(0...longest)) }
      data.other = (0..<number(0...3)).map { _ in
        .init(type: ADType(rawValue: UInt8(number(0...255))), data: bytes(number(0...longest)))
      }
      return data
    }
  }

  /// Names of 0 to 300 octets, up to 200 UUIDs with duplicates, oversized data, data of impossible lengths.
  @Test(
    "S143, S144, S146, S148: any request fits, decodes to the same data, and every item has a result",
    arguments: 0..<20)
  func anything(seed: UInt64) {
    var chance = Chance(generator: SplitMix64(seed: 0xAD5_0000 + seed))
    print("packing: seed \(seed)")
    for _ in 0..<100 {
      let sources = (0..<[1, 1, 1, 3][chance.number(0...3)]).map { _ in
        AdvertisingPacker.Source(chance.data(), isInBackground: chance.number(0...3) == 0)
      }
      let kind: AdvertisingParameters.Kind = [.connectable, .scannable, .nonconnectable][chance.number(0...2)]
      for policy in AdvertisingPacker.Policy.allCases {
        let longest = [nil, 31, 251, 1650][chance.number(0...3)]
        let packed = AdvertisingPacker(policy, kind: kind, longestExtended: longest).pack(sources)
        #expect(
          Self.problem(packed, sources, kind, longest) == nil, "seed \(seed), \(policy), \(kind), \(longest ?? 0)")
        if policy == .coreBluetooth { #expect(packed.usesLegacyPDUs && packed.advertising.first?.type == .flags) }
      }
    }
  }
  /// Nil: nothing is wrong.
  private static func problem(
    _ packed: PackedAdvertisement, _ sources: [AdvertisingPacker.Source], _ kind: AdvertisingParameters.Kind,
    _ longest: Int?
  ) -> String? {
    let payloads = packed.payloads, most = packed.usesLegacyPDUs ? 31 : longest ?? 0
    if payloads.advertising.count > most || payloads.scanResponse.count > most { return "too long" }
    if packed.usesLegacyPDUs, kind == .nonconnectable, !payloads.scanResponse.isEmpty { return "no scan response here" }
    // The codec decodes the payloads, structure by structure, without a fault.
    for (octets, structures) in [
      (payloads.advertising, packed.advertising), (payloads.scanResponse, packed.scanResponse),
    ] {
      let (read, fault) = AdvertisingData.Structure.list(decoding: octets.span)
      if read != structures || fault != nil { return "reads back otherwise" }
    }
    var heard = AdvertisingData(decoding: payloads.advertising.span)
    heard.merge(payloads.scanResponse.span)
    if let fault = heard.fault { return "\(fault)" }
    // Every item has one result, and items reported as packed are in the payloads.
    let fates = Dictionary(grouping: packed.placements, by: \.item)
    let asked = Set(sources.flatMap(\.data.items))
    if Set(fates.keys) != asked || fates.values.contains(where: { $0.count != 1 }) { return "not one fate each" }
    let heardItems = Set(heard.items), area = heard.overflowArea
    for placement in packed.placements {
      switch (placement.fate, placement.item) {
      case (.whole, _): if !heardItems.contains(placement.item) { return "\(placement.item) is not there" }
      case (.overflow, .serviceUUID(let uuid)): if area?.contains(uuid) != true { return "\(uuid) has no bit" }
      case (.shortened(_, let octets), .structure(let name)):
        guard let cut = heard.localNameOctets, heard.isNameShortened, cut.count == octets, octets > 0,
          name.data.starts(with: cut), name.data.count > octets
        else { return "not that name" }
        let isText = String(validating: name.data, as: UTF8.self) != nil
        if isText, String(validating: cut, as: UTF8.self) == nil { return "a character is cut" }
      case (.leftOut, _): break
      default: return "\(placement.item) cannot be \(placement.fate)"
      }
    }
    return nil
  }
}
