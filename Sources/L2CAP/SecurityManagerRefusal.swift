import BindruneWire

/// # SecurityManagerRefusal
/// **Overview**: serves channel 0x0006 until pairing is supported: it refuses, so that a peer need not wait 30 s for
/// its time-out (Vol 3, Part H, §3.4).
///
/// **Function**: a device that does not pair answers every command with Pairing Failed, Pairing Not Supported (Vol 3,
/// Part H, §3.3 and §3.5.5), and ignores reserved codes. It ignores Pairing Failed too: two such devices would
/// otherwise answer each other for ever.
///
/// **Phases**: idle → pending (one Pairing Failed) → idle. A command that arrives while one is pending gets the same
/// answer.
struct SecurityManagerRefusal: BitwiseCopyable {
  private(set) var isAnswerPending = false

  /// One command, of at least one octet.
  mutating func receive(_ command: Span<UInt8>) -> L2CAPViolation? {
    switch command[0] {
    case 0x01...0x04, 0x06...0x0E:
      isAnswerPending = true
      return nil
    default:
      return .unexpectedSecurityCommand(command[0])
    }
  }
  /// Appends Pairing Failed (0x05), reason Pairing Not Supported (0x05).
  mutating func writeAnswer(into output: inout OutputRawSpan) -> Bool {
    guard isAnswerPending else { return false }
    isAnswerPending = false
    output.append(0x05)
    output.append(0x05)
    return true
  }
}
