// A static build of the programs, as Tests/Kernel/run makes it, has no Testing, and builds this module too.
#if canImport(Testing)
  import Dispatch
  import NIOCore
  import NIOPosix
  import Synchronization
  import Testing

  /// For suites whose tests need sockets, processes or threads, and so the machine's time: only a few of them run at
  /// once, on their own threads. A test run starts all its tests together, and tests that only calculate occupy Swift's
  /// threads for tasks, on a busy machine for longer than the stack's time-outs.
  ///
  /// A time limit also counts the wait for a place. Give the suite `.hang`, a limit that only a hanging test reaches.
  public struct RealTime: TestTrait, SuiteTrait, TestScoping {
    public let isRecursive = true
    private static let places = Places(10)
    private static let loops = MultiThreadedEventLoopGroup(numberOfThreads: 4)

    /// For hosts and controllers of such tests. On the process's own loops other tests calculate, and would delay an
    /// answer for longer than the stack waits.
    public static func nextLoop() -> any EventLoop { loops.next() }

    public func provideScope(
      for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
      try await Self.places.withPlace {
        try await withTaskExecutorPreference(TestThreads.shared) { try await function() }
      }
    }
  }
  extension Trait where Self == RealTime {
    public static var realTime: Self { Self() }
  }
  extension Trait where Self == TimeLimitTrait {
    /// Longer than a whole run takes beside 12 busy processes on two processors.
    public static var hang: Self { .timeLimit(.minutes(30)) }
  }
  /// The bound of a wait for an event. A run starts all tests at once, so a shorter one measures the machine.
  public enum Hang {
    /// A little less than `.hang`, so that the wait says what did not come.
    public static var seconds: Double { 25 * 60 }
  }

  /// As many threads as there are jobs.
  private final class TestThreads: TaskExecutor {
    static let shared = TestThreads()
    private let queue = DispatchQueue(label: "tests in real time", attributes: .concurrent)
    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { unsafe job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }

  /// Admits a few at once, in the order of arrival.
  final class Places: Sendable {
    private struct State {
      var free: Int
      var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private let state: Mutex<State>
    init(_ count: Int) { state = Mutex(State(free: count)) }

    func withPlace(_ body: () async throws -> Void) async throws {
      await enter()
      defer { leave() }
      try await body()
    }
    private func enter() async {
      await withCheckedContinuation { continuation in
        let isFree = state.withLock { state in
          guard state.free > 0 else {
            state.waiting.append(continuation)
            return false
          }
          state.free -= 1
          return true
        }
        if isFree { continuation.resume() }
      }
    }
    private func leave() {
      let next = state.withLock { state in
        guard state.waiting.isEmpty else { return state.waiting.removeFirst() as CheckedContinuation<Void, Never>? }
        state.free += 1
        return nil
      }
      next?.resume()
    }
  }
#endif
