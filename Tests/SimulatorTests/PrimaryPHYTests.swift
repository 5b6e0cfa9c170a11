import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// The PHY of an advertisement, and the scanners on it. Vol 4, Part E, §7.8.53, §7.8.64, §7.8.66.
@Suite struct PrimaryPHYTests {
  private static func lab(_ features: [LEFeatures]) -> Lab {
    Lab(
      .ideal,
      features.enumerated().map { index, features in
        var controller = ControllerConfiguration(address: Lab.address(index))
        controller.features.formUnion(features)
        return controller
      })
  }
  private static let all: LEFeatures = [.le2MPHY, .leCodedPHY]

  private static func creation(_ phys: PHYSet) -> LEExtendedCreateConnection {
    var create = LEExtendedCreateConnection()
    create.peerAddress = Lab.address(0)
    create.initiatingPHYs = phys
    for (parameters, interval) in [(\LEExtendedCreateConnection.le1M, 24), (\.le2M, 32), (\.leCoded, 40)]
      as [(WritableKeyPath<LEExtendedCreateConnection, LEExtendedCreateConnection.Parameters>, UInt16)]
    {
      create[keyPath: parameters].connectionIntervalMin = ConnectionInterval(rawValue: interval)
      create[keyPath: parameters].connectionIntervalMax = ConnectionInterval(rawValue: interval)
    }
    return create
  }

  /// A scanner receives on the primary PHYs that it scans; legacy PDUs are on LE 1M.
  @Test(arguments: [PHYSet.le1M, .leCoded, [.le1M, .leCoded]], [PHY.le1M, .leCoded]) func scanning(
    phys: PHYSet, primary: PHY
  ) {
    for isLegacy in primary == .le1M ? [true, false] : [false] {
      var lab = Self.lab([Self.all, Self.all])
      #expect(lab.scanExtended(1, phys) == 0)
      _ = lab.packets(1)
      #expect(lab.advertiseExtended(0, primary, primary, legacy: isLegacy) == 0)
      lab.run(100)
      let reports = lab.packets(1).filter { $0[1] == 0x3E }
      let isHeard = phys.contains(primary == .le1M ? .le1M : .leCoded)
      #expect(reports.count == (isHeard ? 1 : 0), "\(phys) \(primary) \(isLegacy)")
      guard let report = reports.first else { continue }
      #expect(report[14] == primary.rawValue, "Primary_PHY")
      #expect(report[15] == (isLegacy ? 0 : primary.rawValue), "Secondary_PHY")
    }
  }
  /// The legacy commands advertise on LE 1M, too.
  @Test(arguments: [PHYSet.le1M, .leCoded, [.le1M, .leCoded]]) func legacyCommands(phys: PHYSet) {
    var lab = Self.lab([[], Self.all])
    lab.advertise(0)
    #expect(lab.scanExtended(1, phys) == 0)
    lab.run(100)
    #expect(lab.packets(1).contains { $0[1] == 0x3E } == phys.contains(.le1M))
  }
  /// Each PHY has its own scan type.
  @Test func activeOnOneOfThem() {
    var lab = Self.lab([Self.all, Self.all])
    let parameters = LESetExtendedScanParameters.with {
      $0.scanningPHYs = [.le1M, .leCoded]
      $0.leCoded.scanType = .active
    }
    #expect(lab.status(1, parameters) == 0)
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.filterDuplicates = .enabled
    }
    lab.command(1, enable)
    for (handle, primary) in [(UInt8(1), "01"), (2, "03")] {
      let number = hex([handle])
      // Scannable, undirected, extended.
      lab.send(
        0,
        "01 36 20 19 \(number) 02 00 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F \(primary) 00 01 \(number) 00")
      lab.send(0, "01 38 20 06 \(number) 03 01 02 01 \(number)")
    }
    lab.send(0, "01 39 20 0A 01 02 01 00 00 00 02 00 00 00")
    lab.run(100)
    let reports = lab.packets(1).filter { $0[1] == 0x3E }
    // Event types: 0x02 scannable, 0x0A its response.
    #expect(Set(reports.map { [$0[5], $0[14]] }) == [[0x02, 1], [0x02, 3], [0x0A, 3]])
  }

  /// An initiator connects to advertisers on one of its primary PHYs; the link begins on the secondary PHY, with the
  /// host's parameters for that PHY.
  @Test(arguments: [
    PHYSet.le1M, .leCoded, [.le1M, .leCoded], [.le1M, .le2M], [.le2M, .leCoded], [.le1M, .le2M, .leCoded],
  ])
  func connecting(phys: PHYSet) {
    for (primary, secondary) in [
      (PHY.le1M, PHY.le1M), (.le1M, .le2M), (.le1M, .leCoded), (.leCoded, .leCoded), (.leCoded, .le2M),
    ] {
      for isLegacy in primary == .le1M && secondary == .le1M ? [true, false] : [false] {
        var lab = Self.lab([Self.all, Self.all])
        #expect(lab.advertiseExtended(0, primary, secondary, legacy: isLegacy) == 0)
        #expect(lab.status(1, Self.creation(phys)) == 0)
        lab.run(200)
        let complete = lab.packets(1).first { $0[1] == 0x3E }
        let isHeard = phys.contains(primary == .le1M ? .le1M : .leCoded)
        #expect((complete != nil) == isHeard, "\(phys), \(primary), \(secondary)")
        guard let complete else { continue }
        #expect(complete[4] == 0)
        let read = LEReadPHY.with { $0.connectionHandle = ConnectionHandle(rawValue: 1) }
        for host in 0..<2 {
          _ = lab.packets(host)
          lab.command(host, read)
          lab.run(1)
          #expect(lab.packets(host).first?.suffix(2) == [secondary.rawValue, secondary.rawValue])
        }
        let intervals: [(PHY, PHYSet, UInt8)] = [(.le1M, .le1M, 24), (.le2M, .le2M, 32), (.leCoded, .leCoded, 40)]
        let own =
          intervals.first { $0.0 == secondary && phys.contains($0.1) } ?? intervals.first { phys.contains($0.1) }
        #expect(complete[27] == own?.2, "Connection_Interval")
      }
    }
  }
  @Test func legacyCommandsConnectOnLE1M() {
    var lab = Self.lab([Self.all, Self.all])
    #expect(lab.advertiseExtended(0, .leCoded, .leCoded) == 0)
    lab.command(1, Lab.creation(to: Lab.address(0)))
    lab.run(500)
    #expect(lab.packets(1).count == 1)
  }
  /// A scanner without the secondary PHY receives nothing on it.
  @Test func theSecondaryPHYMustBeHad() {
    var lab = Self.lab([.le2MPHY, []])
    #expect(lab.advertiseExtended(0, .le1M, .le2M) == 0)
    #expect(lab.scanExtended(1, .le1M) == 0)
    lab.run(100)
    #expect(lab.packets(1).allSatisfy { $0[1] == 0x0E })
    #expect(lab.status(1, Self.creation(.le1M)) == 0)
    lab.run(200)
    #expect(lab.packets(1).allSatisfy { $0[1] != 0x3E })
  }
  @Test func impossibleRequests() {
    var lab = Self.lab([[], Self.all])
    #expect(lab.advertiseExtended(0, .leCoded, .le1M) == 0x11 && lab.advertiseExtended(0, .le1M, .le2M) == 0x11)
    #expect(lab.advertiseExtended(1, .leCoded, .leCoded, legacy: true) == 0x12, "legacy PDUs are on LE 1M")
    #expect(lab.advertiseExtended(1, .le2M, .le2M) == 0x12, "there is no primary channel on LE 2M")
    #expect(lab.advertiseExtended(1, .le1M, PHY(rawValue: 0)) == 0x12)
    var parameters = LESetExtendedScanParameters()
    parameters.scanningPHYs = .leCoded
    #expect(lab.status(0, parameters) == 0x11)
    parameters.leCoded.scanWindow = ScanInterval(rawValue: 0x11)
    #expect(lab.status(1, parameters) == 0x12)
    #expect(lab.status(0, Self.creation(.leCoded)) == 0x11 && lab.status(1, Self.creation(.le2M)) == 0x12)
    var create = Self.creation([.le1M, .leCoded])
    create.leCoded.connectionIntervalMin = ConnectionInterval(rawValue: 5)
    #expect(lab.status(1, create) == 0x12)
    create = Self.creation([.le1M, .leCoded])
    create.leCoded.scanWindow = ScanInterval(rawValue: 0x11)
    #expect(lab.status(1, create) == 0x12)
  }
}

extension Lab {
  fileprivate mutating func advertiseExtended(
    _ host: Int, _ primary: PHY, _ secondary: PHY, legacy: Bool = false
  ) -> UInt8? {
    let parameters = LESetExtendedAdvertisingParameters.with {
      $0.advertisingHandle = AdvertisingHandle(0)
      $0.connectable = true
      $0.scannable = legacy
      $0.legacy = legacy
      $0.primaryAdvertisingIntervalMin = PrimaryAdvertisingInterval(rawValue: 0x20)
      $0.primaryAdvertisingIntervalMax = PrimaryAdvertisingInterval(rawValue: 0x20)
      $0.primaryAdvertisingPHY = primary
      $0.secondaryAdvertisingPHY = secondary
      $0.advertisingSID = 5
    }
    let status = self.status(host, parameters)
    send(host, "01 39 20 06 01 01 00 00 00 00")
    run(1)
    return status
  }
  fileprivate mutating func scanExtended(_ host: Int, _ phys: PHYSet) -> UInt8? {
    let parameters = LESetExtendedScanParameters.with { $0.scanningPHYs = phys }
    let status = self.status(host, parameters)
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.filterDuplicates = .enabled
    }
    command(host, enable)
    run(1)
    return status
  }
}
