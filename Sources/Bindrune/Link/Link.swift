import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

/// A link to a peer, and its GATT client. A value: copy it freely; it does not keep the link up.
///
///     let link = try await host.connect(to: advertisement.peer)
///     let database = try await link.discover()
///     if let level = database.characteristic("2A19") { print(try await link.read(level)) }
///     if let rate = database.characteristic("2A37") {
///       for try await value in link.notifications(of: rate) { print(value.value) }
///     }
///
/// As ATT requires, a link sends its requests one at a time, in the order of the calls, and in order with the values
/// written without response, also by ports. Each request ends with its answer or with a `BluetoothError`: `.att` holds
/// the server's error; `.timedOut`, after 30 s without an answer, also ends the link (Vol 3, Part F, §3.3.3).
public struct Link: Sendable, Identifiable {
  public let id: LinkID
  public let peer: PeerID
  public let role: LinkRole
  public let host: BluetoothHost
  let ending: Ending<BluetoothError>

  /// The peer's identity address, if known by now; else the one used to connect.
  public var address: PeerAddress { get async { await host.address(of: peer) } }
  /// ATT_MTU in force, 23 … 517. As a central this host negotiates it as soon as the link is up.
  public var mtu: Int { get async { await host.mtu(of: id) ?? 23 } }
  /// What has been discovered on this link so far.
  public var database: RemoteDatabase { get async { await host.remoteDatabase(of: id) ?? RemoteDatabase() } }

  /// Disconnects, and returns when the link is down.
  public func disconnect() async throws(BluetoothError) {
    try await host.request(.disconnect(id))
  }
  /// Requests other connection parameters, and returns those in force afterwards: the central decides, and may choose
  /// others. Throws `.refused` if the central refuses, `.busy` while another update runs on the link.
  ///
  /// A central changes them through its controller; a peripheral asks the central, over the link layer if both support
  /// it (Vol 6, Part B, §5.1.7), else over L2CAP (Vol 3, Part A, §4.20).
  @discardableResult
  public func updateParameters(
    _ wanted: ConnectionParameterRange
  ) async throws(BluetoothError) -> ConnectionParameters {
    try await host.request(.updateParameters(id, wanted), \.parameters)
  }
  @discardableResult
  public func updateParameters(_ parameters: ConnectionParameters) async throws(BluetoothError) -> ConnectionParameters
  {
    try await updateParameters(ConnectionParameterRange(parameters))
  }
  /// Requests a latency: see `ConnectionLatency` for the numbers.
  @discardableResult
  public func updateParameters(_ latency: ConnectionLatency) async throws(BluetoothError) -> ConnectionParameters {
    try await updateParameters(ConnectionParameterRange(latency))
  }
  /// The parameters in force; nil: the link is down.
  public var parameters: ConnectionParameters? { get async { await host.parameters(of: id) } }
  /// Octets in one packet on the air. On every link the host requests as many as its controller supports.
  public var dataLength: LinkDataLength { get async { await host.dataLength(of: id) ?? LinkDataLength() } }

  /// Signal strength of the peer's last packets, in dBm; nil: the controller does not know. Vol 4, Part E, §7.5.4.
  public func readRSSI() async throws(BluetoothError) -> Int8? {
    try await host.request(.readRSSI(id), \.rssi)
  }
  /// The modulations in use. Vol 4, Part E, §7.8.47.
  public func readPHYs() async throws(BluetoothError) -> LinkPHYs {
    try await host.request(.readPHYs(id), \.phys)
  }
  /// Requests other modulations, and returns those in use afterwards, possibly unchanged. Throws `.refused` if the peer
  /// or the controller supports no others. Vol 4, Part E, §7.8.49.
  @discardableResult
  public func setPHYs(_ wanted: PHYPreferences) async throws(BluetoothError) -> LinkPHYs {
    try await host.request(.setPHYs(id, wanted), \.phys)
  }
  /// The features of the peer's link layer: all pages, if the controller has LE Read All Remote Features, else page 0.
  /// The first call on a link asks the peer, and later ones have the same answer. Throws `.refused` if the peer does not
  /// tell them. Vol 4, Part E, §7.8.21, §7.8.129.
  public func readFeatures() async throws(BluetoothError) -> RemoteFeatures {
    try await host.request(.readFeatures(id), \.features)
  }
  /// A port for one producer of notifications (as a server) or of writes without response (as a client).
  public func sendPort(
    _ kind: SendPort.Kind, to handle: AttributeHandle, capacity: Int = 16 * 1024
  ) async throws(BluetoothError) -> SendPort {
    try await host.sendPort(kind, to: handle, on: id, capacity: capacity)
  }
  /// A port for the values of all characteristics, which it sends in the order of the offers.
  public func sendPort(
    _ kind: SendPort.Kind, capacity: Int = 16 * 1024
  ) async throws(BluetoothError) -> SendPort {
    try await host.sendPort(kind, on: id, capacity: capacity)
  }
  /// Authorizes the peer, as a client of this host, for access that requires it
  /// (`AttributePermissions.Access.withAuthorization`), until the link ends. Without it the server answers such a
  /// request with Insufficient Authorization (0x08). Vol 3, Part C, §10.5.
  public func setAuthorized(_ isAuthorized: Bool) async { await host.setAuthorized(isAuthorized, of: id) }
}

// MARK: Discovery

extension Link {
  /// The server's database. If the server has a Database Hash, and the host's cache holds a database with that hash for
  /// this peer, this costs one request; otherwise the host discovers everything, and caches it if it has a hash.
  /// From then on the host follows changes: see `events`. Vol 3, Part G, §2.5.2.
  ///
  /// To save requests the host does not ask for a characteristic's only descriptor where the properties say what it
  /// must be (`RemoteCharacteristic.descriptorsAreKnown` is false); the first subscription does, and
  /// `discoverDescriptors`. The cache receives what they have read when the link ends.
  public func discover() async throws(BluetoothError) -> RemoteDatabase {
    var hash: DatabaseHash?
    do throws(BluetoothError) {
      hash = try await host.request(.readDatabaseHash(id), \.databaseHash)
    } catch {
      // A server that refuses the read counts as one without a hash.
      guard error.code == .att || error.code == .protocolViolation else { throw error }
    }
    let database: RemoteDatabase, isRemembered: Bool
    if let hash, let remembered = await host.remembered(with: hash, of: peer) {
      await host.restore(remembered, on: id)
      (database, isRemembered) = (remembered, true)
    } else {
      database = try await host.request(.discoverAll(id, infersDescriptors: true), \.database)
      isRemembered = false
    }
    var failure: BluetoothError?
    do throws(BluetoothError) {
      try await host.request(.followChanges(id))
    } catch {
      // A server that refuses to indicate changes counts as one that never changes.
      if error.code != .att && error.code != .invalidArgument { failure = error }
    }
    // Following changes may have read the descriptor of Service Changed.
    let current = await self.database
    let isCurrent = current.isComplete && current.hash == database.hash
    if isCurrent, !isRemembered || current.descriptors != database.descriptors {
      await host.remember(current, of: id)
    }
    if let failure { throw failure }
    return isCurrent ? current : database
  }
  /// The server's whole database, discovered without the cache: services, includes, characteristics, and all
  /// descriptors. Vol 3, Part G, §4.4 … §4.7.
  public func discoverAll() async throws(BluetoothError) -> RemoteDatabase {
    try await host.request(.discoverAll(id), \.database)
  }
  /// The primary services, all (Vol 3, Part G, §4.4.1) or those with `uuid` (§4.4.2).
  public func discoverServices(_ uuid: BluetoothUUID? = nil) async throws(BluetoothError) -> [RemoteService] {
    try await host.request(.discoverServices(id, uuid), \.database).services.filter {
      $0.isPrimary && (uuid == nil || $0.uuid == uuid)
    }
  }
  /// The services that `service` includes. Vol 3, Part G, §4.5.1.
  public func discoverIncludedServices(of service: RemoteService) async throws(BluetoothError) -> [RemoteInclude] {
    try await host.request(.discoverIncludedServices(id, service.range), \.database).includes(of: service)
  }
  /// The characteristics of `service`, all (Vol 3, Part G, §4.6.1) or those with `uuid` (§4.6.2).
  public func discoverCharacteristics(
    _ uuid: BluetoothUUID? = nil, of service: RemoteService
  ) async throws(BluetoothError) -> [RemoteCharacteristic] {
    try await host.request(.discoverCharacteristics(id, service.range), \.database)
      .characteristics(of: service).filter { uuid == nil || $0.uuid == uuid }
  }
  /// The descriptors of `characteristic`; without a request if its handles leave no room for any. Vol 3, Part G,
  /// §4.7.1.
  public func discoverDescriptors(
    of characteristic: RemoteCharacteristic
  ) async throws(BluetoothError) -> [RemoteDescriptor] {
    guard let range = characteristic.descriptorRange else { return [] }
    return Array(try await host.request(.discoverDescriptors(id, range), \.database).descriptors(of: characteristic))
  }
}

// MARK: Reading

/// One of several values that were read.
public struct ReadAttributeValue: Sendable, Hashable {
  public var handle: AttributeHandle
  public var value: [UInt8]
  /// The response had no room for the whole value: these are its first octets.
  public var isCut: Bool
  public init(handle: AttributeHandle, value: [UInt8], isCut: Bool = false) {
    self.handle = handle
    self.value = value
    self.isCut = isCut
  }
  static func list(_ octets: [UInt8]) -> [ReadAttributeValue] {
    HandleValue.list(octets.span).map {
      ReadAttributeValue(handle: $0.handle, value: Array(octets[$0.value.range]), isCut: $0.isCut)
    }
  }
}

extension Link {
  /// The whole value, of any length: Read, then Read Blob. Vol 3, Part G, §4.8.1, §4.8.3, §4.12.1, §4.12.2.
  public func read(_ handle: AttributeHandle) async throws(BluetoothError) -> [UInt8] {
    try await host.request(.read(id, handle), \.value)
  }
  public func read(_ characteristic: RemoteCharacteristic) async throws(BluetoothError) -> [UInt8] {
    try await read(characteristic.valueHandle)
  }
  public func read(_ descriptor: RemoteDescriptor) async throws(BluetoothError) -> [UInt8] {
    try await read(descriptor.handle)
  }
  /// The values of all attributes with `uuid`, without discovering their handles. The server cuts each at
  /// min(ATT_MTU − 4, 253) octets, without indicating which ones it cut. Vol 3, Part G, §4.8.2.
  public func read(
    uuid: BluetoothUUID, in range: HandleRange = .all
  ) async throws(BluetoothError) -> [ReadAttributeValue] {
    try await host.request(.readUUID(id, uuid, range), \.values)
  }
  /// Two or more values in one round trip. The value that does not fit the response is cut, those after it are missing;
  /// servers older than Bluetooth 5.2 answer 0x06. Vol 3, Part G, §4.8.5.
  public func read(_ handles: [AttributeHandle]) async throws(BluetoothError) -> [ReadAttributeValue] {
    try await host.request(.readMultiple(id, handles), \.values)
  }
}

// MARK: Writing

extension Link {
  /// Writes and waits for the answer. More than MTU − 3 octets become a long write, which the host executes only if the
  /// server has echoed every part unchanged. Vol 3, Part G, §4.9.3, §4.9.4, §4.12.3, §4.12.4.
  public func write(_ value: [UInt8], to handle: AttributeHandle) async throws(BluetoothError) {
    try await host.request(.write(id, handle, value))
  }
  public func write(_ value: [UInt8], to characteristic: RemoteCharacteristic) async throws(BluetoothError) {
    try await write(value, to: characteristic.valueHandle)
  }
  public func write(_ value: [UInt8], to descriptor: RemoteDescriptor) async throws(BluetoothError) {
    try await write(value, to: descriptor.handle)
  }
  /// Writes several values, all or none; the server must echo each part unchanged. Vol 3, Part G, §4.9.5.
  public func writeReliably(
    _ values: [(handle: AttributeHandle, value: [UInt8])]
  ) async throws(BluetoothError) {
    try await host.request(.writeReliably(id, values))
  }
  /// Write Without Response. False: nothing was sent, as there is no room, or an earlier value or request still waits.
  /// Vol 3, Part G, §4.9.1.
  @discardableResult
  public func writeWithoutResponse(_ value: [UInt8], to handle: AttributeHandle) async throws(BluetoothError) -> Bool {
    try await host.write(command: value, to: handle, on: id)
  }
  /// Signed Write Without Response: for a value that has the property, over a link that is not encrypted, to a device
  /// with a bond. The device can tell that the value is ours and was not sent before. Over an encrypted link this is
  /// `writeWithoutResponse`. At most MTU − 15 octets. False as for `writeWithoutResponse`. Vol 3, Part G, §4.9.2.
  ///
  /// The first of each 64 writes waits until the bond store has reserved counters for them, and throws if it cannot: so
  /// no counter is used twice, whenever the program ends.
  @discardableResult
  public func writeSigned(_ value: [UInt8], to handle: AttributeHandle) async throws(BluetoothError) -> Bool {
    try await host.write(signed: value, to: handle, on: id)
  }
}

// MARK: Notifications and indications

extension Link {
  /// Subscribes to the characteristic's values, and returns when the server has accepted. By default notifications, if
  /// the characteristic has that property, else indications. It must have been discovered on this link.
  ///
  /// A second subscriber of the same characteristic costs no request, and shares the first one's configuration unless
  /// it passes its own. Vol 3, Part G, §4.10, §4.11.
  ///
  /// `capacity`: octets that may wait for the reader, plus 16 for each value; a single value always fits.
  public func subscribe(
    to characteristic: RemoteCharacteristic, _ configuration: ClientCharacteristicConfiguration? = nil,
    capacity: Int = 1 << 20
  ) async throws(BluetoothError) -> Subscription {
    try await host.subscribe(to: characteristic, configuration, capacity: capacity, on: id)
  }
  /// Subscribes when iteration begins, unsubscribes when it ends: for a loop. See `Subscription`.
  public func notifications(of characteristic: RemoteCharacteristic) -> NotificationSequence {
    NotificationSequence(link: self, characteristic: characteristic)
  }
  /// Events of the link and its server that this host did not request: see `LinkEvent`. Each call returns a new
  /// sequence; the first one starts with the last 64 earlier events.
  public var events: LinkEventSequence { get async { await host.events(of: id) } }
}
