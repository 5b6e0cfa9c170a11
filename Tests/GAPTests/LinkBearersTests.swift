import ATT
import BindruneWire
import GATT
import HCI
import L2CAP
import SMP
import TestSupport
import Testing

@testable import GAP

/// A link with a second bearer, made by the test: each is found by its channel and by its number.
@Suite struct LinkBearersTests {
  private final class Bearers {
    var upper: UpperLayers
    private var packet = PacketBuffer()
    private static let handle = ConnectionHandle(rawValue: 0x0040)

    init(_ database: Database) {
      upper = UpperLayers(server: Server(database: database), chance: HostChance(seed: 1))
      let peer = PeerAddress(DeviceAddress(0xC000_0000_0002), .random)
      let peers = Peers()
      var link = Link(
        id: LinkID(rawValue: 1), handle: Self.handle, role: .central, peer: peers.id(of: peer), address: peer,
        peerOnAir: peer, ownOnAir: peer, parameters: .balanced,
        bearers: LinkBearers(LinkBearer(Bearer(BearerID(rawValue: 1)), on: .attribute)),
        protection: LinkProtection(
          SecurityManager(
            role: .initiator,
            addresses: PairingAddresses(initiator: PairingAddress(peer), responder: PairingAddress(peer))),
          isBonded: false))
      link.bearers.others.append(LinkBearer(Bearer(BearerID(rawValue: 2)), on: ChannelID(rawValue: 0x0041)))
      for number in [UInt16(1), 2] { link.client.open(BearerID(rawValue: number)) }
      upper.append(link)
      upper.server.open(BearerID(rawValue: 1))
      upper.server.open(BearerID(rawValue: 2), beside: BearerID(rawValue: 1))
    }
    func receive(_ payload: String, on channel: ChannelID) {
      let payload = octets(payload)
      upper.receive(payload.span, on: channel, of: Self.handle, now: .zero)
    }
    /// The packets sent, each with its channel.
    func sent() -> [String] {
      var sent: [String] = [], channel: ChannelID?
      while true {
        let says = upper.hasPayload(of: Self.handle)
        let wrote = packet.fill { output in
          channel = upper.nextPayload(of: Self.handle, into: &output, now: .zero)
          return channel != nil
        }
        #expect(wrote == says)
        guard wrote, let channel else { return sent }
        sent.append("\(channel.rawValue): \(hex(packet.bytes))")
      }
    }
  }

  @Test func foundByChannelAndByNumber() throws {
    var builder = DatabaseBuilder()
    builder.service("180F", at: AttributeHandle(rawValue: 1)) {
      $0.characteristic("2A19", [.read, .notify], value: .dynamic)
    }
    let bearers = Bearers(try builder.build()), second = ChannelID(rawValue: 0x0041)
    // The client: one request on each.
    for (number, handle) in [(UInt16(1), UInt16(3)), (2, 5)] {
      bearers.upper.links[0].client.makeRequests(on: BearerID(rawValue: number), after: 0)
      bearers.upper.links[0].client.read(RequestID(rawValue: UInt64(number)), AttributeHandle(rawValue: handle))
    }
    #expect(bearers.sent() == ["4: 0A 03 00", "65: 0A 05 00"])
    bearers.receive("0B 55", on: second)
    bearers.receive("0B 33", on: ChannelID(rawValue: 0x0042))
    let first = bearers.upper.links[0].client.nextEffect(), next = bearers.upper.links[0].client.nextEffect()
    #expect(first == .completed(RequestID(rawValue: 2), .value(Octets(0, 1))) && next == nil)
    // The server: each answer leaves on the bearer of its request.
    bearers.receive("0A 03 00", on: .attribute)
    bearers.receive("0A 01 00", on: second)
    #expect(bearers.sent() == ["65: 0B 0F 18"])
    bearers.receive("0A 03 00", on: second)
    #expect(bearers.upper.index(of: BearerID(rawValue: 2)) == 0)
    #expect(bearers.upper.index(of: BearerID(rawValue: 3)) == nil)
    #expect(bearers.upper.freeBearer == BearerID(rawValue: 0))
    // Its deadline is the link's.
    let isSecondWaiting = bearers.upper.links[0].bearers.others[0].bearer.deadline != nil
    let hasDeadline = bearers.upper.links[0].deadline != nil
    #expect(isSecondWaiting && hasDeadline)
    let isTimeUp = bearers.upper.expire(at: 0, now: .zero + Bearer.transactionTimeout)
    #expect(isTimeUp)
    let link = bearers.upper.remove(at: 0)
    #expect(link.id == LinkID(rawValue: 1) && bearers.upper.index(of: BearerID(rawValue: 2)) == nil)
  }
}
