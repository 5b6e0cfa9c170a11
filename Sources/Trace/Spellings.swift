import BindruneWire
import BindruneHCI
import BindruneL2CAP

// Names of numbers that the layers themselves do not need.

extension HCIOpcode {
  /// A command that this stack does not have: its group and number.
  var unknownName: String {
    switch group {
    case 0x3F: "Vendor command 0x" + hexDigits(UInt64(rawValue), 4)
    default: "Command 0x" + hexDigits(UInt64(rawValue), 4)
    }
  }
  /// `HCI_Reset`; nil for the opcode of no command.
  var shownName: String? {
    guard self != .none else { return nil }
    return AnyCommand(default: self).map { "\($0.name)" } ?? unknownName
  }
}

extension HCIEvent {
  /// The link that an event is about; nil for an event about none, or several.
  var connectionHandle: ConnectionHandle? {
    switch self {
    case .disconnectionComplete(let event): event.connectionHandle
    case .encryptionChange(let event): event.connectionHandle
    case .readRemoteVersionInformationComplete(let event): event.connectionHandle
    case .encryptionKeyRefreshComplete(let event): event.connectionHandle
    case .authenticatedPayloadTimeoutExpired(let event): event.connectionHandle
    case .encryptionChangeV2(let event): event.connectionHandle
    case .leConnectionComplete(let event): event.connectionHandle
    case .leEnhancedConnectionComplete(let event): event.connectionHandle
    case .leConnectionUpdateComplete(let event): event.connectionHandle
    case .leReadRemoteFeaturesComplete(let event): event.connectionHandle
    case .leReadAllRemoteFeaturesComplete(let event): event.connectionHandle
    case .leLongTermKeyRequest(let event): event.connectionHandle
    case .leRemoteConnectionParameterRequest(let event): event.connectionHandle
    case .leDataLengthChange(let event): event.connectionHandle
    case .lePHYUpdateComplete(let event): event.connectionHandle
    default: nil
    }
  }
}

extension ChannelID {
  // The fixed channels of BR/EDR, which the host does not have. Vol 3, Part A, §2.1, Table 2.1.
  static var classicSignaling: ChannelID { ChannelID(rawValue: 0x0001) }
  static var connectionless: ChannelID { ChannelID(rawValue: 0x0002) }
  static var classicSecurityManager: ChannelID { ChannelID(rawValue: 0x0007) }

  /// Vol 3, Part A, §2.1.
  var name: String? {
    switch self {
    case .classicSignaling: "L2CAP signaling"
    case .connectionless: "Connectionless data"
    case .attribute: "Attribute Protocol"
    case .leSignaling: "LE signaling"
    case .securityManager: "Security Manager"
    case .classicSecurityManager: "BR/EDR Security Manager"
    default: nil
    }
  }
}

extension SignalCode {
  /// Vol 3, Part A, §4, Table 4.2.
  var name: String? {
    switch rawValue {
    case 0x01: "L2CAP_COMMAND_REJECT_RSP"
    case 0x02: "L2CAP_CONNECTION_REQ"
    case 0x03: "L2CAP_CONNECTION_RSP"
    case 0x04: "L2CAP_CONFIGURATION_REQ"
    case 0x05: "L2CAP_CONFIGURATION_RSP"
    case 0x06: "L2CAP_DISCONNECTION_REQ"
    case 0x07: "L2CAP_DISCONNECTION_RSP"
    case 0x08: "L2CAP_ECHO_REQ"
    case 0x09: "L2CAP_ECHO_RSP"
    case 0x0A: "L2CAP_INFORMATION_REQ"
    case 0x0B: "L2CAP_INFORMATION_RSP"
    case 0x12: "L2CAP_CONNECTION_PARAMETER_UPDATE_REQ"
    case 0x13: "L2CAP_CONNECTION_PARAMETER_UPDATE_RSP"
    case 0x14: "L2CAP_LE_CREDIT_BASED_CONNECTION_REQ"
    case 0x15: "L2CAP_LE_CREDIT_BASED_CONNECTION_RSP"
    case 0x16: "L2CAP_FLOW_CONTROL_CREDIT_IND"
    case 0x17: "L2CAP_CREDIT_BASED_CONNECTION_REQ"
    case 0x18: "L2CAP_CREDIT_BASED_CONNECTION_RSP"
    case 0x19: "L2CAP_CREDIT_BASED_RECONFIGURE_REQ"
    case 0x1A: "L2CAP_CREDIT_BASED_RECONFIGURE_RSP"
    default: nil
    }
  }
  /// The fields of a command that has a declaration; else its octets.
  func describe(_ payload: Span<UInt8>, to end: Int) throws(WireError) -> String {
    guard let signal = try AnySignal(payload.extracting(..<end)) else {
      return hex(payload.extracting(SignalHeader.count..<end))
    }
    return signal.describe(in: payload)
  }
}

extension L2CAPViolation {
  /// What was wrong with the fragments of a frame.
  var sentence: String {
    switch self {
    case .illegalFlags: "packet boundary or broadcast flags that LE does not have"
    case .orphanFragment: "a continuing fragment without a first one"
    case .incompleteFrame(let received, let expected):
      "the frame before is incomplete: \(received) octets" + (expected.map { " of \($0)" } ?? "")
    case .overlongFragment(let received, let expected):
      "the fragments have \(received) octets, their frame \(expected)"
    default: "\(self)"
    }
  }
}

/// `0A 03 00`; the first 64 octets of more.
func hex(_ bytes: Span<UInt8>) -> String {
  let shown = bytes.extracting(first: 64)
  let text = hexText(shown)
  return bytes.count > 64 ? text + " … (\(bytes.count) octets)" : text
}

extension Span<UInt8> {
  var array: [UInt8] { unsafe withUnsafeBufferPointer { unsafe Array($0) } }
}
