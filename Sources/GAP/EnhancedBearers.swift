import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire

/// # EnhancedBearers
/// **Overview**: bearers of ATT on channels of their own (EATT), beside the one on channel 0x0004. Vol 3, Part G, §5.3.
///
/// **Function**: they require an encrypted link (§5.3.2). The Central asks for them when the link has been encrypted,
/// all in one request; on LE it need not read first what the server supports (§6.2.1). Either side accepts the peer's,
/// until there are `HostConfiguration.enhancedBearers`. Requests that cross may both be refused for lack of resources:
/// the Central asks again at once (§5.4). It does not ask again for what the peer has refused otherwise. A Peripheral
/// never asks.
///
/// **Phases**: idle → asking → settled; settled → asking after requests that crossed; any → idle when the encryption
/// ends.
struct EnhancedBearers: BitwiseCopyable {
  enum Phase: BitwiseCopyable {
    case idle
    /// The peer has not answered for `left` of these channels. `hasCrossed`: it has asked for some meanwhile, and was
    /// refused.
    case asking(ChannelList, left: Int, hasCrossed: Bool)
    case settled
  }
  private(set) var phase = Phase.idle
  /// Requests after requests that crossed, which a peer could cause without end.
  private var repetitions = 0
  private static var mostRepetitions: Int { 3 }

  /// How many the peer has not answered for.
  var asked: Int { if case .asking(_, let left, _) = phase { left } else { 0 } }

  /// Nil: L2CAP cannot ask for any.
  mutating func ask(for channels: ChannelList?) {
    phase = channels.map { .asking($0, left: $0.count, hasCrossed: false) } ?? .settled
  }
  /// We have refused channels of the peer for lack of resources.
  mutating func refused() {
    if case .asking(let channels, let left, _) = phase { phase = .asking(channels, left: left, hasCrossed: true) }
  }
  /// The peer has answered for a channel; `end`: it does not open. True: ask again for those that are missing.
  mutating func answered(_ channel: ChannelID, _ end: ChannelEnd?) -> Bool {
    guard case .asking(let channels, let left, let hasCrossed) = phase, channels.contains(channel) else { return false }
    if left > 1 {
      phase = .asking(channels, left: left - 1, hasCrossed: hasCrossed)
      return false
    }
    phase = .settled
    guard hasCrossed, case .refused(.noResources)? = end, repetitions < Self.mostRepetitions else { return false }
    repetitions += 1
    return true
  }
}

extension HostCore {
  /// The link's encryption has begun or ended.
  mutating func enhance(at index: Int, _ now: Instant) {
    let (isEncrypted, role, phase) = link(at: index) {
      ($0.protection.security.key != nil, $0.role, $0.enhancedBearers.phase)
    }
    guard isEncrypted else { return closeEnhancedBearers(at: index, now) }
    if role == .central, case .idle = phase { askForBearers(at: index, now) }
  }
  private mutating func askForBearers(at index: Int, _ now: Instant) {
    let (handle, open) = link(at: index) { ($0.handle, $0.bearers.enhancedCount) }
    let missing = min(configuration.enhancedBearers, ChannelList.most) - open
    guard missing > 0 else { return }
    let channels = try? l2cap.openChannels(
      handle, .eatt, configuration.bearerChannel, count: missing, isEnhanced: true, now: now)
    withLink(at: index) { $0.enhancedBearers.ask(for: channels) }
  }
  /// The link must stay encrypted while it has them: Vol 3, Part G, §5.3.2.
  private mutating func closeEnhancedBearers(at index: Int, _ now: Instant) {
    let (handle, channels) = withLink(at: index) {
      $0.enhancedBearers = EnhancedBearers()
      return ($0.handle, $0.bearers.enhancedChannels)
    }
    for channel in channels { l2cap.closeChannel(handle, channel, now: now) }
    if !channels.isEmpty { collect(handle, now) }
  }

  // MARK: L2CAP's effects

  /// The peer asks for bearers. They have channels of the enhanced kind only: Vol 3, Part G, §5.3.2.
  func decision(on request: ChannelRequest, at index: Int) -> ChannelDecision {
    guard request.isEnhanced, configuration.enhancedBearers > 0 else { return .refused(.spsmNotSupported) }
    let (security, room) = link(at: index) {
      (
        $0.protection.security,
        configuration.enhancedBearers - $0.bearers.enhancedCount - $0.enhancedBearers.asked
      )
    }
    let decision = ChannelService(configuration.bearerChannel, security: .encrypted, leastKeySize: .shortest).decision(
      on: security)
    guard case .accepted(let settings, _) = decision else { return decision }
    return room > 0 ? .accepted(settings, atMost: room) : .refused(.noResources)
  }
  mutating func bearerOpened(_ channel: OpenChannel, on id: ChannelID, at index: Int, _ now: Instant) {
    let number = upper.freeBearer
    upper.open(
      Bearer(number, kind: .enhanced(mtu: channel.attMTU), configuration: configuration.bearer), on: id, at: index)
    note(at: index)
    reportBearers(at: index)
    bearerAnswered(id, nil, at: index, now)
  }
  /// The peer has answered our request for the bearer on this channel, if it is one.
  mutating func bearerAnswered(_ channel: ChannelID, _ end: ChannelEnd?, at index: Int, _ now: Instant) {
    if withLink(at: index, { $0.enhancedBearers.answered(channel, end) }) { askForBearers(at: index, now) }
  }
  /// The channel of a bearer has ended: what waits on it fails. False if it carries none.
  mutating func bearerClosed(_ channel: ChannelID, at index: Int) -> Bool {
    guard let id = withLink(at: index, { $0.closeBearer(on: channel) }) else { return false }
    collect(at: index)
    upper.remove(id, at: index)
    reportBearers(at: index)
    return true
  }
  /// The peer accepts longer SDUs: Vol 3, Part G, §5.3.1.
  mutating func bearerReconfigured(_ channel: OpenChannel, on id: ChannelID, at index: Int) {
    withLink(at: index) { link in
      guard let place = link.bearers.place(of: id) else { return }
      link.bearers.with(place) { $0.bearer.reconfigured(mtu: channel.attMTU) }
    }
  }
  private mutating func reportBearers(at index: Int) {
    let (id, count) = link(at: index) { ($0.id, $0.bearers.enhancedCount) }
    emit(.bearersChanged(id, enhanced: count))
  }
}

extension HostConfiguration {
  /// An ATT PDU is one SDU (Vol 3, Part G, §5.3.2), and is taken at once.
  fileprivate var bearerChannel: ChannelSettings {
    ChannelSettings(mtu: UInt16(clamping: max(preferredMTU, Bearer.leastEnhancedMTU)), takesAtOnce: true)
  }
}

extension OpenChannel {
  /// Vol 3, Part G, §5.3.1.
  fileprivate var attMTU: Int { Int(min(mtu, peerMTU)) }
}
