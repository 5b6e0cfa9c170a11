import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

private let adv: UInt8 = 0, nonconnectable: UInt8 = 3, response: UInt8 = 4
private let passive = ScanParameters(isActive: false)

extension Bench {
  fileprivate var discoveries: [Discovery] {
    effects.compactMap { if case .discovered(_, let discovery) = $0 { discovery } else { nil } }
  }
  fileprivate mutating func scan(
    _ parameters: ScanParameters = ScanParameters(), _ filter: ScanFilter = ScanFilter(), id: UInt64 = 0
  ) {
    perform { core, now in core.startScan(parameters, filter: filter, id: ScanID(rawValue: id), now: now) }
    answerAll()
  }
  fileprivate mutating func stop(_ id: UInt64 = 0) {
    perform { core, now in core.stopScan(id: ScanID(rawValue: id), now: now) }
    answerAll()
  }
  fileprivate static func scanning(
    _ parameters: ScanParameters = ScanParameters(), _ filter: ScanFilter = ScanFilter(),
    controller: PaperController = PaperController()
  ) -> Bench {
    var bench = Bench.started(controller: controller)
    bench.scan(parameters, filter)
    _ = bench.takeAll()
    return bench
  }
}
private func peer(_ number: UInt64) -> PeerAddress { PeerAddress(DeviceAddress(0xC000_0000_0000 + number), .random) }

@Suite("HostCore: scanning") struct ScanningTests {
  @Test("S111: after stopScan nothing more is discovered") func onlyWhileItIsWanted() {
    var bench = Bench.started()
    let heard = report(adv, Bench.peer, octets("03 09 41 42"))
    bench.receive(heard)
    bench.scan(passive)
    bench.receive(heard)
    bench.perform { core, now in core.stopScan(now: now) }
    bench.receive(heard)
    bench.answerAll()
    bench.receive(heard)
    same(bench.takeTexts(), ["scanStarted", "discovered: 03 09 41 42", "scanStopped"])
  }
  /// The host does not enable LE Directed Advertising Report; one that comes causes neither a discovery nor a
  /// violation, and the scan continues. Vol 4, Part E, §7.7.65.11.
  @Test("A directed advertising report is ignored") func directedReports() {
    var bench = Bench.scanning(passive)
    #expect(bench.core.controller?.leEventMask.contains(.directedAdvertisingReport) == false)
    bench.receive("04 3E 12 0B 01 01 00 01 44 33 22 11 00 01 AA FB 0D 94 81 70 EC")
    same(bench.takeAll(), [])
    bench.receive(report(adv, Bench.peer, octets("03 09 41 42")))
    same(bench.takeTexts(), ["discovered: 03 09 41 42"])
  }
  /// An advertisement held for its response is not reported after stopScan either.
  @Test("S111: after stopScan nothing received before is discovered") func stoppedScanReportsNothing() {
    var bench = Bench.scanning()
    bench.receive(report(adv, Bench.peer, [2, 1, 6]))
    bench.stop()
    bench.wait(.seconds(1))
    bench.scan()
    bench.wait(.seconds(1))
    same(bench.takeTexts(), ["scanStopped", "scanStarted"])
  }

  @Test func severalReportsInOneEvent() throws {
    var bench = Bench.scanning()
    bench.receive(
      octets("04 3E 1C 02 02 03 00 01 53 00 5E 00 00 03 02 01 06 C8 04 01 02 53 00 5E 00 C0 03 02 09 42 7F"))
    same(bench.takeTexts(), ["discovered: 02 01 06", "discovered: , response 02 09 42"])
    let first = try #require(bench.discoveries.first), second = try #require(bench.discoveries.last)
    #expect(
      first.address == Bench.peer && !first.isConnectable && !first.isScannable && first.isLegacy && first.rssi == -56)
    #expect(second.address == Bench.otherPeer && second.isScannable && second.rssi == nil)
  }

  // MARK: Extended reports

  /// LE Extended Advertising Report with one report. `type`: 8 is a scan response.
  private func extended(
    _ status: UInt8, _ peer: UInt8, sid: UInt8, _ data: [UInt8], type: UInt16 = 0
  ) -> [UInt8] {
    [4, 0x3E, UInt8(26 + data.count), 0x0D, 1] + little(UInt16(status) << 5 | type) + [1, peer, 0x53, 0, 0x5E, 0, 0xC0]
      + [1, 1, sid, 127, 0xC8, 0, 0, 0, 0, 0, 0, 0, 0, 0, UInt8(data.count)] + data
  }

  @Test func fragmentsAreJoined() {
    var bench = Bench.scanning(controller: .extended)
    bench.receive(extended(0, 1, sid: 0, [1]))
    bench.receive(extended(1, 1, sid: 0, [2, 3]))
    bench.receive(extended(1, 2, sid: 0, [4]))
    bench.receive(extended(1, 1, sid: 1, [5]))
    bench.receive(extended(1, 1, sid: 0, [6], type: 8))
    bench.receive(extended(1, 1, sid: 0, []))
    bench.receive(extended(0, 1, sid: 0, [7]))
    bench.receive(extended(2, 2, sid: 0, [8]))
    bench.receive(extended(0, 1, sid: 0, [9], type: 8))
    bench.receive(extended(0, 1, sid: 1, []))
    bench.receive(extended(2, 3, sid: 0, [10]))
    same(
      bench.takeTexts(),
      [
        "discovered: 01", "discovered: 02 03 07", "discovered truncated: 04 08", "discovered: , response 06 09",
        "discovered: 05", "discovered truncated: 0A",
      ])
    same(bench.core.scanner.joiner.octetsKept, 0)
  }
  /// An extended scannable advertisement has no data itself; its response comes in pieces, the first within the time.
  @Test func aLongScanResponse() throws {
    var bench = Bench.scanning(ScanParameters(coalescesDuplicates: true), controller: .extended)
    bench.receive(extended(0, 1, sid: 0, [], type: 2))
    bench.receive(extended(1, 1, sid: 0, [UInt8](repeating: 7, count: 200), type: 10))
    same(bench.takeTexts(), [])
    bench.receive(extended(0, 1, sid: 0, [UInt8](repeating: 7, count: 200), type: 10))
    bench.wait(.seconds(1))
    let found = try #require(bench.discoveries.first)
    same(bench.discoveries.count, 1)
    #expect(found.advertising.isEmpty && !found.isTruncated && !found.isLegacy)
    same(found.scanResponse?.count, 400)
    // The host does not remember such long responses: bounded memory.
    expect(bench.core.scans.devices[0].scanResponse == nil)
  }
  /// Truncated data are reported as truncated, and once more when they arrive complete.
  @Test func truncatedThenWhole() {
    var bench = Bench.scanning(ScanParameters(coalescesDuplicates: true), controller: .extended)
    for status: UInt8 in [2, 2, 0, 2, 0] { bench.receive(extended(status, 1, sid: 0, [status])) }
    same(bench.takeTexts(), ["discovered truncated: 02", "discovered: 00"])
  }

  @Test func storedPiecesAreBounded() throws {
    var bench = Bench.scanning(controller: .extended)
    let part = [UInt8](repeating: 0xAA, count: 200)
    for _ in 0..<20 { bench.receive(extended(1, 1, sid: 0, part)) }
    same(bench.core.scanner.joiner.octetsKept, ReportJoiner.longest)
    bench.receive(extended(0, 1, sid: 0, part))
    let cut = try #require(bench.discoveries.last)
    #expect(cut.isTruncated && cut.advertising.count == 1650)
    _ = bench.takeAll()
    for peer in 0..<100 { bench.receive(extended(1, UInt8(peer), sid: 0, part)) }
    same(bench.core.scanner.joiner.octetsKept, ReportJoiner.capacity * 200)
    // The last ones are still stored.
    bench.receive(extended(0, 99, sid: 0, [1]))
    let whole = try #require(bench.discoveries.last)
    #expect(!whole.isTruncated && whole.advertising.count == 201)
    // A new scan begins with no stored pieces.
    bench.stop()
    bench.scan()
    same(bench.core.scanner.joiner.octetsKept, 0)
  }

  // MARK: Two PDUs, one discovery

  @Test("S108, S110: advertisement and scan response are one discovery, with data, name and RSSI") func joined() throws
  {
    var bench = Bench.scanning()
    bench.receive(report(adv, Bench.peer, octets("03 03 0D 18"), rssi: -60))
    same(bench.takeTexts(), [])
    bench.receive(report(response, Bench.peer, octets("03 09 41 42"), rssi: -58))
    same(bench.takeTexts(), ["discovered: 03 03 0D 18, response 03 09 41 42"])
    let found = try #require(bench.discoveries.first)
    #expect(found.isConnectable && found.isScannable && found.rssi == -58 && found.address == Bench.peer)
    #expect(found.addressOnAir == Bench.peer)
    same(bench.core.deadline, nil)
  }
  @Test func withoutAResponseItComesOnTime() {
    var bench = Bench.scanning()
    bench.receive(report(adv, Bench.peer, [2, 1, 6]))
    same(bench.core.deadline, bench.now + .milliseconds(100))
    bench.wait(.milliseconds(99))
    same(bench.takeTexts(), [])
    bench.wait(.milliseconds(1))
    same(bench.takeTexts(), ["discovered: 02 01 06"])
    same(bench.core.deadline, nil)
    // The next advertisement of the same device ends the wait; one of another device does not.
    bench.receive(report(adv, Bench.peer, [2, 1, 4]))
    bench.receive(report(adv, Bench.otherPeer, [2, 1, 5]))
    same(bench.takeTexts(), [])
    bench.wait(.milliseconds(20))
    bench.receive(report(adv, Bench.peer, [2, 1, 6]))
    same(bench.takeTexts(), ["discovered: 02 01 04"])
    // The previous response replaces a missing one, and a late one is joined to its advertisement.
    bench.receive(report(response, Bench.peer, [2, 9, 0x41]))
    bench.receive(report(adv, Bench.peer, [2, 1, 7]))
    bench.wait(.milliseconds(100))
    bench.receive(report(response, Bench.otherPeer, [2, 9, 0x42]))
    same(
      bench.takeTexts(),
      [
        "discovered: 02 01 06, response 02 09 41", "discovered: 02 01 05", "discovered: 02 01 07, response 02 09 41",
        "discovered: 02 01 05, response 02 09 42",
      ])
  }
  /// Advertisements that are not scannable, and those of a passive scan, do not wait. Passive callers get no responses,
  /// even if an active caller causes them.
  @Test func advertisementsThatDoNotWait() {
    var bench = Bench.scanning()
    bench.scan(passive, id: 1)
    _ = bench.takeAll()
    bench.receive(report(nonconnectable, Bench.peer, [2, 1, 6]))
    same(bench.takeTexts(), ["discovered: 02 01 06", "discovered 1: 02 01 06"])
    bench.receive(report(adv, Bench.otherPeer, [2, 1, 4]))
    same(bench.takeTexts(), ["discovered 1: 02 01 04"])
    bench.receive(report(response, Bench.otherPeer, [2, 9, 0x41]))
    same(bench.takeTexts(), ["discovered: 02 01 04, response 02 09 41"])
    bench.stop()
    _ = bench.takeAll()
    bench.receive(report(adv, Bench.otherPeer, [2, 1, 5]))
    bench.receive(report(response, Bench.otherPeer, [2, 9, 0x41]))
    same(bench.takeTexts(), ["discovered 1: 02 01 05"])
    same(bench.core.deadline, nil)
  }

  // MARK: Duplicates

  @Test("S26: discoveries of one device are coalesced into one") func coalesced() {
    var bench = Bench.scanning(ScanParameters(coalescesDuplicates: true))
    bench.scan(passive, id: 1)
    _ = bench.takeAll()
    for count in 0..<UInt8(20) {
      bench.receive(report(nonconnectable, Bench.peer, [2, 0xFF, count]))
      bench.receive(report(nonconnectable, Bench.otherPeer, [2, 0xFF, count]))
    }
    let texts = bench.takeTexts()
    same(texts.filter { $0.hasPrefix("discovered 1:") }.count, 40)
    same(texts.filter { $0.hasPrefix("discovered:") }, ["discovered: 02 FF 00", "discovered: 02 FF 00"])
    // A new scan reports the device again.
    bench.scan(ScanParameters(coalescesDuplicates: true))
    bench.stop(1)
    _ = bench.takeAll()
    bench.receive(report(nonconnectable, Bench.peer, [2, 0xFF, 77]))
    same(bench.takeTexts(), ["discovered: 02 FF 4D"])
  }
  /// Reported when first received, and once more with its response.
  @Test func aResponseThatComesLater() {
    var bench = Bench.scanning(ScanParameters(coalescesDuplicates: true), ScanFilter(minimumRSSI: -90))
    for _ in 0..<3 {
      bench.receive(report(adv, Bench.peer, [2, 1, 6]))
      bench.wait(.seconds(1))
    }
    for _ in 0..<3 {
      bench.receive(report(adv, Bench.peer, [2, 1, 6]))
      bench.receive(report(response, Bench.peer, [2, 9, 0x41]))
      bench.wait(.seconds(1))
    }
    same(bench.takeTexts(), ["discovered: 02 01 06", "discovered: 02 01 06, response 02 09 41"])
  }
  @Test("S25: a background scan coalesces duplicates even if it requested them") func inTheBackground() {
    var bench = Bench.scanning(ScanParameters(isActive: false, intent: .background, coalescesDuplicates: false))
    for count in 0..<UInt8(5) { bench.receive(report(adv, Bench.peer, [2, 0xFF, count])) }
    same(bench.takeTexts(), ["discovered: 02 FF 00"])
  }
  /// A device is reported as soon as it meets the filter.
  @Test func itComesNearer() {
    var bench = Bench.scanning(
      ScanParameters(isActive: false, coalescesDuplicates: true), ScanFilter(minimumRSSI: -60))
    for rssi: Int8 in [-80, 127, -61, -60, -50] {
      bench.receive(report(adv, Bench.peer, [UInt8(bitPattern: rssi)], rssi: rssi))
    }
    same(bench.takeTexts(), ["discovered: C4"])
  }

  // MARK: Filters

  /// A device with many kinds of data: each filter, and whether the device meets it.
  @Test("S107: only devices that advertise those services", arguments: ScanningTests.filters) func filtered(
    filter: ScanFilter, isMet: Bool
  ) {
    var bench = Bench.scanning(ScanParameters(), filter)
    // Flags, 16-bit UUIDs 180D 180F, shortened name "Rune"; manufacturer 0xFFFF 01 02; a solicited 128-bit UUID in the
    // rest.
    bench.receive(report(adv, Bench.peer, octets("02 01 06 05 03 0D 18 0F 18 05 08 52 75 6E 65 05 FF FF FF 01 02")))
    bench.receive(
      report(
        response, Bench.peer, octets("11 15 F0 DE BC 9A 78 56 34 12 78 56 34 12 78 56 34 12 07 09 52 75 6E 65 2D 31")))
    same(bench.discoveries.count, isMet ? 1 : 0)
  }
  static let filters: [(ScanFilter, Bool)] = [
    (ScanFilter(), true),
    (ScanFilter(services: ["180D"]), true), (ScanFilter(services: ["0000180F-0000-1000-8000-00805F9B34FB"]), true),
    (ScanFilter(services: ["1810"]), false), (ScanFilter(services: ["1810", "180F"]), true),
    (ScanFilter(solicitedServices: ["12345678-1234-5678-1234-56789ABCDEF0"]), true),
    (ScanFilter(solicitedServices: ["180D"]), false),
    (ScanFilter(services: ["12345678-1234-5678-1234-56789ABCDEF0"]), false),
    (ScanFilter(name: .exact("Rune-1")), true), (ScanFilter(name: .exact("Rune")), false),
    (ScanFilter(name: .exact("Rune-12")), false), (ScanFilter(name: .prefix("Ru")), true),
    (ScanFilter(name: .prefix("Rune-1")), true), (ScanFilter(name: .prefix("")), true),
    (ScanFilter(name: .prefix("une")), false),
    (ScanFilter(minimumRSSI: -56), true), (ScanFilter(minimumRSSI: -55), false),
    (ScanFilter(manufacturer: .init(companyIdentifier: 0xFFFF)), true),
    (ScanFilter(manufacturer: .init(companyIdentifier: 0xFFFF, dataPrefix: [1, 2])), true),
    (ScanFilter(manufacturer: .init(companyIdentifier: 0xFFFF, dataPrefix: [1, 2, 3])), false),
    (ScanFilter(manufacturer: .init(companyIdentifier: 0x004C)), false),
    (ScanFilter(isConnectableOnly: true), true),
    (ScanFilter(services: ["180D"], name: .prefix("Rune"), isConnectableOnly: true), true),
    (ScanFilter(services: ["180D"], name: .prefix("Bind")), false),
  ]
  @Test("S106: without services all devices are reported, also those without data") func unfiltered() {
    var bench = Bench.scanning(passive)
    bench.scan(passive, ScanFilter(isConnectableOnly: true), id: 1)
    _ = bench.takeAll()
    bench.receive(report(nonconnectable, Bench.peer, []))
    bench.receive(report(1, Bench.otherPeer, []))
    same(bench.takeTexts(), ["discovered: ", "discovered: ", "discovered 1: "])
  }
  /// The mask of a phone in the background, as it was captured: C007 is octet 4, bit 4; 1001 and 3333 are both octet 7,
  /// bit 1.
  @Test("S32: a scan for services in the overflow area finds them") func overflow() {
    for (mask, hits) in [
      ("00 00 00 00 10 00 00 00 00 00 00 00 00 00 00 00", ["C007"]),
      ("00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00", ["1001", "3333"]),
    ] {
      let advertisement = octets("02 01 1A 14 FF 4C 00 01 " + mask)
      for (id, uuid) in ["C007", "1001", "3333", "180D"].enumerated() {
        var bench = Bench.scanning(passive)
        let filter = ScanFilter(services: [BluetoothUUID(uuid)!])
        bench.scan(passive, filter, id: UInt64(id) + 1)
        _ = bench.takeAll()
        bench.receive(report(adv, Bench.peer, advertisement))
        // The scan without services finds the device, and reports no overflow services.
        same(bench.discoveries.count, hits.contains(uuid) ? 2 : 1)
        same(ScanFilter().overflowHits(advertisement.span), [])
        same(filter.overflowHits(advertisement.span), hits.contains(uuid) ? [BluetoothUUID(uuid)!] : [])
      }
    }
    // A service in a UUID list is no overflow service, and the area may be in the scan response.
    let named = octets("03 03 01 10"), area = octets("14 FF 4C 00 01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 00")
    same(ScanFilter(services: ["1001", "3333"]).overflowHits(named.span, area.span), ["3333"])
  }

  // MARK: One controller scan for all

  /// The last LE Set Scan Parameters sent, and Filter_Duplicates.
  private func sent(_ bench: inout Bench) -> String {
    var parameters = "", isFiltered = false
    repeat {
      if bench.sent.last == "LE_Set_Scan_Parameters" {
        let fields = bench.lastCommand.split(separator: ", ").prefix(3)
        parameters = fields.map { String($0.split(separator: ": ")[1]) }.joined(separator: ", ")
      }
      if bench.sent.last == "LE_Set_Scan_Enable(on)" { isFiltered = bench.lastCommand.hasSuffix("true") }
    } while bench.answer()
    bench.forget()
    return parameters + (isFiltered ? ", filtered" : "")
  }

  @Test("S27: intervals rise if, and only if, all scans are background scans") func intervals() {
    var bench = Bench.started()
    let steps: [(id: UInt64, parameters: ScanParameters?, expected: String)] = [
      (1, .background, "passive, 2048 (1280 ms), 18 (11.25 ms), filtered"),
      (2, ScanParameters(isActive: false, intent: .balanced), "passive, 96 (60 ms), 48 (30 ms)"),
      (3, ScanParameters(isActive: true, intent: .background), "active, 96 (60 ms), 48 (30 ms)"),
      (4, ScanParameters(isActive: false), "active, 96 (60 ms), 96 (60 ms)"),
      (3, nil, "passive, 96 (60 ms), 96 (60 ms)"),
      (4, nil, "passive, 96 (60 ms), 48 (30 ms)"),
      (2, nil, "passive, 2048 (1280 ms), 18 (11.25 ms), filtered"),
      (1, nil, ""),
    ]
    for step in steps {
      bench.perform { core, now in
        if let parameters = step.parameters {
          core.startScan(parameters, id: ScanID(rawValue: step.id), now: now)
        } else {
          core.stopScan(id: ScanID(rawValue: step.id), now: now)
        }
      }
      same(sent(&bench), step.expected)
    }
    same(name(bench.core.scanner.phase), "off")
  }
  /// The controller may filter duplicates if every scan needs only the first report of each device.
  @Test func whoFiltersDuplicates() {
    var bench = Bench.started()
    let once = ScanParameters(isActive: false, coalescesDuplicates: true)
    func start(_ id: UInt64, _ parameters: ScanParameters, _ filter: ScanFilter = ScanFilter()) -> String {
      bench.perform { core, now in core.startScan(parameters, filter: filter, id: ScanID(rawValue: id), now: now) }
      return sent(&bench)
    }
    let base = "passive, 96 (60 ms), 96 (60 ms)"
    same(start(1, once), base + ", filtered")
    // Another scan of the same kind needs again what the controller has reported already.
    same(start(2, once), base + ", filtered")
    // A filter that may be met later, and a scan with duplicates.
    same(start(3, once, ScanFilter(services: ["180D"])), base)
    same(start(3, once), base + ", filtered")
    same(start(4, passive), base)
    same(start(5, passive), "")
  }
  /// A scan with the same parameters causes no command; one that needs more changes the parameters for all, at once.
  @Test func startsAndFailures() {
    var bench = Bench.scanning(passive)
    bench.scan(passive, ScanFilter(services: ["180D"]), id: 1)
    same(bench.takeAll(), ["scanStarted 1"])
    bench.scan(ScanParameters(), id: 2)
    same(
      bench.takeAll(),
      ["LE_Set_Scan_Enable(off)", "LE_Set_Scan_Parameters", "LE_Set_Scan_Enable(on)", "scanStarted 2"])
    // Invalid parameters are refused without effect on the others.
    let nonsense = ScanParameters(
      intent: .custom(interval: ScanInterval(rawValue: 0x4001), window: ScanInterval(rawValue: 4)))
    bench.scan(nonsense, id: 3)
    same(bench.takeAll(), ["scanFailed 3 0x12"])
    // A refusal of the controller ends all scans, once each.
    bench.perform { core, now in core.stopScan(id: ScanID(rawValue: 2), now: now) }
    bench.answer()
    bench.answer(.commandDisallowed)
    same(
      bench.takeAll(),
      ["LE_Set_Scan_Enable(off)", "LE_Set_Scan_Parameters", "scanStopped 2", "scanFailed 0x0C", "scanFailed 1 0x0C"])
    expect(bench.core.scans.isEmpty)
  }

  // MARK: Storms

  /// 100,000 addresses that are received once each, scannable or not, with a scan of each kind; among them one device
  /// that advertises all the time.
  @Test func stormOfRandomAddresses() {
    var bench = Bench.scanning(ScanParameters(coalescesDuplicates: true))
    bench.scan(ScanParameters(isActive: false, coalescesDuplicates: true), ScanFilter(name: .prefix("A")), id: 1)
    bench.isReading = false
    var chance = SplitMix64(seed: 4), discoveries: [ScanID: Int] = [:], ofOurs = 0
    for number in 0..<100_000 {
      let stranger = PeerAddress(DeviceAddress(UInt64.random(in: 0..<1 << 48, using: &chance)), .random)
      bench.receive(report(number % 2 == 0 ? adv : nonconnectable, stranger, [2, 9, 0x41]))
      if number % 1000 == 0 { bench.receive(report(nonconnectable, Bench.peer, [2, 9, 0x41])) }
      if number % 5000 == 0 { bench.wait(.milliseconds(200)) }
      for effect in bench.effects {
        guard case .discovered(let id, let discovery) = effect else { continue }
        discoveries[id, default: 0] += 1
        if discovery.address == Bench.peer { ofOurs += 1 }
      }
      bench.forget()
      if bench.core.scans.devices.count > HeardDevices.capacity || bench.core.scans.heldCount > Scans.heldAtMost {
        Issue.record("\(bench.core.scans.devices.count) devices, \(bench.core.scans.heldCount) held")
      }
    }
    bench.wait(.milliseconds(200))
    for effect in bench.effects { if case .discovered(let id, _) = effect { discoveries[id, default: 0] += 1 } }
    same(ofOurs, 2)
    same(discoveries[ScanID(rawValue: 0)], 100_001)
    same(discoveries[ScanID(rawValue: 1)], 100_001)
    same(bench.core.scans.devices.count, HeardDevices.capacity)
  }
  /// The device received least recently is forgotten first, and is reported again once.
  @Test func theBound() {
    var bench = Bench.scanning(ScanParameters(isActive: false, coalescesDuplicates: true), ScanFilter(minimumRSSI: -99))
    let count = UInt64(HeardDevices.capacity)
    func hear(_ number: UInt64) -> Int {
      bench.receive(report(nonconnectable, peer(number), []))
      return bench.takeTexts().count
    }
    for number in 0..<count { same(hear(number), 1) }
    same(hear(0), 0)
    // It replaces 1.
    same(hear(count), 1)
    same(hear(0), 0)
    same(hear(2), 0)
    same(hear(1), 1)
    // 1 replaced 3.
    same(hear(4), 0)
    same(hear(3), 1)
  }
  /// If too many advertisements wait for responses, the oldest is reported without one; none is lost.
  @Test func manyAreHeld() {
    var bench = Bench.scanning()
    for number in 0..<UInt64(100) { bench.receive(report(adv, peer(number), [])) }
    same(bench.core.scans.heldCount, Scans.heldAtMost)
    same(bench.discoveries.map(\.address), (0..<UInt64(100 - Scans.heldAtMost)).map(peer))
    bench.wait(.milliseconds(100))
    same(bench.discoveries.map(\.address), (0..<100).map(peer))
  }
}
