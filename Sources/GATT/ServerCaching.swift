import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

// What clients know of the database: Vol 3, Part G, §2.5.2 and §7. `ClientRecord` is the part kept for a bond.
//
// | phase | the database changes | a request that counts on handles | another request | reads the hash | confirms Service Changed | a command |
// |---|---|---|---|---|---|---|
// | aware | unaware | served | served | served | – | done |
// | unaware | unaware | 0x12, informed | served | served, informed | aware | ignored |
// | informed | unaware | aware, served | aware, served | aware, served | aware | ignored |
//
// The server sends 0x12 and ignores commands only for clients that support robust caching; §7.2 forbids it for others,
// so an unaware client without that bit is served as usual.
//
// The table is for a client with one bearer, which 0x12 (`BearerSession.wasOutOfSync`) or the hash informs. A client
// with several bearers becomes aware only by reading the hash and sending another request, on any of them; each bearer
// gets 0x12 once.

/// Whether a client knows the current services. Vol 3, Part G, §2.5.2.1.
enum Awareness: BitwiseCopyable {
  case aware
  /// They have changed since the client discovered them.
  case unaware
  /// The client has read the Database Hash: its next request makes it aware, on any bearer.
  case informed
}

/// The progress of a Service Changed indication to one client. Vol 3, Part G, §7.1.
struct ServiceChangedPhase: BitwiseCopyable {
  /// The range to indicate as soon as a bearer can.
  var waiting: HandleRange?
  /// The range that has been indicated and not confirmed, and its bearer.
  var sent: Sent?
  /// All that the client has not confirmed.
  var unconfirmed: HandleRange? { waiting.union(sent?.range) }

  struct Sent: BitwiseCopyable {
    var range: HandleRange
    var bearer: BearerID
  }
  /// The bearer will not confirm the indication: another bearer must take it. False when there was none.
  mutating func returnSent(on bearer: BearerID) -> Bool {
    guard let sent, sent.bearer == bearer else { return false }
    self = ServiceChangedPhase(waiting: unconfirmed)
    return true
  }
}

/// The database changed within `range`; before the change it had this hash.
struct DatabaseChange: BitwiseCopyable {
  var hash: UInt128
  var range: HandleRange
  /// The number of changes that the server remembers; a client that missed more gets the whole range as changed.
  static var remembered: Int { 32 }
}

// MARK: - Changes

extension Server {
  /// Adds services while clients are connected; `DatabaseBuilder(after: server.database)` assigns unused handles.
  /// Clients that have subscribed to Service Changed get an indication of the affected range: `takeServiceChanged`.
  public mutating func insert(_ services: DatabaseBuilder) throws(DatabaseError) {
    let hash = database.hash
    var range: HandleRange?
    try database.insert(services)
    for service in services.services {
      range.formUnion(HandleRange(raw: service.attributes[0].raw, service.last))
    }
    for index in 0..<clients.count {
      while clients[index].configurations.count < database.configurations.count {
        clients[index].configurations.append([])
      }
    }
    if let range { changed(range, from: hash) }
  }

  /// Removes a service while clients are connected, ends subscriptions to its values, and informs clients as `insert`
  /// does. `andIncludes`: see `Database.remove`. Returns the handles of the service: what waits of them must not leave.
  @discardableResult
  public mutating func remove(
    service handle: AttributeHandle, andIncludes: Bool = false
  ) throws(DatabaseError) -> HandleRange {
    let hash = database.hash, configurations = database.configurations
    guard let service = database.attribute(handle) else { throw .noSuchService(handle) }
    let range = HandleRange(handle, service.groupEnd), concerned = database.range(concernedBy: range)
    try database.remove(service: handle, andIncludes: andIncludes)
    for index in 0..<clients.count {
      for (slot, removed) in configurations.enumerated() where range.contains(removed.descriptor) {
        // The slot may become that of another characteristic.
        clients[index].configured.remove(slot)
        if clients[index].configurations[slot].isEmpty { continue }
        clients[index].configurations[slot] = []
        effects.append(.subscriptionChanged(clients[index].bearers[0], removed.value, []))
      }
      clients[index].prepared.serviceRemoved(range)
    }
    for index in 0..<sessions.count { sessions[index].executing.serviceRemoved(range) }
    changed(concerned, from: hash)
    return range
  }

  private mutating func changed(_ range: HandleRange, from hash: UInt128) {
    // §7.1: the hash is a value of the Generic Attribute service, whose range is therefore affected too.
    let range = database.special.supportRobustCaching ? range.union(database.special.service) : range
    if changes.count == DatabaseChange.remembered { changes.removeFirst() }
    changes.append(DatabaseChange(hash: hash, range: range))
    for index in 0..<sessions.count { sessions[index].wasOutOfSync = false }
    for index in 0..<clients.count {
      clients[index].awareness = .unaware
      // §7.1: a client that has not subscribed to it misses the change.
      if wantsServiceChanged(index) {
        clients[index].serviceChanged.waiting.formUnion(range)
        hasServiceChanged = true
      }
      recordChanged(index)
    }
  }
  private func wantsServiceChanged(_ client: Int) -> Bool {
    guard let position = database.position(of: database.special.serviceChanged) else { return false }
    return clients[client].configurations[database.attributes[position].slot].contains(.indication)
  }

  /// The range that has changed since the database had `hash`: everything if the hash is unknown, nil if nothing has.
  private func changes(since hash: UInt128) -> HandleRange? {
    if hash == database.hash { return nil }
    guard let first = changes.lastIndex(where: { $0.hash == hash }) else { return .all }
    return changes[first...].reduce(nil) { $0.union($1.range) }
  }

  /// The Service Changed indication that is due on `bearer`, as handle and value; nil when there is none. Call it only
  /// when the bearer can indicate, and pass the result to `Bearer.indicate` at once: the server attributes the next
  /// confirmation to it.
  public mutating func takeServiceChanged(on bearer: BearerID) -> (handle: AttributeHandle, value: [UInt8])? {
    guard hasServiceChanged, let index = client(of: bearer), clients[index].serviceChanged.sent == nil,
      let range = clients[index].serviceChanged.waiting, wantsServiceChanged(index)
    else { return nil }
    clients[index].serviceChanged = ServiceChangedPhase(sent: .init(range: range, bearer: bearer))
    hasServiceChanged = false
    for other in 0..<clients.count where clients[other].serviceChanged.waiting != nil { hasServiceChanged = true }
    let first = range.first.rawValue, last = range.last.rawValue
    return (
      database.special.serviceChanged,
      [UInt8(first & 0xFF), UInt8(first >> 8), UInt8(last & 0xFF), UInt8(last >> 8)]
    )
  }
  public mutating func confirmed(on bearer: BearerID, now: Instant) {
    guard let index = client(of: bearer), clients[index].serviceChanged.sent?.bearer == bearer else { return }
    clients[index].serviceChanged.sent = nil
    // Another change may have occurred meanwhile, and its indication follows. §2.5.2.1: a client with several bearers
    // becomes change-aware by the Database Hash alone.
    if clients[index].serviceChanged.waiting == nil, clients[index].bearers.count == 1 {
      clients[index].awareness = .aware
    }
    recordChanged(index)
  }
}

// MARK: - Robust caching. Vol 3, Part G, §2.5.2.1

extension Server {
  /// The features that the client of `bearer` supports.
  public func features(of bearer: BearerID) -> ClientSupportedFeatures {
    client(of: bearer).map { clients[$0].features } ?? []
  }
  /// The client does not know the current database, and supports being refused for it.
  @inline(__always)
  mutating func ignoresDatabase(_ session: Int) -> Bool {
    clients[sessions[session].client].awareness != .aware && usesRobustCaching(sessions[session].client)
  }
  private mutating func usesRobustCaching(_ client: Int) -> Bool {
    clients[client].features.contains(.robustCaching) && database.special.supportRobustCaching
  }

  /// Checks a request of a client that is not aware. 0x12 and another request make a client with one bearer aware; one
  /// with several gets 0x12 once on each.
  @inline(never)
  mutating func receive(_ request: ATTPDU, _ packet: Span<UInt8>, fromUnaware session: Int) throws(Refusal) {
    let client = sessions[session].client
    let wasOutOfSync = sessions[session].wasOutOfSync
    if clients[client].awareness == .informed || wasOutOfSync && clients[client].bearers.count == 1 {
      clients[client].awareness = .aware
      return recordChanged(client)
    }
    guard !wasOutOfSync, usesRobustCaching(client), let handle = request.countsOnHandle(in: packet) else { return }
    sessions[session].wasOutOfSync = true
    throw Refusal(handle, .databaseOutOfSync)
  }
  /// The client has read the Database Hash.
  @inline(__always)
  mutating func readDatabaseHash(_ session: Int) {
    let client = sessions[session].client
    if clients[client].awareness == .unaware { clients[client].awareness = .informed }
  }

  /// Whether `part`, written at `offset`, clears no bit. Vol 3, Part G, §7.2.
  mutating func accepts(features part: Span<UInt8>, at offset: Int, _ session: Int) -> Bool {
    guard offset == 0 else { return true }
    let wanted = part.isEmpty ? [] : ClientSupportedFeatures(rawValue: part[0])
    return clients[sessions[session].client].features.isSubset(of: wanted)
  }
  /// Stores the accepted features; undefined bits are dropped.
  mutating func setFeatures(_ part: Span<UInt8>, at offset: Int, _ session: Int) {
    guard offset == 0, !part.isEmpty else { return }
    let wanted = ClientSupportedFeatures(rawValue: part[0]).intersection(.known)
    let client = sessions[session].client
    guard wanted != clients[client].features else { return }
    clients[client].features = wanted
    recordChanged(client)
  }
}

extension ClientSupportedFeatures {
  /// The bits that are defined.
  static var known: Self { [.robustCaching, .enhancedATTBearer, .multipleHandleValueNotifications] }
  /// Octets that a client may write. Only the first has defined bits; the server ignores the others.
  static var longest: Int { 16 }
}

extension ATTPDU {
  /// The handle that a request depends on; nil for one that discovers. Vol 3, Part G, §2.5.2.1.
  fileprivate func countsOnHandle(in packet: Span<UInt8>) -> AttributeHandle? {
    switch self {
    case .readRequest(let request): return request.attributeHandle
    case .readBlobRequest(let request): return request.attributeHandle
    case .writeRequest(let request): return request.attributeHandle
    case .prepareWriteRequest(let request): return request.attributeHandle
    case .readMultipleRequest(let request):
      var cursor = request.setOfHandles.cursor
      return cursor.next(in: packet)
    case .readMultipleVariableRequest(let request):
      var cursor = request.setOfHandles.cursor
      return cursor.next(in: packet)
    case .readByTypeRequest(let request):
      let isDiscovery = request.attributeType == .include || request.attributeType == .characteristic
      let isAll = request.startingHandle == HandleRange.all.first && request.endingHandle == HandleRange.all.last
      return isDiscovery || isAll ? nil : request.startingHandle
    case .errorResponse, .exchangeMTURequest, .exchangeMTUResponse, .findInformationRequest, .findInformationResponse,
      .findByTypeValueRequest, .findByTypeValueResponse, .readByTypeResponse, .readResponse, .readBlobResponse,
      .readMultipleResponse, .readByGroupTypeRequest, .readByGroupTypeResponse, .writeResponse, .prepareWriteResponse,
      .executeWriteRequest, .executeWriteResponse, .handleValueNotification, .handleValueIndication,
      .handleValueConfirmation, .readMultipleVariableResponse, .multipleHandleValueNotification, .writeCommand,
      .signedWriteCommand:
      return nil
    }
  }
}

extension Optional<HandleRange> {
  /// The least range that holds both.
  func union(_ other: HandleRange?) -> HandleRange? {
    guard let self, let other else { return self ?? other }
    return self.union(other)
  }
  fileprivate mutating func formUnion(_ range: HandleRange) { self = union(range) }
}

// MARK: - Bonds

extension Server {
  /// Bonds the client of `bearer`: what the server remembers of it outlives its bearers; `.store` keeps it under
  /// `bond`.
  public mutating func bond(_ bearer: BearerID, as bond: BondID) {
    guard let index = client(of: bearer) else { return }
    clients[index].bond = bond
    clients[index].configured = []
    recordChanged(index)
  }
  /// Restores the bonded client of `bearer` from the octets of the last `.store` for its bond: its configurations and
  /// features, and the changes that it missed. Throws if the octets are not a record; the client then starts without
  /// one. What the client has configured on this link counts, not what it configured earlier. Vol 3, Part G, §2.5.2,
  /// §3.3.3.3, §7.2.
  public mutating func restore(
    _ record: Span<UInt8>, of bond: BondID, on bearer: BearerID
  ) throws(WireError) {
    guard let index = client(of: bearer) else { return }
    let configured = clients[index].configured
    self.bond(bearer, as: bond)
    let record = try ClientRecord(record)
    // A client clears no bit: §7.2.
    clients[index].features.formUnion(record.features.intersection(.known))
    for slot in database.configurations.indices where !configured.contains(slot) {
      let wanted = record.configuration(slot: slot, in: database)
      guard wanted != clients[index].configurations[slot] else { continue }
      clients[index].configurations[slot] = wanted
      effects.append(.subscriptionChanged(bearer, database.configurations[slot].value, wanted))
    }
    let missed = changes(since: record.databaseHash)
    clients[index].awareness = record.isAware && missed == nil ? .aware : .unaware
    for session in 0..<sessions.count where sessions[session].client == index { sessions[session].wasOutOfSync = false }
    let waiting = record.unconfirmed.union(missed)
    clients[index].serviceChanged.waiting = wantsServiceChanged(index) ? waiting : nil
    if clients[index].serviceChanged.waiting != nil { hasServiceChanged = true }
  }

  /// Whether the client's state outlives its bearers.
  func isBonded(_ client: Int) -> Bool { clients[client].bond != nil }
  mutating func recordChanged(_ client: Int) {
    guard isBonded(client) else { return }
    clients[client].isRecordStored = false
    hasUnstoredRecord = true
  }
  mutating func nextRecord() -> ServerEffect? {
    for index in 0..<clients.count {
      if let effect = storeRecord(ofClient: index) { return effect }
    }
    hasUnstoredRecord = false
    return nil
  }
  mutating func storeRecord(ofClient index: Int) -> ServerEffect? {
    guard let bond = clients[index].bond, !clients[index].isRecordStored else { return nil }
    clients[index].isRecordStored = true
    var record = ClientRecord()
    record.features = clients[index].features
    record.isAware = clients[index].awareness == .aware
    record.databaseHash = database.hash
    record.unconfirmed = clients[index].serviceChanged.unconfirmed
    for (slot, configuration) in clients[index].configurations.enumerated() where !configuration.isEmpty {
      let descriptor = database.configurations[slot]
      record.configurations.append(
        ClientRecord.Entry(
          descriptor: descriptor.descriptor, characteristic: database.type(of: descriptor.value), value: configuration))
    }
    return .store(bond, keep(record.octets.span))
  }
}
