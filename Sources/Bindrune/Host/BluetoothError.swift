import BindruneATT
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// The one error of the public interface: its kind, the operation that failed, and a sentence with the cause and, if
/// there is one, the remedy.
///
///     Could not read attribute 0x0003 of F0:F1:F2:F3:F4:F5/random. The device answered Read Not Permitted (0x02).
public struct BluetoothError: Error, Sendable, Equatable, CustomStringConvertible {
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Code: String, Sendable, Hashable {
    /// The transport to the controller failed or was lost.
    case transport
    /// The controller did not start, failed, or refused a command.
    case controller
    /// The link could not be made.
    case connectionFailed
    /// The controller has as many links as it supports.
    case connectionLimitReached
    /// Nothing was received from the device for the link's supervision time-out: it is out of range or off. The link is
    /// down.
    case connectionTimedOut
    /// The link is down.
    case disconnected
    /// The device, or a controller, refuses the request; the link continues unchanged.
    case refused
    /// The peer answered with an ATT error, which `attError` holds.
    case att
    /// The devices have not paired, or not as one of them demands.
    case pairing
    /// The peer violated the protocol.
    case protocolViolation
    /// The peer did not answer in time.
    case timedOut
    /// The device has changed its attributes since they were discovered.
    case servicesChanged
    /// The task was cancelled.
    case cancelled
    /// An argument is impossible: a value that is too long, data that does not fit.
    case invalidArgument
    /// The database has no free handles.
    case outOfSpace
    /// Too many requests or values are waiting already.
    case busy
    /// Values arrived faster than the program read them; the sequence ended so that the gap does not go unnoticed.
    case overflow
    /// The host has been closed or was never started.
    case notStarted
    /// A file of bonds cannot be read or written.
    case storage
  }
  public var code: Code
  /// What failed, in the infinitive, with the peer or the controller: `read attribute 0x0003 of
  /// F0:F1:F2:F3:F4:F5/random`, `open hci0`. nil: the host as a whole, in `HostState.closed`.
  public var operation: String?
  /// One sentence: the cause and the remedy.
  public var diagnostics: String
  public var attError: ATTError?
  /// Why the link ended or the controller refused. Vol 1, Part F, §1.3.
  public var status: HCIStatus?

  /// Why the controller could not be opened, or was lost, as a value: `.adapter(.up(0, daemon: true))`, `.refused(…)`.
  /// nil: the error is not the transport's.
  public var transportError: TransportError? {
    get { if case .transport(let error)? = cause { error } else { nil } }
    set { cause = newValue.map { .transport($0) } }
  }
  /// On the heap: the result of each request may be an error, and stays small.
  private indirect enum Cause: Sendable, Equatable { case transport(TransportError) }
  private var cause: Cause?

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
  package static var servicesChanged: BluetoothError {
    BluetoothError(
      .servicesChanged, "The device has changed its services since they were discovered: discover them again.")
  }
  /// The error of a link that went down for the reason of a `ServerEvent.disconnected`.
  public static func linkWentDown(_ reason: HCIStatus) -> BluetoothError {
    switch reason {
    case .connectionTimeout:
      BluetoothError(
        .connectionTimedOut, "The device was not heard any more, \(reason): bring it into reach and connect again.",
        status: reason)
    case .connectionFailedToBeEstablished:
      BluetoothError(
        .connectionFailed, "The device did not hear the connection, \(reason): connect again.", status: reason)
    case .pinOrKeyMissing:
      BluetoothError(
        .disconnected,
        "The device no longer has the key of the bond, \(reason), so the link was ended: remove the bond, and pair again.",
        status: reason)
    default: BluetoothError(.disconnected, "The link went down, \(reason): connect again.", status: reason)
    }
  }
  static func refused(to action: String, _ status: HCIStatus) -> BluetoothError {
    // Not a refusal: scans and advertisements have no peer that could be silent, so the controller itself is. See
    // `CommandOutcome.status`.
    if status == .lmpOrLLResponseTimeout { return controllerIsSilent }
    return BluetoothError(.controller, "The controller refused to \(action): \(status).", status: status)
  }
  static var controllerIsSilent: BluetoothError {
    BluetoothError(
      .controller, "The controller did not answer within 2 s: close the host, and open the controller again.",
      status: .lmpOrLLResponseTimeout)
  }
  /// 0x22, Vol 1, Part F, §1.3: the peer's link layer has not answered.
  static func linkLayerIsSilent(_ action: String, _ code: Code = .refused) -> BluetoothError {
    BluetoothError(
      code,
      "The device did not answer the request to \(action), \(HCIStatus.lmpOrLLResponseTimeout): connect again.",
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

  init(_ error: TransportError) {
    self.init(.transport, error.description)
    transportError = error
  }
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
  /// The failure of `operation`: only a connection can find a link that is up already.
  init(_ failure: HostFailure, of operation: HostOperation?) {
    self =
      switch (failure, operation) {
      case (.busy, .pair): BluetoothError(PairingRefusal.busy)
      case (.busy, .updateParameters), (.busy, .setPHYs):
        BluetoothError(.busy, "Another update of this link is in progress: wait for its end.")
      case (.busy, .openChannel):
        BluetoothError(.busy, "The link has all its 56 channels: close one.")
      case (.invalidParameters, .openChannel):
        BluetoothError(.invalidArgument, "The PSM is not 0x0001 … 0x00FF, or the MTU not 23 … 65,535: choose others.")
      default: BluetoothError(failure)
      }
  }
  init(_ failure: HostFailure) {
    self =
      switch failure {
      case .cancelled: .cancelled
      case .refused(let task, let status): BluetoothError(task, status)
      case .controllerIsSilent: .controllerIsSilent
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
      case .pairingFailed(let error): BluetoothError(error)
      case .pairingRefused(let refusal): BluetoothError(refusal)
      case .channel(let end): BluetoothError(end)
      case .notBonded: BluetoothError(.pairing, "There is no bond with the device that this side can use: pair first.")
      case .invalidParameters:
        BluetoothError(.invalidArgument, "No device is named, or the connection parameters contradict each other.")
      case .notStarted: .closed
      }
  }
  /// Why a channel did not open, or why an open one ended.
  init(_ end: ChannelEnd) {
    self =
      switch end {
      case .refused(.spsmNotSupported):
        BluetoothError(.refused, "The device has no service with this PSM: ask it for another.")
      case .refused(.noResources):
        BluetoothError(.refused, "The device has no room for another channel: close one, or try again later.")
      case .refused(.insufficientAuthorization):
        BluetoothError(.refused, "The user of the device has to authorize this host for the channel: ask for it there.")
      case .refused(.insufficientAuthentication), .refused(.insufficientEncryption),
        .refused(.encryptionKeySizeTooShort):
        BluetoothError(
          .pairing, "The device wants a better protected link: pair with it, by a method that it accepts.")
      case .refused(let result):
        BluetoothError(
          .refused, "The device refuses the channel, result \(result.text): choose another MTU, or go on without.")
      case .notUnderstood:
        BluetoothError(.refused, "The device does not support channels: go on without.")
      case .invalidResponse:
        BluetoothError(.protocolViolation, "The device's answer breaks the protocol: try again, or connect again.")
      case .timedOut:
        BluetoothError(.timedOut, "The device did not answer the request for a channel within 30 s: connect again.")
      case .closedHere, .closedByPeer: .channelIsClosed
      case .fault(let fault):
        BluetoothError(
          .protocolViolation, "The channel \(fault.text), which breaks the protocol, and was closed: open another.")
      case .linkClosed: .linkIsDown
      }
  }
  private init(_ task: ControllerTask, _ status: HCIStatus) {
    self =
      switch (task, status) {
      case (.connect, .lmpOrLLResponseTimeout): .linkLayerIsSilent("connect", .connectionFailed)
      case (.encrypt, .lmpOrLLResponseTimeout): .linkLayerIsSilent("encrypt the link")
      case (.disconnect, .lmpOrLLResponseTimeout): .linkLayerIsSilent("take the link down")
      case (.setPHYs, .lmpOrLLResponseTimeout), (.readPHYs, .lmpOrLLResponseTimeout):
        .linkLayerIsSilent("use other modulations")
      case (.readFeatures, .lmpOrLLResponseTimeout): .linkLayerIsSilent("tell its features")
      case (.readRSSI, .lmpOrLLResponseTimeout), (.send, .lmpOrLLResponseTimeout),
        (.setDefaultPHYs, .lmpOrLLResponseTimeout):
        .linkLayerIsSilent("carry out the command")
      case (.connect, _):
        BluetoothError(.connectionFailed, "The controller could not make the link: \(status).", status: status)
      case (.disconnect, _): .refused(to: "take the link down", status)
      case (.encrypt, .pinOrKeyMissing):
        BluetoothError(
          .pairing, "The device no longer has the key of the bond, \(status): remove the bond, and pair again.",
          status: status)
      case (.encrypt, _): .refusedByLink("encrypt the link", status)
      case (.send, _): .refused(to: "carry out the command", status)
      case (.readRSSI, _): .refused(to: "read the signal strength", status)
      case (.readPHYs, _): .refused(to: "read the modulations in use", status)
      case (.readFeatures, _): .refusedByLink("tell the device's features", status)
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
  /// `bondIsRejected`: the peer no longer has the key of its bond.
  init(_ error: ClientError, bondIsRejected: Bool = false) {
    self =
      switch error {
      case .att(let code, _, let handle) where bondIsRejected && code.needsEncryption:
        BluetoothError(
          .att,
          """
          The device answered \(code) for attribute \(handle.text), as it no longer has the key of the bond: remove \
          the bond, and pair again.
          """,
          attError: code, status: .pinOrKeyMissing)
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
      case .databaseChanged: .servicesChanged
      case .unknownCharacteristic:
        BluetoothError(.invalidArgument, "There is no such characteristic among those discovered: discover first.")
      case .noConfigurationDescriptor:
        BluetoothError(
          .invalidArgument,
          "The characteristic has no configuration descriptor and cannot be subscribed to: read it instead.")
      }
  }
}

extension ATTError {
  /// The server wants a key, or a better one. Vol 3, Part F, §3.4.1.1.
  fileprivate var needsEncryption: Bool {
    [.insufficientAuthentication, .insufficientEncryption, .encryptionKeySizeTooShort].contains(self)
  }
}

/// The remedy for a server's error; empty if there is none.
private func cure(for error: ATTError) -> String {
  switch error {
  case _ where error.needsEncryption: ": pair with it, by a method that it accepts"
  case .insufficientAuthorization: ": its user has to authorize this host"
  case .databaseOutOfSync: ": discover its services again"
  case .prepareQueueFull, .insufficientResources: ": wait, and try again"
  default: ""
  }
}
