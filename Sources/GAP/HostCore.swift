import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// # HostCore
/// **Overview**: one Bluetooth LE host without a clock, a thread or a socket: bytes and times in, bytes and effects
/// out.
///
/// **Function**: contains the layers; the files beside this one are its rooms. `ControllerEvents` and `UpperEffects`
/// take what the layers report. `Scanning`, `Advertising` and `Connecting` are the application's use of the radio,
/// `LinksUpAndDown`, `ParameterUpdates` and `LinkStatus` its links, `ClientCalls` and `ServerCalls` their data,
/// `Pairing`, `Encryption` and `BondKeeping` their security, `Identities` the addresses. After every call the driver
/// sends what `nextPacket` writes until it writes nothing, takes `nextEffect` until it is nil, and arms one timer for
/// `deadline`.
///
/// **Phases**: stopped → starting → settingAddress (unless the public one is used) → running; back to stopped when the
/// start or the controller fails. A stopped core ignores packets and sends none.
public struct HostCore: ~Copyable {
  enum Phase: BitwiseCopyable { case stopped, starting, settingAddress, running }

  public internal(set) var configuration: HostConfiguration
  var phase = Phase.stopped
  var hci: HCILayer
  var l2cap = L2CAPLayer()
  /// The services that accept channels.
  var services: [SPSM: ChannelService] = [:]
  @usableFromInline var upper: UpperLayers
  var scans = Scans()
  var scanner = Scanner(tag: Sender.scanner.tag)
  var advertiser = Advertiser(tag: Sender.advertiser.tag)
  var connections = Connections(tag: Sender.connections.tag)
  var privacy: Privacy
  var peers = Peers()
  var bonds = Bonds()
  /// False: the core has no random numbers, and does not pair.
  let hasChance: Bool
  var defaultPHYRequests: [RequestID] = []
  var applicationCommands = ApplicationCommands()
  var lastLink: UInt32 = 0
  /// What the controller reported about itself at the last start.
  public internal(set) var controller: ControllerInfo?
  /// Commands wait to be sent, or for the controller's answers.
  public var awaitsController: Bool { hci.awaitsController }
  /// Our address on the air, and the address by which a peer with our IRK knows us.
  public internal(set) var ownAddress = PeerAddress(DeviceAddress(), .public)
  public internal(set) var identityAddress = PeerAddress(DeviceAddress(), .public)

  /// `chance` seeds keys and private addresses: the system's generator, or a test's.
  public init(
    configuration: HostConfiguration = HostConfiguration(), database: consuming Database,
    chance: inout some RandomNumberGenerator
  ) {
    self.init(configuration, database, HostChance(&chance), HostChance(&chance), hasChance: true)
  }
  /// A host without random numbers: it does not pair, and its address policy is `.identity` (traps otherwise).
  public init(configuration: HostConfiguration = HostConfiguration(), database: consuming Database) {
    precondition(configuration.addressPolicy == .identity, "private addresses need a random number generator")
    let none = HostChance(seed: 0)
    self.init(configuration, database, none, none, hasChance: false)
  }
  private init(
    _ configuration: HostConfiguration, _ database: consuming Database, _ addresses: HostChance, _ keys: HostChance,
    hasChance: Bool
  ) {
    self.configuration = configuration
    self.hasChance = hasChance
    privacy = Privacy(configuration.addressPolicy, addresses, tag: Sender.privacy.tag)
    var hciConfiguration = HCILayer.Configuration()
    hciConfiguration.prefersExtendedCommands = configuration.prefersExtendedCommands
    hci = HCILayer(configuration: hciConfiguration)
    upper = UpperLayers(server: Server(database: database), chance: keys)
  }

  public var isRunning: Bool { phase == .running }

  // MARK: The driver's calls

  /// Starts or restarts the controller. Ends with `.started` or `.startFailed` within 8 s, or 2 s later if the
  /// controller needs a random address.
  public mutating func start(now: Instant) {
    dropEverything(now)
    phase = .starting
    hci.start(now: now)
    drain(now)
  }

  /// One packet from the controller, H4 packet type first. False if it produced a value or nothing, and so no packet to
  /// send and no new deadline.
  @discardableResult
  public mutating func receive(_ packet: Span<UInt8>, now: Instant) -> Bool {
    if phase == .stopped { return false }
    do throws(WireError) {
      switch try hci.frequent(packet) {
      case .data(let acl):
        upper.mayChangeLink = false
        let mayAnswer = l2cap.receive(acl, in: packet, now: now, into: &upper)
        // Only a value or an SDU, which the batch holds, or a part of one.
        if !upper.mayChangeLink, !mayAnswer, !l2cap.hasEffect { return false }
        if hasEffects(of: acl.handle) {
          collect(acl.handle, now)
        } else if let index = upper.index(of: acl.handle) {
          note(at: index)
        }
        return true
      case .completed(let violation):
        if let violation { emit(.violation(nil, .hci(violation))) }
        if upper.awaitsDelivery {
          deliver(now)
          drain(now)
        }
        return true
      case .other: break
      }
    } catch {
      emit(.violation(nil, .hci(.malformed(error))))
      return true
    }
    handle(hci.receive(packet, now: now), in: packet, now)
    drain(now)
    return true
  }
  /// Reads a link; nil if there is none with this id.
  @inline(__always) func link<Result>(_ id: LinkID, _ body: (borrowing Link) -> Result) -> Result? {
    guard let index = upper.index(of: id) else { return nil }
    return body(upper.links[index])
  }
  @inline(__always) func link<Result>(at index: Int, _ body: (borrowing Link) -> Result) -> Result {
    body(upper.links[index])
  }
  /// Changes a link: its bearers, client or parameter update.
  @inline(__always) mutating func withLink<Result>(at index: Int, _ body: (inout Link) -> Result) -> Result {
    defer { note(at: index) }
    return body(&upper.links[index])
  }
  /// The same, for what needs random numbers.
  mutating func withLink<Result>(at index: Int, _ body: (inout Link, inout HostChance) -> Result) -> Result {
    defer { note(at: index) }
    return body(&upper.links[index], &upper.chance)
  }
  /// Notes whether a link has something to send, and its deadline, for `nextPacket` and `deadline`. It follows every
  /// change of a link; `notify` and `write` note faster what they know.
  @inline(__always) mutating func note(at index: Int) {
    let handle = upper.links[index].handle
    upper.links[index].plainHandle = AttributeHandle()
    hci.credits.setWants(handle, l2cap.hasPacket(for: handle, upper: upper))
    noteDeadline(at: index)
  }
  @inline(__always) private mutating func noteDeadline(at index: Int) {
    upper.deadlines.set(index, to: deadline(at: index))
  }
  /// When `expire` must act for a link.
  @inline(__always) func deadline(at index: Int) -> Instant? {
    .earliest(upper.links[index].deadline, l2cap.deadline(of: upper.links[index].handle))
  }

  /// Writes the next packet for the controller; false when there is none now. `output` has room for 1,100 octets.
  public mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    if phase == .stopped { return false }
    if hci.hasCommand { return nextCommandOrData(into: &output, now: now) }
    return hci.credits.mayGrant && nextData(into: &output, now: now)
  }
  // Apart, so that a call of `nextPacket` that finds nothing to send, as many do, costs little.
  @inline(never) private mutating func nextCommandOrData(into output: inout OutputRawSpan, now: Instant) -> Bool {
    hci.nextCommand(into: &output, now: now) || nextData(into: &output, now: now)
  }
  @inline(never) private mutating func nextData(into output: inout OutputRawSpan, now: Instant) -> Bool {
    while let handle = hci.credits.next() {
      let length = hci.credits.aclLength
      var isContinuation = l2cap.nextFragment(for: handle, aclLength: length, into: &output)
      if !isContinuation, l2cap.hasPart(for: handle) { isContinuation = nextPart(of: handle, into: &output) }
      upper.mayChangeLink = !isContinuation
      let wrote =
        isContinuation || l2cap.nextPacket(for: handle, aclLength: length, into: &output, now: now, from: &upper)
      // The one call of `hasPacket` here: a second one would make it a function, and `upper` would be copied for it.
      if wrote {
        hci.credits.took(handle, wantsMore: l2cap.hasPacket(for: handle, upper: upper))
      } else {
        // A request that exceeded its PDU has failed, and no other followed.
        hci.credits.setWants(handle, false)
      }
      if upper.mayChangeLink { noteWritten(to: handle, now) }
      if wrote { return true }
    }
    return false
  }
  /// Notes what the writing of a packet has changed, also if there was none. Apart, because in a longer function than
  /// `nextData` the optimiser stops inlining: `hasPacket` would be a call, with a copy of `upper`.
  @inline(never) private mutating func noteWritten(to handle: ConnectionHandle, _ now: Instant) {
    if hasEffects(of: handle) {
      collect(handle, now)
    } else if let index = upper.index(of: handle) {
      noteDeadline(at: index)
    }
  }

  /// Writes the next part of an SDU, or credits. Apart for the same reason.
  @inline(never) private mutating func nextPart(of handle: ConnectionHandle, into output: inout OutputRawSpan) -> Bool {
    l2cap.nextPart(
      for: handle, beside: upper.waiting(of: handle), aclLength: hci.credits.aclLength, into: &output)
  }

  /// Everything with a deadline, in the order in which `expire` serves it.
  private enum Timer: CaseIterable { case commands, privacy, connections, advertising, scans, links }
  @inline(__always) private func deadline(of timer: Timer) -> Instant? {
    switch timer {
    case .commands: hci.deadline
    case .privacy: privacy.deadline
    case .connections: connections.deadline
    case .advertising: advertiser.deadline
    case .scans: scans.deadline
    case .links: upper.deadlines.least
    }
  }
  private mutating func expire(_ timer: Timer, _ now: Instant) {
    switch timer {
    case .commands: drain(now)
    case .privacy: privacy.expire(not: controller?.address, now: now)
    case .connections:
      connections.expire(hci: &hci, now: now)
      reportFailedConnections()
    case .advertising:
      advertiser.expire(hci: &hci, now: now)
      reportAdvertising()
    case .scans:
      scans.expire(now: now)
      reportDiscoveries()
    case .links:
      for index in 0..<upper.links.count where upper.deadlines.isDue(index, now: now) { expireLink(at: index, now) }
    }
  }

  /// When to call `expire` next.
  public var deadline: Instant? { least }
  /// The same for a driver that asks after every batch. Mutating for speed alone: a core that is borrowed for a call is
  /// copied (1,745 octets, 210 instructions).
  public mutating func nextDeadline() -> Instant? { least }
  @inline(__always) private var least: Instant? { Timer.allCases.reduce(nil) { .earliest($0, deadline(of: $1)) } }
  /// Handles everything that is due. An early or late call does no harm.
  public mutating func expire(now: Instant) {
    for timer in Timer.allCases { expire(timer, now) }
    drain(now)
  }
  private mutating func expireLink(at index: Int, _ now: Instant) {
    let handle = upper.links[index].handle
    l2cap.expire(handle, now: now)
    expireProtection(at: index, now)
    let closed = upper.expire(at: index, now: now)
    collect(handle, now)
    for channel in closed where channel != .attribute { l2cap.closeChannel(handle, channel, now: now) }
    if !closed.isEmpty { collect(handle, now) }
    // A fixed channel cannot be closed, so the link must end: Vol 3, Part F, §3.3.3; Vol 3, Part A, §2.1.
    if closed.contains(.attribute) { disconnect(at: index, .remoteUserTerminatedConnection, now) }
  }

  /// The effects of the layers, in order. Ranges refer to `withBytes(of:)` and are valid until the next call of the
  /// core.
  @inlinable @inline(__always) public mutating func nextEffect() -> HostEffect? {
    upper.batch.nextEffect()
  }
  /// True while `nextEffect` returns an effect.
  @inlinable @inline(__always) public var hasEffect: Bool { !upper.batch.isEmpty }
  /// All effects at once: exchanges them for `batch`, which must be empty (traps otherwise). False if there is none.
  @inlinable @inline(__always) public mutating func takeBatch(_ batch: inout HostBatch) -> Bool {
    precondition(batch.isEmpty, "the batch still has effects")
    if upper.batch.isEmpty { return false }
    swap(&batch, &upper.batch)
    return true
  }
  /// The octets of a range in an effect.
  ///
  /// Inlined, because a core that is borrowed for a call is copied: 1,745 octets.
  @inlinable @inline(__always)
  public borrowing func withBytes<Result, Failure: Error>(
    of range: Octets, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try upper.batch.withBytes(of: range, body)
  }
  @inlinable @inline(__always) public func bytes(of range: Octets) -> [UInt8] { upper.batch.bytes(of: range) }

  // MARK: Causes

  /// The commands that the calls in `body` lead to have this cause, a number of the driver. Other commands have 0.
  /// Decision 0057.
  public mutating func withCause<Result>(_ cause: UInt64, _ body: (inout HostCore) -> Result) -> Result {
    let present = hci.exchangeCause(cause)
    defer { _ = hci.exchangeCause(present) }
    return body(&self)
  }
  /// The cause of the command that `nextPacket` wrote last: that of the call for which GAP queued it, also if it
  /// waited for answers to others.
  public var causeOfLastCommand: UInt64 { hci.causeOfLastCommand }
  /// The link with this handle, and the request of its client that awaits a response: nil for the client's own.
  public func requestInFlight(on handle: ConnectionHandle) -> (link: LinkID, request: RequestID?)? {
    guard let link = upper.id(of: handle) else { return nil }
    return self.link(link) { ($0.id, $0.requestInFlight) }
  }

  // MARK: Effects

  mutating func emit(_ effect: HostEffect) { upper.batch.append(effect) }

  /// Drains the layers, so that commands that ended without an answer report it before the call that led to it returns.
  mutating func drain(_ now: Instant) {
    if upper.awaitsSecurity { continueOpenings(now) }
    repeat {
      while true {
        let indication = hci.expire(now: now)
        if case .nothing = indication { break }
        handle(indication, in: Span(), now)
      }
      reportAdvertising()
    } while changePrivacy(now)
  }

  /// Ends everything that depends on the controller: links, requests, targets.
  mutating func dropEverything(_ now: Instant) {
    phase = .stopped
    privacy.reset()
    scanner.reset()
    let wereAdvertising = advertiser.reset(), requests = connections.reset()
    while upper.links.count > 0 { linkDown(upper.links[0].handle, .hardwareFailure, now) }
    for id in requests + applicationCommands.removeAll() { emit(.completed(id, .failed(.notStarted))) }
    for id in defaultPHYRequests { emit(.completed(id, .failed(.notStarted))) }
    defaultPHYRequests = []
    for id in scans.removeAll() { emit(.scanStopped(id)) }
    for id in wereAdvertising { emit(.advertisingStopped(id, .stopped)) }
  }
}
