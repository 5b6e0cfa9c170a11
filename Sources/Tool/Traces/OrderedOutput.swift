import Glibc
import Synchronization

/// The output of files that are read side by side: their blocks leave file by file, in the order of the files, as if
/// they had been read one after the other.
///
/// The first file that has not ended writes through; blocks of later ones wait here. Memory is bounded: beyond
/// `mostWaiting` octets a later file's reader sleeps until it is its turn.
final class OrderedOutput: Sendable {
  private struct State {
    /// The file that writes through.
    var turn = 0
    var waiting: [Int: [[UInt8]]] = [:]
    var waitingCount = 0
    /// Later files that have ended.
    var ended: Set<Int> = []

    mutating func take(_ file: Int) -> [[UInt8]] {
      let blocks = waiting.removeValue(forKey: file) ?? []
      waitingCount -= blocks.reduce(0) { $0 + $1.count }
      return blocks
    }
  }
  private enum Action { case write([[UInt8]]), wait, none }
  private let state = Mutex(State())
  private let mostWaiting: Int
  private let put: @Sendable ([UInt8]) -> Void

  /// `put` receives the blocks; only one thread at a time calls it.
  init(mostWaiting: Int = 64 << 20, put: @escaping @Sendable ([UInt8]) -> Void) {
    self.mostWaiting = mostWaiting
    self.put = put
  }

  /// Appends a block to the output of a file. Only the thread that reads the file calls it.
  func write(_ block: [UInt8], of file: Int) {
    while Interruption.cause == nil {
      let action = state.withLock { state -> Action in
        if state.turn == file { return .write(state.take(file)) }
        guard state.waitingCount + block.count <= mostWaiting else { return .wait }
        state.waiting[file, default: []].append(block)
        state.waitingCount += block.count
        return .none
      }
      switch action {
      case .write(let earlier):
        for block in earlier { put(block) }
        return put(block)
      case .wait: usleep(2_000)
      case .none: return
      }
    }
  }

  /// The file has no more blocks. The reader of the file whose turn it is also writes what waits of the files behind it
  /// that have ended.
  func end(_ file: Int) {
    var next = state.withLock { state -> [[UInt8]]? in
      state.ended.insert(file)
      return state.turn == file ? state.take(file) : nil
    }
    while let blocks = next {
      for block in blocks { put(block) }
      next = state.withLock { state in
        state.ended.remove(state.turn)
        state.turn += 1
        return state.ended.contains(state.turn) ? state.take(state.turn) : nil
      }
    }
  }
}
