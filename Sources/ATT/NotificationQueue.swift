import BindruneWire

/// The result of an offer, returned by the caller's own call.
public enum SendAnswer: BitwiseCopyable, Sendable, Equatable {
  /// The whole value is queued, or already written.
  case queued
  /// The same, but the peer will see only this many octets of it: min(ATT_MTU − 3, 512). Vol 3, Part F, §3.4.7.1: a
  /// longer value is cut, and the client reads the rest.
  case cut(to: Int)
  /// There is no room, and the value was not accepted. One `.ready` follows when there is room for any PDU of the MTU.
  case full
  /// The bearer is closed: it sends nothing.
  case closed

  /// True if the value will be sent, perhaps cut.
  @inlinable public var isAccepted: Bool {
    switch self {
    case .queued, .cut: true
    case .full, .closed: false
    }
  }
}

/// # NotificationQueue
/// **Overview**: the values that wait for one bearer: Handle Value Notifications (Vol 3, Part F, §3.4.7.1) and Write
/// Commands (§3.4.5.3), first in, first out. They need no answer, so this queue alone slows their producer down.
///
/// **Function**: `offer` copies a value in, cut to what a PDU of the MTU in force can carry; `pull` copies it out,
/// opcode and handle before it, when the controller has a buffer for the link and never earlier. Two copies, no
/// allocation after `init`.
///
/// **Phases**: open → refused (an offer returned `.full`) → open again, when there is room for the longest PDU of the
/// MTU: the queue reports that edge exactly once.
///
/// **Contract** of a bearer and its host. Each promise names the tests that check it; `QueueTraffic` is the model with
/// which `QueueContractTests/overSeededWorlds` compares every answer, PDU and edge.
///
/// 1. *Bounded.* At most `capacity` octets wait for one bearer, eight for each value's header and its padding to a
///    multiple of eight included, whatever the caller does. `init` allocates the memory, which never grows: offering,
///    sending and refusing allocate nothing. (`likeAList`, `QueueTraffic`; `Benchmarks/run` counts allocations)
/// 2. *An immediate answer, one edge.* A value that does not fit is refused with `.full`. However many are refused,
///    exactly one `.ready` follows, as soon as there is room for the longest PDU that the MTU in force carries: any
///    value is accepted then, and any Multiple Handle Value Notification, which is up to two octets longer.
///    (`oneReadyEdge`, `readyForTheLongestPDU`, `likeAList`, `QueueTraffic`)
/// 3. *First in, first out*, for a bearer's notifications and commands together, so for each subscription too: none
///    lost, none duplicated, none on another link, for the lifetime of the link. Accepted values leave even if the
///    client unsubscribes meanwhile; only those of a service that is removed are dropped, because another may take its
///    handles. Requests, application's answers and indications keep their place among them: see `Bearer`. (`likeAList`,
///    `QueueTraffic`, `OrderTests`)
/// 4. *Cutting is reported.* A value longer than min(ATT_MTU − 3, 512) octets at the time of its offer is cut to that
///    and answered `.cut(to:)`. The MTU never shrinks, so a waiting value always fits. (`valuesAreCutTo512`,
///    `QueueTraffic`)
/// 5. *Written late.* A value is written into its ACL packet when the controller has a buffer for the link. So a
///    response that the server gives itself overtakes everything without a buffer, and waits only for the rest of a
///    frame that has begun. (`aResponseOvertakesWhatHasNoBuffer`, `aResponseWaitsForTheRestOfAFrameAndNoMore`,
///    `QueueTraffic`)
/// 6. *One indication at a time* for each bearer: the next is `.full` until the peer's confirmation, which is reported
///    once. Vol 3, Part F, §3.3.2. (`QueueTraffic`; `AirTrace` checks the packets)
/// 7. *The end of the link* drops waiting values, ends requests and indications once each, and from then on offers are
///    `.closed`. (`nothingOutlivesTheLink`, `QueueTraffic`)
/// 8. *A fair share* of the controller's buffers for each link: `DataCredits` defines the share, and what a silent peer
///    costs the others. (`whatASilentPeerCosts`)
///
/// A ring of octets. Each entry is a header of eight octets and the value, padded to a multiple of eight, so that a
/// header never wraps around the end of the ring; a value may. The memory is raw and allocated once: safe arrays cost
/// 2.5 times as much here, a class ten times.
@safe public struct NotificationQueue: ~Copyable {
  /// Octets of an entry besides its value.
  @inlinable public static var headerCount: Int { 8 }
  /// The longest attribute value: Vol 3, Part F, §3.2.9.
  @inlinable public static var longestValue: Int { 512 }
  /// The most octets of an entry besides its header: a PDU of the greatest ATT_MTU without its opcode and first handle.
  /// Only a Multiple Handle Value Notification is that long: its tuples fill ATT_MTU − 1 octets (Vol 3, Part F,
  /// §3.4.7.4).
  @inlinable public static var longestEntry: Int { Bearer.largestMTU &- 3 }

  @usableFromInline let ring: UnsafeMutableRawPointer
  /// Octets of the ring, a multiple of 8.
  public let capacity: Int
  @usableFromInline var head = 0
  /// Octets in use, headers and padding included.
  @usableFromInline var used = 0
  /// An offer has been refused, and the ready edge has not been reported yet.
  @usableFromInline var isRefused = false
  /// How many values of each kind this queue has accepted, and how many of those have left it. `Bearer` compares them,
  /// so that a request, an answer or an indication leaves in its place among the values.
  @usableFromInline var commandsTaken: UInt64 = 0, commandsSent: UInt64 = 0
  @usableFromInline var notificationsTaken: UInt64 = 0, notificationsSent: UInt64 = 0

  /// Room for `capacity` octets, headers included: at least one entry of the greatest length, at most 16 MiB.
  public init(capacity: Int) {
    let least = NotificationQueue.headerCount + NotificationQueue.longestEntry
    self.capacity = (min(max(capacity, least), 1 << 24) + 7) & ~7
    unsafe ring = .allocate(byteCount: self.capacity, alignment: 8)
  }
  @inlinable deinit { unsafe ring.deallocate() }

  @inlinable public var isEmpty: Bool { used == 0 }

  /// The octets that a value of `count` octets occupies in the ring.
  @inlinable @inline(__always) static func space(_ count: Int) -> Int { headerCount &+ (count &+ 7) & ~7 }

  /// Queues a copy of `value`, of at most `limit` octets of it (0 … `longestEntry`), to be sent with `opcode`.
  @inlinable @inline(__always)
  public mutating func offer(
    _ opcode: ATTOpcode, _ handle: AttributeHandle, _ value: Span<UInt8>, limit: Int
  ) -> SendAnswer {
    let count = min(value.count, limit), space = NotificationQueue.space(count)
    guard space <= capacity &- used else {
      isRefused = true
      return .full
    }
    var at = head &+ used
    if at >= capacity { at &-= capacity }
    let header = UInt64(count) &<< 32 | UInt64(handle.rawValue) &<< 8 | UInt64(opcode.rawValue)
    unsafe ring.storeBytes(of: header, toByteOffset: at, as: UInt64.self)
    at &+= NotificationQueue.headerCount
    if at == capacity { at = 0 }
    unsafe value.withUnsafeBytes { bytes in
      guard let from = bytes.baseAddress, count > 0 else { return }
      let first = min(count, capacity &- at)
      unsafe ring.advanced(by: at).copyMemory(from: from, byteCount: first)
      if first < count { unsafe ring.copyMemory(from: from + first, byteCount: count &- first) }
    }
    used &+= space
    if opcode.isCommand { commandsTaken &+= 1 } else { notificationsTaken &+= 1 }
    return count == value.count ? .queued : .cut(to: count)
  }

  /// Appends the PDU to `output` instead, which has room for it (traps otherwise): for a value that no other precedes.
  /// One copy, instead of the two of `offer` and `pull`.
  @inlinable @inline(__always)
  public static func write(
    _ opcode: ATTOpcode, _ handle: AttributeHandle, _ value: Span<UInt8>, limit: Int, into output: inout OutputRawSpan
  ) -> SendAnswer {
    let count = min(value.count, limit)
    precondition(count >= 0 && output.freeCapacity >= count &+ 3)
    unsafe output.withUnsafeMutableBytes { room, written in
      let to = unsafe room.baseAddress.unsafelyUnwrapped + written
      unsafe to.storeBytes(of: opcode.rawValue, as: UInt8.self)
      unsafe to.storeBytes(of: handle.rawValue.littleEndian, toByteOffset: 1, as: UInt16.self)
      unsafe value.withUnsafeBytes { bytes in
        if let from = bytes.baseAddress { unsafe (to + 3).copyMemory(from: from, byteCount: count) }
      }
      written &+= count &+ 3
    }
    return count == value.count ? .queued : .cut(to: count)
  }

  /// Appends the PDU that has waited longest to `output`, which has room for it (traps otherwise: it is at most as long
  /// as the MTU at the time of its offer). False when none waits.
  @inlinable @inline(__always) public mutating func pull(into output: inout OutputRawSpan) -> Bool {
    guard used > 0 else { return false }
    let header = unsafe ring.load(fromByteOffset: head, as: UInt64.self)
    let count = Int(truncatingIfNeeded: header &>> 32)
    var at = head &+ NotificationQueue.headerCount
    if at == capacity { at = 0 }
    precondition(output.freeCapacity >= count &+ 3)
    unsafe output.withUnsafeMutableBytes { room, written in
      let to = unsafe room.baseAddress.unsafelyUnwrapped + written
      unsafe to.storeBytes(of: UInt16(truncatingIfNeeded: header).littleEndian, as: UInt16.self)
      unsafe to.storeBytes(of: UInt8(truncatingIfNeeded: header &>> 16), toByteOffset: 2, as: UInt8.self)
      let first = min(count, capacity &- at)
      unsafe (to + 3).copyMemory(from: ring + at, byteCount: first)
      if first < count { unsafe (to + 3 + first).copyMemory(from: ring, byteCount: count &- first) }
      written &+= count &+ 3
    }
    let space = NotificationQueue.space(count)
    head &+= space
    if head >= capacity { head &-= capacity }
    used &-= space
    if ATTOpcode(rawValue: UInt8(truncatingIfNeeded: header)).isCommand {
      commandsSent &+= 1
    } else {
      notificationsSent &+= 1
    }
    return true
  }

  /// Counts an indication, which bypasses the queue but has a place among its notifications.
  mutating func countIndicationTaken() { notificationsTaken &+= 1 }
  mutating func countIndicationDropped() { notificationsTaken &-= 1 }
  @usableFromInline mutating func countIndicationSent() { notificationsSent &+= 1 }
  /// The bearer refused an offer for another reason than room: `takeReadyEdge` reports when there is room.
  @usableFromInline mutating func refuse() { isRefused = true }

  /// True once after a refusal, as soon as an entry of `limit` octets would be accepted.
  @inlinable @inline(__always) public mutating func takeReadyEdge(limit: Int) -> Bool {
    guard isRefused, NotificationQueue.space(limit) <= capacity &- used else { return false }
    isRefused = false
    return true
  }

  /// Drops the notifications of the attributes that `isGone`; the other entries keep their order. Returns the numbers
  /// that the dropped ones had among the notifications of the bearer, in order: a PDU with a place among these moves
  /// it by as many as were before it. `indication`: the number of an indication that waits outside of the queue.
  mutating func removeNotifications(
    besides indication: UInt64?, where isGone: (AttributeHandle) -> Bool
  ) -> [UInt64] {
    var kept: [(ATTOpcode, AttributeHandle, [UInt8])] = [], removed: [UInt64] = []
    var place = head, left = used, number = notificationsSent
    while left > 0 {
      let header = unsafe ring.load(fromByteOffset: place, as: UInt64.self)
      let count = Int(truncatingIfNeeded: header &>> 32), space = NotificationQueue.space(count)
      let opcode = ATTOpcode(rawValue: UInt8(truncatingIfNeeded: header))
      let entry = (
        opcode, AttributeHandle(rawValue: UInt16(truncatingIfNeeded: header &>> 8)), octets(of: count, at: place)
      )
      place = (place + space) % capacity
      left -= space
      if opcode.isCommand {
        kept.append(entry)
        continue
      }
      if number == indication { number += 1 }
      if let entry = NotificationQueue.rest(of: entry, where: isGone) {
        kept.append(entry)
      } else {
        removed.append(number)
      }
      number += 1
    }
    if kept.count == 0 && removed.count == 0 { return [] }
    (head, used) = (0, 0)
    let taken = (commandsTaken, notificationsTaken - UInt64(removed.count)), wasRefused = isRefused
    for (opcode, handle, octets) in kept { _ = offer(opcode, handle, octets.span, limit: octets.count) }
    (commandsTaken, notificationsTaken) = taken
    isRefused = wasRefused
    return removed
  }
  /// The value of the entry at `place`, which may wrap around the end of the ring.
  private func octets(of count: Int, at place: Int) -> [UInt8] {
    var octets = [UInt8](repeating: 0, count: count)
    let start = (place + NotificationQueue.headerCount) % capacity, first = min(count, capacity - start)
    unsafe octets.withUnsafeMutableBytes { bytes in
      guard let to = bytes.baseAddress, count > 0 else { return }
      unsafe to.copyMemory(from: ring + start, byteCount: first)
      if first < count { unsafe (to + first).copyMemory(from: ring, byteCount: count - first) }
    }
    return octets
  }
  /// The entry without values of attributes that are gone; nil: nothing is left. Of two tuples the one that is left is
  /// a notification of its own: Vol 3, Part F, §3.4.7.4.
  private static func rest(
    of entry: (ATTOpcode, AttributeHandle, [UInt8]), where isGone: (AttributeHandle) -> Bool
  ) -> (ATTOpcode, AttributeHandle, [UInt8])? {
    let (opcode, handle, octets) = entry
    guard opcode == MultipleHandleValueNotification.opcode else { return isGone(handle) ? nil : entry }
    let tuples = [UInt8(truncatingIfNeeded: handle.rawValue), UInt8(truncatingIfNeeded: handle.rawValue >> 8)] + octets
    var place = 0, left: [(AttributeHandle, Range<Int>)] = []
    while place + 4 <= tuples.count {
      let handle = AttributeHandle(rawValue: UInt16(tuples[place]) | UInt16(tuples[place + 1]) << 8)
      let end = place + 4 + (Int(tuples[place + 2]) | Int(tuples[place + 3]) << 8)
      if !isGone(handle) { left.append((handle, place..<min(end, tuples.count))) }
      place = end
    }
    guard let (first, range) = left.first else { return nil }
    if left.count == 1 { return (HandleValueNotification.opcode, first, Array(tuples[range].dropFirst(4))) }
    return (opcode, first, Array(left.flatMap { tuples[$0.1] }.dropFirst(2)))
  }

  /// Drops everything: the bearer is closed.
  public mutating func removeAll() {
    head = 0
    used = 0
    isRefused = false
  }
}
