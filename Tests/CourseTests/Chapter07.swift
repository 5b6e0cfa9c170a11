import BindruneToolbox
import BindruneWire
import Foundation
import BindruneSMP
import TestSupport
import Testing

@Suite("Course 7: pairing", .hang) struct Chapter7 {
  @Test func page() throws {
    try course("07-pairing", exercises: [10, 10]) { page in
      // snippet
      let r1: UInt128 = 0x000F0E0D_0C0B0A09_11223344_55667788
      let r2: UInt128 = 0x01020304_05060708_99AABBCC_DDEEFF00
      let shortTermKey = s1(SecurityKey(0), r1, r2)
      print(String(shortTermKey.number, radix: 16))
      page.shows()

      // snippet
      let random: UInt128 = 0x5783D521_56AD6F0E_6388274E_C6702EE0
      func confirm(_ passkey: UInt128) -> UInt128 {
        c1(
          SecurityKey(passkey), random, preq: 0x07071000000101, pres: 0x05000800000302, iat: 1, rat: 0,
          ia: 0xA1A2A3A4A5A6, ra: 0xB1B2B3B4B5B6)
      }
      print(String(confirm(0), radix: 16))

      let heard = confirm(1912)  // what the listener has heard; the digits are secret
      let found = (0...999_999).first { confirm($0) == heard }!
      print("the digits are", found)
      page.shows()

      // snippet
      let alice = P256KeyPair.debug
      let bob = P256KeyPair(
        privateKey: UInt256(
          high: 0x55188B3D_32F6BB9A_900AFCFB_EED4E72A, low: 0x59CB9AC2_F19D7CFB_6B4FDD49_F47FC5FD))!
      let secret = try alice.dhKey(with: bob.publicKey)
      print(try secret == bob.dhKey(with: alice.publicKey))
      print(secret)
      page.shows()

      // snippet
      let na: UInt128 = 0xD5CB8454_D177733E_FFFFB2EC_712BAEAB, nb: UInt128 = 0xA6E8E7CC_25A75F6E_216583F7_FF3DC4CF
      let a: UInt64 = 0x00_5612_3737_BFCE, b: UInt64 = 0x00_A713_702D_CFC1
      let keys = f5(secret, na, nb, a, b)
      print(String(keys.ltk.number, radix: 16))
      print(String(keys.macKey.number, radix: 16))
      page.shows()

      // snippet
      func digits(_ initiator: P256PublicKey, _ responder: P256PublicKey) -> String {
        let number = g2(initiator.x, responder.x, na, nb) % 1_000_000
        return String("\(1_000_000 + number)".dropFirst())
      }
      print("Alice shows", digits(alice.publicKey, bob.publicKey))
      print("Bob shows  ", digits(alice.publicKey, bob.publicKey))
      page.shows()

      // snippet
      let mallory = P256KeyPair(privateKey: UInt256(low: 0x4D616C6C6F7279))!
      print("Alice shows", digits(alice.publicKey, mallory.publicKey))
      print("Bob shows  ", digits(mallory.publicKey, bob.publicKey))
      page.shows()
    }
  }

  /// The numbers above are those of Vol 3, Part H, Appendix D, and of Vol 2, Part G, §7.1.2.
  @Test func sampleData() throws {
    let page = try String(contentsOf: Page.folder.appending(path: "07-pairing.md"), encoding: .utf8)
    for number in [
      "9a1fe1f0e8b0f49b5b4216ae796da062", "1e1e3fef878988ead2a74dc5bef13b86", "6986791169d7cd23980522b594750a38",
      "2965f176a1084a02fd3f6a20ce636e20",
    ] { #expect(page.contains("\n\(number)\n")) }
    let samples = UInt256(high: 0xec0234a3_57c8ad05_341010a6_0a397d9b, low: 0x99796b13_b4f866f1_868d34f3_73bfa698)
    let other = P256KeyPair(
      privateKey: UInt256(high: 0x55188b3d_32f6bb9a_900afcfb_eed4e72a, low: 0x59cb9ac2_f19d7cfb_6b4fdd49_f47fc5fd))
    #expect(try P256KeyPair.debug.dhKey(with: #require(other).publicKey) == DHKey(samples))
  }
}
