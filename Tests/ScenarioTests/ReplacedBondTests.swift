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

/// A stranger pairs where there is a bond already: at the bonded device's address, or with its identity. Vol 3, Part H,
/// §2.3.6, §3.5.5, §3.6.4, §3.6.5; Decision 0060.
@Suite("Scenarios: bonds that a pairing would replace") struct ReplacedBondTests {
  private static let central = 1, peripheral = 0
  /// Who the stranger is, and how it pairs.
  struct Variant: Sendable, CustomStringConvertible {
    let isSC: Bool, stranger: Int
    var victim: Int { 1 - stranger }
    static let all = [true, false].flatMap { isSC in [0, 1].map { Variant(isSC: isSC, stranger: $0) } }
    var description: String { "\(isSC ? "LE SC" : "legacy"), \(stranger == 1 ? "a central" : "a peripheral")" }
  }

  /// A device that the victim knows: its identity, and its key.
  private static let identity = PeerAddress(DeviceAddress(0xC000_0000_0D0D), .random)
  private static let irk = SecurityKey(0x0D)
  private static func bond(
    _ identity: PeerAddress = identity, irk: SecurityKey? = irk, authenticated: Bool = false, isSC: Bool = false
  ) -> Bond {
    var peers = DistributedKeys()
    peers.irk = irk
    peers.identityAddress = PairingAddress(identity.address, isRandom: identity.isRandom)
    peers.longTermKey = LongTermKey(key: SecurityKey(3), ediv: 4, rand: 5)
    return Bond(
      peer: PeerID(identity), address: identity,
      strength: KeyStrength(isAuthenticated: authenticated, isSecureConnections: isSC), ours: peers, peers: peers)
  }

  /// The victim keeps these bonds. It insists on links that cannot be encrypted, so that its own pairing can be tried.
  private static func world(
    _ variant: Variant, seed: UInt64 = 1, _ bonds: [Bond] = [],
    stranger: @escaping (inout HostConfiguration) -> Void = { _ in },
    victim: @escaping (inout HostConfiguration) -> Void = { _ in }
  ) throws -> World<TestHost> {
    var world = World<TestHost>(seed: seed, configuration: .ideal)
    for host in 0...1 {
      _ = world.addStarted(
        TestHost(seed: 2 * seed + UInt64(host)) {
          $0.pairing.secureConnections = variant.isSC ? .supported : .off
          $0.encryptsBondedLinks = false
          if host == variant.stranger { stranger(&$0) } else { victim(&$0) }
        })
    }
    try world.withHost(variant.victim) { host, now throws(IdentityError) in
      for bond in bonds { try host.core.add(bond, now: now) }
    }
    try world.advertise(peripheral)
    return world
  }
  /// The central connects to the peripheral's address on the air, and pairs.
  private static func connect(_ world: inout World<TestHost>) throws -> LinkID {
    let onAir = world.readHost(peripheral) { $0.core.ownAddress }
    let ending = world.ask(central) { core, id, now in core.connect(to: onAir, .fast, id: id, now: now) }
    guard case .linked(let link)? = ending else {
      Issue.record("\(String(describing: ending))")
      throw NoLink()
    }
    return link
  }
  struct NoLink: Error {}
  @discardableResult
  private static func pair(_ world: inout World<TestHost>) throws -> TestHost.Ending? {
    let link = try connect(&world)
    let ending = world.pair(central, on: link, with: peripheral)
    world.run(for: .seconds(3))
    return ending
  }
  /// What the victim's pairing would replace, as its user was asked.
  private static func replaced(_ world: borrowing World<TestHost>, _ variant: Variant) -> [ReplacedBond] {
    world.readHost(variant.victim) { host in
      host.asked.compactMap { if case .consent(_, let replaced) = $0.question { replaced } else { nil } }
    }
  }
  private static func errors(_ world: borrowing World<TestHost>, _ host: Int) -> [PairingError?] {
    world.readHost(host) { $0.pairings.map(\.error) }
  }

  // MARK: At the bonded device's address

  /// With its identity address, and with a private one that its key resolves. The user is asked and told whose bond it
  /// is; the bond stays until the user consents, and so a device that was reset pairs anew.
  @Test(arguments: Variant.all, [true, false]) func atItsAddress(_ variant: Variant, isPrivate: Bool) throws {
    let privately: (inout HostConfiguration) -> Void = {
      if isPrivate { $0.addressPolicy = .resolvable(IdentityResolvingKey(0xEC02), rotation: .seconds(900)) }
    }
    var before = try Self.world(variant, stranger: privately)
    #expect(try Self.pair(&before)?.isSuccess == true)
    let bond = try need(before.readHost(variant.victim) { $0.core.allBonds.first })
    for refusal in [TestHost.Refusal.replacements, .none] {
      // The device has lost its bond, or is another one.
      var world = try Self.world(variant, seed: 5, [bond], stranger: privately)
      world.withHost(variant.victim) { host, _ in host.refusal = refusal }
      try Self.pair(&world)
      same(
        Self.replaced(world, variant),
        [ReplacedBond(peer: bond.peer, address: bond.address, strength: bond.strength, ground: .address)])
      let kept = world.readHost(variant.victim) { $0.core.allBonds }
      if refusal == .replacements {
        same(kept, [bond])
        same(Self.errors(world, variant.victim), [.ours(.pairingNotSupported)])
        same(Self.errors(world, variant.stranger), [.peers(.pairingNotSupported)])
      } else {
        same(Self.errors(world, variant.victim), [nil])
        #expect(kept.map(\.peer) == [bond.peer] && kept != [bond])
      }
    }
  }
  /// A peer that encrypts with the bond's key is the bonded device: its user is not asked for more than consent.
  @Test(arguments: Variant.all) func theBondedDeviceItself(_ variant: Variant) throws {
    var world = try Self.world(variant)
    let link = try Self.connect(&world)
    #expect(world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true)
    #expect(world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true)
    let grounds = Self.replaced(world, variant).map(\.ground)
    same(grounds, variant.victim == Self.peripheral ? [.key] : [])
    same(world.readHost(variant.victim) { $0.core.allBonds.count }, 1)
  }
  /// Who is refused as a bonded device must wait, and the wait grows. Vol 3, Part H, §2.3.6.
  @Test(arguments: [true, false]) func refusedReplacementsBackOff(isSC: Bool) throws {
    let variant = Variant(isSC: isSC, stranger: Self.central)
    var world = try Self.world(variant)
    #expect(try Self.pair(&world)?.isSuccess == true)
    let bonds = world.readHost(variant.victim) { $0.core.allBonds }
    world = try Self.world(variant, seed: 5, bonds)
    world.withHost(variant.victim) { host, _ in host.refusal = .replacements }
    let link = try Self.connect(&world)
    var asked: [Int] = []
    for _ in 0..<4 {
      _ = world.pair(Self.central, on: link, with: Self.peripheral)
      asked.append(Self.replaced(world, variant).count)
      world.run(for: .milliseconds(1_100))
    }
    // The second after a second, the third too early, the fourth after the two seconds.
    same(asked, [1, 2, 2, 3])
    #expect(Self.errors(world, variant.stranger).contains(.peers(.repeatedAttempts)))
  }

  // MARK: With the bonded device's identity

  enum Claim: CaseIterable, Sendable { case address, irk, both, addressWithoutKey }
  private static func identity(_ claim: Claim) -> PairingIdentity {
    let other = PeerAddress(DeviceAddress(0xC000_0000_0E0E), .random)
    return PairingIdentity(
      irk: claim == .irk || claim == .both ? irk : SecurityKey(claim == .address ? 0x0E : 0),
      address: PairingAddress((claim == .irk ? other : identity).address, isRandom: true))
  }
  /// Until the victim's question about the claim is open. The peripheral's user has consented to the pairing.
  private static func runToTheClaim(_ world: inout World<TestHost>, _ variant: Variant) {
    world.run(for: .seconds(20)) { world in world.readHost(peripheral) { $0.asked.isEmpty } }
    world.withHost(peripheral) { host, now in
      if let asked = host.asked.first { host.core.answer(.consent, on: asked.link, now: now) }
      host.answered = 1
      host.drain()
    }
    let before = variant.victim == peripheral ? 1 : 0
    world.run(for: .seconds(20)) { world in
      world.readHost(variant.victim) { $0.asked.count == before && $0.pairings.isEmpty }
    }
  }
  /// The user is asked before anything is stored or the application learns of it. Refused, the pairing fails with Key
  /// Rejected and the link ends; accepted, the bond is replaced.
  @Test(arguments: Variant.all, Claim.allCases) func aClaim(_ variant: Variant, _ claim: Claim) throws {
    let bond = Self.bond()
    for refusal in [TestHost.Refusal.replacements, .none] {
      var world = try Self.world(variant, [bond], stranger: { $0.pairing.identity = Self.identity(claim) })
      // An application waits for the bonded device.
      let waiting = world.withHost(variant.victim) { host, now in
        let id = host.newID()
        host.core.connect(to: Self.identity, id: id, now: now)
        host.drain()
        return id
      }
      world.withHost(variant.victim) { host, _ in host.refusal = refusal }
      let link = try Self.connect(&world)
      world.withHost(Self.central) { host, now in
        host.core.pair(link, id: host.newID(), now: now)
        host.drain()
      }
      Self.runToTheClaim(&world, variant)
      same(
        Self.replaced(world, variant),
        [ReplacedBond(peer: bond.peer, address: bond.address, strength: bond.strength, ground: .identity)])
      same(world.readHost(variant.victim) { $0.core.allBonds }, [bond])
      same(world.readHost(variant.victim) { $0.identified.map(\.address) }, [])
      same(world.readHost(variant.victim) { $0.ending(waiting) }, nil)
      world.runPairings(for: .seconds(20)) { world in world.readHost(variant.victim) { $0.pairings.isEmpty } }
      world.run(for: .seconds(3))
      let kept = world.readHost(variant.victim) { $0.core.allBonds }
      if refusal == .replacements {
        same(kept, [bond])
        same(Self.errors(world, variant.victim), [.ours(.keyRejected)])
        same(world.readHost(variant.victim) { $0.identified.map(\.address) }, [])
        same(world.readHost(variant.victim) { $0.ending(waiting) }, nil)
        same(world.readHost(variant.victim) { $0.links }, [])
        same(world.readHost(variant.stranger) { $0.downs.map(\.reason) }, [.authenticationFailure])
        // The stranger as responder is told; as initiator it was done before.
        if variant.stranger == Self.peripheral { same(Self.errors(world, variant.stranger), [.peers(.keyRejected)]) }
      } else {
        same(Self.errors(world, variant.victim), [nil])
        same(kept.map(\.address), [PeerAddress(Self.identity(claim).address.address, .random)])
        #expect(kept.first?.peer != bond.peer && kept.first?.peers.longTermKey != bond.peers.longTermKey)
      }
    }
  }
  /// Nobody answers: the pairing times out, and the link ends. Vol 3, Part H, §3.4.
  @Test(arguments: Variant.all) func aClaimThatNobodyAnswers(_ variant: Variant) throws {
    var world = try Self.world(variant, [Self.bond()], stranger: { $0.pairing.identity = Self.identity(.both) })
    let link = try Self.connect(&world)
    world.withHost(Self.central) { host, now in
      host.core.pair(link, id: host.newID(), now: now)
      host.drain()
    }
    Self.runToTheClaim(&world, variant)
    world.run(for: .seconds(40))
    same(world.readHost(variant.victim) { $0.core.allBonds }, [Self.bond()])
    same(world.readHost(variant.victim) { $0.links }, [])
    same(Self.errors(world, variant.victim), [.timedOut])
  }
  /// An authenticated bond stays, without a question; an identity that the application has added is asked about.
  @Test(arguments: Variant.all) func strongerAndAdded(_ variant: Variant) throws {
    let strong = Self.bond(authenticated: true)
    var world = try Self.world(variant, [strong], stranger: { $0.pairing.identity = Self.identity(.both) })
    try Self.pair(&world)
    same(Self.replaced(world, variant), [])
    same(world.readHost(variant.victim) { $0.core.allBonds }, [strong])
    #expect(world.readHost(variant.victim) { $0.violations.contains { $0.contains("weakerThanBond") } })
    same(Self.errors(world, variant.victim), [.ours(.keyRejected)])

    for claim in [Claim.address, .irk, .addressWithoutKey, .both] {
      world = try Self.world(variant, stranger: { $0.pairing.identity = Self.identity(claim) })
      try world.withHost(variant.victim) { host, now throws(IdentityError) in
        try host.core.addPeerIdentity(Self.identity, IdentityResolvingKey(Self.irk.number), now: now)
        host.refusal = .replacements
      }
      try Self.pair(&world)
      // Who distributes both has the device's key, as the application says.
      same(
        Self.replaced(world, variant),
        claim == .both
          ? []
          : [ReplacedBond(peer: PeerID(Self.identity), address: Self.identity, strength: nil, ground: .identity)])
      same(world.readHost(variant.victim) { $0.core.peerIdentities }, [Self.identity])
      same(world.readHost(variant.victim) { $0.core.allBonds.count }, claim == .both ? 1 : 0)
    }
  }
  /// Two bonds, one by the identity address and one by the key: two questions.
  @Test(arguments: Variant.all) func aClaimOfTwo(_ variant: Variant) throws {
    let other = PeerAddress(DeviceAddress(0xC000_0000_0F0F), .random)
    var world = try Self.world(
      variant, [Self.bond(irk: SecurityKey(1)), Self.bond(other)],
      stranger: { $0.pairing.identity = Self.identity(.both) })
    try Self.pair(&world)
    same(Self.replaced(world, variant).map(\.address), [Self.identity, other])
    same(world.readHost(variant.victim) { $0.core.allBonds.map(\.address) }, [Self.identity])
  }

  // MARK: Room

  private static func numbered(_ number: UInt64, authenticated: Bool) -> Bond {
    bond(
      PeerAddress(DeviceAddress(0xC000_0000_0100 | number), .random), irk: SecurityKey(UInt128(number) + 0x100),
      authenticated: authenticated)
  }
  /// The longest unused without authentication goes first, wherever it stands.
  @Test(arguments: Variant.all) func whichBondGoes(_ variant: Variant) throws {
    let bonds = [true, false, false, true].enumerated().map { Self.numbered(UInt64($0), authenticated: $1) }
    var world = try Self.world(variant, bonds, victim: { $0.maximumBonds = 4 })
    #expect(try Self.pair(&world)?.isSuccess == true)
    let kept = world.readHost(variant.victim) { $0.core.allBonds }
    same(Array(kept.dropLast().map(\.address)), [0, 2, 3].map { bonds[$0].address })
    same(kept.last?.strength.isAuthenticated, false)
  }
  /// A store full of authenticated bonds makes none by Just Works, and both devices know: Vol 3, Part C, §9.4.3. With
  /// digits it does.
  @Test(arguments: Variant.all, [true, false]) func aFullStore(_ variant: Variant, withDigits: Bool) throws {
    let bonds = (0..<3).map { Self.numbered($0, authenticated: true) }
    func configure(_ configuration: inout HostConfiguration) {
      if withDigits { configuration.pairing.ioCapability = .keyboardDisplay }
    }
    var world = try Self.world(
      variant, bonds, stranger: configure,
      victim: {
        $0.maximumBonds = 3
        configure(&$0)
      })
    let ending = try Self.pair(&world)
    let strength = KeyStrength(isAuthenticated: withDigits, isSecureConnections: variant.isSC)
    same(ending, TestHost.Ending.secured(LinkSecurity(key: strength, isBonded: withDigits)))
    let kept = world.readHost(variant.victim) { $0.core.allBonds }
    same(kept.count, 3)
    same(kept == bonds, !withDigits)
    same(Array(kept.dropLast()), Array(bonds.dropFirst(withDigits ? 1 : 0).prefix(2)))
    same(world.readHost(variant.stranger) { $0.core.allBonds.count }, withDigits ? 1 : 0)
    same(world.readHost(variant.victim) { $0.violations.count }, withDigits ? 0 : 1)
  }
  /// As Central it has hoped for digits, and has said that it bonds: the pairing fails, with a reason.
  @Test(arguments: [true, false]) func aFullStoreThatHopedForDigits(isSC: Bool) throws {
    let variant = Variant(isSC: isSC, stranger: Self.peripheral)
    let bonds = (0..<3).map { Self.numbered($0, authenticated: true) }
    var world = try Self.world(
      variant, bonds,
      victim: {
        $0.maximumBonds = 3
        $0.pairing.ioCapability = .keyboardDisplay
      })
    try Self.pair(&world)
    same(Self.errors(world, variant.victim), [.ours(.authenticationRequirements)])
    same(world.readHost(variant.victim) { $0.core.allBonds }, bonds)
    same(world.readHost(variant.victim) { $0.violations.count }, 1)
  }

  // MARK: Attempts

  /// Under one address after another: five failures cost nothing, then all strangers wait, and after a quiet time pair.
  @Test(arguments: [true, false]) func attemptsUnderManyAddresses(isSC: Bool) throws {
    let variant = Variant(isSC: isSC, stranger: Self.central)
    let rotating = AddressPolicy.resolvable(IdentityResolvingKey(0xABCD), rotation: .seconds(1))
    var world = try Self.world(variant, stranger: { $0.addressPolicy = rotating })
    world.withHost(variant.victim) { host, _ in host.refusal = .all }
    var addresses: Set<PeerAddress> = []
    func attempt(_ world: inout World<TestHost>) throws {
      let link = try Self.connect(&world)
      addresses.insert(world.readHost(variant.stranger) { $0.core.ownAddress })
      _ = world.pair(Self.central, on: link, with: Self.peripheral)
      same(world.ask(Self.central) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
      world.run(for: .seconds(1))
    }
    for _ in 0..<12 { try attempt(&world) }
    let errors = Self.errors(world, variant.stranger)
    #expect(addresses.count > 6, "\(addresses.count)")
    same(Array(errors.prefix(6)), Array(repeating: .peers(.pairingNotSupported), count: 6))
    #expect(errors.contains(.peers(.repeatedAttempts)), "\(errors)")
    #expect(world.readHost(variant.victim) { $0.asked.count } < 12)
    // After a while everybody may pair.
    world.run(for: .seconds(70))
    world.withHost(variant.victim) { host, _ in host.refusal = .none }
    try attempt(&world)
    same(Self.errors(world, variant.stranger).last, .some(nil))
  }
  /// Pairings that push bonds out are attempts, too: an authenticated bond stays, and the flood is slowed down.
  @Test(arguments: [true, false]) func aFloodOfPairings(isSC: Bool) throws {
    let variant = Variant(isSC: isSC, stranger: Self.central)
    let own = Self.numbered(1, authenticated: true)
    // Without an identity each private address is another device.
    var world = try Self.world(
      variant, [own],
      stranger: {
        $0.addressPolicy = .resolvable(IdentityResolvingKey(0xABCD), rotation: .seconds(1))
        $0.pairing.distributes = [.encKey]
      }, victim: { $0.maximumBonds = 4 })
    var successes = 0
    for _ in 0..<30 {
      let link = try Self.connect(&world)
      if world.pair(Self.central, on: link, with: Self.peripheral)?.isSuccess == true { successes += 1 }
      same(world.ask(Self.central) { core, id, now in core.disconnect(link, id: id, now: now) }, .done)
      world.withHost(Self.central) { host, now in
        for bond in host.core.allBonds { _ = host.core.removeBond(with: bond.peer, now: now) }
      }
      world.run(for: .seconds(1))
    }
    let kept = world.readHost(variant.victim) { $0.core.allBonds }
    #expect(kept.contains(own) && kept.count == 4)
    #expect(successes >= 8 && successes < 25, "\(successes)")
    #expect(Self.errors(world, variant.stranger).contains(.peers(.repeatedAttempts)))
  }
}
