import BindruneWire
import BindruneHCI

// Extended advertising: the checks and settings of each command. Vol 4, Part E, §7.8.52 – §7.8.60. AirAdvertising.swift
// performs it.

extension VirtualController {
  static var maximumAdvertisingData: Int { 1650 }
  /// The power in advertisements: the transmitter's plus the gain of the path to the antenna. Vol 4, Part E, §7.8.76.
  fileprivate var radiatedPower: Int8 {
    Int8(max(-127, min(20, Int(configuration.transmitPower) + Int(rfPath.transmit) / 10)))
  }
  fileprivate func set(_ handle: UInt8) -> Int? { advertisers.firstIndex { $0.handle == handle } }
}
extension LESetExtendedAdvertisingParameters: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    let existing = controller.set(advertisingHandle.number)
    if let existing, controller.advertisers[existing].isEnabled { return Return(.commandDisallowed) }
    guard advertisingHandle.number <= 0xEF, ownAddressType.rawValue <= 3, peerAddressType.rawValue <= 1,
      advertisingFilterPolicy.rawValue <= 3, (1...7).contains(primaryAdvertisingChannelMap), advertisingSID <= 15,
      primaryAdvertisingIntervalMin >= PrimaryAdvertisingInterval(rawValue: 0x20),
      primaryAdvertisingIntervalMin <= primaryAdvertisingIntervalMax, isPossible
    else { return Return(.invalidHCICommandParameters) }
    // Legacy PDUs are on LE 1M, whatever the secondary PHY.
    guard primaryAdvertisingPHY == .le1M || (primaryAdvertisingPHY == .leCoded && !legacy),
      legacy || (1...3).contains(secondaryAdvertisingPHY.rawValue)
    else { return Return(.invalidHCICommandParameters) }
    guard controller.phys.contains(primaryAdvertisingPHY.set),
      legacy || controller.phys.contains(secondaryAdvertisingPHY.set)
    else { return Return(.unsupportedFeatureOrParameterValue) }
    if existing == nil, controller.advertisers.count > controller.configuration.advertisingSets {
      return Return(.memoryCapacityExceeded)
    }
    var set = existing.map { controller.advertisers[$0] } ?? Advertiser(handle: advertisingHandle.number)
    set.isLegacy = legacy
    set.primaryPHY = primaryAdvertisingPHY
    set.secondaryPHY = legacy ? .le1M : secondaryAdvertisingPHY
    set.isConnectable = connectable
    set.isScannable = scannable
    set.isDirected = directed
    set.isHighDuty = highDutyCycle
    set.isAnonymous = anonymous
    set.tellsPower = includeTxPower
    set.power = controller.radiatedPower
    set.interval = primaryAdvertisingIntervalMin
    set.ownAddressType = ownAddressType
    set.peer = AirAddress(peerAddressType, peerAddress)
    set.channelMap = primaryAdvertisingChannelMap
    set.filterPolicy = advertisingFilterPolicy
    set.sid = advertisingSID
    set.reportsScanRequests = scanRequestNotificationEnable
    // The set's present data must fit its new PDUs.
    guard set.takesData || set.data.octets.isEmpty, !legacy || set.data.octets.count <= set.longestData else {
      return Return(.invalidHCICommandParameters)
    }
    if let existing { controller.advertisers[existing] = set } else { controller.advertisers.append(set) }
    var result = Return(.success)
    result.selectedTXPower = controller.configuration.transmitPower
    return result
  }
  /// Legacy PDUs exist in five kinds; an extended advertisement cannot be both connectable and scannable.
  private var isPossible: Bool {
    let kind =
      (connectable ? 1 : 0) | (scannable ? 2 : 0) | (directed ? 4 : 0) | (highDutyCycle ? 8 : 0)
    if legacy { return [0b0011, 0b0101, 0b1101, 0b0010, 0b0000].contains(kind) && !anonymous }
    return kind & 0b1011 <= 2 && !(anonymous && kind & 3 != 0)
  }
}
extension LESetAdvertisingSetRandomAddress: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let set = controller.set(advertisingHandle.number) else { return Return(.unknownAdvertisingIdentifier) }
    if controller.advertisers[set].isEnabled, controller.advertisers[set].isConnectable {
      return Return(.commandDisallowed)
    }
    controller.advertisers[set].randomAddress = randomAddress
    return Return(.success)
  }
}
extension LESetExtendedAdvertisingData: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let index = controller.set(advertisingHandle.number) else { return Return(.unknownAdvertisingIdentifier) }
    let set = controller.advertisers[index]
    guard set.takesData else { return Return(.invalidHCICommandParameters) }
    if operation == .unchanged {
      guard set.isEnabled, !set.data.octets.isEmpty, !set.isLegacy, advertisingData.isEmpty else {
        return Return(.invalidHCICommandParameters)
      }
      controller.advertisers[index].did &+= 1
      return Return(.success)
    }
    return Return(controller.put(operation, advertisingData, \.data, index, packet))
  }
}
extension LESetExtendedScanResponseData: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let index = controller.set(advertisingHandle.number) else { return Return(.unknownAdvertisingIdentifier) }
    let set = controller.advertisers[index]
    if !set.isScannable, operation != .complete || !scanResponseData.isEmpty {
      return Return(.invalidHCICommandParameters)
    }
    // Scannable extended PDUs carry only their response.
    if set.isEnabled, set.isScannable, !set.isLegacy, scanResponseData.isEmpty { return Return(.commandDisallowed) }
    return Return(controller.put(operation, scanResponseData, \.scanResponse, index, packet))
  }
}
extension VirtualController {
  /// Stores a piece of a set's data, or all of it. Vol 4, Part E, §7.8.54, §7.8.55.
  fileprivate mutating func put(
    _ operation: AdvertisingDataOperation, _ data: Octets, _ part: WritableKeyPath<Advertiser, AdvertisingPayload>,
    _ index: Int, _ packet: Span<UInt8>
  ) -> HCIStatus {
    let set = advertisers[index]
    guard operation.rawValue <= AdvertisingDataOperation.complete.rawValue, operation == .complete || !data.isEmpty,
      !set.isLegacy || (operation == .complete && data.count <= 31)
    else { return .invalidHCICommandParameters }
    if set.isEnabled, operation != .complete { return .commandDisallowed }
    // One AUX_ADV_IND must hold it.
    if set.isEnabled, part == \.data, data.count > set.longestData {
      advertisers[index].data = AdvertisingPayload()
      return .packetTooLong
    }
    var payload = operation == .first || operation == .complete ? AdvertisingPayload() : set[keyPath: part]
    payload.octets += data.array(in: packet)
    payload.isPartial = operation == .first || operation == .intermediate
    let isTooLong = payload.octets.count > Self.maximumAdvertisingData
    advertisers[index][keyPath: part] = isTooLong ? AdvertisingPayload() : payload
    advertisers[index].did &+= 1
    return isTooLong ? .memoryCapacityExceeded : .success
  }
}
extension LESetExtendedAdvertisingEnable: Executable {
  /// All sets are checked before the first one is started.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var cursor = sets.cursor, chosen: [(index: Int, set: Set)] = []
    while let set = cursor.next(in: packet) {
      guard let index = controller.set(set.advertisingHandle.number) else {
        return Return(.unknownAdvertisingIdentifier)
      }
      if chosen.contains(where: { $0.index == index }) { return Return(.invalidHCICommandParameters) }
      chosen.append((index, set))
      guard enable else { continue }
      let advertiser = controller.advertisers[index]
      if controller.address(of: advertiser) == nil { return Return(.invalidHCICommandParameters) }
      if advertiser.isHighDuty, !(1...128).contains(set.duration.rawValue) {
        return Return(.invalidHCICommandParameters)
      }
      if advertiser.data.isPartial || advertiser.scanResponse.isPartial { return Return(.commandDisallowed) }
      if !advertiser.isLegacy, advertiser.isScannable, advertiser.scanResponse.octets.isEmpty {
        return Return(.commandDisallowed)
      }
      if advertiser.data.octets.count > advertiser.longestData { return Return(.invalidHCICommandParameters) }
      if advertiser.isConnectable, controller.isFull { return Return(.connectionLimitExceeded) }
    }
    if enable, chosen.isEmpty { return Return(.invalidHCICommandParameters) }
    if !enable {
      // No set is named: all of them.
      for index in controller.advertisers.indices where chosen.isEmpty || chosen.contains(where: { $0.index == index })
      {
        controller.advertisers[index].isEnabled = false
      }
      return Return(.success)
    }
    for (index, set) in chosen {
      controller.advertisers[index].maximumEvents = Int(set.maxExtendedAdvertisingEvents)
      let duration = set.duration.duration
      controller.startAdvertising(index, &medium, duration: duration > .zero ? duration : nil)
    }
    return Return(.success)
  }
}
extension LEReadMaximumAdvertisingDataLength: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.maxAdvertisingDataLength = UInt16(VirtualController.maximumAdvertisingData)
    return result
  }
}
extension LEReadNumberOfSupportedAdvertisingSets: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.numSupportedAdvertisingSets = UInt8(clamping: controller.configuration.advertisingSets)
    return result
  }
}
extension LERemoveAdvertisingSet: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended) else { return Return(.commandDisallowed) }
    guard let set = controller.set(advertisingHandle.number) else { return Return(.unknownAdvertisingIdentifier) }
    if controller.advertisers[set].isEnabled { return Return(.commandDisallowed) }
    controller.advertisers.remove(at: set)
    return Return(.success)
  }
}
extension LEClearAdvertisingSets: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard controller.uses(.extended), !controller.advertisers.contains(where: \.isEnabled) else {
      return Return(.commandDisallowed)
    }
    controller.advertisers.removeAll { $0.handle != nil }
    return Return(.success)
  }
}
