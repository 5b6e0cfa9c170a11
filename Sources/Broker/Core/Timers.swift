import BindruneWire

/// Instants by name, with quick access to the earliest.
struct Timers<Name: Hashable & Sendable>: Sendable {
  private var due: [Name: (instant: Instant, order: UInt64)] = [:]
  private var order: UInt64 = 0
  /// Nil: no timer is set.
  private(set) var earliest: Instant?

  var isEmpty: Bool { due.isEmpty }

  /// Replaces the instant of that name.
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
  /// Removes and returns the next due timer: by instant, and then in the order of `set`.
  mutating func popDue(now: Instant) -> Name? {
    guard let earliest, earliest <= now else { return nil }
    let next = due.min { ($0.value.instant, $0.value.order) < ($1.value.instant, $1.value.order) }?.key
    if let next { cancel(next) }
    return next
  }
}
