// B11: SDUs of 2,000 octets on a credit-based channel through the whole HostCore, with K-frames of 247 or 1,024 octets:
// down, from the application's `send` to the controller's packets; up, from those to the effect with the SDU, whose
// credits go back to the peer.
//
// The controller has 8 buffers of 251 octets and returns all of them when it has no more. The peer returns the credits
// of four SDUs at once.
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneWire

enum Stream {
  static let count = 200, length = 2000, perCredit = 4
  static let psm = SPSM(rawValue: 0x80), channel = ChannelID(rawValue: 0x40)
  static func frames(_ mps: Int) -> Int { (length + 2 + mps - 1) / mps }
}

/// A host with a link whose peer has opened a channel: 0x0040 here, 0x0041 there.
struct StreamEnd: ~Copyable {
  private var end = HostEnd(Grid("B4.host.20.1"))
  private let mps: Int
  private var sum: UInt64 = 0
  /// The packets of one SDU from the peer, and the signal that gives credits.
  private var arriving: [[UInt8]] = [], credits: [UInt8]

  init(mps: Int) {
    self.mps = mps
    let frames = Stream.frames(mps), given = UInt16(frames * Stream.perCredit)
    credits = Self.packet([0x16, 1, 4, 0, 0x41, 0] + given.octets, on: 5)
    let sdu = UInt16(Stream.length).octets + [UInt8](repeating: 7, count: Stream.length)
    for start in stride(from: 0, to: sdu.count, by: mps) {
      let frame = Array(sdu[start..<min(start + mps, sdu.count)])
      let octets = UInt16(frame.count).octets + [0x40, 0] + frame
      for at in stride(from: 0, to: octets.count, by: Grid.aclLength) {
        let part = octets[at..<min(at + Grid.aclLength, octets.count)]
        arriving.append([2, 1, at == 0 ? 0x20 : 0x10] + UInt16(part.count).octets + part)
      }
    }
    let settings = ChannelSettings(mtu: UInt16(Stream.length), mps: UInt16(mps))
    guard end.core.listen(Stream.psm, ChannelService(settings)) else { fail("the PSM is taken") }
    // Vol 3, Part A, §4.22: SPSM, CID, MTU, MPS, credits.
    let request = [0x80, 0, 0x41, 0] + UInt16(Stream.length).octets + UInt16(mps).octets + (2 * given).octets
    receive(Self.packet([0x14, 1, 10, 0] + request, on: 5))
    end.emitted = Emitted()
  }
  private static func packet(_ payload: [UInt8], on channel: UInt8) -> [UInt8] {
    let frame = UInt16(payload.count).octets + [channel, 0] + payload
    return [2, 1, 0x20] + UInt16(frame.count).octets + frame
  }
  private mutating func receive(_ packet: [UInt8]) {
    end.core.receive(packet.span, now: .zero)
    end.takeEffects()
    end.drain()
    end.giveBack()
  }

  mutating func down(_ repetitions: Int, _ sdu: Span<UInt8>) -> UInt64 {
    let before = end.emitted.sum, link = end.links[0], credits = credits
    for _ in 0..<repetitions {
      for number in 1...Stream.count {
        guard end.core.send(sdu, on: Stream.channel, of: link) == .queued else { fail("not taken") }
        end.drain()
        while end.emitted.holdsAny(1) { end.giveBack() }
        guard number % Stream.perCredit == 0 else { continue }
        end.core.receive(credits.span, now: .zero)
        end.takeEffects()
        end.drain()
      }
    }
    return end.emitted.sum &- before
  }
  mutating func up(_ repetitions: Int) -> UInt64 {
    let before = sum, arriving = arriving
    for _ in 0..<repetitions {
      for _ in 0..<Stream.count {
        for packet in arriving { end.core.receive(packet.span, now: .zero) }
        while let effect = end.core.nextEffect() {
          guard case .channelReceived(let link, let channel, let octets) = effect else { continue }
          sum &+= end.core.withBytes(of: octets) { (sdu: Span<UInt8>) -> UInt64 in
            1 &+ UInt64(sdu.count) &+ UInt64(sdu[sdu.count &- 1])
          }
          end.core.taken(1, on: channel, of: link)
        }
        end.drain()
        if end.emitted.holdsAny(1) { end.giveBack() }
      }
    }
    return sum &- before
  }
}

/// `B11.down.247`, `B11.up.1024`.
func stream(_ id: String, _ repetitions: Int, _ batches: Int) {
  let parts = id.split(separator: ".")
  guard parts.count == 3, let mps = Int(parts[2]), [247, 1024].contains(mps) else { fail("no row \(id)") }
  var end = StreamEnd(mps: mps)
  let sdu = [UInt8](repeating: 7, count: Stream.length)
  // Once unmeasured, so that buffers have grown.
  _ = parts[1] == "up" ? end.up(1) : end.down(1, sdu.span)
  measure(id, items: Stream.count, repetitions: repetitions, batches: batches) {
    parts[1] == "up" ? end.up($0) : end.down($0, sdu.span)
  }
}

extension UInt16 {
  fileprivate var octets: [UInt8] { [UInt8(self & 0xFF), UInt8(self >> 8)] }
}
