import BindruneWire

/// A channel that the driver keeps until the core says whose it is.
struct ArrivedChannel: Hashable, Sendable {
  var rawValue: UInt64
}
/// What a session gets an arrived channel for.
enum ChannelUse: Sendable {
  case opened(OperationID, peer: UUID)
  case accepted(central: UUID, longestUpdate: Int)
}

/// Which session's each channel and each PSM is, until the channel is with its session.
struct Channels: Sendable {
  var openings: [RequestID: Opening] = [:]
  /// Requests for a PSM that the host has not answered.
  var publications: [RequestID: (id: OperationID, session: SessionID)] = [:]
  var published: [UInt16: SessionID] = [:]

  struct Opening {
    let id: OperationID
    let session: SessionID
    let link: LinkID
    let peer: UUID
    /// The session does not use the link any more.
    var isOver = false
  }
}

extension BrokerCore {
  mutating func openChannel(_ psm: SPSM, _ id: OperationID, _ peer: UUID, _ session: SessionID) {
    guard let link = link(of: peer, for: session, id) else { return }
    let request = begin(
      .openChannel(link, psm, mtu: Self.longestSDU, capacity: Self.octetsToSend), isPlaced: false)
    channels.openings[request] = Channels.Opening(id: id, session: session, link: link, peer: peer)
  }
  mutating func publishChannel(isEncrypted: Bool, _ id: OperationID, of session: SessionID) {
    let request = RequestID(rawValue: newNumber())
    channels.publications[request] = (id, session)
    command(.listen(request, isEncrypted: isEncrypted))
  }
  mutating func unpublishChannel(_ psm: UInt16, _ id: OperationID, of session: SessionID) {
    guard channels.published[psm] == session else {
      return complete(
        id, of: session,
        .failure(BluetoothError(.invalidArgument, "PSM \(psm) is not published here: unpublish one that is.")))
    }
    channels.published[psm] = nil
    command(.stopListening(psm: psm))
    complete(id, of: session, .success(.done))
  }
  /// The longest SDU in either direction, and how many octets wait for the peer's credits, in octets.
  static var longestSDU: Int { 2048 }
  static var octetsToSend: Int { 16 * 1024 }

  /// False: the request is not one for a channel.
  mutating func channelOpened(_ request: RequestID, _ result: Result<HostAnswer, BluetoothError>) -> Bool {
    guard let opening = channels.openings.removeValue(forKey: request) else { return false }
    switch result {
    case .success(.channel(let channel)) where !opening.isOver:
      put(.lendChannel(channel, opening.session, .opened(opening.id, peer: opening.peer)))
    case .success(.channel(let channel)): put(.dropChannel(channel))
    // The host answers with a channel or an error.
    case .success: break
    case .failure(let error):
      // The link's end follows, and ends all pending operations.
      if !opening.isOver, !error.isEndOfLink { complete(opening.id, of: opening.session, .failure(error)) }
    }
    return true
  }
  mutating func listens(_ request: RequestID, _ result: Result<UInt16, BluetoothError>) {
    switch (result, channels.publications.removeValue(forKey: request)) {
    case (.success(let psm), let (id, session)?):
      channels.published[psm] = session
      complete(id, of: session, .success(.psm(psm)))
    case (.failure(let error), let (id, session)?): complete(id, of: session, .failure(error))
    // The session has ended meanwhile.
    case (.success(let psm), nil): command(.stopListening(psm: psm))
    case (.failure, nil): break
    }
  }
  mutating func channelAccepted(_ channel: ArrivedChannel, _ psm: UInt16, on link: LinkID) {
    guard let session = channels.published[psm], let client = serving.clients[link] else {
      return put(.dropChannel(channel))
    }
    introduce(link, to: session)
    put(.lendChannel(channel, session, .accepted(central: client.peer, longestUpdate: longestUpdate(link))))
  }

  /// The session uses the link no more.
  mutating func abandonChannels(on link: LinkID, of session: SessionID) {
    for (request, opening) in channels.openings.sorted(by: { $0.key.rawValue < $1.key.rawValue })
    where opening.link == link && opening.session == session {
      channels.openings[request]?.isOver = true
      command(.cancel(request))
    }
    if let peer = links[link]?.peer { put(.endChannels(session, identifier(of: peer, for: session))) }
  }
  /// The host is gone, with all channels and PSMs.
  mutating func forgetChannels() {
    let publications = channels.publications.sorted { $0.key.rawValue < $1.key.rawValue }
    channels = Channels()
    for (_, (id, session)) in publications { complete(id, of: session, .failure(notReady)) }
  }
  /// The session has been closed, or its process has ended. Its driver ends its channels.
  mutating func endPublications(of session: SessionID) {
    channels.publications = channels.publications.filter { $0.value.session != session }
    for psm in channels.published.filter({ $0.value == session }).keys.sorted() {
      channels.published[psm] = nil
      command(.stopListening(psm: psm))
    }
  }
}
