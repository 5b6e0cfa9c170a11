import Foundation
import BindruneHCI
import TestSupport
import Testing

@Suite("Chaos") struct ChaosTests {
  /// `BINDRUNE_SEEDS` of them, 200 if it is not set.
  private static let seeds = ProcessInfo.processInfo.environment["BINDRUNE_SEEDS"].flatMap { Int($0) } ?? 200

  /// Everything that must hold, on many seeds.
  @Test(arguments: 0..<20) func invariants(_ block: Int) throws {
    for seed in stride(from: block, to: Self.seeds, by: 20) {
      var chaos = try Chaos(seed: UInt64(seed))
      chaos.run(steps: 45)
      for fault in chaos.finish() { Issue.record("seed \(seed): \(fault)") }
    }
  }

  /// `BINDRUNE_SEED=96 swift test --filter oneSeedInWords` prints everything between the hosts and controllers of one
  /// seed.
  @Test func oneSeedInWords() throws {
    guard let seed = ProcessInfo.processInfo.environment["BINDRUNE_SEED"].flatMap({ UInt64($0) }) else { return }
    var chaos = try Chaos(seed: seed)
    chaos.keepsLog = true
    chaos.run(steps: 45)
    let faults = chaos.finish()
    for record in chaos.log {
      let packet = record.bytes.span
      var text = hex(record.bytes)
      if let event = try? HCIEvent(packet) { text = "\(event.name) " + event.describe(in: packet) }
      if let command = try? AnyCommand(packet) { text = "\(command.name) " + command.describe(in: packet) }
      print("\(record.time) \(record.controller) \(record.isToHost ? ">" : "<") \(text)")
    }
    print(chaos.done, faults)
  }

  /// One seed, one order of calls: the same octets between all hosts and controllers.
  @Test func sameSeedSameOctets() throws {
    for seed in 1...3 {
      var logs: [[String]] = []
      for _ in 0..<2 {
        var chaos = try Chaos(seed: UInt64(seed))
        chaos.keepsLog = true
        chaos.run(steps: 45)
        _ = chaos.finish()
        logs.append(chaos.log.map { "\($0)" })
      }
      #expect(logs[0].count > 100 && logs[0] == logs[1])
    }
  }
}
