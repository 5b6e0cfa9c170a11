import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI
import L2CAP

// The application's side of ATT and GATT, and what bearers, clients and the server say.
extension HostCore {
  // MARK: Client

  /// Starts a procedure of `link`'s GATT client; `body` hands `id` to it. Ends with `.completed(id, …)` in any case.
  public mutating func withClient(of link: LinkID, id: RequestID, _ body: (inout Client) -> Void) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    body(&upper.links[index].client)
    collect(at: index)
  }
  /// What the client has discovered so far; nil when the link is gone.
  public func remoteDatabase(of link: LinkID) -> RemoteDatabase? {
    guard let index = upper.index(of: link) else { return nil }
    return upper.links[index].client.remote
  }
  /// Makes `database` what `link`'s client knows: see `Client.restore`.
  public mutating func restore(_ database: RemoteDatabase, on link: LinkID) {
    guard let index = upper.index(of: link) else { return }
    upper.links[index].client.restore(database)
  }
  /// True for the handle by which `link`'s server says that its services have changed: the client sees to that.
  public func isServiceChanged(_ valueHandle: AttributeHandle, on link: LinkID) -> Bool {
    guard let index = upper.index(of: link) else { return false }
    return upper.links[index].client.isServiceChanged(valueHandle)
  }
  /// The ATT_MTU in force; nil when the link is gone.
  public func mtu(of link: LinkID) -> Int? {
    guard let index = upper.index(of: link) else { return nil }
    return upper.links[index].bearer.mtu
  }
  /// Write Without Response: bounded, in order with the link's other commands. Vol 3, Part G, §4.9.1.
  /// `value` has at most MTU − 3 octets; more would arrive cut.
  public mutating func write(command value: Span<UInt8>, to handle: AttributeHandle, on link: LinkID) -> SendAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    return upper.links[index].bearer.offer(command: handle, value)
  }

  // MARK: Server

  /// Notifies one client. `.full`: nothing was taken, and one `.readyToSend` follows when there is room.
  /// nil: the client has not subscribed.
  public mutating func notify(_ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    guard let index = upper.index(of: link) else { return .closed }
    guard upper.server.configuration(of: handle, on: upper.links[index].bearer.id).contains(.notification) else {
      return nil
    }
    return upper.links[index].bearer.offer(notification: handle, value)
  }
  /// Indicates to one client, one value at a time: `.full` until `.indicationConfirmed`. nil: it has not subscribed.
  public mutating func indicate(_ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    guard let index = upper.index(of: link) else { return .closed }
    guard upper.server.configuration(of: handle, on: upper.links[index].bearer.id).contains(.indication) else {
      return nil
    }
    let answer = upper.links[index].bearer.indicate(handle, value)
    if answer.isAccepted { upper.links[index].indicating = handle }
    return answer
  }
  /// The links whose client has subscribed to `handle`.
  public func subscribers(of handle: AttributeHandle) -> [LinkID] {
    var result: [LinkID] = []
    for index in 0..<upper.links.count
    where !upper.server.configuration(of: handle, on: upper.links[index].bearer.id).isEmpty {
      result.append(upper.links[index].id)
    }
    return result
  }
  /// Sets a value of the database. False: there is no such value, or it may not have that length.
  public mutating func setValue(_ handle: AttributeHandle, to value: [UInt8]) -> Bool {
    upper.server.setValue(handle, to: value)
  }

  /// The application's answer to `.readRequested`: the value from the offset that was asked for.
  public mutating func answerRead(_ id: ServerRequestID, _ value: [UInt8]) {
    respond(to: id) { server, output in server.answerRead(id, with: value.span, into: &output) }
  }
  /// The application's yes to `.writeRequested`.
  public mutating func answerWrite(_ id: ServerRequestID) {
    respond(to: id) { server, output in server.answerWrite(id, into: &output) }
  }
  /// The application's no to either.
  public mutating func refuse(_ id: ServerRequestID, _ error: ATTError) {
    respond(to: id) { server, output in server.refuse(id, error, into: &output) }
  }
  /// Lets the server write a late response, of at most the waiting bearer's ATT_MTU, and hands it to that bearer.
  /// Nothing happens when nobody waits for it.
  private mutating func respond(
    to id: ServerRequestID, _ write: (inout Server, inout OutputRawSpan) -> BearerID?
  ) {
    guard let bearer = upper.server.bearer(waitingFor: id),
      let index = upper.index(of: ConnectionHandle(rawValue: bearer.rawValue))
    else { return }
    var response = PacketBuffer(capacity: upper.links[index].bearer.mtu)
    if response.fill({ write(&upper.server, &$0) != nil }) {
      response.withBytes { _ = upper.links[index].bearer.respond($0) }
    }
    collectServer()
    collect(at: index)
  }

  // MARK: Collecting

  mutating func collect(_ handle: ConnectionHandle, _ now: Instant) {
    while let effect = l2cap.nextEffect() { self.handle(effect, now) }
    if let index = upper.index(of: handle) { collect(at: index) }
    collectServer()
  }

  /// Takes what a link's client and bearer have to say, with the octets that belong to it.
  mutating func collect(at index: Int) {
    let link = upper.links[index].id
    emptyArena()
    while let effect = upper.links[index].client.nextEffect() {
      switch effect {
      case .value(let handle, let octets, let kind):
        let value = keepFromClient(octets, at: index)
        effects.append(.value(link, handle, value, isIndication: kind == .indication))
      case .completed(let id, .value(let octets)):
        effects.append(.completed(id, .gatt(.value(keepFromClient(octets, at: index)))))
      case .completed(let id, .values(let octets)):
        effects.append(.completed(id, .gatt(.values(keepFromClient(octets, at: index)))))
      case .completed(let id, let result): effects.append(.completed(id, .gatt(result)))
      case .valuesLost(let count): effects.append(.violation(link, .valuesLost(count)))
      case .ignored(let violation): effects.append(.violation(link, .gatt(violation)))
      case .servicesChanged(let range): effects.append(.servicesChanged(link, range))
      case .rediscovered(let range, let error): effects.append(.rediscovered(link, range, error))
      }
    }
    while let effect = upper.links[index].bearer.nextEffect() {
      switch effect {
      case .mtuChanged(let mtu): effects.append(.mtuChanged(link, mtu: mtu))
      case .ready: effects.append(.readyToSend(link))
      case .indicationConfirmed:
        if let handle = upper.links[index].indicating.take() { effects.append(.indicationConfirmed(link, handle)) }
      case .indicationFailed: upper.links[index].indicating = nil
      case .answeredForApplication(_, let handle):
        upper.server.cancelRequest(on: upper.links[index].bearer.id)
        effects.append(.violation(link, .applicationTooSlow(handle)))
      case .closed(let closure):
        if closure == .timedOut { effects.append(.violation(link, .transactionTimedOut)) }
      case .violation(let violation): effects.append(.violation(link, .att(violation)))
      }
    }
  }
  private mutating func keepFromClient(_ octets: Octets, at index: Int) -> Octets {
    upper.copy(octets, ofClientAt: index, to: &arena)
  }

  mutating func collectServer() {
    emptyArena()
    while let effect = upper.server.nextEffect() {
      switch effect {
      case .subscriptionChanged(let bearer, let handle, let configuration):
        if let link = link(of: bearer) { effects.append(.subscriptionChanged(link, handle, configuration)) }
      case .written(let bearer, let handle, let offset, let octets):
        let value = keepFromServer(octets)
        if let link = link(of: bearer) { effects.append(.written(link, handle, value, offset: Int(offset))) }
      case .readRequested(let id, let bearer, let handle, let offset):
        if let link = link(of: bearer) { effects.append(.readRequested(id, link, handle, offset: Int(offset))) }
      case .writeRequested(let id, let bearer, let handle, let offset, let octets):
        let value = keepFromServer(octets)
        if let link = link(of: bearer) { effects.append(.writeRequested(id, link, handle, value, offset: Int(offset))) }
      case .requestCancelled(let id, let bearer):
        effects.append(.requestCancelled(id, link(of: bearer)))
      }
    }
  }
  private mutating func keepFromServer(_ octets: Octets) -> Octets { upper.copyFromServer(octets, to: &arena) }
  private func link(of bearer: BearerID) -> LinkID? {
    guard let index = upper.index(of: ConnectionHandle(rawValue: bearer.rawValue)) else { return nil }
    return upper.links[index].id
  }
}
