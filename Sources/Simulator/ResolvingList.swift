import BindruneToolbox
import BindruneWire
import BindruneHCI

/// A device that was heard: its address on the air, and the identity address that the resolving list resolves it to.
struct Identified: BitwiseCopyable, Equatable {
  var air: AirAddress, identity: AirAddress
  var isResolved: Bool { air != identity }
  /// Its type in events. Vol 4, Part E, §7.7.65.10, §7.7.65.13.
  var type: AddressType { AddressType(rawValue: identity.type.rawValue + (isResolved ? 2 : 0)) }
  /// Zero if none was used.
  var privateAddress: DeviceAddress { isResolved ? air.value : DeviceAddress() }
}

/// A controller's peers with private addresses, and its own address for each of them. Vol 6, Part B, §4.7, §6.
struct ResolvingList {
  struct Entry {
    let identity: AirAddress
    /// nil: all zeros; that side uses its identity address.
    var peerIRK: AES128?, localIRK: AES128?
    var mode = PrivacyMode.network
    /// The private address with which the peer was last heard.
    var heard: DeviceAddress?
    /// Our address for the peer, and the peer's address in directed advertising.
    var local = Passing(), target = Passing()
  }
  /// A private address and its age.
  struct Passing { var address: DeviceAddress?, made = Instant.zero }

  private(set) var entries: [Entry] = []
  /// The keys as numbers, for searches.
  private var keys: [UInt128] = []
  var isEnabled = false
  /// Vol 4, Part E, §7.8.45.
  var timeout = Duration.seconds(900)

  func index(of identity: AirAddress) -> Int? { entries.firstIndex { $0.identity == identity } }
  subscript(identity: AirAddress) -> Entry? { index(of: identity).map { entries[$0] } }
  mutating func set(_ mode: PrivacyMode, at index: Int) { entries[index].mode = mode }

  /// False if the list already has the identity or the key.
  mutating func add(_ identity: AirAddress, peerIRK: UInt128, localIRK: UInt128) -> Bool {
    if index(of: identity) != nil || (peerIRK != 0 && keys.contains(peerIRK)) { return false }
    entries.append(
      Entry(
        identity: identity, peerIRK: peerIRK == 0 ? nil : AES128(key: peerIRK),
        localIRK: localIRK == 0 ? nil : AES128(key: localIRK)))
    keys.append(peerIRK)
    return true
  }
  mutating func remove(at index: Int) {
    entries.remove(at: index)
    keys.remove(at: index)
  }
  mutating func removeAll() {
    entries.removeAll()
    keys.removeAll()
  }

  /// The device with this address. nil: the packet is ignored, because in network privacy mode a peer with an IRK must
  /// not use its identity address. Vol 6, Part B, §4.7.
  mutating func identify(_ air: AirAddress) -> Identified? {
    guard isEnabled else { return Identified(air: air, identity: air) }
    if let index = entries.firstIndex(where: { $0.peerIRK?.resolves(air) == true }) {
      entries[index].heard = air.value
      return Identified(air: air, identity: entries[index].identity)
    }
    if let entry = self[air], entry.peerIRK != nil, entry.mode == .network { return nil }
    return Identified(air: air, identity: air)
  }
  /// Whether it is one of our addresses.
  func isLocal(_ air: AirAddress) -> Bool { isEnabled && entries.contains { $0.localIRK?.resolves(air) == true } }

  /// The private address that we use with `peer`; nil: none.
  mutating func local(
    towards peer: AirAddress, now: Instant, using chance: inout some RandomNumberGenerator
  ) -> AirAddress? {
    guard let index = index(of: peer), let key = entries[index].localIRK else { return nil }
    return entries[index].local.address(key, timeout, now, &chance)
  }
  /// The private address of `peer` in directed advertising; nil: none.
  mutating func target(
    _ peer: AirAddress, now: Instant, using chance: inout some RandomNumberGenerator
  ) -> AirAddress? {
    guard let index = index(of: peer), let key = entries[index].peerIRK else { return nil }
    return entries[index].target.address(key, timeout, now, &chance)
  }
}

extension ResolvingList.Passing {
  /// Keeps the address for `timeout`, then makes another one.
  fileprivate mutating func address(
    _ key: AES128, _ timeout: Duration, _ now: Instant, _ chance: inout some RandomNumberGenerator
  ) -> AirAddress {
    if let address, now < made + timeout { return AirAddress(isRandom: true, address) }
    let prand = DeviceAddress.prand(using: &chance), new = DeviceAddress(prand: prand, hash: ah(key, prand))
    address = new
    made = now
    return AirAddress(isRandom: true, new)
  }
}
extension AES128 {
  /// Vol 6, Part B, §1.3.2.3.
  fileprivate func resolves(_ air: AirAddress) -> Bool {
    air.isResolvablePrivate && ah(self, air.value.prand) == air.value.hash
  }
}
