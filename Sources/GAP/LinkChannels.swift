import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI
import L2CAP

/// A bearer of a link.
struct LinkBearer: ~Copyable {
  /// What carries it.
  let channel: ChannelID
  var bearer: Bearer
  /// What an outstanding indication is about.
  var indicating: AttributeHandle?
  /// The application has been refused an indication, and is told when another is possible.
  var isIndicationRefused = false

  init(_ bearer: consuming Bearer, on channel: ChannelID) {
    self.channel = channel
    self.bearer = bearer
  }
}

/// The bearers of a link, one at least. The first stands in place, so that a link with one bearer pays for no list: Decision 0046.
struct LinkBearers: ~Copyable {
  /// The one on channel 0x0004, which is there as long as the link is.
  var first: LinkBearer
  /// In the order in which they were opened.
  var others = UniqueArray<LinkBearer>()

  init(_ first: consuming LinkBearer) { self.first = first }

  /// Calls `body` for each bearer until one returns true; then true.
  @discardableResult @inline(__always) mutating func visit(_ body: (inout LinkBearer) -> Bool) -> Bool {
    if body(&first) { return true }
    for index in others.indices where body(&others[index]) { return true }
    return false
  }
  @inline(__always) func contains(_ predicate: (borrowing LinkBearer) -> Bool) -> Bool {
    if predicate(first) { return true }
    for index in others.indices where predicate(others[index]) { return true }
    return false
  }
  @inline(__always) mutating func forEach(_ body: (inout LinkBearer) -> Void) {
    body(&first)
    for index in others.indices { body(&others[index]) }
  }
}

// The channels of a link. A new one is an entry of the list and a line in each function.
extension Link {
  /// What L2CAP carries for us.
  static var channels: [L2CAPChannel] { [L2CAPChannel(.attribute, longestPayload: Bearer.largestMTU)] }

  @inline(__always)
  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server) {
    bearers.visit {
      guard $0.channel == channel else { return false }
      $0.bearer.receive(payload, now: now, server: &server, client: &client)
      return true
    }
  }
  @inline(__always) mutating func nextPayload(into output: inout OutputRawSpan, now: Instant) -> ChannelID? {
    var channel: ChannelID?
    bearers.visit {
      guard $0.bearer.nextPDU(into: &output, now: now, client: &client) else { return false }
      channel = $0.channel
      return true
    }
    return channel
  }
  var hasPayload: Bool { @inline(__always) get { bearers.contains { $0.bearer.hasPDU(client: client) } } }
}
