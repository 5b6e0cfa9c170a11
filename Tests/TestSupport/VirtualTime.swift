// A static build of the programs, as Tests/Kernel/run makes it, has no Testing, and builds this module too.
#if canImport(Testing)
  import Foundation
  import NIOCore
  import NIOPosix
  import Synchronization
  import Testing

  /// An event loop with its own clock, for tests of what runs on event loops: hosts, radios, adapters.
  ///
  /// Tasks run at once, on a thread. The clock stands still while the loop or the test has something to do, and then
  /// advances to the next timer. So its pace depends on the test's progress and not on the machine's: a test that gets
  /// no processor for a minute loses no time. See Decision 0025.
  ///
  /// Whether the test has something to do is an estimate, because a task cannot be asked whether it waits. The clock
  /// advances by at most `step`, and before each step it lets the ready tasks and blocks run (`round`). A time-out of 2
  /// s thus needs 2,000 turns of every queue that the test uses. After each `stretch` the clock waits until every
  /// thread that wants a processor has had one: a preempted task loses at most that much time.
  public final class VirtualLoop: NIOSerialEventLoopExecutor, Sendable {
    /// The test's loop, inside a suite or test with the trait `virtualTime`.
    @TaskLocal fileprivate static var loopOfTest: VirtualLoop?
    public static var current: VirtualLoop {
      guard let loop = loopOfTest else { preconditionFailure("the suite needs the trait .virtualTime") }
      return loop
    }

    /// The clock's longest step.
    private static let step = TimeAmount.milliseconds(1)
    /// The longest time without a look at the threads of the process.
    private static let stretch = TimeAmount.milliseconds(100)
    private static let threads = MultiThreadedEventLoopGroup(numberOfThreads: 2)

    private struct Timer: Sendable {
      let id: Int
      let deadline: NIODeadline
      let run: @Sendable () -> Void
      let cancel: @Sendable () -> Void
    }
    private struct State: ~Copyable {
      var now = NIODeadline.uptimeNanoseconds(1_000_000_000)
      /// Until then the clock goes from timer to timer.
      var leapEnd = NIODeadline.uptimeNanoseconds(0)
      /// Tasks that have not ended.
      var pending = 0
      /// By deadline; for equal deadlines, in the order of scheduling.
      var timers: [Timer] = []
      var lastID = 0
      var queues: [DispatchQueue] = []
      var waits: [SourceLocation] = []
      /// The clock, while there is no reason to advance it.
      var parked: CheckedContinuation<Void, Never>?
      var isStopped = false

      var isIdle: Bool { pending == 0 && timers.isEmpty }
      var isDue: Bool { pending == 0 && timers.first.map { $0.deadline <= now } == true }
    }
    private let state = Mutex(State())
    private let thread: any EventLoop = VirtualLoop.threads.next()

    /// A clock that does not advance yet.
    public init() {}
    deinit {
      let timers = state.withLock { state in
        defer { state.timers = [] }
        return state.timers
      }
      for timer in timers { timer.cancel() }
    }

    /// From now on the clock also waits for the blocks of `queue`, for instance those of a delegate.
    public func follow(_ queue: DispatchQueue) { state.withLock { $0.queues.append(queue) } }

    // MARK: EventLoop

    public var now: NIODeadline { state.withLock { $0.now } }
    public var inEventLoop: Bool { thread.inEventLoop }

    public func execute(_ task: @escaping @Sendable () -> Void) {
      change { $0.pending += 1 }
      thread.execute {
        task()
        self.state.withLock { $0.pending -= 1 }
      }
    }
    @discardableResult public func scheduleTask<Result>(
      deadline: NIODeadline, _ task: @escaping @Sendable () throws -> Result
    ) -> Scheduled<Result> {
      // A promise of the thread: one of this loop would retain the loop, which retains the timer.
      let promise = thread.makePromise(of: Result.self)
      let id = change { state in
        state.lastID += 1
        let timer = Timer(
          id: state.lastID, deadline: deadline,
          run: { promise.assumeIsolated().completeWith(Swift.Result { try task() }) },
          cancel: { promise.fail(EventLoopError.cancelled) })
        let place = state.timers.lastIndex { $0.deadline <= deadline }
        state.timers.insert(timer, at: place.map { $0 + 1 } ?? 0)
        return timer.id
      }
      return Scheduled(promise: promise) { [weak self] in
        // Released outside the lock: this may release other objects.
        let timer = self?.state.withLock { state in
          state.timers.firstIndex { $0.id == id }.map { state.timers.remove(at: $0) }
        }
        withExtendedLifetime(timer) {}
      }
    }
    @discardableResult public func scheduleTask<Result>(
      in time: TimeAmount, _ task: @escaping @Sendable () throws -> Result
    ) -> Scheduled<Result> {
      scheduleTask(deadline: now + time, task)
    }
    public func shutdownGracefully(queue: DispatchQueue, _ callback: @escaping @Sendable ((any Error)?) -> Void) {
      queue.async { callback(nil) }
    }

    private func change<Result>(_ body: (inout State) -> Result) -> Result {
      let (result, parked) = state.withLock { state in
        let result = body(&state)
        guard !state.isIdle || state.isStopped else { return (result, nil as CheckedContinuation<Void, Never>?) }
        return (result, state.parked.take())
      }
      parked?.resume()
      return result
    }

    // MARK: The clock

    /// Runs `test` in the caller's task, while the clock advances.
    func run(_ test: () async throws -> Void) async throws {
      // Cancelled only here, while the task waits for `clock`.
      nonisolated(unsafe) let task = unsafe withUnsafeCurrentTask { unsafe $0 }
      let clock = Task {
        await moveClock {
          let text: Comment = "five minutes have passed on the test's clock"
          if let wait = self.state.withLock({ $0.waits.last }) {
            Issue.record(text, sourceLocation: wait)
          } else {
            Issue.record(text)
          }
          unsafe task?.cancel()
        }
      }
      let result: Result<Void, any Error>
      do {
        result = .success(try await Self.$loopOfTest.withValue(self) { try await test() })
      } catch {
        result = .failure(error)
      }
      change { $0.isStopped = true }
      await clock.value
      try result.get()
    }
    /// Names the place in the test if the time runs out during `body`.
    fileprivate func waiting<Result>(
      at location: SourceLocation, _ body: () async throws -> Result
    ) async throws -> Result {
      state.withLock { $0.waits.append(location) }
      defer { state.withLock { state in state.waits.lastIndex(of: location).map { _ = state.waits.remove(at: $0) } } }
      return try await body()
    }
    /// Runs until `isStopped`; calls `timeOut` after five minutes, which only a hanging test needs.
    private func moveClock(_ timeOut: () -> Void) async {
      var end = now + .minutes(5)
      var isOver = false, nextLook = now
      while !state.withLock({ $0.isStopped }) {
        await park()
        if now >= nextLook {
          await letThreadsRun()
          nextLook = now + Self.stretch
        }
        await round()
        await advance()
        end = max(end, state.withLock { $0.leapEnd } + .minutes(5))
        if !isOver, now >= end {
          isOver = true
          timeOut()
        }
      }
    }
    /// Lets hours or days pass in which only timers do anything: the clock goes from one to the next without looking
    /// whether a thread needs it to wait.
    public func pass(_ time: TimeAmount) async throws {
      state.withLock { $0.leapEnd = $0.now + time }
      try await scheduleTask(in: time) {}.futureResult.get()
    }
    private func park() async {
      await withCheckedContinuation { continuation in
        let isParked = state.withLock { state in
          guard state.isIdle, !state.isStopped else { return false }
          state.parked = continuation
          return true
        }
        if !isParked { continuation.resume() }
      }
    }
    /// Waits until every ready task, and every block in the followed queues, has had its turn.
    private func round() async {
      // To the end of the queue of Swift's tasks: on Linux there is one, as tasks have the same priority.
      await Task.yield()
      for queue in state.withLock({ $0.queues }) {
        await withCheckedContinuation { next in queue.async { next.resume() } }
      }
    }
    /// Waits until every thread that is runnable now has used a processor, or has nothing left to do.
    private func letThreadsRun() async {
      var threads = RunnableThreads()
      while !threads.isEmpty {
        // Yields the processor to other threads, and this thread of Swift's pool to other tasks.
        sched_yield()
        await Task.yield()
        threads.removeThoseThatRan()
      }
    }
    /// Advances the clock by one step, or less to the next timer, and fires the due timers; not while there is
    /// something to do.
    private func advance() async {
      let isDue = state.withLock { state in
        guard state.pending == 0 else { return false }
        let next = max(state.now + Self.step, state.leapEnd)
        state.now = max(state.now, min(next, state.timers.first?.deadline ?? next))
        return state.isDue
      }
      guard isDue else { return }
      await withCheckedContinuation { next in
        thread.execute {
          while let timer = self.state.withLock({ $0.isDue ? $0.timers.removeFirst() : nil }) { timer.run() }
          next.resume()
        }
      }
    }
  }

  /// Returns the result of `body`. In virtual time the test's clock is the limit, and reaching it names this place; in
  /// real time the limit is ten minutes, which only a hang takes.
  public func within<Result: Sendable>(
    at location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable () async throws -> Result
  ) async throws -> Result {
    if let loop = VirtualLoop.loopOfTest { return try await loop.waiting(at: location, body) }
    return try await withThrowingTaskGroup(of: Result?.self) { group in
      group.addTask { try await body() }
      group.addTask {
        try await Task.sleep(for: .seconds(600))
        return nil
      }
      defer { group.cancelAll() }
      guard let result = try await group.next(), let result else {
        Issue.record("not within ten minutes", sourceLocation: location)
        throw CancellationError()
      }
      return result
    }
  }
  /// Waits until `condition` holds: for what nothing reports.
  ///
  /// In real time an event loop gets to its sockets only when no task waits, so a test that asks again at once can keep
  /// it from them for ever.
  public func eventually(
    at location: SourceLocation = #_sourceLocation, _ condition: @escaping @Sendable () async throws -> Bool
  ) async throws {
    try await within(at: location) {
      while try await !condition() {
        try Task.checkCancellation()
        if VirtualLoop.loopOfTest == nil { try await Task.sleep(for: .milliseconds(1)) } else { await Task.yield() }
      }
    }
  }

  /// Each test of the suite has its own loop, `VirtualLoop.current`, and only the clock's limit.
  public struct VirtualTime: TestTrait, SuiteTrait, TestScoping {
    public let isRecursive = true
    private static let places = Places(6)

    public func provideScope(
      for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
      try await Self.places.withPlace { try await VirtualLoop().run(function) }
    }
  }
  extension Trait where Self == VirtualTime {
    public static var virtualTime: Self { Self() }
  }
#endif
