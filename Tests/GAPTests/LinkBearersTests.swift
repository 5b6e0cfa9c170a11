import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import TestSupport
import Testing

@testable import BindruneGAP

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
        bearers: LinkBearers(Bearer(BearerID(rawValue: 1))),
        protection: LinkProtection(
          SecurityManager(
            role: .initiator,
            addresses: PairingAddresses(initiator: PairingAddress(peer), responder: PairingAddress(peer))),
          isBonded: false))
      link.bearers.append(Bearer(BearerID(rawValue: 2), kind: .enhanced(mtu: 100)), on: ChannelID(rawValue: 0x0041))
      for number in [UInt16(1), 2] { link.client.open(BearerID(rawValue: number)) }
      upper.append(link)
      upper.server.open(BearerID(rawValue: 1))
      upper.server.open(BearerID(rawValue: 2), beside: BearerID(rawValue: 1))
    }
    func receive(_ payload: String, on channel: ChannelID) {
      let payload = octets(payload)
      upper.receive(payload.span, on: channel, of: Self.handle, now: .zero)
    }
    /// The payloads sent, each with its channel.
    func sent() -> [String] {
      var sent: [String] = []
      for channel in [ChannelID.attribute, ChannelID(rawValue: 0x0041)] {
        while true {
          let says = upper.waiting(of: Self.handle).contains(channel)
          let wrote = packet.fill { upper.nextPayload(on: channel, of: Self.handle, into: &$0, now: .zero) }
          #expect(wrote == says)
          guard wrote else { break }
          sent.append("\(channel.rawValue): \(hex(packet.bytes))")
        }
      }
      return sent
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
    let found = bearers.upper.links[0].bearers.place(of: BearerID(rawValue: 2)), place = try #require(found)
    let isSecondWaiting = bearers.upper.links[0].bearers.read(place) { $0.bearer.deadline != nil }
    let hasDeadline = bearers.upper.links[0].deadline != nil
    #expect(isSecondWaiting && hasDeadline)
    let closed = bearers.upper.expire(at: 0, now: .zero + Bearer.transactionTimeout)
    #expect(closed.contains(.attribute))
    let link = bearers.upper.remove(at: 0)
    #expect(link.id == LinkID(rawValue: 1) && bearers.upper.index(of: BearerID(rawValue: 2)) == nil)
  }

  /// Requests, commands and notifications leave on one bearer; each bearer can have an indication outstanding, Vol 3,
  /// Part F, §3.3.2.
  @Test func pickedByPurpose() throws {
    let bearers = Bearers(try DatabaseBuilder().build()), second = ChannelID(rawValue: 0x0041)
    let handle = AttributeHandle(rawValue: 3)
    func indicate(_ octet: UInt8) -> SendAnswer {
      let value = [octet]
      return bearers.upper.links[0].indicate(handle, value.span)
    }
    #expect([indicate(1), indicate(2), indicate(3)] == [.queued, .queued, .full])
    #expect(bearers.sent() == ["4: 1D 03 00 01", "65: 1D 03 00 02"])
    bearers.receive("1E", on: second)
    #expect([indicate(4), indicate(5)] == [.queued, .full])
    #expect(bearers.sent() == ["65: 1D 03 00 04"])
    bearers.receive("1E", on: .attribute)
    #expect(indicate(6) == .queued && bearers.sent() == ["4: 1D 03 00 06"])

    let value: [UInt8] = [7]
    #expect(bearers.upper.links[0].offer(notification: handle, value.span) == .queued)
    #expect(bearers.upper.links[0].offer(command: handle, value.span) == .queued)
    bearers.upper.links[0].withClient(isHeld: false) { $0.read(RequestID(rawValue: 1), handle) }
    let sent = bearers.sent()
    #expect(sent == ["4: 1B 03 00 07", "4: 52 03 00 07", "4: 0A 03 00"])
  }
  /// The bearer's kind says where its ATT_MTU comes from; only the fixed channel's has an exchange: Vol 3, Part G, §4.2.
  @Test func mtuByKind() throws {
    let bearers = Bearers(try DatabaseBuilder().build())
    let mtus = [UInt16(1), 2].map { bearers.upper.mtu(of: BearerID(rawValue: $0), at: 0) }
    #expect(mtus == [23, 100])
    bearers.upper.links[0].exchangeMTU()
    #expect(bearers.sent() == ["4: 02 05 02"])
  }
}
