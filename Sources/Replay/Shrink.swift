import BindruneHCI

/// # Shrink
/// **Overview**: the shortest part of a trace that still shows its first divergence, by delta debugging.
///
/// **Function**: what follows the divergence goes first, then whole links, then records, in blocks of halving size. The
/// fragments of a frame stay together, and so do an ATT request and its response. The divergence is the same if stream
/// and both sides are equal. Deterministic; `mostRuns` bounds the number of replays.
public struct ReplayShrinker {
  public static var mostRuns: Int { 5_000 }
  private let seed: UInt64?
  private let wanted: ReplayDivergence
  private var packets: [ReplayPacket]
  private var runs = 0
  /// Reports progress: the packets that are left, and the replays so far.
  private let report: (Int, Int) -> Void

  /// nil: the trace shows no divergence.
  public init?(_ replay: Replay, report: @escaping (Int, Int) -> Void = { _, _ in }) throws(ReplayError) {
    guard let first = try replay.run().divergences.first else { return nil }
    wanted = first
    packets = replay.packets
    seed = replay.seed
    self.report = report
  }

  /// The packets that are left, with their numbers in the whole trace.
  public mutating func shrink() -> [ReplayPacket] {
    keepIfSame(packets.filter { $0.adapter == wanted.adapter })
    // A divergence without a recorded PDU shows at the end of a link.
    if let end = packets.firstIndex(where: { $0.number == wanted.number }) { keepIfSame(Array(packets[...end])) }
    let links = Script(packets).links.indices
    for link in links.reversed() {
      // The numbers of links change with every one that goes.
      let script = Script(packets)
      guard link < script.links.count else { continue }
      keep(without: Set(script.links[link].steps.flatMap { script.steps[$0].packets }))
    }
    removeBlocks()
    return packets
  }

  private mutating func removeBlocks() {
    var size = max(1, units.count / 2)
    while true {
      var at = 0, removed = false
      var list = units
      while at < list.count, runs < Self.mostRuns {
        let block = Set(list[at..<min(list.count, at + size)].joined())
        if keep(without: block) {
          removed = true
          list = units
        } else {
          at += size
        }
      }
      if runs >= Self.mostRuns || (size == 1 && !removed) { return }
      if !removed || size > 1 { size = max(1, size / 2) }
    }
  }
  /// What goes together: the packets of a frame and of its partner, else a packet.
  private var units: [[Int]] {
    let script = Script(packets)
    var units: [[Int]] = [], seen: Set<Int> = []
    for (index, step) in script.steps.enumerated() where !seen.contains(index) {
      seen.insert(index)
      var unit = step.packets
      if let partner = step.partner, seen.insert(partner).inserted { unit += script.steps[partner].packets }
      units.append(unit)
    }
    let used = Set(units.joined())
    return units + packets.indices.filter { !used.contains($0) }.map { [$0] }
  }
  @discardableResult private mutating func keep(without block: Set<Int>) -> Bool {
    keepIfSame(packets.enumerated().filter { !block.contains($0.offset) }.map(\.element))
  }
  @discardableResult private mutating func keepIfSame(_ candidate: [ReplayPacket]) -> Bool {
    guard candidate.count < packets.count, !candidate.isEmpty, runs < Self.mostRuns else { return false }
    runs += 1
    report(packets.count, runs)
    let replay = Replay(candidate, seed: seed)
    guard let result = try? replay.run(), let first = result.divergences.first, first.stream == wanted.stream,
      first.recorded == wanted.recorded, first.ours == wanted.ours, first.role == wanted.role
    else { return false }
    packets = candidate
    return true
  }
}
