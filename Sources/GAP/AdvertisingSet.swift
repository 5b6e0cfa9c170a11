import BindruneWire
import HCI

/// # AdvertisingSet
/// **Overview**: brings one advertising set of the controller to what is wanted of it, whatever is wanted meanwhile. By the
/// legacy commands there is one, which has no number.
///
/// **Function**: remembers what the controller has been told, and sends only what differs: parameters, address, data, scan
/// response, enable, each when the one before has been answered. So a restart after a connection is the enable command
/// alone, and data change without a gap: advertising stays on for them (Vol 4, Part E, §7.8.7, §7.8.54), but not for
/// parameters (§7.8.5, §7.8.53), nor for data longer than one command carries, whose pieces are refused while the set is on
/// (§7.8.54). A time or a number of events begins anew with an enable, which then comes after a disable: one sent while
/// advertising is on (§7.8.56) could not be told from one that crosses the end. Each wish has one outcome, unless another
/// wish overtakes it.
///
/// A set is removed before its PDUs become others, which might not be allowed to carry what it holds (§7.8.53). A
/// connection ends its advertising, and so does its time or the number of its events: `ended` is told.
///
/// **Phases**: off → setting (removal, parameters, address, data, scan response, enable) → on → disabling → off;
/// on → changing (data, scan response) → on. The end can be told of while a command is under way: setting, changing or
/// disabling → ended → off. A restart that the controller refuses beside its links: setting → blocked, until a link goes
/// down. Suspended it goes to off, keeps what is wanted and tells nobody; `resume` goes on from there.
struct AdvertisingSet {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case ended(AdvertisingEnd)
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable {
    case off, setting(Step, Cause), on, changing(Step), disabling, ended(AdvertisingEnd), blocked
  }
  /// The command that has been sent; of data, from which octet on.
  enum Step: BitwiseCopyable, Equatable { case removal, parameters, address, data(Int), scanResponse(Int), enable }
  /// Why advertising is being set up: the wish is new; it was on before; the latter, and a link has gone down since.
  enum Cause: BitwiseCopyable { case wish, restart, retry }
  struct Wish: Equatable {
    var parameters: AdvertisingParameters
    /// As long as the controller takes them.
    var payloads: AdvertisingPayloads
    /// Which call it comes from: another one begins anew what has a time or a number of events.
    var turn: UInt32
  }
  /// What the controller has been told and has not refused; nil where that is not known.
  struct Contents: Equatable {
    var settings: AdvertisingSettings?
    var address: DeviceAddress?
    var advertising: [UInt8]?
    var scanResponse: [UInt8]?
  }

  /// Octets of data in one command: Vol 4, Part E, §7.8.54, §7.8.55.
  static var longestPiece: Int { 251 }
  /// How much later than the controller the host ends advertising whose duration is the controller's business.
  static var patience: Duration { .seconds(1) }

  var id: AdvertisingSetID
  /// Advertising_Handle, and the Advertising SID by which scanners tell sets apart: 0 … 15.
  let handle: UInt8
  private let tag: UInt32
  private let usesExtendedCommands: Bool
  /// Where the parameters name no other.
  var hostAddress: PeerAddress
  private(set) var phase = Phase.off
  private var wanted: Wish?
  /// What was enabled last, or is being.
  private var current: Wish?
  private var contents = Contents()
  /// What the controller's set is; nil: there is none.
  private var properties: AdvertisingProperties?
  /// When what is wanted is over: known from its first start on.
  private var end: Instant?
  /// Why nothing is wanted.
  private var reason = AdvertisingEnd.stopped
  /// Whoever wished last has not been told what came of it.
  private var owesOutcome = false
  private var isSuspended: Bool

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

  /// What the controller is to be brought to.
  private var goal: Wish? { isSuspended ? nil : wanted }
  /// Nobody has anything to do with it, or will hear of it.
  var isFree: Bool {
    if case .off = phase { return !isWatched }
    return false
  }
  var isWanted: Bool { wanted != nil }
  /// Somebody waits to hear of it, or would be surprised by its end.
  var isWatched: Bool { isWanted || owesOutcome }
  /// Nothing is enabled in the controller, and no command is under way.
  var isQuiet: Bool {
    switch phase {
    case .off, .blocked: true
    case .setting, .on, .changing, .disabling, .ended: false
    }
  }

  // MARK: Wishes

  /// nil: do not advertise. The outcome, unless it is certain at once, comes from one of the calls below.
  mutating func want(_ wish: Wish?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted = wish
    owesOutcome = true
    end = nil
    reason = .stopped
    switch phase {
    case .blocked: phase = .off
    // Whoever asks is told, and does not wait for a link to go down.
    case .setting(let step, _): phase = .setting(step, .wish)
    case .off, .on, .changing, .disabling, .ended: break
    }
    return step(.wish, &hci, now)
  }
  /// Other data for what is wanted, which goes on as it is. What is blocked stays so, and tells when it is on again.
  mutating func change(_ payloads: AdvertisingPayloads, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted?.payloads = payloads
    owesOutcome = true
    return step(.restart, &hci, now)
  }
  var parameters: AdvertisingParameters? { wanted?.parameters }
  /// Its number is for somebody else from now on: what is left to tell.
  mutating func abandon() -> Outcome? {
    wanted = nil
    return owed(.ended(reason))
  }

  mutating func suspend(hci: inout HCILayer, now: Instant) -> Outcome? {
    isSuspended = true
    if case .blocked = phase { phase = .off }
    return step(.restart, &hci, now)
  }
  mutating func resume(hci: inout HCILayer, now: Instant) -> Outcome? {
    isSuspended = false
    return step(owesOutcome ? .wish : .restart, &hci, now)
  }

  /// From now on nothing is wanted.
  private mutating func forget(_ reason: AdvertisingEnd) {
    wanted = nil
    end = nil
    self.reason = reason
    owesOutcome = true
  }
  /// The outcome, where somebody has not been told of it.
  private mutating func owed(_ outcome: Outcome) -> Outcome? {
    defer { owesOutcome = false }
    return owesOutcome ? outcome : nil
  }

  // MARK: Steps

  /// Goes on from a phase in which no command is under way.
  private mutating func step(_ cause: Cause, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .off:
      if let end, end <= now { forget(.durationOver) }
      guard let goal else { return isWanted ? nil : owed(.ended(reason)) }
      current = goal
      let next = next(to: goal)
      send(next, of: goal, &hci, now)
      phase = .setting(next, cause)
    case .on:
      guard let goal, let current else {
        disable(&hci, now)
        return nil
      }
      let next = next(to: goal)
      if next == .enable, goal.turn == current.turn || !(isCounted(goal) || isCounted(current)) {
        self.current = goal
        return started(now)
      }
      if isPossibleWhileOn(next, goal) {
        send(next, of: goal, &hci, now)
        phase = .changing(next)
      } else {
        disable(&hci, now)
      }
    case .setting, .changing, .disabling, .ended, .blocked: break
    }
    return nil
  }
  private mutating func started(_ now: Instant) -> Outcome? {
    end = end ?? current?.parameters.duration.map { now + $0 }
    return owed(.started)
  }

  /// What comes next on the way to `wish`, where no data are half sent.
  private func next(to wish: Wish) -> Step {
    let settings = settings(of: wish)
    if let properties, properties != settings.properties { return .removal }
    if contents.settings != settings { return .parameters }
    if let address = randomAddress(of: wish), contents.address != address { return .address }
    if settings.properties.takesData || !usesExtendedCommands, contents.advertising != wish.payloads.advertising {
      return .data(0)
    }
    if settings.properties.takesScanResponse || !usesExtendedCommands,
      contents.scanResponse != wish.payloads.scanResponse
    {
      return .scanResponse(0)
    }
    return .enable
  }
  /// The next piece of data of which this was one; nil: it was the last.
  private func nextPiece(after step: Step, _ wish: Wish) -> Step? {
    switch step {
    case .data(let start) where start + Self.longestPiece < wish.payloads.advertising.count:
      .data(start + Self.longestPiece)
    case .scanResponse(let start) where start + Self.longestPiece < wish.payloads.scanResponse.count:
      .scanResponse(start + Self.longestPiece)
    default: nil
    }
  }
  /// Vol 4, Part E, §7.8.54, §7.8.55: data in one command; and the response of scannable extended PDUs, which is all that
  /// they have, must not become empty.
  private func isPossibleWhileOn(_ step: Step, _ wish: Wish) -> Bool {
    switch step {
    case .data: wish.payloads.advertising.count <= Self.longestPiece
    case .scanResponse:
      wish.payloads.scanResponse.count <= Self.longestPiece
        && (wish.payloads.usesLegacyPDUs || !wish.payloads.scanResponse.isEmpty)
    case .removal, .parameters, .address, .enable: false
    }
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    let isAccepted = outcome.status == .success
    if !isAccepted { contents.forget(outcome.opcode) }
    switch phase {
    case .off, .on, .blocked: return nil
    case .ended(let reason): return over(reason, &hci, now)
    // Whatever the status: there is nothing more that could be done to stop it.
    case .disabling: phase = .off
    case .changing where isAccepted: phase = .on
    // Perhaps it can be done while advertising is off.
    case .changing:
      disable(&hci, now)
      return nil
    case .setting(let step, let cause):
      guard isAccepted else {
        phase = .off
        return goal == current ? refused(outcome.status, cause, &hci, now) : self.step(cause, &hci, now)
      }
      if step == .removal {
        properties = nil
        contents = Contents()
      } else if step == .parameters, usesExtendedCommands {
        properties = contents.settings?.properties
      }
      if let current, goal == current, let piece = nextPiece(after: step, current) {
        send(piece, of: current, &hci, now)
        phase = .setting(piece, cause)
        return nil
      }
      phase = step == .enable ? .on : .off
      return self.step(cause, &hci, now)
    }
    return step(isContinued ? .restart : .wish, &hci, now)
  }
  /// What is wanted is what was enabled last, with other data perhaps.
  private var isContinued: Bool { isWanted && wanted?.turn == current?.turn }

  private mutating func refused(
    _ status: HCIStatus, _ cause: Cause, _ hci: inout HCILayer, _ now: Instant
  ) -> Outcome? {
    if cause != .wish, status.meansTooManyLinks {
      // The link that went down while the command was under way may have been the one too many.
      if cause == .retry { return step(.restart, &hci, now) }
      phase = .blocked
      return nil
    }
    forget(.stopped)
    return owed(.failed(status))
  }

  // MARK: The end

  /// Advertising is off: a connection, or the controller's clock or count.
  mutating func ended(_ reason: AdvertisingEnd, hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .on: return over(reason, &hci, now)
    // The end proves that it had begun.
    case .setting(.enable, _):
      phase = .ended(reason)
      return goal != nil && goal == current ? started(now) : nil
    case .changing, .disabling: phase = .ended(reason)
    case .off, .setting, .ended, .blocked: break
    }
    return nil
  }
  private mutating func over(_ reason: AdvertisingEnd, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    phase = .off
    guard isContinued else { return step(.wish, &hci, now) }
    owesOutcome = true
    if reason != .connected || wanted?.parameters.restartsAfterConnection != true { forget(reason) }
    return step(.restart, &hci, now)
  }
  /// A link has gone down: advertising that the controller refused may be possible again.
  mutating func disconnected(hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .blocked:
      phase = .off
      return step(.restart, &hci, now)
    case .setting(let step, .restart): phase = .setting(step, .retry)
    case .off, .setting, .on, .changing, .disabling, .ended: break
    }
    return nil
  }

  /// When the host ends it. Where the controller counts the time too, it comes first.
  var deadline: Instant? {
    switch phase {
    case .on, .changing: countedTime(of: current) == 0 ? end : end.map { $0 + Self.patience }
    case .off, .setting, .disabling, .ended, .blocked: end
    }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) -> Outcome? {
    guard let deadline, deadline <= now else { return nil }
    forget(.durationOver)
    if case .blocked = phase { phase = .off }
    return step(.wish, &hci, now)
  }

  // MARK: What the controller is told

  /// Its time in units of 10 ms; 0: the controller has no clock for this, or its clock does not go so far.
  private func countedTime(of wish: Wish?, left: Duration? = nil) -> UInt16 {
    guard let wish, let duration = left ?? wish.parameters.duration else { return 0 }
    // By the legacy commands the controller counts this one alone, unasked: §7.8.9.
    guard usesExtendedCommands || wish.parameters.kind.isHighDutyCycle else { return 0 }
    return UInt16(exactly: max(1, (duration.nanoseconds + 9_999_999) / 10_000_000)) ?? 0
  }
  /// The controller ends it.
  private func isCounted(_ wish: Wish) -> Bool { wish.parameters.maximumEvents != nil || countedTime(of: wish) > 0 }
  private func settings(of wish: Wish) -> AdvertisingSettings {
    AdvertisingSettings(
      wish.parameters, usesLegacyPDUs: wish.payloads.usesLegacyPDUs,
      ownAddressType: wish.parameters.address != nil || hostAddress.isRandom ? .random : .public)
  }
  /// What the set is to be given: Vol 4, Part E, §7.8.52. By the legacy commands the whole controller has one.
  private func randomAddress(of wish: Wish) -> DeviceAddress? {
    guard usesExtendedCommands else { return nil }
    return wish.parameters.address ?? (hostAddress.isRandom ? hostAddress.address : nil)
  }

  private mutating func send(_ step: Step, of wish: Wish, _ hci: inout HCILayer, _ now: Instant) {
    var octets: [UInt8] = []
    switch step {
    case .removal:
      var command = LERemoveAdvertisingSet()
      command.advertisingHandle = handle
      hci.send(command, tag: tag, now: now)
    case .parameters:
      let settings = settings(of: wish)
      // Not every controller keeps data when parameters change: all of it is sent again.
      contents = Contents(settings: settings)
      if usesExtendedCommands {
        hci.send(LESetExtendedAdvertisingParameters(settings, handle: handle), tag: tag, now: now)
      } else {
        hci.send(LESetAdvertisingParameters(settings), tag: tag, now: now)
      }
    case .address:
      guard let address = randomAddress(of: wish) else { preconditionFailure("a step that is not needed") }
      contents.address = address
      var command = LESetAdvertisingSetRandomAddress()
      command.advertisingHandle = handle
      command.randomAddress = address
      hci.send(command, tag: tag, now: now)
    case .data(let start):
      contents.advertising = nextPiece(after: step, wish) == nil ? wish.payloads.advertising : nil
      if usesExtendedCommands {
        var command = LESetExtendedAdvertisingData()
        command.advertisingHandle = handle
        (command.operation, command.advertisingData) = piece(wish.payloads.advertising, start, &octets)
        send(command, octets, &hci, now)
      } else {
        send(LESetAdvertisingData(wish.payloads.advertising, in: &octets), octets, &hci, now)
      }
    case .scanResponse(let start):
      contents.scanResponse = nextPiece(after: step, wish) == nil ? wish.payloads.scanResponse : nil
      if usesExtendedCommands {
        var command = LESetExtendedScanResponseData()
        command.advertisingHandle = handle
        (command.operation, command.scanResponseData) = piece(wish.payloads.scanResponse, start, &octets)
        send(command, octets, &hci, now)
      } else {
        send(LESetScanResponseData(wish.payloads.scanResponse, in: &octets), octets, &hci, now)
      }
    case .enable: sendEnable(wish, &hci, now)
    }
  }
  private mutating func disable(_ hci: inout HCILayer, _ now: Instant) {
    sendEnable(nil, &hci, now)
    phase = .disabling
  }
  /// nil: off.
  private func sendEnable(_ wish: Wish?, _ hci: inout HCILayer, _ now: Instant) {
    guard usesExtendedCommands else {
      var command = LESetAdvertisingEnable()
      command.advertisingEnable = wish != nil
      return hci.send(command, tag: tag, now: now)
    }
    var advertisingSet = LESetExtendedAdvertisingEnable.Set(), octets: [UInt8] = []
    advertisingSet.advertisingHandle = handle
    if let wish {
      // A restart has what is left.
      advertisingSet.duration = AdvertisingDuration(rawValue: countedTime(of: wish, left: end.map { $0 - now }))
      advertisingSet.maxExtendedAdvertisingEvents = wish.parameters.maximumEvents ?? 0
    }
    var command = LESetExtendedAdvertisingEnable()
    command.enable = wish != nil
    do throws(WireError) { command.sets = try WireList([advertisingSet], in: &octets) } catch {
      preconditionFailure("a list of one: \(error)")
    }
    send(command, octets, &hci, now)
  }
  private func send(_ command: some HCICommand, _ octets: [UInt8], _ hci: inout HCILayer, _ now: Instant) {
    do throws(WireError) {
      try hci.send(command, from: octets.span, tag: tag, now: now)
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
  /// A command was refused, or not answered: what it was about is not known any more.
  fileprivate mutating func forget(_ opcode: HCIOpcode) {
    switch opcode {
    case LESetExtendedAdvertisingParameters.opcode, LESetAdvertisingParameters.opcode: self = AdvertisingSet.Contents()
    case LESetAdvertisingSetRandomAddress.opcode: address = nil
    case LESetExtendedAdvertisingData.opcode, LESetAdvertisingData.opcode: advertising = nil
    case LESetExtendedScanResponseData.opcode, LESetScanResponseData.opcode: scanResponse = nil
    default: break
    }
  }
}
extension HCIStatus {
  /// What controllers answer when they cannot advertise connectably beside the links they have. Vol 1, Part F, §2.
  fileprivate var meansTooManyLinks: Bool {
    [.memoryCapacityExceeded, .connectionLimitExceeded, .commandDisallowed, .limitedResources, .limitReached].contains(
      self)
  }
}
