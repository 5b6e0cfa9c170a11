import BindruneWire
import BindruneHCI

/// # ScriptedController
/// **Overview**: answers the commands of our host in the place of the recorded controller.
///
/// **Function**: recorded hosts start their controllers by other commands in another order, so an answer is found by
/// its opcode: a start command gets what the recorded controller returned to it, if the trace has that; else what a
/// plain controller returns. Commands that the recorded host never sent succeed. Events about links come from the trace
/// alone.
struct ScriptedController {
  /// The recorded return parameters of commands that read something, by opcode.
  private var recorded: [HCIOpcode: [UInt8]] = [:]
  /// The address that the controller reports; zeros make the host use its random address.
  private let address: DeviceAddress

  /// `usesRecords`: false answers as the plain controller alone.
  init(_ script: Script, address: DeviceAddress, usesRecords: Bool) {
    self.address = address
    guard usesRecords else { return }
    for packet in script.packets where packet.octets.first == HCIPacketType.event.rawValue {
      let octets = packet.octets
      guard case .commandComplete(let event)? = try? HCIEvent(octets.span) else { continue }
      let opcode = event.commandOpcode, returned = octets[event.returnParameters.range]
      guard Self.reading.contains(opcode), returned.count > 1, returned.first == HCIStatus.success.rawValue,
        recorded[opcode] == nil
      else { continue }
      recorded[opcode] = Array(returned)
    }
  }
  /// Version, buffers, lists. The supported commands and features stay the plain controller's: with those of a modern
  /// one our host would send more commands of its own, which would not be compared.
  private static let reading: Set<HCIOpcode> = [
    ReadLocalVersionInformation.opcode, LEReadBufferSize.opcode, ReadBufferSize.opcode,
  ]

  /// The event that answers a command, H4 packet type octet first.
  func answer(_ command: [UInt8]) -> [UInt8] {
    let opcode = command.commandOpcode, event = HCIPacketType.event.rawValue
    // The event that follows is the trace's.
    if AnyCommand(default: opcode)?.isAnsweredByStatus == true {
      return [event, CommandStatus.code, 4, 0, 1] + opcode.rawValue.littleOctets
    }
    var parameters = recorded[opcode] ?? Self.plain(opcode, address)
    // The subject of the command: a connection handle.
    if parameters.count == 1, Self.withHandle.contains(opcode), command.count >= 6 { parameters += command[4..<6] }
    return [event, CommandComplete.code, UInt8(clamping: 3 + parameters.count), 1] + opcode.rawValue.littleOctets
      + parameters
  }
  /// Their answers name the link. Vol 4, Part E, §7.8.25 … §7.8.26, §7.8.31 … §7.8.33, §7.3.94, §7.5.4.
  private static let withHandle: Set<HCIOpcode> = [
    LELongTermKeyRequestReply.opcode, LELongTermKeyRequestNegativeReply.opcode,
    LERemoteConnectionParameterRequestReply.opcode, LERemoteConnectionParameterRequestNegativeReply.opcode,
    LESetDataLength.opcode, WriteAuthenticatedPayloadTimeout.opcode, ReadRSSI.opcode,
  ]

  /// Return parameters of a controller of Core 5.0 without options: 8 buffers of 251 octets.
  private static func plain(_ opcode: HCIOpcode, _ address: DeviceAddress) -> [UInt8] {
    switch opcode {
    case ReadLocalVersionInformation.opcode: return [0, 9, 0, 0, 9, 0xFF, 0xFF, 0, 0]
    case ReadLocalSupportedCommands.opcode:
      var bits = [UInt8](repeating: 0, count: 64)
      for opcode in supported {
        guard let bit = AnyCommand(default: opcode)?.supportedBit else { continue }
        bits[Int(bit.octet & 63)] |= 1 << bit.bit
      }
      return [0] + bits
    // Features: BR/EDR Not Supported, LE Supported (Controller): Vol 2, Part C, §3.3.
    case ReadLocalSupportedFeatures.opcode: return [0, 0, 0, 0, 0, 0x60, 0, 0, 0]
    case ReadBDADDR.opcode: return [0] + (0..<6).map { UInt8(truncatingIfNeeded: address.value >> (8 * $0)) }
    case LEReadBufferSize.opcode: return [0, 251, 0, 8]
    // LE Encryption: Vol 6, Part B, §4.6.
    case LEReadLocalSupportedFeatures.opcode: return [0, 1, 0, 0, 0, 0, 0, 0, 0]
    case LEReadSupportedStates.opcode: return [0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x03, 0, 0]
    default: return [0]
    }
  }
  private static let supported: [HCIOpcode] = [
    Disconnect.opcode, SetEventMask.opcode, Reset.opcode, ReadLocalVersionInformation.opcode,
    ReadLocalSupportedCommands.opcode, ReadLocalSupportedFeatures.opcode, ReadBDADDR.opcode, LESetEventMask.opcode,
    LEReadBufferSize.opcode, LEReadLocalSupportedFeatures.opcode, LESetRandomAddress.opcode,
    LESetAdvertisingParameters.opcode, LESetAdvertisingData.opcode, LESetScanResponseData.opcode,
    LESetAdvertisingEnable.opcode, LESetScanParameters.opcode, LESetScanEnable.opcode, LECreateConnection.opcode,
    LECreateConnectionCancel.opcode, LEConnectionUpdate.opcode, LEEnableEncryption.opcode,
    LELongTermKeyRequestReply.opcode, LELongTermKeyRequestNegativeReply.opcode,
  ]
}
