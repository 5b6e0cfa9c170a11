import CryptoExtras

/// A point that a peer claims to be on P-256, and that a DHKey shows to be. Vol 3, Part H, §3.5.6.
public struct P256PublicKey: BitwiseCopyable, Sendable, Hashable {
  public var x: UInt256
  public var y: UInt256
  public init(x: UInt256, y: UInt256) {
    self.x = x
    self.y = y
  }
  /// Whether the point is on the curve, which costs less than a DHKey. Vol 3, Part H, §2.3.5.6.1.
  public var isOnCurve: Bool {
    do {
      _ = try P256.KeyAgreement.PublicKey(rawRepresentation: octets(of: x) + octets(of: y))
      return true
    } catch {
      return false
    }
  }
}

/// The public key is not a point on the curve: its sender looks for our private key (CVE-2018-5383).
public struct InvalidPublicKey: Error {}

/// The secret of 256 bits that two key pairs share, and that nobody else computes. Vol 3, Part H, §2.3.5.6.1.
///
/// Wiped, compared and hidden as a ``SecurityKey`` is.
public struct DHKey: Sendable, Equatable {
  let key: SymmetricKey
  public init(_ number: UInt256) { key = SymmetricKey(data: octets(of: number)) }
  init(_ secret: SharedSecret) { key = unsafe secret.withUnsafeBytes { unsafe SymmetricKey(data: $0) } }
}
extension DHKey: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  public var description: String { "(secret)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}

/// A private key and its public key on P-256, FIPS 186-3. Vol 3, Part H, §2.3.5.6.1.
///
/// A new pair and a DHKey take 0.12 ms together, in a release build (Decision 0047). Wiped and hidden as a
/// ``SecurityKey`` is.
public struct P256KeyPair: Sendable {
  private let privateKey: P256.KeyAgreement.PrivateKey
  public let publicKey: P256PublicKey

  /// A new key pair.
  public init(using chance: inout some RandomNumberGenerator) {
    while true {
      // Fewer than one in 2^32 numbers of 256 bits is not a private key.
      let number = UInt256(high: .random(using: &chance), low: .random(using: &chance))
      if let pair = P256KeyPair(privateKey: number) {
        self = pair
        return
      }
    }
  }
  /// nil unless 0 < `privateKey` < the order of the curve's group.
  public init?(privateKey number: UInt256) {
    do {
      privateKey = try P256.KeyAgreement.PrivateKey(rawRepresentation: octets(of: number))
    } catch {
      return nil
    }
    let halves = privateKey.publicKey.rawRepresentation
    let numbers = (0..<4).map { halves.dropFirst(16 * $0).prefix(16).reduce(0 as UInt128) { $0 << 8 | UInt128($1) } }
    publicKey = P256PublicKey(
      x: UInt256(high: numbers[0], low: numbers[1]), y: UInt256(high: numbers[2], low: numbers[3]))
  }
  /// The key pair whose private key everybody knows, so that a sniffer can follow a test. Vol 3, Part H, §2.3.5.6.1.
  public static var debug: P256KeyPair {
    let number = UInt256(
      high: 0x3f49f6d4_a3c55f38_74c9b3e3_d2103f50, low: 0x4aff607b_eb40b799_5899b8a6_cd3c1abd)
    guard let pair = P256KeyPair(privateKey: number) else { preconditionFailure("the Specification's own key") }
    return pair
  }

  /// The secret shared with the holder of `publicKey`'s private key. Throws unless it is on the curve.
  public func dhKey(with publicKey: P256PublicKey) throws(InvalidPublicKey) -> DHKey {
    do {
      let point = octets(of: publicKey.x) + octets(of: publicKey.y)
      return try DHKey(privateKey.sharedSecretFromKeyAgreement(with: .init(rawRepresentation: point)))
    } catch {
      throw InvalidPublicKey()
    }
  }
}
extension P256KeyPair: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  public var description: String { "(a key pair)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}
