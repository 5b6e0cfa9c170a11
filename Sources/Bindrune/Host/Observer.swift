import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT

/// An object that receives everything a host reports, in the order in which it arrived: a notification that came before
/// the answer to a read precedes that read's completion here too. The host calls it on its event loop, isolated to
/// itself.
///
/// Most programs use the `async` functions of `BluetoothHost` and `Link` instead. The scheduler decides when a task
/// resumes, so two tasks, or a task and a sequence, do not see which of two events came first. An observer is for a
/// program that needs this order, or that needs a value without a copy and a task switch: another interface on top of
/// this one, such as Core Bluetooth's, or a bridge to another process. For it, `BluetoothHost.begin`, `beginScan`,
/// `beginAdvertising` and `beginIndication` make the same requests: they return at once, and report the result as an
/// event. Decision 0042.
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
/// The host never calls it from within a call to the host: events of such a call follow in a later turn of the event
/// loop, or, if an observer's method made the call, after that method has returned. Sequences and `async` functions
/// work as without an observer. Nothing else runs on the event loop until the method returns: it must not block.
public protocol HostObserver: AnyObject, Sendable {
  func host(_ host: isolated BluetoothHost, did event: HostEvent)
  /// A notification, or an indication, which has been confirmed: of any handle, subscribed to or not, except Service
  /// Changed, which the host reports as `.servicesChanged`. `value` is valid only during the call.
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID)
  /// A batch of events is complete. An observer that collects events can pass them on here, once for the batch.
  func hostReportedBatch(_ host: isolated BluetoothHost)
}
extension HostObserver {
  public func hostReportedBatch(_ host: isolated BluetoothHost) {}
}
/// Stands in for the observer of a host without one.
final class NoObserver: HostObserver {
  static let only = NoObserver()
  func host(_ host: isolated BluetoothHost, did event: HostEvent) {}
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {}
}

/// What a `HostObserver` receives, besides values.
///
/// The events of a link, in order: `.server(.connected)`; `.completed` of the `.connect` that made it; everything else;
/// `.completed` of each request still outstanding, `.disconnect` with `.done` and the others with the error that says
/// why the link went down; `.server(.disconnected)`, and nothing after that.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum HostEvent: Sendable {
  /// The controller has started and the bonds are loaded: from now on operations can begin. Once for a host, before all
  /// other events but `.failed`.
  case running
  /// Requests among these wait for an answer, even if nothing reads `BluetoothHost.events`.
  case server(ServerEvent)
  /// The handles in the range are no longer valid: requests to them fail, and their subscriptions have ended.
  case servicesChanged(LinkID, HandleRange)
  /// The host has discovered the changed services again; this is the server's database now.
  case rediscovered(LinkID, RemoteDatabase)
  /// The link's peer has distributed its identity address. `Link.peer` is unchanged; other `PeerID`s of that address
  /// now stand for this peer.
  case peerIdentified(LinkID, PeerAddress)
  /// ATT_MTU in force, 23 … 517.
  case mtuChanged(LinkID, Int)
  /// Enhanced bearers of ATT that the link has now: `HostConfiguration.enhancedBearers`.
  case bearersChanged(LinkID, enhanced: Int)
  case parametersChanged(LinkID, ConnectionParameters)
  case dataLengthChanged(LinkID, LinkDataLength)
  case physChanged(LinkID, LinkPHYs)
  case securityChanged(LinkID, LinkSecurity)
  /// The host's agent is being asked.
  case pairingAsked(LinkID, PairingQuestion)
  /// nil: with success.
  case pairingEnded(LinkID, BluetoothError?)
  /// The link could not be encrypted with the key of the bond: 0x06, the peer no longer has the key; 0x22, it did not
  /// answer, and the link ends; or the controller's status. The bond stays until `removeBond`, because another device
  /// may use the peer's address.
  case encryptionFailed(LinkID, HCIStatus)
  /// From a scan of `beginScan`.
  case discovered(ScanID, Advertisement)
  /// The scan has ended: the controller refuses, or stopped.
  case scanFailed(ScanID, BluetoothError)
  /// The set advertises what was requested last, perhaps again after a connection.
  case advertisingStarted(AdvertisingSetID)
  /// The set is off: the controller refused it, perhaps after a connection. `.server(.advertisingStopped)` reports its
  /// other ends.
  case advertisingFailed(AdvertisingSetID, BluetoothError)
  /// An operation of `begin` has ended: exactly one for each.
  case completed(RequestID, Result<HostOutcome, BluetoothError>)
  /// The client has confirmed the link's outstanding indication, of this handle.
  case indicationConfirmed(LinkID, AttributeHandle)
  /// The host has been closed, or the controller or the transport was lost. Links, scans and sets have ended without
  /// events of their own; the completions of all requests came before. Only completions of requests that are begun
  /// later follow.
  case failed(BluetoothError)
}

extension BluetoothHost {
  /// Begins an operation and returns. The observer receives exactly one `.completed` with this number, never before
  /// this function has returned. On a host that is not running, that is the error.
  ///
  /// A request to a link's server leaves after everything offered to the link's ports so far.
  @discardableResult
  public func begin(_ operation: HostOperation) -> RequestID {
    let id = newRequest()
    begin(operation, id, at: nil)
    return id
  }
  /// The same for a caller that took a place among the values of a port earlier, on any thread. Nil: the request leaves
  /// after the requests before it and waits for no values. `id`: chosen by the caller, from `firstNumberOfObserver` on,
  /// and increasing.
  package func begin(_ operation: HostOperation, as id: RequestID, after place: SendPort.Fence?) {
    begin(operation, id, at: place.map { [$0] } ?? [])
  }
  /// The host numbers its own requests and scans below this; from here on the numbers are its observer's.
  package static var firstNumberOfObserver: UInt64 { 1 << 63 }
  private func begin(_ operation: HostOperation, _ id: RequestID, at places: [SendPort.Fence]?) {
    do throws(BluetoothError) {
      try checkRunning()
      requests[id] = Requester(operation: operation, continuation: nil)
      start(operation, id, at: places)
    } catch {
      reportLater(.completed(id, .failure(failure(error, of: operation))))
    }
  }
  /// Ends the request with `.cancelled`, unless it has ended already. What was sent to a peer may still take effect.
  public func cancel(_ id: RequestID) {
    guard let requester = requests[id], requester.continuation == nil else { return }
    perform(as: "cancel(_:)") { core, now in core.cancel(id, now: now) }
  }

  // MARK: Reporting

  /// Reports the event to the observer; false if there is none. Only `pump` may call this: it keeps the order.
  @discardableResult
  func report(_ event: HostEvent) -> Bool {
    guard let observer else { return false }
    observer.host(self, did: event)
    return true
  }
  /// Reports an event that is not the core's, in its turn.
  func reportLater(_ event: HostEvent) {
    guard observer != nil else { return }
    unreportedEvents.append(event)
    pumpLater()
  }
  /// False if there was nothing to report.
  func reportEvents() -> Bool {
    if unreportedEvents.isEmpty { return false }
    while let event = unreportedEvents.popFirst() { report(event) }
    return true
  }
}
