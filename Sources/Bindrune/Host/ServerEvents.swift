import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI

/// What happens at a host that serves; see `BluetoothHost.events`.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum ServerEvent: Sendable {
  /// A link is up, in either role.
  case connected(Link)
  case disconnected(LinkID, HCIStatus)
  /// A client changed its configuration of a characteristic's value.
  case subscriptionChanged(LinkID, AttributeHandle, ClientCharacteristicConfiguration)
  /// A client wrote a value that the database keeps.
  case written(LinkID, AttributeHandle, [UInt8], offset: Int)
  /// A client reads or writes a value that the application keeps, and waits for the answer.
  case readRequested(ServerReadRequest)
  case writeRequested(ServerWriteRequest)
  /// A request about this value was not answered within 25 s: the client got Unlikely Error (0x0E).
  case requestUnanswered(LinkID, AttributeHandle)
  /// The set has stopped advertising. It may be on the air again, by an `advertise` that came before this event was
  /// read. `.terminated`: the controller refuses to advertise, after a connection for example, or does not answer.
  case advertisingStopped(AdvertisingSetID, AdvertisingEnd)
}

/// A client reads a dynamic value. Answer once and within 25 s: after that the client gets Unlikely Error (0x0E), and
/// the host reports `.requestUnanswered`. An answer to a request that no longer waits throws.
public struct ServerReadRequest: Sendable {
  public let id: ServerRequestID
  public let link: LinkID
  public let handle: AttributeHandle
  public let offset: Int
  let host: BluetoothHost
  /// `value` is the whole value: the host sends the part from the offset on, or Invalid Offset (0x07) if the offset is
  /// beyond its end.
  public func respond(_ value: [UInt8]) async throws(BluetoothError) {
    try await host.respond(to: self, with: value)
  }
  public func reject(_ error: ATTError) async throws(BluetoothError) { try await host.reject(self, error) }
}

/// A client writes a dynamic value, or several at once: write all or none. Answer once and within 25 s, as for a
/// `ServerReadRequest`.
public struct ServerWriteRequest: Sendable {
  /// One value, written from `offset` on.
  public struct Write: Sendable, Equatable {
    public let handle: AttributeHandle
    public let offset: Int
    public let value: [UInt8]
  }
  public let id: ServerRequestID
  public let link: LinkID
  /// In the order of writing. Only a queue of prepared writes gives more than one: Vol 3, Part F, §3.4.6.
  public let writes: [Write]
  let host: BluetoothHost
  /// Of the first write.
  public var handle: AttributeHandle { writes[0].handle }
  public var offset: Int { writes[0].offset }
  public var value: [UInt8] { writes[0].value }
  /// Everything has been written.
  public func accept() async throws(BluetoothError) { try await host.accept(self) }
  /// Nothing has been written; `handle` says which of several writes is at fault.
  public func reject(_ error: ATTError, about handle: AttributeHandle? = nil) async throws(BluetoothError) {
    try await host.reject(self, error, about: handle)
  }
}

extension BluetoothHost {
  /// Everything that happens from now on. Each call returns a sequence of its own, for one task, which receives every
  /// event. When more than 4,096 events wait, the sequence ends with `.overflow`.
  public var events: ServerEventSequence {
    let mailbox = Mailbox<ServerEvent>(capacity: 4096, overflow: .end, to: "receive the events of the server")
    if case .closed(let error) = state { mailbox.finish(error) } else { incoming.append(mailbox) }
    return ServerEventSequence(mailbox)
  }
  /// True if anything receives the event.
  @discardableResult
  func report(_ event: ServerEvent) -> Bool {
    let isHeard = tell(event)
    return report(.server(event)) || isHeard
  }
  /// The same for the readers of `events` alone.
  @discardableResult
  func tell(_ event: ServerEvent) -> Bool {
    incoming.removeAll { $0.isFinished }
    for mailbox in incoming { mailbox.put(event) }
    return !incoming.isEmpty
  }
  /// Reports a client's request, or refuses it at once if nothing receives the event: no answer could come.
  func ask(_ event: ServerEvent, _ id: ServerRequestID) {
    if !report(event) { _ = perform { core, now in core.refuse(id, .unlikelyError, now: now) } }
  }
  /// Sends the application's answer to a client's request, after the values offered to the link's ports so far (with
  /// `place`: to that port before it), but at the latest 25 s after the request.
  private func answer(
    on link: LinkID, after place: SendPort.Fence?, as call: StaticString,
    _ body: (inout HostCore, _ isKept: Bool, Instant) -> UnwantedAnswer?
  ) throws(BluetoothError) {
    let places = place.map { [$0] } ?? self.places(among: .notification, on: link)
    let isKept = !places.allSatisfy(\.isReached), before = linkStates[link]?.keptAnswer
    // Recorded first: the call to the core may send those values at once, and then `releaseHeld` reads this.
    linkStates[link]?.keptAnswer = isKept ? places : nil
    let reason = perform(as: call) { core, now in
      let reason = body(&core, isKept, now)
      if reason == nil { calls?.answered(on: link) }
      return reason
    }
    guard let reason else { return }
    // No client waits for this answer; an earlier one may still be held.
    linkStates[link]?.keptAnswer = before
    releaseHeld(on: link)
    throw BluetoothError(reason).during("answer a request of \(peerText(link))")
  }
  /// `ServerReadRequest.respond` without waiting: `value` is the whole value.
  public func respond(to request: ServerReadRequest, with value: [UInt8]) throws(BluetoothError) {
    guard request.offset <= value.count else { return try reject(request, .invalidOffset) }
    try respond(to: request, withRest: Array(value[request.offset...]))
  }
  /// The same for a caller that has cut the value: `rest` begins at the request's offset.
  public func respond(to request: ServerReadRequest, withRest rest: [UInt8]) throws(BluetoothError) {
    try respond(to: request.id, on: request.link, withRest: rest, after: nil)
  }
  public func reject(_ request: ServerReadRequest, _ error: ATTError) throws(BluetoothError) {
    try reject(request.id, on: request.link, error, after: nil)
  }
  /// `ServerWriteRequest.accept` without waiting: everything has been written.
  public func accept(_ request: ServerWriteRequest) throws(BluetoothError) {
    try accept(request.id, on: request.link, after: nil)
  }
  /// Nothing has been written; `handle` says which of several writes is at fault.
  public func reject(
    _ request: ServerWriteRequest, _ error: ATTError, about handle: AttributeHandle? = nil
  ) throws(BluetoothError) {
    try reject(request.id, on: request.link, error, about: handle, after: nil)
  }

  // The same for an application that took a place among the values of a port; callable from any thread.

  package func respond(
    to id: ServerRequestID, on link: LinkID, withRest rest: [UInt8], after place: SendPort.Fence?
  ) throws(BluetoothError) {
    try answer(on: link, after: place, as: "respond(to:with:)") { $0.answerRead(id, rest, isKept: $1, now: $2) }
  }
  package func accept(
    _ id: ServerRequestID, on link: LinkID, after place: SendPort.Fence?
  ) throws(BluetoothError) {
    try answer(on: link, after: place, as: "accept(_:)") { $0.answerWrite(id, isKept: $1, now: $2) }
  }
  /// A read or a write.
  package func reject(
    _ id: ServerRequestID, on link: LinkID, _ error: ATTError, about handle: AttributeHandle? = nil,
    after place: SendPort.Fence?
  ) throws(BluetoothError) {
    try answer(on: link, after: place, as: "reject(_:_:about:)") {
      $0.refuse(id, error, about: handle, isKept: $1, now: $2)
    }
  }

  /// Sets a value of the database; clients read it from now on. It notifies no subscriber.
  public func setValue(_ value: [UInt8], of handle: AttributeHandle) {
    perform { core, _ in _ = core.setValue(handle, to: value) }
  }
  /// Disables or enables the contents of the service that is declared at `handle`, as for an application that cannot
  /// answer now: every read or write of a value or descriptor fails with Unlikely Error (0x0E). Clients still discover
  /// the service.
  public func setEnabled(_ isEnabled: Bool, service handle: AttributeHandle) {
    perform { core, _ in core.setEnabled(isEnabled, service: handle) }
  }
  /// Adds services while clients are connected: begin with `DatabaseBuilder(after: host.database)`. Clients that have
  /// subscribed to Service Changed receive it. Vol 3, Part G, §2.5.2. `.outOfSpace`: there are no handles left.
  public func insert(_ services: DatabaseBuilder) throws(BluetoothError) {
    try change("insert services") { (core) throws(DatabaseError) in try core.insert(services) }
  }
  /// Removes the service that is declared at `handle`. Its handles are not used again before all others are. Values of
  /// it that still wait, also in ports, are dropped, a waiting `indicate` throws, and ports for them end. Throws if
  /// another service includes it; with `andIncludes` those Include declarations are removed too.
  public func remove(service handle: AttributeHandle, andIncludes: Bool = false) throws(BluetoothError) {
    var removed: (range: HandleRange, unindicated: [LinkID])?
    try change("remove the service \(handle.text)") { (core) throws(DatabaseError) in
      removed = try core.remove(service: handle, andIncludes: andIncludes)
    }
    guard let removed else { return }
    let error = BluetoothError(.invalidArgument, "The service has been removed: offer values of one that is published.")
    for link in removed.unindicated { linkStates[link]?.confirmation.resume(.failure(error)) }
    for link in Array(linkStates.keys) {
      for port in linkStates[link]?.drop(.notification, in: removed.range, error) ?? [] { port.tellReady() }
      if linkStates[link]?.holdsRequests == true { releaseHeld(on: link) }
    }
  }
  private func change(
    _ operation: @autoclosure () -> String, _ body: (inout HostCore) throws(DatabaseError) -> Void
  ) throws(BluetoothError) {
    let failure = perform { core, _ -> DatabaseError? in
      do throws(DatabaseError) { try body(&core) } catch { return error }
      return nil
    }
    if let failure { throw BluetoothError(failure).during(operation()) }
  }
  /// Grants or denies the client of `link` access to values that need authorization: see `Link.setAuthorized`.
  public func setAuthorized(_ isAuthorized: Bool, of link: LinkID) {
    perform { core, _ in core.setAuthorized(isAuthorized, of: link) }
  }
  /// The services that clients see, as they are now.
  public var database: Database { perform { core, _ in core.database } }

  /// Notifies every subscriber; a value longer than min(MTU − 3, 512) octets is cut to that. Returns the links whose
  /// queue was full; they got nothing: use a `SendPort` if that matters.
  @discardableResult
  public func notify(_ value: [UInt8], of handle: AttributeHandle) -> [LinkID] {
    let subscribers = core.subscribers(of: handle)
    let behind = subscribers.filter { hasValues(.notification, on: $0) }
    return perform(as: "notify(_:of:)") { core, _ in
      subscribers.filter { link in
        if behind.contains(link) { return true }
        let answer = core.notify(value.span, of: handle, on: link)
        if answer?.isAccepted == true { calls?.accepted(on: link) }
        return answer == .full
      }
    }
  }
  /// Indicates to one subscriber and waits for its confirmation; a value longer than min(MTU − 3, 512) octets is cut to
  /// that. A cancelled task stops waiting; the next indication still fails with `.busy` until this one has been
  /// confirmed. Vol 3, Part G, §4.11.
  public func indicate(_ value: [UInt8], of handle: AttributeHandle, on link: LinkID) async throws(BluetoothError) {
    do throws(BluetoothError) { try check() } catch { throw error.during(indication(of: handle, to: link)) }
    let confirmation = linkStates[link]?.confirmation
    try beginIndication(value, of: handle, on: link)
    do throws(BluetoothError) { try await confirmation?.wait() } catch {
      throw error.during(indication(of: handle, to: link))
    }
  }
  /// The same without waiting: the observer receives `.indicationConfirmed`, or the end of the link.
  public func beginIndication(
    _ value: [UInt8], of handle: AttributeHandle, on link: LinkID
  ) throws(BluetoothError) {
    if let error = indicationError(value, of: handle, on: link) {
      throw error.during(indication(of: handle, to: link))
    }
  }
  /// nil: the indication has been queued.
  private func indicationError(_ value: [UInt8], of handle: AttributeHandle, on link: LinkID) -> BluetoothError? {
    do throws(BluetoothError) { try checkRunning() } catch { return error }
    if hasValues(.notification, on: link) {
      return BluetoothError(
        .busy, "Values wait in this link's ports: wait until they have left, or offer this one there.")
    }
    let answer = perform(as: "indicate(_:of:on:)") { core, _ in
      let answer = core.indicate(value.span, of: handle, on: link)
      if answer?.isAccepted == true { calls?.acceptedIndication(on: link) }
      return answer
    }
    return switch answer {
    case .queued, .cut: nil
    case .full: BluetoothError(.busy, "An indication is outstanding on this link: wait until it is confirmed.")
    case .closed: linkIsDown(link)
    case nil:
      BluetoothError(.invalidArgument, "The client has not subscribed to indications of it: wait until it has.")
    }
  }
  private func indication(of handle: AttributeHandle, to link: LinkID) -> String {
    "indicate attribute \(handle.text) to \(peerText(link))"
  }
}

/// The sequence of `BluetoothHost.events`.
public typealias ServerEventSequence = HostSequence<ServerEvent>
