import BindruneWire
import BindruneHCI

// Encryption of links. Vol 6, Part B, §5.1.3.
//
//     central                             peripheral
//     LL_PAUSE_ENC_REQ  ──▶                                  only if the link is encrypted already
//                       ◀──  LL_PAUSE_ENC_RSP
//     LL_PAUSE_ENC_RSP  ──▶
//     LL_ENC_REQ        ──▶
//                       ◀──  LL_ENC_RSP                      both halves of SKD are known; the host is asked for the key
//                       ◀──  LL_START_ENC_REQ                or a rejection, if it has none
//     LL_START_ENC_RSP  ──▶                                  the first encrypted packet
//                       ◀──  LL_START_ENC_RSP
//
// An end uses a new key for its own packets at once. The peripheral uses it for the central's packets from the
// acknowledgement of LL_START_ENC_REQ on, and stops with that of LL_PAUSE_ENC_RSP: the central has the PDU then, and
// follows it. Until the end of the procedures, data and other control PDUs wait at both ends, and are encrypted later.

extension Medium {
  /// Queues a PDU of the encryption procedures, and restarts the end's procedure response timer. Vol 6, Part B, §5.2.
  mutating func proceed(_ pdu: LLControl, _ end: LinkPlace) {
    links[end.link][end.role].enqueue(pdu)
    timers &+= 1
    links[end.link][end.role].procedureTimer = timers
    schedule.plan(.procedureResponse(end.link, timer: timers), at: now + .seconds(40))
  }
  mutating func requestEncryption(_ request: EncryptionRequest, _ end: LinkPlace) {
    links[end.link][end.role].encryption = .awaitingResponse(request)
    let pdu = LLControl.encryptionRequest(
      random: request.random, diversifier: request.diversifier, keyDiversifier: request.keyDiversifier)
    proceed(pdu, end)
  }
  /// The peripheral's host has no key: the link stays unencrypted. After a pause it must not, and ends with 0x06. Vol
  /// 6, Part B, §5.1.3.1.
  mutating func refuseKey(_ end: LinkPlace) {
    guard case .awaitingHost(_, _, let isRefresh) = links[end.link][end.role].encryption else { return }
    if !isRefresh {
      links[end.link][end.role].enqueue(
        .reject(type: LLControl.encryptionRequestType, error: .pinOrKeyMissing))
      links[end.link][end.role].encryption = .idle
    } else {
      links[end.link][end.role].encryption = .pausing
      guard case .open = links[end.link][end.role].phase else { return }
      links[end.link][end.role].phase = .terminating
      links[end.link][end.role].enqueue(.terminate(.pinOrKeyMissing))
    }
  }
  /// Starts authenticatedPayloadTO from now on. Vol 6, Part B, §5.4.
  mutating func startPayloadTimer(_ end: LinkPlace) {
    timers &+= 1
    links[end.link][end.role].payloadTimer = timers
    links[end.link][end.role].lastAuthenticated = now
    let half = links[end.link][end.role].payloadTimeout.duration / 2
    schedule.plan(.authenticatedPayload(end.link, timer: timers), at: now + half)
  }
  /// The open end of a link that fulfils a condition.
  func end(of id: LinkID, where isSought: (borrowing LinkEnd) -> Bool) -> LinkRole? {
    guard links.contains(id) else { return nil }
    for role in [LinkRole.central, .peripheral] where links[id][role].isOpen && isSought(links[id][role]) {
      return role
    }
    return nil
  }
}

extension LinkEnd {
  /// LL_START_ENC_REQ or LL_PAUSE_ENC_RSP of this end has been acknowledged.
  mutating func changeReceiveKey() {
    if case .starting(let key, _) = encryption { receiveKey = key } else { receiveKey = nil }
  }
}

extension Air {
  /// A PDU that does not belong to the present phase is ignored: no controller here sends one.
  mutating func receiveEncryption(_ pdu: LLControl, _ id: LinkID, at role: LinkRole) {
    switch (pdu, medium.links[id][role].encryption) {
    case (.pauseEncryptionRequest, .idle):
      medium.links[id][role].encryption = .pausing
      medium.proceed(.pauseEncryptionResponse, (id, role))
    case (.pauseEncryptionResponse, .awaitingPause(let request)):
      (medium.links[id][role].transmitKey, medium.links[id][role].receiveKey) = (nil, nil)
      medium.proceed(.pauseEncryptionResponse, (id, role))
      medium.requestEncryption(request, (id, role))
    case (.pauseEncryptionResponse, .pausing):
      medium.links[id][role].transmitKey = nil
    case (.encryptionRequest(let random, let diversifier, let central), .idle):
      askForKey(random, diversifier, central, isRefresh: false, id, role)
    case (.encryptionRequest(let random, let diversifier, let central), .pausing):
      askForKey(random, diversifier, central, isRefresh: true, id, role)
    case (.encryptionResponse(let peripheral), .awaitingResponse(let request)):
      let key = SessionKey(request.longTermKey, central: request.keyDiversifier, peripheral: peripheral)
      medium.links[id][role].encryption = .awaitingStart(key, isRefresh: request.isRefresh)
    case (.startEncryptionRequest, .awaitingStart(let key, let isRefresh)):
      (medium.links[id][role].transmitKey, medium.links[id][role].receiveKey) = (key, key)
      medium.links[id][role].encryption = .starting(key, isRefresh: isRefresh)
      medium.proceed(.startEncryptionResponse, (id, role))
    case (.startEncryptionResponse, .starting(let key, let isRefresh)):
      if role == .peripheral {
        medium.links[id][role].transmitKey = key
        medium.links[id][role].enqueue(.startEncryptionResponse)
      }
      completeEncryption(isRefresh: isRefresh, id, role)
    default: break
    }
  }
  /// LL_ENC_REQ: the peripheral's host must have the key.
  private mutating func askForKey(
    _ random: LongTermKeyRand, _ diversifier: UInt16, _ central: UInt64, isRefresh: Bool, _ id: LinkID,
    _ role: LinkRole
  ) {
    let i = medium.links[id][role].controller.index
    guard controllers[i].has(.leEncryption) else {
      return reply(.reject(type: LLControl.encryptionRequestType, error: .unsupportedRemoteFeature), id, role)
    }
    let peripheral = controllers[i].addressChance.next()
    medium.links[id][role].encryption = .awaitingHost(central: central, peripheral: peripheral, isRefresh: isRefresh)
    medium.proceed(.encryptionResponse(keyDiversifier: peripheral), (id, role))
    // A host that does not want the question has no key. Vol 4, Part E, §7.7.65.5.
    guard controllers[i].isEnabled(LELongTermKeyRequest.self) else {
      return medium.refuseKey((id, role))
    }
    let event = LELongTermKeyRequest.with {
      $0.connectionHandle = medium.links[id][role].handle
      $0.randomNumber = random
      $0.encryptedDiversifier = diversifier
    }
    controllers[i].emit(event, now: medium.now)
  }
  private mutating func completeEncryption(isRefresh: Bool, _ id: LinkID, _ role: LinkRole) {
    let i = medium.links[id][role].controller.index, handle = medium.links[id][role].handle
    medium.links[id][role].encryption = .idle
    if controllers[i].has(.lePing) { medium.startPayloadTimer((id, role)) }
    if isRefresh {
      controllers[i].emit(EncryptionKeyRefreshComplete.with { $0.connectionHandle = handle }, now: medium.now)
    } else {
      controllers[i].reportEncryption(.success, handle, now: medium.now)
    }
  }
  /// The peripheral has refused LL_ENC_REQ: the link stays unencrypted.
  mutating func endEncryption(_ error: HCIStatus, _ id: LinkID, _ role: LinkRole) {
    switch medium.links[id][role].encryption {
    case .awaitingResponse, .awaitingStart: break
    default: return
    }
    medium.links[id][role].encryption = .idle
    controllers[medium.links[id][role].controller.index].reportEncryption(
      error, medium.links[id][role].handle, now: medium.now)
  }

  // MARK: Timers

  /// The procedure response time-out: the link is lost. Vol 6, Part B, §5.2.
  mutating func endUnanswered(_ id: LinkID, _ timer: UInt32) {
    guard let role = medium.end(of: id, where: { $0.isPaused && $0.procedureTimer == timer }) else { return }
    close(id, role, .lmpOrLLResponseTimeout)
  }
  /// Half of authenticatedPayloadTO without a valid MIC: the end pings its peer, whose answer has one. All of it: the
  /// host is informed, and the timer starts again. Vol 6, Part B, §5.1.8 and §5.4.
  mutating func checkAuthenticated(_ id: LinkID, _ timer: UInt32) {
    guard let role = medium.end(of: id, where: { $0.receiveKey != nil && $0.payloadTimer == timer }) else { return }
    let timeout = medium.links[id][role].payloadTimeout.duration, last = medium.links[id][role].lastAuthenticated
    if medium.now - last >= timeout {
      let event = AuthenticatedPayloadTimeoutExpired.with { $0.connectionHandle = medium.links[id][role].handle }
      controllers[medium.links[id][role].controller.index].emit(event, now: medium.now)
      return medium.startPayloadTimer((id, role))
    }
    let isHalf = medium.now - last >= timeout / 2
    medium.schedule.plan(.authenticatedPayload(id, timer: timer), at: last + (isHalf ? timeout : timeout / 2))
    if isHalf {
      reply(.pingRequest, id, role)
      serve(id)
    }
  }
}

extension VirtualController {
  /// The central's controller gave up (`status`), or the link is encrypted. Version [v2] of the event takes the place
  /// of [v1] if the host wants it. Over LE the link layer's key always has 16 octets.
  mutating func reportEncryption(_ status: HCIStatus, _ handle: ConnectionHandle, now: Instant) {
    if isEnabled(EncryptionChangeV2.self) {
      let event = EncryptionChangeV2.with {
        $0.status = status
        $0.connectionHandle = handle
        $0.encryptionEnabled = status == .success ? 1 : 0
        $0.encryptionKeySize = status == .success ? 16 : 0
      }
      emit(event, now: now)
    } else {
      let event = EncryptionChange.with {
        $0.status = status
        $0.connectionHandle = handle
        $0.encryptionEnabled = status == .success ? 1 : 0
      }
      emit(event, now: now)
    }
  }
}
