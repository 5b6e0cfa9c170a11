import BindruneWire
import DequeModule

/// How a command ended. Every command that was taken ends exactly once.
public struct CommandOutcome: BitwiseCopyable, Sendable {
  public enum Ending: UInt8, BitwiseCopyable, Sendable {
    /// The controller answered.
    case answered
    /// It did not, within the time allowed.
    case timedOut
    /// The controller is known not to have the command: it was not sent.
    case unsupported
    /// Not sent, or not waited for any longer: the controller is being started or has failed, or the queue was full.
    case aborted
  }
  public var opcode: HCIOpcode
  /// The number that came with the command.
  public var tag: UInt32
  /// The controller's; 0x01 where it is unsupported, 0x22 where it timed out, 0x44 where it was aborted.
  public var status: HCIStatus
  /// A range of the packet that the indication came from: for `HCICommand.decodeReturn`. Empty after Command Status.
  public var returnParameters = Octets()
  public var ending: Ending
  public var timedOut: Bool { ending == .timedOut }

  public init(_ opcode: HCIOpcode, tag: UInt32, ending: Ending) {
    self.opcode = opcode
    self.tag = tag
    self.ending = ending
    switch ending {
    case .answered: status = .success
    case .timedOut: status = .lmpOrLLResponseTimeout
    case .unsupported: status = .unknownHCICommand
    case .aborted: status = .operationCancelledByHost
    }
  }
}

/// Commands on their way to the controller. Vol 4, Part E, §4.4.
///
/// # Overview
/// A command waits here, as the packet it will be, until the controller takes one: each Command Complete and Command
/// Status tells how many it takes now. Then it is outstanding until one of those two names its opcode, or until it has
/// timed out. Answers may come in another order than the commands.
///
/// # Function
/// - The number told may not count commands that crossed the event, so those outstanding are taken off: the queue may
///   send fewer than allowed, never more.
/// - Time-outs: a controller may leave a command unanswered for good (Bumble's does), and with it the right to send the
///   next. After a time-out one command may go again. A controller that says 0 and leaves it at that is not sent
///   anything: the waiting commands time out instead.
/// - A late answer is told of as unexpected. Where the same opcode is outstanding again it cannot be told from that one's.
/// - Reset goes alone: it is not sent while a command is outstanding, and nothing follows before its answer.
public struct CommandQueue: ~Copyable {
  /// How long an answer may take.
  public let timeout: Duration
  /// The most octets that wait.
  public let capacity: Int
  /// How many commands may be sent now.
  public private(set) var credit = 1

  @usableFromInline struct Entry: BitwiseCopyable {
    var opcode: HCIOpcode, tag: UInt32, count: UInt16, isAnsweredByStatus: Bool
    /// Of those outstanding.
    var deadline = Instant.zero
  }
  /// In the order of sending; `bytes` holds their packets one after another.
  @usableFromInline var waiting = Deque<Entry>()
  private var bytes = Deque<UInt8>()
  /// In the order of sending, so the first has the earliest deadline.
  private var outstanding = Deque<Entry>()
  /// Ended without an answer; told of by `expire`.
  private var ended = Deque<CommandOutcome>()
  /// When the queue last moved: waiting commands that cannot be sent time out from here.
  private var lastMoved = Instant.zero
  private var scratch = PacketBuffer(capacity: 260)

  public init(timeout: Duration = .seconds(2), capacity: Int = 4096) {
    self.timeout = timeout
    self.capacity = capacity
  }

  @inlinable @inline(__always) var hasWaiting: Bool { !waiting.isEmpty }
  /// Nothing waits and nothing is outstanding.
  public var isEmpty: Bool { waiting.isEmpty && outstanding.isEmpty }

  /// The command that was sent first of those without an answer, else the one that waits to be sent.
  var oldest: HCIOpcode? { (outstanding.first ?? waiting.first)?.opcode }

  /// Puts a command at the end. One that does not fit any more ends as `.aborted`.
  public mutating func append<C: HCICommand>(
    _ command: C, from source: Span<UInt8>, tag: UInt32, now: Instant
  ) throws(WireError) {
    _ = try scratch.fill { output throws(WireError) in
      try command.writePacket(into: &output, from: source)
      return true
    }
    guard bytes.count + scratch.count <= capacity else {
      return end(CommandOutcome(C.opcode, tag: tag, ending: .aborted))
    }
    if isEmpty { lastMoved = now }
    waiting.append(
      Entry(
        opcode: C.opcode, tag: tag, count: UInt16(scratch.count), isAnsweredByStatus: C.isAnsweredByStatus))
    scratch.withBytes { packet in
      for i in packet.indices { bytes.append(packet[i]) }
    }
  }

  /// Lets `expire` tell of a command that never came into the queue.
  mutating func end(_ outcome: CommandOutcome) { ended.append(outcome) }

  /// Forgets what the controller said, for a Reset. What waits and what is outstanding ends as `.aborted`, which is told
  /// of unless `silently`.
  public mutating func abortAll(silently: Bool = false) {
    if !silently {
      for entry in outstanding { end(CommandOutcome(entry.opcode, tag: entry.tag, ending: .aborted)) }
      for entry in waiting { end(CommandOutcome(entry.opcode, tag: entry.tag, ending: .aborted)) }
    }
    outstanding.removeAll(keepingCapacity: true)
    waiting.removeAll(keepingCapacity: true)
    bytes.removeAll(keepingCapacity: true)
    credit = 1
  }

  /// Writes the next packet, H4 packet type octet first; false when none may go, or `output` has no room for it.
  public mutating func next(into output: inout OutputRawSpan, now: Instant) -> Bool {
    guard credit > 0, var entry = waiting.first, output.freeCapacity >= Int(entry.count) else { return false }
    if entry.opcode == Reset.opcode ? !outstanding.isEmpty : outstanding.first?.opcode == Reset.opcode { return false }
    waiting.removeFirst()
    for i in 0..<Int(entry.count) { output.append(bytes[i]) }
    bytes.removeFirst(Int(entry.count))
    entry.deadline = now + timeout
    outstanding.append(entry)
    credit -= 1
    lastMoved = now
    return true
  }

  /// What an answer meant.
  enum Match {
    case ended(CommandOutcome)
    /// It changed the number of commands, nothing else.
    case nothing
    case unexpected(HCIOpcode)
  }

  mutating func receive(_ event: CommandComplete, in packet: Span<UInt8>, now: Instant) -> Match {
    let found = event.commandOpcode == .none ? nil : take(event.commandOpcode)
    move(event.numHCICommandPackets, now: now)
    guard let found else { return event.commandOpcode == .none ? .nothing : .unexpected(event.commandOpcode) }
    var outcome = CommandOutcome(found.opcode, tag: found.tag, ending: .answered)
    outcome.returnParameters = event.returnParameters
    // Every command this stack sends returns a status; a controller that forgot it gets the one for "no reason given".
    outcome.status =
      event.returnParameters.isEmpty
      ? .unspecifiedError : HCIStatus(rawValue: event.returnParameters.byte(0, in: packet))
    return .ended(outcome)
  }

  mutating func receive(_ event: CommandStatus, now: Instant) -> Match {
    let opcode = event.commandOpcode
    // "Pending" for a command that ends with Command Complete: it goes on, the number counts.
    let isPending =
      event.status == .success && outstanding.contains { $0.opcode == opcode && !$0.isAnsweredByStatus }
    let found = opcode == .none || isPending ? nil : take(opcode)
    move(event.numHCICommandPackets, now: now)
    guard let found else { return opcode == .none || isPending ? .nothing : .unexpected(opcode) }
    var outcome = CommandOutcome(opcode, tag: found.tag, ending: .answered)
    outcome.status = event.status
    return .ended(outcome)
  }

  private mutating func take(_ opcode: HCIOpcode) -> Entry? {
    outstanding.firstIndex { $0.opcode == opcode }.map { outstanding.remove(at: $0) }
  }
  private mutating func move(_ numHCICommandPackets: UInt8, now: Instant) {
    credit = max(0, Int(numHCICommandPackets) - outstanding.count)
    lastMoved = now
  }

  public var deadline: Instant? {
    if !ended.isEmpty { return .zero }
    if let first = outstanding.first { return first.deadline }
    return credit == 0 && !waiting.isEmpty ? lastMoved + timeout : nil
  }

  /// The next command that has ended without an answer; nil when none has.
  public mutating func expire(now: Instant) -> CommandOutcome? {
    if let outcome = ended.popFirst() { return outcome }
    guard let deadline, deadline <= now else { return nil }
    if let lost = outstanding.popFirst() {
      credit = max(credit, 1)
      lastMoved = now
      return CommandOutcome(lost.opcode, tag: lost.tag, ending: .timedOut)
    }
    guard let entry = waiting.popFirst() else { return nil }
    bytes.removeFirst(Int(entry.count))
    return CommandOutcome(entry.opcode, tag: entry.tag, ending: .timedOut)
  }
}
