import BindruneWire
import DequeModule
import HCI

/// # Advertiser
/// **Overview**: all that a host advertises at once: its advertising sets, a machine each.
///
/// **Function**: finds the set for whoever has one, or wants one, and the set that an event is about. Sets are made as they
/// are needed, as many as the controller has, and used again when nobody wants anything of them. By the legacy commands
/// there is one.
///
/// A connection ends the advertising that led to it. By the legacy commands the link's own event tells of that, there being
/// one set (§7.8.9). By the extended ones LE Advertising Set Terminated names the set (§7.7.65.18).
///
/// What came of the wishes is in `nextOutcome`.
struct Advertiser {
  typealias Wish = AdvertisingSet.Wish
  /// SIDs are four bits: Vol 6, Part B, §2.3.4.4. More sets could not be told apart.
  static var mostSets: Int { 16 }

  private(set) var sets: [AdvertisingSet] = []
  private var outcomes = Deque<(AdvertisingSetID, AdvertisingSet.Outcome)>()
  private let tag: UInt32
  private var lastTurn: UInt32 = 0
  private var isSuspended = false
  private var usesExtendedCommands = false
  /// How many sets the controller has.
  private(set) var capacity = 1
  /// What peers see of a set whose parameters name no other address. Changed while nothing is enabled.
  var ownAddress = PeerAddress(DeviceAddress(), .public) {
    didSet { for index in sets.indices { sets[index].hostAddress = ownAddress } }
  }

  init(tag: UInt32) { self.tag = tag }

  /// A controller has been started.
  mutating func prepare(_ controller: ControllerInfo) {
    usesExtendedCommands = controller.usesExtendedCommands
    capacity = min(controller.maximumAdvertisingSets, Self.mostSets)
  }
  /// The controller has forgotten everything: whose advertising was on, or on its way.
  mutating func reset() -> [AdvertisingSetID] {
    defer {
      sets = []
      outcomes.removeAll()
      isSuspended = false
    }
    return sets.filter(\.isWatched).map(\.id)
  }
  mutating func nextOutcome() -> (AdvertisingSetID, AdvertisingSet.Outcome)? { outcomes.popFirst() }

  // MARK: Wishes

  mutating func advertise(
    _ payloads: AdvertisingPayloads, _ parameters: AdvertisingParameters, as id: AdvertisingSetID,
    hci: inout HCILayer, now: Instant
  ) throws(AdvertisingError) {
    let index = try place(for: id)
    lastTurn &+= 1
    var wish = Wish(parameters: parameters, payloads: payloads, turn: lastTurn)
    if parameters.kind.isHighDutyCycle {
      wish.parameters.duration =
        parameters.duration.map { min($0, AdvertisingParameters.highDutyCycleLimit) }
        ?? AdvertisingParameters.highDutyCycleLimit
    }
    tell(sets[index].want(wish, hci: &hci, now: now), index)
  }
  mutating func stop(_ id: AdvertisingSetID, hci: inout HCILayer, now: Instant) {
    guard let index = index(of: id) else { return outcomes.append((id, .ended(.stopped))) }
    tell(sets[index].want(nil, hci: &hci, now: now), index)
  }
  /// What is wanted of a set; nil: nothing.
  func parameters(of id: AdvertisingSetID) -> AdvertisingParameters? { index(of: id).flatMap { sets[$0].parameters } }
  mutating func change(_ id: AdvertisingSetID, _ payloads: AdvertisingPayloads, hci: inout HCILayer, now: Instant) {
    guard let index = index(of: id) else { return }
    tell(sets[index].change(payloads, hci: &hci, now: now), index)
  }

  /// The set of this number, or one that becomes it: one that is free, a new one, or one that is on its way to being free.
  private mutating func place(for id: AdvertisingSetID) throws(AdvertisingError) -> Int {
    if let index = index(of: id) { return index }
    if sets.count < capacity, !sets.contains(where: \.isFree) {
      sets.append(
        AdvertisingSet(
          id, handle: UInt8(sets.count), tag: tag | UInt32(sets.count), usesExtendedCommands: usesExtendedCommands,
          hostAddress: ownAddress, isSuspended: isSuspended))
      return sets.count - 1
    }
    guard let index = sets.firstIndex(where: \.isFree) ?? sets.firstIndex(where: { !$0.isWanted }) else {
      throw .tooManySets(available: capacity)
    }
    tell(sets[index].abandon(), index)
    sets[index].id = id
    return index
  }
  private func index(of id: AdvertisingSetID) -> Int? { sets.firstIndex { $0.id == id } }
  private mutating func tell(_ outcome: AdvertisingSet.Outcome?, _ index: Int) {
    if let outcome { outcomes.append((sets[index].id, outcome)) }
  }

  // MARK: Suspension

  /// Nothing is enabled in the controller, and no command is under way.
  var isQuiet: Bool { sets.allSatisfy(\.isQuiet) }
  /// Brings all sets to off, for as long as it takes to do what a controller refuses while they are on, and tells nobody;
  /// `isQuiet` tells when. What is wanted is kept, and may be changed.
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    for index in sets.indices { tell(sets[index].suspend(hci: &hci, now: now), index) }
  }
  /// Brings all sets to what is wanted now.
  mutating func resume(hci: inout HCILayer, now: Instant) {
    guard isSuspended else { return }
    isSuspended = false
    for index in sets.indices { tell(sets[index].resume(hci: &hci, now: now), index) }
  }

  // MARK: From the controller

  /// A command has ended, whose tag is ours.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) {
    let index = Int(outcome.tag & 0xFFFF)
    guard sets.indices.contains(index) else { return }
    tell(sets[index].completed(outcome, hci: &hci, now: now), index)
  }
  /// A central has connected.
  mutating func connected(hci: inout HCILayer, now: Instant) {
    guard !usesExtendedCommands, !sets.isEmpty else { return }
    tell(sets[0].ended(.connected, hci: &hci, now: now), 0)
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
    tell(sets[Int(handle)].ended(reason, hci: &hci, now: now), Int(handle))
  }
  /// LE Connection Complete with 0x3C: legacy high duty cycle advertising is over. Vol 4, Part E, §7.8.9.
  mutating func timedOut(hci: inout HCILayer, now: Instant) {
    guard !usesExtendedCommands, !sets.isEmpty else { return }
    tell(sets[0].ended(.durationOver, hci: &hci, now: now), 0)
  }
  mutating func disconnected(hci: inout HCILayer, now: Instant) {
    for index in sets.indices { tell(sets[index].disconnected(hci: &hci, now: now), index) }
  }

  var deadline: Instant? { sets.reduce(nil) { .earliest($0, $1.deadline) } }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    for index in sets.indices { tell(sets[index].expire(hci: &hci, now: now), index) }
  }
}
