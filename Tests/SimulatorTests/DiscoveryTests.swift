import BindruneSimulator
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// Advertising, scanning, connecting. Vol 6, Part B, §4.4.
@Suite struct DiscoveryTests {
  static let advertisement = "LE_Advertising_Report Num_Reports: 1, Reports: [{Event_Type: "

  /// The reports of host 0 that a legacy scanner gets.
  private func heard(
    _ type: AdvertisingType, active: Bool = false, filter: Bool = false, for milliseconds: Int = 200,
    _ change: (inout LESetAdvertisingParameters) -> Void = { _ in }
  ) -> [[UInt8]] {
    var lab = Lab(hosts: 2)
    lab.advertise(0, type, change)
    lab.scan(1, active: active, filter: filter)
    lab.run(milliseconds)
    return lab.packets(1).filter { $0[1] == 0x3E }
  }

  @Test func passiveScan() {
    let reports = heard(.connectableScannableUndirected)
    #expect((9...11).contains(reports.count), "every 20 ms")
    #expect(hex(reports[0]) == "04 3E 0F 02 01 00 00 01 44 33 22 11 00 03 02 01 06 EC")
    #expect(reports.allSatisfy { $0[5] == 0 })
  }
  @Test func activeScanReportsTheResponseApart() {
    let reports = heard(.connectableScannableUndirected, active: true)
    #expect(hex(reports[0]) == "04 3E 0F 02 01 00 00 01 44 33 22 11 00 03 02 01 06 EC")
    #expect(hex(reports[1]) == "04 3E 10 02 01 04 00 01 44 33 22 11 00 04 03 09 41 42 EC")
  }
  @Test func scannableOnly() {
    let reports = heard(.scannableUndirected, active: true)
    #expect(reports[0][5] == 2)
    #expect(reports[1][5] == 4)
  }
  @Test func nonconnectable() {
    let reports = heard(.nonConnectableUndirected, active: true)
    #expect(!reports.isEmpty && reports.allSatisfy { $0[5] == 3 })
  }
  @Test func directedIsHeardByItsTargetOnly() {
    #expect(heard(.connectableDirectedLowDutyCycle) { $0.peerAddress = Lab.address(5) }.isEmpty)
    let reports = heard(.connectableDirectedLowDutyCycle) { $0.peerAddress = Lab.address(1) }
    #expect(!reports.isEmpty && reports.allSatisfy { $0[5] == 1 && $0[13] == 0 })
  }
  @Test func highDutyCycleEndsAfter1280Milliseconds() {
    var lab = Lab(hosts: 1)
    lab.advertise(0, .connectableDirectedHighDutyCycle) { $0.peerAddress = Lab.address(5) }
    lab.run(1279)
    #expect(lab.packets(0).allSatisfy { $0[1] == 0x0E })
    lab.run(2)
    let events = lab.texts(0)
    #expect(events.count == 1)
    #expect(events[0].hasPrefix("LE_Enhanced_Connection_Complete Status: 0x3C"))
    // It may begin again.
    let enable = LESetAdvertisingEnable.with { $0.advertisingEnable = true }
    #expect(lab.status(0, enable) == 0)
  }
  @Test func duplicatesAreFiltered() {
    #expect(heard(.connectableScannableUndirected, filter: true).count == 1)
    #expect(heard(.connectableScannableUndirected, active: true, filter: true).count == 2)
  }
  @Test func aWindowHearsItsShare() {
    // 50 ms of every 500 ms, 20 ms advertisements, one channel at a time.
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    lab.scan(1, interval: 800, window: 80)
    lab.run(10_000)
    let count = lab.packets(1).count { $0[1] == 0x3E }
    #expect((40...60).contains(count), "\(count) of 500")
  }
  @Test func advertisingDelayVaries() {
    var lab = Lab(.realistic, hosts: 2)
    lab.world.air.setLoss(0)
    lab.advertise(0)
    lab.scan(1)
    lab.run(10_000)
    // 20 ms and 0 … 10 ms more.
    let count = lab.packets(1).count { $0[1] == 0x3E }
    #expect((380...420).contains(count), "\(count)")
  }
  @Test func distanceWeakensAndEnds() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    lab.scan(1)
    lab.run(30)
    #expect(lab.packets(1).last?.last == 0xEC)
    lab.world.air.move(ControllerID(1), to: Position(x: 10))
    lab.run(30)
    #expect(lab.packets(1).last?.last == UInt8(bitPattern: -60))
    lab.world.air.move(ControllerID(1), to: Position(x: 1000))
    lab.run(100)
    #expect(lab.packets(1).isEmpty)
  }
  /// 40 dB at one metre and 20 dB per decade, rounded to whole dBm: on both sides of each half.
  @Test func pathLossIsRounded() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    lab.scan(1)
    for loss in 40..<90 {
      let half = pow(10, (Double(loss - 40) + 0.5) / 20)
      for (metres, rssi) in [(half * 0.99999, -loss), (half * 1.00001, -loss - 1)] {
        lab.world.air.move(ControllerID(1), to: Position(x: metres))
        _ = lab.packets(1)
        lab.run(25)
        #expect(lab.packets(1).last?.last == UInt8(bitPattern: Int8(rssi)), "\(metres) m")
      }
    }
  }

  @Test func extendedScanReportsLegacyAdvertising() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    let parameters = LESetExtendedScanParameters.with { $0.le1M.scanType = .active }
    lab.command(1, parameters)
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.filterDuplicates = .enabled
    }
    lab.command(1, enable)
    lab.run(100)
    let reports = lab.hexes(1).filter { $0.hasPrefix("04 3E") }
    #expect(
      reports == [
        "04 3E 1D 0D 01 13 00 00 01 44 33 22 11 00 01 00 FF 7F EC 00 00 00 00 00 00 00 00 00 03 02 01 06",
        "04 3E 1E 0D 01 1B 00 00 01 44 33 22 11 00 01 00 FF 7F EC 00 00 00 00 00 00 00 00 00 04 03 09 41 42",
      ])
  }
  @Test func extendedScanEndsByItself() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    lab.command(1, LESetExtendedScanParameters())
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.duration = ScanDuration(rawValue: 10)
    }
    lab.command(1, enable)
    lab.run(1000)
    let events = lab.hexes(1).filter { $0.hasPrefix("04 3E") }
    #expect((4...6).contains(events.count))
    #expect(events.last == "04 3E 01 11")
  }
  @Test func periodsStartTheFilterAnew() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    lab.command(1, LESetExtendedScanParameters())
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.filterDuplicates = .enabledPerPeriod
      $0.duration = ScanDuration(rawValue: 50)
      $0.period = ScanPeriod(rawValue: 1)
    }
    lab.command(1, enable)
    lab.run(4000)
    #expect(lab.packets(1).count { $0[1] == 0x3E } == 4)
  }

  @Test(arguments: [false, true]) func connecting(isRealistic: Bool) {
    var air = isRealistic ? AirConfiguration.realistic : .ideal
    air.loss = 0
    var lab = Lab(air, hosts: 2)
    lab.advertise(0)
    lab.command(1, Lab.creation(to: Lab.address(0), interval: 24, timeout: 100))
    lab.run(100)
    #expect(
      lab.hexes(1) == [
        "04 0F 04 00 01 0D 20",
        "04 3E 1F 0A 00 01 00 00 00 01 44 33 22 11 00 00 00 00 00 00 00 00 00 00 00 00 00 18 00 00 00 64 00 00",
      ])
    #expect(
      lab.hexes(0).last
        == "04 3E 1F 0A 00 01 00 01 00 02 44 33 22 11 00 00 00 00 00 00 00 00 00 00 00 00 00 18 00 00 00 64 00 00")
    // A connection ends advertising.
    lab.scan(1)
    lab.run(100)
    #expect(lab.packets(1).allSatisfy { $0[1] == 0x0E })
    // It may be begun again while the link is there, and others can come.
    #expect(lab.world.air.linkCount(of: ControllerID(0)) == 1)
  }
  @Test func oldConnectionCompleteWhereTheNewOneIsMasked() {
    var lab = Lab(hosts: 2)
    lab.command(1, LESetEventMask())
    lab.advertise(0)
    lab.command(1, Lab.creation(to: Lab.address(0)))
    lab.run(100)
    #expect(lab.hexes(1).last == "04 3E 13 01 00 01 00 00 00 01 44 33 22 11 00 06 00 00 00 64 00 00")
  }
  @Test func extendedCreateConnection() {
    var lab = Lab(hosts: 2)
    lab.advertise(0)
    var create = LEExtendedCreateConnection()
    create.peerAddress = Lab.address(0)
    lab.command(1, create)
    lab.run(100)
    let events = lab.texts(1)
    #expect(events.count == 2)
    #expect(events[1].hasPrefix("LE_Enhanced_Connection_Complete Status: 0x00"))
  }
  @Test func directedConnection() {
    var lab = Lab(hosts: 3)
    lab.advertise(0, .connectableDirectedHighDutyCycle) { $0.peerAddress = Lab.address(2) }
    lab.command(1, Lab.creation(to: Lab.address(0)))
    lab.run(100)
    #expect(lab.packets(1).count == 1, "directed to somebody else")
    lab.command(2, Lab.creation(to: Lab.address(0)))
    lab.run(100)
    #expect(lab.packets(2).count == 2)
  }
  @Test func cancelling() {
    var lab = Lab(hosts: 1)
    lab.command(0, Lab.creation(to: Lab.address(5)))
    lab.run(100)
    lab.command(0, LECreateConnectionCancel())
    lab.run(1)
    let events = lab.hexes(0)
    #expect(events.count == 3)
    #expect(events[1] == "04 0E 04 01 0E 20 00")
    #expect(events[2].hasPrefix("04 3E 1F 0A 02"))
  }
  @Test func aLostConnectRequest() {
    // The peripheral is removed between its advertisement and CONNECT_IND, which equals losing all packets.
    var sawFailure = false
    for seed in 0..<60 where !sawFailure {
      var lab = Lab(seed: UInt64(seed), .realistic, hosts: 2)
      lab.advertise(0)
      lab.run(20)
      lab.world.air.setLoss(0.5)
      lab.command(1, Lab.creation(to: Lab.address(0), interval: 24))
      var steps = 0
      while lab.world.air.linkCount(of: ControllerID(1)) == 0, steps < 500 {
        lab.run(1)
        steps += 1
      }
      if lab.world.air.linkCount(of: ControllerID(0)) > 0 { continue }
      lab.run(300)
      let events = lab.texts(1)
      sawFailure = events.contains { $0.hasPrefix("Disconnection_Complete") && $0.contains("Reason: 0x3E") }
    }
    #expect(sawFailure)
  }
}
