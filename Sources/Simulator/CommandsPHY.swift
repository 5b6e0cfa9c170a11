import BindruneWire
import HCI

// The strength and the modulation of a link. Vol 4, Part E, §7.5.4, §7.8.47 – §7.8.49; Vol 6, Part B, §5.1.10.

/// Modulations that one end is willing to send and to receive with, as LL_PHY_REQ tells. Vol 6, Part B, §2.4.2.22.
struct PHYWish: BitwiseCopyable, Equatable {
  var transmit: PHYSet, receive: PHYSet
}

extension PHY {
  /// The set of this one; of a number that is none, the empty set.
  var set: PHYSet { PHYSet(rawValue: 1 << (rawValue &- 1)) }
}
extension VirtualController {
  var phys: PHYSet {
    PHYSet.le1M.union(has(.le2MPHY) ? .le2M : []).union(has(.leCodedPHY) ? .leCoded : [])
  }
  /// Whether it knows any procedure about them.
  var choosesPHYs: Bool { phys != .le1M }

  /// What the parameters of a command come to; a status where they may not be.
  fileprivate func wish(
    _ indifference: PHYIndifference, _ transmit: PHYSet, _ receive: PHYSet
  ) -> (PHYWish?, HCIStatus) {
    let wish = PHYWish(
      transmit: indifference.contains(.transmitter) ? phys : transmit,
      receive: indifference.contains(.receiver) ? phys : receive)
    for set in [wish.transmit, wish.receive] {
      if set.isEmpty || !set.isSubset(of: [.le1M, .le2M, .leCoded]) { return (nil, .invalidHCICommandParameters) }
      if !set.isSubset(of: phys) { return (nil, .unsupportedFeatureOrParameterValue) }
    }
    return (wish, .success)
  }
}

extension ReadRSSI: LinkExecutable {
  var connectionHandle: ConnectionHandle { handle }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.rssi = controller.atAntenna(medium.links[end.link][end.role].strength)
    return result
  }
}
extension VirtualController {
  /// What the radio measures, corrected by the path from the antenna; 127 stays "not known". Vol 4, Part E, §7.8.76.
  func atAntenna(_ strength: Int8) -> Int8 {
    strength == 127 ? 127 : Int8(max(-127, min(20, Int(strength) - Int(rfPath.receive) / 10)))
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
    let (wish, status) = controller.wish(allPHYs, txPHYs, rxPHYs)
    if let wish { controller.defaultPHYs = wish }
    return Return(status)
  }
}
extension LESetPHY: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    let (wish, status) = controller.wish(allPHYs, txPHYs, rxPHYs)
    guard let wish else { return answer(status) }
    if medium.links[end.link][end.role].phyPreference.isRequested { return answer(.commandDisallowed) }
    medium.links[end.link][end.role].phyPreference = .requested(wish)
    medium.send(.phyRequest(wish), end)
    return answer(.success)
  }
}

extension Air {
  /// LL_PHY_REQ: the peripheral says what it is willing to, the central decides. Vol 6, Part B, §5.1.10.
  mutating func receivePHYRequest(_ wish: PHYWish, _ id: LinkID, at role: LinkRole) {
    let i = medium.links[id][role].controller.index
    if role == .peripheral {
      medium.links[id].peripheral.control.append(
        .phyResponse(medium.links[id].peripheral.phyPreference.wish ?? controllers[i].defaultWish))
    } else if medium.links[id].central.phyPreference.isRequested {
      // Both have asked: the central's request goes on. Vol 6, Part B, §5.3.
      let collision = HCIStatus(rawValue: 0x23)
      medium.links[id].central.control.append(.reject(type: LLControl.phyRequestType, error: collision))
    } else {
      choosePHYs(wish, id)
    }
  }
  /// The central's choice: the fastest of what both are willing to, in each direction by itself; else it stays.
  mutating func choosePHYs(_ peripheral: PHYWish, _ id: LinkID) {
    let i = medium.links[id].central.controller.index
    let central = medium.links[id].central.phyPreference.wish ?? controllers[i].defaultWish
    let update = PHYUpdate(
      central: fastest(central.transmit.intersection(peripheral.receive)) ?? medium.links[id].central.phy,
      peripheral: fastest(peripheral.transmit.intersection(central.receive)) ?? medium.links[id].peripheral.phy)
    medium.links[id].central.control.append(.phyUpdate(update))
  }
  private func fastest(_ set: PHYSet) -> PHY? {
    set.contains(.le2M) ? .le2M : set.contains(.le1M) ? .le1M : set.contains(.leCoded) ? .leCoded : nil
  }
  /// New modulations come into force at both ends. A host that did not ask gets an event for a change only.
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
    if case .requested(let wish) = medium.links[id][role].phyPreference {
      medium.links[id][role].phyPreference = .settled(wish)
    }
    var event = LEPHYUpdateComplete()
    event.status = status
    event.connectionHandle = medium.links[id][role].handle
    event.txPHY = medium.links[id][role].phy
    event.rxPHY = medium.links[id][role.other].phy
    controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
  }
}

/// LL_PHY_UPDATE_IND: with which modulation each end sends. Vol 6, Part B, §2.4.2.23.
struct PHYUpdate: BitwiseCopyable, Equatable { var central: PHY, peripheral: PHY }

extension VirtualController {
  /// All it has, unless its host has said otherwise.
  var defaultWish: PHYWish { defaultPHYs ?? PHYWish(transmit: phys, receive: phys) }
}
