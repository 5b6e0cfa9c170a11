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
    let end = controllers[i].connections[index].end
    let isContinuing = packet[2] >> 4 & 0b11 == PacketBoundaryFlag.continuing.rawValue
    let data = packet.extracting(ACLPacket.headerCount..<packet.count)
    if isInstant, let (controller, handle) = medium.links[end.link].receiverAtOnce(from: end.role) {
      let peer = controller.index
      if controllers[peer].takesData, length <= Int(controllers[peer].configuration.aclDataLength) {
        controllers[peer].deliver(handle, isContinuing ? .continuing : .first, data, now: medium.now)
        return controllers[i].completeAtOnce(index)
      }
    }
    controllers[i].takeBuffer(index)
    medium.links[end].data.append(data, Span(), tag: isContinuing ? 1 : 0)
    serve(end.link)
  }

  // MARK: Connection events

  /// Performs one connection event: packets in both directions until neither end has more, one is lost, or the time is
  /// over.
  mutating func connectionEvent(_ id: LinkID) {
    guard medium.links.contains(id) else { return }
    let due = medium.links[id].beginEvent()
    if let parameters = due.parameters { apply(parameters, id) }
    if let phys = due.phys { apply(phys, id) }
    var left = medium.links[id].parameters.period - .microseconds(300)
    var packets = 0
    repeat {
      left -= medium.links[id].airTime
      guard left >= .zero || packets == 0 else { break }
      guard transmit(from: LinkPlace(id, .central)), transmit(from: LinkPlace(id, .peripheral)) else { break }
      packets += 1
      if let most = configuration.packetsPerEvent, packets >= most { break }
    } while medium.links.contains(id) && medium.links[id].isBusy
    supervise(id)
    guard medium.links.contains(id) else { return }
    medium.schedule.plan(.connectionEvent(id), at: medium.now + medium.links[id].parameters.period)
  }

  /// On an instant air: moves everything that can move. Otherwise the next connection event does.
  mutating func serve(_ id: LinkID) {
    guard isInstant, medium.links.contains(id), medium.links[id].silentSince == nil else { return }
    var moved: Int
    repeat {
      moved = medium.moved
      guard transmit(from: LinkPlace(id, .central)), transmit(from: LinkPlace(id, .peripheral)) else { return }
    } while medium.moved != moved && medium.links.contains(id)
  }
  /// A host has caught up: moves data that was held back for it.
  mutating func resume(_ id: ControllerID) {
    controllers[id.index].holdsBack = false
    guard isInstant else { return }
    for connection in controllers[id.index].connections { medium.errands.append(.serve(connection.end.link)) }
    runErrands()
  }

  /// Sends one packet from one end to the other, an empty one if there is nothing to send. Vol 6, Part B, §4.5.9.
  /// Returns whether it was received and the link still exists.
  private mutating func transmit(from end: LinkPlace) -> Bool {
    guard medium.links.contains(end.link) else { return false }
    guard let phase = medium.links[end].beginPacket(most: longest(end)) else { return false }
    let isReceived = reaches(from: end)
    if isReceived { arrive(from: end) }
    // This packet acknowledges LL_TERMINATE_IND, whether or not it was received.
    if case .closing(let reason) = phase, medium.links.contains(end.link) { close(end, reason) }
    return isReceived && medium.links.contains(end.link)
  }
  /// Data octets in one packet: the effective length; on an instant air, the limit of the other's host.
  private func longest(_ end: LinkPlace) -> Int {
    if !isInstant { return Int(medium.links[end].effective.transmit) }
    return Int(controllers[medium.links[end.other].controller.index].configuration.aclDataLength)
  }
  private mutating func reaches(from end: LinkPlace) -> Bool {
    guard medium.links[end.other].isOpen else { return false }
    if isInstant { return medium.links[end.link].silentSince == nil }
    let (from, to) = medium.links[end.link].controllers(from: end.role)
    guard let strength = carry(from: from, to: to) else { return false }
    medium.links[end.other].strength = strength
    return true
  }
  /// The other end has received the packet of this one: its own packet in flight is acknowledged, and this one is
  /// accepted, unless it is a duplicate.
  private mutating func arrive(from end: LinkPlace) {
    if let acknowledged = medium.links[end.other].hear(now: medium.now) { acknowledge(acknowledged, end.other) }
    // The acknowledgement may have completed the last step of an end: the packet then has no recipient.
    guard medium.links.contains(end.link) else { return }
    switch medium.links[end.link].arrival(from: end.role, now: medium.now) {
    case .nothing: break
    // This end leaves at once, and the other one hears no more of it. Vol 6, Part B, §5.1.3.1.
    case .wrongKey: close(end.other, .connectionTerminatedMICFailure)
    case .control(let pdu):
      medium.moved += 1
      receive(pdu, at: end.other)
    case .data(let count):
      let (to, handle) = host(at: end.other)
      if !controllers[to].takesData {
        controllers[to].holdsBack = true
        return
      }
      medium.links[end].flight = .delivered(.data(count))
      medium.moved += 1
      Self.hand(medium.links[end], count, to: &controllers[to], handle, now: medium.now)
    }
  }
  /// The index of the controller at an end, and the handle by which its host knows the link.
  func host(at end: LinkPlace) -> (index: Int, handle: ConnectionHandle) {
    (medium.links[end].controller.index, medium.links[end].handle)
  }
  /// Sends an event about the link to the host at this end.
  mutating func report(_ event: some HCIEventMessage, at end: LinkPlace) {
    controllers[medium.links[end].controller.index].emit(event, now: medium.now)
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
  /// The packet in flight from this end has been acknowledged.
  private mutating func acknowledge(_ acknowledged: LinkEnd.Acknowledged, _ end: LinkPlace) {
    medium.moved += 1
    switch acknowledged {
    case .control, .fragment: break
    case .termination: close(end, .connectionTerminatedByLocalHost)
    case .packet:
      let (i, handle) = host(at: end)
      if let index = controllers[i].connection(handle) { controllers[i].complete(index) }
    }
  }

  // MARK: Ends

  /// Ends a link whose peer has been silent for too long.
  private mutating func supervise(_ id: LinkID) {
    for role in LinkRole.both where medium.links.contains(id) {
      if let reason = medium.links[id].reasonToEnd(role, now: medium.now) { close(LinkPlace(id, role), reason) }
    }
  }
  /// Ends a link at one end, and reports that to its host.
  mutating func close(_ end: LinkPlace, _ reason: HCIStatus) {
    guard medium.links[end].close() else { return }
    let (i, handle) = host(at: end)
    let event = DisconnectionComplete.with {
      $0.connectionHandle = handle
      $0.reason = reason
    }
    controllers[i].removeConnection(handle)
    controllers[i].emit(event, now: medium.now)
    noteReach(end.link)
  }
  /// The controller at this end has been reset.
  mutating func abandon(_ end: LinkPlace) {
    guard medium.links.contains(end.link) else { return }
    medium.links[end].close()
    let (i, peer) = medium.links[end.link].controllers(from: end.role)
    if controllers[i].configuration.terminatesOnReset, medium.links[end.other].isOpen, isReachable(i, peer) {
      close(end.other, .remoteUserTerminatedConnection)
    }
    noteReach(end.link)
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
    let (a, b) = medium.links[id].controllers(from: .central)
    // A closed end may belong to a removed controller, whose index another may have.
    let isOpen = medium.links[id].central.isOpen && medium.links[id].peripheral.isOpen
    if isOpen {
      medium.links[id].central.strength = level(from: b, to: a)
      medium.links[id].peripheral.strength = level(from: a, to: b)
    }
    if isOpen, isReachable(a, b) {
      if medium.links[id].endSilence() { serve(id) }
    } else if let end = medium.links[id].fallSilent(now: medium.now) {
      medium.schedule.plan(.supervision(id, since: medium.now), at: end)
    }
  }
  mutating func superviseSilence(_ id: LinkID, _ since: Instant) {
    guard medium.links.contains(id), medium.links[id].silentSince == since else { return }
    for role in LinkRole.both where medium.links.contains(id) && medium.links[id][role].isOpen {
      close(LinkPlace(id, role), medium.links[id][role].reasonForSilence)
    }
  }
}
