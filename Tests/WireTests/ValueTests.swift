import BindruneWire
import TestSupport
import Testing

@Suite struct ValueTests {
  @Test func octetsAreLookedUpInTheirPacket() {
    let packet: [UInt8] = [9, 1, 2, 3, 9]
    let value = Octets(1, 3)
    let same: [UInt8] = [1, 2, 3]
    let other: [UInt8] = [1, 2, 4]
    // A span is not an argument that #expect can show.
    let copy = value.array(in: packet.span)
    let last = value.byte(2, in: packet.span)
    let lent = value.withBytes(in: packet.span) { $0.count }
    let isSame = value.equals(same.span, in: packet.span)
    let isOther = value.equals(other.span, in: packet.span)
    let isAll = value.equals(packet.span, in: packet.span)
    let none = Octets().array(in: packet.span)
    #expect(value.range == 1..<4 && copy == same && last == 3 && lent == 3)
    #expect(isSame && !isOther && !isAll && none.isEmpty)
    var buffer = PacketBuffer(capacity: 8)
    let filled = buffer.fill { output in
      output.append(7)
      value.copyBytes(in: packet.span, into: &output)
      output.append(littleEndian: UInt16(0x0201))
      output.patch(0x0403, at: 4)
      output.truncate(to: 5)
      return true
    }
    #expect(filled && buffer.bytes == [7, 1, 2, 3, 3])
    #expect(buffer.withBytes { $0[4] } == 3)
  }

  /// Least significant octet first: Vol 3, Part H, §3.3.
  @Test func numbersOfSixteenOctetsAreValues() throws {
    let packet = octets(
      "00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F")
    let record = try WireDecoder.decode(Wide.self, packet.span)
    #expect(record.number == 0x0F0E0D0C_0B0A0908_07060504_03020100)
    #expect(record.key == SecretNumber(0x1F1E1D1C_1B1A1918_17161514_13121110))
    #expect(try record.encoded(from: Span()) == packet)
    let text = record.description(in: packet.span)
    #expect(text == "Number: 00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F, Key: (secret, 16 octets)")
    #expect(Wide.layout.map(\.width) == [128, 128] && Wide.measure.shortest == 32)
    for (count, field) in [(0, "Number"), (15, "Number"), (16, "Key"), (31, "Key")] {
      let error = #expect(throws: WireError.self) { try WireDecoder.decode(Wide.self, packet.span, to: count) }
      #expect(error?.description == "truncated \"\(field)\": needed 16, available \(count % 16)")
    }
  }
  private struct Wide: WireRecord {
    var number = UInt128(), key = SecretNumber()
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Number", &number)
      try visit.value("Key", &key)
    }
  }

  @Test(arguments: [
    ("180D", "180D", BluetoothUUID.short(0x180D)),
    ("0000180d-0000-1000-8000-00805f9b34fb", "180D", .long(low: 0x8000_0080_5F9B_34FB, high: 0x0000_180D_0000_1000)),
    ("12345678", "12345678", BluetoothUUID(UInt32(0x1234_5678))),
    (
      "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00",
      .long(low: 0x8E5C_6F0E_5F1A_0C00, high: 0xA0B1_0000_1D1D_4BBD)
    ),
  ])
  func uuidsAreReadAndWritten(_ text: String, _ shortest: String, _ uuid: BluetoothUUID) {
    #expect(BluetoothUUID(text) == uuid)
    #expect(uuid.description == shortest)
  }
  @Test func bothFormsOfAUUIDAreOne() {
    let short: BluetoothUUID = 0x2A00
    let long: BluetoothUUID = "00002A00-0000-1000-8000-00805F9B34FB"
    #expect(short == long && short.hashValue == long.hashValue)
    #expect(short.count == 2 && long.count == 16 && long.shortest.count == 2)
    #expect(BluetoothUUID(UInt32(0x0001_2A00)) != short)
  }
  @Test(arguments: [
    "", "18", "180", "180G", "180D-", "0000180D00001000800000805F9B34F", "0000180D+0000-1000-8000-00805F9B34FB",
  ])
  func otherTextIsNoUUID(_ text: String) { #expect(BluetoothUUID(text) == nil) }

  @Test func timeSaturates() {
    let now = Instant(nanoseconds: 1_500_000_000)
    #expect(now.description == "1.500000")
    #expect(now + .seconds(2) - now == .seconds(2))
    #expect(now - (now + .milliseconds(1)) == .milliseconds(-1))
    #expect(now + .seconds(-5) == .zero)
    #expect(now + .seconds(Int64.max) > now)
    #expect(Instant(nanoseconds: .max) + .seconds(1) == Instant(nanoseconds: .max))
    #expect(Optional.earliest(nil, now) == now && Optional.earliest(.zero, now) == .zero)
  }

  @Test func numbersHaveTheirText() {
    #expect(DeviceAddress(0xC1_0203_0405_06).text == "C1:02:03:04:05:06")
    #expect(hexDigits(0xAB, 4) == "00AB" && hexDigits(0x12345, 4) == "12345")
    #expect(Bool(wire: 2) == nil && UInt24(wire: 0x010203)?.value == 0x010203)
    #expect(Colour(wire: 3) == nil && Colour.blue.wire == 7)
  }
}
