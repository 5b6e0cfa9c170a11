import BindruneToolbox
import BindruneWire

/// What a pairing has made.
public struct PairingResult: Sendable, Equatable {
  public let method: PairingMethod
  /// LE Secure Connections; otherwise LE legacy pairing.
  public let isSecureConnections: Bool
  /// Of the key that encrypts the link.
  public let keySize: EncryptionKeySize
  /// Both devices want the keys kept. False with a debug key: what everybody can compute is not kept.
  public let isBonding: Bool
  /// A private key was the one that everybody knows.
  public let usesDebugKey: Bool
  /// Keys that we have given the peer: as a Peripheral we answer the peer's later request for encryption with them.
  public internal(set) var ours = DistributedKeys()
  /// Keys that the peer has given us: as a Central we encrypt a later link with them.
  public internal(set) var peers = DistributedKeys()

  /// Whether a man in the middle would have been noticed.
  public var isAuthenticated: Bool { method.isAuthenticated && !usesDebugKey }
  public var strength: KeyStrength {
    KeyStrength(isAuthenticated: isAuthenticated, isSecureConnections: isSecureConnections, size: keySize)
  }
}

/// The keys of one device. Vol 3, Part H, §2.4.
public struct DistributedKeys: Sendable, Equatable {
  /// LE Secure Connections has one for both devices, with EDIV and Rand of 0.
  public var longTermKey: LongTermKey?
  /// Absent if the device uses no resolvable private addresses.
  public var irk: SecurityKey?
  public var identityAddress: PairingAddress?
  public var csrk: SecurityKey?
  public init() {}
}

/// A long term key, and the numbers by which a Central names it. Vol 3, Part H, §2.4.4.
public struct LongTermKey: Sendable, Equatable {
  public var key: SecurityKey
  public var ediv: UInt16
  public var rand: UInt64
  public init(key: SecurityKey, ediv: UInt16 = 0, rand: UInt64 = 0) {
    self.key = key
    self.ediv = ediv
    self.rand = rand
  }
}

/// Why a pairing, or a Security Request, ended without result.
public enum PairingError: Error, BitwiseCopyable, Sendable, Equatable {
  /// We have sent Pairing Failed.
  case ours(PairingFailure)
  /// The peer has sent Pairing Failed.
  case peers(PairingFailure)
  /// 30 s without progress, or without an answer to a Security Request. Nothing more is sent until the link ends. Vol
  /// 3, Part H, §3.4.
  case timedOut
  /// The controllers could not encrypt the link with the new key.
  case encryptionFailed
  case linkClosed
}

extension PairingError: CustomStringConvertible {
  /// `Confirm Value Failed (0x04), found by us`.
  public var description: String {
    switch self {
    case .ours(let reason): "\(reason), found by us"
    case .peers(let reason): "\(reason), found by the peer"
    case .timedOut: "no progress for 30 s"
    case .encryptionFailed: "the link could not be encrypted"
    case .linkClosed: "the link has ended"
    }
  }
}

/// Why a command was not carried out; nothing has been sent.
public enum PairingRefusal: Error, BitwiseCopyable, Sendable, Equatable {
  /// Only a Central pairs, only a Peripheral requests security.
  case wrongRole
  /// A pairing, or a Security Request, is in progress.
  case busy
  /// The last attempt has failed too short a time ago. Vol 3, Part H, §2.3.6.
  case tooEarly(until: Instant)
  /// A pairing, or a Security Request, has timed out on this link, or the link has ended. Vol 3, Part H, §3.4.
  case silent
  /// The composer has no random numbers, without which no key is secret.
  case noRandomNumbers
}

/// What the layer above must do or know, in order.
public enum SecurityEffect: Sendable, Equatable {
  // MARK: Questions, answered by a command of ``SecurityManager``

  /// Pair by this method: `accept` or `refuse`. The peer wants it, or `PairingSettings.asksConsent` is set.
  case requestConsent(PairingMethod)
  /// The peer has distributed `SecurityManager.openIdentity` as its own: `accept`, or `refuse` with Key Rejected. Only
  /// with `PairingSettings.asksIdentity`.
  case considerIdentity
  /// Show six digits, zeros in front; the user enters them on the peer.
  case displayPasskey(UInt32)
  /// Ask for six digits: `enter(passkey:)` or `refuse`.
  case requestPasskey
  /// Show six digits, zeros in front, and ask whether the peer shows the same: `confirmNumbers` or `refuse`.
  case compareNumbers(UInt32)
  /// A Peripheral wants encryption (Vol 3, Part H, §2.4.6): encrypt with an earlier key, `pair`, or
  /// `refuseSecurityRequest`.
  case considerSecurityRequest(AuthReq)

  // MARK: Work

  /// Central: encrypt the link with this key, EDIV and Rand of 0. Report `encryptionChanged`.
  case encrypt(SecurityKey)
  /// The peer's user does this while entering the passkey that we display.
  case showKeypress(KeypressNotificationType)

  // MARK: Ends. `pair`, an accepted request and `requestSecurity` have exactly one of them.

  case completed(PairingResult)
  case failed(PairingError)
  /// The Central has answered our Security Request: the link is encrypted with an earlier key.
  case resumed

  /// The peer has sent what it should not have; no answer is missing.
  case report(SMPViolation)
}

/// What a peer has done wrong, where that is not already a failure of the pairing.
public enum SMPViolation: Error, BitwiseCopyable, Sendable, Equatable {
  /// The PDU has no place in this phase. In a pairing it fails with Unspecified Reason.
  case unexpected(SMPCode)
  /// The PDU cannot be read. In a pairing it fails with Invalid Parameters.
  case malformed(SMPCode, WireError.Reason)
  /// A reserved code is ignored: Vol 3, Part H, §3.3.
  case reserved(SMPCode)
  /// A PDU without an octet.
  case empty
  /// A PDU after a time-out is ignored: Vol 3, Part H, §3.4.
  case afterTimeOut(SMPCode)
}
