import BindruneWire

/// LE Set Advertising Parameters. Vol 4, Part E, §7.8.5.
///
/// `advertisingChannelMap`: bit 0 is channel 37, bit 2 channel 39.
public struct LESetAdvertisingParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0006) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Parameters" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.5" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 5) }
  public var advertisingIntervalMin = AdvertisingInterval(rawValue: 0x0800)
  public var advertisingIntervalMax = AdvertisingInterval(rawValue: 0x0800)
  public var advertisingType = AdvertisingType.connectableScannableUndirected
  public var ownAddressType = OwnAddressType()
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var advertisingChannelMap: UInt8 = 0x07
  public var advertisingFilterPolicy = AdvertisingFilterPolicy()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Interval_Min", &advertisingIntervalMin)
    try visit.value("Advertising_Interval_Max", &advertisingIntervalMax)
    try visit.value("Advertising_Type", &advertisingType)
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Advertising_Channel_Map", &advertisingChannelMap)
    try visit.value("Advertising_Filter_Policy", &advertisingFilterPolicy)
  }
}

/// LE Set Advertising Data. Vol 4, Part E, §7.8.7.
///
/// The data always fill 31 octets on the wire, zeros after the significant part.
public struct LESetAdvertisingData: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0008) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Data" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.7" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 7) }
  public var advertisingDataLength = AdvertisingDataLength()
  public var advertisingData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Data_Length", &advertisingDataLength)
    try visit.octets("Advertising_Data", &advertisingData, .exactly(31))
  }
}

/// LE Set Scan Response Data. Vol 4, Part E, §7.8.8.
///
/// The data always fill 31 octets on the wire, zeros after the significant part.
public struct LESetScanResponseData: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0009) }
  public static var name: StaticString { "HCI_LE_Set_Scan_Response_Data" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.8" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 0) }
  public var scanResponseDataLength = AdvertisingDataLength()
  public var scanResponseData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Scan_Response_Data_Length", &scanResponseDataLength)
    try visit.octets("Scan_Response_Data", &scanResponseData, .exactly(31))
  }
}

/// LE Set Advertising Enable. Vol 4, Part E, §7.8.9.
public struct LESetAdvertisingEnable: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000A) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Enable" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.9" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 1) }
  public var advertisingEnable = false
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Enable", &advertisingEnable)
  }
}
