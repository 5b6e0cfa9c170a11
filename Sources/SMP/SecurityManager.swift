import BindruneToolbox
import BindruneWire
import DequeModule

/// # SecurityManager
/// **Overview**: pairing over one link's channel 0x0006, as Central (initiator) or Peripheral (responder). Vol 3, Part
/// H.
///
/// **Function**: agrees with the peer on a method, makes a key that both share and nobody else knows, has the link
/// encrypted with it, and exchanges the keys of later links. It keeps no bond and asks no user: effects tell the layer
/// above what to do, commands tell the machine what has been done. Each pairing, and each Security Request, ends with
/// exactly one effect; keys to keep leave it only when all has succeeded.
///
/// **Phases**: idle → awaitingPairing (a Peripheral's Security Request) → pairing → idle. A pairing has stages:
///
///     initiator  awaitingResponse (─ awaitingConsent) ─┬─ legacy ────────────┬─ awaitingEncryption ─ distributing
///     responder  awaitingConsent ──────────────────────┴─ secureConnections ─┘
///
/// 30 s in which we send nothing, in a pairing or after a Security Request, lead to silent, which only a new link ends
/// (§3.4).
///
///     manager.receive(pdu, now: now, using: &chance)          // from the peer
///     try manager.pair(now: now)                              // from above
///     while manager.nextPDU(into: &output, now: now) { … }    // to the peer
///     while let effect = manager.nextEffect() { … }
public struct SecurityManager: ~Copyable {
  enum Phase {
    case idle
    case awaitingPairing(deadline: Instant)
    case pairing(Stage, deadline: Instant)
    case silent
  }
  enum Stage {
    /// Initiator: the request that is with the peer, and the settings that made it.
    case awaitingResponse(PairingFeatures, PairingSettings)
    /// What both would agree on. Initiator: with `PairingSettings.asksConsent`.
    case awaitingConsent(Agreement)
    case legacy(LegacyPairing)
    case secureConnections(SecureConnectionsPairing)
    /// Both have the key; the controllers encrypt the link.
    case awaitingEncryption(Agreement, LinkKey)
    case distributing(Distribution)
  }
  /// Octets of the longest PDU, Pairing Public Key: the MTU of the channel. Vol 3, Part H, §3.2.
  public static var longestPDU: Int { 65 }
  /// The Security Manager Timer. Vol 3, Part H, §3.4.
  static var timeout: UInt64 { 30 }
  /// The limit of PDUs that wait because the peer, or the user, has caused them.
  static var mostOutgoing: Int { 16 }

  public let role: PairingRole
  /// Those of the link on the air. A composer may learn them after the link is up, but before the first PDU.
  public var addresses: PairingAddresses
  /// For the next pairing: one that is in progress keeps those it began with.
  public var settings: PairingSettings
  /// Keep it with the peer when the link has ended.
  public private(set) var attempts: PairingAttempts
  /// How many failures `attempts` has counted on this link: a composer that counts those of all peers compares it.
  public private(set) var failures: UInt32 = 0
  /// The time before which requests of the peer get Repeated Attempts, whoever it is, unless this side has asked for
  /// the pairing: a composer sets it after failures with others, because an attacker may change its address.
  public var busyUntil: Instant?
  private(set) var phase = Phase.idle { didSet { deadline = phase.deadline } }
  private var outgoing = Deque<Outgoing>() { didSet { hasPDU = !outgoing.isEmpty } }
  private var effects = Deque<SecurityEffect>() { didSet { hasEffect = !effects.isEmpty } }
  // The three that follow are stored, because a composer asks for each packet of the link.
  /// When `expire` must act.
  public private(set) var deadline: Instant?
  /// True while `nextPDU` appends one.
  public private(set) var hasPDU = false
  /// True while `nextEffect` returns one.
  public private(set) var hasEffect = false

  public init(
    role: PairingRole, addresses: PairingAddresses, settings: PairingSettings = PairingSettings(),
    attempts: PairingAttempts = PairingAttempts()
  ) {
    self.role = role
    self.addresses = addresses
    self.settings = settings
    self.attempts = attempts
  }

  public var isPairing: Bool { if case .pairing = phase { true } else { false } }
  /// Neither a pairing nor a Security Request of ours is in progress.
  public var isIdle: Bool {
    switch phase {
    case .idle, .silent: true
    case .awaitingPairing, .pairing: false
    }
  }
  /// Of the key that the pairing has made and that the controllers encrypt with; nil: there is none yet, or no pairing.
  public var keyStrength: KeyStrength? {
    switch phase {
    case .pairing(.awaitingEncryption(let agreement, let key), _): agreement.strength(of: key)
    case .pairing(.distributing(let distribution), _): distribution.result.strength
    case .idle, .awaitingPairing, .pairing, .silent: nil
    }
  }
  /// The identity that the peer has distributed and that awaits `accept`, and the method of the pairing. An IRK of
  /// zeros is none.
  public var openIdentity: (identity: PairingIdentity, method: PairingMethod)? {
    guard case .pairing(.distributing(let distribution), _) = phase, distribution.isIdentityOpen,
      let identity = distribution.peersIdentity
    else { return nil }
    return (identity, distribution.result.method)
  }

  // MARK: Commands

  /// Central: pairs. Ends with `.completed` or `.failed`.
  public mutating func pair(now: Instant) throws(PairingRefusal) {
    try checkIdle(.initiator, now)
    let request = PairingFeatures(requestWith: settings)
    phase = .pairing(.awaitingResponse(request, settings), deadline: now)
    send(.pairingRequest(PairingRequest(request)), now)
  }
  /// Peripheral: asks the Central to encrypt the link or to pair. Ends with `.completed`, `.resumed` or `.failed`.
  /// Vol 3, Part H, §2.4.6.
  public mutating func requestSecurity(now: Instant) throws(PairingRefusal) {
    try checkIdle(.responder, now)
    phase = .awaitingPairing(deadline: now.adding(seconds: Self.timeout))
    outgoing.append(.pdu(.securityRequest(SecurityRequest(AuthReq(with: settings)))))
  }
  private func checkIdle(_ wanted: PairingRole, _ now: Instant) throws(PairingRefusal) {
    guard role == wanted else { throw .wrongRole }
    switch phase {
    case .idle: break
    case .awaitingPairing, .pairing: throw .busy
    case .silent: throw .silent
    }
    if let until = attempts.nextAttempt(now: now) { throw .tooEarly(until: until) }
  }

  // The user's answers. False, and without effect, unless the question is open.

  /// Consents to the pairing, or to the identity that the peer has distributed.
  public mutating func accept(now: Instant, using chance: inout some RandomNumberGenerator) -> Bool {
    switch phase {
    case .pairing(.awaitingConsent(let agreement), _):
      if role == .responder { send(.pairingResponse(PairingResponse(agreement.response)), now) }
      begin(agreement, now, &chance)
    case .pairing(.distributing(var distribution), _) where distribution.isIdentityOpen:
      distribution.acceptIdentity()
      sendKeys(of: distribution, now)
    case .idle, .awaitingPairing, .silent, .pairing(.awaitingResponse, _), .pairing(.legacy, _),
      .pairing(.secureConnections, _), .pairing(.awaitingEncryption, _), .pairing(.distributing, _):
      return false
    }
    return true
  }
  /// The user has entered six digits: 0 … 999,999. A greater number fails the pairing with Passkey Entry Failed.
  public mutating func enter(
    passkey: UInt32, now: Instant, using chance: inout some RandomNumberGenerator
  ) -> Bool {
    switch phase {
    case .pairing(.legacy(let pairing), _):
      guard case .awaitingPasskey(let confirm) = pairing.step else { return false }
      guard passkey < 1_000_000 else {
        fail(.passkeyEntryFailed, now)
        return true
      }
      confirmLegacy(pairing.agreement, SecurityKey(UInt128(passkey)), peersConfirm: confirm, now, &chance)
    case .pairing(.secureConnections(let pairing), _):
      guard case .awaitingPasskey(let keys, let confirm) = pairing.step else { return false }
      guard passkey < 1_000_000 else {
        fail(.passkeyEntryFailed, now)
        return true
      }
      beginRounds(pairing, keys, passkey, peersConfirm: confirm, now, &chance)
    case .idle, .awaitingPairing, .silent, .pairing(.awaitingResponse, _), .pairing(.awaitingConsent, _),
      .pairing(.awaitingEncryption, _), .pairing(.distributing, _):
      return false
    }
    return true
  }
  /// The user has seen the same number on both devices.
  public mutating func confirmNumbers(now: Instant) -> Bool {
    guard case .pairing(.secureConnections(let pairing), _) = phase,
      case .awaitingComparison(let secrets, let check) = pairing.step
    else { return false }
    beginChecks(pairing, secrets, peersCheck: check, now)
    return true
  }
  /// The user does this while entering the passkey; the peer gets a Keypress Notification if both sides have agreed on
  /// that.
  public mutating func notify(_ key: KeypressNotificationType, now: Instant) -> Bool {
    let agreement: Agreement
    switch phase {
    case .pairing(.legacy(let pairing), _):
      guard case .awaitingPasskey = pairing.step else { return false }
      agreement = pairing.agreement
    case .pairing(.secureConnections(let pairing), _):
      guard case .awaitingPasskey = pairing.step else { return false }
      agreement = pairing.agreement
    case .idle, .awaitingPairing, .silent, .pairing(.awaitingResponse, _), .pairing(.awaitingConsent, _),
      .pairing(.awaitingEncryption, _), .pairing(.distributing, _):
      return false
    }
    if agreement.notifiesKeypresses, outgoing.count < Self.mostOutgoing {
      send(.pairingKeypressNotification(PairingKeypressNotification(key)), now)
    }
    return true
  }
  /// The user refuses or gives up, or the layer above does: ends the pairing, whatever its stage, with the reason that
  /// fits. False if there is no pairing. `isAttempt`: the peer must wait before it tries again, also if nothing of the
  /// pairing could have been guessed.
  public mutating func refuse(now: Instant, isAttempt: Bool = false) -> Bool {
    guard case .pairing(let stage, _) = phase else { return false }
    if isAttempt, !stage.isAttempt { recordFailure(now) }
    fail(stage.refusal, now)
    return true
  }
  /// Central: answers a Security Request with Pairing Not Supported. Vol 3, Part H, §2.4.6. False unless idle.
  public mutating func refuseSecurityRequest() -> Bool {
    guard role == .initiator, case .idle = phase else { return false }
    reply(.pairingNotSupported)
    return true
  }

  // MARK: The link

  /// The link is encrypted now, or could not be, or is no longer.
  public mutating func encryptionChanged(
    isEncrypted: Bool, now: Instant, using chance: inout some RandomNumberGenerator
  ) {
    switch phase {
    case .awaitingPairing where isEncrypted:
      phase = .idle
      outgoing.removeAll()
      effects.append(.resumed)
    case .pairing(.awaitingEncryption(let agreement, let key), _):
      guard isEncrypted else { return end(.encryptionFailed, now) }
      distribute(agreement, key, now, &chance)
    case .pairing(.distributing, _): if !isEncrypted { end(.encryptionFailed, now) }
    case .idle, .awaitingPairing, .silent, .pairing(.awaitingResponse, _), .pairing(.awaitingConsent, _),
      .pairing(.legacy, _), .pairing(.secureConnections, _):
      break
    }
  }
  /// Peripheral: the key that the pairing has made and that the Central now asks for. `nil`: not one of this pairing's.
  ///
  /// A long term key of an earlier pairing must not be given while ``isPairing``.
  public func key(ediv: UInt16, rand: UInt64) -> SecurityKey? {
    guard role == .responder, ediv == 0, rand == 0, case .pairing(.awaitingEncryption(_, let key), _) = phase
    else { return nil }
    return key.key
  }
  /// The link has ended; so has what was in progress. The machine stays silent.
  public mutating func linkClosed(now: Instant) {
    switch phase {
    case .idle, .silent: break
    case .awaitingPairing, .pairing: end(.linkClosed, now)
    }
    phase = .silent
    outgoing.removeAll()
  }

  // MARK: From the peer

  /// One PDU of channel 0x0006.
  public mutating func receive(
    _ pdu: Span<UInt8>, now: Instant, using chance: inout some RandomNumberGenerator
  ) {
    guard !pdu.isEmpty else { return effects.append(.report(.empty)) }
    let code = SMPCode(rawValue: pdu[0])
    if case .silent = phase { return effects.append(.report(.afterTimeOut(code))) }
    guard code.isKnown else { return effects.append(.report(.reserved(code))) }
    let message: SMPPDU
    do throws(WireError) { message = try SMPPDU(pdu) } catch { return receiveMalformed(code, error.reason, now) }
    switch (phase, message) {
    case (.idle, .pairingFailed): unexpected(code, now)
    case (_, .pairingFailed(let failed)): end(.peers(failed.reason), now)

    case (.idle, .pairingRequest(let request)), (.awaitingPairing, .pairingRequest(let request)):
      guard role == .responder else { return reply(.commandNotSupported) }
      consider(request.features, now)
    case (.idle, .securityRequest(let request)):
      guard role == .initiator else { return reply(.commandNotSupported) }
      effects.append(.considerSecurityRequest(request.authReq))
    // A Central that pairs ignores the request: §2.4.6.
    case (.pairing, .securityRequest) where role == .initiator: break

    case (.pairing(.awaitingResponse(let request, let settings), _), .pairingResponse(let response)):
      consider(response.features, to: request, settings, now, &chance)
    case (.pairing(.legacy(let pairing), _), _): receive(message, in: pairing, now, &chance)
    case (.pairing(.secureConnections(let pairing), _), _): receive(message, in: pairing, now, &chance)
    case (.pairing(.distributing(let distribution), _), _): receive(message, in: distribution, now)
    case (.idle, _), (.awaitingPairing, _), (.pairing(.awaitingResponse, _), _), (.pairing(.awaitingConsent, _), _),
      (.pairing(.awaitingEncryption, _), _), (.silent, _):
      unexpected(code, now)
    }
  }
  private mutating func receiveMalformed(_ code: SMPCode, _ reason: WireError.Reason, _ now: Instant) {
    effects.append(.report(.malformed(code, reason)))
    switch phase {
    // A failure is not answered with a failure.
    case _ where code == .pairingFailed:
      if case .idle = phase { return }
      end(.peers(.unspecifiedReason), now)
    case .pairing: fail(.invalidParameters, now)
    case .idle, .awaitingPairing: if code == .pairingRequest { reply(.invalidParameters) }
    case .silent: break
    }
  }
  /// A PDU that has no place in the phase.
  mutating func unexpected(_ code: SMPCode, _ now: Instant) {
    effects.append(.report(.unexpected(code)))
    if case .pairing = phase { fail(.unspecifiedReason, now) }
  }

  // MARK: To the peer

  /// Appends the next PDU; false when there is none. The caller guarantees room for 65 octets.
  public mutating func nextPDU(into output: inout OutputRawSpan, now: Instant) -> Bool {
    guard let next = outgoing.popFirst() else { return false }
    next.write(into: &output)
    completeIfDistributed()
    return true
  }

  // MARK: Effects and time

  public mutating func nextEffect() -> SecurityEffect? { effects.popFirst() }

  public mutating func expire(now: Instant) {
    guard let deadline, deadline <= now else { return }
    end(.timedOut, now)
    phase = .silent
    outgoing.removeAll()
  }

  // MARK: Steps of all methods

  mutating func emit(_ effect: SecurityEffect) { effects.append(effect) }
  /// Queues a PDU of the pairing; restarts the timer. Vol 3, Part H, §3.4.
  mutating func send(_ pdu: SMPPDU, _ now: Instant) { send(.pdu(pdu), now) }
  private mutating func send(_ pdu: Outgoing, _ now: Instant) {
    outgoing.append(pdu)
    if case .pairing(let stage, _) = phase { phase = .pairing(stage, deadline: now.adding(seconds: Self.timeout)) }
  }
  /// Queues Pairing Failed where no pairing is in progress.
  private mutating func reply(_ reason: PairingFailure) {
    if outgoing.count < Self.mostOutgoing { outgoing.append(.pdu(.pairingFailed(PairingFailed(reason)))) }
  }
  mutating func enter(_ stage: Stage) {
    guard case .pairing(_, let deadline) = phase else { return }
    phase = .pairing(stage, deadline: deadline)
  }
  /// Ends the pairing; the peer gets the reason.
  mutating func fail(_ reason: PairingFailure, _ now: Instant) {
    outgoing.removeAll()
    outgoing.append(.pdu(.pairingFailed(PairingFailed(reason))))
    end(.ours(reason), now)
  }
  private mutating func end(_ error: PairingError, _ now: Instant) {
    if case .pairing(let stage, _) = phase, stage.isAttempt { recordFailure(now) }
    if case .ours = error {} else { outgoing.removeAll() }
    phase = .idle
    effects.append(.failed(error))
  }
  private mutating func recordFailure(_ now: Instant) {
    attempts.recordFailure(now: now)
    failures &+= 1
  }

  // MARK: Phase 1

  private mutating func consider(_ request: PairingFeatures, _ now: Instant) {
    // A request that we have invited and refuse ends the invitation.
    let isInvited = if case .awaitingPairing = phase { true } else { false }
    do throws(PairingFailure) {
      guard settings.acceptsPairing else { throw .pairingNotSupported }
      guard attempts.nextAttempt(now: now) == nil else { throw .repeatedAttempts }
      if let busyUntil, now < busyUntil, !isInvited { throw .repeatedAttempts }
      let response = PairingFeatures(responseTo: request, with: settings)
      let agreement = try Agreement(role, request, response, settings)
      // A Security Request that is not sent yet has become needless.
      outgoing.removeAll()
      phase = .pairing(.awaitingConsent(agreement), deadline: now.adding(seconds: Self.timeout))
      effects.append(.requestConsent(agreement.method))
    } catch {
      if isInvited { fail(error, now) } else { reply(error) }
    }
  }
  private mutating func consider(
    _ response: PairingFeatures, to request: PairingFeatures, _ settings: PairingSettings, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    do throws(PairingFailure) {
      let agreement = try Agreement(role, request, response, settings)
      guard settings.asksConsent, agreement.method == .justWorks else { return begin(agreement, now, &chance) }
      enter(.awaitingConsent(agreement))
      effects.append(.requestConsent(agreement.method))
    } catch {
      fail(error, now)
    }
  }
  private mutating func begin(_ agreement: Agreement, _ now: Instant, _ chance: inout some RandomNumberGenerator) {
    if agreement.isSecureConnections {
      beginSecureConnections(agreement, now, &chance)
    } else {
      beginLegacy(agreement, now, &chance)
    }
  }
  /// Both have computed `key`: the Central's controller starts the encryption.
  mutating func encrypt(_ agreement: Agreement, with key: LinkKey) {
    enter(.awaitingEncryption(agreement, key))
    if role == .initiator { effects.append(.encrypt(key.key)) }
  }

  // MARK: Phase 3

  private mutating func distribute(
    _ agreement: Agreement, _ key: LinkKey, _ now: Instant, _ chance: inout some RandomNumberGenerator
  ) {
    sendKeys(of: Distribution(agreement, key, ownOnAir: addresses.own(role), using: &chance), now)
  }
  /// The responder's keys come first: §3.6.1.
  private mutating func sendKeys(of distribution: Distribution, _ now: Instant) {
    var distribution = distribution
    if role == .responder || distribution.isReceived {
      for pdu in distribution.takeKeys() { send(pdu, now) }
    }
    enter(.distributing(distribution))
    completeIfDistributed()
  }
  private mutating func receive(
    _ message: SMPPDU, in distribution: Distribution, _ now: Instant
  ) {
    var distribution = distribution
    do throws(PairingFailure) {
      guard try distribution.receive(message) else { return unexpected(message.code, now) }
    } catch {
      return fail(error, now)
    }
    sendKeys(of: distribution, now)
    if message.code == .identityAddressInformation, distribution.isIdentityOpen { effects.append(.considerIdentity) }
  }
  private mutating func completeIfDistributed() {
    guard outgoing.isEmpty, case .pairing(.distributing(let distribution), _) = phase, distribution.isReceived
    else { return }
    phase = .idle
    attempts.recordSuccess()
    effects.append(.completed(distribution.result))
  }
}

/// The key that encrypts the link: the short term key of legacy pairing, or a long term key.
struct LinkKey: Sendable {
  let key: SecurityKey
  let usesDebugKey: Bool
}

extension SecurityManager.Phase {
  var deadline: Instant? {
    switch self {
    case .awaitingPairing(let deadline), .pairing(_, let deadline): deadline
    case .idle, .silent: nil
    }
  }
}
extension SecurityManager.Stage {
  /// Failures from here on may be guesses, however they end. Vol 3, Part H, §2.3.6.
  var isAttempt: Bool {
    switch self {
    case .awaitingResponse, .awaitingConsent: false
    case .legacy, .secureConnections, .awaitingEncryption, .distributing: true
    }
  }
  /// The reason for a user who gives up here. Vol 3, Part H, §3.5.5.
  var refusal: PairingFailure {
    switch self {
    case .awaitingConsent: return .pairingNotSupported
    case .legacy(let pairing):
      if case .awaitingPasskey = pairing.step { return .passkeyEntryFailed }
    case .secureConnections(let pairing):
      if case .awaitingPasskey = pairing.step { return .passkeyEntryFailed }
      if case .awaitingComparison = pairing.step { return .numericComparisonFailed }
    case .distributing(let distribution): if distribution.isIdentityOpen { return .keyRejected }
    case .awaitingResponse, .awaitingEncryption: break
    }
    return .unspecifiedReason
  }
}
