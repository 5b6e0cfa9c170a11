import Bindrune
import Glibc
import Synchronization

/// `ok  name` or `FAIL name: got … want …`, a line each, as the runner counts them.
final class Checks: Sendable {
  private let failures = Mutex(0)
  var failed: Bool { failures.withLock { $0 > 0 } }

  func callAsFunction<Value: Equatable>(_ name: String, _ got: Value, _ want: Value) {
    if got == want {
      print("ok  \(name)")
    } else {
      failures.withLock { $0 += 1 }
      print("FAIL \(name): got \(text(got)) want \(text(want))")
    }
    fflush(nil)  // stdout is a pipe: a line must not wait for the next ones
  }
  func callAsFunction(_ name: String, _ holds: Bool) { self(name, holds, true) }

  /// Checks that `body` throws the expected `BluetoothError`.
  func error<Value: Equatable & Sendable>(
    _ name: String, _ part: (BluetoothError) -> Value, _ want: Value, _ body: () async throws(BluetoothError) -> Void
  ) async {
    do throws(BluetoothError) {
      try await body()
      self(name, "no error", "an error")
    } catch {
      self(name, part(error), want)
    }
  }

  private func text(_ value: some Equatable) -> String {
    let text = "\(value)"
    return text.count <= 300 ? text : text.prefix(300) + "… (\(text.count))"
  }
}

/// The work exceeded its time limit.
struct TookTooLong: Error, CustomStringConvertible {
  var limit: Duration
  var description: String { "not done within \(limit)" }
}

/// Runs `body` with a time limit, after which its task is cancelled and `TookTooLong` thrown.
func within<Result: Sendable>(
  _ limit: Duration, _ body: @escaping @Sendable () async throws -> Result
) async throws -> Result {
  try await withThrowingTaskGroup(of: Result.self) { group in
    group.addTask { try await body() }
    group.addTask {
      try await Task.sleep(for: limit)
      throw TookTooLong(limit: limit)
    }
    defer { group.cancelAll() }
    guard let result = try await group.next() else { throw TookTooLong(limit: limit) }
    return result
  }
}
