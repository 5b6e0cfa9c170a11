import ATT
import BindruneWire
import GATT
import HCI
import L2CAP

/// A link, for as long as it lives: a connection handle is used again, this number is not.
public struct LinkID: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  public var rawValue: UInt32
  public init(rawValue: UInt32) { self.rawValue = rawValue }
  public var description: String { "link \(rawValue)" }
}

/// A device's address and how to read it. Vol 6, Part B, §1.3; Vol 4, Part E, §7.8.12.
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

/// What a link runs with. Vol 6, Part B, §4.5.
public struct ConnectionParameters: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// Time between connection events, 7.5 ms … 4 s.
  public var interval: ConnectionInterval
  /// Connection events that the peripheral may sleep through, 0 … 499.
  public var latency: UInt16
  /// How long the link lives without a packet, 100 ms … 32 s.
  public var supervisionTimeout: SupervisionTimeout

  public init(interval: ConnectionInterval, latency: UInt16 = 0, supervisionTimeout: SupervisionTimeout) {
    self.interval = interval
    self.latency = latency
    self.supervisionTimeout = supervisionTimeout
  }
  init(_ interval: ConnectionInterval, _ latency: UInt16, _ supervisionTimeout: SupervisionTimeout) {
    self.init(interval: interval, latency: latency, supervisionTimeout: supervisionTimeout)
  }
  /// 30 ms, for a phone's or a tool's ordinary link; supervision time-out 5 s.
  public static var balanced: ConnectionParameters {
    ConnectionParameters(
      interval: ConnectionInterval(.milliseconds(30)), supervisionTimeout: SupervisionTimeout(.seconds(5)))
  }
  /// 7.5 ms, the least there is: much data now.
  public static var fast: ConnectionParameters {
    ConnectionParameters(interval: ConnectionInterval(rawValue: 6), supervisionTimeout: SupervisionTimeout(.seconds(5)))
  }
  var isValid: Bool { ConnectionParameterRange(self).isValid }
  public var description: String {
    "interval \(interval.text), latency \(latency), supervision time-out \(supervisionTimeout.text)"
  }
}

/// What the core tells whoever drives it, in order. Ranges lie in `HostCore.withBytes(of:)` until the core is called again.
public enum HostEffect: Sendable {
  /// The controller has been started and everything below may be used.
  case started
  /// It has not; the core is idle and may be started again.
  case startFailed(StartFailure)
  /// The controller reported an internal failure, or its links are not ours any more: everything has ended, the core is
  /// idle and may be started again. The violation before it says why. The ends of what was under way follow, so that
  /// a driver knows their cause.
  case controllerFailed(HCIStatus)

  /// The controller scans, for this caller as well. Once for each `startScan`, unless it fails or is stopped before that.
  case scanStarted(ScanID)
  /// It was refused, or the controller stopped: the scan has ended.
  case scanFailed(ScanID, HCIStatus)
  case discovered(ScanID, Discovery)
  /// It was stopped, or the controller was. Nothing more is discovered.
  case scanStopped(ScanID)

  /// What was asked for last of this set is being done, perhaps again after a connection.
  case advertisingStarted(AdvertisingSetID)
  /// The set is off: the controller refused it, perhaps after a connection.
  case advertisingFailed(AdvertisingSetID, HCIStatus)
  case advertisingStopped(AdvertisingSetID, AdvertisingEnd)

  case linkUp(LinkID, PeerID, LinkRole, ConnectionParameters)
  /// The link has learnt who its peer is: this is its identity address. The link's `PeerID` is what it was.
  case peerIdentified(LinkID, PeerAddress)
  case linkDown(LinkID, reason: HCIStatus)
  case parametersChanged(LinkID, ConnectionParameters)
  case dataLengthChanged(LinkID, LinkDataLength)
  case physChanged(LinkID, LinkPHYs)
  case mtuChanged(LinkID, mtu: Int)

  /// A request ended: this happens exactly once for each.
  case completed(RequestID, HostResult)
  /// A notification, or an indication that the bearer has confirmed.
  case value(LinkID, AttributeHandle, Octets, isIndication: Bool)
  /// The server's attributes in the range are not what they were, and the client has forgotten them.
  case servicesChanged(LinkID, HandleRange)
  /// The client has discovered again what had changed, or could not.
  case rediscovered(LinkID, HandleRange, ClientError?)

  /// A client changed a Client Characteristic Configuration.
  case subscriptionChanged(LinkID, AttributeHandle, ClientCharacteristicConfiguration)
  /// A client wrote a value that the database keeps; it stands there already.
  case written(LinkID, AttributeHandle, Octets, offset: Int)
  /// A client reads or writes a value that the application keeps: `answerRead`, `answerWrite`, or `refuse`.
  case readRequested(ServerRequestID, LinkID, AttributeHandle, offset: Int)
  /// `following` more of these come with the same id: all are written or none, with one answer.
  case writeRequested(ServerRequestID, LinkID, AttributeHandle, Octets, offset: Int, following: Int)
  /// Nobody waits for that answer any more.
  case requestCancelled(ServerRequestID, LinkID?)
  /// What the server remembers of a bonded client has changed: these octets replace the ones stored for this peer before.
  /// `HostCore.restoreClient` reads them back.
  case storeClient(PeerID, Octets)
  /// After a `.full`: there is room again for the longest PDU of the MTU.
  case readyToSend(LinkID)
  case indicationConfirmed(LinkID, AttributeHandle)

  /// Somebody below or beyond broke a rule; nil where no link is concerned.
  case violation(LinkID?, HostViolation)
}

/// How a request ended.
public enum HostResult: BitwiseCopyable, Sendable {
  case connected(LinkID)
  case gatt(ClientResult)
  case disconnected
  case done
  case parameters(ConnectionParameters)
  /// dBm; nil: the controller does not know.
  case rssi(Int8?)
  case phys(LinkPHYs)
  case failed(HostFailure)
}

/// Somebody broke a rule, and what was done about it is said by the case of the layer that noticed.
public enum HostViolation: Sendable {
  case hci(HCIViolation)
  case l2cap(L2CAPViolation)
  case att(ATTViolation)
  case gatt(ResponseViolation)
  /// The peer took more than 30 s over a transaction: the link is being taken down. Vol 3, Part F, §3.3.3.
  case transactionTimedOut
  /// The application took more than 25 s over an answer: the client has been told 0x0E.
  case applicationTooSlow(AttributeHandle)
  /// The connection parameters that were asked for do not come into force: 0x3B the central refused (Vol 3, Part A,
  /// §4.21), 0x1A it does not know the request, 0x22 it did not answer, 0x0C another request is on its way, else what the
  /// controller said. The link goes on as it was.
  case parametersRejected(HCIStatus)
  /// The controller does not take a link down, which stays. Vol 4, Part E, §7.1.6.
  case disconnectRefused(HCIStatus)
  /// The controller does not take a new private address: it goes on with the old one. Vol 4, Part E, §7.8.4.
  case privateAddressRefused(HCIStatus)
  /// The controller refuses to scan for a peer that is to be connected to and whose private address only the host can
  /// resolve. The request waits on, and the controller is asked again after 10 s.
  case seekRefused(HCIStatus)
  /// The effects before them had not been taken, so that many notifications were dropped.
  case valuesLost(Int)
  /// Vol 4, Part E, §7.7.16: everything is gone.
  case hardwareError(UInt8)
}

/// What a request asks a controller to do.
public enum ControllerTask: BitwiseCopyable, Sendable, Equatable {
  case connect, disconnect, readRSSI, readPHYs, setPHYs, setDefaultPHYs
}

public enum HostFailure: BitwiseCopyable, Sendable, Equatable {
  /// `cancel` was called.
  case cancelled
  /// The controller refused to do this, or could not.
  case refused(ControllerTask, HCIStatus)
  /// There is no such link (any more).
  case noSuchLink
  /// There is a link with this peer, or a request for one; or too many requests wait.
  case busy
  /// The controller has no room for another link (0x09, 0x0D: Vol 1, Part F, §2.9, §2.13).
  case connectionLimitReached
  /// Other connection parameters were asked for, and the link goes on as it was: see `HostViolation.parametersRejected`.
  case parametersRejected(HCIStatus)
  /// The time that the caller has set is over.
  case timedOut
  /// No peer was named, or numbers are out of range or contradict each other.
  case invalidParameters
  /// The controller has not been started, or has failed.
  case notStarted
}
