import BindruneWire

public struct ConnectionHandle: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
}
public protocol HCICommand: WireRecord { static var opcode: UInt16 { get } }
public protocol HCIEvent: WireRecord { static var code: UInt8 { get } }

/// LE Set Extended Advertising Parameters [v1]. Vol 4, Part E, §7.8.53.
public struct LESetExtendedAdvertisingParameters: HCICommand {
  public static var opcode: UInt16 { 0x2036 }
  public var advertisingHandle: UInt8 = 0
  public var connectable = false, scannable = false, directed = false, highDutyCycle = false, legacy = false,
    anonymous = false, includeTxPower = false
  public var reservedProperties: UInt16 = 0
  public var primaryAdvertisingIntervalMin: UInt24 = 0x800
  public var primaryAdvertisingIntervalMax: UInt24 = 0x800
  public var primaryAdvertisingChannelMap: UInt8 = 7
  public var ownAddressType: UInt8 = 0
  public var peerAddressType: UInt8 = 0
  public var peerAddress = DeviceAddress()
  public var advertisingFilterPolicy: UInt8 = 0
  public var advertisingTxPower: Int8 = 127
  public var primaryAdvertisingPHY: UInt8 = 1
  public var secondaryAdvertisingMaxSkip: UInt8 = 0
  public var secondaryAdvertisingPHY: UInt8 = 1
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
}

/// LE Extended Advertising Report. Vol 4, Part E, §7.7.65.13.
public struct LEExtendedAdvertisingReport: HCIEvent {
  public static var code: UInt8 { 0x3E }
  public var subeventCode: UInt8 = 0x0D
  public var reports = List<Report>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Subevent_Code", &subeventCode)
    try visit.list("Num_Reports", "Reports", counted: &reports)
  }

  public struct Report: WireRecord {
    public var connectable = false, scannable = false, directed = false, scanResponse = false, legacy = false
    public var dataStatus: UInt8 = 0
    public var reservedEventType: UInt16 = 0
    public var addressType: UInt8 = 0
    public var address = DeviceAddress()
    public var primaryPHY: UInt8 = 1, secondaryPHY: UInt8 = 0, advertisingSID: UInt8 = 0xFF
    public var txPower: Int8 = 127, rssi: Int8 = 127
    public var periodicAdvertisingInterval: UInt16 = 0
    public var directAddressType: UInt8 = 0
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
      try visit.octets("Data_Length", UInt8.self, "Data", &data)
    }
  }
}

/// Number Of Completed Packets. Vol 4, Part E, §7.7.19.
public struct NumberOfCompletedPackets: HCIEvent {
  public static var code: UInt8 { 0x13 }
  public var handles = List<Completed>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Num_Handles", "Handles", counted: &handles)
  }

  public struct Completed: WireRecord {
    public var connectionHandle = ConnectionHandle(), reserved: UInt8 = 0
    public var numCompletedPackets: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.bits("Connection_Handle", &connectionHandle, 12)
      try visit.bits("Reserved for future use", &reserved, 4)
      try visit.value("Num_Completed_Packets", &numCompletedPackets)
    }
  }
}

/// HCI ACL Data packet. Vol 4, Part E, §5.4.2.
public struct ACLPacket: WireRecord {
  public var handle = ConnectionHandle(), packetBoundaryFlag: UInt8 = 0, broadcastFlag: UInt8 = 0
  public var data = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Handle", &handle, 12)
    try visit.bits("Packet_Boundary_Flag", &packetBoundaryFlag, 2)
    try visit.bits("Broadcast_Flag", &broadcastFlag, 2)
    try visit.octets("Data_Total_Length", UInt16.self, "Data", &data)
  }
}
