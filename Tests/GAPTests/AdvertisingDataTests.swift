import BindruneWire
import TestSupport
import Testing

@testable import BindruneGAP

@Suite("Advertising data") struct AdvertisingDataTests {
  /// Octets composed by hand from the Core Specification Supplement, Part A: §1.1 (UUIDs), §1.2 (name), §1.3 (flags),
  /// §1.4 (manufacturer), §1.5 (TX power), §1.11 (service data), §1.12 (appearance).
  static let everything: [UInt8] = [
    0x02, 0x01, 0x06,
    0x05, 0x03, 0x0D, 0x18, 0x0F, 0x18,
    0x05, 0x05, 0x78, 0x56, 0x34, 0x12,
    0x11, 0x07, 0x00, 0x0C, 0x1A, 0x5F, 0x0E, 0x6F, 0x5C, 0x8E, 0xBD, 0x4B, 0x1D, 0x1D, 0x00, 0x00, 0xB1, 0xA0,
    0x05, 0x09, 0x62, 0x6C, 0x75, 0x65,
    0x02, 0x0A, 0xF4,
    0x03, 0x19, 0x41, 0x03,
    0x05, 0x16, 0x0F, 0x18, 0x57, 0x01,
    0x05, 0xFF, 0x4C, 0x00, 0xAA, 0xBB,
    0x03, 0x14, 0x0A, 0x18,
    0x02, 0x29, 0x00,
  ]

  @Test func decodesEveryKind() {
    let data = AdvertisingData(decoding: Self.everything.span)
    #expect(data.flags == 0x06)
    #expect(data.serviceUUIDs == ["180D", "180F", "12345678", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
    #expect(data.localName == "blue")
    #expect(!data.isNameShortened)
    #expect(data.txPowerLevel == -12)
    #expect(data.appearance == 0x0341)
    #expect(data.serviceData == [.init(uuid: "180F", data: [0x57, 0x01])])
    #expect(data.manufacturerData == [0x4C, 0x00, 0xAA, 0xBB])
    #expect(data.solicitedServiceUUIDs == ["180A"])
    #expect(data.other == [.init(type: .pbADV, data: [0x00])])
    #expect(data.fault == nil)
  }

  /// Supplement, Part A, §1.4 and §1.11: several in a block, and again in the scan response.
  @Test func valuesThatRepeatAreKept() {
    func decoded(_ text: String) -> AdvertisingData { AdvertisingData(decoding: octets(text).span) }
    var data = decoded("020106 05FF5444 0102 05FFCD0A 2233 0616D8FE 00B801 0616D8FE 00B802 042AAAAAAA")
    #expect(data.manufacturerDataList == [octets("5444 0102"), octets("CD0A 2233")])
    #expect(data.serviceData.map(\.data) == [octets("00B801"), octets("00B802")])
    // The same company and UUID with other values, the same value.
    data.join(
      decoded("05FF5444 3B3D 05FFCD0A 2233 05FF4C00 1001 0616D8FE 00B803 0616D8FE 00B801 042ABBBBBB"))
    #expect(
      data.manufacturerDataList == [
        octets("5444 0102"), octets("CD0A 2233"), octets("5444 3B3D"), octets("4C00 1001"),
      ])
    #expect(data.serviceData.map(\.data) == [octets("00B801"), octets("00B802"), octets("00B803")])
    #expect(data.other.map(\.data).contains(octets("AAAAAA")) && data.other.map(\.data).contains(octets("BBBBBB")))
    #expect(data.flags == 0x06)
  }
  /// A response's fault is one of both.
  @Test func theResponsesFaultIsKept() {
    var data = AdvertisingData(decoding: octets("020106").span)
    data.join(AdvertisingData(decoding: octets("0209").span))
    #expect(data.fault != nil)
  }

  @Test func keepsValidStructuresBeforeAnOverrun() {
    let data = AdvertisingData(decoding: ([0x02, 0x01, 0x06, 0x09, 0x09, 0x61] as [UInt8]).span)
    #expect(data.flags == 0x06)
    #expect(data.localName == nil)
    #expect(data.fault == .overrun(offset: 3, needed: 10, available: 3))
  }
  @Test func endsAtAZeroLength() {
    let quiet = AdvertisingData(decoding: ([0x02, 0x01, 0x06, 0x00, 0x00] as [UInt8]).span)
    #expect(quiet.fault == nil)
    let noisy = AdvertisingData(decoding: ([0x02, 0x01, 0x06, 0x00, 0x00, 0x02, 0x0A, 0x01] as [UInt8]).span)
    #expect(noisy.flags == 0x06)
    #expect(noisy.txPowerLevel == nil)
    #expect(noisy.fault == .dataAfterEnd(offset: 5))
  }
  @Test func namesStructuresOfImpossibleLength() {
    let data = AdvertisingData(decoding: ([0x04, 0x03, 0x0D, 0x18, 0x0F, 0x02, 0x0A, 0x04] as [UInt8]).span)
    #expect(data.serviceUUIDs.isEmpty)
    #expect(data.txPowerLevel == 4)
    #expect(data.fault == .malformed(offset: 0, type: .completeServiceUUIDs16))
  }
  @Test func aShortenedNameDoesNotReplaceACompleteOne() {
    var data = AdvertisingData(decoding: ([0x03, 0x08, 0x62, 0x6C] as [UInt8]).span)
    #expect(data.localName == "bl" && data.isNameShortened)
    data.merge(([0x05, 0x09, 0x62, 0x6C, 0x75, 0x65] as [UInt8]).span)
    #expect(data.localName == "blue" && !data.isNameShortened)
    data.merge(([0x03, 0x08, 0x62, 0x6C] as [UInt8]).span)
    #expect(data.localName == "blue" && !data.isNameShortened)
  }

  // MARK: Every type

  /// Octets composed by hand from the Supplement, Part A, the section in brackets; then our values. Each value that is
  /// read is written as the same octets.
  @Test("S148: every assigned type is read, and written as the same octets") func everyAssignedType() {
    func check<Value: Equatable>(
      _ hex: String, _ path: WritableKeyPath<AdvertisingData, Value>, _ value: Value,
      _ location: SourceLocation = #_sourceLocation
    ) {
      let wire = octets(hex), read = AdvertisingData(decoding: wire.span)
      #expect(read.fault == nil && read[keyPath: path] == value, sourceLocation: location)
      #expect(read.structures().flatMap(\.octets) == wire, sourceLocation: location)
      var written = AdvertisingData(flags: nil)
      written[keyPath: path] = value
      #expect(written.structures().flatMap(\.octets) == wire, sourceLocation: location)
    }
    check("02 01 06", \.flags, 6)  // §1.3
    check("05 03 0D 18 0F 18", \.serviceUUIDs, ["180D", "180F"])  // §1.1
    check("05 05 78 56 34 12", \.serviceUUIDs, ["12345678"])
    check("05 09 46 72 65 64", \.localName, "Fred")  // §1.2
    check("02 0A F4", \.txPowerLevel, -12)  // §1.5
    check("04 0D 04 01 5A", \.classOfDevice, 0x5A0104)  // §1.6
    check("05 12 06 00 80 0C", \.peripheralConnectionIntervalRange, .init(minimum: 6, maximum: 0xC80))  // §1.9
    check("05 14 0A 18 0F 18", \.solicitedServiceUUIDs, ["180A", "180F"])  // §1.10
    check("05 1F 78 56 34 12", \.solicitedServiceUUIDs, ["12345678"])
    check("05 16 0F 18 57 01", \.serviceData, [.init(uuid: "180F", data: [0x57, 0x01])])  // §1.11
    check("06 20 78 56 34 12 AA", \.serviceData, [.init(uuid: "12345678", data: [0xAA])])
    check("07 17 06 05 04 03 02 01", \.publicTargetAddresses, [DeviceAddress(0x0102_0304_0506)])  // §1.13
    check(
      "0D 18 06 05 04 03 02 C1 01 00 00 00 00 C0", \.randomTargetAddresses,
      [DeviceAddress(0xC102_0304_0506), DeviceAddress(0xC000_0000_0001)])  // §1.14
    check("03 19 41 03", \.appearance, 0x0341)  // §1.12
    check("03 1A A0 00", \.advertisingInterval, .milliseconds(100))  // §1.15
    check("04 2F 00 00 01", \.advertisingInterval, .milliseconds(40_960))
    check("05 2F 00 00 00 01", \.advertisingInterval, .milliseconds(10_485_760))
    // §1.16
    check("08 1B 06 05 04 03 02 C1 01", \.leDeviceAddress, PeerAddress(DeviceAddress(0xC102_0304_0506), .random))
    check("08 1B 06 05 04 03 02 01 00", \.leDeviceAddress, PeerAddress(DeviceAddress(0x0102_0304_0506), .public))
    check("02 1C 02", \.leRole, .peripheralPreferred)  // §1.17
    check("08 24 17 2F 2F 61 2E 62 63", \.uri, "https://a.bc")  // §1.18
    check("05 24 01 61 3A 62", \.uri, "a:b")
    check("04 24 C2 A7 61", \.uri, "\u{A7}a")
    check("03 27 01 10", \.leSupportedFeatures, 0x1001)  // §1.19
    check(
      "08 28 FF FF FF FF 1F 34 12", \.channelMapUpdate, .init(channelMap: 0x1F_FFFF_FFFF, instant: 0x1234))  // §1.20
    check("05 30 54 75 6E 65", \.broadcastName, "Tune")
    check(
      "0C 31 01 02 03 04 05 AA BB 06 07 08 09", \.encryptedData,
      .init(randomizer: [1, 2, 3, 4, 5], payload: [0xAA, 0xBB], mic: [6, 7, 8, 9]))  // §1.23
    check(
      "09 32 78 56 34 12 04 06 03 02", \.periodicAdvertisingResponseTiming,
      .init(
        responseAccessAddress: 0x1234_5678, numberOfSubevents: 4, subeventInterval: 6, responseSlotDelay: 3,
        responseSlotSpacing: 2))  // §1.24
    check("05 FF 4C 00 AA BB", \.manufacturerData, [0x4C, 0x00, 0xAA, 0xBB])  // §1.4
    check("04 FF 4C 00 AA 04 FF FF FF BB", \.manufacturerDataList, [[0x4C, 0x00, 0xAA], [0xFF, 0xFF, 0xBB]])
  }
  /// Assigned Numbers, §2.3: 50 types; a structure of any valid length is written as it was read.
  @Test("S148: structures of every type, known or not, keep their octets") func everyTypeKeepsItsOctets() {
    let assigned = (0...255).map { ADType(rawValue: UInt8($0)) }.filter { $0.name != nil }
    #expect(assigned.count == 50)
    #expect(
      ADType.completeLocalName.description == "Complete Local Name"
        && ADType(rawValue: 0x33).description == "AD type 0x33")
    var chance = SplitMix64(seed: 0xAD2)
    for type in 0...255 {
      for count in 0...40 {
        let structure = AdvertisingData.Structure(
          type: ADType(rawValue: UInt8(type)), data: (0..<count).map { _ in UInt8.random(in: 0...255, using: &chance) })
        let wire = structure.octets, isSound = structure.type.accepts(octets: count)
        let list = AdvertisingData.Structure.list(decoding: wire.span)
        #expect(list.structures == [structure] && list.fault == nil)
        let data = AdvertisingData(decoding: wire.span)
        #expect(data.fault == (isSound ? nil : .malformed(offset: 0, type: structure.type)), "\(structure)")
        // Valid or not, nothing is lost; only a list has a second encoding.
        if structure.type.uuidList == nil || !isSound || data.other.count == 1 {
          #expect(data.structures() == [structure], "\(structure)")
        }
      }
    }
  }
  @Test func bothFormsOfAListAreUnderstood() {
    let data = AdvertisingData(
      decoding: octets("03 02 0D 18 05 04 78 56 34 12 03 03 0F 18 01 07").span)
    #expect(data.serviceUUIDs == ["180D", "12345678", "180F"] && data.fault == nil)
    #expect(data.other == [.init(type: .completeServiceUUIDs128, data: [])])
  }
  /// A name need not be UTF-8, nor end with a whole character.
  @Test func aNameKeepsItsOctets() {
    let wire = octets("05 08 61 C3 9F C3"), data = AdvertisingData(decoding: wire.span)
    #expect(data.localName == "aß\u{FFFD}" && data.localNameOctets == octets("61 C3 9F C3"))
    #expect(data.structures().flatMap(\.octets) == wire)
  }
  @Test func faultsSayWhatAndWhere() {
    let texts = [
      octets("02 01 06 09 09 61"), octets("02 01 06 00 00 02"), octets("02 01 06 02 03 0D"),
    ].map { AdvertisingData(decoding: $0.span).fault?.description }
    #expect(
      texts == [
        "the structure at octet 3 needs 10 octets and 3 are left",
        "the data ended with a zero length, and octet 5 is not zero",
        "the Complete List of 16-bit Service Class UUIDs at octet 3 has a length that this type cannot have",
      ])
  }
  /// Any octets: no trap, the structures before the fault equal those received, and their values survive a round trip.
  @Test func anyOctetsAreReadAsFarAsTheyAreSound() {
    for packet in Fuzz([Self.everything], longest: 260) {
      let (structures, fault) = AdvertisingData.Structure.list(decoding: packet.span)
      let sound = structures.flatMap(\.octets)
      #expect(packet.starts(with: sound))
      if fault == nil { #expect(packet.dropFirst(sound.count).allSatisfy { $0 == 0 }) }
      let data = AdvertisingData(decoding: packet.span)
      // Everything read is written, and read again.
      let again = data.structures().flatMap(\.octets), twice = AdvertisingData(decoding: again.span)
      #expect(twice.structures() == data.structures())
    }
  }
}
