import BindruneWire
import BindruneHCI

/// # AdvertisingSet
/// **Overview**: brings one advertising set of the controller to its target, which may change at any time. With the
/// legacy commands there is one set, without a number.
///
/// **Function**: records what the controller has accepted, and sends only the differences: parameters, address, data,
/// scan response, enable, each after the answer to the one before. So a restart after a connection is the enable
/// command alone, and data change without a gap: advertising stays on for them (Vol 4, Part E, §7.8.7, §7.8.54), but
/// not for parameters (§7.8.5, §7.8.53), nor for data longer than one command carries, whose pieces are refused while
/// the set is on (§7.8.54). An enable restarts a duration or a number of events; it follows a disable, because an
/// enable sent while advertising is on (§7.8.56) could not be distinguished from one that crosses the end. Each target
/// has one outcome, unless a later target replaces it.
///
/// Removes a set before its PDUs change type, because the new PDUs might not be allowed to carry its data (§7.8.53). A
/// connection, a duration or a number of events ends advertising: the caller then calls `ended`.
///
/// **Phases**: `move` has all transitions. The end may be reported while a command is in flight. A restart that the
/// controller refuses because of its links waits until a link goes down.
struct AdvertisingSet: Suspendable {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case ended(AdvertisingEnd)
    case failed(HCIStatus)
  }
  /// The target of a phase is the one that was enabled last, or is being enabled.
  enum Phase {
    /// nil: there was none.
    case off(Target?)
    case setting(Step, Target, Cause)
    case on(Target)
    case changing(Step, Target)
    case disabling(Target)
    case ended(AdvertisingEnd, Target)
    case blocked(Target)

    var target: Target? {
      switch self {
      case .off(let target): target
      case .setting(_, let target, _), .on(let target), .changing(_, let target), .disabling(let target),
        .ended(_, let target), .blocked(let target):
        target
      }
    }
  }
  enum Event {
    /// No command is in flight, and the goal needs this one, for which advertising need not be off if `staysOn`.
    case need(Step, Target, Cause, staysOn: Bool = false)
    /// The set is to be off.
    case needNothing
    /// The controller has all that this target needs, and the set is on.
    case reached(Target)
    /// A caller has changed the target, or its time is over.
    case called
    /// `next`: the data are longer than the piece that was accepted.
    case accepted(next: Step?)
    case refused(Refusal)
    case ended(AdvertisingEnd)
    case linkDown
  }
  enum Refusal: BitwiseCopyable {
    case final
    /// Advertising may be possible when there are fewer links.
    case untilLinkDown
  }
  enum Command { case send(Step, Target), disable }
  /// The command in flight; for data, the offset of its piece.
  enum Step: BitwiseCopyable, Equatable { case removal, parameters, address, data(Int), scanResponse(Int), enable }
  /// Why advertising is being set up: for a new target; again, after it was on; again, after a link has gone down.
  enum Cause: BitwiseCopyable { case request, restart, retry }
  struct Target: Equatable {
    var parameters: AdvertisingParameters
    /// At most as long as the controller allows.
    var payloads: AdvertisingPayloads
    /// The number of the call: a later call restarts a duration or a number of events.
    var turn: UInt32
  }
  /// What the callers want.
  private enum Wish {
    /// `until`: when the target's duration ends; known from its first start on.
    case advertise(Target, until: Instant?)
    /// Why there is no target.
    case off(AdvertisingEnd)
  }
  /// What the controller has accepted; nil if that is unknown.
  struct Contents: Equatable {
    /// Those of the controller's set; nil if it has none.
    var properties: AdvertisingProperties?
    var settings: AdvertisingSettings?
    var address: DeviceAddress?
    var advertising: [UInt8]?
    var scanResponse: [UInt8]?
  }

  /// Octets of data in one command: Vol 4, Part E, §7.8.54, §7.8.55.
  static var longestPiece: Int { 251 }
  /// How much later than the controller the host ends advertising whose duration the controller counts.
  static var patience: Duration { .seconds(1) }

  var id: AdvertisingSetID
  /// Advertising_Handle, and the Advertising SID by which scanners distinguish sets: 0 … 15.
  let handle: UInt8
  private let tag: UInt32
  private let usesExtendedCommands: Bool
  /// Used if the parameters name no other.
  var hostAddress: PeerAddress
  private(set) var phase = Phase.off(nil)
  private var wish = Wish.off(.stopped)
  /// The outcome of the last wish has not been reported.
  private var isOutcomePending = false
  private var contents = Contents()
  var isSuspended: Bool
  var cause: UInt64 = 0

  init(
    _ id: AdvertisingSetID, handle: UInt8, tag: UInt32, usesExtendedCommands: Bool, hostAddress: PeerAddress,
    isSuspended: Bool
  ) {
    self.id = id
    self.handle = handle
    self.tag = tag
    self.usesExtendedCommands = usesExtendedCommands
    self.hostAddress = hostAddress
    self.isSuspended = isSuspended
  }

  private var wanted: Target? { if case .advertise(let target, _) = wish { target } else { nil } }
  /// When the host's clock ends the target.
  private var end: Instant? { if case .advertise(_, let until) = wish { until } else { nil } }
  /// The state to bring the controller to.
  private var goal: Target? { isSuspended ? nil : wanted }
  /// The set is off, and no caller awaits its outcome.
  var isFree: Bool {
    if case .off = phase { return !isWatched }
    return false
  }
  var isWanted: Bool { if case .advertise = wish { true } else { false } }
  /// A caller awaits an outcome, or must learn of the end.
  var isWatched: Bool { isWanted || isOutcomePending }
  var isQuiet: Bool {
    switch phase {
    case .off, .blocked: true
    case .setting, .on, .changing, .disabling, .ended: false
    }
  }

  // MARK: Transitions

  /// Every transition; nil: the event leaves the phase as it is. After a move without a command the set goes on.
  static func move(from phase: Phase, on event: Event) -> Move<Phase, Command>? {
    switch (phase, event) {
    case (.off, .need(let step, let goal, let cause, _)): Move(.setting(step, goal, cause), .send(step, goal))
    case (.on(let target), .need(let step, let goal, _, staysOn: true)):
      Move(.changing(step, target), .send(step, goal))
    case (.on(let target), .need(_, _, _, staysOn: false)), (.on(let target), .needNothing):
      Move(.disabling(target), .disable)
    case (.on, .reached(let goal)): Move(.on(goal))

    case (.setting(_, let target, let cause), .accepted(let next?)):
      Move(.setting(next, target, cause), .send(next, target))
    case (.setting(.enable, let target, _), .accepted(nil)): Move(.on(target))
    case (.setting(_, let target, _), .accepted(nil)): Move(.off(target))
    case (.setting(_, let target, _), .refused(.final)): Move(.off(target))
    case (.setting(_, let target, _), .refused(.untilLinkDown)): Move(.blocked(target))
    case (.changing(_, let target), .accepted): Move(.on(target))
    // The change may be possible while advertising is off.
    case (.changing(_, let target), .refused): Move(.disabling(target), .disable)
    // Regardless of the status: nothing else can stop advertising.
    case (.disabling(let target), .accepted), (.disabling(let target), .refused): Move(.off(target))
    case (.ended(_, let target), .accepted), (.ended(_, let target), .refused): Move(.off(target))

    case (.on(let target), .ended): Move(.off(target))
    // The end proves that advertising had begun.
    case (.setting(.enable, let target, _), .ended(let reason)): Move(.ended(reason, target))
    case (.changing(_, let target), .ended(let reason)): Move(.ended(reason, target))
    case (.disabling(let target), .ended(let reason)): Move(.ended(reason, target))

    case (.blocked(let target), .called), (.blocked(let target), .linkDown): Move(.off(target))
    // The caller gets a refusal instead of a wait for a link to go down.
    case (.setting(let step, let target, _), .called): Move(.setting(step, target, .request))
    // The link may have been the one in the way.
    case (.setting(let step, let target, .restart), .linkDown): Move(.setting(step, target, .retry))

    case (.off, _), (.setting, _), (.on, _), (.changing, _), (.disabling, _), (.ended, _), (.blocked, _): nil
    }
  }
  /// Returns whether the event has led to another phase, and no command is sent on the way.
  @discardableResult private mutating func take(_ event: Event, _ hci: inout HCILayer, _ now: Instant) -> Bool {
    guard let move = Self.move(from: phase, on: event) else { return false }
    phase = move.phase
    switch move.command {
    case .send(let step, let target): send(step, of: target, &hci, now)
    case .disable: sendEnable(nil, &hci, now)
    case nil: return true
    }
    return false
  }

  // MARK: Targets

  /// The address on the air since the set was enabled last; nil: it never was.
  var addressOnAir: PeerAddress? {
    guard let target = phase.target else { return nil }
    guard usesExtendedCommands, let own = target.parameters.address else { return hostAddress }
    return PeerAddress(own, .random)
  }
  /// A Central may have connected to the set.
  var isConnectableOnAir: Bool {
    switch phase {
    case .on(let target), .changing(_, let target), .disabling(let target), .setting(.enable, let target, _):
      target.parameters.kind.isConnectable
    case .off, .setting, .ended, .blocked: false
    }
  }

  /// nil: do not advertise. Returns the outcome if it is already certain; otherwise one of the calls below does.
  mutating func want(_ target: Target?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wish = target.map { .advertise($0, until: nil) } ?? .off(.stopped)
    cause = hci.cause
    isOutcomePending = true
    take(.called, &hci, now)
    return go(.request, &hci, now)
  }
  /// Changes the data of the target, and nothing else. A blocked set stays blocked, and reports when it is on again.
  mutating func change(_ payloads: AdvertisingPayloads, hci: inout HCILayer, now: Instant) -> Outcome? {
    if case .advertise(var target, let end) = wish {
      target.payloads = payloads
      wish = .advertise(target, until: end)
    }
    cause = hci.cause
    isOutcomePending = true
    return go(.restart, &hci, now)
  }
  var parameters: AdvertisingParameters? { wanted?.parameters }
  /// The set's number, which nobody wants any more, is about to be reassigned: returns the outcome that is still to
  /// report.
  mutating func abandon() -> Outcome? {
    switch wish {
    case .advertise: wish = .off(.stopped)
    case .off: break
    }
    return offReport()
  }

  mutating func suspensionChanged(hci: inout HCILayer, now: Instant) -> Outcome? {
    if case .blocked = phase { take(.called, &hci, now) }
    return go(isOutcomePending ? .request : .restart, &hci, now)
  }

  /// Removes the target.
  private mutating func forget(_ reason: AdvertisingEnd) {
    wish = .off(reason)
    isOutcomePending = true
  }
  /// The outcome, if it has not been reported.
  private mutating func unreported(_ outcome: Outcome) -> Outcome? {
    defer { isOutcomePending = false }
    return isOutcomePending ? outcome : nil
  }
  /// The set is off: the outcome of a wish for that.
  private mutating func offReport() -> Outcome? {
    switch wish {
    case .advertise: nil
    case .off(let reason): unreported(.ended(reason))
    }
  }

  // MARK: Steps

  /// Sends the next command on the way to the goal, in a phase without one in flight.
  private mutating func go(_ cause: Cause, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .off:
      if let end, end <= now { forget(.durationOver) }
      guard let goal else { return offReport() }
      take(.need(next(to: goal), goal, cause), &hci, now)
    case .on(let current):
      guard let goal else {
        take(.needNothing, &hci, now)
        return nil
      }
      let next = next(to: goal)
      if next == .enable, goal.turn == current.turn || !(isCounted(goal) || isCounted(current)) {
        take(.reached(goal), &hci, now)
        return started(now)
      }
      take(.need(next, goal, cause, staysOn: isPossibleWhileOn(next, goal)), &hci, now)
    case .setting, .changing, .disabling, .ended, .blocked: break
    }
    return nil
  }
  private mutating func started(_ now: Instant) -> Outcome? {
    if case .advertise(let target, nil) = wish {
      wish = .advertise(target, until: phase.target?.parameters.duration.map { now + $0 })
    }
    return unreported(.started)
  }

  /// The next step on the way to `target`, if no data are half sent.
  private func next(to target: Target) -> Step {
    let settings = settings(of: target)
    if let properties = contents.properties, properties != settings.properties { return .removal }
    if contents.settings != settings { return .parameters }
    if let address = randomAddress(of: target), contents.address != address { return .address }
    if settings.properties.takesData || !usesExtendedCommands, contents.advertising != target.payloads.advertising {
      return .data(0)
    }
    if settings.properties.takesScanResponse || !usesExtendedCommands,
      contents.scanResponse != target.payloads.scanResponse
    {
      return .scanResponse(0)
    }
    return .enable
  }
  /// The next piece of data after this one; nil if it was the last.
  private func nextPiece(after step: Step, _ target: Target) -> Step? {
    switch step {
    case .data(let start) where start + Self.longestPiece < target.payloads.advertising.count:
      .data(start + Self.longestPiece)
    case .scanResponse(let start) where start + Self.longestPiece < target.payloads.scanResponse.count:
      .scanResponse(start + Self.longestPiece)
    case .data, .scanResponse, .removal, .parameters, .address, .enable: nil
    }
  }
  /// Vol 4, Part E, §7.8.54, §7.8.55: data of one command; and the scan response of scannable extended PDUs, which is
  /// all their data, must not become empty.
  private func isPossibleWhileOn(_ step: Step, _ target: Target) -> Bool {
    switch step {
    case .data: target.payloads.advertising.count <= Self.longestPiece
    case .scanResponse:
      target.payloads.scanResponse.count <= Self.longestPiece
        && (target.payloads.usesLegacyPDUs || !target.payloads.scanResponse.isEmpty)
    case .removal, .parameters, .address, .enable: false
    }
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    hci.withCause(cause) { advance(outcome, &$0, now) }
  }
  private mutating func advance(_ outcome: CommandOutcome, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    let isAccepted = outcome.status == .success
    if !isAccepted { contents.forget(outcome.opcode) }
    switch phase {
    case .off, .on, .blocked: return nil
    case .setting(let step, let target, let cause):
      guard isAccepted else { return refused(outcome.status, target, cause, &hci, now) }
      if step == .removal { contents = Contents() }
      if step == .parameters, usesExtendedCommands { contents.properties = contents.settings?.properties }
      let next = goal == target ? nextPiece(after: step, target) : nil
      return take(.accepted(next: next), &hci, now) ? go(cause, &hci, now) : nil
    case .changing, .disabling:
      guard take(isAccepted ? .accepted(next: nil) : .refused(.final), &hci, now) else { return nil }
      return go(isContinued ? .restart : .request, &hci, now)
    case .ended(let reason, _):
      take(isAccepted ? .accepted(next: nil) : .refused(.final), &hci, now)
      return over(reason, &hci, now)
    }
  }
  /// The target is the enabled one, perhaps with other data.
  private var isContinued: Bool { isWanted && wanted?.turn == phase.target?.turn }

  private mutating func refused(
    _ status: HCIStatus, _ target: Target, _ cause: Cause, _ hci: inout HCILayer, _ now: Instant
  ) -> Outcome? {
    let isGoal = goal == target, mayWait = isGoal && status.meansTooManyLinks
    take(.refused(mayWait && cause == .restart ? .untilLinkDown : .final), &hci, now)
    if !isGoal { return go(cause, &hci, now) }
    switch cause {
    case .restart where mayWait: return nil
    // The link that went down while the command was in flight may have been the one in the way.
    case .retry where mayWait: return go(.restart, &hci, now)
    case .request, .restart, .retry: break
    }
    forget(.stopped)
    return unreported(.failed(status))
  }

  // MARK: The end

  /// Advertising has ended: by a connection, or by the controller's clock or counter.
  mutating func ended(_ reason: AdvertisingEnd, hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .on:
      cause = hci.cause
      take(.ended(reason), &hci, now)
      return over(reason, &hci, now)
    case .setting(.enable, let target, _):
      take(.ended(reason), &hci, now)
      return goal != nil && goal == target ? started(now) : nil
    case .off, .setting, .changing, .disabling, .ended, .blocked:
      take(.ended(reason), &hci, now)
      return nil
    }
  }
  private mutating func over(_ reason: AdvertisingEnd, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    guard isContinued else { return go(.request, &hci, now) }
    isOutcomePending = true
    if reason != .connected || wanted?.parameters.restartsAfterConnection != true { forget(reason) }
    return go(.restart, &hci, now)
  }
  /// A link has gone down: a refused restart may be possible now.
  mutating func disconnected(hci: inout HCILayer, now: Instant) -> Outcome? {
    if case .blocked = phase { cause = hci.cause }
    return take(.linkDown, &hci, now) ? go(.restart, &hci, now) : nil
  }

  /// When the host ends it; later than the controller, if that counts the time too.
  var deadline: Instant? {
    guard let end else { return nil }
    switch phase {
    case .on(let target), .changing(_, let target): return countedTime(of: target) == 0 ? end : end + Self.patience
    case .off, .setting, .disabling, .ended, .blocked: return end
    }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) -> Outcome? {
    guard let deadline, deadline <= now else { return nil }
    cause = hci.cause
    forget(.durationOver)
    if case .blocked = phase { take(.called, &hci, now) }
    return go(.request, &hci, now)
  }

  // MARK: Commands

  /// The duration in units of 10 ms; 0 if the controller has no clock for it, or a too short one.
  private func countedTime(of target: Target?, left: Duration? = nil) -> UInt16 {
    guard let target, let duration = left ?? target.parameters.duration else { return 0 }
    // With the legacy commands the controller counts only this one, without being asked: §7.8.9.
    guard usesExtendedCommands || target.parameters.kind.isHighDutyCycle else { return 0 }
    return UInt16(exactly: max(1, (duration.nanoseconds + 9_999_999) / 10_000_000)) ?? 0
  }
  /// Whether the controller ends it.
  private func isCounted(_ target: Target) -> Bool {
    target.parameters.maximumEvents != nil || countedTime(of: target) > 0
  }
  private func settings(of target: Target) -> AdvertisingSettings {
    AdvertisingSettings(
      target.parameters, usesLegacyPDUs: target.payloads.usesLegacyPDUs,
      ownAddressType: target.parameters.address != nil || hostAddress.isRandom ? .random : .public)
  }
  /// The address to set: Vol 4, Part E, §7.8.52. With the legacy commands the whole controller has one.
  private func randomAddress(of target: Target) -> DeviceAddress? {
    guard usesExtendedCommands else { return nil }
    return target.parameters.address ?? (hostAddress.isRandom ? hostAddress.address : nil)
  }

  private mutating func send(_ step: Step, of target: Target, _ hci: inout HCILayer, _ now: Instant) {
    var octets: [UInt8] = []
    switch step {
    case .removal:
      let command = LERemoveAdvertisingSet.with { $0.advertisingHandle = AdvertisingHandle(handle) }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .parameters:
      let settings = settings(of: target)
      // Not every controller keeps data when parameters change: the set sends all data again.
      contents = Contents(properties: contents.properties, settings: settings)
      if usesExtendedCommands {
        hci.send(LESetExtendedAdvertisingParameters(settings, handle: handle), tag: tag, mayBeRefused: false, now: now)
      } else {
        hci.send(LESetAdvertisingParameters(settings), tag: tag, mayBeRefused: false, now: now)
      }
    case .address:
      guard let address = randomAddress(of: target) else { preconditionFailure("a step that is not needed") }
      contents.address = address
      let command = LESetAdvertisingSetRandomAddress.with {
        $0.advertisingHandle = AdvertisingHandle(handle)
        $0.randomAddress = address
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    case .data(let start):
      contents.advertising = nextPiece(after: step, target) == nil ? target.payloads.advertising : nil
      if usesExtendedCommands {
        let command = LESetExtendedAdvertisingData.with {
          $0.advertisingHandle = AdvertisingHandle(handle)
          ($0.operation, $0.advertisingData) = piece(target.payloads.advertising, start, &octets)
        }
        send(command, octets, &hci, now)
      } else {
        send(LESetAdvertisingData(target.payloads.advertising, in: &octets), octets, &hci, now)
      }
    case .scanResponse(let start):
      contents.scanResponse = nextPiece(after: step, target) == nil ? target.payloads.scanResponse : nil
      if usesExtendedCommands {
        let command = LESetExtendedScanResponseData.with {
          $0.advertisingHandle = AdvertisingHandle(handle)
          ($0.operation, $0.scanResponseData) = piece(target.payloads.scanResponse, start, &octets)
        }
        send(command, octets, &hci, now)
      } else {
        send(LESetScanResponseData(target.payloads.scanResponse, in: &octets), octets, &hci, now)
      }
    case .enable: sendEnable(target, &hci, now)
    }
  }
  /// nil: disable.
  private func sendEnable(_ target: Target?, _ hci: inout HCILayer, _ now: Instant) {
    guard usesExtendedCommands else {
      let command = LESetAdvertisingEnable.with { $0.advertisingEnable = target != nil }
      return hci.send(command, tag: tag, mayBeRefused: false, now: now)
    }
    var advertisingSet = LESetExtendedAdvertisingEnable.Set(), octets: [UInt8] = []
    advertisingSet.advertisingHandle = AdvertisingHandle(handle)
    if let target {
      // A restart gets the rest of the duration.
      advertisingSet.duration = AdvertisingDuration(rawValue: countedTime(of: target, left: end.map { $0 - now }))
      advertisingSet.maxExtendedAdvertisingEvents = target.parameters.maximumEvents ?? 0
    }
    var command = LESetExtendedAdvertisingEnable.with { $0.enable = target != nil }
    do throws(WireError) { command.sets = try WireList([advertisingSet], in: &octets) } catch {
      preconditionFailure("a list of one: \(error)")
    }
    send(command, octets, &hci, now)
  }
  private func send(_ command: some HCICommand, _ octets: [UInt8], _ hci: inout HCILayer, _ now: Instant) {
    do throws(WireError) {
      try hci.send(command, from: octets.span, tag: tag, mayBeRefused: false, now: now)
    } catch {
      preconditionFailure("the command's range is one of its octets: \(error)")
    }
  }
  private func piece(_ data: [UInt8], _ start: Int, _ octets: inout [UInt8]) -> (AdvertisingDataOperation, Octets) {
    let end = min(start + Self.longestPiece, data.count)
    let operation: AdvertisingDataOperation =
      end == data.count ? (start == 0 ? .complete : .last) : (start == 0 ? .first : .intermediate)
    return (operation, Octets(data[start..<end], in: &octets))
  }
}

extension AdvertisingSet.Contents {
  /// A command was refused or not answered: the part of the controller's state that it concerns is unknown.
  fileprivate mutating func forget(_ opcode: HCIOpcode) {
    switch opcode {
    case LESetExtendedAdvertisingParameters.opcode, LESetAdvertisingParameters.opcode:
      self = AdvertisingSet.Contents(properties: properties)
    case LESetAdvertisingSetRandomAddress.opcode: address = nil
    case LESetExtendedAdvertisingData.opcode, LESetAdvertisingData.opcode: advertising = nil
    case LESetExtendedScanResponseData.opcode, LESetScanResponseData.opcode: scanResponse = nil
    default: break
    }
  }
}
extension HCIStatus {
  /// The errors of controllers that cannot advertise connectably beside their links. Vol 1, Part F, §2.
  fileprivate var meansTooManyLinks: Bool {
    [.memoryCapacityExceeded, .connectionLimitExceeded, .commandDisallowed, .limitedResources, .limitReached].contains(
      self)
  }
}
