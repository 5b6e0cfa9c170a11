import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// The core alone, in virtual time: no event loop, no radio, no task.
@Suite struct BrokerScenarioTests {
  /// Any requests of sessions and any behaviour of the host: see `BrokerWorld` for the invariants.
  @Test func anythingInAnyOrder() {
    let seeds = Fuzz.seed..<(Fuzz.seed + 300)
    print("broker scenarios, seeds \(seeds)")
    var successes = 0, links = 0, deaths = 0, channels = 0
    for seed in seeds {
      var world = BrokerWorld(seed: seed)
      world.run(steps: 400)
      #expect(world.wrongs.isEmpty, "seed \(seed): \(world.wrongs)")
      successes += world.successes
      links += world.linksUp
      deaths += world.deaths
      channels += world.lent
    }
    // Otherwise all requests concerned absent devices.
    #expect(successes > 300 * 20 && links > 300 * 5 && deaths > 100, "\(successes), \(links), \(deaths)")
    #expect(channels > 300, "\(channels)")
  }
  /// Only its inputs decide what the core does.
  @Test func twoRunsAreEqual() {
    for seed in Fuzz.seed..<(Fuzz.seed + 3) {
      var (one, two) = (BrokerWorld(seed: seed, isTraced: true), BrokerWorld(seed: seed, isTraced: true))
      one.run(steps: 200)
      two.run(steps: 200)
      #expect(one.trace == two.trace && one.trace?.isEmpty == false, "seed \(seed)")
    }
  }

  @Test func timers() {
    var timers = Timers<String>()
    #expect(timers.earliest == nil && timers.popDue(now: Instant(nanoseconds: .max)) == nil)
    timers.set("b", at: Instant(nanoseconds: 2))
    timers.set("a", at: Instant(nanoseconds: 2))
    timers.set("c", at: Instant(nanoseconds: 1))
    #expect(timers.earliest == Instant(nanoseconds: 1) && timers.popDue(now: .zero) == nil)
    timers.set("c", at: Instant(nanoseconds: 3))
    #expect(timers.earliest == Instant(nanoseconds: 2))
    timers.cancelAll { $0 == "c" }
    timers.cancel("nobody")
    #expect((0..<3).map { _ in timers.popDue(now: Instant(nanoseconds: 5)) } == ["b", "a", nil])
    #expect(timers.isEmpty && timers.earliest == nil)
  }

  /// The core tries to open the controller again after growing delays, and the state gives the reason.
  @Test func theControllerIsSought() {
    var core = BrokerCore(), now = Instant.zero
    func effects() -> [BrokerEffect] {
      var effects: [BrokerEffect] = []
      while let effect = core.nextEffect() { effects.append(effect) }
      return effects
    }
    core.add(SessionID(rawValue: 1), now: now)
    var waits: [Duration] = []
    for _ in 0..<6 {
      guard effects().contains(where: { if case .open = $0 { true } else { false } }) else { break }
      core.receive(.openingFailed(OpeningFailure(state: .poweredOff("It is off."))), now: now)
      guard let deadline = core.deadline else { break }
      waits.append(deadline - now)
      now = deadline
      core.expire(now: now)
    }
    #expect(waits == [250, 500, 1000, 2000, 4000, 4000].map { .milliseconds($0) })
    #expect(core.state == .poweredOff("It is off."))
    core.remove(SessionID(rawValue: 1), now: now)
    core.receive(.opened(advertisingSets: 1), now: now)
    core.receive(.closed, now: now)
    let last = effects()
    guard case .retire? = last.last else {
      Issue.record("\(last)")
      return
    }
    #expect(core.deadline == nil)
  }
}
