import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// What the server keeps for one client, from the `open` of its first bearer to the `close` of its last.
struct ClientState: ~Copyable {
  /// In the order in which they were opened; never empty.
  var bearers: [BearerID]
  /// A property of the link, hence of all its bearers: Vol 3, Part C, §10.3.
  var security = BearerSecurity.none
  /// Octets of the encryption key; meaningless without encryption.
  var keySize = 16
  var isAuthorized = false
  /// Verifies the client's signed writes.
  var signing: ClientSigning?
  /// By `Attribute.slot`. Each client has its own: Vol 3, Part G, §3.3.3.3.
  var configurations: [ClientCharacteristicConfiguration]
  /// The slots that the client has written while it had no bond.
  var configured: Set<Int> = []
  /// One queue, however many bearers there are: Vol 3, Part F, §3.4.6.
  var prepared = PreparedWrites()
  /// The features that the client supports.
  var features = ClientSupportedFeatures()
  var awareness = Awareness.aware
  var serviceChanged = ServiceChangedPhase()
  /// The bond under which the client's record is kept; nil for a client that is forgotten with its last bearer.
  var bond: BondID?
  var isRecordStored = true

  init(_ bearer: BearerID, configurations: [ClientCharacteristicConfiguration]) {
    bearers = [bearer]
    self.configurations = configurations
  }
}

/// What the server keeps for one bearer of a client.
struct BearerSession: ~Copyable {
  let bearer: BearerID
  /// Its client's index in `Server.clients`.
  var client: Int
  /// The request that awaits the application. There is one at most: Vol 3, Part F, §3.3.2.
  var pending: PendingRequest?
  /// What that request has collected.
  var collected = Collected()
  /// The queue that the request executes. The client's next queue is a separate one.
  var executing = PreparedWrites()
  /// 0x12 has been sent on this bearer since the client became change-unaware: Vol 3, Part G, §2.5.2.1.
  var wasOutOfSync = false

  init(bearer: BearerID, client: Int) {
    self.bearer = bearer
    self.client = client
  }
}

/// The prepare queue of one client. Vol 3, Part F, §3.4.6.
///
/// A part that continues where the previous one ended extends the same run, so that the application sees a long write
/// as a single write.
struct PreparedWrites: ~Copyable {
  struct Run: BitwiseCopyable {
    var handle: AttributeHandle
    var offset: Int
    /// The range of its octets in `bytes`.
    var start: Int
    var count: Int
    var octets: Range<Int> { start..<(start + count) }
  }
  var runs = UniqueArray<Run>()
  var bytes = UniqueArray<UInt8>()
  /// The first attribute in the queue whose service has been removed since. Vol 3, Part F, §3.4.6.3.
  private(set) var removedHandle: AttributeHandle?

  /// The service within `range` has been removed.
  mutating func serviceRemoved(_ range: HandleRange) {
    if removedHandle != nil { return }
    for index in runs.indices where range.contains(runs[index].handle) {
      removedHandle = runs[index].handle
      return
    }
  }
  /// False when the queue is full.
  mutating func append(
    _ handle: AttributeHandle, _ offset: Int, _ part: Span<UInt8>, limits: borrowing ServerConfiguration
  ) -> Bool {
    guard bytes.count &+ part.count <= limits.preparedOctets else { return false }
    let last = runs.count &- 1
    if last >= 0, runs[last].handle == handle, runs[last].offset &+ runs[last].count == offset {
      runs[last].count &+= part.count
    } else {
      guard runs.count < limits.preparedRuns else { return false }
      runs.append(Run(handle: handle, offset: offset, start: bytes.count, count: part.count))
    }
    bytes.append(copying: part)
    return true
  }
  /// The highest end of those of the first `count` runs that write the attribute at `handle`.
  func end(of handle: AttributeHandle, before count: Int) -> Int {
    var end = 0
    for index in 0..<count where runs[index].handle == handle {
      end = max(end, runs[index].offset &+ runs[index].count)
    }
    return end
  }
  mutating func removeAll() {
    removedHandle = nil
    runs.removeAll(keepingCapacity: true)
    bytes.removeAll(keepingCapacity: true)
  }
}

// MARK: - Clients and their bearers

extension Server {
  /// Adds a client with this first bearer, whose requests the server answers from now on. A bearer that is open already
  /// is reset.
  public mutating func open(_ bearer: BearerID) {
    close(bearer)
    clients.append(
      ClientState(bearer, configurations: Array(repeating: [], count: database.configurations.count)))
    append(BearerSession(bearer: bearer, client: clients.count - 1))
  }
  /// Adds a bearer to the client of `other`. False when `other` is not open, or is `bearer` itself.
  @discardableResult public mutating func open(_ bearer: BearerID, beside other: BearerID) -> Bool {
    guard bearer != other, session(of: other) != nil else { return false }
    close(bearer)
    guard let client = client(of: other) else { return false }
    clients[client].bearers.append(bearer)
    append(BearerSession(bearer: bearer, client: client))
    return true
  }
  private mutating func append(_ session: consuming BearerSession) {
    places.append(session.bearer.rawValue)
    sessions.append(session)
  }
  /// Closes the bearer, and cancels its request that awaits the application. With its last bearer a client loses its
  /// configurations (Vol 3, Part G, §3.3.3.3: without a bond they are not kept) and its prepared writes; the record of
  /// a bonded client, if it has changed, is stored a last time.
  public mutating func close(_ bearer: BearerID) {
    guard let index = session(of: bearer) else { return }
    cancelRequest(ofSession: index, .disconnected)
    let client = sessions.remove(at: index).client
    places.remove(bearer.rawValue)
    clients[client].bearers.removeAll { $0 == bearer }
    if clients[client].bearers.isEmpty { return remove(client: client, bearer) }
    if clients[client].serviceChanged.returnSent(on: bearer) { hasServiceChanged = true }
  }
  private mutating func remove(client index: Int, _ last: BearerID) {
    if let effect = storeRecord(ofClient: index) { effects.append(effect) }
    let client = clients.remove(at: index)
    for session in 0..<sessions.count where sessions[session].client > index { sessions[session].client -= 1 }
    for (slot, configuration) in client.configurations.enumerated() where !configuration.isEmpty {
      effects.append(.subscriptionChanged(last, database.configurations[slot].value, []))
    }
  }
  @inline(__always)
  func session(of bearer: BearerID) -> Int? { places[bearer.rawValue] }
  @inline(__always)
  func client(of bearer: BearerID) -> Int? { session(of: bearer).map { sessions[$0].client } }
}

// MARK: - Client Characteristic Configuration

extension Server {
  /// The client's configuration of the characteristic whose value has `handle`.
  public func configuration(of handle: AttributeHandle, on bearer: BearerID) -> ClientCharacteristicConfiguration {
    guard let client = client(of: bearer), let slot = slot(of: handle) else { return [] }
    return clients[client].configurations[slot]
  }
  /// What the server may now send the client of the value at `handle`: the client's configuration, unless it must first
  /// rediscover the database (Vol 3, Part G, §2.5.2.1), or its link lacks the protection that the configuration and the
  /// value require (Vol 3, Part C, §10.3.1.1: a configuration outlives the link, its security does not).
  public mutating func mayBeSent(_ handle: AttributeHandle, to bearer: BearerID) -> ClientCharacteristicConfiguration {
    guard let index = session(of: bearer), let position = database.position(of: handle) else { return [] }
    let attribute = database.attributes[position]
    guard let slot = attribute.slot.index(below: database.configurations.count), attribute.kind != .configuration else {
      return []
    }
    let configuration = clients[sessions[index].client].configurations[slot]
    if configuration.isEmpty || ignoresDatabase(index) { return [] }
    if database.configurations[slot].isUnprotected { return configuration }
    if attribute.permissions.read.isPermitted, readError(position, index) != nil { return [] }
    do throws(Refusal) {
      _ = try writable(database.configurations[slot].descriptor, index)
    } catch {
      return []
    }
    return configuration
  }
  /// Whether `mayBeSent` contains a notification, for the check before each one.
  public mutating func mayNotify(_ handle: AttributeHandle, to bearer: BearerID) -> Bool {
    guard let client = client(of: bearer), let position = database.position(of: handle) else { return false }
    guard let slot = database.attributes[position].slot.index(below: clients[client].configurations.count),
      database.configurations[slot].value == handle
    else { return false }
    if clients[client].awareness == .aware, database.configurations[slot].isUnprotected {
      return clients[client].configurations[slot].contains(.notification)
    }
    return mayBeSent(handle, to: bearer).contains(.notification)
  }
  /// Calls `body` for every client that wants notifications or indications of the value at `handle`, with its first
  /// bearer.
  public func forEachSubscriber(
    of handle: AttributeHandle, _ body: (BearerID, ClientCharacteristicConfiguration) -> Void
  ) {
    guard let slot = slot(of: handle) else { return }
    for index in 0..<clients.count {
      let configuration = clients[index].configurations[slot]
      if !configuration.isEmpty { body(clients[index].bearers[0], configuration) }
    }
  }
  /// The same as an array, for callers that are not on the path of each notification.
  public func subscribers(of handle: AttributeHandle) -> [BearerID] {
    var bearers: [BearerID] = []
    forEachSubscriber(of: handle) { bearer, _ in bearers.append(bearer) }
    return bearers
  }
  private func slot(of handle: AttributeHandle) -> Int? {
    guard let position = database.position(of: handle) else { return nil }
    let attribute = database.attributes[position]
    return attribute.kind == .configuration ? nil : attribute.slot.index(below: database.configurations.count)
  }

  /// Whether `part`, written at `offset`, is a configuration that the characteristic supports.
  ///
  /// Bits that are reserved for future use are ignored (Vol 1, Part E, §2.4); a bit that the properties do not allow
  /// shall not be set (Vol 3, Part G, §3.3.3.3) and is answered with 0xFD, Client Characteristic Configuration
  /// Descriptor Improperly Configured (Supplement to the Core Specification, Part B, §1.2).
  mutating func accepts(configuration slot: ConfigurationSlot, at offset: Int, _ part: Span<UInt8>) -> Bool {
    guard offset == 0, !part.isEmpty else { return true }
    guard let slot = slot.index(below: database.configurations.count) else { return false }
    let wanted = ClientCharacteristicConfiguration(rawValue: UInt16(part[0])).intersection([.notification, .indication])
    return wanted.isSubset(of: database.configurations[slot].supported)
  }
  /// Stores an accepted configuration; only defined bits have a meaning.
  mutating func configure(_ session: Int, slot: ConfigurationSlot, at offset: Int, _ part: Span<UInt8>) {
    guard offset == 0, !part.isEmpty, let slot = slot.index(below: database.configurations.count) else { return }
    let wanted = ClientCharacteristicConfiguration(rawValue: UInt16(part[0])).intersection([.notification, .indication])
    let client = sessions[session].client
    if clients[client].bond == nil { clients[client].configured.insert(slot) }
    guard wanted != clients[client].configurations[slot] else { return }
    clients[client].configurations[slot] = wanted
    recordChanged(client)
    effects.append(.subscriptionChanged(sessions[session].bearer, database.configurations[slot].value, wanted))
  }
}
