import BindruneWire

/// LE Connection Complete. Vol 4, Part E, §7.7.65.1.
public struct LEConnectionComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x01 }
  public static var name: StaticString { "HCI_LE_Connection_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.1" }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var role = LinkRole.central
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var connectionInterval = ConnectionInterval()
  public var peripheralLatency: UInt16 = 0
  public var supervisionTimeout = SupervisionTimeout()
  public var centralClockAccuracy: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Role", &role)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Connection_Interval", &connectionInterval)
    try visit.value("Peripheral_Latency", &peripheralLatency)
    try visit.value("Supervision_Timeout", &supervisionTimeout)
    try visit.value("Central_Clock_Accuracy", &centralClockAccuracy)
  }
}

/// LE Advertising Report. Vol 4, Part E, §7.7.65.2.
public struct LEAdvertisingReport: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x02 }
  public static var name: StaticString { "HCI_LE_Advertising_Report" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.2" }
  public var reports = WireList<Report>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(countIn: "Num_Reports", "Reports", &reports)
  }

  /// `rssi` is in dBm; 127 means unknown.
  public struct Report: WireRecord {
    public var eventType = AdvertisingEventType()
    public var addressType = AddressType()
    public var address = DeviceAddress()
    public var data = Octets()
    public var rssi: Int8 = 127
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Event_Type", &eventType)
      try visit.value("Address_Type", &addressType)
      try visit.value("Address", &address)
      try visit.octets(lengthIn: "Data_Length", UInt8.self, "Data", &data)
      try visit.value("RSSI", &rssi)
    }
  }
}

/// LE Connection Update Complete. Vol 4, Part E, §7.7.65.3.
public struct LEConnectionUpdateComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x03 }
  public static var name: StaticString { "HCI_LE_Connection_Update_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.3" }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var connectionInterval = ConnectionInterval()
  public var peripheralLatency: UInt16 = 0
  public var supervisionTimeout = SupervisionTimeout()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Connection_Interval", &connectionInterval)
    try visit.value("Peripheral_Latency", &peripheralLatency)
    try visit.value("Supervision_Timeout", &supervisionTimeout)
  }
}

/// LE Read Remote Features Complete. Vol 4, Part E, §7.7.65.4.
public struct LEReadRemoteFeaturesComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x04 }
  public static var name: StaticString { "HCI_LE_Read_Remote_Features_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.4" }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var leFeatures = LEFeatures()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("LE_Features", &leFeatures)
  }
}

/// LE Long Term Key Request. Vol 4, Part E, §7.7.65.5.
public struct LELongTermKeyRequest: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x05 }
  public static var name: StaticString { "HCI_LE_Long_Term_Key_Request" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.5" }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public var connectionHandle = ConnectionHandle()
  public var randomNumber = LongTermKeyRand()
  public var encryptedDiversifier: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Random_Number", &randomNumber)
    try visit.value("Encrypted_Diversifier", &encryptedDiversifier)
  }
}

/// LE Remote Connection Parameter Request. Vol 4, Part E, §7.7.65.6.
public struct LERemoteConnectionParameterRequest: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x06 }
  public static var name: StaticString { "HCI_LE_Remote_Connection_Parameter_Request" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.6" }
  public static var requirement: HCIRequirement { .features(.connectionParametersRequestProcedure) }
  public var connectionHandle = ConnectionHandle()
  public var intervalMin = ConnectionInterval(rawValue: 24)
  public var intervalMax = ConnectionInterval(rawValue: 40)
  public var maxLatency: UInt16 = 0
  public var timeout = SupervisionTimeout(rawValue: 500)
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Interval_Min", &intervalMin)
    try visit.value("Interval_Max", &intervalMax)
    try visit.value("Max_Latency", &maxLatency)
    try visit.value("Timeout", &timeout)
  }
}

/// LE Data Length Change. Vol 4, Part E, §7.7.65.7.
public struct LEDataLengthChange: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x07 }
  public static var name: StaticString { "HCI_LE_Data_Length_Change" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.7" }
  public static var requirement: HCIRequirement { .features(.leDataPacketLengthExtension) }
  public var connectionHandle = ConnectionHandle()
  public var maxTXOctets: UInt16 = 27
  public var maxTXTime: UInt16 = 328
  public var maxRXOctets: UInt16 = 27
  public var maxRXTime: UInt16 = 328
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Max_TX_Octets", &maxTXOctets)
    try visit.value("Max_TX_Time", &maxTXTime)
    try visit.value("Max_RX_Octets", &maxRXOctets)
    try visit.value("Max_RX_Time", &maxRXTime)
  }
}

/// LE Enhanced Connection Complete. Vol 4, Part E, §7.7.65.10.
///
/// Version [v1]. The resolvable private addresses are zero where none was used.
public struct LEEnhancedConnectionComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x0A }
  public static var name: StaticString { "HCI_LE_Enhanced_Connection_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.10" }
  public static var requirement: HCIRequirement { .oneFeature(of: [.llPrivacy, .leExtendedAdvertising]) }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var role = LinkRole.central
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var localResolvablePrivateAddress = DeviceAddress()
  public var peerResolvablePrivateAddress = DeviceAddress()
  public var connectionInterval = ConnectionInterval()
  public var peripheralLatency: UInt16 = 0
  public var supervisionTimeout = SupervisionTimeout()
  public var centralClockAccuracy: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Role", &role)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Local_Resolvable_Private_Address", &localResolvablePrivateAddress)
    try visit.value("Peer_Resolvable_Private_Address", &peerResolvablePrivateAddress)
    try visit.value("Connection_Interval", &connectionInterval)
    try visit.value("Peripheral_Latency", &peripheralLatency)
    try visit.value("Supervision_Timeout", &supervisionTimeout)
    try visit.value("Central_Clock_Accuracy", &centralClockAccuracy)
  }
}

/// LE Directed Advertising Report. Vol 4, Part E, §7.7.65.11.
///
/// Legacy advertising directed to a resolvable private address that the controller cannot resolve. It occurs only with
/// Scanning_Filter_Policy 2 or 3 and LE Set Scan Enable.
public struct LEDirectedAdvertisingReport: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x0B }
  public static var name: StaticString { "HCI_LE_Directed_Advertising_Report" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.11" }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public static var isUsed: Bool { false }
  public var reports = WireList<Report>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(countIn: "Num_Reports", "Reports", &reports)
  }

  /// `directAddress` is the address that the advertiser names. `rssi` is in dBm; 127 means unknown.
  public struct Report: WireRecord {
    public var eventType = AdvertisingEventType.connectableDirected
    public var addressType = AddressType()
    public var address = DeviceAddress()
    public var directAddressType = AddressType.random
    public var directAddress = DeviceAddress()
    public var rssi: Int8 = 127
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Event_Type", &eventType)
      try visit.value("Address_Type", &addressType)
      try visit.value("Address", &address)
      try visit.value("Direct_Address_Type", &directAddressType)
      try visit.value("Direct_Address", &directAddress)
      try visit.value("RSSI", &rssi)
    }
  }
}

/// LE PHY Update Complete. Vol 4, Part E, §7.7.65.12.
public struct LEPHYUpdateComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x0C }
  public static var name: StaticString { "HCI_LE_PHY_Update_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.12" }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var txPHY = PHY.le1M, rxPHY = PHY.le1M
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("TX_PHY", &txPHY)
    try visit.value("RX_PHY", &rxPHY)
  }
}

/// LE Extended Advertising Report. Vol 4, Part E, §7.7.65.13.
public struct LEExtendedAdvertisingReport: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x0D }
  public static var name: StaticString { "HCI_LE_Extended_Advertising_Report" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.13" }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var reports = WireList<Report>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(countIn: "Num_Reports", "Reports", &reports)
  }

  /// `rssi` and `txPower` are in dBm, 127 means unknown; `advertisingSID` 0xFF: none.
  public struct Report: WireRecord {
    public var connectable = false, scannable = false, directed = false, scanResponse = false, legacy = false
    public var dataStatus = AdvertisingDataStatus.complete
    public var reservedEventType: UInt16 = 0
    public var addressType = AddressType()
    public var address = DeviceAddress()
    public var primaryPHY = PHY.le1M, secondaryPHY = PHY(), advertisingSID: UInt8 = 0xFF
    public var txPower: Int8 = 127, rssi: Int8 = 127
    public var periodicAdvertisingInterval = PeriodicAdvertisingInterval()
    public var directAddressType = AddressType()
    public var directAddress = DeviceAddress()
    public var data = Octets()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.bits("Connectable advertising", &connectable, 1)
      try visit.bits("Scannable advertising", &scannable, 1)
      try visit.bits("Directed advertising", &directed, 1)
      try visit.bits("Scan response", &scanResponse, 1)
      try visit.bits("Legacy advertising PDUs used", &legacy, 1)
      try visit.bits("Data status", &dataStatus, 2)
      try visit.bits("Reserved for future use", &reservedEventType, 9)
      try visit.value("Address_Type", &addressType)
      try visit.value("Address", &address)
      try visit.value("Primary_PHY", &primaryPHY)
      try visit.value("Secondary_PHY", &secondaryPHY)
      try visit.value("Advertising_SID", &advertisingSID)
      try visit.value("TX_Power", &txPower)
      try visit.value("RSSI", &rssi)
      try visit.value("Periodic_Advertising_Interval", &periodicAdvertisingInterval)
      try visit.value("Direct_Address_Type", &directAddressType)
      try visit.value("Direct_Address", &directAddress)
      try visit.octets(lengthIn: "Data_Length", UInt8.self, "Data", &data)
    }
  }
}

/// LE Scan Timeout. Vol 4, Part E, §7.7.65.17.
///
/// The duration of extended scanning has elapsed.
public struct LEScanTimeout: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x11 }
  public static var name: StaticString { "HCI_LE_Scan_Timeout" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.17" }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public static var isUsed: Bool { false }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// LE Advertising Set Terminated. Vol 4, Part E, §7.7.65.18.
///
/// `status` 0: the link `connectionHandle` ended it; 0x3C: the duration has elapsed; 0x43: all events have been sent.
public struct LEAdvertisingSetTerminated: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x12 }
  public static var name: StaticString { "HCI_LE_Advertising_Set_Terminated" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.18" }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var status = HCIStatus()
  public var advertisingHandle = AdvertisingHandle()
  public var connectionHandle = ConnectionHandle()
  public var numCompletedExtendedAdvertisingEvents: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Num_Completed_Extended_Advertising_Events", &numCompletedExtendedAdvertisingEvents)
  }
}

/// LE Scan Request Received. Vol 4, Part E, §7.7.65.19.
///
/// Sent only for sets whose `scanRequestNotificationEnable` is on.
public struct LEScanRequestReceived: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x13 }
  public static var name: StaticString { "HCI_LE_Scan_Request_Received" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.19" }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public static var isUsed: Bool { false }
  public var advertisingHandle = AdvertisingHandle()
  public var scannerAddressType = AddressType()
  public var scannerAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Advertising_Handle", &advertisingHandle)
    try visit.value("Scanner_Address_Type", &scannerAddressType)
    try visit.value("Scanner_Address", &scannerAddress)
  }
}

/// LE Read All Remote Features Complete. Vol 4, Part E, §7.7.65.38.
public struct LEReadAllRemoteFeaturesComplete: LEMetaMessage {
  public static var subeventCode: UInt8 { 0x2B }
  public static var name: StaticString { "HCI_LE_Read_All_Remote_Features_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.65.38" }
  public static var requirement: HCIRequirement { LEReadAllRemoteFeatures.requirement }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  /// The peer's last page with a feature, and the last one that the controller has read: 0 … 10.
  public var maxRemotePage: UInt8 = 0, maxValidPage: UInt8 = 0
  /// Page 0, of 8 octets, and ten pages of 24. Pages that the controller has not read are zero.
  public var leFeatures = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Max_Remote_Page", &maxRemotePage)
    try visit.value("Max_Valid_Page", &maxValidPage)
    try visit.octets("LE_Features", &leFeatures, .exactly(LEFeatures.octetsOfAllPages))
  }
}
