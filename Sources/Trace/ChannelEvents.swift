import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// What a signaling command of a trace did to the credit-based channels of its connection. Vol 3, Part A, §4.22 to
/// §4.28.
///
/// A channel is named by the device that has the number, as a direction: `.fromHost` is the host.
enum ChannelEvent: Sendable {
  /// What a device states of its own end.
  struct Terms: Sendable { var mtu: UInt16, mps: UInt16, credits: UInt16 }
  struct Opening: Sendable {
    var spsm: SPSM
    /// Of an enhanced request.
    var isEnhanced: Bool
    /// Who asked for it.
    var asker: HCIDirection
    /// The numbers of the channel at the host and at the peer, and what each can receive.
    var host: ChannelID, peer: ChannelID
    var hostTerms: Terms, peerTerms: Terms
  }
  case opened(Opening)
  case reconfigured(ChannelID, of: HCIDirection, mtu: UInt16, mps: UInt16)
  case credited(ChannelID, of: HCIDirection, UInt16)
  case closed(ChannelID, of: HCIDirection)
}

/// Requests of one connection that await their responses, and what the responses do.
struct ChannelRequests: Sendable {
  /// Requests that are remembered.
  private static var most: Int { 64 }
  private struct Key: Hashable { var asker: HCIDirection, identifier: UInt8 }
  /// The octets of what awaits its response.
  private var waiting: [Key: [UInt8]] = [:]

  /// One command of the LE signaling channel.
  mutating func receive(_ command: Span<UInt8>, _ direction: HCIDirection) -> [ChannelEvent] {
    var decoded: AnySignal?
    do throws(WireError) { decoded = try AnySignal(command) } catch { return [] }
    guard let signal = decoded else { return [] }
    let own = Key(asker: direction, identifier: command[1])
    let asked = Key(asker: direction.opposite, identifier: command[1])
    switch signal {
    case .leCreditBasedConnectionRequest, .creditBasedConnectionRequest, .creditBasedReconfigureRequest:
      if waiting.count < Self.most || waiting[own] != nil { waiting[own] = command.array }
      return []
    case .leCreditBasedConnectionResponse(let answer):
      guard let request = waiting.removeValue(forKey: asked), answer.result == .success,
        case .leCreditBasedConnectionRequest(let terms)? = try? AnySignal(request.span)
      else { return [] }
      return [
        opening(
          terms.spsm, isEnhanced: false, by: direction.opposite, (terms.sourceCID, answer.destinationCID),
          (
            .init(mtu: terms.mtu, mps: terms.mps, credits: terms.initialCredits),
            .init(mtu: answer.mtu, mps: answer.mps, credits: answer.initialCredits)
          ))
      ]
    case .creditBasedConnectionResponse(let answer):
      // Another response follows.
      if answer.result.isPending { return [] }
      guard let request = waiting.removeValue(forKey: asked),
        case .creditBasedConnectionRequest(let terms)? = try? AnySignal(request.span)
      else { return [] }
      var sources = terms.sourceCIDs.cursor, destinations = answer.destinationCIDs.cursor
      var events: [ChannelEvent] = []
      while let source = sources.next(in: request.span), let destination = destinations.next(in: command) {
        // A channel that was refused has the identifier 0.
        guard destination.rawValue != 0 else { continue }
        events.append(
          opening(
            terms.spsm, isEnhanced: true, by: direction.opposite, (source, destination),
            (
              .init(mtu: terms.mtu, mps: terms.mps, credits: terms.initialCredits),
              .init(mtu: answer.mtu, mps: answer.mps, credits: answer.initialCredits)
            )))
      }
      return events
    case .creditBasedReconfigureResponse(let answer):
      guard let request = waiting.removeValue(forKey: asked), answer.result == .success,
        case .creditBasedReconfigureRequest(let terms)? = try? AnySignal(request.span)
      else { return [] }
      var numbers = terms.destinationCIDs.cursor, events: [ChannelEvent] = []
      while let number = numbers.next(in: request.span) {
        events.append(.reconfigured(number, of: direction.opposite, mtu: terms.mtu, mps: terms.mps))
      }
      return events
    case .disconnectionResponse(let answer): return [.closed(answer.destinationCID, of: direction)]
    case .flowControlCreditIndication(let given): return [.credited(given.cid, of: direction, given.credits)]
    case .commandRejectResponse:
      waiting[asked] = nil
      return []
    case .disconnectionRequest, .connectionParameterUpdateRequest, .connectionParameterUpdateResponse: return []
    }
  }
  /// `numbers` and `terms`: of the asker, and of the other.
  private func opening(
    _ spsm: SPSM, isEnhanced: Bool, by asker: HCIDirection, _ numbers: (ChannelID, ChannelID),
    _ terms: (ChannelEvent.Terms, ChannelEvent.Terms)
  ) -> ChannelEvent {
    let isHosts = asker == .fromHost
    return .opened(
      ChannelEvent.Opening(
        spsm: spsm, isEnhanced: isEnhanced, asker: asker, host: isHosts ? numbers.0 : numbers.1,
        peer: isHosts ? numbers.1 : numbers.0, hostTerms: isHosts ? terms.0 : terms.1,
        peerTerms: isHosts ? terms.1 : terms.0))
  }
}
