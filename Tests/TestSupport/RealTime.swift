// A static build of the programs, as Tests/Kernel/run makes it, has no Testing, and builds this module too.
#if canImport(Testing)
  import Synchronization
  import Testing

  /// For suites whose tests wait for a radio, a process or a socket in real time: only a few of them run at once. A test run
  /// begins all its tests together; some hundred hosts on two cores, beside tests that only calculate, would run into the
  /// stack's own time-outs, and prove nothing by that.
  ///
  /// A time limit counts the waiting too: give the suite minutes.
  public struct RealTime: TestTrait, SuiteTrait, TestScoping {
    public let isRecursive = true

    public func provideScope(
      for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
      await Self.enter()
      defer { Self.leave() }
      try await function()
    }

    private struct Places {
      var free = 10
      var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private static let places = Mutex(Places())

    private static func enter() async {
      await withCheckedContinuation { continuation in
        let isFree = places.withLock { places in
          guard places.free > 0 else {
            places.waiting.append(continuation)
            return false
          }
          places.free -= 1
          return true
        }
        if isFree { continuation.resume() }
      }
    }
    private static func leave() {
      let next = places.withLock { places in
        guard places.waiting.isEmpty else { return places.waiting.removeFirst() as CheckedContinuation<Void, Never>? }
        places.free += 1
        return nil
      }
      next?.resume()
    }
  }

  extension Trait where Self == RealTime {
    public static var realTime: Self { Self() }
  }
#endif
