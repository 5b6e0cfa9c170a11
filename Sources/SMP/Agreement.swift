import BindruneToolbox
import BindruneWire

/// What two devices have agreed on in phase 1. Vol 3, Part H, §2.3.
struct Agreement: Sendable {
  let role: PairingRole
  /// Ours, when the pairing began.
  let settings: PairingSettings
  let request: PairingFeatures
  let response: PairingFeatures
  let method: PairingMethod
  let isSecureConnections: Bool
  let keySize: EncryptionKeySize
  let isBonding: Bool
  let keysOfInitiator: KeyDistribution
  let keysOfResponder: KeyDistribution

  /// Throws the reason for which we do not pair so.
  init(
    _ role: PairingRole, _ request: PairingFeatures, _ response: PairingFeatures, _ settings: PairingSettings
  ) throws(PairingFailure) {
    self.role = role
    self.settings = settings
    self.request = request
    self.response = response
    let peers = role == .initiator ? response : request
    guard peers.ioCapability.name != nil, let method = MethodTable.method(request: request, response: response)
    else { throw .invalidParameters }
    // A response asks for no key that the request does not offer; reserved bits are ignored: §3.6.1.
    guard response.initiatorKeyDistribution.intersection(.known).isSubset(of: request.initiatorKeyDistribution),
      response.responderKeyDistribution.intersection(.known).isSubset(of: request.responderKeyDistribution)
    else { throw .invalidParameters }
    self.method = method
    isSecureConnections = request.authReq.contains(.sc) && response.authReq.contains(.sc)
    isBonding = request.authReq.isBonding && response.authReq.isBonding
    // LE Secure Connections has its long term key already; link keys are derived, not sent: §3.6.1.
    let never: KeyDistribution = isSecureConnections ? [.encKey, .linkKey] : .linkKey
    keysOfInitiator = response.initiatorKeyDistribution.subtracting(never)
    keysOfResponder = response.responderKeyDistribution.subtracting(never)
    keySize = min(request.maximumEncryptionKeySize, response.maximumEncryptionKeySize)

    // §2.3.5.1: what we demand and the features do not give.
    let isOnly = settings.secureConnections == .only
    if isOnly, !isSecureConnections { throw .authenticationRequirements }
    if keySize < (isOnly ? .longest : settings.keySizes.lowerBound) { throw .encryptionKeySize }
    if settings.requiresOutOfBand, method != .outOfBand { throw .oobNotAvailable }
    if settings.protection == .required, !method.isAuthenticated { throw .authenticationRequirements }
    if method == .outOfBand, !hasOutOfBandData { throw .oobNotAvailable }
    if isBonding, !settings.bondsUnauthenticated, !method.isAuthenticated { throw .authenticationRequirements }
  }

  /// The flags say that there is data; it also has to be that of this kind of pairing.
  private var hasOutOfBandData: Bool {
    let (own, peers) = role == .initiator ? (request, response) : (response, request)
    guard isSecureConnections else {
      if case .legacy = settings.peersData { return true }
      return false
    }
    if own.oobDataFlag == .present {
      guard case .secureConnections = settings.peersData else { return false }
    }
    return peers.oobDataFlag == .notPresent || settings.ownData != nil
  }

  func strength(of key: LinkKey) -> KeyStrength {
    KeyStrength(
      isAuthenticated: method.isAuthenticated && !key.usesDebugKey, isSecureConnections: isSecureConnections,
      size: keySize)
  }
  /// Both have said that they notify.
  var notifiesKeypresses: Bool { request.authReq.intersection(response.authReq).contains(.keypress) }
  /// Whether our user enters a passkey; `nil` if the method has none.
  var entersPasskey: Bool? {
    switch method {
    case .passkeyEntry(.bothEnter): true
    case .passkeyEntry(.initiatorDisplays): role == .responder
    case .passkeyEntry(.responderDisplays): role == .initiator
    case .justWorks, .numericComparison, .outOfBand: nil
    }
  }
}

extension PairingFeatures {
  /// The features of a device with `settings`.
  private init(_ settings: PairingSettings) {
    ioCapability = settings.ioCapability
    oobDataFlag = settings.peersData == nil ? .notPresent : .present
    authReq = AuthReq(with: settings)
    maximumEncryptionKeySize = settings.keySizes.upperBound
  }
  init(requestWith settings: PairingSettings) {
    var settings = settings
    // Without bonds from Just Works there is one only if the peer can take part in something better.
    if !settings.bondsUnauthenticated, !settings.canAuthenticate { settings.isBonding = false }
    self.init(settings)
    guard settings.isBonding else { return }
    initiatorKeyDistribution = settings.keysToSend
    responderKeyDistribution = settings.requests
  }
  init(responseTo request: PairingFeatures, with settings: PairingSettings) {
    self.init(settings)
    if !settings.bondsUnauthenticated, MethodTable.method(request: request, response: self)?.isAuthenticated != true {
      authReq.subtract(.bonding)
      return
    }
    guard settings.isBonding, request.authReq.isBonding else { return }
    initiatorKeyDistribution = request.initiatorKeyDistribution.intersection(settings.requests)
    responderKeyDistribution = request.responderKeyDistribution.intersection(settings.keysToSend)
  }
  /// The Pairing Request, or Response, as c1 takes it: the code is its least significant octet. §2.2.3.
  func number(_ code: SMPCode) -> UInt64 {
    let octets = [
      code.wire, ioCapability.wire, oobDataFlag.wire, authReq.wire, maximumEncryptionKeySize.wire,
      initiatorKeyDistribution.wire, responderKeyDistribution.wire,
    ]
    return octets.reversed().reduce(0) { $0 << 8 | $1 }
  }
  /// IOcap of f6: AuthReq is the most significant octet. §2.2.8.
  var ioCap: UInt32 {
    UInt32(authReq.rawValue) << 16 | UInt32(oobDataFlag.rawValue) << 8 | UInt32(ioCapability.rawValue)
  }
}
extension PairingSettings {
  /// Some peer can pair with these settings by another method than Just Works.
  fileprivate var canAuthenticate: Bool {
    ioCapability != .noInputNoOutput || peersData != nil || ownData != nil
  }
  /// Without an identity there is none to send; link keys are not ours to derive.
  fileprivate var keysToSend: KeyDistribution {
    distributes.subtracting(identity == nil ? [.idKey, .linkKey] : .linkKey)
  }
}
extension AuthReq {
  init(with settings: PairingSettings) {
    self = []
    if settings.isBonding { insert(.bonding) }
    if settings.protection != .notNeeded { insert(.mitm) }
    if settings.secureConnections != .off { insert(.sc) }
    if settings.sendsKeypresses { insert(.keypress) }
    if settings.supportsH7 { insert(.ct2) }
  }
}
