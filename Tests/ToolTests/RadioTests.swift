import Foundation
import TestSupport
import Testing

/// `controllers --name`, and the verbs that join it, each in a process of its own.
@Suite("Radio", .realTime, .hang) struct RadioTests {
  /// The tool, for a user whose runtime folder is `folder`.
  private func tool(_ folder: URL, _ arguments: String) throws -> Tool {
    try Tool.shell("exec env XDG_RUNTIME_DIR=\(folder.path) \(Tool.path) \(arguments)")
  }
  private func socket(_ folder: URL) -> String { folder.appending(path: "bindrune/desk.sock").path }

  @Test(arguments: [SIGINT, SIGTERM]) func processesMeet(signal: Int32) async throws {
    try await withFolder { folder in
      let radio = try tool(folder, "controllers --name desk")
      #expect(try await radio.line("listening on ") == "listening on sim:desk")
      let server = try tool(folder, "serve --hci sim:desk --name Belt")
      _ = try await server.line("serving Belt as ")
      let scan = try tool(folder, "scan --hci sim:desk --service 180D --json")
      _ = try await scan.line(#""name":"Belt""#)
      scan.signal(SIGINT)
      let heard = await scan.end()
      #expect(heard.status == 0 && heard.errors == "", "\(heard.errors)")
      let explored = try await tool(folder, "explore --hci sim:desk --name Belt").end()
      #expect(explored.status == 0 && explored.output.contains("Heart Rate Measurement 2A37"), "\(explored.errors)")

      // It is there once, and the second does not harm the first.
      expectSentence(
        try await tool(folder, "controllers --name desk").end(), "The radio sim:desk runs already: join it")
      let bench = try await tool(folder, "bench --hci sim:desk --hci sim:desk --count 3 --json").end()
      #expect(bench.status == 0, "\(bench.errors)")
      #expect(try bench.objects().last?["virtual"] as? Bool == true)

      radio.signal(signal)
      #expect(await radio.end().status == 0)
      #expect(!FileManager.default.fileExists(atPath: socket(folder)))
      expectSentence(await server.end(), "closed the connection")
      expectSentence(
        try await tool(folder, "scan --hci sim:desk").end(),
        #"Nobody runs the radio sim:desk (at \#(socket(folder))): start it with "bindrune controllers --name desk"."#)
    }
  }

  @Test func whatAKilledOneLeavesIsReplaced() async throws {
    try await withFolder { folder in
      for _ in 0..<2 {
        let radio = try tool(folder, "controllers --name desk")
        _ = try await radio.line("listening on sim:desk")
        #expect(try await tool(folder, "scan --hci sim:desk --duration 0.1").end().status == 0)
        radio.signal(SIGKILL)
        #expect(await radio.end().status == 128 + SIGKILL)
        #expect(FileManager.default.fileExists(atPath: socket(folder)))
        expectSentence(try await tool(folder, "scan --hci sim:desk").end(), "Nobody runs the radio sim:desk")
      }
    }
  }

  /// For a host that wants an address, and one that knows the name.
  @Test func oneRadioTwoWays() async throws {
    try await withFolder { folder in
      let radio = try tool(folder, "controllers --name desk --listen tcp:127.0.0.1:0")
      #expect(try await radio.line("listening on ") == "listening on sim:desk")
      let spec = String(try await radio.line("listening on ").dropFirst("listening on ".count))
      let server = try tool(folder, "serve --hci \(spec) --name Belt")
      _ = try await server.line("serving Belt as ")
      let scan = try tool(folder, "scan --hci sim:desk --json")
      _ = try await scan.line(#""name":"Belt""#)
      scan.signal(SIGINT)
      _ = await scan.end()
      radio.signal(SIGINT)
      #expect(await radio.end().status == 0)
      _ = await server.end()
    }
  }

  /// The name's file goes also where the other address cannot be had.
  @Test func halfOfItIsNone() async throws {
    try await withFolder { folder in
      let end = try await tool(folder, "controllers --name desk --listen unix:/no/such/folder/hci.sock").end()
      expectSentence(end, "unix:/no/such/folder/hci.sock")
      #expect(end.output == "" && !FileManager.default.fileExists(atPath: socket(folder)))
    }
  }

  @Test func whereItCannotBe() async throws {
    try await withFolder { folder in
      let place = folder.appending(path: "bindrune")
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: false)
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: place.path)
      for verb in ["controllers --name desk", "scan --hci sim:desk"] {
        expectSentence(try await tool(folder, verb).end(), "chmod 700 \(place.path)")
      }
      let name = String(repeating: "n", count: 100)
      expectSentence(try await tool(folder, "controllers --name \(name)").end(), "use a shorter name")
    }
  }

  @Test(arguments: ["controllers", "controllers --name ''", "controllers --name .x", "controllers --name a/b"])
  func usage(arguments: String) async throws {
    let end = try await Tool.shell("bindrune \(arguments)").end()
    #expect(end.status == 64 && end.output == "" && end.errors.hasPrefix("Error: "))
    #expect(
      end.errors.contains(arguments == "controllers" ? "add --name desk" : "for example sim:desk"), "\(end.errors)")
  }
}
