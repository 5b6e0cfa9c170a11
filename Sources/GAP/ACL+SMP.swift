import ATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import GATT
import HCI
import L2CAP
import SMP

// The security of links: pairing over channel 0x0006, encryption by the controller, bonds, GATT's permissions. Vol 3,
// Part C, §10; Decision 0048.
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
  /// Encrypts the link with the bond's key; a Peripheral asks the Central to. Ends with `.completed(id, .secured)`.
  public mutating func encrypt(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    if upper.links[index].protection.isIdle {
      guard let bond = bonds[upper.links[index].peer], begin(with: bond, at: index, now) else {
        return emit(.completed(id, .failed(.notBonded)))
      }
    }
    finish(id, withWorkAt: index, now)
  }
  /// `id` ends with what is in progress on the link.
  private mutating func finish(_ id: RequestID, withWorkAt index: Int, _ now: Instant) {
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
  /// What protects the link now; nil if there is no such link.
  public func security(of link: LinkID) -> LinkSecurity? {
    upper.index(of: link).map { upper.links[$0].protection.security }
  }

  /// Changes `HostConfiguration.pairing` and `pairsOnDemand`, for pairings that begin from now on, also on links that are up.
  package mutating func setPairing(_ settings: PairingSettings, pairsOnDemand: Bool) {
    configuration.pairing = settings
    configuration.pairsOnDemand = pairsOnDemand
    for index in 0..<upper.links.count { prepare(at: index) }
  }

  /// A bond that was stored: call this before the start. It replaces another one with the same peer.
  public mutating func add(_ bond: Bond, now: Instant) throws(IdentityError) {
    if let identity = bond.peers.identityAddress.map({ PeerAddress($0) }) { try checkIdentity(identity) }
    if let irk = bond.peers.irk, !irk.isZero {
      try checkIdentity(bond.address)
      try privacy.add(bond.address, IdentityResolvingKey(irk.number), isApplications: false)
    }
    peers.identify(bond.peer, as: bond.address)
    put(bond)
    drain(now)
  }
  /// Adds the bond; of one that it replaces, nothing else may need the address.
  private mutating func put(_ bond: Bond) {
    let replaced = bonds[bond.peer]
    bonds.put(bond)
    if let replaced { forgetUnneeded(replaced.peer, at: replaced.address) }
    noteRoom()
  }
  /// Forgets a bond; a link that it encrypts stays encrypted. False if there is none; else `.bondRemoved` follows.
  @discardableResult public mutating func removeBond(with peer: PeerID, now: Instant) -> Bool {
    guard forget(peer) else { return false }
    // What has awaited the bond's encryption does so no more.
    for index in 0..<upper.links.count where upper.links[index].peer == peer { collect(at: index) }
    drain(now)
    return true
  }
  private mutating func forget(_ peer: PeerID) -> Bool {
    guard let bond = bonds.remove(peer) else { return false }
    // The key is the bond's; a link keeps its peer's address.
    if !privacy.identities.isApplications(bond.address), !bonds.has(bond.address) { privacy.remove(bond.address) }
    forgetUnneeded(peer, at: bond.address)
    for index in 0..<upper.links.count where upper.links[index].peer == peer {
      upper.links[index].protection.security.isBonded = false
      securityChanged(at: index)
      verifySignatures(at: index)
    }
    noteRoom()
    emit(.bondRemoved(peer))
    return true
  }
  /// The longest unused first.
  public var allBonds: [Bond] { bonds.all }
  public func bond(with peer: PeerID) -> Bond? { bonds[peer] }

  // MARK: Pairing

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
  /// Central: pairs; Peripheral: requests security. Returns why not. `isOnDemand`: the application has not asked for it.
  private mutating func beginPairing(
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
  /// Encrypts the link with the bond's key. False if that is impossible.
  private mutating func begin(with bond: Bond, at index: Int, _ now: Instant) -> Bool {
    guard upper.links[index].role == .central else { return beginPairing(at: index, nil, now) == nil }
    guard let key = bond.peers.longTermKey else { return false }
    start(key, bond.strength, .bond, at: index, now)
    return true
  }

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
  /// The pairing, Security Request or encryption in progress has ended; nil: the link is secured.
  private mutating func ended(at index: Int, _ failure: HostFailure?) {
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
  private mutating func resumePairings(at index: Int, _ failure: HostFailure?, _ now: Instant) {
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
  /// The client has something to send over a link that must be encrypted first: `secure` sees to it, at once if nothing
  /// is in progress.
  mutating func demandSecurity(at index: Int) {
    guard upper.links[index].client.awaitsEncryption, upper.links[index].protection.refusal == nil,
      upper.links[index].protection.isIdle, upper.links[index].phase == .up
    else { return }
    upper.links[index].protection.refusal = .insufficientEncryption
  }
  /// A link to a bonded peer is believed only when it is encrypted. Decision 0059. Without a key for it, it cannot be.
  private func mustBeEncrypted(at index: Int) -> Bool {
    guard configuration.encryptsBondedLinks, upper.links[index].protection.security.key == nil,
      let bond = bonds[upper.links[index].peer]
    else { return false }
    return (upper.links[index].role == .central ? bond.peers : bond.ours).longTermKey != nil
  }
  /// Ends a link that must be encrypted and is not: anybody may have the peer's address.
  private mutating func distrust(at index: Int, _ status: HCIStatus, _ now: Instant) {
    guard mustBeEncrypted(at: index), upper.links[index].phase == .up else { return }
    upper.links[index].protection.failure = status
    disconnect(at: index, .authenticationFailure, now)
  }
  /// The settings for a pairing that the peer begins.
  mutating func prepare(at index: Int) {
    upper.links[index].protection.manager.settings = settings(nil, at: index)
  }

  /// A Peripheral asks for security: ignored while we encrypt the link. Vol 3, Part H, §2.4.6.
  private mutating func consider(_ wanted: AuthReq, at index: Int, _ now: Instant) {
    if case .starting = upper.links[index].protection.phase { return }
    let bond = bonds[upper.links[index].peer]
    if let bond, !wanted.contains(.mitm) || bond.strength.isAuthenticated, begin(with: bond, at: index, now) { return }
    if configuration.pairsOnDemand, beginPairing(at: index, nil, isOnDemand: true, now) == nil { return }
    _ = upper.links[index].protection.manager.refuseSecurityRequest()
  }
  /// The server has refused a request of our client. Vol 3, Part C, §10.3.2.
  private mutating func help(_ refusal: ATTError, at index: Int, _ now: Instant) {
    // The end of what is in progress helps, or that of the link.
    guard upper.links[index].protection.isIdle, upper.links[index].phase == .up else { return }
    let key = upper.links[index].protection.security.key
    if key == nil, let bond = bonds[upper.links[index].peer], begin(with: bond, at: index, now) { return }
    let canImprove = configuration.pairing.canImprove(key, isTooShort: refusal == .encryptionKeySizeTooShort)
    if configuration.pairsOnDemand, canImprove, beginPairing(at: index, nil, isOnDemand: true, now) == nil { return }
    upper.links[index].client.securityEnded(isSecured: false)
    distrust(at: index, .authenticationFailure, now)
  }

  /// Keeps what the pairing has made. False: nothing, because it would take a place that nobody lets it take.
  private mutating func paired(_ result: PairingResult, at index: Int, _ now: Instant) -> Bool {
    let link = upper.links[index].id, peer = upper.links[index].peer
    let identity = result.peers.identityAddress.map { PeerAddress($0) }
    let address = identity ?? upper.links[index].address
    let claims = identity.map { self.claims(of: $0, result.peers.irk, at: index) } ?? []
    let replaced = claims + [replacedBond(at: index)].compactMap { result.isBonding || !claims.isEmpty ? $0 : nil }
    // Another link may have made a bond since the questions.
    for bond in replaced {
      if let strength = bond.strength, result.strength.isWeaker(than: strength) {
        emit(.violation(link, .weakerThanBond))
        return false
      }
      if !isConsented(bond, to: result, at: index) { return false }
    }
    for bond in replaced where bond.peer != peer {
      if bond.strength != nil {
        _ = forget(bond.peer)
      } else if bond.address != identity {
        privacy.remove(bond.address)
        peers.remove(bond.address)
      }
    }
    if let identity, let irk = result.peers.irk, !irk.isZero {
      do throws(IdentityError) {
        try identify(link, as: identity, IdentityResolvingKey(irk.number), isApplications: false, now: now)
      } catch {
        // The Security Manager has refused all that this refuses; if not, the keys of such a peer are not kept.
        emit(.violation(link, .identityRefused(error)))
        return false
      }
    }
    guard result.isBonding, hasRoom(for: result.strength, of: peer) else {
      if configuration.pairing.isBonding, !hasRoom(for: result.strength, of: peer) {
        emit(.violation(link, .noRoomForBond))
      }
      return true
    }
    let bond = Bond(
      peer: peer, address: address, strength: result.strength, ours: result.ours, peers: result.peers)
    while bonds.all.count >= configuration.maximumBonds, bonds[peer] == nil,
      let other = Bond.firstToForget(bonds.all, for: result.strength)
    {
      _ = forget(other.peer)
      if !result.isAuthenticated { countAttempt(now) }
    }
    put(bond)
    upper.links[index].protection.isClientRestored = true
    upper.server.bond(upper.links[index].bearers.first.bearer.id, as: BondID(rawValue: peer.rawValue))
    verifySignatures(at: index)
    emit(.bondChanged(peer))
    if upper.links[index].protection.security.isBonded { return true }
    upper.links[index].protection.security.isBonded = true
    securityChanged(at: index)
    return true
  }

  // MARK: Encryption

  private mutating func start(
    _ key: LongTermKey, _ strength: KeyStrength, _ source: LinkProtection.KeySource, at index: Int, _ now: Instant
  ) {
    let handle = upper.links[index].handle
    expectEncryption(strength, source, at: index, now)
    send(key.key, tag: Tag.encryption | UInt32(handle.rawValue), now) { octets in
      LEEnableEncryption.with {
        $0.connectionHandle = handle
        $0.randomNumber = LongTermKeyRand(rawValue: key.rand)
        $0.encryptedDiversifier = key.ediv
        $0.longTermKey = octets
      }
    }
  }
  /// Sends the command that `command` makes with the key's octets.
  private mutating func send(
    _ key: SecurityKey, tag: UInt32, _ now: Instant, _ command: (SecretOctets) -> some HCICommand
  ) {
    var arena: [UInt8] = []
    let octets = SecretOctets(key.number, in: &arena)
    do throws(WireError) {
      try hci.send(command(octets), from: arena.span, tag: tag, mayBeRefused: false, now: now)
    } catch {
      preconditionFailure("the key has the 16 octets of the command's field: \(error)")
    }
  }
  private mutating func expectEncryption(
    _ strength: KeyStrength, _ source: LinkProtection.KeySource, at index: Int, _ now: Instant
  ) {
    upper.links[index].protection.phase = .starting(
      strength, source, deadline: now.adding(seconds: LinkProtection.timeout))
  }
  /// As Peripheral: the Central's controller starts the encryption. Vol 4, Part E, §7.7.65.5.
  mutating func answer(_ event: LELongTermKeyRequest, _ now: Instant) {
    guard let index = upper.index(of: event.connectionHandle) else { return refuseKey(event.connectionHandle, now) }
    let ediv = event.encryptedDiversifier, rand = event.randomNumber.rawValue, key: SecurityKey
    if upper.links[index].protection.manager.isPairing {
      // A bond's key would take the place of the pairing's.
      guard let own = upper.links[index].protection.manager.key(ediv: ediv, rand: rand),
        let strength = upper.links[index].protection.manager.keyStrength
      else { return refuseKey(event.connectionHandle, now) }
      key = own
      expectEncryption(strength, .pairing, at: index, now)
    } else {
      guard let bond = bonds[upper.links[index].peer], let own = bond.ours.longTermKey, own.ediv == ediv,
        own.rand == rand
      else { return refuseKey(event.connectionHandle, now) }
      key = own.key
      expectEncryption(bond.strength, .bond, at: index, now)
    }
    send(key, tag: Tag.encryption | UInt32(event.connectionHandle.rawValue), now) { octets in
      LELongTermKeyRequestReply.with {
        $0.connectionHandle = event.connectionHandle
        $0.longTermKey = octets
      }
    }
    note(at: index)
  }
  /// Vol 4, Part E, §7.8.26.
  private mutating func refuseKey(_ handle: ConnectionHandle, _ now: Instant) {
    let command = LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = handle }
    hci.send(command, tag: Tag.unanswered, mayBeRefused: false, now: now)
  }

  /// Encryption Change and Encryption Key Refresh Complete: Vol 4, Part E, §7.7.8, §7.7.39.
  mutating func encryptionChanged(_ handle: ConnectionHandle, _ status: HCIStatus, isOn: Bool, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    let before = upper.links[index].protection.security, isEncrypted = status == .success && isOn
    switch upper.links[index].protection.phase {
    case .starting(let strength, let source, _) where isEncrypted:
      upper.links[index].protection.security.key = strength
      if source == .bond { proveBond(at: index) }
    // No key of ours: what the controller means is unknown.
    case .quiet where isEncrypted: return
    case .starting, .quiet: upper.links[index].protection.security.key = nil
    }
    if upper.links[index].protection.security != before { securityChanged(at: index) }
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
    let phase = upper.links[index].protection.phase
    upper.links[index].protection.phase = .quiet
    let wasPairing = upper.links[index].protection.manager.isPairing
    upper.links[index].protection.manager.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &upper.chance)
    // A pairing goes on, and ends by itself.
    if case .starting(_, .bond, _) = phase, !wasPairing {
      if !isEncrypted { emit(.encryptionFailed(upper.links[index].id, status)) }
      // After a failure the Central may still pair, as we have asked it to.
      if upper.links[index].protection.manager.isIdle {
        ended(at: index, failure)
      }
    }
    // Status 0 without encryption: nobody has failed to find the key, and a controller has switched the encryption off.
    if !isEncrypted { distrust(at: index, status == .success ? .authenticationFailure : status, now) }
    resumePairings(at: index, failure, now)
    secure(at: index, now)
  }
  /// Reports a link that ends while it is to be encrypted with the key of the bond.
  private mutating func encryptionFailed(at index: Int, _ status: HCIStatus) {
    if case .starting(_, .bond, _) = upper.links[index].protection.phase {
      emit(.encryptionFailed(upper.links[index].id, status))
    }
    upper.links[index].protection.phase = .quiet
  }
  /// No packet of an encrypted link has been authenticated for too long: somebody else may be sending. Vol 4, Part E,
  /// §7.7.75.
  mutating func authenticationTimedOut(_ handle: ConnectionHandle, _ now: Instant) {
    guard let index = upper.index(of: handle) else { return }
    emit(.violation(upper.links[index].id, .authenticationTimedOut))
    disconnect(at: index, .authenticationFailure, now)
  }
  /// The peer has the bond's key, so it is the peer.
  private mutating func proveBond(at index: Int) {
    let peer = upper.links[index].peer
    guard let bond = bonds[peer] else { return }
    bonds.use(peer)
    emit(.bondChanged(peer))
    if upper.links[index].protection.isClientRestored { return }
    upper.links[index].protection.isClientRestored = true
    let bearer = upper.links[index].bearers.first.bearer.id, id = BondID(rawValue: peer.rawValue)
    do throws(WireError) {
      guard !bond.client.isEmpty else { return upper.server.bond(bearer, as: id) }
      try upper.server.restore(bond.client.span, of: id, on: bearer)
    } catch {
      // The client begins anew.
      emit(.violation(upper.links[index].id, .clientRecord(error)))
      upper.server.bond(bearer, as: id)
    }
  }
  /// Tells GATT's server, and the application.
  private mutating func securityChanged(at index: Int) {
    let security = upper.links[index].protection.security
    setSecurity(at: index)
    emit(.securityChanged(upper.links[index].id, security))
  }
  /// Tells GATT's server and client.
  private mutating func setSecurity(at index: Int) {
    upper.setSecurity(upper.links[index].protection.security, at: index)
    let awaitsEncryption = mustBeEncrypted(at: index)
    if awaitsEncryption != upper.links[index].client.awaitsEncryption {
      upper.links[index].client.awaitsEncryption = awaitsEncryption
    }
  }
  /// GATT's record of a bonded client has changed.
  mutating func store(_ record: Octets, of peer: PeerID) {
    let octets = upper.server.bytes(of: record)
    // A reconnection restores the record, which the server then reports unchanged.
    guard let bond = bonds[peer], bond.client != octets else { return }
    bonds.change(peer) { $0.client = octets }
    emit(.bondChanged(peer))
  }

  // MARK: Links

  /// A link is up: what is known of its peer applies, and a Central encrypts it.
  mutating func protect(at index: Int, _ now: Instant) {
    prepare(at: index)
    limit(at: index, now)
    setSecurity(at: index)
    verifySignatures(at: index)
    guard configuration.encryptsBondedLinks, upper.links[index].role == .central,
      let bond = bonds[upper.links[index].peer]
    else { return }
    _ = begin(with: bond, at: index, now)
  }
  /// The link ends: so does what was in progress on it. When a controller has waited for an answer of the other for 40 s,
  /// the link ends with 0x22: Vol 6, Part B, §5.2.
  mutating func unprotect(at index: Int, _ reason: HCIStatus, _ now: Instant) {
    upper.links[index].protection.refusal = nil
    upper.links[index].protection.manager.linkClosed(now: now)
    if reason == .lmpOrLLResponseTimeout { encryptionFailed(at: index, reason) }
    if upper.links[index].protection.delivery != nil {
      upper.links[index].protection.delivery = nil
      emit(.pairingEnded(upper.links[index].id, .linkClosed))
      ended(at: index, .pairingFailed(.linkClosed))
    }
    upper.links[index].protection.phase = .quiet
    bonds.keep(upper.links[index].protection.manager.attempts, of: upper.links[index].peer)
    secure(at: index, now)
    ended(at: index, .noSuchLink)
    resumePairings(at: index, .noSuchLink, now)
  }
  mutating func expireProtection(at index: Int, _ now: Instant) {
    upper.links[index].protection.manager.expire(now: now)
    continueLeaving(at: index, now)
    if case .starting(_, _, let deadline) = upper.links[index].protection.phase, deadline <= now {
      encryptionFailed(at: index, .lmpOrLLResponseTimeout)
      ended(at: index, .refused(.encrypt, .lmpOrLLResponseTimeout))
      if mustBeEncrypted(at: index) { upper.links[index].protection.failure = .lmpOrLLResponseTimeout }
      // Neither end knows whether the other encrypts.
      disconnect(at: index, .authenticationFailure, now)
      resumePairings(at: index, .refused(.encrypt, .lmpOrLLResponseTimeout), now)
    }
    secure(at: index, now)
  }
}

extension UpperLayers {
  fileprivate mutating func setSecurity(_ security: LinkSecurity, at index: Int) {
    server.setSecurity(
      security.bearer, keySize: security.key?.size.count ?? 16, of: links[index].bearers.first.bearer.id)
  }
}
