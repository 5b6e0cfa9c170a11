import BindruneWire
import HeapModule

/// What is going to happen on the air, the earliest first; what falls on the same instant happens in the order it was planned.
///
/// Nothing is ever taken out again: an event names the generation of what it is about, and one that comes too late for it
/// is passed over.
struct Schedule: ~Copyable {
  private var heap = Heap<Entry>()
  private var planned: UInt64 = 0

  enum Event {
    /// An advertising event starts. Vol 6, Part B, §4.4.2.
    case advertising(ControllerID, generation: UInt32)
    /// Advertising ends: high duty cycle after 1.28 s (Vol 6, Part B, §4.4.2.4.3), a set after its duration.
    case advertisingTimeout(ControllerID, generation: UInt32)
    /// Scan duration or period is over. Vol 4, Part E, §7.8.65.
    case scanning(ControllerID, generation: UInt32)
    /// The anchor point of a connection event. Vol 6, Part B, §4.5.1.
    case connectionEvent(LinkID)
    /// Only where there are no connection events (`AirConfiguration.isInstant`).
    case supervision(LinkID, since: Instant)
    /// A controller that answered with no command credit gives it now.
    case commandCredit(ControllerID)
  }
  private struct Entry: Comparable {
    var time: Instant, order: UInt64, event: Event
    static func == (a: Entry, b: Entry) -> Bool { a.order == b.order }
    static func < (a: Entry, b: Entry) -> Bool { a.time == b.time ? a.order < b.order : a.time < b.time }
  }

  var deadline: Instant? { heap.min?.time }
  mutating func plan(_ event: Event, at time: Instant) {
    heap.insert(Entry(time: time, order: planned, event: event))
    planned += 1
  }
  /// The next event that is due, and its time.
  mutating func next(until now: Instant) -> (event: Event, time: Instant)? {
    guard let first = heap.min, first.time <= now else { return nil }
    heap.removeMin()
    return (first.event, first.time)
  }
}
