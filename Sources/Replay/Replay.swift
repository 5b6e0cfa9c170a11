import BindruneCapture
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
///     print(result.comparedCount, result.divergenceCount)
///
/// Two runs give the same result.
public struct Replay: Sendable {
  public let packets: [ReplayPacket]
  /// The seed of the random numbers with which the trace was recorded: then keys and random values are compared too.
  /// nil: unknown.
  public var seed: UInt64?

  public init(_ packets: [ReplayPacket], seed: UInt64? = nil) {
    self.packets = packets
    self.seed = seed
  }
  /// Throws if the trace cannot be replayed.
  public init(_ collector: ReplayCollector, seed: UInt64? = nil) throws(ReplayError) {
    if let problem = collector.problem { throw problem }
    self.init(collector.packets, seed: seed)
  }

  /// Replays the trace; each adapter with a host of its own.
  public func run() throws(ReplayError) -> ReplayResult {
    if packets.isEmpty { throw .noPackets }
    var result = ReplayResult(), frames = 0
    for adapter in Set(packets.map(\.adapter)).sorted() {
      let script = Script(packets.filter { $0.adapter == adapter })
      frames += script.frameCount
      var run = ReplayRun(script, seed: seed, adapter: adapter)
      run.play()
      result.merge(run.result)
    }
    if frames == 0 { throw .noFrames }
    return result
  }
}

extension ReplayResult {
  mutating func merge(_ other: ReplayResult) {
    links += other.links
    divergences = Array((divergences + other.divergences).sorted { $0.number < $1.number }.prefix(Self.mostDivergences))
    divergenceCount += other.divergenceCount
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
