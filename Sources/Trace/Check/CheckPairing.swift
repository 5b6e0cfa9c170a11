import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneSMP

/// # CheckPairing
/// **Overview**: the pairing of a connection, for ``Checker``. Vol 3, Part H.
///
/// **Function**: the features of both devices decide the method (§2.3.5.1), and the method the order of phase 2; in
/// every method each PDU has one predecessor, so that one number says how far a pairing is. What two devices send at
/// the same time may cross: a Security Request meets a Pairing Request, and PDUs meet a Pairing Failed. Only a PDU that
/// its sender had no right to send, whatever it had received by then, breaks the order.
///
/// **Phases**: unknown; idle → requested → exchanging → distributing, which lasts until the next Pairing Request. After
/// a breach of the order the phase is unknown, so that one mistake has one finding.
struct CheckPairing {
  private enum Phase {
    /// The trace began in the middle, or lacks a PDU.
    case unknown
    case idle
    /// A Pairing Request awaits its response.
    case requested(PairingFeatures)
    /// Phase 2: the number of its PDUs so far.
    case exchanging(Agreement, Int)
    /// Phase 3, and what follows it.
    case distributing(Distribution)
  }
  enum Method {
    case legacy(isPasskey: Bool)
    /// LE Secure Connections; Just Works and Numeric Comparison have the same PDUs.
    case comparison, passkey, outOfBand
    /// Keypress Notifications belong to it.
    var isPasskey: Bool {
      switch self {
      case .legacy(let isPasskey): isPasskey
      case .passkey: true
      case .comparison, .outOfBand: false
      }
    }
  }
  /// What both devices want, and what the later PDUs are judged by.
  private struct Agreement {
    var method: Method
    /// In octets: the lesser of both maximums. §2.3.4.
    var keySize: Int
    /// The keys that each side distributes.
    var initiatorKeys: KeyDistribution
    var responderKeys: KeyDistribution
    /// X of the public keys, and the Confirm that the next Random opens.
    var initiatorX = UInt256(low: 0)
    var responderX = UInt256(low: 0)
    var initiatorConfirm: UInt128 = 0
    var responderConfirm: UInt128 = 0
  }
  /// Phase 3: the PDUs of each side that are still due, a bit for each code from Encryption Information on.
  private struct Distribution {
    var initiatorDue: UInt8
    var responderDue: UInt8
    /// All that each side may send.
    var initiatorAll: UInt8
    var responderAll: UInt8
    /// The host has started the encryption, or given the key for it.
    var isEncrypting = false
    /// Of the key that phase 2 has made.
    let keySize: Int, isLegacy: Bool

    init(_ agreement: Agreement) {
      keySize = agreement.keySize
      if case .legacy = agreement.method { isLegacy = true } else { isLegacy = false }
      (initiatorAll, responderAll) = (Self.pdus(agreement.initiatorKeys), Self.pdus(agreement.responderKeys))
      (initiatorDue, responderDue) = (initiatorAll, responderAll)
    }
    private static func pdus(_ keys: KeyDistribution) -> UInt8 {
      var pdus: UInt8 = 0
      if keys.contains(.encKey) { pdus |= bit(.encryptionInformation) | bit(.centralIdentification) }
      if keys.contains(.idKey) { pdus |= bit(.identityInformation) | bit(.identityAddressInformation) }
      if keys.contains(.signKey) { pdus |= bit(.signingInformation) }
      return pdus
    }
    static func bit(_ code: SMPCode) -> UInt8 { 1 << (code.rawValue - SMPCode.encryptionInformation.rawValue) }
    /// The PDU of the lowest bit of `due`, which is not 0.
    static func first(_ due: UInt8) -> SMPCode {
      SMPCode(rawValue: SMPCode.encryptionInformation.rawValue + UInt8(due.trailingZeroBitCount))
    }
    static func isKey(_ code: SMPCode) -> Bool {
      switch code {
      case .encryptionInformation, .centralIdentification, .identityInformation, .identityAddressInformation,
        .signingInformation:
        true
      default: false
      }
    }
  }

  /// Phase 2 of a pairing has ended in this connection, so encryption with the new key may follow.
  private(set) var isAfterPhase2 = false
  private var phase: Phase?
  /// In octets, of the key that the latest pairing has made.
  var agreedKeySize: Int? {
    if case .distributing(let distribution) = phase, !hostFailed, !peerFailed { distribution.keySize } else { nil }
  }
  /// The next encryption uses the key that a pairing of this connection has made, and that EDIV and Rand do not name:
  /// the Long Term Key of LE Secure Connections, or a Short Term Key. §2.4.4.
  var hasUnnamedKey: Bool {
    guard case .distributing(let distribution) = phase, !hostFailed, !peerFailed else { return false }
    return !distribution.isLegacy || !distribution.isEncrypting
  }
  /// Who sent the latest Pairing Request.
  private var initiator = HCIDirection.fromHost
  /// Who has sent Pairing Failed since.
  private var hostFailed = false
  private var peerFailed = false
  /// When the latest PDU was seen, and the longest pause of the pairing in milliseconds: it ends the host's timer for
  /// good.
  private var latest: Int64 = 0
  private var longestPause: Int64 = 0

  /// A PDU is not known: what follows cannot be judged until a pairing begins.
  mutating func lose() { phase = .unknown }

  mutating func receive(
    _ direction: HCIDirection, _ payload: Span<UInt8>, isCentral: Bool?, isEncrypted: Bool?, isFromStart: Bool,
    _ report: inout CheckReport
  ) {
    if phase == nil { phase = isFromStart ? .idle : .unknown }
    let sender = direction.sender
    guard !payload.isEmpty else {
      report.judge(.pairingLength, false, by: sender, seen: "a PDU of 0 octets", allowed: "a code and its parameters")
      return lose()
    }
    let number = SMPCode(rawValue: payload[0])
    report.subject = .pairing(number)
    // A receiver ignores a reserved code, so the pairing continues behind it: §3.3.
    guard let length = Self.length(number) else {
      return report.judge(
        .pairingCode, false, by: sender, seen: "code \(code(number.rawValue))", allowed: "0x01 to 0x0E")
    }
    report.judge(.pairingCode, true, by: sender, seen: "", allowed: "")
    report.judge(
      .pairingLength, payload.count == length, by: sender, seen: "\(name(number)) of \(payload.count) octets",
      allowed: "\(length) octets")
    guard payload.count == length else { return lose() }
    if let isCentral, [.pairingRequest, .pairingResponse, .securityRequest].contains(number) {
      let belongs = isCentral == (number == .pairingRequest)
      report.judge(
        .pairingRoles, belongs, by: sender, seen: "\(name(number)) from the \(isCentral ? "Central" : "Peripheral")",
        allowed: "it from the \(isCentral ? "Peripheral" : "Central")")
      guard belongs else { return lose() }
    }
    guard isInTime(number, direction, &report) else { return lose() }
    switch number {
    case .pairingRequest: request(direction, payload, &report)
    case .pairingFailed: failed(direction, payload, &report)
    case .securityRequest: securityRequest(direction, &report)
    default:
      if number == .identityAddressInformation { identityAddress(direction, payload, &report) }
      if number == .pairingPublicKey { publicKey(direction, payload, &report) }
      guard isDue(number, direction, &report) else { return }
      take(number, direction, payload, isEncrypted, &report)
    }
  }

  /// The host asks for encryption of the connection.
  mutating func encryptionStarts(_ report: inout CheckReport) {
    switch phase {
    case nil, .unknown: return
    case .requested, .exchanging:
      // The Central starts encryption; a host that is Peripheral only gives the key.
      report.judge(
        .encryptionAfterPairing, hostFailed || peerFailed, by: initiator.sender,
        seen: "encryption starts within a pairing", allowed: "it after the last PDU of phase 2")
    case .idle, .distributing:
      report.judge(.encryptionAfterPairing, true, by: initiator.sender, seen: "", allowed: "")
      if case .distributing(var distribution) = phase {
        distribution.isEncrypting = true
        phase = .distributing(distribution)
      }
    }
  }

  // MARK: PDUs at any time

  private mutating func request(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    let hasFailed = hostFailed || peerFailed
    var isInterrupted = false
    switch phase {
    case .requested, .exchanging:
      if !hasFailed {
        report.judge(
          .pairingOrder, false, by: direction.sender, seen: "\(name(.pairingRequest)) within a pairing",
          allowed: expected)
      }
      // The initiator gave up while the responder had to send: that PDU may still be on its way, and is not the answer.
      isInterrupted = hasFailed && (initiator == .fromHost ? !peerFailed : !hostFailed) && isResponderDue
    case .idle, .distributing: report.judge(.pairingOrder, true, by: direction.sender, seen: "", allowed: "")
    case nil, .unknown: break
    }
    if hasFailed { report.judge(.pairingAfterFailure, true, by: direction.sender, seen: "", allowed: "") }
    (hostFailed, peerFailed, longestPause, initiator) = (false, false, 0, direction)
    let features = features(direction, payload, &report)
    phase = isInterrupted ? .unknown : features.map { .requested($0) } ?? .unknown
  }

  private mutating func failed(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    report.judge(
      .pairingFailureReason, (0x01...0x10).contains(payload[1]), by: direction.sender,
      seen: "reason \(code(payload[1]))", allowed: "0x01 to 0x10")
    if direction == .fromHost { hostFailed = true } else { peerFailed = true }
  }

  /// A Peripheral that has not yet received the Pairing Request may ask for one; when it has answered, it may not.
  /// §2.4.6.
  private mutating func securityRequest(_ direction: HCIDirection, _ report: inout CheckReport) {
    let hasFailed = hostFailed || peerFailed
    if hasFailed { report.judge(.pairingAfterFailure, true, by: direction.sender, seen: "", allowed: "") }
    switch phase {
    case .requested where direction == initiator, .exchanging:
      report.judge(
        .pairingOrder, hasFailed, by: direction.sender, seen: "\(name(.securityRequest)) within a pairing",
        allowed: expected)
    case .idle, .requested, .distributing:
      report.judge(.pairingOrder, true, by: direction.sender, seen: "", allowed: "")
    case nil, .unknown: break
    }
  }

  /// The fields of a Pairing Request or Response; nil, and judged: one of them has a reserved value. §3.5.1.
  private func features(
    _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) -> PairingFeatures? {
    var features = try? WireDecoder.decode(PairingFeatures.self, payload, from: 1)
    if let found = features, !IOCapability.all.contains(found.ioCapability) { features = nil }
    report.judge(
      .pairingValues, features != nil, by: direction.sender,
      seen: "IO Capability \(payload[1]), OOB Data Flag \(payload[2]), key size \(payload[4])",
      allowed: "0 to 4, 0 or 1, 7 to 16")
    return features
  }

  /// Whether a PDU continues its pairing within the Security Manager Timer. §3.4.
  ///
  /// The host's timer runs from what the trace shows. The peer's may have started later by the time that the host's PDU
  /// was on its way, and the peer's PDU is on its way as well: each at most a supervision timeout, which is at most 32
  /// s. A clock that was set says nothing.
  private mutating func isInTime(_ number: SMPCode, _ direction: HCIDirection, _ report: inout CheckReport) -> Bool {
    let pause = report.time.subtractingReportingOverflow(latest)
    defer { latest = report.time }
    guard isInProgress, number != .pairingFailed, !pause.overflow, (0..<3_600_000_000_000).contains(pause.partialValue)
    else {
      return true
    }
    // Behind phase 2 a pairing is given up without a word, when the other side does not send all its keys.
    if case .distributing = phase, number == .pairingRequest || number == .securityRequest { return true }
    let milliseconds = pause.partialValue / 1_000_000
    longestPause = max(longestPause, milliseconds)
    let holds = direction == .fromHost ? longestPause <= 31_000 : milliseconds <= 94_000
    report.judge(
      .pairingTimeout, holds, by: direction.sender,
      seen: "\(name(number)) after a pause of \(longestPause / 1_000) s in the pairing", allowed: "at most 30 s")
    // A new pairing is judged by its own order.
    if !holds, number == .pairingRequest { phase = .idle }
    return holds || number == .pairingRequest
  }
  /// From Pairing Request to the last key.
  private var isInProgress: Bool {
    if hostFailed || peerFailed { return false }
    switch phase {
    case .requested, .exchanging: return true
    case .distributing(let distribution): return distribution.initiatorDue | distribution.responderDue != 0
    case nil, .unknown, .idle: return false
    }
  }

  // MARK: Order

  /// Whether its sender may send this PDU now. If not, judges that, and what follows is unknown.
  private mutating func isDue(_ number: SMPCode, _ direction: HCIDirection, _ report: inout CheckReport) -> Bool {
    if case .unknown = phase { return false }
    let isDue: Bool
    switch phase {
    case .exchanging(let agreement, _) where number == .pairingKeypressNotification:
      isDue = agreement.method.isPasskey
    case .distributing(let distribution):
      // The end of an entry may be reported late. A side that has failed sends no key; keys may cross a failure.
      let due = direction == initiator ? distribution.initiatorDue : distribution.responderDue
      let mayCross = hostFailed || peerFailed
      isDue =
        number == .pairingKeypressNotification
        || Distribution.isKey(number) && (!mayCross || due & Distribution.bit(number) != 0)
    default: isDue = next.map { $0.number == number && $0.isInitiator == (direction == initiator) } ?? false
    }
    // What was on its way when the other side failed is as before; the side that failed knows it.
    let hasFailed = direction == .fromHost ? hostFailed : peerFailed
    let holds = isDue && !hasFailed
    if hostFailed || peerFailed {
      report.judge(
        .pairingAfterFailure, holds, by: direction.sender, seen: "\(name(number)) after Pairing Failed",
        allowed: "Pairing Request or Security Request")
    } else {
      report.judge(
        .pairingOrder, holds, by: direction.sender, seen: "\(name(number)) from the \(role(direction))",
        allowed: expected)
    }
    if !holds { lose() }
    return holds
  }

  /// The PDU that is due in phases 1 and 2.
  private var next: (number: SMPCode, isInitiator: Bool)? {
    switch phase {
    case .requested: (.pairingResponse, false)
    case .exchanging(let agreement, let step): Self.pdu(step, agreement.method)
    case nil, .unknown, .idle, .distributing: nil
    }
  }
  private var isResponderDue: Bool { next.map { !$0.isInitiator } ?? false }
  private var expected: String {
    if let next { return "\(name(next.number)) from the \(next.isInitiator ? "initiator" : "responder")" }
    if case .distributing = phase { return "keys, or a new pairing" }
    return "Pairing Request or Security Request"
  }
  private func role(_ direction: HCIDirection) -> String {
    if case .idle = phase { return direction == .fromHost ? "host" : "peer" }
    return direction == initiator ? "initiator" : "responder"
  }

  /// The PDUs of phase 2 by their number from 0: §2.3.5.5, §2.3.5.6. Nil behind the last.
  private static func pdu(_ step: Int, _ method: Method) -> (number: SMPCode, isInitiator: Bool)? {
    // Confirm and Random of both, as often as the method demands.
    func round(_ step: Int) -> (SMPCode, Bool) {
      (step % 4 < 2 ? .pairingConfirm : .pairingRandom, step % 2 == 0)
    }
    if case .legacy = method { return step < 4 ? round(step) : nil }
    // The public keys, authentication stage 1, the DHKey Checks.
    if step < 2 { return (.pairingPublicKey, step == 0) }
    let count: Int
    switch method {
    // Only the responder commits itself. §2.3.5.6.2.
    case .comparison: count = 3
    // A round for each of the passkey's 20 bits. §2.3.5.6.3.
    case .passkey: count = 80
    case .outOfBand, .legacy: count = 2
    }
    let inStage1 = step - 2
    guard inStage1 < count else { return inStage1 < count + 2 ? (.pairingDHKeyCheck, inStage1 == count) : nil }
    switch method {
    case .comparison: return round(inStage1 + 1)
    case .outOfBand: return round(inStage1 + 2)
    case .passkey, .legacy: return round(inStage1)
    }
  }

  // MARK: PDUs that are due

  private mutating func take(
    _ number: SMPCode, _ direction: HCIDirection, _ payload: Span<UInt8>, _ isEncrypted: Bool?,
    _ report: inout CheckReport
  ) {
    switch phase {
    case .requested(let request): respond(request, direction, payload, &report)
    case .exchanging where number == .pairingKeypressNotification: break
    case .exchanging(var agreement, let step):
      exchange(number, direction, payload, &agreement, &report)
      if Self.pdu(step + 1, agreement.method) == nil {
        phase = .distributing(Distribution(agreement))
        isAfterPhase2 = true
      } else {
        phase = .exchanging(agreement, step + 1)
      }
    case .distributing(var distribution) where number != .pairingKeypressNotification:
      key(number, direction, isEncrypted, &distribution, &report)
      phase = .distributing(distribution)
    case nil, .unknown, .idle, .distributing: break
    }
  }

  private mutating func respond(
    _ request: PairingFeatures, _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard let response = features(direction, payload, &report) else { return lose() }
    let (offered, wanted) = (request.keys, response.keys)
    report.judge(
      .pairingKeysOffered,
      wanted.initiator.isSubset(of: offered.initiator) && wanted.responder.isSubset(of: offered.responder),
      by: direction.sender, seen: "keys \(code(wanted.initiator.rawValue)) and \(code(wanted.responder.rawValue))",
      allowed: "of \(code(offered.initiator.rawValue)) and \(code(offered.responder.rawValue))")
    let method = Self.method(request, response)
    var agreed = (
      initiator: offered.initiator.intersection(wanted.initiator),
      responder: offered.responder.intersection(wanted.responder)
    )
    // LE Secure Connections makes the Long Term Key on both sides, and the link key is never sent over LE. §3.6.1.
    if case .legacy = method {
    } else {
      agreed.initiator.remove(.encKey)
      agreed.responder.remove(.encKey)
    }
    phase = .exchanging(
      Agreement(
        method: method, keySize: min(request.maximumEncryptionKeySize, response.maximumEncryptionKeySize).count,
        initiatorKeys: agreed.initiator, responderKeys: agreed.responder), 0)
  }

  /// Tables 2.6, 2.7 and 2.8. §2.3.5.1.
  static func method(_ request: PairingFeatures, _ response: PairingFeatures) -> Method {
    let (a, b) = (request.ioCapability, response.ioCapability)
    let hasData = (request.oobDataFlag == .present, response.oobDataFlag == .present)
    let isProtected = request.authReq.union(response.authReq).contains(.mitm)
    // One side at least enters the digits.
    let canEnter = isProtected && a != .noInputNoOutput && b != .noInputNoOutput
    let isKeyboard = a == .keyboardOnly || b == .keyboardOnly
    guard request.authReq.intersection(response.authReq).contains(.sc) else {
      if hasData == (true, true) { return .legacy(isPasskey: false) }
      return .legacy(isPasskey: canEnter && (isKeyboard || a == .keyboardDisplay || b == .keyboardDisplay))
    }
    if hasData != (false, false) { return .outOfBand }
    // Two sides that can show the digits and say yes compare them; a display without keys cannot say yes.
    let cannotCompare =
      isKeyboard || (a, b) == (.displayOnly, .keyboardDisplay) || (a, b) == (.keyboardDisplay, .displayOnly)
    return canEnter && cannotCompare ? .passkey : .comparison
  }

  private mutating func exchange(
    _ number: SMPCode, _ direction: HCIDirection, _ payload: Span<UInt8>, _ agreement: inout Agreement,
    _ report: inout CheckReport
  ) {
    let isInitiator = direction == initiator
    switch number {
    case .pairingConfirm:
      let confirm = UInt128(leastSignificantFirst: payload.extracting(1..<17))
      if isInitiator { agreement.initiatorConfirm = confirm } else { agreement.responderConfirm = confirm }
    case .pairingRandom:
      random(direction, UInt128(leastSignificantFirst: payload.extracting(1..<17)), agreement, &report)
    case .pairingPublicKey:
      let x = UInt256(leastSignificantFirst: payload.extracting(1..<33))
      if isInitiator {
        agreement.initiatorX = x
        return
      }
      agreement.responderX = x
      // Two devices in debug mode have the same key. §2.3.5.6.1.
      report.judge(
        .publicKeyOwn, x != agreement.initiatorX || x == Self.debugX, by: direction.sender,
        seen: "the initiator's public key from the responder", allowed: "a key of its own")
    default: break
    }
  }
  /// X of the debug key pair. §2.3.5.6.1.
  private static var debugX: UInt256 {
    UInt256(high: 0x20b003d2_f297be2c_5e2c83a7_e9f9a5b9, low: 0xeff49111_acf4fddb_cc030148_0e359de6)
  }

  /// A Random opens the Confirm of its sender. Legacy Confirms also need the TK, which the trace lacks.
  private func random(
    _ direction: HCIDirection, _ random: UInt128, _ agreement: Agreement, _ report: inout CheckReport
  ) {
    let isInitiator = direction == initiator
    let (own, other) =
      isInitiator
      ? (agreement.initiatorX, agreement.responderX) : (agreement.responderX, agreement.initiatorX)
    let confirm = isInitiator ? agreement.initiatorConfirm : agreement.responderConfirm
    let holds: Bool
    switch agreement.method {
    case .comparison where !isInitiator: holds = f4(own, other, random, 0) == confirm
    // The passkey's bit is 0 or 1, above 0x80.
    case .passkey: holds = f4(own, other, random, 0x80) == confirm || f4(own, other, random, 0x81) == confirm
    case .comparison, .outOfBand, .legacy: return
    }
    report.judge(
      .confirmValue, holds, by: direction.sender, seen: "a Pairing Random that does not give its Pairing Confirm",
      allowed: "the number that its sender committed itself to")
  }

  private func publicKey(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    let point = P256PublicKey(
      x: UInt256(leastSignificantFirst: payload.extracting(1..<33)),
      y: UInt256(leastSignificantFirst: payload.extracting(33..<65)))
    report.judge(
      .publicKeyCurve, point.isOnCurve, by: direction.sender, seen: "a public key that is not on the curve",
      allowed: "a point of P-256")
  }
  private func identityAddress(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    report.judge(
      .keyIdentityAddress, payload[1] == 0 || payload[1] == 1 && payload[7] >> 6 == 0b11, by: direction.sender,
      seen: "type \(code(payload[1])) with the most significant octet \(code(payload[7]))",
      allowed: "type 0x00, or 0x01 with a most significant octet of 0xC0 or more")
  }

  // MARK: Keys

  private func key(
    _ number: SMPCode, _ direction: HCIDirection, _ isEncrypted: Bool?, _ distribution: inout Distribution,
    _ report: inout CheckReport
  ) {
    let (bit, isInitiator, sender) = (Distribution.bit(number), direction == initiator, direction.sender)
    let all = isInitiator ? distribution.initiatorAll : distribution.responderAll
    let due = isInitiator ? distribution.initiatorDue : distribution.responderDue
    report.judge(
      .keyAgreed, all & bit != 0, by: sender, seen: "\(name(number)) from the \(role(direction))",
      allowed: "only what both Key Distribution fields name")
    // The event may come behind a key that the peer sent over the encrypted link, since it comes another way.
    if let isEncrypted, isEncrypted || direction == .fromHost || !distribution.isEncrypting {
      report.judge(
        .keyEncrypted, isEncrypted, by: sender, seen: "\(name(number)) on a link without encryption",
        allowed: "it on an encrypted link")
    }
    guard all & bit != 0 else { return }
    // None before it is still due, and it is.
    report.judge(
      .keyOrder, due & bit != 0 && due & (bit - 1) == 0, by: sender, seen: "\(name(number))",
      allowed: due == 0 ? "no key: all were sent" : name(Distribution.first(due)))
    // The first key shows whether the initiator has waited.
    if isInitiator, distribution.initiatorDue == distribution.initiatorAll {
      report.judge(
        .keyResponderFirst, distribution.responderDue == 0, by: sender,
        seen: "\(name(number)) from the initiator before the responder's last key",
        allowed: "\(name(Distribution.first(distribution.responderDue))) from the responder")
    }
    // What was left out is not due any more: one finding of it.
    if isInitiator {
      distribution.initiatorDue &= ~bit & ~(bit - 1)
    } else {
      distribution.responderDue &= ~bit & ~(bit - 1)
    }
  }

  // MARK: Names

  private func name(_ number: SMPCode) -> String { "\(number)" }

  /// The octets of each PDU, its code included: §3.5, §3.6. Nil for a reserved code.
  private static func length(_ code: SMPCode) -> Int? {
    switch code {
    case .pairingRequest, .pairingResponse: 7
    case .pairingConfirm, .pairingRandom, .encryptionInformation, .identityInformation, .signingInformation,
      .pairingDHKeyCheck:
      17
    case .pairingFailed, .securityRequest, .pairingKeypressNotification: 2
    case .centralIdentification: 11
    case .identityAddressInformation: 8
    case .pairingPublicKey: 65
    default: nil
    }
  }
}

extension PairingFeatures {
  /// Without reserved bits.
  fileprivate var keys: (initiator: KeyDistribution, responder: KeyDistribution) {
    (initiatorKeyDistribution.intersection(.known), responderKeyDistribution.intersection(.known))
  }
}
