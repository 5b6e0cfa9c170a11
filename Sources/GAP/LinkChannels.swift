import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

// The channels of a link. A new one is an entry of the list and a line in each function; bearers have the others.
extension Link {
  /// The channels that L2CAP carries for us as long as the link exists.
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
    case .securityManager: receive(securityPDU: payload, now: now, chance: &chance)
    default: receive(pdu: payload, on: channel, now: now, server: &server)
    }
  }
  @inline(__always)
  mutating func nextPayload(on channel: ChannelID, into output: inout OutputRawSpan, now: Instant) -> Bool {
    switch channel {
    case .securityManager: nextSecurityPDU(into: &output, now: now)
    default: nextPDU(on: channel, into: &output, now: now)
    }
  }
  /// The channels on which `nextPayload` appends one.
  @inline(__always) var waiting: ChannelSet {
    var waiting = waitingBearers
    if protection.manager.hasPDU { waiting.insert(.securityManager) }
    waiting.formUnion(streams.waiting)
    return waiting
  }

  /// The same with the first bearer's in any case: it is nearly always the one that has something to send.
  @inline(__always) var candidates: ChannelSet {
    var candidates = ChannelSet()
    candidates.insert(.attribute)
    addOtherBearers(to: &candidates)
    if protection.manager.hasPDU { candidates.insert(.securityManager) }
    candidates.formUnion(streams.waiting)
    return candidates
  }

  @inline(never)
  private mutating func receive(securityPDU pdu: Span<UInt8>, now: Instant, chance: inout HostChance) {
    protection.manager.receive(pdu, now: now, using: &chance)
  }
  @inline(never)
  private mutating func nextSecurityPDU(into output: inout OutputRawSpan, now: Instant) -> Bool {
    protection.manager.nextPDU(into: &output, now: now)
  }
}
