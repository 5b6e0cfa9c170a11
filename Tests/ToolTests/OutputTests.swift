import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import BindruneTool

/// Output that nobody reads stops nothing and ends nothing; text of others is never printed raw.
@Suite("Tool: output", .realTime, .hang) struct OutputTests {
  /// Waits until the file at `path` has `octets` in it.
  private func wait(for octets: [UInt8], in path: String) async throws {
    let end = ContinuousClock.now + .seconds(25)
    while ContinuousClock.now < end {
      if let file = FileManager.default.contents(atPath: path), file.range(of: Data(octets)) != nil { return }
      try await Task.sleep(for: .milliseconds(20))
    }
    Issue.record("\(octets) never came into \(path)")
  }
  private let extendedAdvertisingEnable: [UInt8] = [0x01, 0x39, 0x20]  // Vol 4, Part E, §7.8.56
  private let reset: [UInt8] = [0x01, 0x03, 0x0C, 0x00]  // §7.3.2

  /// The end by a signal or by time comes all the same, and leaves the controller reset.
  @Test(arguments: [SIGINT, SIGTERM, 0]) func anEndWithoutReader(signal: Int32) async throws {
    try await withFolder { folder in
      let trace = folder.appending(path: "trace.btsnoop").path
      let tool = try Tool.paused(
        ["serve", "--hci", "sim", "--trace", trace] + (signal == 0 ? ["--duration", "0.5"] : []))
      try await wait(for: extendedAdvertisingEnable, in: trace)
      if signal != 0 { tool.signal(signal) }
      // 128 + n where a line is lost that nobody has read: not where the signal came before the first.
      #expect([0, signal == 0 ? 0 : 128 + signal].contains(await tool.status()))
      #expect(FileManager.default.contents(atPath: trace)?.suffix(4) == Data(reset))
    }
  }

  /// What a finished verb has printed is not lost on a reader that has paused, and a signal ends the waiting.
  @Test(arguments: [true, false]) func aPausedReader(goesOn: Bool) async throws {
    let demo = try Tool.paused(["demo"])
    _ = try await demo.errorLine("Waiting until standard output is read")
    if goesOn {
      demo.resumeReading()
      let end = await demo.end()
      #expect(end.status == 0 && !end.output.contains("dropped"))
      #expect(end.lines.filter { $0.first?.isNumber == true }.count == 9)
      #expect(end.lines.contains("  link 1 is down"))
    } else {
      demo.signal(SIGINT)
      #expect(await demo.status() == 128 + SIGINT)
    }
  }

  /// Clients are served while nobody reads what is printed of them.
  @Test func servingWithoutReader() async throws {
    let (radio, spec) = try await controllers()
    let server = try Tool.paused(["serve", "--hci", spec, "--name", "Unread"])
    // Each explorer is told of in lines that nobody reads; the value of 2A39 is answered for by the application.
    for _ in 0..<2 {
      let end = try await Tool("explore", "--hci", spec, "--name", "Unread", "--timeout", "20").end()
      #expect(end.status == 0, "\(end.errors)")
    }
    server.signal(SIGINT)
    #expect(await server.status() == 128 + SIGINT)
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  /// A pipe as trace file: refused while nobody has opened it, and no hindrance when its reader does not read.
  @Test func aTraceIntoAPipe() async throws {
    try await withFolder { folder in
      let pipe = folder.appending(path: "pipe").path
      #expect(unsafe mkfifo(pipe, 0o600) == 0)
      expectSentence(try await Tool("scan", "--hci", "sim", "--trace", pipe).end(), "nobody reads this pipe yet")
      let reader = unsafe open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      defer { close(reader) }
      let end = try await Tool("scan", "--hci", "sim", "--duration", "0.5", "--trace", pipe).end()
      #expect(end.status == 0 && end.lines.last == "1 device", "\(end.errors)")
      var header = [UInt8](repeating: 0, count: 16)
      let count = unsafe header.withUnsafeMutableBytes { unsafe read(reader, $0.baseAddress, $0.count) }
      #expect(count == 16 && header.starts(with: "btsnoop\0".utf8))
    }
  }

  @Test func closedStreams() async throws {
    expectSentence(try await Tool.shell("bindrune overflow 180D >&-").end(), "Standard output failed: Bad file")
    expectSentence(try await Tool.shell("bindrune demo --brief >&-").end(), "Standard output failed: Bad file")
    let silent = try await Tool.shell("bindrune overflow 180D --json 2>&-").end()
    #expect(silent.status == 0 && silent.errors == "" && silent.lines.count == 1)
    let wrong = try await Tool.shell(
      "bindrune overflow wrong 2>&-; echo $?; bindrune scan --hci wrong >&- 2>&- <&-; echo $?"
    ).end()
    #expect(wrong.lines == ["64", "64"] && wrong.errors == "")
  }

  @Test func textOfOthers() async throws {
    let escapes = "\u{1B}[31m\nError: forged\u{202E}"
    func check(_ arguments: [String], _ words: String) async throws {
      let end = try await Tool.run(arguments), errors = end.errors
      #expect(end.status != 0 && errors.contains(words), "\(errors)")
      #expect(!errors.contains("\u{1B}") && !errors.contains("\u{202E}") && !errors.contains("\nError"), "\(errors)")
    }
    let shown = #"\u{1B}[31m\nError: forged\u{202E}"#
    try await check(["scan", "--hci", "tcp:\(escapes)"], shown)
    try await check(["scan", "--hci=\(escapes)"], shown)
    try await check([escapes], shown)
    try await check(["serve", "--hci", "unix:/no/\(escapes)"], shown)
    try await check(["serve", "--hci", "sim", "--profile", "/no/\(escapes)"], shown)
    try await check(["demo", "--trace", "/no/\(escapes)"], shown)
    try await check(["explore", "--hci", "sim", "--timeout", "0.1", "--name", escapes], shown)
    try await withFolder { folder in
      let profile = folder.appending(path: "profile.json").path
      try #"{ "ke\u001By\u202E\n": 1 }"#.write(toFile: profile, atomically: true, encoding: .utf8)
      try await check(["serve", "--hci", "sim", "--profile", profile], #"unknown key "ke\u{1B}y\u{202E}\n""#)
    }
    let long = try await Tool("overflow", String(repeating: "x", count: 100_000)).end()
    #expect(long.status == 64 && long.errors.utf8.count < 10_000)
  }

  /// JSON is read by programs: nothing is changed, and what steers a terminal is escaped.
  @Test func json() throws {
    let name = "a\u{202E}\u{2066}b\u{1B}\u{85}\u{2028}\u{F0000}👩‍👧 \"\\"
    var line = JSONLine()
    line.add("name", name)
    let text = line.description
    #expect(text == #"{"name":"a\u202e\u2066b\u001b\u0085\u2028\udb80\udc00👩‍👧 \"\\"}"#)
    let object = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: String]
    #expect(object?["name"] == name)
  }
}
