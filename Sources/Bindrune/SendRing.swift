/// # SendRing
/// **Overview**: the values that wait in one `SendPort`, and whether anybody has to be told of them: all that the port's
/// lock guards, and nothing else. It knows no lock, no link and no host.
///
/// **Function**: `offer` copies a value in, `sendFirst` lends the oldest to whoever sends it and forgets it when that has
/// taken it. Memory is allocated once: no offer and no value sent allocates, and no use makes it grow.
///
/// **Phases**: open → refused (an offer did not fit) → open again, when there is room for one value of the MTU: that edge
/// is told exactly once; → closed from any of them, for good.
///
/// A ring of octets. Each entry is a header of two octets, its length, and the value. An entry begins within `capacity`,
/// and may run on into the room behind it, which is as long as the longest entry: so each lies in one piece, and can be
/// lent as it is.
@safe struct SendRing: ~Copyable, @unchecked Sendable {
  // Sendable: the memory is its own, and it cannot be copied.

  /// Octets that an entry takes besides its value.
  static var headerCount: Int { 2 }
  /// The longest attribute value: Vol 3, Part F, §3.2.9.
  static var longestValue: Int { 512 }

  private let room: UnsafeMutableRawPointer
  /// Octets that may wait, headers included.
  let capacity: Int
  /// Where the oldest entry begins, and how many octets are in use from there on.
  private var head = 0, used = 0
  /// What an edge promises room for: min(ATT_MTU − 3, 512) octets.
  var longest: Int
  /// An offer was refused, and the edge is still to come.
  private(set) var isRefused = false
  /// The event loop knows that there are values, and will come.
  private var isAwaited = false
  /// Edges so far: one for each run of refusals.
  private(set) var edges = 0
  private(set) var isClosed = false

  /// Room for `capacity` octets, headers included: at least one value of the greatest length, at most 16 MiB.
  init(capacity: Int, longest: Int) {
    let entry = SendRing.headerCount + SendRing.longestValue
    self.capacity = min(max(capacity, entry), 1 << 24)
    self.longest = longest
    unsafe room = .allocate(byteCount: self.capacity + entry, alignment: 8)
  }
  deinit { unsafe room.deallocate() }

  /// Octets in use, headers included.
  var count: Int { used }
  var isEmpty: Bool { used == 0 }

  /// What became of an offer. After `.takenByTheFirst` the caller wakes the event loop: nobody has since it last came.
  enum Answer { case taken, takenByTheFirst, refused }

  /// Takes a copy of `value`, of its first 512 octets at most.
  mutating func offer(_ value: Span<UInt8>) -> Answer {
    let count = min(value.count, SendRing.longestValue), space = count + SendRing.headerCount
    guard !isClosed else { return .refused }
    guard space <= capacity - used else {
      isRefused = true
      return .refused
    }
    let end = head + used
    // Within the room: an entry begins before `capacity`, and behind that there is room for the longest.
    let entry = unsafe room + (end < capacity ? end : end - capacity)
    unsafe entry.storeBytes(of: UInt16(count), as: UInt16.self)
    unsafe value.withUnsafeBytes { bytes in
      guard let from = bytes.baseAddress else { return }
      unsafe (entry + SendRing.headerCount).copyMemory(from: from, byteCount: count)
    }
    used += space
    defer { isAwaited = true }
    return isAwaited ? .taken : .takenByTheFirst
  }

  /// What is left after one value.
  enum Rest { case nothing, more, refused }

  /// Lends the oldest value to `send`; it stays if that refuses it. When nothing is left, whoever offers next wakes the
  /// event loop again. `isEdge`: a run of refusals is over.
  mutating func sendFirst(_ send: (Span<UInt8>) -> Bool) -> (rest: Rest, isEdge: Bool) {
    if used > 0 {
      let entry = unsafe room + head
      let count = Int(unsafe entry.loadUnaligned(as: UInt16.self))
      let octets = unsafe (entry + SendRing.headerCount).assumingMemoryBound(to: UInt8.self)
      guard unsafe send(UnsafeBufferPointer(start: octets, count: count).span) else { return (.refused, false) }
      let space = count + SendRing.headerCount
      head += space
      if head >= capacity { head -= capacity }
      used -= space
    }
    isAwaited = used > 0
    return (used > 0 ? .more : .nothing, takeEdge())
  }
  private mutating func takeEdge() -> Bool {
    guard isRefused, longest + SendRing.headerCount <= capacity - used else { return false }
    isRefused = false
    edges += 1
    return true
  }

  /// Forgets everything, and takes nothing more. False when it was closed before.
  mutating func close() -> Bool {
    guard !isClosed else { return false }
    isClosed = true
    used = 0
    isRefused = false
    return true
  }
}
