import BindruneGATT

/// An event of a session. Events come in the order in which they happened; they are plain values, as the requests are.
public enum BrokerEvent: Sendable {
  /// The first event of every session, and whenever it changes. Below `.poweredOn` every link, scan and advertisement
  /// of the session has ended without another event; below `.poweredOff` its peers cannot be used any more, and its
  /// published services are gone.
  case adapter(AdapterState)

  /// Before the first state: what was preserved of the manager whose place the session takes. Never empty.
  case restored(RestoredState)

  // MARK: Central

  case discovered(DiscoveredPeer)
  /// The scan could not begin, or ended by itself.
  case scanFailed(BluetoothError)
  /// `longestWrite`: octets of one write without response, ATT_MTU − 3.
  case connected(UUID, name: String?, longestWrite: Int)
  case connectionFailed(UUID, BluetoothError)
  /// `error` nil: this session has cancelled. `seconds`: when, since the first instant of 2001, GMT.
  case disconnected(UUID, BluetoothError?, isReconnecting: Bool, seconds: Double)
  case nameChanged(UUID, String?)
  case longestWriteChanged(UUID, Int)
  /// The services declared at these handles have changed: what was found in them cannot be used any more.
  case servicesChanged(UUID, HandleRange)
  /// Notifications or indications of the value at the handle, in order: those that came one after another, and
  /// together.
  case values(UUID, AttributeHandle, BrokerValues)
  /// There is room in the peer's command port again, after it has refused a value.
  case readyToWrite(UUID)
  /// All links of this machine, of any session and role, whenever they change.
  case linkedPeers([LinkedPeer])

  case completed(OperationID, Result<BrokerAnswer, BluetoothError>)

  // MARK: Peripheral

  /// A central has subscribed to the value at the handle. `longestUpdate`: octets of one notification, ATT_MTU − 3.
  case subscribed(UUID, AttributeHandle, longestUpdate: Int)
  case unsubscribed(UUID, AttributeHandle)
  case longestUpdateChanged(UUID, Int)
  /// A central reads a value that the application keeps, from `offset` on.
  case readRequested(ServerRequest, central: UUID, AttributeHandle, offset: Int, longestUpdate: Int)
  /// A central writes: all of it or nothing.
  case writeRequested(ServerRequest, central: UUID, [ServerWrite], longestUpdate: Int)
  /// The request needs no answer any more: the central has disconnected, or has waited for 25 s.
  case requestEnded(ServerRequest)
  /// There is room in a notification port again, after it has refused a value.
  case readyToUpdate(UUID)
  /// Advertising ended by itself.
  case advertisingEnded(BluetoothError)
  /// A central has opened a channel of L2CAP to a PSM of this session. A channel that nobody keeps closes.
  case channelAccepted(SessionChannel, central: UUID, longestUpdate: Int)
}

/// The result of a request that succeeded.
public enum BrokerAnswer: Sendable, Equatable {
  case done
  /// dBm; nil: the controller does not know.
  case rssi(Int?)
  case value(Data)
  case notifying(Bool)
  case services([FoundService])
  case includedServices([FoundService])
  case characteristics([FoundCharacteristic])
  case descriptors([RemoteDescriptor])
  case published(PublishedService)
  /// A channel of L2CAP is open. It closes if nobody keeps it.
  case channel(SessionChannel)
  /// Peers may open channels of L2CAP to this PSM, which the adapter has chosen.
  case psm(UInt16)
}

/// The state of the adapter.
public enum AdapterState: Equatable, Sendable {
  case unknown
  case resetting(String)
  case unsupported(String)
  case unauthorized(String)
  case poweredOff(String)
  case poweredOn

  /// Why it is not powered on: one sentence with the cause and the remedy.
  public var hindrance: String? {
    switch self {
    case .unknown, .poweredOn: nil
    case .resetting(let why), .unsupported(let why), .unauthorized(let why), .poweredOff(let why): why
    }
  }
}

/// A device that a scan has found, and its advertising data.
public struct DiscoveredPeer: Equatable, Sendable {
  public var peer: UUID
  /// The name in this advertisement, or in the last one that had a name.
  public var name: String?
  /// dBm; nil: the controller does not know.
  public var rssi: Int?
  public var isConnectable: Bool
  public var localName: String?
  /// With the company identifier, as on the air.
  public var manufacturerData: Data?
  public var services: [BluetoothUUID]
  public var overflowServices: [BluetoothUUID]
  public var solicitedServices: [BluetoothUUID]
  public var serviceData: [BluetoothUUID: Data]
  public var txPower: Int?
  /// The time of reception, in seconds since the first instant of 2001, GMT.
  public var seconds: Double
  public init(
    peer: UUID, name: String? = nil, rssi: Int? = nil, isConnectable: Bool = true, localName: String? = nil,
    manufacturerData: Data? = nil, services: [BluetoothUUID] = [], overflowServices: [BluetoothUUID] = [],
    solicitedServices: [BluetoothUUID] = [], serviceData: [BluetoothUUID: Data] = [:], txPower: Int? = nil,
    seconds: Double = 0
  ) {
    self.peer = peer
    self.name = name
    self.rssi = rssi
    self.isConnectable = isConnectable
    self.localName = localName
    self.manufacturerData = manufacturerData
    self.services = services
    self.overflowServices = overflowServices
    self.solicitedServices = solicitedServices
    self.serviceData = serviceData
    self.txPower = txPower
    self.seconds = seconds
  }
}

/// A link of this machine.
public struct LinkedPeer: Equatable, Sendable {
  public var peer: UUID
  public var name: String?
  /// Those that any session has discovered.
  public var services: [BluetoothUUID]
  public init(peer: UUID, name: String? = nil, services: [BluetoothUUID] = []) {
    self.peer = peer
    self.name = name
    self.services = services
  }
}

public struct FoundService: Equatable, Sendable {
  public var handle: AttributeHandle
  public var endHandle: AttributeHandle
  public var uuid: BluetoothUUID
  public var isPrimary: Bool
  public init(handle: AttributeHandle, endHandle: AttributeHandle, uuid: BluetoothUUID, isPrimary: Bool) {
    self.handle = handle
    self.endHandle = endHandle
    self.uuid = uuid
    self.isPrimary = isPrimary
  }
}

public struct FoundCharacteristic: Equatable, Sendable {
  /// The value's.
  public var handle: AttributeHandle
  public var uuid: BluetoothUUID
  public var properties: CharacteristicProperties
  public init(handle: AttributeHandle, uuid: BluetoothUUID, properties: CharacteristicProperties) {
    self.handle = handle
    self.uuid = uuid
    self.properties = properties
  }
}

/// Where a service was published: handles in the order of its description.
public struct PublishedService: Equatable, Sendable {
  public struct Characteristic: Equatable, Sendable {
    public var value: AttributeHandle
    public var descriptors: [AttributeHandle]
    public init(value: AttributeHandle, descriptors: [AttributeHandle] = []) {
      self.value = value
      self.descriptors = descriptors
    }
  }
  public var handle: AttributeHandle
  public var characteristics: [Characteristic]
  public init(handle: AttributeHandle, characteristics: [Characteristic] = []) {
    self.handle = handle
    self.characteristics = characteristics
  }
}

public struct ServerWrite: Equatable, Sendable {
  public var handle: AttributeHandle
  public var offset: Int
  public var value: Data
  public init(handle: AttributeHandle, offset: Int, value: Data) {
    self.handle = handle
    self.offset = offset
    self.value = value
  }
}
