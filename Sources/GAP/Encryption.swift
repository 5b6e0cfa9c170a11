import BindruneATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP

// The encryption of links by the controller, with the keys of pairings and bonds, and what it permits. Vol 3, Part C,
// §10; Decisions 0048, 0059.
extension HostCore {
  // MARK: From above

  /// Encrypts the link with the bond's key; a Peripheral asks the Central to. Ends with `.completed(id, .secured)`.
  public mutating func encrypt(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    if upper.links[index].isSecurityIdle {
      guard let bond = bondOfPeer(at: index), begin(with: bond, at: index, now) else {
        return emit(.completed(id, .failed(.notBonded)))
      }
    }
    finish(id, withWorkAt: index, now)
  }
  /// What protects the link now; nil if there is no such link.
  public func security(of link: LinkID) -> LinkSecurity? {
    self.link(link) { $0.protection.security }
  }

  // MARK: Links

  /// A link is up: what is known of its peer applies, and a Central encrypts it.
  mutating func protect(at index: Int, _ now: Instant) {
    prepare(at: index)
    limit(at: index, now)
    setSecurity(at: index)
    verifySignatures(at: index)
    guard configuration.encryptsBondedLinks, upper.links[index].role == .central,
      let bond = bondOfPeer(at: index)
    else { return }
    _ = begin(with: bond, at: index, now)
  }
  /// The link ends: so does what was in progress on it. When a controller has waited for an answer of the other for 40
  /// s, the link ends with 0x22: Vol 6, Part B, §5.2.
  mutating func unprotect(at index: Int, _ reason: HCIStatus, _ now: Instant) {
    let link = upper.links[index].facts, end = withLink(at: index) { $0.closeProtection(now: now) }
    if end.source == .bond, reason == .lmpOrLLResponseTimeout { emit(.encryptionFailed(link.id, reason)) }
    if end.hadDelivery {
      emit(.pairingEnded(link.id, .linkClosed))
      ended(at: index, .pairingFailed(.linkClosed))
    }
    bonds.keep(end.attempts, of: link.peer)
    secure(at: index, now)
    ended(at: index, .noSuchLink)
    resumePairings(at: index, .noSuchLink, now)
  }
  mutating func expireProtection(at index: Int, _ now: Instant) {
    withLink(at: index) { $0.protection.manager.expire(now: now) }
    continueLeaving(at: index, now)
    expireProcedures(at: index, now)
    secure(at: index, now)
  }

  /// Neither end knows whether the other encrypts, so the link ends.
  mutating func encryptionTimedOut(_ source: LinkProcedure.KeySource, at index: Int, _ now: Instant) {
    let status = HCIStatus.lmpOrLLResponseTimeout, failure = HostFailure.refused(.encrypt, status)
    if source == .bond { emit(.encryptionFailed(upper.links[index].id, status)) }
    ended(at: index, failure)
    if mustBeEncrypted(at: index) { withLink(at: index) { $0.protection.failure = status } }
    disconnect(at: index, .authenticationFailure, now)
    resumePairings(at: index, failure, now)
  }

  // MARK: Demands

  /// The server has refused a request of our client. Vol 3, Part C, §10.3.2.
  mutating func help(_ refusal: ATTError, at index: Int, _ now: Instant) {
    // The end of what is in progress helps, or that of the link.
    let (maySecure, key) = link(at: index) { ($0.maySecure, $0.protection.security.key) }
    guard maySecure else { return }
    if key == nil, let bond = bondOfPeer(at: index), begin(with: bond, at: index, now) { return }
    let canImprove = configuration.pairing.canImprove(key, isTooShort: refusal == .encryptionKeySizeTooShort)
    if configuration.pairsOnDemand, canImprove, beginPairing(at: index, nil, isOnDemand: true, now) == nil { return }
    withLink(at: index) { $0.securityEnded(isSecured: false) }
    distrust(at: index, .authenticationFailure, now)
  }
  /// A link to a bonded peer is believed only when it is encrypted. Decision 0059. Without a key for it, it cannot be.
  private func mustBeEncrypted(at index: Int) -> Bool {
    guard configuration.encryptsBondedLinks, let bond = bondOfPeer(at: index) else { return false }
    return upper.links[index].awaitsEncryption(with: bond)
  }
  /// Ends a link that must be encrypted and is not: anybody may have the peer's address.
  mutating func distrust(at index: Int, _ status: HCIStatus, _ now: Instant) {
    guard mustBeEncrypted(at: index), upper.links[index].isUp else { return }
    withLink(at: index) { $0.protection.failure = status }
    disconnect(at: index, .authenticationFailure, now)
  }

  // MARK: Begin

  /// Encrypts the link with the bond's key. False if that is impossible.
  mutating func begin(with bond: Bond, at index: Int, _ now: Instant) -> Bool {
    guard upper.links[index].role == .central else { return beginPairing(at: index, nil, now) == nil }
    guard let key = bond.peers.longTermKey else { return false }
    start(key, bond.strength, .bond, at: index, now)
    return true
  }
  mutating func start(
    _ key: LongTermKey, _ strength: KeyStrength, _ source: LinkProcedure.KeySource, at index: Int, _ now: Instant
  ) {
    let handle = begin(.encryption(strength, source), at: index, now)
    let command = LEEnableEncryption.with {
      $0.connectionHandle = handle
      $0.randomNumber = LongTermKeyRand(rawValue: key.rand)
      $0.encryptedDiversifier = key.ediv
      $0.longTermKey = SecretNumber(key.key.number)
    }
    hci.send(command, tag: Sender.encryption.tag(handle), mayBeRefused: false, now: now)
  }
  /// As Peripheral: the Central's controller starts the encryption. Vol 4, Part E, §7.7.65.5.
  mutating func answer(_ event: LELongTermKeyRequest, _ now: Instant) {
    let ediv = event.encryptedDiversifier, rand = event.randomNumber.rawValue
    guard let index = upper.index(of: event.connectionHandle),
      let (key, strength, source) = upper.links[index].protection.key(ediv: ediv, rand: rand, of: bondOfPeer(at: index))
    else { return refuseKey(event.connectionHandle, now) }
    begin(.encryption(strength, source), at: index, now)
    let command = LELongTermKeyRequestReply.with {
      $0.connectionHandle = event.connectionHandle
      $0.longTermKey = SecretNumber(key.number)
    }
    hci.send(command, tag: Sender.encryption.tag(event.connectionHandle), mayBeRefused: false, now: now)
  }
  /// Vol 4, Part E, §7.8.26.
  private mutating func refuseKey(_ handle: ConnectionHandle, _ now: Instant) {
    let command = LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = handle }
    hci.send(command, tag: Sender.unanswered.tag, mayBeRefused: false, now: now)
  }

  // MARK: What the controller says

  /// Encryption Change and Encryption Key Refresh Complete: Vol 4, Part E, §7.7.8, §7.7.39.
  mutating func encryptionChanged(_ handle: ConnectionHandle, _ status: HCIStatus, isOn: Bool, _ now: Instant) {
    let isEncrypted = status == .success && isOn
    guard let index = upper.index(of: handle),
      let change = withLink(at: index, { $0.encryptionChanged(to: isEncrypted) })
    else { return }
    if change.provesBond { proveBond(at: index) }
    if change.isNew {
      securityChanged(at: index)
      enhance(at: index, now)
    }
    encryptionEnded(at: index, status, isEncrypted ? nil : .refused(.encrypt, status), now)
  }
  /// The controller has refused LE Enable Encryption: the link is as encrypted as before.
  mutating func encryptionRefused(_ handle: ConnectionHandle, _ outcome: CommandOutcome, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    encryptionEnded(at: index, outcome.status, outcome.failure(of: .encrypt), now)
  }
  private mutating func encryptionEnded(
    at index: Int, _ status: HCIStatus, _ failure: HostFailure?, _ now: Instant
  ) {
    let isEncrypted = failure == nil
    let (link, end) = withLink(at: index) { link, chance in
      (link.id, link.encryptionEnded(isEncrypted: isEncrypted, now: now, using: &chance))
    }
    switch end {
    case .ofPairing: break
    case .ofBond(let isIdle):
      if !isEncrypted { emit(.encryptionFailed(link, status)) }
      // After a failure the Central may still pair, as we have asked it to.
      if isIdle { ended(at: index, failure) }
    }
    // Status 0 without encryption: nobody has failed to find the key, and a controller has switched the encryption off.
    if !isEncrypted { distrust(at: index, status == .success ? .authenticationFailure : status, now) }
    resumePairings(at: index, failure, now)
    secure(at: index, now)
  }
  /// No packet of an encrypted link has been authenticated for too long: somebody else may be sending. Vol 4, Part E,
  /// §7.7.75.
  mutating func authenticationTimedOut(_ handle: ConnectionHandle, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    emit(.violation(upper.links[index].id, .authenticationTimedOut))
    disconnect(at: index, .authenticationFailure, now)
  }

  // MARK: What GATT learns

  /// Tells GATT's server, and the application.
  mutating func securityChanged(at index: Int) {
    setSecurity(at: index)
    let (link, security) = link(at: index) { ($0.id, $0.protection.security) }
    emit(.securityChanged(link, security))
  }
  /// Tells GATT's server and client.
  private mutating func setSecurity(at index: Int) {
    upper.tellSecurity(at: index, awaitsEncryption: mustBeEncrypted(at: index))
  }
}
