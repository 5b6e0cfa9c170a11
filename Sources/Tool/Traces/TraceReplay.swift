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
      names the policy, how often it was met, and where. Every other difference is a divergence, with its reason; what \
      follows from a first one stands below it. Where the recorded host breaks a rule of trace check, the fault is its.

      Status 0: equal; 1: a divergence; 2: no replay was possible, nothing or less than half was compared, or an \
      output could not be written.

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
    if let why = result.insufficiency { throw Failure(why) }
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
      Console.line("Policy, no divergence")
      for freedom in ReplayFreedom.allCases {
        guard let use = result.freedoms[freedom] else { continue }
        let places = use.numbers.map { "\($0)" }.joined(separator: ", ") + (use.count > use.numbers.count ? " …" : "")
        Console.line("  \(freedom.rawValue): \(use.count), at record \(places)")
        Console.line(Console.styled("    \(freedom.meaning)", .dim))
      }
    }
    let first = result.first, followers = Dictionary(grouping: result.divergences.filter { !$0.isFirst }, by: \.group)
    for (index, divergence) in first.enumerated() {
      show(divergence, index == 0 ? "First divergence" : "Divergence \(index + 1)")
      guard let list = followers[divergence.group] else { continue }
      Console.line("  It may cause \(counted(list.count, "other")):")
      for other in list {
        Console.line("    \(Self.place(of: other)): \(other.reason.printable(limit: 300))\(Self.fault(of: other))")
      }
    }
    let words = result.divergenceCount == 1 ? "1 divergence" : "\(result.divergenceCount) divergences"
    var summary = "\(result.equalCount) of \(result.comparedCount) PDUs equal, \(words)"
    if first.count < result.divergenceCount { summary += ", of \(counted(first.count, "cause"))" }
    Console.line(Console.styled(summary, result.isEqual ? .green : .red))
  }
  private static func place(of divergence: ReplayDivergence) -> String {
    "record \(divergence.number), link 0x\(hexDigits(UInt64(divergence.handle), 4)), \(divergence.role.text), "
      + divergence.stream.rawValue
  }
  /// The rule that the recorded host breaks there.
  private static func fault(of divergence: ReplayDivergence) -> String {
    if case .bearerDead = divergence.cause { return "" }
    guard let rule = divergence.breach else { return "" }
    return " The recorded host breaks \(rule.id) there (\(rule.section)): \(rule.sentence)"
  }
  private func show(_ divergence: ReplayDivergence, _ title: String) {
    Console.line("\(title): \(Self.place(of: divergence))")
    Console.line("  \(divergence.reason.printable(limit: 300))\(Self.fault(of: divergence))")
    let left = ReplayDivergence.lines(divergence.recorded, divergence.stream)
    let right = ReplayDivergence.lines(divergence.ours, divergence.stream)
    sideBySide(("recorded", left), ("ours", right))
  }
  private static func object(_ result: ReplayResult) -> JSONLine {
    var object = JSONLine()
    object.add("verdict", !result.isEqual ? "different" : result.insufficiency == nil ? "equal" : "not compared")
    object.add("why", result.isEqual ? result.insufficiency : nil)
    object.add("compared", result.comparedCount)
    object.add("equal", result.equalCount)
    object.add("passedOver", max(0, result.offeredCount - result.comparedCount))
    object.add("divergences", result.divergenceCount)
    object.add("causes", result.first.count)
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
        line.add("meaning", freedom.meaning)
        line.add("count", use.count)
        line.add("records", use.numbers)
        return line
      })
    object.add("first", result.divergences.first.map(Self.object))
    object.add("divergenceList", result.divergences.map(Self.object))
    return object
  }
  private static func object(_ divergence: ReplayDivergence) -> JSONLine {
    var line = JSONLine()
    line.add("record", divergence.number)
    line.add("adapter", Int(divergence.adapter))
    line.add("handle", Int(divergence.handle))
    line.add("role", divergence.role.text)
    line.add("stream", divergence.stream.rawValue)
    line.add("reason", divergence.reason)
    line.add("cause", divergence.group + 1)
    line.add("follows", !divergence.isFirst)
    line.add("fault", divergence.isRecordedHostsFault ? "recorded host" : "not determined")
    line.add("rule", divergence.breach?.id)
    line.add("recorded", ReplayDivergence.lines(divergence.recorded, divergence.stream))
    line.add("ours", ReplayDivergence.lines(divergence.ours, divergence.stream))
    return line
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
