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
  private var finishing = ChannelSet()
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
    if ready.isEmpty { return nil }
    let later = ready.bits & UInt64.max &<< turn
    let bit = (later == 0 ? ready.bits : later).trailingZeroBitCount
    turn = UInt64(truncatingIfNeeded: bit &+ 1) & 63
    return ChannelSet.channel(bit)
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
    note(credit[index].id, mayBegin: credit[index].mayBegin, mayContinue: credit[index].mayContinue)
    owing.set(credit[index].id, credit[index].owesCredits)
    finishing.set(credit[index].id, credit[index].deadline != nil)
    hasFrame.set(.leSignaling, !owing.isEmpty)
    return result
  }
  private mutating func note(_ id: ChannelID, mayBegin: Bool, mayContinue: Bool) {
    mayCarry.set(id, mayBegin)
    hasFrame.set(id, mayContinue)
  }
  mutating func receive(
    _ frame: Recombined.Frame, in packet: Span<UInt8>, at index: Int, _ buffers: inout SDUBuffers
  ) -> SDUJoiner.Outcome {
    change(at: index) { $0.receive(packet.extracting(frame.payload.range), length: frame.length, &buffers) }
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
