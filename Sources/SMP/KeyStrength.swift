/// How strong the key of a pairing is. Vol 3, Part C, §10.2.1.
public struct KeyStrength: BitwiseCopyable, Sendable, Hashable {
  /// A man in the middle would have been noticed.
  public var isAuthenticated: Bool
  /// LE Secure Connections; otherwise LE legacy pairing.
  public var isSecureConnections: Bool
  public var size: EncryptionKeySize
  public init(isAuthenticated: Bool, isSecureConnections: Bool, size: EncryptionKeySize = .longest) {
    self.isAuthenticated = isAuthenticated
    self.isSecureConnections = isSecureConnections
    self.size = size
  }
  /// In one respect at least.
  public func isWeaker(than other: KeyStrength) -> Bool {
    other.isAuthenticated && !isAuthenticated || other.isSecureConnections && !isSecureConnections || size < other.size
  }
}

extension KeyStrength: CustomStringConvertible {
  /// `Secure Connections, authenticated, 16 octets`.
  public var description: String {
    let kind = isSecureConnections ? "Secure Connections" : "legacy"
    return "\(kind), \(isAuthenticated ? "authenticated" : "unauthenticated"), \(size.count) octets"
  }
}
