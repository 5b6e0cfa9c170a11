import Dispatch
import Glibc
import Synchronization

/// What ends the work early and well: SIGINT, SIGTERM, and an output that nobody reads any more. It is cancelled, closes
/// what it has opened, and the process exits. A second signal ends the process at once.
enum Interruption {
  enum Cause: Sendable {
    case signal(CInt)
    case outputClosed
    case outputFailed(String)
  }
  private struct State {
    var cause: Cause?
    var cancel: (@Sendable () -> Void)?
    var sources: [any DispatchSourceSignal] = []
  }
  private static let state = Mutex(State())

  static var cause: Cause? { state.withLock { $0.cause } }

  /// From now on `cancel` is called for the first cause there is.
  static func begin(_ cancel: @escaping @Sendable () -> Void) {
    signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
    state.withLock { state in
      state.cancel = cancel
      for number in [SIGINT, SIGTERM] {
        state.sources.append(
          source(number) {
            for number in [SIGINT, SIGTERM] { signal(number, SIG_DFL) }
            // At once: a second signal, of either kind, ends the process as it stands.
            Screen.close()
            RawMode.end()
            end(.signal(number))
          })
      }
    }
  }
  /// Calls `body` for each signal instead of what the system would do.
  static func source(_ number: CInt, _ body: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
    signal(number, SIG_IGN)  // the source hears of it all the same
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler(handler: body)
    source.resume()
    return source
  }
  /// Notices at once that nobody reads the output any more: of who may have nothing to write for long.
  static func watchOutput() {
    DispatchQueue(label: "bindrune.output").async {
      var output = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
      while unsafe poll(&output, 1, -1) < 0, errno == EINTR {}
      if output.revents & Int16(POLLERR) != 0 { end(.outputClosed) }
    }
  }
  static func end(_ cause: Cause) {
    let cancel = state.withLock { state in
      state.cause = state.cause ?? cause
      return state.cancel.take()
    }
    cancel?()
  }
}

/// Ends `body` after `duration`: nil then. What it waits for is cancelled, so nothing is left behind.
func withLimit<Result: Sendable>(
  _ duration: Duration, _ body: @escaping @Sendable () async throws -> Result
) async throws -> Result? {
  try await withThrowingTaskGroup(of: Result?.self) { group in
    group.addTask { try await body() }
    group.addTask {
      try await Task.sleep(for: duration)
      return nil
    }
    defer { group.cancelAll() }
    return try await group.next() ?? nil
  }
}

/// Runs `body` for as long as `limit` says, or until interrupted: both are good ends.
func untilInterrupted(_ limit: Seconds?, _ body: @escaping @Sendable () async throws -> Void) async throws {
  do {
    if let limit { _ = try await withLimit(limit.duration, body) } else { try await body() }
  } catch  where Task.isCancelled {}
}
