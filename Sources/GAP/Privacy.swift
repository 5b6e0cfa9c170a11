import BindruneToolbox
import BindruneWire

/// An Identity Resolving Key: who has a device's can tell which private addresses are its own. Vol 3, Part H, §2.4.2.1.
public struct IdentityResolvingKey: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// As the Specification prints it, most significant octet first; zero is no key.
  public var value: UInt128
  public init(_ value: UInt128) { self.value = value }
  /// A key is not for logs.
  public var description: String { "an IRK" }
}

/// Which of our addresses is on the air. Vol 3, Part C, §10.7; Vol 6, Part B, §1.3.
///
/// A private address is made by the host, also where the controller could make one, and changed when nothing uses it: what
/// advertises, scans or initiates pauses for that moment, links stay as they are. A `rotation` is 1 s or longer (less is 1 s).
public enum AddressPolicy: Sendable, Hashable {
  /// The public address, or the random static one where there is none: everybody knows the device again.
  case identity
  /// A resolvable private address, another one every `rotation`: who has the key knows the device again.
  case resolvable(IdentityResolvingKey, rotation: Duration = AddressPolicy.interval)
  /// A non-resolvable private address, another one every `rotation`: nobody knows the device again. For broadcasters and
  /// observers: advertising that is connectable, and connecting, are refused with 0x0C.
  case nonResolvable(rotation: Duration = AddressPolicy.interval)

  /// TGAP(private_addr_int), 15 minutes. Vol 3, Part C, Appendix A.
  public static var interval: Duration { .seconds(900) }

  var rotation: Duration? {
    switch self {
    case .identity: nil
    case .resolvable(_, let rotation), .nonResolvable(let rotation): max(rotation, .seconds(1))
    }
  }
}

/// Why an identity cannot be one.
public enum IdentityError: Error, BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// Neither a public nor a random static address. Vol 3, Part H, §3.6.5.
  case notAnIdentityAddress(PeerAddress)
  /// A key of zeros: there is none. Vol 4, Part E, §7.8.38.
  case noKey
  public var description: String {
    switch self {
    case .notAnIdentityAddress(let address): "\(address) is no identity address: public or random static ones are"
    case .noKey: "an IRK of zeros is none"
    }
  }
}

/// Chance for addresses, from a seed that the driver's generator has given: AES-128 in counter mode.
struct AddressChance: RandomNumberGenerator {
  private let key: AES128
  private var counter: UInt128 = 0
  init(seed: UInt128) { key = AES128(key: seed) }
  init(_ chance: inout some RandomNumberGenerator) {
    self.init(seed: UInt128(chance.next()) << 64 | UInt128(chance.next()))
  }
  mutating func next() -> UInt64 {
    counter += 1
    return UInt64(truncatingIfNeeded: key.encrypt(counter))
  }
}
extension DeviceAddress {
  /// A new resolvable private address. Vol 6, Part B, §1.3.2.2.
  static func resolvablePrivate(
    _ irk: IdentityResolvingKey, using chance: inout some RandomNumberGenerator
  ) -> DeviceAddress {
    let prand = prand(using: &chance)
    return DeviceAddress(prand: prand, hash: ah(AES128(key: irk.value), prand))
  }
}

/// # PeerIdentities
/// **Overview**: whose private address is that? Vol 6, Part B, §1.3.2.3.
///
/// **Function**: a resolvable private address is tried with every peer's key, and the answer is remembered: an address costs
/// one AES block for each key when it is heard first. Of addresses heard only the last 512 … 1,024 are remembered, so that
/// a storm of them costs no more memory than that, and no report more than a block for each key.
struct PeerIdentities {
  struct Peer {
    let identity: PeerAddress, irk: IdentityResolvingKey
    fileprivate let key: AES128
    /// The private address it was heard with last.
    var air: PeerAddress?
  }
  static var capacity: Int { 512 }

  /// In the order in which they were added.
  private(set) var peers: [Peer] = []
  /// By address heard, the place of its peer, or −1. What is asked for lives on in the newer of the two; when that is full
  /// it becomes the older one, and the older is forgotten.
  private var newer: [DeviceAddress: Int] = [:], older: [DeviceAddress: Int] = [:]
  /// AES blocks computed.
  private(set) var blocks = 0
  var remembered: Int { newer.count + older.count }

  /// The key of a peer that is there already is replaced.
  mutating func add(_ identity: PeerAddress, _ irk: IdentityResolvingKey) throws(IdentityError) {
    guard identity.isIdentity else { throw .notAnIdentityAddress(identity) }
    if irk.value == 0 { throw .noKey }
    remove(identity)
    peers.append(Peer(identity: identity, irk: irk, key: AES128(key: irk.value)))
  }
  mutating func remove(_ identity: PeerAddress) {
    peers.removeAll { $0.identity == identity }
    newer.removeAll()
    older.removeAll()
  }

  /// The peer whose private address it is; nil: nobody's, or no private address.
  mutating func resolve(_ address: PeerAddress) -> PeerAddress? { place(of: address).map { peers[$0].identity } }
  /// The same of an address just heard, and whether the peer was heard with another one before.
  mutating func hear(_ address: PeerAddress) -> (identity: PeerAddress, isNew: Bool)? {
    guard let place = place(of: address) else { return nil }
    defer { peers[place].air = address }
    return (peers[place].identity, peers[place].air != address)
  }
  /// What it was heard with last.
  func air(of identity: PeerAddress) -> PeerAddress? { peers.first { $0.identity == identity }?.air }

  private mutating func place(of heard: PeerAddress) -> Int? {
    guard !peers.isEmpty, heard.type == .random, heard.address.randomKind == .resolvablePrivate else { return nil }
    let place = newer[heard.address] ?? older[heard.address] ?? search(heard.address)
    if newer[heard.address] == nil {
      if newer.count == Self.capacity {
        older = newer
        newer.removeAll(keepingCapacity: true)
      }
      newer[heard.address] = place
    }
    return place < 0 ? nil : place
  }
  private mutating func search(_ address: DeviceAddress) -> Int {
    for place in peers.indices {
      blocks += 1
      if ah(peers[place].key, address.prand) == address.hash { return place }
    }
    return -1
  }
}

extension PeerAddress {
  /// Public, or random static: an address that a device keeps.
  var isIdentity: Bool {
    type == .public || (type == .random && address.randomKind == .static && address.isValidRandom)
  }
}
