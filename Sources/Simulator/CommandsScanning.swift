import BindruneWire
import BindruneHCI

// Scanning, legacy and extended: the checks and settings of each command. Vol 4, Part E, §7.8.10, §7.8.11, §7.8.64,
// §7.8.65. AirAdvertising.swift performs it.

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
/// Vol 4, Part E, §7.8.10: the window is at most the interval, and both are at least 2.5 ms.
func isScanTiming(_ interval: ScanInterval, _ window: ScanInterval, longest: UInt16) -> Bool {
  window.rawValue >= 4 && window <= interval && interval.rawValue <= longest
}
