import BindruneToolbox
import BindruneWire

/// # SecureConnectionsPairing
/// **Overview**: phase 2 of LE Secure Connections pairing: a long term key from a Diffie-Hellman key on P-256.
/// Vol 3, Part H, §2.3.5.6.
///
/// **Function**: public keys are exchanged; stage 1 shows that they are those of the two devices; stage 2 that both
/// have computed the same. The initiator sends the first of each pair of PDUs, but for the confirm value of Just Works
/// and Numeric Comparison, which only the responder has.
///
///     initiator                      responder
///       public key ────────────────────►
///         ◄──────────────────── public key
///         ◄─────────────────────── confirm       both confirm: Passkey Entry, twenty times; none: Out of Band
///       random ────────────────────────►
///         ◄──────────────────────── random
///       DHKey check ───────────────────►         after both users have compared the numbers: Numeric Comparison
///         ◄─────────────────── DHKey check
///
/// **Phases**: awaitingPublicKey → (awaitingPasskey →) awaitingConfirm → awaitingRandom (→ awaitingConfirm, in rounds)
/// (→ awaitingComparison) → awaitingCheck → encryption. What arrives while the user is asked waits in the phase.
struct SecureConnectionsPairing: Sendable {
  enum Step: Sendable {
    case awaitingPublicKey
    case awaitingPasskey(ECDHKeys, peersConfirm: UInt128?)
    /// Passkey Entry: the initiator has committed itself to the round's number.
    case awaitingConfirm(ECDHKeys, PasskeyRound?, own: Commitment?)
    /// With our own number; the peer's confirm value if it has sent one.
    case awaitingRandom(ECDHKeys, PasskeyRound?, own: UInt128, peersConfirm: UInt128?)
    case awaitingComparison(CheckKeys, peersCheck: UInt128?)
    case awaitingCheck(CheckKeys)
  }
  let agreement: Agreement
  let keyPair: P256KeyPair
  var step: Step
}
/// The result of the exchange of public keys.
struct ECDHKeys: Sendable {
  let own: UInt256
  let peers: UInt256
  let dhKey: DHKey
  let usesDebugKey: Bool
}
/// One of twenty rounds: each shows one bit of the passkey, the least significant first. §2.3.5.6.3.
struct PasskeyRound: Sendable {
  let passkey: UInt32
  var index = 0
  static var count: Int { 20 }
  /// rai: 0x80 or 0x81.
  var bit: UInt8 { 0x80 | UInt8(passkey >> index & 1) }
}
/// The result of stage 1: all that stage 2 needs.
struct CheckKeys: Sendable {
  let macKey: SecurityKey
  let ltk: LinkKey
  let ownNonce: UInt128
  let peersNonce: UInt128
  /// r of the check value that we send, and of the one that we expect. §2.3.5.6.5.
  let ownR: UInt128
  let peersR: UInt128
}

extension SecurityManager {
  mutating func beginSecureConnections(
    _ agreement: Agreement, _ now: Instant, _ chance: inout some RandomNumberGenerator
  ) {
    let settings = agreement.settings
    let keyPair = settings.ownData?.keyPair ?? (settings.usesDebugKey ? .debug : P256KeyPair(using: &chance))
    enter(
      .secureConnections(SecureConnectionsPairing(agreement: agreement, keyPair: keyPair, step: .awaitingPublicKey)))
    if role == .initiator { send(.pairingPublicKey(PairingPublicKey(keyPair.publicKey)), now) }
  }

  mutating func receive(
    _ message: SMPPDU, in pairing: SecureConnectionsPairing, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    var pairing = pairing
    switch (message, pairing.step) {
    case (.pairingPublicKey(let message), .awaitingPublicKey):
      receive(P256PublicKey(x: message.publicKeyX, y: message.publicKeyY), pairing, now, &chance)

    case (.pairingConfirm(let message), .awaitingPasskey(let keys, peersConfirm: nil)) where role == .responder:
      pairing.step = .awaitingPasskey(keys, peersConfirm: message.confirmValue)
      enter(.secureConnections(pairing))
    case (.pairingConfirm(let message), .awaitingConfirm(let keys, let round, let own)):
      let peersConfirm = message.confirmValue
      switch role {
      case .initiator:
        // Our own value comes from somebody who sends back what we send (CVE-2020-26558).
        guard peersConfirm != own?.confirm else { return fail(.confirmValueFailed, now) }
        let nonce = own?.random ?? .random(using: &chance)
        send(.pairingRandom(PairingRandom(nonce)), now)
        pairing.step = .awaitingRandom(keys, round, own: nonce, peersConfirm: peersConfirm)
      case .responder:
        let own = commit(keys, round, &chance)
        send(.pairingConfirm(PairingConfirm(own.confirm)), now)
        pairing.step = .awaitingRandom(keys, round, own: own.random, peersConfirm: peersConfirm)
      }
      enter(.secureConnections(pairing))

    case (.pairingRandom(let message), .awaitingRandom(let keys, let round, let own, let peersConfirm)):
      let nonce = message.randomValue
      if let peersConfirm {
        guard f4(keys.peers, keys.own, nonce, round?.bit ?? 0) == peersConfirm
        else { return fail(.confirmValueFailed, now) }
      }
      // Our own number comes from somebody who sends back what we send.
      guard nonce != own else { return fail(.confirmValueFailed, now) }
      if role == .responder { send(.pairingRandom(PairingRandom(own)), now) }
      finishRound(pairing, keys, round, own, nonce, now, &chance)

    case (.pairingDHKeyCheck(let message), .awaitingComparison(let keys, peersCheck: nil)) where role == .responder:
      pairing.step = .awaitingComparison(keys, peersCheck: message.dhKeyCheck)
      enter(.secureConnections(pairing))
    case (.pairingDHKeyCheck(let message), .awaitingCheck(let keys)):
      receive(check: message.dhKeyCheck, pairing.agreement, keys, now)

    case (.pairingKeypressNotification(let message), _) where pairing.agreement.notifiesKeypresses:
      show(message.notificationType, pairing.agreement, now)
    case (_, .awaitingPublicKey), (_, .awaitingPasskey), (_, .awaitingConfirm), (_, .awaitingRandom),
      (_, .awaitingComparison), (_, .awaitingCheck):
      unexpected(message.code, now)
    }
  }

  // MARK: Public keys

  private mutating func receive(
    _ key: P256PublicKey, _ pairing: SecureConnectionsPairing, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    var pairing = pairing
    let agreement = pairing.agreement, settings = agreement.settings, own = pairing.keyPair.publicKey
    let debug = P256KeyPair.debug.publicKey
    if key.x == debug.x {
      guard settings.acceptsDebugKey else { return fail(.authenticationRequirements, now) }
    } else if key.x == own.x {
      // Our own key comes from somebody who sends back what we send (CVE-2020-26558).
      return fail(.dhKeyCheckFailed, now)
    }
    let dhKey: DHKey
    do throws(InvalidPublicKey) { dhKey = try pairing.keyPair.dhKey(with: key) } catch {
      return fail(.dhKeyCheckFailed, now)
    }
    if role == .responder { send(.pairingPublicKey(PairingPublicKey(own)), now) }
    let keys = ECDHKeys(
      own: own.x, peers: key.x, dhKey: dhKey, usesDebugKey: [own.x, key.x].contains(debug.x))

    switch (agreement.method, agreement.entersPasskey) {
    case (.outOfBand, _):
      // What came out of band belongs to this key. §2.3.5.6.4.
      if case .secureConnections(let confirm, let random) = settings.peersData {
        guard f4(key.x, key.x, random.number, 0) == confirm else { return fail(.confirmValueFailed, now) }
      }
      let nonce = UInt128.random(using: &chance)
      if role == .initiator { send(.pairingRandom(PairingRandom(nonce)), now) }
      pairing.step = .awaitingRandom(keys, nil, own: nonce, peersConfirm: nil)
    case (_, true?):
      pairing.step = .awaitingPasskey(keys, peersConfirm: nil)
      emit(.requestPasskey)
    case (_, false?):
      let passkey = UInt32.random(in: 0..<1_000_000, using: &chance)
      emit(.displayPasskey(passkey))
      return beginRounds(pairing, keys, passkey, peersConfirm: nil, now, &chance)
    case (_, nil) where role == .initiator: pairing.step = .awaitingConfirm(keys, nil, own: nil)
    case (_, nil):
      let commitment = commit(keys, nil, &chance)
      send(.pairingConfirm(PairingConfirm(commitment.confirm)), now)
      pairing.step = .awaitingRandom(keys, nil, own: commitment.random, peersConfirm: nil)
    }
    enter(.secureConnections(pairing))
  }

  // MARK: Stage 1

  private func commit(
    _ keys: ECDHKeys, _ round: PasskeyRound?, _ chance: inout some RandomNumberGenerator
  ) -> Commitment {
    let random = UInt128.random(using: &chance)
    return Commitment(random: random, confirm: f4(keys.own, keys.peers, random, round?.bit ?? 0))
  }
  /// The passkey is known: the initiator begins the first round.
  mutating func beginRounds(
    _ pairing: SecureConnectionsPairing, _ keys: ECDHKeys, _ passkey: UInt32, peersConfirm: UInt128?, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    begin(PasskeyRound(passkey: passkey), pairing, keys, peersConfirm: peersConfirm, now, &chance)
  }
  private mutating func begin(
    _ round: PasskeyRound, _ pairing: SecureConnectionsPairing, _ keys: ECDHKeys, peersConfirm: UInt128?,
    _ now: Instant, _ chance: inout some RandomNumberGenerator
  ) {
    var pairing = pairing
    pairing.step = .awaitingConfirm(keys, round, own: nil)
    if role == .initiator || peersConfirm != nil {
      let own = commit(keys, round, &chance)
      send(.pairingConfirm(PairingConfirm(own.confirm)), now)
      pairing.step =
        if let peersConfirm {
          .awaitingRandom(keys, round, own: own.random, peersConfirm: peersConfirm)
        } else {
          .awaitingConfirm(keys, round, own: own)
        }
    }
    enter(.secureConnections(pairing))
  }
  /// Both random numbers are known: the next round, or the keys.
  private mutating func finishRound(
    _ pairing: SecureConnectionsPairing, _ keys: ECDHKeys, _ round: PasskeyRound?, _ own: UInt128, _ peers: UInt128,
    _ now: Instant, _ chance: inout some RandomNumberGenerator
  ) {
    if var next = round, next.index + 1 < PasskeyRound.count {
      next.index += 1
      return begin(next, pairing, keys, peersConfirm: nil, now, &chance)
    }
    let (na, nb) = role == .initiator ? (own, peers) : (peers, own)
    let derived = f5(keys.dhKey, na, nb, addresses.initiator.number, addresses.responder.number)
    let agreement = pairing.agreement
    let r = rValues(agreement, round)
    let checks = CheckKeys(
      macKey: derived.macKey,
      ltk: LinkKey(key: derived.ltk.reduced(to: agreement.keySize.count), usesDebugKey: keys.usesDebugKey),
      ownNonce: own, peersNonce: peers, ownR: r.own, peersR: r.peers)
    guard agreement.method == .numericComparison else {
      return beginChecks(pairing, checks, peersCheck: nil, now)
    }
    let (ka, kb) = role == .initiator ? (keys.own, keys.peers) : (keys.peers, keys.own)
    var pairing = pairing
    pairing.step = .awaitingComparison(checks, peersCheck: nil)
    enter(.secureConnections(pairing))
    emit(.compareNumbers(g2(ka, kb, na, nb) % 1_000_000))
  }
  /// r of the check value that we send and of the peer's: the passkey, or the random number that the receiver of the
  /// check has given the sender out of band, else 0. §2.3.5.6.2 – §2.3.5.6.5.
  private func rValues(_ agreement: Agreement, _ round: PasskeyRound?) -> (own: UInt128, peers: UInt128) {
    if let round { return (UInt128(round.passkey), UInt128(round.passkey)) }
    guard agreement.method == .outOfBand else { return (0, 0) }
    let peersFlag = (role == .initiator ? agreement.response : agreement.request).oobDataFlag
    let own: UInt128 =
      if case .secureConnections(_, let random) = agreement.settings.peersData { random.number } else { 0 }
    return (own, peersFlag == .present ? agreement.settings.ownData?.random.number ?? 0 : 0)
  }

  // MARK: Stage 2

  /// Both public keys are those of the devices: the initiator sends its check value first.
  mutating func beginChecks(
    _ pairing: SecureConnectionsPairing, _ keys: CheckKeys, peersCheck: UInt128?, _ now: Instant
  ) {
    var pairing = pairing
    pairing.step = .awaitingCheck(keys)
    enter(.secureConnections(pairing))
    if role == .initiator {
      send(.pairingDHKeyCheck(PairingDHKeyCheck(check(pairing.agreement, keys, ofOurs: true))), now)
    }
    if let peersCheck { receive(check: peersCheck, pairing.agreement, keys, now) }
  }
  private func check(_ agreement: Agreement, _ keys: CheckKeys, ofOurs: Bool) -> UInt128 {
    let isInitiators = ofOurs == (role == .initiator)
    let features = isInitiators ? agreement.request : agreement.response
    let (from, to) = (addresses.initiator.number, addresses.responder.number)
    return f6(
      keys.macKey, ofOurs ? keys.ownNonce : keys.peersNonce, ofOurs ? keys.peersNonce : keys.ownNonce,
      ofOurs ? keys.ownR : keys.peersR, features.ioCap, isInitiators ? from : to, isInitiators ? to : from)
  }
  private mutating func receive(check value: UInt128, _ agreement: Agreement, _ keys: CheckKeys, _ now: Instant) {
    guard value == check(agreement, keys, ofOurs: false) else { return fail(.dhKeyCheckFailed, now) }
    if role == .responder { send(.pairingDHKeyCheck(PairingDHKeyCheck(check(agreement, keys, ofOurs: true))), now) }
    encrypt(agreement, with: keys.ltk)
  }
}
