import BindruneWire
import BindruneHCI
import BindruneL2CAP
import TestSupport

let link = ConnectionHandle(rawValue: 0x0040)
/// ATT's longest PDU: Vol 3, Part F, §3.2.9, and the longest header.
let longestAttributePayload = 517

/// The layer above: records what it receives, and sends what the test sets.
struct Upper: L2CAPUpper {
  var received: [[UInt8]] = []
  var channels: [ChannelID] = []
  var links: [ConnectionHandle] = []
  var outgoing: [ConnectionHandle: [[UInt8]]] = [:]
  /// The channel of these payloads.
  var outgoingChannel = ChannelID.attribute
  /// Payloads of other channels, on any link.
  var others: [UInt16: [[UInt8]]] = [:]

  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant) {
    received.append(payload.indices.map { payload[$0] })
    channels.append(channel)
    links.append(link)
  }
  mutating func nextPayload(
    on channel: ChannelID, of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
  ) -> Bool {
    guard waiting(of: link).contains(channel) else { return false }
    let isOutgoing = channel == outgoingChannel && !outgoing[link, default: []].isEmpty
    let payload = isOutgoing ? outgoing[link]!.removeFirst() : others[channel.rawValue]!.removeFirst()
    output.append(contentsOf: payload.span)
    return true
  }
  func waiting(of link: ConnectionHandle) -> ChannelSet {
    var waiting = ChannelSet()
    if outgoing[link, default: []].isEmpty == false { waiting.insert(outgoingChannel) }
    for (number, payloads) in others where !payloads.isEmpty { waiting.insert(ChannelID(rawValue: number)) }
    return waiting
  }
}

/// One host's L2CAP with its clock.
final class Station {
  var layer = L2CAPLayer()
  var upper = Upper()
  var now = Instant.zero
  var buffer = PacketBuffer()

  init(_ role: LinkRole? = nil, carrying more: [L2CAPChannel] = []) { if let role { open(link, role, carrying: more) } }
  func open(_ link: ConnectionHandle, _ role: LinkRole, carrying more: [L2CAPChannel] = []) {
    layer.open(
      link, role: role, channels: [L2CAPChannel(.attribute, longestPayload: longestAttributePayload)] + more, now: now)
  }

  /// One packet from the controller, H4 packet type octet first.
  func deliver(_ packet: [UInt8]) throws(WireError) {
    try layer.receive(ACLPacket(packet.span), in: packet.span, now: now, into: &upper)
  }
  /// One ACL packet around `data`; `flag` is the packet boundary flag.
  func receive(_ data: [UInt8], _ flag: UInt8 = 0b10, broadcast: UInt8 = 0) {
    do throws(WireError) {
      try deliver(aclPacket(data, flag, broadcast: broadcast))
    } catch {
      preconditionFailure("\(error)")
    }
  }
  /// One command on the signaling channel.
  func receive(signal: String) { receive(frame(0x0005, octets(signal))) }

  func nextPacket(aclLength: Int = 251, for link: ConnectionHandle = link) -> [UInt8]? {
    let wants = layer.hasPacket(for: link, upper: upper)
    let wrote = buffer.fill { output in
      layer.nextPacket(for: link, aclLength: aclLength, into: &output, now: now, from: &upper)
    }
    precondition(wrote == wants, "hasPacket and nextPacket agree")
    return wrote ? buffer.bytes : nil
  }
  /// All waiting packets, each a whole frame, without the nine octets of headers: `05: 01 03 …`.
  func sent(aclLength: Int = 251) -> [String] {
    var result: [String] = []
    while let packet = nextPacket(aclLength: aclLength) {
      let headers = octets("02 40 00") + littleEndian(packet.count - 5) + littleEndian(packet.count - 9)
      precondition(Array(packet[..<7]) == headers && packet[8] == 0)
      result.append(hex([packet[7]]) + ": " + hex(packet[9...]))
    }
    return result
  }
  func request(_ request: ConnectionParameterUpdateRequest, on handle: ConnectionHandle = link) -> Bool {
    layer.requestParameterUpdate(handle, request, now: now)
  }
  func respond(_ identifier: UInt8, accepted: Bool, on handle: ConnectionHandle = link) -> Bool {
    layer.respondToParameterUpdate(handle, identifier: identifier, accepted: accepted)
  }
  var deadline: Instant? { layer.deadline(of: link) }
  func effects() -> [String] {
    var result: [String] = []
    while let effect = layer.nextEffect() { result.append(text(effect)) }
    return result
  }
}

func littleEndian(_ value: Int) -> [UInt8] { [UInt8(value & 0xFF), UInt8(value >> 8)] }
func frame(_ channel: Int, _ payload: [UInt8]) -> [UInt8] {
  littleEndian(payload.count) + littleEndian(channel) + payload
}
func aclPacket(_ data: [UInt8], _ flag: UInt8 = 0b10, broadcast: UInt8 = 0, link: ConnectionHandle = link) -> [UInt8] {
  [0x02] + littleEndian(Int(link.rawValue) | Int(flag) << 12 | Int(broadcast) << 14) + littleEndian(data.count) + data
}

/// Short, and without the link, which is always the same.
func text(_ effect: L2CAPEffect) -> String {
  switch effect {
  case .parameterUpdateRequested(_, let identifier, let request):
    """
    requested \(identifier): \(request.intervalMin.rawValue) \(request.intervalMax.rawValue) \(request.latency) \
    \(request.timeout.rawValue)
    """
  case .parameterUpdateEnded(_, let outcome): "ended: \(outcome)"
  case .channelsRequested(_, let identifier, let request):
    "\(request.count)\(request.isEnhanced ? " enhanced" : "") of \(request.spsm.text) requested \(identifier): \(request.peerMTU) \(request.peerMPS)"
  case .channelOpened(_, let channel, let facts): "open \(channel.text): \(facts.peerMTU)"
  case .channelNotOpened(_, let channel, let end): "not open \(channel.text): \(text(end))"
  case .channelClosed(_, let channel, let end): "closed \(channel.text): \(text(end))"
  case .channelReconfigured(_, let channel, let facts): "reconfigured \(channel.text): \(facts.peerMTU)"
  case .reconfigurationEnded(_, let list, let outcome): "reconfiguration of \(list.count) ended: \(text(outcome))"
  case .violation(_, let violation):
    switch violation {
    case .malformedSignal(let code, let error): "malformed \(hex([code.rawValue])): \(error)"
    case .illegalIdentifier(let code): "illegal identifier \(hex([code.rawValue]))"
    case .rejectedSignal(let code): "rejected \(hex([code.rawValue]))"
    case .unexpectedSignal(let code, let identifier): "unexpected \(hex([code.rawValue])) \(identifier)"
    case .tooManySignals(let code): "too many \(hex([code.rawValue]))"
    case .frameTooLong(let channel, let length): "too long \(channel.rawValue): \(length)"
    case .frameTooShort(let channel, let length): "too short \(channel.rawValue): \(length)"
    case .unknownChannel(let channel): "unknown channel \(channel.rawValue)"
    case .channel(let channel, let fault): "fault \(channel.text): \(fault)"
    case .unexpectedCredits(let channel, let credits): "credits \(channel.text): \(credits)"
    case .channelsRefused(let result): "channels refused \(result.text)"
    case .reconfigurationRefused(let result): "reconfiguration refused \(result.text)"
    case .invalidResponse(let code): "invalid response \(hex([code.rawValue]))"
    case .unknownLink, .illegalHandle, .illegalFlags, .orphanFragment, .incompleteFrame, .overlongFragment:
      "\(violation)"
    }
  }
}
func text(_ end: ChannelEnd) -> String {
  switch end {
  case .refused(let result): "refused \(result.text)"
  case .notUnderstood(let reason): "not understood \(reason.text)"
  case .fault(let fault): "\(fault)"
  case .invalidResponse, .timedOut, .closedHere, .closedByPeer, .linkClosed: "\(end)"
  }
}
func text(_ outcome: ReconfigureOutcome) -> String {
  switch outcome {
  case .refused(let result): "refused \(result.text)"
  case .notUnderstood(let reason): "not understood \(reason.text)"
  case .accepted, .timedOut, .linkClosed: "\(outcome)"
  }
}
