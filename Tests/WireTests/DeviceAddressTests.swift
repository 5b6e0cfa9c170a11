import BindruneWire
import TestSupport
import Testing

/// Vol 6, Part B, §1.3.2.
@Suite struct DeviceAddressTests {
  @Test func kindsByTheirTopBits() {
    #expect(DeviceAddress(0xC000_0000_0001).randomKind == .static)
    #expect(DeviceAddress(0xFFEE_DDCC_BBAA).randomKind == .static)
    #expect(DeviceAddress(0x7081_940D_FBAA).randomKind == .resolvablePrivate)
    #expect(DeviceAddress(0x3FFF_FFFF_FFFE).randomKind == .nonResolvablePrivate)
    #expect(DeviceAddress(0x8123_4567_89AB).randomKind == .reserved)
  }

  /// The random part, prand in a resolvable address, is neither all zeros nor all ones.
  @Test func theEdges() {
    for value: UInt64 in [
      0xC000_0000_0000, 0xFFFF_FFFF_FFFF, 0, 0x3FFF_FFFF_FFFF, 0x4000_0012_3456, 0x7FFF_FF12_3456, 0x8123_4567_89AB,
    ] { #expect(!DeviceAddress(value).isValidRandom, "\(DeviceAddress(value).text)") }
    for value: UInt64 in [
      0xC000_0000_0001, 0xFFFF_FFFF_FFFE, 1, 0x3FFF_FFFF_FFFE, 0x4000_0100_0000, 0x7FFF_FEFF_FFFF,
    ] { #expect(DeviceAddress(value).isValidRandom, "\(DeviceAddress(value).text)") }
  }

  @Test func halvesOfAResolvableOne() {
    let address = DeviceAddress(prand: 0x708194, hash: 0x0DFBAA)
    #expect(address.text == "70:81:94:0D:FB:AA" && address.prand == 0x708194 && address.hash == 0x0DFBAA)
  }

  @Test func generatedAddressesAreValid() {
    var chance = SplitMix64(seed: Fuzz.seed), seen = Set<DeviceAddress>()
    for _ in 0..<500 {
      let own = DeviceAddress.randomStatic(using: &chance)
      #expect(own.randomKind == .static && own.isValidRandom)
      let beacon = DeviceAddress.nonResolvablePrivate(not: own, using: &chance)
      #expect(beacon.randomKind == .nonResolvablePrivate && beacon.isValidRandom && beacon != own)
      let resolvable = DeviceAddress(prand: DeviceAddress.prand(using: &chance), hash: 0)
      #expect(resolvable.randomKind == .resolvablePrivate && resolvable.isValidRandom)
      seen.formUnion([own, beacon, resolvable])
    }
    #expect(seen.count == 1500)
  }

  /// A generator whose first numbers make an invalid address.
  @Test func invalidRandomPartsAreSkipped() {
    struct Stubborn: RandomNumberGenerator {
      var inner: SplitMix64, first: UInt64?
      mutating func next() -> UInt64 {
        defer { first = nil }
        return first ?? inner.next()
      }
    }
    var chance = Stubborn(inner: SplitMix64(seed: 1), first: 0x1234_5678_9ABC)
    let taken = DeviceAddress.nonResolvablePrivate(not: DeviceAddress(), using: &chance)
    chance.first = 0x1234_5678_9ABC
    #expect(DeviceAddress.nonResolvablePrivate(not: taken, using: &chance) != taken)
  }
}
