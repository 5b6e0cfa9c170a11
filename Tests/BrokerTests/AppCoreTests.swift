import BindruneWire
import Logging
import Testing

@testable import BindruneBroker

/// The life of apps, in virtual time.
@Suite struct AppCoreTests {
  /// An app and what its driver was told.
  struct Lab {
    var core: AppCore
    var now = Instant.zero
    let app = AppID(rawValue: 1)
    init(_ limits: AppCore.Limits = .init()) { core = AppCore(limits: limits) }

    /// Without the log.
    mutating func effects() -> [AppCore.Effect] {
      var effects: [AppCore.Effect] = []
      while let effect = core.nextEffect() {
        if case .log = effect { continue }
        effects.append(effect)
      }
      return effects
    }
    mutating func log() -> [String] {
      var lines: [String] = []
      while let effect = core.nextEffect() { if case .log(_, _, let text) = effect { lines.append(text) } }
      return lines
    }
    /// The time that passes until the next timer.
    mutating func pass() -> Duration? {
      guard let deadline = core.deadline else { return nil }
      let passed = deadline - now
      now = deadline
      core.expire(now: now)
      return passed
    }
    mutating func begin() { core.begin(app, canLaunch: true, now: now) }
    mutating func move(_ life: AppLife) { core.move(app, to: life, now: now) }
    mutating func wake() { core.wake(app, "a test", now: now) }
    mutating func end() { core.end(app, isKept: true, now: now) }
    var life: AppLife? { core.life(of: app) }
  }

  @Test("S1, S7, S18, S36: suspended shortly after it leaves the foreground; woken for ten seconds; resumed")
  func wakes() {
    var lab = Lab()
    lab.begin()
    #expect(lab.effects() == [.move(lab.app, to: .foreground)])
    lab.wake()
    #expect(lab.effects() == [] && lab.core.deadline == nil)
    lab.move(.background)
    #expect(lab.effects() == [.move(lab.app, to: .background)])
    #expect(lab.pass() == .seconds(5))
    // Adapters hold its events before it stops.
    #expect(lab.effects() == [.move(lab.app, to: .suspended), .stop(lab.app)])
    #expect(lab.pass() == nil)
    for _ in 0..<3 {
      lab.wake()
      #expect(lab.effects() == [.resume(lab.app), .move(lab.app, to: .awake)])
      lab.now = lab.now + .seconds(4)
      lab.wake()  // It is awake, and gets no more time.
      #expect(lab.pass() == .seconds(6))
      #expect(lab.effects() == [.move(lab.app, to: .suspended), .stop(lab.app)])
    }
    lab.wake()
    lab.move(.suspended)
    #expect(lab.effects().suffix(2) == [.move(lab.app, to: .suspended), .stop(lab.app)] && lab.core.deadline == nil)
    lab.move(.foreground)
    #expect(lab.effects() == [.resume(lab.app), .move(lab.app, to: .foreground)])
    lab.move(.background)
    lab.move(.foreground)
    #expect(lab.core.deadline == nil && lab.life == .foreground)
  }

  @Test("S37: an app that is awake too long waits, and one that never stops is terminated")
  func limits() {
    var lab = Lab(), wakes = 0, waits = 0
    lab.begin()
    lab.move(.suspended)
    _ = lab.effects()
    // Events without end: it is woken again as soon as it is suspended.
    var kill: Instant?
    for _ in 0..<1_000 where kill == nil {
      lab.wake()
      for effect in lab.effects() {
        if effect == .resume(lab.app) { wakes += 1 }
        if effect == .kill(lab.app) { kill = lab.now }
      }
      if kill == nil, let passed = lab.pass(), passed > .seconds(10) { waits += 1 }
    }
    // 120 s of each 600 s, five times; the sixth time is the last.
    #expect(wakes == 6 * 12 && waits == 5)
    #expect(kill == Instant.zero + .seconds(5 * 600 + 120))
    // One that is woken once a minute never waits.
    var calm = Lab()
    calm.begin()
    calm.move(.suspended)
    for _ in 0..<1_000 {
      calm.wake()
      while calm.pass() != nil {}
      calm.now = calm.now + .seconds(50)
    }
    #expect(!calm.effects().contains(.kill(calm.app)) && calm.life == .suspended)
  }

  @Test("S42: an app without a process is relaunched, awake, and once")
  func relaunch() {
    var lab = Lab()
    lab.begin()
    lab.end()
    #expect(lab.effects() == [.move(lab.app, to: .foreground), .move(lab.app, to: .terminated)])
    lab.wake()
    lab.wake()
    #expect(lab.effects() == [.launch(lab.app)] && lab.life == .terminated)
    lab.now = lab.now + .seconds(3)
    lab.begin()
    #expect(lab.effects() == [.move(lab.app, to: .awake)])
    #expect(lab.pass() == .seconds(10))
    #expect(lab.effects() == [.move(lab.app, to: .suspended), .stop(lab.app)])
    // Its user starts it.
    lab.end()
    lab.begin()
    #expect(lab.effects().last == .move(lab.app, to: .foreground))
  }

  @Test("A relaunch that fails, hangs or ends at once is tried again after growing delays; its state is kept")
  func failingRelaunch() {
    var lab = Lab(), waits: [Duration] = []
    lab.begin()
    lab.end()
    lab.wake()
    for attempt in 0..<14 {
      #expect(lab.effects().contains(.launch(lab.app)))
      switch attempt % 3 {
      case 0: lab.core.launchFailed(lab.app, "no such file", now: lab.now)
      case 1: #expect(lab.pass() == .seconds(30))
      default:
        lab.begin()
        lab.end()
        lab.wake()
      }
      waits.append(lab.pass() ?? .zero)
    }
    #expect(waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600, 600].map { .seconds($0) })
    // Once it works, the delays are forgotten.
    lab.begin()
    #expect(lab.pass() == .seconds(10) && lab.life == .suspended)
    lab.end()
    _ = lab.effects()
    lab.wake()
    #expect(lab.effects() == [.launch(lab.app)])
  }

  @Test("A process that begins before the end of the one before is known does not inherit its time in the background")
  func quickRestart() {
    var lab = Lab()
    lab.begin()
    lab.move(.background)
    _ = lab.effects()
    lab.begin()
    #expect(lab.effects() == [.move(lab.app, to: .foreground)])
    #expect(lab.pass() == nil && lab.effects() == [] && lab.life == .foreground)
  }

  @Test("Without a command the log says so once; an app that nothing of is kept is forgotten")
  func noCommand() {
    var lab = Lab()
    lab.core.begin(lab.app, canLaunch: false, now: lab.now)
    lab.end()
    for _ in 0..<3 { lab.wake() }
    #expect(lab.log().filter { $0.contains("names no command") }.count == 1)
    #expect(lab.core.deadline == nil && lab.life == .terminated)
    lab.begin()
    lab.core.end(lab.app, isKept: false, now: lab.now)
    #expect(lab.life == nil)
    lab.wake()
    lab.move(.foreground)
    #expect(lab.core.deadline == nil)
  }
}
