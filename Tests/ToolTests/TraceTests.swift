import Foundation
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
      }
      // Nothing is overwritten.
      let again = try await Tool("trace", "convert", path, "-o", path).end()
      #expect(again.status == 1 && again.errors.contains("Cannot create") && again.errors.contains("File exists"))
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
        (["show", folder.path], "Is a directory"), (["show", text, "--layer", "radio"], "radio"),
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
