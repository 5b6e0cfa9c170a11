import BindruneWire
import HCI

/// How to advertise. Vol 3, Part C, §9.3; Vol 4, Part E, §7.8.5, §7.8.53, §7.8.56.
public struct AdvertisingParameters: BitwiseCopyable, Sendable, Hashable {
  public enum Kind: UInt8, BitwiseCopyable, Sendable {
    /// Anybody may connect; with legacy PDUs (ADV_IND) also ask for the scan response.
    case connectable
    /// Anybody may ask for the scan response; with legacy PDUs ADV_SCAN_IND.
    case scannable
    /// A beacon; with legacy PDUs ADV_NONCONN_IND.
    case nonconnectable
  }
  public var kind: Kind
  /// What of the data is sent, and where: all of it, unless this says otherwise.
  public var policy: AdvertisingPacker.Policy
  /// The application is in the background, which `AdvertisingPacker.Policy.coreBluetooth` cares about.
  public var isInBackground = false
  /// 20 ms … 10.24 s.
  public var intervalMin: AdvertisingInterval
  public var intervalMax: AdvertisingInterval
  /// How long, from the first start on and over restarts; nil: until it is stopped. The controller's clock ends it, where it
  /// has one for this, up to 655.35 s; else the host's.
  public var duration: Duration?
  /// Advertising events from one start to its end, 1 … 255; nil: any number. Only with the extended commands.
  public var maximumEvents: UInt8?
  /// A connection ends advertising; true starts it again as soon as the controller permits.
  public var restartsAfterConnection: Bool

  /// 100 ms to 150 ms, connectable, until it is stopped.
  public init(
    kind: Kind = .connectable, policy: AdvertisingPacker.Policy = .everything,
    intervalMin: AdvertisingInterval = AdvertisingInterval(.milliseconds(100)),
    intervalMax: AdvertisingInterval = AdvertisingInterval(.milliseconds(150)), duration: Duration? = nil,
    maximumEvents: UInt8? = nil, restartsAfterConnection: Bool = true
  ) {
    self.kind = kind
    self.policy = policy
    self.intervalMin = intervalMin
    self.intervalMax = intervalMax
    self.duration = duration
    self.maximumEvents = maximumEvents
    self.restartsAfterConnection = restartsAfterConnection
  }
}

/// Why advertising is over.
public enum AdvertisingEnd: BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// It was stopped, or the controller was.
  case stopped
  /// A central connected, and it was not to start again.
  case connected
  /// `AdvertisingParameters.duration` is over.
  case durationOver
  /// `AdvertisingParameters.maximumEvents` have been sent.
  case eventsSent
  /// The controller ended it for a reason of its own.
  case terminated(HCIStatus)

  public var description: String {
    switch self {
    case .stopped: "stopped"
    case .connected: "a central connected"
    case .durationOver: "the time is over"
    case .eventsSent: "all events have been sent"
    case .terminated(let status): "the controller ended it: \(status)"
    }
  }
}

/// # Advertiser
/// **Overview**: brings the controller's advertising to what is wanted, whatever is wanted meanwhile.
///
/// **Function**: parameters, data, scan response and enable are sent one after another, each when the one before has been
/// answered; parameters may only be set while advertising is off (Vol 4, Part E, §7.8.5, §7.8.53). Each wish has one
/// outcome, unless another wish overtakes it. A connection ends advertising in the controller (§7.8.9, §7.8.56), which
/// `connected` is told; if wanted, advertising then starts again.
///
/// With the extended commands there is one advertising set. It has an address of its own (§7.8.52), its data are as long as
/// the controller takes them, in pieces, and it is removed before its PDUs become others, which might not be allowed to carry
/// what it holds (§7.8.53). It can also end by itself, when its time or its events are over: `terminated` is told.
///
/// **Phases**: off → setting (removal, parameters, address, data, scan response, enable) → on → disabling → off.
/// The end of advertising can be told of before the answer to the enable that began it: setting → ended → off.
/// A restart that the controller refuses beside its links: setting → blocked, until a link goes down.
///
/// **Suspended**: it brings advertising to off, keeps what is wanted and tells nobody; `resume` goes on from there.
struct Advertiser {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case ended(AdvertisingEnd)
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable { case off, setting(Step, Cause), ended(AdvertisingEnd), on, disabling, blocked }
  /// The command that has been sent; of data, from which octet on.
  enum Step: BitwiseCopyable, Equatable { case removal, parameters, address, data(Int), scanResponse(Int), enable }
  /// Why advertising is being set up: the wish is new; a connection ended it; the latter, and a link has gone down since.
  enum Cause: BitwiseCopyable { case wish, connection, disconnection }
  struct Wish: Equatable {
    var parameters: AdvertisingParameters
    /// As long as the controller takes them.
    var payloads: AdvertisingPayloads
    /// Counts those with a time or a number of events, which begin anew when the same is said again.
    var turn: UInt32 = 0
    /// What the advertising set must be for it.
    var shape: Shape { Shape(kind: parameters.kind, usesLegacyPDUs: payloads.usesLegacyPDUs) }
  }
  struct Shape: BitwiseCopyable, Equatable { var kind: AdvertisingParameters.Kind, usesLegacyPDUs: Bool }

  /// The only advertising set.
  static var handle: UInt8 { 0 }
  /// Octets of data in one command: Vol 4, Part E, §7.8.54, §7.8.55.
  static var longestPiece: Int { 251 }
  /// How much later than the controller the host ends advertising whose duration is the controller's business.
  static var patience: Duration { .seconds(1) }

  private(set) var phase = Phase.off
  private var wanted: Wish?
  private var isSuspended = false
  /// What the controller is to be brought to.
  private var goal: Wish? { isSuspended ? nil : wanted }
  /// Whoever wished last has not been told what came of it.
  private var owesOutcome = false
  /// What the commands under way, or the advertising that is on, are about.
  private var current: Wish?
  /// What the controller's advertising set is; nil: there is none.
  private var set: Shape?
  /// When what is wanted is over: known from its first start on.
  private var end: Instant?
  private var lastTurn: UInt32 = 0
  /// Why nothing is wanted.
  private var reason = AdvertisingEnd.stopped
  private let tag: UInt32
  var usesExtendedCommands = false
  /// Of the random kind where there is no public one; the set is given it.
  var ownAddress = PeerAddress(DeviceAddress(), .public)

  init(tag: UInt32) { self.tag = tag }

  /// The controller has forgotten everything. True when advertising was on, or on its way.
  mutating func reset() -> Bool {
    let wasAdvertising = wanted != nil || owesOutcome
    forget(.stopped)
    set = nil
    phase = .off
    isSuspended = false
    owesOutcome = false
    return wasAdvertising
  }
  /// From now on nothing is wanted.
  private mutating func forget(_ reason: AdvertisingEnd) {
    wanted = nil
    end = nil
    self.reason = reason
    owesOutcome = true
  }
  /// The outcome where nobody has been told of it.
  private mutating func owed(_ outcome: Outcome) -> Outcome? {
    defer { owesOutcome = false }
    return owesOutcome ? outcome : nil
  }

  /// Nothing is enabled in the controller, and no command is under way.
  var isQuiet: Bool {
    switch phase {
    case .off, .blocked: true
    case .setting, .ended, .on, .disabling: false
    }
  }
  /// Brings advertising to off, for as long as it takes to do what a controller refuses while it is on; `isQuiet` tells when.
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    if case .blocked = phase { phase = .off }
    _ = step(.connection, &hci, now)
  }
  /// Brings advertising to what is wanted now. One that has run out of time meanwhile ends with `expire`.
  mutating func resume(hci: inout HCILayer, now: Instant) {
    guard isSuspended else { return }
    isSuspended = false
    if let end, end <= now { return }
    _ = step(.connection, &hci, now)
  }

  /// nil: do not advertise. The outcome, unless it is certain at once, comes from one of the calls below.
  mutating func want(_ wish: Wish?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted = wish
    owesOutcome = true
    if wish?.parameters.isLimited == true {
      lastTurn &+= 1
      wanted?.turn = lastTurn
    }
    end = nil
    reason = .stopped
    switch phase {
    case .blocked: phase = .off
    // Whoever asks is told, and does not wait for a link to go down.
    case .setting(let step, _): phase = .setting(step, .wish)
    // What is wanted now is not what has ended.
    case .ended: current = nil
    case .off, .on, .disabling: break
    }
    return step(.wish, &hci, now)
  }

  /// Goes on from a phase in which no command is under way.
  private mutating func step(_ cause: Cause, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .off:
      if let end, end <= now { forget(.durationOver) }
      guard let goal else { return wanted == nil ? owed(.ended(reason)) : nil }
      current = goal
      let first: Step = set == nil || set == goal.shape ? .parameters : .removal
      send(first, of: goal, &hci, now)
      phase = .setting(first, cause)
    case .on:
      if current == goal { return owed(.started) }
      sendEnable(nil, &hci, now)
      phase = .disabling
    case .setting, .ended, .disabling, .blocked: break
    }
    return nil
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .off, .on, .blocked: return nil
    // Whatever the status: there is nothing more that could be done to stop it.
    case .disabling: phase = .off
    case .ended(let reason): return over(reason, &hci, now)
    case .setting(let step, let cause):
      let isAccepted = outcome.status == .success
      if usesExtendedCommands, isAccepted {
        if step == .removal { set = nil } else if step == .parameters { set = current?.shape }
      }
      if let current, goal == current {
        return isAccepted ? next(after: step, cause, current, &hci, now) : refused(outcome.status, cause, &hci, now)
      }
      // Wanted otherwise meanwhile: begin again, or stop what this command started.
      phase = step == .enable && isAccepted ? .on : .off
    }
    return step(.wish, &hci, now)
  }

  private mutating func next(
    after step: Step, _ cause: Cause, _ current: Wish, _ hci: inout HCILayer, _ now: Instant
  ) -> Outcome? {
    guard let next = following(step, current) else {
      phase = .on
      end = end ?? current.parameters.duration.map { now + $0 }
      return owed(.started)
    }
    send(next, of: current, &hci, now)
    phase = .setting(next, cause)
    return nil
  }
  /// nil: it advertises.
  private func following(_ step: Step, _ wish: Wish) -> Step? {
    switch step {
    case .removal: .parameters
    case .parameters where usesExtendedCommands && ownAddress.isRandom: .address
    case .parameters, .address: wish.shape.takesData || !usesExtendedCommands ? .data(0) : .scanResponse(0)
    case .data(let start) where start + Self.longestPiece < wish.payloads.advertising.count:
      .data(start + Self.longestPiece)
    case .data: wish.shape.takesScanResponse || !usesExtendedCommands ? .scanResponse(0) : .enable
    case .scanResponse(let start) where start + Self.longestPiece < wish.payloads.scanResponse.count:
      .scanResponse(start + Self.longestPiece)
    case .scanResponse: .enable
    case .enable: nil
    }
  }
  private mutating func refused(
    _ status: HCIStatus, _ cause: Cause, _ hci: inout HCILayer, _ now: Instant
  ) -> Outcome? {
    phase = .off
    if cause != .wish, status.meansTooManyLinks {
      // The link that went down while the command was under way may have been the one too many.
      if cause == .disconnection { return step(.connection, &hci, now) }
      phase = .blocked
      return nil
    }
    forget(.stopped)
    return owed(.failed(status))
  }

  // MARK: The end

  /// A central has connected: a link proves that advertising had started, and it is off now.
  mutating func connected(hci: inout HCILayer, now: Instant) -> Outcome? { ended(.connected, &hci, now) }

  /// LE Advertising Set Terminated. Vol 4, Part E, §7.7.65.18. Of a connection the link's own event has told, just before.
  mutating func terminated(_ status: HCIStatus, hci: inout HCILayer, now: Instant) -> Outcome? {
    switch status {
    case .success: nil
    case .advertisingTimeout: ended(.durationOver, &hci, now)
    case .limitReached: ended(.eventsSent, &hci, now)
    default: ended(.terminated(status), &hci, now)
    }
  }
  private mutating func ended(_ reason: AdvertisingEnd, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .on: return over(reason, &hci, now)
    case .setting(.enable, _):
      phase = .ended(reason)
      guard let current, wanted == current else { return nil }
      end = end ?? current.parameters.duration.map { now + $0 }
      return owed(.started)
    // A connection that crossed the command that was to suspend it.
    case .disabling where wanted == current:
      phase = .ended(reason)
      return nil
    case .off, .setting, .ended, .disabling, .blocked: return nil
    }
  }
  private mutating func over(_ reason: AdvertisingEnd, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    phase = .off
    let isWanted = wanted != nil && wanted == current
    if isWanted {
      owesOutcome = true
      if reason != .connected || wanted?.parameters.restartsAfterConnection != true { forget(reason) }
    }
    return step(isWanted ? .connection : .wish, &hci, now)
  }
  /// A link has gone down: advertising that the controller refused may be possible again.
  mutating func disconnected(hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .blocked:
      phase = .off
      return step(.connection, &hci, now)
    case .setting(let step, .connection): phase = .setting(step, .disconnection)
    case .off, .setting, .ended, .on, .disabling: break
    }
    return nil
  }

  /// When the host ends it. Where the controller counts the time too, it comes first.
  var deadline: Instant? {
    guard case .on = phase, duration(of: current?.parameters.duration) != 0 else { return end }
    return end.map { $0 + Self.patience }
  }
  mutating func expire(hci: inout HCILayer, now: Instant) -> Outcome? {
    guard let deadline, deadline <= now else { return nil }
    forget(.durationOver)
    if case .blocked = phase { phase = .off }
    return step(.wish, &hci, now)
  }
  /// What the controller is told; 0: it has no clock for this, or its clock does not go so far.
  private func duration(of duration: Duration?) -> UInt16 {
    guard usesExtendedCommands, let duration else { return 0 }
    let units = (duration.nanoseconds + 9_999_999) / 10_000_000
    return UInt16(exactly: max(1, units)) ?? 0
  }

  // MARK: Commands

  private func send(_ step: Step, of wish: Wish, _ hci: inout HCILayer, _ now: Instant) {
    var octets: [UInt8] = []
    switch step {
    case .removal:
      var command = LERemoveAdvertisingSet()
      command.advertisingHandle = Self.handle
      hci.send(command, tag: tag, now: now)
    case .parameters where usesExtendedCommands:
      hci.send(LESetExtendedAdvertisingParameters(wish, ownAddressType: ownAddressType), tag: tag, now: now)
    case .parameters: hci.send(LESetAdvertisingParameters(wish, ownAddressType: ownAddressType), tag: tag, now: now)
    case .address:
      var command = LESetAdvertisingSetRandomAddress()
      command.advertisingHandle = Self.handle
      command.randomAddress = ownAddress.address
      hci.send(command, tag: tag, now: now)
    case .data(let start) where usesExtendedCommands:
      var command = LESetExtendedAdvertisingData()
      command.advertisingHandle = Self.handle
      (command.operation, command.advertisingData) = piece(wish.payloads.advertising, start, &octets)
      send(command, octets, &hci, now)
    case .data: send(LESetAdvertisingData(wish.payloads.advertising, in: &octets), octets, &hci, now)
    case .scanResponse(let start) where usesExtendedCommands:
      var command = LESetExtendedScanResponseData()
      command.advertisingHandle = Self.handle
      (command.operation, command.scanResponseData) = piece(wish.payloads.scanResponse, start, &octets)
      send(command, octets, &hci, now)
    case .scanResponse: send(LESetScanResponseData(wish.payloads.scanResponse, in: &octets), octets, &hci, now)
    case .enable: sendEnable(wish.parameters, &hci, now)
    }
  }
  /// nil: off.
  private func sendEnable(_ parameters: AdvertisingParameters?, _ hci: inout HCILayer, _ now: Instant) {
    guard usesExtendedCommands else {
      var command = LESetAdvertisingEnable()
      command.advertisingEnable = parameters != nil
      return hci.send(command, tag: tag, now: now)
    }
    var advertisingSet = LESetExtendedAdvertisingEnable.Set(), octets: [UInt8] = []
    advertisingSet.advertisingHandle = Self.handle
    if let parameters {
      // A restart has what is left.
      let duration = end.map { $0 - now } ?? parameters.duration
      advertisingSet.duration = AdvertisingDuration(rawValue: self.duration(of: duration))
      advertisingSet.maxExtendedAdvertisingEvents = parameters.maximumEvents ?? 0
    }
    var command = LESetExtendedAdvertisingEnable()
    command.enable = parameters != nil
    do throws(WireError) { command.sets = try List([advertisingSet], in: &octets) } catch {
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
  private var ownAddressType: OwnAddressType { ownAddress.isRandom ? .random : .public }
}

extension AdvertisingParameters {
  fileprivate var isLimited: Bool { duration != nil || maximumEvents != nil }
}
extension Advertiser.Shape {
  /// Vol 4, Part E, §7.8.53: what a set may hold.
  fileprivate var takesData: Bool { usesLegacyPDUs || kind != .scannable }
  fileprivate var takesScanResponse: Bool { kind == .scannable || (usesLegacyPDUs && kind == .connectable) }
}
extension LESetAdvertisingParameters {
  fileprivate init(_ wish: Advertiser.Wish, ownAddressType: OwnAddressType) {
    self.init()
    advertisingIntervalMin = wish.parameters.intervalMin
    advertisingIntervalMax = wish.parameters.intervalMax
    advertisingType =
      switch wish.parameters.kind {
      case .connectable: .connectableScannableUndirected
      case .scannable: .scannableUndirected
      case .nonconnectable: .nonConnectableUndirected
      }
    self.ownAddressType = ownAddressType
  }
}
extension LESetExtendedAdvertisingParameters {
  fileprivate init(_ wish: Advertiser.Wish, ownAddressType: OwnAddressType) {
    self.init()
    advertisingHandle = Advertiser.handle
    legacy = wish.payloads.usesLegacyPDUs
    connectable = wish.parameters.kind == .connectable
    scannable = wish.shape.takesScanResponse
    primaryAdvertisingIntervalMin = UInt24(UInt32(wish.parameters.intervalMin.rawValue))
    primaryAdvertisingIntervalMax = UInt24(UInt32(wish.parameters.intervalMax.rawValue))
    self.ownAddressType = ownAddressType
  }
}
extension HCIStatus {
  /// What controllers answer when they cannot advertise connectably beside the links they have. Vol 1, Part F, §2.
  fileprivate var meansTooManyLinks: Bool {
    [.memoryCapacityExceeded, .connectionLimitExceeded, .commandDisallowed, .limitedResources, .limitReached].contains(
      self)
  }
}
