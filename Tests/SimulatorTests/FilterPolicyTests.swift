import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Scanning filter policies, especially for directed advertising. Vol 6, Part B, §4.3.3; Vol 4, Part E, §7.7.65.11,
/// §7.7.65.13, §7.8.10, §7.8.64.
@Suite struct FilterPolicyTests {
  /// The target of host 0's advertising. Host 1 scans.
  enum Target: CaseIterable {
    case nobody, scanner, other, resolvableByNobody, resolvableByScanner

    var address: (AddressType, DeviceAddress)? {
      switch self {
      case .nobody: nil
      case .scanner: (.public, Lab.address(1))
      case .other: (.public, Lab.address(5))
      case .resolvableByNobody, .resolvableByScanner: (.random, ResolvingListTests.resolvable)
      }
    }
  }
  /// The result of §4.3.3's rules for an advertiser in the Filter Accept List.
  private static func subevent(_ target: Target, _ policy: ScanningFilterPolicy, extended: Bool) -> UInt8? {
    let isExtendedPolicy = [.extendedUnfiltered, .extendedFiltered].contains(policy)
    switch target {
    case .other: return nil
    case .resolvableByNobody: return !isExtendedPolicy ? nil : extended ? 0x0D : 0x0B
    case .nobody, .scanner, .resolvableByScanner: return extended ? 0x0D : 0x02
    }
  }
  private static let policies: [ScanningFilterPolicy] = [
    .basicUnfiltered, .basicFiltered, .extendedUnfiltered, .extendedFiltered,
  ]

  /// Host 0 advertises with legacy PDUs; returns the LE events that host 1 gets. `accepted`: its Filter Accept List has
  /// host 0.
  private func heard(
    _ target: Target, _ policy: ScanningFilterPolicy, extended: Bool, accepted: Bool = true
  ) -> [[UInt8]] {
    var lab = Lab(hosts: 2)
    if accepted {
      var accept = LEAddDeviceToFilterAcceptList()
      accept.address = Lab.address(0)
      #expect(lab.status(1, accept) == 0)
    }
    if target == .resolvableByScanner {
      let add = LEAddDeviceToResolvingList(.public, Lab.address(0), peerIRK: 0, localIRK: ResolvingListTests.irk)
      #expect(lab.status(1, add) == 0)
      var resolve = LESetAddressResolutionEnable()
      resolve.addressResolutionEnable = true
      #expect(lab.status(1, resolve) == 0)
    }
    lab.advertise(0, target == .nobody ? .connectableScannableUndirected : .connectableDirectedLowDutyCycle) {
      guard let (type, address) = target.address else { return }
      $0.peerAddressType = type
      $0.peerAddress = address
    }
    scan(&lab, policy, extended: extended)
    lab.run(50)
    return lab.packets(1).filter { $0[1] == 0x3E }
  }
  private func scan(_ lab: inout Lab, _ policy: ScanningFilterPolicy, extended: Bool, active: Bool = false) {
    if extended {
      var parameters = LESetExtendedScanParameters(), enable = LESetExtendedScanEnable()
      parameters.scanningFilterPolicy = policy
      parameters.le1M.scanType = active ? .active : .passive
      enable.enable = true
      #expect(lab.status(1, parameters) == 0)
      lab.command(1, enable)
    } else {
      var parameters = LESetScanParameters(), enable = LESetScanEnable()
      parameters.scanningFilterPolicy = policy
      parameters.leScanType = active ? .active : .passive
      enable.leScanEnable = true
      #expect(lab.status(1, parameters) == 0)
      lab.command(1, enable)
    }
  }

  @Test(arguments: Target.allCases, [false, true]) func everyPolicy(target: Target, extended: Bool) {
    for policy in Self.policies {
      let subevents = Set(heard(target, policy, extended: extended).map { $0[3] })
      #expect(
        subevents == Set([Self.subevent(target, policy, extended: extended)].compactMap { $0 }),
        "policy \(policy.rawValue)")
      let isFiltered = [.basicFiltered, .extendedFiltered].contains(policy)
      let others = Set(heard(target, policy, extended: extended, accepted: false).map { $0[3] })
      #expect(others == (isFiltered ? [] : subevents), "policy \(policy.rawValue), not on the list")
    }
  }
  @Test func whatIsReported() {
    #expect(
      heard(.resolvableByNobody, .extendedUnfiltered, extended: false).first.map { hex($0) }
        == "04 3E 12 0B 01 01 00 01 44 33 22 11 00 01 AA FB 0D 94 81 70 EC")
    // Direct_Address_Type 0xFE: the controller is unable to resolve it.
    #expect(
      heard(.resolvableByNobody, .extendedUnfiltered, extended: true).first.map { hex($0) }
        == "04 3E 1A 0D 01 15 00 00 01 44 33 22 11 00 01 00 FF 7F EC 00 00 FE AA FB 0D 94 81 70 00")
    #expect(
      heard(.resolvableByScanner, .extendedUnfiltered, extended: false).first.map { hex($0) }
        == "04 3E 0C 02 01 01 00 01 44 33 22 11 00 00 EC")
    #expect(
      heard(.resolvableByScanner, .basicUnfiltered, extended: true).first.map { hex($0) }
        == "04 3E 1A 0D 01 15 00 00 01 44 33 22 11 00 01 00 FF 7F EC 00 00 02 02 44 33 22 11 00 00")
  }
  /// Bit 10 of LE_Event_Mask. Vol 4, Part E, §7.8.1.
  @Test func theEventIsMasked() {
    for (mask, isThere) in [("FF FB 1F 00 00 00 00 00", false), ("00 04 00 00 00 00 00 00", true)] {
      var lab = Lab(hosts: 2)
      lab.send(1, "01 01 20 08 \(mask)")
      lab.advertise(0, .connectableDirectedLowDutyCycle) {
        $0.peerAddressType = .random
        $0.peerAddress = ResolvingListTests.resolvable
      }
      scan(&lab, .extendedUnfiltered, extended: false)
      lab.run(50)
      #expect(lab.packets(1).contains { $0[1] == 0x3E } == isThere)
    }
  }
  /// The extended policies are a feature: without it, the controller refuses their parameters with 0x11.
  @Test func aControllerWithoutThem() {
    var bare = ControllerConfiguration(address: Lab.address(0))
    bare.features.remove(.extendedScannerFilterPolicies)
    for policy in Self.policies {
      var lab = Lab(.ideal, [bare, bare]), parameters = LESetScanParameters(), extended = LESetExtendedScanParameters()
      let status: UInt8 = [.basicUnfiltered, .basicFiltered].contains(policy) ? 0 : 0x11
      parameters.scanningFilterPolicy = policy
      extended.scanningFilterPolicy = policy
      #expect(lab.status(0, parameters) == status && lab.status(1, extended) == status)
    }
  }
  /// A scanner sends no scan request to an advertiser that it ignores, nor to one whose target address it cannot
  /// resolve.
  @Test(arguments: [
    (ScanningFilterPolicy.basicUnfiltered, Lab.address(1), true), (.basicUnfiltered, Lab.address(5), false),
    (.extendedUnfiltered, ResolvingListTests.resolvable, false), (.basicFiltered, Lab.address(1), false),
  ])
  func whoIsAsked(policy: ScanningFilterPolicy, target: DeviceAddress, isAsked: Bool) {
    var lab = Lab(hosts: 2), parameters = LESetExtendedAdvertisingParameters()
    parameters.advertisingHandle = AdvertisingHandle(1)
    parameters.primaryAdvertisingIntervalMin = PrimaryAdvertisingInterval(rawValue: 0x20)
    parameters.scannable = true
    parameters.directed = true
    parameters.peerAddressType = target == ResolvingListTests.resolvable ? .random : .public
    parameters.peerAddress = target
    parameters.scanRequestNotificationEnable = true
    #expect(lab.status(0, parameters) == 0)
    for command in ["01 38 20 06 01 03 01 02 01 09", "01 39 20 06 01 01 01 00 00 00"] { lab.send(0, command) }
    scan(&lab, policy, extended: true, active: true)
    lab.run(500)
    #expect(lab.packets(0).contains { $0[1] == 0x3E && $0[3] == 0x13 } == isAsked)
  }
}
