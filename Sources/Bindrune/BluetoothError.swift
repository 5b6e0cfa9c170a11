import ATT
import BindruneTransport
import BindruneWire
import GAP
import GATT
import HCI

/// The one error of the public interface: its kind, the operation that failed, and a sentence with the cause and, where there
/// is one, the cure.
///
///     Could not read attribute 0x0003 of F0:F1:F2:F3:F4:F5/random. The device answered Read Not Permitted (0x02).
public struct BluetoothError: Error, Sendable, Equatable, CustomStringConvertible {
  public enum Code: Sendable, Hashable {
    /// The way to the controller failed or was lost.
    case transport
    /// The controller did not start, failed, or refused a command.
    case controller
    /// The link could not be made.
    case connectionFailed
    /// The controller has as many links as it can.
    case connectionLimitReached
    /// The device has not been heard for the link's supervision time-out: it is out of reach or off. The link is gone.
    case connectionTimedOut
    /// The link is gone.
    case disconnected
    /// The device, or a controller, does not do what was asked; the link goes on as it was.
    case refused
    /// The peer answered with an ATT error, which `attError` holds.
    case att
    /// The peer broke the protocol.
    case protocolViolation
    /// The peer did not answer in time.
    case timedOut
    /// The device's attributes are not what they were when they were discovered.
    case servicesChanged
    /// The task was cancelled.
    case cancelled
    /// The caller asked for something that cannot be: too long a value, data that does not fit.
    case invalidArgument
    /// There is no room for it.
    case outOfSpace
    /// Too much waits already.
    case busy
    /// Values came faster than they were taken; the sequence has ended rather than leave a gap unseen.
    case overflow
    /// The host has been closed or was never started.
    case notStarted
  }
  public var code: Code
  /// What failed, in the infinitive, with the peer: `read attribute 0x0003 of F0:F1:F2:F3:F4:F5/random`. nil: the host as a whole.
  public var operation: String?
  /// One sentence: the cause, and what helps.
  public var diagnostics: String
  public var attError: ATTError?
  /// Why the link ended, or what the controller refused with. Vol 1, Part F, §1.3.
  public var status: HCIStatus?

  public init(
    _ code: Code, _ diagnostics: String, operation: String? = nil, attError: ATTError? = nil, status: HCIStatus? = nil
  ) {
    self.code = code
    self.operation = operation
    self.diagnostics = diagnostics
    self.attError = attError
    self.status = status
  }
  public var description: String { (operation.map { "Could not \($0). " } ?? "") + diagnostics }
  /// The same error as the failure of `operation`.
  func during(_ operation: @autoclosure () -> String) -> BluetoothError {
    var error = self
    error.operation = operation()
    return error
  }
}

extension BluetoothError {
  static var cancelled: BluetoothError { BluetoothError(.cancelled, "The task was cancelled.") }
  static var closed: BluetoothError { BluetoothError(.notStarted, "The host has been closed: open another.") }
  static var linkIsDown: BluetoothError { BluetoothError(.disconnected, "The link is down: connect again.") }
  /// Why a link is down of which `ServerEvent.disconnected` gives the reason.
  public static func linkWentDown(_ reason: HCIStatus) -> BluetoothError {
    switch reason {
    case .connectionTimeout:
      BluetoothError(
        .connectionTimedOut, "The device was not heard any more, \(reason): bring it into reach and connect again.",
        status: reason)
    case .connectionFailedToBeEstablished:
      BluetoothError(
        .connectionFailed, "The device did not hear the connection, \(reason): connect again.", status: reason)
    default: BluetoothError(.disconnected, "The link went down, \(reason): connect again.", status: reason)
    }
  }
  static func refused(to action: String, _ status: HCIStatus) -> BluetoothError {
    // No controller refuses these commands with 0x22, which is about a peer's link layer: see `CommandOutcome.status`.
    if status == .lmpOrLLResponseTimeout { return controllerIsSilent }
    return BluetoothError(.controller, "The controller refused to \(action): \(status).", status: status)
  }
  static var controllerIsSilent: BluetoothError {
    BluetoothError(
      .controller, "The controller did not answer within 2 s: close the host, and open the controller again.",
      status: .lmpOrLLResponseTimeout)
  }
  static func refusedByLink(_ action: String, _ status: HCIStatus?) -> BluetoothError {
    BluetoothError(
      .refused, "The device or a controller refuses to \(action)\(status.map { ": \($0)" } ?? ""): go on without.",
      status: status)
  }
  static func overflow(_ capacity: Int) -> BluetoothError {
    BluetoothError(.overflow, "\(capacity) values waited and more came: take them faster, or ask for fewer.")
  }
  static func overflow(octets: Int) -> BluetoothError {
    BluetoothError(
      .overflow, "Values of \(octets) octets waited and more came: take them faster, or subscribe with more capacity.")
  }

  init(_ error: TransportError) { self.init(.transport, error.description) }
  init(_ error: IdentityError) { self.init(.invalidArgument, "The identity is not possible: \(error).") }
  init(_ error: AdvertisingDataError) { self.init(.invalidArgument, "The advertisement is not possible: \(error).") }
  init(_ error: AdvertisingError) {
    let code: Code =
      switch error {
      case .tooManySets: .busy
      default: .invalidArgument
      }
    self.init(code, "The advertisement is not possible: \(error).")
  }

  init(_ failure: StartFailure) {
    self.init(
      .controller,
      "The controller did not start, \(failure): check that a Bluetooth LE controller is there, and reset it.")
  }
  init(_ failure: HostFailure) {
    self =
      switch failure {
      case .cancelled: .cancelled
      case .refused(let task, let status): BluetoothError(task, status)
      case .noSuchLink: .linkIsDown
      case .busy:
        BluetoothError(
          .busy, "A link to that device is up already, or too many requests wait: disconnect or wait first.")
      case .connectionLimitReached:
        BluetoothError(
          .connectionLimitReached, "The controller has no room for another link: disconnect one first.",
          status: .connectionLimitExceeded)
      case .parametersRejected(let status): .refusedByLink("use other connection parameters", status)
      case .timedOut: BluetoothError(.timedOut, "The time allowed was over before it was done: allow more.")
      case .invalidParameters:
        BluetoothError(.invalidArgument, "No device is named, or the connection parameters contradict each other.")
      case .notStarted: .closed
      }
  }
  private init(_ task: ControllerTask, _ status: HCIStatus) {
    self =
      switch (task, status) {
      case (_, .lmpOrLLResponseTimeout): .controllerIsSilent
      case (.connect, _):
        BluetoothError(.connectionFailed, "The controller could not make the link: \(status).", status: status)
      case (.disconnect, _): .refused(to: "take the link down", status)
      case (.send, _): .refused(to: "carry out the command", status)
      case (.readRSSI, _): .refused(to: "read the signal strength", status)
      case (.readPHYs, _): .refused(to: "read the modulations in use", status)
      // For want of the feature, the controller's own or the peer's.
      case (.setPHYs, _), (.setDefaultPHYs, _): .refusedByLink("use other modulations", status)
      }
  }
  package init(_ error: DatabaseError) {
    self =
      switch error {
      case .handleOutOfRange(let handle) where handle > 0xFFFF:
        BluetoothError(.outOfSpace, "The database has no room, all 65,535 handles are in use: remove services.")
      default: BluetoothError(.invalidArgument, "The database cannot be changed like this: \(error).")
      }
  }
  init(_ reason: UnwantedAnswer) {
    self =
      switch reason {
      case .answeredAlready, .wrongKind, .unknown:
        BluetoothError(.invalidArgument, "The request has been answered: answer each request once.")
      case .tooLate:
        BluetoothError(
          .timedOut, "The answer came after 25 s, and the client got Unlikely Error (0x0E): answer sooner.")
      case .disconnected: BluetoothError(.disconnected, "The link went down before the request was answered.")
      }
  }
  init(_ error: ClientError) {
    self =
      switch error {
      case .att(let code, _, let handle):
        BluetoothError(
          .att, "The device answered \(code) for attribute \(handle.text)\(cure(for: code)).", attError: code)
      case .bearerClosed(.timedOut):
        BluetoothError(.timedOut, "The device did not answer within 30 s and is being disconnected: connect again.")
      case .bearerClosed(.disconnected):
        BluetoothError(.disconnected, "The link went down before the device answered: connect again.")
      case .malformedResponse(let violation):
        BluetoothError(
          .protocolViolation, "The device's response breaks the protocol, \(violation.text): read or discover again.")
      case .cancelled: .cancelled
      case .busy: BluetoothError(.busy, "Too many requests wait on this link: wait for some to end.")
      case .valueTooLong:
        BluetoothError(.invalidArgument, "The value is longer than 512 octets, the most that an attribute has.")
      case .invalidRequest:
        BluetoothError(.invalidArgument, "The request names no value, no handle, or an empty range.")
      case .databaseChanged:
        BluetoothError(
          .servicesChanged, "The device has changed its services since they were discovered: discover them again.")
      case .noSigningKey:
        BluetoothError(.invalidArgument, "A signed write needs a key, which only pairing gives: use write.")
      case .unknownCharacteristic:
        BluetoothError(.invalidArgument, "There is no such characteristic among those discovered: discover first.")
      case .noConfigurationDescriptor:
        BluetoothError(
          .invalidArgument,
          "The characteristic has no configuration descriptor and cannot be subscribed to: read it instead.")
      }
  }
}

/// What helps against an error that a server answers with; empty where nothing does.
private func cure(for error: ATTError) -> String {
  switch error {
  case .insufficientAuthentication, .insufficientEncryption, .encryptionKeySizeTooShort:
    ": it requires pairing, which this host does not have"
  case .insufficientAuthorization: ": its user has to authorize this host"
  case .databaseOutOfSync: ": discover its services again"
  case .prepareQueueFull, .insufficientResources: ": wait, and try again"
  default: ""
  }
}
