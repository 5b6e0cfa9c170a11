import BindruneWire

/// LE Set Advertising Set Random Address. Vol 4, Part E, §7.8.52.
///
/// The set must exist: set its parameters first. The controller refuses it with 0x0C while the set advertises
/// connectably.
public struct LESetAdvertisingSetRandomAddress: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0035) }
  public static var name: StaticString { "HCI_LE_Set_Advertising_Set_Random_Address" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.52" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 1) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var advertisingHandle = AdvertisingHandle()
  public var randomAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Random_Address", &randomAddress)
  }
}

/// LE Set Extended Advertising Parameters [v1]. Vol 4, Part E, §7.8.53.
public struct LESetExtendedAdvertisingParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0036) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Advertising_Parameters" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.53" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 2) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var advertisingHandle = AdvertisingHandle()
  public var connectable = false, scannable = false, directed = false, highDutyCycle = false, legacy = false,
    anonymous = false, includeTxPower = false
  public var reservedProperties: UInt16 = 0
  public var primaryAdvertisingIntervalMin = PrimaryAdvertisingInterval(rawValue: 0x800)
  public var primaryAdvertisingIntervalMax = PrimaryAdvertisingInterval(rawValue: 0x800)
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

/// LE Set Extended Advertising Data. Vol 4, Part E, §7.8.54.
///
/// One command carries at most 251 octets; legacy PDUs have at most 31, in one command.
public struct LESetExtendedAdvertisingData: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0037) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Advertising_Data" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.54" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 3) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var advertisingHandle = AdvertisingHandle()
  public var operation = AdvertisingDataOperation.complete
  public var fragmentPreference = FragmentPreference()
  public var advertisingData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Operation", &operation)
    try visit.value("Fragment_Preference", &fragmentPreference)
    try visit.octets(lengthIn: "Advertising_Data_Length", UInt8.self, "Advertising_Data", &advertisingData)
  }
}

/// LE Set Extended Scan Response Data. Vol 4, Part E, §7.8.55.
///
/// One command carries at most 251 octets; legacy PDUs have at most 31, in one command.
public struct LESetExtendedScanResponseData: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0038) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Scan_Response_Data" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.55" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 4) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var advertisingHandle = AdvertisingHandle()
  public var operation = AdvertisingDataOperation.complete
  public var fragmentPreference = FragmentPreference()
  public var scanResponseData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Operation", &operation)
    try visit.value("Fragment_Preference", &fragmentPreference)
    try visit.octets(lengthIn: "Scan_Response_Data_Length", UInt8.self, "Scan_Response_Data", &scanResponseData)
  }
}

/// LE Set Extended Advertising Enable. Vol 4, Part E, §7.8.56.
///
/// Disabling without naming a set disables all of them.
public struct LESetExtendedAdvertisingEnable: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0039) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Advertising_Enable" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.56" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 5) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var enable = false
  public var sets = WireList<Set>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Enable", &enable)
    try visit.list(countIn: "Num_Sets", "Sets", &sets)
  }

  /// `duration` 0: until it is disabled; `maxExtendedAdvertisingEvents` 0: unlimited.
  public struct Set: WireRecord {
    public var advertisingHandle = AdvertisingHandle()
    public var duration = AdvertisingDuration()
    public var maxExtendedAdvertisingEvents: UInt8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Advertising_Handle", &advertisingHandle)
      try visit.value("Duration", &duration)
      try visit.value("Max_Extended_Advertising_Events", &maxExtendedAdvertisingEvents)
    }
  }
}

/// LE Read Maximum Advertising Data Length. Vol 4, Part E, §7.8.57.
///
/// 31 … 1,650 octets.
public struct LEReadMaximumAdvertisingDataLength: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x003A) }
  public static var name: StaticString { "HCI_LE_Read_Maximum_Advertising_Data_Length" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.57" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 6) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var maxAdvertisingDataLength: UInt16 = 31
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Max_Advertising_Data_Length", &maxAdvertisingDataLength)
    }
  }
}

/// LE Read Number of Supported Advertising Sets. Vol 4, Part E, §7.8.58.
///
/// The number depends on free memory, and may change at any time.
public struct LEReadNumberOfSupportedAdvertisingSets: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x003B) }
  public static var name: StaticString { "HCI_LE_Read_Number_of_Supported_Advertising_Sets" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.58" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 7) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var numSupportedAdvertisingSets: UInt8 = 1
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Num_Supported_Advertising_Sets", &numSupportedAdvertisingSets)
    }
  }
}

/// LE Remove Advertising Set. Vol 4, Part E, §7.8.59.
public struct LERemoveAdvertisingSet: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x003C) }
  public static var name: StaticString { "HCI_LE_Remove_Advertising_Set" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.59" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(37, 0) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var advertisingHandle = AdvertisingHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
  }
}
