import BindruneWire
import BindruneHCI

/// A caller's scan. The caller chooses the number; several scans run concurrently.
public struct ScanID: RawRepresentable, BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt64
  public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// How to scan. Vol 3, Part C, §9.2; Vol 4, Part E, §7.8.10 and §7.8.64.
public struct ScanParameters: BitwiseCopyable, Sendable, Hashable {
  /// How much of the time to listen: how soon a device is heard, against the cost for the radio and the battery.
  public enum Intent: BitwiseCopyable, Sendable, Hashable {
    /// All of the time, in windows of 60 ms.
    case fast
    /// 30 ms of every 60 ms: TGAP(scan_fast_interval) and TGAP(scan_fast_window). Vol 3, Part C, Appendix A.
    case balanced
    /// For scans without a waiting user: 11.25 ms of every 1.28 s, TGAP(scan_slow_interval1) and
    /// TGAP(scan_slow_window1). Always coalesces duplicates. While another scan has another intent, this one hears
    /// devices as fast as that.
    case background
    /// `window` out of every `interval`; both 2.5 ms … 10.24 s, and `window` at most `interval`.
    case custom(interval: ScanInterval, window: ScanInterval)
  }

  /// Active scanning requests the scan response of scannable advertisers, and reports both together.
  public var isActive: Bool
  public var intent: Intent
  /// Whether to report a device once (see ``Discovery``) instead of with every advertisement.
  public var coalescesDuplicates: Bool

  /// Scans all the time, actively, and reports every advertisement, by default.
  public init(isActive: Bool = true, intent: Intent = .fast, coalescesDuplicates: Bool = false) {
    self.isActive = isActive
    self.intent = intent
    self.coalescesDuplicates = coalescesDuplicates
  }
  /// Passive, rare, each device once.
  public static var background: ScanParameters { ScanParameters(isActive: false, intent: .background) }

  /// The time between the starts of two windows.
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
  /// Whether a controller supports it: 2.5 ms … 10.24 s, the window at most the interval. Vol 4, Part E, §7.8.10.
  public var isValid: Bool { window.rawValue >= 4 && window <= interval && interval.rawValue <= 0x4000 }
}

/// A device that a scan has found: one advertisement, with its scan response if one was requested and received.
///
/// A scan that coalesces duplicates reports a device once, and a second time if the first report was incomplete:
/// without the scan response, or with data that the controller could not deliver whole. It does not report later
/// changes of the data. It remembers 2,048 reported devices; beyond them it forgets the one that has been silent for
/// longest, and reports that one again when it is heard again.
public struct Discovery: BitwiseCopyable, Sendable {
  /// The device.
  public var peer: PeerID
  /// Its identity address, if that is known; else the address that was heard.
  public var address: PeerAddress
  /// The address that was heard.
  public var addressOnAir: PeerAddress
  /// In dBm, of its last PDU; nil when the controller does not know.
  public var rssi: Int8?
  /// From the advertisement; a scan response without an advertisement does not always tell.
  public var isConnectable: Bool
  public var isScannable: Bool
  public var isDirected: Bool
  /// False for the extended PDUs of Bluetooth 5.
  public var isLegacy: Bool
  /// The controller could not deliver all of the data.
  public var isTruncated: Bool
  /// The advertising data. A range of `HostCore.withBytes(of:)`, like the scan response.
  public var advertising: Octets
  /// The scan response data: of this advertisement, or else the device's last. Nil if none was heard, if the
  /// advertisement has no scan response, or if the scan is passive.
  public var scanResponse: Octets?
}
