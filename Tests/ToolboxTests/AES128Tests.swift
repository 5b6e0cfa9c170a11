import BindruneToolbox
import Testing

@Suite struct AES128Tests {
  /// FIPS 197, Appendix B and Appendix C.1.
  @Test func specifiedBlocks() {
    let b = AES128(key: 0x2b7e1516_28aed2a6_abf71588_09cf4f3c).encrypt(0x3243f6a8_885a308d_313198a2_e0370734)
    #expect(b == 0x3925841d_02dc09fb_dc118597_196a0b32)
    let c = AES128(key: 0x00010203_04050607_08090a0b_0c0d0e0f).encrypt(0x00112233_44556677_8899aabb_ccddeeff)
    #expect(c == 0x69c4e0d8_6a7b0430_d8cdb780_70b4c55a)
  }

  /// Vol 3, Part H, Appendix D.7: the block, and its lowest 24 bits.
  @Test func sampleDataOfTheRandomAddressFunction() {
    let irk = AES128(key: 0xec0234a3_57c8ad05_341010a6_0a397d9b)
    #expect(irk.encrypt(0x708194) == 0x159d5fb7_2ebe2311_a48c1bdc_c40dfbaa)
    #expect(ah(irk, 0x708194) == 0x0dfbaa)
  }
}
