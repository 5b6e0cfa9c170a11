import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

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
  /// The channels of the link whose packet is written that the application has ended, and whose last SDU has left.
  var drained: [ChannelID] = []
  /// A request for a channel awaits what secures its link.
  var awaitsSecurity = false
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
  func id(of handle: ConnectionHandle) -> LinkID? { index(of: handle).map { links[$0].id } }
  func id(of bearer: BearerID) -> LinkID? { index(of: bearer).map { links[$0].id } }
  /// For loops that change more than these links.
  func indices(where predicate: (borrowing Link) -> Bool) -> [Int] {
    var indices: [Int] = []
    for index in 0..<links.count where predicate(links[index]) { indices.append(index) }
    return indices
  }
  func contains(where predicate: (borrowing Link) -> Bool) -> Bool {
    for index in 0..<links.count where predicate(links[index]) { return true }
    return false
  }
  /// The links whose client has subscribed to `handle`.
  func subscribers(of handle: AttributeHandle) -> [LinkID] {
    var subscribers: [LinkID] = []
    for index in 0..<links.count
    where !server.configuration(of: handle, on: links[index].bearers.client).isEmpty {
      subscribers.append(links[index].id)
    }
    return subscribers
  }
  /// Appends a new link.
  mutating func append(_ link: consuming Link) {
    places.append(link.handle.rawValue)
    _ = link.bearers.contains {
      own($0.bearer.id, link.handle)
      return false
    }
    links.append(link)
    deadlines.append()
  }
  private mutating func own(_ bearer: BearerID, _ link: ConnectionHandle) {
    while owners.count <= Int(bearer.rawValue) { owners.append(nil) }
    owners[Int(bearer.rawValue)] = link
  }
  /// Adds a bearer to a link, on a channel that has been opened.
  mutating func open(_ bearer: consuming Bearer, on channel: ChannelID, at index: Int) {
    let id = bearer.id
    own(id, links[index].handle)
    server.open(id, beside: links[index].bearers.client)
    links[index].client.open(id)
    links[index].bearers.append(bearer, on: channel)
    links[index].noteCommands()
  }
  /// Removes a bearer that has closed.
  mutating func remove(_ bearer: BearerID, at index: Int) {
    links[index].bearers.remove(bearer)
    server.close(bearer)
    owners[Int(bearer.rawValue)] = nil
  }
  mutating func remove(at index: Int) -> Link {
    let link = links.remove(at: index)
    deadlines.remove(at: index)
    places.remove(link.handle.rawValue)
    for number in owners.indices where owners[number] == link.handle { owners[number] = nil }
    return link
  }
  func contains(address: PeerAddress) -> Bool { contains { $0.address == address } }

  /// Nothing prevents a value of the application from being written at once.
  @inline(__always) func isQuiet(for purpose: LinkBearers.Purpose, at index: Int) -> Bool {
    links[index].isQuiet(for: purpose)
  }
  /// The ATT_MTU of a bearer of this link.
  func mtu(of bearer: BearerID, at index: Int) -> Int {
    links[index].bearers.place(of: bearer).map { links[index].bearers.read($0) { $0.bearer.mtu } } ?? Bearer.defaultMTU
  }
  mutating func respond(
    to ticket: RequestTicket, with response: Span<UInt8>, isKept: Bool, at index: Int, now: Instant
  ) {
    guard let place = links[index].bearers.place(of: ticket.bearer) else { return }
    links[index].bearers.with(place) {
      _ = $0.bearer.respond(to: ticket, with: response, isKept: isKept, now: now, server: &server)
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
  /// The channels of the bearers that have closed because the peer was too slow.
  mutating func expire(at index: Int, now: Instant) -> [ChannelID] { links[index].expire(now: now, server: &server) }
  /// The server's bearers of a link have closed.
  mutating func closeServer(at index: Int) { links[index].bearers.forEach { server.close($0.bearer.id) } }
  mutating func indicateServiceChanged(at index: Int) { links[index].indicateServiceChanged(from: &server) }
  mutating func tellSecurity(at index: Int, awaitsEncryption: Bool) {
    links[index].tellSecurity(to: &server, awaitsEncryption: awaitsEncryption)
  }
  /// GATT's server knows the client of a link as the one of this bond.
  mutating func bond(at index: Int, as id: BondID) { server.bond(links[index].restoreClient(), as: id) }

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
    if let pdu = links[index].notification(in: payload, on: channel) {
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
    if links[index].streams.index(of: channel) != nil {
      let sdu = batch.keep(payload)
      return batch.append(.channelReceived(links[index].id, channel, sdu))
    }
    mayChangeLink = true
    links[index].receive(payload, on: channel, now: now, server: &server, chance: &chance)
  }
  @inline(never) private mutating func isServiceChanged(_ handle: AttributeHandle, at index: Int) -> Bool {
    let isServiceChanged = links[index].client.isServiceChanged(handle)
    if !isServiceChanged { links[index].plainHandle = handle }
    return isServiceChanged
  }
  @usableFromInline @inline(__always) func waiting(of link: ConnectionHandle) -> ChannelSet {
    guard let index = index(of: link) else { return ChannelSet() }
    return links[index].waiting
  }
  @usableFromInline @inline(__always) func candidates(of link: ConnectionHandle) -> ChannelSet {
    guard let index = index(of: link) else { return ChannelSet() }
    return links[index].candidates
  }
  @usableFromInline @inline(__always) mutating func nextPayload(
    on channel: ChannelID, of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
  ) -> Bool {
    guard let index = index(of: link) else { return false }
    if let place = links[index].streams.index(of: channel) { return nextSDU(of: place, at: index, into: &output) }
    let start = output.byteCount, wrote = links[index].nextPayload(on: channel, into: &output, now: now)
    // An unanswered PDU sets no deadline, nor does one of the Security Manager, whose codes may look like one's opcode.
    // The client has an effect if an earlier request failed for lack of room.
    let isUnanswered = wrote && ATTOpcode(rawValue: output.octet(at: start)).isUnanswered
    mayChangeLink = !isUnanswered || links[index].hasEffect
    return wrote
  }
  /// A stream has an effect for the application only.
  @inline(never)
  private mutating func nextSDU(of place: Int, at index: Int, into output: inout OutputRawSpan) -> Bool {
    let (wrote, isReady, isDrained, channel) = links[index].streams.with(place) {
      ($0.queue.writeFirst(into: &output), $0.takeReady(), $0.isClosing && $0.queue.isEmpty, $0.id)
    }
    if isReady { batch.append(.channelReady(links[index].id, channel)) }
    if isDrained { drained.append(channel) }
    mayChangeLink = isDrained
    return wrote
  }
}
