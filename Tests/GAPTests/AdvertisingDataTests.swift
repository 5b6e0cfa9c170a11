import BindruneWire
import TestSupport
import Testing

@testable import GAP

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
    0x02, 0x1B, 0x00,
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
    #expect(data.other == [.init(type: 0x1B, data: [0x00])])
    #expect(data.fault == nil)
  }

  @Test func keepsWhatIsSoundBeforeAnOverrun() {
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
  @Test func namesWhatHasAnImpossibleLength() {
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

  @Test func splitsOverBothLegacyPayloads() throws {
    let data = AdvertisingData(
      localName: "A sensor with a name", serviceUUIDs: ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"])
    let payloads = try data.payloads(AdvertisingParameters(), longestExtended: nil)
    #expect(
      payloads.advertising == [
        0x02, 0x01, 0x06, 0x03, 0x03, 0x0D, 0x18,
        0x11, 0x07, 0x00, 0x0C, 0x1A, 0x5F, 0x0E, 0x6F, 0x5C, 0x8E, 0xBD, 0x4B, 0x1D, 0x1D, 0x00, 0x00, 0xB1, 0xA0,
      ])
    #expect(payloads.scanResponse == [0x15, 0x09] + Array("A sensor with a name".utf8) && payloads.usesLegacyPDUs)
  }
  /// Supplement, Part A, §1.2: a name that does not fit is cut, at a character's end, and says so.
  @Test func shortensTheName() throws {
    func names(_ data: AdvertisingData, _ kind: AdvertisingParameters.Kind) throws -> [[UInt8]] {
      let payloads = try data.payloads(AdvertisingParameters(kind: kind), longestExtended: nil)
      return [payloads.advertising, payloads.scanResponse]
    }
    // 15 characters of 2 octets: 29 are free in the scan response, 26 beside the flags.
    let data = AdvertisingData(localName: String(repeating: "ß", count: 15))
    let fourteen: [UInt8] = [0x1D, 0x08] + Array(String(repeating: "ß", count: 14).utf8)
    #expect(try names(data, .connectable) == [[2, 1, 6], fourteen])
    #expect(try names(data, .nonconnectable)[0] == [2, 1, 6, 0x1B, 0x08] + Array(fourteen[2..<28]))
    var full = AdvertisingData(localName: "🌊", flags: nil)
    full.manufacturerData = [UInt8](repeating: 0xFF, count: 25)
    // A character is not cut.
    #expect(throws: AdvertisingDataError.tooLong(.completeLocalName, needed: 6, available: 4)) {
      try names(full, .nonconnectable)
    }
    // Others go before it, whatever their type.
    full = AdvertisingData(localName: String(repeating: "n", count: 40), flags: nil)
    full.other = [.init(type: 0x1B, data: [UInt8](repeating: 7, count: 29))]
    #expect(try names(full, .connectable)[1] == [30, 8] + Array(String(repeating: "n", count: 29).utf8))
  }
  @Test func refusesWhatFitsNowhere() {
    var data = AdvertisingData(serviceUUIDs: [
      "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00",
    ])
    #expect(throws: AdvertisingDataError.tooLong(.completeServiceUUIDs128, needed: 34, available: 31)) {
      try data.payloads(AdvertisingParameters(), longestExtended: nil)
    }
    for parameters in [
      AdvertisingParameters(pdus: .extended), AdvertisingParameters(kind: .scannable, pdus: .extended),
    ] {
      #expect(throws: AdvertisingDataError.extendedUnavailable) { try data.payloads(parameters, longestExtended: nil) }
    }
    // One structure has a length of one octet, and the whole the controller's maximum, or one PDU.
    data.manufacturerData = [UInt8](repeating: 0, count: 255)
    let beacon = AdvertisingParameters(kind: .nonconnectable)
    #expect(throws: AdvertisingDataError.tooLong(.manufacturerData, needed: 257, available: 256)) {
      try data.payloads(beacon, longestExtended: 1650)
    }
    data.manufacturerData = [UInt8](repeating: 0, count: 213)
    #expect(throws: AdvertisingDataError.tooMuch(needed: 252, available: 251)) {
      try data.payloads(beacon, longestExtended: 251)
    }
    #expect(throws: AdvertisingDataError.tooMuch(needed: 252, available: 245)) {
      try data.payloads(AdvertisingParameters(), longestExtended: 1650)
    }
    #expect(throws: AdvertisingDataError.tooLong(.completeServiceUUIDs128, needed: 34, available: 31)) {
      try data.payloads(AdvertisingParameters(pdus: .legacy), longestExtended: 1650)
    }
  }
  /// Vol 4, Part E, §7.8.53: where extended PDUs have their data.
  @Test func extendedPayloadsAreInOnePlace() throws {
    let short = AdvertisingData(localName: "n"), octets: [UInt8] = [2, 1, 6, 2, 9, 0x6E]
    for (kind, place) in [(.connectable, 0), (.scannable, 1), (.nonconnectable, 0)]
      as [(AdvertisingParameters.Kind, Int)]
    {
      let extended = try short.payloads(AdvertisingParameters(kind: kind, pdus: .extended), longestExtended: 31)
      #expect([extended.advertising, extended.scanResponse] == (place == 0 ? [octets, []] : [[], octets]))
      #expect(!extended.usesLegacyPDUs)
      #expect(try short.payloads(AdvertisingParameters(kind: kind), longestExtended: 31).usesLegacyPDUs)
    }
    // A long name alone does not drive a device out of every phone's sight; more than that does, and then it is whole.
    var long = AdvertisingData(localName: String(repeating: "n", count: 60))
    #expect(try long.payloads(AdvertisingParameters(), longestExtended: 1650).usesLegacyPDUs)
    long.manufacturerData = [UInt8](repeating: 0xFF, count: 40)
    let payloads = try long.payloads(AdvertisingParameters(), longestExtended: 1650)
    #expect(!payloads.usesLegacyPDUs && payloads.advertising.count == 3 + 42 + 62)
    #expect(AdvertisingData(decoding: payloads.advertising.span) == long)
  }

  @Test func writesWhatItReads() throws {
    var generator = SplitMix64(seed: 0xAD)
    for _ in 0..<2_000 {
      var data = AdvertisingData(
        flags: Bool.random(using: &generator) ? UInt8.random(in: 0...31, using: &generator) : nil)
      if Bool.random(using: &generator) { data.localName = "n\(UInt8.random(in: 0...255, using: &generator))" }
      data.serviceUUIDs = (0..<UInt16.random(in: 0...3, using: &generator)).map { .short(0x1800 + $0) }
      if Bool.random(using: &generator) { data.txPowerLevel = Int8.random(in: -127...20, using: &generator) }
      if Bool.random(using: &generator) {
        data.manufacturerData = [0xFF, 0xFF, UInt8.random(in: 0...255, using: &generator)]
      }
      if Bool.random(using: &generator) { data.serviceData = [.init(uuid: "180F", data: [1, 2, 3])] }
      let payloads = try data.payloads(AdvertisingParameters(), longestExtended: nil)
      #expect(payloads.advertising.count <= 31 && payloads.scanResponse.count <= 31)
      var read = AdvertisingData(decoding: payloads.advertising.span)
      read.merge(payloads.scanResponse.span)
      #expect(read == data)
    }
  }
}
