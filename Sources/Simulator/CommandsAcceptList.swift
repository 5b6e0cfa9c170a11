import BindruneWire
import BindruneHCI

// The Filter Accept List. Vol 4, Part E, §7.8.14 – §7.8.17.

extension VirtualController {
  var acceptListSize: Int { Int(configuration.filterAcceptListSize) }
  /// The list cannot change while it is in use.
  fileprivate var usesAcceptList: Bool {
    advertisers.contains { $0.isEnabled && $0.filterPolicy.rawValue != 0 }
      || (scanner.isEnabled && scanner.filterPolicy.usesAcceptList)
      || (initiator.map { $0.peer == nil } ?? false)
  }
  fileprivate var acceptCount: Int { acceptList.count + (acceptsAnonymous ? 1 : 0) }
  func accepts(_ address: AirAddress) -> Bool { acceptList.contains(address) }
}
extension LEReadFilterAcceptListSize: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.filterAcceptListSize = UInt8(controller.acceptListSize)
    return result
  }
}
extension LEClearFilterAcceptList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    controller.acceptList.removeAll()
    controller.acceptsAnonymous = false
    return Return(.success)
  }
}
extension LEAddDeviceToFilterAcceptList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    let entry = AirAddress(addressType, address), isAnonymous = addressType == .anonymous
    guard isAnonymous || addressType.rawValue <= 1 else { return Return(.invalidHCICommandParameters) }
    if isAnonymous ? controller.acceptsAnonymous : controller.accepts(entry) { return Return(.success) }
    if controller.acceptCount == controller.acceptListSize { return Return(.memoryCapacityExceeded) }
    if isAnonymous { controller.acceptsAnonymous = true } else { controller.acceptList.append(entry) }
    return Return(.success)
  }
}
extension LERemoveDeviceFromFilterAcceptList: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    let entry = AirAddress(addressType, address), isAnonymous = addressType == .anonymous
    guard isAnonymous || addressType.rawValue <= 1 else { return Return(.invalidHCICommandParameters) }
    if isAnonymous { controller.acceptsAnonymous = false } else { controller.acceptList.removeAll { $0 == entry } }
    return Return(.success)
  }
}
