import Glibc
import SystemPackage

/// Writes to a file descriptor on a thread of its own, so that an output that nobody reads delays no caller.
///
/// The octets that wait are bounded. What is put while there is no room is dropped and counted until half of the room is free
/// again, so that a slow reader sees one gap instead of many; `notice` writes the gap's line, where the gap is.
///
/// The descriptor may be a file, a pipe, a socket or a terminal, blocking or not; it is used by nobody else meanwhile. An error
/// of the system ends the queue: `failure` has it, and what is put afterwards is dropped. A full device need not be
/// the end: with `waitsForRoom` it is an output that nobody reads, and the queue tries again every second. Nothing here
/// raises SIGPIPE.
///
///     let queue = OutputQueue(to: .standardError, limit: 1 << 20) { "\($0) lines were dropped\n" }
///     queue.put("a line\n".utf8)
///     queue.finish(within: .seconds(2))
package final class OutputQueue: @unchecked Sendable {
  // Sendable because everything that changes is in the monitor.
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
    /// Of what the thread has taken, the octets that it has not written yet.
    var taken = 0
    var written: UInt64 = 0
    /// What was put and dropped since there was room last.
    var dropped = 0
    /// The device had no room at the last try.
    var isDeviceFull = false
    var pending: Int { waiting.count + taken }
  }
  private enum Phase: Equatable {
    /// There is no thread before there is something to write.
    case unused
    case running
    /// The thread ends when all is written.
    case finishing
    /// The thread ends without writing what is left.
    case abandoned
    /// There is no thread any more. nil, or the error that ended it.
    case ended(Errno?)
  }

  /// `limit`: the octets that may wait. `closesDescriptor`: it is closed when the queue has ended. `waitsForRoom`: ENOSPC and
  /// EDQUOT do not end the queue. `notice`: the text that stands where something was dropped. `failed` is called once, on the
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

  /// Puts `octets` behind what waits, all of them or none. False: they were dropped. Never blocks. What is longer than the
  /// limit is taken when nothing else waits.
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

  /// Waits until nothing is left to write, for `time` at most, and not for a device that is full; true when nothing is left,
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

  /// Waits until all is written, for `time` at most, and ends the queue; what is left then is dropped. True when all was
  /// written. What is put afterwards is dropped.
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

  /// The system's error, of a queue that one has ended.
  package var failure: Errno? {
    monitor.withLock { state in
      if case .ended(let error) = state.phase { error } else { nil }
    }
  }
  /// The octets that have been written: grows while somebody reads.
  package var written: UInt64 { monitor.withLock { $0.written } }
  /// All that was put has been written, or dropped.
  package var isDrained: Bool { drain(within: .zero) }

  // MARK: The thread

  private func start(_ state: inout State) {
    let argument = unsafe Unmanaged.passRetained(self)
    var thread = pthread_t()
    let code = unsafe pthread_create(
      &thread, nil,
      { argument in
        guard let argument = unsafe argument else { return nil }
        unsafe Unmanaged<OutputQueue>.fromOpaque(argument).takeRetainedValue().run()
        return nil
      }, argument.toOpaque())
    if code == 0 {
      pthread_detach(thread)
      state.phase = .running
    } else {
      unsafe argument.release()
      end(&state, Errno(rawValue: code))
    }
  }

  private func run() {
    // No handler of the program runs on this thread, and SIGPIPE stays pending: it is sent to the thread that writes.
    var signals = sigset_t()
    unsafe sigfillset(&signals)
    unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
    do throws(Errno) {
      while let octets = take() { try write(octets) }
      monitor.withLock { end(&$0, nil) }
    } catch {
      monitor.withLock { end(&$0, error) }
      failed?(error)
    }
  }

  /// All that waits, when there is something; nil: the queue has been finished or abandoned.
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

  /// What a pipe takes without blocking once it has room: PIPE_BUF, pipe(7).
  private static let piece = 4096
  /// How often the thread looks whether it has been abandoned while nobody reads.
  private static let patience: CInt = 200
  /// How long the thread leaves a full device alone before it tries again.
  private static let pause = Duration.seconds(1)

  /// Returns when all is written, or the queue was abandoned.
  private func write(_ octets: [UInt8]) throws(Errno) {
    var done = 0
    while done < octets.count {
      var output = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
      let ready: CInt
      do throws(Errno) { ready = try Errno.check { unsafe poll(&output, 1, Self.patience) } } catch {
        if error != .interrupted { throw error }
        ready = 0
      }
      if monitor.withLock({ $0.phase == .abandoned }) { return }
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

/// A state under a lock, for whose changes threads can wait.
@safe private final class Monitor<State>: @unchecked Sendable {
  // Sendable because `state` is used under the lock only.
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

  /// Lends the state, and wakes those that wait for a change of it.
  func withLock<Result>(_ body: (inout State) -> Result) -> Result {
    unsafe pthread_mutex_lock(mutex)
    defer {
      unsafe pthread_cond_broadcast(changed)
      unsafe pthread_mutex_unlock(mutex)
    }
    return body(&state)
  }
  /// Sleeps until `condition` holds, for `time` at most, without a bound if that is nil. False: it does not hold.
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
