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
    result.txPHY = medium.links[end.link][end.role].phy
    result.rxPHY = medium.links[end.link][end.role.other].phy
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
    if medium.links[end.link][end.role].phyPreference.isRequested { return answer(.commandDisallowed) }
    medium.links[end.link][end.role].phyPreference = .requested(preference)
    medium.send(.phyRequest(preference), end)
    return answer(.success)
  }
}

extension Air {
  /// LL_PHY_REQ: the peripheral makes an offer, the central decides. Vol 6, Part B, §5.1.10.
  mutating func receivePHYRequest(_ preference: RequestedPHYs, _ id: LinkID, at role: LinkRole) {
    let i = medium.links[id][role].controller.index
    if role == .peripheral {
      medium.links[id].peripheral.control.append(
        .phyResponse(medium.links[id].peripheral.phyPreference.preference ?? controllers[i].defaultPreference))
    } else if medium.links[id].central.phyPreference.isRequested {
      // Both ends have asked: the central's request continues. Vol 6, Part B, §5.3.
      let collision = HCIStatus(rawValue: 0x23)
      medium.links[id].central.control.append(.reject(type: LLControl.phyRequestType, error: collision))
    } else {
      choosePHYs(preference, id)
    }
  }
  /// The central's choice: the fastest common modulation, in each direction separately; else it is unchanged.
  mutating func choosePHYs(_ peripheral: RequestedPHYs, _ id: LinkID) {
    let i = medium.links[id].central.controller.index
    let central = medium.links[id].central.phyPreference.preference ?? controllers[i].defaultPreference
    let update = PHYUpdate(
      central: fastest(central.transmit.intersection(peripheral.receive)) ?? medium.links[id].central.phy,
      peripheral: fastest(peripheral.transmit.intersection(central.receive)) ?? medium.links[id].peripheral.phy)
    medium.links[id].central.control.append(.phyUpdate(update))
  }
  private func fastest(_ set: PHYSet) -> PHY? {
    set.contains(.le2M) ? .le2M : set.contains(.le1M) ? .le1M : set.contains(.leCoded) ? .leCoded : nil
  }
  /// New modulations come into force at both ends. A host that did not request them gets an event only for a change.
  mutating func apply(_ update: PHYUpdate, _ id: LinkID) {
    let isNew = update != PHYUpdate(central: medium.links[id].central.phy, peripheral: medium.links[id].peripheral.phy)
    medium.links[id].central.phy = update.central
    medium.links[id].peripheral.phy = update.peripheral
    medium.links[id].phyUpdate = nil
    for role in [LinkRole.central, .peripheral] where medium.links[id][role].isOpen {
      if isNew || medium.links[id][role].phyPreference.isRequested { reportPHYs(.success, id, role) }
    }
  }
  mutating func reportPHYs(_ status: HCIStatus, _ id: LinkID, _ role: LinkRole) {
    if case .requested(let preference) = medium.links[id][role].phyPreference {
      medium.links[id][role].phyPreference = .agreed(preference)
    }
    let event = LEPHYUpdateComplete.with {
      $0.status = status
      $0.connectionHandle = medium.links[id][role].handle
      $0.txPHY = medium.links[id][role].phy
      $0.rxPHY = medium.links[id][role.other].phy
    }
    controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
  }
}

/// LL_PHY_UPDATE_IND: the modulation with which each end sends. Vol 6, Part B, §2.4.2.23.
struct PHYUpdate: BitwiseCopyable, Equatable { var central: PHY, peripheral: PHY }

extension VirtualController {
  /// All its modulations, unless its host has set others.
  var defaultPreference: RequestedPHYs { defaultPHYs ?? RequestedPHYs(transmit: phys, receive: phys) }
}
