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
/// answered. A connection ends advertising in the controller (Vol 4, Part E, §7.8.9), which `connected` is told.
///
/// **Phases**: off → settingParameters → settingData → settingScanResponse → enabling → on → disabling → off;
/// blocked: the controller refused to advertise beside a connection; tried again when a link goes down.
struct Advertiser {
  enum Outcome: BitwiseCopyable {
    case started
    case stopped
    case failed(HCIStatus)
  }
  private enum Phase: BitwiseCopyable {
    case off, settingParameters, settingData, settingScanResponse, enabling, on, disabling, blocked
  }
  private struct Wish: Equatable {
    var parameters: AdvertisingParameters
    var advertising: [UInt8]
    var scanResponse: [UInt8]
  }
  private var phase = Phase.off
  private var wanted: Wish?
  /// What the commands under way are about.
  private var current: Wish?
  private let tag: UInt32
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  mutating func reset() {
    phase = .off
    wanted = nil
  }

  /// `advertising` and `scanResponse` have at most 31 octets each.
  mutating func want(
    _ parameters: AdvertisingParameters, advertising: [UInt8], scanResponse: [UInt8], hci: inout HCILayer, now: Instant
  ) {
    precondition(advertising.count <= 31 && scanResponse.count <= 31)
    wanted = Wish(parameters: parameters, advertising: advertising, scanResponse: scanResponse)
    step(&hci, now)
  }
  /// True when there is nothing to stop: no outcome follows.
  mutating func stop(hci: inout HCILayer, now: Instant) -> Bool {
    wanted = nil
    if phase == .blocked { phase = .off }
    step(&hci, now)
    return phase == .off
  }

  private mutating func step(_ hci: inout HCILayer, _ now: Instant) {
    switch phase {
    case .off:
      guard let wanted else { return }
      current = wanted
      var command = LESetAdvertisingParameters()
      command.advertisingIntervalMin = wanted.parameters.intervalMin
      command.advertisingIntervalMax = wanted.parameters.intervalMax
      command.advertisingType =
        switch wanted.parameters.kind {
        case .connectable: .connectableScannableUndirected
        case .scannable: .scannableUndirected
        case .nonconnectable: .nonConnectableUndirected
        }
      command.ownAddressType = ownAddressType
      hci.send(command, tag: tag, now: now)
      phase = .settingParameters
    case .on where current != wanted:
      var command = LESetAdvertisingEnable()
      command.advertisingEnable = false
      hci.send(command, tag: tag, now: now)
      phase = .disabling
    default: return
    }
  }

  /// A command with our tag has ended.
  mutating func completed(
    _ outcome: CommandOutcome, hasLinks: Bool, hci: inout HCILayer, now: Instant
  ) -> Outcome? {
    switch phase {
    case .off, .on, .blocked: return nil
    case .disabling:
      phase = .off
      step(&hci, now)
      return wanted == nil ? .stopped : nil
    case .settingParameters, .settingData, .settingScanResponse, .enabling:
      guard wanted == current, let current else {
        // Wanted otherwise meanwhile: begin again, or stop what the last command started.
        if phase == .enabling && outcome.status == .success {
          phase = .on
          step(&hci, now)
          return nil
        }
        phase = .off
        step(&hci, now)
        return wanted == nil ? .stopped : nil
      }
      guard outcome.status == .success else {
        if hasLinks && current.parameters.restartsAfterConnection {
          phase = .blocked
          return nil
        }
        phase = .off
        wanted = nil
        return .failed(outcome.status)
      }
      switch phase {
      case .settingParameters:
        var command = LESetAdvertisingData()
        (command.advertisingDataLength, command.advertisingData) = Self.field(current.advertising)
        send(command, current.advertising, &hci, now)
        phase = .settingData
      case .settingData:
        var command = LESetScanResponseData()
        (command.scanResponseDataLength, command.scanResponseData) = Self.field(current.scanResponse)
        send(command, current.scanResponse, &hci, now)
        phase = .settingScanResponse
      case .settingScanResponse:
        var command = LESetAdvertisingEnable()
        command.advertisingEnable = true
        hci.send(command, tag: tag, now: now)
        phase = .enabling
      default:
        phase = .on
        return .started
      }
      return nil
    }
  }

  /// Legacy advertising data is 31 octets on the wire, the significant ones first. Vol 4, Part E, §7.8.7.
  private static func field(_ data: [UInt8]) -> (AdvertisingDataLength, Octets) {
    (AdvertisingDataLength(wire: UInt64(data.count)) ?? AdvertisingDataLength(), Octets(0, 31))
  }
  private func send(_ command: some HCICommand, _ data: [UInt8], _ hci: inout HCILayer, _ now: Instant) {
    let field = data + [UInt8](repeating: 0, count: 31 - data.count)
    do throws(WireError) {
      try hci.send(command, from: field.span, tag: tag, now: now)
    } catch {
      preconditionFailure("the range of 31 octets is that of `field`: \(error)")
    }
  }

  /// A central has connected. True when advertising ended and stays off.
  mutating func connected(hci: inout HCILayer, now: Instant) -> Bool {
    guard phase == .on else { return false }
    phase = .off
    if wanted?.parameters.restartsAfterConnection != true { wanted = nil }
    step(&hci, now)
    return wanted == nil
  }
  /// A link has gone down: advertising that the controller refused may be possible again.
  mutating func disconnected(hci: inout HCILayer, now: Instant) {
    guard phase == .blocked else { return }
    phase = .off
    step(&hci, now)
  }
}
