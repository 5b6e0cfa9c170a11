import BindruneCapture
import BindruneWire
import Foundation
import BindruneHCI
import Testing

/// `trace replay`, over a committed trace of the simulator and a changed copy.
@Suite("Tool: trace replay", .realTime, .hang) struct TraceReplayTests {
  private static let trace = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Replay/attributes-mtu-23-server.btsnoop")

  /// Octets of the trace, and where its records' packets begin.
  private func records() throws -> (octets: [UInt8], packets: [Range<Int>]) {
    var octets = [UInt8](try Data(contentsOf: Self.trace)), packets: [Range<Int>] = []
    var parser = CaptureParser(), at = 0
    while true {
      var bytes = octets.mutableSpan
      guard case .record(let record) = try parser.next(&bytes, at: &at, isLast: true) else { return (octets, packets) }
      packets.append(record.octets.range)
    }
  }

  @Test func equal() async throws {
    let end = try await Tool.run(["trace", "replay", Self.trace.path])
    #expect(end.status == 0 && end.errors == "", "\(end.errors)")
    #expect(end.lines.last?.hasSuffix("PDUs equal, 0 divergences") == true)
    let object = try #require(try await Tool.run(["trace", "replay", "--json", Self.trace.path]).objects().first)
    #expect(object["divergences"] as? Int == 0 && object["compared"] as? Int == object["equal"] as? Int)
  }

  /// What the tool records keeps the rules, and its own host sends the same again.
  @Test func ownRecording() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "demo.btsnoop").path
      let demo = try await Tool.run(["demo", "--brief", "--trace", path])
      #expect(demo.status == 0, "\(demo.errors)")
      let check = try await Tool.run(["trace", "check", path])
      #expect(check.status == 0, "\(check.output)")
      let end = try await Tool.run(["trace", "replay", path])
      #expect(end.status == 0 && end.lines.last == "13 of 13 PDUs equal, 0 divergences", "\(end.output)")
    }
  }

  /// The first divergence side by side, and the shortest trace that shows it.
  @Test func changed() async throws {
    try await withFolder { folder in
      var (octets, packets) = try records()
      // The first Error Response of the host: its code becomes Attribute Not Long, 0x0B.
      let index = try #require(
        packets.firstIndex { range in
          octets[range].starts(with: [2]) && octets[range].dropFirst(7).starts(with: [4, 0, 1])
        })
      octets[packets[index].upperBound - 1] = 0x0B
      let changed = folder.appending(path: "changed"), short = folder.appending(path: "short").path
      try Data(octets).write(to: changed)
      let end = try await Tool.run(["trace", "replay", changed.path, "--shrink", short])
      #expect(end.status == 1 && end.errors == "", "\(end.errors)")
      #expect(end.lines.contains { $0.hasPrefix("First divergence: record \(index + 1), link 0x") }, "\(end.output)")
      #expect(end.lines.contains { $0.contains("recorded") && $0.contains("ours") })
      #expect(end.lines.contains { $0.contains("Attribute Not Long") })
      #expect(end.lines.contains { $0.hasPrefix("  Recorded is Error Code: ") }, "\(end.output)")
      let object = try #require(try await Tool.run(["trace", "replay", "--json", changed.path]).objects().first)
      let list = try #require(object["divergenceList"] as? [[String: Any]])
      #expect(list.count == 1 && list[0]["record"] as? Int == index + 1 && list[0]["follows"] as? Bool == false)
      #expect((list[0]["reason"] as? String)?.hasPrefix("Recorded is Error Code: ") == true)
      #expect(end.lines.last == "2 of \(packets.count) packets show it: \(short)")
      let again = try await Tool.run(["trace", "replay", short])
      #expect(again.status == 1 && again.lines.last == "0 of 1 PDUs equal, 1 divergence", "\(again.output)")
      expectSentence(
        try await Tool.run(["trace", "replay", changed.path, "--shrink", short]), "File exists", status: 2)
    }
  }

  /// A trace of which nothing was compared has a status of its own, and the sentence why, in text and JSON.
  @Test func nothingCompared() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "peer").path
      // The peer's Security Request, on a link that the trace begins on: the host says nothing.
      let packet: [UInt8] = [2, 0x40, 0x20, 6, 0, 2, 0, 6, 0, 0x0B, 0x01]
      var writer = CaptureWriter(.btsnoop), octets: [UInt8] = []
      writer.begin(&octets)
      let record = CaptureRecord(number: 1, direction: .fromController, octets: Octets(0, packet.count))
      writer.append(record, packet.span, to: &octets)
      try Data(octets).write(to: URL(filePath: path))
      let end = try await Tool.run(["trace", "replay", path])
      #expect(end.status == 2 && end.errors.hasPrefix("Error: Nothing was compared: "), "\(end.errors)")
      #expect(end.lines.last == "0 of 0 PDUs equal, 0 divergences", "\(end.output)")
      let object = try #require(try await Tool.run(["trace", "replay", "--json", path]).objects().first)
      #expect(object["verdict"] as? String == "not compared")
      #expect((object["why"] as? String)?.hasPrefix("Nothing was compared: ") == true)
    }
  }

  /// Behind missing packets nothing is compared: the host that is put in cannot know them.
  @Test func gap() async throws {
    try await withFolder { folder in
      var (octets, packets) = try records()
      // The lengths of a record in the middle.
      let index = packets.count / 2
      for place in packets[index].lowerBound - 24..<packets[index].lowerBound - 16 { octets[place] = 0xEE }
      let damaged = folder.appending(path: "damaged")
      try Data(octets).write(to: damaged)
      let stopped = try await Tool.run(["trace", "replay", damaged.path])
      #expect(stopped.status == 2 && stopped.errors.contains("--resync continues behind it"), "\(stopped.errors)")
      let end = try await Tool.run(["trace", "replay", "--resync", damaged.path])
      #expect(end.status == 0 && end.lines.last?.hasSuffix("PDUs equal, 0 divergences") == true, "\(end.output)")
      #expect(end.errors.contains("Packets are missing before record \(index + 1): the replay ends there."))
    }
  }

  @Test func impossible() async throws {
    try await withFolder { folder in
      let text = folder.appending(path: "text")
      try Data("this is a text and no trace\n".utf8).write(to: text)
      for (path, words) in [
        (text.path, "this is not a trace"), (folder.path, "Is a directory"), (folder.path + "/none", "No such file"),
      ] {
        let end = try await Tool.run(["trace", "replay", path])
        #expect(end.status == 2 && end.output == "" && end.errors.hasPrefix("Error: ") && end.errors.contains(words))
        #expect(end.errors.split(separator: "\n").count == 1)
      }
      let full = try await Tool.shell("bindrune trace replay '\(Self.trace.path)' >/dev/full").end()
      #expect(full.status == 2 && full.errors.contains("Standard output failed"))
      let check = try await Tool.shell("bindrune trace check '\(Self.trace.path)' >/dev/full").end()
      #expect(check.status == 2 && check.errors.contains("Standard output failed"))
    }
  }
}
