import NIOCore
import Synchronization

/// Traces that are read side by side, for verbs that accept any number of files.
enum TraceBatch {
  /// What results of files that wait for a slower file before them may weigh; beyond it, no further file is begun.
  private static let mostWaiting = 100_000

  /// Runs `work` for each file and its index, on all processors, and passes the results to `receive` in the order of
  /// the files, each as soon as possible. `work` returns nil if a file of a folder is not a trace. `weight` is the
  /// number of values that a waiting result holds. Throws if interrupted, or if there is no trace at all.
  static func read<Result: Sendable>(
    _ inputs: TraceInputs, weight: (Result) -> Int,
    _ work: @escaping @Sendable (TraceInput, Int, TraceProgress) -> Result?, receive: (Result) throws -> Void
  ) async throws {
    let files = inputs.files, cores = System.coreCount
    let progress = TraceProgress(files.count)
    defer { progress.end() }
    var skipped = TraceInputs.Examples(), received = 0
    try await withThrowingTaskGroup(of: (Int, Result?).self) { group in
      var begun = 0, running = 0, printed = 0, held = 0, waiting: [Int: Result?] = [:]
      while printed < files.count {
        while begun < files.count, running < cores, running == 0 || held < Self.mostWaiting {
          let (index, input) = (begun, files[begun])
          // A blocking read occupies a thread of the pool, which has one for each core.
          group.addTask { (index, work(input, index, progress)) }
          begun += 1
          running += 1
        }
        guard let (index, result) = try await group.next() else { break }
        running -= 1
        waiting[index] = .some(result)
        held += result.map(weight) ?? 0
        // An interrupted file was not read to its end.
        if Interruption.cause != nil { throw CancellationError() }
        while let result = waiting.removeValue(forKey: printed) {
          if let result {
            held -= weight(result)
            try receive(result)
            received += 1
          } else {
            skipped.add(files[printed].path)
          }
          printed += 1
        }
      }
    }
    progress.end()
    try inputs.report(skipped: skipped, read: received)
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
