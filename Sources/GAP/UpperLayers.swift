import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI
import L2CAP
import SMP

/// One link and everything that exists for its lifetime.
struct Link: ~Copyable {
  enum Phase: BitwiseCopyable { case up, disconnecting }
  let id: LinkID
  let handle: ConnectionHandle
  let role: LinkRole
  let peer: PeerID
  /// The peer's identity address, if that is known; else the address with which the link came up.
  var address: PeerAddress
  /// The addresses with which the link came up: the peer's and ours, which may be that of an advertising set.
  let peerOnAir: PeerAddress
  var ownOnAir: PeerAddress
  var parameters: ConnectionParameters
  var phase = Phase.up
  /// The application's requests and values use the first one.
  var bearers: LinkBearers
  /// One client, for all bearers. `LinkProtection` secures the link for its requests.
  var client = Client(configuration: .repeating)
  var dataLength = LinkDataLength()
  var phys = LinkPHYs()
  var disconnectRequests: [RequestID] = []
  var requests = LinkRequests()
  var update: ParameterUpdate?
  /// As peripheral: the link layer's procedure for parameter requests is unavailable.
  var asksOverL2CAP = false
  var protection: LinkProtection
  /// The last notification's handle, unless it is Service Changed's; 0x0000 after any other event on the link. Asking
  /// the client about each notification would cost 130 instructions.
  var plainHandle = AttributeHandle()

  /// When `expire` must act.
  @inline(__always) var deadline: Instant? {
    var deadline = Instant?.earliest(bearers.first.bearer.deadline, update?.deadline)
    deadline = .earliest(deadline, protection.deadline)
    for index in bearers.others.indices { deadline = .earliest(deadline, bearers.others[index].bearer.deadline) }
    return deadline
  }
  /// True when a bearer has closed because the peer was too slow.
  mutating func expire(now: Instant, server: inout Server) -> Bool {
    var isTimeUp = false
    bearers.forEach {
      guard $0.bearer.closure == nil else { return }
      $0.bearer.expire(now: now, server: &server, client: &client)
      if $0.bearer.closure != nil { isTimeUp = true }
    }
    return isTimeUp
  }
  mutating func close() { bearers.forEach { $0.bearer.close(client: &client) } }
  /// The client's next requests use the first bearer, after the commands that it has accepted. `isHeld`: after further
  /// commands, and they wait for `release`.
  mutating func makeRequests(isHeld: Bool) {
    client.makeRequests(on: bearers.first.bearer.id, after: isHeld ? nil : bearers.first.bearer.commandsTaken)
  }
  /// The held request's bearer has accepted all commands that precede it.
  mutating func release(_ id: RequestID) {
    bearers.forEach { client.place(id, on: $0.bearer.id, after: $0.bearer.commandsTaken) }
  }
  /// See `AttributeClient.holdsCommands`.
  @inline(__always) var holdsCommands: Bool { client.holdsCommands(on: bearers.first.bearer.id) }
  mutating func offer(command handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    bearers.first.bearer.offer(command: handle, value, client: client)
  }
  /// A signature proves on its own who has written: it does not await encryption.
  mutating func offer(signed handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    let awaitsEncryption = client.awaitsEncryption
    client.awaitsEncryption = false
    defer { client.awaitsEncryption = awaitsEncryption }
    return bearers.first.bearer.offer(signed: handle, value, client: client)
  }
  /// Requests may have ended: see `Bearer.releaseCommands`.
  mutating func releaseCommands() { bearers.forEach { $0.bearer.releaseCommands(client: client) } }
  /// The client or a bearer has an effect.
  @inline(__always) var hasEffect: Bool {
    client.hasEffect || protection.manager.hasEffect || bearers.contains { $0.bearer.hasEffect }
  }

  /// Notifies `values`: as `tuples`, if there are two or more of them, else each alone.
  mutating func send(
    _ tuples: [UInt8], _ values: ArraySlice<(handle: AttributeHandle, value: [UInt8])>, _ worst: SendAnswer
  ) -> SendAnswer {
    if values.count > 1, !tuples.isEmpty { return worst.worse(bearers.first.bearer.offer(multiple: tuples.span)) }
    return values.reduce(worst) { $0.worse(bearers.first.bearer.offer(notification: $1.handle, $1.value.span)) }
  }
  mutating func indicate(_ handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    let answer = bearers.first.bearer.indicate(handle, value)
    if answer.isAccepted { bearers.first.indicating = handle }
    bearers.first.isIndicationRefused = answer == .full
    return answer
  }
  /// Sends Service Changed as soon as a bearer has no other indication outstanding. Vol 3, Part G, §2.5.2.1.
  mutating func indicateServiceChanged(from server: inout Server) {
    bearers.visit {
      guard $0.bearer.canIndicate, let change = server.takeServiceChanged(on: $0.bearer.id) else { return false }
      _ = $0.bearer.indicate(change.handle, change.value.span)
      return true
    }
  }
}

extension ClientConfiguration {
  fileprivate static var repeating: ClientConfiguration {
    var configuration = ClientConfiguration()
    configuration.repeatsWhenSecured = true
    return configuration
  }
}
extension SendAnswer {
  /// The worse of two answers: cut is worse than queued, refused is worse than both.
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
  /// In order of arrival.
  var links = UniqueArray<Link>(minimumCapacity: 8)
  /// Indexes of `links`, by connection handle.
  private var places = PlaceTable()
  /// The link of each bearer, by the bearer's number; nil for an unused number.
  private var owners: [ConnectionHandle?] = []
  /// The deadline of each link, in the order of `links`.
  var deadlines = LinkDeadlines()
  var server: Server
  var chance: HostChance
  /// The host's effects: received values are written directly into it.
  @usableFromInline var batch = HostBatch()
  /// The packet that is received or written may change what `HostCore.note` records of its link, or cause an effect of
  /// a layer above L2CAP. A value usually does neither.
  var mayChangeLink = true
  /// A link has a `LinkProtection.delivery`.
  var awaitsDelivery = false

  init(server: consuming Server, chance: HostChance) {
    self.server = server
    self.chance = chance
  }

  // Inlined, because a borrowed value as large as this is copied for a call.

  @inline(__always) func index(of handle: ConnectionHandle) -> Int? { places[handle.rawValue] }
  /// The index of a bearer's link.
  func index(of bearer: BearerID) -> Int? {
    guard bearer.rawValue < owners.count, let owner = owners[Int(bearer.rawValue)] else { return nil }
    return index(of: owner)
  }
  /// The least unused bearer number.
  var freeBearer: BearerID { BearerID(rawValue: UInt16(owners.firstIndex(of: nil) ?? owners.count)) }
  @inline(__always) func index(of id: LinkID) -> Int? {
    // Their numbers ascend.
    var low = 0, high = links.count
    while low < high {
      let middle = (low &+ high) &>> 1
      if links[middle].id.rawValue < id.rawValue { low = middle &+ 1 } else { high = middle }
    }
    return low < links.count && links[low].id == id ? low : nil
  }
  /// Appends a new link.
  mutating func append(_ link: consuming Link) {
    places.append(link.handle.rawValue)
    own(link.bearers.first.bearer.id, link.handle)
    for index in link.bearers.others.indices { own(link.bearers.others[index].bearer.id, link.handle) }
    links.append(link)
    deadlines.append()
  }
  private mutating func own(_ bearer: BearerID, _ link: ConnectionHandle) {
    while owners.count <= Int(bearer.rawValue) { owners.append(nil) }
    owners[Int(bearer.rawValue)] = link
  }
  mutating func remove(at index: Int) -> Link {
    let link = links.remove(at: index)
    deadlines.remove(at: index)
    places.remove(link.handle.rawValue)
    for number in owners.indices where owners[number] == link.handle { owners[number] = nil }
    return link
  }
  func contains(address: PeerAddress) -> Bool {
    for index in 0..<links.count where links[index].address == address { return true }
    return false
  }

  /// Nothing prevents a value of the application from being written at once.
  @inline(__always) func isQuiet(at index: Int) -> Bool {
    links[index].bearers.first.bearer.isQuiet(client: links[index].client)
  }
  /// The ATT_MTU of a bearer of this link.
  func mtu(of bearer: BearerID, at index: Int) -> Int {
    for other in links[index].bearers.others.indices where links[index].bearers.others[other].bearer.id == bearer {
      return links[index].bearers.others[other].bearer.mtu
    }
    return links[index].bearers.first.bearer.mtu
  }
  mutating func respond(
    to ticket: RequestTicket, with response: Span<UInt8>, isKept: Bool, at index: Int, now: Instant
  ) {
    links[index].bearers.visit {
      guard $0.bearer.id == ticket.bearer else { return false }
      return $0.bearer.respond(to: ticket, with: response, isKept: isKept, now: now, server: &server)
    }
  }
  /// False when no answer is kept.
  mutating func releaseAnswers(at index: Int, now: Instant) -> Bool {
    var isReleased = false
    links[index].bearers.forEach {
      if $0.bearer.releaseAnswer(now: now, server: &server) { isReleased = true }
    }
    return isReleased
  }
  /// True when a bearer has closed because the peer was too slow.
  mutating func expire(at index: Int, now: Instant) -> Bool { links[index].expire(now: now, server: &server) }
  /// The server's bearers of a link have closed.
  mutating func closeServer(at index: Int) { links[index].bearers.forEach { server.close($0.bearer.id) } }
  mutating func indicateServiceChanged(at index: Int) { links[index].indicateServiceChanged(from: &server) }

  /// Copies octets of a client's effect, which its next effect invalidates.
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
    if channel == .attribute, let pdu = links[index].bearers.first.bearer.notification(in: payload) {
      mayChangeLink = false
      let handle = pdu.attributeHandle
      if handle != links[index].plainHandle, links[index].client.awaitsEncryption {
        mayChangeLink = true
        return batch.append(.violation(links[index].id, .gatt(.notEncrypted(handle))))
      }
      let value = batch.keep(payload.extracting(pdu.attributeValue.range))
      return batch.append(
        value: value, of: handle, isIndication: false,
        isServiceChanged: handle != links[index].plainHandle && isServiceChanged(handle, at: index), on: links[index].id
      )
    }
    links[index].receive(payload, on: channel, now: now, server: &server, chance: &chance)
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
    // An unanswered PDU sets no deadline, nor does one of the Security Manager, whose codes may look like one's opcode. The client has an effect if an earlier request failed for lack of room.
    let isUnanswered = channel != nil && ATTOpcode(rawValue: output.octet(at: start)).isUnanswered
    mayChangeLink = !isUnanswered || links[index].hasEffect
    return channel
  }
  @usableFromInline @inline(__always) func hasPayload(of link: ConnectionHandle) -> Bool {
    guard let index = index(of: link) else { return false }
    return links[index].hasPayload
  }
}
