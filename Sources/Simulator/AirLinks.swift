import BindruneWire
import BindruneHCI

// Links: connection events, acknowledgement, data in both directions, control PDUs, and how a link ends.
// Vol 6, Part B, §4.5 and §5.1.

extension Air {
  private var isInstant: Bool { medium.radio.configuration.isInstant }

  // MARK: Data from the host

  /// An ACL data packet from a host. Vol 4, Part E, §5.4.2 and §4.1.1.
  mutating func receiveData(_ packet: Span<UInt8>, at id: ControllerID) {
    let i = id.index
    guard packet.count >= ACLPacket.headerCount,
      Int(packet[3]) | Int(packet[4]) << 8 == packet.count - ACLPacket.headerCount, packet[2] >> 4 != 0b0011
    else {
      controllers[i].faults.malformedPackets += 1
      return
    }
    let handle = ConnectionHandle(rawValue: UInt16(packet[1]) | UInt16(packet[2] & 0x0F) << 8)
    guard let index = controllers[i].connection(handle) else {
      controllers[i].faults.dataForUnknownHandle += 1
      return
    }
    let length = packet.count - ACLPacket.headerCount
    guard length <= Int(controllers[i].configuration.aclDataLength),
      controllers[i].usedBuffers < Int(controllers[i].configuration.aclBufferCount)
    else {
      controllers[i].faults.dataBeyondBuffers += 1
      if !controllers[i].isBacklogged { controllers[i].emit(DataBufferOverflow(), now: medium.now) }
      return
    }
    // An empty packet is not an L2CAP fragment, and would not be one on the air.
    if length == 0 { return controllers[i].completeAtOnce(index) }
    let link = controllers[i].connections[index].link, role = controllers[i].connections[index].role
    let isContinuing = packet[2] >> 4 & 0b11 == PacketBoundaryFlag.continuing.rawValue
    let data = packet.extracting(ACLPacket.headerCount..<packet.count)
    if isInstant, let (controller, handle) = medium.links[link].receiverAtOnce(from: role) {
      let peer = controller.index
      if controllers[peer].takesData, length <= Int(controllers[peer].configuration.aclDataLength) {
        controllers[peer].deliver(handle, isContinuing ? .continuing : .first, data, now: medium.now)
        return controllers[i].completeAtOnce(index)
      }
    }
    controllers[i].takeBuffer(index)
    medium.links[link][role].data.append(data, Span(), tag: isContinuing ? 1 : 0)
    serve(link)
  }

  // MARK: Connection events

  /// Performs one connection event: packets in both directions until neither end has more, one is lost, or the time is
  /// over.
  mutating func connectionEvent(_ id: LinkID) {
    guard medium.links.contains(id) else { return }
    medium.links[id].event += 1
    if let update = medium.links[id].update, update.event <= medium.links[id].event { apply(update.parameters, id) }
    if let update = medium.links[id].channelUpdate, update.event <= medium.links[id].event {
      (medium.links[id].channels, medium.links[id].channelUpdate) = (update.channels, nil)
    }
    if let update = medium.links[id].phyUpdate, update.event <= medium.links[id].event { apply(update.phys, id) }
    var left = medium.links[id].parameters.period - .microseconds(300)
    var packets = 0
    repeat {
      left -= airTime(id, .central) + airTime(id, .peripheral)
      guard left >= .zero || packets == 0 else { break }
      guard transmit(id, from: .central), transmit(id, from: .peripheral) else { break }
      packets += 1
      if let most = configuration.packetsPerEvent, packets >= most { break }
    } while medium.links.contains(id) && (medium.links[id].central.isBusy || medium.links[id].peripheral.isBusy)
    supervise(id)
    guard medium.links.contains(id) else { return }
    medium.schedule.plan(.connectionEvent(id), at: medium.now + medium.links[id].parameters.period)
  }
  /// The duration of the next packet of one end and of the pause after it: T_IFS is 150 µs. Vol 6, Part B, §4.1.1.
  private func airTime(_ id: LinkID, _ role: LinkRole) -> Duration {
    var octets: UInt16 = 0
    if medium.links[id][role].canSendControl {
      octets = 12
    } else if medium.links[id][role].canSendData {
      let left = medium.links[id][role].data.frontCount - medium.links[id][role].progress
      octets = UInt16(min(left, longest(id, role)))
    }
    return .microseconds(150 + Int64(DataLength.time(octets, on: medium.links[id][role].phy)))
  }

  /// On an instant air: moves everything that can move. Otherwise the next connection event does.
  mutating func serve(_ id: LinkID) {
    guard isInstant, medium.links.contains(id), medium.links[id].silentSince == nil else { return }
    var moved: Int
    repeat {
      moved = medium.moved
      guard transmit(id, from: .central), transmit(id, from: .peripheral) else { return }
    } while medium.moved != moved && medium.links.contains(id)
  }
  /// A host has caught up: moves data that was held back for it.
  mutating func resume(_ id: ControllerID) {
    controllers[id.index].holdsBack = false
    guard isInstant else { return }
    for connection in controllers[id.index].connections { medium.errands.append(.serve(connection.link)) }
    runErrands()
  }

  /// Sends one packet from one end to the other, an empty one if there is nothing to send. Vol 6, Part B, §4.5.9.
  /// Returns whether it was received and the link still exists.
  private mutating func transmit(_ id: LinkID, from role: LinkRole) -> Bool {
    guard medium.links.contains(id) else { return false }
    guard medium.links[id][role].isOpen else { return false }
    medium.links[id][role].choose(most: longest(id, role))
    let phase = medium.links[id][role].phase
    let isReceived = reaches(id, from: role)
    if isReceived { arrive(id, from: role) }
    // This packet acknowledges LL_TERMINATE_IND, whether or not it was received.
    if case .closing(let reason) = phase, medium.links.contains(id) { close(id, role, reason) }
    return isReceived && medium.links.contains(id)
  }
  /// Data octets in one packet: the effective length; on an instant air, the limit of the other's host.
  private func longest(_ id: LinkID, _ role: LinkRole) -> Int {
    if !isInstant { return Int(medium.links[id][role].effective.transmit) }
    return Int(controllers[medium.links[id][role.other].controller.index].configuration.aclDataLength)
  }
  private mutating func reaches(_ id: LinkID, from role: LinkRole) -> Bool {
    guard medium.links[id][role.other].isOpen else { return false }
    if isInstant { return medium.links[id].silentSince == nil }
    let from = medium.links[id][role].controller.index, to = medium.links[id][role.other].controller.index
    guard let strength = carry(from: from, to: to) else { return false }
    medium.links[id][role.other].strength = strength
    return true
  }
  /// The other end has received the packet of `role`: its own packet in flight is acknowledged, and this one is
  /// accepted, unless it is a duplicate.
  private mutating func arrive(_ id: LinkID, from role: LinkRole) {
    medium.links[id][role.other].lastHeard = medium.now
    if case .delivered(let content) = medium.links[id][role.other].flight { acknowledge(content, id, role.other) }
    // The acknowledgement may have completed the last step of an end: the packet then has no recipient.
    guard medium.links.contains(id), medium.links[id][role.other].isOpen,
      case .underway(let content) = medium.links[id][role].flight
    else { return }
    if medium.links[id][role].transmitKey != medium.links[id][role.other].receiveKey {
      // The MIC is wrong: this end leaves at once, and the other one hears no more of it. Vol 6, Part B, §5.1.3.1.
      return close(id, role.other, .connectionTerminatedMICFailure)
    }
    if medium.links[id][role].transmitKey != nil { medium.links[id][role.other].lastAuthenticated = medium.now }
    switch content {
    case .control:
      guard let pdu = medium.links[id][role].control.first else { return }
      medium.links[id][role].flight = .delivered(content)
      medium.moved += 1
      receive(pdu, id, at: role.other)
    case .data(let count):
      let to = medium.links[id][role.other].controller.index
      if !controllers[to].takesData {
        controllers[to].holdsBack = true
        return
      }
      medium.links[id][role].flight = .delivered(content)
      medium.moved += 1
      let handle = medium.links[id][role.other].handle
      Self.hand(medium.links[id][role], count, to: &controllers[to], handle, now: medium.now)
    }
  }
  /// Moves a fragment to the receiving controller. LLID 2 begins an L2CAP PDU, 1 continues it. Vol 6, Part B, §2.4.
  private static func hand(
    _ end: borrowing LinkEnd, _ count: Int, to controller: inout VirtualController, _ handle: ConnectionHandle,
    now: Instant
  ) {
    let isContinuing = end.progress > 0 || end.data.tag == 1
    end.data.withFront { packet in
      let data = packet.extracting(end.progress..<end.progress + count)
      controller.deliver(handle, isContinuing ? .continuing : .first, data, now: now)
    }
  }
  /// The packet in flight from `role` has been acknowledged.
  private mutating func acknowledge(_ content: LinkEnd.Flight.Content, _ id: LinkID, _ role: LinkRole) {
    medium.links[id][role].flight = .nothing
    medium.moved += 1
    switch content {
    case .control:
      switch medium.links[id][role].control.popFirst() {
      case .terminate: close(id, role, .connectionTerminatedByLocalHost)
      case .startEncryptionRequest, .pauseEncryptionResponse: medium.links[id][role].changeReceiveKey()
      default: break
      }
    case .data(let count):
      medium.links[id][role].progress += count
      guard medium.links[id][role].progress >= medium.links[id][role].data.frontCount else { return }
      medium.links[id][role].progress = 0
      medium.links[id][role].data.removeFirst()
      let i = medium.links[id][role].controller.index
      if let index = controllers[i].connection(medium.links[id][role].handle) { controllers[i].complete(index) }
    }
  }

  // MARK: Ends

  /// Ends a link whose peer has been silent for too long. Vol 6, Part B, §4.5.2: the supervision time-out, or six
  /// intervals before the first packet.
  private mutating func supervise(_ id: LinkID) {
    guard medium.links.contains(id) else { return }
    let parameters = medium.links[id].parameters
    for role in [LinkRole.central, .peripheral] where medium.links.contains(id) && medium.links[id][role].isOpen {
      if let heard = medium.links[id][role].lastHeard {
        guard medium.now - heard >= parameters.supervision else { continue }
        close(id, role, medium.links[id][role].reasonForSilence)
      } else if medium.now - medium.links[id].start >= parameters.period * 6 {
        close(id, role, .connectionFailedToBeEstablished)
      }
    }
  }
  /// Ends a link at one end, and reports that to its host.
  mutating func close(_ id: LinkID, _ role: LinkRole, _ reason: HCIStatus) {
    guard medium.links[id][role].isOpen else { return }
    medium.links[id][role].close()
    let i = medium.links[id][role].controller.index, handle = medium.links[id][role].handle
    let event = DisconnectionComplete.with {
      $0.connectionHandle = handle
      $0.reason = reason
    }
    controllers[i].removeConnection(handle)
    controllers[i].emit(event, now: medium.now)
    noteReach(id)
  }
  /// The controller at this end has been reset.
  mutating func abandon(_ id: LinkID, _ role: LinkRole) {
    guard medium.links.contains(id) else { return }
    medium.links[id][role].close()
    let i = medium.links[id][role].controller.index, peer = medium.links[id][role.other].controller.index
    if controllers[i].configuration.terminatesOnReset, medium.links[id][role.other].isOpen, isReachable(i, peer) {
      close(id, role.other, .remoteUserTerminatedConnection)
    }
    noteReach(id)
  }

  // MARK: Silence where there are no connection events

  /// Signal strength without random fading.
  private func level(from a: Int, to b: Int) -> Int8 {
    Radio.level(
      Radio.strength(
        controllers[a].configuration.transmitPower, from: controllers[a].configuration.position,
        to: controllers[b].configuration.position))
  }

  private func isReachable(_ a: Int, _ b: Int) -> Bool {
    medium.radio.reaches(
      controllers[a].configuration.transmitPower, controllers[a].id, controllers[a].configuration.position,
      controllers[b].id, controllers[b].configuration.position)
  }
  mutating func noteReachOfAll() {
    for index in 0..<medium.links.count {
      if let id = medium.links.id(at: index) { noteReach(id) }
    }
  }
  /// On an instant air: starts the supervision time-out of a link that has become silent, or resumes a link.
  mutating func noteReach(_ id: LinkID) {
    guard isInstant, medium.links.contains(id) else { return }
    let a = medium.links[id].central.controller.index, b = medium.links[id].peripheral.controller.index
    // A closed end may belong to a removed controller, whose index another may have.
    let isOpen = medium.links[id].central.isOpen && medium.links[id].peripheral.isOpen
    if isOpen {
      medium.links[id].central.strength = level(from: b, to: a)
      medium.links[id].peripheral.strength = level(from: a, to: b)
    }
    if isOpen, isReachable(a, b) {
      guard medium.links[id].silentSince != nil else { return }
      medium.links[id].silentSince = nil
      serve(id)
    } else if medium.links[id].silentSince == nil {
      medium.links[id].silentSince = medium.now
      let end = medium.now + medium.links[id].parameters.supervision
      medium.schedule.plan(.supervision(id, since: medium.now), at: end)
    }
  }
  mutating func superviseSilence(_ id: LinkID, _ since: Instant) {
    guard medium.links.contains(id), medium.links[id].silentSince == since else { return }
    for role in [LinkRole.central, .peripheral] where medium.links.contains(id) && medium.links[id][role].isOpen {
      close(id, role, medium.links[id][role].reasonForSilence)
    }
  }
}
