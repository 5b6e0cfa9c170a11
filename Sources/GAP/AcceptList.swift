import BindruneWire
import BindruneHCI

/// # AcceptList
/// **Overview**: the controller's Filter Accept List, as far as it is known: Vol 4, Part E, §7.8.14 – §7.8.17.
///
/// **Function**: names the next change on the way to its peers. A list whose contents are unknown is cleared first
/// (§7.8.15). It decides when attempts use the list: one that an event ends is repeated once, because the failure may
/// be that of a moment, such as 0x3E; then the list pauses.
struct AcceptList {
  enum Change: BitwiseCopyable { case clear, add(PeerAddress), remove(PeerAddress) }
  private enum Contents {
    case known([PeerAddress])
    /// The controller has refused a change, or has not answered.
    case unknown
  }
  private enum Use: BitwiseCopyable {
    case trusted
    /// The last attempt with the list has failed.
    case failedOnce
    /// Until then attempts have one peer each.
    case paused(until: Instant)
  }

  /// Usable entries; below 2 the list is not used.
  var size = 0
  private var contents = Contents.known([])
  private var use = Use.trusted

  /// How many peers the next attempt can have; nil: the list is not used.
  var places: Int? {
    if case .paused = use { return nil }
    return size > 1 ? size : nil
  }
  /// When it is used again.
  var pause: Instant? { if case .paused(let until) = use { until } else { nil } }
  mutating func expire(now: Instant) { if let pause, pause <= now { use = .trusted } }

  /// The next change on the way to `peers`.
  func change(to peers: [PeerAddress]) -> Change? {
    switch contents {
    case .unknown: return .clear
    case .known(let listed):
      if let peer = listed.first(where: { !peers.contains($0) }) { return .remove(peer) }
      return peers.first { !listed.contains($0) }.map { .add($0) }
    }
  }
  /// The controller has answered a change. Returns false if attempts should pause: the contents are unknown.
  mutating func learn(_ change: Change, _ status: HCIStatus) -> Bool {
    var listed: [PeerAddress] = []
    if case .known(let peers) = contents { listed = peers }
    switch change {
    case .clear where status == .success: contents = .known([])
    case .add(let peer) where status == .success: contents = .known(listed + [peer])
    case .remove(let peer) where status == .success: contents = .known(listed.filter { $0 != peer })
    // The list holds fewer entries than reported.
    case .add where status == .memoryCapacityExceeded: size = listed.count
    case .clear, .add, .remove:
      contents = .unknown
      return false
    }
    return true
  }

  mutating func pause(until: Instant) { use = .paused(until: until) }
  /// A link has come up.
  mutating func succeeded() { if case .failedOnce = use { use = .trusted } }
  /// Returns whether an attempt before this one has failed too.
  mutating func failed() -> Bool {
    switch use {
    case .trusted:
      use = .failedOnce
      return false
    case .failedOnce, .paused: return true
    }
  }
}
