import BindruneWire
import HeapModule

/// Future events on the air, the earliest first; events of the same instant are in the order of planning.
///
/// An event names the generation of its subject, and is ignored if that is outdated. Events are not removed singly;
/// when the table has grown to twice its size, its owner drops the outdated ones together (`isCrowded`), so that its
/// size stays within twice the number of current events.
struct Schedule: ~Copyable {
  private var heap = Heap<Entry>()
  private var planned: UInt64 = 0

  enum Event {
    /// An advertising event starts. Vol 6, Part B, §4.4.2.
    case advertising(ControllerID, generation: UInt32)
    /// Advertising ends: high duty cycle after 1.28 s (Vol 6, Part B, §4.4.2.4.3), a set after its duration.
    case advertisingTimeout(ControllerID, generation: UInt32)
    /// The scan duration or period elapses. Vol 4, Part E, §7.8.65.
    case scanning(ControllerID, generation: UInt32)
    /// The anchor point of a connection event. Vol 6, Part B, §4.5.1.
    case connectionEvent(LinkID)
    /// The procedure response time-out of an end. Vol 6, Part B, §5.2.
    case procedureResponse(LinkID, timer: UInt32)
    /// Half of authenticatedPayloadTO of an end, or all of it. Vol 6, Part B, §5.4.
    case authenticatedPayload(LinkID, timer: UInt32)
    /// Only without connection events (`AirConfiguration.isInstant`).
    case supervision(LinkID, since: Instant)
    /// A controller that answered without a command credit gives it now.
    case commandCredit(ControllerID)
  }
  struct Entry: Comparable {
    let time: Instant, order: UInt64, event: Event
    static func == (a: Entry, b: Entry) -> Bool { a.order == b.order }
    static func < (a: Entry, b: Entry) -> Bool { a.time == b.time ? a.order < b.order : a.time < b.time }
  }

  var deadline: Instant? { heap.min?.time }
  mutating func plan(_ event: Event, at time: Instant) {
    heap.insert(Entry(time: time, order: planned, event: event))
    planned += 1
  }
  /// Number of entries, outdated ones included.
  var count: Int { heap.count }
  /// Entries after outdated ones were dropped last; small tables are not cleaned.
  private var sizeAfterDropping = 64
  /// The table is twice as large as after the last cleaning.
  var isCrowded: Bool { heap.count >= 2 * sizeAfterDropping }
  /// Removes and returns all entries; the table is empty until `restore`.
  mutating func takeAll() -> [Entry] {
    defer { heap = Heap() }
    return heap.unordered
  }
  /// Restores the current entries.
  mutating func restore(_ entries: [Entry]) {
    heap = Heap(entries)
    sizeAfterDropping = max(64, entries.count)
  }
  /// The next event that is due, and its time.
  mutating func next(until now: Instant) -> (event: Event, time: Instant)? {
    guard let first = heap.min, first.time <= now else { return nil }
    heap.removeMin()
    return (first.event, first.time)
  }
}
