import BindruneToolbox
import BindruneWire

/// # LegacyPairing
/// **Overview**: phase 2 of LE legacy pairing: a short term key from a temporary key of 0, six digits or 128 bits out
/// of band. Vol 3, Part H, §2.3.5.2 – §2.3.5.5.
///
/// **Function**: each commits itself to a random number by a confirm value before it learns the other's number. The
/// first to commit, the initiator, is also the first to reveal.
///
///     initiator                      responder
///       confirm ───────────────────────►
///         ◄─────────────────────── confirm
///       random ────────────────────────►  checks
///         ◄──────────────────────── random
///       checks
///
/// **Phases**: awaitingPasskey (the user's) → awaitingConfirm → awaitingRandom → encryption. A responder's user may
/// still be entering when the confirm value arrives: it waits in the phase.
struct LegacyPairing: Sendable {
  enum Step: Sendable {
    case awaitingPasskey(peersConfirm: UInt128?)
    /// An initiator has committed itself.
    case awaitingConfirm(tk: SecurityKey, own: Commitment?)
    case awaitingRandom(tk: SecurityKey, own: Commitment, peersConfirm: UInt128)
  }
  let agreement: Agreement
  var step: Step
}
/// A random number, and the confirm value that has been sent for it.
struct Commitment: Sendable {
  let random: UInt128
  let confirm: UInt128
}

extension SecurityManager {
  mutating func beginLegacy(_ agreement: Agreement, _ now: Instant, _ chance: inout some RandomNumberGenerator) {
    switch (agreement.entersPasskey, agreement.settings.peersData) {
    case (true, _):
      enter(.legacy(LegacyPairing(agreement: agreement, step: .awaitingPasskey(peersConfirm: nil))))
      emit(.requestPasskey)
    case (false, _):
      let passkey = UInt32.random(in: 0..<1_000_000, using: &chance)
      emit(.displayPasskey(passkey))
      confirmLegacy(agreement, SecurityKey(UInt128(passkey)), peersConfirm: nil, now, &chance)
    case (nil, .legacy(let tk)) where agreement.method == .outOfBand:
      confirmLegacy(agreement, tk, peersConfirm: nil, now, &chance)
    case (nil, _): confirmLegacy(agreement, SecurityKey(0), peersConfirm: nil, now, &chance)
    }
  }

  /// The temporary key is known: the initiator commits itself, the responder when the initiator has.
  mutating func confirmLegacy(
    _ agreement: Agreement, _ tk: SecurityKey, peersConfirm: UInt128?, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    var pairing = LegacyPairing(agreement: agreement, step: .awaitingConfirm(tk: tk, own: nil))
    if role == .initiator || peersConfirm != nil {
      let random = UInt128.random(using: &chance)
      let own = Commitment(random: random, confirm: confirm(agreement, tk, random))
      send(.pairingConfirm(PairingConfirm(own.confirm)), now)
      pairing.step =
        if let peersConfirm {
          .awaitingRandom(tk: tk, own: own, peersConfirm: peersConfirm)
        } else {
          .awaitingConfirm(tk: tk, own: own)
        }
    }
    enter(.legacy(pairing))
  }
  private func confirm(_ agreement: Agreement, _ tk: SecurityKey, _ random: UInt128) -> UInt128 {
    let (initiator, responder) = (addresses.initiator, addresses.responder)
    return c1(
      tk, random, preq: agreement.request.number(.pairingRequest), pres: agreement.response.number(.pairingResponse),
      iat: initiator.isRandom ? 1 : 0, rat: responder.isRandom ? 1 : 0, ia: initiator.address.value,
      ra: responder.address.value)
  }

  mutating func receive(
    _ message: SMPPDU, in pairing: LegacyPairing, _ now: Instant,
    _ chance: inout some RandomNumberGenerator
  ) {
    var pairing = pairing
    let agreement = pairing.agreement
    switch (message, pairing.step) {
    case (.pairingConfirm(let message), .awaitingPasskey(peersConfirm: nil)) where role == .responder:
      pairing.step = .awaitingPasskey(peersConfirm: message.confirmValue)
      enter(.legacy(pairing))
    case (.pairingConfirm(let message), .awaitingConfirm(let tk, let own)):
      let peersConfirm = message.confirmValue
      guard let own else { return confirmLegacy(agreement, tk, peersConfirm: peersConfirm, now, &chance) }
      // Our own value comes from somebody who sends back what we send (CVE-2020-26558): §2.3.5.5.
      guard peersConfirm != own.confirm else { return fail(.confirmValueFailed, now) }
      pairing.step = .awaitingRandom(tk: tk, own: own, peersConfirm: peersConfirm)
      send(.pairingRandom(PairingRandom(own.random)), now)
      enter(.legacy(pairing))
    case (.pairingRandom(let message), .awaitingRandom(let tk, let own, let peersConfirm)):
      let random = message.randomValue
      guard confirm(agreement, tk, random) == peersConfirm else { return fail(.confirmValueFailed, now) }
      if role == .responder { send(.pairingRandom(PairingRandom(own.random)), now) }
      let (initiators, responders) = role == .initiator ? (own.random, random) : (random, own.random)
      let stk = s1(tk, responders, initiators).reduced(to: agreement.keySize.count)
      encrypt(agreement, with: LinkKey(key: stk, usesDebugKey: false))
    case (.pairingKeypressNotification(let message), _) where agreement.notifiesKeypresses:
      show(message.notificationType, agreement, now)
    case (_, .awaitingPasskey), (_, .awaitingConfirm), (_, .awaitingRandom): unexpected(message.code, now)
    }
  }
  /// The device that displays the passkey shows what is entered on the other.
  mutating func show(_ key: KeypressNotificationType, _ agreement: Agreement, _ now: Instant) {
    guard let entersPasskey = agreement.entersPasskey else { return unexpected(.pairingKeypressNotification, now) }
    guard key.name != nil else { return fail(.invalidParameters, now) }
    if !entersPasskey { emit(.showKeypress(key)) }
  }
}
