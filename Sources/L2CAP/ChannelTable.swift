import BasicContainers
import BindruneWire

/// # ChannelTable
/// **Overview**: the channels of one link, and whose turn it is to send.
///
/// **Function**: channels with data take turns, one frame each, as links do for the controller's buffers
/// (`DataCredits`): the search begins after the channel served last. So a channel that always has data delays a frame
/// of another one by at most one frame of its own.
///
/// The credit-based channels open and close on the link: `change` keeps the sets of those that may send.
@usableFromInline struct ChannelTable: ~Copyable {
  /// The layer above's channels come first, then L2CAP's own.
  @usableFromInline let channels: UniqueArray<L2CAPChannel>
  /// In the order in which they began.
  @usableFromInline private(set) var credit = UniqueArray<CreditChannel>()
  /// The channels on which a payload of the layer above may be sent now: the fixed ones always, a credit-based one while
  /// it has credit and no SDU is begun.
  @usableFromInline private(set) var mayCarry = ChannelSet()
  /// The channels with a frame to send that L2CAP has: those with the rest of an SDU and credit, and the signaling
  /// channel while credits are owed.
  @usableFromInline private(set) var hasFrame = ChannelSet()
  /// The channels that owe the peer credits, and whose turn it is to give them.
  private var owing = ChannelSet()
  private var owingTurn: UInt64 = 0
  @usableFromInline private(set) var finishing = ChannelSet()
  /// The bit of `ChannelSet` at which the next search begins.
  @usableFromInline var turn: UInt64 = 0

  /// `carried`: by the layer above, which may carry the signaling channel itself.
  init(carried: [L2CAPChannel]) {
    let isSignalingCarried = carried.contains { $0.id == .leSignaling }
    channels = UniqueArray(copying: carried + (isSignalingCarried ? [] : [.leSignaling]))
    for channel in carried { mayCarry.insert(channel.id) }
  }

  /// A linear search: the list is short, and the most frequent channel comes first.
  @inlinable @inline(__always) subscript(_ id: ChannelID) -> L2CAPChannel? {
    for index in channels.indices where channels[index].id == id { return channels[index] }
    return nil
  }
  /// The longest payload of the channels that exist as long as the link.
  var longestPayload: Int {
    var longest = 0
    for index in channels.indices { longest = max(longest, channels[index].lengths.upperBound) }
    return longest
  }

  /// The channel among `ready` that has the turn; nil if there is none. The turn passes to the one behind it.
  @inlinable @inline(__always) mutating func next(among ready: ChannelSet) -> ChannelID? {
    ChannelTable.next(among: ready, &turn)
  }
  @inlinable @inline(__always) static func next(among ready: ChannelSet, _ turn: inout UInt64) -> ChannelID? {
    guard let bit = first(among: ready, turn) else { return nil }
    turn = UInt64(truncatingIfNeeded: bit &+ 1) & 63
    return ChannelSet.channel(bit)
  }
  @inlinable @inline(__always) static func first(among ready: ChannelSet, _ turn: UInt64) -> Int? {
    if ready.isEmpty { return nil }
    let later = ready.bits & UInt64.max &<< turn
    return (later == 0 ? ready.bits : later).trailingZeroBitCount
  }
  /// The channel among `ready` that has the turn, if it is one of `continuing`; the turn passes on only then.
  @inline(__always) mutating func next(among ready: ChannelSet, ifContinuing continuing: ChannelSet) -> ChannelID? {
    guard let bit = ChannelTable.first(among: ready, turn), continuing.bits & 1 &<< UInt64(bit) != 0 else { return nil }
    return next(among: ready)
  }

  // MARK: Credit-based channels

  @inlinable @inline(__always) func index(of id: ChannelID) -> Int? {
    if credit.isEmpty { return nil }
    for index in credit.indices where credit[index].id == id { return index }
    return nil
  }
  /// The channel that has this number at the peer.
  func index(ofPeer cid: ChannelID) -> Int? {
    for index in credit.indices where credit[index].peerCID == cid { return index }
    return nil
  }
  /// The least numbers that no channel has; nil if there are not as many.
  func freeNumbers(_ count: Int) -> ChannelList? {
    var free = ChannelList()
    for number in ChannelID.dynamic where free.count < count {
      let id = ChannelID(rawValue: number)
      if index(of: id) == nil, self[id] == nil { free.append(id) }
    }
    return free.count == count ? free : nil
  }
  /// The channel that began last.
  var last: ChannelID? { credit.isEmpty ? nil : credit[credit.count - 1].id }
  mutating func append(_ channel: consuming CreditChannel) { credit.append(channel) }
  /// Changes a channel, and notes whether it may send afterwards.
  mutating func change<Result>(at index: Int, _ body: (inout CreditChannel) -> Result) -> Result {
    let result = body(&credit[index])
    noteFrames(at: index)
    finishing.set(credit[index].id, credit[index].deadline != nil)
    noteOwed(at: index)
    return result
  }
  /// What a K-frame that we send changes.
  @inline(__always) private mutating func noteFrames(at index: Int) {
    mayCarry.set(credit[index].id, credit[index].mayBegin)
    hasFrame.set(credit[index].id, credit[index].mayContinue)
  }
  /// What a K-frame of the peer changes.
  @inline(__always) private mutating func noteOwed(at index: Int) {
    owing.set(credit[index].id, credit[index].owesCredits)
    hasFrame.set(.leSignaling, !owing.isEmpty)
  }
  /// Credits wait to be given to the peer.
  @inlinable @inline(__always) var owesCredits: Bool { hasFrame.contains(.leSignaling) }
  /// Those of `hasFrame` whose next frame changes nothing but the channel itself: the layer above has not closed it.
  @inlinable @inline(__always) var continuing: ChannelSet { ChannelSet(bits: hasFrame.bits & ~finishing.bits) }
  /// Appends the next K-frame of a channel that has begun an SDU. Returns the channel's number at the peer.
  @inline(__always) mutating func writeNext(
    of id: ChannelID, into output: inout OutputRawSpan, _ buffers: inout SDUBuffers
  ) -> ChannelID? {
    guard let index = index(of: id), let peer = credit[index].peerCID else { return nil }
    credit[index].writeNext(into: &output, &buffers)
    if !credit[index].mayContinue { noteFrames(at: index) }
    return peer
  }
  @inline(__always) mutating func receive(
    _ frame: Recombined.Frame, in packet: Span<UInt8>, at index: Int, _ buffers: inout SDUBuffers
  ) -> SDUJoiner.Outcome {
    let payload = packet.extracting(frame.payload.range)
    let outcome = credit[index].receive(payload, length: frame.length, &buffers)
    if credit[index].owesCredits { noteOwed(at: index) }
    return outcome
  }
  /// The layer above has been handed an SDU of this channel.
  mutating func endSDU(at index: Int, _ buffers: inout SDUBuffers) {
    credit[index].endSDU(&buffers)
    if credit[index].owesCredits { noteOwed(at: index) }
  }
  /// The layer above has taken SDUs of this channel.
  mutating func taken(_ count: Int, at index: Int) {
    credit[index].taken(count)
    if credit[index].owesCredits { noteOwed(at: index) }
  }
  mutating func receive(
    _ frame: Recombined.Frame, in recombiner: borrowing Recombiner, at index: Int, _ buffers: inout SDUBuffers
  ) -> SDUJoiner.Outcome { receive(frame, in: recombiner.bytes.span, at: index, &buffers) }
  /// Removes a channel whose number is free.
  mutating func remove(at index: Int) { _ = credit.remove(at: index) }

  /// The credits that are owed on the channel whose turn it is; nil if none are.
  mutating func takeOwedCredits() -> (ChannelID, credits: UInt16)? {
    guard let id = ChannelTable.next(among: owing, &owingTurn), let index = index(of: id) else { return nil }
    return (id, change(at: index) { $0.creditsToGive() })
  }
  /// When the rest of an SDU must have been sent.
  var deadline: Instant? {
    if finishing.isEmpty { return nil }
    var least: Instant?
    for index in credit.indices { least = .earliest(least, credit[index].deadline) }
    return least
  }
  /// A channel whose rest of an SDU has not been sent in time.
  func overdue(now: Instant) -> ChannelID? {
    if finishing.isEmpty { return nil }
    for index in credit.indices {
      if let deadline = credit[index].deadline, deadline <= now { return credit[index].id }
    }
    return nil
  }
}
