import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

/// SDUs and credits of open channels: Vol 3, Part A, §3.4, §10.1.
@Suite struct StreamTests {
  static let disconnection = "05: 06 02 04 00 55 00 40 00"

  // MARK: Up

  /// Whole in a K-frame, and in several, which ACL packets cut anywhere.
  @Test func unitsAreJoined() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    var expected: [[UInt8]] = []
    for count in [0, 1, 245, 246, 247, 492, 493, 512] {
      let unit = (0..<count).map { UInt8(truncatingIfNeeded: $0) }, octets = littleEndian(count) + unit
      expected.append(unit)
      for start in stride(from: 0, to: octets.count, by: 247) {
        let packet = frame(0x40, Array(octets[start..<min(start + 247, octets.count)]))
        station.receive(Array(packet.prefix(100)))
        if packet.count > 100 { station.receive(Array(packet.dropFirst(100)), 0b01) }
      }
      station.layer.taken(1, on: ChannelProcedureTests.first, of: link)
      _ = station.sent()
    }
    #expect(station.upper.received == expected && station.effects() == [])
    #expect(Set(station.upper.channels) == [ChannelProcedureTests.first])
  }
  static let faults: [(String, [String], String)] = [
    // A first K-frame without the whole length of its SDU.
    ("sduLengthMissing", [""], ""), ("sduLengthMissing", ["01"], ""),
    ("sduTooLong(length: 513)", ["01 02 07"], ""), ("sduTooLong(length: 65535)", ["FF FF"], ""),
    // More octets than the length states: in the first K-frame, and in a later one.
    ("sduOverrun(received: 3, expected: 2)", ["02 00 01 02 03"], ""),
    ("sduOverrun(received: 1, expected: 0)", ["00 00 01"], ""),
    ("sduOverrun(received: 11, expected: 10)", ["0A 00 01 02 03 04 05", "01 02 03 04", "01 02"], ""),
    ("frameTooLong(length: 248)", [String(repeating: "00 ", count: 248)], ""),
    // The seventh K-frame with six credits; nothing has been taken.
    ("noCredit", Array(repeating: "01 00 07", count: 7), "07"),
    ("noCredit", Array(repeating: "00 00", count: 7), ""),
  ]
  @Test(arguments: faults) func faultsEndTheChannel(_ fault: String, _ frames: [String], _ payload: String) throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    for payload in frames { station.receive(frame(0x40, octets(payload))) }
    #expect(station.effects() == ["fault 0x0040: \(fault)", "closed 0x0040: \(fault)"])
    #expect(station.upper.received == (frames.count == 7 ? Array(repeating: octets(payload), count: 6) : []))
    // What follows is ignored; the link and its other channels stay.
    station.receive(frame(0x40, octets("FF FF 01")))
    station.receive(RecombinationTests.whole)
    #expect(station.sent() == [Self.disconnection] && station.effects() == [])
    #expect(station.upper.received.last == [0x0A, 0x03, 0x00])
  }
  /// A frame whose end was not kept, because the channel was not open when it began.
  @Test func aFrameFromBeforeTheChannel() throws {
    let station = Station(.central)
    let settings = ChannelSettings(mtu: 1_000, mps: 1_002),
      octets = frame(0x40, [0xE8, 0x03] + Array(repeating: 7, count: 1_000))
    try station.openChannel(peer: 0x54)
    #expect(station.close(0x40))
    _ = station.sent()
    station.receive(frame(5, [0x07, 2, 4, 0, 0x54, 0, 0x40, 0]))
    _ = station.effects()
    station.receive(Array(octets.prefix(600)))
    _ = try station.openChannel(settings)
    station.receive(Array(octets.dropFirst(600)), 0b01)
    #expect(station.effects() == ["unknown channel 64"])
    _ = station.sent()
    station.receive(signal: "15 03 0A 00 55 00 00 01 64 00 02 00 00 00")
    station.receive(octets)
    #expect(station.upper.received == [Array(repeating: 7, count: 1_000)])
  }

  /// The peer has three of six credits: two are enough for a packet when an SDU of two K-frames has been taken, and then
  /// one is not.
  @Test func creditsComeBackInBatches() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    let long = [UInt8](repeating: 7, count: 300), octets = [0x2C, 0x01] + long
    station.receive(frame(0x40, Array(octets.prefix(247))))
    station.receive(frame(0x40, Array(octets.dropFirst(247))))
    station.receive(frame(0x40, [0, 0]))
    #expect(station.upper.received == [long, []] && station.sent() == [])
    station.layer.taken(1, on: ChannelProcedureTests.first, of: link)
    #expect(station.sent() == ["05: 16 02 04 00 40 00 02 00"])
    station.layer.taken(1, on: ChannelProcedureTests.first, of: link)
    #expect(station.sent() == [])
    // More than there are, and for a channel that is not open: without effect.
    station.layer.taken(9, on: ChannelProcedureTests.first, of: link)
    station.layer.taken(1, on: ChannelID(rawValue: 0x0041), of: link)
    station.layer.taken(1, on: ChannelProcedureTests.first, of: ConnectionHandle(rawValue: 1))
    #expect(station.sent() == [])
  }
  @Test func creditsComeBackAtOnce() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55, ChannelSettings(mtu: 100, takesAtOnce: true))
    for _ in 0..<3 {
      station.receive(frame(0x40, [0, 0]))
      #expect(station.sent() == [])
      station.receive(frame(0x40, [0, 0]))
      #expect(station.sent().map { $0.suffix(17) } == ["04 00 40 00 02 00"])
    }
  }
  /// Zero, for a number that is not in use, and beyond 65,535.
  @Test func wrongCredits() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55, credits: 0xFFFE)
    for (signal, told) in [
      ("16 01 04 00 55 00 00 00", "credits 0x0055: 0"), ("16 01 04 00 56 00 01 00", "credits 0x0056: 1"),
      ("16 01 04 00 40 00 01 00", "credits 0x0040: 1"), ("16 01 04 00 04 00 01 00", "credits 0x0004: 1"),
    ] {
      station.receive(signal: signal)
      #expect(station.effects() == [told] && station.sent() == [])
    }
    station.receive(signal: "16 01 04 00 55 00 01 00")
    #expect(station.effects() == [] && station.sent() == [])
    station.receive(signal: "16 01 04 00 55 00 01 00")
    #expect(station.effects() == ["fault 0x0040: tooManyCredits", "closed 0x0040: tooManyCredits"])
    #expect(station.sent() == [Self.disconnection])
  }

  // MARK: Down

  /// MPS 23 … 1,024 and beyond, SDUs within the driver's room and longer.
  @Test(arguments: [(23, 23), (64, 300), (100, 1_087), (100, 1_088), (247, 2_048), (1_024, 1_024), (65_533, 5_000)])
  func unitsAreCut(_ mps: Int, _ longest: Int) throws {
    let station = Station(.central)
    let settings = ChannelSettings(mtu: 23, mps: 23, longestSDU: UInt16(longest))
    try station.openChannel(peer: 0x55, settings, mtu: longest, mps: mps, credits: 0xFFFF)
    for count in [0, 1, 21, 22, 23, longest - 1, longest] {
      let unit = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7) }, octets = littleEndian(count) + unit
      station.upper.others[0x40] = [unit]
      var expected: [String] = []
      for start in stride(from: 0, to: octets.count, by: min(mps, 1_024)) {
        expected.append("55: " + hex(Array(octets[start..<min(start + min(mps, 1_024), octets.count)])))
      }
      #expect(station.sent(aclLength: 1_028) == expected, "\(count)")
    }
    #expect(station.effects() == [])
  }
  /// The K-frame on the wire is the declared one.
  @Test func framesAreTheDeclaredOnes() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55)
    station.upper.others[0x40] = [[1, 2, 3]]
    let packet = try #require(station.nextPacket())
    let frame = try WireDecoder.decode(CreditFrame.self, packet.span, from: ACLPacket.headerCount)
    #expect(frame.channelID.rawValue == 0x55 && frame.pduLength == 5 && frame.sduLength == 3)
    #expect(frame.informationPayload.array(in: packet.span) == [1, 2, 3])
    #expect(try frame.encoded(from: packet.span) == Array(packet[5...]))
  }
  /// Without credit nothing is sent, and the layer above is not asked.
  @Test func oneFrameForEachCredit() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55, credits: 0)
    station.upper.others[0x40] = [Array(1...150), [9]]
    #expect(station.nextPacket() == nil && station.upper.others[0x40]?.count == 2)
    station.receive(signal: "16 01 04 00 55 00 01 00")
    #expect(station.sent().count == 1 && station.upper.others[0x40]?.count == 1)
    station.receive(signal: "16 01 04 00 55 00 02 00")
    #expect(station.sent() == ["55: " + hex(Array(99...150)), "55: 01 00 09"])
  }
  /// The layer above has fewer SDUs than it said: nothing is sent, and no credit is spent.
  @Test func triedInVain() throws {
    let station = Station(.central)
    try station.openChannel(peer: 0x55, credits: 1)
    var none = NoPayload(), output = PacketBuffer()
    let wrote = output.fill {
      station.layer.nextPacket(for: link, aclLength: 251, into: &$0, now: station.now, from: &none)
    }
    #expect(!wrote)
    station.upper.others[0x40] = [[1]]
    #expect(station.sent() == ["55: 01 00 01"])
  }

  // MARK: Turns

  /// A channel that always has data, in SDUs of many K-frames, delays a PDU of ATT by at most one of its frames.
  @Test func aSaturatedStreamDelaysATTByOneFrame() throws {
    let station = Station(.peripheral), settings = ChannelSettings(mtu: 23, mps: 23, longestSDU: 4_000)
    try station.openChannel(peer: 0x55, settings, mtu: 4_000, mps: 247, credits: 0xFFFF)
    station.upper.others[0x40] = (0..<20).map { Array(repeating: $0, count: 4_000) }
    var waited: [Int] = []
    for number in 0..<100 {
      for _ in 0..<number % 4 { #expect(station.nextPacket()?[7] == 0x55) }
      station.upper.outgoing[link] = [[0x0B, UInt8(number)]]
      var frames = 0
      while let packet = station.nextPacket(), packet[7] != 0x04 { frames += 1 }
      waited.append(frames)
    }
    #expect(waited.allSatisfy { $0 <= 1 })
    // The same for a signal.
    station.receive(signal: "08 09 00 00")
    let next = (0..<2).compactMap { _ in station.nextPacket() }.map { $0[7] }
    #expect(next.contains(0x05))
  }
  /// Channels share equally, frame by frame, also one that sends short SDUs beside others with long ones.
  @Test func channelsShareEqually() throws {
    let station = Station(.peripheral), settings = ChannelSettings(mtu: 23, mps: 23, longestSDU: 4_000)
    for peer in 0x51...0x54 { try station.openChannel(peer: peer, settings, mtu: 4_000, mps: 247, credits: 0xFFFF) }
    for channel in 0x40...0x42 {
      station.upper.others[UInt16(channel)] = (0..<10).map { _ in Array(repeating: 1, count: 4_000) }
    }
    station.upper.others[0x43] = (0..<100).map { _ in [1] }
    var frames: [UInt8: Int] = [:]
    for number in 1...400 {
      frames[station.nextPacket()![7], default: 0] += 1
      if number % 4 == 0 { #expect(Set(frames.values) == [number / 4]) }
    }
    #expect(frames.count == 4)
  }
  /// No SDU in progress: no memory. Afterwards a few buffers are kept, for all links together.
  @Test func memory() throws {
    let station = Station(.peripheral), settings = ChannelSettings(mtu: 5_000, mps: 247)
    for peer in 0x40..<0x78 { try station.openChannel(peer: peer, settings, mtu: 5_000, mps: 247, credits: 1) }
    for channel in 0x40..<0x78 { station.upper.others[UInt16(channel)] = [Array(repeating: 1, count: 5_000)] }
    #expect(station.sent().count == 56)
    for channel in 0x40..<0x78 { station.receive(frame(channel, [0x88, 0x13] + Array(repeating: 1, count: 245))) }
    #expect(station.layer.keptBuffers == 0)
    station.layer.close(link)
    #expect(station.layer.keptBuffers == 0)
  }
}

private struct NoPayload: L2CAPUpper {
  mutating func receive(_: Span<UInt8>, on _: ChannelID, of _: ConnectionHandle, now _: Instant) {}
  func waiting(of _: ConnectionHandle) -> ChannelSet {
    var waiting = ChannelSet()
    waiting.insert(ChannelProcedureTests.first)
    return waiting
  }
  mutating func nextPayload(
    on _: ChannelID, of _: ConnectionHandle, into output: inout OutputRawSpan, now _: Instant
  ) -> Bool { false }
}
