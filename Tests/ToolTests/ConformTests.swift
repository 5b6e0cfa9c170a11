import Foundation
import TestSupport
import Testing

private let scripts = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
  .deletingLastPathComponent().appending(path: "Fixtures/Scripts").path

@Suite("Tool: conform", .realTime, .hang) struct ConformTests {
  @Test func allScripts() async throws {
    let end = try await Tool("conform", scripts).end()
    #expect(end.status == 0 && end.errors == "")
    #expect(end.lines.dropLast().allSatisfy { $0.hasPrefix("PASS \(scripts)/") })
    #expect(end.lines.last == "\(end.lines.count - 1) passed, 0 failed")
    #expect(end.lines.count > 150 && !end.output.contains("\u{1B}"))
  }

  @Test func aFailureSaysWhere() async throws {
    try await withFolder { folder in
      let script = folder.appending(path: "wrong.exchange")
      try "title: Wrong\nside: server\n< 0A 03 00\n> 0B 09\n".write(to: script, atomically: true, encoding: .utf8)
      let database = "\(scripts)/databases/values.json"
      let end = try await Tool("conform", script.path, "--database", database).end()
      #expect(end.status == 1)
      #expect(
        end.lines == [
          "FAIL \(folder.path)/wrong: line 4, > 0B 09, expected 0B 09, got 0B 01 02 03 04", "0 passed, 1 failed",
        ])
      let object = try #require(
        try await Tool("conform", "--json", script.path, "--database", database).end().objects().first)
      #expect(object["result"] as? String == "FAIL" && object["line"] as? Int == 4)
      #expect(object["expected"] as? String == "0B 09" && object["got"] as? String == "0B 01 02 03 04")

      let without = try await Tool("conform", script.path).end()
      #expect(without.status != 0 && without.errors.contains("no database for the server"))
      try "title: Wrong\nside: server\n< 0A 0".write(to: script, atomically: true, encoding: .utf8)
      let bad = try await Tool("conform", script.path).end()
      #expect(bad.status != 0 && bad.errors.contains("wrong.exchange:3:6: half an octet"))
      let nothing = try await Tool("conform", folder.path + "/none").end()
      #expect(nothing.status != 0 && nothing.errors.contains("no such file or folder"))
    }
  }

  /// What cannot be read fails; the other scripts are played.
  @Test func anUnreadableScriptAmongOthers() async throws {
    try await withFolder { folder in
      let good = "title: T\nside: client\ncall read 0x0003\n> 0A 03 00\n< 0B 01\nresult value 01\n"
      for (name, text) in [
        ("a", "title: Half an octet\nside: client\n< 0A 0"), ("b", good), ("c", "title: No side\n< 0A 03 00\n"),
        ("d", "title: No database\nside: server\n< 0A 03 00\n"),
        ("e", "title: Lost\nside: server\ndatabase: none.json\n< 0A 03 00\n"), ("f", good),
      ] {
        try text.write(to: folder.appending(path: "\(name).exchange"), atomically: true, encoding: .utf8)
      }
      let end = try await Tool("conform", folder.path).end()
      #expect(end.status == 1)
      #expect(end.lines.map { $0.prefix(4) } == ["FAIL", "PASS", "FAIL", "FAIL", "FAIL", "PASS", "2 pa"])
      #expect(end.lines.last == "2 passed, 4 failed")
      for cause in ["a.exchange:3:6: half an octet", "no side under test", "no database for", "none.json: no such"] {
        #expect(end.errors.contains(cause), "\(end.errors)")
      }
      let objects = try await Tool("conform", "--json", folder.path).end().objects()
      #expect(objects.map { $0["result"] as? String } == ["FAIL", "PASS", "FAIL", "FAIL", "FAIL", "PASS", nil])
      #expect(
        objects[3]["reason"] as? String == "\(folder.path)/d.exchange: no database for the server; "
          + "add \"database: FILE.json\", or give --database.")
    }
  }

  /// Pairing needs no database.
  @Test func servingWithoutADatabase() async throws {
    try await withFolder { folder in
      let ends = ["att", "control"].map { "unix:\(folder.path)/\($0)" }
      let server = try Tool("conform", "--serve", ends[0], "--control", ends[1])
      _ = try await server.line("listening on ")
      let script = "\(scripts)/SM/PER/SCPK/BV-02-C.exchange"
      let all = try await Tool.run(["conform", "--against", ends[0], "--control", ends[1], script])
      #expect(all.status == 0 && all.output.contains("0 failed"), "\(all.output)\(all.errors)")
      server.signal(SIGINT)
      #expect(await server.end().status == 0)
    }
  }

  /// Both ends are ours here; Tests/Interop has another stack at the other end.
  @Test(arguments: ["unix", "tcp"]) func overASocket(kind: String) async throws {
    try await withFolder { folder in
      let listen =
        kind == "tcp"
        ? ["tcp:127.0.0.1:0", "tcp:127.0.0.1:0"] : ["att", "control"].map { "unix:\(folder.path)/\($0)" }
      let server = try Tool(
        "conform", "--serve", listen[0], "--control", listen[1], "--database", "\(scripts)/databases/values.json")
      let words = try await server.line("listening on ").dropFirst("listening on ".count).split(
        separator: ", control on ")
      let ends = words.map(String.init)
      // Each group of steps once: PDUs, commands, reconnecting, a procedure and its result, a value.
      let played = [
        "GATT/SR/GAC/BV-01-C", "GATT/SR/GAR/BV-04-C", "GATT/SR/GAR/own-encrypted", "GATT/SR/GAR/own-dynamic",
        "GATT/SR/GAN/own-order", "GATT/SR/GAI/own-cut", "GATT/CL/GAD/BV-01-C", "GATT/CL/GAR/BV-08-C",
        "GATT/CL/GAR/BI-01-C", "own/client/discover-all", "GATT/CL/GAI/own-before-the-response", "own/server-300",
        // Pairing as both roles, with a question, its answer and the key; and the next script for ATT.
        "SM/PER/SCPK/BV-02-C", "SM/CEN/SCJW/own-numeric-comparison", "SM/CEN/OOB/BV-01-C",
        "SM/PER/FAILED/own-09-repeated-attempts", "own/client/security/repeated-once",
      ].map { "\(scripts)/\($0).exchange" }
      let all = try await Tool.run(["conform", "--against", ends[0], "--control", ends[1]] + played)
      // Three of them have four, four and three cases.
      let count = played.count + 3 + 3 + 2
      #expect(all.status == 0 && all.lines.last == "\(count) passed, 0 failed", "\(all.output)\(all.errors)")
      // Without `--control`, scripts that need it are skipped.
      let some = try await Tool.run(["conform", "--against", ends[0], played[1], played[4], played[14]])
      #expect(some.status == 0 && some.lines.last == "1 passed, 0 failed, 2 skipped", "\(some.output)\(some.errors)")
      #expect(some.output.contains("OOB/BV-01-C: a script of the channel smp needs a control connection"))
      server.signal(SIGINT)
      #expect(await server.end().status == 0)
      let gone = try await Tool("conform", "--against", ends[0], played[1]).end()
      #expect(gone.status == 1 && gone.errors.contains("is the stack under test running"))
      let lost = try await Tool("conform", played[1], "--database", folder.path + "/none.json").end()
      #expect(lost.status == 1 && lost.errors.contains("none.json: no such file"))
    }
  }

  /// The same file as a simulated device, which another one explores.
  @Test func serveAProfile() async throws {
    let (radio, spec) = try await controllers()
    let server = try Tool(
      "serve", "--hci", spec, "--name", "Profile", "--profile", "\(scripts)/databases/discovery.json")
    _ = try await server.line("serving Profile as ")
    let end = try await Tool("explore", "--hci", spec, "--name", "Profile", "--json").end()
    #expect(end.status == 0, "\(end.errors)")
    // Served as written: 0x0001 is the file's Generic Access, 0xFFFF the last handle.
    for word in ["\"2A19\"", "\"FFF1\"", "A0B10020-1D1D-4BBD-8E5C-6F0E5F1A0C00"] { #expect(end.output.contains(word)) }
    server.signal(SIGINT)
    #expect(await server.end().status == 0)
    radio.signal(SIGINT)
    _ = await radio.end()

    let bad = try await Tool("serve", "--hci", "sim", "--profile", "\(scripts)/FORMAT.md").end()
    #expect(bad.status != 0 && bad.errors.contains("FORMAT.md:1:1: "))
  }
}
