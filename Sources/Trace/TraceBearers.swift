import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// # TraceBearers
/// **Overview**: the enhanced bearers of the Attribute Protocol that a trace shows, for ``Dissector``. Vol 3, Part G,
/// §5.3.
///
/// **Function**: it reads the signaling channels of all connections, remembers which channels belong to a bearer, and
/// joins the K-frames of each direction to PDUs: a PDU is one SDU (§5.3.2). A bearer whose request the trace lacks is
/// not known.
///
/// **Phases** of a bearer's direction: idle → joining → idle; either → lost, at a frame that leaves open where the next
/// SDU begins.
struct TraceBearers: Sendable {
  /// Connections whose signaling is remembered, and bearers of each.
  private static var mostLinks: Int { 512 }
  private static var mostBearers: Int { 16 }

  private struct Bearer: Sendable {
    var host: ChannelID, peer: ChannelID
    /// Of SDUs from the host, and from the peer.
    var sent = Joining.idle, received = Joining.idle
  }
  private enum Joining: Sendable {
    case idle
    case joining(SDU)
    case lost
  }
  private struct SDU: Sendable {
    /// What the recorder kept of it, and how much of it was sent.
    var octets: [UInt8], received: Int
    let expected: Int
  }
  private struct Link: Sendable {
    var requests = ChannelRequests()
    var bearers: [Bearer] = []
  }
  private var links: [UInt64: Link] = [:]

  var isEmpty: Bool { links.isEmpty }

  private static func key(_ adapter: UInt16, _ connection: UInt32) -> UInt64 {
    UInt64(adapter) << 32 | UInt64(connection)
  }

  /// The connection begins or has ended.
  mutating func forget(_ adapter: UInt16, _ connection: UInt32) { links[Self.key(adapter, connection)] = nil }

  /// A packet of the connection is not known: neither is where the next SDU of a bearer begins.
  mutating func lose(_ adapter: UInt16, _ connection: UInt32) {
    let key = Self.key(adapter, connection)
    for index in (links[key]?.bearers ?? []).indices {
      links[key]?.bearers[index].sent = .lost
      links[key]?.bearers[index].received = .lost
    }
  }
  /// A frame of the LE signaling channel.
  mutating func learn(_ frame: TraceFrame, _ payload: Span<UInt8>) {
    guard let direction = frame.direction, !payload.isEmpty else { return }
    let key = Self.key(frame.adapter, frame.connection)
    guard links.count < Self.mostLinks || links[key] != nil else { return }
    var link = links.removeValue(forKey: key) ?? Link()
    defer { links[key] = link }
    for event in link.requests.receive(payload.extracting(first: payload.signalCount(at: 0)), direction) {
      switch event {
      case .opened(let opening):
        // One of the same number has ended where the trace does not show it.
        link.bearers.removeAll { $0.host == opening.host || $0.peer == opening.peer }
        guard opening.spsm == .eatt, opening.isEnhanced, link.bearers.count < Self.mostBearers else { continue }
        link.bearers.append(Bearer(host: opening.host, peer: opening.peer))
      case .closed(let number, let owner):
        link.bearers.removeAll { (owner == .fromHost ? $0.host : $0.peer) == number }
      case .reconfigured, .credited: break
      }
    }
  }

  /// The bearer of a K-frame, by its number at the host; nil: the trace shows none.
  func bearer(of frame: TraceFrame) -> ChannelID? {
    guard let direction = frame.direction, let link = links[Self.key(frame.adapter, frame.connection)] else {
      return nil
    }
    return link.bearers.first { (direction == .fromHost ? $0.peer : $0.host) == frame.channel }?.host
  }

  /// A K-frame of `frame.bearer`. Returns what is known of the SDU that ends with it, and its length.
  mutating func join(_ frame: TraceFrame, _ payload: Span<UInt8>) -> (octets: [UInt8], length: Int)? {
    let key = Self.key(frame.adapter, frame.connection)
    // Taken out, so that its octets are appended in place.
    guard var link = links.removeValue(forKey: key) else { return nil }
    defer { links[key] = link }
    guard let place = link.bearers.firstIndex(where: { $0.host == frame.bearer }) else { return nil }
    return frame.direction == .fromHost
      ? Self.join(&link.bearers[place].sent, frame, payload) : Self.join(&link.bearers[place].received, frame, payload)
  }
  private static func join(
    _ state: inout Joining, _ frame: TraceFrame, _ payload: Span<UInt8>
  ) -> (octets: [UInt8], length: Int)? {
    var sdu: SDU, rest = payload, length = frame.length
    switch state {
    case .lost: return nil
    case .joining(let begun): sdu = begun
    case .idle:
      // The first K-frame begins with the SDU's length. Vol 3, Part A, §3.4.3.
      guard payload.count >= CreditFrame.lengthCount else {
        state = .lost
        return nil
      }
      sdu = SDU(octets: [], received: 0, expected: Int(payload.little16(0)))
      rest = payload.extracting(droppingFirst: CreditFrame.lengthCount)
      length -= CreditFrame.lengthCount
    }
    state = .idle
    // Behind a frame that was cut, further octets have no place.
    if sdu.octets.count == sdu.received {
      unsafe rest.withUnsafeBufferPointer { unsafe sdu.octets.append(contentsOf: $0) }
    }
    sdu.received += length
    guard sdu.received >= sdu.expected else {
      state = .joining(sdu)
      return nil
    }
    guard sdu.received == sdu.expected else {
      // An SDU that is longer than it says ends its channel. Vol 3, Part A, §10.1.
      state = .lost
      return nil
    }
    return (sdu.octets, sdu.expected)
  }
}
