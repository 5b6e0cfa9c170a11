import BindruneCapture
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// The verbs over the trace that the demo records.
@Suite("Tool: trace", .realTime, .hang) struct TraceCommandTests {
  private func withTrace(_ body: (URL, String) async throws -> Void) async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path
      let demo = try await Tool("demo", "--brief", "--trace", path).end()
      #expect(demo.status == 0, "\(demo.errors)")
      try await body(folder, path)
    }
  }

  @Test func show() async throws {
    try await withTrace { _, path in
      let all = try await Tool("trace", "show", path).end()
      #expect(all.status == 0 && all.errors == "" && !all.output.contains("\u{1B}"))
      #expect(all.lines.first?.contains("→        HCI   HCI_Reset") == true)
      // Each record has its line, in order.
      #expect(all.lines.map { Int($0.prefix(7).drop { $0 == " " }) } == Array(1...all.lines.count))
      let reads = try await Tool("trace", "show", path, "--layer", "att", "--opcode", "0x0B").end()
      #expect(reads.lines.contains { $0.contains("ATT_READ_RSP  Body Sensor Location  Attribute Value: 01") })
      #expect(reads.lines.allSatisfy { $0.contains("ATT_READ_RSP") })
      let range = try await Tool("trace", "show", path, "--from", "3", "--to", "4", "--verbose").end()
      #expect(range.lines.contains { $0.hasPrefix("      3 ") } && !range.lines.contains { $0.hasPrefix("      5 ") })
      #expect(range.lines.contains("                        01 01 10 00"))
    }
  }

  /// Link type 256: the radio channel 12 has channel index 38 (Vol 6, Part B, §1.4.1), 0xC4 is −60 dBm; flags:
  /// dewhitened, signal valid, CRC checked, and right in the first. An ADV_IND each.
  @Test func packetsFromTheAir() async throws {
    try await withFolder { folder in
      func record(_ flags: UInt8) -> [UInt8] {
        octets("00 00 00 00 00 00 00 00 19 00 00 00 19 00 00 00 0C C4 00 00 00 00 00 00 03") + [flags]
          + octets("D6 BE 89 8E 40 06 F5 F4 F3 F2 F1 F0 00 00 00")
      }
      let header = octets("D4 C3 B2 A1 02 00 04 00 00 00 00 00 00 00 00 00 FF FF 00 00 00 01 00 00")
      let path = folder.appending(path: "air.pcap").path
      try Data(header + record(0x0C) + record(0x04)).write(to: URL(filePath: path))
      let objects = try await Tool("trace", "show", "--json", path).end().objects()
      #expect(objects.map { $0["name"] as? String } == ["ADV_IND", "Link-layer packet"])
      #expect(objects.map { $0["rssi"] as? Int } == [-60, -60] && objects.map { $0["channel"] as? Int } == [38, 38])
      #expect(objects.map { $0["crc"] as? Bool } == [true, false])
      let shown = try await Tool("trace", "show", path).end()
      #expect(shown.lines[0].contains("RSSI: -60 dBm, Channel: 38") && shown.lines[1].contains("! the CRC is wrong"))
      let watched = try await Tool("watch", "--trace", path, "--speed", "max").end()
      #expect(watched.output.contains("F0:F1:F2:F3:F4:F5") && watched.output.contains(" -60 "))
      #expect(watched.output.contains("1 device "))
    }
  }
  /// What is no trace gets one sentence with what to do, and none about damage.
  @Test func whatPeopleHandInByMistake() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "btmon.txt").path
      try Data("Bluetooth monitor ver 5.66\n> HCI Event: Command Complete (0x0e) plen 4  #1 [hci0] 0.1\n".utf8)
        .write(to: URL(filePath: path))
      let end = try await Tool("trace", "show", path).end()
      #expect(end.status == 1 && end.errors.contains("btmon -w") && !end.errors.contains("--resync"))
      let etl = folder.appending(path: "trace.etl").path
      try Data(repeating: 0, count: 300).write(to: URL(filePath: etl))
      #expect(try await Tool("trace", "show", etl).end().errors.contains("BTETLParse"))
    }
  }

  /// A line is as long as the terminal is wide, also while the pager has standard output.
  @Test(arguments: [("cat -", 150), ("cat -", 120), ("cat -", 60), ("cat", 100)]) func widthOfTheTerminal(
    _ pager: String, _ columns: Int
  ) async throws {
    try await withTrace { _, path in
      let terminal = try Terminal(
        "trace", "show", path, "--to", "12", columns: columns, rows: 50, environment: ["PAGER": pager])
      let (screen, status) = await terminal.end()
      let longest = screen.lines.map(\.count).max() ?? 0
      #expect(status == 0 && screen.faults == [], "\(screen.faults)")
      #expect(longest <= columns && longest > columns - 3, "\(longest): \(screen.lines)")
      // None is continued in a second line of the window.
      #expect(screen.lines.count == 12, "\(screen.lines)")
    }
  }

  @Test func objectsAndFields() async throws {
    try await withTrace { _, path in
      let objects = try await Tool("trace", "show", "--json", path).end().objects()
      let write = try #require(objects.first { $0["name"] as? String == "ATT_WRITE_REQ" })
      #expect(
        write["layer"] as? String == "att" && write["opcode"] as? String == "0x12" && write["dir"] as? String == "S")
      let fields = try await Tool("trace", "show", "--fields", path).end()
      #expect(fields.lines.first == "frame\tdir\tconn\tlayer\topcode\thandle\tvalue_hex\tpdu_hex")
      let rows = fields.lines.dropFirst().map { $0.split(separator: "\t", omittingEmptySubsequences: false) }
      #expect(rows.allSatisfy { $0.count == 8 })
      let pdus = objects.filter { $0["layer"] as? String == "att" }.map { "\($0["frame"] ?? "") \($0["octets"] ?? "")" }
      #expect(rows.filter { $0[3] == "att" }.map { "\($0[0]) \($0[7])" } == pdus && pdus.count > 30)
    }
  }

  @Test func convert() async throws {
    try await withTrace { folder, path in
      let fields = try await Tool("trace", "show", "--fields", path).end().output
      for format in ["btsnoop", "monitor", "pcapng"] {
        let copy = folder.appending(path: format).path
        let end = try await Tool("trace", "convert", path, "--format", format, "-o", copy).end()
        #expect(end.status == 0 && end.errors == "" && end.lines.last?.hasSuffix(" records") == true)
        #expect(try await Tool("trace", "show", "--fields", copy).end().output == fields)
        let piped = try await Tool.shell(
          "bindrune trace convert '\(path)' --format \(format) -o - | bindrune trace show --fields -"
        ).end()
        #expect(piped.status == 0 && piped.errors == "" && piped.output == fields)
      }
      #expect(!FileManager.default.fileExists(atPath: "-"))
      // Nothing is overwritten.
      let again = try await Tool("trace", "convert", path, "-o", path).end()
      #expect(again.status == 1 && again.errors.contains("Cannot create") && again.errors.contains("File exists"))
      let closed = try await Tool.shell("bindrune trace convert '\(path)' -o - | head -c 7").end()
      #expect(closed.status == 0 && closed.errors == "" && closed.output == "btsnoop")
    }
  }
  /// Two adapters in a format that has none: connections with equal handles would be mixed.
  @Test func severalAdapters() async throws {
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let trace = root.appending(path: "Fixtures/Traces/kernel-monitor.btsnoop").path
    for format in CaptureWriter.Format.allCases {
      let end = try await Tool.shell("bindrune trace convert '\(trace)' --format \(format) -o - >/dev/null").end()
      #expect(end.status == 0 && end.errors.contains("has no adapters") == (format != .monitor), "\(end.errors)")
    }
  }
  /// A file without a record is not left behind: it would refuse the next attempt.
  @Test func nothingToConvert() async throws {
    try await withFolder { folder in
      let copy = folder.appending(path: "copy").path, air = folder.appending(path: "air").path
      // One packet of the link layer, in pcap's link type 251.
      let header: [UInt8] = [
        0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 251, 0, 0, 0,
      ]
      let packet: [UInt8] = [0xD6, 0xBE, 0x89, 0x8E, 0x00, 0x06, 1, 2, 3, 4, 5, 6, 0, 0, 0]
      let record: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 0, UInt8(packet.count), 0, 0, 0, UInt8(packet.count), 0, 0, 0]
      try Data(header + record + packet).write(to: URL(filePath: air))
      for (path, words) in [
        (folder.path + "/none", "No such file"), (folder.path, "Is a directory"),
        (air, "There is no record to write: btsnoop holds HCI packets"),
      ] {
        let end = try await Tool("trace", "convert", path, "-o", copy).end()
        expectSentence(end, words)
        #expect(end.output == "" && !FileManager.default.fileExists(atPath: copy))
      }
      // The other verbs say what such a capture lacks.
      let checked = try await Tool("trace", "check", air).end()
      #expect(checked.status == 0 && checked.errors.contains("recorded on the air, and the rules judge HCI traffic"))
      expectSentence(try await Tool("trace", "replay", air).end(), "recorded on the air", status: 2)
    }
  }

  /// The whole records before the damage, where it is, and the cure.
  @Test func damage() async throws {
    try await withTrace { folder, path in
      let whole = [UInt8](try Data(contentsOf: URL(filePath: path)))
      let cut = folder.appending(path: "cut").path
      try Data(whole.dropLast(3)).write(to: URL(filePath: cut))
      let lines = try await Tool("trace", "show", path).end().lines
      let end = try await Tool("trace", "show", cut).end()
      #expect(end.status == 1 && end.lines == lines.dropLast())
      #expect(end.errors.contains("the file ends within the record at octet"))
      #expect(end.errors.split(separator: "\n").count == 1)
      // Noise in the second record.
      var noisy = whole
      for index in 44..<60 { noisy[index] = 0xEE }
      try Data(noisy).write(to: URL(filePath: cut))
      let stopped = try await Tool("trace", "show", cut).end()
      #expect(stopped.status == 1 && stopped.lines.count == 1 && stopped.errors.contains("--resync"))
      let resumed = try await Tool("trace", "show", "--resync", cut).end()
      #expect(resumed.status == 0 && resumed.lines.count == lines.count - 1)
      #expect(resumed.errors.contains("octets were skipped at octet 44"))
    }
  }

  /// `--follow` shows records as they come, and stops when it is interrupted.
  @Test func follow() async throws {
    try await withTrace { folder, path in
      let whole = [UInt8](try Data(contentsOf: URL(filePath: path)))
      let growing = folder.appending(path: "growing").path
      try Data(whole.prefix(44)).write(to: URL(filePath: growing))
      let tool = try Tool("trace", "show", "--follow", growing)
      _ = try await tool.line("      1 ")
      let file = try FileHandle(forWritingTo: URL(filePath: growing))
      try file.seekToEnd()
      try file.write(contentsOf: Data(whole.dropFirst(44)))
      try file.close()
      let last = try await Tool("trace", "show", path).end().lines.last ?? "?"
      _ = try await tool.line(last)
      tool.signal(SIGINT)
      let end = await tool.end()
      #expect(end.status == 0 && end.lines.last == last)
    }
  }

  @Test func wrongUse() async throws {
    try await withFolder { folder in
      let text = folder.appending(path: "text").path
      try "this is a text and no trace\n".write(toFile: text, atomically: true, encoding: .utf8)
      for (arguments, words) in [
        (["show", text], "this is not a trace"), (["show", folder.path + "/none"], "No such file"),
        (["show", folder.path], "is a folder, which needs --json or --fields"),
        (["show", text, text], "Several files need --json"), (["show", "--json", "--follow", folder.path], "one file"),
        (["show", "--json", "monitor:", text], "give it alone"), (["show", "--fields", "-", "-"], "once"),
        (["show", text, "--layer", "radio"], "radio"),
        (["show", text, "--from", "9", "--to", "3"], "after --to"),
        (["show", text, "--json", "--fields"], "one of them"),
        (["show", text, "--irk", "12"], "12"),
      ] {
        let end = try await Tool.run(["trace"] + arguments)
        #expect(end.status != 0 && end.errors.contains(words), "\(arguments): \(end.errors)")
      }
    }
  }
}

/// `trace stats`, over the trace of the demo.
@Suite("Tool: trace stats", .realTime, .hang) struct TraceStatsTests {
  @Test func textAndObjects() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path
      #expect(try await Tool("demo", "--brief", "--trace", path).end().status == 0)
      let text = try await Tool("trace", "stats", path).end()
      #expect(text.status == 0 && text.errors == "" && !text.output.contains("\u{1B}"))
      #expect(text.lines.contains { $0.hasPrefix("link 0x") && $0.contains(", Central to ") })
      #expect(text.lines.contains { $0.hasPrefix("  our requests ") && $0.contains(", p99 ") })
      let objects = try await Tool("trace", "stats", "--json", path).end().objects()
      let fields = try await Tool("trace", "show", "--fields", path).end().lines.dropFirst()
      let file = try #require(objects.last), link = try #require(objects.first)
      #expect(objects.allSatisfy { $0["file"] as? String == path } && file["connections"] as? Int == objects.count - 1)
      let pdus = try #require(link["pdus"] as? [[String: any Sendable]])
      let count = pdus.reduce(0) { $0 + ($1["count"] as? Int ?? 0) }
      #expect(count == fields.count { $0.contains("\t\(link["connection"] as? String ?? "?")\t") } && count > 30)
      // One bad file stops no other.
      let both = try await Tool("trace", "stats", folder.path + "/none", path).end()
      #expect(both.status == 2 && both.errors.contains("No such file") && both.output.contains("link 0x"))
      #expect(both.lines.last?.contains("1 file could not be read") == true)
    }
  }
  @Test func emptyTrace() async throws {
    try await withFolder { folder in
      var octets: [UInt8] = []
      CaptureWriter(.btsnoop).begin(&octets)
      let path = folder.appending(path: "empty").path
      try Data(octets).write(to: URL(filePath: path))
      let end = try await Tool("trace", "stats", path).end()
      #expect(end.status == 0 && end.output == "\(path): no records\n")
    }
  }
}

/// `trace diff`, over two runs of the demo.
@Suite("Tool: trace diff", .realTime, .hang) struct TraceDiffTests {
  @Test func equalAndDifferent() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path, part = folder.appending(path: "part.btsnoop").path
      #expect(try await Tool("demo", "--brief", "--trace", path).end().status == 0)
      let same = try await Tool("trace", "diff", path, path, "--free", "none").end()
      #expect(same.status == 0 && same.lines.count == 1 && same.output.contains(" equal"))
      #expect(try await Tool("trace", "convert", path, "-o", part, "--to", "60").end().status == 0)
      let cut = try await Tool("trace", "diff", path, part).end()
      #expect(cut.status == 1 && cut.lines.first?.hasPrefix("First difference: ") == true)
      #expect(cut.output.contains("(nothing: the stream has ended)") && !cut.output.contains("\u{1B}"))
      let objects = try await Tool("trace", "diff", path, part, "--json").end().objects()
      #expect(objects.first?["second"] is NSNull && objects.last?["streams"] as? Int == objects.count - 1)
      // Errors have a status of their own.
      let none = try await Tool("trace", "diff", path, folder.path + "/none").end()
      #expect(none.status == 2 && none.errors.contains("No such file"))
      // Two traces without a packet are not equal: nothing was compared.
      let empty = folder.appending(path: "empty.btsnoop").path
      try Data(try Data(contentsOf: URL(filePath: path)).prefix(16)).write(to: URL(filePath: empty))
      let nothing = try await Tool("trace", "diff", empty, empty).end()
      #expect(nothing.status == 2 && nothing.errors.hasPrefix("Error: Nothing was compared: "), "\(nothing.errors)")
      let verdict = try await Tool("trace", "diff", empty, empty, "--json").end().objects().last?["verdict"] as? String
      #expect(verdict == "not decided")
      for wrong in [["--free", "weather"], ["-"]] {
        #expect(try await Tool.run(["trace", "diff", path] + (wrong == ["-"] ? wrong : [part] + wrong)).status == 64)
      }
    }
  }

  /// Two versions of a device: the same is alike, and what another trace does not show is no difference.
  @Test func summary() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path, empty = folder.appending(path: "empty.btsnoop").path
      #expect(try await Tool("demo", "--brief", "--trace", path).end().status == 0)
      let same = try await Tool("trace", "diff", path, path, "--summary").end()
      #expect(same.status == 0 && same.errors == "", "\(same.errors)")
      #expect(same.lines.first?.hasPrefix("= GATT databases") == true && !same.output.contains("≠"), "\(same.output)")
      let object = try #require(
        try await Tool("trace", "diff", path, path, "--summary", "--json").end().objects().first)
      #expect(object["verdict"] as? String == "alike")
      #expect((object["GATT databases"] as? [String: Any])?["verdict"] as? String == "alike")
      try Data(try Data(contentsOf: URL(filePath: path)).prefix(16)).write(to: URL(filePath: empty))
      let nothing = try await Tool("trace", "diff", path, empty, "--summary").end()
      #expect(nothing.status == 2 && nothing.errors.hasPrefix("Error: Nothing was compared: "), "\(nothing.errors)")
    }
  }
}

/// `trace scrub`, over the trace of the demo: other programs open the result.
@Suite("Tool: trace scrub", .realTime, .hang) struct TraceScrubTests {
  @Test func scrub() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path, shared = folder.appending(path: "shared.btsnoop").path
      #expect(try await Tool("demo", "--brief", "--trace", path).end().status == 0)
      let end = try await Tool("trace", "scrub", path, "-o", shared).end()
      #expect(end.status == 0 && end.errors == "", "\(end.errors)")
      #expect(end.lines.filter { $0.hasPrefix("Shown: ") }.count == 4 && !end.output.contains("NOT shown"))
      // The runs are the same but for what was replaced; the old file is not touched, the new one not overwritten.
      #expect(
        try await Tool("trace", "diff", path, shared, "--free", "addresses,random,values,times").end().status == 0)
      let again = try await Tool("trace", "scrub", path, "-o", shared).end()
      #expect(again.status == 1 && again.errors.contains("File exists"))
    }
  }
  /// A pipe is read three times all the same, and nothing of it is left beside the output.
  @Test func standardInput() async throws {
    try await withFolder { folder in
      let end = try await Tool.shell(
        """
        cd \(folder.path) && bindrune demo --brief --trace a > /dev/null && \
        TMPDIR=. bindrune trace scrub - -o b --seed 1 < a > /dev/null && \
        cat a | TMPDIR=. bindrune trace scrub - -o c --seed 1 > /dev/null && bindrune trace scrub a -o d --seed 1 && \
        cmp b c && cmp c d && ls
        """
      ).end()
      #expect(end.status == 0 && end.errors == "" && end.lines.suffix(4) == ["a", "b", "c", "d"], "\(end)")
      #expect(end.output.contains("\nRely on lengths"))
    }
  }
  @Test(.enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/tshark"), "tshark is not installed"))
  func tsharkOpensIt() async throws {
    try await opens("tshark -r")
  }
  private func opens(_ program: String) async throws {
    try await withFolder { folder in
      let end = try await Tool.shell(
        """
        cd \(folder.path) && bindrune demo --brief --trace a > /dev/null && bindrune trace scrub a -o b > /dev/null && \
        \(program) a > one && \(program) b > two && wc -l < one && wc -l < two && grep -ci malformed two
        """
      ).end()
      let counts = end.lines.suffix(3).map { $0.filter(\.isNumber) }
      #expect(counts.count == 3 && counts[0] == counts[1] && counts[2] == "0", "\(end.output) \(end.errors)")
    }
  }
}

/// `--trace-calls`, over a session on the radio of this process: what every command makes of the calls.
@Suite("Tool: --trace-calls", .realTime, .hang) struct TraceCallsTests {
  @Test func calls() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "a").path
      #expect(
        try await Tool("explore", "--hci", "sim", "--name", "Virtual*", "--trace", path, "--trace-calls").end().status
          == 0)
      let shown = try await Tool("trace", "show", path).end().lines
      func after(_ words: String) -> [String] {
        shown.indices.filter { shown[$0].contains(words) }.map { shown[$0 + 1] }
      }
      #expect(after("User Logging  bindrune: connect(to:) #").first?.contains("Create_Connection") == true)
      let discovery = after("User Logging  bindrune: discoverAll() #"),
        reads = after("User Logging  bindrune: read(_:) #")
      #expect(!discovery.isEmpty && discovery.allSatisfy { $0.contains("ATT_READ_BY_") || $0.contains("ATT_FIND_") })
      #expect(!reads.isEmpty && reads.allSatisfy { $0.contains("ATT_READ_REQ") || $0.contains("ATT_READ_BLOB_REQ") })
      // No packet that the host sends is omitted or named twice: what remains is its own.
      let unnamed = shown.indices.filter { shown[$0].contains(" → ") && !shown[$0 - 1].contains("User Logging") }
      #expect(unnamed.count == 2, "\(unnamed.map { shown[$0] })")
      for verb in ["check", "replay"] {
        let end = try await Tool("trace", verb, path).end()
        #expect(end.status == 0 && end.errors == "", "\(end.output) \(end.errors)")
      }
      let report = try await Tool("trace", "report", path, "-o", path + ".html").end()
      #expect(report.status == 0)
      #expect(try String(contentsOfFile: path + ".html", encoding: .utf8).contains("bindrune: connect(to:) #"))
      // A format that cannot hold them.
      let converted = try await Tool("trace", "convert", path, "-o", path + ".pcapng").end()
      #expect(converted.status == 0 && (converted.output + converted.errors).contains("left out"), "\(converted)")
      let scrubbed = try await Tool("trace", "scrub", path, "-o", path + ".shared").end()
      #expect(scrubbed.status == 0 && !scrubbed.output.contains("NOT shown"))
    }
  }
  @Test func withoutATrace() async throws {
    let end = try await Tool("scan", "--hci", "sim", "--trace-calls", "--duration", "1").end()
    #expect(end.status != 0 && end.errors.contains("add --trace FILE"), "\(end.errors)")
  }
}

/// `trace check`, over traces of a connection whose host sends one PDU.
@Suite("Tool: trace check", .realTime, .hang) struct TraceCheckTests {
  /// Record 6 is an ATT PDU from the host on connection 0x0040, of which the trace shows the beginning.
  private func trace(_ pdu: [UInt8], times: Int = 1) -> Data {
    let address: [UInt8] = [0x55, 0x44, 0x33, 0x22, 0x11, 0xC0]
    let data = [UInt8(pdu.count), 0, 0x04, 0] + pdu
    var packets: [(HCIDirection, [UInt8])] = [
      (.fromHost, [0x01, 0x03, 0x0C, 0x00]), (.fromController, [0x04, 0x0E, 0x04, 0x01, 0x03, 0x0C, 0x00]),
      // LE Create Connection, its Command Status, and LE Connection Complete.
      (
        .fromHost,
        [0x01, 0x0D, 0x20, 0x19, 0x60, 0, 0x30, 0, 0, 1] + address + [0, 0x18, 0, 0x28, 0, 0, 0, 0x48, 0, 0, 0, 0, 0]
      ),
      (.fromController, [0x04, 0x0F, 0x04, 0x00, 0x01, 0x0D, 0x20]),
      (.fromController, [0x04, 0x3E, 0x13, 0x01, 0, 0x40, 0, 0, 1] + address + [0x18, 0, 0, 0, 0x48, 0, 0]),
    ]
    packets += Array(repeating: (.fromHost, [0x02, 0x40, 0, UInt8(data.count), 0] + data), count: times)
    var writer = CaptureWriter(.btsnoop), octets: [UInt8] = []
    writer.begin(&octets)
    for (index, (direction, packet)) in packets.enumerated() {
      let record = CaptureRecord(
        number: index + 1, time: 1_700_000_000_000_000_000 + Int64(index) * 1_000_000, direction: direction,
        octets: Octets(0, packet.count))
      #expect(writer.append(record, packet.span, to: &octets))
    }
    return Data(octets)
  }
  /// A folder with `good` and `bad`: Exchange MTU Request, and an opcode that Vol 3, Part F, §3.4.8 does not list.
  private func withTraces(_ body: (URL, _ good: String, _ bad: String) async throws -> Void) async throws {
    try await withFolder { folder in
      let good = folder.appending(path: "good"), bad = folder.appending(path: "bad")
      try trace([0x02, 0xF7, 0x00]).write(to: good)
      try trace([0x3F]).write(to: bad)
      try await body(folder, good.path, bad.path)
    }
  }
  private func check(_ arguments: String...) async throws -> Tool.End {
    try await Tool.run(["trace", "check", "--only", "att.opcode"] + arguments)
  }

  @Test func text() async throws {
    try await withTraces { folder, good, bad in
      let none = try await check(good)
      #expect(none.status == 0 && none.errors == "")
      // First what happened.
      let story = "link 0x0040, frames 5 … 6: our host is Central to C0:11:22:33:44:55"
      #expect(
        none.lines == [
          good, story, "  1 request of ours; the trace ends while it lasts",
          "\(good): no findings; 6 records; 1 of 1 rule judged 1 time",
        ])

      let one = try await check(bad)
      #expect(one.status == 1 && one.errors == "" && one.lines.count == 5 && one.lines.first == bad)
      #expect(one.lines[1] == story && one.lines[2] == "  the trace ends while it lasts")
      let line = one.lines[3]
      #expect(line.hasPrefix("frame 6  link 0x0040  att.opcode  host: ") && line.contains("; allowed: "))
      #expect(line.hasSuffix("  (Vol 3, Part F, §3.4.8)"), "\(line)")
      #expect(one.lines.last == "\(bad): 1 finding; 6 records; 1 of 1 rule judged 1 time")

      // Results keep the order of the arguments; the last line has the sums.
      let many = try await Tool.run(
        ["trace", "check", "--only", "att.opcode"] + (0..<20).map { $0.isMultiple(of: 2) ? good : bad })
      let summaries = many.lines.filter { $0.contains(" records; 1 of 1") }
      #expect(many.status == 1 && summaries.count == 21)
      #expect(summaries.prefix(20).map { $0.hasPrefix(good) } == (0..<20).map { $0.isMultiple(of: 2) })
      #expect(
        many.lines.last == "20 files: 10 findings in 10 files; 120 records; 1 of 1 rule judged 20 times")

      // From standard input; and a finding that repeats fills no screen.
      let piped = try await Tool.shell("bindrune trace check --only att.opcode - < '\(bad)'").end()
      #expect(piped.status == 1 && piped.lines.first == "standard input" && piped.lines.count == 5)
      let long = folder.appending(path: "long")
      try trace([0x3F], times: 10_250).write(to: long)
      let repeated = try await check(long.path)
      #expect(repeated.status == 1 && repeated.lines.count == 3 + 100 + 2 + 1)
      #expect(repeated.lines[103] == "9,900 further findings of att.opcode")
      #expect(repeated.lines[104] == "250 further findings, of any rule")
      #expect(repeated.lines[105].contains(": 10,250 findings; 10,255 records; "))
    }
  }

  /// A file that cannot be read stops no other; what precedes damage is judged.
  @Test func badFiles() async throws {
    try await withTraces { folder, good, bad in
      let text = folder.appending(path: "text"), cut = folder.appending(path: "cut")
      try Data("this is a text and no trace\n".utf8).write(to: text)
      try trace([0x3F], times: 3).dropLast(3).write(to: cut)
      let end = try await check(folder.path + "/none", text.path, cut.path, good)
      #expect(end.status == 2)
      try #require(end.lines.count == 8)
      #expect(end.lines.first == cut.path && end.lines[6].hasPrefix("\(good): no findings"))
      #expect(end.lines[5].hasPrefix("\(cut.path): 2 findings; 7 records; "))
      #expect(end.lines[7].hasSuffix("; 3 files could not be read to the end"))
      let errors = end.errors.split(separator: "\n")
      #expect(errors.count == 3)
      for (line, words) in zip(errors, ["No such file", "this is not a trace", "the file ends within the record"]) {
        #expect(line.hasPrefix("Error: ") && line.contains(words))
      }
      // Damage in record 2.
      var noisy = try Data(contentsOf: URL(filePath: bad))
      for index in 44..<60 { noisy[index] = 0xEE }
      try noisy.write(to: cut)
      let resumed = try await check("--resync", cut.path)
      #expect(resumed.status != 2 && resumed.errors.contains("octets were skipped at octet 44"))
    }
  }

  @Test func objects() async throws {
    try await withTraces { folder, good, bad in
      let end = try await check("--json", bad, folder.path + "/none", good)
      let objects = try end.objects()
      try #require(end.status == 2 && objects.count == 4)
      let finding = objects[0], broken = objects[1], missing = objects[2], kept = objects[3]
      #expect(finding["file"] as? String == bad && finding["frame"] as? Int == 6)
      #expect(finding["time"] as? Double == 1_700_000_000.005 && finding["adapter"] as? Int == 0)
      #expect(finding["connection"] as? String == "0x0040" && finding["rule"] as? String == "att.opcode")
      #expect(finding["section"] as? String == "Vol 3, Part F, §3.4.8" && finding["party"] as? String == "host")
      #expect((finding["seen"] as? String)?.isEmpty == false && (finding["allowed"] as? String)?.isEmpty == false)
      #expect(broken["findings"] as? Int == 1 && broken["records"] as? Int == 6 && broken["error"] == nil)
      #expect(broken["rulesJudged"] as? Int == 1 && broken["judgements"] as? Int == 1)
      #expect((missing["error"] as? String)?.contains("No such file") == true && missing["records"] as? Int == 0)
      #expect(kept["file"] as? String == good && kept["findings"] as? Int == 0)
    }
  }

  @Test func junit() async throws {
    try await withTraces { folder, good, bad in
      // Characters that XML reserves, and one that it does not have.
      let odd = folder.appending(path: "a<b>&\"\u{1}\u{E9}").path, report = folder.appending(path: "report.xml")
      try FileManager.default.moveItem(atPath: bad, toPath: odd)
      try Data("of the last run".utf8).write(to: report)
      let end = try await check("--only", "smp.order", "--junit", report.path, odd, good, folder.path + "/none")
      #expect(end.status == 2 && end.lines.contains { $0.contains(": 1 finding; ") })
      let xml = try String(contentsOf: report, encoding: .utf8), lines = xml.split(separator: "\n").map(String.init)
      #expect(lines.first == "<?xml version=\"1.0\" encoding=\"UTF-8\"?>" && lines.last == "</testsuites>")
      let name = folder.path + "/a&lt;b&gt;&amp;&quot;\u{FFFD}\u{E9}"
      #expect(
        lines.contains("<testsuite name=\"\(name)\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\">"), "\(xml)")
      #expect(lines.contains("<testsuite name=\"\(good)\" tests=\"2\" failures=\"0\" errors=\"0\" skipped=\"1\">"))
      let failure = "<testcase classname=\"att\" name=\"att.opcode\"><failure message=\""
      #expect(lines.contains { $0.hasPrefix(failure) && $0.contains("\">frame 6, link 0x0040, host: ") })
      #expect(lines.contains("<testcase classname=\"att\" name=\"att.opcode\"/>"))
      #expect(lines.contains("<testcase classname=\"smp\" name=\"smp.order\"><skipped/></testcase>"))
      #expect(
        lines.contains { $0.hasPrefix("<testcase classname=\"trace\" name=\"read\"><error message=\"Cannot open") })
      // Every element ends, in order, and no reserved character is left outside of tags.
      var open: [Substring] = []
      for piece in xml.split(separator: "<").dropFirst() {
        let parts = piece.split(separator: ">", omittingEmptySubsequences: false)
        let tag = parts[0].prefix { $0 != " " && $0 != "/" }
        #expect(parts.count == 2, "\(piece)")
        if parts[0].hasPrefix("/") {
          #expect(open.popLast() == parts[0].dropFirst())
        } else if !parts[0].hasSuffix("/") {
          open.append(tag)
        }
      }
      #expect(open.isEmpty && !xml.unicodeScalars.contains { $0.value < 0x20 && $0 != "\n" })
      #expect(xml.split(separator: "&").dropFirst().allSatisfy { $0.prefix(6).contains(";") })
      // No draft is left.
      #expect(try Set(FileManager.default.contentsOfDirectory(atPath: folder.path)).count == 3)

      let unwritable = try await check("--junit", folder.path + "/none/report.xml", odd)
      expectSentence(unwritable, "Cannot write the report", status: 2)
      #expect(unwritable.output == "")
      expectSentence(try await check("--junit", "/dev/null", odd), "Cannot write the report", status: 2)
    }
  }

  @Test func selection() async throws {
    try await withTraces { _, good, bad in
      let without = try await Tool("trace", "check", bad, "--only", "att", "--except", "att.opcode", "--json").end()
      #expect(try without.objects().allSatisfy { $0["rule"] as? String != "att.opcode" })
      let other = try await Tool("trace", "check", bad, "--only", "smp,ad", "--only", "gatt.grouping-type").end()
      #expect(other.status == 0 && other.output.contains("no findings"))

      let all = try await Tool("trace", "check", "--rules").end()
      #expect(all.status == 0 && all.lines.count > 80)
      #expect(all.lines.contains { $0.hasPrefix("att.opcode ") && $0.contains("  Vol 3, Part F, §3.4.8  ") })
      let some = try await Tool("trace", "check", "--rules", "--json", "--only", "ATT,smp.order").end().objects()
      #expect(some.contains { $0["id"] as? String == "smp.order" } && some.count > 20)
      #expect(
        some.allSatisfy { rule in
          (rule["id"] as? String)?.hasPrefix("smp.order") == true || (rule["id"] as? String)?.hasPrefix("att.") == true
        })
      #expect(some.allSatisfy { ($0["sentence"] as? String)?.hasSuffix(".") == true })

      for (arguments, words) in [
        (
          ["--only", "att.opcodes", good],
          "\"att.opcodes\" is neither a rule nor an area: `bindrune trace check --rules`"
        ),
        (["--except", "", good], "neither a rule"), (["--only", "att", "--except", "att", good], "leave no rule"),
        ([], "No traces"), (["--rules", good], "reads nothing"), (["-", "-"], "once"),
        (["monitor:"], "check reads files"),
      ] {
        let end = try await Tool.run(["trace", "check"] + arguments)
        #expect(end.status == 64 && end.errors.contains(words), "\(arguments): \(end.errors)")
      }
    }
  }

  /// What counts: party, device, connection, ids, a baseline; its own findings never count against it.
  @Test func whatCounts() async throws {
    try await withTraces { folder, good, bad in
      let known = folder.appending(path: "known.json").path, id = "att.opcode/host/0x3F"
      let finding = try #require(
        try await check("--only", "att.opcode", bad, "--json").objects().first { $0["rule"] != nil })
      #expect(finding["id"] as? String == id)
      for (arguments, words) in [
        (["--party", "controller"], ", beside 1 of other parties"),
        (["--party", "PEER"], ", beside 1 of other parties"),
        (["--party", "C0:11:22:33:44:56"], ", beside 1 of other parties"),
        (["--connection", "0x0041"], ", beside 1 of other connections"), (["--ignore", id], ", beside 1 ignored"),
        (["--ignore", "att.opcode"], ", beside 1 ignored"), (["--ignore", "att.opcode/host"], ", beside 1 ignored"),
      ] {
        let end = try await Tool.run(["trace", "check", "--only", "att.opcode", bad] + arguments)
        #expect(end.status == 0 && end.output.contains(": no findings" + words + "; "), "\(arguments) \(end.output)")
      }
      for arguments in [
        ["--party", "host"], ["--connection", "0x0040"], ["--ignore", "att.opcode/hos"], ["--ignore", "att.shape"],
      ] {
        let end = try await Tool.run(["trace", "check", "--only", "att.opcode", bad] + arguments)
        #expect(end.status == 1 && end.output.contains(": 1 finding; "), "\(arguments) \(end.output)")
      }

      let written = try await check("--only", "att.opcode", bad, "--write-baseline", known)
      #expect(written.status == 0 && written.output.contains(": 1 finding; "))
      #expect(
        try String(contentsOfFile: known, encoding: .utf8)
          == "{\n  \"version\": 1,\n  \"findings\": [\n    \"\(id)\"\n  ]\n}\n")
      let again = try await check("--only", "att.opcode", bad, good, "--baseline", known)
      #expect(again.status == 0 && again.lines.last?.hasPrefix("2 files: no findings, beside 1 known; ") == true)
      let objects = try await check("--only", "att.opcode", bad, "--baseline", known, "--json").objects()
      #expect(objects.count == 1 && (objects[0]["excluded"] as? [String: Int]) == ["known": 1])
      // Another finding is new.
      try Data("{\"version\": 1, \"findings\": [\"att.mtu/host/ATT_READ_REQ\"]}".utf8).write(to: URL(filePath: known))
      #expect(try await check("--only", "att.opcode", bad, "--baseline", known).status == 1)

      for (text, words) in [
        ("[]", "known.json:1:1: it is no object"), ("{\"findings\": [1]}", "known.json:1:15: a finding's id is text"),
        ("{\"version\": 2, \"findings\": []}", "known.json:1:2: its version is not 1"), ("{", "known.json:1:2:"),
      ] {
        try Data(text.utf8).write(to: URL(filePath: known))
        expectSentence(try await check(bad, "--baseline", known), words, status: 2)
      }
      expectSentence(try await check(bad, "--baseline", folder.path + "/none"), "no such file", status: 2)
      for arguments in [
        ["--ignore", "att"], ["--party", "me"], ["--baseline", known, "--write-baseline", known],
        ["--connection", "x"],
      ] {
        #expect(try await Tool.run(["trace", "check", bad] + arguments).status == 64, "\(arguments)")
      }
    }
  }

  /// SARIF 2.1.0: the line of a finding is that of its record in the text of `trace show`.
  @Test func sarif() async throws {
    try await withTraces { folder, good, bad in
      let odd = folder.appending(path: "a b%.btsnoop").path, report = folder.appending(path: "report.sarif")
      try FileManager.default.moveItem(atPath: bad, toPath: odd)
      let end = try await check("--only", "att", odd, good, folder.path + "/none", "--sarif", report.path)
      #expect(end.status == 2)
      let root = try #require(
        try JSONSerialization.jsonObject(with: try Data(contentsOf: report)) as? [String: Any])
      #expect(root["version"] as? String == "2.1.0")
      let run = try #require((root["runs"] as? [[String: Any]])?.first)
      let results = try #require(run["results"] as? [[String: Any]]), result = try #require(results.first)
      #expect(results.count == 1 && result["ruleId"] as? String == "att.opcode")
      let place = try #require(
        ((result["locations"] as? [[String: Any]])?.first)?["physicalLocation"] as? [String: Any])
      let uri = try #require((place["artifactLocation"] as? [String: Any])?["uri"] as? String)
      #expect(uri.removingPercentEncoding == odd + ".txt" && !uri.contains(" "))
      let line = try #require((place["region"] as? [String: Any])?["startLine"] as? Int)
      let shown = try await Tool("trace", "show", odd).end().lines
      #expect(shown[line - 1].contains("Unknown PDU (0x3F)"))
      let rules = ((run["tool"] as? [String: Any])?["driver"] as? [String: Any])?["rules"] as? [[String: Any]]
      #expect(rules?.contains { $0["id"] as? String == "att.opcode" } == true)
      let invocation = (run["invocations"] as? [[String: Any]])?.first
      #expect(invocation?["executionSuccessful"] as? Bool == false)
      #expect((invocation?["toolExecutionNotifications"] as? [Any])?.count == 1)
    }
  }

  /// The recipe for continuous integration, as its page runs it.
  @Test func recipe() async throws {
    try await withTraces { folder, good, bad in
      func run(_ arguments: String...) throws -> (status: Int32, output: String) {
        let process = Process(), pipe = Pipe()
        process.executableURL = URL(filePath: "/bin/sh")
        process.currentDirectoryURL = folder
        let script = VectorFile.fixtures.deletingLastPathComponent().appending(path: "Examples/check-traces.sh").path
        process.arguments = [script] + arguments
        process.environment = ["BINDRUNE": Tool.path, "PATH": "/usr/bin:/bin"]
        process.standardOutput = pipe
        process.standardError = pipe
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, output)
      }
      let traces = folder.appending(path: "traces")
      try FileManager.default.createDirectory(at: traces, withIntermediateDirectories: true)
      for path in [good, bad] {
        try FileManager.default.moveItem(
          atPath: path, toPath: traces.path + "/" + URL(filePath: path).lastPathComponent)
      }
      let first = try run("traces", "reports", "--only", "att.opcode")
      #expect(first.status == 1 && first.output.contains("2 files: 1 finding in 1 file"), "\(first.output)")
      let name = URL(filePath: bad).lastPathComponent
      let sarif = try String(contentsOf: folder.appending(path: "reports/report.sarif"), encoding: .utf8)
      #expect(sarif.contains("\"uri\":\"traces/\(name).txt\""))
      let text = try String(contentsOf: folder.appending(path: "reports/traces/\(name).txt"), encoding: .utf8)
      #expect(text.contains("Unknown PDU (0x3F)"))
      #expect(FileManager.default.fileExists(atPath: folder.path + "/reports/report.xml"))
      try Data("{\"version\":1,\"findings\":[\"att.opcode/host/0x3F\"]}".utf8)
        .write(to: traces.appending(path: "known.json"))
      #expect(try run("traces", "reports", "--only", "att.opcode").status == 0)
      #expect(try run("none", "reports").status == 2)
    }
  }
}
