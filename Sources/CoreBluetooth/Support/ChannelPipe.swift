import DequeModule
import Foundation

/// How a channel has ended.
package enum ChannelEnd: Sendable {
  /// Either side has closed it: the streams are at their ends.
  case closed
  /// Something else has ended it, such as the loss of its link: the streams fail with this error.
  case failed(any Error)
}

/// What carries octets between a pipe and its channel.
///
/// A pipe calls these methods without its lock, on the thread whose call to the pipe has caused them: often the app's.
/// So they must not wait.
package protocol ChannelPipeDriver: AnyObject, Sendable {
  /// The app has written octets: `takeSDU` returns them. Called once, and again only after `takeSDU` has returned
  /// `nothing`.
  func outputWaits(in pipe: ChannelPipe)
  /// The app has read SDUs to their ends: `takeReadCount` says how many. Called once, and again only after
  /// `takeReadCount`.
  func inputWasRead(in pipe: ChannelPipe)
  /// There is room for the SDU that `offer` has refused. Called once for a refusal, or for several in a row.
  func inputHasRoom(in pipe: ChannelPipe)
  /// The app has closed both streams, or released the channel: `takeSDU` returns what is left, and then `finished`.
  /// Called once, and not after `end`.
  func appHasClosed(_ pipe: ChannelPipe)
}

/// One of an app's streams: what the pipe calls, without its lock, from any thread.
protocol ChannelPipeUser: AnyObject, Sendable {
  /// The stream's readiness has become `ready`, or a final one.
  func readinessChanged()
}

/// # ChannelPipe
/// **Overview**: the octets of a channel that wait between the app's streams and the driver, in two rings with bounds.
/// The app reads and writes octets; the driver offers and takes SDUs.
///
///     app ── write ──▶ ┌ output ring ┐ ── takeSDU ──▶ driver
///     app ◀── read ─── └ input ring ─┘ ◀── offer ──── driver
///
/// **Function**: nothing here waits, except `waitForInput` and `waitForOutput`. A side that finds no octets or no room
/// is told once when there are some. An SDU counts as read when the app has read its last octet, and only then does the
/// driver return its credits; so an app that does not read stops the peer, and a driver without credits stops the app.
/// Octets written in several calls may leave in one SDU, as with every stream.
///
/// **Phases**: open → closing (the app has closed; the driver takes what is left) → ended. Octets that arrived before
/// the end can be read after it.
package final class ChannelPipe: @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.

  /// What `takeSDU` has found.
  package enum Taken: Sendable, Equatable {
    /// An SDU of this many octets.
    case octets(Int)
    /// No octets: the pipe calls `outputWaits` when there are some.
    case nothing
    /// There are none and there will be none: the app has closed, or the channel has ended.
    case finished
  }
  /// The app's streams, or some of them.
  struct Sides: OptionSet {
    let rawValue: UInt8
    static let input = Self(rawValue: 1)
    static let output = Self(rawValue: 2)
    static let both: Self = [.input, .output]
  }
  /// What a stream can do now.
  enum Readiness {
    /// There are octets to read; there is room to write.
    case ready
    case waiting
    /// By the channel, after its last octet has been read.
    case ended(ChannelEnd)
    /// By the app.
    case closed
  }

  /// One direction.
  private struct Direction {
    var octets = OctetRing()
    let capacity: Int
    /// Threads that wait in `waitForInput` or `waitForOutput`.
    var sleepers: [DispatchSemaphore] = []
    weak var user: (any ChannelPipeUser)?

    var room: Int { max(capacity - octets.count, 0) }
  }
  /// The calls that follow a change, made without the lock.
  private struct Calls {
    struct Methods: OptionSet {
      let rawValue: UInt8
      static let outputWaits = Self(rawValue: 1)
      static let inputWasRead = Self(rawValue: 2)
      static let inputHasRoom = Self(rawValue: 4)
      static let appHasClosed = Self(rawValue: 8)
    }
    var methods: Methods = []
    var users: [any ChannelPipeUser] = []
    var sleepers: [DispatchSemaphore] = []

    mutating func wake(_ direction: inout Direction) {
      if let user = direction.user { users.append(user) }
      sleepers += direction.sleepers
      direction.sleepers = []
    }
  }

  private let lock = Lock()
  private weak let driver: (any ChannelPipeDriver)?
  private var input: Direction
  private var output: Direction
  /// Nil: the channel is open.
  private var end: ChannelEnd?
  /// What the app has closed.
  private var closed: Sides = []
  /// The ends of the SDUs in the input: the number of octets that the channel had carried by then, and how many SDUs end
  /// there, for some may be empty.
  private var ends = Deque<(octets: UInt64, count: Int)>()
  /// All octets of the channel that have been offered, and those of them that have been read.
  private var offered: UInt64 = 0
  private var read: UInt64 = 0
  /// SDUs read to their ends since the last `takeReadCount`.
  private var readSDUs = 0
  /// Octets of the SDU that `offer` has refused; nil: none since the last `inputHasRoom`.
  private var refused: Int?
  /// The driver has found nothing to take, or not looked yet.
  private var isOutputAwaited = true
  /// The app has filled the output, and less than half of it has become free since.
  private var isRoomAwaited = false

  /// The capacities are in octets. The input's is at least what the peer may send without new credits, so that an offer
  /// is never refused; the output's bounds what the app may write ahead of the channel.
  package init(inputCapacity: Int, outputCapacity: Int, driver: any ChannelPipeDriver) {
    precondition(inputCapacity > 0 && outputCapacity > 0)
    input = Direction(capacity: inputCapacity)
    output = Direction(capacity: outputCapacity)
    self.driver = driver
  }

  private func change<Result>(_ body: (inout Calls) -> Result) -> Result {
    var calls = Calls()
    let result = lock.withLock { body(&calls) }
    for sleeper in calls.sleepers { sleeper.signal() }
    for user in calls.users { user.readinessChanged() }
    guard !calls.methods.isEmpty, let driver else { return result }
    if calls.methods.contains(.outputWaits) { driver.outputWaits(in: self) }
    if calls.methods.contains(.inputWasRead) { driver.inputWasRead(in: self) }
    if calls.methods.contains(.inputHasRoom) { driver.inputHasRoom(in: self) }
    if calls.methods.contains(.appHasClosed) { driver.appHasClosed(self) }
    return result
  }

  // MARK: The driver's side

  /// An SDU has arrived. False: there is no room for all of it, and the pipe has taken nothing; it calls `inputHasRoom`
  /// when there is. An SDU is never refused by an empty pipe, however long it is.
  ///
  /// When the app has closed its input, the SDU is dropped, and counts as read.
  package func offer(_ sdu: Span<UInt8>) -> Bool {
    change { calls in
      guard end == nil else { return true }
      if closed.contains(.input) {
        countRead(1, &calls)
        return true
      }
      guard input.octets.isEmpty || sdu.count <= input.room else {
        refused = sdu.count
        return false
      }
      refused = nil
      if input.octets.isEmpty && !sdu.isEmpty { calls.wake(&input) }
      input.octets.append(sdu, capacity: input.capacity)
      offered += UInt64(sdu.count)
      if let last = ends.last, last.octets == offered {
        ends[ends.count - 1].count += 1
      } else {
        ends.append((offered, 1))
      }
      countEnds(&calls)
      return true
    }
  }
  /// Appends the app's next octets, as many as there are and as the span has room for: the peer's MTU at most.
  package func takeSDU(into sdu: inout OutputSpan<UInt8>) -> Taken {
    precondition(sdu.freeCapacity > 0)
    return change { calls in
      guard end == nil else { return .finished }
      let count = min(output.octets.count, sdu.freeCapacity)
      guard count > 0 else {
        isOutputAwaited = true
        return closed == .both ? .finished : .nothing
      }
      output.octets.move(count, to: &sdu)
      // Half of it: an app that writes much is not woken for each SDU.
      if isRoomAwaited, 2 * output.room >= output.capacity {
        isRoomAwaited = false
        calls.wake(&output)
      }
      return .octets(count)
    }
  }
  /// How many SDUs the app has read to their ends since the last call.
  package func takeReadCount() -> Int {
    lock.withLock {
      defer { readSDUs = 0 }
      return readSDUs
    }
  }
  /// The channel has ended: octets that the app has written and the driver has not taken are lost. Only the first call
  /// has an effect, and the pipe calls the driver no more, except on behalf of a call that another thread has begun.
  package func end(_ end: ChannelEnd) {
    change { calls in
      guard self.end == nil else { return }
      self.end = end
      refused = nil
      output.octets.removeAll()
      ends.removeAll(keepingCapacity: false)
      calls.wake(&input)
      calls.wake(&output)
    }
  }

  /// Under the lock: counts the SDUs in the input whose last octet has been read.
  private func countEnds(_ calls: inout Calls) {
    var count = 0
    while let end = ends.first, end.octets <= read {
      ends.removeFirst()
      count += end.count
    }
    countRead(count, &calls)
  }
  private func countRead(_ count: Int, _ calls: inout Calls) {
    if readSDUs == 0 && count > 0 { calls.methods.insert(.inputWasRead) }
    readSDUs += count
  }

  // MARK: The app's side

  /// `user` is called when the readiness changes. It is not retained.
  func attach(_ user: any ChannelPipeUser, to side: Sides) {
    lock.withLock {
      if side.contains(.input) { input.user = user }
      if side.contains(.output) { output.user = user }
    }
  }
  var inputReadiness: Readiness { lock.withLock { readinessOfInput } }
  var outputReadiness: Readiness { lock.withLock { readinessOfOutput } }

  /// Under the lock.
  private var readinessOfInput: Readiness {
    if closed.contains(.input) { return .closed }
    if !input.octets.isEmpty { return .ready }
    return end.map(Readiness.ended) ?? .waiting
  }
  /// Under the lock.
  private var readinessOfOutput: Readiness {
    if closed.contains(.output) { return .closed }
    if let end { return .ended(end) }
    return output.room > 0 ? .ready : .waiting
  }

  /// Moves octets that have arrived into the buffer. Returns how many: 0 unless the input is ready.
  func read(into buffer: UnsafeMutableRawBufferPointer) -> Int {
    change { calls in
      guard case .ready = readinessOfInput else { return 0 }
      let count = unsafe input.octets.move(to: buffer)
      read += UInt64(count)
      guard end == nil else { return count }
      countEnds(&calls)
      if let refused, input.octets.isEmpty || refused <= input.room {
        self.refused = nil
        calls.methods.insert(.inputHasRoom)
      }
      return count
    }
  }
  /// Copies octets out of the buffer, as many as there is room for. Returns how many: 0 unless the output is ready.
  func write(_ buffer: UnsafeRawBufferPointer) -> Int {
    change { calls in
      guard case .ready = readinessOfOutput else { return 0 }
      let count = min(buffer.count, output.room)
      unsafe output.octets.append(UnsafeRawBufferPointer(rebasing: buffer.prefix(count)), capacity: output.capacity)
      if output.room == 0 { isRoomAwaited = true }
      if isOutputAwaited && count > 0 {
        isOutputAwaited = false
        calls.methods.insert(.outputWaits)
      }
      return count
    }
  }
  /// Blocks the thread until there are octets, or none will come.
  func waitForInput() -> Readiness {
    wait { sleeper in
      let readiness = readinessOfInput
      if case .waiting = readiness { input.sleepers.append(sleeper) }
      return readiness
    }
  }
  /// Blocks the thread until there is room, or no octets will be taken.
  func waitForOutput() -> Readiness {
    wait { sleeper in
      let readiness = readinessOfOutput
      if case .waiting = readiness { output.sleepers.append(sleeper) }
      return readiness
    }
  }
  /// `prepare` is called under the lock: it returns the readiness, and while that is `waiting`, adds the semaphore to
  /// those that a change signals.
  private func wait(_ prepare: (DispatchSemaphore) -> Readiness) -> Readiness {
    while true {
      let sleeper = DispatchSemaphore(value: 0)
      let readiness = lock.withLock { prepare(sleeper) }
      guard case .waiting = readiness else { return readiness }
      sleeper.wait()
    }
  }
  /// The threads that wait now.
  var sleeperCount: Int { lock.withLock { input.sleepers.count + output.sleepers.count } }
  /// The app reads or writes no more. Octets that it has not read are dropped; what it has written is still sent. When
  /// it has closed both sides, the channel closes.
  func close(_ sides: Sides) {
    change { calls in
      let added = sides.subtracting(closed)
      guard !added.isEmpty else { return }
      closed.formUnion(added)
      if added.contains(.input) {
        input.octets.removeAll()
        read = offered
        calls.wake(&input)
        if end == nil { countEnds(&calls) }
        if refused != nil {
          refused = nil
          calls.methods.insert(.inputHasRoom)
        }
      }
      if added.contains(.output) { calls.wake(&output) }
      if closed == .both && end == nil { calls.methods.insert(.appHasClosed) }
    }
  }
}

/// Octets in the order in which they came. Its user keeps to a bound; the memory is allocated with the first octet.
struct OctetRing {
  private var storage: [UInt8] = []
  private var first = 0
  private(set) var count = 0
  var isEmpty: Bool { count == 0 }

  /// `capacity`: how much memory to allocate, unless these octets need more.
  mutating func append(_ octets: Span<UInt8>, capacity: Int) {
    unsafe octets.withUnsafeBytes { unsafe append($0, capacity: capacity) }
  }
  mutating func append(_ octets: UnsafeRawBufferPointer, capacity: Int) {
    guard octets.count > 0 else { return }
    reserve(max(capacity, count + octets.count))
    var start = first + count
    if start >= storage.count { start -= storage.count }
    let head = min(octets.count, storage.count - start)
    unsafe storage.withUnsafeMutableBytes { storage in
      unsafe UnsafeMutableRawBufferPointer(rebasing: storage[start...]).copyMemory(
        from: UnsafeRawBufferPointer(rebasing: octets.prefix(head)))
      unsafe storage.copyMemory(from: UnsafeRawBufferPointer(rebasing: octets.dropFirst(head)))
    }
    count += octets.count
  }
  /// Moves out the first octets, as many as there are and as the buffer holds, and returns how many.
  mutating func move(to buffer: UnsafeMutableRawBufferPointer) -> Int {
    let moved = min(count, buffer.count)
    let head = min(moved, storage.count - first)
    unsafe storage.withUnsafeBytes { storage in
      unsafe buffer.copyMemory(from: UnsafeRawBufferPointer(rebasing: storage[first..<first + head]))
      unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[head...]).copyMemory(
        from: UnsafeRawBufferPointer(rebasing: storage[..<(moved - head)]))
    }
    first += moved
    if first >= storage.count { first -= storage.count }
    count -= moved
    return moved
  }
  /// Moves out this many octets, for which there is room.
  mutating func move(_ count: Int, to output: inout OutputSpan<UInt8>) {
    unsafe output.withUnsafeMutableBufferPointer { buffer, initialized in
      let target = unsafe UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[initialized...])
      initialized += unsafe move(to: UnsafeMutableRawBufferPointer(rebasing: target.prefix(count)))
    }
  }
  /// Releases the memory too.
  mutating func removeAll() { self = OctetRing() }

  private mutating func reserve(_ capacity: Int) {
    guard storage.count < capacity else { return }
    var grown = [UInt8](repeating: 0, count: capacity)
    let count = count
    if count > 0 { _ = unsafe grown.withUnsafeMutableBytes { unsafe move(to: $0) } }
    storage = grown
    first = 0
    self.count = count
  }
}
