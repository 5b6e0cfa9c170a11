import Glibc
import Synchronization

/// Traces that are read side by side, for verbs that accept any number of files.
enum TraceBatch {
  /// What results of files that wait for a slower file before them may weigh; beyond it, no further file is begun.
  private static let mostWaiting = 100_000

  /// Runs `work` for each file, on all processors, and passes the results to `receive` in the order of the files, each
  /// as soon as possible. `weight` is the number of values that a waiting result holds. Throws if interrupted.
  static func read<Result: Sendable>(
    _ files: [String], weight: (Result) -> Int, _ work: @escaping @Sendable (String, TraceProgress) -> Result,
    receive: (Result) throws -> Void
  ) async throws {
    let cores = max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))
    let progress = TraceProgress(files.count)
    defer { progress.end() }
    try await withThrowingTaskGroup(of: (Int, Result).self) { group in
      var begun = 0, running = 0, printed = 0, held = 0, waiting: [Int: Result] = [:]
      while printed < files.count {
        while begun < files.count, running < cores, running == 0 || held < Self.mostWaiting {
          let (index, path) = (begun, files[begun])
          // A blocking read occupies a thread of the pool, which has one for each core.
          group.addTask { (index, work(path, progress)) }
          begun += 1
          running += 1
        }
        guard let (index, result) = try await group.next() else { break }
        running -= 1
        waiting[index] = result
        held += weight(result)
        // An interrupted file was not read to its end.
        if Interruption.cause != nil { throw CancellationError() }
        while let result = waiting.removeValue(forKey: printed) {
          held -= weight(result)
          try receive(result)
          printed += 1
        }
      }
    }
  }
}

/// The status line while files are read, from the second second on.
final class TraceProgress: Sendable {
  private struct State {
    var records = 0, files = 0
    var next = ContinuousClock.now + .seconds(1)
    var isOver = false
  }
  private let state = Mutex(State())
  private let fileCount: Int
  init(_ fileCount: Int) { self.fileCount = fileCount }

  func add(_ records: Int, files: Int = 0) {
    state.withLock { state in
      state.records += records
      state.files += files
      let now = ContinuousClock.now
      guard now >= state.next, !state.isOver else { return }
      state.next = now + .milliseconds(200)
      let place = fileCount > 1 ? "\(grouped(state.files)) of \(grouped(fileCount)) files, " : ""
      Console.status(place + counted(state.records, "record"))
    }
  }
  func end() {
    state.withLock { $0.isOver = true }
    Console.status(nil)
  }
}
