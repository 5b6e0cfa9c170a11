import BindruneWire
import HCI

/// How to scan. Vol 3, Part C, §9.2; Vol 4, Part E, §7.8.10 and §7.8.64.
public struct ScanParameters: BitwiseCopyable, Sendable, Hashable {
  /// Active scanning asks scannable advertisers for their scan response.
  public var isActive: Bool
  /// From one window's begin to the next, 2.5 ms … 10.24 s.
  public var interval: ScanInterval
  /// How long to listen, 2.5 ms … `interval`.
  public var window: ScanInterval
  /// The controller reports each advertiser once.
  public var filtersDuplicates: Bool

  /// Scans all the time, actively, and reports everything.
  public init(
    isActive: Bool = true, interval: ScanInterval = ScanInterval(.milliseconds(60)),
    window: ScanInterval = ScanInterval(.milliseconds(60)), filtersDuplicates: Bool = false
  ) {
    self.isActive = isActive
    self.interval = interval
    self.window = window
    self.filtersDuplicates = filtersDuplicates
  }
}

/// # Scanner
/// **Overview**: brings the controller's scanning to what is wanted, whatever is wanted meanwhile.
///
/// **Function**: `want` states the goal; each command's outcome is one step towards it. There is one command under way at
/// most, so a stop during a start waits for the start to end. Each wish has one outcome, unless another wish overtakes it.
/// Legacy or extended commands, never both (Vol 4, Part E, §3.1.1); parameters may only be set while scanning is off
/// (§7.8.10, §7.8.64).
///
/// **Phases**: off → settingParameters → enabling → on → disabling → off.
struct Scanner {
  enum Outcome: BitwiseCopyable, Equatable {
    case started
    case stopped
    case failed(HCIStatus)
  }
  enum Phase: BitwiseCopyable {
    case off
    case settingParameters(ScanParameters)
    case enabling(ScanParameters)
    case on(ScanParameters)
    case disabling
  }
  private(set) var phase = Phase.off
  private var wanted: ScanParameters?
  private let tag: UInt32
  var joiner = ReportJoiner()
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// Reports that come otherwise were on their way when scanning was stopped.
  var isWanted: Bool { wanted != nil }

  /// The controller has forgotten everything. True when scanning was on, or on its way.
  mutating func reset() -> Bool {
    wanted = nil
    defer { phase = .off }
    if case .off = phase { return false }
    return true
  }

  /// nil: do not scan. The outcome, unless it is certain at once, comes from `completed`.
  mutating func want(_ parameters: ScanParameters?, hci: inout HCILayer, now: Instant) -> Outcome? {
    wanted = parameters
    return step(&hci, now)
  }

  /// Goes on from a phase in which no command is under way.
  private mutating func step(_ hci: inout HCILayer, _ now: Instant) -> Outcome? {
    switch phase {
    case .off:
      guard let wanted else { return .stopped }
      joiner.removeAll()
      sendParameters(wanted, &hci, now)
      phase = .settingParameters(wanted)
    case .on(let parameters):
      if parameters == wanted { return .started }
      sendEnable(nil, &hci, now)
      phase = .disabling
    case .settingParameters, .enabling, .disabling: break
    }
    return nil
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    let isAccepted = outcome.status == .success
    switch phase {
    case .off, .on: return nil
    case .settingParameters(let parameters), .enabling(let parameters):
      if !isAccepted, wanted == parameters {
        wanted = nil
        phase = .off
        return .failed(outcome.status)
      }
      if case .enabling = phase {
        phase = isAccepted ? .on(parameters) : .off
      } else if isAccepted, wanted == parameters {
        sendEnable(parameters, &hci, now)
        phase = .enabling(parameters)
        return nil
      } else {
        phase = .off
      }
    // Whatever the status: there is nothing more that could be done to stop it.
    case .disabling: phase = .off
    }
    return step(&hci, now)
  }

  private func sendParameters(_ parameters: ScanParameters, _ hci: inout HCILayer, _ now: Instant) {
    if usesExtendedCommands {
      var command = LESetExtendedScanParameters()
      command.ownAddressType = ownAddressType
      command.le1M.scanType = parameters.isActive ? .active : .passive
      command.le1M.scanInterval = parameters.interval
      command.le1M.scanWindow = parameters.window
      hci.send(command, tag: tag, now: now)
    } else {
      var command = LESetScanParameters()
      command.leScanType = parameters.isActive ? .active : .passive
      command.leScanInterval = parameters.interval
      command.leScanWindow = parameters.window
      command.ownAddressType = ownAddressType
      hci.send(command, tag: tag, now: now)
    }
  }
  private func sendEnable(_ parameters: ScanParameters?, _ hci: inout HCILayer, _ now: Instant) {
    if usesExtendedCommands {
      var command = LESetExtendedScanEnable()
      command.enable = parameters != nil
      command.filterDuplicates = parameters?.filtersDuplicates == true ? .enabled : .disabled
      hci.send(command, tag: tag, now: now)
    } else {
      var command = LESetScanEnable()
      command.leScanEnable = parameters != nil
      command.filterDuplicates = parameters?.filtersDuplicates ?? false
      hci.send(command, tag: tag, now: now)
    }
  }
}

/// # ReportJoiner
/// **Overview**: long advertising data come in fragments, a report each: Data_Status says whether more is to come, or was
/// lost by the controller. Vol 4, Part E, §7.7.65.13.
///
/// **Function**: keeps the fragments of each advertiser until the last one is here. Bounded: of the few advertisers whose
/// end is awaited the one silent for longest is forgotten, and what is longer than advertising data can be is cut.
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

  /// nil: more is to come.
  mutating func take(_ report: LEExtendedAdvertisingReport.Report, in packet: Span<UInt8>) -> Joined? {
    let place = chains.firstIndex { $0.continues(in: report) }, isComplete = report.dataStatus != 0b01
    if place == nil && isComplete { return Joined(data: report.data, isTruncated: report.dataStatus != 0) }
    var chain =
      place.map { chains.remove(at: $0) }
      ?? Chain(
        address: report.address, type: report.addressType, sid: report.advertisingSID,
        isScanResponse: report.scanResponse)
    let count = min(Int(report.data.count), Self.longest - chain.octets.count)
    let data = Octets(Int(report.data.offset), count)
    if count < Int(report.data.count) || report.dataStatus > 0b01 { chain.isTruncated = true }
    if isComplete { return Joined(earlier: chain.octets, data: data, isTruncated: chain.isTruncated) }
    chain.octets += data.array(in: packet)
    if chains.count == Self.capacity { chains.removeFirst() }
    chains.append(chain)
    return nil
  }
}
