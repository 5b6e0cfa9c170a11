import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// The modulation of a link, and its strength. Vol 6, Part B, §5.1.10; Vol 4, Part E, §7.5.4, §7.8.47 – §7.8.49.
@Suite struct PHYTests {
  private static func lab(_ air: AirConfiguration, _ features: [LEFeatures]) -> Lab {
    Lab(
      air,
      features.enumerated().map { index, features in
        var controller = ControllerConfiguration(address: Lab.address(index))
        controller.features.formUnion(features)
        return controller
      })
  }
  private static func set(_ handle: UInt16, _ transmit: PHYSet, _ receive: PHYSet) -> LESetPHY {
    let command = LESetPHY.with {
      $0.connectionHandle = ConnectionHandle(rawValue: handle)
      $0.txPHYs = transmit
      $0.rxPHYs = receive
    }
    return command
  }

  @Test(arguments: 0..<2, 0..<2) func bothEndsGetTheEvent(air: Int, asking: Int) {
    var lab = Self.lab(LinkTests.airs[air], [.le2MPHY, .le2MPHY])
    let (c, p) = lab.connect(0, 1)
    lab.command(asking, Self.set(asking == 0 ? c : p, .le2M, .le2M))
    lab.run(200)
    #expect(lab.hexes(asking) == ["04 0F 04 00 01 32 20", "04 3E 06 0C 00 01 00 02 02"])
    #expect(lab.hexes(1 - asking) == ["04 3E 06 0C 00 01 00 02 02"])
    // Without a change, only the requesting host gets an event.
    lab.command(asking, Self.set(asking == 0 ? c : p, .le2M, .le2M))
    lab.run(200)
    #expect(lab.hexes(asking) == ["04 0F 04 00 01 32 20", "04 3E 06 0C 00 01 00 02 02"])
    #expect(lab.hexes(1 - asking) == [])
    lab.data(0, c, [UInt8](0..<20))
    lab.run(100)
    #expect(lab.packets(1).count == 1)
  }
  @Test func eachDirectionByItself() {
    var lab = Self.lab(LinkTests.quiet(), [[.le2MPHY, .leCodedPHY], [.le2MPHY, .leCodedPHY]])
    let (c, p) = lab.connect(0, 1)
    lab.command(0, Self.set(c, .leCoded, .le2M))
    lab.run(200)
    #expect(lab.hexes(0).last == "04 3E 06 0C 00 01 00 03 02")
    #expect(lab.hexes(1) == ["04 3E 06 0C 00 01 00 02 03"])
    let read = LEReadPHY.with { $0.connectionHandle = ConnectionHandle(rawValue: p) }
    lab.command(1, read)
    lab.run(1)
    #expect(lab.hexes(1) == ["04 0E 08 01 30 20 00 01 00 02 03"])
  }
  @Test func onlyPHYsThatBothPrefer() {
    var lab = Self.lab(LinkTests.quiet(), [[.le2MPHY, .leCodedPHY], .le2MPHY])
    let (c, _) = lab.connect(0, 1)
    lab.command(0, Self.set(c, .leCoded, .leCoded))
    lab.run(200)
    #expect(lab.hexes(0).last == "04 3E 06 0C 00 01 00 01 01")
    var preference = LESetDefaultPHY()
    preference.txPHYs = .le1M
    preference.rxPHYs = .le1M
    #expect(lab.status(1, preference) == 0)
    lab.command(0, Self.set(c, .le2M, .le2M))
    lab.run(200)
    #expect(lab.hexes(0).last == "04 3E 06 0C 00 01 00 01 01")
  }
  @Test func aPeerWithoutTheProcedure() {
    var lab = Self.lab(LinkTests.quiet(), [.le2MPHY, []])
    let (c, p) = lab.connect(0, 1)
    lab.command(0, Self.set(c, .le2M, .le2M))
    lab.run(200)
    #expect(lab.hexes(0).last == "04 3E 06 0C 1A 01 00 01 01")
    #expect(lab.status(1, Self.set(p, .le2M, .le2M)) == 0x01)
  }
  @Test func invalidPreferences() {
    var lab = Self.lab(LinkTests.quiet(), [.le2MPHY, .le2MPHY])
    let (c, _) = lab.connect(0, 1)
    #expect(lab.status(0, Self.set(0x0ABC, .le2M, .le2M)) == 0x02)
    #expect(lab.status(0, Self.set(c, [], .le2M)) == 0x12)
    #expect(lab.status(0, Self.set(c, .le2M, PHYSet(rawValue: 8))) == 0x12)
    #expect(lab.status(0, Self.set(c, .leCoded, .le2M)) == 0x11)
    #expect(lab.status(0, Self.set(c, .le2M, .le2M)) == 0x00)
    #expect(lab.status(0, Self.set(c, .le2M, .le2M)) == 0x0C)
  }
  @Test(arguments: 0..<2) func strength(air: Int) {
    var lab = Self.lab(LinkTests.airs[air], [[], []])
    let (c, _) = lab.connect(0, 1)
    lab.run(200)
    _ = lab.packets(0)
    var read = ReadRSSI()
    read.handle = ConnectionHandle(rawValue: c)
    lab.command(0, read)
    lab.run(5)
    let answer = lab.packets(0).first { $0[1] == 0x0E } ?? []
    // 0 dBm at a tenth of a metre: −20 dBm, and the air's fading.
    #expect(answer.count == 10 && (-23 ... -17).contains(Int(Int8(bitPattern: answer[9]))), "\(answer)")
    read.handle = ConnectionHandle(rawValue: 0x0ABC)
    #expect(lab.status(0, read) == 0x02)
  }
}
