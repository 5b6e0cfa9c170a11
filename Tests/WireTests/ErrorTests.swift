import BindruneWire
import TestSupport
import Testing

/// An error names the field, the reason, and the value or the numbers of octets.
@Suite struct ErrorTests {
  @Test func everyReason() {
    let texts: [(WireError, String)] = [
      (.truncated("Offset", needed: 2, available: 1), #"truncated "Offset": needed 2, available 1"#),
      (.invalid("Format", 3), #"invalid "Format": 0x03"#),
      (.invalid("Interval", 0x12_3456), #"invalid "Interval": 0x123456"#),
      (.wrongLength("Length", 7, expected: 4), #"wrong length "Length": 7, expected 4"#),
      (.trailing("", 2), "trailing: 2 octets after the last field"),
      (.trailing("Length", 2), #"trailing "Length": 2 octets more than it says"#),
      (.unknown("Opcode", 0x99), #"unknown "Opcode": 0x99"#),
      (.noRoom("Value", needed: 20, available: 3), #"no room "Value": needed 20, available 3"#),
      (.unset("Handle"), #"unset "Handle""#),
      (.tooLarge("Length", 300), #"too large "Length": 300"#),
      (.outsideSource("Value", end: 30, count: 20), #"outside the source "Value": ends at 30 of 20"#),
      // Numbers that do not fit are clamped.
      (.truncated("Value", needed: 70_000, available: -1), #"truncated "Value": needed 65535, available 0"#),
      (.tooLarge("Length", .max), #"too large "Length": 4294967295"#),
    ]
    for (error, text) in texts { #expect("\(error)" == text) }
  }
  /// The error of an invalid value has the value in the packet, even of a field of a few bits.
  @Test func theValueIsShown() {
    func reason<M: WireRecord>(_: M.Type, _ packet: String) -> WireError.Reason? {
      let packet = octets(packet)
      do throws(WireError) { _ = try WireDecoder.decode(M.self, packet.span) } catch { return error.reason }
      return nil
    }
    #expect(reason(OneFlag.self, "02") == .invalid(2) && reason(OneFlag.self, "01") == nil)
    #expect(reason(TwoBits.self, "FF") == .invalid(3) && reason(TwoBits.self, "F7") == nil)
  }
}

private struct OneFlag: WireRecord {
  var flag = false
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.value("Flag", &flag) }
}
/// A Boolean in two bits, between others.
private struct TwoBits: WireRecord {
  var low: UInt8 = 0, flag = false, high: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Low", &low, 2)
    try visit.bits("Flag", &flag, 2)
    try visit.bits("High", &high, 4)
  }
}
