import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Extended advertising and the Filter Accept List, by their octets.
@Suite struct ExtendedAdvertisingTests {
  /// Sends commands; all must succeed.
  private func send(_ lab: inout Lab, _ host: Int, _ commands: [String], _ status: UInt8 = 0) {
    for command in commands {
      _ = lab.packets(host)
      lab.send(host, command)
      lab.run(1)
      #expect(lab.packets(host).first.map { $0[6] } == status, "\(command)")
    }
  }
  /// Handle, properties, the rest as usual: every 20 ms, public address, SID 5.
  private func parameters(_ handle: String, _ properties: String) -> String {
    "01 36 20 19 \(handle) \(properties) 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 00"
  }
  private func scanExtended(_ lab: inout Lab, _ host: Int, active: Bool = false, filter: Bool = true, policy: UInt8 = 0)
  {
    let parameters = LESetExtendedScanParameters.with {
      $0.scanningFilterPolicy = ScanningFilterPolicy(rawValue: policy)
      $0.le1M.scanType = active ? .active : .passive
    }
    lab.command(host, parameters)
    let enable = LESetExtendedScanEnable.with {
      $0.enable = true
      $0.filterDuplicates = filter ? .enabled : .disabled
    }
    lab.command(host, enable)
  }

  @Test func aSetOfLegacyPDUs() {
    var lab = Lab(hosts: 2)
    send(&lab, 0, [parameters("01", "13 00"), "01 37 20 07 01 03 01 03 02 01 06", "01 38 20 06 01 03 01 02 01 09"])
    send(&lab, 0, ["01 39 20 06 01 01 01 00 00 00"])
    lab.scan(1, active: true, filter: true)
    lab.run(100)
    #expect(
      lab.hexes(1).filter { $0.hasPrefix("04 3E") } == [
        "04 3E 0F 02 01 00 00 01 44 33 22 11 00 03 02 01 06 EC", "04 3E 0E 02 01 04 00 01 44 33 22 11 00 02 01 09 EC",
      ])
    lab.command(1, LESetScanEnable())
    lab.command(1, Lab.creation(to: Lab.address(0)))
    _ = lab.packets(0)
    lab.run(100)
    let events = lab.hexes(0)
    #expect(events.count == 2)
    #expect(events.last == "04 3E 06 12 00 01 01 00 00")
  }
  @Test func longDataComesInPieces() {
    var lab = Lab(hosts: 2)
    let filler = hex([UInt8](repeating: 0xAB, count: 200))
    send(
      &lab, 0,
      [
        parameters("02", "40 00"), "01 37 20 CC 02 01 01 C8 \(filler)", "01 37 20 CC 02 02 01 C8 \(filler)",
        "01 39 20 06 01 01 02 00 00 00",
      ])
    scanExtended(&lab, 1)
    lab.run(60)
    let reports = lab.packets(1).filter { $0[1] == 0x3E }
    #expect(reports.map { $0[5] } == [0x20, 0x00], "data status: more, complete")
    #expect(reports.map { $0[28] } == [229, 171])
    #expect(reports[0][16] == 5 && reports[0][17] == 0, "SID, transmit power")
    // Legacy scanners do not hear extended PDUs.
    lab.send(1, "01 03 0C 00")
    lab.command(1, SetEventMask())
    lab.scan(1)
    lab.run(60)
    #expect(lab.packets(1).allSatisfy { $0[1] == 0x0E })
  }
  @Test func scannableAndAnonymous() {
    var lab = Lab(hosts: 2)
    send(&lab, 0, [parameters("01", "02 00"), parameters("02", "20 00")])
    send(&lab, 0, ["01 39 20 06 01 01 01 00 00 00"], 0x0C)
    send(&lab, 0, ["01 38 20 06 01 03 01 02 01 09", "01 39 20 0A 01 02 01 00 00 00 02 00 00 00"])
    scanExtended(&lab, 1, active: true)
    lab.run(60)
    let reports = lab.packets(1).filter { $0[1] == 0x3E }
    #expect(Set(reports.map { $0[5] }) == [0x02, 0x0A, 0x00])
    #expect(reports.first { $0[5] == 0 }?[7] == 0xFF)
  }
  @Test func setsEndByThemselves() {
    var lab = Lab(hosts: 2)
    scanExtended(&lab, 1, filter: false)
    send(&lab, 0, [parameters("01", "10 00"), parameters("02", "10 00"), "01 37 20 07 02 03 01 03 02 01 06"])
    send(&lab, 0, ["01 39 20 0A 01 02 01 0A 00 00 02 00 00 03"])
    lab.run(200)
    #expect(lab.hexes(0) == ["04 3E 06 12 43 02 00 00 03", "04 3E 06 12 3C 01 00 00 00"])
    // Three events were asked for, and three were sent; the scanner is on one of the channels at a time.
    #expect(lab.packets(1).filter { $0[1] == 0x3E && $0.suffix(3) == [2, 1, 6] }.count == 3)
  }
  /// A long chain sometimes loses its end, which status 2 reports.
  @Test func chainsAreCut() {
    var air = AirConfiguration.ideal
    air.loss = 0.2
    var lab = Lab(
      air, [ControllerConfiguration(address: Lab.address(0)), ControllerConfiguration(address: Lab.address(1))])
    let octets = (0..<1000).map { UInt8(truncatingIfNeeded: $0 / 7) }
    send(&lab, 0, [parameters("02", "00 00")])
    for start in stride(from: 0, to: 1000, by: 250) {
      let operation = start == 0 ? "01" : start == 750 ? "02" : "00"
      send(&lab, 0, ["01 37 20 FE 02 \(operation) 01 FA \(hex(Array(octets[start..<start + 250])))"])
    }
    send(&lab, 0, ["01 39 20 06 01 01 02 00 00 00"])
    scanExtended(&lab, 1, filter: false)
    lab.run(2000)
    var data: [UInt8] = [], lengths: [Int: Int] = [:]
    for report in lab.packets(1) where report[1] == 0x3E {
      data += report[29...]
      let status = report[5] >> 5
      if status == 1 { continue }
      #expect(data == Array(octets[..<data.count]) && (status == 0) == (data.count == 1000))
      lengths[data.count, default: 0] += 1
      data = []
    }
    #expect(Set(lengths.keys) == [245, 490, 735, 980, 1000] && lengths[1000]! > 10, "\(lengths)")
  }
  @Test func scanRequestsAreReportedIfEnabled() {
    var lab = Lab(hosts: 2)
    var wanted = octets(parameters("01", "12 00"))
    wanted[wanted.count - 1] = 1
    send(
      &lab, 0,
      [hex(wanted), parameters("02", "12 00"), "01 38 20 06 01 03 01 02 01 09", "01 39 20 06 01 01 01 00 00 00"])
    scanExtended(&lab, 1, active: true)
    lab.run(30)
    #expect(lab.hexes(0).last == "04 3E 09 13 01 00 02 44 33 22 11 00")
    send(&lab, 0, ["01 39 20 02 00 00", "01 39 20 06 01 01 02 00 00 00"])
    lab.run(30)
    #expect(lab.packets(0).isEmpty)
  }
  @Test func setsHaveRules() {
    var lab = Lab(hosts: 1)
    send(&lab, 0, ["01 37 20 04 09 03 01 00", "01 3C 20 01 09", "01 39 20 06 01 01 09 00 00 00"], 0x42)
    send(&lab, 0, [parameters("01", "03 00"), parameters("01", "17 00"), "01 39 20 02 01 00"], 0x12)
    send(&lab, 0, (0..<8).map { parameters("0\($0)", "13 00") })
    send(&lab, 0, [parameters("08", "13 00")], 0x07)
    send(&lab, 0, ["01 39 20 06 01 01 03 00 00 00"])
    send(&lab, 0, [parameters("03", "13 00"), "01 3C 20 01 03", "01 3D 20 00", "01 0A 20 01 00"], 0x0C)
    send(&lab, 0, ["01 39 20 02 00 00", "01 3C 20 01 03", "01 3D 20 00"])
  }

  /// Vol 4, Part E, §7.8.53 – §7.8.56.
  @Test func dataHaveRules() {
    var lab = Lab(hosts: 1)
    let piece = hex([UInt8](repeating: 0xAB, count: 200))
    send(
      &lab, 0,
      [
        parameters("01", "13 00"), parameters("02", "01 00"), parameters("03", "02 00"), parameters("04", "00 00"),
        parameters("05", "15 00"),
      ])
    // Legacy: 31 octets at once. Directed and scannable extended ones: none. Not scannable: no response. Pieces: not
    // empty.
    send(
      &lab, 0,
      [
        "01 37 20 07 01 01 01 03 02 01 06", "01 37 20 24 01 03 01 20" + String(repeating: " 00", count: 32),
        "01 37 20 07 03 03 01 03 02 01 06", "01 37 20 07 05 03 01 03 02 01 06", "01 38 20 06 04 03 01 02 01 09",
        "01 37 20 04 04 01 01 00", "01 37 20 04 04 02 01 00", "01 37 20 04 04 04 01 00", "01 37 20 04 04 05 01 00",
      ], 0x12)
    // A response is discarded where there can be none.
    send(&lab, 0, ["01 38 20 04 04 03 01 00"])
    // A connectable advertisement has its data in one PDU: 245 octets.
    send(&lab, 0, ["01 37 20 CC 02 01 01 C8 \(piece)"])
    send(&lab, 0, ["01 39 20 06 01 01 02 00 00 00"], 0x0C)
    send(&lab, 0, ["01 37 20 31 02 02 01 2D" + String(repeating: " 01", count: 45), "01 39 20 06 01 01 02 00 00 00"])
    // While it advertises: complete data only, or unchanged data.
    send(&lab, 0, ["01 37 20 CC 02 01 01 C8 \(piece)"], 0x0C)
    send(&lab, 0, ["01 37 20 04 02 04 01 00", "01 39 20 02 00 00"])
    send(
      &lab, 0, ["01 37 20 CC 02 01 01 C8 \(piece)", "01 37 20 32 02 02 01 2E" + String(repeating: " 01", count: 46)])
    send(&lab, 0, ["01 39 20 06 01 01 02 00 00 00"], 0x12)
    // A set cannot change to a kind that may not have its data.
    send(&lab, 0, [parameters("02", "02 00"), parameters("02", "13 00")], 0x12)
    send(&lab, 0, ["01 3C 20 01 02", parameters("02", "02 00")])
    // 1,650 octets at most; beyond that everything is discarded.
    send(&lab, 0, ["01 37 20 CC 04 01 01 C8 \(piece)"])
    send(&lab, 0, (0..<7).map { _ in "01 37 20 CC 04 00 01 C8 \(piece)" })
    send(&lab, 0, ["01 37 20 CC 04 02 01 C8 \(piece)"], 0x07)
    send(&lab, 0, ["01 39 20 06 01 01 04 00 00 00"])
    send(&lab, 0, ["01 37 20 04 04 04 01 00"], 0x12)
  }

  @Test func acceptListFiltersScanning() {
    var lab = Lab(hosts: 2)
    lab.advertise(1)
    let parameters = LESetScanParameters.with { $0.scanningFilterPolicy = ScanningFilterPolicy(rawValue: 1) }
    lab.command(0, parameters)
    let enable = LESetScanEnable.with { $0.leScanEnable = true }
    lab.command(0, enable)
    lab.run(100)
    #expect(lab.packets(0).allSatisfy { $0[1] == 0x0E })
    send(&lab, 0, ["01 11 20 07 00 02 44 33 22 11 00"], 0x0C)
    lab.command(0, LESetScanEnable())
    send(&lab, 0, ["01 11 20 07 00 02 44 33 22 11 00"])
    lab.command(0, enable)
    lab.run(100)
    #expect(lab.packets(0).contains { $0[1] == 0x3E })
  }
  @Test func acceptListAdmitsTheAnonymous() {
    var lab = Lab(hosts: 2)
    send(&lab, 1, [parameters("01", "20 00"), "01 39 20 06 01 01 01 00 00 00"])
    for (entry, hears) in [("01 11 20 07 00 02 44 33 22 11 00", false), ("01 11 20 07 FF 00 00 00 00 00 00", true)] {
      send(&lab, 0, [entry])
      scanExtended(&lab, 0, policy: 1)
      lab.run(50)
      #expect(lab.packets(0).contains { $0[1] == 0x3E } == hears)
      send(&lab, 0, ["01 42 20 06 00 00 00 00 00 00"])
    }
    send(&lab, 0, ["01 12 20 07 FF 00 00 00 00 00 00"])
    send(&lab, 0, ["01 11 20 07 02 02 44 33 22 11 00", "01 12 20 07 02 02 44 33 22 11 00"], 0x12)
    scanExtended(&lab, 0, policy: 1)
    lab.run(50)
    #expect(lab.packets(0).allSatisfy { $0[1] == 0x0E })
  }
  @Test func acceptListSelectsThePeer() {
    var lab = Lab(hosts: 3)
    lab.advertise(1)
    lab.advertise(2)
    send(&lab, 0, ["01 11 20 07 00 03 44 33 22 11 00"])
    var create = Lab.creation(to: DeviceAddress())
    create.initiatorFilterPolicy = InitiatorFilterPolicy(rawValue: 1)
    lab.command(0, create)
    lab.run(100)
    #expect(lab.world.air.linkCount(of: ControllerID(0)) == 1)
    #expect(lab.world.air.linkCount(of: ControllerID(2)) == 1)
  }
  @Test func anAdvertiserWithAFilter() {
    var lab = Lab(hosts: 2)
    lab.advertise(1) { $0.advertisingFilterPolicy = AdvertisingFilterPolicy(rawValue: 2) }
    lab.command(0, Lab.creation(to: Lab.address(1)))
    lab.run(200)
    #expect(lab.world.air.linkCount(of: ControllerID(0)) == 0)
    lab.enableAdvertising(1, false)
    lab.run(1)
    send(&lab, 1, ["01 11 20 07 00 01 44 33 22 11 00"])
    lab.enableAdvertising(1)
    lab.run(200)
    #expect(lab.world.air.linkCount(of: ControllerID(0)) == 1)
  }
}
