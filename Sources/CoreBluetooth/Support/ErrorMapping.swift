import BindruneBroker
import BindruneWire
import Foundation

extension CBError {
  /// `sentence`: the cause, and the cure. It may contain paths, and programs print it.
  init(_ code: Code, _ sentence: String) {
    self.init(code, userInfo: [NSLocalizedDescriptionKey: sentence.printable()])
  }
}
extension CBATTError {
  init(_ code: Code, _ sentence: String) {
    self.init(code, userInfo: [NSLocalizedDescriptionKey: sentence.printable()])
  }
}

extension BluetoothError {
  /// The facade's error: an answer of the peer is a `CBATTError`, everything else a `CBError`, with our sentence.
  var facade: any Error {
    if let attError {
      return CBATTError(CBATTError.Code(rawValue: Int(attError.rawValue)) ?? .unlikelyError, diagnostics)
    }
    let code: CBError.Code =
      switch code {
      case .transport, .controller, .protocolViolation, .notStarted, .att, .storage: .unknown
      case .connectionFailed: .connectionFailed
      case .connectionLimitReached: .connectionLimitReached
      case .connectionTimedOut, .timedOut: .connectionTimeout
      case .disconnected: .peripheralDisconnected
      case .refused: .operationNotSupported
      case .servicesChanged: .invalidHandle
      // Vol 1, Part F, §2.6: the device no longer has the key.
      case .pairing where status?.rawValue == 0x06: .peerRemovedPairingInformation
      case .pairing: .encryptionTimedOut
      case .cancelled: .operationCancelled
      case .invalidArgument: .invalidParameters
      case .busy, .overflow, .outOfSpace: .outOfSpace
      }
    return CBError(code, diagnostics)
  }
}
