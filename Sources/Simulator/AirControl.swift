import BindruneWire
import BindruneHCI

// Link layer control procedures: how an end reacts to a control PDU. Vol 6, Part B, §5.1.

extension Air {
  mutating func receive(_ pdu: LLControl, at end: LinkPlace) {
    let i = medium.links[end].controller.index, id = end.link
    switch pdu {
    case .terminate(let reason): medium.links[end].receiveTermination(reason)
    case .connectionUpdate(let parameters):
      if configuration.isInstant { apply(parameters, id) } else { medium.links[id].plan(parameters) }
    case .channelMap(let channels):
      if configuration.isInstant { medium.links[id].channels = channels } else { medium.links[id].plan(channels) }
    case .featureRequest:
      reply(.featureResponse(controllers[i].configuration.features), end)
    case .peripheralFeatureRequest:
      guard controllers[i].has(.peripheralInitiatedFeaturesExchange) else { return refuse(pdu, end) }
      reply(.featureResponse(controllers[i].configuration.features), end)
    case .featureResponse(let features): receive(features, end)
    case .featurePageRequest(let page):
      guard controllers[i].has(.llExtendedFeatureSet) else { return refuse(pdu, end) }
      reply(.featurePageResponse(FeaturePage(page.number, of: controllers[i].configuration.furtherFeatures)), end)
    case .featurePageResponse(let page): receive(page, end)
    case .version(let version):
      medium.links[end].receive(version, own: controllers[i].version)
      reportVersion(end)
    case .connectionParameterRequest(let request):
      receive(request, pdu, end)
    case .lengthRequest(let length):
      guard controllers[i].has(.leDataPacketLengthExtension) else { return refuse(pdu, end) }
      if let change = medium.links[end].receiveRequest(length) { report(change, at: end) }
    case .lengthResponse(let length):
      if let change = medium.links[end].receiveResponse(length) { report(change, at: end) }
    case .phyRequest(let preference):
      guard controllers[i].choosesPHYs else { return refuse(pdu, end) }
      medium.links[id].receive(preference, at: end.role, defaults: controllers[i].defaultPreference)
    case .phyResponse(let preference):
      medium.links[id].choosePHYs(preference, defaults: controllers[i].defaultPreference)
    case .phyUpdate(let phys):
      if configuration.isInstant { apply(phys, id) } else { medium.links[id].plan(phys) }
    case .encryptionRequest, .encryptionResponse, .startEncryptionRequest, .startEncryptionResponse,
      .pauseEncryptionRequest, .pauseEncryptionResponse:
      receiveEncryption(pdu, at: end)
    case .pingRequest:
      guard controllers[i].has(.lePing) else { return refuse(pdu, end) }
      reply(.pingResponse, end)
    // Its MIC was all that mattered.
    case .pingResponse: break
    case .reject(let type, let error): receiveRefusal(of: type, error, end)
    case .unknown(let type): receiveRefusal(of: type, .unsupportedRemoteFeature, end)
    }
  }
  mutating func reply(_ pdu: LLControl, _ end: LinkPlace) { medium.links[end].enqueue(pdu) }
  private mutating func refuse(_ pdu: LLControl, _ end: LinkPlace) { reply(.unknown(type: pdu.type), end) }

  /// The peer has refused a procedure of this end: reports the reason to the host.
  private mutating func receiveRefusal(of type: UInt8, _ error: HCIStatus, _ end: LinkPlace) {
    switch type {
    case LLControl.connectionParameterRequestType: reportUpdate(error, end)
    case LLControl.peripheralFeatureRequestType: endFeatureRead(error, page0: [], end)
    case LLControl.phyRequestType: reportPHYs(error, end)
    case LLControl.lengthRequestType: medium.links[end].lengthSent = nil
    case LLControl.encryptionRequestType: endEncryption(error, end)
    default: break
    }
  }

  /// The peripheral asks for other parameters: the central's host must decide. Vol 6, Part B, §5.1.7.
  private mutating func receive(_ request: LinkRequest, _ pdu: LLControl, _ end: LinkPlace) {
    typealias Event = LERemoteConnectionParameterRequest
    let (i, handle) = host(at: end)
    guard controllers[i].has(.connectionParametersRequestProcedure) else { return refuse(pdu, end) }
    guard controllers[i].isEnabled(Event.self) else {
      return reply(.reject(type: pdu.type, error: .unsupportedRemoteFeature), end)
    }
    medium.links[end].unanswered.insert(.parameterRequest)
    let event = Event.with {
      $0.connectionHandle = handle
      $0.intervalMin = request.intervalMin
      $0.intervalMax = request.intervalMax
      $0.maxLatency = request.latency
      $0.timeout = request.timeout
    }
    controllers[i].emit(event, now: medium.now)
  }
  /// New parameters come into force at both ends. A host that did not request them gets an event only for a change. Vol
  /// 4, Part E, §7.7.65.3.
  mutating func apply(_ parameters: LinkParameters, _ id: LinkID) {
    let isNew = medium.links[id].use(parameters)
    for role in LinkRole.both where medium.links[id][role].isOpen {
      if isNew || medium.links[id][role].unanswered.contains(.update) { reportUpdate(.success, LinkPlace(id, role)) }
    }
  }
  private mutating func reportUpdate(_ status: HCIStatus, _ end: LinkPlace) {
    report(medium.links[end.link].updateComplete(status, at: end.role), at: end)
  }
  /// LL_FEATURE_RSP.
  private mutating func receive(_ features: LEFeatures, _ end: LinkPlace) {
    let i = medium.links[end].controller.index
    guard case .all(let pages) = medium.links[end].featureRead, features.contains(.llExtendedFeatureSet),
      controllers[i].has(.llExtendedFeatureSet)
    else { return endFeatureRead(.success, page0: features, end) }
    medium.links[end].featureRead = .further(pages: pages, octets: features.octets)
    reply(.featurePageRequest(FeaturePage(1, of: controllers[i].configuration.furtherFeatures)), end)
  }
  /// LL_FEATURE_EXT_RSP. The first one also says which page is the last.
  private mutating func receive(_ page: FeaturePage, _ end: LinkPlace) {
    let (i, handle) = host(at: end)
    guard case .further(let pages, var octets) = medium.links[end].featureRead else { return }
    if page.number <= pages { octets += page.octets }
    if page.number < min(pages, page.maxPage) {
      medium.links[end].featureRead = .further(pages: pages, octets: octets)
      let next = FeaturePage(page.number + 1, of: controllers[i].configuration.furtherFeatures)
      return reply(.featurePageRequest(next), end)
    }
    medium.links[end].featureRead = .none
    controllers[i].reportAllFeatures(
      .success, handle, octets, maxRemotePage: page.maxPage, maxValidPage: min(pages, page.number), now: medium.now)
  }
  /// The peer has told page 0 and has no others for us, or has refused.
  private mutating func endFeatureRead(_ status: HCIStatus, page0: LEFeatures, _ end: LinkPlace) {
    let (i, handle) = host(at: end)
    switch medium.links[end].featureRead {
    case .none, .further: return
    case .page0:
      let event = LEReadRemoteFeaturesComplete.with {
        $0.status = status
        $0.connectionHandle = handle
        $0.leFeatures = page0
      }
      controllers[i].emit(event, now: medium.now)
    case .all:
      controllers[i].reportAllFeatures(
        status, handle, page0.octets, maxRemotePage: 0, maxValidPage: 0, now: medium.now)
    }
    medium.links[end].featureRead = .none
  }
  mutating func reportVersion(_ end: LinkPlace) {
    guard medium.links.contains(end.link), let event = medium.links[end].versionComplete() else { return }
    report(event, at: end)
  }
}

extension LEFeatures {
  fileprivate var octets: [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: rawValue >> UInt64(8 * $0)) } }
}
extension VirtualController {
  /// Vol 4, Part E, §7.7.65.38.
  fileprivate mutating func reportAllFeatures(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ octets: [UInt8], maxRemotePage: UInt8, maxValidPage: UInt8,
    now: Instant
  ) {
    let all = octets + [UInt8](repeating: 0, count: LEFeatures.octetsOfAllPages - octets.count)
    let event = LEReadAllRemoteFeaturesComplete.with {
      $0.status = status
      $0.connectionHandle = handle
      $0.maxRemotePage = maxRemotePage
      $0.maxValidPage = maxValidPage
      $0.leFeatures = Octets(0, all.count)
    }
    emit(event, from: all.span, now: now)
  }
}

extension LinkEnd {
  /// LL_TERMINATE_IND. If it meets our own, the host gets the reason that it has asked for.
  mutating func receiveTermination(_ reason: HCIStatus) {
    let isOurs = if case .terminating = phase { true } else { false }
    phase = .closing(isOurs ? .connectionTerminatedByLocalHost : reason)
  }
  /// LL_VERSION_IND: it is answered once, unless it is an answer.
  mutating func receive(_ peers: PeerVersion, own: PeerVersion) {
    switch version {
    case .unsent:
      version = .known(peers)
      enqueue(.version(own))
    case .awaitingPeer: version = .reporting(peers)
    // A second one, which no peer sends.
    case .reporting, .known: break
    }
  }
  /// Nil if the host does not await it.
  mutating func versionComplete() -> ReadRemoteVersionInformationComplete? {
    guard case .reporting(let peers) = version else { return nil }
    version = .known(peers)
    return ReadRemoteVersionInformationComplete.with {
      $0.connectionHandle = handle
      $0.version = peers.version
      $0.companyIdentifier = peers.company
    }
  }

  // MARK: Data length. Vol 6, Part B, §4.5.10

  /// Sends LL_LENGTH_REQ to the other end, unless one is unanswered.
  mutating func startLengthUpdate() {
    guard lengthSent == nil else { return }
    lengthSent = length
    control.append(.lengthRequest(length))
  }
  /// LL_LENGTH_REQ. Returns the event for the host if the effective length changes.
  mutating func receiveRequest(_ peers: DataLength) -> LEDataLengthChange? {
    peerLength = peers
    enqueue(.lengthResponse(length))
    return updateLength()
  }
  /// The same for LL_LENGTH_RSP.
  mutating func receiveResponse(_ peers: DataLength) -> LEDataLengthChange? {
    peerLength = peers
    // The host has changed its request in the meantime.
    if let sent = lengthSent.take(), sent != length { startLengthUpdate() }
    return updateLength()
  }
  private mutating func updateLength() -> LEDataLengthChange? {
    let least = DataLength(
      receive: min(length.receive, peerLength.transmit), transmit: min(length.transmit, peerLength.receive))
    if least == effective { return nil }
    effective = least
    return LEDataLengthChange.with {
      $0.connectionHandle = handle
      $0.maxTXOctets = least.transmit
      $0.maxTXTime = DataLength.time(least.transmit)
      $0.maxRXOctets = least.receive
      $0.maxRXTime = DataLength.time(least.receive)
    }
  }
}

extension Link {
  /// The end of an update for the host at this end.
  mutating func updateComplete(_ status: HCIStatus, at role: LinkRole) -> LEConnectionUpdateComplete {
    self[role].unanswered.remove(.update)
    return LEConnectionUpdateComplete.with {
      $0.status = status
      $0.connectionHandle = self[role].handle
      $0.connectionInterval = parameters.interval
      $0.peripheralLatency = parameters.latency
      $0.supervisionTimeout = parameters.timeout
    }
  }
}
