import BindruneWire

/// # SecurityManagerRefusal
/// **Overview**: what stands on channel 0x0006 until there is pairing: it says no, so that a peer need not wait 30 s for
/// its time-out (Vol 3, Part H, §3.4).
///
/// **Function**: a device that does not pair answers every command with Pairing Failed, Pairing Not Supported (Vol 3,
/// Part H, §3.3 and §3.5.5), and ignores reserved codes. Pairing Failed itself is ignored too: two such devices would
/// answer each other for ever.
///
/// **Phases**: quiet → owing (one Pairing Failed) → quiet. A command that comes while one is owed gets the same answer.
struct SecurityManagerRefusal: BitwiseCopyable {
  private(set) var owesAnswer = false

  /// One command, of at least one octet.
  mutating func receive(_ command: Span<UInt8>) -> L2CAPViolation? {
    switch command[0] {
    case 0x01...0x04, 0x06...0x0E:
      owesAnswer = true
      return nil
    default:
      return .unexpectedSecurityCommand(command[0])
    }
  }
  /// Appends Pairing Failed (0x05), reason Pairing Not Supported (0x05).
  mutating func writeAnswer(into output: inout OutputRawSpan) -> Bool {
    guard owesAnswer else { return false }
    owesAnswer = false
    output.append(0x05)
    output.append(0x05)
    return true
  }
}
