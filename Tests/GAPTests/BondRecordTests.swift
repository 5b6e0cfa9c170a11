import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

@testable import BindruneGAP

/// The stored form of a bond.
@Suite struct BondRecordTests {
  private func decoded(_ octets: [UInt8]) throws(WireError) -> Bond { try Bond(octets.span) }

  /// Stored bonds must be readable for ever: the octets of one with every field, written by hand from the declaration.
  @Test func theFormatStays() throws {
    var ours = DistributedKeys(), peers = DistributedKeys()
    ours.longTermKey = LongTermKey(key: SecurityKey(0x0F0E0D0C_0B0A0908_07060504_03020100), ediv: 0x1234, rand: 0x5678)
    ours.csrk = SecurityKey(0x3F3E3D3C_3B3A3938_37363534_33323130)
    peers.irk = SecurityKey(0x2F2E2D2C_2B2A2928_27262524_23222120)
    peers.identityAddress = PairingAddress(DeviceAddress(0xC0FF_EE00_0001), isRandom: true)
    var bond = Bond(
      peer: PeerID(PeerAddress(DeviceAddress(0x4455_6677_8899), .random)),
      address: PeerAddress(DeviceAddress(0x0011_2233_4455), .public),
      strength: KeyStrength(isAuthenticated: true, isSecureConnections: false, size: .shortest), ours: ours,
      peers: peers)
    (bond.ourSignCounter, bond.peersSignCounter, bond.client) = (7, 0xAABB_CCDD, [1, 2, 3])
    let expected = octets(
      """
      01  99 88 77 66 55 44 01  55 44 33 22 11 00 00  01 00 07  07 00 00 00  DD CC BB AA  69
      00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F  34 12  78 56 00 00 00 00 00 00
      30 31 32 33 34 35 36 37 38 39 3A 3B 3C 3D 3E 3F
      20 21 22 23 24 25 26 27 28 29 2A 2B 2C 2D 2E 2F  01 00 00 EE FF C0 01
      01 02 03
      """)
    #expect(bond.octets == expected)
    #expect(try decoded(expected) == bond)
  }

  @Test func randomBondsComeBack() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    print("random bonds: seed \(Fuzz.seed)")
    for _ in 0..<500 {
      let bond = Bond.random(using: &chance)
      #expect(try decoded(bond.octets) == bond)
    }
  }
  /// Any value of the record's fields is that of a bond, with the same octets.
  @Test func randomRecordsComeBack() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<500 {
      var arena: [UInt8] = []
      var record = BondRecord.arbitrary(using: &chance, in: &arena)
      record.format = BondRecord.format
      let octets = try record.encoded(from: arena.span)
      #expect(try decoded(octets).octets == octets)
    }
  }

  /// Everything before the client's record has a length that the record says: each shorter one is an error that names
  /// the field.
  @Test func aRecordThatIsCutNamesTheField() throws {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<50 {
      var bond = Bond.random(using: &chance)
      bond.client = []
      let octets = bond.octets
      for count in octets.indices {
        let error = #expect(throws: WireError.self) { _ = try decoded(Array(octets[..<count])) }
        guard case .truncated(let needed, let available)? = error?.reason else {
          Issue.record("\(count) of \(octets.count) octets: \(String(describing: error))")
          continue
        }
        #expect(needed > available && error?.field.utf8CodeUnitCount ?? 0 > 0)
      }
    }
  }

  @Test(
    arguments: [
      (0, 0x02, "unknown \"Format\": 0x02"), (0, 0x00, "unknown \"Format\": 0x00"),
      (7, 0x02, "invalid \"Peer, random\": 0x02"), (14, 0xFF, "invalid \"Address, random\": 0xFF"),
      (15, 0x02, "invalid \"Authenticated\": 0x02"), (16, 0x10, "invalid \"Secure Connections\": 0x10"),
      (17, 6, "invalid \"Encryption Key Size\": 0x06"), (17, 17, "invalid \"Encryption Key Size\": 0x11"),
      (26, 0x01, "truncated \"Our Long Term Key\": needed 16, available 0"),
      (26, 0x02, "truncated \"Our Identity Resolving Key\": needed 16, available 0"),
      (26, 0x40, "truncated \"Peer's Identity Address\": needed 6, available 0"),
      (26, 0x80, "truncated \"Peer's Signature Key\": needed 16, available 0"),
    ] as [(Int, UInt8, String)]) func aBadValueNamesTheField(offset: Int, value: UInt8, words: String) throws
  {
    let address = PeerAddress(DeviceAddress(1), .public)
    var octets = Bond(
      peer: PeerID(address), address: address, strength: KeyStrength(isAuthenticated: false, isSecureConnections: true),
      ours: DistributedKeys(), peers: DistributedKeys()
    ).octets
    #expect(octets.count == 27)
    octets[offset] = value
    let error = #expect(throws: WireError.self) { _ = try decoded(octets) }
    #expect(error?.description == words)
  }

  /// Random octets, flipped bits: an error, or a bond that has the same octets again.
  @Test func badOctetsDoNotTrap() {
    var chance = SplitMix64(seed: Fuzz.seed)
    let samples = (0..<20).map { _ in Bond.random(using: &chance).octets }
    for octets in Fuzz(samples) {
      do throws(WireError) {
        let bond = try decoded(octets)
        #expect(bond.octets == octets)
      } catch { #expect(error.field.utf8CodeUnitCount > 0) }
    }
  }

  /// No text of a bond, of its record, or of an error has a key.
  @Test func textsHaveNoKeys() throws {
    var ours = DistributedKeys()
    ours.longTermKey = LongTermKey(key: SecurityKey(UInt128(repeating: 0xA7)))
    (ours.irk, ours.csrk) = (SecurityKey(UInt128(repeating: 0xA7)), SecurityKey(UInt128(repeating: 0xA7)))
    let address = PeerAddress(DeviceAddress(1), .public)
    let bond = Bond(
      peer: PeerID(address), address: address, strength: KeyStrength(isAuthenticated: true, isSecureConnections: true),
      ours: ours, peers: ours)
    let octets = bond.octets
    let record = try WireDecoder.decode(BondRecord.self, octets.span).description(in: octets.span)
    var dumped = ""
    dump(bond, to: &dumped)
    #expect(record.contains("Our Long Term Key: (secret, 16 octets)"))
    for text in ["\(bond)", String(reflecting: bond), dumped, record] {
      #expect(!text.uppercased().contains("A7") && !text.contains("167"), "\(text)")
    }
  }
}

extension UInt128 {
  fileprivate init(repeating octet: UInt8) { self = (0..<16).reduce(0) { sum, _ in sum << 8 | UInt128(octet) } }
}
