import BindruneWire
import BindruneHCI

// Commands for a link. They queue LL control PDUs at its end, and the air serves the link after the answer.

/// A command for one link.
protocol LinkCommand: Executable {
  var connectionHandle: ConnectionHandle { get }
  /// An answer with this status, and with the handle if the return parameters have one.
  func answer(_ status: HCIStatus) -> Return
}
/// A command for one link, without octets in its packet. An unknown handle is refused with 0x02.
protocol LinkExecutable: LinkCommand {
  /// `end`: the link, and the controller's own end of it.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return
}

extension LinkCommand { func answer(_ status: HCIStatus) -> Return { Return(status) } }
extension LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return answer(.unknownConnectionIdentifier) }
    return execute(&controller, &medium, at: end)
  }
}
extension VirtualController {
  /// The link of a handle, and the controller's end of it.
  func end(_ handle: ConnectionHandle) -> LinkPlace? {
    connection(handle).map { connections[$0].end }
  }
}
/// Return parameters with the link's handle, even if the command is refused.
protocol LinkReturn: CommandReturn { var connectionHandle: ConnectionHandle { get set } }
extension LinkCommand where Return: LinkReturn {
  func answer(_ status: HCIStatus) -> Return {
    var result = Return(status)
    result.connectionHandle = connectionHandle
    return result
  }
}
extension ConnectionReturn: LinkReturn {}
extension LEReadChannelMap.Return: LinkReturn {}
extension ReadTransmitPowerLevel.Return: LinkReturn {}
extension LEReadPHY.Return: LinkReturn {}
extension ReadRSSI.Return: LinkReturn {
  var connectionHandle: ConnectionHandle {
    get { handle }
    set { handle = newValue }
  }
}

extension Medium {
  /// Queues a control PDU at one end of a link.
  mutating func send(_ pdu: LLControl, _ end: LinkPlace) {
    links[end].enqueue(pdu)
    errands.append(.serve(end.link))
  }
}

extension Disconnect: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    // The reasons of Vol 4, Part E, §7.1.6.
    guard [0x05, 0x13, 0x14, 0x15, 0x1A, 0x29, 0x3B].contains(reason.rawValue) else {
      return answer(.invalidHCICommandParameters)
    }
    switch medium.links[end].phase {
    case .open:
      medium.links[end].phase = .terminating
      medium.send(.terminate(reason), end)
    // The peer was first: its reason prevails.
    case .closing: break
    case .terminating, .closed: return answer(.commandDisallowed)
    }
    return answer(.success)
  }
}
extension ReadRemoteVersionInformation: LinkExecutable {
  /// Versions are exchanged once per link; later the answer is known. Vol 6, Part B, §5.1.5.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    switch medium.links[end].version {
    case .unsent:
      medium.links[end].version = .awaitingPeer
      medium.send(.version(controller.version), end)
    case .known(let version):
      medium.links[end].version = .reporting(version)
      medium.errands.append(.versionKnown(end))
    case .awaitingPeer, .reporting: return answer(.commandDisallowed)
    }
    return answer(.success)
  }
}
extension VirtualController {
  var version: PeerVersion { PeerVersion(version: configuration.version, company: configuration.companyIdentifier) }
}
extension LEReadRemoteFeatures: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    answer(controller.readFeatures(.page0, &medium, at: end))
  }
}
extension LEReadAllRemoteFeatures: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    guard pagesRequested <= LEFeatures.furtherPages else { return answer(.invalidHCICommandParameters) }
    return answer(controller.readFeatures(.all(pages: pagesRequested), &medium, at: end))
  }
}
extension VirtualController {
  /// Both commands begin with page 0; one of them at a time.
  fileprivate func readFeatures(_ read: LinkEnd.FeatureRead, _ medium: inout Medium, at end: LinkPlace) -> HCIStatus {
    if end.role == .peripheral, !has(.peripheralInitiatedFeaturesExchange) { return .commandDisallowed }
    guard case .none = medium.links[end].featureRead else { return .commandDisallowed }
    medium.links[end].featureRead = read
    let features = configuration.features
    medium.send(end.role == .central ? .featureRequest(features) : .peripheralFeatureRequest(features), end)
    return .success
  }
}
extension LESetHostChannelClassification: Executable {
  /// Applies to future links, and to existing ones of a central. Vol 6, Part B, §5.1.2.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let map = ChannelMap(rawValue: channelMap.rawValue & ChannelMap.all.rawValue)
    guard map.rawValue != 0 else { return Return(.invalidHCICommandParameters) }
    controller.channelMap = map
    for connection in controller.connections where connection.end.role == .central {
      medium.send(.channelMap(controller.linkChannels), connection.end)
    }
    return Return(.success)
  }
}
extension VirtualController {
  /// The channels of a link: those the host allows, if there are at least two. Vol 6, Part B, §4.5.8.1.
  var linkChannels: ChannelMap { channelMap.rawValue.nonzeroBitCount < 2 ? .all : channelMap }
}
extension LEReadChannelMap: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.channelMap = medium.links[end.link].channels
    return result
  }
}
extension ReadTransmitPowerLevel: LinkExecutable {
  /// Power is not controlled: the current level is the maximum.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.txPowerLevel = max(-30, min(20, controller.configuration.transmitPower))
    return result
  }
}
extension ReadRSSI: LinkExecutable {
  var connectionHandle: ConnectionHandle { handle }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.rssi = controller.atAntenna(medium.links[end].strength)
    return result
  }
}
extension VirtualController {
  /// The radio's measurement, corrected by the path from the antenna; 127 stays "unknown". Vol 4, Part E, §7.8.76.
  func atAntenna(_ strength: Int8) -> Int8 {
    strength == 127 ? 127 : Int8(max(-127, min(20, Int(strength) - Int(rfPath.receive) / 10)))
  }
}
extension LEConnectionUpdate: LinkExecutable {
  /// The central decides; the peripheral asks. Vol 6, Part B, §5.1.1 and §5.1.7.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    let request = LinkRequest(
      intervalMin: connectionIntervalMin, intervalMax: connectionIntervalMax, latency: maxLatency,
      timeout: supervisionTimeout)
    guard request.isValid else { return answer(.invalidHCICommandParameters) }
    if end.role == .peripheral, !controller.has(.connectionParametersRequestProcedure) {
      return answer(.unsupportedRemoteFeature)
    }
    guard medium.links[end].begin(.update) else { return answer(.commandDisallowed) }
    medium.send(end.role == .central ? .connectionUpdate(request.chosen) : .connectionParameterRequest(request), end)
    return answer(.success)
  }
}
extension LERemoteConnectionParameterRequestReply: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    guard medium.links[end].unanswered.contains(.parameterRequest) else { return answer(.commandDisallowed) }
    let request = LinkRequest(
      intervalMin: intervalMin, intervalMax: intervalMax, latency: maxLatency, timeout: timeout)
    guard request.isValid else { return answer(.invalidHCICommandParameters) }
    medium.links[end].unanswered.remove(.parameterRequest)
    medium.send(.connectionUpdate(request.chosen), end)
    return answer(.success)
  }
}
extension LERemoteConnectionParameterRequestNegativeReply: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    guard medium.links[end].unanswered.remove(.parameterRequest) != nil else { return answer(.commandDisallowed) }
    medium.send(.reject(type: LLControl.connectionParameterRequestType, error: reason), end)
    return answer(.success)
  }
}
extension LESetDataLength: LinkExecutable {
  /// The controller uses the part of the host's request that it supports. Vol 4, Part E, §7.8.33.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    guard let octets = DataLength.octets(txOctets, txTime) else {
      return answer(.invalidHCICommandParameters)
    }
    medium.links[end].length = DataLength(
      receive: controller.configuration.maximumDataOctets,
      transmit: min(octets, controller.configuration.maximumDataOctets))
    medium.links[end].startLengthUpdate()
    medium.errands.append(.serve(end.link))
    return answer(.success)
  }
}
extension LEReadSuggestedDefaultDataLength: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.suggestedMaxTXOctets = controller.suggestedOctets
    result.suggestedMaxTXTime = DataLength.time(controller.suggestedOctets)
    return result
  }
}
extension LEWriteSuggestedDefaultDataLength: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let octets = DataLength.octets(suggestedMaxTXOctets, suggestedMaxTXTime) else {
      return Return(.invalidHCICommandParameters)
    }
    controller.suggestedOctets = octets
    return Return(.success)
  }
}
extension LEReadMaximumDataLength: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let octets = controller.configuration.maximumDataOctets
    var result = Return(.success)
    result.supportedMaxTXOctets = octets
    result.supportedMaxTXTime = DataLength.time(octets)
    result.supportedMaxRXOctets = octets
    result.supportedMaxRXTime = DataLength.time(octets)
    return result
  }
}
