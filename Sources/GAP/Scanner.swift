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
/// most, so a stop during a start waits for the start to end. Legacy or extended commands, never both (Vol 4, Part E, §3.1.1).
///
/// **Phases**: off → settingParameters → enabling → on → disabling → off.
struct Scanner {
  enum Outcome: BitwiseCopyable {
    case started
    case stopped
    case failed(HCIStatus)
  }
  private enum Phase: BitwiseCopyable {
    case off
    case settingParameters(ScanParameters)
    case enabling(ScanParameters)
    case on(ScanParameters)
    case disabling
  }
  private var phase = Phase.off
  private var wanted: ScanParameters?
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// The controller has forgotten everything.
  mutating func reset() {
    phase = .off
    wanted = nil
  }

  /// nil: do not scan. The outcome of each change comes from `completed`.
  mutating func want(_ parameters: ScanParameters?, hci: inout HCILayer, now: Instant) {
    wanted = parameters
    step(&hci, now)
  }

  private mutating func step(_ hci: inout HCILayer, _ now: Instant) {
    switch phase {
    case .off:
      guard let wanted else { return }
      sendParameters(wanted, &hci, now)
      phase = .settingParameters(wanted)
    case .on(let parameters) where parameters != wanted:
      sendEnable(nil, &hci, now)
      phase = .disabling
    case .on, .settingParameters, .enabling, .disabling: return
    }
  }

  /// A command with our tag has ended.
  mutating func completed(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Outcome? {
    switch phase {
    case .settingParameters(let parameters) where outcome.status == .success:
      guard wanted == parameters else {
        phase = .off
        step(&hci, now)
        return wanted == nil ? .stopped : nil
      }
      sendEnable(parameters, &hci, now)
      phase = .enabling(parameters)
      return nil
    case .enabling(let parameters) where outcome.status == .success:
      phase = .on(parameters)
      step(&hci, now)
      return wanted == nil ? nil : .started
    case .settingParameters, .enabling:
      phase = .off
      wanted = nil
      return .failed(outcome.status)
    case .disabling:
      // Whatever the status: there is nothing more that could be done to stop it.
      phase = .off
      step(&hci, now)
      return wanted == nil ? .stopped : nil
    case .off, .on: return nil
    }
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
