import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

// The application's calls to the GATT server. Vol 3, Part G, §4.
extension HostCore {
  // MARK: Notifications and indications

  /// Notifies one client. `.full`: nothing was taken, and one `.readyToSend` follows when there is room. nil: the
  /// client has not subscribed, or may not receive it now (`Server.mayBeSent`).
  public mutating func notify(_ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    guard let index = upper.index(of: link) else { return .closed }
    guard upper.server.mayNotify(handle, to: upper.links[index].bearers.client) else { return nil }
    hci.credits.setWants(upper.links[index].handle, true)
    return upper.links[index].offer(notification: handle, value)
  }
  /// The same; if nothing waits before it and the controller has a buffer, the packet is written into `output` at once,
  /// and the driver sends it from there. This saves a copy. `output` as for `nextPacket`.
  public mutating func notify(
    _ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID, into output: inout OutputRawSpan
  ) -> SendAnswer? {
    guard let index = upper.index(of: link) else { return .closed }
    guard upper.server.mayNotify(handle, to: upper.links[index].bearers.client) else { return nil }
    guard takeBuffer(for: .notification, at: index) else {
      hci.credits.setWants(upper.links[index].handle, true)
      return upper.links[index].offer(notification: handle, value)
    }
    var answer = SendAnswer.closed
    writePacket(for: .notification, at: index, into: &output) { bearer, output in
      answer = bearer.write(notification: handle, value, into: &output)
    }
    return answer
  }
  /// Takes a buffer for a packet to be written now: no command waits, no other link, and nothing on this one.
  @inline(__always) mutating func takeBuffer(for purpose: LinkBearers.Purpose, at index: Int) -> Bool {
    guard phase == .running, !hci.hasCommand, upper.isQuiet(for: purpose, at: index) else { return false }
    return hci.credits.takeAtOnce(upper.links[index].handle)
  }
  @inline(__always) mutating func writePacket(
    for purpose: LinkBearers.Purpose, at index: Int, into output: inout OutputRawSpan,
    _ write: (inout Bearer, inout OutputRawSpan) -> Void
  ) {
    let handle = upper.links[index].handle, place = upper.links[index].bearers.pick(for: purpose)
    let channel = upper.links[index].bearers.channel(of: place)
    let hasMore = l2cap.writePacket(
      for: handle, on: channel, aclLength: hci.credits.aclLength, into: &output
    ) { output in
      upper.links[index].bearers.with(place) { write(&$0.bearer, &output) }
    }
    switch hasMore {
    case false?: break
    case true?: hci.credits.setWants(handle, true)
    case nil: hci.credits.giveBack(handle)
    }
  }
  /// Notifies one client of several values: in as few Multiple Handle Value Notifications as possible if the client
  /// supports them (Vol 3, Part G, §4.10.2), else in one notification each. Values that the client has not subscribed
  /// to are left out; a value too long for a tuple is sent alone. Returns the worst answer: after `.full`, because
  /// all exceed `HostConfiguration.queueCapacity`, some may have been taken.
  public mutating func notify(_ values: [(handle: AttributeHandle, value: [UInt8])], on link: LinkID) -> SendAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    let bearer = upper.links[index].bearers.client
    let wanted = values.filter { upper.server.mayBeSent($0.handle, to: bearer).contains(.notification) }
    let takesTuples = upper.server.features(of: bearer).contains(.multipleHandleValueNotifications)
    return withLink(at: index) { link in
      var worst = SendAnswer.queued, tuples: [UInt8] = [], first = 0
      let room = link.mtu(for: .notification) - 1
      for (position, value) in wanted.enumerated() {
        let tuple = value.handle.tuple(of: value.value)
        if takesTuples, tuples.count + tuple.count <= room {
          tuples += tuple
          continue
        }
        worst = link.send(tuples, wanted[first..<position], worst)
        (tuples, first) = (tuple, position)
        if !takesTuples || tuple.count > room {
          worst = link.send([], wanted[position...position], worst)
          (tuples, first) = ([], position + 1)
        }
      }
      return link.send(tuples, wanted[first...], worst)
    }
  }
  /// Indicates to one client, one value at a time: `.full` until `.indicationConfirmed`, or `.readyToSend` if Service
  /// Changed was outstanding. nil: the client has not subscribed, or may not receive it now.
  public mutating func indicate(_ value: Span<UInt8>, of handle: AttributeHandle, on link: LinkID) -> SendAnswer? {
    guard let index = upper.index(of: link) else { return .closed }
    guard upper.server.mayBeSent(handle, to: upper.links[index].bearers.client).contains(.indication) else {
      return nil
    }
    return withLink(at: index) { $0.indicate(handle, value) }
  }
  /// The links whose client has subscribed to `handle`.
  public func subscribers(of handle: AttributeHandle) -> [LinkID] { upper.subscribers(of: handle) }

  // MARK: Answers

  /// The application's answer to `.readRequested`: the value from the requested offset. Like the other answers it
  /// returns nil, or why no request awaits it, and it leaves after the notifications offered before it. `isKept`: more
  /// notifications are to precede it; it waits for `releaseAnswer`, at most until 25 s after the request.
  @discardableResult
  public mutating func answerRead(
    _ id: ServerRequestID, _ value: [UInt8], isKept: Bool = false, now: Instant
  ) -> UnwantedAnswer? {
    respond(to: id, isKept, now) { server, output in server.answerRead(id, with: value.span, into: &output) }
  }
  /// The application has agreed to `.writeRequested`.
  @discardableResult
  public mutating func answerWrite(_ id: ServerRequestID, isKept: Bool = false, now: Instant) -> UnwantedAnswer? {
    respond(to: id, isKept, now) { server, output in server.answerWrite(id, into: &output) }
  }
  /// The application refuses either request; `handle` names the one of several writes that it concerns.
  @discardableResult
  public mutating func refuse(
    _ id: ServerRequestID, _ error: ATTError, about handle: AttributeHandle? = nil, isKept: Bool = false, now: Instant
  ) -> UnwantedAnswer? {
    respond(to: id, isKept, now) { server, output in server.refuse(id, error, about: handle, into: &output) }
  }
  /// Releases the kept answer: all notifications that precede it have been offered.
  public mutating func releaseAnswer(on link: LinkID, now: Instant) {
    guard let index = upper.index(of: link), upper.releaseAnswers(at: index, now: now) else { return }
    collectServer()
    collect(at: index)
  }
  /// Has the server write a late response, of at most the waiting bearer's ATT_MTU, and hands it to that bearer.
  private mutating func respond(
    to id: ServerRequestID, _ isKept: Bool, _ now: Instant,
    _ write: (inout Server, inout OutputRawSpan) -> AnswerOutcome
  ) -> UnwantedAnswer? {
    guard let bearer = upper.server.bearer(waitingFor: id), let index = upper.index(of: bearer) else {
      return upper.server.reason(id)
    }
    var response = PacketBuffer(capacity: upper.mtu(of: bearer, at: index))
    var outcome = AnswerOutcome.unwanted(.unknown)
    _ = response.fill { output in
      outcome = write(&upper.server, &output)
      return true
    }
    if case .response(let ticket) = outcome {
      response.withBytes { upper.respond(to: ticket, with: $0, isKept: isKept, at: index, now: now) }
    }
    collectServer()
    collect(at: index)
    if case .unwanted(let reason) = outcome { return reason }
    return nil
  }

  // MARK: The database

  /// The current database, for `DatabaseBuilder(after:)`.
  public var database: Database { upper.server.database }
  /// Sets a value of the database. False if there is no such value, or it cannot have this length.
  public mutating func setValue(_ handle: AttributeHandle, to value: [UInt8]) -> Bool {
    upper.server.setValue(handle, to: value)
  }
  /// Disables or enables the contents of a service: every read or write of a value or descriptor fails with 0x0E.
  public mutating func setEnabled(_ isEnabled: Bool, service: AttributeHandle) {
    upper.server.setEnabled(isEnabled, service: service)
  }
  /// Adds services while clients are connected: `Server.insert`.
  public mutating func insert(_ services: DatabaseBuilder) throws(DatabaseError) {
    try upper.server.insert(services)
    databaseChanged()
  }
  /// Removes the service that is declared at `handle`: `Server.remove`. Its values that wait for clients are dropped,
  /// because another service may take its handles. Returns these, and the links on which an indication was dropped.
  @discardableResult
  public mutating func remove(
    service handle: AttributeHandle, andIncludes: Bool = false
  ) throws(DatabaseError) -> (range: HandleRange, unindicated: [LinkID]) {
    let range = try upper.server.remove(service: handle, andIncludes: andIncludes)
    var unindicated: [LinkID] = []
    for index in 0..<upper.links.count {
      let ready = withLink(at: index) { $0.removeValues(in: range, unindicated: &unindicated) }
      collect(at: index)
      if let ready { emit(.readyToSend(ready)) }
    }
    databaseChanged()
    return (range, unindicated)
  }
  private mutating func databaseChanged() {
    for index in 0..<upper.links.count {
      upper.indicateServiceChanged(at: index)
      note(at: index)
    }
    collectServer()
  }
  /// Records the user's authorization of `link`'s client: `Server.setAuthorized`.
  public mutating func setAuthorized(_ isAuthorized: Bool, of link: LinkID) {
    guard let index = upper.index(of: link) else { return }
    upper.server.setAuthorized(isAuthorized, of: upper.links[index].bearers.client)
  }
}

extension LinkBearer {
  /// True: an indication of the application was dropped with them. Service Changed stays.
  mutating func removeValues(in range: HandleRange) -> Bool {
    guard bearer.removeValues(andIndication: indicating != nil, where: range.contains) else { return false }
    indicating = nil
    return true
  }
}
