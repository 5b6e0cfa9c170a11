import ATT
import BasicContainers
import BindruneWire
import DequeModule
import GATT
import HCI
import L2CAP

/// What a host is like. Chance and identity come from the driver.
public struct HostConfiguration: Sendable {
  /// The ATT_MTU that we offer: 23 … 517.
  public var preferredMTU = 517
  /// Octets that one link's outgoing notifications and commands may take while they wait.
  public var queueCapacity = 32 * 1024
  /// The random static address used where the controller has no public one. The driver makes it, from a good generator,
  /// and keeps it: two most significant bits 1 (Vol 6, Part B, §1.3.2.1).
  public var randomStaticAddress = DeviceAddress(0xC000_0000_0001)
  /// Scan and connect with the extended commands where the controller has them. They must not be mixed with the legacy
  /// ones (Vol 4, Part E, §3.1.1), which legacy advertising needs: a host of both roles leaves this off.
  public var prefersExtendedCommands = false
  public init() {}
}

/// # HostCore
/// **Overview**: one Bluetooth LE host without a clock, a thread or a socket: bytes and times in, bytes and effects out.
///
/// **Function**: holds the layers and joins them: HCI ↔ GAP's machines here, ACL ↔ L2CAP ↔ ATT ↔ GATT in `HostCore+ACL`,
/// the application's GATT requests in `HostCore+GATT`. After every call the driver sends what `nextPacket` writes until it
/// writes nothing, takes `nextEffect` until it is nil, and arms one timer for `deadline`.
///
/// **Phases**: stopped → starting → settingAddress → running; back to stopped when the start or the controller fails.
public struct HostCore: ~Copyable {
  enum Phase: BitwiseCopyable { case stopped, starting, settingAddress, running }
  /// Who sent a command; the lower 16 bits are a connection handle where there is one.
  enum Tag {
    static var scanner: UInt32 { 0x1_0000 }
    static var advertiser: UInt32 { 0x2_0000 }
    static var connections: UInt32 { 0x3_0000 }
    static var address: UInt32 { 0x4_0000 }
    static var disconnect: UInt32 { 0x5_0000 }
    static var unanswered: UInt32 { 0x6_0000 }
    static var update: UInt32 { 0x7_0000 }
  }

  public let configuration: HostConfiguration
  var phase = Phase.stopped
  var hci: HCILayer
  var l2cap = L2CAPLayer()
  var upper: UpperLayers
  var scanner = Scanner(tag: Tag.scanner)
  var advertiser = Advertiser(tag: Tag.advertiser)
  var connections = Connections(tag: Tag.connections)
  var lastLink: UInt32 = 0
  var effects = Deque<HostEffect>()
  /// Where the ranges of `effects` lie.
  var arena = UniqueArray<UInt8>()
  /// What the controller said of itself at the last start.
  public internal(set) var controller: ControllerInfo?
  public internal(set) var ownAddress = PeerAddress(DeviceAddress(), .public)

  public init(configuration: HostConfiguration = HostConfiguration(), database: consuming Database) {
    self.configuration = configuration
    var hciConfiguration = HCILayer.Configuration()
    hciConfiguration.prefersExtendedCommands = configuration.prefersExtendedCommands
    hci = HCILayer(configuration: hciConfiguration)
    upper = UpperLayers(server: Server(database: database))
  }

  // MARK: The driver's five calls

  /// Starts the controller, or starts it again. Ends with `.started` or `.startFailed`.
  public mutating func start(now: Instant) {
    dropEverything(now)
    phase = .starting
    hci.start(now: now)
  }

  /// One packet from the controller, H4 packet type first.
  public mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    let indication = hci.receive(packet, now: now)
    if case .acl(let acl) = indication {
      l2cap.receive(acl, in: packet, now: now, into: &upper)
      collect(acl.handle, now)
    } else {
      handle(indication, in: packet, now)
    }
  }

  /// Writes the next packet for the controller; false when there is none now. `output` has room for 1,100 octets.
  public mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    if hci.nextCommand(into: &output, now: now) { return true }
    for index in 0..<upper.links.count {
      let handle = upper.links[index].handle
      hci.credits.setWants(handle, l2cap.hasPacket(for: handle, upper: upper))
    }
    while let handle = hci.credits.next() {
      let length = hci.credits.aclLength
      if l2cap.nextPacket(for: handle, aclLength: length, into: &output, now: now, from: &upper) {
        hci.credits.took(handle)
        collect(handle, now)
        return true
      }
      hci.credits.setWants(handle, false)
    }
    return false
  }

  /// When `expire` is to be called next.
  public var deadline: Instant? {
    var earliest = Instant?.earliest(hci.deadline, .earliest(l2cap.deadline, connections.deadline))
    for index in 0..<upper.links.count { earliest = .earliest(earliest, upper.links[index].bearer.deadline) }
    return earliest
  }

  /// Does what is due. Calling it early or late is harmless.
  public mutating func expire(now: Instant) {
    let nothing: [UInt8] = []
    while true {
      let indication = hci.expire(now: now)
      if case .nothing = indication { break }
      handle(indication, in: nothing.span, now)
    }
    l2cap.expire(now: now)
    connections.expire(hci: &hci, now: now)
    var index = 0
    while index < upper.links.count {
      let handle = upper.links[index].handle
      upper.links[index].expire(now: now)
      collect(handle, now)
      index += 1
    }
  }

  /// What the layers have to say, in order. Ranges lie in `arena` until the core is called again.
  public mutating func nextEffect() -> HostEffect? { effects.popFirst() }
  /// The octets of a range in an effect.
  public borrowing func withBytes<Result, Failure: Error>(
    of range: Octets, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try body(arena.span.extracting(range.range))
  }
  public func bytes(of range: Octets) -> [UInt8] {
    withBytes(of: range) { bytes in bytes.indices.map { bytes[$0] } }
  }

  // MARK: Effects

  mutating func emit(_ effect: HostEffect) { effects.append(effect) }
  /// Keeps octets for an effect that is about to be emitted.
  mutating func keep(_ bytes: Span<UInt8>) -> Octets {
    if effects.isEmpty { arena.removeAll(keepingCapacity: true) }
    let range = Octets(arena.count, bytes.count)
    arena.append(copying: bytes)
    return range
  }
  mutating func keep(_ range: Octets, of packet: Span<UInt8>) -> Octets {
    keep(packet.extracting(range.range))
  }

  // MARK: HCI ↔ GAP

  private mutating func handle(_ indication: HCIIndication, in packet: Span<UInt8>, _ now: Instant) {
    switch indication {
    case .nothing, .acl: break
    case .event(let event): handle(event, in: packet, now)
    case .command(let outcome): handle(outcome, now)
    case .started(let info): started(info, now)
    case .startFailed(let failure):
      phase = .stopped
      emit(.startFailed(failure))
    case .violation(let violation): emit(.violation(nil, .hci(violation)))
    }
  }

  private mutating func started(_ info: ControllerInfo, _ now: Instant) {
    controller = info
    scanner.usesExtendedCommands = info.usesExtendedScanning
    connections.usesExtendedCommands = info.usesExtendedConnect
    guard info.needsRandomAddress else {
      ownAddress = PeerAddress(info.address, .public)
      return run()
    }
    ownAddress = PeerAddress(configuration.randomStaticAddress, .random)
    var command = LESetRandomAddress()
    command.randomAddress = configuration.randomStaticAddress
    hci.send(command, tag: Tag.address, now: now)
    phase = .settingAddress
  }
  private mutating func run() {
    let type: OwnAddressType = ownAddress.isRandom ? .random : .public
    scanner.ownAddressType = type
    advertiser.ownAddressType = type
    connections.ownAddressType = type
    phase = .running
    emit(.started)
  }

  private mutating func handle(_ outcome: CommandOutcome, _ now: Instant) {
    switch outcome.tag & 0xFFFF_0000 {
    case Tag.scanner:
      switch scanner.completed(outcome, hci: &hci, now: now) {
      case .started: emit(.scanStarted)
      case .stopped: emit(.scanStopped)
      case .failed(let status): emit(.scanFailed(status))
      case nil: break
      }
    case Tag.advertiser:
      let hasLinks = upper.links.count > 0
      switch advertiser.completed(outcome, hasLinks: hasLinks, hci: &hci, now: now) {
      case .started: emit(.advertisingStarted)
      case .stopped: emit(.advertisingStopped)
      case .failed(let status): emit(.advertisingFailed(status))
      case nil: break
      }
    case Tag.connections:
      let verdict = connections.answered(outcome, hci: &hci, now: now)
      if case .failed(let id, let failure) = verdict { emit(.completed(id, .failed(failure))) }
    case Tag.address:
      // A controller that has no random address is one that we cannot advertise with; the next command will say so.
      run()
    case Tag.disconnect where outcome.status != .success:
      // Unknown Connection Identifier: the link went down meanwhile, and its event has been or will be here.
      if outcome.status == .unknownConnectionIdentifier {
        linkDown(
          ConnectionHandle(rawValue: UInt16(truncatingIfNeeded: outcome.tag)), .connectionTerminatedByLocalHost, now)
      }
    default: break
    }
  }

  /// Everything that hangs on the controller ends: links, requests, wishes.
  mutating func dropEverything(_ now: Instant) {
    while upper.links.count > 0 { linkDown(upper.links[0].handle, .hardwareFailure, now) }
    for id in connections.reset() { emit(.completed(id, .failed(.notStarted))) }
    scanner.reset()
    advertiser.reset()
    phase = .stopped
  }
}
