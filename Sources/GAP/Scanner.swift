import BindruneWire
import BindruneHCI

/// How the controller should scan, for all callers together.
struct ControllerScan: BitwiseCopyable, Equatable {
  var isActive: Bool
  var interval: ScanInterval
  var window: ScanInterval
  /// The controller reports each device once …
  var filtersDuplicates: Bool
  /// … and once more when scanning begins anew: with another number here.
  var turn: UInt32
}
extension ControllerScan {
  /// The host looks for a peer, and no caller scans.
  static var seeking: ControllerScan {
    ControllerScan(
      isActive: false, interval: ScanInterval(.milliseconds(60)), window: ScanInterval(.milliseconds(30)),
      filtersDuplicates: false, turn: 0)
  }
}

/// # Scanner
/// **Overview**: brings the controller's scanning to its target, which may change at any time.
///
/// **Function**: `want` states the target; each command's outcome is one step towards it. At most one command is in
/// flight, so a stop during a start waits for the start to end. `.started` reports that the controller scans as wanted.
/// Legacy or extended commands, never both (Vol 4, Part E, §3.1.1); parameters can be set only while scanning is off
/// (§7.8.10, §7.8.64).
///
/// **Phases**: `move` has all transitions.
struct Scanner: Suspendable {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable, Equatable {
    case off
    case settingParameters(ControllerScan)
    case enabling(ControllerScan)
    case on(ControllerScan)
    case disabling
  }
  /// The scan in an event is the goal; nil: do not scan.
  enum Event: BitwiseCopyable {
    /// No command is in flight.
    case go(ControllerScan?)
    case accepted(ControllerScan?)
    case refused
  }
  enum Command: BitwiseCopyable { case setParameters(ControllerScan), enable(ControllerScan), disable }

  private(set) var phase = Phase.off
  private var wanted: ControllerScan?
  var isSuspended = false
  var cause: UInt64 = 0
  private let tag: UInt32
  var joiner = ReportJoiner()
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// The state to bring the controller to.
  private var goal: ControllerScan? { isSuspended ? nil : wanted }
  var isQuiet: Bool { phase == .off }

  /// Every transition; nil: the event leaves the phase as it is. After a move without a command the scanner goes on.
  static func move(from phase: Phase, on event: Event) -> Move<Phase, Command>? {
    switch (phase, event) {
    case (.off, .go(let goal?)): Move(.settingParameters(goal), .setParameters(goal))
    case (.settingParameters(let scan), .accepted(let goal)) where scan == goal: Move(.enabling(scan), .enable(scan))
    case (.settingParameters, .accepted), (.settingParameters, .refused): Move(.off)
    case (.enabling(let scan), .accepted): Move(.on(scan))
    case (.enabling, .refused): Move(.off)
    case (.on(let scan), .go(let goal)) where scan != goal: Move(.disabling, .disable)
    // Regardless of the status: nothing else can stop scanning.
    case (.disabling, .accepted), (.disabling, .refused): Move(.off)
    case (.off, _), (.settingParameters, .go), (.enabling, .go), (.on, _), (.disabling, .go): nil
    }
  }
  /// Returns whether the event has led to another phase, and no command is in flight.
  private mutating func take(_ event: Event, _ hci: inout HCILayer, _ now: Instant) -> Bool {
    guard let move = Self.move(from: phase, on: event) else { return false }
    phase = move.phase
    switch move.command {
    case .setParameters(let scan):
      joiner.removeAll()
      sendParameters(scan, &hci, now)
    case .enable(let scan): sendEnable(scan, &hci, now)
    case .disable: sendEnable(nil, &hci, now)
    case nil: return true
    }
    return false
  }

  /// The controller has been reset.
  mutating func reset() {
    wanted = nil
    isSuspended = false
    phase = .off
  }

  /// nil: do not scan. Returns the outcome if it is already certain; otherwise `completed` does.
  mutating func want(_ scan: ControllerScan?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted = scan
    cause = hci.cause
    return go(&hci, now)
  }
  mutating func suspensionChanged(hci: inout HCILayer, now: Instant) -> Outcome? { go(&hci, now) }
  private mutating func go(_ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    if case .on(let scan) = phase, scan == goal { return .started }
    _ = take(.go(goal), &hci, now)
    return nil
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    hci.withCause(cause) { advance(outcome, &$0, now) }
  }
  private mutating func advance(_ outcome: CommandOutcome, _ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    if outcome.status == .success { return take(.accepted(goal), &hci, now) ? go(&hci, now) : nil }
    let refused: ControllerScan? =
      switch phase {
      case .settingParameters(let scan), .enabling(let scan): scan
      case .off, .on, .disabling: nil
      }
    guard take(.refused, &hci, now) else { return nil }
    if let refused, refused == wanted {
      wanted = nil
      return .failed(outcome.status)
    }
    return go(&hci, now)
  }

  private func sendParameters(_ scan: ControllerScan, _ hci: inout HCILayer, _ now: Instant) {
    if usesExtendedCommands {
      let command = LESetExtendedScanParameters.with {
        $0.ownAddressType = ownAddressType
        $0.le1M.scanType = scan.isActive ? .active : .passive
        $0.le1M.scanInterval = scan.interval
        $0.le1M.scanWindow = scan.window
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    } else {
      let command = LESetScanParameters.with {
        $0.leScanType = scan.isActive ? .active : .passive
        $0.leScanInterval = scan.interval
        $0.leScanWindow = scan.window
        $0.ownAddressType = ownAddressType
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    }
  }
  private func sendEnable(_ scan: ControllerScan?, _ hci: inout HCILayer, _ now: Instant) {
    if usesExtendedCommands {
      let command = LESetExtendedScanEnable.with {
        $0.enable = scan != nil
        $0.filterDuplicates = scan?.filtersDuplicates == true ? .enabled : .disabled
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    } else {
      let command = LESetScanEnable.with {
        $0.leScanEnable = scan != nil
        $0.filterDuplicates = scan?.filtersDuplicates ?? false
      }
      hci.send(command, tag: tag, mayBeRefused: false, now: now)
    }
  }
}

/// # ReportJoiner
/// **Overview**: long advertising data arrive in fragments, a report each: Data_Status says whether more follow, or the
/// controller lost them. Vol 4, Part E, §7.7.65.13.
///
/// **Function**: keeps the fragments of each advertiser until the last one arrives. Bounded: of the advertisers with
/// incomplete data the one silent for longest is dropped, and data beyond the longest possible are cut.
struct ReportJoiner {
  /// Advertisers at once; a controller seldom mixes two.
  static var capacity: Int { 8 }
  /// Octets of one advertiser's data: Vol 4, Part E, §7.8.57.
  static var longest: Int { 1650 }

  /// All of the data: `earlier`, then a range of the report's packet.
  struct Joined {
    var earlier: [UInt8] = []
    var data: Octets
    var isTruncated: Bool
  }
  private struct Chain {
    var address: DeviceAddress, type: AddressType, sid: UInt8, isScanResponse: Bool
    var octets: [UInt8] = []
    var isTruncated = false
    func continues(in report: LEExtendedAdvertisingReport.Report) -> Bool {
      address == report.address && type == report.addressType && sid == report.advertisingSID
        && isScanResponse == report.scanResponse
    }
  }
  private var chains: [Chain] = []

  mutating func removeAll() { chains = [] }
  var octetsKept: Int { chains.reduce(0) { $0 + $1.octets.count } }

  /// nil: more fragments follow.
  mutating func take(_ report: LEExtendedAdvertisingReport.Report, in packet: Span<UInt8>) -> Joined? {
    let place = chains.firstIndex { $0.continues(in: report) }, isComplete = report.dataStatus != .incomplete
    if place == nil && isComplete { return Joined(data: report.data, isTruncated: report.dataStatus != .complete) }
    var chain =
      place.map { chains.remove(at: $0) }
      ?? Chain(
        address: report.address, type: report.addressType, sid: report.advertisingSID,
        isScanResponse: report.scanResponse)
    let count = min(Int(report.data.count), Self.longest - chain.octets.count)
    let data = Octets(Int(report.data.offset), count)
    if count < Int(report.data.count) || (isComplete && report.dataStatus != .complete) { chain.isTruncated = true }
    if isComplete { return Joined(earlier: chain.octets, data: data, isTruncated: chain.isTruncated) }
    chain.octets += data.array(in: packet)
    if chains.count == Self.capacity { chains.removeFirst() }
    chains.append(chain)
    return nil
  }
}
