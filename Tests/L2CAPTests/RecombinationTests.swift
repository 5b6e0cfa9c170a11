import BindruneWire
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

/// The Recombiner: each phase × each kind of fragment.
@Suite struct RecombinationTests {
  static let whole = frame(4, [0x0A, 0x03, 0x00])

  enum Phase: CaseIterable { case idle, header, payload }
  static func station(_ phase: Phase) -> Station {
    let station = Station(.central)
    switch phase {
    case .idle: break
    case .header: station.receive([0x05], 0b10)
    case .payload: station.receive(octets("05 00 04 00 1B 03"), 0b10)
    }
    return station
  }

  struct Input: Sendable {
    let name: String
    let data: [UInt8]
    var flag: UInt8 = 0b10, broadcast: UInt8 = 0
    /// Deliveries and violations in each phase.
    let outcomes: [Phase: String]
  }
  static let inputs = [
    Input(
      name: "whole frame", data: whole,
      outcomes: [
        .idle: "[0A 03 00]", .header: "[0A 03 00] incompleteFrame(received: 1, expected: nil)",
        .payload: "[0A 03 00] incompleteFrame(received: 6, expected: Optional(9))",
      ]),
    Input(
      name: "whole frame, host's flag", data: whole, flag: 0b00,
      outcomes: [
        .idle: "[0A 03 00]", .header: "[0A 03 00] incompleteFrame(received: 1, expected: nil)",
        .payload: "[0A 03 00] incompleteFrame(received: 6, expected: Optional(9))",
      ]),
    Input(
      name: "beginning", data: octets("03 00 04"),
      outcomes: [
        .idle: "", .header: "incompleteFrame(received: 1, expected: nil)",
        .payload: "incompleteFrame(received: 6, expected: Optional(9))",
      ]),
    Input(
      name: "empty beginning", data: [],
      outcomes: [
        .idle: "", .header: "incompleteFrame(received: 1, expected: nil)",
        .payload: "incompleteFrame(received: 6, expected: Optional(9))",
      ]),
    Input(
      name: "more than the frame", data: octets("01 00 04 00 0A FF"),
      outcomes: [
        .idle: "overlongFragment(received: 6, expected: 5)", .header: "incompleteFrame(received: 1, expected: nil)",
        .payload: "incompleteFrame(received: 6, expected: Optional(9))",
      ]),
    Input(
      name: "continuation, all of it", data: octets("00 01 02"), flag: 0b01,
      outcomes: [.idle: "orphanFragment(count: 3)", .header: "", .payload: "[1B 03 00 01 02]"]),
    Input(
      name: "continuation, some of it", data: octets("00 04"), flag: 0b01,
      outcomes: [.idle: "orphanFragment(count: 2)", .header: "", .payload: ""]),
    Input(
      name: "continuation, none of it", data: [], flag: 0b01,
      outcomes: [.idle: "orphanFragment(count: 0)", .header: "", .payload: ""]),
    Input(
      name: "continuation, too much", data: octets("00 04 00 01 02 03 04 05 06"), flag: 0b01,
      outcomes: [
        .idle: "orphanFragment(count: 9)", .header: "overlongFragment(received: 10, expected: 9)",
        .payload: "overlongFragment(received: 15, expected: 9)",
      ]),
    Input(
      name: "flag 0b11", data: whole, flag: 0b11,
      outcomes: [.idle: "illegalFlags", .header: "illegalFlags", .payload: "illegalFlags"]),
    Input(
      name: "broadcast", data: whole, broadcast: 1,
      outcomes: [.idle: "illegalFlags", .header: "illegalFlags", .payload: "illegalFlags"]),
  ]

  @Test(arguments: inputs) func phaseByInput(_ input: Input) {
    for phase in Phase.allCases {
      let station = Self.station(phase)
      station.receive(input.data, input.flag, broadcast: input.broadcast)
      let outcome = station.upper.received.map { "[\(hex($0))]" } + station.effects()
      #expect(outcome.joined(separator: " ") == input.outcomes[phase], "\(input.name) in \(phase)")
      // After any input, the next whole frame arrives.
      station.upper.received = []
      station.receive(Self.whole)
      #expect(station.upper.received == [[0x0A, 0x03, 0x00]], "after \(input.name) in \(phase)")
    }
  }

  @Test func zeroLengthFirstFragmentBeginsNothing() {
    let station = Station(.central)
    station.receive([], 0b10)
    station.receive(Self.whole)
    #expect(station.upper.received.count == 1 && station.effects() == [])
    station.receive([], 0b10)
    station.receive(Self.whole, 0b01)
    #expect(station.upper.received.count == 2 && station.effects() == [])
  }

  @Test func lengthsOfChannels() {
    let station = Station(.peripheral)
    station.receive(frame(4, []))
    station.receive(frame(4, [UInt8](repeating: 1, count: 517)))
    station.receive(frame(4, [UInt8](repeating: 1, count: 518)))
    station.receive(frame(6, []))
    station.receive(frame(6, [UInt8](repeating: 1, count: 65)))
    station.receive(frame(6, [UInt8](repeating: 1, count: 66)))
    station.receive(frame(5, [0x12, 0x01, 0x00]))
    station.receive(frame(0, [1]))
    station.receive(frame(0x40, []))
    station.receive(frame(1, [UInt8](repeating: 1, count: 2000)))
    #expect(station.upper.received.map(\.count) == [517])
    #expect(
      station.effects() == [
        "too short 4: 0", "too long 4: 518", "unknown channel 6", "unknown channel 6", "unknown channel 6",
        "too short 5: 3", "unknown channel 0", "unknown channel 64", "unknown channel 1",
      ])
    #expect(station.sent() == [])
  }

  /// The Security Manager's channel, and a dynamic one.
  @Test(arguments: [(6, 65), (0x0040, 1004)]) func channelsOfTheLayerAbove(_ channel: Int, _ longest: Int) {
    let id = ChannelID(rawValue: UInt16(channel))
    let station = Station(.central, carrying: [L2CAPChannel(id, longestPayload: longest)])
    let payload = [UInt8](repeating: 1, count: longest)
    station.receive(frame(channel, payload))
    let octets = frame(channel, payload)
    station.receive(Array(octets[..<27]))
    station.receive(Array(octets[27...]), 0b01)
    station.receive(Self.whole)
    #expect(station.upper.received == [payload, payload, [0x0A, 0x03, 0x00]])
    #expect(station.upper.channels == [id, id, .attribute] && station.effects() == [])
    station.receive(frame(channel, []))
    station.receive(frame(channel, payload + [1]))
    #expect(station.effects() == ["too short \(channel): 0", "too long \(channel): \(longest + 1)"])
    // The other channels are unchanged, and L2CAP refuses nothing.
    station.receive(frame(5, [0x12, 0x01, 0x00]))
    station.receive(frame(0x41, [1]))
    #expect(station.effects() == ["too short 5: 3", "unknown channel 65"] && station.nextPacket() == nil)

    station.upper.outgoing[link] = [payload]
    station.upper.outgoingChannel = id
    var sent: [UInt8] = []
    while let packet = station.nextPacket() { sent += packet[5...] }
    #expect(sent == octets)
  }

  /// A peer claims 65,535 octets and sends them: the Recombiner keeps the beginning only, and receives the next frame.
  @Test(arguments: [4, 5, 6, 0x40]) func hugeFramesAreCountedNotKept(_ channel: Int) {
    let huge = frame(channel, [UInt8](repeating: 0x12, count: 0xFFFF))
    var recombiner = Recombiner(longestPayload: longestAttributePayload)
    for start in stride(from: 0, to: huge.count, by: 251) {
      let packet = aclPacket(Array(huge[start..<min(start + 251, huge.count)]), start == 0 ? 0b10 : 0b01)
      let outcome = try? recombiner.receive(ACLPacket(packet.span), in: packet.span)
      #expect(recombiner.bytes.count <= 521 && recombiner.bytes.capacity < 1024)
      #expect((outcome?.frame != nil) == (start + 251 >= huge.count))
    }
    let station = Station(.central)
    for start in stride(from: 0, to: huge.count, by: 251) {
      station.receive(Array(huge[start..<min(start + 251, huge.count)]), start == 0 ? 0b10 : 0b01)
    }
    #expect(station.effects() == [channel > 5 ? "unknown channel \(channel)" : "too long \(channel): 65535"])
    // A request that is too long for the signaling channel is rejected by the identifier at its beginning: §4.1.
    #expect(station.sent() == (channel == 5 ? ["05: 01 12 04 00 01 00 17 00"] : []))
    station.receive(Self.whole)
    #expect(station.upper.received.count == 1)
  }

  @Test func unknownLinks() {
    let station = Station()
    station.receive(Self.whole)
    #expect(station.effects() == ["unknownLink"] && station.nextPacket() == nil)
    station.open(link, .central)
    station.receive(octets("03 00 04"))
    station.layer.close(link)
    station.receive(octets("00 0A 03 00"), 0b01)
    #expect(station.effects() == ["unknownLink"])
    // Fragments of the old link do not mix with those of the new one.
    station.open(link, .central)
    station.receive(octets("00 0A 03 00"), 0b01)
    #expect(station.effects() == ["orphanFragment(count: 4)"] && station.upper.received.isEmpty)
  }

  /// A defective controller: handles have 12 bits.
  @Test func impossibleHandles() {
    let station = Station(), impossible = ConnectionHandle(rawValue: 0x1040)
    station.open(impossible, .central)
    #expect(station.effects() == ["illegalHandle"] && station.nextPacket(for: impossible) == nil)
    station.layer.close(impossible)
    station.receive(Self.whole)
    #expect(station.effects() == ["unknownLink"])
  }

  @Test func unreadViolationsAreBounded() {
    let station = Station(.central)
    for _ in 0..<10_000 { station.receive([1], 0b01) }
    #expect(station.effects().count == 64)
  }
}

/// The Fragmenter.
@Suite struct FragmentationTests {
  @Test func headersAreTheDeclaredOnes() throws {
    var chance = SplitMix64(seed: 7)
    for _ in 0..<200 {
      let station = Station(.central)
      let payload = (0..<Int.random(in: 1...517, using: &chance)).map { _ in UInt8.random(in: 0...255, using: &chance) }
      station.upper.outgoing[link] = [payload]
      let packet = try #require(station.nextPacket(aclLength: 1000))
      let acl = try ACLPacket(packet.span)
      #expect(acl.handle == link && acl.packetBoundaryFlag == .firstNonFlushable && acl.broadcastFlag == 0)
      let frame = try WireDecoder.decode(L2CAPFrame.self, packet.span, from: ACLPacket.headerCount)
      #expect(frame.channelID == .attribute && frame.pduLength == payload.count)
      #expect(Array(packet[Int(frame.informationPayload.offset)...]) == payload)
      #expect(try L2CAPFrame(.attribute, frame.informationPayload).encoded(from: packet.span) == Array(packet[5...]))
    }
  }

  /// A payload cut at any ACL size is recombined.
  @Test func anyPayloadAtAnySize() throws {
    var chance = SplitMix64(seed: 11)
    for size in Array(1...40) + [64, 251, 255, 517, 520, 521, 522, 1021] {
      let here = Station(.central), there = Station(.peripheral)
      var payloads: [[UInt8]] = []
      for count in [1, 2, 3, 22, 23, 24, 27, 247, 516, 517, Int.random(in: 1...517, using: &chance)] {
        payloads.append((0..<count).map { _ in UInt8.random(in: 0...255, using: &chance) })
      }
      here.upper.outgoing[link] = payloads
      while var packet = here.nextPacket(aclLength: size) {
        #expect(packet.count <= 5 + size)
        // On the receiving side, controllers mark the first fragment with another flag.
        if packet[2] >> 4 == 0, Bool.random(using: &chance) { packet[2] |= 0b10 << 4 }
        try there.deliver(packet)
      }
      #expect(there.upper.received == payloads && there.effects() == [], "ACL size \(size)")
    }
  }

  /// Packets of several links, in any order, at an ACL size that changes: each link's payloads arrive, in order.
  @Test func interleavedLinks() throws {
    for seed in UInt64(0)..<50 {
      let here = Station(), there = Station()
      var chance = SplitMix64(seed: seed)
      let handles = [0x0000, 0x0001, 0x0040, 0x0EFF].map { ConnectionHandle(rawValue: $0) }
      var payloads: [ConnectionHandle: [[UInt8]]] = [:]
      for handle in handles {
        here.open(handle, .central)
        there.open(handle, .peripheral)
        payloads[handle] = (0..<20).map { number in
          [UInt8(number)] + (0..<Int.random(in: 0...516, using: &chance)).map { _ in UInt8(handle.rawValue & 0xFF) }
        }
      }
      here.upper.outgoing = payloads
      var busy = handles
      while let handle = busy.randomElement(using: &chance) {
        if let packet = here.nextPacket(aclLength: .random(in: 1...300, using: &chance), for: handle) {
          try there.deliver(packet)
        } else {
          busy.removeAll { $0 == handle }
        }
      }
      for handle in handles {
        let arrived = zip(there.upper.links, there.upper.received).filter { $0.0 == handle }.map(\.1)
        #expect(arrived == payloads[handle], "seed \(seed)")
      }
      #expect(there.effects() == [])
    }
  }

  @Test func orderOnALink() {
    let station = Station(.peripheral)
    station.upper.outgoing[link] = [[UInt8](repeating: 9, count: 40), [7]]
    #expect(station.nextPacket(aclLength: 27)?.count == 32)
    // The frame in progress is completed first; then signaling, payloads.
    station.receive(signal: "08 09 00 00")
    #expect(station.nextPacket(aclLength: 27) == aclPacket([UInt8](repeating: 9, count: 17), 0b01))
    #expect(station.sent() == ["05: 01 09 02 00 00 00", "04: 07"])
  }

  @Test func closingDropsTheRest() {
    let station = Station(.central)
    station.upper.outgoing[link] = [[UInt8](repeating: 9, count: 100)]
    _ = station.nextPacket(aclLength: 27)
    station.layer.close(link)
    #expect(station.nextPacket() == nil)
    station.open(link, .central)
    #expect(station.nextPacket() == nil)
  }
}
