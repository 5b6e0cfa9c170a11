import BindruneToolbox
import BindruneWire
import BindruneSMP

/// A function of pairing that a script computes with: Vol 3, Part H, §2.2. The tester knows what its script says, and
/// its own private key; nothing comes from the stack under test but its PDUs.
///
/// Arguments and results are octets in the order of PDUs, the least significant first.
public enum PairingFunction: String, Sendable, CaseIterable {
  /// The confirm value of legacy pairing. §2.2.3.
  case c1
  /// The short term key. §2.2.4.
  case s1
  /// The confirm value of LE Secure Connections. §2.2.6.
  case f4
  /// The two results of f5, with the DHKey of the tester's private key and the public key of the side under test.
  /// §2.2.7.
  case macKey = "mackey"
  case ltk
  /// The check value. §2.2.8.
  case f6
  /// The six digits that users compare, as a number. §2.2.9.
  case g2
  /// One round's bit of a passkey, 80 or 81. §2.3.5.6.3.
  case bit
  /// A key with only its least significant octets. §2.3.4.
  case shortened

  /// The arguments and their octets.
  var widths: [(name: String, count: Int)] {
    switch self {
    case .c1: [("key", 16), ("random", 16), ("request", 7), ("response", 7), ("initiator", 7), ("responder", 7)]
    case .s1: [("key", 16), ("responder's random", 16), ("initiator's random", 16)]
    case .f4: [("own x", 32), ("other x", 32), ("nonce", 16), ("bit", 1)]
    case .macKey, .ltk:
      [("public key", 64), ("initiator's nonce", 16), ("responder's nonce", 16), ("initiator", 7), ("responder", 7)]
    case .f6:
      [("MacKey", 16), ("own nonce", 16), ("other nonce", 16), ("r", 16), ("IOcap", 3), ("own", 7), ("other", 7)]
    case .g2: [("initiator's x", 32), ("responder's x", 32), ("initiator's nonce", 16), ("responder's nonce", 16)]
    case .bit: [("passkey", 4), ("round", 1)]
    case .shortened: [("key", 16), ("octets", 1)]
    }
  }
  /// `bit(passkey:4, round:1)`
  var signature: String { "\(rawValue)(\(widths.map { "\($0.name):\($0.count)" }.joined(separator: ", ")))" }
}

/// Why octets have no value.
enum NoValue: Error, Equatable {
  /// A name without a captured value: another alternative matched than the one that captures it.
  case missing(String)
  /// An argument that the function does not accept.
  case notComputable(String)

  /// What should be there, and what is there.
  var report: (expected: String, got: String) {
    switch self {
    case .missing(let name): ("octets called \(name)", "none: another alternative came")
    case .notComputable(let why): ("a result that can be computed", why)
    }
  }
}

/// What a script's names stand for while it runs, and the key pair that its functions use.
struct Values {
  var named: [String: [UInt8]] = [:]
  private var keyPair: P256KeyPair?

  static var round: String { "round" }
  /// The addresses, of 56 bits, and the tester's public key.
  static var namesOfPairing: Set<String> { ["A", "B", "pk", "pkx"] }

  init(_ script: Script) {
    guard script.channel == .smp else { return }
    let keyPair = script.pairing.testersKey.pair, key = keyPair.publicKey
    self.keyPair = keyPair
    named["A"] = script.pairing.addresses.initiator.octets
    named["B"] = script.pairing.addresses.responder.octets
    named["pkx"] = array(key.x)
    named["pk"] = array(key.x) + array(key.y)
  }

  func result(of function: PairingFunction, _ patterns: [OctetPattern]) throws(NoValue) -> [UInt8] {
    var arguments: [[UInt8]] = []
    for pattern in patterns { arguments.append(try pattern.filled(with: self)) }
    for (argument, width) in zip(arguments, function.widths) where argument.count != width.count {
      throw .notComputable("\(argument.count) octets for \(width.name) in \(function.signature)")
    }
    let a = arguments
    switch function {
    case .c1:
      let (ia, ra) = (number(a[4]), number(a[5]))
      let confirm = c1(
        SecurityKey(number(a[0])), number(a[1]), preq: UInt64(number(a[2])), pres: UInt64(number(a[3])),
        iat: a[4][6], rat: a[5][6], ia: UInt64(ia & 0xFFFF_FFFF_FFFF), ra: UInt64(ra & 0xFFFF_FFFF_FFFF))
      return array(confirm)
    case .s1: return array(s1(SecurityKey(number(a[0])), number(a[1]), number(a[2])).number)
    case .f4: return array(f4(wide(a[0]), wide(a[1]), number(a[2]), a[3][0]))
    case .macKey: return array(try keys(a).macKey.number)
    case .ltk: return array(try keys(a).ltk.number)
    case .f6:
      let check = f6(
        SecurityKey(number(a[0])), number(a[1]), number(a[2]), number(a[3]), UInt32(number(a[4])),
        UInt64(number(a[5])), UInt64(number(a[6])))
      return array(check)
    case .g2: return array(UInt128(g2(wide(a[0]), wide(a[1]), number(a[2]), number(a[3])) % 1_000_000), 4)
    case .bit:
      guard a[1][0] < 20 else { throw .notComputable("round \(a[1][0]); a passkey has 20 bits") }
      return [0x80 | UInt8(number(a[0]) >> UInt128(a[1][0]) & 1)]
    case .shortened:
      guard a[1][0] <= 16 else { throw .notComputable("\(a[1][0]) octets; a key has 16") }
      return Array(a[0].prefix(Int(a[1][0]))) + [UInt8](repeating: 0, count: 16 - Int(a[1][0]))
    }
  }
  private func keys(_ a: [[UInt8]]) throws(NoValue) -> (macKey: SecurityKey, ltk: SecurityKey) {
    guard let keyPair else { throw .notComputable("no key pair: only scripts with \"channel: smp\" have one") }
    let key = P256PublicKey(x: wide(Array(a[0][..<32])), y: wide(Array(a[0][32...])))
    let dhKey: DHKey
    do throws(InvalidPublicKey) { dhKey = try keyPair.dhKey(with: key) } catch {
      throw .notComputable("a public key that is not on the curve")
    }
    return f5(dhKey, number(a[1]), number(a[2]), UInt64(number(a[3])), UInt64(number(a[4])))
  }
}

extension TestersKey {
  var pair: P256KeyPair {
    switch self {
    case .debug: return .debug
    case .sample:
      let number = UInt256(
        high: 0x55188b3d_32f6bb9a_900afcfb_eed4e72a, low: 0x59cb9ac2_f19d7cfb_6b4fdd49_f47fc5fd)
      guard let pair = P256KeyPair(privateKey: number) else { preconditionFailure("the Specification's own key") }
      return pair
    }
  }
}

extension PairingAddress {
  /// `C0:00:5E:00:53:01 random`; nil for anything else.
  init?(script text: String) {
    let words = text.split(separator: " "),
      octets = words.first?.split(separator: ":", omittingEmptySubsequences: false)
    guard words.count == 2, let octets, octets.count == 6, ["random", "public"].contains(words[1]) else { return nil }
    var value: UInt64 = 0
    for octet in octets {
      guard octet.count == 2, let number = UInt8(octet, radix: 16) else { return nil }
      value = value << 8 | UInt64(number)
    }
    self.init(DeviceAddress(value), isRandom: words[1] == "random")
  }
  var script: String { "\(address.text) \(isRandom ? "random" : "public")" }
  /// As the functions take it: the address, then its type. Vol 3, Part H, §2.2.7.
  var octets: [UInt8] { array(UInt128(address.value), 6) + [isRandom ? 1 : 0] }
  /// From 7 such octets.
  init(octets: [UInt8]) {
    self.init(DeviceAddress(UInt64(number(Array(octets.prefix(6))))), isRandom: octets[6] & 1 == 1)
  }
}

/// The number of at most 16 octets.
func number(_ octets: [UInt8]) -> UInt128 { octets.reversed().reduce(0) { $0 << 8 | UInt128($1) } }
private func wide(_ octets: [UInt8]) -> UInt256 { UInt256(leastSignificantFirst: octets.span) }
func array(_ number: UInt128, _ count: Int = 16) -> [UInt8] {
  (0..<count).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
}
private func array(_ number: UInt256) -> [UInt8] { array(number.low) + array(number.high) }
