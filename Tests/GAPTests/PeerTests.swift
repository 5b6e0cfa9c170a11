import BindruneToolbox
import BindruneWire
import Foundation
import BindruneGATT
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

@testable import BindruneGAP

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
  /// A bond of a device that became known by a private address: its number, and its identity.
  private static func bond(_ number: UInt64, irk: Bool = true) -> Bond {
    var peers = DistributedKeys()
    if irk { peers.irk = SecurityKey(UInt128(number) + 1) }
    let identity = PeerAddress(DeviceAddress(0xC000_0000_0000 | (number + 0x100)), .random)
    let onAir = PeerAddress(DeviceAddress(0x4000_0000_0000 | (number + 0x100)), .random)
    return Bond(
      peer: PeerID(onAir), address: identity, strength: KeyStrength(isAuthenticated: false, isSecureConnections: true),
      ours: DistributedKeys(), peers: peers)
  }
  private static func add(_ bond: Bond, _ bench: inout Bench) {
    bench.perform { core, now in
      do throws(IdentityError) { try core.add(bond, now: now) } catch { Issue.record(error) }
    }
  }
  /// What the core holds of peers without a link: entries of its tables, keys.
  private static func held(_ bench: borrowing Bench) -> [Int] {
    [bench.core.peers.count, bench.core.peerIdentities.count, bench.core.allBonds.count]
  }

  /// A peer whose bond is removed is forgotten, with a key and without, and its `PeerID` names no other device: the
  /// address from which it was made. `BINDRUNE_BONDS=400000` adds and removes as many; the memory is printed.
  @Test func aPeerWithoutABondIsForgotten() {
    var bench = Bench.started(), before = 0
    let bonds = ProcessInfo.processInfo.environment["BINDRUNE_BONDS"].flatMap { UInt64($0) }
    for number in 0..<(bonds ?? 2_000) {
      let bond = Self.bond(number, irk: number % 2 == 0)
      Self.add(bond, &bench)
      if number == 1_000 { before = Self.memory() }
      if number < 10 {
        #expect(bench.core.peer(at: bond.address) == bond.peer && bench.core.address(of: bond.peer) == bond.address)
      }
      bench.perform { core, now in _ = core.removeBond(with: bond.peer, now: now) }
      if number < 10 {
        #expect(bench.core.peer(at: bond.address) == PeerID(bond.address))
        #expect(bench.core.address(of: bond.peer) == bond.peer.firstAddress)
      }
      bench.forget()
    }
    same(Self.held(bench), [0, 0, 0])
    if let bonds { print("\(bonds) bonds added and removed: \(Self.memory() - before) kB more") }
  }
  private static func memory() -> Int {
    let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") } ?? ""
    return line.split(separator: " ").compactMap { Int($0) }.first ?? 0
  }
  /// A stored bond that replaces one of the same peer with another identity leaves nothing of that.
  @Test func anotherIdentityReplacesAPeersFirst() {
    var bench = Bench.started(), bond = Self.bond(1)
    Self.add(bond, &bench)
    let earlier = bond.address
    bond.address = Self.identity
    Self.add(bond, &bench)
    same(Self.held(bench), [1, 1, 1])
    #expect(bench.core.peer(at: earlier) == PeerID(earlier) && bench.core.peer(at: Self.identity) == bond.peer)
  }
  /// A link keeps what its peer is called; an identity that the application has added is the application's.
  @Test func aLinkAndTheApplicationKeepAPeer() {
    var bench = Self.linked()
    bench.perform { core, now in
      do throws(IdentityError) {
        try core.identify(Self.link, as: Self.identity, Self.irk, isApplications: false, now: now)
      } catch { Issue.record(error) }
    }
    same(Self.held(bench), [1, 1, 0])
    bench.receive(disconnectionComplete(0x40))
    same(Self.held(bench), [0, 0, 0])
    #expect(bench.core.peer(at: Self.identity) == PeerID(Self.identity))

    bench = Self.linked()
    Self.identify(&bench)
    bench.receive(disconnectionComplete(0x40))
    same(Self.held(bench), [1, 1, 0])
    #expect(bench.core.peer(at: Self.identity) == Self.peer)
  }
  /// A peer that reveals one identity after another on a link leaves the last.
  @Test func identitiesOfOneLinkDoNotPileUp() {
    var bench = Self.linked()
    for number in UInt64(0)..<100 {
      let identity = Self.bond(number).address
      bench.perform { core, now in
        do throws(IdentityError) {
          try core.identify(Self.link, as: identity, IdentityResolvingKey(7), isApplications: false, now: now)
        } catch { Issue.record(error) }
      }
      bench.answerAll()
    }
    same(Self.held(bench), [1, 1, 0])
  }
  /// A request names a `PeerID`, and its link has it.
  @Test func aRequestKeepsAPeer() {
    var bench = Bench.started(), texts: [String] = []
    for isCancelled in [true, false] {
      let bond = Self.bond(1)
      Self.add(bond, &bench)
      bench.perform { core, now in core.connect(to: bond.peer, id: RequestID(rawValue: 9), now: now) }
      bench.answerAll()
      bench.perform { core, now in _ = core.removeBond(with: bond.peer, now: now) }
      bench.answerAll()
      #expect(bench.core.peer(at: bond.address) == bond.peer)
      if isCancelled {
        bench.perform { core, now in core.cancel(RequestID(rawValue: 9), now: now) }
        bench.answerAll()
        bench.receive(connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier))
      } else {
        _ = bench.takeTexts()
        bench.receive(connectionComplete(0x40, .central, bond.address))
        texts = bench.takeTexts()
        #expect(bench.core.peer(at: bond.address) == bond.peer)
        bench.receive(disconnectionComplete(0x40))
      }
      #expect(bench.core.peer(at: bond.address) == PeerID(bond.address))
      same(Self.held(bench), [0, 0, 0])
    }
    #expect(texts.first?.contains("\(Self.bond(1).peer)") == true, "\(texts)")
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
