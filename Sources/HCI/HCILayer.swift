import BindruneWire

/// The meaning of one packet from the controller, or of the passing of time, for the layers above.
public enum HCIIndication: BitwiseCopyable, Sendable {
  case nothing
  /// Data of a link. Its range refers to the packet.
  case acl(ACLPacket)
  /// Any event but Command Complete, Command Status and Number Of Completed Packets.
  case event(HCIEvent)
  /// A command from above has ended.
  case command(CommandOutcome)
  /// The controller is ready; it has no links.
  case started(ControllerInfo)
  /// The controller cannot be used; `start` may try again.
  case startFailed(StartFailure)
  case violation(HCIViolation)
}

/// A violation by the controller. The packet is reported and dropped; the scope names any further recovery.
public enum HCIViolation: Error, BitwiseCopyable, Sendable {
  /// A packet that does not decode. `.ignore`; many in a row suggest that framing is lost.
  case malformed(WireError)
  /// A packet type that no controller sends to this host: a command, synchronous or ISO data, or an undefined one.
  /// `.ignore`.
  case unexpectedPacketType(UInt8)
  /// An answer to a command that is not outstanding, such as one that has timed out. `.ignore`. Vol 4, Part E, §4.4.
  case unexpectedAnswer(HCIOpcode)
  /// Completed packets of an unknown link. `.ignore`. Vol 4, Part E, §7.7.19.
  case completedPacketsOfUnknownLink(ConnectionHandle)
  /// More completed packets than the controller held, by this many. `.ignore`. Vol 4, Part E, §7.7.19.
  case tooManyCompletedPackets(ConnectionHandle, UInt16)
  /// A new link with the handle of an open one: host and controller disagree. `.restartController`.
  /// Vol 4, Part E, §5.3.1.
  case handleInUse(ConnectionHandle)
}

/// The host's side of the Host Controller Interface: commands, events, buffers. Vol 4, Part E.
///
/// # Overview
/// `start` prepares the controller. From then on `receive` interprets its packets, `send` and `nextCommand` carry
/// commands down, and `credits` decides which link may send data.
///
/// # Phases
/// off → starting → running, or → failed; `start` leads to starting from anywhere. Only a running layer accepts
/// commands from above and passes events and data on: earlier ones belong to a previous user of the controller.
public struct HCILayer: ~Copyable {
  public struct Configuration: Sendable {
    /// The time allowed for the answer to a command.
    public var commandTimeout = Duration.seconds(2)
    /// The time allowed for a start from Reset to the last of its commands, up to 16. A controller may leave optional
    /// ones without an answer and start nevertheless, which costs `commandTimeout` for each; this bounds the sum.
    public var startTimeout = Duration.seconds(8)
    /// Octets of commands that may wait before one that `mayBeRefused` is.
    public var commandCapacity = 4096
    /// See `ControllerInfo.prefersExtendedCommands`.
    public var prefersExtendedCommands = true
    public init() {}
  }

  @usableFromInline enum Phase { case off, starting, running, failed }
  private let configuration: Configuration
  @usableFromInline private(set) var phase = Phase.off
  /// The progress of the start, while starting. Not inside `Phase`, which every packet reads and would copy.
  private var sequence = ControllerStart(prefersExtendedCommands: true)
  /// The `cause` of the start, and so of all its commands.
  public private(set) var startCause: UInt64 = 0
  /// The deadline of the start, while starting.
  private var startDeadline = Instant.zero
  @usableFromInline var queue: CommandQueue
  /// Commands wait to be sent, or for their answers.
  public var awaitsController: Bool { !queue.isEmpty }
  /// The controller's properties; defaults before it has started.
  public private(set) var info = ControllerInfo()
  /// The controller's buffers. Links open and close with their events; the owner reports which want to send.
  public var credits = DataCredits()

  public init(configuration: Configuration = Configuration()) {
    self.configuration = configuration
    queue = CommandQueue(timeout: configuration.commandTimeout, capacity: configuration.commandCapacity)
  }

  @inlinable public var isRunning: Bool { phase == .running }

  /// The most data octets in one ACL packet, whatever the controller accepts, which may be 65,535 (Vol 4, Part E,
  /// §7.8.2): Linux refuses packets of more than 1,028 octets on its HCI sockets, type and header included.
  static var longestACLData: Int { 1023 }

  /// Starts or restarts the controller. All links are lost, and commands in progress end as `.aborted`. Ends with
  /// `.started` or `.startFailed` from `receive` or `expire`, within `Configuration.startTimeout`.
  public mutating func start(now: Instant) {
    // Commands of an unfinished start belong to that start alone.
    queue.abortAll(silently: phase == .starting)
    credits.configure(aclLength: 0, total: 0)
    info = ControllerInfo()
    sequence = ControllerStart(prefersExtendedCommands: configuration.prefersExtendedCommands)
    startCause = cause
    sequence.begin(into: &queue, now: now)
    startDeadline = now + configuration.startTimeout
    phase = .starting
  }

  // MARK: Commands

  /// What causes the commands that are sent now, for the owner's records: see `CommandQueue.cause`.
  @inlinable public var cause: UInt64 { queue.cause }
  /// The commands that `body` sends have this cause; later ones have the present one again.
  public mutating func withCause<Result, Failure: Error>(
    _ cause: UInt64, _ body: (inout HCILayer) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    let present = exchangeCause(cause)
    defer { _ = exchangeCause(present) }
    return try body(&self)
  }
  /// For an owner's `withCause`, whose `body` changes the owner. Returns the present cause, to be set again.
  package mutating func exchangeCause(_ cause: UInt64) -> UInt64 {
    defer { queue.cause = cause }
    return queue.cause
  }
  /// The `cause` of the command that `nextCommand` wrote last.
  @inlinable public var causeOfLastCommand: UInt64 { queue.causeOfLast }

  /// Whether the controller has this command; false before it has started.
  public func supports(_ command: HCIOpcode) -> Bool { isRunning && info.commands.contains(command) }

  /// Queues a command, to be sent when the controller accepts one. Its outcome, which is certain, has the same `tag`: a
  /// command that the controller lacks, or that is sent while it is not running, ends without being sent. Ranges in the
  /// command refer to `source`. Throws, without an outcome, if they exceed it, or if a field is unset.
  ///
  /// `mayBeRefused`: the command ends as `.aborted` when too many wait. The others, on which the owner's machines
  /// depend, have room of their own: see `CommandQueue.reserve`.
  ///
  /// HCI_Reset is not for this function: `start` resets.
  public mutating func send<C: HCICommand>(
    _ command: C, from source: Span<UInt8>, tag: UInt32, mayBeRefused: Bool = true, now: Instant
  ) throws(WireError) {
    if !isRunning {
      queue.end(CommandOutcome(C.opcode, tag: tag, ending: .aborted))
    } else if !info.commands.contains(C.self) {
      queue.end(CommandOutcome(C.opcode, tag: tag, ending: .unsupported))
    } else {
      try queue.append(command, from: source, tag: tag, mayBeRefused: mayBeRefused, now: now)
    }
  }
  /// A command without ranges whose fields are all set (traps otherwise).
  public mutating func send<C: HCICommand>(_ command: C, tag: UInt32, mayBeRefused: Bool = true, now: Instant) {
    do throws(WireError) {
      try send(command, from: Span(), tag: tag, mayBeRefused: mayBeRefused, now: now)
    } catch {
      preconditionFailure("\(C.name) is incomplete, or has ranges whose source is to be passed: \(error)")
    }
  }

  /// Commands wait; `nextCommand` may still have to wait for the controller.
  @inlinable @inline(__always) public var hasCommand: Bool { queue.hasWaiting }
  /// Writes the next command packet, H4 packet type octet first; false when none may be sent.
  public mutating func nextCommand(into output: inout OutputRawSpan, now: Instant) -> Bool {
    queue.next(into: &output, now: now)
  }

  // MARK: From the controller

  /// One packet from the controller, H4 packet type octet first. Ranges in the indication refer to it.
  public mutating func receive(_ packet: Span<UInt8>, now: Instant) -> HCIIndication {
    guard packet.count > 0 else {
      return .violation(.malformed(.truncated("HCI packet type", needed: 1, available: 0)))
    }
    guard phase == .running || phase == .starting else { return .nothing }
    do throws(WireError) {
      switch try frequent(packet) {
      case .data(let acl): return .acl(acl)
      case .completed(let violation): return violation.map { .violation($0) } ?? .nothing
      case .other: break
      }
      switch HCIPacketType(rawValue: packet[0]) {
      case .acl:
        _ = try ACLPacket(packet)
        return .nothing
      case .event: return receive(try HCIEvent(packet), in: packet, now: now)
      default: return .violation(.unexpectedPacketType(packet[0]))
      }
    } catch {
      return .violation(.malformed(error))
    }
  }

  /// The two packets that make up nearly all traffic while links carry data.
  public enum FrequentPacket: BitwiseCopyable, Sendable {
    /// Data of a link. Its range refers to the packet.
    case data(ACLPacket)
    /// Number Of Completed Packets, which is internal. All entries are processed; of several violations the first is
    /// reported.
    case completed(HCIViolation?)
    /// Any other packet, unprocessed: pass it to `receive`.
    case other
  }
  /// The fast path for the two most frequent packets: the equivalent `receive` takes twice the instructions, because it
  /// can return any event. Throws if one of the two does not decode; a layer that is not running returns only `.other`.
  @inlinable @inline(__always)
  public mutating func frequent(_ packet: Span<UInt8>) throws(WireError) -> FrequentPacket {
    guard isRunning, packet.count >= EventHeader.count else { return .other }
    switch packet[0] {
    case HCIPacketType.acl.rawValue: return .data(try ACLPacket(packet))
    case HCIPacketType.event.rawValue where packet[1] == NumberOfCompletedPackets.code:
      let completed = try WireDecoder.decode(NumberOfCompletedPackets.self, packet, from: EventHeader.count)
      try checkTotalLength(packet[2], packet.count - EventHeader.count)
      var violation: HCIViolation?
      var entries = completed.handles.cursor
      while let entry = entries.next(in: packet) {
        let found = credits.completed(entry.connectionHandle, Int(entry.numCompletedPackets))
        violation = violation ?? found
      }
      return .completed(violation)
    default: return .other
    }
  }

  private mutating func receive(_ event: HCIEvent, in packet: Span<UInt8>, now: Instant) -> HCIIndication {
    switch event {
    case .commandComplete(let event): return take(queue.receive(event, in: packet, now: now), in: packet, now: now)
    case .commandStatus(let event): return take(queue.receive(event, now: now), in: packet, now: now)
    default: break
    }
    guard isRunning else { return .nothing }
    switch event {
    case .leConnectionComplete(let link) where link.status == .success:
      guard credits.open(link.connectionHandle) else { return .violation(.handleInUse(link.connectionHandle)) }
    case .leEnhancedConnectionComplete(let link) where link.status == .success:
      guard credits.open(link.connectionHandle) else { return .violation(.handleInUse(link.connectionHandle)) }
    case .disconnectionComplete(let link) where link.status == .success: credits.close(link.connectionHandle)
    default: break
    }
    return .event(event)
  }

  private mutating func take(_ match: CommandQueue.Match, in packet: Span<UInt8>, now: Instant) -> HCIIndication {
    switch match {
    case .nothing: return .nothing
    case .ended(let outcome): return end(outcome, in: packet, now: now)
    // During the start, answers to a previous user of the controller may still arrive.
    case .unexpected(let opcode): return isRunning ? .violation(.unexpectedAnswer(opcode)) : .nothing
    }
  }

  /// A command has ended: one of the start, or one from above.
  private mutating func end(_ outcome: CommandOutcome, in packet: Span<UInt8>, now: Instant) -> HCIIndication {
    guard phase == .starting, outcome.ending == .answered || outcome.ending == .timedOut else {
      if outcome.timedOut, let command = AnyCommand(default: outcome.opcode), command.isDispensable,
        let bit = command.supportedBit
      {
        info.commands[bit] = false
      }
      return .command(outcome)
    }
    do throws(StartFailure) {
      try withCause(startCause) { hci throws(StartFailure) in
        try hci.sequence.advance(outcome, in: packet, into: &hci.queue, now: now)
      }
    } catch {
      phase = .failed
      return .startFailed(error)
    }
    guard sequence.step == .done else { return .nothing }
    phase = .running
    info = sequence.info
    credits.configure(aclLength: min(info.aclLength, Self.longestACLData), total: info.aclCount)
    return .started(info)
  }

  // MARK: Time

  public var deadline: Instant? { phase == .starting ? .earliest(queue.deadline, startDeadline) : queue.deadline }

  /// The effect of the passing of time. Call until `.nothing`.
  public mutating func expire(now: Instant) -> HCIIndication {
    if phase == .starting, startDeadline <= now {
      phase = .failed
      let opcode = queue.oldest ?? .none
      queue.abortAll(silently: true)
      return .startFailed(.tookTooLong(opcode))
    }
    // A continued step of the start is internal; the next outcome may not be.
    while let outcome = queue.expire(now: now) {
      let indication = end(outcome, in: Span(), now: now)
      if case .nothing = indication { continue }
      return indication
    }
    return .nothing
  }
}
