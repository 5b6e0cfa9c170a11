import ArgumentParser
import BindruneBroker
import BindruneControl
import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import Logging

@main
struct DaemonCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bindruned",
    abstract: "Lets many Core Bluetooth programs share the adapters of this machine.",
    discussion: """
      A program that imports CoreBluetooth uses this daemon if its socket is there and nothing names another \
      controller, or with BINDRUNE_HCI=broker. The daemon wakes, suspends and relaunches its apps, and goes on with \
      their connections meanwhile; "bindrune apps" shows and moves them. SIGTERM and SIGINT end it; what is preserved \
      of apps stays on the disk.
      """,
    version: "0.1.0")

  @Option(
    help: ArgumentHelp(
      """
      An adapter: hci0, serial:PATH[,BAUD], tcp:HOST:PORT, unix:PATH, sim or sim:NAME. Repeat it for more; the first \
      is the default. Default: BINDRUNE_HCI, the configuration file, or hci0.
      """, valueName: "spec"))
  var hci: [String] = []
  @Flag(help: "Take adapters down that are up, and bring them up again at the end (not after SIGKILL).")
  var takeDown = false
  @Option(
    help: ArgumentHelp(
      """
      The socket for apps. Default: the one that systemd passes, else BINDRUNE_SOCKET, else for root \
      /run/bindrune/apps.socket, for others $XDG_RUNTIME_DIR/bindrune-apps.socket.
      """, valueName: "path"))
  var socket: String?
  @Option(
    help: ArgumentHelp("The mode of the socket's file, octal. Default: 660 with --group, else 600.", valueName: "mode"))
  var mode: String?
  @Option(help: ArgumentHelp("The group of the socket's file: its members may use Bluetooth.", valueName: "name"))
  var group: String?
  @Option(
    help: ArgumentHelp(
      """
      The folder for what is preserved of apps. Default: the one that systemd makes, else for root \
      /var/lib/bindrune/apps, for others ~/.local/state/bindrune/apps.
      """, valueName: "folder"))
  var state: String?
  @Option(
    help: ArgumentHelp(
      """
      A command of the shell that asks whether an app may share data, the first time that it does: BINDRUNE_APP and \
      BINDRUNE_USER name it, status 0 permits it. Default: every app may.
      """, valueName: "command"))
  var authorize: String?
  @Option(
    help: ArgumentHelp(
      """
      A command of the shell that shows the user an alert of a suspended app: BINDRUNE_ALERT is the sentence, \
      BINDRUNE_APP, BINDRUNE_USER and BINDRUNE_PEER say whose it is. Default: alerts are in the log alone.
      """, valueName: "command"))
  var alert: String?
  @Option(
    help: ArgumentHelp(
      """
      Relaunch this app of another user by this systemd unit, if its manifest names the unit: for example \
      alice:org.example.lock=lock.service. Repeat it for more. Default: the daemon relaunches only apps of its own \
      user.
      """, valueName: "user:app=unit"))
  var relaunch: [String] = []
  @Option(help: ArgumentHelp("Serve counters to Prometheus, for example at 127.0.0.1:9464.", valueName: "host:port"))
  var metrics: String?
  @Option(help: ArgumentHelp("The least severe messages to show on standard error.", valueName: "level"))
  var logLevel: Logger.Level = .notice

  func run() async throws {
    let notifier = try ServiceNotifier(), logger = logger
    let daemon = try await AppDaemon(configuration(), logger: logger)
    var page: MetricsPage?
    do { page = try await metrics.asyncMap { try await MetricsPage.serve($0) { await daemon.metrics() } } } catch {
      await daemon.stop()
      throw error
    }
    logger.notice("ready")
    notifier.send("READY=1")
    let beats = Task { await notifier.keepAlive { await daemon.answer() } }
    let signal = await Self.endingSignal()
    logger.notice("ends by \(signal == SIGINT ? "SIGINT" : "SIGTERM")")
    notifier.send("STOPPING=1")
    beats.cancel()
    await page?.close()
    await daemon.stop()
  }

  private var logger: Logger {
    var logger = Logger(label: "bindruned") { StreamLogHandler(label: $0, stream: StandardError.shared) }
    logger.logLevel = logLevel
    return logger
  }

  // MARK: Configuration

  private func configuration() throws -> AppDaemon.Configuration {
    let specs: [String?] = hci.isEmpty ? [nil] : hci
    var adapters: [(name: String, choice: AdapterChoice)] = []
    for spec in specs {
      var choice = try AdapterChoice(spec)
      choice.takesDown = choice.takesDown || (takeDown && choice.isOfThisMachine)
      if adapters.contains(where: { $0.name == "\(choice.spec)" }) {
        throw ValidationError("--hci \(choice.spec) stands there twice: name each adapter once.")
      }
      adapters.append((name: "\(choice.spec)", choice: choice))
    }
    return AppDaemon.Configuration(
      socket: try place(), adapters: adapters, state: try folder(), authorize: authorize.map(ShellCommand.init),
      alert: alert.map(ShellCommand.init), relaunches: try rules())
  }
  private func rules() throws -> Set<RelaunchRule> {
    do { return Set(try relaunch.map { try RelaunchRule(text: $0) }) } catch {
      throw ValidationError("--relaunch: \(error)")
    }
  }
  private func place() throws -> AppDaemon.Configuration.Socket {
    if socket == nil, let descriptor = ServiceNotifier.passedSocket() { return .descriptor(descriptor) }
    let mode: UInt32
    if let text = self.mode {
      guard let number = UInt32(text, radix: 8), number <= 0o777 else {
        throw ValidationError("--mode is \"\(text.printable(limit: 20))\": write three octal digits, such as 660.")
      }
      mode = number
    } else {
      mode = group == nil ? 0o600 : 0o660
    }
    let named = socket ?? AdapterChoice.variable("BINDRUNE_SOCKET").flatMap { $0.isEmpty ? nil : $0 }
    guard let path = named ?? (geteuid() == 0 ? DaemonSocket.ofTheMachine : DaemonSocket.ofTheUser()) else {
      throw ValidationError(
        """
        XDG_RUNTIME_DIR is not set, so there is no place for the socket: name one with --socket, and for the apps in \
        BINDRUNE_SOCKET.
        """
      )
    }
    return .path(path, mode: mode, group: group)
  }
  private func folder() throws -> String {
    if let state { return state }
    if let folder = AdapterChoice.variable("STATE_DIRECTORY"), folder.hasPrefix("/") { return folder + "/apps" }
    if geteuid() == 0 { return "/var/lib/bindrune/apps" }
    // Relative paths are to be ignored: XDG Base Directory Specification, "Environment variables".
    if let folder = AdapterChoice.variable("XDG_STATE_HOME"), folder.hasPrefix("/") { return folder + "/bindrune/apps" }
    if let home = AdapterChoice.variable("HOME"), home.hasPrefix("/") { return home + "/.local/state/bindrune/apps" }
    throw ValidationError("HOME is not set, so there is no place for the state of apps: name a folder with --state.")
  }

  // MARK: The end

  private static func endingSignal() async -> CInt {
    await withCheckedContinuation { continuation in
      let first = FirstSignal(continuation)
      for number in [SIGTERM, SIGINT] {
        signal(number, SIG_IGN)
        let source = DispatchSource.makeSignalSource(signal: number, queue: first.queue)
        source.setEventHandler { first.take(number) }
        source.activate()
        first.sources.append(source)
      }
    }
  }
  private final class FirstSignal: @unchecked Sendable {
    // Sendable: after the initialisation everything is on the queue.
    let queue = DispatchQueue(label: "bindruned.signals")
    var sources: [any DispatchSourceSignal] = []
    private var continuation: CheckedContinuation<CInt, Never>?
    init(_ continuation: CheckedContinuation<CInt, Never>) { self.continuation = continuation }
    /// The second one ends the process at once.
    func take(_ number: CInt) {
      guard let continuation else { _exit(128 + number) }
      self.continuation = nil
      continuation.resume(returning: number)
    }
  }
}

extension AdapterChoice {
  /// The others have no kernel above them.
  fileprivate var isOfThisMachine: Bool { if case .adapter = spec { true } else { false } }
}
extension Logger.Level: @retroactive ExpressibleByArgument {}

extension Optional {
  fileprivate func asyncMap<Result>(_ transform: (Wrapped) async throws -> Result) async rethrows -> Result? {
    if let self { try await transform(self) } else { nil }
  }
}
