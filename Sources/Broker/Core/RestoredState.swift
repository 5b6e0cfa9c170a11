/// What the broker has kept of a manager, and gone on with, while its app had no process: rows S47 … S52 and S66 … S72
/// of the seeds.
public struct RestoredState: Equatable, Sendable {
  public struct Scan: Equatable, Sendable {
    public var services: [BluetoothUUID]
    public var solicitedServices: [BluetoothUUID]
    public var allowsDuplicates: Bool
  }
  /// A device to which the manager is connected, or is being connected.
  public struct Peer: Equatable, Sendable {
    public var peer: UUID
    public var name: String?
    public var isConnected: Bool
    /// Octets of one write without response.
    public var longestWrite: Int
    /// Those that the manager has discovered on this link.
    public var services: [Service] = []
  }
  public struct Service: Equatable, Sendable {
    public var service: FoundService
    /// False: it was found as an included service only.
    public var isDiscovered: Bool
    /// Nil: not discovered.
    public var includes: [FoundService]?
    public var characteristics: [Characteristic]?
  }
  public struct Characteristic: Equatable, Sendable {
    public var characteristic: FoundCharacteristic
    public var isNotifying: Bool
    public var descriptors: [RemoteDescriptor]?
  }
  public struct Published: Equatable, Sendable {
    public var description: ServiceDescription
    public var published: PublishedService
    public var subscriptions: [Subscription] = []
  }
  public struct Subscription: Equatable, Sendable {
    public var central: UUID
    public var handle: AttributeHandle
    /// Octets of one notification.
    public var longestUpdate: Int
  }
  public struct Advertisement: Equatable, Sendable {
    public var localName: String?
    public var services: [BluetoothUUID]
  }
  /// Nil: it does not scan.
  public var scan: Scan?
  public var peers: [Peer] = []
  /// In the order of their handles.
  public var services: [Published] = []
  /// Nil: it does not advertise.
  public var advertisement: Advertisement?

  public init() {}
  var isEmpty: Bool { self == RestoredState() }
}
