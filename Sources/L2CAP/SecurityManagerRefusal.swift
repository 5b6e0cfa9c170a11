import BindruneWire
import HCI

/// # SecurityManagerRefusal
/// **Overview**: what stands on channel 0x0006 until there is pairing: it says no, so that a peer need not wait 30 s for
/// its time-out (Vol 3, Part H, §3.4).
///
/// **Function**: a central's Pairing Request and a peripheral's Security Request are answered with Pairing Failed, Pairing
/// Not Supported (Vol 3, Part H, §3.5.5). Anything else is named and ignored.
///
/// **Phases**: quiet → owing (one Pairing Failed) → quiet. A request that comes while one is owed gets the same answer.
struct SecurityManagerRefusal: BitwiseCopyable {
  let role: LinkRole
  private(set) var owesAnswer = false

  init(role: LinkRole) { self.role = role }

  /// One command, of at least one octet.
  mutating func receive(_ command: Span<UInt8>) -> L2CAPViolation? {
    switch (command[0], role) {
    case (0x01, .peripheral), (0x0B, .central):
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
