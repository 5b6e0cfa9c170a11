import BindruneCapture
import BindruneReplay
import BindruneTrace
import Foundation
import Testing

/// The traces of the project: those of the simulator here, those with foreign peers in Fixtures/Traces.
@Suite("Replay: recorded traces") struct FixtureTests {
  private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures")
  private static var isRecording: Bool { ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] == "1" }

  static func replay(_ url: URL, seed: UInt64? = nil) throws -> Replay {
    var collector = ReplayCollector()
    var file = try TraceFile(path: url.path)
    try file.read(into: &collector)
    return try Replay(collector, seed: seed)
  }

  /// A trace of the simulator: the file that is written now is the committed one, so the hosts behave as they did; it
  /// replays equally from the file.
  @Test(arguments: ["attributes, MTU 23, server", "several links, server", "Secure Connections, numeric, central"])
  func simulated(_ name: String) throws {
    let sample = try #require(OwnTraceTests.samples.first { $0.name == name })
    let file = name.lowercased().replacing(", ", with: "-").replacing(" ", with: "-")
    let url = Self.root.appending(path: "Replay/\(file).btsnoop")
    var writer = CaptureWriter(.btsnoop), octets: [UInt8] = []
    writer.begin(&octets)
    for packet in sample.packets { writer.append(packet.record, packet.octets.span, to: &octets) }
    let result = try Replay(sample.packets, seed: sample.seed).run()
    let expected = Self.root.appending(path: "Replay/\(file).txt"), words = text(result) + "\n"
    if Self.isRecording {
      try FileManager.default.createDirectory(at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
      try Data(octets).write(to: url)
      try Data("\(sample.seed)\n".utf8).write(to: URL(filePath: url.path + ".seed"))
      try Data(words.utf8).write(to: expected)
    }
    #expect(try Data(contentsOf: url) == Data(octets), "BINDRUNE_RECORD=1 swift test writes it again")
    #expect(try String(contentsOf: expected, encoding: .utf8) == words)
    // Its times have microseconds only.
    let again = try Self.replay(url, seed: sample.seed).run()
    #expect(again == result, "\(text(again))")
    #expect(again.isEqual)
  }

  /// Traces of our hosts with Bumble and on RootCanal, without a seed: no divergence in any.
  @Test func withForeignPeers() throws {
    let folder = Self.root.appending(path: "Traces")
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".btsnoop") }
    #expect(names.count >= 20)
    var compared = 0
    for name in names.sorted() {
      do {
        let result = try Self.replay(folder.appending(path: name)).run()
        #expect(result.isEqual, "\(name): \(text(result))")
        #expect(result.comparedCount > 20, "\(name)")
        compared += result.comparedCount
      } catch ReplayError.noFrames { #expect(name.contains("advertise")) }
    }
    #expect(compared == 1_844)
  }
}
