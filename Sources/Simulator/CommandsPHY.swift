import BindruneWire
import BindruneHCI

// The modulation of a link. Vol 4, Part E, §7.8.47 – §7.8.49; Vol 6, Part B, §5.1.10.

/// Modulations that one end offers for sending and receiving, as in LL_PHY_REQ. Vol 6, Part B, §2.4.2.22.
struct RequestedPHYs: BitwiseCopyable, Equatable {
  var transmit: PHYSet, receive: PHYSet
}

extension PHY {
  /// The set of this PHY; for an invalid number, the empty set.
  var set: PHYSet { PHYSet(rawValue: 1 << (rawValue &- 1)) }
}
extension PHYSet {
  fileprivate var fastest: PHY? {
    contains(.le2M) ? .le2M : contains(.le1M) ? .le1M : contains(.leCoded) ? .leCoded : nil
  }
}
extension VirtualController {
  var phys: PHYSet {
    PHYSet.le1M.union(has(.le2MPHY) ? .le2M : []).union(has(.leCodedPHY) ? .leCoded : [])
  }
  /// Whether it supports the PHY procedures.
  var choosesPHYs: Bool { phys != .le1M }

  /// The preference in a command's parameters; a status if they are invalid.
  fileprivate func preference(
    _ indifference: PHYIndifference, _ transmit: PHYSet, _ receive: PHYSet
  ) -> (RequestedPHYs?, HCIStatus) {
    let preference = RequestedPHYs(
      transmit: indifference.contains(.transmitter) ? phys : transmit,
      receive: indifference.contains(.receiver) ? phys : receive)
    for set in [preference.transmit, preference.receive] {
      if set.isEmpty || !set.isSubset(of: [.le1M, .le2M, .leCoded]) { return (nil, .invalidHCICommandParameters) }
      if !set.isSubset(of: phys) { return (nil, .unsupportedFeatureOrParameterValue) }
    }
    return (preference, .success)
  }
}

extension LEReadPHY: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.txPHY = medium.links[end].phy
    result.rxPHY = medium.links[end.other].phy
    return result
  }
}
extension LESetDefaultPHY: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let (preference, status) = controller.preference(allPHYs, txPHYs, rxPHYs)
    if let preference { controller.defaultPHYs = preference }
    return Return(status)
  }
}
extension LESetPHY: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    let (preference, status) = controller.preference(allPHYs, txPHYs, rxPHYs)
    guard let preference else { return answer(status) }
    if medium.links[end].phyPreference.isRequested { return answer(.commandDisallowed) }
    medium.links[end].phyPreference = .requested(preference)
    medium.send(.phyRequest(preference), end)
    return answer(.success)
  }
}

extension Link {
  /// LL_PHY_REQ: the peripheral makes an offer, the central decides. Vol 6, Part B, §5.1.10. `defaults`: what its host
  /// wants on all links.
  mutating func receive(_ preference: RequestedPHYs, at role: LinkRole, defaults: RequestedPHYs) {
    if role == .peripheral {
      peripheral.control.append(.phyResponse(peripheral.phyPreference.preference ?? defaults))
    } else if central.phyPreference.isRequested {
      // Both ends have asked: the central's request continues. Vol 6, Part B, §5.3.
      let collision = HCIStatus(rawValue: 0x23)
      central.control.append(.reject(type: LLControl.phyRequestType, error: collision))
    } else {
      choosePHYs(preference, defaults: defaults)
    }
  }
  /// The central's choice: the fastest common modulation, in each direction separately; else it is unchanged.
  mutating func choosePHYs(_ peripherals: RequestedPHYs, defaults: RequestedPHYs) {
    let centrals = central.phyPreference.preference ?? defaults
    let update = PHYUpdate(
      central: centrals.transmit.intersection(peripherals.receive).fastest ?? central.phy,
      peripheral: peripherals.transmit.intersection(centrals.receive).fastest ?? peripheral.phy)
    central.control.append(.phyUpdate(update))
  }
  /// The end of an update for the host at this end.
  mutating func phyUpdateComplete(_ status: HCIStatus, at role: LinkRole) -> LEPHYUpdateComplete {
    if case .requested(let preference) = self[role].phyPreference { self[role].phyPreference = .agreed(preference) }
    return LEPHYUpdateComplete.with {
      $0.status = status
      $0.connectionHandle = self[role].handle
      $0.txPHY = self[role].phy
      $0.rxPHY = self[role.other].phy
    }
  }
}

extension Air {
  /// New modulations come into force at both ends. A host that did not request them gets an event only for a change.
  mutating func apply(_ update: PHYUpdate, _ id: LinkID) {
    let isNew = medium.links[id].use(update)
    for role in LinkRole.both where medium.links[id][role].isOpen {
      if isNew || medium.links[id][role].phyPreference.isRequested { reportPHYs(.success, LinkPlace(id, role)) }
    }
  }
  mutating func reportPHYs(_ status: HCIStatus, _ end: LinkPlace) {
    report(medium.links[end.link].phyUpdateComplete(status, at: end.role), at: end)
  }
}

/// LL_PHY_UPDATE_IND: the modulation with which each end sends. Vol 6, Part B, §2.4.2.23.
struct PHYUpdate: BitwiseCopyable, Equatable { var central: PHY, peripheral: PHY }

extension VirtualController {
  /// All its modulations, unless its host has set others.
  var defaultPreference: RequestedPHYs { defaultPHYs ?? RequestedPHYs(transmit: phys, receive: phys) }
}
