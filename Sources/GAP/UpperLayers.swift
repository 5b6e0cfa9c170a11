import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI
import L2CAP

/// One link and everything that lives and dies with it.
struct Link: ~Copyable {
  enum Phase: BitwiseCopyable { case up, disconnecting }
  let id: LinkID
  let handle: ConnectionHandle
  let role: LinkRole
  let peer: PeerID
  /// The peer's identity address, where that is known by now; else the one that it came up with.
  var address: PeerAddress
  /// The addresses that it came up with: the peer's and ours.
  let peerOnAir: PeerAddress, ownOnAir: PeerAddress
  var parameters: ConnectionParameters
  var phase = Phase.up
  var bearer: Bearer
  var client: Client
  var dataLength = LinkDataLength()
  var phys = LinkPHYs()
  var disconnectRequests: [RequestID] = []
  var requests = LinkRequests()
  var update: ParameterUpdate?
  /// As peripheral: the link layer's way of asking for other parameters is closed.
  var asksOverL2CAP = false
  /// What an outstanding indication is about.
  var indicating: AttributeHandle?
  /// The application has been refused an indication, and is told when another is possible.
  var isIndicationRefused = false
  /// The last notification's handle, unless it is Service Changed's; 0x0000 once anything else has happened on the link. To ask
  /// the client for each notification costs 130 instructions.
  var plainHandle = AttributeHandle()

  /// True when the bearer has closed because the peer was late.
  mutating func expire(now: Instant, server: inout Server) -> Bool {
    let wasOpen = bearer.closure == nil
    bearer.expire(now: now, server: &server, client: &client)
    return wasOpen && bearer.closure != nil
  }
  mutating func close() { bearer.close(client: &client) }
  mutating func offer(command handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    bearer.offer(command: handle, value, client: client)
  }
  /// Requests may have ended: see `Bearer.releaseCommands`.
  @inline(__always) mutating func releaseCommands() { bearer.releaseCommands(client: client) }

  /// Notifies `values`: as `tuples`, if they are two or more and have been put together, else each by itself.
  mutating func send(
    _ tuples: [UInt8], _ values: ArraySlice<(handle: AttributeHandle, value: [UInt8])>, _ worst: SendAnswer
  ) -> SendAnswer {
    if values.count > 1, !tuples.isEmpty { return worst.worse(bearer.offer(multiple: tuples.span)) }
    return values.reduce(worst) { $0.worse(bearer.offer(notification: $1.handle, $1.value.span)) }
  }
  /// Service Changed goes out as soon as no other indication is under way. Vol 3, Part G, §2.5.2.1.
  mutating func indicateServiceChanged(from server: inout Server) {
    guard bearer.canIndicate, let change = server.takeServiceChanged(on: bearer.id) else { return }
    _ = bearer.indicate(change.handle, change.value.span)
  }
}

extension SendAnswer {
  /// The worse of two answers: cut is worse than queued, not taken is worse than both.
  fileprivate func worse(_ other: SendAnswer) -> SendAnswer {
    switch (self, other) {
    case (.closed, _), (_, .closed): .closed
    case (.full, _), (_, .full): .full
    case (.cut, _): self
    default: other
    }
  }
}
extension AttributeHandle {
  /// A tuple of a Multiple Handle Value Notification. Vol 3, Part F, §3.4.7.4.
  func tuple(of value: [UInt8]) -> [UInt8] {
    let count = value.count
    return [UInt8(rawValue & 0xFF), UInt8(rawValue >> 8), UInt8(count & 0xFF), UInt8(truncatingIfNeeded: count >> 8)]
      + value
  }
}

/// The layers above L2CAP: ATT's bearers, GATT's clients and the one server.
@usableFromInline struct UpperLayers: ~Copyable, L2CAPUpper {
  /// In the order in which they came.
  var links = UniqueArray<Link>(minimumCapacity: 8)
  /// Of `links`, by connection handle and by bearer.
  private var places = PlaceTable(), bearerPlaces = PlaceTable()
  /// When each link waits no longer, in the order of `links`.
  var deadlines = LinkDeadlines()
  var server: Server
  /// What the host has to say: a value that is received goes straight into it.
  @usableFromInline var batch = HostBatch()
  /// The packet that is received or written may change what `HostCore.note` notes of its link, or make a layer above L2CAP say
  /// something. A value mostly does neither.
  var mayChangeLink = true

  init(server: consuming Server) { self.server = server }

  // Inlined, as what is borrowed for a call and is as large as this is copied.

  @inline(__always) func index(of handle: ConnectionHandle) -> Int? { places[handle.rawValue] }
  /// The place of a bearer's link.
  func index(of bearer: BearerID) -> Int? { bearerPlaces[bearer.rawValue] }
  /// The least number that no bearer has.
  var freeBearer: BearerID { BearerID(rawValue: bearerPlaces.freeNumber) }
  @inline(__always) func index(of id: LinkID) -> Int? {
    // Their numbers ascend.
    var low = 0, high = links.count
    while low < high {
      let middle = (low &+ high) &>> 1
      if links[middle].id.rawValue < id.rawValue { low = middle &+ 1 } else { high = middle }
    }
    return low < links.count && links[low].id == id ? low : nil
  }
  /// The last link has come.
  mutating func append(_ link: consuming Link) {
    places.append(link.handle.rawValue)
    bearerPlaces.append(link.bearer.id.rawValue)
    links.append(link)
    deadlines.append()
  }
  mutating func remove(at index: Int) -> Link {
    let link = links.remove(at: index)
    deadlines.remove(at: index)
    places.remove(link.handle.rawValue)
    bearerPlaces.remove(link.bearer.id.rawValue)
    return link
  }
  func contains(address: PeerAddress) -> Bool {
    for index in 0..<links.count where links[index].address == address { return true }
    return false
  }

  @inline(__always) func isQuiet(at index: Int) -> Bool { links[index].bearer.isQuiet(client: links[index].client) }
  mutating func respond(
    to ticket: RequestTicket, with response: Span<UInt8>, isKept: Bool, at index: Int, now: Instant
  ) {
    links[index].bearer.respond(to: ticket, with: response, isKept: isKept, now: now, server: &server)
  }
  /// False when no answer is kept.
  mutating func releaseAnswer(at index: Int, now: Instant) -> Bool {
    links[index].bearer.releaseAnswer(now: now, server: &server)
  }
  /// True when the bearer has closed because the peer was late.
  mutating func expire(at index: Int, now: Instant) -> Bool { links[index].expire(now: now, server: &server) }
  mutating func indicateServiceChanged(at index: Int) { links[index].indicateServiceChanged(from: &server) }

  /// Keeps octets of a client's effect, which are gone with its next one.
  mutating func keep(_ octets: Octets, ofClientAt index: Int) -> Octets {
    withBatch { layers, batch in layers.links[index].client.withBytes(octets) { batch.keep($0) } }
  }
  /// The same for the server.
  mutating func keepFromServer(_ octets: Octets) -> Octets {
    withBatch { layers, batch in layers.server.withBytes(of: octets) { batch.keep($0) } }
  }
  @inline(__always)
  private mutating func withBatch(_ body: (borrowing UpperLayers, inout HostBatch) -> Octets) -> Octets {
    var own = HostBatch()
    swap(&own, &batch)
    defer { swap(&own, &batch) }
    return body(self, &own)
  }

  @usableFromInline @inline(__always)
  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant) {
    guard let index = index(of: link) else { return }
    if channel == .attribute, let pdu = links[index].bearer.notification(in: payload) {
      mayChangeLink = false
      let value = batch.keep(payload.extracting(pdu.attributeValue.range)), handle = pdu.attributeHandle
      return batch.append(
        value: value, of: handle, isIndication: false,
        isServiceChanged: handle != links[index].plainHandle && isServiceChanged(handle, at: index), on: links[index].id
      )
    }
    links[index].receive(payload, on: channel, now: now, server: &server)
  }
  @inline(never) private mutating func isServiceChanged(_ handle: AttributeHandle, at index: Int) -> Bool {
    let isServiceChanged = links[index].client.isServiceChanged(handle)
    if !isServiceChanged { links[index].plainHandle = handle }
    return isServiceChanged
  }
  @usableFromInline @inline(__always) mutating func nextPayload(
    of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
  ) -> ChannelID? {
    guard let index = index(of: link) else { return nil }
    let start = output.byteCount, channel = links[index].nextPayload(into: &output, now: now)
    // No deadline follows from a PDU that is not answered. The client has an effect where a request before it failed for room.
    let isUnanswered = channel == .attribute && ATTOpcode(rawValue: output.octet(at: start)).isUnanswered
    mayChangeLink = !isUnanswered || links[index].bearer.hasEffect || links[index].client.hasEffect
    return channel
  }
  @usableFromInline @inline(__always) func hasPayload(of link: ConnectionHandle) -> Bool {
    guard let index = index(of: link) else { return false }
    return links[index].hasPayload
  }
}
