import Bindrune
import BindruneHCI
import BindruneSimulator
import BindruneTrace
import Foundation
import NIOPosix
import TestSupport
import Testing

@testable import BindruneTool

@Suite("Tool: bench", .realTime, .hang) struct BenchTests {
  // MARK: Figures

  /// Percentiles are those of the sorted durations (nearest rank), at most 1/32 above; rows have all of them, once.
  @Test(arguments: [1, 2, 100, 10_000]) func histogram(count: Int) throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var chance = SeededGenerator(seed: seed)
    let scale = Int64(1) << Int64.random(in: 3...40, using: &chance)
    let durations = (0..<count).map { _ in
      // Some in a narrow band, some far away, like latencies.
      Int64.random(in: 0..<8, using: &chance) == 0
        ? Int64.random(in: 0...scale * 64, using: &chance) : scale / 2 + Int64.random(in: 0...scale / 8, using: &chance)
    }
    var histogram = Histogram()
    for duration in durations { histogram.add(.nanoseconds(duration)) }
    let sorted = durations.sorted()
    #expect(histogram.count == count)
    #expect(histogram.shortest == .nanoseconds(sorted[0]) && histogram.longest == .nanoseconds(sorted[count - 1]))
    for percent in [1, 50, 90, 99, 100] {
      let truth = sorted[max(0, (percent * count + 99) / 100 - 1)]
      let output = try #require(histogram.percentile(Double(percent) / 100)).nanoseconds
      #expect(truth <= output && output <= truth + truth / 32, "\(percent) %, seed \(seed)")
    }
    for limit in [1, 4, 16, .max] {
      let rows = histogram.rows(atMost: limit)
      #expect(rows.count <= limit && rows.reduce(0) { $0 + $1.count } == count)
      #expect(zip(rows, rows.dropFirst()).allSatisfy { $0.upper == $1.lower })
      #expect(rows.first?.count != 0 && rows.last?.count != 0)
      for row in rows {
        #expect(row.count == durations.count { row.lower <= .nanoseconds($0) && .nanoseconds($0) < row.upper })
      }
    }
  }
  @Test func histogramOfExtremes() {
    #expect(Histogram().percentile(0.5) == nil && Histogram().rows(atMost: 4) == [])
    var histogram = Histogram()
    for duration: Duration in [.zero, .nanoseconds(1), .seconds(Int64.max), .seconds(-1)] { histogram.add(duration) }
    #expect(histogram.count == 4 && histogram.rows(atMost: 3).reduce(0) { $0 + $1.count } == 4)
    #expect(histogram.rows(atMost: 3).count <= 3 && histogram.percentile(0.5) == Duration.zero)
  }

  /// Two at once, and one 30 ms later, over a link with an interval of 10 ms: three in 40 ms.
  @Test func tally() {
    var tally = Tally(interval: .milliseconds(10))
    #expect(tally.perSecond == nil)
    let start = ContinuousClock.now
    for milliseconds in [0, 0, 30] { tally.add(20, at: start + .milliseconds(milliseconds)) }
    #expect(tally.count == 3 && tally.octets == 60 && tally.span == .milliseconds(40))
    #expect(tally.perSecond == 75 && tally.octetsPerSecond == 1500)
  }
  @Test(
    arguments: [
      (0, 0, "0"), (0.04, 1, "0.0"), (0.05, 1, "0.1"), (1.5, 3, "1.500"), (-2.25, 2, "-2.25"), (999.96, 1, "1000.0"),
      (7, 0, "7"), (0.005, 3, "0.005"),
    ] as [(Double, Int, String)])
  func decimals(value: Double, digits: Int, text: String) { #expect(decimal(value, digits) == text) }

  /// The octets of the service's table, written by hand.
  @Test func wire() throws {
    let counters = BenchCounters(
      arrived: Tally(count: 0x0102_0304, octets: 0x0A0B_0C0D_0E0F, span: .microseconds(0x10_0000_0001)), sent: 7)
    let octets: [UInt8] = [4, 3, 2, 1, 0x0F, 0x0E, 0x0D, 0x0C, 0x0B, 0x0A, 1, 0, 0, 0, 0x10, 0, 7, 0, 0, 0]
    #expect(counters.octets == octets && BenchCounters(octets) == counters)
    #expect(BenchCounters(Array(octets.dropLast())) == nil && BenchCounters(octets + [0]) == nil)
    let order = BenchOrder(size: 0x0102, count: 0x0304_0506)
    #expect(order.octets == [2, 1, 6, 5, 4, 3] && BenchOrder(order.octets) == order)
    #expect(
      BenchOrder.stop.octets == [0, 0, 0, 0, 0, 0] && BenchOrder([]) == nil
        && BenchOrder([UInt8](repeating: 1, count: 7)) == nil)
    #expect(BenchOffer(psm: SPSM(rawValue: 0x0080), mps: 0x0102).octets == [0x80, 0, 2, 1])
    #expect(BenchOffer(BenchOffer.own.octets) == .own && BenchOffer([0x80, 0]) == nil)
    // Values that cannot be encoded become the nearest.
    #expect(BenchOrder([0xFF, 0xFF, 1, 0, 0, 0], longest: 2000)?.size == 2000)
    #expect(BenchOrder([0xFF, 0xFF, 1, 0, 0, 0])?.size == 512 && BenchOrder([1, 0, 1, 0, 0, 0])?.size == 4)
    var value: [UInt8] = [9, 9, 9, 9, 0, 0]
    number(&value, 0x0102_0304)
    #expect(value == [4, 3, 2, 1, 0, 0])
  }

  /// In 7.5 ms: 5 × (1,048 + 150 + 44 + 150) µs, 3 × (2,088 + 150 + 80 + 150) µs, 11 × (296 + 150 + 80 + 150) µs. One
  /// packet, even if it does not fit.
  @Test(
    arguments: [
      (251, .le2M, .le2M, 7_500, 5 * 251 * 1000 / 7.5), (251, .le1M, .le1M, 7_500, 3 * 251 * 1000 / 7.5),
      (27, .le1M, .le1M, 7_500, 11 * 27 * 1000 / 7.5), (251, .le2M, .le1M, 1_000, 251_000),
      (251, .leCoded, .leCoded, 7_500, nil), (251, .le2M, .leCoded, 7_500, nil), (251, .le1M, .le1M, 0, nil),
    ] as [(Int, PHY, PHY, Int, Double?)])
  func capacity(octets: Int, phy: PHY, back: PHY, interval: Int, expected: Double?) {
    let capacity = linkCapacity(octets, on: phy, back, interval: .microseconds(interval))
    #expect(capacity.map { ($0 * 1000).rounded() } == expected.map { ($0 * 1000).rounded() })
  }

  // MARK: Both ends here

  @Test func json() async throws {
    let end = try await Tool("bench", "--hci", "sim", "--seconds", "1", "--size", "40", "--json").end()
    #expect(end.status == 0 && end.errors == "" && end.lines.count == 1)
    let object = try #require(try end.objects().first)
    let counts = try Counts(object)
    #expect(counts.isComplete && counts.reads > 0 && counts.arrived > 0 && counts.received > 0)
    #expect(object["virtual"] as? Bool == true)
    for end in ["central", "peripheral"] {
      let end = try #require(object[end] as? Object)
      #expect(end["hci"] as? String == "sim" && end["bluetooth"] as? String == "5.4")
      #expect(end["buffers"] as? Int == 40 && end["buffer_octets"] as? Int == 251)
    }
    let link = try #require(object["link"] as? Object)
    #expect(link["peer"] as? String == part("peripheral", of: object)["address"] as? String)
    #expect(link["mtu"] as? Int == 517 && link["interval_ms"] as? Double == 7.5 && link["latency"] as? Int == 0)
    #expect(link["tx_octets"] as? Int == 251 && link["tx_phy"] as? String == "LE 1M")
    for (name, octets) in [("writes", 40 * counts.arrived), ("notifications", 40 * counts.received)] {
      let measured = try #require(object[name] as? Object)
      #expect(measured["size"] as? Int == 40 && measured["octets"] as? Int == octets)
      let seconds = try #require(measured["seconds"] as? Double), rate = try #require(measured["per_second"] as? Double)
      #expect(seconds > 0 && rate > 0 && measured["octets_per_second"] as? Double ?? 0 > rate)
    }
  }

  /// As many operations as requested, even with time left.
  @Test func count() async throws {
    let end = try await Tool("bench", "--hci", "sim", "--count", "7", "--seconds", "20", "--interval", "10", "--json")
      .end()
    let object = try #require(try end.objects().first), counts = try Counts(object)
    #expect(end.status == 0 && counts.isComplete)
    for count in [counts.reads, counts.offered, counts.arrived, counts.sent, counts.received] { #expect(count == 7) }
    #expect(part("link", of: object)["interval_ms"] as? Double == 10)
  }

  @Test(arguments: [[], ["--phy", "2M"], ["--phy", "coded"]]) func channel(phy: [String]) async throws {
    let end = try await Tool.run(
      ["bench", "--hci", "sim", "--channel", "--count", "9", "--seconds", "20", "--json"] + phy)
    #expect(end.status == 0 && end.errors == "", "\(end.errors)")
    let object = try #require(try end.objects().first)
    #expect(try Counts(object).isComplete)
    let channel = try Channel(part("channel", of: object))
    #expect(channel.counts == [9, 9, 9, 9, 9] && channel.size == 1974)
    let all = part("channel", of: object)
    #expect(all["psm"] as? Int == 0x80 && all["mtu_out"] as? Int == 16_384 && all["mps_in"] as? Int == 247)
    // LE 1M by default; of LE Coded nobody knows the coding.
    let capacity: Double? = phy == [] ? 100_400 : phy.last == "2M" ? 167_333.333 : nil
    #expect(all["capacity_out"] as? Double == capacity && all["capacity_in"] as? Double == capacity)
    #expect(channel.shares.count == (capacity == nil ? 0 : 2))
    #expect(channel.shares.allSatisfy { $0 > 0 })
  }

  @Test func lines() async throws {
    let end = try await Tool("bench", "--hci", "sim", "--count", "30", "--seconds", "20").end()
    #expect(end.status == 0 && end.errors == "" && !end.output.contains("\u{1B}") && !end.output.contains("\r"))
    for words in [
      "central on sim: ", "peripheral on sim: ", "link to ", "sim is a virtual radio: ",
      "reads of 20 octets: 30 round trips in ",
      "write commands of 512 octets: 30 of 30 arrived in ", "notifications of 512 octets: 30 of 30 received in ",
    ] { #expect(end.lines.count { $0.hasPrefix(words) } == 1, "\(words)") }
    let rows = end.lines.compactMap { line in
      line.wholeMatch(of: /\s+[0-9.]+ .?s … [0-9.]+ .?s: ([0-9]+)/).flatMap { Int($0.1) }
    }
    #expect(!rows.isEmpty && rows.count <= 16 && rows.reduce(0, +) == 30)
    #expect(end.lines.allSatisfy { $0.columns <= 100 })
  }
  @Test func linesOfAChannel() async throws {
    let end = try await Tool("bench", "--hci", "sim", "--channel", "--count", "30", "--seconds", "20", "--size", "40")
      .end()
    #expect(end.status == 0 && end.errors == "", "\(end.errors)")
    let places = [
      "notifications of 40 octets: ", "channel: PSM 0x0080; SDUs of up to 16384 octets out, 16384 in; ",
      "  the link layer carries 100.4 kB/s out, or 100.4 kB/s in", "echoes of SDUs of 20 octets: 30 round trips in ",
      "SDUs out, of 40 octets: 30 of 30 arrived in ", "SDUs in, of 40 octets: 30 of 30 received in ",
    ].map { words in end.lines.firstIndex { $0.hasPrefix(words) } ?? -1 }
    #expect(places == places.sorted() && places[0] >= 0, "\(end.output)")
    #expect(end.lines.suffix(2).allSatisfy { $0.hasSuffix(" %") } && end.lines.allSatisfy { $0.columns <= 100 })
  }

  @Test func onATerminal() async throws {
    let terminal = try Terminal("bench", "--hci", "sim", "--seconds", "25", columns: 100, rows: 50)
    _ = try await terminal.screen {
      $0.lines.last?.wholeMatch(of: /reads: [0-9]+, [0-9.]+\/s · [0-9.]+ of 25 s …/) != nil
    }
    terminal.signal(SIGINT)
    let (screen, status) = await terminal.end()
    #expect(status == 128 + SIGINT && screen.faults == [])
    #expect(
      screen.lines.contains { $0.hasPrefix("reads of 20 octets: ") } && !screen.lines.contains { $0.hasSuffix("…") })
    #expect(screen.lines.last?.wholeMatch(of: /\s+[0-9.]+ .?s … [0-9.]+ .?s [█▏▎▍▌▋▊▉]+ +[0-9]+/) != nil)
  }
  /// Less than the 80 columns of a terminal.
  @Test func liveLines() async throws {
    let plan = BenchCentral.Plan(limit: Seconds(5), count: .max, size: nil)
    let report = BenchReport(json: true, plan: plan)
    try await report.measure(.reads(octets: 20)) {
      #expect(report.live(.reads(octets: 20), .zero) == "reads: 0 · 0.0 of 5 s …")
      let start = ContinuousClock.now
      report.update { results in
        results.reads?.begin(at: start)
        for number in 1...4 { results.reads?.lap(at: start + .milliseconds(15 * number)) }
      }
    }
    #expect(report.live(.reads(octets: 20), .milliseconds(60)) == "reads: 4, 66.7/s · 0.1 of 5 s …")
    try await report.measure(.writes(size: 512)) { report.update { $0.writes?.offered = 123_456_789 } }
    let longest = report.live(.writes(size: 512), .seconds(6))
    #expect(longest == "write commands offered: 123456789, 20576132/s · waiting for the last …")
    #expect(longest.columns < 80)
    let notifications = BenchReport.Measurement.notifications(size: 4, interval: .milliseconds(10))
    try await report.measure(notifications) {
      for number: UInt8 in [0, 1, 2, 4] { #expect(!report.received([number, 0, 0, 0])) }
    }
    #expect(report.live(notifications, .seconds(4)).hasPrefix("notifications: 4, "))
    #expect(report.results.notifications?.gaps == 1)
  }

  // MARK: Two processes

  /// Both report the same, and one central follows the other.
  @Test func twoProcesses() async throws {
    let (radio, spec) = try await controllers()
    let peripheral = try Tool("bench", "--hci", spec, "--role", "peripheral", "--name", "Bench \"1\"", "--json")
    let serving = try object(try await peripheral.line("\"serving\""))
    #expect(serving["hci"] as? String == spec && serving["buffers"] as? Int == 8)
    let address = try #require(serving["address"] as? String)
    for peer in [[], ["--peer", "Bench \"1\""], ["--peer", address], ["--peer", address + "/public", "--channel"]] {
      let end = try await Tool.run(["bench", "--hci", spec, "--seconds", "0.2", "--json"] + peer)
      #expect(end.status == 0 && end.errors == "", "\(peer): \(end.errors)")
      let output = try #require(try end.objects().first), counts = try Counts(output)
      #expect(counts.isComplete && counts.arrived == counts.offered && counts.received == counts.sent)
      #expect(part("link", of: output)["peer"] as? String == address && output["peripheral"] == nil)
      let central = part("central", of: output)["address"] as? String
      let connected = try object(try await peripheral.line("\"connected\"")),
        served = try object(try await peripheral.line("\"served\""))
      #expect(connected["address"] as? String == central && served["address"] as? String == central)
      #expect(part("writes", of: served)["arrived"] as? Int == counts.arrived)
      #expect(part("notifications", of: served)["accepted"] as? Int == counts.sent)
      #expect((served["reason"] as? String)?.hasPrefix("0x13") == true)
      #expect((served["sdus_in"] != nil) == peer.contains("--channel"))
      guard peer.contains("--channel") else { continue }
      let channel = try Channel(part("channel", of: output))
      #expect(channel.counts[1] == channel.counts[2] && channel.counts[3] == channel.counts[4])
      #expect(part("sdus_in", of: served)["arrived"] as? Int == channel.counts[2])
      #expect(part("sdus_out", of: served)["accepted"] as? Int == channel.counts[3])
    }
    peripheral.signal(SIGINT)
    #expect(await peripheral.end().status == 0)
    // Two adapters in one process.
    let end = try await Tool("bench", "--hci", spec, "--hci", spec, "--count", "5", "--seconds", "20", "--json").end()
    let counts = try Counts(try #require(try end.objects().first))
    #expect(end.status == 0 && counts.isComplete && counts.arrived == 5 && counts.received == 5)
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// The least MTU limits the size; a greater one is refused.
  @Test func leastMTU() async throws {
    let (radio, spec) = try await controllers()
    var configuration = HostConfiguration()
    configuration.preferredMTU = 23
    let server = BenchServer(name: "Least")
    let host = try await BluetoothHost.open(spec, configuration: configuration, database: server.service.database)
    let serving = Task { try await server.run(on: host) }
    let end = try await Tool("bench", "--hci", spec, "--peer", "Least", "--count", "10", "--seconds", "20", "--json")
      .end()
    let output = try #require(try end.objects().first), counts = try Counts(output)
    #expect(counts.isComplete && counts.arrived > 0 && part("link", of: output)["mtu"] as? Int == 23)
    #expect(part("writes", of: output)["octets"] as? Int == 20 * counts.arrived)
    #expect(part("notifications", of: output)["octets"] as? Int == 20 * counts.received)
    expectSentence(
      try await Tool("bench", "--hci", spec, "--size", "21").end(), "ATT_MTU 23 carries 20 octets and --size is 21")
    serving.cancel()
    await host.close()
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  // MARK: What goes wrong

  @Test func noPeer() async throws {
    let (radio, spec) = try await controllers()
    func bench(_ arguments: String...) async throws -> Tool.End {
      try await Tool.run(["bench", "--hci", spec, "--timeout", "0.3"] + arguments)
    }
    expectSentence(try await bench(), "start `bindrune bench --role peripheral` there, or raise --timeout", status: 2)
    expectSentence(try await bench("--peer", "Nobody"), "No device named \"Nobody\" was heard in 0.3 s", status: 2)
    expectSentence(
      try await bench("--peer", "00:11:22:33:44:55"), "No device 00:11:22:33:44:55 was heard in 0.3 s", status: 2)
    expectSentence(try await bench("--peer", "00:11:22:33:44:55/public"), "did not answer in 0.3 s", status: 2)
    // Another device answers.
    let belt = try Tool("serve", "--hci", spec, "--name", "Belt")
    _ = try await belt.line("serving Belt")
    expectSentence(
      try await Tool("bench", "--hci", spec, "--peer", "Belt").end(),
      "has no bench service: start `bindrune bench --role peripheral` there")
    belt.signal(SIGINT)
    #expect(await belt.end().status == 0)
    // These controllers have LE 1M only.
    expectSentence(
      try await Tool("bench", "--hci", spec, "--hci", spec, "--phy", "2M").end(), "refuses --phy 2M, 0x01")
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// A service with our UUID that is empty, and one that counts in another way: the tool prints what it has measured.
  @Test(arguments: [false, true]) func anotherVersion(hasCharacteristics: Bool) async throws {
    let (radio, spec) = try await controllers()
    var builder = DatabaseBuilder()
    builder.service(BenchService.uuid) { service in
      service.characteristic(BenchService.sampleUUID, .read, value: [1])
      guard hasCharacteristics else { return }
      service.characteristic(BenchService.sinkUUID, .writeWithoutResponse)
      service.characteristic(BenchService.streamUUID, .notify)
      service.characteristic(BenchService.controlUUID, .write)
      service.characteristic(BenchService.countersUUID, .read, value: [1, 2, 3])
    }
    let host = try await BluetoothHost.open(spec, database: try builder.build())
    try await host.advertise(AdvertisingData(serviceUUIDs: [BenchService.uuid]))
    let end = try await Tool("bench", "--hci", spec, "--count", "5", "--seconds", "20").end()
    expectSentence(end, "has the bench service of another version")
    #expect(end.lines.contains { $0.hasPrefix("reads of 20 octets: 5 round trips") } == hasCharacteristics)
    #expect(end.lines.contains { $0.contains("did not report how many arrived") } == hasCharacteristics)
    await host.close()
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// A peer without a channel, one that closes it in the middle, and one that does not listen.
  @Test(
    arguments: [
      ("earlier", "offers no channel: start this version of bindrune there, or leave out --channel"),
      ("closes", "closed the channel before the measurement had ended"), ("deaf", "no service with this PSM"),
    ])
  func anotherChannel(kind: String, words: String) async throws {
    let (radio, spec) = try await controllers()
    var builder = DatabaseBuilder()
    builder.service(BenchService.uuid) { service in
      service.characteristic(BenchService.sampleUUID, .read, value: [1])
      service.characteristic(BenchService.sinkUUID, .writeWithoutResponse)
      service.characteristic(BenchService.streamUUID, .notify)
      service.characteristic(BenchService.controlUUID, .write)
      // One write command, no notification.
      let counters = BenchCounters(arrived: Tally(count: 1, octets: 20), sent: 0)
      service.characteristic(BenchService.countersUUID, .read, value: .fixed(counters.octets))
      guard kind != "earlier" else { return }
      service.characteristic(BenchService.channelUUID, .read, value: .fixed(BenchOffer.own.octets))
    }
    let host = try await BluetoothHost.open(spec, database: try builder.build())
    let listener = kind == "closes" ? try await host.listen(psm: BenchOffer.own.psm) : nil
    let closing = Task {
      guard let listener else { return }
      for try await channel in listener {
        // After the order and the first echo.
        var count = 0
        for try await _ in channel.received {
          count += 1
          if count == 2 { break }
        }
        await channel.close()
        _ = await channel.link.closed
        break
      }
    }
    try await host.advertise(AdvertisingData(serviceUUIDs: [BenchService.uuid]))
    expectSentence(
      try await Tool("bench", "--hci", spec, "--count", "1", "--seconds", "0.5", "--channel").end(), words)
    closing.cancel()
    await host.close()
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// The peer or all controllers are lost: the tool prints what it has measured, and the reason.
  @Test(arguments: ["peer", "controllers"]) func lostInTheMiddle(who: String) async throws {
    let (radio, spec) = try await controllers()
    let peripheral = try Tool("bench", "--hci", spec, "--role", "peripheral")
    _ = try await peripheral.line("serving Bindrune Bench as ")
    let central = try Tool("bench", "--hci", spec, "--seconds", "25")
    _ = try await central.line("link to ")
    (who == "peer" ? peripheral : radio).signal(who == "peer" ? SIGINT : SIGKILL)
    let end = await central.end()
    expectSentence(end, who == "peer" ? "The link " : "closed the connection")
    #expect(end.lines.contains { $0.hasPrefix("reads of 20 octets: ") })
    let other = await peripheral.end()
    #expect(other.status == (who == "peer" ? 0 : 1))
    // It still reports its central.
    for words in ["write commands: 0 arrived", "notifications: 0 accepted", "disconnected: "] {
      #expect(other.lines.contains { $0.hasPrefix(words) }, "\(other.output)")
    }
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// The tool disconnects, so that the peer need not wait for the supervision time-out, and prints what it has
  /// measured.
  @Test(arguments: [SIGINT, SIGTERM]) func interrupted(signal: Int32) async throws {
    let (radio, spec) = try await controllers()
    let peripheral = try Tool("bench", "--hci", spec, "--role", "peripheral")
    _ = try await peripheral.line("serving ")
    let end = try await Tool("bench", "--hci", spec, "--seconds", "25", signal: signal, at: "link to ").end()
    #expect(end.status == 128 + signal && end.errors == "", "\(end.errors)")
    #expect(end.lines.contains { $0.hasPrefix("reads of 20 octets: ") })
    #expect(!end.lines.contains { $0.hasPrefix("write commands") || $0.hasPrefix("notifications") })
    #expect(try await peripheral.line("disconnected: ").contains("0x13"))
    // As an object, at any stage.
    let central = try Tool("bench", "--hci", spec, "--seconds", "25", "--json")
    _ = try await peripheral.line("connected: ")
    central.signal(signal)
    let json = await central.end()
    #expect(json.status == 128 + signal && json.errors == "")
    for object in try json.objects() { #expect(try Counts(object).isComplete == false) }
    peripheral.signal(signal)
    #expect(await peripheral.end().status == 0)
    let both = try await Tool("bench", "--hci", "sim", "--seconds", "25", signal: signal, at: "sim is a virtual radio")
      .end()
    #expect(both.status == 128 + signal && both.errors == "" && both.lines.last?.hasPrefix("sim is") == false)
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  // MARK: The command line

  @Test(
    arguments: [
      (["--hci", "sim", "--hci", "hci0"], "sim has both ends"),
      (["--hci", "hci0", "--hci", "hci1", "--hci", "hci2"], "a link has two ends"),
      (["--hci", "sim", "--role", "peripheral"], "Both ends are in this process"),
      (["--hci", "sim", "--peer", "Belt"], "Both ends are in this process"),
      (["--hci", "hci0", "--hci", "hci1", "--name", "n"], "Both ends are in this process"),
      (["--hci", "hci0", "--name", "n"], "--role peripheral"),
      (["--hci", "hci0", "--role", "peripheral", "--count", "1"], "--count is an option of the central"),
      (["--hci", "hci0", "--role", "peripheral", "--channel"], "--channel is an option of the central"),
      (["--hci", "hci0", "--role", "peripheral", "--name", ""], "--name is empty"),
      (["--hci", "hci0", "--role", "peripheral", "--name", String(repeating: "ß", count: 15)], "--name has 30 octets"),
      (["--hci", "sim", "--size", "3"], "--size is 4 … 512"), (["--hci", "sim", "--size", "513"], "--size is 4 … 512"),
      (["--hci", "sim", "--count", "0"], "--count is 1 …"), (["--hci", "sim", "--interval", "7.4"], "7.5 … 4000"),
      (["--hci", "sim", "--interval", "slow"], "fast, balanced or"), (["--hci", "sim", "--seconds", "0"], "seconds"),
      (["--hci", "sim", "--phy", "3M"], "phy"), (["--hci", "sim", "--role", "observer"], "role"),
      (["--hci", "bluetooth"], "hci"),
    ] as [([String], String)])
  func usage(arguments: [String], words: String) async throws {
    let end = try await Tool.run(["bench"] + arguments)
    #expect(end.status == 64 && end.output == "" && end.errors.hasPrefix("Error: "))
    #expect(end.errors.contains(words), "\(end.errors)")
  }
}

private typealias Object = [String: any Sendable]
private func object(_ line: String) throws -> Object {
  try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? Object)
}
private func part(_ name: String, of object: Object) -> Object { object[name] as? Object ?? [:] }

/// The numbers of `bench --channel --json`.
private struct Channel {
  /// Echoes; offered and arrived; sent and received.
  var counts: [Int?]
  var size: Int?
  var shares: [Double]
  init(_ object: Object) throws {
    let echoes = part("echoes", of: object), out = part("out", of: object), back = part("in", of: object)
    counts = [
      echoes["count"] as? Int, out["offered"] as? Int, out["arrived"] as? Int, back["sent"] as? Int,
      back["received"] as? Int,
    ]
    size = out["size"] as? Int
    shares = [out, back].compactMap { $0["share"] as? Double }
    #expect(back["gaps"] as? Int == 0 && back["size"] as? Int == size)
    for part in [out, back] {
      let octets = try #require(part["octets"] as? Int)
      #expect(octets == (size ?? 0) * ((part["arrived"] ?? part["received"]) as? Int ?? 0))
    }
  }
}

/// The numbers of `bench --json`, which must be consistent at every stage.
private struct Counts {
  var isComplete: Bool
  var reads = 0, offered = 0, arrived = 0, sent = 0, received = 0

  init(_ object: Object) throws {
    isComplete = try #require(object["complete"] as? Bool)
    if let measured = object["reads"] as? Object {
      reads = try #require(measured["count"] as? Int)
      let rows = try #require(measured["histogram"] as? [Object])
      #expect(rows.reduce(0) { $0 + ($1["count"] as? Int ?? 0) } == reads)
      for row in rows { #expect(try #require(row["from_us"] as? Double) < #require(row["to_us"] as? Double)) }
      if reads > 0 {
        let latency = part("latency_us", of: measured)
        let shares = try ["min", "p50", "p90", "p99", "max"].map { try #require(latency[$0] as? Double) }
        #expect(shares == shares.sorted() && shares[0] > 0)
        // Both are rounded, the seconds to milliseconds.
        #expect(try #require(measured["seconds"] as? Double) * 1e6 + 1000 >= shares[4])
      }
    }
    if let measured = object["writes"] as? Object {
      offered = try #require(measured["offered"] as? Int)
      arrived = measured["arrived"] as? Int ?? 0
      #expect(arrived <= offered && (isComplete ? measured["arrived"] is Int : true))
    }
    if let measured = object["notifications"] as? Object {
      received = try #require(measured["received"] as? Int)
      sent = measured["sent"] as? Int ?? received
      #expect(received <= sent && measured["gaps"] as? Int == 0 && (isComplete ? measured["sent"] is Int : true))
    }
  }
}
