/// What a session tells. In the order in which it happened; plain values, as the requests are.
public enum BrokerEvent: Sendable {
  /// The first event of every session, and whenever it changes. Below `.poweredOn` every link, scan and advertisement of the
  /// session has ended without another event; below `.poweredOff` its peers are of no more use, and what it published is
  /// gone.
  case adapter(AdapterState)

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
  /// The services declared at these handles are not what they were: what was found in them is of no more use.
  case servicesChanged(UUID, HandleRange)
  /// Notifications or indications of the value at the handle, in order: those that came one after another, and together.
  case values(UUID, AttributeHandle, BrokerValues)
  /// There is room in the peer's command port again, which had refused something.
  case readyToWrite(UUID)
  /// The links of this machine, whichever session or role has made them: all of them, whenever that changes.
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
  /// Nobody waits for the answer any more: the central has disconnected, or has waited for 25 s.
  case requestEnded(ServerRequest)
  /// There is room in a notification port again, which had refused something.
  case readyToUpdate(UUID)
  /// Advertising ended by itself.
  case advertisingEnded(BluetoothError)
}

/// What became of a request that was answered.
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
}

/// What the adapter can do now.
public enum AdapterState: Equatable, Sendable {
  case unknown
  case resetting(String)
  case unsupported(String)
  case unauthorized(String)
  case poweredOff(String)
  case poweredOn

  /// Why it cannot do more: one sentence with the cause and the cure.
  public var hindrance: String? {
    switch self {
    case .unknown, .poweredOn: nil
    case .resetting(let why), .unsupported(let why), .unauthorized(let why), .poweredOff(let why): why
    }
  }
}

/// A device that a scan has found, and what it says of itself.
public struct DiscoveredPeer: Equatable, Sendable {
  public var peer: UUID
  /// What it is called: in this advertisement, or the last that had a name.
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
  /// When it was heard, in seconds since the first instant of 2001, GMT.
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
  /// As far as anybody has discovered them.
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
