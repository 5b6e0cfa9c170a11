import BindruneWire

/// LE Set Advertising Parameters. Vol 4, Part E, §7.8.5.
///
/// `advertisingChannelMap`: bit 0 is channel 37, bit 2 channel 39.
public struct LESetAdvertisingParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0006) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Parameters" }
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

/// LE Read Advertising Physical Channel Tx Power. Vol 4, Part E, §7.8.6.
///
/// The level is in dBm, −20 … +20.
public struct LEReadAdvertisingPhysicalChannelTxPower: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0007) }
  public static var name: StaticString { "HCI_LE_Read_Advertising_Physical_Channel_Tx_Power" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 6) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var txPowerLevel: Int8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("TX_Power_Level", &txPowerLevel)
    }
  }
}

/// LE Set Advertising Data. Vol 4, Part E, §7.8.7.
///
/// The data always fill 31 octets on the wire, zeros after the significant part.
public struct LESetAdvertisingData: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0008) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Data" }
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
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 1) }
  public var advertisingEnable = false
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Enable", &advertisingEnable)
  }
}

/// LE Set Extended Advertising Parameters [v1]. Vol 4, Part E, §7.8.53.
public struct LESetExtendedAdvertisingParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0036) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Advertising_Parameters" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 2) }
  public var advertisingHandle: UInt8 = 0
  public var connectable = false, scannable = false, directed = false, highDutyCycle = false, legacy = false,
    anonymous = false, includeTxPower = false
  public var reservedProperties: UInt16 = 0
  public var primaryAdvertisingIntervalMin: UInt24 = 0x800
  public var primaryAdvertisingIntervalMax: UInt24 = 0x800
  public var primaryAdvertisingChannelMap: UInt8 = 7
  public var ownAddressType = OwnAddressType()
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var advertisingFilterPolicy = AdvertisingFilterPolicy()
  public var advertisingTxPower: Int8 = 127
  public var primaryAdvertisingPHY = PHY.le1M
  public var secondaryAdvertisingMaxSkip: UInt8 = 0
  public var secondaryAdvertisingPHY = PHY.le1M
  public var advertisingSID: UInt8 = 0
  public var scanRequestNotificationEnable = false
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.bits("Connectable advertising", &connectable, 1)
    try visit.bits("Scannable advertising", &scannable, 1)
    try visit.bits("Directed advertising", &directed, 1)
    try visit.bits("High Duty Cycle Directed Connectable advertising", &highDutyCycle, 1)
    try visit.bits("Use legacy advertising PDUs", &legacy, 1)
    try visit.bits("Omit advertiser's address from all PDUs", &anonymous, 1)
    try visit.bits("Include TxPower in the extended header", &includeTxPower, 1)
    try visit.bits("Reserved for future use", &reservedProperties, 9)
    try visit.value("Primary_Advertising_Interval_Min", &primaryAdvertisingIntervalMin)
    try visit.value("Primary_Advertising_Interval_Max", &primaryAdvertisingIntervalMax)
    try visit.value("Primary_Advertising_Channel_Map", &primaryAdvertisingChannelMap)
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Advertising_Filter_Policy", &advertisingFilterPolicy)
    try visit.value("Advertising_TX_Power", &advertisingTxPower)
    try visit.value("Primary_Advertising_PHY", &primaryAdvertisingPHY)
    try visit.value("Secondary_Advertising_Max_Skip", &secondaryAdvertisingMaxSkip)
    try visit.value("Secondary_Advertising_PHY", &secondaryAdvertisingPHY)
    try visit.value("Advertising_SID", &advertisingSID)
    try visit.value("Scan_Request_Notification_Enable", &scanRequestNotificationEnable)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var selectedTXPower: Int8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Selected_TX_Power", &selectedTXPower)
    }
  }
}
