import BindruneSystem
import BindruneTransport
import Dispatch
import FoundationEssentials
import NIOConcurrencyHelpers
import Logging
import NIOPosix

/// The adapters of this process: one for each choice, so that all sessions share it.
final class AdapterRegistry: @unchecked Sendable {
  // Sendable: the lock.

  /// The process's. A program that ends with `exit`, by returning, or by a signal that it leaves at its default (see
  /// `EndingSignals`), need not have closed its sessions: its peers see a disconnection and not a silence, and an
  /// adapter that was taken down is up again.
  static let shared: AdapterRegistry = {
    let registry = AdapterRegistry()
    _ = StandardError.shared  // the last that is done at exit is what was begun first
    atexit { AdapterRegistry.shared.closeAll(within: .milliseconds(1500)) }
    return registry
  }()

  private let lock = NIOLock()
  private var entries: [String: (adapter: Adapter, users: Int)] = [:]
  private var provided: [String: Adapter] = [:]

  /// The adapter for `choice`, with one more user until `Registration.leave`. An invalid choice has an adapter too,
  /// whose state reports the mistake.
  func adapter(_ choice: Result<AdapterChoice, TransportError>) -> Adapter {
    let key: String
    switch choice {
    case .success(let choice): key = "\(choice.spec)"
    case .failure(let error): key = error.description
    }
    return lock.withLock {
      let adapter = entries[key]?.adapter ?? make(choice, key)
      entries[key] = (adapter, (entries[key]?.users ?? 0) + 1)
      return adapter
    }
  }

  /// The adapter that the program provides under this name, or else the one that the choice names.
  func adapter(_ name: String?) -> Adapter {
    let known = name.flatMap { name in lock.withLock { provided[name] } }
    // The environment and the file set the other options of an adapter that the program provides.
    let choice = AdapterChoice.result(known == nil ? name : nil)
    if case .success(let choice) = choice, choice.handlesSignals {
      EndingSignals.watch {
        AdapterRegistry.shared.closeAll(within: .milliseconds(1500))
        StandardError.shared.flush()
      }
    }
    return known ?? adapter(choice)
  }
  func isProvided(_ name: String) -> Bool { lock.withLock { provided[name] != nil } }
  func provide(_ adapter: Adapter, as name: String) { lock.withLock { provided[name] = adapter } }

  private func make(_ choice: Result<AdapterChoice, TransportError>, _ key: String) -> Adapter {
    Adapter(choice, registration: Registration(registry: self, key: key))
  }

  /// Closes all adapters with their sessions, and waits until they are closed, except for the adapter of the current
  /// thread.
  func closeAll(within limit: DispatchTimeInterval) {
    Adapter.closeAll(
      lock.withLock { entries.values.map { $0.adapter } + Array(provided.values) }, within: limit)
  }

  /// An adapter's place in the registry.
  struct Registration: Sendable {
    fileprivate let registry: AdapterRegistry
    fileprivate let key: String
    /// A session has been closed.
    func leave() { registry.lock.withLock { registry.entries[key]?.users -= 1 } }
    /// The adapter is closed; it is removed unless a session was opened meanwhile.
    func end() {
      registry.lock.withLock { if registry.entries[key]?.users == 0 { registry.entries[key] = nil } }
    }
  }
}

extension Adapter {
  /// Closes the adapters with their sessions, and waits until they are closed, except for that of the current thread.
  static func closeAll(_ adapters: [Adapter], within limit: DispatchTimeInterval) {
    let adapters = adapters.filter { !$0.eventLoop.inEventLoop }
    let deadline = DispatchTime.now() + limit
    // All sessions before the first link, so that no session gets events of a link that another adapter ends.
    for step in [Adapter.silence, Adapter.shutDown] {
      let group = DispatchGroup()
      for adapter in adapters {
        group.enter()
        step(adapter)({ group.leave() })
      }
      _ = group.wait(timeout: deadline)
    }
  }

  /// The adapter of an unmodified program, or of the daemon. `agent`, `logger`: as for programs.
  convenience init(
    _ choice: Result<AdapterChoice, TransportError>, logger: Logger = .adapter,
    registration: AdapterRegistry.Registration? = nil
  ) {
    let loop = EventLoops.next()
    // It lives as long as the adapter, so that a reopened controller is on the same radio.
    let radio = (try? choice.get().spec) == .sim ? SimulatedRadio(on: loop, logger: logger) : nil
    let bondStore = (try? choice.get()).flatMap { BondFile.ofPrograms($0.spec, logger) }
    self.init(
      on: loop, logger: logger, agent: AgentChoice.ofPrograms, bondStore: bondStore, registration: registration
    ) { loop async throws(TransportError) in
      let choice = try choice.get()
      return try await choice.spec.open(
        on: loop, radio: radio, takesDown: choice.takesDown, trace: choice.trace, tracesCalls: choice.tracesCalls,
        logger: logger)
    }
  }
}

extension AgentChoice {
  /// The agent of an unmodified program, which `BINDRUNE_AGENT` names: `accept` (the default: Just Works, nobody is
  /// asked), `refuse`, `terminal`, or a command of the shell.
  static var ofPrograms: any PairingAgent {
    AgentChoice(AdapterChoice.variable("BINDRUNE_AGENT") ?? "").agent(.adapter)
  }
}

extension Logger {
  /// The log of an adapter of an unmodified program: warnings only, on standard error.
  static var adapter: Logger {
    var logger = Logger(label: "bindrune") { StreamLogHandler(label: $0, stream: StandardError.shared) }
    logger.logLevel = .warning
    return logger
  }
}
