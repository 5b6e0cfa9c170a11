import BindruneToolbox
import TestSupport
import Testing

/// The Specification's sample data: Vol 3, Part H, §2.2.3, §2.2.4, §2.3.5.6.1 and Appendix D. Each figure was compared
/// with the tests of another implementation (Bumble 0.0.236, `tests/smp_test.py`), which has all of them.
@Suite struct PairingFunctionTests {
  let u = UInt256(high: 0x20b003d2_f297be2c_5e2c83a7_e9f9a5b9, low: 0xeff49111_acf4fddb_cc030148_0e359de6)
  let v = UInt256(high: 0x55188b3d_32f6bb9a_900afcfb_eed4e72a, low: 0x59cb9ac2_f19d7cfb_6b4fdd49_f47fc5fd)
  let w = UInt256(high: 0xec0234a3_57c8ad05_341010a6_0a397d9b, low: 0x99796b13_b4f866f1_868d34f3_73bfa698)
  let n1: UInt128 = 0xd5cb8454_d177733e_ffffb2ec_712baeab
  let n2: UInt128 = 0xa6e8e7cc_25a75f6e_216583f7_ff3dc4cf
  let a1: UInt64 = 0x00_5612_3737_bfce
  let a2: UInt64 = 0x00_a713_702d_cfc1

  @Test func sampleDataOfC1() {
    let value = c1(
      SecurityKey(0), 0x5783D521_56AD6F0E_6388274E_C6702EE0, preq: 0x07071000000101, pres: 0x05000800000302, iat: 1,
      rat: 0, ia: 0xA1A2A3A4A5A6, ra: 0xB1B2B3B4B5B6)
    #expect(value == 0x1e1e3fef_878988ea_d2a74dc5_bef13b86)
  }
  @Test func sampleDataOfS1() {
    let key = s1(SecurityKey(0), 0x000F0E0D_0C0B0A09_11223344_55667788, 0x01020304_05060708_99AABBCC_DDEEFF00)
    #expect(key.number == 0x9a1fe1f0_e8b0f49b_5b4216ae_796da062)
  }
  /// Appendix D.2.
  @Test func sampleDataOfF4() { #expect(f4(u, v, n1, 0) == 0xf2c916f1_07a9bd1c_f1eda1be_a974872d) }
  /// Appendix D.3.
  @Test func sampleDataOfF5() {
    let keys = f5(DHKey(w), n1, n2, a1, a2)
    #expect(keys.ltk.number == 0x69867911_69d7cd23_980522b5_94750a38)
    #expect(keys.macKey.number == 0x2965f176_a1084a02_fd3f6a20_ce636e20)
  }
  /// Appendix D.4.
  @Test func sampleDataOfF6() {
    let macKey = SecurityKey(0x2965f176_a1084a02_fd3f6a20_ce636e20)
    let check = f6(macKey, n1, n2, 0x12a3343b_b453bb54_08da42d2_0c2d0fc8, 0x010102, a1, a2)
    #expect(check == 0xe3c47398_9cd0e8c5_d26c0b09_da958f61)
  }
  /// Appendix D.5.
  @Test func sampleDataOfG2() { #expect(g2(u, v, n1, n2) == 0x2f9ed5ba) }
  /// The key and the messages of RFC 4493, in the octet order of a PDU. BlueZ 5.66 has the same values
  /// (`unit/test-crypto.c`), and OpenSSL 3.0's AES-CMAC gives them.
  @Test(
    arguments: [
      (0, 0xc0c2eb27_4159a8b3), (16, 0x2a232a39_f4743927), (40, 0x1882c787_ab94cab7), (64, 0x6813f51d_cee6e144),
    ] as [(Int, UInt64)]) func signatures(_ count: Int, _ mac: UInt64)
  {
    let message = octets(
      """
      6B C1 BE E2 2E 40 9F 96 E9 3D 7E 11 73 93 17 2A AE 2D 8A 57 1E 03 AC 9C 9E B7 6F AC 45 AF 8E 51 \
      30 C8 1C 46 A3 5C E4 11 E5 FB C1 19 1A 0A 52 EF F6 9F 24 45 DF 4F 9B 17 AD 2B 41 7B E6 6C 37 10
      """)
    let key = SecurityKey(0x2b7e1516_28aed2a6_abf71588_09cf4f3c)
    #expect(signature(key, Array(message[..<count]).span, counter: 0) == mac)
  }
  /// Appendix D.6.
  @Test func sampleDataOfH6() {
    let key = SecurityKey(w.high)
    #expect(h6(key, 0x6c656272).number == 0x2d9ae102_e76dc91c_e8d3a9e2_80b16399)
  }
  /// Appendix D.8.
  @Test func sampleDataOfH7() {
    #expect(h7(0x746D7031, SecurityKey(w.high)).number == 0xfb173597_c6a3c0ec_d2998c2a_75a57011)
  }
  /// Appendix D.9 and D.10: from LTK to link key, with h7 ("tmp1", then "lebr") and with h6.
  @Test func sampleDataOfLinkKeys() {
    let ltk = SecurityKey(0x368df9bc_e3264b58_bd066c33_334fbf64)
    #expect(h6(h7(0x746D7031, ltk), 0x6c656272).number == 0x287ad379_dca40253_0a39f1f4_3047b835)
    #expect(h6(h6(ltk, 0x746D7031), 0x6c656272).number == 0xbc1ca4ef_633fc1bd_0d8230af_ee388fb0)
  }
  /// Appendix D.11 and D.12: from link key to LTK, with h7 ("tmp2", then "brle") and with h6.
  @Test func sampleDataOfLongTermKeys() {
    let linkKey = SecurityKey(0x05040302_01000908_07060504_03020100)
    #expect(h6(h7(0x746D7032, linkKey), 0x62726c65).number == 0xe85e09eb_5eccb3e2_69418a13_3211bc79)
    #expect(h6(h6(linkKey, 0x746D7032), 0x62726c65).number == 0xa813fb72_f1a3dfa1_8a2c9a43_f10d0a30)
  }
  /// §2.3.4: a key of 16 octets reduced to 7.
  @Test func sampleDataOfTheKeySize() {
    let key = SecurityKey(0x12345678_9ABCDEF0_12345678_9ABCDEF0)
    #expect(key.reduced(to: 7).number == 0x3456789ABCDEF0)
    #expect(key.reduced(to: 16) == key)
  }
}

@Suite struct P256Tests {
  /// §2.3.5.6.1: the debug key pair. Vol 2, Part G, §7.1.2: two key pairs and their DHKey.
  let b = UInt256(high: 0x55188b3d_32f6bb9a_900afcfb_eed4e72a, low: 0x59cb9ac2_f19d7cfb_6b4fdd49_f47fc5fd)
  let publicA = P256PublicKey(
    x: UInt256(high: 0x20b003d2_f297be2c_5e2c83a7_e9f9a5b9, low: 0xeff49111_acf4fddb_cc030148_0e359de6),
    y: UInt256(high: 0xdc809c49_652aeb6d_63329abf_5a52155c, low: 0x766345c2_8fed3024_741c8ed0_1589d28b))
  let publicB = P256PublicKey(
    x: UInt256(high: 0x1ea1f0f0_1faf1d96_09592284_f19e4c00, low: 0x47b58afd_8615a69f_559077b2_2faaa190),
    y: UInt256(high: 0x4c55f33e_429dad37_7356703a_9ab85160, low: 0x472d1130_e28e3676_5f89aff9_15b1214a))
  let dhKey = DHKey(
    UInt256(high: 0xec0234a3_57c8ad05_341010a6_0a397d9b, low: 0x99796b13_b4f866f1_868d34f3_73bfa698))

  @Test func sampleData() throws {
    let debug = P256KeyPair.debug, other = try #require(P256KeyPair(privateKey: b))
    #expect(debug.publicKey == publicA && other.publicKey == publicB)
    #expect(try debug.dhKey(with: publicB) == dhKey)
    #expect(try other.dhKey(with: publicA) == dhKey)
  }

  @Test func newPairsAgree() throws {
    var chance = SplitMix64(seed: 1)
    let a = P256KeyPair(using: &chance), b = P256KeyPair(using: &chance)
    #expect(a.publicKey != b.publicKey)
    #expect(try a.dhKey(with: b.publicKey) == b.dhKey(with: a.publicKey))
    #expect(try a.dhKey(with: b.publicKey) != a.dhKey(with: a.publicKey))
  }

  @Test func pointsBesideTheCurveAreRefused() {
    let zero = UInt256(low: 0)
    let p = UInt256(high: 0xffffffff_00000001_00000000_00000000, low: 0x00000000_ffffffff_ffffffff_ffffffff)
    for point in [
      P256PublicKey(x: zero, y: zero), P256PublicKey(x: publicA.x, y: zero), P256PublicKey(x: zero, y: publicA.y),
      P256PublicKey(x: publicA.y, y: publicA.x), P256PublicKey(x: publicA.x, y: publicB.y), P256PublicKey(x: p, y: p),
      P256PublicKey(x: publicA.x, y: UInt256(high: publicA.y.high, low: publicA.y.low ^ 1)),
    ] {
      #expect(throws: InvalidPublicKey.self) { try P256KeyPair.debug.dhKey(with: point) }
      #expect(!point.isOnCurve)
    }
    #expect(publicA.isOnCurve && publicB.isOnCurve)
  }

  @Test func numbersOutsideTheGroupAreNoPrivateKeys() {
    let order = UInt256(high: 0xffffffff_00000000_ffffffff_ffffffff, low: 0xbce6faad_a7179e84_f3b9cac2_fc632551)
    #expect(P256KeyPair(privateKey: UInt256(low: 0)) == nil && P256KeyPair(privateKey: order) == nil)
    #expect(P256KeyPair(privateKey: UInt256(high: order.high, low: order.low - 1)) != nil)
  }
}

@Suite struct SecrecyTests {
  /// No text of a value that holds a key has the key's octets in it, however it is made.
  @Test func nothingShowsAKey() {
    let number: UInt128 = 0x01234567_89abcdef_a5a5a5a5_5a5a5a5a
    struct Holder { let key: SecurityKey, secret: DHKey, pair: P256KeyPair }
    let holder = Holder(key: SecurityKey(number), secret: DHKey(UInt256(high: number, low: number)), pair: .debug)
    var dumped = ""
    dump(holder, to: &dumped)
    for text in ["\(holder)", String(reflecting: holder), String(describing: holder.key), dumped] {
      let digits = text.lowercased().filter { $0.isHexDigit }
      for secret in ["01234567", "67452301", "a5a5", "5a5a", "3f49f6d4", "\(number)"] {
        #expect(!digits.contains(secret), "\(text)")
      }
      #expect(text.contains("(secret)"), "\(text)")
    }
  }

  @Test func keysCompareAsTheirNumbersDo() {
    var chance = SplitMix64(seed: 1)
    for _ in 0..<100 {
      let number = UInt128.random(using: &chance), bit = UInt128(1) << Int.random(in: 0..<128, using: &chance)
      #expect(SecurityKey(number) == SecurityKey(number) && SecurityKey(number) != SecurityKey(number ^ bit))
      #expect(SecurityKey(number).number == number)
      #expect(SecurityKey(leastSignificantFirst: SecurityKey(number).leastSignificantFirst.span).number == number)
      let wide = UInt256(high: number, low: number ^ bit)
      #expect(UInt256(leastSignificantFirst: wide.leastSignificantFirst.span) == wide)
    }
    #expect(SecurityKey(1).leastSignificantFirst[0] == 1 && SecurityKey(0).isZero && !SecurityKey(1).isZero)
  }
}
