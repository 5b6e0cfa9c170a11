import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Values of common characteristics. GATT Specification Supplement; ISO/IEEE 11073-20601.
@Suite struct ValueTests {
  @Test(
    arguments: [
      ("2A19", "57", "87 %"), ("2A08", "EA 07 0B 15 0E 05 09", "2026-11-21 14:05:09"),
      ("2A2B", "EA 07 0B 15 0E 05 09 06 80 01", "2026-11-21 14:05:09"), ("2A01", "41 03", "Heart Rate Sensor, kind 1"),
      ("2A01", "40 00", "Phone"), ("2A38", "01", "Chest"), ("2900", "01 00", "reliable write"),
      ("2902", "02 00", "indications"),
      ("2A50", "02 5E 04 21 43 10 01", "USB 045E, product 4321, version 1.1.0"),
      ("2A37", "00 3E", "62 bpm"), ("2A37", "01 2C 01", "300 bpm"), ("2A37", "04 3E", "62 bpm, no contact"),
      ("2A37", "1E 4B 10 00 00 04 00 02", "75 bpm, contact, 16 kJ, RR 1000 ms 500 ms"),
      // The FLOAT of ISO/IEEE 11073-20601's own example: 36.4 is 0xFF00016C.
      ("2A1C", "00 6C 01 00 FF", "36.4 °C"),
      ("2A1C", "07 D4 03 00 FF EA 07 0B 15 0E 05 09 06", "98.0 °F, 2026-11-21 14:05:09"),
      ("2A1C", "00 FF FF 7F 00", "NaN °C"), ("2A35", "00 78 00 50 00 5D 00", "120/80 mmHg"),
      (
        "2A35", "1E A0 F0 78 00 FF 07 EA 07 0B 15 0E 05 09 48 00 01 04 00",
        "16.0/120 mmHg, pulse 72 bpm, 2026-11-21 14:05:09"
      ),
      ("2A9D", "00 68 3A", "74.760 kg"), ("2A9D", "01 10 27", "100.00 lb"),
      (
        "2A9D", "0E 68 3A EA 07 0B 15 0E 05 09 01 E6 00 08 07",
        "74.760 kg, 2026-11-21 14:05:09"
      ), ("2A9D", "00 FF FF", "no measurement"),
      // Cut, too long, or unknown.
      ("2A37", "01 2C", nil), ("2A37", "10 3E", nil), ("2A37", "10 3E 00", nil), ("2A37", "00 3E 00", nil),
      ("2A19", "", nil),
      ("2A38", "07", nil), ("2A29", "41", nil), ("A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "57", nil),
    ] as [(BluetoothUUID, String, String?)])
  func texts(uuid: BluetoothUUID, value: String, text: String?) {
    let value = octets(value)
    #expect(uuid.text(of: value.span) == text)
  }

  // MARK: Medical floats

  @Test(
    arguments: [
      (0x0072, 114, 0, 114), (0xF072, 114, -1, 11.4), (0xF0AA, 170, -1, 17), (0x2005, 5, 2, 500),
      (0xEFFE, -2, -2, -0.02),
      (0x07FD, 2045, 0, 2045), (0x0803, -2045, 0, -2045), (0x8001, 1, -8, 1e-8),
    ] as [(UInt16, Int, Int, Double)]) func shortFloats(raw: UInt16, mantissa: Int, exponent: Int, value: Double)
  {
    let float = MedicalFloat16(rawValue: raw)
    #expect(float.isNumber && float.mantissa == mantissa && float.exponent == exponent && float.value == value)
    #expect(MedicalFloat16(mantissa: mantissa, exponent: exponent) == float)
  }
  @Test(
    arguments: [
      (0xFF00_016C, 364, -1, 36.4), (0x0000_0000, 0, 0, 0), (0xFE00_0E4C, 3660, -2, 36.6),
      (0xFFFF_FE94, -364, -1, -36.4),
      (0x7F00_0001, 1, 127, 1e127), (0x8000_0001, 1, -128, 1e-128), (0x007F_FFFD, 8_388_605, 0, 8_388_605),
      (0x0080_0003, -8_388_605, 0, -8_388_605),
    ] as [(UInt32, Int, Int, Double)]) func longFloats(raw: UInt32, mantissa: Int, exponent: Int, value: Double)
  {
    let float = MedicalFloat32(rawValue: raw)
    #expect(float.isNumber && float.mantissa == mantissa && float.exponent == exponent && float.value == value)
    #expect(MedicalFloat32(mantissa: mantissa, exponent: exponent) == float)
  }
  @Test func notANumber() {
    #expect(MedicalFloat16.nan.rawValue == 0x07FF && MedicalFloat32.nan.rawValue == 0x007F_FFFF)
    #expect(MedicalFloat16.notAtThisResolution.rawValue == 0x0800)
    #expect(MedicalFloat32.notAtThisResolution.rawValue == 0x0080_0000)
    #expect(MedicalFloat16.infinity.rawValue == 0x07FE && MedicalFloat32.infinity.rawValue == 0x007F_FFFE)
    #expect(MedicalFloat16.negativeInfinity.rawValue == 0x0802)
    #expect(MedicalFloat32.negativeInfinity.rawValue == 0x0080_0002)
    #expect(MedicalFloat16.infinity.value == .infinity && MedicalFloat32.negativeInfinity.value == -.infinity)
    for raw in [0x07FE, 0x07FF, 0x0800, 0x0801, 0x0802] as [UInt16] {
      #expect(!MedicalFloat16(rawValue: raw).isNumber)
    }
    #expect(MedicalFloat16(rawValue: 0x0801).value.isNaN && MedicalFloat16(rawValue: 0x0801).description == "reserved")
    #expect(MedicalFloat16(mantissa: 2046, exponent: 0) == nil && MedicalFloat16(mantissa: 0, exponent: 8) == nil)
    #expect(MedicalFloat16(mantissa: 0, exponent: -9) == nil)
  }
  @Test func fromDoubles() {
    #expect(MedicalFloat32(36.4, digits: 1)?.rawValue == 0xFF00_016C)
    #expect(MedicalFloat32(36.44, digits: 1)?.description == "36.4")
    #expect(MedicalFloat16(120, digits: 0)?.rawValue == 0x0078)
    #expect(MedicalFloat16(5000, digits: -2)?.description == "50e2")
    #expect(MedicalFloat16(-0.05, digits: 2)?.description == "-0.05")
    #expect(MedicalFloat16(3000, digits: 0) == nil && MedicalFloat16(1e300, digits: 0) == nil)
    #expect(MedicalFloat16(.nan, digits: 0) == .nan && MedicalFloat16(-.infinity, digits: 3) == .negativeInfinity)
  }
  /// Compared with the standard library's conversion of the decimal number, which is correctly rounded.
  @Test func valuesAreTheNearest() throws {
    for exponent in -128...127 {
      for mantissa in [1, 3, 7, 364, 2_045, 99_999, 1_234_567, 8_388_605, -8_388_605] {
        let found = try #require(MedicalFloat32(mantissa: mantissa, exponent: exponent)).value
        let nearest = try #require(Double("\(mantissa)e\(exponent)"))
        #expect(abs(found - nearest) <= (abs(exponent) <= 22 ? 0 : nearest.ulp), "\(mantissa)e\(exponent)")
      }
    }
    for raw in UInt16.min...UInt16.max {
      let float = MedicalFloat16(rawValue: raw)
      if float.isNumber { #expect(Double("\(float.mantissa)e\(float.exponent)") == float.value) }
    }
  }
  /// Decimals that no exponent can hold.
  @Test(arguments: [Int.min, -128, 129, Int.max]) func tooManyDigits(digits: Int) {
    #expect(MedicalFloat32(1, digits: digits) == nil && MedicalFloat16(0, digits: digits) == nil)
  }
  /// A decimal number of few enough digits gives the mantissa of its digits.
  @Test func decimalsComeBack() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<2_000 {
      let mantissa = Int(chance.next() % 1_000_000), digits = Int(chance.next() % 16)
      let value = try #require(Double("\(mantissa)e-\(digits)"))
      #expect(MedicalFloat32(value, digits: digits)?.mantissa == mantissa, "\(mantissa)e-\(digits)")
    }
  }
  /// Each of the 65,536 values converts back to itself.
  @Test func everyShortFloat() {
    for raw in UInt16.min...UInt16.max {
      let float = MedicalFloat16(rawValue: raw)
      if float.isNumber {
        #expect(MedicalFloat16(mantissa: float.mantissa, exponent: float.exponent) == float)
        #expect(MedicalFloat16(float.value, digits: -float.exponent) == float)
      } else {
        #expect(!float.value.isFinite)
      }
    }
  }

  // MARK: Both ways

  @Test func anyValueBothWays() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<500 {
      try roundTrip(HeartRateMeasurement.self, &chance)
      try roundTrip(TemperatureMeasurement.self, &chance)
      try roundTrip(BloodPressureMeasurement.self, &chance)
      try roundTrip(WeightMeasurement.self, &chance)
      try roundTrip(CurrentTime.self, &chance)
      try roundTrip(PnPID.self, &chance)
      try roundTrip(ServiceChanged.self, &chance)
    }
  }
  private func roundTrip<R: WireRecord>(_: R.Type, _ chance: inout SplitMix64) throws {
    var arena: [UInt8] = []
    let value = R.arbitrary(using: &chance, in: &arena), encoded = try value.encoded(from: arena.span)
    let again = try WireDecoder.decode(R.self, encoded.span)
    #expect(try again.encoded(from: encoded.span) == encoded)
    #expect(again.description(in: encoded.span) == value.description(in: arena.span))
  }
  /// Any octets for any UUID: text, or none.
  @Test func anyOctets() {
    let samples = [
      "1E 4B 10 00 00 04 00 02", "07 D4 03 00 FF EA 07 0B 15 0E 05 09 06", "EA 07 0B 15 0E 05 09 06 80 01",
    ]
    let uuids: [UInt16] = [
      0x2900, 0x2902, 0x2A01, 0x2A08, 0x2A19, 0x2A1C, 0x2A2B, 0x2A35, 0x2A37, 0x2A38, 0x2A50, 0x2A9D,
    ]
    for value in Fuzz(samples.map(octets)) {
      for uuid in uuids { _ = BluetoothUUID.short(uuid).text(of: value.span) }
    }
  }

  // MARK: Names

  @Test func names() {
    let names: [(BluetoothUUID, String?)] = [
      ("180D", "Heart Rate"), ("2A37", "Heart Rate Measurement"), ("2902", "Client Characteristic Configuration"),
      ("2803", "Characteristic"), ("2B2A", "Database Hash"), ("272F", "degree Celsius"),
      ("2BF0", "Battery Energy Status"),
      ("0000180D-0000-1000-8000-00805F9B34FB", "Heart Rate"), ("0001", nil),
      ("A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", nil),
    ]
    for (uuid, name) in names { #expect(uuid.assignedName == name) }
    #expect(Appearance(rawValue: 0x0341).categoryName == "Heart Rate Sensor")
    #expect(Appearance(category: 0x51, subcategory: 2).rawValue == 0x1442)
    #expect(Appearance(category: 0x51).categoryName == "Outdoor Sports Activity")
    #expect(Appearance(category: 0x3FF).categoryName == nil)
  }
}
