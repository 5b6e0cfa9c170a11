import BindruneWire
import BindruneHCI

// Legacy advertising: the checks and settings of each command. Vol 4, Part E, §7.8.5 – §7.8.9. AirAdvertising.swift
// performs it.

extension LESetAdvertisingParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.legacy), !controller.advertisers[0].isEnabled else { return Return(.commandDisallowed) }
    guard ownAddressType.rawValue <= 3, peerAddressType.rawValue <= 1, advertisingFilterPolicy.rawValue <= 3,
      advertisingChannelMap != 0, advertisingChannelMap <= 7
    else { return Return(.invalidHCICommandParameters) }
    // High duty cycle advertising ignores the interval.
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
