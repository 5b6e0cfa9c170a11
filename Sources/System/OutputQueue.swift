import Glibc
import SystemPackage

/// Writes to a file descriptor on its own thread, so that a blocked output delays no caller.
///
/// The waiting octets are bounded. When there is no room, `put` drops and counts its octets until half of the room is
/// free again, so that a slow reader sees one gap instead of many; `notice` provides the line that marks the gap in the
/// output.
///
/// The descriptor may be a file, a pipe, a socket or a terminal, blocking or not; no other code may use it meanwhile. A
/// system error ends the queue: `failure` contains it, and later octets are dropped. A full device need not end it:
/// with `waitsForRoom` it counts as a blocked output, and the queue repeats the write every second. The queue never
/// raises SIGPIPE.
///
///     let queue = OutputQueue(to: .standardError, limit: 1 << 20) { "\($0) lines were dropped\n" }
///     queue.put("a line\n".utf8)
///     queue.finish(within: .seconds(2))
package final class OutputQueue: @unchecked Sendable {
  // Sendable because all mutable state is in the monitor.
  private let descriptor: FileDescriptor
  private let closesDescriptor: Bool
  private let waitsForRoom: Bool
  private let limit: Int
  private let notice: (@Sendable (_ dropped: Int) -> String)?
  private let failed: (@Sendable (Errno) -> Void)?
  private let monitor = Monitor(State())

  private struct State {
    var phase = Phase.unused
    var waiting: [UInt8] = []
    /// Octets that the thread has taken and not written yet.
    var taken = 0
    var written: UInt64 = 0
    /// What was dropped since there was room last.
    var dropped = 0
    /// The device had no room at the last attempt.
    var isDeviceFull = false
    /// When a finishing queue gives up.
    var deadline: ContinuousClock.Instant?
    var pending: Int { waiting.count + taken }
  }
  private enum Phase: Equatable {
    /// The thread starts with the first octets.
    case unused
    case running
    /// The thread ends when everything is written.
    case finishing
    /// The thread ends without writing the rest.
    case abandoned
    /// The thread has ended: nil, or the error.
    case ended(Errno?)
  }

  /// `limit`: the octets that may wait. `closesDescriptor`: close it when the queue has ended. `waitsForRoom`: ENOSPC
  /// and EDQUOT do not end the queue. `notice`: the text in place of dropped octets. `failed` is called once, on the
  /// queue's thread.
  package init(
    to descriptor: FileDescriptor, limit: Int, closesDescriptor: Bool = false, waitsForRoom: Bool = false,
    notice: (@Sendable (_ dropped: Int) -> String)? = nil, failed: (@Sendable (Errno) -> Void)? = nil
  ) {
    self.descriptor = descriptor
    self.limit = limit
    self.closesDescriptor = closesDescriptor
    self.waitsForRoom = waitsForRoom
    self.notice = notice
    self.failed = failed
  }

  /// Appends `octets`, all of them or none. False if they were dropped. Never blocks. Octets that exceed the limit are
  /// accepted when nothing else waits.
  @discardableResult
  package func put(_ octets: some Collection<UInt8>) -> Bool {
    monitor.withLock { state in
      guard state.phase == .unused || state.phase == .running else { return false }
      let room = state.dropped == 0 ? limit : limit / 2
      guard state.pending == 0 || state.pending + octets.count <= room else {
        state.dropped += 1
        return false
      }
      announceDrops(&state)
      state.waiting += octets
      if state.phase == .unused { start(&state) }
      return true
    }
  }

  /// Waits until everything is written, for at most `time`, but not for a full device; true when everything is written,
  /// or the queue has ended.
  package func drain(within time: Duration) -> Bool {
    var isDrained = false
    _ = monitor.wait(within: time) { state in
      switch state.phase {
      case .unused, .ended: isDrained = true
      case .running, .finishing, .abandoned: isDrained = state.pending == 0 && state.dropped == 0
      }
      return isDrained || state.isDeviceFull
    }
    return isDrained
  }

  /// Waits until everything is written, for at most `time`, and ends the queue; the rest is dropped. True when
  /// everything was written. Octets put afterwards are dropped.
  @discardableResult
  package func finish(within time: Duration) -> Bool {
    monitor.withLock { state in
      if state.phase == .running { state.phase = .finishing }
      if state.phase == .unused { end(&state, nil) }
    }
    let hasEnded = monitor.wait(within: time) { state in
      if case .ended = state.phase { true } else { false }
    }
    guard !hasEnded else { return failure == nil }
    monitor.withLock { state in
      if state.phase == .finishing { state.phase = .abandoned }
    }
    return false
  }

  /// The same without waiting: the queue's thread writes the rest, for at most `time`, and ends the queue.
  package func finishAlone(within time: Duration) {
    monitor.withLock { state in
      if state.phase == .running {
        state.phase = .finishing
        state.deadline = .now + time
      }
      if state.phase == .unused { end(&state, nil) }
    }
  }

  /// The system error that ended the queue.
  package var failure: Errno? {
    monitor.withLock { state in
      if case .ended(let error) = state.phase { error } else { nil }
    }
  }
  /// The number of octets written: grows while the output is being read.
  package var written: UInt64 { monitor.withLock { $0.written } }
  /// Everything has been written or dropped.
  package var isDrained: Bool { drain(within: .zero) }

  // MARK: The thread

  private func start(_ state: inout State) {
    do throws(Errno) {
      try detachThread { self.run() }
      state.phase = .running
    } catch { end(&state, error) }
  }

  private func run() {
    // No signal handler runs on this thread, and SIGPIPE, which is sent to the writing thread, stays pending.
    var signals = sigset_t()
    unsafe sigfillset(&signals)
    unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
    do throws(Errno) {
      while let octets = take() { try write(octets) }
      monitor.withLock { end(&$0, nil) }
    } catch {
      // Before the end: who waits for that then knows the cause.
      failed?(error)
      monitor.withLock { end(&$0, error) }
    }
  }

  /// Everything that waits, when there is something; nil: the queue has been finished or abandoned.
  private func take() -> [UInt8]? {
    enum Step { case write([UInt8]), wait, end }
    while true {
      let step = monitor.withLock { state -> Step in
        if state.phase == .abandoned { return .end }
        announceDrops(&state)
        if state.waiting.isEmpty { return state.phase == .finishing ? .end : .wait }
        defer { state.waiting = [] }
        state.taken = state.waiting.count
        return .write(state.waiting)
      }
      switch step {
      case .write(let octets): return octets
      case .wait: _ = monitor.wait(within: nil) { !$0.waiting.isEmpty || $0.phase != .running }
      case .end: return nil
      }
    }
  }

  private func isAbandoned(_ state: inout State) -> Bool {
    if state.phase == .finishing, let deadline = state.deadline, deadline <= .now { state.phase = .abandoned }
    return state.phase == .abandoned
  }
  private func announceDrops(_ state: inout State) {
    guard state.dropped > 0 else { return }
    if let notice { state.waiting += notice(state.dropped).utf8 }
    state.dropped = 0
  }

  private func end(_ state: inout State, _ error: Errno?) {
    state.phase = .ended(error)
    state.waiting = []
    state.taken = 0
    state.dropped = 0
    if closesDescriptor { try? descriptor.close() }
  }

  /// What a pipe accepts without blocking once it has room: PIPE_BUF, pipe(7).
  private static let piece = 4096
  /// How often the thread checks whether it has been abandoned while the output is blocked.
  private static let patience: CInt = 200
  /// How long the thread waits before it repeats a write to a full device.
  private static let pause = Duration.seconds(1)

  /// Returns when everything is written, or the queue was abandoned.
  private func write(_ octets: [UInt8]) throws(Errno) {
    var done = 0
    while done < octets.count {
      var output = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
      let ready: CInt
      do throws(Errno) { ready = try Errno.check { unsafe poll(&output, 1, Self.patience) } } catch {
        if error != .interrupted { throw error }
        ready = 0
      }
      if monitor.withLock({ isAbandoned(&$0) }) { return }
      if ready == 0 { continue }
      do throws(Errno) {
        let count = try Errno.typed {
          try unsafe octets.withUnsafeBytes { bytes in
            try unsafe descriptor.write(.init(rebasing: bytes[done..<min(done + Self.piece, bytes.count)]))
          }
        }
        if count == 0 { throw .ioError }  // it took nothing of something
        done += count
        monitor.withLock { state in
          state.taken -= count
          state.written += UInt64(count)
          state.isDeviceFull = false
        }
      } catch {
        switch error {
        case .resourceTemporarilyUnavailable: usleep(10_000)  // ready, and yet it took nothing: no loop without a pause
        case .noSpace where waitsForRoom, .diskQuotaExceeded where waitsForRoom:
          monitor.withLock { $0.isDeviceFull = true }
          _ = monitor.wait(within: Self.pause) { $0.phase == .abandoned }
        default: throw error
        }
      }
    }
  }
}

/// A state under a lock, whose changes threads can await.
@safe private final class Monitor<State>: @unchecked Sendable {
  // Sendable because `state` is accessed under the lock only.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var state: State

  init(_ state: State) {
    self.state = state
    unsafe pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    unsafe pthread_condattr_init(&attributes)
    unsafe pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    unsafe pthread_cond_init(changed, &attributes)
    unsafe pthread_condattr_destroy(&attributes)
  }
  deinit {
    unsafe pthread_cond_destroy(changed)
    unsafe pthread_mutex_destroy(mutex)
    unsafe changed.deallocate()
    unsafe mutex.deallocate()
  }

  /// Lends the state, and wakes the threads that await a change.
  func withLock<Result>(_ body: (inout State) -> Result) -> Result {
    unsafe pthread_mutex_lock(mutex)
    defer {
      unsafe pthread_cond_broadcast(changed)
      unsafe pthread_mutex_unlock(mutex)
    }
    return body(&state)
  }
  /// Sleeps until `condition` holds, for at most `time`, or without limit if that is nil. False if it does not hold.
  func wait(within time: Duration?, until condition: (State) -> Bool) -> Bool {
    var end = timespec()
    if let time {
      unsafe clock_gettime(CLOCK_MONOTONIC, &end)
      let (seconds, attoseconds) = time.components
      let nanoseconds = end.tv_nsec + Int(attoseconds / 1_000_000_000)
      end.tv_sec += Int(seconds) + nanoseconds / 1_000_000_000
      end.tv_nsec = nanoseconds % 1_000_000_000
    }
    unsafe pthread_mutex_lock(mutex)
    defer { unsafe pthread_mutex_unlock(mutex) }
    while !condition(state) {
      let code =
        unsafe time == nil
        ? pthread_cond_wait(changed, mutex) : pthread_cond_timedwait(changed, mutex, &end)
      if code == ETIMEDOUT { return condition(state) }
    }
    return true
  }
}
