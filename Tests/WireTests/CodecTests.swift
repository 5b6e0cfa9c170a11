import BindruneWire
import TestSupport
import Testing

@Suite struct CodecTests {
  @Test func everyKindOfFieldGoesBothWays() throws {
    let packet = octets(
      """
      01 0302 060504 0A090807 0F0E0D0C0B 151413121110 1C1B1A19181716 2423222120 1F1E1D FF FEFF 01 07
      23 D1 AABBCCDD 03 112233 02 01 0500 07 FFFF 02 01 0000 02 0100 99 E0E1 F0F1
      """)
    let message = try WireDecoder.decode(Everything.self, packet.span)
    #expect(
      message.description(in: packet.span) == """
        Small: 1, Word: 515, Three: 263430, Long: 117967114, Five: 47446822415, Address: 10:11:12:13:14:15, \
        Seven: 6217841755429660, Huge: 2098148699256529700, Signed: -1, Signed Word: -2, Flag: true, Colour: 7, \
        Handle: 291, Boundary: 1, Is Last: true, Reserved: 1, Key: AA BB CC DD, Name Length: 3, Name: 11 22 33, \
        Num Fixed: 2, Fixed: [{Colour: 1, Amount: 5}, {Colour: 7, Amount: 65535}], \
        Num Chained: 2, Chained: [{Number: 1, Length: 0, Name: (empty)}, {Number: 2, Length: 1, Name: 99}], \
        Rest: E0 E1, Tail: F0 F1
        """)
    #expect(try message.encoded(from: packet.span) == packet)
  }

  @Test func valuesGoThroughBytes() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<500 { try check(Everything.self, &chance) }
    for _ in 0..<100 {
      try check(Colours.self, &chance)
      try check(MeasuredColours.self, &chance)
      try check(Types.self, &chance)
      try check(Blobs.self, &chance)
    }
  }
  func check<M: WireRecord>(_: M.Type, _ chance: inout SplitMix64) throws {
    var arena: [UInt8] = []
    let made = M.arbitrary(using: &chance, in: &arena)
    let packet = try made.encoded(from: arena.span)
    let again = try WireDecoder.decode(M.self, packet.span)
    #expect(again.description(in: packet.span) == made.description(in: arena.span), "\(M.self) \(hex(packet))")
    #expect(try again.encoded(from: packet.span) == packet, "\(M.self) \(hex(packet))")
  }

  @Test func aSeedRepeatsItself() throws {
    var one = SplitMix64(seed: 5)
    var two = SplitMix64(seed: 5)
    var first: [UInt8] = []
    var second: [UInt8] = []
    let made = Everything.arbitrary(using: &one, in: &first).description(in: first.span)
    #expect(Everything.arbitrary(using: &two, in: &second).description(in: second.span) == made)
  }

  @Test func badInputNeverTraps() throws {
    var chance = SplitMix64(seed: 3)
    var samples: [[UInt8]] = []
    for _ in 0..<20 {
      var arena: [UInt8] = []
      samples.append(try Everything.arbitrary(using: &chance, in: &arena).encoded(from: arena.span))
      samples.append(try Types.arbitrary(using: &chance, in: &arena).encoded(from: arena.span))
    }
    for packet in Fuzz(samples, cases: Fuzz.cases / 4) {
      walk(Everything.self, packet)
      walk(Colours.self, packet)
      walk(MeasuredColours.self, packet)
      walk(Types.self, packet)
      walk(Blobs.self, packet)
    }
  }
  /// Makes the text, which reads every list; a value that decodes encodes to the same octets.
  func walk<M: WireRecord>(_: M.Type, _ packet: [UInt8]) {
    do throws(WireError) {
      let message = try WireDecoder.decode(M.self, packet.span)
      _ = message.description(in: packet.span)
      let again = try message.encoded(from: packet.span)
      if again != packet { Issue.record("\(M.self): \(hex(packet)) encodes to \(hex(again))") }
    } catch {
      if case .noRoom = error.reason { Issue.record("\(M.self): \(hex(packet)): \(error)") }
    }
  }

  @Test func entriesThatCouldTrapACursorAreErrorsAtOnce() {
    #expect(reason(Colours.self, "01 0000 03 0000") == #"invalid "Colour": 0x03"#)
    #expect(reason(MeasuredColours.self, "03 01 0000 05 0000") == #"invalid "Colour": 0x05"#)
    #expect(reason(MeasuredColours.self, "04 01 0000 00") == #"wrong length "Length": 4, expected 3"#)
    #expect(reason(Types.self, "05 01 00 02 03 04") == #"wrong length "Type": 3, expected 16"#)
    #expect(reason(Types.self, "04 01 00 02 03") == nil)
    #expect(reason(Blobs.self, "00") == #"wrong length "Length": 0, expected 1"#)
  }
  func reason<M: WireRecord>(_: M.Type, _ packet: String) -> String? {
    let packet = octets(packet)
    do throws(WireError) { _ = try WireDecoder.decode(M.self, packet.span) } catch { return error.description }
    return nil
  }

  @Test func countsThatDoNotFitAreErrors() throws {
    var arena: [UInt8] = []
    var message = Everything()
    message.key = Octets([1, 2, 3, 4], in: &arena)
    message.tail = Octets([1, 2], in: &arena)
    message.name = Octets(repeatElement(0, count: 256), in: &arena)
    #expect(throws: WireError.self) { try message.encoded(from: arena.span) }
    message.name = Octets(repeatElement(0, count: 255), in: &arena)
    #expect(try message.encoded(from: arena.span).count == 307)
    var blobs = Blobs()
    blobs.blobs = try WireList([Blob(octets: Octets(repeatElement(0, count: 256), in: &arena))], in: &arena)
    #expect(throws: WireError.self) { try blobs.encoded(from: arena.span) }
  }

  /// An empty output has no address: a message does not fit, an empty one does.
  @Test func anOutputWithoutRoom() throws {
    let packet = octets("01 02")
    var output = OutputRawSpan()
    var error: WireError?
    do throws(WireError) {
      try Everything().encode(into: &output, from: packet.span)
    } catch let thrown {
      error = thrown
    }
    output.append(contentsOf: packet.span.extracting(1..<1))
    let count = output.byteCount
    #expect(error?.reason == .noRoom(needed: 1, available: 0) && count == 0)
  }

  @Test func numbersAreAppendedAtAnyOffset() {
    var buffer = PacketBuffer(capacity: 32)
    for offset in 0..<9 {
      _ = buffer.fill { output in
        for _ in 0..<offset { output.append(0xEE) }
        output.append(littleEndian: UInt16(0x0201))
        output.append(littleEndian: UInt32(0x0605_0403))
        output.append(littleEndian: UInt64(0x0E0D_0C0B_0A09_0807))
        return true
      }
      #expect(buffer.bytes == [UInt8](repeating: 0xEE, count: offset) + (1...14))
    }
  }

  @Test func aPartOfAPacketIsDecodedInPlace() throws {
    let packet = octets("FF FF 04 01 00 02 03 FF")
    let types = try WireDecoder.decode(Types.self, packet.span, from: 2, to: 7)
    var cursor = types.types.cursor
    let entry = cursor.next(in: packet.span)
    #expect(entry?.handle == 1 && entry?.type == 0x0302)
    #expect(cursor.next(in: packet.span) == nil)
    #expect(types.types.octets == Octets(3, 4))
  }

  @Test func layoutGivesBits() {
    let fields = Everything.layout
    let handle = fields.first { $0.label == "Boundary" }
    #expect(handle?.bit == 8 * 41 + 12 && handle?.width == 2)
    #expect(fields.last?.label == "Tail" && fields.last?.bit == nil && fields.last?.width == 16)
    #expect(fields.first { $0.label == "Chained" }?.entry.map(\.label) == ["Number", "Length", "Name"])
  }
}

extension Blob {
  init(octets: Octets) {
    self.init()
    self.octets = octets
  }
}
