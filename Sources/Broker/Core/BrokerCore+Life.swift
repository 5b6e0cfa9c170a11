import BindruneAdapters
import BindruneTransport
import BindruneWire

/// How long an adapter waits.
struct AdapterPatience: Sendable {
  /// Before the first attempt to open it again …
  var first = Duration.milliseconds(250)
  /// … and at most; each wait is twice the one before.
  var longest = Duration.seconds(4)
  /// How long a controller has to work until its failures before that are forgotten.
  var steady = Duration.seconds(60)
  /// Failures in a row during which a controller that has worked counts as restarting, and not as gone.
  var restarts = 4
  /// After this a link counts as established even if its ATT_MTU does not change. A link whose connection request was
  /// not received is down after six intervals of 30 ms. Vol 6, Part B, §4.5.2.
  var establishing = Duration.milliseconds(300)
  /// Before the first retry after a connection request that the device has not received; each wait is twice the one
  /// before, up to `longest`.
  var retrying = Duration.milliseconds(20)
  /// Before the next attempt to connect to a device after the controller has refused one.
  var seeking = Duration.seconds(1)

  /// `failures`: 1 or more.
  func wait(after failures: Int) -> Duration { min(longest, first * (1 << min(failures - 1, 16))) }
  /// `attempts` that the device has not received: 1 or more.
  func wait(afterUnheard attempts: Int) -> Duration { min(longest, retrying * (1 << min(attempts - 1, 16))) }
}

/// # The adapter's life
/// **Overview**: opens the host for the first session, again when it has failed, and closes it after the last one.
///
/// **Function**: after every failure the controller is opened again, as long as there are sessions: switching it on,
/// plugging it in or starting it later is enough. The waits between the attempts grow until it has worked for a while,
/// so that a controller that fails again and again is not restarted all the time. Only a choice that names no
/// controller is not tried again. A controller that has worked is `resetting` first; if it does not come back, the
/// state shows the cause.
///
/// **Phases**: idle → opening → running → closing → awaitingRetry → opening …; without sessions closing, awaitingRetry
/// → idle.
extension BrokerCore {
  enum Phase {
    /// There are no sessions, and no host.
    case idle
    /// The driver opens the host. The error: the host has failed since.
    case opening(BluetoothError?)
    case running
    /// The driver closes the host.
    case closing
    /// The next attempt is due at `Timer.reopen`.
    case awaitingRetry
    /// No attempt can succeed.
    case hopeless
  }

  mutating func open() {
    phase = .opening(nil)
    put(.open(serving.database))
  }
  /// `early`: the host has failed before it was known to run.
  mutating func opened(advertisingSets: Int, _ early: BluetoothError?) {
    if sessions.ids.isEmpty { return close() }
    phase = .running
    if let early { return failed(early) }
    isRestarting = false
    serving.mostSets = max(1, advertisingSets)
    timers.set(.steady, at: now + patience.steady)
    enter(.poweredOn)
  }
  mutating func openingFailed(_ failure: OpeningFailure) {
    failures += 1
    if sessions.ids.isEmpty { return closed() }
    let isPatient: Bool
    if case .unsupported = failure.state {
      isPatient = isRestarting && failures <= patience.restarts
    } else {
      isPatient = false
    }
    if !isPatient { enter(failure.state) }
    if failure.isFinal { phase = .hopeless } else { retryLater() }
  }
  private mutating func retryLater() {
    phase = .awaitingRetry
    timers.set(.reopen, at: now + patience.wait(after: failures))
  }

  /// The host has ended by itself.
  mutating func failed(_ error: BluetoothError) {
    isRestarting = true
    failures += 1
    close()
    enter(.resetting(error.diagnostics))
  }
  /// After the last session.
  mutating func closeHost() {
    switch phase {
    case .running:
      endLinks()
      state = .unknown
      stateChanged(to: .unknown)
      close()
    case .awaitingRetry:
      timers.cancel(.reopen)
      closed()
    case .hopeless: closed()
    case .idle, .opening, .closing: break
    }
  }
  private mutating func close() {
    phase = .closing
    timers.cancel(.steady)
    put(.close)
  }
  mutating func closed() {
    if sessions.ids.isEmpty {
      phase = .idle
      failures = 0
      isRestarting = false
      state = .unknown
      put(.retire)
    } else if isRestarting {
      retryLater()
    } else {
      open()
    }
  }

  private mutating func enter(_ state: AdapterState) {
    guard state != self.state else { return }
    self.state = state
    if state != .poweredOn {
      planPreserved()
      endLinks()
    }
    stateChanged(to: state)
    if let hindrance = state.hindrance { log(.warning, hindrance) }
    for session in sessions.ids { deliver(to: session, .adapter(state)) }
    if state == .poweredOn { carryOutPlans() }
  }
  /// Ends all links and requests of the sessions. Sessions get one event, the new state, and none for each link.
  private mutating func endLinks() {
    forgetCentral()
    links = LinkTable()
    for session in sessions.ids {
      sessions[session]?.ports = []
      put(.takePorts(session))
    }
  }

  /// The error for requests while the adapter is not powered on.
  var notReady: BluetoothError {
    BluetoothError(.notStarted, state.hindrance ?? "The adapter is being opened: wait until it is powered on.")
  }
}

/// Why an attempt to open the controller has failed.
struct OpeningFailure: Error {
  var state: AdapterState
  /// No other attempt can succeed.
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
      // The remedy differs from the command line's.
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
