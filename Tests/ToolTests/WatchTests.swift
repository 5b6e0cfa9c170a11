import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneTool

@Suite("Tool: watch", .realTime, .hang) struct WatchTests {
  private static let traces = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces")
  private func trace(_ name: String) -> String { Self.traces.appending(path: name + ".btsnoop").path }

  private func monitor(_ name: String) throws -> AirMonitor {
    var file = try TraceFile(path: trace(name)), sink = DissectingSink(AirMonitor())
    try file.read(into: &sink)
    return sink.sink
  }
  private func page(_ monitor: AirMonitor, _ columns: Int, _ rows: Int, hasColour: Bool = false) -> [String] {
    AirPage(monitor: monitor, title: "watching", hasColour: hasColour)
      .lines(in: Screen.Size(columns: columns, rows: rows))
  }
  private func feed(
    _ sink: inout DissectingSink<AirMonitor>, _ octets: [UInt8], second: Int64,
    _ direction: HCIDirection = .fromController
  ) {
    let record = CaptureRecord(
      number: 1, time: second * 1_000_000_000, direction: direction, octets: Octets(0, octets.count))
    sink.receive(record, octets.span)
  }
  private func report(_ device: UInt8, name: [UInt8], rssi: Int8) -> [UInt8] {
    let data = [UInt8(name.count + 1), 0x09] + name
    return [0x04, 0x3E, UInt8(12 + data.count), 0x02, 0x01, 0x00, 0x01, device, 0xF4, 0xF3, 0xF2, 0xF1, 0xF0]
      + [UInt8(data.count)] + data + [UInt8(bitPattern: rssi)]
  }

  // MARK: The page

  /// The figures are tshark's: `-z io,stat,1` for the layers, its events for the links.
  @Test func tables() throws {
    let monitor = try monitor("rootcanal-serve"), wide = page(monitor, 80, 40)
    func row(_ start: String, in lines: [String]) -> [Substring]? {
      lines.first { $0.hasPrefix(start) }?.split(separator: " ")
    }
    #expect(wide[0].hasPrefix("watching · 5.1 s · 190 records · ") && wide[0].hasSuffix("0 links, 2 ended"))
    #expect(wide[1].contains("░░░░░░░░░░░░░░░░ 0 of 20 ACL buffers used"))
    // The total, and the last whole second, which is the fifth.
    #expect(row("HCI commands", in: wide)?[2...3] == ["24", "0"])
    #expect(row("HCI events", in: wide)?[2...3] == ["78", "1"])
    #expect(row("ATT PDUs", in: wide)?[2...3] == ["86", "1"])
    let link = try #require(wide.first { $0.hasPrefix("0x0200 ") })
    #expect(link.contains("Peripheral") && link.contains("30 ms") && link.contains(" 247 "), "\(link)")
    #expect(link.contains("ended"))
    // Four columns of a link are left at 40: the others are the first to go.
    let narrow = page(monitor, 40, 40)
    #expect(row("LINK", in: narrow)?.contains("STATE") == true && row("LINK", in: narrow)?.contains("WAIT") == false)
    #expect(row("ATT PDUs", in: narrow)?[2...3] == ["86", "1"])
  }

  /// A name may hold anything; no line is too wide for any window, and there are not too many.
  @Test func everyWindow() throws {
    var sink = DissectingSink(AirMonitor())
    let names: [[UInt8]] = [
      Array("Belt".utf8), [], Array("a\u{202E}b\u{1B}[2J".utf8), [0xFF, 0xFE, 0x0A], Array("寝室の温度計".utf8),
    ]
    for number in 0..<40 {
      feed(
        &sink, report(UInt8(number), name: names[number % names.count], rssi: Int8(-30 - number)), second: Int64(number)
      )
    }
    let whole = try [sink.sink, monitor("bumble-central"), monitor("rootcanal-serve"), AirMonitor()]
    for monitor in whole {
      for columns in 1...130 {
        for rows in [1, 2, 3, 5, 10, 24, 60] {
          let lines = page(monitor, columns, rows)
          #expect(lines.count <= rows && !lines.isEmpty, "\(columns) × \(rows)")
          #expect(lines.allSatisfy { $0.columns <= columns }, "\(columns) × \(rows): \(lines)")
          #expect(lines.allSatisfy { $0.unicodeScalars.allSatisfy(\.isPrintable) })
        }
      }
    }
    let lines = page(sink.sink, 80, 60)
    #expect(lines.contains { $0.hasPrefix("a\\u{202E}b\\u{1B}[2J") }, "\(lines)")
    // Few rows: the table says how many it leaves out, and silent devices are the last.
    let few = page(sink.sink, 80, 12)
    #expect(few.count == 12 && few.last?.hasPrefix("… 3") == true && few.last?.hasSuffix(" more") == true)
    // Colour does not change the text.
    let plain = page(sink.sink, 80, 24), painted = page(sink.sink, 80, 24, hasColour: true)
    #expect(painted.map { $0.replacing(/\u{1B}\[[0-9]*m/, with: "").replacing(#/ +$/#, with: "") } == plain)
    #expect(painted != plain)
  }

  /// A link, a channel that the host opens on it, an SDU of each side, and the end of the channel. Vol 3, Part A, §4.22.
  @Test func channels() {
    var sink = DissectingSink(AirMonitor(keepsChanges: true)), texts: [String] = []
    func send(_ octets: [UInt8], on channel: UInt8, _ direction: HCIDirection) {
      let count = UInt8(octets.count), flags: UInt8 = direction == .fromHost ? 0x00 : 0x20
      feed(&sink, [0x02, 0x01, flags, count + 4, 0, count, 0, channel, 0] + octets, second: 1, direction)
      for change in sink.sink.takeChanges() {
        if case .channel = change.kind { texts.append(AirText.line(change, sink.sink)) }
      }
    }
    func rows() -> [[Substring]] {
      page(sink.sink, 90, 40).filter { $0.contains("  0x0080  ") }.map { $0.split(separator: " ") }
    }
    let connected: [UInt8] = [0x04, 0x3E, 0x13, 0x01, 0, 1, 0, 0, 0, 1, 0x53, 0, 0x5E, 0, 0, 24, 0, 0, 0, 0xF4, 1, 0]
    feed(&sink, connected, second: 0)
    // MTU 4,096, MPS 247 and 34 credits; MTU 23, MPS 23 and two credits.
    send([0x14, 1, 10, 0, 0x80, 0, 0x40, 0, 0, 0x10, 247, 0, 34, 0], on: 5, .fromHost)
    send([0x15, 1, 10, 0, 0x41, 0, 23, 0, 23, 0, 2, 0, 0, 0], on: 5, .fromController)
    send([3, 0, 1, 2, 3], on: 0x41, .fromHost)
    send([1, 0, 9], on: 0x40, .fromController)
    #expect(rows() == [["0x0001", "0x0080", "0x0040", "1", "3", "1", "1", "1", "33"]])
    send([0x06, 2, 4, 0, 0x41, 0, 0x40, 0], on: 5, .fromHost)
    send([0x07, 2, 4, 0, 0x41, 0, 0x40, 0], on: 5, .fromController)
    #expect(rows() == [["0x0001", "0x0080", "0x0040", "1", "3", "closed", "1", "1", "closed"]])
    let words = "       1.000  link    0x0001  channel 0x0040"
    #expect(
      texts == [
        words + ", PSM 0x0080, opened by the host: SDUs of up to 23 octets sent, 4096 received",
        words + " closed: 1 SDU sent, 3 octets; 1 SDU received, 1 octet",
      ])
    feed(&sink, [0x04, 0x05, 4, 0, 1, 0, 0x13], second: 2)
    #expect(rows() == [] && sink.sink.links.last?.channels.count == 1)
  }

  @Test func curves() {
    #expect(AirTable.curve([nil, 0, 1, 4, 8], 0, nil) == "  ▂▅█")
    #expect(AirTable.curve([nil, -110, -100, -60, -20, 5], -100, -20) == " ▁▁▅██")
    #expect(AirTable.curve([0, 0], 0, nil) == "  ")
  }

  // MARK: The verb

  /// As fast as possible, in a pipe: the last page alone.
  @Test(arguments: ["0", "max"]) func lastPage(_ speed: String) async throws {
    let end = try await Tool("watch", "--trace", trace("pairing-sc-jw-central"), "--speed", speed).end()
    #expect(end.status == 0 && end.errors == "" && !end.output.contains("\u{1B}"))
    #expect(end.lines.first?.contains(" · 152 records · ") == true)
    // tshark: 22 commands, 63 events, 54 ATT and 11 SMP PDUs.
    for (name, count) in [("HCI commands", 22), ("HCI events", 63), ("ATT PDUs", 54), ("SMP PDUs", 11)] {
      let line = end.lines.first { $0.hasPrefix(name) }
      #expect(line?.split(separator: " ")[2] == "\(count)", "\(end.output)")
    }
    #expect(end.lines.contains { $0.hasPrefix("InteropPeer  ") || $0.contains("  InteropPeer  ") })
  }

  /// One object for each second with packets, which add up to the totals.
  @Test func objects() async throws {
    let end = try await Tool("watch", "--trace", trace("rootcanal-serve"), "--speed", "max", "--json").end()
    let objects = try end.objects()
    #expect(end.status == 0 && end.errors == "")
    #expect(objects.map { $0["second"] as? Int } == [0, 1, 2, 3, 4, 5])
    let events = objects.map { ($0["packets"] as? [String: any Sendable])?["event"] as? Int }
    #expect(events == [24, 31, 13, 5, 1, 4])
    let links = objects[1]["links"] as? [[String: any Sendable]] ?? []
    #expect(links.contains { $0["mtu"] as? Int == 247 && $0["interval_ms"] as? Double == 30 })
  }

  /// The recording's own speed, in a pipe: a line for each change.
  @Test func lines() async throws {
    let end = try await Tool("watch", "--trace", trace("pairing-sc-jw-central"), "--speed", "20").end()
    #expect(end.status == 0 && end.errors == "")
    #expect(end.lines.contains { $0.contains("device  F0:F1:F2:F3:F4:F5  -50 dBm  InteropPeer") }, "\(end.output)")
    #expect(
      end.lines.contains {
        $0.contains("link    0x0001  to InteropPeer: Central, interval 30 ms, latency 0, timeout 5000 ms")
      })
    #expect(end.lines.filter { $0.hasSuffix("link    0x0001  MTU 517") }.count == 2)
    #expect(end.lines.contains { $0.hasSuffix("link    0x0001  encrypted") })
    #expect(end.lines.last?.contains("  second  22 HCI commands, 63 HCI events, ") == true)
    // Half of it.
    let half = try await Tool("watch", "--trace", trace("pairing-sc-jw-central"), "--duration", "0.05").end()
    #expect(half.status == 0 && !half.output.contains("link    0x0001") && half.output.contains("second  "))
  }

  /// q ends the page, which remains.
  @Test func quit() async throws {
    let terminal = try Terminal(
      "watch", "--trace", trace("rootcanal-serve"), "--speed", "0.01", columns: 80, rows: 24, isTyped: true)
    _ = try await terminal.screen { $0.isAlternate && $0.lines.contains { $0.hasPrefix("HCI commands") } }
    #expect(!terminal.echoes)
    terminal.type("q")
    let (screen, status) = await terminal.end()
    #expect(status == 0 && !screen.isAlternate && screen.isCursorVisible && screen.faults == [])
    #expect(screen.lines.contains { $0.hasPrefix("HCI commands") }, "\(screen.lines)")
  }

  /// The controller in this process, with the sensor on its radio: devices, a link, values that change.
  @Test func live() async throws {
    let run = try await Tool(
      "watch", "--hci", "sim", "--name", "Virtual*", "--active", signal: SIGINT, at: "Heart Rate Measurement"
    ).end()
    #expect(run.errors == "" && run.lines.contains { $0.contains("dBm  Virtual Heart Rate") }, "\(run.errors)")
    #expect(run.lines.contains { $0.contains("link    0x0001  to Virtual Heart Rate: Central, interval ") })
    #expect(run.lines.contains { $0.contains("link    0x0001  MTU ") })
    #expect(run.lines.contains { $0.contains("Heart Rate Measurement") && $0.contains(" bpm") })
    let terminal = try Terminal("watch", "--hci", "sim", "--active", columns: 80, rows: 24)
    _ = try await terminal.screen { $0.lines.contains { $0.hasPrefix("Virtual Heart Rate") } }
    terminal.signal(SIGINT)
    let (screen, status) = await terminal.end()
    #expect(status == 0 && !screen.isAlternate && screen.faults == [])
    #expect(screen.lines.contains { $0.hasPrefix("advertising reports") }, "\(screen.lines)")
  }

  /// One sentence with cause and cure.
  @Test(arguments: [
    (["--speed", "2"], "--speed is that of a recording: add --trace FILE."),
    (["--trace", "x", "--speed", "fast"], "\"fast\" is not a speed: write a factor such as 1, 0.5 or 100, or max."),
    (["--trace", "x", "--speed", "nan"], "\"nan\" is not a speed: write a factor such as 1, 0.5 or 100, or max."),
    (["--trace", "x", "--hci", "sim"], "--trace watches a recording, --hci a controller: give one of them."),
    (["--trace", "x", "--name", "y"], "leave out --trace."),
    (["--name", "y", "--address", "00:00:00:00:00:01"], "Select one device: either --address or --name."),
    (["--trace", "monitor:", "--speed", "2"], "monitor: is live and has no --speed: leave it out."),
    (["--trace", "/nonexistent.btsnoop"], "/nonexistent.btsnoop"),
  ]) func wrongUsage(_ arguments: [String], words: String) async throws {
    let end = try await Tool.run(["watch"] + arguments)
    #expect(end.status != 0 && end.output == "" && end.errors.contains(words), "\(end.errors)")
  }
}
