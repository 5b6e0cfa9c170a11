import BindruneToolbox
import BindruneWire
import BindruneHCI

/// An Identity Resolving Key: it recognizes the private addresses of its device. Vol 3, Part H, §2.4.2.1.
public struct IdentityResolvingKey: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// As the Specification prints it, most significant octet first; zero is no key.
  public var value: UInt128
  public init(_ value: UInt128) { self.value = value }
  /// Hides the key from logs.
  public var description: String { "an IRK" }
}

/// Which of our addresses we use on the air. Vol 3, Part C, §10.7; Vol 6, Part B, §1.3.
///
/// The host makes private addresses, even if the controller could, and changes them when nothing uses one: advertising,
/// scanning and initiating pause for that moment; links are unaffected. A `rotation` is at least 1 s (a shorter one is
/// 1 s).
public enum AddressPolicy: Sendable, Hashable {
  /// The public address, or the random static one if there is none: every device recognizes us.
  case identity
  /// A resolvable private address, changed every `rotation`: devices with the key recognize us.
  case resolvable(IdentityResolvingKey, rotation: Duration = AddressPolicy.interval)
  /// A non-resolvable private address, changed every `rotation`: no device recognizes us. For broadcasters and
  /// observers: connectable advertising and connecting are refused with 0x0C.
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

/// Why an identity is invalid.
public enum IdentityError: Error, BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// Neither a valid public nor a valid random static address. Vol 3, Part H, §3.6.5.
  case notAnIdentityAddress(PeerAddress)
  /// This host's own address: no peer has it.
  case ownAddress(PeerAddress)
  /// A key of zeros means no key. Vol 4, Part E, §7.8.38.
  case noKey
  public var description: String {
    switch self {
    case .notAnIdentityAddress(let address):
      "\(address) is not an identity address: it must be public or random static, and neither zeros nor ones"
    case .ownAddress(let address): "\(address) is this host's own address: a peer has another one"
    case .noKey: "an IRK of zeros is not a key"
    }
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
/// **Overview**: finds the peer of a private address. Vol 6, Part B, §1.3.2.3.
///
/// **Function**: tries a resolvable private address with every peer's key, and remembers the answer: an address costs
/// one AES block for each key when it is first heard. It remembers only the last 2,048 … 4,096 addresses, at least as
/// many as `HeardDevices` does, so that a storm of them costs no more memory than that, and no report more than a block
/// for each key. A change of the keys forgets all answers.
struct PeerIdentities {
  struct Peer {
    let identity: PeerAddress, irk: IdentityResolvingKey
    /// The application has added it: it stays until the application removes it.
    let isApplications: Bool
    fileprivate let key: AES128
    /// The private address heard last.
    var air: PeerAddress?
  }
  static var capacity: Int { 2048 }

  /// Another number than before if other peers are known, or with other keys.
  private(set) var revision: UInt64 = 0
  /// In the order in which they were added.
  private(set) var peers: [Peer] = []
  /// By address heard, the index of its peer, or −1. Lookups move an entry to the newer table; when that is full it
  /// becomes the older one, and the older one is dropped.
  private var newer: [DeviceAddress: Int] = [:], older: [DeviceAddress: Int] = [:]
  /// AES blocks computed.
  private(set) var blocks = 0
  var remembered: Int { newer.count + older.count }

  /// Replaces the key of a known peer. What the application has added stays the application's.
  mutating func add(
    _ identity: PeerAddress, _ irk: IdentityResolvingKey, isApplications: Bool = true
  ) throws(IdentityError) {
    guard identity.isIdentity else { throw .notAnIdentityAddress(identity) }
    if irk.value == 0 { throw .noKey }
    let isApplications = isApplications || self.isApplications(identity)
    peers.removeAll { $0.identity == identity }
    peers.append(Peer(identity: identity, irk: irk, isApplications: isApplications, key: AES128(key: irk.value)))
    changed()
  }
  func isApplications(_ identity: PeerAddress) -> Bool {
    peers.contains { $0.identity == identity && $0.isApplications }
  }
  mutating func remove(_ identity: PeerAddress) {
    guard let place = peers.firstIndex(where: { $0.identity == identity }) else { return }
    peers.remove(at: place)
    changed()
  }
  /// Answers are places in the list, or that none of its keys fits.
  private mutating func changed() {
    revision &+= 1
    newer.removeAll()
    older.removeAll()
  }

  /// The peer with this private address; nil if it belongs to no known peer, or is not a private address.
  mutating func resolve(_ address: PeerAddress) -> PeerAddress? { place(of: address).map { peers[$0].identity } }
  /// The same for an address just heard, and whether the peer was heard with another one before.
  mutating func hear(_ address: PeerAddress) -> (identity: PeerAddress, isNew: Bool)? {
    guard let place = place(of: address) else { return nil }
    defer { peers[place].air = address }
    return (peers[place].identity, peers[place].air != address)
  }
  /// The address heard last.
  func air(of identity: PeerAddress) -> PeerAddress? { peers.first { $0.identity == identity }?.air }

  private mutating func place(of heard: PeerAddress) -> Int? {
    guard !peers.isEmpty, heard.type == .random, heard.address.randomKind == .resolvablePrivate else { return nil }
    if let place = newer[heard.address] { return place < 0 ? nil : place }
    let place = older[heard.address] ?? search(heard.address)
    if newer.count == Self.capacity {
      swap(&newer, &older)
      newer.removeAll(keepingCapacity: true)
    }
    newer[heard.address] = place
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
  var isIdentity: Bool { (type == .public || type == .random) && address.isIdentity(isRandom: isRandom) }
}
