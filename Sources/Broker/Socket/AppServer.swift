import BindruneWire
import Logging
import NIOCore
import NIOPosix

/// What a server does with the processes of apps.
struct AppProcesses: Sendable {
  /// The process stops running: SIGSTOP.
  var stop: @Sendable (_ pid: Int32) -> Void
  var resume: @Sendable (_ pid: Int32) -> Void
  var kill: @Sendable (_ pid: Int32) -> Void
  /// Starts the command of the manifest as this user, or throws why not. The process connects by itself.
  var launch: @Sendable (AppManifest, _ uid: UInt32) throws(FrameError) -> Void

  /// Signals to real processes, which are started as children.
  static var real: AppProcesses {
    AppProcesses(
      stop: { _ = Foundation.kill($0, SIGSTOP) }, resume: { _ = Foundation.kill($0, SIGCONT) },
      kill: { _ = Foundation.kill($0, SIGKILL) },
      launch: { manifest, uid throws(FrameError) in try spawn(manifest, uid) })
  }
  private static func spawn(_ manifest: AppManifest, _ uid: UInt32) throws(FrameError) {
    guard let command = manifest.relaunch, let path = command.first else { throw FrameError("it names no command") }
    // An app of another user is started by its systemd unit, which has that user's environment.
    guard uid == getuid() else {
      throw FrameError("it belongs to user \(uid), and this daemon runs as user \(getuid()): name a systemd unit")
    }
    let process = Process()
    process.executableURL = URL(fileURLWithPath: path)
    process.arguments = Array(command.dropFirst())
    process.environment = ProcessInfo.processInfo.environment.merging(["BINDRUNE_HCI": "broker"]) { $1 }
    process.standardInput = FileHandle.nullDevice
    do { try process.run() } catch { throw FrameError("\(path): \(error.localizedDescription)") }
  }
}

/// # AppServer
/// **Overview**: a daemon's socket: it admits apps, gives each of their sessions an adapter, and drives `AppCore` with their processes.
///
/// **Function**: an app is known by the user and the identifier of its manifest, and has one process at a time. The end of a connection that
/// the app has not closed counts as the end of its process.
///
/// **Phases**: idle → listening → closed.
final class AppServer: @unchecked Sendable {
  // Sendable: everything is on the event loop.

  private struct Key: Hashable {
    let user: UInt32
    let identifier: String
  }
  private struct App {
    let id: AppID
    var manifest: AppManifest
    /// Nil: it has no process.
    var pid: Int32?
    var connections: [ObjectIdentifier: AppConnection] = [:]
  }
  /// `struct ucred`: unix(7).
  struct Credentials: Sendable {
    var pid: Int32
    var uid: UInt32
    var gid: UInt32
  }

  let eventLoop: any EventLoop
  /// The adapter of that name; nil: the first. Throws why there is none.
  private let adapter: (String?) throws(FrameError) -> Adapter
  private let processes: AppProcesses
  private let logger: Logger
  private var core: AppCore
  private var apps: [Key: App] = [:]
  private var keys: [AppID: Key] = [:]
  private var owners: [ObjectIdentifier: Key] = [:]
  private var adapters: [ObjectIdentifier: Adapter] = [:]
  private var lastApp = 0
  private var channel: (any Channel)?
  private var timer: Scheduled<Void>?

  init(
    on eventLoop: any EventLoop, processes: AppProcesses = .real, limits: AppCore.Limits = .init(),
    logger: Logger = .adapter, adapter: @escaping (String?) throws(FrameError) -> Adapter
  ) {
    self.eventLoop = eventLoop
    self.processes = processes
    self.logger = logger
    self.adapter = adapter
    core = AppCore(limits: limits)
  }

  /// `path` has at most 107 octets. A socket that a daemon has left there is replaced.
  func listen(at path: String) async throws {
    let bootstrap = ServerBootstrap(group: eventLoop).childChannelInitializer { channel in
      Self.credentials(of: channel).flatMap { credentials in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(self.connection(of: credentials))
        }
      }
    }
    let channel = try await bootstrap.bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
    try await eventLoop.submit { self.channel = channel }.get()
  }
  func close() async {
    try? await eventLoop.flatSubmit { [self] () -> EventLoopFuture<Void> in
      for app in apps.values { for connection in app.connections.values { connection.close() } }
      timer?.cancel()
      return channel?.close() ?? eventLoop.makeSucceededVoidFuture()
    }.get()
  }
  /// SO_PEERCRED: unix(7).
  private static func credentials(of channel: any Channel) -> EventLoopFuture<Credentials> {
    guard let provider = channel as? any SocketOptionProvider else {
      return channel.eventLoop.makeFailedFuture(FrameError("no credentials"))
    }
    let level = SocketOptionLevel(SOL_SOCKET), name = SocketOptionName(SO_PEERCRED)
    return provider.unsafeGetSocketOption(level: level, name: name)
  }
  private func connection(of credentials: Credentials) -> AppConnection {
    AppConnection(
      admit: { (connection, hello, events) throws(FrameError) in
        try self.admit(connection, hello, credentials, events)
      },
      ended: { self.ended($0, isOrderly: $1) })
  }

  // MARK: Connections

  private func admit(
    _ connection: AppConnection, _ hello: AppMessage.Hello, _ credentials: Credentials, _ events: EventQueue
  ) throws(FrameError) -> any BrokerSession {
    let key = Key(user: credentials.uid, identifier: hello.manifest.identifier), adapter = try adapter(hello.adapter)
    var app = apps[key] ?? newApp(key, hello.manifest)
    if let pid = app.pid, pid != credentials.pid, !app.connections.isEmpty {
      throw FrameError(
        "App \(key.identifier) runs already, as process \(pid): end that, or give this one another identifier.")
    }
    let isNew = app.pid == nil
    app.manifest = hello.manifest
    app.pid = credentials.pid
    app.connections[ObjectIdentifier(connection)] = connection
    apps[key] = app
    owners[ObjectIdentifier(connection)] = key
    if isNew { core.begin(app.id, canLaunch: hello.manifest.relaunch != nil, now: now) }
    learn(adapter)
    adapter.register(app.id, hello.manifest.backgroundModes, core.life(of: app.id) ?? .foreground)
    drain()
    return DirectSession(on: adapter, of: app.id, as: hello.manager, events: events)
  }
  private func newApp(_ key: Key, _ manifest: AppManifest) -> App {
    lastApp += 1
    let app = App(id: AppID(rawValue: lastApp), manifest: manifest)
    keys[app.id] = key
    return app
  }
  private func learn(_ adapter: Adapter) {
    guard adapters.updateValue(adapter, forKey: ObjectIdentifier(adapter)) == nil else { return }
    adapter.whenAppNeeds { [weak self] app, need in
      guard let self else { return }
      eventLoop.execute { self.meet(need, of: app) }
    }
  }
  private func ended(_ connection: AppConnection, isOrderly: Bool) {
    guard let key = owners.removeValue(forKey: ObjectIdentifier(connection)), let app = apps[key] else { return }
    apps[key]?.connections[ObjectIdentifier(connection)] = nil
    let others = apps[key]?.connections ?? [:]
    if isOrderly, !others.isEmpty { return }
    // The process is gone, or breaks the rules: all its sessions end, and what was begun for a restoration identifier goes on.
    apps[key]?.connections = [:]
    apps[key]?.pid = nil
    for (id, other) in others {
      owners[id] = nil
      other.close()
    }
    endSessions(of: app.id, keeping: [connection] + others.values)
  }
  /// `connections` hold the sessions until they are preserved or removed.
  private func endSessions(of app: AppID, keeping connections: [AppConnection]) {
    let ends = adapters.values.map { adapter in
      let promise = eventLoop.makePromise(of: Bool.self)
      adapter.end(app) { promise.succeed($0) }
      return promise.futureResult
    }
    EventLoopFuture.whenAllSucceed(ends, on: eventLoop).whenSuccess { [self] kept in
      defer { withExtendedLifetime(connections) {} }
      // It may have connected again meanwhile.
      guard let key = keys[app], apps[key]?.pid == nil else { return }
      let isKept = kept.contains(true)
      core.end(app, isKept: isKept, now: now)
      if !isKept {
        apps[key] = nil
        keys[app] = nil
      }
      drain()
    }
  }
  private func meet(_ need: AppNeed, of app: AppID) {
    switch need {
    case .run(let why): core.wake(app, why, now: now)
    case .alert(let alert): logger.notice("\(keys[app]?.identifier ?? "an app"): \(alert.text)")
    }
    drain()
  }

  // MARK: Lives

  /// As the system, or its user, does it. False: there is no such app. From any thread.
  func move(_ identifier: String, to life: AppLife) -> EventLoopFuture<Bool> {
    eventLoop.submit { [self] in
      let known = apps.filter { $0.key.identifier == identifier }
      for app in known.values { core.move(app.id, to: life, now: now) }
      drain()
      return !known.isEmpty
    }
  }
  func life(of identifier: String) -> EventLoopFuture<AppLife?> {
    eventLoop.submit { [self] in
      apps.first { $0.key.identifier == identifier }.flatMap { core.life(of: $0.value.id) }
    }
  }

  /// Closes all sockets as the kernel does for processes that end.
  func breakConnections() async throws {
    try await eventLoop.submit { [self] in
      for app in apps.values { for connection in app.connections.values { connection.close() } }
    }.get()
  }

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
    case .move(let app, let life): for adapter in adapters.values { adapter.move(app, to: life) }
    case .stop(let app): if let pid = pid(of: app) { processes.stop(pid) }
    case .resume(let app): if let pid = pid(of: app) { processes.resume(pid) }
    case .kill(let app): if let pid = pid(of: app) { processes.kill(pid) }
    case .launch(let app):
      guard let key = keys[app], let manifest = apps[key]?.manifest else { return }
      do throws(FrameError) { try processes.launch(manifest, key.user) } catch {
        core.launchFailed(app, error.description, now: now)
      }
    case .log(let level, let app, let text):
      logger.log(level: level, "\(keys[app]?.identifier ?? "an app") \(text)")
    }
  }
  private func pid(of app: AppID) -> Int32? { keys[app].flatMap { apps[$0]?.pid } }
}

extension AppAlert {
  /// For the log, with the device's name escaped.
  var text: String {
    switch self {
    case .connected(let peer, let name): "\(title(peer, name)) has connected"
    case .disconnected(let peer, let name): "\(title(peer, name)) has disconnected"
    case .notified(let peer, let name, let count): "\(title(peer, name)) has sent \(count) notifications"
    }
  }
  private func title(_ peer: UUID, _ name: String?) -> String { name.map { $0.printable() } ?? "\(peer)" }
}
