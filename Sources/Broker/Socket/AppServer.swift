import BindruneTransport
import BindruneWire
import CBindruneSystem
import Glibc
import Logging
import NIOCore
import NIOPosix
import SystemPackage

/// # AppServer
/// **Overview**: a daemon's socket: it admits apps, gives each of their sessions an adapter, and drives `AppCore` with
/// their processes.
///
/// **Function**: an app is known by the user and the identifier of its manifest, and has one process at a time. The end
/// of a connection that the app has not closed counts as the end of its process. What is preserved of an app is in the
/// `AppStore` while it has no process.
///
/// **Phases**: idle → listening → closed.
final class AppServer: @unchecked Sendable {
  // Sendable: everything is on the event loop.

  struct Limits: Sendable {
    var core = AppCore.Limits()
    var apps = 256
    /// Of one app.
    var sessions = 16
    /// Of connections that have not said who they are.
    var greeting = TimeAmount.seconds(10)
  }
  /// Who may do what: both answer on any thread.
  struct Policy: Sendable {
    /// Nil: this user may connect; else the sentence for the app.
    var admits: @Sendable (Credentials) -> String? = { _ in nil }
    /// Asks whether the app may share data: S136. The answer is kept; without one, nil, the app may not now, and the
    /// next time it is asked again. Nil: every app may.
    var mayShareData: (@Sendable (_ app: String, _ user: UInt32) async -> Bool?)?
    /// The units that the administrator lets the daemon start for apps of other users: `RelaunchRule`.
    var relaunches: Set<RelaunchRule> = []
    /// Shows the user an alert, which the log has already: S14.
    var alerted: @Sendable (Key, AppAlert) -> Void = { _, _ in }
  }
  struct Key: Hashable {
    let user: UInt32
    let identifier: String
  }
  struct App {
    let id: AppID
    var manifest: AppManifest
    /// Nil: it has no process.
    var process: AppProcess?
    var pid: Int32? { process?.pid }
    var connections: [ObjectIdentifier: AppConnection] = [:]
    /// The managers that are preserved, and those for which its process was relaunched.
    var kept: [AppRecord.Manager] = []
    var launchedFor: [ManagerIdentity] = []
    /// Preserved managers of adapters that this daemon does not have.
    var homeless: [AppRecord.Manager] = []
  }
  /// Who has connected, as the kernel says.
  struct Credentials: Sendable {
    var uid: UInt32
    var process: AppProcess
  }
  /// `struct ucred`: unix(7).
  private struct KernelCredentials: Sendable {
    var pid: Int32
    var uid: UInt32
    var gid: UInt32
  }
  /// One of the daemon's, with the name by which apps choose it.
  struct NamedAdapter: Sendable {
    var name: String
    var adapter: Adapter
  }

  let eventLoop: any EventLoop
  let adapters: [NamedAdapter]
  let limits: Limits
  private let policy: Policy
  private let processes: AppProcesses
  /// Nil: preserved managers end with the daemon.
  private let store: AppStore?
  private let logger: Logger
  private(set) var core: AppCore
  private(set) var apps: [Key: App] = [:]
  private var keys: [AppID: Key] = [:]
  private var owners: [ObjectIdentifier: Key] = [:]
  /// What users have said about apps that share data.
  private var permissions: [Key: Bool] = [:]
  private var asked: [Key: EventLoopFuture<Bool>] = [:]
  private var stopped: [ObjectIdentifier: AppProcess] = [:]
  private var lastApp = 0
  private var listener: StreamListener?
  /// Where apps find it.
  private var path: String?
  private var timer: Scheduled<Void>?
  private var isClosed = false
  var counters = Counters()
  /// Connections that read the log.
  var listeners: [ObjectIdentifier: AppConnection] = [:]

  init(
    on eventLoop: any EventLoop, adapters: [NamedAdapter], processes: AppProcesses = .real, limits: Limits = Limits(),
    policy: Policy = Policy(), store: AppStore? = nil, logger: Logger = .adapter
  ) {
    self.eventLoop = eventLoop
    self.adapters = adapters
    self.processes = processes
    self.limits = limits
    self.policy = policy
    self.store = store
    self.logger = logger
    core = AppCore(limits: limits.core)
    for named in adapters {
      named.adapter.whenAppNeeds { [weak self] app, need in
        guard let self else { return }
        self.eventLoop.execute { self.meet(need, of: app) }
      }
    }
  }

  /// `path` has at most `StreamSocket.longestPathWithMode` octets. A socket that a daemon has left there is replaced.
  /// `group`: of the socket's file; nil: this process's.
  func listen(at path: String, mode: FilePermissions = .ownerReadWrite, group: UInt32? = nil) async throws {
    try await eventLoop.submit { self.path = path }.get()
    try await load()
    try await begin(try StreamSocket.listening(atPath: path, mode: mode, group: group), removing: path)
  }
  /// The socket with this number listens already: of systemd.
  func listen(on descriptor: CInt) async throws {
    try await load()
    try await begin(FileDescriptor(rawValue: descriptor), removing: nil)
  }
  private func begin(_ socket: FileDescriptor, removing path: String?) async throws {
    let listener = StreamListener(socket, removing: path) { [self] connection in
      eventLoop.execute {
        if self.isClosed {
          try? connection.close()
          return
        }
        _ = ClientBootstrap(group: self.eventLoop).channelInitializer { channel in
          Self.credentials(of: channel).flatMap { credentials in
            channel.eventLoop.makeCompletedFuture {
              try channel.pipeline.syncOperations.addHandler(self.connection(of: credentials))
            }
          }
        }.withConnectedSocket(connection.rawValue)
      }
    }
    try await eventLoop.submit {
      self.listener = listener
      // A socket of ours was bound to the name of its draft.
      self.path = path ?? listener.path
    }.get()
  }
  /// Apps learn that the adapter is resetting. What is preserved stays in the store; suspended processes run again.
  func close() async {
    // First: an app that loses its connection tries again at once, and is to find nobody.
    await (try? eventLoop.submit { [self] in listener }.get())?.close()
    try? await eventLoop.submit { [self] in
      isClosed = true
      for app in apps.values { for connection in app.connections.values { connection.close() } }
      for listener in listeners.values { listener.close() }
      for process in stopped.values { processes.resume(process) }
      stopped = [:]
      store?.saveStopped([])
      timer?.cancel()
    }.get()
  }
  /// SO_PEERCRED: unix(7). SO_PEERPIDFD is its process whatever has become of its number; where the kernel does not
  /// have it, the process is opened by its number at once.
  private static func credentials(of channel: any Channel) -> EventLoopFuture<Credentials> {
    guard let provider = channel as? any SocketOptionProvider else {
      return channel.eventLoop.makeFailedFuture(FrameError("no credentials"))
    }
    let level = SocketOptionLevel(SOL_SOCKET), name = SocketOptionName(SO_PEERCRED)
    let option = SocketOptionName(bindrune_SO_PEERPIDFD)
    let known: EventLoopFuture<KernelCredentials> = provider.unsafeGetSocketOption(level: level, name: name)
    return known.flatMap { known in
      let descriptor: EventLoopFuture<CInt> = provider.unsafeGetSocketOption(level: level, name: option)
      return descriptor.map { FileDescriptor(rawValue: $0) as FileDescriptor? }.recover { _ in nil }.map {
        Credentials(uid: known.uid, process: AppProcess(known.pid, of: known.uid, $0))
      }
    }
  }
  private func connection(of credentials: Credentials) -> AppConnection {
    AppConnection(
      patience: limits.greeting,
      admit: { self.admit($0, $1, credentials, $2) },
      control: { self.control($0, $1, credentials) },
      ended: { self.ended($0, isOrderly: $1) })
  }

  // MARK: What earlier runs have kept

  private func load() async throws {
    guard let store else { return }
    let (records, processes) = try await NIOThreadPool.singleton.runIfActive { (try store.load(), store.loadStopped()) }
    try await eventLoop.submit { [self] in
      // Those that are still there.
      for process in processes { if let process = AppProcess(process) { self.processes.resume(process) } }
      store.saveStopped([])
      for record in records { add(record) }
      drain()
    }.get()
  }
  private func add(_ record: AppRecord) {
    let key = Key(user: record.user, identifier: record.manifest.identifier)
    permissions[key] = record.mayShareData
    if record.managers.isEmpty { return }
    var app = newApp(key, record.manifest)
    core.add(app.id, canLaunch: record.manifest.canRelaunch, now: now)
    for named in adapters { named.adapter.register(app.id, record.manifest.backgroundModes, .terminated) }
    for manager in record.managers {
      if let named = adapters.first(where: { $0.name == manager.adapter }) {
        app.kept.append(manager)
        named.adapter.plan(manager.manager, of: app.id)
      } else {
        app.homeless.append(manager)
        note(
          .warning, key.identifier,
          "has a preserved manager on \(manager.adapter), which this daemon does not have: add --hci \(manager.adapter)"
        )
      }
    }
    apps[key] = app
    note(.info, key.identifier, "has \(app.kept.count) preserved managers")
  }
  /// Brings the record of the app up to date.
  private func save(_ key: Key) {
    guard let app = apps[key] else { return write(key, []) }
    let parts = adapters.map { named in
      named.adapter.preserved(of: app.id).map { managers in
        managers.map { AppRecord.Manager(adapter: named.name, manager: $0) }
      }
    }
    EventLoopFuture.whenAllSucceed(parts, on: eventLoop).whenSuccess { [self] parts in
      if isClosed { return }
      let kept = parts.flatMap { $0 }
      apps[key]?.kept = kept
      write(key, kept + app.homeless)
    }
  }
  private func write(_ key: Key, _ managers: [AppRecord.Manager]) {
    guard let store else { return }
    store.save(
      AppRecord(
        user: key.user, manifest: apps[key]?.manifest ?? AppManifest(identifier: key.identifier),
        mayShareData: permissions[key], managers: managers))
  }

  // MARK: Connections

  private func admit(
    _ connection: AppConnection, _ hello: AppMessage.Hello, _ credentials: Credentials, _ events: EventQueue
  ) -> EventLoopFuture<any BrokerSession> {
    let key = Key(user: credentials.uid, identifier: hello.manifest.identifier)
    // Without a word, so that the app tries again.
    if isClosed { connection.close() }
    // A central shares nothing.
    if hello.manager?.role == .central || policy.mayShareData == nil {
      return eventLoop.makeCompletedFuture { try admitNow(connection, hello, credentials, events) }
    }
    return mayShareData(key).flatMapThrowing { [self] isPermitted in
      if isPermitted { return try admitNow(connection, hello, credentials, events) }
      counters.refusals += 1
      throw FrameError(
        "App \(key.identifier) may not share data: its user has refused it, or was not asked; bindruned's --authorize decides."
      )
    }
  }
  private func admitNow(
    _ connection: AppConnection, _ hello: AppMessage.Hello, _ credentials: Credentials, _ events: EventQueue
  ) throws(FrameError) -> any BrokerSession {
    do throws(FrameError) { return try makeSession(connection, hello, credentials, events) } catch {
      counters.refusals += 1
      note(.warning, hello.manifest.identifier, "is refused: \(error)")
      throw error
    }
  }
  /// S136.
  private func mayShareData(_ key: Key) -> EventLoopFuture<Bool> {
    if let known = permissions[key] { return eventLoop.makeSucceededFuture(known) }
    if let asked = asked[key] { return asked }
    guard let ask = policy.mayShareData else { return eventLoop.makeSucceededFuture(true) }
    let promise = eventLoop.makePromise(of: Bool?.self)
    promise.completeWithTask { await ask(key.identifier, key.user) }
    let answer = promise.futureResult.map { [self] answer in
      asked[key] = nil
      permissions[key] = answer
      note(.notice, key.identifier, answer == true ? "may share data" : "may not share data")
      if answer != nil { save(key) }
      return answer ?? false
    }
    asked[key] = answer
    return answer
  }
  private func makeSession(
    _ connection: AppConnection, _ hello: AppMessage.Hello, _ credentials: Credentials, _ events: EventQueue
  ) throws(FrameError) -> any BrokerSession {
    if isClosed { throw FrameError("bindruned ends.") }
    // Its end has been counted already, so an app that got a process now would have it for ever.
    guard connection.isConnected else { throw FrameError("its process has gone before it was admitted.") }
    if let why = policy.admits(credentials) { throw FrameError(why) }
    let key = Key(user: credentials.uid, identifier: hello.manifest.identifier)
    guard let adapter = hello.adapter.map({ name in adapters.first { $0.name == name } }) ?? adapters.first else {
      throw FrameError(
        """
        bindruned has no adapter \(hello.adapter?.printable() ?? ""), only \
        \(adapters.map(\.name).joined(separator: ", ")): correct broker:NAME.
        """
      )
    }
    if apps[key] == nil, apps.count >= limits.apps {
      throw FrameError("bindruned has \(limits.apps) apps, and takes no more: end one of them.")
    }
    var app = apps[key] ?? newApp(key, hello.manifest)
    if let pid = app.pid, pid != credentials.process.pid, !app.connections.isEmpty {
      throw FrameError(
        "App \(key.identifier) runs already, as process \(pid): end that, or give this one another identifier.")
    }
    guard app.connections.count < limits.sessions else {
      throw FrameError("App \(key.identifier) has \(limits.sessions) managers, and gets no more: release one of them.")
    }
    let isNew = app.process == nil
    app.manifest = hello.manifest
    // The first one that it has: its number, too, may be used again.
    if isNew || app.connections.isEmpty { app.process = credentials.process }
    app.connections[ObjectIdentifier(connection)] = connection
    apps[key] = app
    owners[ObjectIdentifier(connection)] = key
    counters.sessions += 1
    if isNew {
      note(.info, key.identifier, "has begun, process \(credentials.process.pid) of user \(key.user)")
      core.begin(app.id, canLaunch: hello.manifest.canRelaunch, now: now)
      for named in adapters {
        named.adapter.register(app.id, hello.manifest.backgroundModes, core.life(of: app.id) ?? .foreground)
      }
    }
    drain()
    if let identity = hello.manager, app.kept.contains(where: { $0.manager.identity == identity }) {
      // The process knows from `resetting` that everything was lost.
      if hello.isReconnecting { adapter.adapter.drop(identity, of: app.id) }
      eventLoop.execute { self.save(key) }
    }
    return DirectSession(on: adapter.adapter, of: app.id, as: hello.manager, events: events)
  }
  private func newApp(_ key: Key, _ manifest: AppManifest) -> App {
    lastApp += 1
    let app = App(id: AppID(rawValue: lastApp), manifest: manifest)
    keys[app.id] = key
    return app
  }
  private func ended(_ connection: AppConnection, isOrderly: Bool) {
    listeners[ObjectIdentifier(connection)] = nil
    counters.add(connection)
    guard let key = owners.removeValue(forKey: ObjectIdentifier(connection)), let app = apps[key] else { return }
    apps[key]?.connections[ObjectIdentifier(connection)] = nil
    if isClosed { return }
    let others = apps[key]?.connections ?? [:]
    if isOrderly, !others.isEmpty { return }
    // The process is gone, or breaks the rules: all its sessions end, and what was begun for a restoration identifier
    // goes on.
    if let process = app.process { forgetStopped(process) }
    apps[key]?.connections = [:]
    apps[key]?.process = nil
    apps[key]?.launchedFor = []
    for (id, other) in others {
      owners[id] = nil
      other.close()
    }
    endSessions(of: app.id, keeping: [connection] + others.values)
  }
  /// `connections` hold the sessions until they are preserved or removed.
  private func endSessions(of app: AppID, keeping connections: [AppConnection]) {
    let ends = adapters.map { named in
      let promise = eventLoop.makePromise(of: Bool.self)
      named.adapter.end(app) { promise.succeed($0) }
      return promise.futureResult
    }
    EventLoopFuture.whenAllSucceed(ends, on: eventLoop).whenSuccess { [self] kept in
      defer { withExtendedLifetime(connections) {} }
      // It may have connected again meanwhile.
      guard let key = keys[app], apps[key]?.pid == nil, !isClosed else { return }
      let isKept = kept.contains(true) || apps[key]?.homeless.isEmpty == false
      note(.info, key.identifier, isKept ? "has ended, and its managers are preserved" : "has ended")
      core.end(app, isKept: isKept, now: now)
      if isKept { save(key) }
      drain()
      if !isKept {
        write(key, [])
        apps[key] = nil
        keys[app] = nil
      }
    }
  }
  private func meet(_ need: AppNeed, of app: AppID) {
    switch need {
    case .run(let why): core.wake(app, why, now: now)
    case .alert(let alert):
      counters.alerts += 1
      guard let key = keys[app] else { break }
      note(.notice, key.identifier, "alert: \(alert.text)")
      policy.alerted(key, alert)
    }
    drain()
  }

  // MARK: Lives

  /// As the system, or its user, does it.
  func move(_ key: Key, to life: AppLife) {
    guard let app = apps[key] else { return }
    core.move(app.id, to: life, now: now)
    drain()
  }
  func life(of key: Key) -> AppLife? { apps[key].flatMap { core.life(of: $0.id) } }

  private var now: Instant { Instant(nanoseconds: eventLoop.now.uptimeNanoseconds) }
  private func drain() {
    while let effect = core.nextEffect() { perform(effect) }
    timer?.cancel()
    timer = core.deadline.map { deadline in
      eventLoop.scheduleTask(deadline: .uptimeNanoseconds(deadline.nanoseconds)) { [weak self] in
        guard let self else { return }
        core.expire(now: now)
        drain()
      }
    }
  }
  private func perform(_ effect: AppCore.Effect) {
    switch effect {
    case .move(let app, let life):
      for named in adapters { named.adapter.move(app, to: life) }
      note(.info, keys[app]?.identifier ?? "", "is \(life.rawValue)")
    case .stop(let app):
      guard let process = process(of: app) else { return }
      do throws(FrameError) {
        try processes.stop(process)
        stopped[ObjectIdentifier(process)] = process
        saveStopped()
      } catch {
        note(.warning, keys[app]?.identifier ?? "", "is suspended, but its process runs on: \(error)")
      }
    case .resume(let app):
      guard let process = process(of: app) else { return }
      counters.wakes += 1
      processes.resume(process)
      forgetStopped(process)
    case .kill(let app):
      guard let process = process(of: app) else { return }
      do throws(FrameError) { try processes.kill(process) } catch {
        note(.warning, keys[app]?.identifier ?? "", "is not terminated: \(error)")
      }
    case .launch(let app): launch(app)
    case .log(let level, let app, let text): note(level, keys[app]?.identifier ?? "", text)
    }
  }
  private func launch(_ app: AppID) {
    guard let key = keys[app], let known = apps[key] else { return }
    counters.relaunches += 1
    apps[key]?.launchedFor = known.kept.map(\.manager.identity)
    do throws(FrameError) {
      if let why = RelaunchRule.refusal(of: known.manifest, user: key.user, by: getuid(), policy.relaunches) {
        throw FrameError(why)
      }
      // The app has named its adapter by itself, or got it from its environment: that has to say the same again.
      let adapters = Set(known.kept.map(\.adapter))
      let place = AppProcesses.Place(
        socket: path, adapter: adapters.count == 1 ? adapters.first : nil)
      try processes.launch(known.manifest, key.user, place) { [weak self] why in
        guard let self else { return }
        eventLoop.execute {
          // A process that has connected has ended in its own way.
          guard self.apps[key]?.id == app, self.apps[key]?.pid == nil else { return }
          self.launchFailed(app, why)
        }
      }
    } catch {
      launchFailed(app, error.description)
    }
  }
  private func launchFailed(_ app: AppID, _ why: String) {
    counters.relaunchFailures += 1
    core.launchFailed(app, why, now: now)
    drain()
  }
  private func forgetStopped(_ process: AppProcess) {
    if stopped.removeValue(forKey: ObjectIdentifier(process)) != nil { saveStopped() }
  }
  private func saveStopped() { store?.saveStopped(Set(stopped.values.compactMap(\.stopped))) }
  private func process(of app: AppID) -> AppProcess? { keys[app].flatMap { apps[$0]?.process } }

  // MARK: The log

  /// A line about an app. Names of devices in `text` are escaped.
  func note(_ level: Logger.Level, _ app: String, _ text: String) {
    logger.log(level: level, "\(app) \(text)")
    for listener in listeners.values { listener.answer("\(level)\t\(app)\t\(text)") }
  }
}

extension AppAlert {
  /// For people, with the device's name escaped.
  var text: String {
    switch self {
    case .connected(let peer, let name): "\(title(peer, name)) has connected"
    case .disconnected(let peer, let name): "\(title(peer, name)) has disconnected"
    case .notified(let peer, let name, let count):
      "\(title(peer, name)) has sent \(count == 1 ? "a notification" : "\(count) notifications")"
    }
  }
  var peer: UUID {
    switch self {
    case .connected(let peer, _), .disconnected(let peer, _), .notified(let peer, _, _): peer
    }
  }
  private func title(_ peer: UUID, _ name: String?) -> String { name.map { $0.printable() } ?? "\(peer)" }
}
