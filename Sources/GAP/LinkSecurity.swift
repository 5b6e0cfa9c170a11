import BindruneWire
import BindruneGATT
import BindruneSMP

/// What protects a link now. Vol 3, Part C, §10.2.1.
public struct LinkSecurity: BitwiseCopyable, Sendable, Hashable {
  /// Of the key that encrypts the link; nil: the link is not encrypted.
  public var key: KeyStrength?
  /// There is a bond with the peer that this link claims to have; an encrypted link proves that.
  public var isBonded = false
  public init(key: KeyStrength? = nil, isBonded: Bool = false) {
    self.key = key
    self.isBonded = isBonded
  }
  public static var none: LinkSecurity { LinkSecurity() }

  public var isEncrypted: Bool { key != nil }
  /// Encrypted by a key that was exchanged with protection against a man in the middle.
  public var isAuthenticated: Bool { key?.isAuthenticated == true }
  /// The level in LE security mode 1: 1 not encrypted, 2 encrypted, 3 authenticated, 4 the same with LE Secure
  /// Connections and a key of 16 octets.
  public var level: Int {
    guard let key else { return 1 }
    if !key.isAuthenticated { return 2 }
    return key.isSecureConnections && key.size == .longest ? 4 : 3
  }
  /// The same for GATT's permissions.
  var bearer: BearerSecurity {
    if isEncrypted { return isAuthenticated ? .authenticated : .encrypted }
    return isBonded ? .keysAvailable : .none
  }
}

extension LinkSecurity: CustomStringConvertible {
  /// `encrypted (Secure Connections, authenticated, 16 octets), bonded`.
  public var description: String {
    (key.map { "encrypted (\($0))" } ?? "not encrypted") + (isBonded ? ", bonded" : "")
  }
}
