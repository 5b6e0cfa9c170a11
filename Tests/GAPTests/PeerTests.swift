import BindruneWire
import GATT
import HCI
import TestSupport
import Testing

@testable import GAP

/// A peer is not its address: `PeerID`, and links that learn their peer's identity.
@Suite struct PeerTests {
  private static let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
  /// The Specification's sample of a resolvable private address: Vol 3, Part H, App. D.7.
  private static let resolvable = PeerAddress(DeviceAddress(0x7081_940D_FBAA), .random)
  private static let identity = Bench.otherPeer
  private static let link = LinkID(rawValue: 1), peer = PeerID(resolvable)

  /// A link with a peer of which only a private address is known.
  private static func linked(database: Database = Database()) -> Bench {
    var bench = Bench.started(database)
    bench.perform { core, now in core.connect(to: resolvable, id: RequestID(rawValue: 1), now: now) }
    bench.answerAll()
    bench.receive(connectionComplete(0x40, .central, resolvable))
    bench.answerAll()
    same(bench.takeTexts(), ["link 1 up: \(resolvable), Central", "1: link 1"])
    return bench
  }
  private static func identify(_ bench: inout Bench) {
    bench.perform { core, now in
      do throws(IdentityError) { try core.identify(link, as: identity, irk, now: now) } catch { Issue.record(error) }
    }
  }

  @Test func aPeerIDIsMadeOfTheFirstAddress() {
    let random = PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .random)
    let open = PeerAddress(DeviceAddress(0xF0F1_F2F3_F4F5), .public)
    #expect(
      PeerID(random).firstAddress == random && PeerID(open).firstAddress == open && PeerID(random) != PeerID(open))
    // An address that the controller has resolved is the same device: Vol 4, Part E, §7.7.65.2.
    #expect(PeerID(PeerAddress(random.address, .randomIdentity)) == PeerID(random))
  }

  /// The link's peer and its `PeerID` stay; the address changes.
  @Test func aLinkLearnsWhoItsPeerIs() {
    var bench = Self.linked()
    Self.identify(&bench)
    same(bench.takeTexts(), ["peerIdentified(link 1, \(Self.identity))"])
    #expect(bench.core.address(of: Self.peer) == Self.identity)
    #expect(bench.core.peer(at: Self.identity) == Self.peer && bench.core.peer(at: Self.resolvable) == Self.peer)
    var chance = SplitMix64(seed: 7)
    let another = PeerAddress(.resolvablePrivate(Self.irk, using: &chance), .random)
    #expect(another != Self.resolvable && bench.core.peer(at: another) == Self.peer)
    // There is a link with it, by either address.
    for address in [Self.identity, Self.resolvable, another] {
      bench.perform { core, now in core.connect(to: address, id: RequestID(rawValue: 2), now: now) }
      same(bench.takeTexts(), ["2: busy"])
    }
    bench.perform { core, now in core.connect(to: Self.peer, id: RequestID(rawValue: 2), now: now) }
    same(bench.takeTexts(), ["2: busy"])

    // Discovered and connected with another address, it is the same peer.
    bench.receive(disconnectionComplete(0x40))
    bench.perform { core, now in core.startScan(ScanParameters(isActive: false), now: now) }
    bench.answerAll()
    bench.receive(report(3, another, [2, 1, 6]))
    guard case .discovered(_, let discovery)? = bench.effects.last else {
      Issue.record("nothing discovered")
      return
    }
    #expect(discovery.peer == Self.peer && discovery.address == Self.identity && discovery.addressOnAir == another)
    _ = bench.takeAll()
    bench.perform { core, now in core.connect(to: Self.peer, id: RequestID(rawValue: 3), now: now) }
    bench.answerAll()
    bench.receive(connectionComplete(0x41, .central, another))
    same(bench.takeTexts(), ["link 2 up: \(Self.resolvable), Central", "3: link 2"])
  }

  /// A request for a link with the identity ends, because there is one.
  @Test func aRequestForTheIdentityEnds() {
    var bench = Self.linked()
    bench.perform { core, now in core.connect(to: Self.identity, id: RequestID(rawValue: 2), now: now) }
    bench.answerAll()
    _ = bench.takeAll()
    Self.identify(&bench)
    same(bench.takeTexts().sorted(), ["2: busy", "peerIdentified(link 1, \(Self.identity))"])
    same(bench.sent.filter { $0.hasPrefix("LE_Create_Connection") }, ["LE_Create_Connection_Cancel"])
  }

  /// A removed identity leads to no peer; one that another peer proves to have leads to that peer.
  @Test func anIdentityHasOnePeer() {
    var bench = Self.linked()
    Self.identify(&bench)
    bench.perform { core, now in core.removePeerIdentity(Self.identity, now: now) }
    #expect(
      bench.core.peer(at: Self.identity) == PeerID(Self.identity)
        && bench.core.address(of: Self.peer) == Self.resolvable)
    var peers = Peers()
    let other = PeerID(Bench.thirdPeer)
    peers.identify(Self.peer, as: Self.identity)
    peers.identify(other, as: Self.identity)
    #expect(peers.id(of: Self.identity) == other && peers.address(of: Self.peer) == Self.resolvable)
    peers.identify(PeerID(Self.identity), as: Self.identity)
    #expect(peers.id(of: Self.identity) == PeerID(Self.identity) && peers.address(of: other) == Bench.thirdPeer)
  }
  /// Vol 3, Part H, §3.6.5; Vol 4, Part E, §7.8.38.
  @Test func invalidIdentities() {
    var bench = Self.linked(), errors: [IdentityError] = []
    for (address, key) in [(Self.resolvable, Self.irk), (Self.identity, IdentityResolvingKey(0))] {
      bench.perform { core, now in
        do throws(IdentityError) { try core.identify(Self.link, as: address, key, now: now) } catch {
          errors.append(error)
        }
      }
    }
    #expect(errors == [.notAnIdentityAddress(Self.resolvable), .noKey])
    same(bench.takeTexts(), [])
    #expect(bench.core.address(of: Self.peer) == Self.resolvable)
  }
}
