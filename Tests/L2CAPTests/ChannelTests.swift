import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

@Suite struct ChannelTests {
  static let first = ChannelID(rawValue: 0x0040), last = ChannelID(rawValue: 0x0077)

  /// The numbers of LE-U, Vol 3, Part A, §2.1: fixed channels, and the dynamic ones that we assign.
  @Test func sets() {
    let numbers = (0..<8).map { UInt16($0) } + (0x0040..<0x0078).map { UInt16($0) }
    #expect(numbers.count == 64)
    var all = ChannelSet()
    for number in numbers {
      let channel = ChannelID(rawValue: number)
      #expect(!all.contains(channel))
      all.insert(channel)
      #expect(all.contains(channel))
      var one = ChannelSet()
      one.insert(channel)
      #expect(one.intersection(all) == one && !one.isEmpty)
      var table = ChannelTable(carried: [])
      var turns = [table.next(among: one), table.next(among: one)]
      one.remove(channel)
      turns.append(table.next(among: one))
      #expect(turns == [channel, channel, nil] && one.isEmpty)
    }
    for number in [UInt16(0x0008), 0x003F, 0x0078, 0x007F, 0x0080, 0xFFFF] {
      var none = ChannelSet()
      none.insert(ChannelID(rawValue: number))
      #expect(none.isEmpty && !all.contains(ChannelID(rawValue: number)))
    }
  }

  /// Each channel with data is served once before another one is served twice.
  @Test func turns() {
    var table = ChannelTable(carried: []), ready = ChannelSet()
    let channels = [ChannelID.attribute, .leSignaling, .securityManager, Self.first, Self.last]
    for channel in channels { ready.insert(channel) }
    var turns: [ChannelID?] = []
    for _ in 0..<10 { turns.append(table.next(among: ready)) }
    #expect(turns == channels + channels)
    ready.remove(.leSignaling)
    ready.remove(Self.last)
    turns = []
    for _ in 0..<4 { turns.append(table.next(among: ready)) }
    // One that comes late waits for those behind the channel served last.
    ready.insert(.leSignaling)
    turns.append(table.next(among: ready))
    #expect(turns == [.attribute, .securityManager, Self.first, .attribute, .leSignaling])
  }

  /// A channel that always has data delays a frame of another one by at most one frame of its own.
  @Test func aSaturatedChannelDelaysOthersByOneFrame() {
    let station = Station(.peripheral, carrying: [L2CAPChannel(Self.first, longestPayload: 100)])
    station.upper.outgoingChannel = Self.first
    station.upper.outgoing[link] = (0..<100).map { [$0] }
    #expect(station.nextPacket()?.suffix(3) == [0x40, 0x00, 0])
    station.upper.others[0x0004] = [[0x0B, 0xAA]]
    station.receive(signal: "08 01 00 00")
    #expect(station.effects() == ["rejected 08"])
    let sent = (0..<4).compactMap { _ in station.nextPacket() }.map { hex($0[5...]) }
    #expect(
      sent == [
        "02 00 04 00 0B AA", "06 00 05 00 01 01 02 00 00 00", "01 00 40 00 01", "01 00 40 00 02",
      ])
    // The rest of a frame precedes every other one: Vol 3, Part A, §7.2.1.
    station.upper.outgoing[link] = (0..<3).map { [UInt8](repeating: $0, count: 30) }
    station.upper.others[0x0004] = [[0x0B, 0xBB], [0x0B, 0xCC]]
    let lengths = (0..<8).compactMap { _ in station.nextPacket(aclLength: 20) }.map { $0.count - 5 }
    #expect(lengths == [6, 20, 14, 6, 20, 14, 20, 14] && station.nextPacket() == nil)
  }

  /// The layer above says that it has a payload on a channel that the link does not have: it is not sent.
  @Test func onlyChannelsOfTheLinkSend() {
    let station = Station(.central)
    station.upper.others[0x0006] = [[0x05, 0x08]]
    #expect(station.nextPacket() == nil)
    station.upper.others[0x0004] = [[0x0A, 0x03, 0x00]]
    #expect(station.sent() == ["04: 0A 03 00"])
  }
}
