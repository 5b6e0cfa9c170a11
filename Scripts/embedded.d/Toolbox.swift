// The Toolbox of a device without swift-crypto: `Scripts/embedded` compiles the layers against it. Its ciphers are
// functions in C, which the device provides; the other two files of the module are the Toolbox's own.
//
// A number is passed as its octets, the most significant one first.

@_extern(c, "bindrune_aes128") func encrypt(_ key: UnsafeRawPointer, _ block: UnsafeMutableRawPointer)
@_extern(c, "bindrune_aes_cmac") func authenticate(
  _ key: UnsafeRawPointer, _ octets: UnsafeRawPointer, _ count: Int, _ code: UnsafeMutableRawPointer)
@_extern(c, "bindrune_sha256") func hash(_ octets: UnsafeRawPointer, _ count: Int, _ hash: UnsafeMutableRawPointer)
@_extern(c, "bindrune_p256_is_on_curve") func isOnCurve(_ point: UnsafeRawPointer) -> Bool
/// False unless the private key is one.
@_extern(c, "bindrune_p256_public_key") func publicKey(
  _ privateKey: UnsafeRawPointer, _ point: UnsafeMutableRawPointer
) -> Bool
/// False unless the point is on the curve.
@_extern(c, "bindrune_p256_secret") func secret(
  _ privateKey: UnsafeRawPointer, _ point: UnsafeRawPointer, _ secret: UnsafeMutableRawPointer
) -> Bool

func number(_ octets: [UInt8], _ start: Int = 0) -> UInt128 {
  octets[start..<start + 16].reduce(0) { $0 << 8 | UInt128($1) }
}

public struct SecurityKey: Sendable, Equatable {
  public let number: UInt128
  public init(_ number: UInt128) { self.number = number }
  public init(leastSignificantFirst octets: Span<UInt8>) { self.init(UInt128(leastSignificantFirst: octets)) }
  public static func random(using chance: inout some RandomNumberGenerator) -> SecurityKey {
    SecurityKey(.random(using: &chance))
  }
  public var leastSignificantFirst: InlineArray<16, UInt8> { number.leastSignificantFirst }
  public var isZero: Bool { number == 0 }
  public func reduced(to count: Int) -> SecurityKey {
    precondition((7...16).contains(count))
    return count == 16 ? self : SecurityKey(number & ((1 << (8 * count)) - 1))
  }
}

public struct AES128: Sendable {
  private let key: SecurityKey
  public init(key: UInt128) { self.init(key: SecurityKey(key)) }
  public init(key: SecurityKey) { self.key = key }
  public func encrypt(_ block: UInt128) -> UInt128 {
    let key = octets(of: key.number)
    var block = octets(of: block)
    unsafe BindruneToolbox.encrypt(key, &block)
    return number(block)
  }
}
public func ah(_ key: AES128, _ prand: UInt32) -> UInt32 {
  precondition(prand < 1 << 24)
  return UInt32(truncatingIfNeeded: key.encrypt(UInt128(prand)) & 0xFF_FFFF)
}

public struct AESCMAC: ~Copyable {
  private let key: SecurityKey
  private var message: [UInt8] = []
  public init(key: UInt128) { self.init(key: SecurityKey(key)) }
  public init(key: SecurityKey) { self.key = key }
  public mutating func update(_ octets: Span<UInt8>) {
    for index in octets.indices { message.append(octets[index]) }
  }
  mutating func update(_ number: UInt128, octets count: Int = 16) { message += octets(of: number).suffix(count) }
  mutating func update(_ number: UInt256) { message += octets(of: number) }
  mutating func update(_ secret: DHKey) { update(secret.number) }
  public consuming func finalize() -> UInt128 {
    let key = octets(of: key.number)
    var code = [UInt8](repeating: 0, count: 16)
    unsafe authenticate(key, message, message.count, &code)
    return number(code)
  }
}

public func sha256(_ octets: Span<UInt8>) -> [UInt8] {
  var result = [UInt8](repeating: 0, count: 32)
  unsafe octets.withUnsafeBytes { unsafe hash($0.baseAddress ?? UnsafeRawPointer(bitPattern: 1)!, $0.count, &result) }
  return result
}

public struct P256PublicKey: BitwiseCopyable, Sendable, Hashable {
  public var x: UInt256
  public var y: UInt256
  public init(x: UInt256, y: UInt256) { (self.x, self.y) = (x, y) }
  init(_ point: [UInt8]) {
    x = UInt256(high: number(point), low: number(point, 16))
    y = UInt256(high: number(point, 32), low: number(point, 48))
  }
  var point: [UInt8] { octets(of: x) + octets(of: y) }
  public var isOnCurve: Bool { unsafe BindruneToolbox.isOnCurve(point) }
}
public struct InvalidPublicKey: Error {}
public struct DHKey: Sendable, Equatable {
  let number: UInt256
  public init(_ number: UInt256) { self.number = number }
}
public struct P256KeyPair: Sendable {
  private let privateKey: UInt256
  public let publicKey: P256PublicKey
  public init(using chance: inout some RandomNumberGenerator) {
    while true {
      let number = UInt256(high: .random(using: &chance), low: .random(using: &chance))
      if let pair = P256KeyPair(privateKey: number) {
        self = pair
        return
      }
    }
  }
  public init?(privateKey number: UInt256) {
    var point = [UInt8](repeating: 0, count: 64)
    guard unsafe BindruneToolbox.publicKey(octets(of: number), &point) else { return nil }
    privateKey = number
    publicKey = P256PublicKey(point)
  }
  public static var debug: P256KeyPair {
    let number = UInt256(high: 0x3f49f6d4_a3c55f38_74c9b3e3_d2103f50, low: 0x4aff607b_eb40b799_5899b8a6_cd3c1abd)
    guard let pair = P256KeyPair(privateKey: number) else { preconditionFailure("the Specification's own key") }
    return pair
  }
  public func dhKey(with peers: P256PublicKey) throws(InvalidPublicKey) -> DHKey {
    var result = [UInt8](repeating: 0, count: 32)
    guard unsafe secret(octets(of: privateKey), peers.point, &result) else { throw InvalidPublicKey() }
    return DHKey(UInt256(high: number(result), low: number(result, 16)))
  }
}
