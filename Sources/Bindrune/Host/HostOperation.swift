import BindruneATT
import BindruneGAP
import BindruneGATT
import BindruneL2CAP
import BindruneSMP

/// A request to the host, or to the server of one link. `Link` and `BluetoothHost` have an `async` function for each;
/// `BluetoothHost.begin` makes the request without waiting.
///
/// Each operation has one kind of outcome besides errors. Its comment names it; if there is none, it is `.done`.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum HostOperation: Sendable {
  /// `.linked`. Waits until the peer is in range, or until it is cancelled.
  case connect(PeerID, ConnectionParameters)
  /// `.linked`: to the first peer that can be reached. Without `timeout` it waits as `connect` does.
  case connectToFirst([PeerAddress], ConnectionParameters, timeout: Duration?)
  case disconnect(LinkID)
  /// `.rssi`.
  case readRSSI(LinkID)
  /// `.parameters`.
  case updateParameters(LinkID, ConnectionParameterRange)
  /// `.phys`.
  case readPHYs(LinkID)
  /// `.phys`.
  case setPHYs(LinkID, PHYPreferences)
  case setDefaultPHYs(PHYPreferences)
  /// `.features`: see `Link.readFeatures`.
  case readFeatures(LinkID)
  /// `.security`: see `Link.pair`.
  case pair(LinkID, PairingSettings?)
  /// `.security`: see `Link.encrypt`.
  case encrypt(LinkID)
  /// `.databaseHash`.
  case readDatabaseHash(LinkID)
  /// `.database`: everything. `infersDescriptors`: with fewer requests, see `Client.discoverAll`.
  case discoverAll(LinkID, infersDescriptors: Bool = false)
  /// `.database`: all primary services, or those with the UUID.
  case discoverServices(LinkID, BluetoothUUID?)
  /// `.database`.
  case discoverIncludedServices(LinkID, HandleRange)
  /// `.database`.
  case discoverCharacteristics(LinkID, HandleRange)
  /// `.database`.
  case discoverDescriptors(LinkID, HandleRange)
  /// Subscribes to Service Changed and reads what robust caching needs, as far as the server has them: see
  /// `Client.followChanges`.
  case followChanges(LinkID)
  /// `.value`: the whole value, however long.
  case read(LinkID, AttributeHandle)
  /// `.values`: of all attributes with the UUID.
  case readUUID(LinkID, BluetoothUUID, HandleRange)
  /// `.values`.
  case readMultiple(LinkID, [AttributeHandle])
  case write(LinkID, AttributeHandle, [UInt8])
  case writeReliably(LinkID, [(handle: AttributeHandle, value: [UInt8])])
  /// Takes the handle of the characteristic's value, which must have been discovered. The host counts subscribers,
  /// those of `Link.subscribe` too: only the first and the last cause a request to the peer.
  case subscribe(LinkID, AttributeHandle, ClientCharacteristicConfiguration?)
  case unsubscribe(LinkID, AttributeHandle)
  /// `.channel`: see `Link.openChannel`.
  case openChannel(LinkID, SPSM, mtu: Int, capacity: Int)

  /// The link that the operation uses; nil if it uses none.
  public var link: LinkID? {
    switch self {
    case .connect, .connectToFirst, .setDefaultPHYs: nil
    case .disconnect(let link), .readRSSI(let link), .updateParameters(let link, _), .readPHYs(let link),
      .setPHYs(let link, _), .readFeatures(let link), .pair(let link, _), .encrypt(let link),
      .readDatabaseHash(let link),
      .discoverAll(let link, _), .discoverServices(let link, _), .discoverIncludedServices(let link, _),
      .discoverCharacteristics(let link, _), .discoverDescriptors(let link, _), .followChanges(let link),
      .read(let link, _), .readUUID(let link, _, _), .readMultiple(let link, _), .write(let link, _, _),
      .writeReliably(let link, _), .subscribe(let link, _, _), .unsubscribe(let link, _),
      .openChannel(let link, _, _, _):
      link
    }
  }

  /// The function that makes the request, for a trace.
  var call: StaticString {
    switch self {
    case .connect, .connectToFirst: "connect(to:)"
    case .disconnect: "disconnect()"
    case .readRSSI: "readRSSI()"
    case .updateParameters: "updateParameters(_:)"
    case .readPHYs: "readPHYs()"
    case .setPHYs: "setPHYs(_:)"
    case .setDefaultPHYs: "setDefaultPHYs(_:)"
    case .readFeatures: "readFeatures()"
    case .pair: "pair(_:)"
    case .encrypt: "encrypt()"
    case .readDatabaseHash, .followChanges: "discover()"
    case .discoverAll: "discoverAll()"
    case .discoverServices: "discoverServices(_:)"
    case .discoverIncludedServices: "discoverIncludedServices(of:)"
    case .discoverCharacteristics: "discoverCharacteristics(_:of:)"
    case .discoverDescriptors: "discoverDescriptors(of:)"
    case .read, .readMultiple: "read(_:)"
    case .readUUID: "read(uuid:in:)"
    case .write: "write(_:to:)"
    case .writeReliably: "writeReliably(_:)"
    case .subscribe: "subscribe(to:)"
    case .unsubscribe: "unsubscribe()"
    case .openChannel: "openChannel(psm:)"
    }
  }
  /// `BluetoothError.operation` of its failure.
  func text(peer: String) -> String {
    switch self {
    case .connect, .connectToFirst: "connect to \(peer)"
    case .disconnect: "disconnect from \(peer)"
    case .readRSSI: "read the signal strength of \(peer)"
    case .updateParameters: "change the connection parameters of \(peer)"
    case .readPHYs: "read the PHYs of \(peer)"
    case .setPHYs: "change the PHYs of \(peer)"
    case .setDefaultPHYs: "set the PHYs of new links"
    case .readFeatures: "read the features of \(peer)"
    case .pair: "pair with \(peer)"
    case .encrypt: "encrypt the link to \(peer)"
    case .readDatabaseHash: "read the database hash of \(peer)"
    case .discoverAll, .discoverServices: "discover the services of \(peer)"
    case .discoverIncludedServices(_, let range):
      "discover the included services at \(range.first.text) of \(peer)"
    case .discoverCharacteristics(_, let range): "discover the characteristics at \(range.first.text) of \(peer)"
    case .discoverDescriptors(_, let range): "discover the descriptors at \(range.first.text) of \(peer)"
    case .followChanges: "follow changes of the services of \(peer)"
    case .read(_, let handle): "read attribute \(handle.text) of \(peer)"
    case .readUUID(_, let uuid, _): "read the attributes \(uuid) of \(peer)"
    case .readMultiple(_, let handles): "read \(handles.count) attributes of \(peer)"
    case .write(_, let handle, _): "write attribute \(handle.text) of \(peer)"
    case .writeReliably(_, let values): "write \(values.count) attributes of \(peer)"
    case .subscribe(_, let handle, _): "subscribe to attribute \(handle.text) of \(peer)"
    case .openChannel(_, let psm, _, _): "open a channel to PSM \(psm.text) of \(peer)"
    case .unsubscribe(_, let handle): "unsubscribe from attribute \(handle.text) of \(peer)"
    }
  }
}

/// The result of a `HostOperation` that succeeded.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum HostOutcome: Sendable {
  /// Written, subscribed, disconnected …
  case done
  case linked(Link)
  case parameters(ConnectionParameters)
  /// dBm; nil: the controller has no value.
  case rssi(Int8?)
  case phys(LinkPHYs)
  case features(RemoteFeatures)
  case security(LinkSecurity)
  case value([UInt8])
  case values([ReadAttributeValue])
  case databaseHash(DatabaseHash?)
  /// Everything that the link's client has discovered so far.
  case database(RemoteDatabase)
  /// Closes when it is released.
  case channel(LinkChannel)

  // For `BluetoothHost.request(_:_:)`.
  var linked: Link? { if case .linked(let link) = self { link } else { nil } }
  var parameters: ConnectionParameters? { if case .parameters(let parameters) = self { parameters } else { nil } }
  var rssi: Int8?? { if case .rssi(let rssi) = self { .some(rssi) } else { nil } }
  var phys: LinkPHYs? { if case .phys(let phys) = self { phys } else { nil } }
  var features: RemoteFeatures? { if case .features(let features) = self { features } else { nil } }
  var security: LinkSecurity? { if case .security(let security) = self { security } else { nil } }
  var value: [UInt8]? { if case .value(let value) = self { value } else { nil } }
  var values: [ReadAttributeValue]? { if case .values(let values) = self { values } else { nil } }
  var databaseHash: DatabaseHash?? { if case .databaseHash(let hash) = self { .some(hash) } else { nil } }
  var channel: LinkChannel? { if case .channel(let channel) = self { channel } else { nil } }
  var database: RemoteDatabase? { if case .database(let database) = self { database } else { nil } }
}

extension BluetoothHost {
  /// Passes the operation to the core. `places`: a request to a link's server leaves after the values before these
  /// places; nil: after everything offered to the link's ports so far.
  func start(_ operation: HostOperation, _ id: RequestID, at places: [SendPort.Fence]?) {
    func client(_ link: LinkID, _ body: (inout Client) -> Void) {
      ask(id, of: link, at: places ?? self.places(among: .command, on: link), body)
    }
    let isOutermost = beginCall(operation.call)
    defer { endCall(isOutermost) }
    if let calls { requests[id]?.call = calls.current }
    switch operation {
    case .connect(let peer, let parameters):
      perform { core, now in core.connect(to: peer, parameters, id: id, now: now) }
    case .connectToFirst(let peers, let parameters, let timeout):
      perform { core, now in core.connect(to: peers, parameters, timeout: timeout, id: id, now: now) }
    case .disconnect(let link): perform { core, now in core.disconnect(link, id: id, now: now) }
    case .readRSSI(let link): perform { core, now in core.readRSSI(link, id: id, now: now) }
    case .updateParameters(let link, let wanted):
      perform { core, now in core.updateParameters(link, wanted, id: id, now: now) }
    case .readPHYs(let link): perform { core, now in core.readPHYs(link, id: id, now: now) }
    case .setPHYs(let link, let wanted): perform { core, now in core.setPHYs(link, wanted, id: id, now: now) }
    case .setDefaultPHYs(let wanted): perform { core, now in core.setDefaultPHYs(wanted, id: id, now: now) }
    case .readFeatures(let link): perform { core, now in core.readFeatures(link, id: id, now: now) }
    case .pair(let link, let settings): perform { core, now in core.pair(link, settings, id: id, now: now) }
    case .encrypt(let link): perform { core, now in core.encrypt(link, id: id, now: now) }
    case .readDatabaseHash(let link): client(link) { $0.readDatabaseHash(id) }
    case .discoverAll(let link, let infers): client(link) { $0.discoverAll(id, infersDescriptors: infers) }
    case .discoverServices(let link, let uuid): client(link) { $0.discoverPrimaryServices(id, uuid) }
    case .discoverIncludedServices(let link, let range): client(link) { $0.discoverIncludedServices(id, in: range) }
    case .discoverCharacteristics(let link, let range): client(link) { $0.discoverCharacteristics(id, in: range) }
    case .discoverDescriptors(let link, let range): client(link) { $0.discoverDescriptors(id, in: range) }
    case .followChanges(let link): client(link) { $0.followChanges(id) }
    case .read(let link, let handle): client(link) { $0.readLong(id, handle) }
    case .readUUID(let link, let uuid, let range): client(link) { $0.read(id, uuid: uuid, in: range) }
    case .readMultiple(let link, let handles): client(link) { $0.readMultipleVariable(id, handles) }
    case .write(let link, let handle, let value): client(link) { $0.write(id, handle, value.span) }
    case .writeReliably(let link, let values): client(link) { $0.writeReliable(id, values) }
    case .subscribe(let link, let handle, let configuration): client(link) { $0.subscribe(id, handle, configuration) }
    case .unsubscribe(let link, let handle): client(link) { $0.unsubscribe(id, handle) }
    case .openChannel(let link, let psm, let mtu, _): openChannel(psm, mtu: mtu, on: link, id: id)
    }
  }
  /// The error of an operation that failed: it names the operation and the peer.
  func failure(_ error: BluetoothError, of operation: HostOperation?) -> BluetoothError {
    guard let operation else { return error }
    let peer: String
    switch operation {
    case .connect(let id, _): peer = "\(address(of: id))"
    case .connectToFirst(let peers, _, _): peer = peers.map { "\($0)" }.joined(separator: " or ")
    default: peer = operation.link.map(peerText) ?? ""
    }
    return error.during(operation.text(peer: peer))
  }
  /// The peer's address; of a link that is down, the link's number.
  func peerText(_ link: LinkID) -> String { linkStates[link].map { "\(address(of: $0.peer))" } ?? "\(link)" }
}
