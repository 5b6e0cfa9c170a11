import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// A host, and everything that its controller reports to it.
private struct Listener: ~Copyable, HCIHost {
  /// One report, with its time.
  struct Report {
    var at: Instant
    var peer: PeerAddress
    var isConnectable: Bool, isScannable: Bool, isScanResponse: Bool
    var rssi: Int8?
    var bytes: [UInt8]
  }
  /// A discovery, with the time of its report.
  struct Reported: Equatable, CustomStringConvertible {
    var at: Instant
    var isConnectable: Bool
    var rssi: Int8?
    var advertising: [UInt8]
    var scanResponse: [UInt8]?
    var description: String {
      "\(at.nanoseconds / 1_000) µs: \(hex(advertising)), \(scanResponse.map { hex($0) } ?? "no response")"
        + "\(isConnectable ? ", connectable" : ""), \(rssi.map { "\($0)" } ?? "?") dBm"
    }
  }
  var core: HostCore
  var reports: [Report] = []
  var reported: [ScanID: [PeerAddress: [Reported]]] = [:]
  var begun: [ScanID: Instant] = [:]
  var violations: [String] = []

  init() { core = HostCore(database: Database()) }
  mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    if case .leAdvertisingReport(let event)? = try? HCIEvent(packet) {
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) {
        let type = report.eventType
        reports.append(
          Report(
            at: now, peer: PeerAddress(report.address, report.addressType), isConnectable: type.rawValue < 2,
            isScannable: type.rawValue == 0 || type.rawValue == 2, isScanResponse: type.rawValue == 4,
            rssi: report.rssi,
            bytes: report.data.array(in: packet)))
      }
    }
    if case .leExtendedAdvertisingReport(let event)? = try? HCIEvent(packet) {
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) {
        #expect(report.dataStatus == .complete)
        reports.append(
          Report(
            at: now, peer: PeerAddress(report.address, report.addressType), isConnectable: report.connectable,
            isScannable: report.scannable, isScanResponse: report.scanResponse, rssi: report.rssi,
            bytes: report.data.array(in: packet)))
      }
    }
    core.receive(packet, now: now)
    drain(now)
  }
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    let wrote = core.nextPacket(into: &output, now: now)
    drain(now)
    return wrote
  }
  var deadline: Instant? { core.deadline }
  mutating func expire(now: Instant) {
    core.expire(now: now)
    drain(now)
  }
  mutating func drain(_ now: Instant) {
    while let effect = core.nextEffect() {
      switch effect {
      case .discovered(let id, let discovery):
        reported[id, default: [:]][discovery.address, default: []].append(
          Reported(
            at: now, isConnectable: discovery.isConnectable, rssi: discovery.rssi,
            advertising: core.bytes(of: discovery.advertising),
            scanResponse: discovery.scanResponse.map { core.bytes(of: $0) }))
      case .violation(_, let violation): violations.append("\(violation)")
      default: break
      }
    }
  }
}

/// A plain model of the discoveries that a caller must get, from all reports.
private struct Reference {
  var parameters: ScanParameters
  var filter: ScanFilter

  /// For one device: its reports in order, and the time when the scan began.
  func discoveries(_ reports: [Listener.Report], since begin: Instant, until end: Instant) -> [Listener.Reported] {
    var all =
      parameters.isActive ? joined(reports) : reports.filter { !$0.isScanResponse }.map { reported($0, at: $0.at) }
    all = all.filter { $0.at >= begin && $0.at <= end && isMet($0) }
    guard parameters.coalescesDuplicates || parameters.intent == .background else { return all }
    guard let first = all.first else { return [] }
    // The first, and if that one is incomplete, the first complete one.
    let isScannable = reports.contains(where: \.isScannable)
    let isWhole = { (reported: Listener.Reported) in
      !isScannable || !parameters.isActive || reported.scanResponse != nil
    }
    if isWhole(first) { return [first] }
    return [first] + (all.first(where: isWhole).map { [$0] } ?? [])
  }
  private func reported(_ report: Listener.Report, at: Instant, response: [UInt8]? = nil, rssi: Int8? = nil)
    -> Listener.Reported
  {
    Listener.Reported(
      at: at, isConnectable: report.isConnectable, rssi: rssi ?? report.rssi, advertising: report.bytes,
      scanResponse: response)
  }
  private func joined(_ reports: [Listener.Report]) -> [Listener.Reported] {
    var result: [Listener.Reported] = [], lastResponse: [UInt8]?
    for (index, report) in reports.enumerated() {
      let next = index + 1 < reports.count ? reports[index + 1] : nil
      if report.isScanResponse {
        lastResponse = report.bytes
        let before = index > 0 ? reports[index - 1] : nil
        // It has been reported with its advertisement, or comes too late for that.
        if let before, before.isScannable, report.at < before.at + .milliseconds(100) { continue }
        let advertisement = reports[..<index].last { $0.isScannable }
        result.append(
          advertisement.map { reported($0, at: report.at, response: report.bytes, rssi: report.rssi) }
            ?? Listener.Reported(
              at: report.at, isConnectable: report.isConnectable, rssi: report.rssi, advertising: [],
              scanResponse: report.bytes))
      } else if !report.isScannable {
        result.append(reported(report, at: report.at))
      } else if let next, next.at < report.at + .milliseconds(100) {
        result.append(
          next.isScanResponse
            ? reported(report, at: next.at, response: next.bytes, rssi: next.rssi)
            : reported(report, at: next.at, response: lastResponse))
      } else {
        result.append(reported(report, at: report.at + .milliseconds(100), response: lastResponse))
      }
    }
    return result
  }
  private func isMet(_ reported: Listener.Reported) -> Bool {
    let octets = reported.scanResponse ?? [], advertising = AdvertisingData(decoding: reported.advertising.span)
    let response = AdvertisingData(decoding: octets.span), both = [advertising, response]
    let areas = both.compactMap { $0.manufacturerData.flatMap { OverflowArea(manufacturerData: $0) } }
    if filter.isConnectableOnly && !reported.isConnectable { return false }
    if let minimum = filter.minimumRSSI, reported.rssi ?? -128 < minimum { return false }
    if !filter.services.isEmpty {
      let isNamed = both.contains { data in filter.services.contains(where: data.serviceUUIDs.contains) }
      let isHit = areas.contains { area in filter.services.contains(where: area.contains) }
      if !isNamed && !isHit { return false }
    }
    if !filter.solicitedServices.isEmpty {
      let isMet = both.contains { data in filter.solicitedServices.contains(where: data.solicitedServiceUUIDs.contains)
      }
      if !isMet { return false }
    }
    switch filter.name {
    case .exact(let name): if !both.contains(where: { $0.localName == name && !$0.isNameShortened }) { return false }
    case .prefix(let prefix): if !both.contains(where: { $0.localName?.hasPrefix(prefix) == true }) { return false }
    case nil: break
    }
    if let wanted = filter.manufacturer {
      let head = [UInt8(wanted.companyIdentifier & 0xFF), UInt8(wanted.companyIdentifier >> 8)] + wanted.dataPrefix
      if !both.contains(where: { $0.manufacturerData?.starts(with: head) == true }) { return false }
    }
    return true
  }
}

@Suite("Scenarios: scanning") struct ScanScenarioTests {
  private static let services: [BluetoothUUID] = [
    "180D", "180F", "1001", "3333", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00",
  ]
  private static let names = ["Rune", "Rune 2", "Fred", "Ünïcode"]

  /// Several advertisers of all kinds, several callers with filters of all kinds that start at different times: for
  /// each device, each gets the discoveries of the plain model, in the same order and at the same times.
  @Test("S26, S32, S106–S108: every caller gets exactly the discoveries that it requested", arguments: 1...40)
  func everyCaller(seed: UInt64)
    throws
  {
    print("scan scenario: seed \(seed)")
    var chance = SplitMix64(seed: seed), air = AirConfiguration.realistic
    air.loss = [0, 0.05, 0.3][Int.random(in: 0...2, using: &chance)]
    var world = World<Listener>(seed: seed, configuration: air)
    let isLegacy = Bool.random(using: &chance), count = Int.random(in: 2...5, using: &chance)
    for index in 0...count {
      var controller = ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5300 + UInt64(index)))
      controller.position = Position(x: Double.random(in: 0...30, using: &chance), y: 0)
      if isLegacy { controller = .legacy(address: controller.address) }
      world.add(Listener(), controller)
      world.withHost(index) { $0.core.start(now: $1) }
    }
    world.run(for: .seconds(1))

    // The first one gets everything, so that the controller's reports do not depend on the others.
    var references = [ScanID(rawValue: 0): Reference(parameters: ScanParameters(), filter: ScanFilter())]
    func begin(_ id: ScanID) {
      let reference = references[id]!
      world.withHost(0) { host, now in
        host.begun[id] = now
        host.core.startScan(reference.parameters, filter: reference.filter, id: id, now: now)
        host.drain(now)
      }
    }
    begin(ScanID(rawValue: 0))
    for number in 1...UInt64(6) {
      let id = ScanID(rawValue: number), intents: [ScanParameters.Intent] = [.fast, .balanced, .background]
      let parameters = ScanParameters(
        isActive: Bool.random(using: &chance), intent: intents.randomElement(using: &chance)!,
        coalescesDuplicates: Bool.random(using: &chance))
      references[id] = Reference(parameters: parameters, filter: Self.filter(&chance))
    }
    world.run(for: .milliseconds(100))
    for number in 1...UInt64(3) { begin(ScanID(rawValue: number)) }
    for index in 1...count {
      let data = Self.data(&chance), kinds: [AdvertisingParameters.Kind] = [.connectable, .scannable, .nonconnectable]
      let interval = Duration.milliseconds(Int.random(in: 20...300, using: &chance))
      let parameters = AdvertisingParameters(
        kind: kinds.randomElement(using: &chance)!, policy: .standard, interval: .every(interval))
      try world.withHost(index) { host, now throws(AdvertisingError) in
        _ = try host.core.advertise(data, parameters, now: now)
      }
    }
    for number in 4...UInt64(6) {
      world.run(for: .milliseconds(Int.random(in: 0...1500, using: &chance)))
      begin(ScanID(rawValue: number))
    }
    world.run(for: .seconds(3))
    for index in 1...count { world.withHost(index) { $0.core.stopAdvertising(now: $1) } }
    world.run(for: .seconds(1))

    var discoveries = 0
    let end = world.now
    world.readHost(0) { host in
      same(host.violations, [])
      let byPeer = Dictionary(grouping: host.reports, by: \.peer)
      #expect(!byPeer.isEmpty)
      for (id, reference) in references {
        for (peer, reports) in byPeer {
          let expected = reference.discoveries(reports, since: host.begun[id]!, until: end)
          let found = host.reported[id]?[peer] ?? []
          discoveries += found.count
          if found != expected {
            let place = zip(found, expected).prefix { $0 == $1 }.count
            Issue.record(
              """
              seed \(seed), scan \(id.rawValue) \(reference), \(peer): \(found.count) of \(expected.count), first \
              other at \(place): \(found.dropFirst(place).first?.description ?? "-") for \
              \(expected.dropFirst(place).first?.description ?? "-")
              """)
          }
        }
        // And no other devices.
        let strangers = (host.reported[id] ?? [:]).keys.filter { byPeer[$0] == nil }
        #expect(strangers.isEmpty)
      }
    }
    #expect(discoveries > 20)
  }

  private static func data(_ chance: inout SplitMix64) -> AdvertisingData {
    var data = AdvertisingData(flags: Bool.random(using: &chance) ? 6 : nil)
    if Bool.random(using: &chance) { data.serviceUUIDs = [services[Int.random(in: 0...3, using: &chance)]] }
    if Bool.random(using: &chance) { data.localName = names.randomElement(using: &chance) }
    switch Int.random(in: 0...3, using: &chance) {
    case 0: data.manufacturerData = [0xFF, 0xFF, UInt8.random(in: 0...3, using: &chance), 1]
    case 1: data.manufacturerData = OverflowArea([services.randomElement(using: &chance)!]).manufacturerData
    case 2: data.solicitedServiceUUIDs = [services[Int.random(in: 0...3, using: &chance)]]
    default: break
    }
    return data
  }
  private static func filter(_ chance: inout SplitMix64) -> ScanFilter {
    var filter = ScanFilter()
    func one(of count: Int) -> Bool { Int.random(in: 0..<count, using: &chance) == 0 }
    if one(of: 2) {
      filter.services = Array(services.shuffled(using: &chance).prefix(Int.random(in: 1...2, using: &chance)))
    }
    if one(of: 6) { filter.solicitedServices = [services[Int.random(in: 0...3, using: &chance)]] }
    if one(of: 5) { filter.name = one(of: 2) ? .exact("Rune") : .prefix("Ru") }
    if one(of: 4) { filter.minimumRSSI = Int8.random(in: -75 ... -50, using: &chance) }
    if one(of: 6) { filter.manufacturer = .init(companyIdentifier: 0xFFFF, dataPrefix: one(of: 2) ? [1] : []) }
    if one(of: 4) { filter.isConnectableOnly = true }
    return filter
  }
}
