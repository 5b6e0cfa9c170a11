import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneSMP

/// # PairingPeer
/// **Overview**: the recorded peer of a pairing, for a host with other random numbers. Vol 3, Part H, §2.3.5.
///
/// **Function**: most values of a pairing depend on random numbers of both devices. Ours are not the recorded host's,
/// so our host would refuse what the recorded peer sent. A `PairingPeer` follows two exchanges, the recorded one and
/// that of our host, and computes what a peer with the same features sends to ours: public key, confirm values, random
/// numbers and check. All other PDUs, and the order of all, stay the recorded ones.
///
/// A value that was wrong is replaced by a wrong one. Confirm values of Just Works and Numeric Comparison can be
/// verified with the recorded values alone; of the others, and of the check, the recorded host's reaction says whether
/// they were right.
struct PairingPeer: Sendable {
  /// The values of one exchange.
  struct Exchange: Sendable {
    var request: [UInt8] = [], response: [UInt8] = []
    var hostsKey: P256PublicKey?, peersKey: P256PublicKey?
    var hostsConfirm: UInt128?, peersConfirm: UInt128?
    var hostsRandom: UInt128?, peersRandom: UInt128?

    mutating func note(_ pdu: [UInt8], isHosts: Bool) {
      switch (pdu.code, pdu.count) {
      case (PairingRequest.code, 7): request = pdu
      case (PairingResponse.code, 7): response = pdu
      case (PairingPublicKey.code, 65):
        let key = P256PublicKey(pdu)
        if isHosts { hostsKey = key } else { peersKey = key }
      case (PairingConfirm.code, 17):
        let value = UInt128(pdu)
        if isHosts { hostsConfirm = value } else { peersConfirm = value }
      case (PairingRandom.code, 17):
        let value = UInt128(pdu)
        if isHosts { hostsRandom = value } else { peersRandom = value }
      default: break
      }
    }
  }
  private enum Verdict { case right, wrong, unknown }

  /// What the user enters on both devices, or our host has displayed.
  var passkey: UInt32?
  /// The host is the initiator: the Central.
  private let isInitiator: Bool
  private let recorded: RecordedPairing
  private(set) var theirs = Exchange()
  private(set) var ours = Exchange()
  /// Addresses of our host's link, and those that the recorded host may have had.
  private let own: PeerAddress, peer: PeerAddress
  private let ownCandidates: [PeerAddress], isOwnKnown: Bool
  private var keyPair: P256KeyPair
  private let outOfBandKey: SecurityKey, ownData: OwnOutOfBandData?
  /// The random number of the confirm value that was sent last.
  private var committed: UInt128?
  /// Random numbers that the peer has sent: of Passkey Entry, each ends a round.
  private var rounds = 0
  private var chance: ReplayChance

  /// `addresses`: of our host's link, on the air. `ownCandidates`: all that the recorded host used; `isOwnKnown`: its
  /// address on this link is one of them.
  init(
    _ recorded: RecordedPairing, addresses: (own: PeerAddress, peer: PeerAddress), ownCandidates: [PeerAddress],
    isOwnKnown: Bool, seed: UInt64
  ) {
    self.recorded = recorded
    isInitiator = recorded.isInitiator
    (own, peer) = addresses
    self.ownCandidates = ownCandidates
    self.isOwnKnown = isOwnKnown
    chance = ReplayChance(seed: seed)
    let pair = P256KeyPair(using: &chance)
    keyPair = recorded.peersKey?.x == P256KeyPair.debug.publicKey.x ? .debug : pair
    outOfBandKey = .random(using: &chance)
    ownData = recorded.peerHasData ? OwnOutOfBandData(using: &chance) : nil
  }

  /// Gives our host's settings the data that came out of band.
  func giveData(to settings: inout PairingSettings) {
    guard recorded.method == .outOfBand || recorded.hostHasData || recorded.peerHasData else { return }
    // The recorded host lacked the data of this kind of pairing.
    let isMissing = recorded.failure == .oobNotAvailable
    if recorded.hostHasData {
      settings.peersData =
        recorded.isSecureConnections != isMissing
        ? .secureConnections(
          confirm: f4(keyPair.publicKey.x, keyPair.publicKey.x, outOfBandKey.number, 0), random: outOfBandKey)
        : .legacy(outOfBandKey)
    }
    if !isMissing || recorded.hostHasData { settings.ownData = ownData }
  }

  /// Notes a PDU that the recorded host has sent.
  mutating func noteRecorded(_ pdu: [UInt8]) { theirs.note(pdu, isHosts: true) }
  /// Notes a PDU that our host has sent.
  mutating func noteOurs(_ pdu: [UInt8]) { ours.note(pdu, isHosts: true) }

  /// Notes a PDU that our host gets in another form than the recorded one.
  mutating func noteGiven(_ pdu: [UInt8]) { ours.note(pdu, isHosts: false) }

  /// What our host gets for a recorded PDU of the peer. `failure`: the reason with which the recorded host answered it;
  /// nil: the pairing went on.
  mutating func replacement(for pdu: [UInt8], failure: PairingFailure?) -> [UInt8] {
    theirs.note(pdu, isHosts: false)
    let result = replaced(pdu, failure)
    ours.note(result, isHosts: false)
    return result
  }
  private mutating func replaced(_ pdu: [UInt8], _ failure: PairingFailure?) -> [UInt8] {
    guard recorded.method != nil else { return pdu }
    switch (pdu.code, pdu.count) {
    case (PairingPublicKey.code, 65) where recorded.isSecureConnections: return key(pdu, failure)
    case (PairingConfirm.code, 17): return confirm(pdu)
    case (PairingRandom.code, 17): return random(pdu, failure)
    case (PairingDHKeyCheck.code, 17) where recorded.isSecureConnections: return check(pdu, failure)
    default: return pdu
    }
  }

  // MARK: Values

  private mutating func key(_ pdu: [UInt8], _ failure: PairingFailure?) -> [UInt8] {
    guard let key = theirs.peersKey, key.isOnCurve else { return pdu }
    if let own = theirs.hostsKey, key.x == own.x {
      // A peer that sends back what it gets.
      return ours.hostsKey?.pdu ?? pdu
    }
    // Everybody has its private key.
    if key.x == P256KeyPair.debug.publicKey.x { return pdu }
    // The data that came out of band were those of another key.
    if failure == .confirmValueFailed, recorded.hostHasData { return P256KeyPair(using: &chance).publicKey.pdu }
    return keyPair.publicKey.pdu
  }
  private mutating func confirm(_ pdu: [UInt8]) -> [UInt8] {
    if let own = theirs.hostsConfirm, own == theirs.peersConfirm, let ours = ours.hostsConfirm {
      return ours.pdu(PairingConfirm.code)
    }
    let random = UInt128.random(using: &chance)
    guard let value = confirmValue(for: random) else { return pdu }
    committed = random
    return value.pdu(PairingConfirm.code)
  }
  private func confirmValue(for random: UInt128) -> UInt128? {
    guard recorded.isSecureConnections else { return legacy(temporaryKey, random, ours, own: own) }
    guard let hosts = ours.hostsKey, let peers = ours.peersKey else { return nil }
    return f4(peers.x, hosts.x, random, recorded.hasPasskey ? 0x80 | UInt8((passkey ?? 0) >> min(rounds, 31) & 1) : 0)
  }
  /// Vol 3, Part H, §2.3.5.2 – §2.3.5.4.
  private var temporaryKey: SecurityKey {
    recorded.method == .outOfBand ? outOfBandKey : SecurityKey(UInt128(recorded.hasPasskey ? passkey ?? 0 : 0))
  }
  private func legacy(_ tk: SecurityKey, _ random: UInt128, _ exchange: Exchange, own: PeerAddress) -> UInt128 {
    let (initiator, responder) = isInitiator ? (own, peer) : (peer, own)
    return c1(
      tk, random, preq: exchange.request.number, pres: exchange.response.number, iat: initiator.isRandom ? 1 : 0,
      rat: responder.isRandom ? 1 : 0, ia: initiator.address.value, ra: responder.address.value)
  }

  private mutating func random(_ pdu: [UInt8], _ failure: PairingFailure?) -> [UInt8] {
    defer { rounds += 1 }
    if recorded.isSecureConnections, let own = theirs.hostsRandom, own == theirs.peersRandom,
      let ours = ours.hostsRandom
    {
      return ours.pdu(PairingRandom.code)
    }
    let value = committed ?? .random(using: &chance)
    committed = nil
    let isWrong =
      switch verdict() {
      case .right: false
      case .wrong: true
      case .unknown: failure == .confirmValueFailed
      }
    return (isWrong ? value ^ 1 : value).pdu(PairingRandom.code)
  }
  /// Whether the recorded peer's random number is that of its confirm value.
  private func verdict() -> Verdict {
    guard let random = theirs.peersRandom, let confirm = theirs.peersConfirm else { return .right }
    guard recorded.isSecureConnections else {
      guard recorded.method == .justWorks else { return .unknown }
      let tk = SecurityKey(0)
      if ownCandidates.contains(where: { legacy(tk, random, theirs, own: $0) == confirm }) { return .right }
      return isOwnKnown ? .wrong : .unknown
    }
    guard let hosts = theirs.hostsKey, let peers = theirs.peersKey else { return .unknown }
    if !recorded.hasPasskey { return f4(peers.x, hosts.x, random, 0) == confirm ? .right : .wrong }
    // The passkey itself is unknown.
    return f4(peers.x, hosts.x, random, 0x80) == confirm || f4(peers.x, hosts.x, random, 0x81) == confirm
      ? .unknown : .wrong
  }

  private func check(_ pdu: [UInt8], _ failure: PairingFailure?) -> [UInt8] {
    guard let key = ours.hostsKey, let hosts = ours.hostsRandom, let peers = ours.peersRandom,
      let dhKey = dhKey(with: key)
    else { return pdu }
    let (na, nb) = isInitiator ? (hosts, peers) : (peers, hosts)
    let (initiator, responder) = isInitiator ? (own, peer) : (peer, own)
    let derived = f5(dhKey, na, nb, initiator.number, responder.number)
    let features = isInitiator ? ours.response : ours.request
    guard features.count == 7 else { return pdu }
    var r: UInt128 = 0
    if recorded.hasPasskey { r = UInt128(passkey ?? 0) }
    if recorded.method == .outOfBand, recorded.peerHasData { r = ownData?.random.number ?? 0 }
    let ioCap = UInt32(features[3]) << 16 | UInt32(features[2]) << 8 | UInt32(features[1])
    let value = f6(derived.macKey, peers, hosts, r, ioCap, peer.number, own.number)
    return (failure == .dhKeyCheckFailed ? value ^ 1 : value).pdu(PairingDHKeyCheck.code)
  }
  private func dhKey(with key: P256PublicKey) -> DHKey? {
    do throws(InvalidPublicKey) { return try keyPair.dhKey(with: key) } catch { return nil }
  }
}

/// What a trace shows of a pairing, from its first step on.
struct RecordedPairing: Sendable {
  let isInitiator: Bool
  private(set) var request: [UInt8]?, response: [UInt8]?
  private(set) var hostsKey: P256PublicKey?, peersKey: P256PublicKey?
  /// The reason with which the host ended it.
  private(set) var failure: PairingFailure?
  /// The PDU before that, of the peer's.
  private(set) var failed: SMPCode?
  /// PDUs of the longest pairing, with keypress notifications: more is not looked at.
  private static var longest: Int { 256 }

  init(_ script: Script, from step: Int, on link: Int, isInitiator: Bool) {
    self.isInitiator = isInitiator
    var left = Self.longest
    for index in script.steps(from: step, on: link) {
      // A Peripheral's Security Request has led to an encryption. Vol 4, Part E, §7.7.65.5.
      if case .event = script.steps[index].kind, request == nil {
        let event = script.packets[script.steps[index].packets[0]].octets
        if case .leLongTermKeyRequest? = try? HCIEvent(event.span) { return }
      }
      guard script.steps[index].stream == .security else { continue }
      let isHosts = script.steps[index].direction == .fromHost, pdu = script.steps[index].payload
      left -= 1
      if left == 0 { return }
      switch (pdu.code, pdu.count) {
      case (PairingRequest.code, _):
        if request != nil || isHosts != isInitiator { return }
        request = pdu
      case (PairingResponse.code, 7) where isHosts != isInitiator: if response == nil { response = pdu }
      case (SecurityRequest.code, _) where request != nil && isHosts != isInitiator: return
      case (PairingPublicKey.code, 65) where isHosts: hostsKey = P256PublicKey(pdu)
      case (PairingPublicKey.code, 65): peersKey = P256PublicKey(pdu)
      case (PairingFailed.code, 2):
        // A refusal of a Security Request is not that of a pairing.
        if request == nil { continue }
        if isHosts { failure = PairingFailure(rawValue: pdu[1]) }
        return
      default: break
      }
      if !isHosts { failed = pdu.code }
    }
  }

  static func features(_ pdu: [UInt8]?) -> PairingFeatures? {
    guard let pdu else { return nil }
    do throws(WireError) {
      switch try SMPPDU(pdu.span) {
      case .pairingRequest(let message): return message.features
      case .pairingResponse(let message): return message.features
      case .pairingConfirm, .pairingRandom, .pairingFailed, .encryptionInformation, .centralIdentification,
        .identityInformation, .identityAddressInformation, .signingInformation, .securityRequest, .pairingPublicKey,
        .pairingDHKeyCheck, .pairingKeypressNotification:
        return nil
      }
    } catch { return nil }
  }
  /// The features that the host showed, and the peer's.
  var hosts: [UInt8]? { isInitiator ? request : response }
  var peers: [UInt8]? { isInitiator ? response : request }
  private var both: (request: PairingFeatures, response: PairingFeatures)? {
    guard let request = Self.features(request), let response = Self.features(response) else { return nil }
    return (request, response)
  }
  /// nil: the trace lacks the features of one side.
  var method: PairingMethod? { both.flatMap { MethodTable.method(request: $0.request, response: $0.response) } }
  var isSecureConnections: Bool {
    both.map { $0.request.authReq.intersection($0.response.authReq).contains(.sc) } ?? false
  }
  var hasPasskey: Bool { if case .passkeyEntry = method { true } else { false } }
  /// Our user enters a passkey, which the trace does not show.
  var entersPasskey: Bool {
    switch method {
    case .passkeyEntry(.bothEnter): true
    case .passkeyEntry(.initiatorDisplays): !isInitiator
    case .passkeyEntry(.responderDisplays): isInitiator
    case .justWorks, .numericComparison, .outOfBand, nil: false
    }
  }
  var hostHasData: Bool { hosts.map { $0.count == 7 && $0[2] == 1 } ?? false }
  var peerHasData: Bool { peers.map { $0.count == 7 && $0[2] == 1 } ?? false }
  /// Of the key that it would make; nil: features are missing.
  var strength: KeyStrength? {
    guard let both, let method else { return nil }
    return KeyStrength(
      isAuthenticated: method.isAuthenticated, isSecureConnections: isSecureConnections,
      size: min(both.request.maximumEncryptionKeySize, both.response.maximumEncryptionKeySize))
  }
  /// The host refused what the features of both give, at once.
  var isRefused: Bool {
    failure != nil && (isInitiator ? failed == PairingResponse.code : failed == PairingRequest.code)
  }
}

extension P256PublicKey {
  /// Pairing Public Key, 65 octets. Vol 3, Part H, §3.5.6.
  fileprivate init(_ pdu: [UInt8]) {
    let x = Array(pdu[1..<33]), y = Array(pdu[33..<65])
    self.init(x: UInt256(leastSignificantFirst: x.span), y: UInt256(leastSignificantFirst: y.span))
  }
  fileprivate var pdu: [UInt8] {
    let (x, y) = (x.leastSignificantFirst, y.leastSignificantFirst)
    return [PairingPublicKey.code.rawValue] + x.span.array + y.span.array
  }
}
extension UInt128 {
  /// The value behind the code of a PDU of 17 octets.
  fileprivate init(_ pdu: [UInt8]) {
    let octets = Array(pdu[1..<17])
    self.init(leastSignificantFirst: octets.span)
  }
  fileprivate func pdu(_ code: SMPCode) -> [UInt8] {
    let octets = leastSignificantFirst
    return [code.rawValue] + octets.span.array
  }
}
extension [UInt8] {
  /// The Pairing Request or Response as c1 takes it. Vol 3, Part H, §2.2.3.
  fileprivate var number: UInt64 { prefix(7).reversed().reduce(0) { $0 << 8 | UInt64($1) } }
}
extension PeerAddress {
  /// The 56 bits of f5 and f6. Vol 3, Part H, §2.2.7.
  fileprivate var number: UInt64 { (isRandom ? 1 << 48 : 0) | address.value }
}
