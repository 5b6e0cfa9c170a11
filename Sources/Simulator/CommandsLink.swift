import BindruneWire
import HCI

// Commands about a link. They leave LL control PDUs at its end, and the link is served once the answer is out.

extension VirtualController {
  /// The link of a handle, and which end of it this is; `nil` for a handle that is none: 0x02.
  func end(_ handle: ConnectionHandle) -> (link: LinkID, role: LinkRole)? {
    guard let index = connection(handle) else { return nil }
    return (connections[index].link, connections[index].role)
  }
}
extension Medium {
  /// Leaves a control PDU at one end of a link.
  mutating func send(_ pdu: LLControl, _ end: (link: LinkID, role: LinkRole)) {
    links[end.link][end.role].control.append(pdu)
    errands.append(.serve(end.link))
  }
}

extension Disconnect: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    // The reasons of Vol 4, Part E, §7.1.6.
    guard [0x05, 0x13, 0x14, 0x15, 0x1A, 0x29, 0x3B].contains(reason.rawValue) else {
      return Return(.invalidHCICommandParameters)
    }
    if medium.links[end.link][end.role].isTerminating { return Return(.commandDisallowed) }
    medium.links[end.link][end.role].isTerminating = true
    medium.send(.terminate(reason), end)
    return Return(.success)
  }
}
extension ReadRemoteVersionInformation: Executable {
  /// Versions are exchanged once per link, later the answer is known. Vol 6, Part B, §5.1.5.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    if medium.links[end.link][end.role].awaitsVersion { return Return(.commandDisallowed) }
    medium.links[end.link][end.role].awaitsVersion = true
    if medium.links[end.link][end.role].peerVersion != nil {
      medium.errands.append(.versionKnown(end.link, end.role))
    } else if !medium.links[end.link][end.role].hasSentVersion {
      medium.links[end.link][end.role].hasSentVersion = true
      medium.send(.version(controller.version), end)
    }
    return Return(.success)
  }
}
extension VirtualController {
  var version: PeerVersion { PeerVersion(version: configuration.version, company: configuration.companyIdentifier) }
}
extension LEReadRemoteFeatures: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    if medium.links[end.link][end.role].awaitsFeatures { return Return(.commandDisallowed) }
    if end.role == .peripheral, !controller.has(.peripheralInitiatedFeaturesExchange) {
      return Return(.commandDisallowed)
    }
    medium.links[end.link][end.role].awaitsFeatures = true
    let features = controller.configuration.features
    medium.send(end.role == .central ? .featureRequest(features) : .peripheralFeatureRequest(features), end)
    return Return(.success)
  }
}
extension LESetHostChannelClassification: Executable {
  /// Holds for links to come, and for those there are, where this is the central. Vol 6, Part B, §5.1.2.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let map = ChannelMap(rawValue: channelMap.rawValue & ChannelMap.all.rawValue)
    guard map.rawValue != 0 else { return Return(.invalidHCICommandParameters) }
    controller.channelMap = map
    for connection in controller.connections where connection.role == .central {
      medium.send(.channelMap(controller.linkChannels), (connection.link, .central))
    }
    return Return(.success)
  }
}
extension VirtualController {
  /// What a link uses: what the host leaves, if that is enough. A link needs two channels. Vol 6, Part B, §4.5.8.1.
  var linkChannels: ChannelMap { channelMap.rawValue.nonzeroBitCount < 2 ? .all : channelMap }
}
extension LEReadChannelMap: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.connectionHandle = connectionHandle
    guard let end = controller.end(connectionHandle) else {
      result.status = .unknownConnectionIdentifier
      return result
    }
    result.channelMap = medium.links[end.link].channels
    return result
  }
}
extension ReadTransmitPowerLevel: Executable {
  /// Power is not controlled: the current level is the maximum.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.connectionHandle = connectionHandle
    guard controller.end(connectionHandle) != nil else {
      result.status = .unknownConnectionIdentifier
      return result
    }
    result.txPowerLevel = max(-30, min(20, controller.configuration.transmitPower))
    return result
  }
}
extension LEConnectionUpdate: Executable {
  /// The central decides; the peripheral asks. Vol 6, Part B, §5.1.1 and §5.1.7.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    let request = LinkRequest(
      intervalMin: connectionIntervalMin.rawValue, intervalMax: connectionIntervalMax.rawValue, latency: maxLatency,
      timeout: supervisionTimeout.rawValue)
    guard request.isValid else { return Return(.invalidHCICommandParameters) }
    if medium.links[end.link][end.role].awaitsUpdate { return Return(.commandDisallowed) }
    if end.role == .peripheral, !controller.has(.connectionParametersRequestProcedure) {
      return Return(.unsupportedRemoteFeature)
    }
    medium.links[end.link][end.role].awaitsUpdate = true
    medium.send(end.role == .central ? .connectionUpdate(request.chosen) : .connectionParameterRequest(request), end)
    return Return(.success)
  }
}
extension LERemoteConnectionParameterRequestReply: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else {
      return Return(.unknownConnectionIdentifier, connectionHandle)
    }
    guard medium.links[end.link][end.role].asksForParameters else {
      return Return(.commandDisallowed, connectionHandle)
    }
    let request = LinkRequest(
      intervalMin: intervalMin.rawValue, intervalMax: intervalMax.rawValue, latency: maxLatency,
      timeout: timeout.rawValue)
    guard request.isValid else { return Return(.invalidHCICommandParameters, connectionHandle) }
    medium.links[end.link][end.role].asksForParameters = false
    medium.send(.connectionUpdate(request.chosen), end)
    return Return(.success, connectionHandle)
  }
}
extension LERemoteConnectionParameterRequestNegativeReply: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else {
      return Return(.unknownConnectionIdentifier, connectionHandle)
    }
    guard medium.links[end.link][end.role].asksForParameters else {
      return Return(.commandDisallowed, connectionHandle)
    }
    medium.links[end.link][end.role].asksForParameters = false
    medium.send(.reject(type: LLControl.connectionParameterRequestType, error: reason), end)
    return Return(.success, connectionHandle)
  }
}
extension LEEnableEncryption: Executable {
  /// The peer's host is asked for its key.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    guard end.role == .central, !medium.links[end.link].central.awaitsEncryption else {
      return Return(.commandDisallowed)
    }
    medium.links[end.link].central.awaitsEncryption = true
    medium.send(.encryptionRequest(random: randomNumber, diversifier: encryptedDiversifier), end)
    return Return(.success)
  }
}
extension LELongTermKeyRequestNegativeReply: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else {
      return Return(.unknownConnectionIdentifier, connectionHandle)
    }
    guard medium.links[end.link][end.role].asksForKey else { return Return(.commandDisallowed, connectionHandle) }
    medium.links[end.link][end.role].asksForKey = false
    medium.send(.reject(type: LLControl.encryptionRequestType, error: .pinOrKeyMissing), end)
    return Return(.success, connectionHandle)
  }
}
extension LESetDataLength: Executable {
  /// The controller takes what it can of what the host wishes. Vol 4, Part E, §7.8.33.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else {
      return Return(.unknownConnectionIdentifier, connectionHandle)
    }
    guard let octets = DataLength.octets(txOctets, txTime) else {
      return Return(.invalidHCICommandParameters, connectionHandle)
    }
    medium.links[end.link][end.role].length = DataLength(
      receive: controller.configuration.maximumDataOctets,
      transmit: min(octets, controller.configuration.maximumDataOctets))
    medium.links[end.link].startLengthUpdate(end.role)
    medium.errands.append(.serve(end.link))
    return Return(.success, connectionHandle)
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
