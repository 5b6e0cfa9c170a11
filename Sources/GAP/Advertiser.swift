import BindruneWire
import HCI

/// How to advertise. Vol 3, Part C, §9.3; Vol 4, Part E, §7.8.5.
public struct AdvertisingParameters: BitwiseCopyable, Sendable, Hashable {
  public enum Kind: UInt8, BitwiseCopyable, Sendable {
    /// ADV_IND: anybody may connect and ask for the scan response.
    case connectable
    /// ADV_SCAN_IND: anybody may ask for the scan response.
    case scannable
    /// ADV_NONCONN_IND: a beacon.
    case nonconnectable
  }
  public var kind: Kind
  /// 20 ms … 10.24 s.
  public var intervalMin: AdvertisingInterval
  public var intervalMax: AdvertisingInterval
  /// A connection ends advertising; true starts it again as soon as the controller permits.
  public var restartsAfterConnection: Bool

  /// 100 ms to 150 ms, connectable.
  public init(
    kind: Kind = .connectable, intervalMin: AdvertisingInterval = AdvertisingInterval(.milliseconds(100)),
    intervalMax: AdvertisingInterval = AdvertisingInterval(.milliseconds(150)), restartsAfterConnection: Bool = true
  ) {
    self.kind = kind
    self.intervalMin = intervalMin
    self.intervalMax = intervalMax
    self.restartsAfterConnection = restartsAfterConnection
  }
}

/// # Advertiser
/// **Overview**: brings the controller's legacy advertising to what is wanted, whatever is wanted meanwhile.
///
/// **Function**: parameters, data, scan response and enable are sent one after another, each when the one before has been
/// answered; parameters may only be set while advertising is off (Vol 4, Part E, §7.8.5). Each wish has one outcome, unless
/// another wish overtakes it. A connection ends advertising in the controller (Vol 4, Part E, §7.8.9), which `connected` is
/// told; if wanted, advertising then starts again.
///
/// **Phases**: off → setting (parameters, data, scan response, enable) → on → disabling → off.
/// A connection can be told of before the answer to the enable that made it possible: setting → ended → off.
/// A restart that the controller refuses beside its links: setting → blocked, until a link goes down.
struct Advertiser {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case stopped
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable { case off, setting(Step, Cause), ended, on, disabling, blocked }
  /// The command that has been sent.
  enum Step: BitwiseCopyable { case parameters, data, scanResponse, enable }
  /// Why advertising is being set up: the wish is new; a connection ended it; the latter, and a link has gone down since.
  enum Cause: BitwiseCopyable { case wish, connection, disconnection }
  /// `advertising` and `scanResponse` have at most 31 octets each: Vol 4, Part E, §7.8.7, §7.8.8.
  struct Wish: Equatable {
    var parameters: AdvertisingParameters
    var advertising: [UInt8]
    var scanResponse: [UInt8]
  }
  private(set) var phase = Phase.off
  private var wanted: Wish?
  /// What the commands under way, or the advertising that is on, are about.
  private var current: Wish?
  private let tag: UInt32
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// The controller has forgotten everything. True when advertising was on, or on its way.
  mutating func reset() -> Bool {
    wanted = nil
    defer { phase = .off }
    if case .off = phase { return false }
    return true
  }

  /// nil: do not advertise. The outcome, unless it is certain at once, comes from `completed` or `connected`.
  mutating func want(_ wish: Wish?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted = wish
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
      guard let wanted else { return .stopped }
      current = wanted
      var command = LESetAdvertisingParameters()
      command.advertisingIntervalMin = wanted.parameters.intervalMin
      command.advertisingIntervalMax = wanted.parameters.intervalMax
      command.advertisingType = wanted.parameters.kind.type
      command.ownAddressType = ownAddressType
      hci.send(command, tag: tag, now: now)
      phase = .setting(.parameters, cause)
    case .on:
      if current == wanted { return .started }
      sendEnable(false, &hci, now)
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
    case .ended: return end(&hci, now)
    case .setting(let step, let cause):
      let isAccepted = outcome.status == .success
      if let current, wanted == current {
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
    var octets: [UInt8] = []
    switch step {
    case .parameters:
      let command = LESetAdvertisingData(current.advertising, in: &octets)
      send(command, octets, &hci, now)
      phase = .setting(.data, cause)
    case .data:
      let command = LESetScanResponseData(current.scanResponse, in: &octets)
      send(command, octets, &hci, now)
      phase = .setting(.scanResponse, cause)
    case .scanResponse:
      sendEnable(true, &hci, now)
      phase = .setting(.enable, cause)
    case .enable:
      phase = .on
      return .started
    }
    return nil
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
    wanted = nil
    return .failed(status)
  }

  private func sendEnable(_ isOn: Bool, _ hci: inout HCILayer, _ now: Instant) {
    var command = LESetAdvertisingEnable()
    command.advertisingEnable = isOn
    hci.send(command, tag: tag, now: now)
  }
  private func send(_ command: some HCICommand, _ octets: [UInt8], _ hci: inout HCILayer, _ now: Instant) {
    do throws(WireError) {
      try hci.send(command, from: octets.span, tag: tag, now: now)
    } catch {
      preconditionFailure("the command's range is one of its octets: \(error)")
    }
  }

  /// A central has connected: a link proves that advertising had started, and it is off now.
  mutating func connected(hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .on: return end(&hci, now)
    case .setting(.enable, _):
      phase = .ended
      return wanted == current ? .started : nil
    case .off, .setting, .ended, .disabling, .blocked: return nil
    }
  }
  private mutating func end(_ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    phase = .off
    let isOver = wanted == current && current?.parameters.restartsAfterConnection != true
    if isOver { wanted = nil }
    return step(wanted == current ? .connection : .wish, &hci, now)
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
}

extension AdvertisingParameters.Kind {
  fileprivate var type: AdvertisingType {
    switch self {
    case .connectable: .connectableScannableUndirected
    case .scannable: .scannableUndirected
    case .nonconnectable: .nonConnectableUndirected
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
