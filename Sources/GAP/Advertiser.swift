import BindruneWire
import DequeModule
import BindruneHCI

/// # Advertiser
/// **Overview**: everything that a host advertises at once: its advertising sets, with one state machine each.
///
/// **Function**: finds the set of a caller, and the set that an event concerns. It creates sets as they are needed, up
/// to the controller's number, and reuses idle ones. With the legacy commands there is one.
///
/// A connection ends the advertising that led to it. With the legacy commands the link's own event reports that, since
/// there is one set (§7.8.9). With the extended ones LE Advertising Set Terminated names the set (§7.7.65.18).
///
/// `nextOutcome` returns the results.
struct Advertiser {
  typealias Target = AdvertisingSet.Target
  /// SIDs have four bits: Vol 6, Part B, §2.3.4.4. Scanners could not distinguish more sets.
  static var mostSets: Int { 16 }

  private(set) var sets: [AdvertisingSet] = []
  private var outcomes = Deque<(AdvertisingSetID, AdvertisingSet.Outcome)>()
  private let tag: UInt32
  private var lastTurn: UInt32 = 0
  private var isSuspended = false
  private var usesExtendedCommands = false
  /// The controller's number of sets.
  private(set) var capacity = 1
  /// The address on the air of a set whose parameters name no other. Changed only while nothing is enabled.
  var ownAddress = PeerAddress(DeviceAddress(), .public) {
    didSet { for index in sets.indices { sets[index].hostAddress = ownAddress } }
  }

  init(tag: UInt32) { self.tag = tag }

  /// Adopts a started controller.
  mutating func prepare(_ controller: ControllerInfo) {
    usesExtendedCommands = controller.usesExtendedCommands
    capacity = min(controller.maximumAdvertisingSets, Self.mostSets)
  }
  /// The controller has been reset: returns the sets that were on, or being enabled.
  mutating func reset() -> [AdvertisingSetID] {
    defer {
      sets = []
      outcomes.removeAll()
      isSuspended = false
    }
    return sets.filter { $0.isWatched }.map { $0.id }
  }
  mutating func nextOutcome() -> (AdvertisingSetID, AdvertisingSet.Outcome)? { outcomes.popFirst() }

  // MARK: Targets

  mutating func advertise(
    _ payloads: AdvertisingPayloads, _ parameters: AdvertisingParameters, as id: AdvertisingSetID,
    hci: inout HCILayer, now: Instant
  ) throws(AdvertisingError) {
    let index = try place(for: id)
    lastTurn &+= 1
    var target = Target(parameters: parameters, payloads: payloads, turn: lastTurn)
    if parameters.kind.isHighDutyCycle {
      target.parameters.duration =
        parameters.duration.map { min($0, AdvertisingParameters.highDutyCycleLimit) }
        ?? AdvertisingParameters.highDutyCycleLimit
    }
    report(sets[index].want(target, hci: &hci, now: now), index)
  }
  mutating func stop(_ id: AdvertisingSetID, hci: inout HCILayer, now: Instant) {
    guard let index = index(of: id) else { return outcomes.append((id, .ended(.stopped))) }
    report(sets[index].want(nil, hci: &hci, now: now), index)
  }
  /// The parameters that a set should advertise with; nil: none.
  func parameters(of id: AdvertisingSetID) -> AdvertisingParameters? { index(of: id).flatMap { sets[$0].parameters } }
  mutating func change(_ id: AdvertisingSetID, _ payloads: AdvertisingPayloads, hci: inout HCILayer, now: Instant) {
    guard let index = index(of: id) else { return }
    report(sets[index].change(payloads, hci: &hci, now: now), index)
  }

  /// The set with this number, or one to assign it to: an idle one, a new one, or one about to become idle.
  private mutating func place(for id: AdvertisingSetID) throws(AdvertisingError) -> Int {
    if let index = index(of: id) { return index }
    if sets.count < capacity, !sets.contains(where: { $0.isFree }) {
      sets.append(
        AdvertisingSet(
          id, handle: UInt8(sets.count), tag: tag | UInt32(sets.count), usesExtendedCommands: usesExtendedCommands,
          hostAddress: ownAddress, isSuspended: isSuspended))
      return sets.count - 1
    }
    guard let index = sets.firstIndex(where: { $0.isFree }) ?? sets.firstIndex(where: { !$0.isWanted }) else {
      throw .tooManySets(available: capacity)
    }
    report(sets[index].abandon(), index)
    sets[index].id = id
    return index
  }
  private func index(of id: AdvertisingSetID) -> Int? { sets.firstIndex { $0.id == id } }
  private mutating func report(_ outcome: AdvertisingSet.Outcome?, _ index: Int) {
    if let outcome { outcomes.append((sets[index].id, outcome)) }
  }

  // MARK: Suspension

  /// Nothing is enabled in the controller, and no command is in flight.
  var isQuiet: Bool { sets.allSatisfy { $0.isQuiet } }
  /// Turns all sets off for an operation that a controller refuses while they are on, without reporting it; `isQuiet`
  /// is true when they are off. The targets are kept, and may be changed.
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    for index in sets.indices { report(sets[index].suspend(hci: &hci, now: now), index) }
  }
  /// Brings all sets to their targets.
  mutating func resume(hci: inout HCILayer, now: Instant) {
    guard isSuspended else { return }
    isSuspended = false
    for index in sets.indices { report(sets[index].resume(hci: &hci, now: now), index) }
  }

  // MARK: The addresses of links

  /// The address on the air of the set that the controller knows by `handle`, as it was enabled last.
  func address(of handle: UInt8) -> PeerAddress? {
    usesExtendedCommands && sets.indices.contains(Int(handle)) ? sets[Int(handle)].addressOnAir : nil
  }
  /// Our address of a link that a Central has made, until LE Advertising Set Terminated names its set: certain if all
  /// sets that may have led to it have the same one.
  var addressOfNextLink: PeerAddress {
    let addresses = sets.compactMap { $0.isConnectableOnAir ? $0.addressOnAir : nil }
    return addresses.first ?? ownAddress
  }

  // MARK: From the controller

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) {
    let index = Int(outcome.tag & 0xFFFF)
    guard sets.indices.contains(index) else { return }
    report(sets[index].completed(outcome, hci: &hci, now: now), index)
  }
  /// A central has connected.
  mutating func connected(hci: inout HCILayer, now: Instant) {
    guard !usesExtendedCommands, !sets.isEmpty else { return }
    report(sets[0].ended(.connected, hci: &hci, now: now), 0)
  }
  /// LE Advertising Set Terminated: Vol 4, Part E, §7.7.65.18.
  mutating func terminated(_ handle: UInt8, _ status: HCIStatus, hci: inout HCILayer, now: Instant) {
    guard usesExtendedCommands, sets.indices.contains(Int(handle)) else { return }
    let reason: AdvertisingEnd =
      switch status {
      case .success: .connected
      case .advertisingTimeout: .durationOver
      case .limitReached: .eventsSent
      default: .terminated(status)
      }
    report(sets[Int(handle)].ended(reason, hci: &hci, now: now), Int(handle))
  }
  /// LE Connection Complete with 0x3C: legacy high duty cycle advertising is over. Vol 4, Part E, §7.8.9.
  mutating func timedOut(hci: inout HCILayer, now: Instant) {
    guard !usesExtendedCommands, !sets.isEmpty else { return }
    report(sets[0].ended(.durationOver, hci: &hci, now: now), 0)
  }
  mutating func disconnected(hci: inout HCILayer, now: Instant) {
    for index in sets.indices { report(sets[index].disconnected(hci: &hci, now: now), index) }
  }

  var deadline: Instant? { sets.reduce(nil) { .earliest($0, $1.deadline) } }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    for index in sets.indices { report(sets[index].expire(hci: &hci, now: now), index) }
  }
}
