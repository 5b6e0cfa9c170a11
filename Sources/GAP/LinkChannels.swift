import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI
import L2CAP
import SMP

/// A bearer of a link.
struct LinkBearer: ~Copyable {
  /// The channel that carries it.
  let channel: ChannelID
  var bearer: Bearer
  /// The handle of an outstanding indication.
  var indicating: AttributeHandle?
  /// The bearer refused the application's last indication: `.readyToSend` follows when it can take another.
  var isIndicationRefused = false

  init(_ bearer: consuming Bearer, on channel: ChannelID) {
    self.channel = channel
    self.bearer = bearer
  }
}

/// The bearers of a link, one at least. The first is stored inline, so that a link with one bearer needs no list:
/// Decision 0041.
struct LinkBearers: ~Copyable {
  /// The bearer on channel 0x0004, which exists as long as the link.
  var first: LinkBearer
  /// In the order in which they were opened.
  var others = UniqueArray<LinkBearer>()

  init(_ first: consuming LinkBearer) { self.first = first }

  /// Calls `body` for each bearer until one returns true, and then returns true.
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
  /// The channels that L2CAP carries for us.
  static var channels: [L2CAPChannel] {
    [
      L2CAPChannel(.attribute, longestPayload: Bearer.largestMTU),
      L2CAPChannel(.securityManager, longestPayload: SecurityManager.longestPDU),
    ]
  }

  @inline(__always)
  mutating func receive(
    _ payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server, chance: inout HostChance
  ) {
    switch channel {
    case .attribute: bearers.first.bearer.receive(payload, now: now, server: &server, client: &client)
    case .securityManager: receive(securityPDU: payload, now: now, chance: &chance)
    default: receiveOnOthers(payload, on: channel, now: now, server: &server)
    }
  }
  @inline(__always) mutating func nextPayload(into output: inout OutputRawSpan, now: Instant) -> ChannelID? {
    // Few and awaited: first.
    if protection.manager.hasPDU { return nextSecurityPDU(into: &output, now: now) }
    if bearers.first.bearer.nextPDU(into: &output, now: now, client: &client) { return .attribute }
    return bearers.others.isEmpty ? nil : nextPayloadOfOthers(into: &output, now: now)
  }
  var hasPayload: Bool {
    @inline(__always) get { protection.manager.hasPDU || bearers.contains { $0.bearer.hasPDU(client: client) } }
  }

  @inline(never)
  private mutating func receive(securityPDU pdu: Span<UInt8>, now: Instant, chance: inout HostChance) {
    protection.manager.receive(pdu, now: now, using: &chance)
  }
  @inline(never)
  private mutating func nextSecurityPDU(into output: inout OutputRawSpan, now: Instant) -> ChannelID? {
    protection.manager.nextPDU(into: &output, now: now) ? .securityManager : nil
  }
  @inline(never)
  private mutating func receiveOnOthers(
    _ payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server
  ) {
    for index in bearers.others.indices where bearers.others[index].channel == channel {
      bearers.others[index].bearer.receive(payload, now: now, server: &server, client: &client)
    }
  }
  @inline(never)
  private mutating func nextPayloadOfOthers(into output: inout OutputRawSpan, now: Instant) -> ChannelID? {
    for index in bearers.others.indices
    where bearers.others[index].bearer.nextPDU(into: &output, now: now, client: &client) {
      return bearers.others[index].channel
    }
    return nil
  }
}
