import BasicContainers
import BindruneWire
import BindruneHCI

/// Controllers within one radio's reach, and the air between them: any number of hosts can be tested in one process,
/// with links that lose packets and end, independently of real time.
///
/// Overview: a value without a clock, which the caller owns: `receive` takes packets of a host for its controller,
/// `nextPacket` returns packets of a controller for its host, `deadline` returns the time of the next event, and
/// `advance(to:)` performs it. `World` does that in virtual time; a driver with a real clock does the same. The same
/// seed and the same order of calls give the same bytes.
///
/// Follows Vol 6, Part B for the air and Vol 4, Part E for each controller. Not modelled: clock drift, peripheral
/// latency, the benefit of a channel map, collisions of links; PHYs other than LE 1M exist on links only, and differ
/// only in their times on the air. Encryption is modelled by its keys: a packet's octets stay plain, and an end with
/// another key refuses it.
public struct Air: ~Copyable {
  var medium: Medium
  /// One for each index, including those of removed controllers.
  var controllers = UniqueArray<VirtualController>()
  /// Indexes of removed controllers.
  private var vacant: [Int] = []
  /// The number of controllers ever added.
  public private(set) var controllersAdded = 0
  private let seed: UInt64
  private var isRecording = false
  private var records: [PacketRecord] = []

  public init(seed: UInt64 = 0, configuration: AirConfiguration = .realistic) {
    self.seed = seed
    medium = Medium(configuration, seed: seed)
  }
  public var configuration: AirConfiguration { medium.radio.configuration }

  // MARK: Controllers

  /// Adds a controller in its state after power on.
  public mutating func addController(_ configuration: ControllerConfiguration) -> ControllerID {
    let id = ControllerID(number: controllersAdded, index: vacant.popLast() ?? controllers.count)
    controllersAdded += 1
    var number = SeededGenerator(seed: seed &+ UInt64(id.number) &* 0xD1B5_4A32_D192_ED03)
    let controller = VirtualController(id, configuration, medium.radio.configuration, seed: number.next())
    if id.index < controllers.count { controllers[id.index] = controller } else { controllers.append(controller) }
    return id
  }
  /// Removes a controller without ending its links, as on a power failure: its peers' links end by supervision
  /// time-out.
  public mutating func removeController(_ id: ControllerID) {
    guard isPresent(id) else { return }
    for connection in controllers[id.index].connections {
      medium.links[connection.end].close()
      noteReach(connection.end.link)
    }
    controllers[id.index].endTest(&medium)
    runErrands()
    controllers[id.index].reset()
    controllers[id.index].outbox = PacketQueue()
    controllers[id.index].isPresent = false
    medium.radio.forget(id)
    vacant.append(id.index)
  }
  public func isPresent(_ id: ControllerID) -> Bool {
    id.index < controllers.count && controllers[id.index].id == id && controllers[id.index].isPresent
  }
  /// Violations by a controller's host; none once the controller has been removed.
  public func faults(of id: ControllerID) -> HostFaults {
    isPresent(id) ? controllers[id.index].faults : HostFaults()
  }
  /// The controller's ACL buffers in use.
  public func usedBuffers(of id: ControllerID) -> Int { isPresent(id) ? controllers[id.index].usedBuffers : 0 }
  /// The number of the controller's links.
  public func linkCount(of id: ControllerID) -> Int { handles(of: id).count }
  /// Whether the controller is initiating.
  public func isInitiating(_ id: ControllerID) -> Bool { isPresent(id) && controllers[id.index].initiator != nil }
  public func handles(of id: ControllerID) -> [ConnectionHandle] {
    isPresent(id) ? controllers[id.index].connections.map(\.handle) : []
  }

  // MARK: Reach

  /// Moves two controllers out of each other's reach: their links end by supervision time-out, unless they are reunited
  /// before.
  public mutating func separate(_ a: ControllerID, _ b: ControllerID) {
    guard isPresent(a), isPresent(b) else { return }
    medium.radio.separate(a, b)
    noteReachOfAll()
  }
  /// Undoes `separate`.
  public mutating func reunite(_ a: ControllerID, _ b: ControllerID) {
    medium.radio.reunite(a, b)
    noteReachOfAll()
  }
  /// Moves a controller: strength falls with distance, and at about 560 m a 0 dBm signal is lost.
  public mutating func move(_ id: ControllerID, to position: Position) {
    guard isPresent(id) else { return }
    controllers[id.index].configuration.position = position
    noteReachOfAll()
  }
  /// Changes the probability of loss, 0 … 1.
  public mutating func setLoss(_ probability: Double) { medium.radio.configuration.loss = probability }

  // MARK: Hosts

  /// Receives one HCI packet from a controller's host, H4 packet type octet first. Any octets are allowed.
  public mutating func receive(_ packet: Span<UInt8>, at id: ControllerID, now: Instant) {
    if let deadline = medium.schedule.deadline, deadline <= now { advance(to: now) }
    medium.now = max(medium.now, now)
    guard isPresent(id) else { return }
    if isRecording { record(packet, id, isToHost: false) }
    switch packet.isEmpty ? 0 : packet[0] {
    case HCIPacketType.command.rawValue:
      controllers[id.index].receiveCommand(packet, &medium)
      runErrands()
      if medium.schedule.isCrowded { dropLateEvents() }
    case HCIPacketType.acl.rawValue:
      receiveData(packet, at: id)
    case HCIPacketType.synchronous.rawValue, HCIPacketType.iso.rawValue:
      controllers[id.index].faults.dataForUnknownHandle += 1
    default:
      // On a serial transport this means loss of synchronization. Vol 4, Part A, §4.
      controllers[id.index].faults.malformedPackets += 1
      let error = HardwareError.with { $0.hardwareCode = 1 }
      if !controllers[id.index].isBacklogged { controllers[id.index].emit(error, now: medium.now) }
    }
  }
  /// Writes the next HCI packet for a controller's host, H4 packet type octet first; false when there is none yet, or
  /// when it exceeds `output`. 260 octets hold every event, 5 more than the peers' ACL data length every data packet.
  public mutating func nextPacket(from id: ControllerID, into output: inout OutputRawSpan, now: Instant) -> Bool {
    guard isPresent(id) else { return false }
    let start = output.byteCount
    guard controllers[id.index].nextPacket(into: &output, now: now) else { return false }
    if isRecording { record(output, from: start, id) }
    if controllers[id.index].holdsBack, controllers[id.index].takesData { resume(id) }
    return true
  }
  /// Whether `nextPacket` may have a packet. It may still have none if the host has no buffer for the data.
  public func hasPacket(from id: ControllerID, now: Instant) -> Bool {
    guard isPresent(id), let release = controllers[id.index].release else { return false }
    return release <= now
  }
  /// Queues an arbitrary packet for a controller's host: vendor events, errors, invalid octets.
  public mutating func inject(_ packet: Span<UInt8>, from id: ControllerID) {
    guard isPresent(id) else { return }
    controllers[id.index].outbox.append(packet, Span())
  }

  // MARK: Time

  /// The time of the next event. Packets that a controller already has for its host are not included: call
  /// `nextPacket`.
  public var deadline: Instant? {
    var deadline = medium.schedule.deadline
    for index in 0..<controllers.count {
      if let release = controllers[index].release, release > medium.now {
        deadline = .earliest(deadline, release)
      }
    }
    return deadline
  }
  /// Performs everything that is due at `now`.
  public mutating func advance(to now: Instant) {
    while let (event, time) = medium.schedule.next(until: now) {
      medium.now = max(medium.now, time)
      switch event {
      case .advertising(let id, let generation): advertise(id, generation)
      case .advertisingTimeout(let id, let generation): endAdvertising(id, generation)
      case .scanning(let id, let generation): scanTimer(id, generation)
      case .connectionEvent(let link): connectionEvent(link)
      case .supervision(let link, let since): superviseSilence(link, since)
      case .procedureResponse(let link, let timer): endUnanswered(link, timer)
      case .authenticatedPayload(let link, let timer): checkAuthenticated(link, timer)
      case .commandCredit(let id):
        if isPresent(id) {
          // The credit of one command; those of other waiting commands follow later.
          controllers[id.index].complete(.none, nil, credits: 1, now: medium.now)
        }
      }
    }
    medium.now = max(medium.now, now)
  }
  /// Whether an event still concerns a current state.
  private func isAhead(_ event: Schedule.Event) -> Bool {
    switch event {
    case .advertising(let id, let generation), .advertisingTimeout(let id, let generation):
      isPresent(id) && controllers[id.index].advertiser(generation) != nil
    case .scanning(let id, let generation):
      isPresent(id) && controllers[id.index].scanner.isEnabled && controllers[id.index].scanner.generation == generation
    case .connectionEvent(let link): medium.links.contains(link)
    case .procedureResponse(let link, let timer):
      medium.end(of: link) { $0.isPaused && $0.procedureTimer == timer } != nil
    case .authenticatedPayload(let link, let timer):
      medium.end(of: link) { $0.receiveKey != nil && $0.payloadTimer == timer } != nil
    case .supervision(let link, let since): medium.links.contains(link) && medium.links[link].silentSince == since
    case .commandCredit(let id): isPresent(id)
    }
  }
  private mutating func dropLateEvents() {
    var entries = medium.schedule.takeAll()
    entries.removeAll { !isAhead($0.event) }
    medium.schedule.restore(entries)
  }
  /// The latest time that a caller has passed.
  public var now: Instant { medium.now }

  /// Performs what the last command left to do for other controllers.
  mutating func runErrands() {
    var index = 0
    while index < medium.errands.count {
      let errand = medium.errands[index]
      index += 1
      switch errand {
      case .serve(let link): serve(link)
      case .abandon(let end): abandon(end)
      case .cancelled(let id): reportCancelled(id)
      case .versionKnown(let end): reportVersion(end)
      case .transmitted(let transmission): count(transmission)
      }
    }
    medium.errands.removeAll(keepingCapacity: true)
  }

  // MARK: Recording

  /// Records every packet between hosts and controllers from now on, for `takeRecords`.
  public mutating func startRecording() { isRecording = true }
  /// Returns the records since the last call, in order.
  public mutating func takeRecords() -> [PacketRecord] {
    defer { records = [] }
    return records
  }
  private mutating func record(_ packet: Span<UInt8>, _ id: ControllerID, isToHost: Bool) {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(packet.count)
    for i in packet.indices { bytes.append(packet[i]) }
    records.append(PacketRecord(controller: id, isToHost: isToHost, time: medium.now, bytes: bytes))
  }
  private mutating func record(_ output: borrowing OutputRawSpan, from start: Int, _ id: ControllerID) {
    let bytes = output.bytes
    let copy = (start..<bytes.byteCount).map { unsafe bytes.unsafeLoad(fromByteOffset: $0, as: UInt8.self) }
    records.append(PacketRecord(controller: id, isToHost: true, time: medium.now, bytes: copy))
  }
}

/// A packet between a host and its controller, for a trace file.
public struct PacketRecord: Sendable, Equatable {
  public let controller: ControllerID
  /// False for packets from the host to the controller.
  public let isToHost: Bool
  public let time: Instant
  /// H4 packet type octet first.
  public let bytes: [UInt8]
}
