import BindruneWire
import HCI

// Advertising, scanning and initiating: what a command checks and sets. What then happens is in AirAdvertising.swift.

extension LESetAdvertisingParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy), !controller.advertisers[0].isEnabled else { return Return(.commandDisallowed) }
    guard ownAddressType.rawValue <= 3, peerAddressType.rawValue <= 1, advertisingFilterPolicy.rawValue <= 3,
      advertisingChannelMap != 0, advertisingChannelMap <= 7
    else { return Return(.invalidHCICommandParameters) }
    // High duty cycle advertising has no interval of its own choosing.
    if advertisingType != .connectableDirectedHighDutyCycle {
      let range: ClosedRange<UInt16> = 0x0020...0x4000
      guard range.contains(advertisingIntervalMin.rawValue), range.contains(advertisingIntervalMax.rawValue),
        advertisingIntervalMin <= advertisingIntervalMax
      else { return Return(.invalidHCICommandParameters) }
    }
    var advertiser = controller.advertisers[0]
    advertiser.isHighDuty = advertisingType == .connectableDirectedHighDutyCycle
    advertiser.isDirected = advertiser.isHighDuty || advertisingType == .connectableDirectedLowDutyCycle
    advertiser.isScannable =
      advertisingType == .connectableScannableUndirected || advertisingType == .scannableUndirected
    advertiser.isConnectable = advertiser.isDirected || advertisingType == .connectableScannableUndirected
    advertiser.interval = PrimaryAdvertisingInterval(advertisingIntervalMin.duration)
    advertiser.ownAddressType = ownAddressType
    advertiser.peer = AirAddress(peerAddressType, peerAddress)
    advertiser.channelMap = advertisingChannelMap
    advertiser.filterPolicy = advertisingFilterPolicy
    controller.advertisers[0] = advertiser
    return Return(.success)
  }
}
extension LEReadAdvertisingPhysicalChannelTxPower: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy) else { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.txPowerLevel = max(-20, min(20, controller.configuration.transmitPower))
    return result
  }
}
extension LESetAdvertisingData: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy) else { return Return(.commandDisallowed) }
    controller.advertisers[0].data.octets = (0..<Int(advertisingDataLength.rawValue)).map {
      advertisingData.byte($0, in: packet)
    }
    return Return(.success)
  }
}
extension LESetScanResponseData: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy) else { return Return(.commandDisallowed) }
    controller.advertisers[0].scanResponse.octets = (0..<Int(scanResponseDataLength.rawValue)).map {
      scanResponseData.byte($0, in: packet)
    }
    return Return(.success)
  }
}
extension LESetAdvertisingEnable: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy) else { return Return(.commandDisallowed) }
    let advertiser = controller.advertisers[0]
    if advertisingEnable == advertiser.isEnabled { return Return(.success) }
    guard advertisingEnable else {
      controller.advertisers[0].isEnabled = false
      return Return(.success)
    }
    if controller.address(of: advertiser) == nil { return Return(.invalidHCICommandParameters) }
    if advertiser.isConnectable, controller.isFull { return Return(.connectionLimitExceeded) }
    controller.startAdvertising(0, &medium, duration: advertiser.isHighDuty ? Advertiser.highDutyLimit : nil)
    return Return(.success)
  }
}

extension LESetScanParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy), !controller.scanner.isEnabled else { return Return(.commandDisallowed) }
    guard isScanTiming(leScanInterval, leScanWindow, longest: 0x4000), ownAddressType.rawValue <= 3,
      scanningFilterPolicy.rawValue <= 3
    else { return Return(.invalidHCICommandParameters) }
    guard controller.has(scanningFilterPolicy) else { return Return(.unsupportedFeatureOrParameterValue) }
    controller.scanner.le1M = PHYScan(
      isActive: leScanType == .active,
      listening: Listening(interval: leScanInterval, window: leScanWindow))
    controller.scanner.ownAddressType = ownAddressType
    controller.scanner.filterPolicy = scanningFilterPolicy
    return Return(.success)
  }
}
extension LESetScanEnable: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy) else { return Return(.commandDisallowed) }
    guard leScanEnable else {
      controller.scanner.stop()
      return Return(.success)
    }
    if controller.address(controller.scanner.ownAddressType) == nil { return Return(.invalidHCICommandParameters) }
    controller.scanner.start(extended: false, at: medium.now)
    controller.scanner.filtersDuplicates = filterDuplicates
    return Return(.success)
  }
}
extension LESetExtendedScanParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended), !controller.scanner.isEnabled else { return Return(.commandDisallowed) }
    guard scanningPHYs.subtracting([.le1M, .leCoded]).isEmpty, !scanningPHYs.isEmpty else {
      return Return(.invalidHCICommandParameters)
    }
    if scanningPHYs.contains(.leCoded), !controller.has(.leCodedPHY) {
      return Return(.unsupportedFeatureOrParameterValue)
    }
    let groups = [scanningPHYs.contains(.le1M) ? le1M : nil, scanningPHYs.contains(.leCoded) ? leCoded : nil]
    guard
      groups.allSatisfy({ $0.map { isScanTiming($0.scanInterval, $0.scanWindow, longest: 0xFFFF) } ?? true }),
      ownAddressType.rawValue <= 3, scanningFilterPolicy.rawValue <= 3
    else { return Return(.invalidHCICommandParameters) }
    guard controller.has(scanningFilterPolicy) else { return Return(.unsupportedFeatureOrParameterValue) }
    controller.scanner.le1M = groups[0].map(\.scan)
    controller.scanner.leCoded = groups[1].map(\.scan)
    controller.scanner.ownAddressType = ownAddressType
    controller.scanner.filterPolicy = scanningFilterPolicy
    return Return(.success)
  }
}
extension LESetExtendedScanParameters.Parameters {
  fileprivate var scan: PHYScan {
    PHYScan(
      isActive: scanType == .active,
      listening: Listening(interval: scanInterval, window: scanWindow))
  }
}
extension LESetExtendedScanEnable: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard enable else {
      controller.scanner.stop()
      return Return(.success)
    }
    let length = duration.duration, cycle = period.duration
    guard filterDuplicates.rawValue <= 2, filterDuplicates != .enabledPerPeriod || (length > .zero && cycle > .zero),
      length == .zero || cycle == .zero || length < cycle,
      controller.address(controller.scanner.ownAddressType) != nil
    else { return Return(.invalidHCICommandParameters) }
    controller.scanner.start(extended: true, at: medium.now)
    controller.scanner.filtersDuplicates = filterDuplicates != .disabled
    controller.scanner.forgetsEachPeriod = filterDuplicates == .enabledPerPeriod
    controller.scanner.duration = length > .zero ? length : nil
    controller.scanner.period = length > .zero && cycle > .zero ? cycle : nil
    if length > .zero {
      let event = Schedule.Event.scanning(controller.id, generation: controller.scanner.generation)
      medium.schedule.plan(event, at: medium.now + length)
    }
    return Return(.success)
  }
}
extension VirtualController {
  /// The extended policies are a feature. Vol 6, Part B, §4.6.
  fileprivate func has(_ policy: ScanningFilterPolicy) -> Bool {
    !policy.isExtended || has(.extendedScannerFilterPolicies)
  }
}
/// Vol 4, Part E, §7.8.10: the window is not longer than the interval, neither shorter than 2.5 ms.
private func isScanTiming(_ interval: ScanInterval, _ window: ScanInterval, longest: UInt16) -> Bool {
  window.rawValue >= 4 && window <= interval && interval.rawValue <= longest
}

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
    // LE 2M alone cannot initiate: it has no primary advertising channel. Its scan interval and window mean nothing.
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
