import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// WireArbitrary × every command, return parameters and event: value → packet → value, compared by packet and text.
@Suite struct PropertyTests {
  @Test func commandsAndReturnParameters() throws {
    var visitor = ThereAndBack()
    try AnyCommand.each(&visitor)
    #expect(visitor.messages == 168)
  }
  @Test func events() throws {
    var visitor = ThereAndBack()
    try HCIEvent.each(&visitor)
    #expect(visitor.messages == 25)
  }
  /// Units of Vol 4, Part E, §7.8.12, §7.8.53, §7.8.65 and §7.7.65.13, the ends of their ranges, and rounding.
  @Test func units() {
    #expect(PrimaryAdvertisingInterval(rawValue: 0xFF_FFFF).duration == .microseconds(10_485_759_375))
    #expect(PrimaryAdvertisingInterval(.milliseconds(20)) == PrimaryAdvertisingInterval(rawValue: 0x20))
    #expect(PrimaryAdvertisingInterval(.seconds(20_000)) == PrimaryAdvertisingInterval(rawValue: 0xFF_FFFF))
    #expect(PrimaryAdvertisingInterval(.nanoseconds(312_500)) == PrimaryAdvertisingInterval(rawValue: 1))
    #expect(PrimaryAdvertisingInterval(.nanoseconds(312_499)) == PrimaryAdvertisingInterval(rawValue: 0))
    #expect(ScanDuration(rawValue: 0xFFFF).duration == .milliseconds(655_350))
    #expect(ScanPeriod(rawValue: 0xFFFF).duration == .milliseconds(83_884_800))
    #expect(PeriodicAdvertisingInterval(rawValue: 0xFFFF).duration == .microseconds(81_918_750))
    #expect(ConnectionEventLength(rawValue: 0xFFFF).duration == .microseconds(40_959_375))
    #expect(ScanInterval(.seconds(-1)).rawValue == 0 && ScanInterval(.seconds(60)).rawValue == 0xFFFF)
  }
}

private struct ThereAndBack: CommandVisitor, EventVisitor {
  var messages = 0
  private var chance = SplitMix64(seed: Fuzz.seed)
  /// Values per message.
  private var cases: Int { max(20, Fuzz.cases / 100) }

  mutating func visitCommand<C: HCICommand>(_: C) throws(WireError) {
    try each(C.self) { value, arena, output throws(WireError) in try value.writePacket(into: &output, from: arena) }
    try each(C.Return.self) { value, arena, output throws(WireError) in
      try C.writeComplete(value, into: &output, from: arena)
    }
  }
  mutating func visitEvent<E: HCIEventMessage>(_: E) throws(WireError) {
    // Its return parameters belong to each command, whose test has converted them.
    if E.self == CommandComplete.self { return }
    try each(E.self) { value, arena, output throws(WireError) in try value.writePacket(into: &output, from: arena) }
  }

  private mutating func each<M: WireRecord>(
    _: M.Type, _ write: (M, Span<UInt8>, inout OutputRawSpan) throws(WireError) -> Void
  ) throws(WireError) {
    messages += 1
    for _ in 0..<cases {
      var arbitrary = WireArbitrary(chance), packet = PacketBuffer()
      let value = try arbitrary.message(M.self), arena = arbitrary.arena
      chance = arbitrary.chance
      do throws(WireError) {
        _ = try packet.fill { output throws(WireError) in
          try write(value, arena.span, &output)
          return true
        }
      } catch {
        // A random list may be longer than any packet.
        guard case .tooLarge(let count) = error.reason else { throw error }
        #expect(count > 255 && "\(error.field)" == "Parameter_Total_Length")
        #expect(packet.count == 0)
        continue
      }
      let bytes = packet.bytes, back = try roundTrip(bytes)
      #expect(back.octets == bytes)
      #expect(back.text.hasSuffix(value.description(in: arena.span)))
    }
  }
}
