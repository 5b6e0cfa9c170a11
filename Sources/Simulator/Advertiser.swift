import BindruneWire
import BindruneHCI

/// One advertiser: the legacy commands' own, or an advertising set. Vol 6, Part B, §4.4.2.
struct Advertiser {
  /// Advertising_Handle; `nil` for the legacy commands' advertiser.
  var handle: UInt8?
  var isEnabled = false
  /// The number of its last start, by which events of an earlier start are recognized.
  var generation: UInt32 = 0
  /// Whether it sends legacy PDUs.
  var isLegacy = true
  /// The PHY on which extended PDUs begin, LE 1M or LE Coded, and the one on which they continue. Legacy PDUs are all
  /// on LE 1M.
  var primaryPHY = PHY.le1M, secondaryPHY = PHY.le1M
  var isConnectable = true, isScannable = true, isDirected = false, isHighDuty = false
  /// Whether it omits its address, and includes its transmit power.
  var isAnonymous = false, tellsPower = false
  /// In dBm.
  var power: Int8 = 0
  var interval = PrimaryAdvertisingInterval(rawValue: 0x0800)
  var ownAddressType = OwnAddressType()
  var randomAddress: DeviceAddress?
  var peer = AirAddress(isRandom: false, DeviceAddress())
  /// Bit 0 is channel 37.
  var channelMap: UInt8 = 7
  /// The devices that it answers: bit 0 scan requests, bit 1 connect requests only from the Filter Accept List.
  var filterPolicy = AdvertisingFilterPolicy()
  var data = AdvertisingPayload(), scanResponse = AdvertisingPayload()
  /// Whether its host gets an event for scan requests.
  var reportsScanRequests = false
  /// Advertising Set ID, and Data ID, which changes with the data.
  var sid: UInt8 = 0, did: UInt16 = 0
  /// Advertising events since the start, and their limit; 0: unlimited.
  var events = 0, maximumEvents = 0

  init(handle: UInt8? = nil) { self.handle = handle }

  /// advInterval; at most 3.75 ms when the duty cycle is high. Vol 6, Part B, §4.4.2.4.3.
  var period: Duration { isHighDuty ? .microseconds(3750) : interval.duration }
  /// Vol 6, Part B, §4.4.2.4.3.
  static var highDutyLimit: Duration { .milliseconds(1280) }
  /// Event_Type of a legacy report. Vol 4, Part E, §7.7.65.2.
  var legacyType: AdvertisingEventType {
    if isDirected { return .connectableDirected }
    if isConnectable { return .connectableScannableUndirected }
    return isScannable ? .scannableUndirected : .nonConnectableUndirected
  }
  /// Whether it carries advertising data: not with ADV_DIRECT_IND, nor beside the response of scannable extended PDUs.
  /// Vol 4, Part E, §7.8.53.
  var takesData: Bool { isLegacy ? !isDirected : !isScannable }
  /// Octets of it in an advertisement: connectable extended ones have all data in AUX_ADV_IND, where AdvMode, flags,
  /// AdvA, TargetA, ADI and TxPower leave the rest of 255 octets. Vol 6, Part B, §2.3.4, §4.4.2.
  var longestData: Int {
    if isLegacy { return 31 }
    if !isConnectable { return VirtualController.maximumAdvertisingData }
    return 255 - 10 - (isDirected ? 6 : 0) - (tellsPower ? 1 : 0)
  }
}
/// Advertising data or scan response data from the host.
struct AdvertisingPayload {
  var octets: [UInt8] = []
  /// The last piece has not arrived yet.
  var isPartial = false
}
