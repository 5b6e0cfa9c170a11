import CoreBluetooth
import NIOCore
import TestSupport
import Testing

/// A client's events, in order: tests wait for them.
final class Journal: @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  struct Entry: @unchecked Sendable {
    let text: String
    let value: Any?
  }
  private struct Waiter {
    let id: Int
    let text: String
    let continuation: CheckedContinuation<Entry?, Never>
  }
  private let lock = NSLock()
  private var entries: [Entry] = []
  /// How many of the entries have been taken.
  private var taken = 0
  private var waiters: [Waiter] = []
  private var lastID = 0

  var texts: [String] { lock.withLock { entries.map(\.text) } }

  func note(_ text: String, _ value: Any? = nil) {
    let woken = lock.withLock { () -> [(Waiter, Entry)] in
      entries.append(Entry(text: text, value: value))
      return waiters.compactMap { waiter in take(waiter.text).map { (waiter, $0) } }
    }
    for (waiter, entry) in woken where end(waiter.id) { waiter.continuation.resume(returning: entry) }
  }
  /// The next entry that begins with `text`, after the last one taken.
  private func take(_ text: String) -> Entry? {
    guard let index = entries[taken...].firstIndex(where: { $0.text.hasPrefix(text) }) else { return nil }
    taken = index + 1
    return entries[index]
  }
  private func end(_ id: Int) -> Bool {
    lock.withLock {
      let count = waiters.count
      waiters.removeAll { $0.id == id }
      return waiters.count < count
    }
  }
  /// Waits for it, at most two minutes of the test's own time.
  @discardableResult func wait(
    for text: String, sourceLocation: SourceLocation = #_sourceLocation
  ) async -> Entry? {
    let entry = await withCheckedContinuation { (continuation: CheckedContinuation<Entry?, Never>) in
      let id = lock.withLock { () -> Int? in
        if let entry = take(text) {
          continuation.resume(returning: entry)
          return nil
        }
        lastID += 1
        waiters.append(Waiter(id: lastID, text: text, continuation: continuation))
        return lastID
      }
      guard let id else { return }
      VirtualLoop.current.scheduleTask(in: .minutes(2)) {
        if self.end(id) { continuation.resume(returning: nil) }
      }
    }
    if entry == nil {
      Issue.record("\(text.debugDescription) did not come; there was \(texts)", sourceLocation: sourceLocation)
    }
    return entry
  }
}
