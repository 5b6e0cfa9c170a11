import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI

/// The one error of the public interface: what kind it is, and a sentence with the cause and, where there is one, the cure.
public struct BluetoothError: Error, Sendable, Equatable, CustomStringConvertible {
  public enum Code: Sendable, Hashable {
    /// The way to the controller failed or was lost.
    case transport
    /// The controller did not start, failed, or refused a command.
    case controller
    /// The link could not be made.
    case connectionFailed
    /// The link is gone.
    case disconnected
    /// The peer answered with an ATT error, which `attError` holds.
    case att
    /// The peer broke the protocol.
    case protocolViolation
    /// The peer did not answer in time.
    case timedOut
    /// The task was cancelled.
    case cancelled
    /// The caller asked for something that cannot be: too long a value, data that does not fit.
    case invalidArgument
    /// Too much waits already.
    case busy
    /// Values came faster than they were taken; the sequence has ended rather than leave a gap unseen.
    case overflow
    /// The host has been closed or was never started.
    case notStarted
  }
  public var code: Code
  public var diagnostics: String
  public var attError: ATTError?

  public init(_ code: Code, _ diagnostics: String, attError: ATTError? = nil) {
    self.code = code
    self.diagnostics = diagnostics
    self.attError = attError
  }
  public var description: String { diagnostics }
}

extension BluetoothError {
  init(_ failure: HostFailure) {
    self =
      switch failure {
      case .cancelled: BluetoothError(.cancelled, "the request was cancelled")
      case .controller(let status): BluetoothError(.connectionFailed, "the controller refused: \(status)")
      case .noSuchLink: BluetoothError(.disconnected, "the link is down")
      case .busy: BluetoothError(.busy, "a link to that device is up already, or too many requests wait")
      case .notStarted: BluetoothError(.notStarted, "the controller is not running; start the host first")
      }
  }
  init(_ error: ClientError) {
    self =
      switch error {
      case .att(let code, _, let handle):
        BluetoothError(.att, "the device answered \(code) for attribute \(handle.text)", attError: code)
      case .bearerClosed(.timedOut):
        BluetoothError(.timedOut, "the device did not answer within 30 s; the link is being closed")
      case .bearerClosed(.disconnected): BluetoothError(.disconnected, "the link went down before the device answered")
      case .malformedResponse(let violation):
        BluetoothError(.protocolViolation, "the device's response breaks the protocol: \(violation)")
      case .cancelled: BluetoothError(.cancelled, "the request was cancelled")
      case .busy: BluetoothError(.busy, "too many requests wait on this link")
      case .valueTooLong: BluetoothError(.invalidArgument, "an attribute value has at most 512 octets")
      case .invalidRequest: BluetoothError(.invalidArgument, "the request names no value, no handle, or an empty range")
      case .unknownCharacteristic:
        BluetoothError(.invalidArgument, "there is no such characteristic among those discovered; discover first")
      case .noConfigurationDescriptor:
        BluetoothError(
          .invalidArgument, "the characteristic cannot be subscribed to: it has no configuration descriptor")
      }
  }
}
