import BindruneToolbox
import BindruneWire

/// What stands in the place of what: the same original has the same replacement, which the seed chooses.
///
/// Replacements come from AES-CMAC with a secret key: without the seed nobody can test a guess of an original.
struct ScrubReplacements {
  private let secret: SecurityKey
  /// Identity Resolving Keys of the trace, and the caller's.
  private(set) var identities: [(original: UInt128, key: AES128, replacement: UInt128, newKey: AES128)] = []
  /// Least significant octet first.
  private(set) var addresses: [UInt64: UInt64] = [:]
  private(set) var keys: [[UInt8]: [UInt8]] = [:]
  private(set) var names: [[UInt8]: [UInt8]] = [:]
  private(set) var resolved = 0
  private var used: Set<UInt64> = []
  private var identifiers: [[UInt8]: [UInt8]] = [:]
  private var usedIdentifiers: Set<[UInt8]> = []
  /// Values that were ever seen as random addresses, and all addresses.
  private let random: Set<UInt64>
  private let originals: Set<UInt64>

  init(seed: UInt128, identities: [UInt128], addresses: [(value: UInt64, isRandom: Bool?)]) {
    secret = SecurityKey(seed)
    random = Set(addresses.filter { $0.isRandom == true }.map(\.value))
    originals = Set(addresses.map(\.value))
    for original in identities where original != 0 && !self.identities.contains(where: { $0.original == original }) {
      let replacement = UInt128(leastSignificantFirst: key(Array(octets: original)).span)
      self.identities.append((original, AES128(key: original), replacement, AES128(key: replacement)))
    }
  }

  /// `count` octets that depend on the secret, the purpose and `octets`.
  private func stream(_ purpose: UInt8, _ octets: [UInt8], _ count: Int) -> [UInt8] {
    var result: [UInt8] = [], block: UInt8 = 0
    while result.count < count {
      var code = AESCMAC(key: secret)
      code.update(([purpose, block] + octets).span)
      result += Array(octets: code.finalize())
      block &+= 1
    }
    return Array(result.prefix(count))
  }

  // MARK: Addresses

  private static func resolves(_ key: AES128, _ address: UInt64) -> Bool {
    ah(key, UInt32(truncatingIfNeeded: address >> 24)) == UInt32(truncatingIfNeeded: address & 0xFF_FFFF)
  }
  /// The place of the identity whose key resolves a private address. Vol 6, Part B, §1.3.2.3.
  func identity(of address: UInt64) -> Int? {
    guard DeviceAddress(address).randomKind == .resolvablePrivate else { return nil }
    return identities.firstIndex { Self.resolves($0.key, address) }
  }
  mutating func address(_ original: UInt64) -> UInt64 {
    // All zeros and all ones stand for no address.
    if original == 0 || original == 0xFFFF_FFFF_FFFF { return original }
    if let known = addresses[original] { return known }
    let isRandom = random.contains(original), kind = isRandom ? original >> 46 : nil
    let identity = isRandom ? identity(of: original) : nil
    if identity != nil { resolved += 1 }
    var attempt: UInt8 = 0
    while true {
      let octets = stream(1, [attempt] + (0..<6).map { UInt8(truncatingIfNeeded: original >> UInt64(8 * $0)) }, 6)
      attempt &+= 1
      var value = octets.reduce(0) { $0 << 8 | UInt64($1) }
      if let kind { value = value & (1 << 46 - 1) | kind << 46 }
      if let identity {
        let prand = UInt32(truncatingIfNeeded: value >> 24)
        value = UInt64(prand) << 24 | UInt64(ah(identities[identity].newKey, prand))
      }
      guard !used.contains(value), !originals.contains(value), value != 0, value != 0xFFFF_FFFF_FFFF else { continue }
      if isRandom, kind != 0b10, !DeviceAddress(value).isValidRandom { continue }
      // An address that no key resolved must stay so.
      if kind == 0b01, identity == nil, identities.contains(where: { Self.resolves($0.newKey, value) }) { continue }
      used.insert(value)
      addresses[original] = value
      return value
    }
  }

  // MARK: Keys

  mutating func key(_ original: [UInt8]) -> [UInt8] {
    if original.allSatisfy({ $0 == 0 }) { return original }
    if let known = keys[original] { return known }
    // The zeros of a key with fewer octets stay: Vol 3, Part H, §2.3.4.
    let zeros = original.reversed().prefix { $0 == 0 }.count
    var new = stream(2, original, original.count - zeros) + [UInt8](repeating: 0, count: zeros)
    if new[new.count - zeros - 1] == 0 { new[new.count - zeros - 1] = 1 }
    keys[original] = new
    return new
  }
  mutating func identifier(_ original: [UInt8]) -> [UInt8] {
    // Zero stands for a key of LE Secure Connections.
    if original.allSatisfy({ $0 == 0 }) { return original }
    if let known = identifiers[original] { return known }
    var attempt: UInt8 = 0, new: [UInt8]
    repeat {
      new = stream(3, [attempt] + original, original.count)
      attempt &+= 1
    } while attempt < .max && (new.allSatisfy { $0 == 0 } || usedIdentifiers.contains(new))
    usedIdentifiers.insert(new)
    identifiers[original] = new
    return new
  }
  func chance(_ original: [UInt8]) -> [UInt8] {
    if original.allSatisfy({ $0 == 0 }) { return original }
    let new = stream(4, original, max(16, original.count))
    guard original.count == 4 else { return Array(new.prefix(original.count)) }
    // Six digits: a passkey or a number to compare.
    let number = new.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } % 1_000_000
    return (0..<4).map { UInt8(truncatingIfNeeded: number >> UInt64(8 * $0)) }
  }
  func publicKey(_ original: [UInt8]) -> [UInt8] {
    guard original.count == 64 else { return stream(5, original, original.count) }
    let (first, second) = (Array(original[..<32]), Array(original[32...]))
    let point = P256PublicKey(
      x: UInt256(leastSignificantFirst: first.span), y: UInt256(leastSignificantFirst: second.span))
    // Everybody knows the debug key; and what is not a point stays none.
    if point == P256KeyPair.debug.publicKey { return original }
    guard point.isOnCurve else { return stream(5, original, 64) }
    var attempt: UInt8 = 0
    while true {
      let octets = stream(6, [attempt] + original, 32)
      attempt &+= 1
      guard let pair = P256KeyPair(privateKey: UInt256(leastSignificantFirst: octets.span)) else { continue }
      let (x, y) = (pair.publicKey.x.leastSignificantFirst, pair.publicKey.y.leastSignificantFirst)
      return x.indices.map { x[$0] } + y.indices.map { y[$0] }
    }
  }

  // MARK: Names and values

  /// Each octet depends on all before it: a name that is cut, or read in parts, has the beginning of the replacement.
  /// A name's octets become letters, and none stays itself; zeros, which fill a field, stay.
  mutating func name(_ original: [UInt8], after prefix: [UInt8]) -> [UInt8] {
    let new = chained(7, original, prefix) { octet, chance in
      if octet == 0 { return 0 }
      let letter = UInt8(ascii: "a") + chance % 26
      return letter == octet ? UInt8(ascii: "a") + (chance % 26 + 1) % 26 : letter
    }
    let text = Array(original.prefix { $0 != 0 })
    if prefix.isEmpty, !text.isEmpty { names[text] = Array(new.prefix(text.count)) }
    return new
  }
  func value(_ original: [UInt8], after prefix: [UInt8]) -> [UInt8] { chained(8, original, prefix) { $1 ^ $0 } }

  private func chained(
    _ purpose: UInt8, _ original: [UInt8], _ prefix: [UInt8], _ replace: (UInt8, UInt8) -> UInt8
  ) -> [UInt8] {
    var before = prefix
    return original.map { octet in
      before.append(octet)
      return replace(octet, stream(purpose, before, 1)[0])
    }
  }
}

extension [UInt8] {
  /// As in a packet: least significant octet first.
  fileprivate init(octets number: UInt128) {
    self = (0..<16).map { UInt8(truncatingIfNeeded: number >> UInt128(8 * $0)) }
  }
}
