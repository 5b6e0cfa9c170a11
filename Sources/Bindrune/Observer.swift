import ATT
import BindruneWire
import GAP
import GATT

/// Whoever must be told in order and cannot wait: called on the host's event loop, isolated to it. It is told in the order of
/// the air: a notification that came before the answer to a read comes before that read's completion here too.
///
///     final class Monitor: HostObserver {
///       func host(_ host: isolated BluetoothHost, did event: HostEvent) {
///         if case .server(.connected(let link)) = event { host.begin(.discoverServices(link.id, nil)) }
///       }
///       func host(
///         _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool, on link: LinkID
///       ) { print(handle, value.count) }
///     }
///
/// It is never called from within a call to the host: what that leads to is told in a later turn of the event loop, or, where
/// the call was made from one of the methods below, when that has returned. Readers of sequences and callers of `async`
/// functions hear beside it what they always do. Until it returns nothing else happens on that event loop: it must not wait.
public protocol HostObserver: AnyObject, Sendable {
  func host(_ host: isolated BluetoothHost, did event: HostEvent)
  /// A notification, or an indication, which has been confirmed: of any handle, whether or not somebody here has subscribed to
  /// it, except Service Changed, which is told as `.servicesChanged`. The octets are lent.
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID)
  /// A batch of events is complete. An observer that gathers events passes them on here, once for the batch.
  func hostToldAll(_ host: isolated BluetoothHost)
}
extension HostObserver {
  public func hostToldAll(_ host: isolated BluetoothHost) {}
}
/// Of a host that nobody observes.
final class NoObserver: HostObserver {
  static let only = NoObserver()
  func host(_ host: isolated BluetoothHost, did event: HostEvent) {}
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {}
}

/// What a `HostObserver` is told, besides values.
///
/// A link's life, in order: `.server(.connected)`; `.completed` of the `.connect` that asked for it; everything else of it;
/// `.completed` of everything that was begun on it and has not ended, `.disconnect` with `.done` and the others with the error
/// that says why it went down; `.server(.disconnected)`, and nothing after that.
public enum HostEvent: Sendable {
  /// Requests among these wait for an answer, also if nobody listens to `BluetoothHost.events`.
  case server(ServerEvent)
  /// What the handles in the range meant is over: requests to them fail, subscriptions have ended.
  case servicesChanged(LinkID, HandleRange)
  /// What had changed has been discovered again: what the server has now.
  case rediscovered(LinkID, RemoteDatabase)
  /// The link's peer has told its identity address: `Link.peer` is what it was, and other `PeerID`s that led to that address
  /// lead to this peer now.
  case peerIdentified(LinkID, PeerAddress)
  /// ATT_MTU in force, 23 … 517.
  case mtuChanged(LinkID, Int)
  /// By a scan that was begun with `beginScan`.
  case discovered(ScanID, Advertisement)
  /// The scan has ended: the controller refuses, or stopped.
  case scanFailed(ScanID, BluetoothError)
  /// What was asked for last of this set is on the air, perhaps again after a connection.
  case advertisingStarted(AdvertisingSetID)
  /// The set is off: the controller refused it, perhaps after a connection. Its other ends: `.server(.advertisingStopped)`.
  case advertisingFailed(AdvertisingSetID, BluetoothError)
  /// What `begin` has begun has ended: exactly once for each.
  case completed(RequestID, Result<HostOutcome, BluetoothError>)
  /// The client has confirmed the link's one indication, which was of the value with this handle.
  case indicationConfirmed(LinkID, AttributeHandle)
  /// The host has been closed, or the controller or the way to it is lost: links, scans and sets have ended with it and are
  /// told no more; what was begun has been completed before. The last event, but for the completions of what is begun later.
  case failed(BluetoothError)
}

/// How something ended that was begun.
public enum HostOutcome: Sendable {
  /// Written, subscribed, disconnected …
  case done
  case linked(Link)
  case parameters(ConnectionParameters)
  /// dBm; nil: the controller does not know.
  case rssi(Int8?)
  case phys(LinkPHYs)
  case value([UInt8])
  case databaseHash(DatabaseHash?)
  /// All that the link's client knows, with what was discovered.
  case database(RemoteDatabase)
}

/// What can be begun with `BluetoothHost.begin`. Each is what the function of `BluetoothHost` or `Link` with its name does.
public enum HostOperation: Sendable {
  /// Ends with `.linked`; never, where the peer never comes, unless it is cancelled.
  case connect(PeerID, ConnectionParameters)
  case disconnect(LinkID)
  case readRSSI(LinkID)
  /// Ends with `.parameters`.
  case updateParameters(LinkID, ConnectionParameterRange)
  /// Everything. These end with `.database`.
  case discoverAll(LinkID)
  /// All primary services, or those with the UUID.
  case discoverServices(LinkID, BluetoothUUID?)
  case discoverIncludedServices(LinkID, HandleRange)
  case discoverCharacteristics(LinkID, HandleRange)
  case discoverDescriptors(LinkID, HandleRange)
  /// Asks to be told when the services change, where the server can: see `Client.followChanges`.
  case followChanges(LinkID)
  /// The whole value, however long.
  case read(LinkID, AttributeHandle)
  case write(LinkID, AttributeHandle, [UInt8])
  /// By the handle of the characteristic's value, which must have been discovered. Subscribers are counted, those of
  /// `Link.subscribe` too: the server is asked for the first, and after the last.
  case subscribe(LinkID, AttributeHandle, ClientCharacteristicConfiguration?)
  case unsubscribe(LinkID, AttributeHandle)

  /// The link that it is about; nil: it is there to make one.
  public var link: LinkID? {
    switch self {
    case .connect: nil
    case .disconnect(let link), .readRSSI(let link), .updateParameters(let link, _), .discoverAll(let link),
      .discoverServices(let link, _), .discoverIncludedServices(let link, _), .discoverCharacteristics(let link, _),
      .discoverDescriptors(let link, _), .followChanges(let link), .read(let link, _), .write(let link, _, _),
      .subscribe(let link, _, _), .unsubscribe(let link, _):
      link
    }
  }
}

extension BluetoothHost {
  /// Begins something and returns; the observer is told how it ends by exactly one `.completed` with this number, never before
  /// this has returned. On a host that is not running it ends with that error.
  ///
  /// What is asked of a link's server leaves after what has been offered to the link's ports.
  @discardableResult
  public func begin(_ operation: HostOperation) -> RequestID {
    let id = newRequest()
    begin(operation, id, at: operation.link.map { places(among: .command, on: $0) } ?? [])
    return id
  }
  /// The same for a caller who has taken a place among the values of a port, from whatever thread it has asked. Nil: it leaves
  /// after the requests before it, wherever the values are.
  /// `id`: the caller's, from `firstNumberOfObserver` on, and a greater one each time.
  package func begin(_ operation: HostOperation, as id: RequestID, after place: SendPort.Fence?) {
    begin(operation, id, at: place.map { [$0] } ?? [])
  }
  /// The host itself counts its requests and scans below this; from here on the numbers are its observer's.
  package static var firstNumberOfObserver: UInt64 { 1 << 63 }
  private func begin(_ operation: HostOperation, _ id: RequestID, at places: [SendPort.Fence]) {
    do throws(BluetoothError) {
      try checkRunning()
      requests[id] = .observer(operation)
      start(operation, id, at: places)
    } catch {
      tellLater(.completed(id, .failure(error)))
    }
  }
  /// Ends what was begun with `.cancelled`; nothing where it has ended already. What is on its way to a peer may take effect.
  public func cancel(_ id: RequestID) {
    guard case .observer? = requests[id] else { return }
    perform { core, now in core.cancel(id, now: now) }
  }

  private func start(_ operation: HostOperation, _ id: RequestID, at places: [SendPort.Fence]) {
    func client(_ link: LinkID, _ body: (inout Client) -> Void) { ask(id, of: link, at: places, body) }
    switch operation {
    case .connect(let peer, let parameters):
      perform { core, now in core.connect(to: peer, parameters, id: id, now: now) }
    case .disconnect(let link): perform { core, now in core.disconnect(link, id: id, now: now) }
    case .readRSSI(let link): perform { core, now in core.readRSSI(link, id: id, now: now) }
    case .updateParameters(let link, let wanted):
      perform { core, now in core.updateParameters(link, wanted, id: id, now: now) }
    case .discoverAll(let link): client(link) { $0.discoverAll(id) }
    case .discoverServices(let link, let uuid): client(link) { $0.discoverPrimaryServices(id, uuid) }
    case .discoverIncludedServices(let link, let range): client(link) { $0.discoverIncludedServices(id, in: range) }
    case .discoverCharacteristics(let link, let range): client(link) { $0.discoverCharacteristics(id, in: range) }
    case .discoverDescriptors(let link, let range): client(link) { $0.discoverDescriptors(id, in: range) }
    case .followChanges(let link): client(link) { $0.followChanges(id) }
    case .read(let link, let handle): client(link) { $0.readLong(id, handle) }
    case .write(let link, let handle, let value): client(link) { $0.write(id, handle, value.span) }
    case .subscribe(let link, let handle, let configuration): client(link) { $0.subscribe(id, handle, configuration) }
    case .unsubscribe(let link, let handle): client(link) { $0.unsubscribe(id, handle) }
    }
  }

  // MARK: Telling

  /// False: nobody observes. In `pump` only, where everything is told in its order.
  @discardableResult
  func tell(_ event: HostEvent) -> Bool {
    guard let observer else { return false }
    observer.host(self, did: event)
    return true
  }
  /// For what the core does not say.
  func tellLater(_ event: HostEvent) {
    guard observer != nil else { return }
    untold.append(event)
    pumpLater()
  }
  /// False: there was nothing.
  func tellUntold() -> Bool {
    if untold.isEmpty { return false }
    while let event = untold.popFirst() { tell(event) }
    return true
  }
}
