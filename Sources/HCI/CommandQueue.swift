import BindruneWire
import DequeModule

/// How a command ended. Every accepted command ends exactly once.
public struct CommandOutcome: BitwiseCopyable, Sendable {
  public enum Ending: UInt8, BitwiseCopyable, Sendable {
    /// The controller answered.
    case answered
    /// The controller did not answer within the time allowed.
    case timedOut
    /// The controller does not have the command, which was not sent.
    case unsupported
    /// Not sent, or no longer awaited: the controller is being started or has failed, or the queue was full.
    case aborted
  }
  public var opcode: HCIOpcode
  /// The caller's tag.
  public var tag: UInt32
  /// The controller's status; 0x01 if unsupported, 0x22 if timed out, 0x44 if aborted.
  public var status: HCIStatus
  /// A range of the indication's packet, for `HCICommand.decodeReturn`. Empty after Command Status.
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

/// Commands to the controller. Vol 4, Part E, §4.4.
///
/// # Overview
/// A command waits here, already encoded, until the controller accepts one: each Command Complete and Command Status
/// contains the number that it accepts now. Then it is outstanding until one of those two names its opcode, or until it
/// times out. Answers may arrive in another order than the commands.
///
/// # Function
/// - That number may not account for commands that crossed the event, so the outstanding ones are subtracted: the queue
///   may send fewer than allowed, never more.
/// - Time-outs: a controller may never answer a command (Bumble's does that), and so never permit the next. After a
///   time-out one command may be sent again. A controller that reports 0 and nothing else gets no command: the waiting
///   commands time out instead.
/// - A late answer is reported as unexpected. If the same opcode is outstanding again, it is taken as that one's
///   answer.
/// - Reset is sent alone: not while a command is outstanding, and nothing follows before its answer.
public struct CommandQueue: ~Copyable {
  /// The time allowed for an answer.
  public let timeout: Duration
  /// The limit of waiting octets for commands that may be refused.
  public let capacity: Int
  /// The limit for all others. Their senders wait for answers and so never have more than a few waiting; this bounds
  /// the memory against a controller that accepts no command while its events ask for replies.
  public var reserve: Int { capacity + 65_536 }
  /// The number of commands that may be sent now.
  public private(set) var credit = 1
  /// What causes the commands that are appended now, for the owner's records; 0: nothing that the owner names.
  public internal(set) var cause: UInt64 = 0
  /// The `cause` of the command that `next` wrote last.
  public private(set) var causeOfLast: UInt64 = 0

  @usableFromInline struct Entry: BitwiseCopyable {
    var opcode: HCIOpcode, tag: UInt32, count: UInt16, isAnsweredByStatus: Bool
    /// The `cause` when it was appended.
    var cause: UInt64 = 0
    /// The deadline of the outstanding commands.
    var deadline = Instant.zero
  }
  /// In the order of sending; `bytes` holds their packets one after another.
  @usableFromInline var waiting = Deque<Entry>()
  private var bytes = Deque<UInt8>()
  /// In the order of sending, so the first has the earliest deadline.
  private var outstanding = Deque<Entry>()
  /// Ended without an answer; `expire` reports them.
  private var ended = Deque<CommandOutcome>()
  /// When the queue last advanced: waiting commands that cannot be sent time out from here.
  private var lastMoved = Instant.zero
  private var scratch = PacketBuffer(capacity: 260)

  public init(timeout: Duration = .seconds(2), capacity: Int = 4096) {
    self.timeout = timeout
    self.capacity = capacity
  }

  @inlinable @inline(__always) var hasWaiting: Bool { !waiting.isEmpty }
  /// Nothing waits and nothing is outstanding.
  public var isEmpty: Bool { waiting.isEmpty && outstanding.isEmpty }

  /// The earliest sent command without an answer, else the first waiting one.
  var oldest: HCIOpcode? { (outstanding.first ?? waiting.first)?.opcode }

  /// Appends a command. One that does not fit ends as `.aborted`: if it `mayBeRefused`, beyond `capacity`, else beyond
  /// `reserve`.
  public mutating func append<C: HCICommand>(
    _ command: C, from source: Span<UInt8>, tag: UInt32, mayBeRefused: Bool = true, now: Instant
  ) throws(WireError) {
    _ = try scratch.fill { output throws(WireError) in
      try command.writePacket(into: &output, from: source)
      return true
    }
    guard bytes.count + scratch.count <= (mayBeRefused ? capacity : reserve) else {
      return end(CommandOutcome(C.opcode, tag: tag, ending: .aborted))
    }
    if isEmpty { lastMoved = now }
    waiting.append(
      Entry(
        opcode: C.opcode, tag: tag, count: UInt16(scratch.count), isAnsweredByStatus: C.isAnsweredByStatus,
        cause: cause))
    scratch.withBytes { packet in
      for i in packet.indices { bytes.append(packet[i]) }
    }
  }

  /// Lets `expire` report a command that never entered the queue.
  mutating func end(_ outcome: CommandOutcome) { ended.append(outcome) }

  /// Resets the queue with the controller. Waiting and outstanding commands end as `.aborted`, which `expire` reports
  /// unless `silently`.
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

  /// Writes the next packet, H4 packet type octet first; false when none may be sent, or `output` has no room for it.
  public mutating func next(into output: inout OutputRawSpan, now: Instant) -> Bool {
    guard credit > 0, var entry = waiting.first, output.freeCapacity >= Int(entry.count) else { return false }
    if entry.opcode == Reset.opcode ? !outstanding.isEmpty : outstanding.first?.opcode == Reset.opcode { return false }
    waiting.removeFirst()
    for i in 0..<Int(entry.count) { output.append(bytes[i]) }
    bytes.removeFirst(Int(entry.count))
    entry.deadline = now + timeout
    outstanding.append(entry)
    causeOfLast = entry.cause
    credit -= 1
    lastMoved = now
    return true
  }

  /// The meaning of an answer.
  enum Match {
    case ended(CommandOutcome)
    /// It only changed the number of commands.
    case nothing
    case unexpected(HCIOpcode)
  }

  mutating func receive(_ event: CommandComplete, in packet: Span<UInt8>, now: Instant) -> Match {
    let found = event.commandOpcode == .none ? nil : take(event.commandOpcode)
    move(event.numHCICommandPackets, now: now)
    guard let found else { return event.commandOpcode == .none ? .nothing : .unexpected(event.commandOpcode) }
    var outcome = CommandOutcome(found.opcode, tag: found.tag, ending: .answered)
    outcome.returnParameters = event.returnParameters
    // Every command of this stack returns a status; if the controller omits it, "no reason given" is used.
    outcome.status =
      event.returnParameters.isEmpty
      ? .unspecifiedError : HCIStatus(rawValue: event.returnParameters.byte(0, in: packet))
    return .ended(outcome)
  }

  mutating func receive(_ event: CommandStatus, now: Instant) -> Match {
    let opcode = event.commandOpcode
    // "Pending" for a command that ends with Command Complete: the command stays outstanding, the number applies.
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
