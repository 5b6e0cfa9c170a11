import BindruneWire
import BindruneHCI

// Initiating: the checks and settings of each command. Vol 4, Part E, §7.8.12, §7.8.13, §7.8.66. AirAdvertising.swift
// performs it.

extension LECreateConnection: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy), controller.initiator == nil else { return Return(.commandDisallowed) }
    guard isScanTiming(leScanInterval, leScanWindow, longest: 0x4000) else {
      return Return(.invalidHCICommandParameters)
    }
    let request = LinkRequest(
      intervalMin: connectionIntervalMin, intervalMax: connectionIntervalMax, latency: maxLatency,
      timeout: supervisionTimeout)
    let listening = Listening(start: medium.now, interval: leScanInterval, window: leScanWindow)
    let initiator = Initiator(
      peer: initiatorFilterPolicy == .acceptList ? nil : AirAddress(peerAddressType, peerAddress), isExtended: false,
      ownAddressType: ownAddressType, le1M: listening, requests: (request, nil, nil))
    return Return(controller.initiate(initiator, peerAddressType, initiatorFilterPolicy))
  }
}
extension LEExtendedCreateConnection: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended), controller.initiator == nil else { return Return(.commandDisallowed) }
    let primary = initiatingPHYs.intersection([.le1M, .leCoded])
    // LE 2M alone cannot initiate: it has no primary advertising channel. Its scan interval and window are ignored.
    guard initiatingPHYs.isSubset(of: [.le1M, .le2M, .leCoded]), !primary.isEmpty,
      !primary.contains(.le1M) || isScanTiming(le1M.scanInterval, le1M.scanWindow, longest: 0xFFFF),
      !primary.contains(.leCoded) || isScanTiming(leCoded.scanInterval, leCoded.scanWindow, longest: 0xFFFF)
    else { return Return(.invalidHCICommandParameters) }
    guard initiatingPHYs.isSubset(of: controller.phys) else { return Return(.unsupportedFeatureOrParameterValue) }
    let initiator = Initiator(
      peer: initiatorFilterPolicy == .acceptList ? nil : AirAddress(peerAddressType, peerAddress), isExtended: true,
      ownAddressType: ownAddressType, le1M: primary.contains(.le1M) ? le1M.listening(from: medium.now) : nil,
      leCoded: primary.contains(.leCoded) ? leCoded.listening(from: medium.now) : nil,
      requests: (
        initiatingPHYs.contains(.le1M) ? le1M.request : nil, initiatingPHYs.contains(.le2M) ? le2M.request : nil,
        initiatingPHYs.contains(.leCoded) ? leCoded.request : nil
      ))
    return Return(controller.initiate(initiator, peerAddressType, initiatorFilterPolicy))
  }
}
extension LEExtendedCreateConnection.Parameters {
  fileprivate func listening(from now: Instant) -> Listening {
    Listening(start: now, interval: scanInterval, window: scanWindow)
  }
  fileprivate var request: LinkRequest {
    LinkRequest(
      intervalMin: connectionIntervalMin, intervalMax: connectionIntervalMax, latency: maxLatency,
      timeout: supervisionTimeout)
  }
}
extension VirtualController {
  fileprivate mutating func initiate(
    _ initiator: Initiator, _ peerType: AddressType, _ policy: InitiatorFilterPolicy
  ) -> HCIStatus {
    guard policy.rawValue <= 1, initiator.peer == nil || peerType.rawValue <= 3,
      initiator.ownAddressType.rawValue <= 3, initiator.isValid, address(initiator.ownAddressType) != nil
    else { return .invalidHCICommandParameters }
    if isFull { return .connectionLimitExceeded }
    if let peer = initiator.peer, connections.contains(where: { $0.peer == peer }) { return .connectionAlreadyExists }
    self.initiator = initiator
    return .success
  }
  var isFull: Bool { connections.count >= configuration.maximumConnections }
}
extension LECreateConnectionCancel: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if controller.initiator == nil { return Return(.commandDisallowed) }
    controller.initiator = nil
    medium.errands.append(.cancelled(controller.id))
    return Return(.success)
  }
}
