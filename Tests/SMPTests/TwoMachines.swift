import BindruneToolbox
import BindruneWire
import BindruneSMP
import TestSupport

/// An initiator and a responder with a wire and virtual time between them, users who do as they are asked, and
/// controllers that encrypt if both have the same key.
final class TwoMachines {
  static var addresses: PairingAddresses {
    PairingAddresses(
      initiator: PairingAddress(DeviceAddress(0xC000_5E00_5301), isRandom: true),
      responder: PairingAddress(DeviceAddress(0x0000_5E00_5302), isRandom: false))
  }
  var initiator: SecurityManager
  var responder: SecurityManager
  var chance: SplitMix64
  var now = Instant.zero
  /// All effects, in order.
  var effects: [(role: PairingRole, effect: SecurityEffect)] = []
  /// All PDUs that have been sent.
  var sent: [(role: PairingRole, octets: [UInt8])] = []
  /// What becomes of a PDU on its way, by its number; `nil` loses it.
  var carry: (_ number: Int, _ from: PairingRole, _ octets: [UInt8]) -> [UInt8]? = { _, _, octets in octets }
  /// What becomes of the effect, before the users and controllers act on it; false: they do nothing.
  var attend: (_ role: PairingRole, _ effect: SecurityEffect) -> Bool = { _, _ in true }
  /// Stops before the PDU of this number.
  var stop = Int.max

  private var displayed: UInt32?
  private var asked: [PairingRole] = []
  private var keyOfLink: SecurityKey?

  init(_ initiator: PairingSettings, _ responder: PairingSettings, seed: UInt64 = 1) {
    self.initiator = SecurityManager(role: .initiator, addresses: Self.addresses, settings: initiator)
    self.responder = SecurityManager(role: .responder, addresses: Self.addresses, settings: responder)
    chance = SplitMix64(seed: seed)
  }

  func pair() throws {
    try initiator.pair(now: now)
    run()
  }

  /// Until nothing moves.
  func run() {
    while true {
      if takeEffect(.initiator) || takeEffect(.responder) || enterPasskeys() { continue }
      if sent.count < stop, carryPDU(.initiator) || carryPDU(.responder) { continue }
      return
    }
  }
  /// 30 s without a PDU: both give up.
  func expire() {
    while let next = [initiator.deadline, responder.deadline].compactMap({ $0 }).min() {
      now = next
      initiator.expire(now: now)
      responder.expire(now: now)
      run()
    }
  }
  func disconnect() {
    initiator.linkClosed(now: now)
    responder.linkClosed(now: now)
    run()
  }

  private func takeEffect(_ role: PairingRole) -> Bool {
    guard let effect = role == .initiator ? initiator.nextEffect() : responder.nextEffect() else { return false }
    effects.append((role, effect))
    guard attend(role, effect) else { return true }
    switch effect {
    case .requestConsent, .considerIdentity:
      if role == .initiator {
        _ = initiator.accept(now: now, using: &chance)
      } else {
        _ = responder.accept(now: now, using: &chance)
      }
    case .displayPasskey(let passkey): displayed = passkey
    case .requestPasskey: asked.append(role)
    case .compareNumbers:
      if role == .initiator { _ = initiator.confirmNumbers(now: now) } else { _ = responder.confirmNumbers(now: now) }
    case .considerSecurityRequest: try? initiator.pair(now: now)
    case .encrypt(let key):
      let isEncrypted = responder.key(ediv: 0, rand: 0) == key
      if isEncrypted { keyOfLink = key }
      initiator.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance)
      responder.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance)
    case .showKeypress, .completed, .failed, .resumed, .report: break
    }
    return true
  }
  /// Users who are both asked agree on a passkey.
  private func enterPasskeys() -> Bool {
    guard let passkey = displayed ?? (asked.count == 2 ? 123_456 : nil), let role = asked.popLast() else {
      return false
    }
    displayed = passkey
    if role == .initiator {
      _ = initiator.enter(passkey: passkey, now: now, using: &chance)
    } else {
      _ = responder.enter(passkey: passkey, now: now, using: &chance)
    }
    return true
  }
  private func carryPDU(_ from: PairingRole) -> Bool {
    guard let pdu = from == .initiator ? initiator.takePDU(now) : responder.takePDU(now) else { return false }
    sent.append((from, pdu))
    guard let pdu = carry(sent.count - 1, from, pdu) else { return true }
    if from == .initiator {
      responder.receive(pdu.span, now: now, using: &chance)
    } else {
      initiator.receive(pdu.span, now: now, using: &chance)
    }
    return true
  }

  // MARK: The machine of a role

  func tell<Result>(_ role: PairingRole, _ body: (inout SecurityManager) throws -> Result) rethrows -> Result {
    role == .initiator ? try body(&initiator) : try body(&responder)
  }
  func enter(_ passkey: UInt32, _ role: PairingRole) -> Bool {
    tell(role) { $0.enter(passkey: passkey, now: now, using: &chance) }
  }
  func notify(_ key: KeypressNotificationType, _ role: PairingRole) -> Bool { tell(role) { $0.notify(key, now: now) } }
  func refuse(_ role: PairingRole) -> Bool { tell(role) { $0.refuse(now: now) } }
  func receive(_ pdu: [UInt8], _ role: PairingRole) {
    tell(role) { $0.receive(pdu.span, now: now, using: &chance) }
  }
  func encryptionChanged(_ isEncrypted: Bool, _ role: PairingRole) {
    tell(role) { $0.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance) }
  }
  func takePDU(_ role: PairingRole) -> [UInt8]? { tell(role) { $0.takePDU(now) } }
  func takeEffects(_ role: PairingRole) -> [SecurityEffect] { tell(role) { $0.takeEffects() } }
  func isPairing(_ role: PairingRole) -> Bool { tell(role) { $0.isPairing } }
  func deadline(_ role: PairingRole) -> Instant? { tell(role) { $0.deadline } }
  func key(_ role: PairingRole, ediv: UInt16 = 0, rand: UInt64 = 0) -> SecurityKey? {
    tell(role) { $0.key(ediv: ediv, rand: rand) }
  }

  // MARK: What has happened

  func ends(_ role: PairingRole) -> [SecurityEffect] {
    effects.filter { $0.role == role && $0.effect.isEnd }.map(\.effect)
  }
  func failure(_ role: PairingRole) -> PairingError? {
    ends(role).compactMap { if case .failed(let error) = $0 { error } else { nil } }.last
  }
  func result(_ role: PairingRole) -> PairingResult? {
    ends(role).compactMap { if case .completed(let result) = $0 { result } else { nil } }.last
  }
  var codes: [SMPCode] { sent.map { SMPCode(rawValue: $0.octets[0]) } }
  /// The key that has encrypted the link.
  var linkKey: SecurityKey? { keyOfLink }
}

extension SecurityEffect {
  var isEnd: Bool {
    switch self {
    case .completed, .failed, .resumed: true
    default: false
    }
  }
}
extension SecurityManager {
  mutating func takePDU(_ now: Instant) -> [UInt8]? {
    var buffer = PacketBuffer(capacity: 80)
    var isThere = false
    _ = buffer.fill { output in
      isThere = nextPDU(into: &output, now: now)
      return isThere
    }
    return isThere ? buffer.bytes : nil
  }
  mutating func takeEffects() -> [SecurityEffect] {
    var taken: [SecurityEffect] = []
    while let effect = nextEffect() { taken.append(effect) }
    return taken
  }
}

extension PairingSettings {
  /// Settings that distribute everything.
  static func all(
    _ io: IOCapability = .noInputNoOutput, sc: SecureConnections = .supported, _ protection: Protection = .notNeeded,
    identity: UInt64 = 1
  ) -> PairingSettings {
    var settings = PairingSettings()
    settings.ioCapability = io
    settings.secureConnections = sc
    settings.protection = protection
    settings.distributes = [.encKey, .idKey, .signKey]
    settings.requests = [.encKey, .idKey, .signKey]
    settings.identity = PairingIdentity(
      irk: SecurityKey(UInt128(identity) << 100 | 7),
      address: PairingAddress(DeviceAddress(0xC000_0000_0000 | identity), isRandom: true))
    return settings
  }
}

/// The ways to pair: the least that makes each.
enum Way: CaseIterable, Sendable {
  case legacyJustWorks, legacyPasskey, legacyPasskeyFromInitiator, legacyOutOfBand
  case justWorks, numericComparison, passkeyFromInitiator, passkeyFromResponder, passkeyByBoth, outOfBand

  var method: PairingMethod {
    switch self {
    case .legacyJustWorks, .justWorks: .justWorks
    case .legacyPasskey, .passkeyFromResponder: .passkeyEntry(.responderDisplays)
    case .legacyPasskeyFromInitiator, .passkeyFromInitiator: .passkeyEntry(.initiatorDisplays)
    case .passkeyByBoth: .passkeyEntry(.bothEnter)
    case .numericComparison: .numericComparison
    case .legacyOutOfBand, .outOfBand: .outOfBand
    }
  }
  var isSecureConnections: Bool {
    switch self {
    case .legacyJustWorks, .legacyPasskey, .legacyPasskeyFromInitiator, .legacyOutOfBand: false
    default: true
    }
  }
  var settings: (initiator: PairingSettings, responder: PairingSettings) {
    let sc: PairingSettings.SecureConnections = isSecureConnections ? .supported : .off
    let (i, r): (IOCapability, IOCapability) =
      switch method {
      case .justWorks, .outOfBand: (.noInputNoOutput, .noInputNoOutput)
      case .numericComparison: (.displayYesNo, .displayYesNo)
      case .passkeyEntry(.initiatorDisplays): (.displayOnly, .keyboardOnly)
      case .passkeyEntry(.responderDisplays): (.keyboardOnly, .displayOnly)
      case .passkeyEntry(.bothEnter): (.keyboardOnly, .keyboardOnly)
      }
    var initiator = PairingSettings.all(i, sc: sc, .wanted, identity: 1)
    var responder = PairingSettings.all(r, sc: sc, .wanted, identity: 2)
    if self == .legacyOutOfBand {
      initiator.peersData = .legacy(SecurityKey(0xABCD))
      responder.peersData = .legacy(SecurityKey(0xABCD))
    }
    if self == .outOfBand {
      var chance = SplitMix64(seed: 99)
      let (a, b) = (OwnOutOfBandData(using: &chance), OwnOutOfBandData(using: &chance))
      (initiator.ownData, initiator.peersData) = (a, b.forPeer)
      (responder.ownData, responder.peersData) = (b, a.forPeer)
    }
    return (initiator, responder)
  }
  func machines(seed: UInt64 = 1) -> TwoMachines { TwoMachines(settings.initiator, settings.responder, seed: seed) }
}
