import BindruneToolbox
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// Resolution of private addresses: Vol 6, Part B, §1.3.2.
@Suite struct PrivacyTests {
  // The IRK and the address of Vol 3, Part H, Appendix D.7.
  static let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
  static let resolvable = PeerAddress(DeviceAddress(0x7081_940D_FBAA), .random)
  static let peer = PeerAddress(DeviceAddress(0xF0E1_D2C3_B4A5), .random)
  static let other = PeerAddress(DeviceAddress(0x0011_2233_4455), .public)

  @Test func theSampleAddressIsThePeers() throws {
    var identities = PeerIdentities()
    #expect(identities.hear(Self.resolvable) == nil && identities.blocks == 0)
    try identities.add(Self.other, IdentityResolvingKey(0x2b7e1516_28aed2a6_abf71588_09cf4f3c))
    try identities.add(Self.peer, Self.irk)
    #expect(identities.resolve(Self.resolvable) == Self.peer && identities.air(of: Self.peer) == nil)
    let found = identities.hear(Self.resolvable), again = identities.hear(Self.resolvable)
    #expect(found?.identity == Self.peer && found?.isNew == true && again?.isNew == false)
    #expect(identities.blocks == 2, "known by now")
    #expect(identities.air(of: Self.peer) == Self.resolvable)
    // The same bits as a public address belong to another device, and so does any other address.
    #expect(identities.resolve(PeerAddress(Self.resolvable.address, .public)) == nil)
    #expect(identities.resolve(PeerAddress(DeviceAddress(0x7081_940D_FBAB), .random)) == nil)
    #expect(identities.resolve(Self.peer) == nil && identities.blocks == 4, "not a resolvable address")
    identities.remove(Self.peer)
    #expect(identities.resolve(Self.resolvable) == nil)
  }

  @Test func invalidIdentities() {
    var identities = PeerIdentities()
    for value: UInt64 in [0x7081_940D_FBAA, 0x3123_4567_89AB, 0x8123_4567_89AB, 0xC000_0000_0000, 0xFFFF_FFFF_FFFF] {
      let address = PeerAddress(DeviceAddress(value), .random)
      #expect(throws: IdentityError.notAnIdentityAddress(address)) { try identities.add(address, Self.irk) }
    }
    #expect(throws: IdentityError.noKey) { try identities.add(Self.peer, IdentityResolvingKey(0)) }
    #expect(identities.peers.isEmpty)
  }

  /// Each of a hundred keys resolves its own addresses, and a new key for a peer replaces the old one.
  @Test func keysResolveTheirOwnAddresses() throws {
    var chance = SplitMix64(seed: Fuzz.seed), identities = PeerIdentities(), keys: [IdentityResolvingKey] = []
    for number in 0..<100 {
      keys.append(IdentityResolvingKey(UInt128(chance.next()) << 64 | UInt128(chance.next())))
      try identities.add(PeerAddress(DeviceAddress(UInt64(number + 1)), .public), keys[number])
    }
    for number in 0..<100 {
      let air = DeviceAddress.resolvablePrivate(keys[number], using: &chance)
      #expect(air.randomKind == .resolvablePrivate && air.isValidRandom)
      // Two keys of a hundred can have the same hash once in 170,000 addresses; then the first is taken.
      #expect(identities.resolve(PeerAddress(air, .random))?.address.value == UInt64(number + 1))
    }
    let air = PeerAddress(DeviceAddress.resolvablePrivate(keys[7], using: &chance), .random)
    try identities.add(PeerAddress(DeviceAddress(8), .public), keys[0])
    #expect(identities.resolve(air) == nil && identities.peers.count == 100)
  }

  /// Very many addresses cost one block for each address and key, and bounded memory.
  @Test func stormsAreBounded() throws {
    var chance = SplitMix64(seed: Fuzz.seed), identities = PeerIdentities()
    try identities.add(Self.other, IdentityResolvingKey(1))
    try identities.add(Self.peer, Self.irk)
    let friend = PeerAddress(DeviceAddress.resolvablePrivate(Self.irk, using: &chance), .random)
    #expect(identities.resolve(friend) == Self.peer)
    let before = identities.blocks, storm = 20_000
    for _ in 0..<storm {
      let stranger = DeviceAddress(
        prand: DeviceAddress.prand(using: &chance), hash: UInt32.random(in: 0..<1 << 24, using: &chance))
      _ = identities.resolve(PeerAddress(stranger, .random))
      // A device that is received all the time is never forgotten.
      #expect(identities.resolve(friend) == Self.peer)
      #expect(identities.remembered <= 2 * PeerIdentities.capacity)
    }
    #expect(identities.blocks - before <= 2 * storm)
  }

  /// The host's own addresses resolve with its key, never repeat, and depend on the generator's seed.
  @Test func ownAddresses() {
    var seed = SplitMix64(seed: 3), same = SplitMix64(seed: 3), different = SplitMix64(seed: 4)
    var chance = HostChance(&seed), again = HostChance(&same), another = HostChance(&different)
    var seen = Set<DeviceAddress>()
    for _ in 0..<200 {
      let address = DeviceAddress.resolvablePrivate(Self.irk, using: &chance)
      #expect(ah(AES128(key: Self.irk.value), address.prand) == address.hash && address.isValidRandom)
      #expect(address == .resolvablePrivate(Self.irk, using: &again))
      seen.insert(address)
      seen.insert(.resolvablePrivate(Self.irk, using: &another))
    }
    #expect(seen.count >= 399)
  }
}
