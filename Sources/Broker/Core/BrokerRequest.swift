import BindruneGATT

/// Names a request of a session until it is answered by exactly one `BrokerEvent.completed`. The session's owner
/// chooses it, and uses none twice.
public struct OperationID: Hashable, Sendable {
  public var rawValue: UInt64
  public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// A request to a session. Requests are plain values, which can be carried out in this process or be written to a
/// socket.
///
/// A peer is named by its identifier: `UUID(PeerID)`. Requests on a peer that is not connected for this session
/// complete with `.disconnected`; the event `.disconnected` of a link ends all its pending requests, which are not
/// completed.
public enum BrokerRequest: Equatable, Sendable {
  case central(Central)
  case peripheral(Peripheral)

  /// Requests of a central: for devices, links with them, and their attributes.
  public enum Central: Equatable, Sendable {
    /// Scans; replaces what this session has scanned for before. `services` empty: all devices. The session gets a
    /// `.discovered` for each device once, and again when the device shows more than before (its scan response, for
    /// one); with `allowsDuplicates`, for every advertisement.
    case scan(services: [BluetoothUUID], solicitedServices: [BluetoothUUID], allowsDuplicates: Bool)
    case stopScan
    /// Without a time limit: `.connected`, `.connectionFailed`, or, when it is cancelled, `.disconnected`.
    /// A peer that is connected for another session is connected for this one too, at once.
    case connect(UUID, ConnectOptions)
    /// Disconnects the peer for this session: always answered by `.disconnected` without a reason if the session was
    /// connected or connecting. The link itself ends when no session uses it any more.
    case cancelConnection(UUID)
    case readRSSI(OperationID, UUID)
    /// All primary services, or those with `uuids`. Completes with `.services`.
    case discoverServices(OperationID, UUID, [BluetoothUUID]?)
    /// Of the service that is declared at the handle. Completes with `.includedServices`.
    case discoverIncludedServices(OperationID, UUID, AttributeHandle, [BluetoothUUID]?)
    /// Of the service that is declared at the handle. Completes with `.characteristics`.
    case discoverCharacteristics(OperationID, UUID, AttributeHandle, [BluetoothUUID]?)
    /// Of the characteristic whose value has the handle. Completes with `.descriptors`.
    case discoverDescriptors(OperationID, UUID, AttributeHandle)
    /// A characteristic's value or a descriptor, whole. Completes with `.value`.
    case read(OperationID, UUID, AttributeHandle)
    /// With a response. Completes with `.done`.
    case write(OperationID, UUID, AttributeHandle, Data)
    /// Notifications where the characteristic has them, else indications, of the value at the handle. Completes with
    /// `.notifying`. A second request of the same session changes nothing.
    case setNotifying(OperationID, UUID, AttributeHandle, Bool)
    /// Opens a channel of L2CAP to the service of the device that has this PSM. Completes with `.channel`.
    case openChannel(OperationID, UUID, psm: UInt16)
  }

  /// Requests of a peripheral: to publish, to respond, to advertise, to accept channels.
  public enum Peripheral: Equatable, Sendable {
    /// Completes with `.published`.
    case addService(OperationID, ServiceDescription)
    /// The service of this session that was published at the handle. It is removed from the services that include it.
    case removeService(AttributeHandle)
    case removeAllServices
    /// The value of an attribute that the database keeps.
    case setValue(AttributeHandle, Data)
    /// Answers `.readRequested` with the value from its offset on, or `.writeRequested`, of this central: exactly once.
    case respond(ServerRequest, central: UUID, Data?)
    case reject(ServerRequest, central: UUID, ATTError)
    /// Completes with `.done` when the controller advertises. One at a time for a session.
    case startAdvertising(OperationID, localName: String?, services: [BluetoothUUID])
    case stopAdvertising
    case setDesiredLatency(UUID, ConnectionLatency)
    /// Centrals may open channels of L2CAP to this session from now on, until it is closed or the adapter is not
    /// powered on any more: `BrokerEvent.channelAccepted`. Completes with `.psm`.
    case publishChannel(OperationID, isEncrypted: Bool)
    /// Channels that are open stay. Completes with `.done`.
    case unpublishChannel(OperationID, psm: UInt16)
  }
}

/// Names a client's request to this session until it is answered.
public struct ServerRequest: Hashable, Sendable {
  public var rawValue: UInt64
  public init(rawValue: UInt64) { self.rawValue = rawValue }

  /// A write without response, which needs no answer.
  public var isCommand: Bool { rawValue >> 63 == 1 }
  public var ofCommand: ServerRequest { ServerRequest(rawValue: rawValue | 1 << 63) }
}

public struct ConnectOptions: Hashable, Sendable {
  /// Seconds to wait before the first attempt.
  public var startDelay: Double
  /// A link that ends, except by this session, is made again, without a time limit.
  public var reconnects: Bool
  /// What the user is told of this device while the app is suspended: S15 … S17.
  public struct Alerts: OptionSet, Hashable, Sendable {
    public var rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    public static let connection = Alerts(rawValue: 1)
    public static let disconnection = Alerts(rawValue: 2)
    public static let notification = Alerts(rawValue: 4)
  }
  public var alerts: Alerts
  public init(startDelay: Double = 0, reconnects: Bool = false, alerts: Alerts = []) {
    self.startDelay = startDelay
    self.reconnects = reconnects
    self.alerts = alerts
  }
}

/// A service to publish.
public struct ServiceDescription: Equatable, Sendable {
  public struct Descriptor: Equatable, Sendable {
    public var uuid: BluetoothUUID
    public var value: Data
    public init(uuid: BluetoothUUID, value: Data) {
      self.uuid = uuid
      self.value = value
    }
  }
  public struct Characteristic: Equatable, Sendable {
    public var uuid: BluetoothUUID
    /// Those of the Specification: Vol 3, Part G, §3.3.1.1. With `.notify` or `.indicate` it has a configuration
    /// descriptor.
    public var properties: CharacteristicProperties
    /// Of the value. Its configuration may be written as openly as the characteristic is subscribed to:
    public var permissions: AttributePermissions
    public var configuring: AttributePermissions.Access
    /// Nil: the application answers each request. Else the database keeps the value.
    public var value: Data?
    public var descriptors: [Descriptor]
    public init(
      uuid: BluetoothUUID, properties: CharacteristicProperties, permissions: AttributePermissions,
      configuring: AttributePermissions.Access = .open, value: Data? = nil, descriptors: [Descriptor] = []
    ) {
      self.uuid = uuid
      self.properties = properties
      self.permissions = permissions
      self.configuring = configuring
      self.value = value
      self.descriptors = descriptors
    }
  }
  public var uuid: BluetoothUUID
  public var isPrimary: Bool
  /// Where the services that it includes were published.
  public var includes: [AttributeHandle]
  public var characteristics: [Characteristic]
  public init(
    uuid: BluetoothUUID, isPrimary: Bool = true, includes: [AttributeHandle] = [],
    characteristics: [Characteristic] = []
  ) {
    self.uuid = uuid
    self.isPrimary = isPrimary
    self.includes = includes
    self.characteristics = characteristics
  }
}

extension BrokerRequest {
  /// The function of Core Bluetooth that makes the request, for a trace.
  var call: StaticString {
    switch self {
    case .central(let request): request.call
    case .peripheral(let request): request.call
    }
  }
  /// The port whose order it keeps: values that its session has offered before it leave before it.
  var line: (kind: SendPort.Kind, peer: UUID)? {
    switch self {
    case .central(let request): request.peerOfLine.map { (.command, $0) }
    case .peripheral(let request): request.centralOfLine.map { (.notification, $0) }
    }
  }
  /// The operation that an event completes, and the device of which it asks; nil: no event answers the request.
  var operation: (OperationID, UUID?)? {
    switch self {
    case .central(.readRSSI(let id, let peer)), .central(.discoverServices(let id, let peer, _)),
      .central(.discoverIncludedServices(let id, let peer, _, _)),
      .central(.discoverCharacteristics(let id, let peer, _, _)), .central(.discoverDescriptors(let id, let peer, _)),
      .central(.read(let id, let peer, _)), .central(.write(let id, let peer, _, _)),
      .central(.setNotifying(let id, let peer, _, _)), .central(.openChannel(let id, let peer, _)):
      (id, peer)
    case .peripheral(.addService(let id, _)), .peripheral(.startAdvertising(let id, _, _)),
      .peripheral(.publishChannel(let id, _)), .peripheral(.unpublishChannel(let id, _)):
      (id, nil)
    case .central, .peripheral: nil
    }
  }
}
extension BrokerRequest.Central {
  fileprivate var call: StaticString {
    switch self {
    case .scan: "scanForPeripherals(withServices:options:)"
    case .stopScan: "stopScan()"
    case .connect: "connect(_:options:)"
    case .cancelConnection: "cancelPeripheralConnection(_:)"
    case .readRSSI: "readRSSI()"
    case .discoverServices: "discoverServices(_:)"
    case .discoverIncludedServices: "discoverIncludedServices(_:for:)"
    case .discoverCharacteristics: "discoverCharacteristics(_:for:)"
    case .discoverDescriptors: "discoverDescriptors(for:)"
    case .read: "readValue(for:)"
    case .write: "writeValue(_:for:type:)"
    case .setNotifying: "setNotifyValue(_:for:)"
    case .openChannel: "openL2CAPChannel(_:)"
    }
  }
  fileprivate var peerOfLine: UUID? {
    switch self {
    case .discoverServices(_, let peer, _), .discoverIncludedServices(_, let peer, _, _),
      .discoverCharacteristics(_, let peer, _, _), .discoverDescriptors(_, let peer, _), .read(_, let peer, _),
      .write(_, let peer, _, _), .setNotifying(_, let peer, _, _):
      peer
    case .scan, .stopScan, .connect, .cancelConnection, .readRSSI, .openChannel: nil
    }
  }
}
extension BrokerRequest.Peripheral {
  fileprivate var call: StaticString {
    switch self {
    case .addService: "add(_:)"
    case .removeService: "remove(_:)"
    case .removeAllServices: "removeAllServices()"
    case .setValue: "updateValue(_:for:onSubscribedCentrals:)"
    case .respond, .reject: "respond(to:withResult:)"
    case .startAdvertising: "startAdvertising(_:)"
    case .stopAdvertising: "stopAdvertising()"
    case .setDesiredLatency: "setDesiredConnectionLatency(_:for:)"
    case .publishChannel: "publishL2CAPChannel(withEncryption:)"
    case .unpublishChannel: "unpublishL2CAPChannel(_:)"
    }
  }
  fileprivate var centralOfLine: UUID? {
    switch self {
    case .respond(_, let central, _), .reject(_, let central, _): central
    case .addService, .removeService, .removeAllServices, .setValue, .startAdvertising, .stopAdvertising,
      .setDesiredLatency, .publishChannel, .unpublishChannel:
      nil
    }
  }
}
