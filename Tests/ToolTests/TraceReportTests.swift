import Foundation
import Testing

@Suite("Tool: trace report", .realTime, .hang) struct TraceReportTests {
  private static let trace = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces/bumble-explore.btsnoop")

  @Test func aPage() async throws {
    try await withFolder { folder in
      let page = folder.appending(path: "page.html")
      let end = try await Tool.run(["trace", "report", Self.trace.path, "-o", page.path])
      #expect(end.status == 0 && end.output.contains("151 records"), "\(end.errors)")
      let text = try String(contentsOf: page, encoding: .utf8)
      #expect(text.hasPrefix("<!DOCTYPE html>") && text.hasSuffix("</html>\n"))
      // A page is replaced by another one, with a part of the records.
      let part = try await Tool.run(
        ["trace", "report", Self.trace.path, "--from", "10", "--to", "19", "-o", page.path])
      #expect(part.status == 0 && part.output.contains("10 records"), "\(part.errors)")
      #expect(try String(contentsOf: page, encoding: .utf8).contains("\"first\":10,"))
      #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == ["page.html"])
    }
  }
  /// The trace itself, and other people's files, are not replaced.
  @Test func otherFilesStay() async throws {
    try await withFolder { folder in
      let copy = folder.appending(path: "a.btsnoop")
      try FileManager.default.copyItem(at: Self.trace, to: copy)
      expectSentence(try await Tool.run(["trace", "report", copy.path, "-o", copy.path]), "is not a page")
      #expect(try Data(contentsOf: copy) == Data(contentsOf: Self.trace))
      let missing = folder.appending(path: "none/page.html").path
      expectSentence(try await Tool.run(["trace", "report", copy.path, "-o", missing]), "Cannot write")
      expectSentence(try await Tool.run(["trace", "report", folder.path + "/no", "-o", missing]), "Cannot open")
    }
  }
  /// What precedes the damage is on the page, which says what is wrong.
  @Test func damage() async throws {
    try await withFolder { folder in
      let bad = folder.appending(path: "bad.btsnoop"), page = folder.appending(path: "page.html")
      try Data(contentsOf: Self.trace).dropLast(3).write(to: bad)
      let end = try await Tool.run(["trace", "report", bad.path, "-o", page.path])
      #expect(end.status == 1 && end.output.contains("150 records"), "\(end.output)\(end.errors)")
      let text = try String(contentsOf: page, encoding: .utf8)
      #expect(text.contains("\"warnings\":[\""), "no warning")
    }
  }
  @Test func badOptions() async throws {
    for words in [["--from", "0"], ["--from", "9", "--to", "3"]] {
      let end = try await Tool.run(["trace", "report", Self.trace.path, "-o", "x.html"] + words)
      #expect(end.status != 0 && end.errors.contains("--from"))
    }
    let live = try await Tool.run(["trace", "report", "monitor:", "-o", "x.html"])
    #expect(live.status != 0 && live.errors.contains("trace convert"))
  }
}
