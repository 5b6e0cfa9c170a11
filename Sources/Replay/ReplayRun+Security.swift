import BindruneATT
import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// The pairing of a link, as far as the trace has come.
struct PairingWatch {
  enum Phase {
    case none
    case pairing
    /// Our host has all keys.
    case paired
  }
  var phase = Phase.none
  /// What the trace shows of it from its begin on; nil: no pairing has begun.
  var recorded: RecordedPairing?
  /// The peer's values for our host's random numbers; nil: those of the recorded host, whose seed is known.
  var peer: PairingPeer?
  /// What our host has asked its user: the recorded user answers when the recorded host goes on.
  var question: PairingQuestion?
  /// Our host's Pairing Request.
  var request: [UInt8]?
  /// The Pairing Response as our host knows it: which keys each side sends.
  var response: [UInt8]?
  /// Keys of the recorded host: those that it has sent, and that of the link.
  var keys = RecordedKeys()

  /// The recorded hosts had agreed to send this key, and ours has not: a host chooses which keys it offers and asks for.
  /// `isHosts`: the host sends it, and not the peer.
  func leavesOut(_ code: SMPCode, isHosts: Bool) -> Bool {
    guard let recorded, let theirs = recorded.response, let response, theirs.count == 7, response.count == 7 else {
      return false
    }
    let place = isHosts == recorded.isInitiator ? 5 : 6, key: KeyDistribution
    switch code {
    case EncryptionInformation.code, CentralIdentification.code: key = .encKey
    case IdentityInformation.code, IdentityAddressInformation.code: key = .idKey
    case SigningInformation.code: key = .signKey
    default: return false
    }
    return KeyDistribution(rawValue: theirs[place]).contains(key)
      && !KeyDistribution(rawValue: response[place]).contains(key)
  }
}
/// Keys of a recorded host that ours draws anew.
struct RecordedKeys {
  var encryption: SecurityKey?
  var ediv: UInt16 = 0
  var rand: UInt64 = 0
  var signature: SecurityKey?
  /// The key that has encrypted the link.
  var link: SecurityKey?

  mutating func note(_ pdu: [UInt8]) {
    switch try? SMPPDU(pdu.span) {
    case .encryptionInformation(let pdu)?: encryption = SecurityKey(pdu.longTermKey.number)
    case .centralIdentification(let pdu)?: (ediv, rand) = (pdu.ediv, pdu.rand)
    case .signingInformation(let pdu)?: signature = SecurityKey(pdu.signatureKey.number)
    default: break
    }
  }
}

extension PairingSettings {
  /// What the recorded host's first Pairing Request or Response shows. Vol 3, Part H, §3.5.1, §3.5.2.
  init(recordedIn script: Script) {
    self.init()
    let own = script.steps.filter { $0.direction == .fromHost && $0.stream == .security }
    guard let features = own.first(where: { $0.payload.count == 7 && $0.payload[0] <= 2 && $0.payload[0] > 0 })
    else {
      // Only a Security Request, or a refusal.
      if let request = own.first?.payload, request.count == 2, request.code == SecurityRequest.code {
        take(AuthReq(rawValue: request[1]))
      }
      return
    }
    take(features.payload)
    // The keys and the identity that the host distributed.
    let irk = own.first { $0.payload.count == 17 && $0.payload.code == IdentityInformation.code }?.payload
    let address = own.first { $0.payload.count == 8 && $0.payload.code == IdentityAddressInformation.code }?.payload
    if let irk, let address {
      let value = (0..<6).reduce(UInt64(0)) { $0 | UInt64(address[2 + $1]) << UInt64(8 * $1) }
      identity = PairingIdentity(
        irk: SecurityKey(leastSignificantFirst: Array(irk[1...]).span),
        address: PairingAddress(DeviceAddress(value), isRandom: address[1] == 1))
    }
  }
  /// `pdu`: a Pairing Request or Response of 7 octets.
  mutating func take(_ pdu: [UInt8]) {
    ioCapability = IOCapability(rawValue: pdu[1])
    take(AuthReq(rawValue: pdu[3]))
    if let size = EncryptionKeySize(Int(pdu[4])) { keySizes = EncryptionKeySize.shortest...size }
    let isRequest = pdu.code == PairingRequest.code
    distributes = KeyDistribution(rawValue: pdu[isRequest ? 5 : 6])
    requests = KeyDistribution(rawValue: pdu[isRequest ? 6 : 5])
  }
  mutating func take(_ authReq: AuthReq) {
    isBonding = authReq.isBonding
    protection = authReq.contains(.mitm) ? .wanted : .notNeeded
    secureConnections = authReq.contains(.sc) ? .supported : .off
    sendsKeypresses = authReq.contains(.keypress)
    supportsH7 = authReq.contains(.ct2)
  }
  /// The settings of the recorded host for this pairing: its features, and what its refusal shows.
  init(_ recorded: RecordedPairing, like settings: PairingSettings, ownAddress: PeerAddress) {
    self = settings
    acceptsPairing = true
    requiresOutOfBand = false
    peersData = nil
    ownData = nil
    if let features = recorded.hosts, features.count == 7 { take(features) }
    acceptsDebugKey = recorded.failure != .authenticationRequirements || recorded.failed != PairingPublicKey.code
    usesDebugKey = recorded.hostsKey == P256KeyPair.debug.publicKey
    if distributes.contains(.idKey), identity == nil {
      // The recorded host came no further than to promise it.
      identity = PairingIdentity(
        irk: SecurityKey(0), address: PairingAddress(ownAddress.address, isRandom: ownAddress.isRandom))
    }
    guard recorded.isRefused else { return }
    // What a host may demand; that the features do not give it, ours finds. Vol 3, Part H, §2.3.1, §2.3.4, §2.3.5.1.
    switch recorded.failure {
    case .authenticationRequirements:
      if recorded.hosts == nil || protection == .wanted { protection = .required }
      if recorded.hosts == nil || secureConnections == .supported, !recorded.isSecureConnections {
        secureConnections = .only
      }
    case .encryptionKeySize: keySizes = keySizes.upperBound...keySizes.upperBound
    case .oobNotAvailable: requiresOutOfBand = recorded.method != .outOfBand
    default: break
    }
  }
  /// IO capability, OOB data flag, AuthReq and key size, as a Pairing Request has them.
  func shows(_ features: [UInt8]) -> Bool {
    var other = self
    other.take(features)
    return features[1] == ioCapability.rawValue && features[2] == (peersData == nil ? 0 : 1)
      && features[4] == keySizes.upperBound.octets && other.isBonding == isBonding
      && (other.protection == .notNeeded) == (protection == .notNeeded)
      && (other.secureConnections == .off) == (secureConnections == .off)
      && other.sendsKeypresses == sendsKeypresses && other.supportsH7 == supportsH7
  }
}

// Pairing and encryption.
extension ReplayRun {
  /// The digits that our user enters: those of the recorded one are unknown.
  private static var passkey: UInt32 { 271_828 }

  mutating func playSecurity(_ recorded: [UInt8], _ link: Int) {
    guard let id = live[link]?.id, !recorded.isEmpty else { return }
    let code = recorded.code
    if isOfEarlierPairing(recorded, link) { return result.pass(.pairingNotCompared, at: number) }
    if live[link]?.pairing.leavesOut(code, isHosts: true) == true { return permit(.keyDistribution, .security, link) }
    switch code {
    // Our host may have begun by itself, because the peer asked.
    case PairingRequest.code where front(.security, link)?.code != code:
      core.pair(id, begin(link, isInitiator: true), id: newID(), now: now)
      pump()
    case SecurityRequest.code where recorded.count == 2 && front(.security, link)?.code != code:
      core.pair(id, settings(forRequest: AuthReq(rawValue: recorded[1]), link), id: newID(), now: now)
      pump()
    case PairingFailed.code: refuse(recorded, link, id)
    case PairingKeypressNotification.code where recorded.count == 2 && front(.security, link)?.code != code:
      core.answer(.keypress(KeypressNotificationType(rawValue: recorded[1])), on: id, now: now)
      pump()
    // Our host has gone on already, and may have asked the next question.
    case _ where front(.security, link)?.code == code: break
    default: answerQuestion(link)
    }
    live[link]?.pairing.peer?.noteRecorded(recorded)
    live[link]?.pairing.keys.note(recorded)
    compare(recorded, .security, link)
    if code == PairingFailed.code { live[link]?.pairing.phase = .none }
    keepRecordedKeys(link)
  }
  /// The trace begins in the middle of a pairing.
  private func isOfEarlierPairing(_ pdu: [UInt8], _ link: Int) -> Bool {
    guard script.links[link].begin == nil, live[link]?.pairing.recorded == nil, !pdu.isEmpty else {
      return false
    }
    if pdu.code == PairingFailed.code {
      return pdu.count == 2
        && ![.pairingNotSupported, .commandNotSupported].contains(PairingFailure(rawValue: pdu[1]))
    }
    return pdu.code != PairingRequest.code && pdu.code != SecurityRequest.code
  }

  /// What our host gets in the place of a recorded PDU of the peer; nil: nothing.
  mutating func peersPDU(_ pdu: [UInt8], _ link: Int) -> [UInt8]? {
    if isOfEarlierPairing(pdu, link) {
      result.use(.pairingNotCompared, at: number)
      return nil
    }
    switch pdu.code {
    case PairingRequest.code where script.links[link].role == .peripheral && live[link]?.pairing.phase != .pairing:
      core.setPairing(begin(link, isInitiator: false), pairsOnDemand: false)
    case SecurityRequest.code where script.links[link].role == .central: prepareForDemand(link)
    default: break
    }
    if live[link]?.pairing.leavesOut(pdu.code, isHosts: false) == true {
      result.use(.keyDistribution, at: number)
      return nil
    }
    defer { if pdu.code == PairingFailed.code { live[link]?.pairing.phase = .none } }
    if pdu.code == PairingResponse.code { return peersResponse(pdu, link) }
    let failure = reaction(on: link)
    guard let replaced = live[link]?.pairing.peer?.replacement(for: pdu, failure: failure), replaced != pdu else {
      return pdu
    }
    result.use(.pairingComputed, at: number)
    return replaced
  }
  /// The peer's Pairing Response without keys that our host's request does not name: a peer must leave them out. Vol 3,
  /// Part H, §3.6.1.
  private mutating func peersResponse(_ pdu: [UInt8], _ link: Int) -> [UInt8] {
    _ = live[link]?.pairing.peer?.replacement(for: pdu, failure: nil)
    var given = pdu
    if let request = live[link]?.pairing.request, let recorded = live[link]?.pairing.recorded?.request,
      request.count == 7, recorded.count == 7, pdu.count == 7
    {
      // Only what the recorded request names: more is a fault of the peer.
      for place in 5...6 { given[place] &= ~(recorded[place] & ~request[place] & KeyDistribution.known.rawValue) }
    }
    live[link]?.pairing.response = given
    if given != pdu {
      result.use(.keyDistribution, at: number)
      live[link]?.pairing.peer?.noteGiven(given)
    }
    return given
  }
  /// The reason with which the recorded host fails the pairing right after the current step.
  private func reaction(on link: Int) -> PairingFailure? {
    for index in script.steps(from: step + 1, on: link) {
      let next = script.steps[index]
      if case .command = next.kind { return nil }
      guard next.stream == .security, next.payload.code != PairingKeypressNotification.code else { continue }
      guard next.direction == .fromHost, next.payload.count == 2, next.payload.code == PairingFailed.code else {
        return nil
      }
      return PairingFailure(rawValue: next.payload[1])
    }
    return nil
  }

  // MARK: Begin

  /// A pairing of the trace begins with the current step, or the next: the settings of the recorded host.
  private mutating func begin(_ link: Int, isInitiator: Bool) -> PairingSettings {
    let recorded = RecordedPairing(script, from: step, on: link, isInitiator: isInitiator)
    var settings = PairingSettings(recorded, like: configuration.pairing, ownAddress: core.identityAddress)
    live[link]?.pairing = PairingWatch(phase: .pairing, recorded: recorded)
    adjustBond(to: recorded, settings, link)
    let isComputed = seed == nil || recorded.entersPasskey || recorded.hostHasData || recorded.peerHasData
    if isComputed, let id = live[link]?.id, let addresses = core.addressesOnAir(of: id) {
      let peer = PairingPeer(
        recorded, addresses: addresses, ownCandidates: ownAddresses,
        isOwnKnown: isOwnAddressKnown && script.links[link].begin != nil, seed: UInt64(step))
      peer.giveData(to: &settings)
      live[link]?.pairing.peer = peer
    }
    if let features = recorded.hosts, features.count == 7 {
      if !configuration.pairing.shows(features) { result.use(.parameters, at: number) }
      configuration.pairing = settings
    }
    return settings
  }
  /// The recorded host, a Peripheral, asks for security: its settings.
  private mutating func settings(forRequest wanted: AuthReq, _ link: Int) -> PairingSettings {
    let recorded = RecordedPairing(script, from: step, on: link, isInitiator: false)
    var settings = PairingSettings(recorded, like: configuration.pairing, ownAddress: core.identityAddress)
    settings.take(wanted)
    live[link]?.pairing = PairingWatch(recorded: recorded)
    adjustBond(to: recorded, settings, link)
    return settings
  }
  /// The peer asks for security, or refuses a request without it: what the recorded host does next is its policy.
  mutating func prepareForDemand(_ link: Int) {
    guard let id = live[link]?.id, let peer = live[link]?.peer, let next = nextOfSecurity(after: step, on: link) else {
      return core.setPairing(configuration.pairing, pairsOnDemand: false)
    }
    let payload = next.payload
    switch (next.kind, payload.code, payload.count) {
    // It has a key.
    case (.command, _, _):
      giveKey(of: script.packets[next.packets[0]].octets, link)
      core.setPairing(configuration.pairing, pairsOnDemand: false)
    case (.frame, PairingRequest.code, 7):
      let settings = begin(link, isInitiator: true), bond = core.bond(with: peer), asked = script.steps[step].payload
      // With a bond our host would encrypt.
      let isEnough = bond?.strength.isAuthenticated == true || asked.count == 2 && asked[1] & AuthReq.mitm.rawValue == 0
      if asked.code == SecurityRequest.code ? isEnough : core.security(of: id)?.key == nil { removeBond(link) }
      core.setPairing(settings, pairsOnDemand: true)
    case (.frame, SecurityRequest.code, 2):
      core.setPairing(settings(forRequest: AuthReq(rawValue: payload[1]), link), pairsOnDemand: true)
    default: core.setPairing(configuration.pairing, pairsOnDemand: false)
    }
  }
  /// The host's next step of security: an SMP PDU or LE Enable Encryption; nil if it first asks something else or ends
  /// the link.
  private func nextOfSecurity(after step: Int, on link: Int) -> ReplayStep? {
    for index in script.steps(from: step + 1, on: link) where script.steps[index].direction == .fromHost {
      let next = script.steps[index]
      switch next.kind {
      case .command:
        return script.packets[next.packets[0]].octets.commandOpcode == LEEnableEncryption.opcode ? next : nil
      case .frame where next.stream == .security: return next
      case .frame where next.stream == .client && next.payload.opcode.kind == .request: return nil
      case .frame, .event, .channel: continue
      }
    }
    return nil
  }

  // MARK: Bonds

  /// A bond that the recorded host cannot have had while it pairs so: a guess of ours is corrected, another one was
  /// removed by the user, if the trace does not show the contrary.
  private mutating func adjustBond(to recorded: RecordedPairing, _ settings: PairingSettings, _ link: Int) {
    guard let peer = live[link]?.peer, var bond = core.bond(with: peer) else { return }
    let isBelow =
      bond.strength.isAuthenticated && settings.protection == .notNeeded
      || bond.strength.isSecureConnections && settings.secureConnections == .off
      || settings.keySizes.upperBound < bond.strength.size
    let isWeaker = !recorded.isRefused && recorded.strength?.isWeaker(than: bond.strength) == true
    guard isBelow || isWeaker else { return }
    guard guessed.contains(peer) else { return removeBond(link) }
    bond.strength = KeyStrength(
      isAuthenticated: false, isSecureConnections: false, size: recorded.strength?.size ?? .shortest)
    do throws(IdentityError) { try core.add(bond, now: now) } catch {}
  }
  /// The user of the recorded host has removed the bond.
  private mutating func removeBond(_ link: Int) {
    guard let peer = live[link]?.peer, let bond = core.bond(with: peer) else { return }
    // A host that gives its bonds to the controller's resolving list takes them out again. Vol 4, Part E, §7.8.38 …
    // §7.8.40.
    if resolvingList.keeps(bond.address, from: bonded[peer] ?? 0, now: step) { return }
    core.removeBond(with: peer, now: now)
    pump()
    guessed.remove(peer)
    result.use(.bondRemoved, at: number)
  }
  /// The recorded server answers that it has no key for the client: Insufficient Authentication instead of Insufficient
  /// Encryption on a link that is not encrypted. Vol 3, Part C, §10.3.1.
  mutating func removeBond(ifDeniedBy response: [UInt8], _ link: Int) {
    guard response.count == 5, response.opcode == ErrorResponse.opcode,
      response[4] == ATTError.insufficientAuthentication.rawValue, let id = live[link]?.id,
      let security = core.security(of: id), !security.isEncrypted, security.isBonded
    else { return }
    removeBond(link)
  }
  /// Puts the recorded host's keys into the place of those that our host has drawn, so that later links are compared
  /// with them.
  private mutating func keepRecordedKeys(_ link: Int) {
    guard let watch = live[link]?.pairing, watch.phase == .paired, watch.peer != nil, let recorded = watch.recorded,
      let peer = live[link]?.peer, var bond = core.bond(with: peer)
    else { return }
    let before = bond, size = bond.strength.size.count
    if recorded.isSecureConnections {
      if let key = watch.keys.link {
        let shared = LongTermKey(key: key)
        bond.ours.longTermKey = shared
        bond.peers.longTermKey = shared
      }
    } else if let key = watch.keys.encryption, bond.ours.longTermKey != nil {
      bond.ours.longTermKey = LongTermKey(key: key.reduced(to: size), ediv: watch.keys.ediv, rand: watch.keys.rand)
    }
    if let key = watch.keys.signature, bond.ours.csrk != nil { bond.ours.csrk = key }
    if bond == before { return }
    do throws(IdentityError) { try core.add(bond, now: now) } catch {}
  }
  /// Notes how our host's pairing has ended.
  mutating func pairingEnded(_ id: LinkID, _ error: PairingError?) {
    guard let link = place(of: id) else { return }
    live[link]?.pairing.question = nil
    guard error == nil else {
      live[link]?.pairing.phase = .none
      return
    }
    live[link]?.pairing.phase = .paired
    if let peer = live[link]?.peer {
      bonded[peer] = step
      guessed.remove(peer)
      agreed(with: peer)
    }
    keepRecordedKeys(link)
  }

  // MARK: The user

  /// The user's answer waits until the recorded host goes on.
  mutating func ask(_ question: PairingQuestion, _ id: LinkID) {
    guard let link = place(of: id) else { return }
    switch question {
    // After the peer's last key a recorded host whose user consents may have nothing more to send.
    case .consent(_, let replaced) where replaced?.ground == .identity:
      let next = script.next(after: step, on: link) { $0.direction == .fromHost && $0.stream == .security }
      let isRefused = next.map { script.steps[$0].payload.code == PairingFailed.code } ?? false
      core.answer(isRefused ? .refuse : .consent, on: id, now: now)
    case .consent, .compare: live[link]?.pairing.question = question
    case .display(let digits): live[link]?.pairing.peer?.passkey = digits
    case .enterPasskey:
      live[link]?.pairing.peer?.passkey = Self.passkey
      live[link]?.pairing.question = question
    case .keypress: break
    }
  }
  private mutating func answerQuestion(_ link: Int) {
    guard let id = live[link]?.id, let question = live[link]?.pairing.question else { return }
    live[link]?.pairing.question = nil
    switch question {
    case .consent: core.answer(.consent, on: id, now: now)
    case .compare: core.answer(.numbersMatch, on: id, now: now)
    case .enterPasskey: core.answer(.passkey(Self.passkey), on: id, now: now)
    case .display, .keypress: break
    }
    pump()
  }
  /// The recorded host fails the pairing: ours does by itself, or its user refuses.
  private mutating func refuse(_ recorded: [UInt8], _ link: Int, _ id: LinkID) {
    if front(.security, link)?.code == PairingFailed.code { return }
    // A check that is wrong shows after the user has confirmed the numbers.
    if recorded.count == 2, recorded[1] == PairingFailure.dhKeyCheckFailed.rawValue { answerQuestion(link) }
    if front(.security, link)?.code == PairingFailed.code { return }
    // A user who consents and then gives up before the Pairing Response has left.
    if case .consent = live[link]?.pairing.question, recorded.count == 2,
      recorded[1] == PairingFailure.passkeyEntryFailed.rawValue
    {
      core.answer(.consent, on: id, now: now)
    }
    live[link]?.pairing.question = nil
    if core.answer(.refuse, on: id, now: now) { result.use(.refusal, at: number) }
    pump()
  }

  func securityFreedom(_ recorded: [UInt8], _ ours: [UInt8], _ link: Int) -> ReplayFreedom? {
    switch recorded.code {
    // Everything that is drawn, or computed from what is drawn. Vol 3, Part H, §3.5.3 … §3.6.7.
    case PairingConfirm.code, PairingRandom.code, EncryptionInformation.code, CentralIdentification.code,
      IdentityInformation.code, SigningInformation.code, PairingPublicKey.code, PairingDHKeyCheck.code:
      return live[link]?.pairing.peer != nil || seed == nil ? .randomValues : nil
    case IdentityAddressInformation.code: return .ownAddress
    // The reason with which a host refuses to pair at all.
    case PairingFailed.code where recorded.count == 2 && ours.count == 2:
      let reasons = [PairingFailure.pairingNotSupported, .unspecifiedReason, .repeatedAttempts].map(\.rawValue)
      return live[link]?.pairing.recorded?.isRefused == true && reasons.contains(recorded[1])
        && reasons.contains(ours[1]) ? .refusal : nil
    // Which keys are offered and asked for. Vol 3, Part H, §3.6.1.
    case PairingRequest.code, PairingResponse.code:
      return Self.differInKeys(recorded, ours, request: live[link]?.pairing.recorded?.request) ? .keyDistribution : nil
    default: return nil
    }
  }

  /// Two sets of features differ in keys alone. A response may name only those of the request: Vol 3, Part H, §3.6.1.
  private static func differInKeys(_ recorded: [UInt8], _ ours: [UInt8], request: [UInt8]?) -> Bool {
    guard recorded.count == 7, ours.count == 7, recorded[..<5] == ours[..<5] else { return false }
    let permitted = recorded.code == PairingResponse.code ? request : [UInt8](repeating: 0xFF, count: 7)
    guard let permitted, permitted.count == 7 else { return false }
    return (5...6).allSatisfy {
      (recorded[$0] ^ ours[$0]) & ~(KeyDistribution.known.rawValue & permitted[$0]) == 0
    }
  }

  // MARK: Encryption

  mutating func playCommand(_ current: ReplayStep, _ link: Int) {
    let command = script.packets[current.packets[0]].octets
    guard let id = live[link]?.id else { return }
    let isDisconnect = command.commandOpcode == Disconnect.opcode
    // The link ends already. Vol 4, Part E, §7.1.6.
    if isDisconnect, live[link]?.isEnding == true { return permit(.repeatedDisconnect, .commands, link) }
    if isDisconnect { live[link]?.isEnding = true }
    if !isDisconnect, script.isDead(link, at: step) { return result.pass(.deadBearer, at: number) }
    switch try? AnyCommand(command.span) {
    case .disconnect(let disconnect)?:
      if front(.commands, link)?.commandOpcode != Disconnect.opcode {
        core.disconnect(id, reason: disconnect.reason, now: now)
        pump()
      }
    case .leEnableEncryption(let encryption)?:
      answerQuestion(link)
      if front(.commands, link)?.commandOpcode != LEEnableEncryption.opcode {
        giveKey(of: command, link)
        core.encrypt(id, id: newID(), now: now)
        pump()
      }
      keepLinkKey(encryption.longTermKey, link)
    case .leLongTermKeyRequestReply(let reply)?: keepLinkKey(reply.longTermKey, link)
    default: break
    }
    compare(command, .commands, link)
  }
  private mutating func keepLinkKey(_ key: SecretNumber, _ link: Int) {
    guard live[link]?.pairing.phase == .pairing else { return }
    live[link]?.pairing.keys.link = SecurityKey(key.number)
  }
  /// Gives our host, as Central, the key of a recorded LE Enable Encryption. Vol 4, Part E, §7.8.24.
  private mutating func giveKey(of command: [UInt8], _ link: Int) {
    guard case .leEnableEncryption(let command)? = try? AnyCommand(command.span), let peer = live[link]?.peer else {
      return
    }
    give(
      LongTermKey(of: command), isPeers: true, to: peer, on: link, whilePairing: live[link]?.pairing.phase == .pairing)
  }
  /// A Peripheral is asked for a key: it must have the one that the recorded host will reply with.
  mutating func prepareKey(on link: Int, _ event: [UInt8]) {
    guard case .leLongTermKeyRequest(let request)? = try? HCIEvent(event.span), let peer = live[link]?.peer,
      let reply = script.next(
        after: step, on: link, where: { $0.direction == .fromHost && $0.stream == nil })
    else { return }
    let command = script.packets[script.steps[reply].packets[0]].octets
    let isPairing = live[link]?.pairing.phase == .pairing
    switch try? AnyCommand(command.span) {
    case .leLongTermKeyRequestReply(let reply)? where !isPairing:
      give(LongTermKey(of: reply, to: request), isPeers: false, to: peer, on: link)
    case .leLongTermKeyRequestNegativeReply? where !isPairing:
      guard let own = core.bond(with: peer)?.ours.longTermKey, own.ediv == request.encryptedDiversifier,
        own.rand == request.randomNumber.rawValue
      else { return }
      removeBond(link)
    default: break
    }
  }
  /// The recorded host behaves as one that is bonded before it encrypts a link that comes up: our host is given the key
  /// of that bond, which the trace does not show.
  mutating func giveKeysBefore(_ link: Int, to address: PeerAddress) {
    let peer = core.peer(at: address)
    guard core.bond(with: peer) == nil else { return }
    var isBonded = false, isServer = false
    defer {
      // A key that the trace does not show at all.
      if isServer {
        give(LongTermKey(key: SecurityKey(.max), ediv: .max, rand: .max), isPeers: false, to: peer, on: link)
      }
    }
    for index in script.steps(from: script.links[link].begin ?? 0, on: link) {
      let current = script.steps[index], payload = current.payload
      switch current.kind {
      case .frame where current.stream == .security:
        if payload.code != SecurityRequest.code { return }
        isBonded = true
      // Insufficient Encryption: there is a key. Vol 3, Part C, §10.3.1.
      case .frame where current.stream == .server && current.direction == .fromHost:
        if payload.count == 5, payload.opcode == ErrorResponse.opcode,
          payload[4] == ATTError.insufficientEncryption.rawValue
        {
          isBonded = true
          isServer = true
        }
      case .frame, .channel: break
      case .command:
        let command = script.packets[current.packets[0]].octets
        guard case .leEnableEncryption(let command)? = try? AnyCommand(command.span), isBonded else { return }
        isServer = false
        return give(LongTermKey(of: command), isPeers: true, to: peer, on: link)
      case .event:
        let event = script.packets[current.packets[0]].octets
        guard case .leLongTermKeyRequest(let request)? = try? HCIEvent(event.span) else { continue }
        guard isBonded,
          let reply = script.next(after: index, on: link, where: { $0.direction == .fromHost && $0.stream == nil })
        else { return }
        let command = script.packets[script.steps[reply].packets[0]].octets
        guard case .leLongTermKeyRequestReply(let reply)? = try? AnyCommand(command.span) else { return }
        isServer = false
        return give(LongTermKey(of: reply, to: request), isPeers: false, to: peer, on: link)
      }
    }
  }
  /// Encrypts a link on which the trace begins, with a key that the trace does not show: the recorded server permits what
  /// it refuses elsewhere. False if the link is encrypted, or the trace shows its beginning.
  mutating func encryptBefore(_ link: Int) -> Bool {
    guard script.links[link].begin == nil, let id = live[link]?.id, let peer = live[link]?.peer,
      core.security(of: id)?.isEncrypted == false
    else { return false }
    let isCentral = result.links[link].role == .central
    give(LongTermKey(key: SecurityKey(.max), ediv: .max, rand: .max), isPeers: isCentral, to: peer, on: link)
    let handle = script.links[link].handle.littleOctets
    if isCentral {
      core.encrypt(id, id: newID(), now: now)
    } else {
      // LE Long Term Key Request. Vol 4, Part E, §7.7.65.5.
      let event: [UInt8] = [4, 0x3E, 13, 5] + handle + [UInt8](repeating: 0xFF, count: 10)
      core.receive(event.span, now: now)
    }
    pump()
    take(.commands, link)
    // Encryption Change. Vol 4, Part E, §7.7.8.
    let event: [UInt8] = [4, 8, 4, 0] + handle + [1]
    core.receive(event.span, now: now)
    pump()
    return core.security(of: id)?.isEncrypted == true
  }
  /// Gives our host the key of a pairing that the trace does not show.
  private mutating func give(
    _ wanted: LongTermKey, isPeers: Bool, to peer: PeerID, on link: Int, whilePairing isPairing: Bool = false
  ) {
    let old = core.bond(with: peer)
    let known = isPeers ? old?.peers.longTermKey : old?.ours.longTermKey
    // With a key of its own from the same trace our host must answer itself.
    if isPairing || known == wanted || (known != nil && !guessed.contains(peer)) { return }
    if known != nil, known?.ediv == wanted.ediv, known?.rand == wanted.rand { return }
    result.use(.keysBefore, at: number)
    guessed.insert(peer)
    // LE Secure Connections: one key for both roles. Vol 3, Part H, §2.4.4.
    let isShared = wanted.ediv == 0 && wanted.rand == 0 && !isShortTerm(on: link)
    let strength = KeyStrength(isAuthenticated: !deniesEncrypted(link), isSecureConnections: isShared)
    var bond =
      old
      ?? Bond(
        peer: peer, address: core.address(of: peer), strength: strength, ours: DistributedKeys(),
        peers: DistributedKeys())
    if isPeers || isShared { bond.peers.longTermKey = wanted }
    if !isPeers || isShared { bond.ours.longTermKey = wanted }
    do throws(IdentityError) { try core.add(bond, now: now) } catch {}
  }
  /// The key of the current step is the Short Term Key of a legacy pairing in whose middle the trace begins: it has no
  /// EDIV and Rand either, and makes no bond of LE Secure Connections. Vol 3, Part H, §2.4.4.1.
  private func isShortTerm(on link: Int) -> Bool {
    let random = script.previous(before: step, on: link) {
      $0.stream == .security && $0.payload.code == PairingRandom.code
    }
    let check = script.previous(before: step, on: link) {
      $0.stream == .security && [PairingPublicKey.code, PairingDHKeyCheck.code].contains($0.payload.code)
    }
    return random != nil && check == nil
  }
  /// Gives our host a signature key where the recorded one has a bond that the trace does not show. `counter`: of its
  /// next signed write.
  mutating func giveSignatureKey(counter: UInt32, _ link: Int) {
    guard let peer = live[link]?.peer else { return }
    let old = core.bond(with: peer)
    guard old == nil || guessed.contains(peer) && old?.ours.csrk == nil else { return }
    result.use(.keysBefore, at: number)
    guessed.insert(peer)
    var bond =
      old
      ?? Bond(
        peer: peer, address: core.address(of: peer),
        strength: KeyStrength(isAuthenticated: true, isSecureConnections: true), ours: DistributedKeys(),
        peers: DistributedKeys())
    bond.ours.csrk = SecurityKey(1)
    bond.ourSignCounter = counter
    do throws(IdentityError) { try core.add(bond, now: now) } catch {}
  }
  /// The recorded server wants authentication of a client on the encrypted link: the key has none. Vol 3, Part C,
  /// §10.3.1.
  private func deniesEncrypted(_ link: Int) -> Bool {
    var isEncrypted = false
    for index in script.steps(from: step, on: link) {
      let current = script.steps[index], payload = current.payload
      switch current.kind {
      case .event:
        let event = script.packets[current.packets[0]].octets
        switch try? HCIEvent(event.span) {
        case .encryptionChange(let event) where event.status == .success: isEncrypted = event.encryptionEnabled != 0
        case .encryptionChangeV2(let event) where event.status == .success: isEncrypted = event.encryptionEnabled != 0
        default: break
        }
      case .frame
      where current.direction == .fromHost && payload.count == 5 && payload.opcode == ErrorResponse.opcode
        && payload[4] == ATTError.insufficientAuthentication.rawValue:
        if isEncrypted { return true }
      case .frame where current.stream == .security && payload.code != SecurityRequest.code: return false
      case .frame, .command, .channel: break
      }
    }
    return false
  }
  /// The key of a pairing whose random values are not the recorded ones.
  func commandFreedom(_ recorded: [UInt8], _ ours: [UInt8], _ link: Int) -> ReplayFreedom? {
    // Ours has ended the link because of the time-out, with a reason of its own.
    if recorded.commandOpcode == Disconnect.opcode, ours.commandOpcode == Disconnect.opcode,
      script.isDead(link, at: step)
    {
      return .deadBearer
    }
    guard live[link]?.pairing.phase == .pairing, live[link]?.pairing.peer != nil else { return nil }
    switch recorded.commandOpcode {
    case LEEnableEncryption.opcode where recorded[..<16] == ours[..<16]: return .randomValues
    case LELongTermKeyRequestReply.opcode where recorded[..<6] == ours[..<6]: return .randomValues
    default: return nil
    }
  }
}

/// What the recorded host had its controller resolve: the addresses of its bonds. Vol 4, Part E, §7.8.38 … §7.8.40.
struct ResolvingListWatch {
  /// By identity address: the first step that adds it, and the last that removes it.
  private var added: [PeerAddress: Int] = [:]
  private var removed: [PeerAddress: Int] = [:]
  private var cleared: Int?

  init(_ script: Script) {
    for (index, step) in script.steps.enumerated() {
      guard case .command = step.kind else { continue }
      let command = script.packets[step.packets[0]].octets
      switch command.commandOpcode {
      case LEAddDeviceToResolvingList.opcode where command.count >= 11:
        if added[PeerAddress(command)] == nil { added[PeerAddress(command)] = index }
      case LERemoveDeviceFromResolvingList.opcode where command.count >= 11: removed[PeerAddress(command)] = index
      case LEClearResolvingList.opcode, Reset.opcode: cleared = index
      default: break
      }
    }
  }
  /// The bond with this identity, made at step `begin`, cannot have been removed by step `now`.
  func keeps(_ identity: PeerAddress, from begin: Int, now: Int) -> Bool {
    guard let added = added[identity], added < now else { return false }
    return max(removed[identity] ?? -1, cleared ?? -1) < begin
  }
}
extension PeerAddress {
  /// Type and address behind a command's header.
  fileprivate init(_ command: [UInt8]) {
    self.init(
      DeviceAddress((0..<6).reduce(UInt64(0)) { $0 | UInt64(command[5 + $1]) << UInt64(8 * $1) }),
      command[4] == 0 ? .public : .random)
  }
}
extension Collection<UInt8> {
  /// Up to eight octets, the least significant first.
  var little64: UInt64 { reversed().reduce(0) { $0 << 8 | UInt64($1) } }
}

extension LongTermKey {
  fileprivate init(of command: LEEnableEncryption) {
    self.init(
      key: SecurityKey(command.longTermKey.number), ediv: command.encryptedDiversifier,
      rand: command.randomNumber.rawValue)
  }
  fileprivate init(of reply: LELongTermKeyRequestReply, to request: LELongTermKeyRequest) {
    self.init(
      key: SecurityKey(reply.longTermKey.number), ediv: request.encryptedDiversifier,
      rand: request.randomNumber.rawValue)
  }
}
