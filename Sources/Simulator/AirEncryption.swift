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

extension LinkEnd {
  /// What follows a PDU of the encryption procedures.
  enum EncryptionStep {
    case nothing
    case proceed(LLControl)
    /// At the central: the link is paused.
    case requestAnew(EncryptionRequest)
    /// At the peripheral: LL_ENC_REQ. Its host must have the key.
    case askForKey(LongTermKeyRand, diversifier: UInt16, central: UInt64, isRefresh: Bool)
    case completed(isRefresh: Bool)
  }
  /// A PDU that does not belong to the present phase is ignored: no controller here sends one.
  mutating func receiveEncryption(_ pdu: LLControl, as role: LinkRole) -> EncryptionStep {
    switch (pdu, encryption) {
    case (.pauseEncryptionRequest, .idle):
      encryption = .pausing
      return .proceed(.pauseEncryptionResponse)
    case (.pauseEncryptionResponse, .awaitingPause(let request)):
      (transmitKey, receiveKey) = (nil, nil)
      return .requestAnew(request)
    case (.pauseEncryptionResponse, .pausing): transmitKey = nil
    case (.encryptionRequest(let random, let diversifier, let central), .idle):
      return .askForKey(random, diversifier: diversifier, central: central, isRefresh: false)
    case (.encryptionRequest(let random, let diversifier, let central), .pausing):
      return .askForKey(random, diversifier: diversifier, central: central, isRefresh: true)
    case (.encryptionResponse(let peripheral), .awaitingResponse(let request)):
      let key = SessionKey(request.longTermKey, central: request.keyDiversifier, peripheral: peripheral)
      encryption = .awaitingStart(key, isRefresh: request.isRefresh)
    case (.startEncryptionRequest, .awaitingStart(let key, let isRefresh)):
      (transmitKey, receiveKey) = (key, key)
      encryption = .starting(key, isRefresh: isRefresh)
      return .proceed(.startEncryptionResponse)
    case (.startEncryptionResponse, .starting(let key, let isRefresh)):
      if role == .peripheral {
        transmitKey = key
        enqueue(.startEncryptionResponse)
      }
      encryption = .idle
      return .completed(isRefresh: isRefresh)
    default: break
    }
    return .nothing
  }
  /// LL_START_ENC_REQ or LL_PAUSE_ENC_RSP of this end has been acknowledged.
  mutating func changeReceiveKey() {
    if case .starting(let key, _) = encryption { receiveKey = key } else { receiveKey = nil }
  }
  /// The peripheral's host has no key: the link stays unencrypted. After a pause it must not, and ends with 0x06. Vol
  /// 6, Part B, §5.1.3.1. False if the host has not been asked.
  mutating func refuseKey() -> Bool {
    guard case .awaitingHost(_, _, let isRefresh) = encryption else { return false }
    if !isRefresh {
      enqueue(.reject(type: LLControl.encryptionRequestType, error: .pinOrKeyMissing))
      encryption = .idle
    } else {
      encryption = .pausing
      guard case .open = phase else { return true }
      phase = .terminating
      enqueue(.terminate(.pinOrKeyMissing))
    }
    return true
  }
  /// The peripheral has refused LL_ENC_REQ: the link stays unencrypted. False if there is none.
  mutating func endEncryption() -> Bool {
    switch encryption {
    case .awaitingResponse, .awaitingStart: break
    case .idle, .awaitingPause, .pausing, .awaitingHost, .starting: return false
    }
    encryption = .idle
    return true
  }
  /// Starts a timer. Returns half of authenticatedPayloadTO.
  mutating func startPayloadTimer(_ timer: UInt32, now: Instant) -> Duration {
    (payloadTimer, lastAuthenticated) = (timer, now)
    return payloadTimeout.duration / 2
  }
}

extension Medium {
  /// Queues a PDU of the encryption procedures, and restarts the end's procedure response timer. Vol 6, Part B, §5.2.
  mutating func proceed(_ pdu: LLControl, _ end: LinkPlace) {
    links[end].enqueue(pdu)
    timers &+= 1
    links[end].procedureTimer = timers
    schedule.plan(.procedureResponse(end.link, timer: timers), at: now + .seconds(40))
  }
  mutating func requestEncryption(_ request: EncryptionRequest, _ end: LinkPlace) {
    links[end].encryption = .awaitingResponse(request)
    let pdu = LLControl.encryptionRequest(
      random: request.random, diversifier: request.diversifier, keyDiversifier: request.keyDiversifier)
    proceed(pdu, end)
  }
  /// Starts authenticatedPayloadTO from now on. Vol 6, Part B, §5.4.
  mutating func startPayloadTimer(_ end: LinkPlace) {
    timers &+= 1
    let half = links[end].startPayloadTimer(timers, now: now)
    schedule.plan(.authenticatedPayload(end.link, timer: timers), at: now + half)
  }
  /// The open end of a link that fulfils a condition.
  func end(of id: LinkID, where isSought: (borrowing LinkEnd) -> Bool) -> LinkPlace? {
    guard links.contains(id) else { return nil }
    for role in LinkRole.both where links[id][role].isOpen && isSought(links[id][role]) {
      return LinkPlace(id, role)
    }
    return nil
  }
}

extension Air {
  mutating func receiveEncryption(_ pdu: LLControl, at end: LinkPlace) {
    switch medium.links[end].receiveEncryption(pdu, as: end.role) {
    case .nothing: break
    case .proceed(let pdu): medium.proceed(pdu, end)
    case .requestAnew(let request):
      medium.proceed(.pauseEncryptionResponse, end)
      medium.requestEncryption(request, end)
    case .askForKey(let random, let diversifier, let central, let isRefresh):
      askForKey(random, diversifier, central, isRefresh: isRefresh, end)
    case .completed(let isRefresh): completeEncryption(isRefresh: isRefresh, end)
    }
  }
  private mutating func askForKey(
    _ random: LongTermKeyRand, _ diversifier: UInt16, _ central: UInt64, isRefresh: Bool, _ end: LinkPlace
  ) {
    let (i, handle) = host(at: end)
    guard controllers[i].has(.leEncryption) else {
      return reply(.reject(type: LLControl.encryptionRequestType, error: .unsupportedRemoteFeature), end)
    }
    let peripheral = controllers[i].addressChance.next()
    medium.links[end].encryption = .awaitingHost(central: central, peripheral: peripheral, isRefresh: isRefresh)
    medium.proceed(.encryptionResponse(keyDiversifier: peripheral), end)
    // A host that does not want the question has no key. Vol 4, Part E, §7.7.65.5.
    guard controllers[i].isEnabled(LELongTermKeyRequest.self) else {
      _ = medium.links[end].refuseKey()
      return
    }
    let event = LELongTermKeyRequest.with {
      $0.connectionHandle = handle
      $0.randomNumber = random
      $0.encryptedDiversifier = diversifier
    }
    controllers[i].emit(event, now: medium.now)
  }
  private mutating func completeEncryption(isRefresh: Bool, _ end: LinkPlace) {
    let (i, handle) = host(at: end)
    if controllers[i].has(.lePing) { medium.startPayloadTimer(end) }
    if isRefresh {
      controllers[i].emit(EncryptionKeyRefreshComplete.with { $0.connectionHandle = handle }, now: medium.now)
    } else {
      controllers[i].reportEncryption(.success, handle, now: medium.now)
    }
  }
  mutating func endEncryption(_ error: HCIStatus, _ end: LinkPlace) {
    guard medium.links[end].endEncryption() else { return }
    let (i, handle) = host(at: end)
    controllers[i].reportEncryption(error, handle, now: medium.now)
  }

  // MARK: Timers

  /// The procedure response time-out: the link is lost. Vol 6, Part B, §5.2.
  mutating func endUnanswered(_ id: LinkID, _ timer: UInt32) {
    guard let end = medium.end(of: id, where: { $0.isPaused && $0.procedureTimer == timer }) else { return }
    close(end, .lmpOrLLResponseTimeout)
  }
  /// Half of authenticatedPayloadTO without a valid MIC: the end pings its peer, whose answer has one. All of it: the
  /// host is informed, and the timer starts again. Vol 6, Part B, §5.1.8 and §5.4.
  mutating func checkAuthenticated(_ id: LinkID, _ timer: UInt32) {
    guard let end = medium.end(of: id, where: { $0.receiveKey != nil && $0.payloadTimer == timer }) else { return }
    let timeout = medium.links[end].payloadTimeout.duration, last = medium.links[end].lastAuthenticated
    if medium.now - last >= timeout {
      let handle = medium.links[end].handle
      report(AuthenticatedPayloadTimeoutExpired.with { $0.connectionHandle = handle }, at: end)
      return medium.startPayloadTimer(end)
    }
    let isHalf = medium.now - last >= timeout / 2
    medium.schedule.plan(.authenticatedPayload(id, timer: timer), at: last + (isHalf ? timeout : timeout / 2))
    if isHalf {
      reply(.pingRequest, end)
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
