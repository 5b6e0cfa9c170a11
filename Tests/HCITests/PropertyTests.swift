import BindruneWire
import HCI
import TestSupport
import Testing

/// Arbitrary × every command, return parameters and event: value → packet → value, told by packet and text.
@Suite struct PropertyTests {
  @Test func commandsAndReturnParameters() throws {
    var visitor = ThereAndBack()
    for raw in 0...UInt16.max { try AnyCommand(default: HCIOpcode(rawValue: raw))?.visit(&visitor) }
    #expect(visitor.messages == 160)
  }
  @Test func events() throws {
    var visitor = ThereAndBack()
    for code in 0...UInt8.max {
      for subevent in 0...(code == 0x3E ? UInt8.max : 0) {
        try HCIEvent(default: code, subevent: subevent)?.visit(&visitor)
      }
    }
    #expect(visitor.messages == 22)
  }
}

private struct ThereAndBack: CommandVisitor, EventVisitor {
  var messages = 0
  private var chance = SplitMix64(seed: Fuzz.seed)
  /// Values per message.
  private var cases: Int { max(20, Fuzz.cases / 100) }

  mutating func visit<C: HCICommand>(_: C) throws(WireError) {
    try each(C.self) { value, arena, output throws(WireError) in try value.writePacket(into: &output, from: arena) }
    try each(C.Return.self) { value, arena, output throws(WireError) in
      try C.writeComplete(value, into: &output, from: arena)
    }
  }
  mutating func visit<E: HCIEventMessage>(_: E) throws(WireError) {
    // Its return parameters are each command's own: they have been there and back with it.
    if E.self == CommandComplete.self { return }
    try each(E.self) { value, arena, output throws(WireError) in try value.writePacket(into: &output, from: arena) }
  }

  private mutating func each<M: WireRecord>(
    _: M.Type, _ write: (M, Span<UInt8>, inout OutputRawSpan) throws(WireError) -> Void
  ) throws(WireError) {
    messages += 1
    for _ in 0..<cases {
      var arbitrary = Arbitrary(chance), packet = PacketBuffer()
      let value = try arbitrary.message(M.self), arena = arbitrary.arena
      chance = arbitrary.chance
      do throws(WireError) {
        _ = try packet.fill { output throws(WireError) in
          try write(value, arena.span, &output)
          return true
        }
      } catch {
        // A list may have come out longer than any packet.
        #expect(error.reason == .noRoom && "\(error.field)" == "Parameter_Total_Length")
        #expect(packet.count == 0)
        continue
      }
      let bytes = packet.bytes, back = try roundTrip(bytes)
      #expect(back.octets == bytes)
      #expect(back.text.hasSuffix(value.description(in: arena.span)))
    }
  }
}
