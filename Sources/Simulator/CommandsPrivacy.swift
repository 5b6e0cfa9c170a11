import BindruneWire
import BindruneHCI

// The resolving list. Vol 4, Part E, §7.8.38 – §7.8.45, §7.8.77.

extension VirtualController {
  /// While address resolution is enabled, the list cannot change during an activity.
  fileprivate var usesResolvingList: Bool { resolvingList.isEnabled && isActive }
  /// Whether it advertises, scans or initiates.
  var isActive: Bool { advertisers.contains(where: \.isEnabled) || scanner.isEnabled || initiator != nil }
}
extension LEAddDeviceToResolvingList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesResolvingList { return Return(.commandDisallowed) }
    guard peerIdentityAddressType.rawValue <= 1 else { return Return(.invalidHCICommandParameters) }
    if controller.resolvingList.entries.count >= controller.configuration.resolvingListSize {
      return Return(.memoryCapacityExceeded)
    }
    let isNew = controller.resolvingList.add(
      AirAddress(peerIdentityAddressType, peerIdentityAddress), peerIRK: peerIRK.number, localIRK: localIRK.number)
    return Return(isNew ? .success : .invalidHCICommandParameters)
  }
}
extension LERemoveDeviceFromResolvingList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesResolvingList { return Return(.commandDisallowed) }
    guard let index = controller.resolvingList.index(of: AirAddress(peerIdentityAddressType, peerIdentityAddress))
    else { return Return(.unknownConnectionIdentifier) }
    controller.resolvingList.remove(at: index)
    return Return(.success)
  }
}
extension LEClearResolvingList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesResolvingList { return Return(.commandDisallowed) }
    controller.resolvingList.removeAll()
    return Return(.success)
  }
}
extension LEReadResolvingListSize: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.resolvingListSize = UInt8(clamping: controller.configuration.resolvingListSize)
    return result
  }
}
extension LEReadPeerResolvableAddress: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let entry = controller.resolvingList[AirAddress(peerIdentityAddressType, peerIdentityAddress)]
    guard let heard = entry?.heard else { return Return(.unknownConnectionIdentifier) }
    var result = Return(.success)
    result.peerResolvableAddress = heard
    return result
  }
}
extension LEReadLocalResolvableAddress: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let entry = controller.resolvingList[AirAddress(peerIdentityAddressType, peerIdentityAddress)]
    guard let local = entry?.local.address else { return Return(.unknownConnectionIdentifier) }
    var result = Return(.success)
    result.localResolvableAddress = local
    return result
  }
}
extension LESetAddressResolutionEnable: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.isActive { return Return(.commandDisallowed) }
    controller.resolvingList.isEnabled = addressResolutionEnable
    return Return(.success)
  }
}
extension LESetResolvablePrivateAddressTimeout: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    guard (1...3600).contains(rpaTimeout) else { return Return(.invalidHCICommandParameters) }
    controller.resolvingList.timeout = .seconds(Int64(rpaTimeout))
    return Return(.success)
  }
}
extension LESetPrivacyMode: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesResolvingList { return Return(.commandDisallowed) }
    guard privacyMode.rawValue <= 1, peerIdentityAddressType.rawValue <= 1 else {
      return Return(.invalidHCICommandParameters)
    }
    guard let index = controller.resolvingList.index(of: AirAddress(peerIdentityAddressType, peerIdentityAddress))
    else { return Return(.unknownConnectionIdentifier) }
    controller.resolvingList.set(privacyMode, at: index)
    return Return(.success)
  }
}
