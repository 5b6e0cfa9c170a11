import BasicContainers
import BindruneWire

/// # ChannelTable
/// **Overview**: the channels of one link, and whose turn it is to send.
///
/// **Function**: channels with data take turns, one frame each, as links do for the controller's buffers
/// (`DataCredits`): the search begins after the channel served last. So a channel that always has data delays a frame
/// of another one by at most one frame of its own.
@usableFromInline struct ChannelTable: ~Copyable {
  /// The layer above's channels come first, then L2CAP's own.
  @usableFromInline let channels: UniqueArray<L2CAPChannel>
  /// The channels of the layer above on which a payload may be sent now: all of them, since none needs credit.
  @usableFromInline var mayCarry = ChannelSet()
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
  var longestPayload: Int {
    var longest = 0
    for index in channels.indices { longest = max(longest, channels[index].lengths.upperBound) }
    return longest
  }

  /// The channel among `ready` that has the turn; nil if there is none. The turn passes to the one behind it.
  @inlinable @inline(__always) mutating func next(among ready: ChannelSet) -> ChannelID? {
    if ready.isEmpty { return nil }
    let later = ready.bits & UInt64.max &<< turn
    let bit = (later == 0 ? ready.bits : later).trailingZeroBitCount
    turn = UInt64(truncatingIfNeeded: bit &+ 1) & 63
    return ChannelSet.channel(bit)
  }
}
