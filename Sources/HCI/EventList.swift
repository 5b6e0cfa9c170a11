// Written by Scripts/messages from the declarations of the messages: do not edit.

import BindruneWire

/// A decoded event. Vol 4, Part E, §5.4.4 and §7.7; the LE Meta events (§7.7.65) are cases like the others.
public enum HCIEvent: BitwiseCopyable, Sendable {
  case disconnectionComplete(DisconnectionComplete)
  case encryptionChange(EncryptionChange)
  case readRemoteVersionInformationComplete(ReadRemoteVersionInformationComplete)
  case commandComplete(CommandComplete)
  case commandStatus(CommandStatus)
  case hardwareError(HardwareError)
  case numberOfCompletedPackets(NumberOfCompletedPackets)
  case dataBufferOverflow(DataBufferOverflow)
  case encryptionKeyRefreshComplete(EncryptionKeyRefreshComplete)
  case authenticatedPayloadTimeoutExpired(AuthenticatedPayloadTimeoutExpired)
  case encryptionChangeV2(EncryptionChangeV2)
  case leConnectionComplete(LEConnectionComplete)
  case leAdvertisingReport(LEAdvertisingReport)
  case leConnectionUpdateComplete(LEConnectionUpdateComplete)
  case leReadRemoteFeaturesComplete(LEReadRemoteFeaturesComplete)
  case leLongTermKeyRequest(LELongTermKeyRequest)
  case leRemoteConnectionParameterRequest(LERemoteConnectionParameterRequest)
  case leDataLengthChange(LEDataLengthChange)
  case leEnhancedConnectionComplete(LEEnhancedConnectionComplete)
  case leDirectedAdvertisingReport(LEDirectedAdvertisingReport)
  case lePHYUpdateComplete(LEPHYUpdateComplete)
  case leExtendedAdvertisingReport(LEExtendedAdvertisingReport)
  case leScanTimeout(LEScanTimeout)
  case leAdvertisingSetTerminated(LEAdvertisingSetTerminated)
  case leScanRequestReceived(LEScanRequestReceived)
  case leReadAllRemoteFeaturesComplete(LEReadAllRemoteFeaturesComplete)
  /// An LE Meta event of another subevent code, with what follows the code.
  case unknownLE(subevent: UInt8, Octets)
  /// Event code 0xFF: vendor-specific.
  case vendor(Octets)
  /// Any other event code.
  case unknown(code: UInt8, Octets)

  /// An event with the parameters from `reader`; nil when this stack does not support it.
  init?(code: UInt8, subevent: UInt8, _ reader: inout some WireMessageReader) throws(WireError) {
    switch code {
    case 0x05: self = .disconnectionComplete(try read(&reader))
    case 0x08: self = .encryptionChange(try read(&reader))
    case 0x0C: self = .readRemoteVersionInformationComplete(try read(&reader))
    case 0x0E: self = .commandComplete(try read(&reader))
    case 0x0F: self = .commandStatus(try read(&reader))
    case 0x10: self = .hardwareError(try read(&reader))
    case 0x13: self = .numberOfCompletedPackets(try read(&reader))
    case 0x1A: self = .dataBufferOverflow(try read(&reader))
    case 0x30: self = .encryptionKeyRefreshComplete(try read(&reader))
    case 0x3E:
      switch subevent {
      case 0x01: self = .leConnectionComplete(try read(&reader))
      case 0x02: self = .leAdvertisingReport(try read(&reader))
      case 0x03: self = .leConnectionUpdateComplete(try read(&reader))
      case 0x04: self = .leReadRemoteFeaturesComplete(try read(&reader))
      case 0x05: self = .leLongTermKeyRequest(try read(&reader))
      case 0x06: self = .leRemoteConnectionParameterRequest(try read(&reader))
      case 0x07: self = .leDataLengthChange(try read(&reader))
      case 0x0A: self = .leEnhancedConnectionComplete(try read(&reader))
      case 0x0B: self = .leDirectedAdvertisingReport(try read(&reader))
      case 0x0C: self = .lePHYUpdateComplete(try read(&reader))
      case 0x0D: self = .leExtendedAdvertisingReport(try read(&reader))
      case 0x11: self = .leScanTimeout(try read(&reader))
      case 0x12: self = .leAdvertisingSetTerminated(try read(&reader))
      case 0x13: self = .leScanRequestReceived(try read(&reader))
      case 0x2B: self = .leReadAllRemoteFeaturesComplete(try read(&reader))
      default: return nil
      }
    case 0x57: self = .authenticatedPayloadTimeoutExpired(try read(&reader))
    case 0x59: self = .encryptionChangeV2(try read(&reader))
    default: return nil
    }
  }

  /// Passes the event and its type, except for the three unknown ones, to `visitor`.
  public func visit(_ visitor: inout some EventVisitor) throws(WireError) {
    switch self {
    case .disconnectionComplete(let event): try visitor.visitEvent(event)
    case .encryptionChange(let event): try visitor.visitEvent(event)
    case .readRemoteVersionInformationComplete(let event): try visitor.visitEvent(event)
    case .commandComplete(let event): try visitor.visitEvent(event)
    case .commandStatus(let event): try visitor.visitEvent(event)
    case .hardwareError(let event): try visitor.visitEvent(event)
    case .numberOfCompletedPackets(let event): try visitor.visitEvent(event)
    case .dataBufferOverflow(let event): try visitor.visitEvent(event)
    case .encryptionKeyRefreshComplete(let event): try visitor.visitEvent(event)
    case .authenticatedPayloadTimeoutExpired(let event): try visitor.visitEvent(event)
    case .encryptionChangeV2(let event): try visitor.visitEvent(event)
    case .leConnectionComplete(let event): try visitor.visitEvent(event)
    case .leAdvertisingReport(let event): try visitor.visitEvent(event)
    case .leConnectionUpdateComplete(let event): try visitor.visitEvent(event)
    case .leReadRemoteFeaturesComplete(let event): try visitor.visitEvent(event)
    case .leLongTermKeyRequest(let event): try visitor.visitEvent(event)
    case .leRemoteConnectionParameterRequest(let event): try visitor.visitEvent(event)
    case .leDataLengthChange(let event): try visitor.visitEvent(event)
    case .leEnhancedConnectionComplete(let event): try visitor.visitEvent(event)
    case .leDirectedAdvertisingReport(let event): try visitor.visitEvent(event)
    case .lePHYUpdateComplete(let event): try visitor.visitEvent(event)
    case .leExtendedAdvertisingReport(let event): try visitor.visitEvent(event)
    case .leScanTimeout(let event): try visitor.visitEvent(event)
    case .leAdvertisingSetTerminated(let event): try visitor.visitEvent(event)
    case .leScanRequestReceived(let event): try visitor.visitEvent(event)
    case .leReadAllRemoteFeaturesComplete(let event): try visitor.visitEvent(event)
    case .unknownLE, .vendor, .unknown: break
    }
  }

  /// Passes each of the 26 events, with its default parameters, to `visitor`.
  public static func each(_ visitor: inout some EventVisitor) throws(WireError) {
    try visitor.visitEvent(DisconnectionComplete())
    try visitor.visitEvent(EncryptionChange())
    try visitor.visitEvent(ReadRemoteVersionInformationComplete())
    try visitor.visitEvent(CommandComplete())
    try visitor.visitEvent(CommandStatus())
    try visitor.visitEvent(HardwareError())
    try visitor.visitEvent(NumberOfCompletedPackets())
    try visitor.visitEvent(DataBufferOverflow())
    try visitor.visitEvent(EncryptionKeyRefreshComplete())
    try visitor.visitEvent(AuthenticatedPayloadTimeoutExpired())
    try visitor.visitEvent(EncryptionChangeV2())
    try visitor.visitEvent(LEConnectionComplete())
    try visitor.visitEvent(LEAdvertisingReport())
    try visitor.visitEvent(LEConnectionUpdateComplete())
    try visitor.visitEvent(LEReadRemoteFeaturesComplete())
    try visitor.visitEvent(LELongTermKeyRequest())
    try visitor.visitEvent(LERemoteConnectionParameterRequest())
    try visitor.visitEvent(LEDataLengthChange())
    try visitor.visitEvent(LEEnhancedConnectionComplete())
    try visitor.visitEvent(LEDirectedAdvertisingReport())
    try visitor.visitEvent(LEPHYUpdateComplete())
    try visitor.visitEvent(LEExtendedAdvertisingReport())
    try visitor.visitEvent(LEScanTimeout())
    try visitor.visitEvent(LEAdvertisingSetTerminated())
    try visitor.visitEvent(LEScanRequestReceived())
    try visitor.visitEvent(LEReadAllRemoteFeaturesComplete())
  }
}

extension EventMask {
  public static var disconnectionComplete: EventMask { EventMask(bit: 4) }
  public static var encryptionChange: EventMask { EventMask(bit: 7) }
  public static var readRemoteVersionInformationComplete: EventMask { EventMask(bit: 11) }
  public static var commandComplete: EventMask { EventMask(bit: 13) }
  public static var commandStatus: EventMask { EventMask(bit: 14) }
  public static var hardwareError: EventMask { EventMask(bit: 15) }
  public static var numberOfCompletedPackets: EventMask { EventMask(bit: 18) }
  public static var dataBufferOverflow: EventMask { EventMask(bit: 25) }
  public static var encryptionKeyRefreshComplete: EventMask { EventMask(bit: 47) }
}

extension EventMaskPage2 {
  public static var authenticatedPayloadTimeoutExpired: EventMaskPage2 { EventMaskPage2(bit: 23) }
  public static var encryptionChangeV2: EventMaskPage2 { EventMaskPage2(bit: 25) }
}

extension LEEventMask {
  public static var connectionComplete: LEEventMask { LEEventMask(bit: 0) }
  public static var advertisingReport: LEEventMask { LEEventMask(bit: 1) }
  public static var connectionUpdateComplete: LEEventMask { LEEventMask(bit: 2) }
  public static var readRemoteFeaturesComplete: LEEventMask { LEEventMask(bit: 3) }
  public static var longTermKeyRequest: LEEventMask { LEEventMask(bit: 4) }
  public static var remoteConnectionParameterRequest: LEEventMask { LEEventMask(bit: 5) }
  public static var dataLengthChange: LEEventMask { LEEventMask(bit: 6) }
  public static var enhancedConnectionComplete: LEEventMask { LEEventMask(bit: 9) }
  public static var directedAdvertisingReport: LEEventMask { LEEventMask(bit: 10) }
  public static var phyUpdateComplete: LEEventMask { LEEventMask(bit: 11) }
  public static var extendedAdvertisingReport: LEEventMask { LEEventMask(bit: 12) }
  public static var scanTimeout: LEEventMask { LEEventMask(bit: 16) }
  public static var advertisingSetTerminated: LEEventMask { LEEventMask(bit: 17) }
  public static var scanRequestReceived: LEEventMask { LEEventMask(bit: 18) }
  public static var readAllRemoteFeaturesComplete: LEEventMask { LEEventMask(bit: 42) }
}
