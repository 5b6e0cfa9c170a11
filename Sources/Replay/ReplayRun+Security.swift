import BindruneToolbox
import BindruneWire
import GAP
import HCI
import L2CAP
import SMP

/// How far the pairing of a link is compared.
struct PairingWatch {
  enum Phase { case none, pairing, given }
  var phase = Phase.none
  /// Both devices want LE Secure Connections.
  var isSecureConnections = false
  /// The key is safe from a man in the middle, as far as the features say. Vol 3, Part H, §2.3.5.1.
  var isAuthenticated = true
  var request = PairingFeatures()
  /// A passkey was asked for or shown: the recorded one is unknown.
  var hasPasskey = false
}

extension PairingSettings {
  /// What the recorded host's first Pairing Request or Response shows. Vol 3, Part H, §3.5.1, §3.5.2.
  init(recordedIn script: Script) {
    self.init()
    acceptsDebugKey = true
    let own = script.steps.filter { $0.direction == .fromHost && $0.stream == .security }
    guard let features = own.first(where: { $0.payload.count == 7 && $0.payload[0] <= 2 && $0.payload[0] > 0 })
    else {
      // Only a Security Request, or a refusal.
      if own.first?.payload == [5, 5] { acceptsPairing = false }
      if let request = own.first?.payload, request.count == 2, request[0] == 0x0B {
        take(AuthReq(rawValue: request[1]))
      }
      return
    }
    take(features.payload)
    // The keys and the identity that the host distributed.
    let irk = own.first { $0.payload.count == 17 && $0.payload[0] == 0x08 }?.payload
    let address = own.first { $0.payload.count == 8 && $0.payload[0] == 0x09 }?.payload
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
    let isRequest = pdu[0] == 0x01
    distributes = KeyDistribution(rawValue: pdu[isRequest ? 5 : 6])
    requests = KeyDistribution(rawValue: pdu[isRequest ? 6 : 5])
  }
  private mutating func take(_ authReq: AuthReq) {
    isBonding = authReq.isBonding
    protection = authReq.contains(.mitm) ? .wanted : .notNeeded
    secureConnections = authReq.contains(.sc) ? .supported : .off
    sendsKeypresses = authReq.contains(.keypress)
    supportsH7 = authReq.contains(.ct2)
  }
}

// Pairing and encryption.
extension ReplayRun {
  mutating func playSecurity(_ recorded: [UInt8], _ link: Int) {
    guard let id = live[link]?.id, let code = recorded.first else { return }
    watch(recorded, link)
    if live[link]?.pairing.phase == .given { return result.use(.pairingNotCompared, at: number) }
    switch code {
    case 0x01 where recorded.count == 7, 0x0B where recorded.count == 2:
      // Our host may have begun by itself, because the peer asked.
      if front(.security, link)?.first == code { break }
      var settings = configuration.pairing
      if code == 0x01 { settings.take(recorded) }
      core.pair(id, settings, id: newID(), now: now)
      pump()
    case 0x05 where front(.security, link)?.first != 0x05:
      core.answer(.refuse, on: id, now: now)
      pump()
    default: break
    }
    compare(recorded, .security, link)
  }
  /// False: the peer's PDU depends on random numbers that only the recorded host had, and is kept from ours.
  mutating func admits(_ pdu: [UInt8], _ link: Int) -> Bool {
    watch(pdu, link)
    guard let pairing = live[link]?.pairing else { return true }
    if pairing.phase == .given { return false }
    // The random number confirms a value computed from our public key or passkey: Vol 3, Part H, §2.3.5.5, §2.3.5.6.
    guard pdu.first == 0x04, seed == nil else { return true }
    let isOwnAddressKnown = isOwnAddressKnown && script.links[link].begin != nil
    guard pairing.isSecureConnections || pairing.hasPasskey || !isOwnAddressKnown else { return true }
    if !pairing.isSecureConnections, !isOwnAddressKnown { result.use(.ownAddress, at: number) }
    result.use(.pairingNotCompared, at: number)
    live[link]?.pairing.phase = .given
    // Unspecified Reason ends the pairing for our host. Vol 3, Part H, §3.5.5.
    feed([0x05, 0x08], on: .securityManager, of: link)
    while take(.security, link) != nil {}
    return false
  }
  /// Notes what a recorded PDU of either side says about the pairing.
  private mutating func watch(_ pdu: [UInt8], _ link: Int) {
    do throws(WireError) {
      switch try SMPPDU(pdu.span) {
      case .pairingRequest(let request):
        live[link]?.pairing = PairingWatch(phase: .pairing, request: request.features)
      case .pairingResponse(let response):
        guard let request = live[link]?.pairing.request else { return }
        let method = MethodTable.method(request: request, response: response.features)
        live[link]?.pairing.isAuthenticated = method?.isAuthenticated ?? true
        live[link]?.pairing.isSecureConnections =
          request.authReq.contains(.sc) && response.features.authReq.contains(.sc)
      case .securityRequest: live[link]?.pairing = PairingWatch()
      default: break
      }
    } catch {}
  }
  /// The user's answer: as the recorded host goes on.
  mutating func answer(_ question: PairingQuestion, _ id: LinkID) {
    guard let link = place(of: id) else { return }
    let next = script.next(after: step, on: link) { $0.direction == .fromHost && $0.stream == .security }
    let isRefused = next.map { script.steps[$0].payload.first == 0x05 } ?? true
    switch question {
    case .consent: core.answer(isRefused ? .refuse : .consent, on: id, now: now)
    case .compare: if !isRefused { core.answer(.numbersMatch, on: id, now: now) }
    case .display: live[link]?.pairing.hasPasskey = true
    case .enterPasskey:
      // The recorded digits are unknown; any others make values that differ as random ones do.
      live[link]?.pairing.hasPasskey = true
      core.answer(isRefused ? .refuse : .passkey(0), on: id, now: now)
    case .keypress: break
    }
  }
  func securityFreedom(_ recorded: [UInt8], _ ours: [UInt8]) -> ReplayFreedom? {
    switch recorded[0] {
    // Everything that is drawn, or computed from what is drawn. Vol 3, Part H, §3.5.3 … §3.6.7.
    case 0x03, 0x04, 0x06, 0x07, 0x08, 0x0A, 0x0C, 0x0D: return seed == nil ? .randomValues : nil
    case 0x09: return .ownAddress
    // The octets that our application chooses; those that the request determines must agree. §3.5.1.
    case 0x01, 0x02: return recorded[1] != ours[1] || recorded[3] != ours[3] ? .parameters : nil
    default: return nil
    }
  }

  // MARK: Encryption

  mutating func playCommand(_ current: ReplayStep, _ link: Int) {
    let command = script.packets[current.packets[0]].octets
    guard let id = live[link]?.id else { return }
    switch command.little16(1) {
    case 0x0406:
      if front(.commands, link)?.little16(1) != 0x0406 {
        core.disconnect(id, reason: HCIStatus(rawValue: command.count > 6 ? command[6] : 0x13), now: now)
        pump()
      }
    case 0x2019 where command.count == 32:
      if front(.commands, link)?.little16(1) != 0x2019 {
        let key = Array(command[16..<32]), rand = command[6..<14].reversed().reduce(0) { $0 << 8 | UInt64($1) }
        give(key, ediv: command.little16(14), rand: rand, isPeers: true, link)
        core.encrypt(id, id: newID(), now: now)
        pump()
      }
    default: break
    }
    compare(command, .commands, link)
  }
  /// A Peripheral is asked for a key: it must have the one that the recorded host will reply with.
  mutating func prepareKey(on link: Int, _ event: [UInt8]) {
    guard event.count == 16,
      let reply = script.next(
        after: step, on: link, where: { $0.direction == .fromHost && $0.stream == nil }),
      live[link] != nil
    else { return }
    let command = script.packets[script.steps[reply].packets[0]].octets
    guard command.count == 22, command.little16(1) == 0x201A else { return }
    let isPairing = live[link]?.pairing.phase == .pairing
    let rand = event[6..<14].reversed().reduce(0) { $0 << 8 | UInt64($1) }
    if isPairing, event[6..<16].allSatisfy({ $0 == 0 }) { return }
    give(Array(command[6..<22]), ediv: event.little16(14), rand: rand, isPeers: false, link)
  }
  /// Gives our host the key of a pairing that the trace does not show, or that was not compared.
  private mutating func give(_ key: [UInt8], ediv: UInt16, rand: UInt64, isPeers: Bool, _ link: Int) {
    guard let peer = live[link]?.peer else { return }
    let wanted = LongTermKey(key: SecurityKey(leastSignificantFirst: key.span), ediv: ediv, rand: rand)
    let old = core.bond(with: peer)
    let known = isPeers ? old?.peers.longTermKey : old?.ours.longTermKey
    // With a key of its own from the same trace our host must answer itself.
    if known == wanted || (known != nil && seed != nil) { return }
    if known != nil, known?.ediv == ediv, known?.rand == rand { return }
    result.use(.keysBefore, at: number)
    let strength = KeyStrength(
      isAuthenticated: live[link]?.pairing.isAuthenticated ?? true, isSecureConnections: ediv == 0 && rand == 0)
    var bond =
      old
      ?? Bond(
        peer: peer, address: peer.firstAddress, strength: strength, ours: DistributedKeys(), peers: DistributedKeys())
    if isPeers || ediv == 0 && rand == 0 { bond.peers.longTermKey = wanted }
    if !isPeers || ediv == 0 && rand == 0 { bond.ours.longTermKey = wanted }
    do throws(IdentityError) { try core.add(bond, now: now) } catch {}
  }
  /// The key, and for a Central EDIV and Rand, of a pairing whose random values are not the recorded ones.
  func commandFreedom(_ recorded: [UInt8], _ ours: [UInt8]) -> ReplayFreedom? {
    guard seed == nil, recorded.little16(1) == ours.little16(1), recorded[4] == ours[4], recorded[5] == ours[5] else {
      return nil
    }
    return [0x2019, 0x201A].contains(recorded.little16(1)) ? .randomValues : nil
  }
}
