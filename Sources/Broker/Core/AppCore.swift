import BindruneWire
import DequeModule
import Logging

/// # AppCore
/// **Overview**: decides when each app of a machine runs, as the system does for apps of Core Bluetooth. It knows no
/// adapter and no process: adapters ask with `wake`, the driver reports processes, and users move apps. A value in
/// virtual time, as `BrokerCore`.
///
/// **Function**: an app in the background is suspended soon. An event wakes it for about ten seconds (S36), or
/// relaunches it if it has no process and its manifest names a command (S42). An app that is awake too much is woken
/// less often, and in the end terminated (S37). A relaunch that fails is tried again after growing delays.
///
/// **Phases**: foreground → background → suspended ⇄ awake; → terminated → launching → awake. `AppLife` is what
/// adapters see of them.
struct AppCore {
  struct Limits: Sendable {
    /// From the background to suspension: "shortly after", S7.
    var leaving = Duration.seconds(5)
    /// The time of one wake-up: S36.
    var awake = Duration.seconds(10)
    /// An app that has been awake for longer than `allowance` in one `period` waits for the period's end before the
    /// next wake-up …
    var allowance = Duration.seconds(120)
    var period = Duration.seconds(600)
    /// … and is terminated when it has waited in this many periods in a row. S37.
    var mostThrottled = 6
    /// How long a relaunched process may take until it connects.
    var launch = Duration.seconds(30)
    /// Before the second attempt to relaunch; each wait is twice the one before, up to `longestRetry`.
    var firstRetry = Duration.seconds(1)
    var longestRetry = Duration.seconds(600)
  }

  /// What the driver does, in this order.
  enum Effect: Equatable, Sendable {
    /// Every adapter's core learns of it.
    case move(AppID, to: AppLife)
    /// The process stops running, or runs again.
    case stop(AppID)
    case resume(AppID)
    /// Start a process of the app; it reports itself with `begin`, or the driver calls `launchFailed`.
    case launch(AppID)
    case kill(AppID)
    case log(Logger.Level, AppID, String)
  }

  private enum Phase {
    case foreground
    /// Until `Timer.suspend`.
    case background
    case awake(since: Instant)
    case suspended
    /// `wanted`: the event that is to wake it at `Timer.wake`.
    case throttled(wanted: String)
    case terminated
    /// Its process has been started, and has not connected until `Timer.launch`.
    case launching(wanted: String)
    /// The next attempt is due at `Timer.launch`.
    case awaitingRetry(wanted: String)
  }
  private struct App {
    var canLaunch: Bool
    var phase: Phase
    /// The time that it has been awake in the period that began then.
    var period: Instant
    var used = Duration.zero
    /// Periods in a row in which it had to wait.
    var throttled = 0
    var hasWaited = false
    /// Relaunches in a row that have failed.
    var failures = 0
    /// Since its last relaunch it has not been suspended in order.
    var isUnproved = false
    /// It has been said that there is no command.
    var isReported = false
  }
  private enum Timer: Hashable { case suspend(AppID), wake(AppID), launch(AppID) }

  let limits: Limits
  private var apps: [AppID: App] = [:]
  private var timers = Timers<Timer>()
  private var effects = Deque<Effect>()
  private var now = Instant.zero

  init(limits: Limits = Limits()) { self.limits = limits }

  // MARK: Processes

  /// A process of the app has connected. It is in the foreground, unless it was relaunched. `canLaunch`: its manifest
  /// says how to start it.
  mutating func begin(_ app: AppID, canLaunch: Bool, now: Instant) {
    self.now = now
    // Also those of a process whose end is not known yet.
    cancelTimers(of: app)
    var known = apps[app] ?? App(canLaunch: canLaunch, phase: .terminated, period: now)
    known.canLaunch = canLaunch
    known.isReported = false
    let isRelaunched = if case .launching = known.phase { true } else { false }
    known.isUnproved = isRelaunched
    apps[app] = known
    if isRelaunched { stayAwake(app) } else { enter(.foreground, app) }
  }
  /// Its process has ended, or lost its connection. `isKept`: a manager of it was preserved; else the app is forgotten.
  mutating func end(_ app: AppID, isKept: Bool, now: Instant) {
    self.now = now
    guard apps[app] != nil else { return }
    countAwakeTime(of: app)
    cancelTimers(of: app)
    // It ends as soon as it is relaunched: the next relaunch waits longer.
    if apps[app]?.isUnproved == true { apps[app]?.failures += 1 }
    enter(.terminated, app)
    if !isKept { apps[app] = nil }
  }
  /// An app of an earlier run of the driver, with preserved managers.
  mutating func add(_ app: AppID, canLaunch: Bool, now: Instant) {
    self.now = now
    apps[app] = App(canLaunch: canLaunch, phase: .terminated, period: now)
    put(.move(app, to: .terminated))
  }
  /// The launched process did not start, or ended without connecting.
  mutating func launchFailed(_ app: AppID, _ why: String, now: Instant) {
    self.now = now
    guard case .launching(let wanted) = apps[app]?.phase else { return }
    timers.cancel(.launch(app))
    put(.log(.error, app, "cannot be relaunched: \(why)"))
    apps[app]?.failures += 1
    retryLater(app, wanted)
  }

  // MARK: Wishes

  /// What the user or the system does with the app. Without a process it has no effect.
  mutating func move(_ app: AppID, to life: AppLife, now: Instant) {
    self.now = now
    guard let phase = apps[app]?.phase else { return }
    switch phase {
    case .terminated, .launching, .awaitingRetry: return
    case .foreground, .background, .awake, .suspended, .throttled: break
    }
    countAwakeTime(of: app)
    switch life {
    case .foreground:
      apps[app]?.throttled = 0
      run(app)
      enter(.foreground, app)
    case .background:
      guard case .foreground = phase else { return }
      timers.set(.suspend(app), at: now + limits.leaving)
      enter(.background, app)
    case .awake: wake(app, "a request", now: now)
    case .suspended: suspend(app)
    case .terminated:
      put(.kill(app))
    }
  }
  /// An event waits that is reason enough to run the app.
  mutating func wake(_ app: AppID, _ why: String, now: Instant) {
    self.now = now
    guard let known = apps[app] else { return }
    switch known.phase {
    case .foreground, .background, .awake, .throttled, .launching, .awaitingRetry: break
    case .suspended:
      let left = limits.allowance - used(by: app)
      if left > .zero {
        put(.log(.info, app, "is woken by \(why)"))
        run(app)
        stayAwake(app)
      } else {
        throttle(app, why)
      }
    case .terminated: launch(app, why)
    }
  }

  // MARK: Effects and time

  mutating func nextEffect() -> Effect? { effects.popFirst() }
  var deadline: Instant? { timers.earliest }
  mutating func expire(now: Instant) {
    self.now = now
    while let timer = timers.popDue(now: now) {
      switch timer {
      case .suspend(let app): suspend(app)
      case .wake(let app):
        guard case .throttled(let wanted) = apps[app]?.phase else { continue }
        enter(.suspended, app)
        wake(app, wanted, now: now)
      case .launch(let app):
        switch apps[app]?.phase {
        case .launching: launchFailed(app, "it has not connected within \(limits.launch)", now: now)
        case .awaitingRetry(let wanted): start(app, wanted)
        default: break
        }
      }
    }
  }
  /// What adapters see of the app; nil: there is no such app.
  func life(of app: AppID) -> AppLife? { apps[app].map { Self.life($0.phase) } }

  private mutating func put(_ effect: Effect) { effects.append(effect) }
  private static func life(_ phase: Phase) -> AppLife {
    switch phase {
    case .foreground: .foreground
    case .background: .background
    case .awake: .awake
    case .suspended, .throttled: .suspended
    case .terminated, .launching, .awaitingRetry: .terminated
    }
  }
  private mutating func enter(_ phase: Phase, _ app: AppID) {
    guard let before = apps[app]?.phase else { return }
    apps[app]?.phase = phase
    if Self.life(before) != Self.life(phase) { put(.move(app, to: Self.life(phase))) }
  }
  private mutating func cancelTimers(of app: AppID) {
    for timer in [Timer.suspend(app), .wake(app), .launch(app)] { timers.cancel(timer) }
  }

  // MARK: Running and stopping

  /// The process of a suspended app runs again.
  private mutating func run(_ app: AppID) {
    cancelTimers(of: app)
    switch apps[app]?.phase {
    case .suspended, .throttled: put(.resume(app))
    default: break
    }
  }
  private mutating func stayAwake(_ app: AppID) {
    timers.set(.suspend(app), at: now + limits.awake)
    enter(.awake(since: now), app)
  }
  private mutating func suspend(_ app: AppID) {
    switch apps[app]?.phase {
    case .foreground, .background, .awake: break
    default: return
    }
    countAwakeTime(of: app)
    cancelTimers(of: app)
    apps[app]?.failures = 0
    apps[app]?.isUnproved = false
    // Adapters hold its events before it stops.
    enter(.suspended, app)
    put(.stop(app))
  }

  // MARK: Limits

  private func used(by app: AppID) -> Duration {
    guard let known = apps[app], now < known.period + limits.period else { return .zero }
    return known.used
  }
  private mutating func countAwakeTime(of app: AppID) {
    guard let known = apps[app], case .awake(let since) = known.phase else { return }
    let used = used(by: app)
    if now >= known.period + limits.period {
      apps[app]?.period = since
      if !known.hasWaited { apps[app]?.throttled = 0 }
      apps[app]?.hasWaited = false
    }
    apps[app]?.used = used + (now - since)
  }
  private mutating func throttle(_ app: AppID, _ why: String) {
    guard let known = apps[app] else { return }
    apps[app]?.throttled += 1
    apps[app]?.hasWaited = true
    if known.throttled + 1 >= limits.mostThrottled {
      apps[app]?.failures += 1
      put(.log(.error, app, "is terminated: it has used up its time in the background \(known.throttled + 1) times"))
      return put(.kill(app))
    }
    let end = known.period + limits.period
    put(
      .log(
        .warning, app, "has used up its time in the background, and is woken by \(why) when \(end - now) have passed"))
    timers.set(.wake(app), at: end)
    enter(.throttled(wanted: why), app)
  }

  // MARK: Relaunching

  private mutating func launch(_ app: AppID, _ why: String) {
    guard let known = apps[app] else { return }
    guard known.canLaunch else {
      if !known.isReported {
        put(.log(.warning, app, "would be relaunched for \(why), but its manifest names no command: start it"))
      }
      apps[app]?.isReported = true
      return
    }
    if known.failures == 0 { start(app, why) } else { retryLater(app, why) }
  }
  private mutating func start(_ app: AppID, _ why: String) {
    put(.log(.info, app, "is relaunched for \(why)"))
    timers.set(.launch(app), at: now + limits.launch)
    enter(.launching(wanted: why), app)
    put(.launch(app))
  }
  private mutating func retryLater(_ app: AppID, _ why: String) {
    let failures = max(1, apps[app]?.failures ?? 1)
    let wait = min(limits.longestRetry, limits.firstRetry * (1 << min(failures - 1, 16)))
    put(.log(.warning, app, "is relaunched again when \(wait) have passed; its state is kept"))
    timers.set(.launch(app), at: now + wait)
    enter(.awaitingRetry(wanted: why), app)
  }
}
