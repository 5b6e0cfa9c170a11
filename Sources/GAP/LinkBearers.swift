import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// A bearer of a link.
struct LinkBearer: ~Copyable {
  /// The channel that carries it.
  let channel: ChannelID
  var bearer: Bearer
  /// The handle of an outstanding indication.
  var indicating: AttributeHandle?
  /// The bearer refused the application's last indication: `.readyToSend` follows when it can take another.
  var isIndicationRefused = false

  init(_ bearer: consuming Bearer, on channel: ChannelID) {
    self.channel = channel
    self.bearer = bearer
  }

  /// Indicates a value of the application.
  mutating func indicate(_ handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    let answer = bearer.indicate(handle, value)
    if answer.isAccepted { indicating = handle }
    isIndicationRefused = answer == .full
    return answer
  }
}

/// The bearers of a link, one at least. The first is stored inline, so that a link with one bearer needs no list:
/// Decision 0041. This file alone knows where they are stored: others name a bearer by its number, or by what they want
/// to send (`pick`).
struct LinkBearers: ~Copyable {
  /// What a bearer is wanted for.
  enum Purpose: BitwiseCopyable { case request, command, notification, indication }
  /// A bearer of this link, while none closes.
  enum Place: BitwiseCopyable {
    /// The one on channel 0x0004, which exists as long as the link.
    case first
    case other(Int)
  }

  fileprivate var first: LinkBearer
  /// In the order in which they were opened.
  fileprivate var others = UniqueArray<LinkBearer>()

  init(_ first: consuming Bearer) { self.first = LinkBearer(first, on: .attribute) }
  /// One more bearer, on a channel that has been opened on the link.
  mutating func append(_ bearer: consuming Bearer, on channel: ChannelID) {
    others.append(LinkBearer(bearer, on: channel))
  }
  /// Removes one of the others, which has closed.
  mutating func remove(_ id: BearerID) {
    if case .other(let index)? = place(of: id) { _ = others.remove(at: index) }
  }
  var enhancedCount: Int { others.count }
  var enhancedChannels: [ChannelID] {
    var channels: [ChannelID] = []
    for index in others.indices { channels.append(others[index].channel) }
    return channels
  }

  // MARK: Which bearer

  /// The bearer for something of the application.
  ///
  /// Requests, commands and notifications leave in the order of the calls (Decision 0032), so one bearer takes them
  /// all. Each bearer can have an indication outstanding: Vol 3, Part F, §3.3.2.
  @inline(__always) func pick(for purpose: Purpose) -> Place {
    switch purpose {
    case .request, .command, .notification: .first
    case .indication: others.isEmpty || first.bearer.canIndicate ? .first : otherForIndication
    }
  }
  private var otherForIndication: Place {
    for index in others.indices where others[index].bearer.canIndicate { return .other(index) }
    return .first
  }
  /// The bearer with this number.
  func place(of id: BearerID) -> Place? {
    if first.bearer.id == id { return .first }
    for index in others.indices where others[index].bearer.id == id { return .other(index) }
    return nil
  }
  /// The enhanced bearer on this channel.
  func place(of channel: ChannelID) -> Place? {
    for index in others.indices where others[index].channel == channel { return .other(index) }
    return nil
  }
  /// Names the link's client to GATT's server: any of its bearers does (Decision 0035).
  @inline(__always) var client: BearerID { first.bearer.id }

  /// Calls `body` with the bearer. Not a subscript: one that yields either of two storages is never inlined, and
  /// allocates.
  @inline(__always) func read<Result>(_ place: Place, _ body: (borrowing LinkBearer) -> Result) -> Result {
    switch place {
    case .first: body(first)
    case .other(let index): body(others[index])
    }
  }
  @inline(__always) mutating func with<Result>(_ place: Place, _ body: (inout LinkBearer) -> Result) -> Result {
    switch place {
    case .first: body(&first)
    case .other(let index): body(&others[index])
    }
  }
  @inline(__always) func read<Result>(for purpose: Purpose, _ body: (borrowing LinkBearer) -> Result) -> Result {
    read(pick(for: purpose), body)
  }
  @inline(__always)
  mutating func with<Result>(for purpose: Purpose, _ body: (inout LinkBearer) -> Result) -> Result {
    with(pick(for: purpose), body)
  }
  @inline(__always) func channel(of place: Place) -> ChannelID {
    switch place {
    case .first: .attribute
    case .other(let index): others[index].channel
    }
  }

  // MARK: All of them

  /// Calls `body` for each bearer until one returns true, and then returns true.
  @discardableResult @inline(__always) mutating func visit(_ body: (inout LinkBearer) -> Bool) -> Bool {
    if body(&first) { return true }
    for index in others.indices where body(&others[index]) { return true }
    return false
  }
  @inline(__always) func contains(_ predicate: (borrowing LinkBearer) -> Bool) -> Bool {
    if predicate(first) { return true }
    for index in others.indices where predicate(others[index]) { return true }
    return false
  }
  @inline(__always) mutating func forEach(_ body: (inout LinkBearer) -> Void) {
    body(&first)
    for index in others.indices { body(&others[index]) }
  }
  /// The least deadline.
  @inline(__always) var deadline: Instant? {
    var deadline = first.bearer.deadline
    for index in others.indices { deadline = .earliest(deadline, others[index].bearer.deadline) }
    return deadline
  }
}

// The path of a packet reaches the first bearer directly.
extension Link {
  /// Decodes `payload` if it is a notification of the first bearer that nothing but the client concerns.
  @inline(__always)
  func notification(in payload: Span<UInt8>, on channel: ChannelID) -> HandleValueNotification? {
    channel == .attribute ? bearers.first.bearer.notification(in: payload) : nil
  }
  @inline(__always) mutating func receive(
    pdu payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server
  ) {
    if channel == .attribute {
      bearers.first.bearer.receive(payload, now: now, server: &server, client: &client)
    } else {
      receiveOnOthers(payload, on: channel, now: now, server: &server)
    }
  }
  @inline(__always)
  mutating func nextPDU(on channel: ChannelID, into output: inout OutputRawSpan, now: Instant) -> Bool {
    if channel == .attribute {
      defer { if !bearers.others.isEmpty { noteCommands() } }
      return bearers.first.bearer.nextPDU(into: &output, now: now, client: &client)
    }
    return nextPDUOfOthers(on: channel, into: &output, now: now)
  }
  /// The client's requests on other bearers follow the commands of the first: `Client.commandsSent`.
  @inline(__always) mutating func noteCommands() { client.commandsSent = bearers.first.bearer.commandsSent }
  /// The channels of the bearers with a PDU to send.
  @inline(__always) var waitingBearers: ChannelSet {
    var waiting = ChannelSet()
    if bearers.first.bearer.hasPDU(client: client) { waiting.insert(.attribute) }
    addOtherBearers(to: &waiting)
    return waiting
  }
  /// Inlined, because a link that is borrowed for a call is copied.
  @inline(__always) func addOtherBearers(to waiting: inout ChannelSet) {
    for index in bearers.others.indices where bearers.others[index].bearer.hasPDU(client: client) {
      waiting.insert(bearers.others[index].channel)
    }
  }

  @inline(never) private mutating func receiveOnOthers(
    _ payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server
  ) {
    guard let place = bearers.place(of: channel) else { return }
    bearers.with(place) { $0.bearer.receive(payload, now: now, server: &server, client: &client) }
  }
  @inline(never) private mutating func nextPDUOfOthers(
    on channel: ChannelID, into output: inout OutputRawSpan, now: Instant
  ) -> Bool {
    guard let place = bearers.place(of: channel) else { return false }
    return bearers.with(place) { $0.bearer.nextPDU(into: &output, now: now, client: &client) }
  }
}
