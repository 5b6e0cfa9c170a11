import BindruneWire

/// # SendRing
/// **Overview**: the values that wait in one `SendPort`, and whether the port must wake its drainer or its producers:
/// all that the port's lock guards, and nothing else. It takes no lock itself.
///
/// **Function**: `offer` copies a value in, `sendFirst` lends the oldest to a sender and removes it if the sender
/// accepts it. Memory is allocated once: no offer and no value sent allocates, and no use makes it grow. A fence stands
/// where a request or an answer belongs among the values: nothing behind it is lent while it stands.
///
/// **Phases**: open → refused (an offer did not fit) → open again, when half of the octets and half of the values that
/// may wait are free, and room for one value of the MTU: that edge is reported exactly once; → closed from any of them,
/// for good.
///
/// A ring of octets. Each entry is a header and the value: two octets of length and, where the values have different
/// targets, two of target. An entry begins within `capacity` and may extend into the room behind it, which is as long
/// as the longest entry: so each lies in one piece, and can be lent in place.
@safe struct SendRing: ~Copyable, @unchecked Sendable {
  // Sendable: the memory is its own, and it cannot be copied.

  /// Of an attribute's handle or of a channel.
  typealias Target = UInt16

  private let room: UnsafeMutableRawPointer
  /// Where all values go; nil: each entry says where.
  private let target: Target?
  /// Octets of the longest value that fits.
  private let limit: Int
  /// Octets that an entry takes besides its value.
  let headerCount: Int
  /// Octets that may wait, headers included.
  let capacity: Int
  /// Where the oldest entry begins, and how many octets are in use from there on.
  private var head = 0, used = 0
  /// How many values may wait; nil: octets alone bound them.
  private var depth: SendDepth?
  private var values = 0
  /// The last value that left was the only one.
  private var wasEmpty = true
  /// The longest value that leaves whole: of an attribute min(ATT_MTU − 3, 512) octets.
  var longest: Int
  /// An offer was refused, and the edge is still to come.
  private(set) var isRefused = false
  /// The drainer has been woken and has not emptied the ring since.
  private var isDrainScheduled = false
  /// The fences that stand, oldest first, each with the values between the one before it and itself.
  private var fences: [(id: UInt64, values: Int)] = []
  /// The values behind the last fence.
  private var valuesBehind = 0
  private var lastFence: UInt64 = 0
  /// The drainer has stopped at a fence and must be woken when that is removed.
  private var isStopped = false
  /// Edges so far: one for each run of refusals.
  private(set) var edges = 0
  /// No value is accepted any more.
  private(set) var isClosed = false
  /// There is an edge, too, when the last value has left, whether or not one was refused.
  let tellsDrained: Bool

  /// Room for `capacity` octets, headers included: at least one value of the greatest length, at most 16 MiB.
  /// `limit`: octets of the longest value that will ever leave, at most 65,535; `longest`: of the longest that leaves
  /// now. `depth`: bounds the number of values as well.
  init(capacity: Int, limit: Int, longest: Int, target: Target?, depth: SendDepth?, tellsDrained: Bool = false) {
    self.target = target
    self.limit = limit
    self.tellsDrained = tellsDrained
    self.depth = depth
    headerCount = target == nil ? 4 : 2
    let entry = headerCount + limit
    self.capacity = min(max(capacity, entry), 1 << 24)
    self.longest = longest
    unsafe room = .allocate(byteCount: self.capacity + entry, alignment: 8)
  }
  deinit { unsafe room.deallocate() }

  /// Octets in use, headers included.
  var count: Int { used }
  var isEmpty: Bool { used == 0 }

  /// The result of an offer. After `.takenFirst` the caller wakes the drainer: it is the first offer since the drainer
  /// emptied the ring.
  enum Answer { case taken, takenFirst, refused }

  /// Takes a copy of `value`, of its first `limit` octets at most.
  mutating func offer(_ value: Span<UInt8>, to target: Target) -> Answer {
    let count = min(value.count, limit), space = count + headerCount
    guard hasRoom(for: space) else { return .refused }
    // Within the room: an entry begins before `capacity`, and behind that there is room for the longest.
    let entry = unsafe room + place(head + used)
    unsafe entry.storeBytes(of: UInt16(count), as: UInt16.self)
    if self.target == nil { unsafe entry.storeBytes(of: target, toByteOffset: 2, as: Target.self) }
    unsafe value.withUnsafeBytes { bytes in
      guard let from = bytes.baseAddress else { return }
      unsafe (entry + headerCount).copyMemory(from: from, byteCount: count)
    }
    used += space
    values += 1
    valuesBehind += 1
    defer { isDrainScheduled = true }
    return isDrainScheduled ? .taken : .takenFirst
  }

  /// There is room for `count` octets, headers included. If not, this counts as a refused offer, unless the ring is
  /// empty: then `count` exceeds the capacity, and no value leaves that could cause the edge.
  mutating func hasRoom(for count: Int) -> Bool {
    if isClosed { return false }
    if count <= capacity - used, values < depth?.limit ?? .max { return true }
    if used > 0 { isRefused = true }
    return false
  }
  /// `offset` from the beginning of the room, wrapped around once at most.
  @inline(__always) private func place(_ offset: Int) -> Int { offset < capacity ? offset : offset - capacity }

  /// Lends the oldest value to `send`; it stays if that refuses it. `isEdge`: a run of refusals is over.
  mutating func sendFirst(
    now: Instant, _ send: (Span<UInt8>, Target) -> Bool
  ) -> (left: SendPort.Drained, isEdge: Bool) {
    let isDrained: Bool
    if used > 0 {
      if let fence = fences.first, fence.values == 0 {
        isStopped = true
        return (.fenced, false)
      }
      let (count, target) = entry(at: head)
      let octets = unsafe (room + head + headerCount).assumingMemoryBound(to: UInt8.self)
      guard unsafe send(UnsafeBufferPointer(start: octets, count: count).span, target) else { return (.refused, false) }
      let space = count + headerCount
      head = place(head + space)
      used -= space
      values -= 1
      if fences.isEmpty { valuesBehind -= 1 } else { fences[0].values -= 1 }
      depth?.valueSent(now: now, isRefused: isRefused, isFirst: wasEmpty)
      wasEmpty = used == 0
      isDrained = wasEmpty && tellsDrained
    } else {
      isDrained = false
    }
    isDrainScheduled = used > 0
    return (used > 0 ? .more : .nothing, takeEdge() || isDrained)
  }
  /// The length and the target of the value whose entry begins at `place`.
  @inline(__always) private func entry(at place: Int) -> (count: Int, target: Target) {
    let entry = unsafe room + place
    let count = Int(unsafe entry.loadUnaligned(as: UInt16.self))
    return (count, unsafe target ?? entry.loadUnaligned(fromByteOffset: 2, as: Target.self))
  }

  /// Drops the values whose target `isGone`; the others keep their order. True: a run of refusals is over.
  mutating func removeAll(where isGone: (Target) -> Bool) -> Bool {
    var from = head, to = head, left = used
    // The fence after the value, and how many values from here on stand before that fence.
    var fence = 0, before = fences.first?.values ?? valuesBehind
    used = 0
    while left > 0 {
      let (count, target) = entry(at: from), space = count + headerCount
      while before == 0, fence < fences.count {
        fence += 1
        before = fence < fences.count ? fences[fence].values : valuesBehind
      }
      before -= 1
      if isGone(target) {
        values -= 1
        if fence < fences.count { fences[fence].values -= 1 } else { valuesBehind -= 1 }
      } else {
        // Onto itself or onto examined entries: the unexamined ones lie behind both.
        if to != from { unsafe (room + to).copyMemory(from: room + from, byteCount: space) }
        to = place(to + space)
        used += space
      }
      from = place(from + space)
      left -= space
    }
    return takeEdge()
  }

  // MARK: Fences

  /// A fence behind the values that wait now. Nil: closed.
  mutating func addFence() -> UInt64? {
    if isClosed { return nil }
    lastFence += 1
    fences.append((lastFence, valuesBehind))
    valuesBehind = 0
    return lastFence
  }
  /// The values before the fence have left.
  func hasReached(_ fence: UInt64) -> Bool {
    for (id, values) in fences {
      if values > 0 { return false }
      if id == fence { return true }
    }
    // Closed: no value is left.
    return true
  }
  /// True: the drainer has stopped there and must be woken.
  mutating func removeFence(_ id: UInt64) -> Bool {
    guard let index = fences.firstIndex(where: { $0.id == id }) else { return false }
    let (_, values) = fences.remove(at: index)
    if index < fences.count { fences[index].values += values } else { valuesBehind += values }
    guard isStopped, fences.first?.values != 0 else { return false }
    isStopped = false
    isDrainScheduled = used > 0
    return isDrainScheduled
  }

  private mutating func takeEdge() -> Bool {
    // At least half: a producer that is woken for one value is put to sleep by the next, and woken again.
    guard isRefused, max(longest + headerCount, capacity / 2) <= capacity - used, values <= (depth?.limit ?? .max) / 2
    else { return false }
    isRefused = false
    edges += 1
    return true
  }

  /// Accepts nothing more; what waits can still leave. False: it was closed before.
  mutating func end() -> Bool {
    defer { isClosed = true }
    return !isClosed
  }
  /// Drops everything and accepts nothing more. False: it was closed before.
  mutating func close() -> Bool {
    let isNew = end()
    used = 0
    values = 0
    isRefused = false
    fences = []
    valuesBehind = 0
    return isNew
  }
}
