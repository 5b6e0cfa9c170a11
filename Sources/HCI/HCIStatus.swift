import BindruneWire

/// Why a command failed or a link ended. Vol 1, Part F, §1.3; the numbers not listed are reserved.
public struct HCIStatus: OpenNumber, ExpressibleByIntegerLiteral, CustomStringConvertible {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }

  public static var success: HCIStatus { 0x00 }
  public static var unknownHCICommand: HCIStatus { 0x01 }
  public static var unknownConnectionIdentifier: HCIStatus { 0x02 }
  public static var hardwareFailure: HCIStatus { 0x03 }
  public static var pageTimeout: HCIStatus { 0x04 }
  public static var authenticationFailure: HCIStatus { 0x05 }
  public static var pinOrKeyMissing: HCIStatus { 0x06 }
  public static var memoryCapacityExceeded: HCIStatus { 0x07 }
  public static var connectionTimeout: HCIStatus { 0x08 }
  public static var connectionLimitExceeded: HCIStatus { 0x09 }
  public static var synchronousConnectionLimitExceeded: HCIStatus { 0x0A }
  public static var connectionAlreadyExists: HCIStatus { 0x0B }
  public static var commandDisallowed: HCIStatus { 0x0C }
  public static var limitedResources: HCIStatus { 0x0D }
  public static var securityReasons: HCIStatus { 0x0E }
  public static var unacceptableBDADDR: HCIStatus { 0x0F }
  public static var connectionAcceptTimeoutExceeded: HCIStatus { 0x10 }
  public static var unsupportedFeatureOrParameterValue: HCIStatus { 0x11 }
  public static var invalidHCICommandParameters: HCIStatus { 0x12 }
  public static var remoteUserTerminatedConnection: HCIStatus { 0x13 }
  public static var remoteDeviceTerminatedLowResources: HCIStatus { 0x14 }
  public static var remoteDeviceTerminatedPowerOff: HCIStatus { 0x15 }
  public static var connectionTerminatedByLocalHost: HCIStatus { 0x16 }
  public static var repeatedAttempts: HCIStatus { 0x17 }
  public static var pairingNotAllowed: HCIStatus { 0x18 }
  public static var unknownLMPPDU: HCIStatus { 0x19 }
  public static var unsupportedRemoteFeature: HCIStatus { 0x1A }
  public static var invalidLMPOrLLParameters: HCIStatus { 0x1E }
  public static var unspecifiedError: HCIStatus { 0x1F }
  public static var unsupportedLMPOrLLParameterValue: HCIStatus { 0x20 }
  public static var roleChangeNotAllowed: HCIStatus { 0x21 }
  public static var lmpOrLLResponseTimeout: HCIStatus { 0x22 }
  public static var lmpOrLLProcedureCollision: HCIStatus { 0x23 }
  public static var lmpPDUNotAllowed: HCIStatus { 0x24 }
  public static var encryptionModeNotAcceptable: HCIStatus { 0x25 }
  public static var linkKeyCannotBeChanged: HCIStatus { 0x26 }
  public static var requestedQoSNotSupported: HCIStatus { 0x27 }
  public static var instantPassed: HCIStatus { 0x28 }
  public static var pairingWithUnitKeyNotSupported: HCIStatus { 0x29 }
  public static var differentTransactionCollision: HCIStatus { 0x2A }
  public static var qosUnacceptableParameter: HCIStatus { 0x2C }
  public static var qosRejected: HCIStatus { 0x2D }
  public static var channelClassificationNotSupported: HCIStatus { 0x2E }
  public static var insufficientSecurity: HCIStatus { 0x2F }
  public static var parameterOutOfMandatoryRange: HCIStatus { 0x30 }
  public static var roleSwitchPending: HCIStatus { 0x32 }
  public static var reservedSlotViolation: HCIStatus { 0x34 }
  public static var roleSwitchFailed: HCIStatus { 0x35 }
  public static var extendedInquiryResponseTooLarge: HCIStatus { 0x36 }
  public static var secureSimplePairingNotSupported: HCIStatus { 0x37 }
  public static var hostBusyPairing: HCIStatus { 0x38 }
  public static var noSuitableChannelFound: HCIStatus { 0x39 }
  public static var controllerBusy: HCIStatus { 0x3A }
  public static var unacceptableConnectionParameters: HCIStatus { 0x3B }
  public static var advertisingTimeout: HCIStatus { 0x3C }
  public static var connectionTerminatedMICFailure: HCIStatus { 0x3D }
  public static var connectionFailedToBeEstablished: HCIStatus { 0x3E }
  public static var coarseClockAdjustmentRejected: HCIStatus { 0x40 }
  public static var type0SubmapNotDefined: HCIStatus { 0x41 }
  public static var unknownAdvertisingIdentifier: HCIStatus { 0x42 }
  public static var limitReached: HCIStatus { 0x43 }
  public static var operationCancelledByHost: HCIStatus { 0x44 }
  public static var packetTooLong: HCIStatus { 0x45 }

  /// The Specification's name; nil for a reserved number.
  public var name: StaticString? {
    switch rawValue {
    case 0x00: "Success"
    case 0x01: "Unknown HCI Command"
    case 0x02: "Unknown Connection Identifier"
    case 0x03: "Hardware Failure"
    case 0x04: "Page Timeout"
    case 0x05: "Authentication Failure"
    case 0x06: "PIN or Key Missing"
    case 0x07: "Memory Capacity Exceeded"
    case 0x08: "Connection Timeout"
    case 0x09: "Connection Limit Exceeded"
    case 0x0A: "Synchronous Connection Limit To A Device Exceeded"
    case 0x0B: "Connection Already Exists"
    case 0x0C: "Command Disallowed"
    case 0x0D: "Connection Rejected due to Limited Resources"
    case 0x0E: "Connection Rejected Due To Security Reasons"
    case 0x0F: "Connection Rejected due to Unacceptable BD_ADDR"
    case 0x10: "Connection Accept Timeout Exceeded"
    case 0x11: "Unsupported Feature or Parameter Value"
    case 0x12: "Invalid HCI Command Parameters"
    case 0x13: "Remote User Terminated Connection"
    case 0x14: "Remote Device Terminated Connection due to Low Resources"
    case 0x15: "Remote Device Terminated Connection due to Power Off"
    case 0x16: "Connection Terminated By Local Host"
    case 0x17: "Repeated Attempts"
    case 0x18: "Pairing Not Allowed"
    case 0x19: "Unknown LMP PDU"
    case 0x1A: "Unsupported Remote Feature"
    case 0x1E: "Invalid LMP Parameters / Invalid LL Parameters"
    case 0x1F: "Unspecified Error"
    case 0x20: "Unsupported LMP Parameter Value / Unsupported LL Parameter Value"
    case 0x21: "Role Change Not Allowed"
    case 0x22: "LMP Response Timeout / LL Response Timeout"
    case 0x23: "LMP Error Transaction Collision / LL Procedure Collision"
    case 0x24: "LMP PDU Not Allowed"
    case 0x25: "Encryption Mode Not Acceptable"
    case 0x26: "Link Key cannot be Changed"
    case 0x27: "Requested QoS Not Supported"
    case 0x28: "Instant Passed"
    case 0x29: "Pairing With Unit Key Not Supported"
    case 0x2A: "Different Transaction Collision"
    case 0x2C: "QoS Unacceptable Parameter"
    case 0x2D: "QoS Rejected"
    case 0x2E: "Channel Classification Not Supported"
    case 0x2F: "Insufficient Security"
    case 0x30: "Parameter Out Of Mandatory Range"
    case 0x32: "Role Switch Pending"
    case 0x34: "Reserved Slot Violation"
    case 0x35: "Role Switch Failed"
    case 0x36: "Extended Inquiry Response Too Large"
    case 0x37: "Secure Simple Pairing Not Supported By Host"
    case 0x38: "Host Busy - Pairing"
    case 0x39: "Connection Rejected due to No Suitable Channel Found"
    case 0x3A: "Controller Busy"
    case 0x3B: "Unacceptable Connection Parameters"
    case 0x3C: "Advertising Timeout"
    case 0x3D: "Connection Terminated due to MIC Failure"
    case 0x3E: "Connection Failed to be Established / Synchronization Timeout"
    case 0x40: "Coarse Clock Adjustment Rejected but Will Try to Adjust Using Clock Dragging"
    case 0x41: "Type0 Submap Not Defined"
    case 0x42: "Unknown Advertising Identifier"
    case 0x43: "Limit Reached"
    case 0x44: "Operation Cancelled by Host"
    case 0x45: "Packet Too Long"
    default: nil
    }
  }
  /// `0x13 (Remote User Terminated Connection)`.
  public var text: String { "0x" + hexDigits(wire, 2) + (name.map { " (\($0))" } ?? "") }
  public var description: String { text }
}
