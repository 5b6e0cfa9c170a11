import BasicContainers
import BindruneWire

/// Which link may put an ACL packet into one of the controller's buffers. Vol 4, Part E, §4.1.1.
///
/// # Overview
/// The controller has `total` buffers. A packet occupies one until Number Of Completed Packets returns it, or until its
/// link ends: the controller then drops the link's packets without an event (§4.3).
///
/// # Function
/// `next` grants a buffer to the link, among those that want one, with the fewest packets in the controller; equal
/// links take turns. Two limits prevent a link whose peer is silent from collecting all buffers:
/// - While another link waits, none holds more than max(1, ⌊total / links with data⌋), where a link with data wants
///   a buffer or holds some.
/// - A link that waits alone leaves one buffer for each other open link, so that any of them can begin at once; but
///   it may always hold half of the buffers.
///
/// The cost of a silent peer for the others until the supervision time-out ends its link, as `whatASilentPeerCosts`
/// measures it over the air with 1 … 16 buffers and 2 … 4 links:
/// - Silent while the others send, it keeps its share, and theirs is unchanged: no cost, with as many buffers as links.
///   With fewer, but at least two, the others take turns with those that are left. How much that costs depends on when
///   their connection events follow one another: with 4 links and 2 buffers nothing, or half of their values.
/// - Silent while it alone sends, it keeps its buffers, and they have the others: with as many buffers as links that
///   costs nothing, with twice as many half of their values, with four times as many three quarters.
/// - If the controller has a single buffer, it may hold that, and then no other link sends.
public struct DataCredits: ~Copyable {
  /// The most data octets in one packet.
  public private(set) var aclLength = 0
  /// The controller's buffers.
  public private(set) var total = 0
  /// Buffers that are empty.
  @inlinable public var free: Int { freeCount }
  @usableFromInline var freeCount = 0

  @usableFromInline struct Link: BitwiseCopyable {
    @usableFromInline var handle: ConnectionHandle
    @usableFromInline var inController = 0
    /// Packets that the controller has reported as completed, modulo 2³².
    @usableFromInline var completed: UInt32 = 0
    @usableFromInline var wants = false
    /// It gets no buffers: see `stop`.
    @usableFromInline var isStopped = false
    init(handle: ConnectionHandle) { self.handle = handle }
  }
  /// In turn: the search begins after the link served last.
  @usableFromInline var links = UniqueArray<Link>()
  /// Indexes of `links` by connection handle, `nowhere` for those that are not open. Not a `PlaceTable`, whose array
  /// costs 12 instructions more of the 209 for a value on one of 32 links.
  @usableFromInline var places = UniqueArray<UInt16>()
  @usableFromInline static var nowhere: UInt16 { .max }
  @usableFromInline var turn = 0
  /// The number of links that want a buffer or are stopped, and the index of the latest: often the only one.
  @usableFromInline var waiting = 0, latest = 0
  /// The limit for a link that waits alone.
  @usableFromInline var limitAlone = 0
  /// Links that want a buffer or hold some.
  @usableFromInline var withData = 0

  public init() {}

  /// The buffers of a controller that has just been reset; it has no links.
  public mutating func configure(aclLength: Int, total: Int) {
    self.aclLength = aclLength
    self.total = total
    freeCount = total
    links.removeAll(keepingCapacity: true)
    for handle in places.indices { places[handle] = Self.nowhere }
    turn = 0
    waiting = 0
    withData = 0
  }

  @inlinable @inline(__always) func index(_ handle: ConnectionHandle) -> Int? {
    let handle = Int(handle.rawValue)
    guard handle < places.count, places[handle] != Self.nowhere else { return nil }
    return Int(places[handle])
  }
  public func isOpen(_ handle: ConnectionHandle) -> Bool { index(handle) != nil }
  /// The link's packets in the controller.
  public func outstanding(_ handle: ConnectionHandle) -> Int { index(handle).map { links[$0].inController } ?? 0 }

  /// Packets of the link that the controller has completed: the peer has acknowledged them (Vol 4, Part E, §7.7.19).
  /// Modulo 2³².
  public func completed(_ handle: ConnectionHandle) -> UInt32 { index(handle).map { links[$0].completed } ?? 0 }

  /// A new link, with nothing to send. False when it is open already.
  @discardableResult public mutating func open(_ handle: ConnectionHandle) -> Bool {
    guard index(handle) == nil else { return false }
    while places.count <= Int(handle.rawValue) { places.append(Self.nowhere) }
    places[Int(handle.rawValue)] = UInt16(links.count)
    links.append(Link(handle: handle))
    setLimitAlone()
    return true
  }
  private mutating func setLimitAlone() {
    limitAlone = links.count == 1 ? total : max(1, total / 2, total - (links.count - 1))
  }
  /// The link has ended: its buffers are free again.
  public mutating func close(_ handle: ConnectionHandle) {
    guard let index = index(handle) else { return }
    resume(handle)
    setWants(handle, false)
    if links[index].inController > 0 { withData -= 1 }
    freeCount += links[index].inController
    links.remove(at: index)
    places[Int(handle.rawValue)] = Self.nowhere
    for later in index..<links.count { places[Int(links[later].handle.rawValue)] = UInt16(later) }
    if turn > index { turn -= 1 }
    setLimitAlone()
  }

  /// The link gets no more buffers, whatever it wants, until `resume`. It counts as waiting, so that `takeAtOnce` gives
  /// buffers to none.
  public mutating func stop(_ handle: ConnectionHandle) {
    guard let index = index(handle), !links[index].isStopped else { return }
    setWants(handle, false)
    links[index].isStopped = true
    waiting += 1
  }
  /// Ends `stop`. The link wants no buffer now: call `setWants`.
  public mutating func resume(_ handle: ConnectionHandle) {
    guard let index = index(handle), links[index].isStopped else { return }
    links[index].isStopped = false
    waiting -= 1
  }

  /// Records whether the link has a packet to send.
  @inlinable @inline(__always) public mutating func setWants(_ handle: ConnectionHandle, _ wants: Bool) {
    guard let index = index(handle) else { return }
    if wants { latest = index }
    var link = links[index]
    guard link.wants != wants else { return }
    if link.isStopped { return }
    link.wants = wants
    links[index] = link
    waiting &+= wants ? 1 : -1
    if link.inController == 0 { withData &+= wants ? 1 : -1 }
  }

  /// False if `next` is nil whatever the limits are.
  @inlinable @inline(__always) public var mayGrant: Bool { freeCount > 0 && waiting > 0 }
  /// The link that may put one packet into the controller now: the caller does so and calls `took`, or `setWants` if
  /// the link has none. Nil when no link may.
  ///
  /// Mutating for speed alone: a value of this size that is borrowed for a call is copied (24 instructions).
  @inlinable @inline(__always) public mutating func next() -> ConnectionHandle? {
    guard mayGrant else { return nil }
    if waiting == 1, latest < links.count {
      let link = links[latest]
      if link.wants { return link.inController < limitAlone ? link.handle : nil }
    }
    return nextOfSeveral()
  }
  @usableFromInline mutating func nextOfSeveral() -> ConnectionHandle? {
    // Stopped links count as waiting, and may be all that do.
    let limit = waiting > 1 ? max(1, total / max(1, withData)) : limitAlone
    var best: Int?, fewest = limit
    for step in 0..<links.count {
      let index = turn &+ step < links.count ? turn &+ step : turn &+ step &- links.count
      guard links[index].wants, links[index].inController < fewest else { continue }
      best = index
      fewest = links[index].inController
      // No link has fewer.
      if fewest == 0 { break }
    }
    return best.map { links[$0].handle }
  }

  /// A packet of this link went to the controller. Only after `next` has named the link (traps otherwise). `wantsMore`:
  /// it has another packet.
  @inlinable @inline(__always) public mutating func took(_ handle: ConnectionHandle, wantsMore: Bool = true) {
    guard freeCount > 0, let index = index(handle) else { preconditionFailure("no buffer was granted to this link") }
    freeCount &-= 1
    let held = links[index].inController, wants = links[index].wants
    if held == 0, !wants { withData &+= 1 }
    links[index].inController = held &+ 1
    if !wantsMore, wants {
      links[index].wants = false
      waiting &-= 1
    }
    turn = index &+ 1 < links.count ? index &+ 1 : 0
  }

  /// Takes a buffer for a packet of this link at once, if there is one and no link waits: equivalent to `setWants`,
  /// `next` and `took`.
  @inlinable @inline(__always) public mutating func takeAtOnce(_ handle: ConnectionHandle) -> Bool {
    guard freeCount > 0, waiting == 0, let index = index(handle) else { return false }
    let held = links[index].inController
    guard held < limitAlone else { return false }
    if held == 0 { withData &+= 1 }
    links[index].inController = held &+ 1
    freeCount &-= 1
    turn = index &+ 1 < links.count ? index &+ 1 : 0
    return true
  }

  /// Returns a buffer that was taken for a packet that was not sent.
  public mutating func giveBack(_ handle: ConnectionHandle) {
    guard let index = index(handle), completed(handle, 1) == nil else { return }
    links[index].completed &-= 1
  }
  /// Number Of Completed Packets for one link. A number that exceeds the outstanding packets counts as those.
  @inlinable
  public mutating func completed(_ handle: ConnectionHandle, _ count: Int) -> HCIViolation? {
    guard let index = index(handle) else { return .completedPacketsOfUnknownLink(handle) }
    let given = min(count, links[index].inController)
    links[index].inController &-= given
    links[index].completed &+= UInt32(truncatingIfNeeded: given)
    if given > 0, links[index].inController == 0, !links[index].wants { withData &-= 1 }
    freeCount &+= given
    return given == count ? nil : .tooManyCompletedPackets(handle, UInt16(clamping: count &- given))
  }
}
