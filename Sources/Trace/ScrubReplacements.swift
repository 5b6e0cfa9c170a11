import BindruneToolbox
import BindruneWire

/// What stands in the place of what: the same original has the same replacement, which the seed chooses.
///
/// Replacements come from AES-CMAC with a secret key: without the seed nobody can test a guess of an original.
struct ScrubReplacements {
  private let secret: SecurityKey
  /// For what depends on the octets before it.
  private let chain: OctetChain
  /// Names that are remembered.
  private static var mostNames: Int { 16_384 }
  /// Whole fields with names, with the zeros behind them.
  private var fields: [[UInt8]: [UInt8]] = [:]
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

  /// `random`: values that were ever seen as random addresses; `found`: all addresses.
  init(seed: UInt128, identities: [UInt128], random: Set<UInt64>, found: Set<UInt64>) {
    secret = SecurityKey(seed)
    var code = AESCMAC(key: secret)
    code.update([UInt8(7)].span)
    chain = OctetChain(key: code.finalize())
    self.random = random
    originals = found
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
    // All zeros and all ones stand for no address, also as the random part of one: who sends it breaks a rule.
    if original == 0 || original == 0xFFFF_FFFF_FFFF { return original }
    let part: UInt64 = 1 << 46 - 1, prandPart: UInt64 = 0x3FFF_FF00_0000
    if random.contains(original), original & part == 0 || original & part == part { return original }
    if let known = addresses[original] { return known }
    let isRandom = random.contains(original), kind = isRandom ? original >> 46 : nil
    let identity = isRandom ? identity(of: original) : nil
    if identity != nil { resolved += 1 }
    // A resolvable address whose prand has no chance in it keeps that.
    let hasNoChance = kind == 0b01 && (original & prandPart == 0 || original & prandPart == prandPart)
    var attempt: UInt16 = 0
    while true {
      let number = [UInt8(attempt & 0xFF), UInt8(attempt >> 8)]
      let octets = stream(1, number + (0..<6).map { UInt8(truncatingIfNeeded: original >> UInt64(8 * $0)) }, 6)
      attempt &+= 1
      var value = octets.reduce(0) { $0 << 8 | UInt64($1) }
      if let kind { value = value & part | kind << 46 }
      if hasNoChance { value = original & ~0xFF_FFFF | value & 0xFF_FFFF }
      if let identity {
        let prand = UInt32(truncatingIfNeeded: value >> 24)
        value = UInt64(prand) << 24 | UInt64(ah(identities[identity].newKey, prand))
      }
      if attempt < 1_000 {
        guard !used.contains(value), !originals.contains(value), value != 0, value != 0xFFFF_FFFF_FFFF else { continue }
      }
      if isRandom, kind != 0b10, !hasNoChance, !DeviceAddress(value).isValidRandom { continue }
      // An address that no key resolved must stay so.
      if kind == 0b01, identity == nil, !hasNoChance, identities.contains(where: { Self.resolves($0.newKey, value) }) {
        continue
      }
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
    // Longer ones do not meet, and controllers make any number of them.
    if original.count > 2 { return new }
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

  /// A name's letters become others, zeros, which fill a field, stay, and so does what is wrong: octets that are not
  /// UTF-8 become octets that are not. Each octet depends on all before it: a name that is cut, or read in parts, has
  /// the beginning of the replacement.
  mutating func name(_ original: [UInt8], after prefix: [UInt8]) -> [UInt8] {
    if prefix.isEmpty, let known = fields[original] { return known }
    var text = UTF8Form()
    let new = chained(original, prefix) { octet, _, chance in
      switch text.next(octet) {
      case .zero: return 0
      case .letter:
        let letter = UInt8(ascii: "a") + chance % 26
        return letter == octet ? UInt8(ascii: "a") + (chance % 26 + 1) % 26 : letter
      case .first(let octet): return octet
      case .second(let least, let count): return least + chance % count
      case .invalid: return 0xFF
      }
    }
    let whole = original.prefix { $0 != 0 }
    if prefix.isEmpty, !whole.isEmpty, names.count < Self.mostNames {
      names[Array(whole)] = Array(new.prefix(whole.count))
    }
    if prefix.isEmpty, fields.count < Self.mostNames { fields[original] = new }
    return new
  }
  /// Different values stay different.
  func value(_ original: [UInt8], after prefix: [UInt8]) -> [UInt8] {
    chained(original, prefix) { octet, chance, _ in octet ^ chance }
  }

  /// Passes each octet with a number that depends on what precedes it, and one that depends on it, too.
  private func chained(
    _ original: [UInt8], _ prefix: [UInt8], _ replace: (UInt8, UInt8, UInt8) -> UInt8
  ) -> [UInt8] {
    var state = chain, new: [UInt8] = []
    new.reserveCapacity(original.count)
    for octet in prefix {
      state.add(octet)
      // What stands before decides where a text is.
      _ = replace(octet, 0, 0)
    }
    for octet in original {
      let before = state.chance
      state.add(octet)
      new.append(replace(octet, before, state.chance))
    }
    return new
  }
}

/// A number that depends on a key and on every octet so far: SipHash-2-4 of them, each a word of the message. A value
/// has a number for each of its octets, for which AES would take too long. Aumasson and Bernstein, 2012.
private struct OctetChain {
  private var v0: UInt64, v1: UInt64, v2: UInt64, v3: UInt64

  init(key: UInt128) {
    let (low, high) = (UInt64(truncatingIfNeeded: key), UInt64(truncatingIfNeeded: key >> 64))
    (v0, v1) = (low ^ 0x736F_6D65_7073_6575, high ^ 0x646F_7261_6E64_6F6D)
    (v2, v3) = (low ^ 0x6C79_6765_6E65_7261, high ^ 0x7465_6462_7974_6573)
  }
  mutating func add(_ octet: UInt8) {
    v3 ^= UInt64(octet)
    round()
    round()
    v0 ^= UInt64(octet)
  }
  var chance: UInt8 {
    var copy = self
    copy.v2 ^= 0xFF
    for _ in 0..<4 { copy.round() }
    return UInt8(truncatingIfNeeded: copy.v0 ^ copy.v1 ^ copy.v2 ^ copy.v3)
  }
  private mutating func round() {
    v0 = v0 &+ v1
    v2 = v2 &+ v3
    v1 = v1 << 13 | v1 >> 51
    v3 = v3 << 16 | v3 >> 48
    v1 ^= v0
    v3 ^= v2
    v0 = v0 << 32 | v0 >> 32
    v2 = v2 &+ v1
    v0 = v0 &+ v3
    v1 = v1 << 17 | v1 >> 47
    v3 = v3 << 21 | v3 >> 43
    v1 ^= v2
    v3 ^= v0
    v2 = v2 << 32 | v2 >> 32
  }
}

/// Where an octet of a text stands, by the octets before it: each place has octets of its own, so that a replacement is
/// as right or as wrong as the text. RFC 3629, §4.
private struct UTF8Form {
  enum Place {
    case zero, letter, invalid
    /// The first octet of a character of several, with the one that stands for all of its length.
    case first(UInt8)
    /// A later octet: the least that may stand there, and how many may.
    case second(UInt8, UInt8)
  }
  /// Octets of the character that are to come, what the next may be, and what its replacement may be.
  private var left = 0, allowed: ClosedRange<UInt8> = 0x80...0xBF, new: (UInt8, UInt8) = (0x80, 64)

  mutating func next(_ octet: UInt8) -> Place {
    if left > 0, allowed.contains(octet) {
      defer { (left, allowed, new) = (left - 1, 0x80...0xBF, (0x80, 64)) }
      return .second(new.0, new.1)
    }
    left = 0
    (allowed, new) = (0x80...0xBF, (0x80, 64))
    switch octet {
    case 0: return .zero
    case 0x01...0x7F: return .letter
    case 0xC2...0xDF:
      left = 1
      return .first(0xC3)
    case 0xE0...0xEF:
      left = 2
      if octet == 0xE0 { allowed = 0xA0...0xBF }
      if octet == 0xED { allowed = 0x80...0x9F }
      return .first(0xE4)
    case 0xF0...0xF4:
      left = 3
      allowed = octet == 0xF0 ? 0x90...0xBF : octet == 0xF4 ? 0x80...0x8F : 0x80...0xBF
      // U+1F000 … U+1FFFF.
      new = (0x9F, 1)
      return .first(0xF0)
    default: return .invalid
    }
  }
}

extension [UInt8] {
  /// As in a packet: least significant octet first.
  fileprivate init(octets number: UInt128) {
    self = (0..<16).map { UInt8(truncatingIfNeeded: number >> UInt128(8 * $0)) }
  }
}
