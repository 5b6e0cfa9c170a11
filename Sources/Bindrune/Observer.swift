import ATT
import BindruneWire
import GAP
import GATT

/// An object that gets everything a host has to report, in the order of the air: called on the host's event loop, isolated to
/// it. A notification that came before the answer to a read comes before that read's completion here too.
///
/// Most programs use the `async` functions of `BluetoothHost` and `Link` instead. A task wakes when the scheduler gets to it, so
/// two tasks, or a task and a sequence, cannot tell which of two things happened first. An observer is for a program that needs
/// this order, or a value without a copy and without a wake: another interface on top of this one, as Core Bluetooth's, or a
/// bridge to another process. `BluetoothHost.begin`, `beginScan`, `beginAdvertising` and `beginIndication` are the same
/// requests for it: they return at once, and their ends are events. Decision 0042.
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
  case parametersChanged(LinkID, ConnectionParameters)
  case dataLengthChanged(LinkID, LinkDataLength)
  case physChanged(LinkID, LinkPHYs)
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

extension BluetoothHost {
  /// Begins something and returns; the observer is told how it ends by exactly one `.completed` with this number, never before
  /// this has returned. On a host that is not running it ends with that error.
  ///
  /// What is asked of a link's server leaves after what has been offered to the link's ports.
  @discardableResult
  public func begin(_ operation: HostOperation) -> RequestID {
    let id = newRequest()
    begin(operation, id, at: nil)
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
  private func begin(_ operation: HostOperation, _ id: RequestID, at places: [SendPort.Fence]?) {
    do throws(BluetoothError) {
      try checkRunning()
      requests[id] = Requester(operation: operation, continuation: nil)
      start(operation, id, at: places)
    } catch {
      tellLater(.completed(id, .failure(failure(error, of: operation))))
    }
  }
  /// Ends what was begun with `.cancelled`; nothing where it has ended already. What is on its way to a peer may take effect.
  public func cancel(_ id: RequestID) {
    guard let requester = requests[id], requester.continuation == nil else { return }
    perform { core, now in core.cancel(id, now: now) }
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
