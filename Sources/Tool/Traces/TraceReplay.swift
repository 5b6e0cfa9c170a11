import ArgumentParser
import BindruneCapture
import BindruneReplay
import BindruneSystem
import BindruneTransport
import BindruneTrace
import BindruneWire
import Glibc
import SystemPackage

struct TraceReplay: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "replay",
    abstract: "Put our host in the place of the one that recorded a trace, and compare what they send.",
    discussion: """
      The controller's half of the trace is fed to a host of bindrune under virtual time. Its database and its \
      application's operations come from the trace. What it sends is compared with the recorded packets: ATT as client \
      and server, pairing, LE signaling, encryption and disconnection. Where correct hosts may differ, the output \
      names the freedom, how often it was used, and where.

      Status 0: no other difference; 1: a divergence; 2: no replay was possible, or an output could not be written.

      Examples:
        bindrune trace replay capture.btsnoop
        bindrune trace replay capture.btsnoop --shrink short.btsnoop
      """)

  @Argument(help: ArgumentHelp("The trace; - is standard input.", valueName: "file"), completion: .file())
  var file: String
  @Option(
    help: ArgumentHelp(
      """
      The seed of the recorded host's random numbers, so that keys and random values are compared too; by default the \
      number in FILE.seed, if there is one.
      """,
      valueName: "number"))
  var seed: UInt64?
  @Option(
    help: ArgumentHelp(
      "Write the shortest part of the trace that still shows the first divergence into this new file.",
      valueName: "file"))
  var shrink: String?
  @Flag(help: "Print one JSON object.")
  var json = false
  @OptionGroup var options: TraceOptions

  func run() async throws {
    Interruption.outputFailureStatus = Self.impossible
    do { try replay() } catch let failure as Failure {
      // 1 stands for a divergence.
      Console.error("Error: \(failure)")
      throw ExitCode(Self.impossible)
    }
  }
  private static let impossible: CInt = 2

  private func replay() throws {
    var collector = ReplayCollector()
    try options.read(file, into: &collector)
    if let gap = collector.gap {
      Console.warn("Packets are missing before record \(gap): the replay ends there.")
    }
    let result: ReplayResult, replay: Replay
    do throws(ReplayError) {
      replay = try Replay(collector, seed: seed ?? Self.sidecar(file))
      result = try replay.run()
    } catch { throw Failure(error.description) }
    if json { Console.line(Self.object(result)) } else { show(result) }
    if let shrink { try write(replay, to: shrink) }
    Console.drain()
    if !result.isEqual { throw ExitCode.failure }
  }

  /// The number in `FILE.seed`.
  private static func sidecar(_ path: String) -> UInt64? {
    guard let file = try? FileDescriptor.opened(FilePath(path + ".seed"), .readOnly) else {
      return nil
    }
    defer { try? file.close() }
    var octets = [UInt8](repeating: 0, count: 32)
    let count = (unsafe try? octets.withUnsafeMutableBytes { unsafe try file.read(into: $0) }) ?? 0
    return UInt64(String(decoding: octets[..<count], as: UTF8.self).split(whereSeparator: \.isWhitespace).first ?? "")
  }

  // MARK: Text

  private func show(_ result: ReplayResult) {
    for link in result.links where !link.compared.isEmpty || link.divergences > 0 {
      Console.line("Link 0x\(hexDigits(UInt64(link.handle), 4)), \(link.role.text)")
      for stream in ReplayStream.allCases {
        guard let compared = link.compared[stream] else { continue }
        let equal = link.equal[stream] ?? 0
        let text = "  \(stream.rawValue.padded(14)) \(equal) of \(compared) equal"
        Console.line(equal == compared ? text : Console.styled(text, .red))
      }
    }
    if !result.freedoms.isEmpty {
      Console.line("Freedoms")
      for freedom in ReplayFreedom.allCases {
        guard let use = result.freedoms[freedom] else { continue }
        let places = use.numbers.map { "\($0)" }.joined(separator: ", ") + (use.count > use.numbers.count ? " …" : "")
        Console.line("  \(freedom.rawValue): \(use.count), at record \(places)")
        Console.line(Console.styled("    \(freedom.meaning)", .dim))
      }
    }
    if let first = result.divergences.first { show(first) }
    let words = result.divergenceCount == 1 ? "1 divergence" : "\(result.divergenceCount) divergences"
    let summary = "\(result.equalCount) of \(result.comparedCount) PDUs equal, \(words)"
    Console.line(Console.styled(summary, result.isEqual ? .green : .red))
  }
  private func show(_ divergence: ReplayDivergence) {
    Console.line(
      "First divergence: record \(divergence.number), link 0x\(hexDigits(UInt64(divergence.handle), 4)), "
        + "\(divergence.role.text), \(divergence.stream.rawValue)")
    let left = ReplayDivergence.lines(divergence.recorded, divergence.stream)
    let right = ReplayDivergence.lines(divergence.ours, divergence.stream)
    sideBySide(("recorded", left), ("ours", right))
  }
  private static func object(_ result: ReplayResult) -> JSONLine {
    var object = JSONLine()
    object.add("compared", result.comparedCount)
    object.add("equal", result.equalCount)
    object.add("divergences", result.divergenceCount)
    object.add(
      "links",
      result.links.map { link in
        var line = JSONLine()
        line.add("adapter", Int(link.adapter))
        line.add("handle", Int(link.handle))
        line.add("role", link.role.text)
        line.add("divergences", link.divergences)
        for stream in ReplayStream.allCases where link.compared[stream] != nil {
          var counts = JSONLine()
          counts.add("compared", link.compared[stream])
          counts.add("equal", link.equal[stream] ?? 0)
          line.add(stream.rawValue, counts)
        }
        return line
      })
    object.add(
      "freedoms",
      ReplayFreedom.allCases.compactMap { freedom in
        guard let use = result.freedoms[freedom] else { return nil }
        var line = JSONLine()
        line.add("name", freedom.rawValue)
        line.add("count", use.count)
        line.add("records", use.numbers)
        return line
      })
    var first: JSONLine?
    if let divergence = result.divergences.first {
      var line = JSONLine()
      line.add("record", divergence.number)
      line.add("handle", Int(divergence.handle))
      line.add("stream", divergence.stream.rawValue)
      line.add("recorded", ReplayDivergence.lines(divergence.recorded, divergence.stream))
      line.add("ours", ReplayDivergence.lines(divergence.ours, divergence.stream))
      first = line
    }
    object.add("first", first)
    return object
  }

  // MARK: Shrinking

  private func write(_ replay: Replay, to path: String) throws {
    let start = ContinuousClock.now
    var last = start
    let progress: (Int, Int) -> Void = { left, runs in
      let now = ContinuousClock.now
      if now - start > .seconds(1), now - last > .milliseconds(200) {
        last = now
        Console.status("\(left) packets left after \(runs) replays")
      }
    }
    let packets: [ReplayPacket]
    do throws(ReplayError) {
      guard var shrinker = try ReplayShrinker(replay, report: progress) else {
        return Console.warn("There is no divergence to keep, so \(path) was not written.")
      }
      packets = shrinker.shrink()
    } catch { throw Failure(error.description) }
    Console.status(nil)
    var writer = CaptureWriter(Set(packets.map(\.adapter)) == [0] ? .btsnoop : .monitor), octets: [UInt8] = []
    writer.begin(&octets)
    for packet in packets { writer.append(packet.record, packet.octets.span, to: &octets) }
    do {
      let file = try FileDescriptor.opened(
        FilePath(path), .writeOnly, options: [.create, .exclusiveCreate], permissions: .ownerReadWrite)
      try file.closeAfter { _ = try file.writeAll(octets) }
    } catch { throw Failure("Cannot write \(path): \(error). --shrink writes a new file.") }
    if !json { Console.line("\(packets.count) of \(replay.packets.count) packets show it: \(path)") }
  }
}
