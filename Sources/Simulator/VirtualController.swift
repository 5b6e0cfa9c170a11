import BindruneWire
import BindruneHCI

/// The state that controllers share: the schedule, the links, and the radio.
struct Medium: ~Copyable {
  var schedule = Schedule()
  var links = LinkTable()
  var radio: Radio
  var now = Instant.zero
  /// Consequences of a command for other controllers, performed after it.
  var errands: [Errand] = []
  /// Running transmitter tests.
  var transmissions: [TestTransmission] = []
  /// The number of the last timer of a link's end.
  var timers: UInt32 = 0
  /// Counts movements on links, to detect when they end.
  var moved = 0

  enum Errand {
    /// There is something to send on this link.
    case serve(LinkID)
    /// This end of a link is gone, because its controller has been reset.
    case abandon(LinkPlace)
    /// Create Connection has been cancelled; the event follows the answer.
    case cancelled(ControllerID)
    /// The peer's version is known already.
    case versionKnown(LinkPlace)
    /// A transmitter's test has ended: the receivers on its channel have heard its packets.
    case transmitted(TestTransmission)
  }
  init(_ configuration: AirConfiguration, seed: UInt64) { radio = Radio(configuration, seed: seed) }
}

/// Violations by a host, counted for tests: none of them disturbs the controller.
public struct HostFaults: BitwiseCopyable, Sendable, Equatable {
  /// Commands sent without a credit. Vol 4, Part E, §4.4.
  public var commandsWithoutCredit = 0
  /// Data packets beyond the controller's buffers or its packet length. Vol 4, Part E, §4.1.1.
  public var dataBeyondBuffers = 0
  /// Data packets for a handle that is not a link.
  public var dataForUnknownHandle = 0
  /// Malformed packets: unknown type, wrong length, packet boundary flag 0b11.
  public var malformedPackets = 0
  public init() {}
}

/// The HCI side of one controller: its host's settings, and the packets for that host.
///
/// Overview: the commands are in Commands*.swift, one extension each; Air*.swift simulates the air; HostFlow.swift
/// holds data for which the host has no room.
struct VirtualController: ~Copyable {
  let id: ControllerID
  var configuration: ControllerConfiguration
  let air: AirConfiguration
  var isPresent = true
  var faults = HostFaults()

  /// Packets for the host.
  var outbox = PacketQueue()
  var hostFlow = HostFlow()
  private var packet = PacketBuffer(capacity: 300)
  private var random: SeededGenerator
  /// For private addresses and LE Rand, so that they do not affect other random numbers.
  var addressChance: SeededGenerator
  /// Commands whose credit has not been returned.
  var outstandingCommands = 0

  var eventMask = EventMask.afterReset
  var eventMaskPage2: EventMaskPage2 = []
  var leEventMask = LEEventMask.standard
  var randomAddress: DeviceAddress?
  var commandSet = CommandSet.undecided
  /// The first one belongs to the legacy commands; the others are advertising sets.
  var advertisers = [Advertiser()]
  private var advertisingStarts: UInt32 = 0
  var acceptList: [AirAddress] = []
  /// The entry of the Filter Accept List for all anonymous advertisers.
  var acceptsAnonymous = false
  var resolvingList = ResolvingList()
  var scanner = Scanner()
  var initiator: Initiator?
  /// The running direct test. Vol 6, Part F.
  var test: DirectTest?
  var connections: [Connection] = []
  /// Data channels that the host does not know to be bad.
  var channelMap = ChannelMap.all
  /// Gains between the radio and its antenna, in tenths of a dB. Vol 4, Part E, §7.8.76.
  var rfPath = (transmit: Int16(0), receive: Int16(0))
  var suggestedOctets: UInt16 = 27
  /// Modulations for future links; nil: all supported ones.
  var defaultPHYs: RequestedPHYs?
  /// ACL buffers in use, of all links together.
  var usedBuffers = 0
  /// Data for the host stays unacknowledged on the air.
  var holdsBack = false
  private var lastHandle: UInt16 = 0
  /// A connection has completed packets to report.
  private var hasCompleted = false

  /// Vol 4, Part E, §3.1.1: from the first such command to the next Reset only one of the two sets may be used.
  enum CommandSet { case undecided, legacy, extended }

  /// One end of a link, on the HCI side.
  struct Connection {
    let handle: ConnectionHandle, end: LinkPlace
    /// Its identity address if that is known.
    let peer: AirAddress
    /// ACL buffers in use, and acknowledged packets that have not been reported to the host.
    var usedBuffers = 0, completed: UInt16 = 0
  }

  init(_ id: ControllerID, _ configuration: ControllerConfiguration, _ air: AirConfiguration, seed: UInt64) {
    self.id = id
    self.configuration = configuration
    self.air = air
    random = SeededGenerator(seed: seed)
    addressChance = SeededGenerator(seed: ~seed)
  }

  func has(_ feature: LEFeatures) -> Bool { configuration.features.contains(feature) }

  /// Resets everything to the state after power on, except counters. Vol 4, Part E, §7.3.2.
  mutating func reset() {
    outbox.removeAll()
    hostFlow = HostFlow()
    outstandingCommands = 1
    eventMask = .afterReset
    eventMaskPage2 = []
    leEventMask = .standard
    randomAddress = nil
    commandSet = .undecided
    advertisers = [Advertiser()]
    acceptList.removeAll()
    acceptsAnonymous = false
    resolvingList = ResolvingList()
    scanner = Scanner(generation: scanner.generation &+ 1)
    initiator = nil
    test = nil
    connections.removeAll()
    channelMap = .all
    rfPath = (0, 0)
    suggestedOctets = 27
    defaultPHYs = nil
    usedBuffers = 0
    hasCompleted = false
    holdsBack = false
  }

  // MARK: Addresses

  /// The device's address on the air; `nil` if it has none of this type. Vol 6, Part B, §1.3. Types 2 and 3 request a
  /// private address and fall back to 0 and 1, which this function returns. Vol 4, Part E, §7.8.5.
  func address(_ type: OwnAddressType) -> AirAddress? {
    if type.rawValue & 1 == 0 {
      return configuration.address.value == 0 ? nil : AirAddress(isRandom: false, configuration.address)
    }
    guard let randomAddress else { return nil }
    return AirAddress(isRandom: true, randomAddress)
  }

  func address(of advertiser: Advertiser) -> AirAddress? {
    guard advertiser.handle != nil, advertiser.ownAddressType.rawValue & 1 == 1 else {
      return address(advertiser.ownAddressType)
    }
    return advertiser.randomAddress.map { AirAddress(isRandom: true, $0) }
  }
  /// The address on the air: types 2 and 3 use a private address if the resolving list has our IRK for that peer.
  mutating func address(of advertiser: Advertiser, now: Instant) -> AirAddress? {
    privateAddress(advertiser.ownAddressType, towards: advertiser.peer, now: now) ?? address(of: advertiser)
  }
  mutating func address(_ type: OwnAddressType, towards peer: AirAddress, now: Instant) -> AirAddress? {
    privateAddress(type, towards: peer, now: now) ?? address(type)
  }
  private mutating func privateAddress(
    _ type: OwnAddressType, towards peer: AirAddress, now: Instant
  ) -> AirAddress? {
    if type.rawValue < 2 { return nil }
    return resolvingList.local(towards: peer, now: now, using: &addressChance)
  }
  /// TargetA of directed advertising. Vol 6, Part B, §6.2.2.
  mutating func target(of advertiser: Advertiser, now: Instant) -> AirAddress {
    if advertiser.ownAddressType.rawValue < 2 { return advertiser.peer }
    return resolvingList.target(advertiser.peer, now: now, using: &addressChance) ?? advertiser.peer
  }
  /// Whether a directed advertisement for `target` is for us, and our identity in it.
  func ownIdentity(of target: AirAddress, _ type: OwnAddressType) -> Identified? {
    guard let own = address(type) else { return nil }
    if target == own { return Identified(air: own, identity: own) }
    return resolvingList.isLocal(target) ? Identified(air: target, identity: own) : nil
  }

  // MARK: Advertising

  /// The advertiser whose start has the number `generation`, if it is still on.
  func advertiser(_ generation: UInt32) -> Int? {
    advertisers.firstIndex { $0.isEnabled && $0.generation == generation }
  }
  mutating func startAdvertising(_ index: Int, _ medium: inout Medium, duration: Duration? = nil) {
    advertisingStarts &+= 1
    advertisers[index].isEnabled = true
    advertisers[index].generation = advertisingStarts
    advertisers[index].events = 0
    medium.schedule.plan(.advertising(id, generation: advertisingStarts), at: medium.now)
    if let duration {
      medium.schedule.plan(.advertisingTimeout(id, generation: advertisingStarts), at: medium.now + duration)
    }
  }

  // MARK: Connections

  func connection(_ handle: ConnectionHandle) -> Int? { connections.firstIndex { $0.handle == handle } }

  /// A free handle that is not the last one assigned: 0x0001 … 0x0EFF. Vol 4, Part E, §5.3.
  mutating func makeHandle() -> ConnectionHandle {
    repeat { lastHandle = lastHandle % 0x0EFF + 1 } while connection(ConnectionHandle(rawValue: lastHandle)) != nil
    return ConnectionHandle(rawValue: lastHandle)
  }
  /// A link has ended: its buffers are free again. The host infers that from Disconnection Complete. Vol 4, Part E,
  /// §4.3.
  mutating func removeConnection(_ handle: ConnectionHandle) {
    guard let index = connection(handle) else { return }
    usedBuffers -= connections[index].usedBuffers
    connections.remove(at: index)
    hasCompleted = connections.contains { $0.completed > 0 }
  }
  /// A packet of the host occupies a buffer.
  mutating func takeBuffer(_ index: Int) {
    connections[index].usedBuffers += 1
    usedBuffers += 1
  }
  /// A packet of the host has been acknowledged.
  mutating func complete(_ index: Int) {
    connections[index].usedBuffers -= 1
    usedBuffers -= 1
    completeAtOnce(index)
  }
  /// A packet of the host has needed no buffer: it is acknowledged already.
  @inline(__always) mutating func completeAtOnce(_ index: Int) {
    // The event cannot report more, and the count of a host that never reads could overflow.
    if connections[index].completed < .max { connections[index].completed += 1 }
    hasCompleted = true
  }

  // MARK: To the host

  /// The host is so far behind in reading that the controller keeps nothing more for it.
  var isBacklogged: Bool { outbox.octets >= configuration.hostBacklog }
  /// Whether there is room for data: neither the unread packets nor the data without buffers exceed the limit.
  var takesData: Bool { outbox.octets + hostFlow.waiting.octets < configuration.hostBacklog }
  /// When the next packet may leave.
  var release: Instant? { hasCompleted || hostFlow.canDeliver ? .zero : outbox.release }

  /// Writes the next packet for the host.
  mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    if hasCompleted { return writeCompletedPackets(into: &output) }
    if hostFlow.isOn, let isWritten = writeHeldData(into: &output, now: now) { return isWritten }
    guard let release = outbox.release, release <= now else { return false }
    guard outbox.frontCount <= output.freeCapacity else { return false }
    outbox.withFront { output.append(contentsOf: $0) }
    if outbox.tag == 1 { outstandingCommands = max(0, outstandingCommands - 1) }
    outbox.removeFirst()
    return true
  }
  /// Flow control towards the host: data for which the host has a buffer leaves first, other data makes way for later
  /// events. Returns `nil` if the first packet of the outbox may leave.
  private mutating func writeHeldData(into output: inout OutputRawSpan, now: Instant) -> Bool? {
    if hostFlow.canDeliver {
      guard hostFlow.waiting.frontCount <= output.freeCapacity else { return false }
      hostFlow.deliver(into: &output)
      return true
    }
    while let release = outbox.release, release <= now {
      guard outbox.withFront({ hostFlow.admits($0) }) else {
        outbox.withFront { hostFlow.waiting.append($0, Span()) }
        outbox.removeFirst()
        continue
      }
      guard outbox.frontCount <= output.freeCapacity else { return false }
      outbox.withFront { hostFlow.note($0) }
      return nil
    }
    return false
  }
  /// Number Of Completed Packets, for as many links as one event holds. Vol 4, Part E, §7.7.19.
  private mutating func writeCompletedPackets(into output: inout OutputRawSpan) -> Bool {
    let waiting = connections.count { $0.completed > 0 }
    let count = min(waiting, 62)
    guard output.freeCapacity >= 4 + 4 * count else { return false }
    hasCompleted = waiting > count
    output.append(0x04)
    output.append(NumberOfCompletedPackets.code)
    output.append(UInt8(1 + 4 * count))
    output.append(UInt8(count))
    var written = 0
    for index in connections.indices where connections[index].completed > 0 && written < count {
      output.append(littleEndian: connections[index].handle.rawValue)
      output.append(littleEndian: connections[index].completed)
      connections[index].completed = 0
      written += 1
    }
    return true
  }
  private mutating func delivery(_ now: Instant) -> Instant {
    let shortest = air.delivery.lowerBound, longest = air.delivery.upperBound
    if longest <= .zero { return .zero }
    return now + shortest + random.duration(upTo: longest - shortest)
  }
  /// Queues the packet that `write` writes.
  private mutating func queue(
    givesCredit: Bool = false, release: Instant, _ write: (inout OutputRawSpan) throws(WireError) -> Void
  ) {
    let wrote: Bool
    do throws(WireError) {
      wrote = try packet.fill { (output) throws(WireError) in
        try write(&output)
        return true
      }
    } catch { return }
    guard wrote else { return }
    packet.withBytes { outbox.append($0, Span(), tag: givesCredit ? 1 : 0, release: release) }
  }
  /// Queues an event, unless the host has masked it.
  mutating func emit<E: HCIEventMessage>(_ event: E, from source: Span<UInt8> = Span(), now: Instant) {
    guard isEnabled(E.self) else { return }
    queue(release: delivery(now)) { (output) throws(WireError) in try event.writePacket(into: &output, from: source) }
  }
  /// Queues a Command Complete.
  mutating func complete<C: HCICommand>(
    _: C.Type, _ answer: C.Return, from source: Span<UInt8> = Span(), now: Instant
  ) {
    let credits = creditsInAnswer
    queue(givesCredit: credits > 0, release: now + air.commandLatency) { (output) throws(WireError) in
      try C.writeComplete(answer, numHCICommandPackets: credits, into: &output, from: source)
    }
  }
  /// Queues a Command Complete with only a status; opcode 0 for none, which only gives credits.
  mutating func complete(_ opcode: HCIOpcode, _ status: HCIStatus?, credits: UInt8? = nil, now: Instant) {
    let credits = credits ?? creditsInAnswer
    queue(givesCredit: credits > 0, release: now + air.commandLatency) { (output) throws(WireError) in
      var complete = CommandComplete()
      complete.numHCICommandPackets = credits
      complete.commandOpcode = opcode
      complete.returnParameters = Octets(0, status == nil ? 0 : 1)
      let parameters: InlineArray<1, UInt8> = [status?.rawValue ?? 0]
      try complete.writePacket(into: &output, from: parameters.span)
    }
  }
  /// Queues a Command Status.
  mutating func answer(_ opcode: HCIOpcode, _ status: HCIStatus, now: Instant) {
    let credits = creditsInAnswer
    queue(givesCredit: credits > 0, release: now + air.commandLatency) { (output) throws(WireError) in
      let event = CommandStatus.with {
        $0.status = status
        $0.numHCICommandPackets = credits
        $0.commandOpcode = opcode
      }
      try event.writePacket(into: &output, from: Span())
    }
  }
  /// Num_HCI_Command_Packets. Vol 4, Part E, §4.4.
  private var creditsInAnswer: UInt8 { configuration.commandCreditDelay == nil ? configuration.commandCredits : 0 }

  /// Queues data from the air: the header of this controller's own link, then the octets, in packets that do not exceed
  /// the host's limit.
  mutating func deliver(
    _ handle: ConnectionHandle, _ flag: PacketBoundaryFlag, _ data: Span<UInt8>, now: Instant
  ) {
    let release = delivery(now)
    var flag = flag, start = 0
    repeat {
      let piece = data.extracting(start..<min(start + hostFlow.packetLength, data.count))
      let word = handle.rawValue | UInt16(flag.rawValue) << 12
      let header: InlineArray<5, UInt8> = [
        0x02, UInt8(truncatingIfNeeded: word), UInt8(word >> 8), UInt8(truncatingIfNeeded: piece.count),
        UInt8(truncatingIfNeeded: piece.count >> 8),
      ]
      outbox.append(header.span, piece, release: release)
      flag = .continuing
      start += piece.count
    } while start < data.count
  }
}

extension EventMask {
  /// The value after a reset: no LE Meta events. Vol 4, Part E, §7.3.1.
  fileprivate static var afterReset: EventMask { EventMask(rawValue: 0x0000_1FFF_FFFF_FFFF) }
}
