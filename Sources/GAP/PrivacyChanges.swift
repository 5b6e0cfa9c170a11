import BindruneWire
import BindruneHCI

/// # Privacy
/// **Overview**: our own private address, and the controller's resolving list: both can change only while nothing
/// advertises, scans or initiates. Vol 4, Part E, §7.8.4, §7.8.38 – §7.8.45; Vol 3, Part C, §10.7.
///
/// **Function**: names the next change; `HostCore` suspends the three machines that use addresses, sends one command
/// after another, and resumes them. The list holds the first peers, up to its size; the host alone resolves the rest.
/// Entries have device privacy mode if the controller supports it (§7.8.77), so that a peer is heard by any address it
/// uses, as when the host resolves. Our own key is not in the list: the host makes our address.
///
/// **Phases**: idle → quieting (the three machines are suspending) → changing (a command is in flight) → quieting,
/// until no change is left → idle.
struct Privacy {
  enum Phase: BitwiseCopyable { case idle, quieting, changing(Change) }
  enum Change: BitwiseCopyable {
    case address(DeviceAddress)
    case remove(PeerAddress)
    case add(PeerAddress, IdentityResolvingKey)
    case mode(PeerAddress)
    case resolution
  }
  private struct Entry { var identity: PeerAddress, irk: IdentityResolvingKey, hasMode = false }

  var phase = Phase.idle
  var identities = PeerIdentities()
  /// Whether the host scans for a peer because only a scan finds the private address to connect to.
  enum Seeking: BitwiseCopyable, Equatable {
    case off, scanning
    /// The controller has refused to scan; the host scans again at this time.
    case pausing(until: Instant)
  }
  var seeking = Seeking.off
  /// How long the host waits after the controller has refused to scan for a peer.
  static var seekPause: Duration { .seconds(10) }
  private let policy: AddressPolicy
  private var chance: HostChance
  /// When the next address is due.
  private(set) var rotation: Instant?
  private var nextAddress: DeviceAddress?
  /// Advances with each change of the controller's list and of what it may hold.
  private var changes: UInt64 = 0
  /// The `revision` at which no change of the list was left: a report of a scan does not compare the list again.
  private var settled: UInt64?
  /// Another number than before if the known peers, or those in the controller's list, are others.
  var revision: UInt64 { identities.revision &+ changes }
  /// `isSeekNeeded` at these revisions of this machine and of `Connections`.
  var seekNeed: (privacy: UInt64, connections: UInt64, isNeeded: Bool)?
  /// Entries that the controller's list can hold; 0 if it is not used.
  private var capacity = 0
  private var entries: [Entry] = []
  /// Peers that the controller has refused.
  private var refused: [PeerAddress] = []
  private var isResolving = false
  private let tag: UInt32
  /// `HCILayer.cause` of the last call that changed what is to be done.
  var cause: UInt64 = 0

  init(_ policy: AddressPolicy, _ chance: HostChance, tag: UInt32) {
    self.policy = policy
    self.chance = chance
    self.tag = tag
  }
  /// The key of our private addresses.
  var irk: IdentityResolvingKey? { if case .resolvable(let irk, _) = policy { irk } else { nil } }
  /// A peer cannot connect to an address that it does not know as ours, nor should we connect with one.
  var permitsConnections: Bool { if case .nonResolvable = policy { false } else { true } }

  /// The controller has been reset; the peers' keys remain.
  mutating func reset() {
    changes &+= 1
    phase = .idle
    seeking = .off
    rotation = nil
    nextAddress = nil
    capacity = 0
    entries = []
    refused = []
    isResolving = false
  }
  mutating func start(listSize: Int, now: Instant) {
    changes &+= 1
    capacity = listSize
    rotation = policy.rotation.map { now + $0 }
  }
  /// A new address of our own; nil if the policy is our identity.
  mutating func makeAddress(not publicAddress: DeviceAddress) -> DeviceAddress? {
    switch policy {
    case .identity: nil
    case .resolvable(let irk, _): .resolvablePrivate(irk, using: &chance)
    case .nonResolvable: .nonResolvablePrivate(not: publicAddress, using: &chance)
    }
  }
  /// When `expire` must act, or a pause of `seeking` ends.
  var deadline: Instant? {
    if case .pausing(let until) = seeking { .earliest(rotation, until) } else { rotation }
  }
  mutating func expire(not publicAddress: DeviceAddress?, now: Instant) {
    guard let rotation, rotation <= now else { return }
    self.rotation = policy.rotation.map { now + $0 }
    cause = 0
    nextAddress = makeAddress(not: publicAddress ?? DeviceAddress())
  }

  /// The controller resolves this peer's addresses, and connects to it by its identity.
  func isListed(_ identity: PeerAddress) -> Bool { isResolving && entries.contains { $0.identity == identity } }
  mutating func add(
    _ identity: PeerAddress, _ irk: IdentityResolvingKey, isApplications: Bool
  ) throws(IdentityError) {
    try identities.add(identity, irk, isApplications: isApplications)
    refused.removeAll { $0 == identity }
  }
  /// Forgets the peer, whom the controller may accept if it becomes known again.
  mutating func remove(_ identity: PeerAddress) {
    identities.remove(identity)
    refused.removeAll { $0 == identity }
  }

  // MARK: Changes

  /// The next change; nil if there is none.
  mutating func next() -> Change? {
    if let nextAddress { return .address(nextAddress) }
    if capacity == 0 || settled == revision { return nil }
    let change = nextOfList
    if change == nil { settled = revision }
    return change
  }
  private var nextOfList: Change? {
    let wanted = identities.peers.lazy.filter { !refused.contains($0.identity) }.prefix(capacity)
    for entry in entries where !wanted.contains(where: { $0.identity == entry.identity && $0.irk == entry.irk }) {
      return .remove(entry.identity)
    }
    for peer in wanted where !entries.contains(where: { $0.identity == peer.identity }) {
      return .add(peer.identity, peer.irk)
    }
    if let entry = entries.first(where: { !$0.hasMode }) { return .mode(entry.identity) }
    return entries.isEmpty || isResolving ? nil : .resolution
  }
  mutating func send(_ change: Change, _ hci: inout HCILayer, _ now: Instant) {
    phase = .changing(change)
    hci.withCause(cause) { send(command: change, &$0, now) }
  }
  private func send(command change: Change, _ hci: inout HCILayer, _ now: Instant) {
    switch change {
    case .address(let address):
      let command = LESetRandomAddress.with { $0.randomAddress = address }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .remove(let identity):
      let command = LERemoveDeviceFromResolvingList.with {
        ($0.peerIdentityAddressType, $0.peerIdentityAddress) = (identity.type, identity.address)
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .add(let identity, let irk):
      let command = LEAddDeviceToResolvingList(identity.type, identity.address, peerIRK: irk.value, localIRK: 0)
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .mode(let identity):
      let command = LESetPrivacyMode.with {
        ($0.peerIdentityAddressType, $0.peerIdentityAddress) = (identity.type, identity.address)
        $0.privacyMode = .device
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .resolution:
      let command = LESetAddressResolutionEnable.with { $0.addressResolutionEnable = true }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    }
  }
  /// The result of setting our address.
  enum Outcome: BitwiseCopyable { case inUse(DeviceAddress), refused(HCIStatus) }
  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome) -> Outcome? {
    guard case .changing(let change) = phase else { return nil }
    phase = .quieting
    changes &+= 1
    let isAccepted = outcome.status == .success
    switch change {
    case .address(let address):
      nextAddress = nil
      return isAccepted ? .inUse(address) : .refused(outcome.status)
    case .remove(let identity):
      // Regardless of the status: nothing else can remove it.
      entries.removeAll { $0.identity == identity }
    case .add(let identity, let irk):
      if isAccepted {
        entries.append(Entry(identity: identity, irk: irk))
      } else if outcome.status == .memoryCapacityExceeded {
        // The list holds fewer entries than reported.
        capacity = entries.count
      } else {
        refused.append(identity)
      }
    case .mode(let identity):
      // A controller without modes accepts every address: Bluetooth 4.2.
      for index in entries.indices where entries[index].identity == identity { entries[index].hasMode = true }
    case .resolution:
      if isAccepted { isResolving = true } else { capacity = 0 }
    }
    return nil
  }
}
