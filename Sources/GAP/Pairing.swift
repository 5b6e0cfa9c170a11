import BindruneATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP

// The pairing of links over channel 0x0006: calls, questions and answers, and how it ends. Vol 3, Part C, §10; Decision
// 0048. `Encryption` encrypts with the keys, `BondKeeping` keeps them.
extension HostCore {
  // MARK: From above

  /// Pairs with the link's peer; a Peripheral asks the Central to pair, or to encrypt with the bond. Ends with
  /// `.completed(id, .secured)`, after the `.pairingEnded` of a pairing. One pairing at a time on a link: a call
  /// without settings while one is in progress ends with that, other calls with `.busy`. A call while the link is being
  /// encrypted with the bond's key waits for the result: without settings a link that is encrypted then needs no
  /// pairing; in any other case the call pairs. `settings`: for this pairing only; nil: the configuration's. In any
  /// case the new key is not weaker than that of a bond with the peer.
  public mutating func pair(_ link: LinkID, _ settings: PairingSettings? = nil, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    switch upper.links[index].securityProgress {
    case .nothing:
      if let failure = beginPairing(at: index, settings, now) { return emit(.completed(id, .failed(failure))) }
    case .encryptionWithBond: return withLink(at: index) { $0.protection.pairings.append((id, settings)) }
    case .pairing: if settings != nil { return emit(.completed(id, .failed(.busy))) }
    }
    finish(id, withWorkAt: index, now)
  }
  /// `id` ends with what is in progress on the link.
  mutating func finish(_ id: RequestID, withWorkAt index: Int, _ now: Instant) {
    withLink(at: index) { $0.protection.requests.append(id) }
    secure(at: index, now)
    drain(now)
  }
  /// The user's answer to `.pairingAsked`. False, and without effect, if the link does not ask this now.
  @discardableResult
  public mutating func answer(_ answer: PairingAnswer, on link: LinkID, now: Instant) -> Bool {
    guard let index = upper.index(of: link) else { return false }
    let outcome = withLink(at: index) { $0.protection.answer(answer, now: now, using: &$1) }
    if outcome == .identityAccepted { considerIdentity(at: index, now) }
    secure(at: index, now)
    drain(now)
    return outcome != .unwanted
  }
  /// Changes `HostConfiguration.pairing` and `pairsOnDemand`, for pairings that begin from now on, also on links that
  /// are up.
  package mutating func setPairing(_ settings: PairingSettings, pairsOnDemand: Bool) {
    configuration.pairing = settings
    configuration.pairsOnDemand = pairsOnDemand
    for index in 0..<upper.links.count { prepare(at: index) }
  }

  // MARK: Settings

  func makeProtection(
    of peer: PeerID, _ role: LinkRole, own: PeerAddress, peers: PeerAddress
  ) -> LinkProtection {
    let own = PairingAddress(own), peers = PairingAddress(peers)
    let manager = SecurityManager(
      role: role == .central ? .initiator : .responder,
      addresses: role == .central
        ? PairingAddresses(initiator: own, responder: peers) : PairingAddresses(initiator: peers, responder: own),
      attempts: bonds.attempts(of: peer))
    return LinkProtection(manager, isBonded: bonds[peer] != nil)
  }
  /// What a pairing on the link may be like: what `settings` say, but not weaker than a bond.
  private func settings(_ settings: PairingSettings?, at index: Int) -> PairingSettings {
    var settings = settings ?? configuration.pairing
    if !hasChance { settings.acceptsPairing = false }
    settings.asksIdentity = true
    settings.bondsUnauthenticated = bondsUnauthenticated(at: index)
    if let irk = privacy.irk {
      settings.identity = PairingIdentity(irk: SecurityKey(irk.value), address: PairingAddress(identityAddress))
    }
    settings.ownIdentityAddress = PairingAddress(identityAddress)
    guard let bond = bond(at: index)?.strength else { return settings }
    if bond.isAuthenticated { settings.protection = .required }
    if bond.isSecureConnections { settings.secureConnections = .only }
    let least = max(settings.keySizes.lowerBound, bond.size)
    settings.keySizes = least...max(settings.keySizes.upperBound, least)
    return settings
  }
  /// The settings for a pairing that the peer begins.
  mutating func prepare(at index: Int) {
    let settings = settings(nil, at: index)
    withLink(at: index) { $0.protection.manager.settings = settings }
  }

  // MARK: Begin

  /// Central: pairs; Peripheral: requests security. Returns why not. `isOnDemand`: the application has not asked for
  /// it.
  mutating func beginPairing(
    at index: Int, _ settings: PairingSettings?, isOnDemand: Bool = false, _ now: Instant
  ) -> HostFailure? {
    var settings = self.settings(settings, at: index)
    settings.asksConsent = isOnDemand || replacedBond(at: index).map { !$0.isProven } ?? false
    if !hasChance { return .pairingRefused(.noRandomNumbers) }
    if isOnDemand, let until = bonds.allAttempts.nextAttempt(now: now) {
      return .pairingRefused(.tooEarly(until: until))
    }
    return withLink(at: index) { $0.beginPairing(settings, now: now) }
  }
  /// A Peripheral asks for security: ignored while we encrypt the link. Vol 3, Part H, §2.4.6.
  private mutating func consider(_ wanted: AuthReq, at index: Int, _ now: Instant) {
    if upper.links[index].procedures.isEncrypting { return }
    if let bond = bondOfPeer(at: index), !wanted.contains(.mitm) || bond.strength.isAuthenticated,
      begin(with: bond, at: index, now)
    {
      return
    }
    if configuration.pairsOnDemand, beginPairing(at: index, nil, isOnDemand: true, now) == nil { return }
    withLink(at: index) { _ = $0.protection.manager.refuseSecurityRequest() }
  }

  // MARK: The Security Manager

  /// Takes the effects of a link's Security Manager, and helps GATT's client.
  mutating func secure(at index: Int, _ now: Instant) {
    let link = upper.links[index].id
    while let effect = withLink(at: index, { $0.protection.manager.nextEffect() }) {
      switch effect {
      case .requestConsent(let method):
        let replaced = replacedBond(at: index)
        withLink(at: index) { $0.protection.question = .pairing(replaced) }
        emit(.pairingAsked(link, .consent(method, replaces: replaced)))
      case .considerIdentity: considerIdentity(at: index, now)
      case .displayPasskey(let digits): emit(.pairingAsked(link, .display(digits)))
      case .requestPasskey: emit(.pairingAsked(link, .enterPasskey))
      case .compareNumbers(let number): emit(.pairingAsked(link, .compare(number)))
      case .showKeypress(let key): emit(.pairingAsked(link, .keypress(key)))
      case .considerSecurityRequest(let wanted): consider(wanted, at: index, now)
      case .encrypt(let key):
        if let strength = upper.links[index].protection.manager.keyStrength {
          start(LongTermKey(key: key), strength, .pairing, at: index, now)
        }
      case .completed(let result): completed(result, at: index, now)
      case .failed(let error): failed(error, at: index, now)
      case .resumed: ended(at: index, nil)
      case .report(let violation): emit(.violation(link, .smp(violation)))
      }
    }
    if let refusal = withLink(at: index, { $0.protection.refusal.take() }) { help(refusal, at: index, now) }
    collectServer()
    collect(at: index)
  }
  /// The pairing is over as soon as the peer has acknowledged its last PDUs.
  private mutating func completed(_ result: PairingResult, at index: Int, _ now: Instant) {
    let handle = upper.links[index].handle
    let completed = hci.credits.completed(handle) &+ UInt32(hci.credits.outstanding(handle))
    withLink(at: index) { $0.protection.delivery = LinkProtection.Delivery(result: result, completed: completed) }
    upper.awaitsDelivery = true
    deliver(at: index, now)
  }
  private mutating func failed(_ error: PairingError, at index: Int, _ now: Instant) {
    let (link, failure) = withLink(at: index) { ($0.id, $0.protection.failed(error)) }
    if failure.isForLackOfRoom { emit(.violation(link, .noRoomForBond)) }
    emit(.pairingEnded(link, error))
    if failure.counts { countAttempt(now) }
    ended(at: index, .pairingFailed(error))
    if failure.isOfClaim { leave(at: index, now) }
    // Without a way to encrypt the link, requests would wait for ever.
    if upper.links[index].client.hasWaitingRequest { distrust(at: index, .authenticationFailure, now) }
  }
  /// Ends pairings whose PDUs the peer has acknowledged.
  mutating func deliver(_ now: Instant) {
    for index in upper.indices(where: { $0.protection.delivery != nil }) {
      deliver(at: index, now)
      collect(at: index)
    }
    for index in upper.indices(where: { $0.protection.leaving != nil }) { continueLeaving(at: index, now) }
    upper.awaitsDelivery = upper.contains { $0.protection.delivery != nil || $0.protection.leaving != nil }
    collectServer()
  }
  private mutating func deliver(at index: Int, _ now: Instant) {
    let link = upper.links[index].facts, completed = hci.credits.completed(link.handle)
    guard let result = withLink(at: index, { $0.protection.takeDelivery(completed: completed) }) else { return }
    if paired(result, at: index, now) {
      emit(.pairingEnded(link.id, nil))
      ended(at: index, nil)
    } else {
      emit(.pairingEnded(link.id, .ours(.keyRejected)))
      ended(at: index, .pairingFailed(.ours(.keyRejected)))
      leave(at: index, now)
    }
  }

  // MARK: End

  /// The pairing, Security Request or encryption in progress has ended; nil: the link is secured.
  mutating func ended(at index: Int, _ failure: HostFailure?) {
    upper.links[index].securityEnded(failure, into: &upper.batch)
    prepare(at: index)
  }
  /// The encryption with the bond's key has ended: answers the calls of `pair` that have waited for it, or begins their
  /// pairing.
  mutating func resumePairings(at index: Int, _ failure: HostFailure?, _ now: Instant) {
    for (id, settings) in withLink(at: index, { $0.protection.takePairings() }) {
      if let result = resumePairing(settings, at: index, failure, now) {
        emit(.completed(id, result))
      } else {
        withLink(at: index) { $0.protection.requests.append(id) }
      }
    }
  }
  /// Nil: the call ends with the pairing in progress.
  private mutating func resumePairing(
    _ settings: PairingSettings?, at index: Int, _ failure: HostFailure?, _ now: Instant
  ) -> HostResult? {
    let (isUp, isIdle, security) = link(at: index) { ($0.isUp, $0.isSecurityIdle, $0.protection.security) }
    if let failure, failure == .noSuchLink || !isUp { return .failed(failure) }
    guard isIdle else { return settings == nil ? nil : .failed(.busy) }
    if failure == nil, settings == nil { return .secured(security) }
    return beginPairing(at: index, settings, now).map { .failed($0) }
  }
}
