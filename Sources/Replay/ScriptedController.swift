import BindruneWire
import HCI

/// # ScriptedController
/// **Overview**: answers the commands of our host in the place of the recorded controller.
///
/// **Function**: recorded hosts start their controllers by other commands in another order, so an answer is found by
/// its opcode: a start command gets what the recorded controller returned to it, if the trace has that; else what a
/// plain controller returns. Commands that the recorded host never sent succeed. Events about links come from the trace
/// alone.
struct ScriptedController {
  /// The recorded return parameters of commands that read something, by opcode.
  private var recorded: [UInt16: [UInt8]] = [:]
  /// The address that the controller reports; zeros make the host use its random address.
  private let address: DeviceAddress

  /// `usesRecords`: false answers as the plain controller alone.
  init(_ script: Script, address: DeviceAddress, usesRecords: Bool) {
    self.address = address
    guard usesRecords else { return }
    for packet in script.packets where packet.octets.count > 7 && packet.octets[0] == 4 && packet.octets[1] == 0x0E {
      let opcode = packet.octets.little16(4)
      // A complete event whose status is success.
      guard Self.reading.contains(opcode), packet.octets[6] == 0, Int(packet.octets[2]) == packet.octets.count - 3,
        recorded[opcode] == nil
      else { continue }
      recorded[opcode] = Array(packet.octets[6...])
    }
  }
  /// Version, buffers, lists. The supported commands and features stay the plain controller's: with those of a modern
  /// one our host would send more commands of its own, which would not be compared.
  private static let reading: Set<UInt16> = [0x1001, 0x2002, 0x1005]

  /// The event that answers a command, H4 packet type octet first.
  func answer(_ command: [UInt8]) -> [UInt8] {
    let opcode = command.little16(1)
    if Self.withStatus.contains(opcode) { return [4, 0x0F, 4, 0, 1] + opcode.littleOctets }
    var parameters = recorded[opcode] ?? Self.plain(opcode, address)
    // The subject of the command: a connection handle.
    if parameters.count == 1, Self.withHandle.contains(opcode), command.count >= 6 { parameters += command[4..<6] }
    return [4, 0x0E, UInt8(clamping: 3 + parameters.count), 1] + opcode.littleOctets + parameters
  }
  /// Answered by Command Status; the event that follows is the trace's. Vol 4, Part E, §7.1.6, §7.8.12, §7.8.18,
  /// §7.8.21, §7.8.24, §7.8.49, §7.8.66.
  private static let withStatus: Set<UInt16> = [0x0406, 0x041D, 0x200D, 0x2013, 0x2016, 0x2019, 0x2032, 0x2043]
  /// Their answers name the link. Vol 4, Part E, §7.8.25 … §7.8.26, §7.8.31 … §7.8.33, §7.3.94, §7.5.4.
  private static let withHandle: Set<UInt16> = [0x201A, 0x201B, 0x2020, 0x2021, 0x2022, 0x0C7C, 0x1405]

  /// Return parameters of a controller of Core 5.0 without options: 8 buffers of 251 octets.
  private static func plain(_ opcode: UInt16, _ address: DeviceAddress) -> [UInt8] {
    switch opcode {
    case 0x1001: return [0, 9, 0, 0, 9, 0xFF, 0xFF, 0, 0]
    case 0x1002:
      var bits = [UInt8](repeating: 0, count: 64)
      for opcode in supported {
        guard let bit = AnyCommand(default: HCIOpcode(rawValue: opcode))?.supportedBit else { continue }
        bits[Int(bit.octet & 63)] |= 1 << bit.bit
      }
      return [0] + bits
    // Features: BR/EDR Not Supported, LE Supported (Controller): Vol 2, Part C, §3.3.
    case 0x1003: return [0, 0, 0, 0, 0, 0x60, 0, 0, 0]
    case 0x1009: return [0] + (0..<6).map { UInt8(truncatingIfNeeded: address.value >> (8 * $0)) }
    case 0x2002: return [0, 251, 0, 8]
    // LE Encryption: Vol 6, Part B, §4.6.
    case 0x2003: return [0, 1, 0, 0, 0, 0, 0, 0, 0]
    case 0x201C: return [0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x03, 0, 0]
    default: return [0]
    }
  }
  private static let supported: [UInt16] = [
    0x0406, 0x0C01, 0x0C03, 0x1001, 0x1002, 0x1003, 0x1009, 0x2001, 0x2002, 0x2003, 0x2005, 0x2006, 0x2008, 0x2009,
    0x200A, 0x200B, 0x200C, 0x200D, 0x200E, 0x2013, 0x2019, 0x201A, 0x201B,
  ]
}
