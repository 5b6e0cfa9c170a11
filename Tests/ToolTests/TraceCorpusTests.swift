import BindruneCapture
import BindruneWire
import Foundation
import BindruneHCI
import Synchronization
import Testing

@testable import BindruneTool

/// `trace check`, `stats` and `show` over folders.
@Suite("Tool: folders of traces", .realTime, .hang) struct TraceCorpusTests {
  private static let fixtures = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces")
  private static let trace = fixtures.appending(path: "pairing-sc-jw-central.btsnoop")

  /// A folder `captures` with traces at three depths, in an order that neither names alone nor depths give, and beside
  /// them what folders have: notes, an empty file, hidden files, a pipe, and links to files, to folders and in circles.
  private func withCaptures(_ body: (_ captures: String, _ traces: [String]) async throws -> Void) async throws {
    try await withFolder { folder in
      let captures = folder.appending(path: "captures"), files = FileManager.default
      for name in ["a", "a.b", "a/deep", ".hidden"] {
        try files.createDirectory(at: captures.appending(path: name), withIntermediateDirectories: true)
      }
      let traces = ["a.b/two.btsnoop", "a/deep/four", "a/three.log", "a/tied.btsnoop", "z.btsnoop", "É.btsnoop"]
      for name in traces where name != "a/tied.btsnoop" {
        try files.copyItem(at: Self.trace, to: captures.appending(path: name))
      }
      try files.copyItem(at: Self.trace, to: captures.appending(path: ".hidden/one.btsnoop"))
      try files.copyItem(at: Self.trace, to: folder.appending(path: "outside.btsnoop"))
      try Data("notes about these traces\n".utf8).write(to: captures.appending(path: "a/notes.txt"))
      try Data().write(to: captures.appending(path: "empty"))
      // The path is used during the call only.
      let pipe = unsafe mkfifo(captures.appending(path: "a/pipe").path, 0o600)
      #expect(pipe == 0)
      for (link, target) in [("a/tied.btsnoop", "../../outside.btsnoop"), ("a/deep/back", "../.."), ("here", ".")] {
        try files.createSymbolicLink(atPath: captures.appending(path: link).path, withDestinationPath: target)
      }
      try await body(captures.path, traces.map { "\(captures.path)/\($0)" })
    }
  }
  private func order(_ objects: [[String: any Sendable]]) -> [String] {
    objects.compactMap { $0["file"] as? String }.reduce(into: []) { if $0.last != $1 { $0.append($1) } }
  }

  @Test func whatIsRead() async throws {
    try await withCaptures { captures, traces in
      let check = try await Tool("trace", "check", captures).end()
      let summaries = check.lines.filter { $0.hasPrefix(captures) && $0.contains("; 152 records; ") }
      #expect(summaries.map { String($0.prefix { $0 != ":" }) } == traces, "\(check.output)")
      #expect(check.lines.last?.hasPrefix("6 files: ") == true && check.status != 2)
      let warnings = check.errors.split(separator: "\n").map(String.init)
      try #require(warnings.count == 2, "\(check.errors)")
      #expect(
        warnings[0].contains("captures/a/deep/back and 1 other file: links to folders are not followed.")
          && warnings[1].contains("captures/a/notes.txt and 2 other files: not a trace, skipped."), "\(warnings)")

      // Every verb reads the same files, in the same order.
      for arguments in [["check", "--json"], ["stats", "--json"], ["show", "--json", "--layer", "smp"]] {
        let objects = try await Tool.run(["trace"] + arguments + [captures + "/"]).objects()
        #expect(order(objects) == traces, "\(arguments)")
      }
      // A file that is an argument is read whatever it is; a folder without traces is a mistake.
      let named = try await Tool("trace", "check", captures + "/a/notes.txt", captures + "/a.b").end()
      #expect(named.status == 2 && named.errors.contains("this is not a trace") && named.output.contains("two.btsnoop"))
      for verb in ["check", "stats"] {
        expectSentence(try await Tool("trace", verb, captures + "/.hidden/none").end(), "No such file", status: 2)
      }
      for arguments in [["check"], ["stats"], ["show", "--fields"]] {
        try await withFolder { empty in
          let end = try await Tool.run(["trace"] + arguments + [empty.path])
          expectSentence(end, "There is no trace in these folders.", status: 2)
        }
      }
    }
  }

  /// Every line is complete by itself: outputs of separate runs, joined, are the output of one.
  @Test func outputsCanBeJoined() async throws {
    try await withCaptures { captures, traces in
      for arguments in [["check", "--json"], ["stats", "--json"], ["show", "--json"]] {
        let whole = try await Tool.run(["trace"] + arguments + [captures])
        #expect(whole.errors.split(separator: "\n").last?.hasPrefix("6 files: ") == true, "\(whole.errors)")
        var joined = ""
        for part in [[captures + "/a.b"], [captures + "/a"], [traces[4]], [traces[5]]] {
          joined += try await Tool.run(["trace"] + arguments + part).output
        }
        #expect(joined == whole.output && whole.lines.count >= 12)
        #expect(try whole.objects().allSatisfy { $0["file"] is String })
      }
    }
  }

  @Test func fields() async throws {
    try await withCaptures { captures, traces in
      let one = try await Tool("trace", "show", "--fields", traces[0]).end()
      #expect(one.lines.first == "frame\tdir\tconn\tlayer\topcode\thandle\tvalue_hex\tpdu_hex")
      let all = try await Tool("trace", "show", "--fields", captures).end()
      #expect(all.lines.first == "file\t\(one.lines.first ?? "?")" && all.status == 0)
      #expect(Array(all.lines.dropFirst()) == traces.flatMap { file in one.lines.dropFirst().map { "\(file)\t\($0)" } })
      // A name cannot make a column or a line.
      let odd = captures + "/a/\tb\nc"
      try FileManager.default.copyItem(atPath: traces[0], toPath: odd)
      let two = try await Tool("trace", "show", "--fields", odd, traces[0]).end()
      #expect(two.lines.allSatisfy { $0.count { $0 == "\t" } == 8 } && two.lines.count == 2 * one.lines.count - 1)
      #expect(two.lines[1].hasPrefix("\(captures)/a/\\tb\\nc\t"))
      let objects = try await Tool("trace", "show", "--json", odd).end().objects()
      #expect(order(objects) == [odd])
    }
  }

  /// One bad file, link or folder stops no other; each has its sentence, also in the objects.
  @Test func badFiles() async throws {
    try await withCaptures { captures, traces in
      let cut = captures + "/a/cut.btsnoop", dangling = captures + "/a/dangling", circle = captures + "/circle"
      try Data(contentsOf: Self.trace).prefix(1_000).write(to: URL(filePath: cut))
      for (link, target) in [(dangling, "none"), (circle, "circle")] {
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: target)
      }
      for arguments in [
        ["check"], ["check", "--json"], ["stats", "--json"], ["show", "--json"], ["show", "--fields"],
      ] {
        let end = try await Tool.run(["trace"] + arguments + [captures])
        #expect(end.status == 2)
        let errors = end.errors.split(separator: "\n").filter { $0.hasPrefix("Error: ") }
        try #require(errors.count == 3, "\(end.errors)")
        for (error, words) in zip(
          errors, ["the file ends within the record", "No such file", "Too many levels of symbolic links"])
        {
          #expect(error.contains(words), "\(error)")
        }
        let summary = (end.lines + end.errors.split(separator: "\n").map(String.init)).last {
          $0.hasPrefix("9 files: ")
        }
        #expect(summary?.hasSuffix("; 3 files could not be read to the end") == true)
        for trace in traces { #expect(end.output.contains(trace)) }
        if arguments == ["check", "--json"] || arguments == ["stats", "--json"] {
          let failed = try end.objects().filter { $0["error"] is String }
          #expect(failed.compactMap { $0["file"] as? String } == [cut, dangling, circle])
        }
      }
    }
  }

  /// Also for root, without the capabilities that let it read everything.
  @Test(.enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/setpriv"), "setpriv is not installed"))
  func unreadableFolder() async throws {
    try await withCaptures { captures, traces in
      let privileges = getuid() == 0 ? "setpriv --bounding-set=-dac_override,-dac_read_search" : ""
      let script = "chmod 0 '\(captures)/a'; \(privileges) '\(Tool.path)' trace check --json '\(captures)'"
      let end = try await Tool.shell("\(script); status=$?; chmod 700 '\(captures)/a'; exit $status").end()
      #expect(end.status == 2 && end.errors.contains("Error: Cannot read the folder \(captures)/a: Permission denied."))
      let files = try end.objects().filter { $0["records"] != nil }
      #expect(order(files) == [captures + "/a", traces[0], traces[4], traces[5]], "\(end.output)")
    }
  }

  /// A name that is not UTF-8 leads to no file.
  @Test func nameThatIsNoText() async throws {
    try await withFolder { folder in
      let end = try await Tool.shell(
        "cp '\(Self.trace.path)' \"\(folder.path)/$(printf 'a\\377')\"; bindrune trace check '\(folder.path)'"
      ).end()
      #expect(end.status == 2 && end.errors.contains("a\u{FFFD}: its name is not UTF-8. Rename it."), "\(end.errors)")
    }
  }

  /// gzip runs for many files at the same time, also if the file's descriptor has the number that gzip's shell uses.
  @Test func compressed() async throws {
    try await withFolder { folder in
      let plain = try await Tool("trace", "show", "--fields", Self.trace.path).end().lines.dropFirst()
      let packed = folder.appending(path: "0.gz").path
      let gzip = try await Tool.shell(
        "gzip -c '\(Self.trace.path)' >'\(packed)'; for n in 1 2 3 4 5 6 7 8 9; do cp '\(packed)' '\(folder.path)'/$n; done; "
          + "echo words | gzip -c >'\(folder.path)/notes.gz'"
      ).end()
      #expect(gzip.status == 0)
      let all = try await Tool("trace", "show", "--fields", folder.path).end()
      #expect(all.status == 0 && all.lines.count == 1 + 10 * plain.count, "\(all.errors)")
      #expect(all.errors.contains("notes.gz: not a trace, skipped."))
      for last in 3...9 {
        let taken = (3...last).map { "\($0)</dev/null" }.joined(separator: " ")
        let end = try await Tool.shell("bindrune trace show --fields '\(packed)' \(taken)").end()
        #expect(end.status == 0 && end.lines.dropFirst() == plain, "\(last): \(end.errors)")
      }
    }
  }

  /// Files leave in their order, whatever their sizes and however little may wait.
  @Test(arguments: [0, 1_000, 1 << 20]) func orderedOutput(mostWaiting: Int) async {
    let seed = UInt64.random(in: 0...UInt64.max)
    print("seed \(seed)")
    var blocks: [[[UInt8]]] = []
    for file in 0..<40 {
      let count = Int(seed >> UInt64(file) & 31)
      blocks.append((0..<count).map { [UInt8](repeating: UInt8(file), count: 1 + (file * 31 + $0 * 7) % 400) })
    }
    let files = blocks
    let written = Mutex<[UInt8]>([])
    let output = OrderedOutput(mostWaiting: mostWaiting) { octets in written.withLock { $0 += octets } }
    // The readers of `TraceBatch`, each on a thread of its own: begun in order, a few at a time.
    let next = Atomic(0)
    await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
      let left = Box(4)
      for _ in 0..<4 {
        Thread.detachNewThread {
          while true {
            let file = next.add(1, ordering: .relaxed).oldValue
            if file >= files.count { break }
            for block in files[file] { output.write(block, of: file) }
            output.end(file)
          }
          if left.count.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 { done.resume() }
        }
      }
    }
    let expected = Array(files.joined().joined())
    #expect(written.withLock { $0 } == expected)
  }
  private final class Box: Sendable {
    let count: Atomic<Int>
    init(_ count: Int) { self.count = Atomic(count) }
  }

  /// A reader that closes the pipe ends the reading of the other files.
  @Test func closedPipe() async throws {
    try await withCaptures { captures, _ in
      let end = try await Tool.shell("bindrune trace show --json '\(captures)' | head -n 1").end()
      #expect(end.status == 0 && end.lines.count == 1 && !end.errors.contains("Error"), "\(end.errors)")
    }
  }
}
