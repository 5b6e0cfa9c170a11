import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// A link, for its lifetime: a connection handle is reused, this number is not.
public struct LinkID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }
  public var description: String { "link \(rawValue)" }
}

/// A device's address and its type. Vol 6, Part B, §1.3; Vol 4, Part E, §7.8.12.
public struct PeerAddress: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var address: DeviceAddress
  public var type: AddressType
  public init(_ address: DeviceAddress, _ type: AddressType) {
    self.address = address
    self.type = type
  }
  public var isRandom: Bool { type == .random || type == .randomIdentity }
  /// `F0:F1:F2:F3:F4:F5/random`.
  public var description: String { address.text + (isRandom ? "/random" : "/public") }
}

/// The parameters of a link. Vol 6, Part B, §4.5.
public struct ConnectionParameters: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// Time between connection events, 7.5 ms … 4 s.
  public var interval: ConnectionInterval
  /// Connection events that the peripheral may sleep through, 0 … 499.
  public var latency: UInt16
  /// The link ends after this time without a packet, 100 ms … 32 s.
  public var supervisionTimeout: SupervisionTimeout

  public init(interval: ConnectionInterval, latency: UInt16 = 0, supervisionTimeout: SupervisionTimeout) {
    self.interval = interval
    self.latency = latency
    self.supervisionTimeout = supervisionTimeout
  }
  init(_ interval: ConnectionInterval, _ latency: UInt16, _ supervisionTimeout: SupervisionTimeout) {
    self.init(interval: interval, latency: latency, supervisionTimeout: supervisionTimeout)
  }
  /// 30 ms, for an ordinary link of a phone or a tool; supervision time-out 5 s.
  public static var balanced: ConnectionParameters {
    ConnectionParameters(
      interval: ConnectionInterval(.milliseconds(30)), supervisionTimeout: SupervisionTimeout(.seconds(5)))
  }
  /// 7.5 ms, the minimum, for large amounts of data.
  public static var fast: ConnectionParameters {
    ConnectionParameters(interval: ConnectionInterval(rawValue: 6), supervisionTimeout: SupervisionTimeout(.seconds(5)))
  }
  var isValid: Bool { ConnectionParameterRange(self).isValid }
  public var description: String {
    "interval \(interval.text), latency \(latency), supervision time-out \(supervisionTimeout.text)"
  }
}

/// What the core reports to its driver, in order. Ranges refer to `HostCore.withBytes(of:)` and are valid until the
/// next call.
public enum HostEffect: Sendable {
  /// The controller has been started, and all calls below are possible.
  case started
  /// The start failed; the core is idle and may be started again.
  case startFailed(StartFailure)
  /// The controller reported an internal failure, or its links differ from ours: everything has ended, the core is idle
  /// and may be started again. The violation before it gives the reason. The ends of all operations follow, so that a
  /// driver knows their cause.
  case controllerFailed(HCIStatus)

  /// The controller scans, for this caller too. Once for each `startScan`, unless it fails or is stopped before that.
  case scanStarted(ScanID)
  /// The controller refused the scan, or stopped: the scan has ended.
  case scanFailed(ScanID, HCIStatus)
  case discovered(ScanID, Discovery)
  /// The caller or the controller stopped it. No discovery follows.
  case scanStopped(ScanID)

  /// The latest call for this set is in effect, perhaps again after a connection.
  case advertisingStarted(AdvertisingSetID)
  /// The set is off: the controller refused it, perhaps after a connection.
  case advertisingFailed(AdvertisingSetID, HCIStatus)
  case advertisingStopped(AdvertisingSetID, AdvertisingEnd)

  case linkUp(LinkID, PeerID, LinkRole, ConnectionParameters)
  /// The link has learnt its peer's identity address. The link's `PeerID` is unchanged.
  case peerIdentified(LinkID, PeerAddress)
  case linkDown(LinkID, reason: HCIStatus)
  case parametersChanged(LinkID, ConnectionParameters)
  case dataLengthChanged(LinkID, LinkDataLength)
  case physChanged(LinkID, LinkPHYs)
  case mtuChanged(LinkID, mtu: Int)
  /// The link has this many bearers of ATT beside its first: `HostConfiguration.enhancedBearers`.
  case bearersChanged(LinkID, enhanced: Int)

  case securityChanged(LinkID, LinkSecurity)
  /// A pairing asks the user, or shows something: `HostCore.answer`.
  case pairingAsked(LinkID, PairingQuestion)
  /// A pairing, or our request for security, has ended; nil: with success. Each ends once; nothing is left to ask or
  /// show.
  case pairingEnded(LinkID, PairingError?)
  /// The bond with this peer is new, has changed or has been used: store `HostCore.bond(with:)` as the one used last.
  case bondChanged(PeerID)
  /// There is no bond with this peer any more: `removeBond`, or the limit of bonds, or the peer has a new `PeerID`.
  case bondRemoved(PeerID)
  /// The link could not be encrypted with the key of our bond: 0x06, the peer no longer has the key; 0x22, it did not
  /// answer; or the controller's status (Vol 1, Part F, §2). `.linkDown` follows with the same status, unless the link
  /// is encrypted all the same or `HostConfiguration.encryptsBondedLinks` is off. The bond stays until
  /// `HostCore.removeBond`, because another device may use the peer's address.
  case encryptionFailed(LinkID, HCIStatus)

  /// A request ended: this happens exactly once for each.
  case completed(RequestID, HostResult)
  /// A notification, or an indication that the bearer has confirmed.
  case value(LinkID, AttributeHandle, Octets, isIndication: Bool)
  /// The server's attributes in the range have changed, and the client has forgotten them.
  case servicesChanged(LinkID, HandleRange)
  /// The client has rediscovered a changed range, or failed to.
  case rediscovered(LinkID, HandleRange, ClientError?)

  /// A client changed a Client Characteristic Configuration.
  case subscriptionChanged(LinkID, AttributeHandle, ClientCharacteristicConfiguration)
  /// A client wrote a value that the database stores and already has.
  case written(LinkID, AttributeHandle, Octets, offset: Int)
  /// A client reads or writes a value of the application: `answerRead`, `answerWrite`, or `refuse`.
  case readRequested(ServerRequestID, LinkID, AttributeHandle, offset: Int)
  /// `following` more effects have the same id: all are written or none, with one answer.
  case writeRequested(ServerRequestID, LinkID, AttributeHandle, Octets, offset: Int, following: Int)
  /// The question needs no answer any more.
  case requestCancelled(ServerRequestID, LinkID?)
  /// After a `.full`: there is room for the longest PDU of the MTU again.
  case readyToSend(LinkID)
  case indicationConfirmed(LinkID, AttributeHandle)

  /// The peer has opened a channel to a service of `HostCore.listen`.
  case channelOpened(LinkID, ChannelID, OpenChannel)
  /// An SDU of at most `OpenChannel.mtu` octets. Tell `HostCore.taken` when the application has it.
  case channelReceived(LinkID, ChannelID, Octets)
  /// After a `.full` of `HostCore.send`: there is room again.
  case channelReady(LinkID, ChannelID)
  /// A channel has ended: exactly once for each. Its number may be used again.
  case channelClosed(LinkID, ChannelID, ChannelEnd)

  /// The controller, the peer or the application violated a rule; nil if no link is concerned.
  case violation(LinkID?, HostViolation)
}

/// How a request ended.
public enum HostResult: BitwiseCopyable, Sendable {
  case connected(LinkID)
  case gatt(ClientResult)
  case disconnected
  case done
  case parameters(ConnectionParameters)
  /// In dBm; nil if the controller does not know.
  case rssi(Int8?)
  case phys(LinkPHYs)
  /// The octets of the peer's `RemoteFeatures`.
  case features(Octets)
  /// `pair` and `encrypt`: what protects the link now.
  case secured(LinkSecurity)
  /// `openChannel`.
  case channel(ChannelID, OpenChannel)
  /// A command's return parameters.
  case returned(Octets)
  case failed(HostFailure)
}

/// A violation; the case of the layer that detected it documents the consequence.
public enum HostViolation: Sendable {
  case hci(HCIViolation)
  case l2cap(L2CAPViolation)
  case att(ATTViolation)
  case gatt(ResponseViolation)
  case smp(SMPViolation)
  /// The peer has a stronger bond than this pairing has made, which only its identity address has revealed: the bond
  /// stays, the pairing fails with Key Rejected, and the link ends.
  case weakerThanBond
  /// The peer has distributed an identity address that no peer can have: the pairing's keys are not kept.
  case identityRefused(IdentityError)
  /// All bonds are authenticated and there is no room for another: this pairing, which is not, makes no bond, or has
  /// failed where the peer expected one.
  case noRoomForBond
  /// The stored record of the peer's GATT client does not decode: the client begins without one.
  case clientRecord(WireError)
  /// The server has ignored a signed write to this attribute. Vol 3, Part F, §3.4.5.4.
  case signatureRefused(AttributeHandle, SignatureRefusal)
  /// No packet of the encrypted link has been authenticated for 30 s: the host disconnects. Vol 4, Part E, §7.7.75.
  case authenticationTimedOut
  /// The peer took more than 30 s for a transaction: the host disconnects. Vol 3, Part F, §3.3.3.
  case transactionTimedOut
  /// The same on an enhanced bearer: the host closes its channel, and the link stays.
  case bearerTimedOut
  /// The application took more than 25 s for an answer: the client got 0x0E.
  case applicationTooSlow(AttributeHandle)
  /// The requested connection parameters do not come into force: 0x3B the central refused (Vol 3, Part A, §4.21), 0x1A
  /// it does not support the request, 0x22 it did not answer, 0x0C another request is in progress, else the
  /// controller's status. The link continues unchanged.
  case parametersRejected(HCIStatus)
  /// The controller refuses to disconnect a link, which stays. Vol 4, Part E, §7.1.6.
  case disconnectRefused(HCIStatus)
  /// The controller refuses a new private address and continues with the old one. Vol 4, Part E, §7.8.4.
  case privateAddressRefused(HCIStatus)
  /// The controller refuses to scan for a peer to connect to whose private address only the host can resolve. The
  /// request waits, and the host scans again after 10 s.
  case seekRefused(HCIStatus)
  /// This many notifications were dropped, because earlier effects had not been taken.
  case valuesLost(Int)
  /// Vol 4, Part E, §7.7.16: the controller's state is lost.
  case hardwareError(UInt8)
}

/// What a request asks of a controller.
public enum ControllerTask: BitwiseCopyable, Sendable, Equatable {
  case connect, disconnect, encrypt, readRSSI, readPHYs, setPHYs, setDefaultPHYs, readFeatures
  /// `HostCore.send`.
  case send
}

extension CommandOutcome {
  /// Why a command did not do `task`. An answer that does not decode gives no reason.
  func failure(of task: ControllerTask) -> HostFailure {
    timedOut ? .controllerIsSilent : .refused(task, status == .success ? .unspecifiedError : status)
  }
}

public enum HostFailure: BitwiseCopyable, Sendable, Equatable {
  /// `cancel` was called.
  case cancelled
  /// The controller refused this, or could not do it.
  case refused(ControllerTask, HCIStatus)
  /// The controller did not answer the command in time. Not 0x22 in `refused`, with which a controller reports that
  /// the peer's link layer was silent: Vol 1, Part F, §1.3.
  case controllerIsSilent
  /// There is no such link, or not any more.
  case noSuchLink
  /// There is a link with this peer, or a request for one; or too many requests wait.
  case busy
  /// The controller has no room for another link (0x09, 0x0D: Vol 1, Part F, §2.9, §2.13).
  case connectionLimitReached
  /// Other connection parameters were requested, and the link continues unchanged: see
  /// `HostViolation.parametersRejected`.
  case parametersRejected(HCIStatus)
  /// The caller's time limit has elapsed.
  case timedOut
  /// The pairing has failed.
  case pairingFailed(PairingError)
  /// The pairing was not begun.
  case pairingRefused(PairingRefusal)
  /// The channel does not open, or the peer wants a better protected link, which there cannot be.
  case channel(ChannelEnd)
  /// There is no bond with the peer, or it has no key for this role.
  case notBonded
  /// No peer is named, or numbers are out of range or contradictory.
  case invalidParameters
  /// The controller has not been started, or has failed.
  case notStarted
}
