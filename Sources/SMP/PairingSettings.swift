import BindruneToolbox
import BindruneWire

/// What this device offers and demands in a pairing.
public struct PairingSettings: Sendable {
  /// Whether a pairing must be, or should be, safe from a man in the middle. Vol 3, Part H, §2.3.1.
  public enum Protection: BitwiseCopyable, Sendable {
    case notNeeded
    /// The MITM flag is set; Just Works is accepted where the IO capabilities permit no more.
    case wanted
    /// Just Works fails with Authentication Requirements.
    case required
  }
  /// Vol 3, Part H, §2.3.1; Vol 3, Part C, §10.2.4.
  public enum SecureConnections: BitwiseCopyable, Sendable {
    case off, supported
    /// Secure Connections Only mode: legacy pairing fails with Authentication Requirements, a key shorter than 16
    /// octets with Encryption Key Size. Add ``Protection/required`` for security mode 1, level 4.
    case only
  }

  /// False: the peer's requests are answered with Pairing Not Supported.
  public var acceptsPairing = true
  /// Ask for consent (`SecurityEffect.requestConsent`) also in a pairing that this side begins, if it is Just Works:
  /// for one that no user has asked for.
  public var asksConsent = false
  public var ioCapability = IOCapability.noInputNoOutput
  /// Ask (`SecurityEffect.considerIdentity`) when the peer has distributed an identity, before anything follows: for a
  /// layer above that knows whose identity it is.
  public var asksIdentity = false
  /// Whether the keys are to be kept. Otherwise none are distributed.
  public var isBonding = true
  /// False: a Just Works pairing makes no bond. The features say so where they can; an Initiator that has hoped for
  /// digits fails with Authentication Requirements.
  public var bondsUnauthenticated = true
  public var protection = Protection.wanted
  public var secureConnections = SecureConnections.supported
  /// The lengths of the encryption key that are accepted; the upper bound is what is offered. Only 16 octets, unless
  /// the application chooses less: `.shortest ... .longest` accepts all that Vol 3, Part H, §2.3.4, permits, down to 7.
  public var keySizes = EncryptionKeySize.longest...EncryptionKeySize.longest
  /// Notify the peer of keys while a passkey is entered, and be notified.
  public var sendsKeypresses = false
  /// h7 may derive keys of the other transport: a dual-mode device's bit.
  public var supportsH7 = false
  /// Keys from us. The identity is sent only if there is one.
  public var distributes: KeyDistribution = [.encKey, .idKey]
  /// Keys from the peer.
  public var requests: KeyDistribution = [.encKey, .idKey]
  /// Our IRK, or zeros if we use no private addresses, and our identity address.
  public var identity: PairingIdentity?
  /// Our identity address, sent or not: a peer that distributes it as its own gets Key Rejected.
  public var ownIdentityAddress: PairingAddress?
  /// Data of the peer that came out of band.
  public var peersData: PeersOutOfBandData?
  /// Our own data that the peer may have received out of band: this pairing uses its key pair.
  public var ownData: OwnOutOfBandData?
  /// Any method but Out of Band fails with OOB Not Available.
  public var requiresOutOfBand = false
  /// Accept a peer whose private key everybody knows. Only for tests with a sniffer.
  public var acceptsDebugKey = false
  /// Use the key pair that everybody knows. Only for tests with a sniffer.
  public var usesDebugKey = false
  public init() {}

  /// Whether a pairing with these settings may make a key that satisfies a server which has refused a request on a link
  /// with `key`, nil if it is not encrypted. `isTooShort`: the server has refused the key for its size (0x0C).
  public func canImprove(_ key: KeyStrength?, isTooShort: Bool) -> Bool {
    guard let key else { return true }
    if isTooShort { return key.size < keySizes.upperBound }
    return !key.isAuthenticated && (ioCapability != .noInputNoOutput || peersData != nil)
  }
}

/// An address, as pairing computes with it: 48 bits below the octet of its type.
public struct PairingAddress: BitwiseCopyable, Sendable, Hashable {
  public var address: DeviceAddress
  public var isRandom: Bool
  public init(_ address: DeviceAddress, isRandom: Bool) {
    self.address = address
    self.isRandom = isRandom
  }
  /// Whether a device can have it as its identity address. Vol 3, Part H, §3.6.5.
  public var isIdentity: Bool { address.isIdentity(isRandom: isRandom) }
  /// The 56 bits of f5 and f6.
  var number: UInt64 { (isRandom ? 1 << 48 : 0) | address.value }
}

/// The two addresses that the link was made with: Vol 3, Part H, §2.2.3 and §2.2.7.
public struct PairingAddresses: BitwiseCopyable, Sendable, Hashable {
  public var initiator: PairingAddress
  public var responder: PairingAddress
  public init(initiator: PairingAddress, responder: PairingAddress) {
    self.initiator = initiator
    self.responder = responder
  }
  /// That of the device in `role`.
  func own(_ role: PairingRole) -> PairingAddress { role == .initiator ? initiator : responder }
}

/// An IRK and the address that stands behind the private ones. Vol 3, Part H, §3.6.4 and §3.6.5.
public struct PairingIdentity: Sendable, Equatable {
  /// Zeros: the device uses no resolvable private addresses.
  public var irk: SecurityKey
  /// Public or static random.
  public var address: PairingAddress
  public init(irk: SecurityKey, address: PairingAddress) {
    self.irk = irk
    self.address = address
  }
}

/// What the peer has given us out of band.
public enum PeersOutOfBandData: Sendable, Equatable {
  /// The temporary key, which both have. Vol 3, Part H, §2.3.5.4.
  case legacy(SecurityKey)
  /// The peer's confirm value and random number. Vol 3, Part H, §2.3.5.6.4.
  case secureConnections(confirm: UInt128, random: SecurityKey)
}
/// What we give the peer out of band for LE Secure Connections. Vol 3, Part H, §2.3.5.6.4.
public struct OwnOutOfBandData: Sendable {
  public let keyPair: P256KeyPair
  /// r: as secret as a key, because who knows it can pass for this device.
  public let random: SecurityKey
  public init(using chance: inout some RandomNumberGenerator) {
    keyPair = P256KeyPair(using: &chance)
    random = .random(using: &chance)
  }
  public var confirm: UInt128 { f4(keyPair.publicKey.x, keyPair.publicKey.x, random.number, 0) }
  /// The peer's view of it.
  public var forPeer: PeersOutOfBandData { .secureConnections(confirm: confirm, random: random) }
}

/// When a peer may try again after failures. Vol 3, Part H, §2.3.6.
///
/// The interval doubles with each failure, and halves with each minute that passes after it without another. Keep this
/// with the peer, and give it to the next link: an attacker may reconnect.
///
/// Another one, with an allowance, may count the failures of all peers together: an attacker may change its address.
public struct PairingAttempts: BitwiseCopyable, Sendable, Equatable {
  private var failures: UInt64 = 0
  private var lastFailure = Instant.zero
  /// Failures that cost no wait.
  private let allowance: UInt64
  /// How often the interval doubles, and 1.
  private let steps: UInt64
  /// 1 s, 2 s, 4 s … 512 s.
  public init() {
    allowance = 0
    steps = 10
  }
  /// 1 s, 2 s, 4 s … 64 s after more failures than `allowance`.
  public init(allowance: UInt32) {
    self.allowance = UInt64(allowance)
    steps = 7
  }

  private static var quietSeconds: UInt64 { 60 }

  private var end: Instant? {
    failures <= allowance ? nil : lastFailure.adding(seconds: 1 << (failures - allowance - 1))
  }
  /// The time before which an attempt is too early; `nil` if none is.
  public func nextAttempt(now: Instant) -> Instant? { end.flatMap { now < $0 ? $0 : nil } }

  public mutating func recordFailure(now: Instant) {
    let since = end ?? lastFailure
    let quiet = now > since ? (now.nanoseconds - since.nanoseconds) / 1_000_000_000 : 0
    failures = min(failures - min(failures, quiet / Self.quietSeconds) + 1, allowance + steps)
    lastFailure = now
  }
  mutating func recordSuccess() { self = PairingAttempts() }
}
