import BindruneWire

/// Instants by name, the earliest at hand.
struct Timers<Name: Hashable & Sendable>: Sendable {
  private var due: [Name: (instant: Instant, order: UInt64)] = [:]
  private var order: UInt64 = 0
  /// Of those that have been set; nil: none is.
  private(set) var earliest: Instant?

  var isEmpty: Bool { due.isEmpty }

  /// Instead of an earlier instant of that name.
  mutating func set(_ name: Name, at instant: Instant) {
    cancel(name)
    order += 1
    due[name] = (instant, order)
    earliest = .earliest(earliest, instant)
  }
  mutating func cancel(_ name: Name) {
    guard let removed = due.removeValue(forKey: name), removed.instant == earliest else { return }
    earliest = due.values.lazy.map(\.instant).min()
  }
  mutating func cancelAll(where isOver: (Name) -> Bool) {
    due = due.filter { !isOver($0.key) }
    earliest = due.values.lazy.map(\.instant).min()
  }
  /// The next of those whose instant has come, by instant and then in the order in which they were set; it is set no more.
  mutating func popDue(now: Instant) -> Name? {
    guard let earliest, earliest <= now else { return nil }
    let next = due.min { ($0.value.instant, $0.value.order) < ($1.value.instant, $1.value.order) }?.key
    if let next { cancel(next) }
    return next
  }
}
