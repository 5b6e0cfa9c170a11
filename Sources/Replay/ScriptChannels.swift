import BindruneHCI
import BindruneL2CAP
import BindruneWire

// Credit-based channels of a trace. What an application sends on them, and which credits a host gives, the trace does
// not determine: our host has none of them, and nothing of them is compared. Requests that open none stay.
extension Script {
  mutating func leaveOutChannels(of link: Int) {
    // Where the trace begins on the link, some may have opened before.
    var hasChannels = links[link].begin == nil
    /// Requests without a response, by the direction and the identifier.
    var asked: [UInt16: Int] = [:]
    for index in links[link].steps {
      guard case .frame(let channel, let payload) = steps[index].kind else { continue }
      if ChannelID.dynamic.contains(channel.rawValue) {
        steps[index].kind = .channel
        continue
      }
      guard channel == .leSignaling, payload.count >= 2 else { continue }
      let isOurs = steps[index].direction == .fromHost, identifier = UInt16(payload[1])
      var opens = false
      switch try? AnySignal(payload.span) {
      case .leCreditBasedConnectionRequest, .creditBasedConnectionRequest:
        asked[identifier | (isOurs ? 0x100 : 0)] = index
      // After one of these responses there is a channel: Vol 3, Part A, §4.23, §4.26.
      case .leCreditBasedConnectionResponse(let response): opens = response.result == .success
      case .creditBasedConnectionResponse(let response):
        var cursor = response.destinationCIDs.cursor
        while let id = cursor.next(in: payload.span) { if id.rawValue != 0 { opens = true } }
      case .flowControlCreditIndication, .creditBasedReconfigureRequest, .creditBasedReconfigureResponse,
        .disconnectionRequest, .disconnectionResponse:
        if hasChannels { steps[index].kind = .channel }
      case .commandRejectResponse, .connectionParameterUpdateRequest, .connectionParameterUpdateResponse, nil: break
      }
      guard opens else { continue }
      hasChannels = true
      if let request = asked.removeValue(forKey: identifier | (isOurs ? 0 : 0x100)) { steps[request].kind = .channel }
      steps[index].kind = .channel
    }
    links[link].steps.removeAll { if case .channel = steps[$0].kind { true } else { false } }
  }
}
