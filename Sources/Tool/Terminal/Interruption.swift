import Dispatch
import Glibc
import Synchronization

/// Ends the work early after SIGINT, SIGTERM, or an output that closes or fails: cancels the work, which closes what it
/// has opened, and the process exits. A second signal ends the process at once.
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
    var outputFailureStatus = EXIT_FAILURE
  }
  private static let state = Mutex(State())

  /// The status after an output that failed.
  static var outputFailureStatus: CInt {
    get { state.withLock { $0.outputFailureStatus } }
    set { state.withLock { $0.outputFailureStatus = newValue } }
  }
  static var cause: Cause? { state.withLock { $0.cause } }

  /// From now on the first cause calls `cancel`.
  static func begin(_ cancel: @escaping @Sendable () -> Void) {
    signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
    state.withLock { state in
      state.cancel = cancel
      for number in [SIGINT, SIGTERM] {
        state.sources.append(
          source(number) {
            for number in [SIGINT, SIGTERM] { signal(number, SIG_DFL) }
            // Restore the terminal now: a second signal, of either kind, ends the process at once.
            Screen.close()
            RawMode.end()
            end(.signal(number))
          })
      }
    }
  }
  /// Calls `body` for each signal instead of what the system would do.
  static func source(_ number: CInt, _ body: @escaping @Sendable () -> Void) -> any DispatchSourceSignal {
    signal(number, SIG_IGN)  // the source still receives it
    let source = DispatchSource.makeSignalSource(signal: number, queue: .global())
    source.setEventHandler(handler: body)
    source.resume()
    return source
  }
  /// Detects at once that the reader has closed the output, for a verb that may write nothing for long.
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

/// Cancels `body` after `duration`, waits for its end and returns nil.
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

/// Runs `body` until `limit` is over or until interrupted; neither is an error.
func untilInterrupted(_ limit: Seconds?, _ body: @escaping @Sendable () async throws -> Void) async throws {
  do {
    if let limit { _ = try await withLimit(limit.duration, body) } else { try await body() }
  } catch  where Task.isCancelled {}
}
