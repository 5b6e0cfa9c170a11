import BasicContainers
import BindruneWire

/// Whose turn it is to put an ACL packet into one of the controller's buffers. Vol 4, Part E, §4.1.1.
///
/// # Overview
/// The controller has `total` buffers. A packet takes one until Number Of Completed Packets gives it back, or until its
/// link ends: the controller then drops the link's packets and says nothing more (§4.3).
///
/// # Function
/// `next` grants a buffer to the link, among those that want one, with the fewest packets in the controller; equal ones
/// take turns. Two limits keep a link whose peer has gone silent from collecting all buffers:
/// - While another link waits too, none holds more than max(1, ⌊total / links with data⌋), where a link with data wants
///   a buffer or holds some.
/// - A link that is alone leaves one buffer for each other open link, so that whoever comes next can begin at once.
///
/// A peer that goes silent while others send keeps its share, which costs them little where there are two buffers or more
/// for each link. One that goes silent while it is alone keeps what it took: the next link has one buffer until the
/// supervision time-out ends the silent one. With fewer buffers than links there may be none left for it until then.
public struct DataCredits: ~Copyable {
  /// The most data octets in one packet.
  public private(set) var aclLength = 0
  /// The controller's buffers.
  public private(set) var total = 0
  /// Those with nothing in them.
  public private(set) var free = 0

  // Not private: Swift 6.3.1 cannot emit the outlined destroy of a UniqueArray of a private type in another file.
  struct Link: BitwiseCopyable {
    var handle: ConnectionHandle
    var inController = 0
    var wants = false
  }
  /// In turn: the link after the one served last is asked first.
  private var links = UniqueArray<Link>()
  private var turn = 0

  public init() {}

  /// The buffers of a controller that has just been reset; it has no links.
  public mutating func configure(aclLength: Int, total: Int) {
    self.aclLength = aclLength
    self.total = total
    free = total
    links.removeAll(keepingCapacity: true)
    turn = 0
  }

  private func index(_ handle: ConnectionHandle) -> Int? {
    for i in 0..<links.count where links[i].handle == handle { return i }
    return nil
  }
  public func isOpen(_ handle: ConnectionHandle) -> Bool { index(handle) != nil }
  /// The link's packets in the controller.
  public func outstanding(_ handle: ConnectionHandle) -> Int { index(handle).map { links[$0].inController } ?? 0 }

  /// A new link, with nothing to send. False when it is open already.
  @discardableResult public mutating func open(_ handle: ConnectionHandle) -> Bool {
    guard index(handle) == nil else { return false }
    links.append(Link(handle: handle))
    return true
  }
  /// The link has ended: its buffers are free again.
  public mutating func close(_ handle: ConnectionHandle) {
    guard let index = index(handle) else { return }
    free += links[index].inController
    links.remove(at: index)
    if turn > index { turn -= 1 }
  }

  /// The link has, or no longer has, a packet to send.
  public mutating func setWants(_ handle: ConnectionHandle, _ wants: Bool) {
    if let index = index(handle) { links[index].wants = wants }
  }

  /// The link that may put one packet into the controller now: the caller does so and says `took`, or says that the link
  /// does not want to. Nil when no link may.
  public func next() -> ConnectionHandle? {
    guard free > 0 else { return nil }
    if links.count == 1 { return links[0].wants ? links[0].handle : nil }
    var waiting = 0, withData = 0
    for i in 0..<links.count {
      if links[i].wants { waiting += 1 }
      if links[i].wants || links[i].inController > 0 { withData += 1 }
    }
    guard waiting > 0 else { return nil }
    let limit = max(1, waiting > 1 ? total / withData : total - (links.count - 1))
    var best: Int?
    for step in 0..<links.count {
      let i = turn + step < links.count ? turn + step : turn + step - links.count
      guard links[i].wants, links[i].inController < limit else { continue }
      if let best, links[best].inController <= links[i].inController { continue }
      best = i
    }
    return best.map { links[$0].handle }
  }

  /// A packet of this link went to the controller. Only after `next` has named it (traps otherwise).
  public mutating func took(_ handle: ConnectionHandle) {
    guard free > 0, let index = index(handle) else { preconditionFailure("no buffer was granted to this link") }
    free -= 1
    links[index].inController += 1
    turn = index + 1 < links.count ? index + 1 : 0
  }

  /// Number Of Completed Packets for one link. More than there are count as those there are.
  mutating func completed(_ handle: ConnectionHandle, _ count: Int) -> HCIViolation? {
    guard let index = index(handle) else { return .completedPacketsOfUnknownLink(handle) }
    let given = min(count, links[index].inController)
    links[index].inController -= given
    free += given
    return given == count ? nil : .tooManyCompletedPackets(handle, UInt16(clamping: count - given))
  }
}
