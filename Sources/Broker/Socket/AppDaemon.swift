import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Logging
import NIOCore
import NIOPosix
import Synchronization
import SystemPackage

/// What bindruned is without its command line: adapters, the socket for apps, and the state on disk.
///
///     apps' processes ── socket ──▶ AppServer ──▶ Adapter … ──▶ controllers
///                                      │
///                                   AppStore: a folder
public final class AppDaemon: Sendable {
  package struct Configuration: Sendable {
    package enum Socket: Sendable {
      /// `mode`: of the file. `group`: its group; nil: the daemon's own.
      case path(String, mode: UInt32, group: String?)
      /// A listening socket that the daemon was given: sd_listen_fds(3).
      case descriptor(Int32)
    }
    package var socket: Socket
    /// Adapters by the names that apps use for them; the first is the default.
    package var adapters: [(name: String, choice: AdapterChoice)]
    /// The folder for what is preserved of apps.
    package var state: String
    /// Asks the user whether an app may share data (S136), by the environment variables BINDRUNE_APP and BINDRUNE_USER:
    /// status 0 permits it. Nil: every app may.
    package var authorize: ShellCommand?
    /// Shows the user an alert of a suspended app (S14): BINDRUNE_APP, BINDRUNE_USER, BINDRUNE_PEER, and the sentence
    /// as BINDRUNE_ALERT. Nil: alerts are in the log alone.
    package var alert: ShellCommand?
    /// The units that it may start for apps of other users.
    package var relaunches: Set<RelaunchRule>
    package init(
      socket: Socket, adapters: [(name: String, choice: AdapterChoice)], state: String, authorize: ShellCommand? = nil,
      alert: ShellCommand? = nil, relaunches: Set<RelaunchRule> = []
    ) {
      (self.socket, self.adapters, self.state) = (socket, adapters, state)
      (self.authorize, self.alert, self.relaunches) = (authorize, alert, relaunches)
    }
  }
  /// One sentence with the cause and the cure.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String
  }

  private let server: AppServer
  private let store: AppStore?
  private let lock: LockFile?
  private let socketPath: String?

  /// Listens already when it returns.
  package init(_ configuration: Configuration, logger: Logger) async throws(Failure) {
    let adapters = configuration.adapters.map {
      AppServer.NamedAdapter(name: $0.name, adapter: Adapter(.success($0.choice), logger: logger))
    }
    let store = AppStore(folder: configuration.state, logger: logger)
    self.store = store
    var policy = AppServer.Policy()
    policy.relaunches = configuration.relaunches
    if let command = configuration.authorize {
      policy.mayShareData = { app, user in
        do throws(ShellCommand.Failure) {
          _ = try await command.run(["BINDRUNE_APP": app, "BINDRUNE_USER": "\(user)"], within: .seconds(120))
          return true
        } catch .failed {
          return false
        } catch {
          logger.error("\(app) cannot be asked for: \(error)")
          return nil
        }
      }
    }
    if let command = configuration.alert {
      let alerts = AlertCommand(command: command, logger: logger)
      policy.alerted = { alerts.show($1, of: $0) }
    }
    var lock: LockFile?, path: String?
    if case .path(let text, let mode, _) = configuration.socket {
      path = text
      lock = try Self.prepare(text)
      if mode & 0o077 == 0 {
        policy.admits = { credentials in
          credentials.uid == getuid() || credentials.uid == 0
            ? nil : "This bindruned serves user \(getuid()) alone: start one for all users as root, or use your own."
        }
      }
    }
    self.lock = lock
    socketPath = path
    // On an adapter's event loop values need not change threads.
    let loop = adapters.first?.adapter.eventLoop ?? EventLoops.next()
    server = AppServer(on: loop, adapters: adapters, policy: policy, store: store, logger: logger)
    do {
      switch configuration.socket {
      case .descriptor(let number): try await server.listen(on: number)
      case .path(let path, let mode, let group):
        let group: UInt32? = if let group { try Self.number(ofGroup: group) } else { nil }
        try await server.listen(at: path, mode: FilePermissions(rawValue: mode), group: group)
      }
    } catch {
      lock?.release()
      throw Self.failure(error, path ?? "the socket of systemd")
    }
  }
  /// For programs that embed the stack: shares adapters of `DirectSession.provideAdapter` with other processes, by
  /// these names, the first as the default, through a socket at `path` that is this user's alone. Nothing is kept on
  /// disk.
  public init(sharing names: [String], at path: String) async throws {
    let adapters = names.map { AppServer.NamedAdapter(name: $0, adapter: AdapterRegistry.shared.adapter($0)) }
    (store, lock, socketPath) = (nil, try Self.prepare(path), path)
    server = AppServer(
      on: adapters.first?.adapter.eventLoop ?? EventLoops.next(), adapters: adapters)
    try await server.listen(at: path)
  }
  /// Apps learn that the adapter is resetting; what is preserved of others is on disk. Links end in order.
  public func stop() async {
    await server.close()
    let adapters = server.adapters.map(\.adapter), store = store
    await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
      DispatchQueue.global().async {
        Adapter.closeAll(adapters, within: .milliseconds(1500))
        store?.flush()
        done.resume()
      }
    }
    if let socketPath { try? FilePath(text: socketPath).remove() }
    lock?.release()
  }
  /// Returns when every event loop has answered: for a watchdog.
  package func answer() async {
    for loop in [server.eventLoop] + server.adapters.map(\.adapter.eventLoop) { try? await loop.submit {}.get() }
  }
  /// The counters, in Prometheus's text format 0.0.4.
  package func metrics() async -> String { await server.metrics(failedWrites: store?.failedWrites() ?? 0) }

  // MARK: The socket's file

  private static func prepare(_ path: String) throws(Failure) -> LockFile {
    let most = StreamSocket.longestPathWithMode
    guard path.utf8.count <= most else {
      throw Failure(description: "The socket path has \(path.utf8.count) octets; \(most) fit: use a shorter one.")
    }
    let folder = FilePath(text: path).removingLastComponent()
    // Its users have to reach the socket.
    if !folder.isEmpty { try? folder.makeFolder([.ownerReadWriteExecute, .groupReadExecute, .otherReadExecute]) }
    // Who can replace the socket poses as the daemon to its apps.
    if let planted = try? FilePath(text: path).planted(.socket) {
      throw Failure(description: "\(planted.sentence(or: "name another socket with --socket")).")
    }
    do throws(TransportError) { return try LockFile(ofSocket: FilePath(text: path), for: .unix(path: path)) } catch {
      if case .addressInUse = error {
        throw Failure(description: "Another bindruned runs at \(path): end it, or name another socket with --socket.")
      }
      throw Failure(description: "\(error)")
    }
  }
  private static func number(ofGroup group: String) throws(Failure) -> UInt32 {
    if let entry = unsafe getgrnam(group) { return unsafe entry.pointee.gr_gid }
    throw Failure(
      description:
        """
        There is no group \(group.printable()): make it with `groupadd \(group.printable())`, or name another with \
        --group.
        """
    )
  }
  private static func failure(_ error: any Error, _ place: String) -> Failure {
    switch error {
    case let error as Failure: error
    case let error as FrameError: Failure(description: error.description)
    case let error as Errno where [.permissionDenied, .notPermitted, .readOnlyFileSystem].contains(error):
      Failure(
        description:
          "\(place) cannot be made: no permission. Run bindruned as root, or name a socket of your own with --socket.")
    case Errno.notSocket:
      Failure(description: "\(place) is not a socket: move it away, or name another with --socket.")
    default: Failure(description: "\(place) cannot be used (\(error)): mend that, or name another with --socket.")
    }
  }
}

/// Runs a command for each alert.
final class AlertCommand: Sendable {
  private let command: ShellCommand
  private let logger: Logger
  private let running = Atomic(0)
  /// A device that sends without end starts no more commands than these at once; the other alerts are in the log alone.
  private static var most: Int { 8 }
  init(command: ShellCommand, logger: Logger) { (self.command, self.logger) = (command, logger) }

  func show(_ alert: AppAlert, of app: AppServer.Key) {
    guard running.add(1, ordering: .relaxed).newValue <= Self.most else {
      running.subtract(1, ordering: .relaxed)
      return
    }
    Task {
      do throws(ShellCommand.Failure) {
        _ = try await command.run(
          [
            "BINDRUNE_APP": app.identifier, "BINDRUNE_USER": "\(app.user)", "BINDRUNE_PEER": "\(alert.peer)",
            "BINDRUNE_ALERT": alert.text,
          ], within: .seconds(30))
      } catch { logger.error("the alert of \(app.identifier) cannot be shown: \(error)") }
      running.subtract(1, ordering: .relaxed)
    }
  }
}
