import BindruneWire

/// # Apps of a broker
/// **Overview**: what the life of an app allows its sessions, and which events are reason enough to run it. `AppCore`
/// decides when an app runs; `move` tells every adapter. Rows S1 … S38 of the seeds; Decision 0052.
///
/// **Function**: an app in the foreground may do everything. One in the background may do what its modes name, with the
/// restrictions of the background; without the mode its scans and its advertising stop, the contents of its services
/// are disabled, and its events wait.
///
/// **Phases**: see `AppLife`.
struct App {
  var modes: Set<BackgroundMode> = []
  var life = AppLife.foreground
  /// An event has asked for it since it runs no more.
  var isWakeAsked = false
}

/// What the life of its app allows a session.
enum AppPermission {
  case full
  case inBackground
  case none
}

extension BrokerCore {
  /// The driver knows an app before its first session. The modes of a known app are replaced.
  mutating func register(_ app: AppID, _ modes: Set<BackgroundMode>, _ life: AppLife = .foreground, now: Instant) {
    if apps[app] == nil { apps[app] = App(life: life) }
    apps[app]?.modes = modes
    move(app, to: life, now: now)
    arrange()
  }
  /// The app's life has changed.
  mutating func move(_ app: AppID, to life: AppLife, now: Instant) {
    self.now = now
    guard let known = apps[app], known.life != life else { return }
    let own = sessions.ids.filter { sessions[$0]?.app == app }, held = own.filter { isHeld($0) }
    apps[app]?.life = life
    apps[app]?.isWakeAsked = false
    for session in own where held.contains(session) != isHeld(session) { put(.hold(session, isHeld(session))) }
    arrange()
    // Between the end of the process and this moment tasks may have been completed.
    for session in own {
      guard life == .terminated, let event = sessions[session]?.completed else { continue }
      sessions[session]?.completed = nil
      consider(event, for: session)
    }
  }
  private mutating func arrange() {
    arrangeScans()
    arrangeAdvertising()
    arrangeServices()
  }

  func permission(_ mode: BackgroundMode, of session: SessionID) -> AppPermission {
    guard let id = sessions[session]?.app, let app = apps[id] else { return .none }
    return app.life.isForeground ? .full : app.modes.contains(mode) ? .inBackground : .none
  }
  /// The session's events wait: S8, S12, S13.
  func isHeld(_ session: SessionID) -> Bool {
    guard let known = sessions[session], let app = apps[known.app] else { return false }
    return switch app.life {
    case .foreground, .awake: false
    case .background: !hasMode(known, app)
    case .suspended, .terminated: true
    }
  }
  /// A session of no manager in particular needs any mode.
  private func hasMode(_ session: SessionTable.Session, _ app: App) -> Bool {
    session.identity.map { app.modes.contains($0.role) } ?? !app.modes.isEmpty
  }

  /// Wakes the session's app for the event if it may: S18, S24, S28.
  mutating func consider(_ event: BrokerEvent, for session: SessionID) {
    guard let known = sessions[session], let app = apps[known.app], !app.isWakeAsked else { return }
    switch app.life {
    case _ where app.life != .terminated && known.preservation != nil:
      if event.completesTask, known.completed == nil { sessions[session]?.completed = event }
      return
    case .foreground, .background, .awake: return
    case .suspended:
      guard hasMode(known, app), event.roles.contains(where: app.modes.contains) else { return }
    // S42, S53: one of the tasks that go on has completed.
    case .terminated: guard known.preservation != nil, event.completesTask else { return }
    }
    apps[known.app]?.isWakeAsked = true
    put(.wake(known.app, event.title))
  }
  /// Events that the process that has ended has not taken: they wait for the next one.
  mutating func consider(left events: [BrokerEvent], for session: SessionID) {
    for event in events { consider(event, for: session) }
  }
  /// Values wait for a session that is held; the driver does not pass them through the core.
  mutating func considerValues(_ count: Int, from peer: UUID, for session: SessionID, now: Instant) {
    self.now = now
    consider(.values(peer, AttributeHandle(), []), for: session)
    guard let device = self.peer(peer), let options = sessions[session]?.interests[device]?.options else { return }
    alert(.notification, of: device, count: count, options, session)
  }
  /// S15 … S17: alerts are for apps that are suspended and that no event wakes.
  mutating func alert(
    _ kind: ConnectOptions.Alerts, of peer: PeerID, count: Int = 1, _ options: ConnectOptions, _ session: SessionID
  ) {
    guard options.alerts.contains(kind), let known = sessions[session], let app = apps[known.app],
      case .suspended = app.life, !hasMode(known, app)
    else { return }
    let identifier = identifier(of: peer, for: session), name = central.names[peer]
    switch kind {
    case .connection: put(.alert(known.app, .connected(identifier, name: name)))
    case .disconnection: put(.alert(known.app, .disconnected(identifier, name: name)))
    default: put(.alert(known.app, .notified(identifier, name: name, count: count)))
    }
  }
}

extension BrokerEvent {
  /// The modes with which the event wakes a suspended app.
  fileprivate var roles: [BackgroundMode] {
    switch self {
    case .adapter: [.central, .peripheral]
    case .discovered, .connected, .connectionFailed, .disconnected, .nameChanged, .servicesChanged, .values,
      .readyToWrite:
      [.central]
    case .completed(_, let result):
      // Completions of a peripheral: the service or the PSM is published, advertising has begun.
      switch result {
      case .success(.published), .success(.psm): [.peripheral]
      case .success, .failure: [.central]
      }
    case .subscribed, .unsubscribed, .readRequested, .writeRequested, .readyToUpdate, .channelAccepted: [.peripheral]
    case .restored, .scanFailed, .longestWriteChanged, .linkedPeers, .longestUpdateChanged, .requestEnded,
      .advertisingEnded:
      []
    }
  }
  /// It is reason to relaunch a terminated app.
  fileprivate var completesTask: Bool {
    switch self {
    case .discovered, .connected, .connectionFailed, .disconnected, .values, .subscribed, .unsubscribed, .readRequested,
      .writeRequested:
      true
    case .adapter, .restored, .nameChanged, .servicesChanged, .readyToWrite, .completed, .readyToUpdate, .scanFailed,
      .longestWriteChanged, .linkedPeers, .longestUpdateChanged, .requestEnded, .advertisingEnded, .channelAccepted:
      false
    }
  }
  /// For the log: without names and values.
  fileprivate var title: String {
    switch self {
    case .adapter: "the adapter's state"
    case .discovered: "a discovery"
    case .connected: "a connection"
    case .connectionFailed: "a connection that failed"
    case .disconnected: "a disconnection"
    case .nameChanged: "a new name"
    case .servicesChanged: "changed services"
    case .values: "a notification"
    case .readyToWrite, .readyToUpdate: "room for values"
    case .completed: "an answer"
    case .subscribed, .unsubscribed: "a subscription"
    case .readRequested: "a read request"
    case .writeRequested: "a write request"
    case .restored, .scanFailed, .longestWriteChanged, .linkedPeers, .longestUpdateChanged, .requestEnded,
      .advertisingEnded:
      "an event"
    case .channelAccepted: "a channel"
    }
  }
}
