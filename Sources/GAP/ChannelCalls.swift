import BasicContainers
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneWire

// Channels that open on a link: the application's calls, and L2CAP's effects. Vol 3, Part A, §4.22 … §4.28, §10.
extension HostCore {
  // MARK: Services

  /// Accepts channels for this SPSM on all links. False: it has a service already, is ATT's or none of LE (0x0001 …
  /// 0x00FF: Vol 3, Part A, §4.22), or the settings are out of range.
  public mutating func listen(_ spsm: SPSM, _ service: ChannelService) -> Bool {
    guard SPSM.all.contains(spsm.rawValue), spsm != .eatt, services[spsm] == nil,
      service.settings.isValid(isEnhanced: false)
    else { return false }
    services[spsm] = service
    return true
  }
  /// Accepts no more of them. Those that are open stay.
  public mutating func stopListening(_ spsm: SPSM) { services[spsm] = nil }
  /// The least of the SPSMs that a service may choose (0x0080 … 0x00FF) without one; nil: all are in use.
  public var freeSPSM: SPSM? {
    SPSM.dynamic.lazy.map { SPSM(rawValue: $0) }.first { services[$0] == nil }
  }

  // MARK: Calls

  /// Opens a channel to the peer's service. Ends with `.completed(id, .channel(…))`. If the peer wants a better
  /// protected link, the host secures it first, as for a request of GATT's client, and asks once more.
  public mutating func openChannel(
    _ spsm: SPSM, _ settings: ChannelSettings, on link: LinkID, id: RequestID, now: Instant
  ) {
    guard let index = upper.index(of: link), self.link(at: index, { $0.isUp }) else {
      return emit(.completed(id, .failed(.noSuchLink)))
    }
    open(ChannelOpening(id: id, spsm: spsm, settings: settings, phase: .securing), at: index, now)
  }
  private mutating func open(_ opening: ChannelOpening, at index: Int, _ now: Instant) {
    do throws(ChannelRefusal) {
      let channels = try l2cap.openChannels(
        link(at: index) { $0.handle }, opening.spsm, opening.settings, count: 1, isEnhanced: false, now: now)
      var opening = opening
      opening.phase = .asked(channels[0])
      withLink(at: index) { $0.streams.openings.append(opening) }
    } catch {
      let failure: HostFailure =
        switch error {
        case .notOpen: .noSuchLink
        case .invalidParameters: .invalidParameters
        case .noFreeChannel, .busy: .busy
        }
      emit(.completed(opening.id, .failed(failure)))
    }
  }
  /// Sends an SDU, of at most `OpenChannel.longestSDU` octets.
  public mutating func send(_ sdu: Span<UInt8>, on channel: ChannelID, of link: LinkID) -> StreamAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    let handle = upper.links[index].handle, answer = upper.links[index].streams.with(channel) { $0.send(sdu) }
    if answer == .queued, l2cap.mayCarry(channel, of: handle) { hci.credits.setWants(handle, true) }
    return answer ?? .closed
  }
  /// The application has taken this many SDUs of `.channelReceived`, in order: the peer may send as many again.
  public mutating func taken(_ count: Int, on channel: ChannelID, of link: LinkID) {
    guard let index = upper.index(of: link), let handle = handle(of: channel, at: index) else { return }
    if l2cap.taken(count, on: channel, of: handle) { hci.credits.setWants(handle, true) }
  }
  /// Ends a channel: `.channelClosed` follows. `afterSending`: when the SDUs that wait have left, which a peer that gives
  /// no credit prevents; another call without it ends the channel at once.
  public mutating func closeChannel(_ channel: ChannelID, of link: LinkID, afterSending: Bool = true, now: Instant) {
    guard let index = upper.index(of: link), let handle = handle(of: channel, at: index) else { return }
    let isDue = withLink(at: index) { $0.streams.with(channel) { $0.end(afterSending: afterSending) } }
    guard isDue == true else { return }
    l2cap.closeChannel(handle, channel, now: now)
    collect(handle, now)
  }
  /// The link's handle, if it has this stream.
  private func handle(of channel: ChannelID, at index: Int) -> ConnectionHandle? {
    link(at: index) { $0.streams.index(of: channel) == nil ? nil : $0.handle }
  }
  /// Ends the channels whose last SDU has left.
  mutating func closeDrainedStreams(of handle: ConnectionHandle, _ now: Instant) {
    for channel in upper.drained { l2cap.closeChannel(handle, channel, now: now) }
    upper.drained = []
  }
  /// True if `id` awaits a channel: it does not open.
  mutating func cancelChannel(_ id: RequestID, _ now: Instant) -> Bool {
    for index in 0..<upper.links.count {
      guard let opening = withLink(at: index, { $0.streams.takeOpening(id) }) else { continue }
      if case .asked(let channel) = opening.phase {
        l2cap.closeChannel(link(at: index) { $0.handle }, channel, now: now)
        note(at: index)
      }
      return true
    }
    return false
  }

  // MARK: L2CAP's effects

  mutating func channelsRequested(_ handle: ConnectionHandle, identifier: UInt8, _ request: ChannelRequest) {
    var decision = ChannelDecision.refused(.spsmNotSupported)
    if let index = upper.index(of: handle) {
      if request.spsm == .eatt {
        decision = self.decision(on: request, at: index)
        if case .refused(.noResources) = decision { withLink(at: index) { $0.enhancedBearers.refused() } }
      } else if let service = services[request.spsm] {
        decision = service.decision(on: link(at: index) { $0.protection.security })
      }
    }
    _ = l2cap.answerChannels(handle, identifier: identifier, decision)
  }
  mutating func channelOpened(_ handle: ConnectionHandle, _ id: ChannelID, _ channel: OpenChannel, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    if channel.spsm == .eatt { return bearerOpened(channel, on: id, at: index, now) }
    let (link, opening) = withLink(at: index) {
      $0.streams.append(ChannelStream(id, channel))
      return ($0.id, $0.streams.takeOpening(of: id))
    }
    emit(opening.map { .completed($0.id, .channel(id, channel)) } ?? .channelOpened(link, id, channel))
  }
  mutating func channelNotOpened(_ handle: ConnectionHandle, _ channel: ChannelID, _ end: ChannelEnd, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    guard var opening = withLink(at: index, { $0.streams.takeOpening(of: channel) }) else {
      return bearerAnswered(channel, end, at: index, now)
    }
    guard case .refused(let result) = end, let needed = result.neededSecurity, opening.refusal == nil else {
      return emit(.completed(opening.id, .failed(.channel(end))))
    }
    opening.phase = .securing
    opening.refusal = result
    withLink(at: index) { $0.streams.openings.append(opening) }
    upper.awaitsSecurity = true
    help(needed, at: index, now)
  }
  mutating func channelClosed(_ handle: ConnectionHandle, _ channel: ChannelID, _ end: ChannelEnd) {
    guard let index = upper.index(of: handle), !bearerClosed(channel, at: index),
      withLink(at: index, { $0.streams.remove(channel) })
    else { return }
    emit(.channelClosed(link(at: index) { $0.id }, channel, end))
  }
  mutating func channelReconfigured(_ handle: ConnectionHandle, _ id: ChannelID, _ channel: OpenChannel) {
    guard let index = upper.index(of: handle) else { return }
    if channel.spsm == .eatt { return bearerReconfigured(channel, on: id, at: index) }
    withLink(at: index) { $0.streams.with(id) { $0.channel = channel } }
  }
  /// Asks again for the channels whose link has been secured, and ends the requests for those that has not been.
  mutating func continueOpenings(_ now: Instant) {
    upper.awaitsSecurity = false
    for index in 0..<upper.links.count {
      for opening in withLink(at: index, { $0.streams.takeSecured() }) {
        if opening.phase == .secured(true) {
          open(opening, at: index, now)
        } else {
          let refusal = opening.refusal ?? .insufficientAuthentication
          emit(.completed(opening.id, .failed(.channel(.refused(refusal)))))
        }
      }
      if link(at: index, { $0.streams.isSecuring }) { upper.awaitsSecurity = true }
    }
  }
}
