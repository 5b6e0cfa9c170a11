import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

/// Two layers back to back that open, use, reconfigure and close channels at random.
@Suite struct ChannelFuzzTests {
  /// Whatever they do in whatever order, no SDU is lost or comes twice, nobody violates a rule, and each channel opens or
  /// does not, and ends, exactly once.
  @Test func nothingIsLost() {
    let seed = Fuzz.seed, count = max(Fuzz.sequences / 40, 1)
    print("fuzz \(#fileID):\(#line): \(count) sequences, seed \(seed)")
    for number in 0..<UInt64(count) { ChannelPair(seed: seed &+ number, isHostile: false).run() }
  }
  /// The same with frames and commands of a peer that breaks rules: no trap, and each channel still ends once.
  @Test func hostilePeers() {
    let seed = Fuzz.seed, count = max(Fuzz.sequences / 40, 1)
    print("fuzz \(#fileID):\(#line): \(count) sequences, seed \(seed)")
    for number in 0..<UInt64(count) { ChannelPair(seed: seed &+ number, isHostile: true).run() }
  }
}

/// One of the two, and what its application knows.
private final class Side {
  struct Channel {
    var facts: OpenChannel
    /// Begins each SDU, with a number that ascends.
    var serial: Int
    var sent = 0
  }
  let station: Station
  var opening: Set<ChannelID> = []
  var open: [ChannelID: Channel] = [:]
  /// Those of the open ones that it has closed; their end is still to come.
  var closing: Set<ChannelID> = []
  var requests: [(identifier: UInt8, ChannelRequest)] = []
  var untaken: [ChannelID: Int] = [:]
  /// The number that the next SDU must have, by its channel's serial.
  var next: [Int: Int] = [:]
  var violations: [String] = []
  init(_ role: LinkRole) { station = Station(role) }
}

private final class ChannelPair {
  let seed: UInt64, isHostile: Bool
  var chance: SplitMix64
  let ends = [Side(.central), Side(.peripheral)]
  var serials = 0
  /// SDUs of each serial.
  var sent: [Int: Int] = [:]

  init(seed: UInt64, isHostile: Bool) {
    self.seed = seed
    self.isHostile = isHostile
    chance = SplitMix64(seed: seed)
  }

  func run() {
    for _ in 0..<80 {
      let end = ends.randomElement(using: &chance)!
      act(end)
      collect(ends[0])
      collect(ends[1])
    }
    settle()
    if !isHostile {
      for end in ends {
        #expect(end.violations == [], "seed \(seed)")
        #expect(end.opening.isEmpty && end.requests.isEmpty, "seed \(seed)")
      }
      // Every SDU of a channel that is open has arrived.
      for (end, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        for channel in end.open.values {
          #expect(other.next[channel.serial, default: 0] == channel.sent, "seed \(seed)")
        }
      }
    }
    for end in ends {
      end.station.layer.close(link)
      collect(end)
      #expect(end.open.isEmpty && end.opening.isEmpty, "seed \(seed)")
      #expect(end.station.layer.keptBuffers <= 4)
    }
  }
  /// Every request is answered, every SDU is taken, until nothing happens any more.
  private func settle() {
    for _ in 0..<10_000 {
      var isQuiet = true
      for end in ends {
        while let request = end.requests.popLast() { answer(request, end, accepts: true) }
        for (channel, count) in end.untaken where count > 0 { end.station.layer.taken(count, on: channel, of: link) }
        end.untaken = [:]
      }
      for (end, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        if deliver(from: end, to: other) { isQuiet = false }
        collect(end)
        collect(other)
      }
      if isQuiet, ends.allSatisfy({ $0.requests.isEmpty && $0.untaken.isEmpty }) { return }
    }
    Issue.record("seed \(seed): no end")
  }
  private func deliver(from end: Side, to other: Side) -> Bool {
    guard let packet = end.station.nextPacket(aclLength: .random(in: 20...251, using: &chance)) else { return false }
    do { try other.station.deliver(packet) } catch { Issue.record("seed \(seed): \(error)") }
    return true
  }

  private func act(_ end: Side) {
    let other = end === ends[0] ? ends[1] : ends[0], station = end.station
    switch Int.random(in: 0..<(isHostile ? 24 : 20), using: &chance) {
    case 0, 1:
      let isEnhanced = Bool.random(using: &chance), count = isEnhanced ? Int.random(in: 1...5, using: &chance) : 1
      do throws(ChannelRefusal) {
        let list = try station.layer.openChannels(
          link, SPSM(rawValue: 0x80), settings(), count: count, isEnhanced: isEnhanced, now: station.now)
        for place in 0..<list.count {
          let isNew = end.opening.insert(list[place]).inserted && end.open[list[place]] == nil
          #expect(isNew, "seed \(seed): \(list[place].text) is in use")
        }
      } catch { #expect(error == .noFreeChannel) }
    case 2, 3: if let request = end.requests.popLast() { answer(request, end, accepts: Bool.random(using: &chance)) }
    case 4..<9: send(end)
    case 9:
      if let channel = end.open.keys.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance) {
        let isClosed = station.close(channel.rawValue), isNew = end.closing.insert(channel).inserted
        #expect(isClosed == isNew, "seed \(seed)")
      }
    case 10:
      if let channel = end.opening.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance),
        Bool.random(using: &chance)
      {
        let isClosed = station.close(channel.rawValue)
        #expect(isClosed)
      }
    case 11: reconfigure(end)
    case 12:
      for (channel, count) in end.untaken {
        station.layer.taken(count, on: channel, of: link)
        end.untaken[channel] = nil
      }
    case 13 where isHostile:
      // Time passes: what nobody answers ends.
      station.now += .seconds(31)
      station.layer.expire(link, now: station.now)
    case 20...: inject(end)
    default:
      for _ in 0..<Int.random(in: 1...12, using: &chance) {
        if Bool.random(using: &chance) { _ = deliver(from: end, to: other) } else { _ = deliver(from: other, to: end) }
      }
    }
  }
  private func settings() -> ChannelSettings {
    let mtu = UInt16.random(in: 64...600, using: &chance)
    return ChannelSettings(
      mtu: mtu, mps: [64, 100, 247, 600].randomElement(using: &chance)!,
      longestSDU: Bool.random(using: &chance) ? mtu : 1_500, takesAtOnce: Bool.random(using: &chance))
  }
  private func answer(_ request: (identifier: UInt8, ChannelRequest), _ end: Side, accepts: Bool) {
    let decision: ChannelDecision =
      accepts
      ? .accepted(settings(), atMost: .random(in: 0...5, using: &chance)) : .refused(.insufficientEncryption)
    let list = end.station.layer.answerChannels(link, identifier: request.identifier, decision)
    #expect(list != nil, "seed \(seed)")
  }
  private func send(_ end: Side) {
    let channels = end.open.keys.sorted { $0.rawValue < $1.rawValue }.filter { !end.closing.contains($0) }
    guard let channel = channels.randomElement(using: &chance), var state = end.open[channel] else { return }
    // In hostile runs a channel may have the least MTU.
    let count = Int.random(in: 0...Int(state.facts.longestSDU), using: &chance)
    guard count >= 4 else { return }
    let unit = littleEndian(state.serial) + littleEndian(state.sent)
    state.sent += 1
    end.open[channel] = state
    end.station.upper.others[channel.rawValue, default: []].append(unit + Array(repeating: 7, count: count - 4))
  }
  private func reconfigure(_ end: Side) {
    var list = ChannelList()
    for (channel, state) in end.open.sorted(by: { $0.key.rawValue < $1.key.rawValue })
    where state.facts.isEnhanced && list.count < 5 && Bool.random(using: &chance) {
      list.append(channel)
    }
    do throws(ChannelRefusal) {
      try end.station.layer.reconfigureChannels(
        link, list, mtu: .random(in: 64...1_000, using: &chance), mps: .random(in: 64...700, using: &chance))
    } catch { #expect(error != .noFreeChannel) }
  }

  private func collect(_ end: Side) {
    while let effect = end.station.layer.nextEffect() {
      switch effect {
      case .channelsRequested(_, let identifier, let request): end.requests.append((identifier, request))
      case .channelOpened(_, let channel, let facts):
        let wasOpening = end.opening.remove(channel) != nil
        #expect(wasOpening != facts.isIncoming && end.open[channel] == nil, "seed \(seed): \(channel.text) opens twice")
        serials += 1
        end.open[channel] = Side.Channel(facts: facts, serial: serials)
      case .channelNotOpened(_, let channel, _):
        let wasOpening = end.opening.remove(channel) != nil
        #expect(wasOpening, "seed \(seed): \(channel.text) was not opening")
      case .channelClosed(_, let channel, _):
        let wasOpen = end.open.removeValue(forKey: channel) != nil
        #expect(wasOpen, "seed \(seed): \(channel.text) was not open")
        end.closing.remove(channel)
        end.station.upper.others[channel.rawValue] = nil
        end.untaken[channel] = nil
      case .channelReconfigured(_, let channel, let facts):
        #expect(end.open[channel] != nil, "seed \(seed)")
        end.open[channel]?.facts = facts
      case .reconfigurationEnded: break
      case .violation(_, let violation): end.violations.append("\(violation)")
      case .parameterUpdateRequested(_, let identifier, _): _ = end.station.respond(identifier, accepted: false)
      case .parameterUpdateEnded: break
      }
    }
    let upper = end.station.upper
    for (channel, unit) in zip(upper.channels, upper.received) {
      if !isHostile {
        let serial = Int(unit[0]) | Int(unit[1]) << 8, number = Int(unit[2]) | Int(unit[3]) << 8
        #expect(end.next[serial, default: 0] == number, "seed \(seed): SDU \(number) of \(serial)")
        end.next[serial] = number + 1
      }
      if end.open[channel] != nil { end.untaken[channel, default: 0] += 1 }
    }
    end.station.upper.received = []
    end.station.upper.channels = []
    end.station.upper.links = []
  }

  // MARK: Hostile

  private func inject(_ end: Side) {
    func number() -> [UInt8] { littleEndian(.random(in: 0x3E...0x48, using: &chance)) }
    func identifier() -> UInt8 { .random(in: 0...12, using: &chance) }
    func signal(_ code: UInt8, _ fields: [UInt8]) -> [UInt8] {
      frame(5, [code, identifier()] + littleEndian(fields.count) + fields)
    }
    var packet: [UInt8] =
      switch Int.random(in: 0..<14, using: &chance) {
      case 0: signal(0x16, number() + [0xFF, 0xFF])
      case 1: signal(0x16, number() + [0, 0])
      case 2: frame(.random(in: 0x40...0x48, using: &chance), [0xFF, 0xFF, 1, 2])
      case 3: frame(.random(in: 0x40...0x48, using: &chance), [2, 0, 1, 2, 3])
      case 4:
        frame(
          .random(in: 0x40...0x48, using: &chance), Array(repeating: 0, count: .random(in: 0...700, using: &chance)))
      case 5:
        signal(0x14, [0x80, 0] + number() + littleEndian(.random(in: 20...30, using: &chance)) + [0x17, 0, 1, 0])
      case 6: signal(0x17, octets("80 00 40 00 40 00 01 00") + number() + number() + number())
      case 7: signal(0x15, number() + octets("40 00 40 00 FF 00 00 00"))
      case 8: signal(0x15, number() + octets("40 00 16 00 FF 00 00 00"))
      case 9: signal(0x18, octets("40 00 40 00 10 00 00 00") + number() + number())
      case 10: signal(0x19, littleEndian(.random(in: 60...1_000, using: &chance)) + [64, 0] + number() + number())
      case 11: signal(0x06, number() + number())
      case 12: signal(0x07, number() + number())
      default: signal(.random(in: [0x01, 0x1A], using: &chance), [0, 0])
      }
    if Int.random(in: 0..<4, using: &chance) == 0, let place = packet.indices.randomElement(using: &chance) {
      packet[place] ^= 1 << UInt8.random(in: 0...7, using: &chance)
    }
    end.station.receive(packet)
  }
}

extension UInt8 {
  fileprivate static func random(in choices: [UInt8], using chance: inout SplitMix64) -> UInt8 {
    choices.randomElement(using: &chance) ?? 0
  }
}
