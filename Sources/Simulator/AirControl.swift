import BindruneWire
import BindruneHCI

// Link layer control procedures: how an end reacts to a control PDU. Vol 6, Part B, §5.1.

extension Air {
  mutating func receive(_ pdu: LLControl, _ id: LinkID, at role: LinkRole) {
    let i = medium.links[id][role].controller.index
    switch pdu {
    case .terminate(let reason):
      if case .terminating = medium.links[id][role].phase {
        medium.links[id][role].phase = .closing(.connectionTerminatedByLocalHost)
      } else {
        medium.links[id][role].phase = .closing(reason)
      }
    case .connectionUpdate(let parameters):
      if configuration.isInstant {
        apply(parameters, id)
      } else {
        // At least six events later. An instant that has passed (0x28) is impossible here: it is counted from now.
        medium.links[id].update = (parameters, medium.links[id].event + 6)
      }
    case .channelMap(let channels):
      if configuration.isInstant {
        medium.links[id].channels = channels
      } else {
        medium.links[id].channelUpdate = (channels, medium.links[id].event + 6)
      }
    case .featureRequest:
      reply(.featureResponse(controllers[i].configuration.features), id, role)
    case .peripheralFeatureRequest:
      guard controllers[i].has(.peripheralInitiatedFeaturesExchange) else { return refuse(pdu, id, role) }
      reply(.featureResponse(controllers[i].configuration.features), id, role)
    case .featureResponse(let features):
      reportFeatures(.success, features, id, role)
    case .version(let version):
      switch medium.links[id][role].version {
      case .unsent:
        medium.links[id][role].version = .known(version)
        reply(.version(controllers[i].version), id, role)
      case .awaitingPeer:
        medium.links[id][role].version = .reporting(version)
        reportVersion(id, role)
      // A second one, which no peer sends.
      case .reporting, .known: break
      }
    case .connectionParameterRequest(let request):
      receive(request, pdu, id, role)
    case .lengthRequest(let length):
      guard controllers[i].has(.leDataPacketLengthExtension) else { return refuse(pdu, id, role) }
      medium.links[id][role].peerLength = length
      reply(.lengthResponse(medium.links[id][role].length), id, role)
      updateLength(id, role)
    case .lengthResponse(let length):
      medium.links[id][role].peerLength = length
      let sent = medium.links[id][role].lengthSent
      medium.links[id][role].lengthSent = nil
      updateLength(id, role)
      // The host has changed its request in the meantime.
      if let sent, sent != medium.links[id][role].length { medium.links[id].startLengthUpdate(role) }
    case .phyRequest(let preference):
      guard controllers[i].choosesPHYs else { return refuse(pdu, id, role) }
      receivePHYRequest(preference, id, at: role)
    case .phyResponse(let preference): choosePHYs(preference, id)
    case .phyUpdate(let phys):
      if configuration.isInstant {
        apply(phys, id)
      } else {
        medium.links[id].phyUpdate = (phys, medium.links[id].event + 6)
      }
    case .encryptionRequest, .encryptionResponse, .startEncryptionRequest, .startEncryptionResponse,
      .pauseEncryptionRequest, .pauseEncryptionResponse:
      receiveEncryption(pdu, id, at: role)
    case .pingRequest:
      guard controllers[i].has(.lePing) else { return refuse(pdu, id, role) }
      reply(.pingResponse, id, role)
    // Its MIC was all that mattered.
    case .pingResponse: break
    case .reject(let type, let error): receiveRefusal(of: type, error, id, role)
    case .unknown(let type): receiveRefusal(of: type, .unsupportedRemoteFeature, id, role)
    }
  }
  mutating func reply(_ pdu: LLControl, _ id: LinkID, _ role: LinkRole) { medium.links[id][role].enqueue(pdu) }
  private mutating func refuse(_ pdu: LLControl, _ id: LinkID, _ role: LinkRole) {
    reply(.unknown(type: pdu.type), id, role)
  }

  /// The peer has refused a procedure of this end: reports the reason to the host.
  private mutating func receiveRefusal(of type: UInt8, _ error: HCIStatus, _ id: LinkID, _ role: LinkRole) {
    switch type {
    case LLControl.connectionParameterRequestType: reportUpdate(error, id, role)
    case LLControl.peripheralFeatureRequestType: reportFeatures(error, [], id, role)
    case LLControl.phyRequestType: reportPHYs(error, id, role)
    case LLControl.lengthRequestType: medium.links[id][role].lengthSent = nil
    case LLControl.encryptionRequestType: endEncryption(error, id, role)
    default: break
    }
  }

  /// The peripheral asks for other parameters: the central's host must decide. Vol 6, Part B, §5.1.7.
  private mutating func receive(_ request: LinkRequest, _ pdu: LLControl, _ id: LinkID, _ role: LinkRole) {
    typealias Event = LERemoteConnectionParameterRequest
    let i = medium.links[id][role].controller.index
    guard controllers[i].has(.connectionParametersRequestProcedure) else { return refuse(pdu, id, role) }
    guard controllers[i].isEnabled(Event.self) else {
      return reply(.reject(type: pdu.type, error: .unsupportedRemoteFeature), id, role)
    }
    medium.links[id][role].unanswered.insert(.parameterRequest)
    let event = Event.with {
      $0.connectionHandle = medium.links[id][role].handle
      $0.intervalMin = request.intervalMin
      $0.intervalMax = request.intervalMax
      $0.maxLatency = request.latency
      $0.timeout = request.timeout
    }
    controllers[i].emit(event, now: medium.now)
  }
  /// New parameters come into force at both ends.
  mutating func apply(_ parameters: LinkParameters, _ id: LinkID) {
    let isNew = medium.links[id].parameters != parameters
    medium.links[id].parameters = parameters
    medium.links[id].update = nil
    for role in [LinkRole.central, .peripheral] where medium.links[id][role].isOpen {
      // A host that did not request it gets an event only for a change. Vol 4, Part E, §7.7.65.3.
      if isNew || medium.links[id][role].unanswered.contains(.update) { reportUpdate(.success, id, role) }
    }
  }
  private mutating func reportUpdate(_ status: HCIStatus, _ id: LinkID, _ role: LinkRole) {
    let i = medium.links[id][role].controller.index
    medium.links[id][role].unanswered.remove(.update)
    let event = LEConnectionUpdateComplete.with {
      $0.status = status
      $0.connectionHandle = medium.links[id][role].handle
      $0.connectionInterval = medium.links[id].parameters.interval
      $0.peripheralLatency = medium.links[id].parameters.latency
      $0.supervisionTimeout = medium.links[id].parameters.timeout
    }
    controllers[i].emit(event, now: medium.now)
  }
  private mutating func reportFeatures(_ status: HCIStatus, _ features: LEFeatures, _ id: LinkID, _ role: LinkRole) {
    guard medium.links[id][role].unanswered.remove(.features) != nil else { return }
    let event = LEReadRemoteFeaturesComplete.with {
      $0.status = status
      $0.connectionHandle = medium.links[id][role].handle
      $0.leFeatures = features
    }
    controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
  }
  mutating func reportVersion(_ id: LinkID, _ role: LinkRole) {
    guard medium.links.contains(id), case .reporting(let version) = medium.links[id][role].version else { return }
    medium.links[id][role].version = .known(version)
    let event = ReadRemoteVersionInformationComplete.with {
      $0.connectionHandle = medium.links[id][role].handle
      $0.version = version.version
      $0.companyIdentifier = version.company
    }
    controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
  }
  /// Computes the effective data length, and reports a change to the host. Vol 6, Part B, §4.5.10.
  private mutating func updateLength(_ id: LinkID, _ role: LinkRole) {
    let own = medium.links[id][role].length, peer = medium.links[id][role].peerLength
    let effective = DataLength(receive: min(own.receive, peer.transmit), transmit: min(own.transmit, peer.receive))
    guard effective != medium.links[id][role].effective else { return }
    medium.links[id][role].effective = effective
    let event = LEDataLengthChange.with {
      $0.connectionHandle = medium.links[id][role].handle
      $0.maxTXOctets = effective.transmit
      $0.maxTXTime = DataLength.time(effective.transmit)
      $0.maxRXOctets = effective.receive
      $0.maxRXTime = DataLength.time(effective.receive)
    }
    controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
  }
}
