import BindruneToolbox
import TestSupport
import Testing

@Suite struct AESCMACTests {
  private func code(_ key: UInt128, _ message: String) -> UInt128 {
    var code = AESCMAC(key: key)
    code.update(octets(message).span)
    return code.finalize()
  }

  /// RFC 4493, §4; the same in Vol 3, Part H, Appendix D.1.
  @Test func specifiedVectors() {
    let key: UInt128 = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c
    let message =
      """
      6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51 30c81c46a35ce411e5fbc1191a0a52ef \
      f69f2445df4f9b17ad2b417be66c3710
      """
    let parts = message.split(separator: " ").map(String.init)
    #expect(code(key, "") == 0xbb1d6929_e9593728_7fa37d12_9b756746)
    #expect(code(key, parts[0]) == 0x070a16b4_6b4d4144_f79bdd9d_d04a287c)
    #expect(code(key, parts[0] + parts[1] + "30c81c46a35ce411") == 0xdfa66747_de9ae630_30ca3261_1497c827)
    #expect(code(key, message) == 0x51f0bebf_7e3b9d92_fc497417_79363cfe)
  }

  /// The functions of the Security Manager that are one AES-CMAC each: Vol 3, Part H, Appendix D.2 (f4) and D.6 (h6).
  @Test func sampleData() {
    let u = "20b003d2f297be2c5e2c83a7e9f9a5b9eff49111acf4fddbcc0301480e359de6"
    let v = "55188b3d32f6bb9a900afcfbeed4e72a59cb9ac2f19d7cfb6b4fdd49f47fc5fd"
    #expect(code(0xd5cb8454_d177733e_ffffb2ec_712baeab, u + v + "00") == 0xf2c916f1_07a9bd1c_f1eda1be_a974872d)
    #expect(code(0xec0234a3_57c8ad05_341010a6_0a397d9b, "6c656272") == 0x2d9ae102_e76dc91c_e8d3a9e2_80b16399)
  }

  /// A message in pieces is the same message.
  @Test(arguments: [1, 7, 15, 16, 17, 32, 64]) func pieces(size: Int) {
    let message = (0..<200).map { UInt8(truncatingIfNeeded: $0 &* 37) }
    var pieces = AESCMAC(key: 1)
    for start in stride(from: 0, to: 200, by: size) {
      pieces.update(message[start..<min(start + size, 200)].span)
    }
    var whole = AESCMAC(key: 1)
    whole.update(message.span)
    let codes = (pieces.finalize(), whole.finalize())
    #expect(codes.0 == codes.1)
  }
}
