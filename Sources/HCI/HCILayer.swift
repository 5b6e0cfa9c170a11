import BindruneWire

/// What one packet from the controller, or the passing of time, means to the layers above.
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

/// A way in which the controller is wrong. Each is dropped after it was told of; the scope says what else it may ask for.
public enum HCIViolation: Error, BitwiseCopyable, Sendable {
  /// A packet that does not decode. `.ignore`; many in a row mean that framing is lost.
  case malformed(WireError)
  /// A packet type that no controller sends to this host: a command, synchronous or ISO data, anything else. `.ignore`.
  case unexpectedPacketType(UInt8)
  /// An answer to a command that is not outstanding, such as one that has timed out. `.ignore`. Vol 4, Part E, §4.4.
  case unexpectedAnswer(HCIOpcode)
  /// Completed packets of a link that is not there. `.ignore`. Vol 4, Part E, §7.7.19.
  case completedPacketsOfUnknownLink(ConnectionHandle)
  /// More completed packets than the controller held, by this many. `.ignore`. Vol 4, Part E, §7.7.19.
  case tooManyCompletedPackets(ConnectionHandle, UInt16)
  /// A new link with the handle of an open one: the host and the controller disagree. `.restartController`.
  /// Vol 4, Part E, §5.3.1.
  case handleInUse(ConnectionHandle)
}

/// The host's side of the Host Controller Interface: commands, events, buffers. Vol 4, Part E.
///
/// # Overview
/// `start` readies the controller. From then on `receive` tells what each of its packets means, `send` and `nextCommand`
/// carry commands down, `credits` says which link may send data.
///
/// # Phases
/// off → starting → running, or → failed; `start` goes to starting from anywhere. Only a running layer takes commands
/// from above and lets events and data through: what comes earlier belongs to whoever used the controller before.
public struct HCILayer: ~Copyable {
  public struct Configuration: Sendable {
    /// How long the controller may take to answer a command.
    public var commandTimeout = Duration.seconds(2)
    /// How long a start may take from Reset to the last of its commands, up to 16. A controller may leave one of the optional
    /// ones without an answer and start all the same, which costs `commandTimeout`; this bounds the sum.
    public var startTimeout = Duration.seconds(8)
    /// Octets of commands that may wait.
    public var commandCapacity = 4096
    /// See `ControllerInfo.prefersExtendedCommands`.
    public var prefersExtendedCommands = true
    public init() {}
  }

  @usableFromInline enum Phase { case off, starting, running, failed }
  private let configuration: Configuration
  @usableFromInline private(set) var phase = Phase.off
  /// Where the start is, while starting. Not inside `Phase`, which every packet asks for and would copy.
  private var sequence = ControllerStart(prefersExtendedCommands: true)
  /// When the start has taken too long, while starting.
  private var startDeadline = Instant.zero
  @usableFromInline var queue: CommandQueue
  /// What is known of the controller; defaults before it has started.
  public private(set) var info = ControllerInfo()
  /// The controller's buffers. Links open and close with their events; the owner says who wants to send.
  public var credits = DataCredits()

  public init(configuration: Configuration = Configuration()) {
    self.configuration = configuration
    queue = CommandQueue(timeout: configuration.commandTimeout, capacity: configuration.commandCapacity)
  }

  @inlinable public var isRunning: Bool { phase == .running }

  /// The most data octets that go into one ACL packet, whatever the controller takes, which may be 65,535 (Vol 4, Part E,
  /// §7.8.2): Linux refuses packets of more than 1,028 octets on its HCI sockets, with the type and the header of five.
  static var longestACLData: Int { 1023 }

  /// Starts or restarts the controller. All links are gone with it, and commands in progress end as `.aborted`.
  /// Ends with `.started` or `.startFailed` from `receive` or `expire`, within `Configuration.startTimeout`.
  public mutating func start(now: Instant) {
    // The commands of an earlier start that is not over are nobody's but its own.
    queue.abortAll(silently: phase == .starting)
    credits.configure(aclLength: 0, total: 0)
    info = ControllerInfo()
    sequence = ControllerStart(prefersExtendedCommands: configuration.prefersExtendedCommands)
    sequence.begin(into: &queue, now: now)
    startDeadline = now + configuration.startTimeout
    phase = .starting
  }

  // MARK: Commands

  /// The controller has this command; false before it has started.
  public func supports(_ command: HCIOpcode) -> Bool { isRunning && info.commands.contains(command) }

  /// Queues a command, sent when the controller takes one. `tag` comes back in its outcome, which is certain: one that
  /// the controller does not have, or that comes while it is not running, ends without being sent.
  /// Ranges in the command refer to `source`. Throws, without an outcome, where they do not.
  ///
  /// HCI_Reset is not for this function: `start` resets.
  public mutating func send<C: HCICommand>(
    _ command: C, from source: Span<UInt8>, tag: UInt32, now: Instant
  ) throws(WireError) {
    if !isRunning {
      queue.end(CommandOutcome(C.opcode, tag: tag, ending: .aborted))
    } else if !info.commands.contains(C.self) {
      queue.end(CommandOutcome(C.opcode, tag: tag, ending: .unsupported))
    } else {
      try queue.append(command, from: source, tag: tag, now: now)
    }
  }
  /// A command without ranges (traps otherwise).
  public mutating func send<C: HCICommand>(_ command: C, tag: UInt32, now: Instant) {
    do throws(WireError) {
      try send(command, from: Span(), tag: tag, now: now)
    } catch {
      preconditionFailure("the command has ranges: pass their source")
    }
  }

  /// Commands wait; `nextCommand` may have to wait with them.
  @inlinable @inline(__always) public var hasCommand: Bool { queue.hasWaiting }
  /// Writes the next command packet, H4 packet type octet first; false when none may go.
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

  /// What nearly all packets are while links carry data.
  public enum FrequentPacket: BitwiseCopyable, Sendable {
    /// Data of a link. Its range refers to the packet.
    case data(ACLPacket)
    /// Number Of Completed Packets; it does not go up. All entries count; of several wrong ones the first is told.
    case completed(HCIViolation?)
    /// Anything else, which has not been looked at: it is `receive`'s.
    case other
  }
  /// The short way for the two most frequent packets: `receive`, which means the same, takes twice the instructions, because
  /// what it returns can be any event. Throws for one of the two that does not decode; a layer that is not running has only
  /// `.other`.
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
    // While it starts, answers to whoever used the controller before may still be on their way.
    case .unexpected(let opcode): return isRunning ? .violation(.unexpectedAnswer(opcode)) : .nothing
    }
  }

  /// A command has ended: the start's own, or one from above.
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
      try sequence.advance(outcome, in: packet, into: &queue, now: now)
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

  /// What time has brought. Call until `.nothing`.
  public mutating func expire(now: Instant) -> HCIIndication {
    if phase == .starting, startDeadline <= now {
      phase = .failed
      let opcode = queue.oldest ?? .none
      queue.abortAll(silently: true)
      return .startFailed(.tookTooLong(opcode))
    }
    // A step of the start that goes on means nothing to the layers above; the next outcome may.
    while let outcome = queue.expire(now: now) {
      let indication = end(outcome, in: Span(), now: now)
      if case .nothing = indication { continue }
      return indication
    }
    return .nothing
  }
}
