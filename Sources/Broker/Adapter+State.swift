import Foundation
import Logging
import NIOCore

/// How long an adapter waits.
struct AdapterPatience: Sendable {
  /// Before the first attempt to open it again …
  var first = TimeAmount.milliseconds(250)
  /// … and at most; each wait is twice the one before.
  var longest = TimeAmount.seconds(4)
  /// How long a controller has to work until its failures before that are forgotten.
  var steady = TimeAmount.seconds(60)
  /// Failures in a row during which a controller that has worked counts as restarting, and not as gone.
  var restarts = 4
  /// Until a link has proven itself whose ATT_MTU does not change: one that was not heard is down again after six intervals
  /// of 30 ms. Vol 6, Part B, §4.5.2.
  var establishing = TimeAmount.milliseconds(300)
  /// Before the first attempt after a link that the device did not hear; each wait is twice the one before, up to `longest`.
  var retrying = TimeAmount.milliseconds(20)
  /// Before a device is sought again of which the controller wants to know nothing now.
  var seeking = TimeAmount.seconds(1)

  /// `failures`: 1 or more.
  func wait(after failures: Int) -> TimeAmount { min(longest, first * (1 << min(failures - 1, 16))) }
  /// `attempts` that the device did not hear: 1 or more.
  func wait(afterUnheard attempts: Int) -> TimeAmount { min(longest, retrying * (1 << min(attempts - 1, 16))) }
}

/// # The adapter's life
/// **Overview**: opens the host for the first session, again when it has failed, and closes it after the last one.
///
/// **Function**: whatever ends or fails, the controller is sought again, after waits that grow, for as long as there are
/// sessions: switching it on, plugging it in or starting it later is enough. The waits grow until it has worked for a while, so
/// that one which fails again and again is not restarted all the time. Only a choice that names no controller at all
/// stays as it is. A controller that has worked is `resetting` first; if it does not come back the reason is the state.
///
/// **Phases**: idle → opening → running → closing → resting → opening …; without sessions closing, resting → idle.
extension Adapter {
  enum Phase {
    /// There are no sessions, and nothing is open.
    case idle
    /// A task is at it. The error: the host has failed since.
    case opening(BluetoothError?)
    case running(Host)
    /// A task is at it.
    case closing
    /// The next attempt is due.
    case resting(Scheduled<Void>)
    /// There is nothing to attempt.
    case hopeless
  }

  func openHost() {
    phase = .opening(nil)
    let database = databaseToServe
    Task { [eventLoop, open, logger] in
      let result: Result<Host, OpeningFailure>
      do throws(OpeningFailure) {
        result = .success(try await Self.open(open, on: eventLoop, database, observer: self, logger))
      } catch {
        result = .failure(error)
      }
      eventLoop.execute { self.opened(result) }
    }
  }
  private static func open(
    _ open: (any EventLoop) async throws(TransportError) -> any HCITransport, on loop: any EventLoop,
    _ database: Database, observer: Adapter, _ logger: Logger
  ) async throws(OpeningFailure) -> Host {
    let transport: any HCITransport
    do throws(TransportError) { transport = try await open(loop) } catch { throw OpeningFailure(error) }
    guard transport.eventLoop === loop else {
      transport.eventLoop.execute { transport.close() }
      let why = "The controller that was provided is on another event loop: open it on the one that is given."
      throw OpeningFailure(state: .unsupported(why), isFinal: true)
    }
    let host = Host(
      transport, configuration: .ofAdapter, database: database, observer: observer, logger: logger)
    do throws(BluetoothError) {
      try await host.start()
      return host
    } catch {
      await host.close()
      throw OpeningFailure(state: .unsupported(error.diagnostics))
    }
  }

  private func opened(_ result: Result<Host, OpeningFailure>) {
    guard case .opening(let early) = phase else { return }
    switch result {
    case .success(let host):
      if sessions.isEmpty { return close(host) }
      if let early { return failed(early, host) }
      phase = .running(host)
      isRestarting = false
      steadiness = schedule(after: patience.steady) { $0.failures = 0 }
      enter(.poweredOn)
    case .failure(let failure):
      failures += 1
      if sessions.isEmpty { return hostClosed() }
      let isPatient: Bool
      if case .unsupported = failure.state {
        isPatient = isRestarting && failures <= patience.restarts
      } else {
        isPatient = false
      }
      if !isPatient { enter(failure.state) }
      if failure.isFinal { phase = .hopeless } else { rest() }
    }
  }
  private func rest() {
    phase = .resting(schedule(after: patience.wait(after: failures)) { $0.openHost() })
  }

  /// The host has ended by itself.
  func failed(_ error: BluetoothError) {
    if case .running(let host) = phase { failed(error, host) }
  }
  private func failed(_ error: BluetoothError, _ host: Host) {
    isRestarting = true
    failures += 1
    close(host)
    enter(.resetting(error.diagnostics))
  }
  /// After the last session.
  func closeHost() {
    switch phase {
    case .running(let host):
      endLinks()
      state = .unknown
      stateChanged(to: .unknown)
      close(host)
    case .resting(let timer):
      timer.cancel()
      hostClosed()
    case .hopeless: hostClosed()
    case .idle, .opening, .closing: break
    }
  }
  private func close(_ host: Host) {
    phase = .closing
    steadiness?.cancel()
    Task { [eventLoop] in
      await host.close()
      eventLoop.execute { self.hostClosed() }
    }
  }
  /// The process ends: nobody is told of anything any more. From any thread; `done` when that is so.
  func silence(_ done: @escaping @Sendable () -> Void) {
    eventLoop.execute { [self] in
      for session in sessions { _ = session.close() }
      done()
    }
  }
  /// All sessions end, without a word. From any thread; `done` when nothing of the host is left.
  func shutDown(_ done: @escaping @Sendable () -> Void) {
    eventLoop.execute { [self] in
      for session in sessions {
        _ = session.close()
        closed(session)
      }
      guard case .closing = phase else { return done() }
      whenClosed.append(done)
    }
  }
  private func hostClosed() {
    for done in whenClosed { done() }
    whenClosed = []
    if sessions.isEmpty {
      phase = .idle
      failures = 0
      isRestarting = false
      state = .unknown
      registration?.end()
    } else if isRestarting {
      rest()
    } else {
      openHost()
    }
  }

  private func enter(_ state: AdapterState) {
    guard state != self.state else { return }
    self.state = state
    if state != .poweredOn { endLinks() }
    stateChanged(to: state)
    if let hindrance = state.hindrance { logger.warning("\(hindrance)") }
    for session in sessions { session.tell(.adapter(state)) }
  }
  /// Everything of the sessions has ended, and they are told no more of it than the state.
  private func endLinks() {
    forgetCentral()
    links = LinkTable()
    for session in sessions { session.removePorts() }
  }

  /// What a request gets that the adapter cannot carry out now.
  var notReady: BluetoothError {
    BluetoothError(.notStarted, state.hindrance ?? "The adapter is being opened: wait until it is powered on.")
  }
}

/// What became of an attempt to open the controller.
struct OpeningFailure: Error {
  var state: AdapterState
  /// No other attempt can do better.
  var isFinal = false
}
extension OpeningFailure {
  init(_ error: TransportError) {
    switch error {
    case .specification, .unsuitable: self.init(state: .unsupported(error.description), isFinal: true)
    case .permissionDenied: self.init(state: .unauthorized(error.description))
    case .adapter(let error): self.init(state: AdapterState(error))
    default: self.init(state: .unsupported(error.description))
    }
  }
}
extension AdapterState {
  init(_ error: AdapterError) {
    switch error {
    case .up(_, let isDaemon):
      // The command line's cure is not a program's.
      let command = isDaemon ? ", or run `bluetoothctl power off` first" : ""
      self = .poweredOff(
        "\(error.cause): set BINDRUNE_TAKE_DOWN=1 (or `take-down = yes` in bindrune's configuration), with which it is taken "
          + "down and brought up again at the end\(command).")
    case .taken, .inSetUp, .blocked, .notFound(_, _, .switchedOff): self = .poweredOff(error.description)
    case .noCapability, .userNamespace, .filtered: self = .unauthorized(error.description)
    case .noKernelSupport, .notLoaded, .foreignNetwork, .notFound, .system: self = .unsupported(error.description)
    }
  }
}
