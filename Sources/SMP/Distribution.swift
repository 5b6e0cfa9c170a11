import BindruneToolbox
import BindruneWire

/// # Distribution
/// **Overview**: phase 3: the keys of later links, over the encrypted link. Vol 3, Part H, §2.4.3 and §3.6.1.
///
/// **Function**: the responder sends its keys first, then the initiator, each in the Specification's order. A key out
/// of that order fails the pairing.
///
/// **Phases** are the codes that are still awaited, in order, the PDUs that are not queued yet, and whether the layer
/// above has still to accept the peer's identity.
struct Distribution: Sendable {
  /// What has to come from the peer.
  private(set) var awaited: [SMPCode]
  /// Our keys, until they are queued: an initiator's when all has come.
  private var prepared: [Outgoing] = []
  private(set) var result: PairingResult
  /// The peer has distributed its identity, and the layer above has not accepted it.
  private(set) var isIdentityOpen = false
  /// All has come, and been accepted.
  var isReceived: Bool { awaited.isEmpty && !isIdentityOpen }
  private let agreement: Agreement
  /// Our addresses, which no peer has.
  private let own: [PairingAddress]

  /// `ownOnAir`: with which the link was made.
  init(_ agreement: Agreement, _ key: LinkKey, ownOnAir: PairingAddress, using chance: inout some RandomNumberGenerator)
  {
    self.agreement = agreement
    own = [ownOnAir, agreement.settings.identity?.address, agreement.settings.ownIdentityAddress].compactMap { $0 }
    let (own, peers) =
      agreement.role == .initiator
      ? (agreement.keysOfInitiator, agreement.keysOfResponder) : (agreement.keysOfResponder, agreement.keysOfInitiator)
    awaited = []
    if peers.contains(.encKey) { awaited += [.encryptionInformation, .centralIdentification] }
    if peers.contains(.idKey) { awaited += [.identityInformation, .identityAddressInformation] }
    if peers.contains(.signKey) { awaited.append(.signingInformation) }
    result = PairingResult(
      method: agreement.method, isSecureConnections: agreement.isSecureConnections, keySize: agreement.keySize,
      isBonding: agreement.isBonding && !key.usesDebugKey, usesDebugKey: key.usesDebugKey)
    if agreement.isSecureConnections {
      result.ours.longTermKey = LongTermKey(key: key.key)
      result.peers.longTermKey = LongTermKey(key: key.key)
    }
    prepare(own, &chance)
  }

  /// Makes our keys, in the order in which they are sent.
  private mutating func prepare(_ toSend: KeyDistribution, _ chance: inout some RandomNumberGenerator) {
    if toSend.contains(.encKey) {
      // EDIV and Rand of 0 name the key of a pairing in progress, so Rand is not 0.
      let key = SecurityKey.random(using: &chance).reduced(to: agreement.keySize.count)
      let ltk = LongTermKey(
        key: key, ediv: .random(in: 0 ... .max, using: &chance), rand: .random(in: 1 ... .max, using: &chance))
      result.ours.longTermKey = ltk
      let identification = CentralIdentification.with { ($0.ediv, $0.rand) = (ltk.ediv, ltk.rand) }
      prepared += [.longTermKey(key), .pdu(.centralIdentification(identification))]
    }
    if toSend.contains(.idKey), let identity = agreement.settings.identity {
      result.ours.irk = identity.irk.isZero ? nil : identity.irk
      result.ours.identityAddress = identity.address
      let address = IdentityAddressInformation.with {
        $0.addrType = identity.address.isRandom ? .randomStatic : .public
        $0.bdADDR = identity.address.address
      }
      prepared += [.identityResolvingKey(identity.irk), .pdu(.identityAddressInformation(address))]
    }
    if toSend.contains(.signKey) {
      let key = SecurityKey.random(using: &chance)
      result.ours.csrk = key
      prepared.append(.signatureKey(key))
    }
  }
  /// The PDUs with our keys; none the second time.
  mutating func takeKeys() -> [Outgoing] {
    defer { prepared = [] }
    return prepared
  }

  mutating func acceptIdentity() { isIdentityOpen = false }
  /// The identity that the peer has distributed.
  var peersIdentity: PairingIdentity? {
    result.peers.identityAddress.map { PairingIdentity(irk: result.peers.irk ?? SecurityKey(0), address: $0) }
  }

  /// Takes the next key. False if it is not the one that is due; throws the reason for which we refuse it.
  mutating func receive(_ message: SMPPDU) throws(PairingFailure) -> Bool {
    guard message.code == awaited.first else { return false }
    awaited.removeFirst()
    switch message {
    case .encryptionInformation(let m):
      let key = SecurityKey(m.longTermKey.number).reduced(to: agreement.keySize.count)
      result.peers.longTermKey = LongTermKey(key: key)
    case .centralIdentification(let m):
      result.peers.longTermKey?.ediv = m.ediv
      result.peers.longTermKey?.rand = m.rand
    case .identityInformation(let m):
      let irk = SecurityKey(m.identityResolvingKey.number)
      result.peers.irk = irk.isZero ? nil : irk
    case .identityAddressInformation(let m):
      let identity = PairingAddress(m.bdADDR, isRandom: m.addrType == .randomStatic)
      guard identity.isIdentity, !own.contains(identity) else { throw .keyRejected }
      result.peers.identityAddress = identity
      isIdentityOpen = agreement.settings.asksIdentity
    case .signingInformation(let m): result.peers.csrk = SecurityKey(m.signatureKey.number)
    case .pairingRequest, .pairingResponse, .pairingConfirm, .pairingRandom, .pairingFailed, .securityRequest,
      .pairingPublicKey, .pairingDHKeyCheck, .pairingKeypressNotification:
      return false
    }
    return true
  }
}
