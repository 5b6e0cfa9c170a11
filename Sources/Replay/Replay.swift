import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI

/// Puts our host in the place of the one that recorded a trace, and compares what the two send.
///
/// ## Function
/// The controller's half of the trace is fed to a `HostCore` under virtual time; the operations of the application are
/// inferred from the recorded host's packets, and issued at the recorded points. What the core sends is compared with
/// what the recorded host sent: ATT as client and server, SMP, LE signaling, and the commands that encrypt or end a
/// link. ``ReplayFreedom`` lists how correct hosts may differ.
///
///     var collector = ReplayCollector()
///     var file = try TraceFile(path: "capture.btsnoop")
///     try file.read(into: &collector)
///     let result = try Replay(collector).run()
///     print(result.comparedCount, result.divergences.count)
///
/// Two runs give the same result.
public struct Replay: Sendable {
  public let packets: [ReplayPacket]
  /// The seed of the random numbers with which the trace was recorded: then keys and random values are compared too.
  /// nil: unknown.
  public var seed: UInt64?
  private var recordsBehindGap = 0

  public init(_ packets: [ReplayPacket], seed: UInt64? = nil) {
    self.packets = packets
    self.seed = seed
  }
  /// Throws if the trace cannot be replayed.
  public init(_ collector: ReplayCollector, seed: UInt64? = nil) throws(ReplayError) {
    if let problem = collector.problem { throw problem }
    self.init(collector.packets, seed: seed)
    recordsBehindGap = collector.recordsBehindGap
  }

  /// Replays the trace; each adapter with a host of its own.
  public func run() throws(ReplayError) -> ReplayResult {
    if packets.isEmpty { throw .noPackets }
    var result = ReplayResult(), frames = 0
    result.records = packets.count
    result.recordsBehindGap = recordsBehindGap
    for adapter in Set(packets.map(\.adapter)).sorted() {
      let script = Script(packets.filter { $0.adapter == adapter })
      frames += script.frameCount
      var run = ReplayRun(script, seed: seed, adapter: adapter)
      run.play()
      result.merge(run.result)
    }
    if frames == 0, result.comparedCount == 0 { throw .noFrames }
    if !result.isEqual { judge(&result) }
    return result
  }
  /// Notes which divergences are where the recorded host breaks a rule of the Specification.
  private func judge(_ result: inout ReplayResult) {
    var checker = DissectingSink(Checker()), rules: [Int: CheckRule] = [:]
    for packet in packets { checker.receive(packet.record, packet.octets.span) }
    checker.pause()
    for finding in checker.sink.findings where finding.party == .host && rules[finding.number] == nil {
      rules[finding.number] = finding.rule
    }
    for index in result.divergences.indices where result.divergences[index].recorded != nil {
      result.divergences[index].breach = rules[result.divergences[index].number]
    }
  }
}

extension ReplayResult {
  mutating func merge(_ other: ReplayResult) {
    links += other.links
    for var divergence in other.divergences {
      divergence.group += groupCount
      divergences.append(divergence)
    }
    groupCount += other.groupCount
    divergences.sort { $0.number < $1.number }
    offeredCount += other.offeredCount
    passedOver.merge(other.passedOver) { $0 + $1 }
    for (freedom, use) in other.freedoms {
      var sum = freedoms[freedom] ?? Use()
      sum.count += use.count
      sum.numbers = Array((sum.numbers + use.numbers).sorted().prefix(5))
      freedoms[freedom] = sum
    }
  }
}

/// SplitMix64: the generator of a seed, as the tests and the Simulator use it.
struct ReplayChance: RandomNumberGenerator {
  private var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}
