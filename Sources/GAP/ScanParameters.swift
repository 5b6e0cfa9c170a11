import BindruneWire
import HCI

/// A caller's scan. The caller chooses the number; several scans go on side by side.
public struct ScanID: RawRepresentable, BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt64
  public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// How to scan. Vol 3, Part C, §9.2; Vol 4, Part E, §7.8.10 and §7.8.64.
public struct ScanParameters: BitwiseCopyable, Sendable, Hashable {
  /// How much of the time to listen: how soon a device is heard, against what it costs the radio and the battery.
  public enum Intent: BitwiseCopyable, Sendable, Hashable {
    /// All of the time, in windows of 60 ms.
    case fast
    /// 30 ms of every 60 ms: TGAP(scan_fast_interval) and TGAP(scan_fast_window). Vol 3, Part C, Appendix A.
    case balanced
    /// For somebody who is not looking: 11.25 ms of every 1.28 s, TGAP(scan_slow_interval1) and TGAP(scan_slow_window1).
    /// Duplicates are coalesced whatever else is said. One scan with another intent is enough for the others to be heard as
    /// fast as it is.
    case background
    /// `window` out of every `interval`; both 2.5 ms … 10.24 s, and `window` at most `interval`.
    case custom(interval: ScanInterval, window: ScanInterval)
  }

  /// Active scanning asks scannable advertisers for their scan response, and tells both together.
  public var isActive: Bool
  public var intent: Intent
  /// A device is told once (see ``Discovery``); else with every advertisement that is heard.
  public var coalescesDuplicates: Bool

  /// Scans all the time, actively, and tells everything.
  public init(isActive: Bool = true, intent: Intent = .fast, coalescesDuplicates: Bool = false) {
    self.isActive = isActive
    self.intent = intent
    self.coalescesDuplicates = coalescesDuplicates
  }
  /// Passive, seldom, each device once.
  public static var background: ScanParameters { ScanParameters(isActive: false, intent: .background) }

  /// From one window's begin to the next.
  public var interval: ScanInterval {
    switch intent {
    case .fast, .balanced: ScanInterval(.milliseconds(60))
    case .background: ScanInterval(.milliseconds(1280))
    case .custom(let interval, _): interval
    }
  }
  /// How long to listen.
  public var window: ScanInterval {
    switch intent {
    case .fast: ScanInterval(.milliseconds(60))
    case .balanced: ScanInterval(.milliseconds(30))
    case .background: ScanInterval(.microseconds(11_250))
    case .custom(_, let window): window
    }
  }
  var isCoalescing: Bool { coalescesDuplicates || intent == .background }
  /// A controller can do it: 2.5 ms … 10.24 s, the window at most the interval. Vol 4, Part E, §7.8.10.
  public var isValid: Bool { window.rawValue >= 4 && window <= interval && interval.rawValue <= 0x4000 }
}

/// A device that a scan has found: one advertisement, with its scan response where one was asked for and came.
///
/// A scan that coalesces duplicates tells a device once, and a second time where the first time was not all of it: without
/// the scan response, or with data that the controller could not deliver whole. Whatever the device says after that is not
/// told. Of 2,048 devices it is known that they have been told; then the one that has not been heard for longest is
/// forgotten, and told again when it is heard again.
public struct Discovery: BitwiseCopyable, Sendable {
  /// Who it is.
  public var peer: PeerID
  /// Its identity address, where that is known; else the one that was heard.
  public var address: PeerAddress
  /// The address that was heard.
  public var addressOnAir: PeerAddress
  /// dBm, of the last PDU of it; nil when the controller does not know.
  public var rssi: Int8?
  /// As the advertisement said; the scan response, where no advertisement was heard, does not always.
  public var isConnectable: Bool
  public var isScannable: Bool
  public var isDirected: Bool
  /// False for the extended PDUs of Bluetooth 5.
  public var isLegacy: Bool
  /// The controller could not deliver all of the data.
  public var isTruncated: Bool
  /// The advertising data. In `HostCore.withBytes(of:)`, as is the scan response.
  public var advertising: Octets
  /// The scan response data: of this advertisement, or else the last that the device gave. Nil: none was heard, or the
  /// advertisement is not one that has a scan response, or the scan is passive.
  public var scanResponse: Octets?
}
