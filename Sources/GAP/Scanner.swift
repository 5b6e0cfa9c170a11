import BindruneWire
import HCI

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
/// (§7.8.10, §7.8.64). Suspended, it turns off and reports nothing; it keeps the target for `resume`.
///
/// **Phases**: off → settingParameters → enabling → on → disabling → off.
struct Scanner {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable {
    case off
    case settingParameters(ControllerScan)
    case enabling(ControllerScan)
    case on(ControllerScan)
    case disabling
  }
  private(set) var phase = Phase.off
  private var wanted: ControllerScan?
  private var isSuspended = false
  /// `HCILayer.cause` of the last call that changed what is wanted.
  private var cause: UInt64 = 0
  private let tag: UInt32
  var joiner = ReportJoiner()
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// Scanning is off, and no command is in flight.
  var isQuiet: Bool { if case .off = phase { true } else { false } }

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
    return step(&hci, now)
  }
  /// Turns scanning off for an operation that a controller refuses while it is on: setting its random address (Vol 4,
  /// Part E, §7.8.4).
  mutating func suspend(hci: inout HCILayer, now: Instant) {
    isSuspended = true
    cause = hci.cause
    _ = step(&hci, now)
  }
  mutating func resume(hci: inout HCILayer, now: Instant) {
    isSuspended = false
    hci.cause = cause
    _ = step(&hci, now)
  }

  /// Continues from a phase without a command in flight.
  private mutating func step(_ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .off:
      guard let wanted, !isSuspended else { return nil }
      joiner.removeAll()
      sendParameters(wanted, &hci, now)
      phase = .settingParameters(wanted)
    case .on(let scan):
      if scan == wanted, !isSuspended { return .started }
      sendEnable(nil, &hci, now)
      phase = .disabling
    case .settingParameters, .enabling, .disabling: break
    }
    return nil
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    let isAccepted = outcome.status == .success
    hci.cause = cause
    switch phase {
    case .off, .on: return nil
    case .settingParameters(let scan), .enabling(let scan):
      if !isAccepted, wanted == scan {
        wanted = nil
        phase = .off
        return .failed(outcome.status)
      }
      if case .enabling = phase {
        phase = isAccepted ? .on(scan) : .off
      } else if isAccepted, wanted == scan, !isSuspended {
        sendEnable(scan, &hci, now)
        phase = .enabling(scan)
        return nil
      } else {
        phase = .off
      }
    // Regardless of the status: nothing else can stop scanning.
    case .disabling: phase = .off
    }
    return step(&hci, now)
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
