import BindruneATT
import BindruneSimulator
import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

/// Two hosts that pair, encrypt and remember, through every layer and two controllers. Vol 3, Part C, §10; Vol 3, Part
/// H.
@Suite("Scenarios: security") struct SecurityScenarioTests {
  private static let central = 1, peripheral = 0

  /// The method that Table 2.8 (Vol 3, Part H, §2.3.5.1) gives, by the responder's capability and then the initiator's,
  /// in the order of their numbers: J Just Works, P passkey entry, N numeric comparison, n the same, but with legacy
  /// pairing P or J as the letter behind it.
  private static let table = [
    ["J", "J", "P", "J", "P"],
    ["J", "nJ", "P", "J", "nP"],
    ["P", "P", "P", "J", "P"],
    ["J", "J", "J", "J", "J"],
    ["P", "nP", "P", "J", "nP"],
  ]
  private static func method(_ responder: Int, _ initiator: Int, isSC: Bool, mitm: Bool) -> Character {
    guard mitm else { return "J" }
    let cell = table[responder][initiator]
    if cell.hasPrefix("n") { return isSC ? "N" : cell.last ?? "J" }
    return cell.first ?? "J"
  }

  /// A value that needs encryption, and one that needs authentication.
  struct Secrets {
    let database: Database
    let encrypted: AttributeHandle, authenticated: AttributeHandle, open: AttributeHandle, notifying: AttributeHandle
    init() throws {
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "secrets")
      builder.genericAttribute()
      (encrypted, authenticated, open, notifying) = builder.service("180D") {
        (
          $0.characteristic("2A38", .read, value: [2], permissions: AttributePermissions(read: .encrypted)).value,
          $0.characteristic("2A39", .read, value: [3], permissions: AttributePermissions(read: .authenticated)).value,
          $0.characteristic("2A3A", .read, value: [1]).value, $0.characteristic("2A37", .notify).value
        )
      }
      database = try builder.build()
    }
  }

  private static func world(
    seed: UInt64 = 1, air: AirConfiguration = .ideal, _ database: Database = Database(),
    peripheral configurePeripheral: (inout HostConfiguration) -> Void = { _ in },
    central configureCentral: (inout HostConfiguration) -> Void = { _ in }
  ) throws -> World<TestHost> {
    var world = World<TestHost>(seed: seed, configuration: air)
    _ = world.addStarted(TestHost(database, seed: 2 * seed, configurePeripheral))
    _ = world.addStarted(TestHost(seed: 2 * seed + 1, configureCentral))
    try world.advertise(peripheral)
    return world
  }

  // MARK: Methods

  /// Every pair of IO capabilities, legacy and Secure Connections, with and without protection, begun by either side:
  /// the method is the Specification's, and the link is protected as that method can.
  @Test(arguments: 0..<5) func methods(_ responder: Int) throws {
    var counted: [Character: Int] = [:]
    for initiator in 0..<5 {
      for variant in 0..<8 {
        let isSC = variant & 1 != 0, mitm = variant & 2 != 0, isAsked = variant & 4 != 0
        func configure(_ io: Int) -> (inout HostConfiguration) -> Void {
          {
            $0.pairing.ioCapability = IOCapability.all[io]
            $0.pairing.secureConnections = isSC ? .supported : .off
            $0.pairing.protection = mitm ? .wanted : .notNeeded
          }
        }
        var world = try Self.world(
          seed: UInt64(1 + responder * 40 + initiator * 8 + variant), peripheral: configure(responder),
          central: configure(initiator))
        let link = try need(world.connect(Self.central, to: Self.peripheral))
        let other = try need(world.readHost(Self.peripheral) { $0.links.first })
        let ending =
          isAsked
          ? world.pair(Self.peripheral, on: other, with: Self.central)
          : world.pair(Self.central, on: link, with: Self.peripheral)
        let comment = Comment(rawValue: "\(IOCapability.all[initiator]) → \(IOCapability.all[responder]), \(variant)")
        let method = Self.method(responder, initiator, isSC: isSC, mitm: mitm)
        let strength = KeyStrength(isAuthenticated: method != "J", isSecureConnections: isSC)
        same(ending, TestHost.Ending.secured(LinkSecurity(key: strength, isBonded: true)), comment)
        counted[method, default: 0] += 1
        for (host, link) in [(Self.central, link), (Self.peripheral, other)] {
          same(world.readHost(host) { $0.core.security(of: link) }?.key, strength, comment)
          let questions = world.readHost(host) { $0.asked.map(\.question) }
          let asked: Character =
            questions.contains { if case .compare = $0 { true } else { false } }
            ? "N" : questions.contains { if case .consent = $0 { false } else { true } } ? "P" : "J"
          same(asked, method, comment)
          same(world.readHost(host) { $0.pairings.map { $0.error == nil } }, [true], comment)
          same(world.readHost(host) { $0.violations }, [], comment)
          same(world.readHost(host) { $0.core.allBonds.map(\.strength) }, [strength], comment)
        }
      }
    }
    print("responder \(IOCapability.all[responder]): \(counted.sorted { $0.key < $1.key })")
  }

  /// A pairing ends when the peer has acknowledged the last key, so that a disconnection right after it loses none.
  @Test(arguments: [false, true]) func theLinkEndsAtOnce(isSC: Bool) throws {
    for seed in 1...40 as ClosedRange<UInt64> {
      var world = try Self.world(
        seed: seed, air: .realistic, peripheral: { $0.pairing.secureConnections = isSC ? .supported : .off })
      let link = try need(world.connect(Self.central, to: Self.peripheral))
      let id = world.withHost(Self.central) { host, now in
        let id = host.newID()
        host.core.pair(link, id: id, now: now)
        host.drain()
        return id
      }
      world.runPairings(for: .seconds(60)) { world in world.readHost(Self.central) { $0.ending(id) == nil } }
      #expect(world.readHost(Self.central) { $0.ending(id)?.isSuccess } == true, "seed \(seed)")
      same(world.ask(Self.central) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
      world.run(for: .seconds(30)) { world in world.readHost(Self.peripheral) { !$0.links.isEmpty } }
      for host in [Self.central, Self.peripheral] {
        same(world.readHost(host) { $0.pairings.map { $0.error == nil } }, [true], "seed \(seed)")
        same(world.readHost(host) { $0.core.allBonds.count }, 1, "seed \(seed)")
      }
    }
  }

  // MARK: Later links

  /// The next link is encrypted with the bond, by itself, also after a restart of both programs, and with the roles
  /// exchanged.
  @Test(arguments: [false, true]) func theNextLink(isSC: Bool) throws {
    func configure(_ configuration: inout HostConfiguration) {
      configuration.pairing.secureConnections = isSC ? .supported : .off
    }
    var world = try Self.world(peripheral: configure, central: configure)
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true)
    let bonds = (0...1).map { host in world.readHost(host) { $0.core.allBonds } }
    let strength = KeyStrength(isAuthenticated: false, isSecureConnections: isSC)

    for isExchanged in [false, true] {
      var again = try Self.world(seed: 9, peripheral: configure, central: configure)
      for (host, bonds) in bonds.enumerated() {
        try again.withHost(host) { host, now throws(IdentityError) in
          for bond in bonds { try host.core.add(bond, now: now) }
        }
      }
      let (from, to) = isExchanged ? (Self.peripheral, Self.central) : (Self.central, Self.peripheral)
      if isExchanged { try again.advertise(to) }
      let link = try need(again.connect(from, to: to))
      again.run(for: .seconds(10)) { world in world.readHost(from) { $0.core.security(of: link)?.isEncrypted != true } }
      let other = try need(again.readHost(to) { $0.links.first })
      again.run(for: .seconds(1))
      for (host, link) in [(from, link), (to, other)] {
        let security = again.readHost(host) { $0.core.security(of: link) }
        same(security, LinkSecurity(key: strength, isBonded: true), "\(isExchanged)")
        same(again.readHost(host) { $0.pairings.count }, 0)
      }
    }
  }
  /// A client that was away gets its subscriptions back, and the change of services that it has missed. Vol 3, Part G,
  /// §2.5.2, §3.3.3.3.
  @Test func aClientThatWasAway() throws {
    let secrets = try Secrets()
    // Connection events, so that the client has its database before the indication.
    var world = try Self.world(air: .realistic, secrets.database)
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true)
    func ask(_ link: LinkID, _ body: @escaping (inout Client, RequestID) -> Void) -> TestHost.Ending? {
      world.ask(Self.central) { core, id, _ in core.withClient(of: link, id: id) { body(&$0, id) } }
    }
    same(ask(link) { $0.discoverAll($1) }, .done)
    same(ask(link) { $0.followChanges($1) }, .done)
    same(ask(link) { $0.subscribe($1, secrets.notifying, .notification) }, .done)
    let known = try need(world.readHost(Self.central) { $0.core.remoteDatabase(of: link) })
    same(world.ask(Self.central) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
    world.run(for: .seconds(1))
    try world.withHost(Self.peripheral) { host, _ throws(DatabaseError) in
      var builder = DatabaseBuilder(after: host.core.database)
      builder.service("180F") { $0.characteristic("2A19", .read, value: [77]) }
      try host.core.insert(builder)
      host.drain()
    }
    try world.advertise(Self.peripheral)
    let again = try need(world.connect(Self.central, to: Self.peripheral))
    world.withHost(Self.central) { host, _ in host.core.restore(known, on: again) }
    world.run(for: .seconds(10)) { world in world.readHost(Self.central) { $0.changes.isEmpty } }
    #expect(world.readHost(Self.central) { $0.changes.map(\.link).contains(again) })
    let other = try need(world.readHost(Self.peripheral) { $0.links.first })
    let answer = world.withHost(Self.peripheral) { host, _ in host.notify([5], of: secrets.notifying, on: other) }
    // It does not know the new services, so it must first learn of them: then the value may be sent.
    world.run(for: .seconds(2))
    let later = world.withHost(Self.peripheral) { host, _ in host.notify([6], of: secrets.notifying, on: other) }
    #expect(answer?.isAccepted == true || later?.isAccepted == true)
    world.run(for: .seconds(2))
    #expect(world.readHost(Self.central) { $0.values.contains { $0.handle == secrets.notifying } })
  }

  // MARK: On demand

  /// A client that reads what needs encryption pairs, and gets the value; the requests behind it keep their order.
  @Test func aReadThatNeedsEncryption() throws {
    let secrets = try Secrets()
    var world = try Self.world(secrets.database)
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    let ids = world.withHost(Self.central) { host, now in
      let ids = [host.newID(), host.newID(), host.newID()]
      for (id, handle) in zip(ids, [secrets.encrypted, secrets.open, secrets.authenticated]) {
        host.core.withClient(of: link, id: id) { $0.read(id, handle) }
      }
      host.drain()
      return ids
    }
    world.runPairings(for: .seconds(30)) { world in world.readHost(Self.central) { $0.ending(ids[2]) == nil } }
    same(world.readHost(Self.central) { $0.ending(ids[0]) }, .value([2]))
    same(world.readHost(Self.central) { $0.ending(ids[1]) }, .value([1]))
    // Just Works does not open what needs authentication.
    #expect(world.readHost(Self.central) { $0.ending(ids[2])?.isSuccess } == false)
    same(world.readHost(Self.central) { $0.pairings.count }, 1)
    same(world.readHost(Self.central) { $0.core.allBonds.count }, 1)
    // Nobody has asked for this pairing, so both users consent to it.
    for host in [Self.central, Self.peripheral] {
      same(world.readHost(host) { $0.asked.map(\.question) }, [.consent(.justWorks, replaces: nil)])
    }
  }
  /// The same with digits: a Just Works bond is replaced by a stronger one.
  @Test func aReadThatNeedsAuthentication() throws {
    let secrets = try Secrets()
    var world = try Self.world(
      secrets.database, peripheral: { $0.pairing.ioCapability = .displayYesNo },
      central: { $0.pairing.ioCapability = .keyboardDisplay })
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    var weak = PairingSettings()
    weak.protection = .notNeeded
    weak.ioCapability = .noInputNoOutput
    #expect(world.pair(Self.central, on: link, with: Self.peripheral, weak)?.isSuccess == true)
    same(world.readHost(Self.central) { $0.core.security(of: link)?.isAuthenticated }, false)
    let id = world.withHost(Self.central) { host, now in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { $0.read(id, secrets.authenticated) }
      host.drain()
      return id
    }
    world.runPairings(for: .seconds(30)) { world in world.readHost(Self.central) { $0.ending(id) == nil } }
    same(world.readHost(Self.central) { $0.ending(id) }, .value([3]))
    let consents = world.readHost(Self.peripheral) {
      $0.asked.compactMap { if case .consent(_, let replaced) = $0.question { replaced?.ground } else { nil } }
    }
    // The second replaces the bond that the peer has just made and encrypts with.
    same(consents, [.key])
  }

  // MARK: Keys that differ

  /// A peer that has lost the key: told, and the bond stays until it is removed; then both pair anew.
  @Test func aPeerThatHasLostTheKey() throws {
    var world = try Self.world()
    let first = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: first, with: Self.peripheral)?.isSuccess == true)
    let peer = try need(world.readHost(Self.central) { $0.core.allBonds.first?.peer })
    let forgotten = try need(world.readHost(Self.peripheral) { $0.core.allBonds.first?.peer })
    same(world.ask(Self.central) { core, id, now in core.disconnect(first, id: id, now: now) }, .done)
    _ = world.withHost(Self.peripheral) { host, now in host.core.removeBond(with: forgotten, now: now) }
    try world.advertise(Self.peripheral)
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    world.run(for: .seconds(5)) { world in world.readHost(Self.central) { $0.failedEncryptions.isEmpty } }
    same(world.readHost(Self.central) { $0.failedEncryptions.map(\.link) }, [link])
    same(world.readHost(Self.central) { $0.failedEncryptions.map(\.status) }, [.pinOrKeyMissing])
    // The link ends: somebody else may be using the address.
    world.run(for: .seconds(5)) { world in world.readHost(Self.central) { $0.core.security(of: link) != nil } }
    same(world.readHost(Self.central) { $0.core.security(of: link) }, nil)
    same(world.readHost(Self.central) { $0.core.allBonds.count }, 1)
    _ = world.withHost(Self.central) { host, now in host.core.removeBond(with: peer, now: now) }
    try world.advertise(Self.peripheral)
    let third = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: third, with: Self.peripheral)?.isSuccess == true)
    same(world.readHost(Self.central) { $0.core.allBonds.count }, 1)
  }
  /// No weaker key replaces a stronger one: the attempt fails, at either end, and the bonds stay.
  @Test(arguments: [true, false]) func aWeakerPairing(atCentral: Bool) throws {
    var world = try Self.world(
      peripheral: { $0.pairing.ioCapability = .displayYesNo }, central: { $0.pairing.ioCapability = .displayYesNo })
    let first = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: first, with: Self.peripheral)?.isSuccess == true)
    let bonds = (0...1).map { host in world.readHost(host) { $0.core.allBonds } }
    #expect(bonds.allSatisfy { $0.first?.strength.isAuthenticated == true })
    same(world.ask(Self.central) { core, id, now in core.disconnect(first, id: id, now: now) }, .done)
    // The other end has forgotten, and now has neither display nor keys.
    let forgetful = atCentral ? Self.peripheral : Self.central, keeper = 1 - forgetful
    var again = try Self.world(
      seed: 5, peripheral: { if keeper == Self.peripheral { $0.pairing.ioCapability = .displayYesNo } },
      central: { if keeper == Self.central { $0.pairing.ioCapability = .displayYesNo } })
    try again.withHost(keeper) { host, now throws(IdentityError) in
      for bond in bonds[keeper] { try host.core.add(bond, now: now) }
    }
    let link = try need(again.connect(Self.central, to: Self.peripheral))
    again.run(for: .seconds(2))
    let ending = again.pair(Self.central, on: link, with: Self.peripheral)
    #expect(ending?.isSuccess == false, "\(String(describing: ending))")
    same(again.readHost(keeper) { $0.core.allBonds.map(\.strength) }, bonds[keeper].map(\.strength))
    same(again.readHost(forgetful) { $0.core.allBonds.count }, 0)
  }
  /// Two ends with different keys do not understand each other: the link ends, and everybody hears it once.
  @Test func differentKeys() throws {
    var world = try Self.world()
    let first = try need(world.connect(Self.central, to: Self.peripheral))
    #expect(world.pair(Self.central, on: first, with: Self.peripheral)?.isSuccess == true)
    same(world.ask(Self.central) { core, id, now in core.disconnect(first, id: id, now: now) }, .done)
    var bond = try need(world.readHost(Self.central) { $0.core.allBonds.first })
    bond.peers.longTermKey?.key = SecurityKey(1)
    try world.withHost(Self.central) { host, now throws(IdentityError) in try host.core.add(bond, now: now) }
    try world.advertise(Self.peripheral)
    let link = try need(world.connect(Self.central, to: Self.peripheral))
    world.run(for: .seconds(30)) { world in world.readHost(Self.central) { !$0.downs.contains { $0.link == link } } }
    let reasons = (0...1).map { host in world.readHost(host) { $0.downs.last?.reason } }
    #expect(reasons.contains(.connectionTerminatedMICFailure), "\(reasons)")
    same(world.readHost(Self.central) { $0.core.allBonds.count }, 1)
  }

  // MARK: Identities

  /// Two extended sets with addresses of their own: each link's pairing computes with its set's address, legacy and
  /// with LE Secure Connections, beside a host with its identity address or private ones. Vol 3, Part H, §2.2.3,
  /// §2.2.7.
  @Test(arguments: [true, false], [true, false])
  func pairingOverASetWithItsOwnAddress(isSC: Bool, isPrivate: Bool) throws {
    let own = [0xC0DE_0000_0001, 0xC0DE_0000_0002].map { DeviceAddress($0) }
    for place in own.indices {
      var world = try Self.world(peripheral: {
        $0.pairing.secureConnections = isSC ? .only : .off
        if isPrivate { $0.addressPolicy = .resolvable(IdentityResolvingKey(0xABCD), rotation: .seconds(900)) }
      })
      for (number, address) in own.enumerated() {
        var parameters = AdvertisingParameters()
        parameters.address = address
        try world.withHost(Self.peripheral) { host, now throws(AdvertisingError) in
          _ = try host.core.advertise(
            AdvertisingData(localName: "set"), parameters, as: AdvertisingSetID(rawValue: UInt32(number + 1)), now: now)
        }
      }
      world.run(for: .seconds(1))
      let peer = PeerAddress(own[place], .random)
      let ending = world.ask(Self.central) { core, id, now in core.connect(to: peer, .fast, id: id, now: now) }
      guard case .linked(let link)? = ending else {
        Issue.record("\(String(describing: ending))")
        return
      }
      let answer = world.pair(Self.central, on: link, with: Self.peripheral)
      #expect(answer?.isSuccess == true, "set \(place): \(String(describing: answer))")
      let peripheralsLink = try need(world.readHost(Self.peripheral) { $0.links.first })
      let onAir = world.readHost(Self.peripheral) { $0.core.addressesOnAir(of: peripheralsLink)?.own }
      #expect(onAir == peer)
    }
  }
  /// A stranger pairs, and distributes an identity address that no device can have, or the victim's own. Vol 3, Part H,
  /// §3.6.5: Key Rejected, in both roles, and nothing is kept.
  @Test(arguments: [0xFFFF_FFFF_FFFF, 0xC000_0000_0000, 0, 1], [true, false])
  func anIdentityThatNoDeviceHas(_ claim: UInt64, isPeripherals: Bool) throws {
    let claimant = isPeripherals ? Self.peripheral : Self.central, victim = 1 - claimant
    for isRandom in [true, false] where claim == 1 || isRandom || claim & 0xFF00_0000_0000 != 0xC000_0000_0000 {
      // The simulator gives its controllers public addresses.
      let own = try Self.world().readHost(victim) { $0.core.identityAddress }
      let address =
        claim == 1
        ? PairingAddress(own.address, isRandom: own.isRandom)
        : PairingAddress(DeviceAddress(claim), isRandom: isRandom)
      let lie: (inout HostConfiguration) -> Void = {
        $0.pairing.identity = PairingIdentity(irk: SecurityKey(7), address: address)
      }
      var world = try isPeripherals ? Self.world(peripheral: lie) : Self.world(central: lie)
      let link = try need(world.connect(Self.central, to: Self.peripheral))
      _ = world.pair(Self.central, on: link, with: Self.peripheral)
      world.run(for: .seconds(5))
      same(world.readHost(victim) { $0.core.allBonds.count }, 0)
      same(world.readHost(victim) { $0.core.peerIdentities }, [])
      #expect(world.readHost(victim) { $0.pairings.contains { $0.error == .ours(.keyRejected) } }, "\(address)")
    }
  }
  /// The same from a file of bonds, or an application.
  @Test func aStoredIdentityThatNoDeviceHas() throws {
    var world = try Self.world()
    let own = world.readHost(Self.central) { $0.core.identityAddress }
    for address in [
      PeerAddress(DeviceAddress(0xFFFF_FFFF_FFFF), .random), PeerAddress(DeviceAddress(0xC000_0000_0000), .random),
      PeerAddress(DeviceAddress(), .public), PeerAddress(DeviceAddress(0xFFFF_FFFF_FFFF), .public), own,
    ] {
      var keys = DistributedKeys()
      keys.irk = SecurityKey(7)
      keys.identityAddress = PairingAddress(address.address, isRandom: address.isRandom)
      let bond = Bond(
        peer: PeerID(PeerAddress(DeviceAddress(0xC000_0000_0777), .random)), address: address,
        strength: KeyStrength(isAuthenticated: false, isSecureConnections: true), ours: DistributedKeys(), peers: keys)
      #expect(throws: IdentityError.self) {
        try world.withHost(Self.central) { host, now throws(IdentityError) in try host.core.add(bond, now: now) }
      }
      #expect(throws: IdentityError.self) {
        try world.withHost(Self.central) { host, now throws(IdentityError) in
          try host.core.addPeerIdentity(address, IdentityResolvingKey(7), now: now)
        }
      }
    }
    same(world.readHost(Self.central) { $0.core.allBonds.count }, 0)
  }
  /// A peer with private addresses reveals its identity when it pairs: it keeps its `PeerID`, and later private
  /// addresses lead to it.
  @Test func anIdentityIsLearnt() throws {
    let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
    var world = try Self.world(peripheral: { $0.addressPolicy = .resolvable(irk, rotation: .seconds(900)) })
    let onAir = world.readHost(Self.peripheral) { $0.core.ownAddress }
    let identity = world.readHost(Self.peripheral) { $0.core.identityAddress }
    #expect(onAir != identity)
    let ending = world.ask(Self.central) { core, id, now in core.connect(to: onAir, .fast, id: id, now: now) }
    guard case .linked(let link)? = ending else {
      Issue.record("\(String(describing: ending))")
      return
    }
    #expect(world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true)
    same(world.readHost(Self.central) { $0.identified.map(\.address) }, [identity])
    let bond = try need(world.readHost(Self.central) { $0.core.allBonds.first })
    same(bond.address, identity)
    same(bond.peer, PeerID(onAir))
    let known: PeerID = world.withHost(Self.central) { host, _ in host.core.peer(at: identity) }
    same(known, PeerID(onAir))
    // A new program, another private address: the link is encrypted, with the same peer.
    var again = try Self.world(seed: 3, peripheral: { $0.addressPolicy = .resolvable(irk, rotation: .seconds(900)) })
    try again.withHost(Self.central) { host, now throws(IdentityError) in try host.core.add(bond, now: now) }
    let others = world.readHost(Self.peripheral) { $0.core.allBonds }
    try again.withHost(Self.peripheral) { host, now throws(IdentityError) in
      for bond in others { try host.core.add(bond, now: now) }
    }
    #expect(again.readHost(Self.peripheral) { $0.core.ownAddress } != onAir)
    let next = again.ask(Self.central) { core, id, now in core.connect(to: bond.peer, .fast, id: id, now: now) }
    guard case .linked(let later)? = next else {
      Issue.record("\(String(describing: next))")
      return
    }
    again.run(for: .seconds(10)) { world in
      world.readHost(Self.central) { $0.core.security(of: later)?.isEncrypted != true }
    }
    same(again.readHost(Self.central) { $0.core.security(of: later)?.isEncrypted }, true)
    same(again.readHost(Self.central) { $0.ups.map(\.peer) }, [PeerID(onAir)])
  }

  // MARK: Bad days

  /// The link goes down at some time during a pairing, on a lossy radio: each pairing and each request ends once, and a
  /// bond exists only where the pairing has succeeded.
  @Test(arguments: 1...60) func linksThatBreak(_ seed: Int) throws {
    var generator = SplitMix64(seed: UInt64(seed))
    var air = AirConfiguration.realistic
    air.loss = [0, 0.05, 0.3][Int.random(in: 0...2, using: &generator)]
    let ios = [IOCapability.all.randomElement(using: &generator), IOCapability.all.randomElement(using: &generator)]
    let isSC = Bool.random(using: &generator)
    func configure(_ index: Int) -> (inout HostConfiguration) -> Void {
      {
        $0.pairing.ioCapability = ios[index] ?? .noInputNoOutput
        $0.pairing.secureConnections = isSC ? .supported : .off
      }
    }
    var world = try Self.world(seed: UInt64(seed), air: air, peripheral: configure(0), central: configure(1))
    guard let link = world.connect(Self.central, to: Self.peripheral) else { return }
    let delay = Duration.milliseconds(Int.random(in: 0...1500, using: &generator))
    let id = world.withHost(Self.central) { host, now in
      let id = host.newID()
      host.core.pair(link, id: id, now: now)
      host.drain()
      return id
    }
    world.runPairings(for: delay) { world in world.readHost(Self.central) { !$0.links.isEmpty } }
    let breaker = Int.random(in: 0...1, using: &generator)
    world.withHost(breaker) { host, now in
      if let link = host.links.first { host.core.disconnect(link, now: now) }
      host.drain()
    }
    world.runPairings(for: .seconds(60)) { world in
      (0...1).contains { host in world.readHost(host) { !$0.links.isEmpty } }
    }
    same(world.readHost(Self.central) { $0.completions[id]?.count }, 1, "seed \(seed)")
    for host in 0...1 {
      same(world.readHost(host) { $0.unfinished }, [], "seed \(seed)")
      same(world.readHost(host) { $0.overfinished }, [], "seed \(seed)")
      same(world.readHost(host) { $0.violations }, [], "seed \(seed)")
      let successes = world.readHost(host) { $0.pairings.filter { $0.error == nil }.count }
      same(world.readHost(host) { $0.core.allBonds.count }, successes, "seed \(seed)")
    }
  }
}

extension World where BluetoothHost == TestHost {
  /// Pairs on a link, and answers both hosts' questions as users who see both devices. `host` begins.
  mutating func pair(
    _ host: Int, on link: LinkID, with other: Int, _ settings: PairingSettings? = nil
  ) -> TestHost.Ending? {
    let id = withHost(host) { host, now in
      let id = host.newID()
      host.core.pair(link, settings, id: id, now: now)
      host.drain()
      return id
    }
    runPairings(for: .seconds(60)) { world in
      world.readHost(host) { $0.ending(id) == nil }
        || world.readHost(other) { $0.pairings.count } < world.readHost(host) { $0.pairings.count }
    }
    return readHost(host) { $0.ending(id) }
  }
  /// Runs, and answers questions when they come.
  mutating func runPairings(for duration: Duration, while condition: (borrowing World) -> Bool) {
    let end = now + duration, first = (0...1).map { host in readHost(host) { $0.answered } }
    var seen = first
    while true {
      run(until: end) { world in condition(world) && world.questionCounts == seen }
      if questionCounts == seen { return }
      seen = questionCounts
      for host in 0...1 { answer(host, knowing: questions(from: first)) }
    }
  }
  private var questionCounts: [Int] { (0...1).map { host in readHost(host) { $0.asked.count } } }
  private func questions(from first: [Int]) -> [[PairingQuestion]] {
    (0...1).map { host in readHost(host) { $0.asked.dropFirst(first[host]).map(\.question) } }
  }
  /// Answers a host's open questions: those for which the user need not look at the other device, or has seen it.
  private mutating func answer(_ host: Int, knowing questions: [[PairingQuestion]]) {
    while let asked = readHost(host, { $0.asked.dropFirst($0.answered).first }) {
      let answer: PairingAnswer?
      switch asked.question {
      case .consent(_, let replaced):
        let refusal = readHost(host) { $0.refusal }
        answer = refusal == .all || refusal == .replacements && replaced != nil ? .refuse : .consent
      case .display, .keypress: answer = nil
      case .compare:
        guard questions.allSatisfy({ $0.contains(asked.question) }) else { return }
        answer = .numbersMatch
      case .enterPasskey:
        let displayed = questions.joined().compactMap { if case .display(let digits) = $0 { digits } else { nil } }
          .first
        guard displayed != nil || questions.allSatisfy({ $0.contains(.enterPasskey) }) else { return }
        answer = .passkey(displayed ?? 271_828)
      }
      withHost(host) { host, now in
        host.answered += 1
        if let answer { host.core.answer(answer, on: asked.link, now: now) }
        host.drain()
      }
    }
  }
}
