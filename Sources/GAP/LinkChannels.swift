import ATT
import BindruneWire
import GATT
import HCI
import L2CAP

// The channels of a link. A new one is an entry of the list and a line in each function.
extension Link {
  /// What L2CAP carries for us.
  static var channels: [L2CAPChannel] { [L2CAPChannel(.attribute, longestPayload: Bearer.largestMTU)] }

  @inline(__always)
  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, now: Instant, server: inout Server) {
    switch channel {
    case .attribute: bearer.receive(payload, now: now, server: &server, client: &client)
    default: break
    }
  }
  @inline(__always) mutating func nextPayload(into output: inout OutputRawSpan, now: Instant) -> ChannelID? {
    bearer.nextPDU(into: &output, now: now, client: &client) ? .attribute : nil
  }
  var hasPayload: Bool { @inline(__always) get { bearer.hasPDU(client: client) } }
}
