import BasicContainers
import BindruneToolbox
import BindruneWire
import GATT
import HCI
import SMP

// The pairing of links over channel 0x0006: calls, questions and answers, and how it ends. Vol 3, Part C, §10; Decision
// 0048. `Encryption` encrypts with the keys, `BondKeeping` keeps them.
extension HostCore {
  // MARK: From above

  /// Pairs with the link's peer; a Peripheral asks the Central to pair, or to encrypt with the bond. Ends with `.completed(id,
  /// .secured)`, after the `.pairingEnded` of a pairing. One pairing at a time on a link: a call without settings while one
  /// is in progress ends with that, other calls with `.busy`. A call while the link is being encrypted with the bond's key
  /// waits for the result: without settings a link that is encrypted then needs no pairing; in any other case the call
  /// pairs. `settings`: for this pairing only; nil: the configuration's. In any case the new key is not weaker than that of
  /// a bond with the peer.
  public mutating func pair(_ link: LinkID, _ settings: PairingSettings? = nil, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    if upper.links[index].protection.isIdle {
      if let failure = beginPairing(at: index, settings, now) { return emit(.completed(id, .failed(failure))) }
    } else if upper.links[index].protection.isEncryptingWithBond {
      return upper.links[index].protection.pairings.append((id, settings))
    } else if settings != nil {
      return emit(.completed(id, .failed(.busy)))
    }
    finish(id, withWorkAt: index, now)
  }
  /// `id` ends with what is in progress on the link.
  mutating func finish(_ id: RequestID, withWorkAt index: Int, _ now: Instant) {
    upper.links[index].protection.requests.append(id)
    secure(at: index, now)
    drain(now)
  }
  /// The user's answer to `.pairingAsked`. False, and without effect, if the link does not ask this now.
  @discardableResult
  public mutating func answer(_ answer: PairingAnswer, on link: LinkID, now: Instant) -> Bool {
    guard let index = upper.index(of: link) else { return false }
    let isWanted: Bool
    switch answer {
    case .consent: isWanted = consent(at: index, now)
    case .passkey(let digits):
      isWanted = upper.links[index].protection.manager.enter(passkey: digits, now: now, using: &upper.chance)
    case .numbersMatch: isWanted = upper.links[index].protection.manager.confirmNumbers(now: now)
    case .keypress(let key): isWanted = upper.links[index].protection.manager.notify(key, now: now)
    case .refuse: isWanted = refuse(at: index, now)
    }
    secure(at: index, now)
    drain(now)
    return isWanted
  }
  /// Changes `HostConfiguration.pairing` and `pairsOnDemand`, for pairings that begin from now on, also on links that are up.
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
    upper.links[index].protection.manager.settings = settings(nil, at: index)
  }

  // MARK: Begin

  /// Central: pairs; Peripheral: requests security. Returns why not. `isOnDemand`: the application has not asked for it.
  mutating func beginPairing(
    at index: Int, _ settings: PairingSettings?, isOnDemand: Bool = false, _ now: Instant
  ) -> HostFailure? {
    var settings = self.settings(settings, at: index)
    settings.asksConsent = isOnDemand || replacedBond(at: index).map { !$0.isProven } ?? false
    if !hasChance { return .pairingRefused(.noRandomNumbers) }
    if isOnDemand, let until = bonds.allAttempts.nextAttempt(now: now) {
      return .pairingRefused(.tooEarly(until: until))
    }
    upper.links[index].protection.manager.settings = settings
    do throws(PairingRefusal) {
      if upper.links[index].role == .central {
        try upper.links[index].protection.manager.pair(now: now)
      } else {
        try upper.links[index].protection.manager.requestSecurity(now: now)
      }
      return nil
    } catch {
      return error == .busy ? .busy : .pairingRefused(error)
    }
  }
  /// A Peripheral asks for security: ignored while we encrypt the link. Vol 3, Part H, §2.4.6.
  private mutating func consider(_ wanted: AuthReq, at index: Int, _ now: Instant) {
    if case .starting = upper.links[index].protection.phase { return }
    let bond = bonds[upper.links[index].peer]
    if let bond, !wanted.contains(.mitm) || bond.strength.isAuthenticated, begin(with: bond, at: index, now) { return }
    if configuration.pairsOnDemand, beginPairing(at: index, nil, isOnDemand: true, now) == nil { return }
    _ = upper.links[index].protection.manager.refuseSecurityRequest()
  }

  // MARK: The Security Manager

  /// Takes the effects of a link's Security Manager, and helps GATT's client.
  mutating func secure(at index: Int, _ now: Instant) {
    let link = upper.links[index].id
    while let effect = upper.links[index].protection.manager.nextEffect() {
      switch effect {
      case .requestConsent(let method):
        let replaced = replacedBond(at: index)
        upper.links[index].protection.question = .pairing(replaced)
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
      case .completed(let result):
        let handle = upper.links[index].handle, count = hci.credits.outstanding(handle)
        upper.links[index].protection.delivery = LinkProtection.Delivery(
          result: result, completed: hci.credits.completed(handle) &+ UInt32(count))
        upper.awaitsDelivery = true
        deliver(at: index, now)
      case .failed(let error):
        let isClaim = if case .identity = upper.links[index].protection.question { true } else { false }
        if error == .ours(.authenticationRequirements),
          !upper.links[index].protection.manager.settings.bondsUnauthenticated
        {
          emit(.violation(link, .noRoomForBond))
        }
        emit(.pairingEnded(link, error))
        count(at: index, error, now)
        ended(at: index, .pairingFailed(error))
        if isClaim { leave(at: index, now) }
        // Without a way to encrypt the link, requests would wait for ever.
        if upper.links[index].client.hasWaitingRequest { distrust(at: index, .authenticationFailure, now) }
      case .resumed: ended(at: index, nil)
      case .report(let violation): emit(.violation(link, .smp(violation)))
      }
    }
    if let refusal = upper.links[index].protection.refusal {
      upper.links[index].protection.refusal = nil
      help(refusal, at: index, now)
    }
    collectServer()
    collect(at: index)
  }
  /// Ends pairings whose PDUs the peer has acknowledged.
  mutating func deliver(_ now: Instant) {
    upper.awaitsDelivery = false
    for index in 0..<upper.links.count where upper.links[index].protection.delivery != nil {
      deliver(at: index, now)
      collect(at: index)
      if upper.links[index].protection.delivery != nil { upper.awaitsDelivery = true }
    }
    for index in 0..<upper.links.count where upper.links[index].protection.leaving != nil {
      continueLeaving(at: index, now)
      if upper.links[index].protection.leaving != nil { upper.awaitsDelivery = true }
      note(at: index)
    }
    collectServer()
  }
  private mutating func deliver(at index: Int, _ now: Instant) {
    let completed = hci.credits.completed(upper.links[index].handle)
    guard let delivery = upper.links[index].protection.delivery,
      Int32(bitPattern: completed &- delivery.completed) >= 0
    else { return }
    upper.links[index].protection.delivery = nil
    if paired(delivery.result, at: index, now) {
      emit(.pairingEnded(upper.links[index].id, nil))
      ended(at: index, nil)
    } else {
      emit(.pairingEnded(upper.links[index].id, .ours(.keyRejected)))
      ended(at: index, .pairingFailed(.ours(.keyRejected)))
      leave(at: index, now)
    }
  }
  /// Counts the failure with those of all peers.
  private mutating func count(at index: Int, _ error: PairingError, _ now: Instant) {
    let failures = upper.links[index].protection.manager.failures
    // A user who refuses is not to be asked again and again, by one stranger after another.
    let isRefusal = error == .ours(.pairingNotSupported)
    guard failures != upper.links[index].protection.countedFailures || isRefusal else { return }
    upper.links[index].protection.countedFailures = failures
    countAttempt(now)
  }

  // MARK: End

  /// The pairing, Security Request or encryption in progress has ended; nil: the link is secured.
  mutating func ended(at index: Int, _ failure: HostFailure?) {
    let requests = upper.links[index].protection.requests, security = upper.links[index].protection.security
    upper.links[index].protection.requests = []
    upper.links[index].protection.question = nil
    upper.links[index].protection.consented = []
    for id in requests { emit(.completed(id, failure.map { .failed($0) } ?? .secured(security))) }
    upper.links[index].client.securityEnded(isSecured: failure == nil)
    prepare(at: index)
  }
  /// The encryption with the bond's key has ended: answers the calls of `pair` that have waited for it, or begins their
  /// pairing.
  mutating func resumePairings(at index: Int, _ failure: HostFailure?, _ now: Instant) {
    let pairings = upper.links[index].protection.pairings
    upper.links[index].protection.pairings = []
    for (id, settings) in pairings {
      if let failure, failure == .noSuchLink || upper.links[index].phase != .up {
        emit(.completed(id, .failed(failure)))
      } else if failure == nil, settings == nil, upper.links[index].protection.isIdle {
        emit(.completed(id, .secured(upper.links[index].protection.security)))
      } else if upper.links[index].protection.isIdle {
        if let refusal = beginPairing(at: index, settings, now) {
          emit(.completed(id, .failed(refusal)))
        } else {
          upper.links[index].protection.requests.append(id)
        }
      } else if settings == nil {
        upper.links[index].protection.requests.append(id)
      } else {
        emit(.completed(id, .failed(.busy)))
      }
    }
  }
}
